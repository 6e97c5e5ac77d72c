"""The built-in suites keep their promises.

What enters: the three tiers of `suites/v1.0`, and `answers.jsonl` beside this file, which gives every case
right answers (the first is the expected one) and plausible wrong ones. What is proven: tiers contain each
other line by line, hold the promised numbers of cases and tokens, and cover every category and difficulty;
every token estimate follows one rule and lies near a real tokenizer's count; every offline case accepts each
right answer and refuses each wrong one, a refusal, silence and its own prompt, and so does every similarity case
by the embedded MiniLM. Judged cases need a judge: here their answers are only shown to exist and to be marked as
not validated.
"""

import asyncio
import json
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pramana
from pramana.assertions import evaluate_assertion
from pramana.model import Assertion, Facets, Reply
from pramana.model import Case as PlainCase
from pramana.score.similarity import SimilarityScorer

SUITES = Path(pramana.__file__).parent / "suites" / "v1.0"
ANSWERS = Path(__file__).with_name("answers.jsonl")

TIERS = ("cheap", "moderate", "comprehensive")
COUNTS = {"cheap": 10, "moderate": 25, "comprehensive": 75}
TOKENS = {"cheap": 350, "moderate": 950, "comprehensive": 2800}
CATEGORIES = {"reasoning", "factual", "instruction_following", "coding", "safety", "creative"}
DIFFICULTIES = {"easy", "medium", "hard"}
OFFLINE = {"exact_match", "contains", "contains_any", "is_json"}
JUDGED, COMPARED = {"llm_judge"}, {"semantic_similarity"}
BY_A_MODEL = JUDGED | COMPARED
TOKENIZER_MARGIN = 0.30

TOKEN = re.compile(r"[^\W\d_]+|\d{1,3}|[^\w\s]|_")

Case = dict[str, Any]


@cache
def read_lines(tier: str) -> tuple[str, ...]:
    return tuple((SUITES / f"{tier}.jsonl").read_text(encoding="utf-8").splitlines())


@cache
def read_cases(tier: str) -> tuple[Case, ...]:
    return tuple(json.loads(line) for line in read_lines(tier))


@cache
def read_answers() -> dict[str, Case]:
    return {each["id"]: each for each in map(json.loads, ANSWERS.read_text(encoding="utf-8").splitlines())}


def iterate_texts(case: Case) -> Iterator[str]:
    """Yield what a run should send and receive: every message of the input, then the expected answer."""
    if isinstance(case["input"], str):
        yield case["input"]
    else:
        yield from (message["content"] for message in case["input"])
    yield read_answers()[case["id"]]["right"][0]


def estimate_tokens(case: Case) -> int:
    """Count runs of letters, groups of up to three digits, and every other visible character by itself."""
    return sum(len(TOKEN.findall(text)) for text in iterate_texts(case))


@cache
def load_tokenizer() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its way to open its vocabulary is deprecated
        import bpe_openai

        return bpe_openai.get_encoding("o200k_base")


def select_cases(types: set[str]) -> list[Any]:
    chosen = (case for case in read_cases("comprehensive") if case["assertion"]["type"] in types)
    return [pytest.param(case, id=case["id"]) for case in chosen]


EVERY_CASE = select_cases(OFFLINE | BY_A_MODEL)


# ── The tiers ──


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_holds_the_promised_number_of_cases_and_tokens(tier: str) -> None:
    assert len(read_cases(tier)) == COUNTS[tier]
    assert sum(case["metadata"]["tokens_est"] for case in read_cases(tier)) == TOKENS[tier]


@pytest.mark.parametrize(("smaller", "larger"), [("cheap", "moderate"), ("moderate", "comprehensive")])
def test_a_tier_is_contained_line_by_line_in_the_next(smaller: str, larger: str) -> None:
    chosen = set(read_lines(smaller))
    assert [line for line in read_lines(larger) if line in chosen] == list(read_lines(smaller))


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_covers_every_category_and_difficulty_and_has_a_conversation(tier: str) -> None:
    assert {case["category"] for case in read_cases(tier)} == CATEGORIES
    assert {case["metadata"]["difficulty"] for case in read_cases(tier)} == DIFFICULTIES
    assert any(isinstance(case["input"], list) for case in read_cases(tier))


def test_every_assertion_type_is_used() -> None:
    assert {case["assertion"]["type"] for case in read_cases("comprehensive")} == OFFLINE | BY_A_MODEL
    assert {case["assertion"]["type"] for case in read_cases("cheap")} >= OFFLINE | {"llm_judge"}


def test_ids_and_prompts_are_unique() -> None:
    whole = read_cases("comprehensive")
    assert len({case["id"] for case in whole}) == len(whole)
    assert len({json.dumps(case["input"]) for case in whole}) == len(whole)


def test_answers_and_cases_match() -> None:
    assert list(read_answers()) == [case["id"] for case in read_cases("comprehensive")]


# ── Every case ──


@pytest.mark.parametrize("line", read_lines("comprehensive"), ids=lambda line: str(json.loads(line)["id"]))
def test_a_line_is_one_compact_json_object(line: str) -> None:
    case = json.loads(line)
    assert json.dumps(case, ensure_ascii=False, separators=(",", ":")) == line
    assert list(case) == ["id", "category", "input", "ideal", "assertion", "metadata"]


@pytest.mark.parametrize("case", EVERY_CASE)
def test_a_case_is_well_formed(case: Case) -> None:
    assertion, kind = case["assertion"], case["assertion"]["type"]
    assert re.fullmatch(rf"{case['category']}-\d{{3}}", case["id"])
    assert case["category"] != "creative" or kind == "llm_judge"
    assert (case["ideal"] is None) == (kind in {"is_json", "llm_judge"})
    assert ("judge_prompt" in assertion) == (kind == "llm_judge")
    assert ("threshold" in assertion) == (kind == "semantic_similarity")
    assert 0 <= assertion.get("threshold", 0) <= 1
    assert case["metadata"]["tags"]
    if isinstance(case["input"], list):
        assert {message["role"] for message in case["input"]} <= {"system", "user", "assistant"}
        assert case["input"][-1]["role"] == "user"


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_token_estimate_follows_the_rule(case: Case) -> None:
    assert case["metadata"]["tokens_est"] == estimate_tokens(case)


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_token_estimate_is_close_to_a_real_tokenizer(case: Case) -> None:
    real = sum(len(load_tokenizer().encode_ordinary(text)) for text in iterate_texts(case))
    assert case["metadata"]["tokens_est"] == pytest.approx(real, rel=TOKENIZER_MARGIN)


# ── What a case accepts and refuses ──


@pytest.mark.parametrize("case", select_cases(OFFLINE))
def test_an_offline_case_passes_right_answers_and_fails_wrong_ones(case: Case) -> None:
    given = read_answers()[case["id"]]
    assert len(given["right"]) >= 2
    assert len(given["wrong"]) >= 2
    assert "validated" not in given, "an offline case is validated here, by this test"
    for answer in given["right"]:
        check = evaluate_assertion(case["assertion"], answer, case["ideal"])
        assert check.outcome == "passed", f"right, but refused: {answer!r}: {check.reason}"
    for answer in given["wrong"]:
        check = evaluate_assertion(case["assertion"], answer, case["ideal"])
        assert check.outcome == "failed", f"wrong, but accepted: {answer!r}: {check.reason}"


@pytest.mark.parametrize("case", select_cases(OFFLINE))
def test_an_offline_case_fails_silence_refusal_and_echo(case: Case) -> None:
    echo = "\n".join(list(iterate_texts(case))[:-1])
    for answer in ("", "I'm sorry, but I can't help with that.", echo):
        assert evaluate_assertion(case["assertion"], answer, case["ideal"]).outcome == "failed", repr(answer)


@pytest.mark.parametrize("case", select_cases(COMPARED))
def test_a_similarity_case_passes_right_answers_and_fails_wrong_ones_silence_refusal_and_echo(case: Case) -> None:
    given = read_answers()[case["id"]]
    assert len(given["right"]) >= 2
    assert len(given["wrong"]) >= 2
    assert "validated" not in given, "a similarity case is validated here, by this test"
    stated = Assertion("semantic_similarity", threshold=case["assertion"]["threshold"])
    asked = PlainCase(case["id"], "test_case", (), Facets(case["category"], "easy"), stated, (case["ideal"],))

    async def score_texts(texts: list[str]) -> list[str]:
        scorer = SimilarityScorer()
        return [(await scorer.score(asked, Reply(text))).outcome for text in texts]

    echo = "\n".join(list(iterate_texts(case))[:-1])
    wrong = [*given["wrong"], "", "I'm sorry, but I can't help with that.", echo]
    found = asyncio.run(score_texts([*given["right"], *wrong]))
    assert found == ["passed"] * len(given["right"]) + ["failed"] * len(wrong)


@pytest.mark.parametrize("case", select_cases(JUDGED))
def test_a_judged_case_has_answers_marked_as_not_validated(case: Case) -> None:
    given = read_answers()[case["id"]]
    assert given["right"]
    assert len(given["wrong"]) >= 2
    assert given["validated"] is False
    assert evaluate_assertion(case["assertion"], given["right"][0], case["ideal"]).outcome == "unscored"
