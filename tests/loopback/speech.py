"""OpenAI's speech endpoints from the server's side: sound in, scripted words out; words in, sound out in pieces.

`/audio/transcriptions` checks its form field by field and returns a scripted text; `/audio/speech` checks its body and
sends raw samples of a tone, as long as the text. It listens on 127.0.0.1 only and understands nothing.
"""

import asyncio
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from aiohttp import web

PREFIX = "/v1"
RATE = 24000
SECONDS_A_CHARACTER = 0.06
PIECE = 4801
"""Bytes of one piece: odd, so that a sample may be cut in two."""
PAUSE_S = 0.005
"""Between two pieces, so that they arrive as two."""
FORM = {"file", "model", "language", "prompt", "response_format", "temperature"}
BODY = {"model", "voice", "input", "response_format", "speed", "instructions", "stream_format"}
LONGEST_INPUT = 4096


class SpeechLoopback:
    """The server, for as long as the context lasts."""

    def __init__(
        self,
        heard: str = "Is it so?",
        *,
        key: str | None = None,
        first_byte_s: float = 0.0,
        status: int | None = None,
        spoken: bytes | None = None,
        answer: Any = None,
    ) -> None:
        """`spoken` is sent instead of the tone, `answer` instead of the transcript's JSON."""
        self.heard, self.key, self.first_byte_s, self.status = heard, key, first_byte_s, status
        self.spoken, self.answer = spoken, answer
        self.url = ""
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        """Path, headers and fields of every request; of a file, its name, type and bytes."""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post(f"{PREFIX}/audio/transcriptions", self._transcribe)
        app.router.add_post(f"{PREFIX}/audio/speech", self._speak)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}{PREFIX}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner:
            await self._runner.cleanup()

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        fields: dict[str, Any] = {}
        for name, value in (await request.post()).items():
            fields[name] = (
                (value.filename, value.content_type, value.file.read()) if isinstance(value, web.FileField) else value
            )
        self._record(request, fields)
        if refusal := self._refuse(request):
            return refusal
        if unknown := fields.keys() - FORM:
            return _make_error(400, f"Unrecognized request argument supplied: {min(unknown)}", min(unknown))
        for name in ("file", "model"):
            if name not in fields:
                return _make_error(400, f"you must provide a {name} parameter", name)
        if fields["file"][2][:4] != b"RIFF":
            return _make_error(400, "Invalid file format.", "file")
        if fields.get("response_format", "json") != "json":
            return _make_error(400, "this loopback answers json only", "response_format")
        seconds = len(fields["file"][2]) / 2 / 16000
        usage = {"type": "duration", "seconds": round(seconds)}
        return web.json_response({"text": self.heard, "usage": usage} if self.answer is None else self.answer)

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        try:
            body = json.loads(await request.read())
        except ValueError:
            return _make_error(400, "We could not parse the JSON body of your request.", None)
        self._record(request, body)
        if refusal := self._refuse(request):
            return refusal
        if wrong := _find_body_problem(body):
            return _make_error(400, *wrong)
        await asyncio.sleep(self.first_byte_s)
        response = web.StreamResponse(headers={"Content-Type": "audio/pcm"})
        await response.prepare(request)
        sound = self.spoken if self.spoken is not None else await asyncio.to_thread(_make_tone, body["input"])
        for start in range(0, len(sound), PIECE):
            await response.write(sound[start : start + PIECE])
            await asyncio.sleep(PAUSE_S)
        await response.write_eof()
        return response

    def _record(self, request: web.Request, fields: dict[str, Any]) -> None:
        self.asked.append((request.path.removeprefix(PREFIX), dict(request.headers), fields))

    def _refuse(self, request: web.Request) -> web.Response | None:
        if self.status:
            return _make_error(self.status, "scripted", None)
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return _make_error(401, "Incorrect API key provided.", None, "invalid_api_key")
        return None


def _find_body_problem(body: Mapping[str, Any]) -> tuple[str, str] | None:
    if unknown := body.keys() - BODY:
        return f"Unrecognized request argument supplied: {min(unknown)}", min(unknown)
    for name in ("model", "voice", "input"):
        if not isinstance(body.get(name), str) or not body[name]:
            return f"you must provide a {name} parameter", name
    if len(body["input"]) > LONGEST_INPUT:
        return "string_too_long", "input"
    if body.get("response_format") != "pcm":
        return "this loopback speaks pcm only", "response_format"
    return None


def _make_error(status: int, message: str, parameter: str | None, code: str | None = None) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": parameter, "code": code}
    return web.json_response({"error": error}, status=status)


def _make_tone(text: str) -> bytes:
    import numpy as np

    at = np.arange(round(max(0.2, SECONDS_A_CHARACTER * len(text)) * RATE)) / RATE
    return (8000 * np.cos(2 * np.pi * 440 * at)).astype("<i2").tobytes()
