"""A data folder written by an earlier version: its runs are resumed, rescored and compared, and nothing is lost."""

import json
import os
import wave
from pathlib import Path
from typing import Any

import pytest

from .. import old_stores, programs

STOPPED = "r20261117-233218-9879"
TWO_MODELS, OTHER = "r20261117-233123-fbb3", "r20261117-233133-3774"
JUDGED = "r20261117-233213-f704"
VOICE = "r20261117-233139-05b4"


@pytest.fixture(autouse=True)
def _old_home() -> None:
    old_stores.unpack(old_stores.NOVEMBER, Path(os.environ["PRAMANA_HOME"]))  # noqa: TID251 - set by the tests


def read_json(*arguments: str, exit_code: int = 0) -> Any:
    done = programs.run(["-m", "pramana", *arguments, "--json"])
    assert done.returncode == exit_code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_every_old_run_is_listed_with_its_status() -> None:
    assert [(each["status"], each["stored"]) for each in read_json("runs")] == [
        ("finished", 1), ("stopped", 2), ("finished", 4), ("finished", 1), ("finished", 16), ("finished", 32),
    ]  # fmt: skip


def test_an_old_stopped_run_resumes_where_it_stopped() -> None:
    before = read_json("show", STOPPED)
    read_json("run", "--resume", STOPPED, "--max-total-tokens", "none", "--quiet")  # it was stopped by its limit
    after = read_json("show", STOPPED)
    assert (before["stored"], after["stored"], after["expected"]) == (2, 10, 10)
    assert after["status"] == "finished"


@pytest.mark.parametrize(("judge", "outcome"), [("fake:fixed=YES", "passed"), ("fake:fixed=NO", "failed")])
def test_an_old_run_can_be_rescored(judge: str, outcome: str) -> None:
    read_json("rescore", JUDGED, "--judge", judge, "--quiet", exit_code=3)  # one model's answers are errors
    assert read_json("show", JUDGED)["by"]["check"]["llm_judge"][outcome] == 1


def test_old_runs_are_compared_case_by_case() -> None:
    found = read_json(
        "compare",
        TWO_MODELS,
        OTHER,
        "--model",
        "fake:fixed=Ben",
        "--new-model",
        "fake:fixed=16:00",
        "--fail-on",
        "inconclusive",
        exit_code=4,
    )
    assert found["pairs"] == 8
    assert [each["case"] for each in found["lost"]] == ["reasoning-001"]
    assert [each["case"] for each in found["gained"]] == ["reasoning-002"]


def test_an_old_call_keeps_its_recording(tmp_path: Path) -> None:
    done = programs.run(["-m", "pramana", "export", VOICE, "--audio", str(tmp_path / "calls")])
    assert done.returncode == 0, done.stderr
    (recording,) = (tmp_path / "calls").rglob("*.wav")
    with wave.open(str(recording)) as sound:
        assert (sound.getnchannels(), sound.getnframes() > sound.getframerate()) == (2, True)
