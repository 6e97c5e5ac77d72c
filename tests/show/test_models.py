"""`pramana models`: the models of each configured provider; only successful lists are cached, for a day."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pramana import clock, settings
from pramana.app import models as command
from pramana.providers.names import check_provider_registration
from pramana.show.cli import pramana
from pramana.store import open_store

from ..virtual_time import VirtualClock

NAMES = ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "COMPATIBLE")


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        for end in ("API_KEY", "BASE_URL", "AUTH_TOKEN"):
            monkeypatch.delenv(f"{name}_{end}", raising=False)


@contextmanager
def run_server(port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.loopback", "openai", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        assert "http://" in process.stdout.readline()
        try:
            yield
        finally:
            process.terminate()


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def list_models(*arguments: str) -> Any:
    result = CliRunner().invoke(pramana, ["models", "--json", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.output)


def test_a_newly_set_key_takes_effect_at_once(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_models() == {"local": {"models": ["SmolLM2-135M-Instruct"], "problem": None}}
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-loopback-0123456789")
    with run_server(port):
        listed = list_models()
    assert list(listed) == ["openai", "openai-responses", "local"]
    assert listed["openai"]["models"]
    assert "sk-loopback" not in (settings.data_folder() / "cache" / "models.json").read_text(encoding="utf-8")
    assert list_models() == listed  # the server is down: cached
    monkeypatch.delenv("OPENAI_API_KEY")
    assert list(list_models()) == ["local"]  # a model that is no longer available is not listed


def test_a_failed_list_is_not_cached(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPATIBLE_BASE_URL", f"http://127.0.0.1:{port}/v1")
    assert "127.0.0.1" in list_models()["compatible"]["problem"]
    with run_server(port):
        good = list_models()
        assert good["compatible"]["problem"] is None
        assert good["compatible"]["models"]
    assert list_models() == good
    assert list_models("--refresh")["compatible"]["problem"]
    assert list_models()["compatible"]["problem"]  # an outdated list is not shown as current


def test_each_server_has_its_own_cached_list(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPATIBLE_BASE_URL", f"http://127.0.0.1:{port}/v1")
    with run_server(port):
        assert list_models()["compatible"]["models"]
        monkeypatch.setenv("COMPATIBLE_BASE_URL", f"http://127.0.0.1:{port}/v2")
        assert list_models()["compatible"]["problem"]
    monkeypatch.setenv("COMPATIBLE_BASE_URL", f"http://127.0.0.1:{port}/v1")
    assert list_models()["compatible"]["models"]


def test_a_model_list_is_cached_for_a_day(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPATIBLE_BASE_URL", f"http://127.0.0.1:{port}/v1")
    virtual = VirtualClock()
    with clock.use_clock(virtual):
        with run_server(port):
            assert list_models()["compatible"]["models"]
        virtual.advance(command.DAY_S - 1)
        assert list_models()["compatible"]["models"]
        virtual.advance(1)
        assert list_models()["compatible"]["problem"]


def test_a_crashing_provider_does_not_affect_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fall_over(_: object) -> list[str]:
        raise RuntimeError("no idea")

    monkeypatch.setattr("pramana.providers.text.local.LocalProvider.models", fall_over)
    assert list_models()["local"] == {"models": [], "problem": "the provider failed: RuntimeError: no idea"}


def test_configured_commands_are_listed() -> None:
    home = settings.data_folder()
    home.mkdir(parents=True, exist_ok=True)
    text = '[commands.shout]\nargv = ["tr", "a-z", "A-Z"]\n[commands.echo]\nargv = ["cat"]\n'
    (home / "config.toml").write_text(text, encoding="utf-8")
    assert list_models()["command"] == {"models": ["echo", "shout"], "problem": None}
    shown = CliRunner().invoke(pramana, ["models"]).stdout
    assert shown.endswith("command\n  echo\n  shout\n")
    (home / "config.toml").write_text("", encoding="utf-8")
    assert "command" not in list_models()


@pytest.mark.parametrize("text", ["", "[]", '{"at": 1, "offers": {}}', '{"local": {"at": "x", "models": 5}}', "\x00"])
def test_an_unreadable_cache_is_ignored(text: str) -> None:
    folder = settings.data_folder() / "cache"
    folder.mkdir(parents=True)
    (folder / "models.json").write_text(text, encoding="utf-8")
    assert list(list_models()) == ["local"]


def test_installed_providers_are_listed_like_built_in_ones(extension: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(extension)}  # noqa: TID251 - a child gets what we have
    listing = [sys.executable, "-m", "pramana", "models", "--json"]
    for _ in range(2):  # requested, then cached
        done = subprocess.run(listing, capture_output=True, text=True, env=environment, check=True)
        listed = json.loads(done.stdout)
        assert listed["parrot"] == {"models": ["loud", "quiet"], "problem": None}
        assert "lacks the function open(target, account)" in listed["shapeless"]["problem"]


@pytest.mark.parametrize(
    "kept", ["[" * 100_000, '{"local": ' * 100_000, '{"local": {"at": 1' + "0" * 400 + ', "models": []}}', "{", "5"]
)
def test_a_malformed_cache_is_ignored(kept: str) -> None:
    path = settings.data_folder() / "cache" / "models.json"
    path.parent.mkdir(parents=True)
    path.write_text(kept, encoding="utf-8")
    assert list_models()["local"]["models"] == ["SmolLM2-135M-Instruct"]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(pramana, ["models", *arguments], standalone_mode=False)


def test_models_can_be_listed_by_server_url_or_provider_name(port: int) -> None:
    url = f"http://127.0.0.1:{port}/v1"
    with run_server(port):
        listed = invoke(url)
        assert (listed.return_value, listed.stdout) == (0, f"{url}\n  loopback-large\n  loopback-small\n")
        assert listed.stderr == "", "it is about this server alone"
        assert list_models(f"{url}/#nope", "fake") == {  # a model of it is as good a name
            url: {"models": ["loopback-large", "loopback-small"], "problem": None},
            "fake": {"models": ["echo", "fixed", "words"], "problem": None},
        }
        assert list(list_models("list", url)) == [url]
    assert invoke(url).return_value == 0, "kept for a day"
    refreshed = invoke(url, "--refresh")
    assert refreshed.return_value == 3
    assert f"127.0.0.1:{port}" in refreshed.stdout


def test_a_registered_provider_is_listed_by_name(port: int) -> None:
    with closing(open_store(settings.database_url())) as store:
        store.providers.create(
            check_provider_registration("my-vllm", "compatible", base_url=f"http://127.0.0.1:{port}/v1")
        )
    with run_server(port):
        assert list_models("my-vllm")["my-vllm"]["models"] == ["loopback-large", "loopback-small"]


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("openai", 3, "needs an API key; set OPENAI_API_KEY"),
        ("openai-realtime", 3, "does not list its models"),
        ("antropic", 2, 'unknown provider "antropic"; did you mean "anthropic"?'),
        ("pul", 2, 'did you mean "pull"?'),
        ("ftp://x", 3, ""),
    ],
)
def test_a_provider_that_cannot_list_models_says_why(name: str, code: int, message: str) -> None:
    done = invoke(name)
    assert message in done.output + str(done.exception or "")
    assert (done.return_value or getattr(done.exception, "exit_code", None)) == code
