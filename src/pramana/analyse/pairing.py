"""Pair the replies of two runs: outcomes by case in, pairs and what could not be compared out.

Only cases with a verdict of the same judge on both sides are paired, each with itself, on as many repeats as both sides
have. Everything else is counted, and named by its reason.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from pramana.model import Outcome

SCORED = (Outcome.PASSED, Outcome.FAILED)

Outcomes = Mapping[str, Sequence[Outcome]]
"""By case digest or test id, one outcome per repeat."""
_VOICE_VARIANT = re.compile(r"(.*) \((voice[^()]*)\)", re.DOTALL)


def split_variant(key: str) -> tuple[str, str]:
    """Split a key into the case and its variant; the variant is empty for text.

    Where a side has several variants, its keys name the variant after the case.

    >>> split_variant("sha256:1 (voice+noise=10dB)"), split_variant("sha256:1")
    (('sha256:1', 'voice+noise=10dB'), ('sha256:1', ''))
    """
    found = _VOICE_VARIANT.fullmatch(key)
    return (found[1], found[2]) if found else (key, "")


class VerdictSource(Struct, frozen=True, order=True):
    """The source of a verdict: a check, and its judge or embedder if it uses a model.

    >>> str(VerdictSource("llm_judge", "1", "openai:gpt-5")), str(VerdictSource("contains", "1"))
    ('openai:gpt-5', 'contains 1')
    """

    check: str
    version: str
    by: str = ""
    """The judge or the embedder; empty where the check uses no model."""
    served: str = ""
    """The model that the judge's provider reported; empty where it reports none."""

    def __str__(self) -> str:
        return f"{self.by or self.full_name}{f' ({self.served})' if self.served else ''}"

    @property
    def full_name(self) -> str:
        """The check, its version and its judge."""
        return f"{self.check} {self.version}{f' by {self.by}' if self.by else ''}"


Judges = Mapping[str, frozenset[VerdictSource]]
"""By case, the sources of its verdicts; cases without a known source are left out."""


class UnpairedAnswers(NamedTuple):
    """Surplus replies with a verdict on one side, and how many of them passed."""

    passed: int = 0
    answers: int = 0


_NOTHING_UNPAIRED = UnpairedAnswers()


class Pair(Struct, frozen=True):
    """One compared case: how many of its replies passed, out of the same number on both sides."""

    case: str
    base_passed: int
    new_passed: int
    repeats: int
    base_unpaired: UnpairedAnswers = _NOTHING_UNPAIRED
    """Replies without a counterpart on the new side; not compared."""
    new_unpaired: UnpairedAnswers = _NOTHING_UNPAIRED

    @property
    def difference(self) -> float:
        return (self.new_passed - self.base_passed) / self.repeats


class Excluded(Struct, frozen=True):
    """One case of both sides that could not be compared, with all its outcomes."""

    case: str
    base: tuple[Outcome, ...]
    new: tuple[Outcome, ...]


class DifferentJudges(Struct, frozen=True):
    """One case with verdicts of different judges on the two sides."""

    case: str
    base: frozenset[VerdictSource]
    new: frozenset[VerdictSource]


class Pairing(Struct):
    """The replies of two runs, paired by case."""

    pairs: list[Pair] = field(default_factory=list)
    worst_pairs: list[Pair] = field(default_factory=list)
    """The pairs if every new reply without a comparable verdict had failed."""
    excluded: list[Excluded] = field(default_factory=list)
    differently_judged: list[DifferentJudges] = field(default_factory=list)
    """Cases with verdicts of two judges; left out of the pairs unless `any_judge` is set."""
    unpaired: int = 0
    """Replies to compared cases that were left out: without a verdict, or surplus on one side."""
    undecided: int = 0
    """New replies without a comparable verdict, to compared cases and to cases that passed on the base side."""
    undecided_after_pass: int = 0
    """Of these, those that passed on the base side and have no verdict on the new one."""
    judge_changed: int = 0
    """Of these, those that passed on the base side and have another judge's verdict on the new one."""


def pair_answers(
    base: Outcomes,
    new: Outcomes,
    *,
    same_cases: bool,
    new_repeats: int | None,
    base_judges: Judges,
    new_judges: Judges,
    any_judge: bool,
) -> Pairing:
    """Pair the replies of two runs by case; the parameters are those of `compare`."""
    made = Pairing()
    planned = max((1, *map(len, new.values()))) if new_repeats is None else new_repeats
    nobody: frozenset[VerdictSource] = frozenset()
    for case, before in base.items():
        after = new.get(case)
        if after is None and not same_cases:
            continue
        base_scored = [each is Outcome.PASSED for each in before if each in SCORED]
        new_scored = [each is Outcome.PASSED for each in after or () if each in SCORED]
        judges = DifferentJudges(case, base_judges.get(case, nobody), new_judges.get(case, nobody))
        left_out = False
        if base_scored and new_scored and not have_same_judge(judges.base, judges.new):
            made.differently_judged.append(judges)
            left_out = not any_judge
        # Equal numbers from both sides: only then is "no difference" unaffected by swapping the sides.
        repeats = 0 if left_out else min(len(base_scored), len(new_scored))
        if repeats:
            made.unpaired += len(before) + len(after or ()) - 2 * repeats
            over = [UnpairedAnswers(sum(each[repeats:]), len(each) - repeats) for each in (base_scored, new_scored)]
            made.pairs.append(Pair(case, sum(base_scored[:repeats]), sum(new_scored[:repeats]), repeats, *over))
        elif after is not None and not left_out:
            made.excluded.append(Excluded(case, tuple(before), tuple(after)))
        meant = max(repeats, min(len(base_scored), planned))  # a planned smaller number of repeats hides nothing
        missing = sum(base_scored[repeats:meant])
        if repeats or missing:
            made.worst_pairs.append(Pair(case, sum(base_scored[:meant]), sum(new_scored[:repeats]), meant))
            made.undecided += meant - repeats
            made.judge_changed += missing if left_out else 0
            made.undecided_after_pass += 0 if left_out else missing
    return made


def have_same_judge(base: frozenset[VerdictSource], new: frozenset[VerdictSource]) -> bool:
    """Return whether verdicts of both sides may be compared; verdicts of an unknown judge always may.

    >>> before, after = VerdictSource("llm_judge", "1", "gpt-5", "gpt-5-08"), VerdictSource("llm_judge", "1", "gpt-5")
    >>> have_same_judge(frozenset({before}), frozenset({after})), have_same_judge(frozenset({before}), frozenset())
    (True, True)
    """
    if not base or not new:
        return True
    common = {each.check for each in base} & {each.check for each in new}
    return bool(common) and all(_have_same_source(base, new, check) for check in common)


def _have_same_source(base: frozenset[VerdictSource], new: frozenset[VerdictSource], check: str) -> bool:
    before, now = ([each for each in side if each.check == check] for side in (base, new))
    if {(each.version, each.by) for each in before} != {(each.version, each.by) for each in now}:
        return False
    served, serves = ({each.served for each in side if each.served} for side in (before, now))
    return not served or not serves or served == serves
