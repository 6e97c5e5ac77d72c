"""Pictures of numbers: rates with their intervals in, and times by the bin; markup out. Pure functions.

What is drawn stretches with the page; what is read is text beside it in its own size. Every picture has its numbers in
words, for whoever does not see it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pramana.analyse.spread import Bin, Spread
from pramana.analyse.summary import Rate
from pramana.report.figures import duration
from pramana.report.markup import Child, Column, Safe, foreign, rate_bar, rate_text, table, tag

MOST_TICKS = 6
SHOWN_ROWS = 12
"""Rows of a breakdown; a suite may have a thousand tags."""
_HEIGHT = 100
_LEAST = 1.5
"""Of a bar, so that one answer among thousands is seen."""


# ── Rates ──


def rates(what: str, rows: Mapping[str, Rate], most: int = SHOWN_ROWS) -> Safe:
    """Return a table of pass rates by the values of something, each with a bar, its interval and what it is of."""
    shown = list(rows.items())[:most]
    columns = (
        Column(what, head=True),
        Column("Chart"),
        Column("Passed", number=True),
        Column("Of those with a verdict", number=True),
    )
    drawn = table(f"Pass rate by {what.lower()}", columns, (_rate(*each) for each in shown), hidden=True)
    more = len(rows) - len(shown)
    return tag("div", drawn, tag("p", f"and {more:,} more", class_="quiet small") if more else None, class_="rates")


def _rate(name: str, rate: Rate) -> tuple[Child, ...]:
    beside = tag("small", f"{rate.undecided:,} without a verdict", class_="quiet") if rate.undecided else None
    return (
        foreign(name, 200),
        rate_bar(rate.value, bounds(rate)),
        rate_text(rate.value, bounds(rate)),
        tag("span", f"{rate.passed:,} of {rate.scored:,}", beside),
    )


def bounds(rate: Rate) -> tuple[float, float] | None:
    """Return both ends of a rate's interval."""
    return (rate.interval.low, rate.interval.high) if rate.interval else None


# ── Times ──


@dataclass(frozen=True, slots=True)
class Mark:
    """A time that is marked in a picture, as a percentile."""

    label: str
    seconds: float


def distribution(title: str, what: str, bins: Sequence[Bin], spread: Spread, missing: str = "") -> Safe:
    """Return how some times are spread, as a figure: `what` was timed.

    `missing` says what of it has no time, and so is not drawn.
    """
    count = spread.count
    beside = tag("span", missing, class_="quiet small") if missing else None
    median, p95 = spread.median, spread.p95
    if median is None or p95 is None or count < 2:  # a picture of one time is a block
        said = f"{duration(spread.median)}, the only one that was timed" if count else "nothing was timed"
        words = tag("figcaption", tag("b", title), tag("span", said, class_="quiet"), beside)
        return tag("figure", words, class_="figure")
    marks = [Mark("p50", median), Mark("p95", p95)]
    said = f"{count:,} {what} · fastest {duration(spread.min)}, slowest {duration(spread.max)}"
    highest = max(each.count for each in bins)
    scale = f"time axis logarithmic, highest bar {highest:,}"
    return tag(
        "figure",
        tag("figcaption", tag("b", title), tag("span", f"{said} · {scale}", class_="quiet small"), beside),
        histogram(bins, marks, f"{title}: {said}. {_in_words(bins, marks)}; {scale}"),
        class_="figure",
    )


def _in_words(bins: Sequence[Bin], marks: Iterable[Mark]) -> str:
    most = max(bins, key=lambda each: each.count)
    said = [f"{each.label} {duration(each.seconds)}" for each in marks]
    said.append(f"most, {most.count:,}, took {short(most.start)} to {short(most.end)}")
    return "; ".join(said)


def histogram(bins: Sequence[Bin], marks: Sequence[Mark], label: str) -> Safe:
    """Draw times by the bin, on the scale of the bins, with some times marked and others along the axis.

    Bins have `from`, `to` and `count`, without a gap; each is drawn equally wide.
    """
    highest, width = max(each.count for each in bins), 1000 / len(bins)
    drawn = []
    for place, each in enumerate(bins):
        if each.count:
            height = max(_LEAST, _HEIGHT * each.count / highest)
            told = f"{short(each.start)} to {short(each.end)}: {each.count:,}"
            drawn.append(
                tag(
                    "g",
                    tag("title", told),
                    tag(
                        "rect",
                        class_="fill",
                        x=f"{place * width:.2f}",
                        width=f"{width:.2f}",
                        y=f"{_HEIGHT - height:.2f}",
                        height=f"{height:.2f}",
                    ),
                )
            )
    placed = [(mark, position(bins, mark.seconds)) for mark in marks]
    lines = "".join(f"M{1000 * at:.2f} 0V{_HEIGHT}" for _, at in placed)
    bounds = [(seconds, position(bins, seconds)) for seconds in ticks(bins)]
    axis = f"M0 {_HEIGHT}H1000" + "".join(f"M{1000 * at:.2f} {_HEIGHT}v4" for _, at in bounds)
    return tag(
        "div",
        (_labels([_beside(f"{mark.label} {duration(mark.seconds)}", at)]) for mark, at in placed),
        tag(
            "svg",
            drawn,
            tag("path", class_="axis", d=axis),
            tag("path", class_="whisker", d=lines),
            viewBox=f"0 0 1000 {_HEIGHT + 4}",
            preserveAspectRatio="none",
            role="img",
            aria_label=label,
        ),
        _labels(_centred(short(seconds), at) for seconds, at in bounds),
        class_="plot",
    )


def position(bins: Sequence[Bin], seconds: float) -> float:
    """Return where a time stands along equally wide bins, from 0 to 1.

    >>> position([Bin(1, 2, 0), Bin(2, 5, 0)], 2), position([Bin(1, 100, 0)], 10)
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


def ticks(bins: Sequence[Bin]) -> list[float]:
    """Return a few round bounds of bins.

    >>> ticks([Bin(0.5, 1, 0), Bin(1, 2, 0), Bin(2, 5, 0)])
    [0.5, 1, 2, 5]
    """
    bounds = [*(each.start for each in bins), bins[-1].end]
    for digits in ("125", "1"):
        found = [each for each in bounds if f"{each:e}"[:8] in {f"{digit}.000000" for digit in digits}]
        if 2 <= len(found) <= MOST_TICKS:
            return found
    step = math.ceil((len(bounds) - 1) / (MOST_TICKS - 1))
    return bounds[::step]


def short(seconds: float) -> str:
    """Return a round time in as few characters as it takes.

    >>> short(0.0315), short(2.0), short(0)
    ('31.5 ms', '2 s', '0')
    """
    if not seconds:
        return "0"
    return f"{seconds * 1000:.6g} ms" if seconds < 1 else f"{seconds:.6g} s"


# ── What is read along a picture ──


def _labels(some: Iterable[Safe]) -> Safe:
    return tag("div", some, class_="labels", aria_hidden="true")


def _beside(words: str, at: float) -> Safe:
    """Place words at a line so that they never leave the picture: at its left end they begin there."""
    return tag("span", words, style=f"left:{100 * at:.2f}%;transform:translateX(-{100 * at:.0f}%)")


def _centred(words: str, at: float) -> Safe:
    shift = 50 if 0.08 < at < 0.92 else 100 * at
    return tag("span", words, style=f"left:{100 * at:.2f}%;transform:translateX(-{shift:.0f}%)")


def along(seconds: float) -> Safe:
    """Return an axis of a time that runs from its beginning to so many seconds, with few round times.

    On a telephone there is room for six times in seconds, and for five in minutes.
    """
    most = 5.9 if seconds < 60 else 4.5
    step = next((each for each in _STEPS if seconds / each <= most), math.ceil(seconds / most / 600) * 600.0)
    count = int(seconds / step) + 1
    return _labels(_centred(_clock(step * each), step * each / seconds if seconds else 0.0) for each in range(count))


_STEPS = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0)


def _clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"
