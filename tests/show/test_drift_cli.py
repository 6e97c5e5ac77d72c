"""`pramana drift`: a watch from start to stop at the terminal, with its exit codes."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pramana import clock
from pramana.report.terminal import count_columns
from pramana.show.cli import pramana


class DayClock(clock.Clock):
    """A clock whose date is set by the test."""

    moment = datetime(2026, 3, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment


@pytest.fixture
def days() -> Iterator[DayClock]:
    virtual = DayClock()
    with clock.use_clock(virtual):
        yield virtual


def drift(*arguments: str) -> Result:
    return CliRunner().invoke(pramana, ["drift", *arguments], standalone_mode=False)


def read_json(*arguments: str) -> Any:
    return json.loads(drift(*arguments, "--json").stdout)


def start(*options: str) -> str:
    """Start a watch of a model that always replies "yes"; return its ID."""
    cases = [
        {
            "id": f"q{number}",
            "category": "factual",
            "input": f"question {number}",
            "ideal": ["yes"],
            "assertion": {"type": "contains"},
            "metadata": {"difficulty": "easy", "tokens_est": 8},
        }
        for number in range(3)
    ]
    Path("suite.jsonl").write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")
    started = read_json("start", "fake:fixed=yes", "suite.jsonl", "--baseline-days", "14", *options)
    return str(started["id"])


def test_the_start_of_a_watch_with_a_budget_and_unknown_costs_says_so_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start("--name", "other")
    Path("house.py").write_text("def reply(prompt):\n    return 'yes'\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    started = drift("start", "python:house:reply", "suite.jsonl", "--budget", "1USD/day").stdout
    assert 'Warning: "python:house:reply" has no price, so the cost of a reply is known' in started
    assert '  [prices."python:house:reply"]\n  input_per_million = 0\n  output_per_million = 0\n' in started
    assert all(count_columns(line) <= 80 for line in started.splitlines() if "prices.toml" not in line)
    assert "prices.toml\n  [prices." in started
    assert "Warning" not in drift("start", "python:house:reply", "suite.jsonl").stdout


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_a_watch_from_its_start_to_its_end(days: DayClock) -> None:
    watch = start("--name", "bot", "--budget", "2USD/day", "--at", "03:00", "--instruments", "pass-rate,length")
    assert (drift("check").return_value, drift("check", "bot").return_value) == (4, 4)
    for _ in range(15):
        days.moment += timedelta(days=1)
        last = drift("check", watch[:20])
    assert last.return_value == 0
    assert last.stdout == "Quiet: no change seen in the 2 days since the baseline.\n"
    shown = drift("show").stdout
    assert all(count_columns(line) <= 80 for line in shown.splitlines())
    for expected in (
        "Proven: Without a change, at most 1 % of the months have a notice, and 0.03 % an",
        "16 days measured; last: 2026-03-16.",
        "pass rate, down     100 %        quiet        baseline 100 %",
        "Hash consistency, the community's measure: 3 of 3 replies",
        "This endpoint's own days (14 days)",
        "20 points  notice not within 30 days",
    ):
        assert expected in " ".join(shown.split()) or expected in shown
    assert "bot fake:fixed=yes 16 days" in drift("list").stdout
    listed = read_json("list")
    assert [(each["id"], each["level"], each["budget_usd_per_day"], each["at"]) for each in listed] == [
        (watch, "quiet", 2.0, "03:00")
    ]
    confirmed = drift("confirm", "bot")
    assert confirmed.return_value == 0
    assert "3 of 3 calls answered); the statistic does not use it" in " ".join(confirmed.stdout.split())
    assert read_json("show")["measured_days"] == 16
    assert (
        drift("accept", "--note", "announced").stdout == "Watch bot: a new baseline of 14 days begins on 2026-03-17.\n"
    )
    assert drift("stop").stdout == "Watch bot is stopped; its 16 days are kept.\n"
    assert read_json("list", "--active") == []


def test_several_watches_are_checked_together_and_the_worst_code_counts(days: DayClock) -> None:
    days.moment += timedelta(hours=1)
    one, two = start("--name", "one"), start("--name", "two")
    result = drift("check")
    assert result.return_value == 4
    assert result.stdout.startswith("two: Collecting the baseline: 1 of 14 days.")
    assert "\none: Collecting" in result.stdout
    found = read_json("check")
    assert [each["id"] for each in found["watches"]] == [two, one]
    assert found["exit_code"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check",), "there is no active watch; start one: pramana drift start MODEL"),
        (("show", "nothing"), 'there is no watch "nothing"; see: pramana drift list'),
        (("start",), "Missing argument 'MODEL'"),
        (("start", "fake", "--budget", "much"), "expected US dollars per day, such as 2USD/day"),
        (("start", "fake", "--budget", "0USD/day"), "expected US dollars per day, such as 2USD/day"),
        (("start", "fake", "--baseline-days", "3"), "--baseline-days: expected a whole number from 14 to 365"),
        (("start", "fake", "--at", "noon"), "--at: expected"),
        (("start", "fake", "--instruments", "mood"), '--instruments: there is no instrument "mood"'),
        (("start", "fake", "missing.jsonl"), "missing.jsonl"),
        (("start", "fake", "missing.jsonl", "--tier", "cheap"), "--tier cannot be combined with PATHS"),
        (("start", "nonsense:x"), "nonsense"),
    ],
)
def test_wrong_usage_says_what_to_do(arguments: tuple[str, ...], message: str) -> None:
    result = drift(*arguments)
    assert result.exception is not None
    shown = result.exception.format_message() if hasattr(result.exception, "format_message") else str(result.exception)
    assert message in shown
    assert read_json("list") == []


def test_a_model_that_cannot_be_reached_leaves_a_day_that_can_be_measured_later(days: DayClock) -> None:
    days.moment += timedelta(hours=1)
    read_json("start", "python:missing_module:reply", "--limit", "2", "--name", "later")
    Path("missing_module.py").write_text("raise ValueError('broken')\n", encoding="utf-8")
    result = drift("check", "later")
    assert result.return_value in (2, 3, 4)
    assert read_json("show", "later")["measured_days"] == 0


def test_a_list_of_several_watches_says_what_to_expect_of_all_together(days: DayClock) -> None:
    first, second = start("--name", "one"), start("--name", "two")
    assert "2 active watches: while no model changes, expect at most 0.02 false notices" in join_lines(drift("list"))
    assert "stand" not in drift("list").stdout  # no day is compared with a baseline yet
    for _ in range(24):
        assert drift("check", "--quiet").exit_code in (0, 4)
        days.moment += timedelta(days=1)
    listed = {each["id"]: each for each in read_json("list")}
    assert {first, second} == set(listed)
    for each in listed.values():
        assert 0 < each["p_value"] <= each["adjusted_p_value"] <= 1
    assert read_json("show", first)["p_value"] == listed[first]["p_value"]
    assert read_json("show", first)["adjusted_p_value"] is None
    text = join_lines(drift("list"))
    assert "adjusted for their number (Benjamini-Yekutieli), none stands out among all." in text
    assert max(map(count_columns, drift("list").stdout.splitlines())) <= 80
    drift("stop", "two")
    assert "active watches" not in drift("list").stdout


def join_lines(result: Result) -> str:
    return " ".join(result.stdout.split())


@pytest.mark.usefixtures("days")
def test_a_watch_without_anything_to_measure_says_so_and_exits_with_4() -> None:
    watch = start("--instruments", "answers")
    checked = drift("check", watch)
    assert checked.return_value == 4
    said = " ".join(checked.stdout.split())
    assert said.startswith("Nothing can be measured: the only instrument, answers, found nothing to measure")
    assert "start one with other instruments" in said
    assert "Collecting" not in drift("show", watch).stdout
    assert drift("check", watch).return_value == 4


@pytest.mark.usefixtures("days")
def test_the_start_of_a_watch_says_what_it_could_see_marked_as_assumed() -> None:
    watch = start()
    said = drift("start", "fake:fixed=yes", "suite.jsonl", "--instruments", "pass-rate").stdout
    assert "Assumed, once the baseline is complete: with 3 cases a day" in " ".join(said.split())
    assert all(count_columns(line) <= 80 for line in said.splitlines())
    assert read_json("show", watch)["forecast"]["cases"] == 3
