"""`/api/weights`: what the embedded models need on this machine, and its download, watched.

A pull goes on in a thread of this process, one for each name however many ask for it. What came of the last one is kept
until the next begins; whether weights are here is looked up each time, so whoever brought them, they are found.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from pramana.embedded.weights import WEIGHTS, Phase, find, pinned, pull
from pramana.errors import PramanaError
from pramana.show.api.envelope import Answered, Shape, answer, documented
from pramana.show.api.serving import Editor, Viewer

log = logging.getLogger("pramana.api")
router = APIRouter(tags=["weights"])
NEEDED_FOR: Mapping[str, str] = {
    "smollm2-135m": "the model local, and the voice agent local-voice",
    "minilm-l6-v2": "semantic_similarity, where no other embedder is named",
    "piper": "callers with the voice piper",
}
NEEDED_BY: Mapping[str, tuple[str, ...]] = {"smollm2-135m": ("local", "local-voice")}
"""What is typed as a model and cannot answer without them."""


class PullShape(Shape):
    """A download: under way, or as the last one failed."""

    status: Literal["running", "failed"]
    phase: Phase
    done_bytes: int
    total_bytes: int
    problem: str | None = Field(description="Why it failed, and what to do")


class WeightsShape(Shape):
    """The weights of one embedded model."""

    name: str
    title: str = Field(description="The model's own name")
    needed_for: str
    models: list[str] = Field(description="What is typed as a model and cannot answer without them")
    present: bool
    optional: bool = Field(description="Whether they come only when they are asked for by name")
    download_bytes: int
    licence: str
    remark: str = Field(description="What to know before they are used")
    pull: PullShape | None


class _Ended(Exception):
    """The server ends, and the download with it."""


@dataclass(slots=True)
class _Pull:
    phase: Phase = "download"
    done: int = 0
    total: int = 0
    problem: str | None = None

    def data(self) -> dict[str, Any]:
        return {
            "status": "running" if self.problem is None else "failed",
            "phase": self.phase,
            "doneBytes": self.done,
            "totalBytes": self.total,
            "problem": self.problem,
        }


class Pulls:
    """The downloads of one process. Safe to share among threads."""

    def __init__(self) -> None:
        self._pulls: dict[str, _Pull] = {}
        self._lock = threading.Lock()
        self._closed = False

    def of(self, name: str) -> dict[str, Any] | None:
        """Return how far the download of some weights is, or how the last one failed."""
        with self._lock:
            found = self._pulls.get(name)
            return found.data() if found else None

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


@router.get("/api/weights", summary="List the weights of the embedded models", **documented(list[WeightsShape]))
def list_weights(request: Request, _: Viewer) -> Response:
    """Return what each embedded model needs, whether it is here, and how far its download is."""
    return answer([_shown(name, request.app.state.pulls) for name in WEIGHTS])


def _starting() -> dict[str, Any]:
    told = documented(WeightsShape, 404, status=202, description="Under way: look again how far it is")
    told["responses"][200] = {"model": Answered[WeightsShape], "description": "They are here already"}
    return told


@router.post("/api/weights/{name}/pull", summary="Download weights", **_starting())
def pull_weights(name: Annotated[str, Path(max_length=200)], request: Request, _: Editor) -> Response:
    """Bring weights to this machine; whoever asks while that is under way watches the same download."""
    pinned(name)
    pulls: Pulls = request.app.state.pulls
    pulls.start(name)
    found = _shown(name, pulls)
    return answer(found, status=200 if found["present"] else 202)


def _shown(name: str, pulls: Pulls) -> dict[str, Any]:
    pin = pinned(name)
    under_way = pulls.of(name)  # first: what ends between the two is then here
    present = find(name) is not None
    return {
        "name": name,
        "title": pin.title,
        "neededFor": NEEDED_FOR.get(name, pin.title),
        "models": list(NEEDED_BY.get(name, ())),
        "present": present,
        "optional": pin.opt_in,
        "downloadBytes": pin.archive_size,
        "licence": pin.licence,
        "remark": pin.remark,
        "pull": None if present else under_way,
    }
