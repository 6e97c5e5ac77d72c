"""Pramana from Python: what `pramana.evaluate` and its siblings do. One more front end, as thin as the command line.

`evaluate` blocks and returns a `Report`; `evaluate_async` is the same as a coroutine, `stream` yields results as they
are stored, `resume` goes on with a run, `compare` says which of two is better. A run is planned, executed and stored by
the code that the command line uses, in the same store. Nothing here takes a signal handler or changes the process:
`evaluate` works in a thread, so it can be called in a script, a test or a notebook whose event loop is running.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import ExitStack, aclosing, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

from pramana import planning, settings
from pramana.bench import INTERRUPTED, Watch, execute, rare_collections
from pramana.errors import BudgetSpent, InvalidInput, did_you_mean
from pramana.library.report import Report, make_report
from pramana.load.rows import cases_from, is_table
from pramana.model import Case, Reply, Run
from pramana.providers.accounts import Functions
from pramana.providers.text.function import path_of
from pramana.report.progress import show_progress
from pramana.request import Limits, RunRequest, Selection, check_values
from pramana.run.accounts import Reach
from pramana.run.asking import ReplyCache
from pramana.run.engine import Stop
from pramana.score.scorers import Scorer, ScorerFunction, make_scorer, scorer_path
from pramana.store import open_store

if TYPE_CHECKING:  # what only some calls need is imported by them: it takes as long as a short run
    from pramana.app.comparisons import WholeComparisonView
    from pramana.app.sides import Source
    from pramana.app.views import ResultDetailView
    from pramana.store.store import Store

__all__ = ["Report", "compare", "evaluate", "evaluate_async", "resume", "stream"]

PathLike = str | Path
Cases = PathLike | Case | Mapping[str, Any] | Iterable[PathLike | Case | Mapping[str, Any]] | Any
"""A file or folder, several of them, cases, dictionaries, or a data frame."""
Model = str | Callable[..., str | Reply | Coroutine[Any, Any, str | Reply]]
"""A model's name, or a function from prompt or messages to text."""
AnyScorer = str | Scorer | ScorerFunction
"""The name of an installed scorer, or a function that scores."""
REFRESH_S = 0.2
"""How often `evaluate` redraws the progress in a notebook."""
_Made = TypeVar("_Made")


class RunOptions(TypedDict, total=False):
    """Everything else that may be said of a run, under the names of `RunRequest` and `Limits`."""

    suite: str
    tier: str
    selection: Selection
    scenarios: Selection
    modalities: Sequence[str]
    condition: str
    embedder: str
    stt: str
    voice: Literal["espeak", "piper"]
    scorers: Sequence[AnyScorer]
    system_prompt: str
    temperature: float | None
    seed: int | None
    max_tokens: int
    top_p: float
    parameters: Mapping[str, Any]
    cache: bool
    max_cost_usd: float
    max_total_tokens: int
    deadline_s: float
    concurrency: int
    timeout_s: float


# ── Evaluate ──


def evaluate(
    cases: Cases = None,
    *,
    model: Model | None = None,
    models: Sequence[Model] = (),
    judge: Model | None = None,
    repeat: int = 1,
    progress: bool | None = None,
    **options: Unpack[RunOptions],
) -> Report:
    """Ask models the cases, check and store every reply, and return what came of it.

    Ctrl-C, or a kernel's interrupt, finishes what is under way and raises `KeyboardInterrupt`: what was stored stays,
    and `resume` goes on with it. The second one ends at once. `progress` defaults to whether somebody can see it.

    >>> evaluate({"input": "Say hello.", "ideal": "hello"}, model=str.lower).pass_rate
    1.0
    """
    __tracebackhide__ = True
    return _block_on(_new_run(cases, model, models, judge, repeat, options, _loop_for_functions), progress)


async def evaluate_async(
    cases: Cases = None,
    *,
    model: Model | None = None,
    models: Sequence[Model] = (),
    judge: Model | None = None,
    repeat: int = 1,
    progress: bool | None = None,
    **options: Unpack[RunOptions],
) -> Report:
    """Do what `evaluate` does, in the event loop that is running; coroutine functions run in that loop too."""
    return await _new_run(cases, model, models, judge, repeat, options).run(progress)


async def stream(
    cases: Cases = None,
    *,
    model: Model | None = None,
    models: Sequence[Model] = (),
    judge: Model | None = None,
    repeat: int = 1,
    **options: Unpack[RunOptions],
) -> "AsyncGenerator[ResultDetailView]":
    """Yield each result once it is stored. A loop that is left early ends the run, which `resume` can go on with."""
    session = _new_run(cases, model, models, judge, repeat, options)
    async with session.opened(), aclosing(session.results()) as results:
        async for result in results:
            yield result


def resume(
    run: str | Report = "latest",
    *,
    model: Model | None = None,
    models: Sequence[Model] = (),
    progress: bool | None = None,
    **limits: Unpack[RunOptions],
) -> Report:
    """Go on with a run that did not end, within other limits if any are given.

    A run of functions needs them again, as `model`, `models` or `scorers`, unless they can be imported by their names.
    """
    if planned := sorted(limits.keys() - {*Limits.__struct_fields__, "cache", "scorers"}):
        raise InvalidInput(f"{', '.join(planned)} cannot be changed: a run goes on as it was planned; start a new one")
    functions: dict[str, Callable[..., Any]] = {}
    for each in (*models, *([model] if model is not None else [])):
        _name_of(each, functions)
    run_id, given = run.run_id if isinstance(run, Report) else run, _options(limits)
    check_values(given["limits"])
    session = _Session(
        lambda store, _: store.runs.find(run_id),
        given["limits"],
        functions,
        _loop_for_functions,
        use_cache=given.get("cache", False),
        scorers=_scorers(limits.get("scorers", ()))[1],
    )
    return _block_on(session, progress)


class _Session:
    """One run, from the request to the report."""

    def __init__(
        self,
        find: "Callable[[Store, Reach], Run]",
        limits: Limits,
        functions: Mapping[str, Callable[..., Any]],
        loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.get_running_loop,
        *,
        use_cache: bool = False,
        scorers: Mapping[str, Scorer] | None = None,
    ) -> None:
        """Take a function that returns the run, new or to be resumed, and the `functions` that it asks."""
        self.stop = Stop()
        self._find, self._limits, self._functions, self._loop = find, limits, functions, loop
        self._scorers = scorers or {}
        self._cache = ReplyCache(settings.home() / "cache") if use_cache else None
        self._store: Store
        self._found: Run
        self._reach: Reach

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open the store and find the run."""
        self._reach = Reach(functions=Functions(self._functions, self._scorers, self._loop()))
        self._store = store = await asyncio.to_thread(open_store, settings.database_url())
        try:
            self._found = await asyncio.to_thread(self._find, store, self._reach)
            await asyncio.to_thread(planning.pull_missing_weights, self._found.plan)
            yield
        finally:
            await asyncio.to_thread(store.close)

    async def run(self, progress: bool | None, refresher: "_Refresher | None" = None) -> Report:
        """Carry the run out and return what came of it."""
        async with self.opened():
            counts = self._store.results.counts(self._found.id) if self._found.stored else None
            with show_progress(self._found, counts, progress, beside=refresher is not None) as shown:
                if refresher:
                    refresher.refresh = shown.refresh
                return await self.execute(shown)

    async def execute(self, watch: Watch) -> Report:
        with rare_collections():
            run = await execute(
                self._store, self._found, self._limits, watch, self.stop, reach=self._reach, cache=self._cache
            )
        error = self.stop.error
        if error is not None and not isinstance(error, BudgetSpent):  # a budget ends a run as it was asked to
            error.add_note(_how_to_resume(run))
            raise error
        return await asyncio.to_thread(make_report, self._store, run)

    async def results(self) -> "AsyncGenerator[ResultDetailView]":
        """Carry the run out and yield what is stored, read back from the store."""
        from pramana.app.runs import result_detail_view

        news, last = asyncio.Event(), 0
        working = asyncio.create_task(self.execute(lambda _: news.set()))
        working.add_done_callback(lambda _: news.set())
        try:
            while True:
                await news.wait()
                news.clear()
                ended = working.done()
                for seq, case, result in await asyncio.to_thread(self._stored, last):
                    last = seq
                    yield result_detail_view(seq, case, result, self._found.plan.system_prompt)
                if ended:
                    break
            await working
        finally:
            if not working.done():
                self.stop(INTERRUPTED)
                await asyncio.wait((working,))

    def _stored(self, after: int) -> list[Any]:
        return list(self._store.results.numbered_pairs(self._found, after))


def _how_to_resume(run: Run) -> str:
    kept = f"{run.stored:,} of {run.expected:,} results are stored"
    return f"{kept}; go on with pramana.resume({run.id!r})"


# ── From synchronous code ──


class _Refresher:
    """Redraws the progress in the thread that waits: a notebook shows only what its main thread displays."""

    def __init__(self) -> None:
        self.refresh: Callable[..., None] = lambda **_: None


def _block_on(session: _Session, progress: bool | None) -> Report:
    """Carry a session out in a thread of its own and wait for it."""
    done: Future[Report] = Future()
    refresher, running = _Refresher(), _Running()

    def work() -> None:
        try:
            done.set_result(asyncio.run(running.keep(session.run(progress, refresher))))
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            done.set_exception(error)

    threading.Thread(target=work, name="pramana-evaluate", daemon=True).start()
    try:
        return _wait(done, refresher)
    except KeyboardInterrupt:
        if done.done() and isinstance(done.exception(), KeyboardInterrupt):
            raise  # a function raised it
        session.stop(INTERRUPTED)
        try:
            report = _wait(done, refresher)
        except KeyboardInterrupt:
            running.cancel()
            with suppress(BaseException):
                done.result(timeout=5)
            raise
        if report.finished:  # the last result came before the interrupt
            return report
        raise KeyboardInterrupt(f"interrupted; {_how_to_resume(report.run)}") from None


def _wait(done: "Future[Report]", refresher: _Refresher) -> Report:
    while True:
        try:
            report = done.result(timeout=REFRESH_S)
        except NotYet:
            if done.done():
                raise  # the run's own
            refresher.refresh()
        else:
            refresher.refresh(at_once=True)
            return report


class _Running:
    """The task of a session, so that another thread can cancel it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def keep(self, work: Coroutine[Any, Any, _Made]) -> _Made:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        return await work

    def cancel(self) -> None:
        if self._loop and self._task:
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._task.cancel)


_functions_loop: tuple[int, asyncio.AbstractEventLoop] | None = None
_starting = threading.Lock()


def _loop_for_functions() -> asyncio.AbstractEventLoop:
    """Return the event loop for coroutine functions that `evaluate` is given.

    One for the whole process, because clients keep connections that belong to the loop they were opened in: with a new
    loop for each run, a client that is used in two of them would fail in the second. After a fork, a new one.
    """
    global _functions_loop  # noqa: PLW0603
    with _starting:
        if _functions_loop is None or _functions_loop[0] != os.getpid():
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="pramana-functions", daemon=True).start()
            _functions_loop = os.getpid(), loop
        return _functions_loop[1]


# ── What was asked for ──


def _new_run(
    cases: Cases,
    model: Model | None,
    models: Sequence[Model],
    judge: Model | None,
    repeat: int,
    options: Mapping[str, Any],
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.get_running_loop,
) -> _Session:
    """Return the session of a new run."""
    __tracebackhide__ = True
    functions: dict[str, Callable[..., Any]] = {}
    if isinstance(models, str) or not isinstance(models, Sequence):
        raise InvalidInput(f"models is a list; for one model write model={models!r:.60}")
    if model is not None and models:
        raise InvalidInput("give model or models, not both")
    named = tuple(_name_of(each, functions) for each in (models or ("local" if model is None else model,)))
    given = request_fields(cases)
    if not given and not ({"suite", "tier", "scenarios"} & options.keys()):
        given = {"suite": planning.DEFAULT_SUITE, "tier": planning.DEFAULT_TIER}
    judged_by = None if judge is None else _name_of(judge, functions)
    named_scorers, scorers = _scorers(options.get("scorers", ()))
    stated = {**_options(options), "scorers": named_scorers}
    request = RunRequest(models=named, judge=judged_by, repeats=repeat, **given, **stated)

    def create(store: "Store", reach: Reach) -> Run:
        return planning.create_run(store, request, reach)

    return _Session(create, request.limits, functions, loop, use_cache=request.cache, scorers=scorers)


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as fields of a request, limits apart; raises `TypeError` for one that does not exist."""
    __tracebackhide__ = True  # pytest shows the line that misspells it
    known = RunOptions.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(f"evaluate() got an unexpected keyword argument {name!r}{did_you_mean(name, known)}")
    limits = {name: value for name, value in options.items() if name in Limits.__struct_fields__}
    found = {name: value for name, value in options.items() if name not in limits}
    if found.get("modalities") is not None:
        given = found["modalities"]
        found["modalities"] = tuple(given.split(",")) if isinstance(given, str) else tuple(given)
    return {**found, "limits": Limits(**limits)}


def _name_of(model: Any, functions: dict[str, Callable[..., Any]]) -> str:
    """Return the name that a model is stored by; a function is kept under it."""
    if isinstance(model, str):
        return model
    if not callable(model):
        raise InvalidInput(f"a model is a name or a function, found {type(model).__name__}")
    path = path_of(model)
    if functions.setdefault(path, model) != model:
        raise InvalidInput(f"two functions are both called {path}, and results are stored by that name; rename one")
    return f"python:{path}"


def _scorers(given: Any) -> tuple[tuple[str, ...], dict[str, Scorer]]:
    """Return the names that scorers are stored by, and the functions among them by theirs."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput(f"scorers is a list; for one scorer write scorers=[{given!r:.60}]")
    made = [each if isinstance(each, str) else make_scorer(each) for each in given]
    named = tuple(each if isinstance(each, str) else scorer_path(each) for each in made)
    functions = {path: each for path, each in zip(named, made, strict=True) if isinstance(each, Scorer)}
    return named, functions


def request_fields(given: Cases) -> dict[str, Any]:
    """Return the fields of a request that say which cases."""
    if given is None:
        return {}
    if isinstance(given, str | Path):
        return {"paths": (Path(given),)}
    if is_table(given):
        return {"cases": cases_from(given)}
    if isinstance(given, Case | Mapping):
        return {"cases": cases_from([given])}
    if not isinstance(given, Iterable):
        raise InvalidInput(f"cases are a path, cases, dictionaries or a data frame, found {type(given).__name__}")
    listed = list(given)
    paths = [each for each in listed if isinstance(each, str | Path)]
    if not paths:
        return {"cases": cases_from(listed)}
    if len(paths) < len(listed):
        raise InvalidInput("cases are all paths or all cases, not some of each; pramana.cases_of reads a file")
    return {"paths": tuple(map(Path, paths))}


# ── Compare ──


def compare(
    base: "str | Path | Report",
    new: "str | Path | Report",
    *,
    model: str | None = None,
    new_model: str | None = None,
    any_suite: bool = False,
    any_judge: bool = False,
) -> "WholeComparisonView":
    """Compare two runs case by case: reports, ids of runs, or paths of results.json files.

    `str()` of what is returned is the answer in a sentence. Of runs with several models, `model` and `new_model` say
    which.
    """
    from pramana.app.comparisons import whole_view
    from pramana.app.sides import compared

    with ExitStack() as stack:
        sides = _side(base, model, stack), _side(new, new_model or model, stack)
        return whole_view(compared(*sides, any_suite=any_suite, any_judge=any_judge))


def _side(given: "str | Path | Report", model: str | None, stack: ExitStack) -> "Source":
    from pramana.app.sides import of_file, of_run

    if not isinstance(given, Report) and str(given).endswith(".json"):
        return of_file(Path(given), model)
    store = stack.enter_context(closing(open_store(settings.database_url())))
    return of_run(store, given.run_id if isinstance(given, Report) else str(given), model)
