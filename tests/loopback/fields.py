"""Checks of single values, of which the loopback servers' tables of fields are made: a value in, whether it fits out.

What is said of one that does not fit is each vendor's own, and not said here.
"""

from collections.abc import Callable
from typing import Any


def anything(value: Any) -> bool:  # noqa: ARG001 - a check like the others
    """Take every value."""
    return True


def text(value: Any) -> bool:
    """Take a string."""
    return isinstance(value, str)


def texts(value: Any) -> bool:
    """Take a list of strings."""
    return isinstance(value, list) and all(map(text, value))


def flag(value: Any) -> bool:
    """Take true and false."""
    return isinstance(value, bool)


def whole(value: Any) -> bool:
    """Take a whole number from zero on.

    >>> whole(0), whole(-1), whole(True), whole(1.0)
    (True, False, False, False)
    """
    return type(value) is int and value >= 0


def number(value: Any) -> bool:
    """Take a number."""
    return type(value) in (int, float)


def thing(value: Any) -> bool:
    """Take an object."""
    return isinstance(value, dict)


def things(value: Any) -> bool:
    """Take a list of objects."""
    return isinstance(value, list) and all(map(thing, value))


def text_or_thing(value: Any) -> bool:
    """Take a string or an object."""
    return isinstance(value, str | dict)


def one_of(*known: Any) -> Callable[[Any], bool]:
    """Return the check that takes these values only."""
    return lambda value: any(value == each and type(value) is type(each) for each in known)
