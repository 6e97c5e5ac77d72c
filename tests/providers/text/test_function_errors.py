"""Error messages for functions that raise, cannot be imported, or are called with too few arguments."""

import asyncio
import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pramana.errors import InvalidInput, ProviderError
from pramana.model import Request, Turn
from pramana.providers.text.function import FunctionProvider, is_conversation

AGENT = """
import asyncio, json
from . import tools

def parses(prompt): return json.loads(prompt)
def calls_a_tool(prompt): return tools.look_up(prompt)
async def awaits_a_tool(prompt):
    await asyncio.sleep(0)
    return await tools.look_up_later(prompt)
def wraps(prompt):
    try:
        return tools.look_up(prompt)
    except KeyError as error:
        raise RuntimeError("no such order") from error
def generated(prompt): return eval("1 / 0")
def with_history(prompt, history): return prompt
def with_both(prompt, messages): return prompt
def takes_messages(messages): return str(len(messages))
async def takes_messages_later(messages): return " ".join(each["role"] for each in messages)
def shout(prompt): return prompt.upper()
"""
TOOLS = """
def look_up(order):
    return {}[order]

async def look_up_later(order):
    return look_up(order)
"""
INSTALLED = "def breaks(prompt):\n    raise OSError('no disk')\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a package, a package installed beside it, and modules that cannot be imported."""
    for name, text in {
        "agents/__init__.py": "",
        "agents/support.py": AGENT,
        "agents/tools.py": TOOLS,
        "agents/needy.py": "import a_missing_package\n",
        "agents/failing.py": "def connect():\n    raise ConnectionError('no database')\nconnect()\n",
        "agents/misspelt.py": "def f(:\n",
        "lib/site-packages/installed_agent.py": INSTALLED,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "lib/site-packages")])
    importlib.invalidate_caches()
    yield tmp_path
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("agents", "installed_agent"):
            del sys.modules[name]


def ask(path: str, *texts: str, system: str = "", **parameters: Any) -> str:
    """Call a function once; `texts` are alternating turns of user and assistant."""
    turns = [Turn("system", system)] if system else []
    turns += [Turn("assistant" if place % 2 else "user", text) for place, text in enumerate(texts or ("hi",))]

    async def go() -> str:
        provider = FunctionProvider(path)
        try:
            return (await provider.ask(Request("x", tuple(turns), parameters))).text
        finally:
            await provider.close()

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("agents.support:calls_a_tool", "KeyError: 'hi' (agents/tools.py, line 3, in look_up)"),
        ("agents.support:awaits_a_tool", "KeyError: 'hi' (agents/tools.py, line 3, in look_up)"),
        ("agents.support:wraps", "RuntimeError: no such order (agents/support.py, line 14, in wraps)"),
        ("agents.support:generated", "ZeroDivisionError: division by zero (agents/support.py, line 15, in generated)"),
        ("installed_agent:breaks", "OSError: no disk (lib/site-packages/installed_agent.py, line 2, in breaks)"),
    ],
)
def test_an_error_names_the_innermost_frame_of_the_users_code(path: str, message: str) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(path)
    assert str(caught.value) == f"{path} raised {message}"


def test_an_error_inside_the_standard_library_names_the_line_that_called_it() -> None:
    with pytest.raises(ProviderError, match=r"JSONDecodeError: .* \(agents/support\.py, line 5, in parses\)$"):
        ask("agents.support:parses")


def test_a_file_outside_the_working_directory_is_named_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(ProviderError, match=r"KeyError: 'hi' \(tools\.py, line 3, in look_up\)$"):
        ask("agents.support:calls_a_tool")


def test_an_error_in_interactive_code_names_the_line() -> None:
    typed: dict[str, Any] = {"__name__": "typed"}
    exec(compile("def agent(prompt):\n    return 1 / 0\n", "<stdin>", "exec"), typed)  # noqa: S102 - as a prompt would
    provider = FunctionProvider("typed:agent", typed["agent"])
    with pytest.raises(ProviderError, match=r"division by zero \(<stdin>, line 2, in agent\)$"):
        asyncio.run(provider.ask(Request("x", (Turn("user", "hi"),))))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("agents.support:shuot", "has no attribute 'shuot'; did you mean \"shout\"?"),
        ("agents.support:qqqqqq", "has no attribute 'qqqqqq'; check the name of the function"),
        ("agents/support.py:shout", "; name the module as Python imports it: agents.support"),
        ("./agents/support.py:shout", "; name the module as Python imports it: agents.support"),
        ("agents.suport:shout", "; check the name, and that the module is installed or in the current folder"),
        ("agents.needy:f", "(agents/needy.py, line 1, in <module>); install what agents.needy imports in Pramana's"),
        (
            "agents.failing:f",
            "ConnectionError: no database (agents/failing.py, line 2, in connect); fix agents.failing, which raises "
            "this error on import",
        ),
        ("agents.misspelt:f", "(misspelt.py, line 1); fix agents.misspelt, which raises this error on import"),
    ],
)
def test_a_function_that_cannot_be_imported_says_what_to_do(path: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        FunctionProvider(path)
    assert message in str(caught.value)


def test_an_absolute_path_below_the_working_directory_is_named_as_a_module(project: Path) -> None:
    with pytest.raises(InvalidInput, match=r"; name the module as Python imports it: agents\.support$"):
        FunctionProvider(f"{project.resolve()}/agents/support.py:shout")


def test_a_required_parameter_that_the_run_does_not_send_is_named() -> None:
    with pytest.raises(ProviderError) as caught:
        ask("agents.support:with_history")
    assert str(caught.value) == (
        "agents.support:with_history requires history, which the run does not send (for the conversation, a function "
        "with a parameter `messages` gets the whole conversation, as a list of messages); give the parameter history a default"
    )
    assert ask("agents.support:with_history", history="none") == "hi"


def test_a_function_of_both_prompt_and_messages_gets_an_explanatory_error() -> None:
    with pytest.raises(
        ProviderError,
        match=r"requires prompt, .* \(`messages` replaces the prompt\); give the parameter prompt a default$",
    ):
        ask("agents.support:with_both")


def test_a_prompt_function_that_gets_a_conversation_is_hinted_at_messages_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = FunctionProvider("agents.support:shout")
    turns = (Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c"))

    async def go() -> list[str]:
        replies = [await provider.ask(Request("x", turns)) for _ in range(3)]
        await provider.close()
        return [reply.text for reply in replies]

    with caplog.at_level(logging.WARNING, logger="pramana.providers"):
        assert asyncio.run(go()) == ["A\n\nB\n\nC"] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "agents.support:shout takes only a prompt, so it gets each conversation as one text; a function with a "
        "parameter `messages` gets the whole conversation, as a list of messages"
    ]


@pytest.mark.parametrize("path", ["agents.support:takes_messages", "agents.support:takes_messages_later"])
def test_a_function_of_messages_gets_no_hint(path: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pramana.providers"):
        assert ask(path, "a", "b", "c") in ("3", "user assistant user")
    assert not caplog.records


def test_one_message_with_a_system_prompt_is_not_a_conversation(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pramana.providers"):
        assert ask("agents.support:shout", "hi", system="Be brief.") == "BE BRIEF.\n\nHI"
    assert not caplog.records
    assert is_conversation([Turn("user", "a"), Turn("assistant", "b")])
