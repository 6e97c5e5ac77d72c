"""One result as markup: the view in; prompt, reply, expectation and checks out, for its page and HTML reports."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from pramana.analyse.scores import HIGHEST_RATING
from pramana.analyse.voice import CALL_CHECK
from pramana.app.views import AssertionView, CaseView, CheckView, ReplyView, ResultDetailView, TurnView
from pramana.report import figures
from pramana.report.markup import (
    HtmlChild,
    SafeHtml,
    join_html,
    render_json,
    render_outcome,
    render_preformatted,
    render_untrusted_text,
    tag,
)
from pramana.report.prose import render_plain_prose, render_reply


def list_prompt_turns(case: CaseView) -> Sequence[TurnView]:
    """Return the turns sent to the model: the lines of a script, which begins with the prompt, or the messages."""
    return [TurnView(role="user", text=line.text) for line in case.script] or case.turns


def render_exchange(result: ResultDetailView) -> SafeHtml:
    """Return the prompt beside the reply; a script line by line."""
    case, reply = result.case, result.reply
    if len(case.script) > 1 and reply and reply.answers:
        return _render_script(result, reply)
    asked = [
        join_html([tag("h3", each.role.capitalize()), render_plain_prose(each.text, f"Message of the {each.role}")])
        for each in list_prompt_turns(case)
    ]
    answered = _render_answer(reply) if reply else _NO_REPLY
    return tag(
        "div",
        tag("section", tag("h2", "Prompt"), render_system_prompt(result.system_prompt), asked),
        tag("section", tag("h2", "Reply"), answered, render_expected(case)),
        class_="halves",
    )


def _render_answer(reply: ReplyView) -> SafeHtml:
    """Return the text of a reply and its tool calls."""
    only_calls = reply.tool_calls and not reply.text.strip()
    said = tag("p", "No text.", class_="quiet") if only_calls else render_reply(reply.text, "Reply")
    return join_html([said, *_render_tool_calls(reply)])


def _render_tool_calls(reply: ReplyView) -> Iterator[SafeHtml]:
    """Yield each tool call with its arguments, indented if they are JSON."""
    for number, each in enumerate(reply.tool_calls, 1):
        yield tag("h3", "Tool call: ", render_untrusted_text(each.name, 200))
        label = f"Arguments of tool call {number}"
        try:
            yield render_json(json.loads(each.arguments), label)
        except (ValueError, RecursionError):  # model output may be any text
            yield render_preformatted(each.arguments, label)


_NO_REPLY = tag("p", "No reply.", class_="quiet")


def _render_script(result: ResultDetailView, reply: ReplyView) -> SafeHtml:
    """Return each line of a script beside its answer."""
    case, answers = result.case, reply.answers
    rows = [
        tag(
            "div",
            tag(
                "section",
                tag("h3", f"Line {number}"),
                render_plain_prose(line.text, f"Message of the user, line {number}"),
            ),
            tag(
                "section",
                tag("h3", "Reply"),
                render_reply(answers[number - 1], f"Reply to line {number}") if number <= len(answers) else _NO_REPLY,
                _render_expected_at_line(case, number),
            ),
            class_="halves",
        )
        for number, line in enumerate(list_prompt_turns(case), 1)
    ]
    # Words in the agent's transcript that were never audible do not answer a line; the reply's text has them.
    whole = [tag("h3", "Full reply"), render_reply(reply.text, "Full reply")]
    unheard = result.audio and not all(answers)
    return tag(
        "section",
        tag("h2", "Conversation"),
        render_system_prompt(result.system_prompt),
        rows,
        whole if unheard else None,
        _render_tool_calls(reply),
        _render_expected_overall(case),
    )


def render_system_prompt(prompt: str | None) -> list[SafeHtml]:
    """Return the system prompt with its heading; empty without one."""
    return [tag("h3", "System prompt"), render_plain_prose(prompt, "System prompt")] if prompt else []


def render_expected(case: CaseView) -> Iterator[SafeHtml]:
    """Yield the expectations: of each line if a script has several, and overall."""
    for number in range(1, len(case.script) + 1):
        yield from _render_expected_at_line(case, number)
    yield from _render_expected_overall(case)


def _render_expected_at_line(case: CaseView, line_number: int) -> Iterator[SafeHtml]:
    """Yield the expectations of one line's answer; those of a single line are shown overall."""
    return _render_assertions(
        f"Expected at line {line_number}", _list_line_expectations(case, line_number) if len(case.script) > 1 else []
    )


def _render_expected_overall(case: CaseView) -> Iterator[SafeHtml]:
    wanted = [*case.ideals, *([case.expected_outcome] if case.expected_outcome else [])]
    only = _list_line_expectations(case, 1) if len(case.script) == 1 else []
    return _render_assertions("Expected", [*only, *([(case.assertion, wanted)] if wanted or case.assertion else [])])


_Expectation = tuple[AssertionView | None, Sequence[str]]
"""An assertion and the texts it looks for; without an assertion, the texts are sent to a judge."""


def _list_line_expectations(case: CaseView, line_number: int) -> list[_Expectation]:
    return [(each.assertion, each.ideals) for each in case.script[line_number - 1].expected]


def _render_assertions(heading: str, expected: Sequence[_Expectation]) -> Iterator[SafeHtml]:
    if expected:
        yield tag("h3", heading)
    several, number = sum(len(wanted) for _, wanted in expected) > 1, count(1)
    for stated, wanted in expected:
        if stated:
            yield tag("p", "Checked by ", tag("b", render_untrusted_text(stated.type, 80)), class_="quiet small")
        for each in wanted:
            yield render_plain_prose(each, f"{heading}, {next(number)}" if several else heading)
        if stated and stated.schema is not None:
            yield tag("details", tag("summary", "Schema"), render_json(stated.schema, "Schema"))
        if stated and (prompt := stated.judge_prompt):
            yield tag("details", tag("summary", "Judge prompt"), render_plain_prose(prompt, "Judge prompt"))


# ── Checks ──


def render_checks(checks: Sequence[CheckView], *, evidence: bool = True) -> SafeHtml:
    """Return every check with its outcome, its reason and, optionally, its evidence."""
    if not checks:
        return join_html([tag("h2", "Checks"), tag("p", "No checks.", class_="quiet")])
    listed = tag("ul", (tag("li", render_check(each, evidence=evidence)) for each in checks), class_="checks")
    return join_html([tag("h2", "Checks"), listed])


def render_check(check: CheckView, *, evidence: bool = True) -> SafeHtml:
    """Return one check."""
    value = [f"value {_format_check_value(check)}"] if check.value is not None else []
    return tag(
        "div",
        tag("div", _render_check_outcome(check), tag("b", render_untrusted_text(check.name, 80)), class_="row"),
        tag("p", render_untrusted_text(check.reason)),
        _render_ratings(check),
        tag("p", " · ".join([*value, f"version {check.version}"]), class_="quiet small"),
        tag("details", tag("summary", "Evidence"), render_json(check.evidence, f"Evidence of {check.name[:80]}"))
        if evidence and check.evidence
        else None,
        class_="card",
    )


def _render_ratings(check: CheckView) -> SafeHtml | None:
    """Return a judge's rubric scores with its reasons."""
    if not check.rubric_scores:
        return None
    stated = check.evidence.get("reasons")
    reasons = stated if isinstance(stated, Mapping) else {}
    rows = (
        tag(
            "li",
            render_untrusted_text(name, 80),
            f" {score:.3g} of {HIGHEST_RATING}",
            *_render_reason(reasons.get(name)),
        )
        for name, score in check.rubric_scores.items()
    )
    return tag("ul", rows, class_="notes")


def _render_reason(reason: object) -> list[HtmlChild]:
    return [": ", render_untrusted_text(reason)] if isinstance(reason, str) and reason.strip() else []


def _render_check_outcome(check: CheckView) -> SafeHtml:
    """Return the outcome of a check, or that it is only a measurement."""
    return render_outcome(check.outcome) if check.decides else tag("span", "measured", class_="quiet")


def _format_check_value(check: CheckView) -> str:
    return figures.format_duration(check.value) if check.name == CALL_CHECK else f"{check.value:.6g}"
