"""YAML text in, nodes with positions out: libyaml's parser with the rules of YAML 1.2 and strict bounds.

A scalar stays the text that was typed: nothing here turns `no` into False or `010` into 8; the reader of a node decides
what it means. Depth, size and growth through aliases are bounded before anything is built, since libyaml itself
overflows the stack on deep nesting. Nothing is ever constructed from a tag.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml._yaml import (
    CParser,
)  # libyaml: part of PyYAML's wheels, whose pure-Python parser is 20 times slower
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pramana.errors import Problem, Severity, escape_control_characters
from pramana.load.problems import Problems, attach_source, describe_value, shorten_path

MAX_YAML_BYTES = 32 << 20
MAX_CHARACTERS = 32 << 20
MAX_DEPTH = 40
MAX_NODES = 1_000_000
MAX_SIZE_ADDED_BY_ALIASES = 10_000_000
"""Characters and values that aliases may add to the written ones."""

PLAIN_TAG = "?"
"""The tag of a plain scalar: neither quoted nor tagged."""
_NULL_SPELLINGS = frozenset(("", "~", "null"))
_KNOWN_TAGS = {
    ScalarNode: ("tag:yaml.org,2002:str", "!", PLAIN_TAG),
    SequenceNode: ("tag:yaml.org,2002:seq", "!"),
    MappingNode: ("tag:yaml.org,2002:map", "!"),
}
# Text in YAML 1.2, but line breaks in YAML 1.1, hence in libyaml.
_YAML_1_1_LINE_BREAKS = "\x85\u2028\u2029"


@dataclass(frozen=True, slots=True)
class TextPosition:
    """A place in the text; line and column count from one, columns in characters."""

    line: int
    column: int


class BadYaml(ValueError):
    """Text that is not one YAML document within bounds."""

    def __init__(self, message: str, position: TextPosition) -> None:
        super().__init__(message)
        self.message, self.at = message, position


class _Parser(CParser):
    """libyaml's composer with overridden hooks: tags are not guessed, and depth is counted on the way down."""

    depth = nodes = 0

    def descend_resolver(self, parent: Any, _index: Any) -> None:
        self.depth += 1
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise BadYaml(
                f"has more than {MAX_NODES:,} values; split it into several files", find_node_position(parent)
            )
        if self.depth > MAX_DEPTH:
            raise BadYaml(f"nested more than {MAX_DEPTH} levels deep", find_node_position(parent))

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def resolve(self, kind: type[Node], _value: Any, implicit: Any) -> str:
        return PLAIN_TAG if kind is ScalarNode and implicit[0] else _KNOWN_TAGS[kind][0]


@dataclass(frozen=True, slots=True)
class Document:
    """The root node of a document (None if it is empty), and its texts."""

    root: Node | None
    line_break_by_stand_in: dict[int, str]

    def get_text_as_typed(self, node: ScalarNode) -> str:
        """Return the text of a scalar as it was typed."""
        value: str = node.value
        return value.translate(self.line_break_by_stand_in) if self.line_break_by_stand_in else value


def parse_yaml(text: str) -> Document:
    """Parse one document.

    >>> document = parse_yaml("answer: no")
    >>> key, value = document.root.value[0]
    >>> document.get_text_as_typed(value), find_node_position(key)
    ('no', TextPosition(line=1, column=1))
    """
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_CHARACTERS:
        limit = f"{MAX_CHARACTERS >> 20} million characters"
        raise BadYaml(f"the text is longer than {limit}; split it into several files", TextPosition(1, 1))
    if place := _find_tag_directive(text):
        raise BadYaml("%TAG is not supported; remove it and all tags", place)
    stand_ins: dict[int, str] = {}
    if not text.isascii() and any(each in text for each in _YAML_1_1_LINE_BREAKS):
        text, stand_ins = _replace_line_breaks(text)
    try:
        parser = _Parser(text)
    except UnicodeEncodeError as error:
        raise BadYaml(
            "contains half of a surrogate pair, which is not valid text", find_position(text, error.start)
        ) from None
    try:
        root = parser.get_single_node()
    except yaml.reader.ReaderError as error:  # its position counts bytes
        before = text.encode()[: error.position].decode(errors="ignore")
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise BadYaml(f"the character U+{code:04X} is not allowed in YAML", find_position(text, len(before))) from None
    except UnicodeDecodeError:  # a tag may encode bytes as %ED%A0, which libyaml passes on
        raise BadYaml("a tag holds escapes that are not UTF-8", find_position(text, max(text.find("%"), 0))) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        index = min(mark.index, len(text)) if mark else 0  # at the end of the text libyaml counts a line too many
        raise BadYaml(_describe_yaml_error(error, text[index : index + 1]), find_position(text, index)) from None
    finally:
        parser.dispose()
    if root is not None and "*" in text:
        _check_alias_expansion(
            root, MAX_SIZE_ADDED_BY_ALIASES + 2 * len(text)
        )  # text written in full is never too much
    return Document(root, stand_ins)


def decode_yaml(data: bytes, problems: Problems, file: str) -> str | None:
    """Return the text of a YAML file's bytes; if they are not text, add a problem and return None."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        place = find_position(before, len(before))
        byte = f"not UTF-8: byte 0x{data[error.start]:02x} is invalid here; save the file as UTF-8"
        problems.add(Problem(byte, "yaml", place.line, place.column, file))
        return None


def split_lines(text: str) -> list[str]:
    """Split text at LF, CRLF and CR only, as editors and positions do."""
    return re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))


class Reader:
    """Reads one document: its text, its nodes, and the problems at their places."""

    document: Document

    def __init__(self, text: str, problems: Problems, file: str) -> None:
        self.text, self.problems, self.file = text, problems, file
        self._lines: list[str] | None = None

    def parse_root(self, expected_phrase: str) -> Node | None:
        """Parse the document; return its root, or None for an empty document, which is a problem."""
        self.document = parse_yaml(self.text)
        root = self.document.root
        if root is None or is_null_node(root):
            self.add_problem("yaml", f"the document is empty; expected {expected_phrase}", TextPosition(1, 1))
            return None
        return root

    def add_problem(self, path: str, message: str, position: TextPosition, severity: Severity = "error") -> None:
        """Add a problem, with its line unless it is only counted."""
        problem = Problem(message, shorten_path(path), position.line, position.column, self.file, severity=severity)
        if not self.problems.is_full(severity):
            if self._lines is None:
                self._lines = split_lines(self.text)
            if position.line <= len(self._lines):
                problem = attach_source(problem, self._lines[position.line - 1])
        self.problems.add(problem)

    def iterate_entries(self, mapping: MappingNode, path_prefix: str) -> Iterator[tuple[str, ScalarNode, Node]]:
        """Yield key text, key node and value node; report keys that are not text or are duplicates."""
        first: dict[str, ScalarNode] = {}
        for key, value in mapping.value:
            if not isinstance(key, ScalarNode):
                self.add_problem(
                    path_prefix.rstrip(".") or "yaml",
                    "a key must be text, not a list or a mapping",
                    find_node_position(key),
                )
                continue
            name = self.document.get_text_as_typed(key)
            if name in first:
                lines = f"lines {find_node_position(first[name]).line} and {find_node_position(key).line}"
                self.add_problem(
                    f"{path_prefix}{name}",
                    f"duplicate key {escape_control_characters(name[:60])}: {lines}",
                    find_node_position(key),
                )
                continue
            first[name] = key
            yield name, key, value

    def describe_kind(self, node: Node) -> str:
        """Return the kind of a node, for a message."""
        if is_null_node(node):
            return "nothing"
        if isinstance(node, ScalarNode):
            return describe_value(self.document.get_text_as_typed(node))
        return describe_value([None] * len(node.value)) if isinstance(node, SequenceNode) else "a mapping"


def _find_tag_directive(text: str) -> TextPosition | None:
    """Find a `%TAG` before the document: thousands of them take libyaml hours."""
    if not text.lstrip().startswith(("%", "#")):
        return None
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("%TAG"):
            return TextPosition(number, 1)
        if line.strip() and not line.startswith(("%", "#")):
            return None
    return None


def find_node_position(node: Node) -> TextPosition:
    """Return where a node starts."""
    return TextPosition(node.start_mark.line + 1, node.start_mark.column + 1)


def is_null_node(node: Node) -> bool:
    """Return whether a value counts as missing: `null`, `~` or nothing at all, unquoted."""
    return node.tag == PLAIN_TAG and node.value in _NULL_SPELLINGS


def find_unsupported_tag(node: Node) -> str | None:
    """Return a tag that changes the plain reading, such as `!!int` or `!secret`."""
    return None if node.tag in _KNOWN_TAGS[type(node)] else str(node.tag).replace("tag:yaml.org,2002:", "!!")


_ESCAPE_RE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")


def _replace_line_breaks(text: str) -> tuple[str, dict[int, str]]:
    """Replace NEL, LS and PS by characters that the text neither holds nor escapes; positions stay the same."""
    used = {*map(ord, set(text)), *(int(short or long, 16) for short, long in _ESCAPE_RE.findall(text))}
    unused = (code for code in (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE)) if code not in used)
    stand_ins = dict(zip(unused, _YAML_1_1_LINE_BREAKS, strict=False))
    if len(stand_ins) < len(_YAML_1_1_LINE_BREAKS):
        raise BadYaml(
            "the text contains U+0085, U+2028 or U+2029 and leaves no private-use character free to stand in for it; "
            "remove U+0085, U+2028 and U+2029",
            TextPosition(1, 1),
        )
    return text.translate({ord(each): code for code, each in stand_ins.items()}), stand_ins


def find_position(text: str, index: int) -> TextPosition:
    """Return the position of a character; lines end at LF, CRLF and CR."""
    lines = text[:index].replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return TextPosition(len(lines), len(lines[-1]) + 1)


def _describe_yaml_error(error: yaml.MarkedYAMLError, character: str) -> str:
    problem = error.problem or "cannot be read"
    if problem == "but found another document":
        return "several documents in one stream; put each into its own file, or all scenarios in one list"
    if "cannot start any token" in problem:
        what = (
            "a tab cannot indent; use spaces"
            if character == "\t"
            else f"a value cannot start with {character}; quote it"
        )
        return f"not valid YAML: {what}"
    if "mapping values are not allowed" in problem:
        return "not valid YAML: a colon and a space inside a plain text; put the text in quotes"
    context = f" {error.context}" if error.context else ""
    return f"not valid YAML: {problem}{context}"


def _check_alias_expansion(root: Node, limit: int) -> None:
    """Refuse a document that contains itself, or exceeds the limit when its aliases are expanded."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: Node) -> int:
        if isinstance(node, ScalarNode):
            return 1 + len(node.value)
        if id(node) in open_nodes:
            raise BadYaml("an alias makes this node contain itself", find_node_position(node))
        if id(node) not in sizes:
            open_nodes.add(id(node))
            parts = node.value if isinstance(node, SequenceNode) else [part for pair in node.value for part in pair]
            sizes[id(node)] = 1 + sum(map(size, parts))
            open_nodes.discard(id(node))
            if sizes[id(node)] > limit:
                raise BadYaml(
                    f"with its aliases expanded, this node has more than {limit:,} characters", find_node_position(node)
                )
        return sizes[id(node)]

    size(root)
