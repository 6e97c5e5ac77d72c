"""A server that crashes and restarts while people have its pages open."""

import re
import socket
from pathlib import Path

from playwright.sync_api import Browser, WebSocketRoute, expect

from ..api.served import start_program
from .conftest import Bench


def test_a_page_shows_a_crashed_server_and_recovers(tmp_path: Path, browser: Browser) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home = str(tmp_path / "home")
    with start_program("--port", str(port), PRAMANA_HOME=home) as first:
        bench = Bench(first.client, tmp_path, browser)
        page = bench.open("/runs", expects_errors=True, own=True)
        lost = page.locator("#popup")
        expect(lost).not_to_be_visible()
        first.kill()
        expect(lost).to_be_visible()
        expect(lost).to_contain_text("Connection lost")
    with start_program("--port", str(port), PRAMANA_HOME=home) as second:
        bench.client = second.client
        run = bench.run(models=["fake:echo"])
        expect(lost).not_to_be_visible()
        expect(page.get_by_text(run)).to_be_visible()
        bench.close()


def test_two_users_see_each_others_runs_appear(bench: Bench) -> None:
    one, other = bench.open("/runs"), bench.open("/runs")
    run = bench.run(models=["fake:echo"])
    for page in (one, other):
        expect(page.get_by_text(run)).to_be_visible()


def test_controls_are_disabled_until_the_socket_is_connected(bench: Bench) -> None:
    page = bench.open("/settings/prices", own=True)
    page.locator("#main:not([inert])").wait_for()
    held: list[WebSocketRoute] = []
    page.route_web_socket(re.compile("/_nicegui_ws/"), lambda opened: held.append(opened))  # noqa: PLW0108 - it must be a function
    page.reload(wait_until="domcontentloaded")
    page.wait_for_function("document.querySelector('#main[inert] input[aria-label=Model]')")
    page.evaluate("document.querySelector('input[aria-label=Model]').focus()")
    page.keyboard.type("gpt-5")
    assert page.evaluate("document.querySelector('#main[inert] input[aria-label=Model]').value") == ""
    held[0].connect_to_server()
    page.get_by_label("Model").fill("gpt-5")
    page.get_by_role("button", name="Look up").click()
    page.wait_for_url("**model=gpt-5")
