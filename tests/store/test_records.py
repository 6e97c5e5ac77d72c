"""Columns round-trip: any text, case, plan and result, through the functions and through both engines."""

import asyncio
from itertools import count

import pytest
from hypothesis import example, given
from msgspec.structs import replace
from sqlalchemy import Text, select

from pramana.errors import StoreFailed
from pramana.hash import hash_case
from pramana.jsonl import to_canonical_json
from pramana.model import (
    Assertion,
    Case,
    Check,
    Facets,
    Failure,
    Outcome,
    Plan,
    RecordedCall,
    Reply,
    Result,
    ResultKey,
    SourceLocation,
    Target,
    Turn,
    Usage,
)
from pramana.replies import encode_raw_response
from pramana.store import records, schema
from pramana.store.records import escape_text, unescape_text
from pramana.store.store import Store

from .samples import (
    AWKWARD,
    add_scoring,
    cases,
    list_pending,
    long_or_short,
    make_case,
    make_key,
    make_plan,
    make_result,
    plans,
    results_for,
    texts,
)

A_KEY = make_key(make_case(1))


@given(texts)
@example(AWKWARD)
def test_any_text_round_trips(text: str) -> None:
    kept = escape_text(text)
    kept.encode("utf-8", "strict")
    assert "\0" not in kept
    assert unescape_text(kept) == text


def test_ordinary_text_is_stored_unchanged() -> None:
    assert escape_text("caf\u00e9 语 😀 \\u0000") == "caf\u00e9 语 😀 \\u0000"


@given(texts, texts)
def test_different_texts_are_stored_differently(one: str, other: str) -> None:
    assert (escape_text(one) == escape_text(other)) == (one == other)


@given(cases)
def test_a_case_keeps_its_digest(some: Case) -> None:
    source = some.source and (escape_text(some.source.file), some.source.line)
    back = records.case_from_json(records.case_to_json(some), *(source or (None, None)))
    assert back == some
    assert back.source == some.source
    assert hash_case(back) == hash_case(some)


@given(plans)
def test_a_plan_round_trips(some: Plan) -> None:
    assert records.plan_from_json(records.encode_json_column(records.plan_to_plain(some))) == some


def test_a_plan_from_before_embedders_loads_and_keeps_its_digest() -> None:
    before = (
        '{"suite":"mine","suite_hash":null,"targets":[{"typed":"fake","provider":"fake","model":"words","arguments":{}}],'
        '"repeats":1,"parameters":{"temperature":0},"system_prompt":null,"judge":null,"selection":{},'
        '"runner_version":"0.1.0"}'
    )
    plan = records.plan_from_json(before)
    assert plan.embedder is None
    assert records.encode_json_column(records.plan_to_plain(plan)) == before


@given(results_for(A_KEY))
def test_a_result_round_trips(some: Result) -> None:
    row = records.result_to_row(some)
    assert len(row) == len(records.RESULT_COLUMNS)
    made = tuple(records.check_from_row(records.check_to_row(check)) for check in some.checks)
    assert records.result_from_row(A_KEY.case, row, made) == some


@given(long_or_short)
def test_a_raw_response_keeps_its_exact_json(raw: object) -> None:
    packed = records._compress(encode_raw_response(raw))
    assert len(packed) <= records.COMPRESSION_THRESHOLD_BYTES or packed[0] == records._ZLIB_FIRST_BYTE
    assert to_canonical_json(Reply("", raw=records._decompress(packed)).response()) == to_canonical_json(raw)


def test_a_long_raw_response_is_compressed() -> None:
    assert len(records._compress(encode_raw_response([{"delta": "word"}] * 1000))) < 1000
    assert records._compress(encode_raw_response({"short": 1})) == b'{"short":1}'


def put_results(store: Store, run_id: str, results: list[Result]) -> list[tuple[int, Result]]:
    reported: list[tuple[int, Result]] = []

    async def write() -> None:
        async with store.results.make_writer(run_id, reported.extend) as writer:
            for each in results:
                await writer.put([each])

    asyncio.run(write())
    return reported


def test_random_results_round_trip_through_the_database(store: Store) -> None:
    """One run and one transaction an example: hypothesis gathers, the engine then holds all of them at once."""
    gathered: dict[ResultKey, Result] = {}

    @given(results_for(A_KEY))
    def gather(some: Result) -> None:
        gathered.setdefault(some.key, some)

    gather()
    run = store.runs.create(make_plan(), [make_case(1)])
    reported = put_results(store, run.id, list(gathered.values()))
    assert [each for _, each in reported] == list(gathered.values())
    assert list(store.results.iterate(run.id)) == reported


def test_random_cases_and_plans_round_trip_through_the_database(store: Store) -> None:
    gathered: dict[str, Case] = {}

    @given(cases)
    def gather(some: Case) -> None:
        gathered.setdefault(hash_case(some), some)

    gather()

    @given(plans)
    def check(some: Plan) -> None:
        run = store.runs.create(some, gathered.values())
        assert run.plan == some
        assert run == store.runs.read(run.id)
        store.runs.delete(run.id)

    check()
    run = store.runs.create(make_plan(), gathered.values())
    assert list(store.cases.iterate(run.id)) == list(gathered.values())
    assert [each.source for each in store.cases.iterate(run.id)] == [each.source for each in gathered.values()]


def test_every_text_column_stores_nul_and_lone_surrogates(store: Store) -> None:
    """Fill each text column with text that neither engine can hold, and look at the columns themselves."""
    number = count()

    def make_awkward() -> str:
        return f"{next(number)} {AWKWARD}"

    one = Case(
        id=make_awkward(),
        kind="scenario",
        turns=(Turn("user", make_awkward()),),
        facets=Facets(make_awkward(), make_awkward(), make_awkward(), (make_awkward(),)),
        assertion=Assertion(make_awkward(), judge_prompt=make_awkward(), schema={make_awkward(): make_awkward()}),
        ideals=(make_awkward(),),
        name=make_awkward(),
        expected_outcome=make_awkward(),
        prompt_audio_url=make_awkward(),
        source=SourceLocation(make_awkward(), 1),
    )
    target = Target(make_awkward(), make_awkward(), make_awkward(), {make_awkward(): make_awkward()})
    whole = Plan(
        make_awkward(),
        make_awkward(),
        (target,),
        1,
        {make_awkward(): make_awkward()},
        make_awkward(),
        target,
        {make_awkward(): 1},
        make_awkward(),
    )
    run = store.runs.create(
        whole,
        [one],
        creator=make_awkward(),
        limits={make_awkward(): make_awkward()},
        name=make_awkward(),
        note=make_awkward(),
    )
    assert [found for _, found in list_pending(store, run.id)] == [one]
    reply = Reply(
        make_awkward(),
        Usage(1),
        make_awkward(),
        make_awkward(),
        make_awkward(),
        1,
        2,
        encode_raw_response({make_awkward(): make_awkward()}),
        (make_awkward(),),
        0.5,
        answers=(make_awkward(),),
        call=RecordedCall(make_awkward(), make_awkward(), (make_awkward(),)),
    )
    check = Check(
        make_awkward(), make_awkward(), Outcome.FAILED, make_awkward(), 0.5, {make_awkward(): [make_awkward()]}
    )
    a_key = ResultKey(hash_case(one), target.typed, make_awkward(), 0)
    some = Result(
        a_key, make_awkward(), reply, Failure(make_awkward(), make_awkward()), (check,), make_awkward(), make_awkward()
    )
    assert [each for _, each in put_results(store, run.id, [some])] == [some]
    assert [each for _, each in store.results.iterate(run.id)] == [some]
    owner = make_awkward()
    assert store.queue.claim(run.id, owner, 60)
    label = make_awkward()
    assert add_scoring(store, run.id, label, [(a_key, (check,))]) == 1
    assert store.scorings.read_scoring_labels(run.id)[1] == label
    holder = read_columns(store, "runs", ["lease_holder"])
    assert store.queue.finish(run.id, owner, "stopped", make_awkward(), {make_awkward(): make_awkward()})
    done = store.runs.find("latest")
    assert (done.plan, done.reason and "side by side \ud83d\ude00" in done.reason) == (whole, True)

    ours = {"id", "owner", "status", "created", "finished", "plan_digest", "outcome", "lease_holder", "cancelled"}
    ours |= {"at", "kind", "subject", "action", "role"}  # of the changes: runs go by ids
    for table in schema.metadata.sorted_tables:
        names = [column.name for column in table.columns if isinstance(column.type, Text) and column.name not in ours]
        if table.name == "cases":
            names.remove("digest")
        for name, value in {**read_columns(store, table.name, names), **holder}.items():
            assert "\ufdd0d83d" in value, f"{table.name}.{name} holds {value!r}"
            assert AWKWARD in unescape_text(value).replace('\\"', '"').replace("\\u0000", "\0")


def read_columns(store: Store, table: str, names: list[str]) -> dict[str, str]:
    columns = [schema.metadata.tables[table].c[name] for name in names]
    with store._database.read_transaction() as connection:
        last = select(*columns).order_by(*(column.desc() for column in schema.metadata.tables[table].primary_key))
        return dict(connection.execute(last).mappings().first() or {}) if columns else {}


def test_non_plain_data_is_refused_and_the_rest_is_stored(store: Store) -> None:
    run = store.runs.create(make_plan(), [make_case(1), make_case(2), make_case(3)])
    good, bad, fine = (make_result(make_key(make_case(number))) for number in (1, 2, 3))
    assert bad.reply
    bad = replace(bad, reply=replace(bad.reply, raw={"plain": "data"}))  # as a careless provider would
    with pytest.raises(StoreFailed, match="is not plain data and was not stored: a raw response is the bytes"):
        put_results(store, run.id, [good, bad, fine])
    assert [each for _, each in store.results.iterate(run.id)] == [good, fine]
