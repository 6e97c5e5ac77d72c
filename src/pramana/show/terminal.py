"""What a terminal shows: problems with source line and caret, and JSON for programs. It never trusts what it prints."""

import json
import unicodedata
from dataclasses import asdict
from shutil import get_terminal_size
from typing import Any

import click

from pramana.errors import Problem, visible

_COLOURS = {"error": "red", "warning": "yellow"}


def print_json(value: Any) -> None:
    """Print a value for programs to read: ASCII, so that any terminal, pipe and tool takes it."""
    click.echo(json.dumps(value, indent=2))


def as_data(problem: Problem) -> dict[str, Any]:
    """Return a problem as the API shows it."""
    fields = asdict(problem)
    return {key: fields[key] for key in ("file", "path", "message", "line", "column", "severity")}


def print_problem(problem: Problem, *, err: bool = False) -> None:
    """Print a problem as compilers do: place, path and message, then the line and a caret."""
    place = ":".join(visible(str(part)) for part in (problem.file, problem.line, problem.column) if part)
    label = click.style(f"{problem.severity}: ", fg=_COLOURS[problem.severity]) if problem.severity == "warning" else ""
    path = f"{visible(problem.path)}: " if problem.path else ""
    message = "\n".join(visible(line) for line in problem.message.split("\n"))
    click.echo(f"{click.style(place, bold=True)}: {path}{label}{message}", err=err)
    if problem.source.strip():
        click.echo(_pointed(problem), err=err)


def _pointed(problem: Problem) -> str:
    gutter = f"{problem.line:5} | "
    room = max(get_terminal_size().columns, 40) - len(gutter) - 2
    before = _cut(_shown(problem.source[: problem.caret - 1]), room * 2 // 3, keep_end=True)
    after = _cut(_shown(problem.source[problem.caret - 1 :]), room - _width(before))
    caret = " " * _width(before) + click.style("^", fg=_COLOURS[problem.severity], bold=True)
    return f"{gutter}{before}{after}\n{' ' * (len(gutter) - 2)}| {caret}"


def _cut(text: str, room: int, *, keep_end: bool = False) -> str:
    """Return as much of a text as fits, in one pass; three dots stand for the rest."""
    kept: list[str] = []
    taken = 0
    for each in reversed(text) if keep_end else text:
        taken += _width(each)
        if taken > room:
            kept[-1:] = ["…"]
            break
        kept.append(each)
    return "".join(reversed(kept) if keep_end else kept)


def _shown(text: str) -> str:
    return visible(text.replace("\t", "    "))


def _width(text: str) -> int:
    """Count the columns a text takes: two for wide characters, none for marks that combine."""
    return sum(
        0 if unicodedata.combining(each) or unicodedata.category(each) in ("Mn", "Me", "Cf")
        else 2 if unicodedata.east_asian_width(each) in "WF"
        else 1
        for each in text
    )  # fmt: skip


def github_annotation(problem: Problem) -> str:
    """Return a problem as a workflow command that GitHub shows beside the line."""

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: object) -> str:
        return data(str(text)).replace(":", "%3A").replace(",", "%2C")

    places = {"file": problem.file, "line": problem.line, "col": problem.column, "title": problem.path}
    place = ",".join(f"{key}={value(each)}" for key, each in places.items() if each)
    return f"::{problem.severity} {place}::{data(problem.message)}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "error"), counted(1200, "scenario")
    ('1 error', '1,200 scenarios')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
