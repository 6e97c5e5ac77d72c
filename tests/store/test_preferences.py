"""Server settings, changed by one administrator or by several at once."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from pramana.errors import InvalidInput
from pramana.store import open_store
from pramana.store.preferences import Preferences
from pramana.store.schema import preferences
from pramana.store.store import Store


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path / 'store.sqlite3'}"
    found = open_store(url if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    yield found
    found.close()


def test_preferences_are_stored_changed_and_reset(store: Store) -> None:
    assert store.preferences.read() == Preferences()
    assert store.preferences.write({"requests_per_minute": 5, "refuse_unverified": True}).requests_per_minute == 5
    found = store.preferences.write({"requests_per_minute": 7, "refuse_unverified": None})
    assert found == store.preferences.read() == Preferences(requests_per_minute=7)
    with pytest.raises(InvalidInput, match="requests_per_minute"):
        store.preferences.write({"request_per_minute": 1})


def test_origins_that_became_invalid_are_ignored_and_the_others_apply(store: Store) -> None:
    store.preferences.write({"cors_origins": ["https://bench.example"], "requests_per_minute": 7})
    kept = '["*", "https://*.example", "https://bench.example", 5]'  # from before the rule was as strict as now
    with store._database.write_transaction() as connection:
        mine = preferences.c.name == "cors_origins"
        assert connection.execute(update(preferences).where(mine).values(value=kept)).rowcount == 1
    assert store.preferences.read() == Preferences(requests_per_minute=7, cors_origins=("https://bench.example",))
    assert store.preferences.write({"requests_per_minute": None}).cors_origins == ("https://bench.example",)
    with pytest.raises(InvalidInput, match="invalid setting"):
        store.preferences.write({"cors_origins": ["https://*.example"]})


def test_concurrent_changes_all_succeed(store: Store) -> None:
    together = threading.Barrier(8)
    failed: list[Exception] = []

    def decide(number: int) -> None:
        together.wait()
        for turn in range(20):
            # Each takes back what the next decides, in the other order.
            names = ("largest_body_mb", "requests_per_minute", "largest_upload_mb")
            some = {name: None if (number + turn + place) % 3 == 0 else number + 1 for place, name in enumerate(names)}
            try:
                store.preferences.write(dict(reversed(some.items())) if number % 2 else some)
            except Exception as error:  # noqa: BLE001 - any of them fails the test
                failed.append(error)

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert failed == []
    assert store.preferences.read() != Preferences()
