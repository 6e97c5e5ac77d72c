"""Compare two runs or two models on the same cases: first the verdict, then the evidence, then the changed cases.

The address holds all parameters (`base`, `new`, `model`, `newModel`, `page`, `anySuite`, `anyJudge`, `margin`), so a
link shows everyone the same. Without both sides, the page offers the recent runs and their models to choose from. It
suggests missing sides: the newest run as new, compared with the previous run of the same cases, or with another of its
own models. If only the base is given, the new side is the newest other run of the same cases. Runs of other cases are
never suggested.
"""

from collections.abc import Mapping, Sequence
from itertools import islice, zip_longest

from msgspec.structs import replace
from nicegui import ui

from pramana.analyse.labels import shorten_middle, shorten_names
from pramana.app.comparisons import CompareRequest, ComparisonView, FlipView, compare_runs
from pramana.app.runs import RunFilter, create_run, list_runs, read_progress, read_result
from pramana.app.views import RunView
from pramana.report.figures import escape_unprintable, format_percent
from pramana.report.markup import SafeHtml, render_pager, render_untrusted_text, tag
from pramana.show.api.envelope import make_page_meta
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts
from pramana.show.web.pages.comparison_markup import (
    Noun,
    choose_noun,
    describe_flips,
    name_sides,
    render_engine_changes,
    render_excluded,
    render_flip_line,
    render_judge_agreement,
    render_measurements,
    render_replies,
    render_request_differences,
    render_sides,
    render_verdict,
)
from pramana.store.queue import ACTIVE_STATUSES

FLIPS_PER_PAGE = 20
"""Changed cases per page."""
MAX_LOADED_REPEATS = 5
"""Repeats of a case whose replies are shown."""
MAX_RECENT_RUNS = 50
"""Runs to choose from."""
MAX_NAME_CHARS_ALONE, MAX_NAME_CHARS_BESIDE_OTHERS = 80, 40
"""Characters of a name in a select field: by itself, and beside others."""
_LABELS_BY_SIDE = {"base": "before", "new": "now"}


@frame.register_page("/compare", "Compare")
async def show_compare_page(context: PageContext) -> None:
    """Show the comparison of the two sides in the address, and the form to choose others."""
    query = context.query
    both = bool(query.get("base") and query.get("new"))
    with frame.add_page_heading("Compare", "Two runs, or two models, on the same cases: which is better, and where?"):
        if both:
            swapped = context.make_page_url(
                base=query["new"],
                new=query["base"],
                model=query.get("newModel") or query.get("model"),
                newModel=query.get("model"),
                page=None,
            )
            parts.add_link_button("Swap the sides", swapped)
        parts.add_link_button("Compare several", make_url("/compare/table", run=_list_runs_for_table(query)))
    if both:
        await _show_live_comparison(context)
    with parts.open_box("screen-only" if both else ""):
        await _draw_chooser(context, has_both_sides=both)


def _list_runs_for_table(query: Mapping[str, str]) -> list[str]:
    """Return the runs of the address, each once: what a table with more sides begins with."""
    return list(dict.fromkeys(query[which] for which in _LABELS_BY_SIDE if query.get(which)))


async def _show_live_comparison(context: PageContext) -> None:
    """Show the comparison, or what must be chosen first; update while a run is under way."""
    under_way = False

    @ui.refreshable
    async def refresh() -> None:
        nonlocal under_way
        try:
            base, new = [await _read_run(context, context.query[which]) for which in _LABELS_BY_SIDE]
            both = {"base": base.reference, "new": new.reference}
            wanted = context.read_request(CompareRequest, {**context.query, **both})
        except UseCaseRefused as error:
            parts.add_refusal_box(error)
            return
        under_way = any(run.status in ACTIVE_STATUSES for run in (base, new))
        # Two models of one run are compared, and the address names neither.
        if base.reference == new.reference and len(base.models) > 1 and not context.query.get("model"):
            _add_model_links(context, "model", base, new)
            return
        # The address names one of several models of a run, but not the one to compare it with.
        if base.reference == new.reference and context.query.get("model") and not context.query.get("newModel"):
            _add_model_links(context, "newModel", base, new)
            return
        try:
            await _draw_comparison(context, wanted, base, new)
        except UseCaseRefused as error:
            _draw_comparison_refusal(context, error, base, new)

    await refresh()
    if under_way:

        async def reload() -> None:
            if under_way:
                await refresh.refresh()

        context.on_change({"run"}, reload)


async def _draw_comparison(context: PageContext, request: CompareRequest, base: RunView, new: RunView) -> None:
    data = await context.call(compare_runs, replace(request, page_size=FLIPS_PER_PAGE))
    noun = choose_noun(base.variants, new.variants)
    frame.set_window_title(f"{data.base_model} against {data.new_model}")
    with parts.open_box("stack wide"):
        parts.add_markup(render_verdict(data, noun))
        parts.add_markup(render_sides(base, new, data, noun))
        for name, run in _find_unfinished_runs(base, new):
            parts.add_markup(tag("p", _make_unfinished_note(run, name), class_="warn"))
        if data.asked_differently:
            parts.add_markup(render_request_differences(data))
        if data.engine_changes:
            parts.add_markup(render_engine_changes(data))
        if data.judges:
            parts.add_markup(render_judge_agreement(data))
    parts.add_markup(render_measurements(data, noun))
    _draw_flips(data, request.page, noun, context)
    _draw_changed_replies(data, context)
    any_judge = None if request.any_judge else context.make_page_url(anyJudge=True, page=None)
    parts.add_markup(render_excluded(data, any_judge, choose_noun(base.variants, new.variants, for_excluded=True)))


def _find_unfinished_runs(base: RunView, new: RunView) -> list[tuple[str, RunView]]:
    """Return the compared runs that are not finished, each with what a sentence calls it."""
    if base.id == new.id:
        found = [("The run", new)]
    else:
        found = [(f"The run {word}", run) for word, run in zip(_LABELS_BY_SIDE.values(), (base, new), strict=True)]
    return [(name, run) for name, run in found if run.status != "finished"]


def _make_unfinished_note(run: RunView, subject: str) -> str:
    so_far = f"{run.stored:,} of {run.expected:,} results"
    if run.status in ACTIVE_STATUSES:
        return (
            f"{subject} is still {run.status}: this comparison covers its {so_far} so far, and updates when the run "
            "has "
            "ended."
        )
    return f"{subject} is {run.status}, with {so_far}: unfinished cases are left out. Resume the run on its page."


# ── Changes ──


def _draw_flips(data: ComparisonView, page: int, noun: Noun, context: PageContext) -> None:
    sides = name_sides(data)
    parts.add_heading("What differs" if sides.are_models else "What changed")
    if not (total := data.lost + data.gained):
        differs = "has different outcomes" if sides.are_models else "changed its outcome"
        parts.add_paragraph(f"No compared {noun} {differs}.", quiet=True)
        return
    with parts.open_box("stack"):
        parts.add_paragraph(render_untrusted_text(describe_flips(data, sides)), quiet=True)
        with ui.element("div"):
            for flip in data.flips:
                _draw_flip(flip, data, context)
    parts.add_markup(
        render_pager(
            make_page_meta(page, FLIPS_PER_PAGE, total),
            context.make_page_url,
            f"{noun}s that {'differ' if sides.are_models else 'changed'}",
        )
    )


def _draw_flip(flip: FlipView, data: ComparisonView, context: PageContext) -> None:
    """Add a changed case."""
    _add_expandable_case(render_flip_line(flip, name_sides(data)), flip.base_results, flip.new_results, data, context)


def _draw_changed_replies(data: ComparisonView, context: PageContext) -> None:
    """Add the replies that changed although their verdict did not; nothing if there are none."""
    changes = data.reply_changes
    if not changes.changed:
        return
    parts.add_heading("Same verdict, different reply")
    with parts.open_box("stack"):
        parts.add_paragraph(f"{changes.sentence} Open a case to see both replies.", quiet=True)
        with ui.element("div"):
            for each in changes.cases[:FLIPS_PER_PAGE]:
                base, new = (() if seq is None else (seq,) for seq in (each.base_result, each.new_result))
                _add_expandable_case(render_untrusted_text(each.case, 200), base, new, data, context)
        if (more := changes.changed - FLIPS_PER_PAGE) > 0:
            parts.add_paragraph(f"and {more:,} more", quiet=True)


def _add_expandable_case(
    summary: SafeHtml, base_seqs: Sequence[int], new_seqs: Sequence[int], data: ComparisonView, context: PageContext
) -> None:
    """Add a case as a line that expands; its replies are loaded when it is opened."""
    with ui.element("details") as made:
        with ui.element("summary"):
            parts.add_markup(summary, classes="inline")
        within = ui.element("div").classes("stack")

    async def load() -> None:
        if within.default_slot.children:
            return
        with within:
            waiting = parts.add_paragraph("Loading both replies …", quiet=True)
        try:
            pairs = [
                [
                    (await context.call(read_result, run, seq)).result if seq is not None else None
                    for run, seq in ((data.base, old), (data.new, now))
                ]
                for old, now in islice(zip_longest(base_seqs, new_seqs), MAX_LOADED_REPEATS)
            ]
        finally:  # after an error, opening it again retries
            waiting.delete()
        with within:
            parts.add_markup(render_replies(pairs, data))
            if (more := max(len(base_seqs), len(new_seqs)) - MAX_LOADED_REPEATS) > 0:
                parts.add_paragraph(f"{more:,} more repeats are on the pages of the runs.", quiet=True)

    made.on("toggle", parts.notify_on_error(load), js_handler="(event) => event.target.open && emit()")


# ── Missing choices ──


def _draw_comparison_refusal(context: PageContext, error: UseCaseRefused, base: RunView, new: RunView) -> None:
    """Show why there is no comparison yet, with links that resolve it."""
    asked = error.problems[0].path if error.problems else None
    if asked in ("model", "newModel"):
        _add_model_links(context, asked, base, new)
    elif asked == "anySuite":
        with parts.open_box("warn stack", role="alert"):
            parts.add_paragraph(
                "The two runs may have different cases: before ",
                render_untrusted_text(base.suite),
                ", now ",
                render_untrusted_text(new.suite),
                ". You can compare the cases that both runs have.",
            )
            with parts.open_box("row"):
                parts.add_link_button("Compare shared cases", context.make_page_url(anySuite=True), "primary")
    else:
        parts.add_refusal_box(error)


def _add_model_links(context: PageContext, model_query_parameter: str, base: RunView, new: RunView) -> None:
    run, word = (base, "before") if model_query_parameter == "model" else (new, "now")
    one_run = base.reference == new.reference
    with parts.open_box("warn stack", role="alert"):
        if not one_run:
            parts.add_paragraph(f"The run {word} has {len(run.models):,} models. Choose one:")
        elif model_query_parameter == "model":
            parts.add_paragraph(f"The run has {len(run.models):,} models. Choose the first to compare:")
        else:
            parts.add_paragraph("Choose the model to compare it with:")
        with parts.open_box("row"):
            if one_run and model_query_parameter == "model" and len(run.models) > 2:
                every = make_url("/compare/table", run=run.reference)
                parts.add_link_button(f"All {len(run.models):,} models", every, "primary")
            for model in run.models:
                changed = {model_query_parameter: model, "page": None}
                if model_query_parameter == "model" and not context.query.get("newModel"):
                    changed["newModel"] = _find_matching_model(model, base, new)
                if not one_run or model_query_parameter == "model" or model != context.query.get("model"):
                    parts.add_markup(
                        tag("a", render_untrusted_text(model, 80), href=context.make_page_url(**changed), class_="btn")
                    )


def _find_matching_model(model: str, base: RunView, new: RunView) -> str | None:
    """Return the model of the new run that corresponds to one of the base run; None if the user must choose."""
    others = [each for each in new.models if base.reference != new.reference or each != model]
    return model if model in others else others[0] if len(others) == 1 else None


# ── Choosing two runs ──


async def _read_run(context: PageContext, reference: str) -> RunView:
    """Return a run by its id, by the beginning of its id, or as `latest`."""
    return await context.call(read_progress, reference)


async def _draw_chooser(context: PageContext, *, has_both_sides: bool) -> None:
    """Add the form to choose two runs; `has_both_sides` means that the address names both already."""
    parts.add_heading("Compare something else" if has_both_sides else "Choose two")
    listed = (await context.call(list_runs, RunFilter(page_size=MAX_RECENT_RUNS, outcomes=True))).items
    if not listed:
        with parts.open_empty_state(
            "No runs yet", "A comparison needs two runs of the same cases, or one run of two models."
        ):
            if context.may(create_run):
                parts.add_link_button("New run", "/runs/new", "primary")
        return
    choosing = _SideSelection({run.reference: run for run in listed}, dict(context.query))
    for which in _LABELS_BY_SIDE:
        if named := context.query.get(which):
            try:
                choosing.select_run(which, choosing.runs.get(named) or await _read_run(context, named))
            except UseCaseRefused as error:
                if not has_both_sides:  # otherwise the error is already shown above
                    parts.add_refusal_box(error)
    if not choosing.chosen:
        choosing.select_run("new", listed[0])
    for missing in _LABELS_BY_SIDE.keys() - choosing.chosen.keys():
        words = await _select_other_side_and_explain(context, choosing, missing)
        if not has_both_sides:
            parts.add_paragraph(words, quiet=True)
    _draw_form(choosing)


async def _select_other_side_and_explain(context: PageContext, selection: "_SideSelection", missing_side: str) -> str:
    """Choose the missing side if there is a comparable run or model; return the sentence that explains it."""
    (named,) = selection.chosen.values()
    before = missing_side == "base"
    found, of = await _find_run_of_same_cases_and_search_limit(context, named, must_be_older=before)
    if found or len(named.models) > 1:
        selection.select_run(missing_side, found or named)
        other = "the previous run of the same cases" if before else "the newest other run of the same cases"
        return f"Suggested: {other if found else 'two models of the same run'}."
    return f"No {'earlier' if before else 'other'} run has the same cases{of}. Choose a run to compare it with."


async def _find_run_of_same_cases_and_search_limit(
    context: PageContext, run: RunView, *, must_be_older: bool
) -> tuple[RunView | None, str]:
    """Return the newest other run of the same cases (`must_be_older`: an older one), and the limit of the search."""
    if run.cases_digest is None:  # the run was deleted
        return None, ""
    listed = await context.call(list_runs, RunFilter(suite=run.suite, page_size=MAX_RECENT_RUNS, outcomes=True))
    for each in listed.items:
        same = each.cases_digest == run.cases_digest and each.id != run.id
        fits = not must_be_older or each.created_at < run.created_at
        if same and fits and each.status not in ACTIVE_STATUSES:
            return each, ""
    return None, f", among the newest {MAX_RECENT_RUNS} of this suite" if listed.total > MAX_RECENT_RUNS else ""


class _SideSelection:
    """The chosen runs and models, until they become an address."""

    def __init__(self, runs: dict[str, RunView], query: dict[str, str]) -> None:
        self.runs = runs
        self.chosen: dict[str, RunView] = {}
        self.model: dict[str, str | None] = {
            "base": query.get("model"),
            "new": query.get("newModel") or query.get("model"),
        }
        self._named = "newModel" in query

    def select_run(self, side: str, run: RunView) -> None:
        """Choose a run for a side, with the model in the address or its first; within one run, two different models."""
        self.runs[run.reference] = self.chosen[side] = run
        if self.model[side] not in run.models:
            self.model[side] = run.models[0]
        same = self.chosen.get("base") == self.chosen.get("new") and self.model["base"] == self.model["new"]
        if same and len(run.models) > 1 and not self._named:  # comparing a model with itself says nothing
            self.model["new"] = next(each for each in run.models if each != self.model["base"])

    @property
    def has_same_run_on_both_sides(self) -> bool:
        """Whether the same run is chosen for both sides."""
        return len({run.reference for run in self.chosen.values()}) == 1 == len(self.chosen) - 1

    def make_comparison_url(self) -> str:
        base, new = self.chosen["base"], self.chosen["new"]
        several = len(base.models) > 1 or len(new.models) > 1
        models = {"model": self.model["base"], "newModel": self.model["new"]} if several else {}
        return make_url("/compare", base=base.reference, new=new.reference, **models)


def _draw_form(selection: _SideSelection) -> None:
    options = {reference: make_run_label(run) for reference, run in selection.runs.items()}

    runs: dict[str, ui.select] = {}

    def side_words() -> Mapping[str, str]:
        return {"base": "A", "new": "B"} if selection.has_same_run_on_both_sides else _LABELS_BY_SIDE

    def add_run_field(which: str) -> None:
        def on_choice(value: str) -> None:
            selection.select_run(which, selection.runs[value])
            for each, word in side_words().items():  # the field stays as it is, with the focus in it
                runs[each].props["label"] = f"Run {word}"
            add_model_field.refresh()

        now = selection.chosen.get(which)
        label = f"Run {side_words()[which]}"
        runs[which] = parts.add_select(label, options, now and now.reference, on_choice).classes("wide")
        add_model_field(which)

    @ui.refreshable
    def add_model_field(which: str) -> None:
        some = selection.chosen[which].models if which in selection.chosen else ()
        if len(some) > 1:
            short = shorten_names(some, MAX_NAME_CHARS_ALONE)
            parts.add_select(
                f"Model {side_words()[which]}",
                {each: escape_unprintable(short[each]) for each in some},
                selection.model[which],
                lambda value: selection.model.update({which: value}),
            ).classes("wide")

    def open_comparison() -> None:
        if selection.chosen.keys() == _LABELS_BY_SIDE.keys():
            ui.navigate.to(selection.make_comparison_url())
        else:
            parts.show_notification("Choose two runs.", "warning")

    with parts.open_box("stack wide"):
        with parts.open_box("halves"):
            for which in _LABELS_BY_SIDE:
                with parts.open_box("stack"):
                    add_run_field(which)
        with parts.open_box("row"):
            parts.add_button("Compare", open_comparison, "primary")


def make_run_label(run: RunView) -> str:
    """Return the label of a run in a select field."""
    some = run.models[:3]
    short = shorten_names(some, MAX_NAME_CHARS_BESIDE_OTHERS)
    models = ", ".join(short[each] for each in some) + (" …" if len(run.models) > 3 else "")
    rate, several = run.pass_rate, len(run.models) > 1  # a rate over several models describes none of them
    passed = "" if rate is None else f" · {format_percent(rate)} passed"
    passed += f", {run.calibration}" if passed and run.calibration else ""
    end = f" · {len(run.models)} models" if several else passed
    suite = shorten_middle(run.suite, MAX_NAME_CHARS_ALONE)
    return escape_unprintable(f"{suite} · {models} · {run.created_at[:16].replace('T', ' ')}{end}")
