"""What does the harness cost? Sends the same calls through `pramana run`, a bare aiohttp loop and other tools.

Bars: without latency, everything durable, at least 57 % of the bare loop's rate as the median of five rounds and at
least 50 % in each of them; with 50 ms of latency at least 92 %; without latency also at least 60 times the rate of
Inspect AI and 25 times that of promptfoo. A loopback OpenAI-compatible server in a separate process answers at once (or
after 50 ms); `contains_any` cases, 10,000 for the loop and Pramana, 500 for the others; concurrency 64; rates are
measured at the server, from the first to the last request. A round runs the loop, Pramana twice and the loop again,
then the others; shares are relative to the loop of the same round. The table also has the time of the whole command.
A wide range means that the machine was busy with other work: measure again. The cases are synthetic. Each other tool
is installed on first use (see `benchmarks.rivals`); `--without-rivals` leaves them all out.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import rivals
from benchmarks.rivals import RIVALS, Rival

CASES, RIVAL_CASES, CONCURRENCY, ROUNDS = 10_000, 500, 64, 5
BARS = {0.0: 0.57, 0.05: 0.92}
"""Minimum share of the bare loop's rate by latency, as the median of all rounds."""
BARS_OF_A_ROUND = {0.0: 0.50, 0.05: 0.0}
LIMIT_S = 900
LOOP, OURS = "bare aiohttp loop", "pramana run"

BARE = """
import asyncio, json, sys, aiohttp
url, count, concurrency = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
async def main():
    numbers = iter(range(count))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async def worker():
            for number in numbers:
                body = {"model": "any", "stream": True, "temperature": 0, "seed": 42,
                        "stream_options": {"include_usage": True},
                        "messages": [{"role": "user", "content": f"Say yes, number {number}."}]}
                async with session.post(url + "/chat/completions", json=body) as response:
                    await response.read()
        await asyncio.gather(*(worker() for _ in range(concurrency)))
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the table: a command, and the output that proves its run."""

    name: str
    command: Sequence[str]
    prepare: Callable[[Path], Mapping[str, str]]
    """Fill a new folder for one run; return the complete environment of the command."""
    cases: int = CASES
    concurrency: str = str(CONCURRENCY)
    proof: str = ""
    rival: Rival | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run: requests per second at the server, and seconds of the whole command."""

    rate: float
    seconds: float


@contextmanager
def serve_loopback(latency: float) -> Iterator[str]:
    """Run the loopback server; yield its URL."""
    command = [sys.executable, "-m", "tests.loopback", "openai", "--says", "Yes."]
    with subprocess.Popen([*command, "--latency", str(latency)], stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline() if process.stdout else ""
        found = re.search(r"http://\S+", line)
        if not found:
            sys.exit(f"the server did not start: {line}")
        try:
            yield found.group()
        finally:
            process.terminate()


def make_case(number: int) -> rivals.Case:
    """Return one synthetic case."""
    return {
        "id": f"coding-{number:05}",
        "category": "coding",
        "input": f"Say yes, number {number}.",
        "ideal": ["yes", "yeah"],
        "assertion": {"type": "contains_any", "case_sensitive": False},
        "metadata": {"difficulty": "easy", "tokens_est": 8},
    }


def measure(url: str, entry: Entry, folder: Path) -> Measurement:
    """Run a command in its folder; exit unless it has done all its work."""
    folder.mkdir()
    environment = dict(entry.prepare(folder))
    read_statistics(url)
    start = time.perf_counter()
    done = subprocess.run(
        entry.command, check=False, capture_output=True, text=True, env=environment, cwd=folder, timeout=LIMIT_S
    )
    took = time.perf_counter() - start
    said = read_statistics(url)
    output = " ".join((done.stdout + done.stderr).split())
    if done.returncode or said["requests"] != entry.cases or entry.proof not in output:
        sys.exit(
            f"{entry.name}: exit code {done.returncode}, {said['requests']} requests where {entry.cases} were due, "
            f'"{entry.proof}" {"" if entry.proof in output else "not "}said: …{output[-2000:]}'
        )
    return Measurement(said["requests"] / said["seconds"], took)


def read_statistics(url: str) -> Any:
    """Return the request count and duration from the loopback server, and reset them."""
    root = url.removesuffix("/v1")
    request = urllib.request.Request(f"{root}/loopback", method="DELETE")  # noqa: S310 - loopback
    with urllib.request.urlopen(request) as response:  # noqa: S310
        return json.load(response)


def make_own_entries(url: str, suite: Path) -> list[Entry]:
    """Return the rows of the bare loop and `pramana run`."""
    bare = [sys.executable, "-c", BARE, url, str(CASES), str(CONCURRENCY)]
    ours = [sys.executable, "-m", "pramana", "run", str(suite), "--model", f"{url}#any", "--json"]

    def prepare(folder: Path) -> Mapping[str, str]:
        return {"PRAMANA_HOME": str(folder), "PATH": "/usr/bin:/bin"}

    return [
        Entry(LOOP, bare, prepare),
        Entry(OURS, [*ours, "--concurrency", str(CONCURRENCY)], prepare),
    ]


def make_rival_entry(rival: Rival, place: Path, url: str) -> Entry:
    """Return the row of a rival."""

    def prepare(folder: Path) -> Mapping[str, str]:
        rivals.write_files(rival, folder, [make_case(number) for number in range(RIVAL_CASES)])
        return rivals.make_environment(rival, folder, url)

    return Entry(
        rival.label,
        rivals.make_command(rival, place, url, CONCURRENCY),
        prepare,
        RIVAL_CASES,
        rival.concurrency.format(concurrency=CONCURRENCY),
        rival.proof.format(count=RIVAL_CASES),
        rival,
    )


def order_commands(entries: Sequence[Entry]) -> list[Entry]:
    """Return the commands of a round: the loop, ours twice, the loop, then the others.

    If the machine speeds up or slows down within the round, that favours neither of the first two.
    """
    loop, ours, *others = entries
    return [loop, ours, ours, loop, *others]


def combine_runs(taken: Sequence[Measurement]) -> Measurement:
    """Combine the runs of a command in one round: the rate over all requests, and the mean seconds per run."""
    return Measurement(
        len(taken) / sum(1 / each.rate for each in taken), sum(each.seconds for each in taken) / len(taken)
    )


def compare_entries(latency: float, entries: Sequence[Entry], url: str, folder: Path) -> bool:
    """Measure all entries in turn and print a row for each; return whether every bar is met."""
    taken: dict[str, list[Measurement]] = {entry.name: [] for entry in entries}
    for number in range(ROUNDS):
        found: dict[str, list[Measurement]] = {entry.name: [] for entry in entries}
        for place, entry in enumerate(order_commands(entries)):
            found[entry.name].append(measure(url, entry, folder / f"{latency}-{number}-{place}"))
        for name, each in found.items():
            taken[name].append(combine_runs(each))
    rates = {name: statistics.median(each.rate for each in found) for name, found in taken.items()}
    shares = [ours.rate / loop.rate for ours, loop in zip(taken[OURS], taken[LOOP], strict=True)]
    met = True
    for entry in entries:
        rate, seconds = rates[entry.name], statistics.median(each.seconds for each in taken[entry.name])
        spread = "–".join(f"{end(each.rate for each in taken[entry.name]):,.0f}" for end in (min, max))
        share = statistics.median(shares) if entry.name == OURS else rate / rates[LOOP]
        of_loop, against = f"{share:.{0 if share >= 0.1 else 1}%}", ""
        if entry.name == OURS:
            of_loop += f" (bar: at least {BARS[latency]:.0%}), {min(shares):.0%}–{max(shares):.0%}"
            met &= share >= BARS[latency] and min(shares) >= BARS_OF_A_ROUND[latency]
            if BARS_OF_A_ROUND[latency]:
                of_loop += f" (bar: at least {BARS_OF_A_ROUND[latency]:.0%})"
        if entry.rival:
            times = rates[OURS] / rate
            against = f"{times:.1f} ×"
            if entry.rival.bar is not None:
                against += f" (bar: at least {entry.rival.bar:.0f} ×)"
                met &= times >= entry.rival.bar
        cells = (
            *(f"{latency * 1000:.0f} ms", entry.name, f"{entry.cases:,}", entry.concurrency),
            *(f"{rate:,.0f} ({spread})", f"{seconds:.1f} s", of_loop, against),
        )
        print(f"| {' | '.join(cells)} |", flush=True)
    return met


def main() -> int:
    """Print the table; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--without-rivals", action="store_true", help="only the bare loop and pramana run")
    chosen = () if parser.parse_args().without_rivals else RIVALS
    places = [rivals.install(rival) for rival in chosen]  # install all before measuring any
    met = True
    heads = (
        "latency",
        "harness",
        "cases",
        "at once",
        f"calls/s at the server, median of {ROUNDS} (range)",
        "whole command",
    )
    print(f"| {' | '.join((*heads, 'of the bare loop', 'pramana run against it'))} |")
    print(f"|{' --- |' * 8}")
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder, "mine.jsonl")
        suite.write_text("".join(json.dumps(make_case(number)) + "\n" for number in range(CASES)), encoding="utf-8")
        for latency in BARS:
            with serve_loopback(latency) as url:
                entries = make_own_entries(url, suite)
                if not latency:  # with latency, the server hides a slow harness, so there is nothing to compare
                    entries += [
                        make_rival_entry(rival, place, url) for rival, place in zip(chosen, places, strict=True)
                    ]
                met &= compare_entries(latency, entries, url, Path(folder))
    if chosen:
        print()
    for rival in chosen:
        print(f"- {rival.label}: {rival.note}.")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
