"""The file that joins the stages: read `evaluate()` and `execute()` from top to bottom and you know the program.

`evaluate()` loads cases and writes the plan down; `execute()` asks, scores and stores whatever the plan still lacks, so
that a new run and a resumed one are the same thing. Nothing here talks to a terminal: whoever wants to watch passes a
function that is called after results are safely stored.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pramana import load, settings
from pramana.errors import InvalidInput, ProviderError
from pramana.hash import hash_result, record_digest
from pramana.load.manifest import find_version
from pramana.load.problems import Problems
from pramana.load.selection import Selection
from pramana.load.suite import check_suite, read_cases
from pramana.model import (
    Case,
    Check,
    Failure,
    Key,
    Plan,
    Provider,
    Reply,
    Request,
    Result,
    Run,
    RunStatus,
    Target,
    Turn,
)
from pramana.providers.names import Accounts, CommandLine, open_provider, resolve
from pramana.providers.prices import Prices
from pramana.run.asking import Asking, Budget, ReplyCache
from pramana.run.engine import Feed, Pool, Stop, stream
from pramana.run.limiter import Limiter
from pramana.score.judge import Judge
from pramana.score.scoring import Scoring
from pramana.score.similarity import Similarity
from pramana.store.runs import Store

NEVER_A_JUDGE = ("local",)
"""The embedded model is a subject that fails visibly; its verdicts would look like evidence and be none."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sitting may spend; not part of the plan, so a resumed run may have others."""

    concurrency: int = 32
    """The ceiling of requests under way at one provider account."""
    max_cost_usd: float | None = None
    max_total_tokens: int | None = None
    deadline_s: float | None = None
    cache: ReplyCache | None = None
    timeout_s: float = 120.0
    """Of one request."""


@dataclass(slots=True)
class Progress:
    """How far a run is: only what is stored counts."""

    run: Run
    stored: int
    results: Sequence[Result] = ()
    """Stored since the last call."""
    budget: Budget = field(default_factory=Budget)


Watch = Callable[[Progress], None]


def evaluate(
    store: Store,
    sources: "Sources",
    models: Sequence[str],
    *,
    judge: str | None = None,
    repeats: int = 1,
    parameters: dict[str, Any] | None = None,
    system_prompt: str | None = None,
) -> Run:
    """Load, validate and write down a run; `execute()` then does it."""
    targets = tuple(resolve(model, commands=_commands()) for model in models)
    judged_by = resolve(judge, commands=_commands()) if judge else None
    if judged_by and judged_by.provider in NEVER_A_JUDGE:
        raise InvalidInput("the embedded model is a subject, never a judge; name another with --judge")
    if len({target.typed for target in targets}) < len(targets):
        raise InvalidInput("a model is named twice; ask one model several times with --repeat")
    plan = Plan(
        suite=f"{sources.name} (selection)" if sources.selection else sources.name,
        suite_hash=None if sources.selection else sources.hash,
        targets=targets,
        repeats=repeats,
        parameters={"temperature": 0, "seed": 42, **(parameters or {})},
        system_prompt=system_prompt,
        judge=judged_by,
        selection=sources.selection.recorded(),
        runner_version=version("pramana"),
    )
    run = store.create_run(plan, sources.cases())
    if not run.expected:
        store.delete_run(run.id)
        raise InvalidInput(f"no case of {sources.name} passes the filters {sources.selection.recorded()}")
    return run


@dataclass(frozen=True, slots=True)
class Sources:
    """Files or a tier, checked, and which of their cases are wanted."""

    paths: tuple[Path, ...]
    name: str
    hash: str | None
    selection: Selection = field(default_factory=Selection)

    @classmethod
    def tier(cls, suite: str, tier: str, selection: Selection) -> "Sources":
        """Take a tier of a suite version; one that differs from its pin is refused."""
        found = find_version(suite)
        path = found.path(tier)
        return cls((path,), f"{suite}-{tier}", found.manifest.tiers[tier].hash, selection)

    @classmethod
    def files(cls, paths: Sequence[Path], selection: Selection) -> "Sources":
        """Take files and folders; any problem in any of them is refused before anyone is asked."""
        found = tuple(load.find_files(paths))
        problems = Problems()
        hashes = [check_suite(path, problems).hash for path in found if load.is_suite(path)]
        scenarios = [path for path in found if not load.is_suite(path)]
        if scenarios:
            for problem in load.validate(scenarios).problems:
                problems.add(problem)
        if problems.errors:
            raise InvalidInput.of([each for each in problems if each.severity == "error"], problems.errors)
        name = "+".join(dict.fromkeys(path.stem for path in found[:5])) + ("+…" if len(found) > 5 else "")
        return cls(found, name, hashes[0] if len(found) == 1 and hashes else None, selection)

    def cases(self) -> Iterator[Case]:
        """Yield the cases that are wanted, streaming."""
        # Suites were checked when they were taken; to check them again would read each file once more.
        every: Iterable[Case] = (
            case for path in self.paths for case in (read_cases(path) if load.is_suite(path) else load.cases_of(path))
        )
        return self.selection.pick(every)


async def execute(store: Store, run: Run, limits: Limits, watch: Watch | None = None, stop: Stop | None = None) -> Run:
    """Ask, score and store what the run still lacks; return it as it then stands."""
    plan, stop = run.plan, Stop() if stop is None else stop
    prices = Prices.load(settings.prices_file())
    budget = Budget(limits.max_cost_usd, limits.max_total_tokens)
    _refuse_unknown_prices(plan, prices, limits)
    progress = Progress(run, run.stored, budget=budget)
    store.claim(run.id, f"pid {os.getpid()}")
    status: RunStatus = "finished"
    async with AsyncExitStack() as stack:
        accounts = _Accounts(stack, limits, budget, prices)
        pools = [_pool(store, run, target, accounts) for target in plan.targets]

        def stored(batch: list[tuple[int, Result]]) -> None:
            progress.results, progress.stored = [result for _, result in batch], progress.stored + len(batch)
            if watch:
                watch(progress)

        if limits.deadline_s:
            stack.push_async_callback(_cancel, asyncio.create_task(_deadline(limits.deadline_s, stop)))
        async with store.writer(run.id, stored) as writer:
            async for result in stream(pools, stop):
                await writer.put(result)
    if stop:
        status = "interrupted" if stop.error is None and stop.reason == INTERRUPTED else "stopped"
    notes = {"prices": prices.version, "limits": accounts.history(), "retries": accounts.retries()}
    store.finish(run.id, status, _reason(stop, accounts), notes)
    return store.run(run.id)


INTERRUPTED = "interrupted by the user"


async def _deadline(seconds: float, stop: Stop) -> None:
    await asyncio.sleep(seconds)
    stop(f"the run's deadline of {seconds:g} s has passed")


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _refuse_unknown_prices(plan: Plan, prices: Prices, limits: Limits) -> None:
    if limits.max_cost_usd is None:
        return
    asked = [*plan.targets, *([plan.judge] if plan.judge else [])]
    unknown = [target.typed for target in asked if not prices.known(target)]
    if unknown:
        names = ", ".join(unknown)
        where = settings.prices_file()
        raise InvalidInput(f"--max-cost needs a price, and none is known for {names}; give one in {where}")


class _Accounts:
    """Providers by account: those that share an account share its limiter."""

    def __init__(self, stack: AsyncExitStack, limits: Limits, budget: Budget, prices: Prices) -> None:
        self._stack, self._limits, self._budget, self._prices = stack, limits, budget, prices
        self._open: dict[tuple[str, str], tuple[Provider, Limiter]] = {}
        self._asking: dict[str, Asking] = {}
        self.similarity = Similarity()

    def asking(self, target: Target) -> Asking:
        """Return how a target is asked, opening its provider on first use."""
        if target.typed not in self._asking:
            account = (target.provider, str(sorted(target.arguments.items())))
            if account not in self._open:
                shared_machine = target.provider == "local" and settings.in_ci()
                opened = replace(target, arguments={**target.arguments, "threads": 1}) if shared_machine else target
                provider = open_provider(opened, Accounts(settings.variable, self._limits.timeout_s, _commands()))
                self._stack.push_async_callback(provider.close)
                ceiling = 1 if target.provider == "local" else self._limits.concurrency
                self._open[account] = (provider, Limiter(ceiling))
            provider, limiter = self._open[account]
            self._asking[target.typed] = Asking(
                target, provider, limiter, self._budget, self._prices.cost, self._limits.cache
            )
        return self._asking[target.typed]

    def history(self) -> dict[str, list[list[Any]]]:
        return {
            name: [[change.at_s, change.limit, change.cause] for change in asking.limiter.history]
            for name, asking in self._asking.items()
        }

    def retries(self) -> dict[str, int]:
        return {name: asking.retries for name, asking in self._asking.items()}

    def dropped(self) -> dict[str, set[str]]:
        return {name: set().union(*asking.dropped.values()) for name, asking in self._asking.items() if asking.dropped}


def _commands() -> dict[str, CommandLine]:
    return {
        name: CommandLine(tuple(stated["argv"]), float(stated.get("timeout_s", 120)))
        for name, stated in settings.commands().items()
    }


def _pool(store: Store, run: Run, target: Target, accounts: _Accounts) -> Pool:
    plan, asking = run.plan, accounts.asking(target)
    judge = _judge(plan, target, accounts)
    scoring = Scoring(judge, accounts.similarity)
    system = (Turn("system", plan.system_prompt),) if plan.system_prompt else ()

    async def ask_and_score(key: Key, case: Case) -> Result:
        try:
            reply = await asking(Request(target.model, system + case.turns, plan.parameters))
        except ProviderError as error:
            if error.fatal:
                raise
            return Result(key, case.id, None, Failure(error.code, str(error)), (), None, None)
        checks = await scoring.checks(case, reply)
        return _result(plan, key, case, reply, checks)

    return Pool(Feed(store.pending(run.id, target.typed)), asking.limiter.ceiling, ask_and_score)


def _judge(plan: Plan, target: Target, accounts: _Accounts) -> Judge | None:
    """Return who judges: the one that was named, else the model itself, but never the embedded one."""
    judged_by = plan.judge or target
    if judged_by.provider in NEVER_A_JUDGE:
        return None
    return Judge(accounts.asking(judged_by), judged_by.model, judged_by.typed)


def _result(plan: Plan, key: Key, case: Case, reply: Reply, checks: tuple[Check, ...]) -> Result:
    digest = record_digest(
        model=key.model,
        parameters=plan.parameters,
        suite_hash=plan.suite_hash or "",
        case=key.case,
        system_prompt=plan.system_prompt,
        output=reply.text,
    )
    return Result(key, case.id, reply, None, checks, hash_result(key.model, case.id, reply.text), digest)


def _reason(stop: Stop, accounts: _Accounts) -> str | None:
    parts = [stop.reason] if stop.reason else []
    for name, parameters in accounts.dropped().items():
        parts.append(f"not reproducible: {name} does not take {', '.join(sorted(parameters))}")
    return "; ".join(parts) or None


def run_sync(store: Store, run: Run, limits: Limits, watch: Watch | None = None, stop: Stop | None = None) -> Run:
    """Execute a run from synchronous code."""
    return asyncio.run(execute(store, run, limits, watch, stop))


async def judge_again(store: Store, run: Run, judge: str | None, limits: Limits) -> int:
    """Make new checks of every stored reply, beside the old ones; return the number of the scoring."""
    judged_by = resolve(judge) if judge else run.plan.judge
    if judged_by and judged_by.provider in NEVER_A_JUDGE:
        raise InvalidInput("the embedded model is a subject, never a judge; name another with --judge")
    plan = replace(run.plan, judge=judged_by)
    prices = Prices.load(settings.prices_file())
    _refuse_unknown_prices(plan, prices, limits)
    targets = {target.typed: target for target in plan.targets}
    async with AsyncExitStack() as stack:
        accounts = _Accounts(stack, limits, Budget(limits.max_cost_usd), prices)
        scorings: dict[str, Scoring] = {}
        room = asyncio.Semaphore(limits.concurrency)

        async def judged(case: Case, result: Result) -> tuple[Key, tuple[Check, ...]]:
            assert result.reply is not None  # noqa: S101 - asked for replies only
            typed = result.key.model
            if typed not in scorings:
                scorings[typed] = Scoring(_judge(plan, targets[typed], accounts), accounts.similarity)
            async with room:
                return result.key, await scorings[typed].checks(case, result.reply)

        gathered: list[tuple[Key, tuple[Check, ...]]] = []
        chunk: list[Awaitable[tuple[Key, tuple[Check, ...]]]] = []
        for case, result in store.pairs(run.id):
            if result.reply is not None:
                chunk.append(judged(case, result))
            if len(chunk) >= 4 * limits.concurrency:
                gathered += await asyncio.gather(*chunk)
                chunk = []
        gathered += await asyncio.gather(*chunk)
    return store.add_scoring(run.id, f"judged by {judged_by.typed if judged_by else 'itself'}", gathered)
