"""Does a server stay correct under load? 64 clients import, run and delete at once on one store, for a minute.

Bar: no error but the documented ones, no row lost, none duplicated. Each client records the responses it got: which
scenarios it imported and deleted, which runs it started, cancelled and deleted; at the end, the server's lists are
compared with all the records. The models are `fake`, on loopback, and answer at once.
"""

import argparse
import http.client
import json
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from benchmarks.served import run_server

CLIENTS, SECONDS = 64, 60.0
ALLOWED = frozenset((200, 201, 202, 204, 404, 409, 429))
"""404 if another client has deleted it meanwhile, 409 if it already exists or is still running."""
ENDED = frozenset(("finished", "stopped", "interrupted", "cancelled"))


@dataclass
class Account:
    """The record of one client."""

    number: int
    url: str
    said: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    mine: set[str] = field(default_factory=set)
    """Scenarios that must exist."""
    gone: set[str] = field(default_factory=set)
    runs: dict[str, int] = field(default_factory=dict)
    """Runs that must exist, with the number of results each must end with."""
    deleted_runs: set[str] = field(default_factory=set)

    def call(self, method: str, path: str, value: Any = None) -> tuple[int, Any]:
        """Send a request; record an error for any undocumented status."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        body = None if value is None else json.dumps(value)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            status, data = response.status, response.read()
        except OSError as error:
            self.wrong.append(f"{method} {path}: {type(error).__name__}: {error}")
            return 0, {}
        finally:
            connection.close()
        self.said[f"{method} {path.split('/')[2].partition('?')[0]} {status}"] += 1
        if status not in ALLOWED:
            self.wrong.append(f"{method} {path}: {status} {data[:300]!r}")
        return status, json.loads(data)

    def work(self, until: float) -> None:
        """Perform random actions, seeded by the client's number."""
        chance = random.Random(self.number)
        turn = 0
        while time.monotonic() < until:
            turn += 1
            act = chance.choice(
                (
                    self.import_scenarios,
                    self.import_scenarios,
                    self.delete_scenario,
                    self.run,
                    self.list_all,
                    self.end_run,
                )
            )
            act(turn, chance)

    def import_scenarios(self, turn: int, chance: random.Random) -> None:
        names = [f"s{self.number}-{turn}-{each}" for each in range(chance.randint(1, 20))]
        entries = "".join(
            f"  - id: {name}\n    name: N\n    type: task-completion\n    prompt: Hello\n    expected_outcome: x\n"
            for name in [*names, "shared-by-all"]
        )
        status, answer = self.call("POST", "/api/scenarios/import", {"yaml": f"scenarios:\n{entries}", "mode": "skip"})
        if status == 201:
            imported = set(answer["data"]["imported"])
            if not imported >= set(names):
                self.wrong.append(f"not imported: {set(names) - imported}")
            self.mine |= imported - {"shared-by-all"}

    def delete_scenario(self, _: int, chance: random.Random) -> None:
        if self.mine:
            name = chance.choice(sorted(self.mine))
            if self.call("DELETE", f"/api/scenarios/{name}")[0] == 200:
                self.mine.discard(name)
                self.gone.add(name)
            else:
                self.wrong.append(f"{name} could not be deleted, though it is there")

    def run(self, _: int, chance: random.Random) -> None:
        body = {"suite": "v1.0", "tier": "cheap", "models": ["fake:fixed=nine"], "repeats": chance.randint(1, 3)}
        status, answer = self.call("POST", "/api/runs", body)
        if status in (200, 201, 202):
            self.runs[answer["data"]["id"]] = 10 * body["repeats"]  # type: ignore[operator]

    def list_all(self, _: int, chance: random.Random) -> None:
        self.call("GET", "/api/scenarios?pageSize=20")
        if self.runs:
            self.call("GET", f"/api/runs/{chance.choice(sorted(self.runs))}")

    def end_run(self, _: int, chance: random.Random) -> None:
        if self.runs:
            name = chance.choice(sorted(self.runs))
            if chance.random() < 0.5:
                self.call("POST", f"/api/runs/{name}/cancel")
            elif self.call("DELETE", f"/api/runs/{name}")[0] == 200:
                self.deleted_runs.add(name)
                del self.runs[name]


def compare(url: str, accounts: list[Account]) -> list[str]:
    """Return every difference between the server's data and the clients' records."""
    reader = Account(-1, url)
    wrong: list[str] = []
    there: Counter[str] = Counter()
    page = 1
    while found := reader.call("GET", f"/api/scenarios?pageSize=500&page={page}")[1].get("data"):
        there.update(each["id"] for each in found)
        page += 1
    wanted = set().union(*(each.mine for each in accounts)) | {"shared-by-all"}
    wrong += [f"scenario {name} is there {count} times" for name, count in there.items() if count > 1]
    wrong += [f"scenario {name} is lost" for name in wanted - there.keys()]
    wrong += [f"scenario {name} was deleted and is there" for name in there.keys() - wanted]
    for account in accounts:
        wrong += [
            f"run {name} was deleted and is there"
            for name in account.deleted_runs
            if reader.call("GET", f"/api/runs/{name}")[0] != 404
        ]
        for name, expected in account.runs.items():
            wrong += _run_is_whole(reader, name, expected)
    return wrong + reader.wrong


def _run_is_whole(reader: Account, name: str, expected: int) -> list[str]:
    give_up = time.monotonic() + 120
    while True:
        status, answer = reader.call("GET", f"/api/runs/{name}")
        if status != 200:
            return [f"run {name} is lost ({status})"]
        if answer["data"]["status"] in ENDED:
            break
        if time.monotonic() > give_up:
            return [f"run {name} does not end: {answer['data']['status']}"]
        time.sleep(0.2)
    if answer["data"]["status"] == "cancelled":
        return []
    results = reader.call("GET", f"/api/runs/{name}/results?pageSize=500")[1]
    keys = Counter((each["caseId"], each["model"], each["variant"], each["repeat"]) for each in results["data"])
    if len(keys) != expected or max(keys.values()) > 1 or results["meta"]["total"] != expected:
        return [f"run {name} has {results['meta']['total']} results of {len(keys)} keys; {expected} are expected"]
    return []


def main() -> int:
    """Run the clients, then compare; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    with run_server() as url:
        accounts = [Account(number, url) for number in range(given.clients)]
        until = time.monotonic() + given.seconds
        threads = [threading.Thread(target=each.work, args=(until,)) for each in accounts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wrong = [said for each in accounts for said in each.wrong] + compare(url, accounts)
    said = sum((each.said for each in accounts), Counter())
    print("| request | answers |\n| --- | --- |")
    for name, count in sorted(said.items()):
        print(f"| {name} | {count:,} |")
    kept = sum(len(each.mine) for each in accounts)
    runs = sum(len(each.runs) for each in accounts)
    print(f"\n{given.clients} clients, {given.seconds:g} s, {said.total():,} requests")
    print(f"{kept:,} scenarios and {runs:,} runs must be there in the end")
    for each in wrong[:20]:
        print(each)
    print(f"{len(wrong)} errors, lost or doubled rows")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
