"""Errors of one provider account: a status, a body or an exception comes in, a `ProviderError` goes out.

Each message names the provider, what happened and what to do, and never shows a secret. Nothing here raises or sends
requests.
"""

import errno
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from yarl import URL

from pramana import clock
from pramana.errors import (
    AddressNotAllowed,
    ApiKeyInReply,
    AuthenticationFailed,
    BrokenReply,
    Hint,
    NotAnApi,
    OutOfCredit,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
    UnknownModel,
    Unreachable,
    escape_control_characters,
)
from pramana.providers.accounts import Account
from pramana.providers.guard import AddressGuard
from pramana.providers.redaction import MIN_LONG_SECRET_LENGTH, Secrets

MAX_MESSAGE_LENGTH = 300
MALFORMED_RESPONSE_ERRORS = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""Raised while parsing a response of an unexpected shape."""


class ParseErrorTranslator:
    """The context of `AccountErrors.translate_parse_errors`.

    A class, since a generator costs each request a microsecond.
    """

    __slots__ = ("_failures", "_renamed", "_what")

    def __init__(self, failures: "AccountErrors", what: str, renamed: Mapping[str, str]) -> None:
        self._failures, self._what, self._renamed = failures, what, renamed

    def __enter__(self) -> None:
        """Enter without doing anything."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Rejected):
            for ours, theirs in self._renamed.items():
                if error.parameter == theirs:
                    raise Rejected(str(error), status=error.status, parameter=ours) from None
        elif isinstance(error, MALFORMED_RESPONSE_ERRORS):
            raise self._failures.make_broken_reply(self._what) from None


class AccountErrors:
    """Builds the errors of one account at one host."""

    def __init__(self, vendor: str, host: str, account: Account, secrets: Secrets, proxy: URL | None) -> None:
        self.vendor, self.secrets = vendor, secrets
        self.provider_label = f"{vendor} ({host})"
        """The provider's name and host, as every message shows them."""
        self.variable = account.variable or f"{re.sub(r'[^A-Z0-9]+', '_', vendor.upper())}_API_KEY"
        self._account, self._proxy = account, proxy

    def quote_safely(self, text: str) -> str:
        """Return text from outside in a form that is safe to show in a message."""
        return self.secrets.redact_message(escape_control_characters(text))[:MAX_MESSAGE_LENGTH]

    def make_broken_reply(self, problem: str = "was cut off before its end") -> BrokenReply:
        """Return the error for a response that violates the wire format."""
        return BrokenReply(f"the reply of {self.provider_label} {problem}")

    def translate_parse_errors(
        self, problem: str, vendor_parameter_names: Mapping[str, str] | None = None
    ) -> "ParseErrorTranslator":
        """Return a context that translates exceptions from parsing a response to a `ProviderError`.

        A rejected parameter is reported by its name in the request: `vendor_parameter_names` maps our
        names to the vendor's.
        """
        return ParseErrorTranslator(self, problem, vendor_parameter_names or {})

    def make_leaked_key_error(self) -> ApiKeyInReply:
        """Return the error for a response that cannot be stored as it is and must not be judged in any other form."""
        return ApiKeyInReply(
            f"the reply of {self.provider_label} contains the account's API key, and keys are never stored; if it is "
            "not a "
            f"secret, set {self.variable} to one of fewer than {MIN_LONG_SECRET_LENGTH} characters"
        )

    def redact_for_storage(self, data: bytes) -> bytes:
        """Return JSON with secrets blanked; raise `ApiKeyInReply` if that breaks it (an all-digit key in a number)."""
        try:
            return self.secrets.redact_json(data)
        except ValueError:
            raise self.make_leaked_key_error() from None

    def make_status_error(self, status: int, body: Any, *, retry_after_s: float | None = None) -> ProviderError:
        """Return the error for a status and its response body; also for an error in mid-stream."""
        error = ErrorBody.parse(body)
        said = self.secrets.redact_message(escape_control_characters(error.message))
        said = said if len(said) <= MAX_MESSAGE_LENGTH else said[: MAX_MESSAGE_LENGTH - 1] + "…"
        says = f": {said}" if said else ""
        who = self.provider_label
        if error.code == "model_not_found" or (status == 404 and "model" in error.message.lower()):
            return UnknownModel(f"{who} has no such model{says}", status=status, hint=self._make_list_models_hint())
        if status == 402 or error.is_out_of_credit:
            return OutOfCredit(
                f"the account at {who} is out of credit, or over its spending limit ({status}){says}; add credit or "
                "raise the limit, then resume",
                status=status,
            )
        if status == 407 and self._proxy:
            return self.make_proxy_error(status)
        if status in (401, 403):
            found = "rejected the API key" if self._account.key else "requires an API key, and none is set"
            return AuthenticationFailed(f"{who} {found} ({status}){says}; set {self.variable}", status=status)
        if status == 429:
            return RateLimited(f"{who}: rate limit exceeded ({status}){says}", status=status, retry_after=retry_after_s)
        if status in (408, 409) or status >= 500:
            return Unavailable(f"{who} is unavailable ({status}){says}", status=status, retry_after=retry_after_s)
        if status == 404:
            nothing = f"{who}: not found at this address ({status}){says}; check the base URL"
            return NotAnApi(nothing, status=status)
        if error.code == "content_filter":
            return Rejected(f"{who} rejected the prompt: content filter{says}", status=status)
        return Rejected(f"{who} rejected the request ({status}){says}", status=status, parameter=error.parameter)

    def _make_list_models_hint(self) -> Hint:
        listed = self._account.list_argument
        return Hint("list_server_models" if "://" in listed else "list_models", self.quote_safely(listed))

    def make_redirect_error(self, status: int, location: str = "") -> Rejected:
        """Return the error for a redirect; a host that contains a secret is not shown."""
        try:
            host = escape_control_characters(URL(location).host or "")
        except ValueError:
            host = ""
        if any(each.lower() in host for each in self.secrets.all):  # URL hosts are lower case
            host = ""
        return Rejected(
            f"{self.provider_label} redirects to {host or 'another address'}, and keys are never sent to another "
            "address; set "
            "the final address as the base URL",
            status=status,
        )

    def make_proxy_error(self, status: int) -> ProviderError:
        """Return the error for a proxy that refused to connect."""
        between = f"the proxy {self._proxy.host_port_subcomponent if self._proxy else ''}"
        if status == 407:
            return AuthenticationFailed(
                f"{between} requires a user and a password ({status}); set HTTP_PROXY or HTTPS_PROXY to "
                "http://user:password@host:port",
                status=status,
            )
        return Unavailable(f"{between} could not connect to {self.provider_label}: {status}", status=status)

    def make_address_refused_error(self, reason: str) -> AddressNotAllowed:
        """Return the error for an address that must not be connected to."""
        return AddressNotAllowed(
            f"requests to {self.provider_label} are blocked: {reason}; an administrator can allow them in the "
            "workbench under "
            "Settings, Server, or with allowPrivateAddresses in PATCH /api/settings"
        )

    def make_unreachable_error(
        self, error: Exception, guard: AddressGuard | None, *, in_response: bool = False
    ) -> ProviderError:
        """Return the error for an exchange that failed before the response; `in_response`: in the middle of it."""
        if not in_response and guard and guard.refused:  # the guard has just refused to connect
            why = f"its name resolves to {guard.refused[0]}"
            guard.refused.clear()
            return self.make_address_refused_error(why)
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return Unreachable(f"no connection to {self.provider_label} within {self._account.connect_timeout_s:g} s")
        if isinstance(error, TimeoutError):
            return Unavailable(f"no complete reply from {self.provider_label} within {self._account.timeout_s:g} s")
        if in_response:
            return self.make_broken_reply()
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return self.make_proxy_error(error.status)
        if isinstance(error, aiohttp.ClientResponseError):
            return self.make_broken_reply("is not HTTP")
        said = str(error)
        if isinstance(error, aiohttp.ClientConnectorError):  # prefer the system's message to the library's
            cause = error.os_error
            known = cause.errno is not None and cause.errno in errno.errorcode
            said = (os.strerror(cause.errno or 0) if known else cause.strerror) or str(cause)
        return Unreachable(f"cannot reach {self.provider_label}: {self.quote_safely(said) or type(error).__name__}")


_PARAMETER_RE = re.compile(
    r"(?i:unsupported|unknown|unrecognized|unexpected|invalid)[\w ]*?\b(?i:parameter|argument|field|value|name)s?\b"
    r"[^'\"`]{0,30}['\"`]([A-Za-z_][\w.]*)['\"`]"
    r"|^['\"`]?([A-Za-z_][\w.]*)['\"`]?:? (?:Extra inputs are not permitted|is not supported|is deprecated)"
)

NO_CREDIT_CODES = (
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_error",
    "BILLING_DISABLED",
)
"""Codes, types and reasons of OpenAI, Anthropic and Google for an account without credit or at its spending limit."""
_NO_CREDIT_RE = re.compile(
    # Anthropic sends both with status 400 and no code; Google sends the others with 403, 429 and 400. Google's "You
    # exceeded your current quota, please check your plan and billing details" is not included: it is also sent for a
    # limit per minute.
    r"(?i)credit balance is too low|reached your specified API usage limits"
    r"|requires billing to be enabled|prepayment credits are depleted"
    r"|please enable billing on your project|without a billing account linked"
)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The contents of an error body, in any vendor's format."""

    message: str
    code: str | None = None
    parameter: str | None = None
    retry_after_s: float | None = None
    is_out_of_credit: bool = False
    """The account has no credit left or is at its spending limit: every other request would fail too."""

    @classmethod
    def parse(cls, body: Any) -> "ErrorBody":
        """Parse the body: parsed JSON, or text that is not JSON."""
        if isinstance(body, list) and body:  # Google's streams return a list with one element
            body = body[0]
        if isinstance(body, str):
            return cls(body, parameter=_find_parameter_name(body), is_out_of_credit=_is_out_of_credit(body))
        if not isinstance(body, dict):
            return cls("")
        error = body.get("error") or body.get("detail") or body
        if not isinstance(error, dict):
            text = error if isinstance(error, str) else json.dumps(error)
            return cls(text, parameter=_find_parameter_name(text), is_out_of_credit=_is_out_of_credit(text))
        message = error.get("message") or body.get("message") or ""
        message = message if isinstance(message, str) else json.dumps(message)
        named, code, wait = error.get("param"), error.get("code"), None
        reasons = [code, error.get("type")]
        for detail in error.get("details") or () if isinstance(error.get("details"), list) else ():
            if isinstance(detail, dict):
                reasons.append(detail.get("reason"))
                if isinstance(delay := detail.get("retryDelay"), str):
                    wait = _parse_number(delay.removesuffix("s"))
        return cls(
            message,
            code if isinstance(code, str) else None,
            named if isinstance(named, str) and named else _find_parameter_name(message),
            wait,
            _is_out_of_credit(message, reasons),
        )


def _is_out_of_credit(message: str, codes: Sequence[Any] = ()) -> bool:
    return any(each in NO_CREDIT_CODES for each in codes) or bool(_NO_CREDIT_RE.search(message[:2000]))


def _find_parameter_name(message: str) -> str | None:
    found = _PARAMETER_RE.search(message[:2000])
    return (found[1] or found[2]) if found else None


def _parse_number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def parse_retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Return the seconds to wait before a retry, as the server requests, or None.

    >>> parse_retry_after({"retry-after": "7"}), parse_retry_after({"retry-after-ms": "250", "retry-after": "1"})
    (7.0, 0.25)
    >>> now = datetime(2015, 10, 21, 7, 27, tzinfo=UTC)
    >>> parse_retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, now=now)
    60.0
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (seconds := _parse_number(headers.get(name))) is not None:
            return seconds * unit
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - (now or clock.now())).total_seconds())
