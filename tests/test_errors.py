"""An error says what happened and what to do; each front end words what to do for its own users."""

import pickle
from collections.abc import Mapping
from typing import get_args

import pytest

from pramana.errors import COMMAND_HINTS, Hint, HintKey, NotFound, PramanaError, UnknownModel
from pramana.show.api.envelope import API_HINTS
from pramana.show.web.kit.desk import PAGE_HINTS

KEYS: tuple[HintKey, ...] = get_args(HintKey)
ONLY_BY_COMMAND = {"resume_run", "publish_suite", "create_token"}
"""Their files are where the command is; and whoever has no valid token can make one on the machine alone."""


@pytest.mark.parametrize("hints", [COMMAND_HINTS, API_HINTS, PAGE_HINTS], ids=["command", "api", "page"])
def test_every_front_end_has_words_for_every_hint(hints: Mapping[HintKey, str]) -> None:
    assert hints.keys() == set(KEYS)
    for key in KEYS:
        assert NotFound("no such thing", hint=Hint(key, "abc")).explain(hints).startswith("no such thing; ")


def test_neither_a_route_nor_a_page_sends_anyone_to_a_command_that_it_has_itself() -> None:
    for hints in (API_HINTS, PAGE_HINTS):
        assert {key for key, words in hints.items() if "pramana " in words} == ONLY_BY_COMMAND


def test_an_error_without_a_hint_is_its_message_and_both_survive_a_copy() -> None:
    assert str(NotFound("there is none")) == "there is none"
    found = pickle.loads(pickle.dumps(UnknownModel("no such model", status=404, hint=Hint("list_models"))))  # noqa: S301 - ours
    assert (str(found), found.status) == ("no such model; see what it offers: pramana models", 404)


def test_an_error_that_states_what_no_error_has_is_refused() -> None:
    with pytest.raises(TypeError, match="not http_staus"):
        type("Wrong", (PramanaError,), {}, http_staus=404)
