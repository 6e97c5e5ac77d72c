"""The one HTTP seam: a request in a vendor's words goes out, its events come back parsed, with the moment of each.

Every failure leaves as a `ProviderError` that says whom we asked and what to do. Never a retry, never a redirect
followed (the key would travel along), never the key in a message, a reply or a `repr`.
"""

import asyncio
import errno
import json
import os
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, TypeVar

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from pramana import clock
from pramana.errors import (
    AddressRefused,
    AuthenticationFailed,
    BrokenReply,
    InvalidInput,
    KeyInAnswer,
    NothingThere,
    OutOfCredit,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
    UnknownModel,
    Unreachable,
    quote,
    visible,
)
from pramana.providers.deadlines import Deadlines
from pramana.providers.events import Events
from pramana.providers.guard import Guard, misspelt
from pramana.providers.keys import BLANK, KEY_LENGTH, Secrets
from pramana.providers.reading import Reading
from pramana.providers.refusal import Refusal, retry_after

MESSAGE_LIMIT = 300
REPLY_LIMIT = 64 << 20
"""Bytes of one answer: far above any real one, and no server can fill our memory."""
MAX_PAGES = 100
"""Of a list of models."""
ENDLESS = f"is a list of models without an end: it repeats a page, or has more than {MAX_PAGES}"
CONNECT_S = 30.0
LINGER_S = 1.0
"""How long a finished stream may take to close, so that its connection can be used again."""


@dataclass(frozen=True, slots=True)
class Account:
    """How one provider account is reached."""

    base_url: str
    key: str | None = field(default=None, repr=False)
    timeout_s: float | None = 120.0
    """For one whole request, its streamed answer included; None: whoever asks keeps the time."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; they win over the provider's own."""
    variable: str | None = None
    """The environment variable the key is read from, for messages; None: the vendor's usual one."""
    proxy: str | None = field(default=None, repr=False)
    """The URL of the proxy that every request goes through; None: straight to the base URL."""
    ours: bool = True
    """Whether the base URL is the vendor's or this machine's own choice; False: somebody else named it."""
    allow_private: bool = True
    """Whether what somebody else named may be at a private address."""
    elsewhere: str | None = field(default=None, repr=False)
    """The key for servers that a part of an agent names by itself; never the account's own."""

    @property
    def guarded(self) -> bool:
        """Whether only the public Internet may be connected to."""
        return not (self.ours or self.allow_private)

    def __repr__(self) -> str:
        return f"Account({_shown(self.base_url)!r}, {'with a key' if self.key else 'without a key'})"


_Read = TypeVar("_Read")


class Http:
    """The connections to one account. It belongs to the event loop that first uses it, until it is closed."""

    def __init__(self, vendor: str, account: Account) -> None:
        self.vendor, self.account = vendor, account
        self.variable = account.variable or f"{re.sub(r'[^A-Z0-9]+', '_', vendor.upper())}_API_KEY"
        base, _, self._query = account.base_url.partition("?")
        self._base = base.rstrip("/")
        url = self._address("")
        self.host = url.host_port_subcomponent or ""
        if url.user and account.key:
            raise InvalidInput(f"{self.host} is given a user in its URL and a key as well; give one of them")
        self._urls: dict[str, URL] = {}
        self.secrets = Secrets(_secrets(account, url))
        self._proxy = self._proxy_of(account)
        self._guard = self.guard_for(url)
        self._made: tuple[Mapping[str, str] | None, CIMultiDict[str]] = (None, CIMultiDict())
        self._session: aiohttp.ClientSession | None = None
        self._deadlines = None if account.timeout_s is None else Deadlines(account.timeout_s)
        self._connect_s = CONNECT_S if account.timeout_s is None else min(CONNECT_S, account.timeout_s)

    async def post(
        self,
        path: str,
        *,
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        reading: Reading,
        last: Collection[str] = (),
    ) -> None:
        """Post the body as JSON and let the reading take the events of the answer as they arrive.

        `[DONE]` ends the answer, and so does an event named in `last`. Whether one that just stops was complete is for
        the provider to know: see `broken`.
        """
        try:
            sent = aiohttp.BytesPayload(_written(body), content_type="application/json")
        except (TypeError, ValueError, RecursionError) as error:
            raise Rejected(f"the request to {self.vendor} cannot be written as JSON: {error}") from None
        await self._exchange("POST", path, headers, sent, lambda response: self._read(response, reading, last))

    async def _exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        sent: aiohttp.BytesPayload | aiohttp.FormData | None,
        read: Callable[[aiohttp.ClientResponse], Awaitable[_Read]],
    ) -> _Read:
        watched = self._deadlines.begin() if self._deadlines else None
        response: aiohttp.ClientResponse | None = None
        answered = False
        try:
            response = await self._open().request(
                method, self._url(path), data=sent, headers=self._with_own(headers), allow_redirects=False
            )
            if response.status >= 300:
                raise await self._refused(response)
            answered = True
            return await read(response)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise self._unreached(error, answered=answered) from None
        except asyncio.CancelledError:
            if self._deadlines and watched and self._deadlines.passed(watched):
                raise self._unreached(TimeoutError(), answered=False) from None
            raise
        finally:
            if self._deadlines and watched:
                self._deadlines.end(watched)
            if response is not None and not response.closed:  # read to its end it has given its connection back
                response.close()

    async def _read(self, response: aiohttp.ClientResponse, reading: Reading, last: Collection[str]) -> None:
        content, kind = response.content, response.content_type
        chunk = await content.readany()
        if "json" in kind or (kind != "text/event-stream" and chunk.lstrip()[:1] in (b"{", b"[")):
            whole = await self._rest(content, chunk)
            reading.whole = True
            reading.received(None, whole, self._parse(whole), clock.monotonic())
            return
        events, size, heard, opening = Events(), 0, False, chunk
        while True:
            at = clock.monotonic()
            for event, data in events.feed(chunk) if chunk else events.end():
                if data[:6] == b"[DONE]":
                    await self._linger(content)
                    return
                heard = True
                reading.received(event, data, self._parse(data), at)
                if event in last:
                    await self._linger(content)
                    return
            if not chunk:
                if size and not heard and kind != "text/event-stream":
                    raise self.broken(f"is not JSON or an event stream; it begins {self._beginning(opening)}")
                return
            size += len(chunk)
            if size > REPLY_LIMIT:
                raise self.broken(f"is longer than {REPLY_LIMIT >> 20} MB")
            chunk = await content.readany()

    async def get(self, path: str, *, headers: Mapping[str, str]) -> Any:
        """Return the JSON at the path."""

        async def read(response: aiohttp.ClientResponse) -> Any:
            data = await self._rest(response.content, b"")
            parsed = self._parse(data)
            return parsed if (kept := self.without_key(data)) is data else self._parse(kept)

        return await self._exchange("GET", path, headers, None, read)

    async def upload(self, path: str, *, headers: Mapping[str, str], form: aiohttp.FormData) -> Any:
        """Post a form and return the JSON that answers it."""

        async def read(response: aiohttp.ClientResponse) -> Any:
            return self._parse(self.without_key(await self._rest(response.content, b"")))

        return await self._exchange("POST", path, headers, form, read)

    async def download(
        self, path: str, *, headers: Mapping[str, str], body: Mapping[str, Any], take: Callable[[bytes], None]
    ) -> None:
        """Post the body as JSON and let `take` have the bytes that answer it, as they arrive."""

        async def read(response: aiohttp.ClientResponse) -> None:
            size = 0
            while chunk := await response.content.readany():
                size += len(chunk)
                if size > REPLY_LIMIT:
                    raise self.broken(f"is longer than {REPLY_LIMIT >> 20} MB")
                take(chunk)

        sent = aiohttp.BytesPayload(_written(body), content_type="application/json")
        await self._exchange("POST", path, headers, sent, read)

    def guard_for(self, url: URL) -> Guard | None:
        """Return what guards connections to an address; None where none is needed. Its spelling alone may refuse it.

        Through a proxy it is the proxy that connects, so its rules decide.
        """
        if not self.account.guarded:
            return None
        if why := misspelt(url):
            raise self._refused_address(why)
        return None if self._proxy else Guard()

    def _refused_address(self, why: str) -> AddressRefused:
        return AddressRefused(
            f"{self.vendor} ({self.host}) is not asked: {why}; an administrator of the server can allow it by "
            "allowPrivateAddresses"
        )

    def stopped_by(self, guard: Guard | None) -> AddressRefused | None:
        """Return the error for connections that a guard has just refused to make; None when it has not."""
        if guard is None or not guard.refused:
            return None
        why = f"its name leads to {guard.refused[0]}"
        guard.refused.clear()
        return self._refused_address(why)

    async def close(self) -> None:
        """Close every connection; a later request opens new ones."""
        session, self._session = self._session, None
        if session:
            await session.close()

    def broken(self, what: str = "was cut off before its end") -> BrokenReply:
        """Return the error for an answer that is not what the wire format promises."""
        return BrokenReply(f"the answer of {self.vendor} ({self.host}) {what}")

    def key_in_answer(self) -> KeyInAnswer:
        """Return the error for an answer that cannot be stored as it is, and must not be judged as anything else."""
        return KeyInAnswer(
            f"the answer of {self.vendor} ({self.host}) held the account's key, and no key is ever stored; where it is "
            f"no secret, set {self.variable} to one of fewer than {KEY_LENGTH} characters"
        )

    def refusal(self, status: int, body: Any, *, retry_after: float | None = None) -> ProviderError:
        """Return the error for a status and the body that came with it; also for an error that came mid-stream."""
        error = Refusal.of(body)
        said = self.blank(visible(error.message))
        said = said if len(said) <= MESSAGE_LIMIT else said[: MESSAGE_LIMIT - 1] + "…"
        says = f": {said}" if said else ""
        who = f"{self.vendor} ({self.host})"
        if error.code == "model_not_found" or (status == 404 and "model" in error.message.lower()):
            return UnknownModel(f"{who} knows no such model{says}; see what it offers: pramana models", status=status)
        if status == 402 or error.unpaid:
            return OutOfCredit(
                f"the account at {who} has no money left, or may spend no more ({status}){says}; top it up or raise "
                "its limit, then go on",
                status=status,
            )
        if status == 407 and self._proxy:
            return self._proxy_refused(status)
        if status in (401, 403):
            found = "refused the key" if self.account.key else "asks for a key, and none was given"
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

    def blank(self, text: str) -> str:
        """Return the text without the key, nor any other secret of the account."""
        text = self.secrets.blank(text)
        # A proxy's password is blanked here only: it is no long random text, and replies may hold the same word.
        for password in (self._proxy.password, self._proxy.raw_password) if self._proxy else ():
            text = text.replace(password, BLANK) if password else text
        return _USER_IN_URL.sub("//", text)

    def without_key(self, data: bytes) -> bytes:
        """Return JSON as it may be stored."""
        kept = self.secrets.blank_json(data)
        if kept is not data:
            try:
                _decode(kept.decode("utf-8", "surrogatepass"))
            except (ValueError, RecursionError):  # a key of digits alone, where there was a number
                raise self.key_in_answer() from None
        return kept

    def _proxy_of(self, account: Account) -> URL | None:
        if account.proxy is None:
            return None
        with suppress(ValueError):
            proxy = URL(account.proxy)
            if proxy.host:
                return proxy
        found = quote(_shown(account.proxy))
        raise InvalidInput(f"the proxy to {self.host} is {found}; expected http://host:port")

    def _proxy_refused(self, status: int) -> ProviderError:
        between = f"the proxy {self._proxy.host_port_subcomponent if self._proxy else ''}"
        if status == 407:
            return AuthenticationFailed(
                f"{between} asks for a user and a password ({status}); set HTTP_PROXY or HTTPS_PROXY to "
                "http://user:password@host:port",
                status=status,
            )
        return Unavailable(f"{between} would not lead to {self.vendor} ({self.host}): {status}", status=status)

    def _address(self, path: str) -> URL:
        try:
            url = URL(self._base + path)
            if url.scheme in ("http", "https") and url.host:
                url.host.encode("idna")  # or the search for the address raises, far from here
                return url.extend_query(self._query) if self._query else url
        except ValueError:
            pass
        found = quote(_shown(self._base))
        raise InvalidInput(f"the base URL of {self.vendor} is {found}; expected http://host:port/path or https://…")

    def _url(self, path: str) -> URL:
        if (url := self._urls.get(path)) is None:
            url = self._urls[path] = self._address(path)
        return url

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            sent = (self.account.key or "", *self.account.headers.values())
            if not all(each.isascii() and each.isprintable() and each == each.strip() for each in sent):
                raise AuthenticationFailed(
                    f"the key or a header for {self.vendor} has a line break, a blank at its end or a letter that "
                    f"no key has; set {self.variable} again"
                )
            made_by = self._guard.socket if self._guard else None
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, socket_factory=made_by
                ),  # the engine's limiter decides how many
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "pramana"},
                proxy=self._proxy,
            )
        return self._session

    def _with_own(self, headers: Mapping[str, str]) -> "CIMultiDict[str]":
        last, made = self._made
        if headers is not last:  # an adapter gives the same ones each time
            own = self.account.headers
            names = {name.lower() for name in own}
            made = CIMultiDict({name: value for name, value in headers.items() if name.lower() not in names})
            made.extend(own)
            self._made = (headers, made)
        return made

    def _beginning(self, data: bytes) -> str:
        return quote(self.blank(data[:4096].decode("utf-8", "replace")))

    def _parse(self, data: bytes) -> Any:
        try:
            return _fast_decode(data)
        except (ValueError, RecursionError):  # half of a pair, NaN, a number beyond all measure: JSON to some
            pass
        try:
            return _decode(data.decode())
        except (ValueError, RecursionError):
            raise self.broken(f"is not JSON; it begins {self._beginning(data)}") from None

    async def _rest(self, content: aiohttp.StreamReader, first: bytes) -> bytes:
        parts, size = [first], len(first)
        while chunk := await content.readany():
            parts.append(chunk)
            size += len(chunk)
            if size > REPLY_LIMIT:
                raise self.broken(f"is longer than {REPLY_LIMIT >> 20} MB")
        return b"".join(parts)

    async def _linger(self, content: aiohttp.StreamReader) -> None:
        # A response left before its end takes its connection along. The answer is complete: nothing here can spoil it.
        if content.at_eof():
            return
        try:
            async with asyncio.timeout(LINGER_S):
                while await content.readany():
                    pass
        except (aiohttp.ClientError, OSError):
            return

    async def _refused(self, response: aiohttp.ClientResponse) -> ProviderError:
        if response.status < 400:
            return Rejected(
                f"{self.vendor} ({self.host}) redirects to {self._elsewhere(response)}, and a key is never sent along; "
                "give the final address as the base URL",
                status=response.status,
            )
        try:
            said = await self._rest(response.content, b"")
        except (aiohttp.ClientError, OSError):
            said = b""  # the status alone says enough
        body: Any = said.decode("utf-8", "replace")
        try:
            body = _decode(body)
        except (ValueError, RecursionError):
            body = "" if "html" in response.content_type else body.strip()
        wait = retry_after(response.headers)
        return self.refusal(response.status, body, retry_after=wait if wait is not None else Refusal.of(body).wait)

    def _elsewhere(self, response: aiohttp.ClientResponse) -> str:
        with suppress(ValueError):
            host = visible(URL(response.headers.get("Location", "")).host or "")
            known = (each.lower() for each in self.secrets.all)
            if host and not any(each in host for each in known):  # hosts are written small
                return host
        return "another address"

    def _unreached(self, error: Exception, *, answered: bool) -> ProviderError:
        who = f"{self.vendor} ({self.host})"
        if not answered and (stopped := self.stopped_by(self._guard)):
            return stopped
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return Unreachable(f"no connection to {who} within {self._connect_s:g} s")
        if isinstance(error, TimeoutError):
            return Unavailable(f"no full answer from {who} within {self.account.timeout_s:g} s")
        if answered:
            return self.broken()
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return self._proxy_refused(error.status)
        if isinstance(error, aiohttp.ClientResponseError):
            return self.broken("is not HTTP")
        return Unreachable(f"cannot reach {who}: {self.why(error)}")

    def why(self, error: Exception) -> str:
        """Return why there is no connection, in the words of the system and not of a library."""
        said = str(error)
        if isinstance(error, aiohttp.ClientConnectorError):
            cause = error.os_error
            known = cause.errno is not None and cause.errno in errno.errorcode
            said = (os.strerror(cause.errno or 0) if known else cause.strerror) or str(cause)
        return self.blank(visible(said))[:MESSAGE_LIMIT] or type(error).__name__


_OURS = frozenset({"messages", "stream_options", "contents", "input", "system", "systemInstruction"})
"""Parts of a request that adapters make of texts alone."""


def _written(body: Mapping[str, Any]) -> bytes:
    """Return a request as JSON; what JSON cannot say raises."""
    for name, value in body.items():
        kind = type(value)
        if not (kind is str or kind is int or kind is bool or name in _OURS or (kind is float and isfinite(value))):
            return _encode(body).encode()  # strict where a parameter might hold anything; it takes ten times as long
    try:
        return msgspec.json.encode(body)
    except ValueError:  # half of a surrogate pair
        return _encode(body).encode()


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
# NaN is not JSON, and no store takes it; yet some servers write it for an unknown number.
_decode = json.JSONDecoder(parse_constant=lambda _: None).decode
_fast_decode = msgspec.json.Decoder().decode


_USER_IN_URL = re.compile(r"//[^/@\s]*@")


def _shown(url: str) -> str:
    """Return an address without what may be secret in it: user, password, query."""
    return _USER_IN_URL.sub("//", url.partition("?")[0])


def _secrets(account: Account, url: URL) -> tuple[str, ...]:
    """Return what must never be shown: the key, a password, and whatever in headers and address is there as proof."""
    telling = ("auth", "key", "token", "secret", "cookie")
    named = (*account.headers.items(), *url.query.items())
    proofs = [value for name, value in named if any(each in name.lower() for each in telling)]
    found = (account.key, url.password, *(value.split()[-1] for value in proofs if value.split()))
    return tuple(each for each in found if each)
