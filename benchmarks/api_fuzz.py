"""Does any request break the API? Schemathesis asks it, from its own OpenAPI description, what nobody would think of.

Bar: at least 20,000 generated requests over every operation, no 5xx, and no answer that differs from its description
(status, media type, headers, schema). The server is a process of its own with an empty store; the seed is fixed.
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

from benchmarks.served import server

REQUESTS = 20_000
SETTINGS = "/api/settings"
ONLY = ("--include-path", SETTINGS)
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "unsupported_method",
)  # fmt: skip
"""Not allow_header_conformance: it takes /api/scenarios/import for an address of its own, but a scenario may be called
import, and is then read, changed and deleted there."""


@dataclass(frozen=True)
class Asked:
    """What came of it."""

    operations: int
    requests: int
    good: bool
    said: str


def ask(url: str, examples: int, seed: int, token: str, *which: str) -> Asked:
    """Let Schemathesis ask so many examples an operation, in all its phases."""
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
    return Asked(
        int(operations[1].replace(",", "")) if operations else 0,
        int(requests[1].replace(",", "")) if requests else 0,
        done.returncode == 0,
        done.stdout + done.stderr,
    )


def first_token(url: str) -> str:
    """Return an administrator's token, which counts as any caller's does."""
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
    """Ask until enough requests were made, each round with another seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--examples", type=int, default=150, help="of one operation in one round")
    given = parser.parse_args()
    total, operations, seed = 0, 0, 0
    while total < given.requests:
        seed += 1
        # A new server: what a round has made must not fill the next. A vendor that it may register is never reached.
        with server(HTTPS_PROXY="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9") as url:
            token = first_token(url)
            # The settings last: a limit of one request a minute, once decided, would spare all the others theirs.
            rounds = [ask(url, given.examples, seed, token, *which) for which in (("--exclude-path", SETTINGS), ONLY)]
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
