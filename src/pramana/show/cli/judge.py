"""`pramana judge`: label replies blind, and report how far the judge agrees with people."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pramana.report import terminal
from pramana.show.cli import HelpfulGroup
from pramana.show.cli.options import JSON_OPTION, GroupedCommand, OutputPath, open_local_store

if TYPE_CHECKING:
    from pramana.app.judging import LabelDraw, LabellingView
    from pramana.model import Run
    from pramana.store.store import Store


@click.group(cls=HelpfulGroup)
def judge() -> None:
    """Label replies, and see how far the judge agrees with people."""


def _get_account_name() -> str:
    try:
        return getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return "local"


@judge.command(
    cls=GroupedCommand,
    groups={"Labels": "--count --rater --import --export", "Output": "--json"},
    exit_codes={0: "Labels are stored, or you quit", 2: "Nothing to label, or invalid labels", 130: "Interrupted"},
    examples=(
        "pramana judge label latest",
        "pramana judge label latest --count 100 --rater ann",
        "pramana judge label latest --export replies.csv",
    ),
)
@click.argument("run", default="latest")
@click.option("--count", type=click.IntRange(1, 100_000), metavar="N", help="Replies to draw [default: 60]")
@click.option("--rater", metavar="NAME", help="Whose labels these are [default: your account's name]")
@click.option(
    "--import",
    "import_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Store the labels of a CSV file with the columns task and label",
)
@click.option(
    "--export",
    "export_file",
    type=OutputPath(),
    metavar="FILE",
    help="Write the drawn replies to a CSV file, to label them elsewhere",
)
@JSON_OPTION
def label(
    run: str,
    *,
    count: int | None,
    rater: str | None,
    import_file: Path | None,
    export_file: Path | None,
    as_json: bool,
) -> None:
    """Label replies of RUN [default: latest] that a judge judged, without seeing the judge's verdict.

    Shows one reply at a time with its prompt and criterion; press y (it meets the criterion), n (it does not) or u
    (unsure). Half of the replies are drawn among those that the judge failed. Each label is stored at once: quit with q
    at any time, and run the command again to continue. With --json, prints all labels of the run and asks nothing.
    """
    from pramana.analyse.labelling import DEFAULT_LABEL_COUNT
    from pramana.app.judging import draw_labels, label_views, save_labels

    if import_file and export_file:
        raise click.UsageError("--import and --export cannot be combined")
    name = (_get_account_name() if rater is None else rater).strip()
    with open_local_store() as store:
        found = store.runs.find(run)
        if import_file:
            from pramana.report.labelling import read_scoring_labels

            given = read_scoring_labels(import_file)
            save_labels(store, found, given, name)
            if not as_json:
                click.echo(f"{terminal.pluralise(len(given), 'label')} stored. Report: pramana judge report {found.id}")
        if as_json:
            terminal.print_json(terminal.views_to_plain(label_views(store, found)))
        elif export_file:
            _export(store, found, draw_labels(store, found, count or DEFAULT_LABEL_COUNT), name, export_file)
        elif not import_file:
            _label_replies(store, found, draw_labels(store, found, count or DEFAULT_LABEL_COUNT), name)


def _export(store: "Store", run: "Run", draw: "LabelDraw", rater: str, path: Path) -> None:
    from pramana.app.judging import list_label_rows
    from pramana.report.labelling import write_labels

    rows = list_label_rows(store, run, draw, rater)
    with path.open("w", encoding="utf-8", newline="") as out:
        write_labels(rows, out)
    click.echo(f"{_format_reply_count(len(rows))} written. Fill in the column label, then run:")
    click.echo(f"pramana judge label {run.id} --import FILE")


def _label_replies(store: "Store", run: "Run", draw: "LabelDraw", rater: str) -> None:
    """Show one drawn reply after the other and store each label, until none is left or the user quits."""
    from pramana.app.judging import LabellingRequest, LabelRequest, labelling_view, save_labels
    from pramana.report.labelling import LABELS_BY_KEY, render_labelling

    keys, shown, skipped = _read_keys(), list[str](), list[str]()
    wanted: str | None = None
    view = labelling_view(store, run, draw, LabellingRequest(), rater)
    click.echo(terminal.wrap_text(_describe_draw(view)))
    while True:
        view = labelling_view(store, run, draw, LabellingRequest(task=wanted, skip=tuple(skipped)), rater)
        if view.task is None:
            break
        for line in render_labelling(view):
            click.echo(line)
        key = _next_known_key(keys)
        if key in (None, "q"):
            break
        task, wanted = view.task.task, None
        if key == "b":
            wanted = shown.pop() if shown else task
            continue
        shown.append(task)
        if key == "s":
            skipped.append(task)
        else:
            save_labels(store, run, [LabelRequest(task=task, label=LABELS_BY_KEY[key], note=view.task.note)], rater)
            with suppress(ValueError):
                skipped.remove(task)
    view = labelling_view(store, run, draw, LabellingRequest(), rater)
    click.echo(terminal.wrap_text(_describe_end(view)))


def _read_keys() -> Iterator[str]:
    """Yield the keys pressed; without a terminal, the letters of standard input, so that it can be a pipe."""
    if sys.stdin.isatty():
        while True:
            key = click.getchar()
            click.echo(key if key.isprintable() else "")
            yield key
    for line in sys.stdin:
        yield from line.strip()


def _next_known_key(keys: Iterator[str]) -> str:
    """Return the next key that has a meaning; None at the end of the input."""
    from pramana.report.labelling import KEYS

    for key in keys:
        if key.lower() in ("y", "n", "u", "s", "b", "q"):
            return key.lower()
        click.echo(f"Unknown key. Keys: {KEYS}")
    return "q"


@judge.command(
    cls=GroupedCommand,
    groups={"Output": "--json"},
    exit_codes={0: "The report is printed", 2: "No such run"},
    examples=("pramana judge report latest", "pramana judge report latest --json"),
)
@click.argument("run", default="latest")
@JSON_OPTION
def report(run: str, *, as_json: bool) -> None:
    """Report how far the judges of RUN [default: latest] agree with people, by the labels of its replies.

    Prints accuracy and kappa with 95 % intervals, with several raters Krippendorff's alpha, and the pass rate of each
    model corrected for the judge's errors. A corrected rate is refused, with the reason, as long as the labels are too
    few. RUN@0 is the run with its first scoring, before any `rescore`.
    """
    from pramana.app.calibrations import make_judge_report
    from pramana.report.judging import render_judge_report

    with open_local_store() as store:
        found = make_judge_report(store, store.runs.find_as_of_scoring(run))
    if as_json:
        terminal.print_json(terminal.views_to_plain(found))
        return
    click.echo(render_judge_report(found))


def _format_reply_count(count: int) -> str:
    return f"{count:,} {'reply' if count == 1 else 'replies'}"


def _describe_draw(view: "LabellingView") -> str:
    return (
        f"Run {view.run_id}: a judge judged {_format_reply_count(view.judged)}. {view.drawn:,} drawn to label; "
        f"{view.labelled:,} labelled by {view.rater}."
    )


def _describe_end(view: "LabellingView") -> str:
    unsure = f", {view.unsure:,} of them unsure" if view.unsure else ""
    said = f"{view.labelled:,} of {_format_reply_count(view.drawn)} labelled by {view.rater}{unsure}."
    more = f" Continue: pramana judge label {view.run_id}." if view.labelled < view.drawn else ""
    return f"{said}{more} Report: pramana judge report {view.run_id}"
