"""What contributors with a token submitted, by contributor, day and prompt. Anonymous results are left out.

Of results with the same content, a contributor's count once a day, as everywhere in the community's data.
"""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Integer, cast, func, select

from pramana.store.engine import StorePart
from pramana.store.records import escape_text, unescape_text
from pramana.store.schema import submission_days, submission_series, submissions
from pramana.store.submissions import ANONYMOUS

PromptCounts = Mapping[str, tuple[int, int]]
"""Scored results and passes by prompt."""


class ContributedResults(StorePart):
    """The decided results of known suites that contributors with a token submitted."""

    def count_days_and_results(self, model: str) -> tuple[int, int]:
        """Return the numbers of days and of results of a model for known suites: both only grow."""
        days = submission_days.c
        query = select(func.count(), func.coalesce(func.sum(days.submissions), 0))
        ((count, results),) = self._fetch_rows(query.where(days.verified.is_(True), days.model == escape_text(model)))
        return int(count), int(results)

    def find_suite(self, model: str) -> str | None:
        """Return the hash of the suite with the most results of a model; None if there are none."""
        series = submission_series.c
        query = select(series.suite_hash).join_from(submissions, submission_series)
        query = query.where(*_make_counted_result_conditions(model)).group_by(series.suite_hash)
        found = self._fetch_value(query.order_by(func.count().desc(), series.suite_hash).limit(1))
        return None if found is None else unescape_text(found)

    def count_results(self, model: str, suite_hash: str) -> dict[str, dict[str, dict[str, tuple[int, int]]]]:
        """Return scored results and passes by contributor, day and prompt."""
        series, table = submission_series.c, submissions.c
        columns = (table.contributor, table.day, series.prompt)
        counts = (func.count(), func.sum(cast(table.passed, Integer)))
        query = select(*columns, *counts).join_from(submissions, submission_series)
        query = query.where(*_make_counted_result_conditions(model), series.suite_hash == escape_text(suite_hash))
        found: dict[str, dict[str, dict[str, tuple[int, int]]]] = {}
        for contributor, day, prompt, results, passes in self._fetch_rows(query.group_by(*columns)):
            of_day = found.setdefault(contributor, {}).setdefault(day, {})
            of_day[unescape_text(prompt)] = (int(results), int(passes))
        return found


def _make_counted_result_conditions(model: str) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions on results that count in the public watch of a model."""
    mine = (submission_series.c.model == escape_text(model), submission_series.c.verified.is_(True))
    return (*mine, submissions.c.contributor != ANONYMOUS, submissions.c.passed.is_not(None))
