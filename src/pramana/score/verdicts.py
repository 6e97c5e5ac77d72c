"""Parses a judge's answer: its text in; YES, NO or ratings out, or None if it is unclear.

The verdict is at the very end: a last line `YES`, a last line with a label (`Verdict: YES`, `Answer: no.`), or a JSON
object, on one line or pretty-printed, in a Markdown fence or not. An answer that contains both verdicts is unreadable:
the judge is called once more, and nothing is guessed. Nothing here calls a model.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from pramana.jsonl import BadLine, parse_line

SCORES: Final = ("accuracy", "helpfulness", "naturalness", "efficiency")
RATINGS: Final = (
    'a last line {"completed": "yes" or "no", "accuracy": 1-10, "helpfulness": 1-10, "naturalness": 1-10, '
    '"efficiency": 1-10}'
)
"""The readable form of ratings, in words."""
DECISION: Final = 'a last line YES or NO, or {"completed": true or false}'
"""The readable form of a decision without ratings, in words."""

_VERDICT = re.compile(r"(?P<mark>\*{0,3}|_{0,3})(?P<word>YES|NO)(?:\.?(?P=mark)|(?P=mark)\.)", re.ASCII | re.IGNORECASE)
_JUDGES_OWN = r"verdict|judge?ment|decision|final answer"
"""Labels that introduce a judge's own verdict; other labels may be quoted from the judged output."""
_ANY_LABEL = rf"{_JUDGES_OWN}|answer|result|conclusion|criterion met"
_ADJECTIVES = r"(?:(?:my|the|final|overall) ){0,2}"
_FLAGS = re.ASCII | re.IGNORECASE
_LABELLED = re.compile(rf"{_ADJECTIVES}(?:{_ANY_LABEL}) ?: ?(?P<word>YES|NO)[.!]?", _FLAGS)
_CLAIM = re.compile(rf"{_ADJECTIVES}(?:{_JUDGES_OWN}) ?: ?(?P<word>YES|NO)(?:[.,;:!]|$)", _FLAGS)
_BULLET = re.compile(r"(?:[-*+]|#{1,6}) +")
_EMPHASIS = re.compile(r"\*+|_+")
_OPENING_FENCE = re.compile(r"```[a-zA-Z]{0,20}\Z")
_CLAIM_IN_JSON = re.compile(
    r'"(?P<key>[a-z_]{1,20})"\s{0,9}:\s{0,9}"?(?P<word>yes|no|true|false)"?\s{0,9}[,}]', re.ASCII | re.IGNORECASE
)
_VERDICT_KEYS = ("verdict", "answer", "passed", "completed", "criterion_met")
_COMPLETED_KEYS = ("completed", "passed")
_MAX_BRACES = 32
"""Maximum number of opening braces tried from the end, after the very first: an object may quote a reply with many."""


def parse_verdict(answer: str) -> bool | None:
    """Parse the end of an answer: True for YES, False for NO, None for anything else.

    The word may be emphasised and end in a full stop. In quotation marks it is a quotation, not a verdict.

    >>> *map(parse_verdict, ("It says so.\\n**YES**", "Verdict: no.", "YES, because", 'It says:\\n"YES"')),
    (True, False, None, None)
    """
    lines = [line.strip() for line in re.split(r"[\r\n]", answer) if line.strip()]
    if not lines:
        return None
    found = _VERDICT.fullmatch(lines[-1]) or _LABELLED.fullmatch(_strip_markup(lines[-1]))
    if found:
        decided: bool | None = _is_yes(found["word"])
    elif closing := _find_final_object(answer):
        decided = _parse_decision(closing.value, _VERDICT_KEYS, closing.before)
    else:
        return None
    claims = {_is_yes(claim["word"]) for line in lines if (claim := _CLAIM.match(_strip_markup(line)))}
    return None if decided is None or claims - {decided} else decided


def read_ratings(answer: str, required: Collection[str] = SCORES) -> dict[str, Any] | None:
    """Parse the object at the end of an answer as ratings, with `completed` as "yes" or "no"; None for anything else.

    Unreadable: values that JSON has no number for, a duplicate key, and a `completed` that contradicts `passed`. Where
    no rating is required, a verdict alone is enough.

    >>> read_ratings('{"completed": "yes", "accuracy": 11}') is None
    True
    >>> read_ratings('{"completed": "yes"}', ()), read_ratings("It asks.\\nNO", ())
    ({'completed': 'yes'}, {'completed': 'no'})
    """
    closing = _find_final_object(answer)
    if closing is None and required:
        return None
    value = closing.value if closing else {}
    done = _parse_decision(value, _COMPLETED_KEYS, closing.before) if closing else parse_verdict(answer)
    valid = all(
        type(value.get(name)) is int and 1 <= value[name] <= 10 for name in SCORES if name in required or name in value
    )
    return {**value, "completed": "yes" if done else "no"} if valid and done is not None else None


def evidence_before(answer: str) -> str:
    """Return the text before the verdict at the end of an answer, which is a JSON object or a line YES or NO.

    >>> evidence_before('It asks.\\n```json\\n{"completed": true}\\n```')
    'It asks.'
    """
    if closing := _find_final_object(answer):
        return closing.before
    before, _, last = answer.strip().rpartition("\n")
    return answer if parse_verdict(last) is None else before


class _FinalObject(NamedTuple):
    """The object at the end of an answer."""

    value: dict[str, Any]
    before: str


def _find_final_object(answer: str) -> _FinalObject | None:
    """Return the outermost JSON object at the end of an answer."""
    text = answer.rstrip().removesuffix("```").rstrip()
    if not text.endswith("}"):
        return None
    starts = [found.start() for found in re.finditer(r"\{", text)]
    for start in (*starts[:1], *starts[1:][-_MAX_BRACES:]):
        try:
            value = parse_line(text[start:])
        except BadLine:
            continue
        before = _OPENING_FENCE.sub("", text[:start].rstrip()).rstrip()
        return _FinalObject(value, before) if isinstance(value, dict) else None
    return None


def _parse_decision(value: Mapping[str, Any], keys: tuple[str, ...], before: str) -> bool | None:
    """Return the verdict of an object under these keys; None if they, or the text before it, disagree."""
    claims = {_parse_yes_or_no(value[key]) for key in keys if key in value}
    if len(claims) != 1 or None in claims:
        return None
    earlier = {_is_yes(found["word"]) for found in _CLAIM_IN_JSON.finditer(before) if found["key"].lower() in keys}
    return None if earlier - claims else claims.pop()


def _parse_yes_or_no(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return _is_yes(value) if isinstance(value, str) and value.strip().lower() in ("yes", "no") else None


def _is_yes(word: str) -> bool:
    return word.strip().lower() in ("yes", "true")


def _strip_markup(line: str) -> str:
    """Return a line of Markdown without its bullet and its emphasis; unpaired marks stay."""
    text = _BULLET.sub("", line, count=1) if _BULLET.match(line) else line
    marks = Counter(_EMPHASIS.findall(text))
    return text if any(count % 2 for count in marks.values()) else _EMPHASIS.sub("", text)
