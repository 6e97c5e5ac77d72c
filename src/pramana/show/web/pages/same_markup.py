"""Markup of a test of two endpoints: a view in; the answer, its evidence and the replies of both endpoints out."""

from collections.abc import Sequence

from pramana.analyse.endpoints import MIN_PAIRS
from pramana.analyse.numbers import format_duration, format_percent, pluralise
from pramana.analyse.summary import KnownTotal
from pramana.app.sameness import PairInstrumentView, PromptExampleView, ReplyCountView, SameView
from pramana.report.figures import format_cost
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    render_meter,
    render_table,
    render_tiles,
    render_untrusted_text,
    render_with_sign,
    tag,
)
from pramana.report.prose import render_plain_prose
from pramana.report.sameness import explain_low_odds, format_odds, make_power_sentence
from pramana.report.word_diff import mark_word_changes

SIGNS_BY_DECISION = {
    "different": ("✗", "failed", "Different"),
    "no_difference": ("=", "passed", "No difference seen"),
    "untested": ("?", "unscored", "Could not be tested"),
}


def render_progress(view: SameView) -> SafeHtml:
    """Return how far a test under way is."""
    most = view.max_calls or view.calls
    said = f"{view.calls:,} of at most {most:,} calls · {pluralise(view.pairs, 'pair')}"
    return tag(
        "div",
        render_meter("Calls sent", min(view.calls, most), most),
        tag("p", f"{said}. The test ends as soon as a difference is proven.", class_="small", role="status"),
        class_="card progress",
    )


def render_answer(view: SameView) -> SafeHtml:
    """Return the answer as one sentence, and what limits it."""
    is_active = view.status in ("queued", "running")
    sign, look, word = SIGNS_BY_DECISION[view.decision]
    if is_active and view.decision != "different":
        sign, look, word = "…", "skipped", "Testing"
    sentence = view.sentence
    if is_active and view.decision == "untested":
        sentence = f"{pluralise(view.pairs, 'pair')} of calls so far; an answer needs at least {MIN_PAIRS}."
    power = make_power_sentence(view)
    why = f"The run is {view.status}: {view.reason}" if view.reason and view.status != "finished" else None
    return tag(
        "section",
        tag("h2", render_with_sign(sign, word, look), class_="verdict"),
        tag("p", render_untrusted_text(sentence, 1000)),
        (tag("p", render_untrusted_text(each, 500)) for each in view.findings),
        tag("p", power, class_="quiet") if power else None,
        (tag("p", render_untrusted_text(each, 500), class_="warn") for each in view.caveats),
        tag("p", render_untrusted_text(why, 500), class_="warn") if why else None,
        class_="card stack below",
        aria_label="The answer",
    )


def render_evidence(view: SameView) -> SafeHtml:
    """Return what each instrument has seen, and what the test has cost."""
    columns = (
        Column("Evidence", is_row_header=True),
        Column("Pairs", is_numeric=True),
        Column("Differ", is_numeric=True),
        Column("First", is_numeric=True),
        Column("Second", is_numeric=True),
        Column("Odds against chance", is_numeric=True),
    )
    every = [*view.instruments, *([view.latency] if view.latency.pairs else [])]
    failed = f"{sum(view.failed):,} failed" if sum(view.failed) else ""
    tiles: list[tuple[HtmlChild, HtmlChild, HtmlChild]] = [
        ("Calls", f"{view.calls:,}", failed or (f"of at most {view.max_calls:,}" if view.max_calls else "")),
        ("Pairs", f"{view.pairs:,}", f"{view.dropped:,} left out because a call failed" if view.dropped else ""),
        ("Odds against chance", format_odds(view.odds), "the highest reached; 1,000 to 1 is proof"),
        ("Cost", format_cost(KnownTotal(view.cost_usd, int(view.is_cost_unknown))), ""),
        ("Tokens", f"{view.input_tokens + view.output_tokens:,}", f"{view.output_tokens:,} of them output"),
    ]
    return tag(
        "section",
        tag("h2", "Evidence"),
        render_tiles(tiles),
        tag(
            "div",
            render_table("Evidence by instrument", columns, map(_make_row, every), hide_caption=True),
            class_="below",
        )
        if every
        else tag("p", "No pair of calls yet.", class_="quiet below"),
        tag(
            "p",
            "The odds may be looked at after every pair; over 1,000 to 1 together proves a difference. ",
            "Latency is tested on its own: two hosts of one model differ in speed. ",
            explain_low_odds(view),
            class_="quiet small below",
        ),
    )


def _make_row(view: PairInstrumentView) -> tuple[HtmlChild, ...]:
    values = [_format_value(view.name, each) for each in (view.first, view.second)]
    return (view.label, f"{view.pairs:,}", f"{view.differing:,}", *values, format_odds(view.odds))


def _format_value(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name == "passed":
        return format_percent(value)
    if name == "latency":
        return format_duration(value)
    return f"{value:,.0f}" if name == "length" else f"{value:.2f}"


def render_examples(view: SameView) -> SafeHtml:
    """Return the prompts with the largest differences, with the replies of both endpoints side by side."""
    if not view.examples:
        return SafeHtml()
    shown = [_render_example(number, each, view.models) for number, each in enumerate(view.examples, 1)]
    return tag("section", tag("h2", "Replies side by side"), shown)


def _render_example(number: int, example: PromptExampleView, models: Sequence[str]) -> SafeHtml:
    both = (example.first, example.second)
    texts = [side[0].text if side else "" for side in both]
    marked = mark_word_changes(*texts)
    sides = (
        tag(
            "section",
            tag("h3", render_untrusted_text(model, 120)),
            shown,
            _render_other_replies(side),
        )
        for model, side, shown in zip(models, both, marked, strict=True)
    )
    return tag(
        "div",
        tag("h3", f"Prompt {number}", " (border prompt)" if example.is_border else None),
        render_plain_prose(example.prompt, f"Prompt {number}"),
        tag("div", sides, class_="halves"),
        class_="card stack below",
    )


def _render_other_replies(replies: Sequence[ReplyCountView]) -> SafeHtml:
    """Return how often each reply was given."""
    if not replies:
        return tag("p", "No reply.", class_="quiet small")
    listed = (
        tag(
            "li",
            f"{pluralise(each.count, 'time')}: ",
            render_untrusted_text(" ".join(each.text.split()) or "(empty)", 200),
        )
        for each in replies
    )
    return tag("ul", listed, class_="lines small below")
