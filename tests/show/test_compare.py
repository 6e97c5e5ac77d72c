"""`pramana compare`: which runs and files can be compared, and the role of judges."""

import asyncio
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from pramana import compare, settings
from pramana.errors import InvalidInput
from pramana.hash import hash_case
from pramana.model import (
    Assertion,
    Case,
    Check,
    Facets,
    Failure,
    Outcome,
    Plan,
    RecordedCall,
    Reply,
    Result,
    ResultKey,
    Target,
    Turn,
)
from pramana.report.exports import write_json
from pramana.report.terminal import count_columns
from pramana.show.cli import pramana
from pramana.store import open_store

P, F, E = Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED
HASH = "sha256:" + "0" * 64
OTHER = "sha256:" + "1" * 64


def make_case(number: int, asked: str = "What is") -> Case:
    turns = (Turn("user", f"{asked} {number}?"),)
    return Case(f"factual-{number:03}", "test_case", turns, Facets("factual", "easy"), Assertion("contains"), ("x",))


def make_cases(count: int, asked: str = "What is") -> list[Case]:
    return [make_case(number, asked) for number in range(count)]


CONTAINS = Check("contains", "1", P, "because")


def make_judge_check(by: str, version: str = "1 ab", served: str | None = None) -> Check:
    return Check("llm_judge", version, P, "because", evidence={"judge": by, "served_model": served, "answers": ["YES"]})


def store_run(
    asked: Sequence[Case],
    outcomes: Callable[[int], Sequence[Outcome]] = lambda _: [P],
    *,
    suite_hash: str | None = None,
    models: Sequence[Target] = (Target("m", "fake", "m"),),
    repeats: int = 1,
    check: Check = CONTAINS,
    took: float = 0.1,
    outcomes_of: Callable[[str, int], Sequence[Outcome]] | None = None,
    backwards: bool = False,
    **more: Any,
) -> str:
    """Store a run; `outcomes` maps a case number to one outcome per repeat, `outcomes_of` does so for each model.

    `backwards` stores the last results first. `more` belongs to the plan.
    """
    plan = Plan("mine", suite_hash, tuple(models), repeats, {"temperature": 0, "seed": 42}, runner_version="0.1.0")
    plan = replace(plan, **more)

    async def write(run_id: str, results: Iterable[Result]) -> None:
        async with store.results.make_writer(run_id, lambda _: None) as writer:
            await writer.put(list(results))

    with closing(open_store(settings.database_url())) as store:
        created = store.runs.create(plan, iter(asked))
        made = [
            make_result(each, ResultKey(hash_case(each), model.typed, variant, repeat), outcome, check, took)
            for number, each in enumerate(asked)
            for model in models
            for variant in plan.variants
            for repeat, outcome in enumerate(outcomes_of(model.typed, number) if outcomes_of else outcomes(number))
        ]
        asyncio.run(write(created.id, made[::-1] if backwards else made))
        store.queue.finish(created.id, None, "finished" if len(made) == created.expected else "stopped")
    return created.id


def make_result(of: Case, key: ResultKey, outcome: Outcome, check: Check, took: float) -> Result:
    if outcome is E:
        return Result(key, of.id, None, Failure("unavailable", "a 500"), (), None, None)
    checks = (replace(check, outcome=outcome),)
    if key.variant == "text":
        return Result(key, of.id, Reply("x", total_s=took, first_token_s=took / 2), None, checks, None, None)
    lines = [{"voice_to_voice_s": took, "first_audible_s": 1 + took}]
    counts = {"substitutions": 1, "deletions": 0, "insertions": 0, "reference_words": 10}
    words = {"heard": {"words": counts, "characters": counts}, "references": []}
    measured = Check("call", "1", P, "", None, {"times": {"lines": lines}, "words": words})
    reply = Reply("x", total_s=9.0, call=RecordedCall("sha256:a", "sha256:b"))
    return Result(key, of.id, reply, None, (*checks, measured), None, None)


def export_run(run_id: str, path: Path, without: Sequence[str] = ()) -> str:
    """Write a run as results.json; `without` removes fields of results, as files of older versions lack them."""
    out = io.StringIO()
    with closing(open_store(settings.database_url())) as store:
        write_json(store.runs.find(run_id), store.results.iterate_with_cases(run_id), out)
    blocks = json.loads(out.getvalue())
    for block in blocks:
        block["results"] = [{key: each[key] for key in each if key not in without} for each in block["results"]]
    path.write_text(json.dumps(blocks), encoding="utf-8")
    return str(path)


def compare_as_json(*arguments: str) -> tuple[int, Mapping[str, Any]]:
    done = CliRunner().invoke(pramana, ["compare", *arguments, "--json"], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.return_value, json.loads(done.stdout)


def compare_as_text(*arguments: str) -> str:
    """Return the printed text below the heading, which names both sides."""
    return read_comparison(*arguments)[1]


def read_comparison(*arguments: str) -> tuple[str, str]:
    """Return the heading and the printed text below it, each on one line."""
    done = CliRunner().invoke(pramana, ["compare", *arguments], standalone_mode=False)
    assert done.exception is None, done.exception
    heading, _, answer = done.stdout.partition("\n\n")
    return " ".join(heading.split()), " ".join(answer.split())


# ── Suites ──


def fail_all(_: int) -> Sequence[Outcome]:
    return [F]


def test_runs_without_a_suite_hash_match_if_their_cases_are_equal() -> None:
    base, same, edited = (
        store_run(make_cases(9)),
        store_run(make_cases(9)[::-1], fail_all),
        store_run(make_cases(9, "What was"), fail_all),
    )
    code, found = compare_as_json(base, same)
    assert (code, found["verdict"], found["pairs"]) == (1, "regression", 9)
    with pytest.raises(InvalidInput, match="the two sides are not known to have the same cases"):
        compare_as_json(base, edited)
    code, found = compare_as_json(base, edited, "--any-suite")
    assert (code, found["pairs"], len(found["only_base"])) == (4, 0, 9)


@pytest.mark.parametrize(
    ("hashes", "counts", "refused"),
    [
        ((HASH, HASH), (9, 9), False),
        ((HASH, OTHER), (9, 9), True),
        ((HASH, None), (9, 9), False),  # a selection of everything
        ((None, HASH), (9, 8), True),  # a selection against the whole suite
        ((None, None), (9, 8), True),
        ((None, None), (9, 9), False),
    ],
)
def test_runs_of_the_same_suite_are_recognized(
    hashes: tuple[str | None, str | None], counts: tuple[int, int], refused: bool
) -> None:
    base, new = (store_run(make_cases(count), suite_hash=each) for each, count in zip(hashes, counts, strict=True))
    if refused:
        with pytest.raises(InvalidInput, match="--any-suite"):
            compare_as_json(base, new)
    assert compare_as_json(base, new, "--any-suite")[0] == 0
    if not refused:
        assert compare_as_json(base, new)[0] == 0


def test_missing_results_of_an_unfinished_run_make_the_comparison_inconclusive() -> None:
    base, new = store_run(make_cases(60)), store_run(make_cases(60), lambda number: [P] if number < 30 else [])
    for flags in ((), ("--any-suite",)):
        for code, more in ((0, ()), (4, ("--fail-on", "inconclusive"))):
            ended, found = compare_as_json(base, new, *flags, *more)
            assert (ended, found["verdict"], found["pairs"]) == (code, "inconclusive", 30)
            assert found["loss_excluded"] is False


@pytest.mark.parametrize(
    ("flags", "code"),
    [((), 1), (("--margin", "30"), 0), (("--margin", "30", "--fail-on", "inconclusive"), 0), (("--margin", "0"), 1)],
)
def test_a_loss_within_the_margin_exits_0(flags: tuple[str, ...], code: int) -> None:
    base, new = store_run(make_cases(90)), store_run(make_cases(90), lambda number: [F] if number < 10 else [P])
    ended, found = compare_as_json(base, new, *flags)
    assert (ended, found["exit_code"], found["verdict"]) == (code, code, "regression")
    assert (found["margin"], found["loss_excluded"]) == (float(flags[1]) if flags else 5, code == 0)
    assert ("smaller than the margin of 30 points" in found["sentence"]) == (code == 0)


@pytest.mark.parametrize("margin", ["-1", "101", "nan", "five"])
def test_an_invalid_margin_is_refused(margin: str) -> None:
    base = store_run(make_cases(3))
    with pytest.raises((InvalidInput, click.UsageError), match=r"0|float"):
        compare_as_json(base, base, "--margin", margin)


def test_a_file_without_a_suite_hash_is_compared_by_digests_or_with_any_suite(tmp_path: Path) -> None:
    base = store_run(make_cases(9))
    whole = export_run(base, tmp_path / "whole.json")
    old = export_run(base, tmp_path / "old.json", without=["case_digest", "repeat"])
    same, older = export_run(base, tmp_path / "same.json"), tmp_path / "older.json"
    older.write_bytes(Path(old).read_bytes())
    assert compare_as_json(whole, same)[0] == 0
    assert compare_as_json(base, whole)[0] == 0
    for pair in ((old, str(older)), (old, whole), (base, old), (old, base)):
        with pytest.raises(InvalidInput, match="--any-suite"):
            compare_as_json(*pair)
        code, found = compare_as_json(*pair, "--any-suite")
        assert (code, found["pairs"]) == (0, 9)


def test_a_file_of_an_unfinished_run_does_not_prove_its_suite(tmp_path: Path) -> None:
    base, new = store_run(make_cases(9)), store_run(make_cases(9), lambda number: [P] if number < 5 else [])
    half = export_run(new, tmp_path / "half.json")
    assert json.loads(Path(half).read_text(encoding="utf-8"))[0]["run_metadata"]["complete"] is False
    with pytest.raises(InvalidInput, match="--any-suite"):
        compare_as_json(base, half)


def test_files_with_the_same_hash_are_compared_by_id_if_one_has_no_digests(tmp_path: Path) -> None:
    base, new = store_run(make_cases(9), suite_hash=HASH), store_run(make_cases(9), fail_all, suite_hash=HASH)
    old = export_run(base, tmp_path / "old.json", without=["case_digest"])
    code, found = compare_as_json(old, new)
    assert (code, found["pairs"]) == (1, 9)
    assert found["lost"][0]["case"] == "factual-000"


def test_cases_with_the_same_id_stay_distinct_in_runs_and_files(tmp_path: Path) -> None:
    both = [*make_cases(6), *make_cases(6, "What was")]
    base, new = store_run(both), store_run(both, lambda number: [P] if number < 6 else [F])
    files = export_run(base, tmp_path / "base.json"), export_run(new, tmp_path / "new.json")
    for pair in ((base, new), files, (base, files[1])):
        code, found = compare_as_json(*pair)
        assert (code, found["pairs"], len(found["lost"])) == (1, 12, 6)
        digest = hash_case(make_case(0, "What was"))
        assert f"factual-000 ({digest[-8:]})" in [each["case"] for each in found["lost"]]
    old = export_run(store_run(make_cases(6)), tmp_path / "old.json", without=["case_digest"])
    with pytest.raises(InvalidInput, match='two cases called "factual-000"'):
        compare_as_json(old, new, "--any-suite")


def test_spoken_cases_with_the_same_id_have_distinct_names() -> None:
    both, ways = [*make_cases(3), *make_cases(3, "What was")], ("text", "voice")
    _, found = compare_as_json(store_run(both, variants=ways), store_run(both, fail_all, variants=ways))
    names = [each["case"] for each in found["lost"]]
    assert len(names) == len(set(names)) == 12
    for asked in ("What is", "What was"):
        mark = hash_case(make_case(0, asked))[-8:]
        assert {f"factual-000 ({mark})", f"factual-000 (voice) ({mark})"} <= {*names}


def test_missing_repeats_count_as_lost_in_the_worst_case() -> None:
    base = store_run(make_cases(80), lambda _: [P, P, P], repeats=3)
    hidden = store_run(make_cases(80), lambda _: [P, E, E], repeats=3)
    stopped = store_run(make_cases(80), lambda _: [P], repeats=3)
    once = store_run(make_cases(80), lambda _: [P])
    strict = "--fail-on", "inconclusive"
    assert [compare_as_json(base, new, *strict)[0] for new in (hidden, stopped, once)] == [4, 4, 0]
    assert [compare_as_json(base, new)[0] for new in (hidden, stopped, once)] == [0, 0, 0]


def test_repeats_on_one_side_only_are_excluded_and_reported() -> None:
    base = store_run(make_cases(9), lambda number: [F, P, P] if number < 2 else [P, P, P], repeats=3)
    new = store_run(make_cases(9))
    text, (_, found) = compare_as_text(base, new), compare_as_json(base, new)
    sentence = (
        "If a case has more verdicts on one side, only as many as on the other are compared, the first ones: 18 answers before "
        "are left out, and the rates here do not count them."
    )
    assert sentence in text
    assert found["over"] == {"base": 18, "new": 0, "sentence": sentence}
    assert (found["base_rate"], found["base_whole_rate"]) == (pytest.approx(7 / 9), pytest.approx(25 / 27))
    assert found["new_rate"] == found["new_whole_rate"] == 1
    assert "2 pass more often now: factual-00" in text
    for name in ("factual-000", "factual-001"):
        assert f"{name}, passed 0 of 1 compared before (2 of 3 in all), 1 of 1 now" in text
    flip = found["gained"][0]
    assert (flip["base_passed"], flip["new_passed"], flip["repeats"]) == (0, 1, 1)
    assert (flip["base_in_all"], flip["new_in_all"]) == ({"passed": 2, "answers": 3}, {"passed": 1, "answers": 1})
    even = store_run(make_cases(9))
    assert "left out" not in compare_as_text(new, even)
    assert compare_as_json(new, even)[1]["over"] == {"base": 0, "new": 0, "sentence": ""}


def test_changed_cases_are_listed_with_their_pass_counts() -> None:
    base = store_run(make_cases(9), lambda _: [P, P, P], repeats=3)
    new = store_run(make_cases(9), lambda number: [P, F, F] if number < 8 else [P, P, P], repeats=3)
    text = compare_as_text(base, new)
    assert "8 pass less often now: factual-00" in text
    assert text.count(", passed 3 of 3 before, 1 of 3 now") == 8
    assert "now fail" not in text
    text = compare_as_text(new, base)
    assert "8 pass more often now: factual-00" in text
    assert text.count(", passed 1 of 3 before, 3 of 3 now") == 8
    once = compare_as_text(
        store_run(make_cases(9)), store_run(make_cases(9), lambda number: [F] if number == 4 else [P]), "--show", "0"
    )
    assert once.endswith("1 passes less often now: factual-004")


def test_counts_move_below_a_name_that_leaves_no_room() -> None:
    long = [replace(each, id=each.id + "-" + "x" * 80) for each in make_cases(9)]
    base = store_run(long, lambda _: [P, P, P], repeats=3)
    done = CliRunner().invoke(pramana, ["compare", base, store_run(long, fail_all)], standalone_mode=False)
    lines = done.stdout.splitlines()
    assert lines.count("    passed 1 of 1 compared before (3 of 3 in all), 0 of 1 now") == 9
    assert max(map(count_columns, lines)) <= 80


def test_without_pairs_there_is_no_difference_and_no_test() -> None:
    base, new = store_run(make_cases(9)), store_run(make_cases(9), lambda _: [E])
    _, found = compare_as_json(base, new)
    assert (found["pairs"], len(found["excluded"])) == (0, 9)
    assert [found[name] for name in ("difference", "interval", "p_value", "test")] == [None] * 4
    assert (found["base_whole_rate"], found["new_whole_rate"]) == (1, None)


# ── Models ──


def test_a_model_is_selected_by_its_typed_or_provider_name(tmp_path: Path) -> None:
    models = (Target("opus", "anthropic", "claude-opus-4-6"), Target("gpt-5", "openai", "gpt-5"))
    base, new = store_run(make_cases(9), models=models), store_run(make_cases(9), models=models)
    files = [export_run(each, tmp_path / f"{each}.json") for each in (base, new)]
    for one, other in ((base, new), files):
        for name in ("opus", "claude-opus-4-6", "gpt-5"):
            assert compare_as_json(one, other, "--model", name)[0] == 0
        command = re.escape(f"choose, for example: pramana compare {one} {other} --model opus")
        with pytest.raises(InvalidInput, match=f"has 2 models: opus, gpt-5; {command}$"):
            compare_as_json(one, other)
        with pytest.raises(InvalidInput, match=rf'has no model "haiku" \(it has opus, gpt-5\); {command}$'):
            compare_as_json(one, other, "--model", "haiku")
        with pytest.raises(InvalidInput, match=f'has no model "haiku".*{command} --new-model opus$'):
            compare_as_json(one, other, "--model", "opus", "--new-model", "haiku")


def test_the_same_model_name_on_two_servers_is_distinguished(tmp_path: Path) -> None:
    urls = ("http://one/v1#any", "http://two/v1#any")
    file = export_run(
        store_run(make_cases(9), models=[Target(url, "compatible", "any") for url in urls]), tmp_path / "a.json"
    )
    assert compare_as_json(file, file, "--model", urls[0], "--new-model", urls[1])[0] == 0
    with pytest.raises(InvalidInput, match='has no model "any"'):
        compare_as_json(file, file, "--model", "any")


# ── Judges ──


def test_equal_replies_judged_by_another_judge_are_not_a_regression(tmp_path: Path) -> None:
    base, new = (
        store_run(make_cases(30), check=make_judge_check("gpt-5")),
        store_run(make_cases(30), fail_all, check=make_judge_check("opus")),
    )
    files = export_run(base, tmp_path / "base.json"), export_run(new, tmp_path / "new.json")
    for pair in ((base, new), files):
        code, found = compare_as_json(*pair)
        assert (code, found["verdict"], found["pairs"], len(found["apart"])) == (4, "inconclusive", 0, 30)
        assert found["apart"][0] == {
            "case": "factual-000",
            "base": ["openai:gpt-5"],
            "new": ["anthropic:claude-opus-4-6"],
        }
        assert compare_as_json(*pair, "--any-judge")[0] == 1
    shown = compare_as_text(base, new)
    assert shown.startswith(
        "Not enough evidence: all 30 cases were judged by openai:gpt-5 before and by anthropic:claude-opus-4-6 now, and verdicts by different judges are not compared."
    )
    assert "pramana rescore RUN --judge MODEL" in shown
    told = compare_as_text(base, new, "--any-judge")
    assert told.startswith("Regression between these two runs: of 30 cases, 30 that passed before fail now")
    assert "30 cases of those compared were judged by openai:gpt-5 before" in told
    assert "rescore" not in told


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        (make_judge_check("gpt-5"), make_judge_check("openai:gpt-5"), 9),  # two spellings of one judge
        (make_judge_check("opus"), make_judge_check("anthropic:opus"), 9),
        (make_judge_check("gpt-5", served="gpt-5-06"), make_judge_check("gpt-5", served="gpt-5-06"), 9),
        (make_judge_check("gpt-5", served="gpt-5-06"), make_judge_check("gpt-5", served="gpt-5-08"), 0),
        (make_judge_check("gpt-5", "1 ab"), make_judge_check("gpt-5", "1 cd"), 0),  # another wording of the question
        (make_judge_check("http://one/v1#judge"), make_judge_check("http://two/v1#judge"), 0),
        (make_judge_check("command:mine"), make_judge_check("command:mine"), 9),
        (CONTAINS, CONTAINS, 9),
        (CONTAINS, replace(CONTAINS, version="2"), 0),
    ],
)
def test_equal_judges_are_recognized(before: Check, after: Check, pairs: int) -> None:
    code, found = compare_as_json(store_run(make_cases(9), check=before), store_run(make_cases(9), check=after))
    assert (found["pairs"], code) == (pairs, 0 if pairs else 4)


def test_a_file_without_a_judge_is_compared_as_is(tmp_path: Path) -> None:
    base = store_run(make_cases(9), check=make_judge_check("gpt-5"))
    file = Path(export_run(base, tmp_path / "base.json"))
    blocks = json.loads(file.read_text(encoding="utf-8"))
    for each in blocks[0]["results"]:
        each["assertion_result"]["details"] = {"checks": ["?", {"name": 5}], "reason": "because"}
    file.write_text(json.dumps(blocks), encoding="utf-8")
    assert compare_as_json(base, str(file))[0] == 0


# ── The store ──


@pytest.mark.parametrize(
    "arguments",
    [["show", "nowhere"], ["export", "nowhere"], ["compare", "nowhere", "latest"], ["compare", "latest", "x"]],
)
def test_the_store_is_closed_after_a_failing_command(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from pramana.store.store import Store

    store_run(make_cases(1))
    opened: list[Store] = []
    closed: list[Store] = []
    monkeypatch.setattr(Store, "__init__", _record_calls(Store.__init__, opened))
    monkeypatch.setattr(Store, "close", _record_calls(Store.close, closed))
    done = CliRunner().invoke(pramana, arguments, standalone_mode=False)
    assert done.exception is not None
    assert {*map(id, opened)} == {*map(id, closed)} != set()


def _record_calls(method: Callable[..., Any], seen: list[Any]) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any) -> Any:
        seen.append(self)
        return method(self, *arguments)

    return call


def test_a_huge_name_is_truncated_in_text_and_complete_in_json() -> None:
    long = [replace(each, id="字" * 350_000 + each.id) for each in make_cases(9)]
    base, new = store_run(long), store_run(long, fail_all)
    done = CliRunner().invoke(pramana, ["compare", base, new], standalone_mode=False)
    lines = done.stdout.splitlines()
    assert len([line for line in lines if line.endswith("字…")]) == 9
    assert max(map(count_columns, lines)) <= 80
    _, found = compare_as_json(base, new)
    assert {each["case"] for each in found["lost"]} == {each.id for each in long}


# ── Times ──

SPOKEN: dict[str, Any] = {"variants": ("voice",)}


def test_slower_calls_are_reported_even_if_no_verdict_changed() -> None:
    base, new = store_run(make_cases(8), took=0.301, **SPOKEN), store_run(make_cases(8), took=2.0, **SPOKEN)
    text = compare_as_text(base, new)
    assert text.startswith(
        "No difference seen: all 8 cases ended as before, but 8 cases prove little. A loss of up to 37 points cannot be "
        "excluded; if nothing changed, about 72 cases would exclude one of 5 points. "
        "Slower: voice to voice by 1.70 s (median of 8 cases); statistically significant."
    )
    assert (
        "Voice to voice 301 ms before, 2.00 s now: median difference +1.70 s (95 % interval +1.70 s to +1.70 s, 8 cases; "
        "exact sign test)." in text
    )
    assert "Misheard words 10.0 % of 80 before, 10.0 % of 80 now: 0.0 points (95 % interval 0.0 points to" in text
    code, found = compare_as_json(base, new)
    assert (code, found["exit_code"], found["verdict"]) == (0, 0, "no_change")
    (times, words) = found["measured"]
    assert (times["what"], times["cases"], times["proven"]) == ("voice to voice", 8, True)
    assert times["interval"] == [pytest.approx(1.699)] * 2
    assert (words["what"], words["proven"]) == ("misheard words", False)
    assert found["changed"] == ["Slower: voice to voice by 1.70 s (median of 8 cases); statistically significant."]
    assert "slower" not in found


@pytest.mark.parametrize(
    ("count", "took", "limit", "code", "words"),
    [
        (8, 2.0, "200ms", 1, "Too slow: voice to voice is more than 200 ms slower; statistically significant."),
        (8, 2.0, "20%", 1, "Too slow: voice to voice is more than 20 % slower; statistically significant."),
        (8, 0.4, "200ms", 0, "Not slower by more than 200 ms: voice to voice."),
        (3, 2.0, "200ms", 4, "3 cases were timed, and a decision needs at least 6."),
    ],
)
def test_max_slower_decides_the_exit_code(count: int, took: float, limit: str, code: int, words: str) -> None:
    base, new = store_run(make_cases(count), took=0.301, **SPOKEN), store_run(make_cases(count), took=took, **SPOKEN)
    assert words in compare_as_text(base, new, "--max-slower", limit)
    found = compare_as_json(base, new, "--max-slower", limit)
    assert (found[0], found[1]["exit_code"], found[1]["slower"]["exit_code"]) == (code, code, code)
    assert words in found[1]["slower"]["sentence"]


def test_a_faster_regression_is_still_a_regression() -> None:
    assert compare_as_json(store_run(make_cases(9)), store_run(make_cases(9), fail_all), "--max-slower", "1s")[0] == 1


def test_text_results_have_times_in_runs_and_files(tmp_path: Path) -> None:
    base, new = store_run(make_cases(7), took=0.1), store_run(make_cases(7), took=0.5)
    _, found = compare_as_json(base, new)
    assert [each["what"] for each in found["measured"]] == ["total time", "time to first token"]
    files = [export_run(each, tmp_path / f"{each}.json") for each in (base, new)]
    code, found = compare_as_json(*files, "--max-slower", "100ms")
    assert code == 1
    (only,) = found["measured"]
    assert (only["what"], only["difference"]) == ("total time", [pytest.approx(0.4)] * 2)


def test_times_of_text_and_voice_are_not_compared() -> None:
    base, new = store_run(make_cases(7)), store_run(make_cases(7), **SPOKEN)
    code, found = compare_as_json(base, new, "--max-slower", "100ms")
    assert (code, found["measured"]) == (4, [])


@pytest.mark.parametrize("limit", ["200", "soon", "-1s"])
def test_an_invalid_max_slower_is_refused(limit: str) -> None:
    done = CliRunner().invoke(pramana, ["compare", "a", "b", "--max-slower", limit])
    assert done.exit_code == 2
    assert "200ms, 0.5s or 20%" in done.output


# ── Different plans ──


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ({}, {"voice": "piper"}, "voice espeak before, piper now"),
        ({}, {"variants": ("voice+phone",)}, "variants voice before, voice+phone now"),
        (
            {},
            {"stt": Target("openai:whisper-1", "openai", "whisper-1")},
            "speech recognition Whisper tiny.en before, openai:whisper-1 now",
        ),
        ({}, {"variants": ("text",)}, "variants voice before, text now"),
        ({"voice": "piper"}, {"voice": "piper"}, None),
    ],
)
def test_runs_with_different_plans_are_reported(
    before: dict[str, Any], after: dict[str, Any], what: str | None
) -> None:
    base, new = store_run(make_cases(2), **{**SPOKEN, **before}), store_run(make_cases(2), **{**SPOKEN, **after})
    text, (_, found) = compare_as_text(base, new), compare_as_json(base, new)
    assert bool(found["asked_differently"]) == bool(what)
    assert f"The requests differ: {what}" in text if what else "The requests differ" not in text


def test_three_cases_in_three_variants_count_as_three_cases() -> None:
    ways = ("text", "voice", "voice+noise=10dB")
    text = compare_as_text(store_run(make_cases(3), variants=ways), store_run(make_cases(3), variants=ways))
    assert "all 9 answers (3 cases, 3 variants) ended as before, but 3 cases prove little." in text


def test_times_of_a_case_in_several_variants_count_as_one_case() -> None:
    aloud = ("text", "voice", "voice+noise=10dB")
    base, new = store_run(make_cases(9), variants=aloud, took=0.1), store_run(make_cases(9), variants=aloud, took=0.5)
    text, (_, found) = compare_as_text(base, new), compare_as_json(base, new)
    assert "Slower: voice to voice by 400 ms (median of 9 cases); statistically significant." in text
    assert (
        "Slower: total time by 400 ms (median of 9 cases); statistically significant." in text
    )  # text in one variant only
    assert "+400 ms (95 % interval +400 ms to +400 ms, 9 cases; exact sign test)." in text
    assert {each["what"]: each["cases"] for each in found["measured"]}["voice to voice"] == 9
    once = compare_as_text(
        store_run(make_cases(8), variants=("text", "voice"), took=0.1),
        store_run(make_cases(8), variants=aloud, took=0.5),
    )
    assert "voice to voice by 400 ms (median of 8 cases)" in once


BRIEF, KIND = "Be brief.", "Be kind."
WAYS = [
    ({"system_prompt": BRIEF}, {"system_prompt": KIND}, "another system prompt"),
    ({}, {"system_prompt": KIND}, "no system prompt before, one now"),
    ({"system_prompt": BRIEF}, {"system_prompt": ""}, "a system prompt before, none now"),
    ({"parameters": {"temperature": 0}}, {"parameters": {"temperature": 1.0}}, "temperature 0 before, 1 now"),
    ({"parameters": {"temperature": None}}, {"parameters": {"temperature": 0.7}},
     "temperature not set before, 0.7 now"),
    ({"parameters": {"temperature": 0, "seed": 1}, "system_prompt": BRIEF},
     {"parameters": {"temperature": 0.0, "seed": 2}, "system_prompt": KIND},
     "another system prompt; seed 1 before, 2 now"),
    ({"parameters": {"temperature": 0}}, {"parameters": {"temperature": 0.0}}, None),
    ({"system_prompt": BRIEF}, {"system_prompt": BRIEF}, None),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "what"), WAYS)
@pytest.mark.parametrize("as_file", [False, True])
def test_a_different_system_prompt_or_parameter_is_reported_for_runs_and_files(
    before: dict[str, Any], after: dict[str, Any], what: str | None, as_file: bool, tmp_path: Path
) -> None:
    sides = store_run(make_cases(7), **before), store_run(make_cases(7), **after)
    if as_file:
        sides = export_run(sides[0], tmp_path / "base.json"), export_run(sides[1], tmp_path / "new.json")
    code, found = compare_as_json(*sides)
    assert (code, bool(found["asked_differently"])) == (0, bool(what))
    assert "; ".join(each["detail"] for each in found["asked_differently"]) == (what or "")
    text = " ".join(compare_as_text(*sides).split())
    assert text.count("The requests differ") == bool(what)
    assert not what or f"The requests differ: {what}; this may explain the difference." in text


def test_a_parameter_recorded_only_in_runs_is_not_compared_for_files(tmp_path: Path) -> None:
    base, new = (store_run(make_cases(2), parameters={"temperature": 0, "top_p": each}) for each in (0.5, 0.9))
    (only,) = compare_as_json(base, new)[1]["asked_differently"]
    assert (only["what"], only["base"], only["new"]) == ("top_p", "0.5", "0.9")
    assert compare_as_json(base, export_run(new, tmp_path / "new.json"))[1]["asked_differently"] == []


def test_a_file_without_plan_metadata_reports_no_differences(tmp_path: Path) -> None:
    new = store_run(make_cases(2), system_prompt=KIND, parameters={"temperature": 1, "seed": 42})
    old = Path(export_run(store_run(make_cases(2)), tmp_path / "old.json"))
    blocks = json.loads(old.read_text(encoding="utf-8"))
    blocks[0]["run_metadata"] |= {"temperature": None, "seed": None}
    del blocks[0]["run_metadata"]["system_prompt"]
    old.write_text(json.dumps(blocks), encoding="utf-8")
    assert compare_as_json(str(old), new)[1]["asked_differently"] == []


def test_a_long_value_is_shortened_in_text_and_complete_in_json() -> None:
    base, new = (store_run(make_cases(2), parameters={"stop": ["x" * 200, each]}) for each in "ab")
    (only,) = compare_as_json(base, new)[1]["asked_differently"]
    assert only["detail"] == "another stop"
    assert only["new"] == json.dumps(["x" * 200, "b"])


def test_the_text_output_reports_different_plans() -> None:
    base, new = store_run(make_cases(2), system_prompt=BRIEF), store_run(make_cases(2), system_prompt=KIND)
    found = compare(base, new)
    assert (
        str(found) == f"{found.sentence} The requests differ: another system prompt; this may explain the difference."
    )
    assert repr(found) == str(found)
    again = store_run(make_cases(2), system_prompt=BRIEF)
    alike = compare(base, again)
    assert str(alike) == alike.sentence


def test_the_terminal_names_the_rates_of_the_whole_runs_beside_those_of_the_compared_cases() -> None:
    asked = make_cases(105)
    base = store_run(asked, lambda number: [F] if number < 5 else [P])
    new = store_run(asked, lambda number: [P] if number < 75 else [E])
    told = " ".join(CliRunner().invoke(pramana, ["compare", base, new], standalone_mode=False).stdout.split())
    assert "Pass rate 93.3 % before, 100.0 % now" in told
    assert (
        "These rates are of the compared cases; of all results with a verdict, 95.2 % passed before and 100 % now."
        in told
    )
    assert "cannot be excluded if results without a verdict count as failed" in told
    assert "Only the loss that cannot be excluded counts results without a verdict, as failed." in told
