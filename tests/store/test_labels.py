"""Labels in a store: kept by reply, criterion and rater, whatever happens to the scorings."""

import asyncio

import pytest
from msgspec.structs import replace

from pramana.errors import NotFound
from pramana.model import Check, Outcome
from pramana.store.labels import Label, LabelsState
from pramana.store.store import Store

from .samples import add_scoring, list_pending, make_cases, make_check, make_plan, make_result


def start_run(store: Store, count: int) -> str:
    run = store.runs.create(make_plan(), make_cases(count))
    checks = (replace(make_check(name="llm_judge"), evidence={"judge": "a"}),)

    async def write() -> None:
        async with store.results.make_writer(run.id, lambda _: None) as writer:
            await writer.put([replace(make_result(found), checks=checks) for found, _ in list_pending(store, run.id)])

    asyncio.run(write())
    return run.id


def find_seqs(store: Store, run_id: str) -> list[int]:
    return [seq for seq, _ in store.results.iterate(run_id)]


def test_a_label_replaces_the_raters_earlier_one_and_no_other(store: Store) -> None:
    run_id = start_run(store, 2)
    first, second = find_seqs(store, run_id)
    store.labels.save(run_id, [Label(first, "llm_judge", "ann\0", "yes"), Label(second, "llm_judge", "ann\0", "no")])
    store.labels.save(run_id, [Label(first, "llm_judge", "bob", "no", "half \ud83d", 0)])
    store.labels.save(run_id, [Label(first, "llm_judge", "ann\0", "unsure")])
    found = store.labels.list_of_run(run_id)
    assert [(each.seq, each.rater, each.verdict) for each in found] == [
        (first, "ann\0", "unsure"),
        (first, "bob", "no"),
        (second, "ann\0", "no"),
    ]
    assert (found[1].note, found[1].scoring) == ("half \ud83d", 0)
    assert all(each.labelled_at for each in found)
    assert store.labels.list_labelled_run_ids() == [run_id]


def test_labels_are_saved_all_or_none(store: Store) -> None:
    run_id, other = start_run(store, 1), start_run(store, 1)
    (mine,), (elsewhere,) = find_seqs(store, run_id), find_seqs(store, other)
    with pytest.raises(NotFound, match=f"has no result {elsewhere}"):
        store.labels.save(run_id, [Label(mine, "llm_judge", "ann", "yes"), Label(elsewhere, "llm_judge", "ann", "no")])
    assert store.labels.list_of_run(run_id) == []
    assert store.labels.read_state() == LabelsState(0, "")


def test_a_rescoring_keeps_labels_and_deleting_the_run_deletes_them(store: Store) -> None:
    run_id = start_run(store, 1)
    (seq,) = find_seqs(store, run_id)
    store.labels.save(run_id, [Label(seq, "llm_judge", "ann", "yes")])
    key = next(store.results.iterate(run_id))[1].key
    other = (Check("llm_judge", "2", Outcome.FAILED, "no", evidence={"judge": "b"}),)
    add_scoring(store, run_id, "b", [(key, other)])
    assert [each.verdict for each in store.labels.list_of_run(run_id)] == ["yes"]
    assert [each.checks for each in store.labels.iterate_checks(run_id)] == [[*other]]
    assert [each.checks[0].evidence for each in store.labels.iterate_checks(run_id, 0)] == [{"judge": "a"}]
    assert store.labels.remove(run_id, seq, "llm_judge", "ann")
    assert not store.labels.remove(run_id, seq, "llm_judge", "ann")
    store.labels.save(run_id, [Label(seq, "llm_judge", "ann", "yes")])
    store.runs.delete(run_id)
    assert store.labels.read_state().label_count == 0


def test_saving_a_label_announces_a_change_of_the_run(store: Store) -> None:
    run_id = start_run(store, 1)
    (seq,) = find_seqs(store, run_id)
    before = store.changes.last_number()
    store.labels.save(run_id, [Label(seq, "llm_judge", "ann", "yes")])
    assert store.changes.last_number() == before + 1
