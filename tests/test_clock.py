"""One clock for the whole program, and virtual time for tests."""

import ast
import asyncio
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import pramana
from pramana import clock

from .virtual_time import VirtualClock, real_time

FORBIDDEN = {
    "time.time",
    "time.monotonic",
    "time.perf_counter",
    "time.sleep",
    "datetime.now",
    "datetime.utcnow",
    "date.today",
}
NAMES = {each.partition(".")[2] for each in FORBIDDEN}


def test_every_module_uses_the_one_clock() -> None:
    source = Path(pramana.__file__).parent
    found = [
        f"{path.relative_to(source)}:{node.lineno}: {ast.unparse(node)}"
        for path in source.rglob("*.py")
        if path.name != "clock.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in NAMES and ast.unparse(node) in FORBIDDEN
    ]
    assert not found, "use pramana.clock instead:\n" + "\n".join(found)


def test_the_default_clock_is_the_system_clock() -> None:
    before = time.monotonic()
    clock.sleep(0.001)
    assert before < clock.monotonic() < time.monotonic()
    assert abs((clock.now() - datetime.now(UTC)).total_seconds()) < 5
    assert abs(clock.timestamp() - time.time()) < 5


def test_an_installed_clock_is_removed_after_its_block() -> None:
    virtual = VirtualClock()
    with clock.use_clock(virtual):
        virtual.advance(1000)
        assert clock.monotonic() == virtual.monotonic()
    assert clock.monotonic() < virtual.monotonic()


def test_an_hour_of_virtual_sleep_takes_no_time(virtual_time: VirtualClock) -> None:
    began, date, really = virtual_time.monotonic(), clock.now(), time.monotonic()

    async def main() -> tuple[float, float]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.get_running_loop().create_future()
        return clock.monotonic(), asyncio.get_running_loop().time()

    ended, on_the_loop = asyncio.run(main())
    assert ended - began == pytest.approx(3600, abs=1e-3)
    assert ended == on_the_loop
    assert (clock.now() - date).total_seconds() == pytest.approx(3600, abs=1e-3)
    assert time.monotonic() - really < 60


def test_virtual_time_stops_while_a_thread_works(virtual_time: VirtualClock) -> None:
    async def main() -> float:
        began = virtual_time.monotonic()
        async with asyncio.timeout(0.05):
            await asyncio.to_thread(time.sleep, 0.2)
        return virtual_time.monotonic() - began

    assert asyncio.run(main()) < 0.05


def test_virtual_time_moves_while_a_thread_waits_for_the_loop(virtual_time: VirtualClock) -> None:
    async def main() -> tuple[float, float]:
        loop, began = asyncio.get_running_loop(), virtual_time.monotonic()

        def work() -> float:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(3600), loop).result()
            waited = virtual_time.monotonic() - began
            time.sleep(0.2)
            return waited

        async with asyncio.timeout(3600.05):
            waited = await asyncio.to_thread(work)
        return waited, virtual_time.monotonic() - began

    assert asyncio.run(main()) == pytest.approx((3600, 3600), abs=1e-3)


def test_real_time_can_be_restored_within_a_block(virtual_time: VirtualClock) -> None:
    with real_time():
        began, really = clock.monotonic(), time.monotonic()
        asyncio.run(asyncio.sleep(0.05))
        assert clock.monotonic() - began >= 0.05
        assert time.monotonic() - really >= 0.05
    assert clock.monotonic() == virtual_time.monotonic()


def test_virtual_time_stops_while_a_process_works(virtual_time: VirtualClock) -> None:
    async def main() -> tuple[bytes, float]:
        began = virtual_time.monotonic()
        async with asyncio.timeout(0.05):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "import time; time.sleep(0.2); print('done')", stdout=asyncio.subprocess.PIPE
            )
            printed, _ = await process.communicate()
        return printed, virtual_time.monotonic() - began

    printed, took = asyncio.run(main())
    assert printed.strip() == b"done"
    assert took < 0.05


def test_bytes_cross_a_socket_before_virtual_time_advances(virtual_time: VirtualClock) -> None:
    async def main() -> list[float]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(line)
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        took = []
        for _ in range(50):
            began = virtual_time.monotonic()
            writer.write(b"ping\n")
            timer = asyncio.get_running_loop().call_later(0.02, lambda: None)  # what the clock could jump to
            assert await reader.readline() == b"ping\n"
            timer.cancel()
            took.append(virtual_time.monotonic() - began)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(1)  # the other side closes too
        server.close()
        await server.wait_closed()
        return took

    assert max(asyncio.run(main())) == 0
