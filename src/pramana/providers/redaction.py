"""Redaction of secrets in everything shown or stored: text and JSON come in, and leave without secrets.

A secret is found as it is and in any JSON escaping (`\\/`, `\\u0073`). One of fewer than 16 characters is blanked in
messages only: a word such as `ollama` may occur in an honest answer, and no server learns anything new from it.
"""

import json
import re
from collections.abc import Iterable
from functools import cached_property

REDACTED = "[key]"
MIN_LONG_SECRET_LENGTH = 16
"""The length from which a key cannot be an ordinary word in an answer."""


class Secrets:
    """The secrets of one account."""

    def __init__(self, secrets: Iterable[str | None], passwords: Iterable[str | None] = ()) -> None:
        """Hold the secrets; `passwords` are blanked only in our messages: short words may also occur in replies."""
        self._passwords = [each for each in passwords if each]
        self.all = sorted({each for each in secrets if each}, key=len, reverse=True)  # one may be part of another
        self.long_secrets = tuple(each for each in self.all if len(each) >= MIN_LONG_SECRET_LENGTH)
        """Secrets that must not occur in a response."""
        self._bytes = [each.encode("utf-8", "surrogatepass") for each in self.long_secrets]
        self._plain = all(
            each.isascii() and each.isprintable() and not {*each} & {*'"\\'} for each in self.long_secrets
        )

    def occur_in(self, text: str) -> bool:
        """Return whether a text contains a secret that must not occur in a response."""
        for secret in self.long_secrets:  # noqa: SIM110 - a plain loop: faster on every reply
            if secret in text:
                return True
        return False

    def occur_in_json(self, data: bytes) -> bool:
        """Return whether JSON contains such a secret, in any escaping; the data need not be valid."""
        return self._redact_bytes(data) != data

    def redact(self, text: str) -> str:
        """Return a message with all secrets blanked, long or short."""
        for secret in self.all:
            text = text.replace(secret, REDACTED)
        return self._escaped_pattern.sub(REDACTED, text) if self.all and "\\" in text else text

    def redact_message(self, text: str) -> str:
        """Return one of our messages without secrets, passwords or users in addresses."""
        text = self.redact(text)
        for password in self._passwords:
            text = text.replace(password, REDACTED)
        return _USER_IN_URL_RE.sub("//", text)

    def redact_json(self, data: bytes) -> bytes:
        """Return JSON with the long secrets blanked; raise `ValueError` where the result would not be JSON."""
        kept = self._redact_bytes(data)
        if kept is not data:
            try:
                json.loads(kept.decode("utf-8", "surrogatepass"))
            except RecursionError:
                raise ValueError("nested too deeply") from None
        return kept

    def _redact_bytes(self, data: bytes) -> bytes:
        if self.long_secrets and b"\\" in data and self._may_contain_secret(data):
            data = self._escaped_json_pattern.sub(REDACTED.encode(), data)
        for secret in self._bytes:
            if secret in data:
                data = data.replace(secret, REDACTED.encode())
        return data

    def _may_contain_secret(self, data: bytes) -> bool:
        if not self._plain:
            return True
        unescaped = _ESCAPED_ASCII_RE.sub(_unescape, data)  # with a search, far cheaper than matching every escaping
        return any(secret in unescaped for secret in self._bytes)

    @cached_property
    def _escaped_pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(_make_secret_pattern, self.all)))

    @cached_property
    def _escaped_json_pattern(self) -> re.Pattern[bytes]:
        return re.compile("|".join(map(_make_secret_pattern, self.long_secrets)).encode("utf-8", "surrogatepass"))


def read_environment_secrets() -> Secrets:
    """Return the vendors' keys in this machine's environment, which a user's own code could leak by mistake."""
    from pramana import settings
    from pramana.providers.kinds import VARIABLES_BY_KIND

    names = {name for known in VARIABLES_BY_KIND.values() for name in known.key_variables}
    return Secrets(
        key for name in names if (key := settings.read_variable(name)) and len(key) >= MIN_LONG_SECRET_LENGTH
    )


def describe_leaked_key(source: str) -> str:
    """Return the error message for a response of a user's own code that contains such a key."""
    return (
        f"{source} contains an API key from the environment, and keys are never stored; if the key is not a secret, "
        f"use one of fewer than {MIN_LONG_SECRET_LENGTH} characters"
    )


def strip_url_secrets(url: str) -> str:
    """Return an address without its possible secrets: user, password, query.

    >>> strip_url_secrets("https://me:secret@host/v1?key=secret")
    'https://host/v1'
    """
    return _USER_IN_URL_RE.sub("//", url.partition("?")[0])


_USER_IN_URL_RE = re.compile(r"//[^/@\s]*@")
_ESCAPED_ASCII_RE = re.compile(rb"\\(?:/|u00([2-7][0-9a-fA-F]))")
"""A JSON escape of a printable ASCII character, as nearly every key consists of."""


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 16)]) if match[1] else b"/"


def _make_secret_pattern(secret: str) -> str:
    """Return a pattern that matches every JSON escaping of a secret.

    >>> re.sub(_make_secret_pattern("a/b"), "[key]", r"a/b, \\u0061\\/b, \\u0061\\u002Fb, ab")
    '[key], [key], [key], ab'
    """
    return "".join(map(_make_letter_pattern, secret))


def _make_letter_pattern(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    escaped = "".join(rf"\\u(?i:{units[place : place + 4]})" for place in range(0, len(units), 4))
    usual = json.dumps(letter, ensure_ascii=False)[1:-1]
    also = {"/": r"|\\/"}.get(letter, "")
    # No two alternatives match the same text, or the search for a long secret would never end.
    return f"(?:{re.escape(usual)}{also}|{escaped})"
