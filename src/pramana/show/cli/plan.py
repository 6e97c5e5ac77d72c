"""`pramana plan`: what it takes to see a change, before anything is spent."""

from collections.abc import Callable
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pramana.errors import InvalidInput, escape_control_characters
from pramana.report import terminal
from pramana.show.cli.options import (
    CASE_OPTION_NAMES,
    JSON_OPTION,
    FiniteRange,
    GroupedCommand,
    add_selection_options,
    open_local_store,
)

if TYPE_CHECKING:
    from pramana.app.plans import DetectionPlanRequest
    from pramana.request import Selection


class ParsedText(click.ParamType[Any]):
    """A text that a function of `app.plans` parses."""

    def __init__(self, function_name: str, metavar: str) -> None:
        self._function_name, self.name = function_name, metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from pramana.app import plans

        parse: Callable[[str], Any] = getattr(plans, self._function_name)
        try:
            return parse(value) if isinstance(value, str) else value
        except InvalidInput as error:
            self.fail(f"{error}.", param, ctx)


_SHARE, _BUDGET = ParsedText("parse_share", "share"), ParsedText("parse_budget", "budget")


@click.command(
    cls=GroupedCommand,
    groups={
        "Change": "--detect --watch --pass-rate --flips --day-sd --margin --instruments --baseline-days",
        "Cases": f"--cases --tier --suite {CASE_OPTION_NAMES}",
        "Cost": "--repeat --model --judge --budget",
        "Output": "--json",
    },
    exit_codes={0: "The plan was printed", 2: "Invalid options or input files"},
    examples=(
        "pramana plan --detect 5% --pass-rate 0.9",
        "pramana plan support.jsonl --detect 5% --repeat 3 --model gpt-5 --budget 2USD",
        "pramana plan --detect 10% --cases 75 --day-sd 0.2 --model gpt-5 --budget 2USD/day",
    ),
)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--detect", required=True, type=_SHARE, metavar="SHARE", help="Loss to detect: 5%, 0.05 or '5 points'")
@click.option("--pass-rate", default="90%", show_default=True, type=_SHARE, metavar="SHARE", help="Pass rate before")
@click.option(
    "--flips", type=_SHARE, metavar="SHARE", help="Share of cases whose verdict flips by chance [default: assumed]"
)
@click.option(
    "--day-sd",
    default=0.5,
    show_default=True,
    type=FiniteRange(0, 5),
    metavar="LOGITS",
    help="Standard deviation of days on which nothing changed, in logits",
)
@click.option(
    "--margin",
    default="5%",
    show_default=True,
    type=_SHARE,
    metavar="SHARE",
    help="Loss to rule out if nothing changed",
)
@click.option(
    "--cases",
    "case_count",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Number of cases [default: chosen ones]",
)
@click.option("--tier", metavar="NAME", help="Tier of the suite [default: moderate; not with PATHS]")
@click.option("--suite", metavar="VERSION", help="Version of the suite [default: v1.0]")
@add_selection_options
@click.option("--watch", metavar="WATCH", help="Take all of this from the measured days of a watch")
@click.option(
    "--repeat",
    "repeats",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Repeats per case",
)
@click.option(
    "--model", "models", multiple=True, metavar="MODEL", help="Model to estimate tokens and cost for (repeatable)"
)
@click.option("--judge", metavar="MODEL", help="Judge model [default: each model judges itself]")
@click.option(
    "--instruments",
    default=8,
    show_default=True,
    type=click.IntRange(1, 100),
    metavar="N",
    help="Number of instruments of the watch",
)
@click.option(
    "--baseline-days",
    default=28,
    show_default=True,
    type=click.IntRange(14, 365),
    metavar="N",
    help="Days of the baseline of the watch",
)
@click.option("--budget", type=_BUDGET, metavar="AMOUNT", help="2USD, 2USD/day, 500calls or 500calls/day")
@JSON_OPTION
@click.pass_context
def plan(context: click.Context, /, paths: tuple[Path, ...], selection: "Selection", **given: Any) -> int:
    """Plan how many cases, repeats, days and calls show a change.

    Prints what one comparison of two runs takes to detect a loss of the pass rate, how soon a watch of the same cases
    would see it, and with --model the tokens and the cost. Nothing is sent. PATHS are as in `pramana run`.
    """
    if given["watch"] is not None:
        _refuse_options_beside_watch(context)
    from pramana.app.plans import make_plan_view
    from pramana.report.plans import render_plan

    options = {each.name: each.opts[0] for each in context.command.params if isinstance(each, click.Option)}
    request = _make_request(paths, selection, given)
    try:
        with open_local_store() as store:
            found = make_plan_view(store, request)
    except InvalidInput as error:
        raise error.with_paths(lambda path: options.get(path, path)) from None
    if given["as_json"]:
        terminal.print_json(terminal.views_to_plain(found))
    else:
        for line in map(escape_control_characters, render_plan(found).splitlines()):
            click.echo(_wrap_line(line, get_terminal_size().columns))
    return 0


def _refuse_options_beside_watch(context: click.Context) -> None:
    """Refuse the options whose values a watch has."""
    allowed = {"detect", "watch", "margin", "budget", "as_json"}
    for each in context.command.params:
        if each.name not in allowed and context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE:
            if each.name == "paths" and not context.params["paths"]:
                continue
            name = each.opts[0] if isinstance(each, click.Option) else "PATHS"
            raise click.UsageError(f"{name} cannot be combined with --watch: the watch has its own")


def _wrap_line(line: str, columns: int) -> str:
    """Wrap a sentence at its indentation; the lines of a table are short, and keep their columns."""
    text = line.lstrip()
    if terminal.count_columns(line) <= columns:
        return line
    indent = line[: len(line) - len(text)]
    return terminal.wrap_text(text, columns, indent, indent)


def _make_request(paths: tuple[Path, ...], selection: "Selection", given: dict[str, Any]) -> "DetectionPlanRequest":
    """Return the request that the options make; each option has the name of the field that it sets."""
    from pramana.app.plans import DEFAULT_TIER, DetectionPlanRequest
    from pramana.planning import DEFAULT_SUITE
    from pramana.request import RunRequest

    for name in ("tier", "suite"):
        if paths and given[name] is not None:
            raise click.UsageError(f"--{name} cannot be combined with PATHS: name files or a tier of a suite, not both")
    is_tier = given["tier"] is not None or given["suite"] is not None or (bool(selection) and not paths)
    run = RunRequest(
        models=given["models"],
        judge=given["judge"],
        paths=paths,
        suite=(given["suite"] or DEFAULT_SUITE) if is_tier else None,
        tier=(given["tier"] or DEFAULT_TIER) if is_tier else None,
        selection=selection,
    )
    named = {name: value for name, value in given.items() if name in DetectionPlanRequest.__struct_fields__}
    return DetectionPlanRequest(**named, run=run)
