"""Alerts reach their webhook or command at least once, under one ID, whatever fails in between."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from pramana import clock, settings
from pramana.alerting import (
    MAX_ATTEMPTS,
    RETRY_DELAYS_S,
    AlertSettings,
    DeliveryAttempt,
    deliver_due_alerts,
    encode_payload,
    make_channel,
    make_payload,
    read_channel,
    send_test_alert,
)
from pramana.errors import AddressNotAllowed, InvalidInput, ProviderError, SecretsLocked
from pramana.load.rows import make_case
from pramana.providers.webhook import make_signature
from pramana.request import RunRequest
from pramana.store import open_store
from pramana.store.engine import timestamp
from pramana.store.schema import watch_alerts, watches
from pramana.store.store import Store
from pramana.store.watches import Watch, WatchAlert
from pramana.watch_request import AlertDestination, WatchRequest

from .stores import postgres_store, sqlite_store
from .virtual_time import VirtualClock, real_time
from .webhooks import Receiver, receive_webhooks

pytestmark = pytest.mark.usefixtures("virtual_time")
BOTH = ("cli", "server")
BODY = {"instruments": [{"instrument": "pass_rate_down", "first_day": "2026-03-21", "first_days": []}]}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield sqlite_store(tmp_path / "store.sqlite3")
    else:
        with postgres_store(request.getfixturevalue("postgres")) as lent:
            yield lent


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


def start(store: Store, delivery: AlertDestination | None, owner: Any = "cli", **given: Any) -> Watch:
    run = RunRequest(models=("fake:echo",), cases=(make_case("Say yes.", ideal="yes", id="q1"),))
    channel = None if delivery is None else make_channel(store, delivery, is_local=owner == "cli", allow_private=True)
    return store.watches.create(WatchRequest(run=run, **given), ("pass_rate_down",), owner=owner, channel=channel)


def raise_alert(store: Store, watch: Watch, level: str = "alarm", alert_id: str = "a1") -> None:
    row = {"id": alert_id, "watch_no": watch.number, "period": 1, "level": level, "day": "2026-03-24"}
    with store._database.write_transaction() as connection:
        connection.execute(insert(watch_alerts), row | {"body": json.dumps(BODY), "created": timestamp()})


def read_alert(store: Store, watch: Watch) -> WatchAlert:
    (alert,) = store.watches.list_alerts(watch)
    return alert


async def deliver(store: Store, owners: tuple[str, ...] = BOTH, **given: Any) -> list[DeliveryAttempt]:
    return await deliver_due_alerts(store, owners, AlertSettings(**given))


def test_an_alert_arrives_signed_and_only_once(store: Store) -> None:
    async def go() -> Receiver:
        async with receive_webhooks() as receiver:
            watch = start(store, AlertDestination(url=receiver.url, secret="key"), name="bot")  # noqa: S106
            raise_alert(store, watch)
            (found,) = await deliver(store, link_prefix="https://bench.example/drift/")
            assert (found.error, found.channel) == (None, receiver.url.partition("/hook")[0].removeprefix("http://"))
            assert await deliver(store) == []
            alert = read_alert(store, watch)
            assert (alert.attempts, alert.error, alert.next_attempt) == (1, None, None)
            assert alert.delivered
            return receiver

    receiver = asyncio.run(go())
    ((head, body),) = receiver.requests
    sent_at = int(head["X-Pramana-Signature"].partition(",")[0].removeprefix("t="))
    assert head["X-Pramana-Signature"] == make_signature("key", body, sent_at)
    (payload,) = receiver.payloads
    assert payload["text"].startswith(
        "bot (fake:echo): Alarm since 2026-03-24: the model has changed: the pass rate fell"
    )
    assert payload["text"].endswith(f" https://bench.example/drift/{payload['watch']}")
    assert (payload["id"], payload["level"], payload["day"], payload["test"]) == ("a1", "alarm", "2026-03-24", False)
    assert head["X-Pramana-Alert"] == "a1"


def test_a_failed_delivery_is_tried_again_for_a_day_with_growing_delays(
    store: Store, virtual_time: VirtualClock
) -> None:
    async def go() -> None:
        async with receive_webhooks() as receiver:
            receiver.status = lambda _: 500
            watch = start(store, AlertDestination(url=receiver.url))
            raise_alert(store, watch)
            for attempt, delay_s in enumerate([*RETRY_DELAYS_S, None], 1):
                (found,) = await deliver(store)
                assert found.error == f"the webhook at {found.channel} answered 500"
                assert await deliver(store) == [], "not again before its time"
                alert = read_alert(store, watch)
                assert (alert.attempts, alert.delivered) == (attempt, None)
                if delay_s is None:
                    assert found.next_attempt_at is None
                else:
                    assert alert.next_attempt == pytest.approx(clock.timestamp() + delay_s, abs=5)
                    virtual_time.advance(delay_s + 1)
            virtual_time.advance(365 * 86_400)
            assert await deliver(store) == [], "given up"
            assert len(receiver.requests) == MAX_ATTEMPTS
            assert set(receiver.ids) == {"a1"}, "every attempt has the same ID"
            assert "s3cret" not in str(read_alert(store, watch).error)

    asyncio.run(go())
    assert 24 * 3600 < sum(RETRY_DELAYS_S) < 30 * 3600


def test_a_delivery_continues_after_a_restart(store: Store, url: str, virtual_time: VirtualClock) -> None:
    async def go() -> None:
        async with receive_webhooks() as receiver:
            receiver.status = lambda number: 503 if number < 3 else 200
            watch = start(store, AlertDestination(url=receiver.url))
            raise_alert(store, watch)
            for _ in range(3):
                again = open_store(url)  # as another process
                await deliver(again)
                again.close()
                virtual_time.advance(400)
            assert receiver.ids == ["a1"] * 3
            assert read_alert(store, watch).delivered

    asyncio.run(go())


def test_an_attempt_that_was_killed_is_repeated_after_its_delay(store: Store, virtual_time: VirtualClock) -> None:
    async def go() -> None:
        async with receive_webhooks() as receiver:
            watch = start(store, AlertDestination(url=receiver.url))
            raise_alert(store, watch)
            (due,) = store.alerts.list_due(BOTH, clock.timestamp())
            assert store.alerts.begin_attempt(due, clock.timestamp() + 60), "and then its process is killed"
            assert await deliver(store) == []
            virtual_time.advance(61)
            assert [each.error for each in await deliver(store)] == [None]
            assert receiver.ids == ["a1"]

    asyncio.run(go())


def test_several_processes_deliver_an_alert_once(store: Store, url: str) -> None:
    async def go() -> None:
        async with receive_webhooks() as receiver:
            watch = start(store, AlertDestination(url=receiver.url))
            for level in ("notice", "alarm"):
                raise_alert(store, watch, level, level)
            others = [open_store(url) for _ in range(4)]
            found = await asyncio.gather(*(deliver(each) for each in others))
            assert sum(map(len, found)) == 2
            assert sorted(receiver.ids) == ["alarm", "notice"]
            for each in others:
                each.close()

    asyncio.run(go())


def test_a_receiver_may_ask_for_a_longer_delay(store: Store) -> None:
    async def go() -> None:
        async with receive_webhooks() as receiver:
            watch = start(store, AlertDestination(url=receiver.url))
            raise_alert(store, watch)
            receiver.status, receiver.headers = lambda _: 429, {"Retry-After": "1800"}
            (found,) = await deliver(store)
            assert found.next_attempt_at == pytest.approx(clock.timestamp() + 1_800, abs=5)

    asyncio.run(go())


def test_a_slow_receiver_delays_no_other_alert(store: Store) -> None:
    async def go() -> None:
        async with receive_webhooks() as slow, receive_webhooks() as quick:
            slow.status = lambda _: 0
            raise_alert(store, start(store, AlertDestination(url=slow.url)), alert_id="slow")
            raise_alert(store, start(store, AlertDestination(url=quick.url)), alert_id="quick")
            began = clock.monotonic()
            found = await deliver(store)
            assert clock.monotonic() - began == pytest.approx(10, abs=2)
            assert {each.alert.id: each.error and "did not answer" in each.error for each in found} == {
                "slow": True,
                "quick": None,
            }

    asyncio.run(go())


def test_url_and_secret_are_stored_encrypted(store: Store) -> None:
    watch = start(store, AlertDestination(url="https://hooks.example/services/s3cret-path", secret="s3cret-key"))  # noqa: S106
    with store._database.read_transaction() as connection:
        row = connection.execute(select(watches)).mappings().one()
    assert "s3cret" not in str(dict(row))
    assert json.loads(row["delivery"]) == {"kind": "webhook", "host": "hooks.example", "is_signed": True}
    assert store.alerts.decrypt_secrets(watch).secret == "s3cret-key"
    assert "s3cret" not in repr(watch)


def test_without_the_vault_a_webhook_is_named_by_a_variable(
    store: Store, monkeypatch: pytest.MonkeyPatch, virtual_time: VirtualClock
) -> None:
    def fail() -> Any:
        raise SecretsLocked("stored API keys are encrypted, which needs an extra")

    monkeypatch.setattr(store.alerts, "_vault", fail)
    with pytest.raises(SecretsLocked, match="name an environment variable"):
        start(store, AlertDestination(url="https://hooks.example/"))

    async def go() -> None:
        async with receive_webhooks() as receiver:
            monkeypatch.setenv("HOOK_URL", receiver.url)
            monkeypatch.setenv("HOOK_SECRET", "key")
            watch = start(store, AlertDestination(url_variable="HOOK_URL", secret_variable="HOOK_SECRET"))  # noqa: S106
            raise_alert(store, watch)
            monkeypatch.delenv("HOOK_SECRET")
            (found,) = await deliver(store)
            assert found.error == 'the environment variable "HOOK_SECRET" of the webhook is not set'
            assert receiver.requests == [], "never sent without its signature"
            monkeypatch.setenv("HOOK_SECRET", "key")
            virtual_time.advance(61)
            (found,) = await deliver(store)
            assert (found.error, receiver.ids) == (None, ["a1"])
            assert "X-Pramana-Signature" in receiver.requests[0][0]

    asyncio.run(go())


def write_command(home: Path, code: str, **more: Any) -> Path:
    """Define the command `pager`; return the file that it writes to."""
    out = home / "out.json"
    argv = [sys.executable, "-c", f"import sys; out = {str(out)!r}; {code}"]
    home.mkdir(parents=True, exist_ok=True)
    lines = ["[commands.pager]", f"argv = {json.dumps(argv)}", *(f"{name} = {value}" for name, value in more.items())]
    (home / "config.toml").write_text("\n".join(lines))
    return out


def test_a_command_gets_the_alert_on_its_standard_input(store: Store) -> None:
    out = write_command(settings.data_folder(), "open(out, 'w').write(sys.stdin.read())")
    watch = start(store, AlertDestination(command="pager"))
    raise_alert(store, watch)
    (found,) = asyncio.run(deliver(store))
    assert (found.error, found.channel) == (None, "pager")
    assert json.loads(out.read_text())["id"] == "a1"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("sys.exit('out of paper')", "the command python ended with status 1: out of paper"),
        ("import time; time.sleep(60)", "the command python gave no complete reply within 0.5 s"),
    ],
)
@real_time()
def test_a_command_that_fails_or_hangs_is_tried_again(store: Store, code: str, message: str) -> None:
    write_command(settings.data_folder(), code, timeout_s=0.5)
    raise_alert(store, start(store, AlertDestination(command="pager")))
    (found,) = asyncio.run(deliver(store))
    assert found.error is not None
    assert found.error.replace(Path(sys.executable).name, "python") == message
    assert found.next_attempt_at is not None


def test_watches_of_a_server_run_no_command_and_read_no_variable(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    out = write_command(settings.data_folder(), "open(out, 'w').write(sys.stdin.read())")
    monkeypatch.setenv("HOOK_URL", "http://127.0.0.1:9/")
    for given in (
        {"command": "pager"},
        {"url_variable": "HOOK_URL"},
        {"url": "https://hooks.example/", "secret_variable": "HOOK_URL"},
    ):
        with pytest.raises(InvalidInput, match="not to commands or variables"):
            start(store, AlertDestination(**given), owner="server")
        local = make_channel(store, AlertDestination(**given), is_local=True, allow_private=True)
        run = RunRequest(models=("fake:echo",), cases=(make_case("Say yes.", ideal="yes", id="q1"),))
        watch = store.watches.create(
            WatchRequest(run=run), (), owner="server", channel=local
        )  # by hand, in the database
        raise_alert(store, watch, alert_id=f"of {watch.id}")
    found = asyncio.run(deliver(store))
    assert all(each.error and "only a watch of the command line" in each.error for each in found)
    assert len(found) == 3
    assert not out.exists()


def test_webhooks_of_a_servers_users_reach_the_public_internet_only(store: Store) -> None:
    with pytest.raises(AddressNotAllowed):
        make_channel(store, AlertDestination(url="http://127.0.0.1:9/"), is_local=False, allow_private=False)

    async def go() -> None:
        async with receive_webhooks() as receiver:
            raise_alert(store, start(store, AlertDestination(url=receiver.url), owner="server"))
            (found,) = await deliver(store, allow_private=False)
            assert found.error is not None
            assert "not on the public Internet" in found.error
            assert receiver.requests == []

    asyncio.run(go())


def test_only_alerts_of_the_given_owners_are_delivered(store: Store) -> None:
    async def go() -> None:
        async with receive_webhooks() as receiver:
            raise_alert(store, start(store, AlertDestination(url=receiver.url)))
            assert await deliver(store, ("server",)) == []
            assert len(await deliver(store, ("cli",))) == 1

    asyncio.run(go())


def test_a_watch_without_a_channel_has_nothing_to_deliver(store: Store) -> None:
    watch = start(store, None)
    raise_alert(store, watch)
    assert asyncio.run(deliver(store)) == []
    assert read_channel(watch) is None
    with pytest.raises(InvalidInput, match="sends its alerts nowhere"):
        asyncio.run(send_test_alert(store, watch, AlertSettings()))


def test_a_test_alert_is_marked_and_not_stored(store: Store) -> None:
    async def go() -> None:
        async with receive_webhooks() as receiver:
            watch = start(store, AlertDestination(url=receiver.url))
            await send_test_alert(store, watch, AlertSettings())
            (payload,) = receiver.payloads
            assert (payload["test"], payload["level"], payload["id"][:5]) == (True, "test", "test-")
            assert "This is a test alert" in payload["text"]
            assert store.watches.list_alerts(watch) == []
            receiver.status = lambda _: 404
            with pytest.raises(ProviderError, match="answered 404; check its URL"):
                await send_test_alert(store, watch, AlertSettings())

    asyncio.run(go())


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"url": "https://a.example/", "command": "pager"},
        {"url": "https://a.example/", "url_variable": "HOOK_URL"},
        {"command": "pager", "secret": "key"},
        {"url": "https://a.example/", "secret": "key", "secret_variable": "HOOK_SECRET"},
    ],
)
def test_alerts_go_to_exactly_one_place(given: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        AlertDestination(**given).check()


def test_an_unknown_command_is_refused_with_what_to_write(store: Store) -> None:
    with pytest.raises(InvalidInput, match=r'no command "pager".*add \[commands\.pager\] with argv'):
        start(store, AlertDestination(command="pager"))


def test_names_cannot_mention_everyone_or_break_the_json() -> None:
    run = RunRequest(models=("<!channel>",))
    watch = Watch(
        number=1, id="w1", model="<!channel>", request=run, baseline_days=28, instruments=(), created="", name="\ud83d&"
    )
    alert = WatchAlert("a1", "w1", 1, "notice", "2026-03-24", {}, "2026-03-24T00:00:00.000+00:00")
    payload = make_payload(watch, alert, AlertSettings())
    assert payload["text"].startswith("\ud83d&amp; (&lt;!channel&gt;): Notice since 2026-03-24")
    assert json.loads(encode_payload(payload))["name"] == "\ud83d&"
