"""A command as a provider: the prompt goes to its standard input, its output is the reply.

The command is a list of arguments from the local configuration, never a shell string and never from the API. It runs in
its own process group, and a timeout or a cancelled request kills the whole group. A status other than zero is a
`ProviderError` with the last line of standard error. Parameters cannot be passed on: the reply lists them as dropped.
The command inherits our environment, as any command does, but no key from it leaves in a reply or a message.
"""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pramana import clock
from pramana.errors import (
    ApiKeyInReply,
    InvalidInput,
    ProviderError,
    Unavailable,
    escape_control_characters,
    quote_text,
)
from pramana.model import Reply, Request, Target
from pramana.providers import redaction
from pramana.providers.text.function import join_turns
from pramana.replies import encode_raw_response

DEFAULT_TIMEOUT_S = 120.0
MAX_OUTPUT_BYTES = 16 << 20
"""Maximum size of the output in bytes: far above any real one, so that no command can fill our memory."""
MAX_STDERR_BYTES = 64 << 10
MAX_MESSAGE_LENGTH = 300


class CommandProvider:
    """A command and its timeout."""

    def __init__(self, argv: Sequence[str], timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        if not argv or not all(isinstance(each, str) for each in argv):
            raise InvalidInput('a command is a list of texts: ["my-model", "--quiet"]')
        self._argv, self._timeout_s = tuple(argv), float(timeout_s)
        self._name = Path(argv[0]).name
        self._keys = redaction.read_environment_secrets()
        if shutil.which(argv[0]) is None:
            raise InvalidInput(f"the command {quote_text(argv[0])} is not found or not executable; give its full path")

    @classmethod
    def open(cls, target: Target, account: object = None) -> "CommandProvider":  # noqa: ARG003 - unused: this provider has no account
        """Return the provider for the target."""
        return cls(target.arguments["argv"], target.arguments.get("timeout_s", DEFAULT_TIMEOUT_S))

    async def ask(self, request: Request) -> Reply:
        """Run the command and return its output without trailing line ends."""
        start = clock.monotonic()
        process = await self._start()
        try:
            async with asyncio.timeout(self._timeout_s):
                printed, complained = await self._communicate(process, join_turns(request.turns))
                status = await process.wait()
        except TimeoutError:
            raise Unavailable(f"the command {self._name} gave no complete reply within {self._timeout_s:g} s") from None
        finally:
            await _terminate(process)
        if status:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            raise ProviderError(f"the command {self._name} {how}{self._last_error_line(complained)}")
        text = printed.decode("utf-8", "replace").rstrip("\r\n")
        if self._keys.occur_in(text):
            raise ApiKeyInReply(redaction.describe_leaked_key(f"the answer of the command {self._name}"))
        return Reply(
            text,
            served_model=self._name,
            total_s=clock.monotonic() - start,
            raw=encode_raw_response(
                {"stdout": text, "stderr": self._keys.redact(complained.decode("utf-8", "replace"))}
            ),
            dropped=tuple(name for name, value in request.parameters.items() if value is not None),
        )

    async def _start(self) -> Process:
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(*self._argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True)
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:  # asyncio would kill only the command that it just started, not its children
            with suppress(OSError):
                await _terminate(await starting)
            raise
        except OSError as error:
            raise ProviderError(f"the command {self._name} cannot be started: {error.strerror}") from None

    async def models(self) -> list[str]:
        """Return the command's name, its only model."""
        return [self._name]

    async def close(self) -> None:
        """Do nothing: a command ends with its request."""

    def _last_error_line(self, stderr: bytes) -> str:
        lines = stderr.decode("utf-8", "replace").strip().splitlines()
        return f": {self._keys.redact(escape_control_characters(lines[-1]))[:MAX_MESSAGE_LENGTH]}" if lines else ""

    async def _communicate(self, process: Process, prompt: str) -> tuple[bytes, bytes]:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr

        async def write_prompt() -> None:
            with suppress(ConnectionError):  # a command need not read its input
                stdin.write(prompt.encode("utf-8", "surrogatepass"))
                await stdin.drain()
            stdin.close()

        async def read_output() -> bytes:
            heard = bytearray()
            while chunk := await stdout.read(1 << 16):
                heard += chunk
                if len(heard) > MAX_OUTPUT_BYTES:
                    raise ProviderError(f"the command {self._name} printed more than {MAX_OUTPUT_BYTES >> 20} MB")
            return bytes(heard)

        async def read_errors() -> bytes:
            kept = bytearray()
            while chunk := await stderr.read(1 << 16):
                kept += chunk
                del kept[:-MAX_STDERR_BYTES]
            return bytes(kept)

        talks = [asyncio.ensure_future(each) for each in (write_prompt(), read_output(), read_errors())]
        try:
            _, printed, complained = await asyncio.gather(*talks)
        finally:
            for each in talks:
                each.cancel()
            await asyncio.gather(*talks, return_exceptions=True)
        return printed or b"", complained or b""


async def _terminate(process: Process) -> None:
    drained = all(stream is None or stream.at_eof() for stream in (process.stdout, process.stderr))
    if process.returncode is None or not drained:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            await process.wait()
    process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001 - closes pipes that an orphaned child process holds open
