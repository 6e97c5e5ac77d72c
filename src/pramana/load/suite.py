"""Pramana suites: a JSONL file in, test cases out one by one, and every problem at its line and column.

Suites of any length take constant memory: cases are validated and passed on, and only the sorter in `pramana.hash`
keeps an index, on disk. The rules are in the pydantic model `TestCase` and, where one field depends on another, in the
registered assertion type. Unknown keys are errors: a misplaced assertion that silently passes is worse than none.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Annotated, Any, BinaryIO, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    Tag,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from pramana import jsonl
from pramana.assertions import find_assertion_type, find_missing_fields
from pramana.errors import BrokenPlugin, InvalidInput, Problem, Severity, suggest_similar
from pramana.hash import CasePosition, SortedCases
from pramana.load.problems import Problems, attach_source, describe_value, format_path, join_alternatives, shorten_path
from pramana.model import Assertion, Case, Difficulty, Facets, Role, SourceLocation, Turn
from pramana.plugins import assertion_types

MAX_LIST_ITEMS = 10_000
"""Per list in a case: the errors of a longer one would fill the memory."""
MAX_ESTIMATED_TOKENS = 2**31 - 1

Category = Literal["reasoning", "factual", "instruction_following", "coding", "safety", "creative"]


def _check_item_count(value: Any) -> Any:
    if isinstance(value, list) and len(value) > MAX_LIST_ITEMS:
        raise PydanticCustomError("endless", "too many items")
    return value


def _check_not_blank(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("blank", "must not be empty")
    return value


def _check_not_empty(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if not value:
        raise PydanticCustomError("blank", "must not be empty")
    return value


def _check_assertion_type(value: str) -> str:
    if value not in assertion_types:
        raise PydanticCustomError("assertion_type", "unknown assertion type")
    return value


def _find_union_tag(value: Any) -> str | None:
    return "text" if isinstance(value, str) else "list" if isinstance(value, list | tuple) else None


NonBlankText = Annotated[str, Field(strict=True, json_schema_extra={"minLength": 1}), AfterValidator(_check_not_blank)]
# After validation rather than min_length: pydantic counts only valid items, so a list of invalid ones would be "empty".
_non_empty, _min_items = AfterValidator(_check_not_empty), Field(json_schema_extra={"minItems": 1})
_item_count_validator = BeforeValidator(_check_item_count)
_TEXT_OR_LIST_ERROR = {"custom_error_type": "text_or_list", "custom_error_message": "text or list"}


class Message(BaseModel):
    """One turn of a chat."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Role
    content: NonBlankText


class StatedAssertion(BaseModel):
    """The assertion of a suite's test case: how the output is checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Assertion")

    type: Annotated[str, Field(strict=True), AfterValidator(_check_assertion_type)]
    case_sensitive: StrictBool = True
    threshold: Annotated[float, Field(strict=True, ge=0, le=1)] | None = Field(
        default=None, description="For semantic_similarity: the minimum similarity to pass"
    )
    judge_prompt: Annotated[str, Field(strict=True)] | None = Field(
        default=None, description="For llm_judge: a question about the output that YES or NO answers"
    )
    schema_: Any = Field(default=None, alias="schema", description="For json_schema: a JSON Schema (2020-12)")

    def to_assertion(self) -> Assertion:
        """Return the assertion in the type of the other stages."""
        return Assertion(self.type, self.case_sensitive, self.threshold, self.judge_prompt, self.schema_)


class Metadata(BaseModel):
    """What cases are filtered and summarised by."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    difficulty: Difficulty
    tokens_est: Annotated[
        StrictInt, Field(ge=0, le=MAX_ESTIMATED_TOKENS, description="Estimated tokens of prompt and expected answer")
    ]
    tags: Annotated[tuple[NonBlankText, ...], _item_count_validator] = ()


class TestCase(BaseModel):
    """One line of a suite."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Pramana test case")
    __test__ = False  # not for pytest

    id: Annotated[NonBlankText, Field(description="Unique in the suite; {category}-{num} by convention")]
    category: Category
    input: Annotated[
        Annotated[NonBlankText, Tag("text")]
        | Annotated[tuple[Message, ...], _non_empty, _item_count_validator, _min_items, Tag("list")],
        Discriminator(_find_union_tag, **_TEXT_OR_LIST_ERROR),
        Field(description="Prompt, or a list of chat messages"),
    ]
    ideal: (
        Annotated[
            Annotated[NonBlankText, Tag("text")]
            | Annotated[tuple[NonBlankText, ...], _non_empty, _item_count_validator, _min_items, Tag("list")],
            Discriminator(_find_union_tag, **_TEXT_OR_LIST_ERROR),
        ]
        | None
    ) = Field(default=None, description="Expected output, or several")
    assertion: StatedAssertion
    metadata: Metadata

    def to_case(self, source: SourceLocation | None = None) -> Case:
        """Return the case that a run sends; a string input or ideal becomes a list of one."""
        messages = (Message(role="user", content=self.input),) if isinstance(self.input, str) else self.input
        return Case(
            id=self.id,
            kind="test_case",
            turns=tuple(Turn(message.role, message.content) for message in messages),
            facets=Facets(self.category, self.metadata.difficulty, None, self.metadata.tags),
            assertion=self.assertion.to_assertion(),
            ideals=(self.ideal,) if isinstance(self.ideal, str) else self.ideal or (),
            tokens_est=self.metadata.tokens_est,
            source=source,
        )


@dataclass(frozen=True, slots=True)
class SuiteFileSummary:
    """The results of checking a whole suite file."""

    case_count: int
    """Number of lines with a case, valid or not."""
    valid_case_count: int
    total_tokens_est: int
    suite_hash: str | None
    """None if a problem makes the hash impossible."""
    categories: frozenset[str]
    assertion_types: frozenset[str]


def read_cases(path: str | PathLike[str], content: bytes | None = None) -> Iterator[Case]:
    """Yield the cases of a suite file, one line at a time; raise the first problem.

    `content` replaces the file's content. `check_suite`, which reads the whole file, finds duplicate IDs.
    """
    problems = Problems(limit=1)
    with jsonl.open_file(path, content) as file:
        reader = _SuiteReader(str(path), problems)
        for line in jsonl.read_lines(file):
            case = None if line.is_blank else reader.read(line)
            if problems.errors:
                raise InvalidInput.from_problems([each for each in problems if each.severity == "error"])
            if case:
                yield case.to_case(SourceLocation(str(path), line.number))


def check_suite(path: str | PathLike[str], problems: Problems, content: bytes | None = None) -> SuiteFileSummary:
    """Validate a suite file and compute its hash in one pass; add what does not fit to `problems`."""
    before, valid, tokens = problems.errors, 0, 0
    categories: set[str] = set()
    types: set[str] = set()
    with jsonl.open_file(path, content) as file, SortedCases() as ordered:
        reader = _SuiteReader(str(path), problems, ordered)
        for line in jsonl.read_lines(file):
            if not line.is_blank and (case := reader.read(line)):
                valid += 1
                tokens += case.metadata.tokens_est
                categories.add(case.category)
                types.add(case.assertion.type)
        if reader.cases == 0:
            problems.add(Problem("the file is empty; expected one case a line", "", 1, 1, str(path)))

        def repeat(first: CasePosition, again: CasePosition, case_id: str) -> None:
            message = f"duplicate id {describe_value(case_id)}: lines {first.line} and {again.line}"
            text = reader.read_line_at(file, again.byte_offset)
            reader.add_problems(again.case_index, again.line, text, [UnplacedProblem("error", ("id",), message)])

        digest = ordered.compute_hash(repeat)
    sound = digest if problems.errors == before else None
    return SuiteFileSummary(reader.cases, valid, tokens, sound, frozenset(categories), frozenset(types))


class _SuiteReader:
    """Reads one file's lines; tracks the case index and finds the columns of paths."""

    def __init__(self, file: str, problems: Problems, ordered: SortedCases | None = None) -> None:
        self.file, self.problems, self.ordered = file, problems, ordered
        self.cases = 0

    def read_line_at(self, file: BinaryIO, offset: int) -> str:
        """Return a line read earlier, for the caret below it."""
        if self.problems.is_full():
            return ""
        file.seek(offset)
        return jsonl.decode_line(next(jsonl.read_lines(file)))

    def read(self, line: jsonl.Line) -> TestCase | None:
        index, self.cases = self.cases, self.cases + 1
        text = ""
        try:
            text = jsonl.decode_line(line)
            value = _parse_line(text)
            if self.ordered and isinstance(value, dict) and isinstance(value.get("id"), str):
                self.ordered.add(CasePosition(line.number, index, line.byte_offset), value)
        except jsonl.BadJson as bad:
            shown = text or (line.data[:1000] if line.is_too_long else line.data).decode(errors="replace")
            self.add_problem(index, line.number, shown, bad.path, bad.message, bad.column)
            return None
        return self.validate(index, line, text, value)

    def validate(self, case_index: int, line: jsonl.Line, text: str, value: Any) -> TestCase | None:
        if not isinstance(value, dict):
            self.add_problem(
                case_index, line.number, text, (), f"a case must be an object, found {describe_value(value)}", 1
            )
            return None
        case: TestCase | None = None
        findings: list[UnplacedProblem] = []
        uncounted = 0
        try:
            case = TestCase.model_validate(value)
        except ValidationError as errors:
            room = self.problems.limit  # no messages are made for problems that are only counted
            findings = [_make_unplaced_problem(error) for error in errors.errors(include_url=False)[:room]]
            uncounted = max(0, errors.error_count() - room)
        findings += _check_across_fields(value)
        if findings:
            self.add_problems(case_index, line.number, text, findings)
        self.problems.errors += uncounted
        return None if any(each.severity == "error" for each in findings) else case

    def add_problems(self, case_index: int, line_number: int, text: str, findings: Sequence["UnplacedProblem"]) -> None:
        """Report the problems of one line; columns are found in one pass, and only for problems that are shown."""
        seen = [each for each in findings if not self.problems.is_full(each.severity)][: 2 * self.problems.limit]
        columns = jsonl.find_columns(text, ((each.path, each.is_at_key) for each in seen)) if seen else {}
        for each in findings:
            column = columns.get((each.path, each.is_at_key), 1)
            self.add_problem(case_index, line_number, text, each.path, each.message, column, severity=each.severity)

    def add_problem(
        self,
        case_index: int,
        line_number: int,
        text: str,
        path: jsonl.JsonPath,
        message: str,
        column: int,
        *,
        severity: Severity = "error",
    ) -> None:
        if self.problems.is_full(severity):  # only counted: its position is not needed
            self.problems.add(Problem(message, severity=severity))
            return
        problem = Problem(
            message, shorten_path(format_path((case_index, *path))), line_number, column, self.file, severity=severity
        )
        self.problems.add(attach_source(problem, text))


def _parse_line(text: str) -> Any:
    value = jsonl.parse_line(text)
    if "\\u" in text and (half := jsonl.find_lone_surrogate(text)):
        message = f"{text[half.column - 1 : half.column + 5]} is half of a surrogate pair, which is not valid text"
        raise jsonl.BadJson(message, half.column, half.path)
    return value


# ── Rules between fields ──


@dataclass(frozen=True, slots=True)
class UnplacedProblem:
    """A problem of one case, before its column is known."""

    severity: Severity
    path: jsonl.JsonPath
    message: str
    is_at_key: bool = False
    """Whether the key is meant, not its value."""


def _check_across_fields(value: dict[str, Any]) -> Iterator[UnplacedProblem]:
    """Yield problems that involve several fields; fields that are invalid on their own are skipped."""
    case_id, category = value.get("id"), value.get("category")
    if isinstance(case_id, str) and category in _CATEGORIES and not re.fullmatch(rf"{category}-\d+", case_id):
        message = f"id {describe_value(case_id)} does not follow {{category}}-{{num}}, such as {category}-001"
        yield UnplacedProblem("warning", ("id",), message)
    try:
        stated = StatedAssertion.model_validate(value.get("assertion"))
        kind = find_assertion_type(stated.type)
    except ValidationError:
        return
    except BrokenPlugin as broken:
        yield UnplacedProblem("error", ("assertion", "type"), str(broken))
        return
    ideals = _parse_ideals(value.get("ideal"))
    if ideals is None:
        return
    missing = list(find_missing_fields(kind, stated.to_assertion(), ideals))
    flaw = None if missing else kind.flaw(stated.to_assertion(), ideals)
    for need, message in [*missing, *([flaw] if flaw else [])]:
        yield UnplacedProblem("error", ("ideal",) if need == "ideal" else ("assertion", need), message)
    for key, wanted in (("threshold", "semantic_similarity"), ("judge_prompt", "llm_judge"), ("schema", "json_schema")):
        if value["assertion"].get(key) is not None and kind.name != wanted and kind.name in assertion_types.builtin:
            yield UnplacedProblem(
                "warning", ("assertion", key), f"{key} has no effect with {kind.name}; it belongs to {wanted}"
            )


def _parse_ideals(ideal: Any) -> tuple[str, ...] | None:
    """Return the ideals as a tuple, or None if they are invalid on their own."""
    if ideal is None:
        return ()
    listed = [ideal] if isinstance(ideal, str) else ideal
    sound = isinstance(listed, list) and listed and all(isinstance(each, str) and each.strip() for each in listed)
    return tuple(listed) if sound else None


# ── Pydantic's errors in Pramana's words ──

_CATEGORIES = get_args(Category)
_CLASS_BY_OBJECT_PATH: dict[str, type[BaseModel]] = {
    "": TestCase,
    "assertion": StatedAssertion,
    "metadata": Metadata,
    "input": Message,
}
_CHOICES_BY_FIELD = {"category": _CATEGORIES, "difficulty": get_args(Difficulty), "role": get_args(Role)}
_EXPECTED_BY_ERROR_TYPE = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number of at least 0",
    "int_from_float": "a whole number of at least 0",
    "greater_than_equal": "at least 0",
    "float_type": "a number from 0 to 1",
    "tuple_type": "a list",
    "model_type": "an object",
}


def _make_unplaced_problem(error: ErrorDetails) -> UnplacedProblem:
    path = error["loc"]
    if path and path[0] in ("input", "ideal"):  # drop the tag for the side of a union that pydantic tried
        path = path[:1] + path[2:]
    return UnplacedProblem("error", path, _describe_error(path, error), is_at_key=error["type"] == "extra_forbidden")


def _describe_error(path: jsonl.JsonPath, error: ErrorDetails) -> str:
    names = [part for part in path if isinstance(part, str)]
    name = names[-1] if names else "the case"
    if path and isinstance(path[-1], int):
        name = f"{name}[{path[-1]}]"
    given = describe_value(error["input"])
    match error["type"]:
        case "missing":
            return f"{name} is required"
        case "extra_forbidden":
            known = [
                field.alias or key for key, field in _CLASS_BY_OBJECT_PATH[".".join(names[:-1])].model_fields.items()
            ]
            elsewhere = next(
                (f"; {name} belongs in {place}" for place in ("assertion", "metadata") if _has_field(name, place)),
                "",
            )
            return f"unknown key {describe_value(name)}{elsewhere or suggest_similar(name, known)}"
        case "literal_error":
            choices = _CHOICES_BY_FIELD[name]
            hint = suggest_similar(str(error["input"]), choices)
            return f"Invalid {name} {given}: expected {join_alternatives(choices)}{hint}"
        case "assertion_type":
            known = assertion_types.names()
            hint = suggest_similar(error["input"], known) or "; or install the package that provides it"
            return f"Invalid assertion type {given}: expected {join_alternatives(known)}{hint}"
        case "less_than_equal":
            return f"{name} must be at most {int(error['ctx']['le']):,}, found {given}"
        case "endless":
            return f"{name} must have at most {MAX_LIST_ITEMS:,} items, found {given}"
        case "blank":
            return f"{name} must not be empty, found {given}"
        case "text_or_list":
            what = "a list of messages" if name == "input" else "a list of texts"
            return f"{name} must be text or {what}, found {given}"
        case kind:
            return f"{name} must be {_EXPECTED_BY_ERROR_TYPE.get(kind, error['msg'])}, found {given}"


def _has_field(name: str, object_name: str) -> bool:
    return name != "schema_" and name in _CLASS_BY_OBJECT_PATH[object_name].model_fields
