"""Live updates of an open page: it reconnects after an error, keeps newer data, and stops when it closes."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from msgspec.structs import replace

from pramana.analyse.summary import ResultTally
from pramana.app.pulls import PullView
from pramana.app.runs import list_results
from pramana.app.scenarios import ScenarioView
from pramana.app.views import ListPage, RunDetailView
from pramana.app.weights import WeightsView, list_weights
from pramana.show.web.kit.page_context import UseCaseRefused
from pramana.show.web.pages import editor, welcome
from pramana.show.web.pages import run as page

from ...views import make_view


def run_in_thread(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine in another thread; in this one, Playwright's loop may be running."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


RUN = make_view(
    RunDetailView, id="r1", status="running", stored=1, expected=10, models=("m",), variants=("text",), repeats=1
)
SUMMARY = ResultTally().summary()
AWAY = UseCaseRefused(503, "the store is away", "unavailable")


class FakePageContext:
    """Gives prepared answers and records its listeners."""

    address = "/runs/r1"
    query: dict[str, str] = {}  # noqa: RUF012

    def may(self, *_: Any) -> bool:
        return True

    def __init__(self) -> None:
        self.refused: UseCaseRefused | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        self.heard: list[tuple[Any, Any]] = []
        self.asked = 0

    async def call(self, use_case: Callable[..., Any], *_: Any, **__: Any) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        if self.refused:
            raise self.refused
        if use_case is list_results:
            return ListPage([], 0)
        if use_case is list_weights:
            return [WEIGHTS]
        self.meanwhile()
        return replace(RUN, summary=SUMMARY)

    def follow(self, _run: str, _after: int, then: Any, over: Any = None) -> None:
        self.heard.append((then, over))


@pytest.fixture
def page_context() -> FakePageContext:
    return FakePageContext()


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    made = MagicMock()
    monkeypatch.setattr("nicegui.ui.timer", made)
    return made


@pytest.fixture
def run_page(page_context: FakePageContext, timer: MagicMock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page of a run, without a browser."""
    del timer
    found: Any = page._RunPage(page_context, RUN, [])  # type: ignore[arg-type]
    for name in (
        "_all",
        "_about",
        "_summary",
        "_breakdowns",
        "_progress",
        "_newest",
        "_suggest_tags",
        "_timer",
        "_buttons",
    ):
        setattr(found, name, MagicMock())
    found._all.is_deleted = False
    for name in ("render_headline", "render_breakdowns"):
        monkeypatch.setattr(page, name, lambda *_: "drawn")
    return found


def test_one_error_does_not_stop_live_updates(page_context: FakePageContext, run_page: Any, timer: MagicMock) -> None:
    page_context.refused = AWAY
    run_in_thread(run_page._follow_run())
    assert not page_context.heard
    page_context.refused = None
    later = timer.call_args.args[1]
    run_in_thread(later())
    assert len(page_context.heard) == 1


def test_a_broken_subscription_is_replaced_only_once(
    page_context: FakePageContext, run_page: Any, timer: MagicMock
) -> None:
    run_in_thread(run_page._follow_run())
    (_, over), *_ = page_context.heard
    over()
    run_in_thread(timer.call_args.args[1]())
    assert len(page_context.heard) == 2
    timer.reset_mock()
    over()
    run_in_thread(run_page._follow_run())
    assert len(page_context.heard) == 2, "the newer one listens still"
    run_page._all.is_deleted = True
    page_context.heard[1][1]()
    timer.assert_not_called()


def test_concurrent_calls_to_follow_subscribe_once(page_context: FakePageContext, run_page: Any) -> None:
    async def both() -> None:
        await asyncio.gather(run_page._follow_run(), run_page._follow_run())

    run_in_thread(both())
    assert len(page_context.heard) == 1


def test_an_older_summary_never_overwrites_newer_events(page_context: FakePageContext, run_page: Any) -> None:
    newer = replace(RUN, stored=10, status="stopped", cancel_requested=True)
    page_context.meanwhile = lambda: run_page._update_run(newer)
    run_in_thread(run_page._update_summary())
    assert run_page._run == replace(newer, summary=SUMMARY)
    page_context.meanwhile = lambda: None
    run_in_thread(run_page._update_summary())
    assert run_page._run.stored == 1, "what nobody has told since is taken as it is read"


# ── The first run ──

WEIGHTS = make_view(WeightsView, name="w", title="W", pull=make_view(PullView, done_bytes=1, total_bytes=2))


def test_closing_the_page_stops_watching_a_download(
    page_context: FakePageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers: list[Callable[[], None]] = []
    client = SimpleNamespace(on_delete=handlers.append)
    monkeypatch.setattr(welcome, "ui", SimpleNamespace(context=SimpleNamespace(client=client)))
    monkeypatch.setattr(welcome, "POLL_INTERVAL_S", 0.01)

    async def watch_and_close() -> None:
        told = asyncio.Event()
        watching = welcome.download_weights_and_wait(page_context, WEIGHTS, lambda *_: told.set())  # type: ignore[arg-type]
        looking = asyncio.create_task(watching)
        await told.wait()
        for each in handlers:
            each()
        with pytest.raises(welcome.WelcomeFailed):
            await asyncio.wait_for(looking, 5)

    run_in_thread(watch_and_close())


def test_waiting_for_a_call_ends_when_it_is_no_longer_followed(page_context: FakePageContext) -> None:
    async def wait_and_close() -> None:
        waiting = asyncio.create_task(welcome.WelcomePanel(page_context)._wait_for_result_seq("r1"))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        over = page_context.heard[0][1]
        over()
        over()
        with pytest.raises(welcome.WelcomeFailed, match="See run r1"):
            await asyncio.wait_for(waiting, 5)

    run_in_thread(wait_and_close())


# ── The editor ──


def test_a_late_reload_does_not_ask_about_a_resolved_change(monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = (make_view(ScenarioView, id="ferry", updated_at=each) for each in ("2026-01-01", "2026-01-02"))
    monkeypatch.setattr("nicegui.ui.context", SimpleNamespace(client=MagicMock()))
    editing: Any = editor._EditorPage(MagicMock(), before, "text")
    editing._editor, editing._show_notice = SimpleNamespace(is_saved=False), MagicMock()

    async def read(*_: object) -> ScenarioView:
        await asyncio.sleep(0)
        return now

    monkeypatch.setattr(editor, "read_scenario_or_none", read)
    run_in_thread(editing._handle_external_change())
    editing._show_notice.assert_called_once()

    async def meanwhile() -> None:
        looking = asyncio.create_task(editing._handle_external_change())
        await asyncio.sleep(0)
        editing._scenario = now  # as "Keep my version" does
        await looking

    editing._show_notice.reset_mock()
    run_in_thread(meanwhile())
    editing._show_notice.assert_not_called()
