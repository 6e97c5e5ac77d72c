"""The public watch of a community: whether a model became worse, by the results that its contributors submitted.

A contributor is a token that an administrator created; anonymous results never count, and neither do those of unknown
suites. Anonymous callers may read it where they may submit.

Only days that are over count. Results count on the day on which they arrive, so such a day never changes, and a level
that was shown stays: it is computed again from the same days.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from msgspec import Meta, Struct

from pramana import clock
from pramana.analyse.drift import ALARM, BASELINE_DAYS, MIN_CONTRIBUTORS, NOTICE
from pramana.analyse.public_watch import (
    PublicLevel,
    decide_public_watch,
    describe_public_finding,
    make_contributor_days,
    measure_contributor,
)
from pramana.app import App, User, use_case
from pramana.app.views import View
from pramana.errors import NotFound, quote_text
from pramana.store.store import Store

DAY_CLOSING_TIME = timedelta(minutes=10)
"""After midnight (UTC), until results that arrived before it are certainly stored."""


class CommunityWatchRequest(Struct, frozen=True, kw_only=True):
    """The model and the suite to read."""

    model: str
    suite_hash: str | None = None
    """None: the suite with the most contributors."""


class ContributorView(View, frozen=True, kw_only=True):
    """One contributor; nothing says who it is."""

    measured_days: int
    is_complete: Annotated[bool, Meta(description="Whether the baseline is complete, so that the contributor counts")]
    notice_statistic: float
    alarm_statistic: float


class CommunityWatchView(View, frozen=True, kw_only=True):
    """What the contributors of a model together say."""

    model: str
    suite_hash: str
    level: PublicLevel
    sentence: str
    notice_statistic: Annotated[
        float,
        Meta(
            description="The highest statistic of a contributor, without the highest ones that are ignored as possibly "
            "made up, divided by the number of contributors"
        ),
    ]
    alarm_statistic: float
    notice_threshold: float
    alarm_threshold: float
    notice_day: Annotated[str | None, Meta(description="First day on which the statistic reached a notice")]
    alarm_day: str | None
    last_day: str | None
    baseline_days: int
    min_contributors: int
    contributors: tuple[ContributorView, ...]


@use_case("viewer", "heavy", allow_anonymous_when=lambda preferences: preferences.anonymous_submission)
def read_community_watch(app: App, _: User, wanted: CommunityWatchRequest) -> CommunityWatchView:
    """Return whether a model became worse, by the submitted results of at least five contributors.

    Computed once a day, because only days that are over count.
    """
    if not app.store.contributed_results.has_series(wanted.model, wanted.suite_hash):
        raise _make_no_results_error(wanted.model)  # not cached: strangers may ask for any name and any hash
    open_day = (clock.now() - DAY_CLOSING_TIME).date().isoformat()
    key = (wanted.model, wanted.suite_hash, open_day)
    return app.community_watch_cache.get(key, lambda: compute_community_watch(app.store, wanted, open_day))


def compute_community_watch(store: Store, wanted: CommunityWatchRequest, open_day: str) -> CommunityWatchView:
    """Return what the submitted results that arrived before a day say."""
    suite = wanted.suite_hash or store.contributed_results.find_suite_hash_with_most_contributors(
        wanted.model, open_day
    )
    counts = {} if suite is None else store.contributed_results.count_results(wanted.model, suite, open_day)
    if suite is None or not counts:
        raise _make_no_results_error(wanted.model)
    series = [
        measure_contributor(make_contributor_days(f"{contributor} {wanted.model} {suite}", days))
        for contributor, days in sorted(counts.items())
    ]
    found = decide_public_watch(series)
    return CommunityWatchView(
        model=wanted.model,
        suite_hash=suite,
        level=found.level,
        sentence=describe_public_finding(found),
        notice_statistic=found.notice_statistic,
        alarm_statistic=found.alarm_statistic,
        notice_threshold=NOTICE.threshold,
        alarm_threshold=ALARM.threshold,
        notice_day=found.notice_day,
        alarm_day=found.alarm_day,
        last_day=found.last_day,
        baseline_days=BASELINE_DAYS,
        min_contributors=MIN_CONTRIBUTORS,
        contributors=tuple(
            ContributorView(
                measured_days=each.measured_days,
                is_complete=each.is_complete,
                notice_statistic=_find_last_value(each.notice),
                alarm_statistic=_find_last_value(each.alarm),
            )
            for each in series
        ),
    )


def _make_no_results_error(model: str) -> NotFound:
    return NotFound(
        f"no contributor with a token submitted results of {quote_text(model)} for a known suite before today (UTC)"
    )


def _find_last_value(values_by_day: Mapping[str, float]) -> float:
    return values_by_day[max(values_by_day)] if values_by_day else 0.0
