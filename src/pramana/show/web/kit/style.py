"""The design of pages: the shared colours (`report.look`) in both themes, and the classes of `report/style.css`.

Text uses system fonts: nothing is fetched. Pages use these classes and none of a framework's. Pages for anonymous
visitors are plain HTML without scripts and need no server state; every other page is an object in the server's memory
for as long as it is open.
"""

from nicegui import app, ui
from starlette.requests import Request
from starlette.responses import HTMLResponse

from pramana.report.look import DARK, LIGHT, css_variables, stylesheet
from pramana.report.markup import Child, Safe, join, tag

THEME = "pramana_theme"
"""The cookie with the chosen theme, light or dark; without it, the system's applies."""
FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#1d5f8a"/>'
    '<path d="M8 17.5l5.5 5.5L24 10" fill="none" stroke="#fff" stroke-width="3.5" stroke-linecap="round"/></svg>'
)
_THEMES = (
    f":root {{ color-scheme: light; {css_variables(LIGHT)} }}\n"
    f":root:has(body.body--dark) {{ color-scheme: dark; {css_variables(DARK)} }}\n"
)


def install_style() -> None:
    """Install the style sheet and the colours of every page."""
    ui.add_css(_THEMES + stylesheet(), shared=True)
    app.config.quasar_config["loadingBar"]["skipHijack"] = True  # an unlabelled bar, and no page needs it
    app.colors(
        primary=LIGHT["accent"],
        dark=DARK["raised"],
        dark_page=DARK["ground"],
        positive=LIGHT["passed"],
        negative=LIGHT["failed"],
        warning=LIGHT["errored"],
    )


def render_plain_page(request: Request, title: str, *content: Child, status: int = 200) -> HTMLResponse:
    """Return a page of plain markup in the same design."""
    light, dark = (
        f":root {{ color-scheme: {name}; {css_variables(of)} }}" for name, of in (("light", LIGHT), ("dark", DARK))
    )
    chosen = {"light": light, "dark": dark}.get(request.cookies.get(THEME, ""))
    themes = chosen or f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}"
    head = join(
        [
            Safe('<!doctype html>\n<html lang="en"><meta charset="utf-8">'),
            Safe('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", f"{title} · Pramana"),
            Safe(f"<style>{themes}\nbody {{ margin: 0; }}\n{stylesheet()}</style>"),
        ]
    )
    return HTMLResponse(head + tag("main", content, class_="main narrow", id="main"), status)
