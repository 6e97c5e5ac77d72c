"""`pramana models`: what each provider that is configured now offers; only what one has said is kept, for a day."""

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
from pramana.providers.names import check_provider
from pramana.show.cli import pramana
from pramana.store import open_store

from ..virtual_time import VirtualClock

NAMES = ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "COMPATIBLE")


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        for end in ("API_KEY", "BASE_URL", "AUTH_TOKEN"):
            monkeypatch.delenv(f"{name}_{end}", raising=False)


@contextmanager
def serving(port: int) -> Iterator[None]:
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


def offers(*arguments: str) -> Any:
    result = CliRunner().invoke(pramana, ["models", "--json", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.output)


def test_a_key_set_afterwards_shows_at_once(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert offers() == {"local": {"models": ["SmolLM2-135M-Instruct"], "problem": None}}
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-loopback-0123456789")
    with serving(port):
        listed = offers()
    assert list(listed) == ["openai", "openai-responses", "local"]
    assert listed["openai"]["models"]
    assert "sk-loopback" not in (settings.data_folder() / "cache" / "models.json").read_text(encoding="utf-8")
    assert offers() == listed  # the server is gone: kept
    monkeypatch.delenv("OPENAI_API_KEY")
    assert list(offers()) == ["local"]  # whom one cannot ask any more is not offered


def test_a_failure_is_asked_about_again(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPATIBLE_BASE_URL", f"http://127.0.0.1:{port}/v1")
    assert "127.0.0.1" in offers()["compatible"]["problem"]
    with serving(port):
        good = offers()
        assert good["compatible"]["problem"] is None
        assert good["compatible"]["models"]
    assert offers() == good
    assert offers("--refresh")["compatible"]["problem"]
    assert offers()["compatible"]["problem"]  # what is known to be over is not shown as if it were not


def test_another_server_is_another_answer(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPATIBLE_BASE_URL", f"http://127.0.0.1:{port}/v1")
    with serving(port):
        assert offers()["compatible"]["models"]
        monkeypatch.setenv("COMPATIBLE_BASE_URL", f"http://127.0.0.1:{port}/v2")
        assert offers()["compatible"]["problem"]
    monkeypatch.setenv("COMPATIBLE_BASE_URL", f"http://127.0.0.1:{port}/v1")
    assert offers()["compatible"]["models"]


def test_what_was_said_holds_for_a_day(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPATIBLE_BASE_URL", f"http://127.0.0.1:{port}/v1")
    virtual = VirtualClock()
    with clock.use_clock(virtual):
        with serving(port):
            assert offers()["compatible"]["models"]
        virtual.advance(command.DAY_S - 1)
        assert offers()["compatible"]["models"]
        virtual.advance(1)
        assert offers()["compatible"]["problem"]


def test_a_provider_that_falls_over_is_a_problem_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fall_over(_: object) -> list[str]:
        raise RuntimeError("no idea")

    monkeypatch.setattr("pramana.providers.text.local.LocalProvider.models", fall_over)
    assert offers()["local"] == {"models": [], "problem": "the provider failed: RuntimeError: no idea"}


def test_commands_of_the_configuration_are_listed() -> None:
    home = settings.data_folder()
    home.mkdir(parents=True, exist_ok=True)
    text = '[commands.shout]\nargv = ["tr", "a-z", "A-Z"]\n[commands.echo]\nargv = ["cat"]\n'
    (home / "config.toml").write_text(text, encoding="utf-8")
    assert offers()["command"] == {"models": ["echo", "shout"], "problem": None}
    shown = CliRunner().invoke(pramana, ["models"]).stdout
    assert shown.endswith("command\n  echo\n  shout\n")
    (home / "config.toml").write_text("", encoding="utf-8")
    assert "command" not in offers()


@pytest.mark.parametrize("text", ["", "[]", '{"at": 1, "offers": {}}', '{"local": {"at": "x", "models": 5}}', "\x00"])
def test_a_cache_that_cannot_be_read_is_none(text: str) -> None:
    folder = settings.data_folder() / "cache"
    folder.mkdir(parents=True)
    (folder / "models.json").write_text(text, encoding="utf-8")
    assert list(offers()) == ["local"]


def test_providers_of_other_packages_are_listed_as_built_ins_are(extension: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(extension)}  # noqa: TID251 - a child gets what we have
    listing = [sys.executable, "-m", "pramana", "models", "--json"]
    for _ in range(2):  # asked, then kept
        done = subprocess.run(listing, capture_output=True, text=True, env=environment, check=True)
        listed = json.loads(done.stdout)
        assert listed["parrot"] == {"models": ["loud", "quiet"], "problem": None}
        assert "lacks the function open(target, account)" in listed["shapeless"]["problem"]


@pytest.mark.parametrize(
    "kept", ["[" * 100_000, '{"local": ' * 100_000, '{"local": {"at": 1' + "0" * 400 + ', "models": []}}', "{", "5"]
)
def test_a_cache_that_holds_anything_is_as_good_as_none(kept: str) -> None:
    path = settings.data_folder() / "cache" / "models.json"
    path.parent.mkdir(parents=True)
    path.write_text(kept, encoding="utf-8")
    assert offers()["local"]["models"] == ["SmolLM2-135M-Instruct"]


def typed(*arguments: str) -> Result:
    return CliRunner().invoke(pramana, ["models", *arguments], standalone_mode=False)


def test_a_server_is_asked_by_its_address_and_a_provider_by_its_name(port: int) -> None:
    url = f"http://127.0.0.1:{port}/v1"
    with serving(port):
        listed = typed(url)
        assert (listed.return_value, listed.stdout) == (0, f"{url}\n  loopback-large\n  loopback-small\n")
        assert listed.stderr == "", "it is about this server alone"
        assert offers(f"{url}/#nope", "fake") == {  # a model of it is as good a name
            url: {"models": ["loopback-large", "loopback-small"], "problem": None},
            "fake": {"models": ["echo", "fixed", "words"], "problem": None},
        }
        assert list(offers("list", url)) == [url]
    assert typed(url).return_value == 0, "kept for a day"
    refreshed = typed(url, "--refresh")
    assert refreshed.return_value == 3
    assert f"127.0.0.1:{port}" in refreshed.stdout


def test_a_registered_provider_is_listed_by_its_name(port: int) -> None:
    with closing(open_store(settings.database_url())) as store:
        store.providers.create(check_provider("my-vllm", "compatible", base_url=f"http://127.0.0.1:{port}/v1"))
    with serving(port):
        assert offers("my-vllm")["my-vllm"]["models"] == ["loopback-large", "loopback-small"]


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("openai", 3, "needs an API key; set OPENAI_API_KEY"),
        ("openai-realtime", 3, "does not list its models"),
        ("antropic", 2, 'unknown provider "antropic"; did you mean "anthropic"?'),
        ("pul", 2, 'did you mean "pull"?'),
        ("ftp://x", 3, ""),
    ],
)
def test_a_provider_that_cannot_be_listed_says_why(name: str, code: int, said: str) -> None:
    done = typed(name)
    assert said in done.output + str(done.exception or "")
    assert (done.return_value or getattr(done.exception, "exit_code", None)) == code
