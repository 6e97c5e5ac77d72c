"""Static HTML elements: data in, safe markup out. Escapes every text, and isolates foreign text from our own.

Pure functions. Interactive elements are in `parts`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from pramana.model import Outcome
from pramana.report.figures import escape_unprintable, format_interval, format_percent
from pramana.report.look import OUTCOME_SIGNS

MAX_TEXT_LENGTH = 20_000
"""Characters shown of a text; the API returns all of it."""
MIN_CHARACTERS_WORTH_CUTTING = 30
"""The fewest characters worth cutting: the note that they are missing takes as much room."""


class SafeHtml(str):
    """Markup in which all foreign text is escaped."""

    __slots__ = ()


HtmlChild = str | int | SafeHtml | None


def tag(name: str, /, *children: HtmlChild | Iterable[HtmlChild], **attributes: str | int | bool | None) -> SafeHtml:
    """Return an element. Text is escaped; in attribute names a final underscore is dropped, others become hyphens.

    >>> tag("a", "1 < 2", href="/x", class_="id", data_label="Run")
    '<a href="/x" class="id" data-label="Run">1 &lt; 2</a>'
    """
    said = "".join(_format_attribute(key, value) for key, value in attributes.items())
    if name in ("br", "img", "hr", "input", "rect", "path", "line", "circle"):
        return SafeHtml(f"<{name}{said}{' /' if name in ('rect', 'path', 'line', 'circle') else ''}>")
    return SafeHtml(f"<{name}{said}>{join_html(children)}</{name}>")


def join_html(children: Iterable[HtmlChild | Iterable[HtmlChild]], separator: str = "") -> SafeHtml:
    """Concatenate pieces; those that are not markup are escaped."""
    found = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, SafeHtml):
            found.append(child)
        elif isinstance(child, str | int):
            found.append(render_text(str(child)))
        else:
            found.append(join_html(child))
    return SafeHtml(escape(separator).join(found))


def _format_attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    spelt = name.removesuffix("_").replace("_", "-") if name not in ("viewBox", "preserveAspectRatio") else name
    return f" {spelt}" if value is True else f' {spelt}="{escape(escape_unprintable(str(value)))}"'


def render_text(content: str, max_length: int = MAX_TEXT_LENGTH) -> SafeHtml:
    """Escape a text, and cut it if it is too long and cutting saves space.

    >>> render_text("a" * 12, 10), render_text("a" * 40, 10)
    ('aaaaaaaaaaaa', 'aaaaaaaaaa … and 30 more characters')
    """
    return SafeHtml(escape(escape_unprintable(_cut_text(content, max_length))))


def _cut_text(content: str, max_length: int) -> str:
    if len(content) < max_length + MIN_CHARACTERS_WORTH_CUTTING:
        return content
    return f"{content[:max_length]} … and {len(content) - max_length:,} more characters"


def render_untrusted_text(content: str | None, max_length: int = MAX_TEXT_LENGTH) -> SafeHtml:
    """Return foreign text for a line of ours, isolated so that its writing direction does not affect the line.

    Long names may break after a separator, so that none is broken within a word.

    >>> render_untrusted_text("<b>")
    '<bdi dir="auto">&lt;b&gt;</bdi>'
    >>> render_untrusted_text("openai:gpt-5-mini")
    '<bdi dir="auto">openai:<wbr />gpt-<wbr />5-<wbr />mini</bdi>'
    """
    words = _LONG_WORD_RE.split(_cut_text(content or "", max_length))
    shown = (_render_name(each) if place % 2 else render_text(each) for place, each in enumerate(words))
    return tag("bdi", shown, dir="auto")


_LONG_WORD_RE = re.compile(r"(\S{15,})")
_NAME_PIECE_RE = re.compile(r"[^/:.,=@#_-]{0,32}[/:.,=@#_-]+|[^/:.,=@#_-]{1,32}")
"""The parts of a name, each with the separators that end it; a part without any is at most as long as a hash."""


def _render_name(name: str) -> SafeHtml:
    """Return a long name with the places where it may break."""
    return SafeHtml("<wbr />".join(map(render_text, _NAME_PIECE_RE.findall(name))))


def render_preformatted(content: str, label: str | None = None) -> SafeHtml:
    """Return a long foreign text, preformatted; the label is its accessible name."""
    named: dict[str, str | int | bool | None] = {"role": "region", "aria_label": label, "tabindex": 0} if label else {}
    return tag("pre", render_text(content) if content else tag("i", "nothing"), class_="text", dir="auto", **named)


def render_json(data: Any, label: str) -> SafeHtml:
    """Return data as indented JSON; of longer data, no more is serialised than is shown."""
    found: list[str] = []
    room = _MIN_LENGTH_TO_CUT
    for piece in _iterate_json_pieces(data, "\n"):
        found.append(piece)
        room -= len(piece)
        if room <= 0:
            return render_preformatted(f"{''.join(found)[:MAX_TEXT_LENGTH]} … and more", label)
    return render_preformatted("".join(found), label)


_MIN_LENGTH_TO_CUT = MAX_TEXT_LENGTH + MIN_CHARACTERS_WORTH_CUTTING
"""The length from which a text is cut."""


def _iterate_json_pieces(data: Any, line_start: str) -> Iterator[str]:
    """Yield data as indented JSON, piece by piece; texts longer than what is shown are cut."""
    if isinstance(data, str):
        yield json.dumps(data[:_MIN_LENGTH_TO_CUT], ensure_ascii=False)
    elif not data or not isinstance(data, dict | list):
        yield json.dumps(data)
    else:
        named = isinstance(data, dict)
        before, inner = "{" if named else "[", f"{line_start}  "
        for each in data:
            yield f"{before}{inner}"
            if named:
                yield from _iterate_json_pieces(each, inner)
                yield ": "
            yield from _iterate_json_pieces(data[each] if named else each, inner)
            before = ","
        yield f"{line_start}{'}' if named else ']'}"


def render_with_sign(sign: str, words: HtmlChild, outcome_class: str) -> SafeHtml:
    """Return words after their sign, in the style of an outcome."""
    return tag("span", tag("b", sign, aria_hidden="true"), " ", words, class_=f"outcome {outcome_class}".strip())


def render_outcome(outcome: str, count: int | None = None) -> SafeHtml:
    """Return an outcome with its sign and its word.

    >>> render_outcome("failed")
    '<span class="outcome failed"><b aria-hidden="true">✗</b> failed</span>'
    """
    return render_with_sign(
        OUTCOME_SIGNS[Outcome(outcome)], outcome if count is None else f"{count:,} {outcome}", outcome
    )


def render_link(url: str, *children: HtmlChild, class_: str | None = None) -> SafeHtml:
    """Return a link within the workbench."""
    return tag("a", children, href=url, class_=class_)


# ── Numbers ──


def render_rate_bar(value: float | None, interval: Sequence[float] | None) -> SafeHtml:
    """Draw a rate as a bar and its interval as a line with ends; show the numbers beside it as text."""
    drawn = [tag("rect", class_="track", width=100, height=10)]
    if value is not None:
        drawn.append(tag("rect", class_="fill", width=f"{100 * value:.2f}", height=10))
    if interval:
        low, high = 100 * interval[0], 100 * interval[1]
        ends = f"M{low:.2f} 2.5V7.5M{low:.2f} 5H{high:.2f}M{high:.2f} 2.5V7.5"
        drawn.append(tag("path", class_="whisker", d=ends))
    return tag("svg", drawn, class_="bar", viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true")


def render_rate_text(value: float | None, interval: Sequence[float] | None) -> SafeHtml:
    """Return a rate with its interval below."""
    if value is None:
        return tag("span", "no verdict", class_="quiet")
    return tag(
        "span", format_percent(value), tag("small", format_interval(interval), class_="quiet"), class_="number rate"
    )


def render_time(timestamp: str | None) -> SafeHtml:
    """Return a readable time in UTC, with its exact form for machines.

    >>> render_time("2026-11-15T09:26:53.590Z")
    '<time datetime="2026-11-15T09:26:53.590Z">2026-11-15 09:26</time>'
    """
    return (
        tag("time", timestamp[:16].replace("T", " "), datetime=timestamp)
        if timestamp
        else tag("span", "–", class_="quiet")
    )


def render_tiles(items: Iterable[tuple[HtmlChild, HtmlChild, HtmlChild]]) -> SafeHtml:
    """Return tiles side by side, each with a label, a number and a note."""
    return tag(
        "dl",
        (
            tag("div", tag("dt", name), tag("dd", value, tag("small", note) if note else None))
            for name, value, note in items
        ),
        class_="tiles",
    )


def render_facts(items: Iterable[tuple[str, HtmlChild]], class_: str = "facts") -> SafeHtml:
    """Return facts with their names, side by side or as a sheet."""
    return tag("dl", (tag("div", tag("dt", name), tag("dd", value)) for name, value in items), class_=class_)


def render_meter(label: str, value: int, maximum: int = 100) -> SafeHtml:
    """Draw a progress meter."""
    return tag(
        "div",
        tag("div", style=f"width: {100 * value / maximum if maximum else 100:.2f}%"),
        class_="meter",
        role="progressbar",
        aria_label=label,
        aria_valuemin=0,
        aria_valuemax=maximum,
        aria_valuenow=value,
    )


# ── Tables ──


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    label: str
    is_numeric: bool = False
    is_row_header: bool = False
    """Whether its cells are row headers."""


def render_table(
    caption: str, columns: Sequence[Column], rows: Iterable[Sequence[HtmlChild]], *, hide_caption: bool = False
) -> SafeHtml:
    """Return a table; on a narrow screen each row folds into lines. A hidden caption is for screen readers only."""
    head = tag(
        "tr", (tag("th", each.label, scope="col", class_="number" if each.is_numeric else None) for each in columns)
    )
    body = (
        tag(
            "tr",
            (
                tag("th", cell, scope="row")
                if column.is_row_header
                else tag("td", cell, class_="number" if column.is_numeric else None, data_label=column.label)
                for column, cell in zip(columns, row, strict=True)
            ),
        )
        for row in rows
    )
    named = tag("caption", caption, class_="visually-hidden" if hide_caption else None)
    return tag("table", named, tag("thead", head), tag("tbody", body), class_="data folds")


def render_pager(meta: Mapping[str, Any], make_url: Any, item_name: str) -> SafeHtml:
    """Return a pager with links to the previous and next page; `make_url` turns a page number into a URL."""
    page, pages, total = meta["page"], max(1, meta["totalPages"]), meta["total"]
    first = (page - 1) * meta["pageSize"] + 1 if total else 0
    last = min(total, page * meta["pageSize"])
    return tag(
        "nav",
        tag("span", f"{first:,} to {last:,} of {total:,} {item_name}" if total else f"no {item_name}", class_="number"),
        render_link(make_url(page=page - 1 if page > 2 else None), "Previous page") if page > 1 else None,
        render_link(make_url(page=page + 1), "Next page") if page < pages else None,
        class_="pager",
        aria_label=f"Pages of {item_name}",
    )
