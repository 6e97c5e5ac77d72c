"""Does any request break the API? Sends requests that Schemathesis generates from the server's own OpenAPI document.

Bar: at least 20,000 generated requests over every operation, no 5xx, and no response that violates the document
(status, media type, headers, schema). The server is a separate process with an empty store; the seed is fixed.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from benchmarks.served import run_server

REQUESTS = 20_000
SETTINGS = "/api/settings"
ONLY = ("--include-path", SETTINGS)
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "unsupported_method",
)  # fmt: skip
"""Without allow_header_conformance: it treats /api/scenarios/import as a path with methods of its own, but a scenario
may have the id `import` and can then be read, changed and deleted at that path.
"""


@dataclass(frozen=True)
class FuzzResult:
    """The outcome of one Schemathesis run."""

    operations: int
    requests: int
    good: bool
    said: str


def run_schemathesis(url: str, examples: int, seed: int, token: str, *which: str) -> FuzzResult:
    """Run all phases of Schemathesis, with the given number of examples per operation."""
    command = [
        str(Path(sys.executable).with_name("st")), "run", f"{url}/openapi.json", "--max-examples", str(examples),
        "--seed", str(seed), "--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing,stateful",
        "--continue-on-failure", "--header", f"Authorization: Bearer {token}", "--suppress-health-check", "all",
        "--warnings", "off", "--no-color", *which,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    requests = re.search(r"([\d,]+) generated", done.stdout)
    operations = re.search(r"Tested: ([\d,]+)", done.stdout)
    return FuzzResult(
        int(operations[1].replace(",", "")) if operations else 0,
        int(requests[1].replace(",", "")) if requests else 0,
        done.returncode == 0,
        done.stdout + done.stderr,
    )


def create_token(url: str) -> str:
    """Lift the request limit and return an administrator's token; its requests are counted like any other's."""
    body = json.dumps({"name": "fuzz", "role": "admin"}).encode()
    unlimited = json.dumps({"requestsPerMinute": 1_000_000}).encode()
    kind = {"Content-Type": "application/json"}
    with urlopen(Request(f"{url}{SETTINGS}", unlimited, kind, method="PATCH"), timeout=30):  # noqa: S310
        pass
    request = Request(f"{url}/api/tokens", body, kind)  # noqa: S310 - a server of ours
    with urlopen(request, timeout=30) as response:  # noqa: S310
        found: str = json.loads(response.read())["data"]["token"]
    return found


def main() -> int:
    """Fuzz until enough requests were sent, each round with another seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--examples", type=int, default=150, help="of one operation in one round")
    given = parser.parse_args()
    total, operations, seed = 0, 0, 0
    while total < given.requests:
        seed += 1
        # A new server per round, so that data does not pile up. The proxies keep registered vendors unreachable.
        with run_server(HTTPS_PROXY="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9") as url:
            token = create_token(url)
            # The settings come last: a fuzzed limit of one request a minute would stop all other requests.
            rounds = [
                run_schemathesis(url, given.examples, seed, token, *which)
                for which in (("--exclude-path", SETTINGS), ONLY)
            ]
        for asked in rounds:
            if not asked.good:
                print(asked.said)
                print(f"Schemathesis found something (seed {seed}, above)")
                return 1
        operations = sum(asked.operations for asked in rounds)
        total += sum(asked.requests for asked in rounds)
        print(f"round {seed}: {total:,} requests in all, {operations} operations")
    print("\n| requests | operations | 5xx | answers that differ from their description |\n| --- | --- | --- | --- |")
    print(f"| {total:,} | {operations} | 0 | 0 |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
