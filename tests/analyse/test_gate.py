"""Every row of the table of exit codes, including equality at the edges."""

import re
from pathlib import Path

import pytest
from scipy.stats import binom  # type: ignore[import-untyped]

from pramana.analyse.gate import ExitDecision, check_pass_rate, decide_exit
from pramana.analyse.summary import ResultTally, Summary
from pramana.model import Case, Check, Facets, Failure, Outcome, Reply, Result, ResultKey

ENDED = {"m": 0}
Counts = dict[str, int]


def summarise_counts(**counts: int) -> Summary:
    return summarise_models(m=counts)


def summarise_models(**models: Counts) -> Summary:
    tally, number = ResultTally(), 0
    for model, counts in models.items():
        for outcome in Outcome:
            for _ in range(counts.get(outcome.value, 0)):
                number += 1
                case = Case(f"{outcome.value}-{number}", "test_case", (), Facets("factual", "easy"))
                tally.add(case, make_result(outcome, ResultKey(f"sha256:{number}", model), case.id))
    return tally.summary()


def make_result(outcome: Outcome, key: ResultKey, case_id: str) -> Result:
    if outcome is Outcome.ERRORED:
        return Result(key, case_id, None, Failure("unavailable", "a 500"), (), None, None)
    return Result(key, case_id, Reply("x"), None, (Check("contains", "1", outcome, "because"),), None, None)


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
def test_exit_code_without_a_threshold(counts: dict[str, int], ended: bool, code: int) -> None:
    assert decide_exit(summarise_counts(**counts), None, {"m": 0 if ended else 4}).exit_code == code


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
        # if all of them passed, the threshold is just met: undecided
        ({"passed": 4, "failed": 5, "unscored": 1}, 0.5, 4),
        ({"failed": 1, "skipped": 9}, 0.9, 4),
        ({"passed": 8, "errored": 2}, 0.9, 4),
        ({"passed": 8, "unscored": 2}, 1.0, 4),
        ({"unscored": 10}, 0.5, 4),
        ({"unscored": 10}, 0.0, 0),
        ({}, 0.5, 4),
    ],
)
def test_with_a_threshold_the_interval_bounds_decide(counts: dict[str, int], bar: float, code: int) -> None:
    assert decide_exit(summarise_counts(**counts), bar, ENDED).exit_code == code


@pytest.mark.parametrize("cases", [10, 25, 75])
def test_with_a_confidence_chance_decides_wrongly_in_at_most_one_of_twenty_runs(cases: int) -> None:
    codes = [
        decide_exit(summarise_counts(passed=passed, failed=cases - passed), 0.9, ENDED, 0.95).exit_code
        for passed in range(cases + 1)
    ]
    assert codes == sorted(codes, key=[1, 4, 0].index)
    for rate in (0.9, 0.92, 0.85):
        chances = {
            code: sum(binom.pmf(at, cases, rate) for at, each in enumerate(codes) if each == code) for code in (0, 1)
        }
        wrong = 1 if rate >= 0.9 else 0
        assert chances[wrong] <= 0.05
        assert rate > 0.9 or chances[0] <= 0.05


def test_the_command_and_the_assertion_decide_by_the_same_bound() -> None:
    for passed in range(60):
        for errored in (0, 3):
            found = summarise_counts(passed=passed, failed=60 - passed, errored=errored)
            is_met = check_pass_rate(found.by["model"]["m"], 60 + errored, 0.8, 0.95).is_met
            assert (decide_exit(found, 0.8, ENDED, 0.95).exit_code == 0) == is_met


def test_the_sentence_of_a_minimum_with_a_confidence() -> None:
    said = [
        decide_exit(summarise_counts(**counts), 0.9, ENDED, 0.95).sentence
        for counts in ({"passed": 40}, {"passed": 23, "failed": 2}, {"passed": 10, "failed": 10, "errored": 1})
    ]
    assert said == [
        "90 % must pass: 40 of 40 results did; at 95 % confidence the pass rate is at least 92.7 %.",
        "90 % must pass: 23 of 25 results did; at 95 % confidence the pass rate is between 76.8 % and 98.6 %, so more "
        "cases are needed to decide.",
        "90 % must pass: 10 of 21 results did, 1 without a verdict; at 95 % confidence the pass rate is at most 71.5 %.",
    ]


def test_repeats_count_as_one_case_if_a_confidence_decides() -> None:
    tally = ResultTally(repeats=5)
    for number in range(29):
        case = Case(f"c-{number}", "test_case", (), Facets("factual", "easy"))
        for repeat in range(5):
            check = Check("contains", "1", Outcome.PASSED, "")
            key = ResultKey(f"sha256:{number}", "m", repeat=repeat)
            tally.add(case, Result(key, case.id, Reply("x"), None, (check,), None, None))
    assert decide_exit(tally.summary(), 0.9, ENDED, 0.95).exit_code == 0  # as many cases as one reply each needs
    assert decide_exit(tally.summary(), 0.91, ENDED, 0.95).exit_code == 4


def test_every_row_of_the_documented_exit_codes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "running.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \| (\d) \|$", page, re.MULTILINE)
    assert {row[-1] for row in rows} == {"0", "1", "4"}
    for passed, failed, without, missing, bar, code in rows:
        found = summarise_counts(passed=int(passed), failed=int(failed), errored=int(without))
        assert decide_exit(found, float(bar), {"m": int(missing)}).exit_code == int(code)


@pytest.mark.parametrize(
    ("counts", "missing", "bar", "code"),
    [
        ({"passed": 90}, 10, 0.9, 0),  # met whatever is left
        ({"failed": 20}, 80, 0.9, 1),  # missed whatever is left
        # neither: unsent cases have no verdict either, so it is undecided
        ({"failed": 10}, 90, 0.9, 4),
        ({"passed": 89}, 11, 0.9, 4),
        ({"passed": 80, "errored": 5}, 15, 0.9, 4),
        ({}, 100, 0.9, 4),
        ({}, 100, 0.0, 0),
    ],
)
def test_exit_code_of_an_unfinished_run_with_a_threshold(
    counts: dict[str, int], missing: int, bar: float, code: int
) -> None:
    assert decide_exit(summarise_counts(**counts), bar, {"m": missing}).exit_code == code


ALL, HALF, NONE = {"passed": 10}, {"passed": 5, "failed": 5}, {"failed": 10}
OPEN = {"passed": 5, "unscored": 5}


@pytest.mark.parametrize(
    ("models", "missing", "code"),
    [
        ((ALL, ALL), (0, 0), 0),
        ((ALL, ALL, NONE), (0, 0, 0), 1),  # pooled it would be two thirds, and met
        ((NONE, ALL, ALL), (0, 0, 0), 1),
        ((ALL, OPEN), (0, 0), 4),
        ((OPEN, NONE), (0, 0), 1),  # one that surely missed decides, whatever becomes of the other
        ((NONE, OPEN), (0, 0), 1),
        ((ALL, {}), (0, 10), 4),  # one model has no results
        ((ALL, ALL), (0, 2), 0),
        ((ALL, HALF), (0, 3), 4),  # eight of thirteen at best
        ((ALL, HALF), (0, 2), 1),  # seven of twelve at best
        ((ALL, HALF), (10, 0), 1),
        ((HALF, ALL), (3, 10), 4),
    ],
)
def test_each_model_is_gated_separately_and_the_worst_decides(
    models: tuple[Counts, ...], missing: tuple[int, ...], code: int
) -> None:
    names = "abc"[: len(models)]
    found = summarise_models(**dict(zip(names, models, strict=True)))
    assert decide_exit(found, 0.6, dict(zip(names, missing, strict=True))).exit_code == code


def test_the_message_names_the_deciding_models() -> None:
    found = summarise_models(
        a={"passed": 10}, b={"failed": 10}, c={"passed": 4, "errored": 6}, d={"failed": 9, "passed": 1}
    )
    owed = dict.fromkeys("abcd", 0)
    assert decide_exit(found, 0.6, owed).sentence == (
        "60 % must pass: 0 % of 10 results of b did; 10 % of 10 results of d did."
    )
    found = summarise_models(a={"passed": 10}, b={"errored": 1, "passed": 1}, c={"passed": 5, "errored": 1})
    assert decide_exit(found, 0.6, {"a": 0, "b": 3, "c": 0}).sentence == (
        "60 % must pass: between 20 % and 100 % of b did, because 4 results of 5 have no verdict: "
        "1 errored (errored-12), 3 not run yet."
    )
    assert decide_exit(summarise_models(a=ALL, b=ALL), 0.6, {"a": 0, "b": 0}).sentence == (
        "60 % must pass: 100 % of 10 results of a did; 100 % of 10 results of b did."
    )


def test_a_model_without_results_is_included() -> None:
    assert decide_exit(summarise_counts(passed=10), None, {"m": 0, "n": 10}).exit_code == 3
    assert (
        decide_exit(summarise_counts(passed=10), 0.9, {"m": 0, "n": 0}).sentence
        == "90 % must pass: no case was run of n."
    )


def test_the_message_names_cases_without_a_verdict() -> None:
    decision = decide_exit(summarise_counts(passed=8, errored=1, unscored=1), 0.9, ENDED)
    assert decision == ExitDecision(
        4,
        "90 % must pass: between 80 % and 100 % did, because 2 results of 10 have no verdict: "
        "1 errored (errored-9), 1 unscored (unscored-10).",
    )


def test_the_message_names_ten_cases_and_counts_the_rest() -> None:
    sentence = decide_exit(summarise_counts(errored=12), None, ENDED).sentence
    assert sentence == f"12 results errored: {', '.join(f'errored-{number}' for number in range(1, 11))} and more."
    assert "errored-1 " not in decide_exit(summarise_counts(errored=1), None, ENDED).sentence
    assert decide_exit(summarise_counts(errored=1), None, ENDED).sentence == "1 result errored: errored-1."


def test_every_message_states_the_counts() -> None:
    assert (
        decide_exit(summarise_counts(passed=9, failed=1), 0.9, ENDED).sentence
        == "90 % must pass: 90 % of 10 results did."
    )
    assert decide_exit(summarise_counts(passed=9, errored=1), 0.9, ENDED).sentence == (
        "90 % must pass: 90 % of 10 results did, even with 1 without a verdict counted as failed."
    )
    assert decide_exit(summarise_counts(failed=2, unscored=1), 0.9, ENDED).sentence == (
        "90 % must pass: 33.3 % of 3 results did, even with 1 without a verdict counted as passed."
    )
    assert decide_exit(summarise_counts(passed=2), None, ENDED).sentence == "2 results, no errors."
    assert decide_exit(summarise_counts(passed=1), None, ENDED).sentence == "1 result, no errors."
    assert decide_exit(summarise_counts(passed=2), None, {"m": 3}).sentence == "The run did not finish: 3 results left."
    assert decide_exit(summarise_counts(passed=2), 0.9, {"m": 3}).sentence == (
        "90 % must pass: between 40 % and 100 % did, because 3 results of 5 have no verdict: 3 not run yet."
    )


def summarise_skipped(reason: str, count: int = 3, variant: str = "voice") -> Summary:
    tally = ResultTally()
    for number in range(count):
        case = Case(f"c-{number}", "scenario", (), Facets("factual", "easy"))
        check = Check("call", "1", Outcome.SKIPPED, reason)
        tally.add(case, Result(ResultKey(f"sha256:{number}", "m", variant), case.id, None, None, (check,), None, None))
    return tally.summary()


@pytest.mark.parametrize(
    ("actual", "sentence"),
    [
        (
            summarise_skipped("the agent does not understand fr"),
            "No case was run: all 3 results were skipped. Test an agent that recognises speech in this language itself, or run only English cases: --language en.",
        ),
        (summarise_skipped("the case is about code", 1), "No case was run: the only result was skipped."),
        (
            summarise_skipped("fake-voice is a voice agent and takes no text", variant="text"),
            "No case was run: all 3 results were skipped. Send the cases as speech: --modality voice.",
        ),
        (summarise_counts(), "No case was run."),
        (summarise_counts(passed=1, skipped=2), "3 results, no errors."),
        (summarise_counts(unscored=2), "No verdicts: 0 of 2 results passed or failed (2 unscored)."),
        (
            summarise_counts(unscored=1, skipped=2),
            "No verdicts: 0 of 3 results passed or failed (1 unscored, 2 skipped).",
        ),
    ],
)
def test_if_nothing_was_sent_the_message_says_so_and_what_to_do(actual: Summary, sentence: str) -> None:
    assert decide_exit(actual, None, ENDED) == ExitDecision(0, sentence)
