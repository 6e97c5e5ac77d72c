"""Concurrency per provider account, found by trial rather than by configuration.

The limit starts small and doubles each clean round until the provider's first rate limit; from then on it grows slowly,
and only while it is fully used. A rate limit cuts it by a third, once per burst, and a Retry-After makes every request
wait that long. Errors that are not about speed pause growth but cut nothing. Judges share the limiter.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from pramana import clock

INITIAL_LIMIT = 8
RATE_LIMIT_CUT_FACTOR = 0.67
MIN_CUT_INTERVAL_S = 1.0
SATURATION_SHARE = 0.8
MAX_RECORDED_CHANGES = 500


class LimitChange(Struct, frozen=True):
    """One change of the limit, for the run's record."""

    at_s: float
    limit: int
    cause: str


class Limiter:
    """A semaphore whose size adapts to the provider: `try_enter` or `enter`, then `leave`."""

    def __init__(self, ceiling: int, clock: Callable[[], float] = clock.monotonic) -> None:
        self.ceiling, self.limit = ceiling, min(INITIAL_LIMIT, ceiling)
        self.in_use = 0
        self._clock, self._started_at = clock, clock()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._held_until = self._cut_at = 0.0
        self._doubling = True
        self.has_answered = False
        """Whether the provider has responded at least once."""
        self._is_released = False
        self._successes_since_cut = self._peak = 0
        self._timer: asyncio.TimerHandle | None = None
        self.history: list[LimitChange] = [LimitChange(0.0, self.limit, "start")]

    def try_enter(self) -> bool:
        """Enter without waiting if possible; then `leave`. The common case needs no coroutine."""
        if self.in_use >= self.limit or self._waiting or self._held_until:
            return False
        self.in_use += 1
        self._peak = max(self._peak, self.in_use)
        return True

    def leave(self) -> None:
        """Leave, and let the next request enter."""
        self.in_use -= 1
        if self._waiting:
            self._wake()

    async def enter(self) -> None:
        """Wait to enter; then `leave`."""
        if not self.try_enter():
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

    def record_success(self) -> None:
        """Count a success; after a clean round at full use, raise the limit."""
        self.has_answered = True
        self._successes_since_cut += 1
        if self._successes_since_cut < self.limit:
            return
        saturated = self._peak >= SATURATION_SHARE * self.limit
        self._successes_since_cut, self._peak = 0, self.in_use
        if saturated and self.limit < self.ceiling:
            grown = self.limit * 2 if self._doubling else self.limit + max(1, self.limit // 20)
            self._set_limit(min(grown, self.ceiling), "clean round")
            self._wake()

    def apply_rate_limit(self, retry_after_s: float | None) -> None:
        """Cut the limit, once per burst, and make every request wait as long as the provider asks."""
        now = self._clock()
        if now - self._cut_at >= MIN_CUT_INTERVAL_S and now >= self._held_until:
            self._doubling = False
            self._set_limit(max(1, int(self.limit * RATE_LIMIT_CUT_FACTOR)), "rate limit")
            self._cut_at = now
        self._successes_since_cut = 0
        if retry_after_s and not self._is_released:
            self._held_until = max(self._held_until, now + retry_after_s)
            self._schedule_release()

    def pause_growth(self) -> None:
        """Pause growth: the provider has errors that are not about speed."""
        self._successes_since_cut = 0

    def remaining_rate_limit_wait_s(self) -> float:
        """Return the seconds left until the provider's rate limit ends."""
        return max(0.0, self._held_until - self._clock())

    def stop_waiting_for_rate_limits(self) -> None:
        """End all waits: the run ends, and waiting requests must notice."""
        self._is_released, self._held_until = True, 0.0
        self._wake()

    def _set_limit(self, limit: int, cause: str) -> None:
        if limit != self.limit:
            self.limit = limit
            if len(self.history) < MAX_RECORDED_CHANGES:
                self.history.append(LimitChange(round(self._clock() - self._started_at, 3), limit, cause))

    def _wake(self) -> None:
        if self._held_until:
            if self._clock() < self._held_until:
                self._schedule_release()
                return
            self._held_until = 0.0
        while self._waiting and self.in_use < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_use += 1
                turn.set_result(None)

    def _schedule_release(self) -> None:
        """Wake waiting requests when the rate limit ends, even if no other request enters or leaves."""
        if self._timer is None or self._timer.cancelled() or self._timer.when() < asyncio.get_running_loop().time():
            delay = max(0.0, self._held_until - self._clock()) + 0.001
            self._timer = asyncio.get_running_loop().call_later(delay, self._end_rate_limit_wait)

    def _end_rate_limit_wait(self) -> None:
        self._timer = None
        self._wake()
