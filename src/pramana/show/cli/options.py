"""What several commands share: grouped help, option types, output files, case filters and the local store."""

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pramana import settings
from pramana.errors import Hint, PramanaError

if TYPE_CHECKING:
    from pramana.report.exporters import Exporter
    from pramana.request import Selection
    from pramana.store.store import Store


_Command = Callable[..., Any]


class GroupedCommand(click.Command):
    """A command whose help lists options in groups, then exit codes and examples.

    `groups` maps a heading to the options below it, separated by spaces; an option in no group is listed in the last
    one. A range is left to the error message, so that an option takes one line.
    """

    def __init__(
        self,
        *arguments: Any,
        groups: Mapping[str, str],
        exit_codes: Mapping[int, str] | None = None,
        examples: tuple[str, ...] = (),
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.groups = {title: names.split() for title, names in groups.items()}
        self.exit_codes = exit_codes or {}
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options group by group, all with the same width of the first column."""
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in self.groups}
        group_of = {name: title for title, names in self.groups.items() for name in names}
        last = next(reversed(self.groups))
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)):
                rows[group_of.get(option.opts[-1], last)].append((record[0], _make_option_help(option, ctx)))
        width = max(len(names) for group in rows.values() for names, _ in group)
        for title, group in rows.items():
            with formatter.section(title):
                formatter.write_dl([(names.ljust(width), text) for names, text in group])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes and the examples."""
        del ctx
        if self.exit_codes:
            with formatter.section("Exit codes"):
                formatter.write_dl([(f"{code:<3}", meaning) for code, meaning in self.exit_codes.items()])
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def _make_option_help(option: click.Option, context: click.Context) -> str:
    """Return the help of an option with its default, without its range."""
    extra = option.get_help_extra(context)
    default = f"[default: {extra['default']}]" if "default" in extra else ""
    required = "[required]" if option.required else ""
    return " ".join(filter(None, (option.help, default, required)))


class FiniteRange(click.FloatRange):
    """A number in a range. Floats that no bound would limit (nan, inf) are refused."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


POSITIVE_FLOAT = FiniteRange(min=0, min_open=True)


class NumberOrNone(click.ParamType[Any]):
    """A limit, or `none`, which removes the limit of a resumed run."""

    def __init__(self, limit: click.ParamType[Any]) -> None:
        self._limit, self.name = limit, limit.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return None if value == "none" else self._limit.convert(value, param, ctx)


class OutputPath(click.Path):
    """A path to an output file. Opened at once as a test, so that replies already paid for are not lost."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        there = os.path.lexists(path)
        if there and not path.is_file():  # a pipe or a device: opening it would have an effect
            return path
        try:
            path.open("a", encoding="utf-8").close()
        except OSError as error:
            advice = "" if path.parent.exists() else f"; create the folder {os.fspath(path.parent)!r} first"
            self.fail(f"{os.fspath(path)!r} cannot be written: {error.strerror}{advice}.", param, ctx)
        if not there:
            path.unlink()
        return path


def choose_exporter(output: Path | None, format_name: str | None = None) -> "Exporter":
    """Return the export format of a name, else of a file's extension; JSON if there is neither.

    >>> path = Path("report.xml")
    >>> choose_exporter(path).name, choose_exporter(path, "md").name, choose_exporter(None).name
    ('junit', 'markdown', 'json')
    """
    from pramana.report.exporters import find_exporter, find_exporter_for_path

    if format_name is None and output and output.suffix:
        return find_exporter_for_path(output)
    return find_exporter(format_name or "json")


SERVER_TOKEN_OPTION = click.option(
    "--token",
    metavar="TOKEN",
    callback=lambda _, __, value: value or settings.read_variable("PRAMANA_TOKEN"),
    help="Token for that server [default: PRAMANA_TOKEN]",
)


def open_local_store() -> "closing[Store]":
    """Return the store as a context manager that closes it however the command ends."""
    from pramana.store import open_store

    return closing(open_store(settings.database_url()))


CONCURRENCY_OPTION = click.option(
    "--concurrency",
    default=32,
    show_default=True,
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Concurrent requests per provider",
)
TIMEOUT_OPTION = click.option(
    "--timeout",
    "timeout_s",
    default=120.0,
    show_default=True,
    type=POSITIVE_FLOAT,
    metavar="SECONDS",
    help="Time limit per request",
)
QUIET_OPTION = click.option("--quiet", is_flag=True, help="Print no progress, only the summary")
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON")


def add_scoring_options(judge_default_note: str, embedder_default_note: str) -> Callable[[_Command], _Command]:
    """Add the options that say what scores replies; the notes describe the defaults."""
    return _add_options(
        click.option(
            "--judge",
            "judges",
            multiple=True,
            metavar="MODEL",
            help=f"Judge model, repeatable [default: {judge_default_note}]",
        ),
        click.option(
            "--embedder",
            metavar="MODEL",
            help=f"Embedding model, or local [default: {embedder_default_note}]",
        ),
        click.option(
            "--scorer",
            "scorers",
            multiple=True,
            metavar="NAME",
            help="Scorer to add, or python:MODULE:FUNCTION (repeatable)",
        ),
    )


def add_cost_limit_options(
    wrap_limit_type: Callable[[click.ParamType[Any]], click.ParamType[Any]] = lambda plain: plain,
) -> Callable[[_Command], _Command]:
    """Add the limits on cost and tokens; `wrap_limit_type` makes their types from the plain ones, such as `OrNone`."""
    return _add_options(
        click.option(
            "--max-cost", "max_cost_usd", type=wrap_limit_type(POSITIVE_FLOAT), metavar="USD", help="Cost limit (USD)"
        ),
        click.option(
            "--max-total-tokens",
            type=wrap_limit_type(click.IntRange(1)),
            metavar="N",
            help="Token limit, input and output",
        ),
    )


def _add_options(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds options to a command in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_CASE_FILTER_OPTIONS = (
    click.option("--category", "categories", multiple=True, metavar="NAME", help="Filter by category (repeatable)"),
    click.option("--type", "types", multiple=True, metavar="NAME", help="Filter by scenario type (repeatable)"),
    click.option(
        "--difficulty", "difficulties", multiple=True, metavar="LEVEL", help="Filter by difficulty (repeatable)"
    ),
    click.option(
        "--language", "languages", multiple=True, metavar="CODE", help="Filter by scenario language (repeatable)"
    ),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Filter by tag; any must match (repeatable)"),
    click.option(
        "--all-tags", "all_tags", multiple=True, metavar="TAG", help="Filter by tag; all must match (repeatable)"
    ),
    click.option("--id", "ids", multiple=True, metavar="ID", help="Filter by case ID (repeatable)"),
    click.option("--text", default="", metavar="TEXT", help="Filter by text in ID, name, prompt or expected outcome"),
    click.option("--limit", type=click.IntRange(1), default=None, metavar="N", help="Maximum number of cases"),
)
CASE_OPTION_NAMES = "--category --type --difficulty --language --tag --all-tags --id --text --limit"
"""The case filters, as a group in a command's help."""


class _SelectionAsTyped(NamedTuple):
    """A selection whose hints say `--type` where the user typed it: a scenario's type is stored as its category."""

    selection: "Selection"
    types: Sequence[str]

    def __format__(self, words: str) -> str:
        text = format(self.selection, words)
        for each in self.types:
            text = text.replace(f"--category {each}", f"--type {each}")
        return text


def add_selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the case filters to a command, which receives them as one `selection`."""

    @functools.wraps(command)
    def run_with_selection(*arguments: Any, **given: Any) -> Any:
        from pramana.request import Selection

        types = given.pop("types")
        given["categories"] += types
        selection = Selection(**{name: given.pop(name) for name in Selection.__struct_fields__})
        try:
            return command(*arguments, selection=selection, **given)
        except PramanaError as error:
            if types and error.hint and isinstance(error.hint.about, Selection):
                error.hint = Hint(error.hint.key, _SelectionAsTyped(error.hint.about, types))
            raise

    return _add_options(*_CASE_FILTER_OPTIONS)(run_with_selection)
