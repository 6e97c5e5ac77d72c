"""The one HTTP transport: sends a request in a vendor's wire format, returns parsed events with their arrival times.

Every failure is a `ProviderError` from `failures`, free of secrets (`redaction`). Never retries and never follows a
redirect: the key would travel along.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, ClassVar, Self, TypeVar

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from pramana import clock
from pramana.errors import AuthenticationFailed, InvalidInput, ProviderError, Rejected, quote_text
from pramana.model import Target
from pramana.providers.accounts import Account
from pramana.providers.deadlines import Deadlines
from pramana.providers.failures import AccountErrors, ErrorBody, parse_retry_after
from pramana.providers.guard import AddressGuard, describe_refused_host
from pramana.providers.reading import ReplyReader
from pramana.providers.redaction import Secrets, strip_url_secrets

MAX_REPLY_BYTES = 64 << 20
"""Maximum size of a response in bytes: far above any real one, so that no server can fill our memory."""
MAX_MODEL_LIST_PAGES = 100
"""Maximum number of pages in a list of models."""
STREAM_DRAIN_TIMEOUT_S = 1.0
"""How long a finished stream may take to close so that its connection can be reused."""
SECRET_NAME_PARTS = ("auth", "key", "token", "secret", "cookie")
"""Parts of header and query names that mark the value as a secret."""

_Read = TypeVar("_Read")
_Body = aiohttp.BytesPayload | aiohttp.FormData | None


class HttpTransport:
    """The connections to one account. Bound to the event loop that first uses it, until closed."""

    def __init__(self, vendor: str, account: Account) -> None:
        self.account = account
        base, _, self._query = account.base_url.partition("?")
        self._base = base.rstrip("/")
        url = self._build_url("", vendor)
        host = url.host_port_subcomponent or ""
        if url.user and account.key:
            raise InvalidInput(f"{host} has both a user name in its URL and an API key; set only one of them")
        self._urls: dict[str, URL] = {}
        self._proxy = _parse_proxy(account, host)
        self.failures = AccountErrors(vendor, host, account, _collect_secrets(account, url, self._proxy), self._proxy)
        self._guard = self.make_guard(url)
        self._headers_cache: tuple[Mapping[str, str] | None, CIMultiDict[str]] = (None, CIMultiDict())
        self._session: aiohttp.ClientSession | None = None
        self._deadlines = None if account.timeout_s is None else Deadlines(account.timeout_s)

    async def post(
        self,
        path: str,
        *,
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        reader: ReplyReader,
        final_events: Collection[str] = (),
    ) -> None:
        """Post the body as JSON and pass the events of the response to `reader` as they arrive.

        `[DONE]` ends the response, and so does an event named in `final_events`. Whether a stream that just stops is
        complete is for the provider to decide: see `AccountErrors.make_broken_reply`.
        """
        try:
            sent = aiohttp.BytesPayload(_encode_body(body), content_type="application/json")
        except (TypeError, ValueError, RecursionError) as error:
            raise Rejected(f"the request to {self.failures.vendor} cannot be written as JSON: {error}") from None
        await self._send_and_read(
            "POST", path, headers, sent, lambda response: self._read_events(response, reader, final_events)
        )

    async def get(self, path: str, *, headers: Mapping[str, str]) -> Any:
        """Return the JSON at the path."""
        return await self._send_and_read("GET", path, headers, None, self._read_json)

    async def upload(self, path: str, *, headers: Mapping[str, str], form: aiohttp.FormData) -> Any:
        """Post a form and return the JSON of the response."""
        return await self._send_and_read("POST", path, headers, form, self._read_json)

    async def download(
        self, path: str, *, headers: Mapping[str, str], body: Mapping[str, Any], on_chunk: Callable[[bytes], None]
    ) -> None:
        """Post the body as JSON and pass the bytes of the response to `on_chunk` as they arrive."""

        async def read(response: aiohttp.ClientResponse) -> None:
            size = 0
            while chunk := await response.content.readany():
                size = self._check_reply_size(size + len(chunk))
                on_chunk(chunk)

        sent = aiohttp.BytesPayload(_encode_body(body), content_type="application/json")
        await self._send_and_read("POST", path, headers, sent, read)

    async def fetch_pages(
        self, path: str, *, headers: Mapping[str, str], read_page: Callable[[Any], str | None]
    ) -> None:
        """Fetch every page of a list of models; `read_page` returns the query of the next page, None after the last."""
        more, seen = "", {""}
        for _ in range(MAX_MODEL_LIST_PAGES):
            page = await self.get(path + more, headers=headers)
            with self.failures.translate_parse_errors("is not a list of models"):
                following = read_page(page)
            if following is None:
                return
            if (more := following) in seen:
                break
            seen.add(more)
        endless = f"is an endless list of models: it repeats a page, or has more than {MAX_MODEL_LIST_PAGES}"
        raise self.failures.make_broken_reply(endless)

    def make_guard(self, url: URL) -> AddressGuard | None:
        """Return the guard for connections to an address, None if none is needed; may refuse it by its spelling.

        With a proxy, the proxy connects, so its rules decide.
        """
        if not self.account.is_guarded:
            return None
        if why := describe_refused_host(url):
            raise self.failures.make_address_refused_error(why)
        return None if self._proxy else AddressGuard()

    async def close(self) -> None:
        """Close every connection; a later request opens new ones."""
        session, self._session = self._session, None
        if session:
            await session.close()

    # ── One exchange ──

    async def _send_and_read(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        payload: _Body,
        read_response: Callable[[aiohttp.ClientResponse], Awaitable[_Read]],
    ) -> _Read:
        watched = self._deadlines.start_timeout() if self._deadlines else None
        response: aiohttp.ClientResponse | None = None
        answered = False
        try:
            response = await self._open_session().request(
                method,
                self._get_cached_url(path),
                data=payload,
                headers=self._with_account_headers(headers),
                allow_redirects=False,
            )
            if response.status >= 300:
                raise await self._make_unsuccessful_response_error(response)
            answered = True
            return await read_response(response)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise self.failures.make_unreachable_error(error, self._guard, in_response=answered) from None
        except asyncio.CancelledError:
            if self._deadlines and watched and self._deadlines.has_expired(watched):
                raise self.failures.make_unreachable_error(TimeoutError(), self._guard) from None
            raise
        finally:
            if self._deadlines and watched:
                self._deadlines.stop_timeout(watched)
            if response is not None and not response.closed:  # fully read, it has released its connection already
                response.close()

    async def _read_events(
        self, response: aiohttp.ClientResponse, reader: ReplyReader, final_events: Collection[str]
    ) -> None:
        content, kind = response.content, response.content_type
        chunk = await content.readany()
        if "json" in kind or (kind != "text/event-stream" and chunk.lstrip()[:1] in (b"{", b"[")):
            whole = await self._read_rest(content, chunk)
            reader.is_whole = True
            reader.receive(None, whole, self._parse_json(whole), clock.monotonic())
            return
        events, size, heard, opening = EventParser(), 0, False, chunk
        while True:
            at = clock.monotonic()
            for event, data in events.feed(chunk) if chunk else events.finish():
                if data[:6] == b"[DONE]":
                    await self._discard_rest(content)
                    return
                heard = True
                reader.receive(event, data, self._parse_json(data), at)
                if event in final_events:
                    await self._discard_rest(content)
                    return
            if not chunk:
                if size and not heard and kind != "text/event-stream":
                    raise self.failures.make_broken_reply(
                        f"is not JSON or an event stream; it begins {self._quote_excerpt(opening)}"
                    )
                return
            size = self._check_reply_size(size + len(chunk))
            chunk = await content.readany()

    async def _read_json(self, response: aiohttp.ClientResponse) -> Any:
        data = await self._read_rest(response.content, b"")
        parsed = self._parse_json(data)
        return parsed if (kept := self.failures.redact_for_storage(data)) is data else self._parse_json(kept)

    async def _read_rest(self, content: aiohttp.StreamReader, first: bytes) -> bytes:
        parts, size = [first], len(first)
        while chunk := await content.readany():
            parts.append(chunk)
            size = self._check_reply_size(size + len(chunk))
        return b"".join(parts)

    def _check_reply_size(self, byte_count: int) -> int:
        if byte_count > MAX_REPLY_BYTES:
            raise self.failures.make_broken_reply(f"is longer than {MAX_REPLY_BYTES >> 20} MB")
        return byte_count

    def _parse_json(self, data: bytes) -> Any:
        try:
            return _fast_decode(data)
        except (ValueError, RecursionError):  # half a surrogate pair, NaN, an oversized number: JSON to some servers
            pass
        try:
            return _decode(data.decode())
        except (ValueError, RecursionError):
            raise self.failures.make_broken_reply(f"is not JSON; it begins {self._quote_excerpt(data)}") from None

    def _quote_excerpt(self, data: bytes) -> str:
        return quote_text(self.failures.secrets.redact_message(data[:4096].decode("utf-8", "replace")))

    async def _discard_rest(self, content: aiohttp.StreamReader) -> None:
        # Leaving a response unread closes its connection. The answer is complete, so nothing here can spoil it.
        if content.at_eof():
            return
        with suppress(aiohttp.ClientError, OSError):
            async with asyncio.timeout(STREAM_DRAIN_TIMEOUT_S):
                while await content.readany():
                    pass

    async def _make_unsuccessful_response_error(self, response: aiohttp.ClientResponse) -> ProviderError:
        if response.status < 400:
            return self.failures.make_redirect_error(response.status, response.headers.get("Location", ""))
        try:
            said = await self._read_rest(response.content, b"")
        except (aiohttp.ClientError, OSError):
            said = b""  # the status alone is enough
        body: Any = said.decode("utf-8", "replace")
        try:
            body = _decode(body)
        except (ValueError, RecursionError):
            body = "" if "html" in response.content_type else body.strip()
        wait = parse_retry_after(response.headers)
        wait = ErrorBody.parse(body).retry_after_s if wait is None else wait
        return self.failures.make_status_error(response.status, body, retry_after_s=wait)

    # ── The connection ──

    def _build_url(self, path: str, vendor: str) -> URL:
        try:
            url = URL(self._base + path)
            if url.scheme in ("http", "https") and url.host:
                url.host.encode("idna")  # otherwise the name lookup raises, far from here
                return url.extend_query(self._query) if self._query else url
        except ValueError:
            pass
        found = quote_text(strip_url_secrets(self._base))
        raise InvalidInput(f"the base URL of {vendor} is {found}; expected http://host:port/path or https://…")

    def _get_cached_url(self, path: str) -> URL:
        if (url := self._urls.get(path)) is None:
            url = self._urls[path] = self._build_url(path, self.failures.vendor)
        return url

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            sent = (self.account.key or "", *self.account.headers.values())
            if not all(each.isascii() and each.isprintable() and each == each.strip() for each in sent):
                raise AuthenticationFailed(
                    f"the key or a header for {self.failures.vendor} contains a line break, a trailing space or "
                    f"another invalid character; set {self.failures.variable} again"
                )
            made_by = self._guard.create_socket if self._guard else None
            self._session = aiohttp.ClientSession(
                # The engine's limiter bounds the number of connections.
                connector=aiohttp.TCPConnector(limit=0, socket_factory=made_by),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.account.connect_timeout_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "pramana"},
                proxy=self._proxy,
            )
        return self._session

    def _with_account_headers(self, headers: Mapping[str, str]) -> "CIMultiDict[str]":
        last, made = self._headers_cache
        if headers is not last:  # adapters pass the same headers each time
            own = self.account.headers
            names = {name.lower() for name in own}
            made = CIMultiDict({name: value for name, value in headers.items() if name.lower() not in names})
            made.extend(own)
            self._headers_cache = (headers, made)
        return made


_FAST_ENCODABLE_FIELDS = frozenset({"messages", "stream_options", "contents", "input", "system", "systemInstruction"})
"""Request fields that adapters build from text alone."""


def _encode_body(body: Mapping[str, Any]) -> bytes:
    """Return a request as JSON; raise for a value that JSON cannot represent."""
    for name, value in body.items():
        kind = type(value)
        if not (
            kind is str
            or kind is int
            or kind is bool
            or name in _FAST_ENCODABLE_FIELDS
            or (kind is float and isfinite(value))
        ):
            return _encode(body).encode()  # strict, since a parameter may hold anything; ten times slower
    try:
        return msgspec.json.encode(body)
    except ValueError:  # half a surrogate pair
        return _encode(body).encode()


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
# NaN is not JSON, and no store accepts it; yet some servers send it for an unknown number.
_decode = json.JSONDecoder(parse_constant=lambda _: None).decode
_fast_decode = msgspec.json.Decoder().decode


def _parse_proxy(account: Account, host: str) -> URL | None:
    if account.proxy is None:
        return None
    with suppress(ValueError):
        proxy = URL(account.proxy)
        if proxy.host:
            return proxy
    found = quote_text(strip_url_secrets(account.proxy))
    raise InvalidInput(f"the proxy to {host} is {found}; expected http://host:port")


def _collect_secrets(account: Account, url: URL, proxy: URL | None) -> Secrets:
    """Return everything to keep out of messages: the key, passwords, and credentials in headers or the address."""
    named = (*account.headers.items(), *url.query.items())
    proofs = [
        value.split()[-1]
        for name, value in named
        if any(each in name.lower() for each in SECRET_NAME_PARTS) and value.split()
    ]
    passwords = (proxy.password, proxy.raw_password) if proxy else ()
    return Secrets((account.key, url.password, *proofs), passwords)


class EventParser:
    """Parses chunks of bytes into server-sent events in one pass; a line may span any number of chunks."""

    __slots__ = ("_after_return", "_data", "_event", "_more", "_rest", "_started")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: bytes | None = None
        self._more: list[bytes] = []
        """The data lines after the first, joined once: there may be millions."""
        self._event: str | None = None
        self._after_return = self._started = False

    def feed(self, chunk: bytes) -> list[tuple[str | None, bytes]]:
        """Parse the next bytes, and return name and data of each event they complete."""
        if chunk[:6] == b"data: " and not self._rest and self._data is None and self._event is None:
            events = _parse_simple_events(chunk)
            if events:
                self._started, self._after_return = True, False
                return events
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")  # the second half of a line ending
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
                    if self._more:
                        self._data = b"\n".join([self._data, *self._more])
                        self._more = []
                    complete.append((self._event, self._data))
                self._data = self._event = None
            elif line[:5] == b"data:":
                data = line[6:] if line[5:6] == b" " else line[5:]
                if self._data is None:
                    self._data = data
                else:
                    self._more.append(data)
            elif line[:6] == b"event:":
                self._event = line[6:].removeprefix(b" ").decode("utf-8", "replace")
            # Comments, ids and retry times do not matter: requests are never repeated here.
        return complete

    def finish(self) -> list[tuple[str | None, bytes]]:
        """Return the last event of a server that omits the final empty line."""
        return self.feed(b"\n\n" if self._rest else b"\n")


def _parse_simple_events(chunk: bytes) -> list[tuple[str | None, bytes]]:
    """Return the events of a chunk of one-line events, as nearly every server sends them; takes half the time."""
    if chunk[-2:] != b"\n\n" or b"\r" in chunk:
        return []
    pieces = chunk[:-2].split(b"\n\n")
    if chunk.count(b"\n") != 2 * len(pieces):
        return []
    for piece in pieces:
        if piece[:6] != b"data: ":
            return []
    return [(None, piece[6:]) for piece in pieces]


class VendorProvider:
    """An account at one vendor."""

    vendor: ClassVar[str]
    base_url: ClassVar[str]
    """The default base URL."""

    def __init__(self, account: Account) -> None:
        self._http = HttpTransport(self.vendor, account)

    @classmethod
    def open(cls, target: Target, account: Account | None) -> Self:  # noqa: ARG003 - unused: all factories have the same parameters
        """Return the provider for the target."""
        return cls(account or Account(cls.base_url))

    async def close(self) -> None:
        """Close the connections; a call has its own."""
        await self._http.close()
