"""`pramana.watch` and `pramana.watches`: a model observed over days, for Python. Thin over the use cases of watches.

A `Watch` has the state, the days and the alerts as they were when it was read; `check`, `accept` and `stop` read it
again. Its days are measured by whatever process shares the store: `check` here, `pramana drift serve`, or a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, Self, Unpack

from msgspec.structs import replace

from pramana.app.watch_reports import report_watch
from pramana.app.watches import read_watch, start_watch
from pramana.errors import InvalidInput, describe_value
from pramana.library import make_request_from_arguments, reword_errors_for_python
from pramana.library.options import Cases, Judge, Model, RunOptions
from pramana.library.report import current_database_url
from pramana.library.threads import get_functions_loop
from pramana.providers.accounts import PassedFunctions
from pramana.report.watches import render_report
from pramana.run.accounts import ProviderAccess
from pramana.run.engine import INTERRUPTED_BY_USER_REASON, Stop
from pramana.store import open_store
from pramana.watch_request import BASELINE_DAYS, AlertDestination, WatchRequest
from pramana.watching import measure_day

if TYPE_CHECKING:
    from pramana.analyse.watch import Level
    from pramana.app.watches import InstrumentView, WatchAlertView, WatchDayView, WatchDetailView
    from pramana.score.scorers import Scorer


class Watch:
    """A watch, as `pramana.watch` and `pramana.watches` return it.

    `str()` returns the report of the watch as it is stored now; after an alarm, with what changed and what did not.
    """

    def __init__(
        self,
        view: WatchDetailView,
        store_url: str,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        scorers: Mapping[str, Scorer] | None = None,
    ) -> None:
        self._view, self._store_url = view, store_url
        self._functions, self._scorers = dict(functions or {}), dict(scorers or {})

    @property
    def id(self) -> str:
        """The id of the watch."""
        return self._view.id

    @property
    def name(self) -> str | None:
        """The name that its user gave it."""
        return self._view.name

    @property
    def model(self) -> str:
        """The model that is watched."""
        return self._view.model

    @property
    def state(self) -> Level:
        """`collecting`, `cannot_tell`, `quiet`, `notice` or `alarm`."""
        return self._view.level

    @property
    def sentence(self) -> str:
        """The state in a sentence."""
        return self._view.sentence

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may keep the days from counting, as known when the watch was started."""
        return self._view.warnings

    @property
    def is_active(self) -> bool:
        """Whether its days are still measured."""
        return self._view.is_active

    @property
    def days(self) -> tuple[WatchDayView, ...]:
        """The days of the watch, oldest first: each is measured, missing, or still being measured."""
        return self._view.days

    @property
    def instruments(self) -> tuple[InstrumentView, ...]:
        """What each instrument says, with its series and its baseline."""
        return self._view.findings

    @property
    def alerts(self) -> tuple[WatchAlertView, ...]:
        """The notices and alarms, oldest first, and whether they were delivered."""
        return self._view.alerts

    @reword_errors_for_python
    def check(self) -> Self:
        """Measure today's batch now, or continue it; a day that was measured stays as it is. Blocks until it is done.

        After Ctrl-C, stored replies are kept, and the next `check` of the same day continues.
        """
        __tracebackhide__ = True
        stop = Stop()
        with closing(open_store(self._store_url)) as store, ThreadPoolExecutor(1, "pramana-watch") as pool:
            watch = store.watches.read(self.id)
            passed = PassedFunctions(self._functions, self._scorers, get_functions_loop())
            reach = ProviderAccess(passed_functions=passed)
            measured = pool.submit(lambda: asyncio.run(measure_day(store, watch, stop=stop, reach=reach)))
            try:
                error = measured.result().error
            except KeyboardInterrupt:
                stop(INTERRUPTED_BY_USER_REASON)
                raise
            self._view = read_watch(store, watch)
            if error is not None:
                raise error
        return self

    @reword_errors_for_python
    def accept(self, note: str | None = None) -> Self:
        """Accept the model as it is now: a new baseline begins with the next day."""
        with closing(open_store(self._store_url)) as store:
            watch = store.watches.read(self.id)
            store.watches.accept(watch, note)
            self._view = read_watch(store, watch)
        return self

    @reword_errors_for_python
    def stop(self) -> Self:
        """Stop the watch; its days and runs are kept."""
        with closing(open_store(self._store_url)) as store:
            self._view = read_watch(store, store.watches.stop(store.watches.read(self.id)))
        return self

    def __repr__(self) -> str:
        return f"<Watch {self.id} of {self.model}: {self.state}, {self._view.measured_days} days>"

    def __str__(self) -> str:
        with closing(open_store(self._store_url)) as store:
            return render_report(report_watch(store, store.watches.read(self.id)))


@reword_errors_for_python
def watch(
    model: Model,
    cases: Cases = None,
    *,
    budget_usd_per_day: float | None = None,
    at: str | None = None,
    baseline_days: int = BASELINE_DAYS,
    instruments: Sequence[str] | None = None,
    webhook: str | None = None,
    webhook_secret: str | None = None,
    judge: Judge | None = None,
    repeat: int = 1,
    **options: Unpack[RunOptions],
) -> Watch:
    """Start to watch a model: the same cases once a day, compared with a baseline of days. Nothing is sent yet.

    `Watch.check` measures a day, and so does `pramana drift serve` once a day, from the time `at` (UTC) on. The options
    are those of `evaluate`, except its limits on cost and tokens: a watch has `budget_usd_per_day`. `webhook` is a URL,
    stored encrypted, to which notices and alarms are sent, signed with `webhook_secret`.

    >>> bot = watch(str.lower, {"input": "Say hello.", "ideal": "hello"}, name="bot")
    >>> bot.check().state, len(bot.days)
    ('collecting', 1)
    """
    __tracebackhide__ = True
    if limits := sorted({"max_cost_usd", "max_total_tokens", "deadline_s", "cache"} & options.keys()):
        raise InvalidInput(f"watch has no option {limits[0]}; it has budget_usd_per_day, and always asks the model")
    if isinstance(instruments, str) or not isinstance(instruments, Sequence | None):
        raise InvalidInput(f"instruments is a list such as ['pass-rate'], found {describe_value(instruments)}")
    if webhook is None and webhook_secret is not None:
        raise InvalidInput("webhook_secret signs what is sent to a webhook; pass webhook, too")
    name, note = options.pop("name", None), options.pop("note", None)
    stated = make_request_from_arguments(cases, model, (), judge, repeat, options)
    request = WatchRequest(
        run=replace(stated.request, cache=False),
        budget_usd_per_day=budget_usd_per_day,
        at=at,
        baseline_days=baseline_days,
        instruments=None if instruments is None else tuple(instruments),
        delivery=None if webhook is None else AlertDestination(url=webhook, secret=webhook_secret),
        name=name,
        note=note,
    )
    url = current_database_url()
    reach = ProviderAccess(passed_functions=PassedFunctions(stated.functions, stated.scorers))
    with closing(open_store(url)) as store:
        return Watch(start_watch(store, request, reach), url, stated.functions, stated.scorers)


@reword_errors_for_python
def watches(*, active: bool = False) -> list[Watch]:
    """Return the watches in the store, newest first; `active=True` leaves out stopped ones.

    >>> [each.name for each in watches() if each.name == "no such watch"]
    []
    """
    url = current_database_url()
    with closing(open_store(url)) as store:
        ids = [each.id for each in store.watches.list_all(active_only=active)]
        return [Watch(read_watch(store, store.watches.read(each)), url) for each in ids]
