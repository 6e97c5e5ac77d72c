"""The settings of a local program for `app.local`: its project folder, and the cost limit of all its runs together.

A run reserves its cost limit before it starts and releases what it did not spend. Prices are not decided here.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from pramana.errors import PramanaError
from pramana.request import format_cost_limit


class CostNotAllowed(PramanaError, code="cost_not_allowed", http_status=403, exit_code=2):
    """The run would use paid models, but this program has no cost limit, or has reached it."""


class GrantedBudget(Struct):
    """The cost limit of one run, and its cost so far."""

    max_cost_usd: float
    spent_usd: float = 0.0


class SpendingLimit:
    """The cost limit of all runs of this program together, and how much of it is left.

    A run reserves its cost limit before it starts, so that runs at the same time cannot exceed the limit together.

    >>> spending = SpendingLimit(5.0, "start it with a higher limit")
    >>> with spending.reserve(2.0) as granted:
    ...     granted.spent_usd = 0.5
    >>> spending.left_usd
    4.5
    """

    def __init__(self, max_cost_usd: float | None = None, advice: str = "set a cost limit") -> None:
        """Set the limit in US dollars; None: nothing may be spent. `advice` tells the user how to change it."""
        self._max_cost_usd, self._advice = max_cost_usd, advice
        self._reserved_usd = 0.0
        self._lock = threading.Lock()

    @property
    def left_usd(self) -> float:
        """The US dollars that are neither spent nor reserved."""
        return max(0.0, (self._max_cost_usd or 0.0) - self._reserved_usd)

    @contextmanager
    def reserve(self, wanted_usd: float | None, model_names: str = "it") -> Iterator[GrantedBudget]:
        """Reserve the cost limit of a run, at most what is left; on exit, what it did not spend is released."""
        with self._lock:
            if self.left_usd <= 0:
                raise self._make_cost_error(model_names)
            granted = GrantedBudget(self.left_usd if wanted_usd is None else min(wanted_usd, self.left_usd))
            self._reserved_usd += granted.max_cost_usd
        try:
            yield granted
        finally:
            with self._lock:
                self._reserved_usd += granted.spent_usd - granted.max_cost_usd

    def _make_cost_error(self, models: str) -> CostNotAllowed:
        if self._max_cost_usd is None:
            return CostNotAllowed(
                f"{models} may cost money, and this program has no cost limit; {self._advice}. Models that cost "
                "nothing need no limit: local, fake, python:, command:"
            )
        return CostNotAllowed(
            f"{models} may cost money, and the cost limit of {format_cost_limit(self._max_cost_usd)} for all runs of "
            f"this program is used up; wait until active runs end, or {self._advice}"
        )


class LocalProgramSettings(Struct, frozen=True):
    """A program that only this account's user can reach, and that executes runs itself."""

    spending_limit: SpendingLimit
    user_code_folder: Path | None = None
    """The folder of the user's code, which may change between runs: its modules are reimported for each run."""
