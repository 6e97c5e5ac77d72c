"""`pramana compare`: which of two or more runs or models is better, or that the evidence is not enough to decide.

Each side is a stored run or a `results.json`. Besides the verdicts, it prints times and misheard words as far as both
sides have them, how their requests differ, and which embedded models ran on different engines. Three and more sides
make a table of all pairs instead.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from pramana.analyse.numbers import format_percent
from pramana.errors import InvalidInput
from pramana.report import terminal
from pramana.show.cli.options import open_local_store

if TYPE_CHECKING:
    from pramana.analyse.changes import Limit
    from pramana.analyse.comparison import FailOn
    from pramana.analyse.gate import ExitDecision
    from pramana.analyse.labels import SideLabels
    from pramana.analyse.pairing import Pair
    from pramana.app.comparison_sides import ComparedSides
    from pramana.app.comparisons import FullComparisonView
    from pramana.app.references import SeveralSides, SideReference
    from pramana.app.replies import ReplyPairView

MAX_SHOWN_CASES = 20
SHOWN_REPLIES, SHOWN_REPLIES_JSON = 3, 100
"""Most cases shown with their replies, unless --show sets a number."""


def _parse_max_slower(context: click.Context, option: click.Parameter, value: str | None) -> "Limit | None":
    """Parse the value of --max-slower."""
    del context
    from pramana.analyse.changes import parse_limit

    try:
        return None if value is None else parse_limit(value)
    except InvalidInput as error:
        raise click.BadParameter(str(error), param=option) from None


@click.command()
@click.argument("base")
@click.argument("new", required=False)
@click.argument("more", nargs=-1)
@click.option("--against", default=None, metavar="SIDE", help="Compare each side only with SIDE: a run, file or model.")
@click.option("--model", default=None, help="Model to compare, if runs have several.")
@click.option("--new-model", default=None, help="Model to compare on the new side [default: as --model]")
@click.option("--any-suite", is_flag=True, help="Compare although the suites differ; cases are still paired.")
@click.option("--any-judge", is_flag=True, help="Compare verdicts although different judges gave them.")
@click.option(
    "--margin",
    type=click.FloatRange(0, 100),
    default=5.0,
    metavar="POINTS",
    help="Largest acceptable loss of the pass rate, in points [default: 5]",
)
@click.option(
    "--fail-on",
    type=click.Choice(["regression", "inconclusive"]),
    default="regression",
    metavar="VERDICT",
    help="regression, or inconclusive: exit 4 unless such a loss is excluded [default: regression]",
)
@click.option(
    "--max-slower",
    callback=_parse_max_slower,
    default=None,
    metavar="LIMIT",
    help="Exit 1 if proven slower by more than this (200ms or 20%), 4 if undecided.",
)
@click.option(
    "--show",
    "example_count",
    type=click.IntRange(0, 1_000_000),
    default=None,
    metavar="N",
    help="Number of changed cases to show with both replies [default: 3; with --json 100]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(
    base: str,
    new: str | None,
    more: tuple[str, ...],
    *,
    against: str | None,
    model: str | None,
    new_model: str | None,
    any_suite: bool,
    any_judge: bool,
    margin: float,
    fail_on: "FailOn",
    max_slower: "Limit | None",
    example_count: int | None,
    as_json: bool,
) -> int:
    """Compare runs, or models of one run, case by case.

    BASE and NEW are runs (by ID, name, or `latest`) or results.json files. Without NEW, the models of BASE are
    compared; to compare two of several, name them with --model and --new-model. Cases that flipped are shown with both
    replies and the reasons; after them, replies that changed while the verdict stayed the same.

    Three and more sides (BASE NEW MORE..., or a run of so many models) make a table: all sides by pass rate, and each
    pair with its difference and Holm's p-value, so the chance that any winner is a false one is at most 5 %. With
    --against, each side is compared with SIDE only.

    Cases that the two sides judged with different judges, or with different versions of a check, are left out. If each
    model judges itself, two models have different judges.

    Exit code: 1 for a proven loss whose interval reaches beyond the margin, 4 if no case can be compared, otherwise 0;
    the first lines say how large a loss cannot be excluded. With --fail-on inconclusive, the exit code is 4 unless a
    loss as large as the margin is excluded. For two models of one run, 1 means that the second is worse. With
    --max-slower, the exit code is the worse one of times and verdicts (1, then 4, then 0). A table exits with the worst
    code of its comparisons with SIDE; without --against, with 4 if no case can be compared, otherwise 0.
    """
    from pramana.analyse.changes import decide_slowdown
    from pramana.analyse.gate import choose_worst_exit_code
    from pramana.app.comparison_sides import compare_sides
    from pramana.app.comparisons import comparison_view
    from pramana.app.references import resolve_several_sides, resolve_sides

    with ExitStack() as stack:
        first = open_reference(base, stack, is_base=True, new=new)
        others = [open_reference(each, stack) for each in (new, *more) if each is not None]
        names_no_model = new is None and model is None and new_model is None
        if more or against is not None or (names_no_model and len(first.models) > 2):
            _refuse_options_for_two_sides(max_slower, example_count, fail_on, against)
            several = resolve_several_sides(
                [first, *others],
                model,
                new_model,
                against,
                lambda reference: open_reference(reference, stack, is_base=True, new=base),
            )
            return _print_table(
                several, any_suite=any_suite, any_judge=any_judge, margin=margin, fail_on=fail_on, as_json=as_json
            )
        if example_count is None:
            example_count = SHOWN_REPLIES_JSON if as_json else SHOWN_REPLIES
        sides = resolve_sides(first, others[0] if others else None, model, new_model)
        made = compare_sides(*sides, any_suite=any_suite, any_judge=any_judge, margin=margin)
        view = comparison_view(made, example_count)
    found, changed = made.comparison, made.measured_changes
    decision = decide_slowdown(changed, max_slower) if max_slower else None
    code = choose_worst_exit_code([found.exit_code(fail_on), decision.exit_code if decision else 0])
    if as_json:
        beside: dict[str, Any] = {"changed": [each.sentence for each in changed if each.sentence], "exit_code": code}
        if max_slower and decision:
            beside["slower"] = _slowdown_to_plain(max_slower, decision)
        terminal.print_json({**terminal.views_to_plain(view), **beside})
        return code
    _print_conclusions(made, view, decision)
    _print_changed_cases(made, view.examples)
    if found.differently_judged and not any_judge:
        click.echo(
            "\nTo use one judge for both, run: pramana rescore RUN --judge MODEL. To compare anyway, add --any-judge"
        )
    return code


def _slowdown_to_plain(limit: "Limit", decision: "ExitDecision") -> dict[str, Any]:
    return {"limit": limit.text, "exit_code": decision.exit_code, "sentence": decision.sentence}


def _refuse_options_for_two_sides(
    max_slower: "Limit | None", example_count: int | None, fail_on: "FailOn", against: str | None
) -> None:
    """Refuse what a table of several sides has not, instead of ignoring it."""
    for option, is_given in (("--max-slower", max_slower is not None), ("--show", example_count is not None)):
        if is_given:
            raise InvalidInput(
                f"{option} needs exactly two sides, but a table has more; compare two runs, or name two models with "
                "--model and --new-model"
            )
    if fail_on == "inconclusive" and against is None:
        raise InvalidInput(
            "--fail-on inconclusive needs a side that the others may not be worse than; name it with --against"
        )


def _print_table(
    several: "SeveralSides", *, any_suite: bool, any_judge: bool, margin: float, fail_on: "FailOn", as_json: bool
) -> int:
    """Print the table of several sides, and return its exit code."""
    from pramana.analyse.joint_comparison import decide_exit_code
    from pramana.app.comparison_tables import TooManySidesError, compare_several_sides
    from pramana.report.comparison_table import render_comparison_table

    try:
        made = compare_several_sides(several, any_suite=any_suite, any_judge=any_judge, margin=margin)
    except TooManySidesError as error:
        raise InvalidInput(f"{error}: add --against SIDE") from None
    code = decide_exit_code(made.pairs, has_reference=several.reference_place is not None, fail_on=fail_on)
    if as_json:
        terminal.print_json({**terminal.views_to_plain(made.view), "exit_code": code})
        return code
    for warning in made.view.hash_mismatches:
        click.echo(terminal.wrap_text(f"Warning: {warning}"), err=True)
    click.echo(render_comparison_table(made.view, terminal.get_terminal_columns()))
    return code


def _print_conclusions(
    compared_sides: "ComparedSides", view: "FullComparisonView", decision: "ExitDecision | None"
) -> None:
    """Print what was compared, the conclusions, and the numbers behind them."""
    from pramana.analyse.changes import TIME_MEASURES_WITH_LIMIT
    from pramana.app.comparison_sides import describe_request_differences

    found, changed = compared_sides.comparison, compared_sides.measured_changes
    for line in compared_sides.heading.split("\n"):
        click.echo(terminal.wrap_text(line, other_prefix="  "))
    for mismatch in view.hash_mismatches:
        click.echo(terminal.wrap_text(f"Warning: {mismatch.sentence}"), err=True)
    click.echo()
    click.echo(terminal.wrap_text(found.sentence))
    if decision:
        click.echo(terminal.wrap_text(decision.sentence))
    for each in changed:
        covered = decision is not None and decision.exit_code and each.measure in TIME_MEASURES_WITH_LIMIT
        if each.sentence and not covered:
            click.echo(terminal.wrap_text(each.sentence))
    if differences := describe_request_differences(each.detail for each in compared_sides.request_differences):
        click.echo(terminal.wrap_text(differences))
    for change in compared_sides.engine_differences:
        click.echo(terminal.wrap_text(change.sentence))
    click.echo(terminal.wrap_text(found.detail))
    if whole := _describe_whole_rates(view, found.labels):
        click.echo(terminal.wrap_text(whole))
    for judge in view.judges:
        click.echo(terminal.wrap_text(judge))
    for each in changed:
        click.echo(terminal.wrap_text(each.detail))
    if found.excluded:
        count = len(found.excluded)
        left = "1 case has" if count == 1 else f"{count:,} cases have"
        about = "this comparison is about the other cases only."
        if "count as failed" in found.sentence:
            about = (
                "pass rates and verdict are about the other cases. Only the loss that cannot be excluded counts "
                "results without a verdict, as failed."
            )
        click.echo(terminal.wrap_text(f"{left} no verdict on one side or both; {about}"))
    if found.describe_unpaired:
        click.echo(terminal.wrap_text(found.describe_unpaired))
    if view.reply_changes.sentence:
        click.echo(terminal.wrap_text(view.reply_changes.sentence))


def _describe_whole_rates(view: "FullComparisonView", labels: "SideLabels") -> str:
    """Return the pass rates of both whole sides; empty if they are those of the compared cases."""
    compared, whole = (view.base_rate, view.new_rate), (view.base_whole_rate, view.new_whole_rate)
    if None in compared or [*map(format_percent, compared)] == [*map(format_percent, whole)]:
        return ""
    before, now = map(format_percent, whole)
    return (
        f"These rates are of the compared cases; of all results with a verdict, {before} passed {labels.base} and "
        f"{now} {labels.new}."
    )


def _print_changed_cases(compared_sides: "ComparedSides", examples: "Sequence[ReplyPairView]") -> None:
    """Print the flipped cases, the first of them with both replies, then changed replies with the same verdict."""
    found = compared_sides.comparison
    for title, change, pairs in (
        (found.labels.loss_phrase, "lost", found.lost),
        (found.labels.gain_phrase, "gained", found.gained),
    ):
        if not pairs:
            continue
        replies = {each.case: each for each in examples if each.change == change}
        shown = max(MAX_SHOWN_CASES, len(replies))
        click.echo(f"\n{len(pairs):,} {'passes' if len(pairs) == 1 else 'pass'} {title}:")
        for pair in pairs[:shown]:
            name = compared_sides.find_case_name(pair.case)
            click.echo(_format_flip(name, pair, found.labels))
            if name in replies:
                _print_replies(replies[name], found.labels)
        if len(pairs) > shown:
            click.echo(f"  … and {len(pairs) - shown:,} more")
    if alike := [each for each in examples if each.change == "same verdict"]:
        differ = "differ while the verdict is" if found.labels.model_labels else "changed while the verdict stayed"
        click.echo(f"\nReplies that {differ} the same:")
        for each in alike:
            click.echo(f"  {terminal.fit_to_width(each.case, 78)}")
            _print_replies(each, found.labels)
        if (more := compared_sides.reply_changes.changed_count - len(alike)) > 0:
            click.echo(f"  … and {more:,} more")


def _print_replies(pair: "ReplyPairView", labels: "SideLabels") -> None:
    from pramana.report.reply_pairs import render_reply_pair

    for line in render_reply_pair(pair, labels, max(get_terminal_size().columns, 40)):
        click.echo(line)


def _format_flip(case_name: str, pair: "Pair", labels: "SideLabels") -> str:
    """Return the line of a flipped case; with more than one answer, also how often it passed, beside it or below."""
    from pramana.app.comparison_sides import describe_pass_counts

    line = f"  {terminal.fit_to_width(case_name, 78)}"
    if pair.repeats == 1 and not pair.base_unpaired.answers and not pair.new_unpaired.answers:
        return line
    counts = describe_pass_counts(pair, labels)
    return f"{line}, {counts}" if terminal.count_columns(line) + 2 + len(counts) <= 80 else f"{line}\n    {counts}"


def open_reference(
    run_or_path: str, stack: ExitStack, *, is_base: bool = False, new: str | None = None
) -> "SideReference":
    """Return a side by what the user typed: a file, or a run; of several runs named like the base, the newest one."""
    from pramana.app.references import make_baseline_reference, make_file_reference, make_run_reference

    if run_or_path.endswith(".json"):
        return make_file_reference(Path(run_or_path))
    store = stack.enter_context(open_local_store())
    return make_baseline_reference(store, run_or_path, new) if is_base else make_run_reference(store, run_or_path)


def print_comparison(compared_sides: "ComparedSides", example_count: int = SHOWN_REPLIES) -> None:
    """Print a comparison without a limit on times."""
    from pramana.app.comparisons import comparison_view

    view = comparison_view(compared_sides, example_count)
    _print_conclusions(compared_sides, view, None)
    _print_changed_cases(compared_sides, view.examples)
