"""Downloads of weights by this process: one for each name, in a thread, until it is done or has failed."""

import logging
import threading
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from pramana.app.views import View
from pramana.embedded.weights import Phase, find, pinned, pull
from pramana.errors import PramanaError

log = logging.getLogger("pramana.app")


class PullView(View, frozen=True, kw_only=True):
    """A download: under way, or as the last one failed."""

    status: Literal["running", "failed"]
    phase: Phase
    done_bytes: int
    total_bytes: int
    problem: Annotated[str | None, Meta(description="Why it failed, and what to do")]


class _Ended(Exception):
    """The server ends, and the download with it."""


@dataclass(slots=True)
class _Pull:
    phase: Phase = "download"
    done: int = 0
    total: int = 0
    problem: str | None = None

    def view(self) -> PullView:
        """Return how far it is, or how it failed."""
        return PullView(
            status="running" if self.problem is None else "failed",
            phase=self.phase,
            done_bytes=self.done,
            total_bytes=self.total,
            problem=self.problem,
        )


class Pulls:
    """The downloads of one process. Safe to share among threads."""

    def __init__(self) -> None:
        self._pulls: dict[str, _Pull] = {}
        self._lock = threading.Lock()
        self._closed = False

    def of(self, name: str) -> PullView | None:
        """Return how far the download of some weights is, or how the last one failed."""
        with self._lock:
            found = self._pulls.get(name)
            return found.view() if found else None

    def start(self, name: str) -> None:
        """Begin a download, unless it is under way or there is nothing to bring."""
        with self._lock:
            found = self._pulls.get(name)
            if self._closed or find(name) or (found and found.problem is None):
                return
            made = self._pulls[name] = _Pull(total=pinned(name).archive_size)
        # A daemon, so that a server that must end does not wait for a connection that says nothing any more.
        threading.Thread(target=self._pull, args=(name, made), name=f"pull {name}", daemon=True).start()

    def close(self) -> None:
        """End what is under way at its next step; a pull that ends so leaves nothing behind."""
        self._closed = True

    def _pull(self, name: str, made: _Pull) -> None:
        def report(phase: Phase, done: int, total: int) -> None:
            if self._closed:
                raise _Ended
            made.phase, made.done, made.total = phase, done, total

        try:
            pull(name, report)
        except _Ended:
            made.problem = "the server ended meanwhile"
        except PramanaError as error:
            made.problem = str(error)
        except Exception:
            log.exception("the pull of %s broke off", name)
            made.problem = "it broke off, and the server's log says why; try again"
        else:
            with self._lock:
                self._pulls.pop(name, None)
