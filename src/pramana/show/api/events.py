"""`/api/events` and `/api/runs/{id}/events`: live changes and results, as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pramana.app import Credential, User, runs
from pramana.app.access import OpenStreams
from pramana.app.tail import (
    CallsView,
    ChangeEvent,
    ChangeView,
    Heartbeat,
    MissedChangesView,
    ProgressView,
    RunDeletedView,
    RunEndedView,
    RunEvent,
)
from pramana.app.views import ResultView
from pramana.show.api.envelope import AppDependency, document_route, get_request_user, require_caller, to_json_bytes
from pramana.show.api.runs import RunId

router = APIRouter(tags=["events"])
MAX_SEQ = 2**63 - 1
_LastEventId = Annotated[
    int | None, Header(alias="Last-Event-ID", ge=0, le=MAX_SEQ, description="Number of the last event received")
]
_StreamSeconds = Annotated[
    float | None, Query(alias="seconds", gt=0, le=86_400, description="End the stream after this many seconds")
]


CLOSE_STREAM_TIMEOUT_S = 1.0
"""How long a client that does not read may keep an ended stream open."""


_EVENT_NAMES: dict[type, bytes] = {
    ResultView: b"result",
    ProgressView: b"progress",
    RunEndedView: b"finished",
    CallsView: b"calls",
    RunDeletedView: b"deleted",
    ChangeView: b"change",
    MissedChangesView: b"missed",
}


def encode_event(event: RunEvent | ChangeEvent) -> bytes:
    """Return an event in the format of server-sent events.

    >>> encode_event(CallsView({"agent": 1}))
    b'event: calls\\ndata: {"agent":1}\\n\\n'
    """
    if isinstance(event, Heartbeat):
        return b": still here\n\n"
    number = event.seq if isinstance(event, ResultView) else getattr(event, "number", None)
    data = {} if isinstance(event, MissedChangesView) else event.stages if isinstance(event, CallsView) else event
    numbered = b"" if number is None else b"id: %d\n" % number
    return numbered + b"event: " + _EVENT_NAMES[type(event)] + b"\ndata: " + to_json_bytes(data) + b"\n\n"


class EventStream(StreamingResponse):
    """Server-sent events to one listener, until the events or the listener's token end."""

    media_type = "text/event-stream"

    def __init__(self, streams: OpenStreams, events: AsyncIterator[bytes], user: User) -> None:
        streams.check_capacity(user)
        # Without this header, proxies buffer the events.
        super().__init__(events, 200, {"x-accel-buffering": "no"})
        self._streams, self._user = streams, user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the stream ends."""
        async with self._streams.cancel_when_ended(self._user, is_counted=True) as limit:
            await super().__call__(scope, receive, send)
        if limit.expired():
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_STREAM_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _document_stream(*error_statuses: int) -> dict[str, Any]:
    told = document_route(None, *error_statuses)
    told["responses"][200] = {
        "description": "Stream of events until the connection ends",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    return told | {"response_class": EventStream}


@router.get("/api/events", summary="Follow all events", **_document_stream())
async def follow_changes(
    request: Request,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.follow_changes)],
    last: _LastEventId = None,
    duration_s: _StreamSeconds = None,
) -> Response:
    """Stream a `change` event for everything created, changed or deleted, with `kind`, `id` and `action`.

    The ID of an event is the number of the change. With Last-Event-ID, the stream continues after that change, as long
    as changes since then are kept. If they are not, it begins with `missed`: reload everything then.
    """
    found = await runs.follow_changes(app, caller, last)
    return EventStream(app.streams, _encode_events(found, duration_s), get_request_user(request))


@router.get("/api/runs/{run_id}/events", summary="Follow a run", **_document_stream(404))
async def follow_run(
    run_id: RunId,
    request: Request,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.follow_run)],
    last: _LastEventId = None,
    after: Annotated[int, Query(ge=0, le=MAX_SEQ, description="Leave out results up to this number")] = 0,
    duration_s: _StreamSeconds = None,
) -> Response:
    """Stream each `result` as it is stored, `progress`, and `finished` when the run ends; then the stream ends.

    The ID of an event is the number of the result: with Last-Event-ID, the stream continues after it. `calls` counts
    the calls at each stage (`ringing`, `caller`, `waiting`, `agent`, `scoring`), for a run of this server.
    """
    found = await runs.follow_run(app, caller, run_id, after if last is None else last)
    return EventStream(app.streams, _encode_events(found, duration_s), get_request_user(request))


async def _encode_events(
    events: AsyncGenerator[RunEvent | ChangeEvent], duration_s: float | None
) -> AsyncIterator[bytes]:
    async with aclosing(events) as found:
        if duration_s is None:
            async for each in found:
                yield encode_event(each)
            return
        end = asyncio.get_running_loop().time() + duration_s
        while True:
            try:
                async with asyncio.timeout_at(end):
                    each = await anext(found)
            except (TimeoutError, StopAsyncIteration):
                return
            yield encode_event(each)
