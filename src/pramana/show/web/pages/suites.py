"""Suites: their versions, hashes and cases."""

import asyncio
from collections.abc import Mapping, Sequence
from io import BytesIO, TextIOWrapper
from typing import Any

from nicegui import ui

from pramana.analyse.numbers import pluralise
from pramana.app.runs import create_run
from pramana.app.suites import CaseFilter, ListedSuiteView, TierView, list_cases, list_suites, read_suite, upload_suite
from pramana.errors import Problem, fold_repeats
from pramana.report.markup import (
    Column,
    SafeHtml,
    join_html,
    render_facts,
    render_link,
    render_pager,
    render_table,
    render_time,
    render_untrusted_text,
    tag,
)
from pramana.show.api.envelope import make_page_meta
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts, quote_path_part
from pramana.show.web.kit.forms import FileSelection, add_file_picker
from pramana.show.web.pages import case_markup

PAGE_SIZE = 25
ORIGIN_LABELS = {"built-in": "built in", "published": "published into the data folder", "uploaded": "uploaded"}


@frame.register_page("/suites", "Suites")
async def show_suites_page(context: PageContext) -> None:
    """Show every version, and the form to upload one."""
    frame.add_page_heading("Suites", "Collections of test cases with a version and a hash. A version never changes.")
    listed = ui.html("").on("click", js_handler=parts.COPY_SCRIPT)

    async def refresh() -> None:
        listed.set_content(join_html(_render_version(context, each) for each in await context.call(list_suites)))

    await refresh()
    if context.may(upload_suite):
        _UploadForm(context)
    context.on_change({"suite"}, refresh)


def _render_version(context: PageContext, suite: ListedSuiteView) -> SafeHtml:
    version = suite.version
    return tag(
        "section",
        tag("h2", render_link(_make_suite_url(version), render_untrusted_text(version))),
        tag("p", ORIGIN_LABELS[suite.origin], class_="quiet"),
        _render_tiers(version, suite.tiers, may_run=context.may(create_run)),
    )


def _render_tiers(version: str, tiers: Mapping[str, TierView], *, may_run: bool = True) -> SafeHtml:
    columns = (
        Column("Tier", is_row_header=True),
        Column("Cases", is_numeric=True),
        Column("Tokens, estimated", is_numeric=True),
        Column("Meant for"),
        Column("Hash"),
        Column("Actions"),
    )
    rows = [
        (
            render_link(make_url(_make_suite_url(version), tier=name), render_untrusted_text(name)),
            f"{tier.test_count:,}",
            f"{tier.estimated_tokens:,}",
            render_untrusted_text(tier.use_case) if tier.use_case else "–",
            _render_hash(tier.hash, f"{version} {name}"),
            tag(
                "a", "Run this tier", href=make_url("/runs/new", suite=version, tier=name), class_="act",
                aria_label=f"Run tier {name} of {version}",
            )
            if may_run
            else "–",
        )
        for name, tier in tiers.items()
    ]  # fmt: skip
    return render_table(f"Tiers of {version}", columns, rows, hide_caption=True)


def _render_hash(digest: str, label: str) -> SafeHtml:
    copy = tag(
        "button", "Copy", type="button", class_="native plain", data_copy=digest, aria_label=f"Copy the hash of {label}"
    )
    return tag("span", tag("span", digest, class_="mono"), copy, class_="hash")


def _make_suite_url(version: str) -> str:
    return f"/suites/{version}"


# ── One version ──


@frame.register_page("/suites/{version}", "Suite")
async def show_suite_page(context: PageContext) -> None:
    """Show the tiers of a version, and the cases of one of them."""
    found = await context.call(read_suite, context.path["version"])
    version, tiers = found.version, found.tiers
    frame.set_window_title(f"Suite {version}")
    about = tag(
        "span", ORIGIN_LABELS[found.origin], *([", ", render_time(found.created_at)] if found.created_at else [])
    )
    frame.add_page_heading(render_untrusted_text(version), about, crumbs=(("/suites", "Suites"),))
    parts.add_markup(_render_tiers(version, tiers, may_run=context.may(create_run))).on(
        "click", js_handler=parts.COPY_SCRIPT
    )
    kinds = (("Categories", ", ".join(found.categories)), ("Assertions", ", ".join(found.assertion_types)))
    parts.add_markup(render_facts(kinds))
    tier = context.query.get("tier") or next(iter(tiers))
    parts.add_heading(f"Cases of {tier}")
    with parts.open_box("search row"):
        parts.add_search_field(
            context.query.get("text", ""),
            "ID or prompt",
            lambda text: ui.navigate.to(make_url(_make_suite_url(version), tier=tier, text=text)),
        )
        parts.add_link_button(
            "Download", make_url(f"/api/suites/{quote_path_part(version)}/{quote_path_part(tier)}", format="jsonl")
        )
    parts.add_markup(await _render_cases(context, version, tier))


async def _render_cases(context: PageContext, version: str, tier: str) -> SafeHtml:
    wanted = context.read_request(CaseFilter, page_size=PAGE_SIZE)
    found = await context.call(list_cases, version, tier, wanted)
    if not found.items:
        return tag(
            "p",
            "No cases match. ",
            render_link(make_url(_make_suite_url(version), tier=tier), "Show all"),
        )
    return join_html(
        [
            tag("div", map(_render_case, found.items), class_="cases"),
            render_pager(
                make_page_meta(wanted.page, PAGE_SIZE, found.total),
                lambda page: context.make_page_url(tier=tier, page=page),
                "cases",
            ),
        ]
    )


def _render_case(case: dict[str, Any]) -> SafeHtml:
    asked = case["input"] if isinstance(case["input"], str) else case["input"][-1]["content"]
    about = f"{case['category']}, {case['metadata']['difficulty']}, about {case['metadata']['tokens_est']:,} tokens"
    return tag(
        "details",
        tag(
            "summary",
            tag("span", render_untrusted_text(case["id"], 120), class_="mono"),
            " ",
            case_markup.render_excerpt(asked, 120),
        ),
        tag("p", about, class_="quiet small"),
        case_markup.render_case(case),
    )


# ── Upload a version ──


class _UploadForm:
    """The form that uploads a version: its name, and a file for each tier."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._tiers: dict[str, bytes] = {}
        parts.add_heading("Upload a version")
        with parts.open_box("stack"):
            parts.add_paragraph(
                "Each .jsonl file becomes a tier with the file’s name. An uploaded version never changes.", quiet=True
            )
            with parts.open_box("search"):
                self._version = parts.add_text_field(
                    "Version", hint="letters, digits, dots, hyphens and underscores, as in team-1.0"
                )
            with parts.open_box("row"):
                add_file_picker("Choose .jsonl files", (".jsonl",), self._on_files_picked)
            self._listed = ui.html("")
            self._message = ui.html("").props("role=alert")
            with parts.open_box("row"):
                parts.add_button("Upload", self._upload, "primary")
        self._show_selection({})

    async def _on_files_picked(self, selection: FileSelection) -> None:
        """Use the picked files in place of the previous ones."""
        failed = [*((name, "not a .jsonl file") for name in selection.ignored_names), *selection.failures]
        tiers, counts = {}, {}
        for each in selection.files:
            tier = each.name.rpartition("/")[2][: -len(".jsonl")]
            try:
                counts[tier] = await asyncio.to_thread(_count_lines, each.data)
            except UnicodeDecodeError:
                failed.append((each.name, "not UTF-8 text"))
            else:
                tiers[tier] = each.data
        self._tiers = tiers
        self._show_selection(counts, failed)

    def _show_selection(self, line_counts: Mapping[str, int], failures: Sequence[tuple[str, str]] = ()) -> None:
        tiers = [
            tag("li", tag("b", render_untrusted_text(name)), f": {pluralise(count, 'line')}")
            for name, count in line_counts.items()
        ]
        not_taken = [tag("li", render_untrusted_text(name, 200), f": {why}") for name, why in failures]
        chosen = tag("ul", tiers, class_="plain-list") if tiers else tag("p", "No file selected yet.", class_="quiet")
        left_out = join_html([tag("p", "Left out:"), tag("ul", not_taken, class_="ids small")]) if not_taken else None
        self._listed.set_content(join_html([chosen, left_out]))
        self._message.set_content("")

    async def _upload(self) -> None:
        if not self._tiers:
            parts.show_notification("Choose a .jsonl file first", "warning")
            return
        tiers = {name: data.decode() for name, data in self._tiers.items()}
        try:
            done = await self._context.call(upload_suite, self._version.value, tiers)
        except UseCaseRefused as error:
            self._message.set_content(_render_refusal(error))
            return
        ui.navigate.to(_make_suite_url(done.suite.version))


def _render_refusal(error: UseCaseRefused) -> SafeHtml:
    """Return why an upload was refused: each problem once, with its count and its first place."""
    found = f"{pluralise(len(error.problems), 'error')}." if error.problems else render_untrusted_text(str(error))
    words = join_html(["Not uploaded: ", found])
    if error.status == 409:
        why = "Runs are compared by the version and hash of their suite, so the content of a version must never change."
        return tag("div", tag("p", words), tag("p", why), class_="warn trouble")
    places = [
        tag(
            "li",
            tag("span", _describe_place(each.first), class_="mono"),
            " ",
            render_untrusted_text(each.first.message),
            each.times,
        )
        for each in fold_repeats(error.problems)
    ]
    return tag(
        "div", tag("p", words), tag("ul", places, class_="small plain-list") if places else None, class_="warn trouble"
    )


def _describe_place(problem: Problem) -> str:
    """Return the place of a problem: file, line and column.

    >>> _describe_place(Problem("", "[1].category", 2, 35, "smoke.jsonl")), _describe_place(Problem("", "version"))
    ('smoke.jsonl:2:35', 'version')
    """
    found = (problem.file or problem.path, problem.line, problem.column)
    return ":".join(str(each) for each in found if each)


def _count_lines(data: bytes) -> int:
    """Return the number of lines with content; raise UnicodeDecodeError if the data is not UTF-8.

    Line by line: one long call over megabytes would block the event loop even from another thread.
    """
    return sum(not line.isspace() for line in TextIOWrapper(BytesIO(data), "utf-8", newline="\n"))
