"""Message templates: a template of plain data and the values of a call come in, filled plain data goes out.

A placeholder is `{name}`, `{name|default}` or `{name:text}`; double braces escape a brace. A text that is just a
placeholder becomes the value itself, even a number or a list; `:text` converts it to text. An entry whose key ends in
`?` is left out if a value in it is unknown. `a.b[0]` is a path within plain data. Nothing here is ever evaluated.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote as percent

from msgspec import Struct

from pramana.errors import quote_text, suggest_similar

DataPath = tuple[str | int, ...]
ABSENT = object()
"""Returned by `find_at_path` if the path does not exist; null counts as a value."""

_PLACEHOLDER_RE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME_RE = re.compile(r"[A-Za-z_][\w.\-\[\]]*")
_STEP_RE = re.compile(r"([^.\[\]]+)|\[(\d{1,6})\]|(\.)")


class BadTemplate(ValueError):
    """A text that is not a valid path, or contains an invalid placeholder."""


class MissingValue(LookupError):
    """A value that was not given."""


class Placeholder(Struct, frozen=True):
    """A placeholder for a value."""

    name: str
    as_text: bool = False
    default: Any = ABSENT


class TemplateScope(Struct, frozen=True):
    """The names a template may use."""

    always_known: frozenset[str]
    """Names with a value in every call."""
    sometimes_known: frozenset[str] = frozenset()
    """Names that need a default, or an entry whose key ends in `?`."""
    is_always_known_by_path_root: Mapping[str, bool] = {}
    """Names with a path below them, as `message` in `message.id`; True: whether the value exists is checked on use."""

    def allows(self, name: str) -> bool:
        root, dot, _ = name.partition(".")
        return (
            name in self.always_known
            or name in self.sometimes_known
            or (bool(dot) and root in self.is_always_known_by_path_root)
        )

    def is_always_known(self, name: str) -> bool:
        return name in self.always_known or self.is_always_known_by_path_root.get(name.partition(".")[0], False)


@lru_cache(4096)
def parse_path(text: str) -> DataPath:
    """Return the steps of a path.

    >>> parse_path("functions[0].name")
    ('functions', 0, 'name')
    """
    steps: list[str | int] = []
    place, after_dot = 0, True
    while place < len(text):
        found = _STEP_RE.match(text, place)
        if found is None or (found[3] and (after_dot or not steps)) or (found[1] and not after_dot):
            raise BadTemplate(f"{quote_text(text)} is not a path; write one such as functions[0].name")
        if found[1]:
            steps.append(found[1])
        elif found[2]:
            steps.append(int(found[2]))
        after_dot = bool(found[3])
        place = found.end()
    if after_dot:
        raise BadTemplate(f"{quote_text(text)} is not a path; write one such as functions[0].name")
    return tuple(steps)


def find_at_path(data: Any, path: DataPath) -> Any:
    """Return the value at a path, or `ABSENT`."""
    for step in path:
        if isinstance(step, int):
            if not isinstance(data, list) or step >= len(data):
                return ABSENT
            data = data[step]
        elif isinstance(data, Mapping) and step in data:
            data = data[step]
        else:
            return ABSENT
    return data


@lru_cache(4096)
def parse_template(text: str) -> tuple[str | Placeholder, ...]:
    """Return the pieces of a text and the placeholders between them.

    >>> parse_template("Token {key}")
    ('Token ', Placeholder(name='key', as_text=False, default=...))
    """
    parts: list[str | Placeholder] = []
    place, plain = 0, ""
    for found in _PLACEHOLDER_RE.finditer(text):
        plain += text[place : found.start()]
        place = found.end()
        if found[0] in ("{{", "}}"):
            plain += found[0][0]
            continue
        if found[1] is None:
            raise BadTemplate(f"single brace in {quote_text(text)}; write two braces for a literal brace")
        if plain:
            parts.append(plain)
        plain = ""
        parts.append(_parse_placeholder(found[1]))
    plain += text[place:]
    return (*parts, plain) if plain or not parts else tuple(parts)


def _parse_placeholder(inner: str) -> Placeholder:
    name, bar, otherwise = inner.partition("|")
    bare = name.removesuffix(":text")
    if not _NAME_RE.fullmatch(bare):
        raise BadTemplate(
            f"{{{inner}}} names no value; write a name as in {{model}}, or two braces for a literal brace".strip()
        )
    parse_path(bare)
    return Placeholder(bare, bare != name, _parse_literal(otherwise) if bar else ABSENT)


def _parse_literal(text: str) -> Any:
    """Return a number, true, false or null if the text is one."""
    try:
        value = json.loads(text, parse_constant=lambda _: text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, dict | list | str) else value


def find_placeholder_names(template: Any) -> frozenset[str]:
    """Return the names of all placeholders of a checked template."""
    return frozenset(
        part.name for text in _iterate_texts(template) for part in parse_template(text) if isinstance(part, Placeholder)
    )


def _iterate_texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from _iterate_texts(value)
    elif isinstance(template, list):
        for value in template:
            yield from _iterate_texts(value)


def fill_template(template: Any, values: Mapping[str, Any]) -> Any:
    """Return the template with its placeholders filled; raise `MissingValue` with the name of an unknown value.

    >>> fill_template({"rate": "{rate}", "as text": "{rate:text}", "voice?": "{voice}"}, {"rate": 16000})
    {'rate': 16000, 'as text': '16000'}
    """
    if isinstance(template, str):
        return _fill_text(template, values)
    if isinstance(template, list):
        return [fill_template(each, values) for each in template]
    if not isinstance(template, Mapping):
        return template
    made: dict[str, Any] = {}
    for key, value in template.items():
        if not key.endswith("?"):
            made[key] = fill_template(value, values)
            continue
        try:
            made[key[:-1]] = fill_template(value, values)
        except MissingValue:
            continue
    return made


def _fill_text(text: str, values: Mapping[str, Any]) -> Any:
    parts = parse_template(text)
    if len(parts) == 1 and isinstance(parts[0], Placeholder):
        value = look_up_value(parts[0], values)
        return value_to_text(value) if parts[0].as_text else value
    return "".join(part if isinstance(part, str) else value_to_text(look_up_value(part, values)) for part in parts)


def look_up_value(placeholder: Placeholder, values: Mapping[str, Any]) -> Any:
    """Return the value for a placeholder."""
    value = values.get(placeholder.name, ABSENT)
    if value is ABSENT and "." in placeholder.name:
        value = find_at_path(values, parse_path(placeholder.name))
    if value is ABSENT or value is None:
        value = placeholder.default
    if value is ABSENT:
        raise MissingValue(placeholder.name)
    return value


def value_to_text(value: Any) -> str:
    """Return a value in its form within a text: as JSON, unless it is text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fill_url(text: str, values: Mapping[str, Any]) -> str:
    """Return a filled address; values are percent-encoded, except one at the start, which is an address itself.

    >>> fill_url("{base_url}/talk?agent={model}", {"base_url": "wss://host", "model": "a b"})
    'wss://host/talk?agent=a%20b'
    """
    made = ""
    for part in parse_template(text):
        if isinstance(part, str):
            made += part
        else:
            value = value_to_text(look_up_value(part, values))
            made += percent(value, safe="") if made else value
    return made


def find_template_problems(
    template: Any, location: str, scope: TemplateScope, *, may_be_unknown: bool = False, is_whole_text: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the place and description of every problem in a template; with `may_be_unknown` any value may be unknown.

    A template that is `is_whole_text`, as an address is, is not an entry that could be left out.
    """
    if isinstance(template, Mapping):
        for key, value in template.items():
            yield from find_template_problems(
                value, f"{location}.{key}", scope, may_be_unknown=may_be_unknown or str(key).endswith("?")
            )
    elif isinstance(template, list):
        for number, value in enumerate(template):
            yield from find_template_problems(value, f"{location}[{number}]", scope, may_be_unknown=may_be_unknown)
    elif isinstance(template, str):
        try:
            holes = [part for part in parse_template(template) if isinstance(part, Placeholder)]
        except BadTemplate as bad:
            yield location, str(bad)
            return
        for hole in holes:
            if not scope.allows(hole.name):
                known = sorted(
                    {
                        *scope.always_known,
                        *scope.sometimes_known,
                        *(f"{root}.NAME" for root in scope.is_always_known_by_path_root),
                    }
                )
                near = suggest_similar(hole.name, known)
                yield (
                    location,
                    f"{{{hole.name}}} is not a value that can be used here{near}; known values: {', '.join(known)}",
                )
            elif hole.default is ABSENT and not may_be_unknown and not scope.is_always_known(hole.name):
                known_not = f"{{{hole.name}}} is not set in every call"
                otherwise = f"write {{{hole.name}|DEFAULT}}, where DEFAULT is the value for the other calls"
                if is_whole_text and hole.name == "key":
                    yield location, f"{known_not}; a key belongs in a header: Authorization: Bearer {{key}}"
                else:
                    yield (
                        location,
                        f"{known_not}; {otherwise}{'' if is_whole_text else ', or end the name of the field in ?'}",
                    )
