"""Reports and comparisons in, HTML for a notebook's cell out: pass rates, failures, changes."""

from collections.abc import Sequence

from pramana.analyse.numbers import format_interval, pluralise
from pramana.analyse.summary import Rate, Summary
from pramana.app.comparison_sides import describe_request_differences
from pramana.app.comparison_tables import ComparisonTableView
from pramana.app.comparisons import FlipView, FullComparisonView
from pramana.app.views import ResultDetailView
from pramana.model import Run
from pramana.report import figures
from pramana.report.comparison_table import PAIR_HEADS, describe_pair, make_pair_cells
from pramana.report.markup import SafeHtml, join_html, render_untrusted_text, tag

SHOWN_FAILURES = 10
SHOWN_FLIPS = 20
MAX_SHOWN_TEXT_LENGTH = 300
_CELL_STYLE = "text-align: left; vertical-align: top; padding: 2px 12px 2px 0"


def render_report(run: Run, summary: Summary, failures: Sequence[ResultDetailView]) -> SafeHtml:
    """Return a run as an HTML fragment; model output is escaped."""
    rates = summary.by["model"]
    rows = [
        (render_untrusted_text(target.typed), *_make_rate_cells(rates.get(target.typed, Rate())))
        for target in run.plan.targets
    ]  # fmt: skip
    spent = figures.describe_spending(run, summary)
    parts = [
        tag("p", tag("b", render_untrusted_text(run.plan.suite)), f" · run {run.id}", f" · {spent}" if spent else ""),
        _render_table(("model", "passed", "pass rate", "95 % interval", "no verdict"), rows),
    ]
    parts += [tag("p", render_untrusted_text(each)) for each in (*summary.mixed_judges, summary.judged_by) if each]
    if run.status != "finished":
        parts.insert(1, tag("p", f"The run is {run.status}: {run.stored:,} of {run.expected:,} results."))
    if failures:
        shown = [
            (render_untrusted_text(each.case_id, 80), render_untrusted_text(each.model),
             *map(_make_text_cell, (each.case.turns[-1].text, figures.get_reply_text(each.reply), each.reason)))
            for each in failures[:SHOWN_FAILURES]
        ]  # fmt: skip
        more = f", the first {SHOWN_FAILURES}" if len(failures) > SHOWN_FAILURES else ""
        parts += [
            tag("p", f"{len(failures):,} failed{more}:"),
            _render_table(("case", "model", "prompt", "reply", "reason"), shown),
        ]
    return tag("div", join_html(parts))


def render_comparison(comparison: FullComparisonView) -> SafeHtml:
    """Return a comparison as an HTML fragment: the conclusion, the numbers behind it, and the cases that changed."""
    parts = [tag("p", render_untrusted_text(line)) for line in comparison.heading.split("\n")]
    parts += [
        tag("p", tag("b", render_untrusted_text(comparison.sentence))),
        tag("p", render_untrusted_text(comparison.detail)),
        *(tag("p", render_untrusted_text(judge)) for judge in comparison.judges),
    ]
    parts += [tag("p", comparison.reply_changes.sentence)] if comparison.reply_changes.sentence else []
    parts += [tag("p", render_untrusted_text(each.sentence)) for each in comparison.hash_mismatches]
    if differences := describe_request_differences(each.detail for each in comparison.asked_differently):
        parts.append(tag("p", render_untrusted_text(differences)))
    parts += [tag("p", render_untrusted_text(each.sentence)) for each in comparison.measured if each.sentence]
    flips = [*comparison.lost, *comparison.gained]
    if flips:
        more = f", the first {SHOWN_FLIPS}" if len(flips) > SHOWN_FLIPS else ""
        parts += [
            tag("p", f"{pluralise(len(flips), 'case')} changed{more}:"),
            _render_table(("case", "change"), [_make_flip_cells(each) for each in flips[:SHOWN_FLIPS]]),
        ]
    return tag("div", join_html(parts))


def render_comparison_table(table: ComparisonTableView) -> SafeHtml:
    """Return a table of three and more sides as an HTML fragment."""
    sides = [
        (
            render_untrusted_text(each.name),
            f"{each.passed:,} of {each.answers:,}",
            figures.format_percent(each.pass_rate),
            format_interval(each.interval),
        )
        for each in table.sides
    ]
    pairs = [
        (render_untrusted_text(describe_pair(each, table.against)), *make_pair_cells(each)) for each in table.pairs
    ]
    said = (*table.notes, *table.judges, *table.hash_mismatches)
    return tag(
        "div",
        tag("p", tag("b", render_untrusted_text(table.sentence))),
        *(tag("p", render_untrusted_text(each)) for each in said),
        _render_table(("side", "passed", "pass rate", "95 % interval"), sides),
        _render_table(("result", *(each.lower() for each in PAIR_HEADS)), pairs),
        tag("p", table.note_on_intervals),
    )


def _make_flip_cells(flip: FlipView) -> tuple[SafeHtml, SafeHtml]:
    return render_untrusted_text(flip.case, 80), render_untrusted_text(flip.detail)


def _make_rate_cells(rate: Rate) -> tuple[str, str, str, str]:
    if not rate.scored_count:
        return "–", "–", "–", f"{rate.undecided_count:,}"
    return (
        f"{rate.passed:,} of {rate.scored_count:,}",
        figures.format_percent(rate.value),
        figures.format_rate_interval(rate),
        f"{rate.undecided_count:,}",
    )


def _make_text_cell(text: str | None) -> SafeHtml:
    return render_untrusted_text(" ".join((text or "").split()), MAX_SHOWN_TEXT_LENGTH)


def _render_table(head: Sequence[str], rows: Sequence[Sequence[SafeHtml | str]]) -> SafeHtml:
    return tag(
        "table",
        tag("thead", tag("tr", (tag("th", each, style=_CELL_STYLE) for each in head))),
        tag("tbody", (tag("tr", (tag("td", each, style=_CELL_STYLE) for each in row)) for row in rows)),
    )
