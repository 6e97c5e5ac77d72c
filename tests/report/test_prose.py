"""Replies as Markdown: what is rendered, what stays raw, and that nothing in a reply runs, loads or links."""

import time
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pramana.report.prose import MAX_LENGTH_TO_RENDER_MARKDOWN, MAX_NESTING, render_plain_prose, render_reply

RENDERED_TAGS = frozenset(
    (
        "div",
        "p",
        "strong",
        "em",
        "s",
        "ul",
        "ol",
        "li",
        "blockquote",
        "pre",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "br",
        "hr",
        "details",
        "summary",
        "i",
    )
)
ATTRIBUTES = frozenset(("class", "dir", "role", "aria-label", "tabindex", "start"))
PIECES = (
    "<script>x()</script>", "<img src=//evil onerror=x()>", "![a](http://evil/a.png)", "[a](javascript:x())", "<http://evil>",
    "[a][b]\n\n[b]: http://evil", "**a**", "`<b>`", "```\n<b>\n```", "> a", "- a", "1. a", "7. a", "| a |\n|-|\n| <b> |",
    "&lt;b&gt;", "&#106;avascript:", "\n", "\n\n", "  \n", "    ", "# a", "---", "\\", "~~a~~", '" onclick="x()', "\u202e",
)  # fmt: skip


class Reader(HTMLParser):
    """Reads markup as a browser would."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=12).map("".join))
@example("".join(PIECES))
@example("\n\n".join(PIECES))
def test_any_reply_renders_to_inert_elements_only(reply: str) -> None:
    drawn = Reader(render_reply(reply, "Reply"))
    assert drawn.tags <= RENDERED_TAGS
    assert drawn.attributes <= ATTRIBUTES


def test_markdown_is_rendered_beside_its_raw_text() -> None:
    said = "# Title\n\nIt is **bold**.\nNext line\n\n- one\n- two\n\n3. three\n\n```python\nx = '<b>'\n```"
    drawn = render_reply(said, "Reply")
    for each in (
        '<p class="title"><strong>Title</strong></p>', "It is <strong>bold</strong>.<br>Next line", "<li>one</li>",
        '<ol start="3"><li>three</li></ol>', "<code>x = &#x27;&lt;b&gt;&#x27;\n</code>",
        '<summary>Raw text</summary><pre class="text" dir="auto" role="region" aria-label="Reply, raw text"',
    ):  # fmt: skip
        assert each in drawn
    assert "# Title\n\nIt is **bold**." in drawn


def test_links_and_images_render_as_text_with_their_address() -> None:
    drawn = render_reply("[here](https://a.example) ![dot](https://a.example/x.png) <https://b.example>", "Reply")
    assert "<p>here (https://a.example) dot (https://a.example/x.png) https://b.example</p>" in drawn


@pytest.mark.parametrize(
    "reply", ["Plain words.", "Two\n\nparagraphs\nand a line", "5 < 6 and 2 * 3 * 4", "a_b_c", "[1] a source"]
)
def test_a_reply_without_markdown_is_shown_once_verbatim(reply: str) -> None:
    assert render_reply(reply, "Reply") == render_plain_prose(reply, "Reply")


@pytest.mark.parametrize("reply", ['{"a": [1, 2]}', "[\n  1\n]", "", " "])
def test_json_and_empty_replies_stay_in_monospace(reply: str) -> None:
    drawn = render_reply(reply, "Reply")
    assert drawn.startswith('<pre class="text"')
    assert "details" not in drawn


def test_latex_keeps_its_backslashes() -> None:
    assert r"\(x_1 \cdot y_2\)" in render_reply(r"**So** \(x_1 \cdot y_2\)", "Reply").partition("<details")[0]


def test_too_deep_or_too_long_markdown_is_shown_verbatim() -> None:
    for said in ("> " * (MAX_NESTING + 5) + "deep", "**a** " * MAX_LENGTH_TO_RENDER_MARKDOWN):
        assert render_reply(said, "Reply") == render_plain_prose(said, "Reply")


@pytest.mark.parametrize("piece", ["![", "[", "a*", "**a ", "`", "_a_", "<", "> ", "|a|b|\n|-|-|\n", "- ", "~"])
def test_no_reply_renders_slowly(piece: str) -> None:
    began = time.process_time()
    render_reply((piece * MAX_LENGTH_TO_RENDER_MARKDOWN)[:MAX_LENGTH_TO_RENDER_MARKDOWN], "Reply")
    assert time.process_time() - began < 2
