"""One run: how far it is, what it amounts to, and its results by the page; live while it runs.

Progress and failures come as they happen, the summary at most every two seconds. The first time after a start that a
long run is added up takes seconds: the page does not wait for it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from msgspec.structs import asdict, replace
from nicegui import background_tasks, ui

from pramana import clock
from pramana.analyse.numbers import counted
from pramana.analyse.summary import Rate, noted_parameters
from pramana.app.runs import (
    ResultFilter,
    cancel_run,
    create_run,
    delete_run,
    list_results,
    read_progress,
    read_run,
    resume_run,
)
from pramana.app.suites import ListedView, list_suites
from pramana.app.tail import CallsView, DeletedView, FinishedView, ProgressView, RunEvent
from pramana.app.views import Listed, ResultView, RunDetailView, RunView
from pramana.model import Outcome
from pramana.report import figures
from pramana.report.markup import Safe, foreign, join, link, meter, tag, when
from pramana.report.run_summary import outcome_links, render_breakdowns, render_headline
from pramana.run.call import Stage
from pramana.show.api.envelope import page_meta
from pramana.show.web.kit import Desk, Refused, address, frame, parts
from pramana.show.web.pages.results import PAGE_SIZE, again, filters, pages, plan, rows, table_of
from pramana.show.web.pages.runs import standing
from pramana.store.queue import UNDER_WAY

EXPORTS = {
    "json": "JSON",
    "jsonl": "JSON Lines",
    "csv": "CSV",
    "junit": "JUnit",
    "markdown": "Markdown",
    "html": "HTML",
}
TICK_S, SUMMED_S, PATIENCE_S, AGAIN_S = 0.5, 2.0, 0.25, 5.0
"""How often progress is drawn anew, how often the summary, how long a page waits for it, and when it asks again."""
NEWEST = 10
"""Failures that are shown as they come."""
FIRST_FAILURES = 10
"""Failed and errored results that are shown above all results."""
RATED_S = 15.0
"""Of so long the rate is."""
_TO_RESULTS = """
if (location.hash === "#results" && !window.pramanaScrolled) document.getElementById("results")?.scrollIntoView()
"""
"""Go to the results, where an address says so, and the page was not left at another place."""
_FIRST_TIME = "After a start of the server the first time takes some seconds."


@frame.page("/runs/{run_id}", "Run")
async def run(desk: Desk) -> None:
    """Show a run, and follow it until it ends."""
    found = await desk.call(read_progress, desk.path["run_id"])
    await _Shown(desk, found, await desk.call(list_suites)).build()


class _Shown:
    """A run that somebody looks at."""

    def __init__(self, desk: Desk, data: RunDetailView, suites: Sequence[ListedView]) -> None:
        self._desk, self._run, self._suites = desk, data, suites
        self._id: str = data.id
        self._failures: dict[int, ResultView] = {}
        self._seen: deque[tuple[float, int]] = deque([(clock.monotonic(), data.stored)])
        self._changed = self._held = False
        self._counts = _LiveCounts()
        self._calls: Mapping[Stage, int] = {}
        """How many calls are at each stage."""
        self._follows: object | None = None
        """What stands for the listener that tells of this run now."""
        self._told = 0
        """How often something newer was told of the run than the page had."""
        self._summed_at = 0.0
        self._redrawing = asyncio.Lock()

    # ── Drawing ──

    async def build(self) -> None:
        frame.titled(f"{self._run.suite} {self._id}")
        self._all = ui.element("div")
        with self._all:
            with frame.head(foreign(self._run.suite, 200), crumbs=(("/runs", "Runs"),)):
                self._buttons = parts.Panel("row")
            self._about = parts.show(Safe())
            self._progress, self._newest = parts.show(Safe()), parts.show(Safe())
            parts.heading("Summary")
            adding_up = f"Summarizing {self._run.stored:,} results. {_FIRST_TIME}"
            self._summary = parts.show(tag("p", adding_up, class_="quiet", role="status"))
            self._failed = parts.show(Safe())
            parts.show(tag("h2", "Results", id="results", tabindex="-1"))
            self._suggest_tags = filters(self._desk, self._run)
            self._rows, self._pager = parts.show(Safe()), parts.show(Safe())
            self._breakdowns = parts.show(Safe(), classes="breakdowns")
            parts.show(plan(self._run))
        for event, held in (("mouseenter", True), ("focusin", True), ("mouseleave", False), ("focusout", False)):
            self._newest.on(event, partial(self._hold, held), args=[])
        self._timer = ui.timer(TICK_S, self._tick, active=False)
        summed = background_tasks.create(self._sum_up(), name="add up a run", context=ui.context.client)
        await self._list()
        await asyncio.wait([summed], timeout=PATIENCE_S)
        self._draw_head()
        self._desk.when_new({"run"}, self._news)
        await self._follow()
        ui.run_javascript(_TO_RESULTS)

    def _draw_head(self) -> None:
        self._about.set_content(_about(self._run, again(self._run, self._suites)))
        self._buttons.show((self._run.status, self._run.cancel_requested), self._actions)
        self._draw_progress()

    def _actions(self) -> None:
        status, may = self._run.status, self._desk.may
        if status in UNDER_WAY and not self._run.cancel_requested:
            if may(cancel_run):
                parts.button("Cancel", self._cancel)
        elif status in ("stopped", "interrupted", "cancelled") and may(resume_run):
            parts.button("Resume", self._resume, "primary")
        parts.link_button("Compare with another run", address("/compare", new=self._id))
        if may(create_run) and (once_more := again(self._run, self._suites)):
            parts.link_button("Run again", once_more)
        if may(delete_run):
            parts.button("Delete", self._delete, "danger")

    def _draw_summary(self) -> None:
        run, where = self._run, self._desk.address
        self._summary.set_content(render_headline(run, where))
        breakdowns = render_breakdowns(run, where)
        self._breakdowns.set_content(join([tag("h2", "Breakdown"), breakdowns]) if breakdowns else Safe())
        if run.summary:
            self._suggest_tags(run.summary.by.get("tag", {}))

    def _draw_progress(self) -> None:
        run = self._run
        if run.status not in UNDER_WAY:
            self._progress.set_content(Safe())
            self._newest.set_content(Safe())
            return
        counts = self._counts.of(run.summary.overall) if run.summary else None
        self._progress.set_content(_progress(run, counts, self._rate(), self._desk.address, self._calls))
        if self._failures and not self._held:
            listed = rows(self._desk.address, run, (each for _, each in sorted(self._failures.items(), reverse=True)))
            self._newest.set_content(join([tag("h2", "Newest failures"), listed]))

    def _hold(self, held: bool) -> None:
        """Let the newest failures stand still, for who is about to press one of them."""
        self._held = held

    def _rate(self) -> float | None:
        """Return how many results come in a second, of late."""
        now = clock.monotonic()
        if self._run.stored != self._seen[-1][1]:
            self._seen.append((now, self._run.stored))
        while len(self._seen) > 2 and now - self._seen[1][0] > RATED_S:
            self._seen.popleft()
        began, before = self._seen[0]
        return (self._seen[-1][1] - before) / (now - began) if self._seen[-1][1] > before else None

    # ── Asking ──

    def _learn(self, data: RunView) -> None:
        """Take what is newer of the run, but what was added up of it before."""
        newer = {name: value for name, value in asdict(data).items() if name not in ("summary", "aggregates")}
        self._run = replace(self._run, **newer)
        self._told += 1

    async def _sum_up(self) -> None:
        """Add up what is there, and draw it; one after the other, so that an older summary never replaces a newer."""
        async with self._redrawing:
            if not self._all.is_deleted:
                await self._add_up()

    async def _add_up(self) -> None:
        self._summed_at, told = clock.monotonic(), self._told
        try:
            found = await self._desk.call(read_run, self._id)
            if self._told != told:  # how the run stands was told while this was added up
                found = replace(self._run, summary=found.summary, aggregates=found.aggregates)
            self._run = found
            self._draw_summary()
        except Refused as error:
            if error.status == 404:
                self._gone()
            elif not self._run.summary:  # too many wait for one, or the store is away; an older one stays
                said = f"{parts.sentence(error)}. It is tried again in some seconds."
                self._summary.set_content(tag("p", foreign(said), class_="warn"))
                with self._all:
                    ui.timer(AGAIN_S, self._sum_up, once=True)

    async def _list(self) -> None:
        try:
            wanted = self._desk.asked(ResultFilter, page_size=PAGE_SIZE)
            found = await self._desk.call(list_results, self._id, wanted)
        except Refused as error:  # an address that somebody has mistyped, or the run has just been deleted
            back = link(f"{self._desk.address}#results", "Show all results")
            self._rows.set_content(tag("p", foreign(parts.sentence(error)), ". ", back, class_="warn"))
            return
        self._failed.set_content(await self._render_failures(wanted, found.total))
        self._rows.set_content(table_of(self._desk, self._run, found.items))
        self._pager.set_content(pages(self._desk, page_meta(wanted.page, PAGE_SIZE, found.total)))

    async def _render_failures(self, wanted: ResultFilter, total: int) -> Safe:
        """Return the first failures of a run that has ended, above a list that has them among many others."""
        unfiltered = wanted == ResultFilter(page_size=PAGE_SIZE)
        if not unfiltered or total <= FIRST_FAILURES or self._run.status in UNDER_WAY:
            return Safe()
        where, shown = self._desk.address, []
        for outcome in (Outcome.FAILED, Outcome.ERRORED):
            some = ResultFilter(outcome=outcome, page_size=FIRST_FAILURES)
            found = await self._desk.call(list_results, self._id, some)
            if found.items:
                listed = rows(where, self._run, found.items, {"outcome": outcome}, f"First {outcome} results")
                every = link(f"{address(where, outcome=outcome)}#results", f"All {found.total:,} {outcome} results")
                shown.append(join([tag("h2", outcome.capitalize()), listed, tag("p", every, class_="small below")]))
        return tag("section", shown, class_="failures")

    async def _refresh(self) -> None:
        """Bring everything up to date."""
        async with self._redrawing:
            if self._all.is_deleted:
                return
            await self._add_up()
            if not self._all.is_deleted:
                await self._list()
                self._draw_head()

    # ── Following ──

    async def _follow(self) -> None:
        """Listen to the run, if it is under way and nobody does; what is refused now is tried again."""
        if self._is_idle():
            return
        try:
            last, counted = await self._last()
        except Refused as error:
            if error.status == 404:
                self._gone()
            elif error.status != 401:
                self._follow_later()
            return
        if self._is_idle():  # or another was faster
            return
        self._follows = following = object()
        self._calls = {}  # the new stream sends those under way
        self._counts = _LiveCounts(counted)
        self._draw_progress()
        self._timer.activate()
        self._desk.follow(self._id, last, self._take, partial(self._unfollow, following))

    def _is_idle(self) -> bool:
        """Tell whether there is nothing to begin to listen to."""
        return bool(self._follows) or self._run.status not in UNDER_WAY or self._all.is_deleted

    def _unfollow(self, following: object) -> None:
        """Note that a listener has ended; if that was before the run did, another takes its place."""
        if self._follows is following:
            self._follows = None
            if not self._is_idle():
                self._follow_later()

    def _follow_later(self) -> None:
        with self._all:
            ui.timer(AGAIN_S, self._follow, once=True)

    async def _last(self) -> tuple[int, int]:
        """Return the number of the newest result and how many results there are up to it; keep the newest failures."""

        async def listed(page: int, outcome: Outcome | None = None) -> Listed[ResultView]:
            wanted = ResultFilter(page=page, page_size=PAGE_SIZE, outcome=outcome)
            return await self._desk.call(list_results, self._id, wanted)

        newest_page = _pages(self._run.stored)
        found = await listed(newest_page)
        for outcome in (Outcome.FAILED, Outcome.ERRORED):
            first = await listed(1, outcome)
            self._keep(first.items)
            last = _pages(first.total)
            for page in range(max(2, last - 1), last + 1):
                self._keep((await listed(page, outcome)).items)
        return max((each.seq for each in found.items), default=0), (newest_page - 1) * PAGE_SIZE + len(found.items)

    def _keep(self, some: Iterable[ResultView]) -> None:
        """Keep those that failed, the newest of them."""
        self._failures |= {each.seq: each for each in some if each.outcome in (Outcome.FAILED, Outcome.ERRORED)}
        for seq in sorted(self._failures)[:-NEWEST]:
            del self._failures[seq]

    async def _take(self, event: RunEvent) -> None:
        """Take an event of the run; what it changes is drawn with the next tick."""
        if isinstance(event, CallsView):
            self._calls = event.stages
            self._draw_progress()
            return
        if isinstance(event, DeletedView):
            self._gone()
            return
        if isinstance(event, ResultView):
            self._counts.streamed.append(event.outcome)
            self._keep([event])
        elif isinstance(event, ProgressView):
            stopped = self._run.cancel_requested != event.cancel_requested
            self._learn(replace(self._run, **asdict(event)))
            if stopped or self._run.status not in UNDER_WAY:
                self._draw_head()
        self._changed = True
        if isinstance(event, FinishedView):
            self._follows = None
            self._timer.deactivate()
            await self._refresh()

    async def _tick(self) -> None:
        self._draw_progress()
        if self._changed and clock.monotonic() - self._summed_at >= SUMMED_S and not self._redrawing.locked():
            self._changed = False
            await self._refresh()

    async def _news(self) -> None:
        """Look whether this run is among those that changed: somebody may have resumed or deleted it."""
        if self._follows:
            return
        try:
            found = await self._desk.call(read_progress, self._id)
        except Refused as error:
            if error.status == 404:
                self._gone()
            return
        if (found.name, found.note) != (self._run.name, self._run.note):
            self._learn(found)
            self._draw_head()
        if found.status == self._run.status and found.stored == self._run.stored:
            return
        self._learn(found)
        self._seen = deque([(clock.monotonic(), found.stored)])
        if found.status in UNDER_WAY:
            self._draw_head()
            await self._follow()
        else:
            await self._refresh()

    def _gone(self) -> None:
        self._follows = None
        self._timer.deactivate()
        with parts.redrawn(self._all):
            parts.heading("This run was deleted", 1)
            parts.paragraph("Its results are deleted too. ", link("/runs", "Other runs"))

    # ── Acting ──

    async def _cancel(self) -> None:
        self._learn(await self._desk.call(cancel_run, self._id))
        self._draw_head()
        parts.tell("Cancelling. Stored results are kept, and you can resume the run.")

    async def _resume(self) -> None:
        self._learn(await self._desk.call(resume_run, self._id))
        self._seen = deque([(clock.monotonic(), self._run.stored)])
        self._draw_head()
        await self._follow()

    async def _delete(self) -> None:
        count = counted(self._run.stored, "result")
        if await parts.confirm(
            "Delete this run?", f"Its {count} are deleted too. This cannot be undone.", "Delete run"
        ):
            await self._desk.call(delete_run, self._id)
            ui.navigate.to("/runs")


class _LiveCounts:
    """The outcomes of a run under way: those of its last summary, and of the results that the stream has had since.

    Summary and stream both have results in the order they were stored, so that none is counted twice.
    """

    def __init__(self, before: int = 0) -> None:
        self._before = before
        """Results that were stored before the first one of the stream."""
        self.streamed: list[Outcome] = []

    def of(self, summed: Rate) -> Rate:
        """Return the outcomes of all results that are known, given those of the last summary."""
        since = summed.total - self._before
        if since < 0:  # results between the two are unknown until the next summary
            return summed
        newer = Counter(each.value for each in self.streamed[since:])
        return replace(summed, **{name: getattr(summed, name) + count for name, count in newer.items()})


# ── What is looked at ──


def _about(run: RunDetailView, once_more: str | None) -> Safe:
    """Return how a run stands, who is asked, when, by whom, where it can be taken, and why it is not offered again."""
    models = join((tag("b", foreign(each)) for each in run.models), ", ")
    by = join([" by ", foreign(run.creator, 80)]) if run.creator else None
    ended = join([", ended ", when(run.finished_at)]) if run.finished_at else None
    exports = (
        join([" · " if place else None, link(address(f"/api/runs/{run.id}/export", format=name), words)])
        for place, (name, words) in enumerate(EXPORTS.items())
    )
    some = figures.selection(run.selection)
    lines = [
        tag("p", tag("span", standing(run), role="status"), " · ", models),
        tag("p", "Started ", when(run.created_at), " UTC", by, ended, " · ", tag("span", run.id, class_="mono")),
        tag("p", "Name: ", foreign(run.name)) if run.name else None,
        tag("p", "Note: ", foreign(run.note)) if run.note else None,
        tag("p", "Filtered cases: ", foreign(some, 300)) if some else None,
        tag("p", link("#results", "Results"), " · Export: ", exports),
        None if once_more else tag("p", _ELSEWHERE),
    ]
    return join([tag("div", lines[0], tag("div", lines[1:], class_="quiet small")), _reason(run)])


_ELSEWHERE = "To run it again, use the command line or the API: the form does not support all of its options."


def _reason(run: RunDetailView) -> Safe | None:
    """Return why a run ended before its end, and, quietly, what is not reproducible of it."""
    if run.status in UNDER_WAY:
        return None
    targets, judge = run.plan.targets, run.plan.judge
    providers = {each.typed: each.provider for each in (*([judge] if judge else []), *targets)}
    sent = {each.typed: run.plan.parameters for each in targets}
    varies = [
        f"{name} does not take {', '.join(noted)}"
        for name, each in run.notes.get("left_out", {}).items()
        if (noted := noted_parameters(providers.get(name), sent.get(name, {}), each))
    ]
    quietly = tag("p", "Not reproducible: ", foreign("; ".join(varies)), ".", class_="quiet small") if varies else None
    if run.status == "finished" and not run.reason:
        return quietly
    why = join([": ", foreign(run.reason)]) if run.reason else None
    here = f". {run.stored:,} of {run.expected:,} results are here."
    missing = " Resume runs the missing cases." if run.stored < run.expected else ""
    return join([tag("p", f"The run is {run.status}", why, here, missing, class_="warn"), quietly])


def _progress(
    run: RunDetailView, counts: Rate | None, rate: float | None, where: str, calls: Mapping[Stage, int]
) -> Safe:
    """Return how far a run is; the outcomes add up to the number of results that is shown."""
    stored, expected = counts.total if counts else run.stored, run.expected
    said = [f"{stored:,} of {expected:,} results"]
    if run.cancel_requested:
        said.append("cancelling: requests in progress may take a few seconds")
    elif run.status == "queued":
        said.append("queued")
    elif rate:
        said += [f"{rate:,.3g} a second", f"about {_left((expected - stored) / rate)} left"]
    if under_way := figures.call_stages(calls):
        said.append(under_way)
    return tag(
        "div",
        meter("Results stored", stored, expected),
        tag("p", " · ".join(said), class_="small"),
        tag("ul", (tag("li", each) for each in outcome_links(counts, where)), class_="outcomes") if counts else None,
        class_="card progress",
    )


def _left(seconds: float) -> str:
    """Return how long something may take, roughly.

    >>> _left(0.2), _left(95), _left(9000)
    ('1 s', '2 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _pages(count: int) -> int:
    return max(1, -(-count // PAGE_SIZE))
