"""Suites: their versions, hashes and cases."""

import asyncio
from collections.abc import Mapping, Sequence
from io import BytesIO, TextIOWrapper
from typing import Any

from nicegui import ui

from pramana.analyse.numbers import counted
from pramana.app.runs import create_run
from pramana.app.suites import CaseFilter, ListedView, TierView, list_cases, list_suites, read_suite, upload_suite
from pramana.errors import Problem, fold_repeats
from pramana.report.markup import Column, Safe, facts, foreign, join, link, pager, table, tag, when
from pramana.show.api.envelope import page_meta
from pramana.show.web.kit import Desk, Refused, address, frame, part, parts
from pramana.show.web.kit.forms import Pick, picker
from pramana.show.web.pages import asking

PAGE_SIZE = 25
ORIGINS = {"built-in": "built in", "published": "published into the data folder", "uploaded": "uploaded"}


@frame.page("/suites", "Suites")
async def suites(desk: Desk) -> None:
    """Show every version, and a way to add one."""
    frame.head("Suites", "Test cases with a version and a hash. A version never changes.")
    listed = ui.html("").on("click", js_handler=parts.COPY)

    async def again() -> None:
        listed.set_content(join(_version(desk, each) for each in await desk.call(list_suites)))

    await again()
    if desk.may(upload_suite):
        _Uploading(desk)
    desk.when_new({"suite"}, again)


def _version(desk: Desk, suite: ListedView) -> Safe:
    version = suite.version
    return tag(
        "section",
        tag("h2", link(_page_of(version), foreign(version))),
        tag("p", ORIGINS[suite.origin], class_="quiet"),
        _tiers(version, suite.tiers, may_run=desk.may(create_run)),
    )


def _tiers(version: str, tiers: Mapping[str, TierView], *, may_run: bool = True) -> Safe:
    columns = (
        Column("Tier", head=True),
        Column("Cases", number=True),
        Column("Tokens, estimated", number=True),
        Column("Meant for"),
        Column("Hash"),
        Column("Actions"),
    )
    rows = [
        (
            link(address(_page_of(version), tier=name), foreign(name)),
            f"{tier.test_count:,}",
            f"{tier.estimated_tokens:,}",
            foreign(tier.use_case) if tier.use_case else "–",
            _hash(tier.hash, f"{version} {name}"),
            tag(
                "a", "Run this tier", href=address("/runs/new", suite=version, tier=name), class_="act",
                aria_label=f"Run tier {name} of {version}",
            )
            if may_run
            else "–",
        )
        for name, tier in tiers.items()
    ]  # fmt: skip
    return table(f"Tiers of {version}", columns, rows, hidden=True)


def _hash(found: str, of: str) -> Safe:
    copy = tag(
        "button", "Copy", type="button", class_="native plain", data_copy=found, aria_label=f"Copy the hash of {of}"
    )
    return tag("span", tag("span", found, class_="mono"), copy, class_="hash")


def _page_of(version: str) -> str:
    return f"/suites/{version}"


# ── One version ──


@frame.page("/suites/{version}", "Suite")
async def suite(desk: Desk) -> None:
    """Show what a version holds, and the cases of one of its tiers."""
    found = await desk.call(read_suite, desk.path["version"])
    version, tiers = found.version, found.tiers
    frame.titled(f"Suite {version}")
    about = tag("span", ORIGINS[found.origin], *([", ", when(found.created_at)] if found.created_at else []))
    frame.head(foreign(version), about, crumbs=(("/suites", "Suites"),))
    parts.show(_tiers(version, tiers, may_run=desk.may(create_run))).on("click", js_handler=parts.COPY)
    kinds = (("Categories", ", ".join(found.categories)), ("Assertions", ", ".join(found.assertion_types)))
    parts.show(facts(kinds))
    tier = desk.query.get("tier") or next(iter(tiers))
    parts.heading(f"Cases of {tier}")
    with parts.box("search row"):
        parts.search(
            desk.query.get("text", ""),
            "ID or prompt",
            lambda text: ui.navigate.to(address(_page_of(version), tier=tier, text=text)),
        )
        parts.link_button("Download", address(f"/api/suites/{part(version)}/{part(tier)}", format="jsonl"))
    parts.show(await _cases(desk, version, tier))


async def _cases(desk: Desk, version: str, tier: str) -> Safe:
    wanted = desk.asked(CaseFilter, page_size=PAGE_SIZE)
    found = await desk.call(list_cases, version, tier, wanted)
    if not found.items:
        return tag(
            "p",
            "No cases match. ",
            link(address(_page_of(version), tier=tier), "Show all"),
        )
    return join(
        [
            tag("div", map(_case, found.items), class_="cases"),
            pager(
                page_meta(wanted.page, PAGE_SIZE, found.total), lambda page: desk.here(tier=tier, page=page), "cases"
            ),
        ]
    )


def _case(case: dict[str, Any]) -> Safe:
    asked = case["input"] if isinstance(case["input"], str) else case["input"][-1]["content"]
    about = f"{case['category']}, {case['metadata']['difficulty']}, about {case['metadata']['tokens_est']:,} tokens"
    return tag(
        "details",
        tag("summary", tag("span", foreign(case["id"], 120), class_="mono"), " ", asking.beginning(asked, 120)),
        tag("p", about, class_="quiet small"),
        asking.of_case(case),
    )


# ── A new version ──


class _Uploading:
    """What adds a version: its name, and a file for each tier."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._tiers: dict[str, bytes] = {}
        parts.heading("Upload a version")
        with parts.box("stack"):
            parts.paragraph(
                "A .jsonl file is a tier, and gives it its name. What was uploaded never changes.", quiet=True
            )
            with parts.box("search"):
                self._version = parts.field(
                    "Version", hint="letters, digits, dots, hyphens and underscores, as in team-1.0"
                )
            with parts.box("row"):
                picker("Choose .jsonl files", (".jsonl",), self._picked)
            self._listed = ui.html("")
            self._said = ui.html("").props("role=alert")
            with parts.box("row"):
                parts.button("Upload", self._upload, "primary")
        self._list({})

    async def _picked(self, pick: Pick) -> None:
        """Take the files in the place of those that were chosen before."""
        failed = [*((name, "it is no .jsonl file") for name in pick.ignored), *pick.failed]
        tiers, counts = {}, {}
        for each in pick.files:
            tier = each.name.rpartition("/")[2][: -len(".jsonl")]
            try:
                counts[tier] = await asyncio.to_thread(_cases_in, each.data)
            except UnicodeDecodeError:
                failed.append((each.name, "it is no text in UTF-8"))
            else:
                tiers[tier] = each.data
        self._tiers = tiers
        self._list(counts, failed)

    def _list(self, counts: Mapping[str, int], failed: Sequence[tuple[str, str]] = ()) -> None:
        tiers = [tag("li", tag("b", foreign(name)), f": {counted(count, 'line')}") for name, count in counts.items()]
        not_taken = [tag("li", foreign(name, 200), f": {why}") for name, why in failed]
        chosen = tag("ul", tiers, class_="plain-list") if tiers else tag("p", "No file is chosen yet.", class_="quiet")
        left_out = join([tag("p", "Left out:"), tag("ul", not_taken, class_="ids small")]) if not_taken else None
        self._listed.set_content(join([chosen, left_out]))
        self._said.set_content("")

    async def _upload(self) -> None:
        if not self._tiers:
            parts.tell("Choose a .jsonl file first", "warning")
            return
        tiers = {name: data.decode() for name, data in self._tiers.items()}
        try:
            done = await self._desk.call(upload_suite, self._version.value, tiers)
        except Refused as error:
            self._said.set_content(_refused(error))
            return
        ui.navigate.to(_page_of(done.suite.version))


def _refused(error: Refused) -> Safe:
    """Return why an upload was refused: each mistake once, with its count and its first place."""
    found = f"{counted(len(error.problems), 'error')}." if error.problems else foreign(str(error))
    words = join(["Not uploaded: ", found])
    if error.status == 409:
        why = "Runs are compared by the version and hash of their suite, so what is under a name must never change."
        return tag("div", tag("p", words), tag("p", why), class_="warn trouble")
    places = [
        tag("li", tag("span", _place(each.first), class_="mono"), " ", foreign(each.first.message), each.times)
        for each in fold_repeats(error.problems)
    ]
    return tag(
        "div", tag("p", words), tag("ul", places, class_="small plain-list") if places else None, class_="warn trouble"
    )


def _place(problem: Problem) -> str:
    """Return where in which file something is wrong.

    >>> _place(Problem("", "[1].category", 2, 35, "smoke.jsonl")), _place(Problem("", "version"))
    ('smoke.jsonl:2:35', 'version')
    """
    found = (problem.file or problem.path, problem.line, problem.column)
    return ":".join(str(each) for each in found if each)


def _cases_in(data: bytes) -> int:
    """Return how many lines of a file hold something; what is no text in UTF-8 is a UnicodeDecodeError.

    By the line: a single call about megabytes would hold up the event loop from another thread as well.
    """
    return sum(not line.isspace() for line in TextIOWrapper(BytesIO(data), "utf-8", newline="\n"))
