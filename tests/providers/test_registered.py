"""Registered providers: their names, what a target records of them, and where their keys may be sent."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from pramana.errors import AuthenticationFailed, InvalidInput
from pramana.model import Target
from pramana.providers.accounts import Account, Accounts, RegisteredProvider
from pramana.providers.kinds import VARIABLES_BY_KIND
from pramana.providers.names import REGISTRABLE_KINDS, check_provider_registration, open_provider, resolve_target
from pramana.providers.text.openai import OpenAI
from pramana.providers.voice.cascade import Cascade, _FixedModelProvider

KEY = "sk-registered-0123456789"
DESCRIPTION = {"name": "Mine", "url": "wss://agent.example/call", "base_url": "https://agent.example"}


def make_lookup(*every: RegisteredProvider) -> Callable[[str], RegisteredProvider | None]:
    return {each.id: each for each in every}.get


def make_registered(provider_id: str, kind: str, **given: Any) -> RegisteredProvider:
    return RegisteredProvider(provider_id, kind, **given, read_key=lambda: KEY)


MINE = make_registered("my-vllm", "compatible", base_url="http://models.example/v1", model="llama")
TEAM = make_registered("openai-team", "openai")
OPENAI = make_registered("openai", "openai", base_url="https://gateway.example/v1")
AGENT = make_registered("my-agent", "websocket", description=DESCRIPTION)
FAKE = RegisteredProvider("my-fake", "fake", model="fixed=yes")
EVERY = make_lookup(MINE, TEAM, AGENT, FAKE)


def find_account(
    typed: str, registered: Callable[[str], RegisteredProvider | None] = EVERY, **variables: str
) -> Account:
    accounts = Accounts(variables.get, find_registered_provider=registered)
    found = accounts.find_account(resolve_target(typed, find_registered_provider=registered))
    assert found is not None
    return found


def test_a_registered_provider_is_the_prefix_of_a_model_name() -> None:
    assert resolve_target("my-vllm:qwen", find_registered_provider=EVERY) == Target(
        "my-vllm:qwen", "compatible", "qwen", {"account": "my-vllm", "base_url": "http://models.example/v1"}
    )
    assert resolve_target("my-vllm", find_registered_provider=EVERY).model == "llama"
    assert resolve_target("openai-team:gpt-5", find_registered_provider=EVERY) == Target(
        "openai-team:gpt-5", "openai", "gpt-5", {"account": "openai-team"}
    )
    assert resolve_target("my-fake", find_registered_provider=EVERY).arguments == {"answer": "fixed", "text": "yes"}
    assert resolve_target("my-fake:echo", find_registered_provider=EVERY).model == "echo"
    assert resolve_target("my-agent", find_registered_provider=EVERY) == Target(
        "my-agent", "websocket", "my-agent", {"description": DESCRIPTION, "account": "my-agent"}
    )
    assert resolve_target("my-agent:sales", find_registered_provider=EVERY).model == "sales"
    asks = make_lookup(
        make_registered("asks", "websocket", description={**DESCRIPTION, "url": "wss://agent.example/{model}"})
    )
    assert resolve_target("asks:sales", find_registered_provider=asks).model == "sales"
    with pytest.raises(InvalidInput, match="lacks a model, which this agent needs; write asks:MODEL"):
        resolve_target("asks", find_registered_provider=asks)
    with pytest.raises(InvalidInput, match="lacks a model; write openai-team:MODEL"):
        resolve_target("openai-team", find_registered_provider=EVERY)
    with pytest.raises(InvalidInput, match='unknown provider "my-vlm"'):
        resolve_target("my-vlm:m", find_registered_provider=EVERY)


def test_no_target_contains_a_key() -> None:
    for typed in ("my-vllm", "openai-team:gpt-5", "my-agent"):
        assert KEY not in repr(resolve_target(typed, find_registered_provider=EVERY))
        assert KEY not in repr(find_account(typed))


def test_each_has_its_own_key_and_address() -> None:
    assert (find_account("my-vllm").base_url, find_account("my-vllm").key) == ("http://models.example/v1", KEY)
    assert find_account("openai-team:gpt-5").base_url == "https://api.openai.com/v1"
    assert find_account("openai-team:gpt-5", OPENAI_API_KEY="other", OPENAI_BASE_URL="http://other").key == KEY
    assert find_account("openai-team:gpt-5", OPENAI_BASE_URL="http://other").base_url == "https://api.openai.com/v1"
    assert find_account("gpt-5", OPENAI_API_KEY="of-the-environment").key == "of-the-environment"


@pytest.mark.parametrize("typed", ["gpt-5", "openai:gpt-5", "openai-responses:gpt-5", "openai-realtime:gpt-realtime"])
def test_a_provider_registered_under_its_kind_takes_precedence_over_the_environment(typed: str) -> None:
    found = find_account(typed, make_lookup(OPENAI), OPENAI_API_KEY="other", OPENAI_BASE_URL="http://other")
    assert (found.base_url, found.key) == ("https://gateway.example/v1", KEY)
    assert resolve_target(typed, find_registered_provider=make_lookup(OPENAI)).typed == typed


def test_a_typed_server_never_gets_a_registered_key() -> None:
    compatible = make_registered("compatible", "compatible", base_url="http://models.example/v1")
    found = find_account("http://elsewhere.example/v1#m", make_lookup(compatible))
    assert (found.base_url, found.key) == ("http://elsewhere.example/v1", None)


def test_a_registered_provider_without_a_key_does_not_use_the_environment() -> None:
    keyless = RegisteredProvider("openai-team", "openai")
    with pytest.raises(AuthenticationFailed, match="openai-team needs an API key; set the provider's apiKey"):
        find_account("openai-team:gpt-5", make_lookup(keyless), OPENAI_API_KEY="other")


def test_a_key_is_sent_only_to_the_address_recorded_with_the_run() -> None:
    target = resolve_target("my-vllm", find_registered_provider=EVERY)
    for now in (
        make_registered("my-vllm", "compatible", base_url="http://moved.example/v1"),
        make_registered("my-vllm", "anthropic"),
    ):
        with pytest.raises(
            InvalidInput, match="has changed since the run started, and its key is not sent to a new address"
        ):
            Accounts(lambda _: None, find_registered_provider=make_lookup(now)).find_account(target)
    with pytest.raises(InvalidInput, match='the provider "my-vllm" is no longer registered'):
        Accounts(lambda _: None).find_account(target)
    agent = resolve_target("my-agent", find_registered_provider=EVERY)
    moved = make_registered("my-agent", "websocket", description={**DESCRIPTION, "url": "wss://moved.example"})
    with pytest.raises(InvalidInput, match="the address of the provider"):
        Accounts(lambda _: None, find_registered_provider=make_lookup(moved)).find_account(agent)
    renamed = make_registered("my-agent", "websocket", description={**DESCRIPTION, "name": "Renamed"})
    found = Accounts(lambda _: None, find_registered_provider=make_lookup(renamed)).find_account(agent)
    assert found is not None
    assert found.key == KEY


AGENT_URLS = {
    "wss://{model}/talk": ("agent.example", ["evil.example", "agent.example@evil.example", "agent.example:8443"]),
    "wss://{model}.agents.example/talk": ("good", ["evil.example/", "evil", "evil.example?"]),
    "wss://agents.example{model}": (":443/talk", [".evil.example/talk", "@evil.example", ":8443/talk"]),
    "{base_url}{model}": ("/talk", [".evil.example/talk", "@evil.example/"]),
    "{model}": ("wss://agent.example/talk", ["wss://evil.example/talk", "ws://agent.example/talk", "evil", ""]),
}


@pytest.mark.parametrize("url", AGENT_URLS)
def test_no_model_name_sends_the_key_of_a_described_agent_to_another_host(url: str) -> None:
    good, others = AGENT_URLS[url]
    description = {**DESCRIPTION, "url": url}
    agent = make_registered("agent", "websocket", model=good, description=description)
    assert find_account("agent", make_lookup(agent)).key == KEY
    assert find_account(f"agent:{good}", make_lookup(agent)).key == KEY
    for other in others:
        target = replace(resolve_target("agent", find_registered_provider=make_lookup(agent)), model=other)
        found = Accounts(lambda _: None, find_registered_provider=make_lookup(agent)).find_account(target)
        assert found is not None
        assert found.key is None, f"the key would go to {other}"
    unsure = make_registered("agent", "websocket", description=description)
    assert find_account(f"agent:{good}", make_lookup(unsure)).key is None, "nobody has said where it may go"
    with pytest.raises(InvalidInput, match=r"\{model\} would choose the host .* set arguments.model"):
        check_provider_registration("agent", "websocket", description=description, has_key=True)
    assert (
        check_provider_registration("agent", "websocket", description=description, model=good, has_key=True).model
        == good
    )
    assert check_provider_registration("agent", "websocket", description=description).model is None, (
        "without a key, anyone may be called"
    )


@pytest.mark.parametrize("url", ["wss://agent.example/{model}", "{base_url}/{model}", "wss://agent.example?a={model}"])
def test_a_model_in_the_url_path_may_be_anything(url: str) -> None:
    agent = check_provider_registration("agent", "websocket", description={**DESCRIPTION, "url": url}, has_key=True)
    registered = make_lookup(make_registered("agent", "websocket", description=agent.description))
    for model in ("sales", "//evil.example/", "@evil.example", "..", "https://evil.example"):
        assert find_account(f"agent:{model}", registered).key == KEY


@pytest.mark.parametrize(
    "hole", ["{parameters.host|agent.example}", "{voice|agent.example}", "{language}", "{call_id}"]
)
def test_a_placeholder_may_not_decide_the_host_of_an_agent_with_a_key(hole: str) -> None:
    description = {**DESCRIPTION, "url": f"wss://{hole}/talk"}
    with pytest.raises(InvalidInput, match="would choose the host in the agent's url"):
        check_provider_registration("agent", "websocket", description=description, model="m", has_key=True)
    agent = make_registered("agent", "websocket", model="m", description=description)
    assert find_account("agent", make_lookup(agent)).key is None


@pytest.mark.parametrize(
    ("kind", "base_url", "models"),
    [
        ("compatible", "https://models.example/v1", ["llama", "https://evil.example/v1#m", "@evil.example"]),
        ("cascade", "https://models.example/v1", ["stt=a,chat=b,tts=c"]),
        *((kind, None, ["m", "//evil.example", "@evil.example", "https://evil.example"]) for kind in (
            "openai", "openai-responses", "anthropic", "google", "openai-realtime", "gemini-live", "elevenlabs",
            "deepgram", "vapi",
        )),
    ],
)  # fmt: skip
def test_every_model_of_a_registered_server_is_called_there(kind: str, base_url: str | None, models: list[str]) -> None:
    registered = make_lookup(make_registered("mine", kind, base_url=base_url))
    vendors = VARIABLES_BY_KIND[kind].default_base_url
    for model in models:
        found = find_account(f"mine:{model}", registered)
        assert (found.key, found.base_url) == (KEY, base_url or vendors)


def test_a_cascade_part_at_another_server_does_not_get_the_registered_key() -> None:
    registered = make_lookup(make_registered("mine", "cascade", base_url="https://models.example/v1"))
    target = resolve_target("mine:stt=a,chat=http://evil.example/v1#b,tts=c", find_registered_provider=registered)
    agent = open_provider(target, Accounts(lambda _: None, find_registered_provider=registered))
    assert isinstance(agent, Cascade)
    assert KEY not in repr(agent.text_model)
    assert isinstance(agent.text_model, _FixedModelProvider)
    assert isinstance(agent.text_model.provider, OpenAI)
    account = agent.text_model.provider._http.account
    assert (account.base_url, account.key) == ("http://evil.example/v1", None)


@pytest.mark.parametrize("kind", ["twilio", "pipecat"])
def test_an_agent_addressed_by_its_model_gets_the_key_at_that_address_only(kind: str) -> None:
    bot = make_lookup(make_registered("my-bot", kind, model="wss://bot.example/ws"))
    assert find_account("my-bot", bot).key == KEY
    for other in ("wss://elsewhere.example/ws", "ws://bot.example/ws", "wss://bot.example/other"):
        assert find_account(f"my-bot:{other}", bot).key is None


# ── For others ──


def test_keys_from_the_environment_are_never_sent_to_addresses_typed_by_remote_users() -> None:
    variables = {
        "COMPATIBLE_API_KEY": "c" * 20,
        "COMPATIBLE_BASE_URL": "http://ours.example/v1/",
        "PIPECAT_API_KEY": "p" * 20,
    }
    ours = Accounts(variables.get)
    theirs = Accounts(variables.get, is_for_other_users=True)

    def find_key(accounts: Accounts, typed: str) -> str | None:
        found = accounts.find_account(resolve_target(typed))
        assert found is not None
        return found.key

    assert find_key(ours, "http://any.example/v1#m") == "c" * 20
    assert find_key(theirs, "http://any.example/v1#m") is None
    assert find_key(theirs, "http://ours.example/v1#m") == "c" * 20
    assert find_key(theirs, "compatible:m") == "c" * 20
    assert find_key(ours, "pipecat:wss://any.example/ws") == "p" * 20
    assert find_key(theirs, "pipecat:wss://any.example/ws") is None
    cascade = resolve_target(
        "cascade:stt=http://any.example/v1#a,chat=http://any.example/v1#b,tts=http://any.example/v1#c"
    )
    assert [each.find_account(cascade).part_server_key for each in (ours, theirs)] == ["c" * 20, None]  # type: ignore[union-attr]


@pytest.mark.parametrize("typed", ["python:os:getcwd", "command:mine", "websocket:/etc/passwd", "websocket:agent.yaml"])
def test_remote_users_cannot_name_providers_that_run_code_or_read_files(typed: str) -> None:
    with pytest.raises(InvalidInput, match="which only the command line allows"):
        resolve_target(typed, is_for_other_users=True)


def test_a_recorded_function_is_not_opened_for_remote_users() -> None:
    with pytest.raises(InvalidInput, match="runs code on this machine"):
        open_provider(Target("python:os:getcwd", "python", "os:getcwd"), Accounts(lambda _: None, may_run_code=False))


# ── What may be registered ──


def test_every_kind_that_runs_no_code_can_be_registered() -> None:
    assert {"python", "command"}.isdisjoint(REGISTRABLE_KINDS)
    for kind in REGISTRABLE_KINDS:
        given: dict[str, Any] = {"base_url": "https://h/v1"} if kind == "compatible" else {}
        given |= {"description": DESCRIPTION} if kind == "websocket" else {}
        assert check_provider_registration("mine", kind, **given).kind == kind


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("mine", "python"), "run code, so they exist only in the local configuration"),
        (("mine", "command"), "run code"),
        (("mine", "opnai"), 'unknown kind "opnai"; did you mean "openai"'),
        (("Mine", "openai"), "an id is 1 to 64 lowercase letters"),
        (("a:b", "openai"), "an id is"),
        (("", "openai"), "an id is"),
        (("x" * 65, "openai"), "an id is"),
        (("anthropic", "openai"), "is reserved as a name"),
        (("python", "openai"), "is reserved as a name"),
        (("gpt-5", "openai"), "is reserved as a name"),
        (("opus", "anthropic"), "is reserved as a name"),
        (("http", "compatible"), "is reserved as a name"),
        (("websocket", "websocket"), "is reserved as a name"),
        (("fake", "fake"), "is reserved as a name"),
        (("mine", "compatible"), "needs a baseUrl"),
        (("mine", "websocket"), "needs its description"),
    ],
)
def test_unregistrable_kinds_are_refused_with_a_reason(given: tuple[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_provider_registration(*given)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"base_url": "ftp://h/v1"}, 'begins with "ftp"'),
        ({"base_url": "h"}, "is not a URL"),
        ({"base_url": "http://a b/"}, "is not a server URL"),
        ({"base_url": "http://user:word@h/v1"}, "contains a user, a password or a query"),
        ({"base_url": "http://h/v1?key=abc"}, "contains a user, a password or a query"),
        ({"base_url": "http://h:99999/v1"}, "is not a URL"),
        ({"description": {}}, "takes no description"),
        ({"model": " "}, "a model's name has"),
    ],
)
def test_registered_fields_must_be_valid(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_provider_registration("mine", "openai", **more)


def test_offline_kinds_take_no_key_and_kinds_with_a_typed_address_need_one_for_their_key() -> None:
    with pytest.raises(InvalidInput, match="take neither an address nor a key"):
        check_provider_registration("mine", "fake", has_key=True)
    with pytest.raises(InvalidInput, match=r"set arguments\.model"):
        check_provider_registration("mine", "twilio", has_key=True)
    with pytest.raises(InvalidInput, match="is not an option of a cascade"):
        check_provider_registration("mine", "cascade", model="nonsense")
