"""Compare three and more runs, or all models of one run: what is proven of them together, then every pair.

The address holds all parameters (`run`, once for each run, `against`, `model`, `newModel`, `anySuite`, `anyJudge`,
`margin`), so a link shows everyone the same. Each pair links to its comparison in full.
"""

from collections.abc import Sequence

from nicegui import ui

from pramana.analyse.labels import shorten_names
from pramana.analyse.numbers import format_signed_points_with_unit
from pramana.app.comparison_tables import (
    CompareSeveralRequest,
    ComparisonTableView,
    PairView,
    SideView,
    compare_several_runs,
)
from pramana.app.runs import RunFilter, list_runs, read_progress
from pramana.app.views import RunView
from pramana.report.comparison_table import describe_excluded_losses, describe_pair, format_p_value
from pramana.report.figures import escape_unprintable
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    join_html,
    render_link,
    render_rate_bar,
    render_rate_text,
    render_table,
    render_untrusted_text,
    tag,
)
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts
from pramana.show.web.pages.compare import MAX_NAME_CHARS_ALONE, MAX_RECENT_RUNS, make_run_label
from pramana.show.web.pages.comparison_markup import use_typographic_minus
from pramana.store.queue import ACTIVE_STATUSES

EVERY_PAIR = "Every two sides"


@frame.register_page("/compare/table", "Compare several")
async def show_comparison_table_page(context: PageContext) -> None:
    """Show the table of the runs in the address, and the form to choose others."""
    runs = context.query.getlist("run")
    about = "Three and more runs, or all models of one run, on the same cases: which are better, proven together?"
    frame.add_page_heading("Compare several", about, crumbs=(("/compare", "Compare"),))
    if runs:
        await _show_live_table(context, runs)
    with parts.open_box("screen-only" if runs else ""):
        await _draw_run_chooser(context, runs)


async def _show_live_table(context: PageContext, references: Sequence[str]) -> None:
    """Show the table, or why there is none; update while a run is under way."""
    under_way = False

    @ui.refreshable
    async def refresh() -> None:
        nonlocal under_way
        runs: list[RunView] = []
        try:
            runs = [await context.call(read_progress, each) for each in references]
            under_way = any(each.status in ACTIVE_STATUSES for each in runs)
            wanted = context.read_request(CompareSeveralRequest)
            _draw_table(context, await context.call(compare_several_runs, wanted), runs)
        except UseCaseRefused as error:
            _draw_refusal(context, error, runs)

    await refresh()
    if under_way:

        async def reload() -> None:
            if under_way:
                await refresh.refresh()

        context.on_change({"run"}, reload)


def _draw_refusal(context: PageContext, error: UseCaseRefused, runs: Sequence[RunView]) -> None:
    """Show why there is no table, with links that make the missing choice if there is one."""
    parts.add_refusal_box(error)
    missing = error.problems[0].path if error.problems else None
    models = list(dict.fromkeys(model for run in runs for model in run.models))
    choices: dict[str, dict[str, dict[str, object]]] = {
        "anySuite": {"Compare shared cases": {"anySuite": True}},
        "model": {model: {"model": model} for model in models},
        "against": {f"Against {each}": {"against": each} for each in _list_sides(runs)},
    }
    with parts.open_box("row"):
        for words, parameters in choices.get(missing or "", {}).items():
            parts.add_link_button(escape_unprintable(words), _make_table_url(context, **parameters))


def _list_sides(runs: Sequence[RunView]) -> Sequence[str]:
    """Return what `against` may name: the models of the only run, or the runs."""
    return runs[0].models if len(runs) == 1 else [each.reference for each in runs]


def _make_table_url(context: PageContext, **replaced_parameters: object) -> str:
    """Return the URL of this page with parameters replaced; all of its runs stay."""
    return context.make_page_url(run=context.query.getlist("run"), **replaced_parameters)


def _draw_table(context: PageContext, table: ComparisonTableView, runs: Sequence[RunView]) -> None:
    frame.set_window_title(table.heading)
    with parts.open_box("stack wide"):
        parts.add_markup(_render_answer(table, runs))
    parts.add_heading("Pass rates")
    parts.add_markup(_render_sides(table))
    parts.add_heading("Differences")
    with parts.open_box("stack"):
        _add_reference_select(context, table)
        parts.add_markup(_render_pairs(context, table))


def _has_one_run(table: ComparisonTableView) -> bool:
    return len({each.run for each in table.sides}) == 1


def _render_answer(table: ComparisonTableView, runs: Sequence[RunView]) -> SafeHtml:
    """Return what is proven, and what limits it."""
    unfinished = [
        f"The run {each.id} is {each.status}: the table covers its {each.stored:,} of {each.expected:,} results."
        for each in runs
        if each.status != "finished"
    ]
    run = table.sides[0]
    of = join_html(
        [f"{len(table.sides)} models of ", render_link(make_url(f"/runs/{run.run}"), render_untrusted_text(run.title))]
    )
    return tag(
        "section",
        tag("p", of, class_="quiet") if _has_one_run(table) else None,
        tag("p", tag("strong", render_untrusted_text(table.sentence))),
        tag("p", render_untrusted_text(describe_excluded_losses(table))) if table.against is not None else None,
        (tag("p", each, class_="warn") for each in unfinished),
        (tag("p", render_untrusted_text(each), class_="quiet small") for each in (*table.notes, *table.judges)),
        class_="card stack",
        aria_label="The answer",
    )


def _render_sides(table: ComparisonTableView) -> SafeHtml:
    columns = (
        Column("Side", is_row_header=True),
        Column("Chart"),
        Column("Pass rate", is_numeric=True),
        Column("Passed", is_numeric=True),
    )
    rows = (
        (
            _render_side_name(each, with_run=not _has_one_run(table)),
            render_rate_bar(each.pass_rate, each.interval),
            render_rate_text(each.pass_rate, each.interval),
            f"{each.passed:,} of {each.answers:,}",
        )
        for each in table.sides
    )
    caption = "Sides by pass rate, with 95 % intervals"
    return tag("div", render_table(caption, columns, rows, hide_caption=True), class_="rates")


def _render_side_name(side: SideView, *, with_run: bool) -> SafeHtml:
    """Return the name of a side; with its run, also the model if the name is another one."""
    name = render_untrusted_text(side.name, 200)
    if not with_run:
        return name
    beside = [] if side.model == side.name else [render_untrusted_text(side.model, 200), tag("br")]
    where = render_link(make_url(f"/runs/{side.run}"), render_untrusted_text(side.title, 200))
    return tag("span", name, tag("small", beside, where, class_="quiet"), class_="rate")


def _render_pairs(context: PageContext, table: ComparisonTableView) -> SafeHtml:
    columns = (
        Column("Result", is_row_header=True),
        Column("Difference", is_numeric=True),
        Column("Interval", is_numeric=True),
        Column("p", is_numeric=True),
        Column("Holm’s p", is_numeric=True),
        Column("Cases", is_numeric=True),
    )
    of = "of the side named first from the other" if table.against is None else f"from {table.against}"
    caption = render_untrusted_text(f"Difference of the pass rate {of}, in points. Open a result for its cases.")
    shown = render_table(
        "Pairs of sides", columns, (_make_pair_row(context, table, each) for each in table.pairs), hide_caption=True
    )
    return join_html(
        [tag("p", caption, class_="quiet"), shown, tag("p", table.note_on_intervals, class_="quiet small")]
    )


def _make_pair_row(context: PageContext, table: ComparisonTableView, pair: PairView) -> tuple[HtmlChild, ...]:
    link = render_link(
        make_pair_url(context, table, pair), render_untrusted_text(describe_pair(pair, table.against), 300)
    )
    said = tag("b", link) if pair.winner is not None else link
    if pair.difference is None or pair.interval is None:
        return (said, "–", "–", "–", "–", f"{pair.cases:,}")
    low, high = (
        use_typographic_minus(format_signed_points_with_unit(each).removesuffix(" points")) for each in pair.interval
    )
    return (
        said,
        use_typographic_minus(format_signed_points_with_unit(pair.difference)),
        f"{low} to {high}",
        format_p_value(pair.p_value),
        format_p_value(pair.adjusted_p_value),
        f"{pair.cases:,}",
    )


def make_pair_url(context: PageContext, table: ComparisonTableView, pair: PairView) -> str:
    """Return the address of the comparison of the two sides of a pair, made in the same way."""
    sides = {each.name: each for each in table.sides}
    base, new = sides[pair.base], sides[pair.new]
    same = {name: context.query.get(name) for name in ("anySuite", "anyJudge", "margin")}
    return make_url("/compare", base=base.run, new=new.run, model=base.model, newModel=new.model, **same)


def _add_reference_select(context: PageContext, table: ComparisonTableView) -> None:
    """Add the field that chooses between every pair and one reference."""
    one_run = _has_one_run(table)
    short = shorten_names([each.name for each in table.sides], MAX_NAME_CHARS_ALONE)
    options = {"": EVERY_PAIR}
    options |= {each.model if one_run else each.run: escape_unprintable(short[each.name]) for each in table.sides}
    chosen = next(((each.model if one_run else each.run) for each in table.sides if each.name == table.against), "")
    parts.add_select(
        "Compare with",
        options,
        chosen,
        lambda value: ui.navigate.to(_make_table_url(context, against=value or None)),
    ).classes("wide")


async def _draw_run_chooser(context: PageContext, references: Sequence[str]) -> None:
    """Add the form to choose the runs; those of the address are chosen already."""
    parts.add_heading("Compare other runs" if references else "Choose runs")
    listed = (await context.call(list_runs, RunFilter(page_size=MAX_RECENT_RUNS, outcomes=True))).items
    known = {each.reference: each for each in listed}
    options = {reference: make_run_label(run) for reference, run in known.items()}
    chosen = [each for each in references if each in options]
    with parts.open_box("stack wide"):
        field = parts.add_select("Runs", options, chosen, multiple=True, searchable=True).classes("wide")

        def open_table() -> None:
            if len(field.value) > 1 or (field.value and len(known[field.value[0]].models) > 1):
                ui.navigate.to(make_url("/compare/table", run=field.value))
            else:
                parts.show_notification("Choose two or more runs, or one with several models.", "warning")

        with parts.open_box("row"):
            parts.add_button("Compare", open_table, "primary")
