"""Routes each case to what judges it: a case and its reply in, its checks out.

Offline assertions are evaluated here, in a thread if the output is long; `llm_judge`, `semantic_similarity` and
scenarios go to their scorers. What cannot be judged is `unscored`, with the reason; a scorer that fails is `errored`.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from pramana.assertions import check_output
from pramana.errors import PramanaError
from pramana.model import Case, Check, Outcome, Reply, Turn
from pramana.replies import describe_reply
from pramana.score.judge import Judge, score_by_judge, score_by_rubric
from pramana.score.panel import score_by_panel
from pramana.score.scorers import ScorerRunner, ends_run

MIN_THREADED_OUTPUT_LENGTH = 50_000
"""Characters from which an offline assertion may take over a millisecond, so it runs in a thread."""
MODEL_BACKED_ASSERTIONS = ("llm_judge", "semantic_similarity")
NO_JUDGE_REASON = "the embedded model cannot judge; name another model as judge"
VOICE_JUDGE_REASON = "a voice agent cannot judge; name a text model as judge"

NOTHING_EXPECTED_REASON = (
    "the case has nothing to check the reply with; add an ideal, a check or an expected outcome, or use a scorer"
)


def _get_check_name(case: Case) -> str:
    return "rubric" if case.assertion is None else case.assertion.type


def _is_incomplete(call_check: Check) -> bool:
    """Return whether a call is incomplete: its words then prove nothing, neither right nor wrong.

    A call whose sound contradicts its transcript is complete, and both findings are reported.
    """
    guard = call_check.evidence.get("guard")
    contradicted = isinstance(guard, Mapping) and guard.get("reason") == call_check.reason
    return call_check.outcome is Outcome.ERRORED and not contradicted


def _make_no_transcript_check(name: str, call_check: Check) -> Check:
    """Return the check of an answer that has sound but no transcript."""
    words = call_check.evidence.get("words")
    unheard = words.get("why_not") if isinstance(words, Mapping) else None
    return Check(name, "1", Outcome.UNSCORED, str(unheard or "no words were recognised in the answer"))


def _explain_check(check: Check, reply: Reply) -> Check:
    """Return the check; if the reply has tool calls instead of text, its reason mentions them."""
    if not reply.tool_calls or reply.text.strip():
        return check
    return replace(check, reason=f"{check.reason} {describe_reply('', reply.tool_calls)}")


class ReplyPart(NamedTuple):
    """What is checked by one criterion: the answer to a line of a script, or the whole reply."""

    line: int | None
    """Index of the line; None for the whole reply."""
    case: Case
    reply: Reply


def _list_line_parts(case: Case, reply: Reply) -> Iterator[ReplyPart]:
    """Yield the answer to each line of a script, once per criterion of the line."""
    answers = reply.answers or (reply.text,)
    for number, line in enumerate(case.script):
        said = answers[number] if number < len(answers) else ""
        calls = reply.tool_calls if len(case.script) == 1 else ()  # with several lines, any of them may
        for expected in line.expected:
            asked = replace(
                case, turns=(Turn("user", line.text),), assertion=expected.assertion, ideals=expected.ideals, script=()
            )
            yield ReplyPart(number, asked, replace(reply, text=said, tool_calls=calls))


class CaseScorer(Protocol):
    """Scores `semantic_similarity`, or measures a call and checks its recording against the transcript."""

    async def score(self, case: Case, reply: Reply) -> Check: ...


class ReplyChecker:
    """All checks for the replies of one model."""

    def __init__(
        self,
        judge: Judge | None,
        similarity: CaseScorer,
        calls: CaseScorer | None = None,
        no_judge: str = NO_JUDGE_REASON,
        scorers: ScorerRunner | None = None,
        model: str = "",
        other_judges: Sequence[Judge] = (),
    ) -> None:
        """Take the judges and scorers of a run; `model` is the model's name as passed to `scorers`.

        With `other_judges`, the judges form a panel; scorers that name no model ask the first of them.
        """
        self._other_judges = other_judges
        self.judge, self.similarity, self.calls, self._no_judge = judge, similarity, calls, no_judge
        self._scorers, self._model = scorers or None, model

    def can_decide_now(self, case: Case, reply: Reply) -> bool:
        """Return whether `make_checks_now` can judge the reply, as is true for most replies."""
        stated = case.assertion
        if stated is None or stated.type in MODEL_BACKED_ASSERTIONS or len(reply.text) >= MIN_THREADED_OUTPUT_LENGTH:
            return False
        return reply.call is None and not case.script and self._scorers is None

    def make_checks_now(self, case: Case, reply: Reply) -> tuple[Check, ...]:
        """Return the checks of a reply that needs no model, thread or call."""
        assert case.assertion is not None  # noqa: S101 - otherwise the case needs a judge
        return (_explain_check(check_output(case.assertion, reply.text, case.ideals), reply),)

    async def make_checks(self, case: Case, reply: Reply) -> tuple[Check, ...]:
        """Return the checks of a reply; raise only errors that end the run."""
        if self.can_decide_now(case, reply):
            return self.make_checks_now(case, reply)
        found: list[Check] = []
        call = await self.calls.score(case, reply) if reply.call and self.calls else None
        if call and (_is_incomplete(call) or not reply.text.strip()):
            if call.outcome is not Outcome.PASSED:
                return (call,)
            return (
                _make_no_transcript_check(_get_check_name(case), call),
                call,
            )  # there was an answer, but no transcript of it
        for number, asked, said in _list_line_parts(case, reply):
            if call and not said.text.strip():
                check = _make_no_transcript_check(_get_check_name(asked), call)
            else:
                check = await self._check_whole_reply(asked, said)
            found.append(replace(check, evidence={**check.evidence, "line": number}))
        if self._is_judged(case):
            found.append(await self._check_whole_reply(case, reply))
        if self._scorers:
            found += await self._scorers.make_checks(case, reply, self._model, self.judge, self._no_judge)
        return (*found, call) if call else tuple(found)

    async def judge_part(self, case: Case, reply: Reply, name: str, line: int | None, position: int = 0) -> Check:
        """Return one check of a reply again: by name and line, and by its position among several of both."""
        parts = (*_list_line_parts(case, reply), ReplyPart(None, case, reply))
        matching = [each for each in parts if each.line == line and _get_check_name(each.case) == name]
        asked = matching[position]
        check = await self._check_whole_reply(asked.case, asked.reply)
        return check if line is None else replace(check, evidence={**check.evidence, "line": line})

    def _is_judged(self, case: Case) -> bool:
        """Return whether a case is judged as a whole, besides the lines of its script."""
        if case.assertion:
            return True
        at_a_line = any(line.expected for line in case.script)
        if case.expected_outcome is None and self._scorers:  # the scorers decide
            return False
        return self.judge is not None or not at_a_line

    async def _check_whole_reply(self, case: Case, reply: Reply) -> Check:
        name = _get_check_name(case)
        try:
            return await self._make_check(name, case, reply)
        except Exception as error:  # one failing check must not end a run, nor count as a wrong answer
            if ends_run(error):
                raise
            reason = f"{name} could not be judged: {type(error).__name__}: {error}"
            return Check(name, "1", Outcome.ERRORED, reason)

    def make_unjudged_checks(self, case: Case, reply: Reply, error: PramanaError) -> tuple[Check, ...]:
        """Return the checks of a reply for which judging raised an error that ends the run."""
        reason, stated = f"not judged: {error}; to judge the reply later, run: pramana rescore", case.assertion
        if (
            self._scorers
            and stated
            and stated.type not in MODEL_BACKED_ASSERTIONS
            and not case.script
            and not reply.call
        ):
            first = self._scorers.names[0]
            decided = _explain_check(check_output(stated, reply.text, case.ideals), reply)
            return decided, Check(first, "1", Outcome.UNSCORED, reason)
        return (Check(_get_check_name(case), "1", Outcome.UNSCORED, reason),)

    async def _make_check(self, name: str, case: Case, reply: Reply) -> Check:
        if name in ("rubric", "llm_judge"):
            if name == "rubric" and case.expected_outcome is None:
                return Check(name, "1", Outcome.UNSCORED, NOTHING_EXPECTED_REASON)
            if self.judge is None:
                return Check(name, "1", Outcome.UNSCORED, self._no_judge)
            score = score_by_rubric if name == "rubric" else score_by_judge
            return await score_by_panel(score, (self.judge, *self._other_judges), case, reply)
        if name == "semantic_similarity":
            return _explain_check(await self.similarity.score(case, reply), reply)
        assert case.assertion is not None  # noqa: S101 - only scenarios have none, and a rubric judges those
        if len(reply.text) < MIN_THREADED_OUTPUT_LENGTH:
            return _explain_check(check_output(case.assertion, reply.text, case.ideals), reply)
        return await asyncio.to_thread(check_output, case.assertion, reply.text, case.ideals)
