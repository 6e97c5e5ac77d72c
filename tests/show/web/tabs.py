"""Browser tabs that tests reuse: each test gets an empty tab without the cost of opening a new one.

A new browser context loads, parses and compiles every script of a page again, 2.7 seconds of processor time; a tab that
has shown the same site before needs 0.4. What a visitor can leave behind is removed when a tab is given back: cookies,
storage, permissions, the page itself and where the pointer is. Listeners, routes and scripts that a test adds to a page
cannot be removed as reliably; such a test asks for a tab of its own.
"""

from dataclasses import dataclass, field
from typing import Literal

from playwright.sync_api import Browser, BrowserContext, Error, Page, ViewportSize

MAX_IDLE = 3
"""Contexts that are kept; a test that opens more pages at once pays for the others."""


@dataclass
class Tabs:
    """The idle tabs of a browser, the most recently used one last."""

    browser: Browser
    _idle: list[Page] = field(default_factory=list)

    def take(self, width: int, theme: Literal["light", "dark"], *, own: bool = False) -> Page:
        """Return an empty tab for a new visitor; with `own`, one that is closed after use."""
        viewport: ViewportSize = {"width": width, "height": 900}
        if own or not self._idle:
            context = self.browser.new_context(viewport=viewport, color_scheme=theme)
            page = context.new_page()
        else:
            page = self._idle.pop()
            page.set_viewport_size(viewport)
            page.emulate_media(color_scheme=theme)
        # A page accepts no input before it is connected, so nothing is done before.
        page.add_locator_handler(page.locator("#main[inert]"), lambda: None)
        return page

    def give_back(self, page: Page, *, own: bool = False) -> None:
        """Empty a tab for the next visitor, or close it if that fails."""
        context = page.context
        if own or len(self._idle) >= MAX_IDLE or not _try_to_empty(page, context):
            context.close()
        else:
            self._idle.append(page)

    def close(self) -> None:
        for page in self._idle:
            page.context.close()
        self._idle.clear()


def _try_to_empty(page: Page, context: BrowserContext) -> bool:
    try:
        if page.is_closed() or context.pages != [page]:
            return False
        page.remove_locator_handler(page.locator("#main[inert]"))
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.goto("about:blank")
        page.mouse.move(-1, -1)
        context.clear_cookies()
        context.clear_permissions()
    except Error:  # a page without an origin, as after its server has stopped
        return False
    return True
