"""Prepares a language model's reply for speech: text goes in, plain sentences come out.

Markup, list markers and pictograms are removed, repetitions are cut, and long text ends at a sentence or a clause. It
makes no sound and sends no requests.
"""

import re
import unicodedata

MAX_REPEATED_BLOCK_WORDS = 24
"""Words of the longest repeated block that is detected."""
_CODE_FENCE_RE = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
_LINK_RE = re.compile(r"!?\[([^\[\]\n]{0,500})\]\([^()\s]{0,2000}\)")
_HTML_TAG_RE = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_HORIZONTAL_RULE_RE = re.compile(r"^[ \t]*(?:[-*_=][ \t]*){3,}$", re.MULTILINE)
_LINE_MARKER_RE = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]*|[-*+•][ \t]+)+", re.MULTILINE)
_LIST_NUMBER_RE = re.compile(r"^[ \t]*\(?(\d{1,2})[.)][ \t]+(?=\S)", re.MULTILINE)
_EMPHASIS_RE = re.compile(r"(?<!\w)[*_~]{1,3}(?=\S)|(?<=\S)[*_~]{1,3}(?!\w)|\*{2,}|`+")
_UNSPOKEN_SYMBOLS_RE = re.compile(r"[|\\^{}<>#*~]+")
_SYMBOL_RUN_RE = re.compile(r"([^\w\s])\1{3,}|_{2,}")
_SENTENCE_END_RE = re.compile(r"[.!?…][\"'”’)]*(?=\s|$)")
_CLAUSE_END_RE = re.compile(r"[,;:–—](?=\s|$)")
_ABBREVIATION_RE = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Prof|St|e\.g|i\.e|vs|approx)\.$")
_WORD_RE = re.compile(r"\S+")


def make_speakable(text: str) -> str:
    r"""Return a reply without what is not spoken: markup, list markers, pictograms, control characters.

    >>> make_speakable("## Opening hours\n- **Monday**: 9 to 5\n- [Sunday](http://x.y) `closed` 🙂")
    'Opening hours. Monday: 9 to 5. Sunday closed.'
    >>> make_speakable("1. Tea\n2. Coffee"), make_speakable("12. That is seven plus five.")
    ('Tea. Coffee.', '12. That is seven plus five.')
    >>> make_speakable("Well............. yes --------- no, ask ______ first")
    'Well. yes - no, ask first'
    """
    for pattern, replacement in (
        (_CODE_FENCE_RE, ""),
        (_HORIZONTAL_RULE_RE, ""),
        (_LINK_RE, r"\1"),
        (_HTML_TAG_RE, " "),
        (_LINE_MARKER_RE, ""),
    ):
        text = pattern.sub(replacement, text)
    if {"1", "2"} <= set(_LIST_NUMBER_RE.findall(text)):  # a list; a number alone may be the answer
        text = _LIST_NUMBER_RE.sub("", text)
    text = _UNSPOKEN_SYMBOLS_RE.sub(" ", _EMPHASIS_RE.sub("", text))
    text = _SYMBOL_RUN_RE.sub(lambda run: run[1] or " ", text)
    text = "".join(each if each == "\n" else _replace_unspeakable(each) for each in text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    lines = [line for line in lines if any(each.isalnum() for each in line)]
    closed = [line if line[-1] in ".!?…" or line[-2:-1] in ".!?" else f"{line.rstrip(',;:')}." for line in lines[:-1]]
    return " ".join([*closed, *(_finish_list_line(line, len(lines)) for line in lines[-1:])])


def _finish_list_line(line: str, line_count: int) -> str:
    """Return a line of several as a sentence; a single line stays as written."""
    return line if line_count < 2 or line[-1] in ".!?…\"'”’)" else f"{line}."


def _replace_unspeakable(character: str) -> str:
    category = unicodedata.category(character)
    if category[0] == "C":
        return "" if category == "Cf" else " "
    is_picture = (category == "So" and character >= "\u2300") or "\U0001f3fb" <= character <= "\U0001f3ff"
    return " " if is_picture or character == "\ufe0f" else character


# ── Repetition ──


def has_repetition(text: str) -> bool:
    """Return whether a text repeats itself.

    >>> loop = "The answer is: The answer is: The answer is: The"
    >>> has_repetition(loop), has_repetition("It is very, very big, and very blue.")
    (True, False)
    """
    return _find_repetition_start(text) is not None


def remove_repetition(text: str) -> str:
    """Return a text up to its first repetition.

    >>> remove_repetition("It is the knight. It is the knight. It is the knight.")
    'It is the knight.'
    """
    start = _find_repetition_start(text)
    return text if start is None else text[:start].rstrip()


def _find_repetition_start(text: str) -> int | None:
    """Return the position of the first repetition: of a block that follows itself, or of any four words.

    How often a block may repeat depends on its length: "very, very" is English, six words twice are a loop.
    """
    found = list(_WORD_RE.finditer(text))
    words = [re.sub(r"\W", "", each[0].casefold()) or each[0] for each in found]
    seen: dict[tuple[str, ...], list[int]] = {}
    for end in range(1, len(words) + 1):
        for size in range(1, min(MAX_REPEATED_BLOCK_WORDS, end // 2) + 1):
            times = 5 if size == 1 else 4 if size == 2 else 3 if size < 6 else 2
            if end >= size * times and _is_repeated_block(words, end, size, times):
                return found[end - size * times + size].start()
        four = tuple(words[max(0, end - 4) : end])
        if len(four) == 4:
            places = seen.setdefault(four, [])
            places.append(end - 4)
            if len(places) == 3:
                return found[places[1]].start()
    return None


def _is_repeated_block(words: list[str], end_index: int, block_size: int, times: int) -> bool:
    block = words[end_index - block_size : end_index]
    return all(words[end_index - block_size * (n + 1) : end_index - block_size * n] == block for n in range(1, times))


# ── Length ──


def shorten_to_words(text: str, max_words: int) -> str:
    """Return at most `max_words` words, up to the last sentence that fits, else the last clause, else the last word.

    >>> shorten_to_words("It is big. It is also very blue, they say, and deep.", 8)
    'It is big.'
    >>> shorten_to_words("It is big and very blue, they say, and deep.", 8)
    'It is big and very blue, they say.'
    """
    words = list(_WORD_RE.finditer(text))
    if len(words) <= max_words:
        return text
    head = text[: words[max_words - 1].end()] if max_words > 0 else ""
    return trim_to_last_sentence_or_clause(head)


def has_sentence_or_clause_end(text: str) -> bool:
    """Return whether a text has the end of a sentence, or of a clause followed by another word.

    >>> [has_sentence_or_clause_end(text) for text in ("It is big, and", "It is big.", "The answer is:", "It is")]
    [True, True, False, False]
    """
    return bool(_find_sentence_ends(text) or _CLAUSE_END_RE.search(text.rstrip(" ,;:–—")))


def trim_to_last_sentence_or_clause(text: str) -> str:
    """Return a text up to its last complete sentence or clause, so that it does not break off within one.

    >>> trim_to_last_sentence_or_clause("The sea is salty. Rivers carry small amounts of")
    'The sea is salty.'
    >>> trim_to_last_sentence_or_clause("Rivers carry salt, and the")
    'Rivers carry salt.'
    """
    if sentences := _find_sentence_ends(text):
        return text[: sentences[-1]]
    clauses = [each.start() for each in _CLAUSE_END_RE.finditer(text)]
    text = (text[: clauses[-1]] if clauses else text).rstrip(" ,;:–—-(\"'")
    return f"{text}." if text else ""


def _find_sentence_ends(text: str) -> list[int]:
    """Return the positions where sentences end."""
    ends = [each.end() for each in _SENTENCE_END_RE.finditer(text)]
    return [end for end in ends if not _ABBREVIATION_RE.search(text, max(0, end - 10), end)]
