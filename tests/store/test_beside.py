"""Neighbours of a result, on both engines."""

from typing import Any

import pytest
from msgspec.structs import replace

from pramana.errors import NotFound
from pramana.hash import hash_case
from pramana.model import Case, Outcome
from pramana.store.store import Store

from .samples import add_scoring, list_pending, make_case, make_cases, make_check, make_key, make_plan, make_result
from .test_runs import put_results


def make_run(store: Store) -> tuple[str, list[int]]:
    """Make a run of twelve results, of which every third failed, beside another run."""
    other = store.runs.create(make_plan(), make_cases(2))
    run = store.runs.create(make_plan(), make_cases(12))
    for number in range(12):
        how = Outcome.FAILED if number % 3 == 0 else Outcome.PASSED
        put_results(store, run.id, [make_result(make_key(make_case(number)), how, make_case(number).id)])
        if number < 2:
            put_results(store, other.id, [make_result(make_key(make_case(number)), Outcome.FAILED)])
    return run.id, [seq for seq, _ in store.results.iterate(run.id)]


def test_neighbours_of_a_result_are_from_its_run_in_order(store: Store) -> None:
    run_id, seqs = make_run(store)
    for place, seq in enumerate(seqs):
        before = seqs[place - 1] if place else None
        after = seqs[place + 1] if place + 1 < len(seqs) else None
        assert store.results.find_neighbours(run_id, seq) == (before, after)
    with pytest.raises(NotFound):
        store.results.find_neighbours("r0", seqs[0])


def test_the_nearest_results_with_an_outcome_use_the_newest_checks(store: Store) -> None:
    run_id, seqs = make_run(store)
    assert store.results.find_neighbours(run_id, seqs[4], Outcome.FAILED) == (seqs[3], seqs[6])
    assert store.results.find_neighbours(run_id, seqs[3], Outcome.FAILED) == (seqs[0], seqs[6])
    assert store.results.find_neighbours(run_id, seqs[9], Outcome.FAILED) == (seqs[6], None)
    assert store.results.find_neighbours(run_id, seqs[4], Outcome.ERRORED) == (None, None)
    again = {3: Outcome.PASSED, 5: Outcome.FAILED, 6: Outcome.UNSCORED}
    add_scoring(
        store, run_id, "again", [(make_key(make_case(number)), (make_check(how),)) for number, how in again.items()]
    )
    assert store.results.find_neighbours(run_id, seqs[4], Outcome.FAILED) == (seqs[0], seqs[5])
    assert store.results.find_neighbours(run_id, seqs[7], Outcome.FAILED) == (seqs[5], seqs[9])
    assert store.results.find_neighbours(run_id, seqs[7], Outcome.UNSCORED) == (seqs[6], None)
    assert store.results.find_neighbours(run_id, seqs[7]) == (seqs[6], seqs[8])


def test_results_of_a_case_are_paged_with_their_total(store: Store) -> None:
    run = store.runs.create(make_plan("a", "b", repeats=3), make_cases(2))
    keys = [found for found, _ in list_pending(store, run.id)]
    put_results(
        store,
        run.id,
        [make_result(each, case_id=make_case(int(each.case != make_key(make_case(0)).case)).id) for each in keys],
    )
    every, total = store.results.read_page(run.id, case="case-1")
    assert (len(every), total) == (6, 6)
    assert {each.case_id for _, each in every} == {"case-1"}
    page, total = store.results.read_page(run.id, case="case-1", limit=4, offset=4)
    assert ([seq for seq, _ in page], total) == ([seq for seq, _ in every][4:], 6)
    assert store.results.read_page(run.id, case="case-1", model="b", limit=2)[1] == 3
    assert store.results.read_page(run.id, case="case-9") == ([], 0)


def test_neighbours_and_pages_contain_only_results_that_match_every_filter(store: Store) -> None:
    run = store.runs.create(make_plan("a", "b"), [make_tagged_case(number) for number in range(6)])
    digests = [hash_case(make_tagged_case(number)) for number in range(6)]
    for each, _ in list_pending(store, run.id):
        number = digests.index(each.case)
        put_results(store, run.id, [make_result(each, Outcome.FAILED if number else Outcome.PASSED, f"case-{number}")])
    found = {(each.key.model, each.case_id): seq for seq, each in store.results.iterate(run.id)}
    for model in ("a", "b", "c"):
        one = [(seq, each) for seq, each in store.results.iterate(run.id) if each.key.model == model]
        assert list(store.results.iterate(run.id, model=model)) == one

    def list_numbers(**wanted: Any) -> list[int]:
        return [seq for seq, _ in store.results.read_page(run.id, limit=500, **wanted)[0]]

    every: list[dict[str, Any]] = [
        {"tag": "odd"}, {"tag": "odd", "model": "b"}, {"text": "CASE-"}, {"text": "ase-1", "model": "a"},
        {"case": "case-2"}, {"text": "%"}, {"tag": "no"},
    ]  # fmt: skip
    for wanted in every:
        listed = list_numbers(**wanted)
        assert store.results.read_page(run.id, limit=1, **wanted)[1] == len(listed)
        for place, seq in enumerate(listed):
            before = listed[place - 1] if place else None
            after = listed[place + 1] if place + 1 < len(listed) else None
            assert store.results.find_neighbours(run.id, seq, **wanted) == (before, after)
    assert sorted(list_numbers(tag="odd", model="b")) == sorted(found["b", f"case-{each}"] for each in (1, 3, 5))
    assert list_numbers(text="ase-1", model="a") == [found["a", "case-1"]]
    assert list_numbers(text="%") == list_numbers(tag="no") == []
    assert len(list_numbers(text="CASE-")) == 12
    add_scoring(store, run.id, "again", [(make_key(make_tagged_case(1), model="a"), (make_check(Outcome.PASSED),))])
    failed = [found["a", f"case-{each}"] for each in (3, 5)]
    page = store.results.read_page(run.id, outcome=Outcome.FAILED, model="a", tag="odd")[0]
    assert [seq for seq, _ in page] == sorted(failed)
    assert store.results.find_neighbours(run.id, min(failed), Outcome.FAILED, model="a", tag="odd") == (
        None,
        max(failed),
    )
    assert store.results.find_neighbours(run.id, min(failed), Outcome.FAILED, model="a", text="SE-") != (None, None)


def make_tagged_case(number: int) -> Case:
    """Return a case with the tag `odd` or `even`."""
    made = make_case(number)
    return replace(made, facets=replace(made.facets, tags=("odd" if number % 2 else "even",)))
