"""Who gave the verdicts: nothing is said where all are alike, and one sentence where a run was judged again in part."""

import pytest

from pramana.analyse.judges import MAX_KINDS, JudgeTally
from pramana.model import Check, Outcome


def judged(by: str | None, *, version: str = "1", served: str | None = None, name: str = "llm_judge") -> Check:
    return Check(name, version, Outcome.FAILED, "because", evidence={"judge": by, "served_model": served})


def mixed(*verdicts: tuple[str, Check]) -> tuple[str, ...]:
    judges = JudgeTally(lambda typed: typed.removeprefix("openai:"))
    for model, check in verdicts:
        judges.add(model, check)
    return judges.mixed_judge_sentences()


OFFLINE = Check("contains", "1", Outcome.PASSED, "because")


@pytest.mark.parametrize(
    "verdicts",
    [
        [],
        [("m", OFFLINE), ("m", judged("gpt-5"))],
        [("m", judged("gpt-5"))] * 3,
        [("m", judged("gpt-5")), ("m", judged("openai:gpt-5"))],  # typed in two ways
        [("m", judged("m")), ("n", judged("n"))],  # each model judges itself
        [("openai:m", judged("m")), ("n", judged("n"))],
        [("m", judged("m")), ("n", judged("m"))],  # one judge for all, and one of them
        [("m", judged("gpt-5", served="a")), ("m", judged("gpt-5"))],  # who served is not always said
        [("m", judged(None)), ("n", judged(None))],
    ],
)
def test_where_all_are_alike_nothing_is_said(verdicts: list[tuple[str, Check]]) -> None:
    assert mixed(*verdicts) == ()


RUBRIC = judged("opus", name="rubric")


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        ([], ""),
        ([("m", OFFLINE)], ""),
        ([("m", judged(None))], ""),
        ([("m", OFFLINE), ("m", judged("openai:gpt-5"))], "Judged by gpt-5."),
        ([("m", judged("m"))], "Judged by its own model."),
        ([("openai:m", judged("m")), ("n", judged("n"))], "Judged by each model itself."),
        ([("m", judged("m")), ("n", judged("m"))], "Judged by m."),
        ([("m", OFFLINE), ("n", judged("n"))], "Judged by n."),  # the other one has no such verdict
        ([("m", judged("opus")), ("m", RUBRIC)], "Judged by opus."),
        ([("m", judged("gpt-5")), ("m", RUBRIC)], "Judged by gpt-5 (llm_judge), opus (rubric)."),
        ([("m", judged("gpt-5")), ("m", judged("m"))], ""),  # a mixture is said as one
        ([("m", judged("gpt-5")), ("m", judged("m")), ("m", RUBRIC)], "Judged by opus (rubric)."),
        ([("m", judged("x" * 100))], f"Judged by {'x' * 79}…."),
    ],
)
def test_who_judged_is_said_in_one_sentence(verdicts: list[tuple[str, Check]], sentence: str) -> None:
    for each in (verdicts, verdicts[::-1]):
        judges = JudgeTally(lambda typed: typed.removeprefix("openai:"))
        for model, check in each:
            judges.add(model, check)
        assert judges.judge_sentence() == sentence


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        (
            [("m", judged("gpt-5"))] * 7 + [("m", judged("m"))] * 3,
            "llm_judge: 7 of 10 verdicts by gpt-5, 3 by m",
        ),
        (
            [
                ("m", judged("gpt-5")),
                ("n", judged("gpt-5")),
                ("m", judged("m")),
                ("n", judged("n")),
                ("n", judged("n")),
            ],
            "llm_judge: 3 of 5 verdicts by each model itself, 2 by gpt-5",
        ),
        (  # each model has one judge, and yet they are not alike
            [("m", judged("gpt-5")), ("m", judged("gpt-5")), ("n", judged("n"))],
            "llm_judge: 2 of 3 verdicts by gpt-5, 1 by each model itself",
        ),
        (
            [("m", judged("gpt-5", version="1 ab"))] * 2 + [("m", judged("gpt-5", version="1 cd"))],
            "llm_judge: 2 of 3 verdicts by gpt-5 (version 1 ab), 1 by gpt-5 (version 1 cd)",
        ),
        (
            [("m", judged("gpt-5", served="gpt-5-08"))] * 2 + [("m", judged("gpt-5", served="gpt-5-11"))],
            "llm_judge: 2 of 3 verdicts by gpt-5 (gpt-5-08), 1 by gpt-5 (gpt-5-11)",
        ),
        (
            [("m", judged(None, version="1 mini", name="semantic_similarity"))] * 2
            + [("m", judged(None, version="1 large", name="semantic_similarity"))],
            "semantic_similarity: 2 of 3 verdicts by version 1 mini, 1 by version 1 large",
        ),
    ],
)
def test_a_mixture_is_said_with_its_parts(verdicts: list[tuple[str, Check]], sentence: str) -> None:
    assert mixed(*verdicts) == (sentence,)
    assert mixed(*reversed(verdicts)) == (sentence,)


def test_what_is_no_verdict_has_no_judge() -> None:
    unscored = Check("llm_judge", "2", Outcome.UNSCORED, "no judge", evidence={"judge": "other"})
    assert mixed(("m", judged("gpt-5")), ("m", unscored)) == ()


def test_many_judges_with_long_names_stay_one_short_sentence() -> None:
    verdicts = [("m", judged(f"{number} {'x' * 10_000}")) for number in range(2 * MAX_KINDS)]
    (sentence,) = mixed(*verdicts)
    assert sentence.endswith(f", {MAX_KINDS - 5:,} by other judges")
    assert len(sentence) < 1_000


def test_every_judge_is_counted() -> None:
    judges = JudgeTally()
    for model, check in [("m", judged("b")), ("n", judged("b")), ("m", judged("a")), ("m", OFFLINE)]:
        judges.add(model, check)
    found = [(each.judged.check, each.judged.by, each.count) for each in judges.verdicts()]
    assert found == [("contains", "", 1), ("llm_judge", "b", 2), ("llm_judge", "a", 1)]
