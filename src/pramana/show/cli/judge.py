"""`pramana judge`: label replies blind, ask the judge again, and report how far it agrees with people and itself."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pramana.errors import PramanaError
from pramana.report import terminal
from pramana.show.cli import HelpfulGroup
from pramana.show.cli.options import (
    CONCURRENCY_OPTION,
    JSON_OPTION,
    QUIET_OPTION,
    TIMEOUT_OPTION,
    GroupedCommand,
    OutputPath,
    add_cost_limit_options,
    open_local_store,
)

if TYPE_CHECKING:
    from pramana.app.judging import LabellingDraw, LabellingView
    from pramana.app.rejudging_jobs import RejudgingEnd
    from pramana.model import Run
    from pramana.store.store import Store


@click.group(cls=HelpfulGroup)
def judge() -> None:
    """Label replies, and see how far the judge agrees with people and with itself."""


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
    from pramana.app.judging import draw_replies_to_label, label_views, save_labels

    if import_file and export_file:
        raise click.UsageError("--import and --export cannot be combined")
    name = (_get_account_name() if rater is None else rater).strip()
    with open_local_store() as store:
        found = store.runs.find(run)
        if import_file:
            from pramana.report.labelling import read_scoring_labels

            given = read_scoring_labels(import_file)
            save_labels(store, found, given.labels, name)
            if not as_json:
                stored = f"{terminal.pluralise(len(given.labels), 'label')} stored."
                left_out = (
                    f" {terminal.pluralise(given.unlabelled_count, 'row')} without a label."
                    if given.unlabelled_count
                    else ""
                )
                click.echo(terminal.wrap_text(f"{stored}{left_out} Report: pramana judge report {found.id}"))
        if as_json:
            terminal.print_json(terminal.views_to_plain(label_views(store, found)))
        elif export_file:
            _export(store, found, draw_replies_to_label(store, found, count or DEFAULT_LABEL_COUNT), name, export_file)
        elif not import_file:
            _label_replies(store, found, draw_replies_to_label(store, found, count or DEFAULT_LABEL_COUNT), name)


def _export(store: "Store", run: "Run", draw: "LabellingDraw", rater: str, path: Path) -> None:
    from pramana.app.judging import list_labelling_rows
    from pramana.report.labelling import write_labels

    rows = list_labelling_rows(store, run, draw, rater)
    with path.open("w", encoding="utf-8", newline="") as out:
        write_labels(rows, out)
    click.echo(f"{_format_reply_count(len(rows))} written. Fill in the column label, then run:")
    click.echo(f"pramana judge label {run.id} --import FILE")


def _label_replies(store: "Store", run: "Run", draw: "LabellingDraw", rater: str) -> None:
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

    With `pramana judge swap`, also how far the order of the prompt changes their verdicts (position bias).

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


_SWAP_ENDED_EARLY_NOTE = "Ended early: the verdicts so far are stored; run the command again to continue."


@judge.command(
    cls=GroupedCommand,
    groups={
        "Replies": "--count --criterion-last --again",
        "Limits": "--max-cost --max-total-tokens --timeout --concurrency",
        "Output": "--dry-run --quiet --json",
    },
    exit_codes={
        0: "All answers are stored",
        2: "No replies to judge again, or invalid options",
        3: "Some requests failed, a limit was reached, or another process is asking",
        4: "Inconclusive: no answer has a readable verdict",
        130: "Interrupted; the verdicts so far are stored",
    },
    examples=(
        "pramana judge swap latest --dry-run",
        "pramana judge swap latest --count 200 --max-cost 1",
    ),
)
@click.argument("run", default="latest")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    metavar="N",
    help="Replies to draw",
)
@click.option("--criterion-last", is_flag=True, help="Also judge with the criterion after the reply")
@click.option("--again", is_flag=True, help="Ask again where an answer had no readable verdict")
@add_cost_limit_options()
@TIMEOUT_OPTION
@CONCURRENCY_OPTION
@click.option("--dry-run", is_flag=True, help="Only show calls and cost; send nothing")
@QUIET_OPTION
@JSON_OPTION
def swap(
    run: str,
    *,
    count: int,
    criterion_last: bool,
    again: bool,
    max_cost_usd: float | None,
    max_total_tokens: int | None,
    timeout_s: float,
    concurrency: int,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Measure the position bias of the judges of RUN [default: latest]: do they prefer the answer that is named first?

    The judges judge some replies again: once with the same prompt, to see how often they contradict themselves, and
    once with the answers offered as NO or YES instead of YES or NO. Half of the replies are drawn among those that the
    judge failed. The verdicts of the run stay as they are. What is stored is not asked for again: run the command again
    to continue, or with a larger --count to add replies. Only the replies that are drawn first are tested.
    """
    import asyncio

    from pramana.app.rejudging import RejudgeRequest, plan_rejudging, rejudge, rejudging_view
    from pramana.app.rejudging_jobs import RejudgingEnd
    from pramana.report.judging import describe_rejudging
    from pramana.report.progress import LiveProgress
    from pramana.request import Limits
    from pramana.run.engine import Stop
    from pramana.show.cli.signals import SignalHandler

    limits = Limits(
        concurrency=concurrency, timeout_s=timeout_s, max_cost_usd=max_cost_usd, max_total_tokens=max_total_tokens
    )
    with open_local_store() as store:
        found = store.runs.find_as_of_scoring(run)
        plan = plan_rejudging(store, found, RejudgeRequest(count=count, criterion_last=criterion_last, again=again))
        view = rejudging_view(found, plan)
        if dry_run:
            if as_json:
                terminal.print_json(terminal.views_to_plain(view))
            else:
                click.echo(terminal.wrap_text(describe_rejudging(view)))
            return 0
        if not (quiet or as_json):
            click.echo(terminal.wrap_text(describe_rejudging(view)), err=True)
        end, stop = RejudgingEnd(), Stop()
        try:
            if plan.questions:
                with (
                    LiveProgress(len(plan.questions), quiet=quiet or as_json, failures=False) as live,
                    SignalHandler(stop),
                ):
                    end = asyncio.run(rejudge(store, found, plan, limits, on_progress=live, stop=stop))
        except (PramanaError, KeyboardInterrupt):
            if stop:
                click.echo(_SWAP_ENDED_EARLY_NOTE, err=True)
            raise
        has_verdicts = _print_position_bias(store, found, end, as_json=as_json)
    if stop:
        click.echo(_SWAP_ENDED_EARLY_NOTE, err=True)
    return 130 if stop else 3 if end.failures else 0 if has_verdicts else 4


def _print_position_bias(store: "Store", run: "Run", end: "RejudgingEnd", *, as_json: bool) -> bool:
    """Print what was measured, and why requests failed; return whether any answer has a readable verdict."""
    from pramana.app.calibrations import make_judge_report
    from pramana.app.rejudging_jobs import MAX_SHOWN_REASONS
    from pramana.report.judging import format_position_bias

    judges = make_judge_report(store, run).judges
    measured = [each.position_bias for each in judges if each.position_bias]
    has_verdicts = any(
        each.repetition.replies or any(effect.changes.replies for effect in each.effects) for each in measured
    )
    if as_json:
        shown = [
            {"judge": each.judge, "check": each.check, **terminal.views_to_plain(each.position_bias)}
            for each in judges
            if each.position_bias
        ]
        failures = [{"reason": reason, "count": count} for reason, count in end.failures]
        said = {"run": run.id, "unanswered": end.unanswered_count, "failures": failures}
        terminal.print_json({**said, "unreadable": sum(each.unreadable for each in measured), "judges": shown})
        return has_verdicts
    for each in judges:
        if each.position_bias:
            click.echo(terminal.wrap_text(f"Judge {each.judge} ({each.check})", 80, "", "  "))
            for line in format_position_bias(each.position_bias):
                click.echo(line)
    if end.failures:
        failed = f"{terminal.pluralise(end.unanswered_count, 'request')} failed; run the command again to repeat them:"
        click.echo(failed, err=True)
        for reason, count in end.failures[:MAX_SHOWN_REASONS]:
            click.echo(terminal.wrap_text(f"{count:,} × {reason}", 80, "  ", "    "), err=True)
    if unreadable := sum(each.unreadable for each in measured):
        answers = terminal.pluralise(unreadable, "answer")
        advice = f"{answers} without a readable verdict; to ask again: pramana judge swap {run.id} --again"
        click.echo(terminal.wrap_text(advice), err=True)
    click.echo(terminal.wrap_text(f"Report: pramana judge report {run.id}"))
    return has_verdicts


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
