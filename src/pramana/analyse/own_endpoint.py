"""What a watch could see on this endpoint: its own days in, the days until a drop of the pass rate is seen out.

Pass rate, flips and the difference of days are measured on the endpoint's own days; `simulate_watch_delay` then answers
for them, as it does for a plan. It forecasts power, and proves nothing about false alarms.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

from pramana.analyse.delays import SIMULATED_MONTHS, simulate_watch_delay
from pramana.analyse.instruments import INSTRUMENTS, MeasuredDay, score_days
from pramana.analyse.power import find_day_spread, fit_model

FORECAST_CHANGES = (0.05, 0.10, 0.20)
MIN_MEASURED_DAYS = 5
"""Days that are needed to say how much they differ."""
MIN_RATE, MAX_RATE, MAX_FLIPS = 0.001, 0.999, 0.5
"""What is assumed of an endpoint whose measured days all passed, all failed, or flipped more often than coins."""


class WatchDelayForecast(Struct, frozen=True):
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
    pass_rate: float
    flip_share: float
    """The share of the prompts whose verdict differs between two replies of one day."""
    day_sd_logits: float
    """Standard deviation between days, in logits."""
    day_standard_deviation: float
    """Of the pass rate, beyond what the number of calls explains."""
    call_standard_deviation: float
    """Of the pass rate of a day, explained by its number of calls."""
    next_day_rank_correlation: float
    is_baseline_complete: bool
    delays: tuple[WatchDelayForecast, ...]


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
    failures = measured.prompt_means.values()
    pass_rate = min(MAX_RATE, max(MIN_RATE, 1 - math.fsum(failures) / prompts))
    mean_variance = math.fsum(rate * (1 - rate) for rate in failures) / prompts
    flip_share = min(MAX_FLIPS, 2 * mean_variance)
    day_spread = find_day_spread(pass_rate, flip_share, measured.spread.day_standard_deviation)
    model = fit_model(pass_rate, flip_share, day_spread)

    def forecast(change: float) -> WatchDelayForecast:
        delay = simulate_watch_delay(
            model,
            prompts,
            repeats,
            change,
            instruments=instrument_count,
            baseline_days=baseline_days,
            months=SIMULATED_MONTHS,
        )
        return WatchDelayForecast(change, delay.notice.median_days, delay.alarm.median_days)

    return EndpointReport(
        days=measured.baseline_count,
        prompts=prompts,
        repeats=repeats,
        pass_rate=pass_rate,
        flip_share=flip_share,
        day_sd_logits=day_spread,
        day_standard_deviation=measured.spread.day_standard_deviation,
        call_standard_deviation=math.sqrt(mean_variance / prompts / repeats),
        next_day_rank_correlation=measured.spread.next_day_rank_correlation,
        is_baseline_complete=is_complete,
        delays=tuple(forecast(change) for change in FORECAST_CHANGES if change < pass_rate),
    )
