"""The gate: hosts, origins, tokens, roles, rate limits and sizes."""

import http.client
import json
import os
import re
import socket
import subprocess
import threading
import time
from contextlib import closing
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from click.testing import CliRunner
from sqlalchemy import text

from pramana import settings
from pramana.app import MAX_RUNNING_REQUESTS, MAX_WAITING_REQUESTS, PROBE_VALID_S, App
from pramana.app.access import LOOKUP_CACHE_S
from pramana.app.server import CallerView, ServerView
from pramana.errors import InvalidInput
from pramana.show.api import THREADS_BY_STORE_KIND
from pramana.show.api.gate import Gate
from pramana.show.api.peer import is_from_own_os_account
from pramana.show.cli import pramana
from pramana.store import open_store
from pramana.store.scenarios import Scenarios, StoredScenario
from pramana.store.tokens import Token, Tokens, hash_secret

from ...credentials import end_token
from .served import Answer, Client, serve, start_program

SECURITY = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:3000", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:3000", 200),
        ("bench.example", 421),
        ("localhost.bench.example", 421),
        ("10.0.0.1", 421),
        ("localhost@bench.example", 421),
        ("", 421),
        ("a b", 421),
        ("[::1", 421),
    ],
)
def test_only_allowed_host_headers_are_answered(client: Client, host: str, status: int) -> None:
    found = client.get("/api/health", headers={"Host": host})
    assert found.status == status
    assert found.headers.items() >= SECURITY.items()


def test_cross_origin_requests_change_nothing_unless_allowed(client: Client) -> None:
    other = {"Origin": "https://bench.example"}
    asked = {**other, "Access-Control-Request-Method": "POST"}
    own = {"Origin": client.url}
    body = {"yaml": "x"}
    assert client.post("/api/scenarios/validate", body, headers=other).status == 403
    assert client.post("/api/scenarios/validate", body, headers={"Origin": "null"}).status == 403
    assert client.post("/api/scenarios/validate", body, headers=own).status == 200
    assert client.call("OPTIONS", "/api/scenarios/validate", headers=asked).status == 403
    assert "access-control-allow-origin" not in client.get("/api/health", headers=other).headers

    assert client.patch("/api/settings", {"corsOrigins": ["https://bench.example"]}).status == 200
    assert client.post("/api/scenarios/validate", body, headers=other).status == 401  # only with its own token
    client = client.with_token("viewer")
    preflight = client.call("OPTIONS", "/api/scenarios/validate", headers=asked)
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, "https://bench.example")
    assert client.post("/api/scenarios/validate", body, headers=other).status == 200
    assert client.post("/api/scenarios/validate", body, headers={"Origin": "https://bench.example.evil"}).status == 403


def test_a_token_has_the_rights_of_its_role_until_it_is_revoked(secure_client: Client) -> None:
    assert secure_client.get("/api/health").status == 200
    assert secure_client.get("/api/tokens").status == 401
    admin, viewer = secure_client.with_token("admin"), secure_client.with_token("viewer")
    refused = viewer.get("/api/tokens")
    assert (refused.status, refused.error) == (
        403,
        "this request needs the role admin, and the token viewer has the role viewer",
    )
    made = admin.post("/api/tokens", {"name": "new", "role": "admin"}).data
    new = Client(secure_client.url, made["token"])
    listed = {each["name"]: each for each in new.get("/api/tokens").data}
    assert listed.keys() == {"admin", "viewer", "new"}
    assert made["token"] not in str(listed)
    assert admin.delete(f"/api/tokens/{made['id']}").data["revokedAt"]
    assert Client(secure_client.url, made["token"]).get("/api/tokens").status in (200, 401)  # cached for two seconds
    assert admin.delete("/api/tokens/t0").status == 404


def test_an_invalid_token_is_refused_even_if_no_token_is_required(secure_client: Client) -> None:
    found = Client(secure_client.url, "pramana_invented").get("/openapi.json")
    assert (found.status, found.headers["www-authenticate"]) == (401, "Bearer")


def test_only_the_hash_of_a_token_is_stored(tmp_path: Path, secure_client: Client) -> None:
    admin = secure_client.with_token("admin")
    assert admin.token
    files = b"".join(each.read_bytes() for each in tmp_path.glob("store.sqlite3*"))
    assert admin.token.encode() not in files
    assert hash_secret(admin.token).encode() in files


def test_too_many_requests_are_refused_with_retry_after(secure_client: Client) -> None:
    admin, other = secure_client.with_token("admin"), secure_client.with_token("viewer")
    changed = admin.patch("/api/settings", {"requests_per_minute": 3})
    assert changed.data["requestsPerMinute"] == 3
    found = [other.get("/api/suites") for _ in range(5)]
    assert [each.status for each in found] == [200, 200, 200, 429, 429]
    assert [each.headers["x-ratelimit-remaining"] for each in found] == ["2", "1", "0", "0", "0"]
    assert found[0].headers["x-ratelimit-limit"] == "3"
    assert 1 <= int(found[3].headers["retry-after"]) <= 21
    # Each address has its own bucket; the first use of a token costs one request of it.
    assert [secure_client.get("/openapi.json").status for _ in range(3)] == [200, 200, 429]
    assert {secure_client.get("/api/health").status for _ in range(5)} == {200}  # which monitoring polls


def test_a_client_that_honours_retry_after_is_served(secure_client: Client) -> None:
    admin, other = secure_client.with_token("admin"), secure_client.with_token("viewer")
    admin.patch("/api/settings", {"requestsPerMinute": 30})
    while (refused := other.get("/api/suites")).status == 200:
        pass
    refused = [other.get("/api/suites") for _ in range(20)][-1]
    assert refused.status == 429
    time.sleep(int(refused.headers["retry-after"]))
    assert other.get("/api/suites").status == 200


def test_a_request_that_is_too_large_is_refused_with_or_without_content_length(client: Client) -> None:
    client.patch("/api/settings", {"largestBodyMb": 1})
    large = b'"' + b"x" * (1 << 20) + b'"'
    kind = {"Content-Type": "application/json"}
    said = client.post("/api/tokens", body=large, headers=kind)
    assert (said.status, said.json["code"]) == (413, "too_large")

    def pieces() -> list[bytes]:
        return [large[start : start + 65536] for start in range(0, len(large), 65536)]

    unsaid = client.post("/api/tokens", body=iter(pieces()), headers=kind)
    assert unsaid.status == 413


def test_invalid_tokens_are_rate_limited_and_only_well_formed_ones_looked_up(
    secure_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up, holder = [], Tokens.find_by_secret

    def record_and_find(self: Tokens, secret: str) -> Token | None:
        looked_up.append(secret)
        return holder(self, secret)

    monkeypatch.setattr(Tokens, "find_by_secret", record_and_find)
    admin = secure_client.with_token("admin")
    assert admin.patch("/api/settings", {"requestsPerMinute": 10}).status == 200
    invented = [f"pramana_{number:043}" if number % 2 else f"x{number}" for number in range(20)]
    found = [Client(secure_client.url, each).get("/api/suites").status for each in invented]
    assert found[0] == 401
    assert 8 <= found.count(401) <= 11
    assert found[-1] == 429
    assert set(looked_up) <= {admin.token, *invented[1::2]}
    assert 2 <= len(looked_up) <= 7
    assert admin.get("/api/suites").status == 200  # a known token, whatever others do from the same address


@pytest.mark.parametrize("path", ["/api/suites", "/api/scenarios/import", "/api/submit", "/audio", "/api/no"])
def test_anonymous_requests_are_refused_before_their_body_is_read(secure_client: Client, path: str) -> None:
    """The server does not wait for a body that never arrives."""
    address = urlsplit(secure_client.url)
    assert address.hostname
    with socket.create_connection((address.hostname, address.port or 0), timeout=5) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 1000000\r\n\r\n[".encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_public_routes_are_open_to_anonymous_callers(secure_client: Client) -> None:
    result = {"model_id": "m", "prompt_id": "p", "output": "o"}
    assert secure_client.get("/openapi.json").status == 200
    assert secure_client.get("/docs").status == 200
    assert (secure_client.post("/api/submit", result).status, secure_client.get("/api/badge/m").status) == (401, 401)
    assert secure_client.with_token("admin").patch("/api/settings", {"anonymousSubmission": True}).status == 200
    assert (secure_client.post("/api/submit", result).status, secure_client.get("/api/badge/m").status) == (200, 200)


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        (None, "127.0.0.1"),
        ("203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7, 10.1.2.3", "203.0.113.7"),
        ("203.0.113.7:4711, 127.0.0.1", "203.0.113.7"),
        ("203.0.113.7, nonsense", "127.0.0.1"),
        ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::/64"),
        ("[2001:db8:0:1::9]:80", "2001:db8:0:1::/64"),
        ("10.9.9.9", "10.9.9.9"),
    ],
)
def test_clients_behind_a_trusted_proxy_have_separate_rate_limits(
    sqlite_url: str, forwarded: str | None, address: str
) -> None:
    trusted = (ip_network("127.0.0.1"), ip_network("10.0.0.0/8"))
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    scope = {"type": "http", "headers": headers, "client": ("127.0.0.1", 1)}
    store = open_store(sqlite_url)
    try:
        assert Gate(None, App(store, trusted_proxies=trusted))._client_address(scope) == address  # type: ignore[arg-type]
        assert Gate(None, App(store))._client_address(scope) == "127.0.0.1"  # type: ignore[arg-type] # no word is taken
    finally:
        store.close()


def test_one_client_behind_a_proxy_does_not_exhaust_the_limit_of_others(sqlite_url: str) -> None:
    with serve(sqlite_url, server_account_needs_token=True, trusted_proxies=(ip_network("127.0.0.1"),)) as found:
        assert found.store
        assert found.serving
        found.serving.set_preferences(found.store.preferences.write({"requests_per_minute": 2}))
        one, other = ({"X-Forwarded-For": each} for each in ("203.0.113.7", "203.0.113.8"))
        assert [found.get("/docs", headers=one).status for _ in range(3)] == [200, 200, 429]
        assert found.get("/docs", headers=other).status == 200


def test_settings_are_changed_atomically(client: Client) -> None:
    for wrong in ({}, {"requestsPerMinute": 0}, {"corsOrigins": ["javascript:x"], "refuseUnverified": True}, {"a": 1}):
        assert client.patch("/api/settings", wrong).status == 400
    assert client.get("/api/settings").data["refuseUnverified"] is False
    assert client.patch("/api/settings", {"refuseUnverified": True}).data["refuseUnverified"] is True
    assert client.patch("/api/settings", {"refuseUnverified": None}).data["refuseUnverified"] is False


# ── Callers and providers ──


def test_me_returns_the_callers_role_and_name(secure_client: Client, tmp_path: Path) -> None:
    for role in ("viewer", "editor", "admin"):
        found = secure_client.with_token(role).get("/api/me").data
        assert msgspec.convert(found, CallerView) == CallerView(name=role, role=role, tokens_required=True)
    assert secure_client.get("/api/me").status == 401
    with serve(f"sqlite:///{tmp_path / 'other.sqlite3'}") as alone:
        assert alone.get("/api/me").data == {"name": "local", "role": "admin", "tokensRequired": False}


def test_viewers_can_read_server_information(secure_client: Client, tmp_path: Path) -> None:
    found = secure_client.with_token("viewer").get("/api/server").data
    msgspec.convert(found, ServerView)
    assert (found["database"], found["tokensRequired"], found["forThisMachineAlone"]) == ("sqlite", True, False)
    assert found["address"] == urlsplit(secure_client.url).netloc
    assert secure_client.get("/api/server").status == 401
    with serve(f"sqlite:///{tmp_path / 'other.sqlite3'}", api_only=True) as alone:
        other = alone.get("/api/server").data
        assert (other["forThisMachineAlone"], other["privateAddressesAllowed"], other["runsHere"]) == (
            True,
            True,
            False,
        )


def test_settings_include_defaults_and_errors_have_paths(client: Client) -> None:
    client.patch("/api/settings", {"requestsPerMinute": 77})
    found = client.get("/api/settings").json
    assert (found["data"]["requestsPerMinute"], found["meta"]["defaults"]["requestsPerMinute"]) == (77, 1_200)
    for wrong in ("javascript:x", "https://bench.example/path", "bench.example", "https://a b"):
        said = client.patch("/api/settings", {"corsOrigins": ["https://bench.example", wrong]})
        assert (said.status, said.json["details"][0]["path"]) == (400, "corsOrigins[1]")
        assert "expected https://HOST" in said.error


# ── Pages: a browser's cookie instead of a header ──


@pytest.mark.parametrize("path", ["/", "/runs", "/docs", "/openapi.json", "/sign-in"])
def test_an_expired_cookie_makes_a_browser_anonymous_without_an_error(secure_client: Client, path: str) -> None:
    """There are no pages behind the gate here, so most are not found; the gate lets them through."""
    old = {"Cookie": "pramana_session=pramana_" + "x" * 43}
    assert secure_client.get(path, headers=old).status in (200, 404)
    assert Client(secure_client.url, "pramana_" + "x" * 43).get(path).status == 401  # a program gets the error
    assert secure_client.get("/api/runs", headers=old).status == 401


def test_a_cookie_has_the_rights_of_its_token_but_not_cross_origin(secure_client: Client) -> None:
    admin = secure_client.with_token("admin")
    assert secure_client.store
    session = secure_client.store.tokens.begin_session(admin.get("/api/tokens").data[0]["id"])
    cookie = {"Cookie": f"other=1; pramana_session={session}"}
    body = {"name": "by cookie", "role": "viewer"}
    assert secure_client.post("/api/tokens", body, headers=cookie).status == 201
    for origin in (
        "https://bench.example",
        "null",
        f"{secure_client.url}0",
        secure_client.url.replace("http:", "https:") + ".evil",
    ):
        assert secure_client.post("/api/tokens", body, headers={**cookie, "Origin": origin}).status == 403
    assert secure_client.post("/api/tokens", body, headers={**cookie, "Origin": secure_client.url}).status == 201
    assert len(admin.get("/api/tokens").data) == 3
    for broken in (
        "pramana_session=",
        "pramana_session",
        "=;;=",
        'pramana_session="; $x',
        f"pramana_session={admin.token}",
        f"pramana_token={admin.token}",
    ):
        assert secure_client.get("/api/runs", headers={"Cookie": broken}).status == 401


def test_static_files_are_not_rate_limited_and_invalid_tokens_are_per_address(secure_client: Client) -> None:
    admin = secure_client.with_token("admin")
    assert admin.patch("/api/settings", {"requestsPerMinute": 5}).status == 200
    old = {"Cookie": "pramana_session=pramana_" + "x" * 43}
    assert {secure_client.get("/_nicegui/some/script.js", headers=old).status for _ in range(20)} == {404}
    found = [secure_client.get("/sign-in", headers=old).status for _ in range(6)]
    assert (found[0], found[-1]) == (404, 429)
    assert {secure_client.get("/_nicegui/some/script.js", headers=old).status for _ in range(20)} == {404}
    assert admin.get("/api/me").status == 200


# ── Private addresses ──


@pytest.mark.parametrize(
    "given",
    [
        {"server_account_needs_token": True},
        {"server_account_needs_token": True, "allowed_hosts": ("bench.example",)},
        {"allowed_hosts": ("bench.example",)},
        {"trusted_proxies": (ip_network("127.0.0.1"),)},
        {"host": "0.0.0.0", "server_account_needs_token": True},  # noqa: S104 - it is only asked what that would mean
    ],
)
def test_a_public_server_blocks_private_addresses_by_default(sqlite_url: str, given: dict[str, Any]) -> None:
    with serve(sqlite_url, **given) as found:
        assert found.store
        assert found.serving
        assert not found.serving.is_local_only
        assert not found.serving.allows_private_addresses()
        found.serving.set_preferences(found.store.preferences.write({"allow_private_addresses": True}))
        assert found.serving.allows_private_addresses()


def test_a_model_at_a_private_address_is_called_only_if_allowed(sqlite_url: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as inner,
        serve(sqlite_url, server_account_needs_token=True, allowed_hosts=("bench.example",)) as found,
    ):
        inner.settimeout(20)
        editor, admin = found.with_token("editor"), found.with_token("admin")
        model = f"http://127.0.0.1:{inner.getsockname()[1]}/v1#m"
        wanted = {"tier": "cheap", "models": [model], "judge": "fake", "limits": {"timeoutSeconds": 5}}
        run = f"/api/runs/{editor.post('/api/runs', wanted).data['id']}?summary=false"
        while (now := editor.get(run).data)["status"] in ("queued", "running"):
            time.sleep(0.05)
        assert "are blocked" in now["reason"]
        assert "allowPrivateAddresses" in now["reason"]
        inner.settimeout(0)
        with pytest.raises(BlockingIOError):
            inner.accept()

        inner.settimeout(20)
        assert admin.patch("/api/settings", {"allowPrivateAddresses": True}).status == 200
        assert editor.post("/api/runs", wanted).status == 202
        inner.accept()[0].close()


# ── An unavailable or slow store ──


def test_an_unavailable_store_is_reported_without_its_location(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(sqlite_url, server_account_needs_token=True, api_only=True) as found:
        admin = found.with_token("admin")
        assert admin.patch("/api/settings", {"corsOrigins": ["https://bench.example"]}).status == 200
        engine = found.store._database._engine  # type: ignore[union-attr]
        while engine.pool.checkedout():  # type: ignore[union-attr] # otherwise a connection would stay open
            time.sleep(0.01)
        engine.dispose()  # what is open would still be read
        away = tmp_path / "away"
        away.mkdir()
        for each in tmp_path.glob("store.sqlite3*"):
            each.rename(away / each.name)
        (tmp_path / "store.sqlite3").mkdir()
        time.sleep(max(LOOKUP_CACHE_S, PROBE_VALID_S) + 0.5)
        origin = {"Origin": "https://bench.example"}
        for client, path in ((found, "/api/health"), (admin, "/api/health"), (admin, "/api/suites")):
            said = client.get(path, headers=origin)
            assert (said.status, said.json["code"]) == (503, "store_failed")
            assert said.error == "the store cannot be reached; see the server's log"
            assert said.headers["access-control-allow-origin"] == "https://bench.example"  # the latest setting
        assert "unable to open" in caplog.text
        assert found.get("/openapi.json").status == 200

        (tmp_path / "store.sqlite3").rmdir()
        for each in away.iterdir():
            each.rename(tmp_path / each.name)
        time.sleep(PROBE_VALID_S + 0.1)
        assert found.get("/api/health").status == 200
        assert admin.get("/api/suites").status == 200


def test_health_and_tokens_work_while_every_thread_waits_for_a_write_lock(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(store_url, server_account_needs_token=True, api_only=True) as found:
        assert found.store
        editor, viewer = found.with_token("editor"), found.with_token("viewer")
        assert editor.get("/openapi.json").status == 200  # the time to describe the API is not measured
        database = found.store._database
        create, waiting = Scenarios.create, []

        def record_and_create(self: Scenarios, plain: Any, *, may_rename: bool) -> StoredScenario:
            waiting.append(plain)
            return create(self, plain, may_rename=may_rename)

        monkeypatch.setattr(Scenarios, "create", record_and_create)
        scenario = {"name": "a", "type": "task-completion", "prompt": "x", "expectedOutcome": "y"}
        made: list[int] = []

        def write() -> None:
            made.append(editor.post("/api/scenarios", scenario).status)

        writers = [threading.Thread(target=write) for _ in range(40)]
        with database.write_transaction() as connection:
            if not database.is_sqlite:
                connection.execute(text("LOCK TABLE scenarios IN ACCESS EXCLUSIVE MODE"))
            for each in writers:
                each.start()
            until = time.monotonic() + 60
            while len(waiting) < THREADS_BY_STORE_KIND[found.store.database_kind]:
                assert time.monotonic() < until
                time.sleep(0.05)
            began = time.monotonic()
            assert viewer.get("/openapi.json").status == 200  # its token was never used before
            assert found.get("/api/health").status == 200
            assert time.monotonic() - began < 2
            assert made == []
        for each in writers:
            each.join(60)
        assert made == [201] * 40


def test_slow_requests_are_limited_and_the_rest_get_retry_after(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Semaphore(0), threading.Event()
    numbers = []

    def slow(*_: Any, **__: Any) -> Any:
        numbers.append(1)
        began.release()
        go_on.wait(30)
        raise InvalidInput("it was slow")

    monkeypatch.setattr("pramana.app.comparisons.make_baseline_reference", slow)
    found: list[Answer] = []
    asking = [threading.Thread(target=lambda: found.append(client.get("/api/compare?base=a&new=b"))) for _ in range(40)]
    for each in asking:
        each.start()
    try:
        for _ in range(MAX_RUNNING_REQUESTS):
            assert began.acquire(timeout=10)
        give_up = time.monotonic() + 10
        while len(found) < 40 - MAX_RUNNING_REQUESTS - MAX_WAITING_REQUESTS and time.monotonic() < give_up:
            time.sleep(0.02)
        assert len(numbers) == MAX_RUNNING_REQUESTS
        assert [each.status for each in found] == [503] * (40 - MAX_RUNNING_REQUESTS - MAX_WAITING_REQUESTS)
        assert {each.headers["retry-after"] for each in found} == {"5"}
        assert client.get("/api/health").status == client.get("/api/suites").status == 200
    finally:
        go_on.set()
        for each in asking:
            each.join(30)
    assert [each.status for each in found].count(400) == MAX_RUNNING_REQUESTS + MAX_WAITING_REQUESTS


# ── The program ──


def invoke(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(pramana, arguments)
    return found.exit_code, found.output + str(found.exception or "")


def test_a_public_server_does_not_start_without_a_token() -> None:
    code, said = invoke("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - it must not
    assert (code, "there is no token yet; create a token first: pramana token create NAME" in said) == (1, True)
    code, said = invoke("serve", "--allow-host", "bench.example", "--port", "0")
    assert "answering as bench.example makes the server reachable for others" in said
    code, said = invoke("serve", "--trust-proxy", "10.0.0.0/24", "--port", "0")
    assert "answering for the proxy 10.0.0.0/24 makes the server reachable for others" in said
    assert "takes an address or a network" in invoke("serve", "--trust-proxy", "bench.example")[1]
    assert "is for a team's PostgreSQL" in invoke("serve", "--api-only")[1]


def test_a_token_created_on_the_command_line_is_accepted() -> None:
    _, said = invoke("token", "create", "Ann", "--role", "viewer")
    secret = said.split()[0]
    with start_program("--allow-host", "bench.example") as found:
        assert found.client.get("/api/settings").status == 401
        mine = Client(found.client.url, secret)
        assert mine.get("/api/settings").status == 403
        assert mine.get("/api/health", headers={"Host": "bench.example"}).status == 200
    assert re.search(r"viewer  Ann  created .*, last used 20", invoke("token", "list")[1])
    token_id = re.findall(r"\bt[0-9a-f]{8}\b", invoke("token", "list")[1])[0]
    assert "is revoked" in invoke("token", "revoke", token_id)[1]
    assert "revoked 20" in invoke("token", "list")[1]


def test_the_own_account_needs_no_token_and_other_callers_do() -> None:
    with start_program() as found:
        assert found.process.stdout
        assert " one (the one in this URL is valid until the server stops). API at" in found.process.stdout.readline()
        plain, passed_on = found.client, {"X-Forwarded-For": "203.0.113.7"}
        assert plain.get("/api/settings").status == 200
        assert plain.get("/api/settings", headers=passed_on).status == 401
        secret = json.loads(invoke("token", "create", "--role", "admin", "--json")[1])["token"]
        give_up = time.monotonic() + 20
        while plain.get("/api/server").data["forThisMachineAlone"] and time.monotonic() < give_up:
            time.sleep(0.2)
        assert plain.get("/api/server").data["privateAddressesAllowed"] is False
        assert plain.get("/api/settings").status == 200  # curl works as it did before there were tokens
        assert plain.get("/api/settings", headers=passed_on).status == 401
        assert Client(plain.url, secret).get("/api/settings", headers=passed_on).status == 200
        invoke("token", "revoke", plain.get("/api/tokens").data[0]["id"])
        give_up = time.monotonic() + 20
        while b"pramana token create" not in (said := Client(plain.url, secret).get("/api/settings")).body:
            assert time.monotonic() < give_up, said.body
            time.sleep(0.2)
        assert said.status == 401
        assert "create a token on the server: pramana token create NAME --role admin" in said.error
        assert plain.get("/api/settings", headers=passed_on).status == 401
    code, said_by = invoke("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - it must not
    assert (code, "every token is revoked or expired; create a token first" in said_by) == (1, True)


@pytest.mark.parametrize(
    "header",
    ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via", "True-Client-IP"],
)
def test_a_forwarded_request_needs_a_token(client: Client, header: str) -> None:
    assert client.get("/api/me").status == 200
    assert client.get("/api/me", headers={header: ""}).status == 401
    assert client.with_token("viewer").get("/api/me", headers={header: "for=203.0.113.7"}).status == 200


def test_another_account_on_this_machine_needs_a_token(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get("/api/me").data["name"] == "local"
    uid = os.geteuid()
    monkeypatch.setattr("pramana.show.api.peer.os.geteuid", lambda: uid + 1)
    assert client.get("/api/me").status == 401
    monkeypatch.setattr("pramana.show.api.peer.os.geteuid", lambda: 65_534)
    assert client.get("/api/me").status == 401


def test_the_kernel_identifies_processes_of_another_account(client: Client) -> None:
    ask = (
        "import http.client, sys; at = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]));"
        "at.request('GET', '/api/me'); print(at.getresponse().status)"
    )
    port, mine = client.url.rpartition(":")[2], os.geteuid()
    expected = {mine: "200\n"} | ({12_345: "401\n"} if mine == 0 else {})  # only root can become another account
    said = {
        account: subprocess.run(
            ["/usr/bin/env", "python3", "-c", ask, port], user=account, capture_output=True, text=True, check=True
        ).stdout
        for account in expected
    }
    assert said == expected


@pytest.mark.parametrize(
    ("family", "host", "to"),
    [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "::1"), (socket.AF_INET6, "::", "127.0.0.1")],
)
def test_the_peer_account_is_found_for_each_address_family(family: int, host: str, to: str) -> None:
    with socket.socket(family) as listening:
        listening.bind((host, 0))
        listening.listen()
        other = socket.create_connection((to, listening.getsockname()[1]))
        near, _ = listening.accept()
        with near:
            client, server = near.getpeername()[:2], near.getsockname()[:2]
            assert is_from_own_os_account(client, server)
            assert not is_from_own_os_account((client[0], client[1] ^ 1), server)
            assert not is_from_own_os_account(("203.0.113.7", client[1]), server)
            other.close()
            assert not is_from_own_os_account(client, server), "a socket that was closed is nobody's any more"
    assert not is_from_own_os_account(None, None)
    assert not is_from_own_os_account(("testclient", 1), ("testserver", 2))


def test_a_socket_that_listens_on_the_port_is_not_the_peer() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        assert not is_from_own_os_account(listening.getsockname(), ("127.0.0.1", 9))


def test_a_token_is_needed_if_the_kernel_does_not_identify_the_peer(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_os_error(*_: Any, **__: Any) -> Any:
        raise OSError("no netlink here")

    monkeypatch.setattr("pramana.show.api.peer._read_socket_uid", raise_os_error)
    assert client.get("/api/me").status == 401
    monkeypatch.setattr("pramana.show.api.peer._read_socket_uid", lambda *_: os.geteuid())
    assert client.get("/api/me").status == 200
    monkeypatch.setattr("pramana.show.api.peer.sys.platform", "darwin")
    assert client.get("/api/me").status == 401


def test_the_peer_account_is_looked_up_once_per_connection(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def record_lookup(*given: Any) -> bool:
        asked.append(given)
        return True

    monkeypatch.setattr("pramana.show.api.gate.is_from_own_os_account", record_lookup)
    parts = urlsplit(client.url)
    for _ in range(2):
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
        for _ in range(3):
            connection.request("GET", "/api/me")
            assert connection.getresponse().read()
        connection.close()
    assert len(asked) == len(set(asked)) == 2


def test_no_auth_gives_every_local_caller_full_access() -> None:
    with start_program("--no-auth") as found:
        assert found.client.get("/api/settings", headers={"X-Forwarded-For": "203.0.113.7"}).status == 200
        assert Client(found.client.url, "wrong").get("/api/settings").status == 200
        refused = found.client.get("/api/settings", headers={"Host": "bench.example"})
        assert (refused.status, refused.error) == (
            421,
            "host not allowed: use the server's own address, or start the server with --allow-host NAME",
        )
    for options in (("--host", "0.0.0.0"), ("--allow-host", "bench.example"), ("--trust-proxy", "10.0.0.1")):  # noqa: S104
        code, said = invoke("serve", "--no-auth", *options)
        assert (code, "with --no-auth they could do everything" in said) == (1, True)


def test_a_token_expires_at_the_chosen_time_and_the_list_shows_it() -> None:
    for given, expires in (
        ((), r"expires 20\d\d-"),
        (("--expires", "7"), r"expires 20\d\d-"),
        (("--expires", "never"), "never expires"),
    ):
        assert re.search(expires, invoke("token", "create", "Ann", *given)[1])
    assert "expected a number of days" in invoke("token", "create", "Ann", "--expires", "soon")[1]
    listed = json.loads(invoke("token", "list", "--json")[1])
    assert [each["expires"] is None for each in listed] == [False, False, True]
    with closing(open_store(settings.database_url())) as store:
        end_token(store, listed[0]["id"], "expired")
        end_token(store, listed[1]["id"], "revoked")
    said = invoke("token", "list")[1]
    assert re.search("expired 2020-01-01", said)
    assert re.search("revoked 2020-01-01", said)
    assert "No valid token is left" in invoke("token", "revoke", listed[2]["id"])[1]


def test_creating_the_first_token_explains_the_private_address_setting(tmp_path: Path) -> None:
    assert "refuses models at private addresses" in invoke("token", "create")[1]
    assert "private" not in invoke("token", "create")[1]  # the second
    with closing(open_store(settings.database_url())) as store:
        assert not store.preferences.read().allow_private_addresses
    for flag, allowed in (("--allow-private-addresses", True), ("--no-allow-private-addresses", False)):
        home = {"PRAMANA_HOME": str(tmp_path / flag)}
        made = CliRunner(env=home).invoke(pramana, ["token", "create", flag])
        assert ("refuses models at private addresses" in made.output) is not allowed
        with closing(open_store(f"sqlite:///{tmp_path / flag / 'pramana.sqlite3'}")) as store:
            assert store.preferences.read().allow_private_addresses is allowed


@pytest.mark.parametrize(("typed", "allowed"), [("y", True), ("n", False), ("", False)])
def test_creating_the_first_token_at_a_terminal_asks_about_private_addresses(
    monkeypatch: pytest.MonkeyPatch, typed: str, allowed: bool
) -> None:
    monkeypatch.setattr("pramana.show.cli.token._is_interactive", lambda: True)
    for is_first in (True, False):
        made = CliRunner().invoke(pramana, ["token", "create", "--role", "admin"], input=f"{typed}\n")
        assert ("Allow this for everyone with a token?" in made.stderr) is is_first
        assert made.stdout.startswith("pramana_"), "only the token is on standard output"
        with closing(open_store(settings.database_url())) as store:
            assert store.preferences.read().allow_private_addresses is allowed


def test_token_commands_need_no_name_and_print_json() -> None:
    made = json.loads(invoke("token", "create", "--role", "viewer", "--json")[1])
    assert (made["name"], made["role"], made["token"][:8]) == ("viewer", "viewer", "pramana_")
    assert [each["id"] for each in json.loads(invoke("token", "list", "--json")[1])] == [made["id"]]
    assert json.loads(invoke("token", "revoke", made["id"], "--json")[1])["revoked"]


def test_a_port_in_use_is_reported(client: Client) -> None:
    _, said = invoke("serve", "--port", client.url.rpartition(":")[2])
    assert "choose another port with --port" in said


def test_a_terminated_server_exits_at_once() -> None:
    with start_program() as found:
        assert found.client.get("/api/health").data["database"] == "sqlite"
        found.process.terminate()
        assert found.process.wait(10) == 0


def test_a_server_starts_on_each_store(store_url: str) -> None:
    with serve(store_url) as found:
        assert found.get("/api/health").data["database"] == store_url.partition(":")[0].removesuffix("+psycopg")
    open_store(store_url).close()
