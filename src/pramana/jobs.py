"""Runs in the background of a server: what is wanted becomes a queued run, and `Jobs` carries queued runs out.

Any process of a store may queue, show or cancel a run; the one that holds its lease carries it out. `Jobs` takes runs
that were queued and runs whose server is gone, several at once, each by `bench.execute`: one that goes on and one that
begins are the same thing. It has a thread and an event loop of its own, so that an answer of the API never waits for a
run, nor a call's clock for an answer.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from msgspec.structs import replace

from pramana import settings
from pramana.analyse.estimate import Estimate
from pramana.analyse.estimate import estimate as add_up
from pramana.bench import HANDED_ON, Limits, Progress, Reach, Sources, execute, planned
from pramana.errors import InvalidInput, NotFound, PramanaError, StoreFailed, quote, told
from pramana.hash import case_digest
from pramana.load.scenario import check_scenario
from pramana.model import Case, Plan, Run, Target, Usage
from pramana.providers.names import is_called
from pramana.providers.prices import Prices
from pramana.request import Selection
from pramana.run.stages import Stage
from pramana.run.stop import Stop
from pramana.store.lease import this_process
from pramana.store.queue import CANCELLED
from pramana.store.runs import Store
from pramana.store.text import stored

log = logging.getLogger("pramana.jobs")

AT_ONCE = 4
"""Runs that one server carries out at the same time; each has its own limits at its providers."""
LOOK_S = 1.0
"""How often a server looks for runs that wait; it is told of those that are queued through itself."""
GRACE_S = 3.0
"""How long what is under way may take to end when a run is cancelled or handed on; then it is dropped, and asked again
if the run goes on."""
CLOSE_S = 8.0


# ── What is wanted ──


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run as somebody asks a server for it."""

    models: tuple[str, ...]
    suite: str | None = None
    tier: str | None = None
    scenarios: Selection | None = None
    """Which of those that are kept; an empty one means all."""
    repeats: int = 1
    variants: tuple[str, ...] | None = None
    judge: str | None = None
    embedder: str | None = None
    stt: str | None = None
    voice: str = "espeak"
    system_prompt: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    """As `Limits` calls them; whichever server carries the run out keeps them."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The cases of a server's run: a tier, scenarios of the store, or both."""

    store: Store
    tier: Sources | None
    scenarios: Selection | None
    selection: Selection = field(default_factory=Selection)

    @property
    def name(self) -> str:
        parts = [self.tier.name] if self.tier else []
        if self.scenarios is not None:
            parts.append("scenarios (selection)" if self.filters() else "scenarios")
        return "+".join(parts)

    @property
    def hash(self) -> str | None:
        return self.tier.hash if self.tier and self.scenarios is None else None

    def filters(self) -> dict[str, Any]:
        """Return the filters that were given, as plain data for the plan."""
        return self.scenarios.recorded() if self.scenarios else {}

    def cases(self) -> Iterator[Case]:
        every = self.tier.cases() if self.tier else iter(())
        return every if self.scenarios is None else chain(every, self._kept(self.scenarios))

    def _kept(self, wanted: Selection) -> Iterator[Case]:
        for some in self.store.scenarios.chunks(wanted):
            for values in some:
                scenario, problems = check_scenario(values)
                if scenario is None:
                    path, message = problems[0]
                    raise InvalidInput(f"the scenario {quote(str(values.get('id')))} is not valid: {path}: {message}")
                yield scenario.to_case()


def create(store: Store, wanted: Wanted, creator: str | None, reach: Reach) -> Run:
    """Write down the run that is wanted; the next server that has room carries it out."""
    chosen, plan = _planned(store, wanted, reach)
    cases = chosen.cases()
    first = next(cases, None)
    if first is None:
        raise InvalidInput(f"no case of {chosen.name} is wanted: {_why_none(chosen)}")
    limits = dict(wanted.limits)
    return store.create_run(plan, chain((first,), cases), owner="server", creator=creator, limits=limits)


def estimate(store: Store, wanted: Wanted, reach: Reach) -> Estimate:
    """Return what the run that is wanted would take; nothing is written down, and nobody is asked."""
    chosen, plan = _planned(store, wanted, reach)
    prices = Prices.load(settings.prices_file(), store.prices.rates())
    called = {each.typed: is_called(each) for each in (*plan.targets, *([plan.judge] if plan.judge else ()))}

    def cost(target: Target, usage: Usage) -> float | None:
        return prices.cost(target, None, usage)

    found = add_up(plan, _once(chosen.cases()), cost, lambda target: called[target.typed])
    if not found.cases:
        raise InvalidInput(f"no case of {chosen.name} is wanted: {_why_none(chosen)}")
    return found


def _planned(store: Store, wanted: Wanted, reach: Reach) -> tuple[_Chosen, Plan]:
    tier = None
    if wanted.suite is not None or wanted.tier is not None:
        tier = Sources.tier(wanted.suite or "v1.0", wanted.tier or "cheap", Selection(), store.suites)
    elif wanted.scenarios is None:
        raise InvalidInput("nothing is asked: name a suite and its tier, or scenarios")
    if wanted.scenarios and wanted.scenarios.ids:
        known = store.scenarios.which([stored(each) for each in wanted.scenarios.ids])
        unknown = [each for each in wanted.scenarios.ids if each not in known]
        if unknown:
            some = ", ".join(map(quote, unknown[:5])) + (" …" if len(unknown) > 5 else "")
            raise NotFound(f"there is no scenario {some}; see GET /api/scenarios")
    chosen = _Chosen(store, tier, wanted.scenarios)
    plan = planned(
        store,
        chosen,
        wanted.models,
        judge=wanted.judge,
        embedder=wanted.embedder,
        repeats=wanted.repeats,
        parameters=dict(wanted.parameters),
        system_prompt=wanted.system_prompt,
        variants=wanted.variants,
        stt=wanted.stt,
        voice=wanted.voice,
        reach=reach,
    )
    return chosen, replace(plan, selection=chosen.filters())


def _why_none(chosen: _Chosen) -> str:
    return "no scenario passes these filters" if chosen.filters() else "none is kept here yet; import some first"


def _once(cases: Iterator[Case]) -> Iterator[Case]:
    seen = set()
    for case in cases:
        digest = case_digest(case)
        if digest not in seen:
            seen.add(digest)
            yield case


# ── Carrying it out ──


class Jobs:
    """The runs that one server carries out."""

    def __init__(
        self, store: Store, *, at_once: int = AT_ONCE, allow_private: Callable[[], bool] = lambda: False
    ) -> None:
        self._store, self._at_once, self._allow_private = store, at_once, allow_private
        self._calls: dict[str, Mapping[Stage, int]] = {}
        self.on_call: Callable[[str], None] = lambda _: None
        """Called with a run's id when a call of it enters another stage; in the thread of the runs."""
        self._stops: dict[str, Stop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._closing = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), name="pramana-jobs", daemon=True)

    def start(self) -> None:
        """Begin to look for runs."""
        self._thread.start()

    def wake(self) -> None:
        """Look now: a run was queued. From any thread."""
        if self._loop:
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._news.set)

    def close(self) -> None:
        """Hand the runs on to the next server, and return when that is done; it takes seconds at most."""
        self._closing = True
        self.wake()
        self._thread.join(CLOSE_S)

    @property
    def under_way(self) -> list[str]:
        """The ids of the runs that this server carries out now."""
        return list(self._tasks)

    def calls(self, run_id: str) -> Mapping[Stage, int]:
        """Return how many calls of a run are at each stage; empty for a run that another process carries out."""
        return self._calls.get(run_id, {})

    def _watch(self, progress: Progress) -> None:
        run_id, now = progress.run.id, progress.calls()
        if now != self.calls(run_id):
            self._calls[run_id] = now
            self.on_call(run_id)

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not self._closing:
            await self._begin_some()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._news.wait()
            self._news.clear()
        for stop in self._stops.values():
            stop(HANDED_ON)
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _begin_some(self) -> None:
        room = self._at_once - len(self._tasks)
        try:
            waiting = await asyncio.to_thread(self._store.waiting) if room > 0 else []
            for run_id in waiting:
                if room <= 0 or self._closing:
                    return
                if run_id in self._tasks:
                    continue
                with suppress(NotFound):  # somebody has just deleted it
                    if await asyncio.to_thread(self._store.take, run_id, this_process()):
                        self._stops[run_id] = Stop()
                        self._tasks[run_id] = asyncio.create_task(self._carry_out(run_id, self._stops[run_id]))
                        room -= 1
        except StoreFailed as error:
            log.warning("cannot look for runs: %s", error)
        except Exception:  # a server that has given up would leave every run queued
            log.exception("cannot look for runs")

    async def _carry_out(self, run_id: str, stop: Stop) -> None:
        this, timers = asyncio.current_task(), []
        assert this is not None  # noqa: S101 - it is one

        def hurry() -> None:
            if stop.reason in (CANCELLED, HANDED_ON):
                timers.append(asyncio.get_running_loop().call_later(GRACE_S, this.cancel))

        stop.then(hurry)
        try:
            run = await asyncio.to_thread(self._store.pages.run, run_id)
            reach = Reach(for_others=True, allow_private=self._allow_private())
            await execute(self._store, run, Limits(**run.limits, reach=reach), self._watch, stop, taken=True)
        except asyncio.CancelledError:
            log.info("run %s was dropped: %s", run_id, stop.reason)
        except StoreFailed as error:  # when the store is back, this server or another goes on with it
            log.warning("run %s: %s", run_id, error)
        except PramanaError as error:
            self._leave(run_id, str(error))
        except Exception as error:
            log.exception("run %s ended by a defect", run_id)
            self._leave(run_id, f"this is a defect of Pramana: {told(error)}")
        finally:
            for timer in timers:
                timer.cancel()
            self._tasks.pop(run_id, None)
            self._stops.pop(run_id, None)
            self._calls.pop(run_id, None)
            self._news.set()

    def _leave(self, run_id: str, reason: str) -> None:
        """Record why a run ended that could not record it itself."""
        with suppress(PramanaError):
            holder = self._store.holder(run_id)
            if holder in (None, this_process()):
                self._store.finish(run_id, holder, "stopped", reason)
