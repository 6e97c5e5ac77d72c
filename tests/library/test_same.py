"""`pramana.same` and `report.same`: functions as models, runs that are there already, and wrong arguments."""

import random
from typing import Any

import pytest

import pramana


def flip_coin(prompt: str, seed: int = 0) -> str:
    return random.Random(f"{prompt} {seed}").choice(("heads", "tails"))


def flip_biased_coin(prompt: str, seed: int = 0) -> str:
    return random.Random(f"{prompt} {seed}").choices(("heads", "tails"), (1, 9))[0]


def test_functions_that_differ_are_called_different() -> None:
    found = pramana.same(flip_coin, flip_biased_coin, calls=600, seed=1, prompts=0)
    assert found.is_different is True
    assert found.calls < 600
    assert found.models == (
        "python:tests.library.test_same:flip_coin",
        "python:tests.library.test_same:flip_biased_coin",
    )
    assert "Different" in str(found) == repr(found)


def test_a_function_against_itself_shows_no_difference() -> None:
    found = pramana.same(flip_coin, flip_coin, calls=120, seed=1, prompts=0)
    assert (found.is_different, found.decision, found.odds) == (False, "no_difference", 1.0)
    assert "simulated tries" in str(found)


def test_both_calls_of_a_pair_get_one_seed_so_that_small_changes_are_seen() -> None:
    def flip(prompt: str, seed: int = 0) -> str:
        return "heads" if random.Random(f"{prompt} {seed}").random() < 0.25 else "tails"

    def flip_a_little_more(prompt: str, seed: int = 0) -> str:
        return "heads" if random.Random(f"{prompt} {seed}").random() < 0.4 else "tails"

    assert pramana.same(flip, flip_a_little_more, calls=800, seed=2, prompts=0).is_different


def test_two_functions_of_one_name_are_kept_apart() -> None:
    found = pramana.same(lambda _: "yes", lambda _: "no", calls=200, seed=1)
    assert found.is_different
    assert [model.rpartition(":")[2] for model in found.models] == ["a", "b"]


def test_models_of_a_run_are_tested_without_sending_anything() -> None:
    cases = [{"input": f"Say {number}.", "ideal": "x"} for number in range(4)]
    calls = []

    def count_calls(prompt: str) -> str:
        calls.append(prompt)
        return "A"

    models = {"a": count_calls, "b": lambda _: "B", "c": lambda _: "B"}
    report = pramana.evaluate(cases, models=models, repeat=8)
    sent = len(calls)
    with pytest.raises(pramana.InvalidInput, match="name them"):
        report.same()
    names = report.models
    assert report.same(names[0], names[1]).is_different
    assert report.same(names[1], names[2]).is_different is False
    assert len(calls) == sent
    two = pramana.evaluate(cases, models={"a": count_calls, "b": lambda _: "B"}, repeat=8)
    assert pramana.same(two).is_different
    assert pramana.same(pramana.runs()[0]).pairs == 32
    assert "by lot" in pramana.same(two).caveats[0]


def test_a_model_that_raises_cannot_be_tested() -> None:
    def fail(_: str) -> str:
        raise ValueError("no")

    found = pramana.same(lambda _: "yes", fail, calls=60, seed=1)
    assert (found.is_different, found.failed[0], found.pairs) == (None, 0, 0)
    assert found.failed[1] > 15


def test_ctrl_c_in_a_model_keeps_the_pairs_so_far() -> None:
    sent = []

    def interrupt(prompt: str) -> str:
        sent.append(prompt)
        if len(sent) > 30:
            raise KeyboardInterrupt
        return "yes"

    with pytest.raises(KeyboardInterrupt, match="resume"):
        pramana.same(lambda _: "yes", interrupt, calls=200, seed=1)
    report = pramana.load_report()
    assert report.run.status == "interrupted"
    assert report.same().pairs > 0


def test_hostile_replies_are_compared_and_shown_safely() -> None:
    replies = ["\ud800", "\x1b[31mred", "", "x" * 300_000, "a\nb\tc", "\N{RIGHT-TO-LEFT OVERRIDE}"]
    found = pramana.same(lambda _: random.choice(replies), lambda _: "plain", calls=60, seed=1)
    text = str(found)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert found.pairs >= 20


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (("fake",), {}, "name two models"),
        (("fake", 5), {}, "expected a model"),
        (("fake", "fake"), {"calls": 0}, "calls"),
        (("fake", "fake"), {"temperature": "hot"}, "temperature"),
        (("fake", "fake"), {"max_cost_usd": -1}, "max_cost_usd"),
        (("fake", "fake"), {"cases": "missing.jsonl"}, "missing"),
        (("fake", "fake"), {"cases": []}, "no"),
    ],
)
def test_wrong_arguments_are_refused(given: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(pramana.PramanaError, match=message):
        pramana.same(*given, **options)


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match="max_cost_usd"):
        pramana.same("fake", "fake", budget=1)
