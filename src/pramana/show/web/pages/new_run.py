"""The form of a new run: test cases, models and options, with an estimate before it starts.

Every choice is in the address, so that a prepared run can be shared and any page can link here with fields filled in.
The estimate is the API's; validation errors appear at their fields.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, fields
from nicegui import background_tasks, ui

from pramana.analyse.numbers import pluralise
from pramana.analyse.summary import Total
from pramana.app.models import OfferView, list_models
from pramana.app.providers import list_providers
from pramana.app.runs import create_run, estimate_run
from pramana.app.scenarios import ScenarioPage, list_facets, list_scenarios
from pramana.app.suites import ListedView, list_suites
from pramana.app.views import EstimateView, ShareView
from pramana.report.estimate import self_judging_sentence
from pramana.report.figures import escape_unprintable, format_cost, format_tokens
from pramana.report.markup import Safe, join, render_foreign_text, render_link, render_tiles, tag
from pramana.request import SAMPLING, Limits, RunRequest, field_metadata, is_number
from pramana.show.api.envelope import published_field_name
from pramana.show.api.runs import DEFAULTS
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts
from pramana.show.web.kit.forms import NamesField, add_suggestions, find_field_path, message_of

DEBOUNCE_S = 0.4
"""Changes within this time lead to a single estimate."""
FACETS = {"type": "Type", "difficulty": "Difficulty", "language": "Language", "tag": "Tag"}
MODALITIES = {"text": "text", "voice": "voice: synthesized speech", "noisy": "noisy: speech with background noise"}


def _field_labels(struct: type[Struct], within: str = "", *, numbers: bool) -> dict[str, str]:
    """Return the labels of the form's fields by their API paths."""
    return {
        f"{within}{published_field_name(each)}": title
        for each in fields(struct)
        if (title := field_metadata(each).title) and is_number(each) is numbers
    }


NAMES = _field_labels(RunRequest, numbers=False)
NUMBERS = _field_labels(RunRequest, numbers=True) | _field_labels(Limits, "limits.", numbers=True)
SAMPLING_FIELDS = {published_field_name(each): each for each in SAMPLING.values()}
SENT_AS_NULL = [name for name, each in SAMPLING_FIELDS.items() if each.default is not None]
"""Sampling parameters with a default. An empty field is sent as null, so that the model gets none, not the default."""
_PATHS = {each.name: published_field_name(each) for each in fields(RunRequest)}
_PATHS |= {f"limits.{each.name}": f"limits.{published_field_name(each)}" for each in fields(Limits)}
"""The form path of each request field."""
ALWAYS_OFFERED = ("local", "local-voice", "fake")
"""Models that are always suggested; the first one needs no setup."""
_PROVIDERS_NAMED_ALONE = ("local", "fake", "local-voice", "fake-voice")
"""Providers that need no model name."""
NONE_VALUE = "none"
"""The value of an empty number field in the address."""


@frame.register_page("/runs/new", "New run", create_run)
async def new_run(context: PageContext) -> None:
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
        self, context: PageContext, suites: Sequence[ListedView], facets: Mapping[str, Mapping[str, int]]
    ) -> None:
        self._context, self._facets, self._query = context, facets, context.query
        self._suites = {suite.version: suite for suite in suites}
        self._scenario_count = sum(facets["type"].values())
        self._has_scenario_filter = any(name in context.query for name in ("scenario", "text", *FACETS))
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
                    self._draw_sampling()
                with self._open_fold("More: judge, embedding, speech-to-text, parameters"):
                    self._draw_limits()
                with self._open_fold("Limits"), parts.open_box("fields"):
                    for path in NUMBERS:
                        if path.startswith("limits."):
                            self._number(path)
            with ui.element("aside"), parts.open_card("Estimate"):
                self._estimate = parts.add_markup(Safe("")).props("aria-live=polite")
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
        self._offer_tiers(self._query.get("tier"))

    def _offer_tiers(self, wanted: str | None) -> None:
        version, made = self._fields["suite"].value, self._fields["tier"]
        tiers = self._suites[version].tiers if version in self._suites else {}
        options = {name: f"{name}, {tier.test_count:,} cases" for name, tier in tiers.items()}
        if version and wanted:
            options.setdefault(wanted, escape_unprintable(wanted))
        made.set_options(options, value=wanted if wanted in options else next(iter(options), None))
        made.set_visibility(bool(options))

    async def _change_suite(self, version: Any) -> None:
        tiers = self._suites[version].tiers if version in self._suites else {}
        now = self._fields["tier"].value
        self._offer_tiers(now if now in tiers else None)
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
                for name, label in FACETS.items():
                    chosen = self._query.getlist(name)
                    counts = {**dict.fromkeys(chosen, 0), **self._facets[name]}
                    options = {each: f"{escape_unprintable(each)} ({count:,})" for each, count in counts.items()}
                    made = parts.add_select(label, options, chosen, self._on_change, several=True)
                    self._fields[f"scenarios.{name}"] = made
                self._field("text", "Contains text")
            self._ids = NamesField("scenario by its id", ids, self._on_change)
            self._matching = parts.add_markup(Safe("")).props("role=status")
        self._choosing.set_visibility(self._has_scenario_filter)

    async def _on_scenarios_toggled(self, wanted: Any) -> None:
        if self._choosing:
            self._choosing.set_visibility(bool(wanted))
        await self._on_change()

    def _scenario_filters(self) -> dict[str, Any] | None:
        """Return the scenario filters as parameters of the list; None without scenarios, empty for all of them."""
        if self._choosing is None or not self._choosing.visible:
            return None
        found: dict[str, Any] = {"id": self._ids.names}
        found |= {name: self._fields[f"scenarios.{name}"].value for name in (*FACETS, "text")}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items() if value}

    async def _count(self) -> str:
        wanted = self._scenario_filters()
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
        self._models = NamesField("model", self._query.getlist("model"), self._on_change, ALWAYS_OFFERED)
        self._fields["models"] = self._models.field
        known = "local is the embedded model and needs no key. Write other models as PROVIDER:MODEL or http://HOST:PORT/v1#MODEL."
        parts.add_paragraph(known, quiet=True).classes("small")
        problems = parts.add_markup(Safe(""))

        async def load_offers() -> None:
            try:
                said = await self._context.call(list_models)
                registered = (await self._context.call(list_providers)).items
            except UseCaseRefused:
                return  # without suggestions, names can still be typed
            if not problems.is_deleted:
                own = {each.id: each.arguments.model for each in registered}
                self._models.suggest([*ALWAYS_OFFERED, *_list_typed_models(said, own)])
                problems.set_content(_render_offer_problems(said))

        background_tasks.create(load_offers(), name="List available models", context=problems)

    def _draw_sampling(self) -> None:
        chosen = [each for each in self._query.getlist("modality") if each in MODALITIES]
        with parts.open_box("fields"):
            self._number("repeats", least=1)
            self._fields["modality"] = parts.add_select("Modality", MODALITIES, chosen, self._on_change, several=True)
            for name in ("condition", "name", "note"):
                self._field(name, NAMES[name])
        add_suggestions(self._fields["condition"], ("noise=10dB", "phone", "noise=10dB,phone"))
        usual = "By default, text models get text and voice models get speech. Conditions change the audio."
        parts.add_paragraph(usual, quiet=True).classes("small")

    def _draw_limits(self) -> None:
        with parts.open_box("fields"):
            for name in ("judge", "embedder", "stt"):
                self._field(name, NAMES[name])
            for path in SAMPLING_FIELDS:
                self._number(path)
        self._field("systemPrompt", "System prompt", lines=True)

    # ── Fields ──

    def _field(self, name: str, label: str, *, lines: bool = False) -> None:
        path = "scenarios.text" if name == "text" else name
        self._fields[path] = parts.add_text_field(
            label, self._query.get(name, ""), self._on_change, lines=lines
        ).classes("wide")

    def _number(self, path: str, least: float = 0) -> None:
        label, usual = NUMBERS[path], _to_request_value(DEFAULTS[path])
        said = self._query.get(_last_part(path), "")
        try:
            value = None if said == NONE_VALUE else float(said) if said else usual
        except ValueError:
            value = usual
        if value is not None and not isfinite(value):
            value = usual
        self._fields[path] = parts.add_number_field(label, value, self._on_change, least=least)

    @contextmanager
    def _open_fold(self, title: str) -> Iterator[None]:
        """Open a collapsible box, expanded if one of its fields is in the address or has an error."""
        before = set(self._fields)
        with ui.element("details").classes("card") as made:
            ui.html(title, tag="summary")
            with parts.open_box("stack"):
                yield
        inside = [path for path in self._fields if path not in before]
        self._fold_boxes.append((made, inside))
        if any(_last_part(path) in self._query for path in inside):
            made.props("open")

    # ── Estimate and start ──

    def _field_values(self) -> dict[str, Any]:
        """Return the values of the fields by path, without models and scenarios."""
        apart = ("models", "scenarios.")
        values = {
            path: _to_request_value(made.value) for path, made in self._fields.items() if not path.startswith(apart)
        }
        if not values["suite"]:
            del values["tier"]
        return {path: value for path, value in values.items() if value not in (None, "", []) or path in SENT_AS_NULL}

    def _request(self) -> RunRequest:
        """Return the form as a run request."""
        chosen, scenarios = self._field_values(), self._scenario_filters()
        return RunRequest(
            models=tuple(self._models.names),
            scenarios=None if scenarios is None else ScenarioPage(page_size=1, **scenarios).selection(),
            limits=Limits(**_set_fields(Limits, chosen, "limits.")),
            **_set_fields(RunRequest, chosen),
        )

    def _address(self) -> str:
        """Return the address of the form, without default values."""
        chosen, scenarios = self._field_values(), self._scenario_filters()
        for name in ("systemPrompt", "note"):  # these may be longer than an address can be
            chosen.pop(name, None)
        found = {_last_part(path): value for path, value in chosen.items() if value != DEFAULTS.get(path)}
        found |= {name: NONE_VALUE for name in SENT_AS_NULL if chosen[name] is None}
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
        await asyncio.sleep(DEBOUNCE_S)
        if turn == self._turn and not self._estimate.is_deleted:
            with self._estimate:  # the button that was clicked may be gone by now
                ui.navigate.history.replace(self._address())
            await self._update_estimate(turn)

    async def _update_estimate(self, turn: int) -> None:
        """Show the estimate; drop it if the form has changed meanwhile."""
        request, matching, refused = self._request(), "", None
        missing = shown = _render_missing(request)
        try:
            matching = await self._count()
            if missing is None:
                found = await self._context.call(estimate_run, request)
                shown = _render_estimate(found, capped=request.limits.max_cost_usd is not None)
        except UseCaseRefused as error:
            refused, shown = error, parts.render_refusal(error)
        if turn != self._turn or self._estimate.is_deleted:
            return
        if self._choosing:
            self._matching.set_content(tag("p", matching, class_="quiet") if matching else "")
        self._mark_errors(refused)
        self._estimate.set_content(shown or "")
        # A role that may not start runs may not estimate them either; its user sees the error on pressing Start.
        ready = missing is None and (refused is None or refused.status == 403)
        self._estimated = request if ready else None
        self._start.set_enabled(ready)

    def _mark_errors(self, refused: UseCaseRefused | None) -> None:
        """Show validation errors at their fields."""
        for made in self._fields.values():
            made.error = None
        for problem in refused.problems if refused else ():
            path = find_field_path(_PATHS.get(problem.path, problem.path), self._fields)
            if path:
                self._fields[path].error = message_of(self._fields[path], problem.message)
            for fold, inside in self._fold_boxes:
                if path in inside:
                    fold.props("open")

    async def _start_run(self) -> None:
        request = self._request()
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


def _last_part(path: str) -> str:
    return path.rpartition(".")[2]


def _set_fields(struct: type[Struct], chosen: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Return the chosen values as arguments of a request struct, lists as tuples."""
    paths = {each.name: f"{within}{published_field_name(each)}" for each in fields(struct)}
    found = {name: chosen[path] for name, path in paths.items() if path in chosen}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


# ── Markup of an estimate ──

_UNKNOWN_TOKENS_NOTE = "Token counts of voice conversations are not known in advance."


def _render_missing(request: RunRequest) -> Safe | None:
    """Return what must be chosen before a run can be estimated, or None."""
    if request.suite is None and request.scenarios is None:
        return tag("p", "Choose a suite or scenarios.", class_="quiet")
    return None if request.models else tag("p", "Add a model.", class_="quiet")


def _render_estimate(estimate: EstimateView, *, capped: bool) -> Safe:
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
    listed = tag("ul", map(_render_share, shares), class_="lines small")
    return tag(
        "div",
        render_tiles(numbers),
        _render_warnings(estimate, capped=capped),
        _self_judged(estimate),
        None if known else tag("p", _UNKNOWN_TOKENS_NOTE, class_="small quiet"),
        tag("details", tag("summary", "Breakdown"), listed) if len(shares) > 1 else None,
        tag("p", estimate.note, class_="small quiet"),
        class_="stack",
    )


def _render_share(each: ShareView) -> Safe:
    known = each.input_tokens is not None and each.output_tokens is not None
    took = f"{(each.input_tokens or 0) + (each.output_tokens or 0):,} tokens" if known else "tokens unknown"
    purpose = "" if each.purpose == "model" else f"as the {each.purpose}, "
    cost = "cost unknown" if each.cost_usd is None else _format_cost([each])
    return tag(
        "li", render_foreign_text(each.model, 120), ": ", f"{purpose}{pluralise(each.calls, 'call')}, {took}, {cost}"
    )


def _format_cost(shares: Sequence[ShareView]) -> str:
    costs = [each.cost_usd for each in shares]
    return format_cost(Total(sum(each for each in costs if each is not None), costs.count(None)))


def _format_cost_range(estimate: EstimateView) -> str | None:
    """Return the cost range, or None if it is unknown or the run is free."""
    if estimate.cost_range_usd is None or not estimate.cost_range_usd[1]:
        return None
    low, high = estimate.cost_range_usd
    return f"{format_cost(Total(low))} to {format_cost(Total(high))}"


def _self_judged(estimate: EstimateView) -> Safe | None:
    """Return a warning about models that judge their own replies, or None."""
    if not estimate.self_judged:
        return None
    models = sum(each.purpose == "model" for each in estimate.shares)
    sentence = self_judging_sentence(estimate.self_judged, models, "you can name another judge under More")
    return tag("p", render_foreign_text(sentence, 400), class_="small quiet")


def _render_warnings(estimate: EstimateView, *, capped: bool) -> Safe | None:
    """Return all warnings about missing parts, each with its remedy."""
    said = [tag("p", render_foreign_text(each, 300), ".") for each in estimate.warnings]
    if estimate.missing_keys:
        said.append(tag("p", render_link("/settings/providers", "Providers")))
    if names := estimate.unknown_prices:
        listed = join((render_foreign_text(each, 120) for each in names[:5]), ", ")
        more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        then = (
            "A run with a cost limit needs a price for every model."
            if capped
            else "The run can start, but its cost stays unknown."
        )
        set_it = render_link("/settings/prices", "Set a price")
        said.append(tag("p", "No price is known for ", listed, f"{more}. ", set_it, f". {then}"))
    return tag("div", said, class_="warn") if said else None


# ── Available models ──


def _list_typed_models(offers: Sequence[OfferView], registered: Mapping[str, str | None]) -> Iterator[str]:
    """Yield each offered model as a user types it; `registered` maps a provider to its default model."""
    for offer in offers:
        name = offer.provider
        if name in _PROVIDERS_NAMED_ALONE or registered.get(name):
            yield name
        else:
            yield from (f"{name}:{model}" for model in offer.models)


def _render_offer_problems(offers: Sequence[OfferView]) -> Safe:
    """Return the errors of providers whose models could not be listed, or nothing."""
    wrong = [each for each in offers if each.problem]
    if not wrong:
        return Safe("")
    rows = (
        tag("li", render_foreign_text(each.provider), ": ", render_foreign_text(each.problem, 500)) for each in wrong
    )
    return tag(
        "details",
        tag("summary", f"Could not list the models of {pluralise(len(wrong), 'provider')}"),
        tag("ul", rows, class_="lines small"),
        tag("p", render_link("/settings/providers", "Providers"), class_="small"),
    )
