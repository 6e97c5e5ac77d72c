"""How pages look: the shared colours (`report.look`) in both themes, and the classes of `report/style.css`.

Text is set in the system's own fonts: nothing is fetched. Pages use these classes and none of a framework's.
"""

from nicegui import app, ui

from pramana.report.look import DARK, LIGHT, stylesheet, variables

FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#1d5f8a"/>'
    '<path d="M8 17.5l5.5 5.5L24 10" fill="none" stroke="#fff" stroke-width="3.5" stroke-linecap="round"/></svg>'
)
_THEMES = (
    f":root {{ color-scheme: light; {variables(LIGHT)} }}\n"
    f":root:has(body.body--dark) {{ color-scheme: dark; {variables(DARK)} }}\n"
)


def install() -> None:
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
