"""Are two endpoints the same model? A request in, a stored run of paired calls and its answer out.

`create_sameness_run` stores a run of two models whose calls come in pairs; `bench.execute` carries it out with
`stream_pairs`, within the run's limits. A pair sends one prompt with one seed to both endpoints, one call directly
after the other, in an order drawn by lot, so that load and time affect both alike. Up to four pairs are under way at
once. The test looks after every pair, and ends as soon as the endpoints are proven to differ, or the calls are spent.
`read_pairs` reads the pairs of any stored run of two models; nothing here prints.
"""

import asyncio
import math
import secrets
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from pramana.analyse.border_prompts import BORDER_TAG, MAX_BORDER_PROMPTS, make_border_cases, read_answer
from pramana.analyse.endpoints import Answered, CallPair, EndpointTest
from pramana.analyse.numbers import pluralise
from pramana.assertions import check_output
from pramana.border_search import find_border_prompts, make_border_check
from pramana.errors import InvalidInput, PramanaError, ProviderError, Stopped, quote_text
from pramana.hash import ResultDigester, hash_case, hash_result
from pramana.model import (
    Case,
    Check,
    Failure,
    Outcome,
    Pairing,
    Plan,
    Reply,
    Request,
    Result,
    ResultKey,
    Run,
    Target,
    Turn,
)
from pramana.planning import DEFAULT_SUITE, DEFAULT_TIER, plan_with_cases
from pramana.providers.logprobs import logprob_parameters, read_first_token_logprobs
from pramana.request import LOCAL_ONLY_MARK, Limits, Name, RunName, RunNote, RunRequest, Selection, check_struct_values
from pramana.run.accounts import ProviderAccess, RunClients
from pramana.run.asking import TargetClient, ask_lines_in_turn
from pramana.run.engine import Stop
from pramana.store.store import Store

TEST_COMPLETE_REASON = "the test of two endpoints is complete"
"""The reason of a test that has its answer, or has sent all of its calls."""
DEFAULT_SUITE_PROMPT_COUNT = 5
"""Few prompts, so that each is sent several times: a difference counts once it was seen before."""
MAX_CONCURRENT_PAIRS = 4
"""Few, because pairs under way when the test ends are paid for in vain."""
CALLS_PER_SEARCH_CALL = 4
"""The search for border prompts may use one call in so many."""
SAMENESS_SUITE_NAME_PREFIX = "border prompts+"
"""The name of a test's cases begins with it."""
MIN_CALLS = 40
MAX_CASES_READ = 10_000
_MODEL_BACKED_ASSERTIONS = ("llm_judge", "semantic_similarity")
_REPEATED_MODEL_SUFFIX = " (2)"
"""Added to the name of a model that is tested against itself: results are stored by name."""


class SamenessRequest(Struct, frozen=True, kw_only=True):
    """All options of a test whether two endpoints are the same."""

    models: Annotated[tuple[Name, ...], Meta(min_length=2, max_length=2, description="The two models to test")]
    calls: Annotated[
        int,
        Meta(ge=MIN_CALLS, le=1_000_000, title="Calls", description="Maximum number of calls, of both models together"),
    ] = 400
    prompts: Annotated[
        int, Meta(ge=0, le=100, title="Prompts", description="Maximum number of prompts that are not border prompts")
    ] = DEFAULT_SUITE_PROMPT_COUNT
    temperature: Annotated[
        float, Meta(ge=0, le=100, title="Temperature", description="Sampling temperature of border prompts")
    ] = 1.0
    paths: Annotated[tuple[Path, ...], Meta(extra=LOCAL_ONLY_MARK)] = ()
    """Suite and scenario files, or folders of them."""
    cases: Annotated[tuple[Case, ...], Meta(extra=LOCAL_ONLY_MARK)] = ()
    """Cases built in Python."""
    selection: Annotated[Selection, Meta(extra=LOCAL_ONLY_MARK)] = Selection()
    """Filters on the cases in `paths`, in `cases` or in the tier."""
    suite: Annotated[Name | None, Meta(description="Suite version, such as v1.0")] = None
    tier: Annotated[Name | None, Meta(description="Tier of the suite, such as cheap")] = None
    scenarios: Selection | None = None
    system_prompt: Annotated[str, Meta(max_length=1_000_000)] | None = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=10**9)] | None,
        Meta(title="Max output tokens", description="Max output tokens per reply to prompts of the suite"),
    ] = None
    seed: Annotated[
        Annotated[int, Meta(ge=0, le=2**31 - 1)] | None,
        Meta(title="Seed", description="Draws prompts and orders; null draws a new one"),
    ] = None
    name: Annotated[RunName | None, Meta(title="Name", description="Name of the run, shown in lists")] = None
    note: Annotated[RunNote | None, Meta(title="Note", description="Note on the run")] = None
    limits: Limits = Limits()

    def to_run_request(self) -> RunRequest:
        """Return the run of its prompts, without border prompts and without pairs."""
        has_cases = self.paths or self.cases or self.scenarios is not None
        has_tier = self.suite is not None or self.tier is not None
        return RunRequest(
            models=self.models,
            paths=self.paths,
            cases=self.cases,
            selection=self.selection,
            suite=self.suite if has_cases or has_tier else DEFAULT_SUITE,
            tier=self.tier if has_cases or has_tier else DEFAULT_TIER,
            scenarios=self.scenarios,
            system_prompt=self.system_prompt,
            max_tokens=self.max_tokens,
            name=self.name,
            note=self.note,
            limits=self.limits,
        )


# ── Plan ──


def create_sameness_run(
    store: Store, request: SamenessRequest, reach: ProviderAccess | None = None, creator: str | None = None
) -> Run:
    """Check a request and store its run; `bench.execute` executes it."""
    check_struct_values(request)
    reach, stated = reach or ProviderAccess(), request.to_run_request()
    chosen, plan = plan_with_cases(store, stated, reach, may_repeat_models=True)
    if plan.variants != ("text",):
        raise InvalidInput("only models that answer text can be tested pair by pair; name two text models")
    seed = secrets.randbits(31) if request.seed is None else request.seed
    suite_prompts = _draw_suite_prompts(chosen.cases(), request.prompts, seed)
    if request.prompts and not suite_prompts:
        raise chosen.make_no_cases_error()
    first, second = plan.targets
    search_calls = request.calls // CALLS_PER_SEARCH_CALL
    plan = replace(
        plan,
        suite=SAMENESS_SUITE_NAME_PREFIX + plan.suite,
        suite_hash=None,
        targets=(
            first,
            replace(second, typed=second.typed + _REPEATED_MODEL_SUFFIX) if second.typed == first.typed else second,
        ),
        repeats=max(1, (request.calls - search_calls) // (2 * (len(suite_prompts) + MAX_BORDER_PROMPTS))),
        pairing=Pairing(seed, request.calls, search_calls, {"temperature": request.temperature}),
    )
    is_server = reach.is_for_other_users
    return store.runs.create(
        plan,
        chain(make_border_cases(), suite_prompts),
        owner="server" if is_server else "cli",
        creator=creator,
        limits=request.limits.to_stored() if is_server else None,
        name=request.name,
        note=request.note,
    )


def _draw_suite_prompts(cases: Iterator[Case], count: int, seed: int) -> list[Case]:
    """Return a few of the cases, drawn by the seed, in their order."""
    known = {hash_case(each): each for each in islice(cases, MAX_CASES_READ if count else 0)}
    if len(known) <= count:
        return list(known.values())
    drawn = set(Random(seed).sample(sorted(known), count))
    return [case for digest, case in known.items() if digest in drawn]


# ── Calls ──


@dataclass(slots=True)
class _Endpoint:
    """One of the two models, and its client."""

    target: Target
    client: TargetClient


@dataclass(slots=True)
class _ScheduledPair:
    """A pair to send: its prompt, which endpoint comes first, and the seed of both calls with a border prompt."""

    number: int
    case: Case
    order: tuple[int, int]
    seed: int


class _PairSchedule:
    """Draws pairs: rounds of all prompts in random order, two of three with border prompts; the same for a seed."""

    def __init__(self, pairing: Pairing, borders: Sequence[Case], suite_prompts: Sequence[Case]) -> None:
        self._seed = pairing.seed
        times = max(1, math.ceil(2 * len(suite_prompts) / len(borders))) if borders else 0
        self._round = [*(each for each in borders for _ in range(times)), *suite_prompts]

    def get(self, number: int) -> _ScheduledPair:
        """Return the pair with this number, counted from 0."""
        round_number, place = divmod(number, len(self._round))
        shuffled = Random(f"{self._seed} round {round_number}").sample(self._round, len(self._round))
        chance = Random(f"{self._seed} pair {number}")
        order = (0, 1) if chance.random() < 0.5 else (1, 0)
        return _ScheduledPair(number, shuffled[place], order, chance.randrange(2**31))


@dataclass(slots=True)
class _PairedCalls:
    """The calls of one test, until it ends."""

    plan: Plan
    pairing: Pairing
    cases: Mapping[str, Case]
    stored: Mapping[ResultKey, Result]
    """Results of earlier sittings: what was sent once is not sent again."""
    endpoints: tuple[_Endpoint, _Endpoint]
    stop: Stop
    batches: asyncio.Queue[list[Result]] = field(default_factory=asyncio.Queue)
    """New results; an empty list is the end."""
    case_digest_by_id: dict[str, str] = field(default_factory=dict)
    next_pair: int = 0
    sent_calls: int = 0

    async def run(self) -> None:
        """Search border prompts, then send pairs until the endpoints differ or the calls are spent."""
        try:
            await self._search_and_send_pairs()
            self.stop(TEST_COMPLETE_REASON)
        except Stopped:
            pass
        except PramanaError as error:
            self.stop(str(error), error)
        except KeyboardInterrupt as error:  # of a user's function; out of a task, it would end the event loop
            self.stop.interrupt(error)
        finally:
            self.batches.put_nowait([])

    async def _search_and_send_pairs(self) -> None:
        borders = [each for each in self.cases.values() if is_border_prompt(each)]
        suite_prompts = [each for each in self.cases.values() if not is_border_prompt(each)]
        parameters: dict[str, Any] = {**self.pairing.border_parameters}
        search = await find_border_prompts(
            [self._make_search_send(0), self._make_search_send(1)],
            self.pairing.search_calls if borders else 0,
            parameters,
            seed=self.pairing.seed,
        )
        self.sent_calls = search.calls
        test = EndpointTest(
            has_verdicts=any(each.assertion and _has_offline_assertion(each) for each in suite_prompts),
            has_logprobs=search.has_logprobs,
            has_borders=bool(search.cases),
        )
        for pair in pair_results(list(self.stored.values()), self.plan, self.cases):
            test.add(pair)
        last = max((key.repeat for key in self.stored), default=-1)
        self.next_pair = max(0, last - self.pairing.search_calls + 1)
        self.sent_calls += sum(key.repeat >= self.pairing.search_calls for key in self.stored)
        if not (search.cases or suite_prompts):
            return
        schedule = _PairSchedule(self.pairing, search.cases, suite_prompts)
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_CONCURRENT_PAIRS):
                group.create_task(self._send_pairs(schedule, test, search.parameters))

    def _make_search_send(self, side: int) -> Any:
        async def send(case: Case, repeat: int, parameters: Mapping[str, Any]) -> Reply | None:
            if self.stop:
                raise Stopped(str(self.stop.reason))
            try:
                result = await self._call(side, case, repeat, parameters)
            except KeyboardInterrupt as error:  # of a user's function; out of a task, it would end the event loop
                self.stop.interrupt(error)
                raise Stopped(str(self.stop.reason)) from None
            if result.key not in self.stored:
                self.batches.put_nowait([result])
            return result.reply

        return send

    async def _send_pairs(
        self, schedule: _PairSchedule, test: EndpointTest, border_parameters: Mapping[str, Any]
    ) -> None:
        """Send pairs one after another; several of these work at once."""
        while not self.stop and not test.is_different and self.sent_calls + 2 <= self.pairing.max_calls:
            pair = schedule.get(self.next_pair)
            self.next_pair += 1
            self.sent_calls += 2
            results: dict[int, Result] = {}
            parameters = self.plan.parameters
            if is_border_prompt(pair.case):
                parameters = {**border_parameters, "seed": pair.seed}
            try:
                for side in pair.order:
                    results[side] = await self._call(
                        side, pair.case, self.pairing.search_calls + pair.number, parameters
                    )
            except Stopped:
                return
            except PramanaError as error:
                self.stop(str(error), error)
                return
            except KeyboardInterrupt as error:
                self.stop.interrupt(error)
                return
            finally:  # a reply that was paid for is kept, even if the other call was not sent
                if results:
                    self.batches.put_nowait([results[side] for side in pair.order if side in results])
            both = (results[0], results[1])
            test.add(make_call_pair(pair.case, both))
        if test.is_different:
            self.stop(TEST_COMPLETE_REASON)

    async def _call(self, side: int, case: Case, repeat: int, parameters: Mapping[str, Any]) -> Result:
        """Send a prompt to an endpoint and return the result; an error that other calls would not have is a result."""
        endpoint = self.endpoints[side]
        target = endpoint.target
        digest = self.case_digest_by_id.setdefault(case.id, hash_case(case))
        key = ResultKey(digest, target.typed, "text", repeat)
        if key in self.stored:
            return self.stored[key]
        system = (Turn("system", self.plan.system_prompt),) if self.plan.system_prompt else ()
        named = {**parameters, **(logprob_parameters(target.provider) if is_border_prompt(case) else {})}
        request = Request(target.model, system + case.turns, named, "case", repeat)
        try:
            if len(case.script) < 2:
                reply = await endpoint.client(request)
            else:
                reply = await ask_lines_in_turn(endpoint.client, request, case.script)
        except ProviderError as error:
            if error.fatal:
                raise
            return Result(key, case.id, None, Failure(error.code, str(error)), (), None, None)
        record = ResultDigester(
            model=target.typed, parameters=named, suite_hash="", system_prompt=self.plan.system_prompt
        )
        hashed = hash_result(target.model, case.id, reply.text)
        return Result(
            key, case.id, reply, None, (_check_reply_offline(case, reply),), hashed, record(digest, reply.text, ())
        )


def stream_pairs(store: Store, run: Run, clients: RunClients, stop: Stop) -> AsyncGenerator[list[Result]]:
    """Return the results of a test in batches, each pair in one, until it has its answer or is stopped.

    Raises at once if an endpoint cannot be used, before anything is sent.
    """
    pairing = run.plan.pairing
    assert pairing is not None  # noqa: S101 - the run of a test has one
    for target in run.plan.targets:
        clients.refuse_missing_parameters(target, {**run.plan.parameters, **pairing.border_parameters})
    first, second = (_Endpoint(target, clients.get_text_client(target)) for target in run.plan.targets)
    return _stream_results(store, run, pairing, (first, second), stop)


async def _stream_results(
    store: Store, run: Run, pairing: Pairing, endpoints: tuple[_Endpoint, _Endpoint], stop: Stop
) -> AsyncGenerator[list[Result]]:
    cases = await asyncio.to_thread(lambda: {hash_case(each): each for each in store.cases.iterate(run.id)})
    stored = await asyncio.to_thread(lambda: {each.key: each for _, each in store.results.iterate(run.id)})
    calls = _PairedCalls(run.plan, pairing, cases, stored, endpoints, stop)
    working = asyncio.create_task(calls.run())
    try:
        while batch := await calls.batches.get():
            yield batch
        await working
        stop.reraise_user_interrupt()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def _has_offline_assertion(case: Case) -> bool:
    return case.assertion is not None and case.assertion.type not in _MODEL_BACKED_ASSERTIONS


def _check_reply_offline(case: Case, reply: Reply) -> Check:
    """Return the check of a reply: by an offline assertion; a judge would cost more than the test."""
    if case.assertion and _has_offline_assertion(case):
        return check_output(case.assertion, reply.text, case.ideals)
    if is_border_prompt(case):
        return make_border_check()
    return Check("same", "1", Outcome.UNSCORED, "a test of two endpoints uses no judge", decides=False)


# ── Pairs of a stored run ──


def is_border_prompt(case: Case) -> bool:
    """Return whether a case is a border prompt."""
    return BORDER_TAG in case.facets.tags


def make_call_pair(case: Case, results: tuple[Result, Result]) -> CallPair:
    """Return both results of a prompt as a pair of calls."""
    first, second = (_read_answered(case, each) for each in results)
    key = results[0].key
    prompt = f"{key.case} {key.variant}"
    return CallPair(prompt, (first, second), is_border=is_border_prompt(case), shown_prompt=_show_prompt(case))


def pair_results(results: Sequence[Result], plan: Plan, cases: Mapping[str, Case]) -> Iterator[CallPair]:
    """Yield the pairs of results, each once both are there; replies of a search for border prompts are left out."""
    first_model, second_model = (target.typed for target in plan.targets)
    first_repeat = plan.pairing.search_calls if plan.pairing else 0
    waiting: dict[tuple[str, str, int], Result] = {}
    for result in results:
        key = result.key
        if key.model not in (first_model, second_model) or key.repeat < first_repeat:
            continue
        place = (key.case, key.variant, key.repeat)
        if (other := waiting.pop(place, None)) is None or other.key.model == key.model:
            waiting[place] = result
            continue
        both = (other, result) if other.key.model == first_model else (result, other)
        yield make_call_pair(cases[key.case], both)


def _read_answered(case: Case, result: Result) -> Answered | None:
    reply = result.reply
    if reply is None:
        return None
    verdicts = {Outcome.PASSED: True, Outcome.FAILED: False}
    text = "\n".join((reply.text, *map(str, reply.tool_calls))) if reply.tool_calls else reply.text
    return Answered(
        read_answer(text) if is_border_prompt(case) else text,
        reply.total_s,
        verdicts.get(result.outcome),
        read_first_token_logprobs(reply),
    )


def _show_prompt(case: Case) -> str:
    """Return the last message of a case."""
    return case.turns[-1].text if case.turns else case.id


class RunPairs(Struct, frozen=True):
    """The pairs of a stored run, and what its calls of two models report beside the replies."""

    models: tuple[str, str]
    pairs: Sequence[CallPair]
    input_tokens: int
    output_tokens: int
    served_models: tuple[frozenset[str], frozenset[str]]
    """Names of the model, as each endpoint reports them."""
    dropped_parameters: tuple[frozenset[str], frozenset[str]]
    """Parameters that were left out for each endpoint because it rejected them."""


def read_pairs(store: Store, run: Run, models: tuple[str, str] | None = None) -> RunPairs:
    """Return the pairs of a stored run in the order they were stored: of its two models, or of those named."""
    plan = _keep_only_models(run, models)
    first, second = (target.typed for target in plan.targets)
    cases: dict[str, Case] = {}
    results: list[Result] = []
    served: dict[str, set[str]] = {first: set(), second: set()}
    dropped: dict[str, set[str]] = {first: set(), second: set()}
    tokens = [0, 0]
    for _, case, result in store.results.iterate_numbered_with_cases(run.id, with_raw=True):
        if (model := result.key.model) not in served:
            continue
        cases[result.key.case] = case
        results.append(result)
        if reply := result.reply:
            served[model] |= {reply.served_model} if reply.served_model else set()
            dropped[model] |= set(reply.dropped)
            tokens[0] += reply.usage.input_tokens or 0
            tokens[1] += reply.usage.output_tokens or 0
    return RunPairs(
        (first, second),
        list(pair_results(results, plan, cases)),
        tokens[0],
        tokens[1],
        (frozenset(served[first]), frozenset(served[second])),
        (frozenset(dropped[first]), frozenset(dropped[second])),
    )


def _keep_only_models(run: Run, models: tuple[str, str] | None) -> Plan:
    """Return the plan of a run with only the two models to test."""
    known = {target.typed: target for target in run.plan.targets}
    if models is None:
        if len(known) != 2:
            raise InvalidInput(
                f"run {run.id} has {pluralise(len(known), 'model')}; a test of two endpoints needs two: name them"
            )
        return run.plan
    for each in models:
        if each not in known:
            raise InvalidInput(f"run {run.id} has no model {quote_text(each)}; it has {', '.join(known)}")
    if models[0] == models[1]:
        raise InvalidInput(f"{quote_text(models[0])} is named twice; name two models of run {run.id}")
    return replace(run.plan, targets=(known[models[0]], known[models[1]]))
