"""Models: the models that each provider offers, and the history of one model.

A provider's list is cached for a day. A failure is not cached: it may pass in a minute, or a key may be set. The
command line and the server share this module.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from pramana import clock, settings
from pramana.analyse.intervals import bound_percentile, percentile
from pramana.analyse.judges import choose_lowest_calibration
from pramana.analyse.mean_bounds import rate_interval
from pramana.analyse.summary import Rate
from pramana.analyse.voice import name_speech_recognition
from pramana.app import App, User, use_case
from pramana.app.providers import make_server_reach
from pramana.app.views import OutcomesView, View
from pramana.errors import InvalidInput, NotFound, PramanaError, escape_control_characters, quote_text, suggest_similar
from pramana.jsonl import to_canonical_json
from pramana.model import Outcome, Plan, Run, RunStatus, Target
from pramana.run.accounts import ProviderAccess, make_accounts
from pramana.store.history import ModelVariantMeasurements

DAY_S = 24 * 3600
LIST_MODELS_TIMEOUT_S = 20.0
MAX_CONCURRENT_PROVIDERS = 8


class OfferView(View, frozen=True, kw_only=True):
    """The models that a provider offers."""

    provider: str
    models: tuple[str, ...]
    problem: Annotated[str | None, Meta(description="Why the list of models could not be read")]


class LatencyView(View, frozen=True, kw_only=True):
    """Latency of typed replies that did not come from the cache, in milliseconds."""

    count: int
    median: float | None
    p95: float | None
    p95_at_most: Annotated[
        float | None, Meta(description="What p95 is at most, at 95 % confidence; null for fewer than 59 cases")
    ]


class RateView(OutcomesView, frozen=True, kw_only=True):
    """Outcomes of results. The pass rate counts only those with a verdict; errors are counted separately."""

    pass_rate: float | None
    interval: Annotated[
        tuple[float, float] | None,
        Meta(description="95 % interval of the pass rate, with cases as the units"),
    ]
    n: Annotated[int, Meta(description="Results with a verdict")]
    cases: Annotated[int, Meta(description="Number of different cases")]
    latency_ms: LatencyView
    calibration: Annotated[
        str | None,
        Meta(
            description="How far the judges of the verdicts agree with people: `judge agrees 92 %` (of several, the "
            "least) or `uncalibrated`; null if no model judged"
        ),
    ]


class RunPointView(RateView, frozen=True, kw_only=True):
    """A model in one run, with one setup."""

    run: str
    created_at: str
    status: RunStatus
    suite: str
    suite_hash: str | None
    cases_digest: Annotated[
        str | None, Meta(description="Digest of all cases of the run; equal if two runs have the same cases")
    ]
    variant: str
    setup_digest: Annotated[
        str,
        Meta(
            description="Digest of the other settings that must be equal within a trend: judge, embedder, system "
            "prompt and parameters; for calls also the caller's voice and the speech recognition"
        ),
    ]


class DayPointView(RateView, frozen=True, kw_only=True):
    """A model on one day, with one setup: its runs pooled."""

    day: str
    variant: str
    runs: int
    complete: Annotated[bool, Meta(description="False if some runs of that day are missing")]


class HistoryView(View, frozen=True, kw_only=True):
    """A model over time, oldest first."""

    model: str
    runs: tuple[RunPointView, ...]
    days: tuple[DayPointView, ...]


class HistoryRequest(Struct, frozen=True, kw_only=True):
    """The model, as it was typed, and how many of its newest runs to include."""

    model: Annotated[str, Meta(min_length=1, max_length=2_000)]
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class History(NamedTuple):
    """A model over time, and the total number of its runs."""

    history: HistoryView
    total_run_count: int
    shown_run_count: int


@use_case("viewer", "network")
def list_models(app: App, _: User, *, refresh: bool = False) -> list[OfferView]:
    """Return the models of each registered or configured provider; a provider's list is cached for a day."""
    return list_offered_models(
        make_server_reach(app), [each.id for each in app.store.providers.list()], refresh=refresh
    )


@use_case("viewer", "heavy")
def read_model_history(app: App, _: User, wanted: HistoryRequest) -> History:
    """Return pass rate and latency of a model, per run and per day; tests of two endpoints have none to compare."""
    past, model = app.store.history, wanted.model
    newest, total = app.store.runs.read_page(model=model, limit=wanted.limit)
    runs = [each for each in reversed(newest) if each.plan.pairing is None]
    measured = past.measure_model(runs, model)
    marks = app.judge_marks.describe(runs, past.count_run_outcomes(runs))
    points = tuple(
        RunPointView(
            run=run.id,
            created_at=run.created,
            status=run.status,
            suite=run.plan.suite,
            suite_hash=run.plan.suite_hash,
            cases_digest=digest,
            variant=variant,
            setup_digest=_hash_setup(run.plan, model, variant, judged_again),
            calibration=mark,
            **_rate_fields([found], past.count_distinct_cases([run.id])),
        )
        for run, digest, judged_again, by_variant, mark in zip(
            runs, past.hash_cases(runs), past.list_rescoring_labels(runs), measured, marks, strict=True
        )
        for variant, found in by_variant.items()
    )
    cut_off = newest[-1].created[:10] if total > len(newest) else None
    mark_by_run = {run.id: mark for run, mark in zip(runs, marks, strict=True)}
    days = tuple(
        DayPointView(
            day=day,
            variant=variant,
            runs=len(some),
            complete=day != cut_off,
            calibration=choose_lowest_calibration(mark_by_run[run.id] for run, _ in some),
            **_rate_fields([found for _, found in some], past.count_distinct_cases(run.id for run, _ in some)),
        )
        for (day, variant), some in _group_by_day(runs, measured).items()
    )
    return History(HistoryView(model=model, runs=points, days=days), total, len(newest))


def _hash_setup(plan: Plan, model: str, variant: str, rescoring_labels: Sequence[str]) -> str:
    """Return 16 hex digits of the setup: all that two points must share, besides cases and variant, to be comparable.

    The model itself is excluded: the history shows whether it has changed.
    """
    own = next((each for each in plan.targets if each.typed == model), None)
    said: dict[str, Any] = {
        "judge": _identify_target(plan.judge or own),
        **({"other_judges": [_identify_target(each) for each in plan.other_judges]} if plan.other_judges else {}),
        "judged_again": rescoring_labels,
        "embedder": _identify_target(plan.embedder),
        "system_prompt": plan.system_prompt or "",
        "parameters": {
            name: _normalise_parameter(value) for name, value in plan.parameters.items() if value is not None
        },
    }
    if variant != "text":
        said |= {"voice": plan.voice, "heard_by": name_speech_recognition(plan)}
    if plan.scorers:
        said["scorers"] = sorted([each.name, each.version] for each in plan.scorers)
    return hashlib.sha256(to_canonical_json(said)).hexdigest()[:16]


def _identify_target(target: Target | None) -> str | None:
    """Return one name for a target, however it was typed; a target with arguments keeps the name as typed."""
    if target is None:
        return None
    return target.typed if target.arguments else f"{target.provider}:{target.model}"


def _normalise_parameter(value: Any) -> Any:
    """Return a parameter in a form that compares equal for equal values: 0.0 becomes 0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _group_by_day(
    runs: Sequence[Run], measurements_by_variant: Sequence[Mapping[str, ModelVariantMeasurements]]
) -> dict[tuple[str, str], list[tuple[Run, ModelVariantMeasurements]]]:
    days: dict[tuple[str, str], list[tuple[Run, ModelVariantMeasurements]]] = {}
    for run, by_variant in zip(runs, measurements_by_variant, strict=True):
        for variant, found in by_variant.items():
            days.setdefault((run.created[:10], variant), []).append((run, found))
    return days


def _rate_fields(run_measurements: Sequence[ModelVariantMeasurements], case_count: int) -> dict[str, Any]:
    """Return the fields of a `RateView`."""
    counts = {
        outcome.value: sum(each.outcome_counts.get(outcome, 0) for each in run_measurements) for outcome in Outcome
    }
    whole = Rate(**counts)
    # Several results of one case, repeats or other runs, are not several cases: they must not narrow the interval.
    a_case = max(1.0, whole.total / case_count) if case_count else 1.0
    interval = rate_interval(whole.passed / a_case, whole.scored_count / a_case) if whole.scored_count else None
    # Each list is sorted, and sorting a concatenation of sorted lists is faster than merging them.
    times = (
        run_measurements[0].reply_durations_s
        if len(run_measurements) == 1
        else sorted(chain.from_iterable(each.reply_durations_s for each in run_measurements))
    )
    median, p95 = percentile(times, 0.5), percentile(times, 0.95)
    bound = bound_percentile(times, len(times) / a_case, 0.95)
    return {
        **counts,
        "pass_rate": whole.value,
        "interval": (interval.low, interval.high) if interval else None,
        "n": whole.scored_count,
        "cases": case_count,
        "latency_ms": LatencyView(
            count=len(times),
            median=_to_milliseconds(median),
            p95=_to_milliseconds(p95),
            p95_at_most=_to_milliseconds(bound),
        ),
    }


def _to_milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


# ── Models of providers ──


class _OfferedModels(Struct, frozen=True):
    """The models that a provider listed, and when."""

    at: float
    models: tuple[str, ...]


_OfferCache = dict[str, _OfferedModels]
"""By provider and base URL."""


def list_offered_models(
    reach: ProviderAccess, registered_providers: Iterable[str], *, refresh: bool, only_providers: Sequence[str] = ()
) -> list[OfferView]:
    """Return the models of each configured provider, those registered in the store first.

    `only_providers` names providers, configured or not, or URLs of servers: `openai`, `http://localhost:8000/v1`.
    """
    registered_providers = list(registered_providers)
    named = [_parse_provider_name(each, registered_providers) for each in only_providers]
    path = settings.data_folder() / "cache" / "models.json"
    try:
        said = msgspec.json.decode(path.read_bytes(), type=_OfferCache)
    except (OSError, msgspec.MsgspecError, RecursionError):
        said = {}  # only a cache: unreadable content is dropped
    said = {where: each for where, each in said.items() if 0 <= clock.timestamp() - each.at < DAY_S}
    found, heard = asyncio.run(_list_all_models(reach, registered_providers, named, {} if refresh else said))
    kept = {where: each for where, each in said.items() if where not in heard}
    kept |= {where: each for where, each in heard.items() if each is not None}
    if kept != said:
        with suppress(OSError):  # if the folder is not writable, the providers are asked again next time
            settings.write_private_file(path, json.dumps(msgspec.to_builtins(kept)))
    return found


def _parse_provider_name(typed: str, registered_providers: Sequence[str]) -> str:
    """Return the provider or URL that a user typed, with or without a model; refuse anything else."""
    from pramana.providers.kinds import providers
    from pramana.providers.names import MIN_SUGGESTION_SIMILARITY

    if "://" in typed:
        return typed.partition("#")[0].rstrip("/")
    name = typed.partition(":")[0]
    if name not in registered_providers and name not in providers:
        near = suggest_similar(name, ["pull", *registered_providers, *providers.names()], MIN_SUGGESTION_SIMILARITY)
        raise NotFound(
            f"unknown provider {quote_text(name)}{near}; name a server by its address, http://HOST:PORT/v1, or a "
            "provider that is configured: pramana models"
        )
    return name


async def _list_all_models(
    reach: ProviderAccess,
    registered_providers: list[str],
    provider_names: list[str],
    cached: Mapping[str, _OfferedModels],
) -> tuple[list[OfferView], dict[str, _OfferedModels | None]]:
    """Return the offers, and the fresh responses by provider and base URL; None for one that failed."""
    from pramana.providers.kinds import KINDS_WITHOUT_ACCOUNT, VOICE_AGENT_KINDS_WITH_ACCOUNT, providers
    from pramana.providers.names import open_provider, resolve_target

    accounts = make_accounts(reach, LIST_MODELS_TIMEOUT_S)
    heard: dict[str, _OfferedModels | None] = {}
    places = asyncio.Semaphore(MAX_CONCURRENT_PROVIDERS)

    async def list_models_of(name: str) -> Iterable[str]:
        where = name
        theirs = (
            reach.find_registered_provider(name)
            if reach.find_registered_provider and name in registered_providers
            else None
        )
        if theirs and theirs.kind in VOICE_AGENT_KINDS_WITH_ACCOUNT:  # their models are not listed
            return [theirs.model] if theirs.model else []
        if theirs:
            model = "" if theirs.model or theirs.kind in KINDS_WITHOUT_ACCOUNT else ":any"
            typed = f"{name}{model}" if name != theirs.kind else f"{name}:any"
            target = resolve_target(typed, find_registered_provider=reach.find_registered_provider)
        elif "://" in name:
            target = resolve_target(f"{name}#any")
        elif name == "command":  # a file lists them: no request is needed
            return sorted(accounts.commands)
        elif name in VOICE_AGENT_KINDS_WITH_ACCOUNT or name == "python":
            raise InvalidInput(f"{name} does not list its models; see the documentation of {name}")
        else:
            target = Target(name, name, "local" if name == "local" else "any")
        if account := accounts.find_account(target):
            where = f"{name} {account.base_url}"
        if known := cached.get(where):
            return known.models
        heard[where] = None
        async with places:
            provider = open_provider(target, accounts)
            try:
                found = _OfferedModels(clock.timestamp(), tuple(sorted(map(str, await provider.models()))))
            finally:
                await provider.close()
        heard[where] = found
        return found.models

    async def list_provider_models(name: str) -> OfferView:
        models: Iterable[str] = ()
        problem = None
        try:
            models = await list_models_of(name)
        except PramanaError as error:
            problem = escape_control_characters(str(error))
        except Exception as error:  # noqa: BLE001 - a plugin's provider may raise anything
            problem = escape_control_characters(f"the provider failed: {type(error).__name__}: {error}")
        return OfferView(provider=name, models=tuple(models), problem=problem)

    own = [
        name for name in accounts.list_configured() if not (reach.is_for_other_users and name not in providers.builtin)
    ]
    own += ["command"] if accounts.commands else []
    return list(
        await asyncio.gather(*map(list_provider_models, dict.fromkeys(provider_names or [*registered_providers, *own])))
    ), heard
