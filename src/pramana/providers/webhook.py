"""Webhooks: the JSON of one alert goes in, and one signed POST to its URL goes out.

Any 2xx status counts as delivered; the body of the answer is never read, and a redirect is never followed. A webhook of
a server's user connects to the public Internet only (`guard`). Messages name the host and nothing else of the URL,
because the path of a Slack webhook is its secret. Never retries: `alerting` stores when to try again.
"""

import asyncio
import hashlib
import hmac
from typing import NamedTuple

import aiohttp
from yarl import URL

from pramana import clock, settings
from pramana.errors import AddressNotAllowed, InvalidInput, ProviderError, Rejected, Unavailable, Unreachable
from pramana.providers.failures import parse_retry_after
from pramana.providers.guard import AddressGuard, describe_failure, describe_refused_host

MAX_URL_LENGTH = 2_000
TIMEOUT_S = 10.0
"""Timeout of one delivery: name lookup, connection and the status of the answer."""
MAX_SECRET_LENGTH = 500
SIGNATURE_HEADER, ALERT_HEADER = "X-Pramana-Signature", "X-Pramana-Alert"


class Webhook(NamedTuple):
    """Where alerts are sent, and how."""

    url: str
    secret: str | None = None
    """Signs the body; None: not signed."""
    allow_private: bool = True
    """Whether the URL may lead to a private address."""


def check_webhook_url(url: str) -> URL:
    """Return a webhook's URL in parsed form; raise `InvalidInput` without showing it, as it may hold a secret.

    >>> check_webhook_url("https://hooks.example/services/T0/B0").host
    'hooks.example'
    """
    try:
        found = URL(url) if len(url) <= MAX_URL_LENGTH and url.isprintable() else URL()
        (found.host or "").encode("idna")  # otherwise the name lookup raises, far from here
        found = found.with_fragment(None)
        is_valid = found.scheme in ("http", "https") and bool(found.host and found.port)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise InvalidInput("the URL of the webhook is not valid; expected https://host/path")
    if found.raw_user is not None or found.raw_password is not None:
        raise InvalidInput(
            "the URL of the webhook contains a user name or a password, which are never sent; use a secret in its "
            "path, or check the signature"
        )
    return found


def check_webhook(hook: Webhook) -> None:
    """Raise `InvalidInput` or `AddressNotAllowed` for a webhook that can never be delivered to; sends nothing."""
    url = check_webhook_url(hook.url)
    if hook.secret is not None and not 0 < len(hook.secret) <= MAX_SECRET_LENGTH:
        raise InvalidInput(f"the secret of the webhook has 1 to {MAX_SECRET_LENGTH} characters")
    if not hook.allow_private and (why := describe_refused_host(url)):
        raise _make_address_refused_error(url, why)


def make_signature(secret: str, body: bytes, sent_at: int) -> str:
    """Return the value of the header `X-Pramana-Signature`: when the body was sent, and its HMAC-SHA256.

    >>> make_signature("s3cret", b"{}", 1700000000)
    't=1700000000,v1=97926816e98fbb41ccb1673225ff29a2f35369099990e1b1561651e7bd097ebf'
    """
    signed = hmac.new(secret.encode("utf-8", "surrogatepass"), b"%d." % sent_at + body, hashlib.sha256)
    return f"t={sent_at},v1={signed.hexdigest()}"


async def post_alert(hook: Webhook, alert_id: str, body: bytes) -> None:
    """Post the JSON of an alert; raise a `ProviderError` unless the receiver answers with a 2xx status in time."""
    check_webhook(hook)
    url = check_webhook_url(hook.url)
    proxy = settings.find_proxy(hook.url)
    guard = None if hook.allow_private else AddressGuard()
    headers = {"Content-Type": "application/json", "User-Agent": "pramana", ALERT_HEADER: alert_id}
    if hook.secret is not None:
        headers[SIGNATURE_HEADER] = make_signature(hook.secret, body, int(clock.timestamp()))
    session = aiohttp.ClientSession(
        connector=guard.make_connector() if guard and not proxy else aiohttp.TCPConnector(force_close=True),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
    )
    host = url.host_port_subcomponent or ""
    try:
        async with asyncio.timeout(TIMEOUT_S), session:
            response = await session.post(url, data=body, allow_redirects=False, proxy=proxy)
            response.close()  # a huge or endless body is not read
            if error := _make_status_error(host, response):
                raise error
    except TimeoutError:
        raise Unavailable(f"the webhook at {host} did not answer within {TIMEOUT_S:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: an address that no socket accepts
        if guard and guard.refused:
            raise _make_address_refused_error(url, f"its name resolves to {guard.refused[0]}") from None
        raise Unreachable(f"the webhook at {host} cannot be reached: {describe_failure(error)}") from None


def _make_status_error(host: str, response: aiohttp.ClientResponse) -> ProviderError | None:
    """Return the error for an answer that does not confirm the delivery."""
    status = response.status
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return Rejected(
            f"the webhook at {host} redirects to another address, which is not followed; use its final URL",
            status=status,
        )
    if status == 407:
        return Unavailable(f"the proxy to {host} requires a user name and a password ({status})", status=status)
    if status == 429 or status >= 500:
        wait = parse_retry_after(response.headers)
        return Unavailable(f"the webhook at {host} answered {status}", status=status, retry_after=wait)
    return Rejected(f"the webhook at {host} answered {status}; check its URL", status=status)


def _make_address_refused_error(url: URL, reason: str) -> AddressNotAllowed:
    return AddressNotAllowed(
        f"the webhook at {url.host_port_subcomponent} is not on the public Internet: {reason}; an administrator can "
        "allow private addresses under Settings, Server, or with allowPrivateAddresses in PATCH /api/settings"
    )
