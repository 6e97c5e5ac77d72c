"""`pramana runs` and `show`: what was run, and what came of it."""

from itertools import islice
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from pramana.model import Run
from pramana.report import terminal
from pramana.show.cli.options import CASE_OPTIONS, GroupedCommand, local_store, selecting

if TYPE_CHECKING:
    from pramana.report.selection import Selected
    from pramana.request import Selection
    from pramana.store.store import Store

SHOWN_CONVERSATIONS = 20
"""Of the cases that were chosen by their ids."""


def _as_data(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "status": run.status,
        "suite": run.plan.suite,
        "suite_hash": run.plan.suite_hash,
        "selection": dict(run.plan.selection),
        "models": [target.typed for target in run.plan.targets],
        "repeats": run.plan.repeats,
        "variants": list(run.plan.variants),
        "caller_voice": None if run.plan.variants == ("text",) else run.plan.voice,
        "stt": run.plan.stt.typed if run.plan.stt else None,
        "created": run.created,
        "finished": run.finished,
        "expected": run.expected,
        "stored": run.stored,
        "reason": run.reason,
    }


@click.command()
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1_000_000), metavar="N")
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def runs(*, limit: int, as_json: bool) -> None:
    """List runs, newest first."""
    with local_store() as store:
        found = store.runs.page(limit=limit)[0]
    if as_json:
        terminal.print_json([_as_data(run) for run in found])
    elif not found:
        click.echo("No runs yet: `pramana run` makes the first.")
    columns = get_terminal_size().columns
    for run in [] if as_json else found:
        models = ", ".join(target.typed for target in run.plan.targets)
        line = f"{run.id}  {run.status:11} {run.stored:>7,}/{run.expected:<7,} {run.plan.suite}  {models}"
        click.echo(terminal.fitted(line, max(columns, 60)))


@click.command(
    cls=GroupedCommand,
    groups={"Cases": CASE_OPTIONS, "Output": "--scorings --json"},
    examples=("pramana show", "pramana show latest --id coding-001", "pramana show r1a2b --category coding --json"),
)
@click.argument("run", default="latest")
@selecting
@click.option("--scorings", is_flag=True, help="List the scorings of the run")
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def show(run: str, *, selection: "Selection", scorings: bool, as_json: bool) -> None:
    """Show the summary of RUN [default: latest], or of some of its cases.

    RUN is an ID, the beginning of one, or `latest`; RUN@0 is the run with its first scoring, before any `rescore`. With
    --id, shows those results in full: system prompt, conversation, every check with its reason, and the judge's
    prompt and answer.
    """
    from pramana.report.resuming import resume_advice
    from pramana.report.selection import select
    from pramana.report.summary import decide, print_summary, summary_of_results

    if scorings and selection:
        raise click.UsageError("--scorings lists those of the whole run; leave the filters out")
    with local_store() as store:
        found = store.runs.find_scored(run)
        if scorings:
            _print_scorings(store, found, as_json=as_json)
            return
        selected = select(store, found, selection)
        found = selected.run
        if selection.ids and not as_json:
            _print_in_full(store, selected)
            return
        summary = summary_of_results(found, selected.results())
        sentence = decide(found, summary).sentence
        if as_json:
            asked = {"system_prompt": found.plan.system_prompt, "parameters": dict(found.plan.parameters)}
            data = {
                **_as_data(found),
                "scoring": found.scoring,
                **asked,
                "notes": dict(found.notes),
                "sentence": sentence,
                **summary.as_data(),
            }
            terminal.print_json({**data, "conversations": _conversations(store, selected)} if selection.ids else data)
            return
        print_summary(found, summary, sentence, with_plan=True)
        if note := _chosen_scoring(store, found):
            click.echo(terminal.wrapped(note))
        if found.stored < found.expected and not selection and not found.holder:
            click.echo(f"Resume with: {resume_advice(found)}", err=True)


def _chosen_scoring(store: "Store", run: Run) -> str:
    """Say that a run is read by an earlier scoring which was chosen; empty where it is the newest, or was named."""
    scorings = store.scorings.describe(run)
    chosen = next((each.number for each in scorings[:-1] if each.current), None)
    if chosen is None or run.scoring is not None:
        return ""
    newest = scorings[-1].number
    return f"Scoring {chosen} is current by choice; the newest is {newest}: pramana show {run.id} --scorings"


def _print_in_full(store: "Store", selected: "Selected") -> None:
    """Print the results of a selection one by one, a bounded number of them."""
    from pramana.report import conversation

    run, count = selected.run, 0
    for case, result in selected.results():
        count += 1
        if count <= SHOWN_CONVERSATIONS:
            conversation.print_conversation(run, case, result, store.blobs.get)
    if count > SHOWN_CONVERSATIONS:
        more = count - SHOWN_CONVERSATIONS
        click.echo(f"\n… and {more:,} more: pramana export {run.reference} has them all.")
    elif not count:
        click.echo(f"Run {run.reference} has no result of these cases yet: {run.expected:,} to come.")


def _conversations(store: "Store", selected: "Selected") -> list[dict[str, Any]]:
    from pramana.report import conversation

    chosen = islice(selected.results(), SHOWN_CONVERSATIONS)
    return [conversation.as_data(selected.run, case, result, store.blobs.get) for case, result in chosen]


def _print_scorings(store: "Store", run: Run, *, as_json: bool) -> None:
    from pramana.app.rescoring import scoring_views
    from pramana.report.rescoring import print_scorings

    found = scoring_views(store, run)
    if as_json:
        terminal.print_json(terminal.plain(found))
        return
    print_scorings(found)
