"""Watches with measured days, as tests of pages and reports need them: real days of a function, on a virtual clock."""

import asyncio
import random
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from pramana import clock
from pramana.app.watches import start_watch
from pramana.load.rows import make_case
from pramana.providers.accounts import PassedFunctions
from pramana.request import RunRequest
from pramana.run.accounts import ProviderAccess
from pramana.store.store import Store
from pramana.store.watches import Watch
from pramana.watch_request import WatchRequest
from pramana.watching import measure_day

CATEGORIES = ("factual", "safety")


class DayClock(clock.Clock):
    """A clock whose date is set; durations are real."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


def add_watch(
    store: Store,
    days: int,
    *,
    changes_after: int | None = None,
    missing: Collection[int] = (),
    cases: int = 12,
    last_day: datetime | None = None,
    name: str = "support-bot",
) -> Watch:
    """Store a watch with so many days up to today, on which the model answers worse and longer after a change."""
    rng, day_number = random.Random(7), 0

    def reply(prompt: str) -> str:
        is_changed = changes_after is not None and day_number >= changes_after
        answer = "yes" if rng.random() < (0.3 if is_changed else 0.95) else "no"
        return f"The answer is {answer}, as {prompt}" + (" shows, at great length indeed." if is_changed else ".")

    functions: dict[str, Callable[[str], str]] = {f"team:{name}": reply}
    reach = ProviderAccess(passed_functions=PassedFunctions(functions))
    made = tuple(
        make_case(f"Question {number}?", ideal="yes", id=f"q{number}", category=CATEGORIES[number % 2])
        for number in range(cases)
    )
    last = last_day or datetime.now(UTC).replace(hour=0, minute=1)
    virtual = DayClock(last - timedelta(days=days - 1))
    with clock.use_clock(virtual), ThreadPoolExecutor(1) as threads:
        run = RunRequest(models=(f"python:team:{name}",), cases=made, temperature=0.0)
        started = start_watch(store, WatchRequest(run=run, baseline_days=14, name=name), reach)
        watch = store.watches.read(started.id)
        for number in range(days):
            day_number = number
            virtual.moment = last - timedelta(days=days - 1 - number)
            if number not in missing:
                # In a thread: an event loop may be running here, as Playwright's does.
                threads.submit(lambda: asyncio.run(measure_day(store, watch, reach=reach))).result()
    return watch
