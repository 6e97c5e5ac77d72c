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
from pramana.analyse.summary import MAX_REASON_LENGTH, NAMED_CASES, Dimension, Rate, Reason, Summary, Total
from pramana.analyse.voice import BENCH_RECOGNITION, Latency, VoiceSummary
from pramana.app.views import RunDetailView
from pramana.report import figures, pictures
from pramana.report.markup import (
    Child,
    Column,
    Safe,
    join,
    render_foreign_text,
    render_link,
    render_outcome,
    render_rate_bar,
    render_table,
    render_tiles,
    tag,
)
from pramana.store.queue import UNDER_WAY

DIMENSIONS: Mapping[Dimension, str] = {
    "category": "Category",
    "difficulty": "Difficulty",
    "language": "Language",
    "variant": "Variant",
    "tag": "Tag",
    "check": "Check",
}
SHOWN_MODELS = 6
"""The most models whose times are drawn; exports have the numbers of all."""
SHOWN_VOICES = 4
"""The most pairs of model and variant with waiting times in the first tiles; if there are more, none is there."""
NARROW_NAME = 40
"""Characters of a name in a tile."""
LONGEST_NAME = 80
"""Characters of a model's name beside its measurements."""
_JUDGE_AGAIN = "Re-score with another judge (no new model calls): "
_Row = TypeVar("_Row")


def render_summary(run: RunDetailView, base_url: str = "", rows: int = pictures.SHOWN_ROWS) -> Safe:
    """Return the results of a run so far: the headline, then the breakdowns, with at most `rows` rows expanded in each.

    Counts link to the filtered results at the run's address `base_url`, if given.
    """
    return join([render_headline(run, base_url), render_breakdowns(run, base_url, rows)])


def render_headline(run: RunDetailView, where: str = "") -> Safe:
    """Return the pass rate, outcomes, totals, and the reasons why results have no verdict."""
    summary = run.summary
    if summary is None:
        return Safe()
    return join(
        [
            _render_overall(run, summary, where),
            *_render_notes(run, summary),
            _render_tiles(run, summary),
            _render_undecided(run, summary),
        ]
    )


def render_breakdowns(run: RunDetailView, where: str = "", rows: int = pictures.SHOWN_ROWS) -> Safe:
    """Return the breakdowns of the pass rate, scores, times and calls."""
    summary = run.summary
    if summary is None:
        return Safe()
    return join(
        [
            _render_breakdowns(run, summary, rows, where),
            _render_scores(run, summary),
            _rubric(run, summary, rows),
            _render_times(run.aggregates, summary, run.models),
            _render_voice(run, summary),
        ]
    )


# ── Pass rates ──


def _render_overall(run: RunDetailView, summary: Summary, base_url: str) -> Safe:
    overall = summary.overall
    ended = tag("ul", (tag("li", each) for each in outcome_links(overall, base_url)), class_="outcomes")
    under_way = run.status in UNDER_WAY
    often = figures.describe_repetition(run.expected, len(run.models), run.repeats, len(run.variants))
    of_cases = tag("p", figures.pluralise_units(often), class_="quiet small") if often else None
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
        render_rate_bar(overall.value, figures.interval_bounds(overall)),
        of_cases,
        ended,
        class_="card answer",
    )


def outcome_links(counts: Rate, base_url: str = "") -> Iterator[Safe]:
    """Yield the count of each outcome, linked to its results."""
    for name in ("passed", "failed", "errored", "unscored", "skipped"):
        count = getattr(counts, name)
        if count or name in ("passed", "failed"):
            said = render_outcome(name, count)
            yield render_link(f"{base_url}?outcome={name}#results", said) if base_url else said


def order_by_plan(rows: Mapping[str, _Row], models: Sequence[str]) -> dict[str, _Row]:
    """Sort rows by model, in the order of the plan.

    >>> order_by_plan({"a": 1, "b": 2, "c": 3}, ["c", "a"])
    {'c': 3, 'a': 1, 'b': 2}
    """
    return {name: rows[name] for name in dict.fromkeys([*models, *rows]) if name in rows}


def _render_notes(run: RunDetailView, summary: Summary) -> Iterator[Safe]:
    for each in summary.mixed_judges:
        yield tag("p", "The verdicts come from several judges: ", render_foreign_text(each), class_="warn")
    if summary.judged_by:
        yield tag("p", render_foreign_text(summary.judged_by), class_="quiet small")
    if engines := figures.describe_engines(summary.engines):
        yield tag("p", render_foreign_text(engines), class_="quiet small")
    varies = summary.not_reproducible
    if varies and (run.status in UNDER_WAY or not run.notes.get("left_out")):  # otherwise the header says so
        yield tag("p", "Not reproducible: ", render_foreign_text("; ".join(varies)), ".", class_="quiet small")


def _render_undecided(run: RunDetailView, summary: Summary) -> Safe | None:
    if not summary.reasons:
        return None
    columns = (Column("Outcome"), Column("Results", number=True), Column("Why"), Column("Cases"))
    rows = (
        (
            render_outcome(each.outcome),
            f"{each.count:,}",
            render_foreign_text(each.text, MAX_REASON_LENGTH),
            tag(
                "span",
                join((render_foreign_text(case, 80) for case in each.cases), ", "),
                _describe_more(run, each),
                class_="mono",
            ),
        )
        for each in summary.reasons
    )
    command = tag("code", f"pramana rescore {run.id} --judge MODEL", class_="mono")
    return tag(
        "section",
        tag("h3", "Without a verdict"),
        render_table("Why results have no verdict, the most frequent reason first", columns, rows, hidden=True),
        tag("p", _JUDGE_AGAIN, command, class_="quiet small")
        if summary.overall.unscored and run.status not in UNDER_WAY
        else None,
    )


def _describe_more(run: RunDetailView, reason: Reason) -> str:
    """Describe the cases that are not named: their number if each has one result."""
    named = len(reason.cases)
    asked = len(run.models) * run.repeats * len(run.variants)
    more = min(reason.count, run.expected // max(1, asked)) - named
    if named < NAMED_CASES or more <= 0:
        return ""
    return f" and {more:,} more" if asked == 1 else ", …"


def _render_breakdowns(run: RunDetailView, summary: Summary, most: int, where: str = "") -> Safe | None:
    """Return the breakdowns of the pass rate, separately for each model."""
    by = {name: rows for name in DIMENSIONS if (rows := summary.breakdown(name, run.models))}
    if not by:
        return None
    links = {"tag": partial(_results_with_tag, where)} if where else {}
    several = len(run.models) > 1

    def draw_breakdown(name: Dimension, title: str) -> Safe:
        if several:
            return pictures.rates_by_model(title, by[name], most, links.get(name))
        rates = {value: rate for value, of in by[name].items() for rate in of.values()}
        return pictures.draw_rates(title, rates, most, links.get(name))

    return tag(
        "div",
        (
            tag("section", tag("h3", f"By {title.lower()}"), draw_breakdown(name, title))
            for name, title in DIMENSIONS.items()
            if name in by
        ),
        class_="stack" if several else "halves",
    )


def _results_with_tag(where: str, name: str) -> str:
    return f"{where}?{urlencode({'tag': name})}#results"


def _render_scores(run: RunDetailView, summary: Summary) -> Safe | None:
    if not summary.scores:
        return None
    several = len(run.models) > 1
    columns = (Column("Score", head=True), *([Column("Model")] if several else []), Column("Mean, or labels"))
    short = shorten_names(run.models, LONGEST_NAME)
    rows = (
        (
            render_foreign_text(name, 80),
            *([render_foreign_text(short.get(model, model))] if several else []),
            render_foreign_text(measured, 600),
        )
        for name, model, measured in figures.describe_scores(summary.scores)
    )
    return tag(
        "section",
        tag("h3", "Scores"),
        render_table("What scorers measured", columns, rows, hidden=True),
    )


def _rubric(run: RunDetailView, summary: Summary, most: int) -> Safe | None:
    rated = figures.rubric_rows(summary.rubric)
    if not rated:
        return None
    names = list(dict.fromkeys(name for each in rated for name in each.means))
    several = len(run.models) > 1
    columns = (
        Column("Replies of", head=True),
        *([Column("Model")] if several else []),
        *(Column(name.capitalize(), number=True) for name in names),
        Column("Replies", number=True),
    )
    rows = (
        (
            render_foreign_text(each.group, 80),
            *([render_foreign_text(each.model, 80)] if several else []),
            *(each.means.get(name, "–") for name in names),
            f"{each.replies:,}",
        )
        for each in rated[:most]
    )
    left_out = tag("p", f"and {len(rated) - most:,} more", class_="quiet small") if len(rated) > most else None
    return tag(
        "section",
        tag("h3", figures.RUBRIC_TITLE),
        render_table("Means of the judge's rubric scores, with 95 % intervals", columns, rows, hidden=True),
        left_out,
    )


# ── Costs and times ──


def _render_tiles(run: RunDetailView, summary: Summary) -> Safe | None:
    cost, first = summary.cost_usd, summary.first_token
    judged = any(each.known or each.unknown for each in (summary.judge_tokens, summary.judge_cost_usd))
    metered = figures.has_replies(summary) and figures.is_metered(run.plan.targets, summary)
    some: list[tuple[str, Child, Child]] = []
    if metered or judged or cost.known:
        some.append(("Cost", figures.format_cost(cost), _cost_note(summary)))
    some += _wait_tiles(run, summary)
    if metered:
        some.append(("Tokens in", figures.format_count(summary.input_tokens), _unknown_note(summary.input_tokens)))
        some.append(("Tokens out", figures.format_count(summary.output_tokens), _unknown_note(summary.output_tokens)))
    if judged:
        again = "; earlier scorings included" if summary.judged_again else ""
        note = f"{figures.format_cost(summary.judge_cost_usd)} of the cost{again}"
        some.append(("Judge tokens", figures.format_count(summary.judge_tokens), note))
    if first.count:
        note = f"p95 {figures.format_duration(first.p95)}" if first.count > 1 else ""
        some.append(("First token, median", figures.format_duration(first.p50), f"{note} (n={first.count:,})".strip()))
    if summary.cached:
        some.append(("Cached", f"{summary.cached:,}", "no request, cost or time"))
    return render_tiles(some) if some else None


def _wait_tiles(run: RunDetailView, summary: Summary) -> Iterator[tuple[str, Child, Child]]:
    """Yield a tile with the waiting times of each model and variant."""
    spoken = [each for each in _voice_summaries_in_order(run, summary) if each.voice_to_voice.n]
    if len(spoken) > SHOWN_VOICES:
        return
    models, variants = ({getattr(each, name) for each in spoken} for name in ("model", "variant"))
    short = shorten_names([*models, *variants], NARROW_NAME)
    for each in spoken:
        of = [render_foreign_text(short[each.model])] if len(models) > 1 else []
        of += [render_foreign_text(short[each.variant])] if len(variants) > 1 else []
        yield wait_tile(each.voice_to_voice, f"p95 {figures.format_bound(each.voice_to_voice.p95)}", of)


def wait_tile(times: Latency, note: str, values: Sequence[Safe] = ()) -> tuple[str, Child, Child]:
    """Return the voice-to-voice time as a tile: the median, and a note if there are several times."""
    unanswered = f", {times.censored:,} unanswered" if times.censored else ""
    count = f"(n={times.n:,}{unanswered})"
    name = "Voice to voice, median" if times.n > 1 else "Voice to voice"
    return join([name, *values], ", "), figures.format_bound(times.p50), f"{note} {count}" if times.n > 1 else count


def _voice_summaries_in_order(run: RunDetailView, summary: Summary) -> list[VoiceSummary]:
    """Return the summaries of calls, with models in the order of the plan."""
    found = summary.voice.by if summary.voice else ()
    return sorted(found, key=lambda each: _model_index(run, each.model))


def _model_index(run: RunDetailView, model: str) -> int:
    models = run.models
    return models.index(model) if model in models else len(models)


def _cost_note(summary: Summary) -> str:
    unknown, judges = summary.cost_usd.unknown, summary.judge_cost_usd.known
    if unknown:
        return f"no price is known for {pluralise(unknown, 'answer')}"
    return "judges included" if judges else ""


def _unknown_note(tokens: Total) -> str:
    return f"unknown for {pluralise(tokens.unknown, 'answer')}" if tokens.unknown else ""


def _render_times(times: RunTimes | None, summary: Summary, models: Sequence[str] = ()) -> Safe | None:
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
    left_out = max(len(each.by_model) for each in (written, waits) if each) - SHOWN_MODELS
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
    title: str, what: str, times: ModelTimes | None, models: Sequence[str], unanswered: Mapping[str, int] | None = None
) -> Iterator[Safe]:
    """Yield a chart of some times for each model, all on the same scale."""
    if not times or not times.overall.count:
        return
    by_model = order_by_plan(times.by_model, models)
    short = shorten_names([*by_model], LONGEST_NAME)
    shown = list(by_model)[:SHOWN_MODELS]
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
        yield pictures.draw_distribution(named, what, bins, by_model[model], said, highest)


# ── Calls ──


def _render_voice(run: RunDetailView, summary: Summary) -> Safe | None:
    if not (found := summary.voice):
        return None
    told = sorted(figures.describe_voice(found), key=lambda each: _model_index(run, each[0]))
    short = shorten_names([who for who, _, _ in told], LONGEST_NAME)
    said = [tag("li", render_foreign_text(short[who]), f", {how}: ", measured) for who, how, measured in told]
    if count := sum(each.by_ear for each in found.by):
        stt = run.plan.stt
        ear = render_foreign_text(stt.typed) if stt else BENCH_RECOGNITION
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
