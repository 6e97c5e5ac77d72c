"""`pramana scenarios`: list, import, export, delete and restore scenarios of the local store or a server."""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as quoted

import click

from pramana import clock
from pramana.errors import InvalidInput, NotFound, Problem, escape_control_characters
from pramana.report import terminal
from pramana.show.cli import HelpfulGroup
from pramana.show.cli.options import SERVER_TOKEN_OPTION, OutputPath, open_local_store

if TYPE_CHECKING:
    from pramana.app.scenarios import ScenarioFilter, ScenarioView
    from pramana.app.views import ListPage
    from pramana.load.scenario import LocatedScenario
    from pramana.show.remote import ServerClient
    from pramana.store.scenarios import ImportMode, ImportResult

PROGRESS_AFTER_S = 2.0
"""Work that takes less time shows no progress."""
SCENARIOS_PER_REQUEST = 500
"""Scenarios per request to a server."""
NO_LIST_LIMIT = 10_000_000


@click.group(cls=HelpfulGroup)
def scenarios() -> None:
    """List, import, export and delete scenarios of the local store or a server."""


# ── Import ──


@scenarios.command("import")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--library", is_flag=True, help="Import the built-in scenarios too")
@click.option(
    "--mode",
    type=click.Choice(("skip", "update", "fail")),
    default="skip",
    show_default=True,
    help="If an ID exists: skip it, update it, or fail",
)
@click.option("--dry-run", is_flag=True, help="Print what would change; import nothing")
@click.option("--to", "url", metavar="URL", help="Server to import into [default: local store]")
@SERVER_TOKEN_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def import_(
    paths: tuple[Path, ...],
    *,
    library: bool,
    mode: "ImportMode",
    dry_run: bool,
    url: str | None,
    token: str | None,
    as_json: bool,
) -> int:
    """Import scenario files (.yaml, .yml); folders are searched recursively.

    All files are checked first, and either all scenarios are imported or none. Exit code: 0 on success; 2 if a file is
    not valid or, with `--mode fail`, an ID exists; 3 if the import could not be done.
    """
    from pramana.app.documents import iterate_file_documents, read_documents
    from pramana.load import BUILT_IN_SCENARIOS_FOLDER
    from pramana.load.problems import Problems

    if not paths and not library:
        raise click.UsageError("name a file or folder, or pass --library for the built-in scenarios")
    remote = _make_server_client(url, token) if url else None
    files = _list_files((*paths, *([BUILT_IN_SCENARIOS_FOLDER] if library else [])))
    problems = Problems()
    watched = _iterate_with_progress(files, "Reading", "file", len(files), quiet=as_json)
    placed = read_documents(iterate_file_documents(watched, problems), problems)
    problems.raise_errors()
    if not as_json and len(placed) > 5_000:
        click.echo(f"Importing {terminal.pluralise(len(placed), 'scenario')} …", err=True)
    done = _import_remotely(remote, files, placed, mode, dry_run) if remote else _import_locally(placed, mode, dry_run)
    if not isinstance(done, list):
        _print_import_result(done, len(files), dry_run=dry_run, as_json=as_json)
        return 0
    exist = "exists" if len(done) == 1 else "exist"
    nothing = f"{terminal.pluralise(len(done), 'id')} already {exist}, so nothing was imported; see --mode"
    if as_json:
        raise InvalidInput(nothing, done)
    for each in done:
        terminal.print_problem(each, to_stderr=True)
    click.echo(nothing, err=True)
    return 2


def _list_files(paths: Sequence[Path]) -> list[Path]:
    from pramana import load

    for path in paths:
        if path.is_file() and load.is_suite_path(path):
            raise InvalidInput(f"{path} is a suite; scenarios are .yaml or .yml files")
    found = [path for path in load.find_case_files(paths) if not load.is_suite_path(path)]
    if not found:
        raise NotFound(f"{paths[0]} contains no .yaml or .yml file")
    return found


def _import_locally(
    located_scenarios: "Sequence[LocatedScenario]", mode: "ImportMode", dry_run: bool
) -> "ImportResult | list[Problem]":
    from pramana.app.documents import import_located_scenarios
    from pramana.store.scenarios import ScenarioIdsExist

    with open_local_store() as store:
        try:
            return import_located_scenarios(store, located_scenarios, mode, dry_run=dry_run)
        except ScenarioIdsExist as error:
            return list(error.problems)


def _import_remotely(
    remote: "ServerClient",
    files: Sequence[Path],
    located_scenarios: "Sequence[LocatedScenario]",
    mode: "ImportMode",
    dry_run: bool,
) -> "ImportResult | list[Problem]":
    """Send everything in one request, which is one transaction: a single file unchanged, several as one document."""
    from pramana.load.scenario import format_scenarios
    from pramana.store.scenarios import ImportResult

    joined = len(files) > 1
    one = format_scenarios(each.scenario for each in located_scenarios).encode() if joined else files[0].read_bytes()
    query = {"mode": mode, "dryRun": "true" if dry_run else "false"}
    said = remote.send_request("POST", "/api/scenarios/import", query, body=one, media_type="application/yaml")
    answer = said.json
    if said.ok:
        data = answer["data"]
        return ImportResult(data["imported"], data["updated"], data["skipped"], [])
    details = [_locate_problem(each, located_scenarios, said.status) for each in answer.get("details", [])]
    if said.status == 409 and details:
        return details
    raise InvalidInput(f"{remote.url}: {answer.get('error')}", details)


def _locate_problem(detail: dict[str, Any], located_scenarios: "Sequence[LocatedScenario]", status: int) -> Problem:
    """Return a problem reported by the server, with its place in the local files."""
    path, message = str(detail.get("path", "")), str(detail.get("message", ""))
    index = path.removeprefix("scenarios[").partition("]")[0]
    if status == 409 and (path == "id" or index.isdigit()):
        place = int(index) if index.isdigit() else 0
        if place < len(located_scenarios):
            return located_scenarios[place].make_problem(message)
    return Problem(message, path, int(detail.get("line") or 0), int(detail.get("column") or 0))


def _print_import_result(result: "ImportResult", file_count: int, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        ids = {"imported": result.imported, "updated": result.updated, "skipped": result.skipped}
        terminal.print_json({**ids, "files": file_count, "dry_run": dry_run})
        return
    counts = [(result.imported, "imported"), (result.updated, "updated"), (result.skipped, "skipped")]
    said = ", ".join(f"{len(ids):,} {what}" for ids, what in counts if ids)
    would = "Would be: " if dry_run else ""
    click.echo(f"{would}{said} ({terminal.pluralise(file_count, 'file')})")


# ── Filters ──

_REPEATABLE_OPTION_ARGUMENTS: dict[str, Any] = {"multiple": True, "metavar": "NAME"}
_TYPES = ("task-completion", "information-retrieval", "conversation-flow")
_DIFFICULTIES = ("easy", "medium", "hard")
_FILTER_OPTIONS = (
    click.option("--type", type=click.Choice(_TYPES), multiple=True, help="Filter by type (repeatable)"),
    click.option(
        "--difficulty", type=click.Choice(_DIFFICULTIES), multiple=True, help="Filter by difficulty (repeatable)"
    ),
    click.option("--language", **_REPEATABLE_OPTION_ARGUMENTS, help="Filter by language (repeatable)"),
    click.option(
        "--tag",
        **_REPEATABLE_OPTION_ARGUMENTS,
        help="Filter by tag; any must match; `domain:` matches all tags with that prefix (repeatable)",
    ),
    click.option("--all-tags", **_REPEATABLE_OPTION_ARGUMENTS, help="Filter by tag; all must match (repeatable)"),
    click.option("--text", default="", help="Filter by text in ID, name, prompt or expected outcome"),
    click.option("--id", **_REPEATABLE_OPTION_ARGUMENTS, help="Filter by ID (repeatable)"),
)
_FROM_OPTION = click.option("--from", "url", metavar="URL", help="Server to use [default: local store]")
_IDS_ARGUMENT = click.argument("ids", nargs=-1, required=True, metavar="ID...")


def _add_filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the scenario filters to a command, which receives them as one `filters`."""

    @functools.wraps(command)
    def with_filters(*arguments: Any, **given: Any) -> Any:
        from pramana.app.scenarios import ScenarioFilter

        filters = ScenarioFilter(**{name: given.pop(name) for name in ScenarioFilter.__struct_fields__})
        return command(*arguments, filters=filters, **given)

    for option in reversed(_FILTER_OPTIONS):
        with_filters = option(with_filters)
    return with_filters


# ── List ──


@scenarios.command("list")
@_add_filter_options
@click.option("--limit", type=click.IntRange(1), default=None, metavar="N", help="Maximum number of scenarios")
@_FROM_OPTION
@SERVER_TOKEN_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def list_(*, filters: "ScenarioFilter", limit: int | None, url: str | None, token: str | None, as_json: bool) -> None:
    """List the scenarios of the local store or a server, by id."""
    from pramana.report.scenarios import render_scenarios

    found, total = (
        _list_remotely(_make_server_client(url, token), filters, limit) if url else _list_locally(filters, limit)
    )
    if as_json:
        terminal.print_json([_scenario_to_data(each) for each in found])
        return
    if not found:
        any_filter = filters != type(filters)()
        advice = "No scenario matches these filters." if any_filter else f"No scenarios yet: {_IMPORT_HINT}"
        click.echo(advice, err=True)
        return
    click.echo(render_scenarios(found, max(get_terminal_size().columns, 60)))
    if total > len(found):
        click.echo(f"… and {total - len(found):,} more", err=True)


_IMPORT_HINT = "import some with pramana scenarios import FILE"


def _list_locally(filters: "ScenarioFilter", limit: int | None) -> "ListPage[ScenarioView]":
    from pramana.app.scenarios import scenario_views

    with open_local_store() as store:
        return scenario_views(store, filters.selection(), 0, limit or NO_LIST_LIMIT)


def _list_remotely(remote: "ServerClient", filters: "ScenarioFilter", limit: int | None) -> "ListPage[ScenarioView]":
    from msgspec import convert, to_builtins

    from pramana.app.scenarios import ScenarioView
    from pramana.app.views import ListPage

    query = {name: value for name, value in to_builtins(filters).items() if value}
    found, total, size = list[ScenarioView](), 1, min(limit or SCENARIOS_PER_REQUEST, SCENARIOS_PER_REQUEST)
    while len(found) < min(total, limit or total):
        page = {"page": len(found) // size + 1, "pageSize": size}
        answer = _request_envelope(remote, "GET", "/api/scenarios", {**query, **page})
        total = answer["meta"]["total"]
        if not answer["data"]:
            break
        found += convert(answer["data"], list[ScenarioView])
    return ListPage(found[:limit], total)


def _scenario_to_data(scenario: "ScenarioView") -> dict[str, Any]:
    """Return a scenario with its field names as in files."""
    from msgspec import convert, to_builtins

    from pramana.store.scenarios import StoredScenario

    data: dict[str, Any] = to_builtins(convert(scenario, StoredScenario, from_attributes=True))
    return data


# ── Delete and restore ──


@scenarios.command()
@_IDS_ARGUMENT
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_FROM_OPTION
@SERVER_TOKEN_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def delete(ids: tuple[str, ...], *, yes: bool, url: str | None, token: str | None, as_json: bool) -> None:
    """Delete scenarios by ID; if an ID is unknown, no scenario is deleted.

    Deleted scenarios can be restored for one day: pramana scenarios restore ID. At a terminal, asks for confirmation.
    """
    from pramana.app.scenarios import delete_scenarios

    ids = tuple(dict.fromkeys(ids))
    what = f"{terminal.pluralise(len(ids), 'scenario')} of {url or 'the local store'}"
    if not yes and sys.stdin is not None and sys.stdin.isatty():
        click.confirm(f"Delete {escape_control_characters(what)}?", abort=True, err=True)
    if url:
        deleted = _delete_and_get_restore_deadlines(_make_server_client(url, token), ids)
    else:
        with open_local_store() as store:
            deleted = [(each.scenario.id, each.restorable_until) for each in delete_scenarios(store, ids)]
    if as_json:
        terminal.print_json([{"id": each, "restorable_until": until} for each, until in deleted])
        return
    click.echo(f"Deleted {', '.join(escape_control_characters(each) for each, _ in deleted)}")
    at = f" --from {url}" if url else ""
    click.echo(
        f"Restore within a day with: pramana scenarios restore {' '.join(ids)}{escape_control_characters(at)}", err=True
    )


def _delete_and_get_restore_deadlines(remote: "ServerClient", ids: Sequence[str]) -> list[tuple[str, str]]:
    for each in ids:  # so that nothing is deleted when one is unknown
        _request_envelope(remote, "GET", _make_scenario_api_path(each))
    answers = [_request_envelope(remote, "DELETE", _make_scenario_api_path(each))["data"] for each in ids]
    return [(each["scenario"]["id"], each["restorableUntil"]) for each in answers]


@scenarios.command()
@_IDS_ARGUMENT
@_FROM_OPTION
@SERVER_TOKEN_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def restore(ids: tuple[str, ...], *, url: str | None, token: str | None, as_json: bool) -> None:
    """Restore scenarios that were deleted within the last day."""
    from pramana.app.scenarios import restore_scenarios

    ids = tuple(dict.fromkeys(ids))
    if url:
        remote = _make_server_client(url, token)
        restored = [
            _request_envelope(remote, "POST", f"{_make_scenario_api_path(each)}/restore")["data"]["id"] for each in ids
        ]
    else:
        with open_local_store() as store:
            restored = [each.id for each in restore_scenarios(store, ids)]
    if as_json:
        terminal.print_json(restored)
    else:
        click.echo(f"Restored {', '.join(map(escape_control_characters, restored))}")


def _make_scenario_api_path(scenario_id: str) -> str:
    return f"/api/scenarios/{quoted(scenario_id, safe='')}"


def _request_envelope(
    remote: "ServerClient", method: str, path: str, query: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the envelope of a server's response; raise if it is an error."""
    said = remote.send_request(method, path, query)
    if said.status == 404:
        raise NotFound(f"{remote.url}: {said.json.get('error')}")
    if not said.ok:
        raise InvalidInput(f"{remote.url}: {said.json.get('error')}")
    return said.json


# ── Export ──


@scenarios.command("export")
@click.argument("path", required=False, type=OutputPath())
@_add_filter_options
@_FROM_OPTION
@SERVER_TOKEN_OPTION
def export(path: Path | None, *, filters: "ScenarioFilter", url: str | None, token: str | None) -> None:
    """Export scenarios as one YAML document to PATH [default: standard output], ready to import again."""
    text = _export_remotely(_make_server_client(url, token), filters) if url else _export_locally(filters)
    count = text.count("\n- id: ")  # no other line starts like this
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8", newline="")
    if path is not None or not count:
        where = f" to {path}" if path else ""
        click.echo(f"{terminal.pluralise(count, 'scenario')} written{where}", err=True)


def _export_locally(filters: "ScenarioFilter") -> str:
    from pramana.load.scenario import iterate_scenarios_yaml

    wanted = filters.selection()
    with open_local_store() as store:
        total = store.scenarios.read_page(wanted, 0, 1)[1]
        return "".join(
            iterate_scenarios_yaml(
                _iterate_with_progress(store.scenarios.iterate_chunks(wanted), "Writing", "scenario", total, len)
            )
        )


def _make_server_client(url: str, token: str | None) -> "ServerClient":
    from pramana.show.remote import (
        ServerClient,  # imports HTTP and TLS, which the local store does not need
    )

    return ServerClient(url, token)


def _export_remotely(remote: "ServerClient", filters: "ScenarioFilter") -> str:
    from msgspec import to_builtins

    query = {name: value for name, value in to_builtins(filters).items() if value}
    said = remote.send_request("GET", "/api/scenarios/export", query)
    if not said.ok:
        raise InvalidInput(f"{remote.url}: {said.json.get('error')}")
    return said.read_text("application/yaml")


# ── Progress ──


def _iterate_with_progress(
    items: Iterable[Any],
    activity: str,
    noun: str,
    total: int,
    count_of: Callable[[Any], int] = lambda _: 1,
    *,
    quiet: bool = False,
) -> Iterator[Any]:
    """Yield the items, and print progress now and then: on a terminal over the last line, else on a new line."""
    if quiet or sys.stderr is None:
        yield from items
        return
    terminal_there = sys.stderr.isatty()
    done, has_spoken, speaks_at = 0, False, clock.monotonic() + PROGRESS_AFTER_S
    for each in items:
        yield each
        done += count_of(each)
        if clock.monotonic() > speaks_at:
            has_spoken, speaks_at = True, clock.monotonic() + (0.2 if terminal_there else 5.0)
            said = f"{activity} {terminal.pluralise(total, noun)}: {done:,} so far"
            click.echo(f"\r{said}" if terminal_there else said, err=True, nl=not terminal_there)
    if has_spoken and terminal_there:
        click.echo(err=True)
