"""Replies that changed while their verdict did not: the replies of two sides by case in, counts and places out.

Texts are compared by hash, so no reply is kept. As in a comparison of verdicts, replies are paired in order, as many as
both sides have with a verdict. For calls the transcripts are compared. Pure functions.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from pramana.analyse.labels import SideLabels
from pramana.analyse.pairing import SCORED
from pramana.model import Outcome

MAX_LISTED_CHANGES = 100
"""The most changed replies whose places are kept."""


class ComparableAnswer(NamedTuple):
    """One reply to a case, without its text."""

    outcome: Outcome
    text_hash: int | None
    """Equal for equal texts, within this process only; None where the reply is unknown."""
    result_number: int
    """Where to find the text: the number of a result, or its position in a file."""


class ChangedReply(NamedTuple):
    """A case and the places of its two replies, which have the same verdict and different texts."""

    case: str
    base_result_number: int
    new_result_number: int


class ReplyChanges(Struct, frozen=True):
    """How many replies with the same verdict on both sides changed."""

    compared_count: int = 0
    changed_count: int = 0
    first_changes: tuple[ChangedReply, ...] = ()
    """The first of them, in the order of the base."""

    def sentence(self, labels: SideLabels) -> str:
        """Return a sentence about how many changed; empty if none did.

        >>> ReplyChanges(20, 12).sentence(SideLabels())
        '12 of 20 replies changed while the verdict stayed the same.'
        """
        if not self.changed_count:
            return ""
        counts = (
            f"{self.changed_count:,} of {self.compared_count:,} {'reply' if self.compared_count == 1 else 'replies'}"
        )
        if labels.model_labels:
            differs = "differs" if self.changed_count == 1 else "differ"
            return f"{counts} {differs} between the models while the verdict is the same."
        return f"{counts} changed while the verdict stayed the same."


def compare_replies(
    base: Mapping[str, Sequence[ComparableAnswer]],
    new: Mapping[str, Sequence[ComparableAnswer]],
    excluded_cases: Collection[str] = (),
) -> ReplyChanges:
    """Compare the replies of two sides wherever the verdict is the same, except for the cases in `excluded_cases`.

    >>> passed = Outcome.PASSED
    >>> before, now = {"a": [ComparableAnswer(passed, 1, 7)]}, {"a": [ComparableAnswer(passed, 2, 9)]}
    >>> compare_replies(before, now).first_changes
    (ChangedReply(case='a', base_result_number=7, new_result_number=9),)
    """
    compared = changed = 0
    first: list[ChangedReply] = []
    for case, given in base.items():
        if case in excluded_cases:
            continue
        for before, now in zip(
            iterate_answers_with_verdict(given), iterate_answers_with_verdict(new.get(case, ())), strict=False
        ):
            if before.outcome is not now.outcome or before.text_hash is None or now.text_hash is None:
                continue
            compared += 1
            if before.text_hash != now.text_hash:
                changed += 1
                if len(first) < MAX_LISTED_CHANGES:
                    first.append(ChangedReply(case, before.result_number, now.result_number))
    return ReplyChanges(compared, changed, tuple(first))


def iterate_answers_with_verdict(answers: Sequence[ComparableAnswer]) -> Iterator[ComparableAnswer]:
    """Yield the replies with a verdict."""
    return (each for each in answers if each.outcome in SCORED)
