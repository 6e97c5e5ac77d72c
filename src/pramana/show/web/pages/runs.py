"""The list of runs: newest first, with filters, growing as runs arrive from whomever and moving while they run.

Filters stand in the address, so that a list can be shared. What is new is put into the rows that are there: whoever
reads, or walks through the links by keyboard, stays where they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import asdict
from nicegui import ui

from pramana.app.runs import RunFilter, create_run, list_runs
from pramana.app.views import Listed, RunView
from pramana.report.figures import selection
from pramana.report.markup import (
    Safe,
    foreign,
    join,
    link,
    marked,
    meter,
    outcome,
    pager,
    rate_bar,
    rate_text,
    tag,
    when,
)
from pramana.show.api.envelope import page_meta
from pramana.show.web.kit import Desk, Refused, address, frame, parts
from pramana.show.web.kit.forms import suggest
from pramana.store.queue import UNDER_WAY

PAGE_SIZE = 50
LOOK_S = 1.0
"""How often the list is read again while something on it is under way."""
TYPED_MS = 400
"""After so long without a key, what was typed is looked for."""
STATUSES: Mapping[str, tuple[str, str]] = {
    "queued": ("…", ""),
    "running": ("▸", "running"),
    "finished": ("✓", ""),
    "stopped": ("!", "errored"),
    "interrupted": ("!", "errored"),
    "cancelled": ("–", "skipped"),
}
"""The sign of each status, and the class of its colour; its word always stands beside."""
FILTERS = ("text", "status", "model", "suite")
COLUMNS = ("Run", "Models", "Status", "Passed", "Results", "Started (UTC)")


@frame.page("/runs", "Runs")
async def runs(desk: Desk) -> None:
    """Show the runs that pass the filters of the address."""
    listed = _Listed(desk)
    found = await listed.ask()
    with frame.head("Runs", "All runs from the command line, the API and this workbench."):
        if desk.may(create_run):
            parts.link_button("New run", "/runs/new", "primary")
    listed.draw(found)
    desk.when_new({"run"}, listed.again)


class _Listed:
    """A page of the list, as somebody looks at it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._wanted: dict[str, str | None] = {name: desk.query.get(name) for name in (*FILTERS, "page")}
        self._asked = 0

    def value(self, name: str) -> str:
        return self._wanted[name] or ""

    def here(self, **changed: Any) -> str:
        """Return the address of this list, with something of it changed."""
        return address("/runs", **{**self._wanted, **changed})

    async def ask(self) -> Listed[RunView]:
        wanted = self._desk.asked(RunFilter, self._wanted, page_size=PAGE_SIZE, outcomes=True)
        return await self._desk.call(list_runs, wanted)

    async def filter(self, name: str, value: str | None) -> None:
        """Change a filter, and the address with it; the list begins anew."""
        value = (value or "").strip() or None
        if value != self._wanted[name]:
            self._wanted |= {name: value, "page": None}
            ui.navigate.history.replace(self.here())
            await self.again()

    # ── On the page ──

    def draw(self, found: Listed[RunView]) -> None:
        """Put the filters and the list on the page."""
        self._filters = _filters(self, found.items)
        self._stale = parts.show(Safe("")).props("role=status")
        self._place = ui.element("div")
        self._table: Table | None = None
        self._pager = parts.show(Safe("")).props("aria-live=polite")
        self._clock = ui.timer(LOOK_S, self.again, active=False, immediate=False)
        self._show(found)

    async def again(self) -> None:
        """Read the list again, and put what has changed on the page; an older answer never replaces a newer one."""
        self._asked += 1
        asked = self._asked
        try:
            found = await self.ask()
        except Refused as error:
            if asked == self._asked:
                self._stale.set_content(tag("p", foreign(parts.sentence(error)), class_="warn trouble"))
            return
        if asked == self._asked and not self._place.is_deleted:
            self._stale.set_content("")
            self._show(found)

    def _show(self, found: Listed[RunView]) -> None:
        if found.items:
            if self._table is None:
                with parts.redrawn(self._place):
                    self._table = Table("Runs, newest first", COLUMNS, "Compare")
            self._table.put({run.id: _row(run) for run in found.items})
        else:
            self._table = None
            with parts.redrawn(self._place):
                self._nothing(found.total)
        self._filters.set_visibility(bool(found.total or any(self._wanted[name] for name in FILTERS)))
        self._pager.set_content(
            pager(page_meta(int(self._wanted["page"] or 1), PAGE_SIZE, found.total), self.here, "runs")
            if found.items
            else ""
        )
        self._clock.active = any(run.status in UNDER_WAY for run in found.items)

    def _nothing(self, total: int) -> None:
        if total:
            with parts.empty("This page is empty", f"There are {total:,} runs, on earlier pages."):
                parts.link_button("First page", self.here(page=None))
        elif any(self._wanted[name] for name in FILTERS):
            with parts.empty("No runs match", "No run matches all of these filters."):
                parts.link_button("Clear filters", "/runs")
        else:
            about = "A run sends test cases or scenarios to models and checks their replies."
            with parts.empty("No runs yet", about):
                if self._desk.may(create_run):
                    parts.link_button("New run", "/runs/new", "primary")
                command = tag("code", "pramana run", class_="mono")
                parts.show(tag("span", "or, in a terminal: ", command, class_="quiet"))


def _filters(listed: _Listed, found: Sequence[RunView]) -> ui.element:
    with parts.box("filters", role="search", label="Runs") as made:
        searched = partial(listed.filter, "text")
        parts.field("Search", listed.value("text"), searched).props(f"debounce={TYPED_MS}")
        chosen = partial(listed.filter, "status")
        parts.choice("Status", list(STATUSES), listed.value("status") or None, chosen, clearable=True)
        _named(listed, "model", "Model", (model for run in found for model in run.models))
        _named(listed, "suite", "Suite", (run.suite for run in found))
    return made


def _named(listed: _Listed, name: str, label: str, known: Iterable[str]) -> None:
    """Put a field for a name as it was typed in the run; those on the page are suggested."""
    made = parts.field(label, listed.value(name))
    made.on("change", lambda event: parts.guarded(listed.filter)(name, event.args))
    suggest(made, known)


# ── The table ──


class Table:
    """A table whose rows change while they are looked at: only cells that differ are drawn anew.

    `aside` names a last column for those who do not see that it needs no name.
    """

    def __init__(self, caption: str, columns: Sequence[str], aside: str | None = None) -> None:
        self._columns = columns
        self._rows: dict[str, tuple[ui.element, list[ui.html]]] = {}
        with ui.element("table").classes("data folds runs"):
            ui.html(caption, tag="caption").classes("visually-hidden")
            with ui.element("thead"), ui.element("tr"):
                for each in columns:
                    ui.html(each, tag="th").props("scope=col")
                if aside:
                    ui.html(tag("span", aside, class_="visually-hidden"), tag="th").props("scope=col")
            self._body = ui.element("tbody")

    def put(self, rows: Mapping[str, Sequence[Safe]]) -> None:
        """Show these rows in this order; the order of those that were there already does not change."""
        for gone in self._rows.keys() - rows.keys():
            self._rows.pop(gone)[0].delete()
        for place, (key, cells) in enumerate(rows.items()):
            if key in self._rows:
                for shown, cell in zip(self._rows[key][1], cells, strict=True):
                    shown.set_content(cell)
                continue
            with self._body, ui.element("tr") as row:
                self._rows[key] = row, [self._put(at, cell) for at, cell in enumerate(cells)]
            if place < len(self._rows) - 1:
                row.move(target_index=place)

    def _put(self, at: int, cell: Safe) -> ui.html:
        if at == 0:
            return ui.html(cell, tag="th").props("scope=row")
        made = ui.html(cell, tag="td")
        if at < len(self._columns):
            made.props["data-label"] = self._columns[at]
        return made


def _row(run: RunView) -> tuple[Safe, ...]:
    compared = f"Compare {run.id} with another run"
    chosen = selection(run.selection)
    by = foreign(run.creator, 80) if run.creator else "the command line"
    return (
        _cell(
            link(address(f"/runs/{run.id}"), foreign(run.name or run.suite, 200)),
            tag("small", foreign(run.suite, 200), class_="quiet clip") if run.name else None,
            tag("small", foreign(run.note, 200), class_="quiet clip") if run.note else None,
            tag("small", foreign(chosen, 200), class_="quiet clip") if chosen else None,
            tag("small", run.id, class_="mono quiet"),
        ),
        _whom(run),
        status(run),
        passed(run),
        _progress(run),
        _cell(when(run.created_at), tag("small", "by ", by, class_="quiet")),
        tag("a", "Compare", href=address("/compare", new=run.id), aria_label=compared),
    )


def _whom(run: RunView) -> Safe:
    how = [] if run.variants == ("text",) else [join((foreign(each, 80) for each in run.variants), ", ")]
    if run.repeats > 1:
        how.append(Safe(f"{run.repeats:,} repeats"))
    return _cell(
        *(foreign(each, 200) for each in run.models[:4]),
        f"and {len(run.models) - 4} more" if len(run.models) > 4 else None,
        tag("small", join(how, "; "), class_="quiet") if how else None,
    )


def status(run: RunView) -> Safe:
    """Return how a run stands: its sign, its word, and why it did not come to its end."""
    return _cell(
        standing(run),
        tag("small", foreign(run.reason, 300), class_="quiet") if run.reason else None,
    )


def standing(run: RunView) -> Safe:
    """Return the sign and the word of how a run stands, within a line."""
    named = str(run.status)
    sign, colour = STATUSES[named]
    word = "cancelling" if run.cancel_requested and named in UNDER_WAY else named
    return marked(sign, word, colour)


def passed(run: RunView) -> Safe:
    """Return how much of a run passed; of several models how many results ended how: their rate would be nobody's."""
    counts = asdict(run.outcomes) if run.outcomes else {}
    if not any(counts.values()):
        return tag("span", "–", class_="quiet")
    undecided = [outcome(name, counts[name]) for name in ("errored", "unscored", "skipped") if counts[name]]
    if len(run.models) > 1:
        decided = [outcome(name, counts[name]) for name in ("passed", "failed")]
        return _cell(tag("small", join(decided + undecided, " "), class_="undecided"))
    return _cell(
        rate_text(run.pass_rate, run.interval),
        rate_bar(run.pass_rate, run.interval) if run.pass_rate is not None else None,
        tag("small", join(undecided, " "), class_="undecided") if undecided else None,
    )


def _progress(run: RunView) -> Safe:
    counted = tag("span", f"{run.stored:,} of {run.expected:,}", class_="number")
    if run.status not in UNDER_WAY:
        return counted
    return _cell(counted, meter(f"Results of {run.id}", round(100 * run.progress)))


def _cell(*some: Safe | str | None) -> Safe:
    """Return things one below the other, within a cell."""
    return tag("div", (tag("div", each) for each in some if each is not None), class_="cell")
