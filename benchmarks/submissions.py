"""What does it cost to receive community submissions, and to chart them? Two rows of `benchmarks.server`.

Bars: batches of 1,000 results at no less than half the rows per second of a bare script, which reads the same bodies
with `json.loads`, computes the same digests and inserts with `sqlite3.executemany` into the same table with the same
indexes and the same durability, and counts nothing; the chart over one million submissions in at most 1.5 times as long
as over ten thousand with the same models and days. The bare script is a separate process, like the server; each body
goes to both, alternating. Synthetic results.
"""

import hashlib
import http.client
import json
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from urllib.parse import urlsplit

from benchmarks.server import Row, serve_pramana
from pramana.store import open_store
from pramana.store.engine import CHECKPOINT_PAGES
from pramana.store.submissions import INSERT_SUBMISSION, Batch, Submission

RESULTS, BATCHES, WARMING = 1_000, 60, 10
MODELS, DAYS, FEW, MANY, PROMPTS = 10, 90, 10_000, 1_000_000, 50
CHARTS = 60
SUITE = "bench-1"
_CHECK = {"type": "contains_any", "case_sensitive": False}
_CASE = {"category": "factual", "input": "Which?", "ideal": ["this"], "assertion": _CHECK}


def make_suite() -> str:
    """Return a suite with a thousand cases, as JSONL."""
    facts = {"difficulty": "easy", "tokens_est": 3, "tags": []}
    lines = (json.dumps({"id": f"factual-{each:04}", **_CASE, "metadata": facts}) for each in range(RESULTS))
    return "\n".join(lines) + "\n"


def make_body(number: int, suite_hash: str, chance: random.Random) -> bytes:
    """Return a submission of one run of a suite: a model's answers on one day, a few hundred characters each."""
    model, day = number % MODELS, number // MODELS
    results = [
        {
            "model_id": f"model-{model}",
            "prompt_id": f"factual-{each:04}",
            "output": f"It is this, for {chance.randrange(10**6)} reasons. " * chance.randrange(2, 15),
            "score": float(chance.random() < 0.9),
        }
        for each in range(RESULTS)
    ]
    when = datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(days=day)
    shared = {"suite_version": SUITE, "suite_hash": suite_hash, "temperature": 0.0, "seed": 42}
    return json.dumps({**shared, "timestamp": when.isoformat(), "results": results}).encode()


# ── The bare script ──


def insert_bare(path: str) -> None:
    """Insert the body in each file named on stdin; print the seconds it took."""
    connection = sqlite3.connect(path, isolation_level=None)
    # The same page cache as ours: a smaller one would flatter our ratio.
    same = ("journal_mode=WAL", "synchronous=FULL", f"wal_autocheckpoint={CHECKPOINT_PAGES}", "foreign_keys=ON")
    for pragma in (*same, "cache_size=-16384"):
        connection.execute(f"PRAGMA {pragma}")
    numbers: dict[tuple[str, str, str], int] = {}
    for line in sys.stdin:
        start = time.perf_counter()
        insert(connection, numbers, Path(line.strip()).read_bytes())
        print(time.perf_counter() - start, flush=True)


def insert(connection: sqlite3.Connection, numbers: dict[tuple[str, str, str], int], content: bytes) -> None:
    """Insert a body into the table."""
    whole = json.loads(content)
    suite_hash, stated = whole["suite_hash"], whole["timestamp"]
    temperature, seed = whole["temperature"], whole["seed"]
    received, sha256 = datetime.now(UTC).isoformat(), hashlib.sha256
    connection.execute("BEGIN IMMEDIATE")
    rows = []
    for each in whole["results"]:
        series = each["model_id"], suite_hash, each["prompt_id"]
        if series not in numbers:
            made = "INSERT INTO submission_series (verified, model, suite_hash, prompt) VALUES (1, ?, ?, ?)"
            numbers[series] = connection.execute(made, series).lastrowid or 0
        output = each["output"]
        hashed = sha256(output.encode()).digest()
        content_of = "\0".join(("anonymous", *series, repr(temperature), repr(seed))).encode()
        salt = os.urandom(16)
        rows.append(
            (
                *(numbers[series], sha256(content_of + hashed).digest(), stated[:10], received, stated, "anonymous"),
                *("batch", 1, whole["suite_version"], temperature, seed, output, hashed[:16], salt),
                *(sha256(salt + hashed).digest(), each["score"], each["score"] >= 0.5),
                *(None, None, None, None, None, None),
            )
        )
    connection.executemany(f"{INSERT_SUBMISSION} ON CONFLICT DO NOTHING", rows)
    connection.execute("COMMIT")


# ── Rows ──


class Connection:
    """One persistent connection to a server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)

    def ask(self, method: str, path: str, content: bytes | None = None) -> tuple[float, Any]:
        """Send a request; return the response time in seconds and the decoded response."""
        start = time.perf_counter()
        self._connection.request(method, path, content, {"Content-Type": "application/json"} if content else {})
        response = self._connection.getresponse()
        said = response.read()
        took = time.perf_counter() - start
        if response.status not in (200, 201):
            sys.exit(f"{method} {path}: {response.status} {said[:500]!r}")
        return took, json.loads(said)


def measure_batches() -> Row:
    """Submit batches of 1,000 verified results: ten models, a new day after each round."""
    chance = random.Random(7)
    theirs, mine = [], []
    with tempfile.TemporaryDirectory() as folder:
        home, path = Path(folder, "ours"), Path(folder, "bare.sqlite3")
        open_store(f"sqlite:///{path}").close()  # creates the same tables
        command = [sys.executable, "-m", "benchmarks.submissions", "--bare", str(path)]
        with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as script, serve_pramana(home) as url:
            assert script.stdin  # noqa: S101 - they are pipes
            assert script.stdout  # noqa: S101
            connection = Connection(url)
            upload = json.dumps({"version": SUITE, "tiers": {"cheap": make_suite()}}).encode()
            suite_hash = connection.ask("POST", "/api/suites", upload)[1]["data"]["tiers"]["cheap"]["hash"]
            for number in range(BATCHES + WARMING):
                content = make_body(number, suite_hash, chance)
                file = Path(folder, "body.json")
                file.write_bytes(content)
                script.stdin.write(f"{file}\n")
                script.stdin.flush()
                theirs.append(float(script.stdout.readline()))
                took, said = connection.ask("POST", "/api/submit/batch", content)
                if said["data"]["accepted"] != RESULTS or said["data"]["results"][0]["verification"] != "verified":
                    sys.exit(f"not all were taken as verified: {said['data']['results'][0]}")
                mine.append(took)
            script.stdin.close()
        for each in (path, home / "pramana.sqlite3"):
            (count,) = sqlite3.connect(each).execute("SELECT count(*) FROM submissions").fetchone()
            if count != len(mine) * RESULTS:
                sys.exit(f"{each} holds {count} rows")
    rates = [RESULTS / statistics.median(each[WARMING:]) for each in (theirs, mine)]
    what = f"submit batches of {RESULTS:,}, rows a second"
    return Row(what, "bare script", f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", rates[1] / rates[0], 0.5, at_least=True)


def fill_store(home: Path, count: int) -> None:
    """Fill a store with `count` submissions; models and days are the same for every count."""
    home.mkdir()
    store, chance, last = open_store(f"sqlite:///{home / 'pramana.sqlite3'}"), random.Random(3), date(2026, 3, 31)
    each_day = count // (MODELS * DAYS)
    left = count - each_day * MODELS * DAYS
    for model in range(MODELS):
        for day in range(DAYS):
            extra = int(model * DAYS + day < left)
            when = datetime(last.year, last.month, last.day, 12, tzinfo=UTC) - timedelta(days=DAYS - 1 - day)
            for some in _split_into_batches(each_day + extra):
                results = [
                    Submission(f"model-{model}", f"p{number % PROMPTS}", f"this {chance.getrandbits(60)}")
                    for number in some
                ]
                store.submissions.add(Batch(results, timestamp=when, suite_hash="sha256:1"), [True] * len(results))
    points, _ = store.submissions.read_chart(of_known_suites=True, first_day="2026-01-01", last_day=last.isoformat())
    store.close()
    if len(points) != MODELS * DAYS or sum(each.submissions for each in points) != count:
        sys.exit(f"{len(points)} points of {sum(each.submissions for each in points)} submissions")


def _split_into_batches(count: int) -> Iterator[Sequence[int]]:
    return (range(start, min(start + RESULTS, count)) for start in range(0, count, RESULTS))


def measure_chart() -> Row:
    """Chart ten models over 90 days: with ten thousand submissions, and with a million."""
    path = "/api/data/chart?from=2026-01-01&to=2026-03-31"
    with tempfile.TemporaryDirectory() as folder:
        homes = [Path(folder, str(count)) for count in (FEW, MANY)]
        for home, count in zip(homes, (FEW, MANY), strict=True):
            fill_store(home, count)
        with serve_pramana(homes[0]) as few, serve_pramana(homes[1]) as many:
            servers = Connection(few), Connection(many)
            took: list[list[float]] = [[], []]
            for _ in range(CHARTS + 5):
                for times, server, count in zip(took, servers, (FEW, MANY), strict=True):
                    seconds, said = server.ask("GET", path)
                    times.append(seconds)
                    if sum(each["submissions"] for each in said["data"]) != count:
                        sys.exit("the chart does not count all of them")
    less, more = (statistics.median(times[5:]) for times in took)
    what = f"chart {MODELS} models over {DAYS} days of {MANY:,} submissions, milliseconds"
    return Row(what, f"of {FEW:,}", f"{less * 1e3:.1f}", f"{more * 1e3:.1f}", more / less, 1.5, at_least=False)


ROWS = (measure_batches, measure_chart)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        insert_bare(sys.argv[2])
    else:
        for measure in ROWS:
            print(measure(), flush=True)
