"""`pramana rescore`, `show --scorings` and RUN@0: the changes of a re-scoring, and earlier scorings."""

import html
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import pramana as library
from pramana.errors import InvalidInput
from pramana.report.rescoring import NO_NEW_VERDICT
from pramana.show.cli import pramana

JUDGES = """\
def lenient(prompt):
    return "YES"

def strict(prompt):
    if "line 1" in prompt:
        raise ValueError("the judge broke")
    return "It is short.\\nNO" if "line 2" in prompt or "line 3" in prompt else "YES"

def broken(prompt):
    raise ValueError("the judge broke")
"""


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(pramana, [*map(str, arguments)], standalone_mode=False)


def invoke_and_check(*arguments: str | Path, code: int = 0) -> str:
    result = invoke(*arguments)
    assert (result.return_value or 0, result.exception) == (code, None), result.output
    return result.stdout


@pytest.fixture(name="run_id")
def _run_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A finished run of four cases, all passed by a lenient judge, and one without a verdict."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "judges_of_lines", raising=False)
    (tmp_path / "judges_of_lines.py").write_text(JUDGES, encoding="utf-8")
    suite = tmp_path / "lines.jsonl"
    criterion = {"type": "llm_judge", "judge_prompt": "Is it a line?"}
    cases: list[dict[str, Any]] = [
        {
            "id": f"line-{number}",
            "category": "creative",
            "input": f"Write line {number}.",
            "assertion": criterion,
            "metadata": {"difficulty": "easy", "tokens_est": 8},
        }
        for number in range(4)
    ]
    suite.write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")
    invoke_and_check("run", suite, "--model", "fake:echo", "--judge", "python:judges_of_lines:lenient", "--quiet")
    (run,) = json.loads(invoke_and_check("runs", "--json"))
    return str(run["id"])


def count_outcomes(run: str) -> tuple[int, int]:
    overall = json.loads(invoke_and_check("show", run, "--json"))["overall"]
    return overall["passed"], overall["failed"]


STRICT = ("--judge", "python:judges_of_lines:strict", "--quiet")


def test_a_judge_that_cannot_be_loaded_is_refused_and_no_verdict_changes(run_id: str) -> None:
    refused = invoke("rescore", run_id, "--judge", "python:judges_of_lines:nosuch")
    assert "module 'judges_of_lines' has no attribute 'nosuch'" in str(refused.exception)
    assert getattr(refused.exception, "exit_code", None) == 2
    assert [each["number"] for each in json.loads(invoke_and_check("show", run_id, "--scorings", "--json"))] == [0]
    assert count_outcomes(run_id) == (4, 0)


def test_rescore_lists_changed_verdicts_and_unjudged_replies(run_id: str) -> None:
    text = invoke_and_check("rescore", run_id, *STRICT)
    changed = text[text.index("2 of 4 verdicts changed") :].splitlines()
    judge = "python:judges_of_lines:strict"
    assert changed[0] == "2 of 4 verdicts changed: 2 passed -> failed"
    assert [line.split(": ")[0] for line in changed if line.startswith("  line-")] == [
        "  line-2", "  line-3", "  line-1",
    ]  # fmt: skip
    assert f" line-2: passed -> failed: {judge} says NO: It is short. NO " in " ".join(" ".join(changed).split())
    assert "1 reply has no new verdict and keeps the earlier one:" in changed
    assert changed[-1] == f"Earlier scorings: pramana show {run_id} --scorings"
    assert max(map(len, changed)) <= 80
    assert count_outcomes(run_id) == (2, 2), "line-1 keeps the verdict of the first judge"


def test_rescore_prints_changes_as_json(run_id: str) -> None:
    found = json.loads(invoke_and_check("rescore", run_id, *STRICT, "--json"))
    rescoring = found["rescoring"]
    assert (found["exit_code"], found["overall"]["passed"]) == (0, 2)
    assert (rescoring["scoring"], rescoring["judged"], rescoring["changed"], rescoring["kept"]) == (1, 4, 2, 1)
    assert rescoring["counts"] == [{"before": "passed", "after": "failed", "count": 2}]
    assert [(each["case_id"], each["before"], each["after"]) for each in rescoring["changes"]] == [
        ("line-2", "passed", "failed"),
        ("line-3", "passed", "failed"),
    ]
    (kept,) = rescoring["kept_verdicts"]
    assert (kept["case_id"], kept["verdict"], kept["attempt"]) == ("line-1", "passed", "unscored")
    assert "the judge broke" in kept["reason"]


def test_a_judge_function_of_a_script_is_refused_with_advice(run_id: str) -> None:
    judged = library.resume(run_id)  # has the cases of the run
    cases = [each.case for each in judged.results()]
    report = library.evaluate(cases, model="fake:echo", judge=lambda _: "YES")
    refused = invoke("rescore", report.run_id, "--quiet")
    assert str(refused.exception).endswith("name another judge, or put the function in a module")
    own = library.evaluate(cases[:1], model=lambda _: "YES")
    found = json.loads(invoke_and_check("rescore", own.run_id, "--json", code=4))
    (kept,) = found["rescoring"]["kept_verdicts"]
    assert (
        "cannot judge: it exists only in the program that started the run; name another judge, or" in (kept["reason"])
    )
    assert (found["exit_code"], found["sentence"]) == (4, NO_NEW_VERDICT)


def test_a_report_makes_a_scoring_current(run_id: str) -> None:
    invoke_and_check("rescore", run_id, *STRICT)
    report = library.load_report(run_id)
    wrong: Any = "1"
    with pytest.raises(InvalidInput, match="number: expected the number of a scoring, found '1'"):
        report.use_scoring(wrong)
    assert [each.current for each in report.use_scoring(0)] == [True, False]
    assert count_outcomes(run_id) == (4, 0)
    assert [each.current for each in library.load_report(run_id).scorings] == [True, False]


def test_two_scorings_of_one_run_can_be_compared(run_id: str) -> None:
    invoke_and_check("rescore", run_id, *STRICT)
    first, second = f"{run_id}@0", f"{run_id}@1"
    compared = json.loads(invoke_and_check("compare", first, second, "--any-judge", "--json"))
    assert [each["case"] for each in compared["lost"]] == ["line-2", "line-3"]
    by_name = library.compare(first, second, any_judge=True)
    by_report = library.compare(library.load_report(first), library.load_report(second), any_judge=True)
    for found in (by_name, by_report):
        assert [flip.case_id for flip in found.lost] == ["line-2", "line-3"]
    unknown = invoke("compare", first, f"{run_id}@7", "--any-judge")
    assert "scoring 7" in str(unknown.exception)


def test_unchanged_verdicts_are_reported_as_unchanged(run_id: str) -> None:
    text = invoke_and_check("rescore", run_id, "--quiet")
    assert "None of 4 verdicts changed." in text
    assert "->" not in text


def test_a_judge_that_always_fails_changes_nothing_and_creates_no_scoring(run_id: str) -> None:
    text = invoke_and_check("rescore", run_id, "--judge", "python:judges_of_lines:broken", "--quiet", code=4)
    assert NO_NEW_VERDICT in text
    assert "4 replies have no new verdict and keep the earlier one:" in text
    assert count_outcomes(run_id) == (4, 0)
    assert [each["number"] for each in json.loads(invoke_and_check("show", run_id, "--scorings", "--json"))] == [0]


def test_a_failing_scorer_keeps_every_verdict_and_exits_3(run_id: str) -> None:
    text = invoke_and_check("rescore", run_id, "--scorer", "python:judges_of_lines:broken", "--quiet", code=3)
    assert "4 replies have no new verdict and keep the earlier one:" in text
    assert "the judge broke" in text
    assert count_outcomes(run_id) == (4, 0)


def test_an_interrupted_rescoring_shows_what_it_changed(run_id: str) -> None:
    ended = invoke("rescore", run_id, *STRICT, "--concurrency", "1", "--max-total-tokens", "1")
    assert getattr(ended.exception, "exit_code", None) == 3
    assert "Ended early: replies that were not scored again keep their earlier verdicts." in ended.stderr


def test_show_scorings_lists_judge_date_and_pass_rate_of_each(run_id: str) -> None:
    invoke_and_check("rescore", run_id, *STRICT)
    lines = " ".join(invoke_and_check("show", run_id, "--scorings").split())
    assert f"{run_id}@0 · " in lines
    assert " UTC · judged by python:judges_of_lines:lenient 4/4 passed (100 %)" in lines
    assert " UTC · judged by python:judges_of_lines:strict · current 2/4 passed (50.0 %)" in lines
    first, second = json.loads(invoke_and_check("show", run_id, "--scorings", "--json"))
    assert (first["reference"], first["current"], second["current"]) == (f"{run_id}@0", False, True)
    assert [each["pass_rate"] for each in (*first["models"], *second["models"])] == [1.0, 0.5]
    refused = invoke("show", run_id, "--scorings", "--id", "line-1")
    assert "remove the filters" in str(refused.exception)


def test_an_earlier_scoring_is_shown_and_exported_by_number(run_id: str) -> None:
    invoke_and_check("rescore", run_id, *STRICT)
    assert (count_outcomes(f"{run_id}@0"), count_outcomes("latest@0"), count_outcomes(f"{run_id}@1")) == (
        (4, 0),
        (4, 0),
        (2, 2),
    )
    assert f"run {run_id}@0" in invoke_and_check("show", f"{run_id}@0")
    assert json.loads(invoke_and_check("show", f"{run_id}@0", "--json"))["scoring"] == 0
    for name, passed in ((f"{run_id}@0", 4), (run_id, 2)):
        (block,) = json.loads(invoke_and_check("export", name))
        assert block["summary"]["passed"] == passed
    markdown = html.unescape(invoke_and_check("export", f"{run_id}@0", "--format", "md"))
    assert f"<sub>Run <code>{run_id}@0</code>, " in markdown
    assert f"{run_id}@0" in invoke_and_check("export", f"{run_id}@0", "--format", "html")
    selected = json.loads(invoke_and_check("show", f"{run_id}@0", "--category", "creative", "--json"))
    assert selected["overall"]["passed"] == 4


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        ("@7", "the run has no scoring 7; it has 0"),
        ("@first", "is not a scoring; write RUN@1"),
        ("@", "is not a scoring"),
    ],
)
def test_an_unknown_scoring_number_is_refused(run_id: str, suffix: str, message: str) -> None:
    refused = invoke("show", f"{run_id}{suffix}")
    assert message in str(refused.exception)


def test_only_reading_commands_accept_an_earlier_scoring(run_id: str) -> None:
    for command in (("rescore", f"{run_id}@0"), ("run", "--resume", f"{run_id}@0")):
        assert "there is no run" in str(invoke(*command).exception)


# ── The current scoring ──


def test_rescore_use_makes_an_earlier_scoring_current_without_judging(run_id: str) -> None:
    invoke_and_check("rescore", run_id, *STRICT)
    assert count_outcomes(run_id) == (2, 2)
    lines = invoke_and_check("rescore", run_id, "--use", "0").splitlines()
    assert lines[0].startswith(f"{run_id}@0 · ")
    marked = [" ".join(lines).partition(f"{run_id}@1")[0], " ".join(lines).partition(f"{run_id}@1")[2]]
    assert [" current" in each for each in marked] == [True, False]
    assert count_outcomes(run_id) == (4, 0)
    assert library.load_report(run_id).pass_rate == 1
    assert library.load_report(f"{run_id}@1").pass_rate == 0.5
    assert [each.current for each in library.load_report(run_id).scorings] == [True, False]
    note = f"Scoring 0 is current because it was chosen; the newest is 1: pramana show {run_id} --scorings"
    assert note in " ".join(invoke_and_check("show", run_id).split())
    found = json.loads(invoke_and_check("rescore", run_id, "--use", "1", "--json"))
    assert [(each["number"], each["current"]) for each in found] == [(0, False), (1, True)]
    assert "because it was chosen" not in invoke_and_check("show", run_id)
    assert count_outcomes(run_id) == (2, 2)


def test_a_new_rescoring_keeps_the_chosen_scoring(run_id: str) -> None:
    invoke_and_check("rescore", run_id, *STRICT)
    invoke_and_check("rescore", run_id, "--use", "0")
    text = invoke_and_check("rescore", run_id, *STRICT, "--id", "line-2")
    assert "1 of 1 verdict changed: 1 passed -> failed" in text
    assert count_outcomes(run_id) == (3, 1), "the verdict on line-3 of scoring 1 is not used"


def test_rescore_use_refuses_an_unknown_scoring(run_id: str) -> None:
    refused = invoke("rescore", run_id, "--use", "7")
    assert "the run has no scoring 7; it has 0" in str(refused.exception)
    assert count_outcomes(run_id) == (4, 0)


def test_rescore_use_cannot_be_combined_with_judging_options(run_id: str) -> None:
    refused = invoke("rescore", run_id, "--use", "0", *STRICT[:2], "--type", "creative")
    assert "--judge, --type cannot be combined with --use" in str(refused.exception)
