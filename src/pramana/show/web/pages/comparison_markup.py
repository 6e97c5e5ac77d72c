"""Markup of a comparison: takes a view, returns the verdict, its evidence, and both replies of a case."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from pramana.analyse.labels import TWO_RUNS, make_model_labels, shorten_names
from pramana.analyse.numbers import (
    format_duration,
    format_error_rate,
    format_percent,
    format_points,
    format_time_difference,
)
from pramana.app.comparison_sides import describe_request_differences
from pramana.app.comparisons import ChangeView, ComparisonView, FlipView
from pramana.app.views import CaseView, ResultDetailView, RunView
from pramana.report.figures import reply_text
from pramana.report.markup import (
    Child,
    Column,
    Safe,
    join,
    render_foreign_text,
    render_link,
    render_outcome,
    render_table,
    render_tiles,
    render_time,
    tag,
)
from pramana.report.pictures import draw_difference
from pramana.report.prose import render_prose, render_reply
from pramana.report.result_detail import prompt_turns
from pramana.show.web.kit import make_url

VERDICTS = {
    "regression": ("▼", "failed"),
    "improvement": ("▲", "passed"),
    "no_change": ("=", "skipped"),
    "inconclusive": ("?", "unscored"),
}
"""The sign and colour of each verdict; its sentence begins with the word."""
MAX_HEAD_LENGTH = 24
"""Characters of a model's name above a column."""
_TESTS = {
    "exact McNemar": "exact McNemar test on the {}s that changed between passed and failed",
    "sign flips by case": "sign-flip test, with {}s as the units",
}
_MEDIANS = (
    "Each time is the median over all {0}s. The difference is the median of the differences of each {0}, so it can "
    "differ from the difference of the two medians, even in sign."
)
Noun = Literal["case", "answer"]


def choose_noun(base: Sequence[str], new: Sequence[str], *, left_out: bool = False) -> Noun:
    """Return the unit that is counted: cases, or answers if cases were sent in several variants.

    The variants that both sides share are compared; excluded cases are counted as answers once one side has several.

    >>> one, two = ("text",), ("text", "voice")
    >>> choose_noun(one, one), choose_noun(two, two), choose_noun(one, two), choose_noun(one, two, left_out=True)
    ('case', 'answer', 'case', 'answer')
    """
    ways = set(base), set(new)
    several = max(map(len, ways)) if left_out else len(ways[0] & ways[1])
    return "answer" if several > 1 else "case"


class SideNames(NamedTuple):
    """The names of the two sides on the page: before and now, or two models of one run."""

    base: str
    new: str
    models: bool

    def label_share(self, side: str) -> Safe:
        """Return the label of the share that a side passed."""
        return join(["Passed, ", render_foreign_text(side)]) if self.models else Safe(f"Passed {side}")

    def reply(self, side: str) -> str:
        """Return the accessible name of a side's reply."""
        return f"Reply of {side}" if self.models else f"Reply {side}"

    def head(self, side: str) -> str:
        """Return a side as a heading."""
        return side if self.models else side.capitalize()

    def phrase(self, side: str) -> str:
        """Return a side at the end of a phrase."""
        return f"for {side}" if self.models else side


def name_sides(data: ComparisonView) -> SideNames:
    """Return the names of the two sides; models of one run are called by their names, shortened alike.

    >>> from types import SimpleNamespace
    >>> name_sides(SimpleNamespace(base="r1", new="r1", base_model="gpt-5", new_model="opus"))[:2]
    ('gpt-5', 'opus')
    >>> name_sides(SimpleNamespace(base="r1", new="r2", base_model="gpt-5", new_model="opus"))[:2]
    ('before', 'now')
    """
    if data.base == data.new and data.base_model != data.new_model:
        models = make_model_labels(data.base_model, data.new_model).models
        if models:
            return SideNames(*models, models=True)
    return SideNames(TWO_RUNS.base, TWO_RUNS.new, models=False)


# ── The verdict ──


def render_verdict(data: ComparisonView, noun: Noun = "case") -> Safe:
    """Return the verdict with the difference of pass rates behind it."""
    sign, colour = VERDICTS[data.verdict]
    word, _, rest = data.sentence.partition(": ")
    said = [
        tag("h2", tag("b", sign, aria_hidden="true"), " ", render_foreign_text(word), class_=f"verdict {colour}"),
        tag("p", render_foreign_text(f"{rest[:1].upper()}{rest[1:]}")),
        *(tag("p", each.sentence) for each in (*data.times, *data.words) if each.sentence),
    ]
    if data.difference is not None and data.interval is not None and data.p_value is not None:
        low, high = data.interval
        said += [
            tag(
                "p",
                "Difference of the pass rate: ",
                tag("strong", _with_minus_sign(format_points(data.difference)), class_="number"),
                f", 95 % interval {_with_minus_sign(format_points(low))} to {_with_minus_sign(format_points(high))}.",
            ),
            draw_difference(data.difference, data.interval),
            tag("p", explain_p_value(data.p_value, data.test, noun), class_="quiet small"),
        ]
    return tag("section", said, class_="card stack", aria_label="The answer")


def explain_p_value(p_value: float, test: str | None, noun: Noun = "case") -> str:
    """Return a p-value with its test, and what it means in plain words."""
    by = _TESTS[test].format(noun) if test in _TESTS else test
    exact = "p = 1" if p_value >= 0.9995 else f"p = {p_value:.2g}" if p_value >= 1e-4 else "p < 0.0001"
    often = "every time" if p_value >= 0.9995 else _format_frequency(p_value)
    return (
        f"{exact} ({by}): if both sides were equally good, chance alone would cause at least this difference {often}."
    )


def _format_frequency(share: float) -> str:
    """Return a probability as a frequency.

    >>> _format_frequency(0.3), _format_frequency(0.002), _format_frequency(1e-9)
    ('about 30 times in 100', 'about 2 times in 1,000', 'less than once in 10,000 times')
    """
    for of in (100, 1_000, 10_000):
        if (times := round(share * of)) >= 1:
            return f"about {'once' if times == 1 else f'{times} times'} in {of:,}"
    return "less than once in 10,000 times"


def render_sides(base: RunView, new: RunView, data: ComparisonView, noun: Noun = "case") -> Safe:
    """Return both sides: their runs, and the share of compared cases that each passed."""
    sides = name_sides(data)
    return render_tiles(
        [
            (
                sides.label_share(sides.base),
                _format_passed(data.base_rate),
                _render_side(base, sides.base, data.base_model, data.base_rate, data.base_whole_rate),
            ),
            (
                sides.label_share(sides.new),
                _format_passed(data.new_rate),
                _render_side(new, sides.new, data.new_model, data.new_rate, data.new_whole_rate),
            ),
            ("Compared", f"{data.pairs:,}", f"{noun}s with a verdict on both sides, compared in pairs"),
            ("Changed", f"{data.lost + data.gained:,}", f"{data.lost:,} lost, {data.gained:,} gained"),
        ]
    )


def _format_passed(share: float | None) -> str:
    return "nothing to compare" if share is None else format_percent(share)


def _render_side(run: RunView, side: str, model: str, compared_rate: float | None, overall_rate: float | None) -> Safe:
    """Return one side, with its overall pass rate where that differs from the rate over the compared cases."""
    named = render_link(make_url(f"/runs/{run.reference}"), render_foreign_text(run.suite, 200))
    called = [] if model == side else [render_foreign_text(model, 200), tag("br")]
    said: list[Child] = [*called, named, ", ", render_time(run.created_at)]
    if format_percent(compared_rate) != format_percent(overall_rate):
        what = "the whole run" if len(run.models) == 1 else "this model in the whole run"
        said += [
            tag("br"),
            f"{'of the compared cases; ' if compared_rate is not None else ''}{what}: {format_percent(overall_rate)}",
        ]
    return join(said)


# ── Latency, and differences in setup ──


def render_request_differences(data: ComparisonView) -> Safe:
    """Return the parameters in which the two runs differ."""
    return tag(
        "p",
        render_foreign_text(describe_request_differences(each.detail for each in data.asked_differently)),
        class_="warn",
    )


def render_engine_changes(data: ComparisonView) -> Safe:
    """Return which embedded models ran on different engines, and what that means for the comparison."""
    return join(tag("p", render_foreign_text(each.sentence), class_="warn") for each in data.engine_changes)


def render_measurements(data: ComparisonView, noun: Noun = "case") -> Safe:
    """Return latencies and word error rates side by side."""
    rows = [_measurement_row(each, noun) for each in (*data.times, *data.words)]
    heading = tag("h2", "Times")
    if not rows:
        return join([heading, tag("p", "No case was timed on both sides.", class_="quiet")])
    base, new = _measurement_heads(data, noun)
    columns = (
        Column("What", head=True),
        Column(base, number=True),
        Column(new, number=True),
        Column(f"Difference, {noun} by {noun}", number=True),
        Column("95 % interval", number=True),
        Column(f"{noun.capitalize()}s", number=True),
    )
    shown = [heading, render_table(f"Measurements on both sides, paired by {noun}", columns, rows)]
    if data.times:
        shown.append(tag("p", _MEDIANS.format(noun), class_="quiet small"))
    return join(shown)


def _measurement_heads(data: ComparisonView, noun: Noun) -> tuple[str, str]:
    """Return the heads of the two columns; names of models are shortened, so that the table fits on a page."""
    sides = name_sides(data)
    if sides.models:
        short = shorten_names([data.base_model, data.new_model], MAX_HEAD_LENGTH)
        return short[data.base_model], short[data.new_model]
    return f"{sides.head(sides.base)}: value over all {noun}s", f"{sides.head(sides.new)}: value over all {noun}s"


def _measurement_row(each: ChangeView, noun: Noun) -> tuple[Child, ...]:
    timed = each.unit == "seconds"
    shown = format_duration if timed else format_error_rate
    by = format_time_difference if timed else format_points
    ends = ("no bound" if end is None else by(end) for end in each.interval or ())
    named = each.what[:1].upper() + each.what[1:]
    return (
        f"{named} ({'median' if timed else 'share of all'})",
        _format_bounds(each.base, shown),
        _format_bounds(each.new, shown),
        _with_minus_sign(_format_bounds(each.difference, by)),
        _with_minus_sign(" to ".join(ends)) or f"too few {noun}s",
        f"{each.cases:,}",
    )


def _format_bounds(given: Sequence[float | None], formatter: Any) -> str:
    """Return a number, or the range that bounds it."""
    low, high = given
    if low is not None and high is not None:
        return str(formatter(low)) if abs(high - low) < 1e-9 else f"{formatter(low)} to {formatter(high)}"
    return f"≥ {formatter(low)}" if low is not None else f"≤ {formatter(high)}" if high is not None else "unknown"


def _with_minus_sign(difference: str) -> str:
    """Return a difference with a typographic minus; the terminal uses a hyphen, which can be searched for."""
    return difference.replace("-", "−")


# ── Cases ──


def render_flip_line(flip: FlipView, sides: SideNames) -> Safe:
    """Return a changed case in one line."""
    lost = flip.direction == "lost"
    case = render_foreign_text(flip.case, 200)
    once = flip.base_in_all.answers == flip.new_in_all.answers == 1
    if once and not sides.models:
        return join([render_outcome("failed" if lost else "passed"), tag("span", " now: ", class_="quiet"), case])
    if sides.models:  # neither model is worse because it was named first
        better = render_foreign_text(sides.base if lost else sides.new)
        said = join(["passed only for " if once else "passed more often for ", better])
        colour = ""
    else:
        said = join([tag("b", "▼" if lost else "▲", aria_hidden="true"), " less often" if lost else " more often"])
        colour = "failed" if lost else "passed"
    counts = None if once else tag("span", render_foreign_text(f", {flip.detail}"), class_="quiet")
    return join([tag("span", said, ": ", class_=colour), case, counts])


def describe_flips(data: ComparisonView, sides: SideNames) -> str:
    """Return how many cases passed less and more often, or more often for each of two models."""
    if sides.models:
        lost = f"Cases that passed more often for {sides.base}: {data.lost:,}"
        return f"{lost}; for {sides.new}: {data.gained:,}. Open a case to see both replies."
    lost = f"Cases that pass less often now: {data.lost:,}"
    return f"{lost}; more often: {data.gained:,}. Open a case to see both replies."


def render_replies(pairs: Sequence[Sequence[ResultDetailView | None]], data: ComparisonView) -> Safe:
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
    return join([_render_request(first.case), *halves])


def _render_request(case: CaseView) -> Safe:
    lines = prompt_turns(case)
    prompt = "\n\n".join(each.text if len(lines) == 1 else f"{each.role}: {each.text}" for each in lines)
    expected = case.expected_outcome or "\n".join(case.ideals)
    how = case.assertion.type if case.assertion else None
    return tag(
        "div",
        tag("div", tag("h3", "Prompt"), render_prose(prompt, "Prompt")),
        tag(
            "div",
            tag("h3", f"Expected ({how})" if how else "Expected"),
            render_prose(expected or "", "Expected"),
        ),
        class_="halves",
    )


def _render_reply(sides: SideNames, side: str, run: str, result: ResultDetailView | None) -> Safe:
    head = render_foreign_text(sides.head(side))
    if result is None:
        return tag("div", tag("h3", head), tag("p", "This side has no such repeat.", class_="quiet"))
    repeat = f", repeat {result.repeat + 1}" if result.repeat else ""
    took = f" in {format_duration(result.latency_seconds)}" if result.latency_seconds is not None else ""
    link = render_link(make_url(f"/runs/{run}/results/{result.seq}"), f"Full result {sides.phrase(side)}{repeat}")
    return tag(
        "div",
        tag("h3", head, f"{repeat}: ", render_outcome(result.outcome), tag("span", took, class_="quiet")),
        _render_reply_text(result, f"{sides.reply(side)}{repeat}"),
        tag("p", render_foreign_text(result.reason, 400), class_="small quiet") if result.reason else None,
        tag("p", link),
    )


def _render_reply_text(result: ResultDetailView, label: str) -> Safe:
    """Return the text of a reply, the tools that it called instead, or that there is none."""
    if result.reply is None:
        why = result.failure.message if result.failure else "There is no reply."
        return tag("p", render_foreign_text(why), class_="warn")
    text = reply_text(result.reply) or "\n\n".join(result.reply.answers)
    if not text.strip():
        return tag("p", "The reply is empty.", class_="quiet")
    return render_reply(text, label)


def render_excluded(data: ComparisonView, any_judge: str | None, noun: Noun = "case") -> Safe:
    """Return what was excluded: the number of answers, and the first cases of each kind by name."""
    sides = name_sides(data)
    base, new = sides.phrase(sides.base), sides.phrase(sides.new)
    kinds = (
        (data.excluded, "No verdict on one side or both", "These results are errors, or no check gave a verdict."),
        (data.only_base, f"Only {base}", f"There is no result {new}."),
        (data.only_new, f"Only {new}", f"There is no result {base}."),
    )
    said = [
        _render_named_cases(title, why, noun, those.count, [render_foreign_text(case, 200) for case in those.cases])
        for those, title, why in kinds
    ]
    apart = data.apart
    if apart.count:
        names = (
            join(
                [
                    render_foreign_text(each.case, 200),
                    tag("span", f": {_join_judges(each.base)} {base}, {_join_judges(each.new)} {new}"),
                ]
            )
            for each in apart.cases
        )
        why: Child = (
            "Different judges, or versions of a check, gave these verdicts; they are compared because you chose to."
        )
        if any_judge:
            left = "Two judges may give different verdicts for the same reply, so these cases are left out. "
            why = join([left, render_link(any_judge, "Compare them anyway")])
        said.append(_render_named_cases("Judged by different judges", why, noun, apart.count, names))
    found = [each for each in said if each]
    if data.over.sentence:
        found.insert(0, tag("p", data.over.sentence))
    return join([tag("h2", "Excluded or flagged"), *found]) if found else Safe("")


def _render_named_cases(title: str, why: Child, noun: Noun, count: int, names: Any) -> Safe | None:
    if not count:
        return None
    shown = list(names)
    more = tag("p", f"and {count - len(shown):,} more", class_="quiet") if count > len(shown) else None
    summary = tag("summary", f"{title}: {count:,} {noun}{'' if count == 1 else 's'}")
    return tag("details", summary, tag("p", why), tag("ul", (tag("li", each) for each in shown), class_="lines"), more)


def _join_judges(judges: Sequence[str]) -> str:
    return " and ".join(judges) or "an unknown judge"
