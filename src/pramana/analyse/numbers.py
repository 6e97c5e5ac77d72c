"""Numbers in words: shares, differences, times and counts in, what people read out; the same in every sentence."""

import json
import math
from collections.abc import Sequence
from typing import Any


def in_points(share: float) -> str:
    """Return a difference of shares in points, with its sign.

    >>> in_points(-0.0481), in_points(0.0001), in_points(0.12)
    ('-4.8', '0.0', '+12.0')
    """
    rounded = round(share * 100, 1)
    return f"{rounded:+.1f}" if rounded else "0.0"


def percent(share: float | None) -> str:
    """Return a share for people; one that is not all never reads as all, nor one that is not none as none.

    >>> percent(0.875), percent(0.9999), percent(1.0), percent(None)
    ('87.5 %', '> 99.9 %', '100 %', 'no verdict')
    """
    if share is None:
        return "no verdict"
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{share:.0%}".replace("%", " %") if share in (0, 1) else f"{share * 100:.1f} %"


def points(share: float) -> str:
    """Return a difference of shares, with its sign.

    >>> points(-0.2), points(0.0001), points(0.125)
    ('-20.0 points', '0.0 points', '+12.5 points')
    """
    return f"{in_points(share)} points"


def later(seconds: float) -> str:
    """Return a difference of times, with its sign.

    >>> later(1.7), later(-0.0301), later(0.0), later(float("inf"))
    ('+1.70 s', '-30 ms', '0 ms', 'no bound')
    """
    if math.isinf(seconds):
        return "no bound"
    if abs(seconds) < 0.0005:
        return "0 ms"
    return f"{'-' if seconds < 0 else '+'}{duration(max(abs(seconds), 0.001))}"


def between(interval: Sequence[float] | None) -> str:
    """Return an interval of shares for people.

    >>> between([0.1, 0.25]), between(None)
    ('10.0–25.0 %', '–')
    """
    return f"{interval[0] * 100:.1f}–{interval[1] * 100:.1f} %" if interval else "–"


def rate(errors: float | None) -> str:
    """Return an error rate, which may be more than all.

    >>> rate(23 / 12), rate(0.0714), rate(1.0)
    ('192 %', '7.1 %', '100 %')
    """
    return percent(errors) if errors is None or errors <= 1 else f"{errors:.0%}".replace("%", " %")


def duration(seconds: float | None) -> str:
    """Return a time for people.

    >>> duration(0.0123), duration(1.5), duration(95), duration(1e-5), duration(None)
    ('12 ms', '1.50 s', '95.0 s', '< 1 ms', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 0.001:  # finer than anything here is measured
        return "< 1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"


LONGEST_NAME = 80
"""Of a case or a judge, in a sentence."""


def shortened(name: str) -> str:
    """Return a name that is not too long for a sentence."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def parameter_text(value: Any) -> str:
    """Return the value of a model's parameter as text, in which equal numbers are equal.

    >>> parameter_text(1), parameter_text(1.0), parameter_text(0.7), parameter_text("low"), parameter_text(["a"])
    ('1', '1', '0.7', 'low', '["a"]')
    >>> parameter_text(None)  # none is sent, so the provider's default holds
    'not set'
    """
    if value is None:
        return "not set"
    if isinstance(value, str):
        return value
    return str(value).removesuffix(".0") if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "error"), counted(1200, "scenario")
    ('1 error', '1,200 scenarios')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
