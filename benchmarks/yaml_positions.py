"""How much do positions cost? Compares our reader with PyYAML's C loader on the same 10,000 scenarios.

Bar: parsing and validating with positions takes at most 1.5 times as long as `yaml.CSafeLoader` takes to load the text
without positions. CPU time, garbage collector paused for both, minimum of 5, alternating in one run. Synthetic text.
"""

import sys
import time
from collections.abc import Callable

import yaml

from pramana.load.problems import Problems
from pramana.load.scenario import parse_scenarios, pause_garbage_collector

COUNT, ROUNDS, BAR = 10_000, 5, 1.5

ENTRY = """\
  - id: booking-ferry-{n}
    name: Ferry crossing number {n}
    type: task-completion
    prompt: "I need the {n} o'clock ferry, two adults and a van, and the van is a bit over two metres."
    expected_outcome: "Repeats the time and the two passengers; asks for the van's height because fares depend on it"
    tags:
      - domain:travel
      - task:booking
      - skill:numbers
    difficulty: medium
    language: en
"""


def make_document() -> str:
    """Return a document of synthetic scenarios."""
    return 'version: "1.0"\nscenarios:\n' + "".join(ENTRY.format(n=n) for n in range(COUNT))


def load_with_pramana(document: str) -> int:
    """Parse and validate; return the number of scenarios."""
    problems = Problems()
    count = len(parse_scenarios(document, problems))
    if problems.errors:
        sys.exit(f"the synthetic document has problems: {problems.kept[0]}")
    return count


def load_with_pyyaml(document: str) -> int:
    """Load with PyYAML's C loader."""
    return len(yaml.load(document, Loader=yaml.CSafeLoader)["scenarios"])  # noqa: TID251 - the yardstick


def measure_cpu(work: Callable[[str], int], document: str) -> float:
    """Return the CPU seconds of one call, with the garbage collector paused."""
    with pause_garbage_collector():
        start = time.process_time()
        count = work(document)
        took = time.process_time() - start
    if count != COUNT:
        sys.exit(f"expected {COUNT} scenarios, got {count}")
    return took


def main() -> int:
    """Print the table; return 1 if the bar is missed."""
    document = make_document()
    yardstick, reader = [], []
    for _ in range(ROUNDS):
        yardstick.append(measure_cpu(load_with_pyyaml, document))
        reader.append(measure_cpu(load_with_pramana, document))
    ratio = min(reader) / min(yardstick)
    print(f"| {COUNT:,} scenarios, {document.count(chr(10)):,} lines | CPU s, minimum of {ROUNDS} | ratio |")
    print("| --- | --- | --- |")
    print(f"| PyYAML CSafeLoader, no positions, no validation | {min(yardstick):.2f} | 1 |")
    print(f"| Pramana, positions and validation | {min(reader):.2f} | {ratio:.2f} (bar: at most {BAR}) |")
    return int(ratio > BAR)


if __name__ == "__main__":
    sys.exit(main())
