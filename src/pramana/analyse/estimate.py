"""The estimate of a run, before anything is sent: cases and a plan in; estimated calls, tokens and dollars out.

Tokens are counted by the rule of the built-in suites: runs of letters, groups of up to three digits, and every other
visible character count one each. The length of a reply is not known in advance: it is assumed to be that of the
expected reply, and at least `MIN_ASSUMED_REPLY_TOKENS`; the cost range covers replies from a third to three times as
long. An unknown price makes the sum unknown and is named; it never counts as 0.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from pramana.analyse.judges import NON_JUDGE_PROVIDERS
from pramana.model import Case, Plan, Target, Usage

MIN_ASSUMED_REPLY_TOKENS = 150
"""The fewest tokens assumed for a reply: most are sentences, whatever an assertion looks for in them."""
SHORTEST_REPLY_FACTOR, LONGEST_REPLY_FACTOR = 1 / 3, 3.0
"""The factors on the assumed length of replies at the two ends of the cost range."""
JUDGE_PROMPT_OVERHEAD_TOKENS, JUDGE_REPLY_TOKENS = 250, 20
"""Tokens of a judge's prompt besides the question and the reply, and tokens of its response."""
_TOKEN_RE = re.compile(r"[^\W\d_]+|\d{1,3}|[^\s\w]|_")
CostFunction = Callable[[Target, Usage], float | None]


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text.

    >>> estimate_tokens("In 1969, two people."), estimate_tokens("")
    (7, 0)
    """
    return sum(1 for _ in _TOKEN_RE.finditer(text))


Purpose = Literal["model", "judge", "embedder"]


class ModelEstimate(Struct):
    """The estimate for one model, judge or embedder."""

    model: str
    purpose: Purpose
    calls: int = 0
    input_tokens: int | None = 0
    """None for calls, whose tokens cannot be estimated."""
    output_tokens: int | None = 0
    cost_usd: float | None = 0.0


class Estimate(Struct):
    """The estimate of a run."""

    case_count: int = 0
    result_count: int = 0
    model_estimates: list[ModelEstimate] = field(default_factory=list)
    cost_range_usd: tuple[float, float] | None = None
    """The cost with much shorter and with much longer replies than assumed; None if a price is unknown."""
    unjudged_cases_by_model: dict[str, int] = field(default_factory=dict)
    """By model, how many cases need a judge and have none: they will be unscored."""
    self_judged_models: tuple[str, ...] = ()
    """Models that judge their own replies."""
    judge_named: bool = False
    scorer_names: tuple[str, ...] = ()
    """The scorers of the run; their requests to models cannot be estimated."""

    @property
    def warnings(self) -> list[str]:
        """What the run or this estimate will lack, in sentences.

        >>> Estimate(model_estimates=[ModelEstimate("local", "model")], unjudged_cases_by_model={"local": 2}).warnings
        ['2 cases will have no verdict: name a judge']
        """
        models = sum(each.purpose == "model" for each in self.model_estimates)
        missing = _no_judge_warnings(self.unjudged_cases_by_model, models, judge_named=self.judge_named)
        return missing + (
            [f"not counted: model calls by scorers ({', '.join(self.scorer_names)})"] if self.scorer_names else []
        )

    @property
    def calls(self) -> int:
        return sum(each.calls for each in self.model_estimates)

    @property
    def models_without_price(self) -> list[str]:
        """The models with requests whose price is unknown."""
        return list(dict.fromkeys(each.model for each in self.model_estimates if each.calls and each.cost_usd is None))

    @property
    def input_tokens(self) -> int | None:
        """The total; None if any part is unknown."""
        return _sum_if_known(each.input_tokens for each in self.model_estimates if each.calls)

    @property
    def output_tokens(self) -> int | None:
        """The total; None if any part is unknown."""
        return _sum_if_known(each.output_tokens for each in self.model_estimates if each.calls)

    @property
    def cost_usd(self) -> float | None:
        """The total; None if any part is unknown."""
        return _sum_if_known(each.cost_usd for each in self.model_estimates if each.calls)


class JudgingForecast(Struct, frozen=True):
    """How the replies of a run will be judged."""

    unjudged_cases_by_model: dict[str, int]
    """By model, how many cases need a judge and have none."""
    self_judged_models: tuple[str, ...]
    """Models that judge their own replies."""
    warnings: tuple[str, ...]
    """Which cases will have no verdict, in sentences."""


def _no_judge_warnings(unjudged_cases_by_model: Mapping[str, int], model_count: int, *, judge_named: bool) -> list[str]:
    """Return a sentence per model about cases that need a judge and have none, or one for all models if all agree."""
    remedy = f"name {'another' if judge_named else 'a'} judge"
    alike = len(unjudged_cases_by_model) == model_count and len(set(unjudged_cases_by_model.values())) == 1
    return [
        f"{count:,} case{'' if count == 1 else 's'}{'' if alike else f' of {model}'} will have no verdict: {remedy}"
        for model, count in list(unjudged_cases_by_model.items())[: 1 if alike else None]
    ]


_Number = TypeVar("_Number", int, float)


def _sum_if_known(parts: Iterable[_Number | None]) -> _Number | None:
    known: list[_Number] = []
    for each in parts:
        if each is None:
            return None
        known.append(each)
    return sum(known)


class _CaseTokens(NamedTuple):
    """The tokens and calls of one case and its judging."""

    prompt_tokens: int
    later_line_tokens: list[int]
    answer_tokens: int
    judge_calls: int
    """Requests to the judge per reply."""
    embed_calls: int


class _PlanTally:
    """Sums the calls, tokens and costs of a plan, with replies `scale` times as long as assumed."""

    def __init__(
        self, plan: Plan, cost: CostFunction, is_voice_target: Callable[[Target], bool], answer_scale: float = 1.0
    ) -> None:
        self._plan, self._cost, self._spoken_to, self._scale = plan, cost, is_voice_target, answer_scale
        self._models = {each.typed: ModelEstimate(each.typed, "model") for each in plan.targets}
        self._judges = {
            (each.typed, judge.typed): ModelEstimate(judge.typed, "judge")
            for each in plan.targets
            for judge in plan.judges or (each,)
        }
        self._embedder = ModelEstimate(plan.embedder.typed, "embedder") if plan.embedder else None

    def add(self, case: _CaseTokens) -> None:
        """Add a case in all planned variants and repeats."""
        plan, times = self._plan, len(self._plan.variants) * self._plan.repeats
        answer, most = max(1, round(self._scale * case.answer_tokens)), plan.parameters.get("max_tokens")
        answer = min(answer, most) if isinstance(most, int) and most > 0 else answer
        calls = list(
            accumulate(case.later_line_tokens, lambda asked, line: asked + answer + line, initial=case.prompt_tokens)
        )
        for target in plan.targets:
            for asked in calls:
                spoken = self._spoken_to(target)
                _add_calls(self._models[target.typed], target, times, asked, answer, self._cost, is_spoken=spoken)
            for judge in plan.judges or (target,):
                if case.judge_calls and _can_judge(judge, self._spoken_to):
                    read, share = (
                        JUDGE_PROMPT_OVERHEAD_TOKENS + calls[-1] + answer,
                        self._judges[target.typed, judge.typed],
                    )
                    _add_calls(share, judge, case.judge_calls * times, read, JUDGE_REPLY_TOKENS, self._cost)
            if self._embedder and plan.embedder and case.embed_calls:
                _add_calls(self._embedder, plan.embedder, case.embed_calls * times, 2 * answer, 0, self._cost)

    def list_model_estimates(self) -> list[ModelEstimate]:
        """Return the share of each model, each judge and the embedder."""
        embedder = [self._embedder] if self._embedder else []
        return [*self._models.values(), *_merge_judge_estimates(self._judges.values()), *embedder]

    def cost_usd(self) -> float | None:
        """Return the total cost; None if any part is unknown."""
        return _sum_if_known(each.cost_usd for each in self.list_model_estimates() if each.calls)


def estimate(
    plan: Plan, cases: Iterable[Case], cost: CostFunction, is_voice_target: Callable[[Target], bool]
) -> Estimate:
    """Estimate a run of these cases by this plan."""
    found = Estimate(judge_named=plan.judge is not None, scorer_names=tuple(each.name for each in plan.scorers))
    assumed, shortest, longest = (
        _PlanTally(plan, cost, is_voice_target, scale) for scale in (1.0, SHORTEST_REPLY_FACTOR, LONGEST_REPLY_FACTOR)
    )
    without_judge, self_judging = (
        _models_without_judge(plan, is_voice_target),
        _self_judging_models(plan, is_voice_target),
    )
    for case in cases:
        found.case_count += 1
        found.result_count += len(plan.targets) * len(plan.variants) * plan.repeats
        counted = _count_tokens(plan, case)
        for tally in (assumed, shortest, longest):
            tally.add(counted)
        if counted.judge_calls and self_judging:
            found.self_judged_models, self_judging = self_judging, ()
        if _needs_judge(case, has_scorers=bool(plan.scorers)):
            for name in without_judge:
                found.unjudged_cases_by_model[name] = found.unjudged_cases_by_model.get(name, 0) + 1
    found.model_estimates = assumed.list_model_estimates()
    low, high = shortest.cost_usd(), longest.cost_usd()
    found.cost_range_usd = None if low is None or high is None else (low, high)
    return found


def forecast_judging(plan: Plan, cases: Iterable[Case], is_voice_target: Callable[[Target], bool]) -> JudgingForecast:
    """Return how these cases will be judged; read them only as far as that needs."""
    without_judge, self_judging = (
        _models_without_judge(plan, is_voice_target),
        _self_judging_models(plan, is_voice_target),
    )
    scored, missing, judged = bool(plan.scorers), 0, False
    for case in cases if without_judge or self_judging else ():
        judged = judged or _count_judge_and_embedder_calls(case, has_scorers=scored)[0] > 0
        missing += _needs_judge(case, has_scorers=scored)
        if judged and not without_judge:
            break
    unjudged = dict.fromkeys(without_judge, missing) if missing else {}
    warnings = _no_judge_warnings(unjudged, len(plan.targets), judge_named=plan.judge is not None)
    return JudgingForecast(unjudged, self_judging if judged else (), tuple(warnings))


def _can_judge(judge: Target, is_voice_target: Callable[[Target], bool]) -> bool:
    return judge.provider not in NON_JUDGE_PROVIDERS and not is_voice_target(judge)


def _models_without_judge(plan: Plan, is_voice_target: Callable[[Target], bool]) -> tuple[str, ...]:
    """Return the models whose replies no model can judge."""
    return tuple(
        each.typed
        for each in plan.targets
        if not any(_can_judge(judge, is_voice_target) for judge in plan.judges or (each,))
    )


def _self_judging_models(plan: Plan, is_voice_target: Callable[[Target], bool]) -> tuple[str, ...]:
    """Return the models that would judge their own replies."""
    return tuple(
        each.typed
        for each in plan.targets
        if _can_judge(each, is_voice_target)
        and any(replace(judge, typed=each.typed) == each for judge in plan.judges or (each,))
    )


def _count_tokens(plan: Plan, case: Case) -> _CaseTokens:
    """Return the tokens of a case; each later line is sent with the whole conversation before it."""
    prompt = estimate_tokens(plan.system_prompt or "") + sum(estimate_tokens(turn.text) for turn in case.turns)
    answer = max(
        MIN_ASSUMED_REPLY_TOKENS, estimate_tokens(case.expected_outcome or (case.ideals[0] if case.ideals else ""))
    )
    lines = [estimate_tokens(line.text) for line in case.script[1:]]
    return _CaseTokens(prompt, lines, answer, *_count_judge_and_embedder_calls(case, has_scorers=bool(plan.scorers)))


def _count_judge_and_embedder_calls(case: Case, *, has_scorers: bool) -> tuple[int, int]:
    """Return the requests per reply to the judge and to the embedder; `has_scorers` means that the run has scorers."""
    kinds = [expected.assertion.type for line in case.script for expected in line.expected]
    if case.assertion:
        kinds.append(case.assertion.type)
    elif case.expected_outcome is not None or not has_scorers:
        kinds.append("llm_judge")
    return kinds.count("llm_judge"), kinds.count("semantic_similarity")


def _needs_judge(case: Case, *, has_scorers: bool) -> bool:
    """Return whether a case has no verdict without a judge; a scenario may have assertions on its lines instead."""
    stated = [expected.assertion.type for line in case.script for expected in line.expected]
    stated += [case.assertion.type] if case.assertion else []
    left_to_scorers = has_scorers and case.expected_outcome is None
    return "llm_judge" in stated or not (stated or left_to_scorers)


def _add_calls(
    model_estimate: ModelEstimate,
    target: Target,
    call_count: int,
    input_tokens: int,
    output_tokens: int,
    cost: CostFunction,
    *,
    is_spoken: bool = False,
) -> None:
    model_estimate.calls += call_count
    if is_spoken:
        model_estimate.input_tokens = model_estimate.output_tokens = None
    if model_estimate.input_tokens is not None and model_estimate.output_tokens is not None:
        model_estimate.input_tokens += call_count * input_tokens
        model_estimate.output_tokens += call_count * output_tokens
    one = cost(target, Usage(input_tokens, output_tokens))
    model_estimate.cost_usd = (
        None if one is None or model_estimate.cost_usd is None else model_estimate.cost_usd + call_count * one
    )


def _merge_judge_estimates(shares: Iterable[ModelEstimate]) -> list[ModelEstimate]:
    """Merge the shares of a judge that judges several models."""
    found: dict[str, ModelEstimate] = {}
    for each in shares:
        known = found.setdefault(each.model, ModelEstimate(each.model, each.purpose))
        known.calls += each.calls
        for name in ("input_tokens", "output_tokens", "cost_usd"):
            before, more = getattr(known, name), getattr(each, name)
            setattr(known, name, None if before is None or more is None else before + more)
    return [each for each in found.values() if each.calls]
