"""OpenAI's embeddings from the server's side: the texts of a request in, an answer with one vector a text out.

Without a function of the caller's, a text's vector counts its words: texts are near each other as far as they share
some. The same text has the same vector in every process.
"""

import base64
import math
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from .server import Answer

DIMENSIONS = 256
MAX_INPUTS = 2048
Embed = Callable[[str], Sequence[float]]


def answer(body: Mapping[str, Any], embed: Embed | None) -> Answer:
    """Answer a valid request, in the requested encoding."""
    texts = _as_list(body["input"])
    size = body.get("dimensions") or DIMENSIONS
    vectors = [embed(str(each)) if embed else embed_text(str(each), size) for each in texts]
    packed = body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": encode_base64(vector) if packed else list(vector)}
        for index, vector in enumerate(vectors)
    ]
    used = sum(len(each.split()) if isinstance(each, str) else len(each) for each in texts)
    usage = {"prompt_tokens": used, "total_tokens": used}
    return Answer.of({"object": "list", "data": data, "model": body["model"], "usage": usage})


def is_valid_input(given: str | Sequence[Any]) -> bool:
    """Return whether the input is a non-empty list of non-empty texts or token lists."""
    texts = _as_list(given)
    return all(each and (isinstance(each, str) or _is_tokens(each)) for each in texts) and bool(texts)


def _as_list(given: str | Sequence[Any]) -> Sequence[Any]:
    return [given] if isinstance(given, str) or _is_tokens(given) else given


def _is_tokens(given: Any) -> bool:
    return type(given) is list and bool(given) and all(type(each) is int for each in given)


@lru_cache(4096)
def embed_text(text: str, size: int) -> tuple[float, ...]:
    """Return the vector that counts a text's words, of length 1.

    >>> embed_text("The cat sleeps!", 64) == embed_text("sleeps the cat", 64)
    True
    """
    words = re.findall(r"\w+", text.lower())
    counts = Counter(zlib.crc32(word.encode("utf-8", "replace")) % size for word in words)
    length = math.hypot(*counts.values()) or 1.0
    return tuple(counts[place] / length for place in range(size))


def encode_base64(vector: Sequence[float]) -> str:
    """Return a vector as OpenAI's base64 has it: numbers of four bytes, little-endian."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
