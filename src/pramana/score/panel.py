"""Panels: several judges and one question in; the verdict of their majority out, with each judge's verdict in evidence.

A verdict needs more than half of the panel, so that two judges must agree and a judge without a verdict counts for
neither side. Without such a majority the check is `unscored`, and its reason says how the judges decided.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pramana.model import Case, Check, Outcome, Reply
from pramana.score.judge import Judge, shorten_reason

PANEL_SEPARATOR = " + "
"""Between the names of the judges in a check's evidence."""
ScoreByOne = Callable[[Judge, Case, Reply], Awaitable[Check]]
_WORDS = {Outcome.PASSED: "YES", Outcome.FAILED: "NO"}
_MAX_REASON_OF_JUDGE = 100
"""Characters of each judge's reason in the reason of the panel; the evidence has all of it."""


async def score_by_panel(score: ScoreByOne, judges: Sequence[Judge], case: Case, reply: Reply) -> Check:
    """Score a reply by one judge, or by the majority of several, which are called at the same time."""
    if len(judges) == 1:
        return await score(judges[0], case, reply)
    found = await asyncio.gather(*(score(judge, case, reply) for judge in judges), return_exceptions=True)
    if errors := [each for each in found if isinstance(each, BaseException)]:
        raise errors[0]  # only errors that end the run are raised; the other calls have ended by now
    return combine_checks(judges, [each for each in found if isinstance(each, Check)])


def combine_checks(judges: Sequence[Judge], checks: Sequence[Check]) -> Check:
    """Return the check of a panel from the check of each judge."""
    counts = {outcome: sum(each.outcome is outcome for each in checks) for outcome in _WORDS}
    decided = next((outcome for outcome, count in counts.items() if 2 * count > len(checks)), Outcome.UNSCORED)
    votes = "; ".join(
        f"{judge.typed_name} {_describe_vote(check)}" for judge, check in zip(judges, checks, strict=True)
    )
    said = (
        f"the panel has no majority: {votes}"
        if decided is Outcome.UNSCORED
        else f"{counts[decided]} of {len(checks)} judges say {_WORDS[decided]}: {votes}"
    )
    value = next((each.value for each in checks if each.outcome is decided), None)
    return Check(checks[0].name, checks[0].version, decided, said, value, _combine_evidence(judges, checks, decided))


def _describe_vote(check: Check) -> str:
    word = _WORDS.get(check.outcome)
    return f"says {word}" if word else f"gave no verdict ({shorten_reason(check.reason, _MAX_REASON_OF_JUDGE)})"


def _combine_evidence(judges: Sequence[Judge], checks: Sequence[Check], decided: Outcome) -> dict[str, Any]:
    """Return the names, answers and costs of all judges, with the verdict and the evidence of each."""
    evidence = [check.evidence for check in checks]
    served = dict.fromkeys(str(each["served_model"]) for each in evidence if each.get("served_model"))
    panel = [
        {
            "judge": judge.typed_name,
            "verdict": check.outcome.value,
            "reason": check.reason,
            **_without_judge(check.evidence),
        }
        for judge, check in zip(judges, checks, strict=True)
    ]
    found: dict[str, Any] = {
        "judge": PANEL_SEPARATOR.join(judge.typed_name for judge in judges),
        "answers": [
            f"{judge.typed_name}: {answer}"
            for judge, each in zip(judges, evidence, strict=True)
            for answer in _list_answers(each)
        ],
        "served_model": PANEL_SEPARATOR.join(served) or None,
        "panel": panel,
    }
    for name in ("cost_usd", "tokens"):  # a judge whose first request failed has neither
        if given := [each[name] for each in evidence if name in each]:
            found[name] = _sum_if_known(given)
    agreeing = [each.evidence for each in checks if each.outcome is decided]
    if ratings := _average_ratings([each.get("scores") for each in agreeing]):
        found["scores"] = ratings
    return found


def _without_judge(evidence: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in evidence.items() if name != "judge"}


def _list_answers(evidence: Mapping[str, object]) -> list[str]:
    given = evidence.get("answers")
    return [str(each) for each in given] if isinstance(given, list) else []


def _sum_if_known(values: Sequence[object]) -> float | None:
    known = [each for each in values if isinstance(each, int | float)]
    return sum(known) if len(known) == len(values) else None


def _average_ratings(ratings: Sequence[object]) -> dict[str, int]:
    """Return the mean of each rating, rounded, over the judges that gave it."""
    found: dict[str, list[int]] = {}
    for each in ratings:
        for name, value in each.items() if isinstance(each, Mapping) else ():
            if isinstance(value, int):
                found.setdefault(str(name), []).append(value)
    return {name: round(sum(values) / len(values)) for name, values in found.items()}
