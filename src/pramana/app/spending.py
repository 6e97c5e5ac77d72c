"""What `app.local` knows of the program that the user started: its folder, and what all its runs together may spend.

A run reserves its part before it starts and gives back what it did not spend. What a model costs is not decided here.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from pramana.errors import PramanaError


class CostNotAllowed(PramanaError, code="cost_not_allowed", http_status=403, exit_code=2):
    """The run would ask models that cost money, and this program may not spend any, or no more."""


class GrantedBudget(Struct):
    """What one run may cost, and what it has cost."""

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
        """Set the limit in US dollars; None: nothing may be spent. `advice` says how the user changes it."""
        self._max_cost_usd, self._advice = max_cost_usd, advice
        self._taken = 0.0
        self._lock = threading.Lock()

    @property
    def left_usd(self) -> float:
        """What is neither spent nor reserved."""
        return max(0.0, (self._max_cost_usd or 0.0) - self._taken)

    @contextmanager
    def reserve(self, wanted_usd: float | None, models: str = "it") -> Iterator[GrantedBudget]:
        """Reserve what a run may cost: what it wants, at most what is left. What it did not spend is given back."""
        with self._lock:
            if self.left_usd <= 0:
                raise self._cost_not_allowed(models)
            granted = GrantedBudget(self.left_usd if wanted_usd is None else min(wanted_usd, self.left_usd))
            self._taken += granted.max_cost_usd
        try:
            yield granted
        finally:
            with self._lock:
                self._taken += granted.spent_usd - granted.max_cost_usd

    def _cost_not_allowed(self, models: str) -> CostNotAllowed:
        if self._max_cost_usd is None:
            return CostNotAllowed(
                f"{models} may cost money, and this program may not spend any; {self._advice}. "
                "Models that cost nothing need no limit: local, fake, python:, command:"
            )
        return CostNotAllowed(
            f"{models} may cost money, and nothing is left of the ${self._max_cost_usd:g} that this program may spend "
            f"in all; wait for runs under way to end, or {self._advice}"
        )


class LocalProgram(Struct, frozen=True):
    """A program that only the user of this account can reach, and that carries runs out itself."""

    spending: SpendingLimit
    project: Path | None = None
    """The folder of the user's code, whose modules are imported anew for each run: it may have changed meanwhile."""
