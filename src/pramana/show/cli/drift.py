"""`pramana drift`: watch a model over days, and raise an alarm with a proven false-alarm rate when it changes."""

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pramana.analyse.drift import BASELINE_DAYS
from pramana.errors import PramanaError, escape_control_characters
from pramana.report import terminal
from pramana.show.cli import HelpfulGroup
from pramana.show.cli.drift_serve import add_alert_options, make_alert_delivery, serve, test_alert
from pramana.show.cli.options import (
    CASE_OPTION_NAMES,
    JSON_OPTION,
    QUIET_OPTION,
    GroupedCommand,
    add_selection_options,
    open_local_store,
)
from pramana.show.cli.run import make_request, name_options_in_errors
from pramana.show.cli.run import run as run_command

if TYPE_CHECKING:
    from pramana.app.watches import WatchDetailView
    from pramana.bench import Progress
    from pramana.report.progress import LiveProgress
    from pramana.request import Selection
    from pramana.run.engine import Stop
    from pramana.store.store import Store
    from pramana.store.watches import Watch, WatchDay

_RUN_OPTIONS = (
    "tier", "suite", "system_file", "judges", "embedder", "scorers", "modalities", "condition", "voice", "stt",
    "repeats", "temperature", "seed", "top_p", "max_tokens", "params", "timeout_s", "concurrency",
)  # fmt: skip
"""The options of `pramana run` that a watch has too."""
_VALUES_OF_UNUSED_RUN_OPTIONS = {"max_cost_usd": None, "max_total_tokens": None, "deadline_s": None, "cache": False}
_BUDGET_RE = re.compile(r"\$?\s*(\d+(?:\.\d+)?|\.\d+)\s*(?:USD)?\s*(?:/\s*day)?", re.IGNORECASE)
EXIT_CODES = {
    0: "No change seen",
    1: "An alarm; with --fail-on notice: a notice or an alarm",
    2: "Invalid options or input files",
    3: "The day could not be measured, or another process measures it",
    4: "Cannot tell yet: the baseline is not complete, or its days resemble each other",
    130: "Interrupted; the same day is continued by the next check",
}
_EXIT_CODES_WORST_FIRST = (130, 3, 2, 1, 4, 0)


def _add_run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that a watch shares with a run, as that command defines them."""
    shared = {each.name: each for each in run_command.params}
    parameters: list[click.Parameter] = [shared[name] for name in _RUN_OPTIONS]
    vars(command).setdefault("__click_params__", []).extend(reversed(parameters))
    return command


def _parse_budget(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Parse `2USD/day`."""
    if text is None:
        return None
    match = _BUDGET_RE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise click.BadParameter(f"expected US dollars per day, such as 2USD/day, found {text!r}", param=option)
    return float(match[1])


def _parse_instruments(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(each.strip() for each in text.split(",") if each.strip())


@click.group(cls=HelpfulGroup)
def drift() -> None:
    """Watch a model over days: has it changed?"""


drift.add_command(serve)
drift.add_command(test_alert)


@drift.command(
    cls=GroupedCommand,
    groups={
        "Cases": f"--tier --suite {CASE_OPTION_NAMES}",
        "Model": "--system --judge --embedder --scorer",
        "Voice": "--modality --condition --voice --stt",
        "Sampling": "--repeat --temperature --seed --top-p --max-tokens --param",
        "Watch": "--budget --at --baseline-days --instruments --timeout --concurrency",
        "Alerts": "--webhook --webhook-secret-env --on-alert",
        "Output": "--name --note --json",
    },
    examples=(
        "pramana drift start gpt-5 --tier moderate --budget 2USD/day --at 03:00",
        "pramana drift start python:bot:reply support.jsonl --name bot",
    ),
)
@click.argument("model")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@_add_run_options
@add_selection_options
@click.option(
    "--budget",
    "budget_usd_per_day",
    callback=_parse_budget,
    metavar="USD/day",
    help="Cost limit per day, such as 2USD/day [default: no limit]",
)
@click.option("--at", metavar="HH:MM", help="When the scheduler measures, in UTC [default: any time of the day]")
@click.option(
    "--baseline-days",
    type=int,
    default=BASELINE_DAYS,
    show_default=True,
    metavar="N",
    help="Days of the baseline, at least 14",
)
@click.option(
    "--instruments",
    callback=_parse_instruments,
    metavar="LIST",
    help="What is measured, such as pass-rate,length [default: all that apply]",
)
@add_alert_options
@click.option("--name", default=None, metavar="NAME", help="Name of the watch")
@click.option("--note", default=None, metavar="TEXT", help="Note on the watch")
@JSON_OPTION
@click.pass_context
def start(context: click.Context, /, model: str, paths: tuple[Path, ...], selection: "Selection", **given: Any) -> int:
    """Start to watch MODEL on the cases in PATHS, or on a tier of the built-in suite.

    Nothing is sent yet. Each day, `pramana drift serve`, or `pramana drift check` from a scheduler such as cron, asks
    the model the same cases once. After the days of the baseline, it says whether the model has changed.
    """
    from msgspec.structs import replace

    from pramana.app.watches import start_watch
    from pramana.planning import make_plan, pull_missing_weights
    from pramana.report.watches import render_started
    from pramana.show.cli.models import pull_weights
    from pramana.watch_request import WatchRequest

    if paths and (named := [f"--{each}" for each in ("tier", "suite") if _is_given(context, each)]):
        raise click.UsageError(f"{named[0]} cannot be combined with PATHS: name files or a tier of a suite, not both")
    watched = {
        name: given[name] for name in ("budget_usd_per_day", "at", "baseline_days", "instruments", "name", "note")
    }
    alerts = (given["webhook"], given["webhook_secret_variable"], given["alert_command"])
    watched["delivery"] = make_alert_delivery(*alerts)
    options = {**given, **_VALUES_OF_UNUSED_RUN_OPTIONS, "models": (model,), "name": None, "note": None}
    request = make_request(paths, options, selection)
    with open_local_store() as store, name_options_in_errors(context):
        pull_missing_weights(make_plan(store, request), pull_weights)
        view = start_watch(store, WatchRequest(run=replace(request, cache=False), **watched))
    if given["as_json"]:
        terminal.print_json(terminal.views_to_plain(view))
        return 0
    click.echo(render_started(view))
    return 0


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


@drift.command(cls=GroupedCommand, groups={"Output": "--fail-on --quiet --json"}, exit_codes=EXIT_CODES)
@click.argument("reference", metavar="[WATCH]", required=False)
@click.option(
    "--fail-on",
    type=click.Choice(["alarm", "notice"]),
    default="alarm",
    show_default=True,
    metavar="LEVEL",
    help="Exit 1 for an alarm only, or for a notice too",
)
@QUIET_OPTION
@JSON_OPTION
def check(reference: str | None, *, fail_on: str, quiet: bool, as_json: bool) -> int:
    """Measure today's batch of WATCH now [default: of every active watch], and say whether the model has changed.

    WATCH is an ID, the beginning of an ID, or a name. A day is measured once: a second check of the same day only
    prints the state, and a check after an interruption continues the day.
    """
    with open_local_store() as store:
        chosen = store.watches.list_all(active_only=True) if reference is None else [store.watches.find(reference)]
        if not chosen:
            store.watches.find(None)  # raises with what to do
        checked = [_check_one(store, each, quiet=quiet or as_json) for each in chosen]
        codes = [_find_exit_code(each.view.level, fail_on, each.code) for each in checked]
    code = min(codes, key=_EXIT_CODES_WORST_FIRST.index)
    if as_json:
        plain = [
            {
                **terminal.views_to_plain(each.view),
                "day": each.day.day if each.day else None,
                "day_status": each.day.status if each.day else None,
                "day_reason": each.day.reason if each.day else None,
                "error": each.message or None,
                "exit_code": own,
            }
            for each, own in zip(checked, codes, strict=True)
        ]
        terminal.print_json(plain[0] if reference is not None else {"watches": plain, "exit_code": code})
        return code
    for each in checked:
        name = f"{each.view.shown_name}: " if reference is None else ""
        click.echo(terminal.wrap_text(f"{name}{each.view.sentence}", other_prefix="  "))
        if each.day is not None and each.day.status == "missing":
            click.echo(terminal.wrap_text(f"  {each.day.day} does not count: {each.day.reason}.", other_prefix="  "))
        if each.message:
            click.echo(f"pramana: {escape_control_characters(each.message)}", err=True)
    return code


class _CheckedWatch:
    """A checked watch: its state, its day, and the error that ended the day early."""

    def __init__(self, view: "WatchDetailView", day: "WatchDay | None", code: int, message: str) -> None:
        self.view, self.day, self.code, self.message = view, day, code, message


class _LiveMeasurement:
    """What shows and stops the calls of a watch."""

    def __init__(self, stop: "Stop", live: "LiveProgress") -> None:
        self.stop, self._live = stop, live

    def show_progress(self, progress: "Progress") -> None:
        """Show the progress of a run that did not exist when the display was opened."""
        self._live.set_expected_count(progress.run.expected)
        self._live(progress)


@contextmanager
def _open_live_measurement(watch: "Watch", action: str, *, quiet: bool) -> "Iterator[_LiveMeasurement]":
    from pramana.bench import reduced_garbage_collection
    from pramana.report.progress import LiveProgress
    from pramana.run.engine import Stop
    from pramana.show.cli.signals import SignalHandler

    stop = Stop()
    heading = f"{terminal.fit_to_width(watch.shown_name, 40)}: {action}"
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    with (
        LiveProgress(0, quiet=quiet, heading=heading, failures=is_terminal) as live,
        SignalHandler(stop),
        reduced_garbage_collection(),
    ):
        yield _LiveMeasurement(stop, live)


def _check_one(store: "Store", watch: "Watch", *, quiet: bool) -> _CheckedWatch:
    from pramana.app.watches import read_watch
    from pramana.watching import measure_day

    day, code, message = None, 0, ""
    try:
        with _open_live_measurement(watch, "measuring today", quiet=quiet) as live:
            measurement = asyncio.run(measure_day(store, watch, on_progress=live.show_progress, stop=live.stop))
        day = measurement.day
        if day.status == "measuring":
            was_interrupted = measurement.run is not None and measurement.run.status == "interrupted"
            code = 130 if was_interrupted else 3
            message = str(
                measurement.error or (measurement.run and measurement.run.reason) or "the day is not complete"
            )
    except PramanaError as error:
        code, message = error.exit_code, str(error)
        day = store.watches.find_day(watch, _today())
    return _CheckedWatch(read_watch(store, watch), day, code, message)


def _today() -> str:
    from pramana.store.watches import find_today

    return find_today()


def _find_exit_code(level: str, fail_on: str, code: int) -> int:
    if code:
        return code
    if level == "alarm" or (level == "notice" and fail_on == "notice"):
        return 1
    return 4 if level in ("collecting", "cannot_tell") else 0


@drift.command()
@click.argument("reference", metavar="[WATCH]", required=False)
@click.option(
    "--replies",
    "examples",
    type=click.IntRange(0, 1_000),
    default=3,
    show_default=True,
    metavar="N",
    help="After a change: cases shown with both replies",
)
@JSON_OPTION
def show(reference: str | None, *, examples: int, as_json: bool) -> None:
    """Show WATCH [default: the only active one]: its state, what is proven, what it could see, and what changed."""
    from pramana.app.watch_reports import report_watch
    from pramana.report.watches import render_report

    with open_local_store() as store:
        view = report_watch(store, store.watches.find(reference), examples)
    if as_json:
        plain = terminal.views_to_plain(view)
        terminal.print_json({**plain.pop("watch"), **plain})
        return
    click.echo(render_report(view))


@drift.command(
    cls=GroupedCommand,
    groups={"Limits": "--budget", "Output": "--quiet --json"},
    exit_codes={0: "The batch is complete", 3: "It could not be completed", 130: "Interrupted"},
)
@click.argument("reference", metavar="[WATCH]", required=False)
@click.option(
    "--budget",
    "budget_usd",
    callback=_parse_budget,
    metavar="USD",
    help="Cost limit of this batch [default: as much as a day]",
)
@QUIET_OPTION
@JSON_OPTION
def confirm(reference: str | None, *, budget_usd: float | None, quiet: bool, as_json: bool) -> int:
    """Ask the cases of WATCH once more, now, and show the result beside the statistic, which does not use it."""
    from pramana.app.watch_reports import report_watch
    from pramana.report.watches import render_confirmation
    from pramana.watching import confirm_watch

    with open_local_store() as store:
        watch = store.watches.find(reference)
        with _open_live_measurement(watch, "confirming", quiet=quiet or as_json) as live:
            run = asyncio.run(
                confirm_watch(store, watch, budget_usd=budget_usd, on_progress=live.show_progress, stop=live.stop)
            )
        view = report_watch(store, watch, 0)
    code = 0 if run.status == "finished" else 130 if run.status == "interrupted" else 3
    if as_json:
        terminal.print_json({**terminal.views_to_plain(view.confirmations[-1]), "exit_code": code})
        return code
    click.echo(render_confirmation(view.confirmations[-1]))
    if code:
        click.echo(f"pramana: {live.stop.error or run.reason}", err=True)
    return code


@drift.command("list")
@click.option("--active", is_flag=True, help="Only watches that were not stopped")
@JSON_OPTION
def list_(*, active: bool, as_json: bool) -> None:
    """List watches, newest first, each with its state."""
    from pramana.app.watches import list_watches
    from pramana.report.watches import render_list

    with open_local_store() as store:
        views = list_watches(store, active_only=active)
    if as_json:
        terminal.print_json(terminal.views_to_plain(views))
        return
    click.echo(render_list(views) if views else "No watches yet. Start the first one: pramana drift start MODEL")


@drift.command()
@click.argument("reference", metavar="[WATCH]", required=False)
@click.option("--note", default=None, metavar="TEXT", help="Why the change is accepted")
@JSON_OPTION
def accept(reference: str | None, *, note: str | None, as_json: bool) -> None:
    """Accept the model as it is now: a new baseline begins with the next day."""
    from pramana.app.watches import read_watch

    with open_local_store() as store:
        watch = store.watches.find(reference)
        period = store.watches.accept(watch, note)
        view = read_watch(store, watch)
    if as_json:
        terminal.print_json(terminal.views_to_plain(view))
        return
    click.echo(f"Watch {view.shown_name}: a new baseline of {watch.baseline_days} days begins on {period.begins}.")


@drift.command()
@click.argument("reference", metavar="[WATCH]", required=False)
@JSON_OPTION
def stop(reference: str | None, *, as_json: bool) -> None:
    """Stop WATCH; its days and runs are kept."""
    from pramana.app.watches import read_watch

    with open_local_store() as store:
        watch = store.watches.stop(store.watches.find(reference))
        view = read_watch(store, watch)
    if as_json:
        terminal.print_json(terminal.views_to_plain(view))
        return
    click.echo(f"Watch {view.shown_name} is stopped; its {view.measured_days} days are kept.")
