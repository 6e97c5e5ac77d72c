"""A server's event loop stays free while it answers: large requests do not block other clients."""

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

from ... import old_stores
from ...large_store import RESULTS, add_two_runs, scenarios_yaml, suite_text
from ...loop_watch import LIMIT_S, Hold, watch_event_loops
from .served import Client, serve
from .test_replay import REQUESTS, ApiRequest, _read_names, _send, get

JSON_LINES = {"model_id": "fake", "suite_version": "v1.0", "output": "It is so. " * 40}


def make_large_requests(first: str, second: str) -> list[ApiRequest]:
    """Return requests with large responses or large bodies."""
    yaml = scenarios_yaml(2_000)
    batch = [{**JSON_LINES, "prompt_id": f"factual-{number}"} for number in range(1_000)]
    formats = ("json", "csv", "junit", "markdown", "html")
    return [
        ApiRequest("POST", "/api/scenarios/validate?read=true", {"yaml": yaml}),
        ApiRequest("POST", "/api/scenarios/import", {"yaml": yaml}),
        ApiRequest("POST", "/api/scenarios/import", {"yaml": yaml, "mode": "update"}),
        ApiRequest("POST", "/api/library/import", {"files": [], "mode": "update"}),
        ApiRequest("POST", "/api/suites", {"version": "large-1", "tiers": {"cheap": suite_text(RESULTS)}}),
        ApiRequest("POST", "/api/submit/batch", {"results": batch}),
        ApiRequest("POST", "/api/runs", {"models": ["fake:echo"], "scenarios": "all", "dryRun": True}),
        ApiRequest("POST", "/api/runs", {"models": ["fake:echo"], "suite": "large-1", "tier": "cheap", "repeats": 2}),
        *get(
            "/api/runs?outcomes=true", f"/api/runs/{first}", f"/api/runs/{first}/results?pageSize=100",
            f"/api/runs/{first}/results?page=15&pageSize=100&outcome=failed", f"/api/runs/{first}/events",
            f"/api/compare?base={first}&new={second}&newModel=fake",
            *(f"/api/runs/{first}/export?format={each}" for each in formats),
            "/api/scenarios?pageSize=100&text=number", "/api/scenarios/export", "/api/scenario-facets",
            "/api/suites/large-1/cheap", "/api/suites/large-1/cheap?page=15", "/api/data/chart",
        ),
        ApiRequest("GET", "/api/suites/large-1/cheap", headers=(("Accept", "application/x-ndjson"),)),
    ]  # fmt: skip


def request_everything(url: str, runs: tuple[str, str], names: dict[str, str]) -> dict[Hold, str]:
    """Request every route, with large data too; return what blocked the loop, and the request."""
    found: dict[Hold, str] = {}
    with watch_event_loops() as holds, serve(url, server_account_needs_token=True, api_only=True) as server:
        assert server.store
        client = Client(server.url, server.store.tokens.create("admin", "admin")[1])
        for wanted in (*make_large_requests(*runs), *REQUESTS):
            seen = len(holds)
            _send(client, wanted, names)
            found |= dict.fromkeys(holds[seen:], f"{wanted.method} {wanted.path}")
    return found


def test_no_route_blocks_the_event_loop_for_100_ms(tmp_path: Path) -> None:
    found: list[dict[str, str]] = []
    for turn in range(2):  # a hold found only in the first round was other load on this machine
        home = Path(os.environ["PRAMANA_HOME"]) / str(turn)  # noqa: TID251 - set by the tests
        url = old_stores.unpack(old_stores.NOVEMBER, home)
        names = _read_names(url)
        holds = request_everything(url, add_two_runs(url, tmp_path), names)
        found.append({asked: f"{hold.place} held it for {hold.seconds:.3f} s" for hold, asked in holds.items()})
        if not holds:
            break
    assert not [f"{asked}: {found[-1][asked]}" for asked in found[0] if asked in found[-1]]


HELD_S = 0.8
"""Long enough that whoever samples gets a processor meanwhile, also on a crowded machine."""


def test_blocking_of_the_loop_is_detected_for_work_and_waits() -> None:
    def work() -> None:
        until = time.thread_time() + HELD_S
        while time.thread_time() < until:
            pass

    async def main(blocking: Any) -> None:
        await asyncio.to_thread(time.sleep, LIMIT_S * 2)  # a thread does not block the loop
        asyncio.get_running_loop().call_soon(blocking)
        await asyncio.sleep(0)

    for blocking, working in ((work, True), (lambda: time.sleep(HELD_S), False)):
        with watch_event_loops() as holds:
            asyncio.run(main(blocking))
        (hold,) = holds
        assert hold.seconds > LIMIT_S
        assert (hold.working > LIMIT_S) is working
        assert "test_event_loop.py" in hold.place
    assert threading.active_count() < 20
