"""The results of a run as markup: a view in, markup out, for its page and for the HTML report. Pure functions.

First the pass rate of each model, with its interval and as a bar, and the results without a verdict with their reasons;
then the breakdowns, times, costs and calls.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import urlencode

from pramana.analyse.labels import shorten_names
from pramana.analyse.numbers import pluralise
from pramana.analyse.spread import ModelTimes, RunTimes
from pramana.analyse.summary import (
    MAX_NAMED_CASES,
    MAX_REASON_LENGTH,
    Dimension,
    KnownTotal,
    OutcomeReason,
    Rate,
    Summary,
)
from pramana.analyse.voice import BUILT_IN_RECOGNITION, Latency, VoiceSummary
from pramana.app.views import RunDetailView
from pramana.report import figures, pictures
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    join_html,
    render_link,
    render_outcome,
    render_rate_bar,
    render_table,
    render_tiles,
    render_untrusted_text,
    tag,
)
from pramana.store.queue import ACTIVE_STATUSES

TITLE_BY_DIMENSION: Mapping[Dimension, str] = {
    "category": "Category",
    "difficulty": "Difficulty",
    "language": "Language",
    "variant": "Variant",
    "tag": "Tag",
    "check": "Check",
}
MAX_MODELS_WITH_TIME_CHARTS = 6
"""The most models whose times are drawn; exports have the numbers of all."""
MAX_VOICE_TO_VOICE_TILES = 4
"""The most pairs of model and variant with waiting times in the first tiles; if there are more, none is there."""
MAX_TILE_NAME_LENGTH = 40
"""Characters of a name in a tile."""
MAX_NAME_LENGTH = 80
"""Characters of a model's name beside its measurements."""
_RESCORE_ADVICE = "Re-score with another judge (no new model calls): "
_Row = TypeVar("_Row")


def render_summary(run: RunDetailView, base_url: str = "", max_rows: int = pictures.MAX_UNFOLDED_ROWS) -> SafeHtml:
    """Return the results of a run so far: the headline, then the breakdowns, each with at most `max_rows` rows shown.

    Counts link to the filtered results at the run's address `base_url`, if given.
    """
    return join_html([render_headline(run, base_url), render_breakdowns(run, base_url, max_rows)])


def render_headline(run: RunDetailView, base_url: str = "") -> SafeHtml:
    """Return the pass rate, outcomes, totals, and the reasons why results have no verdict."""
    summary = run.summary
    if summary is None:
        return SafeHtml()
    return join_html(
        [
            _render_overall(run, summary, base_url),
            *_render_notes(run, summary),
            _render_tiles(run, summary),
            _render_undecided(run, summary),
        ]
    )


def render_breakdowns(run: RunDetailView, base_url: str = "", max_rows: int = pictures.MAX_UNFOLDED_ROWS) -> SafeHtml:
    """Return the breakdowns of the pass rate, scores, times and calls."""
    summary = run.summary
    if summary is None:
        return SafeHtml()
    return join_html(
        [
            _render_breakdowns(run, summary, max_rows, base_url),
            _render_scores(run, summary),
            _render_rubric(run, summary, max_rows),
            _render_times(run.aggregates, summary, run.models),
            _render_call_measurements(run, summary),
        ]
    )


# ── Pass rates ──


def _render_overall(run: RunDetailView, summary: Summary, base_url: str) -> SafeHtml:
    overall = summary.overall
    ended = tag("ul", (tag("li", each) for each in render_outcome_links(overall, base_url)), class_="outcomes")
    under_way = run.status in ACTIVE_STATUSES
    often = figures.describe_counts_per_dimension(run.expected, len(run.models), run.repeats, len(run.variants))
    of_cases = tag("p", figures.make_intervals_count_cases_note(often), class_="quiet small") if often else None
    if not overall.total and not under_way:
        words = "The run ended before any request was answered."
        return tag("div", tag("p", "No results", class_="big"), tag("p", words, class_="quiet"), class_="card")
    if len(run.models) > 1:  # rates of several models are never pooled
        rates = pictures.draw_rates("Model", order_by_plan(summary.by["model"], run.models), len(run.models))
        return tag("div", rates, of_cases, ended, class_="card answer")
    scored = overall.passed + overall.failed
    if not scored:
        words = "No verdicts yet." if under_way else "No result has a verdict."
        return tag("div", tag("p", "No verdict", class_="big"), tag("p", words, class_="quiet"), ended, class_="card")
    sure = f"With 95 % confidence the true rate is {figures.format_rate_interval(overall)}."
    return tag(
        "div",
        tag("p", figures.format_percent(overall.value), class_="big"),
        tag("p", f"passed, of {scored:,} with a verdict. {sure}", class_="quiet"),
        render_rate_bar(overall.value, figures.get_interval_bounds(overall)),
        of_cases,
        ended,
        class_="card answer",
    )


def render_outcome_links(counts: Rate, base_url: str = "") -> Iterator[SafeHtml]:
    """Yield the count of each outcome, linked to its results."""
    for name in ("passed", "failed", "errored", "unscored", "skipped"):
        count = getattr(counts, name)
        if count or name in ("passed", "failed"):
            said = render_outcome(name, count)
            yield render_link(f"{base_url}?outcome={name}#results", said) if base_url else said


def order_by_plan(rows_by_model: Mapping[str, _Row], models: Sequence[str]) -> dict[str, _Row]:
    """Sort rows by model, in the order of the plan.

    >>> order_by_plan({"a": 1, "b": 2, "c": 3}, ["c", "a"])
    {'c': 3, 'a': 1, 'b': 2}
    """
    return {name: rows_by_model[name] for name in dict.fromkeys([*models, *rows_by_model]) if name in rows_by_model}


def _render_notes(run: RunDetailView, summary: Summary) -> Iterator[SafeHtml]:
    for each in summary.mixed_judges:
        yield tag("p", "The verdicts come from several judges: ", render_untrusted_text(each), class_="warn")
    if summary.judged_by:
        yield tag("p", render_untrusted_text(summary.judged_by), class_="quiet small")
    if engines := figures.describe_engines(summary.engines):
        yield tag("p", render_untrusted_text(engines), class_="quiet small")
    varies = summary.not_reproducible
    if varies and (run.status in ACTIVE_STATUSES or not run.notes.get("left_out")):  # otherwise the header says so
        yield tag("p", "Not reproducible: ", render_untrusted_text("; ".join(varies)), ".", class_="quiet small")


def _render_undecided(run: RunDetailView, summary: Summary) -> SafeHtml | None:
    if not summary.reasons:
        return None
    columns = (Column("Outcome"), Column("Results", is_numeric=True), Column("Why"), Column("Cases"))
    rows = (
        (
            render_outcome(each.outcome),
            f"{each.count:,}",
            render_untrusted_text(each.text, MAX_REASON_LENGTH),
            tag(
                "span",
                join_html((render_untrusted_text(case, 80) for case in each.cases), ", "),
                _describe_unnamed_cases(run, each),
                class_="mono",
            ),
        )
        for each in summary.reasons
    )
    command = tag("code", f"pramana rescore {run.id} --judge MODEL", class_="mono")
    return tag(
        "section",
        tag("h3", "Without a verdict"),
        render_table("Why results have no verdict, the most frequent reason first", columns, rows, hide_caption=True),
        tag("p", _RESCORE_ADVICE, command, class_="quiet small")
        if summary.overall.unscored and run.status not in ACTIVE_STATUSES
        else None,
    )


def _describe_unnamed_cases(run: RunDetailView, reason: OutcomeReason) -> str:
    """Describe the cases that are not named: their number if each has one result."""
    named = len(reason.cases)
    asked = len(run.models) * run.repeats * len(run.variants)
    more = min(reason.count, run.expected // max(1, asked)) - named
    if named < MAX_NAMED_CASES or more <= 0:
        return ""
    return f" and {more:,} more" if asked == 1 else ", …"


def _render_breakdowns(run: RunDetailView, summary: Summary, max_rows: int, base_url: str = "") -> SafeHtml | None:
    """Return the breakdowns of the pass rate, separately for each model."""
    by = {name: rows for name in TITLE_BY_DIMENSION if (rows := summary.breakdown(name, run.models))}
    if not by:
        return None
    links = {"tag": partial(_make_tag_filter_url, base_url)} if base_url else {}
    several = len(run.models) > 1

    def draw_breakdown(name: Dimension, title: str) -> SafeHtml:
        if several:
            return pictures.draw_rates_by_model(title, by[name], max_rows, links.get(name))
        rates = {value: rate for value, of in by[name].items() for rate in of.values()}
        return pictures.draw_rates(title, rates, max_rows, links.get(name))

    return tag(
        "div",
        (
            tag("section", tag("h3", f"By {title.lower()}"), draw_breakdown(name, title))
            for name, title in TITLE_BY_DIMENSION.items()
            if name in by
        ),
        class_="stack" if several else "halves",
    )


def _make_tag_filter_url(base_url: str, tag_name: str) -> str:
    return f"{base_url}?{urlencode({'tag': tag_name})}#results"


def _render_scores(run: RunDetailView, summary: Summary) -> SafeHtml | None:
    measured_scores = [*figures.describe_repeats(summary.repeats), *figures.describe_scores(summary.scores)]
    if not measured_scores:
        return None
    several = len(run.models) > 1
    columns = (Column("Score", is_row_header=True), *([Column("Model")] if several else []), Column("Mean, or labels"))
    short = shorten_names(run.models, MAX_NAME_LENGTH)
    rows = (
        (
            render_untrusted_text(name, 80),
            *([render_untrusted_text(short.get(model, model))] if several else []),
            render_untrusted_text(measured, 600),
        )
        for name, model, measured in measured_scores
    )
    return tag(
        "section",
        tag("h3", "Scores"),
        render_table("What scorers measured", columns, rows, hide_caption=True),
    )


def _render_rubric(run: RunDetailView, summary: Summary, max_rows: int) -> SafeHtml | None:
    rated = figures.make_rubric_rows(summary.rubric)
    if not rated:
        return None
    names = list(dict.fromkeys(name for each in rated for name in each.formatted_means))
    several = len(run.models) > 1
    columns = (
        Column("Replies of", is_row_header=True),
        *([Column("Model")] if several else []),
        *(Column(name.capitalize(), is_numeric=True) for name in names),
        Column("Replies", is_numeric=True),
    )
    rows = (
        (
            render_untrusted_text(each.group_label, 80),
            *([render_untrusted_text(each.model, 80)] if several else []),
            *(each.formatted_means.get(name, "–") for name in names),
            f"{each.reply_count:,}",
        )
        for each in rated[:max_rows]
    )
    left_out = tag("p", f"and {len(rated) - max_rows:,} more", class_="quiet small") if len(rated) > max_rows else None
    return tag(
        "section",
        tag("h3", figures.RUBRIC_TITLE),
        render_table("Means of the judge's rubric scores, with 95 % intervals", columns, rows, hide_caption=True),
        left_out,
    )


# ── Costs and times ──


def _render_tiles(run: RunDetailView, summary: Summary) -> SafeHtml | None:
    cost, first = summary.cost_usd, summary.first_token
    judged = any(each.known or each.unknown for each in (summary.judge_tokens, summary.judge_cost_usd))
    metered = figures.has_replies(summary) and figures.should_show_tokens(run.plan.targets, summary)
    some: list[tuple[str, HtmlChild, HtmlChild]] = []
    if metered or judged or cost.known:
        some.append(("Cost", figures.format_cost(cost), _make_cost_tile_note(summary)))
    some += _make_voice_to_voice_tiles(run, summary)
    if metered:
        some.append(
            (
                "Tokens in",
                figures.format_partial_count(summary.input_tokens),
                _describe_unknown_tokens(summary.input_tokens),
            )
        )
        some.append(
            (
                "Tokens out",
                figures.format_partial_count(summary.output_tokens),
                _describe_unknown_tokens(summary.output_tokens),
            )
        )
    if judged:
        again = "; earlier scorings included" if summary.judged_again else ""
        note = f"{figures.format_cost(summary.judge_cost_usd)} of the cost{again}"
        some.append(("Judge tokens", figures.format_partial_count(summary.judge_tokens), note))
    if first.count:
        bound = figures.list_percentile_bounds({"p95": first.p95_at_most})
        note = f"p95 {figures.format_duration(first.p95)}, {bound}" if first.count > 1 else ""
        some.append(("First token, median", figures.format_duration(first.p50), f"{note} (n={first.count:,})".strip()))
    if summary.cached:
        some.append(("Cached", f"{summary.cached:,}", "no request, cost or time"))
    return render_tiles(some) if some else None


def _make_voice_to_voice_tiles(run: RunDetailView, summary: Summary) -> Iterator[tuple[str, HtmlChild, HtmlChild]]:
    """Yield a tile with the waiting times of each model and variant."""
    spoken = [each for each in _order_voice_summaries(run, summary) if each.voice_to_voice.n]
    if len(spoken) > MAX_VOICE_TO_VOICE_TILES:
        return
    models, variants = ({getattr(each, name) for each in spoken} for name in ("model", "variant"))
    short = shorten_names([*models, *variants], MAX_TILE_NAME_LENGTH)
    for each in spoken:
        of = [render_untrusted_text(short[each.model])] if len(models) > 1 else []
        of += [render_untrusted_text(short[each.variant])] if len(variants) > 1 else []
        bound = figures.describe_voice_bound(each.voice_to_voice)
        note = f"p95 {figures.format_bounded_time(each.voice_to_voice.p95)}"
        yield make_voice_to_voice_tile(each.voice_to_voice, f"{note}, {bound}" if bound else note, of)


def make_voice_to_voice_tile(
    times: Latency, note: str, values: Sequence[SafeHtml] = ()
) -> tuple[str, HtmlChild, HtmlChild]:
    """Return the voice-to-voice time as a tile: the median, and a note if there are several times."""
    unanswered = f", {times.censored:,} unanswered" if times.censored else ""
    count = f"(n={times.n:,}{unanswered})"
    name = "Voice to voice, median" if times.n > 1 else "Voice to voice"
    return (
        join_html([name, *values], ", "),
        figures.format_bounded_time(times.p50),
        f"{note} {count}" if times.n > 1 else count,
    )


def _order_voice_summaries(run: RunDetailView, summary: Summary) -> list[VoiceSummary]:
    """Return the summaries of calls, with models in the order of the plan."""
    found = summary.voice.by if summary.voice else ()
    return sorted(found, key=lambda each: _find_model_index(run, each.model))


def _find_model_index(run: RunDetailView, model: str) -> int:
    models = run.models
    return models.index(model) if model in models else len(models)


def _make_cost_tile_note(summary: Summary) -> str:
    unknown, judges = summary.cost_usd.unknown, summary.judge_cost_usd.known
    if unknown:
        return f"no price is known for {pluralise(unknown, 'answer')}"
    return "judges included" if judges else ""


def _describe_unknown_tokens(tokens: KnownTotal) -> str:
    return f"unknown for {pluralise(tokens.unknown, 'answer')}" if tokens.unknown else ""


def _render_times(times: RunTimes | None, summary: Summary, models: Sequence[str] = ()) -> SafeHtml | None:
    unanswered: Counter[str] = Counter()
    for each in summary.voice.by if summary.voice else ():
        unanswered[each.model] += each.voice_to_voice.censored
    written, waits = (times.latency_seconds, times.voice_to_voice_seconds) if times else (None, None)
    kinds = [
        [*_render_spreads("Latency", "answers", written, models)],
        [*_render_spreads("Voice to voice", "lines answered", waits, models, unanswered)],
    ]
    if not any(kinds):
        return None
    left_out = max(len(each.by_model) for each in (written, waits) if each) - MAX_MODELS_WITH_TIME_CHARTS
    more = (
        tag(
            "p",
            f"and {left_out:,} more model{'' if left_out == 1 else 's'}; the exports have their times",
            class_="quiet small",
        )
        if left_out > 0
        else None
    )
    # Charts that stand side by side are of one kind, on one scale.
    rows = (tag("div", drawn, class_="halves") for drawn in kinds if drawn)
    return tag("section", tag("h3", "Times"), rows, more)


def _render_spreads(
    title: str,
    timed_items_name: str,
    times: ModelTimes | None,
    models: Sequence[str],
    unanswered: Mapping[str, int] | None = None,
) -> Iterator[SafeHtml]:
    """Yield a chart of some times for each model, all on the same scale."""
    if not times or not times.overall.count:
        return
    by_model = order_by_plan(times.by_model, models)
    short = shorten_names([*by_model], MAX_NAME_LENGTH)
    shown = list(by_model)[:MAX_MODELS_WITH_TIME_CHARTS]
    highest = max((each.count for model in shown for each in times.histogram_by_model[model]), default=0)
    for model in shown:
        named = title if len(by_model) == 1 else f"{title}, {figures.escape_unprintable(short[model])}"
        missing = (unanswered or {}).get(model, 0)
        said = (
            f"{pluralise(missing, 'line')} without an answer {'has' if missing == 1 else 'have'} no time"
            if missing
            else ""
        )
        bins = times.histogram_by_model[model]
        yield pictures.draw_distribution(named, timed_items_name, bins, by_model[model], said, highest)


# ── Calls ──


def _render_call_measurements(run: RunDetailView, summary: Summary) -> SafeHtml | None:
    if not (found := summary.voice):
        return None
    told = sorted(figures.describe_call_measurements(found), key=lambda each: _find_model_index(run, each[0]))
    short = shorten_names([who for who, _, _ in told], MAX_NAME_LENGTH)
    said = [tag("li", render_untrusted_text(short[who]), f", {how}: ", measured) for who, how, measured in told]
    if count := sum(each.by_ear for each in found.by):
        stt = run.plan.stt
        ear = render_untrusted_text(stt.typed) if stt else BUILT_IN_RECOGNITION
        rests = " rests" if count == 1 else "s rest"
        said.append(
            tag(
                "li",
                f"{count:,} verdict{rests} on Pramana's own transcript (",
                ear,
                "), because the agent sent no transcript.",
            )
        )
    return tag("section", tag("h3", "Voice"), tag("ul", said, class_="notes")) if said else None
