"""Signals that stop a run: the first Ctrl-C lets requests in flight finish, the next stops at once."""

import math
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from pramana import clock

if TYPE_CHECKING:
    from pramana.run.engine import Stop

REPEATED_SIGNALS_IGNORED_S = 2.0
"""How long an immediate stop ignores further signals, so that it can write the results."""


class SignalHandler:
    """On the first Ctrl-C, SIGTERM or SIGHUP, lets requests in flight finish; on the next, stops at once.

    A SIGHUP that is already ignored, as under `nohup`, stays ignored, so that the run survives its terminal.
    """

    def __init__(self, stop: "Stop", clock: Callable[[], float] = clock.monotonic) -> None:
        self._stop, self._clock = stop, clock
        self._previous_handlers: dict[signal.Signals, Any] = {}
        self._signal_count, self._last_signal_at = 0, -math.inf

    def __enter__(self) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", None)):  # Windows has no SIGHUP
            if each and (each is signal.SIGINT or signal.getsignal(each) is not signal.SIG_IGN):
                self._previous_handlers[each] = signal.signal(each, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for each, before in self._previous_handlers.items():
            signal.signal(each, before)

    def _on_signal(self, number: int, _: object) -> None:
        from pramana.run.engine import INTERRUPTED_BY_USER_REASON

        self._stop(INTERRUPTED_BY_USER_REASON)
        self._signal_count += 1
        if self._signal_count == 1:
            again = "press Ctrl-C again" if number == signal.SIGINT else "signal again"
            with suppress(OSError, RuntimeError):  # the terminal is gone, or a write to it was interrupted
                click.echo(f"Finishing requests in flight; {again} to stop at once.", err=True)
        elif self._clock() - self._last_signal_at > REPEATED_SIGNALS_IGNORED_S:  # repeated presses count as one
            self._last_signal_at = self._clock()
            raise KeyboardInterrupt
