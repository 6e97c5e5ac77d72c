"""`pramana.watch` and `pramana.watches`: from Python, the same watch as on the command line."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

import pramana
from pramana import clock
from pramana.show.cli import pramana as command

CASES = [{"id": f"q{number}", "input": f"Question {number}", "ideal": "yes"} for number in range(5)]


class DayClock(clock.Clock):
    """A clock whose date is set by the test."""

    def __init__(self) -> None:
        self.day = 0

    def now(self) -> datetime:
        return datetime(2026, 3, 1, 3, tzinfo=UTC) + timedelta(days=self.day)


def test_a_function_is_watched_accepted_and_stopped() -> None:
    days, calls = DayClock(), list[str]()

    def model(prompt: str) -> str:
        calls.append(prompt)
        return "yes"

    with clock.use_clock(days):
        watch = pramana.watch(model, CASES, name="bot", baseline_days=14, instruments=["pass-rate"])
        assert (watch.state, watch.days, watch.is_active, watch.name) == ("collecting", (), True, "bot")
        for days.day in (0, 1, 3):
            watch.check()
        assert len(watch.check().days) == 3
        assert len(calls) == 3 * 5, "a day is measured once"
        assert [each.day for each in watch.days] == ["2026-03-01", "2026-03-02", "2026-03-04"]
        assert [len(each.scores) for each in watch.instruments] == [3, 3]
        assert "Collecting the baseline: 3 of 14 days" in watch.sentence
        assert "pass rate" in str(watch)
        watch.accept("a new prompt")
        (same,) = pramana.watches()
        assert (same.id, same.state, len(same.days), same.alerts) == (watch.id, "collecting", 3, ())
        assert watch.stop().is_active is False
        assert pramana.watches(active=True) == []
    (listed,) = json.loads(CliRunner().invoke(command, ["drift", "list", "--json"]).stdout)
    assert listed["id"] == watch.id


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_cost_usd": 3}, "watch has no option max_cost_usd; it has budget_usd_per_day"),
        ({"cache": True}, "watch has no option cache"),
        ({"instruments": "pass-rate"}, "instruments is a list"),
        ({"instruments": ["no-such"]}, "there is no instrument"),
        ({"baseline_days": 3}, "baseline_days"),
        ({"at": "25:00"}, "at"),
        ({"webhook": "no url"}, "the URL of the webhook is not valid"),
        ({"webhook_secret": "key"}, "pass webhook, too"),
        ({"budget_usd_per_day": -1.0}, "budget_usd_per_day"),
    ],
)
def test_wrong_arguments_start_no_watch(given: dict[str, Any], message: str) -> None:
    with pytest.raises(pramana.InvalidInput, match=message):
        pramana.watch("fake:echo", CASES, **given)
    assert pramana.watches() == []


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="bugdet"):
        pramana.watch("fake:echo", CASES, bugdet=3)  # type: ignore[call-arg]


def test_an_error_of_the_model_is_raised_and_the_day_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k" * 20)
    watch = pramana.watch("gpt-5-mini", CASES, budget_usd_per_day=1.0)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(pramana.PramanaError, match="OPENAI_API_KEY"):
        watch.check()
    assert watch.days == ()
