"""What was measured on both sides of a comparison, in words: a change of times or words in, sentences out."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from pramana.show import figures, terminal

if TYPE_CHECKING:
    from pramana.analyse.changes import Change


def proven(change: "Change") -> str:
    """Return a sentence about a change that is proven and can be noticed; nothing about any other."""
    from pramana.analyse.changes import NOTICED_S, TIMES

    low, high = change.difference
    timed = change.what in TIMES
    if not change.proven or (timed and max(abs(low), abs(high)) < NOTICED_S):
        return ""
    verdict = ("Slower" if low > 0 else "Faster") if timed else ("More words wrong" if low > 0 else "Fewer words wrong")
    shown = _shown_time if timed else _shown_rate
    return f"{verdict}: {change.what} went from {shown(change.base)} to {shown(change.new)}, and that is proven."


def measured(change: "Change") -> str:
    """Return a change in numbers, with its interval or why it has none."""
    from pramana.analyse.changes import FEWEST, TIMES

    timed = change.what in TIMES
    shown, by = (_shown_time, figures.later) if timed else (_shown_rate, figures.points)
    named = f"{change.what[0].upper()}{change.what[1:]}"
    words = ["", ""] if timed else [f" of {each:,}" for each in change.words]
    numbers = f"{named} {shown(change.base)}{words[0]} before, {shown(change.new)}{words[1]} now"
    cases = terminal.counted(change.cases, "case")
    difference = f"{'median difference ' if timed else ''}{_between(change.difference, by)}"
    if change.interval is None:
        sure = f"{cases}, and fewer than {FEWEST} have no interval"
    else:
        sure = f"95 % interval {by(change.interval.low)} to {by(change.interval.high)}, {cases}; {change.method}"
    sure += f", p = {change.p_value:.2g}" if change.p_value is not None and change.interval else ""
    lost = f"; {change.only_base:,} more had {'a time' if timed else 'words'} before only" if change.only_base else ""
    return f"{numbers}: {difference} ({sure}{lost})."


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
