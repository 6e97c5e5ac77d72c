"""`/api/providers`: registered by administrators, used by everyone, tested with real requests; keys are never returned."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pramana.app.providers import ProviderView, make_server_reach
from pramana.bench import run_sync
from pramana.errors import InvalidInput
from pramana.loopback.script import Script
from pramana.loopback.voice import VoiceLoopback
from pramana.planning import create_run
from pramana.request import Limits, RunRequest, Selection
from pramana.run.accounts import ProviderAccess
from pramana.show.api.envelope import make_documentation_model
from pramana.show.api.providers import DescriptionCheckShape
from pramana.show.cli import pramana

from ...loopback.openai import OpenAIWire
from ...loopback.pipecat import PipecatAgent
from ...loopback.server import Fault, Loopback
from .served import Client, serve

KEY = "sk-loopback-0123456789abcdef"
MINE: dict[str, Any] = {"id": "my-vllm", "kind": "compatible", "baseUrl": "https://models.example/v1", "apiKey": KEY}
AGENT = (Path(__file__).parents[3] / "src" / "pramana" / "agents" / "pipecat.yaml").read_text(encoding="utf-8")


@contextmanager
def run_in_thread(make: Callable[[], Any]) -> Iterator[Any]:
    """Run a loopback server in a separate thread, as a third party's server would be."""
    made: list[Any] = []
    ready, ended, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def work() -> None:
        async with make() as server:
            made.append(server)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield made[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(20)
        loop.close()


@pytest.fixture
def openai() -> Iterator[Loopback]:
    with run_in_thread(lambda: Loopback(OpenAIWire(key=KEY))) as found:
        yield found


def test_a_provider_is_registered_read_changed_and_deleted(client_per_store: Client) -> None:
    made = client_per_store.post("/api/providers", MINE)
    assert made.status == 201
    make_documentation_model(ProviderView).model_validate(made.data)
    said = {name: made.data[name] for name in ("id", "kind", "baseUrl", "arguments", "keySet")}
    assert said == {
        "id": "my-vllm",
        "kind": "compatible",
        "baseUrl": "https://models.example/v1",
        "arguments": {"model": None, "description": None},
        "keySet": True,
    }
    assert (
        client_per_store.get("/api/providers").data
        == [made.data]
        == [client_per_store.get("/api/providers/my-vllm").data]
    )
    changed = client_per_store.patch("/api/providers/my-vllm", {"arguments": {"model": "llama"}})
    assert (changed.data["arguments"]["model"], changed.data["keySet"]) == ("llama", True)
    again = client_per_store.post("/api/providers", MINE)
    assert (again.status, again.json["code"]) == (409, "already_exists")
    assert client_per_store.delete("/api/providers/my-vllm").data["id"] == "my-vllm"
    for found in (client_per_store.get("/api/providers/my-vllm"), client_per_store.delete("/api/providers/my-vllm")):
        assert (found.status, found.json["code"]) == (404, "not_found")
    assert client_per_store.patch("/api/providers/my-vllm", {"apiKey": None}).status == 404
    assert client_per_store.get("/api/providers").data == []


def test_a_key_is_write_only(tmp_path: Path, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    answers = [
        client.post("/api/providers", MINE),
        client.post("/api/providers", {**MINE, "id": "Wrong"}),
        client.post("/api/providers", {**MINE, "id": "second", "apiKey": [KEY]}),
        client.post("/api/providers", {**MINE, "id": "third", "apiKey": f"{KEY}\n"}),
        client.patch("/api/providers/my-vllm", {"apiKey": KEY}),
        client.patch("/api/providers/my-vllm", {"apiKey": KEY, "kind": "openai"}),
        client.post("/api/providers/my-vllm/test"),
        client.get("/api/providers"),
        client.get("/openapi.json"),
        client.get("/api/models"),
    ]
    assert [each.status for each in answers] == [201, 400, 400, 400, 200, 400, 503, 200, 200, 200]
    assert not [each for each in answers if KEY.encode() in each.body]
    assert KEY.encode() not in b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({**MINE, "kind": "python"}, "run code, so they exist only in the local configuration"),
        ({**MINE, "kind": "command"}, "run code"),
        ({**MINE, "kind": "opena"}, 'unknown kind "opena"; did you mean "openai"'),
        ({**MINE, "id": "openai"}, "is reserved as a name"),
        ({**MINE, "baseUrl": "http://me:word@models.example"}, "leave them out and send the key as apiKey"),
        ({**MINE, "baseUrl": None}, "needs a baseUrl"),
        ({**MINE, "command": ["ls"]}, "command: "),
        ({**MINE, "arguments": {"argv": ["ls"]}}, "arguments.argv: "),
        ({**MINE, "arguments": {"description": AGENT}}, "takes no description"),
        ({**MINE, "kind": "websocket", "arguments": {"description": "name: [x"}}, "description:1:"),
        ({**MINE, "kind": "websocket", "arguments": {"description": {"name": "x"}}}, "uplink is required"),
        ({"kind": "openai"}, "id: "),
        ([], "the request is not valid"),
    ],
)  # fmt: skip
def test_an_invalid_provider_is_refused_with_the_reason(client: Client, body: Any, message: str) -> None:
    found = client.post("/api/providers", body)
    assert (found.status, found.json["code"]) == (400, "invalid_input")
    assert message in found.error
    assert client.get("/api/providers").data == []


def test_only_administrators_change_providers_and_no_role_reads_keys(secure_client: Client) -> None:
    admin, editor, viewer = map(secure_client.with_token, ("admin", "editor", "viewer"))
    for who in (secure_client, viewer, editor):
        assert who.post("/api/providers", MINE).status in (401, 403)
    assert admin.post("/api/providers", MINE).status == 201
    for who in (viewer, editor):
        assert who.patch("/api/providers/my-vllm", {"apiKey": "x"}).status == 403
        assert who.delete("/api/providers/my-vllm").status == 403
        assert who.post("/api/providers/rotate").status == 403
        assert who.get("/api/providers/my-vllm").data["keySet"] is True
    assert viewer.post("/api/providers/my-vllm/test").status == 403
    assert secure_client.get("/api/providers").status == 401


@pytest.mark.parametrize(
    "change", [{"baseUrl": "https://elsewhere.example/v1"}, {"base_url": "http://models.example/v1"}]
)
def test_changing_the_base_url_requires_the_key_again(client: Client, change: dict[str, Any]) -> None:
    client.post("/api/providers", MINE)
    refused = client.patch("/api/providers/my-vllm", change)
    assert (refused.status, "a key is only sent to the address that it was set for" in refused.error) == (400, True)
    assert client.get("/api/providers/my-vllm").data["baseUrl"] == MINE["baseUrl"]
    assert client.patch("/api/providers/my-vllm", {**change, "apiKey": None}).data["keySet"] is False
    assert client.patch("/api/providers/my-vllm", {"baseUrl": MINE["baseUrl"]}).status == 200


@pytest.mark.parametrize("url", ["{model}", "wss://{model}/talk"])
def test_a_key_is_not_sent_to_a_host_named_by_the_model(client: Client, url: str) -> None:
    said = {"description": AGENT.replace('url: "{model}"', f'url: "{url}"')}
    whole = "wss://{}/talk" if url == "{model}" else "{}"
    agent = {"id": "mine", "kind": "websocket", "apiKey": KEY, "arguments": said}
    assert "set arguments.model" in client.post("/api/providers", agent).error
    made = client.post("/api/providers", {**agent, "arguments": {**said, "model": whole.format("agent.example")}})
    assert made.data["keySet"] is True
    moved = {"arguments": {**said, "model": whole.format("evil.example")}}
    assert "a key is only sent to the address" in client.patch("/api/providers/mine", moved).error
    assert "set arguments.model" in client.patch("/api/providers/mine", {"arguments": said}).error
    assert client.patch("/api/providers/mine", {**moved, "apiKey": KEY}).data["keySet"] is True


def test_an_editor_cannot_redirect_the_key_of_an_agent_to_another_host(secure_client: Client) -> None:
    admin, editor = secure_client.with_token("admin"), secure_client.with_token("editor")
    admin.patch("/api/settings", {"allowPrivateAddresses": True})
    said = {"description": AGENT, "model": "ws://agent.example/"}
    assert "{model}" in AGENT
    agent = {"id": "mine", "kind": "websocket", "apiKey": KEY, "arguments": said}
    assert admin.post("/api/providers", agent).status == 201
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def listen() -> None:
            """Close every connection at once; unanswered, a client would wait for its timeout."""
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        seen.append(connection.recv(65_536))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        theirs = f"ws://127.0.0.1:{listening.getsockname()[1]}/"
        assert editor.post("/api/providers/mine/test", {"model": theirs}).status == 503
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(20)
    assert b"Upgrade: websocket" in seen[0]
    assert not any(KEY.encode() in each for each in seen)


def test_an_empty_change_is_refused(client: Client) -> None:
    client.post("/api/providers", MINE)
    assert "nothing to change" in client.patch("/api/providers/my-vllm", {}).error


def test_an_invalid_field_is_reported_with_its_path(client: Client) -> None:
    agent = {"id": "mine", "kind": "websocket", "arguments": {"description": "name: x"}}
    for body, path in (
        ({**MINE, "id": "Wrong"}, "id"),
        ({**MINE, "kind": "opena"}, "kind"),
        ({**MINE, "baseUrl": "ftp://models.example"}, "baseUrl"),
        ({**MINE, "baseUrl": "http://me:word@models.example"}, "baseUrl"),
        ({**MINE, "apiKey": "a\nb"}, "apiKey"),
        ({"id": "bot", "kind": "pipecat", "apiKey": KEY}, "arguments.model"),
        ({"id": "my-cascade", "kind": "cascade", "arguments": {"model": "x"}}, "arguments.model"),
        ({**agent, "kind": "openai", "id": "my-openai", "arguments": {"description": AGENT}}, "arguments.description"),
    ):
        assert client.post("/api/providers", body).json["details"][0]["path"] == path
    said = client.post("/api/providers", agent).json["details"][0]
    assert (said["file"], said["line"]) == ("description", 1)


def test_a_description_can_be_validated_without_being_stored(secure_client: Client) -> None:
    viewer = secure_client.with_token("viewer")
    good = viewer.post("/api/providers/validate", {"description": AGENT})
    DescriptionCheckShape.model_validate(good.data)
    assert good.data == {"valid": True, "problems": []}
    found = viewer.post("/api/providers/validate", {"description": AGENT.replace("greets: true", "greats: true")}).data
    assert found["valid"] is False
    assert "greats" in found["problems"][0]["message"] + found["problems"][0]["path"]
    assert AGENT.splitlines()[found["problems"][0]["line"] - 1] == "greets: true"
    assert viewer.post("/api/providers/validate", {"description": "[" * 500}).data["valid"] is False
    assert viewer.get("/api/providers").data == []


def test_environment_keys_are_listed_without_their_values(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("DEEPGRAM_API_KEY", raising=False)
    found = client.get("/api/providers")
    told = {each["variable"]: each for each in found.json["meta"]["environment"]}
    assert told["OPENAI_API_KEY"] == {
        "variable": "OPENAI_API_KEY",
        "set": True,
        "kinds": ["openai", "openai-responses", "cascade", "openai-realtime"],
    }
    assert told["DEEPGRAM_API_KEY"]["set"] is False
    assert KEY.encode() not in found.body


# ── Testing ──


def test_testing_a_working_provider_lists_its_models(client: Client, openai: Loopback) -> None:
    client.post("/api/providers", {**MINE, "baseUrl": openai.url})
    found = client.post("/api/providers/my-vllm/test")
    assert found.status == 200
    assert found.data["status"] == "healthy"
    assert found.data["models"] == ["loopback-large", "loopback-small"]
    assert 0 < found.data["latencyMs"] < 20_000
    assert openai.requests[-1].headers["Authorization"] == f"Bearer {KEY}"


def test_testing_a_failing_provider_returns_reason_and_duration(client: Client, openai: Loopback) -> None:
    client.post("/api/providers", {**MINE, "baseUrl": openai.url, "apiKey": "sk-wrong-0123456789"})
    found = client.post("/api/providers/my-vllm/test", {})
    assert (found.status, found.json["code"]) == (503, "authentication_failed")
    assert "rejected the API key (401)" in found.error
    assert "set the key of the provider my-vllm" in found.error
    assert found.json["details"][0]["path"] == "my-vllm"
    assert found.json["latencyMs"] == found.json["details"][0]["latencyMs"] > 0
    client.post("/api/providers", {"id": "gone", "kind": "openai", "baseUrl": "http://127.0.0.1:9/v1", "apiKey": KEY})
    unreached = client.post("/api/providers/gone/test")
    assert (unreached.status, unreached.json["code"]) == (503, "unreachable")
    keyless = client.post("/api/providers", {"id": "keyless", "kind": "anthropic"})
    assert keyless.status == 201
    assert "needs an API key" in client.post("/api/providers/keyless/test").error
    assert client.post("/api/providers/nobody/test").status == 404


def test_testing_a_silent_provider_times_out(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pramana.app.providers.PROBE_TIMEOUT_S", 0.3)
    with run_in_thread(lambda: Loopback(OpenAIWire(), faults=[Fault("hang")])) as slow:
        client.post("/api/providers", {**MINE, "baseUrl": slow.url})
        found = client.post("/api/providers/my-vllm/test")
    assert (found.status, found.json["code"]) == (503, "unavailable")
    assert 250 < found.json["latencyMs"] < 5_000


def test_testing_a_voice_agent_calls_and_hangs_up(client: Client) -> None:
    with run_in_thread(lambda: VoiceLoopback(PipecatAgent, Script(), key=KEY)) as agent:
        url = agent.url.replace("http", "ws")
        bot = {"id": "my-bot", "kind": "pipecat", "apiKey": KEY, "arguments": {"model": url}}
        assert client.post("/api/providers", bot).status == 201
        assert client.post("/api/providers/my-bot/test").data["status"] == "healthy"
        description = AGENT.replace('url: "{model}"', f'url: "{url}"')
        mine = {"id": "mine", "kind": "websocket", "apiKey": KEY, "arguments": {"description": description}}
        made = client.post("/api/providers", mine)
        assert made.data["arguments"]["description"]["url"] == url
        assert client.post("/api/providers/mine/test").data["status"] == "healthy"
    gone = client.post("/api/providers/mine/test")
    assert (gone.status, gone.json["code"]) == (503, "unreachable")
    assert client.post("/api/providers", {"id": "eleven", "kind": "elevenlabs", "apiKey": KEY}).status == 201
    assert "testing a voice agent needs a model" in client.post("/api/providers/eleven/test").error


def test_testing_offline_providers_succeeds(client: Client) -> None:
    for kind in ("fake", "fake-voice"):
        client.post("/api/providers", {"id": f"my-{kind}", "kind": kind})
        assert client.post(f"/api/providers/my-{kind}/test").data["models"]


def test_a_public_server_tests_no_private_address_unless_allowed(sqlite_url: str, openai: Loopback) -> None:
    with serve(sqlite_url, host="0.0.0.0", server_account_needs_token=True) as found:  # noqa: S104 - only said, not done
        admin = found.with_token("admin")
        admin.post("/api/providers", {**MINE, "baseUrl": openai.url})
        refused = admin.post("/api/providers/my-vllm/test")
        assert (refused.status, refused.json["code"]) == (503, "address_refused")
        assert "allow them in the workbench under Settings, Server, or with allowPrivateAddresses" in refused.error
        assert openai.count == 0
        admin.patch("/api/settings", {"allowPrivateAddresses": True})
        assert admin.post("/api/providers/my-vllm/test").status == 200
        assert openai.count == 1


# ── Rotation ──


def test_keys_are_re_encrypted_with_a_new_secret_key(
    client: Client, monkeypatch: pytest.MonkeyPatch, openai: Loopback
) -> None:
    old, new = "A" * 43 + "=", "B" * 42 + "A="
    monkeypatch.setenv("PRAMANA_SECRET_KEY", old)
    client.post("/api/providers", {**MINE, "baseUrl": openai.url})
    monkeypatch.setenv("PRAMANA_SECRET_KEY", new)
    lost = client.post("/api/providers/my-vllm/test")
    assert (lost.status, lost.json["code"]) == (503, "locked")
    assert "encrypted with another key than the one in PRAMANA_SECRET_KEY" in lost.error
    assert client.post("/api/providers/rotate").status == 503
    monkeypatch.setenv("PRAMANA_SECRET_KEY", f"{new},{old}")
    assert client.post("/api/providers/rotate").data == {"rotated": 1}
    monkeypatch.setenv("PRAMANA_SECRET_KEY", new)
    assert client.post("/api/providers/my-vllm/test").status == 200


# ── Runs ──


SCENARIO = {
    "id": "say-it",
    "name": "Say it",
    "type": "information-retrieval",
    "prompt": "Say it.",
    "expectedOutcome": "It is said.",
    "assert": {"type": "contains", "ideal": "so"},
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    case = {
        "id": "factual-001",
        "category": "factual",
        "input": "Say it.",
        "ideal": "so",
        "assertion": {"type": "contains"},
        "metadata": {"difficulty": "easy", "tokens_est": 8},
    }
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(case), encoding="utf-8")
    return path


def test_a_run_uses_a_registered_provider_and_stores_no_key(client: Client, openai: Loopback, tmp_path: Path) -> None:
    assert client.store
    assert client.serving
    client.post("/api/providers", {**MINE, "baseUrl": openai.url})
    reach = make_server_reach(client.serving)
    client.post("/api/scenarios", SCENARIO)
    run = create_run(client.store, RunRequest(models=("my-vllm:llama",), scenarios=Selection()), reach)
    ended = run_sync(client.store, run, Limits(), reach=reach)
    assert (ended.status, ended.stored) == ("finished", 1)
    (_, result), *_ = client.store.results.iterate(run.id)
    assert result.checks[0].outcome.value == "passed"
    assert openai.requests[-1].headers["Authorization"] == f"Bearer {KEY}"
    assert openai.requests[-1].body["model"] == "llama"
    client.delete("/api/providers/my-vllm")
    assert client.store.runs.read(run.id).plan.targets[0].arguments == {"account": "my-vllm", "base_url": openai.url}
    assert KEY.encode() not in b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())


def test_the_command_line_uses_providers_registered_in_its_store(
    client: Client, openai: Loopback, tmp_path: Path, suite: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post("/api/providers", {**MINE, "baseUrl": openai.url, "arguments": {"model": "loopback-small"}})
    monkeypatch.setenv("PRAMANA_DATABASE_URL", sqlite_url)
    said = CliRunner().invoke(pramana, ["run", str(suite), "--model", "my-vllm", "--quiet"])
    assert (said.exit_code, openai.requests[-1].body["model"]) == (0, "loopback-small"), said.output
    listed = CliRunner().invoke(pramana, ["models", "--json"])
    assert json.loads(listed.output)["my-vllm"] == {"models": ["loopback-large", "loopback-small"], "problem": None}
    assert KEY not in said.output + listed.output
    kept = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert KEY.encode() not in kept


def test_resuming_a_run_requires_its_provider_at_the_same_address(
    client: Client, openai: Loopback, suite: Path
) -> None:
    assert client.store
    client.post("/api/providers", {**MINE, "baseUrl": openai.url})
    run = create_run(client.store, RunRequest(paths=(suite,), models=("my-vllm:llama",)))
    client.patch("/api/providers/my-vllm", {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": KEY})
    with pytest.raises(InvalidInput, match="has changed since the run started"):
        run_sync(client.store, run, Limits())
    client.patch("/api/providers/my-vllm", {"baseUrl": openai.url, "apiKey": "sk-wrong-0123456789"})
    run = run_sync(
        client.store, create_run(client.store, RunRequest(paths=(suite,), models=("my-vllm:llama",))), Limits()
    )
    assert (run.status, "rejected the API key" in str(run.reason)) == ("stopped", True)
    client.patch("/api/providers/my-vllm", {"apiKey": KEY})
    assert run_sync(client.store, run, Limits()).status == "finished"


@pytest.mark.parametrize("typed", ["python:os:getcwd", "command:mine", "websocket:/etc/hostname"])
def test_a_server_stores_no_run_that_would_run_local_code(client: Client, typed: str) -> None:
    assert client.store
    assert client.serving
    for given in ({"models": (typed,)}, {"models": ("fake",), "judge": typed}, {"models": ("fake",), "stt": typed}):
        with pytest.raises(InvalidInput, match="which only the command line allows"):
            create_run(client.store, RunRequest(tier="cheap", **given), make_server_reach(client.serving))
    assert client.store.runs.read_page()[0] == []
    assert make_server_reach(client.serving).is_for_other_users
    assert ProviderAccess().is_for_other_users is False
