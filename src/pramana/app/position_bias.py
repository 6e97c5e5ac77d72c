"""Position bias of the judges of a run: stored rejudgements in, a view for each judge out.

Nothing here asks a judge; that is `rejudging`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from pramana.analyse.judges import canonical_judge_name
from pramana.analyse.labelling import list_verdicts
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

FIRST_DRAW = "first_draw"
"""Name in the evidence of each rejudgement, because the orders of the prompt may be asked for at different times."""
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
    replies: Annotated[int, Meta(description="Replies of the first draw with a verdict by both prompts")]
    first_draw: Annotated[int, Meta(description="Replies of the first draw, which is tested once it is complete")]
    added: Annotated[int, Meta(description="Replies that were drawn later; they are not tested")]
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
    unreadable: Annotated[int, Meta(description="Answers without a readable verdict, over all orders of the prompt")]
    repetition: Annotated[VerdictChangesView, Meta(description="With the same prompt")]
    effects: tuple[OrderEffectView, ...]
    cost_usd: Annotated[float | None, Meta(description="Cost of asking again; null if it is not known")]


def read_position_bias(store: Store, run: Run) -> Mapping[VerdictSource, PositionBiasView]:
    """Return the position bias of each judge of a run that was asked again.

    Where the judge has judged a reply anew since then (`pramana rescore`), its current verdict counts as the earlier.
    """
    by_source: dict[VerdictSource, list[Rejudgement]] = {}
    made = store.rejudgements.list_of_run(run)
    current = _read_current_verdicts(store, run, sorted({each.seq for each in made})) if made else {}
    for each in made:
        source = VerdictSource(each.check.name, each.earlier_version, canonical_judge_name(each.judge))
        passed = current.get((each.seq, each.criterion, source), each.earlier_passed)
        by_source.setdefault(source, []).append(replace(each, earlier_passed=passed))
    return {source: _position_bias_view(of_judge) for source, of_judge in by_source.items()}


def _read_current_verdicts(
    store: Store, run: Run, seqs: Sequence[int]
) -> Mapping[tuple[int, str, VerdictSource], bool]:
    """Return the verdicts that are current in a run, by result, criterion and judge."""
    return {
        (each.seq, verdict.criterion, verdict.source): verdict.passed
        for each in store.labels.iterate_checks(run, seqs=seqs)
        for verdict in list_verdicts(each.seq, each.case_digest, each.model, each.checks, canonical_judge_name)
    }


def list_repeated_verdicts(rejudgements: Iterable[Rejudgement]) -> list[RepeatedVerdict]:
    """Return the verdicts of one judge by reply; answers without a verdict are left out."""
    found: dict[tuple[int, str], tuple[Rejudgement, dict[PromptOrder, bool]]] = {}
    for each in rejudgements:
        _, verdicts = found.setdefault((each.seq, each.criterion), (each, {}))
        if each.check.outcome in SCORED:
            verdicts[each.prompt_order] = each.check.outcome is Outcome.PASSED
    return [
        RepeatedVerdict(one.case_digest, one.earlier_passed, verdicts, is_of_first_draw(one))
        for one, verdicts in found.values()
    ]


def is_of_first_draw(rejudgement: Rejudgement) -> bool:
    """Return whether a reply was drawn first; those of earlier versions of Pramana, which did not say so, were."""
    return bool(read_first_draw(rejudgement).get("member", True))


def read_first_draw(rejudgement: Rejudgement) -> Mapping[str, Any]:
    """Return the size of the first draw, `count`, of which `of_judge` replies are the judge's, and who is a `member`.

    Empty for rejudgements of earlier versions of Pramana.
    """
    found = rejudgement.check.evidence.get(FIRST_DRAW)
    return found if isinstance(found, Mapping) else {}


def _position_bias_view(made: Sequence[Rejudgement]) -> PositionBiasView:
    verdicts = list_repeated_verdicts(made)
    first_draw_count = max((read_first_draw(each).get("of_judge", 0) for each in made), default=0)
    bias = measure_position_bias(verdicts, first_draw_count)
    added = sum(not each.is_of_first_draw for each in verdicts)
    costs = [each.check.evidence.get("cost_usd") for each in made]
    known = [each for each in costs if isinstance(each, int | float)]
    return PositionBiasView(
        replies=bias.reply_count,
        earlier_no=bias.earlier_no_count,
        repetition=_changes_view(bias.repetition),
        unreadable=sum(each.check.outcome not in SCORED for each in made),
        effects=tuple(_effect_view(each, added) for each in bias.effects),
        cost_usd=sum(known) if len(known) == len(costs) else None,
    )


def _effect_view(effect: OrderEffect, added_count: int) -> OrderEffectView:
    return OrderEffectView(
        changes=_changes_view(effect.changes),
        replies=effect.reply_count,
        first_draw=effect.first_draw_count,
        added=added_count,
        moved_to_yes=effect.moved_to_yes,
        moved_to_no=effect.moved_to_no,
        direction_p_value=effect.direction_p_value,
        changed_only_here=effect.changed_only_here,
        changed_only_by_repetition=effect.changed_only_by_repetition,
        change_p_value=effect.change_p_value,
        adjusted_direction_p_value=effect.adjusted_direction_p_value,
        adjusted_change_p_value=effect.adjusted_change_p_value,
        finding=describe_effect(effect, added_count),
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
