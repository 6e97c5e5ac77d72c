"""Errors say what happened and what to do; each front end words the advice for its users."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import pytest

from pramana.errors import (
    COMMAND_HINTS,
    PYTHON_HINTS,
    Hint,
    HintKey,
    InvalidInput,
    NotFound,
    PramanaError,
    Problem,
    UnknownModel,
    describe_value,
    fold_repeats,
    set_field_path_if_missing,
)
from pramana.request import RunRequest, Selection
from pramana.show.api.envelope import API_HINTS
from pramana.show.mcp import AGENT_HINTS
from pramana.show.web.kit.page_context import PAGE_HINTS
from pramana.watch_request import AlertDestination, WatchRequest

KEYS: tuple[HintKey, ...] = get_args(HintKey)
ONLY_BY_COMMAND = {"resume_run", "publish_suite", "create_token"}
"""Their files are on the machine of the command; a first token can be created there only."""


FRONT_ENDS = {
    "command": COMMAND_HINTS,
    "python": PYTHON_HINTS,
    "api": API_HINTS,
    "page": PAGE_HINTS,
    "agent": AGENT_HINTS,
}
FILTERS = Selection(all_tags=("vip",), limit=3)


@pytest.mark.parametrize("hints", FRONT_ENDS.values(), ids=FRONT_ENDS)
def test_every_front_end_words_every_hint(hints: Mapping[HintKey, str]) -> None:
    assert hints.keys() == set(KEYS)
    for key in KEYS:
        about = FILTERS if key == "check_filters" else "abc"
        said = NotFound("no such thing", hint=Hint(key, about)).explain(hints)
        assert said.startswith("no such thing; ")
        assert "{}" not in said


@pytest.mark.parametrize(
    ("front_end", "filters"),
    [
        ("command", "--all-tags vip --limit 3"),
        ("python", 'selection={"all_tags": ["vip"], "limit": 3}'),
        ("api", 'the filters {"allTags": ["vip"], "limit": 3}'),
        ("agent", 'the selection {"allTags": ["vip"], "limit": 3}'),
    ],
)
def test_every_front_end_names_filters_as_its_users_write_them(front_end: str, filters: str) -> None:
    found = InvalidInput("no case matches the filters", hint=Hint("check_filters", FILTERS))
    said = pickle.loads(pickle.dumps(found)).explain(FRONT_ENDS[front_end])  # noqa: S301 - ours
    assert said == f"no case matches the filters; check the spelling of {filters}"


def test_only_the_command_line_names_its_options() -> None:
    for name in ("python", "api", "page", "agent"):
        own = {key: words for key, words in FRONT_ENDS[name].items() if key not in ONLY_BY_COMMAND}
        assert [key for key, words in own.items() if " --" in words] == []


def test_routes_and_pages_do_not_refer_to_commands_for_their_own_actions() -> None:
    for hints in (API_HINTS, PAGE_HINTS):
        assert {key for key, words in hints.items() if "pramana " in words} == ONLY_BY_COMMAND


def test_an_error_shows_its_message_and_hint_even_after_copying() -> None:
    assert str(NotFound("there is none")) == "there is none"
    found = pickle.loads(pickle.dumps(UnknownModel("no such model", status=404, hint=Hint("list_models"))))  # noqa: S301 - ours
    assert (str(found), found.status) == ("no such model; list the models on offer: pramana models", 404)


def test_an_error_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="not http_staus"):
        type("Wrong", (PramanaError,), {}, http_staus=404)


def test_equal_problems_fold_into_the_first_with_their_count() -> None:
    same = [Problem("Invalid category", f"[{n}].category", n + 1, 8, "a.jsonl") for n in range(3)]
    other = Problem("Invalid category", "[3].metadata", 4, 8, "a.jsonl")
    assert [(each.first.line, each.count) for each in fold_repeats([*same, other])] == [(1, 3), (4, 1)]
    quoting = [Problem(f'id "{name}" is vague', "[0].id", severity="warning") for name in ("a", "b")]
    assert [(each.first.message, each.times) for each in fold_repeats(quoting)] == [('id "a" is vague', " (2 times)")]
    errors = [replace(each, severity="error") for each in quoting]
    assert len(fold_repeats(errors)) == 2, "what an error quotes has to be corrected"


def test_a_message_shows_repeated_problems_once_and_keeps_them_all() -> None:
    wrong = [Problem(f"wrong in way {n % 4}", f"[{n}].id", n + 1, 1, "a.jsonl") for n in range(40)]
    error = InvalidInput.from_problems(wrong, 50)
    ways = "; ".join(f"a.jsonl:{n + 1}:1: [{n}].id: wrong in way {n} (10 times)" for n in range(3))
    assert str(error) == f"{ways} (and 20 more)"
    assert len(error.problems) == 40
    assert str(InvalidInput.from_problems(wrong[:4])) == "a.jsonl:1:1: [0].id: wrong in way 0 (and 3 more)"


def test_a_message_cannot_control_a_terminal_and_can_always_be_printed() -> None:
    error = NotFound("no file \x1b[2J\x00\ud800\u202e\x9b;\n\tline two, é ☃")
    assert str(error) == "no file \\x1b[2J\\x00\\ud800\\u202e\\x9b;\n\tline two, é ☃"
    str(error).encode()


def test_a_value_is_described_whatever_it_is() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    assert [describe_value(each) for each in (Broken(), deep, 10**5_000, "a\x1b", b"x")] == [
        "a Broken", "a list", "a int", "'a\\x1b'", "b'x'",
    ]  # fmt: skip
    assert len(describe_value("x" * 10**7)) == 60


def test_an_error_names_the_field_that_is_wrong_unless_it_names_its_places() -> None:
    error = NotFound("there is no model x", hint=Hint("start_run"))
    set_field_path_if_missing(error, "models[1]")
    set_field_path_if_missing(error, "another")
    assert error.problems == (Problem("there is no model x", "models[1]"),)
    with pytest.raises(InvalidInput) as refused:
        WatchRequest(run=RunRequest(models=("fake",)), delivery=AlertDestination(secret="s")).check()  # noqa: S106 - signs nothing
    assert [each.path for each in refused.value.problems] == ["webhook"]
