"""The one HTTP seam: a request in a vendor's words goes out, its events come back parsed, with the moment of each.

Every failure leaves as a `ProviderError` that says whom we asked and what to do. Never a retry, never a redirect
followed (the key would travel along), never the key in a message, an event or a `repr`. Server-sent events are cut from
raw chunks by `Events`, because reading them by line costs several times more.
"""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from json.scanner import make_scanner
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from pramana.errors import (
    AuthenticationFailed,
    BrokenReply,
    InvalidInput,
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
from pramana.model import Reply, Usage
from pramana.providers.deadlines import Deadlines
from pramana.providers.refusal import Refusal, retry_after

MESSAGE_LIMIT = 300
REPLY_LIMIT = 64 << 20
"""Bytes of one answer: far above any real one, and no server can fill our memory."""
CONNECT_S = 30.0
LINGER_S = 1.0
"""How long a finished stream may take to close, so that its connection can be used again."""
BLANK = "[key]"
KEY_LENGTH = 16
"""Characters from which on a key is no word that an answer might hold by itself."""


@dataclass(frozen=True, slots=True)
class Account:
    """How one provider account is reached."""

    base_url: str
    key: str | None = field(default=None, repr=False)
    timeout_s: float = 120.0
    """For one whole request, its streamed answer included."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; they win over the provider's own."""
    variable: str | None = None
    """The environment variable the key is read from, for messages; None: the vendor's usual one."""
    proxy: str | None = field(default=None, repr=False)
    """The URL of the proxy that every request goes through; None: straight to the base URL."""

    def __repr__(self) -> str:
        return f"Account({_shown(self.base_url)!r}, {'with a key' if self.key else 'without a key'})"


_Read = TypeVar("_Read")


class Reading:
    """One answer as it is read. Each wire format adds what an event of it means; its `take` is called for every one."""

    __slots__ = ("_parts", "_raw", "_start", "at", "first", "whole")

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._parts: list[str] = []
        self._raw: list[bytes] = []
        self.at = 0.0
        """`time.perf_counter()` when the bytes of the event at hand arrived; 0 until one has."""
        self.first: float | None = None
        self.whole = False
        """The server answered with plain JSON: the one event is all of it."""

    def take(self, event: str | None, data: Any) -> None:
        """Understand one event: its name, and its data parsed."""
        raise NotImplementedError

    def say(self, text: str) -> None:
        """Add to the text of the reply."""
        if self.first is None:
            self.first = self.at
        self._parts.append(text)

    def text(self) -> str:
        """Return what was said until now."""
        return "".join(self._parts)

    def reply(
        self,
        text: str,
        usage: Usage,
        *,
        served_model: str | None,
        finish_reason: str | None,
        fingerprint: str | None = None,
        dropped: tuple[str, ...] = (),
    ) -> Reply:
        """Return the reply, with its times and its raw response."""
        raw = self._raw
        first = None if self.whole or self.first is None else self.first - self._start
        whole = raw[0] if self.whole and len(raw) == 1 else b"[" + b",".join(raw) + b"]"
        return Reply(
            text, usage, served_model, fingerprint, finish_reason, first, self.at - self._start, whole, dropped
        )

    def received(self, event: str | None, data: bytes, parsed: Any, at: float) -> None:
        """Take an event, and keep its bytes."""
        self.at = at
        self._raw.append(data)
        self.take(event, parsed)


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
        self._secrets = _secrets(account, url)
        self._proxy = self._proxy_of(account)
        # A key that is a word ("ollama") may stand in an honest answer, and no server learns anything new from it.
        self._secret_bytes = [each.encode() for each in self._secrets if len(each) >= KEY_LENGTH]
        self._session: aiohttp.ClientSession | None = None
        self._deadlines = Deadlines(account.timeout_s)

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
            sent = aiohttp.BytesPayload(_encode(body).encode(), content_type="application/json")
        except (TypeError, ValueError, RecursionError) as error:
            raise Rejected(f"the request to {self.vendor} cannot be written as JSON: {error}") from None
        await self._exchange("POST", path, headers, sent, lambda response: self._read(response, reading, last))

    async def _exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        sent: aiohttp.BytesPayload | None,
        read: Callable[[aiohttp.ClientResponse], Awaitable[_Read]],
    ) -> _Read:
        answered = False
        session = self._open()
        task = self._deadlines.begin()
        try:
            async with session.request(
                method, self._url(path), data=sent, headers=self._with_own(headers), allow_redirects=False
            ) as response:
                if response.status >= 300:
                    raise await self._refused(response)
                answered = True
                return await read(response)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise self._unreached(error, answered=answered) from None
        except asyncio.CancelledError:
            if self._deadlines.passed(task):
                raise self._unreached(TimeoutError(), answered=answered) from None
            raise
        finally:
            self._deadlines.end(task)

    async def _read(self, response: aiohttp.ClientResponse, reading: Reading, last: Collection[str]) -> None:
        content, kind = response.content, response.content_type
        chunk = await content.readany()
        if "json" in kind or (kind != "text/event-stream" and chunk.lstrip()[:1] in (b"{", b"[")):
            whole = self._blank(await self._rest(content, chunk))
            reading.whole = True
            reading.received(None, whole, self._parse(whole), time.perf_counter())
            return
        events, size = Events(), 0
        while True:
            at = time.perf_counter()
            for event, data in events.feed(chunk) if chunk else events.end():
                if data[:6] == b"[DONE]":
                    await self._linger(content)
                    return
                blanked = self._blank(data)
                reading.received(event, blanked, self._parse(blanked), at)
                if event in last:
                    await self._linger(content)
                    return
            if not chunk:
                return
            size += len(chunk)
            if size > REPLY_LIMIT:
                raise self.broken(f"is longer than {REPLY_LIMIT >> 20} MB")
            chunk = await content.readany()

    async def get(self, path: str, *, headers: Mapping[str, str]) -> Any:
        """Return the JSON at the path."""

        async def read(response: aiohttp.ClientResponse) -> Any:
            return self._parse(self._blank(await self._rest(response.content, b"")))

        return await self._exchange("GET", path, headers, None, read)

    async def close(self) -> None:
        """Close every connection; a later request opens new ones."""
        session, self._session = self._session, None
        if session:
            await session.close()

    def broken(self, what: str = "was cut off before its end") -> BrokenReply:
        """Return the error for an answer that is not what the wire format promises."""
        return BrokenReply(f"the answer of {self.vendor} ({self.host}) {what}")

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
        for secret in self._secrets:
            text = text.replace(secret, BLANK)
        # A proxy's password is blanked here only: it is no long random text, and replies may hold the same word.
        for password in (self._proxy.password, self._proxy.raw_password) if self._proxy else ():
            text = text.replace(password, BLANK) if password else text
        return _USER_IN_URL.sub("//", text)

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
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # the engine's limiter decides how many
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(CONNECT_S, self.account.timeout_s)),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "pramana"},
                proxy=self._proxy,
            )
        return self._session

    def _with_own(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        if not (own := self.account.headers):
            return headers
        names = {name.lower() for name in own}
        return {name: value for name, value in headers.items() if name.lower() not in names} | dict(own)

    def _blank(self, data: bytes) -> bytes:
        for secret in self._secret_bytes:
            if secret in data:
                data = data.replace(secret, BLANK.encode())
        return data

    def _parse(self, data: bytes) -> Any:
        try:
            text = data.decode()
            value, end = _scan(text, 0)  # what `json.loads` does, without its two searches for blanks
            if end == len(text):
                return value
        except (StopIteration, ValueError, RecursionError):
            pass
        try:
            return _decode(data.decode())
        except (ValueError, RecursionError):
            begins = quote(data[:80].decode("utf-8", "replace"))
            raise self.broken(f"is not JSON; it begins {begins}") from None

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
            try:
                to = URL(response.headers.get("Location", "")).host or "another address"
            except ValueError:
                to = "another address"
            return Rejected(
                f"{self.vendor} ({self.host}) redirects to {to}, and a key is never sent along; "
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

    def _unreached(self, error: Exception, *, answered: bool) -> ProviderError:
        who = f"{self.vendor} ({self.host})"
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return Unreachable(f"no connection to {who} within {min(CONNECT_S, self.account.timeout_s):g} s")
        if isinstance(error, TimeoutError):
            return Unavailable(f"no full answer from {who} within {self.account.timeout_s:g} s")
        if answered:
            return self.broken()
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return self._proxy_refused(error.status)
        if isinstance(error, aiohttp.ClientResponseError):
            return self.broken("is not HTTP")
        why = self.blank(visible(str(error))) or type(error).__name__
        return Unreachable(f"cannot reach {who}: {why[:MESSAGE_LIMIT]}")


class Events:
    """Chunks of bytes in, the events of a server-sent stream out, in one pass; a line may span any number of chunks."""

    __slots__ = ("_after_return", "_data", "_event", "_rest", "_started")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: bytes | None = None
        self._event: str | None = None
        self._after_return = self._started = False

    def feed(self, chunk: bytes) -> list[tuple[str | None, bytes]]:
        """Take the next bytes, return name and data of each event they complete."""
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")  # the other half of a line's end
        if self._rest:
            self._rest.append(chunk)
            if b"\n" not in chunk and b"\r" not in chunk:
                return []
            chunk = b"".join(self._rest)
            self._rest = []
        lines = chunk.splitlines()
        if not lines:
            return []
        if chunk[-1] == 13:
            self._after_return = True
        elif chunk[-1] != 10:
            self._rest = [lines.pop()]
        if lines and not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        complete = []
        for line in lines:
            if not line:
                if self._data is not None:
                    complete.append((self._event, self._data))
                self._data = self._event = None
            elif line[:5] == b"data:":
                data = line[6:] if line[5:6] == b" " else line[5:]
                self._data = data if self._data is None else self._data + b"\n" + data
            elif line[:6] == b"event:":
                self._event = line[6:].removeprefix(b" ").decode("utf-8", "replace")
            # Comments, ids and waiting times are of no use to a request that is never repeated here.
        return complete

    def end(self) -> list[tuple[str | None, bytes]]:
        """Return what a server that forgets the last empty line has left."""
        return self.feed(b"\n\n" if self._rest else b"\n")


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
# NaN is not JSON, and no store takes it; yet some servers write it for an unknown number.
_decoder = json.JSONDecoder(parse_constant=lambda _: None)
_decode, _scan = _decoder.decode, make_scanner(_decoder)  # type: ignore[arg-type] # typeshed names the wrong class


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
