"""Two runs or two models side by side on the same cases: the answer first, then the evidence, then what flipped.

The address holds all of it (`base`, `new`, `model`, `newModel`, `page`, `anySuite`, `anyJudge`), so that whoever opens
it sees the same. Without both sides the page helps to choose them, from lists of the recent runs and their models.
What is not chosen is suggested: the newest run, and against it the run before of the same cases, or else another of its
own models. Where only the run before is named, it is the newest other run of the same cases, never one of others.
"""

from collections.abc import Sequence
from itertools import islice, zip_longest

from msgspec.structs import replace
from nicegui import ui

from pramana.app.comparisons import CompareRequest, ComparisonView, FlipView, compare_runs
from pramana.app.runs import RunFilter, create_run, list_runs, read_progress, read_result
from pramana.app.views import RunView
from pramana.report.figures import percent, printable
from pramana.report.markup import Safe, foreign, pager, tag
from pramana.show.api.envelope import page_meta
from pramana.show.web.kit import Desk, Refused, address, frame, parts
from pramana.show.web.pages.contrast import (
    Noun,
    asked_differently,
    engine_changes,
    flip_line,
    left_out,
    measured,
    noun_of,
    opened,
    sides,
    verdict,
)
from pramana.store.queue import UNDER_WAY

FLIPS = 20
"""Cases that changed on one page."""
SHOWN = 5
"""Repeats of a case whose replies are shown."""
RECENT = 50
"""Runs to choose from."""
_SIDES = {"base": "before", "new": "now"}


@frame.page("/compare", "Compare")
async def compare(desk: Desk) -> None:
    """Show what came of comparing the two that the address names, or help to choose them."""
    query = desk.query
    both = bool(query.get("base") and query.get("new"))
    with frame.head("Compare", "Two runs, or two models, on the same cases: is one better, and where?"):
        if both:
            swapped = desk.here(
                base=query["new"],
                new=query["base"],
                model=query.get("newModel") or query.get("model"),
                newModel=query.get("model"),
                page=None,
            )
            parts.link_button("Swap the sides", swapped)
    if both:
        await _answered(desk)
    await _chooser(desk, both=both)


async def _answered(desk: Desk) -> None:
    """Show the answer, or what must be chosen before there is one; anew while a run is under way."""
    under_way = False

    @ui.refreshable
    async def shown() -> None:
        nonlocal under_way
        try:
            base, new = [await _one_run(desk, desk.query[which]) for which in _SIDES]
            wanted = desk.asked(CompareRequest, {**desk.query, "base": base.id, "new": new.id})
        except Refused as error:
            parts.trouble(error)
            return
        under_way = any(run.status in UNDER_WAY for run in (base, new))
        # The address names both of two models of one run.
        if base.id == new.id and len(base.models) > 1 and not desk.query.get("model"):
            _choose_model(desk, "model", base, new)
            return
        # One of several models of a run was named, and not which one it is compared with.
        if base.id == new.id and desk.query.get("model") and not desk.query.get("newModel"):
            _choose_model(desk, "newModel", base, new)
            return
        try:
            await _answer(desk, wanted, base, new)
        except Refused as error:
            _to_choose(desk, error, base, new)

    await shown()
    if under_way:

        async def again() -> None:
            if under_way:
                await shown.refresh()

        desk.when_new({"run"}, again)


async def _answer(desk: Desk, wanted: CompareRequest, base: RunView, new: RunView) -> None:
    data = await desk.call(compare_runs, replace(wanted, page_size=FLIPS))
    noun = noun_of(base.variants, new.variants)
    frame.titled(f"{data.base_model} against {data.new_model}")
    with parts.box("stack wide"):
        parts.show(verdict(data, noun))
        parts.show(sides(base, new, data, noun))
        for run, word in ((base, "before"), (new, "now")):
            if run.status != "finished":
                parts.show(tag("p", _unfinished(run, word), class_="warn"))
        if data.asked_differently:
            parts.show(asked_differently(data))
        if data.engine_changes:
            parts.show(engine_changes(data))
    parts.show(measured(data, noun))
    _flips(data, wanted.page, noun, desk)
    _changed_replies(data, desk)
    any_judge = None if wanted.any_judge else desk.here(anyJudge=True, page=None)
    parts.show(left_out(data, any_judge, noun_of(base.variants, new.variants, left_out=True)))


def _unfinished(run: RunView, word: str) -> str:
    so_far = f"{run.stored:,} of {run.expected:,} results"
    if run.status in UNDER_WAY:
        return f"The run {word} is under way: this is about its {so_far} so far, and follows when it has ended."
    return f"The run {word} is {run.status}, with {so_far}: cases it did not end are left out. Resume it on its page."


# ── What changed ──


def _flips(data: ComparisonView, page: int, noun: Noun, desk: Desk) -> None:
    parts.heading("What changed")
    if not (total := data.lost + data.gained):
        parts.paragraph(f"No {noun} that was compared ended otherwise.", quiet=True)
        return
    with parts.box("stack"):
        said = f"{data.lost:,} {'passes' if data.lost == 1 else 'pass'} less often now"
        parts.paragraph(f"{said}, {data.gained:,} more often. Open one to see both replies.", quiet=True)
        with ui.element("div"):
            for flip in data.flips:
                _flip(flip, data, desk)
    parts.show(pager(page_meta(page, FLIPS, total), desk.here, f"{noun}s that changed"))


def _flip(flip: FlipView, data: ComparisonView, desk: Desk) -> None:
    """Put one case that changed."""
    _openable(flip_line(flip), flip.base_results, flip.new_results, data, desk)


def _changed_replies(data: ComparisonView, desk: Desk) -> None:
    """Put the replies that changed while their verdict stayed the same; nothing where none did."""
    changes = data.reply_changes
    if not changes.changed:
        return
    parts.heading("Same verdict, different reply")
    with parts.box("stack"):
        parts.paragraph(f"{changes.sentence} Open one to see both replies.", quiet=True)
        with ui.element("div"):
            for each in changes.cases[:FLIPS]:
                base, new = (() if seq is None else (seq,) for seq in (each.base_result, each.new_result))
                _openable(foreign(each.case, 200), base, new, data, desk)
        if (more := changes.changed - FLIPS) > 0:
            parts.paragraph(f"and {more:,} more", quiet=True)


def _openable(
    line: Safe, base_results: Sequence[int], new_results: Sequence[int], data: ComparisonView, desk: Desk
) -> None:
    """Put one case as a line; what was said is fetched when it is opened."""
    with ui.element("details") as made:
        with ui.element("summary"):
            parts.show(line, classes="inline")
        within = ui.element("div").classes("stack")

    async def load() -> None:
        if within.default_slot.children:
            return
        with within:
            waiting = parts.paragraph("Fetching both replies …", quiet=True)
        try:
            pairs = [
                [
                    (await desk.call(read_result, run, seq)).result if seq is not None else None
                    for run, seq in ((data.base, old), (data.new, now))
                ]
                for old, now in islice(zip_longest(base_results, new_results), SHOWN)
            ]
        finally:  # what was refused is fetched anew when it is opened again
            waiting.delete()
        with within:
            parts.show(opened(pairs, data))
            if (more := max(len(base_results), len(new_results)) - SHOWN) > 0:
                parts.paragraph(f"{more:,} more repeats stand on the pages of the runs.", quiet=True)

    made.on("toggle", parts.guarded(load), js_handler="(event) => event.target.open && emit()")


# ── What must be chosen ──


def _to_choose(desk: Desk, error: Refused, base: RunView, new: RunView) -> None:
    """Show why there is no answer yet, and offer what would give one."""
    asked = error.problems[0].path if error.problems else None
    if asked in ("model", "newModel"):
        _choose_model(desk, asked, base, new)
    elif asked == "anySuite":
        with parts.box("warn stack", role="alert"):
            parts.paragraph(
                "These two were not asked the same cases, as far as we know: before ",
                foreign(base.suite),
                ", now ",
                foreign(new.suite),
                ". What both have been asked can be compared all the same.",
            )
            with parts.box("row"):
                parts.link_button("Compare what both have", desk.here(anySuite=True), "primary")
    else:
        parts.trouble(error)


def _choose_model(desk: Desk, asked: str, base: RunView, new: RunView) -> None:
    run, word = (base, "before") if asked == "model" else (new, "now")
    with parts.box("warn stack", role="alert"):
        parts.paragraph(f"The run {word} holds {len(run.models):,} models. Which one is meant?")
        with parts.box("row"):
            for model in run.models:
                changed = {asked: model, "page": None}
                if asked == "model" and not desk.query.get("newModel"):
                    changed["newModel"] = _against(model, base, new)
                if base.id != new.id or asked == "model" or model != desk.query.get("model"):
                    parts.show(tag("a", foreign(model, 80), href=desk.here(**changed), class_="btn"))


def _against(model: str, base: RunView, new: RunView) -> str | None:
    """Return which model of the new run stands against one of the base; None where that has to be chosen."""
    others = [each for each in new.models if base.id != new.id or each != model]
    return model if model in others else others[0] if len(others) == 1 else None


# ── Which two ──


async def _one_run(desk: Desk, named: str) -> RunView:
    """Return a run by its id, the beginning of one, or as the latest."""
    return await desk.call(read_progress, named)


async def _chooser(desk: Desk, *, both: bool) -> None:
    """Put the lists to choose from; `both` says that the address names two already."""
    parts.heading("Compare something else" if both else "Choose two")
    listed = (await desk.call(list_runs, RunFilter(page_size=RECENT, outcomes=True))).items
    if not listed:
        with parts.empty("There is no run yet", "A comparison needs two runs of the same cases, or one of two models."):
            if desk.may(create_run):
                parts.link_button("New run", "/runs/new", "primary")
        return
    choosing = _Choosing({run.id: run for run in listed}, dict(desk.query))
    for which in _SIDES:
        if named := desk.query.get(which):
            try:
                choosing.choose(which, choosing.runs.get(named) or await _one_run(desk, named))
            except Refused as error:
                if not both:  # else it was told above
                    parts.trouble(error)
    if not choosing.chosen:
        choosing.choose("new", listed[0])
    for missing in _SIDES.keys() - choosing.chosen.keys():
        words = await _suggest(desk, choosing, missing)
        if not both:
            parts.paragraph(words, quiet=True)
    _form(choosing)


async def _suggest(desk: Desk, choosing: "_Choosing", missing: str) -> str:
    """Choose the side that was not named, where there is one that was asked the same; return what to say of it."""
    (named,) = choosing.chosen.values()
    before = missing == "base"
    found, of = await _like(desk, named, before=before)
    if found or len(named.models) > 1:
        choosing.choose(missing, found or named)
        other = "the run before it of the same cases" if before else "the newest other run of the same cases"
        return f"Suggested: {other if found else 'two models of the same run'}."
    return f"No {'run before it' if before else 'other run'} was asked the same{of}. Choose what to compare it with."


async def _like(desk: Desk, run: RunView, *, before: bool) -> tuple[RunView | None, str]:
    """Return the newest other run that was asked the same, or the newest before it; and among which, if not all."""
    if run.cases_digest is None:  # it is gone
        return None, ""
    listed = await desk.call(list_runs, RunFilter(suite=run.suite, page_size=RECENT, outcomes=True))
    for each in listed.items:
        same = each.cases_digest == run.cases_digest and each.id != run.id
        fits = not before or each.created_at < run.created_at
        if same and fits and each.status not in UNDER_WAY:
            return each, ""
    return None, f", among the newest {RECENT} of this suite" if listed.total > RECENT else ""


class _Choosing:
    """What is chosen, until it becomes an address."""

    def __init__(self, runs: dict[str, RunView], query: dict[str, str]) -> None:
        self.runs = runs
        self.chosen: dict[str, RunView] = {}
        self.model: dict[str, str | None] = {
            "base": query.get("model"),
            "new": query.get("newModel") or query.get("model"),
        }
        self._named = "newModel" in query

    def choose(self, which: str, run: RunView) -> None:
        """Take a run for a side, and of its models the one that was named, or the first; of one run two."""
        self.runs[run.id] = self.chosen[which] = run
        if self.model[which] not in run.models:
            self.model[which] = run.models[0]
        same = self.chosen.get("base") == self.chosen.get("new") and self.model["base"] == self.model["new"]
        if same and len(run.models) > 1 and not self._named:  # one against itself tells nobody anything
            self.model["new"] = next(each for each in run.models if each != self.model["base"])

    def address(self) -> str:
        base, new = self.chosen["base"], self.chosen["new"]
        several = len(base.models) > 1 or len(new.models) > 1
        models = {"model": self.model["base"], "newModel": self.model["new"]} if several else {}
        return address("/compare", base=base.id, new=new.id, **models)


def _form(choosing: _Choosing) -> None:
    options = {run_id: _label(run) for run_id, run in choosing.runs.items()}

    @ui.refreshable
    def model(which: str) -> None:
        some = choosing.chosen[which].models if which in choosing.chosen else ()
        if len(some) > 1:
            parts.choice(
                f"Model {_SIDES[which]}",
                {each: printable(each[:80]) for each in some},
                choosing.model[which],
                lambda value: choosing.model.update({which: value}),
            ).classes("wide")

    def put(which: str) -> None:
        def chosen(value: str) -> None:
            choosing.choose(which, choosing.runs[value])
            model.refresh()

        now = choosing.chosen.get(which)
        parts.choice(f"Run {_SIDES[which]}", options, now and now.id, chosen).classes("wide")
        model(which)

    def go() -> None:
        if choosing.chosen.keys() == _SIDES.keys():
            ui.navigate.to(choosing.address())
        else:
            parts.tell("Choose two runs.", "warning")

    with parts.box("stack wide"):
        with parts.box("halves"):
            for which in _SIDES:
                with parts.box("stack"):
                    put(which)
        with parts.box("row"):
            parts.button("Compare", go, "primary")


def _label(run: RunView) -> str:
    """Return a run for a list to choose from."""
    models = ", ".join(each[:40] for each in run.models[:3]) + (" …" if len(run.models) > 3 else "")
    rate, several = run.pass_rate, len(run.models) > 1  # a rate over several models would be nobody's
    end = f" · {len(run.models)} models" if several else f" · {percent(rate)} passed" if rate is not None else ""
    return printable(f"{run.suite[:60]} · {models} · {run.created_at[:16].replace('T', ' ')}{end}")
