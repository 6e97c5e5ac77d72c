"""The documented import script and request of the scenario format, unchanged, against `pramana serve`."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pramana.load import BUILT_IN_SCENARIOS_FOLDER

PORT = 3000
# A published interface, so it is quoted verbatim. Without globstar, ** is one level of folders.
SCRIPT = r"""#!/bin/bash
for file in scenarios/**/*.yaml; do
  echo "Importing $file..."
  curl -X POST http://localhost:3000/api/scenarios/import \
    -H "Content-Type: application/json" \
    -d "{\"yaml\": $(cat "$file" | jq -Rs .), \"mode\": \"update\"}"
done
"""
REQUEST = r"""curl -X POST http://localhost:3000/api/scenarios/import \
  -H "Content-Type: application/json" \
  -d '{
    "yaml": "version: \"1.0\"\nscenarios:\n  - id: test-1\n    name: Test\n    type: task-completion\n    prompt: Hello\n    expected_outcome: Response",
    "mode": "skip"
  }'
"""
# Starts the server, runs a script, and stops the server.
BESIDE = r"""
"$PYTHON" -m pramana serve > serve.log 2>&1 &
server=$!
trap 'kill $server; wait $server' EXIT
for attempt in $(seq 300); do
  curl -s -o /dev/null http://localhost:3000/api/health && break
  kill -0 $server || { cat serve.log; exit 1; }
  sleep 0.1
done
bash script.sh
"""


def is_port_free() -> bool:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as tried:
                tried.settimeout(1)
                if tried.connect_ex((address, PORT)) == 0:
                    return False
        except OSError:  # no such family here
            continue
    return True


def run_beside_server(folder: Path, script: str) -> str:
    """Run a script next to a server on port 3000; if the port is taken, in a separate network namespace."""
    (folder / "script.sh").write_text(script, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}  # noqa: TID251
    environment |= {"PYTHON": sys.executable, "PRAMANA_HOME": str(folder / "home")}
    command = ["bash", "-c", BESIDE]
    if not is_port_free():
        command = ["unshare", "-rn", "bash", "-c", f"ip link set lo up\n{BESIDE}"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def parse_answers(output: str) -> list[dict[str, Any]]:
    decoder = json.JSONDecoder()
    return [decoder.raw_decode(output, found.start())[0] for found in re.finditer(r'\{"success"', output)]


@pytest.fixture
def script_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "desk"
    shutil.copytree(
        BUILT_IN_SCENARIOS_FOLDER, folder / "scenarios", ignore=shutil.ignore_patterns("__pycache__", "*.py")
    )
    return folder


def test_the_documented_import_script_and_request_work_unchanged(script_folder: Path) -> None:
    """One test for both, so that two workers never need the port at the same time."""
    files = sorted((script_folder / "scenarios").rglob("*.yaml"))
    said = run_beside_server(script_folder, f"{SCRIPT}\n{SCRIPT}\n{REQUEST}\n{REQUEST}")
    reached = re.findall(r"Importing (scenarios/.*\.yaml)\.\.\.", said)
    assert reached == 2 * [path.relative_to(script_folder).as_posix() for path in files], (
        "the pattern reaches all of the library"
    )
    found = parse_answers(said)
    assert all(each["success"] for each in found), said[:2000]
    first, second, (new, again) = found[: len(files)], found[len(files) : 2 * len(files)], found[2 * len(files) :]
    assert (
        sum(each["meta"]["totalImported"] for each in first) == sum(each["meta"]["totalParsed"] for each in first) > 120
    )
    assert [each["data"]["updated"] for each in second] == [each["data"]["imported"] for each in first]
    assert [each["meta"]["totalImported"] for each in second] == [0] * len(files)
    (scenario,) = new["data"].pop("scenarios")
    assert scenario.items() >= {"id": "test-1", "expectedOutcome": "Response", "difficulty": "medium"}.items()
    assert new == {
        "success": True,
        "data": {"imported": ["test-1"], "updated": [], "skipped": []},
        "meta": {"totalParsed": 1, "totalImported": 1, "totalUpdated": 0, "totalSkipped": 0},
    }
    assert again["data"] == {"imported": [], "updated": [], "skipped": ["test-1"], "scenarios": []}
