"""Labelling: a blind draw, the same after an interruption, and labels that are stored at once."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pramana.app import App, Credential
from pramana.app.access import Forbidden
from pramana.app.calibrations import list_judged_replies
from pramana.app.judging import (
    NO_JUDGED_REPLIES,
    LabellingRequest,
    LabelRequest,
    draw_replies_to_label,
    label_views,
    labelling_view,
    list_labels,
    read_labelling,
    save_label,
    save_labels,
)
from pramana.errors import InvalidInput, NotFound, StateConflict
from pramana.model import Plan, Run, Target
from pramana.store import open_store
from pramana.store.store import Store

from ..judged_runs import QUESTION, add_judged_run, judge_again, make_judged_case
from ..stores import sqlite_store


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        yield store


def label_all(store: Store, run: Run, count: int, rater: str = "ann") -> list[str]:
    """Label the next replies one by one, with YES; return their tasks in the order of the draw."""
    done = []
    for _ in range(count):
        view = labelling_view(store, run, draw_replies_to_label(store, run, 20), LabellingRequest(), rater)
        assert view.task
        done.append(view.task.task)
        save_labels(store, run, [LabelRequest(task=view.task.task, label="yes")], rater)
    return done


def test_half_of_the_drawn_replies_were_failed_by_the_judge_in_an_order_that_does_not_tell(store: Store) -> None:
    run = add_judged_run(store, [True] * 80 + [False] * 20)
    passed = {each.task: each.passed for each in list_judged_replies(store, run)}
    drawn = [passed[task] for task in draw_replies_to_label(store, run, 30).tasks]
    assert drawn.count(False) == 15
    assert 0 < drawn[:15].count(False) < 15
    larger = draw_replies_to_label(store, run, 60).tasks
    assert set(draw_replies_to_label(store, run, 30).tasks) < set(larger)
    assert [passed[task] for task in larger].count(False) == 20
    assert (
        draw_replies_to_label(store, run, 1000).judged_reply_count
        == len(draw_replies_to_label(store, run, 1000).tasks)
        == 100
    )


def test_a_reply_to_label_shows_neither_model_nor_verdict_nor_other_labels(store: Store) -> None:
    run = add_judged_run(store, [True, False, None])
    draw = draw_replies_to_label(store, run, 60)
    save_labels(store, run, [LabelRequest(task=task, label="no", note="rude") for task in draw.tasks], "bob")
    view = labelling_view(store, run, draw, LabellingRequest(task="1.llm_judge"), "ann")
    text = msgspec.json.encode(view).decode()
    assert not [
        secret for secret in ("a-model", "gpt-5", "decided", "passed", "failed", "bob", "rude") if secret in text
    ]
    assert (view.drawn, view.judged, view.labelled) == (2, 2, 0), "a reply without a verdict is not labelled"
    assert view.task
    assert (view.task.question, view.task.ideals, view.task.reply) == (QUESTION, ("Please.",), "Reply 0")


def test_labelling_goes_on_where_it_ended_and_each_rater_has_a_place_of_their_own(store: Store) -> None:
    run = add_judged_run(store, [True, False] * 20)
    first = label_all(store, run, 3)
    assert label_all(store, run, 2) == list(draw_replies_to_label(store, run, 20).tasks[3:5])
    assert label_all(store, run, 1, "bob") == first[:1]
    view = labelling_view(store, run, draw_replies_to_label(store, run, 20), LabellingRequest(), "ann")
    assert (view.labelled, view.drawn) == (5, 20)
    again = labelling_view(store, run, draw_replies_to_label(store, run, 20), LabellingRequest(task=first[1]), "ann")
    assert again.task
    assert (again.task.task, again.task.label) == (first[1], "yes")
    skipping = labelling_view(
        store,
        run,
        draw_replies_to_label(store, run, 20),
        LabellingRequest(skip=draw_replies_to_label(store, run, 20).tasks),
        "cy",
    )
    assert skipping.task is None


def test_labels_stay_when_the_run_is_judged_again(store: Store) -> None:
    run = add_judged_run(store, [True, False] * 10)
    label_all(store, run, 4)
    judge_again(store, run, [False] * 20, "openai:gpt-6")
    assert [each.label for each in label_views(store, run)] == ["yes"] * 4
    assert {each.source.by for each in list_judged_replies(store, run)} == {"openai:gpt-6"}
    assert {each.scoring for each in store.labels.list_of_run(run)} == {0}


def test_a_run_that_goes_on_or_was_not_judged_is_refused(store: Store) -> None:
    unfinished = store.runs.create(Plan("s", None, (Target("m", "fake", "m"),)), [make_judged_case(0)])
    store.queue.claim(unfinished.id, "a test")
    with pytest.raises(StateConflict, match="is running; label its replies once it has ended"):
        draw_replies_to_label(store, store.runs.read(unfinished.id), 10)
    unjudged = add_judged_run(store, [None, None])
    with pytest.raises(InvalidInput, match=NO_JUDGED_REPLIES):
        draw_replies_to_label(store, unjudged, 10)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (LabelRequest(task="x", label="yes"), InvalidInput),
        (LabelRequest(task="1.", label="yes"), InvalidInput),
        (LabelRequest(task="99.llm_judge", label="yes"), NotFound),
        (LabelRequest(task="1.rubric", label="yes"), NotFound),
        (LabelRequest(task="1.llm_judge", label="maybe"), InvalidInput),  # type: ignore[arg-type]
        (LabelRequest(task="1.llm_judge", label="yes", note="x" * 20_000), InvalidInput),
        (LabelRequest(task="1.llm_judge", label="yes", rater=" "), InvalidInput),
    ],
)
def test_invalid_labels_are_refused_and_none_is_stored(
    store: Store, request_: LabelRequest, error: type[Exception]
) -> None:
    run = add_judged_run(store, [True])
    with pytest.raises(error):
        save_labels(store, run, [LabelRequest(task="1.llm_judge", label="no"), request_], "ann")
    assert label_views(store, run) == []


def test_editors_label_under_their_own_name_and_administrators_under_any(store: Store) -> None:
    app = App(store, server_account_needs_token=True)
    run = add_judged_run(store, [True, False])
    editor, admin = (Credential(store.tokens.create(f"the {role}", role)[1]) for role in ("editor", "admin"))

    async def use() -> tuple[Any, ...]:
        given = LabelRequest(task="1.llm_judge", label="no")
        own = await save_label(app, editor, run.id, given)
        with pytest.raises(Forbidden, match="labels are saved as the editor"):
            await save_label(app, editor, run.id, LabelRequest(task="1.llm_judge", label="no", rater="ann"))
        other = await save_label(app, admin, run.id, LabelRequest(task="1.llm_judge", label="yes", rater="ann"))
        view = await read_labelling(app, editor, run.id, LabellingRequest())
        removed = await save_label(app, editor, run.id, LabelRequest(task="1.llm_judge", label=None))
        return own, other, view, removed, await list_labels(app, editor, run.id)

    own, other, view, removed, listed = asyncio.run(use())
    assert (own.rater, own.label, other.rater, other.label) == ("the editor", "no", "ann", "yes")
    assert (view.rater, view.labelled, view.task.task) == ("the editor", 1, "2.llm_judge")
    assert removed is None
    assert [each.rater for each in listed] == ["ann"]
