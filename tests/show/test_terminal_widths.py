"""Output of commands at 80 and 160 columns, with one, two and eight models whose names share a long prefix.

The files in `golden/` are looked at by people: record them anew with `--record`, and read the difference.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from pramana import settings
from pramana.hash import hash_case
from pramana.model import Case, Check, Facets, Failure, Outcome, Plan, Reply, Result, ResultKey, Target, Turn, Usage
from pramana.report.terminal import count_columns
from pramana.request import RunEdit
from pramana.show.cli import pramana
from pramana.store import open_store

GOLDEN = Path(__file__).parent / "golden"
PREFIX = "http://gpu-cluster.internal:8000/v1#mistralai/mistral-small-3.2-24b-instruct-"
MODELS = [
    f"{PREFIX}{each}"
    for each in ("2506-q4_k_m", "2506-q5_k_m", "2506-q8_0", "2506-bf16", "2507-q4_k_m", "2507-q5_k_m", "2507-q8_0", "2507-bf16")
]  # fmt: skip
CATEGORIES = ("factual", "instruction-following", "reasoning", "safety")
TAGS = ("domain:banking", "domain:healthcare", "domain:transport")
ID = re.compile(r"r\d{8}-\d{6}-[0-9a-f]{4}")


def make_cases() -> list[Case]:
    return [
        Case(
            f"{CATEGORIES[number % 4]}-{number:03}",
            "test_case",
            (Turn("user", f"What is {number}?"),),
            Facets(CATEGORIES[number % 4], ("easy", "medium", "hard")[number % 3], "en", (TAGS[number % 3],)),
        )
        for number in range(24)
    ]


def make_result(case: Case, place: int, number: int, model: str) -> Result:
    """Return a result; better models pass more of them."""
    key = ResultKey(hash_case(case), model)
    if number == 7 and place == 1:
        return Result(key, case.id, None, Failure("unavailable", "HTTP 503 Service Unavailable"), (), None, None)
    passed = (number * 7 + place) % 24 >= 4 + 2 * place
    check = Check("contains_any", "1", Outcome.PASSED if passed else Outcome.FAILED, f"found none of '{number}'")
    reply = Reply("x", Usage(100, 20), total_s=0.25, first_token_s=0.125, cost_usd=0.001)
    return Result(key, case.id, reply, None, (check,), None, None)


def store_run(models: Sequence[str], suite: str) -> str:
    """Store a run of these models and return its id."""
    with closing(open_store(settings.database_url())) as store:
        targets = tuple(Target(each, "openai", each.rpartition("#")[2]) for each in models)
        cases = make_cases()
        created = store.runs.create(Plan(suite, None, targets, runner_version="0.1.0"), iter(cases))

        async def write() -> None:
            async with store.results.make_writer(created.id, lambda _: None) as writer:
                await writer.put([
                    make_result(case, place, number, model)
                    for number, case in enumerate(cases)
                    for place, model in enumerate(models)
                ])  # fmt: skip

        asyncio.run(write())
        store.queue.finish(created.id, None, "finished")
        store.runs.edit(created.id, RunEdit(name="nightly", note="The quantised builds against each other."))
    return created.id


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(pramana, arguments, standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout


def make_transcript(models: Sequence[str]) -> Iterator[str]:
    """Yield the output of each command, with the id and date of every run replaced."""
    first = store_run(models, "support-desk-2026")
    second = store_run(models, "support-desk-2026")
    commands = [("runs",), ("show", second)]
    commands.append(("compare", first, second, "--model", models[0]) if len(models) == 1 else ("compare", second, "--model", models[0], "--new-model", models[1]))  # fmt: skip
    ids = {first: "r20260101-000000-aaaa", second: "r20260102-000000-bbbb"}
    for arguments in commands:
        text = f"$ pramana {arguments[0]}\n{invoke(*arguments)}"
        text = ID.sub(lambda found: ids[found[0]], text)
        text = re.sub(r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b", "2026-01-02 09:00", text)
        yield re.sub(r"\b\d{4}-\d\d-\d\d\b", "2026-01-02", text)


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("columns", [80, 160])
def test_output_matches_the_golden_files_and_fits_the_width(
    columns: int, count: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = "\n".join(make_transcript(MODELS[:count]))
    golden = GOLDEN / f"{count}-models-{columns}-columns.txt"
    if request.config.getoption("--record"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert max(map(count_columns, text.splitlines())) <= columns


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("columns", [80, 160])
def test_no_two_models_have_the_same_label(columns: int, count: int) -> None:
    """In the list and in the summary, each model has its own line or heading."""
    text = (GOLDEN / f"{count}-models-{columns}-columns.txt").read_text(encoding="utf-8")
    runs, show = text.split("$ pramana ")[1:3]
    listed = runs.split("r20260102-000000-bbbb")[1].split("r20260101")[0]
    endings = [model.removeprefix(PREFIX) for model in MODELS[:count]]
    for part in (listed, show.partition("by category")[0], show.partition("by category")[2]):
        for ending in endings:
            assert re.search(rf"[…#-]{re.escape(ending)}(?:\s|:|\)|$)", part), (ending, part)


def test_the_list_of_runs_states_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    ids = [store_run(MODELS[:1], f"suite-{number}") for number in range(3)]
    *_, last = invoke("runs", "--limit", "2").splitlines()
    assert last == "2 of 3 runs; --limit 3 lists all"
    assert "of 3 runs" not in invoke("runs")
    assert [line.split()[0] for line in invoke("runs").splitlines() if ID.match(line)] == ids[::-1]
