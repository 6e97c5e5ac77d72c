"""A run as Markdown for a pull request: what passed, what failed and why, what has no verdict, in one comment.

Results in one by one, text out. Text of models and suites is put in code spans or escaped as character references, so
it cannot become markup, a link, an image or a mention.
"""

import re
from collections.abc import Sequence
from typing import TextIO

from pramana.analyse.gate import make_no_verdicts_sentence
from pramana.analyse.judgements import JudgedCheck, list_judgements
from pramana.analyse.scores import read_rubric_ratings
from pramana.analyse.summary import BREAKDOWNS, Rate, ResultTally, Summary, explain_outcome
from pramana.model import Case, Outcome, Result, Run
from pramana.report.exporters import Exporter
from pramana.report.exports import CaseResultPairs
from pramana.report.figures import (
    RUBRIC_TITLE,
    describe_call_measurements,
    describe_engines,
    describe_repeats,
    describe_scores,
    describe_spending,
    describe_verdicts_from_recording,
    describe_voice_setup,
    describe_what_intervals_count,
    escape_unprintable,
    format_percent,
    format_rate_interval,
    format_rubric_scores,
    get_reply_text,
    make_rubric_rows,
    make_title,
)

MAX_PAGE_LENGTH = 60_000
"""The longest page, in UTF-16 code units; a comment on GitHub may have 65,536."""
MAX_FAILURES_LENGTH = 45_000
"""The part of `MAX_PAGE_LENGTH` for the failures; the tables after them need the rest."""
TEXT_LENGTHS = (1_000, 500, 200, 80, 40, 20)
"""Characters shown of a prompt, a reply and a reason: the largest number with which all failures fit is used."""
SHOWN_REASONS = 20
SHOWN_ROWS = 50
MAX_SHOWN_REPRODUCIBILITY_NOTES = 10
MAX_SHOWN_MIXED_JUDGE_WARNINGS = 5
_MAX_REASON_LENGTH = 160
_TABLE_HEADS = ("Pass rate", "95 % interval", "Passed", "Failed", "Errored", "Unscored", "Skipped")


_SHORTENED_NOTE = "\n*Shortened to fit a comment; the JSON, CSV and HTML exports have the rest.*\n"


class _Page:
    """A text that grows by whole lines while there is room, and records whether lines were left out."""

    def __init__(self, room: int) -> None:
        self.text, self.is_shortened = "", False
        self._room = room

    def add(self, text: str) -> None:
        self.text += text
        self._room -= _count_utf16_units(text)

    def add_block(
        self, heading: str, lines: Sequence[str], total: int, more_line_format: str, ending: str = ""
    ) -> None:
        """Add a head, as many lines as fit, the number of further ones out of `total`, and a tail."""
        room = self._room - _count_utf16_units(heading + more_line_format + ending) - len(f"{total:,}")
        kept = []
        for line in lines:
            room -= _count_utf16_units(line)
            if room < 0:
                self.is_shortened = True
                break
            kept.append(line)
        if kept:
            left = total - len(kept)
            self.add(heading + "".join(kept) + (more_line_format.format(left) if left else "") + ending)


class _Failures:
    """The failed results as lines: with long texts if there are few, with short ones if there are many."""

    def __init__(self) -> None:
        self.count = 0
        self._lines: dict[int, list[str]] = {length: [] for length in TEXT_LENGTHS}
        self._room = dict.fromkeys(TEXT_LENGTHS, MAX_FAILURES_LENGTH)

    def add(self, run: Run, case: Case, result: Result) -> None:
        """Add a result at every length at which all failures still fit, and at the shortest while there is room."""
        self.count += 1
        for length in [each for each in self._lines if self._room[each] >= 0]:
            line = _format_failure(run, case, result, length)
            self._room[length] -= _count_utf16_units(line)
            if self._room[length] >= 0:
                self._lines[length].append(line)
            elif length != TEXT_LENGTHS[-1]:
                del self._lines[length]

    @property
    def lines(self) -> list[str]:
        """The lines with the longest texts."""
        return self._lines[max(self._lines)]


def _count_utf16_units(text: str) -> int:
    return len(text) + sum(each > "\uffff" for each in text)


def write_markdown(run: Run, results: CaseResultPairs, out: TextIO) -> None:
    """Write a summary and all failures, always within the 65,536 characters of a comment."""
    tally, failures = ResultTally.for_run(run), _Failures()
    for case, result in results:
        tally.add(case, result)
        if result.outcome is Outcome.FAILED:
            failures.add(run, case, result)
    summary = tally.summary()
    end = _format_page_footer(run, summary)
    page = _Page(MAX_PAGE_LENGTH - _count_utf16_units(end) - len(_SHORTENED_NOTE))
    page.add(f"### {_escape_inline(make_title(run, summary))}\n\n{_describe_no_verdicts(summary)}")
    page.add(f"{_describe_unfinished(run)}{_describe_judges(summary)}{_format_interval_note(run)}")
    _add_table(page, [((name,), rate) for name, rate in summary.by["model"].items()])
    page.is_shortened = len(failures.lines) < failures.count
    page.add_block(f"\n**{failures.count:,} failed**\n\n", failures.lines, failures.count, "- and {:,} more\n")
    reasons = [
        f"- {reason.count:,} {reason.outcome.value}: {_make_code_span(reason.text, _MAX_REASON_LENGTH)}\n"
        for reason in summary.reasons
    ]
    undecided = f"\n**{summary.overall.undecided_count:,} without a verdict**\n\n"
    page.add_block(undecided, reasons[:SHOWN_REASONS], len(reasons), "- and {:,} further reasons\n")
    models = [target.typed for target in run.plan.targets]
    heads = ("", "Model") if len(models) > 1 else ("",)
    for name in BREAKDOWNS:
        if by := summary.breakdown(name, models):
            rows = [((value, model)[: len(heads)], rate) for value, of in by.items() for model, rate in of.items()]
            _add_table(page, rows, heads, f"\n<details><summary>By {name}</summary>\n\n", "\n</details>\n")
    measured = [*describe_scores(summary.scores), *describe_repeats(summary.repeats)]
    lines = [
        _format_table_row((_escape_inline(name), _escape_inline(model), _escape_inline(said, 600)))
        for name, model, said in measured
    ]
    score_heads = _format_table_row(("Score", "Model", "Mean, or labels")) + _format_table_row([":--"] * 3)
    page.add_block(f"\n{score_heads}", lines[:SHOWN_ROWS], len(lines), "\nand {:,} more\n")
    _add_rubric(page, summary)
    out.write(page.text + (_SHORTENED_NOTE if page.is_shortened else "") + end)


def _add_table(
    page: _Page,
    rates: Sequence[tuple[tuple[str, ...], Rate]],
    label_heads: tuple[str, ...] = ("",),
    text_before: str = "",
    text_after: str = "",
) -> None:
    """Add a table of rates, each labelled with its model, its value, or both."""
    rows = [_format_table_row(_make_rate_row(names, rate)) for names, rate in rates[:SHOWN_ROWS]]
    head = _format_table_row((*label_heads, *_TABLE_HEADS)) + _format_table_row(
        [":--"] * len(label_heads) + ["--:"] * len(_TABLE_HEADS)
    )
    page.add_block(text_before + head, rows, len(rates), "\nand {:,} more\n", text_after)


def _add_rubric(page: _Page, summary: Summary) -> None:
    rows = make_rubric_rows(summary.rubric)
    names = list(dict.fromkeys(name for each in rows for name in each.formatted_means))
    heads = ("", "Model", *(name.capitalize() for name in names), "Replies")
    lines = [
        _format_table_row(
            (
                _escape_inline(each.group_label),
                _escape_inline(each.model),
                *(each.formatted_means.get(name, "–") for name in names),
                f"{each.reply_count:,}",
            )
        )
        for each in rows[:SHOWN_ROWS]
    ]
    table = _format_table_row(heads) + _format_table_row([":--", ":--"] + ["--:"] * (len(names) + 1))
    page.add_block(f"\n**{RUBRIC_TITLE}**\n\n{table}", lines, len(rows), "\nand {:,} more\n")


def _format_interval_note(run: Run) -> str:
    said = describe_what_intervals_count(run)
    return f"{said}\n\n" if said else ""


def _describe_no_verdicts(summary: Summary) -> str:
    sentence = make_no_verdicts_sentence(summary.overall)
    return f"**{sentence}**\n\n" if sentence else ""


def _describe_judges(summary: Summary) -> str:
    mixed = "".join(
        f"**The verdicts come from several judges: {_escape_inline(each, 300)}**\n\n"
        for each in summary.mixed_judges[:MAX_SHOWN_MIXED_JUDGE_WARNINGS]
    )
    return mixed + (f"{_escape_inline(summary.judged_by, 300)}\n\n" if summary.judged_by else "")


def _format_page_footer(run: Run, summary: Summary) -> str:
    notes = [f"\nNot reproducible: {_escape_inline(note)}\n" for note in summary.not_reproducible]
    more = (
        f"\nand {len(notes) - MAX_SHOWN_REPRODUCIBILITY_NOTES:,} more notes on what is not reproducible\n"
        if len(notes) > MAX_SHOWN_REPRODUCIBILITY_NOTES
        else ""
    )
    version = _escape_inline(run.plan.runner_version)
    made = f"Run {_escape_inline(run.reference)}, {_escape_inline(run.created)}, Pramana {version}"
    measured = describe_call_measurements(summary.voice) if summary.voice else ()
    spoken = "".join(f"\n- {_escape_inline(who)}, {_escape_inline(how)}: {what}" for who, how, what in measured)
    ear = describe_verdicts_from_recording(run, summary.voice) if summary.voice else ""
    spoken += f"\n- {_escape_inline(ear)}" if ear else ""
    aloud = describe_voice_setup(run.plan)
    heard = f"\n**Voice**{f', {_escape_inline(aloud)}' if aloud else ''}\n{spoken}\n" if spoken else ""
    ran = f"\n{_escape_inline(describe_engines(summary.engines), 600)}\n" if summary.engines else ""
    sums = f"\n{line}\n" if (line := describe_spending(run, summary)) else ""
    return f"{sums}{ran}{heard}{''.join(notes[:MAX_SHOWN_REPRODUCIBILITY_NOTES])}{more}\n<sub>{made}</sub>\n"


def _describe_unfinished(run: Run) -> str:
    if run.status == "finished":
        return ""
    why_not = f": {_escape_inline(run.reason)}" if run.reason else ""
    return f"**{run.stored:,} of {run.expected:,} results; the run is {run.status}{why_not}**\n\n"


def _format_failure(run: Run, case: Case, result: Result, max_text_length: int) -> str:
    where = f" on {_make_code_span(result.key.model, 60)}" if len(run.plan.targets) > 1 else ""
    where += f", {result.key.variant}" if result.key.variant != "text" else ""
    where += f", repeat {result.key.repeat + 1}" if run.plan.repeats > 1 else ""
    judged = "".join(_format_judgement(each, max_text_length) for each in list_judgements(case, result.checks))
    return (
        f"- {_make_code_span(case.id, 60)}{where}: "
        f"{_make_code_span_noting_length(explain_outcome(result), max_text_length)}\n"
        f"  - Prompt: {_make_code_span_noting_length(case.turns[-1].text, max_text_length)}\n"
        f"  - Reply: {_make_code_span_noting_length(get_reply_text(result.reply), max_text_length)}\n"
        f"{_format_tool_calls(result, max_text_length)}"
        f"{judged}"
    )


def _format_tool_calls(result: Result, max_text_length: int) -> str:
    """Return the tools that a model called; for a reply without text, the line before has them."""
    if result.reply is None or not result.reply.tool_calls or not result.reply.text.strip():
        return ""
    calls = ", ".join(map(str, result.reply.tool_calls))
    return f"  - Tool calls: {_make_code_span_noting_length(calls, max_text_length)}\n"


def _format_judgement(judgement: JudgedCheck, max_text_length: int) -> str:
    """Return a judge's question, responses and ratings, except those that the reason quotes."""
    asked = (
        f"  - Judge's question: {_make_code_span_noting_length(judgement.judge_question, max_text_length)}\n"
        if judgement.judge_question
        else ""
    )
    rated = format_rubric_scores(read_rubric_ratings(judgement.check))
    asked += f"  - Rubric scores: {rated}\n" if rated else ""
    return asked + "".join(
        f"  - Judge's reply: {_make_code_span_noting_length(each, max_text_length)}\n"
        for each in judgement.responses_missing_from_reason
    )


markdown_export = Exporter("markdown", ".md", write_markdown)


def _format_table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _make_rate_row(labels: tuple[str, ...], rate: Rate) -> tuple[str, ...]:
    counts = (rate.passed, rate.failed, rate.errored, rate.unscored, rate.skipped)
    return (
        *map(_escape_inline, labels),
        format_percent(rate.value),
        format_rate_interval(rate),
        *(f"{each:,}" for each in counts),
    )


def _make_code_span(text: str, max_length: int) -> str:
    """Return text as a code span, in which nothing is markup, a link or a mention."""
    line = " ".join(escape_unprintable(text).split())
    line = (line[: max_length - 1] + "…" if len(line) > max_length else line) or "(nothing)"
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {line} {fence}" if longest else f"{fence}{line}{fence}"


def _make_code_span_noting_length(text: str, max_length: int) -> str:
    """Return text as a code span; if it is cut, add its length."""
    cut = len(" ".join(escape_unprintable(text).split())) > max_length
    return (
        f"{_make_code_span(text, max_length)} ({len(text):,} characters)" if cut else _make_code_span(text, max_length)
    )


_MARKUP_RE = re.compile(r"[^\w\s.,:%-]|(?<![^\W_])_|_(?![^\W_])")


def _escape_inline(text: str, max_length: int = 200) -> str:
    """Return text for a table or a heading: as code, with Markdown and HTML characters as references."""
    line = " ".join(escape_unprintable(text).split())[:max_length]
    marked = _MARKUP_RE.sub(lambda found: f"&#{ord(found[0])};" if found[0].isascii() else found[0], line)
    is_unusual = re.search(r"[^\w\s.,:;()%+–-]|www\.", line)
    return f"<code>{marked.replace('www.', 'www&#46;')}</code>" if is_unusual else marked
