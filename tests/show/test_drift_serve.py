"""`pramana drift serve`, `test-alert` and the options for alerts, as typed at a terminal."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner, Result

from pramana import settings
from pramana.show.cli import pramana

from .. import programs

START = ("start", "fake:echo", "--tier", "cheap", "--limit", "2")


def drift(*arguments: str) -> Result:
    return CliRunner().invoke(pramana, ["drift", *arguments], standalone_mode=False)


@contextmanager
def receive() -> Iterator[tuple[str, list[bytes]]]:
    """Serve a webhook in a thread; yield its URL and what arrives."""
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/s3cret-path", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_serve_measures_due_watches_and_stops_at_a_signal() -> None:
    assert drift(*START, "--name", "bot").exception is None
    assert drift(*START, "--name", "late", "--at", "23:59").exception is None
    with programs.start(["-m", "pramana", "drift", "serve"]) as process:
        assert process.stdout
        lines = [process.stdout.readline()]
        assert lines[0].startswith("Measuring once a day: bot at any time of the day, late at 23:59 UTC.")
        while not any("measured, 2 of 2 calls answered" in " ".join(lines[-2:]) for _ in [0]):
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
        assert any("bot: measuring 20" in each for each in lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert json.loads(drift("show", "bot", "--json").stdout)["measured_days"] == 1


def test_serve_prints_json_lines() -> None:
    drift(*START, "--name", "bot")
    with programs.start(["-m", "pramana", "drift", "serve", "--json"], stderr=sys.stderr.fileno()) as process:
        assert process.stdout
        events = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert [each["event"] for each in events] == ["begun", "ended"]
    assert (events[1]["status"], events[1]["error"]) == ("measured", None)


def test_a_test_alert_arrives_and_shows_only_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "key")
    with receive() as (url, got):
        started = drift(*START, "--name", "bot", "--webhook", url, "--webhook-secret-env", "HOOK_SECRET")
        assert started.exception is None
        sent = drift("test-alert", "bot")
        host = url.removeprefix("http://").partition("/")[0]
        assert sent.stdout.startswith("Test alert test-")
        assert sent.stdout.endswith(f" of watch bot was delivered to {host}.\n")
        assert json.loads(got[0])["test"] is True
        shown = drift("show", "bot")
        assert f"Alerts are sent to a webhook at {host}, signed." in shown.stdout
        for each in (started, sent, shown, drift("show", "bot", "--json")):
            assert "s3cret" not in each.stdout


def test_a_webhook_may_be_named_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    with receive() as (url, got):
        monkeypatch.setenv("HOOK", url)
        assert drift(*START, "--webhook", "env:HOOK").exception is None
        assert json.loads(drift("test-alert", "--json").stdout)["sent_to"] == "$HOOK"
        assert len(got) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--webhook", "no url"), "the URL of the webhook is not valid"),
        (
            ("--webhook", "env:NO_SUCH_VARIABLE"),
            'the environment variable "NO_SUCH_VARIABLE" of the webhook is not set',
        ),
        (("--webhook", "https://a.example/", "--on-alert", "pager"), "--webhook cannot be combined with --on-alert"),
        (("--webhook-secret-env", "KEY"), "add --webhook URL"),
        (("--on-alert", "pager", "--webhook-secret-env", "KEY"), "a command needs no secret"),
        (("--on-alert", "pager"), 'there is no command "pager"'),
    ],
)
def test_wrong_options_start_no_watch(options: tuple[str, ...], message: str) -> None:
    found = drift(*START, *options)
    assert message in str(found.exception)
    assert json.loads(drift("list", "--json").stdout) == []


def test_a_command_of_the_configuration_gets_the_alert() -> None:
    out = settings.data_folder() / "out.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-c", f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())"]
    (settings.data_folder() / "config.toml").write_text(f"[commands.pager]\nargv = {json.dumps(argv)}\n")
    assert drift(*START, "--on-alert", "pager").exception is None
    assert drift("test-alert").stdout.endswith("was delivered to pager.\n")
    assert json.loads(out.read_text())["level"] == "test"
    assert "Alerts are sent to the command pager." in drift("show").stdout


def test_a_watch_without_alerts_says_what_to_do() -> None:
    drift(*START)
    assert "sends its alerts nowhere" in str(drift("test-alert").exception)
