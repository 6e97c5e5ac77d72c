"""What does the server cost? Compares each of its jobs with the minimum that could do the same, in one run.

Every row is a function: it prepares, measures both sides alternately, and returns medians. Servers are separate
processes. Bars: listing 20 scenarios at no less than 60 % of the requests per second of a bare FastAPI route that runs
the same SELECT and returns the same JSON; importing 10,000 scenarios in one request in at most twice the time of
parsing alone. Synthetic scenarios. The rows of community submissions are in `benchmarks.submissions`.
"""

import asyncio
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

from benchmarks.yaml_positions import COUNT, make_document
from pramana import settings
from pramana.load.problems import Problems
from pramana.load.scenario import parse_scenarios

LISTED, KEPT, CONNECTIONS, LISTING_S, LISTING_ROUNDS = 20, 1_000, 8, 0.5, 31
IMPORT_ROUNDS = 7
ONE = make_document().partition("  - id: booking-ferry-1\n")[0].replace("booking-ferry-0", "the-first")


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    what: str
    yardstick: str
    theirs: str
    ours: str
    ratio: float
    bar: float
    at_least: bool
    """Whether the bar is a minimum for the ratio, not a maximum."""

    @property
    def is_met(self) -> bool:
        return self.ratio >= self.bar if self.at_least else self.ratio <= self.bar

    def __str__(self) -> str:
        bound = f"at {'least' if self.at_least else 'most'} {self.bar:g}"
        return f"| {self.what} | {self.yardstick}: {self.theirs} | {self.ours} | {self.ratio:.2f} (bar: {bound}) |"


# ── Servers ──


@contextmanager
def start_process(command: list[str], home: Path) -> Iterator[str]:
    """Start a server; yield its URL once it is printed."""
    environment = {**os.environ, "PRAMANA_HOME": str(home)}  # noqa: TID251 - a child gets what a child gets
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as started:
        assert started.stdout  # noqa: S101 - it is a pipe
        try:
            found = re.search(r"http://\S+:\d+", started.stdout.readline())
            if not found:
                sys.exit(f"{' '.join(command)} did not start")
            yield found[0]
        finally:
            started.terminate()


def serve_pramana(home: Path) -> AbstractContextManager[str]:
    """Serve a data folder with `pramana serve`."""
    return start_process([sys.executable, "-m", "pramana", "serve", "--port", "0"], home)


def serve_bare_route(home: Path) -> AbstractContextManager[str]:
    """Serve a data folder with the bare route."""
    return start_process([sys.executable, "-m", "benchmarks.server", "--bare"], home)


def serve_bare(home: Path) -> None:
    """Serve one route without gate, roles, filters or errors: the same SELECT, the same JSON, no row decoded.

    Stored field names become those of the API by text replacement, which only synthetic scenarios allow.
    """
    import socket

    import sqlalchemy
    import uvicorn
    from fastapi import FastAPI, Response

    engine = sqlalchemy.create_engine(f"sqlite:///{home / 'pramana.sqlite3'}")
    query = """SELECT group_concat(substr(body, 1, length(body) - 1)
        || ',"createdAt":"' || created || '","updatedAt":"' || updated || '"}', ','),
        (SELECT count(*) FROM scenarios)
        FROM (SELECT id, body, created, updated FROM scenarios ORDER BY id LIMIT ? OFFSET ?) AS page"""
    app = FastAPI()

    @app.get("/api/scenarios")
    def listed(page: int = 1, pageSize: int = 50) -> Response:  # noqa: N803 - the API's name
        with engine.connect() as connection:
            found, total = connection.exec_driver_sql(query, (pageSize, (page - 1) * pageSize)).one()
        found = found.replace('"expected_outcome":', '"expectedOutcome":')
        found = found.replace('"prompt_audio_url":', '"promptAudioUrl":')
        meta = {"page": page, "pageSize": pageSize, "total": total, "totalPages": -(-total // pageSize)}
        written = json.dumps(meta, separators=(",", ":"))
        whole = f'{{"success":true,"data":[{found}],"meta":{written}}}'
        return Response(whole, media_type="application/json")

    # With protocol 0, asyncio would not disable Nagle's algorithm, and every response would wait for an ACK.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    asyncio.run(server.serve([listening]))


# ── Requests ──


def post_yaml(url: str, document: str) -> tuple[float, bytes]:
    """Import a document; return the response time in seconds and the response."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)
    start = time.perf_counter()
    connection.request("POST", "/api/scenarios/import", document.encode(), {"Content-Type": "application/yaml"})
    response = connection.getresponse()
    answer = response.read()
    took = time.perf_counter() - start
    connection.close()
    if response.status != 201:
        sys.exit(f"the import failed: {response.status} {answer[:500]!r}")
    return took, answer


def get(url: str) -> object:
    """Return the JSON at a URL."""
    with urlopen(url) as response:  # noqa: S310 - our own servers
        return json.load(response)


async def requests_per_second(url: str, path: str, seconds: float) -> float:
    """Repeat a request over several connections; return the rate."""
    parts = urlsplit(url)
    request = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
    done = 0
    until = time.perf_counter() + seconds

    async def client() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while time.perf_counter() < until:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                sys.exit(f"the list failed: {head!r}")
            found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            await reader.readexactly(int(found[1]) if found else 0)
            done += 1
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    return done / (time.perf_counter() - start)


# ── Rows ──


def measure_listing() -> Row:
    """List 20 of 1,000 scenarios."""
    path = f"/api/scenarios?pageSize={LISTED}"
    rates: dict[str, list[float]] = {"bare": [], "ours": []}
    with tempfile.TemporaryDirectory() as folder, serve_pramana(Path(folder)) as mine:
        post_yaml(mine, make_document().partition(f"  - id: booking-ferry-{KEPT}\n")[0])
        with serve_bare_route(Path(folder)) as theirs:
            if get(mine + path) != get(theirs + path):
                sys.exit("the two do not answer the same")
            for name, url in (("bare", theirs), ("ours", mine)) * (LISTING_ROUNDS + 1):
                rates[name].append(asyncio.run(requests_per_second(url, path, LISTING_S)))
    theirs_, ours_ = (statistics.median(rates[name][1:]) for name in rates)  # the first round is a warm-up
    what = f"list {LISTED} scenarios of {KEPT:,}, requests a second"
    return Row(what, "bare FastAPI route", f"{theirs_:,.0f}", f"{ours_:,.0f}", ours_ / theirs_, 0.6, at_least=True)


def measure_importing() -> Row:
    """Import 10,000 new scenarios in one request, into an empty store each time."""
    document = make_document()
    alone, imported = [], []
    command = [sys.executable, "-m", "benchmarks.server", "--parse"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parser:
        assert parser.stdin  # noqa: S101 - they are pipes
        assert parser.stdout  # noqa: S101
        for _ in range(IMPORT_ROUNDS + 1):
            parser.stdin.write("again\n")
            parser.stdin.flush()
            alone.append(float(parser.stdout.readline()))
            with tempfile.TemporaryDirectory() as folder, serve_pramana(Path(folder)) as url:
                post_yaml(url, ONE)
                took, answer = post_yaml(url, document)
            if answer.count(b'"createdAt"') != COUNT:
                sys.exit("the answer does not hold every scenario")
            imported.append(took)
        parser.stdin.close()
    theirs, mine = statistics.median(alone[1:]), statistics.median(imported[1:])
    what = f"import {COUNT:,} scenarios by one request, seconds"
    return Row(what, "parse alone", f"{theirs:.2f}", f"{mine:.2f}", mine / theirs, 2, at_least=False)


def parse_alone() -> None:
    """Parse the document for each line of stdin; print the seconds it took."""
    document = make_document()
    for _ in sys.stdin:
        start = time.perf_counter()
        count = len(parse_scenarios(document, Problems()))
        took = time.perf_counter() - start
        if count != COUNT:
            sys.exit(f"expected {COUNT} scenarios, got {count}")
        print(took, flush=True)


ROWS: tuple[Callable[[], Row], ...] = (measure_listing, measure_importing)


def main() -> int:
    """Print the table; return 1 if a bar is missed."""
    from benchmarks import submissions  # here, since it imports this module

    print("| what | yardstick | Pramana | ratio |")
    print("| --- | --- | --- | --- |")
    missed = 0
    for measure in (*ROWS, *submissions.ROWS):
        row = measure()
        print(row, flush=True)
        missed += not row.is_met
    return int(missed > 0)


if __name__ == "__main__":
    if "--bare" in sys.argv:
        serve_bare(settings.data_folder())
    elif "--parse" in sys.argv:
        parse_alone()
    else:
        sys.exit(main())
