"""Runs and results as the API writes them: shapes for the documentation, and the functions that fill them.

Names are in camelCase; what was measured or sent as it is (evidence, parameters, raw responses) keeps its own.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from pramana.analyse.estimate import Estimate
from pramana.analyse.summary import Rate, Summary, why
from pramana.model import Assertion, Case, Outcome, Result, Run, RunStatus, Target
from pramana.show.api.envelope import Shape, camel
from pramana.store.history import Ended


class OutcomesShape(Shape):
    """How many results ended how."""

    passed: int
    failed: int
    errored: int
    unscored: int
    skipped: int


class RunShape(Shape):
    """A run in a list."""

    id: str
    status: RunStatus
    suite: str
    suite_hash: str | None
    cases_digest: str | None = Field(
        description="Of all its cases: runs that ask the same ones have the same, whatever the model, the suite or the "
        "order; in a list with `outcomes=true` and of a run that is read, otherwise null"
    )
    selection: dict[str, Any] = Field(description="Filters, in the words of `scenarios` where a run is asked for")
    models: list[str]
    variants: list[str]
    repeats: int
    judge: str | None = Field(description="Who was to judge; null: each model itself")
    created_at: str
    finished_at: str | None
    expected: int
    stored: int
    progress: float
    reason: str | None
    owner: Literal["cli", "server"]
    creator: str | None
    cancel_requested: bool
    outcomes: OutcomesShape | None = Field(
        description="In a list with `outcomes=true` and of a run that is read, otherwise null"
    )
    pass_rate: float | None = Field(description="Of the results with a verdict; null without any")
    interval: list[float] | None = Field(description="Wilson's 95 % interval of it, with cases as the units")


class TargetShape(Shape):
    """A model as it was typed and as it is reached."""

    typed: str
    provider: str
    model: str


class PlanShape(Shape):
    """What a run does."""

    targets: list[TargetShape]
    parameters: dict[str, Any]
    system_prompt: str | None
    judge: TargetShape | None
    embedder: TargetShape | None
    stt: TargetShape | None
    voice: str
    runner_version: str


class RunDetailShape(RunShape):
    """All of a run but its results."""

    plan: PlanShape
    judges: list[str] | None = Field(description="Who gave the verdicts as they stand; null without the summary")
    limits: dict[str, Any]
    holder: str | None = Field(description="The process that carries it out now")
    attempts: int
    notes: dict[str, Any]
    summary: dict[str, Any] | None = Field(description="Pass rates with their intervals, tokens, cost, times, reasons")
    aggregates: dict[str, Any] | None = Field(
        description="count, mean, median, p95, standardDeviation, min and max of latencySeconds and, of calls, of "
        "voiceToVoiceSeconds: overall, byProvider, byModel; histogram and histogramByModel: from, to and count of bins"
    )


class ShareShape(Shape):
    """What one of those that are asked would take."""

    model: str
    purpose: Literal["model", "judge", "embedder"]
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class UnjudgedShape(Shape):
    """Cases of one model that need a judge and have none."""

    model: str
    cases: int


class EstimateShape(Shape):
    """What a run would take: an estimate."""

    dry_run: Literal[True]
    cases: int
    results: int
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None = Field(description="null: a price is not known")
    unknown_prices: list[str]
    unjudged: list[UnjudgedShape] = Field(description="Cases that will have no verdict unless a judge is named")
    missing_keys: list[str] = Field(description="Providers that need a key and have none here")
    warnings: list[str] = Field(description="Both in sentences; the run can be started all the same")
    shares: list[ShareShape]
    note: str


class ResultShape(Shape):
    """A result in a list."""

    seq: int
    case_id: str
    case_digest: str
    model: str
    variant: str
    repeat: int
    outcome: Outcome
    reason: str | None = Field(description="Why it did not pass")
    output: str | None = Field(description="The beginning of the answer; null without one")
    latency_seconds: float | None
    first_token_seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    cached: bool
    failure_code: str | None


class ResultDetailShape(ResultShape):
    """All of a result."""

    system_prompt: str | None
    case: dict[str, Any]
    reply: dict[str, Any] | None
    failure: dict[str, str] | None
    checks: list[dict[str, Any]]
    audio: dict[str, Any] | None = Field(description="Addresses: recording, log, caller")
    result_hash: str | None
    digest: str | None


# ── Runs ──

_ASKED_AS = {
    "categories": "type",
    "tags": "tag",
    "difficulties": "difficulty",
    "languages": "language",
    "all_tags": "allTags",
}
"""What a plan's filters are called where a run is asked for."""


def of_run(run: Run, ended: Ended | Rate | None = None, cases_digest: str | None = None) -> dict[str, Any]:
    """Return a run for a list; how its results ended, and the digest of its cases, where that was asked for."""
    plan = run.plan
    return {
        "id": run.id,
        "status": run.status,
        "suite": plan.suite,
        "suiteHash": plan.suite_hash,
        "casesDigest": cases_digest,
        "selection": {_ASKED_AS.get(name, name): value for name, value in plan.selection.items()},
        "models": [target.typed for target in plan.targets],
        "variants": list(plan.variants),
        "repeats": plan.repeats,
        "judge": plan.judge.typed if plan.judge else None,
        "createdAt": run.created,
        "finishedAt": run.finished,
        "expected": run.expected,
        "stored": run.stored,
        "progress": run.stored / run.expected if run.expected else 1.0,
        "reason": run.reason,
        "owner": run.owner,
        "creator": run.creator,
        "cancelRequested": run.cancelled is not None,
        **_how_ended(run, ended),
    }


def _how_ended(run: Run, ended: Ended | Rate | None) -> dict[str, Any]:
    if ended is None:
        return {"outcomes": None, "passRate": None, "interval": None}
    rate = ended if isinstance(ended, Rate) else _rate(run, ended)
    interval = rate.interval
    return {
        "outcomes": {outcome.value: getattr(rate, outcome.value) for outcome in Outcome},
        "passRate": rate.value,
        "interval": [interval.low, interval.high] if interval else None,
    }


def _rate(run: Run, ended: Ended) -> Rate:
    counts = {outcome.value: ended.outcomes.get(outcome, 0) for outcome in Outcome}
    return Rate(**counts, per_case=run.plan.repeats * max(1, len(ended.ways)))


def of_plan(run: Run) -> dict[str, Any]:
    """Return what a run does, without the parts that its list has."""
    plan = run.plan
    return {
        "targets": [_target(each) for each in plan.targets],
        "parameters": dict(plan.parameters),
        "systemPrompt": plan.system_prompt,
        "judge": _target(plan.judge),
        "embedder": _target(plan.embedder),
        "stt": _target(plan.stt),
        "voice": plan.voice,
        "runnerVersion": plan.runner_version,
    }


def _target(target: Target | None) -> Any:
    return target and {"typed": target.typed, "provider": target.provider, "model": target.model}


def of_summary(summary: Summary) -> dict[str, Any]:
    """Return what a run amounts to; categories, tags and models keep their names."""
    data = summary.as_data()
    by = data.pop("by")
    rates = {name: {value: camel(rate) for value, rate in rows.items()} for name, rows in by.items()}
    return {**seconds(camel(data)), "by": rates}


def of_spread(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return how times are spread; providers and models keep their names."""
    found: dict[str, Any] = {}
    for what, name in (("latency_s", "latencySeconds"), ("voice_to_voice_s", "voiceToVoiceSeconds")):
        times = data[what]
        found[name] = times and {
            "overall": camel(times["overall"]),
            "byProvider": {key: camel(value) for key, value in times["by_provider"].items()},
            "byModel": {key: camel(value) for key, value in times["by_model"].items()},
            "histogram": times["histogram"],
            "histogramByModel": times["histogram_by_model"],
        }
    return found


def of_estimate(found: Estimate, keyless: Mapping[str, str]) -> dict[str, Any]:
    """Return what a run would take; `keyless` are the providers without a key, each with what to do."""
    return {
        "dryRun": True,
        "cases": found.cases,
        "results": found.results,
        "calls": found.calls,
        "inputTokens": found.total("input_tokens"),
        "outputTokens": found.total("output_tokens"),
        "costUsd": found.total("cost_usd"),
        "unknownPrices": found.unpriced,
        "unjudged": [{"model": model, "cases": cases} for model, cases in found.unjudged.items()],
        "missingKeys": list(keyless),
        "warnings": [*found.warnings, *keyless.values()],
        "shares": [
            {
                "model": each.model,
                "purpose": each.purpose,
                "calls": each.calls,
                "inputTokens": each.input_tokens,
                "outputTokens": each.output_tokens,
                "costUsd": each.cost_usd,
            }
            for each in found.shares
        ],
        "note": "An estimate: tokens are counted by a rule, and nobody knows how long answers will be; none is stored.",
    }


# ── Results ──


def brief(seq: int, result: Result) -> dict[str, Any]:
    """Return a result for a list, or for who follows its run."""
    key, reply = result.key, result.reply
    return {
        "seq": seq,
        "caseId": result.case_id,
        "caseDigest": key.case,
        "model": key.model,
        "variant": key.variant,
        "repeat": key.repeat,
        "outcome": result.outcome.value,
        "reason": None if result.outcome is Outcome.PASSED else why(result),
        "output": reply.text if reply else None,
        "latencySeconds": reply.total_s if reply else None,
        "firstTokenSeconds": reply.first_token_s if reply else None,
        "inputTokens": reply.usage.input_tokens if reply else None,
        "outputTokens": reply.usage.output_tokens if reply else None,
        "costUsd": reply.cost_usd if reply else None,
        "cached": bool(reply and reply.cached),
        "failureCode": result.failure.code if result.failure else None,
    }


def whole(case: Case, result: Result) -> dict[str, Any]:
    """Return the rest of a result."""
    reply, failure = result.reply, result.failure
    call = reply.call if reply else None
    return {
        "case": _case(case),
        "reply": reply
        and {
            "text": reply.text,
            "answers": list(reply.answers),
            "servedModel": reply.served_model,
            "fingerprint": reply.fingerprint,
            "finishReason": reply.finish_reason,
            "cachedTokens": reply.usage.cached_tokens,
            "droppedParameters": list(reply.dropped),
            "raw": reply.response(),
        },
        "failure": failure and {"code": failure.code, "message": failure.message},
        "checks": [
            {
                "name": check.name,
                "version": check.version,
                "outcome": check.outcome.value,
                "reason": check.reason,
                "value": check.value,
                "evidence": dict(check.evidence),
            }
            for check in result.checks
        ],
        "audio": call
        and {
            "recording": _address(call.recording),
            "log": _address(call.log),
            "caller": [_address(each) for each in call.caller],
        },
        "resultHash": result.result_hash,
        "digest": result.digest,
    }


def _case(case: Case) -> dict[str, Any]:
    facets = case.facets
    return {
        "id": case.id,
        "kind": case.kind,
        "name": case.name,
        "turns": [{"role": turn.role, "text": turn.text} for turn in case.turns],
        "script": [
            {
                "text": line.text,
                "audioUrl": line.audio_url,
                "bargeInSeconds": line.barge_in_s,
                "reference": line.reference,
                "expected": [
                    {"assertion": _assertion(each.assertion), "ideals": list(each.ideals)} for each in line.expected
                ],
            }
            for line in case.script
        ],
        "category": facets.category,
        "difficulty": facets.difficulty,
        "language": facets.language,
        "tags": list(facets.tags),
        "assertion": _assertion(case.assertion),
        "ideals": list(case.ideals),
        "expectedOutcome": case.expected_outcome,
        "promptAudioUrl": case.prompt_audio_url,
        "conditions": case.conditions,
    }


def _assertion(stated: Assertion | None) -> Any:
    return stated and {
        "type": stated.type,
        "caseSensitive": stated.case_sensitive,
        "threshold": stated.threshold,
        "judgePrompt": stated.judge_prompt,
        "schema": stated.schema,
    }


def _address(digest: str) -> str:
    return f"/audio/{digest}"


# ── Names ──


def seconds(value: Any) -> Any:
    """Return data with names that end in S, for seconds, spelt out: latencyS is latencySeconds."""
    if isinstance(value, Mapping):
        return {_spelt_out(name): seconds(each) for name, each in value.items()}
    return [seconds(each) for each in value] if isinstance(value, list | tuple) else value


def _spelt_out(name: str) -> str:
    return f"{name[:-1]}Seconds" if len(name) > 1 and name.endswith("S") else name
