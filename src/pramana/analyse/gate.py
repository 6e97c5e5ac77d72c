"""The exit code of a run and the reason: a summary and a minimum pass rate in, a code and one sentence out.

The minimum is decided by bounds, so that a model neither passes on unchecked replies nor fails because of a provider's
outage; and for each model separately, so that a good one does not hide a bad one:

| with `--fail-under`, for one model                               | code |
| ---------------------------------------------------------------- | ---- |
| met even if every result without a verdict is counted as failed  | 0    |
| missed even if every one of them is counted as passed            | 1    |
| neither                                                          | 4    |

With `--confidence`, chance counts too: the minimum is met if the exact lower bound of the pass rate reaches it, missed
if the upper bound stays below it, each at that confidence and with cases as the units, and otherwise the code is 4.
The results that a stopped run still lacks have no verdict either. The worst of several models decides: 1 if any missed
the minimum, else 4 if any is undecided, else 0. Without a minimum: 0 if all cases ended and none errored, else 3.
Unscored and skipped results alone never change the code, but the sentence reports a run without any verdict.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from pramana.analyse.mean_bounds import rate_lower_bound
from pramana.analyse.numbers import pluralise, shorten_name
from pramana.analyse.summary import NamedCases, Rate, Summary
from pramana.model import Outcome

GOOD, BAD, UNFINISHED, INCONCLUSIVE = 0, 1, 3, 4
_EXIT_CODES_WORST_FIRST = (BAD, UNFINISHED, INCONCLUSIVE, GOOD)
MAX_NAMED_IN_SENTENCE = 10
"""The most cases or models that a sentence names; further ones are counted."""


class ExitDecision(Struct, frozen=True):
    """An exit code, and the sentence that explains it."""

    exit_code: int
    sentence: str


def decide_exit(
    summary: Summary, minimum: float | None, missing_counts: Mapping[str, int], confidence: float | None = None
) -> ExitDecision:
    """Decide the exit code. `missing_counts` maps every model of the plan to the number of its missing results.

    >>> from pramana.analyse.summary import ResultTally
    >>> decide_exit(ResultTally().summary(), None, {"gpt-5": 0}).exit_code
    0
    """
    if minimum is None:
        return _decide_without_minimum(summary, sum(missing_counts.values()))
    by_model, several = summary.by["model"], len(missing_counts) > 1
    decisions = [
        _decide_model_exit(
            by_model.get(model, Rate()),
            minimum,
            left,
            summary.undecided.get(model, {}),
            f" of {model}" if several else "",
            confidence,
        )
        for model, left in missing_counts.items()
    ]
    code = choose_worst_exit_code(each.exit_code for each in decisions) if decisions else INCONCLUSIVE
    deciding = [each.sentence for each in decisions if each.exit_code == code] or ["no case was run"]
    more = (
        f"; likewise for {len(deciding) - MAX_NAMED_IN_SENTENCE:,} more models"
        if len(deciding) > MAX_NAMED_IN_SENTENCE
        else ""
    )
    return ExitDecision(
        code, f"{_format_minimum(minimum)} must pass: {'; '.join(deciding[:MAX_NAMED_IN_SENTENCE])}{more}."
    )


def choose_worst_exit_code(codes: Iterable[int]) -> int:
    """Return the worst of several exit codes: 1 is worse than 3, 3 than 4, and 4 than 0.

    >>> choose_worst_exit_code([0, 4, 1]), choose_worst_exit_code([0, 4])
    (1, 4)
    """
    return min(codes, key=_EXIT_CODES_WORST_FIRST.index)


class MinimumCheck(Struct, frozen=True):
    """Whether a pass rate meets a required minimum, and the sentence that explains it."""

    is_met: bool
    sentence: str


def check_pass_rate(rate: Rate, expected_count: int, minimum: float, confidence: float | None = None) -> MinimumCheck:
    """Decide whether a pass rate is at least the minimum; those of `expected_count` without a verdict count as failed.

    With a confidence, the exact lower bound of the pass rate decides, with cases as the units.

    >>> check_pass_rate(Rate(passed=19, failed=1), 20, 0.9).is_met
    True
    >>> check_pass_rate(Rate(passed=19, failed=1), 20, 0.9, 0.95).sentence
    '19 of 20 passed (95 %): at 95 % confidence the pass rate is at least 78.3 %, and 90 % is required'
    """
    total = max(expected_count, rate.total)
    if not total:
        return MinimumCheck(is_met=False, sentence="no case was run")
    share, without = rate.passed / total, total - rate.scored_count
    said = f"{rate.passed:,} of {total:,} passed ({_format_observed_rate(share, minimum)})"
    said += f", with {without:,} without a verdict counted as failed" if without else ""
    if confidence is None:
        return MinimumCheck(share >= minimum, f"{said}, and {_format_minimum(minimum)} is required")
    lowest = _bound_pass_rate(rate, total, confidence).low
    bound = f"at {_format_minimum(confidence)} confidence the pass rate is at least {_format_lower_bound(lowest)}"
    return MinimumCheck(lowest >= minimum, f"{said}: {bound}, and {_format_minimum(minimum)} is required")


class _RateBounds(NamedTuple):
    """The lowest and the highest pass rate that are considered possible."""

    low: float
    high: float


def _bound_pass_rate(rate: Rate, total: int, confidence: float | None) -> _RateBounds:
    """Return the bounds of a pass rate; results without a verdict count as failed for the lower, else as passed.

    With a confidence, each is the exact bound at that confidence; without one, what was observed.
    """
    if confidence is None:
        return _RateBounds(rate.passed / total, (total - rate.failed) / total)
    cases = total / rate.per_case
    return _RateBounds(
        rate_lower_bound(rate.passed / rate.per_case, cases, confidence),
        1 - rate_lower_bound(rate.failed / rate.per_case, cases, confidence),
    )


def _format_lower_bound(share: float) -> str:
    return _format_minimum(math.floor(share * 1000) / 1000)  # rounded down: a lower bound must not be overstated


def _format_upper_bound(share: float) -> str:
    return _format_minimum(math.ceil(share * 1000) / 1000)


def _decide_without_minimum(summary: Summary, missing_count: int) -> ExitDecision:
    rate = summary.overall
    if missing_count:
        return ExitDecision(UNFINISHED, f"The run did not finish: {pluralise(missing_count, 'result')} left.")
    if rate.errored:
        return ExitDecision(UNFINISHED, f"{pluralise(rate.errored, 'result')} errored: {_describe_errors(summary)}.")
    if rate.total == rate.skipped:
        return ExitDecision(GOOD, _explain_no_verdicts(summary))
    if not rate.scored_count:
        return ExitDecision(GOOD, make_no_verdicts_sentence(rate))
    return ExitDecision(GOOD, f"{pluralise(rate.total, 'result')}, no errors.")


def make_no_verdicts_sentence(rate: Rate) -> str:
    """Return a sentence if no result has a verdict; empty if one has, or if there are no results.

    >>> make_no_verdicts_sentence(Rate(unscored=2, skipped=1)), make_no_verdicts_sentence(Rate(passed=1))
    ('No verdicts: 0 of 3 results passed or failed (2 unscored, 1 skipped).', '')
    """
    if rate.scored_count or not rate.total:
        return ""
    counts = ((each.value, getattr(rate, each.value)) for each in (Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED))
    apart = ", ".join(f"{count:,} {name}" for name, count in counts if count)
    return f"No verdicts: 0 of {pluralise(rate.total, 'result')} passed or failed ({apart})."


def _explain_no_verdicts(summary: Summary) -> str:
    """Return a sentence for a complete run without verdicts, with advice on what to do."""
    skipped = summary.overall.skipped
    if not skipped:
        return "No case was run."
    those = "the only result was" if skipped == 1 else f"all {pluralise(skipped, 'result')} were"
    advice = ""
    if any("understand" in each.text or "STT" in each.text for each in summary.reasons):
        advice = (
            " Test an agent that recognises speech in this language itself, or run only English cases: --language en."
        )
    elif "text" in summary.by["variant"] and len(summary.by["variant"]) == 1:
        advice = " Send the cases as speech: --modality voice."
    return f"No case was run: {those} skipped.{advice}"


def _decide_model_exit(
    rate: Rate,
    minimum: float,
    missing_count: int,
    undecided: Mapping[Outcome, NamedCases],
    model: str,
    confidence: float | None,
) -> ExitDecision:
    """Decide for one model; the sentence lacks its beginning and its full stop."""
    total, without = rate.total + missing_count, rate.undecided_count + missing_count
    if not total:
        return ExitDecision(INCONCLUSIVE, f"no case was run{model}")
    if confidence is not None:
        return _decide_with_confidence(rate, total, minimum, model, confidence)
    worst, best = _bound_pass_rate(rate, total, None)
    if worst >= minimum:
        note = f", even with {without:,} without a verdict counted as failed" if without else ""
        return ExitDecision(
            GOOD, f"{_format_observed_rate(worst, minimum)} of {pluralise(total, 'result')}{model} did{note}"
        )
    if best < minimum:
        note = f", even with {without:,} without a verdict counted as passed" if without else ""
        return ExitDecision(
            BAD, f"{_format_observed_rate(best, minimum)} of {pluralise(total, 'result')}{model} did{note}"
        )
    parts = [
        f"{getattr(rate, outcome.value):,} {outcome.value} ({_list_cases(undecided[outcome])})"
        for outcome in (Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED)
        if outcome in undecided
    ]
    parts += [f"{missing_count:,} not run yet"] if missing_count else []
    return ExitDecision(
        INCONCLUSIVE,
        f"between {_format_observed_rate(worst, minimum)} and {_format_observed_rate(best, minimum)}{model} did, "
        f"because {pluralise(without, 'result')} "
        f"of {total:,} {'has' if without == 1 else 'have'} no verdict: {', '.join(parts)}",
    )


def _decide_with_confidence(rate: Rate, total: int, minimum: float, model: str, confidence: float) -> ExitDecision:
    """Decide for one model by the bounds of its pass rate; the sentence lacks its beginning and its full stop."""
    low, high = _bound_pass_rate(rate, total, confidence)
    sure, without = f"at {_format_minimum(confidence)} confidence", total - rate.scored_count
    observed = f"{rate.passed:,} of {pluralise(total, 'result')}{model} did"
    observed += f", {without:,} without a verdict" if without else ""
    if low >= minimum:
        return ExitDecision(GOOD, f"{observed}; {sure} the pass rate is at least {_format_lower_bound(low)}")
    if high < minimum:
        return ExitDecision(BAD, f"{observed}; {sure} the pass rate is at most {_format_upper_bound(high)}")
    between = f"between {_format_lower_bound(low)} and {_format_upper_bound(high)}"
    return ExitDecision(
        INCONCLUSIVE, f"{observed}; {sure} the pass rate is {between}, so more cases are needed to decide"
    )


def _describe_errors(summary: Summary) -> str:
    reasons = [each for each in summary.reasons if each.outcome is Outcome.ERRORED]
    names = list(dict.fromkeys(case for each in reasons for case in each.cases))
    return _list_cases(NamedCases(tuple(names), any(each.more for each in reasons)))


def _list_cases(cases: NamedCases) -> str:
    more = " and more" if cases.more or len(cases.cases) > MAX_NAMED_IN_SENTENCE else ""
    return ", ".join(shorten_name(case) for case in cases.cases[:MAX_NAMED_IN_SENTENCE]) + more


def _format_minimum(share: float) -> str:
    """Format a required share as a percentage.

    >>> _format_minimum(0.9), _format_minimum(0.8999), _format_minimum(1)
    ('90 %', '89.99 %', '100 %')
    """
    return f"{float(f'{share * 100:.6g}'):g} %"


def _format_observed_rate(share: float, minimum: float) -> str:
    """Format an observed share as a percentage, to a tenth: never rounded up to a minimum that it misses.

    >>> _format_observed_rate(2 / 3, 0.9), _format_observed_rate(0.8999, 0.9), _format_observed_rate(0.57, 0.57)
    ('66.7 %', '89.9 %', '57 %')
    """
    shown = round(share * 100, 1)
    if share < minimum <= shown / 100:
        shown = math.floor(share * 1000) / 10
    return f"{shown:g} %"
