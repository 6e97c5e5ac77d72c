"""What does the harness cost? The same calls through `pramana run` and through a bare aiohttp loop.

Bars: at least 50 % of the bare loop's rate without latency, everything durable, and at least 92 % with 50 ms of
latency. A loopback OpenAI-compatible server in a process of its own answers at once (or after 50 ms); 10,000
`contains_any` cases at concurrency 64; rates taken at the server from first to last request, alternating, median of 3,
whole-command times beside them. The cases are synthetic.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CASES, CONCURRENCY, ROUNDS = 10_000, 64, 3
BARS = {0.0: 0.50, 0.05: 0.92}

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


@contextmanager
def serving(latency: float) -> Iterator[str]:
    """Run the loopback server; give its URL."""
    command = [sys.executable, "-m", "pramana.providers.loopback", "openai", "--says", "Yes."]
    with subprocess.Popen([*command, "--latency", str(latency)], stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline() if process.stdout else ""
        found = re.search(r"http://\S+", line)
        if not found:
            sys.exit(f"the server did not start: {line}")
        try:
            yield found.group()
        finally:
            process.terminate()


def write_suite(path: Path) -> None:
    """Write the synthetic suite."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(CASES):
            case = {
                "id": f"coding-{number:05}",
                "category": "coding",
                "input": f"Say yes, number {number}.",
                "ideal": ["yes", "yeah"],
                "assertion": {"type": "contains_any", "case_sensitive": False},
                "metadata": {"difficulty": "easy", "tokens_est": 8},
            }
            file.write(json.dumps(case) + "\n")


def measured(url: str, command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run a command; return the rate at the server and the seconds of the whole command."""
    statistics_of(url, "DELETE")
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    took = time.perf_counter() - start
    said = statistics_of(url, "DELETE")
    if said["requests"] != CASES:
        sys.exit(f"expected {CASES} requests, the server saw {said['requests']}: {command[:4]}")
    return said["requests"] / said["seconds"], took


def statistics_of(url: str, method: str) -> Any:
    """Ask the loopback server how many requests came, within how many seconds."""
    root = url.removesuffix("/v1")
    request = urllib.request.Request(f"{root}/loopback", method=method)  # noqa: S310 - loopback
    with urllib.request.urlopen(request) as response:  # noqa: S310
        return json.load(response)


def main() -> int:
    """Print the table; exit 1 when a bar is missed."""
    missed = False
    print("| latency | harness | calls/s at the server, median of 3 | whole command | of the bare loop |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder, "mine.jsonl")
        write_suite(suite)
        for latency, bar in BARS.items():
            with serving(latency) as url:
                bare = [sys.executable, "-c", BARE, url, str(CASES), str(CONCURRENCY)]
                ours = [sys.executable, "-m", "pramana", "run", str(suite), "--model", f"{url}#any", "--json"]
                commands = {"bare aiohttp loop": bare, "pramana run": [*ours, "--concurrency", str(CONCURRENCY)]}
                rates: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
                for number in range(ROUNDS):
                    for name, command in commands.items():
                        home = {"PRAMANA_HOME": str(Path(folder, f"{latency}-{number}")), "PATH": "/usr/bin:/bin"}
                        rates[name].append(measured(url, command, home))
            floor = statistics.median(rate for rate, _ in rates["bare aiohttp loop"])
            for name, found in rates.items():
                rate = statistics.median(rate for rate, _ in found)
                took = statistics.median(took for _, took in found)
                share = rate / floor
                note = f" (bar: at least {bar:.0%})" if name != "bare aiohttp loop" else ""
                missed |= bool(note) and share < bar
                print(
                    f"| {latency * 1000:.0f} ms | {name} | {rate:,.0f} | {took:.1f} s | {share:.0%}{note} |", flush=True
                )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
