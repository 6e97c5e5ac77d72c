"""Fields for names that people type: the browser suggests what is known, and anything else may be typed too."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from nicegui import ui

from pramana.report.figures import printable
from pramana.report.markup import foreign
from pramana.show.web.kit import parts


def suggest(made: Any, known: Iterable[str]) -> ui.element:
    """Have the browser suggest texts while somebody fills in a field; return what can be given to `suggested`."""
    found = ui.element("datalist")
    found.props["id"] = f"{made.html_id}-datalist"  # where NiceGUI's field looks for one
    suggested(found, known)
    return found


def suggested(found: ui.element, known: Iterable[str]) -> None:
    """Suggest other texts from now on."""
    found.clear()
    with found:
        for each in dict.fromkeys(known):
            ui.element("option").props["value"] = each


class Names:
    """Several names, typed one after another; each is shown, and can be taken away again."""

    def __init__(
        self, what: str, names: Iterable[str], changed: Callable[[], Awaitable[None]], known: Iterable[str] = ()
    ) -> None:
        self.names = list(dict.fromkeys(names))
        self._changed = changed
        with parts.box("stack"):
            self._field = parts.field(f"Add a {what}", hint="Enter adds it, and you can add another.")
            # The browser says that it changed on Enter, when one of its suggestions was taken, and when it is left.
            self._field.on("change", lambda event: parts.guarded(self._add)(event.args))
            self._known = suggest(self._field, known)
            self._list = ui.element("ul").classes("chosen")
            self._list.props["aria-label"] = f"Each {what} that was added"
        self._show()

    @property
    def field(self) -> Any:
        """Where they are typed."""
        return self._field

    def suggest(self, known: Iterable[str]) -> None:
        """Suggest other names from now on."""
        suggested(self._known, known)

    async def _add(self, typed: Any) -> None:
        name = str(typed or "").strip()
        self._field.set_value("")
        if name and name not in self.names:
            self.names.append(name)
            self._show()
            await self._changed()

    async def _remove(self, name: str) -> None:
        self.names.remove(name)
        self._show()
        self._field.run_method("focus")  # the button that had the focus is gone
        await self._changed()

    def _show(self) -> None:
        def remover(name: str) -> Callable[[], Awaitable[None]]:
            return lambda: self._remove(name)

        self._list.clear()
        with self._list:
            for name in self.names:
                with ui.element("li"):
                    parts.show(foreign(name, 300))
                    parts.button("Remove", remover(name), "plain", small=True, label=f"Remove {printable(name)[:200]}")
        self._list.set_visibility(bool(self.names))
