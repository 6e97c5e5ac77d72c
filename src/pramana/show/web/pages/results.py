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

from pramana.analyse.summary import KnownTotal
from pramana.analyse.voice import CALL_CHECK, list_latency_observations, measure_latency, read_measured_lines
from pramana.app.calls import read_call
from pramana.app.runs import ResultFilter, read_progress, read_result
from pramana.app.suites import ListedSuiteView
from pramana.app.views import CheckView, LimitsView, PlanView, ResultDetailView, ResultView, RunDetailView, TargetView
from pramana.errors import InvalidInput
from pramana.replies import describe_reply
from pramana.report import figures
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    join_html,
    render_facts,
    render_json,
    render_link,
    render_outcome,
    render_pager,
    render_table,
    render_tiles,
    render_untrusted_text,
    tag,
)
from pramana.report.prose import render_plain_prose
from pramana.report.result_detail import render_checks, render_exchange, render_expected, render_system_prompt
from pramana.report.run_summary import make_voice_to_voice_tile
from pramana.report.selection import SELECTION_SUFFIX
from pramana.request import MODEL_PARAMETER_FIELDS
from pramana.show.api.envelope import published_field_name
from pramana.show.api.runs import DEFAULTS_BY_PATH
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts, waveform
from pramana.show.web.kit.forms import add_suggestions
from pramana.store.queue import ACTIVE_STATUSES

PAGE_SIZE = 50
MAX_EXCERPT_CHARS = 300
"""Characters of an answer or a reason in a table row; two lines of them are visible."""
WAVEFORM_COLUMNS = 800
"""Columns of a waveform."""
OUTCOME_NAMES = ["passed", "failed", "errored", "unscored", "skipped"]
FILTER_NAMES = ("outcome", "model", "case", "text", "tag")
"""The query parameters that filter results."""


def draw_filters_and_get_tag_suggester(context: PageContext, run: RunDetailView) -> Callable[[Iterable[str]], None]:
    """Add the filters of a results table, with values from the address; return a function that suggests tags."""
    query = context.query

    def add_filter(name: str) -> Any:
        def apply(value: str | None) -> None:
            changed = {name: value, "page": None} | ({"case": None} if name == "text" else {})
            ui.navigate.to(f"{context.make_page_url(**changed)}#results")

        return apply

    def on_typed(label: str, name: str, value: str, hint: str) -> Any:
        made = parts.add_text_field(label, value, hint=hint)
        made.on("keydown.enter", lambda: add_filter(name)((made.value or "").strip() or None))
        return made

    with parts.open_box("filters", role="search", label="Filter results"):
        parts.add_select(
            "Outcome",
            OUTCOME_NAMES,
            _none_unless_listed(query.get("outcome"), OUTCOME_NAMES),
            add_filter("outcome"),
            clearable=True,
        )
        if len(run.models) > 1:
            parts.add_select(
                "Model",
                list(run.models),
                _none_unless_listed(query.get("model"), run.models),
                add_filter("model"),
                clearable=True,
            )
        on_typed("Case", "text", query.get("text") or query.get("case", ""), "part of its ID; press Enter")
        suggest_tags = add_suggestions(on_typed("Tag", "tag", query.get("tag", ""), "press Enter"), ())
        if any(query.get(name) for name in FILTER_NAMES):
            parts.add_link_button(
                "Clear filters", f"{context.make_page_url(**dict.fromkeys((*FILTER_NAMES, 'page')))}#results"
            )
    return suggest_tags


def _collect_kept_query(context: PageContext) -> dict[str, str]:
    """Return the filters and the page number that links carry along."""
    return {name: value for name in (*FILTER_NAMES, "page") if (value := context.query.get(name))}


def _none_unless_listed(value: str | None, options: Sequence[str]) -> str | None:
    return value if value in options else None


def render_results_list(context: PageContext, run: RunDetailView, results: Sequence[ResultView]) -> SafeHtml:
    """Return one page of results; each row links to its result and keeps the filters."""
    if results:
        return render_results_table(context.address, run, results, _collect_kept_query(context))
    if any(context.query.get(name) for name in FILTER_NAMES):
        return tag("p", "No results match these filters.", class_="quiet")
    return tag("p", "No results yet." if run.status in ACTIVE_STATUSES else "No results.", class_="quiet")


def render_results_pager(context: PageContext, meta: Mapping[str, Any]) -> SafeHtml:
    """Return the pager of the results."""
    return render_pager(meta, lambda **changed: f"{context.make_page_url(**changed)}#results", "results")


def render_results_table(
    base_url: str,
    run: RunDetailView,
    results: Iterable[ResultView],
    kept_query: Mapping[str, str] | None = None,
    caption: str = "Results",
) -> SafeHtml:
    """Return results as a table; its links keep a query."""
    several = len(run.models) > 1 or len(run.variants) > 1 or run.repeats > 1
    columns = (
        Column("Outcome"),
        Column("Case", is_row_header=True),
        *((Column("Model" if len(run.models) > 1 else "Variant"),) if several else ()),
        Column("Reply"),
        Column("Reason"),
        Column("Time", is_numeric=True),
        Column("Cost", is_numeric=True),
    )
    made = (_render_row(base_url, run, each, kept_query or {}, shows_variation=several) for each in results)
    return tag("div", render_table(caption, columns, made, hide_caption=True), class_="results")


def _render_row(
    base_url: str, run: RunDetailView, each: ResultView, kept_query: Mapping[str, str], *, shows_variation: bool
) -> tuple[HtmlChild, ...]:
    to = make_url(f"{base_url}/results/{each.seq}", **kept_query)
    said = _render_reply_excerpt(each)
    return (
        render_outcome(each.outcome),
        render_link(to, render_untrusted_text(each.case_id, 120)),
        *((render_untrusted_text(describe_variation(run, each), 160),) if shows_variation else ()),
        said,
        _render_excerpt(each.reason) if each.reason else "",
        format_duration_or_cached(each),
        format_result_cost(each),
    )


def describe_variation(run: RunDetailView, each: ResultView) -> str:
    """Return what distinguishes a result from others of the same case: model, variant, repeat."""
    return figures.describe_model_variant_and_repeat(run.models, run.variants, run.repeats, each)


def _render_reply_excerpt(each: ResultView) -> SafeHtml:
    """Return the beginning of an answer, or its tool calls if it has no text."""
    if each.output is None:
        return tag("i", "no reply", class_="quiet")
    return _render_excerpt(describe_reply(each.output, each.tool_calls))


def _render_excerpt(text: str) -> SafeHtml:
    shown = text if len(text) <= MAX_EXCERPT_CHARS else f"{text[:MAX_EXCERPT_CHARS]}…"
    return (
        tag("span", render_untrusted_text(" ".join(shown.split())), class_="clip")
        if shown.strip()
        else tag("i", "empty")
    )


def format_duration_or_cached(each: ResultView) -> str:
    """Return the duration of a result, or that it comes from the cache."""
    return "from the cache" if each.cached else figures.format_duration(each.latency_seconds)


def format_result_cost(each: ResultView) -> str:
    """Return the cost of a result, or a dash if there is no reply."""
    if each.output is None:
        return "–"
    return "unknown" if each.cost_usd is None else figures.format_cost(KnownTotal(each.cost_usd, 0))


# ── Plan ──


def render_run_plan(run: RunDetailView) -> SafeHtml:
    """Return the plan of a run, collapsed."""
    of = run.plan
    said: list[tuple[str, HtmlChild]] = [("Suite", render_untrusted_text(run.suite))]
    said += [("Suite hash", tag("span", run.suite_hash, class_="mono"))] if run.suite_hash else []
    said += [("Selection", render_untrusted_text(figures.describe_selection(run.selection)))] if run.selection else []
    said.append(("Models", join_html((_render_target(each) for each in of.targets), ", ")))
    said += [(name, _render_target(target)) for name, key in _TARGET_LABELS if (target := getattr(of, key))]
    said += [("Other judges", join_html(map(_render_target, of.other_judges), ", "))] if of.other_judges else []
    said += (
        [("Scorers", render_untrusted_text(", ".join(f"{each.name} {each.version}" for each in of.scorers)))]
        if of.scorers
        else []
    )
    said += [("Variants", ", ".join(run.variants)), ("Repeats", str(run.repeats))]
    said += [("Caller's voice", of.voice)] if any(each != "text" for each in run.variants) else []
    said += [
        (name, _render_key_values(data))
        for name, data in (("Parameters", of.parameters), ("Limits", msgspec.to_builtins(run.limits)))
        if data
    ]
    said += [("Attempts", f"{run.attempts:,}")] if run.attempts > 1 else []
    said += [("Host process", render_untrusted_text(run.holder))] if run.holder else []
    said.append(("Version", of.runner_version))
    prompt, notes = of.system_prompt, run.notes
    return tag(
        "details",
        tag("summary", "The plan: parameters, system prompt, judge, versions"),
        render_facts(said, "sheet"),
        join_html([tag("h3", "System prompt"), render_plain_prose(prompt, "System prompt")]) if prompt else None,
        join_html([tag("h3", "Notes"), render_json(notes, "Notes")]) if notes else None,
        class_="plan",
    )


_TARGET_LABELS = (("Judge", "judge"), ("Embedder", "embedder"), ("Speech recognition", "stt"))


def _render_target(target: TargetView) -> SafeHtml:
    asked = f" ({target.provider}, {target.model})"
    return join_html([render_untrusted_text(target.typed), tag("span", render_untrusted_text(asked), class_="quiet")])


def _render_key_values(data: Mapping[str, Any]) -> SafeHtml:
    return render_untrusted_text(
        ", ".join(f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in data.items())
    )


# ── Run again ──

MODALITIES_BY_VARIANT = {"text": "text", "voice": "voice", "voice+noise=10dB": "noisy"}
MAX_PROMPT_CHARS, MAX_SCENARIO_IDS, MAX_URL_CHARS = 1_500, 50, 16_000
"""Limits of an address: characters of the system prompt, ids of scenarios, characters in total."""


def make_new_run_url(run: RunDetailView, suites: Iterable[ListedSuiteView]) -> str | None:
    """Return the address of a new run with the settings of this one, given the suites of the server.

    Return None if the address cannot hold every setting: a similar run is not the same run.
    """
    who = {"model": run.models, "repeats": run.repeats if run.repeats != DEFAULTS_BY_PATH["repeats"] else None}
    found: dict[str, Any] = {}
    for each in (
        _make_cases_query(run, suites),
        who,
        _make_modality_query(run),
        _make_sampling_and_judge_query(run.plan),
        _make_limit_query(run.limits),
    ):
        if each is None:
            return None
        found |= each
    made = make_url("/runs/new", **found)
    return made if len(made) <= MAX_URL_CHARS else None


def _make_cases_query(run: RunDetailView, suites: Iterable[ListedSuiteView]) -> dict[str, Any] | None:
    """Return the parameters for tier and scenarios; None if the cases come from files or are part of a tier."""
    named, selection = run.suite, dict(run.selection)
    found: dict[str, Any] = {}
    if run.owner == "server" and run.suite_hash is None:  # the run had stored scenarios, so its filters apply to them
        named = named.removesuffix(SELECTION_SUFFIX).removesuffix("scenarios").removesuffix("+")
        found = {name: selection.pop(name, None) for name in ("type", "difficulty", "language", "tag", "text")}
        ids = selection.pop("ids", [])
        if len(ids) > MAX_SCENARIO_IDS:
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


def _make_modality_query(run: RunDetailView) -> dict[str, Any] | None:
    """Return the parameters for modalities and condition."""
    variants = run.variants
    if variants == ("text",):
        return {}
    if run.plan.voice != "espeak":
        return None
    if all(each in MODALITIES_BY_VARIANT for each in variants):
        return {"modality": [MODALITIES_BY_VARIANT[each] for each in variants]}
    aloud = [each for each in variants if each != "text"]
    if len(aloud) != 1:
        return None
    return {"modality": [each.partition("+")[0] for each in variants], "condition": aloud[0].partition("+")[2]}


def _make_sampling_and_judge_query(plan_view: PlanView) -> dict[str, Any] | None:
    """Return the parameters for sampling, system prompt, judge, embedder and speech recognition."""
    if plan_view.scorers:  # the form has no field for them
        return None
    parameters, prompt = dict(plan_view.parameters), plan_view.system_prompt or ""
    numbers = {
        published_field_name(each): parameters.pop(name, each.default) for name, each in MODEL_PARAMETER_FIELDS.items()
    }
    if parameters or len(prompt) > MAX_PROMPT_CHARS or any(each and float(each) != each for each in numbers.values()):
        return None
    return {
        **{key: target and target.typed for key in ("embedder", "stt") for target in [getattr(plan_view, key)]},
        "judge": ", ".join(each.typed for each in (plan_view.judge, *plan_view.other_judges) if each) or None,
        **{
            key: "none" if value is None else str(value)
            for key, value in numbers.items()
            if value != DEFAULTS_BY_PATH[key]
        },
        "systemPrompt": prompt,
    }


def _make_limit_query(limits: LimitsView) -> dict[str, Any] | None:
    """Return the limits that differ from the defaults; None if the form has no field for one."""
    found = {
        name: value
        for name, value in msgspec.to_builtins(limits).items()
        if value != DEFAULTS_BY_PATH.get(f"limits.{name}")
    }
    return None if "timeoutSeconds" in found else found


# ── One result ──


class _ResultPathParameters(Struct, frozen=True):
    """The path parameters of a result's page."""

    seq: Annotated[int, Meta(ge=0, le=2**63 - 1)]


@frame.register_page("/runs/{run_id}/results/{seq}", "Result")
async def show_result_page(context: PageContext) -> None:
    """Show a result, with links to the previous and the next one."""
    run_id, wanted = context.path["run_id"], context.read_request(_ResultPathParameters, {"seq": context.path["seq"]})
    run = await context.call(read_progress, run_id)
    among = context.read_request(ResultFilter, {name: context.query.get(name) for name in FILTER_NAMES})
    data, *beside = await context.call(read_result, run_id, wanted.seq, among)
    frame.set_window_title(f"{data.case_id} {run.suite}")
    crumbs = (("/runs", "Runs"), (f"/runs/{run.reference}", run.suite[:80]))
    with frame.add_page_heading(render_untrusted_text(data.case_id, 200), _render_subheading(run, data), crumbs):
        parts.add_markup(_render_neighbours(context, run.reference, *beside), classes="row")
    if data.failure:
        parts.add_markup(
            tag(
                "p",
                render_untrusted_text(data.failure.message),
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
    parts.add_markup(_render_measurement_tiles(data))
    parts.add_markup(_render_details(run, data))


# ── Position in the list ──


def _render_subheading(run: RunDetailView, data: ResultDetailView) -> SafeHtml:
    of, case = describe_variation(run, data), data.case
    facets = [case.category, case.difficulty, case.language, *case.tags]
    told = [
        render_outcome(data.outcome),
        *([render_untrusted_text(of)] if of else [render_untrusted_text(data.model, 80)]),
    ]
    told += [render_untrusted_text(case.name, 200)] if case.name and case.name != case.id else []
    told += [render_untrusted_text(each, 80) for each in facets if each]
    return join_html(told, " · ")


def _render_neighbours(context: PageContext, run_id: str, previous_seq: int | None, next_seq: int | None) -> SafeHtml:
    """Return the links to the previous and next result in the list it was opened from, and back to that list."""
    kept = _collect_kept_query(context)
    filtered = kept.keys() & set(FILTER_NAMES)
    words = f" {kept['outcome']}" if "outcome" in kept else ""

    def render_link_to(seq: int | None, label: str) -> SafeHtml | None:
        return (
            None if seq is None else render_link(make_url(f"/runs/{run_id}/results/{seq}", **kept), label, class_="btn")
        )

    back = f"{make_url(f'/runs/{run_id}', **kept)}#results"
    return join_html(
        [
            render_link_to(previous_seq, f"← Previous{words}"),
            render_link_to(next_seq, f"Next{words} →"),
            render_link(back, "Filtered results" if filtered - {"outcome"} else f"All{words} results", class_="btn"),
        ]
    )


# ── Conversation ──


async def _draw_call(context: PageContext, run_id: str, data: ResultDetailView) -> None:
    parts.add_heading("Call")
    try:
        call = await context.call(read_call, run_id, data.seq, WAVEFORM_COLUMNS)
    except UseCaseRefused as error:  # the transcript is shown without the recording
        parts.add_markup(tag("p", render_untrusted_text(parts.describe_refusal(error)), class_="warn"))
        parts.add_markup(render_exchange(data))
        return
    waveform.add_player(call)
    parts.add_markup(join_html([*render_system_prompt(data.system_prompt), *render_expected(data.case)]))


# ── Numbers and details ──


def _render_measurement_tiles(data: ResultDetailView) -> SafeHtml:
    reply = data.reply
    if not reply:
        return tag("p", "No reply, so there are no times, tokens or costs.", class_="quiet")
    cached = f"{reply.cached_tokens:,} from the provider's cache" if reply.cached_tokens else ""
    first = ("First token", figures.format_duration(data.first_token_seconds), "")
    some: list[tuple[str, HtmlChild, HtmlChild]] = [
        *(_make_call_wait_tiles(data.checks) if data.audio else ()),
        ("Duration", format_duration_or_cached(data), ""),
        *(() if data.audio else (first,)),
        ("Tokens in", figures.format_tokens(data.input_tokens), cached),
        ("Tokens out", figures.format_tokens(data.output_tokens), ""),
        ("Cost", format_result_cost(data), "" if data.cost_usd is not None else "no price is known"),
    ]
    return render_tiles(some)


def _make_call_wait_tiles(checks: Sequence[CheckView]) -> Iterator[tuple[str, HtmlChild, HtmlChild]]:
    """Yield the time that callers waited for the agent, as measured line by line by the check of the call."""
    for check in checks:
        with suppress(InvalidInput):  # written by another release
            if (
                check.name == CALL_CHECK
                and (times := measure_latency(list_latency_observations(read_measured_lines(check.evidence)))).n
            ):
                yield make_voice_to_voice_tile(times, f"longest {figures.format_bounded_time(times.max)}")


def _render_details(run: RunDetailView, data: ResultDetailView) -> SafeHtml:
    reply = data.reply
    said: list[tuple[str, HtmlChild]] = [("Model", render_untrusted_text(data.model, 200)), ("Variant", data.variant)]
    said += [("Repeat", f"{data.repeat + 1} of {run.repeats}")] if run.repeats > 1 else []
    if reply:
        served = ("Served by", reply.served_model), ("Fingerprint", reply.fingerprint)
        said += [
            (name, render_untrusted_text(each, 300))
            for name, each in (*served, ("Finish reason", reply.finish_reason))
            if each
        ]
        if reply.dropped_parameters:
            said.append(("Dropped parameters", render_untrusted_text(", ".join(reply.dropped_parameters))))
    digests = ("Case digest", data.case_digest), ("Result hash", data.result_hash), ("Digest", data.digest)
    hashes = [(name, tag("span", each, class_="mono")) for name, each in digests if each]
    raw = reply.raw if reply else None
    return join_html(
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
