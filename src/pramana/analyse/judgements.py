"""A judge's questions and responses: a case and its checks in; each check with its question and responses out.

The question is that of the case (a `judge_prompt`, or the expected outcome of a scenario), without the instructions
around it. For scorers only the responses are recorded, not the questions.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pramana.model import Assertion, Case, Check

JUDGE, RUBRIC = "llm_judge", "rubric"


class JudgedCheck(NamedTuple):
    """A check with the judge's question and responses."""

    check: Check
    judge_question: str | None
    """None where no judge is used, or where a scorer sends its own question."""
    judge_responses: Sequence[str]
    """More than one where the request to the judge was repeated."""

    @property
    def responses_missing_from_reason(self) -> list[str]:
        """The responses that the reason does not quote in full."""
        reason = " ".join(self.check.reason.split()).removesuffix('"')
        return [
            each for each in self.judge_responses if not each.strip() or not reason.endswith(" ".join(each.split()))
        ]


def list_judgements(case: Case, checks: Iterable[Check]) -> list[JudgedCheck]:
    """Return each check of a result with the judge's question and responses.

    >>> case = Case("a", "test_case", (), None, Assertion(JUDGE, judge_prompt="Is it polite?"))
    >>> check = Check(JUDGE, "1", "failed", "gpt-5 says NO: NO", evidence={"answers": ["NO"]})
    >>> judged = list_judgements(case, [check])[0]
    >>> judged.judge_question, judged.responses_missing_from_reason
    ('Is it polite?', [])
    """
    found, passed = [], Counter[object]()
    for check in checks:
        line = check.evidence.get("line")
        question = None
        if check.name in (JUDGE, RUBRIC):
            asked = _list_judge_questions(case, check.name, line)
            question = asked[min(passed[line, check.name], len(asked) - 1)] if asked else None
            passed[line, check.name] += 1
        given = check.evidence.get("answers")
        answers = [each for each in given if isinstance(each, str)] if isinstance(given, list | tuple) else []
        found.append(JudgedCheck(check, question, answers))
    return found


def _list_judge_questions(case: Case, check_name: str, line_index: object) -> list[str]:
    """Return the judge's questions for checks of one name, on one line of the script or on the whole reply."""
    stated: list[Assertion | None] = [case.assertion]
    if isinstance(line_index, int):
        stated = [each.assertion for each in case.script[line_index].expected] if line_index < len(case.script) else []
    if check_name == RUBRIC:
        return [case.expected_outcome or "" for each in stated if each is None]
    return [each.judge_prompt or "" for each in stated if each and each.type == JUDGE]
