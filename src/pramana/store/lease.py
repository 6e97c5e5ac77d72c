"""Who is working on a run: one process at a time, for as long as it says that it is still there.

A process claims a run, prolongs its lease a few times before it would run out, and lets go at the end. The name it does
so by says which process of which machine it is: whoever finds the lease of one that was killed on the same machine need
not wait. From any other machine, only time tells. Nothing here asks or stores a result.
"""

import asyncio
import os
import platform
import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from pramana.errors import AlreadyRunning, StoreFailed

SECONDS = 60.0
"""How long a lease lasts unless it is prolonged: the longest that a killed process of another machine is waited for."""
BEATS = 4
"""How often it is prolonged in that time, so that a slow disk loses none."""
LISTEN_S = 1.0
"""How often whoever holds a run looks whether somebody wants it to end."""
_NAME = re.compile(r"(?P<shown>process (?P<pid>\d+) on .*) \[(?P<machine>.*) (?P<started>\S+)\]", re.DOTALL)
_UNKNOWN, _GONE = "?", ""


class Leases(Protocol):
    """Where leases are written down: the store's queue."""

    def claim(self, run_id: str, owner: str, seconds: float) -> bool: ...

    def release(self, run_id: str, owner: str) -> object: ...

    def heartbeat(self, run_id: str, owner: str | None, seconds: float) -> bool: ...

    def is_cancelled(self, run_id: str) -> bool: ...

    def holder(self, run_id: str) -> str | None: ...


class Lease:
    """Holds a run while its context lasts; raises `AlreadyRunning` on entry when another process does."""

    def __init__(
        self,
        queue: Leases,
        run_id: str,
        on_lost: Callable[[AlreadyRunning], None],
        on_cancelled: Callable[[], None],
        *,
        taken: bool,
    ) -> None:
        self._queue, self._run_id, self._taken_already = queue, run_id, taken
        self._on_lost, self._on_cancelled = on_lost, on_cancelled
        self.owner = this_process()
        """The name by which it holds."""
        self._tasks: list[asyncio.Task[None]] = []
        self.lost = False
        """Another process has taken the run over: this one was silent for too long."""

    async def __aenter__(self) -> Self:
        if not self._taken_already and not self._queue.claim(self._run_id, self.owner, SECONDS):
            raise self._taken("wait until it has ended, or stop it")
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._listen())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._queue.release(self._run_id, self.owner)

    async def _beat(self) -> None:
        while not self.lost:
            await asyncio.sleep(SECONDS / BEATS)
            with suppress(StoreFailed):  # the writer will say so; one beat that is missed ends nothing
                held = await asyncio.to_thread(self._queue.heartbeat, self._run_id, self.owner, SECONDS)
                self.lost = not held
        self._on_lost(self._taken("it has taken over, because this one was silent for too long"))

    async def _listen(self) -> None:
        while True:
            await asyncio.sleep(LISTEN_S)
            with suppress(StoreFailed):  # the next look will tell
                if await asyncio.to_thread(self._queue.is_cancelled, self._run_id):
                    self._on_cancelled()
                    return

    def _taken(self, what: str) -> AlreadyRunning:
        holder = self._queue.holder(self._run_id)
        return AlreadyRunning(f"{shown(holder) if holder else 'another process'} works on run {self._run_id}: {what}")


def this_process() -> str:
    """Return the name by which this process holds leases: unlike any other's, even when its number is given again."""
    pid = os.getpid()
    return f"process {pid} on {platform.node()} [{_machine()} {_started(pid)}]"


def shown(holder: str) -> str:
    """Return a holder's name for people.

    >>> shown("process 7 on desk [4f1c 1234]")
    'process 7 on desk'
    """
    found = _NAME.fullmatch(holder)
    return found["shown"] if found else holder


def is_gone(holder: str) -> bool:
    """Tell whether a holder is surely no more: it was a process of this machine, and there is none such now."""
    found = _NAME.fullmatch(holder)
    if found is None or found["machine"] != _machine():
        return False
    now = _started(int(found["pid"]))
    return now == _GONE or (_UNKNOWN not in (now, found["started"]) and now != found["started"])


@lru_cache(maxsize=1)
def _machine() -> str:
    """Return what tells this machine and its process numbers from others: two containers may both have a process 7."""
    parts = [platform.node()]
    with suppress(OSError):
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()]
        parts += [str(Path("/proc/self/ns/pid").readlink())]
    return " ".join(parts)


def _started(pid: int) -> str:
    """Return the moment a process began, as the system counts; unknown where it does not say, nothing if it is gone."""
    if os.name == "nt":  # there, the question itself would end the process
        return _UNKNOWN
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return _GONE
    except OSError:
        pass  # another user's
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (OSError, ValueError):
        return _UNKNOWN
    return _GONE if state in "ZX" else rest[18]
