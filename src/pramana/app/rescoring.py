"""Rescorings of a run: stored scorings in; a list of them, or the changes made by one, out.

A reply that gets no new verdict keeps the old one; such replies are counted and listed separately. Nothing here scores.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from pramana.analyse.rates import make_model_rates
from pramana.analyse.summary import explain_outcome
from pramana.app import App, User, use_case
from pramana.app.judge_marks import JudgeMarks
from pramana.app.views import OutcomesView, View
from pramana.bench import VERDICT_OUTCOMES
from pramana.model import Outcome, Result, Run
from pramana.plan_scoring import make_scoring_label
from pramana.store.history import RunOutcomeCounts
from pramana.store.store import Store

MAX_LISTED_VERDICTS = 1_000
"""Most changed and kept verdicts that a view lists."""


class ScoredModelView(View, frozen=True, kw_only=True):
    """The outcomes of one model by one scoring."""

    model: str
    outcomes: OutcomesView
    pass_rate: Annotated[
        float | None, Meta(description="Pass rate of the results with a verdict; null if there are none")
    ]


class ScoringView(View, frozen=True, kw_only=True):
    """A scoring of a run: number 0 was made during the run, and each rescoring adds one."""

    number: int
    reference: Annotated[str, Meta(description="Name of the run with this scoring: `RUN@1`")]
    label: Annotated[str, Meta(description="The judge, the embedder and the scorers")]
    created_at: str
    current: Annotated[
        bool, Meta(description="Whether this scoring is current: the newest, unless an earlier one was chosen")
    ]
    models: tuple[ScoredModelView, ...]
    calibration: Annotated[
        str | None,
        Meta(
            description="How far the judges of the verdicts agree with people: `judge agrees 92 %` (of several, the "
            "least) or `uncalibrated`; null if no model judged"
        ),
    ]


class _RescoredView(View, frozen=True, kw_only=True):
    """A result that was scored again."""

    case_id: str
    model: str
    variant: str
    repeat: int


class ChangedVerdictView(_RescoredView, frozen=True, kw_only=True):
    """A result whose outcome a rescoring changed."""

    before: Outcome
    after: Outcome
    reason: Annotated[str, Meta(description="Reason for the new verdict")]


class KeptVerdictView(_RescoredView, frozen=True, kw_only=True):
    """A result that got no new verdict and keeps the old one."""

    verdict: Outcome
    attempt: Annotated[Outcome, Meta(description="Outcome of the new scoring: errored, unscored or skipped")]
    reason: Annotated[str, Meta(description="Why there is no new verdict")]


class ChangeCountView(View, frozen=True, kw_only=True):
    """How many results changed from one outcome to another."""

    before: Outcome
    after: Outcome
    count: int


class RescoringView(View, frozen=True, kw_only=True):
    """The changes made by a rescoring."""

    scoring: int
    judged: Annotated[int, Meta(description="Number of replies that were scored again")]
    changed: int
    counts: Annotated[tuple[ChangeCountView, ...], Meta(description="Counts of each change, most frequent first")]
    changes: Annotated[
        tuple[ChangedVerdictView, ...],
        Meta(description=f"In the order of the cases; the first {MAX_LISTED_VERDICTS:,}"),
    ]
    kept: Annotated[int, Meta(description="Number of replies without a new verdict, which keep the earlier one")]
    kept_verdicts: Annotated[
        tuple[KeptVerdictView, ...], Meta(description=f"In the order of the cases; the first {MAX_LISTED_VERDICTS:,}")
    ]
    new_verdicts: Annotated[int, Meta(description="Number of replies that passed or failed in the new scoring")]
    errored: Annotated[int, Meta(description="Number of kept replies whose new scoring failed with an error")]


def rescoring_view(store: Store, run: Run, scoring_number: int) -> RescoringView:
    """Return the changes made by a rescoring, case by case."""
    judged = errored = kept_count = new_verdicts = 0
    counts = Counter[tuple[Outcome, Outcome]]()
    changes: list[ChangedVerdictView] = []
    kept: list[KeptVerdictView] = []
    for before, after, attempt in store.results.iterate_rescored(run, scoring_number):
        judged += 1
        new_verdicts += attempt is None and after.outcome in VERDICT_OUTCOMES
        if attempt is not None:
            kept_count += 1
            errored += attempt.outcome is Outcome.ERRORED
            if len(kept) < MAX_LISTED_VERDICTS:
                kept.append(
                    KeptVerdictView(
                        **_result_identity_fields(after),
                        verdict=after.outcome,
                        attempt=attempt.outcome,
                        reason=explain_outcome(attempt),
                    )
                )
        elif before.outcome is not after.outcome:
            counts[before.outcome, after.outcome] += 1
            if len(changes) < MAX_LISTED_VERDICTS:
                changes.append(
                    ChangedVerdictView(
                        **_result_identity_fields(after),
                        before=before.outcome,
                        after=after.outcome,
                        reason=explain_outcome(after),
                    )
                )
    return RescoringView(
        scoring=scoring_number,
        judged=judged,
        changed=counts.total(),
        counts=tuple(ChangeCountView(before=old, after=new, count=count) for (old, new), count in counts.most_common()),
        changes=tuple(changes),
        kept=kept_count,
        kept_verdicts=tuple(kept),
        new_verdicts=new_verdicts,
        errored=errored,
    )


def _result_identity_fields(result: Result) -> dict[str, Any]:
    """Return the fields of a view that identify a result."""
    key = result.key
    return {"case_id": result.case_id, "model": key.model, "variant": key.variant, "repeat": key.repeat}


@use_case("viewer")
def list_scorings(app: App, _: User, run_id: str) -> Sequence[ScoringView]:
    """Return the scorings of a run, oldest first."""
    return scoring_views(app.store, app.store.runs.find(run_id), app.judge_marks)


@use_case("editor")
def use_scoring(app: App, _: User, run_id: str, number: int) -> Sequence[ScoringView]:
    """Make a scoring current until the run is rescored; return all scorings of the run."""
    return make_scoring_current(app.store, app.store.runs.read(run_id), number, app.judge_marks)


def make_scoring_current(
    store: Store, run: Run, scoring_number: int, marks: JudgeMarks | None = None
) -> Sequence[ScoringView]:
    """Make a scoring current until the run is rescored; return all scorings of the run."""
    store.scorings.make_current(run, scoring_number)
    return scoring_views(store, run, marks)


def scoring_views(store: Store, run: Run, marks: JudgeMarks | None = None) -> Sequence[ScoringView]:
    """Return the scorings of a run, oldest first; `marks` has calibrations that were read before."""
    marks = marks or JudgeMarks(store)
    found = store.scorings.list_finished(run)
    plan = run.plan
    return [
        ScoringView(
            number=each.number,
            reference=f"{run.id}@{each.number}",
            label=each.label if each.number else make_scoring_label(plan.judges, plan.embedder, plan.scorers),
            created_at=each.created,
            current=each.is_current,
            models=_scored_model_views(run, counts),
            calibration=marks.describe([replace(run, scoring=each.number)], [counts])[0],
        )
        for each in found
        for counts in store.history.count_run_outcomes([replace(run, scoring=each.number)])
    ]


def _scored_model_views(run: Run, counts: RunOutcomeCounts | None) -> tuple[ScoredModelView, ...]:
    """Return the outcomes of each model of a run by a scoring, in the order of the plan."""
    rates = (
        make_model_rates(run, counts.outcome_counts, counts.by_model, counts.scored_model_variants) if counts else {}
    )
    return tuple(
        ScoredModelView(
            model=model,
            outcomes=OutcomesView(**{outcome.value: getattr(rate, outcome.value) for outcome in Outcome}),
            pass_rate=rate.value,
        )
        for model, rate in rates.items()
    )
