"""`pramana run --baseline RUN`: a run that has just ended, compared with an earlier one, model by model.

The baseline is found, and its cases are checked, before anything is sent. What is printed, and the exit codes, are
those of `pramana compare`.
"""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from pramana.errors import InvalidInput
from pramana.report import terminal
from pramana.show.cli.compare import open_reference, print_comparison

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pramana.analyse.comparison import FailOn
    from pramana.app.comparison_sides import ComparedSides, ComparisonSource
    from pramana.app.references import SideReference
    from pramana.model import Run
    from pramana.store.store import Store


class Baseline(Struct, frozen=True):
    """What a new run is compared with, and what its build stops for."""

    side: "SideReference"
    fail_on: "FailOn"

    def refuse_other_cases(self, store: "Store", run: "Run") -> None:
        """Raise an error if the run has other cases or other models than the baseline; nothing has been sent yet."""
        from pramana.app.comparison_sides import is_same_suite

        for base, new in self._iterate_sources(store, run):
            if not is_same_suite(base, new):
                raise InvalidInput(
                    f"the baseline, {self.side.title}, does not have the cases of this run; choose a run of the same "
                    "cases, or run without --baseline and use: pramana compare --any-suite"
                )

    def compare(self, store: "Store", run: "Run") -> "BaselineComparison":
        """Compare the run with the baseline."""
        from pramana.app.comparison_sides import compare_sides

        made = [
            compare_sides(base, new, any_suite=False, any_judge=False)
            for base, new in self._iterate_sources(store, run)
        ]
        return BaselineComparison(made, self.fail_on)

    def _iterate_sources(self, store: "Store", run: "Run") -> "Iterator[tuple[ComparisonSource, ComparisonSource]]":
        """Yield the two sides of each model; a single model may be another one than that of the baseline."""
        from pramana.app.references import make_run_reference, resolve_sides

        new = make_run_reference(store, run.id)
        if len(new.models) == len(self.side.models) == 1:
            yield resolve_sides(self.side, new, self.side.models[0].typed, new.models[0].typed)
            return
        for model in new.models:
            yield resolve_sides(self.side, new, model.typed, model.typed)


class BaselineComparison(Struct, frozen=True):
    """A run compared with its baseline, model by model."""

    comparisons_by_model: "list[ComparedSides]"
    fail_on: "FailOn"

    @property
    def exit_codes(self) -> list[int]:
        """The exit code of each model."""
        return [each.comparison.exit_code(self.fail_on) for each in self.comparisons_by_model]

    def print_text(self) -> None:
        """Print each comparison as `pramana compare` does."""
        for each in self.comparisons_by_model:
            click.echo()
            print_comparison(each)

    def as_data(self) -> list[dict[str, Any]]:
        """Return the comparisons as plain data, as `pramana compare --json` prints them."""
        from pramana.app.comparisons import comparison_view

        return [
            {**terminal.views_to_plain(comparison_view(each)), "exit_code": code}
            for each, code in zip(self.comparisons_by_model, self.exit_codes, strict=True)
        ]


def open_baseline(reference: str | None, fail_on: "FailOn | None", stack: ExitStack) -> Baseline | None:
    """Return the baseline that the options name; None without one."""
    if reference is None:
        return None
    return Baseline(open_reference(reference, stack, is_base=True), fail_on or "regression")
