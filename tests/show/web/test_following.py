"""What a page is told while it is open: it hears again after a refusal, keeps what is newer, and ends when it closes."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from msgspec.structs import replace

from pramana.analyse.summary import Tally
from pramana.app.pulls import PullView
from pramana.app.runs import list_results
from pramana.app.scenarios import ScenarioView
from pramana.app.views import Listed, RunDetailView
from pramana.app.weights import WeightsView, list_weights
from pramana.show.web.kit.page_context import UseCaseRefused
from pramana.show.web.pages import editor, welcome
from pramana.show.web.pages import run as page

from ...views import make_view


def apart(work: Coroutine[Any, Any, Any]) -> None:
    """Run something in a thread of its own: in this one, Playwright's loop may be running."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


RUN = make_view(
    RunDetailView, id="r1", status="running", stored=1, expected=10, models=("m",), variants=("text",), repeats=1
)
SUMMARY = Tally().summary()
AWAY = UseCaseRefused(503, "the store is away", "unavailable")


class Desk:
    """Answers as it is told, and keeps who listens."""

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
            return Listed([], 0)
        if use_case is list_weights:
            return [WEIGHTS]
        self.meanwhile()
        return replace(RUN, summary=SUMMARY)

    def follow(self, _run: str, _after: int, then: Any, over: Any = None) -> None:
        self.heard.append((then, over))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    made = MagicMock()
    monkeypatch.setattr("nicegui.ui.timer", made)
    return made


@pytest.fixture
def shown(desk: Desk, timer: MagicMock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page of a run, without a browser."""
    del timer
    found: Any = page._RunPage(desk, RUN, [])  # type: ignore[arg-type]
    for name in ("_all", "_about", "_summary", "_breakdowns", "_progress", "_newest", "_suggest_tags", "_timer"):
        setattr(found, name, MagicMock())
    found._all.is_deleted = False
    for name in ("render_headline", "render_breakdowns"):
        monkeypatch.setattr(page, name, lambda *_: "drawn")
    return found


def test_one_refusal_does_not_end_following(desk: Desk, shown: Any, timer: MagicMock) -> None:
    desk.refused = AWAY
    apart(shown._follow())
    assert not desk.heard
    desk.refused = None
    later = timer.call_args.args[1]
    apart(later())
    assert len(desk.heard) == 1


def test_a_listener_that_breaks_is_replaced_and_an_older_one_is_not_missed(
    desk: Desk, shown: Any, timer: MagicMock
) -> None:
    apart(shown._follow())
    (_, over), *_ = desk.heard
    over()
    apart(timer.call_args.args[1]())
    assert len(desk.heard) == 2
    timer.reset_mock()
    over()
    apart(shown._follow())
    assert len(desk.heard) == 2, "the newer one listens still"
    shown._all.is_deleted = True
    desk.heard[1][1]()
    timer.assert_not_called()


def test_two_who_begin_to_follow_at_once_are_one(desk: Desk, shown: Any) -> None:
    async def both() -> None:
        await asyncio.gather(shown._follow(), shown._follow())

    apart(both())
    assert len(desk.heard) == 1


def test_a_summary_never_takes_the_place_of_what_was_told_meanwhile(desk: Desk, shown: Any) -> None:
    newer = replace(RUN, stored=10, status="stopped", cancel_requested=True)
    desk.meanwhile = lambda: shown._update_run(newer)
    apart(shown._update_summary())
    assert shown._run == replace(newer, summary=SUMMARY)
    desk.meanwhile = lambda: None
    apart(shown._update_summary())
    assert shown._run.stored == 1, "what nobody has told since is taken as it is read"


# ── The first run ──

WEIGHTS = make_view(WeightsView, name="w", title="W", pull=make_view(PullView, done_bytes=1, total_bytes=2))


def test_a_download_is_not_looked_at_when_the_page_is_gone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[Callable[[], None]] = []
    client = SimpleNamespace(on_delete=handlers.append)
    monkeypatch.setattr(welcome, "ui", SimpleNamespace(context=SimpleNamespace(client=client)))
    monkeypatch.setattr(welcome, "LOOK_S", 0.01)

    async def watched() -> None:
        told = asyncio.Event()
        watching = welcome.wait_for_weights(desk, WEIGHTS, lambda *_: told.set())  # type: ignore[arg-type]
        looking = asyncio.create_task(watching)
        await told.wait()
        for each in handlers:
            each()
        with pytest.raises(welcome.WelcomeFailed):
            await asyncio.wait_for(looking, 5)

    apart(watched())


def test_nobody_waits_for_a_call_that_is_not_followed_any_more(desk: Desk) -> None:
    async def waited() -> None:
        waiting = asyncio.create_task(welcome.WelcomePanel(desk)._wait_for_run("r1"))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        over = desk.heard[0][1]
        over()
        over()
        with pytest.raises(welcome.WelcomeFailed, match="See run r1"):
            await asyncio.wait_for(waiting, 5)

    apart(waited())


# ── The editor ──


def test_a_late_look_does_not_ask_about_a_change_that_was_dealt_with(monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = (make_view(ScenarioView, id="ferry", updated_at=each) for each in ("2026-01-01", "2026-01-02"))
    monkeypatch.setattr("nicegui.ui.context", SimpleNamespace(client=MagicMock()))
    editing: Any = editor._EditorPage(MagicMock(), before, "text")
    editing._editor, editing._show_notice = SimpleNamespace(is_kept=False), MagicMock()

    async def read(*_: object) -> ScenarioView:
        await asyncio.sleep(0)
        return now

    monkeypatch.setattr(editor, "read_scenario_or_none", read)
    apart(editing._reload())
    editing._show_notice.assert_called_once()

    async def meanwhile() -> None:
        looking = asyncio.create_task(editing._reload())
        await asyncio.sleep(0)
        editing._scenario = now  # as "Keep my version" does
        await looking

    editing._show_notice.reset_mock()
    apart(meanwhile())
    editing._show_notice.assert_not_called()
