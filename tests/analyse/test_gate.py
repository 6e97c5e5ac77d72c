"""Every row of the exit codes, with the equalities at the edges."""

import pytest

from pramana.analyse.gate import Decision, exit_code
from pramana.analyse.summary import Summary, Tally
from pramana.model import Case, Check, Facets, Failure, Key, Outcome, Reply, Result


def summary(passed: int = 0, failed: int = 0, errored: int = 0, unscored: int = 0, skipped: int = 0) -> Summary:
    tally, number = Tally(), 0
    counts = zip(Outcome, (passed, failed, errored, unscored, skipped), strict=True)
    for outcome, count in counts:
        for _ in range(count):
            number += 1
            case = Case(f"{outcome.value}-{number}", "test_case", (), Facets("factual", "easy"))
            key = Key(f"sha256:{number}", "m")
            if outcome is Outcome.ERRORED:
                result = Result(key, case.id, None, Failure("unavailable", "a 500"), (), None, None)
            else:
                check = Check("contains", "1", outcome, "because")
                result = Result(key, case.id, Reply("x"), None, (check,), None, None)
            tally.add(case, result)
    return tally.summary()


@pytest.mark.parametrize(
    ("counts", "ended", "code"),
    [
        ({"passed": 3}, True, 0),
        ({"failed": 3}, True, 0),
        ({"passed": 1, "unscored": 5}, True, 0),
        ({"passed": 1, "skipped": 5}, True, 0),
        ({"unscored": 5}, True, 0),
        ({"passed": 9, "errored": 1}, True, 3),
        ({"errored": 1}, True, 3),
        ({"passed": 9}, False, 3),
        ({}, False, 3),
        ({}, True, 0),
    ],
)
def test_without_a_bar(counts: dict[str, int], ended: bool, code: int) -> None:
    assert exit_code(summary(**counts), None, ended=ended, missing=0 if ended else 4).code == code


@pytest.mark.parametrize(
    ("counts", "bar", "code"),
    [
        # everything has a verdict: the bar itself is met
        ({"passed": 9, "failed": 1}, 0.9, 0),
        ({"passed": 9, "failed": 1}, 0.91, 1),
        ({"passed": 7, "failed": 3}, 0.7, 0),
        ({"passed": 2, "failed": 1}, 2 / 3, 0),
        ({"passed": 10}, 1.0, 0),
        ({"passed": 9, "failed": 1}, 1.0, 1),
        ({"failed": 10}, 0.0, 0),
        # counted as failed they still leave the bar met, exactly and with room
        ({"passed": 9, "errored": 1}, 0.9, 0),
        ({"passed": 9, "unscored": 1}, 0.9, 0),
        ({"passed": 9, "skipped": 1}, 0.9, 0),
        ({"passed": 95, "errored": 2, "unscored": 2, "skipped": 1}, 0.95, 0),
        # counted as passed they still leave it missed
        ({"passed": 8, "failed": 2, "errored": 10}, 0.91, 1),
        ({"passed": 4, "failed": 5, "unscored": 1}, 0.6, 1),
        ({"failed": 1, "skipped": 9}, 0.91, 1),
        # counted as passed they just meet it: nobody can tell
        ({"passed": 4, "failed": 5, "unscored": 1}, 0.5, 4),
        ({"failed": 1, "skipped": 9}, 0.9, 4),
        ({"passed": 8, "errored": 2}, 0.9, 4),
        ({"passed": 8, "unscored": 2}, 1.0, 4),
        ({"unscored": 10}, 0.5, 4),
        ({"unscored": 10}, 0.0, 0),
        ({}, 0.5, 4),
    ],
)
def test_with_a_bar_bounds_decide(counts: dict[str, int], bar: float, code: int) -> None:
    assert exit_code(summary(**counts), bar, ended=True).code == code


@pytest.mark.parametrize(
    ("counts", "missing", "bar", "code"),
    [
        ({"passed": 90}, 10, 0.9, 0),  # met whatever is left
        ({"failed": 20}, 80, 0.9, 1),  # missed whatever is left
        ({"failed": 10}, 90, 0.9, 3),
        ({"passed": 89}, 11, 0.9, 3),
        ({}, 100, 0.9, 3),
        ({"passed": 100}, 0, 0.9, 3),  # how much is left is not known
    ],
)
def test_an_unfinished_run_with_a_bar(counts: dict[str, int], missing: int, bar: float, code: int) -> None:
    assert exit_code(summary(**counts), bar, ended=False, missing=missing).code == code


def test_the_sentence_names_what_has_no_verdict() -> None:
    decision = exit_code(summary(passed=8, errored=1, unscored=1), 0.9, ended=True)
    assert decision == Decision(
        4,
        "90 % must pass: between 80 % and 100 % did, because 2 results of 10 have no verdict: "
        "1 errored (errored-9), 1 unscored (unscored-10).",
    )


def test_the_sentence_names_ten_cases_and_says_that_there_are_more() -> None:
    sentence = exit_code(summary(errored=12), None, ended=True).sentence
    assert sentence == f"12 results errored: {', '.join(f'errored-{number}' for number in range(1, 11))} and more."
    assert "errored-1 " not in exit_code(summary(errored=1), None, ended=True).sentence
    assert exit_code(summary(errored=1), None, ended=True).sentence == "1 result errored: errored-1."


def test_every_sentence_says_what_was_counted() -> None:
    assert exit_code(summary(passed=9, failed=1), 0.9, ended=True).sentence == "90 % must pass: 90 % of 10 results did."
    assert exit_code(summary(passed=9, errored=1), 0.9, ended=True).sentence == (
        "90 % must pass: 90 % of 10 results did, even with 1 without a verdict counted as failed."
    )
    assert exit_code(summary(failed=2, unscored=1), 0.9, ended=True).sentence == (
        "90 % must pass: 33.3333 % of 3 results did, even with 1 without a verdict counted as passed."
    )
    assert exit_code(summary(passed=2), None, ended=True).sentence == "All 2 results ended, none errored."
    assert exit_code(summary(passed=2), None, ended=False, missing=3).sentence == "The run did not end: 3 results left."
    assert exit_code(summary(passed=2), 0.9, ended=False, missing=3).sentence == (
        "90 % must pass: between 40 % and 100 % did, because 3 results of 5 have no verdict: 3 not asked yet."
    )
