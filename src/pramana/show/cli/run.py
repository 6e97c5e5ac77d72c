"""`pramana run`: send cases to models, check every reply, store every result."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pramana import settings
from pramana.errors import EngineMissing, InvalidInput, NotFound, PramanaError, Problem, escape_control_characters
from pramana.model import Run
from pramana.report import terminal
from pramana.show.cli.options import (
    CASE_OPTION_NAMES,
    CONCURRENCY_OPTION,
    JSON_OPTION,
    POSITIVE_FLOAT,
    QUIET_OPTION,
    TIMEOUT_OPTION,
    FiniteRange,
    GroupedCommand,
    NumberOrNone,
    OutputPath,
    add_cost_limit_options,
    add_scoring_options,
    add_selection_options,
    choose_exporter,
    open_local_store,
)

if TYPE_CHECKING:
    from pramana.request import Limits, RunRequest, Selection
    from pramana.run.engine import Stop
    from pramana.show.cli.baseline import Baseline
    from pramana.store.store import Store

_OPTIONS_ALLOWED_WITH_RESUME = {
    "cache",
    "fail_under",
    "confidence",
    "baseline",
    "fail_on",
    "margin",
    "output",
    "id_file",
    "resume",
    "quiet",
    "as_json",
}
"""The options that, like the limits, may differ when a run is resumed; every other option belongs to the plan."""


@click.command(
    cls=GroupedCommand,
    groups={
        "Cases": f"--tier --suite {CASE_OPTION_NAMES} --resume",
        "Models": "--model --system --judge --embedder --scorer",
        "Voice": "--modality --condition --voice --stt",
        "Sampling": "--repeat --temperature --seed --top-p --max-tokens --param",
        "Limits": "--max-cost --max-total-tokens --deadline --timeout --concurrency",
        "Output": "--name --note --output --id-file --dry-run --cache --quiet --json",
        "Gates": "--fail-under --confidence --baseline --fail-on --margin",
    },
    exit_codes={
        0: "No case errored; with --fail-under: every model reached it",
        1: "With --fail-under: a model is below it; with --baseline: a regression",
        2: "Invalid options or input files",
        3: "A case errored or was not run, or the run could not start",
        4: "With --fail-under or --baseline: too few verdicts or cases to decide",
        130: "Interrupted (press Ctrl-C again to stop at once)",
    },
    examples=(
        "pramana run",
        "pramana run support.jsonl --model gpt-5 --judge gpt-5-mini --max-cost 2",
        "pramana run support.jsonl --model python:bot:reply --repeat 3 --fail-under 0.9",
    ),
)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--tier", metavar="NAME", help="Tier of the suite [default: cheap; not with PATHS]")
@click.option("--suite", default="v1.0", show_default=True, metavar="VERSION", help="Version of the suite")
@add_selection_options
@click.option("--resume", metavar="RUN", help="Resume a run that did not finish")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="MODEL",
    help="Model or python:MOD:FUNC (repeatable) [default: local]",
)
@click.option(
    "--system",
    "system_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="System prompt",
)
@add_scoring_options(judge_default_note="the model itself", embedder_default_note="MiniLM, embedded")
@click.option(
    "--modality",
    "modalities",
    metavar="LIST",
    callback=lambda _, __, value: None if value is None else tuple(value.split(",")),
    help="Send cases as text, voice, noisy [default: by model]",
)
@click.option("--condition", metavar="LIST", help="Sound effects, such as noise=10dB,phone,loss=5%")
@click.option(
    "--voice",
    type=click.Choice(("espeak", "piper")),
    default="espeak",
    show_default=True,
    metavar="NAME",
    help="Caller's voice: espeak or piper",
)
@click.option("--stt", metavar="MODEL", help="Speech-to-text model to transcribe the replies")
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
    "--temperature",
    default=0.0,
    show_default=True,
    type=FiniteRange(min=0),
    metavar="NUMBER",
    help="Sampling temperature",
)
@click.option("--seed", default=42, show_default=True, type=int, metavar="N", help="Random seed")
@click.option("--top-p", type=FiniteRange(0, 1), metavar="SHARE", help="Nucleus sampling [default: not sent]")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Max output tokens per reply")
@click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", help="Other model parameter, as JSON or text (repeatable)"
)
@add_cost_limit_options(NumberOrNone)
@click.option(
    "--deadline", "deadline_s", type=NumberOrNone(POSITIVE_FLOAT), metavar="SECONDS", help="Time limit for the run"
)
@TIMEOUT_OPTION
@CONCURRENCY_OPTION
@click.option("--name", default=None, metavar="NAME", help="Name of the run, shown in lists")
@click.option("--note", default=None, metavar="TEXT", help="Note on the run")
@click.option(
    "--fail-under",
    type=FiniteRange(0, 1),
    metavar="SHARE",
    help="Exit 1 if a model's pass rate is below this, e.g. 0.9",
)
@click.option(
    "--confidence",
    type=FiniteRange(0.5, 1, max_open=True),
    metavar="SHARE",
    help="Confidence of --fail-under, such as 0.95",
)
@click.option("--baseline", metavar="RUN", help="Also compare with a run (ID, name or results.json)")
@click.option(
    "--fail-on",
    type=click.Choice(["regression", "inconclusive"]),
    metavar="VERDICT",
    help="With --baseline: regression [default] or inconclusive",
)
@click.option(
    "--margin",
    type=FiniteRange(0, 100),
    metavar="POINTS",
    help="With --baseline: acceptable loss [default: 5]",
)
@click.option(
    "--output", type=OutputPath(), metavar="FILE", help="Also write results: .json .csv .xml (JUnit) .md .html"
)
@click.option("--id-file", type=OutputPath(), metavar="FILE", help="Write the run ID to this file")
@click.option("--dry-run", is_flag=True, help="Only estimate calls, tokens and cost; send nothing")
@click.option("--cache", is_flag=True, help="Reuse cached replies to identical requests")
@QUIET_OPTION
@JSON_OPTION
@click.pass_context
def run(context: click.Context, /, paths: tuple[Path, ...], selection: "Selection", **option_values: Any) -> int:
    """Test models on the cases in PATHS: suites, scenarios, or folders of them.

    PATHS may also be `library:` (the built-in scenarios), `store:` (all scenarios of the store) or `store:ID`. Without
    PATHS, runs a tier of the built-in suite. Without --model, tests the small embedded model. When a limit is reached,
    no new requests are sent; those in flight are finished and paid for.

    """
    from pramana.bench import reduced_garbage_collection, run_sync
    from pramana.planning import pull_missing_weights
    from pramana.report.progress import LiveProgress
    from pramana.run.asking import ReplyCache
    from pramana.run.engine import Stop
    from pramana.show.cli.baseline import find_baseline
    from pramana.show.cli.signals import SignalHandler
    from pramana.store import open_store

    _check_option_conflicts(context, paths, option_values)
    if option_values["output"]:
        choose_exporter(option_values["output"])  # refuses an unknown file extension before anything is sent
    request, limits = make_request(paths, option_values, selection), None
    if option_values["dry_run"]:
        return _print_estimate(context, request, as_json=option_values["as_json"])
    quiet = option_values["quiet"] or option_values["as_json"]
    store, begun = open_store(settings.database_url()), None
    try:
        baseline = find_baseline(store, option_values)
        begun = _create_or_find_run(context, store, request, option_values, baseline)
        limits = None if option_values["resume"] is None else _merge_resumed_limits(context, begun)
        if option_values["id_file"]:
            option_values["id_file"].write_text(f"{begun.id}\n", encoding="utf-8")
        pull_missing_weights(begun.plan, _pull_weights)
        cache = ReplyCache(settings.data_folder() / "cache") if request.cache else None
        if cache and not option_values["quiet"]:
            _print_never_cached_note(begun)
        if option_values["resume"] is None and not option_values["quiet"]:
            _print_judge_notes(store, begun)
        suite = terminal.fit_to_width(begun.plan.suite, 40)
        heading = f"Run {begun.id}: {suite}, {begun.expected - begun.stored:,} to run"
        stop, counts = Stop(), store.results.count_outcomes(begun.id) if begun.stored else None
        with (
            LiveProgress(begun.expected, counts, quiet=quiet, heading=heading, failures=_is_stderr_terminal()) as live,
            SignalHandler(stop),
            reduced_garbage_collection(),
        ):
            try:
                ended = run_sync(store, begun, limits or request.limits, live, stop, cache=cache)
            except PramanaError:
                _delete_id_file_if_unstarted(store, begun, option_values["id_file"])
                raise
        store.release_connections()  # frees some MB of the writing connection for the summary
        return _report_run(store, ended, stop, option_values, baseline)
    except KeyboardInterrupt:
        if begun:
            _record_interrupted(store, begun)
        raise
    finally:
        store.close()


def _create_or_find_run(
    context: click.Context,
    store: "Store",
    request: "RunRequest",
    option_values: dict[str, Any],
    baseline: "Baseline | None",
) -> Run:
    """Return the new run, or the one to resume, once all options are known to fit it."""
    from pramana.planning import create_run

    if option_values["resume"] is None:
        _refuse_lone_options(option_values)
        quiet = option_values["quiet"] or option_values["as_json"]
        try:
            with name_options_in_errors(context):
                run = create_run(store, request, warn=None if quiet else _print_warnings)
        except EngineMissing as error:
            raise EngineMissing(f"{error}; or choose another model: --model fake") from None
    else:
        run = store.runs.find(option_values["resume"])
        _refuse_lone_options(option_values)
    if baseline:
        _refuse_other_cases(store, run, baseline)
    return run


def _refuse_other_cases(store: "Store", run: Run, baseline: "Baseline") -> None:
    """Raise an error if the baseline has other cases or models; delete a run that has not begun."""
    try:
        baseline.refuse_other_cases(store, run)
    except PramanaError:
        if not run.stored and run.attempts == 0:
            store.runs.delete(run.id)
        raise


def _is_stderr_terminal() -> bool:
    """Return whether to show failures as they happen; in a log, only the summary at the end lists them."""
    return sys.stderr is not None and sys.stderr.isatty()


def _print_warnings(warnings: Sequence[Problem]) -> None:
    from dataclasses import replace

    terminal.print_problems([replace(each, source="") for each in warnings], fold_warnings=True, to_stderr=True)


def _print_never_cached_note(run: Run) -> None:
    from pramana.run.accounts import find_uncached_models

    if names := find_uncached_models(run.plan):
        models = ", ".join(terminal.fit_to_width(each, 60) for each in names)
        click.echo(f"Note: --cache has no effect on {models}: functions and commands are never cached.", err=True)


def _print_judge_notes(store: "Store", run: Run) -> None:
    """Print which cases no model can judge, and which models judge their own replies."""
    from pramana.planning import forecast_run_judging
    from pramana.report.estimate import make_self_judging_sentence

    judges = forecast_run_judging(store, run)
    lines = [f"Warning: {each} (--judge MODEL)." for each in judges.warnings]
    if judges.self_judged_models:
        lines.append(f"Note: {make_self_judging_sentence(judges.self_judged_models, len(run.plan.targets))}")
    for line in lines:
        click.echo(terminal.wrap_for_terminal(escape_control_characters(line)), err=True)


def _print_estimate(context: click.Context, request: "RunRequest", *, as_json: bool) -> int:
    from pramana.app.runs import estimate_view
    from pramana.report.estimate import render_estimate

    with open_local_store() as store, name_options_in_errors(context):
        found = estimate_view(store, request)
    if as_json:
        terminal.print_json(terminal.views_to_plain(found))
    else:
        for line in render_estimate(found).splitlines():
            click.echo(terminal.wrap_text(escape_control_characters(line), get_terminal_size().columns, "", "  "))
    return 0


def _pull_weights(name: str) -> None:
    from pramana.show.cli.models import pull_weights

    pull_weights(name)


def _record_interrupted(store: "Store", run: Run) -> None:
    """Record that a run was stopped at once by a signal, and print how to resume it."""
    import signal

    from pramana.report.resuming import format_resume_advice
    from pramana.run.engine import INTERRUPTED_BY_USER_REASON
    from pramana.store.queue import make_process_name

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignored for a moment only
    try:
        with suppress(PramanaError):  # also raised if the run was deleted because it could not start
            left = store.runs.read(run.id)
            if (holder := store.queue.find_holder(run.id)) in (None, make_process_name()):
                store.queue.finish(run.id, holder, "interrupted", INTERRUPTED_BY_USER_REASON)
            if left.stored < left.expected:
                click.echo(f"\nResume with: {format_resume_advice(run)}", err=True)
    finally:
        signal.signal(signal.SIGINT, before)


def _delete_id_file_if_unstarted(store: "Store", run: Run, id_file: Path | None) -> None:
    """Delete the --id-file of a run that could not start and was deleted, so that no script reads its id."""
    try:
        store.runs.read(run.id)
    except NotFound:
        if id_file:
            id_file.unlink(missing_ok=True)


def _check_option_conflicts(context: click.Context, paths: tuple[Path, ...], option_values: dict[str, Any]) -> None:
    from pramana.request import Limits

    if option_values["resume"] is not None:
        may_differ = {*_OPTIONS_ALLOWED_WITH_RESUME, *Limits.__struct_fields__}
        typed = [each for each in context.command.params if _is_option_given(context, each.name or "")]
        planned = [each for each in typed if each.name not in may_differ]
        if planned:
            names = [each.opts[0] if isinstance(each, click.Option) else "PATHS" for each in planned]
            raise click.UsageError(
                f"{', '.join(names)} cannot be combined with --resume: a resumed run keeps its plan; start a new run "
                "without --resume"
            )
    for name in ("output", "id_file", "fail_under"):
        if option_values["dry_run"] and _is_option_given(context, name):
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} cannot be combined with --dry-run: an estimate stores no run and no results"
            )
    for name in ("tier", "suite"):
        if paths and _is_option_given(context, name):
            raise click.UsageError(f"--{name} cannot be combined with PATHS: name files or a tier of a suite, not both")


def make_request(paths: tuple[Path, ...], option_values: dict[str, Any], selection: "Selection") -> "RunRequest":
    """Return the request that the options make; each option has the name of the field that it sets."""
    from pramana.request import Limits, RunRequest

    named = {name: value for name, value in option_values.items() if name in RunRequest.__struct_fields__}
    tier = "cheap" if option_values["tier"] is None else option_values["tier"]
    return RunRequest(
        **{
            **named,
            "suite": None if paths else option_values["suite"],
            "tier": None if paths else tier,
            "paths": paths,
            "selection": selection,
            "models": option_values["models"] or ("local",),
            "judge": next(iter(option_values["judges"]), None),
            "other_judges": option_values["judges"][1:],
            "system_prompt": read_system_prompt(option_values["system_file"]),
            "parameters": dict(map(_parse_parameter, option_values["params"])),
            "limits": Limits(**{name: option_values[name] for name in Limits.__struct_fields__}),
        }
    )


def _refuse_lone_options(option_values: dict[str, Any]) -> None:
    if option_values["confidence"] is not None and option_values["fail_under"] is None:
        raise click.UsageError("--confidence belongs to --fail-under; add --fail-under SHARE, e.g. --fail-under 0.9")
    for name, option in (("fail_on", "--fail-on"), ("margin", "--margin")):
        if option_values[name] is not None and option_values["baseline"] is None:
            raise click.UsageError(f"{option} belongs to --baseline; add --baseline RUN")


def _merge_resumed_limits(context: click.Context, run: Run) -> "Limits":
    """Return the limits of a resumed run: its stored limits, overridden by the options given."""
    from pramana.request import Limits

    typed = [name for name in Limits.__struct_fields__ if _is_option_given(context, name)]
    return Limits.for_resumed_run(run.limits, {name: context.params[name] for name in typed})


def _is_option_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


@contextmanager
def name_options_in_errors(context: click.Context) -> Iterator[None]:
    """Name the option instead of the request field in errors raised in the context."""
    from msgspec.structs import fields

    from pramana.request import Limits, RunRequest, get_published_name
    from pramana.watch_request import WatchRequest

    options = {each.name: each.opts[0] for each in context.command.params if isinstance(each, click.Option)}
    options |= dict.fromkeys(("judge", "other_judges"), "--judge")
    found = {get_published_name(each): options.get(each.name, each.name) for each in fields(RunRequest)}
    found |= {each.name: options[each.name] for each in fields(WatchRequest) if each.name in options}
    found |= {f"limits.{each.name}": options.get(each.name, each.name) for each in fields(Limits)}

    def option_name(path: str) -> str:
        kind, _, name = path.partition(".")
        return f"--param {name}" if kind == "parameters" and name else found.get(path, path)

    try:
        yield
    except InvalidInput as error:
        raise error.with_paths(option_name) from None


def read_system_prompt(path: Path | None) -> str | None:
    """Return the text of a file with a system prompt."""
    if path is None:
        return None
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        message = f"not UTF-8: byte 0x{data[error.start]:02x} is invalid here; save the file as UTF-8"
        raise InvalidInput.from_problems([Problem(message, line=line, column=column, file=str(path))]) from None
    return text.removesuffix("\n").removesuffix("\r")  # the line end that an editor puts at the end of a file


def _parse_parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"expected NAME=VALUE, found {text!r}", param_hint="--param")
    return name, _parse_parameter_value(name, value)


class _NotJsonNumber(Exception):
    """A number that Python parses but JSON does not have, such as NaN."""


def _parse_parameter_value(name: str, text: str) -> Any:
    """Return a value parsed as JSON, or the text itself if it is not JSON."""
    import json
    import math

    from pramana import jsonl

    def number(digits: str) -> float:
        if not math.isfinite(found := float(digits)):
            raise _NotJsonNumber
        return found

    try:
        jsonl.refuse_deep_nesting(text)
        return json.loads(text, parse_constant=number, parse_float=number)
    except (_NotJsonNumber, jsonl.BadJson):
        hint = f'"{name}={text[:60]}" contains NaN or Infinity, which JSON does not have, or is nested too deeply'
        raise click.BadParameter(hint, param_hint="--param") from None
    except ValueError:
        return text


def _report_run(
    store: "Store", ended: Run, stop: "Stop", option_values: dict[str, Any], baseline: "Baseline | None"
) -> int:
    from msgspec.structs import replace

    from pramana.analyse.gate import choose_worst_exit_code
    from pramana.app.calibrations import with_calibrations
    from pramana.report.resuming import format_resume_advice
    from pramana.report.summary import decide_run_exit, print_summary, summarise_run
    from pramana.show.cli.baseline import check_to_data, print_check

    ended = with_calibrations(store, ended)
    summary = summarise_run(store, ended)
    decision = decide_run_exit(ended, summary, option_values["fail_under"], option_values["confidence"])
    check = baseline.check(store, ended) if baseline and ended.status != "interrupted" else None
    codes = [decision.exit_code, *(each.exit_code for each in (check.models if check else ()))]
    code = 130 if ended.status == "interrupted" else choose_worst_exit_code(codes)
    if option_values["as_json"]:
        said = {"run": ended.id, "status": ended.status, "reason": ended.reason, "sentence": decision.sentence}
        beside: dict[str, Any] = {}
        if check:
            beside = {"comparisons": check_to_data(check), "decided_together": check.decided_together}
        terminal.print_json({**said, "exit_code": code, **summary.as_data(), **beside})
    else:
        # An error that stopped the run is printed below; do not print it twice.
        print_summary(ended if stop.error is None else replace(ended, reason=None), summary, decision.sentence)
        if stop.error is not None:
            click.echo(f"pramana: {stop.error}", err=True)
        if check:
            print_check(check)
    if ended.stored < ended.expected and ended.status != "finished":
        click.echo(f"Resume with: {format_resume_advice(ended)}", err=True)
    if option_values["output"]:  # last, so that the summary is printed even if the file cannot be written
        from pramana.report.exporters import write_file

        write_file(
            choose_exporter(option_values["output"]),
            option_values["output"],
            ended,
            store.results.iterate_with_cases(ended.id),
        )
    return code
