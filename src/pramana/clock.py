"""The program's only clock: date and time, seconds for measuring, and a blocking sleep.

Everything that measures or records a time uses this module, so that a test can install a clock with virtual time. Code
on an event loop keeps `asyncio.sleep` and `asyncio.timeout`: those follow `loop.time()`, which such a test replaces
with the same clock.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime


class Clock:
    """The machine's clock; tests install another."""

    def now(self) -> datetime:
        """Return the current date and time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never goes backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)


_clock = Clock()


def now() -> datetime:
    """Return the current date and time, in UTC."""
    return _clock.now()


def timestamp() -> float:
    """Return seconds since 1970, comparable to timestamps of the file system and of other processes."""
    return _clock.now().timestamp()


def monotonic() -> float:
    """Return seconds on a clock that never goes backwards, for durations and deadlines."""
    return _clock.monotonic()


def sleep(seconds: float) -> None:
    """Block the calling thread; on an event loop, use `asyncio.sleep`."""
    _clock.sleep(seconds)


@contextmanager
def use_clock(clock: Clock) -> Iterator[None]:
    """Use another clock in the whole process until the block ends."""
    global _clock  # noqa: PLW0603 - one clock a process: threads and event loops must agree on the time
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before
