"""Calls with frames that no vendor sends: each ends in an orderly way and is measured."""

import asyncio
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from benchmarks import frames as benchmark
else:
    spec = spec_from_file_location("benchmarks.frames", Path(__file__).parents[2] / "benchmarks" / "frames.py")
    benchmark = module_from_spec(spec)
    spec.loader.exec_module(benchmark)

pytestmark = pytest.mark.usefixtures("virtual_time")
CALLS = 12


@pytest.mark.parametrize("wire", ["openai-realtime", "twilio"])
def test_calls_with_broken_frames_end_in_a_check_and_never_crash(wire: str) -> None:
    samples = asyncio.run(benchmark.record_messages(wire))
    ended = asyncio.run(benchmark.run_broken_calls(benchmark.wire_factory(wire), samples, CALLS))
    assert ended.total() == CALLS
    assert set(ended) <= {"passed", "errored"}
