"""What several commands share: numbers, files to write, the filters that select cases, and the local store."""

import functools
import math
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pramana import settings

if TYPE_CHECKING:
    from pramana.report.exporters import Exporter
    from pramana.store.store import Store


class Finite(click.FloatRange):
    """A number in a range; what counts as a float and is no number (nan, inf) is refused: no bound would hold it."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


POSITIVE = Finite(min=0, min_open=True)


class Output(click.Path):
    """A path to a file that will be written. It is tried at once: what was asked and paid for must not end nowhere."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        there = os.path.lexists(path)
        if there and not path.is_file():  # a pipe or a device: to open it is to begin
            return path
        try:
            path.open("a", encoding="utf-8").close()
        except OSError as error:
            advice = "" if path.parent.exists() else f"; create the folder {os.fspath(path.parent)!r} first"
            self.fail(f"{os.fspath(path)!r} cannot be written: {error.strerror}{advice}.", param, ctx)
        if not there:
            path.unlink()
        return path


def exporter_for(output: Path | None, name: str | None = None) -> "Exporter":
    """Return the export format of a name, else of a file's ending; JSON where there is neither.

    >>> exporter_for(Path("report.xml")).name, exporter_for(Path("report.xml"), "md").name, exporter_for(None).name
    ('junit', 'markdown', 'json')
    """
    from pramana.report.exporters import exporter_of, find_exporter

    if name is None and output and output.suffix:
        return exporter_of(output)
    return find_exporter(name or "json")


SERVER_TOKEN = click.option(
    "--token",
    metavar="T",
    callback=lambda _, __, value: value or settings.variable("PRAMANA_TOKEN"),
    help="For that server [default: PRAMANA_TOKEN]",
)


def local_store() -> "closing[Store]":
    """Return the store, to be entered as a context: it is closed however the command ends."""
    from pramana.store import open_store

    return closing(open_store(settings.database_url()))


_many: dict[str, Any] = {"multiple": True, "metavar": "NAME"}
_FILTERS = (
    click.option("--category", "categories", **_many, help="Only these categories."),
    click.option("--type", "types", **_many, help="Only these types of scenario."),
    click.option("--tag", "tags", **_many, help="Only with one of these tags; `domain:` stands for its branch."),
    click.option("--all-tags", "all_tags", **_many, help="Only with all of these tags."),
    click.option("--difficulty", "difficulties", **_many, help="Only these."),
    click.option("--language", "languages", **_many, help="Only scenarios in these languages."),
    click.option("--id", "ids", **_many, help="Only these cases."),
    click.option("--text", default="", help="Only with this text in id, name, prompt or expected outcome."),
    click.option("--limit", type=click.IntRange(1), default=None, metavar="N", help="At most so many cases."),
)


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the filters; it gets them as one `selection`."""

    @functools.wraps(command)
    def with_selection(*arguments: Any, **given: Any) -> Any:
        from pramana.request import Selection

        given["categories"] += given.pop("types")
        selection = Selection(**{name: given.pop(name) for name in Selection.__struct_fields__})
        return command(*arguments, selection=selection, **given)

    for option in reversed(_FILTERS):
        with_selection = option(with_selection)
    return with_selection
