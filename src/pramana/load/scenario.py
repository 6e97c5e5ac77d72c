"""VoiceBench scenarios: YAML text in, scenarios with their lines out, and every problem at its line and column.

The rules live in the pydantic model `Scenario`, so that a file, a request body and an editor's schema agree; this
module adds what only the text knows: where a key stands, whether it stands twice, which spelling was used. It never
raises for what a document holds, and it never stops at the first problem.
"""

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pramana.errors import Problem, did_you_mean, visible
from pramana.load.problems import Problems, found, one_of, shortened, with_source
from pramana.load.yaml12 import MAX_BYTES, At, BadYaml, Document, at, compose, is_absent, odd_tag, position
from pramana.model import Case, Difficulty, Facets, Source, Turn

ScenarioType = Literal["task-completion", "information-retrieval", "conversation-flow"]

_ID = re.compile(r"[a-z0-9-]+")
_HALF = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


# The messages are part of the format: programs compare them. The line shown below each says what was found.


def _wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("rule", "{message}", {"message": message})


def _required(value: Any, info: ValidationInfo) -> Any:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise _wrong(f"{info.field_name} is required")
    return _text(value, info)


def _text(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str):
        raise _wrong(f"{info.field_name} must be text")
    if not _is_unicode(value):
        raise _wrong(f"{info.field_name} holds half of a surrogate pair, which is not text")
    return value


def _is_unicode(value: str) -> bool:
    return value.isascii() or not _HALF.search(value)


def _id(value: str) -> str:
    if not _ID.fullmatch(value):
        raise _wrong("id must be lowercase alphanumeric with hyphens only")
    return value


def _name(value: str) -> str:
    if len(value) > 255:
        raise _wrong("name must be 255 characters or less")
    return value


def _language(value: str) -> str:
    if not 2 <= len(value) <= 10:
        raise _wrong("language must be 2 to 10 characters")
    return value


def _choice(field: str, choices: Sequence[str]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value not in choices:
            raise _wrong(
                f"Invalid {field} {found(value)}: expected {one_of(tuple(choices))}{did_you_mean(str(value), choices)}"
            )
        return value

    return check


def _audio_url(value: str) -> str:
    expected = "prompt_audio_url must be an http(s) URL or a path"
    if not value.strip() or _CONTROL.search(value):
        raise _wrong(f"{expected}, found {found(_CONTROL.sub('?', value))}")
    try:
        parts = urlsplit(value)
    except ValueError:
        raise _wrong(f"{expected}, found {found(value)}") from None
    has_scheme = "://" in value or (parts.scheme and len(parts.scheme) > 1)  # a single letter is a Windows drive
    if has_scheme and not (parts.scheme in ("http", "https") and parts.hostname):
        raise _wrong(f"{expected}, found {found(value)}")
    return value


def _tags(value: Any) -> Any:
    if not isinstance(value, list | tuple) or not all(
        isinstance(tag, str) and tag.strip() and _is_unicode(tag) for tag in value
    ):
        raise _wrong("tags must be a list of strings")
    return tuple(value)


def _default(default: Any) -> BeforeValidator:
    """Let null mean the default, as in the files."""
    return BeforeValidator(lambda value: default if value is None else value)


class Scenario(BaseModel):
    """One voice scenario: what a caller says, and what a good agent does."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="VoiceBench scenario")

    id: Annotated[
        str,
        AfterValidator(_id),
        BeforeValidator(_required),
        Field(description="Unique identifier", json_schema_extra={"pattern": "^[a-z0-9-]+$"}),
    ]
    name: Annotated[
        str,
        AfterValidator(_name),
        BeforeValidator(_required),
        Field(description="Display name", json_schema_extra={"minLength": 1, "maxLength": 255}),
    ]
    type: Annotated[
        ScenarioType,
        BeforeValidator(_choice("type", get_args(ScenarioType))),
        BeforeValidator(_required),
        Field(description="What the scenario tests"),
    ]
    prompt: Annotated[
        str,
        BeforeValidator(_required),
        Field(description="What is said to the agent", json_schema_extra={"minLength": 1}),
    ]
    expected_outcome: Annotated[
        str,
        BeforeValidator(_required),
        Field(description="What a good answer does", json_schema_extra={"minLength": 1}),
    ]
    prompt_audio_url: Annotated[
        Annotated[str, AfterValidator(_audio_url), BeforeValidator(_text)] | None,
        Field(description="Recorded prompt: an http(s) URL or a path"),
    ] = None
    tags: Annotated[tuple[str, ...], BeforeValidator(_tags), _default(()), Field(description="For filtering")] = ()
    language: Annotated[
        str,
        AfterValidator(_language),
        BeforeValidator(_text),
        _default("en"),
        Field(description="Language code", json_schema_extra={"minLength": 2, "maxLength": 10}),
    ] = "en"
    difficulty: Annotated[
        Difficulty,
        BeforeValidator(_choice("difficulty", get_args(Difficulty))),
        BeforeValidator(_text),
        _default("medium"),
        Field(description="easy: one intent; medium: some ambiguity; hard: several parts or edge cases"),
    ] = "medium"

    def to_case(self, source: Source | None = None) -> Case:
        """Return the case a run asks."""
        return Case(
            id=self.id,
            kind="scenario",
            turns=(Turn("user", self.prompt),),
            facets=Facets(self.type, self.difficulty, self.language, self.tags),
            name=self.name,
            expected_outcome=self.expected_outcome,
            prompt_audio_url=self.prompt_audio_url,
            source=source,
        )


FIELDS = tuple(Scenario.model_fields)
CAMEL_CASE = {"expectedOutcome": "expected_outcome", "promptAudioUrl": "prompt_audio_url"}
DOCUMENT_FIELDS = ("version", "name", "description", "scenarios")
_KEYS = {**{field: field for field in FIELDS}, **CAMEL_CASE}


def check_scenario(values: Mapping[str, Any]) -> tuple[Scenario | None, list[tuple[str, str]]]:
    """Check the fields of one scenario, from a file or from a request: the scenario, or what is wrong with which key.

    >>> check_scenario({"id": "a-b", "expectedOutcome": "x", "prompt": "p", "type": "task-completion"})[1]
    [('name', 'name is required')]
    """
    wrong = []
    fields: dict[str, Any] = {}
    for name, value in values.items():
        field = _KEYS.get(name)
        if field is None:
            wrong.append((name, _unknown(name, _KEYS)))
        elif field in fields:
            other = next(spelling for spelling in values if _KEYS.get(spelling) == field)
            wrong.append((name, f"{other} and {name} are two spellings of one key"))
        else:
            fields[field] = value
    try:
        scenario = Scenario.model_validate(fields)
    except ValidationError as errors:
        spelled = {_KEYS[name]: name for name in values if name in _KEYS}
        for error in errors.errors(include_url=False, include_input=False):
            field = str(error["loc"][0])
            message = f"{field} is required" if error["type"] == "missing" else error["msg"]
            wrong.append((spelled.get(field, field), message))
        return None, wrong
    return (None if wrong else scenario), wrong


def _unknown(name: str, known: Iterable[str]) -> str:
    hint = did_you_mean(name, known)
    if name == "<<":
        hint = "; YAML 1.2 has no merge keys, so write the fields out"
    return f"unknown key {found(name)}{hint}"


@dataclass(frozen=True, slots=True)
class Located:
    """A valid scenario and where it stands."""

    scenario: Scenario
    path: str
    line: int
    keys: Mapping[str, ScalarNode]

    def at(self, field: str) -> At:
        """Return the place of a field's key; of the id where the field is not written."""
        return at(self.keys.get(field, self.keys["id"]))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector: a bulk load makes no garbage, and scanning it costs two to eight times."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_bounded(path: Path) -> bytes:
    """Read a file, but no more of it than shows that it is too large."""
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def read_scenarios(data: bytes, problems: Problems, file: str = "") -> list[Located]:
    """Read the scenarios of a file's bytes; what does not fit goes to `problems`."""
    if len(data) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES >> 20} MB; split it into several"
        problems.add(Problem(message, "yaml", 1, 1, file))
        return []
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        place = position(before, len(before))
        byte = f"not UTF-8: byte 0x{data[error.start]:02x} cannot stand here; save the file as UTF-8"
        problems.add(Problem(byte, "yaml", place.line, place.column, file))
        return []
    return parse_scenarios(text, problems, file)


def parse_scenarios(text: str, problems: Problems, file: str = "") -> list[Located]:
    """Read the scenarios of YAML text: those that are valid come back, what is wrong goes to `problems`."""
    with collector_paused():
        return _Reader(text, problems, file).read()


def lines_of(text: str) -> list[str]:
    """Split text as editors do, and as positions count: at LF, CRLF and CR only."""
    return re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))


class _Reader:
    """One document being read."""

    def __init__(self, text: str, problems: Problems, file: str) -> None:
        self.text, self.problems, self.file = text, problems, file
        self._lines: list[str] | None = None
        self._first: dict[str, ScalarNode] = {}
        self.document: Document

    def problem(self, path: str, message: str, place: At) -> None:
        problem = Problem(message, shortened(path), place.line, place.column, self.file)
        if not self.problems.full():
            if self._lines is None:
                self._lines = lines_of(self.text)
            if place.line <= len(self._lines):
                problem = with_source(problem, self._lines[place.line - 1])
        self.problems.add(problem)

    def read(self) -> list[Located]:
        try:
            self.document = compose(self.text)
            root = self.document.root
            if root is None or is_absent(root):
                self.problem("yaml", "the document is empty; expected a scenario, or a list under scenarios", At(1, 1))
                return []
            if not isinstance(root, MappingNode):
                self.problem("yaml", f"the document must be a mapping, found {self.kind(root)}", at(root))
                return []
            return self.many(root)
        except BadYaml as bad:
            self.problem("yaml", bad.message, bad.at)
            return []

    def many(self, root: MappingNode) -> list[Located]:
        keys = [(self.document.text(key), key, value) for key, value in root.value if isinstance(key, ScalarNode)]
        lists = [value for name, _, value in keys if name == "scenarios"]
        if not lists:
            for name, key, value in keys:  # `scenario:` over a list is a slip of the key, not a scenario without fields
                if name not in _KEYS and isinstance(value, SequenceNode) and did_you_mean(name, ["scenarios"]):
                    self.problem(name, _unknown(name, ["scenarios"]), at(key))
                    return []
            single = self.one(root, "")
            return [single] if single else []
        top = list(self.entries(root, ""))
        first: dict[str, ScalarNode] = {}
        for name, key, value in top:
            if name in first:
                self.repeated(name, name, key, first[name])
            elif name not in DOCUMENT_FIELDS:
                self.problem(name, _unknown(name, DOCUMENT_FIELDS), at(key))
            elif name != "scenarios" and not isinstance(value, ScalarNode):
                self.problem(name, f"{name} must be text, found {self.kind(value)}", at(key))
            first.setdefault(name, key)
        place = at(first["scenarios"])
        if not isinstance(lists[0], SequenceNode):
            self.problem("scenarios", f"scenarios must be a list, found {self.kind(lists[0])}", place)
            return []
        if not lists[0].value:
            self.problem("scenarios", "scenarios must hold at least one scenario, found an empty list", place)
        read = (self.one(node, f"scenarios[{index}]") for index, node in enumerate(lists[0].value))
        return [each for each in read if each]

    def one(self, node: Node, path: str) -> Located | None:
        if not isinstance(node, MappingNode):
            self.problem(path, f"a scenario must be a mapping of fields, found {self.kind(node)}", at(node))
            return None
        before = self.problems.errors
        prefix = f"{path}." if path else ""
        values: dict[str, Any] = {}
        keys: dict[str, ScalarNode] = {}
        for name, key, value in self.entries(node, prefix):
            if name in keys:
                self.repeated(f"{prefix}{name}", name, key, keys[name])
            else:
                keys[name] = key
                values[name] = self.value(f"{prefix}{name}", key, value)
        scenario, wrong = check_scenario(values)
        for name, message in wrong:
            self.problem(f"{prefix}{name}", message, at(keys[name]) if name in keys else at(node))
        fields = {_KEYS.get(name, name): key for name, key in keys.items()}
        if isinstance(case_id := values.get("id"), str):
            self.unique(case_id, f"{prefix}id", fields["id"])
        if scenario is None or self.problems.errors > before:
            return None
        return Located(scenario, path, node.start_mark.line + 1, fields)

    def unique(self, case_id: str, path: str, key: ScalarNode) -> None:
        first = self._first.get(case_id)
        if first is None:
            self._first[case_id] = key
        elif first is key:  # the very same node: an alias stands for a scenario that is there already
            message = f"duplicate id {found(case_id)}: an alias repeats the scenario of line {at(key).line}"
            self.problem(path, message, at(key))
        else:
            message = f"duplicate id {found(case_id)}: lines {at(first).line} and {at(key).line}"
            self.problem(path, message, at(key))

    def entries(self, mapping: MappingNode, prefix: str) -> Iterator[tuple[str, ScalarNode, Node]]:
        """Yield key text, key node and value node; a key that is no text is a problem and passed over."""
        for key, value in mapping.value:
            if isinstance(key, ScalarNode):
                yield self.document.text(key), key, value
            else:
                place = at(key)
                self.problem(prefix.rstrip(".") or "yaml", "a key must be text, not a list or a mapping", place)

    def value(self, path: str, key: ScalarNode, node: Node) -> Any:
        items = node.value if isinstance(node, SequenceNode) else []
        for tag in filter(None, map(odd_tag, (node, *items))):
            self.problem(path, f"the tag {tag} is not supported; write the value as it is", at(key))
        if is_absent(node):
            return None
        if isinstance(node, ScalarNode):
            return self.document.text(node)
        if isinstance(node, SequenceNode):
            return [
                self.document.text(item) if isinstance(item, ScalarNode) and not is_absent(item) else None
                for item in node.value
            ]
        return dict.fromkeys(range(len(node.value)))

    def kind(self, node: Node) -> str:
        if is_absent(node):
            return "nothing"
        if isinstance(node, ScalarNode):
            return found(self.document.text(node))
        return found([None] * len(node.value)) if isinstance(node, SequenceNode) else "a mapping"

    def repeated(self, path: str, name: str, key: ScalarNode, first: ScalarNode) -> None:
        lines = f"lines {at(first).line} and {at(key).line}"
        self.problem(path, f"the key {visible(name)} stands twice: {lines}", at(key))


class _Dumper(yaml.CSafeDumper):
    """Writes text that libyaml would break at NEL, LS or PS in double quotes, where they are escaped."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _represent_text(dumper: _Dumper, text: str) -> ScalarNode:
    style = '"' if any(each in text for each in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def write_scenarios(scenarios: Iterable[Scenario], *, version: str = "1.0") -> str:
    """Return YAML text that reads back to the same scenarios."""
    entries_ = [scenario.model_dump(mode="json", exclude_none=True) for scenario in scenarios]
    return yaml.dump(
        {"version": version, "scenarios": entries_},
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
    )
