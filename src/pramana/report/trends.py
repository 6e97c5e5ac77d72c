"""Pictures of change: a rate or a time over runs, and a difference with its interval. Numbers in, drawings out.

Every drawing is said in words for who cannot see it, and the numbers that matter stand beside it as text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pramana.report.figures import duration, percent
from pramana.report.markup import Safe, join, tag

WIDTH = 320
_LEFT, _RIGHT, _PAD = 44, 6, 8
"""Room for the scale, for the last dot, and above and below the line."""
SAID = 12
"""Points that a drawing says in words: the newest."""
NARROWEST = 0.05
"""The least that each half of the scale of a difference spans, or nothing would look like much."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run."""

    value: float
    low: float | None = None
    high: float | None = None


def rate_trend(points: Sequence[Point]) -> Safe:
    """Draw a pass rate over runs, oldest first, with the band of its intervals, from none to all."""
    said = ", ".join(percent(each.value) for each in points[-SAID:])
    return _trend(points, 1.0, ("0 %", "100 %"), f"Pass rate in the last runs, oldest first: {said}", height=84)


def time_trend(points: Sequence[Point]) -> Safe:
    """Draw a time over runs, in seconds, oldest first, from zero to the longest."""
    top = max([0.001, *(each.value for each in points)])
    said = ", ".join(duration(each.value) for each in points[-SAID:])
    return _trend(points, top, ("0", duration(top)), f"Latency in the last runs, oldest first: {said}", height=56)


def _trend(points: Sequence[Point], top: float, scale: tuple[str, str], label: str, height: int) -> Safe:
    bottom = height - _PAD
    room = WIDTH - _LEFT - _RIGHT

    def across(place: int) -> float:
        return _LEFT + (room * place / (len(points) - 1) if len(points) > 1 else room / 2)

    def up(value: float) -> float:
        return bottom - (bottom - _PAD) * min(1.0, max(0.0, value / top))

    ranged = [(across(place), each.low, each.high) for place, each in enumerate(points)]
    band = [(x, up(low), up(high)) for x, low, high in ranged if low is not None and high is not None]
    dots = [(across(place), up(each.value)) for place, each in enumerate(points)]
    last = dots[-1]
    drawn = [
        tag("path", class_="axis", d=f"M{_LEFT} {_PAD}H{WIDTH}M{_LEFT} {bottom}H{WIDTH}"),
        tag("text", scale[1], class_="axis-text", x=_LEFT - 8, y=_PAD + 4, text_anchor="end"),
        tag("text", scale[0], class_="axis-text", x=_LEFT - 8, y=bottom + 4, text_anchor="end"),
    ]
    if len(band) > 1:
        around = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
        drawn.append(tag("path", class_="band", d=f"{_path(around)}Z"))
    for x, low, high in band[-1:]:  # the newest says how sure it is, also where it is the only one
        drawn.append(tag("path", class_="whisker", d=f"M{x - 3:.1f} {low:.1f}h6m-3 0V{high:.1f}m-3 0h6"))
    if len(dots) > 1:
        drawn.append(tag("path", class_="stroke", d=_path(dots)))
    drawn.append(tag("circle", class_="dot", cx=f"{last[0]:.1f}", cy=f"{last[1]:.1f}", r=4))
    return tag("svg", drawn, class_="picture", viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def difference_line(difference: float, interval: Sequence[float]) -> Safe:
    """Draw a difference of shares and its interval on a line with zero in the middle; it is stretched to its place."""
    low, high = interval
    widest = max(abs(low), abs(high), abs(difference))
    half = max(NARROWEST, -(-widest * 100 // 5) * 0.05)  # to the next five points

    def across(share: float) -> str:
        return f"{50 + 50 * share / half:.2f}"

    drawn = tag(
        "svg",
        tag("path", class_="axis", d="M0 10H100"),
        tag("path", class_="whisker", d="M50 0V20"),
        tag("rect", class_="fill", x=across(low), y=7, width=f"{50 * (high - low) / half:.2f}", height=6),
        tag("path", class_="whisker", d=f"M{across(low)} 5V15M{across(high)} 5V15"),
        tag("path", class_="stroke", d=f"M{across(difference)} 2V18"),
        class_="bar line",
        viewBox="0 0 100 20",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    ends = [tag("span", f"−{half * 100:.0f} points"), tag("span", "0"), tag("span", f"+{half * 100:.0f} points")]
    return join([drawn, tag("div", ends, class_="row spread tiny quiet", aria_hidden="true")])
