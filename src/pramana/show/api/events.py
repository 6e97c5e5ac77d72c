"""`/api/events` and `/api/runs/{id}/events`: what is new, as it happens, as server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from pramana.show.api.envelope import documented
from pramana.show.api.runs import Named
from pramana.show.api.serving import Viewer
from pramana.show.api.tail import Tail

router = APIRouter(tags=["events"])
MOST = 2**63 - 1
_Last = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=MOST, description="The last number that was seen")]
_For = Annotated[float | None, Query(alias="seconds", gt=0, le=86_400, description="End after so long")]


class EventStream(Response):
    """Names the media type."""

    media_type = "text/event-stream"


def _streamed(*errors: int) -> dict[str, Any]:
    told = documented(None, *errors)
    told["responses"][200] = {
        "description": "Events, until the connection ends",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    return told | {"response_class": EventStream}


@router.get("/api/events", summary="Follow everything new", **_streamed())
async def follow(request: Request, who: Viewer, last: _Last = None, seconds: _For = None) -> Response:
    """Tell of each thing that is made, changed or removed: `change` with `kind`, `id` and `action`.

    The id of an event is the number of the change; with Last-Event-ID nothing after it is missed, as long as it is
    kept. When it is not any more, `missed` comes first: look at everything then.
    """
    tail: Tail = request.app.state.tail
    return tail.streams.answer(_bounded(tail.changes(last), seconds), who)


@router.get("/api/runs/{run_id}/events", summary="Follow a run", **_streamed(404))
async def follow_run(
    run_id: Named,
    request: Request,
    who: Viewer,
    last: _Last = None,
    after: Annotated[int, Query(ge=0, le=MOST, description="Leave out results up to this number")] = 0,
    seconds: _For = None,
) -> Response:
    """Tell of each `result` as it is stored, of `progress`, and when the run has `finished`; then the stream ends.

    The id of an event is the number of the result: with Last-Event-ID it goes on after that one. `calls` says how many
    calls are at each stage (`ringing`, `caller`, `waiting`, `agent`, `scoring`), for a run of this server.
    """
    tail: Tail = request.app.state.tail
    return tail.streams.answer(_bounded(tail.run(run_id, after if last is None else last), seconds), who)


async def _bounded(events: AsyncIterator[bytes], seconds: float | None) -> AsyncIterator[bytes]:
    async with aclosing(events) as found:  # type: ignore[type-var] # it is a generator
        if seconds is None:
            async for each in found:
                yield each
            return
        end = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                async with asyncio.timeout_at(end):
                    each = await anext(found)
            except (TimeoutError, StopAsyncIteration):
                return
            yield each
