"""Files that a command writes when its work is done: refused before the work begins when they cannot be written."""

import os
from pathlib import Path
from typing import Any

import click


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
            self.fail(f"{os.fspath(path)!r} cannot be written: {error.strerror}.", param, ctx)
        if not there:
            path.unlink()
        return path
