"""Labelling in a terminal: a reply to label in, lines out; and labels as CSV, both ways.

Control characters of prompts and replies are escaped. Neither the judge's verdict nor the model is shown or exported.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

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


def read_scoring_labels(path: Path) -> list[LabelRequest]:
    """Read labels from CSV with the columns `task` and `label`, optionally `note` and `rater`.

    Rows without a label are left out.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            missing = [name for name in ("task", "label") if name not in (table.fieldnames or ())]
            if missing:
                raise InvalidInput(
                    f"{path}: the column {missing[0]} is missing; write one with: pramana judge label RUN --export FILE"
                )
            rows = [(table.line_num, row) for row in table]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} is not a CSV file in UTF-8: {error}") from None
    found, problems = [], []
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
        rater = (row.get("rater") or "").strip() or None
        found.append(
            LabelRequest(task=(row["task"] or "").strip(), label=label, note=row.get("note") or "", rater=rater)
        )
    if problems:
        raise InvalidInput.from_problems(problems)
    return found
