"""What contributors with a token submitted, by contributor, day and prompt. Anonymous results are left out.

The day is the one on which a result arrived here, because its reply's own time is whatever its contributor says: a day
that is over never changes. A result that arrives later than the day after its reply is left out, so that an upload of
old runs is not a day of the model. Of results with the same content, a contributor's count once a day.
"""

from collections.abc import Mapping
from datetime import date, timedelta

from sqlalchemy import ColumnElement, Integer, cast, func, select

from pramana.store.engine import StorePart
from pramana.store.records import escape_text, unescape_text
from pramana.store.schema import submission_series, submissions
from pramana.store.submissions import ANONYMOUS

PromptCounts = Mapping[str, tuple[int, int]]
"""Scored results and passes by prompt."""
MAX_ARRIVAL_DELAY = timedelta(days=1)
"""From the day of a reply to the day on which its result arrives, for the result to count."""


_ARRIVAL_DAY = func.substr(submissions.c.received, 1, 10)


class ContributedResults(StorePart):
    """The decided results of known suites that contributors with a token submitted."""

    def has_series(self, model: str, suite_hash: str | None = None) -> bool:
        """Return whether anyone has submitted results of a model for this known suite; None: for any."""
        series = submission_series.c
        query = select(series.series_no).where(series.model == escape_text(model), series.verified.is_(True))
        if suite_hash is not None:
            query = query.where(series.suite_hash == escape_text(suite_hash))
        return self._fetch_value(query.limit(1)) is not None

    def find_suite_hash_with_most_contributors(self, model: str, before_day: str) -> str | None:
        """Return the hash of the suite of a model with the most contributors, then results; None if there is none.

        By results alone, one contributor could replace the suite that all others use.
        """
        series = submission_series.c
        query = select(series.suite_hash).join_from(submissions, submission_series)
        query = query.where(*_make_counted_result_conditions(model, before_day)).group_by(series.suite_hash)
        most = func.count(submissions.c.contributor.distinct()).desc(), func.count().desc()
        found = self._fetch_value(query.order_by(*most, series.suite_hash).limit(1))
        return None if found is None else unescape_text(found)

    def count_results(
        self, model: str, suite_hash: str, before_day: str
    ) -> dict[str, dict[str, dict[str, tuple[int, int]]]]:
        """Return scored results and passes by contributor, day of arrival before this one, and prompt."""
        series, table = submission_series.c, submissions.c
        columns = (table.contributor, _ARRIVAL_DAY, table.day, series.prompt)
        counts = (func.count(), func.sum(cast(table.passed, Integer)))
        query = select(*columns, *counts).join_from(submissions, submission_series)
        query = query.where(*_make_counted_result_conditions(model, before_day))
        query = query.where(series.suite_hash == escape_text(suite_hash))
        found: dict[str, dict[str, dict[str, tuple[int, int]]]] = {}
        for contributor, arrived, replied, prompt, results, passes in self._fetch_rows(query.group_by(*columns)):
            if date.fromisoformat(arrived) - date.fromisoformat(replied) > MAX_ARRIVAL_DELAY:
                continue
            of_day = found.setdefault(contributor, {}).setdefault(arrived, {})
            before, passed_before = of_day.get(key := unescape_text(prompt), (0, 0))
            of_day[key] = (before + int(results), passed_before + int(passes))
        return found


def _make_counted_result_conditions(model: str, before_day: str) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions on results that count in the public watch of a model."""
    mine = (submission_series.c.model == escape_text(model), submission_series.c.verified.is_(True))
    counted = (submissions.c.contributor != ANONYMOUS, submissions.c.passed.is_not(None))
    return (*mine, *counted, before_day > _ARRIVAL_DAY)
