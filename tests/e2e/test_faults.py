"""Runs against a server that fails at random, and the embedded model twice: every case ends in exactly one outcome."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pramana import settings
from pramana.bench import execute
from pramana.model import Outcome, Run
from pramana.planning import create_run
from pramana.request import Limits, RunRequest
from pramana.store import open_store

from ..loopback.openai import OpenAIWire
from ..loopback.server import Fault, Loopback

pytestmark = pytest.mark.usefixtures("virtual_time")
FAULTS = [
    Fault("rate_limited"),
    Fault("rate_limited", retry_after="0.05"),
    Fault("error"),
    Fault("overloaded"),
    Fault("cut"),
]


def write_suite(path: Path, count: int) -> Path:
    case = {
        "category": "coding",
        "input": "Say yes.",
        "ideal": "yes",
        "assertion": {"type": "contains", "case_sensitive": False},
        "metadata": {"difficulty": "easy", "tokens_est": 4},
    }
    lines = (json.dumps({"id": f"coding-{number:05}", **case}) for number in range(count))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_five_thousand_cases_under_random_faults_end_exactly_once(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 5_000)

    async def work() -> Run:
        async with Loopback(OpenAIWire("Yes."), faults=FAULTS, chance=0.3, seed=7, keep=False) as server:
            store = open_store(settings.database_url())
            run = create_run(store, RunRequest(paths=(suite,), models=(f"{server.url}#any",)))
            ended = await execute(store, run, Limits(concurrency=64))
            assert server.count > 5_000
            store.close()
            return ended

    run = asyncio.run(work())
    assert (run.status, run.stored) == ("finished", 5_000)
    store = open_store(settings.database_url())
    results = [result for _, result in store.results.iterate(run.id)]
    store.close()
    assert max(Counter(result.key for result in results).values()) == 1
    outcomes = Counter(result.outcome for result in results)
    assert set(outcomes) <= {Outcome.PASSED, Outcome.ERRORED}
    assert outcomes[Outcome.PASSED] > 4_900  # 0.3 to the sixth power: a few never get through
    assert all(result.failure for result in results if result.outcome is Outcome.ERRORED)
    changes = next(iter(run.notes["limits"].values()))
    assert {"start", "rate limit"} <= {cause for _, _, cause in changes}


def test_the_embedded_model_gives_the_same_results_in_two_processes(tmp_path: Path) -> None:
    hashes = []
    for name in ("one", "two"):
        output = tmp_path / f"{name}.json"
        command = [sys.executable, "-m", "pramana", "run", "--quiet", "--max-tokens", "16", "--output", str(output)]
        environment = {**os.environ, "PRAMANA_HOME": str(tmp_path / name), "CI": "true"}  # noqa: TID251 - two fresh homes
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        (block,) = json.loads(output.read_text(encoding="utf-8"))
        hashes.append({result["test_id"]: result["result_hash"] for result in block["results"]})
    assert len(hashes[0]) == 10
    assert hashes[0] == hashes[1]
