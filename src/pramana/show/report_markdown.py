"""A run as Markdown for a pull request: what passed, what failed and why, what has no verdict, in one comment.

Results go in one by one, text comes out. Whatever a model or a suite wrote stands in code spans or as character
references: it cannot become markup, a link, an image or a mention of somebody.
"""

import re
from typing import TextIO

from pramana.analyse.summary import DIMENSIONS, Rate, why
from pramana.model import Case, Outcome, Result, Run
from pramana.show.exports import Results, tally_for
from pramana.show.figures import percent, printable, span, spent, title_of

SHOWN_FAILURES = 20
_OUTPUT_SHOWN = 160


def write_markdown(run: Run, results: Results, out: TextIO) -> None:
    """Write a short summary: well below the 65,536 characters of a comment, whatever the run holds."""
    tally, shown, failed = tally_for(run), list[str](), 0
    for case, result in results:
        tally.add(case, result)
        if result.outcome is Outcome.FAILED:
            failed += 1
            if len(shown) < SHOWN_FAILURES:
                shown.append(_failure_line(run, case, result))
    summary = tally.summary()
    rate = summary.overall
    out.write(f"### {_inline(title_of(run, summary))}\n\n{_unfinished(run)}")
    heads = ("", "Pass rate", "95 % interval", "Passed", "Failed", "Errored", "Unscored", "Skipped")
    out.write(_table(heads, [_rate_row(name, each) for name, each in summary.by["model"].items()]))
    if shown:
        out.write(f"\n**{failed:,} failed**\n\n" + "".join(shown))
        if failed > len(shown):
            out.write(f"- and {failed - len(shown):,} more\n")
    if summary.reasons:
        out.write(f"\n**{rate.undecided:,} without a verdict**\n\n")
        out.writelines(
            f"- {reason.count:,} {reason.outcome.value}: {_code(reason.text, _OUTPUT_SHOWN)}\n"
            for reason in summary.reasons[:SHOWN_FAILURES]
        )
    for name in DIMENSIONS:
        rows = summary.by[name]
        if name != "model" and len(rows) > 1:
            out.write(f"\n<details><summary>By {name}</summary>\n\n")
            out.write(_table(heads, [_rate_row(value, each) for value, each in list(rows.items())[:50]]))
            out.write("\n</details>\n")
    out.write(f"\n{spent(summary)}\n")
    out.writelines(f"\nNot reproducible: {_inline(note)}\n" for note in summary.not_reproducible)
    out.write(
        f"\n<sub>Run {_inline(run.id)}, {_inline(run.created)}, Pramana {_inline(run.plan.runner_version)}</sub>\n"
    )


def _unfinished(run: Run) -> str:
    if run.status == "finished":
        return ""
    why_not = f": {_inline(run.reason)}" if run.reason else ""
    return f"**{run.stored:,} of {run.expected:,} results; the run is {run.status}{why_not}**\n\n"


def _failure_line(run: Run, case: Case, result: Result) -> str:
    where = f" on {_code(result.key.model, 60)}" if len(run.plan.targets) > 1 else ""
    where += f", repeat {result.key.repeat + 1}" if run.plan.repeats > 1 else ""
    said = result.reply.text if result.reply else ""
    return f"- {_code(case.id, 60)}{where}: {_code(why(result), _OUTPUT_SHOWN)}; said {_code(said, _OUTPUT_SHOWN)}\n"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    ruler = " | ".join([":--"] + ["--:"] * (len(heads) - 1))
    lines = [" | ".join(heads), ruler, *(" | ".join(row) for row in rows)]
    return "".join(f"| {line} |\n" for line in lines)


def _rate_row(name: str, rate: Rate) -> tuple[str, ...]:
    counts = (rate.passed, rate.failed, rate.errored, rate.unscored, rate.skipped)
    return (_inline(name), percent(rate.value), span(rate), *(f"{each:,}" for each in counts))


def _code(text: str, limit: int) -> str:
    """Return text as a code span, in which nothing is markup, a link or a mention."""
    line = " ".join(printable(text).split())
    line = (line[: limit - 1] + "…" if len(line) > limit else line) or "(nothing)"
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {line} {fence}" if longest else f"{fence}{line}{fence}"


_MARKS = re.compile(r"[^\w\s.,:%-]|(?<![^\W_])_|_(?![^\W_])")


def _inline(text: str) -> str:
    """Return text for a table or a heading: as code, every mark of Markdown and HTML as a reference."""
    line = " ".join(printable(text).split())[:200]
    marked = _MARKS.sub(lambda found: f"&#{ord(found[0])};" if found[0].isascii() else found[0], line)
    return f"<code>{marked.replace('www.', 'www&#46;')}</code>" if re.search(r"[^\w\s.,:%+-]|www\.", line) else marked
