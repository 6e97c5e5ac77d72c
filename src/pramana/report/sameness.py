"""The answer whether two endpoints are the same, as text for a terminal; and the progress of a test."""

from collections.abc import Iterator

from pramana.analyse.numbers import format_duration, format_percent, pluralise
from pramana.app.sameness import PairInstrumentView, ReplyCountView, SameView
from pramana.errors import escape_control_characters
from pramana.model import Outcome
from pramana.report.progress import LiveProgress
from pramana.report.terminal import fit_to_width, pad_to_width, wrap_text

MAX_ODDS = 1_000_000_000
_MAX_PROMPT_COLUMNS, _MAX_REPLY_COLUMNS = 70, 60


def render_test(view: SameView, resume_advice: str = "") -> str:
    """Return the answer and the evidence for it; `resume_advice` is how to go on with a test that ended early."""
    return "\n".join(_render_lines(view, resume_advice))


def explain_low_odds(view: SameView) -> str:
    """Return why pairs may differ although the odds are below 1 to 1; empty if no instrument has such odds."""
    if not any(each.differing and each.odds < 1 for each in view.instruments):
        return ""
    return "Odds below 1 to 1 speak for chance: replies that vary from call to call also differ without a change."


def describe_early_end(view: SameView) -> str:
    """Return that a test ended before it had its answer, and what its calls were for; empty for any other test."""
    if view.status in ("queued", "running", "finished"):
        return ""
    of_all = f" of at most {view.max_calls:,}" if view.max_calls else ""
    why = f": {view.reason.rstrip('.')}" if view.reason and view.status != "interrupted" else ""
    searched = view.calls and not view.pairs and not view.dropped and view.max_calls
    search = " These calls looked for border prompts; no pair was complete." if searched else ""
    return f"{view.status.capitalize()} after {view.calls:,}{of_all} calls{why}.{search}"


def format_odds(odds: float) -> str:
    """Format odds against chance.

    >>> format_odds(0.2), format_odds(31.4), format_odds(1e30)
    ('0.2 to 1', '31 to 1', 'over 1,000,000,000 to 1')
    """
    if odds > MAX_ODDS:
        return f"over {MAX_ODDS:,} to 1"
    return f"{odds:,.0f} to 1" if odds >= 10 else f"{odds:.2g} to 1"


def make_power_sentence(view: SameView) -> str:
    """Return what would have been seen with as many pairs; an empty text if there is nothing to say."""
    if not view.would_have_seen:
        return ""
    parts = [
        f"{'another model' if each.change == 'swap' else f'{round(100 * each.size)} % of border answers changed'} in "
        f"{format_percent(each.seen)}"
        for each in view.would_have_seen
    ]
    tries = view.would_have_seen[0].tries
    return f"In {tries} simulated tries with these replies, it would have seen: {', '.join(parts)}."


def _render_lines(view: SameView, resume_advice: str) -> Iterator[str]:
    yield wrap_text(" and ".join(map(escape_control_characters, view.models)))
    yield ""
    yield wrap_text(view.sentence)
    for each in (describe_early_end(view), make_power_sentence(view), *view.findings, *view.caveats):
        if each:
            yield wrap_text(escape_control_characters(each))
    if resume_advice:
        yield f"Resume with: {resume_advice}"
    if view.instruments:
        yield ""
        yield from _render_instruments(view)
    if view.examples:
        yield ""
        yield "Largest differences (A is the first endpoint, B the second):"
        for example in view.examples:
            yield f"  {fit_to_width(_one_line(example.prompt), _MAX_PROMPT_COLUMNS)}"
            yield f"    A  {_render_replies(example.first)}"
            yield f"    B  {_render_replies(example.second)}"
    yield ""
    yield wrap_text(_make_cost_sentence(view))


def _render_instruments(view: SameView) -> Iterator[str]:
    heads = ("Evidence", "Pairs", "Differ", "A", "B", "Odds against chance")
    rows = [_make_row(each) for each in (*view.instruments, *([view.latency] if view.latency.pairs else []))]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        cells = [
            pad_to_width(row[0], widths[0]),
            *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)),
        ]
        yield "  ".join(cells).rstrip()
    yield wrap_text(
        f"Highest odds reached by all together: {format_odds(view.odds)}; 1,000 to 1 is proof. Latency is tested on "
        "its own."
    )
    if explanation := explain_low_odds(view):
        yield wrap_text(explanation)


def _make_row(view: PairInstrumentView) -> tuple[str, ...]:
    values = [_format_value(view.name, each) for each in (view.first, view.second)]
    return (view.label, f"{view.pairs:,}", f"{view.differing:,}", *values, format_odds(view.odds))


def _format_value(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "passed":
        return format_percent(value)
    if name == "latency":
        return format_duration(value)
    return f"{value:,.0f}" if name == "length" else f"{value:.2f}"


def _render_replies(replies: tuple[ReplyCountView, ...]) -> str:
    width = max(8, _MAX_REPLY_COLUMNS // max(1, len(replies)) - 6)
    return ", ".join(f"{each.count}× {fit_to_width(_one_line(each.text), width) or '(empty)'}" for each in replies)


def _one_line(text: str) -> str:
    return escape_control_characters(" ".join(text.split()))


def _make_cost_sentence(view: SameView) -> str:
    cost = f"${view.cost_usd:.4f}" if view.cost_usd else "no cost"
    if view.is_cost_unknown:
        cost = f"{cost} and an unknown part" if view.cost_usd else "unknown cost"
    failed = sum(view.failed)
    errors = f"; {pluralise(failed, 'call')} failed, {pluralise(view.dropped, 'pair')} left out" if failed else ""
    return (
        f"Run {view.run}: {pluralise(view.calls, 'call')}, {view.input_tokens:,} input and {view.output_tokens:,} "
        f"output tokens, {cost}{errors}."
    )


class PairProgress(LiveProgress):
    """Shows the progress of a test of two endpoints: calls, failures, cost and time, without verdicts."""

    def _format_progress_note(
        self, cost_usd: float, *, unknown_cost: bool, rate_limit_wait_s: float = 0.0, call_stages: str = ""
    ) -> str:
        every_count = self.counts
        self.counts = {Outcome.ERRORED: every_count[Outcome.ERRORED]} if Outcome.ERRORED in every_count else {}
        try:
            return super()._format_progress_note(
                cost_usd, unknown_cost=unknown_cost, rate_limit_wait_s=rate_limit_wait_s, call_stages=call_stages
            )
        finally:
            self.counts = every_count
