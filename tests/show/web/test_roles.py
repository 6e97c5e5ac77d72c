"""A viewer finds no control that would be refused, and every other control changes nothing.

Pages are those that are registered, so that one that is added is covered by itself; it only has to be said what stands
for a new part of an address.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import playwright.sync_api
import pytest
from playwright.sync_api import Browser, Dialog, Locator, Page, expect

from pramana.store import open_store

from ...judged_runs import add_judged_run
from ...stores import sqlite_store
from ...watched_models import add_watch
from ..api.served import Client
from .closed import TokenBench, serve_with_tokens
from .conftest import Bench

LIST_PAGES = """
import importlib, json
from pramana.show.web import PAGE_MODULES
from pramana.show.web.kit import frame
for name in PAGE_MODULES:
    importlib.import_module(f"pramana.show.web.pages.{name}")
print(json.dumps(list(frame.TITLES_BY_PATH)))
"""
SCENARIO = {"name": "Lost umbrella", "type": "task-completion", "prompt": "Hello?", "expectedOutcome": "Hello."}
YAML = "scenarios:\n  - id: kept\n    name: Mine\n    type: task-completion\n    prompt: x\n    expected_outcome: y\n"
WITH_QUERY = (
    "/settings/new-provider?kind=openai", "/settings/new-provider?kind=websocket", "/settings/prices?model=gpt-5",
)  # fmt: skip
"""Forms that only stand where the address says more."""
PRESSED = "#main button:visible, #main [role=button]:visible"
MESSAGES = ".q-notification, [role=alert], [role=status]"
CHANGES = re.compile(
    r"Delete|Revoke|Save|Add$|Create token|Set price|Remove the price|Test |Cancel$|Resume|Duplicate|Restore|Start|"
    r"Import$|Import all|Ask the embedded|Hear a call|Download|Make (scoring|current)|Check today|Confirm$|Accept|"
    r"Stop$|Meets it|Does not meet it|Unsure|Make (public|private)|Send test"
)
"""What buttons are called that change something, or cost somebody money."""
AT_ONCE_S = 0.4
NEEDS = re.compile("needs the role (editor|admin)", re.IGNORECASE)


@pytest.fixture(scope="module")
def token_bench(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[TokenBench]:
    with serve_with_tokens(tmp_path_factory.mktemp("closed"), browser) as found:
        yield found


def list_registered_pages() -> list[str]:
    done = subprocess.run([sys.executable, "-c", LIST_PAGES], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def fill_store(client: Client, home: Path) -> dict[str, list[str]]:
    """Create one of everything; return the values for each part of an address."""
    with closing(open_store(sqlite_store(home / "pramana.sqlite3"))) as store:
        watch = add_watch(store, 2, cases=3).id
        judged = add_judged_run(store, [True, False] * 3).id

    def run(**wanted: Any) -> str:
        made = client.post("/api/runs", {"tier": "cheap", "models": ["fake"], **wanted})
        return str(made.data["id"])

    def wait(run_id: str, *statuses: str) -> str:
        until = time.monotonic() + 60
        while (now := client.get(f"/api/runs/{run_id}?summary=false").data)["status"] not in statuses:
            assert time.monotonic() < until, now
            time.sleep(0.1)
        return run_id

    finished, stopped = run(), run(limits={"maxTotalTokens": 1})
    slow = run(models=["fake:latency=600"])
    runs = [wait(finished, "finished"), wait(stopped, "stopped"), wait(slow, "running")]
    assert client.post("/api/scenarios", {"id": "kept", **SCENARIO}).status == 201
    assert client.post("/api/scenarios", {"id": "gone", **SCENARIO}).status == 201
    assert client.delete("/api/scenarios/gone").status == 200
    assert client.post("/api/providers", {"id": "mine", "kind": "fake"}).status == 201
    assert client.put("/api/prices/gpt-5", {"inputPerMillion": 1, "outputPerMillion": 2}).status == 200
    seq = client.get(f"/api/runs/{finished}/results").data[0]["seq"]
    return {
        "run_id": runs, "seq": [str(seq)], "scenario_id": ["kept"], "version": ["v1.0"], "id": ["mine"],
        "watch_id": [watch], "judged_id": [judged], "same_id": [wait(run(models=["fake", "fake:fixed=Yes"]), "finished")],
    }  # fmt: skip


def fill_addresses(pages: list[str], stands_for: dict[str, list[str]]) -> list[str]:
    """Return the address of every page, with existing values for each part."""
    found = []
    for page in pages:
        names = re.findall(r"\{(\w+)", page)
        unknown = [name for name in names if name not in stands_for]
        assert not unknown, f"say in fill_store what stands for {unknown} in {page}"
        for values in product(*(stands_for[name] for name in names)):
            said = dict(zip(names, values, strict=True))
            if "seq" in said and said["run_id"] != stands_for["run_id"][0]:
                continue  # only for the first run
            address = page
            for name, value in said.items():
                address = re.sub(rf"\{{{name}[^}}]*\}}", value, address)
            found.append(address)
    return found


def read_everything(client: Client) -> dict[str, Any]:
    """Return everything that a user could have changed."""
    runs = client.get("/api/runs?pageSize=500").data
    return {
        "runs": {each["id"]: (each["status"], each.get("cancelRequested")) for each in runs},
        "scenarios": client.get("/api/scenarios?pageSize=500").data,
        "deleted": client.get("/api/deleted-scenarios").data,
        "suites": client.get("/api/suites").data,
        "recordings": client.get("/api/audio").data,
        "providers": client.get("/api/providers").data,
        "tokens": [{**each, "lastUsed": None} for each in client.get("/api/tokens").data],
        "settings": client.get("/api/settings").data,
        "prices": [each for each in client.get("/api/prices").data if each["origin"] == "set"],
        "watches": [(each["id"], each["isActive"], each["measuredDays"]) for each in client.get("/api/watches").data],
        "weights": [(each["name"], each["present"], each["pull"]) for each in client.get("/api/weights").data],
    }


def fill_in(page: Page) -> None:
    """Fill in every field of a page, so that its buttons have something to send."""
    page.locator("#main:not([inert])").wait_for()
    if page.locator(".cm-editor").count():
        page.locator(".cm-editor[data-ready]").first.wait_for()
    for editor in page.locator("#main .cm-content").all():
        if "/scenarios" in page.url:
            editor.click()
            page.keyboard.press("ControlOrMeta+A")
            page.keyboard.insert_text(YAML)
    for field in page.locator("#main input:visible:not([readonly]):not([role=combobox])").all():
        kind = field.get_attribute("type") or "text"
        if kind in ("text", "password", "search") and not field.input_value():
            field.fill("fake")
        elif kind == "number" and not field.input_value():
            field.fill("1")


def list_button_names(page: Page) -> list[str]:
    return [
        str(each)
        for each in page.locator(PRESSED).evaluate_all(
            "some => some.map(e => e.disabled || e.ariaDisabled === 'true' ? '' : e.ariaLabel || e.innerText.trim())"
        )
    ]


def press_button(page: Page, button: Locator, patience_s: float) -> str:
    """Press a button and confirm its dialog; return the messages shown within the time limit."""
    page.evaluate(f"document.querySelectorAll({'.q-notification .q-btn'!r}).forEach(e => e.click())")
    button.evaluate("e => e.click()")  # whatever lies above it
    asked = page.locator("[role=alertdialog] .btn.danger")
    until = time.monotonic() + patience_s
    while True:
        page.wait_for_timeout(100)
        if asked.count():
            with suppress(playwright.sync_api.TimeoutError):  # it has closed after the press, as it should
                asked.first.evaluate("e => e.click()", timeout=1_000)
        said = " ".join(page.locator(MESSAGES).all_inner_texts())
        if NEEDS.search(said) or time.monotonic() > until:
            return said


def accept(dialog: Dialog) -> None:
    dialog.accept()


def press_every_button(bench: Bench, token: str, address: str) -> Iterator[tuple[str, str]]:
    """Open a page and press each of its buttons; yield the button's name and the messages shown."""
    page = bench.open(address, token=token, expects_errors=True)
    page.on("dialog", accept)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    fill_in(page)
    page.wait_for_timeout(500)
    for number, name in enumerate(list_button_names(page)):
        now = list_button_names(page)
        if page.url != bench.url + address or number >= len(now) or now[number] != name:  # it opened another page
            page.goto(bench.url + address)
            fill_in(page)
            page.wait_for_timeout(500)
            now = list_button_names(page)
        if number < len(now) and now[number]:
            yield now[number], press_button(page, page.locator(PRESSED).nth(number), AT_ONCE_S)
    page.remove_listener("dialog", accept)
    bench.close()


def test_a_viewer_sees_no_control_that_would_be_refused(token_bench: TokenBench) -> None:
    admin, viewer, pages = token_bench.client("admin"), token_bench.tokens["viewer"], list_registered_pages()
    assert len(pages) > 15
    wrong: list[str] = []
    stands_for: dict[str, list[str]] = {}
    for stage in ("empty", "full"):
        if stage == "full":
            stands_for = fill_store(admin, token_bench.bench.home)
        there = pages if stage == "full" else [each for each in pages if "{" not in each]
        before = read_everything(admin)
        for address in [*fill_addresses(there, stands_for), *(WITH_QUERY if stage == "full" else ())]:
            for name, said in press_every_button(token_bench.bench, viewer, address):
                if CHANGES.search(name) or NEEDS.search(said):
                    wrong.append(f"{address}: {name}: {said!r}")
        after = read_everything(admin)
        assert after == before
    assert not wrong, "\n".join(wrong)


def test_an_administrator_sees_the_controls_that_a_viewer_does_not(token_bench: TokenBench) -> None:
    """Otherwise the test above would prove nothing."""
    run = token_bench.client("admin").get("/api/runs?status=stopped").data[0]["id"]
    found: dict[str, set[str]] = {}
    for role in ("viewer", "admin"):
        for address in (f"/runs/{run}", "/scenarios", "/scenarios/kept", "/settings/providers", "/suites", "/"):
            page = token_bench.bench.open(address, token=token_bench.tokens[role])
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
            page.locator("#main:not([inert])").wait_for()
            found.setdefault(role, set()).update(filter(None, list_button_names(page)))
            token_bench.bench.close()
    hidden = found["admin"] - found["viewer"]
    assert {"Resume", "Delete", "Save", "Duplicate", "Upload", "Test mine", "Delete mine"} <= hidden
    assert not {each for each in found["viewer"] if CHANGES.search(each)}


@pytest.mark.parametrize(
    "path", ["/runs/new", "/scenarios/new", "/scenarios/import", "/settings/new-provider", "/settings/tokens"]
)
def test_a_page_that_requires_a_higher_role_names_it(token_bench: TokenBench, path: str) -> None:
    page = token_bench.bench.open(path, token=token_bench.tokens["viewer"])
    expect(page.get_by_role("alert")).to_have_text(
        re.compile("This page needs the role (editor|admin), and yours is viewer")
    )
    expect(page.locator("#main").get_by_role("textbox")).to_have_count(0)
    token_bench.bench.close()


def test_the_same_controls_change_something_for_an_administrator(token_bench: TokenBench) -> None:
    """Otherwise the test above would prove nothing."""
    admin = token_bench.client("admin")
    if "mine" not in {each["id"] for each in admin.get("/api/providers").data}:
        admin.post("/api/providers", {"id": "mine", "kind": "fake"})
    before = read_everything(admin)
    pressed = dict(press_every_button(token_bench.bench, token_bench.tokens["admin"], "/settings/providers"))
    assert {"Test mine", "Delete mine"} <= pressed.keys()
    assert not NEEDS.search(" ".join(pressed.values()))
    after = read_everything(admin)
    assert after != before
    assert after["providers"] == []


def test_every_role_can_open_settings_and_only_admins_see_tokens(token_bench: TokenBench) -> None:
    for role, token in token_bench.tokens.items():
        page = token_bench.bench.open("/settings", token=token)
        expect(page.get_by_text(f"{role}, {role}")).to_be_visible()
        told = page.locator(".card").filter(has_text="Tokens")
        expect(told).to_contain_text("3 tokens in use" if role == "admin" else "This request needs the role admin")
    token_bench.bench.close()
    assert token_bench.bench.troubles == []


def test_a_socket_controls_only_pages_of_the_same_user(token_bench: TokenBench) -> None:
    """Knowing the id of another user's page does not allow joining it, pressing its buttons or uploading to it."""
    page = token_bench.bench.open("/settings/tokens", token=token_bench.tokens["admin"])
    client_id = page.evaluate("window.clientId ?? new URLSearchParams(window.socket.io.opts.query).get('client_id')")
    assert client_id
    tab_id = page.evaluate("sessionStorage.__nicegui_tab_id")
    before = read_everything(token_bench.client("admin"))
    join = (
        f"/_nicegui_ws/socket.io/?EIO=4&transport=polling&implicit_handshake=true&client_id={client_id}&tab_id={tab_id}"
        "&document_id=x&next_message_id=0"
    )
    for token in (None, token_bench.tokens["viewer"]):
        other = replace(token_bench.bench.client, token=token)
        opened = other.get(join)
        if token is None:
            assert opened.status == 401
            continue
        sid = json.loads(opened.body[1:])["sid"]
        session = f"/_nicegui_ws/socket.io/?EIO=4&transport=polling&sid={sid}"
        event = {"client_id": client_id, "id": 1, "listener_id": "x", "args": []}
        for message in ("40", f"42{json.dumps(['event', event])}", '42["event", {}]', '42["log", {"message": "no"}]'):
            assert other.call("POST", session, body=message.encode()).status == 200
        said = other.get(session).body
        assert b"44" in said, said  # the answer for a page of another user
    brought = replace(token_bench.bench.client, token=token_bench.tokens["viewer"])
    assert brought.call("POST", f"/_nicegui/client/{client_id}/upload/1", body=b"x").status == 404
    assert read_everything(token_bench.client("admin")) == before
    token_bench.bench.close()


@pytest.mark.parametrize(
    "path", ["/suites/%00", "/settings/providers/%00", "/runs/new?repeats=NaN", "/runs/new?seed=inf"]
)
def test_a_malformed_address_causes_no_server_error(token_bench: TokenBench, path: str) -> None:
    assert token_bench.client("admin").get(path).status < 500
