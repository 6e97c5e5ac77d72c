"""How many real answers does it take to see a real change? Two dated versions each of GPT-3.5 and GPT-4, recorded.

The answers are those of "How is ChatGPT's behavior changing over time?" (Chen, Zaharia and Zou, 2023), which are not
part of this repository: name the folder that has `completions.jsonl.gz` as the argument or in PRAMANA_LLMDRIFT. Both
versions answered the same questions, so the answers are taken as pairs: in random order, with a look after every pair,
until `pramana.analyse.same` is sure; and as a stream of days with ten questions each, for the rule of
`pramana.analyse.drift`. For false alarms, the two sides of each pair are swapped by lot, or all days are of one
version.

There are no days in these data: they show how strong the evidence is, not how often a watch of an unchanged endpoint is
wrong. Bars: the two changes of GPT-4 are seen within 50 pairs in four of five orders, and in a median of five days; of
the swapped pairs, at most 1 % reach the 1 % level significantly often (p > 0.01).
"""

import argparse
import gzip
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

from scipy.stats import binom  # type: ignore[import-untyped]

from pramana import settings
from pramana.analyse.drift import ALARM, BASELINE_DAYS, MIN_TOLERANCE, NOTICE, AlertLevel, iterate_change_statistics
from pramana.analyse.same import SIGNIFICANCE_LEVEL, PairedTest, ReplyPair

DEFAULT_FOLDER = Path(__file__).parents[2] / "shared" / "data" / "llmdrift"
VERSIONS = (("gpt-3.5-turbo-0301", "gpt-3.5-turbo-0613"), ("gpt-4-0314", "gpt-4-0613"))
TASKS = {
    "counthappynumber": "happy numbers, right",
    "opinionqa": "opinions, answered",
    "sensitiveq": "sensitive questions, answered",
}
ORDERS, STREAMS, SEED = 400, 200, 5
QUESTIONS_PER_DAY, DAYS_BEFORE_CHANGE, WATCHED_DAYS = 10, 5, 25
NOTICE_P, NEVER = 0.01, 10**9


class Pair(NamedTuple):
    """Both versions' answers to one question: passed, and their lengths."""

    passed: tuple[bool, bool]
    lengths: tuple[int, int]


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the recorded answers."""
    with gzip.open(folder / "completions.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def is_passed(row: dict[str, Any]) -> bool:
    """Return whether an answer is right, or for tasks without a right answer, whether it is one."""
    answer = row["answer"] or ""
    if row["task"] == "counthappynumber":
        found, wanted = re.findall(r"boxed\{?\s*(-?\d+)", answer), re.findall(r"boxed\{(-?\d+)", row["reference"])
        return bool(found) and bool(wanted) and found[-1] == wanted[-1]
    if row["task"] == "opinionqa":
        is_choice = re.match(r"\s*\(?[A-J]\)", answer.strip())
        return bool(is_choice) and not re.search(r"As an AI|I don.t have personal", answer)
    return not re.search(r"sorry|cannot|can't|as an AI", answer[:200], re.IGNORECASE)


def pair_answers(rows: Sequence[dict[str, Any]], task: str, versions: tuple[str, str]) -> list[Pair]:
    """Return the questions that both versions answered.

    A question is its id and its text: three ids of the opinions stand for five questions each.
    """
    answers: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["task"] == task and row["model"] in versions:
            answers.setdefault((str(row["id"]), row["prompt"]), {}).setdefault(row["model"], row)
    found = []
    for by_version in answers.values():
        if len(by_version) == len(versions):
            first, second = (by_version[version] for version in versions)
            passed = is_passed(first), is_passed(second)
            found.append(Pair(passed, (len(first["answer"] or ""), len(second["answer"] or ""))))
    return found


def count_pairs_until(pairs: Sequence[Pair], level: float, instruments: Sequence[str]) -> int:
    """Return after how many pairs the test reaches a level, with a look after each; `NEVER` if it does not."""
    test = PairedTest(instruments, ())
    for count, pair in enumerate(pairs, 1):
        values = {
            "passed": (float(pair.passed[0]), float(pair.passed[1])),
            "length": (float(pair.lengths[0]), float(pair.lengths[1])),
        }
        test.add(ReplyPair("", ("", ""), values))
        if test.p_value <= level:
            return count
    return NEVER


def swap_by_lot(rng: Random, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs, each with its sides swapped or not."""
    return [pair if rng.random() < 0.5 else Pair(pair.passed[::-1], pair.lengths[::-1]) for pair in pairs]


def count_days_until(rng: Random, shares: Sequence[float], level: AlertLevel) -> int:
    """Return after how many days after the baseline the rule of a watch reaches a level; `NEVER` if it does not."""
    tied = [share + rng.uniform(-0.5, 0.5) / QUESTIONS_PER_DAY for share in shares]
    statistics = iterate_change_statistics(tied, BASELINE_DAYS, MIN_TOLERANCE)
    return next((day for day, found in enumerate(statistics, 1) if found.value >= level.threshold), NEVER)


def make_days(rng: Random, pairs: Sequence[Pair], changed_after: int | None, *, rises: bool) -> list[float]:
    """Return the score of each day: the share of failures, or of passes if a rise is watched."""
    order = rng.sample(pairs, len(pairs))
    count = min(len(order) // QUESTIONS_PER_DAY, BASELINE_DAYS + DAYS_BEFORE_CHANGE + WATCHED_DAYS)
    scores = []
    for day in range(count):
        side = int(changed_after is not None and day >= changed_after)
        asked = order[day * QUESTIONS_PER_DAY : (day + 1) * QUESTIONS_PER_DAY]
        scores.append(sum(pair.passed[side] == rises for pair in asked) / QUESTIONS_PER_DAY)
    return scores


def quantiles(counts: Sequence[int]) -> str:
    """Return the median and the value of four in five, of which many may be never."""
    ordered = sorted(counts)
    found = median(ordered), ordered[int(0.8 * len(ordered))]
    return " / ".join("never" if each >= NEVER else f"{each:.0f}" for each in found)


def report_pairs(rows: Sequence[dict[str, Any]]) -> bool:
    """Print questions until a change is seen; return whether the bars hold."""
    print(
        "| task | versions | questions | passed | at 1 %: median / 80 % | at 0.1 % | with length, at 0.1 % "
        "| swapped, 1 % |",
        "| --- | --- | --: | --- | --: | --: | --: | --: |",
        sep="\n",
    )
    good = True
    for task, title in TASKS.items():
        for versions in VERSIONS:
            pairs, rng = pair_answers(rows, task, versions), Random(SEED)
            orders = [rng.sample(pairs, len(pairs)) for _ in range(ORDERS)]
            until = [count_pairs_until(order, NOTICE_P, ["passed"]) for order in orders]
            strictly = [count_pairs_until(order, SIGNIFICANCE_LEVEL, ["passed"]) for order in orders]
            both = [count_pairs_until(order, SIGNIFICANCE_LEVEL, ["passed", "length"]) for order in orders]
            swapped = sum(count_pairs_until(swap_by_lot(rng, order), NOTICE_P, ["passed"]) < NEVER for order in orders)
            holds = float(binom.sf(swapped - 1, ORDERS, NOTICE_P)) > 0.01
            if versions[0].startswith("gpt-4") and task != "sensitiveq":
                holds &= sorted(until)[int(0.8 * ORDERS)] <= 50
            good &= holds
            rates = [sum(pair.passed[side] for pair in pairs) / len(pairs) for side in (0, 1)]
            print(
                f"| {title} | {versions[0]} → {versions[1][-4:]} | {len(pairs):,} | {rates[0]:.1%} → {rates[1]:.1%} | "
                f"{quantiles(until)} | {quantiles(strictly)} | {quantiles(both)} | {swapped / ORDERS:.1%} |"
                + ("" if holds else " **missed**"),
                flush=True,
            )
    return good


def report_days(rows: Sequence[dict[str, Any]]) -> bool:
    """Print days until a change is seen; return whether the bars hold."""
    print(
        f"\n| task | versions | {QUESTIONS_PER_DAY} a day: days until a notice | an alarm | notices before the change "
        "| one version: notices | alarms |",
        "| --- | --- | --: | --: | --: | --: | --: |",
        sep="\n",
    )
    good, changed = True, BASELINE_DAYS + DAYS_BEFORE_CHANGE
    for task, title in TASKS.items():
        for versions in VERSIONS:
            pairs, rng = pair_answers(rows, task, versions), Random(SEED)
            if len(pairs) < (changed + 10) * QUESTIONS_PER_DAY:
                continue
            rises = sum(pair.passed[1] for pair in pairs) > sum(pair.passed[0] for pair in pairs)
            cells, early = [], 0
            for level in (NOTICE, ALARM):
                days = [
                    count_days_until(rng, make_days(rng, pairs, changed, rises=rises), level) for _ in range(STREAMS)
                ]
                early += sum(day <= DAYS_BEFORE_CHANGE for day in days) if level is NOTICE else 0
                seen = [day - DAYS_BEFORE_CHANGE for day in days if DAYS_BEFORE_CHANGE < day < NEVER]
                late = seen + [NEVER] * (STREAMS - len(seen))
                middle = median(late)
                cells.append(f"{'never' if middle >= NEVER else f'{middle:.0f}'} ({len(seen) / STREAMS:.0%})")
                if versions[0].startswith("gpt-4") and level is NOTICE:
                    good &= middle <= 5
            still = [
                sum(
                    count_days_until(rng, make_days(rng, pairs, None, rises=rises), level) < NEVER
                    for _ in range(STREAMS)
                )
                for level in (NOTICE, ALARM)
            ]
            print(
                f"| {title} | {versions[0]} → {versions[1][-4:]} | {cells[0]} | {cells[1]} | {early / STREAMS:.1%} | "
                f"{still[0] / STREAMS:.1%} | {still[1] / STREAMS:.1%} |",
                flush=True,
            )
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; return 1 if a bar is missed, 2 without the data."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    named = settings.read_variable("PRAMANA_LLMDRIFT")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(named) if named else DEFAULT_FOLDER)
    folder = parser.parse_args(arguments).folder
    if not (folder / "completions.jsonl.gz").is_file():
        print(f"{folder} has no completions.jsonl.gz; name the folder of the recorded answers", file=sys.stderr)
        return 2
    began, rows = time.monotonic(), read_rows(folder)
    good = [report_pairs(rows), report_days(rows)]
    print(f"\n{time.monotonic() - began:.0f} s on 1 process.")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
