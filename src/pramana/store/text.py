"""Any Python text in, text that both engines can hold out, and back again: nothing is lost, nothing is guessed.

PostgreSQL refuses NUL, and neither engine has UTF-8 for half of a surrogate pair; models emit both. The rule, for every
text column of either engine, plain or JSON: NUL, each surrogate, and U+FDD0 itself (a noncharacter, which Unicode
reserves for a program's own use) are written as U+FDD0 and the character's four hexadecimal digits. Any other text is
stored as it is. What leaves never differs from what entered.
"""

import re
from typing import Any

MARK = "\ufdd0"
_cannot_stand = re.compile("[\0\ud800-\udfff\ufdd0]")
_written = re.compile("\ufdd0([0-9a-f]{4})")


def stored(text: str) -> str:
    """Return text as a column holds it.

    >>> stored("a\\0b") == "a\\ufdd00000b"
    True
    """
    if text.isascii() and "\0" not in text:
        return text
    return _cannot_stand.sub(_write, text)


def stored_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with `stored` done to every text in it; nearly all need nothing, and one look tells so.

    >>> stored_row(("a\\0", 1, None)) == ("a\\ufdd00000", 1, None)
    True
    """
    everything = "".join([value for value in row if value.__class__ is str])
    if everything.isascii() and "\0" not in everything:
        return row
    return tuple([stored(value) if isinstance(value, str) else value for value in row])


def restored(text: str) -> str:
    """Return what `stored` was given.

    >>> restored(stored("half \\ud83d and \\0")) == "half \\ud83d and \\0"
    True
    """
    return _written.sub(_read, text) if MARK in text else text


def stored_or_none(text: str | None) -> str | None:
    """Return `stored` of a text that may be absent."""
    return None if text is None else stored(text)


def restored_or_none(text: str | None) -> str | None:
    """Return `restored` of a text that may be absent."""
    return None if text is None else restored(text)


def _write(found: re.Match[str]) -> str:
    return f"{MARK}{ord(found[0]):04x}"


def _read(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))
