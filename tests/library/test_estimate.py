"""`pramana.estimate` and `pramana.load_report`: the cost of a run and the report of a stored one; nothing is sent."""

from contextlib import closing

import pytest

import pramana
from pramana import settings
from pramana.errors import InvalidInput, NotFound
from pramana.store import open_store

CASES = [{"id": f"case-{number}", "input": f"What is {number} + 1?", "ideal": str(number + 1)} for number in range(3)]


def never_called(prompt: str) -> str:
    raise AssertionError(f"an estimate asks nobody, and this was asked: {prompt}")


def count_stored_runs() -> int:
    with closing(open_store(settings.database_url())) as store:
        return store.runs.read_page()[1]


def test_an_estimate_calls_no_model_and_stores_nothing() -> None:
    found = pramana.estimate(CASES, models=[never_called, "fake:echo"], repeat=2)
    assert (found.cases, found.results, found.calls) == (3, 12, 12)
    assert isinstance(found, pramana.Estimate)
    assert count_stored_runs() == 0


def test_an_estimate_accepts_the_arguments_of_evaluate() -> None:
    found = pramana.estimate(
        CASES, model="gpt-5", judge=never_called, selection=pramana.Selection(ids=("case-1",)), seed=3
    )
    assert (found.cases, found.missing_keys) == (1, ("openai",))
    with pytest.raises(TypeError, match="unexpected keyword argument 'sede'; did you mean \"seed\""):
        pramana.estimate(CASES, model="gpt-5", sede=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="pass model or models, not both"):
        pramana.estimate(CASES, model="gpt-5", models=["gpt-5"])


def test_an_estimate_prints_as_text() -> None:
    lines = str(pramana.estimate(CASES, model="gpt-5")).splitlines()
    assert lines[0] == "Estimate: 3 cases, 3 results, 3 calls"
    assert lines[1].startswith("Tokens: ")
    assert lines[2].startswith("Cost: about $0.00")
    assert " (between $0.00" in lines[2]
    assert lines[3].startswith("Model gpt-5: 3 calls, ")
    assert lines[4] == "Judge: not needed"
    assert lines[5].startswith("Warning: no API key is set for openai on this machine")
    assert lines[-1].startswith("Nothing was sent or stored.")


def test_an_estimate_lists_cases_without_a_judge_and_models_without_a_price() -> None:
    judged = {"input": "Hello.", "check": {"type": "llm_judge", "judge_prompt": "Is it polite? YES or NO"}}
    found = pramana.estimate(judged, models=["local", "http://127.0.0.1:9/v1#mine"])
    assert [(each.model, each.cases) for each in found.unjudged] == [("local", 1)]
    assert found.unknown_prices == ("http://127.0.0.1:9/v1#mine",)
    text = str(found)
    assert "Cost: unknown\n" in text
    assert "Judge http://127.0.0.1:9/v1#mine: 1 call, " in text
    assert "Warning: 1 case of local will have no verdict: name a judge\n" in text
    assert "Warning: no price is known for http://127.0.0.1:9/v1#mine, so the cost is unknown\n" in text


def test_load_report_accepts_an_id_a_prefix_or_latest() -> None:
    first = pramana.evaluate(CASES, model="fake:fixed=1")
    second = pramana.evaluate(CASES, model="fake:fixed=4")
    for name, wanted in ((first.run_id, first), (second.run_id, second), ("latest", second)):
        assert pramana.load_report(name).run_id == wanted.run_id
    found = pramana.load_report()
    assert (found.run, found.summary, str(found)) == (second.run, second.summary, str(second))
    assert [each.case_id for each in found.failures] == [each.case_id for each in second.failures]
    assert pramana.load_report(first.run_id[:-1]).run_id == first.run_id


def test_load_report_of_an_unknown_run_is_an_error() -> None:
    with pytest.raises(NotFound, match="there is no run yet"):
        pramana.load_report()


# ── Functions passed to resume ──


def run_script_function(name: str) -> "pramana.Report":
    """Run a function of a script until its budget ends the run; return the report."""

    def agent(_: str) -> pramana.Reply:
        return pramana.Reply("1", pramana.Usage(5, 5))

    agent.__module__, agent.__qualname__ = "__main__", name
    return pramana.evaluate(CASES, model=agent, max_total_tokens=5, concurrency=1)


def replacement(_: str) -> str:
    return "4"


def test_resuming_with_another_function_is_refused_with_both_names_and_a_fix() -> None:
    left = run_script_function("agent")
    assert str(left).endswith(
        f"pramana.resume('{left.run_id}', model=function, max_total_tokens=N) (more than 5, or None)"
    )
    with pytest.raises(InvalidInput) as caught:
        pramana.resume(left.run_id, model=replacement)
    assert str(caught.value) == (
        f"run {left.run_id} calls python:__main__:agent, but the function passed is python:{__name__}:replacement; if it is "
        'the same function under a new name, pass models={"python:__main__:agent": replacement}, otherwise start a new run'
    )


def test_resume_accepts_a_function_by_its_stored_name() -> None:
    left = run_script_function("agent")
    ended = pramana.resume(left, models={"python:__main__:agent": replacement}, max_total_tokens=None)
    assert (ended.finished, ended.models) == (True, ["python:__main__:agent"])
    assert ended.summary.overall.total == 3


def test_resume_refuses_a_name_that_the_run_does_not_use() -> None:
    left = run_script_function("agent")
    with pytest.raises(InvalidInput, match=r'calls python:__main__:agent, .* is python:__main__:agnet; .*"python:__m'):
        pramana.resume(left, models={"python:__main__:agnet": replacement})
    with pytest.raises(InvalidInput, match="python:__main__:agent is a function, found str"):
        pramana.resume(left, models={"python:__main__:agent": "gpt-5"})  # type: ignore[dict-item]
    done = pramana.evaluate(CASES, model="fake:echo")
    with pytest.raises(
        InvalidInput, match=rf"run {done.run_id} calls no function, but python:{__name__}:replacement was"
    ):
        pramana.resume(done, model=replacement)
