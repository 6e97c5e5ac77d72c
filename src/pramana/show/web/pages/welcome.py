"""The first steps in an empty store: send a question to the embedded model, or call the embedded voice agent.

Missing weights are downloaded first, with a progress bar.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from nicegui import ui

from pramana.app.runs import ResultFilter, create_run, list_results, read_progress
from pramana.app.scenarios import import_library, read_scenario
from pramana.app.tail import CallsView, RunDeletedView, RunEndedView, RunEvent
from pramana.app.views import ResultView, RunView
from pramana.app.weights import WeightsView, list_weights, pull_weights
from pramana.report import figures
from pramana.report.markup import SafeHtml, render_link, render_meter, render_untrusted_text, tag
from pramana.request import RunRequest, Selection
from pramana.run.call import Stage
from pramana.show.web.kit import PageContext, UseCaseRefused, parts
from pramana.show.web.kit.waveform import autoplay_on_next_page

FILE, SCENARIO = "information-retrieval/first-call.yaml", "first-call-largest-ocean"
"""The first call: a question that the embedded speech recognition understands and the embedded model can answer."""
CALL_DURATION_NOTE = "It usually takes less than 30 seconds."
"""Measured by `benchmarks/first_call.py`."""
POLL_INTERVAL_S = 0.5
"""Interval between two reads of a download's progress."""
MIN_RUNS_OF_USED_STORE = 5
"""Number of runs from which a store no longer counts as new."""


class WelcomeFailed(Exception):
    """A step cannot go on; the message says why, and what to do."""


class ProgressPanel:
    """A status line, announced by screen readers as it changes, with a bar where the remaining share is known."""

    def __init__(self) -> None:
        with parts.open_box("", role="status"):
            self._shown = parts.add_markup(SafeHtml(""))

    def show_progress(self, message: str, fraction_done: float | None = None) -> None:
        bar = (
            None
            if fraction_done is None
            else render_meter(message.partition(":")[0], round(100 * min(1.0, fraction_done)))
        )
        self._set_markup(tag("div", tag("p", message), bar, class_="stack"))

    def show_warning(self, message: str) -> None:
        self._set_markup(tag("p", render_untrusted_text(message), class_="warn trouble"))

    def clear(self) -> None:
        self._set_markup(SafeHtml(""))

    def _set_markup(self, markup: SafeHtml) -> None:
        if not self._shown.is_deleted:  # the page may have been redrawn meanwhile
            self._shown.set_content(markup)


async def download_weights_and_wait(
    context: PageContext, weights: WeightsView, on_progress: Callable[[str, float | None], None]
) -> None:
    """Download weights and report the progress; a download that is already under way is shared.

    The download goes on if the page is closed; only the waiting ends.
    """
    found, gone = weights, asyncio.Event()
    ui.context.client.on_delete(gone.set)
    if not _is_under_way(found):
        found = await context.call(pull_weights, weights.name)
    while not found.present:
        pull = found.pull
        if pull is None or pull.status == "failed":
            why = pull.problem if pull else "the download was interrupted; try again"
            raise WelcomeFailed(f"{found.title} could not be downloaded. {why}")
        done, total = pull.done_bytes, max(1, pull.total_bytes)
        doing = "Downloading" if pull.phase == "download" else "Unpacking"
        on_progress(f"{doing} {found.title}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB", done / total)
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_INTERVAL_S):
                await gone.wait()
        if gone.is_set():
            raise WelcomeFailed("The page was closed during the download.")
        found = next(each for each in await context.call(list_weights) if each.name == weights.name)


def _is_under_way(weights: WeightsView) -> bool:
    return weights.pull is not None and weights.pull.status == "running"


def add_download_card(context: PageContext, weights: WeightsView) -> None:
    """Add missing weights, with a button to download them."""

    async def download() -> None:
        try:
            await download_weights_and_wait(context, weights, progress.show_progress)
        except WelcomeFailed as error:
            progress.show_warning(str(error))
        else:
            progress.show_progress(f"{weights.title} is installed.")

    with parts.open_box("card stack"):
        parts.add_paragraph(
            tag("strong", weights.title),
            f" is not installed yet ({weights.download_bytes / 1e6:,.0f} MB). Needed for {weights.needed_for}.",
        )
        if context.may(pull_weights):
            with parts.open_box("row"):
                parts.add_button("Download", download, accessible_label=f"Download {weights.title}")
        progress = ProgressPanel()
        if _is_under_way(weights):
            ui.timer(0, parts.notify_on_error(download), once=True)
        elif weights.pull:
            progress.show_warning(weights.pull.problem or "")


def may_try_steps(context: PageContext) -> bool:
    """Return whether the page's user may do both steps."""
    return context.may(create_run, import_library)


def find_untried_models(runs: Sequence[RunView]) -> tuple[str, ...]:
    """Return which of the two steps has not been tried yet, in a store with few runs."""
    asked = {model for run in runs for model in run.models}
    return (
        tuple(each for each in ("local", "local-voice") if each not in asked)
        if len(runs) < MIN_RUNS_OF_USED_STORE
        else ()
    )


class WelcomePanel:
    """Both steps in an empty store; in a new store, those that have not been tried."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self.busy = False
        """Whether a step is under way, which a redraw would interrupt."""

    def show_question_and_call_steps(self, weights: Sequence[WeightsView]) -> None:
        """Show both steps, and other ways to begin."""
        if not may_try_steps(self._context):
            parts.add_paragraph("No runs yet. Starting one needs the role editor.")
            return
        missing = sum(each.download_bytes for each in weights if each.models and not each.present)
        first = f" Before the first run, {missing / 1e6:,.0f} MB are downloaded." if missing else ""
        with parts.open_box("stack wide"):
            parts.add_paragraph(
                "No runs yet. Both examples run on this machine: no key, no cost, and no data leaves the "
                f"machine.{first}"
            )
            with parts.open_box("halves"):
                self._add_question_card()
                self._add_call_card()
            self._progress = ProgressPanel()
            parts.add_paragraph(
                "Or ",
                render_link("/runs/new", "run your own model"),
                ", ",
                render_link("/settings", "add a provider"),
                ", or ",
                render_link("/scenarios/import", "import scenarios"),
                ".",
            )

    def show_untried_steps(self, models: Sequence[str]) -> None:
        """Show the steps that have not been tried yet, below the runs."""
        parts.add_heading("Try it")
        with parts.open_box("stack wide"):
            with parts.open_box("halves"):
                for each in models:
                    {"local": self._add_question_card, "local-voice": self._add_call_card}[each]()
            self._progress = ProgressPanel()

    def _add_question_card(self) -> None:
        with parts.open_card("Ask the embedded model"):
            parts.add_paragraph(
                "Ten short questions of the built-in suite, answered by SmolLM2, a very small language model. "
                "You see each reply and its checks as they arrive.",
                quiet=True,
            )
            with parts.open_box("row"):
                parts.add_button("Ask the embedded model", self._make_exclusive_handler(self._ask_question), "primary")

    def _add_call_card(self) -> None:
        with parts.open_card("Hear a call"):
            parts.add_paragraph(
                "A caller asks the embedded voice agent one question, and you hear both of them. This imports ",
                tag("span", FILE, class_="mono"),
                ", a file of the built-in library, into ",
                render_link("/scenarios", "Scenarios"),
                ".",
                quiet=True,
            )
            with parts.open_box("row"):
                parts.add_button("Hear a call", self._make_exclusive_handler(self._make_call))

    def _make_exclusive_handler(self, handler: Callable[[], Any]) -> Callable[[], Any]:
        """Return a handler that runs only if no other step is under way."""

        async def run_handler() -> None:
            if self.busy:
                parts.show_notification("Another step is still running. Wait until it has finished.")
                return
            self.busy = True
            try:
                await handler()
            except WelcomeFailed as error:
                self._progress.show_warning(str(error))
            except UseCaseRefused:
                self._progress.clear()
                raise
            finally:
                self.busy = False

        return run_handler

    async def _ask_question(self) -> None:
        await self._download_missing("local")
        self._progress.show_progress("Starting …")
        run = await self._context.call(create_run, RunRequest(suite="v1.0", tier="cheap", models=("local",)))
        ui.navigate.to(f"/runs/{run.id}")

    async def _make_call(self) -> None:
        await self._download_missing("local-voice")
        self._progress.show_progress("Importing the scenario …")
        await self._context.call(import_library, [FILE])
        scenario = Selection(ids=(SCENARIO,))
        wanted = RunRequest(scenarios=scenario, models=("local-voice",), modalities=("voice",))
        asked = (await self._context.call(read_scenario, SCENARIO)).prompt
        run = (await self._context.call(create_run, wanted)).id
        self._progress.show_progress(f"Calling the embedded agent. {CALL_DURATION_NOTE}")

        def show(calls: Mapping[Stage, int]) -> None:
            for stage in calls:
                doing = figures.CALL_STAGE_DESCRIPTIONS[stage].capitalize()
                quoted = f": “{asked}”" if stage == "caller" else " …"
                self._progress.show_progress(f"{doing}{quoted} {CALL_DURATION_NOTE}")

        there = f"/runs/{run}/results/{await self._wait_for_result_seq(run, show)}"
        autoplay_on_next_page(there)
        ui.navigate.to(there)

    async def _download_missing(self, model: str) -> None:
        """Download the weights that a model needs."""
        for each in await self._context.call(list_weights):
            if model in each.models and not each.present:
                await download_weights_and_wait(self._context, each, self._progress.show_progress)

    async def _wait_for_result_seq(
        self, run_id: str, on_stages: Callable[[Mapping[Stage, int]], None] = lambda _: None
    ) -> int:
        """Wait for a run of one call to end, reporting its stage; return the number of its result."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def on_event(event: RunEvent) -> None:
            if isinstance(event, CallsView):
                on_stages(event.stages)
            elif isinstance(event, ResultView | RunEndedView | RunDeletedView) and not ended.done():
                ended.set_result(None)

        def on_end() -> None:  # page closed, token revoked, or stream failed: then the user reads this
            if not ended.done():
                ended.set_exception(WelcomeFailed(f"Live progress of the call ended. See run {run_id}."))

        self._context.follow(run_id, 0, on_event, on_end)
        await ended
        found = await self._context.call(list_results, run_id, ResultFilter())
        if not found.items:
            state = await self._context.call(read_progress, run_id)
            raise WelcomeFailed(f"The call did not take place: {state.reason or state.status}. See run {run_id}.")
        return found.items[0].seq
