"""Scenarios in a store, on both engines: pages, filters, imports, deletion and restoration."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import delete, update

from pramana.errors import AlreadyExists, NotFound, StoreFailed
from pramana.load.scenario import parse_scenario_or_errors
from pramana.model import Scenario
from pramana.request import Selection
from pramana.store import open_store
from pramana.store.engine import LockKey
from pramana.store.scenarios import ScenarioIdsExist
from pramana.store.schema import deleted_scenarios, scenarios
from pramana.store.store import Store


def make_scenario(scenario_id: str, tags: Sequence[str] = (), **fields: Any) -> Scenario:
    required = {"name": "A name", "type": "task-completion", "prompt": "p", "expected_outcome": "o"}
    return Scenario(id=scenario_id, tags=tuple(tags), **{**required, **fields})


def find_ids(store: Store, **wanted: Any) -> list[str]:
    page, total = store.scenarios.read_page(Selection(**wanted), 0, 100)
    ids = [each.id for each in page]
    assert total == len(ids)
    return ids


def test_pages_are_in_the_order_of_ids_whatever_the_locale(store: Store) -> None:
    ids = ["b", "a-b", "ab", "a", "a-a", "0", "-", "a0", "b-1"]
    store.scenarios.import_([make_scenario(each) for each in ids], "skip")
    assert find_ids(store) == sorted(ids)
    page, total = store.scenarios.read_page(Selection(), 2, 3)
    assert ([each.id for each in page], total) == (sorted(ids)[2:5], 9)
    assert store.scenarios.read_page(Selection(), 50, 10) == ([], 9)
    assert [each.id for some in store.scenarios.iterate_chunks(Selection()) for each in some] == sorted(ids)


TAGGED = [
    make_scenario("a", tags=["domain:travel", "task:booking"], prompt="Two TICKETS"),
    make_scenario("b", tags=["domain:health"], difficulty="hard", name="Tickets"),
    make_scenario("c", tags=["domainless", "task:booking", 'quo"te'], language="de"),
    make_scenario("d", type="conversation-flow", expected_outcome="A ticket is sold"),
    make_scenario("e", tags=["domain:", "Domain:travel"]),
]


@pytest.mark.parametrize(
    "filters",
    [
        {"tags": ("domain:",)}, {"tags": ("domain",)}, {"tags": ("domain:travel", "task:booking")},
        {"all_tags": ("domain:", "task:booking")}, {"all_tags": ("domain:travel", "domain:health")},
        {"tags": ("task:",), "all_tags": ("domain:",)}, {"tags": ('quo"te',)}, {"tags": ('quo":',)}, {"tags": (":",)},
        {"text": "ticket"}, {"text": "TICKETS", "tags": ("domain:",)}, {"categories": ("conversation-flow",)},
        {"difficulties": ("hard",), "languages": ("de",)}, {"ids": ("c", "e", "nobody"), "all_tags": ("domainless",)},
    ],
)  # fmt: skip
def test_a_selection_matches_the_same_in_a_store_and_in_files(store: Store, filters: dict[str, Any]) -> None:
    store.scenarios.import_(TAGGED, "skip")
    cases = [
        scenario.to_case() for each in TAGGED if (scenario := parse_scenario_or_errors(msgspec.to_builtins(each))[0])
    ]
    assert len(cases) == len(TAGGED)
    assert find_ids(store, **filters) == [each.id for each in cases if Selection(**filters).matches(each)]
    chunks = store.scenarios.iterate_chunks(Selection(**filters, limit=1))
    assert [each.id for some in chunks for each in some] == find_ids(store, **filters)[:1]


def test_filters_are_combined(store: Store) -> None:
    store.scenarios.import_(
        [
            make_scenario("a", type="conversation-flow", tags=["x", "y"], language="de"),
            make_scenario("b", difficulty="hard", tags=["x"], prompt="Grüße aus KÖLN"),
            make_scenario("c", difficulty="hard", tags=["y"], name="Straße", expected_outcome="100%_sure"),
        ],
        "skip",
    )
    assert find_ids(store, categories=("conversation-flow",)) == ["a"]
    assert find_ids(store, difficulties=("hard", "easy")) == ["b", "c"]
    assert find_ids(store, difficulties=("hard",), languages=("de",)) == []
    assert find_ids(store, tags=("x",)) == ["a", "b"]
    assert find_ids(store, tags=("x", "y")) == ["a", "b", "c"]
    assert find_ids(store, all_tags=("x", "y")) == ["a"]
    assert find_ids(store, ids=("c", "a", "nobody")) == ["a", "c"]
    assert find_ids(store, text="köln") == ["b"]
    assert find_ids(store, text="STRASSE") == ["c"]
    assert find_ids(store, text="100%_", difficulties=("hard",)) == ["c"]
    assert find_ids(store, text="%") == ["c"]
    assert find_ids(store, text="B") == ["b"]
    assert find_ids(store, text="en") == []  # the language is no text that is looked into


TRICKY = ['"', ",", '","', "\\", "a,", ",b", "]", "[", '\\"', "x\ny", "\0", "\ufdd0", "é", "a b", "%", "_", "null"]


@given(st.lists(st.lists(st.sampled_from(TRICKY), max_size=4), min_size=1, max_size=6), st.sampled_from(TRICKY))
def test_a_tag_filter_matches_whole_tags_only(store: Store, lists: list[list[str]], tag: str) -> None:
    with store._database.write_transaction() as connection:
        connection.execute(delete(scenarios))
    store.scenarios.import_([make_scenario(f"s{n}", tags=tags) for n, tags in enumerate(lists)], "skip")
    assert find_ids(store, tags=(tag,)) == [f"s{n}" for n, tags in enumerate(lists) if tag in tags]


def test_unusual_text_round_trips(store: Store) -> None:
    odd = [
        "\0",
        "\ufdd0",
        "\ufdd00041",
        "\ufdd0fdd0",
        "\u2028\x85",
        "\u202eabc",
        "😀" * 10,
        "</script>",
        "x" * 1_000_000,
    ]
    for n, text in enumerate(odd):
        store.scenarios.create(
            make_scenario(f"s{n}", name=text, prompt=text, expected_outcome=text, tags=[text], language=text)
        )
        kept = store.scenarios.read(f"s{n}")
        assert {kept.name, kept.prompt, kept.expected_outcome, kept.language, *kept.tags} == {text}
        assert find_ids(store, text=text[:20], ids=(f"s{n}",)) == [f"s{n}"]
    assert [each.prompt for each in store.scenarios.read_page(Selection(), 0, 20)[0]] == odd
    assert [each.prompt for some in store.scenarios.iterate_chunks(Selection()) for each in some] == odd


def test_an_import_follows_its_mode(store: Store) -> None:
    first = store.scenarios.import_([make_scenario("a"), make_scenario("b", tags=["t"])], "fail")
    assert (first.imported, first.updated, first.skipped) == (["a", "b"], [], [])
    before = store.scenarios.read("b")

    skipped = store.scenarios.import_([make_scenario("c"), make_scenario("b", name="new")], "skip")
    assert (skipped.imported, skipped.updated, skipped.skipped) == (["c"], [], ["b"])
    assert [each.id for each in skipped.scenarios] == ["c"]
    assert store.scenarios.read("b") == before

    with pytest.raises(ScenarioIdsExist, match="2 scenarios already exist") as caught:
        store.scenarios.import_([make_scenario("d"), make_scenario("b"), make_scenario("a")], "fail")
    assert caught.value.ids == ("b", "a")
    assert find_ids(store) == ["a", "b", "c"]

    tried = store.scenarios.import_([make_scenario("e"), make_scenario("b", name="new")], "update", dry_run=True)
    assert (tried.imported, tried.updated) == (["e"], ["b"])
    assert store.scenarios.read("b") == before
    assert find_ids(store) == ["a", "b", "c"]

    done = store.scenarios.import_([make_scenario("e"), make_scenario("b", name="new")], "update")
    assert (done.imported, done.updated, done.skipped) == (["e"], ["b"], [])
    after = store.scenarios.read("b")
    assert (after.name, after.tags, after.created_at) == ("new", (), before.created_at)
    assert after.updated_at >= before.updated_at
    assert done.scenarios == [store.scenarios.read("e"), after]
    assert find_ids(store, tags=("t",)) == []


def test_an_import_of_thousands_is_one_change(store: Store) -> None:
    some = [make_scenario(f"s{n:05}") for n in range(3_001)]
    assert len(store.scenarios.import_(some, "skip").imported) == 3_001
    assert len(store.scenarios.import_(some, "update").updated) == 3_001
    assert store.scenarios.read_page(Selection(), 3_000, 10)[1] == 3_001
    assert [(each.subject, each.action) for each in store.changes.list_after(0)] == [("3001", "imported")] * 2
    assert sum(len(each) for each in store.scenarios.iterate_chunks(Selection())) == 3_001


def test_every_change_is_announced(store: Store) -> None:
    store.scenarios.create(make_scenario("a"))
    store.scenarios.change("a", lambda before: replace(before, name="other"))
    store.scenarios.delete("a")
    store.scenarios.restore("a")
    store.scenarios.import_([make_scenario("a")], "skip")
    store.scenarios.import_([make_scenario("b")], "skip", dry_run=True)
    told = [(each.kind, each.subject, each.action) for each in store.changes.list_after(0)]
    assert told == [("scenario", "a", action) for action in ("created", "updated", "deleted", "restored")]


def test_a_suggested_id_that_exists_is_made_unique(store: Store) -> None:
    ids = [store.scenarios.create(make_scenario("order"), may_rename=True).id for _ in range(3)]
    assert ids == ["order", "order-2", "order-3"]
    with pytest.raises(AlreadyExists, match="choose another ID"):
        store.scenarios.create(make_scenario("order-2"))


def test_deleted_scenarios_can_be_restored_for_a_day(store: Store) -> None:
    before = store.scenarios.create(make_scenario("a", tags=["t"]))
    gone = store.scenarios.delete("a")
    assert (gone.scenario, gone.restorable_until > gone.deleted) == (before, True)
    with pytest.raises(NotFound, match=r"the scenario was deleted at .* can be restored for one day"):
        store.scenarios.read("a")
    assert store.scenarios.list_deleted(0, 10) == ([gone], 1)
    assert store.scenarios.restore("a") == before
    assert store.scenarios.read("a") == before
    assert find_ids(store, tags=("t",)) == ["a"]
    assert store.scenarios.list_deleted(0, 10) == ([], 0)

    store.scenarios.delete("a")
    store.scenarios.create(make_scenario("a", name="another"))
    with pytest.raises(AlreadyExists, match="again"):
        store.scenarios.restore("a")
    store.scenarios.delete("a")
    assert store.scenarios.restore("a").name == "another"

    store.scenarios.delete("a")
    yesterday = (datetime.now(UTC) - timedelta(days=1, seconds=1)).isoformat(timespec="milliseconds")
    with store._database.write_transaction() as connection:
        connection.execute(update(deleted_scenarios).values(deleted=yesterday))
    assert store.scenarios.list_deleted(0, 10) == ([], 0)
    with pytest.raises(NotFound, match="can be restored for one day"):
        store.scenarios.restore("a")
    with pytest.raises(NotFound, match=r"there is no scenario .a.$"):
        store.scenarios.read("a")
    store.scenarios.create(make_scenario("b"))
    store.scenarios.delete("b")
    with store._database.read_transaction() as connection:
        kept = connection.execute(deleted_scenarios.select()).mappings().all()
    assert [each["id"] for each in kept] == ["b"]  # what is too old to be restored is not kept either


def test_imports_and_changes_are_isolated(url: str, store: Store) -> None:
    """Eight at once on one set of ids: each id comes from one of them, and no error but the documented ones."""
    sums = {"imported": 0, "refused": 0}
    failed: list[BaseException] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        mine = open_store(url)
        try:
            for turn in range(6):
                some = [make_scenario(f"s{n}", name=str(number)) for n in range(turn * 10, turn * 10 + 20)]
                try:
                    done = mine.scenarios.import_(some, ("skip", "fail")[number % 2])
                    with lock:
                        sums["imported"] += len(done.imported)
                except ScenarioIdsExist:
                    with lock:
                        sums["refused"] += 1
        except BaseException as error:  # noqa: BLE001 - reported by the test
            failed.append(error)
        finally:
            mine.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []
    assert sums["imported"] == store.scenarios.read_page(Selection(), 0, 1)[1] == 70
    assert sums["refused"] > 0


def test_locks_are_distinct_and_scenario_changes_wait_only_for_their_own(store: Store) -> None:
    """Of PostgreSQL; SQLite has one writer at a time, so there nothing is held."""
    assert len({int(each) for each in LockKey.__members__.values()}) == len(LockKey.__members__)
    database = store._database
    if database.is_sqlite:
        return
    others = {*LockKey} - {LockKey.SCENARIOS, LockKey.CHANGES}
    with database.write_transaction() as connection:
        for each in others:
            database.lock(connection, each)
        thread = threading.Thread(target=lambda: store.scenarios.create(make_scenario("a")), daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "it waits for a lock that is another's"
    with database.write_transaction() as connection:
        database.lock(connection, LockKey.SCENARIOS)
        thread = threading.Thread(target=lambda: store.scenarios.create(make_scenario("b")), daemon=True)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(20)
    assert store.scenarios.find_existing(["a", "b"]) == {"a", "b"}


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"id": 1}'])
def test_a_damaged_scenario_is_reported_in_one_sentence(store: Store, damage: str) -> None:
    store.scenarios.create(make_scenario("a"))
    with store._database.write_transaction() as connection:
        connection.execute(update(scenarios), {"body": damage})
    for ask in (
        lambda: store.scenarios.read("a"),
        lambda: store.scenarios.read_page(Selection(), 0, 10),
        lambda: store.scenarios.read_page(Selection(text="p"), 0, 10),
        lambda: store.scenarios.delete("a"),
    ):
        with pytest.raises(StoreFailed, match=r"a scenario in the store is damaged .*restore the store from a backup"):
            ask()
