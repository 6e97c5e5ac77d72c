"""`pramana compare` and `pramana.compare_several` with three and more sides: the table, its sides and its exit codes."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import pramana as library
from pramana import InvalidInput, compare, compare_several, load_report, settings
from pramana.model import Target
from pramana.report.terminal import count_columns
from pramana.request import RunEdit
from pramana.show.cli import pramana
from pramana.store import open_store

from .test_compare import (
    E,
    F,
    P,
    compare_as_json,
    export_run,
    fail_all,
    make_case,
    make_cases,
    make_judge_check,
    store_run,
)
from .test_compare_sides import A, B, C, store_models_run

D = Target("openai:gpt-5", "openai", "gpt-5")


def print_table(*arguments: str, columns: int = 80) -> str:
    done = CliRunner().invoke(pramana, ["compare", *arguments], standalone_mode=False, env={"COLUMNS": str(columns)})
    assert done.exception is None, done.exception
    return done.stdout


def fail_first(count: int) -> "dict[str, int]":
    return {A.typed: 0, B.typed: count, C.typed: 2 * count}


def test_a_run_of_three_models_is_a_table_of_every_pair_with_holms_p_values() -> None:
    made = store_models_run(B, A, C, failed=fail_first(10), count=30)
    code, found = compare_as_json(made)
    assert (code, found["exit_code"], found["against"], found["comparisons"]) == (0, 0, None, 3)
    assert found["sentence"] == (
        "Proven together at 5 % (Holm's correction for 3 comparisons): before beats after and third; after beats third."
    )
    assert [(each["name"], each["passed"], each["answers"]) for each in found["sides"]] == [
        ("before", 30, 30),
        ("after", 20, 30),
        ("third", 10, 30),
    ]
    assert [(each["new"], each["base"]) for each in found["pairs"]] == [
        ("before", "after"),
        ("before", "third"),
        ("after", "third"),
    ]
    for each in found["pairs"]:
        code, alone = compare_as_json(made, "--model", each["base"], "--new-model", each["new"])
        same = ("difference", "p_value", "test", "base_rate", "new_rate")
        assert [each[name] for name in same] == [alone[name] for name in same]
        assert each["cases"] == alone["pairs"]
        assert each["interval"][0] <= alone["interval"][0]
        assert alone["interval"][1] <= each["interval"][1]
        assert each["adjusted_p_value"] >= each["p_value"]
        assert each["confidence"] >= 0.95
    assert [each["adjusted_p_value"] for each in found["pairs"]] == [2 / 2**9, 3 / 2**19, 2 / 2**9]


def test_the_printed_table_fits_into_80_columns() -> None:
    long = [Target(f"http://{'x' * 60}:8080/v1#{name}", "compatible", name) for name in ("mistral", "qwen", "日本語")]
    made = store_models_run(*long, failed={long[1].typed: 20, long[2].typed: 21}, count=30)
    shown = print_table(made)
    assert max(map(count_columns, shown.splitlines())) <= 80
    assert "Proven together at 5 %" in shown
    assert "mistral" in shown
    assert " now" not in shown
    plain = print_table(store_models_run(D, A, C, failed={C.typed: 20, D.typed: 1}, count=30))
    assert (
        "Model         Pass rate (95 % interval)  Passed\nbefore        100 % (88.4–100.0 %)       30 of 30\n" in plain
    )
    assert " +66.7  +35.4 to +85.3  < 0.0001  < 0.0001     30  before beats third\n" in plain
    assert "30  before and openai:gpt-5: no\n" in plain
    assert "excludes zero exactly if the test rejects" in " ".join(plain.split())


def test_with_a_reference_each_side_is_compared_with_it_only() -> None:
    made = store_models_run(B, A, C, failed=fail_first(7), count=30)
    code, found = compare_as_json(made, "--against", "before")
    assert (code, found["exit_code"], found["against"], found["comparisons"]) == (1, 1, "before", 2)
    assert [(each["base"], each["new"], each["winner"]) for each in found["pairs"]] == [
        ("before", "after", "before"),
        ("before", "third", "before"),
    ]
    assert [each["adjusted_p_value"] for each in found["pairs"]] == [1 / 64, 2 / 2**13]
    assert compare_as_json(made, "--against", "third")[0] == 0
    shown = print_table(made, "--against", C.typed)
    assert "Differences of the pass rate from third:" in shown
    assert "A loss of 5 points or more against third is excluded for every side." in shown
    assert compare_as_json(made, "--against", "third", "--fail-on", "inconclusive")[0] == 0
    assert compare_as_json(store_models_run(A, B, C), "--against", "third", "--fail-on", "inconclusive")[0] == 4


def test_a_loss_that_holm_does_not_prove_or_within_the_margin_exits_with_0() -> None:
    alone = store_models_run(A, B, failed={B.typed: 6}, count=20)
    assert compare_as_json(alone)[0] == 1  # p = 1/32
    assert compare_as_json(alone, "--against", "before")[0] == 1  # one comparison needs no correction
    assert compare_as_json(store_models_run(A, B, C, failed={B.typed: 6}, count=20), "--against", "before")[0] == 0
    small = store_models_run(A, B, C, failed={B.typed: 10}, count=400)
    assert compare_as_json(small, "--against", "before", "--margin", "6")[0] == 0
    assert compare_as_json(small, "--against", "before", "--margin", "1")[0] == 1
    assert "before beats after by less" in print_table(small, "--against", "before", "--margin", "6")


def test_runs_and_files_are_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base = store_run(make_cases(30))
    with closing(open_store(settings.database_url())) as store:
        store.runs.edit(base, RunEdit(name="release"))
    half = store_run(make_cases(30), lambda number: [F if number < 15 else P])
    file = export_run(store_run(make_cases(30), fail_all), Path("c.json"))
    code, found = compare_as_json("release", half, file)
    assert code == 0
    assert [each["name"] for each in found["sides"]] == ["release", half, file]
    assert found["sentence"].endswith(f"release beats {half} and {file}; {half} beats {file}.")
    assert any(each.startswith("Two runs made on different days") for each in found["notes"])
    added = compare_as_json(half, file, "--against", "release")[1]
    assert added["pairs"] == compare_as_json("release", half, file, "--against", "release")[1]["pairs"]
    assert compare_as_json(half, file, "--against", "release")[0] == 1
    shown = print_table("release", half, file)
    assert f"  m, run {half} of 20" in shown


def test_one_model_of_each_run_is_resolved_as_for_two_sides() -> None:
    runs = [store_models_run(A, B, failed={A.typed: failed}, count=30) for failed in (0, 10, 20)]
    with pytest.raises(
        InvalidInput, match=f"has 2 models: .*pramana compare {' '.join(runs)} --model python:shop:before$"
    ):
        compare_as_json(*runs)
    found = compare_as_json(*runs, "--model", "before")[1]
    assert [(each["name"], each["model"], each["passed"]) for each in found["sides"]] == [
        (run, A.typed, passed) for run, passed in zip(runs, (30, 20, 10), strict=True)
    ]
    found = compare_as_json(*runs, "--model", "before", "--new-model", "after")[1]
    assert [each["model"] for each in found["sides"]] == [A.typed, B.typed, B.typed]


def test_repeats_and_variants_are_weighed_as_for_two_sides() -> None:
    made = store_run(
        make_cases(12),
        models=(A, B, C),
        repeats=3,
        variants=("text", "voice"),
        outcomes_of=lambda model, number: [
            P,
            F if model == B.typed and number % 2 else P,
            F if model == C.typed else P,
        ],
    )
    found = compare_as_json(made)[1]
    assert [(each["passed"], each["answers"], each["cases"]) for each in found["sides"]] == [
        (72, 72, 12),
        (60, 72, 12),
        (48, 72, 12),
    ]
    for each in found["pairs"]:
        alone = compare_as_json(made, "--model", each["base"], "--new-model", each["new"])[1]
        assert each["test"] == "sign flips by case"
        assert (each["p_value"], each["difference"], each["cases"]) == (
            alone["p_value"],
            alone["difference"],
            alone["pairs"],
        )
    run = compare_as_json(made)[1]["sides"][1]
    assert run["interval"] == list(load_report(made).by_model["after"].interval or ())


def test_pairs_that_differ_in_their_cases_say_so() -> None:
    made = store_run(
        make_cases(9),
        models=(A, B, C),
        outcomes_of=lambda model, number: [E if model == C.typed and number < 3 else P],
    )
    found = compare_as_json(made)[1]
    assert [each["cases"] for each in found["pairs"]] == [9, 6, 6]
    assert found["notes"] == [
        "The pairs differ in their cases (6 to 9 cases): each pair has the cases with a verdict on both its sides."
    ]
    assert compare_as_json(store_models_run(A, B, C))[1]["notes"] == []


def test_other_cases_need_any_suite_and_other_judges_any_judge() -> None:
    runs = [store_run(make_cases(9)), store_run(make_cases(9)), store_run(make_cases(12))]
    with pytest.raises(InvalidInput, match="are not known to have the same cases") as refusal:
        compare_as_json(*runs)
    assert refusal.value.hint is not None
    found = compare_as_json(*runs, "--any-suite")[1]
    assert [each["cases"] for each in found["sides"]] == [9, 9, 9]
    judged = [store_run(make_cases(9), check=make_judge_check(by)) for by in ("gpt-5", "gpt-5", "opus")]
    found = compare_as_json(*judged)[1]
    assert sorted(each["result"] for each in found["pairs"]) == ["different judges"] * 2 + ["no significant difference"]
    assert "In 2 pairs, cases that two different judges judged are left out." in found["notes"]
    assert {each["cases"] for each in compare_as_json(*judged, "--any-judge")[1]["pairs"]} == {9}
    differ = [store_run(make_cases(9), parameters={"temperature": each}) for each in (0, 0, 1)]
    (note,) = compare_as_json(*differ)[1]["notes"]
    assert note == "The requests of the sides differ in temperature; this may explain differences."


def test_nothing_to_compare_exits_with_4() -> None:
    runs = [store_run(make_cases(3, asked)) for asked in ("What is", "What was", "What will be")]
    code, found = compare_as_json(*runs, "--any-suite")
    assert (code, found["comparisons"]) == (4, 0)
    assert found["pairs"][0]["interval"] is found["pairs"][0]["adjusted_p_value"] is None
    assert "no case to compare" in print_table(*runs, "--any-suite")
    assert compare_as_json(*runs, "--any-suite", "--against", runs[0])[0] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--show", "3"], "--show needs exactly two sides"),
        (["--max-slower", "20%"], "--max-slower needs exactly two sides"),
        (["--fail-on", "inconclusive"], "name it with --against"),
        (["--against", "befor"], r'has no model "befor" \(it has python:shop:before, python:shop:after'),
    ],
)
def test_options_that_a_table_has_not_are_refused(arguments: Sequence[str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        compare_as_json(store_models_run(A, B, C), *arguments)


def test_a_side_is_named_once_and_too_many_need_a_reference() -> None:
    made = store_run(make_cases(3))
    with pytest.raises(InvalidInput, match="is named twice with the model m"):
        compare_as_json(made, made, made)
    with pytest.raises(InvalidInput, match="a comparison needs a second side"):
        compare_as_json(made, "--against", made)
    many = store_models_run(*(Target(f"m{each}", "fake", "m") for each in range(11)), count=2)
    with pytest.raises(InvalidInput, match=r"11 sides have 55 pairs; .* at most 10 sides, .*: add --against SIDE$"):
        compare_as_json(many)
    assert len(compare_as_json(many, "--against", "m3")[1]["pairs"]) == 10


def test_a_table_in_python_is_that_of_the_command(tmp_path: Path) -> None:
    made = store_models_run(A, B, C, failed=fail_first(10), count=30)
    report = load_report(made)
    table = report.compare_models()
    assert isinstance(table, library.ComparisonTable)
    assert repr(table) == compare_as_json(made)[1]["sentence"]
    assert str(table) == print_table(made).rstrip("\n")
    assert compare_several(report) == compare_several(made) == table
    assert table.pairs[0].winner == "before"
    assert report.compare_models(against="third").against == "third"
    runs = [store_run(make_cases(9)), store_run(make_cases(9), fail_all)]
    file = export_run(store_run(make_cases(9)), tmp_path / "a.json")
    found = compare_several(Path(file), *map(load_report, runs), against=load_report(runs[0]))
    assert (found.against, [each.winner for each in found.pairs]) == (runs[0], [None, runs[0]])
    with pytest.raises(InvalidInput, match=r"name one: model='python:shop:before'$"):
        compare_several(made, *runs)
    with pytest.raises(InvalidInput, match="pass the runs to compare"):
        compare_several()
    with pytest.raises(InvalidInput, match="margin is a number of points from 0 to 100"):
        compare_several(made, margin=float("nan"))
    with pytest.raises(InvalidInput, match="leave out the model"):
        compare_several(made, model="before")
    assert compare(made, model="before", new_model="third").verdict == "regression"


def test_a_notebook_shows_the_table_with_names_escaped() -> None:
    hostile = Target("<script>", "fake", "m")
    made = store_models_run(hostile, A, B, failed={A.typed: 9})
    shown = load_report(made).compare_models()._repr_html_()
    assert "Proven together at 5 %" in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown


def test_a_case_with_the_same_id_in_two_files_is_paired_by_digest(tmp_path: Path) -> None:
    """Pairs are made by digest wherever both sides have digests, and by ID only with a file that has none."""
    runs = [store_run([*make_cases(8), replace(make_case(8), id="factual-000")]) for _ in range(2)]
    whole = [export_run(run, tmp_path / f"{number}.json") for number, run in enumerate(runs)]
    old = export_run(store_run(make_cases(8)), tmp_path / "old.json", without=("case_digest",))
    found = compare_as_json(*runs, whole[0])[1]
    assert {each["cases"] for each in found["pairs"]} == {9}
    with pytest.raises(InvalidInput, match="has two cases called"):
        compare_as_json(*runs, old, "--any-suite")
    plain = [store_run(make_cases(8)) for _ in range(2)]
    found = compare_as_json(*plain, old, "--any-suite")[1]
    assert {each["cases"] for each in found["pairs"]} == {8}
    assert found["notes"] == []
    json.dumps(found)
