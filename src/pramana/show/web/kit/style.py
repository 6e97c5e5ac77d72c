"""The design of pages: the shared colours (`report.look`) in both themes, and the classes of `report/style.css`.

Text uses system fonts: nothing is fetched. Pages use these classes and none of a framework's. Pages for anonymous
visitors are plain HTML without scripts and need no server state; every other page is an object in the server's memory
for as long as it is open.
"""

from nicegui import app, ui
from starlette.requests import Request
from starlette.responses import HTMLResponse

from pramana.report.look import DARK_COLOURS, LIGHT_COLOURS, format_css_variables, make_stylesheet
from pramana.report.markup import HtmlChild, SafeHtml, join_html, tag

THEME_COOKIE_NAME = "pramana_theme"
"""The cookie with the chosen theme, light or dark; without it, the system's applies."""
FAVICON_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#1d5f8a"/>'
    '<path d="M8 17.5l5.5 5.5L24 10" fill="none" stroke="#fff" stroke-width="3.5" stroke-linecap="round"/></svg>'
)
_THEME_STYLESHEET = (
    f":root {{ color-scheme: light; {format_css_variables(LIGHT_COLOURS)} }}\n"
    f":root:has(body.body--dark) {{ color-scheme: dark; {format_css_variables(DARK_COLOURS)} }}\n"
)


def install_style() -> None:
    """Install the style sheet and the colours of every page."""
    ui.add_css(_THEME_STYLESHEET + make_stylesheet(), shared=True)
    app.config.quasar_config["loadingBar"]["skipHijack"] = True  # an unlabelled bar, and no page needs it
    app.colors(
        primary=LIGHT_COLOURS["accent"],
        dark=DARK_COLOURS["raised"],
        dark_page=DARK_COLOURS["ground"],
        positive=LIGHT_COLOURS["passed"],
        negative=LIGHT_COLOURS["failed"],
        warning=LIGHT_COLOURS["errored"],
    )


def render_plain_page(
    request: Request, title: str, *content: HtmlChild, status: int = 200, is_wide: bool = False
) -> HTMLResponse:
    """Return a page of plain markup in the same design."""
    light, dark = (
        f":root {{ color-scheme: {name}; {format_css_variables(of)} }}"
        for name, of in (("light", LIGHT_COLOURS), ("dark", DARK_COLOURS))
    )
    chosen = {"light": light, "dark": dark}.get(request.cookies.get(THEME_COOKIE_NAME, ""))
    themes = chosen or f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}"
    head = join_html(
        [
            SafeHtml('<!doctype html>\n<html lang="en"><meta charset="utf-8">'),
            SafeHtml('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", f"{title} · Pramana"),
            SafeHtml(f"<style>{themes}\nbody {{ margin: 0; }}\n{make_stylesheet()}</style>"),
        ]
    )
    return HTMLResponse(head + tag("main", content, class_="main" if is_wide else "main narrow", id="main"), status)
