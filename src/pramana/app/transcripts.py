"""What was said in one result, and when: a case, what came of it and its event log in, a transcript out.

Of a call: who said what and when on the recording's clock, as what it was heard, and how long the caller waited. Of
what was typed: the messages and the answer. Times are those that its check has measured, words those of the log and of
the reply; nothing is measured or judged here.
"""

import json
from collections.abc import Callable, Mapping

from msgspec import field
from msgspec.structs import replace

from pramana.analyse.numbers import duration
from pramana.analyse.voice import CALL, Line, lines_of
from pramana.app.views import View
from pramana.errors import PramanaError
from pramana.model import Case, Reply, Result
from pramana.score.log import Log


class SaidView(View, frozen=True):
    """One thing that somebody said, or heard."""

    who: str
    text: str
    at_s: float | None = field(default=None, name="atSeconds")
    """On the recording's clock; None of what was typed or not measured."""
    note: str = ""


def transcript(case: Case, result: Result, blob: Callable[[str], bytes]) -> list[SaidView]:
    """Return the conversation, in the order in which it began; without a reply, what was to be asked."""
    reply = result.reply
    if reply is None or reply.call is None:
        return _typed(case, reply)
    try:
        log = Log([json.loads(line) for line in blob(reply.call.log).splitlines()])
    except (PramanaError, ValueError) as error:
        return [SaidView("answer", reply.text, note=f"its log cannot be read: {error}")]
    measured = _measured(result)
    told, heard = log.texts("agent_text"), log.texts("user_text")
    found = [SaidView("agent", told[0], 0.0, "before the caller")] if told[0] else []
    for place, line in enumerate(log.lines):
        times = measured.get(place, Line())
        found.append(SaidView("caller", line.text, line.start, _into(times) if line.barge_in else ""))
        if heard[place + 1]:
            found.append(SaidView("heard as", heard[place + 1], line.start))
        written = reply.answers[place] if place < len(reply.answers) else ""
        said, at = told[place + 1], times.first_audible_s
        if said or written or at is not None:
            by_ear = "as our ear has it" if not said and written else ""
            note = "; ".join(each for each in (_waited(times), by_ear) if each)
            found.append(SaidView("agent", said or written or "(no words)", at or line.end, note))
            if said and written and written != said:
                found.append(SaidView("our ear", written, at or line.end))
        elif not line.backchannel:  # which wants no answer
            found.append(SaidView("agent", "(nothing)", line.end, _waited(times)))
    return sorted(found, key=lambda each: each.at_s or 0.0)


def _typed(case: Case, reply: Reply | None) -> list[SaidView]:
    """Return what was typed: of a script each line, which begins with the prompt, with its answer."""
    asked = [SaidView("user", line.text) for line in case.script] or [
        SaidView(turn.role, turn.text) for turn in case.turns
    ]
    if reply is None:
        return asked
    took = "" if reply.cached else f"after {duration(reply.total_s)}"
    if len(case.script) < 2 or not reply.answers:
        return [*asked, SaidView("answer", reply.text, note=took)]
    answers = [SaidView("answer", each) for each in reply.answers]
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
        return f"no answer in {duration(times.waited_s)}"
    if times.cut_in:
        return "cut in"
    return "" if times.voice_to_voice_s is None else f"voice to voice {duration(times.voice_to_voice_s)}"


def _into(times: Line) -> str:
    """Say what became of an answer that was talked into."""
    if times.false_interruption is not None:
        return (
            f"into the answer: the agent {'stopped for it' if times.false_interruption else 'talked on, as it should'}"
        )
    if times.yield_s is not None:
        return f"into the answer: the agent gave way in {duration(times.yield_s)}"
    if times.yield_censored_s is not None:
        return f"into the answer: the agent talked on for {duration(times.yield_censored_s)} and more"
    return "into the answer"
