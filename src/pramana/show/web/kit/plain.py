"""Pages for strangers: plain HTML, without a script, and with nothing kept for them on the server.

Every other page is an object in memory for as long as somebody looks at it, which is no price to pay for people whom
nobody knows.
"""

from starlette.requests import Request
from starlette.responses import HTMLResponse

from pramana.report.look import DARK, LIGHT, stylesheet, variables
from pramana.report.markup import Child, Safe, join, tag

THEME = "pramana_theme"
"""The cookie that says light or dark; without it, as the system has it."""


def plain(request: Request, title: str, *content: Child, status: int = 200) -> HTMLResponse:
    """Return a page of markup in the looks of all others."""
    light, dark = (
        f":root {{ color-scheme: {name}; {variables(of)} }}" for name, of in (("light", LIGHT), ("dark", DARK))
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
