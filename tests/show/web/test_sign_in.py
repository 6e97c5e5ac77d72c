"""Signing in with a token, and out: by a browser as people do, and by hand as others might try."""

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
from ..api.served import Answer, Client, program
from .closed import Closed, closed
from .conftest import EACH_VIEW, Bench, no_sideways, session_of

PAGES = ("/", "/runs", "/runs?page=2&text=a%20b", "/compare", "/scenarios", "/suites", "/settings", "/settings/tokens")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def shut(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Closed]:
    with closed(tmp_path_factory.mktemp("closed"), browser, "--trust-proxy", "127.0.0.1") as found:
        yield found


@pytest.fixture
def door(shut: Closed) -> Iterator[Closed]:
    yield shut
    shut.bench.close()
    troubles, shut.bench.troubles = shut.bench.troubles, []
    assert not troubles, troubles


def cookie_of(door: Closed, role: str) -> dict[str, str]:
    return {"Cookie": f"pramana_session={session_of(door.bench.client, door.tokens[role])}"}


def sent(client: Client, token: str, to: str = "/runs", **headers: str) -> Answer:
    return client.post("/sign-in", body=urlencode({"token": token, "to": to}).encode(), headers={**FORM, **headers})


def sign_in(page: Page, token: str) -> None:
    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.parametrize("path", PAGES)
def test_strangers_are_sent_from_every_page_to_sign_in_and_back(door: Closed, path: str) -> None:
    found = door.bench.client.get(path)
    assert found.status == 303
    assert urlsplit(found.headers["location"]).path == "/sign-in"
    query = found.headers["location"].partition("?")[2]
    answer = door.bench.client.get(f"/sign-in?{query}", headers=cookie_of(door, "viewer"))
    assert (answer.status, answer.headers["location"]) == (303, path)


def test_a_person_signs_in_comes_back_to_where_they_wanted_to_and_signs_out(door: Closed) -> None:
    page = door.bench.open("/runs?text=nothing")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")
    expect(page.get_by_role("link", name="Runs")).to_have_count(0)
    sign_in(page, door.tokens["editor"])
    page.wait_for_url("**/runs?text=nothing")
    expect(page.get_by_text("editor, editor")).to_be_visible()
    (cookie,) = [each for each in page.context.cookies() if each["name"] == "pramana_session"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Lax", False)
    assert "pramana_session" not in page.evaluate("document.cookie")
    assert cookie["value"] != door.tokens["editor"], "the browser does not keep the token"
    headers = {"Cookie": f"pramana_session={cookie['value']}"}
    assert door.bench.client.get("/api/me", headers=headers).data["role"] == "editor"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")
    assert not [each for each in page.context.cookies() if each["name"] == "pramana_session"]
    page.goto(f"{door.bench.url}/runs")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")
    assert door.bench.client.get("/api/me", headers=headers).status == 401, "a copy of the cookie has ended too"
    assert door.client("editor").get("/api/me").status == 200, "the token is still valid"


def test_a_wrong_token_is_told_and_the_way_back_is_kept(door: Closed) -> None:
    page = door.bench.open("/suites")
    sign_in(page, "pramana_nobodys")
    expect(page.get_by_role("alert")).to_contain_text("This token is not valid")
    sign_in(page, f"  {door.tokens['viewer']} ")  # as it comes out of a mail
    page.wait_for_url("**/suites")


def test_it_works_by_keyboard_alone_and_password_managers_know_it(door: Closed) -> None:
    page = door.bench.open("/sign-in")
    field = page.get_by_label("Your token")
    assert field.get_attribute("autocomplete") == "current-password"
    assert field.get_attribute("type") == "password"
    page.locator("body").press("Tab")
    for _ in range(5):
        if field.evaluate("e => e === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.type(door.tokens["viewer"])
    page.keyboard.press("Enter")
    page.wait_for_url(f"{door.bench.url}/")


@pytest.mark.parametrize(
    "to",
    [
        "//elsewhere.example", "/\\elsewhere.example", "\\\\elsewhere.example", "https://elsewhere.example/",
        "https:elsewhere.example", "javascript:alert(1)", "/\t/elsewhere.example", "/\n/elsewhere.example",
        "\t//elsewhere.example", " //elsewhere.example", "/runs\r\nSet-Cookie: a=b", "elsewhere.example", "",
        "/" + "x" * 3_000, "data:text/html,x", "/\x00", "\u200b//elsewhere.example",
    ],
)  # fmt: skip
def test_no_link_leads_elsewhere_after_signing_in(door: Closed, to: str) -> None:
    for found in (
        sent(door.bench.client, door.tokens["viewer"], to),
        door.bench.client.get(f"/sign-in?{urlencode({'to': to})}", headers=cookie_of(door, "viewer")),
        sent(door.bench.client, "wrong", to),
    ):
        assert found.status == 303
        assert re.fullmatch(r"/|/sign-in\?to=%2F&why=wrong", found.headers["location"])


def test_a_cookie_is_for_https_where_the_browser_came_by_it(door: Closed) -> None:
    plain = sent(door.bench.client, door.tokens["viewer"]).headers["set-cookie"]
    assert "Secure" not in plain
    for part in ("HttpOnly", "SameSite=lax", "Path=/", "Max-Age=2592000"):
        assert part in plain
    assert (
        "Secure"
        in sent(door.bench.client, door.tokens["viewer"], **{"X-Forwarded-Proto": "https"}).headers["set-cookie"]
    )
    assert "set-cookie" not in sent(door.bench.client, "wrong").headers


def test_pages_of_other_hosts_can_neither_sign_anybody_in_nor_out(door: Closed) -> None:
    for origin in ("https://elsewhere.example", "null", "http://127.0.0.1:1"):
        found = sent(door.bench.client, door.tokens["viewer"], Origin=origin)
        assert (found.status, "set-cookie" in found.headers) == (403, False)
        assert door.bench.client.post("/sign-out", headers={"Origin": origin}).status == 403
    assert sent(door.bench.client, door.tokens["viewer"], Origin=door.bench.url).status == 303


@pytest.mark.parametrize("secret", ["", " ", "ü" * 51, "x" * 100_000, "pramana_" + "é" * 43, "a\nb", "a\x00b"])
def test_whatever_is_brought_is_told_to_be_wrong(door: Closed, secret: str) -> None:
    found = sent(door.bench.client, secret)
    assert (found.status, "why=wrong" in found.headers["location"]) == (303, True)
    kept = door.bench.client.get(
        "/runs",
        headers={
            "Cookie": f"pramana_session={secret[:60]}".encode().decode("latin-1").replace("\n", "").replace("\x00", "")
        },
    )
    assert kept.status == 303


def test_who_tries_many_tokens_is_stopped_and_others_are_not(door: Closed) -> None:
    admin = door.client("admin")
    try:
        assert admin.patch("/api/settings", {"requestsPerMinute": 20}).status == 200
        one, other = {"X-Forwarded-For": "203.0.113.7"}, {"X-Forwarded-For": "203.0.113.8"}
        found = [sent(door.bench.client, f"pramana_{each:043}", **one) for each in range(15)]
        tried = [each.headers.get("location", "") for each in found]
        assert "why=wrong" in tried[0]
        assert 5 <= sum("why=wrong" in each for each in tried) <= 11  # each counts for its page and for its token
        assert found[-1].status == 429 or "why=often" in tried[-1]
        assert sent(door.bench.client, door.tokens["viewer"], **other).headers["location"] == "/runs"
    finally:
        admin.patch("/api/settings", {"requestsPerMinute": None})


def test_whose_token_is_revoked_is_led_to_sign_in_and_back(door: Closed) -> None:
    admin = door.client("admin")
    made = admin.post("/api/tokens", {"name": "short", "role": "admin"}).data
    page = door.bench.open("/settings/tokens", token=made["token"])
    expect(page.get_by_text("short, admin")).to_be_visible()
    page.locator("#main:not([inert])").wait_for()
    admin.delete(f"/api/tokens/{made['id']}")
    page.wait_for_url("**/sign-in?to=*")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")
    sign_in(page, door.tokens["admin"])
    page.wait_for_url("**/settings/tokens")


@pytest.mark.parametrize("path", ["/runs", "/settings/prices"])  # one that follows what is new, and one that does not
@pytest.mark.parametrize("how", TOKEN_ENDS)
def test_a_page_ends_within_seconds_when_its_token_does(door: Closed, how: TokenEnd, path: str) -> None:
    made = door.client("admin").post("/api/tokens", {"name": how, "role": "editor"}).data
    page = door.bench.open(path, token=made["token"])
    expect(page.get_by_text(f"{how}, editor")).to_be_visible()
    page.locator("#main:not([inert])").wait_for()
    before = page.evaluate("performance.timeOrigin")
    with closing(open_store(f"sqlite:///{door.bench.home}/pramana.sqlite3")) as store:
        end_token(store, made["id"], how)
    began = time.monotonic()
    if how == "demoted":  # it is led to sign in, and being somebody still, back to the page as they may see it now
        expect(page.get_by_text(f"{how}, viewer")).to_be_visible()
        assert page.evaluate("performance.timeOrigin") != before
    else:
        page.wait_for_url(f"**/sign-in?to={path.replace('/', '%2F')}")
    assert time.monotonic() - began < 5


def test_signing_out_ends_the_other_pages_of_the_browser(door: Closed) -> None:
    page = door.bench.open("/settings/prices", token=door.tokens["viewer"], own=True)
    other = page.context.new_page()
    other.goto(f"{door.bench.url}/suites")
    other.get_by_role("button", name="Sign out").click()
    other.wait_for_url("**/sign-in")
    page.wait_for_url("**/sign-in?to=%2Fsettings%2Fprices")


def test_the_address_that_the_server_prints_signs_in_and_no_other_token_does(door: Closed) -> None:
    found = door.bench.client.get(f"/sign-in?token={door.tokens['viewer']}")
    assert (found.status, "set-cookie" in found.headers) == (200, False), "a token in an address ends up in logs"
    with program() as started:
        stranger = {"X-Forwarded-For": "203.0.113.7"}  # to this server, nobody of its own account
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


def test_where_no_token_is_needed_an_old_cookie_is_no_trouble(bench: Bench) -> None:
    page = bench.open("/settings", token="pramana_" + "x" * 43)
    expect(page.get_by_role("heading", level=1)).to_have_text("Settings")
    expect(page.get_by_role("button", name="Sign out")).to_have_count(0)
    assert sent(bench.client, "ünï").headers["location"] == "/runs"
    assert bench.client.get("/sign-in?to=/suites").headers["location"] == "/suites"


@EACH_VIEW
def test_everyone_can_read_it(
    door: Closed, axe: Callable[[Page], None], width: int, theme: Literal["light", "dark"]
) -> None:
    page = door.bench.open("/sign-in?why=wrong", width=width, theme=theme)
    expect(page.get_by_role("alert")).to_be_visible()
    no_sideways(page)
    axe(page)
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == theme
