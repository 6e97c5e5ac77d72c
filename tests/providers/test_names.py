"""Model names: each resolves to its provider, which opens with the right account and never shows a key."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pramana import settings
from pramana.errors import AuthenticationFailed, InvalidInput
from pramana.model import Provider, Request, Target, Turn
from pramana.plugins import Registry
from pramana.providers import accounts, kinds, names
from pramana.providers.accounts import Accounts, CommandLine
from pramana.providers.kinds import VARIABLES_BY_KIND, VOICE_AGENT_KINDS_WITH_ACCOUNT, providers
from pramana.providers.names import open_provider, resolve_embedder, resolve_target
from pramana.providers.text.anthropic import Anthropic
from pramana.providers.text.command import CommandProvider
from pramana.providers.text.fake import FakeProvider
from pramana.providers.text.function import FunctionProvider
from pramana.providers.text.google import Google
from pramana.providers.text.openai import OpenAI, OpenAIResponses
from pramana.run.accounts import read_configured_commands

KEY = "sk-secret-0123456789"
COMMANDS = {"shout": CommandLine((sys.executable, "-c", "print(input().upper())"), 30.0)}


@pytest.mark.parametrize(
    ("typed", "provider", "model"),
    [
        ("gpt-5", "openai", "gpt-5"),
        ("chatgpt-4o-latest", "openai", "chatgpt-4o-latest"),
        ("o1", "openai", "o1"),
        ("o3-mini", "openai", "o3-mini"),
        ("o4-mini-2025-04-16", "openai", "o4-mini-2025-04-16"),
        ("ft:gpt-4o-mini:org::id", "openai", "ft:gpt-4o-mini:org::id"),
        ("claude-opus-4-6", "anthropic", "claude-opus-4-6"),
        ("gemini-2.5-pro", "google", "gemini-2.5-pro"),
        ("gemma-3-27b-it", "google", "gemma-3-27b-it"),
        ("opus", "anthropic", "claude-opus-4-6"),
        ("sonnet", "anthropic", "claude-sonnet-4-6"),
        ("haiku", "anthropic", "claude-haiku-4-5"),
        ("anthropic:opus", "anthropic", "claude-opus-4-6"),
        (" openai:gpt-5 ", "openai", "gpt-5"),
        ("openai:anything:at-all", "openai", "anything:at-all"),
        ("openai-responses:gpt-5", "openai-responses", "gpt-5"),
        ("anthropic:claude-x", "anthropic", "claude-x"),
        ("google:learnlm", "google", "learnlm"),
        ("compatible:llama", "compatible", "llama"),
        ("local", "local", "local"),
        ("local:SmolLM2-135M-Instruct", "local", "SmolLM2-135M-Instruct"),
        ("fake", "fake", "words"),
        ("fake:echo", "fake", "echo"),
        ("fake:seed=3,fixed=yes, it is: so", "fake", "fixed"),
        ("python:package.module:function", "python", "package.module:function"),
        ("command:shout", "command", "shout"),
    ],
)
def test_a_model_name_resolves_to_its_provider(typed: str, provider: str, model: str) -> None:
    target = resolve_target(typed, commands=COMMANDS)
    assert (target.typed, target.provider, target.model) == (typed.strip(), provider, model)


def test_a_url_is_a_compatible_server() -> None:
    target = resolve_target("http://localhost:8000/v1/#meta/llama:8b#q4")
    assert (target.provider, target.model) == ("compatible", "meta/llama:8b#q4")
    assert target.arguments == {"base_url": "http://localhost:8000/v1"}


def test_arguments_are_plain_data_that_can_be_stored() -> None:
    assert resolve_target("fake:seed=3,fixed=a, b").arguments == {"seed": 3, "answer": "fixed", "text": "a, b"}
    assert resolve_target("command:shout", commands=COMMANDS).arguments == {
        "argv": [sys.executable, "-c", "print(input().upper())"],
        "timeout_s": 30.0,
    }


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (
            "opsu",
            r'unknown model "opsu"; did you mean "opus"\?; name a model with its provider, as in openai:opsu',
        ),
        (
            "nope",
            r'unknown model "nope"; name a model with its provider, as in openai:nope, or with its server: '
            r"http://HOST:PORT/v1#nope \(providers: openai, .*\); to test a Python function, write "
            "python:module:function; list models: pramana models",
        ),
        ("nope:x", r'unknown provider "nope"; name a model with its provider, as in openai:x, .*/v1#x '),
        ("gtp-5-mini", r'did you mean "gpt-5-mini"\?'),
        ("fak", r'did you mean "fake"\?'),
        ("llama3", r"or with its server: http://HOST:PORT/v1#llama3"),
        (
            "opena:gpt-5",
            r'unknown provider "opena"; did you mean "openai"\?; .*as in openai:gpt-5, .*#gpt-5 \(providers: openai,',
        ),
        ("", "unknown model"),
        ("o1x", "unknown model"),
        ("openai:", "lacks a model; write openai:MODEL"),
        ("openai", "unknown model"),
        ("http://localhost:8000/v1", r"lacks a model; write http://localhost:8000/v1#MODEL"),
        ("http://#m", "is not a URL"),
        ("http://host:notaport/v1#m", "is not a URL"),
        ("https://host/v1?key=abc#m", "COMPATIBLE_API_KEY"),
        ("python:", "lacks a function"),
        ("python:module", "lacks a function"),
        (
            "command:shot",
            r'no command "shot" in \S+config\.toml; did you mean "shout"\?; configured: shout\. To add it,',
        ),
        ("fake:latensy=1", r'is not an option of the fake provider; did you mean "latency"\?'),
    ],
)
def test_an_unknown_name_says_what_to_type(typed: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        resolve_target(typed, commands=COMMANDS)


def test_commands_are_defined_only_in_the_configuration() -> None:
    with pytest.raises(InvalidInput) as caught:
        resolve_target("command:shout")
    assert str(caught.value) == (
        f'"command:shout": no command "shout" in {settings.data_folder() / "config.toml"}. To add it, write there:\n'
        '[commands.shout]\nargv = ["/path/to/program", "argument"]'
    )


@pytest.mark.parametrize("name", ["shout", "my-model_2", "a model", 'a "b"', "ünï"])
def test_the_suggested_configuration_lines_define_the_command(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        resolve_target(f"command:{name}")
    home = settings.data_folder()
    home.mkdir(parents=True, exist_ok=True)
    lines = str(caught.value).partition("write there:\n")[2].replace("/path/to/program", "true")
    (home / "config.toml").write_text(lines, encoding="utf-8")
    assert resolve_target(f"command:{name}", commands=read_configured_commands()).arguments["argv"] == [
        "true",
        "argument",
    ]


@pytest.mark.parametrize("part", ["stt", "chat", "tts", "voice"])
@pytest.mark.parametrize(
    "address",
    [
        "http://me:s3cret@h.example/v1#m",
        "https://s3cret@h.example/v1#m",
        "http://h.example/v1?key=s3cret#m",
        "http://me:s3cret@h.example/v1",
        "http://me:s3#cret@h.example/v1#m",
        "ftp://h.example/s3cret#m",
        "file:///etc/s3cret#m",
        "http://h.example/s3cret#",
    ],
)
def test_a_cascade_part_contains_no_secret_and_uses_web_servers_only(part: str, address: str) -> None:
    written = {"stt": "a", "chat": "b", "tts": "c", part: address}
    with pytest.raises(InvalidInput) as caught:
        resolve_target("cascade:" + ",".join(f"{name}={value}" for name, value in written.items()))
    assert "s3cret" not in str(caught.value)
    assert "cret" not in str(caught.value)


def test_a_cascade_part_may_have_any_other_name() -> None:
    found = resolve_target("cascade:stt=/models/whisper,chat=https://h.example:8000/v1#org/m,tts=ft:x,voice=C#")
    assert found.arguments == {
        "stt": "/models/whisper", "chat": "https://h.example:8000/v1#org/m", "tts": "ft:x", "voice": "C#"
    }  # fmt: skip


def test_a_password_in_a_url_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidInput) as caught:
        resolve_target(f"https://me:{KEY}@host/v1#m")
    assert KEY not in str(caught.value)


def make_accounts(**variables: str) -> Accounts:
    return Accounts(variables.get, commands=COMMANDS)


FULL = {
    "OPENAI_API_KEY": "sk-openai",
    "ANTHROPIC_API_KEY": "sk-anthropic",
    "GEMINI_API_KEY": "sk-gemini",
    "COMPATIBLE_BASE_URL": "http://localhost:1/v1",
}


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        ("gpt-5", OpenAI),
        ("openai-responses:gpt-5", OpenAIResponses),
        ("opus", Anthropic),
        ("gemini-2.5-pro", Google),
        ("compatible:llama", OpenAI),
        ("http://localhost:2/v1#llama", OpenAI),
        ("fake:echo", FakeProvider),
        ("python:textwrap:dedent", FunctionProvider),
        ("command:shout", CommandProvider),
    ],
)
def test_each_target_opens_as_its_provider(typed: str, kind: type) -> None:
    async def use() -> Provider:
        provider = open_provider(resolve_target(typed, commands=COMMANDS), make_accounts(**FULL))
        await provider.close()
        return provider

    assert type(asyncio.run(use())) is kind


def test_every_builtin_provider_can_be_loaded() -> None:
    for name in providers.builtin:
        assert callable(providers.load(name))


@pytest.mark.parametrize(
    ("typed", "variables", "base_url", "key", "variable"),
    [
        ("gpt-5", {"OPENAI_API_KEY": "k"}, "https://api.openai.com/v1", "k", "OPENAI_API_KEY"),
        ("gpt-5", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://p/v1"}, "http://p/v1", "k", "OPENAI_API_KEY"),
        ("opus", {"ANTHROPIC_AUTH_TOKEN": "t"}, "https://api.anthropic.com", "t", "ANTHROPIC_AUTH_TOKEN"),
        (
            "gemini-2.5-pro",
            {"GEMINI_API_KEY": "g", "GOOGLE_API_KEY": "first"},
            "https://generativelanguage.googleapis.com",
            "first",
            "GOOGLE_API_KEY",
        ),
        ("http://h:1/v1#m", {"OPENAI_API_KEY": "k"}, "http://h:1/v1", None, "COMPATIBLE_API_KEY"),
        ("http://h:1/v1#m", {"COMPATIBLE_API_KEY": "c"}, "http://h:1/v1", "c", "COMPATIBLE_API_KEY"),
        ("compatible:m", {"COMPATIBLE_BASE_URL": "http://b/v1"}, "http://b/v1", None, "COMPATIBLE_API_KEY"),
    ],
)
def test_an_account_comes_from_its_variables(
    typed: str, variables: dict[str, str], base_url: str, key: str | None, variable: str
) -> None:
    account = make_accounts(**variables).find_account(resolve_target(typed))
    assert account is not None
    assert (account.base_url, account.key, account.variable) == (base_url, key, variable)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("gpt-5", "openai needs an API key; set OPENAI_API_KEY"),
        ("openai-responses:gpt-5", "set OPENAI_API_KEY"),
        ("opus", "set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"),
        ("gemini-2.5-pro", "set GOOGLE_API_KEY or GEMINI_API_KEY"),
    ],
)
def test_a_missing_key_names_the_variable_to_set(typed: str, says: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        open_provider(resolve_target(typed), make_accounts())
    assert says in str(caught.value)


def test_a_compatible_model_without_a_server_says_so() -> None:
    with pytest.raises(InvalidInput, match=r"write http://HOST:PORT/v1#llama, or set COMPATIBLE_BASE_URL"):
        open_provider(resolve_target("compatible:llama"), make_accounts())


def test_a_base_url_recorded_for_a_vendor_gets_no_key() -> None:
    target = Target("gpt-5", "openai", "gpt-5", {"base_url": "http://elsewhere/v1"})
    account = make_accounts(OPENAI_API_KEY=KEY).find_account(target)
    assert account is not None
    assert account.base_url == "https://api.openai.com/v1"


def test_configured_providers_are_listed() -> None:
    assert make_accounts().list_configured() == ["local"]
    assert make_accounts(**FULL).list_configured() == [
        *(name for name in VARIABLES_BY_KIND if name not in VOICE_AGENT_KINDS_WITH_ACCOUNT),
        "local",
    ]


def test_keys_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    lookup = os.environ.get  # noqa: TID251 - its repr shows all variables
    assert KEY in repr(lookup)
    accounts = Accounts(lookup)
    target = resolve_target("gpt-5")
    assert KEY not in f"{accounts!r} {accounts.find_account(target)!r} {target!r} {open_provider(target, accounts)!r}"


def test_a_server_does_not_run_local_code() -> None:
    accounts = Accounts(lambda _: None, commands=COMMANDS, may_run_code=False)
    for typed in ("python:textwrap:dedent", "command:shout"):
        with pytest.raises(InvalidInput, match="runs code on this machine"):
            open_provider(resolve_target(typed, commands=COMMANDS), accounts)


def test_a_recorded_command_runs_only_as_configured() -> None:
    other = Target("command:shout", "command", "shout", {"argv": ["rm", "-rf", "/nowhere"]})
    with pytest.raises(InvalidInput, match="has changed since the run started"):
        open_provider(other, make_accounts())
    with pytest.raises(InvalidInput, match=r'no command "gone" in \S+config\.toml; configured: shout'):
        open_provider(Target("command:gone", "command", "gone", {"argv": ["true"]}), make_accounts())


@pytest.mark.parametrize(
    "work",
    [
        "from pramana.providers.names import resolve_target; resolve_target('gpt-5')",
        "import pramana.bench, pramana.planning",
    ],
    ids=["resolve a name", "an offline run"],
)
def test_offline_providers_import_no_http_library(work: str) -> None:
    code = f"import sys; {work}; print('aiohttp' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# A third party's package


@pytest.fixture
def installed_extension(monkeypatch: pytest.MonkeyPatch, extension: Path) -> Iterator[None]:
    """The extension as an installation leaves it: its module and its metadata on the path."""
    monkeypatch.syspath_prepend(str(extension))
    fresh = Registry("provider", "pramana.providers", providers.builtin)
    for module in (accounts, kinds, names):
        monkeypatch.setattr(module, "providers", fresh)
    yield
    sys.modules.pop("parrot", None)


@pytest.mark.usefixtures("installed_extension")
def test_a_third_party_provider_is_called_like_a_built_in() -> None:
    async def use(typed: str) -> tuple[str, str | None, list[str]]:
        provider: Any = open_provider(
            resolve_target(typed), make_accounts(PARROT_API_KEY=KEY, PARROT_BASE_URL="http://p")
        )
        try:
            reply = await provider.ask(Request(resolve_target(typed).model, (Turn("user", "hello"),)))
            if typed.startswith("parrot"):
                assert (provider.account.key, provider.account.base_url) == (KEY, "http://p")
            return reply.text, reply.served_model, await provider.models()
        finally:
            await provider.close()

    assert asyncio.run(use("parrot:loud")) == ("HELLO", "loud", ["loud", "quiet"])
    assert asyncio.run(use("fake:echo"))[0] == "hello"


@pytest.mark.usefixtures("installed_extension")
def test_a_third_party_provider_may_embed() -> None:
    target = resolve_embedder("parrot:loud")
    provider: Any = open_provider(target, make_accounts())
    reply = asyncio.run(provider.embed(Request(target.model, (Turn("user", "a"), Turn("user", "bcd")))))
    assert reply.vectors == ([1.0], [3.0])


@pytest.mark.usefixtures("installed_extension")
def test_a_third_party_provider_is_listed_and_refused_without_open() -> None:
    assert kinds.providers.names()[-2:] == ["parrot", "shapeless"]
    with pytest.raises(InvalidInput, match=r'the provider "shapeless" lacks the function open\(target, account\)'):
        open_provider(resolve_target("shapeless:x"), make_accounts())
    with pytest.raises(InvalidInput, match=r'did you mean "parrot"\?'):
        resolve_target("parot:loud")
