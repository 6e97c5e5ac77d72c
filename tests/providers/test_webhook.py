"""Webhooks: what a receiver gets, what counts as delivered, and which addresses are never connected to."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from pramana.errors import AddressNotAllowed, InvalidInput, ProviderError, Rejected, Unavailable, Unreachable
from pramana.providers import webhook
from pramana.providers.webhook import Webhook, check_webhook, make_signature, post_alert

from .test_guarded import fake_name_server

pytestmark = pytest.mark.usefixtures("virtual_time")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY = '{"text":"…"}'.encode()
SECRET_PATH = "/services/T0000/B0000/s3cret-of-the-path"


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


@asynccontextmanager
async def receiver(handler: Handler) -> AsyncIterator[str]:
    """Serve on loopback; yield the URL of the webhook."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}{SECRET_PATH}"  # type: ignore[union-attr]
    finally:
        await runner.cleanup()


def deliver(handler: Handler, secret: str | None = None) -> None:
    async def go() -> None:
        async with receiver(handler) as url:
            await post_alert(Webhook(url, secret), "a1", BODY)

    asyncio.run(go())


def test_the_receiver_can_check_the_signature_and_the_id() -> None:
    got: list[tuple[str, bytes, str, str, str]] = []

    async def receive(request: web.Request) -> web.Response:
        head = request.headers
        got.append(
            (
                request.path,
                await request.read(),
                head["X-Pramana-Signature"],
                head["X-Pramana-Alert"],
                head["Content-Type"],
            )
        )
        return web.Response(text="ok")

    deliver(receive, "key")
    ((path, body, signature, alert, kind),) = got
    assert (path, body, alert, kind) == (SECRET_PATH, BODY, "a1", "application/json")
    sent_at, _, digest = signature.removeprefix("t=").partition(",v1=")
    assert digest == hmac.new(b"key", f"{sent_at}.".encode() + body, hashlib.sha256).hexdigest()
    assert signature == make_signature("key", body, int(sent_at))
    assert signature != make_signature("other", body, int(sent_at))


def test_without_a_secret_nothing_is_signed() -> None:
    signed: list[bool] = []

    async def receive(request: web.Request) -> web.Response:
        signed.append("X-Pramana-Signature" in request.headers)
        return web.Response(status=204)

    deliver(receive)
    assert signed == [False]


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (302, Rejected, "redirects to another address"),
        (307, Rejected, "redirects to another address"),
        (400, Rejected, "answered 400; check its URL"),
        (404, Rejected, "answered 404; check its URL"),
        (410, Rejected, "answered 410; check its URL"),
        (429, Unavailable, "answered 429"),
        (500, Unavailable, "answered 500"),
        (503, Unavailable, "answered 503"),
    ],
)
def test_other_statuses_are_failures_that_do_not_show_the_url(
    status: int, error: type[ProviderError], message: str
) -> None:
    requests: list[str] = []

    async def receive(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.Response(status=status, text=SECRET_PATH, headers={"Location": "/elsewhere", "Retry-After": "7"})

    with pytest.raises(error, match=message) as caught:
        deliver(receive, "key")
    assert "s3cret" not in str(caught.value)
    assert requests == [SECRET_PATH], "a redirect is not followed, and nothing is sent twice"
    assert caught.value.retry_after == (7.0 if error is Unavailable else None)


def test_a_slow_receiver_is_given_up_after_ten_seconds() -> None:
    async def receive(_: web.Request) -> web.Response:
        await asyncio.sleep(3_600)
        return web.Response()

    with pytest.raises(Unavailable, match="did not answer within 10 s"):
        deliver(receive)


def test_a_huge_or_endless_answer_is_not_read() -> None:
    sent = [0]

    async def receive(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while sent[0] < 1 << 30:
            await response.write(b"x" * 65_536)
            sent[0] += 65_536
        return response

    deliver(receive)
    assert sent[0] < 64 << 20


def test_a_receiver_that_closes_the_connection_is_unreachable() -> None:
    async def receive(request: web.Request) -> web.Response:
        assert request.transport
        request.transport.abort()
        return web.Response()

    with pytest.raises(Unreachable, match="cannot be reached"):
        deliver(receive)


def test_no_receiver_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9 cannot be reached: Connection refused") as caught:
        asyncio.run(post_alert(Webhook(f"http://127.0.0.1:9{SECRET_PATH}"), "a1", BODY))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example",
        "ftp://hooks.example/s3cret",
        "file:///s3cret",
        "http:///s3cret",
        "http://[::1/s3cret",
        "http://hooks.example:99999/s3cret",
        "http://hooks.example/s3cret\r\nHost: other",
        f"http://{'x' * 70}.example/s3cret",
        "https://hooks.example/s3cret" + "x" * webhook.MAX_URL_LENGTH,
        "https://me:s3cret@hooks.example/",
    ],
)
def test_a_hostile_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_webhook(Webhook(url))
    assert "s3cret" not in str(caught.value)
    with pytest.raises(InvalidInput):
        asyncio.run(post_alert(Webhook(url), "a1", BODY))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "10.0.0.1", "[::1]", "169.254.169.254"])
def test_users_of_a_server_cannot_name_a_private_address(host: str) -> None:
    with pytest.raises(AddressNotAllowed, match="not on the public Internet"):
        check_webhook(Webhook(f"http://{host}:1/x", allow_private=False))


def test_a_name_that_leads_to_a_private_address_is_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_name_server(monkeypatch, "hooks.example", "127.0.0.1")
    requests: list[str] = []

    async def receive(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.Response()

    async def go() -> None:
        async with receiver(receive) as url:
            named = url.replace("127.0.0.1", "hooks.example")
            await post_alert(Webhook(named), "a1", BODY)
            with pytest.raises(AddressNotAllowed, match=r"resolves to 127\.0\.0\.1, which is loopback"):
                await post_alert(Webhook(named, allow_private=False), "a2", BODY)

    asyncio.run(go())
    assert requests == [SECRET_PATH]


@pytest.mark.parametrize("secret", ["", "x" * (webhook.MAX_SECRET_LENGTH + 1)])
def test_a_secret_has_a_length(secret: str) -> None:
    with pytest.raises(InvalidInput, match="the secret of the webhook"):
        check_webhook(Webhook("https://hooks.example/", secret))
