"""OpenAI's speech endpoints, and every compatible server: sound in, words out; words in, sound out as it arrives.

Only translates: one request per call, no retries. Recognition receives a WAV file; the voice is requested as raw
samples, which can be played before the last of them arrives.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import aiohttp

from pramana.providers.accounts import Account
from pramana.providers.http import HttpTransport
from pramana.providers.text.openai import make_headers

if TYPE_CHECKING:
    from pramana.audio import Samples

SPEECH_SAMPLE_RATE = 24000
"""The sample rate of `/audio/speech` for `pcm`."""
DEFAULT_VOICE = "alloy"
# fmt: off
RECOGNITION_LANGUAGES = frozenset((
    "af", "ar", "az", "be", "bg", "bs", "ca", "cs", "cy", "da", "de", "el", "en", "es", "et", "fa", "fi", "fr", "gl",
    "he", "hi", "hr", "hu", "hy", "id", "is", "it", "ja", "kk", "kn", "ko", "lt", "lv", "mi", "mk", "mr", "ms", "ne",
    "nl", "no", "pl", "pt", "ro", "ru", "sk", "sl", "sr", "sv", "sw", "ta", "th", "tl", "tr", "uk", "ur", "vi", "zh",
))
"""The languages that OpenAI lists for its recognition."""
# fmt: on


class RecognitionEndpoint:
    """Speech recognition by `/audio/transcriptions`."""

    def __init__(self, account: Account, model: str, *, vendor: str = "OpenAI") -> None:
        self._http, self._model, self.name = HttpTransport(vendor, account), model, model
        self._headers = make_headers(account)

    def supports_language(self, language: str) -> bool:
        """Return whether it supports a language."""
        return language.partition("-")[0].lower() in RECOGNITION_LANGUAGES

    async def transcribe(self, samples: "Samples", language: str) -> str:
        """Return the words in samples at `CALLER_SAMPLE_RATE`."""
        from pramana import audio

        form = aiohttp.FormData()
        form.add_field("model", self._model)
        form.add_field("language", language.partition("-")[0].lower())
        form.add_field("response_format", "json")
        wav = audio.write_wav(samples, audio.CALLER_SAMPLE_RATE)
        form.add_field("file", wav, filename="speech.wav", content_type="audio/wav")
        answer = await self._http.upload("/audio/transcriptions", headers=self._headers, form=form)
        if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
            raise self._http.failures.make_broken_reply("does not fit the format of transcriptions")
        return str(answer["text"]).strip()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


class SynthesisEndpoint:
    """A synthetic voice by `/audio/speech`."""

    sample_rate = SPEECH_SAMPLE_RATE

    def __init__(self, account: Account, model: str, voice: str = DEFAULT_VOICE, *, vendor: str = "OpenAI") -> None:
        self._http, self._model, self._voice = HttpTransport(vendor, account), model, voice
        self._headers = {**make_headers(account), "Accept": "application/octet-stream"}

    async def synthesise(self, text: str, language: str, on_sound: Callable[[bytes], None]) -> None:  # noqa: ARG002 - unused: the endpoint detects the language
        """Speak a text; `on_sound` receives samples as they arrive, whole ones only."""
        body = {"model": self._model, "voice": self._voice, "input": text, "response_format": "pcm"}
        odd, some = b"", False

        def receive(chunk: bytes) -> None:
            nonlocal odd, some
            whole = odd + chunk
            even = len(whole) // 2 * 2
            odd = whole[even:]
            if even:
                some = True
                on_sound(whole[:even])

        await self._http.download("/audio/speech", headers=self._headers, body=body, on_chunk=receive)
        if not some:
            raise self._http.failures.make_broken_reply("has no sound")

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()
