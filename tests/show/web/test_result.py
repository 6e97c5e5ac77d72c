"""The page of a result: prompt, reply, checks with evidence, hostile and huge texts; and the player of a call."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from pramana.app.views import result_view
from pramana.model import Reply, Result, ResultKey, ToolCall
from pramana.report.figures import format_duration
from pramana.report.pictures import draw_time_axis
from pramana.show.web.pages.results import _render_reply_excerpt

from .conftest import NARROW, WIDE, Bench, assert_no_sideways_scroll

HOSTILE = "<script>window.caught=1</script><img src=x onerror=window.caught=1>\n</pre></main> שלום 👋 مرحبا \u202e 你好"
LINE = "Hello there."
SCENARIOS = f"""
version: "1.0"
scenarios:
  - id: "desk-hours"
    name: "<img src=x onerror=window.caught=1>"
    type: information-retrieval
    prompt: {LINE}
    expected_outcome: Tells the hours.
    assert: {{type: contains, ideal: nine}}
"""
TALK = [LINE, "أين العبّارة؟ <img src=x onerror=window.caught=1>", "你好 \u202eback"]
LINES = [LINE, "Are you there?", "Thank you."]
AGENT = "fake-voice:latency=0.5,leading=0.1,fixed=<b>We</b> open at nine in the morning."


def find_first(bench: Bench, run: str, **query: str) -> int:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return int(bench.client.get(f"/api/runs/{run}/results?{asked}").data[0]["seq"])


def test_the_list_names_called_tools_instead_of_an_empty_reply() -> None:
    called = Reply("", tool_calls=(ToolCall("get_weather", '{"city": "<b>"}'),))
    texts = []
    for reply in (called, replace(called, text="Let me look."), Reply("")):
        found = Result(ResultKey("sha256:1", "m"), "a-1", reply, None, (), None, None)
        texts.append(_render_reply_excerpt(result_view(1, found)).replace("<wbr />", ""))
    assert "(no text; called get_weather({&quot;city&quot;: &quot;&lt;b&gt;&quot;}))" in texts[0]
    assert "get_weather" not in texts[1]
    assert texts[2] == "<i>empty</i>"


def test_a_result_shows_prompt_reply_and_verdict(bench: Bench) -> None:
    run = bench.run(models=["fake:echo"], systemPrompt="Be brief.")
    seq = find_first(bench, run, case="factual-001")
    found = bench.client.get(f"/api/runs/{run}/results/{seq}").data
    page = bench.open(f"/runs/{run}")
    page.get_by_role("link", name="factual-001").click()
    expect(page).to_have_url(f"{bench.url}/runs/{run}/results/{seq}")
    expect(page.get_by_role("heading", level=1)).to_have_text("factual-001")
    expect(page.get_by_role("region", name="System prompt")).to_have_text("Be brief.")
    expect(page.get_by_role("region", name="Message of the user")).to_have_text(found["case"]["turns"][0]["text"])
    expect(page.get_by_role("region", name="Reply")).to_have_text(found["reply"]["text"])
    expect(page.get_by_role("region", name="Expected, 1")).to_have_text(found["case"]["ideals"][0])
    check = page.locator(".checks li").first
    expect(check).to_contain_text(found["checks"][0]["reason"])
    expect(check).to_contain_text("✗ failed")
    evidence = check.get_by_role("region", name="Evidence of")
    expect(evidence).not_to_be_visible()
    check.get_by_text("Evidence", exact=True).click()
    assert json.loads(evidence.inner_text()) == found["checks"][0]["evidence"]
    page.get_by_text("Raw response", exact=True).click()
    assert json.loads(page.get_by_role("region", name="Raw response").inner_text()) == found["reply"]["raw"]
    for words in (found["resultHash"], found["digest"], found["caseDigest"], found["reply"]["servedModel"], "text"):
        expect(page.locator("#main")).to_contain_text(words)
    expect(page.locator(".tiles")).to_contain_text(f"{found['inputTokens']}")
    to = page.get_by_role("link", name="View as JSON").get_attribute("href")
    assert bench.client.get(to or "").data == found


def test_next_and_previous_stay_within_an_outcome(bench: Bench) -> None:
    run = bench.run(models=["fake:rejected=0.4,echo"])
    rows = bench.client.get(f"/api/runs/{run}/results").data
    errored = [row["seq"] for row in rows if row["outcome"] == "errored"]
    assert len(errored) > 1
    assert errored[1] - errored[0] > 1 or errored[0] > rows[0]["seq"]
    page = bench.open(f"/runs/{run}?outcome=errored")
    page.locator(".results").get_by_role("link").first.click()
    expect(page).to_have_url(f"{bench.url}/runs/{run}/results/{errored[0]}?outcome=errored")
    expect(page.locator(".warn")).to_contain_text("error requested from the fake provider: rejected")
    expect(page.get_by_text("No reply.")).to_be_visible()
    expect(page.get_by_role("link", name="Previous")).to_have_count(0)
    page.get_by_role("link", name="Next errored").click()
    expect(page).to_have_url(f"{bench.url}/runs/{run}/results/{errored[1]}?outcome=errored")
    page.get_by_role("link", name="Previous errored").click()
    expect(page).to_have_url(f"{bench.url}/runs/{run}/results/{errored[0]}?outcome=errored")
    page.goto(f"{bench.url}/runs/{run}/results/{rows[0]['seq']}")
    page.get_by_role("link", name="Next", exact=False).click()
    expect(page).to_have_url(f"{bench.url}/runs/{run}/results/{rows[1]['seq']}")
    page.get_by_role("link", name="All results").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("v1.0-cheap")


def test_an_unknown_result_shows_an_error(bench: Bench) -> None:
    run = bench.run(models=["fake:echo"])
    for address in (f"/runs/{run}/results/999999", f"/runs/{run}/results/x%22%3E", "/runs/nothing/results/1"):
        page = bench.open(address)
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_have_text("Result")


def test_scripts_in_replies_are_escaped(bench: Bench, axe: Callable[[Page], None]) -> None:
    run = bench.run(models=[f"fake:fixed={HOSTILE}"])
    page = bench.open(f"/runs/{run}/results/{find_first(bench, run)}", width=NARROW)
    shown = HOSTILE.replace("\u202e", "\\u202e")  # bidi control characters are escaped
    expect(page.get_by_role("region", name="Reply")).to_have_text(re.compile(re.escape("<script>window.caught=1")))
    assert page.get_by_role("region", name="Reply").inner_text() == shown
    assert page.evaluate("window.caught") is None
    assert page.locator("#main img, #main script").count() == 0
    assert_no_sideways_scroll(page)
    axe(page)


def test_a_megabyte_of_text_opens_at_its_start(bench: Bench) -> None:
    long = "<b>All work and no play makes a long text. " * 25_000
    case = {
        "id": "long", "category": "creative", "input": long, "ideal": ["play"], "assertion": {"type": "contains"},
        "metadata": {"difficulty": "easy", "tokens_est": 250_000, "tags": []},
    }  # fmt: skip
    made = bench.client.post("/api/suites", {"version": "long-1", "tiers": {"one": json.dumps(case)}})
    assert made.status in (200, 201), made.body
    run = bench.run(suite="long-1", tier="one", models=["fake:echo"])
    page = bench.open(f"/runs/{run}", width=NARROW)
    expect(page.locator(".results tbody tr")).to_contain_text("All work and no play")
    page.get_by_role("link", name="long", exact=True).click()
    for name in ("Message of the user", "Reply"):
        region = page.get_by_role("region", name=name)
        expect(region).to_contain_text(f"and {len(long) - 20_000:,} more characters")
    assert_no_sideways_scroll(page)
    to = page.get_by_role("link", name="View as JSON").get_attribute("href")
    assert bench.client.get(to or "").data["reply"]["text"] == long


def wait_for_result_page(bench: Bench, run: str) -> str:
    """Wait for the end of a run; return the address of its first result."""
    bench.wait_for_run(run)
    return f"/runs/{run}/results/{find_first(bench, run)}"


def start_conversation(bench: Bench, name: str, lines: list[str], **wanted: Any) -> str:
    """Start a scenario of these lines, with assertions on the second and third; return the run's id."""
    looked_for = [{"type": "contains", "ideal": ["<b>ferry</b>", "العبّارة"]}]
    judged = [{"type": "llm_judge", "judgePrompt": "Is <i>it</i> kind?"}, {"type": "regex", "ideal": "^x"}]
    turns = [{"say": said, "assert": asserted} for said, asserted in zip(lines[1:], (looked_for, judged), strict=True)]
    made = {"id": name, "name": name, "type": "conversation-flow", "prompt": lines[0], "expectedOutcome": "Is of use."}
    assert bench.client.post("/api/scenarios", {**made, "turns": turns}).status == 201
    return bench.run(wait=False, suite=None, tier=None, scenarios=[name], judge="fake:fixed=YES", **wanted)


def run_conversation(bench: Bench, name: str, lines: list[str], **wanted: Any) -> str:
    """Run a scenario of these lines; return the address of its result."""
    return wait_for_result_page(bench, start_conversation(bench, name, lines, **wanted))


def list_regions(page: Page) -> Any:
    return page.get_by_role("region").evaluate_all("all => all.map(each => each.ariaLabel)")


def test_each_line_of_a_text_conversation_is_shown_with_its_answer(bench: Bench, axe: Callable[[Page], None]) -> None:
    page = bench.open(
        run_conversation(bench, "talk", TALK, models=["fake:echo"], systemPrompt="Be brief."), width=NARROW
    )
    expect(page.get_by_role("heading", name="Conversation")).to_be_visible()
    assert list_regions(page)[:9] == [
        "System prompt",
        "Message of the user, line 1",
        "Reply to line 1",
        "Message of the user, line 2",
        "Reply to line 2",
        "Expected at line 2, 1",
        "Expected at line 2, 2",
        "Message of the user, line 3",
        "Reply to line 3",
    ]
    for number, line in enumerate(TALK, 1):
        for name in (f"Message of the user, line {number}", f"Reply to line {number}"):
            expect(page.get_by_role("region", name=name, exact=True)).to_have_text(line.replace("\u202e", "\\u202e"))
    arabic = page.get_by_role("region", name="Message of the user, line 2")
    assert arabic.evaluate("each => getComputedStyle(each).direction") == "rtl"
    expect(page.get_by_role("region", name="Expected at line 2, 1")).to_have_text("<b>ferry</b>")
    page.get_by_text("Judge prompt").click()
    expect(page.get_by_role("region", name="Judge prompt")).to_have_text("Is <i>it</i> kind?")
    expect(page.get_by_role("region", name="Expected at line 3")).to_have_text("^x")
    expect(page.get_by_role("region", name="Expected", exact=True)).to_have_text("Is of use.")
    assert page.evaluate("window.caught") is None
    assert page.locator("#main img, #main pre b").count() == 0
    assert_no_sideways_scroll(page)
    axe(page)


def test_an_unanswered_conversation_shows_all_its_lines(bench: Bench) -> None:
    page = bench.open(run_conversation(bench, "unheard", TALK, models=["fake:rejected=1,echo"]))
    expect(page.get_by_text("No reply.")).to_be_visible()
    expect(page.get_by_role("region", name="Message of the user")).to_have_text([TALK[0], TALK[1], "你好 \\u202eback"])
    expect(page.get_by_role("region", name="Expected at line 3")).to_have_text("^x")


@pytest.fixture(scope="module", autouse=True)
def calls(module_bench: Bench) -> dict[str, str]:
    """Two runs with calls, which take real time while other tests run."""
    made = module_bench.client.post(
        "/api/scenarios/import", body=SCENARIOS.encode(), headers={"Content-Type": "application/yaml"}
    )
    assert made.status == 201, made.body
    return {
        "short": module_bench.run(wait=False, suite=None, tier=None, scenarios=["desk-hours"], models=[AGENT]),
        "long": start_conversation(module_bench, "spoken", LINES, models=[AGENT]),
    }


@pytest.fixture(scope="module")
def call(module_bench: Bench, calls: dict[str, str]) -> str:
    """The address of the page of a real call."""
    return wait_for_result_page(module_bench, calls["short"])


NOW = "document.getElementById('call-sound').currentTime"


def test_a_call_can_be_played_viewed_and_seeked(bench: Bench, call: str) -> None:
    told = bench.client.get(f"/api{call}/call").data
    (_, at), (_, then) = ((each["who"], each["atSeconds"]) for each in told["conversation"] if each["who"] in ("caller", "agent"))  # fmt: skip
    length = told["durationSeconds"]
    page = bench.open(call)
    expect(page.get_by_text("<b>We</b> open at nine in the morning.").first).to_be_visible()
    sound = page.locator("audio")
    page.wait_for_function("document.getElementById('call-sound').readyState >= 1")
    assert abs(page.evaluate("document.getElementById('call-sound').duration") - length) < 0.05
    assert sound.get_attribute("src") == told["recording"]
    page.evaluate("document.getElementById('call-sound').playbackRate = 0.2")  # otherwise it may end between two steps
    place = page.get_by_role("slider", name="Position in the call")
    expect(place).to_have_attribute("aria-valuenow", "0.000")

    box = place.bounding_box()
    assert box
    place.click(position={"x": box["width"] * 0.25, "y": 20})
    assert abs(page.evaluate(NOW) - length * 0.25) < 0.05
    now = page.evaluate(NOW)  # the click position decides between two tenths
    expect(place).to_have_attribute("aria-valuetext", f"{now:.1f} of {length:.1f} seconds")
    head = page.locator(".playhead").evaluate("each => parseFloat(each.style.left)")
    assert abs(head - 25) < 1

    place.focus()
    page.keyboard.press("ArrowRight")
    assert abs(page.evaluate(NOW) - (length * 0.25 + 1)) < 0.05
    page.keyboard.press("Home")
    assert page.evaluate(NOW) == 0
    page.keyboard.press("End")
    assert abs(page.evaluate(NOW) - length) < 0.05

    page.get_by_role("button", name=f"Play the agent from {then:.2f} s").click()
    assert then - 0.01 <= page.evaluate(NOW) < then + 1.0
    page.wait_for_function(f"{NOW} > {then} + 0.1")  # it plays
    agent = page.locator(".talk li").filter(has=page.get_by_role("button", name="Play the agent"))
    caller = page.locator(".talk li").filter(has=page.get_by_role("button", name="Play the caller"))
    expect(agent).to_have_attribute("aria-current", "true")
    place.focus()
    page.keyboard.press("Space")
    assert page.evaluate("document.getElementById('call-sound').paused")
    page.get_by_role("button", name=f"Play the caller from {at:.2f} s").press("Enter")
    assert at - 0.01 <= page.evaluate(NOW) < at + 1.0
    expect(caller).to_have_attribute("aria-current", "true")
    expect(agent).not_to_have_attribute("aria-current", "true")
    log = page.get_by_role("link", name="event log").get_attribute("href")
    assert b'"event":"line"' in bench.client.get(log or "").body
    assert page.evaluate("window.caught") is None


def test_the_waveform_matches_the_sound(bench: Bench, call: str) -> None:
    told = bench.client.get(f"/api{call}/call").data
    (caller, agent) = told["turns"]
    columns, length = len(told["peaks"]["caller"]), told["durationSeconds"]

    def find_loudest_peak(side: str, turn: dict[str, float]) -> float:
        first, last = (round(turn[each] / length * columns) for each in ("startSeconds", "endSeconds"))
        return float(max(told["peaks"][side][first:last]))

    assert find_loudest_peak("caller", caller) > 0.05
    assert find_loudest_peak("agent", agent) > 0.05
    assert find_loudest_peak("agent", caller) == 0
    assert find_loudest_peak("caller", agent) < 0.01
    page = bench.open(call)
    expect(
        page.get_by_text(
            f"{format_duration(length)}; caller above, agent below (left and right channel of the recording)."
        )
    ).to_be_visible()
    expect(page.locator(".wave .turn")).to_have_count(2)
    expect(page.locator(".wave .side")).to_have_count(2)


def test_a_call_shows_the_waiting_time_of_the_caller_first(bench: Bench, call: str) -> None:
    found = next(each for each in bench.client.get(f"/api{call}").data["checks"] if each["name"] == "call")
    page = bench.open(call)
    expect(page.locator(".tiles dt").first).to_have_text("Voice to voice")
    expect(page.locator(".tiles dd").first).to_contain_text(format_duration(found["value"]))
    expect(page.locator(".tiles dt").filter(has_text="First token")).to_have_count(0)
    expect(page.locator(".checks")).to_contain_text(f"value {format_duration(found['value'])} ·")
    page.goto(f"{bench.url}{call.partition('/results')[0]}")
    expect(page.locator(".tiles dt").nth(1)).to_have_text("Voice to voice")
    expect(page.locator(".tiles dd").nth(1)).to_contain_text(f"{format_duration(found['value'])}(n=1)")


@pytest.mark.parametrize("seconds", [4.2, 9.1, 59.0, 61.0, 64.0, 67.4, 70.5, 75.0, 600.0])
def test_time_labels_of_a_call_do_not_overlap_on_a_phone(bench: Bench, call: str, seconds: float) -> None:
    page = bench.open(call, width=NARROW)
    page.locator(".wave + div").evaluate("(place, drawn) => { place.innerHTML = drawn }", draw_time_axis(seconds))
    ends = page.locator(".wave + div .labels > span").evaluate_all(
        "all => all.map(each => [each.getBoundingClientRect().left, each.getBoundingClientRect().right])"
    )
    box = page.locator(".wave").bounding_box()
    assert box
    assert len(ends) > 1
    assert all(before[1] < after[0] for before, after in pairwise(ends)), ends
    assert ends[0][0] >= box["x"] - 1
    assert ends[-1][1] <= box["x"] + box["width"] + 1


@pytest.mark.parametrize(("width", "theme"), [(WIDE, "dark"), (NARROW, "light")])
def test_the_call_page_is_accessible(
    bench: Bench, call: str, axe: Callable[[Page], None], width: int, theme: Literal["light", "dark"]
) -> None:
    page = bench.open(call, width=width, theme=theme)
    page.get_by_role("button", name="Play the agent").click()
    expect(page.locator(".talk li[aria-current]")).to_have_count(1)
    page.get_by_text("Evidence", exact=True).first.click()
    assert_no_sideways_scroll(page)
    axe(page)


def test_the_page_of_a_voice_run_describes_its_calls(bench: Bench, call: str, axe: Callable[[Page], None]) -> None:
    run = call.partition("/results")[0]
    (told,) = bench.client.get(f"/api{run}").data["summary"]["voice"]["by"]
    was_late = told["turnTaking"]["unreliable"]["happened"]  # possible on a busy machine, which is then reported
    remark = "1 of 1 time unreliable: this machine sent or received sound late; " if was_late else ""
    page = bench.open(run, width=NARROW, theme="dark")
    voice = page.locator("section").filter(has=page.get_by_role("heading", name="Voice"))
    expect(voice).to_contain_text(re.compile(rf"voice to voice p50 \d+ ms \(n=1\); {remark}leading silence p50 \d+ ms"))
    expect(page.locator(".figure")).to_contain_text("the only time measured")
    assert_no_sideways_scroll(page)
    axe(page)


def test_a_call_of_the_embedded_agent_can_be_seeked(bench: Bench, call: str) -> None:
    del call  # its scenario is imported
    run = bench.run(suite=None, tier=None, scenarios=["desk-hours"], models=["local-voice"], maxTokens=8)
    page = bench.open(f"/runs/{run}/results/{find_first(bench, run)}")
    told = bench.client.get(f"/api/runs/{run}/results/{find_first(bench, run)}/call").data
    agent = next(each for each in told["conversation"] if each["who"] == "agent")
    heard = [each["text"] for each in told["conversation"] if each["who"] == "heard as"]
    expect(page.get_by_text("heard as")).to_have_count(len(heard))  # a failed transcription is not a failure here
    page.wait_for_function("document.getElementById('call-sound').readyState >= 1")
    page.evaluate("document.getElementById('call-sound').playbackRate = 0.2")
    page.get_by_role("button", name="Play the agent").first.click()
    assert agent["atSeconds"] - 0.01 <= page.evaluate(NOW) < agent["atSeconds"] + 1.0


def test_a_missing_recording_loses_the_sound_but_not_the_words(bench: Bench, call: str) -> None:
    recording = bench.client.get(f"/api{call}").data["audio"]["recording"]
    digest = recording.rpartition(":")[2]
    kept = bench.home / "blobs" / digest[:2] / digest[2:]
    away = kept.rename(bench.home / digest)
    try:
        page = bench.open(call)
        expect(page.locator(".warn")).to_contain_text("The recording of this call is missing or damaged")
        expect(page.get_by_role("region", name="Message of the user")).to_have_text(LINE)
        expect(page.get_by_role("region", name="Reply")).to_contain_text("open at nine")
        expect(page.locator("audio")).to_have_count(0)
    finally:
        away.rename(kept)  # other tests play the same call


def test_a_call_without_a_recording_shows_each_line_with_its_answer(bench: Bench, calls: dict[str, str]) -> None:
    at = wait_for_result_page(bench, calls["long"])
    page = bench.open(at)
    expect(page.get_by_role("region", name="Expected at line 3")).to_have_text("^x")
    found = bench.client.get(f"/api{at}").data
    digest = found["audio"]["recording"].rpartition(":")[2]
    (bench.home / "blobs" / digest[:2] / digest[2:]).unlink()
    page.reload()
    expect(page.locator(".warn")).to_contain_text("The recording of this call is missing or damaged")
    for number, answer in enumerate(found["reply"]["answers"], 1):
        expect(page.get_by_role("region", name=f"Message of the user, line {number}")).to_have_text(LINES[number - 1])
        expect(page.get_by_role("region", name=f"Reply to line {number}")).to_have_text(answer)
    assert len(found["reply"]["answers"]) == len(LINES)
