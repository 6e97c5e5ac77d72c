"""The baseline gate: a run that has ended and an earlier run in; a comparison of each model, and an exit code, out.

A run passes if no model is proven to be worse than in the baseline, no result is missing, and none errored. Several
models are decided together, by Holm's correction, so the chance that unchanged models fail the gate does not grow with
their number. The exit codes are those of `pramana run --baseline`. Where a run and its baseline have one model each,
these are compared, whatever their names; otherwise each model is compared with the model of the same name.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from pramana.analyse.comparison import FailOn
from pramana.analyse.gate import UNFINISHED, choose_worst_exit_code
from pramana.analyse.joint_comparison import decide_together
from pramana.analyse.numbers import pluralise
from pramana.app import App, User, use_case
from pramana.app.comparison_sides import (
    DEFAULT_MARGIN_POINTS,
    ComparedSides,
    ComparisonSource,
    DifferentCasesError,
    is_same_suite,
    prepare_sides,
)
from pramana.app.comparisons import (
    ComparisonView,
    Margin,
    comparison_view,
    make_first_page,
    make_state_key,
)
from pramana.app.references import (
    ModelUnclear,
    SideReference,
    make_earlier_run_reference,
    make_file_reference,
    make_run_reference,
    resolve_sides,
)
from pramana.app.views import View
from pramana.errors import Hint, InvalidInput, StateConflict
from pramana.model import Outcome, Run
from pramana.request import check_struct_values
from pramana.store.queue import ACTIVE_STATUSES
from pramana.store.store import Store

_BaseAndNewSource = tuple[ComparisonSource, ComparisonSource]


class BaselineRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """The baseline that a run is checked against, and what fails the check."""

    baseline: str
    """A run ID, a name or, on the user's own machine, the path of a results.json file."""
    fail_on: FailOn = "regression"
    """`inconclusive` fails the check too unless a loss as large as the margin is excluded."""
    margin: Margin = DEFAULT_MARGIN_POINTS


class ModelBaselineView(View, frozen=True, kw_only=True):
    """One model of a run, compared with the baseline."""

    model: Annotated[str, Meta(description="Model, as typed in the run")]
    exit_code: Annotated[
        int,
        Meta(
            description="0: no proven loss beyond the margin; 1: a proven loss beyond it; 4: no case to compare, or "
            "with failOn=inconclusive, such a loss is not excluded"
        ),
    ]
    confidence: Annotated[
        float | None,
        Meta(
            description="Confidence of the interval: 0.95, or higher if several models are decided together; null if "
            "nothing is compared"
        ),
    ]
    adjusted_p_value: Annotated[
        float | None, Meta(description="p-value after Holm's correction over the models; null if nothing is compared")
    ]
    comparison: Annotated[
        ComparisonView, Meta(description="The comparison with its first changed cases; GET /api/compare has all")
    ]


class BaselineCheckView(View, frozen=True, kw_only=True):
    """A run checked against a baseline."""

    run: str
    baseline: Annotated[str, Meta(description="ID of the run that the name led to")]
    passed: Annotated[bool, Meta(description="Whether the exit code is 0")]
    exit_code: Annotated[
        int,
        Meta(
            description="The exit code that `pramana run --baseline` ends with: the worst of the models, or 3 if a "
            "result is missing or errored; 1 is worse than 3, and 3 than 4"
        ),
    ]
    incomplete: Annotated[str | None, Meta(description="Which results are missing or errored; null if none")]
    decided_together: Annotated[
        str | None, Meta(description="That several models are decided together, in a sentence; null for one model")
    ]
    models: tuple[ModelBaselineView, ...]


@use_case("viewer", "heavy")
def check_run_against_baseline(app: App, _: User, run_id: str, request: BaselineRequest) -> BaselineCheckView:
    """Compare a run that has ended with a baseline, model by model, and decide whether it got worse."""
    check_struct_values(request)
    run = app.store.runs.find_as_of_scoring(run_id)
    if run.status in ACTIVE_STATUSES:
        raise StateConflict(f"run {run.id} is still under way; check it against a baseline when it has ended")
    sides = pair_with_baseline(app.store, run, find_baseline(app.store, request.baseline, run))
    key = make_state_key(app.store, [source for pair in sides for source in pair])
    return app.comparison_cache.get(
        ("baseline", *key, request.fail_on, request.margin),
        lambda: _baseline_check_view(run, check_sides(app.store, run, sides, request)),
    )


# ── The check ──


class CheckedModel(Struct, frozen=True):
    """One model of a run, compared with the baseline."""

    model: str
    compared: ComparedSides
    """Decided together with the other models."""
    adjusted_p_value: float | None
    """Holm's; None if nothing is compared. The same holds for `confidence`."""
    confidence: float | None
    """That of the interval."""
    exit_code: int


class BaselineCheck(Struct, frozen=True):
    """A run compared with its baseline, model by model."""

    models: Sequence[CheckedModel]
    incomplete: str | None
    """Which results are missing or errored, as a sentence; None if none."""

    @property
    def exit_code(self) -> int:
        """The worst exit code of the models, or that of an incomplete run."""
        codes = [each.exit_code for each in self.models]
        return choose_worst_exit_code([*codes, UNFINISHED] if self.incomplete else codes)

    @property
    def decided_together(self) -> str | None:
        """That several models are decided together, in a sentence; None for one."""
        count = sum(1 for each in self.models if each.compared.comparison.pairs)
        if count < 2:
            return None
        return (
            f"The {count} models are decided together at 5 % (Holm's correction for {count} comparisons); each "
            "interval has the confidence of its test."
        )


def find_baseline(store: Store, reference: str, run: Run | None = None) -> SideReference:
    """Return the run to compare with: of those with this name that began before `run`, the newest finished one.

    So the check of a run keeps its verdict when later runs get the name. A baseline without all of its results is
    refused: cases that it lacks could not be compared, and the check would pass on a part of them.
    """
    found = make_earlier_run_reference(store, reference, run)
    _refuse_incomplete_baseline(store.runs.find_as_of_scoring(found.identity))
    return found


def _refuse_incomplete_baseline(baseline: Run) -> None:
    counts = f"{baseline.stored:,} of {pluralise(baseline.expected, 'result')}"
    if baseline.status in ACTIVE_STATUSES:
        raise StateConflict(f"the baseline, run {baseline.id}, is still under way: it has {counts}; wait until it ends")
    if baseline.stored < baseline.expected and baseline.plan.pairing is None:
        raise InvalidInput(
            f"the baseline, run {baseline.id}, has {counts}; name a complete run, or complete it",
            hint=Hint("resume_run", baseline.id),
        )


def find_local_baseline(store: Store, reference: str, run: Run | None = None) -> SideReference:
    """Return a baseline that a user of this machine names: a run, or the path of a results.json file."""
    if reference.endswith(".json"):
        return make_file_reference(Path(reference))
    return find_baseline(store, reference, run)


def pair_with_baseline(store: Store, run: Run, base: SideReference) -> Sequence[_BaseAndNewSource]:
    """Return the two sides of each model of a run; raise an error if the baseline has other cases or models.

    Nothing of the run need be stored yet, so an unsuitable baseline is refused before anything is sent.
    """
    new = make_run_reference(store, run.reference)
    if new.identity == base.identity:
        raise InvalidInput(
            f"the baseline, {base.title}, is this run itself; name an earlier run", hint=Hint("list_runs")
        )
    single = len(new.models) == len(base.models) == 1
    try:
        sides = [
            resolve_sides(base, new, base.models[0].typed if single else model.typed, model.typed)
            for model in new.models
        ]
    except ModelUnclear as error:
        raise InvalidInput(f"{error.message}; choose a baseline that has the models of this run") from None
    for before, after in sides:
        if not is_same_suite(before, after):
            raise DifferentCasesError(
                f"the baseline, {base.title}, does not have the cases of this run; choose a run of the same cases",
                hint=Hint("compare_any_suite"),
            )
    return sides


def check_sides(store: Store, run: Run, sides: Sequence[_BaseAndNewSource], request: BaselineRequest) -> BaselineCheck:
    """Compare the two sides of each model, and decide all models together at 5 %."""
    prepared = [
        prepare_sides(before, after, any_suite=False, any_judge=False, margin=request.margin) for before, after in sides
    ]
    models = []
    for made, decided in zip(prepared, decide_together([each.prepared for each in prepared]), strict=True):
        found = decided.comparison
        models.append(
            CheckedModel(
                model=made.sources[1].model,
                compared=made.describe(found),
                adjusted_p_value=decided.adjusted_p_value if found.pairs else None,
                confidence=1 - found.alpha if found.pairs else None,
                exit_code=found.exit_code(request.fail_on),
            )
        )
    counts = store.history.count_run_outcomes([run])[0]
    return BaselineCheck(models, _explain_incomplete(run, counts.outcome_counts if counts else {}))


def _explain_incomplete(run: Run, outcome_counts: Mapping[Outcome, int]) -> str | None:
    """Return which results of a run are missing or errored; None if none."""
    missing, errored = run.expected - run.stored, outcome_counts.get(Outcome.ERRORED, 0)
    if run.plan.pairing and run.status == "finished":  # a test of two endpoints ends when it has its answer
        missing = 0
    found = [f"{pluralise(missing, 'result')} missing"] if missing > 0 else []
    found += [f"{pluralise(errored, 'result')} errored"] if errored else []
    return f"The run is incomplete: {', '.join(found)}." if found else None


def _baseline_check_view(run: Run, check: BaselineCheck) -> BaselineCheckView:
    """Return the view of a check, with the first changed cases of each model."""
    return BaselineCheckView(
        run=run.reference,
        baseline=check.models[0].compared.sources[0].reference,
        passed=check.exit_code == 0,
        exit_code=check.exit_code,
        incomplete=check.incomplete,
        decided_together=check.decided_together,
        models=tuple(
            ModelBaselineView(
                model=each.model,
                exit_code=each.exit_code,
                confidence=each.confidence,
                adjusted_p_value=each.adjusted_p_value,
                comparison=make_first_page(comparison_view(each.compared), *each.compared.sources),
            )
            for each in check.models
        ),
    )
