"""A third-party package of extensions: a provider that repeats its prompt, an assertion, scorers and an exporter.

It uses nothing but the public names of `pramana`.
"""

import zlib
from collections.abc import Iterator
from typing import IO, Self

import pramana


class Parrot:
    """A provider: `parrot:loud` repeats the prompt in capitals, `parrot:quiet` unchanged."""

    def __init__(self, voice: str, account: pramana.Account | None) -> None:
        self.voice, self.account, self.closed = voice, account, False

    @classmethod
    def open(cls, target: pramana.Target, account: pramana.Account | None) -> Self:
        return cls(target.model, account)

    async def ask(self, request: pramana.Request) -> pramana.Reply:
        heard = request.turns[-1].text
        return pramana.Reply(
            heard.upper() if self.voice == "loud" else heard, pramana.Usage(1, 1), served_model=self.voice
        )

    async def embed(self, request: pramana.Request) -> pramana.Reply:
        return pramana.Reply("", pramana.Usage(1, 0), vectors=tuple([float(len(turn.text))] for turn in request.turns))

    async def models(self) -> list[str]:
        return ["loud", "quiet"]

    async def close(self) -> None:
        self.closed = True


a_provider: type[pramana.Provider] = Parrot
shapeless = object()


@pramana.assertion_type("is_loud", version="2", needs=("ideal",))
def is_loud(assertion: pramana.Assertion, output: str, ideals: tuple[str, ...]) -> bool | pramana.Verdict:
    if assertion.case_sensitive and not output.isupper():
        return pramana.Verdict(pramana.Outcome.FAILED, "not in capitals", {"output": output})
    return any(ideal.upper() in output.upper() for ideal in ideals)


@pramana.scorer(version="3", pass_at=0.5)
async def fidelity(context: pramana.ScoringContext) -> pramana.Score:
    said = await context.ask(f"How faithful is it, from 0 to 1?\n\n{context.reply.text}")
    return pramana.Score(float(said.text), reason="as the judge says")


@pramana.scorer
def volume(context: pramana.BlockingScoringContext) -> dict[str, float | str]:
    again = context.ask(context.case.turns[-1].text, model="parrot:loud")
    return {"letters": len(context.reply.text), "level": "loud" if context.reply.text == again.text else "quiet"}


@pramana.exporter("phrases", ending=".phrases")
def phrases(run: pramana.Run, results: Iterator[pramana.Result], out: IO[str]) -> None:
    print(run.plan.suite, file=out)
    for result in results:
        print(result.case.turns[-1].text, "->", result.reply.text if result.reply else None, file=out)


@pramana.exporter("packed", ending=".z", binary=True)
def pack(_: pramana.Run, results: Iterator[pramana.Result], out: IO[bytes]) -> None:
    out.write(zlib.compress("\n".join(result.output or "" for result in results).encode()))
