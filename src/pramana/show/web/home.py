"""Home: what needs attention, the newest runs, and how models do over time; in an empty store, the way to a first run.

It grows as runs arrive, from whomever.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from nicegui import ui

from pramana.show.figures import duration
from pramana.show.web import frame, parts, welcome
from pramana.show.web.desk import Desk, Refused, address
from pramana.show.web.markup import Column, Safe, foreign, interval_text, join, link, rate_text, table, tag, when
from pramana.show.web.runs import status
from pramana.show.web.trends import Point, rate_trend, time_trend

NEWEST = 8
LOOKED_AT = 50
"""Of how many of the newest runs trouble is still news."""
MODELS = 6
"""How many models are shown over time: those of the newest runs."""
PAST = 30
"""Runs of a model that are drawn."""
Data = dict[str, Any]


@frame.page("/", "Home")
async def home(desk: Desk) -> None:
    """Show what is new."""
    beside = frame.head("Pramana", "How good is it, which of two is better, has it changed?")
    newcomer = welcome.Welcome(desk)

    @ui.refreshable
    async def shown() -> None:
        runs = (await desk.get("/api/runs", pageSize=LOOKED_AT, outcomes=True)).data
        if not runs:
            await newcomer.show()
            return
        if not beside.default_slot.children:
            with beside:
                parts.link_button("New run", "/runs/new", "primary")
        await _attention(desk, runs)
        _newest(runs[:NEWEST])
        await _models(desk, runs)

    await shown()

    async def again() -> None:
        if not newcomer.busy:  # what it tells would be gone
            with suppress(Refused):  # the page stays as it is, until there is news again
                await shown.refresh()

    desk.when_new({"run"}, again)


# ── The newest runs ──


def _newest(runs: Sequence[Data]) -> None:
    columns = (
        Column("Run", head=True),
        Column("Models"),
        Column("Status"),
        Column("Passed", number=True),
        Column("Results", number=True),
        Column("Begun"),
    )
    parts.show(
        join(
            [
                tag("h2", "Newest runs"),
                table("Newest runs", columns, map(_row, runs), hidden=True),
                tag("p", link("/runs", "All runs"), class_="pager"),
            ]
        )
    )


def _row(run: Data) -> tuple[Safe | str, ...]:
    return (
        link(address(f"/runs/{run['id']}"), foreign(run["suite"], 80)),
        tag("span", join((foreign(each, 80) for each in run["models"]), ", ")),
        status(run),
        rate_text(run.get("passRate"), run.get("interval")),
        f"{run['stored']:,} of {run['expected']:,}",
        when(run["createdAt"]),
    )


# ── Models over time ──


async def _models(desk: Desk, runs: Iterable[Data]) -> None:
    names = list(dict.fromkeys(model for run in runs for model in run["models"]))[:MODELS]
    pasts = await asyncio.gather(*(desk.get("/api/models/history", model=name, limit=PAST) for name in names))
    cards = [_card(past.data) for past in pasts if past.data["runs"]]
    if cards:
        parts.show(join([tag("h2", "Models over time"), tag("div", cards, class_="grid even")]))


def _card(past: Data) -> Safe:
    """Return how a model did in its newest runs of the same cases, asked in the same way: others are no measure."""
    newest = past["runs"][-1]
    same = [each for each in past["runs"] if _series(each) == _series(newest)]
    rated = [each for each in same if each["passRate"] is not None]
    timed = [each for each in same if each["latencyMs"]["median"] is not None]
    way = "" if newest["variant"] == "text" else f", {newest['variant']}"
    count = "one run" if len(same) == 1 else f"{len(same):,} runs"
    drawn: list[Safe] = []
    if rated:
        last = rated[-1]
        rate = f"{last['passRate'] * 100:.1f} %", f"95 % interval {interval_text(last['interval'])}"
        drawn += [
            _figure("Pass rate", *rate),
            rate_trend([Point(each["passRate"], *(each["interval"] or (None, None))) for each in rated]),
        ]
    else:
        drawn.append(tag("p", "No result has a verdict yet.", class_="quiet"))
    if timed:
        last = timed[-1]["latencyMs"]
        drawn += [
            _figure("Latency", duration(last["median"] / 1000), f"median of {last['count']:,}"),
            time_trend([Point(each["latencyMs"]["median"] / 1000) for each in timed]),
        ]
    about = tag("p", foreign(newest["suite"], 80), f"{way}, {count}", class_="quiet small")
    return tag(
        "section",
        tag("h3", link(address("/runs", model=past["model"]), foreign(past["model"], 80)), class_="card-title"),
        about,
        drawn,
        class_="card stack",
        aria_label=past["model"][:80],
    )


def _series(point: Data) -> tuple[Any, ...]:
    return point["suite"], point["suiteHash"], point["variant"]


def _figure(name: str, value: str, note: str) -> Safe:
    return tag("p", name, " ", tag("strong", value, class_="number"), " ", tag("span", note, class_="quiet small"))


# ── What needs attention ──


async def _attention(desk: Desk, runs: Sequence[Data]) -> None:
    weights, health = await asyncio.gather(desk.get("/api/weights"), desk.get("/api/health"))
    found = [line for run in runs if (line := _trouble(run))]
    if health.data["apiOnly"] and any(run["status"] == "queued" for run in runs):
        found.append(
            join(["Runs are queued, and this server carries none out. ", "Start another one without --api-only."])
        )
    missing = [each for each in weights.data if not each["present"] and not each["optional"]]
    if not found and not missing:
        return
    parts.heading("What needs attention")
    with parts.box("stack"):
        if found:
            parts.show(tag("ul", (tag("li", line) for line in found[:NEWEST]), class_="lines"))
        if len(found) > NEWEST:
            parts.paragraph(f"And {len(found) - NEWEST:,} more among the last {len(runs):,} runs.", quiet=True)
        for each in missing:
            welcome.Download(desk, each).show()


def _trouble(run: Data) -> Safe | None:
    """Return what is wrong with a run and what to do, in a line; None where all is well."""
    named = link(address(f"/runs/{run['id']}"), foreign(run["suite"], 80))
    about = join([named, " on ", join((foreign(each, 60) for each in run["models"][:3]), ", ")])
    if run["status"] == "interrupted":
        return join([about, " was interrupted. Resume it on its page: what is stored stays."])
    if run["status"] == "stopped":
        why = join([": ", foreign(run["reason"].rstrip(" ."), 300)]) if run["reason"] else None
        return join([about, " has stopped", why, ". Mend that, and resume it on its page."])
    errored = (run.get("outcomes") or {}).get("errored", 0)
    if errored:
        said = "1 result is an error" if errored == 1 else f"{errored:,} results are errors"
        to = link(address(f"/runs/{run['id']}", outcome="errored") + "#results", "See why")
        return join([about, f": {said}, and no verdict on the model. ", to, "."])
    return None
