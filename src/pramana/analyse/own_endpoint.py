"""What a watch could see on this endpoint: its own days in, the days until a drop of the pass rate is seen out.

The rule that is shipped is applied to simulated days that differ as much as this endpoint's own days do. The days of
the simulation are normally distributed and independent; it forecasts power, and proves nothing about false alarms.
Seeded, so that the same days give the same forecast.
"""

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from statistics import median

from msgspec import Struct

from pramana.analyse.drift import (
    ALARM,
    MIN_TOLERANCE,
    MONTH_DAYS,
    NOTICE,
    iterate_change_statistics,
)
from pramana.analyse.instruments import INSTRUMENTS, MeasuredDay, score_days

FORECAST_CHANGES = (0.05, 0.10, 0.20)
MIN_MEASURED_DAYS = 5
"""Days that are needed to say how much they differ."""
SIMULATIONS = 41
_SEED = 16
_NEVER = MONTH_DAYS + 1


class DelayForecast(Struct, frozen=True):
    """In how many days a drop of the pass rate is seen, in half of all cases; None: not within 30 days."""

    change: float
    """As a share: 0.05 is five points."""
    notice_days: int | None
    alarm_days: int | None


class EndpointReport(Struct, frozen=True):
    """How much the days of an endpoint differ, and what a watch with these calls could see."""

    days: int
    prompts: int
    repeats: int
    day_standard_deviation: float
    """Of the pass rate, beyond what the number of calls explains."""
    call_standard_deviation: float
    """Of the pass rate of a day, explained by its number of calls."""
    next_day_rank_correlation: float
    is_baseline_complete: bool
    delays: tuple[DelayForecast, ...]


def report_endpoint(days: Sequence[MeasuredDay], baseline_days: int, instrument_count: int) -> EndpointReport | None:
    """Return the report of the days of a period; None for fewer than five days with verdicts."""
    instrument = INSTRUMENTS["pass_rate_down"]
    measured = score_days(instrument, days, baseline_days)
    is_complete = measured.spread is not None
    if not is_complete and len(days) >= MIN_MEASURED_DAYS:
        measured = score_days(instrument, days, len(days))
    if measured.spread is None or measured.baseline_count < MIN_MEASURED_DAYS:
        return None
    prompts = len(measured.prompt_means)
    planned = [each.planned for each in days[-1].features.case_prompts]
    repeats = max(1, round(sum(planned) / len(planned)))
    variance = math.fsum(rate * (1 - rate) for rate in measured.prompt_means.values()) / prompts**2 / repeats
    day_sd, call_sd = measured.spread.day_standard_deviation, math.sqrt(variance)
    return EndpointReport(
        measured.baseline_count,
        prompts,
        repeats,
        day_sd,
        call_sd,
        measured.spread.next_day_rank_correlation,
        is_complete,
        forecast_delays(round(day_sd, 4), round(call_sd, 4), baseline_days, instrument_count),
    )


@lru_cache(maxsize=64)
def forecast_delays(
    day_standard_deviation: float, call_standard_deviation: float, baseline_days: int, instrument_count: int
) -> tuple[DelayForecast, ...]:
    """Return the median days until drops of 5, 10 and 20 points have a notice and an alarm.

    >>> [each.alarm_days for each in forecast_delays(0.0, 0.01, 28, 1)]
    [7, 6, 6]
    """
    spread = math.hypot(day_standard_deviation, call_standard_deviation)
    return tuple(
        DelayForecast(
            change,
            _forecast_delay(spread, change, baseline_days, MIN_TOLERANCE, NOTICE.threshold * instrument_count),
            _forecast_delay(
                spread,
                change,
                baseline_days,
                max(MIN_TOLERANCE, day_standard_deviation),
                ALARM.threshold * instrument_count,
            ),
        )
        for change in FORECAST_CHANGES
    )


def _forecast_delay(spread: float, change: float, baseline_days: int, tolerance: float, threshold: float) -> int | None:
    rng = random.Random(_SEED)
    delays = list[int]()
    for _ in range(SIMULATIONS):
        scores = [rng.gauss(0.0, spread) for _ in range(baseline_days)]
        scores += [change + rng.gauss(0.0, spread) for _ in range(MONTH_DAYS)]
        values = enumerate(iterate_change_statistics(scores, baseline_days, tolerance), 1)
        delays.append(next((day for day, each in values if each.value >= threshold), _NEVER))
    middle = int(median(delays))
    return None if middle >= _NEVER else middle
