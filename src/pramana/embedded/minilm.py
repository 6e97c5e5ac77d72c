"""all-MiniLM-L6-v2 in numpy: texts go in, one vector of 384 numbers and length 1 per text comes out.

The published model, read from its safetensors file, with BERT's uncased word pieces as sentence-transformers uses them:
at most 256 per text, the rest is cut. Float32 throughout; a text's vector does not depend on other texts in the batch
beyond rounding (under 1e-6). Texts are data: "[SEP]" in one is four characters and a word, never the special token. No
torch, no network. Thread-safe: calls run one at a time.
"""

import json
import math
import struct
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from pramana.embedded import weights
from pramana.embedded.engines import EngineInfo, package_version, processor_features

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

NAME = "all-MiniLM-L6-v2"
WEIGHTS_NAME = "minilm-l6-v2"
DIMENSIONS = 384
MAX_PIECES = 256
"""Maximum pieces per text, with the two special ones: sentence-transformers' setting for this model."""
_LAYERS, _HEADS, _EPSILON = 6, 12, 1e-12
_MAX_WORD_LENGTH = 100
_BATCH_SIZE = 32


@lru_cache(maxsize=1)
def engine_info() -> EngineInfo:
    """Return what texts are embedded with, without loading it."""
    sha256 = weights.find_pinned_weights(WEIGHTS_NAME).files["model/model.safetensors"].sha256
    return EngineInfo("numpy", package_version("numpy"), NAME, f"sha256:{sha256[:8]}…", processor_features(), threads=1)


@lru_cache(maxsize=1)
def load_encoder() -> "MiniLM":
    """Return this process's encoder; the first call loads and verifies it."""
    return MiniLM(weights.verify_folder(WEIGHTS_NAME) / "model")


class WordPieceTokenizer:
    """BERT's uncased tokenizer: clean, space out Chinese, lower, strip accents, split punctuation, longest match."""

    def __init__(self, vocabulary: Path) -> None:
        lines = vocabulary.read_text(encoding="utf-8").split("\n")
        self.ids = {piece.removesuffix("\r"): number for number, piece in enumerate(lines)}
        self.pieces = lines
        self._unknown, self._start, self._end = (self.ids[piece] for piece in ("[UNK]", "[CLS]", "[SEP]"))

    def __call__(self, text: str) -> list[int]:
        """Return the IDs of the text's pieces between the start and end tokens, at most `MAX_PIECES`."""
        found = [self._start]
        for word in _split_words(text):
            found += self._split(word)
            if len(found) >= MAX_PIECES:
                break
        return [*found[: MAX_PIECES - 1], self._end]

    def _split(self, word: str) -> list[int]:
        if len(word) > _MAX_WORD_LENGTH:
            return [self._unknown]
        found, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                piece = self.ids.get(prefix + word[start:end])
                if piece is not None:
                    found.append(piece)
                    start = end
                    break
            else:
                return [self._unknown]
        return found


def _split_words(text: str) -> list[str]:
    if not text.isascii():
        spaced = "".join(f" {each} " if _is_chinese(ord(each)) else each for each in text)
        bare = unicodedata.normalize("NFD", "".join(_clean_character(each) for each in spaced).lower())
        text = "".join(each for each in bare if unicodedata.category(each) != "Mn")
    else:
        text = "".join(_clean_character(each) for each in text).lower()
    return "".join(f" {each} " if _is_punctuation(each) else each for each in text).split()


_CONTROL_CATEGORIES = ("Cc", "Cf", "Co", "Cs")  # not the unassigned ones: they depend on Python's version


@lru_cache(maxsize=4096)
def _clean_character(character: str) -> str:
    if character in "\t\n\r":
        return " "
    category = unicodedata.category(character)
    if character == "\ufffd" or category in _CONTROL_CATEGORIES:
        return ""
    return " " if category == "Zs" else character


@lru_cache(maxsize=4096)
def _is_punctuation(character: str) -> bool:
    # BERT counts every ASCII symbol as punctuation, even those that Unicode classifies as symbols: $ + < = > ^ ` | ~
    mark = character.isascii() and character.isprintable() and not character.isalnum() and character != " "
    return mark or unicodedata.category(character).startswith("P")


_CHINESE_CODE_POINTS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def _is_chinese(code_point: int) -> bool:
    return code_point >= 0x3400 and any(first <= code_point <= last for first, last in _CHINESE_CODE_POINTS)


@contextmanager
def _limit_to_one_thread() -> Iterator[None]:
    """Limit numpy's matrix library to one thread.

    Its threads wait for each other by spinning: on a busy machine, two were five times slower than one. Only the
    library inside numpy's own wheels is supported; with another, nothing changes.
    """
    threads = _find_openblas()
    if threads is None:
        yield
        return
    before = threads.get()
    threads.set(1)
    try:
        yield
    finally:
        threads.set(before)


class _ThreadCountFunctions(NamedTuple):
    get: Callable[[], int]
    set: Callable[[int], None]


@lru_cache(maxsize=1)
def _find_openblas() -> _ThreadCountFunctions | None:
    import ctypes

    import numpy as np

    for path in Path(np.__file__).parent.with_name("numpy.libs").glob("*openblas*"):
        library = ctypes.CDLL(str(path))
        for suffix in ("64_", ""):
            try:
                return _ThreadCountFunctions(
                    getattr(library, f"scipy_openblas_get_num_threads{suffix}"),
                    getattr(library, f"scipy_openblas_set_num_threads{suffix}"),
                )
            except AttributeError:
                continue
    return None


class MiniLM:
    """The encoder: six transformer layers, mean pooling over the last one, and normalisation to length 1."""

    def __init__(self, folder: Path) -> None:
        import numpy as np

        tensors = _read_safetensors(folder / "model.safetensors")

        def pair(name: str, *, turned: bool = False) -> "tuple[Floats, Floats]":
            weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
            return np.ascontiguousarray(weight.T if turned else weight), np.array(bias)

        def join_layers(parts: "Sequence[tuple[Floats, Floats]]") -> "tuple[Floats, Floats]":
            return np.concatenate([part[0] for part in parts], axis=1), np.concatenate([part[1] for part in parts])

        self._turn = Lock()
        self.tokenize = WordPieceTokenizer(folder / "vocab.txt")
        self._words = tensors["embeddings.word_embeddings.weight"]
        self._places = (
            tensors["embeddings.position_embeddings.weight"] + tensors["embeddings.token_type_embeddings.weight"][0]
        )
        self._norm = pair("embeddings.LayerNorm")
        self._layers = []
        for number in range(_LAYERS):
            layer = f"encoder.layer.{number}"
            attention = [pair(f"{layer}.attention.self.{part}", turned=True) for part in ("query", "key", "value")]
            self._layers.append(
                (
                    join_layers(attention),
                    pair(f"{layer}.attention.output.dense", turned=True),
                    pair(f"{layer}.attention.output.LayerNorm"),
                    pair(f"{layer}.intermediate.dense", turned=True),
                    pair(f"{layer}.output.dense", turned=True),
                    pair(f"{layer}.output.LayerNorm"),
                )
            )

    def encode(self, texts: Sequence[str]) -> "Floats":
        """Return one row per text, in order. One call at a time, on one processor."""
        with self._turn, _limit_to_one_thread():
            return self._encode_in_batches(texts)

    def _encode_in_batches(self, texts: Sequence[str]) -> "Floats":
        import numpy as np

        pieces = [self.tokenize(text) for text in texts]
        rows = np.zeros((len(texts), DIMENSIONS), np.float32)
        by_length = sorted(range(len(texts)), key=lambda row: len(pieces[row]))  # similar lengths need little padding
        for start in range(0, len(texts), _BATCH_SIZE):
            batch = by_length[start : start + _BATCH_SIZE]
            rows[batch] = self._encode_batch([pieces[row] for row in batch])
        return rows

    def _encode_batch(self, batch: Sequence[Sequence[int]]) -> "Floats":
        import numpy as np

        count, length = len(batch), max(map(len, batch))
        ids = np.zeros((count, length), np.int64)
        present = np.zeros((count, length), np.float32)
        for row, pieces in enumerate(batch):
            ids[row, : len(pieces)] = pieces
            present[row, : len(pieces)] = 1
        hide = ((1 - present) * np.float32(-1e9))[:, None, None]
        scale = np.float32(1 / math.sqrt(DIMENSIONS / _HEADS))

        state = _normalise_layer(self._words[ids] + self._places[:length], self._norm)
        for attention, out, first_norm, widen, narrow, second_norm in self._layers:
            heads = _apply_dense(state, attention).reshape(count, length, 3, _HEADS, -1).transpose(2, 0, 3, 1, 4)
            query, key, value = heads
            looks = _softmax(query @ key.transpose(0, 1, 3, 2) * scale + hide)
            seen = (looks @ value).transpose(0, 2, 1, 3).reshape(count, length, DIMENSIONS)
            state += _apply_dense(seen, out)
            state = _normalise_layer(state, first_norm)
            state += _apply_dense(_gelu(_apply_dense(state, widen)), narrow)
            state = _normalise_layer(state, second_norm)
        mean = (state * present[:, :, None]).sum(1) / present.sum(1)[:, None]
        vectors: Floats = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return vectors


# In place: a small encoder spends half its time on moving numbers.


def _apply_dense(state: "Floats", dense: "tuple[Floats, Floats]") -> "Floats":
    # One flat product: numpy multiplies a stack of matrices one by one.
    flat = state.reshape(-1, state.shape[-1]) @ dense[0]
    flat += dense[1]
    return flat.reshape(*state.shape[:-1], -1)


def _normalise_layer(state: "Floats", norm: "tuple[Floats, Floats]") -> "Floats":
    import numpy as np

    state -= state.mean(-1, keepdims=True)
    variance = np.einsum("...i,...i->...", state, state)[..., None] / np.float32(DIMENSIONS)
    state /= np.sqrt(variance + np.float32(_EPSILON))
    state *= norm[0]
    state += norm[1]
    return state


def _softmax(scores: "Floats") -> "Floats":
    import numpy as np

    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


def _gelu(values: "Floats") -> "Floats":
    """Return x Φ(x), with the error function by Abramowitz and Stegun 7.1.26, exact to 1.5e-7: numpy has none."""
    import numpy as np

    for row in values:  # one text at a time stays in the processor's cache
        size = np.abs(row)
        size *= np.float32(math.sqrt(0.5))
        near = size * np.float32(0.3275911)
        near += 1
        np.reciprocal(near, out=near)
        series = np.full_like(near, 1.061405429)
        for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            series *= near
            series += np.float32(factor)
        series *= near
        size *= size
        np.negative(size, out=size)
        np.exp(size, out=size)
        series *= size
        np.subtract(1, series, out=series)
        np.copysign(series, row, out=series)
        series += 1
        series *= np.float32(0.5)
        np.multiply(row, series, out=row)
    return values


def _read_safetensors(path: Path) -> "dict[str, Floats]":
    """Read tensors by name: eight bytes of length, a JSON header, then the numbers."""
    import numpy as np

    raw = np.memmap(path, dtype=np.uint8, mode="r")
    (size,) = struct.unpack("<Q", raw[:8].tobytes())
    header: dict[str, Any] = json.loads(raw[8 : 8 + size].tobytes())
    tensors: dict[str, Floats] = {}
    for name, about in header.items():
        if name != "__metadata__" and about["dtype"] == "F32":
            first, last = (8 + size + offset for offset in about["data_offsets"])
            tensors[name] = raw[first:last].view(np.float32).reshape(about["shape"])
    return tensors
