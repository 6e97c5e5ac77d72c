"""Which results stand beside one, on both engines."""

import pytest

from pramana.errors import NotFound
from pramana.model import Outcome
from pramana.store.store import Store

from .samples import case, check, key, pending, plan, rescore, result, some_cases
from .test_runs import put_all


def asked(store: Store) -> tuple[str, list[int]]:
    """Make a run of twelve results, of which every third failed, beside another run."""
    other = store.runs.create(plan(), some_cases(2))
    run = store.runs.create(plan(), some_cases(12))
    for number in range(12):
        how = Outcome.FAILED if number % 3 == 0 else Outcome.PASSED
        put_all(store, run.id, [result(key(case(number)), how, case(number).id)])
        if number < 2:
            put_all(store, other.id, [result(key(case(number)), Outcome.FAILED)])
    return run.id, [seq for seq, _ in store.results.each(run.id)]


def test_results_beside_one_are_of_its_run_and_in_order(store: Store) -> None:
    run_id, seqs = asked(store)
    for place, seq in enumerate(seqs):
        before = seqs[place - 1] if place else None
        after = seqs[place + 1] if place + 1 < len(seqs) else None
        assert store.results.beside(run_id, seq) == (before, after)
    with pytest.raises(NotFound):
        store.results.beside("r0", seqs[0])


def test_the_nearest_that_ended_so_are_found_by_the_newest_checks(store: Store) -> None:
    run_id, seqs = asked(store)
    assert store.results.beside(run_id, seqs[4], Outcome.FAILED) == (seqs[3], seqs[6])
    assert store.results.beside(run_id, seqs[3], Outcome.FAILED) == (seqs[0], seqs[6])
    assert store.results.beside(run_id, seqs[9], Outcome.FAILED) == (seqs[6], None)
    assert store.results.beside(run_id, seqs[4], Outcome.ERRORED) == (None, None)
    again = {3: Outcome.PASSED, 5: Outcome.FAILED, 6: Outcome.UNSCORED}
    rescore(store, run_id, "again", [(key(case(number)), (check(how),)) for number, how in again.items()])
    assert store.results.beside(run_id, seqs[4], Outcome.FAILED) == (seqs[0], seqs[5])
    assert store.results.beside(run_id, seqs[7], Outcome.FAILED) == (seqs[5], seqs[9])
    assert store.results.beside(run_id, seqs[7], Outcome.UNSCORED) == (seqs[6], None)
    assert store.results.beside(run_id, seqs[7]) == (seqs[6], seqs[8])


def test_results_of_a_case_come_by_the_page_with_their_number(store: Store) -> None:
    run = store.runs.create(plan("a", "b", repeats=3), some_cases(2))
    keys = [found for found, _ in pending(store, run.id)]
    put_all(store, run.id, [result(each, case_id=case(int(each.case != key(case(0)).case)).id) for each in keys])
    every, total = store.results.page(run.id, case="case-1")
    assert (len(every), total) == (6, 6)
    assert {each.case_id for _, each in every} == {"case-1"}
    page, total = store.results.page(run.id, case="case-1", limit=4, offset=4)
    assert ([seq for seq, _ in page], total) == ([seq for seq, _ in every][4:], 6)
    assert store.results.page(run.id, case="case-1", model="b", limit=2)[1] == 3
    assert store.results.page(run.id, case="case-9") == ([], 0)
