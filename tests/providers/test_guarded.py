"""Endpoints named by remote users: a server connects to the public internet only, unless it is allowed more."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from aiohttp import web

from pramana.errors import AddressNotAllowed, ProviderError, Rejected, Unreachable
from pramana.loopback.voice import VoiceLoopback
from pramana.model import Request, Target, Turn
from pramana.providers.accounts import Account, Accounts, RegisteredProvider
from pramana.providers.http import HttpTransport
from pramana.providers.names import open_provider, resolve_target
from pramana.providers.voice.realtime import RealtimeProvider
from pramana.providers.voice.vocabulary import CallSetup

from ..loopback.openai import OpenAIWire
from ..loopback.pipecat import PipecatAgent
from ..loopback.realtime import RealtimeAgent
from ..loopback.server import Loopback
from .voice.callers import QUICK

pytestmark = pytest.mark.usefixtures("virtual_time")
T = TypeVar("T")
REQUEST = Request("m", (Turn("user", "Say it."),), {})


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


def make_guarded_accounts(**more: Any) -> Accounts:
    return Accounts(lambda _: None, allow_private_addresses=False, is_for_other_users=True, **more)


async def ask(target: Target, accounts: Accounts) -> str:
    provider = open_provider(target, accounts)
    try:
        return (await provider.ask(REQUEST)).text
    finally:
        await provider.close()


def use_loopback(use: Callable[[Loopback], Awaitable[T]]) -> tuple[T, int]:
    """Use a server on loopback; return what came of it and how many requests it got."""

    async def go() -> tuple[T, int]:
        async with asyncio.timeout(20), Loopback(OpenAIWire()) as server:
            return await use(server), server.count

    return asyncio.run(go())


def fake_name_server(monkeypatch: pytest.MonkeyPatch, name: str, *addresses: str) -> None:
    """Make a name server say where a name leads."""
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *more: Any, **given: Any) -> Any:
        if host in (name, name.encode()):
            return [found for address in addresses for found in real(address, port, *more, **given)]
        return real(host, port, *more, **given)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("localhost", "this machine"),
        ("localhost.", "this machine"),
        ("api.localhost", "this machine"),
        ("2130706433", "127.0.0.1, which is loopback"),
        ("0x7f.1", "127.0.0.1, which is loopback"),
        ("[::1]", "loopback"),
        ("[::ffff:127.0.0.1]", "loopback"),
        ("[::ffff:7f00:1]", "loopback"),
        ("10.0.0.7", "private"),
        ("192.168.1.1", "private"),
        ("169.254.169.254", "link-local"),
        ("[fd00:ec2::254]", "private"),
        ("0.0.0.0", "unspecified"),  # noqa: S104
    ],
)
def test_a_literal_private_address_is_refused_before_connecting(host: str, kind: str) -> None:
    async def ask_typed(server: Loopback) -> None:
        port = server.url.split(":")[2]
        with pytest.raises(AddressNotAllowed, match="allowPrivateAddresses") as told:
            await ask(resolve_target(f"http://{host}:{port}#m"), make_guarded_accounts())
        assert kind in str(told.value)
        assert told.value.fatal

    assert use_loopback(ask_typed)[1] == 0


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "::1", "10.1.2.3", "169.254.169.254"])
def test_a_name_that_resolves_to_a_private_address_is_refused_on_connect(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_name_server(monkeypatch, "models.example", address)

    async def ask_typed(server: Loopback) -> None:
        port = server.url.split(":")[2]
        with pytest.raises(AddressNotAllowed, match=r"its name resolves to .*, which is (loopback|private|link-local)"):
            await ask(resolve_target(f"http://models.example:{port}#m"), make_guarded_accounts())

    assert use_loopback(ask_typed)[1] == 0


def test_an_unknown_host_name_is_unreachable_not_refused() -> None:
    with pytest.raises(Unreachable):
        asyncio.run(ask(resolve_target("http://models.invalid/v1#m"), make_guarded_accounts()))


def test_a_loopback_server_is_called_if_private_addresses_are_allowed() -> None:
    async def ask_typed(server: Loopback) -> str:
        return await ask(resolve_target(f"{server.url}#m"), Accounts(lambda _: None, is_for_other_users=True))

    assert use_loopback(ask_typed) == ("It is so.", 1)


def test_addresses_from_the_local_configuration_are_not_guarded() -> None:
    async def ask_configured(server: Loopback) -> list[str]:
        variables = {"COMPATIBLE_BASE_URL": server.url, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k" * 20}
        accounts = Accounts(variables.get, allow_private_addresses=False, is_for_other_users=True)
        typed = ("compatible:m", f"{server.url}#m", "gpt-5")
        return [await ask(resolve_target(each), accounts) for each in typed]

    assert use_loopback(ask_configured) == (["It is so."] * 3, 3)


def test_a_registered_address_is_guarded() -> None:
    async def ask_registered(server: Loopback) -> None:
        mine = RegisteredProvider("mine", "openai", server.url, read_key=lambda: "k" * 20)
        lookup = {"mine": mine}.get
        with pytest.raises(AddressNotAllowed):
            await ask(
                resolve_target("mine:gpt-5", find_registered_provider=lookup),
                make_guarded_accounts(find_registered_provider=lookup),
            )
        assert await ask(
            resolve_target("mine:gpt-5", find_registered_provider=lookup),
            Accounts(lambda _: None, find_registered_provider=lookup),
        )

    assert use_loopback(ask_registered)[1] == 1


def test_no_redirect_is_followed() -> None:
    async def go() -> None:
        hits: list[str] = []

        async def handle(request: web.BaseRequest) -> web.Response:
            hits.append(request.path)
            return web.Response(status=307, headers={"Location": f"http://127.0.0.1:{port}/inside"})

        server = web.Server(handle, access_log=None)
        listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        try:
            for typed in (f"http://127.0.0.1:{port}/v1#m", f"pipecat:ws://127.0.0.1:{port}/ws"):
                use = dial if typed.startswith("pipecat") else ask
                with pytest.raises(Rejected, match="redirects to"):
                    await use(resolve_target(typed), Accounts(lambda _: None))
            assert len(hits) == 2
            assert "/inside" not in hits
        finally:
            listening.close()
            await server.shutdown(0.1)

    asyncio.run(go())


def test_behind_a_proxy_literal_private_addresses_are_refused_and_names_left_to_the_proxy() -> None:
    through = {"proxy": "http://127.0.0.1:9", "is_trusted_address": False, "allow_private": False}
    with pytest.raises(AddressNotAllowed, match="its host is private"):
        HttpTransport("Mine", Account("http://10.0.0.1/v1", **through))  # type: ignore[arg-type]

    async def go() -> None:
        http = HttpTransport("Mine", Account("http://models.example/v1", **through))  # type: ignore[arg-type]
        with pytest.raises(Unreachable):
            await http.get("/models", headers={})
        await http.close()

    asyncio.run(go())


# ── Calls ──


def call_agent(agent: Any, use: Callable[[VoiceLoopback], Awaitable[T]]) -> T:
    async def go() -> T:
        async with asyncio.timeout(20), VoiceLoopback(agent, QUICK, key="k" * 20) as server:
            return await use(server)

    return asyncio.run(go())


async def dial(target: Target, accounts: Accounts) -> bool:
    provider: Any = open_provider(target, accounts)
    try:
        channel = await provider.dial(CallSetup(target.model))
        await channel.close()
    finally:
        await provider.close()
    return True


def test_a_call_to_a_typed_address_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_name_server(monkeypatch, "bot.example", "127.0.0.1")

    async def use(server: VoiceLoopback) -> None:
        port = server.url.split(":")[2].partition("/")[0]
        for host, said in (("127.0.0.1", "its host is loopback"), ("bot.example", "its name resolves to 127.0.0.1")):
            with pytest.raises(AddressNotAllowed, match=said):
                await dial(resolve_target(f"pipecat:ws://{host}:{port}"), make_guarded_accounts())
        lookup = {
            "bot": RegisteredProvider("bot", "pipecat", None, f"ws://127.0.0.1:{port}", read_key=lambda: "k" * 20)
        }.get
        with pytest.raises(AddressNotAllowed):
            await dial(
                resolve_target("bot", find_registered_provider=lookup),
                make_guarded_accounts(find_registered_provider=lookup),
            )
        assert await dial(
            resolve_target("bot", find_registered_provider=lookup),
            Accounts(lambda _: None, find_registered_provider=lookup),
        )

    call_agent(PipecatAgent, use)


def test_a_vendors_agent_at_a_registered_address_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_name_server(monkeypatch, "gateway.example", "127.0.0.1")

    async def use(server: VoiceLoopback) -> None:
        for allowed in (False, True):
            url = server.url.replace("127.0.0.1", "gateway.example")
            agent = RealtimeProvider(Account(url, "k" * 20, is_trusted_address=False, allow_private=allowed))
            if allowed:
                channel = await agent.dial(CallSetup("gpt-realtime"))
                await channel.close()
            else:
                with pytest.raises(AddressNotAllowed, match=r"resolves to 127\.0\.0\.1, which is loopback"):
                    await agent.dial(CallSetup("gpt-realtime"))
            await agent.close()

    call_agent(RealtimeAgent, use)


def test_an_address_named_in_an_answer_is_guarded_even_if_the_provider_is_not() -> None:
    """Vapi returns the URL of the call by HTTP: here a private address, which is not in the local configuration."""

    async def go() -> None:
        async def handle(request: web.BaseRequest) -> web.Response:
            del request
            return web.json_response({"id": "1", "transport": {"websocketCallUrl": "ws://169.254.169.254/call"}})

        server = web.Server(handle, access_log=None)
        listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        variables = {"VAPI_BASE_URL": f"http://127.0.0.1:{port}", "VAPI_API_KEY": "k" * 20}
        try:
            with pytest.raises(AddressNotAllowed, match="link-local"):
                await dial(resolve_target("vapi:agent"), Accounts(variables.get, allow_private_addresses=False))
        finally:
            listening.close()
            await server.shutdown(0.1)

    asyncio.run(go())


def test_every_part_of_a_cascade_is_guarded() -> None:
    async def use(server: Loopback) -> None:
        target = resolve_target(f"cascade:stt={server.url}#a,chat={server.url}#b,tts={server.url}#c")
        with pytest.raises(ProviderError) as told:
            open_provider(target, make_guarded_accounts())
        assert isinstance(told.value, AddressNotAllowed)
        provider = open_provider(target, Accounts(lambda _: None))
        await provider.close()

    use_loopback(use)
