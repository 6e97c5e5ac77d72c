"""Where the calls of a run are: each call enters one stage after another, and a listener gets every change.

Only for people who wait: nothing is decided or measured by it, and nothing of it is stored.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, get_args

Stage = Literal["ringing", "caller", "waiting", "agent", "scoring"]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
"""In the order in which a call with one line passes them; with more lines, the middle three repeat."""
Enter = Callable[[Stage], None]
"""Called with the stage that a call enters."""


class Stages:
    """The calls of one run that are under way. For one event loop."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.on_change = on_change
        self._calls: dict[int, Stage] = {}
        self._next = 0

    @contextmanager
    def call(self, first: Stage = "ringing") -> Iterator[Enter]:
        """Count a call for the length of a block; what it yields moves the call to another stage."""
        number, self._next = self._next, self._next + 1

        def enter(stage: Stage) -> None:
            if self._calls.get(number) != stage:
                self._calls[number] = stage
                self.on_change()

        enter(first)
        try:
            yield enter
        finally:
            del self._calls[number]
            self.on_change()

    def counts(self) -> Mapping[Stage, int]:
        """Return how many calls are at each stage, in the order of the stages; empty while there is none.

        >>> stages = Stages()
        >>> with stages.call(), stages.call() as enter:
        ...     enter("agent")
        ...     stages.counts()
        {'ringing': 1, 'agent': 1}
        """
        found = Counter(self._calls.values())
        return {stage: found[stage] for stage in STAGES if found[stage]}
