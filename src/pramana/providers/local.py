"""The `local` provider: a request goes to the embedded model in this process, its reply comes back.

No key, no account, no network once the weights are here. It only translates: whose turn it is, what is loaded and how
long a reply may be are the engine's (`embedded.language`). What no other case could change (no runtime, no weights) is
raised as fatal, so that a run stops with one sentence.
"""

import asyncio
import os
import threading
from typing import Self

from pramana.embedded import language
from pramana.errors import UnknownModel, WeightsMissing, did_you_mean, quote
from pramana.model import Reply, Request, Target

MOST_THREADS = 4
_names = ("", "local", language.WEIGHTS, language.NAME.casefold())


class Local:
    """The embedded model as a provider."""

    def __init__(self, threads: int = 1) -> None:
        self._engine = language.engine(threads)

    @classmethod
    def open(cls, target: Target, account: object = None) -> Self:  # noqa: ARG003 - it has no account
        """Make the provider of a target; `threads` among its arguments is how many the engine may use.

        Without it: half of the processors, four at most. The number changes speed, never text.
        """
        _check(target.model)
        threads = target.arguments.get("threads")
        return cls(int(threads) if threads else default_threads(os.cpu_count() or 1))

    async def ask(self, request: Request) -> Reply:
        """Answer on the engine's own thread, so that the event loop stays free; a cancelled request ends early."""
        _check(request.model)
        given_up = threading.Event()
        future = self._engine.submit(request.turns, request.parameters, given_up.is_set)
        try:
            return await asyncio.wrap_future(future)
        except WeightsMissing as error:
            raise UnknownModel(str(error)) from error
        finally:
            given_up.set()

    async def prepare(self) -> None:
        """Load the model, so that the first answer takes no longer than the next."""
        try:
            await asyncio.wrap_future(self._engine.prepare())
        except WeightsMissing as error:
            raise UnknownModel(str(error)) from error

    async def models(self) -> list[str]:
        """Return the one model there is."""
        return [language.NAME]

    async def close(self) -> None:
        """Do nothing: the engine belongs to the process, and the next run finds it loaded."""


def default_threads(processors: int) -> int:
    """Return how many threads leave room for everything else on that many processors.

    >>> [default_threads(processors) for processors in (1, 2, 4, 64)]
    [1, 1, 2, 4]
    """
    return max(1, min(processors // 2, MOST_THREADS))


def _check(model: str) -> None:
    if model.casefold() not in _names:
        hint = did_you_mean(model, [language.NAME])
        raise UnknownModel(f"local has no model {quote(model)}{hint}; it has {language.NAME}")
