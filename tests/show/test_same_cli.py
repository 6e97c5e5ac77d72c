"""`pramana same`: exit codes, the answer in 80 columns, JSON, stored tests, and wrong options."""

import json

import pytest

from .test_cli import pramana


def test_a_difference_exits_with_1_and_is_shown_again() -> None:
    result = pramana("same", "fake", "fake:seed=1", "--seed", "1", columns=80)
    assert result.returncode == 1, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "fake and fake:seed=1"
    assert lines[2].startswith("Different: the odds against chance are over 1,000 to 1 after ")
    assert max(map(len, lines)) <= 80
    shown = pramana("same", "--show", "latest", columns=80)
    assert (shown.returncode, shown.stdout) == (1, result.stdout)
    assert "calls at most" in result.stderr
    assert "pramana same --show" in pramana("show", "latest").stdout
    listed = pramana("runs", columns=80).stdout
    assert listed.count("test of two endpoints") == 2, "one for each endpoint, instead of a pass rate"
    assert "95.4" not in listed
    assert "/400" not in listed
    assert json.loads(pramana("runs", "--json").stdout)[0]["is_endpoint_test"] is True


def test_odds_below_one_are_explained() -> None:
    shown = " ".join(pramana("same", "fake", "fake:seed=1", "--seed", "1", "--quiet", columns=80).stdout.split())
    assert "Highest odds reached by all together: " in shown
    assert "Odds below 1 to 1 speak for chance" in shown


def test_no_difference_exits_with_0_and_says_what_would_have_been_seen() -> None:
    result = pramana("same", "fake", "fake", "--calls", "100", "--quiet", columns=80)
    assert (result.returncode, result.stderr) == (0, "")
    assert "No difference seen in " in result.stdout
    assert "simulated tries" in result.stdout
    assert "a difference would be a false alarm" in " ".join(result.stdout.split())


def test_json_has_the_view_and_the_exit_code() -> None:
    result = pramana("same", "fake", "fake:fixed=yes", "--calls", "60", "--json")
    view = json.loads(result.stdout)
    assert view["exit_code"] == result.returncode
    assert (view["models"], view["max_calls"]) == (["fake", "fake:fixed=yes"], 60)
    assert view["calls"] <= 60


def test_endpoints_that_never_answer_exit_with_4() -> None:
    result = pramana("same", "fake", "fake:rejected=1", "--calls", "40", "--quiet")
    assert result.returncode == 4
    assert "Could not be tested: 0 pairs" in result.stdout


def test_a_missing_key_exits_with_3_and_stores_nothing() -> None:
    result = pramana("same", "fake", "gpt-5")
    assert result.returncode == 3
    assert "OPENAI_API_KEY" in result.stderr
    assert json.loads(pramana("runs", "--json").stdout) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name two models"),
        (("fake",), "name two models"),
        (("fake", "fake", "--calls", "3"), "calls"),
        (("fake", "fake", "--budget", "much"), "budget"),
        (("fake", "fake", "--budget", "0USD"), "budget"),
        (("fake", "fake", "nothing.jsonl"), "nothing.jsonl"),
        (("fake", "fake", "a.jsonl", "--tier", "cheap"), "cannot be combined"),
        (("--show", "latest", "fake"), "two models"),
        (("--show", "nonsense"), "there is no run"),
    ],
)
def test_wrong_options_are_refused(options: tuple[str, ...], message: str) -> None:
    result = pramana("same", *options)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr


def test_a_budget_needs_a_price() -> None:
    result = pramana("same", "fake", "http://127.0.0.1:9/v1#m", "--budget", "1USD")
    assert result.returncode == 2
    assert "no price is known" in result.stderr
