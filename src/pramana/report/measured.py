"""What was measured on both sides of a comparison, in words: a change of times or words in, sentences out."""

import math
from collections.abc import Callable

from pramana.analyse.changes import FEWEST, NOTICED_S, TIMES, Change
from pramana.report import figures, terminal


def proven(change: Change) -> str:
    """Return a sentence about a change that is proven and can be noticed; nothing about any other."""
    low, high = change.difference
    if not change.proven:
        return ""
    if change.what not in TIMES:
        rates = f"{_shown_rate(change.base)} to {_shown_rate(change.new)}"
        return f"{'More' if low > 0 else 'Fewer'} words wrong: {change.what} went from {rates}, and that is proven."
    least, most = sorted((abs(low), abs(high)))
    if most < NOTICED_S:
        return ""
    # Of the cases' differences, as tested: the middle of all times may have gone the other way.
    by = _between((least, most), figures.duration).replace("≥", "at least")
    of = _counted(change)
    return f"{'Slower' if low > 0 else 'Faster'}: {change.what} by {by} (median of {of}), and that is proven."


def measured(change: Change) -> str:
    """Return a change in numbers, with its interval or why it has none."""
    timed = change.what in TIMES
    shown, by = (_shown_time, figures.later) if timed else (_shown_rate, figures.points)
    named = f"{change.what[0].upper()}{change.what[1:]}"
    words = ["", ""] if timed else [f" of {each:,}" for each in change.words]
    numbers = f"{named} {shown(change.base)}{words[0]} before, {shown(change.new)}{words[1]} now"
    of = _counted(change)
    difference = f"{'median difference ' if timed else ''}{_between(change.difference, by)}"
    if change.interval is None:
        sure = f"{of}, and fewer than {FEWEST} have no interval"
    else:
        sure = f"95 % interval {by(change.interval.low)} to {by(change.interval.high)}, {of}; {change.method}"
    sure += f", p = {change.p_value:.2g}" if change.p_value is not None and change.interval else ""
    lost = f"; {change.only_base:,} more had {'a time' if timed else 'words'} before only" if change.only_base else ""
    return f"{numbers}: {difference} ({sure}{lost})."


def _counted(change: Change) -> str:
    return terminal.counted(change.cases, change.compares)


def _between(given: tuple[float, float], by: Callable[[float], str]) -> str:
    low, high = given
    if low == high:
        return by(low)
    if math.isinf(low):
        return "unknown" if math.isinf(high) else f"≤ {by(high)}"
    return f"≥ {by(low)}" if math.isinf(high) else f"{by(low)} to {by(high)}"


def _shown_time(given: tuple[float, float]) -> str:
    low, high = given
    return f"{'' if low == high else '≥ '}{figures.duration(low)}"


def _shown_rate(given: tuple[float, float]) -> str:
    return figures.rate(given[0])
