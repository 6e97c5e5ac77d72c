"""Position bias of the judges of a run: stored rejudgements in, a view for each judge out.

Nothing here asks a judge; that is `rejudging`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from pramana.analyse.judges import canonical_judge_name
from pramana.analyse.pairing import SCORED, VerdictSource
from pramana.analyse.position_bias import (
    OrderEffect,
    RepeatedVerdict,
    VerdictChanges,
    describe_effect,
    measure_position_bias,
)
from pramana.app.views import View
from pramana.model import Outcome, PromptOrder, Run
from pramana.store.rejudgements import Rejudgement
from pramana.store.store import Store

_Interval = tuple[float, float]


class VerdictChangesView(View, frozen=True, kw_only=True):
    """How many verdicts changed when a judge was asked again."""

    order: Annotated[
        PromptOrder,
        Meta(description="usual: the same prompt; answers-swapped: NO or YES; criterion-last: after the reply"),
    ]
    replies: int
    changed: int
    interval: Annotated[_Interval, Meta(description="Interval of the share that changed")]
    to_yes: int
    to_no: int


class OrderEffectView(View, frozen=True, kw_only=True):
    """What a rearranged prompt changes, compared with the same prompt asked again."""

    changes: VerdictChangesView
    replies: Annotated[int, Meta(description="Replies with a verdict by both prompts")]
    moved_to_yes: Annotated[int, Meta(description="Replies with NO by the same prompt and YES by the rearranged one")]
    moved_to_no: Annotated[int, Meta(description="Replies with YES by the same prompt and NO by the rearranged one")]
    direction_p_value: Annotated[
        float, Meta(description="Do as many verdicts move to YES as to NO? Exact McNemar test")
    ]
    changed_only_here: Annotated[int, Meta(description="Replies whose verdict changed with the rearranged prompt only")]
    changed_only_by_repetition: Annotated[
        int, Meta(description="Replies whose verdict changed with the same prompt only")
    ]
    change_p_value: Annotated[
        float,
        Meta(description="Does the rearranged prompt change as many verdicts as the same one? Exact McNemar test"),
    ]
    adjusted_direction_p_value: Annotated[float, Meta(description="Adjusted for both tests (Holm)")]
    adjusted_change_p_value: Annotated[float, Meta(description="Adjusted for both tests (Holm)")]
    finding: Annotated[str, Meta(description="The result in one sentence")]


class PositionBiasView(View, frozen=True, kw_only=True):
    """How far the verdicts of a judge depend on the order of its prompt."""

    replies: Annotated[int, Meta(description="Replies about which the judge was asked again")]
    earlier_no: Annotated[int, Meta(description="Of these, the replies that the judge had failed")]
    repetition: Annotated[VerdictChangesView, Meta(description="With the same prompt")]
    effects: tuple[OrderEffectView, ...]
    cost_usd: Annotated[float | None, Meta(description="Cost of asking again; null if it is not known")]


def read_position_bias(store: Store, run: Run) -> Mapping[VerdictSource, PositionBiasView]:
    """Return the position bias of each judge of a run that was asked again."""
    by_source: dict[VerdictSource, list[Rejudgement]] = {}
    for each in store.rejudgements.list_of_run(run):
        source = VerdictSource(each.check.name, each.earlier_version, canonical_judge_name(each.judge))
        by_source.setdefault(source, []).append(each)
    return {source: _position_bias_view(made) for source, made in by_source.items()}


def list_repeated_verdicts(rejudgements: Iterable[Rejudgement]) -> list[RepeatedVerdict]:
    """Return the verdicts of one judge by reply; answers without a verdict are left out."""
    found: dict[tuple[int, str], tuple[Rejudgement, dict[PromptOrder, bool]]] = {}
    for each in rejudgements:
        _, verdicts = found.setdefault((each.seq, each.criterion), (each, {}))
        if each.check.outcome in SCORED:
            verdicts[each.prompt_order] = each.check.outcome is Outcome.PASSED
    return [RepeatedVerdict(one.case_digest, one.earlier_passed, verdicts) for one, verdicts in found.values()]


def _position_bias_view(made: Sequence[Rejudgement]) -> PositionBiasView:
    bias = measure_position_bias(list_repeated_verdicts(made))
    costs = [each.check.evidence.get("cost_usd") for each in made]
    known = [each for each in costs if isinstance(each, int | float)]
    return PositionBiasView(
        replies=bias.reply_count,
        earlier_no=bias.earlier_no_count,
        repetition=_changes_view(bias.repetition),
        effects=tuple(map(_effect_view, bias.effects)),
        cost_usd=sum(known) if len(known) == len(costs) else None,
    )


def _effect_view(effect: OrderEffect) -> OrderEffectView:
    return OrderEffectView(
        changes=_changes_view(effect.changes),
        replies=effect.reply_count,
        moved_to_yes=effect.moved_to_yes,
        moved_to_no=effect.moved_to_no,
        direction_p_value=effect.direction_p_value,
        changed_only_here=effect.changed_only_here,
        changed_only_by_repetition=effect.changed_only_by_repetition,
        change_p_value=effect.change_p_value,
        adjusted_direction_p_value=effect.adjusted_direction_p_value,
        adjusted_change_p_value=effect.adjusted_change_p_value,
        finding=describe_effect(effect),
    )


def _changes_view(changes: VerdictChanges) -> VerdictChangesView:
    return VerdictChangesView(
        order=changes.order,
        replies=changes.reply_count,
        changed=changes.changed_count,
        interval=(changes.interval.low, changes.interval.high),
        to_yes=changes.to_yes,
        to_no=changes.to_no,
    )
