"""How pages look: the shared colours (`report.look`) in both themes, and the classes of `report/style.css`.

Text is set in the system's own fonts: nothing is fetched. Pages use these classes and none of a framework's. Pages for
strangers are plain HTML, without a script, and nothing is kept for them on the server: every other page is an object in
memory for as long as somebody looks at it.
"""

from nicegui import app, ui
from starlette.requests import Request
from starlette.responses import HTMLResponse

from pramana.report.look import DARK, LIGHT, css_variables, stylesheet
from pramana.report.markup import Child, Safe, join, tag

THEME = "pramana_theme"
"""The cookie that says light or dark; without it, as the system has it."""
FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#1d5f8a"/>'
    '<path d="M8 17.5l5.5 5.5L24 10" fill="none" stroke="#fff" stroke-width="3.5" stroke-linecap="round"/></svg>'
)
_THEMES = (
    f":root {{ color-scheme: light; {css_variables(LIGHT)} }}\n"
    f":root:has(body.body--dark) {{ color-scheme: dark; {css_variables(DARK)} }}\n"
)


def install_style() -> None:
    """Give every page its looks."""
    ui.add_css(_THEMES + stylesheet(), shared=True)
    app.config.quasar_config["loadingBar"]["skipHijack"] = True  # a bar nobody named, for requests that no page makes
    app.colors(
        primary=LIGHT["accent"],
        dark=DARK["raised"],
        dark_page=DARK["ground"],
        positive=LIGHT["passed"],
        negative=LIGHT["failed"],
        warning=LIGHT["errored"],
    )


def render_plain_page(request: Request, title: str, *content: Child, status: int = 200) -> HTMLResponse:
    """Return a page of markup in the looks of all others."""
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
