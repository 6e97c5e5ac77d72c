"""`pramana submit`: runs are sent one at a time, marked when accepted, and private fields are never sent."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

from pramana import clock
from pramana.show.cli import pramana

from ..virtual_time import VirtualClock
from .api.served import Client, read_submissions, serve


def invoke(*arguments: str, **environment: str) -> tuple[int, str]:
    found = CliRunner().invoke(pramana, arguments, env=environment, standalone_mode=False)
    if found.exception is not None:
        return getattr(found.exception, "exit_code", -1), f"{found.output}{found.exception}"
    return found.return_value or 0, found.output


def list_submitted(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    code, said = invoke("submit", *arguments, "--json", **environment)
    return code, json.loads(said)


def run(*options: str) -> str:
    code, said = invoke("run", "--tier", "cheap", "--model", "fake", "--json", *options)
    assert code in (0, 1), said
    return read_newest_run()


def read_newest_run() -> str:
    found: str = json.loads(invoke("runs", "--json")[1])[0]["id"]
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Client]:
    with serve(f"sqlite:///{tmp_path / 'server.sqlite3'}") as found:
        yield found


class Recorder:
    """A server with prepared answers that records the requests it receives."""

    def __init__(self, *answers: tuple[int, dict[str, str], dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                recorder.headers.append(dict(self.headers))
                recorder.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                status, headers, said = recorder.answers.pop(0)
                body = json.dumps(said).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Self:
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def make_accepted(count: int = 10) -> tuple[int, dict[str, str], dict[str, Any]]:
    data = {"accepted": count, "duplicates": 0, "refused": 0, "results": []}
    return 200, {}, {"success": True, "status": "accepted", "data": data}


def make_refused(status: int, **headers: str) -> tuple[int, dict[str, str], dict[str, Any]]:
    return status, headers, {"success": False, "error": "not now", "code": "x", "details": []}


# ── Submitted data ──


def test_a_run_of_a_known_suite_is_marked_and_not_sent_twice(server: Client) -> None:
    mine = run()
    code, said = list_submitted(mine, "--to", server.url)
    assert (code, said["remaining"], said["failure"]) == (0, 0, None)
    assert said["submitted"][0]["accepted"] == 10
    found = read_submissions(server)
    assert len(found) == 10
    assert {row["verified"] for row in found} == {True}
    assert {row["suite_version"] for row in found} == {"v1.0-cheap"}
    assert all(row["result_hash"] and row["verdict"] and row["stated"] for row in found)

    code, said = list_submitted(mine, "--to", server.url.upper().replace("HTTP", "Http") + "/")
    assert (code, said["submitted"], said["submitted_before"]) == (0, [], 1)
    code, said = list_submitted(mine, "--to", server.url, "--again")
    assert said["submitted"][0]["duplicates"] == 10
    assert "Nothing to submit; 1 run submitted before." in invoke("submit", mine, "--to", server.url)[1]


def test_without_arguments_every_finished_run_is_submitted_oldest_first(server: Client) -> None:
    first, second = run("--id", "reasoning-001"), run()
    code, said = list_submitted("--to", server.url)
    assert code == 0
    assert [each["subject"] for each in said["submitted"]] == [first, second]
    selected, whole = said["submitted"]
    assert (selected["accepted"], whole["accepted"]) == (1, 10)
    assert [row["verified"] for row in read_submissions(server)] == [False] + [True] * 10, (
        "a selection is not the suite"
    )


def test_a_results_file_is_submitted_block_by_block_and_not_changed(server: Client, tmp_path: Path) -> None:
    run()
    file = tmp_path / "results.json"
    assert invoke("export", "--output", str(file))[0] == 0
    (block,) = json.loads(file.read_text())
    other = {**block, "run_metadata": {**block["run_metadata"], "model_id": "another"}}
    file.write_text(json.dumps([block, other]))
    before = file.read_bytes()
    code, said = list_submitted(str(file), "--to", server.url)
    assert (code, [each["accepted"] for each in said["submitted"]]) == (0, [10, 10])
    assert {row["model"] for row in read_submissions(server)} == {"another", block["run_metadata"]["model_id"]}
    assert file.read_bytes() == before
    assert list_submitted(str(file), "--to", server.url)[1]["submitted_before"] == 2


def test_a_run_and_its_export_submit_the_same_content(server: Client, tmp_path: Path) -> None:
    mine, file = run(), tmp_path / "results.json"
    assert invoke("export", "--output", str(file))[0] == 0
    list_submitted(mine, "--to", server.url)
    assert list_submitted(str(file), "--to", server.url)[1]["submitted"][0]["duplicates"] == 10


def test_a_token_is_sent_from_the_option_or_the_environment(tmp_path: Path) -> None:
    mine = run()
    with serve(f"sqlite:///{tmp_path / 'server.sqlite3'}", server_account_needs_token=True) as server:
        assert server.store
        code, said = list_submitted(mine, "--to", server.url)
        assert (code, said["failure"]["code"], said["remaining"]) == (2, "not_allowed", 1)
        token, secret = server.store.tokens.create("ann", "viewer")
        assert list_submitted(mine, "--to", server.url, PRAMANA_TOKEN=secret)[0] == 0
        assert {row["contributor"] for row in read_submissions(server)} == {token.id}
        code, said = list_submitted(mine, "--to", server.url, "--again", "--token", "pramana_wrong")
        assert code == 2


def test_submit_waits_as_long_as_the_server_requests() -> None:
    mine = run()
    virtual = VirtualClock()
    with Recorder(make_refused(429, **{"Retry-After": "30"}), make_accepted()) as server, clock.use_clock(virtual):
        began = virtual.monotonic()
        code, said = invoke("submit", mine, "--to", server.url)
        assert (code, "the server asks to wait 30 s" in said) == (0, True)
        assert virtual.monotonic() - began == pytest.approx(30)
        assert server.bodies[0] == server.bodies[1]
    with Recorder(make_refused(429, **{"Retry-After": "86400"})) as server:
        code, found = list_submitted(mine, "--to", server.url, "--again")
        assert (code, "accepts no requests for 86400 s" in found["failure"]["error"]) == (3, True)


# ── Private fields ──


def test_no_key_raw_response_or_system_prompt_is_submitted(tmp_path: Path) -> None:
    secret = "sk-never-to-be-seen-0123456789"
    prompt = tmp_path / "system.txt"
    prompt.write_text("You are the SECRET-PROMPT of this house.")
    mine = run("--system", str(prompt))
    with Recorder(make_accepted()) as server:
        code, said = invoke("submit", mine, "--to", server.url, OPENAI_API_KEY=secret, ANTHROPIC_API_KEY=secret)
        assert code == 0
        assert "never keys, raw responses or system prompts" in said
        assert "sent as results of an unknown suite, because the run had its own system prompt" in said
        (body,), (headers,) = server.bodies, server.headers
    assert secret not in body.decode() + str(headers)
    assert b"SECRET-PROMPT" not in body
    sent = json.loads(body)
    assert sent["suite_hash"] is None
    assert {name for each in sent["results"] for name in each} == {
        *("model_id", "prompt_id", "output", "score", "assertion_result", "latency_ms", "result_hash", "metadata")
    }
    noted = {name for each in sent["results"] for name in each["metadata"]}
    assert noted <= {
        *("provider", "case_digest", "repeat", "served_model", "fingerprint", "dropped", "parameters"),
    }


def test_a_file_with_a_system_prompt_is_submitted_without_it_as_an_unknown_suite(tmp_path: Path) -> None:
    prompt, file = tmp_path / "system.txt", tmp_path / "mine.json"
    prompt.write_text("You are the SECRET-PROMPT of this house.")
    run("--system", str(prompt), "--output", str(file))
    with Recorder(make_accepted()) as server:
        code, said = invoke("submit", str(file), "--to", server.url)
        assert code == 0
        assert "sent as results of an unknown suite, because the run had its own system prompt" in said
        (body,) = server.bodies
    assert b"SECRET-PROMPT" not in body
    assert json.loads(body)["suite_hash"] is None


def test_unknown_fields_are_omitted() -> None:
    mine = make_run_with_errors()
    with Recorder(make_accepted(0)) as server:
        code, said = list_submitted(mine, "--to", server.url)
        assert code == 0
        (parcel,) = said["submitted"]
        sent = sum(len(json.loads(body)["results"]) for body in server.bodies)
    assert parcel["left_out"] > 0
    assert parcel["sent"] + parcel["left_out"] == 10
    assert sent == parcel["sent"]


def make_run_with_errors() -> str:
    code, said = invoke("run", "--tier", "cheap", "--model", "fake:rejected=0.5,seed=3,echo", "--json")
    assert code in (0, 1, 3), said
    return read_newest_run()


# ── Errors ──


def test_submit_stops_at_the_first_failure_and_keeps_the_rest() -> None:
    first, second, third = (run() for _ in range(3))
    with Recorder(make_accepted(), make_refused(500)) as server:
        code, said = list_submitted("--to", server.url)
        assert code == 3
        assert [each["subject"] for each in said["submitted"]] == [first]
        assert (said["remaining"], said["failure"]["code"]) == (2, "server_failed")
        server.answers += [make_accepted(), make_accepted()]
        code, said = list_submitted("--to", server.url)
        assert (code, [each["subject"] for each in said["submitted"]]) == (0, [second, third])


def test_a_refused_result_is_reported_with_its_reason(server: Client, tmp_path: Path) -> None:
    run()
    file = tmp_path / "results.json"
    assert invoke("export", "--output", str(file))[0] == 0
    (block,) = json.loads(file.read_text())
    for number, each in enumerate(block["results"]):
        each["test_id"] = f"unheard-of-{number}"
    file.write_text(json.dumps(block))
    code, said = invoke("submit", str(file), "--to", server.url)
    assert (code, 'has no prompt "unheard-of-0"' in said, "1 run not submitted" in said) == (2, True, True)
    block["results"][0]["test_id"] = "reasoning-001"
    file.write_text(json.dumps(block))
    code, said = invoke("submit", str(file), "--to", server.url)
    assert (code, "1 accepted, 9 refused; the suite" in said) == (0, True), said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("latest", "--to", "ftp://x"), "is not a server URL"),
        (("nobody", "--to", "http://127.0.0.1:9"), "there is no run"),
        (("nowhere.json", "--to", "http://127.0.0.1:9"), "does not exist"),
        (("latest",), "Missing parameter: url"),
    ],
)
def test_an_invalid_combination_is_a_usage_error(arguments: tuple[str, ...], message: str) -> None:
    run("--id", "reasoning-001")
    code, said = invoke("submit", *arguments)
    assert (code, message in said) == (2, True), said


def test_an_unreachable_server_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken_port:
        port = taken_port.getsockname()[1]
    mine = run("--id", "reasoning-001")
    code, said = list_submitted(mine, "--to", f"http://127.0.0.1:{port}")
    assert (code, "is the server running?" in said["failure"]["error"]) == (3, True)


def test_a_server_that_is_not_pramana_is_reported() -> None:
    mine = run("--id", "reasoning-001")
    with Recorder((200, {}, {"success": True, "data": {}})) as server:
        code, said = list_submitted(mine, "--to", server.url)
        assert (code, said["failure"]["code"]) == (3, "server_failed")


def test_nothing_to_submit_is_not_an_error(server: Client) -> None:
    code, said = invoke("submit", "--to", server.url)
    assert (code, "Nothing to submit." in said) == (0, True)


def test_more_than_1000_results_are_sent_in_several_requests(tmp_path: Path) -> None:
    case = {
        "category": "factual",
        "input": "Which?",
        "ideal": ["this"],
        "assertion": {"type": "contains_any", "case_sensitive": False},
        "metadata": {"difficulty": "easy", "tokens_est": 3, "tags": []},
    }
    suite = tmp_path / "many.jsonl"
    suite.write_text("".join(json.dumps({"id": f"factual-{n:04}", **case}) + "\n" for n in range(1_200)))
    code, said = invoke("run", str(suite), "--model", "fake", "--json")
    assert code in (0, 1), said
    with Recorder(make_accepted(1_000), make_accepted(200)) as server:
        assert list_submitted("--to", server.url)[1]["submitted"][0]["accepted"] == 1_200
        assert [len(json.loads(body)["results"]) for body in server.bodies] == [1_000, 200]
