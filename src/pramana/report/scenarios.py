"""Stored scenarios as a table: views in, lines of the terminal's width out."""

from collections.abc import Iterator, Sequence

from pramana.app.scenarios import ScenarioView
from pramana.errors import escape_control_characters
from pramana.report.terminal import count_columns, fit_to_width, pad_to_width

MAX_COLUMNS_BY_FIELD = {"id": 60, "name": 40, "tags": 40}
"""The most columns of a value in a table; an id is cut only if it does not fit on a line."""
COLUMN_GAP = "  "
_FIELDS_OF_WIDE_TABLE = ("id", "name", "type", "language", "difficulty", "tags")
_FIRST_LINE_FIELDS_OF_NARROW_TABLE = ("id", "type", "language", "difficulty")


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
    return "\n".join(_format_lines(rows, columns))


def _format_lines(rows: Sequence[dict[str, str]], columns: int) -> Iterator[str]:
    widths = {
        name: min(
            max(count_columns(name), *(count_columns(row[name]) for row in rows)),
            MAX_COLUMNS_BY_FIELD.get(name, columns),
        )
        for name in _FIELDS_OF_WIDE_TABLE
    }
    header = {name: name for name in _FIELDS_OF_WIDE_TABLE}
    if sum(widths.values()) + len(COLUMN_GAP) * (len(_FIELDS_OF_WIDE_TABLE) - 1) <= columns:
        yield from (_format_line(row, _FIELDS_OF_WIDE_TABLE, widths) for row in (header, *rows))
        return
    beside = sum(widths[name] + len(COLUMN_GAP) for name in _FIRST_LINE_FIELDS_OF_NARROW_TABLE[1:])
    widths["id"] = min(widths["id"], columns - beside)
    yield _format_line(header, _FIRST_LINE_FIELDS_OF_NARROW_TABLE, widths)
    for row in rows:
        yield _format_line(row, _FIRST_LINE_FIELDS_OF_NARROW_TABLE, widths)
        about = COLUMN_GAP.join(filter(None, (row["name"], row["tags"])))
        yield f"{COLUMN_GAP}{fit_to_width(about, columns - len(COLUMN_GAP))}"


def _format_line(row: dict[str, str], fields: Sequence[str], widths: dict[str, int]) -> str:
    return COLUMN_GAP.join(pad_to_width(row[name], widths[name]) for name in fields).rstrip()
