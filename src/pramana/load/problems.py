"""Collects problems, bounded in number and in size, whatever the file holds."""

from collections.abc import Iterator
from dataclasses import replace

from pramana.errors import InvalidInput, Problem, Severity, quote_text
from pramana.jsonl import JsonPath

MAX_ERRORS = 1_000
EXCERPT_LENGTH = 160


class Problems:
    """A list that keeps the first problems and counts the rest."""

    def __init__(self, limit: int = MAX_ERRORS) -> None:
        self.limit = limit
        self.kept: list[Problem] = []
        self.errors = self.warnings = 0

    def add(self, problem: Problem) -> None:
        if problem.severity == "error":
            self.errors += 1
            number = self.errors
        else:
            self.warnings += 1
            number = self.warnings
        if number <= self.limit:
            self.kept.append(problem)

    def is_full(self, severity: Severity = "error") -> bool:
        """Return whether a further problem is only counted, so that its position need not be computed."""
        return (self.errors if severity == "error" else self.warnings) >= self.limit

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.kept)

    def __len__(self) -> int:
        return len(self.kept)

    def __repr__(self) -> str:
        return f"<{self.errors:,} errors, {self.warnings:,} warnings>"

    def raise_errors(self, file: str = "") -> None:
        """Raise `InvalidInput` if there are errors; `file` replaces their file."""
        if self.errors:
            errors = [replace(each, file=file or each.file) for each in self.kept if each.severity == "error"]
            raise InvalidInput.from_problems(errors, self.errors)

    @property
    def not_shown_count(self) -> int:
        return self.errors + self.warnings - len(self.kept)


def attach_source(problem: Problem, line_text: str) -> Problem:
    """Return the problem with the part of its line around the column, and the caret's position in that part."""
    caret = max(problem.column, 1)
    start = max(0, caret - 1 - EXCERPT_LENGTH // 2) if len(line_text) > EXCERPT_LENGTH else 0
    shown = line_text[start : start + EXCERPT_LENGTH]
    if start:
        shown, caret = "…" + shown, caret - start + 1
    if start + EXCERPT_LENGTH < len(line_text):
        shown += "…"
    return replace(problem, source=shown, caret=caret)


def format_path(path: JsonPath) -> str:
    """Return a path as messages show it.

    >>> format_path(("turns", 1, "say"))
    'turns[1].say'
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def shorten_path(path: str, limit: int = 160) -> str:
    """Return a path short enough for a line of a report: keys may be megabytes."""
    return path if len(path) <= limit else path[: limit - 1] + "…"


def describe_value(value: object) -> str:
    """Describe a value in a message: any value, briefly.

    >>> describe_value("medium"), describe_value([1, 2]), describe_value(None), describe_value(True)
    ('"medium"', 'a list of 2', 'null', 'true')
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quote_text(value, 40)
        case int() | float():
            return (
                str(value)
                if -(10**15) < value < 10**15
                else f"{value:.6e}"
                if isinstance(value, float)
                else "a huge number"
            )
        case list() | tuple():
            return f"a list of {len(value)}" if value else "an empty list"
        case dict():
            return "an object" if value else "an empty object"
        case _:
            return f"a {type(value).__name__}"


def join_alternatives(names: list[str] | tuple[str, ...]) -> str:
    """Join names into a list for a sentence.

    >>> join_alternatives(["easy", "medium", "hard"])
    'easy, medium or hard'
    """
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
