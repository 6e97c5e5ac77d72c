"""`pramana mcp`, used as coding agents use it: through the official SDK's client, mostly over real stdin and stdout."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent
from msgspec.structs import fields

from pramana.app import App, Credential
from pramana.app.spending import LocalProgramSettings, SpendingLimit
from pramana.installation import make_install_command
from pramana.request import Limits, RunRequest, Selection, get_published_name
from pramana.show.cli import pramana
from pramana.show.cli.mcp import SET_LIMIT_ADVICE
from pramana.show.mcp import EXAMPLE_CASE, _call_tool, make_server
from pramana.show.tool_arguments import has_description, make_input_schema, make_output_schema
from pramana.show.tools import TOOLS, LimitsArguments, RunArguments, SelectionArguments, ToolCallContext
from pramana.store import open_store

from ..stores import sqlite_store

_T = TypeVar("_T")
BOT = """
import os, sys

def reply(prompt):
    print("printed by a function")
    sys.stdout.flush()
    os.system("echo printed by a child")
    os.write(1, b"written by native code\\n")
    return "Paris" if "France" in prompt else "no idea"

def paid(prompt):
    from pramana import Reply
    from pramana.model import Usage
    return Reply("Paris", usage=Usage(1_000_000, 0))

def broken(prompt):
    return "half \\ud800 a pair"
"""


def make_case_line(name: str, prompt: str, ideal: str) -> str:
    return json.dumps(
        {
            "id": name,
            "category": "factual",
            "input": prompt,
            "ideal": ideal,
            "assertion": {"type": "contains"},
            "metadata": {"difficulty": "easy", "tokens_est": 10},
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "bot.py").write_text(BOT, encoding="utf-8")
    cases = [
        make_case_line("factual-001", "Capital of France?", "Paris"),
        make_case_line("factual-002", "Capital of Italy?", "Rome"),
    ]
    (folder / "capitals.jsonl").write_text("\n".join(cases) + "\n", encoding="utf-8")
    many = [make_case_line(f"factual-{number}", f"Number {number}?", str(number)) for number in range(200)]
    (folder / "many.jsonl").write_text("\n".join(many) + "\n", encoding="utf-8")
    return folder


SLOW = {"paths": ["many.jsonl"], "models": ["fake:latency=0.02,echo"], "limits": {"concurrency": 1}}


def make_environment() -> dict[str, str]:
    names = ("PATH", "PRAMANA_HOME", "PYTHONPATH")  # with the path of this tree, if it is not the installed one
    return {name: os.environ[name] for name in names if name in os.environ}  # noqa: TID251 - what a client passes on


def server_parameters(folder: Path, *arguments: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=["-m", "pramana", "mcp", *arguments], cwd=folder, env=make_environment()
    )


def run(work: Awaitable[_T]) -> _T:
    async def working() -> _T:
        async with asyncio.timeout(30):
            return await work

    try:
        return asyncio.run(working())
    except ExceptionGroup as group:  # the client's own tasks
        first: Exception = group
        while isinstance(first, ExceptionGroup):
            first = first.exceptions[0]
        raise first from None


def read_text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def call_tool(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that must succeed; the client checks its answer against the output schema."""
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, read_text(found)
    assert read_text(found)
    assert isinstance(found.structured_content, dict)
    return found.structured_content


async def call_failing_tool(client: Client, tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    found = await client.call_tool(tool, arguments)
    assert found.is_error
    assert isinstance(found.structured_content, dict)
    assert "Traceback" not in read_text(found)
    return read_text(found), found.structured_content


# ── Tool descriptions ──


def test_every_argument_is_described_and_every_option_of_a_run_is_one() -> None:
    for tool in TOOLS.values():
        assert all(map(has_description, fields(tool.arguments_type))), tool.title
        for schema in (make_input_schema(tool.arguments_type), make_output_schema(tool.result_type)):
            assert schema["type"] == "object"
    for struct, made, omitted in (
        (RunRequest, RunArguments, {"cases"}),
        (Selection, SelectionArguments, set[str]()),
        (Limits, LimitsArguments, set[str]()),
    ):
        options = {get_published_name(each) for each in fields(struct)} - omitted
        assert {each.name for each in fields(made)} == options
        assert all(map(has_description, fields(made)))


def test_a_client_learns_the_tools_and_how_to_use_them(folder: Path) -> None:
    async def ask() -> None:
        async with Client(server_parameters(folder)) as client:
            assert client.instructions
            assert str(folder) in client.instructions
            assert "the user has set no cost limit" in client.instructions
            tools = {each.name: each for each in (await client.list_tools()).tools}
            assert (
                tools.keys()
                == TOOLS.keys()
                == {"validate", "run", "resume", "runs", "watches", "show", "failures", "compare", "baseline"}
            )
            for name, tool in tools.items():
                assert tool.output_schema == make_output_schema(TOOLS[name].result_type)
                assert tool.description
                assert tool.annotations
                assert tool.annotations.read_only_hint is (name not in ("run", "resume"))
            assert (await call_tool(client, "validate", text=EXAMPLE_CASE))["valid"], "the example of the instructions"

    run(ask())


def test_role_and_cost_limit_are_chosen_when_the_server_starts(folder: Path) -> None:
    async def ask() -> None:
        options = ("--role", "viewer", "--max-cost", "2.5")
        async with Client(
            server_parameters(folder, *options), mode="legacy"
        ) as client:  # older clients start differently
            assert client.instructions
            assert "All runs together may cost $2.5." in client.instructions
            assert {each.name for each in (await client.list_tools()).tools} == TOOLS.keys()
            _, said = await call_failing_tool(client, "run", paths=["capitals.jsonl"], models=["fake:echo"])
            assert said["code"] == "forbidden"

    run(ask())


# ── Tools ──


def test_an_agent_validates_runs_finds_failures_and_proves_its_fix(folder: Path) -> None:
    reports: list[tuple[float, float | None, str | None]] = []

    async def show(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    async def work() -> None:
        async with Client(server_parameters(folder)) as client:
            found = await call_tool(client, "validate", paths=["capitals.jsonl"])
            assert (found["valid"], found["files"], found["testCases"]) == (True, 1, 2)

            arguments = {"paths": ["capitals.jsonl"], "models": ["python:bot:reply"]}
            before = (await client.call_tool("run", arguments, progress_callback=show)).structured_content
            assert isinstance(before, dict)
            assert (before["status"], before["stored"], before["passRate"]) == ("finished", 2, 0.5)
            assert before["by"]["model"]["python:bot:reply"]["failed"] == 1
            assert reports[-1][:2] == (2, 2)
            assert before["id"] in (reports[-1][2] or "")

            failures = await call_tool(client, "failures", run=before["id"])
            (failure,) = failures["failures"]
            assert failures["total"] == 1
            assert (failure["caseId"], failure["prompt"], failure["reply"], failure["expected"]) == (
                "factual-002", "Capital of Italy?", "no idea", ["Rome"],
            )  # fmt: skip
            assert failure["reason"] == 'does not contain "Rome"'

            shown = await call_tool(client, "show", run=before["id"], result=failure["seq"])
            (result,) = shown["results"]
            assert shown["run"]["id"] == before["id"]
            assert result["case"]["turns"] == [{"role": "user", "text": "Capital of Italy?"}]
            assert (result["reply"]["text"], result["checks"][0]["outcome"]) == ("no idea", "failed")
            assert (await call_tool(client, "show", run=before["id"], case="factual-001"))["results"][0][
                "outcome"
            ] == "passed"

            changed = BOT.replace('"no idea"', "answers.ROME").replace("import os, sys", "import os, sys, answers")
            (folder / "answers.py").write_text('ROME = "Rome"')
            (folder / "bot.py").write_text(changed)
            after = await call_tool(client, "run", paths=["capitals.jsonl"], models=["python:bot:reply"])
            compared = await call_tool(client, "compare", base=before["id"], new=after["id"])
            assert [(each["case"], each["direction"]) for each in compared["flips"]] == [("factual-002", "gained")]
            assert (compared["baseRate"], compared["newRate"]) == (0.5, 1.0)
            assert (compared["margin"], compared["lossExcluded"]) == (5.0, False)
            wide = await call_tool(client, "compare", base=before["id"], new=after["id"], margin=95)
            assert (wide["margin"], wide["lossExcluded"]) == (95.0, True)
            checked = await call_tool(client, "baseline", run=after["id"], baseline=before["id"])
            assert (checked["passed"], checked["exitCode"], checked["baseline"]) == (True, 0, before["id"])
            strict = {"run": after["id"], "baseline": before["id"], "failOn": "inconclusive"}
            said = read_text(await client.call_tool("baseline", strict))
            assert said.startswith(f"Failed, exit code 4: run {after['id']} against the baseline {before['id']}.")

            listed = await call_tool(client, "runs", pageSize=1)
            assert ([each["id"] for each in listed["runs"]], listed["total"]) == ([after["id"]], 2)

            assert await call_tool(client, "watches") == {"watches": [], "alerts": []}

            await call_tool(client, "run", paths=["capitals.jsonl"], models=["python:bot:broken"])
            failures = await call_tool(client, "failures")
            assert {each["reply"] for each in failures["failures"]} == {"half ? a pair"}, "what UTF-8 cannot hold"

    run(work())


def test_short_texts_count_in_the_singular_and_say_when_nothing_failed(folder: Path) -> None:
    async def read_text(client: Client, name: str, **arguments: Any) -> str:
        answer = await client.call_tool(name, arguments)
        return "\n".join(each.text for each in answer.content if isinstance(each, TextContent))

    async def work() -> None:
        async with Client(server_parameters(folder)) as client:
            assert await read_text(client, "validate", paths=["capitals.jsonl"]) == (
                "valid: 1 file, 2 test cases, 0 scenarios; 0 errors, 0 warnings"
            )
            await call_tool(client, "run", paths=["capitals.jsonl"], models=["fake:fixed=Paris and Rome"])
            assert await read_text(client, "failures") == "No failed results."
            assert (await read_text(client, "runs")).startswith("1 run, newest first:\n")

    run(work())


def test_rates_and_times_of_several_models_are_not_pooled(folder: Path) -> None:
    languages = [{**json.loads(make_case_line(f"{name}-001", "Capital of Italy?", "Rome")), "category": name}
                 for name in ("factual", "reasoning")]  # fmt: skip
    (folder / "two.jsonl").write_text("\n".join(map(json.dumps, languages)), encoding="utf-8")
    models = ["fake:fixed=Rome", "fake:fixed=Oslo"]

    async def work() -> None:
        async with Client(server_parameters(folder)) as client:
            one = await call_tool(client, "run", paths=["two.jsonl"], models=models[:1])
            assert (one["passRate"], one["byModel"], one["latencyByModel"]) == (1.0, {}, {})
            assert {name: sorted(rows) for name, rows in one["by"].items()} == {
                "model": models[:1], "category": ["factual", "reasoning"],
            }  # fmt: skip
            both = await call_tool(client, "run", paths=["two.jsonl"], models=models)
            shown = (await call_tool(client, "show", run=both["id"]))["run"]
            for found in (both, shown):
                assert (found["passRate"], found["interval"], found["latencyP50Seconds"]) == (None, None, None)
                assert {name: rate["passRate"] for name, rate in found["by"].pop("model").items()} == {
                    models[0]: 1.0, models[1]: 0.0,
                }  # fmt: skip
                assert found["by"] == {}
                rates = {model: by["category"]["factual"]["passRate"] for model, by in found["byModel"].items()}
                assert rates == {models[0]: 1.0, models[1]: 0.0}
                assert found["latencyByModel"].keys() == set(models)
            newest, oldest = (await call_tool(client, "runs"))["runs"]
            assert (newest["passRate"], oldest["passRate"]) == (None, 1.0)
            assert [each["passRate"] for each in newest["modelRates"]] == [1.0, 0.0]

    run(work())


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        ({"selection": {"ids": []}}, "selection: ids"),
        ({"selection": {"allTags": []}}, "selection: allTags"),
        ({"scenarios": {"categories": []}}, "scenarios: categories"),
    ],
)
def test_an_empty_filter_is_refused_instead_of_selecting_everything(
    folder: Path, filters: dict[str, Any], named: str
) -> None:
    async def work() -> None:
        async with Client(server_parameters(folder)) as client:
            text, _ = await call_failing_tool(client, "run", paths=["capitals.jsonl"], models=["fake"], **filters)
            assert f"{named} is empty: no case would run; leave it out for all cases" in text
            assert (await call_tool(client, "runs"))["total"] == 0

    run(work())


def test_a_comparison_reports_different_plans(app: App, folder: Path) -> None:
    async def work() -> None:
        suite = {"paths": [str(folder / "capitals.jsonl")], "models": ["fake:echo"]}
        async with connect_in_process(app, "editor") as client:
            base = await call_tool(client, "run", **suite)
            new = await call_tool(client, "run", **suite, systemPrompt="Be kind.", temperature=1)
            said = read_text(await client.call_tool("compare", {"base": base["id"], "new": new["id"]}))
            wanted = "no system prompt before, one now; temperature 0 before, 1 now"
            assert f"The requests differ: {wanted}; this may explain the difference." in said.splitlines()

    run(work())


def test_failures_are_paginated_by_page_size(app: App, folder: Path) -> None:
    async def work() -> None:
        async with connect_in_process(app, "editor") as client:
            await call_tool(client, "run", paths=[str(folder / "many.jsonl")], models=["fake:fixed=none"])
            first = await call_tool(client, "failures", pageSize=15)
            last = await call_tool(client, "failures", pageSize=15, page=14)
            assert first["total"] == last["total"] == 200
            assert [each["caseId"] for each in first["failures"]] == [f"factual-{number}" for number in range(15)]
            assert [each["caseId"] for each in last["failures"]] == [f"factual-{number}" for number in range(195, 200)]
            assert await call_tool(client, "failures", outcome="errored") == {
                "run": "latest", "failures": [], "total": 0, "page": 1, "pageSize": 10,
            }  # fmt: skip

    run(work())


def test_two_clients_at_once_share_a_store(folder: Path) -> None:
    async def work() -> None:
        async with Client(server_parameters(folder)) as one, Client(server_parameters(folder)) as other:
            asked = {"paths": ["many.jsonl"], "limits": {"concurrency": 4}}
            runs = await asyncio.gather(
                call_tool(one, "run", models=["fake:latency=0.001,echo"], **asked),
                call_tool(one, "run", models=["fake:latency=0.001,seed=1,echo"], **asked),
                call_tool(other, "run", models=["fake:latency=0.001,seed=2,echo"], **asked),
                call_tool(other, "validate", paths=["many.jsonl"]),
            )
            ids = {each["id"] for each in runs[:3]}
            assert [each["stored"] for each in runs[:3]] == [200, 200, 200]
            for client in (one, other):
                assert {each["id"] for each in (await call_tool(client, "runs"))["runs"]} == ids

    run(work())


# ── Errors ──


def test_hostile_arguments_are_refused_by_name_and_never_a_defect(app: App, folder: Path) -> None:
    del folder
    junk: tuple[Any, ...] = (
        None,
        -1,
        1.5,
        "",
        "\x00",
        "\x1b[2J",
        [[]],
        {"a": 1},
        10**30,
        "../../etc/passwd",
        "x" * 10_000,
    )
    needed: dict[str, dict[str, Any]] = {
        "validate": {"paths": ["a.jsonl"]}, "run": {"paths": ["a.jsonl"], "models": ["fake:echo"]},
        "resume": {"run": "latest"}, "runs": {}, "watches": {}, "show": {"run": "latest"}, "failures": {}, "compare": {"base": "latest"},
        "baseline": {"baseline": "latest"},
    }  # fmt: skip

    async def work() -> None:
        async with connect_in_process(app, "editor") as client:
            for name, tool in TOOLS.items():
                for argument in make_input_schema(tool.arguments_type)["properties"]:
                    for value in junk:
                        answer = await client.call_tool(name, {**needed[name], argument: value})
                        assert not {*read_text(answer)} & {"\x00", "\x1b"}, (name, argument, value)
                        if answer.is_error:
                            assert answer.structured_content["code"] != "defect", (name, argument, read_text(answer))
            answer = await client.call_tool("show", {"run": "latest", "result": 10**30})
            assert "result: expected a whole number from 1 to" in read_text(answer)

    asyncio.run(work())


def test_a_lone_surrogate_in_an_argument_is_refused_by_name(app: App, folder: Path) -> None:
    del folder

    async def refuse(tool: str, argument: str, **needed: object) -> str:
        call = ToolCallContext(app, Credential(app.access.make_startup_token("editor", "")), ignore_progress, {})
        answer = await _call_tool(call, tool, {**needed, argument: "\ud800"})
        assert answer.is_error
        assert answer.structured_content is not None
        assert answer.structured_content["code"] == "invalid_input"
        return read_text(answer)

    for tool, argument in (("validate", "maxErrors"), ("runs", "page"), ("failures", "outcome")):
        assert f"{argument}: expected" in asyncio.run(refuse(tool, argument))
    run = asyncio.run(refuse("run", "temperature", paths=["a.jsonl"], models=["fake:echo"]))
    assert run.startswith("temperature: expected a number")


async def ignore_progress(*_: object) -> None:
    """Drop a progress notification."""


def test_problems_are_located_by_line_column_and_argument(app: App, folder: Path) -> None:
    bad = folder / "bad.jsonl"
    bad.write_text(
        make_case_line("factual-001", "Hi", "hi")
        + "\n"
        + make_case_line("factual-002", "Hi", "hi").replace("easy", "simple")
        + "\n"
    )

    async def work() -> None:
        async with connect_in_process(app, "editor") as client:
            found = await call_tool(client, "validate", paths=[str(bad)])
            (problem,) = found["problems"]
            assert (found["valid"], found["errors"], problem["line"], problem["path"]) == (
                False, 1, 2, "[1].metadata.difficulty",
            )  # fmt: skip
            assert problem["column"] > 1
            text, said = await call_failing_tool(client, "run", paths=[str(bad)], models=["fake"])
            assert text.startswith(f"{bad}:2:{problem['column']}: [1].metadata.difficulty: ")
            assert said["code"] == "invalid_input"
            assert said["details"] == [problem]

            text, said = await call_failing_tool(client, "run", model=["fake"], limits={"maxCost": -1, "deadline": 3})
            assert [each["path"] for each in said["details"]] == [
                "model", "limits.maxCost", "limits.deadline", "models",
            ]  # fmt: skip
            assert 'did you mean "models"?' in text
            assert "limits.maxCost: expected a number more than 0" in text

            for arguments, path in (
                ({"paths": ["a"], "text": "b"}, "paths"),
                ({}, "paths"),
                ({"text": "x", "kind": "yaml"}, "kind"),
            ):
                _, said = await call_failing_tool(client, "validate", **arguments)
                assert [each["path"] for each in said["details"]] == [path]

            text, said = await call_failing_tool(client, "show", run="nothing")
            assert (said["code"], text) == (
                "not_found", 'there is no run "nothing"; call the tool runs to see their ids',
            )  # fmt: skip
            assert "does not exist" in (await call_failing_tool(client, "validate", paths=["nowhere.jsonl"]))[0]
            assert "unknown tool" in (await call_failing_tool(client, "shows"))[0]
            text, _ = await call_failing_tool(client, "run", paths=[str(bad)], models=["fake"], selection={"limit": 0})
            assert text == "selection.limit: expected a whole number from 1, or null, found 0"

    run(work())


def test_a_failed_run_says_what_is_stored_and_how_to_resume(app: App, folder: Path) -> None:
    async def work() -> None:
        async with connect_in_process(app, "editor") as client:
            many = {"paths": [str(folder / "many.jsonl")], "limits": {"concurrency": 1}}
            text, said = await call_failing_tool(client, "run", models=["fake:out_of_credit=0.05"], **many)
            assert said["code"] == "out_of_credit"
            (listed,) = (await call_tool(client, "runs"))["runs"]
            assert listed["status"] == "stopped"
            assert f"{listed['stored']:,} of 200 results are stored" in text
            assert f"Run {listed['id']} of many is stopped" in text

    run(work())


# ── Cancellation ──


def test_a_cancelled_run_keeps_its_results_and_can_be_resumed(folder: Path) -> None:
    async def work() -> None:
        async with Client(server_parameters(folder)) as client:
            begun = asyncio.Event()

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                del total, message
                if progress:
                    begun.set()

            running = asyncio.ensure_future(client.call_tool("run", SLOW, progress_callback=on_progress))
            await begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            stopped = await wait_for_newest_run(client)
            assert stopped["status"] == "interrupted"
            assert 0 < stopped["stored"] < 200
            resumed = await call_tool(client, "resume", run="latest")
            assert (resumed["id"], resumed["status"], resumed["stored"]) == (stopped["id"], "finished", 200)

    run(work())


def test_a_run_whose_progress_cannot_be_reported_is_stopped(app: App, folder: Path) -> None:
    async def fail(*_: object) -> None:
        raise BrokenPipeError("the client disconnects")

    async def work() -> None:
        asked = RunArguments(
            paths=(str(folder / "many.jsonl"),),
            models=("fake:latency=0.02,echo",),
            limits=LimitsArguments(concurrency=1),
        )
        call = ToolCallContext(app, Credential(app.access.make_startup_token("editor", "of a test")), fail, {})
        with pytest.raises(BrokenPipeError):
            await TOOLS["run"].execute(call, asked)
        assert not call.active_runs, "nobody waits for the run any more, so it has ended"

    run(work())
    (left,) = app.store.runs.read_page(limit=5)[0]
    assert left.status == "interrupted"
    assert left.stored < 200


async def wait_for_newest_run(client: Client) -> dict[str, Any]:
    """Return the newest run once no process works on it."""
    while True:
        (found,) = (await call_tool(client, "runs"))["runs"]
        if found["status"] != "running":
            return dict(found)


class RawServer:
    """The server as a process, and its output lines."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pramana", "mcp"],
            cwd=folder,
            env=make_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        hello = {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"},
        }  # fmt: skip
        self.ask(1, "initialize", hello)
        assert self.read(lambda said: said.get("id") == 1)["result"]["serverInfo"]["name"] == "pramana"
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, number: int, method: str, params: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def call(self, number: int, tool: str, arguments: dict[str, Any]) -> None:
        self.ask(number, "tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": number}})

    def read(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first matching message; every line must be a message."""
        assert self.process.stdout
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            assert said["jsonrpc"] == "2.0"
            if wanted(said):
                return said
        raise AssertionError("the server has gone")


def begin_slow_run(raw: RawServer) -> None:
    raw.call(3, "run", SLOW)
    raw.read(lambda said: said.get("method") == "notifications/progress" and said["params"]["progress"] > 0)


def test_stdout_has_only_protocol_messages_and_a_signal_keeps_stored_results(folder: Path) -> None:
    raw = RawServer(folder)
    raw.call(2, "run", {"paths": ["capitals.jsonl"], "models": ["python:bot:reply"]})
    assert raw.read(lambda said: said.get("id") == 2)["result"]["structuredContent"]["stored"] == 2
    begin_slow_run(raw)
    raw.process.send_signal(signal.SIGTERM)
    rest, told = raw.process.communicate(timeout=20)
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
    for printed in ("printed by a function", "printed by a child", "written by native code"):
        assert told.count(printed) == 2
    assert raw.process.returncode == -signal.SIGTERM
    assert_interrupted()


def test_a_run_stops_when_its_client_disconnects(folder: Path) -> None:
    raw = RawServer(folder)
    begin_slow_run(raw)
    _, told = raw.process.communicate(timeout=20)  # closes stdin
    assert (raw.process.returncode, told) == (0, "")
    assert_interrupted()


def assert_interrupted() -> None:
    from pramana import settings

    with closing(open_store(settings.database_url())) as store:
        left = store.runs.find("latest")
        assert (left.status, left.holder) == ("interrupted", None)
        assert 0 < left.stored < left.expected
        assert sum(store.results.count_outcomes(left.id).values()) == left.stored


# ── Permissions and cost limits ──


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        yield App(store, local_program=LocalProgramSettings(SpendingLimit(None, SET_LIMIT_ADVICE)))


@asynccontextmanager
async def connect_in_process(app: App, role: Any) -> AsyncIterator[Client]:
    credential = Credential(app.access.make_startup_token(role, "of this MCP server"))
    async with Client(make_server(app, credential, "", {})) as client:
        yield client


def test_a_viewer_can_only_read_and_validate(app: App, folder: Path) -> None:
    async def work() -> None:
        suite = [str(folder / "capitals.jsonl")]
        async with connect_in_process(app, "editor") as client:
            base, made = [await call_tool(client, "run", paths=suite, models=["fake:echo"]) for _ in range(2)]
        async with connect_in_process(app, "viewer") as client:
            for tool, arguments in (("run", {"paths": suite, "models": ["fake:echo"]}), ("resume", {"run": "latest"})):
                text, said = await call_failing_tool(client, tool, **arguments)
                assert said["code"] == "forbidden"
                assert text == (
                    "this request needs the role editor, and the token of this MCP server has the role viewer; to allow "
                    "this, whoever configured the MCP server must start it without --role viewer"
                )
            assert (await call_tool(client, "validate", paths=suite))["valid"]
            assert (await call_tool(client, "show", run="latest"))["run"]["id"] == made["id"]
            assert (await call_tool(client, "failures"))["total"] == 2
            assert (await call_tool(client, "compare", base=base["id"], new=made["id"]))["pairs"] == 2
            assert (await call_tool(client, "runs"))["total"] == 2

    run(work())


def test_paid_models_are_refused_without_a_cost_limit(app: App, folder: Path) -> None:
    async def work() -> None:
        suite = [str(folder / "capitals.jsonl")]
        async with connect_in_process(app, "editor") as client:
            for asked in (
                {"models": ["openai:gpt-5"]},
                {"models": ["http://127.0.0.1:9/v1#any"], "limits": {"maxCost": 100}},
                {"models": ["fake:echo"], "judge": "openai:gpt-5"},
            ):
                text, said = await call_failing_tool(client, "run", paths=suite, **asked)
                assert said["code"] == "cost_not_allowed"
                assert "pramana mcp --max-cost" in text
            assert (await call_tool(client, "runs"))["total"] == 0, "nothing was started"

    run(work())


def test_all_runs_share_one_cost_limit(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pramana import settings

    monkeypatch.syspath_prepend(str(folder))
    settings.prices_file_path().parent.mkdir(parents=True, exist_ok=True)
    settings.prices_file_path().write_text(
        '[prices."python:bot:paid"]\ninput_per_million = 1.0\noutput_per_million = 0.0\n'
    )

    async def work(app: App) -> None:
        asked = {"paths": [str(folder / "many.jsonl")], "models": ["python:bot:paid"]}
        async with connect_in_process(app, "editor") as client:
            first = await call_tool(client, "run", **asked, limits={"maxCost": 2, "concurrency": 1})
            assert (first["status"], first["stored"], first["costUsd"]) == ("stopped", 2, 2.0)
            second = await call_tool(client, "run", **asked, limits={"concurrency": 1})
            assert (second["status"], second["stored"]) == ("stopped", 3), "what the first has left of the $5"
            text, said = await call_failing_tool(client, "run", **asked)
            assert said["code"] == "cost_not_allowed"
            assert "the cost limit of $5 for all runs of this program is used up" in text
            assert (await call_tool(client, "runs"))["total"] == 2
            text, said = await call_failing_tool(client, "resume", run=first["id"])
            assert said["code"] == "cost_not_allowed"

    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        run(work(App(store, local_program=LocalProgramSettings(SpendingLimit(5.0, SET_LIMIT_ADVICE)))))


def test_a_missing_mcp_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    monkeypatch.delitem(sys.modules, "pramana.show.mcp")
    found = CliRunner().invoke(pramana, ["mcp"])
    assert str(found.exception) == f"pramana mcp needs the MCP SDK; install it: {make_install_command('mcp')}"
    assert getattr(found.exception, "exit_code", None) == 2


def test_watches_are_listed_with_their_state_and_alerts(folder: Path) -> None:
    started = subprocess.run(
        [sys.executable, "-m", "pramana", "drift", "start", "fake:echo", "--tier", "cheap", "--name", "bot"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert started.returncode == 0, started.stderr

    async def work() -> None:
        async with Client(server_parameters(folder)) as client:
            (found,) = (await call_tool(client, "watches"))["watches"]
            assert (found["name"], found["level"]) == ("bot", "collecting")
            named = await call_tool(client, "watches", watch="bot")
            assert ([each["id"] for each in named["watches"]], named["alerts"]) == ([found["id"]], [])

    run(work())


def test_compare_returns_a_table_for_three_models_of_a_run_and_for_further_runs(folder: Path) -> None:
    async def compare() -> None:
        async with Client(server_parameters(folder)) as client:
            models = ["fake:fixed=Rome Paris", "fake:fixed=Rome", "fake:fixed=none"]
            made = await call_tool(client, "run", paths=["capitals.jsonl"], models=models)
            table = await call_tool(client, "compare", base=made["id"])
            assert [(each["model"], each["passed"]) for each in table["sides"]] == [
                ("fake:fixed=Rome Paris", 2), ("fake:fixed=Rome", 1), ("fake:fixed=none", 0),
            ]  # fmt: skip
            assert (len(table["pairs"]), table["comparisons"], table["against"]) == (3, 3, None)
            said = read_text(await client.call_tool("compare", {"base": made["id"]}))
            assert said.startswith(f"3 models of {table['sides'][0]['title']}")
            one = await call_tool(client, "compare", base=made["id"], against="fake:fixed=none")
            assert (len(one["pairs"]), one["against"]) == (2, one["sides"][2]["name"])
            two = await call_tool(client, "compare", base=made["id"], model=models[0], newModel=models[2])
            assert [each["direction"] for each in two["flips"]] == ["lost", "lost"], "two models are compared in detail"

            runs = [(await call_tool(client, "run", paths=["capitals.jsonl"], models=[each]))["id"] for each in models]
            several = await call_tool(client, "compare", base=runs[0], new=runs[1], more=[runs[2]])
            assert [each["run"] for each in several["sides"]] == runs
            said, _ = await call_failing_tool(client, "compare", base=runs[0], more=["r0"])
            assert "r0" in said

    run(compare())
