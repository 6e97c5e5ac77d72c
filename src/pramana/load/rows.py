"""Cases from Python: arguments, dictionaries or the rows of a data frame in, cases out. Only the input is required.

The two published formats are strict and require a category, a difficulty and a token estimate; cases built in a program
need none of these. A dictionary may also use the names of the suite format (`assertion`, `metadata`); one with a
`prompt` is a scenario and follows that format's rules. Problems name the row: `cases[3].ideal`.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, get_args

from msgspec.structs import replace

from pramana import model
from pramana.assertions import find_assertion_type, find_missing_fields, parse_assertion
from pramana.errors import InvalidInput, PramanaError, Problem, describe_value, suggest_similar
from pramana.jsonl import to_canonical_json
from pramana.load.scenario import parse_scenario_or_errors
from pramana.model import Assertion, Facets, Role, Turn

Messages = Sequence[Mapping[str, str]]
"""A chat: `{"role": "user", "content": "…"}` for each message."""
CATEGORY, DIFFICULTY = "general", "medium"
_CASE_FIELDS = (
    "input", "ideal", "check", "id", "name", "category", "difficulty", "language", "tags", "tokens_est",
    "expected_outcome",
)  # fmt: skip
_MISSING_TYPE_NAMES = ("NAType", "NaTType")
"""Types of empty cells in pandas, which need not be installed."""
_METADATA_FIELDS = ("difficulty", "tags", "tokens_est")


def make_case(
    input: str | Messages,  # noqa: A002 - the name in the published format
    *,
    ideal: str | Sequence[str] | None = None,
    check: str | Mapping[str, Any] | Assertion | None = None,
    id: str | None = None,  # noqa: A002
    name: str | None = None,
    category: str = CATEGORY,
    difficulty: str = DIFFICULTY,
    language: str | None = None,
    tags: Iterable[str] = (),
    tokens_est: int | None = None,
    expected_outcome: str | None = None,
) -> model.Case:
    """Return a case.

    The argument `check` is an assertion type or a whole assertion; with an `ideal` and no `check`, the reply must
    contain the ideal, ignoring case. The argument `expected_outcome` describes a good reply for the judge. A case
    without `ideal`, `check` and `expected_outcome` is for scorers. If a case has no `id`, Pramana makes an id from its
    content.

    >>> case = Case("What is the capital of France?", ideal="Paris")
    >>> case.id, case.assertion.type, case.ideals
    ('case-749229b4f1eb', 'contains', ('Paris',))
    """
    turns = _parse_turns(input)
    ideals = _parse_texts(ideal, "ideal")
    stated = _make_assertion(check, ideals)
    if stated and expected_outcome is not None:
        raise _make_field_error("expected_outcome", "a case has a check or an expected_outcome, not both")
    if tokens_est is not None and (type(tokens_est) is not int or tokens_est < 0):
        raise _make_field_error(
            "tokens_est", f"must be a whole number of at least 0, found {describe_value(tokens_est)}"
        )
    texts: dict[str, Any] = {
        "id": id, "name": name, "category": category, "difficulty": difficulty, "language": language,
        "expected_outcome": expected_outcome,
    }  # fmt: skip
    for field, value in texts.items():
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise _make_field_error(field, f"must be text that is not empty, found {describe_value(value)}")
    case = model.Case(
        "",
        "test_case" if expected_outcome is None else "scenario",
        turns,
        Facets(category, difficulty, language, _parse_texts(tags, "tags")),
        stated,
        ideals,
        name=name,
        expected_outcome=expected_outcome,
        tokens_est=tokens_est,
    )
    return replace(case, id=id or _make_content_id(case))


if TYPE_CHECKING:
    Case = model.PublicCase
else:

    class _AnyCase(type):
        """Makes every case an instance of `pramana.Case`, wherever it was created."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, model.Case)

    class Case(metaclass=_AnyCase):
        # Not the struct itself: its fields are what stages need, and a struct cannot define its own constructor.
        __doc__ = make_case.__doc__
        __signature__ = signature(make_case)

        def __new__(cls, *arguments: Any, **options: Any) -> model.Case:
            return make_case(*arguments, **options)


def read_rows(rows: Any) -> tuple[model.Case, ...]:
    """Return the cases of rows: cases or dictionaries. Raises `InvalidInput` with every problem."""
    found: list[model.Case] = []
    problems: list[Problem] = []
    first_seen: dict[str, int] = {}
    _refuse_unknown_columns(rows)
    known: dict[str, model.Case] = {}
    for number, row in enumerate(_iterate_records(rows)):
        original = getattr(row, "original", None)  # the case that a `result.case` shows
        if isinstance(original, model.Case):
            if known.get(original.id) == original:
                continue  # from a second result: the case had repeats or several models
            row = original  # noqa: PLW2901
        try:
            case = row if isinstance(row, model.Case) else _row_to_case(row)
        except PramanaError as error:
            reported = error.problems or [Problem(str(error))]
            problems += (
                Problem(each.message, f"cases[{number}]{'.' if each.path else ''}{each.path}") for each in reported
            )
            continue
        if (first := first_seen.setdefault(case.id, number)) != number:
            message = f"the id {case.id!r:.60} is also used by cases[{first}]; to run a case several times, use repeat"
            problems.append(Problem(message, f"cases[{number}].id"))
        found.append(case)
        known[case.id] = case
    if problems:
        raise InvalidInput.from_problems(problems)
    if not found:
        raise InvalidInput("no cases were given: the list is empty")
    return tuple(found)


_COLUMNS_MEANING_INPUT = ("question", "query", "text", "user", "message", "instruction", "inputs", "request")
_COLUMNS_MEANING_IDEAL = (
    "answer",
    "expected",
    "target",
    "label",
    "output",
    "reference",
    "expected_output",
    "answers",
    "gold",
)


def _refuse_unknown_columns(rows: Any) -> None:
    """Refuse a data frame for its columns, once per column, before reading any row."""
    columns = [str(each) for each in getattr(rows, "columns", ())] if is_data_frame(rows) else []
    if not columns or "prompt" in columns:  # a table of scenarios has different columns
        return
    known = {*_CASE_FIELDS, *_METADATA_FIELDS, "assertion", "metadata"}
    unknown = [each for each in columns if each not in known]
    problems = [
        Problem(
            f"the data frame has a column that is not a field of a case{_suggest_rename(each, columns)}",
            f"cases[{each!r}]",
        )
        for each in unknown
    ]
    if "input" not in columns:
        problems.append(Problem("the data frame needs a column input: the prompt, or a list of messages", "cases"))
    if problems:
        raise InvalidInput.from_problems(problems)


def _suggest_rename(column: str, columns: Sequence[str]) -> str:
    """Return what to do about an unknown column."""
    for names, field in ((_COLUMNS_MEANING_INPUT, "input"), (_COLUMNS_MEANING_IDEAL, "ideal")):
        if column.lower() in names and field not in columns:
            return f'; rename it: frame.rename(columns={{"{column}": "{field}"}})'
    near = suggest_similar(column, _CASE_FIELDS)
    return near or f"; leave it out: a case has {', '.join(_CASE_FIELDS)}"


def is_single_case(value: object) -> bool:
    """Return whether a value is one case: a case, a dictionary or `result.case`."""
    return isinstance(value, model.Case | Mapping) or isinstance(getattr(value, "original", None), model.Case)


def is_data_frame(value: object) -> bool:
    """Return whether a value is a pandas or polars data frame."""
    return hasattr(value, "to_dicts") or (hasattr(value, "to_dict") and hasattr(value, "columns"))


def _iterate_records(rows: Any) -> Iterator[Any]:
    if hasattr(rows, "to_dicts"):  # polars
        rows = rows.to_dicts()
    elif is_data_frame(rows):  # pandas
        rows = rows.to_dict("records")
    for row in rows:
        yield dict(_iterate_plain_cells(row)) if isinstance(row, Mapping) else row


def _iterate_plain_cells(row: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the named cells of a row, in plain Python; empty cells are omitted."""
    for key, given in row.items():
        # Numbers and arrays of numpy, which are common in data frames.
        value = given.tolist() if hasattr(given, "tolist") and hasattr(given, "shape") else given
        if not _is_missing(value):
            yield key, value


def _is_missing(value: object) -> bool:
    """Return whether a cell is empty: None, or NaN, NA or NaT of any library."""
    return (
        value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in _MISSING_TYPE_NAMES
    )


def _row_to_case(row: Any) -> model.Case:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"expected a pramana.Case or a dictionary, found {type(row).__name__}")
    if "prompt" in row:
        scenario, found = parse_scenario_or_errors(dict(row))
        if scenario is None:
            raise InvalidInput.from_problems([Problem(message, path) for path, message in found])
        return scenario.to_case()
    metadata, row = row.get("metadata", {}), {key: value for key, value in row.items() if key != "metadata"}
    if not isinstance(metadata, Mapping) or metadata.keys() - {*_METADATA_FIELDS}:
        raise _make_field_error(
            "metadata", f"expected an object of {', '.join(_METADATA_FIELDS)}, found {describe_value(metadata)}"
        )
    row |= metadata
    if "assertion" in row:
        row["check"] = row.pop("assertion")
    unknown = [key for key in row if key not in _CASE_FIELDS]
    if unknown:
        raise InvalidInput.from_problems(
            [
                Problem(
                    f"unknown key; a row has {', '.join(_CASE_FIELDS)}{suggest_similar(str(unknown[0]), _CASE_FIELDS)}",
                    str(key),
                )
             for key in unknown]
        )  # fmt: skip
    if "input" not in row:
        raise _make_field_error("input", "is required: the prompt, or a list of messages")
    return make_case(**row)


def _parse_turns(prompt_or_messages: Any) -> tuple[Turn, ...]:
    if isinstance(prompt_or_messages, str):
        if not prompt_or_messages.strip():
            raise _make_field_error("input", "must not be empty")
        return (Turn("user", prompt_or_messages),)
    if not isinstance(prompt_or_messages, Sequence) or not prompt_or_messages or isinstance(prompt_or_messages, bytes):
        raise _make_field_error(
            "input", f"must be text or a list of messages, found {type(prompt_or_messages).__name__}"
        )
    turns = []
    role: Any
    for number, message in enumerate(prompt_or_messages):
        role, content = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else (None, None)
        if role not in get_args(Role) or not isinstance(content, str) or not content.strip():
            expected = f'{{"role": {" or ".join(get_args(Role))}, "content": text}}'
            raise _make_field_error(
                f"input[{number}]", f"expected a message such as {expected}, found {describe_value(message)}"
            )
        turns.append(Turn(role, content))
    return tuple(turns)


def _parse_texts(text_or_texts: Any, field: str) -> tuple[str, ...]:
    if type(text_or_texts) is int:  # a data frame column of numeric answers
        text_or_texts = str(text_or_texts)
    if isinstance(text_or_texts, Mapping):
        raise _make_field_error(field, f"must be text or a list of texts, found {describe_value(text_or_texts)}")
    if isinstance(
        text_or_texts, set | frozenset
    ):  # a set's order differs between processes, and the case's ID would too
        raise _make_field_error(
            field, f"must be text or a list of texts, found a set, which has no order; pass sorted({field})"
        )
    texts = (
        (text_or_texts,)
        if isinstance(text_or_texts, str)
        else tuple(text_or_texts or ())
        if isinstance(text_or_texts, Iterable | None)
        else (text_or_texts,)
    )
    if not all(isinstance(each, str) and each.strip() for each in texts):
        hint = ": write the number as text" if isinstance(text_or_texts, float) else ""
        raise _make_field_error(field, f"must be text or a list of texts, found {describe_value(text_or_texts)}{hint}")
    return texts


def _make_assertion(check: Any, ideals: tuple[str, ...]) -> Assertion | None:
    if check is None:
        return Assertion("contains" if len(ideals) == 1 else "contains_any", case_sensitive=False) if ideals else None
    try:
        stated = parse_assertion({"type": check} if isinstance(check, str) else check)
        kind = find_assertion_type(stated.type)
        missing = [message for _, message in find_missing_fields(kind, stated, ideals)]
        flaw = None if missing else kind.flaw(stated, ideals)
    except PramanaError as error:
        raise _make_field_error("check", str(error)) from None
    for message in (*missing, *([flaw[1]] if flaw else ())):
        raise _make_field_error("check", message)
    return stated


def _make_content_id(case: model.Case) -> str:
    """Return an ID made from the content, so that the same case has the same ID in every run."""
    stated = case.assertion
    content = [
        [[turn.role, turn.text] for turn in case.turns],
        [stated.type, stated.case_sensitive, stated.threshold, stated.judge_prompt, stated.schema] if stated else None,
        list(case.ideals),
        case.expected_outcome,
    ]
    return f"case-{hashlib.sha256(to_canonical_json(content)).hexdigest()[:12]}"


def _make_field_error(field: str, message: str) -> InvalidInput:
    return InvalidInput.from_problems([Problem(message, field)])
