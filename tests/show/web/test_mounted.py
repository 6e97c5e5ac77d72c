"""The API and the workbench on one port: API routes answer in the envelope, other addresses with a page."""

import http.client
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from ..api.test_contract import EVERY, NO_JSON, STREAMS, make_example_path
from .closed import TokenBench, serve_with_tokens
from .conftest import Bench


@pytest.fixture(scope="module")
def token_bench(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[TokenBench]:
    with serve_with_tokens(tmp_path_factory.mktemp("closed"), browser) as found:
        yield found


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_every_route_answers_in_the_envelope_beside_the_workbench(bench: Bench, method: str, path: str) -> None:
    asked = make_example_path(path) + ("?seconds=0.1" if STREAMS.search(path) else "")
    answer = bench.client.call(method, asked, headers={"Content-Type": "application/json"}, body=b"")
    assert answer.status < 500 or path.startswith("/api/providers")
    if method == "HEAD" or (answer.status < 400 and NO_JSON.search(path)):
        return
    said = answer.json
    assert said["success"] is (answer.status < 400)
    assert set(said) >= ({"data"} if said["success"] else {"error", "code", "details"})


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/nothing", "/api/runs/x/y/z", "/audio", "/docs/nothing"])
def test_an_unknown_api_route_is_refused_in_json(bench: Bench, path: str) -> None:
    answer = bench.client.get(path)
    assert answer.status in (404, 405), answer.body
    assert answer.json["success"] is False


def test_a_wrong_method_is_refused_in_json(bench: Bench) -> None:
    answer = bench.client.call("DELETE", "/api/health")
    assert (answer.status, answer.json["code"]) == (405, "method_not_allowed")


def test_an_unknown_page_says_where_to_go(bench: Bench) -> None:
    assert bench.client.get("/no-such-page").status == 404
    page = bench.open("/no-such-page", expects_errors=True)
    expect(page.get_by_role("heading", level=1)).to_have_text("Page not found")
    page.get_by_role("link", name="Home").click()
    expect(page).to_have_url(f"{bench.url}/")


def test_pages_load_nothing_from_other_hosts_and_cannot_be_framed(bench: Bench) -> None:
    headers = bench.client.get("/runs").headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_a_cross_origin_websocket_is_refused(bench: Bench) -> None:
    parts = urlsplit(bench.url)
    assert parts.hostname
    opening = {
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    statuses = {}
    for origin in ("http://elsewhere.example", bench.url):
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
        path = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
        connection.request("GET", path, headers={**opening, "Origin": origin})
        statuses[origin] = connection.getresponse().status
        connection.close()
    assert statuses == {"http://elsewhere.example": 403, bench.url: 101}


def test_a_cross_origin_post_to_the_socket_is_refused(bench: Bench) -> None:
    answer = bench.client.call(
        "POST",
        "/_nicegui_ws/socket.io/?EIO=4&transport=polling",
        body=b"",
        headers={"Origin": "http://elsewhere.example"},
    )
    assert answer.status == 403
    assert json.loads(answer.body)["success"] is False


@pytest.mark.parametrize(
    "path", ["/sign-in?why=invalid_token", "/no-such-page", "/_nicegui/nothing", "/_nicegui/3.18.0/static/no"]
)
def test_anonymous_requests_create_no_page_objects(token_bench: TokenBench, path: str) -> None:
    """A page is an object on the server for at least a minute; anonymous clients could exhaust its memory."""
    answer = token_bench.bench.client.get(path)
    assert answer.status == (200 if path.startswith("/sign-in") else 404)
    assert "x-nicegui-content" not in answer.headers
    assert b"<script" not in answer.body
