"""What a run would take, before anyone is asked: cases and a plan in; calls, tokens and dollars out, all estimated.

Tokens are counted by the rule of the built-in suites: runs of letters, groups of up to three digits, and every other
visible character count one each. How long an answer will be nobody knows: it is taken to be as long as the expected
one, and no shorter than `ANSWER`. A price that is not known makes the sum unknown, and is named; it is never 0.
"""

import re
from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from msgspec import Struct, field

from pramana.analyse.judges import NEVER_A_JUDGE
from pramana.model import Case, Plan, Target, Usage

ANSWER = 150
"""Tokens of an answer, at least: most are sentences, whatever is looked for in them."""
AROUND_A_VERDICT, VERDICT = 250, 20
"""Tokens of what a judge is told besides the question and the answer, and of what it says."""
_TOKEN = re.compile(r"[^\W\d_]+|\d{1,3}|[^\s\w]|_")
Cost = Callable[[Target, Usage], float | None]


def tokens_of(text: str) -> int:
    """Estimate the tokens of a text.

    >>> tokens_of("In 1969, two people."), tokens_of("")
    (7, 0)
    """
    return sum(1 for _ in _TOKEN.finditer(text))


Purpose = Literal["model", "judge", "embedder"]


class Share(Struct):
    """What one of those that are asked would take."""

    model: str
    purpose: Purpose
    calls: int = 0
    input_tokens: int | None = 0
    """None: it is spoken to, and nobody counts that beforehand."""
    output_tokens: int | None = 0
    cost_usd: float | None = 0.0


class Estimate(Struct):
    """What a run would take."""

    cases: int = 0
    results: int = 0
    shares: list[Share] = field(default_factory=list)
    unjudged: dict[str, int] = field(default_factory=dict)
    """By model, the cases that need a judge and have none: they will end without a verdict."""
    judge_named: bool = False
    scorers: tuple[str, ...] = ()
    """What they ask of models, nobody knows beforehand."""

    @property
    def warnings(self) -> list[str]:
        """What will be missing, in sentences.

        >>> Estimate(shares=[Share("local", "model")], unjudged={"local": 2}).warnings
        ['2 cases will have no verdict: name a judge']
        """
        models = sum(each.purpose == "model" for each in self.shares)
        remedy = f"name {'another' if self.judge_named else 'a'} judge"
        alike = len(self.unjudged) == models and len(set(self.unjudged.values())) == 1
        rows = list(self.unjudged.items())[: 1 if alike else None]
        missing = [
            f"{count:,} case{'' if count == 1 else 's'}{'' if alike else f' of {model}'} will have no verdict: {remedy}"
            for model, count in rows
        ]
        return missing + ([f"not counted: what scorers ask ({', '.join(self.scorers)})"] if self.scorers else [])

    @property
    def calls(self) -> int:
        return sum(each.calls for each in self.shares)

    @property
    def unpriced(self) -> list[str]:
        """Those whose price is not known, of those that would be asked."""
        return list(dict.fromkeys(each.model for each in self.shares if each.calls and each.cost_usd is None))

    @property
    def input_tokens(self) -> int | None:
        """Of all together; None when any part is unknown."""
        return _sum(each.input_tokens for each in self.shares if each.calls)

    @property
    def output_tokens(self) -> int | None:
        """Of all together; None when any part is unknown."""
        return _sum(each.output_tokens for each in self.shares if each.calls)

    @property
    def cost_usd(self) -> float | None:
        """Of all together; None when any part is unknown."""
        return _sum(each.cost_usd for each in self.shares if each.calls)


_Number = TypeVar("_Number", int, float)


def _sum(parts: Iterable[_Number | None]) -> _Number | None:
    known: list[_Number] = []
    for each in parts:
        if each is None:
            return None
        known.append(each)
    return sum(known)


def estimate(plan: Plan, cases: Iterable[Case], cost: Cost, spoken_to: Callable[[Target], bool]) -> Estimate:
    """Return what a plan with these cases would take."""
    found = Estimate(judge_named=plan.judge is not None, scorers=tuple(each.name for each in plan.scorers))
    scored = bool(plan.scorers)
    models = {each.typed: Share(each.typed, "model") for each in plan.targets}
    judges = {each.typed: Share((plan.judge or each).typed, "judge") for each in plan.targets}
    embedder = Share(plan.embedder.typed, "embedder") if plan.embedder else None
    most = plan.parameters.get("max_tokens")
    system = tokens_of(plan.system_prompt or "")
    each_asked = len(plan.variants) * plan.repeats
    for case in cases:
        found.cases += 1
        answer = max(ANSWER, tokens_of(case.expected_outcome or (case.ideals[0] if case.ideals else "")))
        answer = min(answer, most) if isinstance(most, int) and most > 0 else answer
        calls = _calls(case, system, answer)
        judged, embedded = _judged(case, scored=scored)
        for target in plan.targets:
            found.results += each_asked
            for asked in calls:
                _add(models[target.typed], target, each_asked, asked, answer, cost, spoken=spoken_to(target))
            judge = plan.judge or target
            if judge.provider in NEVER_A_JUDGE or spoken_to(judge):
                if _needs_a_judge(case, scored=scored):
                    found.unjudged[target.typed] = found.unjudged.get(target.typed, 0) + 1
            elif judged:
                read = AROUND_A_VERDICT + calls[-1] + answer
                _add(judges[target.typed], judge, judged * each_asked, read, VERDICT, cost)
            if embedder and plan.embedder and embedded:
                _add(embedder, plan.embedder, embedded * each_asked, 2 * answer, 0, cost)
    found.shares = [*models.values(), *_together(judges.values()), *([embedder] if embedder else [])]
    return found


def _calls(case: Case, system: int, answer: int) -> list[int]:
    """Return the tokens that each call of a case is asked with: a later line comes with all that went before."""
    asked = system + sum(tokens_of(turn.text) for turn in case.turns)
    calls = [asked]
    for line in case.script[1:]:
        asked += answer + tokens_of(line.text)
        calls.append(asked)
    return calls


def _judged(case: Case, *, scored: bool) -> tuple[int, int]:
    """Return how often a judge and an embedder are asked about one reply; `scored`: the run has scorers."""
    kinds = [expected.assertion.type for line in case.script for expected in line.expected]
    if case.assertion:
        kinds.append(case.assertion.type)
    elif case.expected_outcome is not None or not scored:
        kinds.append("llm_judge")
    return kinds.count("llm_judge"), kinds.count("semantic_similarity")


def _needs_a_judge(case: Case, *, scored: bool) -> bool:
    """Tell whether a case has no verdict without a judge; what is expected of single lines may do for a scenario."""
    stated = [expected.assertion.type for line in case.script for expected in line.expected]
    stated += [case.assertion.type] if case.assertion else []
    left_to_scorers = scored and case.expected_outcome is None
    return "llm_judge" in stated or not (stated or left_to_scorers)


def _add(
    share: Share, target: Target, calls: int, asked: int, answered: int, cost: Cost, *, spoken: bool = False
) -> None:
    share.calls += calls
    if spoken:
        share.input_tokens = share.output_tokens = None
    if share.input_tokens is not None and share.output_tokens is not None:
        share.input_tokens += calls * asked
        share.output_tokens += calls * answered
    one = cost(target, Usage(asked, answered))
    share.cost_usd = None if one is None or share.cost_usd is None else share.cost_usd + calls * one


def _together(shares: Iterable[Share]) -> list[Share]:
    """Join the shares of one judge of several models."""
    found: dict[str, Share] = {}
    for each in shares:
        known = found.setdefault(each.model, Share(each.model, each.purpose))
        known.calls += each.calls
        for name in ("input_tokens", "output_tokens", "cost_usd"):
            before, more = getattr(known, name), getattr(each, name)
            setattr(known, name, None if before is None or more is None else before + more)
    return [each for each in found.values() if each.calls]
