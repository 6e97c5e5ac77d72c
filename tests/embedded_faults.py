"""Embedded models that misbehave: a language model that loops, is silent or never stops, speech recognition that errs.

The models' output differs from one processor to another, so tests must hold for any output. A fault is installed in
this process (`use_fault`), in a server that a test starts (`fault_environment`), or for a whole session:
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
    """Stands in for llama.cpp: streams the same pieces as its server does, and stops when the callback returns true."""

    def __init__(self, fault: Fault, seconds_a_word: float = 0.0) -> None:
        self._fault, self._seconds = fault, seconds_a_word

    def handle_chat_completions(self, body: Mapping[str, Any], take: Callable[[Mapping[str, Any]], bool]) -> None:
        """Stream one reply; only `long` exceeds its token limit."""
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


def make_loader(server: FaultyServer) -> Callable[[Any], FaultyServer]:
    """Return a replacement for `Engine._load`, which also fits an engine that has never loaded its model."""

    def load(engine: Any) -> FaultyServer:
        engine.info = engine.info or EngineInfo("faulty", "0", "none", "sha256:0", (), 1)
        return server

    return load


@contextmanager
def use_fault(fault: Fault) -> Iterator[None]:
    """Install a fault in this process within a block."""
    from pramana.embedded import ears, language

    if fault in ("wrong-words", "deaf"):
        heard = WRONG_WORDS if fault == "wrong-words" else ""
        with patch.object(ears.WhisperModel, "transcribe", lambda _self, _samples: heard):
            yield
    else:
        server = FaultyServer(fault)
        with patch.object(language.Engine, "_load", make_loader(server)):
            yield


def install_fault(fault: str) -> None:
    """Install a fault until this process ends."""
    if fault not in FAULTS:
        raise ValueError(f"{VARIABLE} is one of {', '.join(FAULTS)}, not {fault!r}")
    block = use_fault(fault)
    block.__enter__()
    _blocks.append(block)  # an unreferenced generator is closed, which would end its block


@contextmanager
def without_faults() -> Iterator[None]:
    """Suspend any fault within a block, for tests of the real engines of the embedded models."""
    with patch.dict(os.environ):  # noqa: TID251 - children inherit it
        fault = os.environ.pop(VARIABLE, None)  # noqa: TID251
        while _blocks:
            _blocks.pop().__exit__(None, None, None)
        try:
            yield
        finally:
            if fault:
                install_fault(fault)


def fault_environment(fault: Fault) -> dict[str, str]:
    """Return environment variables that install a fault in a Python child process."""
    inherited = os.environ.get("PYTHONPATH")  # noqa: TID251 - what a child inherits
    return {VARIABLE: fault, "PYTHONPATH": os.pathsep.join(filter(None, [str(SITE), inherited]))}


# ── The option of pytest ──


def add_option(parser: pytest.Parser) -> None:
    """Add `--embedded-fault`."""
    parser.addoption(
        "--embedded-fault", choices=FAULTS, help="make the embedded models misbehave for the whole session"
    )


def configure(config: pytest.Config) -> None:
    """Install the fault of `--embedded-fault`, here and in every process that tests start.

    Workers of pytest-xdist install it themselves: one that inherited it would import `pramana` before pytest does.
    """
    starts_workers = config.getoption("numprocesses", default=None) and not hasattr(config, "workerinput")
    if (fault := config.getoption("--embedded-fault", default=None)) and not starts_workers:
        os.environ.update(fault_environment(fault))  # noqa: TID251 - children inherit it
        install_fault(fault)
