"""A third party's provider, as its package would hold it: it repeats what it hears."""

from typing import Self

from pramana.model import Reply, Request, Target, Usage
from pramana.providers.accounts import Account


class Parrot:
    """Registered as `parrot` by the entry point in the package's metadata."""

    def __init__(self, voice: str, account: Account | None) -> None:
        self.voice, self.account, self.closed = voice, account, False

    @classmethod
    def open(cls, target: Target, account: Account | None) -> Self:
        return cls(target.model, account)

    async def ask(self, request: Request) -> Reply:
        heard = request.turns[-1].text
        return Reply(heard.upper() if self.voice == "loud" else heard, Usage(1, 1), served_model=self.voice)

    async def embed(self, request: Request) -> Reply:
        return Reply("", Usage(1, 0), vectors=tuple([float(len(turn.text))] for turn in request.turns))

    async def models(self) -> list[str]:
        return ["loud", "quiet"]

    async def close(self) -> None:
        self.closed = True


shapeless = object()
