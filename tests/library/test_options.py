"""Options of `pramana.evaluate`: the valid ones, and the errors for misnamed or invalid ones."""

import asyncio
import copy
import inspect
import logging
import traceback
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import pramana
from pramana import settings
from pramana.embedded import language
from pramana.errors import AuthenticationFailed, EngineMissing, InvalidInput
from pramana.installation import make_install_command
from pramana.library.options import RunOptions
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


def test_help_shows_the_names_of_types_and_not_what_they_are_made_of() -> None:
    shown = str(inspect.signature(pramana.evaluate)).replace("'", "")
    assert shown.startswith("(cases: Cases = None, *, model: Model | None = None, models: Models = (), judge: Judge")
    assert get_type_hints(pramana.evaluate)["return"] is pramana.Report


def test_a_filter_that_matches_nothing_is_named_as_an_argument() -> None:
    with pytest.raises(InvalidInput) as refused:
        pramana.evaluate(CASES, model="fake:echo", selection={"all_tags": ["VIP"], "limit": 3})
    assert str(refused.value) == (
        'no case of the list matches the filters; check the spelling of selection={"all_tags": ["VIP"], "limit": 3}'
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "fake:echo", "judge": "local"}, 'pass another model, such as judge="gpt-5-mini"'),
        ({"models": ["fake:echo", "fake-voice"]}, 'choose the modalities: modalities=["text", "voice"]'),
        (
            {"model": "gpt5"},
            "to test a Python function, pass it: model=function; list models: pramana models, in a shell",
        ),
        (
            {"model": lambda prompt, tone: tone},
            'give the parameter tone of your function a default, or send it: parameters={"tone": VALUE}',
        ),
        ({"model": "fake:echo", "repeat": 0}, "repeat: expected a whole number from 1 to 1,000, found 0"),
        (
            {"model": "fake:echo", "timeout_s": -1},
            "timeout_s: expected a number more than 0 to 1,000,000,000, found -1",
        ),
    ],
)
def test_errors_name_arguments_and_no_option_of_the_command_line(options: Any, message: str) -> None:
    question = [{"input": "Say yes.", "check": {"type": "llm_judge", "judge_prompt": "Yes?"}}]

    async def stream() -> None:
        async for _ in pramana.stream(question, **options):
            pass

    for ask in (lambda: pramana.evaluate(question, **options), lambda: asyncio.run(stream())):
        with pytest.raises(InvalidInput) as refused:
            ask()
        assert str(refused.value).endswith(message)
        assert "--" not in str(refused.value)


def test_a_class_is_refused_with_the_object_to_pass() -> None:
    class Agent:
        def __call__(self, prompt: str) -> str:
            return prompt

    with pytest.raises(InvalidInput, match=r"it is a class, so pass an object of it: Agent\(\)$"):
        pramana.evaluate(CASES, model=Agent)  # type: ignore[arg-type]
    assert pramana.evaluate(CASES, model=Agent()).passed


def test_estimates_and_lists_of_runs_show_themselves_as_text() -> None:
    estimate = pramana.estimate(CASES, model="fake:echo")
    assert repr(estimate) == str(estimate)
    assert repr(pramana.runs()) == "No runs yet."


def test_an_estimate_names_the_argument_of_another_judge() -> None:
    question = {"input": "Say yes.", "check": {"type": "llm_judge", "judge_prompt": "Yes?"}}
    said = str(pramana.estimate(question, model="gpt-5"))
    assert "gpt-5 judges its own replies; judge=… names another judge." in said


def test_a_missing_key_has_only_the_callers_frame_in_its_traceback() -> None:
    with pytest.raises(AuthenticationFailed, match="set OPENAI_API_KEY") as missing:
        pramana.evaluate(CASES, model="gpt-5")
    assert [Path(each.filename).name for each in traceback.extract_tb(missing.tb)] == [
        Path(__file__).name,
        "__init__.py",
    ]


def test_an_error_that_a_function_raises_keeps_its_frames() -> None:
    def locked_out(prompt: str) -> str:
        raise AuthenticationFailed(f"no key for {prompt}")

    with pytest.raises(AuthenticationFailed) as raised:
        pramana.evaluate(CASES, model=locked_out)
    assert traceback.extract_tb(raised.tb)[-1].name == "locked_out"


def test_the_package_lists_its_public_names_alone() -> None:
    listed = [each for each in dir(pramana) if not each.startswith("__")]
    assert listed == sorted(pramana.__all__)
    with pytest.raises(AttributeError) as unknown:
        _ = pramana.evalute
    assert (unknown.value.name, unknown.value.obj) == ("evalute", pramana)


def test_a_missing_runtime_is_reported_before_anything_is_stored_or_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    pulled: list[str] = []
    monkeypatch.setattr(language, "find_spec", lambda _: None)
    monkeypatch.setattr("pramana.planning.weights.pull", pulled.append)
    with pytest.raises(EngineMissing) as missing:
        pramana.evaluate(CASES, model="local")
    assert str(missing.value) == f"the embedded model needs its runtime, xllamacpp: {make_install_command('local')}"
    ours = [each for each in traceback.extract_tb(missing.tb) if Path(each.filename).parent.name == "library"]
    assert len([each for each in ours if each.filename != __file__]) == 1
    store = open_store(settings.database_url())
    assert (pulled, store.runs.read_page()[0]) == ([], [])
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
