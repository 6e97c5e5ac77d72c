"""What a run's exit code is, and why: a summary and a bar in, a code and one sentence out.

A bar is decided by bounds, so that nobody passes by not being checked and nobody fails by a provider's bad hour:

| with `--fail-under`                                              | code |
| ---------------------------------------------------------------- | ---- |
| met even if every result without a verdict is counted as failed  | 0    |
| missed even if every one of them is counted as passed            | 1    |
| neither, and the run ended                                       | 4    |
| neither, and the run did not end: what is left could decide      | 3    |

Results that an unfinished run still owes are without a verdict too. Without a bar: 0 if all cases ended and none
errored, else 3; unscored and skipped results alone never change it.
"""

from dataclasses import dataclass

from pramana.analyse.summary import Summary
from pramana.model import Outcome

GOOD, BAD, UNFINISHED, INCONCLUSIVE = 0, 1, 3, 4
NAMED = 10
"""Cases a sentence names; more are counted."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An exit code, and the sentence that explains it."""

    code: int
    sentence: str


def exit_code(summary: Summary, fail_under: float | None, *, ended: bool, missing: int = 0) -> Decision:
    """Decide how the program exits. `missing` counts the results that a run which has not ended still owes.

    >>> from pramana.analyse.summary import Tally
    >>> exit_code(Tally().summary(), None, ended=True).code
    0
    """
    rate = summary.overall
    if fail_under is None:
        if not ended:
            return Decision(UNFINISHED, f"The run did not end: {_owed(missing)}.")
        if rate.errored:
            return Decision(UNFINISHED, f"{_results(rate.errored)} errored: {_named(summary, Outcome.ERRORED)}.")
        return Decision(GOOD, f"All {_results(rate.total)} ended, none errored.")
    bar = f"{_percent(fail_under)} must pass"
    total = rate.total + (0 if ended else missing)
    if not ended and not missing:
        return Decision(UNFINISHED, f"{bar}: the run did not end, and how much is left is not known.")
    if not total:
        return Decision(INCONCLUSIVE, f"{bar}: nothing was asked.")
    undecided = total - rate.scored
    worst, best = rate.passed / total, (rate.passed + undecided) / total
    if worst >= fail_under:
        note = f", even with {undecided:,} without a verdict counted as failed" if undecided else ""
        return Decision(GOOD, f"{bar}: {_percent(worst)} of {_results(total)} did{note}.")
    if best < fail_under:
        note = f", even with {undecided:,} without a verdict counted as passed" if undecided else ""
        return Decision(BAD, f"{bar}: {_percent(best)} of {_results(total)} did{note}.")
    parts = [
        f"{count:,} {outcome.value} ({_named(summary, outcome)})"
        for outcome in (Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED)
        if (count := getattr(rate, outcome.value))
    ]
    if not ended:
        parts.append(f"{missing:,} not asked yet")
    return Decision(
        INCONCLUSIVE if ended else UNFINISHED,
        f"{bar}: between {_percent(worst)} and {_percent(best)} did, because {_results(undecided)} "
        f"of {total:,} {'has' if undecided == 1 else 'have'} no verdict: {', '.join(parts)}.",
    )


def _named(summary: Summary, outcome: Outcome) -> str:
    reasons = [each for each in summary.reasons if each.outcome is outcome]
    names = list(dict.fromkeys(case for each in reasons for case in each.cases))
    more = " and more" if len(names) > NAMED or any(each.more for each in reasons) else ""
    return ", ".join(names[:NAMED]) + more


def _owed(missing: int) -> str:
    return f"{_results(missing)} left" if missing else "how much is left is not known"


def _results(count: int) -> str:
    return f"{count:,} result{'' if count == 1 else 's'}"


def _percent(share: float) -> str:
    """Return a share as a percentage that never rounds to a bar it does not reach.

    >>> _percent(0.9), _percent(0.89999), _percent(1)
    ('90 %', '89.999 %', '100 %')
    """
    return f"{float(f'{share * 100:.6g}'):g} %"
