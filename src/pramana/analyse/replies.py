"""Replies that changed while their verdict did not: the replies of two sides by case in, counts and places out.

Texts are compared by hash, so no reply is kept. As in a comparison of verdicts, replies are paired in order, as many as
both sides have with a verdict. For calls the transcripts are compared. Pure functions.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from pramana.analyse.comparison import SCORED
from pramana.analyse.labels import SideLabels
from pramana.model import Outcome

MAX_LISTED = 100
"""The most changed replies whose places are kept."""


class ComparableAnswer(NamedTuple):
    """One reply to a case, without its text."""

    outcome: Outcome
    text_hash: int | None
    """Equal for equal texts, within this process only; None where the reply is unknown."""
    place: int
    """Where to find the text: the number of a result, or its position in a file."""


class ChangedReply(NamedTuple):
    """A case and the places of its two replies, which have the same verdict and different texts."""

    case: str
    base: int
    new: int


class ReplyChanges(Struct, frozen=True):
    """How many replies with the same verdict on both sides changed."""

    compared: int = 0
    changed: int = 0
    first: tuple[ChangedReply, ...] = ()
    """The first of them, in the order of the base."""

    def sentence(self, labels: SideLabels) -> str:
        """Return a sentence about how many changed; empty if none did.

        >>> ReplyChanges(20, 12).sentence(SideLabels())
        '12 of 20 replies changed while the verdict stayed the same.'
        """
        if not self.changed:
            return ""
        counts = f"{self.changed:,} of {self.compared:,} {'reply' if self.compared == 1 else 'replies'}"
        if labels.models:
            differs = "differs" if self.changed == 1 else "differ"
            return f"{counts} {differs} between the models while the verdict is the same."
        return f"{counts} changed while the verdict stayed the same."


def compare_replies(
    base: Mapping[str, Sequence[ComparableAnswer]],
    new: Mapping[str, Sequence[ComparableAnswer]],
    left_out: Collection[str] = (),
) -> ReplyChanges:
    """Compare the replies of two sides wherever the verdict is the same, except for the cases in `left_out`.

    >>> passed = Outcome.PASSED
    >>> before, now = {"a": [ComparableAnswer(passed, 1, 7)]}, {"a": [ComparableAnswer(passed, 2, 9)]}
    >>> compare_replies(before, now).first
    (ChangedReply(case='a', base=7, new=9),)
    """
    compared = changed = 0
    first: list[ChangedReply] = []
    for case, given in base.items():
        if case in left_out:
            continue
        for before, now in zip(iterate_scored(given), iterate_scored(new.get(case, ())), strict=False):
            if before.outcome is not now.outcome or before.text_hash is None or now.text_hash is None:
                continue
            compared += 1
            if before.text_hash != now.text_hash:
                changed += 1
                if len(first) < MAX_LISTED:
                    first.append(ChangedReply(case, before.place, now.place))
    return ReplyChanges(compared, changed, tuple(first))


def iterate_scored(answers: Sequence[ComparableAnswer]) -> Iterator[ComparableAnswer]:
    """Yield the replies with a verdict."""
    return (each for each in answers if each.outcome in SCORED)
