"""Embedded models that misbehave, for tests: a language model that loops, is silent or talks on, ears that mishear.

What the models say differs from one processor to another, so that tests must hold for anything they say. A fault is
installed in this process (`installed`), in a server that a test starts (`environment_of`), or for a whole session:
`pytest --embedded-fault=loop`. A fault replaces the runtimes only, not the program's own code around them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, get_args
from unittest.mock import patch

import pytest

from pramana import clock
from pramana.embedded.engines import EngineInfo

Fault = Literal["loop", "empty", "long", "wrong-words", "deaf"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
VARIABLE = "PRAMANA_TEST_EMBEDDED_FAULT"
SITE = Path(__file__).parent / "faulty_site"
"""Holds the `sitecustomize` that installs a fault in a Python process with this folder in its PYTHONPATH."""
LOOP = "The answer is: "
LONG_WORDS = 2_000
WRONG_WORDS = "Which can species allowed to jump over the others?"
_blocks: list[AbstractContextManager[None]] = []


class FaultyServer:
    """Stands in for llama.cpp: streams the same pieces as its server does, and stops when the callback says so."""

    def __init__(self, fault: Fault, seconds_a_word: float = 0.0) -> None:
        self._fault, self._seconds = fault, seconds_a_word

    def handle_chat_completions(self, body: Mapping[str, Any], take: Callable[[Mapping[str, Any]], bool]) -> None:
        """Stream one reply; only `long` goes on beyond the tokens it may use."""
        most: int = body["max_tokens"]
        pieces = {"loop": self._loop(most), "empty": [], "long": self._long()}[self._fault]
        count = 0
        for piece in pieces:
            count += 1
            if self._seconds:
                clock.sleep(self._seconds)
            if take({"choices": [{"delta": {"content": piece}}]}):
                return
        finish = "length" if count >= most else "stop"
        if not take({"choices": [{"delta": {}, "finish_reason": finish}]}):
            take({"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": count}})

    @staticmethod
    def _loop(most: int) -> list[str]:
        words = LOOP.split()
        return [f"{words[place % len(words)]} " for place in range(most)]

    @staticmethod
    def _long() -> list[str]:
        return [f"word{place}, " if place % 9 else f"word{place}. " for place in range(1, LONG_WORDS + 1)]


def loads(server: FaultyServer) -> Callable[[Any], FaultyServer]:
    """Return what takes the place of `Engine._load`, also in an engine that has never loaded its model."""

    def loaded(engine: Any) -> FaultyServer:
        engine.info = engine.info or EngineInfo("faulty", "0", "none", "sha256:0", (), 1)
        return server

    return loaded


@contextmanager
def installed(fault: Fault) -> Iterator[None]:
    """Install a fault in this process for the length of a block."""
    from pramana.embedded import ears, language

    if fault in ("wrong-words", "deaf"):
        heard = WRONG_WORDS if fault == "wrong-words" else ""
        with patch.object(ears.WhisperModel, "transcribe", lambda _self, _samples: heard):
            yield
    else:
        server = FaultyServer(fault)
        with patch.object(language.Engine, "_load", loads(server)):
            yield


def install(fault: str) -> None:
    """Install a fault for as long as this process lives."""
    if fault not in FAULTS:
        raise ValueError(f"{VARIABLE} is one of {', '.join(FAULTS)}, not {fault!r}")
    block = installed(fault)
    block.__enter__()
    _blocks.append(block)  # a generator that nobody holds is closed, and would end its block


@contextmanager
def lifted() -> Iterator[None]:
    """Let the embedded models be themselves for the length of a block: for tests that prove the models' own engines."""
    with patch.dict(os.environ):  # noqa: TID251 - children inherit it
        fault = os.environ.pop(VARIABLE, None)  # noqa: TID251
        while _blocks:
            _blocks.pop().__exit__(None, None, None)
        try:
            yield
        finally:
            if fault:
                install(fault)


def environment_of(fault: Fault) -> dict[str, str]:
    """Return the variables with which a Python process that is started has a fault."""
    inherited = os.environ.get("PYTHONPATH")  # noqa: TID251 - what a child inherits
    return {VARIABLE: fault, "PYTHONPATH": os.pathsep.join(filter(None, [str(SITE), inherited]))}


# ── The option of pytest ──


def add_option(parser: pytest.Parser) -> None:
    """Add `--embedded-fault`."""
    parser.addoption("--embedded-fault", choices=FAULTS, help="let the embedded models misbehave in the whole session")


def configure(config: pytest.Config) -> None:
    """Install the fault that was asked for, here and in every process that tests start.

    Workers of pytest-xdist install it themselves: one that inherited it would import `pramana` before pytest does.
    """
    starts_workers = config.getoption("numprocesses", default=None) and not hasattr(config, "workerinput")
    if (fault := config.getoption("--embedded-fault", default=None)) and not starts_workers:
        os.environ.update(environment_of(fault))  # noqa: TID251 - children inherit it
        install(fault)
