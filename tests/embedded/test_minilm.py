"""MiniLM in numpy against published values, and BERT's tokeniser against known results."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pramana.embedded import minilm, weights
from pramana.embedded.minilm import MAX_PIECES, MiniLM


@pytest.fixture(scope="module")
def encoder() -> MiniLM:
    return MiniLM(weights.verify_folder(minilm.WEIGHTS_NAME) / "model")


# ── Word pieces ──


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello, World!", "hello , world !"),
        ("unaffable", "una ##ffa ##ble"),  # the example of BERT's authors
        ("embeddings", "em ##bed ##ding ##s"),
        ("Café NAÏVE Ångström", "cafe naive ang ##strom"),
        ("don't 3.14 $5 a_b", "don ' t 3 . 14 $ 5 a _ b"),
        ("x^2 = `y` | ~z <b> +1", "x ^ 2 = ` y ` | ~ z < b > + 1"),
        ("“quoted” – ¿qué?", "“ quoted ” – ¿ que ?"),
        ("日本 go", "日 本 go"),
        ("日go本", "日 go 本"),
        ("tab\tline\r\nno\u00a0break", "tab line no break"),
        ("zero\u200bwidth nul\x00l bell\x07 gone\ufffd", "zero ##wi ##dt ##h null bell gone"),
        ("İstanbul", "istanbul"),
        ("\ud800half", "half"),
        ("[SEP] [CLS]", "[ sep ] [ cl ##s ]"),
        ("🙂", "[UNK]"),
        ("x" * 101 + " y", "[UNK] y"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_texts_are_tokenised_like_bert(encoder: MiniLM, text: str, pieces: str) -> None:
    ids = encoder.tokenize(text)
    assert [encoder.tokenize.pieces[each] for each in ids] == ["[CLS]", *pieces.split(), "[SEP]"]


def test_token_ids_match_the_published_vocabulary(encoder: MiniLM) -> None:
    assert encoder.tokenize("Hello, World!") == [101, 7592, 1010, 2088, 999, 102]
    assert encoder.tokenize("🙂") == [101, 100, 102]


def test_words_of_up_to_100_letters_are_tokenised(encoder: MiniLM) -> None:
    assert len(encoder.tokenize("x" * 100)) > 3


def test_long_texts_are_truncated_to_256_tokens_including_markers(encoder: MiniLM) -> None:
    ids = encoder.tokenize("word " * 400)
    assert len(ids) == MAX_PIECES
    assert (ids[0], ids[-1]) == (101, 102)
    assert len(encoder.tokenize("word " * 254)) == MAX_PIECES
    assert np.array_equal(encoder.encode(["word " * 254]), encoder.encode(["word " * 900]))


# ── Vectors ──


def test_similarities_match_those_published_by_sentence_transformers(encoder: MiniLM) -> None:
    sentences = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    vectors = encoder.encode(sentences)
    expected = [[1.0000, 0.6660, 0.1046], [0.6660, 1.0000, 0.1411], [0.1046, 0.1411, 1.0000]]
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    assert np.abs(vectors @ vectors.T - expected).max() < 0.0001


def test_a_vector_does_not_depend_on_its_batch(encoder: MiniLM) -> None:
    texts = [("stone " * length + "wall") for length in (1, 40, 3, 250, 7)] + [
        f"wall {number}" for number in range(40)
    ]  # more than one batch
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert np.abs(together - alone).max() < 1e-6
    assert np.abs(np.linalg.norm(together, axis=1) - 1).max() < 1e-6


def test_characters_that_bert_ignores_do_not_change_the_vector(encoder: MiniLM) -> None:
    vectors = encoder.encode(["The café is OPEN.", "the cafe is open .", "  The Cafe\nis\u200b open."])
    assert np.abs(vectors - vectors[0]).max() < 1e-6


def test_empty_batches_and_empty_texts_are_embedded(encoder: MiniLM) -> None:
    assert encoder.encode([]).shape == (0, 384)
    assert np.isfinite(encoder.encode(["", "\x00"])).all()


def test_several_threads_get_the_same_vectors(encoder: MiniLM) -> None:
    texts = [f"Room {number} is on floor {number // 10}." for number in range(24)]
    expected = [encoder.encode([text]) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: encoder.encode([text]), texts))
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.skipif(sys.platform == "darwin", reason="numpy's wheels for macOS hold another matrix library")
def test_numpy_threads_are_restored_afterwards(encoder: MiniLM) -> None:
    threads = minilm._find_openblas()
    assert threads is not None
    before = threads.get()
    threads.set(2)
    try:
        encoder.encode(["Owls hunt at night."])
        assert threads.get() == 2
        with minilm._limit_to_one_thread():
            assert threads.get() == 1
    finally:
        threads.set(before)


def test_gelu_is_exact(encoder: MiniLM) -> None:
    from math import erf, sqrt

    values = np.linspace(-6, 6, 4001, dtype=np.float32).reshape(1, 1, -1)
    exact = [0.5 * x * (1 + erf(x / sqrt(2))) for x in values.ravel().tolist()]
    assert np.abs(minilm._gelu(values.copy()).ravel() - exact).max() < 2e-6
    assert encoder.tokenize("gelu")


def test_190_texts_take_at_most_seconds_of_cpu_time(encoder: MiniLM) -> None:
    texts = [f"The parcel for house {number} was left with a neighbour." for number in range(190)]
    encoder.encode(texts[:8])
    start = time.process_time()
    encoder.encode(texts)
    assert time.process_time() - start < 5  # about 0.8 s on an idle machine; a bound for a slow and busy one


def test_one_encoder_serves_the_process() -> None:
    minilm.load_encoder.cache_clear()
    assert minilm.load_encoder() is minilm.load_encoder()
