"""Two runs or two models side by side on the same cases: the answer first, then the evidence, then what flipped.

The address holds all of it (`base`, `new`, `model`, `newModel`, `page`, `anySuite`, `anyJudge`), so that whoever opens
it sees the same. Without both sides the page helps to choose them.
"""

from itertools import islice, zip_longest

from msgspec.structs import replace
from nicegui import ui

from pramana.app.comparison_views import ComparisonView, FlipView
from pramana.app.comparisons import CompareRequest, compare_runs
from pramana.app.results import read_result
from pramana.app.views import RunView
from pramana.report.markup import foreign, pager, tag
from pramana.show.api.envelope import page_meta
from pramana.show.web.kit import frame, parts
from pramana.show.web.kit.desk import Desk, Refused
from pramana.show.web.pages.choosing import chooser, one_run
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


@frame.page("/compare", "Compare")
async def compare(desk: Desk) -> None:
    """Show what came of comparing the two that the address names, or help to choose them."""
    query = desk.query
    both = bool(query.get("base") and query.get("new"))
    with frame.head("Compare", "Two runs, or two models, on the same cases: is one better, and where?"):
        if both:
            swapped = {
                "base": query["new"],
                "new": query["base"],
                "model": query.get("newModel") or query.get("model"),
                "newModel": query.get("model"),
                "page": None,
            }
            parts.link_button("Swap the sides", desk.here(**swapped))
    if both:
        await _answered(desk)
    await chooser(desk, both=both)


async def _answered(desk: Desk) -> None:
    """Show the answer, or what must be chosen before there is one; anew while a run is under way."""
    under_way = False

    @ui.refreshable
    async def shown() -> None:
        nonlocal under_way
        try:
            base, new = [await one_run(desk, desk.query[which]) for which in ("base", "new")]
            wanted = desk.asked(CompareRequest, {**desk.query, "base": base.id, "new": new.id})
        except Refused as error:
            parts.trouble(error)
            return
        under_way = any(run.status in UNDER_WAY for run in (base, new))
        if _is_against_itself(desk, base, new):
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


def _is_against_itself(desk: Desk, base: RunView, new: RunView) -> bool:
    """Tell whether one of several models of a run was named, and not which one it is compared with."""
    return bool(base.id == new.id and desk.query.get("model") and not desk.query.get("newModel"))


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
    """Put one case that changed; what was said is fetched when it is opened."""
    with ui.element("details") as made:
        with ui.element("summary"):
            parts.show(flip_line(flip), classes="inline")
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
                for old, now in islice(zip_longest(flip.base_results, flip.new_results), SHOWN)
            ]
        finally:  # what was refused is fetched anew when it is opened again
            waiting.delete()
        with within:
            parts.show(opened(pairs, data))
            if (more := max(len(flip.base_results), len(flip.new_results)) - SHOWN) > 0:
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
