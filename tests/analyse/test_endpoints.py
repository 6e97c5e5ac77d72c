"""The answer from pairs of calls: which instruments see which difference, what does not decide, and the level."""

import random
from collections.abc import Callable, Sequence

import pytest

from pramana.analyse.border_prompts import CANDIDATES, make_border_cases, rank_by_entropy
from pramana.analyse.endpoints import MIN_PAIRS, Answered, CallPair, EndpointFinding, make_endpoint_test
from pramana.analyse.same import SIGNIFICANCE_LEVEL
from pramana.analyse.same_power import simulate_seen_shares

Answer = Callable[[random.Random, int], Answered | None]


def make_pairs(
    first: Answer, second: Answer, count: int = 150, prompts: int = 10, seed: int = 1, *, is_border: bool = True
) -> list[CallPair]:
    rng = random.Random(seed)
    return [
        CallPair(str(at % prompts), (first(rng, at), second(rng, at)), is_border=is_border, shown_prompt=f"p{at}")
        for at in range(count)
    ]


def find(pairs: Sequence[CallPair]) -> EndpointFinding:
    return make_endpoint_test(pairs).make_finding()


def answer_coin(rng: random.Random, _: int) -> Answered:
    return Answered(rng.choice(("heads", "tails")), 0.1)


def answer_biased_coin(rng: random.Random, _: int) -> Answered:
    return Answered(rng.choices(("heads", "tails"), (1, 9))[0], 0.1)


def test_equal_distributions_are_not_called_different() -> None:
    finding = find(make_pairs(answer_coin, answer_coin))
    assert (finding.decision, finding.exit_code, finding.pairs) == ("no_difference", 0, 150)
    assert finding.sentence == "No difference seen in 150 pairs of calls."


def test_another_distribution_of_answers_is_seen() -> None:
    finding = find(make_pairs(answer_coin, answer_biased_coin, 600))
    assert (finding.decision, finding.exit_code) == ("different", 1)
    assert finding.sentence.startswith("Different: the odds against chance are over 1,000 to 1 after 600 pairs")
    assert finding.examples[0].is_border


def test_too_few_pairs_are_no_answer() -> None:
    finding = find(make_pairs(answer_coin, answer_coin, MIN_PAIRS - 1))
    assert (finding.decision, finding.exit_code) == ("untested", 4)
    assert str(MIN_PAIRS) in finding.sentence


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("length", Answered("so " * 9, 0.1), Answered("so", 0.1)),
        ("passed", Answered("yes", 0.1, has_passed=True), Answered("yes", 0.1, has_passed=False)),
        ("logprobs", Answered("7", 0.1, logprobs={"7": -0.5, "3": -1.1}), Answered("7", 0.1, logprobs={"7": -0.6})),
    ],
)
def test_each_number_that_differs_is_evidence(name: str, first: Answered, second: Answered) -> None:
    finding = find(make_pairs(lambda *_: first, lambda *_: second, 60, is_border=False))
    assert finding.decision == "different"
    odds = {each.name: each.odds for each in finding.evidence}
    assert odds[name] == max(odds.values()) > 1_000  # type: ignore[index]


def test_a_slower_endpoint_is_reported_but_is_not_a_different_model() -> None:
    finding = find(make_pairs(lambda *_: Answered("heads", 0.1), lambda *_: Answered("heads", 0.3), 60))
    assert finding.decision == "no_difference"
    assert finding.is_latency_different
    assert finding.latency.values == (0.1, 0.3)


def test_pairs_with_a_failed_call_do_not_count_and_unequal_failures_are_reported() -> None:
    def answer_or_fail(_: random.Random, at: int) -> Answered | None:
        return None if at % 2 else Answered("heads", 0.1)

    finding = find(make_pairs(lambda *_: Answered("heads", 0.1), answer_or_fail, 60))
    assert (finding.decision, finding.pairs, finding.dropped) == ("no_difference", 30, 30)
    assert finding.failed == (0, 30)
    assert finding.is_failure_rate_different
    both = find(make_pairs(answer_or_fail, answer_or_fail, 60))
    assert (both.pairs, both.failed, both.is_failure_rate_different) == (30, (30, 30), False)


def test_false_alarms_of_equal_endpoints_keep_the_level() -> None:
    """500 simulated tests of one endpoint with noisy answers, lengths, logprobs and verdicts: almost none may alarm."""

    def answer(rng: random.Random, _: int) -> Answered:
        text = rng.choice("abcde") * rng.randint(1, 5)
        return Answered(text, rng.random(), rng.random() < 0.7, {"a": -rng.random(), "b": -2 - rng.random()})

    tests = [
        make_endpoint_test(make_pairs(answer, answer, 60, 6, seed, is_border=seed % 2 == 0)) for seed in range(500)
    ]
    assert sum(test.is_different for test in tests) <= 3, "0.5 are expected at most; 4 have a probability below 0.2 %"
    assert sum(test.make_finding().p_value <= 0.05 for test in tests) <= 40, "25 are expected at most"
    assert SIGNIFICANCE_LEVEL == 0.001


def test_the_simulation_sees_a_swap_and_misses_a_small_change() -> None:
    pairs = make_pairs(lambda rng, _: Answered(rng.choice("abcdefgh"), 0.1), lambda rng, _: Answered("a", 0.1), 200)
    swap, half, fifth = simulate_seen_shares(pairs, tries=40)
    assert (swap.change, swap.tries) == ("swap", 40)
    assert swap.seen >= half.seen >= fifth.seen
    assert simulate_seen_shares(pairs, tries=40) == (swap, half, fifth)
    assert simulate_seen_shares([]) == ()


def test_border_prompts_are_distinct_and_those_that_vary_most_come_first() -> None:
    assert len(set(CANDIDATES)) == len(CANDIDATES)
    assert {each.facets.tags for each in make_border_cases()} == {("border",)}
    assert rank_by_entropy({}) == []
