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

from pramana.report.markup import HtmlChild, SafeHtml, join_html, render_preformatted, render_text, tag

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_LENGTH_TO_RENDER_MARKDOWN = 10_000
"""The longest text whose Markdown is rendered: parsing takes 1 ms for most texts, 140 ms for the most hostile."""
_MARKDOWN_RE = re.compile(r"[*_`#>|~\[<]|^\s*(?:[-+]|\d+[.)])\s|^(?: {4}|\t)|  $", re.MULTILINE)
"""Matches any Markdown: a text without a match needs no parser."""
MAX_NESTING = 20
"""Levels of nested lists and quotations; a text with more is shown unrendered."""
_HTML_TAG_BY_TOKEN = {
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


def render_reply(content: str, label: str) -> SafeHtml:
    """Return a model's reply: Markdown rendered, JSON unchanged. The label is its accessible name."""
    if not content.strip() or _is_json(content):
        return render_preformatted(content, label)
    if len(content) > MAX_LENGTH_TO_RENDER_MARKDOWN or not _MARKDOWN_RE.search(content):
        return render_plain_prose(content, label)
    tokens = _make_parser().parse(content)
    is_cut_off = any(each.level >= MAX_NESTING - 1 for each in tokens)  # the parser drops deeper nesting
    if is_cut_off or not _has_markup(tokens, content):
        return render_plain_prose(content, label)
    drawn = join_html(_render_elements(iter(tokens), None))
    region = tag("div", drawn, class_="prose markdown", dir="auto", **_make_region_attributes(label))
    raw = tag("details", tag("summary", "Raw text"), render_preformatted(content, f"{label}, raw text"), class_="raw")
    return tag("div", region, raw)


def render_plain_prose(content: str, label: str) -> SafeHtml:
    """Return a text unrendered, in the typeface of prose; the label is its accessible name."""
    shown = render_text(content) if content else tag("i", "nothing")
    return tag("div", shown, class_="prose plain", dir="auto", **_make_region_attributes(label))


def _make_region_attributes(label: str) -> dict[str, str | int]:
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


_DISABLED_RULES = ["entity", "escape", "lheading", "reference"]
"""Rules that models rarely intend: a backslash belongs to LaTeX, `---` below text is a line, `[1]:` is in a list."""


@cache
def _make_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    options = {"html": False, "linkify": False, "typographer": False, "maxNesting": MAX_NESTING}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable(_DISABLED_RULES)


def _has_markup(tokens: Sequence["Token"], content: str) -> bool:
    """Return whether a text has more than paragraphs."""
    plain = ("paragraph_open", "paragraph_close", "inline", "text", "softbreak")
    children = (child for each in tokens for child in each.children or ())
    if any(each.type not in plain for each in (*tokens, *children)):
        return True
    drawn = "\n\n".join(each.content for each in tokens if each.type == "inline")
    return drawn.split() != content.split()


def _render_elements(tokens: "Iterator[Token]", end_token_type: str | None) -> Iterator[HtmlChild]:
    """Yield the elements of tokens, up to the token that closes the enclosing one."""
    for token in tokens:
        kind = token.type
        if kind == end_token_type:
            return
        if kind == "inline":
            yield join_html(_render_elements(iter(token.children or ()), None))
        elif kind.endswith("_open"):
            yield _render_element(token, kind.removesuffix("_open"), tokens)
        elif kind in ("fence", "code_block"):
            yield tag("pre", tag("code", render_text(token.content)), class_="code", tabindex=0)
        elif kind == "code_inline":
            yield tag("code", render_text(token.content))
        elif kind in ("softbreak", "hardbreak"):
            yield tag("br")
        elif kind == "hr":
            yield tag("hr")
        elif kind == "image":
            yield _append_address([render_text(token.content or "image")], token.attrs.get("src"))
        else:
            yield render_text(token.content)


def _render_element(token: "Token", token_type: str, tokens: "Iterator[Token]") -> HtmlChild:
    inside = list(_render_elements(tokens, f"{token_type}_close"))
    if token_type == "paragraph" and token.hidden:  # in an item of a tight list
        return join_html(inside)
    if token_type == "heading":
        return tag("p", tag("strong", inside), class_="title")
    if token_type == "link":
        return _append_address(inside, token.attrs.get("href"))
    if token_type == "ordered_list":
        return tag("ol", inside, start=_parse_list_start(token.attrs.get("start")))
    name = _HTML_TAG_BY_TOKEN.get(token_type)
    return tag(name, inside) if name else join_html(inside)


def _parse_list_start(number: Any) -> int | None:
    return number if isinstance(number, int) and number != 1 else None


def _append_address(text: Sequence[HtmlChild], address: Any) -> SafeHtml:
    """Return the text of a link or an image, and its address unless the text is the address."""
    shown = join_html(text)
    return shown if not address or shown == render_text(str(address)) else join_html([shown, f" ({address})"])
