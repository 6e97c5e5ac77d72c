"""`pramana.runs`: finding a stored run from Python; and `compare` on different sets of cases."""

import pytest

import pramana
from pramana.errors import InvalidInput

CASES = [
    {"id": "a", "input": "Say yes.", "ideal": "yes"},
    {"id": "b", "input": "Say no.", "ideal": "no"},
]


def test_runs_are_listed_newest_first_and_filtered_by_model_and_suite() -> None:
    assert str(pramana.runs()) == "No runs yet."
    first = pramana.evaluate(CASES, model="fake:echo")
    second = pramana.evaluate(CASES, model="fake:fixed=yes", repeat=2)
    found = pramana.runs()
    assert [each.id for each in found] == [second.run_id, first.run_id]
    assert [(each.status, each.stored, each.expected, each.passed, each.failed) for each in found] == [
        ("finished", 4, 4, 2, 2),
        ("finished", 2, 2, 2, 0),
    ]
    assert [each.pass_rate for each in found] == [0.5, 1.0]
    assert found[0].date == second.run.created
    (named,) = pramana.runs(model="fake:echo")
    assert (named.id, named.models, named.suite) == (first.run_id, ("fake:echo",), first.run.plan.suite)
    assert [each.id for each in pramana.runs(limit=1)] == [second.run_id]
    assert pramana.runs(suite="another") == []
    newest, _ = str(found).splitlines()
    assert newest.startswith(f"{second.run_id}  {second.run.created[:10]} ")
    assert newest.endswith("finished  4/4  50.0 % passed  cases  fake:fixed=yes")
    assert pramana.load_report(found[0].id).run_id == second.run_id


def test_a_run_is_found_by_its_name() -> None:
    named = pramana.evaluate(CASES, model="fake:echo", name="Nightly 100%", note="New prompt")
    pramana.evaluate(CASES, model="fake:echo")
    (found,) = pramana.runs(name="nightly")
    assert (found.id, found.name, found.note) == (named.run_id, "Nightly 100%", "New prompt")
    assert str(found).endswith("  fake:echo  Nightly 100%")
    assert [each.id for each in pramana.runs(name="100%")] == [named.run_id]
    assert pramana.runs(name="1000") == []
    assert pramana.load_report("nightly 100%").run_id == named.run_id
    expected = f'no run "nightly"; did you mean {named.run_id}, the run named "Nightly 100%"\\?; see: pramana.runs'
    with pytest.raises(pramana.PramanaError, match=expected):
        pramana.load_report("nightly")


def test_a_truncated_list_says_that_there_are_more_runs() -> None:
    for _ in range(3):
        pramana.evaluate(CASES, model="fake:echo")
    found = pramana.runs(limit=2)
    assert (len(found), found.total) == (2, 3)
    assert str(found).splitlines()[-1] == "2 of 3 runs; limit=3 lists all"
    assert len(str(pramana.runs(limit=3)).splitlines()) == 3


def test_different_suites_are_compared_on_common_cases_only_on_request() -> None:
    before = pramana.evaluate(CASES, model="fake:echo")
    after = pramana.evaluate([*CASES, {"id": "c", "input": "Say so.", "ideal": "so"}], model="fake:echo")
    with pytest.raises(InvalidInput) as refused:
        pramana.compare(before, after)
    assert str(refused.value).endswith("; to compare the 2 cases that both sides have, pass any_suite=True")
    assert "--any-suite" not in str(refused.value)
    assert str(pramana.compare(before, after, any_suite=True)).endswith("Left out: 1 case only in new.")


def test_an_unknown_run_error_suggests_python_calls() -> None:
    with pytest.raises(pramana.PramanaError, match=r"pramana\.evaluate\(\.\.\.\)"):
        pramana.load_report("latest")
