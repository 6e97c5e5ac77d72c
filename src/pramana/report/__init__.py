"""Findings as text: the terminal's summary, Markdown, HTML, JUnit, CSV and JSON. Nothing here asks, scores or decides.

Every front end uses these renderers: figures are worded in `figures`, drawn in `markup` and `pictures`; a run becomes a
file by `export`.
"""

from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pramana.model import Run
    from pramana.report.exports import Recordings, Results


def export(kind: str, run: "Run", results: "Results", out: IO[Any], recordings: "Recordings | None" = None) -> None:
    """Write a run in one of the formats. Open files as UTF-8 with `newline=""`; a page links the `recordings`."""
    from pramana.report.exporters import find_exporter, write_run

    write_run(find_exporter(kind), run, results, out, recordings)
