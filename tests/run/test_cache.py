"""The reply cache: an identical request costs nothing, any other is sent."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pramana.model import Reply, Request, Target, ToolCall, Turn, Usage
from pramana.replies import encode_raw_response
from pramana.run.asking import ReplyCache

TARGET = Target("fake:x", "fake", "x", {"seed": 1})
REQUEST = Request("x", (Turn("user", "hi \ud800"),), {"temperature": 0})
WHERE = "http://127.0.0.1/v1"
REPLY = Reply(
    "a \x00 \ud800",
    Usage(1, None, 3),
    "m",
    "f",
    "stop",
    0.1,
    0.2,
    encode_raw_response({"a": [1, None]}),
    ("seed",),
    0.5,
    tool_calls=(ToolCall("get_weather", '{"city":', "call_1"), ToolCall("get_time")),
)


def test_a_cached_reply_is_marked_and_free(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path)
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
def test_a_different_request_is_not_cached(tmp_path: Path, target: Target, request_: Request) -> None:
    cache = ReplyCache(tmp_path)
    cache.put(TARGET, WHERE, REQUEST, REPLY)
    assert cache.get(target, WHERE, request_) is None
    assert cache.get(replace(TARGET, typed="another spelling"), WHERE, replace(REQUEST, purpose="judge")) is not None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"text": 5}', b"[" * 100_000, b'{"usage": []}'])
def test_a_broken_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    cache = ReplyCache(tmp_path)
    cache.put(TARGET, WHERE, REQUEST, REPLY)
    next(path for path in tmp_path.rglob("*") if path.is_file()).write_bytes(content)
    assert cache.get(TARGET, WHERE, REQUEST) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", 5),
        ("text", None),
        ("served_model", ["a"]),
        ("finish_reason", {}),
        ("fingerprint", 1),
        ("total_s", "1"),
        ("dropped", 5),
        ("dropped", [5]),
        ("raw", 5),
        ("usage", 3),
        ("vectors", [[1]]),
        ("tool_calls", [["name", 5]]),
        ("tool_calls", [3]),
        ("another", 1),
    ],
)
def test_a_file_with_wrong_types_is_ignored(tmp_path: Path, field: str, value: Any) -> None:
    cache = ReplyCache(tmp_path)
    cache.put(TARGET, WHERE, REQUEST, REPLY)
    path = next(path for path in tmp_path.rglob("*") if path.is_file())
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    known = cache.get(TARGET, WHERE, REQUEST)
    assert known == (replace(REPLY, cached=True, cost_usd=0.0) if field == "vectors" else None)


def test_invalid_token_counts_in_a_file_are_unknown(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path)
    cache.put(TARGET, WHERE, REQUEST, replace(REPLY, usage=Usage(-1, 2**63, 4)))
    known = cache.get(TARGET, WHERE, REQUEST)
    assert known is not None
    assert known.usage == Usage(None, None, 4)


def find_path(cache: ReplyCache) -> Path:
    return cache._path(TARGET, WHERE, REQUEST)


def test_a_folder_in_place_of_a_file_is_ignored(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path)
    find_path(cache).mkdir(parents=True)
    cache.put(TARGET, WHERE, REQUEST, REPLY)
    assert cache.get(TARGET, WHERE, REQUEST) is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_file_in_place_of_the_folder_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    cache = ReplyCache(tmp_path / "cache")
    cache.put(TARGET, WHERE, REQUEST, REPLY)
    assert cache.get(TARGET, WHERE, REQUEST) is None


@contextmanager
def simulate_full_disk() -> Iterator[None]:
    """Let no file of this process grow beyond a few bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_no_reply_and_leaves_no_partial_file(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path)
    with simulate_full_disk():
        cache.put(TARGET, WHERE, REQUEST, REPLY)
    assert cache.get(TARGET, WHERE, REQUEST) is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_replies_that_json_cannot_represent_are_not_cached(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path)
    for odd in (
        replace(REQUEST, parameters={"tools": object()}),
        replace(REQUEST, parameters={"tools": make_nested()}),
    ):
        cache.put(TARGET, WHERE, odd, REPLY)
        assert cache.get(TARGET, WHERE, odd) is None


def make_nested() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value
