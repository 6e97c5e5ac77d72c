"""`pramana same`: are two endpoints the same model? Calls to both in pairs, in random order, until it is proven."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pramana import settings
from pramana.report import terminal
from pramana.show.cli.options import (
    CASE_OPTION_NAMES,
    JSON_OPTION,
    POSITIVE_FLOAT,
    QUIET_OPTION,
    FiniteRange,
    GroupedCommand,
    add_selection_options,
    open_local_store,
)

if TYPE_CHECKING:
    from pramana.app.sameness import SameView
    from pramana.model import Run
    from pramana.request import Selection
    from pramana.sameness import SamenessRequest


class UsdAmount(click.ParamType[float]):
    """An amount of dollars: `1`, `0.50`, `1USD` or `$1`."""

    name = "amount"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip().removeprefix("$")
        number = text[:-3].strip() if text[-3:].upper() == "USD" else text
        return float(POSITIVE_FLOAT.convert(number, param, ctx))


@click.command(
    cls=GroupedCommand,
    groups={
        "Prompts": f"--prompts --suite --tier {CASE_OPTION_NAMES}",
        "Sampling": "--temperature --max-tokens --system --seed",
        "Limits": "--calls --budget --max-total-tokens --deadline --timeout",
        "Output": "--show --name --note --quiet --json",
    },
    exit_codes={
        0: "No difference seen",
        1: "Different",
        2: "Invalid options or input files",
        3: "The test could not start",
        4: "Could not be tested: too few pairs of calls were answered",
        130: "Interrupted; the answer so far is printed",
    },
    examples=(
        "pramana same gpt-5 gpt-5-2025-08-07",
        "pramana same openai:gpt-5-mini http://localhost:8000/v1#gpt-5-mini --budget 1USD",
        "pramana same --show latest",
    ),
)
@click.argument("models", nargs=-1, metavar="MODEL_A MODEL_B [PATH]...")
@click.option(
    "--prompts",
    type=click.IntRange(0, 100),
    default=5,
    show_default=True,
    metavar="N",
    help="Maximum number of prompts that are not border prompts",
)
@click.option("--suite", metavar="VERSION", help="Suite of the prompts that are not border prompts [default: v1.0]")
@click.option("--tier", metavar="NAME", help="Tier of that suite [default: cheap]")
@add_selection_options
@click.option(
    "--temperature",
    type=FiniteRange(0, 100),
    default=1.0,
    show_default=True,
    metavar="NUMBER",
    help="Temperature of border prompts",
)
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Max output tokens of other prompts")
@click.option(
    "--system",
    "system_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File with the system prompt of both",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), metavar="N", help="Draws prompts and orders [default: new]")
@click.option(
    "--calls", type=click.IntRange(40), default=400, show_default=True, metavar="N", help="Maximum number of calls"
)
@click.option("--budget", type=UsdAmount(), metavar="USD", help="Cost limit, such as 1USD")
@click.option("--max-total-tokens", type=click.IntRange(1), metavar="N", help="Token limit, input and output")
@click.option("--deadline", "deadline_s", type=POSITIVE_FLOAT, metavar="SECONDS", help="Time limit of the test")
@click.option(
    "--timeout",
    "timeout_s",
    default=120.0,
    show_default=True,
    type=POSITIVE_FLOAT,
    metavar="SECONDS",
    help="Time limit per request",
)
@click.option("--show", "shown_run", metavar="RUN", help="Show a stored test, or a run of two models; send nothing")
@click.option("--name", default=None, metavar="NAME", help="Name of the run, shown in lists")
@click.option("--note", default=None, metavar="TEXT", help="Note on the run")
@QUIET_OPTION
@JSON_OPTION
def same(models: tuple[str, ...], selection: "Selection", **given: Any) -> int:
    """Are two endpoints the same model?

    Sends the same prompts to MODEL_A and MODEL_B, in pairs and in random order, and ends as soon as a difference is
    proven: the odds against chance are then over 1,000 to 1. Most prompts are border prompts, whose one-word answer
    varies; the others are a few prompts of a suite, or of the files named by PATH.

    The test is stored as a run. With --show, MODEL_A and MODEL_B choose two models of that run.
    """
    if given["shown_run"] is not None:
        return _show_stored(given["shown_run"], models, as_json=given["as_json"])
    if len(models) < 2:
        raise click.UsageError("name two models: pramana same MODEL_A MODEL_B")
    return _start_test(_make_request(models, selection, given), given)


def _make_request(models: tuple[str, ...], selection: "Selection", given: dict[str, Any]) -> "SamenessRequest":
    from pramana.load import parse_case_path
    from pramana.request import Limits
    from pramana.sameness import MAX_CONCURRENT_PAIRS, SamenessRequest
    from pramana.show.cli.run import read_system_prompt

    paths = tuple(parse_case_path(each) for each in models[2:])
    if paths and (given["suite"] or given["tier"]):
        raise click.UsageError("--suite and --tier cannot be combined with PATH: name files or a tier, not both")
    return SamenessRequest(
        models=models[:2],
        paths=paths,
        selection=selection,
        suite=given["suite"] or ("v1.0" if given["tier"] else None),
        tier=given["tier"] or ("cheap" if given["suite"] else None),
        calls=given["calls"],
        prompts=given["prompts"],
        temperature=given["temperature"],
        max_tokens=given["max_tokens"],
        system_prompt=read_system_prompt(given["system_file"]),
        seed=given["seed"],
        name=given["name"],
        note=given["note"],
        limits=Limits(
            max_cost_usd=given["budget"],
            max_total_tokens=given["max_total_tokens"],
            deadline_s=given["deadline_s"],
            timeout_s=given["timeout_s"],
            concurrency=MAX_CONCURRENT_PAIRS,
        ),
    )


def _show_stored(reference: str, models: tuple[str, ...], *, as_json: bool) -> int:
    from pramana.app.sameness import same_view

    if len(models) not in (0, 2):
        raise click.UsageError("with --show, name two models of the run, or none")
    with open_local_store() as store:
        run = store.runs.find(reference)
        view = same_view(store, run, (models[0], models[1]) if models else None)
    return _print_view(view, run, as_json=as_json)


def _start_test(request: "SamenessRequest", given: dict[str, Any]) -> int:
    from pramana.app.sameness import same_view
    from pramana.bench import reduced_garbage_collection, run_sync
    from pramana.errors import BudgetSpent
    from pramana.planning import pull_missing_weights
    from pramana.report.sameness import PairProgress
    from pramana.run.engine import INTERRUPTED_BY_USER_REASON, Stop
    from pramana.sameness import create_sameness_run
    from pramana.show.cli.models import pull_weights
    from pramana.show.cli.signals import SignalHandler
    from pramana.store import open_store

    quiet, store = given["quiet"] or given["as_json"], open_store(settings.database_url())
    try:
        begun = create_sameness_run(store, request)
        pull_missing_weights(begun.plan, pull_weights)
        stop, heading = Stop(), f"Run {begun.id}: {begun.expected:,} calls at most"
        with (
            PairProgress(begun.expected, quiet=quiet, heading=heading, failures=sys.stderr.isatty()) as live,
            SignalHandler(stop),
            reduced_garbage_collection(),
        ):
            try:
                ended = run_sync(store, begun, request.limits, live, stop)
            except KeyboardInterrupt:
                stop(INTERRUPTED_BY_USER_REASON)
                ended = store.runs.read(begun.id)
        code = _print_view(same_view(store, ended), ended, as_json=given["as_json"])
        if stop.error is not None:
            click.echo(f"pramana: {stop.error}", err=True)
            if code == 4 and not isinstance(stop.error, BudgetSpent):
                return stop.error.exit_code
        return 130 if stop.reason == INTERRUPTED_BY_USER_REASON else code
    finally:
        store.close()


def _print_view(view: "SameView", run: "Run", *, as_json: bool) -> int:
    from pramana.report.resuming import format_resume_advice
    from pramana.report.sameness import render_test

    if as_json:
        terminal.print_json({**terminal.views_to_plain(view), "exit_code": view.exit_code})
    else:
        can_resume = run.plan.pairing is not None and run.status in ("interrupted", "stopped", "cancelled")
        click.echo(render_test(view, format_resume_advice(run) if can_resume else ""))
    return view.exit_code
