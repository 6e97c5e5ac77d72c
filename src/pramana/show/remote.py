"""The command line's client for a Pramana server: requests in, responses out, each failure as one sentence.

A token is sent only to the given host: redirects are not followed.
"""

import http.client
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from pramana import settings
from pramana.errors import InvalidInput, PramanaError, escape_control_characters, quote_text

REQUEST_TIMEOUT_S = 300.0
_NOT_PRAMANA_MESSAGE = "the server at that address is not Pramana"


class ServerFailed(PramanaError, code="server_failed", exit_code=3):
    """The server could not be reached, or failed."""


class NotAllowed(PramanaError, code="not_allowed", exit_code=2):
    """The server does not allow this caller to do this."""


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """A server's response."""

    status: int
    body: bytes
    headers: Message

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def json(self) -> dict[str, Any]:
        with suppress(ValueError, RecursionError):
            found = json.loads(self.body)
            if isinstance(found, dict) and isinstance(found.get("success"), bool):
                return found
        raise ServerFailed(_NOT_PRAMANA_MESSAGE)

    def read_text(self, media_type: str) -> str:
        """Return the text of a response with this media type; any other response is not from a Pramana server."""
        if self.headers.get_content_type() == media_type:
            with suppress(UnicodeDecodeError):
                return self.body.decode()
        raise ServerFailed(_NOT_PRAMANA_MESSAGE)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ServerClient:
    """A server at a URL."""

    url: str
    token: str | None = field(default=None, repr=False)
    returns_429_responses: bool = False
    """Whether a 429 response is returned instead of raised."""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
            _ = parts.port
        except ValueError:
            sound = False
        if not sound:
            raise InvalidInput(
                f"{quote_text(self.url)} is not a server URL; expected one such as http://localhost:3000"
            )
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise InvalidInput("the token contains characters that are not allowed")

    def send_request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        media_type: str = "application/json",
    ) -> ServerResponse:
        """Send a request; return the response, including refusals of the content, and raise on any other failure."""
        address = self.url.rstrip("/") + path + (f"?{urlencode(query, doseq=True)}" if query else "")
        headers = {"Accept": "*/*", "User-Agent": "pramana"}
        if body is not None:
            headers["Content-Type"] = media_type
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = Request(address, body, headers, method=method)  # noqa: S310 - only http and https, checked above
        proxy, scheme = settings.find_proxy(self.url), self.url.partition(":")[0].lower()
        opener = build_opener(ProxyHandler({scheme: proxy} if proxy else {}), _NoRedirects())
        try:
            with opener.open(request, timeout=REQUEST_TIMEOUT_S) as response:
                return ServerResponse(response.status, response.read(), response.headers)
        except HTTPError as error:
            with error:
                return self._raise_if_not_allowed_or_failed(ServerResponse(error.code, error.read(), error.headers))
        except (URLError, http.client.HTTPException, OSError, UnicodeError) as error:
            why = escape_control_characters(str(getattr(error, "reason", "") or error) or type(error).__name__)
            raise ServerFailed(f"{self.url} could not be reached: {why}; is the server running?") from None

    def _raise_if_not_allowed_or_failed(self, response: ServerResponse) -> ServerResponse:
        if response.status == 429 and self.returns_429_responses:
            return response
        if 300 <= response.status < 400:
            raise ServerFailed(f"{self.url} redirects ({response.status}); use the address it redirects to")
        why = escape_control_characters(str(response.json.get("error", "")))[:1_000]
        if response.status in (401, 403, 421):
            raise NotAllowed(f"{self.url}: {why}; pass a token with --token or PRAMANA_TOKEN")
        if response.status in (413, 429) or response.status >= 500:
            raise ServerFailed(f"{self.url}: {why}")
        return response
