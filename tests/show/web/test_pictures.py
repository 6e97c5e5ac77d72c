"""Charts: values are drawn at the right position, have a text alternative, and run no scripts."""

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from urllib.parse import parse_qs

import pytest
from msgspec.structs import replace

from pramana.analyse.spread import (
    Bin,
    CountsByTimeStep,
    ModelTimes,
    RunTimes,
    Spread,
    find_time_step_index,
    make_histogram,
)
from pramana.analyse.summary import KnownTotal, OutcomeReason, Rate, Summary, TimePercentiles
from pramana.app.calls import CallView, PeaksView, TranscriptEntryView, TurnTakenView
from pramana.app.models import HistoryView, LatencyView, RunPointView
from pramana.app.suites import ListedSuiteView, TierView
from pramana.app.views import (
    AssertionView,
    AudioView,
    CaseView,
    CheckView,
    ExpectedView,
    LimitsView,
    LineView,
    OutcomesView,
    PlanView,
    ReplyView,
    ResultDetailView,
    RunDetailView,
    RunView,
    TargetView,
    TurnView,
)
from pramana.model import Outcome
from pramana.report import pictures, result_detail, run_summary
from pramana.report.markup import MAX_TEXT_LENGTH, MIN_CHARACTERS_WORTH_CUTTING, render_json
from pramana.report.pictures import (
    TimeMark,
    choose_ticks,
    draw_distribution,
    draw_rates,
    draw_time_axis,
    find_position_in_bins,
    format_short_time,
)
from pramana.show.web.kit import waveform
from pramana.show.web.kit.forms import FileSelection, PickedFile
from pramana.show.web.pages import comparison_markup, home, results, run, runs, suites

from ...views import make_view

HOSTILE = "<script>alert(1)</script>"


def make_bins(*times: float) -> list[Bin]:
    return make_histogram([CountsByTimeStep(map(find_time_step_index, times))])


def test_bars_have_the_height_of_their_counts_in_order() -> None:
    some = [
        Bin(0.1, 0.2, 4),
        Bin(0.2, 0.5, 0),
        Bin(0.5, 1, 1),
    ]
    drawn = pictures.draw_histogram(some, [TimeMark("p50", 0.2)], "Times & more")
    found = re.findall(r'x="([\d.]+)" width="([\d.]+)" y="([\d.]+)" height="([\d.]+)"', drawn)
    assert [tuple(map(float, each)) for each in found] == [(0, 333.33, 0, 100), (666.67, 333.33, 75, 25)]
    assert "<title>100 ms to 200 ms: 4</title>" in drawn
    assert 'aria-label="Times &amp; more"' in drawn
    assert "M333.33 0V100" in drawn
    assert "p50 200 ms" in drawn


def test_bars_of_charts_side_by_side_have_one_scale() -> None:
    few, many = make_bins(0.1, 0.52), make_bins(0.1, *[0.52] * 3)
    spreads = {name: Spread(count=2, median=0.2, p95=0.5, min=0.1, max=0.52) for name in "ab"}
    latency = ModelTimes(overall=spreads["a"], by_provider={}, by_model=spreads, histogram=many,
                         histogram_by_model={"a": few, "b": many})  # fmt: skip
    times = RunTimes(latency_seconds=latency, voice_to_voice_seconds=latency)
    shown = render_summary(make_summary(), models=("a", "b"), aggregates=times)
    first, second = shown.split("<figure")[1:3]
    assert [max(map(float, re.findall(r' height="([\d.]+)" />', each))) for each in (first, second)] == [33.33, 100]
    assert "highest bar 1" in first
    assert "highest bar 3" in second
    assert shown.count('class="halves"><figure') == 2, "latency and the waits in calls have scales of their own"


def test_a_single_value_among_thousands_is_visible() -> None:
    some = [Bin(0.1, 0.2, 100_000), Bin(0.2, 0.5, 1)]
    heights = re.findall(r'height="([\d.]+)"', pictures.draw_histogram(some, [], "x"))
    assert [float(each) for each in heights] == [100, 1.5]


@pytest.mark.parametrize("times", [(0.1, 0.2), (0.0, 0.5), (0.9, 0.95, 0.9), (0.0001, 4000.0), (1.0,) * 50])
def test_a_few_ticks_are_at_bin_boundaries(times: tuple[float, ...]) -> None:
    some = make_bins(*times)
    found = choose_ticks(some)
    assert 2 <= len(found) <= pictures.MAX_TICKS
    assert set(found) <= {*(each.start for each in some), some[-1].end}
    places = [find_position_in_bins(some, each) for each in found]
    assert places == sorted(places)
    assert 0 <= min(places) <= max(places) <= 1


def test_a_time_is_placed_within_its_bin() -> None:
    some = make_bins(0.0005, 0.01, 0.5, 20.0)
    for seconds in (0.0005, 0.0123, 0.4, 19.0):
        place = find_position_in_bins(some, seconds) * len(some)
        assert some[int(place)].start <= seconds < some[int(place)].end
    assert find_position_in_bins(some, 0.0) == 0.0
    assert find_position_in_bins(some, 1e9) == 1.0


def test_a_distribution_has_a_text_alternative_and_one_time_has_no_chart() -> None:
    spread = Spread(count=3, median=0.2, p95=0.5, min=0.1, max=0.52)
    drawn = draw_distribution(f"Latency, {HOSTILE}", "answers", make_bins(0.1, 0.2, 0.52), spread)
    assert HOSTILE not in drawn
    assert "3 answers · fastest 100 ms, slowest 520 ms. p50 200 ms; p95 500 ms; most, 1, took" in drawn
    assert drawn.count("too few cases to bound p95") == 2  # in the caption, and in the text alternative
    bounded = draw_distribution("Latency", "answers", make_bins(0.1, 0.2, 0.52), replace(spread, p95_at_most=0.51))
    assert bounded.count("p95 at most 510 ms at 95 % confidence") == 2
    one = draw_distribution(
        "Latency", "answers", make_bins(0.2), Spread(count=1, median=0.2, p95=0.2, min=0.2, max=0.2)
    )
    assert "<svg" not in one
    assert "200 ms, the only time measured" in one
    assert "no times measured" in draw_distribution("Latency", "answers", [], Spread())
    assert drawn.count("time axis logarithmic, highest bar 1") == 2  # visible, and for screen readers
    assert "6 lines have no time" in draw_distribution("Voice to voice", "lines", [], Spread(), "6 lines have no time")


def test_rates_show_bars_intervals_and_counts() -> None:
    rate = Rate(passed=3, failed=1, errored=2, skipped=1)
    nothing = Rate(errored=2, skipped=1)
    drawn = draw_rates("Category", {HOSTILE: rate, "empty": nothing})
    assert HOSTILE not in drawn
    for words in ("75.0 %", "19.4–99.4 %", "3 of 4", "3 without a verdict", "no verdict", "Pass rate by category"):
        assert words in drawn
    assert 'class="fill" width="75.00"' in drawn
    many = draw_rates("Tag", {f"tag {number}": rate for number in range(100)})
    open_rows, _, folded = many.partition("<details>")
    assert open_rows.count('scope="row"') == pictures.MAX_UNFOLDED_ROWS
    assert folded.startswith("<summary>and 88 more</summary>")
    assert folded.count('scope="row"') == 88
    most = draw_rates("Tag", {f"tag {number}": rate for number in range(pictures.MAX_FOLDED_ROWS + 20)})
    assert f"and {pictures.MAX_FOLDED_ROWS + 8:,} more</summary>" in most
    assert "8 more are not shown; the JSON export has them all." in most


def test_an_axis_has_round_times_that_fit() -> None:
    for seconds in (0.4, 3.2, 9.7, 59.9, 61.0, 70.5, 75.0, 299.0, 7_000.0):
        words = re.findall(r">([^<]+)</span>", draw_time_axis(seconds))
        assert 1 <= len(words) <= (6 if seconds < 60 else 5)
        assert words[0] == "0 s"
    assert "1:00 min" in draw_time_axis(61.0)
    assert draw_time_axis(0.0).count("<span") == 1
    assert format_short_time(0.00106) == "1.06 ms"


# ── Calls ──

CALL = CallView(
    duration_seconds=4.0,
    conversation=(
        TranscriptEntryView("caller", HOSTILE, 0.5),
        TranscriptEntryView("heard as", "script", 0.5),
        TranscriptEntryView("agent", "שלום", 2.25, "voice to voice 902 ms"),
        TranscriptEntryView("agent", ""),
    ),
    turns=(
        TurnTakenView(who="caller", start_seconds=0.5, end_seconds=1.5),
        TurnTakenView(who="agent", start_seconds=2.25, end_seconds=None),
    ),
    peaks=PeaksView(caller=(0.0, 0.5, 0.0, 0.0), agent=(0.0, 0.0, 0.25, 0.25)),
    recording="/audio/sha256:a",
    log="/audio/sha256:b",
)


def test_both_sides_share_one_scale_with_the_caller_on_top() -> None:
    drawn = waveform.draw_waveform(CALL)
    caller, agent = re.findall(r'class="side \w+" d="M([^"]+)Z"', drawn)
    tops = [[float(point.split()[1]) for point in side.split("L")[:4]] for side in (caller, agent)]
    assert tops[0] == [24.7, 2.5, 24.7, 24.7]
    assert tops[1] == [74.7, 74.7, 63.8, 63.8]  # half as loud, half as high
    assert 'class="turn" x="0.50" width="1.00" y="0" height="50"' in drawn
    assert 'class="turn" x="2.25" width="0.00" y="50" height="50"' in drawn


def test_a_silent_or_empty_call_can_be_drawn() -> None:
    silent = replace(CALL, peaks=PeaksView(caller=(0.0,) * 4, agent=(0.001,) * 4))
    assert "side caller" in waveform.draw_waveform(silent)
    assert "side agent" in waveform.draw_waveform(replace(silent, duration_seconds=0.0))


def test_spoken_lines_have_a_seek_button_and_transcripts_have_none() -> None:
    told = waveform.render_conversation(CALL.conversation)
    assert re.findall(r'data-seek="([\d.]+)"', told) == ["0.500", "2.250"]
    assert 'aria-label="Play the agent from 2.25 s"' in told
    assert HOSTILE not in told
    assert "(nothing)" in told


PLAN = {"parameters": {"temperature": None, "seed": 42, "max_tokens": 9}, "system_prompt": "Be brief.",
        "stt": make_view(TargetView, typed="whisper"), "voice": "espeak"}  # fmt: skip
RUN = {"suite": "team-1-smoke", "suite_hash": "sha256:1", "selection": {}, "models": ("a", "b"), "variants": ("text",),
       "repeats": 1, "limits": {"max_cost": 5, "concurrency": 32, "timeout_seconds": 120.0}, "plan": PLAN,
       "owner": "server"}  # fmt: skip


def make_run_view(changed: dict[str, Any]) -> RunDetailView:
    stated = {**RUN, **changed}
    nested = {"plan": make_view(PlanView, **stated.pop("plan")), "limits": LimitsView(**stated.pop("limits"))}
    return make_view(RunDetailView, **stated, **nested)


SUITES = [
    make_view(ListedSuiteView, version="team-1", tiers={"smoke": make_view(TierView, hash="sha256:1")}),
    make_view(ListedSuiteView, version="v1.0", tiers={"cheap": make_view(TierView, hash="sha256:2")}),
]
KEPT = {"suite": "scenarios (selection)", "suite_hash": None}
OF_TIER = {"owner": "cli", "suite": "v1.0-cheap (selection)", "suite_hash": None}


@pytest.mark.parametrize(
    ("changed", "there"),
    [
        ({}, {}),
        ({"owner": "cli", "limits": {"max_cost": 5}}, {}),
        ({"suite": "scenarios", "suite_hash": None}, {"scenario": ["all"]}),
        ({**KEPT, "selection": {"type": ["x"], "ids": ["p", "q"]}}, {"scenario": ["p", "q"], "type": ["x"]}),
        ({**KEPT, "selection": {"ids": [f"s{number}" for number in range(50)]}},
         {"scenario": [f"s{number}" for number in range(50)]}),
        ({"suite": "v1.0-cheap+scenarios (selection)", "suite_hash": None, "selection": {"tag": ["t"]}},
         {"suite": ["v1.0"], "tier": ["cheap"], "tag": ["t"]}),
        ({"suite": "v1.0-cheap+scenarios", "suite_hash": None},
         {"suite": ["v1.0"], "tier": ["cheap"], "scenario": ["all"]}),
        ({"repeats": 3, "variants": ("text", "voice")}, {"repeats": ["3"], "modality": ["text", "voice"]}),
        ({"variants": ("voice", "voice+noise=10dB")}, {"modality": ["voice", "noisy"]}),
        ({"variants": ("text", "voice+phone")}, {"modality": ["text", "voice"], "condition": ["phone"]}),
        ({"plan": {**PLAN, "parameters": {"temperature": 0.0, "seed": 1234567, "max_tokens": 9}}},
         {"seed": ["1234567"]}),
        ({"limits": {"max_cost": 5, "concurrency": 2}}, {"concurrency": ["2"]}),
    ],
)  # fmt: skip
def test_repeating_a_run_uses_the_same_plan(changed: dict[str, Any], there: dict[str, list[str]]) -> None:
    path, _, query = (results.make_new_run_url(make_run_view(changed), SUITES) or "").partition("?")
    found = parse_qs(query)
    assert path == "/runs/new"
    usual = {"model": ["a", "b"], "temperature": ["none"], "maxTokens": ["9"], "systemPrompt": ["Be brief."],
             "stt": ["whisper"], "maxCost": ["5"]}  # fmt: skip
    if "suite" not in changed:
        usual |= {"suite": ["team-1"], "tier": ["smoke"]}
    if "plan" in changed:
        del usual["temperature"]
    assert found == {**usual, **there}


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"owner": "cli", "suite": "mine", "suite_hash": None}, id="a file"),
        pytest.param({"owner": "cli", "suite": "my-cases", "suite_hash": "sha256:9"}, id="a file of a suite"),
        pytest.param({"owner": "cli", "suite_hash": "sha256:9"}, id="a file named like a tier"),
        pytest.param({"owner": "cli", "suite": "scenarios", "suite_hash": None}, id="a file named scenarios"),
        pytest.param({"suite": "gone-smoke"}, id="a suite that was removed"),
        pytest.param({**OF_TIER, "selection": {"limit": 5}}, id="a limit"),
        pytest.param({**OF_TIER, "selection": {"ids": ["factual-001"]}}, id="ids of a tier"),
        pytest.param({**OF_TIER, "selection": {"tag": ["t"]}}, id="a tag of a tier"),
        pytest.param({**KEPT, "selection": {"ids": ["x"], "limit": 5}}, id="a limit of scenarios"),
        pytest.param({**KEPT, "selection": {"ids": [f"s{number}" for number in range(51)]}}, id="51 scenarios"),
        pytest.param({**KEPT, "selection": {"ids": ["שלום" * 100] * 50}}, id="an address too long"),
        pytest.param({"variants": ("voice", "voice+phone")}, id="two conditions"),
        pytest.param({"variants": ("voice",), "plan": {**PLAN, "voice": "piper"}}, id="another caller"),
        pytest.param({"plan": {**PLAN, "parameters": {"top_k": 5}}}, id="another parameter"),
        pytest.param({"plan": {**PLAN, "scorers": [{"typed": "a", "name": "a", "version": "1"}]}}, id="a scorer"),
        pytest.param({"plan": {**PLAN, "system_prompt": "x" * 1_501}}, id="a long system prompt"),
        pytest.param({"limits": {"timeout_seconds": 5}}, id="another timeout"),
    ],
)
def test_a_run_that_an_address_cannot_express_cannot_be_repeated(changed: dict[str, Any]) -> None:
    assert results.make_new_run_url(make_run_view(changed), SUITES) is None


def test_models_with_omitted_times_are_counted() -> None:
    spread = Spread(count=2, median=0.2, p95=0.5, min=0.1, max=0.52)
    drawn = make_bins(0.1, 0.52)

    def times(count: int) -> str:
        names = [f"m{number}" for number in range(count)]
        latency = ModelTimes(overall=spread, by_provider={}, by_model=dict.fromkeys(names, spread), histogram=drawn,
                             histogram_by_model=dict.fromkeys(names, drawn))  # fmt: skip
        times = RunTimes(latency_seconds=latency, voice_to_voice_seconds=None)
        return run_summary._render_times(times, make_summary()) or ""

    assert "and 3 more models; the exports have their times" in times(9)
    assert "and 1 more model; the exports have their times" in times(7)
    assert "more model" not in times(6)


# ── Run summaries ──

THREE_OF_FOUR = Rate(passed=3, failed=1)
NONE = Rate()


def make_summary(**changed: Any) -> Summary:
    usual: dict[str, Any] = dict.fromkeys(
        ("input_tokens", "output_tokens", "cost_usd", "judge_cost_usd", "judge_tokens"), KnownTotal()
    )
    usual |= {
        "overall": THREE_OF_FOUR,
        "by": {"model": {}},
        "latency": TimePercentiles(),
        "first_token": TimePercentiles(),
        "undecided": {},
    }
    usual |= {
        "cached": 0,
        "judged_again": 0,
        **dict.fromkeys(("reasons", "not_reproducible", "judges", "mixed_judges"), ()),
    }
    return Summary(**{**usual, **changed})


def render_summary(summary: Summary, **changed: Any) -> str:
    usual = {"id": "r1", "status": "finished", "models": ("m",), "variants": ("text",), "repeats": 1, "expected": 4,
             "stored": 4}  # fmt: skip
    return run_summary.render_summary(make_view(RunDetailView, **{**usual, **changed, "summary": summary}), "/runs/r1")


def test_repeats_count_as_answers_and_the_interval_is_over_cases() -> None:
    assert "passed, of 4 with a verdict. With 95 % confidence the true rate is 19.4–99.4 %.<" in render_summary(
        make_summary()
    )
    twice = render_summary(make_summary(), repeats=2, expected=160)
    assert "passed, of 4 with a verdict. With 95 % confidence the true rate is 19.4–99.4 %.<" in twice
    assert "80 cases, 2 repeats: the intervals count cases, not answers.<" in twice
    both = render_summary(make_summary(), variants=("text", "voice"), expected=160, models=("m", "n"))
    assert "40 cases, 2 models, 2 variants: the intervals count cases, not answers.<" in both


def test_a_run_that_never_started_is_not_called_undecided() -> None:
    for models in (("m",), ("m", "n")):
        ended = render_summary(make_summary(overall=NONE), models=models, status="stopped")
        assert "No results" in ended
        assert "The run ended before any request was answered." in ended
        assert "No verdict" not in ended
    assert "No verdicts yet." in render_summary(make_summary(overall=NONE), status="running")
    errors = Rate(errored=4)
    assert "No result has a verdict." in render_summary(make_summary(overall=errors))


def test_unnamed_cases_without_a_verdict_are_counted_and_can_be_judged() -> None:
    cases = [f"case-{number}" for number in range(10)]
    unscored = Rate(unscored=12)

    def render_undecided(count: int, named: int = 10, **changed: Any) -> str:
        reason = OutcomeReason(tuple(cases[:named]), outcome=Outcome.UNSCORED, text="no judge", count=count)
        return render_summary(make_summary(overall=unscored, reasons=(reason,)), **{"expected": 50, **changed})

    assert "case-9</bdi> and 2 more<" in render_undecided(12)
    assert "case-9</bdi><" in render_undecided(10)
    assert "case-2</bdi><" in render_undecided(12, 3)
    assert "case-9</bdi>, …<" in render_undecided(24, repeats=2)
    assert "case-9</bdi><" in render_undecided(20, repeats=2, expected=20), "there are but ten cases"
    assert "pramana rescore r1 --judge MODEL" in render_undecided(12)
    assert "pramana rescore" not in render_undecided(12, status="running")
    assert "pramana rescore" not in render_summary(make_summary())


def test_non_reproducible_settings_are_noted_once_without_a_warning() -> None:
    left_out = {"left_out": {"flaky": ["seed", "temperature"]}}
    noted = [f"flaky does not accept {each}: 4 requests sent without it" for each in ("seed", "temperature")]
    ran = make_view(RunDetailView, status="finished", reason=None, notes=left_out, stored=4, expected=4)
    head = run._render_end_reason(ran) or ""
    assert "Not reproducible: " in head
    assert "flaky does not take seed, temperature" in head
    assert "warn" not in head
    assert "eproducible" not in render_summary(make_summary(not_reproducible=tuple(noted)), notes=left_out)
    live = render_summary(make_summary(not_reproducible=tuple(noted)), status="running")
    assert live.count("Not reproducible") == 1
    assert "warn" not in live
    stopped = run._render_end_reason(replace(ran, status="stopped", reason="no money", stored=2)) or ""
    assert re.search(
        r'no money</bdi>\. 2 of 4 results are stored\. Resume[^<]+</p><p class="quiet small">Not rep', stopped
    )
    assert run._render_end_reason(replace(ran, notes={})) is None


def test_models_are_in_plan_order() -> None:
    drawn = make_bins(0.1, 0.52)
    spread = Spread(count=2, median=0.2, p95=0.5, min=0.1, max=0.52)
    both = {"a": spread, "b": spread}
    latency = ModelTimes(
        overall=spread, by_provider={}, by_model=both, histogram=drawn, histogram_by_model={"a": drawn, "b": drawn}
    )
    shown = render_summary(
        make_summary(by={"model": {"a": THREE_OF_FOUR, "b": THREE_OF_FOUR}}),
        models=("b", "a"),
        aggregates=RunTimes(latency_seconds=latency, voice_to_voice_seconds=None),
    )
    assert re.findall(r'<th scope="row"><bdi dir="auto">(\w)', shown) == ["b", "a"]
    assert re.findall(r"<b>Latency, (\w)</b>", shown) == ["b", "a"]


def test_calls_show_the_waiting_time_of_each_model_and_missing_answers() -> None:
    from pramana.analyse.voice import MeasuredLine, RunVoice, VoiceSummary, WordErrors, measure_turn_taking

    answered = [MeasuredLine(voice_to_voice_s=each, first_audible_s=1.0) for each in (0.5, 0.9, 1.3)]
    silent = [MeasuredLine(censored=True, waited_s=15.0)] * 6

    def voice(**lines: list[MeasuredLine]) -> RunVoice:
        by = (
            VoiceSummary(name, "voice", 3, measure_turn_taking(some), WordErrors(), WordErrors(), None, None)
            for name, some in lines.items()
        )
        return RunVoice(tuple(by), ())

    one = render_summary(make_summary(voice=voice(m=answered)))
    assert "<dt>Voice to voice, median</dt><dd>900 ms<small>p95 1.26 s, too few cases to bound p95 (n=3)</small>" in one
    assert one.index("<dt>Cost") < one.index("<dt>Voice to voice") < one.index("<dt>Tokens in")
    assert "<dt>Voice to voice" not in render_summary(make_summary())
    spread = Spread(count=3, median=0.9, p95=1.26, min=0.5, max=1.3)
    drawn = make_bins(0.5, 0.9, 1.3)
    waits = ModelTimes(overall=spread, by_provider={}, by_model={"a": spread, "b": Spread()}, histogram=drawn,
                       histogram_by_model={"a": drawn, "b": []})  # fmt: skip
    two = render_summary(
        make_summary(voice=voice(a=answered, b=silent)),
        models=("b", "a"),
        aggregates=RunTimes(latency_seconds=None, voice_to_voice_seconds=waits),
    )
    assert re.findall(r"median, <bdi[^>]+>(\w)</bdi></dt><dd>([^<]+)<", two) == [("b", "&gt; 15.0 s"), ("a", "900 ms")]
    b, a = two.split("<figure")[1:]
    assert "no times measured" in b
    assert "6 lines without an answer have no time" in b
    assert "without an answer" not in a


def test_a_call_shows_its_waiting_time_first_and_no_first_token() -> None:
    lines = [{"voice_to_voice_s": each, "first_audible_s": 1.0} for each in (4.41025, 0.5, 0.75)]
    check = make_view(
        CheckView, name="call", version="1", reason="so", value=4.41025, evidence={"times": {"lines": lines}}
    )
    reply = make_view(ReplyView, cached_tokens=0)
    data = make_view(
        ResultDetailView, reply=reply, audio=make_view(AudioView), checks=(check,), output="Hi.", latency_seconds=20.0,
        input_tokens=1, output_tokens=1, cost_usd=0.0,
    )  # fmt: skip
    shown = results._render_measurement_tiles(data)
    assert re.findall(r"<dt>([^<]+)", shown)[:2] == ["Voice to voice, median", "Duration"]
    assert "<dd>750 ms<small>longest 4.41 s (n=3)</small>" in shown
    assert "First token" not in shown
    assert "value 4.41 s · version 1" in result_detail.render_check(check)
    assert "value 0.123457" in result_detail.render_check(replace(check, name="semantic_similarity", value=0.1234567))
    assert "First token" in results._render_measurement_tiles(replace(data, audio=None))
    other = replace(check, evidence={"times": {"lines": [{"voice_to_voice_s": "soon"}]}})
    assert "Voice to voice" not in results._render_measurement_tiles(replace(data, checks=(other,)))


def test_the_tile_of_first_tokens_says_what_p95_is_at_most() -> None:
    few = TimePercentiles(count=10, p50=0.2, p95=0.5, p99=0.6)
    shown = render_summary(make_summary(first_token=few))
    assert "<small>p95 500 ms, too few cases to bound p95 (n=10)</small>" in shown
    shown = render_summary(make_summary(first_token=replace(few, count=80, p95_at_most=0.7)))
    assert "<small>p95 500 ms, p95 at most 700 ms at 95 % confidence (n=80)</small>" in shown


def test_unfinished_runs_are_not_in_the_trend() -> None:
    def point(status: str, rate: float) -> RunPointView:
        times = LatencyView(count=4, median=20.0, p95=None, p95_at_most=None)
        return make_view(
            RunPointView, run="r", status=status, suite="mine", variant="text", cases_digest="sha256:1",
            setup_digest="0", pass_rate=rate, interval=(0.1, 1.0), latency_ms=times, created_at="2026-11-15T09:26:53Z",
        )  # fmt: skip

    def card(*points: RunPointView) -> str:
        return home._render_model_card(HistoryView(model="m", runs=points, days=()))

    unfinished = [point(each, 1.0) for each in ("stopped", "cancelled", "interrupted", "running")]
    shown = card(point("finished", 0.5), *unfinished)
    assert "Pass rate in the last runs, oldest first: 50.0 %" in shown
    assert '<strong class="number">50.0 %</strong>' in shown
    assert "mine</bdi>, one run" in shown
    none = card(*unfinished)
    assert "No run has finished yet." in none
    assert "%" not in none
    assert '<strong class="number">100 %</strong>' in card(point("finished", 1.0))


def test_a_judged_trend_and_list_say_how_far_the_judge_agrees_with_people() -> None:
    times = LatencyView(count=0, median=None, p95=None, p95_at_most=None)
    judged = make_view(
        RunPointView, run="r", status="finished", suite="mine", variant="text", cases_digest="sha256:1",
        setup_digest="0", pass_rate=0.5, interval=(0.1, 1.0), latency_ms=times, created_at="2026-11-15T09:26:53Z",
        calibration="judge agrees 92 %",
    )  # fmt: skip
    card = home._render_model_card(HistoryView(model="m", runs=(judged,), days=()))
    assert "95 % interval 10.0–100.0 %, judge agrees 92 %</span>" in card
    outcomes = OutcomesView(passed=1, failed=1, errored=0, unscored=0, skipped=0)
    run = make_view(
        RunView,
        id="r",
        models=("m",),
        outcomes=outcomes,
        pass_rate=0.5,
        interval=(0.1, 1.0),
        calibration="uncalibrated",
    )
    assert '<small class="quiet">uncalibrated</small>' in runs.render_pass_rates(run)
    assert "uncalibrated" not in runs.render_pass_rates(replace(run, calibration=None))


def test_the_judge_is_named_beside_the_rate() -> None:
    assert "Judged by &lt;b&gt;opus&lt;/b&gt;." in render_summary(make_summary(judged_by="Judged by <b>opus</b>."))


# ── Replies and scripts ──

LINES = ["One?", f"مرحبا {HOSTILE}", "Three."]


def make_script_result(
    lines: Sequence[str], reply: ReplyView | None = None, audio: AudioView | None = None
) -> ResultDetailView:
    """Return a result of a script whose first line has an expectation."""
    rule = ExpectedView(assertion=make_view(AssertionView, type="contains"), ideals=("a one",))
    script = [make_view(LineView, text=each) for each in lines]
    case = make_view(
        CaseView, turns=(TurnView(role="user", text=lines[0]),), expected_outcome="Counts.",
        script=(replace(script[0], expected=(rule,)), *script[1:]),
    )  # fmt: skip
    said = reply or make_view(ReplyView, text="1\n2", answers=("1", "2") if len(lines) > 1 else ())
    return make_view(ResultDetailView, case=case, reply=said, audio=audio)


def find_text_blocks(shown: str) -> list[tuple[str, str]]:
    return re.findall(r'aria-label="([^"]+)"[^>]*>(.*?)</(?:pre|div)>', shown, re.DOTALL)


def test_a_line_that_was_not_reached_has_no_answer() -> None:
    shown = result_detail.render_exchange(make_script_result(LINES))
    assert HOSTILE not in shown
    assert find_text_blocks(shown) == [
        ("Message of the user, line 1", "One?"),
        ("Reply to line 1", "1"),
        ("Expected at line 1", "a one"),
        ("Message of the user, line 2", "مرحبا &lt;script&gt;alert(1)&lt;/script&gt;"),
        ("Reply to line 2", "2"),
        ("Message of the user, line 3", "Three."),
        ("Expected", "Counts."),
    ]
    assert shown.count("No reply.") == 1


def test_the_agents_own_text_is_shown_even_if_inaudible() -> None:
    reply = make_view(ReplyView, text="1\nnot heard", answers=("1", "", ""))
    assert ("Full reply", "1\nnot heard") in find_text_blocks(
        result_detail.render_exchange(make_script_result(LINES, audio=make_view(AudioView), reply=reply))
    )
    assert "Full reply" not in result_detail.render_exchange(make_script_result(LINES, reply=reply))


def test_unsplit_answers_are_shown_below_all_lines() -> None:
    shown = result_detail.render_exchange(make_script_result(LINES, reply=make_view(ReplyView, text="1 2 3")))
    assert [name for name, _ in find_text_blocks(shown)] == [
        *["Message of the user"] * 3,
        "Reply",
        "Expected at line 1",
        "Expected",
    ]


def test_a_single_line_lists_both_its_own_and_the_overall_expectation() -> None:
    shown = find_text_blocks(result_detail.render_exchange(make_script_result(["One?"])))
    assert shown == [
        ("Message of the user", "One?"),
        ("Reply", "1\n2"),
        ("Expected, 1", "a one"),
        ("Expected, 2", "Counts."),
    ]


def test_the_prompt_is_shown_once_beside_both_replies() -> None:
    def render_request(*lines: str) -> str:
        return find_text_blocks(comparison_markup._render_prompt_and_expected(make_script_result(lines).case))[0][1]

    assert render_request("One?") == "One?"
    assert render_request("One?", "Two?") == "user: One?\n\nuser: Two?"
    turns = TurnView(role="system", text="Be."), TurnView(role="user", text="One?")
    typed = replace(make_script_result(["One?"]).case, script=(), turns=turns)
    assert find_text_blocks(comparison_markup._render_prompt_and_expected(typed))[0][1] == "system: Be.\n\nuser: One?"


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        0,
        None,
        "",
        {"a": [], "b": {}},
        [1, None, True, 1.5, 'a"\n字\\'],
        {"a": {"b": [1, {"c": HOSTILE}]}, "字": [[]]},
    ],
)
def test_data_is_formatted_as_json(data: Any) -> None:
    ((_, shown),) = find_text_blocks(render_json(data, "x"))
    expected = json.dumps(data, indent=2, ensure_ascii=False)
    assert shown.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">") == expected


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"text": "é" * 60_000_000}, id="one text"),
        pytest.param({"x" * 60_000_000: 1}, id="one name"),
        pytest.param([{"delta": "word " * 12}] * 1_000_000, id="many events"),
    ],
)
def test_of_60_mb_of_data_only_the_shown_part_is_formatted(data: Any) -> None:
    began = time.process_time()
    shown = render_json(data, "Raw response")
    assert time.process_time() - began < 0.05
    ((_, text),) = find_text_blocks(shown)
    assert text.endswith(" … and more")
    whole = text.replace("&quot;", '"').removesuffix(" … and more")
    assert len(whole) == MAX_TEXT_LENGTH
    assert whole.startswith(("{\n  ", "[\n  {\n"))


def test_data_is_truncated_only_where_that_saves_space() -> None:
    quotes = len('""')
    for length, cut in (
        (MAX_TEXT_LENGTH + MIN_CHARACTERS_WORTH_CUTTING - quotes - 1, False),
        (MAX_TEXT_LENGTH + MIN_CHARACTERS_WORTH_CUTTING - quotes, True),
    ):
        assert ("… and more" in render_json("x" * length, "x")) == cut


def test_reading_uploads_does_not_block_the_event_loop() -> None:
    class Uploading(suites._UploadForm):
        def _show_selection(self, line_counts: Mapping[str, int], failures: Sequence[tuple[str, str]] = ()) -> None:
            self.listed = dict(line_counts), list(failures)

    lines = "é" * 99 + "\r\n \t\n\n" + "\u2028x"
    files = [PickedFile("a/smoke.jsonl", lines.encode() * 100_000), PickedFile("b.jsonl", b"{}\n\xc3")]

    async def count_loop_turns() -> int:
        reading, turns = asyncio.ensure_future(uploading._on_files_picked(FileSelection(files, ["c.txt"], []))), 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    uploading = Uploading(cast("Any", None))
    with ThreadPoolExecutor(1) as thread:  # Playwright may have an event loop in this thread
        assert thread.submit(lambda: asyncio.run(count_loop_turns())).result() > 10
    assert uploading.listed == (
        {"smoke": 100_001},
        [("c.txt", "not a .jsonl file"), ("b.jsonl", "not UTF-8 text")],
    )
    assert uploading._tiers == {"smoke": files[0].data}
