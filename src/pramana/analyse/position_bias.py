"""Position bias of a judge: its verdicts with the same and with rearranged prompts in, changes and exact tests out.

A judge that is asked twice contradicts itself now and then, whatever the order of its prompt. So verdicts of rearranged
prompts are compared with those of the same prompt asked again, not with the earlier verdicts: half of the replies were
drawn because the judge had failed them, and by chance alone more of these verdicts turn to YES than others to NO. The
tests are McNemar's, over cases where a case has several replies.

Only the first draw is tested, and only once it is complete: whoever adds replies until a test says "biased" finds a
bias in every noisy judge. Replies that are drawn later make the shares more precise. Nothing here reads a store.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from pramana.analyse.intervals import Interval, adjust_p_values, sign_flip_p_value
from pramana.analyse.mean_bounds import rate_interval
from pramana.analyse.numbers import pluralise
from pramana.model import PromptOrder

SIGNIFICANCE_LEVEL = 0.05
MIN_COMPLETE_SHARE = 0.9
"""Share of the first draw that must be judged before it is tested; a request that always fails must not prevent it."""
REARRANGED_ORDERS: tuple[PromptOrder, ...] = ("answers-swapped", "criterion-last")


class RepeatedVerdict(NamedTuple):
    """The verdicts of one judge on one reply."""

    case: str
    earlier_passed: bool
    """The verdict that was asked for again."""
    passed_by_order: Mapping[PromptOrder, bool]
    """The new verdicts, by order of the prompt; `usual` for the same prompt."""
    is_of_first_draw: bool = True


class VerdictChanges(Struct, frozen=True):
    """How many verdicts differ from the earlier ones with prompts in one order."""

    order: PromptOrder
    reply_count: int
    case_count: int
    to_yes: int
    to_no: int

    @property
    def changed_count(self) -> int:
        """The number of verdicts that changed."""
        return self.to_yes + self.to_no

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the share that changed; replies to the same case count as one."""
        share = self.changed_count / self.reply_count if self.reply_count else 0.0
        return rate_interval(share * self.case_count, self.case_count)


class OrderEffect(Struct, frozen=True):
    """What a rearranged prompt changes, compared with the same prompt asked again, on the replies of the first draw."""

    changes: VerdictChanges
    """Of all replies, whenever they were drawn."""
    reply_count: int
    """Replies of the first draw with both verdicts."""
    first_draw_count: int
    """Replies of the first draw, with or without verdicts."""
    moved_to_yes: int
    """Replies with NO by the same prompt, and YES by the rearranged one."""
    moved_to_no: int
    direction_p_value: float
    """Of the hypothesis that as many verdicts move to YES as to NO."""
    changed_only_here: int
    """Replies whose verdict changed with the rearranged prompt, but not with the same one."""
    changed_only_by_repetition: int
    change_p_value: float
    """Of the hypothesis that the rearranged prompt changes as many verdicts as the same one does."""
    adjusted_direction_p_value: float
    """Adjusted because this order has two tests (Holm), as is the next one."""
    adjusted_change_p_value: float

    @property
    def is_tested(self) -> bool:
        """Whether the first draw is complete; until then, every p-value is 1."""
        return is_draw_complete(self.reply_count, self.first_draw_count)

    @property
    def has_direction(self) -> bool:
        """Whether verdicts move to one of the two answers."""
        return self.adjusted_direction_p_value < SIGNIFICANCE_LEVEL

    @property
    def changes_more_than_repetition(self) -> bool:
        """Whether the order changes more verdicts than chance does."""
        more = self.changed_only_here > self.changed_only_by_repetition
        return more and self.adjusted_change_p_value < SIGNIFICANCE_LEVEL


class PositionBias(Struct, frozen=True):
    """How far the verdicts of one judge depend on the order of its prompt."""

    reply_count: int
    """Replies that the judge was asked about again."""
    earlier_no_count: int
    """Of these, the replies that it had failed."""
    repetition: VerdictChanges
    effects: tuple[OrderEffect, ...]


def is_draw_complete(judged_count: int, drawn_count: int) -> bool:
    """Return whether enough of the drawn replies are judged to test them.

    >>> is_draw_complete(90, 100), is_draw_complete(89, 100)
    (True, False)
    """
    return judged_count >= MIN_COMPLETE_SHARE * drawn_count


def measure_position_bias(verdicts: Sequence[RepeatedVerdict], first_draw_count: int = 0) -> PositionBias:
    """Return how far the verdicts of a judge depend on the order of its prompt.

    `first_draw_count` is the number of replies of the first draw, if some of them may not be judged yet.

    >>> orders = {"usual": True, "answers-swapped": False}
    >>> bias = measure_position_bias([RepeatedVerdict(str(case), True, orders) for case in range(8)])
    >>> bias.repetition.changed_count, bias.effects[0].moved_to_no, bias.effects[0].direction_p_value
    (0, 8, 0.0078125)
    >>> describe_effect(bias.effects[0]).partition(":")[0]
    'The judge prefers the answer that is named first'
    """
    effects = [
        _measure_effect(verdicts, order, first_draw_count)
        for order in REARRANGED_ORDERS
        if any(order in each.passed_by_order for each in verdicts)
    ]
    return PositionBias(
        len(verdicts),
        sum(not each.earlier_passed for each in verdicts),
        _count_changes(verdicts, "usual"),
        tuple(effects),
    )


def _count_changes(verdicts: Iterable[RepeatedVerdict], order: PromptOrder) -> VerdictChanges:
    again = [
        (each.case, each.earlier_passed, each.passed_by_order[order])
        for each in verdicts
        if order in each.passed_by_order
    ]
    return VerdictChanges(
        order,
        len(again),
        len({case for case, _, _ in again}),
        sum(now and not before for _, before, now in again),
        sum(before and not now for _, before, now in again),
    )


def _measure_effect(verdicts: Sequence[RepeatedVerdict], order: PromptOrder, first_draw_count: int) -> OrderEffect:
    first = [each for each in verdicts if each.is_of_first_draw]
    both = [each for each in first if "usual" in each.passed_by_order and order in each.passed_by_order]
    moved_to: dict[bool, int] = {True: 0, False: 0}
    changed_only: dict[PromptOrder, int] = {"usual": 0, order: 0}
    direction_by_case: dict[str, int] = {}
    change_by_case: dict[str, int] = {}
    for each in both:
        by_repetition, here = each.passed_by_order["usual"], each.passed_by_order[order]
        if by_repetition == here:
            continue
        is_change = here != each.earlier_passed
        moved_to[here] += 1
        changed_only[order if is_change else "usual"] += 1
        direction_by_case[each.case] = direction_by_case.get(each.case, 0) + (1 if here else -1)
        change_by_case[each.case] = change_by_case.get(each.case, 0) + (1 if is_change else -1)
    direction = change = 1.0
    if is_draw_complete(len(both), first_draw_count):
        direction = sign_flip_p_value(list(direction_by_case.values()))
        change = sign_flip_p_value(list(change_by_case.values()))
    return OrderEffect(
        _count_changes(verdicts, order),
        len(both),
        max(first_draw_count, len(both)),
        moved_to[True],
        moved_to[False],
        direction,
        changed_only[order],
        changed_only["usual"],
        change,
        *adjust_p_values([direction, change]),
    )


# ── In words ──


def describe_effect(effect: OrderEffect, added_count: int = 0) -> str:
    """Return what a rearranged prompt does to the verdicts of a judge, and how many added replies are not tested."""
    if not effect.is_tested:
        return (
            f"Not tested yet: of {_format_reply_count(effect.first_draw_count)} drawn first, {effect.reply_count:,} "
            "have both verdicts."
        )
    drawn = _format_reply_count(effect.first_draw_count)
    later = f" Only the first draw of {drawn} is tested; {added_count:,} came later." if added_count else ""
    return f"{_describe_tested_effect(effect)}{later}"


def _format_reply_count(count: int) -> str:
    return f"{count:,} {'reply' if count == 1 else 'replies'}"


def _describe_tested_effect(effect: OrderEffect) -> str:
    moves = (
        f"moved {pluralise(effect.moved_to_no, 'verdict')} to NO and {effect.moved_to_yes:,} to YES"
        if effect.moved_to_no >= effect.moved_to_yes
        else f"moved {pluralise(effect.moved_to_yes, 'verdict')} to YES and {effect.moved_to_no:,} to NO"
    )
    is_swap = effect.changes.order == "answers-swapped"
    cause = "swapping" if is_swap else "the criterion after the reply"
    if effect.has_direction:
        evidence = (
            f"compared with the same prompt, {cause} {moves} (p {_format_p_value(effect.adjusted_direction_p_value)})."
        )
        if not is_swap:
            return f"The place of the criterion matters: {evidence}"
        preferred = "first" if effect.moved_to_no > effect.moved_to_yes else "last"
        return f"The judge prefers the answer that is named {preferred}: {evidence}"
    if effect.changes_more_than_repetition:
        matter = "The order of the answers" if is_swap else "The place of the criterion"
        return (
            f"{matter} changes verdicts, but in both directions: {effect.changed_only_here:,} changed only with it, "
            f"{effect.changed_only_by_repetition:,} only with the same prompt "
            f"(p {_format_p_value(effect.adjusted_change_p_value)})."
        )
    lowest = min(effect.adjusted_direction_p_value, effect.adjusted_change_p_value)
    return (
        f"No effect beyond chance found: compared with the same prompt, {cause} {moves} (p {_format_p_value(lowest)})."
    )


def _format_p_value(p_value: float) -> str:
    return "< 0.0001" if p_value < 0.0001 else f"= {p_value:.2g}"
