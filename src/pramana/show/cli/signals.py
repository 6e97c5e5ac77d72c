"""Signals that end a run: the first Ctrl-C finishes what is under way, the next ends at once."""

import math
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from pramana import clock

if TYPE_CHECKING:
    from pramana.run.engine import Stop

SECOND_SIGNAL_WINDOW_S = 2.0
"""How long an end at once may take before yet another signal hurries it: what was stored is written down in that."""


class SignalHandler:
    """The first Ctrl-C finishes what is under way, and so does the first SIGTERM or SIGHUP; the next ends at once.

    Whoever ignores SIGHUP, as `nohup` does, wants a run to survive its terminal.
    """

    def __init__(self, stop: "Stop", clock: Callable[[], float] = clock.monotonic) -> None:
        self._stop, self._clock = stop, clock
        self._previous_handlers: dict[signal.Signals, Any] = {}
        self._signal_count, self._last_signal_at = 0, -math.inf

    def __enter__(self) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", None)):  # not every system has the last
            if each and (each is signal.SIGINT or signal.getsignal(each) is not signal.SIG_IGN):
                self._previous_handlers[each] = signal.signal(each, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for each, before in self._previous_handlers.items():
            signal.signal(each, before)

    def _on_signal(self, number: int, _: object) -> None:
        from pramana.bench import INTERRUPTED

        self._stop(INTERRUPTED)
        self._signal_count += 1
        if self._signal_count == 1:
            again = "press Ctrl-C again" if number == signal.SIGINT else "signal again"
            with suppress(OSError, RuntimeError):  # no terminal any more, or we were just writing to it
                click.echo(f"Finishing what is under way; {again} to stop at once.", err=True)
        elif self._clock() - self._last_signal_at > SECOND_SIGNAL_WINDOW_S:  # who hammers on the key means it once
            self._last_signal_at = self._clock()
            raise KeyboardInterrupt
