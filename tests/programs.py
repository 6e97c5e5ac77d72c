"""Runs `python -m pramana …` as a separate process, forked from one that has already imported the program.

A short command spends most of its time on imports: up to three seconds of processor time each. A fork has its own
process id, memory, environment, folder, streams, signals and exit code, as a new interpreter has. It does not cover
startup itself: tests of that, and those that need another interpreter, call `subprocess`.

`python tests/programs.py SOCKET` is the fork server, started on first use.
"""

import array
import atexit
import gc
import io
import json
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn, Self

IMPORTED = (
    "pramana.show.web",
    "pramana.show.cli.run",
    "pramana.show.cli.runs",
    "pramana.show.cli.serve",
    "pramana.show.cli.compare",
    "pramana.jobs",
    "pramana.store.store",
    "pramana.providers.text.openai",
    "pramana.loopback.voice",
    "alembic.command",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "nicegui",
    "pramana.report.look",
    "pramana.report.selection",
    "fastapi_offline",
    "httpx",
    "tinycss2",
    "anyio._backends._asyncio",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
)
"""Of the pages only the shared modules: importing a page registers it, and the order matters."""
_INTERPRETER_VARIABLES = re.compile(r"PYTHON|LC_|LANG|COVERAGE")
"""Variables that an interpreter reads only at startup."""
_MAX_SOCKET_FOLDER_LENGTH = 70
"""Longest folder in which to create a socket, whose path may have at most 107 characters."""
_INHERITED_IGNORED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Program:
    """A forked process, with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdout: IO[Any] | int,
        stderr: IO[Any] | int,
        env: Mapping[str, str],
        cwd: str | Path | None = None,
    ) -> None:
        self.args, self.returncode, self.stdout = [sys.executable, *arguments], None, None
        reading = writing = -1
        if stdout == subprocess.PIPE:
            reading, writing = os.pipe()
            self.stdout = os.fdopen(reading, encoding="utf-8")
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - only its descriptor is used
            out = writing if writing >= 0 else _file_number(stdout)
            error = out if stderr == subprocess.STDOUT else _file_number(stderr)
            asked = {
                "arguments": list(arguments),
                "environment": dict(env),
                "folder": str(cwd or Path.cwd()),
                "ignored": [each for each in _INHERITED_IGNORED_SIGNALS if signal.getsignal(each) == signal.SIG_IGN],
            }
            self._line = socket.socket(socket.AF_UNIX)
            self._line.connect(_start_fork_server())
            body = json.dumps(asked).encode()
            socket.send_fds(self._line, [len(body).to_bytes(4, "big")], [nothing.fileno(), out, error])
            self._line.sendall(body)
        if writing >= 0:
            os.close(writing)
        self._answers = self._line.makefile("rb")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._line, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._line.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        if self.stdout:
            self.stdout.close()

    returncode: int | None
    stdout: IO[str] | None


Process = Program | subprocess.Popen[str]


def start(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdout: IO[Any] | int = subprocess.PIPE,
    stderr: IO[Any] | int = subprocess.STDOUT,
) -> Process:
    """Start `python ARGUMENTS…`, which begin with `-m` or `-c`; without `stdin`."""
    here = dict(os.environ)  # noqa: TID251 - a child inherits our environment
    given = dict(here if env is None else env)
    changed = {name for name in {*given, *here} if given.get(name) != here.get(name)}
    if sys.platform == "linux" and not any(map(_INTERPRETER_VARIABLES.match, changed)):
        return Program(arguments, env=given, cwd=cwd, stdout=stdout, stderr=stderr)
    command = [sys.executable, *arguments]
    return subprocess.Popen(
        command, env=given, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, text=True
    )


def run(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS…` to its end and return what it printed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        process = start(arguments, env=env, cwd=cwd, stdout=out, stderr=error)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
            raise
        said = []
        for file in (out, error):
            file.seek(0)
            said.append(file.read().decode("utf-8", "replace"))
    return subprocess.CompletedProcess(process.args, code, *said)


def _file_number(stream: IO[Any] | int) -> int:
    return stream if isinstance(stream, int) else stream.fileno()


@cache
def _start_fork_server() -> str:
    """Start the fork server; return the path of its socket. It exits when this process closes its end of a pipe."""
    folder = tempfile.mkdtemp(
        prefix="pramana-forks-", dir=None if len(tempfile.gettempdir()) < _MAX_SOCKET_FOLDER_LENGTH else "/tmp"
    )
    path = str(Path(folder, "socket"))
    process = subprocess.Popen(
        [sys.executable, __file__, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C goes to the tests, which end what they started
    )
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    process.stdout.close()
    atexit.register(_stop_fork_server, process)
    return path


def _stop_fork_server(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin
    process.stdin.close()
    process.wait(20)


# ── The fork server ──


def serve_forks(path: str) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request; return the request in the child only."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, socket.socket] = {}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with selectors.DefaultSelector() as selector:
        for each in (listening, awake, sys.stdin):
            selector.register(each, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if sys.stdin in ready:  # the test session has ended, however it did
                for child in children:
                    with suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                shutil.rmtree(Path(path).parent, ignore_errors=True)
                os._exit(0)
            if awake in ready:
                os.read(awake, 4096)
                _report_exits(children)
            if listening not in ready:
                continue
            line, _ = listening.accept()
            try:
                request, streams = _receive_request(line)
            except (EOFError, ValueError):
                line.close()
                continue
            if (child := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (listening, line, *children.values()):
                    each.close()
                os.close(awake)
                os.close(wake)
                return request, streams
            children[child] = line
            line.sendall(b"%d\n" % child)
            for stream in streams:
                os.close(stream)


def _receive_request(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, streams, _, _ = socket.recv_fds(line, 4, 3)
    size, body = int.from_bytes(head, "big"), b""
    while len(body) < size:
        part = line.recv(size - len(body))
        if not part:
            raise EOFError("the client closed the connection in the middle of a request")
        body += part
    return json.loads(body), list(array.array("i", streams))


def _report_exits(children: dict[int, socket.socket]) -> None:
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        with children.pop(child) as line, suppress(OSError):  # the client may have exited
            line.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def execute_request(request: dict[str, Any], streams: Sequence[int]) -> NoReturn:
    """Execute the requested program in a fork."""
    import runpy

    for place, (stream, name) in enumerate(zip(streams, ("stdin", "stdout", "stderr"), strict=True)):
        os.dup2(stream, place)
        os.close(stream)
        old = getattr(sys, name)  # which knows what its file can do: seek, or be a terminal
        buffered = open(place, "wb" if place else "rb", closefd=False)  # noqa: SIM115 - open until the process ends
        new = io.TextIOWrapper(buffered, old.encoding, old.errors, line_buffering=place == 2 or buffered.isatty())
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(request["folder"])
    os.environ.clear()  # noqa: TID251 - the environment of another process
    os.environ.update(request["environment"])  # noqa: TID251
    time.tzset()
    for number in _INHERITED_IGNORED_SIGNALS:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else usual)
    kind, what, *rest = request["arguments"]
    if kind == "-m":
        sys.path[0], sys.argv = request["folder"], [what, *rest]
        _run_and_exit(lambda: runpy.run_module(what, run_name="__main__", alter_sys=True))
    sys.path[0], sys.argv = "", ["-c", *rest]
    code = compile(what, "<string>", "exec")
    _run_and_exit(lambda: exec(code, {"__name__": "__main__"}))  # noqa: S102 - as python -c does


def _run_and_exit(work: Callable[[], object]) -> NoReturn:
    """Run a function and exit as an interpreter does, but skip its costly finalisation."""
    code: object = 0
    try:
        work()
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - an interpreter shows whatever it is
        sys.excepthook(*sys.exc_info())
        code = 1
    if not isinstance(code, int | None):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream and not stream.closed:
            stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    from importlib import import_module

    for name in IMPORTED:
        import_module(name)
    for name in import_module("pramana.show.web").PAGE_MODULES:
        import_module(f"pramana.show.web.pages.{name}")
    assert threading.active_count() == 1, "a fork would lose the other threads"
    gc.collect()
    gc.freeze()
    execute_request(*serve_forks(sys.argv[1]))
