"""What a scenario has beyond its prompt: further turns, assertions on each answer, and the conditions of the call.

Plain values go in, from a file or a request; lines of a script come out. Assertions follow the same rules as in suites,
with the same messages, because the same code reads them. Positions in a text belong to the reader of that text: a
`UnplacedProblem` here has the path of keys and indices to its value, as written.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_serializer
from pydantic_core import ErrorDetails, PydanticCustomError

from pramana.errors import PramanaError, suggest_similar
from pramana.jsonl import MAX_JSON_DEPTH, JsonPath, is_nested_deeper
from pramana.load.problems import describe_value
from pramana.load.suite import StatedAssertion, TestCase, UnplacedProblem, _check_across_fields, _describe_error
from pramana.model import Expected, Line

MAX_TURNS = 100
MAX_ASSERTIONS_PER_TURN = 100
"""Per turn."""
MAX_BARGE_IN_S = 60


# ── Text: accepted, or refused with the published messages, which programs compare ──

_SURROGATE_RE = re.compile("[\ud800-\udfff]")
_CONTROL_RE = re.compile(r"[\x00-\x1f\x7f]")


def make_error(message: str) -> PydanticCustomError:
    """Return a pydantic error with exactly this message."""
    return PydanticCustomError("rule", "{message}", {"message": message})


def check_not_blank(value: Any, info: ValidationInfo) -> Any:
    """Accept a text that is not blank."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise make_error(f"{info.field_name} is required")
    return check_text(value, info)


def check_text(value: Any, info: ValidationInfo) -> Any:
    """Accept any text."""
    if not isinstance(value, str):
        raise make_error(f"{info.field_name} must be text")
    if not is_encodable(value):
        raise make_error(f"{info.field_name} contains half of a surrogate pair, which is not valid text")
    return value


def is_encodable(value: str) -> bool:
    """Return whether a text can be encoded as UTF-8."""
    return value.isascii() or not _SURROGATE_RE.search(value)


def check_audio_url(value: str, info: ValidationInfo) -> str:
    """Accept the URL or path of a recording."""
    expected = f"{info.field_name} must be an http(s) URL or a path"
    if not value.strip() or _CONTROL_RE.search(value):
        raise make_error(f"{expected}, found {describe_value(_CONTROL_RE.sub('?', value))}")
    try:
        parts = urlsplit(value)
    except ValueError:
        raise make_error(f"{expected}, found {describe_value(value)}") from None
    has_scheme = "://" in value or (parts.scheme and len(parts.scheme) > 1)  # a single letter is a Windows drive
    if has_scheme and not (parts.scheme in ("http", "https") and parts.hostname):
        raise make_error(f"{expected}, found {describe_value(value)}")
    return value


def describe_unknown_key(name: str, known: Iterable[str], fallback: str = "") -> str:
    """Return the message for an unknown key."""
    hint = suggest_similar(name, known) or fallback
    if name == "<<":
        hint = "; YAML 1.2 has no merge keys, so write the fields out"
    return f"unknown key {describe_value(name)}{hint}"


# ── Assertions and turns ──

if TYPE_CHECKING:
    Ideal = str | tuple[str, ...] | None
else:
    Ideal = TestCase.__annotations__["ideal"]


def _check_json_value(value: Any) -> Any:
    """Accept what JSON can represent; files and requests contain nothing else, but Python callers may pass anything."""
    if is_nested_deeper(value, MAX_JSON_DEPTH):
        raise make_error(f"schema must be nested at most {MAX_JSON_DEPTH} levels deep")
    try:
        sound = is_encodable(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        sound = False
    if not sound:
        raise make_error("schema must be plain JSON: finite numbers and valid Unicode text")
    return value


class Asserted(StatedAssertion):
    """The assertion of a scenario: how an answer is checked."""

    model_config = ConfigDict(title="Assertion of a scenario")

    ideal: Ideal = Field(default=None, description="Text to look for, or several texts")
    schema_: Annotated[Any, AfterValidator(_check_json_value)] = Field(
        default=None, alias="schema", description="For json_schema: a JSON Schema (2020-12)"
    )

    @model_serializer
    def stated_fields(self) -> dict[str, Any]:
        """Return the fields that were set, without defaults."""
        fields = {
            field.alias or name: (getattr(self, name), field.default) for name, field in _ASSERTION_MODEL_FIELDS.items()
        }
        plain = {name: list(value) if isinstance(value, tuple) else value for name, (value, _) in fields.items()}
        return {name: value for name, value in plain.items() if value != fields[name][1]}

    def to_expected(self) -> Expected:
        """Return the assertion in the type of the other stages."""
        return Expected(self.to_assertion(), (self.ideal,) if isinstance(self.ideal, str) else self.ideal or ())


_ASSERTION_MODEL_FIELDS = Asserted.model_fields


def _make_list_validator(name: str, item: str, max_items: int) -> BeforeValidator:
    """Accept a list that is neither empty nor too long; a single assertion is a list of one."""

    def check(value: Any) -> Any:
        if name == "assert" and isinstance(value, Mapping):
            return [value]
        if not isinstance(value, list | tuple):
            expected = "a mapping or a list of them" if name == "assert" else "a list of mappings"
            raise make_error(f"{name} must be {expected}, found {describe_value(value)}")
        if not value:
            raise make_error(f"{name} must not be empty, found an empty list")
        if len(value) > max_items:
            raise make_error(f"{name} must have at most {max_items} {item}s, found a list of {len(value):,}")
        return value

    return BeforeValidator(check)


def _check_reference(value: str) -> str:
    if not any(map(str.isalnum, value)):
        raise make_error(f"reference must be the words that the agent must say, found {describe_value(value)}")
    return value


def _check_barge_in(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= MAX_BARGE_IN_S:
        raise make_error(
            f"barge_in must be a number of seconds from 0 to {MAX_BARGE_IN_S}, found {describe_value(value)}"
        )
    return float(value)


def _check_conditions(value: str) -> str:
    from pramana.audio.conditions import parse_conditions

    try:
        return str(parse_conditions(value))
    except PramanaError as error:
        raise make_error(str(error)) from None


Assertions = (
    Annotated[tuple[Asserted, ...], _make_list_validator("assert", "assertion", MAX_ASSERTIONS_PER_TURN)] | None
)
ReferenceText = Annotated[str, AfterValidator(_check_reference), BeforeValidator(check_text)] | None
RecordingAddress = Annotated[str, AfterValidator(check_audio_url), BeforeValidator(check_text)] | None
ConditionsText = Annotated[str, AfterValidator(_check_conditions), BeforeValidator(check_text)] | None


class ScriptedTurn(BaseModel):
    """What the caller says once the agent has answered, or while it still does."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Turn of a scenario")

    say: Annotated[
        str,
        BeforeValidator(check_not_blank),
        Field(description="Words that the caller says in this turn", json_schema_extra={"minLength": 1}),
    ]
    audio_url: Annotated[RecordingAddress, Field(description="Recording of the words: an http(s) URL or a path")] = None
    barge_in: Annotated[
        Annotated[
            float,
            BeforeValidator(_check_barge_in),
            Field(json_schema_extra={"minimum": 0, "maximum": MAX_BARGE_IN_S}),
        ]
        | None,
        Field(
            description="Interrupt the agent this many seconds after it starts to speak; if omitted, wait until the "
            "agent has finished"
        ),
    ] = None
    assert_: Assertions = Field(default=None, alias="assert", description="Checks on the answer")
    reference: Annotated[ReferenceText, Field(description="Words that the agent must say")] = None

    def to_line(self) -> Line:
        """Return the turn in the type of the other stages."""
        return Line(self.say, self.audio_url, self.barge_in, to_expected(self.assert_), self.reference)


Turns = Annotated[tuple[ScriptedTurn, ...], _make_list_validator("turns", "turn", MAX_TURNS)] | None


def to_expected(assertions: tuple[Asserted, ...] | None) -> tuple[Expected, ...]:
    """Return the assertions of one turn in the type of the other stages."""
    return tuple(each.to_expected() for each in assertions or ())


# ── Keys: known names and their alternative spellings ──

FIELD_BY_CAMEL_CASE_KEY = {
    "audioUrl": "audio_url",
    "bargeIn": "barge_in",
    "caseSensitive": "case_sensitive",
    "judgePrompt": "judge_prompt",
}
NON_TEXT_FIELDS = frozenset(("barge_in", "case_sensitive", "threshold"))
"""Fields whose values are not text."""


def _map_keys_to_fields(model: type[BaseModel]) -> dict[str, str]:
    fields = {name: name for name in list_file_keys(model)}
    return {**fields, **{spelling: name for spelling, name in FIELD_BY_CAMEL_CASE_KEY.items() if name in fields}}


def list_file_keys(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the names of a model's fields in files."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


TURN_KEYS = _map_keys_to_fields(ScriptedTurn)
ASSERTION_KEYS = _map_keys_to_fields(Asserted)
KEYS_BY_NESTED_FIELD = {"turns": TURN_KEYS, "assert": ASSERTION_KEYS}
"""Fields that hold mappings, and their keys."""
MAX_ITEMS_BY_FIELD = {"turns": MAX_TURNS, "assert": MAX_ASSERTIONS_PER_TURN}
_MISPLACED_KEY_HINTS = {
    **{name: "assert" for name, field in ASSERTION_KEYS.items() if field != "type"},
    **{name: "turns" for name, field in TURN_KEYS.items() if field not in KEYS_BY_NESTED_FIELD},
}


class ScenarioFieldsReader:
    """Reads one scenario's values for the model: normalises keys, rejects unknown ones, and collects what is wrong."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self.keys = keys
        self.problems: list[UnplacedProblem] = []
        self._assertions: list[tuple[dict[str, Any], dict[str, JsonPath]]] = []
        """Each with the path of each of its fields."""

    def read_fields(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values by field name."""
        return self._read_fields(values, self.keys, ())

    def _read_fields(self, values: Mapping[str, Any], keys: Mapping[str, str], path: JsonPath) -> dict[str, Any]:
        known: dict[str, Any] = {}
        places: dict[str, JsonPath] = {}
        for name, value in values.items():
            field, here = keys.get(name), (*path, name)
            if field is None:
                self._add_problem(here, describe_unknown_key(name, keys, _make_misplaced_key_hint(name, keys)))
            elif field in known:
                other = next(spelling for spelling in values if keys.get(spelling) == field)
                self._add_problem(here, f"{other} and {name} are two spellings of the same key; keep one")
            elif field in KEYS_BY_NESTED_FIELD:
                known[field] = self._read_nested(value, field, here)
            elif value is not None or not path:  # null counts as missing
                known[field] = list(value) if isinstance(value, tuple) else value
                places[field] = here
        if keys is ASSERTION_KEYS:
            self._assertions.append((known, {"": path, **places}))
        return known

    def _read_nested(self, value: Any, field: str, path: JsonPath) -> Any:
        if isinstance(value, Mapping) and field == "assert":
            return self._read_fields(value, KEYS_BY_NESTED_FIELD[field], path)
        if not isinstance(value, list | tuple) or len(value) > MAX_ITEMS_BY_FIELD[field]:
            return value
        return [
            self._read_fields(each, KEYS_BY_NESTED_FIELD[field], (*path, index)) if isinstance(each, Mapping) else each
            for index, each in enumerate(value)
        ]

    def add_error(self, values: Mapping[str, Any], error: ErrorDetails) -> None:
        """Add an error of the model, in Pramana's words and at the keys as written."""
        path, within = self._locate_error(values, error["loc"])
        kind = error["type"]
        if kind == "rule":
            message = error["msg"]
        elif kind == "missing":
            message = f"{error['loc'][-1]} is required"
        elif kind in ("model_type", "model_attributes_type"):
            within_turns = next(part for part in reversed(path) if part in KEYS_BY_NESTED_FIELD) == "turns"
            what = "a turn must be a mapping with say" if within_turns else "an assertion must be a mapping with a type"
            message = f"{what}, found {describe_value(error['input'])}"
        else:
            message = _describe_error(("assertion", *within), error)
        self._add_problem(path, message)

    def check_across_fields(self) -> None:
        """Add errors that involve several fields of an assertion, with the rules of suites."""
        refused = {each.path for each in self.problems}
        for fields, places in self._assertions:
            if places.get("schema") in refused:  # refused by the model: it is not plain JSON
                continue
            stated = {name: value for name, value in fields.items() if name != "ideal"}
            for each in _check_across_fields({"assertion": stated, "ideal": fields.get("ideal")}):
                field = str(each.path[-1])
                self.problems.append(
                    UnplacedProblem(each.severity, places.get(field, (*places[""], field)), each.message)
                )

    def _locate_error(self, values: Any, loc: JsonPath) -> tuple[JsonPath, JsonPath]:
        """Return the path of an error as written, and the part of it within an assertion.

        Pydantic uses field names, counts a single mapping as the first item of a list, and names the side of a union it
        tried.
        """
        path: list[str | int] = []
        keys, inside = self.keys, len(loc)
        for part in loc:
            if isinstance(values, Mapping) and isinstance(part, str):
                name = next((each for each in values if keys.get(each) == part), part)
                values, keys = values.get(name), KEYS_BY_NESTED_FIELD.get(part, keys)
                path.append(name)
                inside = len(path) if part == "assert" else inside
            elif isinstance(values, list | tuple) and isinstance(part, int):
                values = values[part]
                path.append(part)
        within = path[inside:]
        return tuple(path), tuple(within[1:] if within and isinstance(within[0], int) else within)

    def _add_problem(self, path: JsonPath, message: str) -> None:
        self.problems.append(UnplacedProblem("error", path, message))


def _make_misplaced_key_hint(name: str, keys: Mapping[str, str]) -> str:
    place = _MISPLACED_KEY_HINTS.get(name)
    return f"; {name} belongs in {place}" if place and keys is not KEYS_BY_NESTED_FIELD[place] else ""


# ── YAML: plain values where text is not expected ──

_NUMBER_RE = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<rest>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")


def parse_literal(text: str) -> Any:
    """Return the value that JSON would read, otherwise the text; raise `ValueError` for a number out of range.

    JSON would read true, false and numbers.

    >>> parse_literal("0.5"), parse_literal("7"), parse_literal("true"), parse_literal("yes"), parse_literal("007")
    (0.5, 7, True, 'yes', '007')
    """
    if text in ("true", "false"):
        return text == "true"
    number = _NUMBER_RE.fullmatch(text)
    if not number:
        return text
    value = float(text) if number["rest"] else int(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError
    return value


def needs_quotes_as_number(value: str) -> bool:
    """Return whether a text is a number to Pramana but not to YAML 1.1, which the YAML writer follows: it needs quotes.

    >>> needs_quotes_as_number("1e3"), needs_quotes_as_number("1.0"), needs_quotes_as_number("one")
    (True, False, False)
    """
    number = _NUMBER_RE.fullmatch(value)
    return number is not None and "e" in number["rest"].lower()
