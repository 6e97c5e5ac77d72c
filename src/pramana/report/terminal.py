"""Terminal output: problems with source line and caret, and JSON for programs. Escapes everything it prints."""

import json
import math
import sys
from collections.abc import Iterable, Mapping
from shutil import get_terminal_size
from typing import Any

import click
from msgspec import Struct

from pramana.analyse.numbers import pluralise as pluralise  # noqa: PLC0414 - re-exported for terminal output
from pramana.errors import Problem, escape_control_characters, fold_repeats

MAX_JSON_DEPTH = 200
"""Levels of nesting that are written; our own data never has as many."""
MIN_COLUMNS = 60
"""The fewest columns assumed for tables and names."""
_COLOURS = {"error": "red", "warning": "yellow"}


def print_json(value: Any) -> None:
    """Print a value as JSON for programs, in ASCII, so that every terminal, pipe and tool accepts it."""
    click.echo(to_json(value, indent=2))


def views_to_plain(value: Any) -> Any:
    """Return views as plain data, with the field names used in Python and in files."""
    if isinstance(value, Struct):
        return {each: views_to_plain(getattr(value, each)) for each in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {name: views_to_plain(each) for name, each in value.items()}
    return [views_to_plain(each) for each in value] if isinstance(value, list | tuple) else value


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as standard JSON; NaN and infinite numbers become null.

    >>> to_json({"at": [float("nan"), 1e308 * 10, 2.5]})
    '{"at": [null, null, 2.5]}'
    """
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except (ValueError, RecursionError):
        return json.dumps(_replace_non_finite(value), indent=indent, allow_nan=False)


def _replace_non_finite(value: Any, depth: int = 0) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping | list | tuple) and depth > MAX_JSON_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): _replace_non_finite(each, depth + 1) for key, each in value.items()}
    return [_replace_non_finite(each, depth + 1) for each in value] if isinstance(value, list | tuple) else value


def problem_to_data(problem: Problem) -> dict[str, Any]:
    """Return a problem as the API shows it."""
    return {key: getattr(problem, key) for key in ("file", "path", "message", "line", "column", "severity")}


def print_problem(problem: Problem, *, to_stderr: bool = False, end: str = "") -> None:
    """Print a problem as compilers do: position, path, message, then the line and a caret; `end` ends the message."""
    place = (
        ":".join(escape_control_characters(str(part)) for part in (problem.file, problem.line, problem.column) if part)
        or "pramana"
    )
    label = click.style(f"{problem.severity}: ", fg=_COLOURS[problem.severity]) if problem.severity == "warning" else ""
    path = f"{escape_control_characters(problem.path)}: " if problem.path else ""
    message = "\n".join(escape_control_characters(line) for line in problem.message.split("\n"))
    said = wrap_for_terminal(f"{place}: {path}{click.unstyle(label)}{message}{end}", on_stderr=to_stderr)
    for plain, styled in ((place, click.style(place, bold=True)), (click.unstyle(label), label)):
        said = said.replace(plain, styled, 1) if plain else said
    click.echo(said, err=to_stderr)
    if problem.source.strip():
        click.echo(_format_caret_lines(problem), err=to_stderr)


def print_problems(problems: Iterable[Problem], *, fold_warnings: bool, to_stderr: bool = False) -> None:
    """Print problems in order; with `fold_warnings`, equal warnings once with their count."""
    folds = {id(each.first): each for each in fold_repeats(problems)} if fold_warnings else {}
    for problem in problems:
        if not fold_warnings or problem.severity == "error":
            print_problem(problem, to_stderr=to_stderr)
        elif fold := folds.get(id(problem)):
            print_problem(problem, to_stderr=to_stderr, end=fold.times)


def _format_caret_lines(problem: Problem) -> str:
    gutter = f"{problem.line:5} | "
    room = max(get_terminal_size().columns, 40) - len(gutter) - 2
    before = _truncate(_make_visible(problem.source[: problem.caret - 1]), room * 2 // 3, keep_end=True)
    after = _truncate(_make_visible(problem.source[problem.caret - 1 :]), room - count_columns(before))
    caret = " " * count_columns(before) + click.style("^", fg=_COLOURS[problem.severity], bold=True)
    return f"{gutter}{before}{after}\n{' ' * (len(gutter) - 2)}| {caret}"


def _truncate(text: str, max_columns: int, *, keep_end: bool = False) -> str:
    """Return as much of a text as fits, in one pass; an ellipsis replaces the rest."""
    kept: list[str] = []
    taken = 0
    for each in reversed(text) if keep_end else text:
        taken += count_columns(each)
        if taken > max_columns:
            kept[-1:] = ["…"]
            break
        kept.append(each)
    return "".join(reversed(kept) if keep_end else kept)


def _make_visible(text: str) -> str:
    return escape_control_characters(text.replace("\t", "    "))


def get_terminal_columns() -> int:
    """Return the terminal's width: 80 columns for a file or a pipe, and at least 60."""
    return max(get_terminal_size().columns, MIN_COLUMNS)


def count_columns(text: str) -> int:
    """Count the columns of a text: two for wide characters, none for combining marks.

    >>> count_columns("日本"), count_columns("e\\u0301")
    (4, 1)
    """
    from rich.cells import cell_len

    return cell_len(text)


def fit_to_width(text: str, columns: int) -> str:
    """Return text on one line in at most so many columns, with invisible characters escaped; an ellipsis ends cut text.

    >>> fit_to_width("two\\nlines", 7), fit_to_width("日本語", 5)
    ('two\\\\nl…', '日本…')
    """
    from rich.cells import set_cell_size

    shown = escape_control_characters(text[: 4 * columns])
    if len(text) <= 4 * columns and count_columns(shown) <= columns:
        return shown
    return set_cell_size(shown, columns - 1).rstrip(" ") + "…"


def pad_to_width(text: str, columns: int) -> str:
    """Return text as `fit_to_width` does, padded with spaces."""
    shown = fit_to_width(text, columns)
    return shown + " " * (columns - count_columns(shown))


def wrap_text(text: str, columns: int = 80, first_prefix: str = "", other_prefix: str = "") -> str:
    """Wrap text into lines of at most so many columns.

    `first_prefix` prefixes the first line, `other_prefix` the others.

    >>> print(wrap_text("one two 三四五", 9, "- ", "  "))
    - one two
      三四五
    """
    from rich.cells import chop_cells

    room = columns - max(count_columns(first_prefix), count_columns(other_prefix))
    lines, line, taken = list[str](), "", 0
    for word in escape_control_characters(text).split():
        for piece in chop_cells(word, room) if count_columns(word) > room else [word]:
            wide = count_columns(piece)
            if line and taken + 1 + wide > room:
                lines.append(line)
                line, taken = piece, wide
            else:
                line, taken = (f"{line} {piece}", taken + 1 + wide) if line else (piece, wide)
    return "\n".join(f"{other_prefix if place else first_prefix}{each}" for place, each in enumerate([*lines, line]))


def wrap_for_terminal(sentence: str, *, on_stderr: bool = True) -> str:
    """Wrap a sentence for a terminal; leave it unchanged for a pipe or a file."""
    stream = sys.stderr if on_stderr else sys.stdout
    if stream is None or not stream.isatty():
        return sentence
    columns = max(get_terminal_size().columns, 40)
    return "\n".join(
        wrap_text(line, columns, "", "  ") if count_columns(line) > columns else line for line in sentence.split("\n")
    )


def format_github_annotation(problem: Problem) -> str:
    """Return a problem as a workflow command that GitHub shows next to the line."""

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: object) -> str:
        return data(str(text)).replace(":", "%3A").replace(",", "%2C")

    places = {"file": problem.file, "line": problem.line, "col": problem.column, "title": problem.path}
    place = ",".join(f"{key}={value(each)}" for key, each in places.items() if each)
    return f"::{problem.severity} {place}::{data(problem.message)}"
