"""One run: progress, summary and results, updated live while it runs.

Progress and failures appear as they happen, the summary at most every two seconds. The first summary of a long run
after a server start takes seconds, so the page does not wait for it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import asdict, replace
from nicegui import background_tasks, ui

from pramana import clock
from pramana.analyse.judgements import JUDGE, RUBRIC
from pramana.analyse.numbers import pluralise
from pramana.analyse.summary import Rate, find_dropped_parameters_to_mention
from pramana.app.judging import read_labelling, save_label
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
from pramana.app.suites import ListedSuiteView, list_suites
from pramana.app.tail import CallsView, ProgressView, RunDeletedView, RunEndedView, RunEvent
from pramana.app.views import ListPage, ResultView, RunDetailView, RunView
from pramana.model import Outcome
from pramana.report import figures
from pramana.report.markup import (
    SafeHtml,
    join_html,
    render_link,
    render_meter,
    render_time,
    render_untrusted_text,
    tag,
)
from pramana.report.run_summary import render_breakdowns, render_headline, render_outcome_links
from pramana.run.call import Stage
from pramana.show.api.envelope import make_page_meta
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts
from pramana.show.web.pages.baseline_check import BaselinePanel
from pramana.show.web.pages.results import (
    PAGE_SIZE,
    draw_filters_and_get_tag_suggester,
    make_new_run_url,
    render_results_list,
    render_results_pager,
    render_results_table,
    render_run_plan,
)
from pramana.show.web.pages.run_controls import (
    ScoringsPanel,
    ask_limits_and_resume,
    find_reached_limit,
    render_scoring_note,
)
from pramana.show.web.pages.runs import render_status_inline
from pramana.store.queue import ACTIVE_STATUSES

EXPORT_FORMAT_LABELS = {
    "json": "JSON",
    "jsonl": "JSON Lines",
    "csv": "CSV",
    "junit": "JUnit",
    "markdown": "Markdown",
    "html": "HTML",
}
REDRAW_INTERVAL_S, SUMMARY_INTERVAL_S, SUMMARY_PATIENCE_S, RETRY_DELAY_S = 0.5, 2.0, 0.25, 5.0
"""Intervals of progress and of summaries, the time a page waits for its summary, and the delay of a retry."""
MAX_NEWEST_FAILURES = 10
"""Failures shown live."""
MAX_FIRST_FAILURES = 10
"""Failed and errored results shown above the table."""
THROUGHPUT_WINDOW_S = 15.0
"""The window over which the rate is measured."""
_SCROLL_TO_RESULTS_SCRIPT = """
if (location.hash === "#results" && !window.pramanaScrolled) document.getElementById("results")?.scrollIntoView()
"""
"""Scroll to the results if the address says so, unless the page restores another scroll position."""
_SLOW_FIRST_TIME_NOTE = "The first time after a server start, this takes a few seconds."


@frame.register_page("/runs/{run_id}", "Run")
async def show_run_page(context: PageContext) -> None:
    """Show a run and follow it until it ends."""
    found = await context.call(read_progress, context.path["run_id"])
    await _RunPage(context, found, await context.call(list_suites)).build()


class _RunPage:
    """The page of a run."""

    def __init__(self, context: PageContext, data: RunDetailView, suites: Sequence[ListedSuiteView]) -> None:
        self._context, self._run, self._suites = context, data, suites
        self._id: str = data.id
        self._reference = data.reference
        self._failures: dict[int, ResultView] = {}
        self._seen: deque[tuple[float, int]] = deque([(clock.monotonic(), data.stored)])
        self._changed = self._are_failures_held = False
        self._counts = _LiveCounts()
        self._calls: Mapping[Stage, int] = {}
        """The number of calls at each stage."""
        self._follow_token: object | None = None
        """Identifies the current listener of this run; None without one."""
        self._update_count = 0
        """Counts updates of the run, to detect one that arrives while a summary is read."""
        self._summed_at = 0.0
        self._redrawing = asyncio.Lock()

    # ── Drawing ──

    async def build(self) -> None:
        frame.set_window_title(f"{self._run.suite} {self._id}")
        self._all = ui.element("div")
        with self._all:
            with frame.add_page_heading(render_untrusted_text(self._run.suite, 200), crumbs=(("/runs", "Runs"),)):
                self._buttons = parts.Panel("row")
            self._about = parts.add_markup(SafeHtml())
            parts.add_markup(render_scoring_note(self._run) or SafeHtml())
            self._progress, self._newest = parts.add_markup(SafeHtml()), parts.add_markup(SafeHtml())
            parts.add_heading("Summary")
            adding_up = f"Summarizing {self._run.stored:,} results. {_SLOW_FIRST_TIME_NOTE}"
            self._summary = parts.add_markup(tag("p", adding_up, class_="quiet", role="status"))
            self._failed = parts.add_markup(SafeHtml())
            parts.add_markup(tag("h2", "Results", id="results", tabindex="-1"))
            self._suggest_tags = draw_filters_and_get_tag_suggester(self._context, self._run)
            self._rows, self._pager = parts.add_markup(SafeHtml()), parts.add_markup(SafeHtml())
            self._scorings = ScoringsPanel(self._context, self._run, self._refresh)
            self._baseline = BaselinePanel(self._context, self._run)
            self._breakdowns = parts.add_markup(SafeHtml(), classes="breakdowns")
            parts.add_markup(render_run_plan(self._run))
        for event, held in (("mouseenter", True), ("focusin", True), ("mouseleave", False), ("focusout", False)):
            self._newest.on(event, partial(self._set_failure_list_frozen, held), args=[])
        self._timer = ui.timer(REDRAW_INTERVAL_S, self._on_timer, active=False)
        summed = background_tasks.create(
            self._update_summary(), name="update the summary of a run", context=ui.context.client
        )
        await self._draw_results()
        await self._scorings.refresh()
        background_tasks.create(self._baseline.refresh(self._run), name="check a baseline", context=ui.context.client)
        await asyncio.wait([summed], timeout=SUMMARY_PATIENCE_S)
        self._draw_head()
        self._context.on_change({"run"}, self._on_change)
        await self._follow_run()
        ui.run_javascript(_SCROLL_TO_RESULTS_SCRIPT)

    def _draw_head(self) -> None:
        self._about.set_content(_render_run_head(self._run, make_new_run_url(self._run, self._suites)))
        self._redraw_actions_if_changed()
        self._draw_progress()

    def _redraw_actions_if_changed(self) -> None:
        shown = (self._run.status, self._run.cancel_requested, _has_judged_replies(self._run))
        self._buttons.redraw_if_changed(shown, self._draw_actions)

    def _draw_actions(self) -> None:
        status, may = self._run.status, self._context.may
        if status in ACTIVE_STATUSES and not self._run.cancel_requested:
            if may(cancel_run):
                parts.add_button("Cancel", self._cancel)
        elif status in ("stopped", "interrupted", "cancelled") and may(resume_run):
            parts.add_button("Resume", self._resume, "primary")
        if len(self._run.models) > 2:
            parts.add_link_button("Compare all models", make_url("/compare/table", run=self._reference))
        parts.add_link_button("Compare with another run", make_url("/compare", new=self._reference))
        if _has_judged_replies(self._run):
            if may(read_labelling, save_label) and status not in ACTIVE_STATUSES:
                parts.add_link_button("Label replies", make_url(f"/judges/{self._id}/label"))
            parts.add_link_button("Report on judges", make_url(f"/judges/{self._reference}"))
        if may(create_run) and (once_more := make_new_run_url(self._run, self._suites)):
            parts.add_link_button("Run again", once_more)
        if may(delete_run):
            parts.add_button("Delete", self._delete, "danger")

    def _draw_summary(self) -> None:
        run, where = self._run, self._context.address
        self._summary.set_content(render_headline(run, where))
        breakdowns = render_breakdowns(run, where)
        self._breakdowns.set_content(join_html([tag("h2", "Breakdown"), breakdowns]) if breakdowns else SafeHtml())
        if run.summary:
            self._suggest_tags(run.summary.by.get("tag", {}))
        self._redraw_actions_if_changed()

    def _draw_progress(self) -> None:
        run = self._run
        if run.status not in ACTIVE_STATUSES:
            self._progress.set_content(SafeHtml())
            self._newest.set_content(SafeHtml())
            return
        counts = self._counts.add_streamed(run.summary.overall) if run.summary else None
        self._progress.set_content(
            _render_progress(run, counts, self._measure_results_per_s(), self._context.address, self._calls)
        )
        if self._failures and not self._are_failures_held:
            listed = render_results_table(
                self._context.address, run, (each for _, each in sorted(self._failures.items(), reverse=True))
            )
            self._newest.set_content(join_html([tag("h2", "Newest failures"), listed]))

    def _set_failure_list_frozen(self, is_frozen: bool) -> None:
        """Freeze the list of newest failures while the user points at it or has focused a link in it."""
        self._are_failures_held = is_frozen

    def _measure_results_per_s(self) -> float | None:
        """Return the recent rate in results per second."""
        now = clock.monotonic()
        if self._run.stored != self._seen[-1][1]:
            self._seen.append((now, self._run.stored))
        while len(self._seen) > 2 and now - self._seen[1][0] > THROUGHPUT_WINDOW_S:
            self._seen.popleft()
        began, before = self._seen[0]
        return (self._seen[-1][1] - before) / (now - began) if self._seen[-1][1] > before else None

    # ── Data ──

    def _update_run(self, data: RunView) -> None:
        """Update the run, but keep its summary."""
        newer = {name: value for name, value in asdict(data).items() if name not in ("summary", "aggregates")}
        self._run = replace(self._run, **newer)
        self._update_count += 1

    async def _update_summary(self) -> None:
        """Read and draw the summary; one at a time, so that an older one never replaces a newer one."""
        async with self._redrawing:
            if not self._all.is_deleted:
                await self._read_and_draw_summary()

    async def _read_and_draw_summary(self) -> None:
        self._summed_at, told = clock.monotonic(), self._update_count
        try:
            found = await self._context.call(read_run, self._reference)
            if self._update_count != told:  # a newer state arrived while the summary was computed
                found = replace(self._run, summary=found.summary, aggregates=found.aggregates)
            self._run = found
            self._draw_summary()
        except UseCaseRefused as error:
            if error.status == 404:
                self._on_deleted()
            elif not self._run.summary:  # too many are waiting, or the store is unavailable; keep an older summary
                said = f"{parts.describe_refusal(error)}. Pramana tries again in a few seconds."
                self._summary.set_content(tag("p", render_untrusted_text(said), class_="warn"))
                with self._all:
                    ui.timer(RETRY_DELAY_S, self._update_summary, once=True)

    async def _draw_results(self) -> None:
        try:
            wanted = self._context.read_request(ResultFilter, page_size=PAGE_SIZE)
            found = await self._context.call(list_results, self._reference, wanted)
        except UseCaseRefused as error:  # the address is mistyped, or the run was just deleted
            back = render_link(f"{self._context.address}#results", "Show all results")
            self._rows.set_content(
                tag("p", render_untrusted_text(parts.describe_refusal(error)), ". ", back, class_="warn")
            )
            return
        self._failed.set_content(await self._render_first_failures(wanted, found.total))
        self._rows.set_content(render_results_list(self._context, self._run, found.items))
        self._pager.set_content(
            render_results_pager(self._context, make_page_meta(wanted.page, PAGE_SIZE, found.total))
        )

    async def _render_first_failures(self, result_filter: ResultFilter, total_count: int) -> SafeHtml:
        """Return the first failures of a run that has ended, if the unfiltered table has more results than that."""
        unfiltered = result_filter == ResultFilter(page_size=PAGE_SIZE)
        if not unfiltered or total_count <= MAX_FIRST_FAILURES or self._run.status in ACTIVE_STATUSES:
            return SafeHtml()
        where, shown = self._context.address, []
        for outcome in (Outcome.FAILED, Outcome.ERRORED):
            some = ResultFilter(outcome=outcome, page_size=MAX_FIRST_FAILURES)
            found = await self._context.call(list_results, self._reference, some)
            if found.items:
                listed = render_results_table(
                    where, self._run, found.items, {"outcome": outcome}, f"First {outcome} results"
                )
                every = render_link(
                    f"{make_url(where, outcome=outcome)}#results", f"All {found.total:,} {outcome} results"
                )
                shown.append(
                    join_html([tag("h2", outcome.capitalize()), listed, tag("p", every, class_="small below")])
                )
        return tag("section", shown, class_="failures")

    async def _refresh(self) -> None:
        """Update the whole page."""
        async with self._redrawing:
            if self._all.is_deleted:
                return
            await self._read_and_draw_summary()
            if not self._all.is_deleted:
                await self._draw_results()
                await self._baseline.refresh(self._run)
                self._draw_head()

    # ── Live updates ──

    async def _follow_run(self) -> None:
        """Follow the run if it is under way and not followed yet; after an error, retry later."""
        if self._is_followed_or_ended():
            return
        try:
            last, counted = await self._find_newest_seq_and_count()
        except UseCaseRefused as error:
            if error.status == 404:
                self._on_deleted()
            elif error.status != 401:
                self._schedule_follow()
            return
        if self._is_followed_or_ended():  # another call may have started to follow it meanwhile
            return
        self._follow_token = following = object()
        self._calls = {}  # the new stream begins with the calls under way
        self._counts = _LiveCounts(counted)
        self._draw_progress()
        self._timer.activate()
        self._context.follow(self._id, last, self._handle_event, partial(self._on_follow_end, following))

    def _is_followed_or_ended(self) -> bool:
        """Return whether the run is followed already or has ended, or the page is gone."""
        return bool(self._follow_token) or self._run.status not in ACTIVE_STATUSES or self._all.is_deleted

    def _on_follow_end(self, follow_token: object) -> None:
        """Record the end of a listener; if the run is still under way, follow it again."""
        if self._follow_token is follow_token:
            self._follow_token = None
            if not self._is_followed_or_ended():
                self._schedule_follow()

    def _schedule_follow(self) -> None:
        with self._all:
            ui.timer(RETRY_DELAY_S, self._follow_run, once=True)

    async def _find_newest_seq_and_count(self) -> tuple[int, int]:
        """Return the number of the newest result and the count of results up to it; keep the newest failures."""

        async def list_page(page: int, outcome: Outcome | None = None) -> ListPage[ResultView]:
            wanted = ResultFilter(page=page, page_size=PAGE_SIZE, outcome=outcome)
            return await self._context.call(list_results, self._reference, wanted)

        newest_page = _count_pages(self._run.stored)
        found = await list_page(newest_page)
        for outcome in (Outcome.FAILED, Outcome.ERRORED):
            first = await list_page(1, outcome)
            self._keep_newest_failures(first.items)
            last = _count_pages(first.total)
            for page in range(max(2, last - 1), last + 1):
                self._keep_newest_failures((await list_page(page, outcome)).items)
        return max((each.seq for each in found.items), default=0), (newest_page - 1) * PAGE_SIZE + len(found.items)

    def _keep_newest_failures(self, results: Iterable[ResultView]) -> None:
        """Keep the newest failed and errored results."""
        self._failures |= {each.seq: each for each in results if each.outcome in (Outcome.FAILED, Outcome.ERRORED)}
        for seq in sorted(self._failures)[:-MAX_NEWEST_FAILURES]:
            del self._failures[seq]

    async def _handle_event(self, event: RunEvent) -> None:
        """Apply an event of the run; the next tick draws the change."""
        if isinstance(event, CallsView):
            self._calls = event.stages
            self._draw_progress()
            return
        if isinstance(event, RunDeletedView):
            self._on_deleted()
            return
        if isinstance(event, ResultView):
            self._counts.streamed.append(event.outcome)
            self._keep_newest_failures([event])
        elif isinstance(event, ProgressView):
            stopped = self._run.cancel_requested != event.cancel_requested
            self._update_run(replace(self._run, **asdict(event)))
            if stopped or self._run.status not in ACTIVE_STATUSES:
                self._draw_head()
        self._changed = True
        if isinstance(event, RunEndedView):
            self._follow_token = None
            self._timer.deactivate()
            await self._refresh()

    async def _on_timer(self) -> None:
        self._draw_progress()
        if self._changed and clock.monotonic() - self._summed_at >= SUMMARY_INTERVAL_S and not self._redrawing.locked():
            self._changed = False
            await self._refresh()

    async def _on_change(self) -> None:
        """Check whether this run has changed: another user may have resumed or deleted it."""
        if self._follow_token:
            return
        try:
            found = await self._context.call(read_progress, self._reference)
            before = self._scorings.current_number
            await self._scorings.refresh()
        except UseCaseRefused as error:
            if error.status == 404:
                self._on_deleted()
            return
        if (found.name, found.note) != (self._run.name, self._run.note):
            self._update_run(found)
            self._draw_head()
        rescored = self._run.scoring is None and self._scorings.current_number != before
        if found.status == self._run.status and found.stored == self._run.stored and not rescored:
            return
        self._update_run(found)
        self._seen = deque([(clock.monotonic(), found.stored)])
        if found.status in ACTIVE_STATUSES:
            self._draw_head()
            await self._follow_run()
        else:
            await self._refresh()

    def _on_deleted(self) -> None:
        self._follow_token = None
        self._timer.deactivate()
        with parts.redraw(self._all):
            parts.add_heading("This run was deleted", 1)
            parts.add_paragraph("The results of this run are deleted too. ", render_link("/runs", "Other runs"))

    # ── Actions ──

    async def _cancel(self) -> None:
        self._update_run(await self._context.call(cancel_run, self._id))
        self._draw_head()
        parts.show_notification("Cancelling. Stored results are kept, and you can resume the run.")

    async def _resume(self) -> None:
        """Resume the run; if a limit ended it, with the limits that the user enters."""
        reached = find_reached_limit(self._run)
        if reached and self._run.owner == "server":
            await ask_limits_and_resume(self._run, reached, self._resume_with_limits)
        else:
            await self._resume_with_limits(None)

    async def _resume_with_limits(self, limits: Mapping[str, Any] | None) -> None:
        self._update_run(await self._context.call(resume_run, self._id, limits))
        self._seen = deque([(clock.monotonic(), self._run.stored)])
        self._draw_head()
        await self._follow_run()

    async def _delete(self) -> None:
        count = pluralise(self._run.stored, "result")
        if await parts.ask_confirmation(
            "Delete this run?", f"The {count} of this run are deleted too. This cannot be undone.", "Delete run"
        ):
            await self._context.call(delete_run, self._id)
            ui.navigate.to("/runs")


class _LiveCounts:
    """The outcomes of a run under way: those of the last summary plus later ones from the stream.

    Both have results in the order in which they were stored, so none is counted twice.
    """

    def __init__(self, before: int = 0) -> None:
        self._before = before
        """Results stored before the first one of the stream."""
        self.streamed: list[Outcome] = []

    def add_streamed(self, summary_counts: Rate) -> Rate:
        """Return the outcomes of all known results, given those of the last summary."""
        since = summary_counts.total - self._before
        if since < 0:  # results between the two are unknown until the next summary
            return summary_counts
        newer = Counter(each.value for each in self.streamed[since:])
        return replace(summary_counts, **{name: getattr(summary_counts, name) + count for name, count in newer.items()})


# ── Markup ──


def _has_judged_replies(run: RunDetailView) -> bool:
    """Return whether a judge model has judged a reply of a run."""
    return any(each.source.check in (JUDGE, RUBRIC) for each in run.summary.judges) if run.summary else False


def _render_run_head(run: RunDetailView, run_again_url: str | None) -> SafeHtml:
    """Return the head of a run: status, models, times, creator, exports, and a hint if it cannot be repeated here."""
    models = join_html((tag("b", render_untrusted_text(each)) for each in run.models), ", ")
    by = join_html([" by ", render_untrusted_text(run.creator, 80)]) if run.creator else None
    ended = join_html([", ended ", render_time(run.finished_at)]) if run.finished_at else None
    exports = (
        join_html(
            [" · " if place else None, render_link(make_url(f"/api/runs/{run.reference}/export", format=name), words)]
        )
        for place, (name, words) in enumerate(EXPORT_FORMAT_LABELS.items())
    )
    some = figures.describe_selection(run.selection)
    lines = [
        tag("p", tag("span", render_status_inline(run), role="status"), " · ", models),
        tag("p", "Started ", render_time(run.created_at), " UTC", by, ended, " · ", tag("span", run.id, class_="mono")),
        tag("p", "Name: ", render_untrusted_text(run.name)) if run.name else None,
        tag("p", "Note: ", render_untrusted_text(run.note)) if run.note else None,
        tag("p", "Filtered cases: ", render_untrusted_text(some, 300)) if some else None,
        tag("p", render_link("#results", "Results"), " · Export: ", exports, class_="screen-only"),
        None if run_again_url else tag("p", _RUN_AGAIN_HINT, class_="screen-only"),
    ]
    return join_html([tag("div", lines[0], tag("div", lines[1:], class_="quiet small")), _render_end_reason(run)])


_RUN_AGAIN_HINT = "To run it again, use the command line or the API: the form does not support all of its options."


def _render_end_reason(run: RunDetailView) -> SafeHtml | None:
    """Return why a run ended early and, less prominently, what is not reproducible about it."""
    if run.status in ACTIVE_STATUSES:
        return None
    targets, judge = run.plan.targets, run.plan.judge
    judges = [judge, *run.plan.other_judges] if judge else []
    providers = {each.typed: each.provider for each in (*judges, *targets)}
    sent = {each.typed: run.plan.parameters for each in targets}
    varies = [
        f"{name} does not take {', '.join(noted)}"
        for name, each in run.notes.get("left_out", {}).items()
        if (noted := find_dropped_parameters_to_mention(providers.get(name), sent.get(name, {}), each))
    ]
    quietly = (
        tag("p", "Not reproducible: ", render_untrusted_text("; ".join(varies)), ".", class_="quiet small")
        if varies
        else None
    )
    if run.status == "finished" and not run.reason:
        return quietly
    why = join_html([": ", render_untrusted_text(run.reason)]) if run.reason else None
    here = f". {run.stored:,} of {run.expected:,} results are stored."
    missing = " Resume runs the missing cases." if run.stored < run.expected else ""
    return join_html([tag("p", f"The run is {run.status}", why, here, missing, class_="warn"), quietly])


def _render_progress(
    run: RunDetailView,
    counts: Rate | None,
    results_per_s: float | None,
    base_url: str,
    calls_by_stage: Mapping[Stage, int],
) -> SafeHtml:
    """Return the progress; its outcomes add up to the number of results shown."""
    stored, expected = counts.total if counts else run.stored, run.expected
    said = [f"{stored:,} of {expected:,} results"]
    if run.cancel_requested:
        said.append("cancelling: requests in progress may take a few seconds")
    elif run.status == "queued":
        said.append("queued")
    elif results_per_s:
        said += [
            f"{results_per_s:,.3g} a second",
            f"about {_format_time_left((expected - stored) / results_per_s)} left",
        ]
    if under_way := figures.describe_call_stages(calls_by_stage):
        said.append(under_way)
    return tag(
        "div",
        render_meter("Results stored", stored, expected),
        tag("p", " · ".join(said), class_="small"),
        tag("ul", (tag("li", each) for each in render_outcome_links(counts, base_url)), class_="outcomes")
        if counts
        else None,
        class_="card progress",
    )


def _format_time_left(seconds: float) -> str:
    """Return a rough duration.

    >>> _format_time_left(0.2), _format_time_left(95), _format_time_left(9000)
    ('1 s', '2 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _count_pages(result_count: int) -> int:
    return max(1, -(-result_count // PAGE_SIZE))
