"""What goes wrong between us and one account, as errors of ours: a status, a body or an exception in, an error out.

Each says whom we asked, what happened and what to do, and none shows a secret. Nothing here raises or asks anyone.
"""

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
from yarl import URL

from pramana.errors import (
    AddressRefused,
    AuthenticationFailed,
    BrokenReply,
    Hint,
    KeyInAnswer,
    NothingThere,
    OutOfCredit,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
    UnknownModel,
    Unreachable,
    visible,
)
from pramana.providers.account import Account
from pramana.providers.guard import Guard
from pramana.providers.redaction import KEY_LENGTH, Secrets
from pramana.providers.refusal import Refusal

MESSAGE_LIMIT = 300
MALFORMED_RESPONSE_ERRORS = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""What reading an answer of another shape raises."""


class Failures:
    """The errors of one account at one host."""

    def __init__(self, vendor: str, host: str, account: Account, secrets: Secrets, proxy: URL | None) -> None:
        self.vendor, self.secrets = vendor, secrets
        self.who = f"{vendor} ({host})"
        """Whom we asked, as every message says it."""
        self.variable = account.variable or f"{re.sub(r'[^A-Z0-9]+', '_', vendor.upper())}_API_KEY"
        self._account, self._proxy = account, proxy

    def quoted(self, text: str) -> str:
        """Return what somebody else said, as a message may show it."""
        return self.secrets.blank_message(visible(text))[:MESSAGE_LIMIT]

    def broken(self, what: str = "was cut off before its end") -> BrokenReply:
        """Return the error for an answer that is not what the wire format promises."""
        return BrokenReply(f"the answer of {self.who} {what}")

    @contextmanager
    def reading(self, what: str, renamed: Mapping[str, str] | None = None) -> Iterator[None]:
        """Raise what goes wrong while an answer is read as an error of ours.

        A refused parameter gets the name the request had for it: `renamed` has theirs by ours.
        """
        try:
            yield
        except Rejected as refused:
            for ours, theirs in (renamed or {}).items():
                if refused.parameter == theirs:
                    raise Rejected(str(refused), status=refused.status, parameter=ours) from None
            raise
        except MALFORMED_RESPONSE_ERRORS:
            raise self.broken(what) from None

    def key_in_answer(self) -> KeyInAnswer:
        """Return the error for an answer that cannot be stored as it is, and must not be judged as anything else."""
        return KeyInAnswer(
            f"the answer of {self.who} held the account's key, and no key is ever stored; where it is no secret, set "
            f"{self.variable} to one of fewer than {KEY_LENGTH} characters"
        )

    def storable(self, data: bytes) -> bytes:
        """Return JSON as it may be stored; raises `KeyInAnswer` for a key of digits alone, where a number stood."""
        try:
            return self.secrets.blank_json(data)
        except ValueError:
            raise self.key_in_answer() from None

    def refusal(self, status: int, body: Any, *, retry_after: float | None = None) -> ProviderError:
        """Return the error for a status and the body that came with it; also for an error that came mid-stream."""
        error = Refusal.of(body)
        said = self.secrets.blank_message(visible(error.message))
        said = said if len(said) <= MESSAGE_LIMIT else said[: MESSAGE_LIMIT - 1] + "…"
        says = f": {said}" if said else ""
        who = self.who
        if error.code == "model_not_found" or (status == 404 and "model" in error.message.lower()):
            return UnknownModel(f"{who} knows no such model{says}", status=status, hint=Hint("list_models"))
        if status == 402 or error.unpaid:
            return OutOfCredit(
                f"the account at {who} has no money left, or may spend no more ({status}){says}; top it up or raise "
                "its limit, then go on",
                status=status,
            )
        if status == 407 and self._proxy:
            return self.proxy_refused(status)
        if status in (401, 403):
            found = "refused the key" if self._account.key else "asks for a key, and none was given"
            return AuthenticationFailed(f"{who} {found} ({status}){says}; set {self.variable}", status=status)
        if status == 429:
            return RateLimited(f"{who} limits the rate ({status}){says}", status=status, retry_after=retry_after)
        if status in (408, 409) or status >= 500:
            return Unavailable(f"{who} is unavailable ({status}){says}", status=status, retry_after=retry_after)
        if status == 404:
            nothing = f"{who} has nothing at this address ({status}){says}; check the base URL"
            return NothingThere(nothing, status=status)
        if error.code == "content_filter":
            return Rejected(f"{who} refused the prompt by its content filter{says}", status=status)
        return Rejected(f"{who} rejected the request ({status}){says}", status=status, parameter=error.parameter)

    def redirected(self, status: int, to: str = "") -> Rejected:
        """Return the error for an answer that sends us elsewhere; a host that holds a secret is not shown."""
        try:
            host = visible(URL(to).host or "")
        except ValueError:
            host = ""
        if any(each.lower() in host for each in self.secrets.all):  # hosts are written small
            host = ""
        return Rejected(
            f"{self.who} redirects to {host or 'another address'}, and a key is never sent along; give the final "
            "address as the base URL",
            status=status,
        )

    def proxy_refused(self, status: int) -> ProviderError:
        """Return the error for a proxy that would not lead on."""
        between = f"the proxy {self._proxy.host_port_subcomponent if self._proxy else ''}"
        if status == 407:
            return AuthenticationFailed(
                f"{between} asks for a user and a password ({status}); set HTTP_PROXY or HTTPS_PROXY to "
                "http://user:password@host:port",
                status=status,
            )
        return Unavailable(f"{between} would not lead to {self.who}: {status}", status=status)

    def address_refused(self, why: str) -> AddressRefused:
        """Return the error for an address that may not be connected to."""
        return AddressRefused(
            f"{self.who} is not asked: {why}; an administrator of the server can allow it by allowPrivateAddresses"
        )

    def stopped_by(self, guard: Guard | None) -> AddressRefused | None:
        """Return the error for connections that a guard has just refused to make; None when it has not."""
        if guard is None or not guard.refused:
            return None
        why = f"its name leads to {guard.refused[0]}"
        guard.refused.clear()
        return self.address_refused(why)

    def unreached(self, error: Exception, guard: Guard | None, *, answered: bool = False) -> ProviderError:
        """Return the error for an exchange that could not be ended, before its answer began or in the middle of it."""
        if not answered and (stopped := self.stopped_by(guard)):
            return stopped
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return Unreachable(f"no connection to {self.who} within {self._account.connect_s:g} s")
        if isinstance(error, TimeoutError):
            return Unavailable(f"no full answer from {self.who} within {self._account.timeout_s:g} s")
        if answered:
            return self.broken()
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return self.proxy_refused(error.status)
        if isinstance(error, aiohttp.ClientResponseError):
            return self.broken("is not HTTP")
        said = str(error)
        if isinstance(error, aiohttp.ClientConnectorError):  # in the words of the system and not of a library
            cause = error.os_error
            known = cause.errno is not None and cause.errno in errno.errorcode
            said = (os.strerror(cause.errno or 0) if known else cause.strerror) or str(cause)
        return Unreachable(f"cannot reach {self.who}: {self.quoted(said) or type(error).__name__}")
