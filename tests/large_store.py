"""Data as a team has after some months: runs with thousands of results, documents with thousands of cases."""

import json
from contextlib import closing
from pathlib import Path

from pramana.bench import run_sync
from pramana.planning import create_run
from pramana.request import Limits, RunRequest
from pramana.store import open_store

RESULTS = 2_000


def suite_text(count: int) -> str:
    """Return the lines of a suite."""
    case = {
        "category": "coding",
        "ideal": ["yes", "9."],
        "assertion": {"type": "contains_any", "case_sensitive": False},
        "metadata": {"difficulty": "easy", "tokens_est": 8},
    }
    texts = (
        {"id": f"coding-{n:05}", "input": f"Say yes, number {n}. {'Why? ' * (n % 40)}", **case} for n in range(count)
    )
    return "".join(json.dumps(each) + "\n" for each in texts)


def scenarios_yaml(count: int, prefix: str = "ask") -> str:
    """Return a document of scenarios."""
    each = "".join(
        f"  - {{id: {prefix}-{n:05}, name: Question {n}, type: task-completion, prompt: Please answer number {n}.,"
        f' expected_outcome: It is answered, difficulty: easy, tags: ["domain:part-{n % 20}"]}}\n'
        for n in range(count)
    )
    return f'version: "1.0"\nscenarios:\n{each}'


def add_two_runs(url: str, folder: Path) -> tuple[str, str]:
    """Add two runs of the same cases to a store; return their ids."""
    suite = folder / "large.jsonl"
    suite.write_text(suite_text(RESULTS), encoding="utf-8")
    with closing(open_store(url)) as store:
        runs = [
            run_sync(store, create_run(store, RunRequest(paths=(suite,), models=(model,))), Limits()).id
            for model in ("fake:echo", "fake")
        ]
    return runs[0], runs[1]
