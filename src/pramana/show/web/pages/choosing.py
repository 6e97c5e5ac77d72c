"""Which two are compared: lists of the recent runs and of their models, filled in with what the address has.

What is not chosen is suggested: the newest run, and against it the run before of the same cases, or else another of its
own models. Where only the run before is named, it is the newest other run of the same cases, never one of others. What
was chosen becomes an address.
"""

from nicegui import ui

from pramana.app.runs import RunFilter, list_runs, read_run
from pramana.app.views import RunView
from pramana.report.figures import percent, printable
from pramana.show.web.kit import parts
from pramana.show.web.kit.desk import Desk, Refused, address
from pramana.store.queue import UNDER_WAY

RECENT = 50
"""Runs to choose from."""
_SIDES = {"base": "before", "new": "now"}


async def one_run(desk: Desk, named: str) -> RunView:
    """Return a run by its id, the beginning of one, or as the latest."""
    return await desk.call(read_run, named, summary=False)


async def chooser(desk: Desk, *, both: bool) -> None:
    """Put the lists to choose from; `both` says that the address names two already."""
    parts.heading("Compare something else" if both else "Choose two")
    listed = (await desk.call(list_runs, RunFilter(page_size=RECENT, outcomes=True))).items
    if not listed:
        with parts.empty("There is no run yet", "A comparison needs two runs of the same cases, or one of two models."):
            parts.link_button("New run", "/runs/new", "primary")
        return
    choosing = _Choosing({run.id: run for run in listed}, dict(desk.query))
    for which in _SIDES:
        if named := desk.query.get(which):
            try:
                choosing.choose(which, choosing.runs.get(named) or await one_run(desk, named))
            except Refused as error:
                if not both:  # else it was told above
                    parts.trouble(error)
    if not choosing.chosen:
        choosing.choose("new", listed[0])
    for missing in _SIDES.keys() - choosing.chosen.keys():
        words = await _suggest(desk, choosing, missing)
        if not both:
            parts.paragraph(words, quiet=True)
    _form(choosing)


async def _suggest(desk: Desk, choosing: "_Choosing", missing: str) -> str:
    """Choose the side that was not named, where there is one that was asked the same; return what to say of it."""
    (named,) = choosing.chosen.values()
    before = missing == "base"
    found, of = await _like(desk, named, before=before)
    if found or len(named.models) > 1:
        choosing.choose(missing, found or named)
        other = "the run before it of the same cases" if before else "the newest other run of the same cases"
        return f"Suggested: {other if found else 'two models of the same run'}."
    return f"No {'run before it' if before else 'other run'} was asked the same{of}. Choose what to compare it with."


async def _like(desk: Desk, run: RunView, *, before: bool) -> tuple[RunView | None, str]:
    """Return the newest other run that was asked the same, or the newest before it; and among which, if not all."""
    if run.cases_digest is None:  # it is gone
        return None, ""
    listed = await desk.call(list_runs, RunFilter(suite=run.suite, page_size=RECENT, outcomes=True))
    for each in listed.items:
        same = each.cases_digest == run.cases_digest and each.id != run.id
        fits = not before or each.created_at < run.created_at
        if same and fits and each.status not in UNDER_WAY:
            return each, ""
    return None, f", among the newest {RECENT} of this suite" if listed.total > RECENT else ""


class _Choosing:
    """What is chosen, until it becomes an address."""

    def __init__(self, runs: dict[str, RunView], query: dict[str, str]) -> None:
        self.runs = runs
        self.chosen: dict[str, RunView] = {}
        self.model: dict[str, str | None] = {
            "base": query.get("model"),
            "new": query.get("newModel") or query.get("model"),
        }
        self._named = "newModel" in query

    def choose(self, which: str, run: RunView) -> None:
        """Take a run for a side, and of its models the one that was named, or the first; of one run two."""
        self.runs[run.id] = self.chosen[which] = run
        if self.model[which] not in run.models:
            self.model[which] = run.models[0]
        same = self.chosen.get("base") == self.chosen.get("new") and self.model["base"] == self.model["new"]
        if same and len(run.models) > 1 and not self._named:  # one against itself tells nobody anything
            self.model["new"] = next(each for each in run.models if each != self.model["base"])

    def address(self) -> str:
        base, new = self.chosen["base"], self.chosen["new"]
        several = len(base.models) > 1 or len(new.models) > 1
        models = {"model": self.model["base"], "newModel": self.model["new"]} if several else {}
        return address("/compare", base=base.id, new=new.id, **models)


def _form(choosing: _Choosing) -> None:
    options = {run_id: _label(run) for run_id, run in choosing.runs.items()}

    @ui.refreshable
    def model(which: str) -> None:
        some = choosing.chosen[which].models if which in choosing.chosen else ()
        if len(some) > 1:
            parts.choice(
                f"Model {_SIDES[which]}",
                {each: printable(each[:80]) for each in some},
                choosing.model[which],
                lambda value: choosing.model.update({which: value}),
            ).classes("wide")

    def put(which: str) -> None:
        def chosen(value: str) -> None:
            choosing.choose(which, choosing.runs[value])
            model.refresh()

        now = choosing.chosen.get(which)
        parts.choice(f"Run {_SIDES[which]}", options, now and now.id, chosen).classes("wide")
        model(which)

    def go() -> None:
        if choosing.chosen.keys() == _SIDES.keys():
            ui.navigate.to(choosing.address())
        else:
            parts.tell("Choose a run on both sides.", "warning")

    with parts.box("stack wide"):
        with parts.box("halves"):
            for which in _SIDES:
                with parts.box("stack"):
                    put(which)
        with parts.box("row"):
            parts.button("Compare", go, "primary")


def _label(run: RunView) -> str:
    """Return a run for a list to choose from."""
    models = ", ".join(each[:40] for each in run.models[:3]) + (" …" if len(run.models) > 3 else "")
    rate, several = run.pass_rate, len(run.models) > 1  # a rate over several models would be nobody's
    end = f" · {len(run.models)} models" if several else f" · {percent(rate)} passed" if rate is not None else ""
    return printable(f"{run.suite[:60]} · {models} · {run.created_at[:16].replace('T', ' ')}{end}")
