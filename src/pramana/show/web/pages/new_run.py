"""The form of a new run: test cases, models and options, with an estimate before it starts.

Every choice is in the address, so that a prepared run can be shared and any page can link here with fields filled in.
The estimate is the API's; validation errors appear at their fields.
"""

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, fields
from nicegui import ui

from pramana.analyse.numbers import format_loss, pluralise
from pramana.analyse.power import POWER, detectable_loss, fit_model
from pramana.analyse.summary import KnownTotal
from pramana.app.runs import create_run, estimate_run
from pramana.app.scenarios import ScenarioPage, list_facets, list_scenarios
from pramana.app.suites import ListedSuiteView, list_suites
from pramana.app.views import EstimateView, ModelEstimateView
from pramana.report.estimate import make_self_judging_sentence
from pramana.report.figures import escape_unprintable, format_cost, format_tokens
from pramana.report.markup import SafeHtml, join_html, render_link, render_tiles, render_untrusted_text, tag
from pramana.request import MODEL_PARAMETER_FIELDS, Limits, RunRequest, get_field_metadata, takes_number
from pramana.show.api.envelope import published_field_name
from pramana.show.api.runs import DEFAULTS_BY_PATH
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts
from pramana.show.web.kit.forms import NameListField, add_suggestions, find_field_path, make_field_message
from pramana.show.web.pages.model_suggestions import ALWAYS_SUGGESTED_MODELS, MODEL_NAMES_HINT, suggest_models

ESTIMATE_DEBOUNCE_S = 0.4
"""Changes within this time lead to a single estimate."""
FACET_LABELS = {"type": "Type", "difficulty": "Difficulty", "language": "Language", "tag": "Tag"}
MODALITY_LABELS = {"text": "text", "voice": "voice: synthesized speech", "noisy": "noisy: speech with background noise"}


def _collect_field_labels(struct: type[Struct], path_prefix: str = "", *, are_numbers: bool) -> dict[str, str]:
    """Return the labels of the form's fields by their API paths."""
    return {
        f"{path_prefix}{published_field_name(each)}": title
        for each in fields(struct)
        if (title := get_field_metadata(each).title) and takes_number(each) is are_numbers
    }


TEXT_FIELD_LABELS = _collect_field_labels(RunRequest, are_numbers=False)
NUMBER_FIELD_LABELS = _collect_field_labels(RunRequest, are_numbers=True) | _collect_field_labels(
    Limits, "limits.", are_numbers=True
)
SAMPLING_FIELDS = {published_field_name(each): each for each in MODEL_PARAMETER_FIELDS.values()}
SENT_AS_NULL_IF_EMPTY = [name for name, each in SAMPLING_FIELDS.items() if each.default is not None]
"""Sampling parameters with a default. An empty field is sent as null, so that the model gets none, not the default."""
_FORM_PATHS_BY_FIELD = {each.name: published_field_name(each) for each in fields(RunRequest)}
_FORM_PATHS_BY_FIELD |= {f"limits.{each.name}": f"limits.{published_field_name(each)}" for each in fields(Limits)}
"""The form path of each request field."""
ASSUMED_PASS_RATE = 0.9
"""What is assumed of the model for what a run can show."""
EMPTY_NUMBER_VALUE = "none"
"""The value of an empty number field in the address."""


@frame.register_page("/runs/new", "New run", create_run)
async def show_new_run_page(context: PageContext) -> None:
    """Show the form of a new run."""
    suites = await context.call(list_suites)
    facets = asdict(await context.call(list_facets))
    frame.add_page_heading(
        "New run", "Choose test cases and models. Nothing is sent until you press Start.", (("/runs", "Runs"),)
    )
    await _RunForm(context, suites, facets).draw()


class _RunForm:
    """The form and its current values."""

    def __init__(
        self, context: PageContext, suites: Sequence[ListedSuiteView], facets: Mapping[str, Mapping[str, int]]
    ) -> None:
        self._context, self._facets, self._query = context, facets, context.query
        self._suites = {suite.version: suite for suite in suites}
        self._scenario_count = sum(facets["type"].values())
        self._has_scenario_filter = any(name in context.query for name in ("scenario", "text", *FACET_LABELS))
        self._fields: dict[str, Any] = {}
        """The fields by their API paths."""
        self._fold_boxes: list[tuple[ui.element, list[str]]] = []
        self._choosing: ui.element | None = None
        self._turn = 0
        self._estimated: RunRequest | None = None
        """The request of the latest estimate: only this one can be started."""

    async def draw(self) -> None:
        """Draw the page with the values from the address, and estimate them."""
        with parts.open_box("beside"):
            with parts.open_box("stack wide"):
                with parts.open_card("Test cases"):
                    self._draw_suite()
                    self._draw_scenarios()
                with parts.open_card("Models"):
                    self._draw_models()
                with parts.open_card("Options"):
                    self._draw_basic_options()
                with self._open_collapsible("More: judge, embedding, speech-to-text, parameters"):
                    self._draw_advanced_options()
                with self._open_collapsible("Limits"), parts.open_box("fields"):
                    for path in NUMBER_FIELD_LABELS:
                        if path.startswith("limits."):
                            self._add_number_field(path)
            with ui.element("aside"), parts.open_card("Estimate"):
                self._estimate = parts.add_markup(SafeHtml("")).props("aria-live=polite")
                self._start = parts.add_button("Start", self._start_run, "primary")
        await self._update_estimate(self._turn)

    # ── Test cases ──

    def _draw_suite(self) -> None:
        first = None if self._has_scenario_filter and "tier" not in self._query else next(iter(self._suites), None)
        version = self._query.get("suite") or first
        options = {name: f"{name}, {suite.origin}" for name, suite in self._suites.items()}
        if version:
            options.setdefault(version, escape_unprintable(version))
        with parts.open_box("fields"):
            self._fields["suite"] = parts.add_select("Suite", options, version, self._change_suite, clearable=True)
            self._fields["tier"] = parts.add_select("Tier", {}, None, self._on_change)
        self._update_tier_options(self._query.get("tier"))

    def _update_tier_options(self, selected_tier: str | None) -> None:
        version, made = self._fields["suite"].value, self._fields["tier"]
        tiers = self._suites[version].tiers if version in self._suites else {}
        options = {name: f"{name}, {tier.test_count:,} cases" for name, tier in tiers.items()}
        if version and selected_tier:
            options.setdefault(selected_tier, escape_unprintable(selected_tier))
        made.set_options(options, value=selected_tier if selected_tier in options else next(iter(options), None))
        made.set_visibility(bool(options))

    async def _change_suite(self, version: Any) -> None:
        tiers = self._suites[version].tiers if version in self._suites else {}
        now = self._fields["tier"].value
        self._update_tier_options(now if now in tiers else None)
        await self._on_change()

    def _draw_scenarios(self) -> None:
        ids = [each for each in self._query.getlist("scenario") if each != "all"]
        if not self._scenario_count and not ids:
            library = render_link("/scenarios/import", "import the library or your own files")
            parts.add_paragraph("No scenarios on this server yet: ", library, ".", quiet=True)
            return
        parts.add_checkbox(
            f"Scenarios of this server ({self._scenario_count:,})",
            self._has_scenario_filter,
            self._on_scenarios_toggled,
        )
        with parts.open_box("stack") as self._choosing:
            with parts.open_box("fields"):
                for name, label in FACET_LABELS.items():
                    chosen = self._query.getlist(name)
                    counts = {**dict.fromkeys(chosen, 0), **self._facets[name]}
                    options = {each: f"{escape_unprintable(each)} ({count:,})" for each, count in counts.items()}
                    made = parts.add_select(label, options, chosen, self._on_change, multiple=True)
                    self._fields[f"scenarios.{name}"] = made
                self._add_text_field("text", "Contains text")
            self._ids = NameListField("scenario by its id", ids, self._on_change)
            self._matching = parts.add_markup(SafeHtml("")).props("role=status")
        self._choosing.set_visibility(self._has_scenario_filter)

    async def _on_scenarios_toggled(self, is_checked: Any) -> None:
        if self._choosing:
            self._choosing.set_visibility(bool(is_checked))
        await self._on_change()

    def _collect_scenario_filters(self) -> dict[str, Any] | None:
        """Return the scenario filters as parameters of the list; None without scenarios, empty for all of them."""
        if self._choosing is None or not self._choosing.visible:
            return None
        found: dict[str, Any] = {"id": self._ids.names}
        found |= {name: self._fields[f"scenarios.{name}"].value for name in (*FACET_LABELS, "text")}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items() if value}

    async def _describe_matching_scenarios(self) -> str:
        wanted = self._collect_scenario_filters()
        if wanted is None:
            return ""
        total = (
            await self._context.call(list_scenarios, self._context.read_request(ScenarioPage, wanted, page_size=1))
        ).total
        if not wanted:
            return f"All {total:,} scenarios are selected. Use the filters above to run only some."
        return f"{total:,} of {self._scenario_count:,} scenarios {'matches' if total == 1 else 'match'}."

    # ── Models and options ──

    def _draw_models(self) -> None:
        self._models = NameListField("model", self._query.getlist("model"), self._on_change, ALWAYS_SUGGESTED_MODELS)
        self._fields["models"] = self._models.field
        parts.add_paragraph(MODEL_NAMES_HINT, quiet=True).classes("small")
        suggest_models(self._context, self._models.suggest)

    def _draw_basic_options(self) -> None:
        chosen = [each for each in self._query.getlist("modality") if each in MODALITY_LABELS]
        with parts.open_box("fields"):
            self._add_number_field("repeats", minimum=1)
            self._fields["modality"] = parts.add_select(
                "Modality", MODALITY_LABELS, chosen, self._on_change, multiple=True
            )
            for name in ("condition", "name", "note"):
                self._add_text_field(name, TEXT_FIELD_LABELS[name])
        add_suggestions(self._fields["condition"], ("noise=10dB", "phone", "noise=10dB,phone"))
        usual = "By default, text models get text and voice models get speech. Conditions change the audio."
        parts.add_paragraph(usual, quiet=True).classes("small")

    def _draw_advanced_options(self) -> None:
        with parts.open_box("fields"):
            for name in ("judge", "embedder", "stt"):
                self._add_text_field(name, TEXT_FIELD_LABELS[name])
            for path in SAMPLING_FIELDS:
                self._add_number_field(path)
        self._add_text_field("systemPrompt", "System prompt", multiline=True)

    # ── Fields ──

    def _add_text_field(self, name: str, label: str, *, multiline: bool = False) -> None:
        path = "scenarios.text" if name == "text" else name
        self._fields[path] = parts.add_text_field(
            label, self._query.get(name, ""), self._on_change, multiline=multiline
        ).classes("wide")

    def _add_number_field(self, path: str, minimum: float = 0) -> None:
        label, usual = NUMBER_FIELD_LABELS[path], _to_request_value(DEFAULTS_BY_PATH[path])
        said = self._query.get(_last_path_segment(path), "")
        try:
            value = None if said == EMPTY_NUMBER_VALUE else float(said) if said else usual
        except ValueError:
            value = usual
        if value is not None and not math.isfinite(value):
            value = usual
        self._fields[path] = parts.add_number_field(label, value, self._on_change, minimum=minimum)

    @contextmanager
    def _open_collapsible(self, title: str) -> Iterator[None]:
        """Open a collapsible box, expanded if one of its fields is in the address or has an error."""
        before = set(self._fields)
        with ui.element("details").classes("card") as made:
            ui.html(title, tag="summary")
            with parts.open_box("stack"):
                yield
        inside = [path for path in self._fields if path not in before]
        self._fold_boxes.append((made, inside))
        if any(_last_path_segment(path) in self._query for path in inside):
            made.props("open")

    # ── Estimate and start ──

    def _collect_field_values(self) -> dict[str, Any]:
        """Return the values of the fields by path, without models and scenarios."""
        apart = ("models", "scenarios.")
        values = {
            path: _to_request_value(made.value) for path, made in self._fields.items() if not path.startswith(apart)
        }
        if not values["suite"]:
            del values["tier"]
        return {
            path: value
            for path, value in values.items()
            if value not in (None, "", []) or path in SENT_AS_NULL_IF_EMPTY
        }

    def _make_request(self) -> RunRequest:
        """Return the form as a run request."""
        chosen, scenarios = self._collect_field_values(), self._collect_scenario_filters()
        arguments = _make_struct_arguments(RunRequest, chosen)
        judges = [name for each in str(arguments.pop("judge", "")).split(",") if (name := each.strip())]
        return RunRequest(
            models=tuple(self._models.names),
            judge=judges[0] if judges else None,
            other_judges=tuple(judges[1:]),
            scenarios=None if scenarios is None else ScenarioPage(page_size=1, **scenarios).selection(),
            limits=Limits(**_make_struct_arguments(Limits, chosen, "limits.")),
            **arguments,
        )

    def _make_form_url(self) -> str:
        """Return the address of the form, without default values."""
        chosen, scenarios = self._collect_field_values(), self._collect_scenario_filters()
        for name in ("systemPrompt", "note"):  # these may be longer than an address can be
            chosen.pop(name, None)
        found = {
            _last_path_segment(path): value for path, value in chosen.items() if value != DEFAULTS_BY_PATH.get(path)
        }
        found |= {name: EMPTY_NUMBER_VALUE for name in SENT_AS_NULL_IF_EMPTY if chosen[name] is None}
        found |= {"scenario": "all"} if scenarios == {} else scenarios or {}
        if "id" in found:
            found["scenario"] = found.pop("id")
        return make_url("/runs/new", **found, model=list(self._models.names))

    async def _on_change(self, _: Any = None) -> None:
        """Estimate again, once nothing has changed for a moment."""
        self._turn += 1
        turn = self._turn
        self._estimated = None
        self._start.disable()
        await asyncio.sleep(ESTIMATE_DEBOUNCE_S)
        if turn == self._turn and not self._estimate.is_deleted:
            with self._estimate:  # the button that was clicked may be gone by now
                ui.navigate.history.replace(self._make_form_url())
            await self._update_estimate(turn)

    async def _update_estimate(self, change_number: int) -> None:
        """Show the estimate; drop it if the form has changed meanwhile."""
        request, matching, refused = self._make_request(), "", None
        missing = shown = _render_missing_choice(request)
        try:
            matching = await self._describe_matching_scenarios()
            if missing is None:
                found = await self._context.call(estimate_run, request)
                detectable = await asyncio.to_thread(describe_detectable_loss, found.cases, request.repeats)
                shown = _render_estimate(found, detectable, has_cost_limit=request.limits.max_cost_usd is not None)
        except UseCaseRefused as error:
            refused, shown = error, parts.render_refusal(error)
        if change_number != self._turn or self._estimate.is_deleted:
            return
        if self._choosing:
            self._matching.set_content(tag("p", matching, class_="quiet") if matching else "")
        self._mark_errors(refused)
        self._estimate.set_content(shown or "")
        # A role that may not start runs may not estimate them either; its user sees the error on pressing Start.
        ready = missing is None and (refused is None or refused.status == 403)
        self._estimated = request if ready else None
        self._start.set_enabled(ready)

    def _mark_errors(self, refusal: UseCaseRefused | None) -> None:
        """Show validation errors at their fields."""
        for made in self._fields.values():
            made.error = None
        for problem in refusal.problems if refusal else ():
            path = find_field_path(_FORM_PATHS_BY_FIELD.get(problem.path, problem.path), self._fields)
            if path and path != "models":  # a model is wrong in the list, not in the empty field that adds another
                self._fields[path].error = make_field_message(self._fields[path], problem.message)
            for fold, inside in self._fold_boxes:
                if path in inside:
                    fold.props("open")

    async def _start_run(self) -> None:
        request = self._make_request()
        if request != self._estimated:  # the form changed after the click
            await self._on_change()
            return
        made = await self._context.call(create_run, request)
        ui.navigate.to(make_url(f"/runs/{made.id}"))


def _to_request_value(value: Any) -> Any:
    """Return a field's value in the API's type: integral floats as int, texts stripped."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip() if isinstance(value, str) else value


def _last_path_segment(path: str) -> str:
    return path.rpartition(".")[2]


def _make_struct_arguments(
    struct: type[Struct], values_by_path: Mapping[str, Any], path_prefix: str = ""
) -> dict[str, Any]:
    """Return the chosen values as arguments of a request struct, lists as tuples."""
    paths = {each.name: f"{path_prefix}{published_field_name(each)}" for each in fields(struct)}
    found = {name: values_by_path[path] for name, path in paths.items() if path in values_by_path}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


# ── Markup of an estimate ──

_UNKNOWN_TOKENS_NOTE = "Token counts of voice conversations are not known in advance."


def _render_missing_choice(request: RunRequest) -> SafeHtml | None:
    """Return what must be chosen before a run can be estimated, or None."""
    if request.suite is None and request.scenarios is None:
        return tag("p", "Choose a suite or scenarios.", class_="quiet")
    return None if request.models else tag("p", "Add a model.", class_="quiet")


@lru_cache(maxsize=256)
def describe_detectable_loss(case_count: int, repeats: int) -> str:
    """Return what a comparison with an earlier run of these cases can show; empty without cases.

    >>> describe_detectable_loss(75, 1)
    '75 cases × 1: a loss of 16 points would be found in 80 % of runs, if 90 % passed before.'
    >>> describe_detectable_loss(1_000_000, 1)
    '1,000,000 cases × 1: a loss of 0.2 points would be found in 80 % of runs, if 90 % passed before.'
    """
    if case_count < 1:
        return ""
    loss = detectable_loss(fit_model(ASSUMED_PASS_RATE), case_count, repeats)
    size = f"{pluralise(case_count, 'case')} × {repeats:,}"
    if loss is None:
        return f"{size}: too few cases to find even a total loss in {100 * POWER:.0f} % of runs."
    steps_per_point = 1 if loss > 0.01 else 10
    lost = f"a loss of {format_loss(math.ceil(100 * steps_per_point * loss) / steps_per_point / 100)}"
    share, before = f"{100 * POWER:.0f} %", f"{100 * ASSUMED_PASS_RATE:.0f} %"
    return f"{size}: {lost} would be found in {share} of runs, if {before} passed before."


def _render_estimate(estimate: EstimateView, detectable: str, *, has_cost_limit: bool) -> SafeHtml:
    """Return the estimate, with advice where a part of it is unknown."""
    shares = [each for each in estimate.shares if each.calls]
    numbers = [
        (
            "Calls",
            f"{estimate.calls:,}",
            f"{pluralise(estimate.cases, 'case')}, {pluralise(estimate.results, 'result')}",
        ),
        ("Cost", _format_cost(shares), _format_cost_range(estimate)),
        ("Tokens in", format_tokens(estimate.input_tokens), None),
        ("Tokens out", format_tokens(estimate.output_tokens), None),
    ]
    known = estimate.input_tokens is not None and estimate.output_tokens is not None
    listed = tag("ul", map(_render_model_cost, shares), class_="lines small")
    return tag(
        "div",
        render_tiles(numbers),
        tag("p", detectable, class_="small") if detectable else None,
        _render_warnings(estimate, has_cost_limit=has_cost_limit),
        _render_self_judging_note(estimate),
        None if known else tag("p", _UNKNOWN_TOKENS_NOTE, class_="small quiet"),
        tag("details", tag("summary", "Breakdown"), listed) if len(shares) > 1 else None,
        tag("p", estimate.note, class_="small quiet"),
        class_="stack",
    )


def _render_model_cost(share: ModelEstimateView) -> SafeHtml:
    known = share.input_tokens is not None and share.output_tokens is not None
    took = f"{(share.input_tokens or 0) + (share.output_tokens or 0):,} tokens" if known else "tokens unknown"
    purpose = "" if share.purpose == "model" else f"as the {share.purpose}, "
    cost = "cost unknown" if share.cost_usd is None else _format_cost([share])
    return tag(
        "li",
        render_untrusted_text(share.model, 120),
        ": ",
        f"{purpose}{pluralise(share.calls, 'call')}, {took}, {cost}",
    )


def _format_cost(shares: Sequence[ModelEstimateView]) -> str:
    costs = [each.cost_usd for each in shares]
    return format_cost(KnownTotal(sum(each for each in costs if each is not None), costs.count(None)))


def _format_cost_range(estimate: EstimateView) -> str | None:
    """Return the cost range, or None if it is unknown or the run is free."""
    if estimate.cost_range_usd is None or not estimate.cost_range_usd[1]:
        return None
    low, high = estimate.cost_range_usd
    return f"{format_cost(KnownTotal(low))} to {format_cost(KnownTotal(high))}"


def _render_self_judging_note(estimate: EstimateView) -> SafeHtml | None:
    """Return a warning about models that judge their own replies, or None."""
    if not estimate.self_judged:
        return None
    models = sum(each.purpose == "model" for each in estimate.shares)
    sentence = make_self_judging_sentence(estimate.self_judged, models, "you can name another judge under More")
    return tag("p", render_untrusted_text(sentence, 400), class_="small quiet")


def _render_warnings(estimate: EstimateView, *, has_cost_limit: bool) -> SafeHtml | None:
    """Return all warnings about missing parts, each with its remedy."""
    said = [tag("p", render_untrusted_text(each, 300), ".") for each in estimate.warnings]
    if estimate.missing_keys:
        said.append(tag("p", render_link("/settings/providers", "Providers")))
    if names := estimate.unknown_prices:
        listed = join_html((render_untrusted_text(each, 120) for each in names[:5]), ", ")
        more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        then = (
            "A run with a cost limit needs a price for every model."
            if has_cost_limit
            else "The run can start, but its cost stays unknown."
        )
        set_it = render_link("/settings/prices", "Set a price")
        said.append(tag("p", "No price is known for ", listed, f"{more}. ", set_it, f". {then}"))
    return tag("div", said, class_="warn") if said else None
