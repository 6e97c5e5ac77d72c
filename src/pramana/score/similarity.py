"""The `semantic_similarity` scorer: a case's ideals and a reply's text go in, one check comes out.

The text passes when its embedding is as near one of the ideals' as the threshold, by cosine; the nearest ideal counts.
The embedding is all-MiniLM-L6-v2 in this process, or a provider's through `embed`; its name stands in the check's
version, because values of two models must not be mixed. What cannot be embedded is `unscored` and says what to do. A
small embedding sees the subject of a text, hardly its truth: "is" and "is not", or who bit whom, look alike
(`benchmarks/similarity.py` shows how much). It compares a paraphrase with an answer; it does not check facts.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from pramana.embedded.weights import WeightsMissing
from pramana.errors import ProviderError, quote
from pramana.model import Case, Check, Outcome, Reply

NAME = "semantic_similarity"
MEANING = "1"
"""Raised when the same embeddings could give another outcome."""
MODEL = "all-MiniLM-L6-v2"
DEFAULT_THRESHOLD = 0.53
"""Chosen by `benchmarks/similarity.py` on one half of tests/score/pairs.jsonl; a test compares the two.

On the other half, where three of four differing pairs differ in little, its balanced accuracy is 0.64: 9 of 10
paraphrases pass and every unrelated text fails, but so passes every negated one. It fits all-MiniLM-L6-v2 only.
"""
DECIMALS = 4
"""Kept of a similarity: a batch's other texts change the seventh."""
REMEMBERED = 4096
"""Ideals whose embedding is kept: every repeat and every model asks for the same ones."""

Embed = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Return one vector a text, of any length but all alike; raise `ProviderError` when there is none to be had."""


class Similarity:
    """Scores replies by how near they are to what was hoped for. One for a whole run, shared by its workers."""

    def __init__(self, embed: Embed | None = None, model: str = MODEL) -> None:
        self._embed, self.version = embed or embed_here, f"{MEANING} {model}"
        self._known: OrderedDict[str, Sequence[float]] = OrderedDict()

    async def score(self, case: Case, reply: Reply) -> Check:
        """Compare a reply with the case's ideals."""
        stated = case.assertion.threshold if case.assertion else None
        threshold = DEFAULT_THRESHOLD if stated is None else stated
        if not case.ideals:
            return self._check(Outcome.UNSCORED, f"{NAME} needs an ideal to compare with, and the case has none")
        if not reply.text.strip():
            evidence = {"ideal": case.ideals[0], "similarity": 0.0, "threshold": threshold}
            return self._check(Outcome.FAILED, "the reply is empty", 0.0, evidence)
        try:
            vectors = await self._vectors(reply.text, case.ideals)
        except (WeightsMissing, ModuleNotFoundError) as error:
            return self._check(Outcome.UNSCORED, _missing(error))
        except ProviderError as error:
            if error.fatal:
                raise
            return self._check(Outcome.UNSCORED, f"the embedder did not answer: {error}")
        similarities = [cosine(vectors[0], ideal) for ideal in vectors[1:]]
        if not all(map(math.isfinite, similarities)):
            return self._check(Outcome.UNSCORED, "the embedder gave vectors that have no angle between them")
        similarity = max(similarities)
        ideal = case.ideals[similarities.index(similarity)]
        passed = similarity >= threshold
        side = "at least" if passed else "below"
        reason = f"similarity {similarity:.{DECIMALS}f} to {quote(ideal)} is {side} {threshold:g}"
        evidence = {"ideal": ideal, "similarity": similarity, "threshold": threshold}
        return self._check(Outcome.PASSED if passed else Outcome.FAILED, reason, similarity, evidence)

    async def _vectors(self, text: str, ideals: Sequence[str]) -> list[Sequence[float]]:
        """Return the vector of the text, then of each ideal: one call for all that is not known yet."""
        wanted = list(dict.fromkeys(ideal for ideal in ideals if ideal not in self._known))
        given = await self._embed([text, *wanted])
        if len(given) != 1 + len(wanted):
            raise ProviderError(f"{1 + len(wanted)} texts were sent to be embedded, {len(given)} vectors came back")
        found = {ideal: self._known[ideal] for ideal in ideals if ideal in self._known}
        found.update(zip(wanted, given[1:], strict=True))
        for ideal, vector in found.items():
            self._known[ideal] = vector
            self._known.move_to_end(ideal)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return [given[0], *(found[ideal] for ideal in ideals)]

    def _check(
        self, outcome: Outcome, reason: str, value: float | None = None, evidence: dict[str, object] | None = None
    ) -> Check:
        return Check(NAME, self.version, outcome, reason, value, evidence or {})


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors, rounded; NaN where there is none.

    >>> cosine([1, 0], [1, 1])
    0.7071
    """
    if len(one) != len(other):
        return math.nan
    product = math.fsum(a * b for a, b in zip(one, other, strict=True))
    lengths = math.hypot(*one) * math.hypot(*other)
    return round(product / lengths, DECIMALS) if lengths else math.nan


async def embed_here(texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """Embed in this process, on a thread of its own, so that the event loop stays free."""
    return await asyncio.get_running_loop().run_in_executor(_thread(), _encode, list(texts))


def _encode(texts: Sequence[str]) -> list[list[float]]:
    from pramana.embedded import minilm

    vectors: list[list[float]] = minilm.encoder().encode(texts).tolist()
    return vectors


@lru_cache(maxsize=1)
def _thread() -> ThreadPoolExecutor:
    # One, because the encoder takes one call at a time: more would only wait, and fill asyncio's own pool.
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="pramana-similarity")


def _missing(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{NAME} needs {error.name}, which is not installed: pip install 'pramana[local]'"
    return str(error)
