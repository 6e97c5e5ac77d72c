"""One result: what was asked, what came back, how it was judged, and how it sounds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from pramana.analyse.voice import CALL, Latency, latency, lines_of, observations
from pramana.app.calls import read_call
from pramana.app.runs import read_progress, read_result
from pramana.app.views import CheckView, ResultDetailView, RunDetailView
from pramana.errors import InvalidInput
from pramana.model import Outcome
from pramana.report import figures
from pramana.report.markup import Child, Safe, facts, foreign, join, link, outcome, pretty, tag, tiles
from pramana.report.result_detail import render_checks, render_exchange, render_expected, render_system_prompt
from pramana.report.run_summary import waited
from pramana.show.web.kit import Desk, Refused, address, frame, parts, waveform
from pramana.show.web.pages.run_results import cost, took, which

COLUMNS = 800
"""Of a waveform."""


class _Wanted(Struct, frozen=True):
    """Which result, and which of those beside it are led to."""

    seq: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    outcome: Outcome | None = None


@frame.page("/runs/{run_id}/results/{seq}", "Result")
async def result(desk: Desk) -> None:
    """Show one result, and the ways to those beside it."""
    run_id, wanted = desk.path["run_id"], desk.asked(_Wanted, {**desk.query, "seq": desk.path["seq"]})
    run = await desk.call(read_progress, run_id)
    data, *beside = await desk.call(read_result, run_id, wanted.seq, wanted.outcome)
    frame.titled(f"{data.case_id} {run.suite}")
    crumbs = (("/runs", "Runs"), (f"/runs/{run.id}", run.suite[:80]))
    with frame.head(foreign(data.case_id, 200), _about(run, data), crumbs):
        parts.show(_beside(desk, run.id, *beside), classes="row")
    if data.failure:
        parts.show(
            tag(
                "p",
                foreign(data.failure.message),
                " ",
                tag("span", data.failure.code, class_="mono quiet"),
                class_="warn",
            )
        )
    if data.audio:
        await _call(desk, run.id, data)
    else:
        parts.show(render_exchange(data))
    parts.show(render_checks(data.checks))
    parts.show(tag("h2", "Numbers"))
    parts.show(_numbers(data))
    parts.show(_rest(run, data))


# ── Where it stands ──


def _about(run: RunDetailView, data: ResultDetailView) -> Safe:
    of, case = which(run, data), data.case
    facets = [case.category, case.difficulty, case.language, *case.tags]
    told = [outcome(data.outcome), *([foreign(of)] if of else [foreign(data.model, 80)])]
    told += [foreign(case.name, 200)] if case.name and case.name != case.id else []
    told += [foreign(each, 80) for each in facets if each]
    return join(told, " · ")


def _beside(desk: Desk, run_id: str, previous: int | None, following: int | None) -> Safe:
    wanted = desk.query.get("outcome")
    so = f" {wanted}" if wanted else ""

    def to(seq: int | None, words: str) -> Safe | None:
        at = address(f"/runs/{run_id}/results/{seq}", outcome=wanted)
        return None if seq is None else link(at, words, class_="btn")

    back = f"{address(f'/runs/{run_id}', outcome=wanted)}#results"
    return join(
        [
            to(previous, f"← Previous{so}"),
            to(following, f"Next{so} →"),
            link(back, f"All{so} results", class_="btn"),
        ]
    )


# ── What was said ──


async def _call(desk: Desk, run_id: str, data: ResultDetailView) -> None:
    parts.heading("Call")
    try:
        call = await desk.call(read_call, run_id, data.seq, COLUMNS)
    except Refused as error:  # the words are here all the same
        parts.show(tag("p", foreign(parts.sentence(error)), class_="warn"))
        parts.show(render_exchange(data))
        return
    waveform.player(call)
    parts.show(join([*render_system_prompt(data.system_prompt), *render_expected(data.case)]))


# ── Numbers, and what is left ──


def _numbers(data: ResultDetailView) -> Safe:
    reply = data.reply
    if not reply:
        return tag("p", "Nothing was answered, so nothing was timed, counted or paid.", class_="quiet")
    cached = f"{reply.cached_tokens:,} from the provider's cache" if reply.cached_tokens else ""
    first = ("First token", figures.duration(data.first_token_seconds), "")
    some: list[tuple[str, Child, Child]] = [
        *(_of_call(data.checks) if data.audio else ()),
        ("Took", took(data), ""),
        *(() if data.audio else (first,)),
        ("Tokens in", figures.tokens(data.input_tokens), cached),
        ("Tokens out", figures.tokens(data.output_tokens), ""),
        ("Cost", cost(data), "" if data.cost_usd is not None else "no price is known"),
    ]
    return tiles(some)


def _of_call(checks: Sequence[CheckView]) -> Iterator[tuple[str, Child, Child]]:
    """Yield how long the agent let the caller wait, as the check of the call has measured it line by line."""
    for check in checks:
        if check.name == CALL and (times := _waits(check.evidence)).n:
            yield waited(times, f"longest {figures.bound(times.max)}")


def _waits(evidence: Mapping[str, Any]) -> Latency:
    try:
        return latency(observations(lines_of(evidence)))
    except InvalidInput:  # of another release
        return Latency()


def _rest(run: RunDetailView, data: ResultDetailView) -> Safe:
    reply = data.reply
    said: list[tuple[str, Child]] = [("Model", foreign(data.model, 200)), ("Variant", data.variant)]
    said += [("Repeat", f"{data.repeat + 1} of {run.repeats}")] if run.repeats > 1 else []
    if reply:
        served = ("Served by", reply.served_model), ("Fingerprint", reply.fingerprint)
        said += [(name, foreign(each, 300)) for name, each in (*served, ("Ended because", reply.finish_reason)) if each]
        if reply.dropped_parameters:
            said.append(("Would not take", foreign(", ".join(reply.dropped_parameters))))
    digests = ("Case digest", data.case_digest), ("Result hash", data.result_hash), ("Digest", data.digest)
    said += [(name, tag("span", each, class_="mono")) for name, each in digests if each]
    raw = reply.raw if reply else None
    return join(
        [
            facts(said, "sheet"),
            tag("details", tag("summary", "Raw response"), pretty(raw, "Raw response")) if raw is not None else None,
            tag("p", link(f"/api/runs/{run.id}/results/{data.seq}", "All of it as JSON"), class_="small"),
        ]
    )
