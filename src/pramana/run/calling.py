"""A model asked aloud: a request with speech in, a reply with its recording out, by way of one call.

It implements `Provider`, so that limits, retries and budgets guard a call as they guard any request. An answer without
a transcript is written down by the speech recognition there is; where none knows the language, it has no words and says
so by having none.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from pramana import audio
from pramana.model import Call, Reply, Request, Turn
from pramana.providers.voice import Dial, Ears, Voice
from pramana.run.call import Conversation, Held, Patience, only_listens

if TYPE_CHECKING:
    from pramana.audio import Samples


@dataclass(frozen=True, slots=True)
class Calls:
    """Asks by calling."""

    voice: Voice
    provider: str
    """Its name, for the log."""
    keep: Callable[[bytes], str]
    """Stores a blob, returns its digest."""
    stt: Ears | None = None
    patience: Patience = field(default_factory=Patience)

    async def ask(self, request: Request) -> Reply:
        """Hold the conversation and return what was said."""
        assert request.speech is not None  # noqa: S101 - or it would have been written
        speech, start = request.speech, time.perf_counter()
        refused: frozenset[str] = getattr(self.voice, "never_takes", frozenset())
        left_out = tuple(sorted(refused & {name for name, value in request.parameters.items() if value is not None}))
        if left_out:
            taken = {name: value for name, value in request.parameters.items() if name not in refused}
            request = replace(request, parameters=taken)
        channel = await self.voice.dial(_dial(request, takes_history=getattr(self.voice, "takes_history", False)))
        about = {
            "rate": audio.RECORDING_RATE,
            "provider": self.provider,
            "model": request.model,
            "variant": speech.variant,
            "language": speech.language,
            "uplink": to_builtins(channel.uplink),
            "downlink": to_builtins(channel.downlink),
        }
        held = await Conversation(channel, speech.utterances, about, self.patience).hold()
        total = time.perf_counter() - start
        answers = await self._written_down(held, speech.language)
        recording, log = await asyncio.to_thread(lambda: (self.keep(held.recording), self.keep(held.log)))
        caller = tuple(each.digest for each in speech.utterances)
        return Reply(
            "\n".join(answer for answer in answers if answer),
            held.usage,
            finish_reason=held.reason,
            dropped=left_out,
            total_s=total,
            answers=answers,
            call=Call(recording, log, caller),
        )

    async def _written_down(self, held: Held, language: str) -> tuple[str, ...]:
        """Return the answers, with what the recording says where the agent gave no words."""
        if all(held.answers) or self.stt is None or not self.stt.covers(language):
            return held.answers
        answers = list(held.answers)
        for number, clip in (await asyncio.to_thread(_clips, held)).items():
            if not answers[number]:
                answers[number] = await self.stt.transcribe(clip, language)
        return tuple(answers)

    async def models(self) -> list[str]:
        """Return the names of the models on offer."""
        return await self.voice.models()

    async def close(self) -> None:
        """Close the provider."""
        await self.voice.close()


def _dial(request: Request, *, takes_history: bool) -> Dial:
    assert request.speech is not None  # noqa: S101
    system = [turn.text for turn in request.turns if turn.role == "system"]
    before = tuple(turn for turn in request.turns if turn.role != "system")
    dial = Dial(request.model, "\n\n".join(system) or None, request.speech.language, request.parameters, before)
    if before and not takes_history:
        told = "\n\n".join([*system, f"What was said until now:\n{_told(before)}"])
        return replace(dial, system_prompt=told, history=())
    return dial


def _told(turns: tuple[Turn, ...]) -> str:
    return "\n".join(f"{'You' if turn.role == 'assistant' else 'The user'}: {turn.text}" for turn in turns)


def _clips(held: Held) -> "dict[int, Samples]":
    """Return what is heard of the agent in answer to each line, as speech recognition takes it.

    An answer lasts until the next line begins; one that is talked into, until that line is over, or on if it only says
    that somebody listens.
    """
    samples, rate = audio.read_wav(held.recording)
    agent: Any = samples[:, 1]
    events = [msgspec.json.decode(line) for line in held.log.splitlines()]
    every = [each for each in events if each["event"] == "line"]
    lines = [each for each in every if not (each["barge_in"] and only_listens(each["text"]))]
    starts = [round(rate * each["end" if each["barge_in"] else "start"]) for each in lines]
    clips = [agent[start:end] for start, end in pairwise([*starts, len(agent)])]
    return {
        line["line"]: audio.resample(clip, rate, audio.CALLER_RATE)
        for line, clip in zip(lines, clips, strict=True)
        if audio.first_audible(clip, rate) is not None
    }
