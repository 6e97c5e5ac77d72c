"""Runs, cases, results and scorings, on both engines."""

import asyncio
import itertools
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import func, select, update

from pramana.errors import InvalidInput, NotFound, StoreFailed
from pramana.hash import hash_case
from pramana.model import Case, Outcome, Result, ResultKey, RunStatus
from pramana.request import RunEdit
from pramana.store import open_store
from pramana.store.schema import metadata, runs
from pramana.store.store import Store

from .samples import (
    AWKWARD,
    add_scoring,
    list_pending,
    make_case,
    make_cases,
    make_check,
    make_key,
    make_plan,
    make_result,
)


def put_results(store: Store, run_id: str, results: list[Result]) -> list[tuple[int, Result]]:
    reported: list[tuple[int, Result]] = []

    async def write() -> None:
        async with store.results.make_writer(run_id, reported.extend) as writer:
            for each in results:
                await writer.put([each])

    asyncio.run(write())
    return reported


def count_rows(store: Store, table: str) -> int:
    with store._database.read_transaction() as connection:
        return connection.execute(select(func.count()).select_from(metadata.tables[table])).scalar_one()


def test_a_new_run_has_everything_pending_in_order(store: Store) -> None:
    run = store.runs.create(make_plan("a", "b", repeats=2), make_cases(3))
    assert re.fullmatch(r"r\d{8}-\d{6}-[0-9a-f]{4}", run.id)
    assert (run.status, run.expected, run.stored, run.finished) == ("running", 12, 0, None)
    order = itertools.product(range(3), ("a", "b"), range(2))
    wanted = [(make_key(make_case(number), model, repeat), make_case(number)) for number, model, repeat in order]
    assert list(list_pending(store, run.id)) == wanted
    assert list(list_pending(store, run.id, "b")) == [each for each in wanted if each[0].model == "b"]
    assert list(store.cases.iterate(run.id)) == list(make_cases(3))
    assert [each.source for each in store.cases.iterate(run.id)] == [each.source for each in make_cases(3)]


def test_stored_results_are_no_longer_pending(store: Store) -> None:
    run = store.runs.create(make_plan("a", "b", repeats=2), make_cases(600))
    everything = [found for found, _ in list_pending(store, run.id)]
    done = everything[::3] + everything[1200:1300]
    put_results(store, run.id, [make_result(each) for each in done])
    assert [found for found, _ in list_pending(store, run.id)] == [each for each in everything if each not in set(done)]
    assert store.runs.read(run.id).stored == len(set(done))


def test_a_duplicate_case_runs_once_and_is_stored_once_across_runs(store: Store) -> None:
    first = store.runs.create(make_plan("a", "a"), [make_case(1), make_case(2), make_case(1)])
    assert first.expected == 2
    assert [found for found, _ in list_pending(store, first.id)] == [
        make_key(make_case(1), "a"),
        make_key(make_case(2), "a"),
    ]
    second = store.runs.create(make_plan("a"), [make_case(2), make_case(3)])
    assert list(store.cases.iterate(second.id)) == [make_case(2), make_case(3)]
    assert count_rows(store, "cases") == 3


def test_a_run_is_created_completely_or_not_at_all(store: Store) -> None:
    def break_off_cases() -> Iterator[Case]:
        yield from make_cases(700)
        raise InvalidInput("line 701 does not fit")

    with pytest.raises(InvalidInput, match="line 701"):
        store.runs.create(make_plan(), break_off_cases())
    assert store.runs.read_page()[0] == []
    assert [count_rows(store, table) for table in ("cases", "run_cases", "runs", "scorings")] == [0, 0, 0, 0]


def test_the_plan_digest_covers_plan_and_cases(store: Store) -> None:
    def digest(*of: Case, models: tuple[str, ...] = ("a",)) -> str:
        run = store.runs.create(make_plan(*models), of)
        with store._database.read_transaction() as connection:
            return str(connection.execute(select(runs.c.plan_digest).where(runs.c.id == run.id)).scalar_one())

    same = digest(make_case(1), make_case(2))
    assert same.startswith("sha256:")
    assert digest(make_case(1), make_case(2)) == digest(make_case(1), make_case(2), make_case(1)) == same
    assert (
        len(
            {
                same,
                digest(make_case(1)),
                digest(make_case(2), make_case(1)),
                digest(make_case(1), make_case(2), models=("b",)),
            }
        )
        == 4
    )


def test_name_and_note_of_a_run_can_change_and_are_not_part_of_the_plan(store: Store) -> None:
    plain, named = (
        store.runs.create(make_plan(), [make_case(1)], name=name, note=note)
        for name, note in ((None, " "), ("nightly", AWKWARD))
    )
    assert (plain.name, plain.note, named.name, named.note) == (None, None, "nightly", AWKWARD)
    with store._database.read_transaction() as connection:
        assert len(set(connection.scalars(select(runs.c.plan_digest)))) == 1
    last = store.changes.last_number()
    changed = store.runs.edit(named.id, RunEdit(note="better prompt"))
    assert (changed.name, changed.note) == ("nightly", "better prompt")
    ((subject, action),) = [(each.subject, each.action) for each in store.changes.list_after(last, 10)]
    assert (subject, action) == (named.id, "updated")
    assert store.runs.edit(named.id, RunEdit(name="", note=" \n")) == replace(changed, name=None, note=None)
    store.runs.edit(plain.id, RunEdit(name="Größe"))
    assert [run.id for run in store.runs.read_page(text="größe")[0]] == [plain.id]
    assert store.runs.edit(plain.id, RunEdit()) == store.runs.read(plain.id)
    with pytest.raises(InvalidInput, match="expected text of at most 100"):
        store.runs.edit(plain.id, RunEdit(name="x" * 101))
    with pytest.raises(NotFound):
        store.runs.edit("nobody", RunEdit(name="x"))


def test_a_run_is_found_by_its_whole_name_if_only_one_has_it(store: Store) -> None:
    one, two = (store.runs.create(make_plan(), [make_case(1)]) for _ in range(2))
    store.runs.edit(one.id, RunEdit(name="50% off @ night"))
    assert store.runs.find("50% OFF @ Night").id == store.runs.find_as_of_scoring("50% off @ night").id == one.id
    assert store.runs.find_as_of_scoring("50% off @ night@0").scoring == 0
    store.runs.edit(two.id, RunEdit(name=one.id))
    assert store.runs.find(one.id).id == one.id, "an ID is preferred to a name"
    store.runs.edit(two.id, RunEdit(name="50% OFF @ NIGHT"))
    with pytest.raises(NotFound, match=f"several runs are named .* \\({two.id}, {one.id}\\); pass the ID of one"):
        store.runs.find("50% off @ night")
    for part in ("50", "%", "50_ off @ night"):
        with pytest.raises(NotFound):
            store.runs.find(part)


def test_a_name_may_end_like_the_reference_to_a_scoring(store: Store) -> None:
    one, two, three = (store.runs.create(make_plan(), [make_case(1)]) for _ in range(3))
    store.runs.edit(one.id, RunEdit(name="prompt@2"))
    for reference in ("prompt@2", "PROMPT@2"):
        found = store.runs.find_as_of_scoring(reference)
        assert (found.id, found.scoring) == (one.id, None)
    assert store.runs.find_as_of_scoring("prompt@2@0").scoring == 0
    store.runs.edit(two.id, RunEdit(name="prompt"))
    assert store.runs.find_as_of_scoring("prompt@2").id == one.id, "the other run has no scoring 2"
    store.runs.edit(one.id, RunEdit(name=f"{two.id}@0"))
    assert store.runs.find_as_of_scoring(f"{two.id}@0").reference == f"{two.id}@0", "a scoring is preferred to a name"
    for name in ("a@b", "a@7"):
        for run in (one, three):
            store.runs.edit(run.id, RunEdit(name=name))
        with pytest.raises(NotFound, match="several runs are named"):
            store.runs.find_as_of_scoring(name)
    with pytest.raises(NotFound, match="there is no run"):
        store.runs.find_as_of_scoring(f"{'x' * 100_000}@1")


def test_a_run_is_found_by_id_prefix_or_latest(store: Store) -> None:
    with pytest.raises(NotFound, match="there is no run yet; start a run: pramana run"):
        store.runs.find("latest")
    made = [store.runs.create(make_plan(), [make_case(1)]) for _ in range(5)]
    assert store.runs.read_page()[0] == made[::-1]
    assert store.runs.read_page(limit=2)[0] == made[:2:-1]
    assert store.runs.find("latest") == made[-1]
    assert [store.runs.read(run.id) for run in made] == made
    ids = [run.id for run in made]
    unique = next(size for size in range(1, 22) if sum(other.startswith(ids[0][:size]) for other in ids) == 1)
    assert store.runs.find(ids[0][:unique]) == made[0]
    with pytest.raises(NotFound, match=r"matches several runs \(r.*, r.*, r.* …\); type more of the ID"):
        store.runs.find("r")
    with pytest.raises(NotFound, match=f'there is no run "x{ids[0]}"; did you mean "{ids[0]}"'):
        store.runs.find("x" + ids[0])
    for strange in ("", "%", "_" * 21, "\0", "\ud800", "r%"):
        with pytest.raises(NotFound):
            store.runs.find(strange)


def test_an_id_that_is_a_prefix_of_another_is_found_exactly(store: Store) -> None:
    short, long = (store.runs.create(make_plan(), [make_case(1)]) for _ in range(2))
    with store._database.write_transaction() as connection:
        connection.execute(update(runs).where(runs.c.id == long.id), {"id": f"{short.id}-and-more"})
    assert store.runs.read(short.id) == short


@pytest.mark.parametrize(
    "method",
    ["cases.iterate_pending_chunks", "results.iterate", "cases.iterate", "results.count_outcomes", "queue.finish", "queue.claim", "queue.renew_lease", "results.make_writer"],
)  # fmt: skip
def test_an_unknown_run_is_named(store: Store, method: str) -> None:
    arguments = {"queue.finish": (None, "stopped"), "queue.claim": ("me",), "results.make_writer": (print,)}
    with pytest.raises(NotFound, match='there is no run "r1"; see: pramana runs'):
        list(attrgetter(method)(store)("r1", *arguments.get(method, ())))


def test_a_duplicate_result_is_ignored_and_not_reported(store: Store) -> None:
    run = store.runs.create(make_plan(), make_cases(4))
    first = [make_result(make_key(make_case(number))) for number in (0, 1, 1)]
    first[2] = make_result(make_key(make_case(1)), Outcome.FAILED)
    reported = put_results(store, run.id, first)
    assert [each for _, each in reported] == first[:2]
    again = [make_result(make_key(make_case(number)), Outcome.ERRORED) for number in (3, 1, 0, 2)]
    later = put_results(store, run.id, again)
    assert [each for _, each in later] == [again[0], again[3]]
    assert put_results(store, run.id, again) == []
    assert list(store.results.iterate(run.id)) == reported + later
    assert store.runs.read(run.id).stored == 4
    assert store.results.count_outcomes(run.id) == {
        Outcome.PASSED: 2, Outcome.FAILED: 0, Outcome.ERRORED: 2, Outcome.UNSCORED: 0, Outcome.SKIPPED: 0
    }  # fmt: skip


def test_sequence_numbers_increase_across_runs_and_can_be_tailed(store: Store) -> None:
    two = [store.runs.create(make_plan(), make_cases(700)) for _ in range(2)]
    reported = []
    for run in (*two, *two):
        half = [found for found, _ in itertools.islice(list_pending(store, run.id), 350)]
        reported += [(run.id, *each) for each in put_results(store, run.id, [make_result(each) for each in half])]
    seqs = [seq for _, seq, _ in reported]
    assert len(seqs) == 1400
    assert seqs == sorted(set(seqs))
    for run in two:
        mine = [(seq, each) for run_id, seq, each in reported if run_id == run.id]
        assert list(store.results.iterate(run.id)) == mine
        assert list(store.results.iterate(run.id, after_seq=mine[400][0])) == mine[401:]
        assert list(store.results.iterate(run.id, after_seq=mine[-1][0])) == []


def test_sequence_numbers_of_a_deleted_run_are_not_reused(store: Store) -> None:
    run = store.runs.create(make_plan(), make_cases(3))
    ((last, _),) = put_results(store, run.id, [make_result(make_key(make_case(1)))])
    store.runs.delete(run.id)
    run = store.runs.create(make_plan(), make_cases(3))
    ((seq, _),) = put_results(store, run.id, [make_result(make_key(make_case(1)))])
    assert seq > last


def test_a_result_of_a_case_outside_the_run_is_refused(store: Store) -> None:
    store.runs.create(make_plan(), [make_case(2)])
    run = store.runs.create(make_plan(), [make_case(1)])
    for foreign in (make_case(2), make_case(3)):
        with pytest.raises(StoreFailed, match="the database failed"):
            put_results(store, run.id, [make_result(make_key(foreign))])
    assert list(store.results.iterate(run.id)) == []


def test_rescoring_keeps_earlier_checks(store: Store) -> None:
    run = store.runs.create(make_plan(), make_cases(600))
    keys = [found for found, _ in list_pending(store, run.id)]
    old = put_results(store, run.id, [make_result(each, Outcome.FAILED) for each in keys])
    nothing = Result(keys[0], "x", None, None, (), None, None)
    assert nothing.outcome is Outcome.ERRORED

    judged = (make_check(Outcome.PASSED, "judge"), make_check(Outcome.UNSCORED, "second"))
    assert add_scoring(store, run.id, "by a judge", ((each, judged) for each in keys[:500])) == 1
    assert add_scoring(store, run.id, "one more", [(keys[0], (make_check(Outcome.SKIPPED),)), (keys[1], ())]) == 2

    assert list(store.results.iterate(run.id, scoring=0)) == old
    middle = [each.checks for _, each in store.results.iterate(run.id, scoring=1)]
    assert middle == [judged] * 500 + [old[0][1].checks] * 100
    newest = [each.checks for _, each in store.results.iterate(run.id)]
    assert newest == [(make_check(Outcome.SKIPPED),), *middle[1:]]
    assert store.scorings.read_scoring_labels(run.id) == {0: "run", 1: "by a judge", 2: "one more"}
    for scoring in (0, 1, 2, None):
        shown = [each.outcome for _, each in store.results.iterate(run.id, scoring=scoring)]
        assert store.results.count_outcomes(run.id, scoring) == {outcome: shown.count(outcome) for outcome in Outcome}
    with pytest.raises(NotFound, match="the run has no scoring 3; it has 0, 1, 2"):
        store.results.count_outcomes(run.id, 3)


def test_counts_after_rescoring_include_results_without_a_reply(store: Store) -> None:
    run = store.runs.create(make_plan(), make_cases(3))
    keys = [found for found, _ in list_pending(store, run.id)]
    silent = Result(keys[0], "x", None, None, (make_check(),), None, None)
    unchecked = Result(keys[1], "x", make_result(keys[1]).reply, None, (), None, None)
    put_results(store, run.id, [silent, unchecked, make_result(keys[2])])
    assert store.results.count_outcomes(run.id)[Outcome.ERRORED] == 2
    add_scoring(store, run.id, "again", [(keys[2], (make_check(), make_check(Outcome.FAILED)))])
    shown = [each.outcome for _, each in store.results.iterate(run.id)]
    assert shown == [Outcome.ERRORED, Outcome.ERRORED, Outcome.FAILED]
    assert store.results.count_outcomes(run.id) == {outcome: shown.count(outcome) for outcome in Outcome}


def test_an_interrupted_rescoring_keeps_its_checks(store: Store) -> None:
    run = store.runs.create(make_plan(), make_cases(600))
    keys = [found for found, _ in list_pending(store, run.id)]
    old = put_results(store, run.id, [make_result(each) for each in keys])

    def break_off_scoring() -> None:
        with store.scorings.begin_rescoring(run.id, "broken") as broken:
            broken.add([(each, (make_check(Outcome.FAILED),)) for each in keys[:500]])
            assert list(store.results.iterate(run.id)) == old, "checks were seen before the scoring was finished"
            broken.label = "ended early"
            broken.add([(keys[501], (make_check(),)), (ResultKey("sha256:unknown", "fake"), (make_check(),))])

    with pytest.raises(NotFound, match="so that result cannot be scored again"):
        break_off_scoring()
    newest = [each.checks for _, each in store.results.iterate(run.id)]
    assert newest == [(make_check(Outcome.FAILED),)] * 500 + [each.checks for _, each in old[500:]]
    assert store.scorings.read_scoring_labels(run.id) == {0: "run", 1: "ended early"}


def test_a_rescoring_without_checks_leaves_no_scoring(store: Store) -> None:
    run = store.runs.create(make_plan(), [make_case(1)])
    put_results(store, run.id, [make_result(make_key(make_case(1)))])
    with pytest.raises(NotFound), store.scorings.begin_rescoring(run.id, "broken") as broken:
        broken.add([(ResultKey("sha256:unknown", "fake"), (make_check(),))])
    assert store.scorings.read_scoring_labels(run.id) == {0: "run"}
    assert add_scoring(store, run.id, "whole", [(make_key(make_case(1)), (make_check(),))]) == 1


def test_a_finished_run_keeps_its_reason_and_notes(store: Store) -> None:
    run = store.runs.create(make_plan(), [make_case(1)])
    assert store.queue.finish(run.id, None, "interrupted", "Ctrl-C", {"prices": "1", "limiter": [1]})
    stopped = store.runs.read(run.id)
    assert (stopped.status, stopped.reason, stopped.notes) == ("interrupted", "Ctrl-C", {"prices": "1", "limiter": [1]})
    assert stopped.finished
    assert store.queue.claim(run.id, "me")
    again = store.runs.read(run.id)
    assert (again.status, again.finished, again.reason) == ("running", None, None)
    assert store.queue.finish(run.id, "me", "finished", notes={"limiter": [1, 2]})
    done = store.runs.read(run.id)
    assert (done.status, done.reason, done.notes) == ("finished", None, {"prices": "1", "limiter": [1, 2]})
    assert not store.queue.claim(run.id, "me"), "a finished run is nobody's to claim"


def test_deleting_a_run_keeps_cases_used_by_others(store: Store) -> None:
    gone, kept = store.runs.create(make_plan(), make_cases(600)), store.runs.create(make_plan(), make_cases(2))
    for run in (gone, kept):
        put_results(store, run.id, [make_result(make_key(make_case(1)))])
        add_scoring(store, run.id, "again", [(make_key(make_case(1)), (make_check(Outcome.FAILED),))])
    there = list(store.results.iterate(kept.id))
    store.runs.delete(gone.id)
    assert store.runs.read_page()[0] == [store.runs.read(kept.id)]
    assert list(store.results.iterate(kept.id)) == there
    assert list(store.cases.iterate(kept.id)) == list(make_cases(2))
    sizes = {table: count_rows(store, table) for table in ("cases", "run_cases", "results", "checks", "scorings")}
    assert sizes == {"cases": 2, "run_cases": 2, "results": 1, "checks": 2, "scorings": 2}


def test_exactly_one_of_many_threads_claims_a_run(store: Store) -> None:
    run = store.runs.create(make_plan(), [make_case(1)], owner="server")
    store.runs.create(make_plan(), [make_case(1)])
    assert store.queue.list_waiting() == [run.id], "what was begun on the command line waits for no server"
    for attempt in (1, 2):
        start = threading.Barrier(8)
        won: list[int] = []

        def claim(number: int, seconds: float, start: threading.Barrier = start, won: list[int] = won) -> None:
            start.wait()
            if store.queue.claim(run.id, f"process {number}", seconds):
                won.append(number)

        threads = [threading.Thread(target=claim, args=(number, 60)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert store.runs.read(run.id).attempts == attempt
        assert store.queue.list_waiting() == []
        assert store.queue.renew_lease(run.id, f"process {won[0]}", lease_s=60)
        assert not store.queue.renew_lease(run.id, f"process {won[0] + 1}"), "the lease is another's"
        assert store.queue.renew_lease(run.id, lease_s=-1), "whoever does not say who they are prolongs what there is"
        assert store.queue.list_waiting() == [run.id], "a lease that ran out is up for the next"


@pytest.mark.parametrize("status", ["finished", "stopped", "queued", "interrupted"])
def test_a_former_owner_can_neither_finish_nor_release_a_run(store: Store, status: RunStatus) -> None:
    run = store.runs.create(make_plan(), [make_case(1)], owner="server")
    assert not store.queue.finish(run.id, None, status), "it was never begun"
    assert store.queue.claim_for_server(run.id, "first", lease_s=-1)
    assert store.queue.claim_for_server(run.id, "second", lease_s=60)
    before = store.changes.last_number()
    for other in ("first", None, "third"):
        assert not store.queue.finish(run.id, other, status, "for a reason of theirs", {"note": 1})
    now = store.runs.read(run.id)
    assert (now.status, now.reason, now.notes, store.queue.find_holder(run.id)) == ("running", None, {}, "second")
    assert store.runs.read(run.id).attempts == 2
    assert store.changes.last_number() == before, "nothing has happened that could be told"
    assert store.queue.finish(run.id, "second", status, "done")
    assert (store.runs.read(run.id).status, store.queue.find_holder(run.id)) == (status, None)
    assert not store.queue.finish(run.id, "second", "stopped"), "it holds it no more"
    assert not store.queue.finish(run.id, None, "stopped"), "what has ended, or waits, stays so"


@pytest.mark.parametrize("bad", ["", "mysql://x/y", "sqlite://", "sqlite:///:memory:", "pramana.db"])
def test_an_unsupported_url_is_refused(bad: str) -> None:
    with pytest.raises(InvalidInput, match="sqlite:////path/to/file"):
        open_store(bad)


def test_a_failed_connection_does_not_show_the_password() -> None:
    with pytest.raises(StoreFailed) as caught:
        open_store("postgresql://user:hunter2@127.0.0.1:1/none")
    assert "the database failed" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite3").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreFailed, match="file is not a database"):
        open_store(f"sqlite:///{tmp_path}/x.sqlite3")


STREAM = """
import resource, sys
from itertools import chain
from pramana.store import open_store
from pramana.model import Case, Facets, Plan, Target, Turn

def cases(count):
    for number in range(count):
        yield Case(f"case-{number}", "test_case", (Turn("user", f"What is {number}?" * 5),), Facets("a", "b"))

store = open_store(sys.argv[1])
run = store.runs.create(Plan("s", None, (Target("m", "fake", "m"),)), cases(int(sys.argv[2])))
pending = sum(1 for _ in chain.from_iterable(store.cases.iterate_pending_chunks(run.id)))
assert pending == sum(1 for _ in store.cases.iterate(run.id)) == int(sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_cases(tmp_path: Path) -> None:
    def measure_peak(count: int) -> int:
        command = [sys.executable, "-c", STREAM, f"sqlite:///{tmp_path}/{count}.sqlite3", str(count)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    few, many = measure_peak(1_000), measure_peak(30_000)
    assert many <= 1.15 * few, f"{few} KB for 1,000 cases, {many} KB for 30,000"


READ_PAIRS = """
import resource, sys
from pramana.store import open_store

assert sum(1 for _ in open_store(sys.argv[1]).results.iterate_with_cases(sys.argv[2])) == int(sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_when_results_are_read_in_case_order(tmp_path: Path) -> None:
    def measure_peak(count: int) -> int:
        url = f"sqlite:///{tmp_path}/{count}.sqlite3"
        store = open_store(url)
        run = store.runs.create(make_plan(), make_cases(count))
        put_results(store, run.id, [make_result(each) for each, _ in list_pending(store, run.id)][::-1])
        store.close()
        command = [sys.executable, "-c", READ_PAIRS, url, run.id, str(count)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    few, many = measure_peak(1_000), measure_peak(12_000)
    assert many <= 1.15 * few, f"{few} KB for 1,000 results, {many} KB for 12,000"


def test_importing_the_store_loads_no_database_library() -> None:
    code = "import sys, pramana.store; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_results_are_read_with_their_cases(store: Store) -> None:
    run = store.runs.create(make_plan("a", "b"), make_cases(300))
    there = put_results(store, run.id, [make_result(found) for found, _ in list_pending(store, run.id)])
    pairs = list(store.results.iterate_with_cases(run.id))
    assert [each for _, each in pairs] == [each for _, each in there]
    assert all(hash_case(one) == each.key.case for one, each in pairs)


def test_pairs_are_in_case_order(store: Store) -> None:
    wanted = replace(make_plan("b", "a", repeats=2), variants=("voice", "text"))
    run = store.runs.create(wanted, (make_case(number) for number in (7, 3, 7, *range(9, 200))))
    planned = [found for found, _ in list_pending(store, run.id)]
    there = put_results(store, run.id, [make_result(each) for each in random.Random(7).sample(planned, len(planned))])
    pairs = list(store.results.iterate_with_cases(run.id))
    order = itertools.product((7, 3, *range(9, 200)), ("b", "a"), ("voice", "text"), range(2))
    expected = [
        ResultKey(hash_case(make_case(number)), model, variant, repeat) for number, model, variant, repeat in order
    ]
    assert [each.key for _, each in pairs] == expected
    assert all(hash_case(one) == each.key.case for one, each in pairs)
    numbered = [(seq, each) for seq, _, each in store.results.iterate_numbered_with_cases(run.id, with_raw=True)]
    assert numbered == there, "those stay in the order of storing"


def test_pairs_of_an_unfinished_run_are_its_stored_results(store: Store) -> None:
    run = store.runs.create(make_plan(), make_cases(20))
    assert list(store.results.iterate_with_cases(run.id)) == []
    planned = [found for found, _ in list_pending(store, run.id)]
    put_results(store, run.id, [make_result(planned[number]) for number in (12, 5)])
    assert [each.key for _, each in store.results.iterate_with_cases(run.id)] == [planned[5], planned[12]]


def test_runs_are_paired_by_case_digest(store: Store) -> None:
    run = store.runs.create(make_plan(), [make_case(1)])
    ((found, one),) = list_pending(store, run.id)
    assert found.case == hash_case(one) == hash_case(make_case(1))
