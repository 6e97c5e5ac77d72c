"""Position bias by swapping, from the command line to the report: planted judges, limits, resuming, what is sent."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import pramana as library
from pramana.analyse.position_bias import RepeatedVerdict
from pramana.app.position_bias import list_repeated_verdicts
from pramana.app.rejudging import RejudgeRequest, plan_rejudging, rejudge
from pramana.app.rejudging_jobs import RejudgingEnd
from pramana.errors import InvalidInput
from pramana.providers.accounts import PassedFunctions
from pramana.request import Limits
from pramana.run.accounts import ProviderAccess
from pramana.show.cli import pramana
from pramana.store import open_store

from ..judged_runs import add_judged_run
from ..loopback.openai import OpenAIWire
from ..loopback.server import Loopback
from ..stores import home_store

JUDGES = '''\
import collections
import hashlib

import pramana

prompts, calls, fails_from = [], collections.Counter(), [10**9]


def chance(text):
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 16**8


def judged_text(prompt):
    return prompt.rpartition("\\n=====[")[0].rpartition("]=====\\n")[2]


def decide(prompt):
    """The verdict on the text alone, whatever the order of the prompt: NO for a third of the lines."""
    return chance(judged_text(prompt)) > 1 / 3


def prefers_first(prompt):
    """Takes the answer that is named first for three lines in ten."""
    if chance("unsure" + judged_text(prompt)) < 0.3:
        return prompt.rstrip().endswith("YES or NO.")
    return decide(prompt)


def flips(prompt):
    """Decides differently in every sixth call, by the number of the call on this text, whatever the order."""
    text = judged_text(prompt)
    calls[text] += 1
    return decide(prompt) != (chance(f"{text} {calls[text]}") < 1 / 6)


def costs(prompt):
    """Each call costs a cent; from a given call on, every call fails."""
    prompts.append(prompt)
    if len(prompts) >= fails_from[0]:
        raise RuntimeError("out of order")
    return pramana.Reply("It is a line.\\nYES", cost_usd=0.01)
'''


@pytest.fixture(name="suite")
def _suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two hundred cases that a judge judges, and a module of judges."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "swap_judges", raising=False)
    (tmp_path / "swap_judges.py").write_text(JUDGES, encoding="utf-8")
    return write_suite(tmp_path, 200)


def write_suite(folder: Path, count: int) -> Path:
    suite = folder / f"lines-{count}.jsonl"
    cases = [
        {
            "id": f"creative-{number:03}",
            "category": "creative",
            "input": f"Write line {number}.",
            "assertion": {"type": "llm_judge", "judge_prompt": "Is it short?"},
            "metadata": {"difficulty": "easy", "tokens_est": 8},
        }
        for number in range(count)
    ]
    suite.write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")
    return suite


def invoke(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(pramana, [*map(str, arguments)], standalone_mode=False)
    if isinstance(result.exception, Exception):
        raise result.exception
    assert (result.return_value or 0) == code, result.output
    return result.stdout


def run_suite(suite: Path, *judges: str) -> str:
    options = [option for judge in judges for option in ("--judge", judge)]
    return str(json.loads(invoke("run", suite, "--model", "fake:echo", *options, "--json"))["run"])


def swap(run: str, *options: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke("judge", "swap", run, *options, "--json", code=code))
    return found


def read_prompts() -> list[str]:
    return list(__import__("swap_judges").prompts)


# ── Planted judges ──


def test_a_judge_that_prefers_the_first_answer_is_found_and_reported_everywhere(suite: Path) -> None:
    run = run_suite(suite, "python:swap_judges:prefers_first")
    (judge,) = swap(run)["judges"]
    assert (judge["replies"], judge["repetition"]["changed"]) == (100, 0)
    assert 25 <= judge["earlier_no"] <= 50, "half of the replies, or all that the judge failed"
    (effect,) = judge["effects"]
    assert effect["changes"]["to_no"] > 8
    assert effect["changes"]["to_yes"] == 0
    assert effect["adjusted_direction_p_value"] < 0.01
    assert effect["finding"].startswith("The judge prefers the answer that is named first: compared with the same pro")

    text = " ".join(invoke("judge", "report", run).split())
    assert "Asked again with the same prompt, 0 of 100 verdicts changed: 0 % (95 % interval 0.0–3.6 %)." in text
    moved = effect["changes"]["to_no"]
    assert (
        f"With the answers swapped, {moved} of 100 verdicts changed, 0 to YES and {moved} to NO: {moved}.0 % (95 % interval "
        in text
    )
    assert f" %). {effect['finding']}" in text
    (reported,) = json.loads(invoke("judge", "report", run, "--json"))["judges"]
    assert reported["position_bias"] == {name: judge[name] for name in reported["position_bias"]}
    report = library.load_report(run).judge_report()
    assert report.judges[0].position_bias
    assert report.judges[0].position_bias.effects[0].finding == effect["finding"]
    assert effect["finding"][:50] in " ".join(str(report).split())


@pytest.mark.parametrize("name", ["decide", "flips"])
def test_a_judge_that_ignores_the_order_is_not_called_biased_even_if_it_is_noisy(suite: Path, name: str) -> None:
    run = run_suite(suite, f"python:swap_judges:{name}")
    (judge,) = swap(run, "--criterion-last", "--count", "200", "--concurrency", "1")[
        "judges"
    ]  # the same in each test run
    assert [each["changes"]["order"] for each in judge["effects"]] == ["answers-swapped", "criterion-last"]
    changed = [judge["repetition"]["changed"], *(each["changes"]["changed"] for each in judge["effects"])]
    assert all(each == 0 for each in changed) if name == "decide" else min(changed) > 10
    assert all(each["finding"].startswith("No effect beyond chance found") for each in judge["effects"])


# ── What is sent, stored and paid ──


def test_functions_get_both_orders_of_the_prompt_and_the_versions_tell_them_apart(suite: Path) -> None:
    run = run_suite(write_suite(suite.parent, 4), "python:swap_judges:costs")
    before = invoke("export", run)
    usual = sorted(read_prompts())
    swap(run, "--criterion-last")
    sent = read_prompts()[4:]
    assert sorted(each for each in sent if each in usual) == usual
    swapped = [each for each in sent if each.endswith("the last line is NO or YES.")]
    assert len(swapped) == 4
    assert all("YES or NO" not in each for each in swapped)
    late = [each for each in sent if each not in usual and each not in swapped]
    assert all(each.index("Is it short?") > each.rindex("\n=====[") for each in late)
    assert len(late) == 4

    assert invoke("export", run) == before
    assert len(json.loads(invoke("show", run, "--scorings", "--json"))) == 1
    with closing(open_store(home_store())) as store:
        made = store.rejudgements.list_of_run(run)
        (normal,) = {check.version for _, each in store.results.iterate(run) for check in each.checks}
    versions = {each.prompt_order: each.check.version for each in made}
    assert versions["usual"] == normal
    assert len(set(versions.values())) == 3
    assert all(versions[order].endswith(f" {order}") for order in ("answers-swapped", "criterion-last"))


def test_nothing_is_paid_for_twice_and_a_larger_draw_adds_to_the_smaller(suite: Path) -> None:
    run = run_suite(write_suite(suite.parent, 30), "python:swap_judges:costs")
    assert len(read_prompts()) == 30
    plan = json.loads(invoke("judge", "swap", run, "--count", "10", "--dry-run", "--json"))
    assert (plan["drawn"], plan["judged"], plan["calls"], plan["stored"]) == (10, 30, 20, 0)
    assert plan["estimated_cost_usd"] == pytest.approx(0.2)
    text = " ".join(invoke("judge", "swap", run, "--count", "10", "--dry-run").split())
    assert "10 of 30 judged replies drawn. 20 calls to python:swap_judges:costs: about $0.2000." in text
    assert len(read_prompts()) == 30, "a dry run sends nothing"
    assert swap(run, "--count", "10")["judges"][0]["cost_usd"] == pytest.approx(0.2)
    swap(run, "--count", "10")
    assert len(read_prompts()) == 50
    assert swap(run, "--count", "15")["judges"][0]["replies"] == 15
    assert len(read_prompts()) == 60
    assert swap(run, "--count", "15", "--criterion-last")["judges"][0]["replies"] == 15
    assert len(read_prompts()) == 75
    assert "Nothing to ask." in invoke("judge", "swap", run, "--count", "15", "--dry-run")


def test_a_cost_limit_ends_it_and_keeps_what_was_paid_for(suite: Path) -> None:
    run = run_suite(write_suite(suite.parent, 30), "python:swap_judges:costs")
    with pytest.raises(library.PramanaError, match=r"limit of \$0.05 is reached"):
        swap(run, "--max-cost", "0.05", "--concurrency", "1")
    assert len(read_prompts()) == 35
    (judge,) = json.loads(invoke("judge", "report", run, "--json"))["judges"]
    assert judge["position_bias"]["cost_usd"] == pytest.approx(0.05)
    swap(run)
    assert len(read_prompts()) == 90


def test_an_interrupt_keeps_the_verdicts_so_far(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    run = run_suite(write_suite(suite.parent, 30), "python:swap_judges:costs")
    module: Any = __import__("swap_judges")
    answer = module.costs

    def interrupt(prompt: str) -> Any:
        if len(module.prompts) == 40:
            signal.raise_signal(signal.SIGINT)
        return answer(prompt)

    monkeypatch.setattr(module, "costs", interrupt)
    swap(run, "--concurrency", "1", code=130)
    kept = len(read_prompts()) - 30
    assert 10 < kept < 60
    monkeypatch.setattr(module, "costs", answer)
    swap(run)
    assert len(read_prompts()) == 90


def test_failed_requests_are_repeated_by_the_next_command(suite: Path) -> None:
    run = run_suite(write_suite(suite.parent, 10), "python:swap_judges:costs")
    module: Any = __import__("swap_judges")
    module.fails_from[0] = 25
    first = swap(run, "--concurrency", "1", code=3)
    assert first["unanswered"] > 0
    assert first["judges"][0]["repetition"]["replies"] < 10
    module.fails_from[0] = 10**9
    (judge,) = swap(run)["judges"]
    assert (judge["repetition"]["replies"], judge["effects"][0]["replies"]) == (10, 10)


# ── Kinds of judges and replies ──


def test_a_judge_function_of_this_program_can_be_swapped() -> None:
    seen: list[str] = []

    def judge(prompt: str) -> bool:
        seen.append(prompt)
        return prompt.endswith("YES or NO.")

    cases = [
        {"input": f"Line {number}", "check": {"type": "llm_judge", "judge_prompt": "Is it short?"}}
        for number in range(8)
    ]
    report = library.evaluate(cases, model="fake:echo", judge=judge)
    (path,) = (each.model for each in report.run.plan.judges)
    with closing(open_store(home_store())) as store:
        plan = plan_rejudging(store, report.run, RejudgeRequest())
        with pytest.raises(InvalidInput, match="it exists only in the program that started the run"):
            asyncio.run(rejudge(store, report.run, plan, Limits()))
        reach = ProviderAccess(passed_functions=PassedFunctions({path: judge}))
        assert asyncio.run(rejudge(store, report.run, plan, Limits(), reach=reach)) == RejudgingEnd()
        verdicts = list_repeated_verdicts(store.rejudgements.list_of_run(report.run))
    assert [each.passed_by_order for each in verdicts] == [{"usual": True, "answers-swapped": False}] * 8
    assert sum(each.endswith("NO or YES.") for each in seen) == 8


SCRIPT = """\
scenarios:
  - id: booking-ferry
    name: Ferry
    type: task-completion
    difficulty: easy
    language: en
    prompt: Move my ferry.
    expected_outcome: Moves the ferry
    turns:
      - say: We have a van.
        assert:
          - type: llm_judge
            judge_prompt: Does it ask for the height?
          - type: contains_none
            ideal: [goodbye]
          - type: llm_judge
            judge_prompt: Is it polite?
      - say: Thank you.
        assert:
          - type: llm_judge
            judge_prompt: Does it end the call?
"""


def test_each_criterion_of_a_script_is_judged_again_by_itself(tmp_path: Path) -> None:
    (tmp_path / "ferry.yaml").write_text(SCRIPT, encoding="utf-8")
    seen: list[str] = []

    def judge(prompt: str) -> bool:
        seen.append(prompt)
        return "Is it polite?" in prompt

    report = library.evaluate(tmp_path / "ferry.yaml", model="fake:echo", judge=judge)
    first = sorted(seen)
    (path,) = (each.model for each in report.run.plan.judges)
    with closing(open_store(home_store())) as store:
        plan = plan_rejudging(store, report.run, RejudgeRequest())
        reach = ProviderAccess(passed_functions=PassedFunctions({path: judge}))
        assert asyncio.run(rejudge(store, report.run, plan, Limits(), reach=reach)) == RejudgingEnd()
        made = [each for each in store.rejudgements.list_of_run(report.run) if each.prompt_order == "usual"]
    assert {each.criterion: (each.earlier_passed, each.check.outcome.value) for each in made} == {
        "llm_judge:1": (False, "failed"),
        "llm_judge:1#2": (True, "passed"),
        "llm_judge:2": (False, "failed"),
        "rubric": (False, "failed"),
    }
    assert len(first) == 4
    assert sorted(each for each in seen[4:] if each in first) == first, "the same prompts are sent again"
    assert len([each for each in seen[4:] if each not in first]) == 4
    assert sum('"no" or "yes"' in each for each in seen) == 1


def test_a_judge_behind_an_api_gets_each_prompt_anew_although_the_run_used_the_cache() -> None:
    seen: list[str] = []

    def answer(messages: Sequence[Mapping[str, Any]]) -> str:
        prompt = "\n".join(str(each["content"]) for each in messages)
        seen.append(prompt)
        return f"It is a line.\n{'YES' if prompt.endswith('YES or NO.') else 'NO'}"

    async def measure() -> list[RepeatedVerdict]:
        cases = [
            {"input": f"Line {number}", "check": {"type": "llm_judge", "judge_prompt": "Is it short?"}}
            for number in range(8)
        ]
        async with Loopback(OpenAIWire(answer)) as server:
            judge = f"{server.url}#loopback-small"
            await library.evaluate_async(cases, model="fake:echo", judge=judge, cache=True)
            report = await library.evaluate_async(cases, model="fake:echo", judge=judge, cache=True)
            assert len(seen) == 8, "the second run used the cache"
            with closing(open_store(home_store())) as store:
                plan = plan_rejudging(store, report.run, RejudgeRequest())
                assert plan.estimated_cost_usd is None, "cached verdicts cost nothing, new ones may"
                assert await rejudge(store, report.run, plan, Limits()) == RejudgingEnd()
                return list_repeated_verdicts(store.rejudgements.list_of_run(report.run))

    verdicts = asyncio.run(measure())
    assert [each.passed_by_order for each in verdicts] == [{"usual": True, "answers-swapped": False}] * 8
    assert len(seen) == 24
    assert sum("NO if the criterion is not met, YES if it is." in each for each in seen) == 8


def test_models_that_judge_themselves_do_so_again() -> None:
    cases = [{"input": "Hi", "check": {"type": "llm_judge", "judge_prompt": "Is it short?"}}]
    run = library.evaluate(cases, models=["fake:fixed=YES", "fake:fixed=NO"]).run_id
    found = {each["judge"]: each for each in swap(run)["judges"]}
    assert sorted(found) == ["fake:fixed=NO", "fake:fixed=YES"]
    assert [each["cost_usd"] for each in found.values()] == [0.0, 0.0]
    assert all(each["repetition"]["replies"] == each["effects"][0]["replies"] == 1 for each in found.values())


def test_a_panel_judges_again_as_a_whole(suite: Path) -> None:
    names = [f"python:swap_judges:{name}" for name in ("prefers_first", "prefers_first_too", "decide")]
    module = suite.parent / "swap_judges.py"
    module.write_text(
        f"{JUDGES}\n\ndef prefers_first_too(prompt):\n    return prefers_first(prompt)\n", encoding="utf-8"
    )
    run = run_suite(suite, *names)
    assert json.loads(invoke("judge", "swap", run, "--dry-run", "--json"))["calls"] == 600
    (judge,) = swap(run)["judges"]
    assert judge["judge"] == " + ".join(names)
    assert judge["effects"][0]["finding"].startswith("The judge prefers the answer that is named first")


def test_a_report_by_another_judge_does_not_show_the_bias_of_the_first(suite: Path) -> None:
    run = run_suite(suite, "python:swap_judges:prefers_first")
    swap(run)
    invoke("rescore", run, "--judge", "python:swap_judges:decide", "--quiet")
    (now,) = json.loads(invoke("judge", "report", run, "--json"))["judges"]
    (first,) = json.loads(invoke("judge", "report", f"{run}@0", "--json"))["judges"]
    assert now["position_bias"] is None
    plan = json.loads(invoke("judge", "swap", f"{run}@0", "--dry-run", "--json"))
    assert (plan["calls"], plan["stored"]) == (0, 200)
    assert json.loads(invoke("judge", "swap", run, "--dry-run", "--json"))["judges"] == ["python:swap_judges:decide"]
    assert first["position_bias"]["replies"] == 100
    assert "Position bias is not measured yet: pramana judge swap" in " ".join(invoke("judge", "report", run).split())


def test_runs_without_usable_verdicts_are_refused_with_what_to_do() -> None:
    with closing(open_store(home_store())) as store:
        old = add_judged_run(store, [True, False])  # judged with prompts of another version
        with pytest.raises(InvalidInput, match=r"judge the replies first: pramana rescore"):
            plan_rejudging(store, old, RejudgeRequest())
        with pytest.raises(InvalidInput, match="count"):
            plan_rejudging(store, old, RejudgeRequest(count=0))
        with pytest.raises(library.PramanaError, match="is running; judge its replies again once it has ended"):
            plan_rejudging(store, replace(old, status="running"), RejudgeRequest())
    with pytest.raises(library.PramanaError):
        swap("no-such-run")


# ── Looking again, failures, and two at once ──


def test_only_the_first_draw_is_tested_also_after_an_interruption_and_with_a_larger_count(suite: Path) -> None:
    run = run_suite(suite, "python:swap_judges:prefers_first")
    with closing(open_store(home_store())) as store:
        found = store.runs.read(run)
        plan = plan_rejudging(store, found, RejudgeRequest(count=40))
        half = replace(plan, questions=plan.questions[:30])
        asyncio.run(rejudge(store, found, half, Limits()))
    (early,) = json.loads(invoke("judge", "report", run, "--json"))["judges"][0]["position_bias"]["effects"]
    assert early["finding"] == "Not tested yet: of 40 replies drawn first, 15 have both verdicts."
    assert early["adjusted_direction_p_value"] == 1.0
    (larger,) = swap(run, "--count", "200")["judges"][0]["effects"]
    assert (larger["replies"], larger["first_draw"], larger["added"], larger["changes"]["replies"]) == (
        40,
        40,
        160,
        200,
    )
    assert larger["finding"].endswith("Only the first draw of 40 replies is tested; 160 came later.")
    (same,) = swap(run, "--count", "40")["judges"][0]["effects"]
    assert same == larger


def test_a_verdict_is_compared_with_the_one_that_is_current_after_a_rescoring(suite: Path) -> None:
    name = "python:swap_judges:moody"
    module = suite.parent / "swap_judges.py"
    module.write_text(f"{JUDGES}\n\nmood = [True]\n\ndef moody(prompt):\n    return mood[0]\n", encoding="utf-8")
    run = run_suite(write_suite(suite.parent, 6), name)
    __import__("swap_judges").mood[0] = False
    assert swap(run)["judges"][0]["repetition"]["changed"] == 6
    invoke("rescore", run, "--judge", name, "--quiet")
    (judge,) = json.loads(invoke("judge", "report", run, "--json"))["judges"]
    assert (judge["position_bias"]["repetition"]["changed"], judge["position_bias"]["earlier_no"]) == (0, 6)
    (first,) = json.loads(invoke("judge", "report", f"{run}@0", "--json"))["judges"]
    assert first["position_bias"]["repetition"]["changed"] == 6


def test_failed_requests_say_why_and_how_often(suite: Path) -> None:
    run = run_suite(write_suite(suite.parent, 3), "python:swap_judges:costs")
    __import__("swap_judges").fails_from[0] = 0
    result = CliRunner().invoke(pramana, ["judge", "swap", run, "--quiet"], standalone_mode=False)
    assert result.return_value == 3
    said = " ".join(result.output.split())
    assert "6 requests failed; run the command again to repeat them: 6 × the request to the judge" in said
    assert "RuntimeError: out of order" in said
    assert swap(run, code=3)["failures"][0]["count"] == 6


def test_unreadable_answers_are_counted_and_repeated_on_request(suite: Path) -> None:
    module = suite.parent / "swap_judges.py"
    module.write_text(
        f"{JUDGES}\n\nsaid = ['YES']\n\ndef mumbles(prompt):\n    prompts.append(prompt)\n    return said[0]\n",
        encoding="utf-8",
    )
    run = run_suite(write_suite(suite.parent, 3), "python:swap_judges:mumbles")
    judges: Any = __import__("swap_judges")
    judges.said[0] = "who knows"
    assert swap(run, code=4)["unreadable"] == 6
    result = CliRunner().invoke(pramana, ["judge", "swap", run], standalone_mode=False)
    assert result.return_value == 4
    said = " ".join(result.output.split())
    assert "6 answers stored already, 6 of them unreadable. Nothing to ask." in said
    assert f"6 answers without a readable verdict; to ask again: pramana judge swap {run} --again" in said
    judges.said[0] = "YES"
    (judge,) = swap(run, "--again")["judges"]
    assert (judge["unreadable"], judge["repetition"]["replies"], judge["effects"][0]["replies"]) == (0, 3, 3)
    count = len(judges.prompts)
    swap(run, "--again")
    assert len(judges.prompts) == count, "readable answers are not asked for again"


def test_a_second_process_is_refused_while_one_asks_and_asks_nothing_that_was_stored_meanwhile(suite: Path) -> None:
    run_id = run_suite(write_suite(suite.parent, 4), "python:swap_judges:costs")
    module: Any = __import__("swap_judges")
    with closing(open_store(home_store())) as store:
        run = store.runs.read(run_id)
        early = plan_rejudging(store, run, RejudgeRequest())
        assert store.queue.claim_ended(run_id, "process 7 on desk [another machine 1]")
        with pytest.raises(library.PramanaError, match="process 7 on desk is asking the judges of run") as refused:
            swap(run_id)
        assert refused.value.exit_code == 3
        assert len(module.prompts) == 4
        store.queue.release(run_id, "process 7 on desk [another machine 1]")
        assert store.queue.claim_ended(run_id, "process 7 on desk [another machine 1]", lease_s=-1), "it died"
        swap(run_id)
        assert len(module.prompts) == 12
        asyncio.run(rejudge(store, run, early, Limits()))
        assert len(module.prompts) == 12, "the plan was made before the other process had asked"
        after = store.runs.read(run_id)
    assert (after.status, after.holder) == ("finished", None)


def test_no_call_starts_after_a_signal_and_a_hanging_judge_ends_at_its_timeout(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import signal
    import threading

    run = run_suite(write_suite(suite.parent, 20), "python:swap_judges:costs")
    module: Any = __import__("swap_judges")
    released, started = threading.Event(), []

    def hang(prompt: str) -> None:
        started.append(prompt)
        if len(started) == 4:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        released.wait(20)

    monkeypatch.setattr(module, "costs", hang)
    try:
        swap(run, "--timeout", "0.3", "--concurrency", "32", code=130)
    finally:
        released.set()
    assert len(started) < 20, "those that waited for a place were not sent after the signal"
