"""The command line on PostgreSQL: every command that touches the store, as a user with `PRAMANA_DATABASE_URL` has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from pramana import settings

from .. import programs

SUITE = "\n".join(
    json.dumps(
        {
            "id": f"coding-{number:03}",
            "category": "coding",
            "input": f"Say yes, number {number}. Keep \x00 and 日本 as they are.",
            "ideal": "Yes" if number % 2 else "number",
            "assertion": {"type": "contains_any", "case_sensitive": True},
            "metadata": {"difficulty": "easy" if number % 3 else "hard", "tokens_est": 8},
        }
    )
    for number in range(30)
)


@pytest.fixture(autouse=True)
def _on_postgres(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAMANA_DATABASE_URL", postgres_url)


def run_pramana(*arguments: str | Path, code: int = 0) -> str:
    done = programs.run(["-m", "pramana", *map(str, arguments)])
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def parse_json(*arguments: str | Path, code: int = 0) -> Any:
    return json.loads(run_pramana(*arguments, "--json", code=code))


def test_every_command_that_touches_the_store_works_on_postgresql(tmp_path: Path) -> None:
    suite = tmp_path / "mine.jsonl"
    suite.write_text(SUITE, encoding="utf-8")
    began = parse_json("run", suite, "--model", "fake:echo", "--model", "fake", "--repeat", "2")
    assert (began["overall"]["total"], began["by"]["model"]["fake:echo"]["passed"]) == (120, 30)
    assert parse_json("run", "--resume", began["run"][:12])["run"] == began["run"]

    new = parse_json("run", suite, "--model", "fake:fixed=Yes, number", "--output", tmp_path / "new.json")
    assert [run["id"] for run in parse_json("runs")] == [new["run"], began["run"]]
    assert began["run"] in run_pramana("runs")

    shown = parse_json("show", began["run"], "--difficulty", "hard", "--limit", "4")
    assert (shown["suite"], shown["suite_hash"], shown["overall"]["total"]) == ("mine (selection)", None, 16)
    assert "mine · run" in run_pramana("show")
    for kind, start in (
        ("json", "["),
        ("csv", "test_id"),
        ("junit", "<?xml"),
        ("markdown", "#"),
        ("html", "<!doctype"),
    ):
        assert run_pramana("export", began["run"], "--format", kind).lower().startswith(start)
    exported = json.loads(run_pramana("export", began["run"]))
    assert "\x00 and 日本" in exported[0]["results"][0]["output"]

    better = ("compare", began["run"], new["run"], "--model", "fake:echo", "--new-model", "fake:fixed=Yes, number")
    assert parse_json(*better)["verdict"] == "improvement"

    again = parse_json("rescore", began["run"], "--id", "coding-003")
    assert again["overall"]["total"] == 4
    assert parse_json("show", began["run"])["overall"] == began["overall"]
    assert not (settings.data_folder() / "pramana.sqlite3").exists()
