"""What a young watch could see once its baseline is complete: its calls a day in, an assumed forecast out.

It is the forecast of `pramana plan` with its default assumptions. Once some days are measured, the report of the watch
has a forecast by the endpoint's own days instead.
"""

from typing import Annotated

from msgspec import Meta

from pramana import planning
from pramana.analyse.delays import simulate_watch_delay
from pramana.analyse.drift import MONTH_DAYS
from pramana.analyse.numbers import format_loss, pluralise
from pramana.analyse.power import fit_model
from pramana.app.views import View
from pramana.errors import PramanaError
from pramana.store.store import Store
from pramana.store.watches import Watch

ASSUMED_PASS_RATE, ASSUMED_DAY_SD = 0.9, 0.5
"""What is assumed of a model and its days before any is measured."""
FORECAST_LOSS = 0.1
PASS_RATE_INSTRUMENTS = frozenset({"pass_rate_down", "pass_rate_up"})


class AssumedForecastView(View, frozen=True, kw_only=True):
    """In how many days a drop of the pass rate would be seen in half of all cases, as assumed before it is measured."""

    cases: int
    repeats: int
    pass_rate: Annotated[float, Meta(description="Assumed pass rate")]
    change: Annotated[float, Meta(description="Drop of the pass rate, as a share")]
    notice_days: Annotated[int | None, Meta(description="Null: not within 30 days")]
    alarm_days: Annotated[int | None, Meta(description="Null: not within 30 days")]
    sentence: str


def forecast_watch(store: Store, watch: Watch) -> AssumedForecastView | None:
    """Return what a watch could see after its baseline; None without a pass rate or if its cases cannot be read."""
    if not PASS_RATE_INSTRUMENTS & {*watch.instruments}:
        return None
    try:
        cases = planning.count_cases(store, watch.request).case_count
    except PramanaError:  # such as a file that was moved: the next check says so
        return None
    repeats = watch.request.repeats
    found = simulate_watch_delay(
        fit_model(ASSUMED_PASS_RATE, None, ASSUMED_DAY_SD),
        cases,
        repeats,
        FORECAST_LOSS,
        instruments=len(watch.instruments),
        baseline_days=watch.baseline_days,
    )
    notice, alarm = found.notice.median_days, found.alarm.median_days
    return AssumedForecastView(
        cases=cases,
        repeats=repeats,
        pass_rate=ASSUMED_PASS_RATE,
        change=FORECAST_LOSS,
        notice_days=notice,
        alarm_days=alarm,
        sentence=_describe_forecast(cases, repeats, notice, alarm),
    )


def _describe_forecast(cases: int, repeats: int, notice: int | None, alarm: int | None) -> str:
    """Return what a watch could see, marked as assumed.

    >>> print(_describe_forecast(75, 1, 12, None)[61:])
    half of all drops of the pass rate from 90 % by 10 points have a notice within 12 days, fewer an alarm within 30 \
days. To change the assumptions: pramana plan
    """
    repeated = f", each repeated {repeats} times" if repeats > 1 else ""
    drops = f"all drops of the pass rate from {100 * ASSUMED_PASS_RATE:g} % by {format_loss(FORECAST_LOSS)}"
    if notice is None:
        seen = f"fewer than half of {drops} have a notice within {MONTH_DAYS} days"
    else:
        also = f"fewer an alarm within {MONTH_DAYS} days"
        if alarm is not None:
            also = f"half an alarm within {pluralise(alarm, 'day')}"
        seen = f"half of {drops} have a notice within {pluralise(notice, 'day')}, {also}"
    return (
        f"Assumed, once the baseline is complete: with {pluralise(cases, 'case')} a day{repeated}, {seen}. To change "
        "the assumptions: pramana plan"
    )
