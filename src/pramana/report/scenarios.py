"""Stored scenarios as a table: views in, lines of the terminal's width out."""

from collections.abc import Iterator, Sequence

from pramana.app.scenarios import ScenarioView
from pramana.errors import escape_control_characters
from pramana.report.terminal import fit_to_width, pad_to_width, text_width

LONGEST = {"id": 60, "name": 40, "tags": 40}
"""The most columns of a value in a table; an id is cut only if it does not fit on a line."""
GAP = "  "
_ONE_LINE = ("id", "name", "type", "language", "difficulty", "tags")
_TWO_LINES = ("id", "type", "language", "difficulty")


def render_scenarios(scenarios: Sequence[ScenarioView], columns: int) -> str:
    """Return a table with a header; if its lines are too long, names and tags are on separate lines."""
    rows = [
        {
            "id": escape_control_characters(each.id),
            "name": escape_control_characters(each.name),
            "type": each.type,
            "language": escape_control_characters(each.language),
            "difficulty": each.difficulty,
            "tags": escape_control_characters(" ".join(each.tags)),
        }
        for each in scenarios
    ]
    return "\n".join(_lines(rows, columns))


def _lines(rows: Sequence[dict[str, str]], columns: int) -> Iterator[str]:
    widths = {
        name: min(max(text_width(name), *(text_width(row[name]) for row in rows)), LONGEST.get(name, columns))
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
        yield f"{GAP}{fit_to_width(about, columns - len(GAP))}"


def _line(row: dict[str, str], names: Sequence[str], widths: dict[str, int]) -> str:
    return GAP.join(pad_to_width(row[name], widths[name]) for name in names).rstrip()
