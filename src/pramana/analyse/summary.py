"""The summary of a run: results in one at a time; counts, rates with intervals, times and costs out.

`ResultTally` takes each result once, in any order, and keeps counters, two arrays of times and a bounded list of
reasons: its memory does not grow with the texts, and hardly with the number of results. An error is not a failure: the
pass rate is passed / (passed + failed), and results without a verdict are listed separately, with the reason. Costs and
tokens are those of the replies and of all their checks, including checks that a re-scoring replaced: they were paid
for. Nothing is rounded here, and an unknown price or token count stays unknown.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from heapq import merge
from typing import Any, Literal

from msgspec import Struct, to_builtins

from pramana.analyse.engines import iterate_engine_lines_of_result, parse_distinct_engines
from pramana.analyse.intervals import bound_percentile, percentile
from pramana.analyse.judgements import RUBRIC
from pramana.analyse.judges import JudgeTally, VerdictCount, canonical_judge_name, describe_calibration, keep_judge_name
from pramana.analyse.numbers import pluralise
from pramana.analyse.pairing import SCORED
from pramana.analyse.rates import Rate as Rate  # noqa: PLC0414 - re-exported: part of a summary
from pramana.analyse.repeats import RepeatRates, RepeatTally
from pramana.analyse.scores import RubricAverages, RubricTally, ScoreSummary, ScoreTally
from pramana.analyse.voice import CallTally, RunVoice
from pramana.embedded.engines import EngineInfo
from pramana.model import Case, Check, JudgeCalibration, Outcome, Result, Run
from pramana.request import DEFAULT_PARAMETERS

Dimension = Literal["category", "difficulty", "tag", "language", "check", "model", "variant"]
DIMENSIONS: tuple[Dimension, ...] = ("category", "difficulty", "tag", "language", "check", "model", "variant")
BREAKDOWNS: tuple[Dimension, ...] = tuple(name for name in DIMENSIONS if name != "model")
"""The dimensions by which the results of one model are broken down."""

MAX_REASONS = 50
"""Reasons counted separately; the rest are counted together."""
MAX_NAMED_CASES = 10
"""The most case ids kept per reason."""
MAX_SIMILAR_MESSAGES = 5
"""Messages counted separately that differ only in their numbers; the rest are counted together."""
MAX_REASON_LENGTH = 500
"""Characters. Enough for an exception of the user's function, whose message ends with file and line."""
MAX_LISTED_FAILED_RESULTS = 50
"""Failed results kept with their reasons; an export has them all."""
MAX_ENGINE_LINES = 20
"""The most engine descriptions kept; a run has one or two."""
OTHER_REASONS = "other reasons"
OTHER_CHECKS_COST_KEY = "other_scorings"
"""The key in a check's evidence for the cost and tokens of its result's other checks, older or not shown."""

_USER_CODE_PROVIDERS = frozenset({"python", "command"})
"""Providers that run the user's own code, which need not accept every parameter."""
_OUTCOMES = tuple(Outcome)
_OUTCOME_INDEX = {outcome: place for place, outcome in enumerate(_OUTCOMES)}
_DIFFICULTY_ORDER = {"easy": 1, "medium": 2, "hard": 3}
_MAX_VALID_NUMBER = 1e300  # no sum of tokens or dollars comes near; larger values are invalid
_SORT_CHUNK_SIZE = 10_000
"""Size of the pieces in which times are sorted."""
_NUMBER_RE = re.compile(r"\d+(?:\.\d+)?")
_PROVIDER_ERROR_CODE = "provider_error"
"""The code of failures with the provider's own message: its numbers identify the problem, not a duration."""


class KnownTotal(Struct):
    """The sum of the known values, and the number of replies whose value is unknown."""

    known: float = 0
    unknown: int = 0

    def add(self, value: float | None) -> None:
        """Add the value of one more reply; None counts as unknown."""
        if value is None:
            self.unknown += 1
        else:
            self.known += value

    @property
    def value(self) -> float | None:
        """The sum; None if any part is unknown."""
        return None if self.unknown else self.known


class TimePercentiles(Struct, frozen=True):
    """Percentiles in seconds, over replies that did not come from the cache; None without such replies."""

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    p95_at_most: float | None = None
    """The one-sided upper bound of p95 at 95 % confidence, with cases as the units; None for fewer than 59 cases."""
    p99_at_most: float | None = None
    """Likewise of p99; None for fewer than 299 cases."""


class NamedCases(Struct):
    """The ids of the first few cases."""

    cases: tuple[str, ...] = ()
    more: bool = False
    """Whether there are further cases."""

    def add(self, case: str) -> None:
        """Add the id of a case, or note that there are more."""
        if case in self.cases:
            return
        if len(self.cases) >= MAX_NAMED_CASES:
            self.more = True
        else:
            self.cases += (case,)


class OutcomeReason(NamedCases, kw_only=True):
    """A reason why results have no verdict, with their number and their first cases."""

    outcome: Outcome
    text: str
    count: int = 0


class FailedResult(Struct, frozen=True):
    """One failed result and the reason."""

    case: str
    model: str
    variant: str
    repeat: int
    reason: str


class Summary(Struct, frozen=True):
    """The summary of a run."""

    overall: Rate
    by: Mapping[Dimension, Mapping[str, Rate]]
    input_tokens: KnownTotal
    output_tokens: KnownTotal
    cost_usd: KnownTotal
    """The cost of replies, judges and embedders together."""
    judge_cost_usd: KnownTotal
    """The part of judges and embedders, earlier scorings included."""
    judge_tokens: KnownTotal
    """Input and output tokens of judges and embedders together; the token counts above exclude them."""
    latency: TimePercentiles
    first_token: TimePercentiles
    reasons: tuple[OutcomeReason, ...]
    """Most frequent first."""
    undecided: Mapping[str, Mapping[Outcome, NamedCases]]
    """By model, the cases without a verdict."""
    cached: int
    """Replies from the cache: no request was sent, so they have no cost and no time."""
    not_reproducible: tuple[str, ...]
    """One sentence for each parameter that a model rejected."""
    judged_again: int
    """Results whose checks a re-scoring replaced; the cost of the old checks counts too."""
    judges: tuple[VerdictCount, ...]
    """The number of verdicts by source."""
    mixed_judges: tuple[str, ...]
    """One sentence for each check with verdicts of several judges, whose rate belongs to no single judge."""
    judged_by: str = ""
    """A sentence naming the judges of the checks that are not mixed; empty where no judge was used."""
    failures: tuple[FailedResult, ...] = ()
    """The first failed results, in order of arrival."""
    voice: RunVoice | None = None
    """For runs with calls: times, turn taking, word errors and the voice tax."""
    engines: tuple[EngineInfo, ...] = ()
    """For embedded models: their engines, with the processor features used."""
    scores: tuple[ScoreSummary, ...] = ()
    """The measurements of scorers: means of numbers, counts of labels."""
    repeats: tuple[RepeatRates, ...] = ()
    """For runs with repeats: pass@k and pass^k by model."""
    rubric: RubricAverages | None = None
    """If a judge rated replies by a rubric: the means, with their intervals."""
    calibrations: tuple[JudgeCalibration, ...] = ()
    """How far each judge agrees with people; uncalibrated judges are listed too."""
    by_model: Mapping[str, Mapping[Dimension, Mapping[str, Rate]]] = {}
    """The breakdowns of each model, if there are several; `by` pools them."""

    def breakdown(self, dimension: Dimension, models: Sequence[str]) -> Mapping[str, Mapping[str, Rate]]:
        """Return the rates of a dimension by value and model, in the order of the models; empty for a single value.

        Models without results for a value are left out of it.
        """
        pooled = self.by.get(dimension, {})
        if len(pooled) < 2:
            return {}
        if len(models) == 1:
            return {value: {models[0]: rate} for value, rate in pooled.items()}
        of = {model: self.by_model.get(model, {}).get(dimension, {}) for model in models}
        return {value: {model: rows[value] for model, rows in of.items() if value in rows} for value in pooled}

    @property
    def judge_names(self) -> list[str]:
        """The judges of the current verdicts."""
        return sorted({each.source.by for each in self.judges if each.source.by})

    def as_data(self) -> dict[str, Any]:
        """Return the summary as plain data, for `--json`, the API and pages."""
        return {
            "overall": self.overall.as_data(),
            "judged_by": self.judged_by or None,
            "mixed_judges": list(self.mixed_judges),
            "calibrations": [calibration_to_data(each) for each in self.calibrations],
            "judges": [
                {
                    "check": each.source.check,
                    "version": each.source.version,
                    "judge": each.source.by or None,
                    "served_model": each.source.served or None,
                    "verdicts": each.count,
                }
                for each in self.judges
            ],
            "by": {name: {value: rate.as_data() for value, rate in rows.items()} for name, rows in self.by.items()},
            "tokens": {"input": _total_to_data(self.input_tokens), "output": _total_to_data(self.output_tokens)},
            "cost_usd": _total_to_data(self.cost_usd),
            "judge_cost_usd": _total_to_data(self.judge_cost_usd),
            "judge_tokens": _total_to_data(self.judge_tokens),
            "judged_again": self.judged_again,
            "latency_seconds": to_builtins(self.latency),
            "first_token_seconds": to_builtins(self.first_token),
            "reasons": [
                {"outcome": each.outcome.value, "reason": each.text, "count": each.count, "cases": list(each.cases)}
                for each in self.reasons
            ],
            "failures": [to_builtins(each) for each in self.failures],
            "cached": self.cached,
            "not_reproducible": list(self.not_reproducible),
            "engines": [each.as_data() for each in self.engines],
            **({"scores": [each.as_data() for each in self.scores]} if self.scores else {}),
            **({"repeats": [each.as_data() for each in self.repeats]} if self.repeats else {}),
            **({"rubric": self.rubric.as_data()} if self.rubric else {}),
            **({} if self.voice is None else {"voice": self.voice.as_data()}),
            **({"by_model": self._by_model_data()} if self.by_model else {}),
        }

    def _by_model_data(self) -> dict[str, Any]:
        return {
            model: {name: {value: rate.as_data() for value, rate in rows.items()} for name, rows in by.items()}
            for model, by in self.by_model.items()
        }


def calibration_to_data(calibration: JudgeCalibration) -> dict[str, Any]:
    """Return how far a judge agrees with people as plain data."""
    return {
        "judge": calibration.judge,
        "check": calibration.check,
        "version": calibration.version,
        "calibration": describe_calibration(calibration),
        "accuracy": calibration.accuracy,
        "interval": list(calibration.interval) if calibration.interval else None,
        "labels": calibration.label_count,
        "from_other_runs": calibration.is_from_other_runs,
    }


def _total_to_data(total: KnownTotal) -> dict[str, Any]:
    return {"total": total.value, "known": total.known, "unknown": total.unknown}


def find_rejected_parameters(run: Run, model: str) -> frozenset[str]:
    """Return the parameters of a run that were not sent to one of its models, as far as the run recorded them."""
    noted = run.notes.get("left_out", {})
    return frozenset({*noted.get(model, ()), *noted.get(f"{model} (called)", ())})


def find_dropped_parameters_to_mention(
    provider: str | None, parameters: Mapping[str, Any], dropped: Iterable[str]
) -> list[str]:
    """Return the dropped parameters that deserve a note.

    The user's own function or command need not accept the default parameters, which the user did not set.

    >>> find_dropped_parameters_to_mention("python", {"temperature": 0.7, "seed": 42}, ["seed", "temperature"])
    ['temperature']
    """
    if provider not in _USER_CODE_PROVIDERS:
        return list(dropped)
    defaults = DEFAULT_PARAMETERS
    return [name for name in dropped if name not in defaults or parameters.get(name, defaults[name]) != defaults[name]]


class ResultTally:
    """Counts results as they arrive.

    >>> from pramana.model import Check, Facets, ResultKey, Reply
    >>> case = Case("a-1", "test_case", (), Facets("factual", "easy"))
    >>> check = Check("contains", "1", Outcome.PASSED, "found")
    >>> tally = ResultTally()
    >>> tally.add(case, Result(ResultKey("sha256:…", "gpt-5"), "a-1", Reply("Paris"), None, (check,), None, None))
    >>> tally.summary().by["category"]["factual"].value
    1.0
    """

    @classmethod
    def for_run(cls, run: Run) -> "ResultTally":
        """Return an empty tally for the results of a run."""
        plan = run.plan
        return cls(
            repeats=plan.repeats,
            models=len(plan.targets),
            variants=len(plan.variants),
            name_judge=canonical_judge_name,
            spoken=plan.variants != ("text",),
            providers={each.typed: each.provider for each in plan.targets},
            parameters=plan.parameters,
            calibrations=run.calibrations,
        )

    def __init__(
        self,
        *,
        repeats: int = 1,
        models: int = 1,
        variants: int = 1,
        name_judge: Callable[[str], str] = keep_judge_name,
        spoken: bool = False,
        providers: Mapping[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        calibrations: Iterable[JudgeCalibration] = (),
    ) -> None:
        """Create an empty tally.

        `repeats`, `models` and `variants` multiply to the results of each case, which count as one case in intervals.
        `name_judge` returns the canonical name of a judge, `spoken` means that there are calls, `providers` maps
        models to providers, `parameters` are those that the run sends, and `calibrations` say how far judges agree with
        people.
        """
        self._repeats = max(1, repeats)
        self._overall = [0] * len(_OUTCOMES)
        self._by: dict[str, dict[Dimension, dict[str, list[int]]]] = {}
        """The rows of each model; their sums are the rows of all models."""
        self._models = models
        self._variants_by_row: dict[tuple[str, str], set[tuple[str, str]]] | None = (
            {} if models * variants > 1 else None
        )
        """By row, the pairs of model and variant of its verdicts; None where there is only one pair."""
        self._input, self._output, self._cost, self._judge_cost = KnownTotal(), KnownTotal(), KnownTotal(), KnownTotal()
        self._judge_tokens, self._judges, self._judged_again = KnownTotal(), JudgeTally(name_judge, calibrations), 0
        self._latency, self._first_token = array("d"), array("d")
        self._failures: list[FailedResult] = []
        self._reasons: dict[tuple[Outcome, str], OutcomeReason] = {}
        """By kind: texts that differ only in numbers are the same reason, except messages of providers."""
        self._messages: Counter[str] = Counter()
        """By kind, how many messages are counted separately."""
        self._undecided: dict[str, dict[Outcome, NamedCases]] = {}
        self._dropped: Counter[tuple[str, str]] = Counter()
        self._providers, self._parameters = providers or {}, parameters or {}
        self._cached = 0
        self._engines: set[str] = set()
        self._calls = CallTally(self._repeats) if spoken else None
        self._scores, self._rubric = ScoreTally(), RubricTally()
        self._repeated = RepeatTally(self._repeats) if self._repeats > 1 else None
        self._per_model = self._repeats * max(1, variants)

    @property
    def has_judges(self) -> bool:
        """Whether a judge gave any of the verdicts."""
        return self._judges.has_judges

    def set_calibrations(self, calibrations: Iterable[JudgeCalibration]) -> None:
        """Set how far judges agree with people, after new labels."""
        self._judges.set_calibrations(calibrations)

    def add(self, case: Case, result: Result) -> None:
        """Count one result."""
        outcome = result.outcome
        if self._calls:
            self._calls.add(result)
        if len(self._engines) < MAX_ENGINE_LINES:
            self._engines.update(iterate_engine_lines_of_result(result))
        place, by = _OUTCOME_INDEX[outcome], self._by.get(result.key.model)
        if by is None:
            by = self._by[result.key.model] = {name: {} for name in DIMENSIONS}
        self._overall[place] += 1
        rows = _list_dimension_values(case, result)
        for dimension, value in rows:
            _count_outcome(by[dimension], value, place)
        is_rated = False
        for check in result.checks:
            is_rated = is_rated or check.name == RUBRIC
            if check.decides:
                _count_outcome(by["check"], check.name, _OUTCOME_INDEX[check.outcome])
                self._judges.add(result.key.model, check)
            if check.evidence:
                self._add_check_cost(check)
            if not check.decides or "pass_at" in check.evidence:
                self._scores.add(result.key.model, check)
        if is_rated:
            self._rubric.add(result.key.model, case.facets, result.checks)
        if self._variants_by_row is not None:
            self._note_variants(self._variants_by_row, rows, result)
        if self._repeated and outcome in SCORED:
            key = result.key
            self._repeated.add(key.model, key.case, key.variant, is_passed=outcome is Outcome.PASSED)
        if outcome not in (Outcome.PASSED, Outcome.FAILED):
            self._count_reason(result)
            self._undecided.setdefault(result.key.model, {}).setdefault(outcome, NamedCases()).add(result.case_id)
        elif outcome is Outcome.FAILED and len(self._failures) < MAX_LISTED_FAILED_RESULTS:
            key = result.key
            reason = explain_outcome(result)[:MAX_REASON_LENGTH]
            self._failures.append(FailedResult(result.case_id, key.model, key.variant, key.repeat, reason))
        reply = result.reply
        if reply is None:
            return
        for parameter in reply.dropped:
            self._dropped[result.key.model, parameter] += 1
        if reply.cached:
            self._cached += 1
            return
        self._input.add(reply.usage.input_tokens)
        self._output.add(reply.usage.output_tokens)
        self._cost.add(reply.cost_usd)
        if reply.call is None:  # a call lasts as long as people talk; `voice` has the waiting times
            self._latency.append(reply.total_s)
        if reply.first_token_s is not None:
            self._first_token.append(reply.first_token_s)

    def _count_reason(self, result: Result) -> None:
        outcome, text = result.outcome, explain_outcome(result)[:MAX_REASON_LENGTH]
        pattern = _NUMBER_RE.sub("…", text)
        kind = (outcome, pattern)
        if outcome is Outcome.ERRORED and result.failure and result.failure.code == _PROVIDER_ERROR_CODE:
            if (outcome, text) in self._reasons or self._messages[pattern] < MAX_SIMILAR_MESSAGES:
                kind = (outcome, text)
            text = kind[1]
        if kind not in self._reasons and len(self._reasons) >= MAX_REASONS:
            kind, text = (outcome, OTHER_REASONS), OTHER_REASONS
        elif kind not in self._reasons:
            self._messages[pattern] += 1
        reason = self._reasons.setdefault(kind, OutcomeReason(outcome=outcome, text=text))
        reason.count += 1
        reason.add(result.case_id)

    def _note_variants(
        self,
        variants_by_row: dict[tuple[str, str], set[tuple[str, str]]],
        rows: Iterable[tuple[str, str]],
        result: Result,
    ) -> None:
        """Record the rows of a verdict: a row of calls alone has fewer results per case than the whole run."""
        checked = [("check", check.name) for check in result.checks if check.outcome in SCORED]
        for row in [*checked, ("", ""), *rows] if result.outcome in SCORED else checked:
            variants_by_row.setdefault(row, set()).add((result.key.model, result.key.variant))

    def _max_results_per_case(self, dimension: str, value: str, model: str | None = None) -> int:
        ways = (self._variants_by_row or {}).get((dimension, value), ())
        return self._repeats * max(1, sum(model in (None, each) for each, _ in ways))

    def _pool_models(self) -> dict[Dimension, dict[str, list[int]]]:
        """Return the rows summed over all models."""
        if len(self._by) == 1:
            return next(iter(self._by.values()))
        found: dict[Dimension, dict[str, list[int]]] = {name: {} for name in DIMENSIONS}
        for by in self._by.values():
            for name, rows in by.items():
                for value, counts in rows.items():
                    sums = found[name].setdefault(value, [0] * len(_OUTCOMES))
                    sums[:] = map(int.__add__, sums, counts)
        return found

    def _make_rates(self, dimension: str, rows: Mapping[str, list[int]], model: str | None = None) -> dict[str, Rate]:
        """Return the rates of a dimension by value, in order, for one model or for all."""
        ordered = sorted(rows.items(), key=lambda row: (_DIFFICULTY_ORDER.get(row[0], 0), row[0]))
        return {
            value: _make_rate(counts, self._max_results_per_case(dimension, value, model)) for value, counts in ordered
        }

    def _add_check_cost(self, check: Check) -> None:
        """Count the cost of a check, and of the checks that it replaced."""
        evidence, replaced = check.evidence, check.evidence.get(OTHER_CHECKS_COST_KEY)
        if "cost_usd" in evidence or evidence.get("answers"):  # the check used an embedder or a judge
            self._judge_cost.add(_as_finite_number(evidence.get("cost_usd")))
            self._judge_tokens.add(_as_finite_number(evidence.get("tokens")))
        if isinstance(replaced, Mapping):
            self._judged_again += 1
            self._judge_cost.add(_as_finite_number(replaced.get("cost_usd")))
            self._judge_tokens.add(_as_finite_number(replaced.get("tokens")))

    def summary(self) -> Summary:
        """Return the summary so far; results may be added afterwards."""
        return Summary(
            overall=_make_rate(self._overall, self._max_results_per_case("", "")),
            by={name: self._make_rates(name, rows) for name, rows in self._pool_models().items()},
            input_tokens=copy(self._input),
            output_tokens=copy(self._output),
            cost_usd=KnownTotal(
                self._cost.known + self._judge_cost.known, self._cost.unknown + self._judge_cost.unknown
            ),
            judge_cost_usd=copy(self._judge_cost),
            judge_tokens=copy(self._judge_tokens),
            latency=_make_percentiles(self._latency, self._max_results_per_case("", "")),
            first_token=_make_percentiles(self._first_token, self._max_results_per_case("", "")),
            reasons=tuple(sorted(map(copy, self._reasons.values()), key=lambda reason: -reason.count)),
            undecided={
                model: {outcome: copy(each) for outcome, each in kinds.items()}
                for model, kinds in self._undecided.items()
            },
            cached=self._cached,
            not_reproducible=tuple(
                f"{model} does not accept {parameter}: {pluralise(count, 'request')} sent without it, "
                "so another run may get other replies"
                for (model, parameter), count in sorted(self._dropped.items())
                if find_dropped_parameters_to_mention(self._providers.get(model), self._parameters, [parameter])
            ),
            judged_again=self._judged_again,
            judges=self._judges.count_verdicts(),
            mixed_judges=self._judges.mixed_judge_sentences(),
            judged_by=self._judges.judge_sentence(),
            calibrations=self._judges.list_calibrations(),
            failures=tuple(self._failures),
            voice=self._calls.summarise_voice() if self._calls else None,
            engines=parse_distinct_engines(self._engines),
            scores=self._scores.summarise(self._per_model),
            repeats=self._repeated.summarise() if self._repeated else (),
            rubric=self._rubric.averages(self._per_model),
            by_model={
                model: {name: self._make_rates(name, by[name], model) for name in BREAKDOWNS}
                for model, by in sorted(self._by.items())
            }
            if self._models > 1
            else {},
        )


def explain_outcome(result: Result) -> str:
    """Explain the outcome of a result: its failure, or the reasons of the checks that decided it.

    >>> from pramana.model import Failure, ResultKey
    >>> failure = Failure("unavailable", "no answer in 60 s")
    >>> explain_outcome(Result(ResultKey("sha256:…", "m"), "a-1", None, failure, (), None, None))
    'no answer in 60 s'
    """
    if result.reply is None and result.outcome is not Outcome.SKIPPED:
        return result.failure.message if result.failure else "no reply, and no reason was recorded"
    if not result.checks:
        return result.failure.message if result.failure else "no check applied to the reply"
    outcome, deciding = result.outcome, [check for check in result.checks if check.decides]
    if not deciding:
        names = ", ".join(check.name for check in result.checks)
        return (
            f"no check decides whether the reply passes: {names} only measured; set pass_at, or add a check to the case"
        )
    return "; ".join(dict.fromkeys(check.reason for check in deciding if check.outcome is outcome))


def _as_finite_number(value: object) -> float | None:
    return (
        value if isinstance(value, float | int) and -_MAX_VALID_NUMBER < value < _MAX_VALID_NUMBER else None
    )  # NaN fails this too


def _list_dimension_values(case: Case, result: Result) -> list[tuple[Dimension, str]]:
    """Return the rows in which a result counts, besides those of its checks."""
    facets, key = case.facets, result.key
    rows: list[tuple[Dimension, str]] = [("category", facets.category), ("difficulty", facets.difficulty)]
    rows += [("model", key.model), ("variant", key.variant), *(("tag", tag) for tag in set(facets.tags))]
    return rows if facets.language is None else [*rows, ("language", facets.language)]


def _count_outcome(rows: dict[str, list[int]], value: str, outcome_index: int) -> None:
    counts = rows.get(value)
    if counts is None:
        counts = rows[value] = [0] * len(_OUTCOMES)
    counts[outcome_index] += 1


def _make_rate(outcome_counts: list[int], results_per_case: int) -> Rate:
    return Rate(
        **dict(zip((outcome.value for outcome in _OUTCOMES), outcome_counts, strict=True)), per_case=results_per_case
    )


def _make_percentiles(values: "array[float]", results_per_case: int) -> TimePercentiles:
    # Sort in pieces and merge into an array: one list of all numbers would take four times the memory.
    pieces = [
        array("d", sorted(values[start : start + _SORT_CHUNK_SIZE]))
        for start in range(0, len(values), _SORT_CHUNK_SIZE)
    ]
    ordered = array("d", merge(*pieces))
    return TimePercentiles(
        len(ordered),
        *(percentile(ordered, share) for share in (0.5, 0.95, 0.99)),
        *(bound_percentile(ordered, len(ordered) / results_per_case, share) for share in (0.95, 0.99)),
    )
