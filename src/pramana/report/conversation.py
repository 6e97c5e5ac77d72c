"""One result in full: a case, its result and its event log in; a transcript with all checks out.

The system prompt of the run comes first, and no text is cut. For a call: the lines and answers with their times on the
recording's clock, the speech recognition's transcript, and how long the caller waited. For typed cases: the messages
and the reply. For a judge: its question and its responses. Times come from the check of the call, words from the log
and the reply; nothing is measured or judged here.
"""

from collections.abc import Callable, Iterator
from typing import Any

import click

from pramana.analyse.judgements import list_judgements
from pramana.analyse.labels import shorten_names
from pramana.analyse.scores import read_rubric_ratings
from pramana.app.calls import TranscriptEntryView, make_transcript
from pramana.model import Case, Result, Run
from pramana.report.exports import tool_calls_to_data
from pramana.report.figures import format_rubric_scores
from pramana.report.terminal import count_columns, fit_to_width, views_to_plain, wrap_text

MAX_COLUMNS = 80
_INDENT = " " * 21


def result_to_data(run: Run, case: Case, result: Result, read_blob: Callable[[str], bytes]) -> dict[str, Any]:
    """Return one result with its conversation, for programs."""
    key = result.key
    return {
        "case": case.id,
        "model": key.model,
        "variant": key.variant,
        "repeat": key.repeat,
        "outcome": result.outcome.value,
        "conversation": views_to_plain(list(_make_transcript(run, case, result, read_blob))),
        "tool_calls": tool_calls_to_data(result.reply.tool_calls) if result.reply else [],
        "failure": result.failure.message if result.failure else None,
        "checks": [
            {
                "name": check.name,
                "outcome": check.outcome.value,
                "reason": check.reason,
                "decides": check.decides,
                "judge_question": question,
                "judge_answers": list(answers),
                "rubric_scores": read_rubric_ratings(check),
            }
            for check, question, answers in list_judgements(case, result.checks)
        ],
        "caller_voice": run.plan.voice if key.variant != "text" else None,
    }


def print_conversation(run: Run, case: Case, result: Result, read_blob: Callable[[str], bytes]) -> None:
    """Print one result within 80 columns."""
    key = result.key
    which = [key.variant, *([f"repeat {key.repeat + 1}"] if run.plan.repeats > 1 else []), result.outcome.value]
    told = " · ".join(["", *which])
    room = max(20, MAX_COLUMNS - count_columns(told) - 3)
    case_id = fit_to_width(case.id, room - 12)
    # Shorten the model's name, as the rest is more useful; but keep the models of the run distinguishable.
    models = [*(target.typed for target in run.plan.targets), key.model]
    head = f"{case_id} · {shorten_names(models, room - count_columns(case_id), count_columns)[key.model]}"
    click.echo()
    click.echo(click.style(wrap_text(f"{head}{told}", MAX_COLUMNS), bold=True))
    for line in _format_transcript(run, case, result, read_blob):
        click.echo(line)
    if result.reply and result.reply.call:
        click.echo(f"  Hear it: pramana export {run.reference} --id {fit_to_width(case.id, 40)} --audio DIR")


def _make_transcript(
    run: Run, case: Case, result: Result, read_blob: Callable[[str], bytes]
) -> Iterator[TranscriptEntryView]:
    if run.plan.system_prompt:
        yield TranscriptEntryView("system", run.plan.system_prompt)
    yield from make_transcript(case, result, read_blob)


def _format_transcript(run: Run, case: Case, result: Result, read_blob: Callable[[str], bytes]) -> Iterator[str]:
    for each in _make_transcript(run, case, result, read_blob):
        at = "" if each.at_s is None else f"{each.at_s:.2f} s"
        note = f" ({each.note})" if each.note else ""
        yield from _wrap_text(f"{each.text.strip() or '(nothing)'}{note}", f"  {at:>9} {each.who:<8} ", _INDENT)
    if result.failure:
        yield wrap_text(result.failure.message, MAX_COLUMNS, f"  {result.outcome.value}: ", "    ")
    for judgement in list_judgements(case, result.checks):
        check = judgement.check
        ended = check.outcome.value if check.decides else "measured"
        yield wrap_text(
            " ".join(check.reason.split()), MAX_COLUMNS, f"  {ended} {fit_to_width(check.name, 30)}: ", "    "
        )
        if rated := format_rubric_scores(read_rubric_ratings(check)):
            yield wrap_text(rated, MAX_COLUMNS, "    rubric scores: ", "      ")
        if judgement.judge_question:
            yield from _wrap_text(judgement.judge_question, "    judge's question: ", "      ")
        for answer in judgement.responses_missing_from_reason:
            yield from _wrap_text(answer.strip() or "(nothing)", "    judge's reply: ", "      ")


def _wrap_text(text: str, first_indent: str, other_indent: str) -> Iterator[str]:
    """Yield the lines of a text, each wrapped."""
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n")):
        yield wrap_text(line, MAX_COLUMNS, other_indent if number else first_indent, other_indent).rstrip()
