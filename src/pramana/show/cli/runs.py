"""`pramana runs` and `show`: the list of runs, and the results of one."""

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, get_args

import click

from pramana.errors import AlreadyRunning, escape_control_characters, quote_text, suggest_similar
from pramana.model import Run, RunStatus
from pramana.report import terminal
from pramana.show.cli import HelpfulGroup
from pramana.show.cli.options import CASE_OPTION_NAMES, GroupedCommand, add_selection_options, open_local_store

if TYPE_CHECKING:
    from pramana.report.run_list import ListedRun
    from pramana.report.selection import SelectedRun
    from pramana.request import Selection
    from pramana.store.store import Store

MAX_SHOWN_RUNS = 20
"""Most runs listed at a terminal, unless another limit is given."""
MAX_SHOWN_CONVERSATIONS = 20
"""Most conversations shown in full for the cases chosen by id."""


def _run_to_data(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "note": run.note,
        "status": run.status,
        "suite": run.plan.suite,
        "suite_hash": run.plan.suite_hash,
        "selection": dict(run.plan.selection),
        "models": [target.typed for target in run.plan.targets],
        "repeats": run.plan.repeats,
        "is_endpoint_test": run.plan.pairing is not None,
        "variants": list(run.plan.variants),
        "caller_voice": None if run.plan.variants == ("text",) else run.plan.voice,
        "stt": run.plan.stt.typed if run.plan.stt else None,
        "created": run.created,
        "finished": run.finished,
        "expected": run.expected,
        "stored": run.stored,
        "reason": run.reason,
    }


@click.group(cls=HelpfulGroup, invoke_without_command=True)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help=f"Maximum number of runs [default: {MAX_SHOWN_RUNS}; all with --json]",
)
@click.option("--model", default=None, metavar="MODEL", help="Filter by model")
@click.option("--suite", default=None, metavar="SUITE", help="Filter by suite name or its beginning")
@click.option("--name", default=None, metavar="TEXT", help="Filter by name or a part of it")
@click.option(
    "--status",
    type=click.Choice(get_args(RunStatus)),
    default=None,
    metavar="STATUS",
    help=f"Filter by status: {', '.join(get_args(RunStatus))}",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
@click.pass_context
def runs(
    context: click.Context,
    *,
    limit: int | None,
    model: str | None,
    suite: str | None,
    name: str | None,
    status: RunStatus | None,
    as_json: bool,
) -> None:
    """List runs, newest first; edit and delete them."""
    if context.invoked_subcommand is not None:
        return
    from pramana.report.run_list import read_runs, render_runs

    most = limit or (None if as_json else MAX_SHOWN_RUNS)
    with open_local_store() as store:
        found = read_runs(store, limit=most, model=model, suite=suite, status=status, name=name)
        known = store.runs.list_models() if model and not found.total else []
    if as_json:
        terminal.print_json([_listed_run_to_data(each) for each in found.runs])
        if len(found.runs) < found.total:
            click.echo(f"{len(found.runs):,} of {found.total:,} runs; without --limit all are printed", err=True)
    elif found.runs:
        click.echo(render_runs(found, terminal.get_terminal_columns()))
    elif not (model or suite or name or status):
        click.echo("No runs yet. Start the first one: pramana run")
    else:
        meant = suggest_similar(model, known, 0.5) if model else ""
        click.echo(f"No run matches these filters{meant or '.'}")


def _listed_run_to_data(listed_run: "ListedRun") -> dict[str, Any]:
    rates = [{"model": model, **rate.as_data()} for model, rate in listed_run.rates.items()]
    return {**_run_to_data(listed_run.run), "model_rates": rates, "calibration": listed_run.calibration}


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.option("--name", default=None, metavar="NAME", help="New name; empty removes it")
@click.option("--note", default=None, metavar="TEXT", help="New note; empty removes it")
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def edit(run_id: str, *, name: str | None, note: str | None, as_json: bool) -> None:
    """Change the name or the note of RUN: an ID, the beginning of an ID, its name, or `latest`."""
    from pramana.request import RunEdit

    if name is None and note is None:
        raise click.UsageError("nothing to change; add --name NAME, --note TEXT, or both")
    with open_local_store() as store:
        changed = store.runs.edit(store.runs.find(run_id).id, RunEdit(name=name, note=note))
    if as_json:
        terminal.print_json(_run_to_data(changed))
        return
    said = (
        f"{what} {quote_text(text)}" if text else f"no {what}"
        for what, text in (("name", changed.name), ("note", changed.note))
    )
    click.echo(f"Run {changed.id}: {', '.join(said)}")


@runs.command()
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation")
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def delete(run_ids: tuple[str, ...], *, yes: bool, as_json: bool) -> None:
    """Delete each RUN with all of its results; an active run is refused."""
    with open_local_store() as store:
        found = {run.id: run for run in map(store.runs.find, run_ids)}
        for run in found.values():
            if run.status == "running" and run.holder:
                raise AlreadyRunning(f"run {run.id} is still running; cancel it or wait for its end, then delete it")
        results = terminal.pluralise(sum(run.stored for run in found.values()), "result")
        what = f"{terminal.pluralise(len(found), 'run')} with {results}"
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError(f"{what} would be deleted; confirm it with --yes")
            for run in found.values():
                stored = terminal.pluralise(run.stored, "result")
                click.echo(f"{run.id}  {escape_control_characters(run.name or run.plan.suite)}, {stored}", err=True)
            click.confirm(f"Delete {what}? This cannot be undone.", abort=True, err=True)
        for run_id in found:
            store.runs.delete(run_id, unless_held=True)
    if as_json:
        terminal.print_json({"deleted": [*found]})
        return
    click.echo(f"Deleted {what}.")


@click.command(
    cls=GroupedCommand,
    groups={"Cases": CASE_OPTION_NAMES, "Output": "--scorings --json"},
    examples=("pramana show", "pramana show latest --id coding-001", "pramana show r1a2b --category coding --json"),
)
@click.argument("run", default="latest")
@add_selection_options
@click.option("--scorings", is_flag=True, help="List the scorings of the run")
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def show(run: str, *, selection: "Selection", scorings: bool, as_json: bool) -> None:
    """Show the summary of RUN [default: latest]; with filters, only of the cases that match.

    RUN is an ID, the beginning of an ID, a run's name, or `latest`; RUN@0 is the run with its first scoring, before
    any `rescore`. With --id, shows those results in full: system prompt, conversation, every check with its reason, and
    the judge's prompt and answer.
    """
    from pramana.app.calibrations import with_calibrations
    from pramana.report.resuming import format_resume_advice
    from pramana.report.selection import select_results
    from pramana.report.summary import decide_run_exit, print_summary, summarise_results

    if scorings and selection:
        raise click.UsageError("--scorings lists all scorings of the run; remove the filters")
    with open_local_store() as store:
        found = store.runs.find_as_of_scoring(run)
        if scorings:
            _print_scorings(store, found, as_json=as_json)
            return
        found = with_calibrations(store, found)
        selected = select_results(store, found, selection)
        found = selected.run
        if selection.ids and not as_json:
            _print_conversations(store, selected)
            return
        summary = summarise_results(found, selected.results())
        sentence = decide_run_exit(found, summary).sentence
        if as_json:
            asked = {"system_prompt": found.plan.system_prompt, "parameters": dict(found.plan.parameters)}
            data = {
                **_run_to_data(found),
                "scoring": found.scoring,
                **asked,
                "notes": dict(found.notes),
                "sentence": sentence,
                **summary.as_data(),
            }
            terminal.print_json(
                {**data, "conversations": _collect_result_records(store, selected)} if selection.ids else data
            )
            return
        print_summary(found, summary, sentence, with_plan=True)
        if note := _describe_chosen_scoring(store, found):
            click.echo(terminal.wrap_text(note))
        if found.stored < found.expected and not selection and not found.holder:
            click.echo(f"Resume with: {format_resume_advice(found)}", err=True)


def _describe_chosen_scoring(store: "Store", run: Run) -> str:
    """Return a note that an earlier scoring is current; empty if it is the newest, or if the user named it."""
    scorings = store.scorings.list_finished(run)
    chosen = next((each.number for each in scorings[:-1] if each.is_current), None)
    if chosen is None or run.scoring is not None:
        return ""
    newest = scorings[-1].number
    return (
        f"Scoring {chosen} is current because it was chosen; the newest is {newest}: pramana show {run.id} --scorings"
    )


def _print_conversations(store: "Store", selected: "SelectedRun") -> None:
    """Print the results of a selection in full, up to a limit."""
    from pramana.report import conversation

    run, count = selected.run, 0
    for case, result in selected.results():
        count += 1
        if count <= MAX_SHOWN_CONVERSATIONS:
            conversation.print_conversation(run, case, result, store.blobs.get)
    if count > MAX_SHOWN_CONVERSATIONS:
        more = count - MAX_SHOWN_CONVERSATIONS
        click.echo(f"\n… and {more:,} more: pramana export {run.reference} has them all.")
    elif not count:
        click.echo(f"Run {run.reference} has no results of these cases yet; {run.expected:,} are expected.")


def _collect_result_records(store: "Store", selected: "SelectedRun") -> list[dict[str, Any]]:
    from pramana.report import conversation

    chosen = islice(selected.results(), MAX_SHOWN_CONVERSATIONS)
    return [conversation.result_to_data(selected.run, case, result, store.blobs.get) for case, result in chosen]


def _print_scorings(store: "Store", run: Run, *, as_json: bool) -> None:
    from pramana.app.rescoring import scoring_views
    from pramana.report.rescoring import print_scorings

    found = scoring_views(store, run)
    if as_json:
        terminal.print_json(terminal.views_to_plain(found))
        return
    print_scorings(found)
