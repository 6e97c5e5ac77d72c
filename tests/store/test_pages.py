"""Pages of runs and results, on both engines."""

from pramana.model import Outcome, ResultKey
from pramana.store.results import REPLY_EXCERPT_LENGTH
from pramana.store.store import Store

from .samples import add_scoring, make_case, make_cases, make_check, make_key, make_plan, make_result
from .test_runs import put_results


def test_a_page_shows_the_outcomes_of_the_newest_checks(store: Store) -> None:
    run = store.runs.create(make_plan(), make_cases(40))
    put_results(store, run.id, [make_result(make_key(each), case_id=each.id) for each in make_cases(40)])
    seqs = [seq for seq, _ in store.results.iterate(run.id)]
    before = store.results.read_page(run.id, outcome=Outcome.PASSED)[1]
    assert before == store.results.count_outcomes(run.id)[Outcome.PASSED]
    add_scoring(
        store, run.id, "again", [(make_key(make_case(number)), (make_check(Outcome.FAILED),)) for number in (3, 7)]
    )
    found, total = store.results.read_page(run.id, outcome=Outcome.FAILED)
    assert total == len(found) == store.results.count_outcomes(run.id)[Outcome.FAILED]
    assert {each.case_id for _, each in found} >= {make_case(3).id, make_case(7).id}
    page, total = store.results.read_page(run.id, limit=10, offset=35)
    assert ([seq for seq, _ in page], total) == (seqs[35:], 40)


def test_a_list_has_truncated_answers_and_a_single_result_the_whole(store: Store) -> None:
    from msgspec.structs import replace

    run = store.runs.create(make_plan(), [make_case(1)])
    made = make_result(make_key(make_case(1)))
    assert made.reply
    long = "\0" * REPLY_EXCERPT_LENGTH + "the end"  # each is written by several characters
    put_results(store, run.id, [replace(made, reply=replace(made.reply, text=long))])
    (((seq, found),), _) = store.results.read_page(run.id)
    assert found.reply
    assert found.reply.raw is None
    assert found.reply.text == "\0" * (REPLY_EXCERPT_LENGTH // 5)
    asked, whole = store.results.read(run.id, seq)
    assert whole.reply
    assert (asked, whole.reply.text, whole.reply.raw) == (make_case(1), long, made.reply.raw)


def test_runs_are_searched_by_the_contents_of_their_plans_only(store: Store) -> None:
    mine = store.runs.create(make_plan(), [make_case(1)], creator="50%_of\\us")
    other = store.runs.create(make_plan(), [make_case(2)])
    assert [run.id for run in store.runs.read_page(text="50%_OF\\us")[0]] == [mine.id]
    assert store.runs.read_page(text="50__") == ([], 0)
    assert [run.id for run in store.runs.read_page(suite="mi")[0]] == [other.id, mine.id]
    assert store.runs.read_page(suite="m_ne") == ([], 0)
    assert store.runs.read_page(model="fak%") == ([], 0)
    assert store.runs.read_page(limit=1, offset=1)[0][0].id == mine.id


def test_later_results_come_after_earlier_ones(store: Store) -> None:
    run = store.runs.create(make_plan(), make_cases(3))
    number = store.runs.read_states([run.id])[run.id].run_no
    assert store.results.find_last_seq(number) == 0
    put_results(store, run.id, [make_result(make_key(make_case(1)))])
    first = store.results.find_last_seq(number)
    put_results(store, run.id, [make_result(make_key(make_case(2)))])
    (found,) = store.results.list_after(number, first)
    assert found[1].key == ResultKey(make_key(make_case(2)).case, "fake", found[1].key.variant, found[1].key.repeat)
    assert store.runs.read_states(["r0"]) == {}
