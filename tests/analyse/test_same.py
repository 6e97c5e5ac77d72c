"""Two endpoints or one: what the test promises, by enumeration of every way the labels could have fallen."""

import random
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pramana.analyse.same import PairedTest, ReplyPair

PAIRS = (
    ReplyPair("a", ("x", "y"), {"length": (3.0, 5.0)}),
    ReplyPair("a", ("x", "y"), {"length": (3.0, 4.0)}),
    ReplyPair("b", ("u", "u"), {"length": (1.0, 1.0)}),
    ReplyPair("a", ("x", "x"), {"length": (2.0, 7.0)}),
    ReplyPair("b", ("u", "v"), {"length": (9.0, 7.0)}),
    ReplyPair("a", ("z", "y")),
    ReplyPair("a", ("x", "y"), {"length": (3.0, 5.0)}),
    ReplyPair("b", ("v", "u"), {"length": (6.0, 5.0)}),
    ReplyPair("a", ("x", "y"), {"length": (3.0, 5.5)}),
    ReplyPair("a", ("x", "y"), {"length": (3.0, 5.5)}),
)


def swap(pair: ReplyPair) -> ReplyPair:
    numbers = {name: (second, first) for name, (first, second) in pair.measurements.items()}
    return ReplyPair(pair.prompt, (pair.replies[1], pair.replies[0]), numbers)


def run_all_labellings(pairs: Sequence[ReplyPair]) -> list[PairedTest]:
    """Return the test of every way in which the labels could have fallen."""
    tests = []
    for swapped in product((False, True), repeat=len(pairs)):
        test = PairedTest(["length"])
        for pair, is_swapped in zip(pairs, swapped, strict=True):
            test.add(swap(pair) if is_swapped else pair)
        tests.append(test)
    return tests


def test_the_stakes_have_mean_one_over_all_labellings() -> None:
    tests = run_all_labellings(PAIRS)
    for name in ("reply", "length"):
        assert sum(test.e_values[name] for test in tests) / len(tests) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("level", [0.5, 0.2, 0.05, 0.02])
def test_at_most_a_share_p_of_the_labellings_ever_reaches_p(level: float) -> None:
    tests = run_all_labellings(PAIRS)
    assert sum(test.p_value <= level for test in tests) / len(tests) <= level


def test_equal_replies_are_no_evidence() -> None:
    test = PairedTest()
    for prompt in range(1000):
        test.add(ReplyPair(str(prompt % 7), ("same", "same")))
    assert test.p_value == 1.0
    assert test.pairs == 1000


def test_a_p_value_never_rises_again() -> None:
    rng, test, before = random.Random(1), PairedTest(), 1.0
    for _ in range(500):
        test.add(ReplyPair("a", (rng.choice("xy"), rng.choice("xxxy"))))
        assert test.p_value <= before
        before = test.p_value


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from("xyz")), max_size=30))
def test_it_does_not_matter_which_endpoint_is_called_the_first(rows: list[tuple[str, str, str]]) -> None:
    one, other = PairedTest(), PairedTest()
    for prompt, first, second in rows:
        one.add(ReplyPair(prompt, (first, second)))
        other.add(ReplyPair(prompt, (second, first)))
    assert one.p_value == pytest.approx(other.p_value)


def test_a_number_that_is_always_larger_on_one_side_shows_the_difference() -> None:
    test = PairedTest(["latency"])
    for each in range(20):
        test.add(ReplyPair(str(each), ("same", "same"), {"latency": (1.0, 1.1), "unannounced": (0.0, 1.0)}))
    assert test.is_different
    assert set(test.e_values) == {"reply", "latency"}


def test_numbers_that_differ_by_prompt_in_both_directions_show_the_difference() -> None:
    test = PairedTest(["logprob"])
    for each in range(60):
        first, second = (-1.0, -1.1) if each % 2 else (-1.1, -1.0)
        test.add(ReplyPair(str(each % 4), ("same", "same"), {"logprob": (first, second)}))
    assert test.is_different


def test_long_evidence_does_not_overflow() -> None:
    test = PairedTest()
    for _ in range(5000):
        test.add(ReplyPair("a", ("x", "y")))
    assert 0.0 < test.p_value < 1e-200
