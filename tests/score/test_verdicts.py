"""Answers of judges as real models write them: clear, empty and ambiguous ones."""

import json

import pytest

from pramana.score.verdicts import get_text_before_verdict, parse_ratings, parse_verdict

OBJECT = {"completed": "yes", "accuracy": 9, "helpfulness": 8, "naturalness": 7, "efficiency": 6}
PRETTY = json.dumps({**OBJECT, "reasons": {"accuracy": "It fits {exactly}."}}, indent=2)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("It is a haiku.\nVerdict: YES", True),
        ("It is none.\nAnswer: no.", False),
        ("It is one.\n**Verdict:** YES", True),
        ("It is one.\n**Verdict**: Yes", True),
        ("It is one.\n**Verdict: YES**", True),
        ("It is one.\n\n### Final verdict: YES\n", True),
        ("It is none.\n- Final answer: NO", False),
        ("My verdict: NO", False),
        ("Judgement: YES.", True),
        ("Judgment: yes!", True),
        ("Criterion met: YES", True),
        ("Decision : no", False),
        ('Fine.\n{"verdict": "YES"}', True),
        ('Fine.\n```json\n{"verdict": "no"}\n```', False),
        ('{\n  "reason": "It names Paris.",\n  "passed": true\n}', True),
        ('{"evidence": "none", "criterion_met": false}', False),
        ('The output says "Answer: no idea".\nYES', True),
        ("Result: No element is missing.\nYES", True),
        ("Answer: No\nThat is a quotation of the output.\nYES", True),
    ],
)
def test_a_verdict_with_a_label_or_in_json_is_read(answer: str, expected: bool) -> None:
    assert parse_verdict(answer) is expected


@pytest.mark.parametrize(
    "answer",
    [
        "Verdict: YES and NO",
        "Verdict: YES or NO",
        "Verdict: YES/NO",
        "Verdict: NO\nOn second thoughts:\nVerdict: YES",
        "Verdict: NO, it lacks a line.\nYES",
        "Final answer: YES.\nNO",
        "**Verdict:** NO\n\nYES",
        'Verdict: NO\n{"verdict": "YES"}',
        '{"passed": true, "completed": false}',
        '{"verdict": "YES", "passed": false}',
        '{"verdict": "NO"}\n{"verdict": "YES"}',
        '{"verdict": "YES", "verdict": "NO"}',
        '{"verdict": "MAYBE"}',
        '{"verdict": 1}',
        '{"verdict": null}',
        '{"score": 9}',
        '[{"verdict": "YES"}]',
        '{"verdict": "YES"} and so on',
        "Verdict: **YES",
        'Verdict: "YES"',
        "Verdict: YES, mostly",
        "Verdict: YES?",
        "The verdict is YES",
        "Verdict:\nperhaps",
        "> Verdict of somebody: YES",
        "{" * 10_000 + "}",
    ],
)
def test_an_ambiguous_or_empty_verdict_is_not_read(answer: str) -> None:
    assert parse_verdict(answer) is None


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps(OBJECT),
        f"It asks for the height.\n{json.dumps(OBJECT)}",
        PRETTY,
        f"It asks for the height.\n\n{PRETTY}\n",
        f"It asks.\n```json\n{PRETTY}\n```",
        f"It asks.\n```\n{json.dumps(OBJECT)}\n```\n\n",
        f"The reply has {{braces}} and {{more}}.\n{PRETTY}",
        json.dumps({**OBJECT, "completed": True}),
        json.dumps({**{name: value for name, value in OBJECT.items() if name != "completed"}, "passed": True}),
        json.dumps({**OBJECT, "passed": True}),
        json.dumps({**OBJECT, "completed": "Yes"}),
        f'The form is {{"completed": "yes" or "no", "accuracy": 1-10}}.\n{json.dumps(OBJECT)}',
        json.dumps({"quoted": '{"each": {}}, ' * 100, **OBJECT}),
    ],
)
def test_ratings_on_one_line_pretty_printed_or_fenced_are_read(answer: str) -> None:
    found = parse_ratings(answer)
    assert found is not None
    assert (found["completed"], found["accuracy"], found["efficiency"]) == ("yes", 9, 6)


@pytest.mark.parametrize("value", [False, "no", "NO"])
def test_an_uncompleted_task_is_read(value: object) -> None:
    found = parse_ratings(json.dumps({**OBJECT, "completed": value}, indent=4))
    assert found is not None
    assert found["completed"] == "no"


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps({**OBJECT, "passed": False}),
        json.dumps({**OBJECT, "completed": "yes and no"}),
        json.dumps({**OBJECT, "completed": 1}),
        json.dumps({**OBJECT, "completed": None}),
        json.dumps({**OBJECT, "accuracy": True}),
        json.dumps({**OBJECT, "accuracy": "9"}),
        json.dumps({**OBJECT, "accuracy": 0}),
        json.dumps({"result": OBJECT}),
        json.dumps([OBJECT]),
        f"{PRETTY}\nThat is all.",
        f"{json.dumps({**OBJECT, 'completed': 'no'})}\nNo, rather:\n{json.dumps(OBJECT)}",
        PRETTY.replace("9", "NaN"),
        PRETTY[:-2],
        "```json\n```",
    ],
)
def test_ambiguous_or_empty_ratings_are_not_read(answer: str) -> None:
    assert parse_ratings(answer) is None


def test_the_evidence_is_the_text_before_the_json_object() -> None:
    assert get_text_before_verdict(f"It asks.\n```json\n{PRETTY}\n```") == "It asks."
    assert get_text_before_verdict(f"It asks.\n{json.dumps(OBJECT)}") == "It asks."
    assert get_text_before_verdict("It asks.") == "It asks."
