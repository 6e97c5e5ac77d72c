"""A table of three and more sides as text, for the terminal and for `str()` in Python: a view in, lines out."""

from collections.abc import Iterator, Sequence

from pramana.analyse.joint_comparison import join_names
from pramana.analyse.labels import shorten_names
from pramana.analyse.numbers import format_interval, format_loss, format_percent, format_signed_points
from pramana.app.comparison_tables import ComparisonTableView, PairView
from pramana.report.terminal import count_columns, pad_to_width, wrap_text

MAX_PROSE_COLUMNS = 100
"""The widest line of prose."""
MIN_NAME_COLUMNS = 24
"""The fewest columns for the names of a pair, beside its numbers."""
PAIR_HEADS = ("Points", "Interval", "p", "Holm p", "Cases")
_GAP = "  "


def render_comparison_table(table: ComparisonTableView, columns: int = 80) -> str:
    """Return the table within so many columns: what is proven, all sides by pass rate, then every pair."""
    return "\n".join(_iterate_lines(table, columns))


def _iterate_lines(table: ComparisonTableView, columns: int) -> Iterator[str]:
    prose = min(columns, MAX_PROSE_COLUMNS)
    yield wrap_text(table.heading, prose)
    yield ""
    yield wrap_text(table.sentence, prose)
    for note in (*table.notes, *table.judges):
        yield wrap_text(note, prose)
    yield ""
    yield from _iterate_side_lines(table, columns)
    yield ""
    yield from _iterate_pair_lines(table, columns)
    yield ""
    yield wrap_text(table.note_on_intervals, prose)
    if table.against is not None:
        yield wrap_text(describe_excluded_losses(table), prose)


def _iterate_side_lines(table: ComparisonTableView, columns: int) -> Iterator[str]:
    """Yield a line for each side; if the sides are of several runs, with the run and the model below."""
    heads = ("Pass rate (95 % interval)", "Passed")
    rows = [
        (
            f"{format_percent(each.pass_rate)}{f' ({format_interval(each.interval)})' if each.interval else ''}",
            f"{each.passed:,} of {each.answers:,}",
        )
        for each in table.sides
    ]
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
    room = columns - sum(widths) - len(_GAP) * len(widths)
    names = shorten_names([each.name for each in table.sides], room, count_columns)
    head = "Model" if len({each.run for each in table.sides}) == 1 else "Side"
    first = max(count_columns(head), *map(count_columns, names.values()))
    yield _join_cells(
        [pad_to_width(head, first), *(each.ljust(size) for each, size in zip(heads, widths, strict=True))]
    )
    for side, (rate, passed) in zip(table.sides, rows, strict=True):
        numbers = [rate.ljust(widths[0]), passed.rjust(widths[1])]
        yield _join_cells([pad_to_width(names[side.name], first), *numbers])
        if head == "Side":
            beside = "" if side.model == side.name else f"{side.model}, "
            yield wrap_text(f"{beside}{side.title}", columns, _GAP, _GAP)


def _iterate_pair_lines(table: ComparisonTableView, columns: int) -> Iterator[str]:
    """Yield a line for each pair, with numbers first, so that names of any length follow."""
    rows = [make_pair_cells(each) for each in table.pairs]
    widths = [max(map(len, cells)) for cells in zip(PAIR_HEADS, *rows, strict=True)]
    numbers = sum(widths) + len(_GAP) * len(widths)
    yield (
        "Differences of the pass rate, of the side named first from the other:"
        if table.against is None
        else wrap_text(f"Differences of the pass rate from {table.against}:", columns)
    )
    yield _join_cells([each.rjust(size) for each, size in zip(PAIR_HEADS, widths, strict=True)])
    for pair, cells in zip(table.pairs, rows, strict=True):
        line = _join_cells([each.rjust(size) for each, size in zip(cells, widths, strict=True)])
        room = max(columns - numbers, MIN_NAME_COLUMNS)
        first, *rest = wrap_text(describe_pair(pair, table.against), room).split("\n")
        yield f"{line.ljust(numbers)}{first}"
        yield from (" " * numbers + each for each in rest)


def make_pair_cells(pair: PairView) -> tuple[str, ...]:
    """Return the numbers of a pair, as `PAIR_HEADS` names them."""
    if pair.difference is None or pair.interval is None:
        return ("–", "–", "–", "–", f"{pair.cases:,}")
    low, high = map(format_signed_points, pair.interval)
    return (
        format_signed_points(pair.difference),
        f"{low} to {high}",
        format_p_value(pair.p_value),
        format_p_value(pair.adjusted_p_value),
        f"{pair.cases:,}",
    )


def describe_pair(pair: PairView, against: str | None = None) -> str:
    """Return who is better; where nothing is proven, with the names of the sides."""
    if pair.winner is not None:
        return pair.result
    return f"{pair.new}: {pair.result}" if against is not None else f"{pair.new} and {pair.base}: {pair.result}"


def describe_excluded_losses(table: ComparisonTableView) -> str:
    """Return for which sides a loss as large as the margin is excluded, compared with the reference."""
    loss = f"A loss of {format_loss(table.margin / 100)} or more against {table.against}"
    excluded = [each.new for each in table.pairs if each.loss_excluded]
    possible = [each.new for each in table.pairs if not each.loss_excluded]
    if not possible:
        return f"{loss} is excluded for every side."
    if not excluded:
        return f"{loss} is not excluded for any side."
    return f"{loss} is excluded for {join_names(excluded)}, not for {join_names(possible)}."


def format_p_value(p_value: float | None) -> str:
    """Format a p-value.

    >>> format_p_value(0.03125), format_p_value(0.99999), format_p_value(1e-9), format_p_value(None)
    ('0.031', '1', '< 0.0001', '–')
    """
    if p_value is None:
        return "–"
    return "< 0.0001" if p_value < 1e-4 else f"{p_value:.2g}"


def _join_cells(cells: Sequence[str]) -> str:
    return _GAP.join(cells).rstrip()
