"""How many requests may be under way at one provider account: found out by trying, never by asking the user.

It starts small and doubles each clean round, until the provider first says "too fast"; from then on it grows slowly,
and only while all it allows is in use. A rate limit cuts it by a third, once for a burst of them, and a Retry-After
holds everyone back that long. Trouble that is not about speed pauses growth and cuts nothing. Judges share it.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from pramana import clock

START = 8
CUT = 0.67
DEBOUNCE_S = 1.0
SATURATED = 0.8
HISTORY = 500


class Change(Struct, frozen=True):
    """One change of the limit, for the run's record."""

    at_s: float
    limit: int
    cause: str


class Limiter:
    """A semaphore whose size follows the provider: `enter_now` or `enter`, then `leave`."""

    def __init__(self, ceiling: int, clock: Callable[[], float] = clock.monotonic) -> None:
        self.ceiling, self.limit = ceiling, min(START, ceiling)
        self.in_use = 0
        self._clock, self._born = clock, clock()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._held_until = self._cut_at = 0.0
        self._doubling = True
        self.answered = False
        """Somebody at the other end has answered at least once."""
        self._hurried = False
        self._clean = self._peak = 0
        self._timer: asyncio.TimerHandle | None = None
        self.history: list[Change] = [Change(0.0, self.limit, "start")]

    def enter_now(self) -> bool:
        """Enter without waiting, if nobody has to wait; then `leave`. The common case costs no coroutine."""
        if self.in_use >= self.limit or self._waiting or self._held_until:
            return False
        self.in_use += 1
        self._peak = max(self._peak, self.in_use)
        return True

    def leave(self) -> None:
        """Let the next one in."""
        self.in_use -= 1
        if self._waiting:
            self._wake()

    async def enter(self) -> None:
        """Enter, when it is one's turn; then `leave`."""
        if not self.enter_now():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            self._wake()
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self.leave()
                raise
            self._peak = max(self._peak, self.in_use)

    def succeeded(self) -> None:
        """Count a clean answer; after a clean round at full use, allow more."""
        self.answered = True
        self._clean += 1
        if self._clean < self.limit:
            return
        saturated = self._peak >= SATURATED * self.limit
        self._clean, self._peak = 0, self.in_use
        if saturated and self.limit < self.ceiling:
            grown = self.limit * 2 if self._doubling else self.limit + max(1, self.limit // 20)
            self._set(min(grown, self.ceiling), "clean round")
            self._wake()

    def rate_limited(self, retry_after: float | None) -> None:
        """Cut the limit, once for a burst, and hold everyone back as long as the provider asks."""
        now = self._clock()
        if now - self._cut_at >= DEBOUNCE_S and now >= self._held_until:
            self._doubling = False
            self._set(max(1, int(self.limit * CUT)), "rate limit")
            self._cut_at = now
        self._clean = 0
        if retry_after and not self._hurried:
            self._held_until = max(self._held_until, now + retry_after)
            self._arm()

    def troubled(self) -> None:
        """Pause growth: the provider has trouble, but not with our speed."""
        self._clean = 0

    def held_s(self) -> float:
        """Return for how many more seconds the provider wants nobody to ask."""
        return max(0.0, self._held_until - self._clock())

    def hurry(self) -> None:
        """Hold nobody back any more: the run ends, and who waits has to learn of it."""
        self._hurried, self._held_until = True, 0.0
        self._wake()

    def _set(self, limit: int, cause: str) -> None:
        if limit != self.limit:
            self.limit = limit
            if len(self.history) < HISTORY:
                self.history.append(Change(round(self._clock() - self._born, 3), limit, cause))

    def _wake(self) -> None:
        if self._held_until:
            if self._clock() < self._held_until:
                self._arm()
                return
            self._held_until = 0.0
        while self._waiting and self.in_use < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_use += 1
                turn.set_result(None)

    def _arm(self) -> None:
        """Wake those who wait when the hold is over, even if nobody else comes or goes."""
        if self._timer is None or self._timer.cancelled() or self._timer.when() < asyncio.get_running_loop().time():
            delay = max(0.0, self._held_until - self._clock()) + 0.001
            self._timer = asyncio.get_running_loop().call_later(delay, self._unhold)

    def _unhold(self) -> None:
        self._timer = None
        self._wake()
