"""Pramana from Python: `pramana.evaluate` and its siblings. One more front end, as thin as the command line.

`evaluate` blocks and returns a `Report`; `evaluate_async` is the same as a coroutine, `stream` yields results as they
are stored, `resume` continues a run, `compare` decides which of two is better, `estimate` returns the calls, tokens and
cost of a run, and `load_report` returns the report of a stored run. Runs are planned, executed and stored by the code
that the command line uses, in the same store. `evaluate` works in a thread, so it can be called in a script, a test or
a notebook whose event loop is running. Nothing here installs a signal handler. While runs are under way, the garbage
collector's thresholds are raised for the whole process; the last run to end restores them.
"""

from __future__ import annotations  # `help` and editors show Cases and Model, not what they are made of

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, Unpack, cast

from msgspec.structs import asdict

from pramana import planning, settings
from pramana.errors import InvalidInput, PramanaError, describe_value, suggest_similar
from pramana.library.listing import RunList, RunRecord, list_runs
from pramana.library.named_models import describe_argument, read_judges, read_models, read_scorers
from pramana.library.options import (
    Cases,
    Judge,
    Model,
    Models,
    ResumeOptions,
    RunOptions,
    make_unexpected_option_error,
    reword_for_python,
)
from pramana.library.report import Report, find_database_url, make_report
from pramana.library.session import (
    RunSession,
    RunWithLimits,
    Stream,
    find_run_to_resume,
    run_blocking,
)
from pramana.library.threads import get_functions_loop
from pramana.load import parse_case_path
from pramana.load.rows import is_data_frame, is_single_case, read_rows
from pramana.model import Run
from pramana.providers.accounts import PassedFunctions
from pramana.request import Limits, RunRequest, Selection, check_struct_values
from pramana.run.accounts import ProviderAccess
from pramana.score.scorers import Scorer
from pramana.store import open_store

if TYPE_CHECKING:  # what only some calls need is imported by them: it takes as long as a short run
    from pramana.app.references import SideReference
    from pramana.library.comparison import Comparison, ComparisonTable
    from pramana.library.estimates import Estimate
    from pramana.store.store import Store

__all__ = [
    "Report", "compare", "compare_several", "estimate", "evaluate", "evaluate_async", "load_report", "resume",
    "resume_async", "runs", "stream",
]  # fmt: skip

StoredRun = str | Report | RunRecord
"""A run that is stored: its id, its report, or an item of `runs()`."""
PYTHON_PREFIX = "python:"
_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


def reword_errors_for_python(function: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Word the errors of a function for Python, and cut our frames from them."""

    @wraps(function)
    def call(*given: _Given.args, **named: _Given.kwargs) -> _Returned:
        __tracebackhide__ = True
        try:
            return function(*given, **named)
        except PramanaError as error:
            raise (worded := reword_for_python(error)) from worded.__cause__

    @wraps(function)
    async def call_async(*given: _Given.args, **named: _Given.kwargs) -> Any:
        __tracebackhide__ = True
        try:
            return await cast("Awaitable[Any]", function(*given, **named))
        except PramanaError as error:
            raise (worded := reword_for_python(error)) from worded.__cause__

    return cast("Callable[_Given, _Returned]", call_async if iscoroutinefunction(function) else call)


# ── Evaluate ──


@reword_errors_for_python
def evaluate(
    cases: Cases = None,
    *,
    model: Model | None = None,
    models: Models = (),
    judge: Judge | None = None,
    repeat: int = 1,
    progress: bool | None = None,
    **options: Unpack[RunOptions],
) -> Report:
    """Send the test cases to the models, check and store every reply, and return the report of the run.

    After Ctrl-C, or the interrupt button of a notebook, the calls in flight are finished and stored before
    `KeyboardInterrupt` is raised; `resume` continues the run. A second Ctrl-C or interrupt ends the run immediately. By
    default, `evaluate` shows the progress of the run in terminals and notebooks; `progress=False` turns it off.

    Options:

    - `suite`, `tier`: a tier of a suite, instead of `cases`
    - `selection`: filters on the cases, as a dictionary (`{"tags": ["vip"]}`) or a `pramana.Selection`
    - `scenarios`: filters on the scenarios in the store, to run them too; `{}` for all of them
    - `modalities`, `condition`: how cases are sent (`["text", "voice"]`), and sound effects on speech
    - `embedder`, `stt`, `voice`: models for `semantic_similarity`, for transcripts of calls, and for spoken prompts
    - `scorers`: functions, or names of installed scorers, that check every reply too
    - `system_prompt`: sent before the messages of every case
    - `temperature` (0), `seed` (42), `max_tokens`, `top_p`: sampling parameters; with None, the parameter is not sent
    - `parameters`: any other parameter, by the provider's name for it
    - `name`, `note`: of the run, for lists
    - `cache`: whether to reuse replies to identical requests
    - `max_cost_usd`, `max_total_tokens`, `deadline_s`: limits that end the run without an error
    - `concurrency` (32), `timeout_s` (120): of requests, per provider and per request

    >>> evaluate({"input": "Say hello.", "ideal": "hello"}, model=str.lower).pass_rate
    1.0
    """
    __tracebackhide__ = True
    return run_blocking(_make_session(cases, model, models, judge, repeat, options, get_functions_loop), progress)


@reword_errors_for_python
async def evaluate_async(
    cases: Cases = None,
    *,
    model: Model | None = None,
    models: Models = (),
    judge: Judge | None = None,
    repeat: int = 1,
    progress: bool | None = None,
    **options: Unpack[RunOptions],
) -> Report:
    """Evaluate models in the running event loop of async code, with the same options as `evaluate`.

    Coroutine functions that you pass as models or judges run in the same event loop as `evaluate_async`.
    """
    return await _make_session(cases, model, models, judge, repeat, options).run(progress)


@reword_errors_for_python
def stream(
    cases: Cases = None,
    *,
    model: Model | None = None,
    models: Models = (),
    judge: Judge | None = None,
    repeat: int = 1,
    **options: Unpack[RunOptions],
) -> Stream:
    """Start a run, and return a stream that yields each result once it is stored, for `async for`.

    The options of `stream` are those of `evaluate`.

    If you leave the loop over the stream early, the run stops after the calls in flight are finished; `resume`
    continues the run.
    """
    return Stream(_make_session(cases, model, models, judge, repeat, options))


@reword_errors_for_python
def resume(
    run: StoredRun = "latest",
    *,
    model: Model | None = None,
    models: Models = (),
    judge: Judge | None = None,
    progress: bool | None = None,
    **options: Unpack[ResumeOptions],
) -> Report:
    """Resume a run that did not finish.

    The resumed run keeps the limits with which it was started, except the limits that you pass to `resume`;
    `max_cost_usd=None` removes the cost limit. If a limit on cost or tokens ended the run, pass a higher limit to
    `resume`: with the same limit, the run ends again without sending anything. If a run used functions, pass the
    functions to `resume` again, as `model`, `models`, `judge` or `scorers`, unless Pramana can import them by name. If
    you have renamed a function, pass it under its old name: `models={"python:__main__:agent": function}`.
    """
    return run_blocking(_make_resumed_session(run, model, models, judge, options, get_functions_loop), progress)


@reword_errors_for_python
async def resume_async(
    run: StoredRun = "latest",
    *,
    model: Model | None = None,
    models: Models = (),
    judge: Judge | None = None,
    progress: bool | None = None,
    **options: Unpack[ResumeOptions],
) -> Report:
    """Resume a run in the running event loop of async code, otherwise like `resume`."""
    return await _make_resumed_session(run, model, models, judge, options).run(progress)


# ── Without sending anything ──


@reword_errors_for_python
def estimate(
    cases: Cases = None,
    *,
    model: Model | None = None,
    models: Models = (),
    judge: Judge | None = None,
    repeat: int = 1,
    **options: Unpack[RunOptions],
) -> Estimate:
    """Estimate what `evaluate` would do: its cases, calls, tokens and cost, and what is missing for it.

    The arguments of `estimate` are those of `evaluate`; what may be missing are judges, API keys and prices.

    `estimate` sends nothing to a model and stores nothing. `str()` returns the estimate as text.

    >>> estimate({"input": "Say hello.", "ideal": "hello"}, model="fake:echo", repeat=3).calls
    3
    """
    from pramana.app.runs import estimate_view
    from pramana.library.estimates import Estimate

    stated = make_request_from_arguments(cases, model, models, judge, repeat, options)
    with closing(open_store(settings.database_url())) as store:
        reach = ProviderAccess(passed_functions=PassedFunctions(stated.functions, stated.scorers))
        return Estimate(**asdict(estimate_view(store, stated.request, reach)))


@reword_errors_for_python
def load_report(run: StoredRun = "latest") -> Report:
    """Return the report of a stored run, named by its id, the beginning of its id, `latest`, or an item of `runs()`.

    `RUN@0` names the run with its first scoring; `report.scorings` lists all scorings of a run.
    """
    with closing(open_store(find_database_url(run))) as store:
        return make_report(store, store.runs.find_as_of_scoring(format_run_reference(run)))


def format_run_reference(run: StoredRun) -> str:
    """Return the id of a stored run, with the scoring by which a report was read: `RUN@0`."""
    if isinstance(run, Report):
        return run.run.reference
    if isinstance(run, RunRecord):
        return run.id
    if not isinstance(run, str):
        raise InvalidInput(f"a run is its id, a report, or an item of pramana.runs(), found {describe_value(run)}")
    return run


@reword_errors_for_python
def runs(limit: int = 20, *, model: str | None = None, suite: str | None = None, name: str | None = None) -> RunList:
    """Return the stored runs, newest first, optionally only those of one model, of one suite or with one name.

    `print(pramana.runs())` shows the stored runs as a table.

    The argument `suite` is the beginning of a suite's name, and `name` a part of the name that a run was given:
    `pramana.evaluate(…, name="nightly")`.

    >>> report = evaluate({"input": "Say hello.", "ideal": "hello"}, model="fake:echo", name="greeting")
    >>> report.run_id in [each.id for each in runs(name="greeting")]
    True
    """
    with closing(open_store(settings.database_url())) as store:
        return list_runs(store, limit, model, suite, name)


# ── Requests ──


class _RequestWithFunctions(NamedTuple):
    """A request, and the functions that it names."""

    request: RunRequest
    functions: dict[str, Callable[..., Any]]
    scorers: dict[str, Scorer]


def make_request_from_arguments(
    cases: Cases, model: Model | None, models: Models, judge: Judge | None, repeat: int, options: Mapping[str, Any]
) -> _RequestWithFunctions:
    """Return a request made from the arguments."""
    __tracebackhide__ = True
    functions: dict[str, Callable[..., Any]] = {}
    named = read_models(model, models, functions) or ("local",)
    given = make_case_fields(cases)
    if not given and not ({"suite", "tier", "scenarios"} & options.keys()):
        given = {"suite": planning.DEFAULT_SUITE, "tier": planning.DEFAULT_TIER}
    judges = read_judges(judge, functions)
    named_scorers, scorers = read_scorers(options.get("scorers", ()))
    stated = {**_options_to_request_fields(options), "scorers": named_scorers}
    request = RunRequest(
        models=named,
        judge=judges[0] if judges else None,
        other_judges=judges[1:],
        repeats=repeat,
        **given,
        **stated,
    )
    return _RequestWithFunctions(request, functions, scorers)


def _make_session(
    cases: Cases,
    model: Model | None,
    models: Models,
    judge: Judge | None,
    repeat: int,
    options: Mapping[str, Any],
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.get_running_loop,
) -> RunSession:
    """Return the session of a new run."""
    __tracebackhide__ = True
    request, functions, scorers = make_request_from_arguments(cases, model, models, judge, repeat, options)

    def create(store: Store, reach: ProviderAccess) -> RunWithLimits:
        return RunWithLimits(planning.create_run(store, request, reach), request.limits)

    return RunSession(create, functions, loop, use_cache=request.cache, scorers=scorers)


def _make_resumed_session(
    run: StoredRun,
    model: Model | None,
    models: Models,
    judge: Judge | None,
    options: Mapping[str, Any],
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.get_running_loop,
) -> RunSession:
    """Return the session of a resumed run."""
    __tracebackhide__ = True
    if unknown := sorted(options.keys() - RunOptions.__annotations__.keys()):
        raise make_unexpected_option_error("resume", unknown[0])
    if planned := sorted(options.keys() - ResumeOptions.__annotations__.keys()):
        raise InvalidInput(f"{', '.join(planned)} cannot be changed: a resumed run keeps its plan; start a new run")
    functions, named = _read_models_to_resume(model, models)
    judges = read_judges(judge, functions)
    run_id = run.run_id if isinstance(run, Report) else format_run_reference(run)
    changed = {name: value for name, value in options.items() if name in Limits.__struct_fields__}
    check_struct_values(Limits(**changed))

    def find(store: Store, _: ProviderAccess) -> RunWithLimits:
        found = find_run_to_resume(store, run_id)
        _refuse_unknown_models(named, judges, found)
        _refuse_unknown_functions(functions, found)
        return RunWithLimits(found, Limits.for_resumed_run(found.limits, changed))

    return RunSession(
        find,
        functions,
        loop,
        use_cache=options.get("cache", False),
        scorers=read_scorers(options.get("scorers", ()))[1],
        store_url=find_database_url(run),
    )


class _ModelsToResume(NamedTuple):
    """The models that were passed to resume a run."""

    functions: dict[str, Callable[..., Any]]
    """By their stored names."""
    named_models: tuple[str, ...]
    """Those that were passed by name."""


def _read_models_to_resume(model: Model | None, models: Models) -> _ModelsToResume:
    """Return the models of a resumed run; a mapping may use stored names of functions as keys."""
    functions: dict[str, Callable[..., Any]] = {}
    named: dict[str, Callable[..., Any]] = {}
    if isinstance(models, Mapping):
        named = {name: each for name, each in models.items() if str(name).startswith(PYTHON_PREFIX)}
        for name, each in cast("dict[str, Any]", named).items():
            if not callable(each):
                raise InvalidInput(f"{name} is a function, found {type(each).__name__}")
        models = {name: each for name, each in models.items() if name not in named}
        if model is not None and named:
            raise InvalidInput("pass model or models, not both")
    typed = read_models(model, models, functions)
    given = functions | {name.removeprefix(PYTHON_PREFIX): each for name, each in named.items()}
    return _ModelsToResume(given, tuple(each for each in typed if each.removeprefix(PYTHON_PREFIX) not in functions))


def _refuse_unknown_models(names: Sequence[str], judges: Sequence[str], run: Run) -> None:
    """Raise an error for names of models that the run does not test, and for another judge than its own."""
    tested = [each.typed for each in run.plan.targets]
    if other := [each for each in names if each not in tested]:
        raise InvalidInput(
            f"run {run.id} tests {', '.join(tested)}, not {', '.join(other)}; resume the run without naming models, or "
            "start a new run"
        )
    planned = [each.typed for each in run.plan.judges]
    if other := [each for each in judges if each not in planned and not each.startswith(PYTHON_PREFIX)]:
        raise InvalidInput(
            f"run {run.id} is judged by {', '.join(planned) or 'its own models'}, not {', '.join(other)}; resume the "
            "run without naming a judge, or start a new run"
        )


def _refuse_unknown_functions(functions: Mapping[str, Callable[..., Any]], run: Run) -> None:
    """Raise an error for functions that the run does not call."""
    plan = run.plan
    targets = [each for each in (*plan.targets, *plan.judges, plan.embedder, plan.stt) if each is not None]
    planned = {each.model: each.typed for each in targets if each.provider == "python"}
    for path, function in functions.items():
        if path in planned:
            continue
        if not planned:
            raise InvalidInput(
                f"run {run.id} calls no function, but {PYTHON_PREFIX}{path} was passed; resume the run without a "
                "function"
            )
        missing = [typed for name, typed in planned.items() if name not in functions] or list(planned.values())
        raise InvalidInput(
            f"run {run.id} calls {', '.join(missing)}, but the function passed is {PYTHON_PREFIX}{path}; if it is the "
            "same "
            f'function under a new name, pass models={{"{missing[0]}": {describe_argument(function)}}}, otherwise '
            f"start "
            f"a new run"
        )


def _options_to_request_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as fields of a request, with limits separate; raise `TypeError` for an unknown one."""
    __tracebackhide__ = True  # pytest shows the line that misspells it
    if unknown := [name for name in options if name not in RunOptions.__annotations__]:
        raise make_unexpected_option_error("evaluate", unknown[0])
    limits = {name: value for name, value in options.items() if name in Limits.__struct_fields__}
    found = {name: value for name, value in options.items() if name not in limits}
    for name in ("selection", "scenarios"):
        if found.get(name) is not None:
            found[name] = read_selection(name, found[name])
    if isinstance(given := found.get("modalities"), str | list):
        found["modalities"] = tuple(given.split(",") if isinstance(given, str) else given)
    return {**found, "limits": Limits(**limits)}


def read_selection(argument_name: str, filters: Any) -> Any:
    """Return a selection, made from a dictionary if one was passed; refuse a filter that is an empty list."""
    selection = _selection_from_dict(argument_name, filters) if isinstance(filters, Mapping) else filters
    if not isinstance(selection, Selection):
        example = "a pramana.Selection or a dictionary such as {'tags': ['vip']}"
        raise InvalidInput(f"{argument_name}: expected {example}, found {describe_value(selection)}")
    selection.refuse_empty_filters(argument_name)
    return selection


def _selection_from_dict(argument_name: str, filters: Mapping[str, Any]) -> Selection:
    known = Selection.__struct_fields__
    for name in filters:
        if name not in known:
            hint = suggest_similar(str(name), known) or f"; expected {', '.join(known)}"
            raise InvalidInput(f"{argument_name}: unknown filter {name!r:.60}{hint}")
    given: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in filters.items()}
    return Selection(**given)


def make_case_fields(given: Cases) -> dict[str, Any]:
    """Return the fields of a request that select the cases."""
    if given is None:
        return {}
    if isinstance(given, str | Path):
        return {"paths": (parse_case_path(given),)}
    if is_data_frame(given):
        return {"cases": read_rows(given)}
    if is_single_case(given):
        return {"cases": read_rows([given])}
    if not isinstance(given, Iterable) or isinstance(given, type | bytes | bytearray):
        raise InvalidInput(f"cases are a path, cases, dictionaries or a data frame, found {describe_value(given)}")
    listed = list(given)
    paths = [each for each in listed if isinstance(each, str | Path)]
    if not paths:
        return {"cases": read_rows(listed)}
    if len(paths) < len(listed):
        raise InvalidInput("pass only paths or only cases; pramana.cases_of reads cases from a file")
    return {"paths": tuple(map(parse_case_path, paths))}


# ── Compare ──


@reword_errors_for_python
def compare(
    base: StoredRun | Path,
    new: StoredRun | Path | None = None,
    *,
    model: str | None = None,
    new_model: str | None = None,
    any_suite: bool = False,
    any_judge: bool = False,
    margin: float = 5.0,
) -> Comparison:
    """Compare two runs, or two models of one run, case by case.

    Each of the arguments `base` and `new` is a report, the id of a run, an item of `runs()`, or the path of a
    results.json file.

    `RUN@0` names a run with its first scoring, so you can also compare two scorings of one run, with `any_judge=True`.
    `str()` of the returned comparison says in a sentence which side is better. Without `new`, `compare` compares two
    models of the run `base`. For runs with several models, `model` and `new_model` name the models to compare. `margin`
    is the largest acceptable loss of the pass rate, in points: `loss_excluded` says whether a loss as large as that is
    excluded.
    """
    from pramana.app.comparison_sides import compare_sides
    from pramana.app.references import ModelUnclear, resolve_sides
    from pramana.library.comparison import make_comparison

    with ExitStack() as stack:
        one, other = _open_reference(base, stack), None if new is None else _open_reference(new, stack)
        try:
            sides = resolve_sides(one, other, model, new_model)
        except ModelUnclear as error:
            raise InvalidInput(error.explain_python_call()) from None
        return make_comparison(compare_sides(*sides, any_suite=any_suite, any_judge=any_judge, margin=margin))


@reword_errors_for_python
def compare_several(
    *runs: StoredRun | Path,
    against: StoredRun | Path | None = None,
    model: str | None = None,
    new_model: str | None = None,
    any_suite: bool = False,
    any_judge: bool = False,
    margin: float = 5.0,
) -> ComparisonTable:
    """Compare three and more runs, or all models of one run, and decide all pairs together.

    The returned table has all sides by pass rate, and every pair with its difference, its p-value and Holm's adjusted
    p-value: the chance that the table calls any side better that is not is at most 5 %. With `against`, a run or the
    name of a model of the only run, each side is compared only with that one, and Holm corrects for fewer comparisons.
    The other arguments are those of `compare`; for runs with several models, `model` names the model of the first run,
    and `new_model` that of the others.
    """
    from pramana.app.references import ModelUnclear, resolve_several_sides
    from pramana.library.comparison import make_comparison_table

    if not runs:
        raise InvalidInput("pass the runs to compare, or one run with several models")
    with ExitStack() as stack:
        opened = [_open_reference(each, stack) for each in runs]
        name = against if against is None or isinstance(against, str) else _open_reference(against, stack).identity
        try:
            several = resolve_several_sides(
                opened, model, new_model, name, lambda reference: _open_reference(reference, stack)
            )
        except ModelUnclear as error:
            raise InvalidInput(f"{error.message}; name one: model={error.models['model']!r}") from None
        return make_comparison_table(several, any_suite=any_suite, any_judge=any_judge, margin=margin)


def _open_reference(given: StoredRun | Path, stack: ExitStack) -> SideReference:
    from pramana.app.references import make_file_reference, make_run_reference

    if isinstance(given, str | Path) and str(given).endswith(".json"):
        return make_file_reference(Path(given))
    store = stack.enter_context(closing(open_store(find_database_url(given))))
    return make_run_reference(store, format_run_reference(str(given) if isinstance(given, Path) else given))
