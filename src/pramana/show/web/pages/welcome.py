"""The way to a first result in an empty store: a question to the embedded model, a call to the embedded voice agent.

What is missing for it is downloaded first, with a bar to watch.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from nicegui import ui

from pramana.app.runs import ResultFilter, create_run, list_results, read_progress
from pramana.app.scenarios import import_library, read_scenario
from pramana.app.tail import CallsView, DeletedView, FinishedView, RunEvent
from pramana.app.views import ResultView, RunView
from pramana.app.weights import WeightsView, list_weights, pull_weights
from pramana.report import figures
from pramana.report.markup import Safe, foreign, link, meter, tag
from pramana.request import RunRequest, Selection
from pramana.run.call import Stage
from pramana.show.web.kit import Desk, Refused, parts
from pramana.show.web.kit.waveform import play_at

FILE, SCENARIO = "information-retrieval/first-call.yaml", "first-call-largest-ocean"
"""What the first call is about: a question that the embedded ears understand and the embedded model can answer."""
CALL_TAKES = "It usually takes less than 30 seconds."
"""Measured by `benchmarks/first_call.py`."""
LOOK_S = 0.5
"""Between two looks at a download."""
YOUNG = 5
"""Runs from which on a store is no newcomer's any more."""


class Failed(Exception):
    """What was begun cannot go on; the message says why, and what to do."""


class Progress:
    """A sentence about what happens now, read out as it changes, and a bar where it is known how much is left."""

    def __init__(self) -> None:
        with parts.box("", role="status"):
            self._shown = parts.show(Safe(""))

    def tell(self, words: str, share: float | None = None) -> None:
        bar = None if share is None else meter(words.partition(":")[0], round(100 * min(1.0, share)))
        self._put(tag("div", tag("p", words), bar, class_="stack"))

    def warn(self, words: str) -> None:
        self._put(tag("p", foreign(words), class_="warn trouble"))

    def clear(self) -> None:
        self._put(Safe(""))

    def _put(self, markup: Safe) -> None:
        if not self._shown.is_deleted:  # the page was drawn anew meanwhile
            self._shown.set_content(markup)


async def brought(desk: Desk, weights: WeightsView, tell: Callable[[str, float | None], None]) -> None:
    """Bring weights here, and tell how far that is; whoever pulls the same meanwhile watches the same download.

    The download goes on without the page; to look at it does not.
    """
    found, gone = weights, asyncio.Event()
    ui.context.client.on_delete(gone.set)
    if not _is_under_way(found):
        found = await desk.call(pull_weights, weights.name)
    while not found.present:
        pull = found.pull
        if pull is None or pull.status == "failed":
            why = pull.problem if pull else "the download is gone; try again"
            raise Failed(f"{found.title} could not be downloaded. {why}")
        done, total = pull.done_bytes, max(1, pull.total_bytes)
        doing = "Downloading" if pull.phase == "download" else "Unpacking"
        tell(f"{doing} {found.title}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB", done / total)
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await gone.wait()
        if gone.is_set():
            raise Failed("The page was closed meanwhile.")
        found = next(each for each in await desk.call(list_weights) if each.name == weights.name)


def _is_under_way(weights: WeightsView) -> bool:
    return weights.pull is not None and weights.pull.status == "running"


def offer_download(desk: Desk, weights: WeightsView) -> None:
    """Put weights that are missing, with the button that brings them."""

    async def bring() -> None:
        try:
            await brought(desk, weights, progress.tell)
        except Failed as error:
            progress.warn(str(error))
        else:
            progress.tell(f"{weights.title} is here now.")

    with parts.box("card stack"):
        parts.paragraph(
            tag("strong", weights.title),
            f" is not on this machine yet ({weights.download_bytes / 1e6:,.0f} MB). "
            f"It is needed for {weights.needed_for}.",
        )
        if desk.may(pull_weights):
            with parts.box("row"):
                parts.button("Download", bring, label=f"Download {weights.title}")
        progress = Progress()
        if _is_under_way(weights):
            ui.timer(0, parts.guarded(bring), once=True)
        elif weights.pull:
            progress.warn(weights.pull.problem or "")


def may_try(desk: Desk) -> bool:
    """Return whether a page's user may do what is offered here."""
    return desk.may(create_run, import_library)


def untried(runs: Sequence[RunView]) -> tuple[str, ...]:
    """Return which of the two nobody has tried, of a store that has but a few runs."""
    asked = {model for run in runs for model in run.models}
    return tuple(each for each in ("local", "local-voice") if each not in asked) if len(runs) < YOUNG else ()


class Welcome:
    """What an empty store shows, and a young one of what nobody has tried."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.busy = False
        """Whether something was begun here that should not be swept away."""

    def show(self, weights: Sequence[WeightsView]) -> None:
        """Show both, and other ways to begin."""
        if not may_try(self._desk):
            parts.paragraph("No runs yet. Starting one needs the role editor.")
            return
        missing = sum(each.download_bytes for each in weights if each.models and not each.present)
        first = f" Before the first, {missing / 1e6:,.0f} MB are downloaded." if missing else ""
        with parts.box("stack wide"):
            parts.paragraph(
                f"No runs yet. Both of these run on this machine: no key, no cost, and no data leaves it.{first}"
            )
            with parts.box("halves"):
                self._offer_question()
                self._offer_call()
            self._progress = Progress()
            parts.paragraph(
                "Or ",
                link("/runs/new", "run your own model"),
                ", ",
                link("/settings", "add a provider"),
                ", or ",
                link("/scenarios/import", "import scenarios"),
                ".",
            )

    def show_rest(self, untried: Sequence[str]) -> None:
        """Show what nobody has tried, beside what has been asked already."""
        parts.heading("Try it")
        with parts.box("stack wide"):
            with parts.box("halves"):
                for each in untried:
                    {"local": self._offer_question, "local-voice": self._offer_call}[each]()
            self._progress = Progress()

    def _offer_question(self) -> None:
        with parts.card("Ask the embedded model"):
            parts.paragraph(
                "Ten short questions of the built-in suite, answered by SmolLM2, a very small language model. "
                "You see each reply and its checks as they arrive.",
                quiet=True,
            )
            with parts.box("row"):
                parts.button("Ask the embedded model", self._begun(self._ask), "primary")

    def _offer_call(self) -> None:
        with parts.card("Hear a call"):
            parts.paragraph(
                "A caller asks the embedded voice agent one question aloud, and you hear both. This imports ",
                tag("span", FILE, class_="mono"),
                ", a file of the built-in library, into ",
                link("/scenarios", "Scenarios"),
                ".",
                quiet=True,
            )
            with parts.box("row"):
                parts.button("Hear a call", self._begun(self._call))

    def _begun(self, act: Callable[[], Any]) -> Callable[[], Any]:
        """Return a handler of one of the two; while one is under way, the other waits."""

        async def begin() -> None:
            if self.busy:
                parts.tell("One thing after the other: something is under way already.")
                return
            self.busy = True
            try:
                await act()
            except Failed as error:
                self._progress.warn(str(error))
            except Refused:
                self._progress.clear()
                raise
            finally:
                self.busy = False

        return begin

    async def _ask(self) -> None:
        await self._ready("local")
        self._progress.tell("Starting …")
        run = await self._desk.call(create_run, RunRequest(suite="v1.0", tier="cheap", models=("local",)))
        ui.navigate.to(f"/runs/{run.id}")

    async def _call(self) -> None:
        await self._ready("local-voice")
        self._progress.tell("Importing the scenario …")
        await self._desk.call(import_library, [FILE])
        scenario = Selection(ids=(SCENARIO,))
        wanted = RunRequest(scenarios=scenario, models=("local-voice",), modalities=("voice",))
        asked = (await self._desk.call(read_scenario, SCENARIO)).prompt
        run = (await self._desk.call(create_run, wanted)).id
        self._progress.tell(f"Calling the embedded agent. {CALL_TAKES}")

        def show(calls: Mapping[Stage, int]) -> None:
            for stage in calls:
                doing = figures.CALL_STAGES[stage].capitalize()
                quoted = f": “{asked}”" if stage == "caller" else " …"
                self._progress.tell(f"{doing}{quoted} {CALL_TAKES}")

        there = f"/runs/{run}/results/{await self._over(run, show)}"
        play_at(there)
        ui.navigate.to(there)

    async def _ready(self, model: str) -> None:
        """Bring what a model needs."""
        for each in await self._desk.call(list_weights):
            if model in each.models and not each.present:
                await brought(self._desk, each, self._progress.tell)

    async def _over(self, run: str, show: Callable[[Mapping[Stage, int]], None] = lambda _: None) -> int:
        """Wait until a run of one call is over, and show where the call is; return the number of its result."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def heard(event: RunEvent) -> None:
            if isinstance(event, CallsView):
                show(event.stages)
            elif isinstance(event, ResultView | FinishedView | DeletedView) and not ended.done():
                ended.set_result(None)

        def unheard() -> None:  # the page was closed, the token revoked; where something broke, they read this
            if not ended.done():
                ended.set_exception(Failed(f"The call is not followed any more. See its run, {run}."))

        self._desk.follow(run, 0, heard, unheard)
        await ended
        found = await self._desk.call(list_results, run, ResultFilter())
        if not found.items:
            state = await self._desk.call(read_progress, run)
            raise Failed(f"The call did not come about: {state.reason or state.status}. See its run, {run}.")
        return found.items[0].seq
