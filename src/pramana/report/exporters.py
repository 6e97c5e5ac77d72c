"""Export formats: a name or a file extension in, the exporter that writes a run in that format out.

`@exporter` turns a function into an exporter. Built-in and installed formats use the same registry. Nothing here reads
a store.
"""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import copymode
from typing import IO, TYPE_CHECKING, Any

from msgspec import Struct

from pramana.errors import BrokenPlugin, InvalidInput, PramanaError, describe_exception, describe_value
from pramana.model import Case, Result, Run
from pramana.plugins import exporters

if TYPE_CHECKING:
    from pramana.app.views import ResultDetailView

FORMAT_ALIASES = {"xml": "junit", "md": "markdown"}
"""Alternative names of formats, by file extension."""
CaseResultPairs = Iterable[tuple[Case, Result]]
ExportFunction = Callable[[Run, "Iterator[ResultDetailView]", Any], None]
"""Writes a run and its results, one by one, to a file open for text or for bytes."""


class Exporter(Struct, frozen=True):
    """An export format for runs."""

    name: str
    ending: str
    """The file extension, such as `.xlsx`."""
    write: Callable[..., None]
    """Called with the run, pairs of a case and its result, and an open file."""
    binary: bool = False
    """Whether the file is open for bytes instead of text."""
    links_recordings: bool = False
    """Whether `write` also takes the paths of recordings."""
    write_several: Callable[..., None] | None = None
    """Called with pairs of a run and its results, and an open file; None if a file can hold only one run."""


def exporter(name: str, *, ending: str, binary: bool = False) -> Callable[[ExportFunction], Exporter]:
    """Turn a function into an export format; it is called with the run, its results and an open file.

    >>> @exporter("ids", ending=".ids")
    ... def ids(run, results, out):
    ...     for result in results:
    ...         print(result.case_id, file=out)
    >>> ids.name, ids.ending, ids.binary
    ('ids', '.ids', False)
    """
    texts: tuple[Any, Any] = (name, ending)
    if not all(isinstance(each, str) for each in texts) or not name.strip():
        raise InvalidInput(
            f'the name and the ending of an export format are text, such as "xlsx" and ".xlsx"; found '
            f"{describe_value(name)} and {describe_value(ending)}"
        )
    if not re.fullmatch(r"\.[^/\\\0]+", ending):
        raise InvalidInput(
            f'the ending of an export format begins with a dot, such as ".xlsx"; found {describe_value(ending)}'
        )

    def make(function: ExportFunction) -> Exporter:
        if not callable(function):
            raise InvalidInput(f"an export format is made from a function, found {describe_value(function)}")
        return Exporter(name, ending.lower(), partial(_call_exporter, name, function), binary)

    return make


def _call_exporter(name: str, function: ExportFunction, run: Run, results: CaseResultPairs, out: IO[Any]) -> None:
    from pramana.app.runs import result_detail_view

    views = (
        result_detail_view(number, case, result, run.plan.system_prompt)
        for number, (case, result) in enumerate(results, start=1)
    )
    try:
        function(run, views, out)
    except (PramanaError, OSError):
        raise
    except Exception as error:  # a third party's function may raise anything
        raise BrokenPlugin(
            f'the export format "{name}" could not write the run: {describe_exception(error)}'
        ) from error


def find_exporter(name: str) -> Exporter:
    """Return the export format with a name; `xml` means junit, and `md` means markdown."""
    name = FORMAT_ALIASES.get(name, name)
    found = exporters.load(name)
    if not isinstance(found, Exporter):
        kind = type(found).__name__
        raise BrokenPlugin(f'the export format "{name}" is a {kind}, not an Exporter; use @pramana.exporter')
    if found.name != name:
        raise BrokenPlugin(f'the export format registered as "{name}" has the other name "{found.name}"')
    return found


def find_exporter_for_path(path: Path) -> Exporter:
    """Return the export format for a file's extension; raise `InvalidInput` if there is none.

    >>> find_exporter_for_path(Path("report.HTML")).name
    'html'
    """
    known = []
    for name in _iterate_format_names():
        if found := _find_usable_exporter(name):
            if found.ending == path.suffix.lower():
                return found
            known.append(found.ending)
    ending = f'unknown file ending "{path.suffix}"' if path.suffix else "the file name has no ending"
    raise InvalidInput(f"{path.name}: {ending}; use {', '.join(known[:-1])} or {known[-1]}")


def _iterate_format_names() -> Iterator[str]:
    """Yield the names of all formats, built-in ones first, so that an installed one cannot take their extensions."""
    yield from exporters.builtin
    yield from (name for name in exporters.names() if name not in exporters.builtin)


def _find_usable_exporter(name: str) -> Exporter | None:
    try:
        return find_exporter(name)
    except BrokenPlugin:  # a broken exporter must not block the others
        return None


def write_file(
    exporter_: Exporter,
    path: Path,
    run: Run,
    results: CaseResultPairs,
    find_recording_path: Callable[[Case, Result], str | None] | None = None,
) -> None:
    """Write a run to a file. An existing file is replaced only once the new one is complete."""
    with _open_output(exporter_, path) as out:
        write_run(exporter_, run, results, out, find_recording_path)


def write_runs_file(exporter_: Exporter, path: Path, runs: Iterable[tuple[Run, CaseResultPairs]]) -> None:
    """Write several runs to one file, as `write_file` does; raise `InvalidInput` if the format holds only one run."""
    write = get_multi_run_writer(exporter_)
    with _open_output(exporter_, path) as out:
        write(runs, out)


def get_multi_run_writer(exporter_: Exporter) -> Callable[[Iterable[tuple[Run, CaseResultPairs]], IO[Any]], None]:
    """Return the function that writes several runs; raise `InvalidInput` if the format holds only one run."""
    if exporter_.write_several is None:
        able = [name for name in exporters.builtin if find_exporter(name).write_several]
        raise InvalidInput(
            f"{exporter_.name} files hold one run each; export each run to its own file, or use "
            f"{', '.join(able[:-1])} or {able[-1]}"
        )
    return exporter_.write_several


@contextmanager
def _open_output(exporter_: Exporter, path: Path) -> Iterator[IO[Any]]:
    with _replace_atomically(path) as unfinished:
        opened: IO[Any] = (
            unfinished.open("wb") if exporter_.binary else unfinished.open("w", encoding="utf-8", newline="")
        )
        with opened as out:
            yield out


@contextmanager
def _replace_atomically(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces `path` at the end, or is removed on an exception.

    Anything but a regular file, such as `/dev/stdout`, is written directly.
    """
    path = path.resolve()  # keep a symbolic link and replace its target
    if path.exists() and not path.is_file():
        yield path
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        yield unfinished
        if path.exists():
            copymode(path, unfinished)
        unfinished.replace(path)
    except OSError as error:
        if error.filename == str(unfinished):
            error.filename = str(path)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


def write_run(
    exporter_: Exporter,
    run: Run,
    results: CaseResultPairs,
    out: IO[Any],
    find_recording_path: Callable[[Case, Result], str | None] | None = None,
) -> None:
    """Write a run to an open file."""
    if exporter_.links_recordings:
        exporter_.write(run, results, out, find_recording_path)
    else:
        exporter_.write(run, results, out)
