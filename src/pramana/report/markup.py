"""What is only looked at, as safe HTML: every text is escaped here, and what others wrote is set apart from our lines.

Pure functions: data in, markup out. What can be pressed or filled in stands in `parts`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from pramana.model import Outcome
from pramana.report.figures import between, percent, printable
from pramana.report.look import SIGNS

LONGEST = 20_000
"""Characters of a text that are shown; more makes no page better, and the API has them all."""
LEAST_CUT = 30
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
            found.append(text(str(child)))
        else:
            found.append(join(child))
    return Safe(escape(between).join(found))


def _attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    spelt = name.removesuffix("_").replace("_", "-") if name not in ("viewBox", "preserveAspectRatio") else name
    return f" {spelt}" if value is True else f' {spelt}="{escape(printable(str(value)))}"'


def text(said: str, limit: int = LONGEST) -> Safe:
    """Return a text, escaped, cut where it is too long to be read and that saves something.

    >>> text("a" * 12, 10), text("a" * 40, 10)
    ('aaaaaaaaaaaa', 'aaaaaaaaaa … and 30 more characters')
    """
    if len(said) < limit + LEAST_CUT:
        return Safe(escape(printable(said)))
    return Safe(f"{escape(printable(said[:limit]))} … and {len(said) - limit:,} more characters")


def foreign(said: str | None, limit: int = LONGEST) -> Safe:
    """Return a text of others for a line of ours: in whichever direction it runs, the line does not turn.

    >>> foreign("<b>")
    '<bdi dir="auto">&lt;b&gt;</bdi>'
    """
    return tag("bdi", text(said or "", limit), dir="auto")


def block(said: str, label: str | None = None) -> Safe:
    """Return a long text of others, as it was written; the label is for who cannot see where it stands."""
    named: dict[str, str | int | bool | None] = {"role": "region", "aria_label": label, "tabindex": 0} if label else {}
    return tag("pre", text(said) if said else tag("i", "nothing"), class_="text", dir="auto", **named)


def pretty(data: Any, label: str) -> Safe:
    """Return data as JSON that people can read; of what is longer than that, no more is written than is shown."""
    found: list[str] = []
    room = _WRITTEN
    for piece in _pieces(data, "\n"):
        found.append(piece)
        room -= len(piece)
        if room <= 0:
            return block(f"{''.join(found)[:LONGEST]} … and more", label)
    return block("".join(found), label)


_WRITTEN = LONGEST + LEAST_CUT
"""Characters from which on a text is cut."""


def _pieces(data: Any, new_line: str) -> Iterator[str]:
    """Yield data as indented JSON, piece by piece; a text that is longer than what is shown loses its end."""
    if isinstance(data, str):
        yield json.dumps(data[:_WRITTEN], ensure_ascii=False)
    elif not data or not isinstance(data, dict | list):
        yield json.dumps(data)
    else:
        named = isinstance(data, dict)
        before, inner = "{" if named else "[", f"{new_line}  "
        for each in data:
            yield f"{before}{inner}"
            if named:
                yield from _pieces(each, inner)
                yield ": "
            yield from _pieces(data[each] if named else each, inner)
            before = ","
        yield f"{new_line}{'}' if named else ']'}"


def marked(sign: str, words: Child, look: str) -> Safe:
    """Return words after their sign, in one of the looks of outcomes."""
    return tag("span", tag("b", sign, aria_hidden="true"), " ", words, class_=f"outcome {look}".strip())


def outcome(of: str, count: int | None = None) -> Safe:
    """Return an outcome with its sign and its word.

    >>> outcome("failed")
    '<span class="outcome failed"><b aria-hidden="true">✗</b> failed</span>'
    """
    return marked(SIGNS[Outcome(of)], of if count is None else f"{count:,} {of}", of)


def link(to: str, *children: Child, class_: str | None = None) -> Safe:
    """Return a link within the workbench."""
    return tag("a", children, href=to, class_=class_)


# ── Numbers ──


def rate_bar(value: float | None, interval: Sequence[float] | None) -> Safe:
    """Draw a rate as a bar and its interval as a line with ends; the numbers must stand beside it as text."""
    drawn = [tag("rect", class_="track", width=100, height=10)]
    if value is not None:
        drawn.append(tag("rect", class_="fill", width=f"{100 * value:.2f}", height=10))
    if interval:
        low, high = 100 * interval[0], 100 * interval[1]
        ends = f"M{low:.2f} 2.5V7.5M{low:.2f} 5H{high:.2f}M{high:.2f} 2.5V7.5"
        drawn.append(tag("path", class_="whisker", d=ends))
    return tag("svg", drawn, class_="bar", viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true")


def rate_text(value: float | None, interval: Sequence[float] | None) -> Safe:
    """Return a rate with its interval below."""
    if value is None:
        return tag("span", "no verdict", class_="quiet")
    return tag("span", percent(value), tag("small", between(interval), class_="quiet"), class_="number rate")


def when(stamp: str | None) -> Safe:
    """Return a time as people write it, in UTC, with its exact form for machines.

    >>> when("2026-11-15T09:26:53.590Z")
    '<time datetime="2026-11-15T09:26:53.590Z">2026-11-15 09:26</time>'
    """
    return tag("time", stamp[:16].replace("T", " "), datetime=stamp) if stamp else tag("span", "–", class_="quiet")


def tiles(some: Iterable[tuple[str, Child, Child]]) -> Safe:
    """Return numbers side by side: what each is, itself, and a note."""
    return tag(
        "dl",
        (
            tag("div", tag("dt", name), tag("dd", value, tag("small", note) if note else None))
            for name, value, note in some
        ),
        class_="tiles",
    )


def facts(some: Iterable[tuple[str, Child]], class_: str = "facts") -> Safe:
    """Return facts, each with its name: side by side, or as a sheet."""
    return tag("dl", (tag("div", tag("dt", name), tag("dd", value)) for name, value in some), class_=class_)


def meter(label: str, now: int, most: int = 100) -> Safe:
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


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Child]], *, hidden: bool = False) -> Safe:
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


def pager(meta: Mapping[str, Any], here: Any, what: str) -> Safe:
    """Return where one is in a list, and links to the pages beside; `here` makes an address of a page's number."""
    page, pages, total = meta["page"], max(1, meta["totalPages"]), meta["total"]
    first = (page - 1) * meta["pageSize"] + 1 if total else 0
    last = min(total, page * meta["pageSize"])
    return tag(
        "nav",
        tag("span", f"{first:,} to {last:,} of {total:,} {what}" if total else f"no {what}", class_="number"),
        link(here(page=page - 1 if page > 2 else None), "Previous page") if page > 1 else None,
        link(here(page=page + 1), "Next page") if page < pages else None,
        class_="pager",
        aria_label=f"Pages of {what}",
    )
