"""Does a watch survive kills? The scheduler is killed with SIGKILL 20 times at random moments of a 40-day run.

Bars: every day of every watch once, no result stored twice, the budget kept every day, and no alert lost: each is
delivered under its one ID; each search for border prompts ends, sends no answered call again, and every later day sends
the prompts that it found. The days are virtual: a file holds the date, and this module's own launcher installs a clock
that reads it; durations are real. Three watches of made-up models behind one loopback server, which outlives the kills
and counts the calls: two models become worse on days 19 and 21 and are also watched by `answers` and `logprobs`, the
second of them with a budget that its search needs four days for; the third has a budget for 17 of its 20 calls a day.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from pramana import clock
from pramana.alerting import make_channel
from pramana.app.watches import start_watch
from pramana.day_runs import DAILY_ANSWER_CALLS, LOGPROB_PROMPT_COUNT, SEARCH_CALLS
from pramana.hash import hash_case
from pramana.load.rows import make_case
from pramana.providers.prices import Rates
from pramana.request import Limits, RunRequest
from pramana.scheduling import Scheduler
from pramana.store import open_store
from pramana.store.store import Store
from pramana.store.watches import RunPurpose, Watch, WatchRun
from pramana.watch_request import AlertDestination, WatchRequest

FIRST_DAY = datetime(2026, 3, 1, 3, tzinfo=UTC)
DAYS, KILLS, SEED = 40, 20, 16
CASES, COST_USD, LATENCY_S = 20, 0.01, 0.01
TOKENS = 1000
"""Of a prompt, as the server counts them; they alone cost something."""
WORSE_FROM = {"early": 18, "late": 20}
"""The day from which a model passes 30 % of its cases instead of 90 %."""
BUDGETS = {"early": 10.0, "late": (CASES + LOGPROB_PROMPT_COUNT + 60) * COST_USD, "small": 0.17}
CONCURRENCY = {"early": 4, "late": 1, "small": 1}
WITH_PROMPTS = ("early", "late")
"""Watches with `answers` and `logprobs`."""
MOST_RESULTS: Mapping[str, int] = {
    "batch": CASES, "logprobs": LOGPROB_PROMPT_COUNT, "search": SEARCH_CALLS, "answers": DAILY_ANSWER_CALLS,
}  # fmt: skip
"""Results of a run, by its purpose."""
RECEIVER_DELAY_S, POLL_S, LIMIT_S = 0.1, 0.02, 120.0
MAX_KILL_DELAY_S = 0.5
KILLED_PURPOSES: Sequence[RunPurpose] = ("batch", "logprobs", "answers", "search")
SEARCH_DAYS = 4
"""Days on which the watch with a small budget searches."""
DATE_FILE, STORE_FILE = "date.txt", "store.sqlite3"


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


def run_scheduler(folder: Path) -> None:
    """Run the scheduler until it is killed."""
    with clock.use_clock(FileClock(folder)), closing(open_store(f"sqlite:///{folder / STORE_FILE}")) as store:
        asyncio.run(Scheduler(store, poll_interval_s=POLL_S).run())


# ── The models ──


@dataclass
class Models:
    """The server of the models, and its calls by watch and day."""

    url: str = ""
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)


@contextmanager
def serve_models(folder: Path) -> Iterator[Models]:
    """Serve the models of all watches as an OpenAI-compatible server."""
    models, lock, virtual = Models(), threading.Lock(), FileClock(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            today = virtual.now()
            with lock:  # noted before the answer, as by a provider that charges for it
                models.calls[asked["model"], f"{today:%Y-%m-%d}"] += 1
            time.sleep(LATENCY_S)
            answer = json.dumps(_answer(asked, (today.date() - FIRST_DAY.date()).days)).encode()
            try:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:  # its client was killed
                return

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with _serve(Handler) as address:
        models.url = f"{address}/v1"
        yield models


def _answer(asked: Mapping[str, Any], day: int) -> dict[str, Any]:
    """Return the answer of a model: cases are right or wrong by the day, other prompts get one of four words."""
    name, prompt = asked["model"], asked["messages"][-1]["content"]
    if prompt.startswith("question "):
        rate = 0.3 if day >= WORSE_FROM.get(name, DAYS) else 0.9
        text = "yes" if random.Random(f"{SEED} {name} {day} {prompt}").random() < rate else "no"
    else:
        text = random.choice(("red", "green", "blue", "yellow"))
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    if asked.get("logprobs"):
        likely = [{"token": word, "logprob": -1.0 - at} for at, word in enumerate(("red", "green", "blue", "a", "b"))]
        choice["logprobs"] = {"content": [{**likely[0], "top_logprobs": likely}]}
    usage = {"prompt_tokens": TOKENS, "completion_tokens": 1, "total_tokens": TOKENS + 1}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": name, "choices": [choice], "usage": usage}


@contextmanager
def _serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port of this machine, and yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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

    with _serve(Handler) as address:
        receiver.url = f"{address}/alerts"
        yield receiver


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
    results_by_purpose: Counter[str] = field(default_factory=Counter)
    killed_purposes: Counter[str] = field(default_factory=Counter)
    """What was being sent at each kill: the purpose of the newest run of the day that had not ended."""
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
        self.killed_purposes = Counter[str]()
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
                self.killed_purposes.update(self._list_unfinished_purposes())

    def _list_unfinished_purposes(self) -> set[str]:
        day = FileClock(self._folder).now().date().isoformat()
        linked = [each for watch in self._watches.values() for each in self._store.watches.list_runs(watch, day)]
        return {
            each.purpose for each in linked if self._store.runs.read(each.run_id).status in ("running", "interrupted")
        }

    def end(self) -> None:
        """End the last scheduler, which is no kill."""
        self.kill()
        self.kills -= 1

    def pass_day(self, number: int, kills: Sequence[tuple[RunPurpose, float]], *, is_continued: bool) -> None:
        """Let a day pass; without `is_continued` the last kill ends the day.

        Each kill comes some seconds after a run for a purpose was begun, or after the day is over without one.
        """
        today = FIRST_DAY + timedelta(days=number)
        set_date(self._folder, today)
        self.start()
        for place, (purpose, delay_s) in enumerate(kills, 1):
            self._wait_for_run(today, purpose)
            time.sleep(delay_s)
            self.kill()
            if place == len(kills) and not is_continued:
                return
            self.start()
        self._wait(lambda: self._is_over(today), f"{today:%Y-%m-%d} is measured")
        for hours in (1, 3, 5, 7):  # attempts to deliver are repeated after minutes
            set_date(self._folder, today + timedelta(hours=hours))
            if not self._has_undelivered():
                break
            time.sleep(10 * POLL_S + 2 * RECEIVER_DELAY_S)
            self.start()  # the receiver may have killed it

    def _wait_for_run(self, today: datetime, purpose: RunPurpose) -> None:
        """Wait until a watch has begun such a run, or the day is over: a start takes longer than a day's calls."""
        day = today.date().isoformat()

        def has_begun() -> bool:
            linked = (each for watch in self._watches.values() for each in self._store.watches.list_runs(watch, day))
            return any(each.purpose == purpose for each in linked) or self._is_over(today)

        self._wait(has_begun, f"{day} begins")

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
        serve_models(folder) as models,
    ):
        watches = {name: _start_watch(store, name, models.url, receiver.url) for name in BUDGETS}
        driver = Driver(folder, store, watches, receiver, start)
        receiver.kills_left = min(2, kills)
        outcome = Outcome(days)
        try:
            for number in range(days):
                count = kill_days[number]
                # A start takes about a second, and a day's calls one to three.
                purposes = KILLED_PURPOSES if number < SEARCH_DAYS else KILLED_PURPOSES[:-1]
                moments = [(chance.choice(purposes), chance.uniform(0, MAX_KILL_DELAY_S)) for _ in range(count)]
                is_continued = not count or sorted(kill_days).index(number) % 5 != 4 or number == days - 1
                if not is_continued:
                    outcome.late_restarts.append((FIRST_DAY + timedelta(days=number)).date().isoformat())
                driver.pass_day(number, moments, is_continued=is_continued)
            for hours in range(10, 20):  # the alerts of the last day
                set_date(folder, FIRST_DAY + timedelta(days=days - 1, hours=hours))
                driver.start()
                time.sleep(10 * POLL_S + 2 * RECEIVER_DELAY_S)
        finally:
            driver.end()
        outcome.kills, outcome.kills_while_delivering = driver.kills, 2 - receiver.kills_left
        outcome.killed_purposes = driver.killed_purposes
        _check(store, watches, receiver, models, outcome)
    return outcome


def _start_watch(store: Store, name: str, models_url: str, url: str) -> Watch:
    cases = tuple(make_case(f"question {number} of {name}", ideal="yes", id=f"q{number}") for number in range(CASES))
    limits = Limits(concurrency=CONCURRENCY[name])
    model = f"{models_url}#{name}"
    store.prices.put(model, Rates(0, 1e6 * COST_USD / TOKENS, 0.0, 0.0))
    asked = RunRequest(models=(model,), cases=cases, limits=limits)
    instruments = ("pass_rate", "answers", "logprobs") if name in WITH_PROMPTS else ("pass_rate",)
    request = WatchRequest(
        run=asked, name=name, instruments=instruments, baseline_days=14, budget_usd_per_day=BUDGETS[name]
    )
    watch = store.watches.read(start_watch(store, request).id)
    channel = make_channel(store, AlertDestination(url=url), is_local=True, allow_private=True)
    store.alerts.change_channel(watch, channel)
    return store.watches.read(watch.id)


# ── The bars ──


def _check(store: Store, watches: dict[str, Watch], receiver: Receiver, models: Models, outcome: Outcome) -> None:
    outcome.calls = sum(models.calls.values())
    expected_days = [(FIRST_DAY + timedelta(days=each)).date().isoformat() for each in range(outcome.days)]
    for name, watch in watches.items():
        found = store.watches.list_days(watch)
        outcome.watch_days += len(found)
        outcome.measured_days += sum(each.status == "measured" for each in found)
        days = [each.day for each in found]
        # Where no scheduler ran after a kill, a day that had not begun is missing, and is not made up.
        if [each for each in expected_days if each in days or each not in outcome.late_restarts] != days:
            outcome.problems.append(f"{name}: other days than the {outcome.days} expected")
        linked = store.watches.list_runs(watch)
        if Counter(each.day for each in linked if each.purpose == "batch") != Counter(days):
            outcome.problems.append(f"{name}: a day with another number of runs than one")
        if any(count > 1 for count in Counter((each.day, each.purpose) for each in linked).values()):
            outcome.problems.append(f"{name}: a day with two runs of one purpose")
        if any(each.status == "measuring" for each in found):
            outcome.problems.append(f"{name}: a day that never ended")
        for day in days:
            _check_day(store, name, day, [each for each in linked if each.day == day], models, outcome)
        if name in WITH_PROMPTS:
            _check_search(store, name, linked, outcome)
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


def _check_day(store: Store, name: str, day: str, linked: Sequence[WatchRun], models: Models, outcome: Outcome) -> None:
    stored = 0
    for each in linked:
        keys = [result.key for _, result in store.results.iterate(each.run_id)]
        stored += len(keys)
        outcome.results_by_purpose[each.purpose] += len(keys)
        if len(keys) != len(set(keys)) or len(keys) > MOST_RESULTS[each.purpose]:
            outcome.problems.append(f"{name} {day}: a result of the {each.purpose} is stored twice")
    outcome.stored_results += stored
    spent = sum(store.results.sum_spending(each.run_id).cost_usd for each in linked)
    if spent > BUDGETS[name] + 1e-9:
        outcome.problems.append(f"{name} {day}: {spent:.2f} USD, more than the budget of {BUDGETS[name]} USD")
    if models.calls[name, day] < stored:
        outcome.problems.append(f"{name} {day}: results without a call")


def _check_search(store: Store, name: str, linked: Sequence[WatchRun], outcome: Outcome) -> None:
    """Check that the search of a watch ended, sent no answered call again, and decided the prompts of all days."""
    searches = [each.run_id for each in linked if each.purpose == "search"]
    keys = [result.key for each in searches for _, result in store.results.iterate(each)]
    if len(keys) != len(set(keys)) or len(keys) > SEARCH_CALLS:
        outcome.problems.append(f"{name}: a call of the search was sent again on another day")
    if not searches or store.runs.read(searches[-1]).status != "finished":
        outcome.problems.append(f"{name}: the search for border prompts did not end")
    asked = {
        frozenset(hash_case(case) for case in store.cases.iterate(store.runs.read(each.run_id)))
        for each in linked
        if each.purpose == "answers"
    }
    if len(asked) != 1:
        outcome.problems.append(f"{name}: the days sent {len(asked)} sets of border prompts")


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
    by_purpose = ", ".join(f"{count:,} of {each}" for each, count in outcome.results_by_purpose.items())
    print(f"| results stored | {outcome.stored_results:,}: {by_purpose} |")
    hit = ", ".join(f"{count} of {each}" for each, count in outcome.killed_purposes.most_common())
    print(f"| runs that a kill hit | {hit} |")
    print(f"| calls whose answer was lost by a kill, and sent again or left out | {lost} |")
    print(f"| alerts raised, accepted by the receiver | {outcome.alerts}, {outcome.deliveries} |")
    print(f"| problems | {len(outcome.problems)} |")
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    for each in outcome.problems:
        print(f"PROBLEM: {each}", file=sys.stderr)
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
