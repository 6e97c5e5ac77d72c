"""A summary at the terminal: it fits its columns for any name, and states judges and cost correctly."""

import io
from typing import Any

import click
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from pramana import settings
from pramana.errors import Problem
from pramana.model import (
    Case,
    Check,
    Facets,
    Failure,
    Outcome,
    Plan,
    Reply,
    Result,
    ResultKey,
    Run,
    Target,
    Turn,
    Usage,
)
from pramana.report import export
from pramana.report.summary import MAX_SHOWN_REASONS, decide_run_exit, print_summary, summarise_results
from pramana.report.terminal import count_columns, fit_to_width, print_problem, wrap_for_terminal, wrap_text
from pramana.show.cli import pramana
from pramana.store import open_store

WIDE = [
    "日本語の長い名前" * 20,
    "한국어" * 40,
    "👩🏽‍🚀❤️" * 30,
    "e\u0301" * 100,
    "x" * 1_000_000,
    "عربي " * 50,
    "\x1b[31m\u202e" * 30,
]


def make_run(suite: str = "mine", models: tuple[str, ...] = ("m",), **more: Any) -> Run:
    plan = Plan(suite, None, tuple(Target(each, "fake", each) for each in models), 1, {}, runner_version="0.1.0")
    return Run("r20260101-000000-abcd", plan, "finished", "2026-01-02T03:04:05Z", 5, 5, **more)


def make_result(name: str, outcome: Outcome, model: str = "m", **evidence: object) -> tuple[Case, Result]:
    case = Case(name, "test_case", (Turn("user", f"About {name}?"),), Facets(name, name, name, (name,)))
    key = ResultKey("sha256:1", model)
    if outcome is Outcome.ERRORED:
        return case, Result(key, name, None, Failure("unavailable", f"no answer of {name}"), (), None, None)
    reply = Reply("x", Usage(10, 2), total_s=0.1, cost_usd=0.5)
    checks = (Check("llm_judge", "1", outcome, f"because of {name}", evidence=evidence),)
    return case, Result(key, name, reply, None, checks, None, None)


def print_to_text(run: Run, rows: list[tuple[Case, Result]], capsys: pytest.CaptureFixture[str]) -> str:
    summary = summarise_results(run, rows)
    print_summary(run, summary, decide_run_exit(run, summary, 0.9).sentence)
    return capsys.readouterr().out


@pytest.mark.parametrize("name", WIDE)
def test_a_summary_fits_80_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    models = (f"{name[:200]}1", f"{name[:200]}2")
    rows = [
        make_result(f"{number} {name}", outcome, model)
        for number in range(15)
        for outcome in Outcome
        for model in models
    ]  # fmt: skip
    text = print_to_text(make_run(name, models), rows, capsys)
    assert max(map(count_columns, text.splitlines())) <= 80
    assert len(text) < 50_000
    assert "\x1b[31m" not in text
    assert "\u202e" not in text


def test_bars_are_aligned_for_any_name(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_result(name, Outcome.PASSED) for name in ("日本語", "plain", "👩🏽‍🚀", "日" * 30)]
    lines = [line for line in print_to_text(make_run(), rows, capsys).splitlines() if "█" in line]
    assert len(lines) > 4
    assert {count_columns(line.partition("█")[0]) for line in lines} == {36}
    plain = [line for line in print_to_text(make_run(), rows[1:2], capsys).splitlines() if "█" in line]
    assert {count_columns(line.partition("█")[0]) for line in plain} == {27}


def test_the_list_of_runs_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(settings.database_url())
    targets = tuple(Target(f"http://localhost:8000/v1#模型{number}", "compatible", "x") for number in range(9))
    store.runs.create(Plan("日本語" * 20, None, targets), [Case("a", "test_case", (), Facets("b", "c"))])
    store.close()
    for columns in (60, 80, 120, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = CliRunner().invoke(pramana, ["runs"]).stdout.splitlines()
        assert max(map(count_columns, lines)) <= columns
        assert all(any(f"模型{number}" in line for line in lines) for number in range(9))


@pytest.mark.parametrize("columns", [8, 20, 80])
@pytest.mark.parametrize("name", WIDE)
def test_fitted_and_wrapped_text_fits_its_width(name: str, columns: int) -> None:
    assert count_columns(fit_to_width(name, columns)) <= columns
    lines = wrap_text(name[:5_000], columns, "- ", "    ").splitlines()
    assert max(map(count_columns, lines)) <= columns
    assert "".join(line[4:] if place else line[2:] for place, line in enumerate(lines)).count("…") == name.count("…")


def test_several_judges_are_noted_below_the_pass_rate(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_result(f"a-{number}", Outcome.PASSED, judge="gpt-5" if number < 7 else "m") for number in range(10)]
    lines = print_to_text(make_run(), rows, capsys).splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("    all"))
    assert lines[place + 1] == "  several judges: llm_judge: 7 of 10 verdicts by openai:gpt-5, 3 by m;"
    alike = print_to_text(make_run(), rows[:7], capsys)
    assert "judges" not in alike
    assert alike.splitlines()[place + 1] == "  Judged by openai:gpt-5, uncalibrated."
    assert "Judged by" not in "\n".join(lines)
    assert "\n  Judged by its own model, uncalibrated.\n" in print_to_text(make_run(), rows[7:], capsys)
    assert "Judged by" not in print_to_text(make_run(), [make_result("a-1", Outcome.PASSED)], capsys)


@pytest.mark.parametrize("kind", ["html", "markdown"])
def test_reports_name_the_actual_judge_not_the_planned_one(kind: Any) -> None:
    run, out = make_run(), io.StringIO()
    planned = replace(run, plan=replace(run.plan, judge=Target("planned", "fake", "planned")))
    export(kind, planned, [make_result("a-1", Outcome.PASSED, judge="second")], out)
    assert "Judged by second, uncalibrated." in out.getvalue()
    assert "planned" not in out.getvalue()


def test_models_that_judge_themselves_are_not_several_judges(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_result("a-1", Outcome.PASSED, model, judge=model) for model in ("m", "n")]
    assert "several judges" not in print_to_text(make_run(models=("m", "n")), rows, capsys)


def test_several_models_have_separate_rates_and_no_pooled_one(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        make_result(name, Outcome.PASSED if model == "m" else Outcome.FAILED, model)
        for name in ("one", "two")
        for model in ("m", "n")
    ]
    text = print_to_text(make_run(models=("m", "n")), rows, capsys)
    assert [line.split()[0] for line in text.splitlines() if "/2" in line][:2] == ["m", "n"]
    assert "2/4" not in text
    assert [line.split() for line in text.partition("by category")[2].splitlines()[:3]] == [
        ["m", "n"],
        ["one", "1/1", "100", "%", "(2.5–100.0", "%)", "0/1", "0", "%", "(0.0–97.5", "%)"],
        ["two", "1/1", "100", "%", "(2.5–100.0", "%)", "0/1", "0", "%", "(0.0–97.5", "%)"],
    ]
    assert [
        line.split()[:3] for line in print_to_text(make_run(), rows[::2], capsys).splitlines() if "2/2" in line
    ] == [["all", "██████████", "2/2"]]
    out = io.StringIO()
    export("markdown", make_run(models=("m", "n")), rows, out)
    assert "<summary>By category</summary>" in out.getvalue()
    assert "| one | m | 100 % | 2.5–100.0 % | 1 | 0 |" in out.getvalue()
    assert "| one | n | 0 % | 0.0–97.5 % | 0 | 1 |" in out.getvalue()
    assert "together" not in out.getvalue()
    assert "2 of 4" not in out.getvalue()


def test_judge_usage_includes_earlier_scorings(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_result("a-1", Outcome.PASSED, judge="gpt-5", cost_usd=0.25, tokens=1200)]
    text = " ".join(print_to_text(make_run(), rows, capsys).split())
    assert "Tokens: 10 in, 2 out; judges: 1,200 tokens, $0.2500; total cost: $0.7500;" in text
    case, judged = rows[0]
    evidence = {**judged.checks[0].evidence, "other_scorings": {"cost_usd": 1.0, "tokens": 300}}
    again = replace(judged, checks=(replace(judged.checks[0], evidence=evidence),))
    text = " ".join(print_to_text(make_run(), [(case, again)], capsys).split())
    assert "judges: 1,500 tokens, $1.25 (earlier scorings included); total cost: $1.75;" in text


def test_judge_usage_can_be_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_result("a-1", Outcome.PASSED, judge="gpt-5", cost_usd=None, tokens=None)]
    text = " ".join(print_to_text(make_run(), rows, capsys).split())
    assert "judges: tokens and cost unknown; total cost: at least $0.5000;" in text
    rows = [make_result("a-1", Outcome.PASSED, judge="gpt-5", cost_usd=None, tokens=1200)]
    text = " ".join(print_to_text(make_run(), rows, capsys).split())
    assert "judges: 1,200 tokens, cost unknown; total cost: at least $0.5000;" in text


def make_provider_run(provider: str) -> Run:
    """Return a run of one model `m` of a provider."""
    run = make_run()
    return replace(run, plan=replace(run.plan, targets=(Target("m", provider, "m"),)))


def make_measured_rows(usage: Usage, cost_usd: float | None) -> list[tuple[Case, Result]]:
    case, passed = make_result("a-1", Outcome.PASSED)
    return [(case, replace(passed, reply=Reply("x", usage, total_s=0.1, cost_usd=cost_usd)))]


def test_a_run_in_which_everything_errored_has_no_tokens_cost_or_times(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_result(f"a-{number}", Outcome.ERRORED) for number in range(3)]
    text = print_to_text(make_provider_run("python"), rows, capsys)
    for word in ("Tokens", "cost", "$", "latency"):
        assert word not in text
    assert "3 errored: no answer of a-0 (a-0, a-1, a-2)" in text
    assert "Full result: pramana show r20260101-000000-abcd --id a-0" in text


@pytest.mark.parametrize("kind", ["html", "markdown"])
def test_reports_of_a_run_in_which_everything_errored_have_no_tokens_or_cost(kind: Any) -> None:
    out = io.StringIO()
    export(kind, make_run(), [make_result("a-1", Outcome.ERRORED)], out)
    assert "no answer of" in out.getvalue()
    for word in ("Tokens", "$0.00"):
        assert word not in out.getvalue()


@pytest.mark.parametrize("provider", ["python", "command"])
def test_functions_and_commands_without_usage_show_only_times(
    provider: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = print_to_text(make_provider_run(provider), make_measured_rows(Usage(), None), capsys)
    assert "  Latency 100 ms (n=1).\n" in text
    for word in ("Tokens", "cost", "unknown"):
        assert word not in text
    out = io.StringIO()
    export("html", make_provider_run(provider), make_measured_rows(Usage(), None), out)
    assert "Tokens" not in out.getvalue()


def test_functions_with_usage_show_tokens_and_an_unknown_cost(capsys: pytest.CaptureFixture[str]) -> None:
    text = print_to_text(make_provider_run("python"), make_measured_rows(Usage(9, 2), None), capsys)
    assert "  Tokens: 9 in, 2 out; cost: unknown; latency 100 ms (n=1).\n" in text


def test_other_models_without_usage_show_unknown_usage(capsys: pytest.CaptureFixture[str]) -> None:
    text = print_to_text(make_provider_run("compatible"), make_measured_rows(Usage(), None), capsys)
    assert "Tokens: unknown in, unknown out; cost: unknown;" in text


# ── Failures ──


def test_failures_are_listed_with_reasons_and_a_command_for_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_result(f"a-{number}", Outcome.FAILED) for number in range(12)]
    lines = print_to_text(make_run(), rows, capsys).splitlines()
    assert "  failed a-0: because of a-0" in lines
    assert sum(line.startswith("  failed a-") for line in lines) == MAX_SHOWN_REASONS
    text = " ".join(" ".join(lines).split())
    assert "… and 4 more failed: pramana export r20260101-000000-abcd --format csv has them all." in text
    assert "Full result: pramana show r20260101-000000-abcd --id a-0" in text
    assert "failed" not in print_to_text(make_run(), [make_result("a-0", Outcome.PASSED)], capsys)


def test_failures_name_variant_and_repeat_if_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    case, found = make_result("a-0", Outcome.FAILED)
    run = make_run()
    run = replace(run, plan=replace(run.plan, variants=("text", "voice"), repeats=3))
    spoken = replace(found, key=replace(found.key, variant="voice", repeat=1))
    text = print_to_text(replace(run, expected=60), [(case, spoken)], capsys)
    assert "  failed a-0 (voice, repeat 2): because of a-0\n" in text
    assert "10 cases, 3 repeats, 2 variants: the intervals count cases, not answers.\n" in text


# ── Heading ──


def test_the_heading_names_voice_and_condition(capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    aloud = replace(run, plan=replace(run.plan, variants=("text", "voice+noise=10dB"), voice="piper"))
    heads = [print_to_text(each, [], capsys).splitlines()[1] for each in (run, aloud)]
    assert heads == [
        "mine · run r20260101-000000-abcd",
        "mine · run r20260101-000000-abcd · typed and spoken by piper (noise=10dB)",
    ]


def test_a_long_name_never_hides_the_selection_label(capsys: pytest.CaptureFixture[str]) -> None:
    head = print_to_text(make_run("scenarios+" * 6 + "more (selection)"), [], capsys).splitlines()[1:3]
    assert head[0].endswith("more (selection)")
    assert head[1] == "run r20260101-000000-abcd"
    longer = print_to_text(make_run("x" * 500 + " (selection)"), [], capsys).splitlines()
    assert longer[1] == "x" * 67 + "… (selection)"


# ── Calls ──


def make_call_row(*lines: dict[str, Any], variant: str = "voice", **words: Any) -> tuple[Case, Result]:
    heard = {"recorded": "nine", "transcript": {"reference": "nine"}, "references": [], **words}
    evidence = {"times": {"lines": list(lines), "reason": "done"}, "words": heard, "sound": {}}
    checks = (Check("call", "1", Outcome.PASSED, "", None, evidence),)
    case = Case("a", "scenario", (), Facets("x", "easy"))
    return case, Result(ResultKey("sha256:1", "m", variant), "a", Reply("nine"), None, checks, None, None)


def print_voice_summary(rows: list[tuple[Case, Result]], capsys: pytest.CaptureFixture[str], **plan: Any) -> str:
    run = make_run()
    aloud = replace(run, plan=replace(run.plan, variants=("voice",), **plan))
    return " ".join(print_to_text(aloud, rows, capsys).split())


def make_answer_times(seconds: float = 0.902, silence: float = 0.1, **more: Any) -> dict[str, Any]:
    return {"voice_to_voice_s": seconds, "first_audible_s": 3.0, "leading_silence_s": silence, **more}


def test_one_call_shows_one_time_and_tiny_silence_as_less_than_1_ms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = print_voice_summary([make_call_row(make_answer_times(silence=0.0000103))], capsys)
    assert "m, voice: voice to voice p50 902 ms (n=1); leading silence p50 < 1 ms." in text
    assert "Read a call: pramana show r" in text
    assert "Hear the calls: pramana export r" in text
    text = print_voice_summary([make_call_row(make_answer_times()), make_call_row(make_answer_times(1.1))], capsys)
    assert (
        "voice to voice p50 1.00 s, p95 1.09 s, most 1.10 s (n=2, too few cases to bound p95); leading silence p50 100 ms."
        in text
    )


def test_times_of_a_slow_machine_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    late = make_answer_times(reliable=False, late_s=0.032)
    text = print_voice_summary(
        [make_call_row(make_answer_times(reliable=True)), make_call_row(late), make_call_row(make_answer_times())],
        capsys,
    )
    assert (
        "most 902 ms (n=3, too few cases to bound p95); 1 of 3 times unreliable: this machine sent or received sound late; leading silence"
        in text
    )
    assert "(n=1); 1 of 1 time unreliable: this machine sent or received sound late;" in print_voice_summary(
        [make_call_row(late)], capsys
    )
    assert "unreliable" not in print_voice_summary([make_call_row(make_answer_times(reliable=True))], capsys)


def test_turn_taking_is_reported_if_there_was_any(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        make_answer_times(),
        make_answer_times(talked_into=True, yield_s=0.009),
        make_answer_times(false_interruption=False),
        {"false_interruption": False},
    ]
    text = print_voice_summary([make_call_row(*lines)], capsys)
    assert (
        "stopped when interrupted 1 of 1 times, p50 9 ms; interrupted the caller 0 of 3 times; stopped for backchannels 0 of 2 times"
        in text
    )
    assert "cut in" not in print_voice_summary([make_call_row(make_answer_times())], capsys)
    assert "interrupted the caller 1 of 1 times" in print_voice_summary(
        [make_call_row(make_answer_times(cut_in=True))], capsys
    )
    stubborn = print_voice_summary([make_call_row(make_answer_times(yield_censored_s=2.0))], capsys)
    assert "stopped when interrupted 0 of 1 times; interrupted the caller 0 of 1 times" in stubborn


def test_word_error_rates_include_error_and_word_counts(capsys: pytest.CaptureFixture[str]) -> None:
    def count_errors(errors: int, words: int) -> dict[str, Any]:
        counts = {"substitutions": errors, "deletions": 0, "insertions": 0, "reference_words": words}
        return {"words": counts, "characters": counts}

    text = print_voice_summary(
        [make_call_row(make_answer_times(), references=[count_errors(23, 12)], heard=count_errors(27, 160))], capsys
    )
    assert "misheard 27 of 160 words (16.9 %); word error rate 192 % (23 errors in 12 words)" in text


def test_verdicts_based_on_our_speech_recognition_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_call_row(make_answer_times(), transcript=None)] * 2
    text = print_voice_summary(rows, capsys)
    assert "2 verdicts rest on Pramana's own transcript (Whisper tiny.en)" in text
    assert "choose a better speech recognition with --stt" in text
    better = print_voice_summary(rows[:1], capsys, stt=Target("openai:whisper-1", "openai", "whisper-1"))
    assert "1 verdict rests on Pramana's own transcript (openai:whisper-1)" in better
    assert "--stt" not in better
    assert "own transcript" not in print_voice_summary([make_call_row(make_answer_times())], capsys)


def test_a_single_reply_shows_one_latency(capsys: pytest.CaptureFixture[str]) -> None:
    assert "latency 100 ms (n=1)." in print_to_text(make_run(), [make_result("a", Outcome.PASSED)], capsys)


# ── At a terminal ──


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_sentences_are_wrapped_for_terminals_but_not_for_pipes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "this file is not what it should be, " * 6
    problem = Problem(sentence, "scenarios[0].id", 3, 5, "mine.yaml")
    assert wrap_for_terminal(sentence) == sentence
    print_problem(problem, to_stderr=True)
    assert len(capsys.readouterr().err.splitlines()) == 1
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    print_problem(problem, to_stderr=True)
    plain = click.unstyle(terminal.getvalue())
    assert max(map(count_columns, plain.splitlines())) <= 80
    assert " ".join(plain.split()) == f"mine.yaml:3:5: scenarios[0].id: {sentence.strip()}"
    assert wrap_for_terminal("short\n  and indented") == "short\n  and indented"


@pytest.mark.parametrize(("count", "message"), [(20, "too few cases to bound p95"), (59, "p95 at most 590 ms")])
@pytest.mark.parametrize("kind", ["markdown", "html", "terminal"])
def test_every_percentile_that_a_reader_sees_has_its_bound(
    count: int, message: str, kind: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run, rows = make_run(), []
    for number in range(count):
        case, result = make_result(f"case-{number}", Outcome.PASSED)
        reply = Reply("yes", first_token_s=(number + 1) / 100, total_s=(number + 1) / 100)
        rows.append((case, replace(result, reply=reply)))
    if kind == "terminal":
        text = print_to_text(run, rows, capsys)
    else:
        out = io.StringIO()
        export(kind, run, iter(rows), out)
        text = out.getvalue()
    text = " ".join(text.split())
    shown = text.count("latency p50/p95/p99") + text.count("first token p50/p95") + text.count("<small>p95")
    assert shown + text.count('class="plot"') >= 2
    assert text.count(message) >= shown + text.count('class="plot"')
