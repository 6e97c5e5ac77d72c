"""The reply cache: the same question costs nothing, any other is asked."""

from dataclasses import replace
from pathlib import Path

import pytest

from pramana.model import Reply, Request, Target, Turn, Usage, raw_json
from pramana.run.cache import FileCache

TARGET = Target("fake:x", "fake", "x", {"seed": 1})
REQUEST = Request("x", (Turn("user", "hi \ud800"),), {"temperature": 0})
WHERE = "http://127.0.0.1/v1"
REPLY = Reply(
    "a \x00 \ud800", Usage(1, None, 3), "m", "f", "stop", 0.1, 0.2, raw_json({"a": [1, None]}), ("seed",), 0.5
)


def test_what_was_answered_comes_back_marked_and_free(tmp_path: Path) -> None:
    cache = FileCache(tmp_path)
    assert cache.get(TARGET, WHERE, REQUEST) is None
    cache.put(TARGET, WHERE, REQUEST, REPLY)
    assert cache.get(TARGET, WHERE, REQUEST) == replace(REPLY, cached=True, cost_usd=0.0)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize(
    ("target", "request_"),
    [
        (replace(TARGET, provider="other"), REQUEST),
        (replace(TARGET, arguments={"seed": 2}), REQUEST),
        (TARGET, replace(REQUEST, model="y")),
        (TARGET, replace(REQUEST, turns=(Turn("system", "hi \ud800"),))),
        (TARGET, replace(REQUEST, parameters={"temperature": 1})),
    ],
)
def test_another_question_is_asked(tmp_path: Path, target: Target, request_: Request) -> None:
    cache = FileCache(tmp_path)
    cache.put(TARGET, WHERE, REQUEST, REPLY)
    assert cache.get(target, WHERE, request_) is None
    assert cache.get(replace(TARGET, typed="another spelling"), WHERE, replace(REQUEST, purpose="judge")) is not None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"text": 5}'])
def test_a_broken_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    cache = FileCache(tmp_path)
    cache.put(TARGET, WHERE, REQUEST, REPLY)
    next(path for path in tmp_path.rglob("*") if path.is_file()).write_bytes(content)
    assert cache.get(TARGET, WHERE, REQUEST) is None
