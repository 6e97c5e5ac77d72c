"""Descriptions of voice agents: YAML text in, a description as plain data out, every problem at its line and column.

The keys and types are those of the structs in `providers/voice/description.py`, which also has the other rules. This
module adds what depends on the text: the position of a key, and whether a plain `16000` is a number or a text. It never
raises for the content of a document, and never stops at the first problem.
"""

import re
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pramana.errors import InvalidInput, NotFound, Problem, suggest_similar
from pramana.load.problems import Problems, describe_value, join_alternatives
from pramana.load.yaml12 import (
    BadYaml,
    Reader,
    TextPosition,
    decode_yaml,
    find_node_position,
    find_unsupported_tag,
    is_null_node,
)
from pramana.providers.voice.description import Description, find_description_problems

MAX_DESCRIPTION_BYTES = 1 << 20
MAX_VALUES = 100_000
"""With every alias expanded; no description is that long."""
_INTEGER_RE = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER_RE = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_BOOLEAN_BY_SPELLING = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_StructType = TypeVar("_StructType", bound=Struct)


def load_agent(path: Path) -> dict[str, Any]:
    """Return the description in a file as plain data; raise `InvalidInput` with every problem at its place."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DESCRIPTION_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist; write websocket:FILE with a file that describes the agent") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    problems = Problems()
    description = read_agent(data, problems, str(path))
    problems.raise_errors()
    made: dict[str, Any] = msgspec.to_builtins(description)
    return made


def read_agent(data: bytes, problems: Problems, file: str = "") -> Description | None:
    """Read the description in a file's bytes; add what does not fit to `problems`."""
    if len(data) > MAX_DESCRIPTION_BYTES:
        problems.add(Problem(f"the file is larger than {MAX_DESCRIPTION_BYTES >> 20} MB", "yaml", 1, 1, file))
        return None
    text = decode_yaml(data, problems, file)
    return None if text is None else parse_agent(text, problems, file)


def is_agent_description(data: bytes) -> bool:
    """Return whether YAML describes an agent: it has a key `uplink` or `downlink`, and no scenario."""
    if len(data) > MAX_DESCRIPTION_BYTES or not re.search(rb"(?m)^(uplink|downlink)\s*:", data):
        return False
    return not re.search(rb"(?m)^(scenarios|prompt|expected_outcome|expectedOutcome)\s*:", data)


def parse_agent(text: str, problems: Problems, file: str = "") -> Description | None:
    """Read the description in YAML text; add what does not fit to `problems`."""
    return _DescriptionReader(text, problems, file).read()


class _DescriptionReader(Reader):
    """Reads a description: each value as the type of its field, and a value of any type by the rules of YAML 1.2."""

    def __init__(self, text: str, problems: Problems, file: str) -> None:
        super().__init__(text, problems, file)
        self._places: dict[str, TextPosition] = {}
        self._values = 0

    def read(self) -> Description | None:
        before = self.problems.errors
        try:
            root = self.parse_root("the description of an agent")
            if root is None:
                return None
            self._places[""] = find_node_position(root)
            description = self._read_struct(Description, root, "")
        except BadYaml as bad:
            self.add_problem("yaml", bad.message, bad.at)
            return None
        for path, message in find_description_problems(description) if description else ():
            self.add_problem(path, message, self._find_position(path))
        return None if self.problems.errors > before else description

    def _find_position(self, path: str) -> TextPosition:
        """Return the position of a path, or of the nearest parent that has one."""
        while path not in self._places:
            cut = max(path.rfind("."), path.rfind("["))
            path = path[:cut] if cut > 0 else ""
        return self._places[path]

    # ── By type ──

    def _read_value(self, field_type: Any, node: Node, path: str, position: TextPosition) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            raise BadYaml(f"with its aliases expanded, the description has more than {MAX_VALUES:,} values", position)
        self._places[path] = position
        if tag := find_unsupported_tag(node):
            return self._add_problem(path, f"the tag {tag} is not supported; write the value as it is", position)
        if field_type is Any:
            return self._read_untyped(node, path)
        origin, parts = get_origin(field_type), get_args(field_type)
        readers = {
            UnionType: self._read_union,
            Literal: self._read_choice,
            list: self._read_list,
            dict: self._read_mapping,
        }
        if origin in readers:
            return readers[origin](parts, node, path, position)
        if isinstance(field_type, type) and issubclass(field_type, Struct):
            return self._read_struct(field_type, node, path)
        return self._read_scalar(field_type, node, path, position)

    def _read_union(self, union_types: tuple[Any, ...], node: Node, path: str, position: TextPosition) -> Any:
        if type(None) in union_types:
            rest = next(kind for kind in union_types if kind is not type(None))
            return None if is_null_node(node) else self._read_value(rest, node, path, position)
        if isinstance(node, ScalarNode) and type(value := self._parse_scalar(node)) in union_types:
            return value
        return self._read_scalar(str if isinstance(node, ScalarNode) else union_types[0], node, path, position)

    def _read_choice(self, choices: tuple[str, ...], node: Node, path: str, position: TextPosition) -> Any:
        value = self.document.get_text_as_typed(node) if isinstance(node, ScalarNode) else None
        if value in choices:
            return value
        near = suggest_similar(value, choices) if value else ""
        return self._add_problem(
            path, f"expected {join_alternatives(choices)}, found {self.describe_kind(node)}{near}", position
        )

    def _read_list(self, item_types: tuple[Any, ...], node: Node, path: str, position: TextPosition) -> Any:
        if is_null_node(node):
            return []
        if not isinstance(node, SequenceNode):  # a single item needs no list
            here = path if isinstance(node, ScalarNode) else f"{path}[0]"
            return [self._read_value(item_types[0], node, here, position)]
        return [
            self._read_value(item_types[0], item, f"{path}[{number}]", find_node_position(item))
            for number, item in enumerate(node.value)
        ]

    def _read_mapping(self, item_types: tuple[Any, ...], node: Node, path: str, position: TextPosition) -> Any:
        if is_null_node(node):
            return {}
        if not isinstance(node, MappingNode):
            return self._add_problem(path, f"expected a mapping, found {self.describe_kind(node)}", position)
        return {
            name: self._read_value(item_types[-1], value, f"{path}.{name}", find_node_position(key))
            for name, key, value in self.iterate_entries(node, f"{path}." if path else "")
        }

    def _read_scalar(self, scalar_type: type, node: Node, path: str, position: TextPosition) -> Any:
        expected = {str: "text", int: "a whole number", bool: "true or false"}[scalar_type]
        if isinstance(node, ScalarNode) and not is_null_node(node):
            text = self.document.get_text_as_typed(node)
            if scalar_type is str:
                return text
            if type(value := self._parse_scalar(node)) is scalar_type:
                return value
        return self._add_problem(path, f"expected {expected}, found {self.describe_kind(node)}", position)

    def _read_struct(self, struct_type: type[_StructType], node: Node, path: str) -> _StructType | None:
        place = self._places[path]
        if not isinstance(node, MappingNode):
            self.add_problem(path or "yaml", f"expected a mapping of keys, found {self.describe_kind(node)}", place)
            return None
        before = self.problems.errors
        known = {each.name: each for each in msgspec.structs.fields(struct_type)}
        prefix = f"{path}." if path else ""
        values: dict[str, Any] = {}
        for name, key, value in self.iterate_entries(node, prefix):
            if name not in known:
                hint = suggest_similar(name, known) or f"; known keys: {', '.join(known)}"
                self.add_problem(
                    f"{prefix}{name}", f"unknown key {describe_value(name)}{hint}", find_node_position(key)
                )
            elif not (is_null_node(value) and not known[name].required):
                values[name] = self._read_value(known[name].type, value, f"{prefix}{name}", find_node_position(key))
        for name, each in known.items():
            if each.required and name not in values:
                self.add_problem(f"{prefix}{name}", f"{name} is required", place)
        return None if self.problems.errors > before else struct_type(**values)

    # ── Of any type ──

    def _read_untyped(self, node: Node, path: str) -> Any:
        if isinstance(node, ScalarNode):
            return self._parse_scalar(node)
        if isinstance(node, SequenceNode):
            return self._read_list((Any,), node, path, find_node_position(node))
        return self._read_mapping((Any,), node, path, find_node_position(node))

    def _parse_scalar(self, node: ScalarNode) -> Any:
        """Return a scalar as YAML 1.2 reads it; quoted scalars are text, and so is what JSON cannot represent."""
        text = self.document.get_text_as_typed(node)
        if node.style:
            return text
        if is_null_node(node):
            return None
        if _INTEGER_RE.fullmatch(text):
            return int(text)
        if _NUMBER_RE.fullmatch(text) and isfinite(number := float(text)):
            return number
        return _BOOLEAN_BY_SPELLING.get(text, text)

    def _add_problem(self, path: str, message: str, position: TextPosition) -> Any:
        """Add a problem; return None as the value, which is never used."""
        self.add_problem(path, message, position)
        return None
