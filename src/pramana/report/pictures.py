"""Charts: rates with their intervals, histograms of times, and both over runs in; markup out. Pure functions.

Shapes stretch with the page; labels are text beside them in its normal size. Every chart has a text alternative with
its numbers.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pramana.analyse.spread import Bin, Spread
from pramana.analyse.summary import Rate
from pramana.report.figures import format_duration, format_percent, get_interval_bounds, list_percentile_bounds
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    join_html,
    render_link,
    render_rate_bar,
    render_rate_text,
    render_table,
    render_untrusted_text,
    tag,
)

MAX_TICKS = 6
MAX_UNFOLDED_ROWS = 12
"""Rows shown of a breakdown; a suite may have a thousand tags."""
MAX_FOLDED_ROWS = 500
"""Further rows of a breakdown, collapsed at first."""
_HISTOGRAM_HEIGHT = 100
_MIN_BAR_HEIGHT = 1.5
"""The least height of a bar, so that one result among thousands is visible."""
CHART_WIDTH = 320
_DATES_HEIGHT = 16
"""Space for the dates below the axis."""
_LEFT, _RIGHT, _PAD = 44, 6, 8
"""Space for the scale, for the last dot, and above and below the line."""
MAX_DESCRIBED_POINTS = 12
"""Points in the text alternative of a chart: the newest."""
MIN_DIFFERENCE_SPAN = 0.05
"""The least that each half of a difference's scale spans, so that a tiny difference does not look large."""


# ── Rates ──


def draw_rates(
    dimension: str,
    rows: Mapping[str, Rate],
    max_rows: int = MAX_UNFOLDED_ROWS,
    make_url: Callable[[str], str] | None = None,
) -> SafeHtml:
    """Return a table of pass rates by value, each with a bar, its interval and its counts.

    Rows beyond `max_rows` are collapsed. `make_url` returns the address that the name of a row links to.
    """
    groups = [[(_render_row_name(name, make_url), *_make_rate_row(rate))] for name, rate in rows.items()]
    return _draw_rates(dimension, (Column(dimension, is_row_header=True), *_RATE_COLUMNS), groups, max_rows)


def draw_rates_by_model(
    dimension: str,
    rows: Mapping[str, Mapping[str, Rate]],
    max_rows: int = MAX_UNFOLDED_ROWS,
    make_url: Callable[[str], str] | None = None,
) -> SafeHtml:
    """Return a table of pass rates by value, with one row per model."""
    groups: list[list[tuple[HtmlChild, ...]]] = []
    for value, by_model in rows.items():
        first, again = (
            _render_row_name(value, make_url),
            tag("span", render_untrusted_text(value, 200), class_="visually-hidden"),
        )
        groups.append(
            [
                (again if place else first, render_untrusted_text(model, 200), *_make_rate_row(rate))
                for place, (model, rate) in enumerate(by_model.items())
            ]
        )
    return _draw_rates(
        dimension, (Column(dimension, is_row_header=True), _MODEL_COLUMN, *_RATE_COLUMNS), groups, max_rows
    )


_MODEL_COLUMN = Column("Model")
_RATE_COLUMNS = (
    Column("Chart"),
    Column("Pass rate", is_numeric=True),
    Column("Passed, of results with a verdict", is_numeric=True),
)


def _draw_rates(
    dimension: str, columns: Sequence[Column], groups: Sequence[Sequence[tuple[HtmlChild, ...]]], max_rows: int
) -> SafeHtml:
    """Return a table of the first values' rows, and a collapsed one of further values below it."""

    def draw_row(caption: str, some: Sequence[Sequence[tuple[HtmlChild, ...]]]) -> SafeHtml:
        return render_table(caption, columns, (row for group in some for row in group), hide_caption=True)

    shown, folded = groups[:max_rows], groups[max_rows : max_rows + MAX_FOLDED_ROWS]
    more, rest = len(groups) - len(shown), len(groups) - len(shown) - len(folded)
    caption = f"Pass rate by {dimension.lower()}"
    hidden = f"{rest:,} more are not shown; the JSON export has them all."
    unfolded = (
        tag(
            "details",
            tag("summary", f"and {more:,} more"),
            draw_row(f"{caption}, more", folded),
            tag("p", hidden, class_="quiet small") if rest else None,
        )
        if more
        else None
    )
    several = any(each.label == _MODEL_COLUMN.label for each in columns)
    return tag("div", draw_row(caption, shown), unfolded, class_="rates by-model" if several else "rates")


def _render_row_name(name: str, make_url: Callable[[str], str] | None) -> HtmlChild:
    named = render_untrusted_text(name, 200)
    return render_link(make_url(name), named) if make_url else named


def _make_rate_row(rate: Rate) -> tuple[HtmlChild, ...]:
    beside = (
        tag("small", f"{rate.undecided_count:,} without a verdict", class_="quiet") if rate.undecided_count else None
    )
    return (
        render_rate_bar(rate.value, get_interval_bounds(rate)),
        render_rate_text(rate.value, get_interval_bounds(rate)),
        tag("span", f"{rate.passed:,} of {rate.scored_count:,}", beside),
    )


# ── Times ──


@dataclass(frozen=True, slots=True)
class TimeMark:
    """A time marked in a chart, such as a percentile."""

    label: str
    time_s: float


def draw_distribution(
    title: str, timed_items_name: str, bins: Sequence[Bin], spread: Spread, missing_note: str = "", max_count: int = 0
) -> SafeHtml:
    """Return the distribution of some times as a figure; `timed_items_name` names what was timed.

    `missing_note` describes what has no time, and so is not drawn. `max_count` is the highest bar of all charts that
    stand beside this one, so that their bars have one scale.
    """
    count = spread.count
    beside = tag("span", missing_note, class_="quiet small") if missing_note else None
    median, p95 = spread.median, spread.p95
    if median is None or p95 is None or count < 2:  # a histogram of one time would be a block
        said = f"{format_duration(spread.median)}, the only time measured" if count else "no times measured"
        words = tag("figcaption", tag("b", title), tag("span", said, class_="quiet"), beside)
        return tag("figure", words, class_="figure")
    marks = [TimeMark("p50", median), TimeMark("p95", p95)]
    said = (
        f"{count:,} {timed_items_name} · fastest {format_duration(spread.min)}, slowest {format_duration(spread.max)}"
    )
    bound = list_percentile_bounds({"p95": spread.p95_at_most})
    scale = f"time axis logarithmic, highest bar {max(each.count for each in bins):,}"
    return tag(
        "figure",
        tag("figcaption", tag("b", title), tag("span", f"{said} · {bound} · {scale}", class_="quiet small"), beside),
        draw_histogram(
            bins, marks, f"{title}: {said}. {_describe_histogram(bins, marks)}; {bound}; {scale}", max_count
        ),
        class_="figure",
    )


def _describe_histogram(bins: Sequence[Bin], marks: Iterable[TimeMark]) -> str:
    most = max(bins, key=lambda each: each.count)
    said = [f"{each.label} {format_duration(each.time_s)}" for each in marks]
    said.append(f"most, {most.count:,}, took {format_short_time(most.start)} to {format_short_time(most.end)}")
    return "; ".join(said)


def draw_histogram(
    bins: Sequence[Bin], marks: Sequence[TimeMark], text_alternative: str, full_height_count: int = 0
) -> SafeHtml:
    """Draw a histogram, with some times marked and others along the axis.

    Bins have `from`, `to` and `count` and are contiguous; all are drawn equally wide. `full_height_count` is the count
    that fills the height, if it is more than the highest bar.
    """
    full_height_count, width = max(full_height_count, *(each.count for each in bins)), 1000 / len(bins)
    drawn = []
    for place, each in enumerate(bins):
        if each.count:
            height = max(_MIN_BAR_HEIGHT, _HISTOGRAM_HEIGHT * each.count / full_height_count)
            told = f"{format_short_time(each.start)} to {format_short_time(each.end)}: {each.count:,}"
            drawn.append(
                tag(
                    "g",
                    tag("title", told),
                    tag(
                        "rect",
                        class_="fill",
                        x=f"{place * width:.2f}",
                        width=f"{width:.2f}",
                        y=f"{_HISTOGRAM_HEIGHT - height:.2f}",
                        height=f"{height:.2f}",
                    ),
                )
            )
    placed = [(mark, find_position_in_bins(bins, mark.time_s)) for mark in marks]
    lines = "".join(f"M{1000 * at:.2f} 0V{_HISTOGRAM_HEIGHT}" for _, at in placed)
    labelled = [(seconds, find_position_in_bins(bins, seconds)) for seconds in choose_ticks(bins)]
    axis = f"M0 {_HISTOGRAM_HEIGHT}H1000" + "".join(f"M{1000 * at:.2f} {_HISTOGRAM_HEIGHT}v4" for _, at in labelled)
    return tag(
        "div",
        (
            _render_labels([_draw_label_at_line(f"{mark.label} {format_duration(mark.time_s)}", at)])
            for mark, at in placed
        ),
        tag(
            "svg",
            drawn,
            tag("path", class_="axis", d=axis),
            tag("path", class_="whisker", d=lines),
            viewBox=f"0 0 1000 {_HISTOGRAM_HEIGHT + 4}",
            preserveAspectRatio="none",
            role="img",
            aria_label=text_alternative,
        ),
        _render_labels(_draw_centred_label(format_short_time(seconds), at) for seconds, at in labelled),
        class_="plot",
    )


def find_position_in_bins(bins: Sequence[Bin], seconds: float) -> float:
    """Return the position of a time along equally wide bins, from 0 to 1.

    >>> find_position_in_bins([Bin(1, 2, 0), Bin(2, 5, 0)], 2), find_position_in_bins([Bin(1, 100, 0)], 10)
    (0.5, 0.5)
    """
    for place, each in enumerate(bins):
        if seconds < each.end:
            start, end = each.start, each.end
            if seconds <= start:
                inside = 0.0
            elif not start:
                inside = seconds / end
            else:
                inside = math.log(seconds / start) / math.log(end / start)
            return (place + inside) / len(bins)
    return 1.0


def choose_ticks(bins: Sequence[Bin]) -> list[float]:
    """Return a few round bounds of bins as ticks.

    >>> choose_ticks([Bin(0.5, 1, 0), Bin(1, 2, 0), Bin(2, 5, 0)])
    [0.5, 1, 2, 5]
    """
    edges = [*(each.start for each in bins), bins[-1].end]
    for digits in ("125", "1"):
        found = [each for each in edges if f"{each:e}"[:8] in {f"{digit}.000000" for digit in digits}]
        if 2 <= len(found) <= MAX_TICKS:
            return found
    step = math.ceil((len(edges) - 1) / (MAX_TICKS - 1))
    return edges[::step]


def format_short_time(seconds: float) -> str:
    """Format a round time in as few characters as possible.

    >>> format_short_time(0.0315), format_short_time(2.0), format_short_time(0)
    ('31.5 ms', '2 s', '0')
    """
    if not seconds:
        return "0"
    return f"{seconds * 1000:.6g} ms" if seconds < 1 else f"{seconds:.6g} s"


# ── Labels and axes ──


def _render_labels(labels: Iterable[SafeHtml]) -> SafeHtml:
    return tag("div", labels, class_="labels", aria_hidden="true")


def _draw_label_at_line(text: str, x: float) -> SafeHtml:
    """Place words at a line so that they stay inside the chart: at the left edge they begin at the line."""
    return tag("span", text, style=f"left:{100 * x:.2f}%;transform:translateX(-{100 * x:.0f}%)")


def _draw_centred_label(text: str, x: float) -> SafeHtml:
    shift = 50 if 0.08 < x < 0.92 else 100 * x
    return tag("span", text, style=f"left:{100 * x:.2f}%;transform:translateX(-{shift:.0f}%)")


def draw_time_axis(seconds: float) -> SafeHtml:
    """Return a time axis from zero to so many seconds, with a few round times.

    A phone has room for six times in seconds, and for five in minutes.
    """
    most = 5.9 if seconds < 60 else 4.5
    step = next((each for each in _TIME_STEPS_S if seconds / each <= most), math.ceil(seconds / most / 600) * 600.0)
    count = int(seconds / step) + 1
    return _render_labels(
        _draw_centred_label(_format_clock(step * each), step * each / seconds if seconds else 0.0)
        for each in range(count)
    )


_TIME_STEPS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0)


def _format_clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"


# ── Trends and differences ──


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One run."""

    value: float
    interval_low: float | None = None
    interval_high: float | None = None
    started: datetime | None = None
    """The start of the run; unless every point has one, points are equally spaced and the axis has no dates."""
    href: str | None = None


def draw_rate_trend(points: Sequence[TrendPoint]) -> SafeHtml:
    """Draw a pass rate over runs, oldest first, with the band of its intervals, from 0 to 100 %."""
    said = ", ".join(format_percent(each.value) for each in points[-MAX_DESCRIBED_POINTS:])
    return _draw_trend(
        points, 1.0, ("0 %", "100 %"), f"Pass rate in the last runs, oldest first: {said}", format_percent, height=140
    )


def draw_time_trend(points: Sequence[TrendPoint]) -> SafeHtml:
    """Draw a time over runs, in seconds, oldest first, from zero to the longest."""
    top = max([0.001, *(each.value for each in points)])
    said = ", ".join(format_duration(each.value) for each in points[-MAX_DESCRIBED_POINTS:])
    return _draw_trend(
        points,
        top,
        ("0", format_duration(top)),
        f"Latency in the last runs, oldest first: {said}",
        format_duration,
        height=120,
    )


def _draw_trend(
    points: Sequence[TrendPoint],
    max_value: float,
    scale_labels: tuple[str, str],
    text_alternative: str,
    format_value: Callable[[float], str],
    height: int,
) -> SafeHtml:
    bottom = height - _PAD - _DATES_HEIGHT
    room = CHART_WIDTH - _LEFT - _RIGHT
    places = _find_point_positions(points)

    def x_of(place: int) -> float:
        return _LEFT + room * places[place]

    def y_of(value: float) -> float:
        return bottom - (bottom - _PAD) * min(1.0, max(0.0, value / max_value))

    ranged = [(x_of(place), each.interval_low, each.interval_high) for place, each in enumerate(points)]
    band = [(x, y_of(low), y_of(high)) for x, low, high in ranged if low is not None and high is not None]
    dots = [(x_of(place), y_of(each.value)) for place, each in enumerate(points)]
    drawn = [
        tag("path", class_="axis", d=f"M{_LEFT} {_PAD}H{CHART_WIDTH}M{_LEFT} {bottom}H{CHART_WIDTH}"),
        tag("text", scale_labels[1], class_="axis-text", x=_LEFT - 8, y=_PAD + 4, text_anchor="end"),
        tag("text", scale_labels[0], class_="axis-text", x=_LEFT - 8, y=bottom + 4, text_anchor="end"),
    ]
    if len(band) > 1:
        around = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
        drawn.append(tag("path", class_="band", d=f"{_format_svg_path(around)}Z"))
    for x, low, high in band[-1:]:  # the newest shows its interval, even if it is the only point
        drawn.append(tag("path", class_="whisker", d=f"M{x - 3:.1f} {low:.1f}h6m-3 0V{high:.1f}m-3 0h6"))
    if len(dots) > 1:
        drawn.append(tag("path", class_="stroke", d=_format_svg_path(dots)))
    drawn += _draw_dates(points, x_of, height)
    newest = len(points) - 1
    drawn += [
        _draw_point(each, dots[place], format_value, radius=4 if place == newest else 3)
        for place, each in enumerate(points)
        if place == newest or each.href
    ]
    role = "group" if any(each.href for each in points) else "img"  # links inside an image would not be reachable
    return tag(
        "svg", drawn, class_="picture", viewBox=f"0 0 {CHART_WIDTH} {height}", role=role, aria_label=text_alternative
    )


def _find_point_positions(points: Sequence[TrendPoint]) -> list[float]:
    """Return the positions of points along the axis, from 0 to 1: by time if every point has one.

    >>> dated = [TrendPoint(1, started=datetime(2026, 1, day)) for day in (1, 2, 5)]
    >>> [round(each, 2) for each in _find_point_positions(dated)]
    [0.0, 0.25, 1.0]
    >>> _find_point_positions([TrendPoint(1), TrendPoint(1), TrendPoint(1)]), _find_point_positions([TrendPoint(1)])
    ([0.0, 0.5, 1.0], [0.5])
    """
    times = [each.started.timestamp() for each in points if each.started]
    if len(times) == len(points) and times[-1] > times[0]:
        return [(each - times[0]) / (times[-1] - times[0]) for each in times]
    return [place / (len(points) - 1) if len(points) > 1 else 0.5 for place in range(len(points))]


def _draw_dates(points: Sequence[TrendPoint], x_of_point: Callable[[int], float], height: int) -> list[SafeHtml]:
    """Return the dates of the first and the last point below the axis; times if both are of one day."""
    first, last = points[0].started, points[-1].started
    if first is None or last is None:
        return []
    form = "%Y-%m-%d" if last.date() != first.date() else "%Y-%m-%d %H:%M"
    ends = [(first, x_of_point(0), "start"), (last, x_of_point(len(points) - 1), "end")]
    if len(points) == 1 or first.strftime(form) == last.strftime(form):
        ends = [(last, (ends[0][1] + ends[-1][1]) / 2, "middle")]
    return [
        tag("text", at.strftime(form), class_="axis-text", x=f"{x:.1f}", y=height - 4, text_anchor=anchor)
        for at, x, anchor in ends
    ]


def _draw_point(
    point: TrendPoint, position: tuple[float, float], format_value: Callable[[float], str], radius: int
) -> SafeHtml:
    """Draw a point; with an address, as a link to its run with a larger click target."""
    x, y = (f"{each:.1f}" for each in position)
    dot = tag("circle", class_="dot", cx=x, cy=y, r=radius)
    if point.href is None:
        return dot
    at = point.started.strftime("%Y-%m-%d %H:%M") if point.started else ""
    named = ", ".join(each for each in (at, format_value(point.value)) if each)
    around = tag("circle", class_="hit", cx=x, cy=y, r=9)
    return tag("a", tag("title", named), around, dot, href=point.href, aria_label=f"Run: {named}", class_="point")


def _format_svg_path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def draw_difference(difference: float, interval: Sequence[float]) -> SafeHtml:
    """Draw a difference of shares and its interval on a line with zero in the middle; it stretches to its container."""
    low, high = interval
    widest = max(abs(low), abs(high), abs(difference))
    half = max(MIN_DIFFERENCE_SPAN, -(-widest * 100 // 5) * 0.05)  # rounded up to five points

    def x_of(share: float) -> str:
        return f"{50 + 50 * share / half:.2f}"

    drawn = tag(
        "svg",
        tag("path", class_="axis", d="M0 10H100"),
        tag("path", class_="whisker", d="M50 0V20"),
        tag("rect", class_="fill", x=x_of(low), y=7, width=f"{50 * (high - low) / half:.2f}", height=6),
        tag("path", class_="whisker", d=f"M{x_of(low)} 5V15M{x_of(high)} 5V15"),
        tag("path", class_="stroke", d=f"M{x_of(difference)} 2V18"),
        class_="bar line",
        viewBox="0 0 100 20",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    ends = [tag("span", f"−{half * 100:.0f} points"), tag("span", "0"), tag("span", f"+{half * 100:.0f} points")]
    return join_html([drawn, tag("div", ends, class_="row spread tiny quiet", aria_hidden="true")])
