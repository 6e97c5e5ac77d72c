"""Full replies of a comparison: compared sides in, the first flipped cases with the texts of both sides out.

Only the replies that are shown are read. Flipped cases come first, then replies that changed while their verdict stayed
the same.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from pramana.analyse.comparison import Pair
from pramana.analyse.replies import ComparableAnswer, iterate_scored
from pramana.app.comparison_sides import ComparedSides, RecordedReply, Side, Source
from pramana.app.views import ToolCallView, View, tool_call_views
from pramana.model import Outcome

Change = Literal["lost", "gained", "same verdict"]


class SideReplyView(View, frozen=True, kw_only=True):
    """One side's reply to a case."""

    outcome: Outcome
    reason: str | None
    reply: Annotated[
        str | None, Meta(description="Text of the reply; null if there is none, or if it was not recorded")
    ]
    tool_calls: Annotated[tuple[ToolCallView, ...], Meta(description="Tools that the model called")] = ()
    result: Annotated[int | None, Meta(description="The number of the result in its run; null in a file")]


class ReplyPairView(View, frozen=True, kw_only=True):
    """A case with the reply of each side."""

    case: str
    change: Change
    prompt: Annotated[str | None, Meta(description="null: not recorded")]
    base: SideReplyView
    new: SideReplyView

    @property
    def case_id(self) -> str:
        """The case's id, under the name that results use."""
        return self.case


class _Wanted(NamedTuple):
    """Two answers whose texts are to be read."""

    case: str
    change: Change
    base: int
    new: int


def read_reply_pairs(compared: ComparedSides, limit: int) -> tuple[ReplyPairView, ...]:
    """Return the first cases with both replies: those lost, those gained, then those with the same verdict."""
    wanted = list(islice(_list_wanted(compared), limit))
    before, after = compared.sources
    base = before.read([each.base for each in wanted])
    new = after.read([each.new for each in wanted])
    return tuple(
        ReplyPairView(
            case=compared.name(each.case),
            change=each.change,
            prompt=base[each.base].prompt or new[each.new].prompt,
            base=_side_reply(before, each.base, base[each.base]),
            new=_side_reply(after, each.new, new[each.new]),
        )
        for each in wanted
        if each.base in base and each.new in new
    )


def _side_reply(source: Source, place: int, recorded: RecordedReply) -> SideReplyView:
    return SideReplyView(
        outcome=recorded.outcome,
        reason=recorded.reason,
        reply=recorded.text,
        tool_calls=tool_call_views(recorded.tool_calls),
        result=place if source.stored else None,
    )


def _list_wanted(compared: ComparedSides) -> Iterator[_Wanted]:
    base, new = compared.sides
    for pair in compared.comparison.lost:
        yield _flip_answers(pair, "lost", base, new)
    for pair in compared.comparison.gained:
        yield _flip_answers(pair, "gained", base, new)
    for each in compared.reply_changes.first:
        yield _Wanted(each.case, "same verdict", each.base, each.new)


def _flip_answers(pair: Pair, change: Change, base: Side, new: Side) -> _Wanted:
    """Return each side's first answer to a flipped case that shows the flip: of a lost case, passed, then failed."""
    ends = (Outcome.PASSED, Outcome.FAILED) if change == "lost" else (Outcome.FAILED, Outcome.PASSED)
    places = [
        _first(list(islice(iterate_scored(side.answers[pair.case]), pair.repeats)), outcome)
        for side, outcome in zip((base, new), ends, strict=True)
    ]
    return _Wanted(pair.case, change, *places)


def _first(answers: Sequence[ComparableAnswer], outcome: Outcome) -> int:
    return next(each.place for each in answers if each.outcome is outcome)
