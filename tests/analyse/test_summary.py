"""Summaries of runs, counted one result at a time."""

import json
import tracemalloc
from typing import Any

import pytest

from pramana.analyse.mean_bounds import rate_interval
from pramana.analyse.summary import (
    MAX_LISTED_FAILED_RESULTS,
    MAX_NAMED_CASES,
    MAX_REASON_LENGTH,
    MAX_REASONS,
    MAX_SIMILAR_MESSAGES,
    OTHER_REASONS,
    FailedResult,
    KnownTotal,
    Rate,
    ResultTally,
    TimePercentiles,
    explain_outcome,
)
from pramana.model import Case, Check, Facets, Failure, Outcome, Reply, Result, ResultKey, Usage


def make_case(case_id: str = "a-1", **facets: Any) -> Case:
    return Case(case_id, "test_case", (), Facets(**{"category": "factual", "difficulty": "easy", **facets}))


def make_result(
    outcome: Outcome = Outcome.PASSED,
    *,
    case_id: str = "a-1",
    model: str = "m",
    reason: str = "because",
    check: str = "contains",
    reply: Reply | None = None,
    **evidence: object,
) -> Result:
    key = ResultKey("sha256:1", model)
    if outcome is Outcome.ERRORED and reply is None:
        return Result(key, case_id, None, Failure("unavailable", reason), (), None, None)
    checks = (Check(check, "1", outcome, reason, evidence=evidence),)
    return Result(key, case_id, reply or Reply("x"), None, checks, None, None)


def test_the_pass_rate_excludes_results_without_a_verdict() -> None:
    tally = ResultTally()
    for outcome, count in zip(Outcome, (6, 2, 3, 1, 4), strict=True):
        for _ in range(count):
            tally.add(make_case(), make_result(outcome))
    rate = tally.summary().overall
    assert rate == Rate(6, 2, 3, 1, 4)
    assert (rate.value, rate.scored_count, rate.undecided_count, rate.total) == (0.75, 8, 8, 16)
    assert rate.interval == rate_interval(6, 8)


def test_without_verdicts_the_pass_rate_is_none_not_zero() -> None:
    tally = ResultTally()
    tally.add(make_case(), make_result(Outcome.UNSCORED))
    rate = tally.summary().overall
    assert rate.value is None
    assert rate.interval is None


def test_every_facet_has_its_own_rate() -> None:
    tally = ResultTally()
    tally.add(
        make_case(category="coding", difficulty="hard", language="de", tags=("x", "y", "x")),
        make_result(Outcome.FAILED),
    )
    tally.add(make_case(tags=("x",)), make_result(model="n", check="is_json"))
    tally.add(make_case(difficulty="medium"), make_result(Outcome.ERRORED))
    by = tally.summary().by
    assert by["category"] == {"coding": Rate(failed=1), "factual": Rate(passed=1, errored=1)}
    assert list(by["difficulty"]) == ["easy", "medium", "hard"]
    assert by["language"] == {"de": Rate(failed=1)}
    assert by["tag"] == {"x": Rate(passed=1, failed=1), "y": Rate(failed=1)}
    assert by["check"] == {"contains": Rate(failed=1), "is_json": Rate(passed=1)}
    assert by["model"] == {"m": Rate(failed=1, errored=1), "n": Rate(passed=1)}


def test_repeats_and_models_do_not_add_cases() -> None:
    tally = ResultTally(repeats=5, models=2)
    for number in range(10):
        for model in ("m", "n"):
            for _ in range(5):
                tally.add(
                    make_case(f"a-{number}"), make_result(Outcome.PASSED if number < 8 else Outcome.FAILED, model=model)
                )
    summary = tally.summary()
    assert summary.overall.total == 100
    assert summary.overall.interval == rate_interval(8, 10)
    assert summary.by["model"]["m"].interval == rate_interval(8, 10)


def test_tokens_times_and_cost_are_summed() -> None:
    tally = ResultTally()
    for number in range(101):
        reply = Reply("x", Usage(10, 2), first_token_s=number / 1000, total_s=number / 100, cost_usd=0.25)
        tally.add(make_case(), make_result(reply=reply))
    summary = tally.summary()
    assert (summary.input_tokens.value, summary.output_tokens.value) == (1010, 202)
    assert summary.cost_usd.value == 25.25
    assert summary.latency == TimePercentiles(101, 0.5, 0.95, 0.99, p95_at_most=0.99)
    first = summary.first_token
    assert [first.count, first.p50, first.p95, first.p99] == pytest.approx([101, 0.05, 0.095, 0.099])


def test_an_unknown_price_leaves_the_known_cost() -> None:
    tally = ResultTally()
    tally.add(make_case(), make_result(reply=Reply("x", Usage(5, None), cost_usd=0.5)))
    tally.add(make_case(), make_result(reply=Reply("x", Usage(5, 1), cost_usd=None)))
    summary = tally.summary()
    assert summary.cost_usd == KnownTotal(0.5, 1)
    assert summary.cost_usd.value is None
    assert summary.output_tokens == KnownTotal(1, 1)
    assert summary.first_token == TimePercentiles()


def test_the_cost_of_judges_counts() -> None:
    tally = ResultTally()
    tally.add(make_case(), make_result(reply=Reply("x", cost_usd=0.5), answers=["YES"], cost_usd=0.25))
    assert tally.summary().cost_usd == KnownTotal(0.75, 0)
    assert tally.summary().judge_cost_usd == KnownTotal(0.25, 0)
    tally.add(make_case(), make_result(reply=Reply("x", cost_usd=0.5), answers=["YES"]))
    assert tally.summary().cost_usd == KnownTotal(1.25, 1)


def test_judge_tokens_are_counted_separately_from_reply_tokens() -> None:
    tally, reply = ResultTally(), Reply("x", Usage(10, 2), cost_usd=0.5)
    tally.add(make_case(), make_result(reply=reply, answers=["YES"], cost_usd=0.25, tokens=40))
    summary = tally.summary()
    assert (summary.input_tokens.value, summary.output_tokens.value) == (10, 2)
    assert summary.judge_tokens == KnownTotal(40, 0)
    assert summary.as_data()["judge_tokens"] == {"total": 40, "known": 40, "unknown": 0}
    tally.add(make_case(), make_result(reply=reply, answers=["YES"], cost_usd=0.25))
    assert tally.summary().judge_tokens == KnownTotal(40, 1)
    tally.add(make_case(), make_result(reply=reply, cost_usd=float("nan"), tokens=10**400))
    assert tally.summary().judge_tokens == KnownTotal(40, 2)


def test_the_cost_of_earlier_scorings_counts() -> None:
    tally = ResultTally()
    paid = {"cost_usd": 0.5, "tokens": 100}
    tally.add(make_case(), make_result(reply=Reply("x", cost_usd=1), cost_usd=0.25, tokens=40, other_scorings=paid))
    tally.add(make_case(), make_result(reply=Reply("x", cost_usd=1), other_scorings={"cost_usd": None, "tokens": 7}))
    summary = tally.summary()
    assert summary.cost_usd == KnownTotal(2.75, 1)
    assert (summary.judge_cost_usd, summary.judge_tokens) == (KnownTotal(0.75, 1), KnownTotal(147, 0))
    assert (summary.judged_again, summary.as_data()["judged_again"]) == (2, 2)


def test_a_pass_rate_with_several_judges_says_so() -> None:
    tally = ResultTally()
    for judge in ("a", "a", "b"):
        tally.add(make_case(), make_result(check="llm_judge", judge=judge))
    summary = tally.summary()
    assert summary.mixed_judges == ("llm_judge: 2 of 3 verdicts by a, 1 by b; uncalibrated",)
    data = summary.as_data()
    assert data["mixed_judges"] == list(summary.mixed_judges)
    assert [(each["judge"], each["verdicts"]) for each in data["judges"]] == [("a", 2), ("b", 1)]
    assert (summary.judge_names, data["judged_by"]) == (["a", "b"], None)


def test_a_single_judge_is_named() -> None:
    tally = ResultTally()
    tally.add(make_case(), make_result(check="llm_judge", judge="a"))
    summary = tally.summary()
    assert (summary.judge_names, summary.as_data()["judged_by"]) == (["a"], "Judged by a, uncalibrated.")


def test_cached_replies_are_counted_separately() -> None:
    tally = ResultTally()
    tally.add(make_case(), make_result(reply=Reply("x", Usage(5, 5), total_s=9, cost_usd=1, cached=True)))
    summary = tally.summary()
    assert (summary.cached, summary.overall.passed) == (1, 1)
    assert (summary.latency.count, summary.cost_usd, summary.input_tokens) == (0, KnownTotal(), KnownTotal())


def test_failure_reasons_are_grouped_ignoring_numbers() -> None:
    tally = ResultTally()
    for number in range(12):
        tally.add(make_case(), make_result(Outcome.ERRORED, case_id=f"a-{number}", reason=f"no answer in {number}.5 s"))
    tally.add(make_case(), make_result(Outcome.UNSCORED, case_id="b-1", reason="no judge"))
    tally.add(make_case(), make_result(Outcome.FAILED, reason="wrong"))
    errors, unscored = tally.summary().reasons
    assert (errors.outcome, errors.text, errors.count) == (Outcome.ERRORED, "no answer in 0.5 s", 12)
    assert errors.cases == tuple(f"a-{number}" for number in range(MAX_NAMED_CASES))
    assert errors.more
    assert (unscored.text, unscored.count, unscored.cases, unscored.more) == ("no judge", 1, ("b-1",), False)


def make_error(case_id: str, message: str) -> Result:
    return Result(ResultKey("sha256:1", "m"), case_id, None, Failure("provider_error", message), (), None, None)


def test_different_errors_of_a_function_are_never_merged() -> None:
    tally = ResultTally()
    for number, message in enumerate(["row 7 (a.py, line 3)", "row 8 (a.py, line 3)", "row 7 (a.py, line 3)"]):
        tally.add(make_case(), make_error(f"a-{number}", message))
    assert [(each.text, each.count, each.cases) for each in tally.summary().reasons] == [
        ("row 7 (a.py, line 3)", 2, ("a-0", "a-2")),
        ("row 8 (a.py, line 3)", 1, ("a-1",)),
    ]


def test_errors_that_differ_only_in_numbers_are_merged_after_the_first_few() -> None:
    tally = ResultTally()
    for number in range(3 * MAX_SIMILAR_MESSAGES):
        tally.add(make_case(), make_error(f"a-{number}", f"row {number} is bad"))
    tally.add(make_case(), make_error("a-0", "row 0 is bad"))
    reasons = tally.summary().reasons
    assert (reasons[0].text, reasons[0].count) == ("row … is bad", 2 * MAX_SIMILAR_MESSAGES)
    assert reasons[0].cases[0] == f"a-{MAX_SIMILAR_MESSAGES}"
    assert (reasons[1].text, reasons[1].count) == ("row 0 is bad", 2)
    assert {each.text for each in reasons[1:]} == {f"row {number} is bad" for number in range(MAX_SIMILAR_MESSAGES)}


def test_a_long_message_keeps_the_line_that_raised_it() -> None:
    tally = ResultTally()
    message = f"my_package.my_module:my_function raised ValueError: {'x' * 300} (my_module.py, line 12, in parse)"
    tally.add(make_case(), make_error("a-1", message))
    assert tally.summary().reasons[0].text == message


def test_the_number_of_distinct_reasons_is_bounded() -> None:
    tally = ResultTally()
    for number in range(3 * MAX_REASONS):
        words = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        tally.add(make_case(), make_result(Outcome.ERRORED, reason=f"odd {words} " + "x" * 10_000))
    reasons = tally.summary().reasons
    assert len(reasons) == MAX_REASONS + 1
    assert (reasons[0].text, reasons[0].count) == (OTHER_REASONS, 2 * MAX_REASONS)
    assert sum(each.count for each in reasons) == 3 * MAX_REASONS


def test_dropped_parameters_are_reported() -> None:
    tally = ResultTally()
    for _ in range(2):
        tally.add(make_case(), make_result(reply=Reply("x", dropped=("temperature",))))
    assert tally.summary().not_reproducible == (
        "m does not accept temperature: 2 requests sent without it, so another run may get other replies",
    )


def test_a_function_that_ignores_default_parameters_is_not_called_irreproducible() -> None:
    def find_irreproducible(provider: str, **parameters: Any) -> str:
        tally = ResultTally(providers={"m": provider}, parameters=parameters)
        tally.add(make_case(), make_result(reply=Reply("x", dropped=tuple(parameters))))
        return " ".join(tally.summary().not_reproducible)

    for own in ("python", "command"):
        assert find_irreproducible(own, temperature=0.0, seed=42) == ""
        assert "does not accept seed" in find_irreproducible(own, temperature=0.0, seed=7)
        assert "does not accept max_tokens: 1 request sent" in find_irreproducible(own, max_tokens=9)
    assert "does not accept seed" in find_irreproducible("openai", temperature=0.0, seed=42)


def test_the_reason_comes_from_the_deciding_check() -> None:
    checks = (
        Check("contains", "1", Outcome.PASSED, "found it"),
        Check("is_json", "1", Outcome.FAILED, "not JSON"),
        Check("judge", "1", Outcome.UNSCORED, "no judge"),
    )
    found = Result(ResultKey("sha256:1", "m"), "a-1", Reply("x"), None, checks, None, None)
    assert explain_outcome(found) == "not JSON"
    assert (
        explain_outcome(Result(ResultKey("sha256:1", "m"), "a-1", None, None, (), None, None))
        == "no reply, and no reason was recorded"
    )
    assert (
        explain_outcome(Result(ResultKey("sha256:1", "m"), "a-1", Reply("x"), None, (), None, None))
        == "no check applied to the reply"
    )


def test_the_summary_is_plain_data() -> None:
    tally = ResultTally()
    tally.add(make_case(tags=("x",)), make_result(reply=Reply("x", Usage(1, 2), first_token_s=0.1, total_s=0.5)))
    tally.add(make_case(), make_result(Outcome.ERRORED))
    data = tally.summary().as_data()
    assert json.loads(json.dumps(data)) == data
    assert data["overall"]["pass_rate"] == 1.0
    assert data["overall"]["interval"] == [pytest.approx(0.025), 1.0]
    assert data["cost_usd"] == {"total": None, "known": 0, "unknown": 1}
    assert data["by"]["tag"]["x"]["passed"] == 1
    assert data["reasons"] == [{"outcome": "errored", "reason": "because", "count": 1, "cases": ["a-1"]}]


def test_memory_does_not_grow_with_the_results() -> None:
    """Two arrays of eight bytes a result, and nothing else: the texts are not kept."""
    tally, text = ResultTally(), "x" * 2_000

    def count(results: int) -> int:
        for number in range(results):
            reply = Reply(f"{text}{number}", Usage(1, 1), first_token_s=0.1, total_s=0.5, cost_usd=0.1)
            tally.add(make_case(f"a-{number}"), make_result(Outcome.UNSCORED, case_id=f"a-{number}", reply=reply))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        few = count(1_000)
        many = count(9_000)
    finally:
        tracemalloc.stop()
    assert many - few < 9_000 * 20 + 50_000


def test_failures_are_kept_with_their_reasons_up_to_a_limit() -> None:
    tally = ResultTally()
    for number in range(3 * MAX_LISTED_FAILED_RESULTS):
        tally.add(make_case(), make_result(Outcome.FAILED, case_id=f"a-{number}", reason="x" * 10_000))
    tally.add(make_case(), make_result(Outcome.ERRORED))
    found = tally.summary().failures
    assert len(found) == MAX_LISTED_FAILED_RESULTS
    assert found[0] == FailedResult("a-0", "m", "text", 0, "x" * MAX_REASON_LENGTH)
    assert tally.summary().as_data()["failures"][1]["case"] == "a-1"


def test_a_row_counts_its_cases() -> None:
    """A case that was typed and spoken, of which only the call has a verdict, is one case and no half of one."""
    tally = ResultTally(repeats=2, variants=2)
    for variant, outcome in (("text", Outcome.SKIPPED), ("voice", Outcome.PASSED)):
        for repeat in range(2):
            check = Check("call", "1", outcome, "")
            key = ResultKey("sha256:1", "m", variant, repeat)
            tally.add(make_case(), Result(key, "a-1", Reply("x"), None, (check,), None, None))
    found = tally.summary()
    for rate in (
        found.overall,
        found.by["check"]["call"],
        found.by["variant"]["voice"],
        found.by["category"]["factual"],
    ):
        assert rate.interval == rate_interval(1, 1)


def test_a_case_with_all_variants_is_one_case() -> None:
    tally = ResultTally(models=2, variants=2)
    for model in "mn":
        for variant in ("text", "voice"):
            check = Check("contains", "1", Outcome.PASSED, "")
            tally.add(
                make_case(),
                Result(ResultKey("sha256:1", model, variant), "a-1", Reply("x"), None, (check,), None, None),
            )
    found = tally.summary()
    assert found.overall.interval == found.by["model"]["m"].interval == rate_interval(1, 1)
