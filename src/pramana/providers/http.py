"""The one HTTP seam: a request in a vendor's words goes out, parsed events come back with the moment each arrived.

Every failure leaves as a `ProviderError` that says whom we asked and what to do. Never a retry, never a redirect
followed (the key would travel along), never the key in a message, an event or a `repr`. Server-sent events are cut from
raw chunks by `Events`, because reading them by line costs several times more.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass, field
from json.scanner import make_scanner
from typing import Any, NamedTuple

import aiohttp
from yarl import URL

from pramana.errors import (
    AuthenticationFailed,
    BrokenReply,
    InvalidInput,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
    UnknownModel,
    quote,
    visible,
)
from pramana.providers.refusal import Refusal, retry_after

MESSAGE_LIMIT = 300
REPLY_LIMIT = 64 << 20
"""Bytes of one answer: far above any real one, and no server can fill our memory."""
CONNECT_S = 30.0
LINGER_S = 1.0
"""How long a finished stream may take to close, so that its connection can be used again."""
BLANK = "[key]"


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

    def __repr__(self) -> str:
        return f"Account({_shown(self.base_url)!r}, {'with a key' if self.key else 'without a key'})"


class Received(NamedTuple):
    """One event of a streamed answer, or the whole of one that was not streamed.

    A named tuple, because one is made for every token and a frozen dataclass takes three times as long.
    """

    event: str | None
    data: Any
    at: float
    """`time.perf_counter()` when its bytes arrived."""
    whole: bool = False
    """The server answered a streaming request with plain JSON."""


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
        self._secret_bytes = [each.encode() for each in self._secrets]
        self._session: aiohttp.ClientSession | None = None

    async def stream(
        self, path: str, *, headers: Mapping[str, str], body: Mapping[str, Any], last: Collection[str] = ()
    ) -> AsyncGenerator[Received, None]:
        """Post the body as JSON and yield the events of the answer as they arrive.

        Iterate to the end: then the connection is used again. `[DONE]` ends the stream, and so does an event named in
        `last`. Whether an answer that just stops was complete is for the provider to know: see `broken`.
        """
        try:
            sent = _encode(body).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Rejected(f"the request to {self.vendor} cannot be written as JSON: {error}") from None
        headers = self._with_own(headers)
        answered = False
        try:
            async with self._open().post(
                self._url(path), data=sent, headers=headers, allow_redirects=False
            ) as response:
                if response.status >= 300:
                    raise await self._refused(response)
                answered = True
                content = response.content
                kind = response.content_type
                chunk = await content.readany()
                if "json" in kind or (kind != "text/event-stream" and chunk.lstrip()[:1] in (b"{", b"[")):
                    whole = await self._rest(content, chunk)
                    yield Received(None, self._parse(whole), time.perf_counter(), whole=True)
                    return
                events, size = Events(), 0
                while True:
                    at = time.perf_counter()
                    for event, data in events.feed(chunk) if chunk else events.end():
                        if data.startswith(b"[DONE]"):
                            await self._linger(content)
                            return
                        yield Received(event, self._parse(data), at)
                        if event in last:
                            await self._linger(content)
                            return
                    if not chunk:
                        return
                    size += len(chunk)
                    if size > REPLY_LIMIT:
                        raise self.broken(f"is longer than {REPLY_LIMIT >> 20} MB")
                    chunk = await content.readany()
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise self._unreached(error, answered=answered) from None

    async def get(self, path: str, *, headers: Mapping[str, str]) -> Any:
        """Return the JSON at the path."""
        headers = self._with_own(headers)
        answered = False
        try:
            async with self._open().get(self._url(path), headers=headers, allow_redirects=False) as response:
                if response.status >= 300:
                    raise await self._refused(response)
                answered = True
                return self._parse(await self._rest(response.content, b""))
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreached(error, answered=answered) from None

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
        if status in (401, 403):
            found = "refused the key" if self.account.key else "asks for a key, and none was given"
            return AuthenticationFailed(f"{who} {found} ({status}){says}; set {self.variable}", status=status)
        if status == 429:
            return RateLimited(f"{who} limits the rate ({status}){says}", status=status, retry_after=retry_after)
        if status in (408, 409) or status >= 500:
            return Unavailable(f"{who} is unavailable ({status}){says}", status=status, retry_after=retry_after)
        if status == 404:
            return Rejected(f"{who} has nothing at this address ({status}){says}; check the base URL", status=status)
        if error.code == "content_filter":
            return Rejected(f"{who} refused the prompt by its content filter{says}", status=status)
        return Rejected(f"{who} rejected the request ({status}){says}", status=status, parameter=error.parameter)

    def blank(self, text: str) -> str:
        """Return the text without the key, nor any other secret of the account."""
        for secret in self._secrets:
            text = text.replace(secret, BLANK)
        return text

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
                timeout=aiohttp.ClientTimeout(
                    total=self.account.timeout_s, sock_connect=min(CONNECT_S, self.account.timeout_s)
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "pramana"},
            )
        return self._session

    def _with_own(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        if not (own := self.account.headers):
            return headers
        names = {name.lower() for name in own}
        return {name: value for name, value in headers.items() if name.lower() not in names} | dict(own)

    def _parse(self, data: bytes) -> Any:
        for secret in self._secret_bytes:
            if secret in data:
                data = data.replace(secret, BLANK.encode())
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
            return Unavailable(f"no connection to {who} within {min(CONNECT_S, self.account.timeout_s):g} s")
        if isinstance(error, TimeoutError):
            return Unavailable(f"no full answer from {who} within {self.account.timeout_s:g} s")
        if answered:
            return self.broken()
        if isinstance(error, aiohttp.ClientResponseError):
            return self.broken("is not HTTP")
        why = self.blank(visible(str(error))) or type(error).__name__
        return Unavailable(f"cannot reach {who}: {why[:MESSAGE_LIMIT]}")


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


def _shown(url: str) -> str:
    """Return an address without what may be secret in it: user, password, query."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0])


def _secrets(account: Account, url: URL) -> tuple[str, ...]:
    """Return what must never be shown: the key, a password, and whatever in headers and address is there as proof."""
    telling = ("auth", "key", "token", "secret", "cookie")
    named = (*account.headers.items(), *url.query.items())
    proofs = [value for name, value in named if any(each in name.lower() for each in telling)]
    found = (account.key, url.password, *(value.split()[-1] for value in proofs if value.split()))
    return tuple(each for each in found if each)
