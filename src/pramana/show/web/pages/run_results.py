"""The results of a run as a table by the page, what it is filtered by, and the plan that the run follows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from nicegui import ui

from pramana.analyse.summary import Total
from pramana.app.suites import ListedView
from pramana.app.views import LimitsView, PlanView, ResultView, RunDetailView, TargetView
from pramana.report import figures
from pramana.report.markup import (
    Child,
    Column,
    Safe,
    block,
    facts,
    foreign,
    join,
    link,
    outcome,
    pager,
    pretty,
    table,
    tag,
)
from pramana.report.selection import MARK
from pramana.request import SAMPLING
from pramana.show.api.envelope import sent_as
from pramana.show.api.runs import USUAL
from pramana.show.web.kit import Desk, address, parts
from pramana.store.queue import UNDER_WAY

PAGE_SIZE = 50
SHOWN = 300
"""Characters of an answer, or of why, that a row may hold; two lines of them are seen."""
OUTCOMES = ["passed", "failed", "errored", "unscored", "skipped"]


def filters(desk: Desk, run: RunDetailView) -> None:
    """Put what a table of results is filtered by; it stands in the address."""
    query = desk.query

    def put(name: str) -> Any:
        return lambda value: ui.navigate.to(f"{desk.here(**{name: value, 'page': None})}#results")

    with parts.box("filters", role="search", label="Filters of results"):
        parts.choice("Outcome", OUTCOMES, _known(query.get("outcome"), OUTCOMES), put("outcome"), clearable=True)
        if len(run.models) > 1:
            parts.choice(
                "Model", list(run.models), _known(query.get("model"), run.models), put("model"), clearable=True
            )
        case = parts.field("Case", query.get("case", ""), hint="its whole id; Enter finds it")
        case.on("keydown.enter", lambda: put("case")((case.value or "").strip() or None))
        if any(query.get(name) for name in ("outcome", "model", "case")):
            parts.link_button("Show all", f"{desk.here(outcome=None, model=None, case=None, page=None)}#results")


def _known(value: str | None, among: Sequence[str]) -> str | None:
    return value if value in among else None


def table_of(desk: Desk, run: RunDetailView, found: Sequence[ResultView]) -> Safe:
    """Return a page of results; each leads to itself, and knows which outcome was wanted."""
    if found:
        return rows(desk.address, run, found, desk.query.get("outcome"))
    if any(desk.query.get(name) for name in ("outcome", "model", "case")):
        return tag("p", "No result passes these filters.", class_="quiet")
    waiting = run.status in UNDER_WAY
    return tag("p", "None yet: they come as they are answered." if waiting else "There are none.", class_="quiet")


def pages(desk: Desk, meta: Mapping[str, Any]) -> Safe:
    """Return which page of results this is, and the ways to others."""
    return pager(meta, lambda **changed: f"{desk.here(**changed)}#results", "results")


def rows(where: str, run: RunDetailView, found: Iterable[ResultView], wanted: str | None = None) -> Safe:
    """Return results as a table."""
    several = len(run.models) > 1 or len(run.variants) > 1 or run.repeats > 1
    columns = (
        Column("Outcome"),
        Column("Case", head=True),
        *((Column("Of"),) if several else ()),
        Column("Answer"),
        Column("Why"),
        Column("Time", number=True),
        Column("Cost", number=True),
    )
    made = (_row(where, run, each, wanted, several=several) for each in found)
    return tag("div", table("Results", columns, made, hidden=True), class_="results")


def _row(where: str, run: RunDetailView, each: ResultView, wanted: str | None, *, several: bool) -> tuple[Child, ...]:
    to = address(f"{where}/results/{each.seq}", outcome=wanted)
    said = _excerpt(each.output) if each.output is not None else tag("i", "no answer", class_="quiet")
    return (
        outcome(each.outcome),
        link(to, foreign(each.case_id, 120)),
        *((foreign(which(run, each), 160),) if several else ()),
        said,
        _excerpt(each.reason) if each.reason else "",
        took(each),
        cost(each),
    )


def which(run: RunDetailView, each: ResultView) -> str:
    """Return what tells a result from others of its case: model, variant and repeat, each where it may differ."""
    parts_of_it = [each.model] if len(run.models) > 1 else []
    parts_of_it += [each.variant] if len(run.variants) > 1 else []
    parts_of_it += [f"repeat {each.repeat + 1}"] if run.repeats > 1 else []
    return ", ".join(parts_of_it)


def _excerpt(words: str) -> Safe:
    shown = words if len(words) <= SHOWN else f"{words[:SHOWN]}…"
    return tag("span", foreign(" ".join(shown.split())), class_="clip") if shown.strip() else tag("i", "empty")


def took(each: ResultView) -> str:
    """Return how long a result took, in words where it was not asked for."""
    return "from the cache" if each.cached else figures.duration(each.latency_seconds)


def cost(each: ResultView) -> str:
    """Return what a result has cost; of no answer nothing is said."""
    if each.output is None:
        return "–"
    return "unknown" if each.cost_usd is None else figures.money(Total(each.cost_usd, 0))


# ── The plan ──


def plan(run: RunDetailView) -> Safe:
    """Return what a run does, folded away."""
    of = run.plan
    said: list[tuple[str, Child]] = [("Suite", foreign(run.suite))]
    said += [("Suite hash", tag("span", run.suite_hash, class_="mono"))] if run.suite_hash else []
    said += [("Selection", foreign(figures.selection(run.selection)))] if run.selection else []
    said.append(("Models", join((_target(each) for each in of.targets), ", ")))
    said += [(name, _target(target)) for name, key in _WHO if (target := getattr(of, key))]
    said += [("Variants", ", ".join(run.variants)), ("Repeats", str(run.repeats))]
    said += [("Caller's voice", of.voice)] if any(each != "text" for each in run.variants) else []
    said += [
        (name, _pairs(data))
        for name, data in (("Parameters", of.parameters), ("Limits", msgspec.to_builtins(run.limits)))
        if data
    ]
    said += [("Sittings", f"{run.attempts:,}")] if run.attempts > 1 else []
    said += [("Carried out by", foreign(run.holder))] if run.holder else []
    said.append(("Version", of.runner_version))
    prompt, notes = of.system_prompt, run.notes
    return tag(
        "details",
        tag("summary", "The plan: parameters, system prompt, judge, versions"),
        facts(said, "sheet"),
        join([tag("h3", "System prompt"), block(prompt, "System prompt")]) if prompt else None,
        join([tag("h3", "Notes"), pretty(notes, "Notes")]) if notes else None,
        class_="plan",
    )


_WHO = (("Judge", "judge"), ("Embedder", "embedder"), ("Speech recognition", "stt"))


def _target(target: TargetView) -> Safe:
    asked = f" ({target.provider}, {target.model})"
    return join([foreign(target.typed), tag("span", foreign(asked), class_="quiet")])


def _pairs(data: Mapping[str, Any]) -> Safe:
    return foreign(
        ", ".join(f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in data.items())
    )


# ── Once more ──

MODALITIES = {"text": "text", "voice": "voice", "voice+noise=10dB": "noisy"}
LONGEST_PROMPT, MOST_IDS, LONGEST = 1_500, 50, 16_000
"""Characters of a system prompt, ids of scenarios, and characters in all, that an address can hold."""


def again(run: RunDetailView, suites: Iterable[ListedView]) -> str | None:
    """Return the address of a new run like this one, on a server of these suites.

    None where an address cannot say all of it: a run that only resembles this one is not this one again.
    """
    who = {"model": run.models, "repeats": run.repeats if run.repeats != USUAL["repeats"] else None}
    found: dict[str, Any] = {}
    for each in (_asked(run, suites), who, _spoken(run), _sent(run.plan), _limited(run.limits)):
        if each is None:
            return None
        found |= each
    made = address("/runs/new", **found)
    return made if len(made) <= LONGEST else None


def _asked(run: RunDetailView, suites: Iterable[ListedView]) -> dict[str, Any] | None:
    """Return the tier and the scenarios that are asked; None where they are files, or a part of a tier."""
    named, selection = run.suite, dict(run.selection)
    found: dict[str, Any] = {}
    if run.owner == "server" and run.suite_hash is None:  # with scenarios of the store, so filters are theirs
        named = named.removesuffix(MARK).removesuffix("scenarios").removesuffix("+")
        found = {name: selection.pop(name, None) for name in ("type", "difficulty", "language", "tag", "text")}
        ids = selection.pop("ids", [])
        if len(ids) > MOST_IDS:
            return None
        found["scenario"] = ids if run.selection else "all"
        if not named:
            return None if selection else found
    tiers = {f"{each.version}-{name}": (each, name) for each in suites for name in each.tiers}
    if selection or named not in tiers:
        return None
    suite, tier = tiers[named]
    pinned = suite.tiers[tier].hash
    is_it = run.suite_hash == pinned or (run.suite_hash is None and run.owner == "server")
    return {"suite": suite.version, "tier": tier, **found} if is_it else None


def _spoken(run: RunDetailView) -> dict[str, Any] | None:
    """Return in which modalities cases are asked, and under which condition."""
    variants = run.variants
    if variants == ("text",):
        return {}
    if run.plan.voice != "espeak":
        return None
    if all(each in MODALITIES for each in variants):
        return {"modality": [MODALITIES[each] for each in variants]}
    aloud = [each for each in variants if each != "text"]
    if len(aloud) != 1:
        return None
    return {"modality": [each.partition("+")[0] for each in variants], "condition": aloud[0].partition("+")[2]}


def _sent(of: PlanView) -> dict[str, Any] | None:
    """Return what is sent with each case, and who judges, embeds and listens."""
    parameters, prompt = dict(of.parameters), of.system_prompt or ""
    numbers = {sent_as(each): parameters.pop(name, each.default) for name, each in SAMPLING.items()}
    if parameters or len(prompt) > LONGEST_PROMPT or any(each and float(each) != each for each in numbers.values()):
        return None
    return {
        **{key: target and target.typed for key in ("judge", "embedder", "stt") for target in [getattr(of, key)]},
        **{key: "none" if value is None else str(value) for key, value in numbers.items() if value != USUAL[key]},
        "systemPrompt": prompt,
    }


def _limited(limits: LimitsView) -> dict[str, Any] | None:
    """Return the limits that are not the usual ones."""
    found = {name: value for name, value in msgspec.to_builtins(limits).items() if value != USUAL.get(f"limits.{name}")}
    return None if "timeoutSeconds" in found else found
