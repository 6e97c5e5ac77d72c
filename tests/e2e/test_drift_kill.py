"""The small form of `benchmarks.drift_kill`: a scheduler that is killed at random moments measures every day once."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .. import programs

ROOT = Path(__file__).parents[2]

if TYPE_CHECKING:
    from benchmarks import drift_kill


def test_a_killed_scheduler_measures_every_day_once_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    from benchmarks import drift_kill

    folder = Path(os.environ["PRAMANA_HOME"])  # noqa: TID251 - set by the tests
    folder.mkdir(parents=True, exist_ok=True)

    with (folder / "schedulers.log").open("wb") as log:

        def start(arguments: Sequence[str]) -> "drift_kill.Process":
            return programs.start(arguments, cwd=ROOT, stdout=log)

        outcome = drift_kill.run(folder, start, days=4, kills=5)
    assert outcome.problems == []
    assert (outcome.kills, outcome.late_restarts) == (3, [])
    assert outcome.watch_days == outcome.measured_days == 4 * 3
    assert outcome.results_by_purpose["batch"] == 4 * (20 + 20 + 17)
    assert outcome.results_by_purpose["logprobs"] == 4 * (8 + 8)
    assert 2 * 180 < outcome.results_by_purpose["search"] <= 2 * 192
    assert 4 * 192 <= outcome.results_by_purpose["answers"] <= 4 * 192 + 60
    assert outcome.stored_results == sum(outcome.results_by_purpose.values())
    assert {"search", "answers"} & set(outcome.killed_purposes), "the kills hit the prompts of instruments too"
