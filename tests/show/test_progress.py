"""A run as it happens: what is shown is what was stored, and a price that is unknown is never shown as none."""

import pytest

from pramana.model import Check, Failure, Key, Outcome, Reply, Result
from pramana.show.progress import FAILURES_SHOWN, Live


def result(number: int, outcome: Outcome) -> Result:
    key = Key(str(number), "m")
    if outcome is Outcome.ERRORED:
        return Result(key, f"c-{number}", None, Failure("unavailable", "down \x1b[31m"), (), None, None)
    return Result(key, f"c-{number}", Reply("x"), None, (Check("contains", "1", outcome, "because"),), None, None)


def test_failures_come_as_they_happen_and_stay_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    with Live(100, 0) as live:
        live.update([result(0, Outcome.PASSED), result(1, Outcome.ERRORED)], 0.0, unknown_cost=False)
        live.update([result(n, Outcome.FAILED) for n in range(2, 60)], 0.0, unknown_cost=False)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "errored m c-1: down \\x1b[31m"
    assert said[1] == "failed m c-2: because"
    assert len(said) == FAILURES_SHOWN + 1
    assert live.stored == 60


@pytest.mark.parametrize(
    ("cost", "unknown", "shown"),
    [(0.0, False, ""), (0.0, True, "cost unknown"), (0.5, False, "$0.5000"), (0.5, True, "$0.5000 + unknown")],
)
def test_an_unknown_cost_is_said_and_never_zero(cost: float, unknown: bool, shown: str) -> None:
    live = Live(10, 0)
    live.update([result(0, Outcome.PASSED)], cost, unknown_cost=unknown)
    note = live._note(cost, unknown_cost=unknown)
    assert note.startswith("1 passed  ")
    assert note.split("/s")[1].strip() == shown


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Live(10, 0, quiet=True) as live:
        live.update([result(0, Outcome.FAILED)], 1.0, unknown_cost=True)
    assert capsys.readouterr() == ("", "")
