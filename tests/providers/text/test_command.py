"""Commands: the prompt on standard input, the answer on standard output; a timeout kills the whole process group."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pramana.errors import ApiKeyInReply, InvalidInput, ProviderError, Unavailable
from pramana.model import Reply, Request, Target, Turn
from pramana.providers.text import command
from pramana.providers.text.command import CommandProvider

PYTHON = sys.executable


def ask(argv: list[str], text: str = "hi", *, timeout_s: float = 30.0, **parameters: Any) -> Reply:
    provider = CommandProvider(argv, timeout_s)
    return asyncio.run(provider.ask(Request("x", (Turn("user", text),), parameters)))


def python_command(code: str) -> list[str]:
    return [PYTHON, "-c", code]


def test_the_prompt_is_written_and_the_answer_read() -> None:
    reply = ask(["cat"], "Ünïcode\nand two lines\n\n", temperature=0.7, seed=None)
    assert reply.text == "Ünïcode\nand two lines"
    assert (reply.served_model, reply.dropped) == ("cat", ("temperature",))
    assert reply.total_s > 0
    assert reply.response()["stderr"] == ""


def test_every_given_parameter_is_listed_as_dropped() -> None:
    assert ask(["cat"], temperature=0.0, seed=42).dropped == ("temperature", "seed")
    assert ask(["cat"], temperature=None, seed=7, max_tokens=9).dropped == ("seed", "max_tokens")


def test_a_conversation_is_sent_as_one_text() -> None:
    turns = (Turn("system", "Be brief."), Turn("user", "So?"))
    assert asyncio.run(CommandProvider(["cat"]).ask(Request("x", turns))).text == "Be brief.\n\nSo?"


def test_large_texts_are_piped_both_ways() -> None:
    text = "word " * 400_000
    code = "import sys; sys.stdout.write(sys.stdin.read()); sys.stderr.write('e' * 300_000)"
    reply = ask(python_command(code), text)
    assert reply.text == text
    assert len(reply.response()["stderr"]) == 64 << 10


def test_a_command_need_not_read_its_input() -> None:
    assert ask(["echo", "done"], "x" * 1_000_000).text == "done"


def test_invalid_utf8_output_is_replaced() -> None:
    assert ask(python_command(r"import sys; sys.stdout.buffer.write(b'a\xffb')")).text == "a\ufffdb"


def test_no_shell_is_involved() -> None:
    assert ask(["echo", "$(whoami); `id` && x"]).text == "$(whoami); `id` && x"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import sys; print('first\\nlast', file=sys.stderr); sys.exit(3)", "ended with status 3: last$"),
        ("raise SystemExit(1)", "ended with status 1$"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "was ended by signal 15$"),
        ("1/0", "ended with status 1: ZeroDivisionError: division by zero$"),
    ],
)
def test_a_nonzero_exit_status_is_an_error(code: str, says: str) -> None:
    with pytest.raises(ProviderError, match=says) as caught:
        ask(python_command(code))
    assert type(caught.value) is ProviderError
    assert not caught.value.transient


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until_gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if not is_alive(pid):
            return True
        time.sleep(0.01)
    return False


def make_process_group(file: Path, then: str) -> list[str]:
    """A command that starts a child, writes its number to the file, and goes on."""
    return ["sh", "-c", f"sleep 60 & echo $! > '{file}.new'; mv '{file}.new' '{file}'; {then}"]


@pytest.mark.parametrize("then", ["sleep 60", "exit 0"])
def test_a_timeout_kills_the_whole_process_group(tmp_path: Path, then: str) -> None:
    # Also when the command itself has ended, and a child of its holds the output open.
    file = tmp_path / "pid"
    with pytest.raises(Unavailable, match="gave no complete reply within 1 s"):
        ask(make_process_group(file, then), timeout_s=1)
    assert wait_until_gone(int(file.read_text()))


def test_a_cancelled_request_kills_the_whole_process_group(tmp_path: Path) -> None:
    file = tmp_path / "pid"

    async def go() -> None:
        provider = CommandProvider(make_process_group(file, "sleep 60"))
        task = asyncio.ensure_future(provider.ask(Request("x", (Turn("user", "hi"),))))
        while not file.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert wait_until_gone(int(file.read_text()))


def test_a_request_cancelled_during_startup_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, start = tmp_path / "pid", asyncio.create_subprocess_exec
    asking: list[asyncio.Future[Any]] = []

    async def start_slowly(*argv: Any, **given: Any) -> Any:
        process = await start(*argv, **given)
        while not file.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        asking[0].cancel()
        await asyncio.sleep(0.1)
        return process

    async def go() -> None:
        provider = CommandProvider(make_process_group(file, "sleep 60"))
        asking.append(asyncio.ensure_future(provider.ask(Request("x", (Turn("user", "hi"),)))))
        with pytest.raises(asyncio.CancelledError):
            await asking[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_slowly)
    asyncio.run(go())
    assert wait_until_gone(int(file.read_text()))


def test_endless_output_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MAX_OUTPUT_BYTES", 1 << 20)
    with pytest.raises(ProviderError, match="printed more than 1 MB"):
        ask(["yes"])


def test_many_commands_run_at_once() -> None:
    async def go() -> list[str]:
        provider = CommandProvider(["cat"])
        asked = (provider.ask(Request("x", (Turn("user", str(number)),))) for number in range(20))
        return [reply.text for reply in await asyncio.gather(*asked)]

    assert asyncio.run(go()) == [str(number) for number in range(20)]


def test_a_missing_command_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match='the command "no-such-command" is not found'):
        CommandProvider(["no-such-command"])
    with pytest.raises(InvalidInput, match="a command is a list of texts"):
        CommandProvider([])
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho yes\n")
    program.chmod(0o755)
    provider = CommandProvider.open(Target("command:p", "command", "p", {"argv": [str(program)]}))
    assert asyncio.run(provider.models()) == ["program"]
    program.unlink()
    with pytest.raises(ProviderError, match="program cannot be started: No such file"):
        asyncio.run(provider.ask(Request("x", (Turn("user", "hi"),))))
    asyncio.run(provider.close())


def test_the_environment_is_inherited_and_its_keys_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-of-the-environment"
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    say = "import os, sys; print(os.environ['ANTHROPIC_API_KEY'], file=sys.{}); sys.exit({})"
    with pytest.raises(ApiKeyInReply, match="contains an API key from the environment") as caught:
        ask(python_command(say.format("stdout", 0)))
    assert key not in str(caught.value)
    with pytest.raises(ProviderError, match=r"ended with status 3: \[key\]$"):
        ask(python_command(say.format("stderr", 3)))
    reply = ask(python_command(say.format("stderr", 0)))
    assert (reply.text, reply.response()["stderr"]) == ("", "[key]\n")
