"""The loopback voice agent: takes a caller's sound over a WebSocket, sends a scripted answer, and times both.

`VoiceLoopback` owns the port, the clock, the script (`Script`) and the log; an `Agent` translates to one vendor's
messages. It ends the caller's turn by level alone, answers with a sound that is known to the sample, and logs on
`clock.monotonic()`, which all processes of a machine share. It listens on 127.0.0.1 only and understands nothing.

To add a vendor, derive from `Agent` and return messages; never send, wait or pace there:

1. `upgrade_path_pattern`: a pattern for the upgrade's path, without the query; `prefix`: the end of the base URL.
2. `refuse` checks the upgrade (key, query), `answer_http` answers all other requests (a list of models, a signed URL).
3. `on_open` returns the first messages. `handle_message` parses one client message field by field, calls
   `receive_sound` with its sound in the uplink's format, `mark_ready` once the handshake is done and `reply` for a
   written turn, and rejects an invalid message as the vendor does: with messages, or with `hang_up(code, reason)`.
4. `on_speech_start`, `on_speech_stop`, `answer_start_messages`, `sound_messages`, `agent_transcript_messages`,
   `caller_transcript_messages`, `answer_end_messages`, `on_interruption` and `unknown_event_messages` return the
   vendor's messages for each step of the script, or nothing where the vendor has none.
5. Add it to `AGENTS` in `__main__`, so that it runs as a program.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from aiohttp import WSMsgType, web
from msgspec.structs import asdict

from pramana import clock
from pramana.loopback.script import (
    LoggedAnswer,
    Script,
    SpeechDetector,
    decode_frame,
    make_answer_sound,
    make_silence,
    spread_words,
)
from pramana.loopback.ticker import PROCESSOR_WAIT_LOOKBACK_S, TICK_S, Ticker
from pramana.providers.voice.vocabulary import FRAME_S, Format, Message

__all__ = ["Agent", "Call", "LoggedAnswer", "Script", "VoiceLoopback"]

MAX_CLOSE_REASON_BYTES = 123
"""The longest reason that the protocol allows in a close frame."""


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as received."""

    method: str
    path: str
    """Without the wire format's prefix and the query."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names are case-insensitive."""
    body: Any
    """The parsed JSON; None if there was none or it was invalid."""


class Agent:
    """The server side of one call in one vendor's wire format; one instance per call."""

    base_path: ClassVar[str] = ""
    upgrade_path_pattern: ClassVar[str] = "/"
    uplink = Format("pcm", 16000)
    downlink = Format("pcm", 24000)
    """The formats of this call; the handshake may change them."""

    def __init__(self, script: Script, got: ReceivedRequest) -> None:
        self.script, self.request = script, got
        self.key: str | None = None
        """The only accepted key; set after construction, for vendors that refuse a wrong one after the upgrade."""
        self.requested_model = ""
        """The model or agent that was called."""
        self.ready = False
        self.sounds: list[bytes] = []
        """Sound received and not yet passed to the speech detector."""
        self.wants_answer = False
        """Whether to answer at once, because the turn was written."""
        self.close_request: tuple[int, str] | None = None

    # Before the call: the upgrade and plain HTTP

    @classmethod
    def make_upgrade_refusal(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response | None:
        """Return the refusal of an upgrade, or None; by default, refuse one that does not carry the key."""
        if accepted_key is None or any(
            accepted_key in value for value in (*request.headers.values(), *request.query.values())
        ):
            return None
        return web.json_response(cls.make_error_body(401, "Unauthorized"), status=401)

    @classmethod
    def answer_http(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response:  # noqa: ARG003
        """Answer a request that is not an upgrade; `request.headers["Host"]` is the host it was sent to."""
        return web.json_response(cls.make_error_body(404, "Not found"), status=404)

    @classmethod
    def make_error_body(cls, status: int, message: str) -> Any:
        """Return the vendor's error body for a status."""
        return {"error": {"code": status, "message": message}}

    # For use in `handle_message`

    def receive_sound(self, frame: bytes) -> None:
        """Take a frame of the caller's sound in the uplink's format."""
        self.sounds.append(frame)

    def mark_ready(self) -> None:
        """Mark the handshake as done: sound counts from now on."""
        self.ready = True

    def request_answer(self) -> None:
        """Answer now, without a spoken turn: the client sent text, or ended the turn itself."""
        self.wants_answer = True

    def hang_up(self, code: int, reason: str) -> None:
        """Close the connection once the messages of this step are sent."""
        self.close_request = (code, reason)

    # The vendor's messages

    def on_open(self) -> list[Message]:
        """Return the messages to send as soon as the connection is open."""
        return []

    def handle_message(self, message: Message) -> list[Message]:
        """Handle one client message and return the immediate response."""
        raise NotImplementedError

    def on_speech_start(self) -> list[Message]:
        """Return the messages to send when the caller begins to speak."""
        return []

    def on_speech_stop(self) -> list[Message]:
        """Return the messages to send when the caller's turn ends; an answer follows unless the agent hangs."""
        return []

    def answer_start_messages(self) -> list[Message]:
        """Return the messages that precede the first sound."""
        return []

    def sound_messages(self, chunk: bytes) -> list[Message]:
        """Return the messages that carry sound in the downlink's format; the first one holds sound."""
        raise NotImplementedError

    def agent_transcript_messages(self, text: str, *, final: bool) -> list[Message]:  # noqa: ARG002
        """Return the next piece of the agent's transcript, or with `final` all of it, after the last piece."""
        return []

    def caller_transcript_messages(self, text: str) -> list[Message]:  # noqa: ARG002
        """Return the agent's transcript of the caller."""
        return []

    def answer_end_messages(self) -> list[Message]:
        """Return the messages that follow the last sound."""
        return []

    def on_interruption(self, *, is_sending: bool) -> list[Message]:  # noqa: ARG002
        """Return the messages to send when the caller interrupts an answer, sent or still playing."""
        return []

    def unknown_event_messages(self, filler: str) -> list[Message]:
        """Return an event of an unknown type that contains the filler."""
        return [json.dumps({"type": "loopback.unheard_of", "filler": filler})]


class Call:
    """One connection from the server's side."""

    def __init__(self, server: "VoiceLoopback", number: int, agent: Agent, socket: web.WebSocketResponse) -> None:
        self.request, self.agent = agent.request, agent
        self.received: list[Message] = []
        """The client's messages, in order."""
        self.sent: list[Message] = []
        self.close_code: int | None = None
        """The client's close code."""
        self._server, self._number, self._socket = server, number, socket
        self._speech_detector = SpeechDetector(server.script.hangover_s)
        self._answering: asyncio.Task[None] | None = None
        self._streaming: asyncio.Task[None] | None = None
        self._plays_until = 0.0
        self._speaks = False
        """Whether sound of an answer is being sent."""
        self._ready = False

    async def run(self) -> None:
        script, agent = self._server.script, self.agent
        try:
            if script.hang != "ready":
                await self._send(agent.on_open())
            async for message in self._socket:
                if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    break
                at = clock.monotonic()
                if self._server.keep:
                    self.received.append(message.data)
                if script.hang == "ready":
                    continue
                await self._send(agent.handle_message(message.data))
                if not agent.close_request:
                    await self._handle_sound(at)
                if agent.close_request:
                    await self._close(*agent.close_request)
                    break
            self.close_code = self._socket.close_code
        finally:
            await self._stop_answering()
            if self._streaming:
                self._streaming.cancel()
                await asyncio.wait([self._streaming])

    async def _handle_sound(self, received_at: float) -> None:
        agent, script = self.agent, self._server.script
        if agent.ready and not self._ready:
            self._ready = True
            if script.unknown_event:
                await self._send(agent.unknown_event_messages("a" * (1 << 20) if script.large_unknown_event else "a"))
            if script.streams_silence:
                self._streaming = asyncio.create_task(self._stream_silence())
            if script.greets:
                self._answering = asyncio.create_task(self._answer(None, 0.0, received_at))
        if agent.wants_answer and script.hang is None:
            self._answering = asyncio.create_task(self._answer(None, 0.0, received_at, previous_answer=self._answering))
        agent.wants_answer = False
        sounds, agent.sounds = agent.sounds, []
        for frame in sounds:
            for what in self._speech_detector.feed(decode_frame(agent.uplink, frame), agent.uplink.rate, received_at):
                await (self._on_speech_start() if what == "start" else self._on_speech_stop())

    async def _stream_silence(self) -> None:
        """Send silence in real time whenever everything sent so far has been played."""
        frame = make_silence(FRAME_S, self.agent.downlink)
        while True:
            now = clock.monotonic()
            if now >= self._plays_until and not self._speaks:
                self._plays_until = max(now, self._plays_until) + FRAME_S
                await self._send(self.agent.sound_messages(frame))
            await asyncio.sleep(max(0.001, self._plays_until - clock.monotonic()))

    async def _on_speech_start(self) -> None:
        sending = self._answering is not None and not self._answering.done()
        playing = clock.monotonic() < self._plays_until
        await self._send(self.agent.on_speech_start())
        if self._server.script.interrupt and (sending or playing):
            await self._stop_answering()
            self._plays_until = 0.0
            await self._send(self.agent.on_interruption(is_sending=sending))

    async def _on_speech_stop(self) -> None:
        await self._send(self.agent.on_speech_stop())
        if self._server.script.hang is None:
            before, ear = self._answering, self._speech_detector
            self._answering = asyncio.create_task(
                self._answer(ear.last_at, ear.last_within_s, ear.last_at, previous_answer=before)
            )

    async def _answer(
        self,
        speech_end_at: float | None,
        speech_end_offset_s: float,
        turn_end_at: float,
        *,
        previous_answer: asyncio.Task[None] | None = None,
    ) -> None:
        script, agent, server = self._server.script, self.agent, self._server
        if previous_answer:
            await asyncio.wait([previous_answer])
        await asyncio.sleep(max(0.0, turn_end_at + script.first_byte_s - clock.monotonic()))
        chunks = make_answer_sound(script, agent.downlink)
        pieces = spread_words(script.text, len(chunks))
        middle = len(chunks) // 2
        await self._send(agent.answer_start_messages())
        self._speaks = True
        if script.streams_silence:  # silence sent before plays first, and would delay the answer
            await asyncio.sleep(max(0.0, self._plays_until - clock.monotonic()))
        for number, chunk in enumerate(chunks):
            messages = agent.sound_messages(chunk)
            now = clock.monotonic()
            await self._send(messages)
            if number == 0:
                server.log_answer(
                    LoggedAnswer(
                        self._number, agent.requested_model, speech_end_at, speech_end_offset_s, now,
                        script.leading_silence_s, server.processor_wait_s(turn_end_at, now),
                    )
                )  # fmt: skip
                if script.transcript == "with" and speech_end_at is not None:
                    await self._send(agent.caller_transcript_messages(script.heard))
            self._plays_until = max(now, self._plays_until) + len(chunk) / agent.downlink.bytes_per_second
            if script.transcript == "with" and pieces[number]:
                await self._send(agent.agent_transcript_messages(pieces[number], final=False))
            if number == middle:
                await self._send_scripted_faults()
            await asyncio.sleep(script.chunk_s / script.sending_speed)
        self._speaks = False
        if script.transcript == "with":
            await self._send(agent.agent_transcript_messages(script.text, final=True))
        await self._send(agent.answer_end_messages())
        if script.transcript == "late":
            await asyncio.sleep(script.transcript_delay_s)
            if speech_end_at is not None:
                await self._send(agent.caller_transcript_messages(script.heard))
            await self._send(agent.agent_transcript_messages(script.text, final=True))

    async def _send_scripted_faults(self) -> None:
        script = self._server.script
        if script.unknown_event:
            await self._send(self.agent.unknown_event_messages("a" * (1 << 20) if script.large_unknown_event else "a"))
        if script.bad_json:
            await self._send(['{"type": "loopback.cut", "half": '])
        if script.close_mid_turn:
            await self._close(*script.close_mid_turn)

    async def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if self._server.keep:
                self.sent.append(message)
            with suppress(ConnectionError, RuntimeError):  # the client has disconnected
                await (self._socket.send_str(message) if isinstance(message, str) else self._socket.send_bytes(message))

    async def _close(self, code: int, reason: str) -> None:
        # Do not wait for the close: a client that does not respond must not block the answer's task.
        with suppress(ConnectionError, RuntimeError):
            cut = reason.encode()[:MAX_CLOSE_REASON_BYTES].decode("utf-8", "ignore")
            await self._socket.close(code=code, message=cut.encode(), drain=False)

    async def _stop_answering(self) -> None:
        task, self._answering = self._answering, None
        self._speaks = False
        if task and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])


class VoiceLoopback:
    """One vendor's agent on one port, for as long as the context is open."""

    def __init__(
        self,
        agent: type[Agent],
        script: Script | None = None,
        *,
        key: str | None = None,
        port: int = 0,
        log: Path | None = None,
        keep: bool = True,
    ) -> None:
        """Accept only `key` (None: any); `log` is the file that gets each turn as a line of JSON when it happens.

        `keep=False` discards the messages: a benchmark's server must not grow.
        """
        self.agent, self.script, self.key, self.keep = agent, script or Script(), key, keep
        self.url = ""
        """The base URL for a client, with http."""
        self.calls: list[Call] = []
        self.requests: list[ReceivedRequest] = []
        """Every request, upgrades included."""
        self._logged_answers: list[LoggedAnswer] = []
        self._count, self._port, self._log = 0, port, log
        self._server = web.Server(self._handle, access_log=None)
        self._listening: asyncio.Server | None = None
        self._ticker = Ticker(TICK_S)

    def logged_answers(self) -> list[LoggedAnswer]:
        """Return the answers so far, in the order of their first bytes."""
        return list(self._logged_answers)

    def processor_wait_s(self, since: float, until: float) -> float:
        """Return how long this process waited for a processor between two moments; 0 without a log."""
        return self._ticker.processor_wait_s(since - PROCESSOR_WAIT_LOOKBACK_S, until) if self._log else 0.0

    def log_answer(self, answer: LoggedAnswer) -> None:
        """Keep an answer, and append it to the log."""
        self._logged_answers.append(answer)
        if self._log:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(answer)) + "\n")

    async def __aenter__(self) -> Self:
        make_answer_sound(self.script, self.agent.downlink)  # import numpy and make the sound before any timing
        self._listening = await asyncio.get_running_loop().create_server(self._server, "127.0.0.1", self._port)
        port = self._listening.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}{self.agent.base_path}"
        if self._log:
            await self._ticker.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._log:
            await self._ticker.__aexit__(kind, error, trace)
        if self._listening:
            self._listening.close()
        await self._server.shutdown(0.1)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        read = await request.content.read()
        try:
            body = json.loads(read) if read else None
        except ValueError:
            body = None
        path = request.path.removeprefix(self.agent.base_path)
        got = ReceivedRequest(request.method, path, request.query, request.headers, body)
        self.requests.append(got)
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return self.agent.answer_http(got, self.key)
        if status := self.script.status:
            said = {401: "Unauthorized", 403: "Forbidden", 429: "Too many requests"}.get(status, "Internal error")
            return web.json_response(self.agent.make_error_body(status, said), status=status)
        if not re.fullmatch(self.agent.upgrade_path_pattern, path):
            return web.json_response(self.agent.make_error_body(404, "Not found"), status=404)
        if refusal := self.agent.make_upgrade_refusal(got, self.key):
            return refusal
        socket = web.WebSocketResponse(max_msg_size=16 << 20, compress=False)
        await socket.prepare(request)
        agent = self.agent(self.script, got)
        agent.key = self.key
        call = Call(self, self._count, agent, socket)
        self._count += 1
        if self.keep:
            self.calls.append(call)
        await call.run()
        return socket
