"""Downloads of weights by this process: one for each name, in a thread, until it is done or has failed."""

import logging
import threading
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from pramana.app.views import View
from pramana.embedded.weights import Phase, find_folder, find_pin, pull
from pramana.errors import PramanaError

log = logging.getLogger("pramana.app")


class PullView(View, frozen=True, kw_only=True):
    """A download: under way, or as the last one failed."""

    status: Literal["running", "failed"]
    phase: Phase
    done_bytes: int
    total_bytes: int
    problem: Annotated[str | None, Meta(description="Why it failed, and what to do")]


class _ServerClosing(Exception):
    """The server ends, and the download with it."""


class Downloads:
    """The downloads of one process. Safe to share among threads."""

    def __init__(self) -> None:
        self._pulls: dict[str, PullView] = {}
        self._lock = threading.Lock()
        self._closed = False

    def status(self, name: str) -> PullView | None:
        """Return how far the download of some weights is, or how the last one failed."""
        return self._pulls.get(name)

    def start(self, name: str) -> None:
        """Begin a download, unless it is under way or there is nothing to bring."""
        with self._lock:
            found = self._pulls.get(name)
            if self._closed or find_folder(name) or (found and found.status == "running"):
                return
            self._pulls[name] = _running_view("download", 0, find_pin(name).archive_size)
        # A daemon, so that a server that must end does not wait for a connection that says nothing any more.
        threading.Thread(target=self._pull, args=(name,), name=f"pull {name}", daemon=True).start()

    def close(self) -> None:
        """End what is under way at its next step; a pull that ends so leaves nothing behind."""
        self._closed = True

    def _pull(self, name: str) -> None:
        def report(phase: Phase, done: int, total: int) -> None:
            if self._closed:
                raise _ServerClosing
            self._pulls[name] = _running_view(phase, done, total)

        try:
            pull(name, report)
        except _ServerClosing:
            self._fail(name, "the server stopped during the download")
        except PramanaError as error:
            self._fail(name, str(error))
        except Exception:
            log.exception("the pull of %s broke off", name)
            self._fail(name, "the download failed; see the server's log and try again")
        else:
            self._pulls.pop(name, None)

    def _fail(self, name: str, problem: str) -> None:
        self._pulls[name] = replace(self._pulls[name], status="failed", problem=problem)


def _running_view(phase: Phase, done: int, total: int) -> PullView:
    return PullView(status="running", phase=phase, done_bytes=done, total_bytes=total, problem=None)
