"""A server's event loop stays free while it renders pages: no page waits for another user's page."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser

from ...large_store import add_two_runs, scenarios_yaml
from ..api.served import Client
from .conftest import Bench
from .test_roles import WITH_QUERY, fill_addresses, fill_store, list_registered_pages

WATCHED = Path(__file__).parents[2] / "loop_watch.py"


@contextmanager
def watched_workbench(home: Path, report: Path) -> Iterator[Client]:
    """Serve the workbench in a fresh interpreter, so that late imports are measured too."""
    command = [sys.executable, str(WATCHED), str(report), "serve", "--port", "0"]
    environment = {**os.environ, "PRAMANA_HOME": str(home)}  # noqa: TID251 - a child gets what we have
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        found = re.search(r"http://\S+:\d+", process.stdout.readline())
        assert found
        try:
            yield Client(found[0])
        finally:
            process.terminate()


def open_every_page(home: Path, browser: Browser) -> dict[str, str]:
    """Open every page, with large runs too; return the pages that blocked the loop, and where."""
    home.mkdir()
    report = home / "holds.json"
    with ThreadPoolExecutor(1) as pool:  # Playwright uses the event loop of this thread
        first, second = pool.submit(add_two_runs, f"sqlite:///{home / 'pramana.sqlite3'}", home).result()
    with watched_workbench(home, report) as client:
        assert client.post("/api/scenarios/import", {"yaml": scenarios_yaml(2_000)}).status == 201
        stands_for = fill_store(client, home)
        everywhere = [*fill_addresses(list_registered_pages(), stands_for), *WITH_QUERY]
        large = [f"/runs/{first}", f"/runs/{first}?outcome=failed&page=15", f"/runs/{first}/results/1"]
        bench = Bench(client, home, browser)
        page = bench.open("/")
        for path in (*large, f"/compare?base={first}&new={second}", *everywhere):
            page.goto(client.url + path)
            page.wait_for_load_state("networkidle")
        bench.close()
    return {place: f"{place} held it for {seconds:.3f} s" for place, seconds, _ in json.loads(report.read_text())}


def test_no_page_blocks_the_event_loop_for_100_ms(tmp_path: Path, browser: Browser) -> None:
    found: list[dict[str, str]] = []
    for turn in range(2):  # a hold found only in the first round was other load on this machine
        found.append(open_every_page(tmp_path / str(turn), browser))
        if not found[-1]:
            break
    assert not [said for place, said in found[0].items() if place in found[-1]]
