"""RejudgingPlan: judged replies in; the verdicts of the same judges out, when asked again and with rearranged prompts.

Each drawn reply is judged once more with the same prompt, and once with the two answers in the other order; on request,
once with the criterion after the reply. Verdicts that are stored already are not asked for again. Replies are never
taken from the cache. What is current in the run stays as it is. The command line and Python wait for the judges; a
server asks them in the background.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from pramana import settings
from pramana.analyse.judgements import JUDGE, RUBRIC
from pramana.analyse.labelling import JudgedReply, draw_replies, list_verdicts, make_task_name, name_criteria
from pramana.analyse.pairing import SCORED
from pramana.app import App, User, use_case
from pramana.app.position_bias import FIRST_DRAW, read_first_draw
from pramana.app.providers import make_server_reach
from pramana.app.rejudging_jobs import RejudgingEnd, RejudgingJobView
from pramana.app.views import View
from pramana.bench import Progress, ProgressCallback
from pramana.errors import AlreadyRunning, InvalidInput, StateConflict
from pramana.model import Check, Outcome, Plan, PromptOrder, Result, Run, Target
from pramana.plan_scoring import make_judges, refuse_unknown_prices
from pramana.planning import resolve_model, with_registered_providers
from pramana.providers.prices import Prices
from pramana.request import Limits, check_struct_values
from pramana.run.accounts import ProviderAccess, RunClients
from pramana.run.asking import Budget
from pramana.run.engine import Stop, WorkerPool, WorkFeed, identity, stream_results
from pramana.score.judge import list_judge_versions
from pramana.score.panel import PANEL_SEPARATOR
from pramana.score.scoring import ReplyChecker
from pramana.score.similarity import SimilarityScorer
from pramana.store.engine import split_into_chunks
from pramana.store.queue import format_holder, make_process_name
from pramana.store.rejudgements import Rejudgement
from pramana.store.store import Store

MAX_DRAWN_REPLIES = 10_000
STOPPED_BY_USER_REASON = "stopped by a user"
NOTHING_TO_REJUDGE = (
    "no reply of this run was judged by a model with the prompts of this version of Pramana; judge the replies first: "
    "pramana rescore"
)


class RejudgeRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which judged replies are judged again, and how."""

    count: Annotated[int, Meta(ge=1, le=MAX_DRAWN_REPLIES, description="How many replies are drawn")] = 100
    criterion_last: Annotated[
        bool, Meta(description="Whether to judge once more with the criterion after the reply")
    ] = False
    again: Annotated[
        bool, Meta(description="Whether to ask again where the judge's answer had no readable verdict")
    ] = False

    @property
    def orders(self) -> tuple[PromptOrder, ...]:
        """The orders of the prompt."""
        return ("usual", "answers-swapped", "criterion-last") if self.criterion_last else ("usual", "answers-swapped")


class _Question(Struct, frozen=True):
    """One question that a judge, or a panel, is asked again."""

    reply: JudgedReply
    earlier: Check
    order: PromptOrder
    first_draw: Mapping[str, Any]
    """The first draw of replies of these judges, and whether the reply belongs to it."""

    @property
    def key(self) -> tuple[int, str, str, str, PromptOrder]:
        """What tells its verdict apart from others of the run."""
        judges = PANEL_SEPARATOR.join(self.judges)
        return self.reply.seq, self.reply.criterion, judges, self.earlier.version, self.order

    @property
    def judges(self) -> tuple[str, ...]:
        """The names of its judges, as typed."""
        return _list_judges(self.earlier)


class RejudgingPlan(Struct, frozen=True):
    """The questions to ask again about the replies of a run."""

    questions: tuple[_Question, ...]
    """Those without a stored verdict."""
    drawn_count: int
    judged_count: int
    stored_count: int
    """Answers about the drawn replies that are stored already."""
    unreadable_count: int = 0
    """Of these, the answers without a readable verdict."""
    is_again: bool = False
    """Whether unreadable answers are asked for again."""

    @property
    def judges(self) -> tuple[str, ...]:
        """The judges of the questions, as typed."""
        return tuple(dict.fromkeys(name for each in self.questions for name in each.judges))

    @property
    def call_count(self) -> int:
        """The number of calls; an unreadable answer takes another one."""
        return sum(len(each.judges) for each in self.questions)

    @property
    def estimated_cost_usd(self) -> float | None:
        """What the calls would cost if each costs as much as the earlier ones, cached ones aside; None if unknown."""
        evidence = {each.reply.task: each.earlier.evidence for each in self.questions}
        costs = [each.get("cost_usd") for each in evidence.values() if each.get("tokens") != 0]
        known = [each for each in costs if isinstance(each, int | float)]
        if not self.questions:
            return 0.0
        return sum(known) / len(known) * len(self.questions) if known and len(known) == len(costs) else None


class RejudgingView(View, frozen=True, kw_only=True):
    """What it takes to judge replies again, and how many verdicts are stored."""

    run_id: str
    judges: tuple[str, ...]
    judged: Annotated[int, Meta(description="Verdicts of judges that may be drawn")]
    drawn: int
    stored: Annotated[int, Meta(description="Answers that are stored already and are not asked for again")]
    unreadable: Annotated[int, Meta(description="Of these, the answers without a readable verdict")]
    calls: int
    estimated_cost_usd: Annotated[float | None, Meta(description="Null if it is not known")]
    job: Annotated[
        RejudgingJobView | None,
        Meta(description="The newest job of the server that asks the judges of this run again; null if there was none"),
    ] = None


def rejudging_view(run: Run, rejudging: RejudgingPlan, job: RejudgingJobView | None = None) -> RejudgingView:
    """Return what it takes to judge replies again."""
    return RejudgingView(
        run_id=run.id,
        judges=rejudging.judges,
        judged=rejudging.judged_count,
        drawn=rejudging.drawn_count,
        stored=rejudging.stored_count,
        unreadable=rejudging.unreadable_count,
        calls=rejudging.call_count,
        estimated_cost_usd=rejudging.estimated_cost_usd,
        job=job,
    )


def plan_rejudging(store: Store, run: Run, request: RejudgeRequest) -> RejudgingPlan:
    """Draw the replies to judge again, as labelling draws them, and leave out what is stored; send nothing."""
    check_struct_values(request)
    if run.status in ("queued", "running"):
        raise StateConflict(f"run {run.id} is {run.status}; judge its replies again once it has ended")
    judged = dict(_iterate_verdicts(store, run))
    if not judged:
        raise InvalidInput(NOTHING_TO_REJUDGE)
    replies = [reply for reply, _ in judged.values()]
    drawn = draw_replies(replies, request.count, run.id)
    stored = _list_current_rejudgements(store, run)
    first_draws = _find_first_draws(stored, request.count)
    sizes = {request.count, *first_draws.values()}
    members = {count: {each.task for each in draw_replies(replies, count, run.id)} for count in sizes}
    of_judge = Counter((count, judged[task][0].source) for count in members for task in members[count])
    questions = []
    for each in drawn:
        earlier = judged[each.task][1]
        count = first_draws[PANEL_SEPARATOR.join(_list_judges(earlier)), earlier.version]
        first_draw = {
            "count": count, "of_judge": of_judge[count, each.source], "member": each.task in members[count],
        }  # fmt: skip
        questions += [_Question(each, earlier, order, first_draw) for order in request.orders]
    known = _list_stored_keys(stored, again=request.again)
    missing = tuple(each for each in questions if each.key not in known)
    wanted = {each.key for each in questions} & known
    unreadable = sum(each.key in wanted and each.check.outcome not in SCORED for each in stored)
    return RejudgingPlan(missing, len(drawn), len(judged), len(questions) - len(missing), unreadable, request.again)


def _list_current_rejudgements(store: Store, run: Run) -> list[Rejudgement]:
    """Return the rejudgements that were made with the prompts of this version."""
    made = store.rejudgements.list_of_run(run)
    return [each for each in made if each.check.version in list_judge_versions(each.prompt_order)]


def _list_stored_keys(stored: Iterable[Rejudgement], *, again: bool) -> set[tuple[int, str, str, str, PromptOrder]]:
    """Return what need not be asked; with `again`, unreadable answers are asked for again."""
    return {each.key for each in stored if not again or each.check.outcome in SCORED}


def _find_first_draws(stored: Iterable[Rejudgement], count: int) -> Mapping[tuple[str, str], int]:
    """Return the size of the first draw by judge and version: the one under way, if none is stored.

    Versions of Pramana before the first draw was stored drew in one size or another: 0, all they drew is tested.
    """
    found = defaultdict[tuple[str, str], int](lambda: count)
    for each in stored:
        found[each.judge, each.earlier_version] = int(read_first_draw(each).get("count", 0))
    return found


def _iterate_verdicts(store: Store, run: Run) -> Iterator[tuple[str, tuple[JudgedReply, Check]]]:
    """Yield the verdicts that judges gave with the usual prompts of this version, by task."""
    versions = list_judge_versions("usual")
    for each in store.labels.iterate_checks(run):
        checks = dict(name_criteria(each.checks))
        for reply in list_verdicts(each.seq, each.case_digest, each.model, each.checks):
            check = checks[reply.criterion]
            if check.name in (JUDGE, RUBRIC) and check.version in versions:
                yield make_task_name(reply.seq, reply.criterion), (reply, check)


def _list_judges(check: Check) -> tuple[str, ...]:
    """Return the judge of a check, or the judges of its panel, as typed."""
    panel = check.evidence.get("panel")
    if isinstance(panel, list | tuple):
        return tuple(str(each["judge"]) for each in panel)
    return (str(check.evidence["judge"]),)


# ── Asking again ──


async def rejudge(
    store: Store,
    run: Run,
    rejudging: RejudgingPlan,
    limits: Limits,
    *,
    on_progress: ProgressCallback | None = None,
    stop: Stop | None = None,
    reach: ProviderAccess | None = None,
) -> RejudgingEnd:
    """Ask the judges again and store each verdict; return which questions got none.

    An answer without a readable verdict is stored, because it has been paid for. Raises only the error that ended it.
    """
    stop = Stop() if stop is None else stop
    unstored: list[Rejudgement] = []
    reasons, unreadable_count = Counter[str](), 0

    async with (
        _open_judges(store, run, rejudging, limits, stop, reach) as opened,
        _hold_run(store, run, stop),
    ):
        accounts, targets, budget = opened
        # Another process may have asked some of the questions since they were planned.
        known = _list_stored_keys(_list_current_rejudgements(store, run), again=rejudging.is_again)
        questions = [each for each in rejudging.questions if each.key not in known]
        if limits.deadline_s:
            reason = f"the time limit of {limits.deadline_s:g} s was reached"
            asyncio.get_running_loop().call_later(limits.deadline_s, stop, reason)

        async def ask(question: _Question) -> Result:
            nonlocal unreadable_count
            case, result = await asyncio.to_thread(store.results.read, run, question.reply.seq)
            judges = make_judges([targets[name] for name in question.judges], accounts, question.order)
            checker = ReplyChecker(judges[0], SimilarityScorer(), other_judges=judges[1:])
            line, position = _find_line_and_position(question)
            assert result.reply is not None  # noqa: S101 - it was judged
            check = await checker.judge_part(case, result.reply, question.earlier.name, line, position)
            if check.evidence.get("answers"):
                unstored.append(_make_rejudgement(question, check))
                unreadable_count += check.outcome not in SCORED
            else:
                reasons[check.reason] += 1
            return replace(result, checks=(check,))

        progress = Progress(run, 0, budget=budget, get_rate_limit_wait_s=accounts.remaining_rate_limit_wait_s)
        pool = WorkerPool(WorkFeed(split_into_chunks(questions)), limits.concurrency, ask, identity)
        try:
            async for judged in stream_results([pool], stop):
                if some := _empty_and_return(unstored):
                    await asyncio.to_thread(store.rejudgements.add, run, some)
                progress.new_results, progress.stored_count = judged, progress.stored_count + len(judged)
                if on_progress:
                    on_progress(progress)
        finally:  # also after an interrupt: these answers have been paid for
            if some := _empty_and_return(unstored):
                store.rejudgements.add(run, some)
    if stop.error:
        raise stop.error
    return RejudgingEnd(tuple(reasons.most_common()), unreadable_count)


@asynccontextmanager
async def _hold_run(store: Store, run: Run, stop: Stop) -> AsyncIterator[None]:
    """Hold a run that has ended, so that no other process asks, and pays for, the same questions meanwhile."""
    if not store.queue.claim_ended(run.id, make_process_name()):
        holder = store.queue.find_holder(run.id) or "another process"
        who = "this program" if holder == make_process_name() else format_holder(holder)
        raise AlreadyRunning(
            f"{who} is asking the judges of run {run.id} already, or runs it; wait until that has ended, and run the "
            "command again"
        )
    async with store.queue.lease(run.id, lambda lost: stop(str(lost), lost), is_claimed=True):
        yield


class _OpenJudges(NamedTuple):
    """The judges that are asked again, by name, and what they have cost."""

    accounts: RunClients
    targets: Mapping[str, Target]
    budget: Budget


@asynccontextmanager
async def _open_judges(
    store: Store, run: Run, rejudging: RejudgingPlan, limits: Limits, stop: Stop, reach: ProviderAccess | None
) -> AsyncIterator[_OpenJudges]:
    """Open the judges; refuse one that cannot be reached from here, or whose key or price is missing."""
    reach = with_registered_providers(store, reach or ProviderAccess())
    targets = {name: _find_target(run.plan, name, reach) for name in rejudging.judges}
    prices = Prices.load(settings.prices_file_path(), store.prices.read_rates())
    asked = replace(
        run.plan, targets=tuple(targets.values()), judge=None, other_judges=(), embedder=None, stt=None, scorers=()
    )
    refuse_unknown_prices(asked, prices, limits, reach)
    budget = Budget(max_cost_usd=limits.max_cost_usd, max_total_tokens=limits.max_total_tokens)
    async with RunClients(limits, budget, prices.cost, stop, reach, is_judging_stopped=True) as accounts:
        for each in targets.values():
            accounts.get_text_client(each)
        yield _OpenJudges(accounts, targets, budget)


def _empty_and_return(made: list[Rejudgement]) -> list[Rejudgement]:
    """Empty a list and return what it held."""
    taken, made[:] = made[:], ()
    return taken


def _find_target(plan: Plan, name: str, reach: ProviderAccess) -> Target:
    """Return a judge of a run by its name; raise an error if it exists only in another program."""
    known = (each for each in (*plan.judges, *plan.targets) if each.typed == name)
    target = next(known, None) or resolve_model(name, reach)
    if reach.explain_unavailable_judge(target):
        raise InvalidInput(
            f"{name} cannot be asked again from here: it exists only in the program that started the run; pass the "
            "function in Python, report.measure_position_bias(judge=FUNCTION), or put it in a module"
        )
    return target


def _find_line_and_position(question: _Question) -> tuple[int | None, int]:
    """Return the line of the script that was judged, None for the whole reply, and which criterion of several."""
    line: Any = question.earlier.evidence.get("line")
    _, _, number = question.reply.criterion.partition("#")
    return (line if isinstance(line, int) else None), int(number or 1) - 1


def _make_rejudgement(question: _Question, check: Check) -> Rejudgement:
    reply = question.reply
    return Rejudgement(
        reply.seq,
        reply.criterion,
        PANEL_SEPARATOR.join(question.judges),
        question.order,
        question.earlier.version,
        question.earlier.outcome is Outcome.PASSED,
        replace(check, evidence={**check.evidence, FIRST_DRAW: question.first_draw}),
    )


# ── Use cases of a server ──


@use_case("viewer", "heavy")
def read_rejudging(app: App, _: User, reference: str, request: RejudgeRequest) -> RejudgingView:
    """Return what it takes to judge replies of a run again, and the progress of the server's job; nothing is sent."""
    run = app.store.runs.find_as_of_scoring(reference)
    job = app.rejudging_jobs.status(run.id)  # read first: what a job that ends meanwhile has stored is then counted
    return rejudging_view(run, plan_rejudging(app.store, run, request), job)


@use_case("viewer", "event_loop")
def read_rejudging_job(app: App, _: User, run_id: str) -> RejudgingJobView | None:
    """Return the newest job of this server that asks the judges of a run again; None if there was none."""
    return app.rejudging_jobs.status(run_id)


@use_case("editor", "heavy")
def start_rejudging(app: App, _: User, run_id: str, request: RejudgeRequest, limits: Limits) -> RejudgingView:
    """Have this server judge replies again, within these limits; return what it takes and the job."""
    run = app.store.runs.read(run_id)
    if app.api_only:
        raise StateConflict(
            "this process sends nothing to models (--api-only); start it on the machine that executes the runs: "
            f"pramana judge swap {run.id}"
        )
    rejudging = plan_rejudging(app.store, run, request)
    if rejudging.questions:
        reach = make_server_reach(app)
        asyncio.run(_check_judges(app.store, run, rejudging, limits, reach))

        async def work(on_progress: ProgressCallback, stop: Stop) -> RejudgingEnd:
            return await rejudge(app.store, run, rejudging, limits, on_progress=on_progress, stop=stop, reach=reach)

        app.rejudging_jobs.start(run.id, len(rejudging.questions), work)
    return rejudging_view(run, rejudging, app.rejudging_jobs.status(run.id))


async def _check_judges(
    store: Store, run: Run, rejudging: RejudgingPlan, limits: Limits, reach: ProviderAccess
) -> None:
    async with _open_judges(store, run, rejudging, limits, Stop(), reach):
        pass


@use_case("editor", "heavy")
def stop_rejudging(app: App, _: User, run_id: str) -> RejudgingView:
    """Stop asking the judges of a run again; the verdicts so far are kept."""
    run = app.store.runs.read(run_id)
    app.rejudging_jobs.stop(run.id, STOPPED_BY_USER_REASON)
    return rejudging_view(run, plan_rejudging(app.store, run, RejudgeRequest()), app.rejudging_jobs.status(run.id))
