"""A call as a readable transcript: who said what and when, from the call log and the measured times."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from pramana.app.calls import make_transcript
from pramana.errors import StoreFailed
from pramana.model import (
    Case,
    Check,
    Facets,
    Failure,
    Line,
    Outcome,
    Plan,
    RecordedCall,
    Reply,
    Result,
    ResultKey,
    Run,
    Target,
    ToolCall,
    Turn,
)
from pramana.report.conversation import print_conversation, result_to_data
from pramana.report.terminal import count_columns

EVENTS: list[dict[str, Any]] = [
    {"t": 0.0, "event": "call", "version": 2},
    {"t": 2.0, "event": "line", "line": 0, "text": "When do you open?", "start": 0.2, "end": 1.9, "barge_in": False},
    {"t": 2.2, "event": "user_text", "text": "When do you hope and?", "final": True},
    {"t": 2.8, "event": "agent_text", "text": "We open at nine, and then we close at six.", "final": True},
    {"t": 4.0, "event": "line", "line": 1, "text": "mhm", "start": 3.5, "end": 3.9, "barge_in": True,
     "backchannel": True},
    {"t": 6.0, "event": "line", "line": 2, "text": "Wait.", "start": 5.0, "end": 5.8, "barge_in": True},
    {"t": 25.0, "event": "end", "reason": "no_answer"},
]  # fmt: skip
LINES: list[dict[str, Any]] = [
    {"voice_to_voice_s": 0.902, "first_audible_s": 2.802},
    {"false_interruption": True},
    {"yield_s": 0.11, "censored": True, "waited_s": 15.0},
]


def make_call(events: list[dict[str, Any]] = EVENTS) -> tuple[Case, Result, Any]:
    log = b"\n".join(json.dumps(each).encode() for each in events)
    evidence = {"times": {"lines": LINES}}
    reply = Reply("We open", answers=("We open", "", ""), call=RecordedCall("sha256:wav", "sha256:log"))
    checks = (
        Check("contains", "1", Outcome.FAILED, 'contains none of "ten" ' * 8),
        Check("call", "1", Outcome.ERRORED, "no answer to line 3", None, evidence),
    )
    result = Result(ResultKey("sha256:1", "m" * 200, "voice+noise=10dB", 1), "hours", reply, None, checks, None, None)
    return Case("hours", "scenario", (Turn("user", "When do you open?"),), Facets("x", "easy")), result, lambda _: log


def make_run() -> Run:
    plan = Plan("mine", None, (Target("m", "fake", "m"),), 2, variants=("voice+noise=10dB",), voice="piper")
    return Run("r1", plan, "finished", "2026-01-02T03:04:05Z", 1, 1)


def test_a_transcript_follows_the_order_in_which_lines_were_heard() -> None:
    assert [(each.at_s, each.who, each.text, each.note) for each in make_transcript(*make_call())] == [
        (0.2, "caller", "When do you open?", ""),
        (0.2, "heard as", "When do you hope and?", ""),
        (2.802, "agent", "We open at nine, and then we close at six.", "voice to voice 902 ms"),
        (2.802, "our ear", "We open", ""),
        (3.5, "caller", "mhm", "during the answer: the agent stopped, though it should not"),
        (5.0, "caller", "Wait.", "during the answer: the agent stopped after 110 ms"),
        (5.8, "agent", "(nothing)", "no answer in 15.0 s"),
    ]


def test_an_answer_transcribed_only_by_our_speech_recognition_is_marked() -> None:
    silent = [each for each in EVENTS if each["event"] != "agent_text"]
    agent = next(each for each in make_transcript(*make_call(silent)) if each.who == "agent")
    assert (agent.text, agent.note) == ("We open", "voice to voice 902 ms; as the speech recognition heard it")


def test_a_call_prints_within_80_columns_with_its_checks_and_the_audio_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_conversation(make_run(), *make_call())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(count_columns, lines)) <= 80
    assert lines[1].startswith("hours · mmm")
    assert lines[1].endswith(f"…{16 * 'm'} · voice+noise=10dB · repeat 2 · failed")
    assert lines[2] == "     0.20 s caller   When do you open?"
    assert any(line.startswith('  failed contains: contains none of "ten"') for line in lines)
    assert "  errored call: no answer to line 3" in lines
    assert lines[-1] == "  Hear it: pramana export r1 --id hours --audio DIR"


def test_the_system_prompt_of_the_run_is_printed_first(capsys: pytest.CaptureFixture[str]) -> None:
    case, result, blob = make_call()
    typed = replace(result, reply=Reply("At nine.\nNo, at ten.", total_s=0.5))
    run = replace(make_run(), plan=replace(make_run().plan, system_prompt="Be brief.\n\nBe kind.\n"))
    print_conversation(run, case, typed, blob)
    assert capsys.readouterr().out.splitlines()[2:8] == [
        "            system   Be brief.",
        "",
        "                     Be kind.",
        "            user     When do you open?",
        "            answer   At nine.",
        "                     No, at ten. (after 500 ms)",
    ]
    said = [(each["who"], each["text"]) for each in result_to_data(run, case, typed, blob)["conversation"]]
    assert said[:2] == [("system", "Be brief.\n\nBe kind.\n"), ("user", "When do you open?")]
    (first, *_) = result_to_data(run, case, result, blob)["conversation"]  # of a call, too
    assert first["who"] == "system"
    (first, *_) = result_to_data(make_run(), case, result, blob)["conversation"]
    assert first["who"] == "caller"


def test_tool_calls_are_listed_below_an_answer_with_or_without_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    case, result, blob = make_call()
    calls = (ToolCall("get_weather", '{"city": "Paris"}', "call_1"), ToolCall("get_time"))
    for text, shown in (("", "(no text)"), ("Let me look.", "Let me look.")):
        silent = replace(result, reply=Reply(text, total_s=0.5, tool_calls=calls))
        print_conversation(make_run(), case, silent, blob)
        assert capsys.readouterr().out.splitlines()[3:6] == [
            f"            answer   {shown} (after 500 ms)",
            '            called   get_weather({"city": "Paris"})',
            "            called   get_time({})",
        ]
    assert result_to_data(make_run(), case, silent, blob)["tool_calls"] == [
        {"id": "call_1", "name": "get_weather", "arguments": '{"city": "Paris"}'},
        {"id": None, "name": "get_time", "arguments": "{}"},
    ]


def test_rubric_scores_are_listed_below_their_check(capsys: pytest.CaptureFixture[str]) -> None:
    case, result, blob = make_call()
    scores = {"accuracy": 9, "helpfulness": 8, "naturalness": 7, "efficiency": 6}
    check = Check("rubric", "1", Outcome.PASSED, "j holds it for completed", evidence={"scores": scores})
    rated = replace(result, reply=Reply("At nine."), checks=(check,))
    print_conversation(make_run(), case, rated, blob)
    shown = "    rubric scores: accuracy 9, helpfulness 8, naturalness 7, efficiency 6 (of"
    assert shown in capsys.readouterr().out.splitlines()
    (said,) = result_to_data(make_run(), case, rated, blob)["checks"]
    assert said["rubric_scores"] == scores


def test_a_missing_call_log_loses_the_times_but_not_the_words() -> None:
    case, result, _ = make_call()

    def raise_not_found(_: str) -> bytes:
        raise StoreFailed("it is not there")

    (said,) = make_transcript(case, result, raise_not_found)
    assert (said.text, said.note) == ("We open", "the event log of this call cannot be read: it is not there")
    (said,) = make_transcript(case, result, lambda _: b"no JSON")
    assert said.note.startswith("the event log of this call cannot be read: ")


def test_an_unanswered_case_shows_its_prompt_and_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    case, result, blob = make_call()
    failed = Result(result.key, "hours", None, Failure("unavailable", "nobody is there"), (), None, None)
    print_conversation(make_run(), case, failed, blob)
    text = capsys.readouterr().out
    assert "user     When do you open?" in text
    assert "  errored: nobody is there" in text
    assert result_to_data(make_run(), case, failed, blob)["failure"] == "nobody is there"


def test_a_text_conversation_lists_each_line_with_its_answer() -> None:
    case, result, blob = make_call()
    case = replace(case, script=(Line("When do you open?"), Line("And close?"), Line("Thanks.")))
    reply = Reply("At nine.\n\nAt six.", answers=("At nine.", "At six."), total_s=0.5)
    told = make_transcript(case, replace(result, reply=reply), blob)
    assert [(each.who, each.text, each.note) for each in told] == [
        ("user", "When do you open?", ""),
        ("answer", "At nine.", ""),
        ("user", "And close?", ""),
        ("answer", "At six.", "after 500 ms in all"),
        ("user", "Thanks.", ""),
    ]
    unanswered = make_transcript(case, replace(result, reply=None), blob)
    assert [each.text for each in unanswered] == ["When do you open?", "And close?", "Thanks."]
