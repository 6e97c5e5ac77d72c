"""`pramana compare`: what may be compared with what, runs and files alike, and who judged."""

import asyncio
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from pramana import settings
from pramana.errors import InvalidInput
from pramana.hash import case_digest
from pramana.model import (
    Assertion,
    Case,
    Check,
    Facets,
    Failure,
    Key,
    Outcome,
    Plan,
    Reply,
    Result,
    Target,
    Turn,
)
from pramana.show.cli import pramana
from pramana.show.exports import write_json
from pramana.show.terminal import width
from pramana.store import open_store

P, F, E = Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED
HASH = "sha256:" + "0" * 64
OTHER = "sha256:" + "1" * 64


def case(number: int, asked: str = "What is") -> Case:
    turns = (Turn("user", f"{asked} {number}?"),)
    return Case(f"factual-{number:03}", "test_case", turns, Facets("factual", "easy"), Assertion("contains"), ("x",))


def cases(count: int, asked: str = "What is") -> list[Case]:
    return [case(number, asked) for number in range(count)]


CONTAINS = Check("contains", "1", P, "because")


def judged(by: str, version: str = "1 ab", served: str | None = None) -> Check:
    return Check("llm_judge", version, P, "because", evidence={"judge": by, "served_model": served, "answers": ["YES"]})


def run(
    asked: Sequence[Case],
    outcomes: Callable[[int], Sequence[Outcome]] = lambda _: [P],
    *,
    suite_hash: str | None = None,
    models: Sequence[Target] = (Target("m", "fake", "m"),),
    repeats: int = 1,
    check: Check = CONTAINS,
) -> str:
    """Store a run; `outcomes` are those of each case by its number, one a repeat."""
    plan = Plan("mine", suite_hash, tuple(models), repeats, {"temperature": 0, "seed": 42}, runner_version="0.1.0")

    async def write(run_id: str, results: Iterable[Result]) -> None:
        async with store.writer(run_id, lambda _: None) as writer:
            await writer.put(list(results))

    with closing(open_store(settings.database_url())) as store:
        created = store.create_run(plan, iter(asked))
        made = [
            result(each, Key(case_digest(each), model.typed, "text", repeat), outcome, check)
            for number, each in enumerate(asked)
            for model in models
            for repeat, outcome in enumerate(outcomes(number))
        ]
        asyncio.run(write(created.id, made))
        store.finish(created.id, "finished" if len(made) == created.expected else "stopped")
    return created.id


def result(of: Case, key: Key, outcome: Outcome, check: Check) -> Result:
    if outcome is E:
        return Result(key, of.id, None, Failure("unavailable", "a 500"), (), None, None)
    return Result(key, of.id, Reply("x", total_s=0.1), None, (replace(check, outcome=outcome),), None, None)


def exported(run_id: str, path: Path, without: Sequence[str] = ()) -> str:
    """Write a run as results.json; `without` takes fields of results away, as older programs have none."""
    out = io.StringIO()
    with closing(open_store(settings.database_url())) as store:
        write_json(store.run(run_id), store.pairs(run_id), out)
    blocks = json.loads(out.getvalue())
    for block in blocks:
        block["results"] = [{key: each[key] for key in each if key not in without} for each in block["results"]]
    path.write_text(json.dumps(blocks), encoding="utf-8")
    return str(path)


def compared(*arguments: str) -> tuple[int, Mapping[str, Any]]:
    done = CliRunner().invoke(pramana, ["compare", *arguments, "--json"], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.return_value, json.loads(done.stdout)


def said(*arguments: str) -> str:
    done = CliRunner().invoke(pramana, ["compare", *arguments], standalone_mode=False)
    assert done.exception is None, done.exception
    return " ".join(done.stdout.split())


# ── Which suite ──


def failing(_: int) -> Sequence[Outcome]:
    return [F]


def test_two_runs_without_a_hash_are_of_the_same_suite_when_their_cases_are() -> None:
    base, same, edited = run(cases(9)), run(cases(9)[::-1], failing), run(cases(9, "What was"), failing)
    code, found = compared(base, same)
    assert (code, found["verdict"], found["pairs"]) == (1, "regression", 9)
    with pytest.raises(InvalidInput, match="not known to have been asked the same cases"):
        compared(base, edited)
    code, found = compared(base, edited, "--any-suite")
    assert (code, found["pairs"], len(found["only_base"])) == (4, 0, 9)


@pytest.mark.parametrize(
    ("hashes", "counts", "refused"),
    [
        ((HASH, HASH), (9, 9), False),
        ((HASH, OTHER), (9, 9), True),
        ((HASH, None), (9, 9), False),  # a selection of everything
        ((None, HASH), (9, 8), True),  # a selection against the whole
        ((None, None), (9, 8), True),
        ((None, None), (9, 9), False),
    ],
)
def test_which_runs_are_of_the_same_suite(
    hashes: tuple[str | None, str | None], counts: tuple[int, int], refused: bool
) -> None:
    base, new = (run(cases(count), suite_hash=each) for each, count in zip(hashes, counts, strict=True))
    if refused:
        with pytest.raises(InvalidInput, match="--any-suite"):
            compared(base, new)
    assert compared(base, new, "--any-suite")[0] == 0
    if not refused:
        assert compared(base, new)[0] == 0


def test_what_an_unfinished_run_did_not_ask_is_not_overlooked() -> None:
    base, new = run(cases(60)), run(cases(60), lambda number: [P] if number < 30 else [])
    for flags in ((), ("--any-suite",)):
        code, found = compared(base, new, *flags)
        assert (code, found["verdict"], found["pairs"]) == (4, "inconclusive", 30)


def test_a_file_without_a_hash_is_compared_when_its_digests_tell_or_when_told(tmp_path: Path) -> None:
    base = run(cases(9))
    whole = exported(base, tmp_path / "whole.json")
    old = exported(base, tmp_path / "old.json", without=["case_digest", "repeat"])
    assert compared(whole, whole)[0] == 0
    assert compared(base, whole)[0] == 0
    for pair in ((old, old), (old, whole), (base, old), (old, base)):
        with pytest.raises(InvalidInput, match="--any-suite"):
            compared(*pair)
        code, found = compared(*pair, "--any-suite")
        assert (code, found["pairs"]) == (0, 9)


def test_a_file_of_an_unfinished_run_does_not_prove_its_suite(tmp_path: Path) -> None:
    base, new = run(cases(9)), run(cases(9), lambda number: [P] if number < 5 else [])
    half = exported(new, tmp_path / "half.json")
    assert json.loads(Path(half).read_text(encoding="utf-8"))[0]["run_metadata"]["complete"] is False
    with pytest.raises(InvalidInput, match="--any-suite"):
        compared(base, half)


def test_files_with_the_same_hash_are_compared_by_id_where_one_knows_no_digests(tmp_path: Path) -> None:
    base, new = run(cases(9), suite_hash=HASH), run(cases(9), failing, suite_hash=HASH)
    old = exported(base, tmp_path / "old.json", without=["case_digest"])
    code, found = compared(old, new)
    assert (code, found["pairs"]) == (1, 9)
    assert found["lost"][0]["case"] == "factual-000"


def test_cases_that_share_an_id_stay_apart_in_runs_and_files(tmp_path: Path) -> None:
    both = [*cases(6), *cases(6, "What was")]
    base, new = run(both), run(both, lambda number: [P] if number < 6 else [F])
    files = exported(base, tmp_path / "base.json"), exported(new, tmp_path / "new.json")
    for pair in ((base, new), files, (base, files[1])):
        code, found = compared(*pair)
        assert (code, found["pairs"], len(found["lost"])) == (1, 12, 6)
        digest = case_digest(case(0, "What was"))
        assert f"factual-000 ({digest[-8:]})" in [each["case"] for each in found["lost"]]
    old = exported(run(cases(6)), tmp_path / "old.json", without=["case_digest"])
    with pytest.raises(InvalidInput, match='two cases called "factual-000"'):
        compared(old, new, "--any-suite")


def test_repeats_meant_and_not_ended_are_lost_in_the_worst_case() -> None:
    base = run(cases(60), lambda _: [P, P, P], repeats=3)
    hidden = run(cases(60), lambda _: [P, E, E], repeats=3)
    stopped = run(cases(60), lambda _: [P], repeats=3)
    once = run(cases(60), lambda _: [P])
    assert [compared(base, new)[0] for new in (hidden, stopped, once)] == [4, 4, 0]


# ── Which model ──


def test_a_model_goes_by_what_was_typed_or_by_its_provider_s_name(tmp_path: Path) -> None:
    models = (Target("opus", "anthropic", "claude-opus-4-6"), Target("gpt-5", "openai", "gpt-5"))
    base = run(cases(9), models=models)
    file = exported(base, tmp_path / "base.json")
    for side in (base, file):
        for name in ("opus", "claude-opus-4-6", "gpt-5"):
            assert compared(side, side, "--model", name)[0] == 0
        for arguments in ([], ["--model", "haiku"]):
            with pytest.raises(InvalidInput, match="holds opus, gpt-5; choose one with --model"):
                compared(side, side, *arguments)


def test_two_servers_with_a_model_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    urls = ("http://one/v1#any", "http://two/v1#any")
    file = exported(run(cases(9), models=[Target(url, "compatible", "any") for url in urls]), tmp_path / "a.json")
    assert compared(file, file, "--model", urls[0], "--new-model", urls[1])[0] == 0
    with pytest.raises(InvalidInput, match="choose one"):
        compared(file, file, "--model", "any")


# ── Who judged ──


def test_the_same_answers_by_another_judge_are_no_regression(tmp_path: Path) -> None:
    base, new = run(cases(30), check=judged("gpt-5")), run(cases(30), failing, check=judged("opus"))
    files = exported(base, tmp_path / "base.json"), exported(new, tmp_path / "new.json")
    for pair in ((base, new), files):
        code, found = compared(*pair)
        assert (code, found["verdict"], found["pairs"], len(found["apart"])) == (4, "inconclusive", 0, 30)
        assert found["apart"][0] == {
            "case": "factual-000",
            "base": ["openai:gpt-5"],
            "new": ["anthropic:claude-opus-4-6"],
        }
        assert compared(*pair, "--any-judge")[0] == 1
    shown = said(base, new)
    assert shown.startswith(
        "Not enough evidence: all 30 cases were judged by openai:gpt-5 before and by anthropic:claude-opus-4-6 now, and "
        "verdicts of two judges are not compared."
    )
    assert "pramana rescore RUN --judge MODEL" in shown
    told = said(base, new, "--any-judge")
    assert told.startswith("Regression: of 30 cases, 30 that passed now fail")
    assert "30 cases of those compared were judged by openai:gpt-5 before" in told
    assert "rescore" not in told


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        (judged("gpt-5"), judged("openai:gpt-5"), 9),  # two spellings of one judge
        (judged("opus"), judged("anthropic:opus"), 9),
        (judged("gpt-5", served="gpt-5-06"), judged("gpt-5", served="gpt-5-06"), 9),
        (judged("gpt-5", served="gpt-5-06"), judged("gpt-5", served="gpt-5-08"), 0),
        (judged("gpt-5", "1 ab"), judged("gpt-5", "1 cd"), 0),  # another wording of the question
        (judged("http://one/v1#judge"), judged("http://two/v1#judge"), 0),
        (judged("command:mine"), judged("command:mine"), 9),
        (CONTAINS, CONTAINS, 9),
        (CONTAINS, replace(CONTAINS, version="2"), 0),
    ],
)
def test_who_counts_as_the_same_judge(before: Check, after: Check, pairs: int) -> None:
    code, found = compared(run(cases(9), check=before), run(cases(9), check=after))
    assert (found["pairs"], code) == (pairs, 0 if pairs else 4)


def test_a_file_that_does_not_say_who_judged_is_taken_as_it_is(tmp_path: Path) -> None:
    base = run(cases(9), check=judged("gpt-5"))
    file = Path(exported(base, tmp_path / "base.json"))
    blocks = json.loads(file.read_text(encoding="utf-8"))
    for each in blocks[0]["results"]:
        each["assertion_result"]["details"] = {"checks": ["?", {"name": 5}], "reason": "because"}
    file.write_text(json.dumps(blocks), encoding="utf-8")
    assert compared(base, str(file))[0] == 0


# ── The store ──


@pytest.mark.parametrize(
    "arguments",
    [["show", "nowhere"], ["export", "nowhere"], ["compare", "nowhere", "latest"], ["compare", "latest", "x"]],
)
def test_the_store_is_closed_when_a_command_ends_in_an_error(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pramana.store.runs import Store

    run(cases(1))
    opened: list[Store] = []
    closed: list[Store] = []
    monkeypatch.setattr(Store, "run", _counting(Store.run, opened))
    monkeypatch.setattr(Store, "close", _counting(Store.close, closed))
    done = CliRunner().invoke(pramana, arguments, standalone_mode=False)
    assert done.exception is not None
    assert {*map(id, opened)} == {*map(id, closed)} != set()


def _counting(method: Callable[..., Any], seen: list[Any]) -> Callable[..., Any]:
    def counted(self: Any, *arguments: Any) -> Any:
        seen.append(self)
        return method(self, *arguments)

    return counted


def test_a_name_of_a_megabyte_is_cut_for_people_and_whole_for_programs() -> None:
    long = [replace(each, id="字" * 1_000_000 + each.id) for each in cases(9)]
    base, new = run(long), run(long, failing)
    done = CliRunner().invoke(pramana, ["compare", base, new], standalone_mode=False)
    lines = done.stdout.splitlines()
    assert len([line for line in lines if line.endswith("字…")]) == 9
    assert max(map(width, lines)) <= 80
    _, found = compared(base, new)
    assert {each["case"] for each in found["lost"]} == {each.id for each in long}
