"""What a text of a scenario may be: a value goes in, and comes out or is refused in the format's own words.

The messages are part of the format: programs compare them. The line shown below each says what was found.
"""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from pramana.errors import did_you_mean
from pramana.load.problems import found

_HALF = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def wrong(message: str) -> PydanticCustomError:
    """Return the refusal that says just this."""
    return PydanticCustomError("rule", "{message}", {"message": message})


def required(value: Any, info: ValidationInfo) -> Any:
    """Take a text that is not blank."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise wrong(f"{info.field_name} is required")
    return text(value, info)


def text(value: Any, info: ValidationInfo) -> Any:
    """Take any text."""
    if not isinstance(value, str):
        raise wrong(f"{info.field_name} must be text")
    if not is_unicode(value):
        raise wrong(f"{info.field_name} holds half of a surrogate pair, which is not text")
    return value


def is_unicode(value: str) -> bool:
    """Tell text from what cannot be written as UTF-8."""
    return value.isascii() or not _HALF.search(value)


def audio_url(value: str, info: ValidationInfo) -> str:
    """Take the address of a recording."""
    expected = f"{info.field_name} must be an http(s) URL or a path"
    if not value.strip() or _CONTROL.search(value):
        raise wrong(f"{expected}, found {found(_CONTROL.sub('?', value))}")
    try:
        parts = urlsplit(value)
    except ValueError:
        raise wrong(f"{expected}, found {found(value)}") from None
    has_scheme = "://" in value or (parts.scheme and len(parts.scheme) > 1)  # a single letter is a Windows drive
    if has_scheme and not (parts.scheme in ("http", "https") and parts.hostname):
        raise wrong(f"{expected}, found {found(value)}")
    return value


def unknown(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the message for a key that nobody knows."""
    hint = did_you_mean(name, known) or otherwise
    if name == "<<":
        hint = "; YAML 1.2 has no merge keys, so write the fields out"
    return f"unknown key {found(name)}{hint}"
