"""Watches whose replies a model judges: every place that shows their numbers says how far the judge agrees with people."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from pramana import clock
from pramana.analyse import calibration
from pramana.app import watch_alerts
from pramana.app.judge_marks import JudgeMarks
from pramana.app.watch_reports import report_watch
from pramana.app.watches import list_watches, read_watch, start_watch
from pramana.load.rows import make_case
from pramana.model import Assertion
from pramana.providers.accounts import PassedFunctions
from pramana.report.watches import render_list, render_report
from pramana.request import RunRequest
from pramana.run.accounts import ProviderAccess
from pramana.show.web.pages import drift, public_watch, watch_markup
from pramana.store import open_store
from pramana.store.store import Store
from pramana.store.watches import Watch
from pramana.watch_request import WatchRequest
from pramana.watching import measure_day

from ..stores import sqlite_store
from ..watched_models import DayClock
from .test_judge_marks import label_replies

CASES = 60
JUDGE = "fake:fixed=YES"


@pytest.fixture(name="store")
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(calibration, "DRAWS", 200)
    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        yield store


def add_watch(store: Store, days: int, *, is_judged: bool) -> Watch:
    """Store a watch with measured days, of replies that a model judges, or that are compared with an expected answer."""
    cases = tuple(make_case(f"Question {number}?", ideal="yes", id=f"q{number}") for number in range(CASES))
    if is_judged:
        asked = Assertion("llm_judge", judge_prompt="Is it polite?")
        cases = tuple(replace(each, assertion=asked) for each in cases)
    reach = ProviderAccess(passed_functions=PassedFunctions({"team:bot": lambda _: "yes"}))
    run = RunRequest(models=("python:team:bot",), cases=cases, judge=JUDGE if is_judged else None)
    virtual = DayClock(clock.now())
    with clock.use_clock(virtual):
        request = WatchRequest(run=run, baseline_days=14, instruments=("pass_rate",))
        watch = store.watches.read(start_watch(store, request, reach).id)
        for number in range(days):
            virtual.moment = virtual.moment.replace(year=2026, month=3, day=1 + number)
            assert asyncio.run(measure_day(store, watch, reach=reach)).day.status == "measured"
    return watch


def test_judged_watches_are_marked_in_lists_details_reports_and_public_views(store: Store) -> None:
    judged, checked, young = (
        add_watch(store, days, is_judged=is_judged) for days, is_judged in ((2, True), (1, False), (0, True))
    )
    marks = {each.id: each.calibration for each in list_watches(store)}
    assert marks == {judged.id: "uncalibrated", checked.id: None, young.id: None}
    view = read_watch(store, judged)
    assert view.calibration == "uncalibrated"
    assert ", judge uncalibrated" in " ".join(render_list([view]).split())
    assert "A model judges the replies (uncalibrated)." in render_report(report_watch(store, judged))
    assert "judge" not in render_report(report_watch(store, checked))
    public = watch_alerts._make_public_view(view)
    for shown in (
        drift._render_watch_row(view)[1],
        watch_markup.render_state(view),
        "".join(map(str, public_watch._render_watch(public))),
    ):
        assert "uncalibrated" in str(shown)
    assert "judge" not in str(watch_markup.render_state(read_watch(store, checked)))


def test_the_calibration_of_a_watch_is_that_of_its_last_stored_day(store: Store) -> None:
    watch = add_watch(store, 3, is_judged=True)
    first, second, last = (store.runs.read(each.run_id) for each in store.watches.list_runs(watch))
    label_replies(store, last, CASES)
    (mark,) = [each.calibration for each in list_watches(store)]
    (expected,) = JudgeMarks(store).describe([last], store.history.count_run_outcomes([last]))
    assert mark == expected
    assert mark is not None
    assert mark.startswith("judge agrees ")
    store.runs.delete(last.id)
    assert read_watch(store, watch).calibration == "uncalibrated", "its labels are gone"
    for each in (first, second):
        store.runs.delete(each.id)
    assert read_watch(store, watch).calibration == "uncalibrated", "the checks of the period say that a model judged"
