"""A resumed run keeps its limits, so it never spends more than allowed."""

import asyncio

import pytest

import pramana
from pramana import settings
from pramana.errors import InvalidInput

ASKED = [{"id": f"case-{number}", "input": f"Say {number}.", "ideal": "yes"} for number in range(12)]


class Bot:
    """Counts its calls and their concurrency; each call costs a dollar."""

    def __init__(self) -> None:
        self.calls = self.under_way = self.most = 0

    async def __call__(self, _: str) -> pramana.Reply:
        self.calls += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.005)
        self.under_way -= 1
        return pramana.Reply("yes", usage=pramana.Usage(5, 5))


@pytest.fixture(autouse=True)
def _bot_price() -> None:
    settings.prices_file_path().parent.mkdir(parents=True, exist_ok=True)
    settings.prices_file_path().write_text(
        f'[prices."python:{__name__}:Bot"]\ninput_per_million = 1e5\noutput_per_million = 1e5\n', encoding="utf-8"
    )


def run_until_limit(**limits: object) -> tuple[pramana.Report, Bot]:
    bot = Bot()
    report = pramana.evaluate(ASKED, model=bot, concurrency=2, **limits)  # type: ignore[arg-type]
    assert not report.finished
    return report, bot


@pytest.mark.parametrize(("limit", "first", "higher"), [("max_cost_usd", 3.0, 100.0), ("max_total_tokens", 30, 1_000)])
def test_a_resumed_run_stops_at_the_same_limit_until_it_is_raised(limit: str, first: float, higher: float) -> None:
    report, bot = run_until_limit(**{limit: first})
    asked = bot.calls
    placeholder = {"max_cost_usd": "USD", "max_total_tokens": "N"}[limit]
    assert f"{limit}={placeholder}) (more than {first:g}, or None)" in str(report)

    again = pramana.resume(report, model=bot)
    assert bot.calls == asked, "no case was run"
    assert (again.finished, again.stop_reason) == (False, report.stop_reason)
    assert "limit of" in (report.stop_reason or "")

    done = pramana.resume(report, model=bot, **{limit: higher})  # type: ignore[arg-type]
    assert done.finished
    assert done.run.limits == {**report.run.limits, limit: higher}


def test_none_removes_a_limit() -> None:
    report, bot = run_until_limit(max_cost_usd=3.0)
    done = pramana.resume(report, model=bot, max_cost_usd=None)
    assert done.finished
    assert "max_cost_usd" not in done.run.limits


def test_a_resumed_run_keeps_its_concurrency_and_timeout() -> None:
    report, bot = run_until_limit(max_total_tokens=30, timeout_s=60)
    bot.most = 0
    done = pramana.resume(report, model=bot, max_total_tokens=1_000)
    assert (done.finished, bot.most) == (True, 2)
    assert done.run.limits == {"max_total_tokens": 1_000, "concurrency": 2, "timeout_s": 60.0}


def test_a_deadline_restarts_on_resume_and_is_named_in_the_advice() -> None:
    bot = Bot()
    report = pramana.evaluate(ASKED, model=bot, deadline_s=0.000001)
    assert str(report).endswith(") (for another 1e-06 s; deadline_s changes that)")
    assert not pramana.resume(report, model=bot).finished
    assert pramana.resume(report, model=bot, deadline_s=None).finished


def test_an_invalid_limit_is_refused_before_any_model_call() -> None:
    report, bot = run_until_limit(max_cost_usd=3.0)
    asked = bot.calls
    with pytest.raises(InvalidInput, match="max_cost_usd: expected a number more than 0"):
        pramana.resume(report, model=bot, max_cost_usd=-1)
    assert bot.calls == asked
