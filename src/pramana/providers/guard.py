"""The address guard: an untrusted URL comes in, its bytes go out, and private networks are never connected to.

The address is checked when the socket is created, right before it connects. A literal, a redirect or a name server that
changes its answer cannot slip past, since no lookup happens between the check and the connection. Never sends a key, a
cookie or a password, and no message shows a URL's query.

With a proxy, the proxy resolves the name and connects, so the guard cannot see the address: it then refuses only a host
written as a private address or as `localhost`, and leaves the rest to the proxy.
"""

import asyncio
import errno
import os
import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from typing import Any

import aiohttp
from yarl import URL

from pramana import settings
from pramana.errors import InvalidInput, NotFound, PramanaError, Unavailable, escape_control_characters, quote_text

MAX_REDIRECTS = 5
FETCH_TIMEOUT_S = 30.0
"""Timeout for the whole fetch: name lookups, connections, redirects and the last byte."""
MAX_SHOWN_URL_LENGTH = 200
"""Longest address shown in a message, in characters."""

_HOST_RE = re.compile(r"[\w.-]+|[\da-f:.]+(?:%[\w.-]+)?", re.ASCII)
_REDIRECT_STATUSES = frozenset((301, 302, 303, 307, 308))
_ALLOW_PRIVATE_HINT = "PRAMANA_ALLOW_PRIVATE_ADDRESSES=1 allows it"

# Every special-purpose block, whatever its routing: only the rest is the public Internet.
_NON_PUBLIC_IPV4_KINDS = {
    IPv4Network("0.0.0.0/8"): "unspecified",
    IPv4Network("10.0.0.0/8"): "private",
    IPv4Network("100.64.0.0/10"): "shared by customers of a carrier (100.64.0.0/10)",
    IPv4Network("127.0.0.0/8"): "loopback",
    IPv4Network("169.254.0.0/16"): "link-local",
    IPv4Network("172.16.0.0/12"): "private",
    IPv4Network("192.0.0.0/24"): "reserved",
    IPv4Network("192.0.2.0/24"): "reserved",
    IPv4Network("192.88.99.0/24"): "reserved",
    IPv4Network("192.168.0.0/16"): "private",
    IPv4Network("198.18.0.0/15"): "reserved",
    IPv4Network("198.51.100.0/24"): "reserved",
    IPv4Network("203.0.113.0/24"): "reserved",
    IPv4Network("224.0.0.0/4"): "multicast",
    IPv4Network("240.0.0.0/4"): "reserved",
}
_PUBLIC_IPV6 = IPv6Network("2000::/3")
_NON_PUBLIC_IPV6_KINDS = {
    IPv6Network("2001::/23"): "reserved",
    IPv6Network("2001:db8::/32"): "reserved",
    IPv6Network("3fff::/20"): "reserved",
    IPv6Network("::/128"): "unspecified",
    IPv6Network("::1/128"): "loopback",
    IPv6Network("fc00::/7"): "private",
    IPv6Network("fe80::/10"): "link-local",
    IPv6Network("fec0::/10"): "private",
    IPv6Network("ff00::/8"): "multicast",
}
# Blocks whose addresses embed an IPv4 address, and the number of bits after it.
_BITS_AFTER_EMBEDDED_IPV4 = {
    IPv6Network("::ffff:0:0/96"): 0,
    IPv6Network("64:ff9b::/96"): 0,
    IPv6Network("2002::/16"): 80,
}


def describe_private_address(address: str) -> str | None:
    """Return the kind of an address that is not on the public Internet; None for a public address.

    >>> *map(describe_private_address, ("10.1.2.3", "::ffff:127.0.0.1", "93.184.215.14")),
    ('private', 'loopback', None)
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return "no address"
    if isinstance(found, IPv4Address):
        return next((kind for network, kind in _NON_PUBLIC_IPV4_KINDS.items() if found in network), None)
    for network, behind in _BITS_AFTER_EMBEDDED_IPV4.items():
        if found in network:
            return describe_private_address(str(IPv4Address(int(found) >> behind & 0xFFFFFFFF)))
    kind = next((kind for network, kind in _NON_PUBLIC_IPV6_KINDS.items() if found in network), None)
    return kind or (None if found in _PUBLIC_IPV6 else "reserved")


class AddressGuard:
    """Creates sockets for connections to the public Internet, and to nothing else."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        """Addresses that were refused, each with its kind."""

    def create_socket(self, address: "aiohttp.AddrInfoType") -> socket.socket:
        """Create the socket for one connection; a callback for aiohttp, which connects it to this very address."""
        family, kind, protocol, _, place = address
        host = str(place[0])
        if reason := describe_private_address(host):
            self.refused.append(f"{host}, which is {reason}")
            raise OSError(f"{host} is {reason}")
        return socket.socket(family, kind, protocol)

    def make_connector(self) -> aiohttp.TCPConnector:
        """Return a guarded connector for a session; a session with a proxy is not guarded by it."""
        return aiohttp.TCPConnector(socket_factory=self.create_socket, force_close=True)


async def fetch(url: str, *, limit_bytes: int, allow_private: bool) -> bytes:
    """Fetch an http(s) URL and return its body; redirects are followed, each under the same rules.

    Raises `InvalidInput` for what must not or cannot be fetched, `NotFound` if there is nothing, `Unavailable` if a
    retry may help.
    """
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            return await _fetch_following_redirects(_parse_url(url), limit_bytes, allow_private=allow_private)
    except TimeoutError:
        raise Unavailable(f"{strip_credentials_and_query(url)} took longer than {FETCH_TIMEOUT_S:g} s") from None


async def _fetch_following_redirects(url: URL, max_bytes: int, *, allow_private: bool) -> bytes:
    first = url
    for _ in range(MAX_REDIRECTS + 1):
        found = await _fetch_once(url, max_bytes, allow_private=allow_private)
        if isinstance(found, bytes):
            return found
        if url.scheme == "https" and found.scheme == "http":
            raise InvalidInput(
                f"{strip_credentials_and_query(url)} redirects from https to http "
                f"({strip_credentials_and_query(found)}), which is not followed"
            )
        url = found
    raise InvalidInput(
        f"{strip_credentials_and_query(first)} redirects more than {MAX_REDIRECTS} times; the last redirect goes to "
        f"{strip_credentials_and_query(url)}"
    )


async def _fetch_once(url: URL, max_bytes: int, *, allow_private: bool) -> bytes | URL:
    """Return the body at a URL, or the URL it redirects to."""
    proxy = settings.find_proxy(str(url))
    guard = None if allow_private else AddressGuard()
    _check_host_spelling(url, allow_private=allow_private)
    session = aiohttp.ClientSession(
        connector=guard.make_connector() if guard and not proxy else aiohttp.TCPConnector(force_close=True),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "pramana", "Accept-Encoding": "identity"},
        auto_decompress=False,
    )
    try:
        async with session, session.get(url, allow_redirects=False, proxy=proxy) as response:
            if response.status in _REDIRECT_STATUSES and (place := response.headers.get("Location")):
                return _parse_url(place, url)
            if not 200 <= response.status < 300:
                raise _make_status_error(url, response.status)
            return await _read_body(url, response, max_bytes)
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: an address that no socket accepts
        if isinstance(error, TimeoutError):
            raise
        if guard and guard.refused:
            raise _make_refusal(url, f"leads to {guard.refused[0]}") from None
        raise Unavailable(f"{strip_credentials_and_query(url)} cannot be fetched: {describe_failure(error)}") from None


async def _read_body(url: URL, response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    too_large = InvalidInput(f"{strip_credentials_and_query(url)} is larger than {max_bytes:,} bytes")
    coded = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coded not in ("", "identity"):  # not requested, and a small body may decompress to any size
        raise InvalidInput(
            f"{strip_credentials_and_query(url)} was served compressed ({quote_text(coded, 40)}); serve it uncompressed"
        )
    if (response.content_length or 0) > max_bytes:
        raise too_large
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > max_bytes:
            raise too_large
    return bytes(body)


def _parse_url(url: str, base: URL | None = None) -> URL:
    """Return the URL if it may be fetched; a redirect is resolved against `base`."""
    try:
        found = URL(url)
        found = base.join(found) if base else found
        found = found.with_fragment(None)
        (found.host or "").encode("idna")  # otherwise the name lookup raises, far from here
        if found.scheme in ("http", "https") and _HOST_RE.fullmatch(found.raw_host or "") and found.port:
            if found.raw_user is not None or found.raw_password is not None:
                raise InvalidInput(
                    f"{strip_credentials_and_query(found)} contains a user name or a password, which are never sent; "
                    "remove them from the URL"
                )
            return found
    except ValueError:
        pass
    what = f"{strip_credentials_and_query(base)} redirects to what" if base else strip_credentials_and_query(url)
    raise InvalidInput(f"{what} is not an http(s) URL{f': {strip_credentials_and_query(url)}' if base else ''}")


def describe_refused_host(url: URL) -> str | None:
    """Return why a host is not on the public Internet, as far as its spelling alone shows it; None otherwise.

    >>> describe_refused_host(URL("http://0x7f.1/")), describe_refused_host(URL("http://localhost./")), describe_refused_host(URL("https://api.example/"))
    ('its host is 127.0.0.1, which is loopback', 'its host is this machine', None)
    """
    host, address = _parse_host_and_address(url)
    if address is None:
        return "its host is this machine" if host == "localhost" or host.endswith(".localhost") else None
    if kind := describe_private_address(address):
        return f"its host is {kind}" if host == address else f"its host is {address}, which is {kind}"
    return None if host == address else f"its host has an unusual spelling; write {address}"


def _parse_host_and_address(url: URL) -> tuple[str, str | None]:
    """Return a host and the address it spells; None if only a name server can resolve it."""
    host = (url.raw_host or "").rstrip(".").lower()
    return host, host if ":" in host else _parse_numeric_host(host)


def _check_host_spelling(url: URL, *, allow_private: bool) -> None:
    """Refuse a host by its spelling alone, before any name server or proxy is involved."""
    host, address = _parse_host_and_address(url)
    if address is None:
        if not allow_private and (host == "localhost" or host.endswith(".localhost")):
            raise _make_refusal(url, "is this machine")
    elif not allow_private and (kind := describe_private_address(address)):
        raise _make_refusal(url, f"is {kind}" if host == address else f"is {address}, which is {kind}")
    elif host != address:
        raise InvalidInput(f"{strip_credentials_and_query(url)} was not fetched: write its host as {address}")


def _parse_numeric_host(host: str) -> str | None:
    """Return the IPv4 address that sockets read a host as: 2130706433, 0x7f.1 and 0177.0.0.1 all mean 127.0.0.1."""
    try:
        return str(IPv4Address(socket.inet_aton(host)))
    except OSError:
        return None


def _make_refusal(url: URL, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{strip_credentials_and_query(url)} is not fetched: {escape_control_characters(url.host or '')} {reason}; "
        f"{_ALLOW_PRIVATE_HINT}"
    )


def _make_status_error(url: URL, status: int) -> PramanaError:
    said = f"{strip_credentials_and_query(url)} answered {status}"
    if status == 407:
        return Unavailable(
            f"the proxy to {strip_credentials_and_query(url)} requires a user name and a password", status=status
        )
    if status in (408, 425, 429) or status >= 500:
        return Unavailable(said, status=status)
    return NotFound(said)


def describe_failure(error: Exception) -> str:
    """Return what failed without aiohttp's own text, which may contain the whole URL."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answered {error.status}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({getattr(error.certificate_error, 'verify_message', 'unknown')})"
    if isinstance(error, aiohttp.ClientConnectorError):
        if (number := error.os_error.errno) in errno.errorcode:  # asyncio's own text shows the address as a tuple
            return os.strerror(number or 0)
        return escape_control_characters(error.strerror or str(error.os_error))[:MAX_SHOWN_URL_LENGTH]
    if isinstance(error, OSError) and error.strerror:
        return escape_control_characters(error.strerror)[:MAX_SHOWN_URL_LENGTH]
    return {"ClientPayloadError": "it was cut off before its end"}.get(type(error).__name__, type(error).__name__)


def strip_credentials_and_query(url: Any) -> str:
    """Return an address without its user, password, query and fragment."""
    bare = str(url).partition("#")[0].partition("?")[0]
    scheme, mark, rest = bare.partition("://")
    place, slash, path = rest.partition("/")
    bare = escape_control_characters(f"{scheme}{mark}{place.rpartition('@')[2]}{slash}{path}")
    return bare if len(bare) <= MAX_SHOWN_URL_LENGTH else bare[: MAX_SHOWN_URL_LENGTH - 1] + "…"
