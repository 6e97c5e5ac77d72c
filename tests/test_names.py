"""Names in `src/` and `tests/` say what they are: riddles, jokes and bare participles are listed here and refused.

In the tests, names are those of functions, fixtures, classes and constants, their attributes, and parameters.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import pramana

RIDDLES = {
    "amounts": "`render_summary`",
    "as_it_is": "`keep_judge_name`",
    "counted": "what is counted, as a verb phrase or a noun: `pluralise`, `counts`",
    "desk": "`PageContext`, `context`",
    "ended_so": "`outcome_links`",
    "found": "what was found, by its noun: `view`, `match`, `actual`",
    "garbage_left_lying": "`gc_paused`",
    "here": "the place, by its noun: `app`, `page_url`",
    "how_asked": "`resolve_variants`",
    "keyless": "`explain_missing_provider_keys`",
    "lookalike": "`needs_quotes_as_number`",
    "misfit": "what does not fit what: `describe_type_mismatch`, `make_malformed_error`",
    "misfits": "what does not fit what: `MALFORMED_RESPONSE_ERRORS`",
    "misspelt": "`describe_refused_host`",
    "nobody": "what is refused or empty, by its noun",
    "odd": "`send_unknown_event`",
    "overhear": "`read_errors`",
    "owed": "`missing`, `due_replies`",
    "said": "`transcript`, `message`, `response`",
    "together": "`BATCH_SIZE`, `merge_…`",
    "told": "the action: `describe_exception`, `wrap_for_terminal`",
    "who": "`user`, `judge_name`, `provider`",
    "who_judges": "`resolve_judge`",
    "whom": "`render_models`, `provider`",
    "whose": "`owner`",
    "wish": "`wanted_id`",
    "wrongs": "`find_…_problems`",
}
"""Words that name nothing by themselves, without underscores and capitals, each with what to write instead."""

PATTERNS = {
    r"(who|whom|whose)_\w+": "name the role: `resolve_judge`, `current_user`",
    r"\w+_(nobody|somebody|anybody|whoever)(_\w+)?": "name the role: `user`, `listener`",
    r"\w+_(lying|as_it_is|as_they_are)": "name what it returns or does",
    r"test_(what|who|whom|whose|whoever|nobody|somebody)_\w+": "begin with the subject: `test_an_invalid_…`, `test_viewers_…`",
    r"test_\w+_(told|asked|said)(_\w+)?": "say what happens: `is_reported`, `is_sent`, `is_shown`",
}
"""Whole names, without leading underscores and capitals."""

FUNCTION_RIDDLES = {
    "again": "the action that is repeated: `refresh`, `repeat_question`",
    "asking": "the client by its noun: `TargetClient`",
    "bring": "`download`, `import_files`, `submit_token`",
    "hurry": "`stop_waiting_for_rate_limits`, `end_now`",
    "why_not": "`explain_…`, `find_…_problem`",
    "whole": "what is counted or shown: `format_count`",
    r"(told|said|asked|heard)_\w+": "name what it is: a message, a request, a transcript",
}
"""Words that a parameter may have, but no function by itself."""

PARTICIPLE = re.compile(
    r"[a-z]+ed|begun|brought|drawn|found|given|gone|heard|kept|known|left|made|said|sent|shown|spoken|told|typed|written"
)
VERBS = {"embed", "feed", "need", "proceed", "seed", "speed"}
"""What ends like a participle and is none."""

DOCUMENTED = {
    "app/calls.py: TranscriptEntryView.who",
    "app/calls.py: TurnTakenView.who",
    "library/report.py: Report.finished",
    "library/report.py: Report.passed",
}
"""Names that the API's answers, results or the library's documentation have."""


class Name(NamedTuple):
    """A name that a module defines."""

    where: str
    line: int
    name: str
    is_function: bool = False


def defined_names(file: Path, where: str) -> Iterator[Name]:
    """Yield every function, class, constant, attribute and parameter of a module; locals are nobody else's."""
    yield from _names(ast.parse(file.read_text(encoding="utf-8")).body, f"{where}: ", in_function=False)


def _names(body: list[ast.stmt], prefix: str, *, in_function: bool) -> Iterator[Name]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield Name(prefix + node.name, node.lineno, node.name, is_function=True)
                args = node.args
                every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
                for parameter in every:
                    yield Name(f"{prefix}{node.name}({parameter.arg})", parameter.lineno, parameter.arg)
                yield from _attributes(node, prefix)
                yield from _names(node.body, f"{prefix}{node.name}.", in_function=True)
            case ast.ClassDef():
                yield Name(prefix + node.name, node.lineno, node.name)
                yield from _names(node.body, f"{prefix}{node.name}.", in_function=False)
            case ast.Assign() | ast.AnnAssign() if not in_function:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    for each in ast.walk(target):
                        if isinstance(each, ast.Name):
                            yield Name(prefix + each.id, each.lineno, each.id)
            case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try():
                for part in (node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])):
                    yield from _names(part, prefix, in_function=in_function)


def _attributes(function: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str) -> Iterator[Name]:
    """Yield what a method assigns to attributes of its object."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield Name(prefix + node.attr, node.lineno, node.attr)


def advice(name: Name) -> str | None:
    """Return what to write instead of a name; None where it is a good one."""
    word = name.name.strip("_").lower()
    if word in RIDDLES:
        return RIDDLES[word]
    for pattern, instead in PATTERNS.items():
        if re.fullmatch(pattern, word):
            return instead
    for pattern, instead in FUNCTION_RIDDLES.items() if name.is_function else ():
        if re.fullmatch(pattern, word):
            return instead
    if name.is_function and word not in VERBS and PARTICIPLE.fullmatch(word):
        return "a verb phrase that says what it returns or does, or `is_…` where it answers yes or no"
    return None


def riddles(root: Path) -> list[str]:
    """Return a line for each riddle in a folder of modules."""
    return [
        f"{name.where} (line {name.line}): write {instead}"
        for file in sorted(root.rglob("*.py"))
        for name in defined_names(file, file.relative_to(root).as_posix())
        if (instead := advice(name)) and name.where not in DOCUMENTED
    ]


@pytest.mark.parametrize(
    "folder", [Path(pramana.__file__).parent, Path(__file__).parent], ids=lambda folder: folder.name
)
def test_no_name_is_a_riddle(folder: Path) -> None:
    found = riddles(folder)
    assert not found, "\n".join([f"Names in {folder.name} that a reader cannot guess:", *found])


@pytest.mark.parametrize(
    "source",
    [
        "def told(error): ...",
        "def _counted(number): ...",
        "class Desk: ...",
        "TOGETHER = 64",
        "class Page:\n    def __init__(self): self._who = None",
        "class Page:\n    misfit: str",
        "def render(found): ...",
        "def page():\n    def whose_page(): ...",
        "def shortened(text): ...",
        "@pytest.fixture\ndef judged(): ...",
        "def test_a_reply(told): ...",
        "def test_the_user_is_told_why(): ...",
        "def test_what_is_wrong_is_refused(): ...",
        "def test_a_change_of_somebody_else(): ...",
        "class TestRun:\n    def opened(self): ...",
    ],
)
def test_a_riddle_is_found_wherever_it_is_defined(tmp_path: Path, source: str) -> None:
    (tmp_path / "module.py").write_text(source)
    assert len(riddles(tmp_path)) == 1


def test_locals_and_plain_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("def embed(texts):\n    found = texts\n    return found\n\n\nBATCH_SIZE = 64\n")
    assert riddles(tmp_path) == []
