"""The results of a run as a table, with filters and the run's plan, and a page for each result.

The page of a result shows the prompt, the reply, the checks and, for calls, the recording.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from nicegui import ui

from pramana.analyse.summary import Total
from pramana.analyse.voice import CALL, latency_observations, measure_latency, measured_lines
from pramana.app.calls import read_call
from pramana.app.runs import ResultFilter, read_progress, read_result
from pramana.app.suites import ListedView
from pramana.app.views import CheckView, LimitsView, PlanView, ResultDetailView, ResultView, RunDetailView, TargetView
from pramana.errors import InvalidInput
from pramana.replies import describe_reply
from pramana.report import figures
from pramana.report.markup import (
    Child,
    Column,
    Safe,
    join,
    render_facts,
    render_foreign_text,
    render_json,
    render_link,
    render_outcome,
    render_pager,
    render_table,
    render_tiles,
    tag,
)
from pramana.report.prose import render_prose
from pramana.report.result_detail import render_checks, render_exchange, render_expected, render_system_prompt
from pramana.report.run_summary import wait_tile
from pramana.report.selection import SELECTION_SUFFIX
from pramana.request import SAMPLING
from pramana.show.api.envelope import published_field_name
from pramana.show.api.runs import DEFAULTS
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts, waveform
from pramana.show.web.kit.forms import add_suggestions
from pramana.store.queue import UNDER_WAY

PAGE_SIZE = 50
MAX_ROW_TEXT = 300
"""Characters of an answer or a reason in a table row; two lines of them are visible."""
WAVEFORM_COLUMNS = 800
"""Columns of a waveform."""
OUTCOMES = ["passed", "failed", "errored", "unscored", "skipped"]
FILTERS = ("outcome", "model", "case", "text", "tag")
"""The query parameters that filter results."""


def draw_filters(context: PageContext, run: RunDetailView) -> Callable[[Iterable[str]], None]:
    """Add the filters of a results table, with values from the address; return a function that suggests tags."""
    query = context.query

    def add_filter(name: str) -> Any:
        def apply(value: str | None) -> None:
            changed = {name: value, "page": None} | ({"case": None} if name == "text" else {})
            ui.navigate.to(f"{context.page_url(**changed)}#results")

        return apply

    def on_typed(label: str, name: str, value: str, hint: str) -> Any:
        made = parts.add_text_field(label, value, hint=hint)
        made.on("keydown.enter", lambda: add_filter(name)((made.value or "").strip() or None))
        return made

    with parts.open_box("filters", role="search", label="Filter results"):
        parts.add_select(
            "Outcome", OUTCOMES, _value_if_listed(query.get("outcome"), OUTCOMES), add_filter("outcome"), clearable=True
        )
        if len(run.models) > 1:
            parts.add_select(
                "Model",
                list(run.models),
                _value_if_listed(query.get("model"), run.models),
                add_filter("model"),
                clearable=True,
            )
        on_typed("Case", "text", query.get("text") or query.get("case", ""), "part of its ID; press Enter")
        suggest_tags = add_suggestions(on_typed("Tag", "tag", query.get("tag", ""), "press Enter"), ())
        if any(query.get(name) for name in FILTERS):
            parts.add_link_button("Clear filters", f"{context.page_url(**dict.fromkeys((*FILTERS, 'page')))}#results")
    return suggest_tags


def _kept_query(context: PageContext) -> dict[str, str]:
    """Return the filters and the page number that links carry along."""
    return {name: value for name in (*FILTERS, "page") if (value := context.query.get(name))}


def _value_if_listed(value: str | None, among: Sequence[str]) -> str | None:
    return value if value in among else None


def render_result_page(context: PageContext, run: RunDetailView, results: Sequence[ResultView]) -> Safe:
    """Return one page of results; each row links to its result and keeps the filters."""
    if results:
        return render_rows(context.address, run, results, _kept_query(context))
    if any(context.query.get(name) for name in FILTERS):
        return tag("p", "No results match these filters.", class_="quiet")
    return tag("p", "No results yet." if run.status in UNDER_WAY else "No results.", class_="quiet")


def render_page_links(context: PageContext, meta: Mapping[str, Any]) -> Safe:
    """Return the pager of the results."""
    return render_pager(meta, lambda **changed: f"{context.page_url(**changed)}#results", "results")


def render_rows(
    base_url: str,
    run: RunDetailView,
    results: Iterable[ResultView],
    kept_query: Mapping[str, str] | None = None,
    caption: str = "Results",
) -> Safe:
    """Return results as a table; its links keep a query."""
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
    made = (_render_row(base_url, run, each, kept_query or {}, several=several) for each in results)
    return tag("div", render_table(caption, columns, made, hidden=True), class_="results")


def _render_row(
    base_url: str, run: RunDetailView, each: ResultView, kept_query: Mapping[str, str], *, several: bool
) -> tuple[Child, ...]:
    to = make_url(f"{base_url}/results/{each.seq}", **kept_query)
    said = _answer(each)
    return (
        render_outcome(each.outcome),
        render_link(to, render_foreign_text(each.case_id, 120)),
        *((render_foreign_text(describe_variation(run, each), 160),) if several else ()),
        said,
        _render_excerpt(each.reason) if each.reason else "",
        format_duration_or_outcome(each),
        format_result_cost(each),
    )


def describe_variation(run: RunDetailView, each: ResultView) -> str:
    """Return what distinguishes a result from others of the same case: model, variant, repeat."""
    return figures.describe_variation(run.models, run.variants, run.repeats, each)


def _answer(each: ResultView) -> Safe:
    """Return the beginning of an answer, or its tool calls if it has no text."""
    if each.output is None:
        return tag("i", "no reply", class_="quiet")
    return _render_excerpt(describe_reply(each.output, each.tool_calls))


def _render_excerpt(words: str) -> Safe:
    shown = words if len(words) <= MAX_ROW_TEXT else f"{words[:MAX_ROW_TEXT]}…"
    return (
        tag("span", render_foreign_text(" ".join(shown.split())), class_="clip") if shown.strip() else tag("i", "empty")
    )


def format_duration_or_outcome(each: ResultView) -> str:
    """Return the duration of a result, or that it comes from the cache."""
    return "from the cache" if each.cached else figures.format_duration(each.latency_seconds)


def format_result_cost(each: ResultView) -> str:
    """Return the cost of a result, or a dash if there is no reply."""
    if each.output is None:
        return "–"
    return "unknown" if each.cost_usd is None else figures.format_cost(Total(each.cost_usd, 0))


# ── Plan ──


def render_plan(run: RunDetailView) -> Safe:
    """Return the plan of a run, collapsed."""
    of = run.plan
    said: list[tuple[str, Child]] = [("Suite", render_foreign_text(run.suite))]
    said += [("Suite hash", tag("span", run.suite_hash, class_="mono"))] if run.suite_hash else []
    said += [("Selection", render_foreign_text(figures.describe_selection(run.selection)))] if run.selection else []
    said.append(("Models", join((_render_target(each) for each in of.targets), ", ")))
    said += [(name, _render_target(target)) for name, key in _TARGET_LABELS if (target := getattr(of, key))]
    said += (
        [("Scorers", render_foreign_text(", ".join(f"{each.name} {each.version}" for each in of.scorers)))]
        if of.scorers
        else []
    )
    said += [("Variants", ", ".join(run.variants)), ("Repeats", str(run.repeats))]
    said += [("Caller's voice", of.voice)] if any(each != "text" for each in run.variants) else []
    said += [
        (name, _render_pairs(data))
        for name, data in (("Parameters", of.parameters), ("Limits", msgspec.to_builtins(run.limits)))
        if data
    ]
    said += [("Attempts", f"{run.attempts:,}")] if run.attempts > 1 else []
    said += [("Host process", render_foreign_text(run.holder))] if run.holder else []
    said.append(("Version", of.runner_version))
    prompt, notes = of.system_prompt, run.notes
    return tag(
        "details",
        tag("summary", "The plan: parameters, system prompt, judge, versions"),
        render_facts(said, "sheet"),
        join([tag("h3", "System prompt"), render_prose(prompt, "System prompt")]) if prompt else None,
        join([tag("h3", "Notes"), render_json(notes, "Notes")]) if notes else None,
        class_="plan",
    )


_TARGET_LABELS = (("Judge", "judge"), ("Embedder", "embedder"), ("Speech recognition", "stt"))


def _render_target(target: TargetView) -> Safe:
    asked = f" ({target.provider}, {target.model})"
    return join([render_foreign_text(target.typed), tag("span", render_foreign_text(asked), class_="quiet")])


def _render_pairs(data: Mapping[str, Any]) -> Safe:
    return render_foreign_text(
        ", ".join(f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in data.items())
    )


# ── Run again ──

MODALITIES = {"text": "text", "voice": "voice", "voice+noise=10dB": "noisy"}
LONGEST_PROMPT, MAX_IDS, LONGEST = 1_500, 50, 16_000
"""Limits of an address: characters of the system prompt, ids of scenarios, characters in total."""


def new_run_url(run: RunDetailView, suites: Iterable[ListedView]) -> str | None:
    """Return the address of a new run with the settings of this one, given the suites of the server.

    Return None if the address cannot hold every setting: a similar run is not the same run.
    """
    who = {"model": run.models, "repeats": run.repeats if run.repeats != DEFAULTS["repeats"] else None}
    found: dict[str, Any] = {}
    for each in (
        _case_parameters(run, suites),
        who,
        _modality_parameters(run),
        _request_parameters(run.plan),
        _limit_parameters(run.limits),
    ):
        if each is None:
            return None
        found |= each
    made = make_url("/runs/new", **found)
    return made if len(made) <= LONGEST else None


def _case_parameters(run: RunDetailView, suites: Iterable[ListedView]) -> dict[str, Any] | None:
    """Return the parameters for tier and scenarios; None if the cases come from files or are part of a tier."""
    named, selection = run.suite, dict(run.selection)
    found: dict[str, Any] = {}
    if run.owner == "server" and run.suite_hash is None:  # the run had stored scenarios, so its filters apply to them
        named = named.removesuffix(SELECTION_SUFFIX).removesuffix("scenarios").removesuffix("+")
        found = {name: selection.pop(name, None) for name in ("type", "difficulty", "language", "tag", "text")}
        ids = selection.pop("ids", [])
        if len(ids) > MAX_IDS:
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


def _modality_parameters(run: RunDetailView) -> dict[str, Any] | None:
    """Return the parameters for modalities and condition."""
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


def _request_parameters(plan_view: PlanView) -> dict[str, Any] | None:
    """Return the parameters for sampling, system prompt, judge, embedder and speech recognition."""
    if plan_view.scorers:  # the form has no field for them
        return None
    parameters, prompt = dict(plan_view.parameters), plan_view.system_prompt or ""
    numbers = {published_field_name(each): parameters.pop(name, each.default) for name, each in SAMPLING.items()}
    if parameters or len(prompt) > LONGEST_PROMPT or any(each and float(each) != each for each in numbers.values()):
        return None
    return {
        **{
            key: target and target.typed for key in ("judge", "embedder", "stt") for target in [getattr(plan_view, key)]
        },
        **{key: "none" if value is None else str(value) for key, value in numbers.items() if value != DEFAULTS[key]},
        "systemPrompt": prompt,
    }


def _limit_parameters(limits: LimitsView) -> dict[str, Any] | None:
    """Return the limits that differ from the defaults; None if the form has no field for one."""
    found = {
        name: value for name, value in msgspec.to_builtins(limits).items() if value != DEFAULTS.get(f"limits.{name}")
    }
    return None if "timeoutSeconds" in found else found


# ── One result ──


class _ResultRequest(Struct, frozen=True):
    """The path parameters of a result's page."""

    seq: Annotated[int, Meta(ge=0, le=2**63 - 1)]


@frame.register_page("/runs/{run_id}/results/{seq}", "Result")
async def result(context: PageContext) -> None:
    """Show a result, with links to the previous and the next one."""
    run_id, wanted = context.path["run_id"], context.read_request(_ResultRequest, {"seq": context.path["seq"]})
    run = await context.call(read_progress, run_id)
    among = context.read_request(ResultFilter, {name: context.query.get(name) for name in FILTERS})
    data, *beside = await context.call(read_result, run_id, wanted.seq, among)
    frame.set_window_title(f"{data.case_id} {run.suite}")
    crumbs = (("/runs", "Runs"), (f"/runs/{run.reference}", run.suite[:80]))
    with frame.add_page_heading(render_foreign_text(data.case_id, 200), _render_head(run, data), crumbs):
        parts.add_markup(_render_neighbours(context, run.reference, *beside), classes="row")
    if data.failure:
        parts.add_markup(
            tag(
                "p",
                render_foreign_text(data.failure.message),
                " ",
                tag("span", data.failure.code, class_="mono quiet"),
                class_="warn",
            )
        )
    if data.audio:
        await _draw_call(context, run.reference, data)
    else:
        parts.add_markup(render_exchange(data))
    parts.add_markup(render_checks(data.checks))
    parts.add_markup(tag("h2", "Numbers"))
    parts.add_markup(_render_numbers(data))
    parts.add_markup(_render_details(run, data))


# ── Position in the list ──


def _render_head(run: RunDetailView, data: ResultDetailView) -> Safe:
    of, case = describe_variation(run, data), data.case
    facets = [case.category, case.difficulty, case.language, *case.tags]
    told = [render_outcome(data.outcome), *([render_foreign_text(of)] if of else [render_foreign_text(data.model, 80)])]
    told += [render_foreign_text(case.name, 200)] if case.name and case.name != case.id else []
    told += [render_foreign_text(each, 80) for each in facets if each]
    return join(told, " · ")


def _render_neighbours(context: PageContext, run_id: str, previous: int | None, following: int | None) -> Safe:
    """Return the links to the previous and next result in the list it was opened from, and back to that list."""
    kept = _kept_query(context)
    filtered = kept.keys() & set(FILTERS)
    words = f" {kept['outcome']}" if "outcome" in kept else ""

    def render_link_to(seq: int | None, label: str) -> Safe | None:
        return (
            None if seq is None else render_link(make_url(f"/runs/{run_id}/results/{seq}", **kept), label, class_="btn")
        )

    back = f"{make_url(f'/runs/{run_id}', **kept)}#results"
    return join(
        [
            render_link_to(previous, f"← Previous{words}"),
            render_link_to(following, f"Next{words} →"),
            render_link(back, "Filtered results" if filtered - {"outcome"} else f"All{words} results", class_="btn"),
        ]
    )


# ── Conversation ──


async def _draw_call(context: PageContext, run_id: str, data: ResultDetailView) -> None:
    parts.add_heading("Call")
    try:
        call = await context.call(read_call, run_id, data.seq, WAVEFORM_COLUMNS)
    except UseCaseRefused as error:  # the transcript is shown without the recording
        parts.add_markup(tag("p", render_foreign_text(parts.describe_refusal(error)), class_="warn"))
        parts.add_markup(render_exchange(data))
        return
    waveform.add_player(call)
    parts.add_markup(join([*render_system_prompt(data.system_prompt), *render_expected(data.case)]))


# ── Numbers and details ──


def _render_numbers(data: ResultDetailView) -> Safe:
    reply = data.reply
    if not reply:
        return tag("p", "No reply, so there are no times, tokens or costs.", class_="quiet")
    cached = f"{reply.cached_tokens:,} from the provider's cache" if reply.cached_tokens else ""
    first = ("First token", figures.format_duration(data.first_token_seconds), "")
    some: list[tuple[str, Child, Child]] = [
        *(_call_wait_tiles(data.checks) if data.audio else ()),
        ("Duration", format_duration_or_outcome(data), ""),
        *(() if data.audio else (first,)),
        ("Tokens in", figures.format_tokens(data.input_tokens), cached),
        ("Tokens out", figures.format_tokens(data.output_tokens), ""),
        ("Cost", format_result_cost(data), "" if data.cost_usd is not None else "no price is known"),
    ]
    return render_tiles(some)


def _call_wait_tiles(checks: Sequence[CheckView]) -> Iterator[tuple[str, Child, Child]]:
    """Yield the time that callers waited for the agent, as measured line by line by the check of the call."""
    for check in checks:
        with suppress(InvalidInput):  # written by another release
            if (
                check.name == CALL
                and (times := measure_latency(latency_observations(measured_lines(check.evidence)))).n
            ):
                yield wait_tile(times, f"longest {figures.format_bound(times.max)}")


def _render_details(run: RunDetailView, data: ResultDetailView) -> Safe:
    reply = data.reply
    said: list[tuple[str, Child]] = [("Model", render_foreign_text(data.model, 200)), ("Variant", data.variant)]
    said += [("Repeat", f"{data.repeat + 1} of {run.repeats}")] if run.repeats > 1 else []
    if reply:
        served = ("Served by", reply.served_model), ("Fingerprint", reply.fingerprint)
        said += [
            (name, render_foreign_text(each, 300))
            for name, each in (*served, ("Finish reason", reply.finish_reason))
            if each
        ]
        if reply.dropped_parameters:
            said.append(("Dropped parameters", render_foreign_text(", ".join(reply.dropped_parameters))))
    digests = ("Case digest", data.case_digest), ("Result hash", data.result_hash), ("Digest", data.digest)
    hashes = [(name, tag("span", each, class_="mono")) for name, each in digests if each]
    raw = reply.raw if reply else None
    return join(
        [
            render_facts(said, "sheet"),
            tag("details", tag("summary", "Hashes"), render_facts(hashes, "sheet")),
            tag("details", tag("summary", "Raw response"), render_json(raw, "Raw response"))
            if raw is not None
            else None,
            tag(
                "p",
                render_link(f"/api/runs/{run.reference}/results/{data.seq}", "View as JSON"),
                class_="small screen-only",
            ),
        ]
    )
