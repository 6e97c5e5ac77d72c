"""Signing in with a token, and out: by a browser as people do, and by hand as others might try."""

import re
from collections.abc import Callable, Iterator
from typing import Literal
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from ..api.served import Answer, Client
from .closed import Closed, closed
from .conftest import EACH_VIEW, Bench, no_sideways

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
    answer = door.bench.client.get(f"/sign-in?{query}", headers={"Cookie": f"pramana_token={door.tokens['viewer']}"})
    assert (answer.status, answer.headers["location"]) == (303, path)


def test_a_person_signs_in_comes_back_to_where_they_wanted_to_and_signs_out(door: Closed) -> None:
    page = door.bench.open("/runs?text=nothing")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")
    expect(page.get_by_role("link", name="Runs")).to_have_count(0)
    sign_in(page, door.tokens["editor"])
    page.wait_for_url("**/runs?text=nothing")
    expect(page.get_by_text("editor, editor")).to_be_visible()
    (cookie,) = [each for each in page.context.cookies() if each["name"] == "pramana_token"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Lax", False)
    assert "pramana_token" not in page.evaluate("document.cookie")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")
    assert not [each for each in page.context.cookies() if each["name"] == "pramana_token"]
    page.goto(f"{door.bench.url}/runs")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")


def test_a_wrong_token_is_told_and_the_way_back_is_kept(door: Closed) -> None:
    page = door.bench.open("/suites")
    sign_in(page, "pramana_nobodys")
    expect(page.get_by_role("alert")).to_contain_text("Nobody knows this token")
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
        door.bench.client.get(
            f"/sign-in?{urlencode({'to': to})}", headers={"Cookie": f"pramana_token={door.tokens['viewer']}"}
        ),
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
            "Cookie": f"pramana_token={secret[:60]}".encode().decode("latin-1").replace("\n", "").replace("\x00", "")
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


def revoked(admin: Client) -> set[str]:
    return {each["name"] for each in admin.get("/api/tokens").data if each["revokedAt"]}


def test_a_token_that_is_revoked_ends_with_the_next_click(door: Closed) -> None:
    admin = door.client("admin")
    before = revoked(admin)
    made = admin.post("/api/tokens", {"name": "short", "role": "admin"}).data
    page = door.bench.open("/settings/tokens", token=made["token"])
    expect(page.get_by_text("short, admin")).to_be_visible()
    page.wait_for_load_state("networkidle")
    admin.delete(f"/api/tokens/{made['id']}")
    page.wait_for_timeout(2_500)  # for so long a token is believed
    page.get_by_role("button", name="Revoke viewer").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Revoke").click()
    page.wait_for_url("**/sign-in?to=*")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Pramana")
    sign_in(page, door.tokens["admin"])
    page.wait_for_url("**/settings/tokens")
    assert revoked(admin) - before == {"short"}


def test_a_page_that_is_told_of_news_is_told_no_more_when_its_token_is_revoked(door: Closed) -> None:
    admin = door.client("admin")
    made = admin.post("/api/tokens", {"name": "listener", "role": "viewer"}).data
    page = door.bench.open("/runs", token=made["token"])
    expect(page.get_by_text("listener, viewer")).to_be_visible()
    admin.delete(f"/api/tokens/{made['id']}")
    page.wait_for_url("**/sign-in?to=%2Fruns")


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
