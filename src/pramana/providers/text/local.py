"""The `local` provider: a request goes to the embedded model in this process, its reply comes back.

No key, no account, and no network once the weights are downloaded. Only translates: the queue, loading and the length
of a reply are the engine's (`embedded.language`). An error that would affect every case (no runtime, no weights) is
raised as fatal, so that a run stops with one sentence. As a voice agent it answers briefly, in bounded time and without
repeating itself (`for_speech`); as a text model its answers are unchanged.
"""

import asyncio
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from pramana.embedded import language
from pramana.embedded.speakable import (
    has_repetition,
    has_sentence_or_clause_end,
    remove_repetition,
    trim_to_last_sentence_or_clause,
)
from pramana.errors import UnknownModel, WeightsMissing, quote_text, suggest_similar
from pramana.model import Reply, Request, Target

if TYPE_CHECKING:
    from pramana.embedded.engines import EngineInfo

MAX_THREADS = 4
MAX_SPOKEN_TOKENS = 40
"""Limit for a spoken answer: two short sentences."""
MAX_SPOKEN_GENERATION_S = 3.0
"""Time limit for a spoken answer, from its first token. On a slow machine the answer stops there, and the part
generated so far is spoken."""
SPOKEN_SAMPLING: Mapping[str, Any] = {
    "dry_multiplier": 0.8,
    "dry_base": 1.75,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": 512,
}
"""Prevents loops: without it, this model answers a misheard question with the same three words to the end. Only
repeated sequences are penalised; a penalty on repeated words made short answers ramble."""
_MODEL_NAMES = ("", "local", language.WEIGHTS_NAME, language.NAME.casefold())


class LocalProvider:
    """The embedded model as a provider."""

    def __init__(self, threads: int = 1) -> None:
        self._engine = language.get_engine(threads)
        self._is_spoken = False

    @classmethod
    def open(cls, target: Target, account: object = None) -> Self:  # noqa: ARG003 - unused: this provider has no account
        """Return the provider of a target; its `threads` argument is how many threads the engine may use.

        Default: half of the processors, at most four. The number changes speed, and in rare cases rounding.
        """
        _check_model(target.model)
        threads = target.arguments.get("threads")
        return cls(int(threads) if threads else default_thread_count(os.cpu_count() or 1))

    def for_speech(self) -> "LocalProvider":
        """Return the model configured for a voice agent: answers are short, take bounded time and do not loop."""
        spoken = LocalProvider(self._engine.threads)
        spoken._is_spoken = True
        return spoken

    async def ask(self, request: Request) -> Reply:
        """Answer on the engine's own thread, so that the event loop stays free; a cancelled request ends early."""
        _check_model(request.model)
        given_up = threading.Event()
        if self._is_spoken:
            future = self._engine.submit(
                request.turns, _limit_parameters_for_speech(request.parameters), given_up.is_set, _find_stop_reason
            )
        else:
            future = self._engine.submit(request.turns, request.parameters, given_up.is_set)
        try:
            reply = await asyncio.wrap_future(future)
        except WeightsMissing as error:
            raise UnknownModel(str(error)) from error
        finally:
            given_up.set()
        return _trim_reply(reply) if self._is_spoken else reply

    @property
    def engine_info(self) -> "EngineInfo | None":
        """Return what the model is computed with; None until it is loaded."""
        return self._engine.info

    async def prepare(self) -> None:
        """Load the model, so that the first answer takes no longer than the next."""
        try:
            await asyncio.wrap_future(self._engine.prepare())
        except WeightsMissing as error:
            raise UnknownModel(str(error)) from error

    async def models(self) -> list[str]:
        """Return the only model."""
        return [language.NAME]

    async def close(self) -> None:
        """Do nothing: the engine belongs to the process, and the next run reuses it."""


def default_thread_count(processor_count: int) -> int:
    """Return how many threads to use, leaving processors for everything else.

    >>> [default_thread_count(processors) for processors in (1, 2, 4, 64)]
    [1, 1, 2, 4]
    """
    return max(1, min(processor_count // 2, MAX_THREADS))


def _limit_parameters_for_speech(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters limited for a spoken answer; a smaller `max_tokens` and other sampling stay as given."""
    given = {name: value for name, value in parameters.items() if value is not None}
    most = given.get("max_tokens", MAX_SPOKEN_TOKENS)
    if type(most) is int:  # otherwise the engine reports what is wrong with it
        most = min(most, MAX_SPOKEN_TOKENS)
    return {**SPOKEN_SAMPLING, **given, "max_tokens": most}


def _find_stop_reason(text: str, generation_s: float) -> str | None:
    if generation_s > MAX_SPOKEN_GENERATION_S:
        return "time"
    if len(text.split()) > MAX_SPOKEN_TOKENS:  # each word is at least one token
        return "length"
    return "repetition" if has_repetition(text) else None


def _trim_reply(reply: Reply) -> Reply:
    """Return a reply without its repetition and, if it was cut off, only up to its last sentence or clause.

    If a loop or a slow answer has neither, nothing is left: half a sentence is not an answer.
    """
    text = remove_repetition(reply.text)
    if text != reply.text or reply.finish_reason in ("repetition", "time"):
        text = trim_to_last_sentence_or_clause(text) if has_sentence_or_clause_end(text) else ""
    elif reply.finish_reason == "length":
        text = trim_to_last_sentence_or_clause(text)
    return reply if text == reply.text else replace(reply, text=text)


def _check_model(model: str) -> None:
    if model.casefold() not in _MODEL_NAMES:
        hint = suggest_similar(model, [language.NAME])
        raise UnknownModel(f"local has no model {quote_text(model)}{hint}; it has {language.NAME}")
