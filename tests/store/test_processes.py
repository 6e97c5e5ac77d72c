"""One file, many processes and SIGKILL: no locking failure, no reported result lost, no corruption."""

import os
import random
import signal
import sqlite3
import time
from pathlib import Path

from pramana.store import open_store

from .. import programs
from .samples import list_pending, make_cases, make_plan

WRITE = """
import asyncio, sys
from itertools import chain
from pramana.model import Check, Outcome, Reply, Result
from pramana.replies import encode_raw_response
from pramana.store import open_store

store = open_store(sys.argv[1])

def stored(group):
    print("\\n".join(result.key.case for _, result in group), flush=True)

async def main():
    async with store.results.make_writer(sys.argv[2], stored) as writer:
        for number, (key, case) in enumerate(chain.from_iterable(store.cases.iterate_pending_chunks(sys.argv[2]))):
            reply = Reply(case.turns[0].text * 20, raw=encode_raw_response([case.id] * 300))
            check = Check("c", "1", Outcome.PASSED, "yes")
            await writer.put([Result(key, case.id, reply, None, (check,), None, None)])
            if number % 20 == 0:
                await asyncio.sleep(0.002)

asyncio.run(main())
"""


def start(url: str, run_id: str, output: Path) -> programs.Process:
    with output.open("wb") as file, error_path(output).open("wb") as errors:
        return programs.start(["-c", WRITE, url, run_id], stdout=file, stderr=errors)


def error_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.errors")


def test_three_processes_can_write_one_file_at_once(tmp_path: Path) -> None:
    """Each to its own run, while this process reads and makes runs."""
    url = f"sqlite:///{tmp_path}/pramana.sqlite3"
    store = open_store(url)
    ids = [store.runs.create(make_plan(), make_cases(2000)).id for _ in range(3)]
    outputs = [tmp_path / run_id for run_id in ids]
    writing = [start(url, run_id, output) for run_id, output in zip(ids, outputs, strict=True)]
    while any(process.poll() is None for process in writing):
        store.runs.create(make_plan(), make_cases(20))
        assert all(store.runs.find(run_id).stored >= 0 for run_id in ids)
        time.sleep(0.01)
    for process, output in zip(writing, outputs, strict=True):
        assert process.wait() == 0
        assert error_path(output).read_text() == ""
    for run_id, output in zip(ids, outputs, strict=True):
        there = [result.key.case for _, result in store.results.iterate(run_id)]
        assert len(set(there)) == len(there) == store.runs.find(run_id).stored == 2000
        assert output.read_text().split() == there
        assert list(list_pending(store, run_id)) == []
    store.close()


def test_reported_results_survive_sigkill(tmp_path: Path) -> None:
    """Kill a writing process at random moments and go on, until the run is done."""
    url, moments = f"sqlite:///{tmp_path}/pramana.sqlite3", random.Random(7)
    store = open_store(url)
    run_id = store.runs.create(make_plan(), make_cases(8000)).id
    store.close()
    reported: set[str] = set()
    killed = 0
    for number in range(100):
        output = tmp_path / f"{number}.txt"
        process = start(url, run_id, output)
        if number % 4:  # the fourth is killed at any moment, while it starts or opens the file
            while process.poll() is None and not output.stat().st_size:
                time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.12))
        if process.poll() is None and number < 12:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        assert process.wait() in (0, -signal.SIGKILL), error_path(output).read_text()
        lines = output.read_text().splitlines(keepends=True)
        reported |= {line.strip() for line in lines if line.endswith("\n")}

        with sqlite3.connect(tmp_path / "pramana.sqlite3") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.close()
        store = open_store(url)
        there = [result.key.case for _, result in store.results.iterate(run_id)]
        assert reported <= set(there), "a result that was reported is gone"
        assert len(there) == len(set(there)) == store.runs.find(run_id).stored
        store.close()
        if process.returncode == 0:
            break
    assert killed >= 3, "the process was never killed while it wrote"
    assert len(there) == 8000
