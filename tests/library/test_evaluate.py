"""`pramana.evaluate` and its siblings: any callable, thread or event loop; stored results survive errors and interrupts."""

import asyncio
import gc
import html
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

import pramana
from pramana import settings
from pramana.errors import AuthenticationFailed, InvalidInput, RateLimited
from pramana.store import open_store

SUMS = [{"id": f"sum-{number}", "input": f"What is {number} + 1?", "ideal": str(number + 1)} for number in range(1, 6)]


def adder(prompt: str) -> str:
    first, _, second = prompt.removeprefix("What is ").removesuffix("?").partition(" + ")
    return f"It is {int(first) + int(second)}."


def wrong(prompt: str) -> str:
    return "I do not know." if prompt[8] in "23" else adder(prompt)


class Agent:
    """A callable object, and one with a method."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    def __call__(self, prompt: str) -> str:
        return adder(prompt)

    async def answer(self, prompt: str) -> str:
        await asyncio.sleep(0)
        return adder(prompt)


def outcomes_by_id(report: pramana.Report) -> dict[str, str]:
    return {each.case_id: each.outcome.value for each in report.results()}


def test_a_run_can_have_a_name_and_a_note() -> None:
    report = pramana.evaluate(SUMS[:1], model=adder, name="nightly", note="The new prompt")
    assert (report.run.name, report.run.note) == ("nightly", "The new prompt")
    with pytest.raises(InvalidInput, match="name: expected text of at most 100"):
        pramana.evaluate(SUMS[:1], model=adder, name="x" * 101)


# ── Models ──


def test_a_function_is_stored_by_its_qualified_name() -> None:
    report = pramana.evaluate(SUMS, model=wrong, concurrency=1)
    assert (report.pass_rate, report.finished, report.models) == (0.6, True, [f"python:{__name__}:wrong"])
    assert report.interval is not None
    assert report.interval[0] < 0.6 < report.interval[1]
    assert [each.case_id for each in report.failures] == ["sum-2", "sum-3"]
    assert report.failures[0].reason == 'does not contain "3"'
    assert report.failures[0].reply is not None
    assert report.failures[0].reply.text == "I do not know."
    assert not report.summary.not_reproducible
    with closing(open_store(settings.database_url())) as store:
        assert store.runs.find("latest").id == report.run_id


async def answer_slowly(prompt: str) -> str:
    await asyncio.sleep(0)
    return adder(prompt)


def from_messages(messages: list[dict[str, str]]) -> str:
    assert [each["role"] for each in messages] == ["system", "user"]
    return adder(messages[-1]["content"])


def answer_with_sampling(prompt: str, *, seed: int, temperature: float = 0.9) -> str:
    assert (seed, temperature) == (7, 0.25)
    return adder(prompt)


def reply(prompt: str) -> pramana.Reply:
    return pramana.Reply(adder(prompt), pramana.Usage(10, 2), served_model="adder-2", finish_reason="stop")


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (adder, "adder"),
        (answer_slowly, "answer_slowly"),
        (from_messages, "from_messages"),
        (answer_with_sampling, "answer_with_sampling"),
        (reply, "reply"),
        (Agent(), "Agent"),
        (Agent().answer, "Agent.answer"),
        (partial(adder), "adder"),
        (lambda prompt: f"{adder(prompt)}", "<lambda>"),
    ],
)
def test_any_callable_can_be_evaluated(function: Callable[..., Any], name: str) -> None:
    options: dict[str, Any] = {"seed": 7, "temperature": 0.25}
    if name == "from_messages":
        options["system_prompt"] = "Add."
    report = pramana.evaluate(SUMS, model=function, **options)
    assert report.passed, outcomes_by_id(report)
    assert report.models == [f"python:{__name__}:{name}"]


assigned = lambda prompt: f"{adder(prompt)}"  # noqa: E731


def test_a_lambda_has_the_name_of_the_variable_that_holds_it() -> None:
    left = pramana.evaluate(SUMS, model=assigned, deadline_s=0.000001)
    assert left.models == [f"python:{__name__}:assigned"]
    assert pramana.resume(left, deadline_s=60).passed, "it is imported by that name"
    report = pramana.evaluate(SUMS, models={"support": lambda prompt: f"{adder(prompt)}"})
    assert report.models == [f"python:{__name__}:support"]


def test_a_reply_keeps_the_metadata_that_the_function_returns() -> None:
    report = pramana.evaluate(SUMS[:1], model=reply)
    (result,) = report.results()
    assert result.reply is not None
    assert (result.input_tokens, result.output_tokens) == (10, 2)
    assert (result.reply.served_model, result.reply.finish_reason) == ("adder-2", "stop")


def test_an_exception_in_a_function_is_an_error_not_a_failure() -> None:
    def crash(prompt: str) -> str:
        raise ValueError(f"cannot add {prompt[:9]}")

    report = pramana.evaluate(SUMS[:2], model=crash)
    assert (report.pass_rate, len(report.errors), report.failures) == (None, 2, [])
    reason = report.errors[0].reason
    assert reason is not None
    assert re.search(
        r"raised ValueError: cannot add What is [12] \((tests/library/)?test_evaluate\.py, line \d+, in crash\)$",
        reason,
    )


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda prompt: 7, "returned int; expected text (str) or pramana.Reply"),
        (lambda prompt: pramana.Reply("x", finish_reason=3), "returned a Reply whose finish_reason is a int"),  # type: ignore[arg-type]
    ],
)
def test_a_return_value_of_the_wrong_type_is_an_error_that_names_the_expected_type(
    function: Callable[..., Any], why: str
) -> None:
    (error,) = pramana.evaluate(SUMS[:1], model=function).errors
    assert why in str(error.reason)


@pytest.mark.parametrize(
    "function", [lambda: "x", lambda *, topic: "x"]
)  # fmt: skip
def test_a_function_without_a_prompt_parameter_is_refused_and_no_run_is_created(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidInput, match=r"cannot be called.*expected a function of the prompt, or of `messages`"):
        pramana.evaluate(SUMS[:1], model=function)
    with closing(open_store(settings.database_url())) as store:
        assert store.runs.read_page(limit=5)[1] == 0


def test_results_of_several_models_are_not_pooled() -> None:
    report = pramana.evaluate(SUMS, models=[adder, wrong, "fake:echo"])
    assert {name.rpartition(":")[2]: each.passed for name, each in report.by_model.items()} == {
        "adder": 5, "wrong": 3, "echo": 0,
    }  # fmt: skip
    with pytest.raises(InvalidInput, match=r"3 models, whose results are not pooled; use report\.by_model"):
        _ = report.pass_rate


def test_two_functions_with_the_same_name_can_be_given_names() -> None:
    def answering(answer: str) -> Callable[[str], str]:
        return lambda prompt: answer

    with pytest.raises(InvalidInput, match=r'two functions have the same name .*name them: models=\{"before": first'):
        pramana.evaluate(SUMS, models=[answering("2"), answering("3")])
    named = {"two": answering("2"), "three": answering("3")}
    report = pramana.evaluate(SUMS[:2], models=named)
    assert report.models == [f"python:{__name__}:two", f"python:{__name__}:three"]
    assert [each.passed for each in report.by_model.values()] == [1, 1]
    assert str(report).splitlines()[0].startswith(f"python:{__name__}:two: 1 of 2 passed (50.0 %, 95 % interval ")
    assert pramana.resume(report, models=named).run_id == report.run_id


def test_a_function_can_be_the_judge() -> None:
    def judge(prompt: str) -> str:
        return "YES" if "Is it polite?" in prompt and "Please." in prompt else "NO"

    case = pramana.Case("Say please.", check={"type": "llm_judge", "judge_prompt": "Is it polite?"})
    report = pramana.evaluate(case, model=lambda prompt: "Please.", judge=judge)
    assert report.passed
    assert report.summary.judge_names == [f"python:{__name__}:test_a_function_can_be_the_judge.<locals>.judge"]


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"modle": "x"}, TypeError, "unexpected keyword argument 'modle'; did you mean"),
        ({"temprature": 1}, TypeError, 'did you mean "temperature"'),
        ({"model": 3}, InvalidInput, "model: expected a model's name or a function, found 3"),
        ({"model": ["x", "y"]}, InvalidInput, r"model is one model; for several write models=list"),
        ({"model": adder, "scorers": adder}, InvalidInput, r"scorers is a list; for one scorer write scorers=\[adder\]"),
        ({"models": {"a b": adder}}, InvalidInput, "a function cannot be called 'a b'"),
        ({"models": {"short": "gpt-5"}}, InvalidInput, "the model gpt-5 cannot be renamed"),
        ({"model": "x", "models": ["y"]}, InvalidInput, "pass model or models, not both"),
        ({"models": "gpt-5"}, InvalidInput, "models is a list or a dictionary; for one model write model='gpt-5'"),
        ({"model": "fake", "repeat": 0}, InvalidInput, "repeat: expected a whole number from 1 to 1,000, found 0"),
        ({"model": "fake", "concurrency": 0}, InvalidInput, "^concurrency: expected a whole number"),
        ({"model": "no-such-model"}, InvalidInput, "unknown model"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused_before_any_model_call(
    options: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        pramana.evaluate(SUMS, **options)


def test_a_fatal_provider_error_says_how_to_resume() -> None:
    def fail_authentication(prompt: str) -> str:
        if prompt == "What is 3 + 1?":
            raise AuthenticationFailed("the key was revoked")
        return adder(prompt)

    with pytest.raises(AuthenticationFailed, match="the key was revoked") as raised:
        pramana.evaluate(SUMS, model=fail_authentication, concurrency=1)
    (note,) = raised.value.__notes__
    assert note.startswith("2 of 5 results are stored; resume with pramana.resume('r")


def test_a_run_that_exhausts_its_budget_returns_a_report_with_the_reason() -> None:
    report = pramana.evaluate(SUMS, model=reply, max_total_tokens=20, concurrency=1)
    assert not report.finished
    assert report.run.status == "stopped"
    assert report.run.reason is not None
    assert "tokens" in report.run.reason
    assert report.stop_reason == report.run.reason
    assert str(report).splitlines()[1].startswith("The run ended early: ")
    assert f"3 of 5 results are missing: pramana.resume('{report.run_id}', max_total_tokens=N)" in str(report)
    with pytest.raises(AssertionError, match=r"without a verdict counted as failed(.|\n)*The run ended early: "):
        report.assert_pass_rate(0.9)


def test_rate_limits_raised_by_a_function_are_retried() -> None:
    asked: list[str] = []

    def raise_rate_limited(prompt: str) -> str:
        asked.append(prompt)
        if asked.count(prompt) == 1:
            raise RateLimited("slow down", retry_after=0.01)
        return adder(prompt)

    assert pramana.evaluate(SUMS[:2], model=raise_rate_limited).passed
    assert len(asked) == 4


# ── Cases ──


class Frame:
    """The part of a pandas data frame that is used."""

    columns = ("input", "ideal", "language")

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        assert orient == "records"
        return [{**each, "language": float("nan")} for each in SUMS]


class PolarsFrame:
    def to_dicts(self) -> list[dict[str, Any]]:
        return [{**each, "language": None} for each in SUMS]


def write_suite(folder: Path) -> Path:
    path = folder / "sums.jsonl"
    lines = [
        {"id": each["id"], "category": "reasoning", "input": each["input"], "ideal": each["ideal"],
         "assertion": {"type": "contains"}, "metadata": {"difficulty": "easy", "tokens_est": 9}}
        for each in SUMS
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "given",
    [
        SUMS,
        iter(SUMS),
        [pramana.Case(**each) for each in SUMS],  # type: ignore[arg-type]
        Frame(),
        PolarsFrame(),
    ],
)
def test_cases_can_be_given_in_every_supported_shape(given: Any) -> None:
    report = pramana.evaluate(given, model=adder)
    assert outcomes_by_id(report) == {f"sum-{number}": "passed" for number in range(1, 6)}
    assert report.run.plan.suite == "cases"


def test_cases_can_be_read_from_files_and_filtered(tmp_path: Path) -> None:
    path = write_suite(tmp_path)
    assert pramana.evaluate(path, model=adder).run.plan.suite_hash == pramana.hash_suite(path)
    assert pramana.evaluate(str(path), model=adder, selection=pramana.Selection(limit=2)).summary.overall.total == 2
    assert pramana.evaluate([path], model=adder, repeat=3).summary.overall.total == 15
    assert pramana.evaluate(suite="v1.0", tier="cheap", model="fake:echo").run.plan.suite == "v1.0-cheap"


def test_a_dictionary_is_the_same_case_as_the_equal_suite_line(tmp_path: Path) -> None:
    path = write_suite(tmp_path)
    line = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    by_file = pramana.evaluate(path, model=adder, selection=pramana.Selection(limit=1))
    by_row = pramana.evaluate(line, model=adder)
    assert next(by_file.results()).case_digest == next(by_row.results()).case_digest


def test_all_case_errors_are_reported_together_and_nothing_is_stored() -> None:
    rows = [
        {"input": "a", "ideal": "b"},
        {"inptu": "a"},
        {"ideal": "b"},
        {"input": "a", "check": "contains"},
        {"input": "a", "check": "contians", "ideal": "b"},
        {"input": [{"role": "robot", "content": "a"}]},
        {"input": "a", "ideal": 3.5},
        {"input": "a", "ideal": "b"},
        {"prompt": "Hello", "id": "greet"},
        7,
    ]
    with pytest.raises(InvalidInput) as refused:
        pramana.evaluate(rows, model=adder)
    said = [str(each) for each in refused.value.problems]
    assert [each.partition(":")[0] for each in said[:7]] == [
        "cases[1].inptu", "cases[2].input", "cases[3].check", "cases[4].check", "cases[5].input[0]", "cases[6].ideal",
        "cases[7].id",
    ]  # fmt: skip
    assert 'did you mean "input"' in said[0]
    assert "contains needs an ideal" in said[2]
    assert 'did you mean "contains"' in said[3]
    assert any(each.startswith("cases[8].") for each in said)
    assert refused.value.__notes__ == said[1:]  # which a traceback prints
    assert said[-1] == "cases[9]: expected a pramana.Case or a dictionary, found int"
    with closing(open_store(settings.database_url())) as store:
        assert store.runs.read_page(limit=5)[1] == 0


@pytest.mark.parametrize(
    ("cases", "why"),
    [
        ([], "no cases were given"),
        (7, "cases are a path, cases, dictionaries or a data frame, found 7"),
        (["a.jsonl", SUMS[0]], "only paths or only cases"),
        ("missing.jsonl", "missing.jsonl does not exist"),
    ],
)
def test_invalid_cases_are_refused(cases: Any, why: str) -> None:
    with pytest.raises(pramana.PramanaError, match=why):
        pramana.evaluate(cases, model=adder)


# ── Threads and event loops ──


def test_evaluate_works_inside_a_running_event_loop() -> None:
    async def cell() -> pramana.Report:
        return pramana.evaluate(SUMS, model=answer_slowly)

    assert asyncio.run(cell()).passed


def test_evaluate_async_runs_coroutines_in_the_callers_loop() -> None:
    loops: set[int] = set()

    async def answer(prompt: str) -> str:
        loops.add(id(asyncio.get_running_loop()))
        return adder(prompt)

    async def main() -> tuple[int, pramana.Report]:
        return id(asyncio.get_running_loop()), await pramana.evaluate_async(SUMS, model=answer)

    ours, report = asyncio.run(main())
    assert report.passed
    assert loops == {ours}


def test_evaluate_runs_all_coroutines_in_one_shared_loop() -> None:
    """A client with open connections belongs to the loop it was first used in."""
    loops: set[int] = set()

    async def answer(prompt: str) -> str:
        loops.add(id(asyncio.get_running_loop()))
        return adder(prompt)

    assert pramana.evaluate(SUMS, model=answer).passed
    assert pramana.evaluate(SUMS, model=answer).passed
    assert len(loops) == 1


def test_several_evaluations_run_concurrently_in_threads_and_in_one_loop() -> None:
    reports: list[pramana.Report] = []
    threads = [threading.Thread(target=lambda: reports.append(pramana.evaluate(SUMS, model=adder))) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    async def at_once() -> list[pramana.Report]:
        return await asyncio.gather(*(pramana.evaluate_async(SUMS, model=answer_slowly) for _ in range(3)))

    reports += asyncio.run(at_once())
    assert [each.passed for each in reports] == [True] * 6
    assert len({each.run_id for each in reports}) == 6


def test_evaluate_installs_no_signal_handler() -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    during: list[Any] = []

    def look(prompt: str) -> str:
        during.append({each: signal.getsignal(each) for each in before})
        return adder(prompt)

    assert pramana.evaluate(SUMS[:1], model=look).passed
    assert during == [before]


# ── Streams ──


def test_a_stream_yields_each_result_with_its_case() -> None:
    async def collect() -> list[tuple[str, str, str]]:
        return [
            (each.case_id, each.case.turns[0].text, each.outcome.value)
            async for each in pramana.stream(SUMS, model=wrong)
        ]

    found = asyncio.run(collect())
    assert sorted(found)[1] == ("sum-2", "What is 2 + 1?", "failed")
    assert len(found) == 5


def test_a_stream_that_is_left_early_can_be_resumed() -> None:
    asked: list[str] = []
    left_early = threading.Event()

    def count_call(prompt: str) -> str:
        asked.append(prompt)
        assert len(asked) < 2 or left_early.wait(10)
        return adder(prompt)

    async def take_one() -> None:
        results = pramana.stream(SUMS, model=count_call, concurrency=1)
        async for _ in results:
            break
        leaving = asyncio.create_task(results.aclose())
        await asyncio.sleep(0)
        left_early.set()
        await leaving

    asyncio.run(take_one())
    with closing(open_store(settings.database_url())) as store:
        left = store.runs.find("latest")
    assert left.status == "interrupted"
    assert left.stored == len(asked) == 2  # running calls are finished
    report = pramana.resume(model=count_call)
    assert report.run_id == left.id
    assert report.passed
    assert sorted(asked) == sorted({*asked})  # no prompt was sent twice


def test_garbage_collection_is_rare_during_runs_and_restored_after_the_last() -> None:
    before, seen = gc.get_threshold(), []
    both = threading.Barrier(2)

    def wait_for_both(prompt: str) -> str:
        if "1" in prompt:
            both.wait(10)
        seen.append(gc.get_threshold()[0])
        return adder(prompt)

    threads = [
        threading.Thread(target=pramana.evaluate, args=(SUMS[:1],), kwargs={"model": wait_for_both}) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 2
    assert min(seen) > 10_000
    assert gc.get_threshold() == before


def test_breaking_out_of_a_stream_allows_resuming_at_once() -> None:
    asked: list[str] = []
    slow = threading.Event()

    def count_call(prompt: str) -> str:
        asked.append(prompt)
        if len(asked) == 4:
            threading.Timer(0.2, slow.set).start()  # it is running when the loop is left
            slow.wait(10)
        return adder(prompt)

    class Keeping(ThreadPoolExecutor):
        """Keeps a reference to its function, as a thread does for a moment after its result is returned."""

        kept: ClassVar[list[Any]] = []

        def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
            self.kept.append((function, given, named))
            return super().submit(function, *given, **named)

    async def break_and_go_on() -> tuple[str | None, list[pramana.Report]]:
        asyncio.get_running_loop().set_default_executor(Keeping())
        results = pramana.stream(SUMS, model=count_call, concurrency=2)
        async for _ in results:
            break
        run_id = results.run_id
        del results
        assert run_id
        return run_id, [pramana.resume(run_id, model=count_call), await pramana.resume_async(run_id, model=count_call)]

    run_id, reports = asyncio.run(break_and_go_on())
    assert [(each.run_id, each.passed) for each in reports] == [(run_id, True)] * 2
    assert sorted(asked) == sorted({*asked})  # running calls were finished, and no prompt was sent twice


def test_a_stream_closes_with_its_context_and_raises_the_error_that_ended_its_run() -> None:
    async def leave() -> str | None:
        async with pramana.stream(SUMS, model=adder, concurrency=1) as results:
            async for _ in results:
                break
        return results.run_id

    async def fail() -> None:
        def fail_authentication(_: str) -> str:
            raise AuthenticationFailed("the key was revoked")

        results = pramana.stream(SUMS, model=fail_authentication)
        assert results.run_id is None
        async for _ in results:
            pass

    left = asyncio.run(leave())
    with closing(open_store(settings.database_url())) as store:
        assert left
        assert store.runs.find(left).status in ("interrupted", "finished")
    with pytest.raises(AuthenticationFailed, match="the key was revoked"):
        asyncio.run(fail())


# ── Interrupted and resumed ──

SCRIPT = """
import signal, sys, threading, pramana
started = threading.Event()
def slow(prompt):
    number = int(prompt)
    if number >= 3:
        print("three", flush=True)
        threading.Event().wait({wait})
    return prompt
if __name__ == "__main__":
    pramana.evaluate([{{"id": f"n-{{each}}", "input": str(each), "ideal": str(each)}} for each in range(8)],
                     model=slow, concurrency=1)
"""


@pytest.mark.parametrize(("interrupts", "wait"), [(1, 0.3), (2, 60)])
def test_ctrl_c_keeps_the_stored_results(interrupts: int, wait: float, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(wait=wait), encoding="utf-8")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}  # noqa: TID251 - a child's
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "three\n"
        process.send_signal(signal.SIGINT)
        if interrupts == 2:
            threading.Event().wait(0.5)  # for the first signal to be handled: two at once count as one
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    with closing(open_store(settings.database_url())) as store:
        left = store.runs.find("latest")
    assert left.status == "interrupted"
    assert left.stored == (4 if interrupts == 1 else 3)
    if interrupts == 1:
        assert (
            f"interrupted; 4 of 8 results are stored; resume with pramana.resume('{left.id}', model=function)" in said
        )

    with pytest.raises(InvalidInput, match="exists only in the program that started the run; resume the run there"):
        pramana.resume(left.id)

    def elsewhere(prompt: str) -> str:
        return prompt

    elsewhere.__module__, elsewhere.__qualname__ = "__main__", "slow"
    report = pramana.resume(left.id, model=elsewhere)
    assert report.passed
    assert report.summary.overall.total == 8


def test_resume_refuses_changes_to_the_plan() -> None:
    with pytest.raises(InvalidInput, match="seed, temperature cannot be changed"):
        pramana.resume("latest", seed=1, temperature=0.5)  # type: ignore[call-arg]


def test_a_model_that_the_run_does_not_test_is_refused_when_resuming() -> None:
    left = pramana.evaluate(SUMS, model="fake:echo", deadline_s=0.000001)
    with pytest.raises(
        InvalidInput, match=f"run {left.run_id} tests fake:echo, not fake:fixed=yes; resume the run without"
    ):
        pramana.resume(left, model="fake:fixed=yes")
    assert pramana.resume(left, model="fake:echo", deadline_s=60).finished


@pytest.mark.parametrize(("name", "hint"), [("max_cost", "; write max_cost_usd"), ("nonsense", "")])
def test_an_option_that_resume_does_not_have_is_refused_with_its_name(name: str, hint: str) -> None:
    with pytest.raises(TypeError) as refused:
        pramana.resume("latest", **{name: 1})  # type: ignore[arg-type]
    assert str(refused.value) == f"resume() got an unexpected keyword argument {name!r}{hint}"


def test_an_item_of_the_list_of_runs_is_a_run() -> None:
    before = pramana.evaluate(SUMS, model=wrong, name="before")
    after = pramana.evaluate(SUMS, model=adder)
    newest, oldest = pramana.runs()
    assert pramana.load_report(oldest).run_id == pramana.load_report(before).run_id == before.run_id
    assert pramana.resume(newest).run_id == after.run_id
    assert str(pramana.compare(oldest, newest)) == str(pramana.compare(before, after))
    with pytest.raises(InvalidInput, match=r"a run is its id, a report, or an item of pramana\.runs\(\), found 7"):
        pramana.load_report(7)  # type: ignore[arg-type]


def test_a_run_of_a_lambda_can_be_resumed_only_with_a_function() -> None:
    counting = lambda prompt: pramana.Reply(adder(prompt), pramana.Usage(10, 2))  # noqa: E731
    run_id = pramana.evaluate(SUMS, model=counting, max_total_tokens=20, concurrency=1).run_id
    with pytest.raises(InvalidInput, match=r"exists only in the program that started the run; .*model=function"):
        pramana.resume(run_id)
    assert pramana.resume(run_id, model=counting, max_total_tokens=None).passed


def test_resuming_a_finished_run_returns_its_report() -> None:
    report = pramana.evaluate(SUMS, model=adder)
    assert pramana.resume(report).summary.overall == report.summary.overall


# ── Reports and comparisons ──


@pytest.fixture(name="report")
def _report() -> pramana.Report:
    return pramana.evaluate(SUMS, model=wrong, concurrency=1)  # results are in the order in which they were stored


def test_a_report_converts_to_records_files_and_text(report: pramana.Report, tmp_path: Path) -> None:
    records = report.to_records()
    assert [each["outcome"] for each in records].count("failed") == 2
    assert {each["run_id"] for each in records} == {report.run_id}
    assert (records[0]["prompt"], records[0]["expected"], records[0]["output"]) == ("What is 1 + 1?", "2", "It is 2.")
    for name, begins in {
        "a.html": "<!doctype html>", "a.md": "#", "a.json": "[", "a.csv": "test_id,", "a.xml": "<?xml",
        "a.jsonl": '{"test_id": "sum-1"',
    }.items():  # fmt: skip
        assert report.save(tmp_path / name).read_text(encoding="utf-8").startswith(begins)
    with pytest.raises(InvalidInput, match=r'unknown file ending "\.docx"; use \.html, \.md'):
        report.save(tmp_path / "a.docx")
    assert repr(report) == f"<Report of run {report.run_id}: cases, python:{__name__}:wrong 60.0 %>"
    assert str(report) == "3 of 5 passed (60.0 %, 95 % interval 14.7–94.7 %)"


def test_tool_calls_of_a_function_are_in_the_results() -> None:
    call = pramana.ToolCall("get_weather", '{"city": "Paris"}', "call_1")
    report = pramana.evaluate(
        [{"input": "Weather?", "ideal": "Paris"}], model=lambda _: pramana.Reply("", tool_calls=(call,))
    )
    (found,) = report.results()
    assert found.reply is not None
    assert [(each.id, each.name, each.arguments) for each in found.reply.tool_calls] == [
        ("call_1", "get_weather", '{"city": "Paris"}')
    ]
    with pytest.raises(AssertionError, match=r"reply:  \(no text; called get_weather\("):
        report.assert_passed()
    assert "(no text; called get_weather(" in html.unescape(report._repr_html_().replace("<wbr />", ""))


def test_a_report_converts_to_data_frames(report: pramana.Report, tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl

    assert pd.read_parquet(report.save(tmp_path / "a.parquet"))["test_id"].tolist() == [each["id"] for each in SUMS]
    assert report.to_pandas().query("outcome == 'failed'")["test_id"].tolist() == ["sum-2", "sum-3"]
    assert report.to_polars().filter(pl.col("outcome") == "failed")["test_id"].to_list() == ["sum-2", "sum-3"]
    assert report.to_pandas()["latency_ms"].dtype == "int64"
    again = pramana.evaluate(pd.DataFrame(SUMS), model=adder)
    assert pramana.evaluate(pl.DataFrame(SUMS), model=adder).passed
    assert again.passed


def test_a_numeric_column_stays_numeric_when_every_value_is_missing() -> None:
    report = pramana.evaluate([{"input": "No ideal, so no score."}], model=str.lower)
    assert {report.to_records()[0][name] for name in ("score", "cost_usd", "input_tokens")} == {None}
    frame, table = report.to_pandas(), report.to_polars()
    assert {str(frame[name].dtype) for name in ("score", "cost_usd", "input_tokens", "first_token_ms")} == {"float64"}
    assert frame["score"].mean() != frame["score"].mean()  # NaN instead of an error
    kinds = [str(table.schema[name]) for name in ("score", "cost_usd", "input_tokens", "latency_ms", "scores")]
    assert kinds == ["Float64", "Float64", "Int64", "Int64", "String"]
    assert list(frame.columns) == table.columns == list(report.to_records()[0])


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("a.csv", r"(?m)^(sum-\d),"),
        ("a.xml", r' name="(sum-\d)"'),
        ("a.md", r"(?m)^- `(sum-\d)`"),
        ("a.json", r'"test_id": "(sum-\d)"'),
        ("a.jsonl", r'"test_id": "(sum-\d)"'),
        ("a.html", r'<span class="mono"><bdi dir="auto">(sum-\d)</bdi>'),
    ],
)
def test_files_list_results_in_the_order_of_the_cases(tmp_path: Path, name: str, pattern: str) -> None:
    last_ended = asyncio.Event()

    async def first_ends_last(prompt: str) -> str:
        if prompt == SUMS[0]["input"]:
            await last_ended.wait()
        elif prompt == SUMS[-1]["input"]:
            last_ended.set()
        return "I do not know."

    report = pramana.evaluate(SUMS, model=first_ends_last)
    ids = [each["id"] for each in SUMS]
    assert [each.case_id for each in report.results()] != ids
    assert re.findall(pattern, report.save(tmp_path / name).read_text(encoding="utf-8")) == ids


def test_assert_pass_rate_checks_the_observed_or_the_proven_rate(report: pramana.Report) -> None:
    report.assert_pass_rate(0.6)
    with pytest.raises(AssertionError) as missed:
        report.assert_pass_rate(0.61)
    assert str(missed.value).splitlines()[:6] == [
        "3 of 5 passed (60 %), and 61 % is required",
        "",
        "failed: sum-2",
        "  prompt: What is 2 + 1?",
        "  reply:  I do not know.",
        '  reason: does not contain "3"',
    ]
    with pytest.raises(AssertionError, match=r"at 95 % confidence the pass rate is at least 18.9 %, and 60 % is"):
        report.assert_pass_rate(0.6, confidence=0.95)
    with pytest.raises(AssertionError, match="3 of 5 passed"):
        report.assert_passed()
    with pytest.raises(InvalidInput, match="minimum is a share from 0 to 1, found 90"):
        report.assert_pass_rate(90)


@pytest.mark.parametrize("margin", [-1, 100.5, float("nan"), "5", None])
def test_compare_refuses_an_invalid_margin(report: pramana.Report, margin: Any) -> None:
    with pytest.raises(pramana.InvalidInput, match="margin is a number of points from 0 to 100, found"):
        pramana.compare(report, pramana.evaluate(SUMS, model=wrong), margin=margin)


def test_a_comparison_says_whether_a_loss_of_the_margin_is_excluded(report: pramana.Report) -> None:
    again = pramana.evaluate(SUMS, model=wrong)
    found = [pramana.compare(report, again, margin=margin) for margin in (5, 60)]
    assert [(each.margin, each.loss_excluded) for each in found] == [(5.0, False), (60.0, True)]


def test_compare_accepts_run_ids_reports_and_files(report: pramana.Report, tmp_path: Path) -> None:
    better = pramana.evaluate(SUMS, model=adder)
    found = pramana.compare(report, better)
    assert [each.case_id for each in found.gained] == ["sum-2", "sum-3"]
    assert str(found) == found.sentence
    files = report.save(tmp_path / "before.json"), better.save(tmp_path / "after.json")
    assert [each.case_id for each in pramana.compare(*files).gained] == ["sum-2", "sum-3"]
    assert pramana.compare(report.run_id, str(files[1])).pairs == 5
    both = pramana.evaluate(SUMS, models=[adder, wrong])
    found = pramana.compare(both, both, model=both.models[0], new_model=both.models[1])
    assert len(found.lost) == 2


# ── Costs returned by functions ──


def test_a_cost_returned_by_a_function_overrides_the_price_list() -> None:
    def paid(_: str) -> pramana.Reply:
        return pramana.Reply("ok", usage=pramana.Usage(10, 2), cost_usd=0.25)

    report = pramana.evaluate(SUMS[:2], model=paid)
    assert report.cost_usd == 0.5
    assert [each.cost_usd for each in report.results()] == [0.25, 0.25]
    prices = settings.prices_file_path()
    prices.parent.mkdir(parents=True, exist_ok=True)
    name = report.models[0]
    prices.write_text(f'[prices."{name}"]\ninput_per_million = 1e6\noutput_per_million = 1e6\n')
    assert pramana.evaluate(SUMS[:2], model=paid).cost_usd == 0.5


def test_a_cost_limit_counts_the_cost_returned_by_a_function() -> None:
    def paid(_: str) -> pramana.Reply:
        return pramana.Reply("ok", cost_usd=0.25)

    report = pramana.evaluate(SUMS, model=paid, max_cost_usd=0.5, concurrency=1)
    assert (report.cost_usd, report.stop_reason) == (0.5, "the run's limit of $0.5 is reached")


def test_a_reply_without_a_cost_stops_a_run_with_a_cost_limit() -> None:
    report = pramana.evaluate(SUMS, model=adder, max_cost_usd=0.5, concurrency=1)
    assert (report.run.stored, report.cost_usd) == (1, None)
    assert "so its cost is unknown; a function can state it: pramana.Reply(" in (report.stop_reason or "")


@pytest.mark.parametrize("cost", [-1.0, float("nan"), "0.25"])
def test_an_invalid_cost_is_an_error_of_the_function(cost: Any) -> None:
    report = pramana.evaluate(SUMS[:1], model=lambda prompt: pramana.Reply("ok", cost_usd=cost))
    assert "returned a Reply whose cost_usd is" in (report.errors[0].reason or "")


# ── The system prompt ──


def test_a_system_prompt_parameter_receives_the_system_prompt_separately() -> None:
    def agent(prompt: str, system_prompt: str) -> str:
        return f"[{system_prompt}] [{prompt}]"

    def with_default(prompt: str, *, system_prompt: str = "Be kind.") -> str:
        return f"[{system_prompt}] [{prompt}]"

    def of_messages(messages: list[dict[str, str]], system_prompt: str) -> str:
        return f"[{system_prompt}] {len(messages)}"

    def plain(prompt: str) -> str:
        return f"[{prompt}]"

    def reply_text(model: Callable[..., str], **options: Any) -> str:
        (result,) = pramana.evaluate({"input": "Hi", "ideal": "Hi"}, model=model, **options).results()
        assert result.reply is not None
        return result.reply.text

    assert reply_text(agent, system_prompt="Be brief.") == "[Be brief.] [Hi]"
    assert reply_text(agent) == "[] [Hi]"
    assert reply_text(with_default) == "[Be kind.] [Hi]"
    assert reply_text(with_default, system_prompt="Be brief.") == "[Be brief.] [Hi]"
    assert reply_text(of_messages, system_prompt="Be brief.") == "[Be brief.] 2"
    assert reply_text(plain, system_prompt="Be brief.") == "[Be brief.\n\nHi]"


def test_the_pass_rate_excludes_errors_but_passed_does_not() -> None:
    def breaks(prompt: str) -> str:
        if "1 + 1" in prompt:
            return "2"
        raise ValueError("broken")

    report = pramana.evaluate(SUMS, model=breaks)
    assert (report.pass_rate, report.passed) == (1.0, False)
    assert pramana.evaluate(SUMS[1:], model=breaks).pass_rate is None
    assert "without errored ones" in (pramana.Report.pass_rate.__doc__ or "")


def test_the_totals_of_a_report_are_documented_properties() -> None:
    report = pramana.evaluate(SUMS, model=wrong)
    overall = report.summary.overall
    assert overall.value == report.pass_rate
    assert overall.interval is not None
    assert (overall.interval.low, overall.interval.high) == report.interval
    assert "`value` (the pass" in (pramana.Report.summary.__doc__ or "")
