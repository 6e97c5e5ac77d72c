"""The gate: hosts, origins, tokens, roles, rates and sizes."""

import json
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from pramana.show.cli import pramana
from pramana.store import open_store
from pramana.store.tokens import hashed

from .served import Client, program, serve

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
def test_only_who_calls_the_server_by_its_name_is_answered(client: Client, host: str, status: int) -> None:
    found = client.get("/api/health", headers={"Host": host})
    assert found.status == status
    assert found.headers.items() >= SECURITY.items()


def test_pages_of_other_hosts_change_nothing_unless_they_are_allowed(client: Client) -> None:
    other = {"Origin": "https://bench.example"}
    asked = {**other, "Access-Control-Request-Method": "POST"}
    own = {"Origin": client.url}
    body = {"name": "x", "role": "viewer"}
    assert client.post("/api/tokens", body, headers=other).status == 403
    assert client.post("/api/tokens", body, headers={"Origin": "null"}).status == 403
    assert client.post("/api/tokens", body, headers=own).status == 201
    assert client.call("OPTIONS", "/api/tokens", headers=asked).status == 403
    assert "access-control-allow-origin" not in client.get("/api/health", headers=other).headers

    assert client.patch("/api/settings", {"corsOrigins": ["https://bench.example"]}).status == 200
    preflight = client.call("OPTIONS", "/api/tokens", headers=asked)
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, "https://bench.example")
    assert client.post("/api/tokens", body, headers=other).status == 201
    assert client.post("/api/tokens", body, headers={"Origin": "https://bench.example.evil"}).status == 403


def test_a_token_does_what_its_role_may_until_it_is_revoked(guarded: Client) -> None:
    assert guarded.get("/api/health").status == 200
    assert guarded.get("/api/tokens").status == 401
    admin, viewer = guarded.with_token("admin"), guarded.with_token("viewer")
    refused = viewer.get("/api/tokens")
    assert (refused.status, refused.error) == (403, "this needs the role admin, and the token viewer is a viewer's")
    made = admin.post("/api/tokens", {"name": "new", "role": "admin"}).data
    new = Client(guarded.url, made["token"])
    listed = {each["name"]: each for each in new.get("/api/tokens").data}
    assert listed.keys() == {"admin", "viewer", "new"}
    assert made["token"] not in str(listed)
    assert admin.delete(f"/api/tokens/{made['id']}").data["revokedAt"]
    assert Client(guarded.url, made["token"]).get("/api/health").status in (200, 401)  # believed for two seconds
    assert admin.delete("/api/tokens/t0").status == 404


def test_a_token_that_is_nobodys_is_turned_away_also_where_none_is_needed_to_look(guarded: Client) -> None:
    found = Client(guarded.url, "pramana_invented").get("/api/health")
    assert (found.status, found.headers["www-authenticate"]) == (401, "Bearer")


def test_of_a_token_only_its_hash_is_kept(tmp_path: Path, guarded: Client) -> None:
    admin = guarded.with_token("admin")
    assert admin.token
    files = b"".join(each.read_bytes() for each in tmp_path.glob("store.sqlite3*"))
    assert admin.token.encode() not in files
    assert hashed(admin.token).encode() in files


def test_too_many_requests_are_told_when_to_come_again(guarded: Client) -> None:
    admin, other = guarded.with_token("admin"), guarded.with_token("viewer")
    changed = admin.patch("/api/settings", {"requests_per_minute": 3})
    assert changed.data["requestsPerMinute"] == 3
    found = [other.get("/api/health") for _ in range(5)]
    assert [each.status for each in found] == [200, 200, 200, 429, 429]
    assert [each.headers["x-ratelimit-remaining"] for each in found] == ["2", "1", "0", "0", "0"]
    assert found[0].headers["x-ratelimit-limit"] == "3"
    assert 1 <= int(found[3].headers["retry-after"]) <= 21
    assert guarded.get("/api/health").status == 200  # an address without a token has a bucket of its own


def test_who_waits_as_told_is_served_however_often_they_were_refused(guarded: Client) -> None:
    admin, other = guarded.with_token("admin"), guarded.with_token("viewer")
    admin.patch("/api/settings", {"requestsPerMinute": 30})
    while (refused := other.get("/api/health")).status == 200:
        pass
    refused = [other.get("/api/health") for _ in range(20)][-1]
    assert refused.status == 429
    time.sleep(int(refused.headers["retry-after"]))
    assert other.get("/api/health").status == 200


def test_a_request_that_is_too_large_is_refused_whether_or_not_it_says_so(client: Client) -> None:
    client.patch("/api/settings", {"largestBodyMb": 1})
    large = b'"' + b"x" * (1 << 20) + b'"'
    kind = {"Content-Type": "application/json"}
    said = client.post("/api/tokens", body=large, headers=kind)
    assert (said.status, said.json["code"]) == (413, "too_large")

    def pieces() -> list[bytes]:
        return [large[start : start + 65536] for start in range(0, len(large), 65536)]

    unsaid = client.post("/api/tokens", body=iter(pieces()), headers=kind)
    assert unsaid.status == 413


def test_settings_are_all_taken_or_none(client: Client) -> None:
    for wrong in ({}, {"requestsPerMinute": 0}, {"corsOrigins": ["javascript:x"], "refuseUnverified": True}, {"a": 1}):
        assert client.patch("/api/settings", wrong).status == 400
    assert client.get("/api/settings").data["refuseUnverified"] is False
    assert client.patch("/api/settings", {"refuseUnverified": True}).data["refuseUnverified"] is True
    assert client.patch("/api/settings", {"refuseUnverified": None}).data["refuseUnverified"] is False


# ── The program ──


def invoke(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(pramana, arguments)
    return found.exit_code, found.output + str(found.exception or "")


def test_it_lets_nobody_else_in_before_there_is_a_token() -> None:
    code, said = invoke("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - it must not
    assert (code, "nobody has a token yet; make one first: pramana token create NAME" in said) == (1, True)
    code, said = invoke("serve", "--allow-host", "bench.example", "--port", "0")
    assert "answering as bench.example lets others in" in said
    assert "is for a team's PostgreSQL" in invoke("serve", "--api-only")[1]


def test_a_token_made_on_the_command_line_opens_the_server() -> None:
    _, said = invoke("token", "create", "Ann", "--role", "viewer")
    secret = said.split()[0]
    with program("--allow-host", "bench.example") as found:
        assert found.client.get("/api/settings").status == 401
        mine = Client(found.client.url, secret)
        assert mine.get("/api/settings").status == 403
        assert mine.get("/api/health", headers={"Host": "bench.example"}).status == 200
    assert re.search(r"viewer  Ann  created .*, last used 20", invoke("token", "list")[1])
    token_id = re.findall(r"\bt[0-9a-f]{8}\b", invoke("token", "list")[1])[0]
    assert "is revoked" in invoke("token", "revoke", token_id)[1]
    assert "revoked 20" in invoke("token", "list")[1]


def test_a_token_needs_no_name_and_tells_programs_what_it_is() -> None:
    made = json.loads(invoke("token", "create", "--role", "viewer", "--json")[1])
    assert (made["name"], made["role"], made["token"][:8]) == ("viewer", "viewer", "pramana_")
    assert [each["id"] for each in json.loads(invoke("token", "list", "--json")[1])] == [made["id"]]
    assert json.loads(invoke("token", "revoke", made["id"], "--json")[1])["revoked"]


def test_a_port_that_is_taken_is_told(client: Client) -> None:
    _, said = invoke("serve", "--port", client.url.rpartition(":")[2])
    assert "choose another port with --port" in said


def test_it_ends_at_once_when_it_is_told_to() -> None:
    with program() as found:
        assert found.client.get("/api/health").data["database"] == "sqlite"
        found.process.terminate()
        assert found.process.wait(10) == 0


def test_each_store_serves(store_url: str) -> None:
    with serve(store_url) as found:
        assert found.get("/api/health").data["database"] == store_url.partition(":")[0].removesuffix("+psycopg")
    open_store(store_url).close()
