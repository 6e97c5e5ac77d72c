"""`pramana run --baseline RUN`: a run that has just ended, compared with an earlier one, model by model.

The baseline is found, and its cases are checked, before anything is sent. What is printed, and the exit codes, are
those of `pramana compare`.
"""

from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from pramana.report import terminal
from pramana.show.cli.compare import print_comparison

if TYPE_CHECKING:
    from pramana.app.baselines import BaselineCheck, BaselineRequest
    from pramana.app.references import SideReference
    from pramana.model import Run
    from pramana.store.store import Store


class Baseline(Struct, frozen=True):
    """What a new run is compared with, and what its build stops for."""

    side: "SideReference"
    request: "BaselineRequest"

    def refuse_other_cases(self, store: "Store", run: "Run") -> None:
        """Raise an error if the run has other cases or other models than the baseline; nothing has been sent yet."""
        from pramana.app.baselines import pair_with_baseline

        pair_with_baseline(store, run, self.side)

    def check(self, store: "Store", run: "Run") -> "BaselineCheck":
        """Compare the run with the baseline."""
        from pramana.app.baselines import check_sides, pair_with_baseline

        return check_sides(store, run, pair_with_baseline(store, run, self.side), self.request)


def find_baseline(store: "Store", option_values: dict[str, Any]) -> Baseline | None:
    """Return the baseline that the options name; None without one."""
    if option_values["baseline"] is None:
        return None
    from pramana.app.baselines import BaselineRequest, find_local_baseline

    stated = {name: option_values[name] for name in ("fail_on", "margin") if option_values[name] is not None}
    request = BaselineRequest(baseline=option_values["baseline"], **stated)
    return Baseline(find_local_baseline(store, request.baseline), request)


def print_check(check: "BaselineCheck") -> None:
    """Print each comparison as `pramana compare` does."""
    for each in check.models:
        click.echo()
        print_comparison(each.compared)
    if check.decided_together:
        click.echo()
        click.echo(terminal.wrap_text(check.decided_together))


def check_to_data(check: "BaselineCheck") -> list[dict[str, Any]]:
    """Return the comparisons as plain data, as `pramana compare --json` prints them."""
    from pramana.app.comparisons import comparison_view

    return [
        {
            **terminal.views_to_plain(comparison_view(each.compared)),
            "confidence": each.confidence,
            "adjusted_p_value": each.adjusted_p_value,
            "exit_code": each.exit_code,
        }
        for each in check.models
    ]
