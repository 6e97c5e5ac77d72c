"""Use cases of a program on the user's own machine: runs in this process, and checks of local files.

A server has none of them: `App.local_program` is set by front ends that only this account's user can reach. One cost
limit covers all runs of such a program together (`SpendingLimit`).
"""

import asyncio
import importlib
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace as replaced
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from pramana import planning, settings
from pramana.app import App, User, use_case
from pramana.app.access import Forbidden
from pramana.app.runs import run_detail_view
from pramana.app.spending import CostNotAllowed, LocalProgramSettings, SpendingLimit
from pramana.app.views import RunDetailView, View
from pramana.bench import Progress, ProgressCallback, execute
from pramana.errors import Problem, Stopped
from pramana.load import ValidationReport, validate
from pramana.load.problems import Problems
from pramana.load.scenario import parse_scenarios
from pramana.load.suite import check_suite
from pramana.model import Plan, Run
from pramana.providers.prices import Prices
from pramana.request import Limits, RunRequest
from pramana.run.accounts import ProviderAccess
from pramana.run.asking import Budget, ReplyCache
from pramana.run.engine import Stop
from pramana.store.store import Store

CANCEL_GRACE_S = 1.0
"""How long requests in flight may take to finish when a run is stopped; then they are cancelled."""
_PACKAGE_FOLDERS = frozenset(("site-packages", "dist-packages"))
PLACEHOLDER_FILE_NAME = "text"
"""The file name in the problems of a text that is in no file."""


# ── Runs ──


@use_case("editor", "runs")
def start_run(app: App, _: User, request: RunRequest, on_progress: ProgressCallback, stop: Stop) -> RunDetailView:
    """Execute a run in this process and return it with its summary; blocks until the run has ended.

    `on_progress` is called in another thread. `stop` ends the run early; stored results are kept.
    """
    local = _prepare_local_program(app, stop)
    run = planning.create_run(app.store, request)
    try:
        return _run_within_spending_limit(
            app, local.spending_limit, run, request.limits, on_progress, stop, use_cache=request.cache
        )
    except CostNotAllowed:
        app.store.runs.delete(run.id)  # nothing was sent
        raise


@use_case("editor", "runs")
def continue_run(
    app: App, _: User, run_id: str, limits: Mapping[str, Any], on_progress: ProgressCallback, stop: Stop
) -> RunDetailView:
    """Resume a run of this machine in this process; otherwise like `start_run`.

    The run keeps its limits, except those in `limits`, which are fields of `Limits`; None removes one.
    """
    local = _prepare_local_program(app, stop)
    run = app.store.runs.find(run_id)
    resumed = Limits.for_resumed_run(run.limits, limits)
    return _run_within_spending_limit(app, local.spending_limit, run, resumed, on_progress, stop, use_cache=False)


def _prepare_local_program(app: App, stop: Stop) -> LocalProgramSettings:
    """Return the program that executes a run; raises if the run was stopped while it was queued."""
    local = _require_local_program(app)
    if stop:
        raise Stopped(f"the run was stopped before it began: {stop.reason}")
    if local.user_code_folder:
        unload_modules(local.user_code_folder)
    return local


def unload_modules(project: Path) -> None:
    """Remove the modules of a folder from `sys.modules`, so that the next run imports their current code."""
    project = project.resolve()
    installed = _find_python_folders(project)
    for name, module in list(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "")
        if (
            file.is_relative_to(project)
            and not any(map(file.is_relative_to, installed))
            and _PACKAGE_FOLDERS.isdisjoint(file.parts)
            and name.partition(".")[0] not in ("__main__", "pramana")
        ):
            del sys.modules[name]
    importlib.invalidate_caches()


def _find_python_folders(project: Path) -> set[Path]:
    """Return the folders of the running Python, which may lie inside a project (a home folder with pyenv or conda).

    A prefix that is the project itself, or above it, also contains the user's own code; its standard library does not.
    """
    library = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    prefixes = {Path(sys.prefix), Path(sys.base_prefix)}
    found = library | {prefix for prefix in prefixes if not project.is_relative_to(prefix.resolve())}
    return found | {each.resolve() for each in found}


def _require_local_program(app: App) -> LocalProgramSettings:
    if app.local_program is None:
        raise Forbidden("this is possible only in a program on your own machine, not through a server")
    return app.local_program


def _run_within_spending_limit(
    app: App,
    spending_limit: SpendingLimit,
    run: Run,
    limits: Limits,
    on_progress: ProgressCallback,
    stop: Stop,
    *,
    use_cache: bool,
) -> RunDetailView:
    cache = ReplyCache(settings.data_folder() / "cache") if use_cache else None
    planning.pull_missing_weights(run.plan)
    paid = find_paid_models(app.store, run.plan)
    # A scorer may call any model. It may spend only if the request has a cost limit.
    scorers_may_spend = run.plan.scorers and limits.max_cost_usd is not None and spending_limit.left_usd > 0
    if paid or scorers_may_spend:
        before = app.store.results.sum_spending(run.id).cost_usd if run.stored else 0.0
        wanted = None if limits.max_cost_usd is None else max(0.0, limits.max_cost_usd - before)
        with spending_limit.reserve(wanted, ", ".join(paid) or "model calls by scorers") as granted:
            budgets: list[Budget] = []

            def watch_progress(progress: Progress) -> None:
                budgets[:] = [progress.budget]
                on_progress(progress)

            # A run's cost limit includes the cost of its earlier sittings.
            allowed = replace(limits, max_cost_usd=before + granted.max_cost_usd)
            kept = allowed if limits.max_cost_usd is None else limits
            try:
                ended = asyncio.run(
                    _execute_until_stopped(app.store, run, allowed, watch_progress, stop, cache, limits_to_store=kept)
                )
            finally:
                granted.spent_usd = budgets[0].cost_usd - before if budgets else 0.0
    else:
        reach = ProviderAccess(free_models_only=True)
        ended = asyncio.run(_execute_until_stopped(app.store, run, limits, on_progress, stop, cache, reach))
    return run_detail_view(ended, *app.run_summaries.summarise(ended))


async def _execute_until_stopped(
    store: Store,
    run: Run,
    limits: Limits,
    on_progress: ProgressCallback,
    stop: Stop,
    cache: ReplyCache | None,
    reach: ProviderAccess | None = None,
    limits_to_store: Limits | None = None,
) -> Run:
    working = asyncio.ensure_future(
        execute(store, run, limits, on_progress, stop, reach=reach, cache=cache, limits_to_store=limits_to_store)
    )

    def end_now() -> None:
        asyncio.get_running_loop().call_later(CANCEL_GRACE_S, working.cancel)

    stop.add_callback(end_now)
    with suppress(asyncio.CancelledError):
        return await working
    return store.runs.read(run.id)  # it was stopped, and the requests in flight took too long


def find_paid_models(store: Store, plan: Plan) -> list[str]:
    """Return the models of a plan that cost money or have no known price; the user's own code counts as free."""
    prices = Prices.load(settings.prices_file_path(), store.prices.read_rates())
    asked = (*plan.targets, *plan.judges, *(each for each in (plan.embedder, plan.stt) if each))
    return list(dict.fromkeys(each.typed for each in asked if prices.may_cost(each)))


# ── Files ──


class ProblemView(View, frozen=True, kw_only=True):
    """One problem at one place. Lines and columns count from 1; 0 means the whole file."""

    file: str
    path: Annotated[str, Meta(description="Place in the document, such as [3].assertion.type")]
    line: int
    column: int
    message: str
    severity: Literal["error", "warning"]


class ValidationView(View, frozen=True, kw_only=True):
    """Whether files are valid, and all of their problems."""

    valid: Annotated[bool, Meta(description="True if there are no errors; warnings are allowed")]
    files: int
    test_cases: Annotated[int, Meta(description="Number of valid test cases")]
    scenarios: Annotated[int, Meta(description="Number of valid scenarios")]
    agents: Annotated[int, Meta(description="Number of valid descriptions of voice agents")]
    errors: int
    warnings: int
    hashes: Annotated[Mapping[str, str], Meta(description="The hash of each suite file without errors")]
    problems: tuple[ProblemView, ...]


def problem_view(problem: Problem) -> ProblemView:
    """Return a problem as a view, for JSON."""
    return ProblemView(**{name: getattr(problem, name) for name in ProblemView.__struct_fields__})


@use_case("viewer")
def validate_files(
    app: App, _: User, paths: tuple[Path, ...], *, max_errors: int, lint: bool = False
) -> ValidationView:
    """Check suites, scenarios and agent descriptions on this machine; folders are searched recursively."""
    _require_local_program(app)
    return _validation_view(validate(paths, max_errors=max_errors, lint=lint))


@use_case("viewer")
def validate_text(
    app: App, _: User, text: str, kind: Literal["suite", "scenarios"], *, max_errors: int
) -> ValidationView:
    """Check the text of a suite (JSONL) or of scenarios (YAML) that is not in a file yet."""
    app.check_request_size(text)
    report = ValidationReport(Problems(max_errors), files=1)
    if kind == "suite":
        found = check_suite(f"{PLACEHOLDER_FILE_NAME}.jsonl", report.problems, text.encode(errors="surrogatepass"))
        report.test_cases = found.valid_case_count
        report.hashes = {PLACEHOLDER_FILE_NAME: found.suite_hash} if found.suite_hash else {}
    else:
        report.scenarios = len(parse_scenarios(text, report.problems, f"{PLACEHOLDER_FILE_NAME}.yaml"))
    report.problems.kept = [replaced(each, file=PLACEHOLDER_FILE_NAME) for each in report.problems]
    return _validation_view(report)


def _validation_view(report: ValidationReport) -> ValidationView:
    problems = report.problems
    return ValidationView(
        valid=report.ok,
        files=report.files,
        test_cases=report.test_cases,
        scenarios=report.scenarios,
        agents=report.agents,
        errors=problems.errors,
        warnings=problems.warnings,
        hashes=report.hashes,
        problems=tuple(map(problem_view, problems)),
    )
