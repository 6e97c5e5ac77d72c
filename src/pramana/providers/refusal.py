"""What a refusal says: an error body of any vendor and the answer's headers in; message, code, parameter and wait out.

It also tells whether money is the matter. It never raises: a body of a shape nobody documents still gives what can be
read from it. What follows from a refusal is decided in `http.py`.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from pramana import clock

_NAMES_PARAMETER = re.compile(
    r"(?i:unsupported|unknown|unrecognized|unexpected|invalid)[\w ]*?\b(?i:parameter|argument|field|value|name)s?\b"
    r"[^'\"`]{0,30}['\"`]([A-Za-z_][\w.]*)['\"`]"
    r"|^['\"`]?([A-Za-z_][\w.]*)['\"`]?:? (?:Extra inputs are not permitted|is not supported|is deprecated)"
)

UNPAID = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error", "BILLING_DISABLED")
"""Codes, types and reasons of OpenAI, Anthropic and Google for an account that has, or may spend, no money."""
_NAMES_MONEY = re.compile(
    # Anthropic says both with 400 and no code of its own; Google the others, with 403, 429 and 400. Google's "You
    # exceeded your current quota, please check your plan and billing details" is not here: it is also what a limit a
    # minute says.
    r"(?i)credit balance is too low|reached your specified API usage limits"
    r"|requires billing to be enabled|prepayment credits are depleted"
    r"|please enable billing on your project|without a billing account linked"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What an error body says, whichever vendor wrote it."""

    message: str
    code: str | None = None
    parameter: str | None = None
    wait: float | None = None
    unpaid: bool = False
    """The account has no money left, or may spend none: nothing else can be asked of it either."""

    @classmethod
    def of(cls, body: Any) -> "Refusal":
        """Read the body: parsed JSON, or text that is none."""
        if isinstance(body, list) and body:  # Google's streams answer with a list of one
            body = body[0]
        if isinstance(body, str):
            return cls(body, parameter=_parameter(body), unpaid=_is_unpaid(body))
        if not isinstance(body, dict):
            return cls("")
        error = body.get("error") or body.get("detail") or body
        if not isinstance(error, dict):
            text = error if isinstance(error, str) else json.dumps(error)
            return cls(text, parameter=_parameter(text), unpaid=_is_unpaid(text))
        message = error.get("message") or body.get("message") or ""
        message = message if isinstance(message, str) else json.dumps(message)
        named, code, wait = error.get("param"), error.get("code"), None
        reasons = [code, error.get("type")]
        for detail in error.get("details") or () if isinstance(error.get("details"), list) else ():
            if isinstance(detail, dict):
                reasons.append(detail.get("reason"))
                if isinstance(delay := detail.get("retryDelay"), str):
                    wait = _number(delay.removesuffix("s"))
        return cls(
            message,
            code if isinstance(code, str) else None,
            named if isinstance(named, str) and named else _parameter(message),
            wait,
            _is_unpaid(message, reasons),
        )


def _is_unpaid(message: str, reasons: Sequence[Any] = ()) -> bool:
    return any(each in UNPAID for each in reasons) or bool(_NAMES_MONEY.search(message[:2000]))


def _parameter(message: str) -> str | None:
    found = _NAMES_PARAMETER.search(message[:2000])
    return (found[1] or found[2]) if found else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Return the seconds a server asks us to wait, or None.

    >>> retry_after({"retry-after": "7"}), retry_after({"retry-after-ms": "250", "retry-after": "1"})
    (7.0, 0.25)
    >>> retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, now=datetime(2015, 10, 21, 7, 27, tzinfo=UTC))
    60.0
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (seconds := _number(headers.get(name))) is not None:
            return seconds * unit
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - (now or clock.now())).total_seconds())
