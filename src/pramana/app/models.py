"""Models: which can be asked now, and how one did over time."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from pramana.analyse.intervals import percentile, wilson
from pramana.analyse.summary import Rate
from pramana.analyse.voice import ear
from pramana.app import App
from pramana.app.access import User, use_case
from pramana.app.offers import OfferView, offers
from pramana.app.providers import reach_of
from pramana.app.views import View
from pramana.jsonl import canonical
from pramana.model import Outcome, Plan, Run, RunStatus, Target
from pramana.store.history import Measured


class LatencyView(View, frozen=True, kw_only=True):
    """How long written replies took that came from no cache, in milliseconds."""

    count: int
    median: float | None
    p95: float | None


class RateView(View, frozen=True, kw_only=True):
    """How results ended. The pass rate is of those with a verdict; errors are kept apart."""

    passed: int
    failed: int
    errored: int
    unscored: int
    skipped: int
    pass_rate: float | None
    interval: Annotated[tuple[float, float] | None, Meta(description="Wilson's 95 % interval, with cases as the units")]
    n: Annotated[int, Meta(description="Results with a verdict")]
    cases: Annotated[int, Meta(description="Different cases that were asked")]
    latency_ms: LatencyView


class RunPointView(RateView, frozen=True, kw_only=True):
    """A model in one run, asked in one way."""

    run: str
    created_at: str
    status: RunStatus
    suite: str
    suite_hash: str | None
    cases_digest: Annotated[
        str | None, Meta(description="Of all cases of the run: points with the same were asked the same")
    ]
    variant: str
    setup_digest: Annotated[
        str,
        Meta(
            description="Of what else must be the same for a trend: the judge, the embedder, the system prompt, the "
            "parameters; of what is spoken, the caller's voice and the speech recognition too"
        ),
    ]


class DayPointView(RateView, frozen=True, kw_only=True):
    """A model on one day, asked in one way: its runs taken together."""

    day: str
    variant: str
    runs: int
    complete: Annotated[bool, Meta(description="False where more runs of that day were left out")]


class HistoryView(View, frozen=True, kw_only=True):
    """A model over time, oldest first."""

    model: str
    runs: tuple[RunPointView, ...]
    days: tuple[DayPointView, ...]


class HistoryRequest(Struct, frozen=True, kw_only=True):
    """Which model, as it was typed, in how many of its newest runs."""

    model: Annotated[str, Meta(min_length=1, max_length=2_000)]
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class History(NamedTuple):
    """A model over time, and in how many runs it was asked in all."""

    history: HistoryView
    total: int
    shown: int


@use_case("viewer")
async def list_models(app: App, _: User, *, refresh: bool = False) -> list[OfferView]:
    """Return what each provider offers that is registered or set up; what one has said is believed for a day."""

    def work() -> list[OfferView]:
        return offers(reach_of(app), [each.id for each in app.store.providers.list()], refresh=refresh)

    return await app.outside(work)


@use_case("viewer")
async def model_history(app: App, _: User, wanted: HistoryRequest) -> History:
    """Return pass rate and latency of a model, a run and a day."""
    return await app.heavy(lambda: _history(app, wanted))


def _history(app: App, wanted: HistoryRequest) -> History:
    past, model = app.store.history, wanted.model
    runs, total = app.store.runs.page(model=model, limit=wanted.limit)
    runs.reverse()
    measured = past.measured(runs, model)
    points = tuple(
        RunPointView(
            run=run.id,
            created_at=run.created,
            status=run.status,
            suite=run.plan.suite,
            suite_hash=run.plan.suite_hash,
            cases_digest=digest,
            variant=variant,
            setup_digest=_setup_digest(run.plan, model, variant, judged_again),
            **_rate([found], past.distinct_cases([run.id])),
        )
        for run, digest, judged_again, by_variant in zip(
            runs, past.cases_digests(runs), past.judged_again(runs), measured, strict=True
        )
        for variant, found in by_variant.items()
    )
    cut_off = runs[0].created[:10] if runs and total > len(runs) else None
    days = tuple(
        DayPointView(
            day=day,
            variant=variant,
            runs=len(some),
            complete=day != cut_off,
            **_rate([found for _, found in some], past.distinct_cases(run.id for run, _ in some)),
        )
        for (day, variant), some in _by_day(runs, measured).items()
    )
    return History(HistoryView(model=model, runs=points, days=days), total, len(runs))


def _setup_digest(plan: Plan, model: str, variant: str, judged_again: Sequence[str]) -> str:
    """Return 16 hex digits of what, beside cases and variant, makes two points a measure of each other.

    The model itself is no part of it: whether that has changed is the question.
    """
    own = next((each for each in plan.targets if each.typed == model), None)
    said: dict[str, Any] = {
        "judge": _called(plan.judge or own),
        "judged_again": judged_again,
        "embedder": _called(plan.embedder),
        "system_prompt": plan.system_prompt or "",
        "parameters": {name: _plain(value) for name, value in plan.parameters.items() if value is not None},
    }
    if variant != "text":
        said |= {"voice": plan.voice, "heard_by": ear(plan)}
    return hashlib.sha256(canonical(said)).hexdigest()[:16]


def _called(target: Target | None) -> str | None:
    """Return one name for who is asked, however it was typed; who has arguments goes by what was typed."""
    if target is None:
        return None
    return target.typed if target.arguments else f"{target.provider}:{target.model}"


def _plain(value: Any) -> Any:
    """Return a parameter as it is told apart: 0.0 is 0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _by_day(
    runs: Sequence[Run], measured: Sequence[Mapping[str, Measured]]
) -> dict[tuple[str, str], list[tuple[Run, Measured]]]:
    days: dict[tuple[str, str], list[tuple[Run, Measured]]] = {}
    for run, by_variant in zip(runs, measured, strict=True):
        for variant, found in by_variant.items():
            days.setdefault((run.created[:10], variant), []).append((run, found))
    return days


def _rate(some: Sequence[Measured], cases: int) -> dict[str, Any]:
    """Return the fields of a `RateView`."""
    counts = {outcome.value: sum(each.outcomes.get(outcome, 0) for each in some) for outcome in Outcome}
    whole = Rate(**counts)
    # Several results of one case are not several cases: they narrow no interval, be they repeats or other runs.
    a_case = max(1.0, whole.total / cases) if cases else 1.0
    interval = wilson(whole.passed / a_case, whole.scored / a_case) if whole.scored else None
    # Each is in order, and of what consists of ordered pieces sorting makes use: it is faster than merging them.
    times = some[0].times_s if len(some) == 1 else sorted(chain.from_iterable(each.times_s for each in some))
    median, p95 = percentile(times, 0.5), percentile(times, 0.95)
    return {
        **counts,
        "pass_rate": whole.value,
        "interval": (interval.low, interval.high) if interval else None,
        "n": whole.scored,
        "cases": cases,
        "latency_ms": LatencyView(count=len(times), median=_ms(median), p95=_ms(p95)),
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
