"""`import pramana` used wrongly: each mistake is an error that names the argument and says what to do, or works."""

import asyncio
import gc
import math
import os
import pathlib
import sqlite3
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import pramana
from pramana import settings
from pramana.errors import InvalidInput, NotFound, PramanaError, StoreFailed
from pramana.library.pytest_integration import parametrize

from .. import programs

HELLO = {"id": "hello", "input": "Say hello.", "ideal": "hello"}
CASES = [{"id": f"case-{number}", "input": f"Say hello {number}.", "ideal": "hello"} for number in range(6)]
SECRET = "sk-an-api-key-that-is-never-stored"
LONGEST_S = 20.0


class Broken:
    """A value whose every method fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


class BrokenAgent(Broken):
    """A callable that raises when it is looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __call__(self, _: str) -> str:
        return "hello"


def agent(prompt: str) -> str:
    return prompt.lower()


JUNK = {
    "number": 1.5,
    "negative": -1,
    "infinite": math.inf,
    "huge": 10**400,
    "bytes": b"x",
    "dictionary": {1: 2},
    "list": [1],
    "set": {1},
    "class": Broken,
    "broken": Broken(),
    "surrogate": "\ud800",
    "control": "\x1b[2J\x00",
    "long": "x" * 100_000,
}
OPTIONS = {
    "model", "models", "judge", "repeat", "suite", "tier", "selection", "scenarios", "modalities", "condition",
    "embedder", "stt", "voice", "scorers", "temperature", "seed", "max_tokens", "top_p", "parameters", "max_cost_usd",
    "max_total_tokens", "deadline_s", "concurrency", "timeout_s", "cache",
}  # fmt: skip
ACCEPTED = {
    "temperature": ("number",), "seed": ("negative",), "max_cost_usd": ("number",), "deadline_s": ("number",),
    "timeout_s": ("number",),
}  # fmt: skip
NAMED_OTHERWISE = {
    "tier": "suite|tier",
    "model": "model|cannot be called",
    "models": "model",
    "modalities": "modalit",
    "embedder": "embedder|model",
    "stt": "stt|model|speech",
    "judge": "judge|model|cannot be called",
    "scorers": "scorer",
}
"""What the message names where it is not the option alone."""


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_wrong_values_of_an_option_are_refused_by_name_before_anything_is_stored(option: str) -> None:
    cases = None if option in ("suite", "tier", "scenarios") else HELLO
    for name, value in JUNK.items():
        if name in ACCEPTED.get(option, ()):
            continue
        given: dict[str, Any] = {option: value} if option == "models" else {"model": agent, option: value}
        with pytest.raises(PramanaError, match=NAMED_OTHERWISE.get(option, option)) as refused:
            pramana.evaluate(cases, **given)
        assert_printable(str(refused.value))
        assert_no_frames_of_ours(refused.value)
    assert len(pramana.runs()) == 0


def assert_printable(message: str) -> None:
    assert not {*message} & {"\x1b", "\0", "\ud800"}
    assert len(message) < 2_000


def assert_no_frames_of_ours(error: BaseException) -> None:
    frames = [each.name for each in traceback.extract_tb(error.__traceback__) if "/src/pramana/" in each.filename]
    assert frames in ([], ["call"])


# ── Arguments of the other functions ──


def unless(accepted: Any, value: Any) -> Any:
    """Return the value, or a wrong one in place of one of a type that is accepted."""
    return 0.5 if isinstance(value, accepted) else value


@pytest.mark.parametrize(
    "call",
    [
        pramana.evaluate, pramana.estimate, pramana.validate, pramana.hash_suite, pramana.load_report,
        pramana.resume, pramana.compare, pramana.runs, parametrize,
        lambda value: asyncio.run(take_all(pramana.stream(value, model=agent))),
        lambda value: list(pramana.cases_of(value)),
        lambda value: pramana.runs(model=unless(str, value)),
        lambda value: pramana.compare("latest", value),
        lambda value: pramana.resume(model=value),
        lambda value: pramana.resume(models=value),
        lambda value: parametrize(HELLO, selection=value),
        lambda value: pramana.Case("Say hello.", id=unless(str, value)),
        lambda value: pramana.Case("Say hello.", tags=unless(str | int, value)),
        lambda value: pramana.Case("Say hello.", ideal=unless(str | int, value)),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_refused(call: Callable[[Any], Any]) -> None:
    for value in JUNK.values():
        with pytest.raises(PramanaError) as refused:
            call(value)
        assert_printable(str(refused.value))


async def take_all(stream: pramana.Stream) -> int:
    return len([each async for each in stream])


def test_a_prompt_in_place_of_a_path_is_refused_with_how_to_write_a_case() -> None:
    for cases in ("What is the capital of France?", ["What is the capital of France? " * 30]):
        with pytest.raises(InvalidInput, match=r'cases: there is no file "What is .* is {"input": "…", "ideal": "…"}'):
            pramana.evaluate(cases, model=agent)
    with pytest.raises(NotFound, match=r"my suite.jsonl does not exist"):
        pramana.evaluate("my suite.jsonl", model=agent)


def test_the_exception_of_a_generator_of_cases_reaches_its_caller_and_stores_nothing() -> None:
    def cases() -> Any:
        yield HELLO
        raise ValueError("my generator")

    with pytest.raises(ValueError, match="my generator"):
        pramana.evaluate(cases(), model=agent)
    assert len(pramana.runs()) == 0


def test_metadata_nested_too_deeply_to_be_printed_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    with pytest.raises(InvalidInput, match=r"cases\[0\].metadata: expected an object of .*, found a dict"):
        pramana.evaluate({**HELLO, "metadata": deep}, model=agent)


def test_a_misspelt_limit_of_a_resumed_run_is_refused_with_its_name() -> None:
    with pytest.raises(TypeError, match=r"'concurency'; did you mean \"concurrency\"\?"):
        pramana.resume("latest", concurency=2)  # type: ignore[call-arg]


def test_a_resumed_run_keeps_its_models() -> None:
    pramana.evaluate(CASES, model=agent, max_total_tokens=1, concurrency=1)
    with pytest.raises(InvalidInput, match="not gpt-5; resume the run without naming models, or start a new run"):
        pramana.resume(model="gpt-5")


def test_a_listed_run_is_named_by_itself() -> None:
    first, second = (pramana.evaluate(HELLO, model=agent) for _ in range(2))
    newest, oldest = pramana.runs()
    assert pramana.load_report(oldest).run_id == pramana.resume(oldest, model=agent).run_id == first.run_id
    assert pramana.load_report(newest).run_id == second.run_id
    assert pramana.compare(oldest, newest).pairs == 1


# ── Callables ──


def test_a_callable_that_raises_when_it_is_looked_at_is_called() -> None:
    assert pramana.evaluate(HELLO, model=BrokenAgent()).pass_rate == 1.0
    with pytest.raises(InvalidInput, match="two functions have the same name"):
        pramana.evaluate(HELLO, models=[BrokenAgent(), BrokenAgent()])


@pytest.mark.parametrize("name", [5, None, ("a",)])
def test_a_function_whose_given_name_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(InvalidInput, match="models: the name of a function is text, found"):
        pramana.evaluate(HELLO, models={name: agent})


def test_a_coroutine_that_stops_the_shared_loop_does_not_block_the_others() -> None:
    async def stops(_: str) -> str:
        asyncio.get_running_loop().stop()
        return "hello"

    async def waits(_: str) -> str:
        await asyncio.sleep(0)
        return "hello"

    for function in (stops, waits, stops, waits):
        assert pramana.evaluate(CASES, model=function, timeout_s=LONGEST_S).pass_rate == 1.0


def interrupts(_: str) -> str:
    raise KeyboardInterrupt


async def interrupts_later(_: str) -> str:
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", [interrupts, interrupts_later])
def test_a_function_that_raises_keyboardinterrupt_interrupts_the_run_which_can_be_resumed(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"interrupted; 0 of 6 results are stored; resume with pramana.resume"):
        pramana.evaluate(CASES, model=function, concurrency=2)
    gc.collect()
    (run,) = pramana.runs()
    assert run.status == "interrupted"
    resumed = pramana.resume(run, models={f"python:{__name__}:{function.__name__}": agent})
    assert resumed.pass_rate == 1.0


def test_a_scorer_that_raises_keyboardinterrupt_interrupts_the_run() -> None:
    @pramana.scorer(name="impatient")
    def impatient(_: Any) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="interrupted; 0 of 1 results are stored"):
        pramana.evaluate(HELLO, model=agent, scorers=[impatient])
    assert [each.status for each in pramana.runs()] == ["interrupted"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"served_model": SECRET}, {"fingerprint": SECRET}, {"finish_reason": SECRET}, {"dropped": (SECRET,)},
        {"raw": f'{{"key": "{SECRET}"}}'.encode()}, {"text": SECRET},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_no_field_of_a_reply_stores_a_key_of_the_environment(
    wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    report = pramana.evaluate(HELLO, model=lambda prompt: pramana.Reply(**{"text": "hello", **wrong}))
    assert [each.failure_code for each in report.results()] == ["key_in_answer"]
    assert not stores(SECRET)


@pytest.mark.parametrize("option", ["parameters", "system_prompt", "name", "note"])
def test_a_key_of_the_environment_in_an_option_that_is_stored_is_refused(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    value = {"api_key": SECRET} if option == "parameters" else f"use {SECRET}"
    with pytest.raises(InvalidInput, match=f"{option}: contains an API key from the environment") as refused:
        pramana.evaluate(HELLO, model=agent, **{option: value})  # type: ignore[arg-type]
    assert SECRET not in str(refused.value)
    assert not stores(SECRET)


def stores(text: str) -> bool:
    files = [path for path in settings.data_folder().rglob("*") if path.is_file()]
    assert files
    return any(text.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize(("cost", "shown"), [(-1, "-1"), (math.inf, "inf"), ("1", "a str")])
def test_a_number_that_is_none_is_shown(cost: Any, shown: str) -> None:
    report = pramana.evaluate(HELLO, model=lambda prompt: pramana.Reply("hello", cost_usd=cost))
    (result,) = report.results()
    assert result.reason is not None
    assert result.reason.endswith(f"returned a Reply whose cost_usd is {shown}")


# ── Reports ──


@pytest.fixture
def report() -> pramana.Report:
    hostile = "<script>alert(1)</script>\x1b[2J\x00"
    case = {"id": hostile, "name": hostile, "category": hostile, "tags": [hostile], "input": hostile, "ideal": "no"}
    return pramana.evaluate(case, model=lambda prompt: f"{hostile}\u202e", name=hostile)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (None, "path: expected the path of a file to write, found None"),
        (5, "path: expected the path of a file to write, found 5"),
        (b"a.json", "path: expected the path of a file to write, found b'a.json'"),
        (" ", "path: expected the path of a file to write, found ' '"),
        ("missing/a.json", '"missing/a.json" cannot be written: No such file or directory; create its folder first'),
        ("folder.json", '"folder.json" cannot be written: Is a directory; choose another path'),
        ("a\0.json", "cannot be written: embedded null byte"),
        (f"{'x' * 300}.json", "cannot be written: File name too long"),
        ("a.exe", 'unknown file ending ".exe"'),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(
    report: pramana.Report, path: Any, why: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(InvalidInput, match=why):
        report.save(path)
    assert [path.name for path in tmp_path.iterdir() if path.name != "pramana-home"] == ["folder.json"]


@pytest.mark.parametrize("format_", [5, object(), ["json"], pramana.Exporter])
def test_a_format_that_is_none_is_refused(report: pramana.Report, format_: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidInput, match=r"format: expected the name of a format, or an exporter made by"):
        report.save(tmp_path / "a.json", format_)


@pytest.mark.parametrize("value", ["0.9", [1], None, math.nan, 90, Broken()])
def test_a_pass_rate_that_is_no_share_is_refused(report: pramana.Report, value: Any) -> None:
    with pytest.raises(InvalidInput, match="minimum is a share from 0 to 1, found"):
        report.assert_pass_rate(value)
    if value is not None:
        with pytest.raises(InvalidInput, match="confidence is a share from 0 to 1, found"):
            report.assert_pass_rate(0, confidence=value)


def test_the_message_of_a_failed_assertion_cannot_control_a_terminal(report: pramana.Report) -> None:
    with pytest.raises(AssertionError, match="failed: <script>") as failed:
        report.assert_passed()
    assert all(each.isprintable() or each == "\n" for each in str(failed.value))


# ── Extensions ──


@pytest.mark.parametrize(
    "make",
    [
        lambda: pramana.exporter(5, ending=".x"),  # type: ignore[arg-type]
        lambda: pramana.exporter("", ending=".x"),
        lambda: pramana.exporter("x", ending=5),  # type: ignore[arg-type]
        lambda: pramana.exporter("x", ending="../x"),
        lambda: pramana.exporter("x", ending=".x")(5),  # type: ignore[arg-type]
        lambda: pramana.assertion_type(5),  # type: ignore[arg-type]
        lambda: pramana.assertion_type("x", version=5),  # type: ignore[arg-type]
        lambda: pramana.assertion_type("x", needs=5),  # type: ignore[arg-type]
        lambda: pramana.assertion_type("x")(5),  # type: ignore[arg-type]
        lambda: pramana.scorer(5),  # type: ignore[call-overload]
        lambda: pramana.scorer(name="x", version=5)(agent),  # type: ignore[call-overload]
    ],
)
def test_an_extension_that_cannot_work_is_refused_where_it_is_declared(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInput, match="found"):
        make()


def test_a_scorer_that_names_a_model_wrongly_reads_which_argument_is_wrong() -> None:
    @pramana.scorer(name="asks")
    async def asks(context: Any) -> bool:
        return bool(await context.ask("Is it good?", model=5))

    (result,) = pramana.evaluate(HELLO, model=agent, scorers=[asks]).results()
    assert result.checks[-1].reason == (
        "asks could not score: InvalidInput: model: expected the name of a model, found 5"
    )


# ── Streams ──


def test_a_stream_is_read_in_the_event_loop_that_started_it() -> None:
    async def start() -> pramana.Stream:
        stream = pramana.stream(CASES, model=agent, concurrency=1)
        await anext(stream)
        return stream

    stream = asyncio.run(start())
    with pytest.raises(InvalidInput, match=r"started in another event loop; .*, or resume its run with pramana.resume"):
        asyncio.run(take_all(stream))


# ── Stores ──


def damage(path: pathlib.Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    path.write_bytes(path.read_bytes()[:5_000])


def replace_by_text(path: pathlib.Path) -> None:
    path.write_text("not a database\n" * 100)


def replace_by_folder(path: pathlib.Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "advice"),
    [
        (damage, "the file is damaged: put back a copy of it, or move it and the files beside it"),
        (replace_by_text, "is not a store of Pramana: move it away, or name another folder in PRAMANA_HOME"),
        (replace_by_folder, "which is a folder, not a file; name another folder in PRAMANA_HOME"),
    ],
)
def test_a_store_that_cannot_be_opened_is_named_with_what_to_do(
    spoil: Callable[[pathlib.Path], None], advice: str
) -> None:
    pramana.evaluate(HELLO, model=agent)
    path = settings.data_folder() / "pramana.sqlite3"
    for beside in path.parent.glob("pramana.sqlite3-*"):
        beside.unlink()
    spoil(path)
    calls: list[Callable[[], Any]] = [
        lambda: pramana.evaluate(HELLO, model=agent),
        pramana.runs,
        pramana.load_report,
        pramana.resume,
        lambda: pramana.compare("latest", "latest"),
        lambda: pramana.estimate(HELLO, model=agent),
    ]
    for call in calls:
        with pytest.raises(StoreFailed, match=advice) as failed:
            call()
        assert str(path) in str(failed.value)
        assert_no_frames_of_ours(failed.value)


def test_a_data_folder_whose_name_is_too_long_is_an_error_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAMANA_HOME", f"/tmp/{'x' * 300}")
    with pytest.raises(
        StoreFailed, match="whose name cannot be used: File name too long; name another folder in PRAMANA_HOME"
    ):
        pramana.evaluate(HELLO, model=agent)


def test_a_store_that_fails_in_the_middle_of_a_run_says_how_to_resume() -> None:
    limit = threading.Event()

    def fills_the_disk(prompt: str) -> str:
        with sqlite3.connect(settings.data_folder() / "pramana.sqlite3") as connection:
            refuse = (
                "CREATE TRIGGER full BEFORE INSERT ON results BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
            )
            if not limit.is_set():
                limit.set()
                connection.execute(refuse)
        connection.close()
        return prompt.lower()

    with pytest.raises(StoreFailed, match="disk is full; free some space: stored data is kept") as failed:
        pramana.evaluate(CASES, model=fills_the_disk, concurrency=1)
    assert "0 of 6 results are stored; resume with pramana.resume(" in failed.value.__notes__[0]


# ── Surroundings ──

EVALUATE = """
import pramana
report = pramana.evaluate({"input": "Say hello.", "ideal": "hello"}, model=str.lower, progress=True)
open("report.txt", "w").write(str(report))
"""


@pytest.mark.parametrize(
    "before",
    [
        "import sys; sys.stdout = sys.stderr = None",
        "import sys; sys.stdout.close(); sys.stderr.close(); import os; sys.stdout = sys.stderr = None",
        "import io, sys; sys.stderr = io.StringIO(); sys.stderr.close()",
        "import os; os.close(1); os.close(2)",
    ],
)
def test_a_run_needs_no_open_stream(before: str, tmp_path: pathlib.Path) -> None:
    program = f"{before}\n{EVALUATE}\nimport os; os._exit(0)"
    programs.run(["-c", program], cwd=tmp_path)
    assert (tmp_path / "report.txt").read_text().startswith("1 of 1 passed")


def test_a_function_is_looked_up_although_the_current_folder_was_deleted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    try:
        assert pramana.evaluate(HELLO, model="python:builtins:str").pass_rate == 1.0
        with pytest.raises(InvalidInput, match="python:no_such_module:agent cannot be loaded"):
            pramana.evaluate(HELLO, model="python:no_such_module:agent")
    finally:
        os.chdir(tmp_path)
