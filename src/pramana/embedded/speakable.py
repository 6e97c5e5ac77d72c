"""Prepares a language model's reply for speech: text goes in, plain sentences come out.

Markup, list markers and pictograms are removed, repetitions are cut, and long text ends at a sentence or a clause. It
makes no sound and sends no requests.
"""

import re
import unicodedata

MAX_BLOCK_WORDS = 24
"""Words of the longest repeated block that is detected."""
_FENCE = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\[\]\n]{0,500})\]\([^()\s]{0,2000}\)")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_RULE = re.compile(r"^[ \t]*(?:[-*_=][ \t]*){3,}$", re.MULTILINE)
_MARKER = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]*|[-*+•][ \t]+)+", re.MULTILINE)
_NUMBER = re.compile(r"^[ \t]*\(?(\d{1,2})[.)][ \t]+(?=\S)", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<!\w)[*_~]{1,3}(?=\S)|(?<=\S)[*_~]{1,3}(?!\w)|\*{2,}|`+")
_SYMBOLS = re.compile(r"[|\\^{}<>#*~]+")
_SYMBOL_RUN_RE = re.compile(r"([^\w\s])\1{3,}|_{2,}")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)]*(?=\s|$)")
_CLAUSE_END = re.compile(r"[,;:–—](?=\s|$)")
_ABBREVIATION = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Prof|St|e\.g|i\.e|vs|approx)\.$")
_WORD = re.compile(r"\S+")


def make_speakable(text: str) -> str:
    r"""Return a reply without what is not spoken: markup, list markers, pictograms, control characters.

    >>> make_speakable("## Opening hours\n- **Monday**: 9 to 5\n- [Sunday](http://x.y) `closed` 🙂")
    'Opening hours. Monday: 9 to 5. Sunday closed.'
    >>> make_speakable("1. Tea\n2. Coffee"), make_speakable("12. That is seven plus five.")
    ('Tea. Coffee.', '12. That is seven plus five.')
    >>> make_speakable("Well............. yes --------- no, ask ______ first")
    'Well. yes - no, ask first'
    """
    for pattern, replacement in ((_FENCE, ""), (_RULE, ""), (_LINK, r"\1"), (_TAG, " "), (_MARKER, "")):
        text = pattern.sub(replacement, text)
    if {"1", "2"} <= set(_NUMBER.findall(text)):  # a list; a number alone may be the answer
        text = _NUMBER.sub("", text)
    text = _SYMBOLS.sub(" ", _EMPHASIS.sub("", text))
    text = _SYMBOL_RUN_RE.sub(lambda run: run[1] or " ", text)
    text = "".join(each if each == "\n" else _speakable_character(each) for each in text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    lines = [line for line in lines if any(each.isalnum() for each in line)]
    closed = [line if line[-1] in ".!?…" or line[-2:-1] in ".!?" else f"{line.rstrip(',;:')}." for line in lines[:-1]]
    return " ".join([*closed, *(_finish_list_line(line, len(lines)) for line in lines[-1:])])


def _finish_list_line(line: str, lines: int) -> str:
    """Return a line of several as a sentence; a single line stays as written."""
    return line if lines < 2 or line[-1] in ".!?…\"'”’)" else f"{line}."


def _speakable_character(each: str) -> str:
    category = unicodedata.category(each)
    if category[0] == "C":
        return "" if category == "Cf" else " "
    is_picture = (category == "So" and each >= "\u2300") or "\U0001f3fb" <= each <= "\U0001f3ff"
    return " " if is_picture or each == "\ufe0f" else each


# ── Repetition ──


def has_repetition(text: str) -> bool:
    """Return whether a text repeats itself.

    >>> loop = "The answer is: The answer is: The answer is: The"
    >>> has_repetition(loop), has_repetition("It is very, very big, and very blue.")
    (True, False)
    """
    return _find_repetition(text) is not None


def remove_repetition(text: str) -> str:
    """Return a text up to its first repetition.

    >>> remove_repetition("It is the knight. It is the knight. It is the knight.")
    'It is the knight.'
    """
    start = _find_repetition(text)
    return text if start is None else text[:start].rstrip()


def _find_repetition(text: str) -> int | None:
    """Return the position of the first repetition: of a block that follows itself, or of any four words.

    How often a block may repeat depends on its length: "very, very" is English, six words twice are a loop.
    """
    found = list(_WORD.finditer(text))
    words = [re.sub(r"\W", "", each[0].casefold()) or each[0] for each in found]
    seen: dict[tuple[str, ...], list[int]] = {}
    for end in range(1, len(words) + 1):
        for size in range(1, min(MAX_BLOCK_WORDS, end // 2) + 1):
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


def _is_repeated_block(words: list[str], end: int, size: int, times: int) -> bool:
    block = words[end - size : end]
    return all(words[end - size * (n + 1) : end - size * n] == block for n in range(1, times))


# ── Length ──


def shorten_to_words(text: str, max_words: int) -> str:
    """Return at most `max_words` words, up to the last sentence that fits, else the last clause, else the last word.

    >>> shorten_to_words("It is big. It is also very blue, they say, and deep.", 8)
    'It is big.'
    >>> shorten_to_words("It is big and very blue, they say, and deep.", 8)
    'It is big and very blue, they say.'
    """
    words = list(_WORD.finditer(text))
    if len(words) <= max_words:
        return text
    head = text[: words[max_words - 1].end()] if max_words > 0 else ""
    return trim_to_sentence(head)


def has_break(text: str) -> bool:
    """Return whether a text has the end of a sentence, or of a clause followed by another word.

    >>> has_break("It is big, and"), has_break("It is big."), has_break("The answer is:"), has_break("It is")
    (True, True, False, False)
    """
    return bool(_sentence_ends(text) or _CLAUSE_END.search(text.rstrip(" ,;:–—")))


def trim_to_sentence(text: str) -> str:
    """Return a text up to its last complete sentence or clause, so that it does not break off within one.

    >>> *map(trim_to_sentence, ("The sea is salty. Rivers carry small amounts of", "Rivers carry salt, and the")),
    ('The sea is salty.', 'Rivers carry salt.')
    """
    if sentences := _sentence_ends(text):
        return text[: sentences[-1]]
    clauses = [each.start() for each in _CLAUSE_END.finditer(text)]
    text = (text[: clauses[-1]] if clauses else text).rstrip(" ,;:–—-(\"'")
    return f"{text}." if text else ""


def _sentence_ends(text: str) -> list[int]:
    """Return the positions where sentences end."""
    ends = [each.end() for each in _SENTENCE_END.finditer(text)]
    return [end for end in ends if not _ABBREVIATION.search(text, max(0, end - 10), end)]
