"""How long does a command take before it does its work? Compares it with the imports that it cannot do without.

Bars: `pramana --help` at most 1.5 times `import click`; `pramana runs` at most 1.3 times `import click, sqlalchemy`;
`pramana run` of two cases on an existing store at most 1.4 times `import click, aiohttp, sqlalchemy, pydantic, yaml`;
the first run, on an empty store, at most 1.2 times the second. Whole processes, alternating, median of 21; the cases
are synthetic, answered by the `fake` provider. The last column is the ratio of CPU times: on a busy machine it is
steadier than wall time.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROUNDS = 21
CASE = {
    "category": "coding",
    "input": "Say yes.",
    "ideal": ["yes"],
    "assertion": {"type": "contains_any"},
    "metadata": {"difficulty": "easy", "tokens_est": 8},
}
HELP, RUNS, RUN, FIRST = "pramana --help", "pramana runs", "pramana run, two cases", "the first run, empty store"


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the table."""

    name: str
    arguments: Sequence[str]
    yardstick: str = ""
    bar: float = 0
    empty_store: bool = False
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def measure(self, folder: Path) -> None:
        """Run the whole process once."""
        store = Path(tempfile.mkdtemp(dir=folder)) if self.empty_store else folder / "store"
        environment = {**os.environ, "PRAMANA_HOME": str(store)}  # noqa: TID251 - a child gets what we have
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        subprocess.run([sys.executable, *self.arguments], check=True, capture_output=True, env=environment, cwd=folder)
        self.wall.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def make_commands(suite: Path) -> list[Command]:
    """Return the commands to measure, each after its yardstick."""

    def imports(names: str) -> Command:
        return Command(f'python -c "import {names}"', ["-c", f"import {names}"])

    click, store = imports("click"), imports("click, sqlalchemy")
    everything = imports("click, aiohttp, sqlalchemy, pydantic, yaml")
    run = ["-m", "pramana", "run", str(suite), "--model", "fake:echo"]
    return [
        *(click, Command(HELP, ["-m", "pramana", "--help"], click.name, 1.5)),
        *(store, Command(RUNS, ["-m", "pramana", "runs"], store.name, 1.3)),
        *(everything, Command(RUN, run, everything.name, 1.4)),
        Command(FIRST, run, RUN, 1.2, empty_store=True),
    ]


def main() -> int:
    """Print the table; return 1 if a bar is missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        suite = folder / "two.jsonl"
        suite.write_text("".join(json.dumps({"id": f"coding-{n}", **CASE}) + "\n" for n in (1, 2)), encoding="utf-8")
        measured = make_commands(suite)
        for round_number in range(ROUNDS + 1):  # the first is a warm-up: modules and store are made
            for command in measured:
                command.measure(folder)
                if not round_number:
                    command.wall.clear()
                    command.processor.clear()
    wall = {each.name: statistics.median(each.wall) for each in measured}
    processor = {each.name: statistics.median(each.processor) for each in measured}
    met = True
    print(f"| command | median of {ROUNDS} | ratio | of processor time |")
    print("| --- | --- | --- | --- |")
    for each in measured:
        ratio = wall[each.name] / wall[each.yardstick or each.name]
        met &= not each.bar or ratio <= each.bar
        bar = f"{ratio:.2f} (bar: at most {each.bar})" if each.bar else "1"
        share = processor[each.name] / processor[each.yardstick or each.name]
        print(f"| `{each.name}` | {wall[each.name] * 1000:.0f} ms | {bar} | {share:.2f} |")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
