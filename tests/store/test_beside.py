"""Which results stand beside one, on both engines."""

from typing import Any

import pytest
from msgspec.structs import replace

from pramana.errors import NotFound
from pramana.hash import case_digest
from pramana.model import Case, Outcome
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
    return run.id, [seq for seq, _ in store.results.iterate(run.id)]


def test_results_beside_one_are_of_its_run_and_in_order(store: Store) -> None:
    run_id, seqs = asked(store)
    for place, seq in enumerate(seqs):
        before = seqs[place - 1] if place else None
        after = seqs[place + 1] if place + 1 < len(seqs) else None
        assert store.results.find_neighbours(run_id, seq) == (before, after)
    with pytest.raises(NotFound):
        store.results.find_neighbours("r0", seqs[0])


def test_the_nearest_that_ended_so_are_found_by_the_newest_checks(store: Store) -> None:
    run_id, seqs = asked(store)
    assert store.results.find_neighbours(run_id, seqs[4], Outcome.FAILED) == (seqs[3], seqs[6])
    assert store.results.find_neighbours(run_id, seqs[3], Outcome.FAILED) == (seqs[0], seqs[6])
    assert store.results.find_neighbours(run_id, seqs[9], Outcome.FAILED) == (seqs[6], None)
    assert store.results.find_neighbours(run_id, seqs[4], Outcome.ERRORED) == (None, None)
    again = {3: Outcome.PASSED, 5: Outcome.FAILED, 6: Outcome.UNSCORED}
    rescore(store, run_id, "again", [(key(case(number)), (check(how),)) for number, how in again.items()])
    assert store.results.find_neighbours(run_id, seqs[4], Outcome.FAILED) == (seqs[0], seqs[5])
    assert store.results.find_neighbours(run_id, seqs[7], Outcome.FAILED) == (seqs[5], seqs[9])
    assert store.results.find_neighbours(run_id, seqs[7], Outcome.UNSCORED) == (seqs[6], None)
    assert store.results.find_neighbours(run_id, seqs[7]) == (seqs[6], seqs[8])


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


def test_beside_a_result_and_on_its_pages_are_only_those_that_pass_every_filter(store: Store) -> None:
    run = store.runs.create(plan("a", "b"), [tagged(number) for number in range(6)])
    digests = [case_digest(tagged(number)) for number in range(6)]
    for each, _ in pending(store, run.id):
        number = digests.index(each.case)
        put_all(store, run.id, [result(each, Outcome.FAILED if number else Outcome.PASSED, f"case-{number}")])
    found = {(each.key.model, each.case_id): seq for seq, each in store.results.iterate(run.id)}

    def seqs(**wanted: Any) -> list[int]:
        return [seq for seq, _ in store.results.page(run.id, limit=500, **wanted)[0]]

    every: list[dict[str, Any]] = [
        {"tag": "odd"}, {"tag": "odd", "model": "b"}, {"text": "CASE-"}, {"text": "ase-1", "model": "a"},
        {"case": "case-2"}, {"text": "%"}, {"tag": "no"},
    ]  # fmt: skip
    for wanted in every:
        listed = seqs(**wanted)
        assert store.results.page(run.id, limit=1, **wanted)[1] == len(listed)
        for place, seq in enumerate(listed):
            before = listed[place - 1] if place else None
            after = listed[place + 1] if place + 1 < len(listed) else None
            assert store.results.find_neighbours(run.id, seq, **wanted) == (before, after)
    assert sorted(seqs(tag="odd", model="b")) == sorted(found["b", f"case-{each}"] for each in (1, 3, 5))
    assert seqs(text="ase-1", model="a") == [found["a", "case-1"]]
    assert seqs(text="%") == seqs(tag="no") == []
    assert len(seqs(text="CASE-")) == 12
    rescore(store, run.id, "again", [(key(tagged(1), model="a"), (check(Outcome.PASSED),))])
    failed = [found["a", f"case-{each}"] for each in (3, 5)]
    page = store.results.page(run.id, outcome=Outcome.FAILED, model="a", tag="odd")[0]
    assert [seq for seq, _ in page] == sorted(failed)
    assert store.results.find_neighbours(run.id, min(failed), Outcome.FAILED, model="a", tag="odd") == (
        None,
        max(failed),
    )
    assert store.results.find_neighbours(run.id, min(failed), Outcome.FAILED, model="a", text="SE-") != (None, None)


def tagged(number: int) -> Case:
    """Return a case whose tag says whether its number is odd."""
    made = case(number)
    return replace(made, facets=replace(made.facets, tags=("odd" if number % 2 else "even",)))
