"""A workbench in a real browser: `pramana serve` as a process, and Chromium to open its pages."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, expect, sync_playwright

from ... import chromium
from ..api.served import Client
from .tabs import Tabs
from .workbench import workbench

WIDE, NARROW = 1600, 360
EACH_VIEW = pytest.mark.parametrize(
    ("width", "theme"),
    [
        (WIDE, "light"),
        (NARROW, "dark"),
        pytest.param(WIDE, "dark", marks=pytest.mark.slow),
        pytest.param(NARROW, "light", marks=pytest.mark.slow),
    ],
)
"""Each width and each theme in CI; every combination by `make slow`."""
expect.set_options(timeout=30_000)  # two cores shared with other tests may be slow


@dataclass
class Bench:
    """A server, its data folder, and a browser to open its pages."""

    client: Client
    home: Path
    browser: Browser
    troubles: list[str] = field(default_factory=list)
    _opened: list[Callable[[], None]] = field(default_factory=list)
    """What closes each page."""

    @property
    def url(self) -> str:
        return self.client.url

    def open(
        self,
        path: str,
        *,
        width: int = WIDE,
        theme: Literal["light", "dark"] = "light",
        token: str | None = None,
        expects_errors: bool = False,
        own: bool = False,
    ) -> Page:
        """Open a page as a new visitor; an error on it or a request to another host fails the test.

        A test that adds listeners, routes or scripts to a page needs its own tab (`own=True`).
        """
        tabs = TABS[self.browser]
        page = tabs.take(width, theme, own=own)
        if token:
            session = create_session(self.client, token)
            page.context.add_cookies([{"name": "pramana_session", "value": session, "url": self.url, "httpOnly": True}])
        host = urlsplit(self.url).netloc

        def on_page_error(error: Error) -> None:
            self.troubles.append(f"{path}: {error}")

        def on_console_message(message: ConsoleMessage) -> None:
            if message.type == "error":
                self.troubles.append(f"{path}: {message.text}")

        def on_request(request: Request) -> None:
            if urlsplit(request.url).netloc not in (host, ""):
                self.troubles.append(f"{path} asks {request.url}")

        def close() -> None:
            page.remove_listener("request", on_request)
            if not expects_errors:
                page.remove_listener("pageerror", on_page_error)
                page.remove_listener("console", on_console_message)
            tabs.give_back(page, own=own)

        page.on("request", on_request)
        if not expects_errors:
            page.on("pageerror", on_page_error)
            page.on("console", on_console_message)
        self._opened.append(close)
        page.goto(self.url + path)
        page.locator("#main").wait_for()
        return page

    def run(self, wait: bool = True, **wanted: Any) -> str:
        """Start a run through the API, and wait for its end; return its id."""
        body = {"suite": "v1.0", "tier": "cheap", "models": ["fake"], **wanted}
        made = str(self.client.post("/api/runs", body).data["id"])
        if wait:
            self.wait_for_run(made)
        return made

    def wait_for_run(self, run_id: str) -> None:
        until = time.monotonic() + 120
        while (found := self.client.get(f"/api/runs/{run_id}?summary=false").data)["status"] in ("queued", "running"):
            assert time.monotonic() < until, found
            time.sleep(0.1)

    def close(self) -> None:
        """Close every page that is open."""
        while self._opened:
            self._opened.pop()()


def create_session(client: Client, token: str) -> str:
    """Return the session cookie value for a token; for an invalid token, a made-up value."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = client.post("/sign-in", body=urlencode({"token": token}).encode(), headers=form)
    found = re.search(r"pramana_session=([\w-]+)", answer.headers.get("set-cookie", ""))
    return found[1] if found else token


TABS: dict[Browser, Tabs] = {}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium for the tests of a module; while Playwright drives it, no other event loop can run in this thread."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=chromium.find_executable(), args=["--no-sandbox", "--disable-gpu"]
        )
        TABS[found] = Tabs(found)
        yield found
        TABS.pop(found).close()
        found.close()


@pytest.fixture(scope="module")
def module_bench(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Bench]:
    """One server for the tests of a module."""
    home = tmp_path_factory.mktemp("home")
    with workbench(PRAMANA_HOME=str(home)) as client:
        yield Bench(client, home, browser)


@pytest.fixture
def bench(module_bench: Bench) -> Iterator[Bench]:
    """The server of the module; its pages close with the test, and an error on any page fails it."""
    yield module_bench
    module_bench.close()
    troubles, module_bench.troubles = module_bench.troubles, []
    assert not troubles, troubles


SETTLED = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  for (let still = 0; still < 2; still++) {
    await frame(), await frame();
    const moving = document.getAnimations().filter(
      each => each.playState === "running" && each.effect?.getComputedTiming().endTime < Infinity
    );
    if (moving.length) still = -1;
    await Promise.allSettled(moving.map(each => each.finished));
  }
}"""
"""Colours fade in, and text that is half there has half its contrast: wait for whatever moves and comes to an end."""


AXE = """axe.run({
  resultTypes: ["violations"],
  selectors: false,
  preload: {assets: ["media"], timeout: 10000},
}).then(all => all.violations)"""
"""Every rule that axe runs unless told otherwise. None of them reads the style sheets that it would fetch again, and
nobody here reads the selectors that it would look for: together half of its time."""


@pytest.fixture
def axe() -> Callable[[Page], None]:
    """Assert that axe-core finds nothing serious on a page."""
    from axe_playwright_python.base import AXE_SCRIPT

    def check(page: Page) -> None:
        page.locator("#main:not([inert])").wait_for()
        page.evaluate(SETTLED)
        if not page.evaluate("'axe' in window"):
            page.evaluate(AXE_SCRIPT)
        found = page.evaluate(AXE)
        told = [
            f"{each['id']} ({each['impact']}): {each['help']}: "
            + "; ".join(node["html"][:160] for node in each["nodes"][:3])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert not told, "\n".join(told)

    return check


def assert_no_sideways_scroll(page: Page) -> None:
    """Assert that a page does not scroll sideways."""
    over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over <= 0, f"{page.url} is {over} px too wide"
