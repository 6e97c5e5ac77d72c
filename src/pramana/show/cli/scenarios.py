"""`pramana scenarios`: YAML files into a store or a server, and back."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pramana import clock
from pramana.errors import InvalidInput, NotFound, Problem
from pramana.report import terminal
from pramana.show.cli import HelpfulGroup
from pramana.show.cli.options import SERVER_TOKEN, Output, local_store

if TYPE_CHECKING:
    from pramana.app.scenarios import ScenarioFilter
    from pramana.load.scenario import Located
    from pramana.show.remote import Remote
    from pramana.store.scenarios import Imported, Mode

SPEAKS_AFTER_S = 2.0
"""Work that is done sooner is not worth a word on the way."""


@click.group(cls=HelpfulGroup)
def scenarios() -> None:
    """Import and export the scenarios of a store or a server."""


# ── Import ──


@scenarios.command("import")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--library", is_flag=True, help="The built-in scenarios too.")
@click.option(
    "--mode",
    type=click.Choice(("skip", "update", "fail")),
    default="skip",
    show_default=True,
    help="What becomes of ids that exist: leave them, replace them, or refuse everything.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--to", "url", metavar="URL", help="A server [default: the local store]")
@SERVER_TOKEN
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def import_(
    paths: tuple[Path, ...],
    *,
    library: bool,
    mode: "Mode",
    dry_run: bool,
    url: str | None,
    token: str | None,
    as_json: bool,
) -> int:
    """Import scenario files (.yaml, .yml); folders are searched to the bottom.

    All files are checked before anything is changed, and all scenarios are imported or none. Exit code: 0 when that is
    done, 2 when a file is not valid or, with `--mode fail`, an id exists already, 3 when it could not be done.
    """
    from pramana.app.documents import open_files, read_all
    from pramana.load import LIBRARY
    from pramana.load.problems import Problems

    if not paths and not library:
        raise click.UsageError("name a file or a folder, or --library for the built-in scenarios")
    remote = _remote(url, token) if url else None
    files = _files((*paths, *([LIBRARY] if library else [])))
    problems = Problems()
    watched = _watched(files, "Reading", "file", len(files), quiet=as_json)
    placed = read_all(open_files(watched, problems), problems)
    problems.raise_errors()
    if not as_json and len(placed) > 5_000:
        click.echo(f"Importing {terminal.counted(len(placed), 'scenario')} …", err=True)
    done = _send(remote, files, placed, mode, dry_run) if remote else _keep(placed, mode, dry_run)
    if not isinstance(done, list):
        _say_done(done, len(files), dry_run=dry_run, as_json=as_json)
        return 0
    exist = "exists" if len(done) == 1 else "exist"
    nothing = f"{terminal.counted(len(done), 'id')} {exist} already, so nothing was imported; see --mode"
    if as_json:
        raise InvalidInput(nothing, done)
    for each in done:
        terminal.print_problem(each, err=True)
    click.echo(nothing, err=True)
    return 2


def _files(paths: Sequence[Path]) -> list[Path]:
    from pramana import load

    for path in paths:
        if path.is_file() and load.is_suite(path):
            raise InvalidInput(f"{path} is a suite; scenarios are .yaml or .yml files")
    found = [path for path in load.find_files(paths) if not load.is_suite(path)]
    if not found:
        raise NotFound(f"{paths[0]} holds no .yaml or .yml file")
    return found


def _keep(placed: "Sequence[Located]", mode: "Mode", dry_run: bool) -> "Imported | list[Problem]":
    from pramana.app.documents import keep
    from pramana.store.scenarios import IdsExist

    with local_store() as store:
        try:
            return keep(store, placed, mode, dry_run=dry_run)
        except IdsExist as error:
            return list(error.problems)


def _send(
    remote: "Remote",
    files: Sequence[Path],
    placed: "Sequence[Located]",
    mode: "Mode",
    dry_run: bool,
) -> "Imported | list[Problem]":
    """Send everything by one request, which is one transaction there: a file as it is, several as one document."""
    from pramana.load.scenario import write_scenarios
    from pramana.store.scenarios import Imported

    joined = len(files) > 1
    one = write_scenarios(each.scenario for each in placed).encode() if joined else files[0].read_bytes()
    query = {"mode": mode, "dryRun": "true" if dry_run else "false"}
    said = remote.ask("POST", "/api/scenarios/import", query, body=one, kind="application/yaml")
    answer = said.json
    if said.ok:
        data = answer["data"]
        return Imported(data["imported"], data["updated"], data["skipped"], [])
    details = [_problem(each, placed, said.status) for each in answer.get("details", [])]
    if said.status == 409 and details:
        return details
    raise InvalidInput(f"{remote.url}: {answer.get('error')}", details)


def _problem(detail: dict[str, Any], placed: "Sequence[Located]", status: int) -> Problem:
    """Return what a server found wrong, at its place in our files."""
    path, message = str(detail.get("path", "")), str(detail.get("message", ""))
    index = path.removeprefix("scenarios[").partition("]")[0]
    if status == 409 and (path == "id" or index.isdigit()):
        place = int(index) if index.isdigit() else 0
        if place < len(placed):
            return placed[place].problem(message)
    return Problem(message, path, int(detail.get("line") or 0), int(detail.get("column") or 0))


def _say_done(done: "Imported", files: int, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        ids = {"imported": done.imported, "updated": done.updated, "skipped": done.skipped}
        terminal.print_json({**ids, "files": files, "dry_run": dry_run})
        return
    counts = [(done.imported, "imported"), (done.updated, "updated"), (done.skipped, "skipped")]
    said = ", ".join(f"{len(ids):,} {what}" for ids, what in counts if ids)
    would = "Would be: " if dry_run else ""
    click.echo(f"{would}{said} ({terminal.counted(files, 'file')})")


# ── Export ──

_many: dict[str, Any] = {"multiple": True, "metavar": "NAME"}
_TYPES = ("task-completion", "information-retrieval", "conversation-flow")
_DIFFICULTIES = ("easy", "medium", "hard")


@scenarios.command("export")
@click.argument("path", required=False, type=Output())
@click.option("--type", type=click.Choice(_TYPES), multiple=True, help="Only these types.")
@click.option("--difficulty", type=click.Choice(_DIFFICULTIES), multiple=True, help="Only these.")
@click.option("--language", **_many, help="Only in these languages.")
@click.option("--tag", **_many, help="Only with one of these tags; `domain:` stands for its branch.")
@click.option("--all-tags", **_many, help="Only with all of these tags.")
@click.option("--text", default="", help="Only with this text in id, name, prompt or expected outcome.")
@click.option("--id", **_many, help="Only these.")
@click.option("--from", "url", metavar="URL", help="A server [default: the local store]")
@SERVER_TOKEN
def export(path: Path | None, *, url: str | None, token: str | None, **wanted: Any) -> None:
    """Write scenarios as one YAML document to PATH, or to standard output; importing it gives the same."""
    from pramana.app.scenarios import ScenarioFilter

    filters = ScenarioFilter(**wanted)
    text = _fetched(_remote(url, token), filters) if url else _written(filters)
    count = text.count("\n- id: ")  # nothing else begins a line so
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8", newline="")
    if path is not None or not count:
        where = f" to {path}" if path else ""
        click.echo(f"{terminal.counted(count, 'scenario')} written{where}", err=True)


def _written(filters: "ScenarioFilter") -> str:
    from pramana.load.scenario import write_yaml

    wanted = filters.selection()
    with local_store() as store:
        total = store.scenarios.page(wanted, 0, 1)[1]
        return "".join(write_yaml(_watched(store.scenarios.chunks(wanted), "Writing", "scenario", total, len)))


def _remote(url: str, token: str | None) -> "Remote":
    from pramana.show.remote import Remote  # it brings HTTP and TLS along, which work on a local store does not need

    return Remote(url, token)


def _fetched(remote: "Remote", filters: "ScenarioFilter") -> str:
    from msgspec import to_builtins

    query = {name: value for name, value in to_builtins(filters).items() if value}
    said = remote.ask("GET", "/api/scenarios/export", query)
    if not said.ok:
        raise InvalidInput(f"{remote.url}: {said.json.get('error')}")
    return said.text_of("application/yaml")


# ── On the way ──


def _watched(
    things: Iterable[Any],
    doing: str,
    noun: str,
    total: int,
    size: Callable[[Any], int] = lambda _: 1,
    *,
    quiet: bool = False,
) -> Iterator[Any]:
    """Hand things on, and say now and then how many: on a terminal over the last line, else on a line of its own."""
    if quiet or sys.stderr is None:
        yield from things
        return
    terminal_there = sys.stderr.isatty()
    done, has_spoken, speaks_at = 0, False, clock.monotonic() + SPEAKS_AFTER_S
    for each in things:
        yield each
        done += size(each)
        if clock.monotonic() > speaks_at:
            has_spoken, speaks_at = True, clock.monotonic() + (0.2 if terminal_there else 5.0)
            said = f"{doing} {terminal.counted(total, noun)}: {done:,} so far"
            click.echo(f"\r{said}" if terminal_there else said, err=True, nl=not terminal_there)
    if has_spoken and terminal_there:
        click.echo(err=True)
