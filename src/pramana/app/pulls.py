"""Downloads of weights by this process: at most one per name, each in a thread."""

import logging
import threading
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from pramana.app.views import View
from pramana.embedded.weights import Phase, find_folder, find_pinned_weights, pull
from pramana.errors import PramanaError

log = logging.getLogger("pramana.app")


class PullView(View, frozen=True, kw_only=True):
    """A download in progress, or the last one if it failed."""

    status: Literal["running", "failed"]
    phase: Phase
    done_bytes: int
    total_bytes: int
    problem: Annotated[str | None, Meta(description="Why the download failed, and what to do")]


class _ServerClosing(Exception):
    """Raised in a download when the server stops."""


class Downloads:
    """The downloads of one process. Thread-safe."""

    def __init__(self) -> None:
        self._pulls: dict[str, PullView] = {}
        self._lock = threading.Lock()
        self._closed = False

    def status(self, name: str) -> PullView | None:
        """Return the progress of a download, or the failure of the last one; None if there is neither."""
        return self._pulls.get(name)

    def start(self, name: str) -> None:
        """Start a download, unless it is in progress or the weights are here already."""
        with self._lock:
            found = self._pulls.get(name)
            if self._closed or find_folder(name) or (found and found.status == "running"):
                return
            self._pulls[name] = _running_view("download", 0, find_pinned_weights(name).archive_size_bytes)
        # A daemon, so that a stopping server does not wait for a stalled connection.
        threading.Thread(target=self._download, args=(name,), name=f"pull {name}", daemon=True).start()

    def close(self) -> None:
        """Stop all downloads at their next step; a stopped download leaves no files behind."""
        self._closed = True

    def _download(self, name: str) -> None:
        def report(phase: Phase, done: int, total: int) -> None:
            if self._closed:
                raise _ServerClosing
            self._pulls[name] = _running_view(phase, done, total)

        try:
            pull(name, report)
        except _ServerClosing:
            self._record_failure(name, "the server stopped during the download")
        except PramanaError as error:
            self._record_failure(name, str(error))
        except Exception:
            log.exception("the download of %s failed", name)
            self._record_failure(name, "the download failed; see the server's log and try again")
        else:
            self._pulls.pop(name, None)

    def _record_failure(self, name: str, problem: str) -> None:
        self._pulls[name] = replace(self._pulls[name], status="failed", problem=problem)


def _running_view(phase: Phase, done_bytes: int, total_bytes: int) -> PullView:
    return PullView(status="running", phase=phase, done_bytes=done_bytes, total_bytes=total_bytes, problem=None)
