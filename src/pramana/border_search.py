"""The search for border prompts: candidates are sent a few times, and those whose answers vary most are returned.

It takes functions that send one candidate each, and the most calls that it may make; it returns the prompts as ordinary
cases, tagged `border`. The replies of the search are used for nothing else: a test that counted them would favour the
prompts that differed by chance. Limits, retries and cost are those of the functions.

A search of one endpoint is also a run of its own, as a watch needs it: `stream_search` sends what the run still lacks,
and `choose_border_prompts` returns what its stored results say. A search that was killed is continued, and sends no
stored call again; one that a day's budget ended is continued by another run, which names the earlier ones in its plan.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from pramana.analyse.border_prompts import (
    BORDER_TAG,
    MAX_BORDER_PROMPTS,
    make_border_cases,
    rank_by_entropy,
    rank_by_expected_shift_above_noise,
    read_answer,
)
from pramana.errors import NotFound, PramanaError, ProviderError, Stopped
from pramana.hash import ResultDigester, hash_case, hash_result
from pramana.model import (
    Ask,
    Case,
    Check,
    Failure,
    Outcome,
    Plan,
    PromptSearch,
    Reply,
    Request,
    Result,
    ResultKey,
    Run,
    Turn,
)
from pramana.providers.logprobs import read_first_token_logprobs
from pramana.run.accounts import RunClients
from pramana.run.asking import TargetClient
from pramana.run.engine import Stop
from pramana.store.store import Store

MAX_ANSWER_TOKENS_TO_TRY = (1, 16)
"""Max output tokens, tried in this order: some models take no fewer than 16."""
ANSWERS_BEFORE_CHOICE = 4
"""Answers to each candidate before those whose answers vary most are sent further calls."""
CANDIDATES_TO_PROBE = 3
"""So many candidates must be answered at no length before an endpoint counts as one that answers none."""
MAX_CONCURRENT_CALLS = 4
PROMPT_COUNT_IF_LOGPROBS_OFFERED = 4
"""Where logprobs are offered, as many prompts are kept, even if their answers do not vary: a few prompts, each sent
often, show a shift of logprobs soonest."""
SendCandidate = Callable[[Case, int, Mapping[str, Any]], Awaitable[Reply | None]]
"""Sends a candidate: the case, the number of the call with it, and the parameters; None for a call that failed."""

RankPrompts = Callable[[Mapping[str, Counter[str]]], list[str]]
"""Returns the prompts whose answers vary, the best ones first, from the answers to each."""


class BorderSearch(Struct, frozen=True):
    """The border prompts, and what the search took."""

    cases: tuple[Case, ...]
    """The best ones first: those whose answers vary most, unless they were ranked otherwise."""
    parameters: Mapping[str, Any]
    """The parameters with which the prompts are sent."""
    calls: int
    has_logprobs: bool
    """Whether every endpoint sent logprobs of the first token."""
    varying_count: int = 0
    """How many prompts have answers that vary."""


def send_with(ask: Ask, model: str, system_prompt: str | None = None) -> SendCandidate:
    """Return a function for `find_border_prompts` that sends candidates to a model; errors are raised."""
    system = (Turn("system", system_prompt),) if system_prompt else ()

    async def send(case: Case, repeat: int, parameters: Mapping[str, Any]) -> Reply:
        return await ask(Request(model, system + case.turns, parameters, "case", repeat))

    return send


async def find_border_prompts(
    sends: Sequence[SendCandidate],
    max_calls: int,
    parameters: Mapping[str, Any],
    *,
    max_prompts: int = MAX_BORDER_PROMPTS,
    seed: int = 0,
    rank: RankPrompts = rank_by_entropy,
) -> BorderSearch:
    """Return the candidates whose answers vary most, or are first in `rank`, within a number of calls.

    Every call sends another seed, since a fixed seed would fix the answer. The length of an answer in `parameters`, if
    any, is replaced by one token, or by a few where a model refuses one or answers nothing.
    """
    candidates = make_border_cases()[: max(0, max_calls // (2 * len(sends)))]
    search = _Search(sends, max_calls, parameters, seed)
    if not await search.find_length(candidates[:CANDIDATES_TO_PROBE]):
        return BorderSearch((), search.parameters, search.calls, has_logprobs=False)
    wanted: Sequence[Case] = candidates
    while search.has_room_for(wanted):
        await search.send_round(wanted)
        if search.rounds * len(sends) >= ANSWERS_BEFORE_CHOICE:
            ranked = rank({each.id: search.answers[each.id] for each in candidates})
            by_id = {each.id: each for each in candidates}
            wanted = [by_id[each] for each in ranked[: 2 * max_prompts]] or wanted
    ranked = rank(search.answers)[:max_prompts]
    varying_count, has_logprobs = len(ranked), search.has_logprobs
    if has_logprobs:
        ranked = [*ranked, *(each.id for each in candidates if each.id not in ranked)][
            :PROMPT_COUNT_IF_LOGPROBS_OFFERED
        ]
    by_id = {each.id: each for each in candidates}
    return BorderSearch(
        tuple(by_id[each] for each in ranked), search.parameters, search.calls, has_logprobs, varying_count
    )


class _Search:
    """The calls of one search."""

    def __init__(
        self, sends: Sequence[SendCandidate], max_calls: int, parameters: Mapping[str, Any], seed: int
    ) -> None:
        self._sends, self._max_calls, self._given, self._seed = sends, max_calls, parameters, seed
        self.length = MAX_ANSWER_TOKENS_TO_TRY[0]
        self.calls = self.rounds = 0
        self.answers: dict[str, Counter[str]] = {each.id: Counter() for each in make_border_cases()}
        self._repeats: Counter[str] = Counter()
        self._answered = self._with_logprobs = 0
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    @property
    def parameters(self) -> dict[str, Any]:
        return {**self._given, "max_tokens": self.length}

    @property
    def has_logprobs(self) -> bool:
        return 0 < self._answered == self._with_logprobs

    def has_room_for(self, cases: Sequence[Case]) -> bool:
        return bool(cases) and self.calls + len(cases) * len(self._sends) <= self._max_calls

    async def find_length(self, cases: Sequence[Case]) -> bool:
        """Set the length at which every endpoint answers one of these prompts; return whether there is one."""
        for case in cases:
            for self.length in MAX_ANSWER_TOKENS_TO_TRY:
                if await self._is_answered(case):
                    return True
        return False

    async def _is_answered(self, case: Case) -> bool:
        if not self.has_room_for([case]):
            return False
        replies = await self._send_to_all(case)
        is_answered = all(reply is not None and read_answer(reply.text) for reply in replies)
        if is_answered:
            self._count_answers(case, replies)
        return is_answered

    async def send_round(self, cases: Sequence[Case]) -> None:
        """Send each prompt to every endpoint once more."""
        self.rounds += 1
        found = await asyncio.gather(*map(self._send_to_all, cases), return_exceptions=True)
        for case, replies in zip(cases, found, strict=True):
            if isinstance(replies, BaseException):  # raised once all calls under way have ended
                raise replies
            self._count_answers(case, replies)

    def _count_answers(self, case: Case, replies: Sequence[Reply | None]) -> None:
        for reply in replies:
            if reply is not None:
                self._answered += 1
                self._with_logprobs += bool(read_first_token_logprobs(reply))
                self.answers[case.id][read_answer(reply.text)] += 1

    async def _send_to_all(self, case: Case) -> list[Reply | None]:
        """Send a prompt to every endpoint, each with another seed."""
        replies = []
        for send in self._sends:
            repeat = self._repeats[case.id]
            self._repeats[case.id] += 1
            self.calls += 1
            async with self._slots:
                replies.append(await send(case, repeat, {**self.parameters, "seed": self._seed + repeat}))
        return replies


# ── A search as a stored run ──


def stream_search(store: Store, run: Run, accounts: RunClients, stop: Stop) -> AsyncGenerator[list[Result]]:
    """Return the results of a run that searches border prompts, each in a batch of its own, until it is complete.

    Raises at once if the endpoint cannot be used, before anything is sent.
    """
    plan, (target,) = run.plan, run.plan.targets
    assert plan.search is not None  # noqa: S101 - the run of a search has one
    accounts.refuse_missing_parameters(target, plan.parameters)
    return _stream_results(store, run, plan.search, accounts.get_text_client(target), stop)


async def _stream_results(
    store: Store, run: Run, search: PromptSearch, client: TargetClient, stop: Stop
) -> AsyncGenerator[list[Result]]:
    stored = await asyncio.to_thread(lambda: {each.key: each for each in read_search_results(store, run)})
    calls = _StoredSearch(run.plan, search, stored, client, stop)
    working = asyncio.create_task(calls.run())
    try:
        while batch := await calls.batches.get():
            yield batch
        await working
        stop.reraise_user_interrupt()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


@dataclass(slots=True)
class _StoredSearch:
    """The calls of a search whose results are stored, until it ends."""

    plan: Plan
    search: PromptSearch
    stored: Mapping[ResultKey, Result]
    """Results of earlier sittings and runs: what was sent once is not sent again."""
    client: TargetClient
    stop: Stop
    batches: asyncio.Queue[list[Result]] = field(default_factory=asyncio.Queue)
    """New results; an empty list is the end."""

    async def run(self) -> None:
        """Send candidates until the calls are spent; a search that ends without a stop is complete."""
        try:
            await find_border_prompts(
                [self._send],
                self.search.max_calls,
                self.plan.parameters,
                max_prompts=self.search.max_prompts,
                seed=self.search.seed,
                rank=rank_by_expected_shift_above_noise,
            )
        except Stopped:
            pass
        except PramanaError as error:
            self.stop(str(error), error)
        except KeyboardInterrupt as error:  # of a user's function; out of a task, it would end the event loop
            self.stop.interrupt(error)
        finally:
            self.batches.put_nowait([])

    async def _send(self, case: Case, repeat: int, parameters: Mapping[str, Any]) -> Reply | None:
        if self.stop:
            raise Stopped(str(self.stop.reason))
        (target,) = self.plan.targets
        digest = hash_case(case)
        key = ResultKey(digest, target.typed, "text", repeat)
        if key in self.stored:
            return self.stored[key].reply
        system = (Turn("system", self.plan.system_prompt),) if self.plan.system_prompt else ()
        try:
            reply = await self.client(Request(target.model, system + case.turns, parameters, "case", repeat))
        except ProviderError as error:
            if error.fatal:
                raise
            failed = Result(key, case.id, None, Failure(error.code, str(error)), (), None, None)
            self.batches.put_nowait([failed])
            return None
        except KeyboardInterrupt as error:
            self.stop.interrupt(error)
            raise Stopped(str(self.stop.reason)) from None
        record = ResultDigester(
            model=target.typed, parameters=parameters, suite_hash="", system_prompt=self.plan.system_prompt
        )
        hashed = hash_result(target.model, case.id, reply.text)
        check = make_border_check()
        self.batches.put_nowait([Result(key, case.id, reply, None, (check,), hashed, record(digest, reply.text, ()))])
        return reply


def make_border_check() -> Check:
    """Return the check of a reply to a border prompt, which has no verdict."""
    return Check(BORDER_TAG, "1", Outcome.UNSCORED, "a border prompt has no right answer", decides=False)


def read_search_results(store: Store, run: Run) -> list[Result]:
    """Return the stored results of a search, one for each call: those of its run, and the answers of earlier runs.

    A call that failed on an earlier day is sent again. Earlier runs that were deleted, or that asked another endpoint,
    are left out.
    """
    assert run.plan.search is not None  # noqa: S101 - the run of a search has one
    found = dict[ResultKey, Result]()
    for run_id in run.plan.search.earlier_runs:
        with suppress(NotFound):
            earlier = store.runs.read(run_id)
            if _asks_alike(earlier.plan, run.plan):
                answered = (each for _, each in store.results.iterate(earlier, scoring=0) if each.reply is not None)
                found |= {each.key: each for each in answered}
    found |= {result.key: result for _, result in store.results.iterate(run, scoring=0)}
    return list(found.values())


def _asks_alike(one: Plan, other: Plan) -> bool:
    return (one.targets, one.parameters, one.system_prompt) == (other.targets, other.parameters, other.system_prompt)


class FoundPrompts(Struct, frozen=True):
    """What the stored results of a complete search say."""

    cases: tuple[Case, ...]
    """The border prompts, those first that would show a small change best; empty if there are none."""
    max_answer_tokens: int
    search_calls: int


def choose_border_prompts(results: Iterable[Result], max_prompts: int) -> FoundPrompts | None:
    """Return the border prompts that the results of a complete search show; None if too few calls were answered.

    "None found" is no conclusion from calls of which most failed. The prompts are chosen by the expected shift, as the
    search of a watch does, from nothing but the results.
    """
    candidates = {hash_case(each): each for each in make_border_cases()}
    answers: dict[str, dict[int, str]] = {digest: {} for digest in candidates}
    calls = 0
    for each in results:
        calls += 1
        if each.reply is not None and each.key.case in answers:
            answers[each.key.case][each.key.repeat] = read_answer(each.reply.text)
    are_most_answered = 2 * sum(map(len, answers.values())) > calls
    attempt = _drop_empty_attempts(list(answers.values())[:CANDIDATES_TO_PROBE])
    if attempt is None:
        return FoundPrompts((), MAX_ANSWER_TOKENS_TO_TRY[-1], calls) if are_most_answered else None
    ranked = rank_by_expected_shift_above_noise({digest: Counter(found.values()) for digest, found in answers.items()})
    if not ranked and not are_most_answered:
        return None
    return FoundPrompts(
        tuple(candidates[each] for each in ranked[:max_prompts]), MAX_ANSWER_TOKENS_TO_TRY[attempt], calls
    )


def _drop_empty_attempts(probed: Sequence[dict[int, str]]) -> int | None:
    """Return the number of the length that was answered first, as the search found it; None if none was.

    The answers to the attempts before it, by the number of the call with each candidate, are deleted: they are empty.
    """
    for tried in probed:
        for attempt in range(len(MAX_ANSWER_TOKENS_TO_TRY)):
            if tried.get(attempt):
                return attempt
            tried.pop(attempt, None)
    return None
