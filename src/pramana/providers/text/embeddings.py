"""OpenAI's embeddings, and every server that speaks them: texts go out, one vector a text comes back.

Only translation. OpenAI is asked for base64, as its own SDK asks, which is a quarter of the bytes; a compatible server
for plain numbers, since several refuse or garble base64. What comes back is read in either form.
"""

import sys
from array import array
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from pramana.model import Reply, Request, Usage, count
from pramana.providers.failures import Failures
from pramana.providers.http import Http
from pramana.providers.reading import Reading

Encoding = Literal["base64", "float"]


async def embed(http: Http, headers: Mapping[str, str], request: Request, encoding: Encoding) -> Reply:
    """Send the text of every turn in one request; the reply has their vectors, in order, and no text."""
    reading = _Vectors(http.failures)
    texts = [turn.text for turn in request.turns]
    body = {**request.parameters, "model": request.model, "input": texts, "encoding_format": encoding}
    with http.failures.reading("does not fit the format of embeddings"):
        await http.post("/embeddings", headers=headers, body=body, reading=reading)
        return reading.done(len(request.turns))


class _Vectors(Reading):
    __slots__ = ("_answer",)

    def __init__(self, failures: Failures) -> None:
        super().__init__(failures)
        self._answer: Any = {}

    def take(self, event: str | None, data: Any) -> None:  # noqa: ARG002 - it comes in one piece
        self._answer = data

    def done(self, texts: int) -> Reply:
        answer = self._answer
        found = {each["index"]: _vector(each["embedding"]) for each in answer["data"]}
        vectors = tuple(found[index] for index in range(texts))
        counted = answer.get("usage")
        tokens = count(counted.get("prompt_tokens")) if isinstance(counted, dict) else None
        usage = Usage() if tokens is None else Usage(tokens, 0)
        reply = self.reply("", usage, served_model=answer.get("model"), finish_reason=None)
        return replace(reply, raw=None, vectors=vectors)  # as text, the vectors would be several times as long


def _vector(given: str | Sequence[float]) -> Sequence[float]:
    if not isinstance(given, str):
        return array("d", given)
    vector = array("f", b64decode(given, validate=True))
    if sys.byteorder == "big":  # the wire's numbers are little-endian
        vector.byteswap()
    return vector
