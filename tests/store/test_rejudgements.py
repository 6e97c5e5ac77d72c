"""Rejudgements in both engines: kept beside the run, replaced by newer ones, deleted with the run."""

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from pramana.errors import NotFound
from pramana.model import Check, Outcome
from pramana.store.rejudgements import Rejudgement
from pramana.store.store import Store

from ..judged_runs import add_judged_run


def make_rejudgement(seq: int, *, passed: bool = True) -> Rejudgement:
    outcome = Outcome.PASSED if passed else Outcome.FAILED
    check = Check("llm_judge", "1 abc answers-swapped", outcome, "NO\0 \ud800", evidence={"answers": ["\ud800"]})
    return Rejudgement(
        seq, "llm_judge", "gpt-5", "answers-swapped", earlier_version="1 abc", earlier_passed=True, check=check
    )


def count_rows(store: Store) -> int:
    with store._database.read_transaction() as connection:
        return int(connection.execute(text("SELECT count(*) FROM rejudgements")).scalar_one())


def test_rejudgements_are_read_as_stored_and_change_nothing_in_the_run(store: Store) -> None:
    run = add_judged_run(store, [True, False])
    before = list(store.results.iterate(run.id)), store.scorings.list_finished(run.id)
    seqs = [seq for seq, _ in store.results.iterate(run.id)]
    store.rejudgements.add(run.id, [make_rejudgement(seq) for seq in seqs])
    found = store.rejudgements.list_of_run(run.id)
    assert [replace(each, case_digest="") for each in found] == [make_rejudgement(seq) for seq in seqs]
    assert len({each.case_digest for each in found}) == 2
    assert (list(store.results.iterate(run.id)), store.scorings.list_finished(run.id)) == before


def test_a_newer_rejudgement_replaces_the_earlier_one(store: Store) -> None:
    run = add_judged_run(store, [True])
    ((seq, _),) = store.results.iterate(run.id)
    store.rejudgements.add(run.id, [make_rejudgement(seq)])
    store.rejudgements.add(run.id, [make_rejudgement(seq, passed=False)])
    assert [each.check.outcome for each in store.rejudgements.list_of_run(run.id)] == [Outcome.FAILED]


def test_rejudgements_of_results_of_other_runs_are_refused_altogether(store: Store) -> None:
    run, other = add_judged_run(store, [True]), add_judged_run(store, [True])
    ((seq, _),) = store.results.iterate(run.id)
    ((foreign, _),) = store.results.iterate(other.id)
    with pytest.raises(NotFound, match=f"has no result {foreign}"):
        store.rejudgements.add(run.id, [make_rejudgement(seq), make_rejudgement(foreign)])
    assert store.rejudgements.list_of_run(run.id) == []


def test_rejudgements_are_deleted_with_their_run(store: Store) -> None:
    run, other = add_judged_run(store, [True]), add_judged_run(store, [True])
    for each in (run, other):
        ((seq, _),) = store.results.iterate(each.id)
        store.rejudgements.add(each.id, [make_rejudgement(seq)])
    store.runs.delete(run.id)
    assert count_rows(store) == 1
    assert len(store.rejudgements.list_of_run(other.id)) == 1
