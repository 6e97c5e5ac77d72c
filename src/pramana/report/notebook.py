"""Reports and comparisons as a notebook shows them below a cell: pass rates, what failed, what changed."""

from collections.abc import Sequence

from pramana.analyse.numbers import counted
from pramana.analyse.summary import Rate, Summary
from pramana.app.comparisons import FlipView, WholeComparisonView
from pramana.app.sides import asked_sentence
from pramana.app.views import ResultDetailView
from pramana.model import Run
from pramana.report import figures
from pramana.report.markup import Safe, foreign, join, tag

SHOWN_FAILURES = 10
SHOWN_FLIPS = 20
SHOWN_TEXT = 300
_CELL = "text-align: left; vertical-align: top; padding: 2px 12px 2px 0"


def render_report(run: Run, summary: Summary, failures: Sequence[ResultDetailView]) -> Safe:
    """Return a run as a fragment of HTML; what models wrote is text in it and nothing else."""
    rates = summary.by["model"]
    rows = [
        (foreign(target.typed), *_rate(rates.get(target.typed, Rate())))
        for target in run.plan.targets
    ]  # fmt: skip
    spent = figures.spent(run, summary)
    parts = [
        tag("p", tag("b", foreign(run.plan.suite)), f" · run {run.id}", f" · {spent}" if spent else ""),
        _table(("model", "passed", "pass rate", "95 % interval", "no verdict"), rows),
    ]
    if run.status != "finished":
        parts.insert(1, tag("p", f"The run is {run.status}: {run.stored:,} of {run.expected:,} results."))
    if failures:
        shown = [
            (foreign(each.case_id, 80), foreign(each.model), _text(each.case.turns[-1].text),
             _text(figures.reply_text(each.reply)), _text(each.reason))
            for each in failures[:SHOWN_FAILURES]
        ]  # fmt: skip
        more = f", the first {SHOWN_FAILURES}" if len(failures) > SHOWN_FAILURES else ""
        parts += [
            tag("p", f"{len(failures):,} failed{more}:"),
            _table(("case", "model", "prompt", "reply", "reason"), shown),
        ]
    return tag("div", join(parts))


def render_comparison(found: WholeComparisonView) -> Safe:
    """Return a comparison as a fragment of HTML: the answer, the numbers behind it, and the cases that changed."""
    parts = [tag("p", foreign(line)) for line in found.heading.split("\n")]
    parts += [tag("p", tag("b", foreign(found.sentence))), tag("p", foreign(found.detail))]
    parts += [tag("p", found.reply_changes.sentence)] if found.reply_changes.sentence else []
    parts += [tag("p", foreign(each.sentence)) for each in found.hash_mismatches]
    if differences := asked_sentence(each.detail for each in found.asked_differently):
        parts.append(tag("p", foreign(differences)))
    parts += [tag("p", foreign(each.sentence)) for each in found.measured if each.sentence]
    flips = [*found.lost, *found.gained]
    if flips:
        more = f", the first {SHOWN_FLIPS}" if len(flips) > SHOWN_FLIPS else ""
        parts += [
            tag("p", f"{counted(len(flips), 'case')} changed{more}:"),
            _table(("case", "change"), [_flip(each) for each in flips[:SHOWN_FLIPS]]),
        ]
    return tag("div", join(parts))


def _flip(flip: FlipView) -> tuple[Safe, Safe]:
    return foreign(flip.case, 80), foreign(flip.detail)


def _rate(rate: Rate) -> tuple[str, str, str, str]:
    if not rate.scored:
        return "–", "–", "–", f"{rate.undecided:,}"
    return f"{rate.passed:,} of {rate.scored:,}", figures.percent(rate.value), figures.span(rate), f"{rate.undecided:,}"


def _text(given: str | None) -> Safe:
    return foreign(" ".join((given or "").split()), SHOWN_TEXT)


def _table(head: Sequence[str], rows: Sequence[Sequence[Safe | str]]) -> Safe:
    return tag(
        "table",
        tag("thead", tag("tr", (tag("th", each, style=_CELL) for each in head))),
        tag("tbody", (tag("tr", (tag("td", each, style=_CELL) for each in row)) for row in rows)),
    )
