"""`pramana compare` and `pramana.compare`: two models of one run, and the names of both sides."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from pramana import compare
from pramana.errors import InvalidInput
from pramana.model import Target

from .test_compare import (
    F,
    P,
    compare_as_json,
    compare_as_text,
    export_run,
    fail_all,
    make_case,
    make_cases,
    read_comparison,
    store_run,
)

A, B, C = (Target(f"python:shop:{each}", "python", f"shop:{each}") for each in ("before", "after", "third"))


def store_models_run(*models: Target, failed: dict[str, int] | None = None, count: int = 9, repeats: int = 1) -> str:
    """Store one run of several models; `failed` is the number of first cases that each model fails."""
    failed = failed or {}
    return store_run(
        make_cases(count),
        models=models,
        repeats=repeats,
        outcomes_of=lambda model, number: [F if number < failed.get(model, 0) else P] * repeats,
    )


@pytest.mark.parametrize("as_file", [False, True])
def test_two_models_of_a_run_are_compared_by_name(as_file: bool, tmp_path: Path) -> None:
    made = store_models_run(A, B, failed={A.typed: 8})
    side = export_run(made, tmp_path / "two.json") if as_file else made
    heading, answer = read_comparison(side, "--show", "0")
    assert heading.replace(" ", "").startswith(
        f"python:shop:before and python:shop:after, {'' if as_file else 'run '}{side} of 20".replace(" ", "")
    )
    assert answer.startswith("after beats before: of 9 cases, 8 passed only for after and none only for before.")
    assert "Pass rate 11.1 % for before, 100.0 % for after: +88.9 points" in answer
    assert "8 pass more often for after: factual-000 factual-001" in answer
    assert not re.search(r"\bnow\b|Improvement|Regression", answer)
    code, found = compare_as_json(side)
    assert (code, found["verdict"], found["exit_code"]) == (0, "improvement", 0)
    assert found["gained"][0]["detail"] == "passed 0 of 1 for before, 1 of 1 for after"
    code, found = compare_as_json(side, side, "--model", "after")
    assert (code, found["verdict"]) == (1, "regression")
    assert found["sentence"] == "after beats before: of 9 cases, 8 passed only for after and none only for before."
    assert compare_as_json(side, "--new-model", "before") == (code, found)


def test_comparing_a_run_of_three_models_suggests_the_command_for_two() -> None:
    made = store_models_run(A, B, C)
    command = f"pramana compare {made} --model python:shop:before --new-model python:shop:after"
    names = "python:shop:before, python:shop:after, python:shop:third"
    with pytest.raises(InvalidInput, match=f"has 3 models: {names}; choose, for example: {command}$"):
        compare_as_json(made, made)
    with pytest.raises(InvalidInput, match=r"--model python:shop:third --new-model python:shop:before$"):
        compare_as_json(made, "--model", "third")
    assert compare_as_json(made, "--model", "third", "--new-model", "before")[0] == 0
    quoted = Target("fake:fixed=Yes, please", "fake", "fixed=Yes, please")
    with pytest.raises(InvalidInput, match=r"--model 'fake:fixed=Yes, please' --new-model python:shop:before$"):
        compare_as_json(*[store_models_run(quoted, A, B)] * 2)


def test_a_model_is_never_compared_with_itself_in_one_run() -> None:
    made, alone = store_models_run(A, B), store_models_run(A)
    for arguments in (
        (made, "--model", "after", "--new-model", "after"),
        (made, made, "--model", "after", "--new-model", "after"),
    ):
        with pytest.raises(
            InvalidInput,
            match=r"python:shop:after cannot be compared with itself in run .*; choose, for "
            r"example: pramana compare .* --model python:shop:after --new-model python:shop:before$",
        ):
            compare_as_json(*arguments)
    for sides in ((alone,), (alone, alone)):
        with pytest.raises(
            InvalidInput, match=r"has one model, python:shop:before; .* another run or results.json of the same cases"
        ):
            compare_as_json(*sides)


def test_the_heading_names_two_runs_with_model_and_date() -> None:
    base, new = store_run(make_cases(9)), store_run(make_cases(9), models=[A])
    heading, answer = read_comparison(base, new)
    dates = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.fullmatch(f"before: m, run {base} of {dates} now: python:shop:before, run {new} of {dates}", heading)
    assert answer.startswith("No difference seen: all 9 cases ended as before")
    assert compare_as_json(base, new)[1]["heading"].count("\n") == 1


def test_changed_cases_are_listed_in_run_order() -> None:
    asked = make_cases(9)[::-1]
    base = store_run(asked, lambda _: [P, P], repeats=2)
    new = store_run(
        asked, lambda number: [F, F] if number % 2 else [F, P] if number else [P, P], repeats=2, backwards=True
    )
    expected = [each.id for each in asked[1:]]
    assert [each["case"] for each in compare_as_json(base, new)[1]["lost"]] == expected
    assert [each["case"] for each in compare_as_json(new, base)[1]["gained"]] == expected
    shown = compare_as_text(base, new)
    assert sorted(expected, key=shown.index) == expected


def test_a_long_model_name_is_shortened_in_the_middle() -> None:
    urls = [f"http://{'x' * 80}:8080/v1#{name}" for name in ("mistral", "qwen")]
    made = store_models_run(*(Target(url, "compatible", "m") for url in urls), failed={urls[1]: 9})
    heading, answer = read_comparison(made)
    assert re.match(r"http://x+…x+:8080/v1#mistral beats http://x+…x+:8080/v1#qwen: of 9 cases", answer)
    assert all(url in heading.replace(" ", "") for url in urls)


def test_times_and_judges_of_two_models_are_labelled_with_their_names() -> None:
    made = store_models_run(A, B)
    answer = compare_as_text(made)
    assert answer.startswith("No difference seen between before and after: all 9 cases ended alike, but 9 cases prove")
    assert "Total time 100 ms for before, 100 ms for after:" in answer
    repeated = store_models_run(A, B, failed={B.typed: 9}, repeats=2)
    assert compare_as_text(repeated).startswith(
        "before beats after: of 9 cases, 9 pass more often for before and none for after."
    )


def test_a_notebook_shows_both_sides_and_the_changes_of_a_comparison() -> None:
    base, new = store_run(make_cases(9)), store_run([*make_cases(8), replace(make_case(8), id="<script>")], fail_all)
    html = compare(base, new, any_suite=True)._repr_html_().replace("<wbr />", "")  # where names may break
    assert '<b><bdi dir="auto">Regression between these two runs: of 8 cases, 8 that passed before fail now' in html
    for each in (f"before: m, run {base} of 20", f"now: m, run {new} of 20", "8 cases changed:", "factual-007",
                 "passed 1 of 1 before, 0 of 1 now", "Pass rate 100.0 % before"):  # fmt: skip
        assert each in html
    hostile = [replace(make_case(0), id="<script>")]
    shown = compare(store_run(hostile), store_run(hostile, fail_all))._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown


def test_the_python_error_says_how_to_name_two_models_of_a_run() -> None:
    made = store_models_run(A, B, C, failed={A.typed: 9})
    call = f"pramana.compare('{made}', model='python:shop:before', new_model='python:shop:after')"
    with pytest.raises(InvalidInput, match=f"has 3 models: .*; choose, for example: {re.escape(call)}$"):
        compare(made)
    assert str(compare(made, model="before", new_model="third")).startswith("third beats before: of 9 cases, 9 passed")
