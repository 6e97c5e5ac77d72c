"""Two texts side by side with the words that differ marked: texts in, markup out. A pure function."""

import re
from difflib import SequenceMatcher
from typing import NamedTuple

from pramana.report.markup import SafeHtml, render_text, tag

MAX_COMPARED_WORDS = 1_500
"""Longer texts are shown without marks: comparing them takes seconds."""
_WORD_RE = re.compile(r"\s+|\w+|[^\w\s]")


class MarkedTexts(NamedTuple):
    """Both texts, with what only the first has as deletions and what only the second has as insertions."""

    before: SafeHtml
    after: SafeHtml


def mark_word_changes(before: str, after: str) -> MarkedTexts:
    """Return two texts with the words that differ marked, as regions of prose.

    >>> mark_word_changes("It is noon.", "It is late.").after
    '<div class="prose plain same-words" dir="auto">It is <ins>late</ins>.</div>'
    """
    ours, theirs = _WORD_RE.findall(before), _WORD_RE.findall(after)
    if max(len(ours), len(theirs)) > MAX_COMPARED_WORDS:
        return MarkedTexts(_render([render_text(before)]), _render([render_text(after)]))
    old, new = list[SafeHtml](), list[SafeHtml]()
    for kind, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        left, right = render_text("".join(ours[a:b])), render_text("".join(theirs[c:d]))
        if kind == "equal":
            old.append(left)
            new.append(right)
            continue
        if b > a:
            old.append(tag("del", left))
        if d > c:
            new.append(tag("ins", right))
    return MarkedTexts(_render(old), _render(new))


def _render(pieces: list[SafeHtml]) -> SafeHtml:
    shown = pieces if any(pieces) else [tag("i", "nothing")]
    return tag("div", shown, class_="prose plain same-words", dir="auto")
