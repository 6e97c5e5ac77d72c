"""Descriptions of the judges of a run: nothing for a single judge, one sentence for mixed ones."""

import pytest

from pramana.analyse.judges import MAX_SEPARATE_VERDICT_SOURCES, JudgeTally
from pramana.model import Check, Outcome


def make_check(by: str | None, *, version: str = "1", served: str | None = None, name: str = "llm_judge") -> Check:
    return Check(name, version, Outcome.FAILED, "because", evidence={"judge": by, "served_model": served})


def describe_mixed_judges(*verdicts: tuple[str, Check]) -> tuple[str, ...]:
    judges = JudgeTally(lambda typed: typed.removeprefix("openai:"))
    for model, check in verdicts:
        judges.add(model, check)
    return judges.mixed_judge_sentences()


OFFLINE = Check("contains", "1", Outcome.PASSED, "because")


@pytest.mark.parametrize(
    "verdicts",
    [
        [],
        [("m", OFFLINE), ("m", make_check("gpt-5"))],
        [("m", make_check("gpt-5"))] * 3,
        [("m", make_check("gpt-5")), ("m", make_check("openai:gpt-5"))],  # typed in two ways
        [("m", make_check("m")), ("n", make_check("n"))],  # each model judges itself
        [("openai:m", make_check("m")), ("n", make_check("n"))],
        [("m", make_check("m")), ("n", make_check("m"))],  # one judge for all, and one of them
        [("m", make_check("gpt-5", served="a")), ("m", make_check("gpt-5"))],  # the served model is not always recorded
        [("m", make_check(None)), ("n", make_check(None))],
    ],
)
def test_a_single_judge_needs_no_sentence(verdicts: list[tuple[str, Check]]) -> None:
    assert describe_mixed_judges(*verdicts) == ()


RUBRIC = make_check("opus", name="rubric")


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        ([], ""),
        ([("m", OFFLINE)], ""),
        ([("m", make_check(None))], ""),
        ([("m", OFFLINE), ("m", make_check("openai:gpt-5"))], "Judged by gpt-5, uncalibrated."),
        ([("m", make_check("m"))], "Judged by its own model, uncalibrated."),
        ([("openai:m", make_check("m")), ("n", make_check("n"))], "Judged by each model itself, uncalibrated."),
        ([("m", make_check("m")), ("n", make_check("m"))], "Judged by m, uncalibrated."),
        ([("m", OFFLINE), ("n", make_check("n"))], "Judged by n, uncalibrated."),  # the other one has no such verdict
        ([("m", make_check("opus")), ("m", RUBRIC)], "Judged by opus, uncalibrated."),
        (
            [("m", make_check("gpt-5")), ("m", RUBRIC)],
            "Judged by gpt-5, uncalibrated (llm_judge); opus, uncalibrated (rubric).",
        ),
        ([("m", make_check("gpt-5")), ("m", make_check("m"))], ""),  # one sentence for the mixture
        ([("m", make_check("gpt-5")), ("m", make_check("m")), ("m", RUBRIC)], "Judged by opus, uncalibrated (rubric)."),
        ([("m", make_check("x" * 100))], f"Judged by {'x' * 79}…, uncalibrated."),
    ],
)
def test_mixed_judges_are_described_in_one_sentence(verdicts: list[tuple[str, Check]], sentence: str) -> None:
    for each in (verdicts, verdicts[::-1]):
        judges = JudgeTally(lambda typed: typed.removeprefix("openai:"))
        for model, check in each:
            judges.add(model, check)
        assert judges.judge_sentence() == sentence


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        (
            [("m", make_check("gpt-5"))] * 7 + [("m", make_check("m"))] * 3,
            "llm_judge: 7 of 10 verdicts by gpt-5, 3 by m; uncalibrated",
        ),
        (
            [
                ("m", make_check("gpt-5")),
                ("n", make_check("gpt-5")),
                ("m", make_check("m")),
                ("n", make_check("n")),
                ("n", make_check("n")),
            ],
            "llm_judge: 3 of 5 verdicts by each model itself, 2 by gpt-5; uncalibrated",
        ),
        (  # each model has one judge, and yet they are not alike
            [("m", make_check("gpt-5")), ("m", make_check("gpt-5")), ("n", make_check("n"))],
            "llm_judge: 2 of 3 verdicts by gpt-5, 1 by each model itself; uncalibrated",
        ),
        (
            [("m", make_check("gpt-5", version="1 ab"))] * 2 + [("m", make_check("gpt-5", version="1 cd"))],
            "llm_judge: 2 of 3 verdicts by gpt-5 (version 1 ab), 1 by gpt-5 (version 1 cd); uncalibrated",
        ),
        (
            [("m", make_check("gpt-5", served="gpt-5-08"))] * 2 + [("m", make_check("gpt-5", served="gpt-5-11"))],
            "llm_judge: 2 of 3 verdicts by gpt-5 (gpt-5-08), 1 by gpt-5 (gpt-5-11); uncalibrated",
        ),
        (
            [("m", make_check(None, version="1 mini", name="semantic_similarity"))] * 2
            + [("m", make_check(None, version="1 large", name="semantic_similarity"))],
            "semantic_similarity: 2 of 3 verdicts by version 1 mini, 1 by version 1 large",
        ),
    ],
)
def test_mixed_judges_are_described_with_their_counts(verdicts: list[tuple[str, Check]], sentence: str) -> None:
    assert describe_mixed_judges(*verdicts) == (sentence,)
    assert describe_mixed_judges(*reversed(verdicts)) == (sentence,)


def test_checks_without_a_verdict_have_no_judge() -> None:
    unscored = Check("llm_judge", "2", Outcome.UNSCORED, "no judge", evidence={"judge": "other"})
    assert describe_mixed_judges(("m", make_check("gpt-5")), ("m", unscored)) == ()


def test_many_judges_with_long_names_fit_one_short_sentence() -> None:
    verdicts = [("m", make_check(f"{number} {'x' * 10_000}")) for number in range(2 * MAX_SEPARATE_VERDICT_SOURCES)]
    (sentence,) = describe_mixed_judges(*verdicts)
    assert sentence.endswith(f", {MAX_SEPARATE_VERDICT_SOURCES - 5:,} by other judges; uncalibrated")
    assert len(sentence) < 1_000


def test_every_judge_is_counted() -> None:
    judges = JudgeTally()
    for model, check in [("m", make_check("b")), ("n", make_check("b")), ("m", make_check("a")), ("m", OFFLINE)]:
        judges.add(model, check)
    found = [(each.source.check, each.source.by, each.count) for each in judges.count_verdicts()]
    assert found == [("contains", "", 1), ("llm_judge", "b", 2), ("llm_judge", "a", 1)]
