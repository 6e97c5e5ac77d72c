"""OpenAI's speech endpoints: server and adapter checked with its SDK; then cascades of them, and every fault."""

import asyncio
import json
import typing
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import openai
import pytest

from pramana import audio
from pramana.embedded.voice import speak as speak_aloud
from pramana.errors import AuthenticationFailed, BrokenReply, InvalidInput, RateLimited, Rejected, Unavailable
from pramana.model import Line, Target, Utterance
from pramana.providers.accounts import Account
from pramana.providers.names import resolve_target
from pramana.providers.voice.cascade import Cascade
from pramana.providers.voice.speech import RecognitionEndpoint, SynthesisEndpoint
from pramana.providers.voice.vocabulary import CallSetup
from pramana.run.call import Conversation, Patience

from ...loopback.openai import OpenAIWire
from ...loopback.server import Loopback
from ...loopback.speech import SpeechLoopback

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-test-0123456789"
T = typing.TypeVar("T")
CLIP = (9000 * np.sin(np.arange(8000) / 10)).astype(np.int16)


def serve(use: Callable[[SpeechLoopback], Awaitable[T]], **given: Any) -> T:
    async def go() -> T:
        async with SpeechLoopback(**{"key": KEY, **given}) as server:
            return await use(server)

    return asyncio.run(go())


async def transcribe(server: SpeechLoopback, key: str = KEY, language: str = "en-GB") -> str:
    ears = RecognitionEndpoint(Account(server.url, key, 5.0), "whisper-1")
    try:
        return await ears.transcribe(CLIP, language)
    finally:
        await ears.close()


async def speak(server: SpeechLoopback, text: str = "Hello there.") -> bytes:
    mouth, heard = SynthesisEndpoint(Account(server.url, KEY, 5.0), "gpt-4o-mini-tts", "coral"), bytearray()
    try:
        await mouth.synthesise(text, "en", heard.extend)
    finally:
        await mouth.close()
    return bytes(heard)


def test_the_sdk_transcribes_and_speaks() -> None:
    async def use(server: SpeechLoopback) -> tuple[str, bytes]:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            file = ("speech.wav", audio.write_wav(CLIP, 16000), "audio/wav")
            heard = await client.audio.transcriptions.create(
                file=file, model="whisper-1", language="en", response_format="json"
            )
            said = await client.audio.speech.create(
                model="gpt-4o-mini-tts", voice="coral", input="Hello there.", response_format="pcm"
            )
            return heard.text, said.content

    text, sound = serve(use, heard="So it is.")
    assert text == "So it is."
    assert len(sound) == 2 * round(0.06 * 12 * 24000)


def test_our_requests_equal_those_of_the_sdk() -> None:
    async def use(server: SpeechLoopback) -> list[Any]:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            file = ("speech.wav", audio.write_wav(CLIP, 16000), "audio/wav")
            await client.audio.transcriptions.create(
                file=file, model="whisper-1", language="en", response_format="json"
            )
            await client.audio.speech.create(
                model="gpt-4o-mini-tts", voice="coral", input="Hello there.", response_format="pcm"
            )
        await transcribe(server)
        await speak(server)
        return server.asked

    their_ears, their_mouth, our_ears, our_mouth = serve(use)
    for ours, theirs in ((our_ears, their_ears), (our_mouth, their_mouth)):
        assert ours[0] == theirs[0]
        assert ours[2] == theirs[2]
        assert ours[1]["Authorization"] == theirs[1]["Authorization"]
        assert ours[1]["Content-Type"].partition(";")[0] == theirs[1]["Content-Type"].partition(";")[0]
    assert our_mouth[1]["Accept"] == their_mouth[1]["Accept"]


def test_audio_is_returned_in_whole_samples_for_any_chunks() -> None:
    pieces: list[bytes] = []

    async def use(server: SpeechLoopback) -> None:
        mouth = SynthesisEndpoint(Account(server.url, KEY, 5.0), "tts-1")
        try:
            await mouth.synthesise("A longer sentence, in several pieces.", "en", pieces.append)
        finally:
            await mouth.close()

    serve(use)
    assert len(pieces) > 1
    assert all(len(piece) % 2 == 0 for piece in pieces)
    whole = np.frombuffer(b"".join(pieces), "<i2")
    assert abs(int(np.abs(whole).max()) - 8000) < 5  # a cut sample would have made noise of it


@pytest.mark.parametrize(
    ("given", "raised"),
    [
        ({"status": 401}, AuthenticationFailed),
        ({"status": 429}, RateLimited),
        ({"status": 500}, Unavailable),
        ({"status": 400}, Rejected),
        ({"answer": {"words": 1}}, BrokenReply),
        ({"answer": ["no"]}, BrokenReply),
        ({"answer": {"text": None}}, BrokenReply),
        ({"spoken": b""}, BrokenReply),
        ({"first_byte_s": 9.0}, Unavailable),
    ],
)
def test_faults_are_our_own_errors(given: dict[str, Any], raised: type[Exception]) -> None:
    async def use(server: SpeechLoopback) -> Any:
        if "spoken" in given or "first_byte_s" in given:
            mouth = SynthesisEndpoint(Account(server.url, KEY, 0.5), "tts-1")
            try:
                await mouth.synthesise("Hello.", "en", lambda _: None)
            finally:
                await mouth.close()
        else:
            await transcribe(server)

    with pytest.raises(raised) as caught:
        serve(use, **given)
    assert KEY not in str(caught.value)


def test_a_wrong_key_is_reported_without_showing_it() -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        serve(lambda server: transcribe(server, key="sk-wrong-9876543210"))
    assert "sk-wrong" not in str(caught.value)


def test_a_cascade_of_three_endpoints_answers_a_call() -> None:
    async def go() -> Any:
        said = Utterance(Line("Is it so?"), speak_aloud("Is it so?", "en"), "sha256:x")
        async with SpeechLoopback("Is it so?", key=KEY) as speech, Loopback(OpenAIWire("It is so.")) as chat:
            target = resolve_target(f"cascade:stt=whisper-1,chat={chat.url}#small,tts=tts-1,voice=coral")
            agent = Cascade.open(target, Account(speech.url, KEY, None))
            try:
                call = Conversation(await agent.dial(CallSetup("x", "Be kind.")), [said], {"rate": 24000}, Patience())
                return await call.hold_call(), chat.requests, speech.asked
            finally:
                await agent.close()

    held, asked, spoken = asyncio.run(go())
    assert held.end_reason == "done"
    assert held.answers == ("It is so.",)
    assert held.usage.output_tokens
    events = [json.loads(line) for line in held.log.splitlines()]
    assert [each["text"] for each in events if each["event"] == "user_text" and each["final"]] == ["Is it so?"]
    body = asked[0].body
    assert body["model"] == "small"
    assert [turn["role"] for turn in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"].startswith("Be kind.")
    assert [path for path, _, _ in spoken] == ["/audio/transcriptions", "/audio/speech"]
    samples, rate = audio.read_wav(held.recording)
    assert audio.find_first_audible(samples[:, 1], rate) is not None


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("cascade:stt=a,chat=b", "tts is missing"),
        ("cascade:", "is not an option of a cascade"),
        ("cascade:stt=a,chat=b,tts=c,ears=d", "is not an option of a cascade"),
        ("cascade:stt=,chat=b,tts=c", "is not an option of a cascade"),
    ],
)
def test_a_cascade_name_lists_its_parts(written: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        resolve_target(written)


def test_a_cascade_is_resolved_without_a_key() -> None:
    target = resolve_target("cascade:stt=whisper-1,chat=gpt-5-mini,tts=tts-1")
    assert target == Target(
        "cascade:stt=whisper-1,chat=gpt-5-mini,tts=tts-1",
        "cascade",
        "gpt-5-mini",
        {"stt": "whisper-1", "chat": "gpt-5-mini", "tts": "tts-1"},
    )
