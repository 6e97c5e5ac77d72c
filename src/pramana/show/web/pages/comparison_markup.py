"""Markup of a comparison: takes a view, returns the verdict, its evidence, and both replies of a case."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from pramana.analyse.comparison import DAY_NOTE
from pramana.analyse.labels import TWO_RUN_LABELS, make_model_labels, shorten_names
from pramana.analyse.numbers import (
    format_duration,
    format_error_rate,
    format_percent,
    format_signed_points_with_unit,
    format_time_difference,
)
from pramana.app.comparison_sides import describe_request_differences
from pramana.app.comparisons import ComparisonView, FlipView, MeasuredChangeView
from pramana.app.views import CaseView, ResultDetailView, RunView
from pramana.report.figures import get_reply_text
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    join_html,
    render_link,
    render_outcome,
    render_table,
    render_tiles,
    render_time,
    render_untrusted_text,
    tag,
)
from pramana.report.pictures import draw_difference
from pramana.report.prose import render_plain_prose, render_reply
from pramana.report.result_detail import list_prompt_turns
from pramana.show.web.kit import make_url

SIGNS_BY_VERDICT = {
    "regression": ("▼", "failed"),
    "improvement": ("▲", "passed"),
    "no_change": ("=", "skipped"),
    "inconclusive": ("?", "unscored"),
}
"""The sign and colour of each verdict; its sentence begins with the word."""
MAX_HEADING_CHARS = 24
"""Characters of a model's name above a column."""
_TEST_DESCRIPTIONS = {
    "exact McNemar": "exact McNemar test on the {}s that changed between passed and failed",
    "sign flips by case": "sign-flip test, with {}s as the units",
}
_MEDIANS_NOTE = (
    "Each time is the median over all {0}s. The difference is the median of the differences of each {0}, so it can "
    "differ from the difference of the two medians, even in sign."
)
Noun = Literal["case", "answer"]


def choose_noun(base_variants: Sequence[str], new_variants: Sequence[str], *, for_excluded: bool = False) -> Noun:
    """Return the unit that is counted: cases, or answers if cases were sent in several variants.

    The variants that both sides share are compared; excluded cases are counted as answers once one side has several.

    >>> one, two = ("text",), ("text", "voice")
    >>> choose_noun(one, one), choose_noun(two, two), choose_noun(one, two), choose_noun(one, two, for_excluded=True)
    ('case', 'answer', 'case', 'answer')
    """
    ways = set(base_variants), set(new_variants)
    several = max(map(len, ways)) if for_excluded else len(ways[0] & ways[1])
    return "answer" if several > 1 else "case"


class SideNames(NamedTuple):
    """The names of the two sides on the page: before and now, or two models of one run."""

    base: str
    new: str
    are_models: bool

    def make_pass_rate_label(self, side_name: str) -> SafeHtml:
        """Return the label of the share that a side passed."""
        return (
            join_html(["Passed, ", render_untrusted_text(side_name)])
            if self.are_models
            else SafeHtml(f"Passed {side_name}")
        )

    def make_reply_label(self, side_name: str) -> str:
        """Return the accessible name of a side's reply."""
        return f"Reply of {side_name}" if self.are_models else f"Reply {side_name}"

    def make_heading(self, side_name: str) -> str:
        """Return a side as a heading."""
        return side_name if self.are_models else side_name.capitalize()

    def name_side_at_phrase_end(self, side_name: str) -> str:
        """Return a side at the end of a phrase."""
        return f"for {side_name}" if self.are_models else side_name


def name_sides(data: ComparisonView) -> SideNames:
    """Return the names of the two sides; models of one run are called by their names, shortened alike.

    >>> from types import SimpleNamespace
    >>> name_sides(SimpleNamespace(base="r1", new="r1", base_model="gpt-5", new_model="opus"))[:2]
    ('gpt-5', 'opus')
    >>> name_sides(SimpleNamespace(base="r1", new="r2", base_model="gpt-5", new_model="opus"))[:2]
    ('before', 'now')
    """
    if data.base == data.new and data.base_model != data.new_model:
        models = make_model_labels(data.base_model, data.new_model).model_labels
        if models:
            return SideNames(*models, are_models=True)
    return SideNames(TWO_RUN_LABELS.base, TWO_RUN_LABELS.new, are_models=False)


# ── The verdict ──


def render_verdict(data: ComparisonView, noun: Noun = "case") -> SafeHtml:
    """Return the verdict with the difference of pass rates behind it."""
    sign, colour = SIGNS_BY_VERDICT[data.verdict]
    word, _, rest = data.sentence.partition(": ")
    said = [
        tag("h2", tag("b", sign, aria_hidden="true"), " ", render_untrusted_text(word), class_=f"verdict {colour}"),
        tag("p", render_untrusted_text(f"{rest[:1].upper()}{rest[1:]}")),
        *(tag("p", each.sentence) for each in (*data.times, *data.words) if each.sentence),
    ]
    if data.difference is not None and data.interval is not None and data.p_value is not None:
        low, high = data.interval
        said += [
            tag(
                "p",
                "Difference of the pass rate: ",
                tag("strong", use_typographic_minus(format_signed_points_with_unit(data.difference)), class_="number"),
                f", 95 % interval {use_typographic_minus(format_signed_points_with_unit(low))} to "
                f"{use_typographic_minus(format_signed_points_with_unit(high))}.",
            ),
            draw_difference(data.difference, data.interval),
            tag("p", explain_p_value(data.p_value, data.test, noun), class_="quiet small"),
        ]
        if data.verdict in ("regression", "improvement") and not name_sides(data).are_models:
            said.append(tag("p", DAY_NOTE, class_="quiet small"))
    return tag("section", said, class_="card stack", aria_label="The answer")


def explain_p_value(p_value: float, test_name: str | None, noun: Noun = "case") -> str:
    """Return a p-value with its test, and what it means in plain words."""
    by = _TEST_DESCRIPTIONS[test_name].format(noun) if test_name in _TEST_DESCRIPTIONS else test_name
    exact = "p = 1" if p_value >= 0.9995 else f"p = {p_value:.2g}" if p_value >= 1e-4 else "p < 0.0001"
    often = "every time" if p_value >= 0.9995 else _format_frequency(p_value)
    return (
        f"{exact} ({by}): if both sides were equally good, chance alone would cause at least this difference {often}."
    )


def _format_frequency(probability: float) -> str:
    """Return a probability as a frequency.

    >>> _format_frequency(0.3), _format_frequency(0.002), _format_frequency(1e-9)
    ('about 30 times in 100', 'about 2 times in 1,000', 'less than once in 10,000 times')
    """
    for of in (100, 1_000, 10_000):
        if (times := round(probability * of)) >= 1:
            return f"about {'once' if times == 1 else f'{times} times'} in {of:,}"
    return "less than once in 10,000 times"


def render_sides(base: RunView, new: RunView, data: ComparisonView, noun: Noun = "case") -> SafeHtml:
    """Return both sides: their runs, and the share of compared cases that each passed."""
    sides = name_sides(data)
    return render_tiles(
        [
            (
                sides.make_pass_rate_label(sides.base),
                _format_pass_rate(data.base_rate),
                _render_side(base, sides.base, data.base_model, data.base_rate, data.base_whole_rate),
            ),
            (
                sides.make_pass_rate_label(sides.new),
                _format_pass_rate(data.new_rate),
                _render_side(new, sides.new, data.new_model, data.new_rate, data.new_whole_rate),
            ),
            ("Compared", f"{data.pairs:,}", f"{noun}s with a verdict on both sides, compared in pairs"),
            ("Changed", f"{data.lost + data.gained:,}", f"{data.lost:,} lost, {data.gained:,} gained"),
        ]
    )


def _format_pass_rate(rate: float | None) -> str:
    return "nothing to compare" if rate is None else format_percent(rate)


def _render_side(
    run: RunView, side_name: str, model: str, compared_rate: float | None, overall_rate: float | None
) -> SafeHtml:
    """Return one side, with its overall pass rate where that differs from the rate over the compared cases."""
    named = render_link(make_url(f"/runs/{run.reference}"), render_untrusted_text(run.suite, 200))
    called = [] if model == side_name else [render_untrusted_text(model, 200), tag("br")]
    said: list[HtmlChild] = [*called, named, ", ", render_time(run.created_at)]
    if format_percent(compared_rate) != format_percent(overall_rate):
        what = "the whole run" if len(run.models) == 1 else "this model in the whole run"
        said += [
            tag("br"),
            f"{'of the compared cases; ' if compared_rate is not None else ''}{what}: {format_percent(overall_rate)}",
        ]
    return join_html(said)


# ── Latency, and differences in setup ──


def render_request_differences(data: ComparisonView) -> SafeHtml:
    """Return the parameters in which the two runs differ."""
    return tag(
        "p",
        render_untrusted_text(describe_request_differences(each.detail for each in data.asked_differently)),
        class_="warn",
    )


def render_judge_agreement(data: ComparisonView) -> SafeHtml:
    """Return how far each judge agrees with people."""
    return join_html(tag("p", render_untrusted_text(each), class_="quiet small") for each in data.judges)


def render_engine_changes(data: ComparisonView) -> SafeHtml:
    """Return which embedded models ran on different engines, and what that means for the comparison."""
    return join_html(tag("p", render_untrusted_text(each.sentence), class_="warn") for each in data.engine_changes)


def render_measurements(data: ComparisonView, noun: Noun = "case") -> SafeHtml:
    """Return latencies and word error rates side by side."""
    rows = [_render_measurement_row(each, noun) for each in (*data.times, *data.words)]
    heading = tag("h2", "Times")
    if not rows:
        return join_html([heading, tag("p", "No case was timed on both sides.", class_="quiet")])
    base, new = _make_measurement_headings(data, noun)
    columns = (
        Column("What", is_row_header=True),
        Column(base, is_numeric=True),
        Column(new, is_numeric=True),
        Column(f"Difference, {noun} by {noun}", is_numeric=True),
        Column("95 % interval", is_numeric=True),
        Column(f"{noun.capitalize()}s", is_numeric=True),
    )
    shown = [heading, render_table(f"Measurements on both sides, paired by {noun}", columns, rows)]
    if data.times:
        shown.append(tag("p", _MEDIANS_NOTE.format(noun), class_="quiet small"))
    return join_html(shown)


def _make_measurement_headings(data: ComparisonView, noun: Noun) -> tuple[str, str]:
    """Return the heads of the two columns; names of models are shortened, so that the table fits on a page."""
    sides = name_sides(data)
    if sides.are_models:
        short = shorten_names([data.base_model, data.new_model], MAX_HEADING_CHARS)
        return short[data.base_model], short[data.new_model]
    return (
        f"{sides.make_heading(sides.base)}: value over all {noun}s",
        f"{sides.make_heading(sides.new)}: value over all {noun}s",
    )


def _render_measurement_row(each: MeasuredChangeView, noun: Noun) -> tuple[HtmlChild, ...]:
    timed = each.unit == "seconds"
    shown = format_duration if timed else format_error_rate
    by = format_time_difference if timed else format_signed_points_with_unit
    ends = ("no bound" if end is None else by(end) for end in each.interval or ())
    named = each.what[:1].upper() + each.what[1:]
    return (
        f"{named} ({'median' if timed else 'share of all'})",
        _format_bounds(each.base, shown),
        _format_bounds(each.new, shown),
        use_typographic_minus(_format_bounds(each.difference, by)),
        use_typographic_minus(" to ".join(ends)) or f"too few {noun}s",
        f"{each.cases:,}",
    )


def _format_bounds(bounds: Sequence[float | None], formatter: Any) -> str:
    """Return a number, or the range that bounds it."""
    low, high = bounds
    if low is not None and high is not None:
        return str(formatter(low)) if abs(high - low) < 1e-9 else f"{formatter(low)} to {formatter(high)}"
    return f"≥ {formatter(low)}" if low is not None else f"≤ {formatter(high)}" if high is not None else "unknown"


def use_typographic_minus(difference: str) -> str:
    """Return a difference with a typographic minus; the terminal uses a hyphen, which can be searched for."""
    return difference.replace("-", "−")


# ── Cases ──


def render_flip_line(flip: FlipView, sides: SideNames) -> SafeHtml:
    """Return a changed case in one line."""
    lost = flip.direction == "lost"
    case = render_untrusted_text(flip.case, 200)
    once = flip.base_in_all.answers == flip.new_in_all.answers == 1
    if once and not sides.are_models:
        return join_html([render_outcome("failed" if lost else "passed"), tag("span", " now: ", class_="quiet"), case])
    if sides.are_models:  # neither model is worse because it was named first
        better = render_untrusted_text(sides.base if lost else sides.new)
        said = join_html(["passed only for " if once else "passed more often for ", better])
        colour = ""
    else:
        said = join_html([tag("b", "▼" if lost else "▲", aria_hidden="true"), " less often" if lost else " more often"])
        colour = "failed" if lost else "passed"
    counts = None if once else tag("span", render_untrusted_text(f", {flip.detail}"), class_="quiet")
    return join_html([tag("span", said, ": ", class_=colour), case, counts])


def describe_flips(data: ComparisonView, sides: SideNames) -> str:
    """Return how many cases passed less and more often, or more often for each of two models."""
    if sides.are_models:
        lost = f"Cases that passed more often for {sides.base}: {data.lost:,}"
        return f"{lost}; for {sides.new}: {data.gained:,}. Open a case to see both replies."
    lost = f"Cases that pass less often now: {data.lost:,}"
    return f"{lost}; more often: {data.gained:,}. Open a case to see both replies."


def render_replies(pairs: Sequence[Sequence[ResultDetailView | None]], data: ComparisonView) -> SafeHtml:
    """Return the prompt, the expected answer and both replies side by side, one row per repeat."""
    first = next(each for pair in pairs for each in pair if each)
    sides = name_sides(data)
    both = (sides.base, data.base), (sides.new, data.new)
    halves = [
        tag(
            "div",
            (_render_reply(sides, side, run, each) for each, (side, run) in zip(pair, both, strict=True)),
            class_="halves",
        )
        for pair in pairs
    ]
    return join_html([_render_prompt_and_expected(first.case), *halves])


def _render_prompt_and_expected(case: CaseView) -> SafeHtml:
    lines = list_prompt_turns(case)
    prompt = "\n\n".join(each.text if len(lines) == 1 else f"{each.role}: {each.text}" for each in lines)
    expected = case.expected_outcome or "\n".join(case.ideals)
    how = case.assertion.type if case.assertion else None
    return tag(
        "div",
        tag("div", tag("h3", "Prompt"), render_plain_prose(prompt, "Prompt")),
        tag(
            "div",
            tag("h3", f"Expected ({how})" if how else "Expected"),
            render_plain_prose(expected or "", "Expected"),
        ),
        class_="halves",
    )


def _render_reply(sides: SideNames, side_name: str, run: str, result: ResultDetailView | None) -> SafeHtml:
    head = render_untrusted_text(sides.make_heading(side_name))
    if result is None:
        return tag("div", tag("h3", head), tag("p", "This side has no such repeat.", class_="quiet"))
    repeat = f", repeat {result.repeat + 1}" if result.repeat else ""
    took = f" in {format_duration(result.latency_seconds)}" if result.latency_seconds is not None else ""
    link = render_link(
        make_url(f"/runs/{run}/results/{result.seq}"), f"Full result {sides.name_side_at_phrase_end(side_name)}{repeat}"
    )
    return tag(
        "div",
        tag("h3", head, f"{repeat}: ", render_outcome(result.outcome), tag("span", took, class_="quiet")),
        _render_reply_text(result, f"{sides.make_reply_label(side_name)}{repeat}"),
        tag("p", render_untrusted_text(result.reason, 400), class_="small quiet") if result.reason else None,
        tag("p", link),
    )


def _render_reply_text(result: ResultDetailView, label: str) -> SafeHtml:
    """Return the text of a reply, the tools that it called instead, or that there is none."""
    if result.reply is None:
        why = result.failure.message if result.failure else "There is no reply."
        return tag("p", render_untrusted_text(why), class_="warn")
    text = get_reply_text(result.reply) or "\n\n".join(result.reply.answers)
    if not text.strip():
        return tag("p", "The reply is empty.", class_="quiet")
    return render_reply(text, label)


def render_excluded(data: ComparisonView, any_judge_url: str | None, noun: Noun = "case") -> SafeHtml:
    """Return what was excluded: the number of answers, and the first cases of each kind by name."""
    sides = name_sides(data)
    base, new = sides.name_side_at_phrase_end(sides.base), sides.name_side_at_phrase_end(sides.new)
    kinds = (
        (data.excluded, "No verdict on one side or both", "These results are errors, or no check gave a verdict."),
        (data.only_base, f"Only {base}", "The other side has no result."),
        (data.only_new, f"Only {new}", "The other side has no result."),
    )
    said = [
        _render_case_list(title, why, noun, those.count, [render_untrusted_text(case, 200) for case in those.cases])
        for those, title, why in kinds
    ]
    apart = data.apart
    if apart.count:
        names = (
            join_html(
                [
                    render_untrusted_text(each.case, 200),
                    tag("span", f": {_join_judge_names(each.base)} {base}, {_join_judge_names(each.new)} {new}"),
                ]
            )
            for each in apart.cases
        )
        why: HtmlChild = (
            "Different judges, or versions of a check, gave these verdicts; they are compared because you chose to."
        )
        if any_judge_url:
            left = "Two judges may give different verdicts for the same reply, so these cases are left out. "
            why = join_html([left, render_link(any_judge_url, "Compare them anyway")])
        said.append(_render_case_list("Judged by different judges", why, noun, apart.count, names))
    found = [each for each in said if each]
    if data.over.sentence:
        found.insert(0, tag("p", data.over.sentence))
    return join_html([tag("h2", "Excluded or flagged"), *found]) if found else SafeHtml("")


def _render_case_list(title: str, reason: HtmlChild, noun: Noun, total_count: int, items: Any) -> SafeHtml | None:
    if not total_count:
        return None
    shown = list(items)
    more = tag("p", f"and {total_count - len(shown):,} more", class_="quiet") if total_count > len(shown) else None
    summary = tag("summary", f"{title}: {total_count:,} {noun}{'' if total_count == 1 else 's'}")
    return tag(
        "details", summary, tag("p", reason), tag("ul", (tag("li", each) for each in shown), class_="lines"), more
    )


def _join_judge_names(judges: Sequence[str]) -> str:
    return " and ".join(judges) or "an unknown judge"
