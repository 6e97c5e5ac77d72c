"""Replies and other long texts with their Markdown rendered: text in, safe markup out.

No model output is copied into the markup. A parser (markdown-it, without HTML) yields tokens; each known token becomes
an element by `tag`, which escapes its text, and every other token becomes text. Links and images are shown as their
text and address: nothing runs, nothing is fetched and nothing links elsewhere. Where the rendered text differs from the
original, the raw text can be opened below it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pramana.report.markup import Child, Safe, join, render_block, render_text, tag

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_DRAWN = 10_000
"""The longest text whose Markdown is rendered: parsing takes 1 ms for most texts, 140 ms for the most hostile."""
_MARKS = re.compile(r"[*_`#>|~\[<]|^\s*(?:[-+]|\d+[.)])\s|^(?: {4}|\t)|  $", re.MULTILINE)
"""Matches any Markdown: a text without a match needs no parser."""
MAX_NESTING = 20
"""Levels of nested lists and quotations; a text with more is shown unrendered."""
_CONTAINERS = {
    "paragraph": "p",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "blockquote": "blockquote",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
    "strong": "strong",
    "em": "em",
    "s": "s",
}
"""The HTML element of each paired token."""


def render_reply(content: str, label: str) -> Safe:
    """Return a model's reply: Markdown rendered, JSON unchanged. The label is its accessible name."""
    if not content.strip() or _is_json(content):
        return render_block(content, label)
    if len(content) > MAX_DRAWN or not _MARKS.search(content):
        return render_prose(content, label)
    tokens = _parser().parse(content)
    is_cut_off = any(each.level >= MAX_NESTING - 1 for each in tokens)  # the parser drops deeper nesting
    if is_cut_off or not _has_markup(tokens, content):
        return render_prose(content, label)
    drawn = join(_elements(iter(tokens), None))
    region = tag("div", drawn, class_="prose markdown", dir="auto", **_region_attributes(label))
    raw = tag("details", tag("summary", "Raw text"), render_block(content, f"{label}, raw text"), class_="raw")
    return tag("div", region, raw)


def render_prose(content: str, label: str) -> Safe:
    """Return a text unrendered, in the typeface of prose; the label is its accessible name."""
    shown = render_text(content) if content else tag("i", "nothing")
    return tag("div", shown, class_="prose plain", dir="auto", **_region_attributes(label))


def _region_attributes(label: str) -> dict[str, str | int]:
    return {"role": "region", "aria_label": label, "tabindex": 0}


def _is_json(content: str) -> bool:
    """Return whether a text is a JSON object or list, whose line breaks and indentation matter to readers."""
    if content.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


_NOT_MARKDOWN = ["entity", "escape", "lheading", "reference"]
"""Rules that models rarely intend: a backslash belongs to LaTeX, `---` below text is a line, `[1]:` is in a list."""


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    options = {"html": False, "linkify": False, "typographer": False, "maxNesting": MAX_NESTING}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable(_NOT_MARKDOWN)


def _has_markup(tokens: Sequence["Token"], content: str) -> bool:
    """Return whether a text has more than paragraphs."""
    plain = ("paragraph_open", "paragraph_close", "inline", "text", "softbreak")
    children = (child for each in tokens for child in each.children or ())
    if any(each.type not in plain for each in (*tokens, *children)):
        return True
    drawn = "\n\n".join(each.content for each in tokens if each.type == "inline")
    return drawn.split() != content.split()


def _elements(tokens: "Iterator[Token]", end: str | None) -> Iterator[Child]:
    """Yield the elements of tokens, up to the token that closes the enclosing one."""
    for token in tokens:
        kind = token.type
        if kind == end:
            return
        if kind == "inline":
            yield join(_elements(iter(token.children or ()), None))
        elif kind.endswith("_open"):
            yield _element(token, kind.removesuffix("_open"), tokens)
        elif kind in ("fence", "code_block"):
            yield tag("pre", tag("code", render_text(token.content)), class_="code", tabindex=0)
        elif kind == "code_inline":
            yield tag("code", render_text(token.content))
        elif kind in ("softbreak", "hardbreak"):
            yield tag("br")
        elif kind == "hr":
            yield tag("hr")
        elif kind == "image":
            yield _with_address([render_text(token.content or "image")], token.attrs.get("src"))
        else:
            yield render_text(token.content)


def _element(token: "Token", kind: str, tokens: "Iterator[Token]") -> Child:
    inside = list(_elements(tokens, f"{kind}_close"))
    if kind == "paragraph" and token.hidden:  # in an item of a tight list
        return join(inside)
    if kind == "heading":
        return tag("p", tag("strong", inside), class_="title")
    if kind == "link":
        return _with_address(inside, token.attrs.get("href"))
    if kind == "ordered_list":
        return tag("ol", inside, start=_list_start(token.attrs.get("start")))
    name = _CONTAINERS.get(kind)
    return tag(name, inside) if name else join(inside)


def _list_start(number: Any) -> int | None:
    return number if isinstance(number, int) and number != 1 else None


def _with_address(words: Sequence[Child], address: Any) -> Safe:
    """Return the text of a link or an image, and its address unless the text is the address."""
    shown = join(words)
    return shown if not address or shown == render_text(str(address)) else join([shown, f" ({address})"])
