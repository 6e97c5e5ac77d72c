"""The frame of every page: title, navigation, user menu and theme."""

from collections.abc import Awaitable, Callable
from typing import Any

import nicegui
from nicegui import ui
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pramana.app import required_role
from pramana.report.markup import HtmlChild, SafeHtml, join_html, render_link, render_untrusted_text, tag
from pramana.show.web.kit import parts
from pramana.show.web.kit.page_context import PageContext, UseCaseRefused
from pramana.show.web.kit.style import THEME_COOKIE_NAME, render_plain_page

NAVIGATION_LINKS = (
    ("/", "Home"),
    ("/runs", "Runs"),
    ("/compare", "Compare"),
    ("/drift", "Drift"),
    ("/same", "Same"),
    ("/judges", "Judges"),
    ("/scenarios", "Scenarios"),
    ("/suites", "Suites"),
    ("/settings", "Settings"),
)
TITLES_BY_PATH: dict[str, str] = {}
"""The title of every page, by its path."""
PAGE_BUILD_TIMEOUT_S = 60.0
"""How long building a page may take."""
BuildPage = Callable[[PageContext], Awaitable[None]]


def register_page(path: str, title: str, *required_use_cases: Callable[..., Any]) -> Callable[[BuildPage], BuildPage]:
    """Register a page that is drawn within the frame; anonymous visitors are redirected to sign in.

    `required_use_cases` are the use cases without which the page is useless; a user whose role does not allow them sees
    an error.
    """

    def register(build: BuildPage) -> BuildPage:
        TITLES_BY_PATH[path] = title

        @ui.page(path, title=f"{title} · Pramana", response_timeout=PAGE_BUILD_TIMEOUT_S)
        async def serve_page(request: Request) -> Response | None:
            desk = PageContext(request)
            if desk.user.role is None:
                return RedirectResponse(desk.sign_in_url, 303)
            await desk.remember_latest_change_number()
            _add_page_frame(desk)
            with _add_content():
                try:
                    if required_use_cases and not desk.may(*required_use_cases):
                        raise _make_forbidden_error(desk, *required_use_cases)
                    await build(desk)
                except UseCaseRefused as error:
                    if error.status == 401:  # the token was revoked while the page was being built
                        return RedirectResponse(desk.sign_in_url, 303)
                    parts.add_heading(title, 1)
                    parts.add_refusal_box(error)
            return None

        return build

    return register


def _make_forbidden_error(context: PageContext, *use_cases: Callable[..., Any]) -> UseCaseRefused:
    role = next(required_role(each) for each in use_cases if not context.may(each))
    return UseCaseRefused(403, f"this page needs the role {role}, and yours is {context.user.role}", "forbidden")


def _add_content() -> ui.element:
    """Add the container of a page's content, inert until the browser is connected.

    Events before the connection are sent later, and not in their order: a button's click would arrive before the text
    typed for it.
    """
    made = ui.element("main").classes("main").props("id=main tabindex=-1 inert")
    ui.context.client.on_connect(lambda: made.props(remove="inert"))
    return made


def install_not_found_page_and_scroll_restore() -> None:
    """Install the page for unknown addresses, and restore the scroll position of every page."""
    ui.add_head_html(f"<script>{_RESTORE_SCROLL_SCRIPT}</script>", shared=True)

    @nicegui.app.exception_handler(404)
    async def not_found(request: Request, error: Exception) -> Response:
        del error
        return render_plain_page(
            request,
            "No such page",
            tag("h1", "Page not found"),
            tag("p", "The page may have been deleted, or the address is mistyped."),
            tag("p", render_link("/", "Home")),
            status=404,
        )


def add_page_heading(
    title: HtmlChild, description: HtmlChild = None, crumbs: tuple[tuple[str, str], ...] = ()
) -> ui.element:
    """Add the page heading; elements created within the returned container appear beside it, such as buttons."""
    with parts.open_box("head"):
        above = (
            tag(
                "nav",
                join_html((render_link(to, render_untrusted_text(words)) for to, words in crumbs), " / "),
                class_="crumbs",
                aria_label="Path",
            )
            if crumbs
            else None
        )
        parts.add_markup(
            join_html([above, tag("h1", title), tag("p", description, class_="quiet") if description else None])
        )
        return ui.element("div").classes("row")


def set_window_title(title: str) -> None:
    """Set the window title to what the page shows."""
    ui.page_title(f"{title[:80]} · Pramana")


def _add_page_frame(context: PageContext) -> None:
    """Start a page: apply the chosen theme, or the system's, then add the navigation."""
    ui.query(".q-page").props("role=none")  # not a landmark: it contains our header too
    ui.dark_mode(None if context.theme not in ("light", "dark") else context.theme == "dark")
    parts.add_markup(render_link("#main", "Skip to content", class_="skip"))
    with ui.element("header").classes("top"), parts.open_box("top-inner"):
        parts.add_markup(render_link("/", "Pramana", class_="brand"))
        with ui.element("nav").classes("nav").props('aria-label="Pages"'):
            parts.add_markup(join_html(_render_navigation_link(context, to, words) for to, words in NAVIGATION_LINKS))
        _add_user_menu(context)
        # A cookie keeps the choice for a year.
        switch = ui.button("Theme", color=None).props("unelevated no-caps")
        switch.classes("btn plain small").on("click", js_handler=_SWITCH_THEME_SCRIPT)


def _render_navigation_link(context: PageContext, path: str, label: str) -> SafeHtml:
    is_here = context.address == path or (path != "/" and context.address.startswith(f"{path}/"))
    return tag("a", label, href=path, aria_current="page" if is_here else None)


def _add_user_menu(context: PageContext) -> None:
    if context.user.token_id is None:
        return
    parts.add_markup(
        tag("span", render_untrusted_text(context.user.name), f", {context.user.role}", class_="small quiet")
    )
    with ui.element("form").props('method=post action="/sign-out"'):
        parts.add_markup(tag("button", "Sign out", type="submit", class_="native plain"))


_RESTORE_SCROLL_SCRIPT = """
(() => {
  const key = `pramana-scroll ${location.pathname}${location.search}`;
  addEventListener("pagehide", () => sessionStorage.setItem(key, scrollY));
  const kept = Number(sessionStorage.getItem(key));
  if (!kept || performance.getEntriesByType("navigation")[0]?.type !== "back_forward") return;
  window.pramanaScrolled = true;
  history.scrollRestoration = "manual";
  let over = false;
  for (const each of ["wheel", "keydown", "pointerdown", "touchstart"])
    addEventListener(each, () => { over = true; }, { once: true, passive: true });
  const end = performance.now() + 5000;
  const scroll = () => {
    if (over || performance.now() > end) return;
    scrollTo(0, kept);
    if (Math.abs(scrollY - kept) > 1 || performance.now() < end - 4000) requestAnimationFrame(scroll);
  };
  addEventListener("DOMContentLoaded", scroll);
})();
"""
"""Pages are drawn after they load, so the browser cannot restore the scroll position. This script does, for a second
while the page grows and then until the position exists, unless the reader scrolls first.
"""
_SWITCH_THEME_SCRIPT = f"""() => {{
  const dark = !document.body.classList.contains("body--dark");
  Quasar.Dark.set(dark);
  document.cookie = `{THEME_COOKIE_NAME}=${{dark ? "dark" : "light"}}; path=/; max-age=31536000; samesite=lax`;
}}"""
