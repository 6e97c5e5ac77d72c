"""What holds of every route there is: a role, the envelope, names in camelCase, and nothing of the framework's own."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from pramana.show.api import ROUTERS, make_routes

from .served import Client

OPEN = {("GET", "/api/health"), ("POST", "/api/submit"), ("POST", "/api/submit/batch"), ("GET", "/api/badge/{model:path}")}
"""What strangers may use, or are told by the route itself whether they may."""
SNAKE_CASE = re.compile(r"[a-z]+_[a-z_]+")
NO_JSON = re.compile(r"/audio|/events$|/export$|/badge/")
STREAMS = re.compile(r"/events$")


def routes() -> Iterator[tuple[str, APIRoute]]:
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in sorted(route.methods or ()):
                yield method, route


def example(path: str) -> str:
    return re.sub(r"\{(\w+)(:path)?\}", lambda found: "1" if found[1] in ("seq", "number") else "no-such-thing", path)


EVERY = [(method, route.path) for method, route in routes()]


def test_nothing_is_served_beside_them(client: Client) -> None:
    assert client.serving
    beside = {getattr(route, "path", None) for route in make_routes(client.serving).routes}
    assert beside == {None, "/openapi.json", "/docs", "/docs/assets"}  # None: a router that was included


def test_there_are_routes_for_all_that_was_promised() -> None:
    paths = {path for _, path in EVERY}
    promised = {
        "/api/health", "/api/tokens", "/api/settings", "/audio/{name:path}", "/api/scenarios", "/api/scenarios/import",
        "/api/scenarios/export", "/api/scenarios/validate", "/api/suites", "/api/providers", "/api/models", "/api/runs",
        "/api/compare", "/api/events", "/api/submit", "/api/submit/batch", "/api/data/chart", "/api/badge/{model:path}",
    }  # fmt: skip
    assert promised <= paths


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_every_route_asks_who_it_is(method: str, path: str) -> None:
    (route,) = (each for verb, each in routes() if (verb, each.path) == (method, path))
    roles = {each.call.__name__ for each in route.dependant.dependencies if each.call}
    asks = {name for name in roles if name.startswith("needs_")}
    assert (method, path) in OPEN or asks
    if method not in ("GET", "HEAD"):
        assert asks != {"needs_viewer"} or path.endswith("/validate")  # whoever only looks changes nothing


@pytest.mark.parametrize(("method", "path"), [each for each in EVERY if not STREAMS.search(each[1])])
def test_every_answer_is_in_the_envelope(client: Client, method: str, path: str) -> None:
    given: list[Any] = [None] if method in ("GET", "HEAD", "DELETE") else [None, {}, [], "x", {"no": "such field"}]
    for value in given:
        found = client.call(method, example(path), value)
        assert found.status not in (422, 500), (found.status, found.body[:500])
        if found.status >= 400 and method != "HEAD":
            assert found.headers["content-type"] == "application/json"
            assert found.json["success"] is False
            assert found.json.keys() >= {"success", "error", "code", "details"}
            assert found.json["error"]
        elif not NO_JSON.search(path):
            assert found.json["success"] is True
            assert "data" in found.json


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_every_route_turns_strangers_away(guarded: Client, method: str, path: str) -> None:
    if (method, path) not in OPEN:
        found = guarded.call(method, example(path), None if method in ("GET", "HEAD", "DELETE") else {})
        assert found.status == 401, found.body[:300]


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/", "/api/no", "/api/health/", "/apiary", "/docs/assets/no.js", "/%00"]
)
def test_what_is_not_there_is_told_in_the_envelope(client: Client, path: str) -> None:
    found = client.get(path)
    assert (found.status, found.json["code"]) == (404, "not_found")


def test_a_wrong_method_is_told_with_those_there_are(client: Client) -> None:
    found = client.put("/api/health", {})
    assert (found.status, found.json["code"], found.headers["allow"]) == (405, "method_not_allowed", "GET")


def test_the_description_names_every_answer_and_is_in_camel_case(client: Client) -> None:
    described_ = client.get("/openapi.json").json
    assert "422" not in client.get("/openapi.json").body.decode()
    community = re.compile(r"Submi|Chart")  # whose words the community's client knows
    for name, schema in described_["components"]["schemas"].items():
        for field in schema.get("properties", {}):
            assert community.search(name) or not SNAKE_CASE.fullmatch(field), (name, field)
    for path, operations in described_["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert {"401", "429"} <= operation["responses"].keys(), (method, path)
