"""What a terminal shows: problems with source line and caret, and JSON for programs. It never trusts what it prints."""

import json
import math
import sys
from collections.abc import Iterable, Mapping
from shutil import get_terminal_size
from typing import Any

import click
from msgspec import Struct

from pramana.analyse.numbers import counted as counted  # noqa: PLC0414 - what a terminal shows, too
from pramana.errors import Problem, fold_repeats, visible

DEEPEST = 200
"""Levels of nesting that are written; no program of ours makes as many."""
NARROWEST = 60
"""Columns that tables and names are given at least."""
_COLOURS = {"error": "red", "warning": "yellow"}


def print_json(value: Any) -> None:
    """Print a value for programs to read: ASCII, so that any terminal, pipe and tool takes it."""
    click.echo(as_json(value, indent=2))


def plain(value: Any) -> Any:
    """Return views as plain data, under the names that their fields have in Python and in files."""
    if isinstance(value, Struct):
        return {each: plain(getattr(value, each)) for each in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def as_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that every program can read; a number that JSON does not have is null.

    >>> as_json({"at": [float("nan"), 1e308 * 10, 2.5]})
    '{"at": [null, null, 2.5]}'
    """
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except (ValueError, RecursionError):
        return json.dumps(_without_strange_numbers(value), indent=indent, allow_nan=False)


def _without_strange_numbers(value: Any, depth: int = 0) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping | list | tuple) and depth > DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): _without_strange_numbers(each, depth + 1) for key, each in value.items()}
    return [_without_strange_numbers(each, depth + 1) for each in value] if isinstance(value, list | tuple) else value


def as_data(problem: Problem) -> dict[str, Any]:
    """Return a problem as the API shows it."""
    return {key: getattr(problem, key) for key in ("file", "path", "message", "line", "column", "severity")}


def print_problem(problem: Problem, *, err: bool = False, end: str = "") -> None:
    """Print a problem as compilers do: place, path and message, then the line and a caret; `end` ends the message."""
    place = ":".join(visible(str(part)) for part in (problem.file, problem.line, problem.column) if part) or "pramana"
    label = click.style(f"{problem.severity}: ", fg=_COLOURS[problem.severity]) if problem.severity == "warning" else ""
    path = f"{visible(problem.path)}: " if problem.path else ""
    message = "\n".join(visible(line) for line in problem.message.split("\n"))
    said = told(f"{place}: {path}{click.unstyle(label)}{message}{end}", err=err)
    for plain, styled in ((place, click.style(place, bold=True)), (click.unstyle(label), label)):
        said = said.replace(plain, styled, 1) if plain else said
    click.echo(said, err=err)
    if problem.source.strip():
        click.echo(_pointed(problem), err=err)


def print_problems(problems: Iterable[Problem], *, fold_warnings: bool, err: bool = False) -> None:
    """Print problems in their order, equal warnings once with their count where these are folded."""
    folds = {id(each.first): each for each in fold_repeats(problems)} if fold_warnings else {}
    for problem in problems:
        if not fold_warnings or problem.severity == "error":
            print_problem(problem, err=err)
        elif fold := folds.get(id(problem)):
            print_problem(problem, err=err, end=fold.times)


def _pointed(problem: Problem) -> str:
    gutter = f"{problem.line:5} | "
    room = max(get_terminal_size().columns, 40) - len(gutter) - 2
    before = _cut(_shown(problem.source[: problem.caret - 1]), room * 2 // 3, keep_end=True)
    after = _cut(_shown(problem.source[problem.caret - 1 :]), room - width(before))
    caret = " " * width(before) + click.style("^", fg=_COLOURS[problem.severity], bold=True)
    return f"{gutter}{before}{after}\n{' ' * (len(gutter) - 2)}| {caret}"


def _cut(text: str, room: int, *, keep_end: bool = False) -> str:
    """Return as much of a text as fits, in one pass; three dots stand for the rest."""
    kept: list[str] = []
    taken = 0
    for each in reversed(text) if keep_end else text:
        taken += width(each)
        if taken > room:
            kept[-1:] = ["…"]
            break
        kept.append(each)
    return "".join(reversed(kept) if keep_end else kept)


def _shown(text: str) -> str:
    return visible(text.replace("\t", "    "))


def terminal_columns() -> int:
    """Return how wide the terminal is; a file or a pipe counts as 80 columns, and fewer than 60 as 60."""
    return max(get_terminal_size().columns, NARROWEST)


def width(text: str) -> int:
    """Count the columns a text takes: two for wide characters, none for marks that combine.

    >>> width("日本"), width("e\\u0301")
    (4, 1)
    """
    from rich.cells import cell_len

    return cell_len(text)


def fitted(text: str, columns: int) -> str:
    """Return text, visible and on one line, in at most so many columns; three dots stand for the rest.

    >>> fitted("two\\nlines", 7), fitted("日本語", 5)
    ('two\\\\nl…', '日本…')
    """
    from rich.cells import set_cell_size

    shown = visible(text[: 4 * columns])
    if len(text) <= 4 * columns and width(shown) <= columns:
        return shown
    return set_cell_size(shown, columns - 1).rstrip(" ") + "…"


def padded(text: str, columns: int) -> str:
    """Return text as `fitted`, filled up with spaces."""
    shown = fitted(text, columns)
    return shown + " " * (columns - width(shown))


def wrapped(text: str, columns: int = 80, first: str = "", rest: str = "") -> str:
    """Return text, visible, broken into lines of at most so many columns; the first and the others begin as said.

    >>> print(wrapped("one two 三四五", 9, "- ", "  "))
    - one two
      三四五
    """
    from rich.cells import chop_cells

    room = columns - max(width(first), width(rest))
    lines, line, taken = list[str](), "", 0
    for word in visible(text).split():
        for piece in chop_cells(word, room) if width(word) > room else [word]:
            wide = width(piece)
            if line and taken + 1 + wide > room:
                lines.append(line)
                line, taken = piece, wide
            else:
                line, taken = (f"{line} {piece}", taken + 1 + wide) if line else (piece, wide)
    return "\n".join(f"{rest if place else first}{each}" for place, each in enumerate([*lines, line]))


def told(sentence: str, *, err: bool = True) -> str:
    """Return a sentence as it is for a pipe or a file, and broken into lines for whoever sits at a terminal."""
    stream = sys.stderr if err else sys.stdout
    if stream is None or not stream.isatty():
        return sentence
    columns = max(get_terminal_size().columns, 40)
    return "\n".join(
        wrapped(line, columns, "", "  ") if width(line) > columns else line for line in sentence.split("\n")
    )


def github_annotation(problem: Problem) -> str:
    """Return a problem as a workflow command that GitHub shows beside the line."""

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: object) -> str:
        return data(str(text)).replace(":", "%3A").replace(",", "%2C")

    places = {"file": problem.file, "line": problem.line, "col": problem.column, "title": problem.path}
    place = ",".join(f"{key}={value(each)}" for key, each in places.items() if each)
    return f"::{problem.severity} {place}::{data(problem.message)}"
