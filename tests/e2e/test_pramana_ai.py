"""The community client, `pramana-ai`, submits to our server: the real program, in its own environment.

Both packages are called `pramana`, so it cannot live in ours. The environment is made once from pinned wheels, in
`PRAMANA_BENCH_HOME` or the user's cache, and used again. Only loopback is ever asked.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from platformdirs import user_cache_path

from pramana.app.access import TooManyRequests
from pramana.settings import read_variable
from pramana.show.api.gate import Gate
from pramana.show.cli import pramana

from ..show.api.served import Client, read_submissions, serve

LOCK = Path(__file__).with_name("pramana-ai.txt")
MAKING_S = 55
CLOSED = "http://127.0.0.1:9"
"""Where every proxy is: nobody listens there, so that only loopback can be reached."""

RUN = """
import asyncio, sys
from pathlib import Path
import pramana.runner as runner
from pramana.providers.base import BaseProvider
from pramana.storage import append_result

class Parrot(BaseProvider):
    model_id = "parrot-1"
    async def complete(self, input_text, system_prompt=None, temperature=0.0, seed=None):
        return f"You said: {input_text}", 7
    def estimate_tokens(self, text):
        return len(text)

suite = Path(runner.__file__).parent / "suites" / "v1.0" / "cheap.jsonl"
append_result(Path(sys.argv[1]), asyncio.run(runner.run_eval(suite, Parrot())))
"""


@pytest.fixture(scope="module")
def client_environment() -> Path:
    """Return the environment of the client; create it if it is missing, and fail the test if that fails."""
    chosen = read_variable("PRAMANA_BENCH_HOME")
    home = Path(chosen).expanduser().absolute() if chosen else user_cache_path("pramana-bench", appauthor=False)
    pins = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:12]
    place = home / f"pramana-ai-client-{pins}"
    if place.exists():
        return place
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=".making-") as folder:
        made = Path(folder, "made")
        install = ["-m", "pip", "--python", f"{made}/bin/python", "install", "-q", "--no-deps", "--require-hashes"]
        for step in (["-m", "venv", "--without-pip", str(made)], [*install, "--no-compile", "-r", str(LOCK)]):
            try:
                done = subprocess.run(
                    [sys.executable, *step], check=False, capture_output=True, text=True, timeout=MAKING_S
                )
                said = "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]
            except subprocess.TimeoutExpired:
                said = f"not done after {MAKING_S} s"
            if said:
                pytest.fail(f"the environment of pramana-ai cannot be made: {' '.join(step)}\n{said}")
        if not place.exists():  # another worker may have been faster
            shutil.move(made, place)
    return place


class Community:
    """The client in its own home folder."""

    def __init__(self, place: Path, folder: Path) -> None:
        self.place, self.folder = place, folder
        self.results = folder / "results.json"

    def run(self, *arguments: str) -> tuple[int, str]:
        environment = {
            "HOME": str(self.folder),
            "PATH": "/usr/bin:/bin",
            "HTTPS_PROXY": CLOSED,
            "HTTP_PROXY": CLOSED,
            "NO_PROXY": "localhost,127.0.0.1",
            "COLUMNS": "200",
        }
        done = subprocess.run(
            [f"{self.place}/bin/python", *arguments],
            check=False,
            capture_output=True,
            text=True,
            env=environment,
            cwd=self.folder,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr

    def submit(self, server: Client) -> tuple[int, str]:
        port = server.url.rpartition(":")[2]
        return self.run(
            f"{self.place}/bin/pramana", "submit", str(self.results), "--api-url", f"http://localhost:{port}"
        )

    def own_results(self) -> list[dict[str, Any]]:
        """Run the client's own suite with its own runner; return the results it wrote."""
        code, said = self.run("-c", RUN, str(self.results))
        assert code == 0, said
        (block,) = json.loads(self.results.read_text())
        found: list[dict[str, Any]] = block["results"]
        return found

    def log_in(self, token: str) -> None:
        (self.folder / ".pramana").mkdir()
        (self.folder / ".pramana" / "config.json").write_text(json.dumps({"token": token}))


@pytest.fixture
def community(client_environment: Path, tmp_path: Path) -> Community:
    folder = tmp_path / "theirs"
    folder.mkdir()
    return Community(client_environment, folder)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Client]:
    with serve(f"sqlite:///{tmp_path / 'store.sqlite3'}") as found:
        yield found


def test_results_of_the_clients_suite_are_accepted_as_unknown_and_its_file_is_emptied(
    community: Community, server: Client
) -> None:
    written = community.own_results()
    kept = community.results.read_bytes()
    code, said = community.submit(server)
    assert (code, "Submitted 10 results from 1 run(s)" in said) == (0, True), said
    assert not community.results.exists()
    found = read_submissions(server)
    assert [row["prompt"] for row in found] == [each["test_id"] for each in written]
    assert [row["output"] for row in found] == [each["output"] for each in written]
    assert [row["score"] for row in found] == [each["score"] for each in written]
    assert {(row["model"], row["verified"], row["temperature"], row["seed"]) for row in found} == {
        ("parrot-1", False, 0.0, 42)
    }
    assert all(row["suite_hash"].startswith("sha256:") and row["result_hash"] and row["stated"] for row in found)
    assert {(row["suite_version"], row["latency_ms"], row["contributor"]) for row in found} == {
        ("v1.0-cheap", 7, "anonymous")
    }

    community.results.write_bytes(kept)
    code, said = community.submit(server)
    assert (code, "Note: 10 duplicate(s) already on server" in said) == (0, True), said
    assert len(read_submissions(server)) == 10


def test_results_of_a_built_in_suite_have_a_known_suite(community: Community, server: Client) -> None:
    run = CliRunner().invoke(pramana, ["run", "--tier", "cheap", "--model", "fake", "--json"])
    assert run.exit_code in (0, 1), run.output
    exported = CliRunner().invoke(pramana, ["export", "--format", "json", "--output", str(community.results)])
    assert exported.exit_code == 0, exported.output
    code, said = community.submit(server)
    assert (code, "Submitted 10 results from 1 run(s)" in said) == (0, True), said
    assert {row["verified"] for row in read_submissions(server)} == {True}
    (point,) = server.get("/api/data/chart").data
    assert (point["submissions"], point["prompts"], point["consistency"]) == (10, 10, 1.0)


def test_results_of_the_clients_suite_have_a_known_suite_after_its_upload(community: Community, server: Client) -> None:
    community.own_results()
    (suite,) = community.place.glob("lib/python*/site-packages/pramana/suites/v1.0/cheap.jsonl")
    uploaded = server.post("/api/suites", {"version": "theirs-1.0", "tiers": {"cheap": suite.read_text()}})
    assert uploaded.status == 201, uploaded.body
    code, said = community.submit(server)
    assert (code, {row["verified"] for row in read_submissions(server)}) == (0, {True}), said


def test_the_client_waits_for_the_requested_time(
    community: Community, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    community.own_results()
    wait_times: list[str] = []
    admit = Gate._authorize

    async def admit_crowded(self: Gate, scope: Any, *given: Any, **named: Any) -> None:
        """Use up the rate limit of the client's address until its first request is refused; then count as usual."""
        try:
            await admit(self, scope, *given, **named)
            while not wait_times and scope["path"] == "/api/submit":
                await admit(self, scope, *given, **named)
        except TooManyRequests as error:
            wait_times.append(str(error.retry_after_s))
            raise

    monkeypatch.setattr(Gate, "_authorize", admit_crowded)
    with serve(f"sqlite:///{tmp_path / 'store.sqlite3'}", server_account_needs_token=True) as server:
        assert server.store
        assert server.serving
        server.store.preferences.write({"anonymous_submission": True, "requests_per_minute": 120})
        server.serving.refresh_settings()
        code, said = community.submit(server)
        assert (code, "Submitted 10 results" in said) == (0, True), said
        assert wait_times, "it was never told to wait"
        assert all(each.isdecimal() for each in wait_times)
        assert len(read_submissions(server)) == 10


def test_a_prompt_outside_the_suite_is_refused_and_the_file_is_kept(community: Community, server: Client) -> None:
    community.own_results()
    (block,) = json.loads(community.results.read_text())
    built_in = server.get("/api/suites/v1.0/hash").data["tiers"]["cheap"]
    community.results.write_text(json.dumps([{**block, "suite_hash": built_in}]))
    code, said = community.submit(server)
    assert (code, "Submission failed on run 1" in said, "400" in said) == (1, True, True), said
    assert community.results.exists()
    assert read_submissions(server) == []


def test_the_client_submits_with_its_own_token_if_one_is_required(community: Community, tmp_path: Path) -> None:
    community.own_results()
    with serve(f"sqlite:///{tmp_path / 'store.sqlite3'}", server_account_needs_token=True) as server:
        code, said = community.submit(server)
        assert (code, "401" in said) == (1, True), said
        assert server.store
        token, secret = server.store.tokens.create("them", "viewer")
        community.log_in(secret)
        code, said = community.submit(server)
        assert code == 0, said
        assert {row["contributor"] for row in read_submissions(server)} == {token.id}
