"""The scenario library: search, view, duplicate, delete and restore scenarios."""

from functools import partial
from typing import Any

from msgspec.structs import asdict
from nicegui import events, ui

from pramana.app.runs import create_run
from pramana.app.scenarios import (
    LibraryFileView,
    ScenarioPage,
    ScenarioView,
    copy_scenario,
    delete_scenario,
    import_documents,
    import_library,
    list_deleted_scenarios,
    list_facets,
    list_library,
    list_scenarios,
    restore_scenario,
)
from pramana.app.views import PageRequest
from pramana.report.markup import (
    Column,
    SafeHtml,
    join_html,
    render_link,
    render_pager,
    render_table,
    render_time,
    render_untrusted_text,
    tag,
)
from pramana.show.api.envelope import make_page_meta
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts
from pramana.show.web.pages import case_markup

PAGE_SIZE = 50
FILTER_LABELS = {"type": "Type", "difficulty": "Difficulty", "language": "Language", "tag": "Tag"}
RESERVED_PATHS = frozenset(("new", "import", "deleted"))
"""Paths of pages that would otherwise be read as scenario ids."""
_EMIT_ACTION_HANDLER = """(event) => {
  const found = event.target.closest("button[data-act]");
  if (found) emit({ act: found.dataset.act, id: found.dataset.id });
}"""


def make_scenario_url(scenario_id: str) -> str:
    """Return the address of a scenario's page.

    >>> make_scenario_url("lost-umbrella"), make_scenario_url("new")
    ('/scenarios/lost-umbrella', '/scenarios/id/new')
    """
    return f"/scenarios/id/{scenario_id}" if scenario_id in RESERVED_PATHS else f"/scenarios/{scenario_id}"


async def read_scenario_or_none(context: PageContext, scenario_id: str) -> ScenarioView | None:
    """Return a scenario, or None if there is none with this id."""
    found = (await context.call(list_scenarios, ScenarioPage(id=(scenario_id,)))).items
    return found[0] if found else None


async def duplicate_scenario(context: PageContext, scenario_id: str) -> None:
    """Copy a scenario under the next free id and open the copy."""
    ui.navigate.to(make_scenario_url((await context.call(copy_scenario, scenario_id)).id))


# ── List ──


@frame.register_page("/scenarios", "Scenarios")
async def show_scenarios_page(context: PageContext) -> None:
    """Show the scenarios that match the filters of the address."""
    facets = asdict(await context.call(list_facets))
    if not facets["type"]:
        await _draw_empty_state(context)
        return
    wanted = _read_filters(context)
    with frame.add_page_heading("Scenarios", "What a caller says to a voice agent, and the expected outcome."):
        if context.may(import_documents):
            parts.add_link_button("New scenario", "/scenarios/new", "primary")
            parts.add_link_button("Import", "/scenarios/import")
        parts.add_link_button("Export these" if wanted else "Export all", make_url("/api/scenarios/export", **wanted))
        if context.may(create_run):
            to = make_url("/runs/new", **(wanted or {"scenario": "all"}))
            parts.add_link_button("Run these" if wanted else "Run all", to)
    notice = ui.element("div").classes("stack notices")
    _draw_filters(facets, wanted)
    listed = ui.html("").classes("scenarios listed")

    async def refresh() -> None:
        listed.set_content(await _render_list(context, wanted))

    async def on_action(event: events.GenericEventArguments) -> None:
        chosen = str(event.args["id"])
        if event.args["act"] == "duplicate":
            await duplicate_scenario(context, chosen)
        else:
            await context.call(delete_scenario, chosen)
            _add_undo_notice(context, notice, chosen, refresh)
            await refresh()

    listed.on("click", parts.notify_on_error(on_action), js_handler=_EMIT_ACTION_HANDLER)
    if (gone := context.query.get("deleted")) and await read_scenario_or_none(context, gone) is None:
        _add_undo_notice(context, notice, gone, refresh)
    try:
        await refresh()
    except UseCaseRefused as error:
        parts.add_refusal_box(error)
        parts.add_paragraph(render_link("/scenarios", "Show all scenarios"))
    parts.add_paragraph(render_link("/scenarios/deleted", "Recently deleted"), quiet=True).classes("small foot")
    context.on_change({"scenario"}, refresh)


def _read_filters(context: PageContext) -> dict[str, Any]:
    """Return the filters of the address."""
    found: dict[str, Any] = {name: context.query.getlist(name) for name in FILTER_LABELS if context.query.getlist(name)}
    return {"text": context.query["text"], **found} if context.query.get("text") else found


def _draw_filters(facets: dict[str, dict[str, int]], filters: dict[str, Any]) -> None:
    def filter_url(name: str, value: Any) -> None:
        ui.navigate.to(make_url("/scenarios", **{**filters, name: value}))

    with parts.open_box("stack", role="search", label="Filters"):
        with parts.open_box("search"):
            hint = "id, name, prompt or expected outcome"
            parts.add_search_field(filters.get("text", ""), hint, partial(filter_url, "text"))
        with parts.open_box("filters"):
            for name, label in FILTER_LABELS.items():
                chosen = filters.get(name, [])
                counts = {**dict.fromkeys(chosen, 0), **facets[name]}
                options = {each: f"{each} ({count:,})" for each, count in counts.items()}
                by = partial(filter_url, name)
                parts.add_select(label, options, chosen, by, multiple=True, clearable=True, searchable=name == "tag")
    if filters:
        parts.add_paragraph(render_link("/scenarios", "Clear all filters")).classes("shown")


async def _render_list(context: PageContext, filters: dict[str, Any]) -> SafeHtml:
    asked = context.read_request(ScenarioPage, {**filters, "page": context.query.get("page")}, page_size=PAGE_SIZE)
    found = await context.call(list_scenarios, asked)
    columns = (
        Column("Scenario", is_row_header=True),
        Column("Type"),
        Column("Difficulty"),
        Column("Language"),
        Column("Tags"),
        Column("Prompt"),
        Column("Actions"),
    )

    def page_url(page: int | None) -> str:
        return make_url("/scenarios", **filters, page=page)

    if not found.items:
        return tag("p", "No scenarios match these filters. ", render_link("/scenarios", "Show all scenarios"))
    rows = [_render_scenario_row(context, each, filters) for each in found.items]
    pages = render_pager(make_page_meta(asked.page, PAGE_SIZE, found.total), page_url, "scenarios")
    return join_html([render_table("Scenarios, by id", columns, rows, hide_caption=True), pages])


def _render_scenario_row(
    context: PageContext, scenario: ScenarioView, filters: dict[str, Any]
) -> tuple[SafeHtml | str, ...]:
    tagged = {each: make_url("/scenarios", **{**filters, "tag": [each]}) for each in scenario.tags}
    language = scenario.language
    return (
        _render_name_with_id(
            render_link(make_scenario_url(scenario.id), render_untrusted_text(scenario.name, 120)), scenario.id
        ),
        scenario.type,
        scenario.difficulty,
        render_link(make_url("/scenarios", **{**filters, "language": language}), render_untrusted_text(language)),
        case_markup.render_tags(scenario.tags, tagged),
        case_markup.render_excerpt(scenario.prompt),
        _render_actions(context, scenario),
    )


def _render_name_with_id(name: SafeHtml, scenario_id: str) -> SafeHtml:
    return tag("span", name, tag("small", render_untrusted_text(scenario_id, 80), class_="mono quiet"), class_="cell")


def _render_actions(context: PageContext, scenario: ScenarioView) -> SafeHtml:
    name, found = scenario.name[:80], scenario.id

    def act(words: str) -> SafeHtml:
        return tag(
            "button", words, type="button", class_="native plain", data_act=words.lower(), data_id=found,
            aria_label=f"{words} {name}",
        )  # fmt: skip

    run = tag("a", "Run", href=make_url("/runs/new", scenario=found), class_="act", aria_label=f"Run {name}")
    allowed = ((create_run, run), (copy_scenario, act("Duplicate")), (delete_scenario, act("Delete")))
    return tag("span", (made for use_case, made in allowed if context.may(use_case)), class_="acts")


# ── Delete and restore ──


def _add_undo_notice(context: PageContext, notice: ui.element, scenario_id: str, refresh: Any) -> None:
    """Show that a scenario was deleted, with a button to restore it."""
    with notice:
        said = ui.element("div").classes("warn row spread").props("role=status")

    async def undo() -> None:
        await context.call(restore_scenario, scenario_id)
        parts.show_notification("Restored", "positive")
        await refresh()
        said.delete()  # last, since it removes the button too

    with said:
        parts.add_paragraph(
            "Deleted ",
            render_untrusted_text(scenario_id, 80),
            ". ",
            render_link("/scenarios/deleted", "Recently deleted"),
        )
        if not context.may(restore_scenario):
            return
        made = parts.add_button("Undo", undo, small=True, accessible_label=f"Undo: restore {scenario_id[:80]}")
    ui.run_javascript(f"getHtmlElement({made.id})?.focus()")  # the row that had the focus is gone


@frame.register_page("/scenarios/deleted", "Deleted scenarios")
async def show_deleted_page(context: PageContext) -> None:
    """Show what was deleted within the last day, with a button to restore each."""
    frame.add_page_heading(
        "Recently deleted",
        "Scenarios can be restored for one day after they are deleted.",
        crumbs=(("/scenarios", "Scenarios"),),
    )
    listed = ui.html("").classes("listed")

    async def refresh() -> None:
        listed.set_content(await _render_deleted(context))

    async def on_action(event: events.GenericEventArguments) -> None:
        await context.call(restore_scenario, str(event.args["id"]))
        parts.show_notification("Restored", "positive")
        await refresh()

    listed.on("click", parts.notify_on_error(on_action), js_handler=_EMIT_ACTION_HANDLER)
    await refresh()
    context.on_change({"scenario"}, refresh)


async def _render_deleted(context: PageContext) -> SafeHtml:
    asked = context.read_request(PageRequest, page_size=PAGE_SIZE)
    found = await context.call(list_deleted_scenarios, asked)
    if not found.items:
        return tag("p", "No scenarios were deleted in the last day.", class_="quiet")
    columns = (
        Column("Scenario", is_row_header=True),
        Column("Prompt"),
        Column("Deleted"),
        Column("Restorable until"),
        Column("Actions"),
    )
    rows = [
        (
            _render_name_with_id(render_untrusted_text(each.scenario.name, 120), each.scenario.id),
            case_markup.render_excerpt(each.scenario.prompt),
            render_time(each.deleted_at),
            render_time(each.restorable_until),
            tag(
                "button", "Restore", type="button", class_="native plain", data_act="restore",
                data_id=each.scenario.id, aria_label=f"Restore {each.scenario.name[:80]}",
            )
            if context.may(restore_scenario)
            else "–",
        )
        for each in found.items
    ]  # fmt: skip
    pages = render_pager(make_page_meta(asked.page, PAGE_SIZE, found.total), context.make_page_url, "scenarios")
    return join_html([render_table("Scenarios that can be restored", columns, rows, hide_caption=True), pages])


# ── Empty store and library ──


async def _draw_empty_state(context: PageContext) -> None:
    frame.add_page_heading("Scenarios", "What a caller says to a voice agent, and the expected outcome.")
    if gone := context.query.get("deleted"):
        _add_undo_notice(context, ui.element("div").classes("notices"), gone, _open_scenarios_page)
    with parts.open_empty_state(
        "No scenarios yet",
        "Import scenarios from the built-in library below, import your own files, or write a scenario.",
    ):
        if context.may(import_documents):
            parts.add_link_button("Write one", "/scenarios/new")
            parts.add_link_button("Import files, a folder or text", "/scenarios/import")
    if context.may(import_library):
        await show_library_section(context)
    parts.add_paragraph(render_link("/scenarios/deleted", "Recently deleted"), quiet=True).classes("small foot")
    context.on_change({"scenario"}, _open_scenarios_page)


async def _open_scenarios_page() -> None:
    ui.navigate.to("/scenarios")


async def show_library_section(context: PageContext) -> None:
    """Offer the files of the library for import, one by one or all."""
    files = await context.call(list_library)
    total = sum(len(each.ids) for each in files)

    async def import_files(wanted: list[str] | None) -> None:
        if wanted == []:
            parts.show_notification("Select at least one file", "warning")
            return
        await context.call(import_library, wanted)
        ui.navigate.to("/scenarios")

    parts.add_heading("The built-in library")
    parts.add_paragraph(f"{total:,} scenarios in {len(files):,} files. Existing scenarios are not changed.", quiet=True)
    with parts.open_box("row below"):
        parts.add_button(f"Import all {total:,}", lambda: import_files(None))
        parts.add_button(
            "Import selected files", lambda: import_files([file for file, box in boxes.items() if box.value])
        )
    with parts.open_box("ticks"):
        boxes = {each.file: parts.add_checkbox(_make_file_label(each)) for each in files}


def _make_file_label(file: LibraryFileView) -> str:
    """Return the label of a library file.

    >>> _make_file_label(LibraryFileView(file="multilingual/hindi.yaml", ids=("a", "b"), languages=("hi",), imported=1))
    'multilingual/hindi.yaml: 2 scenarios (hi), 1 imported'
    """
    count, here = len(file.ids), file.imported
    there = "" if not here else ", all imported" if here == count else f", {here:,} imported"
    return f"{file.file}: {count:,} scenario{'' if count == 1 else 's'} ({', '.join(file.languages)}){there}"
