"""`pramana mcp`: a Model Context Protocol server on stdin and stdout, built with the protocol's SDK.

Tool calls come in; structured results, progress and error messages go out, never a traceback. While it serves, stdout
belongs to the SDK: anything that a model, an engine or a user's function prints goes to stderr.
"""

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from pramana.app import App, Credential
from pramana.app.access import Forbidden
from pramana.app.local import CANCEL_GRACE_S, problem_view
from pramana.app.views import RunDetailView
from pramana.errors import (
    COMMAND_HINTS,
    HintKey,
    NotFound,
    PramanaError,
    describe_exception,
    quote_text,
    suggest_similar,
)
from pramana.report import briefs
from pramana.run.engine import INTERRUPTED_BY_USER_REASON, Stop
from pramana.show.tool_arguments import make_input_schema, make_output_schema, read_arguments
from pramana.show.tools import TOOLS, Tool, ToolCallContext

ActiveRuns = dict[asyncio.Future[RunDetailView], Stop]
AGENT_HINTS: Mapping[HintKey, str] = {
    **COMMAND_HINTS,
    "list_runs": "call the tool runs to see their ids",
    "list_scorings": "the first scoring of {0} is {0}@0",
    "start_run": "call the tool run to start a run",
    "resume_run": "call the tool resume with the run {}",
    "any_suite": "to compare {}, set anySuite",
    "compare_any_suite": "to compare the cases that both have, call the tool compare with anySuite",
    "run_stored": "give the path store:{}",
    "check_filters": "check the spelling of the selection {:json}",
    "name_judge": "name another model as judge",
    "choose_modalities": 'choose the modalities: modality ["text", "voice"]',
    "send_parameter": 'give the parameter {0} of your function a default, or send it: parameters {{"{0}": VALUE}}',
}
"""Hints for a coding agent; some of them name commands, where no tool can help."""
EXAMPLE_CASE = (
    '{"id": "factual-001", "category": "factual", "input": "What is the capital of France?", "ideal": "Paris", '
    '"assertion": {"type": "contains"}, "metadata": {"difficulty": "easy", "tokens_est": 10}}'
)
INSTRUCTIONS = """\
Pramana evaluates language models, voice agents and your own functions on test cases, and keeps every result.

Usual order: `validate` your cases, `run` them, look at `failures`, change your code, `run` again, `compare` the two.
A suite is a JSONL file with one case a line: {example}; `pramana schema suite` prints its \
schema. A model is a name (`openai:gpt-5`, `anthropic:...`, `local`), a Python function \
(`python:package.module:function`, from prompt to reply) or a command (`command:NAME`). `fake:echo` costs nothing and \
needs no network. Relative paths start at {folder}. {money}
Pass rates come with a 95 % interval. An error is not a failure: errored and unscored results have no verdict. Run ids \
can be shortened; `latest` is the newest run.
"""


def make_server(app: App, credential: Credential, cost_note: str, active_runs: ActiveRuns) -> Server[Any]:
    """Return a server whose tools act with this credential; `cost_note` is the sentence on what runs may cost."""

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe_tool(name, tool) for name, tool in TOOLS.items()])

    async def call_tool(
        context: ServerRequestContext[Any], wanted: types.CallToolRequestParams
    ) -> types.CallToolResult:
        call = ToolCallContext(app, credential, context.session.report_progress, active_runs)
        return await _call_tool(call, wanted.name, wanted.arguments or {})

    return Server(
        "pramana",
        version=version("pramana"),
        title="Pramana",
        instructions=_replace_surrogates(INSTRUCTIONS.format(example=EXAMPLE_CASE, folder=Path.cwd(), money=cost_note)),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _describe_tool(name: str, tool: Tool) -> types.Tool:
    return types.Tool(
        name=name,
        title=tool.title,
        description=tool.description,
        input_schema=make_input_schema(tool.arguments_type),
        output_schema=make_output_schema(tool.result_type),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.read_only, destructive_hint=False, open_world_hint=not tool.read_only
        ),
    )


async def _call_tool(call: ToolCallContext, name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
    """Call a tool and return its result; an error becomes a result with a message, never a traceback."""
    try:
        tool = _find_tool(name)
        answer = await tool.execute(call, read_arguments(tool.arguments_type, arguments))
        if answer.error is not None:
            return _make_error_result(answer.error, answer.text)
    except PramanaError as error:
        return _make_error_result(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _make_raw_error_result({"code": "os_error", "error": f"{where}{error.strerror or error}", "details": []})
    except Exception as error:  # noqa: BLE001 - an internal error must not end the server
        return _make_raw_error_result(
            {"code": "defect", "error": f"internal error: {describe_exception(error)}", "details": []}
        )
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=_replace_surrogates(answer.text))],
        structured_content=_replace_surrogates(msgspec.to_builtins(answer.structured_result)),
    )


def _find_tool(name: str) -> Tool:
    if name in TOOLS:
        return TOOLS[name]
    raise NotFound(
        f"unknown tool {quote_text(name)}{suggest_similar(name, TOOLS)}; available tools: {', '.join(TOOLS)}"
    )


def _make_error_result(error: PramanaError, more_text: str = "") -> types.CallToolResult:
    """Return the result for an error: its message, its hint, and every problem with its place."""
    message = error.explain(AGENT_HINTS)
    if isinstance(error, Forbidden):
        message += "; to allow this, whoever configured the MCP server must start it without --role viewer"
    details = [problem_view(each) for each in error.problems]
    lines = [briefs.render_problem(each) for each in details] if len(details) > 1 else [message]
    text = "\n".join([*lines, *([more_text] if more_text else [])])
    return _make_raw_error_result({"code": error.code, "error": message, "details": msgspec.to_builtins(details)}, text)


def _make_raw_error_result(content: dict[str, Any], text: str = "") -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=_replace_surrogates(text or content["error"]))],
        structured_content=_replace_surrogates(content),
        is_error=True,
    )


def _replace_surrogates(value: Any) -> Any:
    """Return JSON values with lone surrogates replaced: a reply may contain them, and UTF-8 cannot encode them."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_replace_surrogates(name): _replace_surrogates(each) for name, each in value.items()}
        case list() | tuple():
            return [_replace_surrogates(each) for each in value]
    return value


async def serve(app: App, credential: Credential, cost_note: str) -> None:
    """Serve one client on stdin and stdout until it disconnects."""
    under_way: ActiveRuns = {}
    server = make_server(app, credential, cost_note, under_way)
    with _end_runs_on_signal(under_way):
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())


@contextmanager
def _end_runs_on_signal(active_runs: ActiveRuns) -> Iterator[None]:
    """On a signal, stop the active runs and then end the process.

    The process must be ended explicitly, because one of its threads blocks on the next line of stdin.
    """
    loop = asyncio.get_running_loop()
    ending: list[asyncio.Task[None]] = []

    async def end(number: signal.Signals) -> None:
        for stop in list(active_runs.values()):
            stop(INTERRUPTED_BY_USER_REASON)
        if active_runs:
            await asyncio.wait(list(active_runs), timeout=2 * CANCEL_GRACE_S)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def begin_to_end(number: signal.Signals) -> None:
        ending.append(loop.create_task(end(number)))

    handled = []
    for each in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", None)):
        with suppress(NotImplementedError):  # Windows, where the client ends the process
            if each:
                loop.add_signal_handler(each, begin_to_end, each)
                handled.append(each)
    try:
        yield
    finally:
        for each in handled:
            loop.remove_signal_handler(each)
