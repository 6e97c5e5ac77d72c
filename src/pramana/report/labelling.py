"""Labelling in a terminal: a reply to label in, lines out; and labels as CSV, both ways.

Control characters of prompts and replies are escaped. Neither the judge's verdict nor the model is shown or exported.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, NamedTuple

from pramana.analyse.numbers import pluralise
from pramana.app.judging import EXPORTED_COLUMNS, LabellingView, LabelRequest, LabelTaskView
from pramana.errors import InvalidInput, Problem, quote_text
from pramana.report.tables import to_csv_cell
from pramana.report.terminal import fit_to_width, wrap_text

MAX_COLUMNS = 80
LABELS_BY_KEY: Mapping[str, Any] = {"y": "yes", "n": "no", "u": "unsure"}
KEYS = "y yes   n no   u unsure   s skip   b back   q quit"
_INDENT = "  "


def render_labelling(view: LabellingView) -> Iterator[str]:
    """Yield the lines of the reply to label: progress, prompt, criterion and reply."""
    task = view.task
    if task is None:
        return
    again = f", now labelled {task.label}" if task.label else ""
    yield "─" * MAX_COLUMNS
    yield wrap_text(f"{view.labelled} of {view.drawn} labelled · {fit_to_width(task.case_id, 40)}{again}", MAX_COLUMNS)
    yield from _render_task(task)
    yield ""
    yield f"Does the reply meet it?   {KEYS}"


def _render_task(task: LabelTaskView) -> Iterator[str]:
    for turn in task.turns:
        yield from _render_section("Prompt" if turn.role == "user" else turn.role.capitalize(), turn.text)
    yield from _render_section(task.heading, task.question)
    for ideal in task.ideals:
        yield from _render_section("Example of a right reply", ideal)
    yield from _render_section("Reply", task.reply)
    if task.recording:
        yield from _render_section("Recording", task.recording)


def _render_section(heading: str, text: str) -> Iterator[str]:
    yield ""
    yield f"{heading}:"
    for line in (text.strip() or "(nothing)").replace("\r\n", "\n").split("\n"):
        yield wrap_text(line, MAX_COLUMNS, _INDENT, _INDENT).rstrip()


def write_labels(rows: Iterable[Mapping[str, Any]], out: IO[str]) -> None:
    """Write drawn replies as CSV, to be labelled elsewhere; the column `label` is for yes, no or unsure."""
    writer = csv.DictWriter(out, EXPORTED_COLUMNS)
    writer.writeheader()
    for row in rows:
        writer.writerow({name: to_csv_cell(value) for name, value in row.items()})


class ImportedLabels(NamedTuple):
    """The labels of a file."""

    labels: list[LabelRequest]
    unlabelled_count: int
    """Rows whose label is empty."""


def read_scoring_labels(path: Path) -> ImportedLabels:
    """Read labels from CSV with the columns `task` and `label`, optionally `note` and `rater`.

    Rows without a label are left out.
    """
    rows = _read_rows(path)
    found, problems = list[LabelRequest](), list[Problem]()
    first_lines: dict[tuple[str, str | None], tuple[int, str]] = {}
    for line, row in rows:
        label = (row["label"] or "").strip().lower()
        label = LABELS_BY_KEY.get(label, label)
        if not label:
            continue
        if label not in LABELS_BY_KEY.values():
            problems.append(
                Problem(f"expected yes, no or unsure, found {quote_text(label)}", "label", line=line, file=str(path))
            )
            continue
        task, rater = (row["task"] or "").strip(), (row.get("rater") or "").strip() or None
        first_line, first_label = first_lines.setdefault((task, rater), (line, label))
        if first_label != label:
            contradiction = (
                f"{quote_text(task)} is labelled {label} here and {first_label} in line {first_line}; keep one of them"
            )
            problems.append(Problem(contradiction, "label", line=line, file=str(path)))
            continue
        found.append(LabelRequest(task=task, label=label, note=row.get("note") or "", rater=rater))
    if problems:
        raise InvalidInput.from_problems(problems)
    if not found:
        raise InvalidInput(
            f"{path}: none of its {pluralise(len(rows), 'row')} has a label; write yes, no or unsure in the "
            "column label"
        )
    return ImportedLabels(found, len(rows) - len(found))


def _read_rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a CSV file by column, each with the line on which it begins."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read()
        with _fields_up_to(len(text)):
            table = csv.reader(io.StringIO(text, newline=""), strict=True)
            begin = 1
            columns = next(table, [])
            for name in ("task", "label"):
                if name not in columns:
                    raise InvalidInput(
                        f"{path}: the column {name} is missing; write one with: pramana judge label RUN --export FILE"
                    )
            if twice := [name for name, count in Counter(columns).items() if count > 1 and name]:
                raise InvalidInput(f"{path}: there are several columns {twice[0]}; keep one of them")
            rows, begin = [], table.line_num + 1
            for row in table:
                if row:
                    rows.append((begin, dict(zip_longest(columns, row[: len(columns)], fillvalue=""))))
                begin = table.line_num + 1
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not a CSV file in UTF-8: {error}") from None
    except csv.Error as error:
        said = "a quote is opened and not closed" if "unexpected end of data" in str(error) else str(error)
        raise InvalidInput(f"{path}, from line {begin} on: {said}") from None
    return rows


@contextmanager
def _fields_up_to(length: int) -> Iterator[None]:
    """Let fields of CSV be this long: a reply may exceed the limit of Python's reader, 131,072 characters."""
    before = csv.field_size_limit()
    csv.field_size_limit(max(before, length))
    try:
        yield
    finally:
        csv.field_size_limit(before)
