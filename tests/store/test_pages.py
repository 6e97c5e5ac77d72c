"""Runs and results by the page, on both engines."""

from pramana.model import Key, Outcome
from pramana.store.results import EXCERPT_LENGTH
from pramana.store.store import Store

from .samples import case, check, key, plan, rescore, result, some_cases
from .test_runs import put_all


def test_a_page_has_the_outcomes_of_the_newest_checks(store: Store) -> None:
    run = store.runs.create(plan(), some_cases(40))
    put_all(store, run.id, [result(key(each), case_id=each.id) for each in some_cases(40)])
    seqs = [seq for seq, _ in store.results.iterate(run.id)]
    before = store.results.page(run.id, outcome=Outcome.PASSED)[1]
    assert before == store.results.count_outcomes(run.id)[Outcome.PASSED]
    rescore(store, run.id, "again", [(key(case(number)), (check(Outcome.FAILED),)) for number in (3, 7)])
    found, total = store.results.page(run.id, outcome=Outcome.FAILED)
    assert total == len(found) == store.results.count_outcomes(run.id)[Outcome.FAILED]
    assert {each.case_id for _, each in found} >= {case(3).id, case(7).id}
    page, total = store.results.page(run.id, limit=10, offset=35)
    assert ([seq for seq, _ in page], total) == (seqs[35:], 40)


def test_a_list_has_the_beginning_of_an_answer_and_one_result_has_all_of_it(store: Store) -> None:
    from msgspec.structs import replace

    run = store.runs.create(plan(), [case(1)])
    made = result(key(case(1)))
    assert made.reply
    long = "\0" * EXCERPT_LENGTH + "the end"  # each is written by several characters
    put_all(store, run.id, [replace(made, reply=replace(made.reply, text=long))])
    (((seq, found),), _) = store.results.page(run.id)
    assert found.reply
    assert found.reply.raw is None
    assert found.reply.text == "\0" * (EXCERPT_LENGTH // 5)
    asked, whole = store.results.read(run.id, seq)
    assert whole.reply
    assert (asked, whole.reply.text, whole.reply.raw) == (case(1), long, made.reply.raw)


def test_runs_are_found_by_what_is_in_their_plans_and_nothing_else(store: Store) -> None:
    mine = store.runs.create(plan(), [case(1)], creator="50%_of\\us")
    other = store.runs.create(plan(), [case(2)])
    assert [run.id for run in store.runs.page(text="50%_OF\\us")[0]] == [mine.id]
    assert store.runs.page(text="50__") == ([], 0)
    assert [run.id for run in store.runs.page(suite="mi")[0]] == [other.id, mine.id]
    assert store.runs.page(suite="m_ne") == ([], 0)
    assert store.runs.page(model="fak%") == ([], 0)
    assert store.runs.page(limit=1, offset=1)[0][0].id == mine.id


def test_a_result_that_came_later_is_after_those_before(store: Store) -> None:
    run = store.runs.create(plan(), some_cases(3))
    number = store.runs.states([run.id])[run.id].run_no
    assert store.results.last_seq(number) == 0
    put_all(store, run.id, [result(key(case(1)))])
    first = store.results.last_seq(number)
    put_all(store, run.id, [result(key(case(2)))])
    (found,) = store.results.list_after(number, first)
    assert found[1].key == Key(key(case(2)).case, "fake", found[1].key.variant, found[1].key.repeat)
    assert store.runs.states(["r0"]) == {}
