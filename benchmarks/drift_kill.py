"""Does a watch survive kills? The scheduler is killed with SIGKILL 20 times at random moments of a 40-day run.

Bars: every day of every watch once, no result stored twice, the budget kept every day, and no alert lost: each is
delivered under its one ID. The days are virtual: a file holds the date, and this module's own launcher installs a clock
that reads it; durations are real. Three watches of a made-up model, a function in the scheduler's process that notes
each call in a file: two models become worse on days 19 and 21, the third has a budget for 17 of its 20 calls a day.
Kills come at random moments of random days, and the first two while a webhook is receiving an alert; on every fifth day
with a kill, the scheduler starts again only on the next day. The webhook refuses the first attempt of every second
alert.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from pramana import clock, settings
from pramana.alerting import make_channel
from pramana.app.watches import start_watch
from pramana.load.rows import make_case
from pramana.model import Reply
from pramana.request import Limits, RunRequest
from pramana.scheduling import Scheduler
from pramana.store import open_store
from pramana.store.store import Store
from pramana.store.watches import Watch
from pramana.watch_request import AlertDestination, WatchRequest

FIRST_DAY = datetime(2026, 3, 1, 3, tzinfo=UTC)
DAYS, KILLS, SEED = 40, 20, 16
CASES, COST_USD, LATENCY_S = 20, 0.01, 0.02
WORSE_FROM = {"early": 18, "late": 20}
"""The day from which a model passes 30 % of its cases instead of 90 %."""
BUDGETS = {"early": 1.0, "late": 1.0, "small": 0.17}
CONCURRENCY = {"early": 4, "late": 4, "small": 1}
RECEIVER_DELAY_S, POLL_S, LIMIT_S = 0.1, 0.02, 120.0
DATE_FILE, CALLS_FILE, STORE_FILE = "date.txt", "calls.jsonl", "store.sqlite3"


class Process(Protocol):
    """A started scheduler."""

    def send_signal(self, number: int) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


Start = Callable[[Sequence[str]], Process]
"""Starts `python ARGUMENTS…`."""


class FileClock(clock.Clock):
    """The date of a file, for several processes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / DATE_FILE

    def now(self) -> datetime:
        return datetime.fromisoformat(self._path.read_text())


def set_date(folder: Path, date: datetime) -> None:
    """Set the date of all processes."""
    staged = folder / f"{DATE_FILE}.new"
    staged.write_text(date.isoformat())
    staged.replace(folder / DATE_FILE)


# ── The processes that are killed ──


def early(prompt: str) -> Reply:
    """Answer as the model that becomes worse first."""
    return _answer("early", prompt)


def late(prompt: str) -> Reply:
    """Answer as the model that becomes worse later."""
    return _answer("late", prompt)


def small(prompt: str) -> Reply:
    """Answer as the model whose budget is too small."""
    return _answer("small", prompt)


def _answer(name: str, prompt: str) -> Reply:
    """Note the call before the answer, as a provider that charges for it."""
    today = clock.now()
    number = (today.date() - FIRST_DAY.date()).days
    with (settings.data_folder() / CALLS_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"watch": name, "day": f"{today:%Y-%m-%d}", "prompt": prompt}) + "\n")
    time.sleep(LATENCY_S)
    rate = 0.3 if number >= WORSE_FROM.get(name, DAYS) else 0.9
    passes = random.Random(f"{SEED} {name} {number} {prompt}").random() < rate
    return Reply("yes" if passes else "no", cost_usd=COST_USD)


def run_scheduler(folder: Path) -> None:
    """Run the scheduler until it is killed."""
    with clock.use_clock(FileClock(folder)), closing(open_store(f"sqlite:///{folder / STORE_FILE}")) as store:
        asyncio.run(Scheduler(store, poll_interval_s=POLL_S).run())


# ── The receiver ──


@dataclass
class Receiver:
    """What arrived at the webhook."""

    url: str = ""
    arrived: list[str] = field(default_factory=list)
    """IDs in order, whatever the answer."""
    accepted: list[str] = field(default_factory=list)
    """IDs that were answered with 200, or would have been: their sender may be gone."""
    kills_left: int = 0
    kill: Callable[[], None] = lambda: None


@contextmanager
def receive_alerts() -> Iterator[Receiver]:
    """Serve a slow webhook that refuses the first attempt of every second alert, and may kill its sender."""
    receiver, lock = Receiver(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            alert = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["id"]
            with lock:
                known = list(dict.fromkeys([*receiver.arrived, alert]))
                refuses = alert not in receiver.arrived and known.index(alert) % 2 == 1
                receiver.arrived.append(alert)
                kills = receiver.kills_left > 0
                receiver.kills_left -= kills
            time.sleep(RECEIVER_DELAY_S)
            if kills:
                receiver.kill()
            if not refuses:
                receiver.accepted.append(alert)
            try:
                self.send_response(500 if refuses else 200)
                self.end_headers()
            except OSError:  # its sender was killed
                return

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/alerts"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# ── The run ──


@dataclass
class Outcome:
    """What came of a run."""

    days: int
    kills: int = 0
    kills_while_delivering: int = 0
    late_restarts: list[str] = field(default_factory=list)
    """Days on which no scheduler ran after a kill."""
    watch_days: int = 0
    measured_days: int = 0
    stored_results: int = 0
    calls: int = 0
    alerts: int = 0
    deliveries: int = 0
    problems: list[str] = field(default_factory=list)


class Driver:
    """Moves the date, kills the scheduler and starts it again."""

    def __init__(self, folder: Path, store: Store, watches: dict[str, Watch], receiver: Receiver, start: Start) -> None:
        self._folder, self._store, self._watches, self._start = folder, store, watches, start
        self._receiver = receiver
        self._process: Process | None = None
        self._lock = threading.Lock()
        self.kills = 0
        receiver.kill = self.kill

    def start(self) -> None:
        """Start a scheduler unless one runs."""
        with self._lock:
            if self._process is None:
                self._process = self._start(["-m", "benchmarks.drift_kill", "schedule", str(self._folder)])

    def kill(self) -> None:
        """Kill the scheduler."""
        with self._lock:
            if self._process is not None:
                self._process.send_signal(signal.SIGKILL)
                self._process.wait(30)
                self._process = None
                self.kills += 1

    def end(self) -> None:
        """End the last scheduler, which is no kill."""
        self.kill()
        self.kills -= 1

    def pass_day(self, number: int, kill_delays_s: Sequence[float], *, is_continued: bool) -> None:
        """Let a day pass, with kills after some delays; without `is_continued` the last kill ends the day."""
        today = FIRST_DAY + timedelta(days=number)
        set_date(self._folder, today)
        self.start()
        for place, delay_s in enumerate(kill_delays_s, 1):
            self._wait_for_begin(today)
            time.sleep(delay_s)
            self.kill()
            if place == len(kill_delays_s) and not is_continued:
                return
            self.start()
        self._wait(lambda: self._is_over(today), f"{today:%Y-%m-%d} is measured")
        for hours in (1, 3, 5, 7):  # attempts to deliver are repeated after minutes
            set_date(self._folder, today + timedelta(hours=hours))
            if not self._has_undelivered():
                break
            time.sleep(10 * POLL_S + 2 * RECEIVER_DELAY_S)
            self.start()  # the receiver may have killed it

    def _wait_for_begin(self, today: datetime) -> None:
        """Wait until a day has begun, or is over: a start takes longer than a day's calls."""
        day = today.date().isoformat()
        self._wait(lambda: bool(self._store.watches.read_day_statuses(day)), f"{day} begins")

    def _is_over(self, today: datetime) -> bool:
        self.start()  # the receiver may have killed it
        statuses = self._store.watches.read_day_statuses(today.date().isoformat())
        return [statuses.get(each.number) in ("measured", "missing") for each in self._watches.values()] == [
            True
        ] * len(self._watches)

    def _has_undelivered(self) -> bool:
        return any(
            each.delivered is None
            for watch in self._watches.values()
            for each in self._store.watches.list_alerts(watch)
        )

    def _wait(self, is_done: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + LIMIT_S
        while not is_done():
            if time.monotonic() > until:
                raise TimeoutError(f"nothing happened for {LIMIT_S:g} s; expected that {what}")
            time.sleep(POLL_S)


def run(folder: Path, start: Start, *, days: int = DAYS, kills: int = KILLS, seed: int = SEED) -> Outcome:
    """Run the watches for some virtual days with some kills, and check the bars."""
    chance = random.Random(seed)
    kill_days = Counter(chance.choice(range(1, days)) for _ in range(max(0, kills - 2)))
    set_date(folder, FIRST_DAY)
    with (
        clock.use_clock(FileClock(folder)),
        closing(open_store(f"sqlite:///{folder / STORE_FILE}")) as store,
        receive_alerts() as receiver,
    ):
        watches = {name: _start_watch(store, name, receiver.url) for name in BUDGETS}
        driver = Driver(folder, store, watches, receiver, start)
        receiver.kills_left = min(2, kills)
        outcome = Outcome(days)
        try:
            for number in range(days):
                count = kill_days[number]
                # A start takes about a second, and a day's calls about 0.4 s.
                delays = [chance.uniform(0, 0.5) for _ in range(count)]
                is_continued = not count or sorted(kill_days).index(number) % 5 != 4 or number == days - 1
                if not is_continued:
                    outcome.late_restarts.append((FIRST_DAY + timedelta(days=number)).date().isoformat())
                driver.pass_day(number, delays, is_continued=is_continued)
            for hours in range(10, 20):  # the alerts of the last day
                set_date(folder, FIRST_DAY + timedelta(days=days - 1, hours=hours))
                driver.start()
                time.sleep(10 * POLL_S + 2 * RECEIVER_DELAY_S)
        finally:
            driver.end()
        outcome.kills, outcome.kills_while_delivering = driver.kills, 2 - receiver.kills_left
        _check(folder, store, watches, receiver, outcome)
    return outcome


def _start_watch(store: Store, name: str, url: str) -> Watch:
    cases = tuple(make_case(f"question {number} of {name}", ideal="yes", id=f"q{number}") for number in range(CASES))
    limits = Limits(concurrency=CONCURRENCY[name])
    asked = RunRequest(models=(f"python:benchmarks.drift_kill:{name}",), cases=cases, limits=limits)
    request = WatchRequest(
        run=asked, name=name, instruments=("pass_rate",), baseline_days=14, budget_usd_per_day=BUDGETS[name]
    )
    watch = store.watches.read(start_watch(store, request).id)
    channel = make_channel(store, AlertDestination(url=url), is_local=True, allow_private=True)
    store.alerts.change_channel(watch, channel)
    return store.watches.read(watch.id)


# ── The bars ──


def _check(folder: Path, store: Store, watches: dict[str, Watch], receiver: Receiver, outcome: Outcome) -> None:
    lines = (folder / CALLS_FILE).read_text(encoding="utf-8").splitlines()
    calls = Counter((each["watch"], each["day"]) for each in map(json.loads, lines))
    outcome.calls = sum(calls.values())
    expected_days = [(FIRST_DAY + timedelta(days=each)).date().isoformat() for each in range(outcome.days)]
    for name, watch in watches.items():
        found = store.watches.list_days(watch)
        outcome.watch_days += len(found)
        outcome.measured_days += sum(each.status == "measured" for each in found)
        days = [each.day for each in found]
        # Where no scheduler ran after a kill, a day that had not begun is missing, and is not made up.
        if [each for each in expected_days if each in days or each not in outcome.late_restarts] != days:
            outcome.problems.append(f"{name}: other days than the {outcome.days} expected")
        if Counter(each.day for each in store.watches.list_runs(watch)) != Counter(days):
            outcome.problems.append(f"{name}: a day with another number of runs than one")
        if any(each.status == "measuring" for each in found):
            outcome.problems.append(f"{name}: a day that never ended")
        for linked in store.watches.list_runs(watch):
            _check_run(store, name, linked.run_id, linked.day, calls, outcome)
    alerts = [(name, each) for name, watch in watches.items() for each in store.watches.list_alerts(watch)]
    outcome.alerts, outcome.deliveries = len(alerts), len(receiver.accepted)
    kinds = Counter((name, each.period, each.level) for name, each in alerts)
    if any(count > 1 for count in kinds.values()):
        outcome.problems.append("an alert was raised twice")
    if lost := [each.id for _, each in alerts if each.delivered is None]:
        outcome.problems.append(f"alerts that were not delivered: {lost}")
    if {each.id for _, each in alerts} != set(receiver.accepted):
        outcome.problems.append("the receiver has other IDs than the store")
    if len(receiver.accepted) > len(alerts) + outcome.kills_while_delivering:
        outcome.problems.append("an alert was delivered again without a kill")


def _check_run(store: Store, name: str, run_id: str, day: str, calls: "Counter[Any]", outcome: Outcome) -> None:
    keys = [result.key for _, result in store.results.iterate(run_id)]
    outcome.stored_results += len(keys)
    if len(keys) != len(set(keys)) or len(keys) > CASES:
        outcome.problems.append(f"{name} {day}: a result is stored twice")
    spent = store.results.sum_spending(run_id).cost_usd
    if spent > BUDGETS[name] + 1e-9:
        outcome.problems.append(f"{name} {day}: {spent:.2f} USD, more than the budget of {BUDGETS[name]} USD")
    if calls[name, day] < len(keys):
        outcome.problems.append(f"{name} {day}: results without a call")


def _start_process(arguments: Sequence[str]) -> Process:
    return subprocess.Popen([sys.executable, *arguments])


def main() -> int:
    """Run the benchmark, or a scheduler of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs="?", choices=["schedule"])
    parser.add_argument("folder", nargs="?", type=Path)
    given = parser.parse_args()
    if given.command:
        run_scheduler(given.folder)
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pramana-kill-") as name:
        os.environ["PRAMANA_HOME"] = name  # noqa: TID251 - the schedulers inherit it, and share its key file
        outcome = run(Path(name), _start_process)
    lost = outcome.calls - outcome.stored_results
    print(f"| virtual days x watches | {outcome.days} x {len(BUDGETS)} |")
    print(f"| kills, of them while an alert was delivered | {outcome.kills}, {outcome.kills_while_delivering} |")
    print(f"| kills after which no scheduler ran until the next day | {len(outcome.late_restarts)} |")
    print(f"| days stored, of them measured | {outcome.watch_days}, {outcome.measured_days} |")
    print(f"| results stored | {outcome.stored_results:,} |")
    print(f"| calls whose answer was lost by a kill, and sent again or left out | {lost} |")
    print(f"| alerts raised, accepted by the receiver | {outcome.alerts}, {outcome.deliveries} |")
    print(f"| problems | {len(outcome.problems)} |")
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    for each in outcome.problems:
        print(f"PROBLEM: {each}", file=sys.stderr)
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
