"""Parses a judge's answer: its text in; YES, NO or ratings out, or None if it is unclear.

The verdict is at the very end: a last line `YES`, a last line with a label (`Verdict: YES`, `Answer: no.`), or a JSON
object, on one line or pretty-printed, in a Markdown fence or not. An answer that contains both verdicts is unreadable:
the judge is called once more, and nothing is guessed. Nothing here calls a model.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from pramana.jsonl import BadJson, parse_line

RUBRIC_SCORE_NAMES: Final = ("accuracy", "helpfulness", "naturalness", "efficiency")
RATINGS_FORMAT: Final = (
    'a last line {"completed": "yes" or "no", "accuracy": 1-10, "helpfulness": 1-10, "naturalness": 1-10, '
    '"efficiency": 1-10}'
)
"""The readable form of ratings, in words."""
DECISION_FORMAT: Final = 'a last line YES or NO, or {"completed": true or false}'
"""The readable form of a decision without ratings, in words."""

_VERDICT_RE = re.compile(
    r"(?P<mark>\*{0,3}|_{0,3})(?P<word>YES|NO)(?:\.?(?P=mark)|(?P=mark)\.)", re.ASCII | re.IGNORECASE
)
_VERDICT_LABELS = r"verdict|judge?ment|decision|final answer"
"""Labels that introduce a judge's own verdict; other labels may be quoted from the judged output."""
_VERDICT_OR_ANSWER_LABELS = rf"{_VERDICT_LABELS}|answer|result|conclusion|criterion met"
_ADJECTIVES = r"(?:(?:my|the|final|overall) ){0,2}"
_RE_FLAGS = re.ASCII | re.IGNORECASE
_LABELLED_VERDICT_RE = re.compile(rf"{_ADJECTIVES}(?:{_VERDICT_OR_ANSWER_LABELS}) ?: ?(?P<word>YES|NO)[.!]?", _RE_FLAGS)
_VERDICT_CLAIM_RE = re.compile(rf"{_ADJECTIVES}(?:{_VERDICT_LABELS}) ?: ?(?P<word>YES|NO)(?:[.,;:!]|$)", _RE_FLAGS)
_BULLET_RE = re.compile(r"(?:[-*+]|#{1,6}) +")
_EMPHASIS_RE = re.compile(r"\*+|_+")
_OPENING_FENCE_RE = re.compile(r"```[a-zA-Z]{0,20}\Z")
_JSON_VERDICT_CLAIM_RE = re.compile(
    r'"(?P<key>[a-z_]{1,20})"\s{0,9}:\s{0,9}"?(?P<word>yes|no|true|false)"?\s{0,9}[,}]', re.ASCII | re.IGNORECASE
)
_VERDICT_KEYS = ("verdict", "answer", "passed", "completed", "criterion_met")
_COMPLETED_KEYS = ("completed", "passed")
_MAX_BRACES = 32
"""Maximum number of opening braces tried from the end, after the very first: an object may quote a reply with many."""


def parse_verdict(judge_answer: str) -> bool | None:
    """Parse the end of an answer: True for YES, False for NO, None for anything else.

    The word may be emphasised and end in a full stop. In quotation marks it is a quotation, not a verdict.

    >>> *map(parse_verdict, ("It says so.\\n**YES**", "Verdict: no.", "YES, because", 'It says:\\n"YES"')),
    (True, False, None, None)
    """
    lines = [line.strip() for line in re.split(r"[\r\n]", judge_answer) if line.strip()]
    if not lines:
        return None
    found = _VERDICT_RE.fullmatch(lines[-1]) or _LABELLED_VERDICT_RE.fullmatch(_strip_markup(lines[-1]))
    if found:
        decided: bool | None = _is_yes(found["word"])
    elif closing := _find_final_object(judge_answer):
        decided = _parse_decision(closing.value, _VERDICT_KEYS, closing.text_before)
    else:
        return None
    claims = {_is_yes(claim["word"]) for line in lines if (claim := _VERDICT_CLAIM_RE.match(_strip_markup(line)))}
    return None if decided is None or claims - {decided} else decided


def parse_ratings(judge_answer: str, required_ratings: Collection[str] = RUBRIC_SCORE_NAMES) -> dict[str, Any] | None:
    """Parse the object at the end of an answer as ratings, with `completed` as "yes" or "no"; None for anything else.

    Unreadable: values that JSON has no number for, a duplicate key, and a `completed` that contradicts `passed`. Where
    no rating is required, a verdict alone is enough.

    >>> parse_ratings('{"completed": "yes", "accuracy": 11}') is None
    True
    >>> parse_ratings('{"completed": "yes"}', ()), parse_ratings("It asks.\\nNO", ())
    ({'completed': 'yes'}, {'completed': 'no'})
    """
    closing = _find_final_object(judge_answer)
    if closing is None and required_ratings:
        return None
    value = closing.value if closing else {}
    done = _parse_decision(value, _COMPLETED_KEYS, closing.text_before) if closing else parse_verdict(judge_answer)
    valid = all(
        type(value.get(name)) is int and 1 <= value[name] <= 10
        for name in RUBRIC_SCORE_NAMES
        if name in required_ratings or name in value
    )
    return {**value, "completed": "yes" if done else "no"} if valid and done is not None else None


def get_text_before_verdict(judge_answer: str) -> str:
    """Return the text before the verdict at the end of an answer, which is a JSON object or a line YES or NO.

    >>> get_text_before_verdict('It asks.\\n```json\\n{"completed": true}\\n```')
    'It asks.'
    """
    if closing := _find_final_object(judge_answer):
        return closing.text_before
    before, _, last = judge_answer.strip().rpartition("\n")
    return judge_answer if parse_verdict(last) is None else before


class _FinalObject(NamedTuple):
    """The object at the end of an answer."""

    value: dict[str, Any]
    text_before: str


def _find_final_object(answer: str) -> _FinalObject | None:
    """Return the outermost JSON object at the end of an answer."""
    text = answer.rstrip().removesuffix("```").rstrip()
    if not text.endswith("}"):
        return None
    starts = [found.start() for found in re.finditer(r"\{", text)]
    for start in (*starts[:1], *starts[1:][-_MAX_BRACES:]):
        try:
            value = parse_line(text[start:])
        except BadJson:
            continue
        before = _OPENING_FENCE_RE.sub("", text[:start].rstrip()).rstrip()
        return _FinalObject(value, before) if isinstance(value, dict) else None
    return None


def _parse_decision(value: Mapping[str, Any], keys: tuple[str, ...], text_before: str) -> bool | None:
    """Return the verdict of an object under these keys; None if they, or the text before it, disagree."""
    claims = {_parse_yes_or_no(value[key]) for key in keys if key in value}
    if len(claims) != 1 or None in claims:
        return None
    earlier = {
        _is_yes(found["word"]) for found in _JSON_VERDICT_CLAIM_RE.finditer(text_before) if found["key"].lower() in keys
    }
    return None if earlier - claims else claims.pop()


def _parse_yes_or_no(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return _is_yes(value) if isinstance(value, str) and value.strip().lower() in ("yes", "no") else None


def _is_yes(word: str) -> bool:
    return word.strip().lower() in ("yes", "true")


def _strip_markup(line: str) -> str:
    """Return a line of Markdown without its bullet and its emphasis; unpaired marks stay."""
    text = _BULLET_RE.sub("", line, count=1) if _BULLET_RE.match(line) else line
    marks = Counter(_EMPHASIS_RE.findall(text))
    return text if any(count % 2 for count in marks.values()) else _EMPHASIS_RE.sub("", text)
