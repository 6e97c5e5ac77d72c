"""`/api/models`: what can be asked now, and how a model did over time."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from pramana.analyse.intervals import percentile, wilson
from pramana.analyse.summary import Rate
from pramana.app import App
from pramana.errors import visible
from pramana.jsonl import canonical
from pramana.model import Outcome, Plan, Run, Target
from pramana.report import figures
from pramana.show.api.envelope import Shape, answer, documented
from pramana.show.api.providers import reach_of
from pramana.show.api.serving import Here, Viewer
from pramana.show.offers import Offers, offers
from pramana.store.history import Measured

router = APIRouter(tags=["models"])


class OfferShape(Shape):
    """What a provider offers."""

    provider: str
    models: list[str]
    problem: str | None = Field(description="Why it could not be asked")


class LatencyShape(Shape):
    """How long written replies took that came from no cache, in milliseconds."""

    count: int
    median: float | None
    p95: float | None


class RateShape(Shape):
    """How results ended. The pass rate is of those with a verdict; errors are kept apart."""

    passed: int
    failed: int
    errored: int
    unscored: int
    skipped: int
    pass_rate: float | None
    interval: list[float] | None = Field(description="Wilson's 95 % interval, with cases as the units")
    n: int = Field(description="Results with a verdict")
    cases: int = Field(description="Different cases that were asked")
    latency_ms: LatencyShape


class RunPoint(RateShape):
    """A model in one run, asked in one way."""

    run: str
    created_at: str
    status: str
    suite: str
    suite_hash: str | None
    cases_digest: str | None = Field(description="Of all cases of the run: points with the same were asked the same")
    variant: str
    setup_digest: str = Field(
        description="Of what else must be the same for a trend: the judge, the embedder, the system prompt, the "
        "parameters; of what is spoken, the caller's voice and the speech recognition too"
    )


class DayPoint(RateShape):
    """A model on one day, asked in one way: its runs taken together."""

    day: str
    variant: str
    runs: int
    complete: bool = Field(description="False where more runs of that day were left out")


class HistoryShape(Shape):
    """A model over time, oldest first."""

    model: str
    runs: list[RunPoint]
    days: list[DayPoint]


@router.get("/api/models", summary="List models", **documented(list[OfferShape]))
async def list_models(here: Here, _: Viewer, *, refresh: bool = False) -> Response:
    """Return what each provider offers that is registered or set up; what one has said is believed for a day."""

    def work() -> Offers:
        registered = [each.id for each in here.store.providers.list()]
        return offers(reach_of(here), registered, refresh=refresh)

    found = await here.outside(work)
    return answer(
        [
            {"provider": name, "models": offer["models"], "problem": offer["problem"] and visible(offer["problem"])}
            for name, offer in found.items()
        ]
    )


@router.get("/api/models/history", summary="A model over time", **documented(HistoryShape))
async def model_history(
    here: Here,
    _: Viewer,
    model: Annotated[str, Query(min_length=1, max_length=2_000, description="As it was typed")],
    limit: Annotated[int, Query(ge=1, le=500, description="Of runs, the newest")] = 100,
) -> Response:
    """Return pass rate and latency of a model, a run and a day."""
    return await here.heavy(lambda: _history(here, model, limit))


def _history(here: App, model: str, limit: int) -> Response:
    runs, total = here.store.pages.runs(model=model, limit=limit)
    runs.reverse()
    measured = here.store.history.measured(runs, model)
    digests, again = here.store.history.cases_digests(runs), here.store.history.judged_again(runs)
    points = [
        {
            "run": run.id,
            "createdAt": run.created,
            "status": run.status,
            "suite": run.plan.suite,
            "suiteHash": run.plan.suite_hash,
            "casesDigest": digest,
            "variant": variant,
            "setupDigest": _setup_digest(run.plan, model, variant, judged_again),
            **_rate([found], here.store.history.distinct_cases([run.id])),
        }
        for run, digest, judged_again, by_variant in zip(runs, digests, again, measured, strict=True)
        for variant, found in by_variant.items()
    ]
    cut_off = runs[0].created[:10] if runs and total > len(runs) else None
    days = [
        {
            "day": day,
            "variant": variant,
            "runs": len(some),
            "complete": day != cut_off,
            **_rate([found for _, found in some], here.store.history.distinct_cases(run.id for run, _ in some)),
        }
        for (day, variant), some in _by_day(runs, measured).items()
    ]
    return answer({"model": model, "runs": points, "days": days}, {"total": total, "shown": len(runs)})


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
        said |= {"voice": plan.voice, "heard_by": figures.ear(plan)}
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
        "passRate": whole.value,
        "interval": [interval.low, interval.high] if interval else None,
        "n": whole.scored,
        "cases": cases,
        "latencyMs": {"count": len(times), "median": _ms(median), "p95": _ms(p95)},
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
