"""The measurement of position bias on the report of judges: calls and cost before it starts, its progress, and Stop."""

from collections.abc import Awaitable, Callable

from nicegui import ui

from pramana.analyse.judgements import JUDGE, RUBRIC
from pramana.analyse.numbers import pluralise
from pramana.app.calibrations import JudgeReportView
from pramana.app.rejudging import (
    RejudgeRequest,
    read_rejudging,
    read_rejudging_job,
    start_rejudging,
    stop_rejudging,
)
from pramana.app.rejudging_jobs import RejudgingJobView
from pramana.report.judging import describe_rejudging
from pramana.report.markup import SafeHtml, render_meter, render_untrusted_text, tag
from pramana.request import Limits
from pramana.show.web.kit import PageContext, UseCaseRefused, parts
from pramana.show.web.kit.forms import Form, add_unclamped_number_field

POLL_INTERVAL_S = 1.0
TITLE = "Measure position bias"


def can_measure_position_bias(context: PageContext, report: JudgeReportView) -> bool:
    """Return whether the user may have the judges of a report asked again; only the current scoring is measured."""
    is_current = report.reference == report.run_id
    return is_current and context.may(start_rejudging) and any(each.check in (JUDGE, RUBRIC) for each in report.judges)


class PositionBiasPanel:
    """The progress of the measurement, with its controls; calls a function when verdicts were added."""

    def __init__(self, context: PageContext, run_id: str, on_end: Callable[[], Awaitable[None]]) -> None:
        self._context, self._run_id, self._on_end = context, run_id, on_end
        self._shown = parts.add_markup(SafeHtml()).props("role=status")
        self._buttons = parts.Panel("row")
        self._clock = ui.timer(POLL_INTERVAL_S, self._poll, active=False, immediate=False)

    async def load(self) -> None:
        """Show the job of this run, if the server has one."""
        self._show(await self._context.call(read_rejudging_job, self._run_id))

    def _show(self, job: RejudgingJobView | None) -> None:
        is_running = job is not None and job.status == "running"
        self._shown.set_content(render_job(job) if job else SafeHtml())
        self._buttons.redraw_if_changed(is_running, self._draw_stop if is_running else lambda: None)
        self._clock.active = is_running

    def _draw_stop(self) -> None:
        if self._context.may(stop_rejudging):
            parts.add_button("Stop", self._stop, "danger", accessible_label="Stop measuring position bias")

    async def _poll(self) -> None:
        await parts.notify_on_error(self._refresh)()

    async def _refresh(self) -> None:
        job = await self._context.call(read_rejudging_job, self._run_id)
        if self._shown.is_deleted:
            return
        self._show(job)
        if job is None or job.status != "running":
            await self._on_end()

    async def _stop(self) -> None:
        await self._context.call(stop_rejudging, self._run_id)
        parts.show_notification("The measurement stops; its verdicts so far are kept.")

    async def ask_and_start(self) -> None:
        """Show a dialog with the calls and the estimated cost, and start the measurement on request."""
        with ui.context.client, ui.dialog() as dialog, ui.card():
            dialog.props["aria-label"] = TITLE
            parts.add_markup(tag("h2", TITLE))
            parts.add_paragraph(
                "The judges judge some replies again: once with the same prompt, and once with the answers NO or YES "
                "instead of YES or NO. The verdicts of the run stay as they are.",
                quiet=True,
            )

            def make_request() -> RejudgeRequest:
                return RejudgeRequest(count=_to_int(count.value), criterion_last=bool(criterion_last.value))

            async def show_plan(_: object = None) -> None:
                try:
                    plan = await self._context.call(read_rejudging, self._run_id, make_request())
                    text = describe_rejudging(plan)
                except UseCaseRefused as error:  # of a field, it is shown there when the form is sent
                    text = "" if error.problems else parts.describe_refusal(error)
                if not plan_box.is_deleted:
                    plan_box.set_content(tag("p", render_untrusted_text(text, 1000)))

            async def submit() -> None:
                with form.show_errors_at({"count": count, "limits.max_cost_usd": max_cost, "maxCost": max_cost}):
                    limits = Limits(max_cost_usd=max_cost.value)
                    found = await self._context.call(start_rejudging, self._run_id, make_request(), limits)
                    dialog.submit("started")
                    self._show(found.job if found.calls else None)
                    if not found.calls:
                        parts.show_notification("Every verdict is stored already; draw more replies to add some.")

            with Form(submit) as form:
                count = add_unclamped_number_field("Replies to judge again", 100, "")
                count.on_value_change(parts.notify_on_error(show_plan))
                criterion_last = parts.add_checkbox(
                    "Also judge with the criterion after the reply", on_change=show_plan
                )
                max_cost = add_unclamped_number_field("Cost limit (USD)", None, "empty: no limit")
                plan_box = parts.add_markup(SafeHtml()).props("role=status")
                with parts.open_box("row"):
                    form.add_submit_button("Start")
                    parts.add_button("Cancel", lambda: dialog.submit("cancelled"))
            await show_plan()
        await dialog
        if not dialog.is_deleted:  # the page may have been closed meanwhile
            dialog.delete()


def render_job(job: RejudgingJobView) -> SafeHtml:
    """Return how far the judges are, or how it ended."""
    cost = f"; cost ${job.cost_usd:.4f}" if job.cost_usd else ""
    done = f"{job.answered:,} of {pluralise(job.questions, 'verdict')}{cost}"
    match job.status:
        case "running":
            share = round(100 * job.answered / job.questions) if job.questions else 100
            words = tag("p", f"The judges are being asked again: {done}. You can leave this page.")
            return tag("div", words, render_meter("Judges asked again", share), class_="stack")
        case "failed":
            why = render_untrusted_text(job.problem or "", 1000)
            return tag("p", "Position bias was not measured: ", why, class_="warn trouble")
        case "stopped":
            why = render_untrusted_text(f" ({job.problem})" if job.problem else "", 1000)
            return tag("p", f"Stopped after {done}", why, ". Start it again to continue.", class_="warn")
        case "finished":
            failed = f"; {pluralise(job.unanswered, 'request')} failed" if job.unanswered else ""
            failed += f"; {job.unreadable:,} without a readable verdict" if job.unreadable else ""
            why = render_untrusted_text(f" ({job.problem})" if job.problem else "", 1000)
            return tag("p", f"The judges were asked again: {done}{failed}", why, ".", class_="quiet")


def _to_int(value: float | None) -> int:
    """Return a number as an integer, since number fields return floats; 0 for an empty field."""
    return 0 if value is None else int(value)
