"""The search for border prompts: candidates are sent a few times, and those whose answers vary most are returned.

It takes functions that send one candidate each, and the most calls that it may make; it returns the prompts as ordinary
cases, tagged `border`. The replies of the search are used for nothing else: a test that counted them would favour the
prompts that differed by chance. Limits, retries and cost are those of the functions.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from pramana.analyse.border_prompts import MAX_BORDER_PROMPTS, make_border_cases, rank_by_entropy, read_answer
from pramana.model import Ask, Case, Reply, Request, Turn
from pramana.providers.logprobs import read_first_token_logprobs

MAX_ANSWER_TOKENS_TO_TRY = (1, 16)
"""Max output tokens, tried in this order: some models take no fewer than 16."""
MAX_CONCURRENT_CALLS = 4
PROMPT_COUNT_WITH_LOGPROBS = 4
"""Where logprobs are offered, as many prompts are kept, even if their answers do not vary: a few prompts, each sent
often, show a shift of logprobs soonest."""
SendCandidate = Callable[[Case, int, Mapping[str, Any]], Awaitable[Reply | None]]
"""Sends a candidate: the case, the number of the call with it, and the parameters; None for a call that failed."""


class BorderSearch(Struct, frozen=True):
    """The border prompts, and what the search took."""

    cases: tuple[Case, ...]
    """Those whose answers vary most first."""
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
) -> BorderSearch:
    """Return the candidates whose answers vary most, over all endpoints together, within a number of calls.

    Every call sends another seed, since a fixed seed would fix the answer. The length of an answer in `parameters`, if
    any, is replaced by one token, or by a few where a model refuses one or answers nothing.
    """
    candidates = make_border_cases()[: max(0, max_calls // (2 * len(sends)))]
    search = _Search(sends, max_calls, parameters, seed)
    for length in MAX_ANSWER_TOKENS_TO_TRY:
        search.length = length
        if candidates and await search.is_answered(candidates[0]):
            break
    else:
        return BorderSearch((), search.parameters, search.calls, has_logprobs=False)
    wanted: Sequence[Case] = candidates
    while search.has_room_for(wanted):
        await search.send_round(wanted)
        if search.rounds > 1:
            ranked = rank_by_entropy({each.id: search.answers[each.id] for each in candidates})
            by_id = {each.id: each for each in candidates}
            wanted = [by_id[each] for each in ranked[: 2 * max_prompts]] or wanted
    ranked = rank_by_entropy(search.answers)[:max_prompts]
    varying_count, has_logprobs = len(ranked), search.has_logprobs
    if has_logprobs:
        ranked = [*ranked, *(each.id for each in candidates if each.id not in ranked)][:PROMPT_COUNT_WITH_LOGPROBS]
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

    async def is_answered(self, case: Case) -> bool:
        """Return whether every endpoint answers a prompt at this length."""
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
