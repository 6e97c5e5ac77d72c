"""The library of scenarios: found, looked at, copied, taken away and brought back."""

from functools import partial
from typing import Any

from msgspec.structs import asdict
from nicegui import events, ui

from pramana.app.runs import create_run
from pramana.app.scenarios import (
    LibraryView,
    ScenarioPage,
    ScenarioView,
    copy_scenario,
    delete_scenario,
    import_documents,
    import_library,
    list_deleted,
    list_facets,
    list_library,
    list_scenarios,
    restore_scenario,
)
from pramana.app.views import PageRequest
from pramana.report.markup import Column, Safe, foreign, join, link, pager, table, tag, when
from pramana.show.api.envelope import page_meta
from pramana.show.web.kit import Desk, Refused, address, frame, parts
from pramana.show.web.pages import asking

PAGE_SIZE = 50
FILTERS = {"type": "Type", "difficulty": "Difficulty", "language": "Language", "tag": "Tag"}
OWN_PAGES = frozenset(("new", "import", "deleted"))
"""Words that stand for pages where else the id of a scenario stands."""
_ACTS = """(event) => {
  const found = event.target.closest("button[data-act]");
  if (found) emit({ act: found.dataset.act, id: found.dataset.id });
}"""


def page_of(scenario_id: str) -> str:
    """Return the address of a scenario's page.

    >>> page_of("lost-umbrella"), page_of("new")
    ('/scenarios/lost-umbrella', '/scenarios/id/new')
    """
    return f"/scenarios/id/{scenario_id}" if scenario_id in OWN_PAGES else f"/scenarios/{scenario_id}"


async def read(desk: Desk, scenario_id: str) -> ScenarioView | None:
    """Return a scenario, None when it is not there."""
    found = (await desk.call(list_scenarios, ScenarioPage(id=(scenario_id,)))).items
    return found[0] if found else None


async def duplicate(desk: Desk, scenario_id: str) -> None:
    """Copy a scenario under the next id that is free, and open the copy."""
    ui.navigate.to(page_of((await desk.call(copy_scenario, scenario_id)).id))


# ── The list ──


@frame.page("/scenarios", "Scenarios")
async def scenarios(desk: Desk) -> None:
    """Show the scenarios that pass the filters of the address."""
    facets = asdict(await desk.call(list_facets))
    if not facets["type"]:
        await _nothing(desk)
        return
    wanted = _wanted(desk)
    with frame.head("Scenarios", "What a caller says to a voice agent, and the expected outcome."):
        if desk.may(import_documents):
            parts.link_button("New scenario", "/scenarios/new", "primary")
            parts.link_button("Import", "/scenarios/import")
        parts.link_button("Export these" if wanted else "Export all", address("/api/scenarios/export", **wanted))
        if desk.may(create_run):
            to = address("/runs/new", **(wanted or {"scenario": "all"}))
            parts.link_button("Run these" if wanted else "Run all", to)
    notice = ui.element("div").classes("stack notices")
    _filters(facets, wanted)
    listed = ui.html("").classes("scenarios listed")

    async def again() -> None:
        listed.set_content(await _listed(desk, wanted))

    async def act(event: events.GenericEventArguments) -> None:
        chosen = str(event.args["id"])
        if event.args["act"] == "duplicate":
            await duplicate(desk, chosen)
        else:
            await desk.call(delete_scenario, chosen)
            _undo(desk, notice, chosen, again)
            await again()

    listed.on("click", parts.guarded(act), js_handler=_ACTS)
    if (gone := desk.query.get("deleted")) and await read(desk, gone) is None:
        _undo(desk, notice, gone, again)
    try:
        await again()
    except Refused as error:
        parts.trouble(error)
        parts.paragraph(link("/scenarios", "Show all scenarios"))
    parts.paragraph(link("/scenarios/deleted", "Recently deleted"), quiet=True).classes("small foot")
    desk.when_new({"scenario"}, again)


def _wanted(desk: Desk) -> dict[str, Any]:
    """Return the filters of the address."""
    found: dict[str, Any] = {name: desk.query.getlist(name) for name in FILTERS if desk.query.getlist(name)}
    return {"text": desk.query["text"], **found} if desk.query.get("text") else found


def _filters(facets: dict[str, dict[str, int]], wanted: dict[str, Any]) -> None:
    def to(name: str, value: Any) -> None:
        ui.navigate.to(address("/scenarios", **{**wanted, name: value}))

    with parts.box("stack", role="search", label="Filters"):
        with parts.box("search"):
            hint = "id, name, prompt or expected outcome"
            parts.search(wanted.get("text", ""), hint, partial(to, "text"))
        with parts.box("filters"):
            for name, label in FILTERS.items():
                chosen = wanted.get(name, [])
                counts = {**dict.fromkeys(chosen, 0), **facets[name]}
                options = {each: f"{each} ({count:,})" for each, count in counts.items()}
                by = partial(to, name)
                parts.choice(label, options, chosen, by, several=True, clearable=True, typed=name == "tag")
    if wanted:
        parts.paragraph(link("/scenarios", "Clear all filters")).classes("shown")


async def _listed(desk: Desk, wanted: dict[str, Any]) -> Safe:
    asked = desk.asked(ScenarioPage, {**wanted, "page": desk.query.get("page")}, page_size=PAGE_SIZE)
    found = await desk.call(list_scenarios, asked)
    columns = (
        Column("Scenario", head=True),
        Column("Type"),
        Column("Difficulty"),
        Column("Language"),
        Column("Tags"),
        Column("Prompt"),
        Column("Actions"),
    )

    def here(page: int | None) -> str:
        return address("/scenarios", **wanted, page=page)

    if not found.items:
        return tag("p", "No scenarios match these filters. ", link("/scenarios", "Show all scenarios"))
    rows = [_row(desk, each, wanted) for each in found.items]
    pages = pager(page_meta(asked.page, PAGE_SIZE, found.total), here, "scenarios")
    return join([table("Scenarios, by id", columns, rows, hidden=True), pages])


def _row(desk: Desk, scenario: ScenarioView, wanted: dict[str, Any]) -> tuple[Safe | str, ...]:
    tagged = {each: address("/scenarios", **{**wanted, "tag": [each]}) for each in scenario.tags}
    language = scenario.language
    return (
        _named(link(page_of(scenario.id), foreign(scenario.name, 120)), scenario.id),
        scenario.type,
        scenario.difficulty,
        link(address("/scenarios", **{**wanted, "language": language}), foreign(language)),
        asking.tags(scenario.tags, tagged),
        asking.beginning(scenario.prompt),
        _actions(desk, scenario),
    )


def _named(name: Safe, scenario_id: str) -> Safe:
    return tag("span", name, tag("small", foreign(scenario_id, 80), class_="mono quiet"), class_="cell")


def _actions(desk: Desk, scenario: ScenarioView) -> Safe:
    name, found = scenario.name[:80], scenario.id

    def act(words: str) -> Safe:
        return tag(
            "button", words, type="button", class_="native plain", data_act=words.lower(), data_id=found,
            aria_label=f"{words} {name}",
        )  # fmt: skip

    run = tag("a", "Run", href=address("/runs/new", scenario=found), class_="act", aria_label=f"Run {name}")
    allowed = ((create_run, run), (copy_scenario, act("Duplicate")), (delete_scenario, act("Delete")))
    return tag("span", (made for use_case, made in allowed if desk.may(use_case)), class_="acts")


# ── Taken away, and brought back ──


def _undo(desk: Desk, notice: ui.element, scenario_id: str, again: Any) -> None:
    """Say that a scenario was deleted, with a button that brings it back."""
    with notice:
        said = ui.element("div").classes("warn row spread").props("role=status")

    async def undo() -> None:
        await desk.call(restore_scenario, scenario_id)
        parts.tell("Restored", "positive")
        await again()
        said.delete()  # last, since it takes the button along

    with said:
        parts.paragraph("Deleted ", foreign(scenario_id, 80), ". ", link("/scenarios/deleted", "Recently deleted"))
        if not desk.may(restore_scenario):
            return
        made = parts.button("Undo", undo, small=True, label=f"Undo: bring {scenario_id[:80]} back")
    ui.run_javascript(f"getHtmlElement({made.id})?.focus()")  # the row that had it is gone


@frame.page("/scenarios/deleted", "Deleted scenarios")
async def deleted(desk: Desk) -> None:
    """Show what was deleted within the last day, and bring it back."""
    frame.head(
        "Recently deleted",
        "Scenarios can be restored for one day after they are deleted.",
        crumbs=(("/scenarios", "Scenarios"),),
    )
    listed = ui.html("").classes("listed")

    async def again() -> None:
        listed.set_content(await _gone(desk))

    async def act(event: events.GenericEventArguments) -> None:
        await desk.call(restore_scenario, str(event.args["id"]))
        parts.tell("Restored", "positive")
        await again()

    listed.on("click", parts.guarded(act), js_handler=_ACTS)
    await again()
    desk.when_new({"scenario"}, again)


async def _gone(desk: Desk) -> Safe:
    asked = desk.asked(PageRequest, page_size=PAGE_SIZE)
    found = await desk.call(list_deleted, asked)
    if not found.items:
        return tag("p", "No scenarios were deleted in the last day.", class_="quiet")
    columns = (
        Column("Scenario", head=True),
        Column("Prompt"),
        Column("Deleted"),
        Column("Restorable until"),
        Column("Actions"),
    )
    rows = [
        (
            _named(foreign(each.scenario.name, 120), each.scenario.id),
            asking.beginning(each.scenario.prompt),
            when(each.deleted_at),
            when(each.restorable_until),
            tag(
                "button", "Restore", type="button", class_="native plain", data_act="restore",
                data_id=each.scenario.id, aria_label=f"Restore {each.scenario.name[:80]}",
            )
            if desk.may(restore_scenario)
            else "–",
        )
        for each in found.items
    ]  # fmt: skip
    pages = pager(page_meta(asked.page, PAGE_SIZE, found.total), desk.here, "scenarios")
    return join([table("What can be restored", columns, rows, hidden=True), pages])


# ── Nothing yet ──


async def _nothing(desk: Desk) -> None:
    frame.head("Scenarios", "What a caller says to a voice agent, and the expected outcome.")
    if gone := desk.query.get("deleted"):
        _undo(desk, ui.element("div").classes("notices"), gone, _reload)
    with parts.empty(
        "No scenarios yet", "Import some from the built-in library below, import your own files, or write one."
    ):
        if desk.may(import_documents):
            parts.link_button("Write one", "/scenarios/new")
            parts.link_button("Import files, a folder or text", "/scenarios/import")
    if desk.may(import_library):
        await library(desk)
    parts.paragraph(link("/scenarios/deleted", "Recently deleted"), quiet=True).classes("small foot")
    desk.when_new({"scenario"}, _reload)


async def _reload() -> None:
    ui.navigate.to("/scenarios")


async def library(desk: Desk) -> None:
    """Offer the files of the library: some of them, or all."""
    files = await desk.call(list_library)
    total = sum(len(each.ids) for each in files)

    async def bring(wanted: list[str] | None) -> None:
        if wanted == []:
            parts.tell("Select at least one file", "warning")
            return
        await desk.call(import_library, wanted)
        ui.navigate.to("/scenarios")

    parts.heading("The built-in library")
    parts.paragraph(f"{total:,} scenarios in {len(files):,} files. What is here already stays as it is.", quiet=True)
    with parts.box("row below"):
        parts.button(f"Import all {total:,}", lambda: bring(None))
        parts.button("Import selected files", lambda: bring([file for file, box in boxes.items() if box.value]))
    with parts.box("ticks"):
        boxes = {each.file: parts.tick(_label(each)) for each in files}


def _label(file: LibraryView) -> str:
    """Return what a file is.

    >>> _label(LibraryView(file="multilingual/hindi.yaml", ids=("a", "b"), languages=("hi",), imported=1))
    'multilingual/hindi.yaml: 2 scenarios (hi), 1 here'
    """
    count, here = len(file.ids), file.imported
    there = "" if not here else ", all here" if here == count else f", {here:,} here"
    return f"{file.file}: {count:,} scenario{'' if count == 1 else 's'} ({', '.join(file.languages)}){there}"
