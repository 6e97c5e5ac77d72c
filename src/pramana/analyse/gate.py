"""The exit code of a run and the reason: a summary and a minimum pass rate in, a code and one sentence out.

The minimum is decided by bounds, so that a model neither passes on unchecked replies nor fails because of a provider's
outage; and for each model separately, so that a good one does not hide a bad one:

| with `--fail-under`, for one model                               | code |
| ---------------------------------------------------------------- | ---- |
| met even if every result without a verdict is counted as failed  | 0    |
| missed even if every one of them is counted as passed            | 1    |
| neither                                                          | 4    |

The results that a stopped run still lacks have no verdict either. The worst of several models decides: 1 if any missed
the minimum, else 4 if any is undecided, else 0. Without a minimum: 0 if all cases ended and none errored, else 3.
Unscored and skipped results alone never change the code, but the sentence reports a run without any verdict.
"""

import math
from collections.abc import Mapping

from msgspec import Struct

from pramana.analyse.intervals import exact_lower_bound
from pramana.analyse.numbers import pluralise, shorten_name
from pramana.analyse.summary import NamedCases, Rate, Summary
from pramana.model import Outcome

GOOD, BAD, UNFINISHED, INCONCLUSIVE = 0, 1, 3, 4
_WORST_FIRST = (BAD, INCONCLUSIVE, GOOD)
MAX_NAMED = 10
"""The most cases or models that a sentence names; further ones are counted."""


class Decision(Struct, frozen=True):
    """An exit code, and the sentence that explains it."""

    code: int
    sentence: str


def decide_exit(summary: Summary, fail_under: float | None, missing: Mapping[str, int]) -> Decision:
    """Decide the exit code. `missing` maps every model of the plan to the number of its missing results.

    >>> from pramana.analyse.summary import Tally
    >>> decide_exit(Tally().summary(), None, {"gpt-5": 0}).code
    0
    """
    if fail_under is None:
        return _decide_without_minimum(summary, sum(missing.values()))
    by_model, several = summary.by["model"], len(missing) > 1
    decisions = [
        _decide_model(
            by_model.get(model, Rate()),
            fail_under,
            left,
            summary.undecided.get(model, {}),
            f" of {model}" if several else "",
        )
        for model, left in missing.items()
    ]
    code = min((each.code for each in decisions), key=_WORST_FIRST.index, default=INCONCLUSIVE)
    deciding = [each.sentence for each in decisions if each.code == code] or ["no case was run"]
    more = f"; likewise for {len(deciding) - MAX_NAMED:,} more models" if len(deciding) > MAX_NAMED else ""
    return Decision(code, f"{_format_minimum(fail_under)} must pass: {'; '.join(deciding[:MAX_NAMED])}{more}.")


class Requirement(Struct, frozen=True):
    """Whether a pass rate meets a required minimum, and the sentence that explains it."""

    met: bool
    sentence: str


def check_pass_rate(rate: Rate, expected: int, minimum: float, confidence: float | None = None) -> Requirement:
    """Decide whether a pass rate is at least the minimum; those of `expected` without a verdict count as failed.

    With a confidence, the exact lower bound of the pass rate decides, with cases as the units.

    >>> check_pass_rate(Rate(passed=19, failed=1), 20, 0.9).met
    True
    >>> check_pass_rate(Rate(passed=19, failed=1), 20, 0.9, 0.95).sentence
    '19 of 20 passed (95 %): at 95 % confidence the pass rate is at least 78.3 %, and 90 % is required'
    """
    total = max(expected, rate.total)
    if not total:
        return Requirement(met=False, sentence="no case was run")
    share, without = rate.passed / total, total - rate.scored_count
    said = f"{rate.passed:,} of {total:,} passed ({_format_observed_rate(share, minimum)})"
    said += f", with {without:,} without a verdict counted as failed" if without else ""
    if confidence is None:
        return Requirement(share >= minimum, f"{said}, and {_format_minimum(minimum)} is required")
    lowest = exact_lower_bound(int(rate.passed / rate.per_case), max(1, total // rate.per_case), confidence)
    shown = math.floor(lowest * 1000) / 1000  # round down: a lower bound must not be overstated
    bound = f"at {_format_minimum(confidence)} confidence the pass rate is at least {_format_minimum(shown)}"
    return Requirement(lowest >= minimum, f"{said}: {bound}, and {_format_minimum(minimum)} is required")


def _decide_without_minimum(summary: Summary, missing: int) -> Decision:
    rate = summary.overall
    if missing:
        return Decision(UNFINISHED, f"The run did not finish: {pluralise(missing, 'result')} left.")
    if rate.errored:
        return Decision(UNFINISHED, f"{pluralise(rate.errored, 'result')} errored: {_describe_errors(summary)}.")
    if rate.total == rate.skipped:
        return Decision(GOOD, _explain_no_verdicts(summary))
    if not rate.scored_count:
        return Decision(GOOD, no_verdicts_sentence(rate))
    return Decision(GOOD, f"{pluralise(rate.total, 'result')}, no errors.")


def no_verdicts_sentence(rate: Rate) -> str:
    """Return a sentence if no result has a verdict; empty if one has, or if there are no results.

    >>> no_verdicts_sentence(Rate(unscored=2, skipped=1)), no_verdicts_sentence(Rate(passed=1))
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


def _decide_model(
    rate: Rate, minimum: float, missing: int, undecided: Mapping[Outcome, NamedCases], model: str
) -> Decision:
    """Decide for one model; the sentence lacks its beginning and its full stop."""
    total, without = rate.total + missing, rate.undecided_count + missing
    if not total:
        return Decision(INCONCLUSIVE, f"no case was run{model}")
    worst, best = rate.passed / total, (rate.passed + without) / total
    if worst >= minimum:
        note = f", even with {without:,} without a verdict counted as failed" if without else ""
        return Decision(
            GOOD, f"{_format_observed_rate(worst, minimum)} of {pluralise(total, 'result')}{model} did{note}"
        )
    if best < minimum:
        note = f", even with {without:,} without a verdict counted as passed" if without else ""
        return Decision(BAD, f"{_format_observed_rate(best, minimum)} of {pluralise(total, 'result')}{model} did{note}")
    parts = [
        f"{getattr(rate, outcome.value):,} {outcome.value} ({_list_cases(undecided[outcome])})"
        for outcome in (Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED)
        if outcome in undecided
    ]
    parts += [f"{missing:,} not run yet"] if missing else []
    return Decision(
        INCONCLUSIVE,
        f"between {_format_observed_rate(worst, minimum)} and {_format_observed_rate(best, minimum)}{model} did, "
        f"because {pluralise(without, 'result')} "
        f"of {total:,} {'has' if without == 1 else 'have'} no verdict: {', '.join(parts)}",
    )


def _describe_errors(summary: Summary) -> str:
    reasons = [each for each in summary.reasons if each.outcome is Outcome.ERRORED]
    names = list(dict.fromkeys(case for each in reasons for case in each.cases))
    return _list_cases(NamedCases(tuple(names), any(each.more for each in reasons)))


def _list_cases(cases: NamedCases) -> str:
    more = " and more" if cases.more or len(cases.cases) > MAX_NAMED else ""
    return ", ".join(shorten_name(case) for case in cases.cases[:MAX_NAMED]) + more


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
