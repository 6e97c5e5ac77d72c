"""How far the judges of watches agree with people: watches in, a few words for each out, as lists of runs have them.

The verdicts of a watch are those of its last stored day with results. A list must stay fast with many watches, so the
outcomes of all these runs are counted together, and no verdict is read unless a person labelled its reply.
"""

from collections.abc import Sequence
from contextlib import suppress

from pramana.analyse.judges import UNCALIBRATED
from pramana.app.judge_marks import JudgeMarks
from pramana.errors import NotFound
from pramana.model import Run
from pramana.store.store import Store
from pramana.store.watches import Watch

CALIBRATION_DESCRIPTION = (
    "How far the judges of the last day's verdicts agree with people: `judge agrees 92 %` (of several, the least) or "
    "`uncalibrated`; null if no model judged"
)
_JUDGED_CHECKS = frozenset({"llm_judge", "rubric"})


def describe_watch_judges(store: Store, watches: Sequence[Watch], marks: JudgeMarks | None = None) -> list[str | None]:
    """Return for each watch `uncalibrated`, `judge agrees 92 %`, or None if no model judged its last stored day.

    Where every run was deleted, the checks of the last period say whether a model judged; its judge is uncalibrated.
    """
    runs = [_find_last_run(store, each) for each in watches]
    found = [each for each in runs if each is not None]
    described = (marks or JudgeMarks(store)).describe(found, store.history.count_run_outcomes(found)) if found else []
    by_run = dict(zip((each.id for each in found), described, strict=True))
    return [
        by_run[run.id] if run else UNCALIBRATED if _has_judged_checks(store, watch) else None
        for watch, run in zip(watches, runs, strict=True)
    ]


def format_calibration(calibration: str) -> str:
    """Return the words with the judge named: `judge uncalibrated`, `judge agrees 92 %`.

    >>> format_calibration("uncalibrated"), format_calibration("judge agrees 92 %")
    ('judge uncalibrated', 'judge agrees 92 %')
    """
    return f"judge {calibration}" if calibration == UNCALIBRATED else calibration


def _find_last_run(store: Store, watch: Watch) -> Run | None:
    run_id = store.watches.find_last_run_id(watch)
    with suppress(NotFound):  # deleted just now
        return store.runs.read(run_id) if run_id else None
    return None


def _has_judged_checks(store: Store, watch: Watch) -> bool:
    bases = [each.basis for each in store.watches.list_periods(watch) if each.basis]
    return bool(bases) and not _JUDGED_CHECKS.isdisjoint(bases[-1].get("checks", {}))
