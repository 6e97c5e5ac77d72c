"""What it takes to see a change: the plan as a view, as text, on the command line, over HTTP and from Python."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pramana
from pramana.analyse import own_endpoint
from pramana.app import plans
from pramana.app.plans import Budget, DetectionPlanRequest, DetectionPlanView, make_plan_view, parse_budget, parse_share
from pramana.app.watch_reports import report_watch
from pramana.app.watches import choose_instruments
from pramana.errors import InvalidInput, NotFound
from pramana.model import Plan, Target
from pramana.report.plans import render_plan
from pramana.request import RunRequest
from pramana.show.api.envelope import make_documentation_model
from pramana.store import open_store

from ..show.api.served import serve
from ..show.test_cli import pramana as run_pramana
from ..stores import home_store, sqlite_store
from ..test_watching import Bench, DayClock, days

__all__ = ["days"]  # a fixture


@pytest.fixture(autouse=True)
def _few_months(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate few months and fill a small table: `test_power` tests the numbers themselves."""
    monkeypatch.setattr(plans, "SIMULATED_MONTHS", 10)
    monkeypatch.setattr(plans, "TABLE_CASES", (25, 50, 800))
    monkeypatch.setattr(plans, "TABLE_REPEATS", (1, 10))


@pytest.fixture
def make_plan(tmp_path: Path) -> Iterator[Any]:
    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        yield lambda **given: make_plan_view(store, DetectionPlanRequest(**{"detect": 0.1, **given}))


# ── What a user types ──


@pytest.mark.parametrize(
    ("text", "share"),
    [("5%", 0.05), ("5 %", 0.05), ("0.05", 0.05), (".05", 0.05), ("5 points", 0.05), ("1 Point", 0.01), ("1", 1.0)],
)
def test_a_share_is_a_percentage_a_fraction_or_points(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "five", "-5%", "5 %%", "5 dollars", "nan", "1e-2", "٥%x", "%"])
def test_an_invalid_share_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not a share of cases; write a share such as 5%, 0\.05 or '5 points'"):
        parse_share(text)


def test_a_number_above_one_needs_its_unit() -> None:
    with pytest.raises(InvalidInput, match=r'"5" is larger than 1; write 5% for 5 in a hundred cases'):
        parse_share("5")


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("2USD", Budget(2.0, "USD", is_per_day=False)),
        ("$2.50", Budget(2.5, "USD", is_per_day=False)),
        ("2 usd/day", Budget(2.0, "USD", is_per_day=True)),
        ("500calls", Budget(500.0, "calls", is_per_day=False)),
        ("500 calls / day", Budget(500.0, "calls", is_per_day=True)),
        ("1 call a day", Budget(1.0, "calls", is_per_day=True)),
    ],
)
def test_a_budget_is_in_dollars_or_calls_in_all_or_a_day(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["2", "USD", "2EUR", "$2 calls", "-2USD", "0USD", "2USD/month", "inf USD"])
def test_an_invalid_budget_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a budget; write a budget such as 2USD, 2USD/day or 500calls/day"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"detect": 0.95}, "detect: a pass rate of 90% cannot fall by 95 points; detect a smaller loss"),
        ({"detect": 0.0}, "detect: expected a number from 0.001 to 0.999"),
        ({"detect": float("nan")}, "detect: expected a number from 0.001 to 0.999"),
        ({"pass_rate": 1.0}, "pass_rate: expected a number from 0.001 to 0.999"),
        ({"repeats": 0}, "repeats: expected a whole number from 1 to 1,000"),
        ({"flips": 0.6}, "flips: expected a number from 0 to 0.5"),
        ({"day_sd": -1.0}, "day_sd: expected a number from 0 to 5"),
        ({"case_count": 10**7}, "case_count: expected a whole number from 1 to 1,000,000"),
        ({"budget": parse_budget("2USD")}, "budget: a budget in US dollars needs a model"),
    ],
)
def test_an_impossible_wish_is_refused_with_its_field(make_plan: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message.replace("(", r"\(")):
        make_plan(**given)


# ── The plan ──


def test_without_a_model_the_plan_counts_calls_and_no_cost(make_plan: Any) -> None:
    plan = make_plan(case_count=40, repeats=2)
    assert (plan.cases, plan.case_source, plan.models) == (40, None, ())
    assert plan.watch.spending_per_day.calls == 80
    assert plan.watch.spending_with_baseline.calls == 80 * 58
    assert plan.comparison.spending.calls == 2 * 2 * plan.comparison.cases
    assert plan.comparison.spending.cost_usd is None


def test_the_cases_are_those_of_the_tier_unless_their_number_is_given(make_plan: Any) -> None:
    assert make_plan().cases == 25
    chosen = make_plan(run=RunRequest(models=(), suite="v1.0", tier="comprehensive"))
    assert (chosen.cases, chosen.case_source) == (75, "v1.0-comprehensive")


def test_the_cost_is_that_of_an_average_case_times_the_cases(make_plan: Any) -> None:
    run = RunRequest(models=("gpt-5",), suite="v1.0", tier="moderate")
    once, more = make_plan(run=run), make_plan(run=run, case_count=100, repeats=3)
    assert (once.priced_cases, more.case_source) == ("v1.0-moderate", None)
    assert more.watch.spending_per_day.cost_usd == pytest.approx(12 * once.watch.spending_per_day.cost_usd)
    assert once.comparison.spending.cost_usd == pytest.approx(
        2 * once.comparison.cases / 25 * once.watch.spending_per_day.cost_usd
    )


def test_a_budget_that_is_too_small_names_all_days_that_it_should_pay_for(make_plan: Any) -> None:
    (told,) = [each for each in make_plan(budget=parse_budget("1150calls"), case_count=25).advice if "It pays" in each]
    assert told == ("It pays for 46 days of the watch; the baseline and 30 days take 58 days: plan fewer calls a day.")


def test_an_unknown_price_is_named_and_refuses_a_budget_in_dollars(make_plan: Any) -> None:
    run = RunRequest(models=("openai:nobody-knows-it",), suite="v1.0", tier="cheap")
    plan = make_plan(run=run)
    assert plan.unknown_prices == ("openai:nobody-knows-it",)
    assert plan.comparison.spending.cost_usd is None
    assert "No price is known for openai:nobody-knows-it" in render_plan(plan)
    with pytest.raises(InvalidInput, match="no price is known for openai:nobody-knows-it; set its price"):
        make_plan(run=run, budget=parse_budget("2USD"))
    assert make_plan(run=run, budget=parse_budget("500calls")).advice


def test_the_advice_distinguishes_days_that_differ_too_much_from_too_few_calls(make_plan: Any) -> None:
    hidden = make_plan(detect=0.03, case_count=500, repeats=5, day_sd=1.0)
    assert hidden.watch.with_unlimited_calls.notice_days is None
    assert any("Buy days, not calls" in each for each in hidden.advice)
    few = make_plan(detect=0.1, case_count=5, day_sd=0.0)
    assert few.watch.with_unlimited_calls.notice_days is not None
    assert any(each.startswith("A watch needs more calls a day to see 10 points") for each in few.advice)
    enough = make_plan(detect=0.2, case_count=200, repeats=5, day_sd=0.0)
    assert [each.partition(" ")[0] for each in enough.advice] == ["More"]


def test_a_budget_says_what_it_pays_for(make_plan: Any) -> None:
    def advice(budget: str, **given: Any) -> str:
        return " ".join(make_plan(case_count=100, budget=parse_budget(budget), **given).advice)

    assert "The budget of 100,000 calls is enough for the comparison." in advice("100000calls")
    assert "The budget of 200 calls pays for 100 cases in each of two runs" in advice("200calls")
    repeated = advice("200calls", repeats=4)
    assert "pays for 25 cases in each of two runs, each repeated 4 times" in repeated
    assert "Without repeats, it pays for 100 cases" in repeated
    assert "It pays for 2 days of the watch" in advice("200calls")
    assert "is enough for the watch" in advice("100calls/day")
    assert "pays for 30 cases a day instead of 100" in advice("30calls/day")
    assert "does not pay for a single case a day" in advice("1calls/day", repeats=4)
    assert "pays for 0 cases in each of two runs" in advice("1calls")


def test_the_table_has_smaller_losses_for_more_cases_and_more_repeats(make_plan: Any) -> None:
    losses = {(each.cases, each.repeats): each.loss for each in make_plan().comparison.table}
    assert len(losses) == len(plans.TABLE_CASES) * len(plans.TABLE_REPEATS)
    assert losses[25, 1] > losses[50, 1] > losses[800, 1] > losses[800, 10]


def test_the_tables_of_a_plan_fit_a_terminal(make_plan: Any) -> None:
    lines = render_plan(make_plan(detect=0.05)).splitlines()
    assert lines[0] == "To see the pass rate fall from 90 % to 85 % (5 points):"
    assert max(len(line) for line in lines if line.startswith("    ")) <= 80  # the tables are not wrapped
    assert "    cases    1 repeat  10 repeats" in lines


# ── From a watch ──


def test_the_measured_days_of_a_watch_set_the_assumptions(days: DayClock) -> None:
    with closing(open_store(home_store())) as store:
        bench = Bench(store, days)
        bench.measure_until(4)  # of a watch whose model passes 90 % of its 20 cases, by lot
        with pytest.raises(InvalidInput, match="has 4 measured days, and the pass rates of at least 5 are needed"):
            make_plan_view(store, DetectionPlanRequest(detect=0.1, watch=bench.watch.id), bench.reach)
        for day in range(4, 18):
            bench.measure(day)
        plan = make_plan_view(store, DetectionPlanRequest(detect=0.1, watch=bench.watch.id), bench.reach)
    assert plan.measured is not None
    assert (plan.cases, plan.repeats, plan.watch.instruments, plan.measured.days) == (20, 1, 2, 14)
    assert plan.pass_rate == pytest.approx(0.9, abs=0.05)
    assert plan.flips == pytest.approx(2 * 0.9 * 0.1, abs=0.06)
    assert plan.watch.day_sd_points < 0.06
    assert "of 14 days of the watch" in render_plan(plan)
    assert "Compare two runs to measure" not in render_plan(plan)


def test_a_plan_and_the_report_of_its_watch_forecast_the_same_days(
    days: DayClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_endpoint, "SIMULATED_MONTHS", 10)
    with closing(open_store(home_store())) as store:
        bench = Bench(store, days)
        bench.measure_until(16)
        plan = make_plan_view(store, DetectionPlanRequest(detect=0.1, watch=bench.watch.id), bench.reach)
        report = report_watch(store, bench.watch)
    assert report.endpoint is not None
    assert plan.watch.baseline_days == bench.watch.baseline_days
    planned = [(each.loss, each.notice_days, each.alarm_days) for each in plan.watch.delays]
    reported = [(each.change, each.notice_days, each.alarm_days) for each in report.endpoint.delays]
    assert planned == reported
    assert [change for change, _, _ in reported] == [0.05, 0.1, 0.2]


def test_a_longer_baseline_costs_more_and_sees_a_drop_no_later(make_plan: Any) -> None:
    short, long = (make_plan(case_count=75, day_sd=0.2, baseline_days=days).watch for days in (14, 90))
    assert (short.baseline_days, short.spending_with_baseline.calls) == (14, 75 * 44)
    assert (long.baseline_days, long.spending_with_baseline.calls) == (90, 75 * 120)
    assert long.delays[-1].alarm_days <= short.delays[-1].alarm_days
    with pytest.raises(InvalidInput, match="14"):
        make_plan(baseline_days=13)


def test_an_unknown_watch_is_refused(make_plan: Any) -> None:
    with pytest.raises(NotFound, match="nightly"):
        make_plan(watch="nightly")


def test_a_watch_of_a_text_model_has_as_many_instruments_as_a_plan_assumes() -> None:
    plan = Plan("v1.0", None, (Target("gpt-5", "openai", "gpt-5"),), parameters={"temperature": 0.0, "seed": 42})
    assert (
        len(choose_instruments(plan, None))
        == plans.DEFAULT_TEXT_INSTRUMENT_COUNT
        == DetectionPlanRequest(detect=0.1).instruments
    )


# ── Front ends ──


def test_the_command_prints_the_plan_as_text_and_as_json() -> None:
    done = run_pramana("plan", "--detect", "5 points", "--cases", "40")
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.rstrip().endswith("Nothing was sent or stored.")
    found = json.loads(run_pramana("plan", "--detect", "5%", "--cases", "40", "--json").stdout)
    assert (found["detect"], found["cases"], found["comparison"]["cases"]) == (0.05, 40, 518)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing option '--detect'"),
        (["--detect", "5"], "write 5% for 5 in a hundred"),
        (["--detect", "95%"], "pramana: --detect: a pass rate of 90% cannot fall by 95 points"),
        (["--detect", "5%", "--budget", "2"], "is not a budget"),
        (["--detect", "5%", "--flips", "0.9"], "pramana: --flips: expected a number from 0 to 0.5"),
        (["--detect", "5%", "--day-sd", "nan"], "is not a finite number"),
        (["--detect", "5%", "--tier", "nope"], 'v1.0 has no tier "nope"'),
        (["x.jsonl", "--detect", "5%", "--tier", "cheap"], "--tier cannot be combined with PATHS"),
        (["missing.jsonl", "--detect", "5%"], "missing.jsonl"),
        (["--detect", "5%", "--model", "nope:x"], 'unknown provider "nope"'),
        (["--detect", "5%", "--watch", "w", "--cases", "3"], "--cases cannot be combined with --watch"),
        (["x.jsonl", "--detect", "5%", "--watch", "w"], "PATHS cannot be combined with --watch"),
        (["--detect", "5%", "--watch", "no-such-watch"], "no-such-watch"),
    ],
)
def test_bad_options_are_refused_with_what_to_write(arguments: list[str], message: str) -> None:
    done = run_pramana("plan", *arguments, columns=200)
    assert done.returncode in (2, 3)
    assert message in done.stderr


def test_the_library_returns_the_same_plan() -> None:
    plan = pramana.plan("10%", case_count=75, model="gpt-5", budget="2USD/day")
    assert (plan.detect, plan.cases, plan.models) == (0.1, 75, ("gpt-5",))
    assert str(plan) == repr(plan) == render_plan(plan)
    mine = pramana.plan(0.1, cases=[{"input": f"Say {n}.", "ideal": "x"} for n in range(12)])
    assert mine.cases == 12


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"detect": "x"}, "detect: .* is not a share"),
        ({"detect": None}, "detect: expected a number"),
        ({"detect": 0.05, "repeat": 0}, "repeat: expected a whole number"),
        ({"detect": 0.05, "model": 3}, "model is the name of a model"),
        ({"detect": 0.05, "budget": 2}, "budget is text such as"),
        ({"detect": 0.05, "selection": {"tags": []}}, "tags is empty"),
    ],
)
def test_the_library_names_its_own_arguments_in_errors(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pramana.plan(**given)


def test_the_api_returns_the_plan_and_needs_an_editor(tmp_path: Path) -> None:
    with serve(f"sqlite:///{tmp_path / 'store.sqlite3'}", server_account_needs_token=True) as client:
        assert client.post("/api/plan", {"detect": 0.05}).status == 401
        assert client.with_token("viewer").post("/api/plan", {"detect": 0.05}).status == 403
        editor = client.with_token("editor")
        found = editor.post("/api/plan", {"detect": "10%", "caseCount": 40, "budget": "100 calls/day", "daySd": 0})
        make_documentation_model(DetectionPlanView).model_validate(found.data)
        assert (found.status, found.data["detect"], found.data["cases"]) == (200, 0.1, 40)
        priced = editor.post("/api/plan", {"detect": 0.1, "run": {"models": ["gpt-5"], "tier": "cheap"}})
        assert (priced.data["cases"], priced.data["models"]) == (10, ["gpt-5"])
        assert priced.data["watch"]["spendingPerDay"]["costUsd"] > 0
        for body, field in (
            ({"detect": "x"}, "detect"),
            ({"detect": 0.95}, "detect"),
            ({"detect": 0.1, "budget": "2EUR"}, "budget"),
            ({"detect": 0.1, "passRate": 2}, "passRate"),
            ({"detect": 0.1, "caseCount": "many"}, "caseCount"),
        ):
            refused = editor.post("/api/plan", body)
            assert refused.status in (400, 422), (body, refused.json)
            assert field in json.dumps(refused.json), (body, refused.json)
