"""The file that joins the stages: read `execute()` from top to bottom to follow a run.

`planning.create_run()` loads cases and stores the plan. `execute()` sends, scores and stores what the plan still lacks,
for new and resumed runs alike. `add_scoring_to_run()` makes new checks of stored replies. What scores them is made in
`plan_scoring`. Nothing here prints.
"""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from pramana import settings
from pramana.border_search import stream_search
from pramana.errors import AlreadyRunning, BudgetSpent, InvalidInput, PramanaError, ProviderError, Stopped
from pramana.hash import ResultDigester, hash_result
from pramana.model import (
    Case,
    Check,
    Failure,
    Outcome,
    Plan,
    Reply,
    Request,
    Result,
    ResultKey,
    Run,
    RunStatus,
    Target,
    Turn,
)
from pramana.plan_scoring import (
    check_judge_usable,
    make_call_scorer,
    make_reply_checker,
    make_scoring_label,
    make_similarity,
    open_scorers,
    refuse_unknown_prices,
)
from pramana.planning import plan_scorers, resolve_embedder_model, resolve_judges, with_registered_providers
from pramana.providers.names import is_voice_agent
from pramana.providers.prices import Prices
from pramana.request import Limits
from pramana.run.accounts import ProviderAccess, RunClients
from pramana.run.asking import Budget, ReplyCache, TargetClient, ask_lines_in_turn
from pramana.run.call import Patience, Stage
from pramana.run.calling import VoiceClient
from pramana.run.engine import (
    INTERRUPTED_BY_USER_REASON,
    ResultBackpressure,
    Stop,
    WorkerPool,
    WorkFeed,
    identity,
    stream_results,
)
from pramana.run.speech import CannotBeSpoken, SpeechMaker
from pramana.sameness import TEST_COMPLETE_REASON, stream_pairs
from pramana.score.scorers import ScorerRunner
from pramana.score.scoring import ReplyChecker
from pramana.store.engine import split_into_chunks
from pramana.store.queue import CANCELLED_REASON, Lease
from pramana.store.store import Store

STREAM_CLOSED_REASON = "the stream was closed before its last result was taken"
HANDED_OVER_REASON = "its server was stopped; the next server resumes it"
SCHEDULER_STOPPED_REASON = "the scheduler was stopped; the next one continues this day"
_STATUS_BY_REASON: Mapping[str | None, RunStatus] = {
    INTERRUPTED_BY_USER_REASON: "interrupted",
    SCHEDULER_STOPPED_REASON: "interrupted",
    STREAM_CLOSED_REASON: "interrupted",
    CANCELLED_REASON: "cancelled",
    HANDED_OVER_REASON: "queued",
    TEST_COMPLETE_REASON: "finished",
}
VERDICT_OUTCOMES = (Outcome.PASSED, Outcome.FAILED)
PROGRESS_INTERVAL_S = 1.0


@dataclass(slots=True)
class Progress:
    """The progress of a run; only stored results count."""

    run: Run
    stored_count: int
    new_results: Sequence[Result] = ()
    """Results stored since the last call."""
    budget: Budget = field(default_factory=Budget)
    get_rate_limit_wait_s: Callable[[], float] = lambda: 0.0
    """Returns the seconds left until a provider's rate limit ends."""
    count_calls: Callable[[], Mapping[Stage, int]] = dict
    """Returns the number of calls at each stage."""


ProgressCallback = Callable[[Progress], None]
"""Called after each commit, when a call enters another stage, and once a second, so that a stalled run is visible."""


# ── Execute ──


async def execute(
    store: Store,
    run: Run,
    limits: Limits,
    on_progress: ProgressCallback | None = None,
    stop: Stop | None = None,
    *,
    reach: ProviderAccess | None = None,
    cache: ReplyCache | None = None,
    call_patience: Patience | None = None,
    is_claimed: bool = False,
    limits_to_store: Limits | None = None,
    backpressure: ResultBackpressure | None = None,
) -> Run:
    """Send, score and store what the run still lacks; return the run as it is afterwards.

    `is_claimed` means that this process has already claimed the run. The run keeps its limits for the next time it is
    resumed, or `limits_to_store` where this program allows less for now. `backpressure` bounds how far the run gets
    ahead of the consumer of its results.
    """
    stop = Stop() if stop is None else stop
    if store.runs.read(run.id).status == "finished":
        return store.runs.read(run.id)
    reach = with_registered_providers(store, reach or ProviderAccess())
    if (
        run.owner == "server" and not reach.is_for_other_users
    ):  # a run of other users stays restricted, wherever it is resumed
        reach = replaced(
            reach, is_for_other_users=True, allow_private_addresses=settings.are_private_addresses_allowed()
        )
    hold = store.queue.lease(
        run.id, lambda lost: stop(str(lost), lost), lambda: stop(CANCELLED_REASON), is_claimed=is_claimed
    )
    async with hold as lease, AsyncExitStack() as stack:
        try:
            store.queue.store_limits(run.id, (limits_to_store or limits).to_stored())
            prices = Prices.load(settings.prices_file_path(), store.prices.read_rates())
            refuse_unknown_prices(run.plan, prices, limits, reach)
            budget = _remaining_budget(store, run, limits)
            opened = RunClients(limits, budget, prices.cost, stop, reach, cache, call_patience)
            accounts = await stack.enter_async_context(opened)
            scorers = open_scorers(run.plan, accounts, prices, limits, reach)
            stack.callback(scorers.close)
            if run.plan.pairing or run.plan.search:
                stream = (stream_pairs if run.plan.pairing else stream_search)(store, run, accounts, stop)
            else:
                stream = stream_results(_make_pools(store, run, accounts, stop, reach, scorers), stop, backpressure)
        except PramanaError as error:
            # No request was sent: delete a run that cannot start, unless a client of the server waits for it.
            if run.owner == "cli" and store.runs.read(run.id).attempts == 1:
                store.runs.delete(run.id)
            else:
                store.queue.finish(run.id, lease.owner, "stopped", str(error))
            raise
        try:
            progress = Progress(
                run,
                run.stored,
                budget=budget,
                get_rate_limit_wait_s=accounts.remaining_rate_limit_wait_s,
                count_calls=accounts.stages.counts,
            )
            if on_progress:
                accounts.stages.on_change = partial(_show_progress, progress, on_progress)
            await stack.enter_async_context(_run_timers(limits, progress, on_progress, stop))
            on_stored = _make_stored_callback(progress, on_progress)
            async with store.results.make_writer(run.id, on_stored, lease.owner) as writer:
                async for results in stream:
                    await writer.put(results)
        except AlreadyRunning as lost:  # detected on storing results, before the heartbeat reported it
            lease.is_lost = True
            stop(str(lost), lost)
        except BaseException as error:
            interrupted = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
            stop(INTERRUPTED_BY_USER_REASON if interrupted else f"{type(error).__name__}: {error}")
            with suppress(PramanaError):  # raise the first error, not this one
                _record_end(store, run, prices, accounts, stop, lease, limits)
            raise
        _record_end(store, run, prices, accounts, stop, lease, limits)
    return store.runs.read(run.id)


def run_sync(
    store: Store,
    run: Run,
    limits: Limits,
    on_progress: ProgressCallback | None = None,
    stop: Stop | None = None,
    *,
    reach: ProviderAccess | None = None,
    cache: ReplyCache | None = None,
    call_patience: Patience | None = None,
) -> Run:
    """Execute a run from synchronous code."""
    return asyncio.run(
        execute(store, run, limits, on_progress, stop, reach=reach, cache=cache, call_patience=call_patience)
    )


RARE_GC_THRESHOLDS = (50_000, 20, 50)
"""The garbage collector's thresholds during a run."""
_previous_gc_thresholds: list[tuple[int, int, int]] = []
_gc_thresholds_lock = threading.Lock()


@contextmanager
def reduced_garbage_collection() -> Iterator[None]:
    """Collect reference cycles rarely during a run: it makes few, and looking for them takes a sixth of its time.

    The setting is process-wide: of several concurrent runs the first changes it and the last restores it.
    """
    with _gc_thresholds_lock:
        usual = _previous_gc_thresholds[-1] if _previous_gc_thresholds else gc.get_threshold()
        _previous_gc_thresholds.append(usual)
        if usual[0]:  # 0: the user's program has switched the collector off
            gc.set_threshold(*RARE_GC_THRESHOLDS)
    try:
        yield
    finally:
        with _gc_thresholds_lock:
            usual = _previous_gc_thresholds.pop()
            if not _previous_gc_thresholds and gc.get_threshold() == RARE_GC_THRESHOLDS:
                gc.set_threshold(*usual)


class _AnsweredCase(Struct, frozen=True):
    """A case after its request, before it becomes a result."""

    key: ResultKey
    case: Case
    reply: Reply | None
    failure: Failure | None = None
    checks: tuple[Check, ...] | None = None
    """None: not made yet, because they take no waiting."""


def _make_pools(
    store: Store, run: Run, clients: RunClients, stop: Stop, reach: ProviderAccess, scorers: ScorerRunner
) -> list[WorkerPool[tuple[ResultKey, Case], _AnsweredCase]]:
    similarity = make_similarity(run.plan, clients)
    speaker = SpeechMaker(store.blobs.put, partial(_fetch_recording, reach), run.plan.voice)
    check_judge_usable(run.plan, clients)
    for target in run.plan.targets:
        clients.refuse_missing_parameters(target, run.plan.parameters)
    calls = make_call_scorer(store, run.plan, clients)
    return [
        _make_pool(
            store,
            run,
            target,
            clients,
            make_reply_checker(run.plan, target, clients, similarity, calls, scorers),
            speaker,
            stop,
        )
        for target in run.plan.targets
    ]


def _make_pool(
    store: Store,
    run: Run,
    target: Target,
    clients: RunClients,
    scoring: ReplyChecker,
    speaker: SpeechMaker,
    stop: Stop,
) -> WorkerPool[tuple[ResultKey, Case], _AnsweredCase]:
    plan = run.plan
    system = (Turn("system", plan.system_prompt),) if plan.system_prompt else ()
    digest = ResultDigester(
        model=target.typed,
        parameters=plan.parameters,
        suite_hash=plan.suite_hash or "",
        system_prompt=plan.system_prompt,
    )
    written = None if is_voice_agent(target) else clients.get_text_client(target)
    aloud = None if plan.variants == ("text",) else clients.get_voice_client(target, store.blobs.put, plan.stt)

    async def make_spoken_request(key: ResultKey, case: Case) -> Request:
        """Return a request with the case's speech; raise `CannotBeSpoken` where the case cannot be spoken."""
        if key.variant == "text":
            raise CannotBeSpoken(f"{target.provider} is a voice agent and takes no text")
        language = case.facets.language or "en"
        if not clients.agent_understands_language(target, language):
            raise CannotBeSpoken(f"the agent does not understand {language}")
        speech = await speaker.make_speech(case, key.variant)
        return Request(target.model, system + case.turns[:-1], plan.parameters, "case", key.repeat, speech)

    async def ask(work: tuple[ResultKey, Case]) -> _AnsweredCase:
        key, case = work
        asking: TargetClient | VoiceClient | None
        try:
            if written and key.variant == "text":
                asking, asked = written, Request(target.model, system + case.turns, plan.parameters, "case", key.repeat)
            else:
                asking, asked = aloud, await make_spoken_request(key, case)
        except CannotBeSpoken as refused:
            return _AnsweredCase(key, case, None, None, (Check("voice", "1", Outcome.SKIPPED, str(refused)),))
        except PramanaError as error:  # a recording that is missing or unusable
            return _AnsweredCase(key, case, None, Failure(error.code, str(error)), ())
        assert asking is not None  # noqa: S101 - a client missing here was refused above
        in_one = asked.speech is not None or len(case.script) < 2
        try:
            reply = await (asking(asked) if in_one else ask_lines_in_turn(asking, asked, case.script))
        except ProviderError as error:
            if error.fatal:
                raise
            return _AnsweredCase(key, case, None, Failure(error.code, str(error)), ())
        if scoring.can_decide_now(case, reply):
            return _AnsweredCase(key, case, reply)
        try:
            with clients.stages.track_call("scoring") if reply.call else nullcontext():
                checks = await scoring.make_checks(case, reply)
        except PramanaError as error:  # the run ends here, but keeps a reply that was paid for
            if not isinstance(error, Stopped):
                stop(str(error), error)
            checks = scoring.make_unjudged_checks(case, reply, error)
        return _AnsweredCase(key, case, reply, None, checks)

    def finish(asked: _AnsweredCase) -> Result:
        key, case, reply = asked.key, asked.case, asked.reply
        if reply is None:
            return Result(key, case.id, None, asked.failure, asked.checks or (), None, None)
        checks = scoring.make_checks_now(case, reply) if asked.checks is None else asked.checks
        hashed = hash_result(target.model, case.id, reply.text)
        heard = reply.call.caller if reply.call else ()
        return Result(key, case.id, reply, None, checks, hashed, digest(key.case, reply.text, heard))

    # A model that takes neither text nor speech has every case skipped, with the reason.
    ceiling = max((asking.limiter.ceiling for asking in (written, aloud and aloud.client) if asking), default=1)
    return WorkerPool(WorkFeed(store.cases.iterate_pending_chunks(run.id, target.typed)), ceiling, ask, finish)


async def _fetch_recording(reach: ProviderAccess, url: str, case: Case) -> bytes:
    """Return the file of a recorded prompt."""
    from pramana.providers.voice.recordings import (
        read_prompt_audio,
    )  # imports the network libraries, which not every run needs

    return await read_prompt_audio(
        url,
        scenario_file=Path(case.source.file) if case.source else None,
        audio_folder=settings.data_folder() / "audio",
        from_api=reach.is_for_other_users,
        allow_private=reach.allow_private_addresses
        if reach.is_for_other_users
        else settings.are_private_addresses_allowed(),
    )


def _make_stored_callback(
    progress: Progress, on_progress: ProgressCallback | None
) -> Callable[[list[tuple[int, Result]]], None]:
    def on_stored(batch: list[tuple[int, Result]]) -> None:
        progress.new_results, progress.stored_count = (
            [result for _, result in batch],
            progress.stored_count + len(batch),
        )
        if on_progress:
            on_progress(progress)

    return on_stored


def _show_progress(progress: Progress, on_progress: ProgressCallback) -> None:
    """Report progress when there are no new results."""
    progress.new_results = ()
    on_progress(progress)


@asynccontextmanager
async def _run_timers(
    limits: Limits, progress: Progress, on_progress: ProgressCallback | None, stop: Stop
) -> AsyncIterator[None]:
    """Report progress every second, and stop the run when its time limit is reached."""

    async def tick(show: ProgressCallback) -> None:
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            _show_progress(progress, show)

    async def deadline(seconds: float) -> None:
        await asyncio.sleep(seconds)
        stop(_format_deadline_reason(seconds))

    tasks = [asyncio.create_task(tick(on_progress))] if on_progress else []
    tasks += [asyncio.create_task(deadline(limits.deadline_s))] if limits.deadline_s else []
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _format_deadline_reason(seconds: float) -> str:
    return f"the time limit of {seconds:g} s is reached"


def _find_reached_limit_field(stop: Stop, limits: Limits) -> str | None:
    """Return the limit that ended a run, as a field of `Limits`."""
    if isinstance(stop.error, BudgetSpent):
        return stop.error.limit
    is_deadline = limits.deadline_s is not None and stop.reason == _format_deadline_reason(limits.deadline_s)
    return "deadline_s" if is_deadline else None


def _remaining_budget(store: Store, run: Run, limits: Limits) -> Budget:
    """Return the budget minus what the run has already spent: a limit covers all sittings of a run."""
    spent = asdict(store.results.sum_spending(run.id)) if run.stored else {}
    return Budget(max_cost_usd=limits.max_cost_usd, max_total_tokens=limits.max_total_tokens, **spent)


def _record_end(
    store: Store, run: Run, prices: Prices, clients: RunClients, stop: Stop, lease: Lease, limits: Limits
) -> None:
    """Record how this sitting ended; the notes of earlier sittings stay."""
    if lease.is_lost:
        return  # the process that took the lease records the end
    now = store.runs.read(run.id)
    complete = now.stored >= now.expected or (run.plan.search is not None and not stop)
    if not complete:
        stop(f"{now.expected - now.stored:,} results are missing for an unknown reason")
    known = now.notes
    left_out: dict[str, list[str]] = dict(known.get("left_out", {}))
    for name, parameters in clients.omitted_parameters().items():
        left_out[name] = sorted({*left_out.get(name, ()), *parameters})
    status: RunStatus = "finished"
    if stop and not (complete and stop.reason in (CANCELLED_REASON, HANDED_OVER_REASON)):
        status = _STATUS_BY_REASON.get(stop.reason, "stopped")
    reason = stop.reason if status != "finished" else None
    this = {"prices": prices.version, **clients.make_request_statistics()}
    notes = {**this, "left_out": left_out, "sittings": [*known.get("sittings", ()), {**this, "reason": stop.reason}]}
    reached = _find_reached_limit_field(stop, limits) if reason else None
    if reached or "reached_limit" in known:
        notes["reached_limit"] = reached
    store.queue.finish(run.id, lease.owner, status, reason or None, notes)


# ── Rescore ──


async def add_scoring_to_run(
    store: Store,
    run: Run,
    judge: str | None,
    limits: Limits,
    *,
    other_judges: Sequence[str] = (),
    embedder: str | None = None,
    scorers: Sequence[str] = (),
    results_to_rescore: Iterable[tuple[Case, Result]] | None = None,
    on_progress: ProgressCallback | None = None,
    stop: Stop | None = None,
    reach: ProviderAccess | None = None,
) -> int:
    """Check every stored reply again, or those given, beside the earlier checks; return the scoring's number.

    The scorers of the run are used in their current version, with any others that are named. A reply that gets no new
    verdict, because the scoring ended early or its checks could not be made, keeps its earlier verdict. Raises only the
    error that ended the scoring.
    """
    stop = Stop() if stop is None else stop
    reach = with_registered_providers(store, reach or ProviderAccess())
    judges = resolve_judges(judge, other_judges, reach) or run.plan.judges
    plan = replace(
        _with_judges(run.plan, judges, reach),
        embedder=resolve_embedder_model(embedder, reach) if embedder else run.plan.embedder,
        scorers=plan_scorers(scorers, reach, previously_planned=run.plan.scorers),
    )
    prices = Prices.load(settings.prices_file_path(), store.prices.read_rates())
    refuse_unknown_prices(plan, prices, limits, reach)
    label = make_scoring_label(plan.judges, plan.embedder, plan.scorers)
    budget = Budget(max_cost_usd=limits.max_cost_usd, max_total_tokens=limits.max_total_tokens)
    async with RunClients(limits, budget, prices.cost, stop, reach) as clients, AsyncExitStack() as stack:
        check_judge_usable(plan, clients)
        similarity = make_similarity(plan, clients)
        calls = make_call_scorer(store, plan, clients)
        found = open_scorers(plan, clients, prices, limits, reach)
        stack.callback(found.close)
        scorings = {
            each.typed: make_reply_checker(
                plan, each, clients, similarity, calls, found, no_judge_reason=reach.explain_unavailable_judge(each)
            )
            for each in plan.targets
        }

        failed: set[ResultKey] = set()

        async def judge_one(work: tuple[Case, Result]) -> Result:
            case, result = work
            assert result.reply is not None  # noqa: S101 - only results with replies are selected
            judged = replace(result, checks=await scorings[result.key.model].make_checks(case, result.reply))
            if result.outcome in VERDICT_OUTCOMES and judged.outcome not in VERDICT_OUTCOMES:
                failed.add(result.key)
            return judged

        progress = Progress(run, 0, budget=budget, get_rate_limit_wait_s=clients.remaining_rate_limit_wait_s)
        pairs = store.results.iterate_with_cases(run.id) if results_to_rescore is None else results_to_rescore
        replies: Iterator[tuple[Case, Result]] = (pair for pair in pairs if pair[1].reply is not None)
        with store.scorings.begin_rescoring(run.id, label) as scoring:
            pool = WorkerPool(WorkFeed(split_into_chunks(replies)), limits.concurrency, judge_one, identity)
            async for judged in stream_results([pool], stop):
                for add, some in (
                    (scoring.add, [each for each in judged if each.key not in failed]),
                    (scoring.add_checks_without_verdict, [each for each in judged if each.key in failed]),
                ):
                    if some:
                        await asyncio.to_thread(add, [(each.key, each.checks) for each in some])
                failed.difference_update(each.key for each in judged)
                progress.new_results, progress.stored_count = judged, progress.stored_count + len(judged)
                if on_progress:
                    on_progress(progress)
            if stop:
                scoring.label = f"{label}, ended early: {stop.reason}"
    if stop.error:
        raise stop.error
    return scoring.number


def _with_judges(plan: Plan, judges: Sequence[Target], reach: ProviderAccess) -> Plan:
    """Return a plan with other judges; raise an error if one is a function that this process does not have."""
    for each in judges:
        if lost := reach.explain_unavailable_judge(each):
            raise InvalidInput(lost)
    return replace(plan, judge=judges[0] if judges else None, other_judges=tuple(judges[1:]))
