"""Scorers in a run: verdicts, measurements, cost, and resuming a run that uses them."""

import asyncio
import json
import re
import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pramana
from pramana import BlockingScoringContext, Score, ScoringContext, planning, settings
from pramana.bench import add_scoring_to_run
from pramana.errors import InvalidInput
from pramana.model import PlannedScorer
from pramana.plugins import scorers
from pramana.report import figures
from pramana.report.summary import print_summary
from pramana.request import Limits, RunRequest
from pramana.run.accounts import ProviderAccess
from pramana.score.scorers import find_scorer
from pramana.store import open_store

CASES: list[dict[str, Any]] = [
    {"id": "free", "input": "Say something."},
    {"id": "right", "input": "Name a capital.", "ideal": "Paris"},
    {"id": "wrong", "input": "Name a river.", "ideal": "Seine"},
]


def bot(prompt: str) -> str:
    return f"{prompt} Paris, please."


@pramana.scorer(version="2", pass_at=0.5)
def politeness(context: ScoringContext) -> float:
    return 1.0 if "please" in context.reply.text else 0.0


@pramana.scorer
def length(context: ScoringContext) -> dict[str, float | str]:
    words = len(context.reply.text.split())
    return {"words": words, "size": "short" if words < 5 else "long"}


@pramana.scorer
async def judge_length(context: ScoringContext) -> Score:
    answer = await context.ask([{"role": "user", "content": context.reply.text}])
    return Score(len(answer.text), reason="counted")


def outcomes(report: pramana.Report) -> dict[str, str]:
    return {each.case_id: each.outcome.value for each in report.results()}


def checks(report: pramana.Report, case: str) -> dict[str, str]:
    return {
        check.name: check.outcome.value for each in report.results() if each.case_id == case for check in each.checks
    }


def test_scorers_decide_together_with_the_assertion_or_alone() -> None:
    report = pramana.evaluate(CASES, model=bot, scorers=[politeness])
    assert outcomes(report) == {"free": "passed", "right": "passed", "wrong": "failed"}
    assert checks(report, "free") == {"politeness": "passed"}
    assert checks(report, "wrong") == {"contains": "failed", "politeness": "passed"}
    (planned,) = report.run.plan.scorers
    assert (planned.typed, planned.name, planned.version) == (f"python:{__name__}:politeness", "politeness", "2")


def get_prompt(case: pramana.Case) -> str:
    return case.turns[-1].text


@pramana.scorer
def repeats(context: BlockingScoringContext) -> bool:
    return get_prompt(context.case) in context.reply.text


@pramana.scorer
async def only_repeats(context: ScoringContext) -> bool:
    return get_prompt(context.case) == context.reply.text


def test_the_public_case_type_is_used_in_files_and_contexts_and_takes_keywords(tmp_path: Path) -> None:
    """`mypy --strict`, which checks this file too, would fail if one of these were another type."""
    (tmp_path / "a.yaml").write_text(
        "{id: a, name: A, type: information-retrieval, prompt: Name a capital., expected_outcome: Names one, "
        "assert: {type: exact_match, ideal: Paris}}",
        encoding="utf-8",
    )
    built = pramana.Case("Name it.", ideal="Rome", id="b")
    cases: list[pramana.Case] = [*pramana.cases_of(tmp_path / "a.yaml"), built]
    assert [get_prompt(each) for each in cases] == ["Name a capital.", "Name it."]
    assert all(isinstance(each, pramana.Case) for each in cases)
    report = pramana.evaluate(cases, model=bot, scorers=[repeats, only_repeats])
    found = checks(report, "b")
    assert found == {"contains": "failed", "repeats": "passed", "only_repeats": "failed"}


def shorter(context: ScoringContext, most: int) -> bool:
    return len(context.reply.text) < most


class ContainsWord:
    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self, context: ScoringContext) -> bool:
        return self.word in context.reply.text


@pramana.scorer(name="courtesy")
def says_please(context: ScoringContext) -> bool:
    return "please" in context.reply.text


def test_scorers_with_different_names_from_one_function_all_score() -> None:
    made = [
        pramana.scorer(name="short")(partial(shorter, most=5)),
        pramana.scorer(name="medium")(partial(shorter, most=500)),
        pramana.scorer(name="paris")(ContainsWord("Paris")),
        pramana.scorer(name="rome")(ContainsWord("Rome")),
    ]
    report = pramana.evaluate(CASES, model=bot, scorers=made)
    found = {"short": "failed", "medium": "passed", "paris": "passed", "rome": "failed"}
    assert checks(report, "free") == found
    assert [each.typed for each in report.run.plan.scorers[:2]] == [
        f"python:{__name__}:shorter:short",
        f"python:{__name__}:shorter:medium",
    ]
    assert pramana.resume(report, scorers=made).run_id == report.run_id


def test_a_decorated_module_function_is_found_whatever_its_scorer_name() -> None:
    report = pramana.evaluate(CASES, model=bot, scorers=[says_please, ContainsWord("Paris")])
    assert [each.typed for each in report.run.plan.scorers] == [
        f"python:{__name__}:says_please",
        f"python:{__name__}:ContainsWord",
    ]
    assert find_scorer(f"python:{__name__}:says_please", {}) is says_please
    with pytest.raises(InvalidInput, match=r"shorter:short cannot be imported: this scorer exists only .*scorers=\["):
        find_scorer(f"python:{__name__}:shorter:short", {})


def test_two_scorers_with_the_same_stored_name_are_refused() -> None:
    undecorated = pramana.scorer(says_please.function)
    named: Any = ContainsWord("Paris")
    named.__module__, named.__qualname__ = __name__, "says_please"
    with pytest.raises(InvalidInput, match=r"two scorers have the same name python:.*:says_please, .*give each a name"):
        pramana.evaluate(CASES, model=bot, scorers=[undecorated, named])


def test_a_measurement_decides_no_outcome() -> None:
    report = pramana.evaluate(CASES, model=bot, scorers=[length])
    assert outcomes(report) == {"free": "unscored", "right": "passed", "wrong": "failed"}
    (free,) = [each for each in report.results() if each.case_id == "free"]
    assert free.reason == (
        "no check decides whether the reply passes: length.words, length.size only measured; set pass_at, or add a check to the case"
    )
    assert [(check.value, check.evidence) for check in free.checks] == [(4.0, {}), (None, {"label": "short"})]
    with closing(open_store(settings.database_url())) as store:  # read back from the store, and counted there
        assert store.results.count_outcomes(report.run)[pramana.Outcome.UNSCORED] == 1


def test_an_exception_in_a_scorer_is_an_error_and_the_run_continues() -> None:
    def breaks(context: ScoringContext) -> float:
        return 1 / len(context.case.ideals)

    report = pramana.evaluate(CASES, model=bot, scorers=[pramana.scorer(pass_at=0.1)(breaks)])
    assert report.finished
    assert outcomes(report) == {"free": "errored", "right": "passed", "wrong": "failed"}
    assert report.errors[0].reason == "breaks could not score: ZeroDivisionError: division by zero"


async def judge(prompt: str) -> pramana.Reply:
    assert "Paris" in prompt
    return pramana.Reply("12345", pramana.Usage(100, 10))


def reply_with_usage(prompt: str) -> pramana.Reply:
    return pramana.Reply(bot(prompt), pramana.Usage(20, 5))


def test_model_calls_of_a_scorer_count_as_judge_usage() -> None:
    report = pramana.evaluate(CASES, model=bot, judge=judge, scorers=[judge_length])
    assert report.summary.judge_tokens.value == 330
    (first,) = [each.checks for each in report.results() if each.case_id == "right"]
    assert (first[1].value, first[1].evidence["judge"]) == (5.0, f"python:{__name__}:judge")


def test_model_calls_of_a_scorer_count_toward_the_budget_and_paid_results_are_kept() -> None:
    options: Any = {"judge": judge, "scorers": [judge_length], "max_total_tokens": 150, "concurrency": 1}
    report = pramana.evaluate(CASES, model=reply_with_usage, **options)
    assert not report.finished
    assert report.run.reason == "the run's limit of 150 tokens is reached"
    _, last = report.results()
    assert (last.outcome, last.output) == ("unscored", "Name a capital. Paris, please.")
    assert [(check.name, check.outcome) for check in last.checks] == [
        ("contains", "passed"),
        ("judge_length", "unscored"),
    ]
    assert last.reason == f"not judged: {report.run.reason}; to judge the reply later, run: pramana rescore"


def test_async_scorers_run_and_call_models_in_the_callers_loop() -> None:
    loops = []

    @pramana.scorer
    async def where(context: ScoringContext) -> str:
        loops.append(asyncio.get_running_loop())
        return (await context.ask("x", model="fake:echo")).text

    async def main() -> pramana.Report:
        loops.append(asyncio.get_running_loop())
        return await pramana.evaluate_async(CASES[:1], model=bot, scorers=[where])

    report = asyncio.run(main())
    assert len(set(loops)) == 1
    (result,) = report.results()
    assert result.checks[0].evidence["label"] == "x"


def test_a_scorer_cannot_call_a_voice_agent_or_the_embedded_model() -> None:
    @pramana.scorer
    def asks(context: BlockingScoringContext) -> str:
        return context.ask("x", model="local" if context.case.id == "free" else "fake-voice").text

    report = pramana.evaluate(CASES[:2], model=bot, scorers=[asks])
    reasons = {each.case_id: each.reason or "" for each in report.results()}
    assert "the embedded model cannot judge" in reasons["free"]
    assert "fake-voice cannot be asked: a voice agent cannot judge" in reasons["right"]


def test_a_scorer_cannot_call_an_unpriced_model_under_a_cost_limit() -> None:
    @pramana.scorer
    def asks(context: BlockingScoringContext) -> str:
        return context.ask("x", model="http://localhost:9/v1#unpriced").text

    report = pramana.evaluate(CASES[:1], model="fake:echo", scorers=[asks], max_cost_usd=1)
    assert "a cost limit needs a price, and no price is known for http://localhost:9/v1#unpriced" in (
        report.errors[0].reason or ""
    )


# ── Resume and rescore ──


def test_a_run_resumes_only_with_the_same_scorer_version() -> None:
    asked: list[str] = []

    def stops(prompt: str) -> str:
        asked.append(prompt)
        if len(asked) == 2:
            raise pramana.errors.OutOfCredit("no money left")
        return bot(prompt)

    def counts(context: ScoringContext) -> bool:
        return bool(context.reply.text)

    with pytest.raises(pramana.errors.OutOfCredit) as caught:
        pramana.evaluate(CASES, model=stops, concurrency=1, scorers=[pramana.scorer(counts)])
    assert "1 of 3 results are stored" in caught.value.__notes__[0]
    with pytest.raises(InvalidInput, match=r"planned with the scorer counts, version 1, .* is now counts, version 2"):
        pramana.resume(model=stops, scorers=[pramana.scorer(version="2")(counts)])
    with pytest.raises(
        InvalidInput, match=r"resume (it|the run) there with pramana.resume\(run_id, scorers=\[function\]\)"
    ):
        pramana.resume(model=stops)
    report = pramana.resume(model=stops, scorers=[counts])
    assert report.finished
    assert [checks(report, case["id"])["counts"] for case in CASES] == ["passed"] * 3


def test_rescoring_replaces_the_scores_and_their_summary() -> None:
    report = pramana.evaluate(CASES, model=bot)
    assert outcomes(report)["free"] == "unscored"
    with closing(open_store(settings.database_url())) as store:
        run = store.runs.read(report.run_id)
        for typed, outcome in (("length", "unscored"), ("politeness", "passed")):
            path = f"python:{__name__}:{typed}"
            asyncio.run(add_scoring_to_run(store, run, None, Limits(), scorers=[path]))
            assert outcomes(report) == {"free": outcome, "right": "passed", "wrong": "failed"}
            assert store.results.count_outcomes(run) == {
                **dict.fromkeys(pramana.Outcome, 0),
                pramana.Outcome(outcome): 1 + (outcome == "passed"),
                pramana.Outcome.PASSED: 1 + (outcome == "passed"),
                pramana.Outcome.FAILED: 1,
            }
        assert list(store.scorings.read_scoring_labels(run).values())[1:] == [
            "judged by itself, scored by length 1",
            "judged by itself, scored by politeness 2",
        ]


# ── Invalid scorers ──


@pytest.mark.parametrize(
    ("scorers", "message"),
    [
        ("politeness", r"scorers is a list; for one scorer write scorers=\['politeness'\]"),
        (["nowhere"], 'no scorer is named "nowhere"'),
        ([politeness, politeness], "2 scorers are called politeness, and scores are stored by that name; rename one"),
        ([3], "a scorer is a function of a ScoringContext, found int"),
        (["python:nowhere:x"], "python:nowhere:x cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_unusable_scorers_are_refused_before_any_model_call(scorers: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pramana.evaluate(CASES, model=bot, scorers=scorers)


def test_remote_users_can_name_installed_scorers_but_no_local_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scorers._loaded, "politeness", politeness)
    reach, request = (
        ProviderAccess(is_for_other_users=True),
        RunRequest(models=("fake",), tier="cheap", scorers=("politeness",)),
    )
    with closing(open_store(settings.database_url())) as store:
        assert planning.create_run(store, request, reach).plan.scorers == (
            PlannedScorer("politeness", "politeness", "2"),
        )
        assert (
            planning.estimate(store, request, reach).warnings[-1] == "not counted: model calls by scorers (politeness)"
        )
        refused = RunRequest(models=("fake",), tier="cheap", scorers=(f"python:{__name__}:politeness",))
        with pytest.raises(InvalidInput, match=r"scorers: .* runs code on this machine, which only the command line"):
            planning.create_run(store, refused, reach)


# ── Reports ──


def test_scores_are_in_records_exports_and_the_run_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [{"id": f"case-{each}", "input": "word " * each} for each in range(1, 9)]
    report = pramana.evaluate(cases, model=bot, scorers=[length, politeness], concurrency=1)
    assert [(each.check, each.mean and round(each.mean, 9), dict(each.labels)) for each in report.summary.scores] == [
        ("length.size", None, {"long": 6, "short": 2}),
        ("length.words", 6.5, {}),
        ("politeness", 1.0, {}),
    ]
    assert json.loads(report.to_records()[0]["scores"]) == {
        "length.words": 3.0,
        "length.size": "short",
        "politeness": 1.0,
    }
    words = next(said for name, _, said in figures.describe_scores(report.summary.scores) if name == "length.words")
    assert re.fullmatch(r"mean 6.5, 95 % interval 4.45\d to 8.54\d, 8 replies", words)
    for name in ("report.html", "report.md"):
        text = report.save(tmp_path / name).read_text(encoding="utf-8")
        assert "length.words" in text
        assert words in text
        assert "long 6, short 2" in text
    (entry, *_) = json.loads(report.save(tmp_path / "report.json").read_text(encoding="utf-8"))[0]["results"]
    assert [
        (each["name"], each["outcome"], each["value"]) for each in entry["assertion_result"]["details"]["checks"]
    ] == [
        ("length.words", "unscored", 3.0),
        ("length.size", "unscored", None),
        ("politeness", "passed", 1.0),
    ]
    capsys.readouterr()
    print_summary(report.run, report.summary, str(report))
    printed = capsys.readouterr().out
    assert "  by check" not in printed  # only one scorer decides, so there is no breakdown
    assert f"    length.words: {words}\n    politeness: mean 1, 8 replies\n" in printed


def test_compare_reads_a_file_with_measurements_only(tmp_path: Path) -> None:
    before, after = (pramana.evaluate(CASES, model=bot, scorers=[length]) for _ in range(2))
    comparison = pramana.compare(before.save(tmp_path / "a.json"), after.save(tmp_path / "b.json"))
    assert comparison.pairs == 2


def test_a_scorer_that_never_returns_is_given_up_after_the_time_limit_of_a_request() -> None:
    released = threading.Event()

    @pramana.scorer
    def stuck(_: ScoringContext) -> bool:
        return released.wait(30)

    @pramana.scorer
    async def stuck_too(_: ScoringContext) -> bool:
        await asyncio.sleep(30)
        return True

    try:
        report = pramana.evaluate(CASES[:1], model=bot, scorers=[stuck, stuck_too], timeout_s=0.2)
    finally:
        released.set()
    (result,) = report.results()
    reason = "could not score: TimeoutError: no result within the time limit of 0.2 s"
    assert [(each.outcome.value, each.reason) for each in result.checks] == [
        ("errored", f"stuck {reason}"), ("errored", f"stuck_too {reason}"),
    ]  # fmt: skip


def test_the_requests_of_a_scorer_do_not_count_in_its_time_limit() -> None:
    def slow_judge(_: str) -> str:
        time.sleep(0.2)
        return "fine"

    @pramana.scorer
    async def patient(context: ScoringContext) -> bool:
        answers = await asyncio.gather(context.ask("one"), context.ask("two"))
        return all(each.text == "fine" for each in (*answers, await context.ask("three")))

    report = pramana.evaluate(CASES[:1], model=bot, judge=slow_judge, scorers=[patient], timeout_s=0.35)
    assert outcomes(report) == {"free": "passed"}
