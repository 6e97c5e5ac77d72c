"""The `semantic_similarity` scorer: a case's ideals and a reply's text in, one check out.

The text passes if the cosine similarity of its embedding to that of the nearest ideal reaches the threshold. The
embedding is all-MiniLM-L6-v2 in this process, or a provider's through `make_embed`; its name is part of the check's
version, because values of two models must not be mixed. Neither must their thresholds: the default was measured for
MiniLM, so with another embedder a case without a threshold is `unscored`, and its similarity is reported. Text that
cannot be embedded is `unscored` too, with what to do. A small embedding captures the subject of a text, hardly its
truth: "is" and "is not", or who bit whom, look alike (`benchmarks/similarity.py` shows how much). It compares a
paraphrase with an answer; it does not check facts.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from operator import mul

from msgspec import Struct, field

from pramana.errors import ProviderError, WeightsMissing, quote_text
from pramana.installation import make_install_command
from pramana.model import Ask, Case, Check, Outcome, Reply, Request, Turn
from pramana.replies import add_usage

CHECK_NAME = "semantic_similarity"
SIMILARITY_VERSION = "1"
"""Increment it if the same embeddings could give another outcome."""
MODEL, WEIGHTS, WEIGHTS_FILE = "all-MiniLM-L6-v2", "minilm-l6-v2", "model/model.safetensors"
DEFAULT_THRESHOLD = 0.53
"""Chosen by `benchmarks/similarity.py` on one half of tests/score/pairs.jsonl; a test compares the two.

On the other half, where three of four differing pairs differ in little, its balanced accuracy is 0.64: 9 of 10
paraphrases pass and all unrelated texts fail, but all negated ones pass. It fits all-MiniLM-L6-v2 only."""
SIMILARITY_DECIMALS = 4
"""Decimals of a similarity: other texts in the same batch change the seventh."""
MAX_CACHED_IDEALS = 4096
"""Maximum number of cached embeddings of ideals, which all repeats and models share."""

MIN_THREADED_MULTIPLICATIONS = 10_000
"""Number of multiplications from which a comparison may take over a millisecond, so it runs in a thread."""


class EmbeddedTexts(Struct, frozen=True):
    """Texts as vectors."""

    vectors: Sequence[Sequence[float]]
    """One vector per text, in order, all of the same length."""
    evidence: Mapping[str, object] = field(default_factory=dict)
    """Evidence for the check: how the vectors were made."""


Embed = Callable[[Sequence[str]], Awaitable[EmbeddedTexts]]
"""Raises `ProviderError` if there is no vector."""


class SimilarityScorer:
    """Scores replies by their similarity to the ideals. One instance per run, shared by its workers."""

    def __init__(self, embed: Embed | None = None, model: str = MODEL) -> None:
        self._embed, self._model = embed or embed_locally, model
        self.version = f"{SIMILARITY_VERSION} {model if embed else make_local_embedding_name()}"
        self._default_threshold = DEFAULT_THRESHOLD if model == MODEL else None
        self._cached_vectors: OrderedDict[str, Sequence[float]] = OrderedDict()
        self._pending: dict[str, asyncio.Event] = {}
        """Ideals whose embedding is in progress: other workers wait for it instead of paying for it again."""

    async def score(self, case: Case, reply: Reply) -> Check:
        """Compare a reply with the case's ideals."""
        stated = case.assertion.threshold if case.assertion else None
        threshold = self._default_threshold if stated is None else stated
        evidence: dict[str, object] = {"threshold": threshold, "embedder": self._model}
        if not case.ideals:
            return self._make_check(
                Outcome.UNSCORED, f"{CHECK_NAME} needs an ideal to compare with, and the case has none"
            )
        if not reply.text.strip():
            evidence |= {"ideal": case.ideals[0], "similarity": 0.0}
            return self._make_check(Outcome.FAILED, "the reply is empty", 0.0, evidence)
        try:
            found = await self._get_vectors(reply.text, case.ideals)
        except (WeightsMissing, ModuleNotFoundError) as error:
            return self._make_check(Outcome.UNSCORED, _describe_missing_embedding(error))
        except ProviderError as error:
            if error.fatal:
                raise
            return self._make_check(Outcome.UNSCORED, f"the embedding request failed: {error}")
        evidence |= found.evidence
        similarities = await _compute_cosine_similarities(*found.vectors)
        if not all(map(math.isfinite, similarities)):
            trouble = "the embedder returned vectors that cannot be compared"
            return self._make_check(Outcome.UNSCORED, trouble, evidence=evidence)
        similarity = max(similarities)
        ideal = case.ideals[similarities.index(similarity)]
        evidence |= {"ideal": ideal, "similarity": similarity}
        reason = f"similarity {similarity:.{SIMILARITY_DECIMALS}f} to {quote_text(ideal)}"
        if threshold is None:
            reason += (
                f", and no threshold to compare it with: the default of {DEFAULT_THRESHOLD:g} was measured for {MODEL}"
                f"; set a threshold in the case that was measured with {self._model}"
            )
            return self._make_check(Outcome.UNSCORED, reason, similarity, evidence)
        passed = similarity >= threshold
        reason += f" is {'at least' if passed else 'below'} {threshold:g}"
        return self._make_check(Outcome.PASSED if passed else Outcome.FAILED, reason, similarity, evidence)

    async def _get_vectors(self, text: str, ideals: Sequence[str]) -> EmbeddedTexts:
        """Return the vectors of the text and of each ideal, with one request for those that are not cached."""
        while coming := next((self._pending[ideal] for ideal in ideals if ideal in self._pending), None):
            await coming.wait()
        found = {ideal: self._cached_vectors[ideal] for ideal in ideals if ideal in self._cached_vectors}
        wanted = [ideal for ideal in dict.fromkeys(ideals) if ideal not in found]
        came = asyncio.Event()
        self._pending |= dict.fromkeys(wanted, came)
        try:
            embedded = await self._embed([text, *wanted])
            given = embedded.vectors
            if len(given) != 1 + len(wanted):
                raise ProviderError(f"{1 + len(wanted)} texts were sent to be embedded, {len(given)} vectors came back")
            found.update(zip(wanted, given[1:], strict=True))
            self._cache_vectors(found)
        finally:
            for ideal in wanted:
                del self._pending[ideal]
            came.set()
        return EmbeddedTexts([given[0], *(found[ideal] for ideal in ideals)], embedded.evidence)

    def _cache_vectors(self, vectors: Mapping[str, Sequence[float]]) -> None:
        for ideal, vector in vectors.items():
            self._cached_vectors[ideal] = vector
            self._cached_vectors.move_to_end(ideal)
        while len(self._cached_vectors) > MAX_CACHED_IDEALS:
            self._cached_vectors.popitem(last=False)

    def _make_check(
        self, outcome: Outcome, reason: str, value: float | None = None, evidence: dict[str, object] | None = None
    ) -> Check:
        return Check(CHECK_NAME, self.version, outcome, reason, value, evidence or {})


def compute_cosine_similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine similarity of two vectors, rounded; NaN if it is undefined.

    >>> compute_cosine_similarity([1, 0], [1, 1])
    0.7071
    """
    if len(one) != len(other):
        return math.nan
    product = math.fsum(map(mul, one, other))
    lengths = math.hypot(*one) * math.hypot(*other)
    return round(product / lengths, SIMILARITY_DECIMALS) if lengths else math.nan


async def _compute_cosine_similarities(text: Sequence[float], *ideals: Sequence[float]) -> list[float]:
    def compare() -> list[float]:
        return [compute_cosine_similarity(text, ideal) for ideal in ideals]

    return await asyncio.to_thread(compare) if len(text) * len(ideals) > MIN_THREADED_MULTIPLICATIONS else compare()


def make_embed(ask: Ask, model: str) -> Embed:
    """Return a function that embeds with a provider's model, through `ask`, which applies the limits."""

    async def embed(texts: Sequence[str]) -> EmbeddedTexts:
        reply = await ask(Request(model, tuple(Turn("user", text) for text in texts), purpose="embedding"))
        return EmbeddedTexts(
            reply.vectors,
            {
                "served_model": reply.served_model,
                "cost_usd": reply.cost_usd,
                "tokens": add_usage(0, reply.usage),
            },
        )

    return embed


def make_local_embedding_name() -> str:
    """Return the name of the embedding in this process, with its version and the digest of its weights."""
    from pramana.embedded.weights import find_pinned_weights

    weights = find_pinned_weights(WEIGHTS)
    return f"{MODEL} {weights.version} sha256:{weights.files[WEIGHTS_FILE].sha256[:8]}"


async def embed_locally(texts: Sequence[str]) -> EmbeddedTexts:
    """Embed in this process, in a separate thread, so that the event loop stays free."""
    return await asyncio.get_running_loop().run_in_executor(_get_embedding_executor(), _embed_texts, list(texts))


def _embed_texts(texts: Sequence[str]) -> EmbeddedTexts:
    from pramana.embedded import minilm

    vectors: list[list[float]] = minilm.load_encoder().encode(texts).tolist()
    return EmbeddedTexts(vectors, {"engine": str(minilm.engine_info())})


@lru_cache(maxsize=1)
def _get_embedding_executor() -> ThreadPoolExecutor:
    # One thread, because the encoder handles one call at a time: more would only wait, and fill asyncio's own pool.
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="pramana-similarity")


def _describe_missing_embedding(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{CHECK_NAME} needs {error.name}, which is not installed: {make_install_command('local')}"
    return str(error)
