"""Options of `pramana.evaluate`: the valid ones, and the errors for misnamed or invalid ones."""

import copy
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

import pramana
from pramana import settings
from pramana.embedded import language
from pramana.errors import EngineMissing, InvalidInput
from pramana.installation import install_command
from pramana.library import RunOptions
from pramana.store import open_store

CASES = [
    {"id": "vip", "input": "Say yes.", "ideal": "yes", "tags": ["vip"]},
    {"id": "other", "input": "Say no.", "ideal": "no"},
]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("repeats", "; write repeat"),
        ("paths", "; write the path as the first argument"),
        ("limits", "; write each limit by itself, such as max_cost_usd=2"),
        ("tags", '; write selection=pramana.Selection(tags=("…",))'),
        ("max_cost", "; write max_cost_usd"),
        ("temperatur", '; did you mean "temperature"?'),
        ("repeet", '; did you mean "repeat"?'),
    ],
)
def test_a_misnamed_option_is_refused_with_the_correct_name(name: str, hint: str) -> None:
    with pytest.raises(TypeError) as refused:
        pramana.evaluate(CASES, model="fake:echo", **{name: 1})  # type: ignore[arg-type]
    assert str(refused.value) == f"evaluate() got an unexpected keyword argument {name!r}{hint}"


def test_a_selection_can_be_a_dictionary() -> None:
    report = pramana.evaluate(CASES, model="fake:echo", selection={"tags": ["vip"]})
    assert [each.case_id for each in report.results()] == ["vip"]
    with pytest.raises(InvalidInput, match=r'filter .tag.; did you mean "tags"'):
        pramana.evaluate(CASES, model="fake:echo", selection={"tag": ["vip"]})


def test_a_filter_given_as_a_string_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r'tags is a list, found the text "vip"; write tags=\["vip"\]'):
        pramana.Selection(tags="vip")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r'write ids=\["a"\]'):
        pramana.evaluate(CASES, model="fake:echo", selection={"ids": "a"})


EMPTY = "ids is empty: no case would run; leave it out for all cases"


@pytest.mark.parametrize(
    "selection",
    [{"ids": []}, {"ids": ()}, pramana.Selection(ids=()), pramana.Selection(limit=1, ids=[])],  # type: ignore[arg-type]
)
def test_an_empty_filter_is_refused(selection: Any) -> None:
    for ask in (pramana.evaluate, pramana.estimate, pramana.stream):
        with pytest.raises(InvalidInput, match=f"selection: {EMPTY}"):
            ask(CASES, model="fake:echo", selection=selection)
    with pytest.raises(InvalidInput, match=f"selection: {EMPTY}"):
        pramana.parametrize(CASES, selection=selection)
    assert pramana.runs() == []


def test_omitted_filters_select_everything() -> None:
    for selection in ({}, {"limit": 5}, pramana.Selection(), copy.deepcopy(pramana.Selection())):
        report = pramana.evaluate(CASES, model="fake:echo", selection=selection)
        assert report.summary.overall.total == len(CASES)


def test_help_lists_every_option() -> None:
    said = pramana.evaluate.__doc__ or ""
    assert [name for name in RunOptions.__annotations__ if f"`{name}`" not in said] == []


def test_a_missing_runtime_is_reported_before_anything_is_stored_or_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    pulled: list[str] = []
    monkeypatch.setattr(language, "find_spec", lambda _: None)
    monkeypatch.setattr("pramana.planning.weights.pull", pulled.append)
    with pytest.raises(EngineMissing) as missing:
        pramana.evaluate(CASES, model="local")
    assert str(missing.value) == f"the embedded model needs its runtime, xllamacpp: {install_command('local')}"
    ours = [each for each in traceback.extract_tb(missing.tb) if Path(each.filename).parent.name == "library"]
    assert len([each for each in ours if each.filename != __file__]) == 1
    store = open_store(settings.database_url())
    assert (pulled, store.runs.page()[0]) == ([], [])
    store.close()


def test_a_judge_function_that_takes_a_prompt_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    case = pramana.Case("Say please.", check={"type": "llm_judge", "judge_prompt": "Is it polite?"})
    with caplog.at_level(logging.WARNING):
        assert pramana.evaluate(case, model="fake:fixed=Please.", judge=lambda prompt: "YES").passed
    assert not caplog.messages


def test_an_invalid_data_frame_is_refused_with_one_error_per_column() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"question": ["Say yes.", "Say no."], "answer": ["yes", "no"], "source": ["a", "b"]})
    with pytest.raises(InvalidInput) as refused:
        pramana.evaluate(frame, model="fake:echo")
    found = [str(each) for each in refused.value.problems]
    assert len(found) == 4
    assert any(each.endswith('; rename it: frame.rename(columns={"question": "input"})') for each in found)
    assert any(each.endswith('; rename it: frame.rename(columns={"answer": "ideal"})') for each in found)
    renamed = frame.rename(columns={"question": "input", "answer": "ideal"})[["input", "ideal"]]
    assert pramana.evaluate(renamed, model="fake:echo").passed
