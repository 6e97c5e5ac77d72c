"""Findings in, text out: the terminal's summary, Markdown, HTML, JUnit, CSV and JSON. Never calls a model or scores.

Every front end uses these renderers: `figures` words the numbers, `markup` and `pictures` draw them, and `export`
writes a run to a file.
"""

from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pramana.model import Run
    from pramana.report.exports import CaseResultPairs, FindRecordingPath


def export(
    format_name: str,
    run: "Run",
    results: "CaseResultPairs",
    out: IO[Any],
    find_recording_path: "FindRecordingPath | None" = None,
) -> None:
    """Write a run in one of the formats. Open files as UTF-8 with `newline=""`; HTML links recordings."""
    from pramana.report.exporters import find_exporter, write_run

    write_run(find_exporter(format_name), run, results, out, find_recording_path)
