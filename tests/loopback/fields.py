"""Checks of single values for the loopback servers' tables of fields: each takes a value and returns whether it is valid.

The error message for an invalid value is up to each vendor's server.
"""

from collections.abc import Callable
from typing import Any


def is_anything(value: Any) -> bool:  # noqa: ARG001 - a check like the others
    """Accept every value."""
    return True


def is_text(value: Any) -> bool:
    """Accept a string."""
    return isinstance(value, str)


def is_texts(value: Any) -> bool:
    """Accept a list of strings."""
    return isinstance(value, list) and all(map(is_text, value))


def is_flag(value: Any) -> bool:
    """Accept true and false."""
    return isinstance(value, bool)


def is_whole_number(value: Any) -> bool:
    """Accept a non-negative integer.

    >>> is_whole_number(0), is_whole_number(-1), is_whole_number(True), is_whole_number(1.0)
    (True, False, False, False)
    """
    return type(value) is int and value >= 0


def is_number(value: Any) -> bool:
    """Accept a number."""
    return type(value) in (int, float)


def is_object(value: Any) -> bool:
    """Accept an object."""
    return isinstance(value, dict)


def is_objects(value: Any) -> bool:
    """Accept a list of objects."""
    return isinstance(value, list) and all(map(is_object, value))


def is_text_or_object(value: Any) -> bool:
    """Accept a string or an object."""
    return isinstance(value, str | dict)


def one_of(*known: Any) -> Callable[[Any], bool]:
    """Return a check that accepts only these values."""
    return lambda value: any(value == each and type(value) is type(each) for each in known)
