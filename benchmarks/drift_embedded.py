"""Does a watch stay quiet on a real model that does not change, and which changes of it does it see? Virtual days.

The model is real: SmolLM2 135M in this process, sampled at temperature 0.7 with a new seed for each call. The days are
virtual: the clock is moved by a day after each batch. For 60 days nothing changes. Then, from the same 60 days, one
thing is changed at a time behind the model's name, as a vendor could: its system prompt, temperature, or the length of
its replies. Beside it, the community's hash consistency on the same days.

Bar: 60 days without an alarm. Reported: days until a notice and an alarm for each change.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pramana import clock, settings
from pramana.analyse.watch_facts import measure_hash_consistency
from pramana.app.watches import read_watch, start_watch
from pramana.embedded.language import NAME
from pramana.load.rows import make_case
from pramana.model import Reply, Request, Target, Turn
from pramana.providers.accounts import PassedFunctions
from pramana.providers.text.local import LocalProvider
from pramana.request import Limits, RunRequest
from pramana.run.accounts import ProviderAccess
from pramana.store import open_store
from pramana.watch_request import WatchRequest
from pramana.watching import measure_day, read_feature_days

FIRST_DAY = datetime(2026, 1, 1, 3, tzinfo=UTC)
UNCHANGED_DAYS, CHANGED_DAYS = 60, 10
REPEATS = 3
CASES = (
    ("What is the capital of France?", "Paris"),
    ("What is 2 + 3? Answer with a number.", "5"),
    ("Which animal says moo?", "cow"),
    ("Is fire hot or cold?", "hot"),
    ("Which colour is the sky?", "blue"),
)
USUAL: dict[str, Any] = {"system": "You are a helpful assistant.", "temperature": 0.7, "max_tokens": 10}
CHANGES: Sequence[tuple[str, dict[str, Any]]] = (
    ("temperature 0.7 → 0.8", {"temperature": 0.8}),
    ("temperature 0.7 → 1.0", {"temperature": 1.0}),
    ("temperature 0.7 → 1.5", {"temperature": 1.5}),
    ("max tokens 10 → 9", {"max_tokens": 9}),
    ("max tokens 10 → 7", {"max_tokens": 7}),
    ("system prompt: one word added", {"system": "You are a helpful, concise assistant."}),
    ("system prompt: another", {"system": "You are a pirate. Answer like one."}),
)


class DayClock(clock.Clock):
    """A clock whose date is set; durations are real."""

    moment = FIRST_DAY

    def now(self) -> datetime:
        return self.moment


class HiddenModel:
    """The embedded model behind a name that does not say how it is asked."""

    def __init__(self) -> None:
        self.settings, self._calls = dict(USUAL), 0
        self._provider = LocalProvider.open(Target("local", "local", NAME))

    async def __call__(self, prompt: str) -> Reply:
        self._calls += 1
        parameters = {
            "temperature": self.settings["temperature"],
            "max_tokens": self.settings["max_tokens"],
            "seed": self._calls,
        }
        turns = (Turn("system", self.settings["system"]), Turn("user", prompt))
        return await self._provider.ask(Request(NAME, turns, parameters))


class Seen(NamedTuple):
    """What a watch and the hash consistency said of one change; days after the change, None: not within ten."""

    notice_day: int | None
    alarm_day: int | None
    instruments: str
    consistency: float


class Bench:
    """A watch in a store of its own, and what measures its days."""

    def __init__(self, path: Path, model: HiddenModel, days: DayClock) -> None:
        self.path, self.model, self._days = path, model, days
        self.reach = ProviderAccess(passed_functions=PassedFunctions({"benchmark:model": model}))

    def start(self) -> None:
        """Start the watch."""
        cases = tuple(make_case(prompt, ideal=ideal, id=f"q{number}") for number, (prompt, ideal) in enumerate(CASES))
        run = RunRequest(
            models=("python:benchmark:model",), cases=cases, repeats=REPEATS, temperature=None, seed=None,
            limits=Limits(concurrency=1),
        )  # fmt: skip
        request = WatchRequest(run=run, instruments=("pass_rate", "length", "replies"), name="embedded")
        with closing(open_store(settings.sqlite_url(self.path))) as store:
            start_watch(store, request, self.reach)

    def measure(self, number: int) -> tuple[str, tuple[str, ...]]:
        """Measure a day; return the level of the watch, and the instruments that reached it."""
        self._days.moment = FIRST_DAY + timedelta(days=number)
        with closing(open_store(settings.sqlite_url(self.path))) as store:
            watch = store.watches.find("embedded")
            asyncio.run(measure_day(store, watch, reach=self.reach))
            view = read_watch(store, watch)
            return view.level, tuple(each.title for each in view.findings if each.level == view.level)

    def measure_consistency(self) -> float:
        """Return the hash consistency of the last day."""
        with closing(open_store(settings.sqlite_url(self.path))) as store:
            watch = store.watches.find("embedded")
            days = read_feature_days(store, watch, 1)
            found = measure_hash_consistency(days[:28], days[-1])
            return found.share if found else 0.0


def watch_unchanged(bench: Bench) -> list[tuple[str, float]]:
    """Return level and hash consistency of each unchanged day."""
    bench.start()
    found = []
    for day in range(UNCHANGED_DAYS):
        level, _ = bench.measure(day)
        found.append((level, bench.measure_consistency()))
    return found


def watch_change(bench: Bench, change: dict[str, Any], folder: Path) -> Seen:
    """Change the model after the unchanged days, in a copy of their store."""
    copy = folder / "changed.sqlite3"
    for left_over in folder.glob("changed.sqlite3*"):
        left_over.unlink()
    shutil.copy(bench.path, copy)
    changed = Bench(copy, bench.model, bench._days)  # noqa: SLF001
    changed.model.settings = {**USUAL, **change}
    notice = alarm = None
    titles: tuple[str, ...] = ()
    shares = []
    for day in range(1, CHANGED_DAYS + 1):
        level, seen = changed.measure(UNCHANGED_DAYS - 1 + day)
        shares.append(changed.measure_consistency())
        if level in ("notice", "alarm"):
            notice, titles = notice or day, seen
        if level == "alarm":
            alarm = day
            break
    changed.model.settings = dict(USUAL)
    return Seen(notice, alarm, "; ".join(titles), sum(shares) / len(shares))


def main() -> int:
    """Print the table; return 1 if an unchanged day had an alarm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=len(CHANGES), help="how many of the changes to try")
    given = parser.parse_args()
    began = time.monotonic()
    days = DayClock()
    with tempfile.TemporaryDirectory(prefix="pramana-drift-") as folder, clock.use_clock(days):
        bench = Bench(Path(folder) / "unchanged.sqlite3", HiddenModel(), days)
        unchanged = watch_unchanged(bench)
        levels = [level for level, _ in unchanged]
        shares = [share for level, share in unchanged if level != "collecting"]
        alarms, notices = levels.count("alarm"), levels.count("notice")
        calls = len(CASES) * REPEATS
        print(f"Unchanged, {UNCHANGED_DAYS} days of {calls} calls: {alarms} with an alarm, {notices} with a notice")
        print(f"Hash consistency on the days after the baseline: {min(shares):.0%} to {max(shares):.0%}")
        print("| change | notice, day | alarm, day | seen by | hash consistency |")
        print("| --- | --- | --- | --- | --- |")
        for name, change in CHANGES[: given.changes]:
            seen = watch_change(bench, change, Path(folder))
            notice, alarm = (str(day or f"not within {CHANGED_DAYS}") for day in (seen.notice_day, seen.alarm_day))
            print(f"| {name} | {notice} | {alarm} | {seen.instruments or '–'} | {seen.consistency:.0%} |", flush=True)
        print(f"{time.monotonic() - began:.0f} s")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
