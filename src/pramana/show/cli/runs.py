"""`pramana runs` and `show`: what was run, and what came of it."""

from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from pramana.model import Run
from pramana.report import terminal
from pramana.show.cli.options import local_store, selecting

if TYPE_CHECKING:
    from pramana.request import Selection

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
@click.option("--json", "as_json", is_flag=True, help="Print a list, newest first.")
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


@click.command()
@click.argument("run", default="latest")
@selecting
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(run: str, *, selection: "Selection", as_json: bool) -> None:
    """Show the summary of RUN: an id, the beginning of one, or `latest`; of all its cases, or of a selection.

    With --id also the system prompt, what was said, when and as what it was heard, and every check with its reason.
    """
    from itertools import islice

    from pramana.report.resuming import resume_advice
    from pramana.report.selection import select
    from pramana.report.summary import decide, print_summary, summary_of_results

    if selection.ids:  # nothing else needs it, and it imports much
        from pramana.report import conversation

    with local_store() as store:
        selected = select(store, store.runs.find(run), selection)
        found = selected.run
        summary = summary_of_results(found, selected.results())
        sentence = decide(found, summary).sentence
        chosen = islice(selected.results(), SHOWN_CONVERSATIONS) if selection.ids else ()
        if as_json:
            said = [conversation.as_data(found, *each, store.blobs.get) for each in chosen]
            asked = {"system_prompt": found.plan.system_prompt, "parameters": dict(found.plan.parameters)}
            data = {**_as_data(found), **asked, "notes": dict(found.notes), "sentence": sentence, **summary.as_data()}
            terminal.print_json({**data, "conversations": said} if selection.ids else data)
            return
        print_summary(found, summary, sentence, with_plan=True)
        for each in chosen:
            conversation.print_conversation(found, *each, store.blobs.get)
        more = summary.overall.total - SHOWN_CONVERSATIONS
        if selection.ids and more > 0:
            click.echo(f"\n… and {more:,} more: pramana export {found.id} has them all.")
        if found.stored < found.expected and not selection and not found.holder:
            click.echo(f"Go on with: {resume_advice(found)}", err=True)
