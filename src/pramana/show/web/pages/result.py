"""One result: what was asked, what came back, how it was judged, and how it sounds."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Annotated, Any

from msgspec import Meta, Struct

from pramana.analyse.voice import CALL, Latency, latency, lines_of, observations
from pramana.app.results import read_result
from pramana.app.runs import read_run
from pramana.app.views import AssertionView, CaseView, CheckView, ReplyView, ResultDetailView, RunDetailView, TurnView
from pramana.errors import InvalidInput
from pramana.model import Outcome
from pramana.report import figures
from pramana.report.markup import Child, Safe, block, foreign, join, link, outcome, tag, tiles
from pramana.show.web.kit import frame, parts, waveform
from pramana.show.web.kit.desk import Desk, Refused, address
from pramana.show.web.pages.run_results import cost, pretty, took, which
from pramana.show.web.pages.run_summary import waited

COLUMNS = 800
"""Of a waveform."""


class _Wanted(Struct, frozen=True):
    """Which result, and which of those beside it are led to."""

    seq: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    outcome: Outcome | None = None


@frame.page("/runs/{run_id}/results/{seq}", "Result")
async def result(desk: Desk) -> None:
    """Show one result, and the ways to those beside it."""
    run_id, wanted = desk.path["run_id"], desk.asked(_Wanted, {**desk.query, "seq": desk.path["seq"]})
    run = await desk.call(read_run, run_id, summary=False)
    data, *beside = await desk.call(read_result, run_id, wanted.seq, wanted.outcome)
    frame.titled(f"{data.case_id} {run.suite}")
    crumbs = (("/runs", "Runs"), (f"/runs/{run.id}", run.suite[:80]))
    with frame.head(foreign(data.case_id, 200), _about(run, data), crumbs):
        parts.show(_beside(desk, run.id, *beside), classes="row")
    if data.failure:
        parts.show(tag("p", foreign(data.failure.message), " ", _code(data.failure.code), class_="warn"))
    if data.audio:
        await _call(desk, run.id, data)
    else:
        parts.show(_written(data))
    parts.show(_checks(data.checks))
    parts.show(tag("h2", "Numbers"))
    parts.show(_numbers(data))
    parts.show(_rest(run, data))


# ── Where it stands ──


def _about(run: RunDetailView, data: ResultDetailView) -> Safe:
    of, case = which(run, data), data.case
    facets = [case.category, case.difficulty, case.language, *case.tags]
    told = [outcome(data.outcome), *([foreign(of)] if of else [foreign(data.model, 80)])]
    told += [foreign(case.name, 200)] if case.name and case.name != case.id else []
    told += [foreign(each, 80) for each in facets if each]
    return join(told, " · ")


def _beside(desk: Desk, run_id: str, previous: int | None, following: int | None) -> Safe:
    wanted = desk.query.get("outcome")
    so = f" {wanted}" if wanted else ""

    def to(seq: int | None, words: str) -> Safe | None:
        at = address(f"/runs/{run_id}/results/{seq}", outcome=wanted)
        return None if seq is None else link(at, words, class_="btn")

    back = f"{address(f'/runs/{run_id}', outcome=wanted)}#results"
    return join(
        [
            to(previous, f"← Previous{so}"),
            to(following, f"Next{so} →"),
            link(back, f"All{so} results", class_="btn"),
        ]
    )


def _code(words: str) -> Safe:
    return tag("span", words, class_="mono quiet")


# ── What was said ──


async def _call(desk: Desk, run_id: str, data: ResultDetailView) -> None:
    parts.heading("Call")
    try:
        call = (await desk.get(f"/api/runs/{run_id}/results/{data.seq}/call", columns=COLUMNS)).data
    except Refused as error:  # the words are here all the same
        parts.show(tag("p", foreign(parts.sentence(error)), class_="warn"))
        parts.show(_written(data))
        return
    waveform.player(call)
    prompt = data.system_prompt
    parts.show(join([*_system(prompt), *_expected(data.case)]))


def said_to(case: CaseView) -> Sequence[TurnView]:
    """Return what is said to whoever is tested: a script line by line, which begins with the prompt, or the turns."""
    return [TurnView(role="user", text=line.text) for line in case.script] or case.turns


def _written(data: ResultDetailView) -> Safe:
    case, reply = data.case, data.reply
    if len(case.script) > 1 and reply and reply.answers:
        return _in_turn(data, reply)
    asked = [
        join([tag("h3", each.role.capitalize()), block(each.text, f"Said by the {each.role}")])
        for each in said_to(case)
    ]
    answered = block(reply.text, "Answer") if reply else _NO_ANSWER
    return tag(
        "div",
        tag("section", tag("h2", "Asked"), _system(data.system_prompt), asked),
        tag("section", tag("h2", "Answered"), answered, _expected(case)),
        class_="halves",
    )


_NO_ANSWER = tag("p", "There is no answer.", class_="quiet")


def _in_turn(data: ResultDetailView, reply: ReplyView) -> Safe:
    """Return each line of a script beside the answer to it."""
    case, answers = data.case, reply.answers
    rows = [
        tag(
            "div",
            tag("section", tag("h3", f"Line {number}"), block(line.text, f"Said by the user, line {number}")),
            tag(
                "section",
                tag("h3", "Answer"),
                block(answers[number - 1], f"Answer to line {number}") if number <= len(answers) else _NO_ANSWER,
                _at_line(case, number),
            ),
            class_="halves",
        )
        for number, line in enumerate(said_to(case), 1)
    ]
    # What an agent says it said, and nobody heard, is no answer to a line; it is in the text all the same.
    whole = [tag("h3", "All that was answered"), block(reply.text, "All that was answered")]
    unheard = data.audio and not all(answers)
    return tag(
        "section",
        tag("h2", "Asked and answered"),
        _system(data.system_prompt),
        rows,
        whole if unheard else None,
        _in_all(case),
    )


def _system(prompt: str | None) -> list[Safe]:
    return [tag("h3", "System prompt"), block(prompt, "System prompt")] if prompt else []


def _expected(case: CaseView) -> Iterator[Safe]:
    """Yield what is expected: at each line of a script of several, and in all."""
    for number in range(1, len(case.script) + 1):
        yield from _at_line(case, number)
    yield from _in_all(case)


def _at_line(case: CaseView, number: int) -> Iterator[Safe]:
    """Yield what is expected of the answer to one of several lines; of an only line, that is expected in all."""
    return _stated(f"Expected at line {number}", _of_line(case, number) if len(case.script) > 1 else [])


def _in_all(case: CaseView) -> Iterator[Safe]:
    wanted = [*case.ideals, *([case.expected_outcome] if case.expected_outcome else [])]
    only = _of_line(case, 1) if len(case.script) == 1 else []
    return _stated("Expected", [*only, *([(case.assertion, wanted)] if wanted or case.assertion else [])])


_Expected = tuple[AssertionView | None, Sequence[str]]
"""An assertion, and the texts it looks for; without one, the texts are what a judge is told."""


def _of_line(case: CaseView, number: int) -> list[_Expected]:
    return [(each.assertion, each.ideals) for each in case.script[number - 1].expected]


def _stated(named: str, expected: Sequence[_Expected]) -> Iterator[Safe]:
    if expected:
        yield tag("h3", named)
    several, number = sum(len(wanted) for _, wanted in expected) > 1, count(1)
    for stated, wanted in expected:
        if stated:
            yield tag("p", "By ", tag("b", foreign(stated.type, 80)), class_="quiet small")
        for each in wanted:
            yield block(each, f"{named}, {next(number)}" if several else named)
        if stated and stated.schema is not None:
            yield tag("details", tag("summary", "Schema"), pretty(stated.schema, "Schema"))
        if stated and (prompt := stated.judge_prompt):
            yield tag("details", tag("summary", "What the judge is asked"), block(prompt, "Judge's prompt"))


# ── How it was judged ──


def _checks(checks: Sequence[CheckView]) -> Safe:
    if not checks:
        return join([tag("h2", "Checks"), tag("p", "Nothing checked it.", class_="quiet")])
    return join([tag("h2", "Checks"), tag("ul", (tag("li", _check(each)) for each in checks), class_="checks")])


def _check(check: CheckView) -> Safe:
    value = [f"value {_value(check)}"] if check.value is not None else []
    return tag(
        "div",
        tag("div", outcome(check.outcome), tag("b", foreign(check.name, 80)), class_="row"),
        tag("p", foreign(check.reason)),
        tag("p", " · ".join([*value, f"version {check.version}"]), class_="quiet small"),
        tag("details", tag("summary", "Evidence"), pretty(check.evidence, f"Evidence of {check.name[:80]}"))
        if check.evidence
        else None,
        class_="card",
    )


def _value(check: CheckView) -> str:
    return figures.duration(check.value) if check.name == CALL else f"{check.value:.6g}"


# ── Numbers, and what is left ──


def _numbers(data: ResultDetailView) -> Safe:
    reply = data.reply
    if not reply:
        return tag("p", "Nothing was answered, so nothing was timed, counted or paid.", class_="quiet")
    cached = f"{reply.cached_tokens:,} from the provider's cache" if reply.cached_tokens else ""
    first = ("First token", figures.duration(data.first_token_seconds), "")
    some: list[tuple[str, Child, Child]] = [
        *(_of_call(data.checks) if data.audio else ()),
        ("Took", took(data), ""),
        *(() if data.audio else (first,)),
        ("Tokens in", _count(data.input_tokens), cached),
        ("Tokens out", _count(data.output_tokens), ""),
        ("Cost", cost(data), "" if data.cost_usd is not None else "no price is known"),
    ]
    return tiles(some)


def _of_call(checks: Sequence[CheckView]) -> Iterator[tuple[str, Child, Child]]:
    """Yield how long the agent let the caller wait, as the check of the call has measured it line by line."""
    for check in checks:
        if check.name == CALL and (times := _waits(check.evidence)).n:
            yield waited(times, f"longest {figures.bound(times.max)}")


def _waits(evidence: Mapping[str, Any]) -> Latency:
    try:
        return latency(observations(lines_of(evidence)))
    except InvalidInput:  # of another release
        return Latency()


def _count(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"


def _rest(run: RunDetailView, data: ResultDetailView) -> Safe:
    reply = data.reply
    said: list[tuple[str, Child]] = [("Model", foreign(data.model, 200)), ("Variant", data.variant)]
    said += [("Repeat", f"{data.repeat + 1} of {run.repeats}")] if run.repeats > 1 else []
    if reply:
        served = ("Served by", reply.served_model), ("Fingerprint", reply.fingerprint)
        said += [(name, foreign(each, 300)) for name, each in (*served, ("Ended because", reply.finish_reason)) if each]
        if reply.dropped_parameters:
            said.append(("Would not take", foreign(", ".join(reply.dropped_parameters))))
    digests = ("Case digest", data.case_digest), ("Result hash", data.result_hash), ("Digest", data.digest)
    said += [(name, tag("span", each, class_="mono")) for name, each in digests if each]
    facts = tag("dl", (tag("div", tag("dt", name), tag("dd", value)) for name, value in said), class_="sheet")
    raw = reply.raw if reply else None
    return join(
        [
            facts,
            tag("details", tag("summary", "Raw response"), pretty(raw, "Raw response")) if raw is not None else None,
            tag("p", link(f"/api/runs/{run.id}/results/{data.seq}", "All of it as JSON"), class_="small"),
        ]
    )
