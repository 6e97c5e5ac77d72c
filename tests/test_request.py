"""The request for a run: every front end can set each field, and all problems are reported at once."""

from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import fields

from pramana.errors import InvalidInput
from pramana.model import Case, Facets, Turn
from pramana.planning import create_run
from pramana.request import (
    LOCAL_ONLY_FIELDS,
    MODEL_PARAMETER_FIELDS,
    Limits,
    RunRequest,
    Selection,
    get_field_metadata,
    get_published_name,
)
from pramana.run.accounts import ProviderAccess
from pramana.show.api.runs import LimitsBody, RunBody
from pramana.show.cli.run import run as command
from pramana.store.store import Store

OTHERWISE_TYPED = {
    "paths": "PATHS",
    "cases": None,
    "selection": "--tag",
    "scenarios": None,
    "system_prompt": "--system",
    "parameters": "--param",
    "judge": "--judge",
    "other_judges": "--judge",
}
"""Fields without an option of the same name; the first --judge is the judge, further ones form a panel with it; stored scenarios are requested through a server only, and cases are
built in Python."""


def test_every_field_has_an_option_of_its_name() -> None:
    options = {each.name for each in command.params if isinstance(each, click.Option)}
    wanted = {*RunRequest.__struct_fields__, *Limits.__struct_fields__} - {"limits"}
    assert wanted - options == OTHERWISE_TYPED.keys()


def test_every_field_except_local_ones_can_be_sent_by_api() -> None:
    sent = {get_published_name(each) for each in fields(RunRequest) if each.name not in LOCAL_ONLY_FIELDS}
    assert RunBody.model_fields.keys() == {*sent, "dry_run"}
    assert LimitsBody.model_fields.keys() == {get_published_name(each) for each in fields(Limits)}


def test_every_parameter_of_a_model_has_a_label_in_the_form() -> None:
    from pramana.show.web.pages.new_run import NUMBER_FIELD_LABELS, SAMPLING_FIELDS

    assert all(get_field_metadata(each).title for each in MODEL_PARAMETER_FIELDS.values())
    assert SAMPLING_FIELDS.keys() <= NUMBER_FIELD_LABELS.keys()


@pytest.mark.parametrize("name", LOCAL_ONLY_FIELDS)
def test_local_only_fields_are_refused_from_remote_users(name: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "paths": (tmp_path,), "cases": (make_case(1),), "selection": Selection(limit=1), "cache": True
    }  # fmt: skip
    request = RunRequest(models=("fake",), tier="cheap", **{name: given[name]})
    with pytest.raises(InvalidInput, match=f"^{name}: can only be set on the server's machine$"):
        create_run(refuse_store(), request, ProviderAccess(is_for_other_users=True))


def refuse_store() -> Store:
    """Fail if a store is opened: the request is refused before."""
    return None  # type: ignore[return-value]


def test_all_problems_of_a_request_are_reported_at_once() -> None:
    request = RunRequest(
        models=(),
        repeats=0,
        voice="bass",  # type: ignore[arg-type]
        temperature=float("nan"),
        seed="x",  # type: ignore[arg-type]
        max_tokens=True,
        limits=Limits(concurrency=0, deadline_s=-1.0),
        parameters={"seed": 1.5, "top_k": 3},
    )
    with pytest.raises(InvalidInput) as refused:
        request.check()
    assert [str(each) for each in refused.value.problems] == [
        "models: expected a list of at least 1 of at most 50, found nothing",
        "repeats: expected a whole number from 1 to 1,000, found 0",
        "voice: expected espeak or piper, found 'bass'",
        "temperature: expected a number from 0 to 100, or null, found nan",
        "seed: expected a whole number, or null, found 'x'",
        "max_tokens: expected a whole number from 1 to 1,000,000,000, or null, found True",
        "limits.deadline_s: expected a number more than 0 to 1,000,000,000, or null, found -1.0",
        "limits.concurrency: expected a whole number from 1 to 10,000, found 0",
        "parameters.seed: expected a whole number, or null, found 1.5",
    ]


def nest(levels: int) -> Any:
    return [nest(levels - 1)] if levels else 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"a": float("inf")}, "parameters: JSON does not allow NaN or Infinity"),
        ({"a": {1, 2}}, "parameters: cannot be written as JSON: Object of type set is not JSON serializable"),
        ({"a": "x" * 64_000}, "parameters: 64,009 characters as JSON; at most 64,000 are allowed"),
        ({"a": nest(250)}, "parameters: nested more than"),
    ],
)  # fmt: skip
def test_parameters_must_be_json(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        RunRequest(models=("fake",), parameters=parameters).check()
    assert str(refused.value).startswith(message)


def test_a_parameter_overrides_the_field_of_the_same_name() -> None:
    asked = RunRequest(models=("fake",), temperature=0.5, parameters={"temperature": 1, "top_k": 3})
    assert asked.make_sent_parameters() == {"temperature": 1, "seed": 42, "top_k": 3}


# ── Which cases: within one filter any value will do, across filters all must hold ──


def make_case(number: int, **facets: object) -> Case:
    stated = {"category": "coding", "difficulty": "easy", **facets}
    return Case(f"c-{number}", "test_case", (Turn("user", "x"),), Facets(**stated))  # type: ignore[arg-type]


CASES = [
    make_case(0),
    make_case(1, category="safety", difficulty="hard", tags=("domain:travel", "task:booking")),
    make_case(2, category="task-completion", language="de", tags=("domain:health",)),
    make_case(3, difficulty="hard", tags=("domainless", "task:booking")),
]


@pytest.mark.parametrize(
    ("selection", "picked"),
    [
        (Selection(), [0, 1, 2, 3]),
        (Selection(categories=("safety", "task-completion")), [1, 2]),
        (Selection(difficulties=("hard",)), [1, 3]),
        (Selection(languages=("de", "fr")), [2]),
        (Selection(tags=("task:booking",)), [1, 3]),
        (Selection(tags=("domain:",)), [1, 2]),
        (Selection(tags=("domain",)), []),
        (Selection(tags=("domain:", "task:booking")), [1, 2, 3]),
        (Selection(ids=("c-0", "c-3", "c-9")), [0, 3]),
        (Selection(difficulties=("hard",), tags=("domain:",)), [1]),
        (Selection(limit=2), [0, 1]),
        (Selection(difficulties=("hard",), limit=1), [1]),
    ],
)
def test_selected_cases(selection: Selection, picked: list[int]) -> None:
    assert [each.id for each in selection.select_cases(CASES)] == [f"c-{number}" for number in picked]


def test_a_selection_describes_only_the_given_filters() -> None:
    assert not Selection()
    assert Selection().to_recorded() == {}
    assert Selection(tags=("a",), limit=3)
    assert Selection(tags=("a",), limit=3).to_recorded() == {"tags": ["a"], "limit": 3}


def test_the_limit_reads_no_more_cases_than_needed() -> None:
    drawn = []

    def stream() -> object:
        for each in CASES:
            drawn.append(each.id)
            yield each

    assert len(list(Selection(limit=1).select_cases(stream()))) == 1  # type: ignore[arg-type]
    assert len(drawn) <= 2
