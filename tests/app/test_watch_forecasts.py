"""What a young watch could see: assumed as in a detection plan, and only until its own days say so."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from pramana.app import watch_forecasts
from pramana.app.plans import DetectionPlanRequest, make_plan_view
from pramana.app.watch_reports import report_watch
from pramana.app.watches import read_watch, start_watch
from pramana.report.watches import render_report, render_started
from pramana.request import RunRequest
from pramana.store import open_store
from pramana.store.store import Store
from pramana.watch_request import WatchRequest

from ..stores import home_store


@pytest.fixture(name="store")
def _store() -> Iterator[Store]:
    with closing(open_store(home_store())) as opened:
        yield opened


def request_watch(
    folder: Path, instruments: tuple[str, ...] = ("pass-rate", "length"), repeats: int = 3
) -> WatchRequest:
    suite = folder / "suite.jsonl"
    cases = [
        {
            "id": f"q{number}",
            "category": "factual",
            "input": f"question {number}",
            "ideal": ["yes"],
            "assertion": {"type": "contains"},
            "metadata": {"difficulty": "easy", "tokens_est": 8},
        }
        for number in range(40)
    ]
    suite.write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")
    run = RunRequest(paths=(suite,), models=("fake:fixed=yes",), repeats=repeats, cache=False)
    return WatchRequest(run=run, instruments=instruments, baseline_days=20)


def test_a_new_watch_forecasts_what_a_plan_does_with_its_default_assumptions(store: Store, tmp_path: Path) -> None:
    request = request_watch(tmp_path)
    started = start_watch(store, request)
    forecast = started.forecast
    assert forecast
    assert (forecast.cases, forecast.repeats, forecast.pass_rate, forecast.change) == (40, 3, 0.9, 0.1)
    plan = make_plan_view(
        store, DetectionPlanRequest(detect=0.1, case_count=40, repeats=3, instruments=4, baseline_days=20)
    )
    planned = next(each for each in plan.watch.delays if each.loss == 0.1)
    assert (forecast.notice_days, forecast.alarm_days) == (planned.notice_days, planned.alarm_days)
    assert forecast.sentence.startswith(
        "Assumed, once the baseline is complete: with 40 cases a day, each repeated 3 times, half of all drops of the "
        f"pass rate from 90 % by 10 points have a notice within {planned.notice_days} days"
    )
    watch = store.watches.find(started.id)
    report = report_watch(store, watch)
    assert report.watch.forecast == forecast
    for text in (render_started(started), render_report(report)):
        assert forecast.sentence in " ".join(text.split())
        assert all(len(line) <= 80 for line in text.splitlines())
    assert read_watch(store, watch).forecast is None, "lists and checks simulate nothing"


def test_there_is_no_forecast_without_a_pass_rate_or_cases_or_once_stopped(store: Store, tmp_path: Path) -> None:
    assert start_watch(store, request_watch(tmp_path, ("length",))).forecast is None
    started = start_watch(store, request_watch(tmp_path, repeats=1))
    watch = store.watches.find(started.id)
    (tmp_path / "suite.jsonl").unlink()
    assert report_watch(store, watch).watch.forecast is None
    request_watch(tmp_path)
    assert report_watch(store, watch).watch.forecast == started.forecast
    store.watches.stop(watch)
    assert report_watch(store, store.watches.find(started.id)).watch.forecast is None


def test_a_drop_that_is_hardly_seen_is_reported_as_such(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_forecasts, "ASSUMED_DAY_SD", 3.0)
    run = replace(request_watch(tmp_path).run, repeats=1)
    found = start_watch(store, WatchRequest(run=run, instruments=("pass-rate",), baseline_days=14)).forecast
    assert found
    assert (found.notice_days, found.alarm_days) == (None, None)
    assert "fewer than half of all drops of the pass rate from 90 % by 10 points have a notice within 30 days" in (
        found.sentence
    )
