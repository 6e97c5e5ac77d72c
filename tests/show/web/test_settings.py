"""Settings, as an administrator uses them: providers and keys, tokens, prices, appearance, and server settings."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, WebSocket, expect

from pramana.providers.names import REGISTRABLE_KINDS as REGISTERED
from pramana.show.web.pages.provider_kinds import DESCRIPTION_TEMPLATE, KINDS_BY_NAME

from ...loopback.openai import OpenAIWire
from ...loopback.server import Loopback
from ..api.test_providers import run_in_thread
from .conftest import EACH_VIEW, Bench, assert_no_sideways_scroll
from .workbench import workbench

KEY = "sk-loopback-0123456789abcdef"
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def openai() -> Iterator[Loopback]:
    """A third-party server that accepts one key."""
    with run_in_thread(lambda: Loopback(OpenAIWire(key=KEY))) as found:
        yield found


@pytest.fixture(autouse=True)
def restore_settings(bench: Bench) -> Iterator[None]:
    """Remove what a test has left behind."""
    yield
    for each in bench.client.get("/api/providers").data:
        bench.client.delete(f"/api/providers/{each['id']}")
    bench.client.patch("/api/settings", dict.fromkeys(bench.client.get("/api/settings").data))


def record_traffic(page: Page) -> list[str]:
    """Record everything that a page receives from now on, by socket and by HTTP."""
    frames: list[str] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framereceived", lambda payload: frames.append(str(payload)))

    page.on("websocket", listen)
    page.on(
        "response", lambda answer: frames.append(answer.text() if answer.ok and "/_nicegui/" not in answer.url else "")
    )
    return frames


def register(bench: Bench, url: str, **more: Any) -> None:
    body = {"id": "my-vllm", "kind": "compatible", "baseUrl": url, "apiKey": KEY, **more}
    assert bench.client.post("/api/providers", body).status == 201


# ── Providers ──


def test_a_provider_is_added_tested_and_deleted_without_revealing_its_key(bench: Bench, openai: Loopback) -> None:
    page = bench.open("/settings", own=True)
    told = record_traffic(page)
    page.get_by_role("link", name="Providers").first.click()
    expect(page.get_by_role("heading", name="No provider is registered")).to_be_visible()
    page.get_by_role("link", name="Add a provider").first.click()
    page.get_by_role("link", name="OpenAI-compatible server").click()
    page.get_by_label("Id", exact=True).fill("My vLLM")
    page.get_by_label("Address").fill(openai.url)
    page.get_by_label("Key (optional)").fill(KEY)
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_text("An id is 1 to 64 lowercase letters")).to_be_visible()
    expect(page.get_by_label("Id", exact=True)).to_be_focused()
    page.get_by_label("Id", exact=True).fill("my-vllm")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="my-vllm")).to_be_visible()
    assert bench.client.get("/api/providers/my-vllm").data["keySet"] is True
    expect(page.locator(".facts")).to_contain_text("✓ set")

    page.get_by_role("button", name="Test my-vllm").click()
    status = page.get_by_role("status")
    expect(status).to_contain_text(re.compile(r"healthy, answered in [\d.,]+ ms"))
    expect(status).to_contain_text("Offers 2 models: loopback-large, loopback-small")
    assert openai.requests[-1].headers["Authorization"] == f"Bearer {KEY}"

    page.get_by_role("link", name="Change my-vllm").click()
    wrong = "sk-wrong-key-0123456789"
    page.get_by_label("New key (optional)").fill(wrong)
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Test my-vllm").click()
    expect(status).to_contain_text(re.compile(r"failed after [\d.,]+ ms"))
    expect(status).to_contain_text("rejected the API key (401)")
    page.get_by_role("link", name="Change my-vllm").click()  # the key is not shown when another field is changed either
    expect(page.get_by_label("New key (optional)")).to_have_value("")
    page.get_by_label("Model (optional)").fill("loopback-small")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".facts").get_by_text("loopback-small")).to_be_visible()
    assert bench.client.get("/api/providers/my-vllm").data["keySet"] is True

    page.get_by_role("button", name="Delete my-vllm").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alertdialog")).to_have_count(0)
    assert len(bench.client.get("/api/providers").data) == 1
    page.get_by_role("button", name="Delete my-vllm").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="No provider is registered")).to_be_visible()
    assert bench.client.get("/api/providers").data == []
    assert len(told) > 20
    for key in (KEY, wrong):
        assert not [each for each in told if key in each]
        assert key not in page.content()


def test_a_key_that_the_browser_did_not_submit_is_reported_and_nothing_is_saved(bench: Bench) -> None:
    page = bench.open("/settings/new-provider?kind=openai")
    key = page.get_by_label("Key", exact=True)
    key.fill(KEY)
    key.evaluate("each => Object.defineProperty(each, 'value', {configurable: true, get: () => new Promise(() => {})})")
    page.get_by_role("button", name="Add").click()
    told = page.get_by_text("Not saved: the browser did not respond in time; press the button again")
    expect(told).to_be_visible()
    assert bench.client.get("/api/providers").data == []
    key.evaluate("each => { delete each.value }")
    page.get_by_role("button", name="Add").click()
    page.wait_for_url("**/settings/providers")
    assert [each["keySet"] for each in bench.client.get("/api/providers").data] == [True]


def test_a_provider_can_be_added_by_keyboard_alone(bench: Bench, openai: Loopback) -> None:
    page = bench.open("/settings/new-provider")
    tab_to(page, "OpenAI-compatible server")
    page.keyboard.press("Enter")
    page.wait_for_url("**kind=compatible")
    tab_to(page, "Id")
    for typed in ("keyed", openai.url, "loopback-small", KEY):
        page.keyboard.type(typed)
        page.keyboard.press("Tab")
    tab_to(page, "Add")
    page.keyboard.press("Enter")
    page.wait_for_url("**/settings/providers")
    tab_to(page, "Test keyed")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("healthy")
    tab_to(page, "Delete keyed")
    page.keyboard.press("Enter")
    tab_to(page, "Delete")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No provider is registered")).to_be_visible()


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the control with this name has the focus."""
    page.locator("#main").wait_for()
    for _ in range(80):
        said = page.evaluate(
            "(e => e && (e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText || ''))"
            "(document.activeElement)"
        )
        if str(said).split("\n")[0].strip() == name:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{name} cannot be reached by keyboard")


def test_a_key_is_bound_to_its_address_and_can_be_removed(bench: Bench, openai: Loopback) -> None:
    register(bench, openai.url)
    page = bench.open("/settings/providers/my-vllm")
    page.get_by_label("Address").fill("https://elsewhere.example/v1")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("a key is only sent to the address that it was set for")).to_be_visible()
    page.get_by_role("checkbox", name="Remove the key").click()
    page.get_by_role("button", name="Save").click()
    page.wait_for_url("**/settings/providers")
    expect(page.locator(".facts").get_by_text("not set")).to_be_visible()
    found = bench.client.get("/api/providers/my-vllm").data
    assert (found["keySet"], found["baseUrl"]) == (False, "https://elsewhere.example/v1")


def test_every_provider_kind_has_a_form_with_its_fields(bench: Bench) -> None:
    assert set(KINDS_BY_NAME) == set(REGISTERED)
    page = bench.open("/settings/new-provider")
    for kind in KINDS_BY_NAME.values():
        expect(page.get_by_role("link", name=kind.title, exact=True)).to_be_visible()
    for name, kind in KINDS_BY_NAME.items():
        page.goto(f"{bench.url}/settings/new-provider?kind={name}")
        expect(page.get_by_label("Id", exact=True)).to_be_visible()
        has = {label: page.get_by_label(re.compile(f"^{label}")).count() > 0 for label in ("Address", "Key")}
        assert has["Key"] is bool(kind.key_hint), name
        assert has["Address"] is (bool(kind.url_hint) or name in ("twilio", "pipecat")), name
        assert (page.locator(".cm-content").count() > 0) is kind.is_described_in_yaml, name


@pytest.mark.parametrize("name", [each for each in KINDS_BY_NAME if each not in ("compatible", "websocket")])
def test_the_api_accepts_what_the_form_of_each_kind_sends(bench: Bench, name: str) -> None:
    """With the suggested id or another one, and all required fields."""
    kind = KINDS_BY_NAME[name]
    page = bench.open(f"/settings/new-provider?kind={name}")
    if not page.get_by_label("Id", exact=True).input_value():
        page.get_by_label("Id", exact=True).fill(f"my-{name}")
    if name in ("twilio", "pipecat"):
        page.get_by_label(kind.model_label).fill("wss://agent.example/talk")
    if kind.key_hint:
        page.get_by_label(re.compile("^Key")).fill(KEY)
    page.get_by_role("button", name="Add").click()
    page.wait_for_url("**/settings/providers")
    (made,) = bench.client.get("/api/providers").data
    assert (made["kind"], made["keySet"]) == (name, bool(kind.key_hint))


def test_errors_in_an_agent_description_are_marked_on_their_line(bench: Bench) -> None:
    page = bench.open("/settings/new-provider?kind=websocket")
    page.get_by_label("Id", exact=True).fill("desk")
    editor = page.get_by_role("textbox", name="Description of the agent, in YAML")
    expect(editor).to_contain_text("My agent")
    editor.click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text(DESCRIPTION_TEMPLATE.replace("silence_ms: 1500", "silence: soon"))
    expect(page.locator(".problems")).to_contain_text("silence")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("alert").filter(has_text="The description is not valid")).to_be_visible()
    assert bench.client.get("/api/providers").data == []
    editor.click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text(DESCRIPTION_TEMPLATE.replace("My agent", EVIL))
    expect(page.get_by_text("No errors")).to_be_visible()
    page.get_by_role("button", name="Add").click()
    page.wait_for_url("**/settings/providers")
    expect(page.locator(".facts").get_by_text(EVIL)).to_be_visible()
    page.get_by_role("link", name="Change desk").click()
    expect(editor).to_contain_text('"silence_ms": 1500')
    page.get_by_label("Model (optional)").fill("front")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url("**/settings/providers")
    made = bench.client.get("/api/providers/desk").data["arguments"]
    assert (made["model"], made["description"]["name"]) == ("front", EVIL)


def test_two_administrators_see_each_others_providers_appear(bench: Bench) -> None:
    page = bench.open("/settings/providers")
    expect(page.get_by_role("heading", name="No provider is registered")).to_be_visible()
    register(bench, "https://models.example/v1")
    expect(page.get_by_role("heading", name="my-vllm")).to_be_visible()


def test_environment_keys_are_shown_as_set_without_their_value(bench: Bench, tmp_path_factory: Any) -> None:
    secret = "sk-of-the-environment-0123"
    with workbench(PRAMANA_HOME=str(tmp_path_factory.mktemp("home")), ANTHROPIC_API_KEY=secret) as client:
        found = client.get("/api/providers")
        told = {each["variable"]: each["set"] for each in found.json["meta"]["environment"]}
        assert told["ANTHROPIC_API_KEY"] is True
        assert told["OPENAI_API_KEY"] is False
        assert secret.encode() not in found.body
        there = Bench(client, bench.home, bench.browser)
        page = there.open("/settings/providers")
        row = page.get_by_role("row").filter(has_text="ANTHROPIC_API_KEY")
        expect(row).to_contain_text("✓ set")
        expect(page.get_by_role("row").filter(has_text="OPENAI_API_KEY")).to_contain_text("not set")
        assert secret not in page.content()
        there.close()
        assert there.troubles == []


# ── Tokens ──


def test_the_first_token_asks_about_local_models_and_is_shown_once(browser: Browser, tmp_path_factory: Any) -> None:
    home = tmp_path_factory.mktemp("home")
    with workbench(PRAMANA_HOME=str(home)) as client:
        bench = Bench(client, home, browser)
        page = bench.open("/settings/tokens", expects_errors=True)
        expect(page.get_by_text("No tokens yet")).to_be_visible()
        expect(page.get_by_text("Your own account on this machine still needs no token")).to_be_visible()
        expect(
            page.get_by_role("checkbox", name="Allow private addresses for models and recordings")
        ).not_to_be_checked()
        expect(page.get_by_role("link", name="Server settings")).to_have_attribute("href", "/settings/server")
        page.get_by_role("button", name="Create token").click()  # with the suggested role
        expect(page.get_by_text(re.compile("1 to 100 printable characters"))).to_be_visible()
        page.get_by_label("Name").fill(f"Ann {EVIL}")
        page.get_by_role("button", name="Create token").click()
        expect(page.get_by_role("heading", name=f"The token of Ann {EVIL}")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text("It is not shown again")
        expect(page.get_by_text("at private addresses are refused from now on")).to_be_visible()
        secret = page.get_by_label("Token, an admin’s").input_value()
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("alert").filter(has_text="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == secret
        page.wait_for_timeout(6_000)  # longer than a server needs to notice the new token
        expect(page.get_by_label("Token, an admin’s")).to_have_value(secret)
        assert client.get("/api/server").data["privateAddressesAllowed"] is False
        page.get_by_role("link", name="Done").click()
        expect(page.get_by_role("checkbox", name="Allow private addresses for models and recordings")).to_have_count(0)
        expect(page.get_by_text(secret)).to_have_count(0)
        assert secret not in page.content()

        page = bench.open("/settings/tokens", token=secret)
        row, dialog = page.get_by_role("row").filter(has_text=EVIL), page.get_by_role("alertdialog")
        expect(row).to_contain_text("yours")
        page.get_by_label("Name").fill("nightly")
        page.get_by_label("Expires").click()
        page.get_by_role("option", name="Never").click()
        page.get_by_role("button", name="Create token").click()
        expect(page.get_by_role("heading", name="The token of nightly")).to_be_visible()
        page.get_by_role("link", name="Done").click()
        expect(page.get_by_role("row").filter(has_text="nightly")).to_contain_text("never")
        assert [bool(each["expiresAt"]) for each in client.get("/api/tokens").data] == [True, False]
        page.get_by_role("button", name="Revoke nightly").click()
        expect(dialog).to_contain_text("stops working within seconds")
        dialog.get_by_role("button", name="Revoke").click()
        expect(page.get_by_role("row").filter(has_text="nightly")).to_contain_text(re.compile(r"20\d\d-\d\d-\d\d"))
        expect(page.get_by_role("button", name="Revoke nightly")).to_have_count(0)
        page.get_by_role("button", name=re.compile("^Revoke Ann")).click()
        expect(dialog).to_contain_text("You are signed in with this token")
        expect(dialog).to_contain_text("only the account that runs the server can create tokens")
        bench.close()


def test_local_models_can_stay_allowed_with_the_first_token(browser: Browser, tmp_path_factory: Any) -> None:
    home = tmp_path_factory.mktemp("home")
    with workbench(PRAMANA_HOME=str(home)) as client:
        bench = Bench(client, home, browser)
        page = bench.open("/settings/tokens")
        page.get_by_label("Name").fill("Ann")
        allowed = page.get_by_role("checkbox", name="Allow private addresses for models and recordings")
        allowed.click()
        expect(allowed).to_be_checked()  # once the server has received it
        page.get_by_role("button", name="Create token").click()
        expect(page.get_by_role("heading", name="The token of Ann")).to_be_visible()
        expect(page.get_by_text("refused from now on")).to_have_count(0)
        found = client.get("/api/server").data
        assert (found["forThisMachineAlone"], found["privateAddressesAllowed"]) == (False, True)
        bench.close()
        assert bench.troubles == []


# ── Prices ──


def test_a_price_is_set_used_by_the_next_run_and_removed(bench: Bench, openai: Loopback) -> None:
    register(bench, openai.url, arguments={"model": "loopback-small"})
    wanted: dict[str, Any] = {"models": ["my-vllm"], "judge": "fake", "limits": {"maxCost": 1_000_000}}
    stopped = bench.client.get(f"/api/runs/{bench.run(**wanted)}?summary=false").data
    assert (stopped["status"], "an administrator can set the price" in stopped["reason"]) == ("stopped", True)
    page = bench.open("/settings/prices")
    row = page.get_by_role("row").filter(has_text="my-vllm")
    expect(row).to_contain_text("unknown")
    page.get_by_role("link", name="Set the price of my-vllm").click()
    page.wait_for_url("**model=my-vllm")
    expect(page.get_by_text("No price is known for my-vllm")).to_be_visible()
    page.get_by_label("Input price", exact=True).fill("-1")
    page.get_by_label("Output price", exact=True).fill("0")
    page.get_by_role("button", name="Set price").click()
    expect(page.get_by_text("Input price: enter a number from 0 to")).to_be_visible()
    page.get_by_label("Input price", exact=True).fill("2.5")
    page.get_by_label("Output price", exact=True).fill("1000000")
    page.get_by_role("button", name="Set price").click()
    expect(row).to_contain_text("set here")
    expect(row).to_contain_text("$2.50")
    expect(page.get_by_text("Now my-vllm: $2.50 in and $1,000,000.00 out per million tokens.")).to_be_visible()
    expect(page.get_by_text("No price is known for my-vllm")).to_have_count(0)
    run = bench.client.get(f"/api/runs/{bench.run(**wanted)}").data
    assert run["status"] == "finished"
    cost = next(find_json_values(run["summary"], "costUsd"))
    assert cost
    page.get_by_role("button", name="Remove the price of my-vllm").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Remove it").click()
    expect(row).to_contain_text("unknown")
    expect(page.get_by_text("No price is known for my-vllm")).to_be_visible()
    assert bench.client.get("/api/prices?model=my-vllm").data[0]["origin"] is None


def find_json_values(data: Any, name: str) -> Iterator[Any]:
    """Yield every value with a key, at any depth."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key == name:
                yield value
            yield from find_json_values(value, name)
    elif isinstance(data, list):
        for each in data:
            yield from find_json_values(each, name)


def test_a_model_lookup_shows_its_price_and_source(bench: Bench) -> None:
    page = bench.open("/settings/prices")
    page.get_by_label("Model").fill("gpt-5")
    page.get_by_role("button", name="Look up").click()
    page.wait_for_url("**model=gpt-5")
    expect(page.get_by_text("Now gpt-5: $1.25 in and $10.00 out per million tokens.")).to_be_visible()
    expect(page.get_by_label("Input price", exact=True)).to_have_value("1.25")
    page.get_by_label("Model").fill("gpt5")
    page.get_by_role("button", name="Set price").click()
    expect(page.get_by_text(re.compile("did you mean"))).to_be_visible()
    page.get_by_label("Model").fill("local")
    page.get_by_role("button", name="Set price").click()
    expect(
        page.get_by_text("Local runs on this machine and costs nothing, so no price can be set for it")
    ).to_be_visible()
    page.get_by_label("Model").fill(EVIL)
    page.get_by_role("button", name="Look up").click()
    expect(
        page.get_by_text("No provider is known", exact=False).or_(page.get_by_text("unknown model", exact=False)).first
    ).to_be_visible()
    page.get_by_label("Model").fill("")
    page.get_by_role("button", name="Set price").click()
    expect(page.get_by_text("Model: enter the name of a model")).to_be_visible()


# ── Server ──


def test_settings_are_saved_and_errors_are_shown_at_their_field(bench: Bench) -> None:
    page = bench.open("/settings/server")
    expect(page.locator(".tiles")).to_contain_text("this machine only")
    expect(page.locator(".tiles")).to_contain_text("SQLite")
    page.get_by_role("checkbox", name=re.compile("^Reject results")).click()
    page.get_by_label("Requests per minute").fill("0")
    page.get_by_label("Allowed CORS origins").fill("https://bench.example\njavascript:x")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Requests per minute: enter a whole number from 1 to 1,000,000, found 0")).to_be_visible()
    expect(
        page.get_by_text("Allowed CORS origins: enter text such as https://bench.example, found 'javascript:x'")
    ).to_be_visible()
    expect(page.get_by_label("Requests per minute")).to_be_focused()
    assert bench.client.get("/api/settings").data["refuseUnverified"] is False
    page.get_by_label("Requests per minute").fill("77.5")
    page.get_by_label("Allowed CORS origins").fill("https://bench.example")
    page.get_by_role("button", name="Save").click()
    expect(
        page.get_by_text("Requests per minute: enter a whole number from 1 to 1,000,000, found 77.5")
    ).to_be_visible()
    expect(page.get_by_text("such as https://bench.example, found")).to_have_count(0)
    page.get_by_label("Requests per minute").fill("77")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Saved.")).to_be_visible()
    now = bench.client.get("/api/settings").data
    assert (now["refuseUnverified"], now["requestsPerMinute"], now["corsOrigins"]) == (
        True,
        77,
        ["https://bench.example"],
    )
    page.get_by_label("Requests per minute").fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Requests per minute")).to_have_value("1200")
    assert bench.client.get("/api/settings").data["requestsPerMinute"] == 1_200


# ── Appearance ──


def test_the_appearance_is_chosen_and_kept(bench: Bench) -> None:
    page = bench.open("/settings", theme="light")

    def is_dark() -> bool:
        return bool(page.evaluate("document.body.classList.contains('body--dark')"))

    assert not is_dark()
    page.get_by_role("radio", name="Dark").click()
    expect(page.locator("body.body--dark")).to_have_count(1)
    page.goto(f"{bench.url}/runs")
    page.locator("#main").wait_for()
    assert is_dark()
    page.goto(f"{bench.url}/settings")
    expect(page.get_by_role("radio", name="Dark")).to_be_checked()
    page.get_by_role("radio", name="System").click()
    expect(page.locator("body.body--dark")).to_have_count(0)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("body.body--dark")).to_have_count(1)
    page.reload()
    expect(page.get_by_role("radio", name="System")).to_be_checked()


PAGES = (
    "/settings", "/settings/providers", "/settings/new-provider", "/settings/new-provider?kind=compatible",
    "/settings/new-provider?kind=websocket", "/settings/providers/my-vllm", "/settings/tokens",
    "/settings/prices?model=gpt-5", "/settings/server",
)  # fmt: skip


@EACH_VIEW
def test_settings_pages_are_accessible(
    bench: Bench, axe: Callable[[Page], None], width: int, theme: Literal["light", "dark"]
) -> None:
    register(bench, f"https://{'very-' * 20}long.example/v1")
    bench.client.put("/api/prices/openai:gpt-5", {"inputPerMillion": 1.1, "outputPerMillion": 9})
    page = bench.open("/settings", width=width, theme=theme)
    for path in PAGES:
        page.goto(bench.url + path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        assert_no_sideways_scroll(page)
        axe(page)
    bench.client.delete("/api/prices/openai:gpt-5")


def test_an_unknown_settings_page_shows_an_error(bench: Bench) -> None:
    page = bench.open("/settings/providers/nobody")
    expect(page.get_by_role("alert")).to_contain_text('No provider "nobody" is registered')
    page.goto(f"{bench.url}/settings/new-provider?kind={json.dumps(EVIL)}")
    expect(page.get_by_role("heading", level=1)).to_have_text("Add a provider")
