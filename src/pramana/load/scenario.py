"""VoiceBench scenarios: YAML text in, scenarios with their lines out, and every problem at its line and column.

The rules are in the pydantic model `Scenario`, so that files, request bodies and the schema for editors agree; this
module adds what depends on the text: positions of keys, duplicate keys, and the spelling used. It never raises for the
content of a document, and never stops at the first problem.
"""

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pramana import jsonl, model
from pramana.assertions import MAX_SCHEMA_LENGTH
from pramana.errors import Problem, Severity, suggest_similar
from pramana.load.conversation import (
    KEYS_BY_NESTED_FIELD,
    MAX_ITEMS_BY_FIELD,
    NON_TEXT_FIELDS,
    Assertions,
    ConditionsText,
    RecordingAddress,
    ReferenceText,
    ScenarioFieldsReader,
    Turns,
    check_not_blank,
    check_text,
    describe_unknown_key,
    is_encodable,
    list_file_keys,
    make_error,
    needs_quotes_as_number,
    parse_literal,
    to_expected,
)
from pramana.load.problems import Problems, describe_value, format_path, join_alternatives, shorten_path
from pramana.load.suite import UnplacedProblem
from pramana.load.yaml12 import (
    MAX_YAML_BYTES,
    PLAIN_TAG,
    BadYaml,
    Reader,
    TextPosition,
    decode_yaml,
    find_node_position,
    find_unsupported_tag,
    is_null_node,
)
from pramana.model import Case, Difficulty, Facets, Line, SourceLocation, Turn

ScenarioType = Literal["task-completion", "information-retrieval", "conversation-flow"]


def _make_text_validator(message: str, predicate: Callable[[str], object]) -> AfterValidator:
    """Return a validator that refuses text for which the predicate is false."""

    def check(value: str) -> str:
        if not predicate(value):
            raise make_error(message)
        return value

    return AfterValidator(check)


def _make_choice_validator(field: str, choices: Sequence[str]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value not in choices:
            raise make_error(
                f"Invalid {field} {describe_value(value)}: expected "
                f"{join_alternatives(tuple(choices))}{suggest_similar(str(value), choices)}"
            )
        return value

    return check


def _check_tags(value: Any) -> Any:
    if not isinstance(value, list | tuple) or not all(
        isinstance(tag, str) and tag.strip() and is_encodable(tag) for tag in value
    ):
        raise make_error("tags must be a list of strings")
    return tuple(value)


def _make_default_validator(default: Any) -> BeforeValidator:
    """Return a validator that replaces null by the default, as in files."""
    return BeforeValidator(lambda value: default if value is None else value)


class Scenario(BaseModel):
    """One voice scenario: what a caller says, and what a good agent does."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="VoiceBench scenario")

    id: Annotated[
        str,
        _make_text_validator(
            "id must be lowercase alphanumeric with hyphens only", re.compile(r"[a-z0-9-]+").fullmatch
        ),
        BeforeValidator(check_not_blank),
        Field(description="Unique identifier", json_schema_extra={"pattern": "^[a-z0-9-]+$"}),
    ]
    name: Annotated[
        str,
        _make_text_validator("name must be 255 characters or less", lambda value: len(value) <= 255),
        BeforeValidator(check_not_blank),
        Field(description="Display name", json_schema_extra={"minLength": 1, "maxLength": 255}),
    ]
    type: Annotated[
        ScenarioType,
        BeforeValidator(_make_choice_validator("type", get_args(ScenarioType))),
        BeforeValidator(check_not_blank),
        Field(description="Kind of conversation that the scenario tests"),
    ]
    prompt: Annotated[
        str,
        BeforeValidator(check_not_blank),
        Field(description="Words that the caller says first", json_schema_extra={"minLength": 1}),
    ]
    expected_outcome: Annotated[
        str,
        BeforeValidator(check_not_blank),
        Field(description="Description of a good answer", json_schema_extra={"minLength": 1}),
    ]
    prompt_audio_url: Annotated[
        RecordingAddress,
        Field(description="Recorded prompt: an http(s) URL or a path"),
    ] = None
    tags: Annotated[
        tuple[str, ...], BeforeValidator(_check_tags), _make_default_validator(()), Field(description="For filtering")
    ] = ()
    language: Annotated[
        str,
        _make_text_validator("language must be 2 to 10 characters", lambda value: 2 <= len(value) <= 10),
        BeforeValidator(check_text),
        _make_default_validator("en"),
        Field(description="Language code", json_schema_extra={"minLength": 2, "maxLength": 10}),
    ] = "en"
    difficulty: Annotated[
        Difficulty,
        BeforeValidator(_make_choice_validator("difficulty", get_args(Difficulty))),
        BeforeValidator(check_text),
        _make_default_validator("medium"),
        Field(description="easy: one intent; medium: some ambiguity; hard: several parts or edge cases"),
    ] = "medium"
    assert_: Assertions = Field(default=None, alias="assert", description="Checks on the answer to the prompt")
    reference: Annotated[ReferenceText, Field(description="Words that the agent must say in answer to the prompt")] = (
        None
    )
    turns: Annotated[Turns, Field(description="Further turns of the caller, after the prompt")] = None
    conditions: Annotated[
        ConditionsText, Field(description="Sound effects on the caller's speech, such as noise=10dB,phone")
    ] = None

    def to_case(self, source: SourceLocation | None = None) -> Case:
        """Return the case that a run sends."""
        return Case(
            id=self.id,
            kind="scenario",
            turns=(Turn("user", self.prompt),),
            facets=Facets(self.type, self.difficulty, self.language, self.tags),
            name=self.name,
            expected_outcome=self.expected_outcome,
            prompt_audio_url=self.prompt_audio_url,
            script=self._make_script(),
            conditions="" if self.conditions in (None, "clean") else self.conditions,
            source=source,
        )

    def to_model_scenario(self) -> model.Scenario:
        """Return the scenario as a `model.Scenario`, which a store keeps."""
        return msgspec.convert(self.model_dump(by_alias=True), model.Scenario)

    def _make_script(self) -> tuple[Line, ...]:
        if not (self.assert_ or self.reference or self.turns):
            return ()
        prompt = Line(self.prompt, self.prompt_audio_url, None, to_expected(self.assert_), self.reference)
        return (prompt, *(turn.to_line() for turn in self.turns or ()))


FIELD_BY_CAMEL_CASE_KEY = {"expectedOutcome": "expected_outcome", "promptAudioUrl": "prompt_audio_url"}
DOCUMENT_FIELDS = ("version", "name", "description", "scenarios")
_FIELD_BY_KEY = {**{field: field for field in list_file_keys(Scenario)}, **FIELD_BY_CAMEL_CASE_KEY}


def parse_scenario_or_errors(values: Mapping[str, Any]) -> tuple[Scenario | None, list[tuple[str, str]]]:
    """Check the fields of one scenario, from a file or a request; return the scenario, or its errors by key.

    >>> parse_scenario_or_errors({"id": "a-b", "expectedOutcome": "x", "prompt": "p", "type": "task-completion"})[1]
    [('name', 'name is required')]
    """
    scenario, problems = parse_scenario_with_problems(values)
    return scenario, [(format_path(each.path), each.message) for each in problems if each.severity == "error"]


def parse_scenario_with_problems(values: Mapping[str, Any]) -> tuple[Scenario | None, list[UnplacedProblem]]:
    """Return the scenario (None if there is an error), with all errors and warnings."""
    reading = ScenarioFieldsReader(_FIELD_BY_KEY)
    scenario: Scenario | None = None
    fields = reading.read_fields(values)
    try:
        scenario = Scenario.model_validate(fields)
    except ValidationError as errors:
        for error in errors.errors(include_url=False):
            reading.add_error(values, error)
    reading.check_across_fields()
    refused = any(each.severity == "error" for each in reading.problems)
    return (None if refused else scenario), reading.problems


@dataclass(frozen=True, slots=True)
class LocatedScenario:
    """A valid scenario and its position."""

    scenario: Scenario
    path_in_document: str
    line: int
    key_nodes: Mapping[str, ScalarNode]
    file: str = ""

    @property
    def id(self) -> str:
        return self.scenario.id

    def find_field_position(self, field: str) -> TextPosition:
        """Return the position of a field's key, or of the ID if the field is not written."""
        return find_node_position(self.key_nodes.get(field, self.key_nodes["id"]))

    def make_problem(self, message: str, field: str = "id", severity: Severity = "error") -> Problem:
        """Return a problem with a field, at its key."""
        place, path = self.find_field_position(field), f"{self.path_in_document}.{field}".removeprefix(".")
        return Problem(message, path, place.line, place.column, self.file, severity=severity)


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector: a bulk load makes no garbage, and takes two to eight times longer with it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_bounded_file(path: Path) -> bytes:
    """Read a file, but only enough of it to detect that it is too large."""
    with path.open("rb") as file:
        return file.read(MAX_YAML_BYTES + 1)


def read_scenarios(data: bytes, problems: Problems, file: str = "") -> list[LocatedScenario]:
    """Read the scenarios in a file's bytes; add what does not fit to `problems`."""
    if len(data) > MAX_YAML_BYTES:
        message = f"the file is larger than {MAX_YAML_BYTES >> 20} MB; split it into several"
        problems.add(Problem(message, "yaml", 1, 1, file))
        return []
    text = decode_yaml(data, problems, file)
    return [] if text is None else parse_scenarios(text, problems, file)


def parse_scenarios(text: str, problems: Problems, file: str = "") -> list[LocatedScenario]:
    """Read the scenarios of YAML text; return the valid ones and add errors to `problems`."""
    with pause_garbage_collector():
        return _ScenariosReader(text, problems, file).read()


class _ScenariosReader(Reader):
    """Reads a document of scenarios."""

    def __init__(self, text: str, problems: Problems, file: str) -> None:
        super().__init__(text, problems, file)
        self._first: dict[str, ScalarNode] = {}
        self._indexed: dict[int, dict[str | int, tuple[ScalarNode, Node]]] = {}

    def read(self) -> list[LocatedScenario]:
        try:
            root = self.parse_root("a scenario, or a list under scenarios")
            if isinstance(root, MappingNode):
                return self.read_root_mapping(root)
            if root is not None:
                self.add_problem(
                    "yaml",
                    f"the document must be a mapping, found {self.describe_kind(root)}",
                    find_node_position(root),
                )
        except BadYaml as bad:
            self.add_problem("yaml", bad.message, bad.at)
        return []

    def read_root_mapping(self, root: MappingNode) -> list[LocatedScenario]:
        keys = [
            (self.document.get_text_as_typed(key), key, value)
            for key, value in root.value
            if isinstance(key, ScalarNode)
        ]
        lists = [value for name, _, value in keys if name == "scenarios"]
        if not lists:
            for name, key, value in keys:  # `scenario:` over a list is a typo, not a scenario without fields
                if (
                    name not in _FIELD_BY_KEY
                    and isinstance(value, SequenceNode)
                    and suggest_similar(name, ["scenarios"])
                ):
                    self.add_problem(name, describe_unknown_key(name, ["scenarios"]), find_node_position(key))
                    return []
            single = self.read_one(root, "")
            return [single] if single else []
        place = find_node_position(root)
        for name, key, value in self.iterate_entries(root, ""):
            if name == "scenarios":
                place = find_node_position(key)
            elif name not in DOCUMENT_FIELDS:
                self.add_problem(name, describe_unknown_key(name, DOCUMENT_FIELDS), find_node_position(key))
            elif not isinstance(value, ScalarNode):
                self.add_problem(
                    name, f"{name} must be text, found {self.describe_kind(value)}", find_node_position(key)
                )
        if not isinstance(lists[0], SequenceNode):
            self.add_problem("scenarios", f"scenarios must be a list, found {self.describe_kind(lists[0])}", place)
            return []
        if not lists[0].value:
            self.add_problem("scenarios", "scenarios must contain at least one scenario, found an empty list", place)
        read = (self.read_one(node, f"scenarios[{index}]") for index, node in enumerate(lists[0].value))
        return [each for each in read if each]

    def read_one(self, node: Node, path: str) -> LocatedScenario | None:
        if not isinstance(node, MappingNode):
            self.add_problem(
                path,
                f"a scenario must be a mapping of fields, found {self.describe_kind(node)}",
                find_node_position(node),
            )
            return None
        before = self.problems.errors
        prefix = f"{path}." if path else ""
        keys: dict[str, ScalarNode] = {}
        values = self.read_fields(node, prefix, _FIELD_BY_KEY, keys)
        scenario, problems = parse_scenario_with_problems(values)
        for each in problems:
            self.add_problem(
                f"{prefix}{format_path(each.path)}", each.message, self.find_position(node, each.path), each.severity
            )
        fields = {_FIELD_BY_KEY.get(name, name): key for name, key in keys.items()}
        if isinstance(case_id := values.get("id"), str):
            self.check_unique(case_id, f"{prefix}id", fields["id"])
        if scenario is None or self.problems.errors > before:
            return None
        return LocatedScenario(scenario, path, node.start_mark.line + 1, fields, self.file)

    def check_unique(self, case_id: str, path: str, key: ScalarNode) -> None:
        if case_id not in self._first:
            self._first[case_id] = key
            return
        first, again = find_node_position(self._first[case_id]).line, find_node_position(key).line
        where = f"lines {first} and {again}"
        if self._first[case_id] is key:  # the same node: an alias repeats an earlier scenario
            where = f"an alias repeats the scenario of line {again}"
        self.add_problem(path, f"duplicate id {describe_value(case_id)}: {where}", find_node_position(key))

    def read_fields(
        self, node: MappingNode, prefix: str, field_by_key: Mapping[str, str], key_nodes: dict[str, ScalarNode]
    ) -> dict[str, Any]:
        """Return the values of a mapping; add the node of each key to `key_nodes`."""
        values: dict[str, Any] = {}
        for name, key, value in self.iterate_entries(node, prefix):
            key_nodes[name] = key
            path, field = f"{prefix}{name}", field_by_key.get(name)
            if field is not None and field in KEYS_BY_NESTED_FIELD:
                values[name] = self.read_nested(path, key, value, field)
            elif field == "schema" or field in NON_TEXT_FIELDS:
                values[name] = self.read_json_value(path, key, value)
            else:
                values[name] = self.read_text_value(path, key, value)
        return values

    def read_nested(self, path: str, key: Node, node: Node, field: str) -> Any:
        """Return mappings of fields, in a list or not; read anything else, or a list too long, like any other value."""

        def one(path: str, key: Node, node: Node) -> Any:
            if isinstance(node, MappingNode) and not find_unsupported_tag(node):
                return self.read_fields(node, f"{path}.", KEYS_BY_NESTED_FIELD[field], {})
            return self.read_text_value(path, key, node)

        if (
            isinstance(node, SequenceNode)
            and len(node.value) <= MAX_ITEMS_BY_FIELD[field]
            and not find_unsupported_tag(node)
        ):
            return [one(f"{path}[{index}]", each, each) for index, each in enumerate(node.value)]
        return one(path, key, node)

    def read_json_value(self, path: str, key: Node, node: Node) -> Any:
        """Return a value as JSON would hold it, for fields that need not be text."""
        left = [MAX_SCHEMA_LENGTH]  # a schema has at most one value per character; aliases multiply a few into many

        def read(path: str, key: Node, node: Node) -> Any:
            left[0] -= 1
            if left[0] < 0 or is_null_node(node):
                return None
            if tag := find_unsupported_tag(node):
                self.add_problem(
                    path, f"the tag {tag} is not supported; write the value as it is", find_node_position(key)
                )
            if isinstance(node, SequenceNode):
                items = enumerate(node.value[: left[0] + 1])
                return [read(shorten_path(f"{path}[{index}]"), each, each) for index, each in items]
            if not isinstance(node, MappingNode):
                return self.read_literal(path, node)
            return {
                name: read(shorten_path(f"{path}.{name}"), inner, value)
                for name, inner, value in self.iterate_entries(node, f"{path}.")
            }

        value = read(path, key, node)
        if left[0] < 0:
            self.add_problem(path, f"a schema of more than {MAX_SCHEMA_LENGTH:,} characters", find_node_position(key))
            return None
        return value

    def read_literal(self, path: str, node: Node) -> Any:
        typed = self.document.get_text_as_typed(node) if isinstance(node, ScalarNode) else ""
        if node.tag != PLAIN_TAG:
            return typed
        try:
            return parse_literal(typed)
        except ValueError:
            self.add_problem(path, f"{describe_value(typed)} is too large for a number", find_node_position(node))
            return None

    def find_position(self, node: Node, path: jsonl.JsonPath) -> TextPosition:
        """Return the position of a path: a key or a list item; for a missing path, that of its parent."""
        place = find_node_position(node)
        for part in path:
            if isinstance(node, MappingNode):
                if id(node) not in self._indexed:  # a mapping may have many keys, each with a problem
                    pairs = (
                        (self.document.get_text_as_typed(key), (key, value))
                        for key, value in node.value
                        if isinstance(key, ScalarNode)
                    )
                    self._indexed[id(node)] = dict(reversed(list(pairs)))  # the first of duplicate keys
                if part not in self._indexed[id(node)]:
                    return find_node_position(node)
                key, node = self._indexed[id(node)][part]
                place = find_node_position(key)
            elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                place = find_node_position(node)
        return place

    def read_text_value(self, path: str, key: Node, node: Node) -> Any:
        items = node.value if isinstance(node, SequenceNode) else []
        for tag in filter(None, map(find_unsupported_tag, (node, *items))):
            self.add_problem(path, f"the tag {tag} is not supported; write the value as it is", find_node_position(key))
        if is_null_node(node):
            return None
        if isinstance(node, ScalarNode):
            return self.document.get_text_as_typed(node)
        if isinstance(node, SequenceNode):
            return [
                self.document.get_text_as_typed(item)
                if isinstance(item, ScalarNode) and not is_null_node(item)
                else None
                for item in node.value
            ]
        return dict.fromkeys(range(len(node.value)))


class _Dumper(yaml.CSafeDumper):
    """Quotes text that libyaml would break at NEL, LS or PS, or that Pramana would read as a number."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _represent_text(dumper: _Dumper, text: str) -> ScalarNode:
    style = '"' if needs_quotes_as_number(text) or any(each in text for each in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def format_scenarios(scenarios: Iterable[Scenario]) -> str:
    """Return YAML text that loads as the same scenarios."""
    return "".join(iterate_scenarios_yaml([[each.to_model_scenario() for each in scenarios]]))


def iterate_scenarios_yaml(chunks: Iterable[Iterable[model.Scenario]]) -> Iterator[str]:
    """Yield YAML text, chunk by chunk, that loads as the same scenarios."""
    yield dump_yaml({"version": "1.0"}) + "scenarios:"
    some = False
    for chunk in chunks:
        if entries_ := [_make_file_entry(msgspec.to_builtins(each)) for each in chunk]:
            yield ("" if some else "\n") + dump_yaml(entries_)
            some = True
    if not some:
        yield " []\n"


def _make_file_entry(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario or a turn as files have it, without null values."""
    entry = {name: value for name, value in values.items() if value is not None}
    if "turns" in entry:
        entry["turns"] = [_make_file_entry(each) for each in entry["turns"]]
    return entry


def dump_yaml(value: Any) -> str:
    """Return plain values as YAML text."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
