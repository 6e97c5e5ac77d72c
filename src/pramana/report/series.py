"""Charts of what is measured every day: values, bands, limits and marked days in; markup out. Pure functions.

Shapes stretch with the page; points and labels are text beside them, so that they keep their size. Points are links
that the arrow keys of a keyboard reach (`SERIES_KEYS_SCRIPT` of the page moves the focus); the group that contains them
has a text alternative with the newest values. Colour never carries meaning alone: notices and alarms have their signs.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from pramana.report.markup import SafeHtml, join_html, tag

PLOT_WIDTH, PLOT_HEIGHT = 1000, 200
MAX_LINKED_DAYS = 130
"""The most days of which each is a link; with more, only marked days and the newest one are."""
MAX_DESCRIBED_DAYS = 7
_PAD = 0.1
"""Room above and below the values, as a share of the height."""
MarkKind = Literal["notice", "alarm"]
MARK_SIGNS: Mapping[MarkKind, str] = {"notice": "!", "alarm": "✗"}


class SeriesPoint(Struct, frozen=True):
    """The value of one day."""

    day: date
    value: float
    mark: MarkKind | None = None
    """A level that was first reached on this day."""


class SeriesLimit(Struct, frozen=True):
    """A horizontal line that the values may cross."""

    label: str
    value: float


class Series(Struct, frozen=True):
    """What a chart shows of one measurement."""

    title: str
    points: tuple[SeriesPoint, ...]
    format_value: Callable[[float], str]
    min_span: float
    """The least that the scale spans, so that chance does not look large."""
    highest: float = math.inf
    """The highest possible value; the lowest is 0."""
    band: tuple[float, float] | None = None
    """The lowest and the highest value of the baseline."""
    limits: tuple[SeriesLimit, ...] = ()
    reference_days: tuple[date, ...] = ()
    baseline_days: tuple[date, date] | None = None
    missing_days: tuple[date, ...] = ()
    change_began_between: tuple[date, date] | None = None
    """The first and the last day on which a change may have begun."""


def draw_series(series: Series, first: date, last: date, make_url: Callable[[date], str] | None = None) -> SafeHtml:
    """Draw the days from `first` to `last`; `make_url` returns the address that a day links to."""
    frame = _Frame(series, first, last)
    drawn = tag(
        "svg",
        *_draw_areas(series, frame),
        *_draw_lines(series, frame),
        viewBox=f"0 0 {PLOT_WIDTH} {PLOT_HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    scale = tag(
        "div",
        tag("span", series.format_value(frame.high)),
        tag("span", series.format_value(frame.low)),
        class_="series-scale",
        aria_hidden="true",
    )
    role = "group" if make_url else "img"
    return tag(
        "div",
        scale,
        tag(
            "div",
            drawn,
            _draw_limit_labels(series, frame),
            _draw_points(series, frame, make_url),
            class_="series-plot",
            role=role,
            aria_label=describe_series(series, first, last),
            data_first=first.isoformat(),
            data_days=frame.day_count,
        ),
        _draw_dates(frame),
        class_="series",
    )


def describe_series(series: Series, first: date, last: date) -> str:
    """Return the text alternative of a chart: its newest values, its baseline and its marked days.

    >>> points = tuple(SeriesPoint(date(2026, 1, day), value) for day, value in ((1, 0.5), (2, 0.25)))
    >>> describe_series(Series("pass rate", points, "{:.0%}".format, 0.1), date(2026, 1, 1), date(2026, 1, 2))
    'pass rate from 2026-01-01 to 2026-01-02, newest last: 50%, 25%'
    """
    shown = [each for each in series.points if first <= each.day <= last]
    newest = ", ".join(series.format_value(each.value) for each in shown[-MAX_DESCRIBED_DAYS:]) or "no values"
    of = "" if len(shown) <= MAX_DESCRIBED_DAYS else f" of {len(shown)} days"
    said = [f"{series.title} from {first} to {last}, newest{of} last: {newest}"]
    if series.band:
        said.append(f"baseline {' to '.join(map(series.format_value, series.band))}")
    said += [f"{each.mark} on {each.day}" for each in shown if each.mark]
    if series.change_began_between:
        said.append(f"the change began between {' and '.join(map(str, series.change_began_between))}")
    return "; ".join(said)


class _Frame:
    """The scales of a chart: days from left to right, values from bottom to top."""

    def __init__(self, series: Series, first: date, last: date) -> None:
        self.first, self.last = first, last
        self.day_count = max(1, (last - first).days + 1)
        values = [each.value for each in series.points if first <= each.day <= last]
        values += [*(series.band or ()), *(each.value for each in series.limits)]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        missing = max(0.0, series.min_span - (high - low)) / 2
        low, high = low - missing, high + missing
        room = _PAD * (high - low)
        low, high = low - room, high + room
        if low < 0:
            low, high = 0.0, high - low
        if high > series.highest:
            low, high = max(0.0, low - (high - series.highest)), series.highest
        self.low, self.high = low, high

    def contains(self, day: date) -> bool:
        return self.first <= day <= self.last

    def x_share(self, day: date) -> float:
        """Return the position of a day, from 0 to 1."""
        return ((day - self.first).days + 0.5) / self.day_count

    def y_share(self, value: float) -> float:
        """Return the position of a value from the top, from 0 to 1."""
        return (self.high - value) / (self.high - self.low) if self.high > self.low else 0.5

    def x(self, day: date, side: float = 0.0) -> float:
        """Return the position of a day in the drawing; `side` is −½ for its beginning and ½ for its end."""
        return PLOT_WIDTH * min(1.0, max(0.0, self.x_share(day) + side / self.day_count))

    def y(self, value: float) -> float:
        return PLOT_HEIGHT * self.y_share(value)

    def draw_days(self, first: date, last: date, class_: str) -> SafeHtml | None:
        """Draw a stretch of days over the whole height; None outside the chart."""
        if last < self.first or first > self.last:
            return None
        left, right = self.x(first, -0.5), self.x(last, 0.5)
        return tag("rect", class_=class_, x=f"{left:.1f}", y=0, width=f"{right - left:.1f}", height=PLOT_HEIGHT)


def _draw_areas(series: Series, frame: _Frame) -> Iterator[SafeHtml | None]:
    if series.reference_days:
        yield frame.draw_days(series.reference_days[0], series.reference_days[-1], "reference-days")
    if series.baseline_days:
        yield frame.draw_days(*series.baseline_days, "baseline-days")
    if series.change_began_between:
        yield frame.draw_days(*series.change_began_between, "changed-days")
    if series.band:
        low, high = series.band
        top = frame.y(high)
        height = max(2.0, frame.y(low) - top)
        yield tag("rect", class_="band", x=0, y=f"{top:.1f}", width=PLOT_WIDTH, height=f"{height:.1f}")


def _draw_lines(series: Series, frame: _Frame) -> Iterator[SafeHtml]:
    yield tag("path", class_="axis", d=f"M0 {PLOT_HEIGHT}H{PLOT_WIDTH}M0 0H{PLOT_WIDTH}")
    for each in series.limits:
        yield tag("path", class_="limit", d=f"M0 {frame.y(each.value):.1f}H{PLOT_WIDTH}")
    missing = [each for each in series.missing_days if frame.contains(each)]
    if missing:
        ticks = "".join(f"M{frame.x(each):.1f} {PLOT_HEIGHT}v-12" for each in missing)
        yield tag("path", class_="missing-days", d=ticks)
    if series.points:
        yield tag("path", class_="stroke", d="".join(_trace_points(series.points, frame)))


def _trace_points(points: Sequence[SeriesPoint], frame: _Frame) -> Iterator[str]:
    """Yield the path through the points, interrupted where days are missing."""
    shown = [each for each in points if frame.contains(each.day)]
    for place, each in enumerate(shown):
        follows = place > 0 and each.day - shown[place - 1].day == timedelta(days=1)
        yield f"{'L' if follows else 'M'}{frame.x(each.day):.1f} {frame.y(each.value):.1f}"


def _draw_limit_labels(series: Series, frame: _Frame) -> SafeHtml:
    """Return the names of the limits, each above its line; one that would cover another is left out."""
    placed = sorted((frame.y_share(each.value), each.label) for each in series.limits)
    kept = placed[:1] + [(top, label) for (before, _), (top, label) in pairwise(placed) if top - before > _PAD]
    return join_html(
        tag("span", label, class_="series-limit", style=f"top:{100 * top:.1f}%", aria_hidden="true")
        for top, label in kept
    )


def _draw_points(series: Series, frame: _Frame, make_url: Callable[[date], str] | None) -> SafeHtml:
    """Return the points; one of them takes the focus by Tab, the others by arrow keys."""
    shown = [each for each in series.points if frame.contains(each.day)]
    linked = len(shown) <= MAX_LINKED_DAYS
    drawn = []
    for place, each in enumerate(shown):
        is_newest = place == len(shown) - 1
        if not (linked or each.mark or is_newest):
            continue
        where = f"left:{100 * frame.x_share(each.day):.2f}%;top:{100 * frame.y_share(each.value):.2f}%"
        sign = tag("b", MARK_SIGNS[each.mark], aria_hidden="true") if each.mark else None
        class_ = " ".join(filter(None, ("day", each.mark, "newest" if is_newest else "")))
        said = f"{each.day}: {series.format_value(each.value)}{f', {each.mark}' if each.mark else ''}"
        if make_url is None:
            drawn.append(tag("span", sign, class_=class_, style=where, title=said))
        else:
            drawn.append(
                tag(
                    "a",
                    sign,
                    class_=class_,
                    style=where,
                    title=said,
                    href=make_url(each.day),
                    aria_label=f"{series.title}, {said}",
                    data_day=each.day.isoformat(),
                    tabindex=0 if is_newest else -1,
                )
            )
    return join_html(drawn)


def _draw_dates(frame: _Frame) -> SafeHtml:
    """Return the first, the middle and the last day below the chart."""
    middle = frame.first + timedelta(days=(frame.day_count - 1) // 2)
    days = [frame.first, middle, frame.last] if frame.day_count > 2 else [frame.first, frame.last]
    ends = [tag("span", each.isoformat()) for each in dict.fromkeys(days)]
    return tag("div", ends, class_="series-dates", aria_hidden="true")
