"""A selection of a stored run: a run and filters in, the same run with fewer cases and their results out.

The selection is marked as one wherever it is shown: it carries neither the suite's name alone nor its hash. Results are
streamed; only a limit keeps case digests in memory, as many as it allows.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pramana.errors import Hint, InvalidInput
from pramana.hash import hash_case
from pramana.model import Case, Result, Run

if TYPE_CHECKING:
    from pramana.request import Selection
    from pramana.store.store import Store

SELECTION_SUFFIX = " (selection)"


@dataclass(frozen=True, slots=True)
class SelectedRun:
    """A run reduced by filters; without filters, the whole run."""

    store: "Store"
    run: Run
    selection: "Selection"
    kept_case_digests: frozenset[str] | None = None
    """The case digests that a limit keeps; None without a limit."""

    def results(self) -> Iterator[tuple[Case, Result]]:
        """Yield the selected results with their cases; may be called repeatedly."""
        for case, result in self.store.results.iterate_with_cases(self.run):
            if self.selection.matches(case) and (
                self.kept_case_digests is None or result.key.case in self.kept_case_digests
            ):
                yield case, result


def select_results(store: "Store", run: Run, selection: "Selection") -> SelectedRun:
    """Apply filters to a run; raise `InvalidInput` if they leave no case."""
    if not selection:
        return SelectedRun(store, run, selection)
    cases = 0
    kept: set[str] = set()
    for case in selection.select_cases(store.cases.iterate(run)):
        cases += 1
        if selection.limit is not None:
            kept.add(hash_case(case))
    if not cases:
        raise InvalidInput(f"no case of run {run.id} matches the filters", hint=Hint("check_filters", selection))
    plan = run.plan
    of_whole = selection.to_recorded()
    selected = SelectedRun(
        store,
        replace(
            run,
            plan=replace(
                plan,
                suite=plan.suite.removesuffix(SELECTION_SUFFIX) + SELECTION_SUFFIX,
                suite_hash=None,
                selection={**plan.selection, "of these": of_whole} if plan.selection else of_whole,
            ),
            expected=cases * len(plan.targets) * len(plan.variants) * plan.repeats,
        ),
        selection,
        None if selection.limit is None else frozenset(kept),
    )
    complete = run.stored >= run.expected
    there = selected.run.expected if complete else sum(1 for _ in selected.results())
    return dataclasses.replace(selected, run=replace(selected.run, stored=there))
