"""The results of a run: as a table by the page, with its filters and the plan that the run follows; and each by itself.

Of one result: what was asked, what came back, how it was judged, and how it sounds.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from nicegui import ui

from pramana.analyse.summary import Total
from pramana.analyse.voice import CALL, latency, lines_of, observations
from pramana.app.calls import read_call
from pramana.app.runs import ResultFilter, read_progress, read_result
from pramana.app.suites import ListedView
from pramana.app.views import CheckView, LimitsView, PlanView, ResultDetailView, ResultView, RunDetailView, TargetView
from pramana.errors import InvalidInput
from pramana.model import describe_calls
from pramana.report import figures
from pramana.report.markup import (
    Child,
    Column,
    Safe,
    facts,
    foreign,
    join,
    link,
    outcome,
    pager,
    pretty,
    table,
    tag,
    tiles,
)
from pramana.report.prose import prose
from pramana.report.result_detail import render_checks, render_exchange, render_expected, render_system_prompt
from pramana.report.run_summary import waited
from pramana.report.selection import MARK
from pramana.request import SAMPLING
from pramana.show.api.envelope import sent_as
from pramana.show.api.runs import USUAL
from pramana.show.web.kit import Desk, Refused, address, frame, parts, waveform
from pramana.show.web.kit.forms import suggest
from pramana.store.queue import UNDER_WAY

PAGE_SIZE = 50
SHOWN = 300
"""Characters of an answer, or of why, that a row may hold; two lines of them are seen."""
COLUMNS = 800
"""Of a waveform."""
OUTCOMES = ["passed", "failed", "errored", "unscored", "skipped"]
FILTERS = ("outcome", "model", "case", "text", "tag")
"""What results are filtered by, as an address has it."""


def filters(desk: Desk, run: RunDetailView) -> Callable[[Iterable[str]], None]:
    """Put the filters of a table of results; their values are in the address. Return what suggests tags."""
    query = desk.query

    def put(name: str) -> Any:
        def apply(value: str | None) -> None:
            changed = {name: value, "page": None} | ({"case": None} if name == "text" else {})
            ui.navigate.to(f"{desk.here(**changed)}#results")

        return apply

    def typed(label: str, name: str, value: str, hint: str) -> Any:
        made = parts.field(label, value, hint=hint)
        made.on("keydown.enter", lambda: put(name)((made.value or "").strip() or None))
        return made

    with parts.box("filters", role="search", label="Filter results"):
        parts.choice("Outcome", OUTCOMES, _known(query.get("outcome"), OUTCOMES), put("outcome"), clearable=True)
        if len(run.models) > 1:
            parts.choice(
                "Model", list(run.models), _known(query.get("model"), run.models), put("model"), clearable=True
            )
        typed("Case", "text", query.get("text") or query.get("case", ""), "part of its ID; press Enter")
        suggest_tags = suggest(typed("Tag", "tag", query.get("tag", ""), "press Enter"), ())
        if any(query.get(name) for name in FILTERS):
            parts.link_button("Clear filters", f"{desk.here(**dict.fromkeys((*FILTERS, 'page')))}#results")
    return suggest_tags


def _kept_query(desk: Desk) -> dict[str, str]:
    """Return the filters and the page of the list of results that an address carries along."""
    return {name: value for name in (*FILTERS, "page") if (value := desk.query.get(name))}


def _known(value: str | None, among: Sequence[str]) -> str | None:
    return value if value in among else None


def table_of(desk: Desk, run: RunDetailView, found: Sequence[ResultView]) -> Safe:
    """Return a page of results; each links to its own page, which keeps the filters."""
    if found:
        return rows(desk.address, run, found, _kept_query(desk))
    if any(desk.query.get(name) for name in FILTERS):
        return tag("p", "No results match these filters.", class_="quiet")
    return tag("p", "No results yet." if run.status in UNDER_WAY else "No results.", class_="quiet")


def pages(desk: Desk, meta: Mapping[str, Any]) -> Safe:
    """Return which page of results this is, and the ways to others."""
    return pager(meta, lambda **changed: f"{desk.here(**changed)}#results", "results")


def rows(
    where: str,
    run: RunDetailView,
    found: Iterable[ResultView],
    kept_query: Mapping[str, str] | None = None,
    caption: str = "Results",
) -> Safe:
    """Return results as a table; links keep a query."""
    several = len(run.models) > 1 or len(run.variants) > 1 or run.repeats > 1
    columns = (
        Column("Outcome"),
        Column("Case", head=True),
        *((Column("Model" if len(run.models) > 1 else "Variant"),) if several else ()),
        Column("Reply"),
        Column("Reason"),
        Column("Time", number=True),
        Column("Cost", number=True),
    )
    made = (_row(where, run, each, kept_query or {}, several=several) for each in found)
    return tag("div", table(caption, columns, made, hidden=True), class_="results")


def _row(
    where: str, run: RunDetailView, each: ResultView, kept_query: Mapping[str, str], *, several: bool
) -> tuple[Child, ...]:
    to = address(f"{where}/results/{each.seq}", **kept_query)
    said = _answer(each)
    return (
        outcome(each.outcome),
        link(to, foreign(each.case_id, 120)),
        *((foreign(which(run, each), 160),) if several else ()),
        said,
        _excerpt(each.reason) if each.reason else "",
        took(each),
        cost(each),
    )


def which(run: RunDetailView, each: ResultView) -> str:
    """Return what tells a result from others of its case."""
    return figures.which(run.models, run.variants, run.repeats, each)


def _answer(each: ResultView) -> Safe:
    """Return the beginning of an answer, or the tools that were called instead."""
    if each.output is None:
        return tag("i", "no reply", class_="quiet")
    only_calls = each.tool_calls and not each.output.strip()
    return _excerpt(f"(no text; {describe_calls(each.tool_calls)})" if only_calls else each.output)


def _excerpt(words: str) -> Safe:
    shown = words if len(words) <= SHOWN else f"{words[:SHOWN]}…"
    return tag("span", foreign(" ".join(shown.split())), class_="clip") if shown.strip() else tag("i", "empty")


def took(each: ResultView) -> str:
    """Return how long a result took, in words where it was not asked for."""
    return "from the cache" if each.cached else figures.duration(each.latency_seconds)


def cost(each: ResultView) -> str:
    """Return what a result has cost; of no answer nothing is said."""
    if each.output is None:
        return "–"
    return "unknown" if each.cost_usd is None else figures.money(Total(each.cost_usd, 0))


# ── The plan ──


def plan(run: RunDetailView) -> Safe:
    """Return what a run does, folded away."""
    of = run.plan
    said: list[tuple[str, Child]] = [("Suite", foreign(run.suite))]
    said += [("Suite hash", tag("span", run.suite_hash, class_="mono"))] if run.suite_hash else []
    said += [("Selection", foreign(figures.selection(run.selection)))] if run.selection else []
    said.append(("Models", join((_target(each) for each in of.targets), ", ")))
    said += [(name, _target(target)) for name, key in _WHO if (target := getattr(of, key))]
    said += (
        [("Scorers", foreign(", ".join(f"{each.name} {each.version}" for each in of.scorers)))] if of.scorers else []
    )
    said += [("Variants", ", ".join(run.variants)), ("Repeats", str(run.repeats))]
    said += [("Caller's voice", of.voice)] if any(each != "text" for each in run.variants) else []
    said += [
        (name, _pairs(data))
        for name, data in (("Parameters", of.parameters), ("Limits", msgspec.to_builtins(run.limits)))
        if data
    ]
    said += [("Attempts", f"{run.attempts:,}")] if run.attempts > 1 else []
    said += [("Host process", foreign(run.holder))] if run.holder else []
    said.append(("Version", of.runner_version))
    prompt, notes = of.system_prompt, run.notes
    return tag(
        "details",
        tag("summary", "The plan: parameters, system prompt, judge, versions"),
        facts(said, "sheet"),
        join([tag("h3", "System prompt"), prose(prompt, "System prompt")]) if prompt else None,
        join([tag("h3", "Notes"), pretty(notes, "Notes")]) if notes else None,
        class_="plan",
    )


_WHO = (("Judge", "judge"), ("Embedder", "embedder"), ("Speech recognition", "stt"))


def _target(target: TargetView) -> Safe:
    asked = f" ({target.provider}, {target.model})"
    return join([foreign(target.typed), tag("span", foreign(asked), class_="quiet")])


def _pairs(data: Mapping[str, Any]) -> Safe:
    return foreign(
        ", ".join(f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in data.items())
    )


# ── Once more ──

MODALITIES = {"text": "text", "voice": "voice", "voice+noise=10dB": "noisy"}
LONGEST_PROMPT, MOST_IDS, LONGEST = 1_500, 50, 16_000
"""Characters of a system prompt, ids of scenarios, and characters in all, that an address can hold."""


def again(run: RunDetailView, suites: Iterable[ListedView]) -> str | None:
    """Return the address of a new run like this one, on a server of these suites.

    None where an address cannot say all of it: a run that only resembles this one is not this one again.
    """
    who = {"model": run.models, "repeats": run.repeats if run.repeats != USUAL["repeats"] else None}
    found: dict[str, Any] = {}
    for each in (_asked(run, suites), who, _spoken(run), _sent(run.plan), _limited(run.limits)):
        if each is None:
            return None
        found |= each
    made = address("/runs/new", **found)
    return made if len(made) <= LONGEST else None


def _asked(run: RunDetailView, suites: Iterable[ListedView]) -> dict[str, Any] | None:
    """Return the tier and the scenarios that are asked; None where they are files, or a part of a tier."""
    named, selection = run.suite, dict(run.selection)
    found: dict[str, Any] = {}
    if run.owner == "server" and run.suite_hash is None:  # with scenarios of the store, so filters are theirs
        named = named.removesuffix(MARK).removesuffix("scenarios").removesuffix("+")
        found = {name: selection.pop(name, None) for name in ("type", "difficulty", "language", "tag", "text")}
        ids = selection.pop("ids", [])
        if len(ids) > MOST_IDS:
            return None
        found["scenario"] = ids if run.selection else "all"
        if not named:
            return None if selection else found
    tiers = {f"{each.version}-{name}": (each, name) for each in suites for name in each.tiers}
    if selection or named not in tiers:
        return None
    suite, tier = tiers[named]
    pinned = suite.tiers[tier].hash
    is_it = run.suite_hash == pinned or (run.suite_hash is None and run.owner == "server")
    return {"suite": suite.version, "tier": tier, **found} if is_it else None


def _spoken(run: RunDetailView) -> dict[str, Any] | None:
    """Return in which modalities cases are asked, and under which condition."""
    variants = run.variants
    if variants == ("text",):
        return {}
    if run.plan.voice != "espeak":
        return None
    if all(each in MODALITIES for each in variants):
        return {"modality": [MODALITIES[each] for each in variants]}
    aloud = [each for each in variants if each != "text"]
    if len(aloud) != 1:
        return None
    return {"modality": [each.partition("+")[0] for each in variants], "condition": aloud[0].partition("+")[2]}


def _sent(of: PlanView) -> dict[str, Any] | None:
    """Return what is sent with each case, and who judges, embeds and listens."""
    if of.scorers:  # the form has no field for them
        return None
    parameters, prompt = dict(of.parameters), of.system_prompt or ""
    numbers = {sent_as(each): parameters.pop(name, each.default) for name, each in SAMPLING.items()}
    if parameters or len(prompt) > LONGEST_PROMPT or any(each and float(each) != each for each in numbers.values()):
        return None
    return {
        **{key: target and target.typed for key in ("judge", "embedder", "stt") for target in [getattr(of, key)]},
        **{key: "none" if value is None else str(value) for key, value in numbers.items() if value != USUAL[key]},
        "systemPrompt": prompt,
    }


def _limited(limits: LimitsView) -> dict[str, Any] | None:
    """Return the limits that are not the usual ones."""
    found = {name: value for name, value in msgspec.to_builtins(limits).items() if value != USUAL.get(f"limits.{name}")}
    return None if "timeoutSeconds" in found else found


# ── One of them ──


class _Wanted(Struct, frozen=True):
    """Which result."""

    seq: Annotated[int, Meta(ge=0, le=2**63 - 1)]


@frame.page("/runs/{run_id}/results/{seq}", "Result")
async def result(desk: Desk) -> None:
    """Show one result, and the ways to those beside it."""
    run_id, wanted = desk.path["run_id"], desk.asked(_Wanted, {"seq": desk.path["seq"]})
    run = await desk.call(read_progress, run_id)
    among = desk.asked(ResultFilter, {name: desk.query.get(name) for name in FILTERS})
    data, *beside = await desk.call(read_result, run_id, wanted.seq, among)
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
    """Return the links to the results beside one in the list it was opened from, and to that list."""
    kept = _kept_query(desk)
    filtered = kept.keys() & set(FILTERS)
    words = f" {kept['outcome']}" if "outcome" in kept else ""

    def to(seq: int | None, label: str) -> Safe | None:
        return None if seq is None else link(address(f"/runs/{run_id}/results/{seq}", **kept), label, class_="btn")

    back = f"{address(f'/runs/{run_id}', **kept)}#results"
    return join(
        [
            to(previous, f"← Previous{words}"),
            to(following, f"Next{words} →"),
            link(back, "Filtered results" if filtered - {"outcome"} else f"All{words} results", class_="btn"),
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
        return tag("p", "No reply, so there are no times, tokens or costs.", class_="quiet")
    cached = f"{reply.cached_tokens:,} from the provider's cache" if reply.cached_tokens else ""
    first = ("First token", figures.duration(data.first_token_seconds), "")
    some: list[tuple[str, Child, Child]] = [
        *(_of_call(data.checks) if data.audio else ()),
        ("Duration", took(data), ""),
        *(() if data.audio else (first,)),
        ("Tokens in", figures.tokens(data.input_tokens), cached),
        ("Tokens out", figures.tokens(data.output_tokens), ""),
        ("Cost", cost(data), "" if data.cost_usd is not None else "no price is known"),
    ]
    return tiles(some)


def _of_call(checks: Sequence[CheckView]) -> Iterator[tuple[str, Child, Child]]:
    """Yield how long the agent let the caller wait, as the check of the call has measured it line by line."""
    for check in checks:
        with suppress(InvalidInput):  # of another release
            if check.name == CALL and (times := latency(observations(lines_of(check.evidence)))).n:
                yield waited(times, f"longest {figures.bound(times.max)}")


def _rest(run: RunDetailView, data: ResultDetailView) -> Safe:
    reply = data.reply
    said: list[tuple[str, Child]] = [("Model", foreign(data.model, 200)), ("Variant", data.variant)]
    said += [("Repeat", f"{data.repeat + 1} of {run.repeats}")] if run.repeats > 1 else []
    if reply:
        served = ("Served by", reply.served_model), ("Fingerprint", reply.fingerprint)
        said += [(name, foreign(each, 300)) for name, each in (*served, ("Finish reason", reply.finish_reason)) if each]
        if reply.dropped_parameters:
            said.append(("Dropped parameters", foreign(", ".join(reply.dropped_parameters))))
    digests = ("Case digest", data.case_digest), ("Result hash", data.result_hash), ("Digest", data.digest)
    hashes = [(name, tag("span", each, class_="mono")) for name, each in digests if each]
    raw = reply.raw if reply else None
    return join(
        [
            facts(said, "sheet"),
            tag("details", tag("summary", "Hashes"), facts(hashes, "sheet")),
            tag("details", tag("summary", "Raw response"), pretty(raw, "Raw response")) if raw is not None else None,
            tag("p", link(f"/api/runs/{run.id}/results/{data.seq}", "View as JSON"), class_="small"),
        ]
    )
