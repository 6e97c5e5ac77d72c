"""Labelling: a run in; the next reply for a person to label out, blind, and labels saved, listed and exported.

Half of the replies are drawn among those that the judge failed (`analyse.labelling`). A task shows the prompt, the
criterion and the reply, and never the judge's verdict, the model or the labels of others. Every label is stored at
once, so labelling goes on where it ended. What the labels say about the judge is computed in `calibrations`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from pramana.analyse.judgements import JUDGE, RUBRIC, list_judgements
from pramana.analyse.labelling import (
    DEFAULT_LABEL_COUNT,
    draw_replies,
    make_task_name,
    name_criteria,
    split_task_name,
)
from pramana.app import App, User, use_case
from pramana.app.access import Forbidden
from pramana.app.calibrations import JudgeReportView, list_judged_replies, make_judge_report
from pramana.app.views import ToolCallView, TurnView, View, tool_call_views
from pramana.errors import InvalidInput, NotFound, Problem, StateConflict, describe_value, quote_text
from pramana.model import Case, Check, Outcome, Reply, Run
from pramana.replies import describe_reply
from pramana.request import MAX_NAME_CHARS, MAX_NOTE_CHARS, check_struct_values
from pramana.store.labels import Label, LabelVerdict
from pramana.store.store import Store

MAX_RATER_LENGTH = 100
MAX_LABEL_COUNT = 100_000
NO_JUDGED_REPLIES = "no reply of this run was judged by a model, so there is nothing to label"
Rater = Annotated[str, Meta(min_length=1, max_length=MAX_RATER_LENGTH, pattern=r"\S")]
TaskName = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]


MAX_SKIPPED = 20
"""Names of replies in one address: more may not fit into the head of a request."""


class LabellingRequest(Struct, frozen=True, kw_only=True):
    """Which reply to show for labelling."""

    count: Annotated[int, Meta(ge=1, le=MAX_LABEL_COUNT, description="How many replies are drawn")] = (
        DEFAULT_LABEL_COUNT
    )
    task: Annotated[
        TaskName | None,
        Meta(description="Name of the reply to show, such as an earlier one; null: the next without label"),
    ] = None
    skip: Annotated[
        Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=MAX_SKIPPED)],
        Meta(description="Replies to leave for later, by name"),
    ] = ()
    rater: Annotated[
        Rater | None, Meta(description="Whose labels; null: your own. Only an administrator may name others")
    ] = None


class LabelRequest(Struct, frozen=True, kw_only=True):
    """A label to save."""

    task: Annotated[TaskName, Meta(description="Name of the reply, from the labelling view")]
    label: Annotated[LabelVerdict | None, Meta(description="yes, no or unsure; null removes the label")]
    note: Annotated[Annotated[str, Meta(max_length=MAX_NOTE_CHARS)], Meta(description="Note on the label")] = ""
    rater: Annotated[
        Rater | None, Meta(description="Whose label; null: your own. Only an administrator may name others")
    ] = None


class LabelView(View, frozen=True, kw_only=True):
    """One person's label of one reply."""

    task: str
    seq: int
    criterion: str
    case_id: str
    rater: str
    label: LabelVerdict
    note: str
    labelled_at: str


class LabelTaskView(View, frozen=True, kw_only=True):
    """A reply to label, without its model and without any verdict."""

    task: Annotated[str, Meta(description="Name of the reply and its criterion, for saving the label")]
    seq: int
    criterion: str
    case_id: str
    turns: Annotated[tuple[TurnView, ...], Meta(description="What the model was sent, system prompt first")]
    heading: Annotated[str, Meta(description="Criterion, or Expected outcome")]
    question: Annotated[str, Meta(description="The criterion that the reply meets or not")]
    ideals: Annotated[tuple[str, ...], Meta(description="Replies that would be right, if the case states any")]
    reply: Annotated[str, Meta(description="The reply; of a conversation, its numbered answers")]
    tool_calls: tuple[ToolCallView, ...]
    recording: Annotated[str | None, Meta(description="Address of the call's recording")]
    label: Annotated[LabelVerdict | None, Meta(description="The rater's own label; null if there is none yet")]
    note: str


class LabellingView(View, frozen=True, kw_only=True):
    """How far the labelling of a run is, and the reply to label next."""

    run_id: str
    suite: str
    rater: str
    drawn: Annotated[int, Meta(description="Number of replies drawn; fewer than requested if the run has no more")]
    labelled: Annotated[int, Meta(description="How many of the drawn replies this rater has labelled")]
    unsure: int
    judged: Annotated[int, Meta(description="Number of all replies with a judge's verdict")]
    task: Annotated[LabelTaskView | None, Meta(description="Null when no drawn reply is left")]


# ── Draw and tasks ──


class LabellingDraw(Struct, frozen=True):
    """The replies of a run that are labelled, in their order."""

    tasks: tuple[str, ...]
    judged_reply_count: int


def draw_replies_to_label(store: Store, run: Run, count: int) -> LabellingDraw:
    """Draw the replies of a run to label; raise an error if none was judged or the run is not over."""
    if run.status in ("queued", "running"):
        raise StateConflict(f"run {run.id} is {run.status}; label its replies once it has ended")
    judged = list_judged_replies(store, run)
    if not judged:
        raise InvalidInput(NO_JUDGED_REPLIES)
    return LabellingDraw(tuple(each.task for each in draw_replies(judged, count, run.id)), len(judged))


def labelling_view(store: Store, run: Run, draw: LabellingDraw, request: LabellingRequest, rater: str) -> LabellingView:
    """Return the progress of a rater, and the reply to label next or the one that was requested."""
    own = {
        make_task_name(each.seq, each.criterion): each for each in store.labels.list_of_run(run) if each.rater == rater
    }
    done = [own[task] for task in draw.tasks if task in own]
    left_out = {*own, *request.skip}
    wanted = request.task or next((task for task in draw.tasks if task not in left_out), None)
    return LabellingView(
        run_id=run.id,
        suite=run.plan.suite,
        rater=rater,
        drawn=len(draw.tasks),
        labelled=len(done),
        unsure=sum(each.verdict == "unsure" for each in done),
        judged=draw.judged_reply_count,
        task=None if wanted is None else _make_task_view(store, run, wanted, own.get(wanted)),
    )


def _make_task_view(store: Store, run: Run, task: str, own: Label | None) -> LabelTaskView:
    seq, criterion = _parse_task(task)
    case, result = store.results.read(run, seq)
    checks = dict(name_criteria(result.checks))
    reply = result.reply
    if criterion not in checks or reply is None:
        raise NotFound(f"result {seq} of run {run.id} has no check {quote_text(criterion)} by a judge")
    check = checks[criterion]
    question = next(each.judge_question for each in list_judgements(case, result.checks) if each.check is check)
    line_index = check.evidence.get("line")
    return LabelTaskView(
        task=task,
        seq=seq,
        criterion=criterion,
        case_id=case.id,
        turns=_list_turns(run, case, line_index),
        heading="Expected outcome" if check.name == RUBRIC else "Criterion",
        question=question or _describe_criterion(check),
        ideals=_list_ideals(case, check, line_index),
        reply=_get_reply_text(case, reply, line_index),
        tool_calls=tool_call_views(reply.tool_calls),
        recording=f"/audio/{reply.call.recording}" if reply.call else None,
        label=own.verdict if own else None,
        note=own.note if own else "",
    )


def _describe_criterion(check: Check) -> str:
    """Return the criterion of a check whose question is not part of the case, such as that of a scorer."""
    return f"Does the reply pass the check {quote_text(check.name)}?"


def _list_turns(run: Run, case: Case, line_index: object) -> tuple[TurnView, ...]:
    system = [TurnView(role="system", text=run.plan.system_prompt)] if run.plan.system_prompt else []
    if case.script:
        lines = [each.text for at, each in enumerate(case.script) if line_index in (None, at)]
        return (*system, *(TurnView(role="user", text=text) for text in lines))
    return (*system, *(TurnView(role=turn.role, text=turn.text) for turn in case.turns))


def _list_ideals(case: Case, check: Check, line_index: object) -> tuple[str, ...]:
    if isinstance(line_index, int):
        expected = case.script[line_index].expected if line_index < len(case.script) else ()
        return tuple(ideal for each in expected if each.assertion.type == JUDGE for ideal in each.ideals)
    return case.ideals if check.name != RUBRIC else ()


def _get_reply_text(case: Case, reply: Reply, line_index: object) -> str:
    """Return what the judge read: one answer, all answers of a script with their numbers, or the whole reply."""
    answers = reply.answers or (reply.text,)
    if isinstance(line_index, int):
        return answers[line_index] if line_index < len(answers) else ""
    if len(case.script) > 1 and reply.answers:
        return "\n".join(f"{number}. {answer}" for number, answer in enumerate(reply.answers, 1))
    return describe_reply(reply.text, reply.tool_calls, max_tool_call_length=None)


def _parse_task(task: str) -> tuple[int, str]:
    found = split_task_name(task)
    if found is None:
        raise InvalidInput.from_problems(
            [Problem(f"expected the name of a reply such as 12.llm_judge, found {quote_text(task)}", "task")]
        )
    return found


# ── Saving ──


def save_labels(store: Store, run: Run, requests: Sequence[LabelRequest], rater: str) -> None:
    """Save labels of a run's judged replies, all or none; a label of None removes the rater's label."""
    if problem := _find_rater_problem(rater):
        raise InvalidInput.from_problems([problem])
    for each in requests:
        check_struct_values(each)
    scoring = max(store.scorings.read_scoring_labels(run), default=0)
    named = [(each, *_parse_task(each.task)) for each in requests]
    criteria = _read_judge_checks(store, run, {seq for _, seq, _ in named})
    for _, seq, criterion in named:
        if criterion not in criteria.get(seq, {}):
            raise NotFound(f"result {seq} of run {run.id} has no check {quote_text(criterion)} by a judge")
    store.labels.save(
        run,
        [
            Label(
                seq,
                criterion,
                each.rater or rater,
                each.label,
                each.note,
                scoring if criteria[seq][criterion].outcome in (Outcome.PASSED, Outcome.FAILED) else None,
            )
            for each, seq, criterion in named
            if each.label is not None
        ],
    )
    for each, seq, criterion in named:
        if each.label is None:
            store.labels.remove(run, seq, criterion, each.rater or rater)


def _read_judge_checks(store: Store, run: Run, seqs: set[int]) -> Mapping[int, Mapping[str, Check]]:
    """Return the checks by a judge of some results, by criterion."""
    return {seq: dict(name_criteria(store.results.read(run, seq)[1].checks)) for seq in seqs}


def _find_rater_problem(rater: str) -> Problem | None:
    if rater.strip() and len(rater) <= MAX_RATER_LENGTH and rater.isprintable():
        return None
    return Problem(f"expected 1 to {MAX_RATER_LENGTH} printable characters, found {describe_value(rater)}", "rater")


def label_views(store: Store, run: Run) -> list[LabelView]:
    """Return the labels of a run, by result, criterion and rater."""
    found = store.labels.list_of_run(run)
    names = {seq: store.results.read(run, seq)[0].id for seq in {each.seq for each in found}}
    return [_label_view(each, names[each.seq]) for each in found]


def _label_view(label: Label, case_id: str) -> LabelView:
    return LabelView(
        task=make_task_name(label.seq, label.criterion),
        seq=label.seq,
        criterion=label.criterion,
        case_id=case_id,
        rater=label.rater,
        label=label.verdict,
        note=label.note,
        labelled_at=label.labelled_at,
    )


# ── Use cases ──


@use_case("editor", "heavy")
def read_labelling(app: App, user: User, run_id: str, request: LabellingRequest) -> LabellingView:
    """Return how far the labelling of a run is, and the reply to label next."""
    check_struct_values(request)
    rater = _choose_rater(user, request.rater)
    run = app.store.runs.find(run_id)
    scorings = tuple(app.store.scorings.read_scoring_labels(run))
    key = ("label draw", run.id, run.stored, run.status, scorings, request.count)
    draw = app.comparison_cache.get(key, lambda: draw_replies_to_label(app.store, run, request.count))
    return labelling_view(app.store, run, draw, request, rater)


@use_case("editor")
def save_label(app: App, user: User, run_id: str, request: LabelRequest) -> LabelView | None:
    """Save or remove a label of one reply; return it, or null if it was removed."""
    rater = _choose_rater(user, request.rater)
    run = app.store.runs.read(run_id)
    save_labels(app.store, run, [request], rater)
    seq, criterion = _parse_task(request.task)
    named = [
        each
        for each in app.store.labels.list_of_run(run)
        if (each.seq, each.criterion, each.rater) == (seq, criterion, rater)
    ]
    return _label_view(named[0], app.store.results.read(run, seq)[0].id) if named else None


@use_case("viewer")
def list_labels(app: App, _: User, run_id: str) -> Sequence[LabelView]:
    """Return the labels of a run, of all raters."""
    return label_views(app.store, app.store.runs.find(run_id))


@use_case("viewer", "heavy")
def read_judge_report(app: App, _: User, run_id: str) -> JudgeReportView:
    """Return how far the judges of a run agree with people, and the pass rates corrected by labels."""
    return make_judge_report(app.store, app.store.runs.find_as_of_scoring(run_id))


def _choose_rater(user: User, requested: str | None) -> str:
    """Return whose labels are read or saved; only an administrator may name another person."""
    if requested is not None and requested != user.name and not user.has_role("admin"):
        raise Forbidden(f"labels are saved as {user.name}; only an administrator can save labels of other people")
    return requested or user.name


# ── Import and export ──

EXPORTED_COLUMNS = ("task", "case", "prompt", "criterion", "ideals", "reply", "label", "note")


def list_labelling_rows(store: Store, run: Run, draw: LabellingDraw, rater: str) -> list[dict[str, Any]]:
    """Return one row per drawn reply, as blind as on the screen, with the rater's label if there is one."""
    rows = []
    for task in draw.tasks:
        view = labelling_view(store, run, draw, LabellingRequest(task=task), rater).task
        assert view is not None  # noqa: S101 - a task was named
        rows.append(
            {
                "task": task,
                "case": view.case_id,
                "prompt": "\n\n".join(turn.text for turn in view.turns),
                "criterion": view.question,
                "ideals": "\n".join(view.ideals),
                "reply": view.reply,
                "label": view.label or "",
                "note": view.note,
            }
        )
    return rows
