"""Messages with holes: a template of plain data and the values of one call come in, plain data without holes goes out.

A hole is `{name}`, `{name|what stands there otherwise}` or `{name:text}`; two braces write one. A text that is nothing
but a hole becomes the value itself, a number or a list too; `:text` makes it text. An entry whose key ends in `?` is
left out where a value in it is unknown. `a.b[0]` leads to a value within plain data. Nothing here is ever evaluated.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote as percent

from msgspec import Struct

from pramana.errors import did_you_mean, quote

Path = tuple[str | int, ...]
ABSENT = object()
"""What `find` returns where there is nothing; null is something."""

_HOLE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[A-Za-z_][\w.\-\[\]]*")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d{1,6})\]|(\.)")


class BadTemplate(ValueError):
    """A text that is no path, or has a hole that is none."""


class Missing(LookupError):
    """A value that nobody gave."""


class Hole(Struct, frozen=True):
    """Where a value goes."""

    name: str
    text: bool = False
    otherwise: Any = ABSENT


class Scope(Struct, frozen=True):
    """Which names a template may use."""

    always: frozenset[str]
    """They have a value in every call."""
    maybe: frozenset[str] = frozenset()
    """They need something to stand there otherwise, or a key that ends in `?`."""
    roots: Mapping[str, bool] = {}
    """Names that lead further, as `message` in `message.id`; True: whether there is a value is seen when it is used."""

    def has(self, name: str) -> bool:
        root, dot, _ = name.partition(".")
        return name in self.always or name in self.maybe or (bool(dot) and root in self.roots)

    def sure(self, name: str) -> bool:
        return name in self.always or self.roots.get(name.partition(".")[0], False)


@lru_cache(4096)
def path_of(text: str) -> Path:
    """Return the steps of a path.

    >>> path_of("functions[0].name")
    ('functions', 0, 'name')
    """
    steps: list[str | int] = []
    place, after_dot = 0, True
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None or (found[3] and (after_dot or not steps)) or (found[1] and not after_dot):
            raise BadTemplate(f"{quote(text)} is not a path; write one such as functions[0].name")
        if found[1]:
            steps.append(found[1])
        elif found[2]:
            steps.append(int(found[2]))
        after_dot = bool(found[3])
        place = found.end()
    if after_dot:
        raise BadTemplate(f"{quote(text)} is not a path; write one such as functions[0].name")
    return tuple(steps)


def find(data: Any, path: Path) -> Any:
    """Return what stands at a path, or `ABSENT`."""
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
def parts_of(text: str) -> tuple[str | Hole, ...]:
    """Return the pieces of a text and the holes between them.

    >>> parts_of("Token {key}")
    ('Token ', Hole(name='key', text=False, otherwise=...))
    """
    parts: list[str | Hole] = []
    place, plain = 0, ""
    for found in _HOLE.finditer(text):
        plain += text[place : found.start()]
        place = found.end()
        if found[0] in ("{{", "}}"):
            plain += found[0][0]
            continue
        if found[1] is None:
            raise BadTemplate(f"single brace in {quote(text)}; double it to write a brace")
        if plain:
            parts.append(plain)
        plain = ""
        parts.append(_hole(found[1]))
    plain += text[place:]
    return (*parts, plain) if plain or not parts else tuple(parts)


def _hole(inner: str) -> Hole:
    name, bar, otherwise = inner.partition("|")
    bare = name.removesuffix(":text")
    if not _NAME.fullmatch(bare):
        raise BadTemplate(f"{{{inner}}} names no value; a name is as in {{model}}, and two braces write one".strip())
    path_of(bare)
    return Hole(bare, bare != name, _literal(otherwise) if bar else ABSENT)


def _literal(text: str) -> Any:
    """Return a number, true, false or null where the text is one."""
    try:
        value = json.loads(text, parse_constant=lambda _: text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, dict | list | str) else value


def names_in(template: Any) -> frozenset[str]:
    """Return the names of all holes of a template that has been checked."""
    return frozenset(part.name for text in _texts(template) for part in parts_of(text) if isinstance(part, Hole))


def _texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from _texts(value)
    elif isinstance(template, list):
        for value in template:
            yield from _texts(value)


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """Return the template with its holes filled; raises `Missing` with the name of a value that is unknown.

    >>> fill({"rate": "{rate}", "as text": "{rate:text}", "voice?": "{voice}"}, {"rate": 16000})
    {'rate': 16000, 'as text': '16000'}
    """
    if isinstance(template, str):
        return _filled(template, values)
    if isinstance(template, list):
        return [fill(each, values) for each in template]
    if not isinstance(template, Mapping):
        return template
    made: dict[str, Any] = {}
    for key, value in template.items():
        if not key.endswith("?"):
            made[key] = fill(value, values)
            continue
        try:
            made[key[:-1]] = fill(value, values)
        except Missing:
            continue
    return made


def _filled(text: str, values: Mapping[str, Any]) -> Any:
    parts = parts_of(text)
    if len(parts) == 1 and isinstance(parts[0], Hole):
        value = value_of(parts[0], values)
        return as_text(value) if parts[0].text else value
    return "".join(part if isinstance(part, str) else as_text(value_of(part, values)) for part in parts)


def value_of(hole: Hole, values: Mapping[str, Any]) -> Any:
    """Return what goes into a hole."""
    value = values.get(hole.name, ABSENT)
    if value is ABSENT and "." in hole.name:
        value = find(values, path_of(hole.name))
    if value is ABSENT or value is None:
        value = hole.otherwise
    if value is ABSENT:
        raise Missing(hole.name)
    return value


def as_text(value: Any) -> str:
    """Return a value as it stands within a text: as JSON, unless it is text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fill_url(text: str, values: Mapping[str, Any]) -> str:
    """Return an address: values are percent-encoded, but for one that begins it, which is an address itself.

    >>> fill_url("{base_url}/talk?agent={model}", {"base_url": "wss://host", "model": "a b"})
    'wss://host/talk?agent=a%20b'
    """
    made = ""
    for part in parts_of(text):
        if isinstance(part, str):
            made += part
        else:
            value = as_text(value_of(part, values))
            made += percent(value, safe="") if made else value
    return made


def problems(
    template: Any, path: str, scope: Scope, *, unsure: bool = False, alone: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the place and the sentence of all that is wrong in a template; with `unsure` any value may be unknown.

    One that stands `alone`, as an address does, is no entry that could be left out.
    """
    if isinstance(template, Mapping):
        for key, value in template.items():
            yield from problems(value, f"{path}.{key}", scope, unsure=unsure or str(key).endswith("?"))
    elif isinstance(template, list):
        for number, value in enumerate(template):
            yield from problems(value, f"{path}[{number}]", scope, unsure=unsure)
    elif isinstance(template, str):
        try:
            holes = [part for part in parts_of(template) if isinstance(part, Hole)]
        except BadTemplate as bad:
            yield path, str(bad)
            return
        for hole in holes:
            if not scope.has(hole.name):
                known = sorted({*scope.always, *scope.maybe, *(f"{root}.NAME" for root in scope.roots)})
                near = did_you_mean(hole.name, known)
                yield path, f"{{{hole.name}}} is not a value that can be used here{near}; there are {', '.join(known)}"
            elif hole.otherwise is ABSENT and not unsure and not scope.sure(hole.name):
                known_not = f"{{{hole.name}}} is not known in every call"
                otherwise = f"write {{{hole.name}|what stands there otherwise}}"
                if alone and hole.name == "key":
                    yield path, f"{known_not}; a key belongs in a header: Authorization: Bearer {{key}}"
                else:
                    yield path, f"{known_not}; {otherwise}{'' if alone else ', or end the key in ?'}"
