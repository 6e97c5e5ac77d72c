"""Pictures of numbers: what is drawn stands where it should, says itself in words, and runs nothing of others."""

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from urllib.parse import parse_qs

import pytest

from pramana.analyse.spread import Histogram, histogram
from pramana.show.web import contrast, home, pictures, result, run, run_summary, suites, waveform
from pramana.show.web.files import Pick, Picked
from pramana.show.web.markup import LEAST_CUT, LONGEST
from pramana.show.web.pictures import Mark, along, distribution, position, rates, short, ticks
from pramana.show.web.run_results import again, pretty
from pramana.show.web.run_summary import voice_of

HOSTILE = "<script>alert(1)</script>"


def bins(*times: float) -> list[dict[str, Any]]:
    counted = Histogram()
    for each in times:
        counted.add(each)
    return [each.as_data() for each in histogram([counted])]


def test_bars_are_as_high_as_their_counts_and_stand_in_order() -> None:
    some = [
        {"from": 0.1, "to": 0.2, "count": 4},
        {"from": 0.2, "to": 0.5, "count": 0},
        {"from": 0.5, "to": 1, "count": 1},
    ]
    drawn = pictures.histogram(some, [Mark("p50", 0.2)], "Times & more")
    found = re.findall(r'x="([\d.]+)" width="([\d.]+)" y="([\d.]+)" height="([\d.]+)"', drawn)
    assert [tuple(map(float, each)) for each in found] == [(0, 333.33, 0, 100), (666.67, 333.33, 75, 25)]
    assert "<title>100 ms to 200 ms: 4</title>" in drawn
    assert 'aria-label="Times &amp; more"' in drawn
    assert "M333.33 0V100" in drawn
    assert "p50 200 ms" in drawn


def test_one_among_thousands_is_seen() -> None:
    some = [{"from": 0.1, "to": 0.2, "count": 100_000}, {"from": 0.2, "to": 0.5, "count": 1}]
    heights = re.findall(r'height="([\d.]+)"', pictures.histogram(some, [], "x"))
    assert [float(each) for each in heights] == [100, 1.5]


@pytest.mark.parametrize("times", [(0.1, 0.2), (0.0, 0.5), (0.9, 0.95, 0.9), (0.0001, 4000.0), (1.0,) * 50])
def test_few_ticks_stand_at_bounds_of_bins(times: tuple[float, ...]) -> None:
    some = bins(*times)
    found = ticks(some)
    assert 2 <= len(found) <= pictures.MOST_TICKS
    assert set(found) <= {*(each["from"] for each in some), some[-1]["to"]}
    places = [position(some, each) for each in found]
    assert places == sorted(places)
    assert 0 <= min(places) <= max(places) <= 1


def test_a_time_stands_within_its_bin() -> None:
    some = bins(0.0005, 0.01, 0.5, 20.0)
    for seconds in (0.0005, 0.0123, 0.4, 19.0):
        place = position(some, seconds) * len(some)
        assert some[int(place)]["from"] <= seconds < some[int(place)]["to"]
    assert position(some, 0.0) == 0.0
    assert position(some, 1e9) == 1.0


def test_a_distribution_says_itself_and_one_time_is_no_picture() -> None:
    spread = {"count": 3, "median": 0.2, "p95": 0.5, "min": 0.1, "max": 0.52}
    drawn = distribution(f"Latency, {HOSTILE}", "answers", bins(0.1, 0.2, 0.52), spread)
    assert HOSTILE not in drawn
    assert "3 answers · fastest 100 ms, slowest 520 ms. p50 200 ms; p95 500 ms; most, 1, took" in drawn
    one = distribution("Latency", "answers", bins(0.2), {"count": 1, "median": 0.2, "p95": 0.2, "min": 0.2, "max": 0.2})
    assert "<svg" not in one
    assert "200 ms, the only one that was timed" in one
    assert "nothing was timed" in distribution("Latency", "answers", [], {"count": 0})
    assert drawn.count("time axis logarithmic, highest bar 1") == 2  # to be seen, and to be heard
    assert "6 lines have no time" in distribution("Voice to voice", "lines", [], {"count": 0}, "6 lines have no time")


def test_rates_have_bars_intervals_and_what_they_are_of() -> None:
    rate = {
        "passed": 3,
        "failed": 1,
        "errored": 2,
        "unscored": 0,
        "skipped": 1,
        "passRate": 0.75,
        "interval": [0.3, 0.95],
    }
    nothing = {**rate, "passed": 0, "failed": 0, "passRate": None, "interval": None}
    drawn = rates("Category", {HOSTILE: rate, "empty": nothing})
    assert HOSTILE not in drawn
    for words in ("75.0 %", "30.0–95.0 %", "3 of 4", "3 without a verdict", "no verdict", "Pass rate by category"):
        assert words in drawn
    assert 'class="fill" width="75.00"' in drawn
    many = rates("Tag", {f"tag {number}": rate for number in range(100)})
    assert many.count("<th scope=") - 4 == many.count('scope="row"') == pictures.SHOWN_ROWS
    assert "and 88 more" in many


def test_an_axis_has_round_times_that_fit() -> None:
    for seconds in (0.4, 3.2, 9.7, 59.9, 61.0, 70.5, 75.0, 299.0, 7_000.0):
        words = re.findall(r">([^<]+)</span>", along(seconds))
        assert 1 <= len(words) <= (6 if seconds < 60 else 5)
        assert words[0] == "0 s"
    assert "1:00 min" in along(61.0)
    assert along(0.0).count("<span") == 1
    assert short(0.00106) == "1.06 ms"


# ── Calls ──

CALL: dict[str, Any] = {
    "durationSeconds": 4.0,
    "conversation": [
        {"who": "caller", "text": HOSTILE, "atSeconds": 0.5, "note": ""},
        {"who": "heard as", "text": "script", "atSeconds": 0.5, "note": ""},
        {"who": "agent", "text": "שלום", "atSeconds": 2.25, "note": "voice to voice 902 ms"},
        {"who": "agent", "text": "", "atSeconds": None, "note": ""},
    ],
    "turns": [
        {"who": "caller", "startSeconds": 0.5, "endSeconds": 1.5},
        {"who": "agent", "startSeconds": 2.25, "endSeconds": None},
    ],
    "peaks": {"caller": [0.0, 0.5, 0.0, 0.0], "agent": [0.0, 0.0, 0.25, 0.25]},
    "recording": "/audio/sha256:a",
    "log": "/audio/sha256:b",
}


def test_both_sides_stand_on_one_scale_the_caller_above() -> None:
    drawn = waveform.drawn(CALL)
    caller, agent = re.findall(r'class="side \w+" d="M([^"]+)Z"', drawn)
    tops = [[float(point.split()[1]) for point in side.split("L")[:4]] for side in (caller, agent)]
    assert tops[0] == [24.7, 2.5, 24.7, 24.7]
    assert tops[1] == [74.7, 74.7, 63.8, 63.8]  # half as loud, half as high
    assert 'class="turn" x="0.50" width="1.00" y="0" height="50"' in drawn
    assert 'class="turn" x="2.25" width="0.00" y="50" height="50"' in drawn


def test_a_call_of_silence_or_of_nothing_can_be_drawn() -> None:
    silent = {**CALL, "peaks": {"caller": [0.0] * 4, "agent": [0.001] * 4}}
    assert "side caller" in waveform.drawn(silent)
    assert "side agent" in waveform.drawn({**silent, "durationSeconds": 0.0})


def test_what_was_spoken_has_a_button_and_what_was_heard_has_none() -> None:
    told = waveform.said(CALL["conversation"])
    assert re.findall(r'data-seek="([\d.]+)"', told) == ["0.500", "2.250"]
    assert 'aria-label="Hear the agent from 2.25 s"' in told
    assert HOSTILE not in told
    assert "(nothing)" in told


def test_what_the_api_says_of_calls_is_told_in_the_same_words() -> None:
    from pramana.analyse.calls import Pooled, Spoken, Voice
    from pramana.analyse.voice import Line, Tax, turn_taking
    from pramana.show.api.envelope import camel
    from pramana.show.api.run_shapes import seconds
    from pramana.show.figures import voice

    lines = [
        Line(voice_to_voice_s=0.9, first_audible_s=1.0, leading_silence_s=0.1, yield_s=0.2, longest_gap_s=0.3)
    ] * 12
    spoken = Spoken("m", "voice", 12, turn_taking(lines), Pooled(3, 50, 0.06), Pooled(1, 9), 150.0, 2.5, 2)
    tax = Tax("m", "voice", 10, 7, 1, 1, (), 0, 0.8, 0.7, -0.1, (-0.3, 0.1), 0.4)
    made = Voice((spoken,), (tax,))
    assert voice_of(seconds(camel(made.as_data()))) == made
    assert len(list(voice(made))) == 2


PLAN = {"parameters": {"temperature": None, "seed": 42, "max_tokens": 9}, "systemPrompt": "Be brief.", "judge": None,
        "embedder": None, "stt": {"typed": "whisper"}, "voice": "espeak"}  # fmt: skip
RUN = {"suite": "team-1-smoke", "suiteHash": "sha256:1", "selection": {}, "models": ["a", "b"], "variants": ["text"],
       "repeats": 1, "limits": {"maxCost": 5, "concurrency": 32, "timeoutSeconds": 120.0}, "plan": PLAN,
       "owner": "server"}  # fmt: skip
SUITES = [
    {"version": "team-1", "tiers": {"smoke": {"hash": "sha256:1"}}},
    {"version": "v1.0", "tiers": {"cheap": {"hash": "sha256:2"}}},
]
KEPT = {"suite": "scenarios (selection)", "suiteHash": None}
OF_TIER = {"owner": "cli", "suite": "v1.0-cheap (selection)", "suiteHash": None}


@pytest.mark.parametrize(
    ("changed", "there"),
    [
        ({}, {}),
        ({"owner": "cli", "limits": {"maxCost": 5}}, {}),
        ({"suite": "scenarios", "suiteHash": None}, {"scenario": ["all"]}),
        ({**KEPT, "selection": {"type": ["x"], "ids": ["p", "q"]}}, {"scenario": ["p", "q"], "type": ["x"]}),
        ({**KEPT, "selection": {"ids": [f"s{number}" for number in range(50)]}},
         {"scenario": [f"s{number}" for number in range(50)]}),
        ({"suite": "v1.0-cheap+scenarios (selection)", "suiteHash": None, "selection": {"tag": ["t"]}},
         {"suite": ["v1.0"], "tier": ["cheap"], "tag": ["t"]}),
        ({"suite": "v1.0-cheap+scenarios", "suiteHash": None},
         {"suite": ["v1.0"], "tier": ["cheap"], "scenario": ["all"]}),
        ({"repeats": 3, "variants": ["text", "voice"]}, {"repeats": ["3"], "modality": ["text", "voice"]}),
        ({"variants": ["voice", "voice+noise=10dB"]}, {"modality": ["voice", "noisy"]}),
        ({"variants": ["text", "voice+phone"]}, {"modality": ["text", "voice"], "condition": ["phone"]}),
        ({"plan": {**PLAN, "parameters": {"temperature": 0.0, "seed": 1234567, "max_tokens": 9}}},
         {"seed": ["1234567"]}),
        ({"limits": {"maxCost": 5, "concurrency": 2}}, {"concurrency": ["2"]}),
    ],
)  # fmt: skip
def test_a_run_once_more_is_asked_as_it_was(changed: dict[str, Any], there: dict[str, list[str]]) -> None:
    path, _, query = (again({**RUN, **changed}, SUITES) or "").partition("?")
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
        pytest.param({"owner": "cli", "suite": "mine", "suiteHash": None}, id="a file"),
        pytest.param({"owner": "cli", "suite": "my-cases", "suiteHash": "sha256:9"}, id="a file of a suite"),
        pytest.param({"owner": "cli", "suiteHash": "sha256:9"}, id="a file that is called as a tier"),
        pytest.param({"owner": "cli", "suite": "scenarios", "suiteHash": None}, id="a file that is called scenarios"),
        pytest.param({"suite": "gone-smoke"}, id="a suite that was removed"),
        pytest.param({**OF_TIER, "selection": {"limit": 5}}, id="a limit"),
        pytest.param({**OF_TIER, "selection": {"ids": ["factual-001"]}}, id="ids of a tier"),
        pytest.param({**OF_TIER, "selection": {"tag": ["t"]}}, id="a tag of a tier"),
        pytest.param({**KEPT, "selection": {"ids": ["x"], "limit": 5}}, id="a limit of scenarios"),
        pytest.param({**KEPT, "selection": {"ids": [f"s{number}" for number in range(51)]}}, id="51 scenarios"),
        pytest.param({**KEPT, "selection": {"ids": ["שלום" * 100] * 50}}, id="an address too long"),
        pytest.param({"variants": ["voice", "voice+phone"]}, id="two conditions"),
        pytest.param({"variants": ["voice"], "plan": {**PLAN, "voice": "piper"}}, id="another caller"),
        pytest.param({"plan": {**PLAN, "parameters": {"top_p": 0.5}}}, id="another parameter"),
        pytest.param({"plan": {**PLAN, "systemPrompt": "x" * 1_501}}, id="a long system prompt"),
        pytest.param({"limits": {"timeoutSeconds": 5}}, id="another patience"),
    ],
)
def test_a_run_that_no_address_can_say_is_not_offered_once_more(changed: dict[str, Any]) -> None:
    assert again({**RUN, **changed}, SUITES) is None


def test_models_whose_times_are_left_out_are_counted() -> None:
    spread = {"count": 2, "median": 0.2, "p95": 0.5, "min": 0.1, "max": 0.52}
    drawn = bins(0.1, 0.52)

    def times(count: int) -> str:
        names = [f"m{number}" for number in range(count)]
        latency = {"overall": spread, "byModel": dict.fromkeys(names, spread), "histogram": drawn,
                   "histogramByModel": dict.fromkeys(names, drawn)}  # fmt: skip
        return run_summary._times({"latencySeconds": latency, "voiceToVoiceSeconds": None}, {}) or ""

    assert "and 3 more models; the exports have their times" in times(9)
    assert "and 1 more model; the exports have their times" in times(7)
    assert "more model" not in times(6)


# ── What a run amounts to ──

TIMES = {"count": 0, "p50": None, "p95": None}
COUNTED: dict[str, Any] = {"total": 4, "passed": 3, "failed": 1, "errored": 0, "unscored": 0, "skipped": 0,
                           "passRate": 0.75, "interval": [0.3, 0.95]}  # fmt: skip
NONE: dict[str, Any] = {**COUNTED, "total": 0, "passed": 0, "failed": 0, "passRate": None, "interval": None}


def summed(**changed: Any) -> dict[str, Any]:
    total = {"known": 0, "unknown": 0}
    usual: dict[str, Any] = {
        "overall": COUNTED,
        "by": {"model": {}},
        "mixedJudges": [],
        "judgedBy": None,
        "notReproducible": [],
        "reasons": [],
        "cached": 0,
        "costUsd": total,
        "judgeCostUsd": total,
        "judgeTokens": total,
        "judgedAgain": 0,
        "engines": [],
        "firstTokenSeconds": TIMES,
        "tokens": {"input": total, "output": total},
    }
    return {**usual, **changed}


def told(summary: dict[str, Any], **changed: Any) -> str:
    usual = {"id": "r1", "status": "finished", "models": ["m"], "variants": ["text"], "repeats": 1, "expected": 4,
             "stored": 4, "reason": None, "aggregates": None, "plan": {"stt": None}}  # fmt: skip
    return run_summary.amounts({**usual, **changed, "summary": summary}, "/runs/r1")


def test_repeats_are_answers_and_the_interval_is_of_cases() -> None:
    assert "passed, of 4 with a verdict. With 95 % confidence the true rate is 30.0–95.0 %.<" in told(summed())
    twice = told(summed(), repeats=2, expected=160)
    assert "passed, of 4 with a verdict. With 95 % confidence the true rate is 30.0–95.0 %.<" in twice
    assert "80 cases, 2 repeats: the intervals count cases, not answers.<" in twice
    both = told(summed(), variants=["text", "voice"], expected=160, models=["m", "n"])
    assert "40 cases, 2 models, 2 variants: the intervals count cases, not answers.<" in both


def test_a_run_that_never_began_is_not_called_undecided() -> None:
    for models in (["m"], ["m", "n"]):
        ended = told(summed(overall=NONE), models=models, status="stopped")
        assert "No results" in ended
        assert "The run ended before anything was asked and answered." in ended
        assert "No verdict" not in ended
    assert "Nothing has a verdict yet." in told(summed(overall=NONE), status="running")
    errors = {**NONE, "total": 4, "errored": 4}
    assert "None of the results could be decided." in told(summed(overall=errors))


def test_cases_without_a_verdict_that_are_not_named_are_counted_and_can_be_judged() -> None:
    cases = [f"case-{number}" for number in range(10)]
    unscored = {**NONE, "total": 12, "unscored": 12}

    def undecided(count: int, named: int = 10, **changed: Any) -> str:
        reason = {"outcome": "unscored", "reason": "no judge", "count": count, "cases": cases[:named]}
        return told(summed(overall=unscored, reasons=[reason]), **{"expected": 50, **changed})

    assert "case-9</bdi> and 2 more<" in undecided(12)
    assert "case-9</bdi><" in undecided(10)
    assert "case-2</bdi><" in undecided(12, 3)
    assert "case-9</bdi>, …<" in undecided(24, repeats=2)
    assert "case-9</bdi><" in undecided(20, repeats=2, expected=20), "there are but ten cases"
    assert "pramana rescore r1 --judge MODEL" in undecided(12)
    assert "pramana rescore" not in undecided(12, status="running")
    assert "pramana rescore" not in told(summed())


def test_what_is_not_reproducible_is_said_once_and_quietly() -> None:
    reason = "not reproducible: flaky does not take seed, temperature"
    noted = [f"flaky would not take {each}: asked without it 4 times" for each in ("seed", "temperature")]
    ran = {"status": "finished", "reason": reason, "stored": 4, "expected": 4}
    head = run._reason(ran) or ""
    assert "Not reproducible: " in head
    assert "flaky does not take seed, temperature" in head
    assert "warn" not in head
    assert "eproducible" not in told(summed(notReproducible=noted), reason=reason)
    live = told(summed(notReproducible=noted), status="running")
    assert live.count("Not reproducible") == 1
    assert "warn" not in live
    stopped = run._reason({**ran, "status": "stopped", "reason": f"no money; {reason}", "stored": 2}) or ""
    assert re.search(
        r'no money</bdi>\. 2 of 4 results are here\. Resume[^<]+</p><p class="quiet small">Not rep', stopped
    )
    assert run._reason({**ran, "reason": None}) is None


def test_models_stand_in_the_order_of_the_plan() -> None:
    drawn = bins(0.1, 0.52)
    spread = {"count": 2, "median": 0.2, "p95": 0.5, "min": 0.1, "max": 0.52}
    both = {"a": spread, "b": spread}
    latency = {"overall": spread, "byModel": both, "histogram": drawn, "histogramByModel": {"a": drawn, "b": drawn}}
    shown = told(
        summed(by={"model": {"a": COUNTED, "b": COUNTED}}),
        models=["b", "a"],
        aggregates={"latencySeconds": latency, "voiceToVoiceSeconds": None},
    )
    assert re.findall(r'<th scope="row"><bdi dir="auto">(\w)', shown) == ["b", "a"]
    assert re.findall(r"<b>Latency, (\w)</b>", shown) == ["b", "a"]


def test_calls_say_how_long_one_waits_with_each_model_and_who_did_not_answer() -> None:
    from pramana.analyse.calls import Pooled, Spoken, Voice
    from pramana.analyse.voice import Line, turn_taking
    from pramana.show.api.envelope import camel
    from pramana.show.api.run_shapes import seconds

    answered = [Line(voice_to_voice_s=each, first_audible_s=1.0) for each in (0.5, 0.9, 1.3)]
    silent = [Line(censored=True, waited_s=15.0)] * 6

    def voice(**lines: list[Line]) -> Any:
        by = (
            Spoken(name, "voice", 3, turn_taking(some), Pooled(), Pooled(), None, None) for name, some in lines.items()
        )
        return seconds(camel(Voice(tuple(by), ()).as_data()))

    one = told(summed(voice=voice(m=answered)))
    assert "<dt>Voice to voice, median</dt><dd>900 ms<small>p95 1.26 s (n=3)</small>" in one
    assert one.index("<dt>Cost") < one.index("<dt>Voice to voice") < one.index("<dt>Tokens in")
    assert "<dt>Voice to voice" not in told(summed())
    spread = {"count": 3, "median": 0.9, "p95": 1.26, "min": 0.5, "max": 1.3}
    drawn = bins(0.5, 0.9, 1.3)
    waits = {"overall": spread, "byModel": {"a": spread, "b": {"count": 0}}, "histogram": drawn,
             "histogramByModel": {"a": drawn, "b": []}}  # fmt: skip
    two = told(
        summed(voice=voice(a=answered, b=silent)),
        models=["b", "a"],
        aggregates={"latencySeconds": None, "voiceToVoiceSeconds": waits},
    )
    assert re.findall(r"median, <bdi[^>]+>(\w)</bdi></dt><dd>([^<]+)<", two) == [("b", "&gt; 15.0 s"), ("a", "900 ms")]
    b, a = two.split("<figure")[1:]
    assert "nothing was timed" in b
    assert "6 lines that nobody answered have no time" in b
    assert "nobody answered" not in a


def test_a_call_has_its_wait_first_and_no_first_token() -> None:
    lines = [{"voice_to_voice_s": each, "first_audible_s": 1.0} for each in (4.41025, 0.5, 0.75)]
    check = {"name": "call", "version": "1", "outcome": "passed", "reason": "so", "value": 4.41025,
             "evidence": {"times": {"lines": lines}}}  # fmt: skip
    data: dict[str, Any] = {
        "reply": {"cachedTokens": 0}, "audio": {"recording": "x"}, "checks": [check], "cached": False, "output": "Hi.",
        "latencySeconds": 20.0, "firstTokenSeconds": None, "inputTokens": 1, "outputTokens": 1, "costUsd": 0,
    }  # fmt: skip
    shown = result._numbers(data)
    assert re.findall(r"<dt>([^<]+)", shown)[:2] == ["Voice to voice, median", "Took"]
    assert "<dd>750 ms<small>longest 4.41 s (n=3)</small>" in shown
    assert "First token" not in shown
    assert "value 4.41 s · version 1" in result._check(check)
    assert "value 0.123457" in result._check({**check, "name": "semantic_similarity", "value": 0.1234567})
    assert "First token" in result._numbers({**data, "audio": None})
    other = {**check, "evidence": {"times": {"lines": [{"voice_to_voice_s": "soon"}]}}}
    assert "Voice to voice" not in result._numbers({**data, "checks": [other]})


def test_runs_that_did_not_finish_are_no_part_of_a_trend() -> None:
    def point(status: str, rate: float) -> dict[str, Any]:
        return {"run": "r", "status": status, "suite": "mine", "variant": "text", "casesDigest": "sha256:1", "setupDigest": "0",
                "passRate": rate, "interval": [0.1, 1.0], "latencyMs": {"count": 4, "median": 20.0}}  # fmt: skip

    unfinished = [point(each, 1.0) for each in ("stopped", "cancelled", "interrupted", "running")]
    shown = home._card({"model": "m", "runs": [point("finished", 0.5), *unfinished]})
    assert "Pass rate in the last runs, oldest first: 50.0 %" in shown
    assert '<strong class="number">50.0 %</strong>' in shown
    assert "mine</bdi>, one run" in shown
    none = home._card({"model": "m", "runs": unfinished})
    assert "No run has finished yet." in none
    assert "%" not in none
    assert '<strong class="number">100 %</strong>' in home._card({"model": "m", "runs": [point("finished", 1.0)]})


def test_whoever_judged_is_named_beside_the_rate() -> None:
    assert "Judged by &lt;b&gt;opus&lt;/b&gt;." in told(summed(judgedBy="Judged by <b>opus</b>."))


# ── What was said ──

LINES = ["One?", f"مرحبا {HOSTILE}", "Three."]


def spoken(lines: Sequence[str], **changed: Any) -> dict[str, Any]:
    """Return a result of a script, in which the first line expects something."""
    rule = {"type": "contains", "schema": None, "judgePrompt": None}
    script: list[dict[str, Any]] = [{"text": each, "expected": []} for each in lines]
    script[0] = {"text": lines[0], "expected": [{"assertion": rule, "ideals": ["a one"]}]}
    case = {"turns": [{"role": "user", "text": lines[0]}], "script": script, "assertion": None, "ideals": [],
            "expectedOutcome": "Counts."}  # fmt: skip
    usual = {"case": case, "systemPrompt": None, "audio": None,
             "reply": {"text": "1\n2", "answers": ["1", "2"] if len(lines) > 1 else []}}  # fmt: skip
    return {**usual, **changed}


def blocks(shown: str) -> list[tuple[str, str]]:
    return re.findall(r'aria-label="([^"]+)"[^>]*>(.*?)</pre>', shown, re.DOTALL)


def test_a_line_that_was_not_reached_has_no_answer() -> None:
    shown = result._written(spoken(LINES))
    assert HOSTILE not in shown
    assert blocks(shown) == [
        ("Said by the user, line 1", "One?"),
        ("Answer to line 1", "1"),
        ("Expected at line 1", "a one"),
        ("Said by the user, line 2", "مرحبا &lt;script&gt;alert(1)&lt;/script&gt;"),
        ("Answer to line 2", "2"),
        ("Said by the user, line 3", "Three."),
        ("Expected", "Counts."),
    ]
    assert shown.count("There is no answer.") == 1


def test_what_an_agent_says_it_said_is_shown_although_nobody_heard_it() -> None:
    reply = {"text": "1\nnot heard", "answers": ["1", "", ""]}
    assert ("All that was answered", "1\nnot heard") in blocks(
        result._written(spoken(LINES, audio={"recording": "x"}, reply=reply))
    )
    assert "All that was answered" not in result._written(spoken(LINES, reply=reply))


def test_answers_that_are_not_told_apart_stand_below_all_lines() -> None:
    shown = result._written(spoken(LINES, reply={"text": "1 2 3", "answers": []}))
    assert [name for name, _ in blocks(shown)] == [
        *["Said by the user"] * 3,
        "Answer",
        "Expected at line 1",
        "Expected",
    ]


def test_of_a_single_line_that_expects_something_the_rest_is_expected_too() -> None:
    shown = blocks(result._written(spoken(["One?"])))
    assert shown == [
        ("Said by the user", "One?"),
        ("Answer", "1\n2"),
        ("Expected, 1", "a one"),
        ("Expected, 2", "Counts."),
    ]


def test_what_was_asked_is_said_once_beside_both_replies() -> None:
    def asked(*lines: str) -> str:
        return blocks(contrast._asked(spoken(lines)["case"]))[0][1]

    assert asked("One?") == "One?"
    assert asked("One?", "Two?") == "user: One?\n\nuser: Two?"
    typed = {
        **spoken(["One?"])["case"],
        "script": [],
        "turns": [{"role": "system", "text": "Be."}, {"role": "user", "text": "One?"}],
    }
    assert blocks(contrast._asked(typed))[0][1] == "system: Be.\n\nuser: One?"


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
def test_data_is_written_as_json_is(data: Any) -> None:
    ((_, shown),) = blocks(pretty(data, "x"))
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
def test_of_sixty_megabytes_no_more_is_written_than_is_shown(data: Any) -> None:
    began = time.process_time()
    shown = pretty(data, "Raw response")
    assert time.process_time() - began < 0.05
    ((_, text),) = blocks(shown)
    assert text.endswith(" … and more")
    whole = text.replace("&quot;", '"').removesuffix(" … and more")
    assert len(whole) == LONGEST
    assert whole.startswith(("{\n  ", "[\n  {\n"))


def test_data_is_cut_only_where_that_saves_something() -> None:
    quotes = len('""')
    for length, cut in ((LONGEST + LEAST_CUT - quotes - 1, False), (LONGEST + LEAST_CUT - quotes, True)):
        assert ("… and more" in pretty("x" * length, "x")) == cut


def test_what_is_uploaded_is_read_while_others_are_served() -> None:
    class Uploading(suites._Uploading):
        def _list(self, counts: Mapping[str, int], failed: Sequence[tuple[str, str]] = ()) -> None:
            self.told = dict(counts), list(failed)

    lines = "é" * 99 + "\r\n \t\n\n" + "\u2028x"
    files = [Picked("a/smoke.jsonl", lines.encode() * 100_000), Picked("b.jsonl", b"{}\n\xc3")]

    async def turns_of_others() -> int:
        reading, turns = asyncio.ensure_future(uploading._picked(Pick(files, ["c.txt"], []))), 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    uploading = Uploading(cast("Any", None))
    with ThreadPoolExecutor(1) as thread:  # Playwright may have a loop in this one
        assert thread.submit(lambda: asyncio.run(turns_of_others())).result() > 10
    assert uploading.told == (
        {"smoke": 100_001},
        [("c.txt", "it is no .jsonl file"), ("b.jsonl", "it is no text in UTF-8")],
    )
    assert uploading._tiers == {"smoke": files[0].data}
