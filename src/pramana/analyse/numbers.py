"""Number formats: shares, differences, times and counts in, text out; the same in every sentence."""

import json
import math
from collections.abc import Sequence
from typing import Any


def format_signed_points(share: float) -> str:
    """Format a difference of shares in points, with its sign.

    >>> format_signed_points(-0.0481), format_signed_points(0.0001), format_signed_points(0.12)
    ('-4.8', '0.0', '+12.0')
    """
    rounded = round(share * 100, 1)
    return f"{rounded:+.1f}" if rounded else "0.0"


def format_percent(share: float | None) -> str:
    """Format a share as a percentage; it reads 0 % or 100 % only if it is exactly that.

    >>> format_percent(0.875), format_percent(0.9999), format_percent(1.0), format_percent(None)
    ('87.5 %', '> 99.9 %', '100 %', 'no verdict')
    """
    if share is None:
        return "no verdict"
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{share:.0%}".replace("%", " %") if share in (0, 1) else f"{share * 100:.1f} %"


def format_signed_points_with_unit(share: float) -> str:
    """Format a difference of shares, with sign and unit.

    >>> format_signed_points_with_unit(-0.2)
    '-20.0 points'
    >>> [format_signed_points_with_unit(each) for each in (0.0001, 0.125)]
    ['0.0 points', '+12.5 points']
    """
    return f"{format_signed_points(share)} points"


def format_loss(share: float) -> str:
    """Format a loss of a pass rate, without a sign.

    >>> format_loss(0.05), format_loss(0.01), format_loss(0.125)
    ('5 points', '1 point', '12.5 points')
    """
    number = f"{share * 100:.1f}".removesuffix(".0")
    return f"{number} point{'' if number == '1' else 's'}"


def format_time_difference(seconds: float) -> str:
    """Format a difference of times, with its sign.

    >>> *map(format_time_difference, (1.7, -0.0301, 0.0, float("inf"))),
    ('+1.70 s', '-30 ms', '0 ms', 'no bound')
    """
    if math.isinf(seconds):
        return "no bound"
    if abs(seconds) < 0.0005:
        return "0 ms"
    return f"{'-' if seconds < 0 else '+'}{format_duration(max(abs(seconds), 0.001))}"


def format_interval(interval: Sequence[float] | None) -> str:
    """Format an interval of shares.

    >>> format_interval([0.1, 0.25]), format_interval(None)
    ('10.0–25.0 %', '–')
    """
    return f"{interval[0] * 100:.1f}–{interval[1] * 100:.1f} %" if interval else "–"


def format_error_rate(error_rate: float | None) -> str:
    """Format an error rate, which may exceed 100 %.

    >>> format_error_rate(23 / 12), format_error_rate(0.0714), format_error_rate(1.0)
    ('192 %', '7.1 %', '100 %')
    """
    return (
        format_percent(error_rate) if error_rate is None or error_rate <= 1 else f"{error_rate:.0%}".replace("%", " %")
    )


def format_duration(seconds: float | None) -> str:
    """Format a duration.

    >>> format_duration(0.0123), format_duration(1.5), format_duration(95), format_duration(1e-5), format_duration(None)
    ('12 ms', '1.50 s', '95.0 s', '< 1 ms', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 0.001:  # below the resolution of all measurements here
        return "< 1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"


MAX_NAME_LENGTH = 80
"""Characters of the name of a case or a judge in a sentence."""


def shorten_name(name: str) -> str:
    """Shorten a name for a sentence."""
    return name if len(name) <= MAX_NAME_LENGTH else name[: MAX_NAME_LENGTH - 1] + "…"


def format_parameter(value: Any) -> str:
    """Format the value of a model's parameter; equal numbers give equal text.

    >>> *map(format_parameter, (1, 1.0, 0.7, "low", ["a"])),
    ('1', '1', '0.7', 'low', '["a"]')
    >>> format_parameter(None)  # none is sent, so the provider's default holds
    'not set'
    """
    if value is None:
        return "not set"
    if isinstance(value, str):
        return value
    return str(value).removesuffix(".0") if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def pluralise(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1.

    >>> pluralise(1, "error"), pluralise(1200, "scenario")
    ('1 error', '1,200 scenarios')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
