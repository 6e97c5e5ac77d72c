"""Full replies of a comparison: compared sides in, the first flipped cases with the texts of both sides out.

Only the replies that are shown are read. Flipped cases come first, then replies that changed while their verdict stayed
the same.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from pramana.analyse.pairing import Pair
from pramana.analyse.replies import ComparableAnswer, iterate_answers_with_verdict
from pramana.app.comparison_sides import ComparedSides, ComparisonSide, ComparisonSource, RecordedReply
from pramana.app.views import ToolCallView, View, tool_call_views
from pramana.model import Outcome

VerdictChange = Literal["lost", "gained", "same verdict"]


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
    change: VerdictChange
    prompt: Annotated[str | None, Meta(description="null: not recorded")]
    base: SideReplyView
    new: SideReplyView

    @property
    def case_id(self) -> str:
        """The case's id, under the name that results use."""
        return self.case


class _WantedReplies(NamedTuple):
    """Two answers whose texts are to be read."""

    case: str
    change: VerdictChange
    base_result_number: int
    new_result_number: int


def read_reply_pairs(compared: ComparedSides, limit: int) -> tuple[ReplyPairView, ...]:
    """Return the first cases with both replies: those lost, those gained, then those with the same verdict."""
    wanted = list(islice(_iterate_wanted_replies(compared), limit))
    before, after = compared.sources
    base = before.read_replies([each.base_result_number for each in wanted])
    new = after.read_replies([each.new_result_number for each in wanted])
    return tuple(
        ReplyPairView(
            case=compared.find_case_name(each.case),
            change=each.change,
            prompt=base[each.base_result_number].prompt or new[each.new_result_number].prompt,
            base=_make_side_reply_view(before, each.base_result_number, base[each.base_result_number]),
            new=_make_side_reply_view(after, each.new_result_number, new[each.new_result_number]),
        )
        for each in wanted
        if each.base_result_number in base and each.new_result_number in new
    )


def _make_side_reply_view(source: ComparisonSource, result_number: int, recorded: RecordedReply) -> SideReplyView:
    return SideReplyView(
        outcome=recorded.outcome,
        reason=recorded.reason,
        reply=recorded.text,
        tool_calls=tool_call_views(recorded.tool_calls),
        result=result_number if source.is_stored_run else None,
    )


def _iterate_wanted_replies(compared: ComparedSides) -> Iterator[_WantedReplies]:
    base, new = compared.sides
    for pair in compared.comparison.lost:
        yield _choose_flip_replies(pair, "lost", base, new)
    for pair in compared.comparison.gained:
        yield _choose_flip_replies(pair, "gained", base, new)
    for each in compared.reply_changes.first_changes:
        yield _WantedReplies(each.case, "same verdict", each.base_result_number, each.new_result_number)


def _choose_flip_replies(
    pair: Pair, change: VerdictChange, base: ComparisonSide, new: ComparisonSide
) -> _WantedReplies:
    """Return each side's first answer to a flipped case that shows the flip: of a lost case, passed, then failed."""
    ends = (Outcome.PASSED, Outcome.FAILED) if change == "lost" else (Outcome.FAILED, Outcome.PASSED)
    places = [
        _first_result_number(list(islice(iterate_answers_with_verdict(side.answers[pair.case]), pair.repeats)), outcome)
        for side, outcome in zip((base, new), ends, strict=True)
    ]
    return _WantedReplies(pair.case, change, *places)


def _first_result_number(answers: Sequence[ComparableAnswer], outcome: Outcome) -> int:
    return next(each.result_number for each in answers if each.outcome is outcome)
