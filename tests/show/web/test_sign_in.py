"""Signing in and out with a token: in a browser, and by hand-written requests as an attacker might send them."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Literal
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from pramana.store import open_store

from ...credentials import TOKEN_ENDS, TokenEnd, end_token
from ..api.served import Answer, Client, start_program
from .closed import TokenBench, serve_with_tokens
from .conftest import EACH_VIEW, Bench, assert_no_sideways_scroll, create_session

PAGES = ("/", "/runs", "/runs?page=2&text=a%20b", "/compare", "/scenarios", "/suites", "/settings", "/settings/tokens")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def module_token_bench(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[TokenBench]:
    with serve_with_tokens(tmp_path_factory.mktemp("closed"), browser, "--trust-proxy", "127.0.0.1") as found:
        yield found


@pytest.fixture
def token_bench(module_token_bench: TokenBench) -> Iterator[TokenBench]:
    yield module_token_bench
    module_token_bench.bench.close()
    troubles, module_token_bench.bench.troubles = module_token_bench.bench.troubles, []
    assert not troubles, troubles


def make_cookie(door: TokenBench, role: str) -> dict[str, str]:
    return {"Cookie": f"pramana_session={create_session(door.bench.client, door.tokens[role])}"}


def post_token(client: Client, token: str, to: str = "/runs", **headers: str) -> Answer:
    return client.post("/sign-in", body=urlencode({"token": token, "to": to}).encode(), headers={**FORM, **headers})


def sign_in(page: Page, token: str) -> None:
    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.parametrize("path", PAGES)
def test_anonymous_visitors_are_redirected_to_sign_in_and_back(token_bench: TokenBench, path: str) -> None:
    found = token_bench.bench.client.get(path)
    assert found.status == 303
    assert urlsplit(found.headers["location"]).path == "/sign-in"
    query = found.headers["location"].partition("?")[2]
    answer = token_bench.bench.client.get(f"/sign-in?{query}", headers=make_cookie(token_bench, "viewer"))
    assert (answer.status, answer.headers["location"]) == (303, path)


def test_a_user_signs_in_returns_to_the_requested_page_and_signs_out(token_bench: TokenBench) -> None:
    page = token_bench.bench.open("/runs?text=nothing")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")
    expect(page.get_by_role("link", name="Runs")).to_have_count(0)
    sign_in(page, token_bench.tokens["editor"])
    page.wait_for_url("**/runs?text=nothing")
    expect(page.get_by_text("editor, editor")).to_be_visible()
    (cookie,) = [each for each in page.context.cookies() if each["name"] == "pramana_session"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Lax", False)
    assert "pramana_session" not in page.evaluate("document.cookie")
    assert cookie["value"] != token_bench.tokens["editor"], "the browser does not keep the token"
    headers = {"Cookie": f"pramana_session={cookie['value']}"}
    assert token_bench.bench.client.get("/api/me", headers=headers).data["role"] == "editor"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")
    assert not [each for each in page.context.cookies() if each["name"] == "pramana_session"]
    page.goto(f"{token_bench.bench.url}/runs")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")
    assert token_bench.bench.client.get("/api/me", headers=headers).status == 401, "a copy of the cookie has ended too"
    assert token_bench.client("editor").get("/api/me").status == 200, "the token is still valid"


def test_a_wrong_token_is_reported_and_the_return_address_kept(token_bench: TokenBench) -> None:
    page = token_bench.bench.open("/suites")
    sign_in(page, "pramana_nobodys")
    expect(page.get_by_role("alert")).to_contain_text("This token is not valid")
    sign_in(page, f"  {token_bench.tokens['viewer']} ")  # as copied from an email
    page.wait_for_url("**/suites")


def test_sign_in_works_by_keyboard_and_with_password_managers(token_bench: TokenBench) -> None:
    page = token_bench.bench.open("/sign-in")
    field = page.get_by_label("Your token")
    assert field.get_attribute("autocomplete") == "current-password"
    assert field.get_attribute("type") == "password"
    page.locator("body").press("Tab")
    for _ in range(5):
        if field.evaluate("e => e === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.type(token_bench.tokens["viewer"])
    page.keyboard.press("Enter")
    page.wait_for_url(f"{token_bench.bench.url}/")


@pytest.mark.parametrize(
    "to",
    [
        "//elsewhere.example", "/\\elsewhere.example", "\\\\elsewhere.example", "https://elsewhere.example/",
        "https:elsewhere.example", "javascript:alert(1)", "/\t/elsewhere.example", "/\n/elsewhere.example",
        "\t//elsewhere.example", " //elsewhere.example", "/runs\r\nSet-Cookie: a=b", "elsewhere.example", "",
        "/" + "x" * 3_000, "data:text/html,x", "/\x00", "\u200b//elsewhere.example",
    ],
)  # fmt: skip
def test_sign_in_never_redirects_to_another_host(token_bench: TokenBench, to: str) -> None:
    for found in (
        post_token(token_bench.bench.client, token_bench.tokens["viewer"], to),
        token_bench.bench.client.get(f"/sign-in?{urlencode({'to': to})}", headers=make_cookie(token_bench, "viewer")),
        post_token(token_bench.bench.client, "wrong", to),
    ):
        assert found.status == 303
        assert re.fullmatch(r"/|/sign-in\?to=%2F&why=invalid_token", found.headers["location"])


def test_the_session_cookie_is_secure_if_the_browser_used_https(token_bench: TokenBench) -> None:
    plain = post_token(token_bench.bench.client, token_bench.tokens["viewer"]).headers["set-cookie"]
    assert "Secure" not in plain
    for part in ("HttpOnly", "SameSite=lax", "Path=/", "Max-Age=2592000"):
        assert part in plain
    assert (
        "Secure"
        in post_token(token_bench.bench.client, token_bench.tokens["viewer"], **{"X-Forwarded-Proto": "https"}).headers[
            "set-cookie"
        ]
    )
    assert "set-cookie" not in post_token(token_bench.bench.client, "wrong").headers


def test_cross_origin_pages_can_neither_sign_users_in_nor_out(token_bench: TokenBench) -> None:
    for origin in ("https://elsewhere.example", "null", "http://127.0.0.1:1"):
        found = post_token(token_bench.bench.client, token_bench.tokens["viewer"], Origin=origin)
        assert (found.status, "set-cookie" in found.headers) == (403, False)
        assert token_bench.bench.client.post("/sign-out", headers={"Origin": origin}).status == 403
    assert (
        post_token(token_bench.bench.client, token_bench.tokens["viewer"], Origin=token_bench.bench.url).status == 303
    )


@pytest.mark.parametrize("secret", ["", " ", "ü" * 51, "x" * 100_000, "pramana_" + "é" * 43, "a\nb", "a\x00b"])
def test_any_invalid_token_is_refused(token_bench: TokenBench, secret: str) -> None:
    found = post_token(token_bench.bench.client, secret)
    assert (found.status, "why=invalid_token" in found.headers["location"]) == (303, True)
    kept = token_bench.bench.client.get(
        "/runs",
        headers={
            "Cookie": f"pramana_session={secret[:60]}".encode().decode("latin-1").replace("\n", "").replace("\x00", "")
        },
    )
    assert kept.status == 303


def test_guessing_tokens_is_rate_limited_per_client(token_bench: TokenBench) -> None:
    admin = token_bench.client("admin")
    try:
        assert admin.patch("/api/settings", {"requestsPerMinute": 20}).status == 200
        one, other = {"X-Forwarded-For": "203.0.113.7"}, {"X-Forwarded-For": "203.0.113.8"}
        found = [post_token(token_bench.bench.client, f"pramana_{each:043}", **one) for each in range(15)]
        tried = [each.headers.get("location", "") for each in found]
        assert "why=invalid_token" in tried[0]
        assert (
            5 <= sum("why=invalid_token" in each for each in tried) <= 11
        )  # each counts for its page and for its token
        assert found[-1].status == 429 or "why=too_many_attempts" in tried[-1]
        assert (
            post_token(token_bench.bench.client, token_bench.tokens["viewer"], **other).headers["location"] == "/runs"
        )
    finally:
        admin.patch("/api/settings", {"requestsPerMinute": None})


def test_revoking_a_token_redirects_its_user_to_sign_in_and_back(token_bench: TokenBench) -> None:
    admin = token_bench.client("admin")
    made = admin.post("/api/tokens", {"name": "short", "role": "admin"}).data
    page = token_bench.bench.open("/settings/tokens", token=made["token"])
    expect(page.get_by_text("short, admin")).to_be_visible()
    page.locator("#main:not([inert])").wait_for()
    admin.delete(f"/api/tokens/{made['id']}")
    page.wait_for_url("**/sign-in?to=*")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")
    sign_in(page, token_bench.tokens["admin"])
    page.wait_for_url("**/settings/tokens")


@pytest.mark.parametrize("path", ["/runs", "/settings/prices"])  # one page with live updates, and one without
@pytest.mark.parametrize("how", TOKEN_ENDS)
def test_an_open_page_ends_within_seconds_of_its_token(token_bench: TokenBench, how: TokenEnd, path: str) -> None:
    made = token_bench.client("admin").post("/api/tokens", {"name": how, "role": "editor"}).data
    page = token_bench.bench.open(path, token=made["token"])
    expect(page.get_by_text(f"{how}, editor")).to_be_visible()
    page.locator("#main:not([inert])").wait_for()
    before = page.evaluate("performance.timeOrigin")
    with closing(open_store(f"sqlite:///{token_bench.bench.home}/pramana.sqlite3")) as store:
        end_token(store, made["id"], how)
    began = time.monotonic()
    if how == "demoted":  # redirected to sign in and, still signed in, back to the page with the new role
        expect(page.get_by_text(f"{how}, viewer")).to_be_visible()
        assert page.evaluate("performance.timeOrigin") != before
    else:
        page.wait_for_url(f"**/sign-in?to={path.replace('/', '%2F')}")
    assert time.monotonic() - began < 5


def test_signing_out_ends_all_pages_of_the_browser(token_bench: TokenBench) -> None:
    page = token_bench.bench.open("/settings/prices", token=token_bench.tokens["viewer"], own=True)
    other = page.context.new_page()
    other.goto(f"{token_bench.bench.url}/suites")
    other.get_by_role("button", name="Sign out").click()
    other.wait_for_url("**/sign-in")
    page.wait_for_url("**/sign-in?to=%2Fsettings%2Fprices")


def test_only_the_token_in_the_printed_address_signs_in(token_bench: TokenBench) -> None:
    found = token_bench.bench.client.get(f"/sign-in?token={token_bench.tokens['viewer']}")
    assert (found.status, "set-cookie" in found.headers) == (200, False), "a token in an address ends up in logs"
    with start_program() as started:
        stranger = {"X-Forwarded-For": "203.0.113.7"}  # not the server's own account
        assert started.token
        found = started.client.get(f"/sign-in?token={started.token}", headers=stranger)
        assert (found.status, found.headers["location"]) == (303, "/")
        session = found.headers["set-cookie"].partition(";")[0]
        assert started.token not in session
        asked = started.client.get("/api/me", headers={**stranger, "Cookie": session})
        assert (asked.data["name"], asked.data["role"]) == ("start-up token", "admin")
        bearer = {**stranger, "Authorization": f"Bearer {started.token}"}
        assert started.client.get("/api/me", headers=bearer).status == 200
        assert started.client.get("/api/tokens", headers=bearer).data == [], "it is stored nowhere"
        assert started.client.post("/sign-out", headers={**stranger, "Cookie": session}).status == 303
        assert started.client.get("/api/me", headers={**stranger, "Cookie": session}).status == 401
        assert started.client.get("/sign-in?token=pramana_" + "x" * 43, headers=stranger).status == 200


def test_an_old_cookie_is_ignored_if_no_token_is_required(bench: Bench) -> None:
    page = bench.open("/settings", token="pramana_" + "x" * 43)
    expect(page.get_by_role("heading", level=1)).to_have_text("Settings")
    expect(page.get_by_role("button", name="Sign out")).to_have_count(0)
    assert post_token(bench.client, "ünï").headers["location"] == "/runs"
    assert bench.client.get("/sign-in?to=/suites").headers["location"] == "/suites"


@EACH_VIEW
def test_the_sign_in_page_is_accessible(
    token_bench: TokenBench, axe: Callable[[Page], None], width: int, theme: Literal["light", "dark"]
) -> None:
    page = token_bench.bench.open("/sign-in?why=invalid_token", width=width, theme=theme)
    expect(page.get_by_role("alert")).to_be_visible()
    assert_no_sideways_scroll(page)
    axe(page)
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == theme
