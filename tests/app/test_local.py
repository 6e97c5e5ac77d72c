"""Runs in the user's own process: refused on servers, bound by one cost limit, stopped before they start."""

import asyncio
import sys
import sysconfig
import threading
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack, closing
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from pramana import ScoringContext, scorer
from pramana.app import App, Credential
from pramana.app.access import Forbidden
from pramana.app.local import continue_run, find_paid_models, start_run, unload_modules, validate_files, validate_text
from pramana.app.spending import CostNotAllowed, LocalProgramSettings, SpendingLimit
from pramana.app.views import RunDetailView
from pramana.errors import Stopped
from pramana.model import Plan, Target
from pramana.plugins import scorers
from pramana.request import Limits, RunRequest, Selection
from pramana.run.engine import Stop
from pramana.store import open_store

from ..loopback.openai import OpenAIWire
from ..loopback.server import Loopback
from ..stores import sqlite_store

_T = TypeVar("_T")
OWN_ACCOUNT = Credential(is_from_server_account=True)
REQUEST = RunRequest(models=("fake:echo",), suite="v1.0", tier="cheap", selection=Selection(limit=3))


def run(work: Awaitable[_T]) -> _T:
    async def working() -> _T:
        return await work

    return asyncio.run(working())


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        yield App(store, local_program=LocalProgramSettings(SpendingLimit()))


def test_a_server_executes_no_local_runs_and_reads_no_files_by_path(app: App) -> None:
    app.local_program = None
    refused: tuple[Awaitable[Any], ...] = (
        start_run(app, OWN_ACCOUNT, REQUEST, lambda _: None, Stop()),
        continue_run(app, OWN_ACCOUNT, "latest", {}, lambda _: None, Stop()),
        validate_files(app, OWN_ACCOUNT, (Path("/etc"),), max_errors=10),
    )
    for work in refused:
        with pytest.raises(Forbidden, match="not through a server"):
            run(work)
    assert not app.store.runs.read_page()[0]
    assert run(validate_text(app, OWN_ACCOUNT, "", "suite", max_errors=10)).errors == 1


def test_a_run_stopped_while_waiting_is_not_created(app: App) -> None:
    stop = Stop()
    stop("cancelled")
    with pytest.raises(Stopped):
        run(start_run(app, OWN_ACCOUNT, REQUEST, lambda _: None, stop))
    assert not app.store.runs.read_page()[0]


def test_a_local_run_returns_its_summary(app: App) -> None:
    seen: list[str] = []
    found = run(start_run(app, OWN_ACCOUNT, REQUEST, lambda now: seen.append(now.run.id), Stop()))
    assert set(seen) == {found.id}
    assert (found.status, found.stored, found.owner) == ("finished", 3, "cli")
    assert found.summary
    assert found.summary.overall.total == 3
    again = run(continue_run(app, OWN_ACCOUNT, found.id, {}, lambda _: None, Stop()))
    assert (again.id, again.stored) == (found.id, 3), "nothing is left to ask"


def target(typed: str) -> Target:
    provider, _, model = typed.partition(":")
    return Target(typed, provider, model)


@pytest.mark.parametrize(
    ("typed", "paid"),
    [
        ("fake:echo", False),
        ("local:smollm2", False),
        ("python:bot:reply", False),
        ("command:mine", False),
        ("openai:gpt-5", True),
        ("openai:a-model-without-a-price", True),
        ("openai-realtime:gpt-realtime", True),
    ],
)
def test_a_model_without_a_known_price_counts_as_paid(app: App, typed: str, paid: bool) -> None:
    def plan(*targets: str, judge: str | None = None) -> Plan:
        return Plan("s", None, tuple(map(target, targets)), judge=target(judge) if judge else None)

    assert find_paid_models(app.store, plan(typed)) == ([typed] if paid else [])
    assert find_paid_models(app.store, plan("fake", judge=typed)) == ([typed] if paid else [])


def test_concurrent_runs_never_reserve_more_than_the_cost_limit() -> None:
    spending, granted, refused = SpendingLimit(10.0), [], 0
    ready = threading.Barrier(20)
    lock = threading.Lock()
    held = ExitStack()

    def reserve() -> None:
        nonlocal refused
        ready.wait()
        try:
            with lock:
                granted.append(held.enter_context(spending.reserve(3.0)))
        except CostNotAllowed:
            refused += 1

    threads = [threading.Thread(target=reserve) for _ in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(each.max_cost_usd for each in granted) == [1.0, 3.0, 3.0, 3.0]
    assert refused == 16
    granted[0].spent_usd = 0.5
    held.close()
    assert spending.left_usd == 9.5, "what was not spent can be spent by other judges"


def test_project_modules_are_reloaded_and_installed_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / ".venv" / "site-packages"
    installed.mkdir(parents=True)
    for name, folder in (("a_module_of_a_project", tmp_path), ("an_installed_module", installed)):
        (folder / f"{name}.py").write_text("VERSION = 1")
        monkeypatch.syspath_prepend(str(folder))
        import_module(name)
    kept = set(sys.modules) - {"a_module_of_a_project"}
    unload_modules(tmp_path)
    assert set(sys.modules) == kept
    (tmp_path / "a_module_of_a_project.py").write_text("VERSION = 'another'")
    assert import_module("a_module_of_a_project").VERSION == "another"
    for name in ("a_module_of_a_project", "an_installed_module"):
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("place", ["a project that holds it", "its own prefix"])
def test_standard_library_modules_are_never_unloaded(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home directory holds the Python of pyenv or conda."""
    prefix = tmp_path / "pyenv"
    library = prefix / "lib" / "python3"
    files = {
        "a_standard_module": library / "a.py",
        "an_own_module": tmp_path / "own.py",
        "beside": prefix / "beside.py",
    }
    modules = {name: ModuleType(name) for name in files}
    for name, file in files.items():
        modules[name].__file__ = str(file)
    monkeypatch.setattr(sys, "modules", {**sys.modules, **modules})
    monkeypatch.setattr(sys, "base_prefix", str(prefix))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(library))
    unload_modules(prefix if place == "its own prefix" else tmp_path)
    forgotten = {"beside"} if place == "its own prefix" else {"an_own_module"}
    assert modules.keys() - sys.modules.keys() == forgotten


def test_the_actual_standard_library_stays_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    unload_modules(Path(sysconfig.get_path("stdlib")).parent)
    assert {"asyncio", "json", "threading"} <= sys.modules.keys()


@scorer
async def grade(context: ScoringContext) -> float:
    """Ask a model that costs money."""
    return float(len((await context.ask("How good is it?", model="openai:gpt-5")).text))


@pytest.mark.parametrize(
    ("of_program", "of_run", "is_asked"),
    [(None, None, False), (None, 1.0, False), (5.0, None, False), (5.0, 1.0, True)],
)
def test_a_scorer_calls_paid_models_only_if_program_and_run_have_a_cost_limit(
    of_program: float | None, of_run: float | None, is_asked: bool, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    spending = SpendingLimit(of_program)
    app.local_program = LocalProgramSettings(spending)
    request = replace(REQUEST, selection=Selection(limit=1), scorers=("grade",), limits=Limits(max_cost_usd=of_run))

    async def ask() -> tuple[RunDetailView, int]:
        async with Loopback(OpenAIWire("Very good.")) as server:
            monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            return await start_run(app, OWN_ACCOUNT, request, lambda _: None, Stop()), server.count

    monkeypatch.setitem(scorers._loaded, "grade", grade)
    found, count = asyncio.run(ask())
    ((_, result),) = app.store.results.iterate_with_cases(found.id)
    (check,) = (each for each in result.checks if each.name == "grade")
    assert count == (1 if is_asked else 0)
    assert (spending.left_usd < (of_program or 0)) == is_asked, "what a scorer spends counts"
    if not is_asked:
        why = "openai:gpt-5 may cost money, and this run has no cost limit; set a cost limit"
        assert check.reason == f"grade could not score: InvalidInput: {why}"
