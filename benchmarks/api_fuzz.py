"""Does any request break the API? Schemathesis asks it, from its own OpenAPI description, what nobody would think of.

Bar: at least 20,000 generated requests over every operation, no 5xx, and no answer that differs from its description
(status, media type, headers, schema). The server is a process of its own with an empty store; the seed is fixed.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.served import server

REQUESTS = 20_000
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "unsupported_method", "allow_header_conformance",
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What came of it."""

    operations: int
    requests: int
    good: bool
    said: str


def ask(url: str, examples: int, seed: int) -> Asked:
    """Let Schemathesis ask so many examples an operation, in all its phases."""
    command = [
        str(Path(sys.executable).with_name("st")), "run", f"{url}/openapi.json", "--max-examples", str(examples),
        "--seed", str(seed), "--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing,stateful",
        "--continue-on-failure", "--suppress-health-check", "all", "--warnings", "off", "--no-color",
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
            asked = ask(url, given.examples, seed)
        if not asked.good:
            print(asked.said)
            print(f"Schemathesis found something (seed {seed}, above)")
            return 1
        total, operations = total + asked.requests, asked.operations
        print(f"round {seed}: {asked.requests:,} requests, {asked.operations} operations")
    print("\n| requests | operations | 5xx | answers that differ from their description |\n| --- | --- | --- | --- |")
    print(f"| {total:,} | {operations} | 0 | 0 |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
