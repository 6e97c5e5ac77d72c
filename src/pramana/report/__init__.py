"""Findings as text: the terminal's summary, Markdown, HTML, JUnit, CSV and JSON. Nothing here asks, scores or decides.

Every front end uses these renderers: figures are worded in `figures`, drawn in `markup` and `pictures`; a run becomes a
file by `export`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pramana.model import Run
    from pramana.report.exports import Format, Recordings, Results


ENDINGS: "Mapping[str, Format]" = {
    ".html": "html", ".md": "markdown", ".json": "json", ".csv": "csv", ".xml": "junit",
}  # fmt: skip
"""The format that a file's ending stands for."""


def export(kind: "Format", run: "Run", results: "Results", out: TextIO, recordings: "Recordings | None" = None) -> None:
    """Write a run in one of the formats. Open files as UTF-8 with `newline=""`; a page links the `recordings`."""
    from pramana.report import exports

    if kind == "html":
        from pramana.report.html import write_html

        write_html(run, results, out, recordings)
    elif kind == "markdown":
        from pramana.report.markdown import write_markdown

        write_markdown(run, results, out)
    else:
        writers = {"json": exports.write_json, "csv": exports.write_csv, "junit": exports.write_junit}
        writers[kind](run, results, out)
