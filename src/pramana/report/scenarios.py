"""Scenarios of a store as a table: views come in, lines of a terminal's width go out."""

from collections.abc import Iterator, Sequence

from pramana.app.scenarios import ScenarioView
from pramana.errors import visible
from pramana.report.terminal import fitted, padded, width

LONGEST = {"id": 60, "name": 40, "tags": 40}
"""Columns that a value takes at most in a table; an id is cut only where no line holds it."""
GAP = "  "
_ONE_LINE = ("id", "name", "type", "language", "difficulty", "tags")
_TWO_LINES = ("id", "type", "language", "difficulty")


def render_scenarios(found: Sequence[ScenarioView], columns: int) -> str:
    """Return a table with a header; where its lines are too long, names and tags are on lines of their own."""
    rows = [
        {
            "id": visible(each.id),
            "name": visible(each.name),
            "type": each.type,
            "language": visible(each.language),
            "difficulty": each.difficulty,
            "tags": visible(" ".join(each.tags)),
        }
        for each in found
    ]
    return "\n".join(_lines(rows, columns))


def _lines(rows: Sequence[dict[str, str]], columns: int) -> Iterator[str]:
    widths = {
        name: min(max(width(name), *(width(row[name]) for row in rows)), LONGEST.get(name, columns))
        for name in _ONE_LINE
    }
    header = {name: name for name in _ONE_LINE}
    if sum(widths.values()) + len(GAP) * (len(_ONE_LINE) - 1) <= columns:
        yield from (_line(row, _ONE_LINE, widths) for row in (header, *rows))
        return
    beside = sum(widths[name] + len(GAP) for name in _TWO_LINES[1:])
    widths["id"] = min(widths["id"], columns - beside)
    yield _line(header, _TWO_LINES, widths)
    for row in rows:
        yield _line(row, _TWO_LINES, widths)
        about = GAP.join(filter(None, (row["name"], row["tags"])))
        yield f"{GAP}{fitted(about, columns - len(GAP))}"


def _line(row: dict[str, str], names: Sequence[str], widths: dict[str, int]) -> str:
    return GAP.join(padded(row[name], widths[name]) for name in names).rstrip()
