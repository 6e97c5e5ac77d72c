"""Rules for every route: a role, the envelope, camelCase names, and no framework errors."""

import http.client
import re
import socket
import time
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import urlsplit

import pytest
from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute

from pramana.app.access import Credential
from pramana.app.server import describe_current_user
from pramana.show.api import ROUTERS, make_app_without_gate
from pramana.show.api.envelope import require_caller

from .served import Client, serve

Viewer = Annotated[Credential, require_caller(describe_current_user)]
OPEN = {
    ("GET", "/api/health"), ("HEAD", "/api/health"), ("POST", "/api/submit"), ("POST", "/api/submit/batch"),
    ("GET", "/api/badge/{model:path}"), ("GET", "/api/public/watches/{watch_id}"),
    ("GET", "/api/data/watch"),
    ("GET", "/api/public/watches/{watch_id}/badge"),
}  # fmt: skip
"""What strangers may use, or are told by the route itself whether they may."""
SNAKE_CASE = re.compile(r"[a-z]+_[a-z_]+")
NO_JSON = re.compile(r"/audio|/events$|/export$|/badge/|/badge$")
STREAMS = re.compile(r"/events$")


def routes() -> Iterator[tuple[str, APIRoute]]:
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in sorted(route.methods or ()):
                yield method, route


def make_example_path(path: str) -> str:
    return re.sub(r"\{(\w+)(:path)?\}", lambda found: "1" if found[1] in ("seq", "number") else "no-such-thing", path)


EVERY = [(method, route.path) for method, route in routes()]


def test_no_undeclared_routes_are_served(client: Client) -> None:
    assert client.serving
    beside = {getattr(route, "path", None) for route in make_app_without_gate(client.serving).routes}
    assert beside == {None, "/openapi.json", "/docs", "/docs/assets"}  # None: a router that was included


def test_all_promised_routes_exist() -> None:
    paths = {path for _, path in EVERY}
    promised = {
        "/api/health", "/api/tokens", "/api/settings", "/audio/{name:path}", "/api/scenarios", "/api/scenarios/import",
        "/api/scenarios/export", "/api/scenarios/validate", "/api/suites", "/api/providers", "/api/models", "/api/runs",
        "/api/compare", "/api/events", "/api/submit", "/api/submit/batch", "/api/data/chart", "/api/badge/{model:path}",
    }  # fmt: skip
    assert promised <= paths


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_every_route_authenticates_its_caller(method: str, path: str) -> None:
    (route,) = (each for verb, each in routes() if (verb, each.path) == (method, path))
    roles = {each.call.__name__ for each in route.dependant.dependencies if each.call}
    asks = {name for name in roles if name.startswith(("needs_", "caller_of_"))}
    assert (method, path) in OPEN or asks
    if method not in ("GET", "HEAD"):
        assert asks != {"needs_viewer"} or path.endswith("/validate")  # viewers change nothing


@pytest.mark.parametrize(("method", "path"), [each for each in EVERY if not STREAMS.search(each[1])])
def test_every_answer_is_in_the_envelope(client: Client, method: str, path: str) -> None:
    given: list[Any] = [None] if method in ("GET", "HEAD", "DELETE") else [None, {}, [], "x", {"no": "such field"}]
    for value in given:
        found = client.call(method, make_example_path(path), value)
        assert found.status not in (422, 500), (found.status, found.body[:500])
        if found.status >= 400 and method != "HEAD":
            assert found.headers["content-type"] == "application/json"
            assert found.json["success"] is False
            assert found.json.keys() >= {"success", "error", "code", "details"}
            assert found.json["error"]
        elif not NO_JSON.search(path) and method != "HEAD":
            assert found.json["success"] is True
            assert "data" in found.json


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_every_route_refuses_anonymous_callers(secure_client: Client, method: str, path: str) -> None:
    if (method, path) not in OPEN:
        found = secure_client.call(method, make_example_path(path), None if method in ("GET", "HEAD", "DELETE") else {})
        assert found.status == 401, found.body[:300]


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/", "/api/no", "/api/health/", "/apiary", "/docs/assets/no.js", "/%00"]
)
def test_an_unknown_route_is_404_in_the_envelope(client: Client, path: str) -> None:
    found = client.get(path)
    assert (found.status, found.json["code"]) == (404, "not_found")


def test_a_wrong_method_is_405_with_the_allowed_methods(client: Client) -> None:
    found = client.put("/api/health", {})
    assert (found.status, found.json["code"], found.headers["allow"]) == (405, "method_not_allowed", "GET, HEAD")


def test_health_answers_head_requests(secure_client: Client) -> None:
    found = secure_client.call("HEAD", "/api/health")
    assert (found.status, found.body) == (200, b"")


def test_an_unexpected_error_returns_an_id_that_is_in_the_log(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = APIRouter()

    @broken.get("/api/broken")
    def fail(_: Viewer) -> None:
        raise ZeroDivisionError("a secret of ours")

    @broken.get("/api/half")
    def stream_and_fail(_: Viewer) -> StreamingResponse:
        def pieces() -> Iterator[bytes]:
            yield b"half"
            raise ZeroDivisionError("a secret of ours")

        return StreamingResponse(pieces())

    monkeypatch.setattr("pramana.show.api.ROUTERS", (*ROUTERS, broken))
    with serve(sqlite_url, api_only=True) as client:
        found = client.get("/api/broken")
        assert (found.status, found.json["code"], found.headers["content-type"]) == (500, "defect", "application/json")
        assert found.headers["x-content-type-options"] == "nosniff"
        number = re.search("incident ([0-9a-f]{8})", found.error)
        assert number
        assert "secret" not in found.body.decode()
        logged = [each for each in caplog.records if each.exc_info]
        assert [each.getMessage() for each in logged] == [f"incident {number[1]}"]
        with pytest.raises(http.client.IncompleteRead):  # a partial response is not mistaken for a complete one
            client.get("/api/half")
        assert client.get("/api/health").status == 200


def test_a_key_in_two_spellings_is_refused_with_both(client: Client) -> None:
    both = {"requestsPerMinute": 5, "requests_per_minute": 7}
    said = client.patch("/api/settings", both)
    assert (said.status, said.json["code"]) == (400, "invalid_input")
    assert (
        "requestsPerMinute and requests_per_minute are two spellings of the same name; send only one of them"
        in said.error
    )
    run = {"models": ["fake"], "limits": {"maxCost": 1, "max_cost": 2}}
    assert "maxCost and max_cost are two spellings" in client.post("/api/runs", run).error


def make_nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize("depth", [20, 200, 201, 400, 900])
def test_too_deeply_nested_json_is_refused_without_closing_the_connection(client_per_store: Client, depth: int) -> None:
    value, refused = make_nested(depth), depth > 200
    name = {"name": "deep", "type": "task-completion", "prompt": "x", "expectedOutcome": "y"}
    scenario = {
        **name,
        "assert": [{"type": "json_schema", "schema": {"$comment": "x", "const": make_nested(depth - 1)}}],
    }
    found = client_per_store.post("/api/scenarios", scenario)
    if depth > 40:  # no YAML file could hold it
        assert (found.status, "levels deep" in found.error) == (400, True)
    else:
        assert found.status == 201, found.body[:300]
        assert client_per_store.get("/api/scenarios/deep").data["assert"] == scenario["assert"]
    result = {"model_id": "m", "prompt_id": "p", "output": "o", "metadata": value}
    sent = [
        ("/api/submit", result, "metadata"),
        (
            "/api/submit",
            {**result, "metadata": None, "assertion_result": {"details": value}},
            "assertion_result.details",
        ),
        ("/api/submit/batch", {"results": [{**result, "metadata": {}}, result]}, "results[1].metadata"),
    ]
    for path, body, place in sent:
        found = client_per_store.post(path, body)
        assert found.status == (400 if refused else 200), found.body[:300]
        if refused:
            assert found.error == f"{place}: nested more than 200 levels deep"
    run = {"tier": "cheap", "models": ["fake"], "judge": "fake", "dryRun": True, "parameters": value}
    assert client_per_store.post("/api/runs", run).status == (400 if refused else 200)


@pytest.mark.parametrize("depth", [5_000, 100_000])
def test_extremely_nested_json_is_refused(client: Client, depth: int) -> None:
    value = '{"a":' * depth + "1" + "}" * depth
    bodies = {
        "/api/submit": '{"model_id":"m","prompt_id":"p","output":"o","metadata":%s}',
        "/api/submit/batch": '{"results":[{"model_id":"m","prompt_id":"p","output":"o","no_such":%s}]}',
        "/api/scenarios": '{"name":"d","prompt":"x","assert":[{"type":"json_schema","schema":%s}]}',
        "/api/runs": '{"models":["fake"],"parameters":%s}',
    }
    for path, body in bodies.items():
        found = client.post(path, body=(body % value).encode(), headers={"Content-Type": "application/json"})
        assert (found.status, bool(found.error)) == (400, True), (path, found.body[:300])


def test_the_openapi_description_covers_every_response_in_camel_case(client: Client) -> None:
    described_ = client.get("/openapi.json").json
    assert "422" not in client.get("/openapi.json").body.decode()
    community = re.compile(r"Submi|Chart")  # whose messages the community client parses
    for name, schema in described_["components"]["schemas"].items():
        for field in schema.get("properties", {}):
            assert community.search(name) or not SNAKE_CASE.fullmatch(field), (name, field)
    for path, operations in described_["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert {"401", "429"} <= operation["responses"].keys(), (method, path)
            for status, said in operation["responses"].items():
                assert int(status) < 400 or said["content"].keys() == {"application/json"}, (method, path, status)


def test_a_client_that_disconnects_leaves_no_traceback(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    parts = urlsplit(client.url)
    for path in ("/api/submit", "/api/runs", "/api/scenarios/import", "/audio/a.wav"):
        with socket.create_connection((str(parts.hostname), parts.port or 0)) as connection:
            method = "PUT" if path.startswith("/audio") else "POST"
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
            time.sleep(0.2)
    assert client.get("/api/health").status == 200
    time.sleep(0.3)
    assert "Traceback" not in caplog.text
    assert "incident" not in caplog.text


def test_a_client_that_stalls_is_refused_and_frees_its_slot(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pramana.show.api.gate.BODY_STALL_TIMEOUT_S", 0.3)
    parts = urlsplit(client.url)
    assert parts.hostname
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    connection.putrequest("POST", "/api/scenarios/validate")
    connection.putheader("Content-Type", "application/yaml")
    connection.putheader("Content-Length", "1000")
    connection.endheaders()
    connection.send(b"scenarios:")
    answer = connection.getresponse()
    assert (answer.status, b'"code":"timeout"' in answer.read()) == (408, True)
    connection.close()


def test_the_stall_timeout_does_not_end_event_streams(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pramana.show.api.gate.BODY_STALL_TIMEOUT_S", 0.2)
    began = time.monotonic()
    assert client.get("/api/events?seconds=1").status == 200
    assert time.monotonic() - began >= 1


def test_a_wildcard_origin_is_refused(client: Client) -> None:
    assert client.patch("/api/settings", {"corsOrigins": ["http://*"]}).status == 400
