"""One result as people read it: a case, what came of it and its event log in; a transcript with times and checks out.

Of a call: who said what and when on the recording's clock, as what it was heard, and how long the caller waited. Of
what was typed: the messages and the answer. Times are those that its check has measured, words those of the log and of
the reply; nothing is measured or judged here.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from pramana.analyse.voice import CALL, Line, lines_of
from pramana.errors import PramanaError
from pramana.model import Case, Reply, Result, Run
from pramana.report import figures
from pramana.report.terminal import fitted, width, wrapped
from pramana.score.log import Log

COLUMNS = 80
TEXT_SHOWN = 2_000
_INDENT = " " * 21


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that somebody said, or heard."""

    who: str
    text: str
    at_s: float | None = None
    """On the recording's clock; None of what was typed or not measured."""
    note: str = ""


def transcript(case: Case, result: Result, blob: Callable[[str], bytes]) -> list[Said]:
    """Return the conversation, in the order in which it began; without a reply, what was to be asked."""
    reply = result.reply
    if reply is None or reply.call is None:
        return _typed(case, reply)
    try:
        log = Log([json.loads(line) for line in blob(reply.call.log).splitlines()])
    except (PramanaError, ValueError) as error:
        return [Said("answer", reply.text, note=f"its log cannot be read: {error}")]
    measured = _measured(result)
    told, heard = log.texts("agent_text"), log.texts("user_text")
    found = [Said("agent", told[0], 0.0, "before the caller")] if told[0] else []
    for place, line in enumerate(log.lines):
        times = measured.get(place, Line())
        found.append(Said("caller", line.text, line.start, _into(times) if line.barge_in else ""))
        if heard[place + 1]:
            found.append(Said("heard as", heard[place + 1], line.start))
        written = reply.answers[place] if place < len(reply.answers) else ""
        said, at = told[place + 1], times.first_audible_s
        if said or written or at is not None:
            by_ear = "as our ear has it" if not said and written else ""
            note = "; ".join(each for each in (_waited(times), by_ear) if each)
            found.append(Said("agent", said or written or "(no words)", at or line.end, note))
            if said and written and written != said:
                found.append(Said("our ear", written, at or line.end))
        elif not line.backchannel:  # which wants no answer
            found.append(Said("agent", "(nothing)", line.end, _waited(times)))
    return sorted(found, key=lambda each: each.at_s or 0.0)


def _typed(case: Case, reply: Reply | None) -> list[Said]:
    """Return what was typed: of a script each line, which begins with the prompt, with its answer."""
    asked = [Said("user", line.text) for line in case.script] or [Said(turn.role, turn.text) for turn in case.turns]
    if reply is None:
        return asked
    took = "" if reply.cached else f"after {figures.duration(reply.total_s)}"
    if len(case.script) < 2 or not reply.answers:
        return [*asked, Said("answer", reply.text, note=took)]
    answers = [Said("answer", each) for each in reply.answers]
    answers[-1] = replace(answers[-1], note=f"{took} in all" if took else "")
    both = [each for pair in zip(asked, answers, strict=False) for each in pair]
    return [*both, *asked[len(answers) :]]  # whose answers never came


def _measured(result: Result) -> Mapping[int, Line]:
    for check in result.checks:
        if check.name == CALL and check.evidence:
            return dict(enumerate(lines_of(check.evidence)))
    return {}


def _waited(times: Line) -> str:
    if times.censored:
        return f"no answer in {figures.duration(times.waited_s)}"
    if times.cut_in:
        return "cut in"
    return "" if times.voice_to_voice_s is None else f"voice to voice {figures.duration(times.voice_to_voice_s)}"


def _into(times: Line) -> str:
    """Say what became of an answer that was talked into."""
    if times.false_interruption is not None:
        return (
            f"into the answer: the agent {'stopped for it' if times.false_interruption else 'talked on, as it should'}"
        )
    if times.yield_s is not None:
        return f"into the answer: the agent gave way in {figures.duration(times.yield_s)}"
    if times.yield_censored_s is not None:
        return f"into the answer: the agent talked on for {figures.duration(times.yield_censored_s)} and more"
    return "into the answer"


def as_data(run: Run, case: Case, result: Result, blob: Callable[[str], bytes]) -> dict[str, Any]:
    """Return one result with its conversation, for programs."""
    key = result.key
    return {
        "case": case.id,
        "model": key.model,
        "variant": key.variant,
        "repeat": key.repeat,
        "outcome": result.outcome.value,
        "conversation": [asdict(each) for each in transcript(case, result, blob)],
        "failure": result.failure.message if result.failure else None,
        "checks": [{"name": each.name, "outcome": each.outcome.value, "reason": each.reason} for each in result.checks],
        "caller_voice": run.plan.voice if key.variant != "text" else None,
    }


def print_conversation(run: Run, case: Case, result: Result, blob: Callable[[str], bytes]) -> None:
    """Print one result within 80 columns."""
    key = result.key
    which = [key.variant, *([f"repeat {key.repeat + 1}"] if run.plan.repeats > 1 else []), result.outcome.value]
    told = " · ".join(["", *which])
    room = max(20, COLUMNS - width(told) - 3)
    case_id = fitted(case.id, room - 12)
    head = f"{case_id} · {fitted(key.model, room - width(case_id))}"  # what is cut is the model: the rest tells more
    click.echo()
    click.echo(click.style(wrapped(f"{head}{told}", COLUMNS), bold=True))
    for line in _lines(case, result, blob):
        click.echo(line)
    if result.reply and result.reply.call:
        click.echo(f"  Hear it: pramana export {run.id} --id {fitted(case.id, 40)} --audio DIR")


def _lines(case: Case, result: Result, blob: Callable[[str], bytes]) -> Iterator[str]:
    for each in transcript(case, result, blob):
        at = "" if each.at_s is None else f"{each.at_s:.2f} s"
        text = each.text if len(each.text) <= TEXT_SHOWN else f"{each.text[: TEXT_SHOWN - 1]}…"
        note = f" ({each.note})" if each.note else ""
        yield wrapped(f"{text or '(nothing)'}{note}", COLUMNS, f"  {at:>9} {each.who:<8} ", _INDENT)
    if result.failure:
        yield wrapped(result.failure.message, COLUMNS, f"  {result.outcome.value}: ", "    ")
    for check in result.checks:
        reason = " ".join(check.reason.split())[:TEXT_SHOWN]
        yield wrapped(reason, COLUMNS, f"  {check.outcome.value} {fitted(check.name, 30)}: ", "    ")
