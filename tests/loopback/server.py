"""The loopback server: requests in a vendor's wire format come in, that vendor's answers go out, or scripted faults.

The `Wire` shapes the answers; this file owns the port, the record of requests, latency and faults. It listens on
127.0.0.1 only and sends no requests.
"""

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from aiohttp import web

from pramana import clock
from pramana.loopback.voice import ReceivedRequest

FaultKind = Literal[
    "unauthorized",  # 401
    "parameter",  # 400 that names `Fault.parameter`
    "unknown_model",  # 404
    "rate_limited",  # 429, with `Fault.retry_after` as its header when given
    "error",  # 500
    "overloaded",  # 529
    "hang",  # no answer, until the client leaves
    "cut",  # the connection is lost halfway
    "short",  # a stream that ends properly, but halfway
    "bad_json",  # halfway, something that is no JSON
    # What follows is the wire's to shape:
    "long_line",  # a text of 1 MB in one event
    "filtered",  # the content filter stops the answer
    "blocked",  # the content filter refuses the prompt
    "unpaid",  # the account is out of credit, with the vendor's own status
    "refusal",  # the model declines, in the field the format has for it
    "empty",  # an answer without text
    "error_midway",  # an error where the stream's next event should be
    "plain",  # plain JSON in answer to a streaming request
]
STATUS_BY_FAULT: Mapping[str, int] = {
    "unauthorized": 401,
    "parameter": 400,
    "unknown_model": 404,
    "rate_limited": 429,
    "error": 500,
    "overloaded": 529,
}
STATISTICS = "/loopback"
"""GET returns the number of requests, their duration and peak concurrency; DELETE also resets them."""
LONG_TEXT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Fault:
    """A single failure, used once."""

    kind: FaultKind
    retry_after: str | None = None
    """The header's value: seconds, or a date."""
    parameter: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: one frame of JSON, or the frames of a stream."""

    frames: tuple[bytes, ...]
    status: int = 200
    streamed: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    whole: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "whole", b"".join(self.frames))

    @classmethod
    def of(cls, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> "Answer":
        """Answer with plain JSON."""
        return cls((json.dumps(body).encode(),), status, headers=headers or {})


class Wire(Protocol):
    """One vendor's wire format, seen from the server."""

    base_path: str
    """The prefix of every path in the vendor's base URL: `/v1`, or nothing."""

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:
        """Check the request field by field and answer it; `fault` is one of those that are the wire's to shape."""
        ...

    def make_error_body(self, status: int, message: str, *, parameter: str | None = None) -> Any:
        """Return the body the vendor sends with such a status."""
        ...


@dataclass(frozen=True, slots=True)
class ScriptedToolCall:
    """A tool that every answer calls."""

    name: str
    arguments: str
    """As JSON, an object."""
    id: str

    def split_arguments(self) -> list[str]:
        """Return the arguments as a stream sends them."""
        half = len(self.arguments) // 2
        return [self.arguments[:half], self.arguments[half:]]


ReplyFunction = Callable[[Sequence[Mapping[str, Any]]], str]


class Vendor:
    """Options of every vendor's wire: the replies, the accepted key and the models."""

    def __init__(
        self,
        says: str | ReplyFunction = "It is so.",
        *,
        key: str | None = None,
        models: Sequence[str] = ("loopback-small", "loopback-large"),
        any_model: bool = True,
        page: int = 1000,
        calls: Sequence[ScriptedToolCall] = (),
    ) -> None:
        """`says` is a fixed reply or a function of the messages; `key` is the accepted key (None: any).

        `any_model=False` knows only the models listed; `page` of them are listed at once, where the format has pages.
        `calls` are part of every answer, after the text if there is any.
        """
        self.says, self.key, self.models, self.any_model, self.page = says, key, tuple(models), any_model, page
        self.calls = tuple(calls)

    def has_model(self, model: str) -> bool:
        return self.any_model or model in self.models

    def text(self, turns: Sequence[Mapping[str, Any]], fault: Fault | None) -> str:
        """Return the reply to a conversation, changed by a fault if there is one."""
        match fault.kind if fault else None:
            case "empty":
                return ""
            case "long_line":
                return "a" * LONG_TEXT_BYTES
            case "refusal":
                return "I cannot help with that."
        return self.says if isinstance(self.says, str) else self.says(turns)


def make_event(data: Any, event: str | None = None) -> bytes:
    """Return one server-sent event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


class Loopback:
    """One wire on one port, for as long as the context lasts.

    `script` says which request meets which fault, counted from zero; beyond it, each request meets one of `faults` with
    probability `chance`, by `seed`.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        script: Mapping[int, Fault] | None = None,
        faults: Sequence[Fault] = (),
        chance: float = 1.0,
        seed: int = 0,
        latency_s: float = 0.0,
        pace_s: float | None = None,
        port: int = 0,
        keep: bool = True,
    ) -> None:
        """`latency_s` passes before an answer, `pace_s` between the events of a stream (None: all in one piece).

        `keep=False` forgets the requests: a benchmark's server must not grow.
        """
        self.wire, self.script, self.faults, self.chance = wire, script or {}, tuple(faults), chance
        self.latency_s, self.pace_s, self.keep = latency_s, pace_s, keep
        self.requests: list[ReceivedRequest] = []
        self.url = ""
        """The base URL to give to a client."""
        self.count = self.busy = self.busiest = 0
        self.first = self.last = 0.0
        """When the first and the last request arrived, by `clock.monotonic()`."""
        self._port, self._random = port, random.Random(seed)
        self._server = web.Server(self._handle, access_log=None, handler_cancellation=True)
        self._listening: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.get_running_loop().create_server(
            self._server, "127.0.0.1", self._port, backlog=4096
        )
        port = self._listening.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}{self.wire.base_path}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listening:
            self._listening.close()
        await self._server.shutdown(0.1)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        read = await request.content.read()  # not request.read(), which stops at 1 MB
        if request.path == STATISTICS:
            return self._report_statistics(anew=request.method == "DELETE")
        self.last = clock.monotonic()
        self.first = self.first or self.last
        number, self.count = self.count, self.count + 1
        self.busy += 1
        self.busiest = max(self.busy, self.busiest)
        try:
            return await self._answer(request, number, read)
        finally:
            self.busy -= 1

    async def _answer(self, request: web.BaseRequest, number: int, read: bytes) -> web.StreamResponse:
        try:
            body = json.loads(read) if read else None
        except ValueError:
            body = None
        prefix = self.wire.base_path
        path = request.path.removeprefix(prefix) if request.path.startswith(prefix) else f"outside {prefix}"
        got = ReceivedRequest(request.method, path, request.query, request.headers, body)
        if self.keep:
            self.requests.append(got)
        fault = self._choose_fault(number)
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if fault and fault.kind == "hang":
            await asyncio.Event().wait()
        if fault and (status := STATUS_BY_FAULT.get(fault.kind)):
            return _make_response(self._make_refusal(status, fault))
        answer = self.wire.answer(got, fault)
        spoilt = fault.kind if fault and fault.kind in ("cut", "short", "bad_json") else None
        if spoilt is None and not (answer.streamed and self.pace_s is not None):
            return _make_response(answer)
        response = web.StreamResponse(status=answer.status, headers=_make_headers(answer))
        response.enable_chunked_encoding()
        with suppress(ConnectionError):  # the client left first
            await response.prepare(request)
            await (
                _send_broken(request, response, answer, spoilt)
                if spoilt
                else _send_paced(response, answer, self.pace_s or 0)
            )
        return response

    def _report_statistics(self, *, anew: bool) -> web.Response:
        told = {"requests": self.count, "seconds": self.last - self.first, "at_once": self.busiest}
        if anew:
            self.count = self.busiest = 0
            self.first = self.last = 0.0
        return _make_response(Answer.of(told))

    def _choose_fault(self, number: int) -> Fault | None:
        if number in self.script:
            return self.script[number]
        if self.faults and self._random.random() < self.chance:
            return self._random.choice(self.faults)
        return None

    def _make_refusal(self, status: int, fault: Fault) -> Answer:
        said = {
            "unauthorized": "Incorrect API key provided",
            "parameter": f"Unsupported parameter: '{fault.parameter}' is not supported with this model.",
            "unknown_model": "The model does not exist or you do not have access to it.",
            "rate_limited": "Rate limit reached. Please try again later.",
            "error": "The server had an error while processing your request.",
            "overloaded": "Overloaded",
        }[fault.kind]
        headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
        return Answer.of(self.wire.make_error_body(status, said, parameter=fault.parameter), status, headers)


_HEADERS = {kind: {"Content-Type": kind} for kind in ("application/json", "text/event-stream; charset=utf-8")}


def _make_headers(answer: Answer) -> Mapping[str, str]:
    kind = _HEADERS["text/event-stream; charset=utf-8" if answer.streamed else "application/json"]
    return {**kind, **answer.headers} if answer.headers else kind


def _make_response(answer: Answer) -> web.Response:
    return web.Response(body=answer.whole, status=answer.status, headers=_make_headers(answer))


async def _send_paced(response: web.StreamResponse, answer: Answer, pace_s: float) -> None:
    for number, each in enumerate(answer.frames):
        if number:
            await asyncio.sleep(pace_s)
        await response.write(each)
    await response.write_eof()


async def _send_broken(request: web.BaseRequest, response: web.StreamResponse, answer: Answer, kind: str) -> None:
    half = len(answer.frames) // 2
    for each in answer.frames[:half]:
        await response.write(each)
    if not half:
        await response.write(answer.whole[: len(answer.whole) // 2])
    if kind == "bad_json":
        await response.write(b'data: {"oops": \n\n' if half else b'{"oops": ')
    if kind != "cut":
        await response.write_eof()
    elif request.transport:
        request.transport.close()
