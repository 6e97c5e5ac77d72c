"""Do pages stay fast with much data? Loads the list of runs and a run's page in Chromium, with little and with much.

Bars: the list with 10,000 stored runs takes at most 1.5 times as long as with 100, and a run's page with 100,000
results at most twice as long as with 100; medians of 9 loads each, alternating, until everything on the page is there.
Servers are separate processes. The runs use the fake provider; the many are SQL copies of a hundred real ones:
synthetic.
"""

import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from tests import chromium

from benchmarks.served import run_server

LOADS = 9
FEW_RUNS, MANY_RUNS = 100, 10_000
FEW_RESULTS, MANY_RESULTS = 100, 100_000


def main() -> int:
    """Print the table; return 1 if a bar is missed."""
    with tempfile.TemporaryDirectory(prefix="pramana-pages-") as folder:
        few, many = Path(folder, "few"), Path(folder, "many")
        asked = Path(folder, "asked.jsonl")
        asked.write_text("".join(_make_case(number) for number in range(5)), encoding="utf-8")
        for _ in range(FEW_RUNS):
            _run_pramana(few, "run", str(asked), "--model", "fake:echo", "--quiet")
        shutil.copytree(few, many)
        _copy_runs(many / "pramana.sqlite3", MANY_RUNS // FEW_RUNS - 1)
        runs = {}
        for count in (FEW_RESULTS, MANY_RESULTS):
            suite = Path(folder, f"{count}.jsonl")
            suite.write_text("".join(_make_case(number) for number in range(count)), encoding="utf-8")
            _run_pramana(many, "run", str(suite), "--model", "fake:echo", "--quiet")
            runs[count] = json.loads(_run_pramana(many, "runs", "--json"))[0]["id"]
        with (
            run_server(PRAMANA_HOME=str(few)) as small,
            run_server(PRAMANA_HOME=str(many)) as large,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(
                executable_path=chromium.find_executable(),
                args=["--no-sandbox", "--disable-gpu"],
            )
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            listed = _measure_loads(page, (f"{small}/runs", f"{large}/runs"), "#main .bar")
            addresses = [f"{large}/runs/{runs[count]}" for count in (FEW_RESULTS, MANY_RESULTS)]
            results = _measure_loads(page, addresses, "#main .big")
            browser.close()
    print("| page | with little | with much | ratio |\n| --- | --- | --- | --- |")
    kept = True
    for what, (little, much), bar in (
        (f"list of runs: {FEW_RUNS:,} and {MANY_RUNS:,} runs", listed, 1.5),
        (f"page of a run: {FEW_RESULTS:,} and {MANY_RESULTS:,} results", results, 2.0),
    ):
        ratio = much / little
        kept = kept and ratio <= bar
        print(f"| {what} | {little * 1000:.0f} ms | {much * 1000:.0f} ms | {ratio:.2f} (bar: at most {bar:g}) |")
    return 0 if kept else 1


def _make_case(number: int) -> str:
    category = ("coding", "factual", "safety")[number % 3]
    line = {
        "id": f"{category}-{number:06}", "category": category, "input": f"Say word number {number}.",
        "ideal": f"number {number}.", "assertion": {"type": "contains"},
        "metadata": {"difficulty": "easy", "tokens_est": 8, "tags": [f"t{number % 7}"]},
    }  # fmt: skip
    return json.dumps(line) + "\n"


def _run_pramana(home: Path, *words: str) -> str:
    environment = {**os.environ, "PRAMANA_HOME": str(home)}  # noqa: TID251 - a child gets what a child gets
    done = subprocess.run(
        [sys.executable, "-m", "pramana", *words], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        sys.exit(f"pramana {' '.join(words)}: {done.stderr}")
    return done.stdout


def _copy_runs(store: Path, times: int) -> None:
    """Add copies of every run with its results and checks, under new numbers and ids."""
    with sqlite3.connect(store) as connection:
        columns = {
            table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for table in ("runs", "run_models", "run_cases", "scorings", "results", "checks")
        }
        last_run, last_seq = (
            connection.execute(f"SELECT max({column}) FROM {table}").fetchone()[0]  # noqa: S608 - names of ours
            for column, table in (("run_no", "runs"), ("seq", "results"))
        )
        for copy in range(1, times + 1):
            anew = {
                "run_no": f"run_no + {copy * last_run}",
                "seq": f"seq + {copy * last_seq}",
                "id": f"id || '-{copy}'",
            }
            for table, names in columns.items():
                limit = f"seq <= {last_seq}" if "seq" in names else f"run_no <= {last_run}"
                wanted = ", ".join(f'"{name}"' for name in names)
                given = ", ".join(anew.get(name, f'"{name}"') for name in names)
                connection.execute(f"INSERT INTO {table} ({wanted}) SELECT {given} FROM {table} WHERE {limit}")  # noqa: S608
    connection.close()


def _measure_loads(page: Page, addresses: Sequence[str], last: str) -> list[float]:
    """Return the median load times; `last` selects the element that appears last."""
    for each in addresses:
        # The first load fills the browser's cache and the server's summary, as for any returning visitor.
        print(
            f"first load of {each.partition('/runs')[2] or 'the list'}: {_load_page(page, each, last):.1f} s",
            file=sys.stderr,
        )
    taken: list[list[float]] = [[] for _ in addresses]
    for _ in range(LOADS):
        for times, each in zip(taken, addresses, strict=True):
            times.append(_load_page(page, each, last))
    return [statistics.median(times) for times in taken]


def _load_page(page: Page, address: str, last: str) -> float:
    page.goto("about:blank")
    began = time.perf_counter()
    page.goto(address)
    page.locator("#main .pager").last.wait_for()
    page.locator(last).first.wait_for(timeout=120_000)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
