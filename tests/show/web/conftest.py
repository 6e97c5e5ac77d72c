"""A workbench that people could use: `pramana serve` as a process, and Chromium to look at it."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, expect, sync_playwright

from ..api.served import Client, program

WIDE, NARROW = 1600, 360
expect.set_options(timeout=30_000)  # two cores that run other tests beside may be slow


@dataclass
class Bench:
    """A server, its data folder, and who looks at it."""

    client: Client
    home: Path
    browser: Browser
    troubles: list[str] = field(default_factory=list)
    _pages: list[Page] = field(default_factory=list)

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
    ) -> Page:
        """Open a page as a new visitor; whatever goes wrong in it, or asks another host, fails the test."""
        context = self.browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        if token:
            context.add_cookies([{"name": "pramana_token", "value": token, "url": self.url, "httpOnly": True}])
        page = context.new_page()
        self._pages.append(page)
        host = urlsplit(self.url).netloc

        def broke(error: Error) -> None:
            self.troubles.append(f"{path}: {error}")

        def said(message: ConsoleMessage) -> None:
            if message.type == "error":
                self.troubles.append(f"{path}: {message.text}")

        def asked(request: Request) -> None:
            if urlsplit(request.url).netloc not in (host, ""):
                self.troubles.append(f"{path} asks {request.url}")

        page.on("request", asked)
        if not expects_errors:
            page.on("pageerror", broke)
            page.on("console", said)
        # A page takes nothing before it is connected; nothing here is done to it before.
        page.add_locator_handler(page.locator("#main[inert]"), lambda: None)
        page.goto(self.url + path)
        page.locator("#main").wait_for()
        return page

    def run(self, wait: bool = True, **wanted: Any) -> str:
        """Start a run through the API, and wait for its end; return its id."""
        body = {"suite": "v1.0", "tier": "cheap", "models": ["fake"], **wanted}
        made = self.client.post("/api/runs", body).data
        until = time.monotonic() + 120
        while wait and (found := self.client.get(f"/api/runs/{made['id']}?summary=false").data)["status"] in (
            "queued",
            "running",
        ):
            assert time.monotonic() < until, found
            time.sleep(0.1)
        return str(made["id"])

    def close(self) -> None:
        for page in self._pages:
            page.context.close()
        self._pages.clear()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "Chromium is needed: install chromium"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Bench]:
    """One server for the tests of a module."""
    home = tmp_path_factory.mktemp("home")
    with program(PRAMANA_HOME=str(home)) as started:
        yield Bench(started.client, home, browser)


@pytest.fixture
def bench(served: Bench) -> Iterator[Bench]:
    """The server of the module; pages close with the test, and none may have had trouble."""
    yield served
    served.close()
    troubles, served.troubles = served.troubles, []
    assert not troubles, troubles


@pytest.fixture
def axe() -> Callable[[Page], None]:
    """Assert that axe-core finds nothing serious on a page."""
    from axe_playwright_python.sync_playwright import Axe

    def check(page: Page) -> None:
        page.wait_for_timeout(300)  # colours fade in, and text that is half there has half its contrast
        found = Axe().run(page).response["violations"]
        told = [
            f"{each['id']} ({each['impact']}): {each['help']}: "
            + "; ".join(node["html"][:160] for node in each["nodes"][:3])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert not told, "\n".join(told)

    return check


def no_sideways(page: Page) -> None:
    """Assert that a page does not scroll sideways."""
    over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over <= 0, f"{page.url} is {over} px too wide"
