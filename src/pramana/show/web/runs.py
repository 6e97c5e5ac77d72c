"""The list of runs: newest first, with filters, growing as runs arrive from whomever."""

from typing import Any

from nicegui import ui

from pramana.show.figures import percent
from pramana.show.web import frame, parts
from pramana.show.web.desk import Desk, address
from pramana.show.web.markup import Column, Safe, foreign, join, link, pager, table, tag, when

PAGE_SIZE = 50
STATUSES = {
    "queued": "queued",
    "running": "running",
    "finished": "finished",
    "stopped": "stopped",
    "interrupted": "interrupted",
    "cancelled": "cancelled",
}


@frame.page("/runs", "Runs")
async def runs(desk: Desk) -> None:
    """Show the runs that pass the filters of the address."""
    with frame.head("Runs", "Everything that was asked here, from the command line, the API or this page."):
        parts.link_button("New run", "/runs/new", "primary")
    _filters(desk)
    listed = parts.show(await _listed(desk))

    async def again() -> None:
        listed.set_content(await _listed(desk))

    desk.when_new({"run"}, again)


def _filters(desk: Desk) -> None:
    query = desk.query

    def put(name: str) -> Any:
        return lambda value: ui.navigate.to(desk.here(**{name: value, "page": None}))

    with parts.box("row", role="search", label="Filters"):
        parts.field("Search", query.get("text", ""), hint="suite, model or id").on(
            "keydown.enter", js_handler="(e) => e.target.blur()"
        )
        parts.choice("Status", STATUSES, query.get("status"), put("status"), clearable=True)


async def _listed(desk: Desk) -> Safe:
    query = desk.query
    found = await desk.get(
        "/api/runs",
        page=query.get("page", 1),
        pageSize=PAGE_SIZE,
        status=query.get("status"),
        model=query.get("model"),
        suite=query.get("suite"),
        text=query.get("text"),
        outcomes=True,
    )
    columns = (
        Column("Run", head=True),
        Column("Models"),
        Column("Status"),
        Column("Passed", number=True),
        Column("Results", number=True),
        Column("Begun"),
    )
    rows = [_row(run) for run in found.data]
    return join([table("Runs, newest first", columns, rows, hidden=True), pager(found.meta, desk.here, "runs")])


def _row(run: dict[str, Any]) -> tuple[Safe | str, ...]:
    to = address(f"/runs/{run['id']}")
    return (
        join([link(to, foreign(run["suite"], 80)), tag("small", run["id"], class_="mono quiet")], " "),
        join((foreign(each, 80) for each in run["models"]), ", "),
        str(run["status"]),
        percent(run.get("passRate")) if run.get("passRate") is not None else "–",
        f"{run['stored']:,} of {run['expected']:,}",
        when(run["createdAt"]),
    )
