"""Written files round-trip: scenarios through YAML, test cases through JSON.

No text may change on the way. A text that YAML cannot hold must be refused aloud, by the model or by the writer, and
never be altered in silence.
"""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from pramana.errors import InvalidInput
from pramana.load.problems import Problems
from pramana.load.scenario import Scenario, format_scenarios, parse_scenarios
from pramana.load.suite import TestCase

from ..examples import examples

TRICKY = (
    *(
        "null",
        "Null",
        "~",
        "yes",
        "no",
        "on",
        "true",
        "1.0",
        "010",
        "0x1F",
        "1e3",
        ".inf",
        "2024-01-01",
        "=",
        "<<",
        "-",
    ),
    *("a: b", "a:", ": b", "#", "a #b", "# b", "- a", "? a", "! a", "& a", "* a", "| a", "> a", "% a", "@ a", "` a"),
    *(
        '"',
        "'",
        "''",
        '"a"',
        "'a'",
        "\\",
        "\\n",
        "\\u0041",
        "[a",
        "{a",
        "a]",
        "a, b",
        "---",
        "--- a",
        "...",
        "a\n---\nb",
    ),
    *(
        " a",
        "a ",
        "  a  ",
        "\ta",
        "a\t",
        "a\tb",
        "\na",
        "a\n",
        "a\n\n",
        "\n\na",
        "a\n b",
        "a\n  b\nc",
        "a \nb",
        "a\n\tb",
    ),
    *(
        "a\rb",
        "a\r\nb",
        "a\r",
        "a\x00b",
        "\x1b[31m",
        "\x7f",
        "\ufeffa",
        "a\ufeffb",
        "\uffff",
        "\ufffe",
        "\ue000",
        "\ufffd",
    ),
    *("a\x85b", "\x85a", "a\x85", "a\u2028b", "\u2028a", "a\u2028", "a\u2029b", "a\u2028\u2029 b", "\ue000\x85"),
    *(
        "x " * 90,
        "x" * 200,
        "word  " * 40,
        "é " * 90,
        "😀 " * 60,
        "日本語" * 50,
        "مرحبا بك " * 20,
        "नमस्ते",
        "e\u0301",
        "👩‍🚀",
    ),
)
# A few characters are drawn far more often than by chance: those on which writers of YAML stumble.
characters = st.characters(exclude_categories=["Cs"]) | st.sampled_from(
    " \n\t\r:#-'\"\\\x85\u2028\u2029\ufeff\ue000\x00ab"
)
pieces = st.sampled_from(TRICKY) | st.text(characters, max_size=12)
texts = st.lists(pieces, min_size=1, max_size=4).map("".join).filter(str.strip)
ids = st.text("abcxyz019-", min_size=1, max_size=12) | st.sampled_from(
    ("no", "on", "1", "1-0", "-", "---", "null", "1e3")
)
urls = st.none() | st.sampled_from(
    ("/a b.wav", "~", "null", "a.wav", "C:\\a.wav", "https://example.org/é?x=1#y", "#a", "- a.wav")
)

scenarios = st.builds(
    Scenario,
    id=ids,
    name=texts.map(lambda text: text[:255]).filter(str.strip),
    type=st.sampled_from(("task-completion", "information-retrieval", "conversation-flow")),
    prompt=texts,
    expected_outcome=texts,
    prompt_audio_url=urls,
    tags=st.lists(texts, max_size=3).map(tuple),
    language=st.sampled_from(("en", "no", "pt-BR", "~~", "null", "1.0", "y: ", "a\u2028", "on")),
    difficulty=st.sampled_from(("easy", "medium", "hard")),
)


def make_scenario(prompt: str) -> Scenario:
    return Scenario(id="a", name="n", type="task-completion", prompt=prompt, expected_outcome="o")


def read_back(written: str) -> list[Scenario]:
    problems = Problems()
    located = parse_scenarios(written, problems)
    assert list(problems) == []
    return [each.scenario for each in located]


@given(st.lists(scenarios, min_size=1, max_size=3, unique_by=lambda each: each.id))
@examples(500)
def test_scenarios_round_trip(given_: list[Scenario]) -> None:
    written = format_scenarios(given_)
    assert read_back(written) == given_
    assert format_scenarios(read_back(written)) == written


@given(texts)
@examples(1_000)
@example("a\u2028b")
@example("a\u2029")
@example("\x85a")
@example("a\x00b")
def test_text_round_trips_through_yaml(text: str) -> None:
    [scenario] = read_back(format_scenarios([make_scenario(text)]))
    assert scenario.prompt == text


def test_every_character_of_the_basic_plane_round_trips() -> None:
    every = [chr(code) for code in range(0x10000) if not 0xD800 <= code <= 0xDFFF]
    changed = []
    for start in range(0, len(every), 256):
        group = "".join(f"<{each}>" for each in every[start : start + 256])
        [scenario] = read_back(format_scenarios([make_scenario(group)]))
        if scenario.prompt != group:
            changed += [each for each in every[start : start + 256] if f"<{each}>" not in scenario.prompt]
    assert [f"U+{ord(each):04X}" for each in changed] == []


@pytest.mark.parametrize("half", ["\ud800", "a\udfffb", "\ude00\ud83d"])
def test_lone_surrogates_are_refused_with_our_message(half: str) -> None:
    with pytest.raises((ValidationError, InvalidInput), match="surrogate"):
        format_scenarios([make_scenario(half)])


# ── Test cases ──

json_texts = (
    st.lists(st.sampled_from(TRICKY) | st.text(max_size=8), min_size=1, max_size=3).map("".join).filter(str.strip)
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
test_case_objects = st.fixed_dictionaries(
    {
        "id": json_texts,
        "category": st.sampled_from(("reasoning", "factual", "instruction_following", "coding", "safety", "creative")),
        "input": json_texts
        | st.lists(
            st.fixed_dictionaries({"role": st.sampled_from(("system", "user", "assistant")), "content": json_texts}),
            min_size=1,
            max_size=3,
        ),
        "assertion": st.fixed_dictionaries(
            {
                "type": st.sampled_from(
                    ("exact_match", "contains", "contains_any", "is_json", "llm_judge", "json_schema")
                )
            },
            optional={
                "case_sensitive": st.booleans(),
                "threshold": st.none() | st.floats(0, 1) | st.integers(0, 1),
                "judge_prompt": st.none() | st.text(max_size=8),
                "schema": json_values,
            },
        ),
        "metadata": st.fixed_dictionaries(
            {"difficulty": st.sampled_from(("easy", "medium", "hard")), "tokens_est": st.integers(0, 10**6)},
            optional={"tags": st.lists(json_texts, max_size=3)},
        ),
    },
    optional={"ideal": st.none() | json_texts | st.lists(json_texts, min_size=1, max_size=3)},
)


@given(test_case_objects, st.booleans())
@examples(500)
def test_test_cases_round_trip(value: dict[str, Any], ascii_only: bool) -> None:
    case = TestCase.model_validate(json.loads(json.dumps(value, ensure_ascii=ascii_only)))
    dumped = json.loads(json.dumps(case.model_dump(by_alias=True), ensure_ascii=ascii_only))
    assert TestCase.model_validate(dumped) == case
    for key, stated in value.items():
        kept = dumped[key]
        assert {**kept, **stated} == kept if isinstance(stated, dict) else stated == kept
