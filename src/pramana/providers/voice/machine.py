"""What one process does at once: calls, and the work of embedded engines, which take turns.

Who wants to be busy comes in and waits for a place; nothing here knows what they do in it.
"""

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

CALLS_AT_ONCE = 8
"""In one process, whoever is called: as many as the clock is proven with."""
_Kind = Literal["call", "alone", "work"]


class Machine:
    """What one process does at once, so that the times of a call are the agent's and not those of a queue of ours.

    A call takes one of a few places. One whose agent hears or speaks by the embedded engines is `alone`: beside it is
    no other such call, and no other `work` of those engines either (measuring calls, writing them down, asking the
    embedded model). They take turns, so that neither waits for long: after a call comes the work that waits by then,
    and after that the next call. It knows several event loops, as a process may have.
    """

    def __init__(self, most: int = CALLS_AT_ONCE) -> None:
        self.call, self.alone, self.work = (Place(self, kind) for kind in ("call", "alone", "work"))
        self._most = most
        self._taken: dict[_Kind, int] = {"call": 0, "alone": 0, "work": 0}
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()

    async def enter(self, kind: _Kind) -> None:
        """Wait for one's turn; then `leave`."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(kind, loop, loop.create_future())
        with self._lock:
            self._waiting.append(waiting)
            self._admit()
        if waiting.admitted:
            return
        try:
            await waiting.turn
        except asyncio.CancelledError:
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                else:  # admitted in the same moment
                    self._taken[kind] -= 1
                self._admit()
            raise

    def leave(self, kind: _Kind) -> None:
        """Let the next ones in."""
        with self._lock:
            self._taken[kind] -= 1
            if kind == "alone":  # the work of this call waits by now or soon, and it goes before the next one
                self._waiting.sort(key=lambda each: each.kind != "work")
            self._admit()

    def _admit(self) -> None:
        someone_wants_to_be_alone = False
        for waiting in list(self._waiting):
            taken = self._taken
            place = taken["call"] + taken["alone"] < self._most
            if waiting.kind == "call":
                free = place
            elif waiting.kind == "alone":
                free = place and not taken["alone"] and not taken["work"] and not someone_wants_to_be_alone
                someone_wants_to_be_alone = True
            else:
                free = not taken["alone"] and not someone_wants_to_be_alone
            if free:
                self._waiting.remove(waiting)
                with suppress(RuntimeError):  # its loop is closed: nobody is there any more
                    waiting.loop.call_soon_threadsafe(_wake, waiting.turn)
                    waiting.admitted = True
                    taken[waiting.kind] += 1


class Place:
    """One way of being busy, `async with` it."""

    def __init__(self, machine: Machine, kind: _Kind) -> None:
        self._machine, self._kind = machine, kind

    async def __aenter__(self) -> None:
        await self._machine.enter(self._kind)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._machine.leave(self._kind)


@dataclass(eq=False, slots=True)
class _Waiting:
    kind: _Kind
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]
    admitted: bool = False


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


machine = Machine()
"""This process's."""
