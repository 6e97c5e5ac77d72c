"""Which answers stand against which: outcomes of two runs by case in; pairs, and what cannot be one, out.

A case is compared with itself, on as many repeats as have a verdict on both sides. Verdicts are compared when the same
judge gave them: a case whose check had another version before, or another judge, stands apart, since a change of the
judge is no change of the model. What the new run has no comparable verdict of could be a loss: `worst` holds the pairs
as they would be if every such answer had failed. Nothing is weighed here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pramana.model import Outcome

SCORED = (Outcome.PASSED, Outcome.FAILED)

Outcomes = Mapping[str, Sequence[Outcome]]
"""By case digest or test id, one outcome a repeat."""
_ALOUD = re.compile(r"(.*) \((voice[^()]*)\)", re.DOTALL)


def parted(key: str) -> tuple[str, str]:
    """Return which case a key stands for, and the way it was asked in; that is empty of what was typed.

    Where a side was asked in several ways, whoever pairs them up names the way behind the case.

    >>> parted("sha256:1 (voice+noise=10dB)"), parted("sha256:1")
    (('sha256:1', 'voice+noise=10dB'), ('sha256:1', ''))
    """
    found = _ALOUD.fullmatch(key)
    return (found[1], found[2]) if found else (key, "")


@dataclass(frozen=True, slots=True, order=True)
class Judged:
    """What gave a verdict: a check, and the model behind it where there is one.

    >>> str(Judged("llm_judge", "1", "openai:gpt-5")), str(Judged("contains", "1"))
    ('openai:gpt-5', 'contains 1')
    """

    check: str
    version: str
    by: str = ""
    """The judge, or who embeds; empty where no model is asked."""
    served: str = ""
    """The model that judge says has answered; empty where it does not say."""

    def __str__(self) -> str:
        return f"{self.by or self.in_full}{f' ({self.served})' if self.served else ''}"

    @property
    def in_full(self) -> str:
        """The check, its version, and who judged."""
        return f"{self.check} {self.version}{f' by {self.by}' if self.by else ''}"


Judges = Mapping[str, frozenset[Judged]]
"""By case, all that gave its verdicts; a case of which nobody knows is left out."""


class Over(NamedTuple):
    """Answers with a verdict that one side has more than the other, and how many of them passed."""

    passed: int = 0
    answers: int = 0


_NONE = Over()


@dataclass(frozen=True, slots=True)
class Pair:
    """One case that was compared: how many of its answers passed, of the same number on both sides."""

    case: str
    base_passed: int
    new_passed: int
    repeats: int
    base_over: Over = _NONE
    """What found no partner, and is not compared."""
    new_over: Over = _NONE

    @property
    def difference(self) -> float:
        return (self.new_passed - self.base_passed) / self.repeats


@dataclass(frozen=True, slots=True)
class Excluded:
    """One case that both have and that could not be compared, with every outcome it had."""

    case: str
    base: tuple[Outcome, ...]
    new: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Apart:
    """One case that had a verdict on both sides, and not of the same judge."""

    case: str
    base: frozenset[Judged]
    new: frozenset[Judged]


@dataclass(slots=True)
class Pairing:
    """The answers of two runs, side by side."""

    pairs: list[Pair] = field(default_factory=list)
    worst: list[Pair] = field(default_factory=list)
    """The same, had every answer that has no comparable verdict now failed."""
    excluded: list[Excluded] = field(default_factory=list)
    apart: list[Apart] = field(default_factory=list)
    """With verdicts of two judges; left out of the pairs unless any judge is good enough."""
    unpaired: int = 0
    """Answers to compared cases that were left out: without a verdict, or more than the other side has."""
    open: int = 0
    """Answers to compared cases, and to those that passed before, that have no comparable verdict now."""
    unanswered: int = 0
    """Of these, those that passed before and have no verdict now."""
    lost_sight_of: int = 0
    """Of these, those that passed before and have another judge's verdict now."""


def pair_up(
    base: Outcomes,
    new: Outcomes,
    *,
    same_cases: bool,
    new_repeats: int | None,
    base_judges: Judges,
    new_judges: Judges,
    any_judge: bool,
) -> Pairing:
    """Put the answers of two runs side by side; the parameters are those of `compare`."""
    made = Pairing()
    planned = max((1, *map(len, new.values()))) if new_repeats is None else new_repeats
    nobody: frozenset[Judged] = frozenset()
    for case, before in base.items():
        after = new.get(case)
        if after is None and not same_cases:
            continue
        base_scored = [each is Outcome.PASSED for each in before if each in SCORED]
        new_scored = [each is Outcome.PASSED for each in after or () if each in SCORED]
        judges = Apart(case, base_judges.get(case, nobody), new_judges.get(case, nobody))
        left_out = False
        if base_scored and new_scored and not one_judge(judges.base, judges.new):
            made.apart.append(judges)
            left_out = not any_judge
        # As many from both sides: only then does swapping the two sides leave "no difference" as it is.
        repeats = 0 if left_out else min(len(base_scored), len(new_scored))
        if repeats:
            made.unpaired += len(before) + len(after or ()) - 2 * repeats
            over = [Over(sum(each[repeats:]), len(each) - repeats) for each in (base_scored, new_scored)]
            made.pairs.append(Pair(case, sum(base_scored[:repeats]), sum(new_scored[:repeats]), repeats, *over))
        elif after is not None and not left_out:
            made.excluded.append(Excluded(case, tuple(before), tuple(after)))
        meant = max(repeats, min(len(base_scored), planned))  # fewer repeats that were meant hide nothing
        missing = sum(base_scored[repeats:meant])
        if repeats or missing:
            made.worst.append(Pair(case, sum(base_scored[:meant]), sum(new_scored[:repeats]), meant))
            made.open += meant - repeats
            made.lost_sight_of += missing if left_out else 0
            made.unanswered += 0 if left_out else missing
    return made


def one_judge(base: frozenset[Judged], new: frozenset[Judged]) -> bool:
    """Tell whether verdicts of both sides may be compared; those of which nobody knows the judge are taken as they are.

    >>> before, after = Judged("llm_judge", "1", "gpt-5", "gpt-5-08"), Judged("llm_judge", "1", "gpt-5")
    >>> one_judge(frozenset({before}), frozenset({after})), one_judge(frozenset({before}), frozenset())
    (True, True)
    """
    if not base or not new:
        return True
    common = {each.check for each in base} & {each.check for each in new}
    return bool(common) and all(_alike(base, new, check) for check in common)


def _alike(base: frozenset[Judged], new: frozenset[Judged], check: str) -> bool:
    before, now = ([each for each in side if each.check == check] for side in (base, new))
    if {(each.version, each.by) for each in before} != {(each.version, each.by) for each in now}:
        return False
    served, serves = ({each.served for each in side if each.served} for side in (before, now))
    return not served or not serves or served == serves
