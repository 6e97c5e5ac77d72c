"""The built-in library of scenarios, offered to whoever wants some of it in their store."""

from collections.abc import Callable

from nicegui import ui

from pramana.app.scenarios import LibraryView, import_library, list_library
from pramana.show.web.kit import parts
from pramana.show.web.kit.desk import Desk


async def library(desk: Desk) -> None:
    """Offer the files of the library: some of them, or all."""
    files = await desk.call(list_library)
    total = sum(len(each.ids) for each in files)
    ticked: set[str] = set()

    async def bring(wanted: list[str] | None) -> None:
        if wanted == []:
            parts.tell("Tick the files that you want first", "warning")
            return
        await desk.call(import_library, wanted)
        ui.navigate.to("/scenarios")

    def tick(file: str) -> Callable[[bool], None]:
        return lambda on: ticked.add(file) if on else ticked.discard(file)

    parts.heading("The built-in library")
    parts.paragraph(f"{total:,} scenarios in {len(files):,} files. What is here already stays as it is.", quiet=True)
    with parts.box("row below"):
        parts.button(f"Import all {total:,}", lambda: bring(None))
        parts.button("Import the ticked files", lambda: bring(sorted(ticked)))
    with parts.box("ticks"):
        for each in files:
            parts.tick(_label(each), change=tick(each.file))


def _label(file: LibraryView) -> str:
    """Return what a file is.

    >>> _label(LibraryView(file="multilingual/hindi.yaml", ids=("a", "b"), languages=("hi",), imported=1))
    'multilingual/hindi.yaml: 2 scenarios (hi), 1 here'
    """
    count, here = len(file.ids), file.imported
    there = "" if not here else ", all here" if here == count else f", {here:,} here"
    return f"{file.file}: {count:,} scenario{'' if count == 1 else 's'} ({', '.join(file.languages)}){there}"
