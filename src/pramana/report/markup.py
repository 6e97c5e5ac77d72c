"""What is only looked at, as safe HTML: every text is escaped here, and what others wrote is set apart from our lines.

Pure functions: data in, markup out. What can be pressed or filled in stands in `parts`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from pramana.model import Outcome
from pramana.report.figures import escape_unprintable, format_interval, format_percent
from pramana.report.look import OUTCOME_SIGNS

MAX_TEXT_LENGTH = 20_000
"""Characters of a text that are shown; more makes no page better, and the API has them all."""
MIN_CUT_LENGTH = 30
"""Characters that are left out at least: to say that a few are missing takes as much room as they do."""


class Safe(str):
    """Markup in which nothing of others can act."""

    __slots__ = ()


Child = str | int | Safe | None


def tag(name: str, /, *children: Child | Iterable[Child], **attributes: str | int | bool | None) -> Safe:
    """Return an element; texts are escaped, attributes lose a last underscore and others become hyphens.

    >>> tag("a", "1 < 2", href="/x", class_="id", data_label="Run")
    '<a href="/x" class="id" data-label="Run">1 &lt; 2</a>'
    """
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in ("br", "img", "hr", "input", "rect", "path", "line", "circle"):
        return Safe(f"<{name}{said}{' /' if name in ('rect', 'path', 'line', 'circle') else ''}>")
    return Safe(f"<{name}{said}>{join(children)}</{name}>")


def join(children: Iterable[Child | Iterable[Child]], between: str = "") -> Safe:
    """Return pieces one after another; those that are no markup are escaped."""
    found = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Safe):
            found.append(child)
        elif isinstance(child, str | int):
            found.append(render_text(str(child)))
        else:
            found.append(join(child))
    return Safe(escape(between).join(found))


def _attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    spelt = name.removesuffix("_").replace("_", "-") if name not in ("viewBox", "preserveAspectRatio") else name
    return f" {spelt}" if value is True else f' {spelt}="{escape(escape_unprintable(str(value)))}"'


def render_text(content: str, limit: int = MAX_TEXT_LENGTH) -> Safe:
    """Return a text, escaped, cut where it is too long to be read and that saves something.

    >>> render_text("a" * 12, 10), render_text("a" * 40, 10)
    ('aaaaaaaaaaaa', 'aaaaaaaaaa … and 30 more characters')
    """
    if len(content) < limit + MIN_CUT_LENGTH:
        return Safe(escape(escape_unprintable(content)))
    return Safe(f"{escape(escape_unprintable(content[:limit]))} … and {len(content) - limit:,} more characters")


def render_foreign_text(content: str | None, limit: int = MAX_TEXT_LENGTH) -> Safe:
    """Return a text of others for a line of ours: in whichever direction it runs, the line does not turn.

    >>> render_foreign_text("<b>")
    '<bdi dir="auto">&lt;b&gt;</bdi>'
    """
    return tag("bdi", render_text(content or "", limit), dir="auto")


def render_block(content: str, label: str | None = None) -> Safe:
    """Return a long text of others, as it was written; the label is for who cannot see where it stands."""
    named: dict[str, str | int | bool | None] = {"role": "region", "aria_label": label, "tabindex": 0} if label else {}
    return tag("pre", render_text(content) if content else tag("i", "nothing"), class_="text", dir="auto", **named)


def render_json(data: Any, label: str) -> Safe:
    """Return data as JSON that people can read; of what is longer than that, no more is written than is shown."""
    found: list[str] = []
    room = _MAX_WRITTEN_LENGTH
    for piece in _json_pieces(data, "\n"):
        found.append(piece)
        room -= len(piece)
        if room <= 0:
            return render_block(f"{''.join(found)[:MAX_TEXT_LENGTH]} … and more", label)
    return render_block("".join(found), label)


_MAX_WRITTEN_LENGTH = MAX_TEXT_LENGTH + MIN_CUT_LENGTH
"""Characters from which on a text is cut."""


def _json_pieces(data: Any, new_line: str) -> Iterator[str]:
    """Yield data as indented JSON, piece by piece; a text that is longer than what is shown loses its end."""
    if isinstance(data, str):
        yield json.dumps(data[:_MAX_WRITTEN_LENGTH], ensure_ascii=False)
    elif not data or not isinstance(data, dict | list):
        yield json.dumps(data)
    else:
        named = isinstance(data, dict)
        before, inner = "{" if named else "[", f"{new_line}  "
        for each in data:
            yield f"{before}{inner}"
            if named:
                yield from _json_pieces(each, inner)
                yield ": "
            yield from _json_pieces(data[each] if named else each, inner)
            before = ","
        yield f"{new_line}{'}' if named else ']'}"


def render_with_sign(sign: str, words: Child, style: str) -> Safe:
    """Return words after their sign, in one of the looks of outcomes."""
    return tag("span", tag("b", sign, aria_hidden="true"), " ", words, class_=f"outcome {style}".strip())


def render_outcome(of: str, count: int | None = None) -> Safe:
    """Return an outcome with its sign and its word.

    >>> render_outcome("failed")
    '<span class="outcome failed"><b aria-hidden="true">✗</b> failed</span>'
    """
    return render_with_sign(OUTCOME_SIGNS[Outcome(of)], of if count is None else f"{count:,} {of}", of)


def render_link(to: str, *children: Child, class_: str | None = None) -> Safe:
    """Return a link within the workbench."""
    return tag("a", children, href=to, class_=class_)


# ── Numbers ──


def render_rate_bar(value: float | None, interval: Sequence[float] | None) -> Safe:
    """Draw a rate as a bar and its interval as a line with ends; the numbers must stand beside it as text."""
    drawn = [tag("rect", class_="track", width=100, height=10)]
    if value is not None:
        drawn.append(tag("rect", class_="fill", width=f"{100 * value:.2f}", height=10))
    if interval:
        low, high = 100 * interval[0], 100 * interval[1]
        ends = f"M{low:.2f} 2.5V7.5M{low:.2f} 5H{high:.2f}M{high:.2f} 2.5V7.5"
        drawn.append(tag("path", class_="whisker", d=ends))
    return tag("svg", drawn, class_="bar", viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true")


def render_rate_text(value: float | None, interval: Sequence[float] | None) -> Safe:
    """Return a rate with its interval below."""
    if value is None:
        return tag("span", "no verdict", class_="quiet")
    return tag(
        "span", format_percent(value), tag("small", format_interval(interval), class_="quiet"), class_="number rate"
    )


def render_time(stamp: str | None) -> Safe:
    """Return a time as people write it, in UTC, with its exact form for machines.

    >>> render_time("2026-11-15T09:26:53.590Z")
    '<time datetime="2026-11-15T09:26:53.590Z">2026-11-15 09:26</time>'
    """
    return tag("time", stamp[:16].replace("T", " "), datetime=stamp) if stamp else tag("span", "–", class_="quiet")


def render_tiles(items: Iterable[tuple[str, Child, Child]]) -> Safe:
    """Return numbers side by side: what each is, itself, and a note."""
    return tag(
        "dl",
        (
            tag("div", tag("dt", name), tag("dd", value, tag("small", note) if note else None))
            for name, value, note in items
        ),
        class_="tiles",
    )


def render_facts(items: Iterable[tuple[str, Child]], class_: str = "facts") -> Safe:
    """Return facts, each with its name: side by side, or as a sheet."""
    return tag("dl", (tag("div", tag("dt", name), tag("dd", value)) for name, value in items), class_=class_)


def render_meter(label: str, now: int, most: int = 100) -> Safe:
    """Draw how far something is."""
    return tag(
        "div",
        tag("div", style=f"width: {100 * now / most if most else 100:.2f}%"),
        class_="meter",
        role="progressbar",
        aria_label=label,
        aria_valuemin=0,
        aria_valuemax=most,
        aria_valuenow=now,
    )


# ── Tables ──


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    label: str
    number: bool = False
    head: bool = False
    """Whether it names its row."""


def render_table(
    caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Child]], *, hidden: bool = False
) -> Safe:
    """Return a table; on a narrow screen each row folds into lines. A hidden caption is read out only."""
    head = tag("tr", (tag("th", each.label, scope="col", class_="number" if each.number else None) for each in columns))
    body = (
        tag(
            "tr",
            (
                tag("th", cell, scope="row")
                if column.head
                else tag("td", cell, class_="number" if column.number else None, data_label=column.label)
                for column, cell in zip(columns, row, strict=True)
            ),
        )
        for row in rows
    )
    named = tag("caption", caption, class_="visually-hidden" if hidden else None)
    return tag("table", named, tag("thead", head), tag("tbody", body), class_="data folds")


def render_pager(meta: Mapping[str, Any], make_address: Any, what: str) -> Safe:
    """Return where one is in a list, with links to the pages beside; `make_address` makes a URL of a page's number."""
    page, pages, total = meta["page"], max(1, meta["totalPages"]), meta["total"]
    first = (page - 1) * meta["pageSize"] + 1 if total else 0
    last = min(total, page * meta["pageSize"])
    return tag(
        "nav",
        tag("span", f"{first:,} to {last:,} of {total:,} {what}" if total else f"no {what}", class_="number"),
        render_link(make_address(page=page - 1 if page > 2 else None), "Previous page") if page > 1 else None,
        render_link(make_address(page=page + 1), "Next page") if page < pages else None,
        class_="pager",
        aria_label=f"Pages of {what}",
    )
