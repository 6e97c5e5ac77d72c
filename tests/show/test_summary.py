"""A summary at the terminal: within its columns whatever things are called, and honest about who judged and what it cost."""

from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from pramana import settings
from pramana.model import Case, Check, Facets, Failure, Key, Outcome, Plan, Reply, Result, Run, Target, Usage
from pramana.show.cli import pramana
from pramana.show.summary import decide, print_summary, summary_of_results
from pramana.show.terminal import fitted, width, wrapped
from pramana.store import open_store

WIDE = [
    "日本語の長い名前" * 20,
    "한국어" * 40,
    "👩🏽‍🚀❤️" * 30,
    "e\u0301" * 100,
    "x" * 1_000_000,
    "عربي " * 50,
    "\x1b[31m\u202e" * 30,
]


def a_run(suite: str = "mine", models: tuple[str, ...] = ("m",), **more: Any) -> Run:
    plan = Plan(suite, None, tuple(Target(each, "fake", each) for each in models), 1, {}, runner_version="0.1.0")
    return Run("r20260101-000000-abcd", plan, "finished", "2026-01-02T03:04:05Z", 5, 5, **more)


def result(name: str, outcome: Outcome, model: str = "m", **evidence: object) -> tuple[Case, Result]:
    case = Case(name, "test_case", (), Facets(name, name, name, (name,)))
    key = Key("sha256:1", model)
    if outcome is Outcome.ERRORED:
        return case, Result(key, name, None, Failure("unavailable", f"no answer of {name}"), (), None, None)
    reply = Reply("x", Usage(10, 2), total_s=0.1, cost_usd=0.5)
    checks = (Check("llm_judge", "1", outcome, f"because of {name}", evidence=evidence),)
    return case, Result(key, name, reply, None, checks, None, None)


def printed(run: Run, rows: list[tuple[Case, Result]], capsys: pytest.CaptureFixture[str]) -> str:
    summary = summary_of_results(run, rows)
    print_summary(run, summary, decide(run, summary, 0.9).sentence)
    return capsys.readouterr().out


@pytest.mark.parametrize("name", WIDE)
def test_eighty_columns_are_eighty_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    models = (f"{name[:200]}1", f"{name[:200]}2")
    rows = [
        result(f"{number} {name}", outcome, model)
        for number in range(15)
        for outcome in Outcome
        for model in models
    ]  # fmt: skip
    text = printed(a_run(name, models), rows, capsys)
    assert max(map(width, text.splitlines())) <= 80
    assert len(text) < 50_000
    assert "\x1b[31m" not in text
    assert "\u202e" not in text


def test_the_bars_stand_below_each_other_whatever_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [result(name, Outcome.PASSED) for name in ("日本語", "plain", "👩🏽‍🚀", "日" * 30)]
    lines = [line for line in printed(a_run(), rows, capsys).splitlines() if "█" in line]
    assert len(lines) > 4
    assert {width(line.partition("█")[0]) for line in lines} == {27}


def test_runs_are_listed_within_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(settings.database_url())
    targets = tuple(Target(f"http://localhost:8000/v1#模型{number}", "compatible", "x") for number in range(9))
    store.create_run(Plan("日本語" * 20, None, targets), [Case("a", "test_case", (), Facets("b", "c"))])
    store.close()
    for columns in (80, 120, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        (line,) = CliRunner().invoke(pramana, ["runs"]).stdout.splitlines()
        assert columns - 2 <= width(line) <= columns
        assert line.endswith("…")


@pytest.mark.parametrize("columns", [8, 20, 80])
@pytest.mark.parametrize("name", WIDE)
def test_what_is_fitted_or_wrapped_fits(name: str, columns: int) -> None:
    assert width(fitted(name, columns)) <= columns
    lines = wrapped(name[:5_000], columns, "- ", "    ").splitlines()
    assert max(map(width, lines)) <= columns
    assert "".join(line[4:] if place else line[2:] for place, line in enumerate(lines)).count("…") == name.count("…")


def test_verdicts_of_several_judges_are_said_below_the_rate(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [result(f"a-{number}", Outcome.PASSED, judge="gpt-5" if number < 7 else "m") for number in range(10)]
    lines = printed(a_run(), rows, capsys).splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("    all"))
    assert lines[place + 1] == "  several judges: llm_judge: 7 of 10 verdicts by openai:gpt-5, 3 by m"
    alike = printed(a_run(), rows[:7], capsys)
    assert "judges" not in alike


def test_models_that_judge_themselves_are_no_mixture(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [result("a-1", Outcome.PASSED, model, judge=model) for model in ("m", "n")]
    assert "several judges" not in printed(a_run(models=("m", "n")), rows, capsys)


def test_what_judges_took_is_shown_with_what_was_paid_before(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [result("a-1", Outcome.PASSED, judge="gpt-5", cost_usd=0.25, tokens=1200)]
    text = " ".join(printed(a_run(), rows, capsys).split())
    assert "Tokens: 10 in, 2 out; judges: 1,200 tokens, $0.2500; cost: $0.7500 with them;" in text
    case, judged = rows[0]
    evidence = {**judged.checks[0].evidence, "other_scorings": {"cost_usd": 1.0, "tokens": 300}}
    again = replace(judged, checks=(replace(judged.checks[0], evidence=evidence),))
    text = " ".join(printed(a_run(), [(case, again)], capsys).split())
    assert "judges: 1,500 tokens, $1.25, earlier judgings included; cost: $1.75 with them;" in text
