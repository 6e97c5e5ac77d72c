"""`/api/watches`: a watch from its start to its alerts, its webhook, and what anyone may read of it."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import insert

from pramana.app.watches import read_watch
from pramana.request import RunRequest
from pramana.store.engine import timestamp
from pramana.store.schema import watch_alerts
from pramana.watch_request import WatchRequest

from .served import Client

WATCH = {"run": {"models": ["fake:echo"], "tier": "cheap"}, "name": "bot", "instruments": ["pass-rate"]}


def wait_for(condition: Callable[[], bool], within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def start(client: Client, **given: Any) -> str:
    found = client.post("/api/watches", {**WATCH, **given})
    assert found.status == 201, found.body
    return str(found.data["id"])


def raise_alert(client: Client, watch_id: str) -> None:
    assert client.store
    watch = client.store.watches.read(watch_id)
    row = {"id": "a1", "watch_no": watch.number, "period": 1, "level": "alarm", "day": "2026-03-24"}
    body = {"instruments": [{"instrument": "pass_rate_down"}]}
    with client.store._database.write_transaction() as connection:
        connection.execute(insert(watch_alerts), row | {"body": json.dumps(body), "created": timestamp()})


def test_a_watch_is_started_measured_accepted_and_stopped(client: Client) -> None:
    watch_id = start(client)
    wait_for(lambda: client.get(f"/api/watches/{watch_id}").data["measuredDays"] == 1)  # it has no time: it is due
    found = client.get(f"/api/watches/{watch_id}").data
    assert (found["name"], found["model"], found["level"], found["isPublic"]) == (
        "bot",
        "fake:echo",
        "collecting",
        False,
    )
    assert [each["status"] for each in found["days"]] == ["measured"]
    (listed,) = client.get("/api/watches?active=true").data
    assert listed["id"] == watch_id
    assert client.post(f"/api/watches/{watch_id}/accept", {"note": "a new prompt"}).status == 200
    assert client.get(f"/api/watches/{watch_id}").data["periods"][-1]["note"] == "a new prompt"
    assert client.post(f"/api/watches/{watch_id}/stop").data["isActive"] is False
    assert client.get("/api/watches?active=true").data == []
    assert client.post(f"/api/watches/{watch_id}/check").status == 409


def test_check_measures_before_its_time(client: Client) -> None:
    watch_id = start(client, at="23:59")
    time.sleep(0.3)
    assert client.get(f"/api/watches/{watch_id}").data["days"] == []
    assert client.post(f"/api/watches/{watch_id}/check").status == 202
    wait_for(lambda: client.get(f"/api/watches/{watch_id}").data["measuredDays"] == 1)
    assert client.post(f"/api/watches/{watch_id}/check").data["measuredDays"] == 1, "a day is measured once"


def test_a_confirming_batch_is_sent_beside_the_days(client: Client) -> None:
    watch_id = start(client, at="23:59")
    assert client.post(f"/api/watches/{watch_id}/confirm").status == 202
    wait_for(lambda: len(client.get(f"/api/watches/{watch_id}/report").data["confirmations"]) == 1)
    assert client.get(f"/api/watches/{watch_id}").data["measuredDays"] == 0


def test_a_watch_of_the_command_line_is_measured_by_a_server_on_its_own_sqlite_store(client: Client) -> None:
    assert client.store
    request = WatchRequest(run=RunRequest(models=("fake:echo",), suite="v1.0", tier="cheap"))
    watch = client.store.watches.create(request, ("pass_rate_down",))
    client.post(f"/api/watches/{watch.id}/check")
    store = client.store
    wait_for(lambda: read_watch(store, watch).measured_days == 1)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"run": {"models": ["fake", "fake:echo"], "tier": "cheap"}}, "run.models"),
        ({"run": {"models": ["python:os:getcwd"], "tier": "cheap"}}, None),
        ({"run": {"tier": "cheap"}}, "run.models"),
        ({"run": {"models": ["fake"], "tier": "cheap", "dryRun": True}}, None),
        ({"at": "25:00"}, "at"),
        ({"at": 3}, "at"),
        ({"baselineDays": 3}, "baselineDays"),
        ({"budgetUsdPerDay": -1}, "budgetUsdPerDay"),
        ({"budgetUsdPerDay": 10**400}, None),
        ({"instruments": ["no-such"]}, "instruments"),
        ({"instruments": []}, "instruments"),
        ({"webhook": {"url": "ftp://hooks.example/"}}, "webhook"),
        ({"webhook": {"url": "https://hooks.example/", "secret": ""}}, "webhook.secret"),
        ({"webhook": {"command": "pager"}}, "webhook.url"),
        ({"delivery": {"command": "pager"}}, "delivery"),
        ({"name": "x" * 101}, "name"),
    ],
)
def test_invalid_input_starts_no_watch(client: Client, given: dict[str, Any], path: str | None) -> None:
    found = client.post("/api/watches", {**WATCH, **given})
    assert (found.status, found.json["success"]) == (400, False), found.body
    if path is not None:
        assert path in [each["path"] for each in found.json["details"]], found.body
    assert client.get("/api/watches").data == []


def test_the_webhook_is_set_and_removed_and_never_shown(client: Client) -> None:
    hook = {"url": "https://hooks.example/s3cret-path", "secret": "s3cret-key"}
    started = client.post("/api/watches", {**WATCH, "at": "23:59", "webhook": hook})
    shown = {"kind": "webhook", "name": "hooks.example", "isSigned": True}
    assert started.data["alertsTo"] == shown
    watch_id = started.data["id"]
    changed = client.put(f"/api/watches/{watch_id}/webhook", {"url": "https://other.example/s3cret"})
    assert changed.data == {"kind": "webhook", "name": "other.example", "isSigned": False}
    assert client.delete(f"/api/watches/{watch_id}/webhook").data is None
    assert client.get(f"/api/watches/{watch_id}").data["alertsTo"] is None
    for path in ("/api/watches", f"/api/watches/{watch_id}", f"/api/watches/{watch_id}/alerts"):
        assert b"s3cret" not in client.get(path).body
    assert b"s3cret" not in started.body + changed.body


def test_a_test_alert_says_what_went_wrong(client: Client) -> None:
    watch_id = start(client, at="23:59", webhook={"url": "http://127.0.0.1:9/s3cret"})
    found = client.post(f"/api/watches/{watch_id}/test-alert")
    assert (found.status, found.error) == (502, "the webhook at 127.0.0.1:9 cannot be reached: Connection refused")
    assert client.post(f"/api/watches/{start(client, at='23:59')}/test-alert").status == 400


def test_a_server_for_others_sends_no_alert_to_a_private_address(secure_client: Client) -> None:
    editor = secure_client.with_token("editor")
    for url in ("http://127.0.0.1:9/", "http://localhost/", "http://169.254.169.254/latest"):
        found = editor.post("/api/watches", {**WATCH, "webhook": {"url": url}})
        assert found.status == 502, found.body
        assert "not on the public Internet" in found.error
    assert editor.get("/api/watches").data == []


def test_users_of_a_server_cannot_redirect_the_alerts_of_a_watch_of_the_command_line(client: Client) -> None:
    assert client.store
    request = WatchRequest(run=RunRequest(models=("fake:echo",), suite="v1.0", tier="cheap"), at="23:59")
    watch = client.store.watches.create(request, ("pass_rate_down",))
    for method, body in (("PUT", {"url": "https://hooks.example/"}), ("DELETE", None)):
        assert client.call(method, f"/api/watches/{watch.id}/webhook", body).status == 409
    assert client.post(f"/api/watches/{watch.id}/test-alert").status == 409


def test_roles(secure_client: Client) -> None:
    viewer, editor, admin = (secure_client.with_token(each) for each in ("viewer", "editor", "admin"))
    watch_id = start(editor, at="23:59")
    assert viewer.get(f"/api/watches/{watch_id}").status == 200
    assert viewer.get(f"/api/watches/{watch_id}/alerts").data == []
    for method, path, body in (
        ("POST", "", WATCH),
        ("POST", f"/{watch_id}/check", None),
        ("POST", f"/{watch_id}/confirm", None),
        ("POST", f"/{watch_id}/accept", None),
        ("POST", f"/{watch_id}/stop", None),
        ("PUT", f"/{watch_id}/webhook", {"url": "https://hooks.example/"}),
        ("DELETE", f"/{watch_id}/webhook", None),
        ("POST", f"/{watch_id}/test-alert", None),
    ):
        assert viewer.call(method, f"/api/watches{path}", body).status == 403, path
    assert editor.put(f"/api/watches/{watch_id}/public", {"public": True}).status == 403
    assert admin.put(f"/api/watches/{watch_id}/public", {"public": True}).data["isPublic"] is True


def test_anyone_reads_a_public_watch_and_no_other(secure_client: Client) -> None:
    editor, admin = secure_client.with_token("editor"), secure_client.with_token("admin")
    hook = {"url": "https://hooks.example/s3cret"}
    run = {"models": ["fake:echo"], "tier": "cheap", "systemPrompt": "a private prompt"}
    watch_id = start(editor, webhook=hook, run=run, note="a private note", budgetUsdPerDay=7)
    wait_for(lambda: editor.get(f"/api/watches/{watch_id}").data["measuredDays"] == 1)
    raise_alert(secure_client, watch_id)
    paths = (f"/api/public/watches/{watch_id}", f"/api/public/watches/{watch_id}/badge")
    for path in paths:
        assert secure_client.get(path).status == 404, "not yet"
    admin.put(f"/api/watches/{watch_id}/public", {"public": True})
    found, badge = (secure_client.get(path) for path in paths)
    assert found.data["level"] == "alarm"
    assert [(each["day"], each["level"], each["id"]) for each in found.data["alerts"]] == [
        ("2026-03-24", "alarm", "a1")
    ]
    assert [each["status"] for each in found.data["days"]] == ["measured"]
    assert len(found.data["instruments"][0]["scores"]) == 1
    for private in (b"private", b"hooks.example", b"s3cret", b"creator", b"budget", b"runs", b"reply", b"prompt"):
        assert private not in found.body
    assert (badge.headers["content-type"], badge.status) == ("image/svg+xml", 200)
    assert b"changed" in badge.body
    again = secure_client.get(paths[1], headers={"If-None-Match": badge.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    for other in (start(editor, at="23:59"), "nobody", watch_id[:-1], "x" * 5_000):
        assert secure_client.get(f"/api/public/watches/{other}").status == 404
    admin.put(f"/api/watches/{watch_id}/public", {"public": False})
    assert secure_client.get(paths[0]).status == 404


def test_the_address_of_a_models_server_is_not_public(secure_client: Client) -> None:
    assert secure_client.store
    request = WatchRequest(run=RunRequest(models=("http://10.0.0.7:8000/v1#llama",), suite="v1.0", tier="cheap"))
    watch = secure_client.store.watches.create(request, ("pass_rate_down",), owner="server")
    secure_client.store.watches.set_public(watch, is_public=True)
    found = secure_client.get(f"/api/public/watches/{watch.id}")
    assert found.data["model"] == "llama"
    assert b"10.0.0.7" not in found.body


def test_an_unknown_watch_is_404_with_what_to_do(client: Client) -> None:
    for method, path in (("GET", ""), ("POST", "/check"), ("POST", "/stop"), ("GET", "/alerts")):
        found = client.call(method, f"/api/watches/nobody{path}")
        assert (found.status, "GET /api/watches" in found.error) == (404, True)
