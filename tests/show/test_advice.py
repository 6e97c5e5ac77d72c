"""Commands, options and API routes that messages suggest exist; and each error is printed once."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import pramana as package
from pramana import settings
from pramana.errors import COMMAND_HINTS
from pramana.show.api.envelope import API_HINTS
from pramana.show.cli import pramana
from pramana.show.mcp import AGENT_HINTS
from pramana.store import open_store

from ..loopback.openai import OpenAIWire
from ..loopback.server import Fault, Loopback
from .api.served import serve
from .api.test_providers import run_in_thread
from .test_cli import pramana as typed

SOURCE = Path(package.__file__).parent
SUITE = (
    '{"id":"factual-001","category":"factual","input":"x","ideal":"y","assertion":{"type":"contains"},'
    '"metadata":{"difficulty":"easy","tokens_est":2}}'
)
ADVICE = re.compile(r"\bpramana ((?:[a-z]+|--[a-z-]+|store:\S*|[A-Z]+|[<>./\w-]+)(?: (?:[a-z]+|--[a-z-]+|[A-Z]+))*)")


def find_texts(path: Path) -> Iterator[str]:
    """Yield the string literals of a module, with X for each placeholder."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "X" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def find_suggested_commands() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for text in find_texts(path):
            for found in ADVICE.finditer(" ".join(text.replace("`", " ").split())):
                yield path.relative_to(SOURCE).as_posix(), found[1]


def find_command(words: list[str]) -> tuple[click.Command | None, list[str]]:
    """Return the command at the start of some words, and the remaining words."""
    context = click.Context(pramana)
    command: click.Command | None = pramana.get_command(context, words[0])
    rest = words[1:]
    while isinstance(command, click.Group) and rest and (inner := command.get_command(context, rest[0])):
        command, rest = inner, rest[1:]
    return command, rest


def test_every_command_suggested_in_a_message_exists_with_its_options() -> None:
    seen = 0
    for file, advice in find_suggested_commands():
        command, rest = find_command(advice.split())
        if command is None:
            continue  # a sentence about the program
        seen += 1
        options = {name for each in command.params for name in each.opts} | {"--help"}
        wrong = [each for each in rest if each.startswith("--") and each not in options]
        assert not wrong, f"{file}: pramana {advice}"
    assert seen > 60


@pytest.mark.parametrize("words", [*COMMAND_HINTS.values(), *AGENT_HINTS.values()])
def test_every_command_in_a_hint_exists(words: str) -> None:
    for found in re.finditer(r"\bpramana ([a-z].*)", words):
        command, rest = find_command(found[1].split())
        assert command is not None, words
        assert not isinstance(command, click.Group) or not rest or command.name == "models", words


def test_every_route_in_a_hint_exists(tmp_path: Path) -> None:
    with serve(f"sqlite:///{tmp_path / 'served.sqlite3'}") as client:
        described = client.get("/openapi.json").json["paths"]
    for words in API_HINTS.values():
        for method, route in re.findall(r"\b(GET|POST) (/api/\S+)", words):
            paths = [re.sub(r"\{\w+\}", "{}", each) for each, methods in described.items() if method.lower() in methods]
            assert route in paths, words


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_text(SUITE, encoding="utf-8")
    return path


def test_an_unknown_model_error_says_once_how_to_list_the_servers_models(suite: Path) -> None:
    with run_in_thread(lambda: Loopback(OpenAIWire(), faults=[Fault("unknown_model")])) as server:
        failed = typed("run", suite, "--model", f"{server.url}#nope", columns=200)
        store = open_store(settings.database_url())
        run = store.runs.find("latest").id
        store.close()
        again = typed("run", "--resume", run, columns=200)
        for done in (failed, again):
            said = " ".join((done.stdout + done.stderr).split())
            assert done.returncode == 3
            assert said.count("has no such model") == 1, said
            assert f"list the models on offer: pramana models {server.url}" in said


def test_a_log_lists_each_failure_once(suite: Path) -> None:
    done = typed("run", suite, "--model", "fake:echo")
    assert (done.stdout + done.stderr).count("factual-001: does not contain") == 1
