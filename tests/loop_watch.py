"""Finds callbacks that block an event loop: each is timed, and the stack of one that runs for long is sampled.

What other processes take of the machine does not count: time in which a thread of this process could have run but had
no processor is subtracted, since the loop may have waited for the interpreter's lock, which that thread had. `python tests/loop_watch.py REPORT ARGUMENTS…` runs `pramana ARGUMENTS…` this way.
"""

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

LIMIT_S = 0.1
SAMPLE_INTERVAL_S = 0.02
SOURCE = f"{os.sep}pramana{os.sep}"


class Hold(NamedTuple):
    """A callback that blocked its loop for longer than the limit."""

    place: str
    """The innermost line of our code that was sampled in it."""
    seconds: float
    working: float
    """Seconds of processor time; the rest was spent waiting."""


class _Watch:
    def __init__(self) -> None:
        self.holds: list[Hold] = []
        self._began: dict[int, float] = {}
        """When the callback of each thread began."""
        self._places: dict[int, str] = {}
        self._waited_s = _seconds_without_processor()
        self._ended = threading.Event()

    def run(self, handle: asyncio.Handle) -> None:
        """Run a callback as the loop does, and time it."""
        thread = threading.get_ident()
        without, working, start = self._waited_s, time.thread_time(), time.perf_counter()
        self._began[thread] = start
        try:
            _run(handle)
        finally:
            del self._began[thread]
            seconds, worked = time.perf_counter() - start, time.thread_time() - working
            place = self._places.pop(thread, "?")
            if seconds > LIMIT_S:
                seconds = max(worked, seconds - max(0.0, _seconds_without_processor() - without))
            if seconds > LIMIT_S:
                self.holds.append(Hold(place, seconds, worked))

    def sample(self) -> None:
        while not self._ended.wait(SAMPLE_INTERVAL_S):
            self._waited_s = _seconds_without_processor()
            now, frames = time.perf_counter(), sys._current_frames()
            for thread, began in list(self._began.items()):
                if now - began > LIMIT_S / 2 and thread in frames:
                    walked = traceback.walk_stack(frames[thread])  # reading the sources could outlast the callback
                    stack = traceback.StackSummary.extract(walked, lookup_lines=False)[::-1]
                    ours = [each for each in stack if SOURCE in each.filename] or stack
                    self._places[thread] = " → ".join(
                        f"{each.filename.rpartition('site-packages/')[2]}:{each.lineno} {each.name}"
                        for each in (ours[-1], *stack[-1:])
                    )


def _seconds_without_processor() -> float:
    """Return the seconds in which the threads of this process have waited for a processor."""
    total = 0
    for each in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread may end meanwhile
            total += int(each.read_bytes().split()[1])
    return total / 1e9


Handle: Any = asyncio.Handle
_run = Handle._run


@contextmanager
def watch_event_loops() -> Iterator[list[Hold]]:
    """Watch every event loop of this process; yield the callbacks that have blocked one so far."""
    watch = _Watch()
    sampling = threading.Thread(target=watch.sample, daemon=True)
    sampling.start()
    Handle._run = lambda handle: watch.run(handle)  # noqa: PLW0108 - a bound method would not get the handle
    try:
        yield watch.holds
    finally:
        Handle._run = _run
        watch._ended.set()
        sampling.join()


if __name__ == "__main__":
    from pramana.show.cli import main

    report = Path(sys.argv.pop(1))
    with watch_event_loops() as holds:
        try:
            main()
        finally:
            report.write_text(json.dumps(holds), encoding="utf-8")
