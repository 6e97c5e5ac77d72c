"""A new run: what is asked, who is asked and how, and what it will take, before it starts.

What is chosen stands in the address, so that a run can be prepared for somebody else, and any page can lead here with
something chosen already. The estimate is the API's own; what it refuses is said at the field that it is about.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, fields
from nicegui import background_tasks, ui

from pramana.analyse.numbers import counted
from pramana.analyse.summary import Total
from pramana.app.models import OfferView, list_models
from pramana.app.providers import list_providers
from pramana.app.runs import create_run, estimate_run
from pramana.app.scenarios import ScenarioPage, list_facets, list_scenarios
from pramana.app.suites import ListedView, list_suites
from pramana.app.views import EstimateView, ShareView
from pramana.report.estimate import self_judging_sentence
from pramana.report.figures import money, printable, tokens
from pramana.report.markup import Safe, foreign, join, link, tag, tiles
from pramana.request import SAMPLING, Limits, RunRequest, is_number, metadata
from pramana.show.api.envelope import sent_as
from pramana.show.api.runs import USUAL
from pramana.show.web.kit import Desk, Refused, address, frame, parts
from pramana.show.web.kit.forms import Names, field_of, message_of, suggest

SETTLED_S = 0.4
"""What is changed within so long is estimated together."""
FACETS = {"type": "Type", "difficulty": "Difficulty", "language": "Language", "tag": "Tag"}
MODALITIES = {"text": "text", "voice": "voice: synthesized speech", "noisy": "noisy: speech with background noise"}


def _labels(struct: type[Struct], within: str = "", *, numbers: bool) -> dict[str, str]:
    """Return the label of each field that the form has, by the path that the API has for it."""
    return {
        f"{within}{sent_as(each)}": title
        for each in fields(struct)
        if (title := metadata(each).title) and is_number(each) is numbers
    }


NAMES = _labels(RunRequest, numbers=False)
NUMBERS = _labels(RunRequest, numbers=True) | _labels(Limits, "limits.", numbers=True)
SAMPLED = {sent_as(each): each for each in SAMPLING.values()}
SENT_AS_NULL = [name for name, each in SAMPLED.items() if each.default is not None]
"""Without a number, none of these is sent to a model; left out, the usual one would be."""
_PATHS = {each.name: sent_as(each) for each in fields(RunRequest)}
_PATHS |= {f"limits.{each.name}": f"limits.{sent_as(each)}" for each in fields(Limits)}
"""Where the form has each field of a request."""
ALWAYS = ("local", "local-voice", "fake")
"""Models that are there whatever is set up; first of all the one that anybody can ask."""
_OWN_NAME = ("local", "fake", "local-voice", "fake-voice")
"""Providers whose name is enough."""
NONE = "none"
"""What an address says where there is no number."""


@frame.page("/runs/new", "New run", create_run)
async def new_run(desk: Desk) -> None:
    """Let somebody put a run together, and start it."""
    suites = await desk.call(list_suites)
    facets = asdict(await desk.call(list_facets))
    frame.head("New run", "Choose test cases and models. Nothing is sent until you press Start.", (("/runs", "Runs"),))
    await _Form(desk, suites, facets).draw()


class _Form:
    """What somebody chooses, as it stands on the page."""

    def __init__(self, desk: Desk, suites: Sequence[ListedView], facets: Mapping[str, Mapping[str, int]]) -> None:
        self._desk, self._facets, self._query = desk, facets, desk.query
        self._suites = {suite.version: suite for suite in suites}
        self._kept = sum(facets["type"].values())
        self._by_scenario = any(name in desk.query for name in ("scenario", "text", *FACETS))
        self._fields: dict[str, Any] = {}
        """By the path that the API has for each."""
        self._folds: list[tuple[ui.element, list[str]]] = []
        self._choosing: ui.element | None = None
        self._turn = 0
        self._estimated: RunRequest | None = None
        """The run that was estimated last: only that one can be started."""

    async def draw(self) -> None:
        """Put everything on the page, with the estimate of what the address has chosen."""
        with parts.box("beside"):
            with parts.box("stack wide"):
                with parts.card("Test cases"):
                    self._draw_suite()
                    self._draw_scenarios()
                with parts.card("Models"):
                    self._draw_models()
                with parts.card("Options"):
                    self._draw_how()
                with self._folded("More: judge, embedding, speech-to-text, parameters"):
                    self._draw_more()
                with self._folded("Limits"), parts.box("fields"):
                    for path in NUMBERS:
                        if path.startswith("limits."):
                            self._number(path)
            with ui.element("aside"), parts.card("Estimate"):
                self._estimate = parts.show(Safe("")).props("aria-live=polite")
                self._start = parts.button("Start", self._begin, "primary")
        await self._ask(self._turn)

    # ── What is asked ──

    def _draw_suite(self) -> None:
        first = None if self._by_scenario and "tier" not in self._query else next(iter(self._suites), None)
        version = self._query.get("suite") or first
        options = {name: f"{name}, {suite.origin}" for name, suite in self._suites.items()}
        if version:
            options.setdefault(version, printable(version))
        with parts.box("fields"):
            self._fields["suite"] = parts.choice("Suite", options, version, self._change_suite, clearable=True)
            self._fields["tier"] = parts.choice("Tier", {}, None, self._changed)
        self._offer_tiers(self._query.get("tier"))

    def _offer_tiers(self, wanted: str | None) -> None:
        version, made = self._fields["suite"].value, self._fields["tier"]
        tiers = self._suites[version].tiers if version in self._suites else {}
        options = {name: f"{name}, {tier.test_count:,} cases" for name, tier in tiers.items()}
        if version and wanted:
            options.setdefault(wanted, printable(wanted))
        made.set_options(options, value=wanted if wanted in options else next(iter(options), None))
        made.set_visibility(bool(options))

    async def _change_suite(self, version: Any) -> None:
        tiers = self._suites[version].tiers if version in self._suites else {}
        now = self._fields["tier"].value
        self._offer_tiers(now if now in tiers else None)
        await self._changed()

    def _draw_scenarios(self) -> None:
        ids = [each for each in self._query.getlist("scenario") if each != "all"]
        if not self._kept and not ids:
            library = link("/scenarios/import", "import the library or your own files")
            parts.paragraph("No scenarios on this server yet: ", library, ".", quiet=True)
            return
        parts.tick(f"Scenarios of this server ({self._kept:,})", self._by_scenario, self._want_scenarios)
        with parts.box("stack") as self._choosing:
            with parts.box("fields"):
                for name, label in FACETS.items():
                    chosen = self._query.getlist(name)
                    counts = {**dict.fromkeys(chosen, 0), **self._facets[name]}
                    options = {each: f"{printable(each)} ({count:,})" for each, count in counts.items()}
                    made = parts.choice(label, options, chosen, self._changed, several=True)
                    self._fields[f"scenarios.{name}"] = made
                self._field("text", "Contains text")
            self._ids = Names("scenario by its id", ids, self._changed)
            self._matching = parts.show(Safe("")).props("role=status")
        self._choosing.set_visibility(self._by_scenario)

    async def _want_scenarios(self, wanted: Any) -> None:
        if self._choosing:
            self._choosing.set_visibility(bool(wanted))
        await self._changed()

    def _wanted_scenarios(self) -> dict[str, Any] | None:
        """Return by what scenarios are chosen, in the words of their list; None: none are, nothing: all of them."""
        if self._choosing is None or not self._choosing.visible:
            return None
        found: dict[str, Any] = {"id": self._ids.names}
        found |= {name: self._fields[f"scenarios.{name}"].value for name in (*FACETS, "text")}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items() if value}

    async def _count(self) -> str:
        wanted = self._wanted_scenarios()
        if wanted is None:
            return ""
        total = (await self._desk.call(list_scenarios, self._desk.asked(ScenarioPage, wanted, page_size=1))).total
        if not wanted:
            return f"All {total:,} scenarios are selected. Use the filters above to run only some."
        return f"{total:,} of {self._kept:,} scenarios {'matches' if total == 1 else 'match'}."

    # ── Who is asked, and how ──

    def _draw_models(self) -> None:
        self._models = Names("model", self._query.getlist("model"), self._changed, ALWAYS)
        self._fields["models"] = self._models.field
        known = "local is the embedded model and needs no key. Others are PROVIDER:MODEL, or http://HOST:PORT/v1#MODEL."
        parts.paragraph(known, quiet=True).classes("small")
        problems = parts.show(Safe(""))

        async def offers() -> None:
            try:
                said = await self._desk.call(list_models)
                registered = (await self._desk.call(list_providers)).items
            except Refused:
                return  # names can be typed all the same
            if not problems.is_deleted:
                own = {each.id: each.arguments.model for each in registered}
                self._models.suggest([*ALWAYS, *_typed(said, own)])
                problems.set_content(_problems(said))

        background_tasks.create(offers(), name="ask what can be asked", context=problems)

    def _draw_how(self) -> None:
        chosen = [each for each in self._query.getlist("modality") if each in MODALITIES]
        with parts.box("fields"):
            self._number("repeats", least=1)
            self._fields["modality"] = parts.choice("Modality", MODALITIES, chosen, self._changed, several=True)
            for name in ("condition", "name", "note"):
                self._field(name, NAMES[name])
        suggest(self._fields["condition"], ("noise=10dB", "phone", "noise=10dB,phone"))
        usual = "By default, text models get text and voice models get speech. Conditions change the audio."
        parts.paragraph(usual, quiet=True).classes("small")

    def _draw_more(self) -> None:
        with parts.box("fields"):
            for name in ("judge", "embedder", "stt"):
                self._field(name, NAMES[name])
            for path in SAMPLED:
                self._number(path)
        self._field("systemPrompt", "System prompt", lines=True)

    # ── Fields ──

    def _field(self, name: str, label: str, *, lines: bool = False) -> None:
        path = "scenarios.text" if name == "text" else name
        self._fields[path] = parts.field(label, self._query.get(name, ""), self._changed, lines=lines).classes("wide")

    def _number(self, path: str, least: float = 0) -> None:
        label, usual = NUMBERS[path], _plain(USUAL[path])
        said = self._query.get(_last(path), "")
        try:
            value = None if said == NONE else float(said) if said else usual
        except ValueError:
            value = usual
        if value is not None and not isfinite(value):
            value = usual
        self._fields[path] = parts.number(label, value, self._changed, least=least)

    @contextmanager
    def _folded(self, title: str) -> Iterator[None]:
        """Open a box that is closed until somebody wants it, or something in it was chosen already or is wrong."""
        before = set(self._fields)
        with ui.element("details").classes("card") as made:
            ui.html(title, tag="summary")
            with parts.box("stack"):
                yield
        inside = [path for path in self._fields if path not in before]
        self._folds.append((made, inside))
        if any(_last(path) in self._query for path in inside):
            made.props("open")

    # ── What it will take ──

    def _chosen(self) -> dict[str, Any]:
        """Return what is in the fields, by their paths, but for models and scenarios."""
        apart = ("models", "scenarios.")
        values = {path: _plain(made.value) for path, made in self._fields.items() if not path.startswith(apart)}
        if not values["suite"]:
            del values["tier"]
        return {path: value for path, value in values.items() if value not in (None, "", []) or path in SENT_AS_NULL}

    def _request(self) -> RunRequest:
        """Return the run that is chosen."""
        chosen, scenarios = self._chosen(), self._wanted_scenarios()
        return RunRequest(
            models=tuple(self._models.names),
            scenarios=None if scenarios is None else ScenarioPage(page_size=1, **scenarios).selection(),
            limits=Limits(**_stated(Limits, chosen, "limits.")),
            **_stated(RunRequest, chosen),
        )

    def _address(self) -> str:
        """Return the address of what is chosen; what is as usual is left out."""
        chosen, scenarios = self._chosen(), self._wanted_scenarios()
        for name in ("systemPrompt", "note"):  # which may be longer than any address
            chosen.pop(name, None)
        found = {_last(path): value for path, value in chosen.items() if value != USUAL.get(path)}
        found |= {name: NONE for name in SENT_AS_NULL if chosen[name] is None}
        found |= {"scenario": "all"} if scenarios == {} else scenarios or {}
        if "id" in found:
            found["scenario"] = found.pop("id")
        return address("/runs/new", **found, model=list(self._models.names))

    async def _changed(self, _: Any = None) -> None:
        """Estimate anew, once nothing was changed for a moment."""
        self._turn += 1
        turn = self._turn
        self._estimated = None
        self._start.disable()
        await asyncio.sleep(SETTLED_S)
        if turn == self._turn and not self._estimate.is_deleted:
            with self._estimate:  # the button that was pressed may be gone by now
                ui.navigate.history.replace(self._address())
            await self._ask(turn)

    async def _ask(self, turn: int) -> None:
        """Show what it will take; the answer to what was chosen before is dropped."""
        request, matching, refused = self._request(), "", None
        missing = shown = _missing(request)
        try:
            matching = await self._count()
            if missing is None:
                found = await self._desk.call(estimate_run, request)
                shown = _estimate(found, capped=request.limits.max_cost_usd is not None)
        except Refused as error:
            refused, shown = error, parts.refusal(error)
        if turn != self._turn or self._estimate.is_deleted:
            return
        if self._choosing:
            self._matching.set_content(tag("p", matching, class_="quiet") if matching else "")
        self._mark(refused)
        self._estimate.set_content(shown or "")
        # Whoever may not start a run may not have one estimated either; they are told so where they press.
        ready = missing is None and (refused is None or refused.status == 403)
        self._estimated = request if ready else None
        self._start.set_enabled(ready)

    def _mark(self, refused: Refused | None) -> None:
        """Say at each field what is wrong with it."""
        for made in self._fields.values():
            made.error = None
        for problem in refused.problems if refused else ():
            path = field_of(_PATHS.get(problem.path, problem.path), self._fields)
            if path:
                self._fields[path].error = message_of(self._fields[path], problem.message)
            for fold, inside in self._folds:
                if path in inside:
                    fold.props("open")

    async def _begin(self) -> None:
        request = self._request()
        if request != self._estimated:  # something was changed while the button was on its way
            await self._changed()
            return
        made = await self._desk.call(create_run, request)
        ui.navigate.to(address(f"/runs/{made.id}"))


def _plain(value: Any) -> Any:
    """Return what is in a field as the API takes it: whole numbers as such, and texts without blanks around them."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip() if isinstance(value, str) else value


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _stated(struct: type[Struct], chosen: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Return the fields of a request that are chosen; lists become tuples, as it has them."""
    paths = {each.name: f"{within}{sent_as(each)}" for each in fields(struct)}
    found = {name: chosen[path] for name, path in paths.items() if path in chosen}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


# ── What is shown of an estimate ──

_UNCOUNTED = "Token counts of voice conversations are not known in advance."


def _missing(request: RunRequest) -> Safe | None:
    """Return what must be chosen before anything can be estimated."""
    if request.suite is None and request.scenarios is None:
        return tag("p", "Choose a suite or scenarios.", class_="quiet")
    return None if request.models else tag("p", "Add a model.", class_="quiet")


def _estimate(found: EstimateView, *, capped: bool) -> Safe:
    """Return what a run will take, and what to do where that is not known."""
    shares = [each for each in found.shares if each.calls]
    numbers = [
        ("Calls", f"{found.calls:,}", f"{counted(found.cases, 'case')}, {counted(found.results, 'result')}"),
        ("Cost", _dollars(shares), _cost_range(found)),
        ("Tokens in", tokens(found.input_tokens), None),
        ("Tokens out", tokens(found.output_tokens), None),
    ]
    known = found.input_tokens is not None and found.output_tokens is not None
    listed = tag("ul", map(_share, shares), class_="lines small")
    return tag(
        "div",
        tiles(numbers),
        _warnings(found, capped=capped),
        _self_judged(found),
        None if known else tag("p", _UNCOUNTED, class_="small quiet"),
        tag("details", tag("summary", "Breakdown"), listed) if len(shares) > 1 else None,
        tag("p", found.note, class_="small quiet"),
        class_="stack",
    )


def _share(each: ShareView) -> Safe:
    known = each.input_tokens is not None and each.output_tokens is not None
    took = f"{(each.input_tokens or 0) + (each.output_tokens or 0):,} tokens" if known else "tokens unknown"
    purpose = "" if each.purpose == "model" else f"as the {each.purpose}, "
    cost = "cost unknown" if each.cost_usd is None else _dollars([each])
    return tag("li", foreign(each.model, 120), ": ", f"{purpose}{counted(each.calls, 'call')}, {took}, {cost}")


def _dollars(shares: Sequence[ShareView]) -> str:
    costs = [each.cost_usd for each in shares]
    return money(Total(sum(each for each in costs if each is not None), costs.count(None)))


def _cost_range(found: EstimateView) -> str | None:
    """Return the range of the cost; nothing where it is unknown, or the run costs nothing."""
    if found.cost_range_usd is None or not found.cost_range_usd[1]:
        return None
    low, high = found.cost_range_usd
    return f"{money(Total(low))} to {money(Total(high))}"


def _self_judged(found: EstimateView) -> Safe | None:
    """Return which models judge their own replies; nothing where none does."""
    if not found.self_judged:
        return None
    models = sum(each.purpose == "model" for each in found.shares)
    sentence = self_judging_sentence(found.self_judged, models, "you can name another judge under More")
    return tag("p", foreign(sentence, 400), class_="small quiet")


def _warnings(found: EstimateView, *, capped: bool) -> Safe | None:
    """Return, in one place, what will be missing and what to do about it."""
    said = [tag("p", foreign(each, 300), ".") for each in found.warnings]
    if found.missing_keys:
        said.append(tag("p", link("/settings/providers", "Providers")))
    if names := found.unknown_prices:
        listed = join((foreign(each, 120) for each in names[:5]), ", ")
        more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        then = (
            "A run with a cost limit cannot start without one."
            if capped
            else "The run can start, but its cost stays unknown."
        )
        set_it = link("/settings/prices", "Set a price")
        said.append(tag("p", "No price is known for ", listed, f"{more}. ", set_it, f". {then}"))
    return tag("div", said, class_="warn") if said else None


# ── Whom one can ask ──


def _typed(offers: Sequence[OfferView], registered: Mapping[str, str | None]) -> Iterator[str]:
    """Yield each model that is offered, as it is typed; `registered` has the model of each provider that has one."""
    for offer in offers:
        name = offer.provider
        if name in _OWN_NAME or registered.get(name):
            yield name
        else:
            yield from (f"{name}:{model}" for model in offer.models)


def _problems(offers: Sequence[OfferView]) -> Safe:
    """Return why providers could not be asked what they offer; nothing where all could."""
    wrong = [each for each in offers if each.problem]
    if not wrong:
        return Safe("")
    rows = (tag("li", foreign(each.provider), ": ", foreign(each.problem, 500)) for each in wrong)
    return tag(
        "details",
        tag("summary", f"Could not list the models of {counted(len(wrong), 'provider')}"),
        tag("ul", rows, class_="lines small"),
        tag("p", link("/settings/providers", "Providers"), class_="small"),
    )
