"""Voice end to end: complete runs that call, record, score, store, resume, rescore, export and compare."""

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pytest
from click.testing import CliRunner

from pramana import audio, settings
from pramana.bench import Progress, ProgressCallback, execute
from pramana.embedded import quality
from pramana.embedded.voice import speak
from pramana.errors import PramanaError, RateLimited, WeightsMissing
from pramana.hash import ResultDigester
from pramana.loopback.voice import Agent, Script, VoiceLoopback
from pramana.model import Case, Check, Outcome, Result, Run
from pramana.planning import create_run
from pramana.providers.voice import embedded
from pramana.providers.voice.cascade import SPOKEN_STYLE_PROMPT
from pramana.providers.voice.fake import FakeVoice
from pramana.providers.voice.vocabulary import CallSetup
from pramana.request import Limits, RunRequest
from pramana.run import asking
from pramana.run.call import Patience
from pramana.score.speech import CallScorer
from pramana.score.verdicts import RUBRIC_SCORE_NAMES
from pramana.show.cli import pramana as program
from pramana.store import open_store
from pramana.store.store import Store

from .. import embedded_faults
from ..loopback.elevenlabs import ElevenLabsAgent
from ..loopback.openai import OpenAIWire
from ..loopback.realtime import RealtimeAgent
from ..loopback.server import Fault, Loopback
from ..loopback.speech import SpeechLoopback
from ..virtual_time import real_time, virtual_time
from .test_run import assert_one_result_per_key, count_stored_results, make_environment, wait_until

pytestmark = pytest.mark.usefixtures("virtual_time")
PASSED, FAILED, ERRORED, UNSCORED, SKIPPED = Outcome
FRANCE = "What is the capital of France?"
"""Which the embedded ears hear as it is."""
KEY = "sk-voice-0123456789abcdef"
NINE = "We open at nine in the morning, from Monday to Saturday."
SHORT = "We open at nine."
PATIENCE = Patience(answer_within_s=2)


@pytest.fixture(scope="module", autouse=True)
def _real_speech_recognition() -> Iterator[None]:
    """Use the real speech recognition; `test_embedded_agent.py` has the same flows with faults."""
    with embedded_faults.without_faults():
        yield


class VoiceRun(NamedTuple):
    """A finished run and its results."""

    home: Path
    run: Run
    results: list[tuple[Case, Result]]

    def find(self, case: str, model: str | None = None, variant: str | None = None) -> Result:
        (found,) = (
            result
            for asked, result in self.results
            if asked.id == case and model in (None, result.key.model) and variant in (None, result.key.variant)
        )
        return found


ANY_WORDS = {"type": "regex", "ideal": r"\w"}


def make_scenario(
    name: str, prompt: str = "When do you open?", expected: Any = ANY_WORDS, **more: Any
) -> dict[str, Any]:
    given = {"id": name, "name": name, "type": "information-retrieval", "prompt": prompt, "expected_outcome": "Tells."}
    return {**given, "assert": expected, **more}


def write_scenarios(path: Path, *scenarios: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"version": "1.0", "scenarios": scenarios}), encoding="utf-8")  # YAML is no less
    return path


def write_suite(path: Path, *cases: dict[str, Any]) -> Path:
    common = {"category": "factual", "ideal": "nine", "assertion": {"type": "contains", "case_sensitive": False}}
    metadata = {"metadata": {"difficulty": "easy", "tokens_est": 8}}
    made = [{**common, **each, **metadata} for each in cases]
    lines = [json.dumps({name: value for name, value in each.items() if value is not None}) for each in made]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@contextmanager
def open_home(home: Path) -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRAMANA_HOME", str(home))
        patch.setattr(asking, "FIRST_RETRY_WAIT_S", 0.01)
        with closing(open_store(settings.database_url())) as store:
            yield store


async def execute_run(
    store: Store,
    files: list[Path],
    models: list[str],
    limits: Limits | None = None,
    on_progress: ProgressCallback | None = None,
    **given: Any,
) -> Run:
    """Execute a run; without explicit limits, callers wait only two seconds for an answer."""
    begun = create_run(store, RunRequest(paths=tuple(files), models=tuple(models), **given))
    patience = None if limits else PATIENCE
    done = execute(store, begun, limits or Limits(), on_progress, call_patience=patience)
    return await asyncio.wait_for(done, 600)  # of virtual time


def call_all(home: Path, files: list[Path], models: list[str], limits: Limits | None = None, **given: Any) -> VoiceRun:
    with open_home(home) as store:
        ended = asyncio.run(execute_run(store, files, models, limits, **given))
        return VoiceRun(home, ended, list(store.results.iterate_with_cases(ended.id)))


def run_pramana(home: Path, *arguments: str | Path) -> tuple[int, str]:
    """Run the program in this process; return its exit code and output."""
    invoked = CliRunner(env={"PRAMANA_HOME": str(home)}).invoke(
        program, list(map(str, arguments)), standalone_mode=False
    )
    if isinstance(invoked.exception, PramanaError | click.ClickException):
        return invoked.exception.exit_code, str(invoked.exception)
    if invoked.exception:
        raise invoked.exception
    return invoked.return_value or 0, invoked.output


def find_check(result: Result, name: str) -> Check:
    (found,) = (each for each in result.checks if each.name == name)
    return found


def read_caller_lines(result: Result) -> tuple[str, ...]:
    assert result.reply is not None
    assert result.reply.call is not None
    return result.reply.call.caller


# ── The embedded agent ──


def test_the_embedded_agent_is_deterministic_across_processes(tmp_path: Path) -> None:
    file = write_scenarios(
        tmp_path / "s.yaml",
        make_scenario("open", FRANCE),
        make_scenario("de", "Wann machen Sie auf?", language="de"),
    )
    command = [sys.executable, "-m", "pramana", "run", str(file), "--model", "local-voice", "--max-tokens", "4"]
    homes = [tmp_path / "one", tmp_path / "two"]
    both = [
        subprocess.Popen(
            [*command, "--json"], stdout=subprocess.PIPE, env={**make_environment(), "PRAMANA_HOME": str(home)}
        )
        for home in homes
    ]
    said = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    assert [each["exit_code"] for each in said] == [0, 0]
    found = []
    for home in homes:
        with open_home(home) as store:
            found.append(
                {case.id: result for case, result in store.results.iterate_with_cases(store.runs.find("latest").id)}
            )
    first, second = found
    assert read_caller_lines(first["open"]) == read_caller_lines(second["open"])
    assert first["open"].reply is not None
    assert second["open"].reply is not None
    assert first["open"].reply.text == second["open"].reply.text != ""
    assert first["open"].digest == second["open"].digest
    words: list[Any] = [find_check(each["open"], "call").evidence["words"] for each in found]
    heard, again = (each["heard"] for each in words)
    assert heard == again
    assert heard is None or heard["reference"] == FRANCE  # None: speech recognition on this machine found no words
    assert first["de"].outcome is SKIPPED
    assert first["de"].checks[0].reason == "the agent does not understand de"


class Whisper:
    """Speech recognition with the queueing of Whisper: one clip at a time, a quarter of a second each."""

    def __init__(self) -> None:
        self.turn = threading.Lock()

    def transcribe(self, _samples: Any) -> str:
        with self.turn:
            time.sleep(0.25)
            return "When do you open?"


@real_time()  # speech recognition takes real time
def test_concurrency_does_not_affect_the_times_of_an_embedded_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight cases of two models: concurrent calls would all wait for one recogniser, and for the one that scores.

    So the calls are made one after the other.
    """
    ears = dict[str, Whisper]()
    monkeypatch.setattr(embedded, "_load_whisper", lambda whose: ears.setdefault(whose, Whisper()))
    models = ["fake:fixed=At nine.", "fake:fixed=At ten."]
    p50, at_once = {}, set[int]()

    def on_progress(progress: Progress) -> None:
        at_once.add(sum(count for stage, count in progress.count_calls().items() if stage != "scoring"))

    for concurrency, cases in ((8, 4), (1, 3)):
        file = write_scenarios(tmp_path / "s.yaml", *(make_scenario(f"q-{number}", "Open?") for number in range(cases)))
        home = tmp_path / f"home-{concurrency}"
        spoken = call_all(
            home, [file], models, Limits(concurrency=concurrency), on_progress=on_progress, modalities=("voice",)
        )
        times: list[float] = []
        for _, result in spoken.results:
            found: Any = find_check(result, "call").evidence["times"]
            times.append(found["lines"][0]["voice_to_voice_s"])
        assert len(times) == 2 * cases
        p50[concurrency] = statistics.median(times)
    assert at_once == {0, 1}
    assert p50[8] == pytest.approx(p50[1], rel=0.25)
    assert ears.keys() == {"agent", "bench"}


# ── Text, speech and noisy speech ──


def test_the_same_cases_run_as_text_as_speech_and_as_noisy_speech(tmp_path: Path) -> None:
    suite = write_suite(
        tmp_path / "mine.jsonl",
        {"id": "a", "input": "When do you open?"},
        {"id": "b", "input": "As JSON?", "ideal": None, "assertion": {"type": "is_json"}},
    )
    variants = ["text", "voice", "voice+noise=10dB"]
    spoken = call_all(
        tmp_path / "home", [suite], ["fake:fixed=At nine."], Limits(), modalities=("text", "voice", "noisy")
    )
    assert (spoken.run.status, spoken.run.expected, spoken.run.stored) == ("finished", 6, 6)
    assert Counter(result.key for _, result in spoken.results).most_common(1)[0][1] == 1
    assert Counter(result.key.variant for _, result in spoken.results) == dict.fromkeys(variants, 2)
    code, shown = run_pramana(spoken.home, "show", "--json")
    data = json.loads(shown)
    assert code == 0
    assert {name: row["total"] for name, row in data["by"]["variant"].items()} == dict.fromkeys(variants, 2)
    assert [data["overall"][name] for name in ("passed", "failed", "skipped")] == [3, 1, 2]
    taxes = {each["variant"]: each for each in data["voice"]["tax"]}
    assert taxes.keys() == {"voice", "voice+noise=10dB"}
    for tax in taxes.values():
        assert (tax["pairs"], tax["kept"], tax["excluded"], tax["difference"]) == (1, 1, 1, 0)
    assert {each["variant"]: each["voice_to_voice"]["n"] for each in data["voice"]["by"]} == dict.fromkeys(taxes, 1)
    # and as a file, in which each result names its variant
    results = tmp_path / "results.json"
    assert run_pramana(spoken.home, "export", "--output", results)[0] == 0
    (block,) = json.loads(results.read_text(encoding="utf-8"))
    assert Counter(each.get("variant", "text") for each in block["results"]) == dict.fromkeys(variants, 2)
    code, compared = run_pramana(spoken.home, "compare", results, "latest", "--json")
    found = json.loads(compared)
    assert (code, found["pairs"], found["lost"]) == (0, 4, [])
    assert sorted(found["excluded"]) == ["b (voice)", "b (voice+noise=10dB)"]


def test_a_case_with_conditions_is_reported_apart_from_clean_calls(tmp_path: Path) -> None:
    both = write_scenarios(
        tmp_path / "two.yaml", make_scenario("clean"), make_scenario("far", conditions="phone,noise=10dB")
    )
    spoken = call_all(tmp_path / "home", [both], ["fake-voice:fixed=At nine."], Limits())
    code, shown = run_pramana(spoken.home, "show", "--json")
    rows = {each["variant"]: each["calls"] for each in json.loads(shown)["voice"]["by"]}
    assert (code, rows) == (0, {"voice": 1, "voice+noise=10dB,phone": 1})


def test_a_voice_agent_in_a_text_only_run_is_skipped_with_the_reason(tmp_path: Path) -> None:
    one = write_scenarios(tmp_path / "one.yaml", make_scenario("one"))
    asked = call_all(tmp_path / "home", [one], ["fake-voice:fixed=At nine."], Limits(), modalities=("text",))
    (result,) = (each for _, each in asked.results)
    assert (result.outcome.value, result.checks[0].reason) == (
        "skipped",
        "fake-voice is a voice agent and takes no text",
    )


def test_a_killed_voice_run_resumes_to_exactly_one_result_per_key(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(audio.write_wav(speak("Guten Tag.", "de"), 16000))
    file = write_scenarios(
        tmp_path / "s.yaml",
        *(make_scenario(f"de-{number}", "Guten Tag.", language="de", prompt_audio_url="a.wav") for number in range(2)),
    )
    agent = "fake-voice:fixed=Ja."
    command = [sys.executable, "-m", "pramana", "run", str(file), "--model", agent, "--modality", "voice,noisy"]
    with subprocess.Popen([*command, "--concurrency", "1"], stderr=subprocess.PIPE, env=make_environment()) as process:
        wait_until(lambda: count_stored_results() >= 1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    before = count_stored_results()
    assert 1 <= before < 4
    code, said = run_pramana(settings.data_folder(), "run", "--resume", "latest", "--json")
    data = json.loads(said)
    assert (code, data["status"], data["overall"]["passed"]) == (0, "finished", 4)
    assert data["by"]["variant"].keys() == {"voice", "voice+noise=10dB"}
    assert_one_result_per_key(4)


# ── Skipped and partly spoken cases ──


def test_a_case_that_cannot_be_spoken_is_skipped_with_the_reason(tmp_path: Path) -> None:
    suite = write_suite(
        tmp_path / "mine.jsonl",
        {"id": "json", "input": "Say it as JSON.", "ideal": None, "assertion": {"type": "is_json"}},
        {
            "id": "schema",
            "input": "As JSON.",
            "ideal": None,
            "assertion": {"type": "json_schema", "schema": {"type": "object"}},
        },
        {"id": "code", "input": "Write a loop.", "category": "coding"},
    )
    german = write_scenarios(tmp_path / "de.yaml", make_scenario("german", "Wann machen Sie auf?", language="de"))
    spoken = call_all(tmp_path / "home", [suite, german], ["local-voice"], modalities=("text", "voice"))
    reasons = {(case.id, result.key.variant): result.checks[0].reason for case, result in spoken.results}
    assert {result.outcome for _, result in spoken.results} == {SKIPPED}
    assert all(result.reply is None for _, result in spoken.results)
    assert reasons == {
        ("json", "voice"): "is_json checks written text, which cannot be spoken",
        ("schema", "voice"): "json_schema checks written text, which cannot be spoken",
        ("code", "voice"): "the case is about code, which cannot be spoken",
        ("german", "voice"): "the agent does not understand de",
        **{
            (name, "text"): "local-voice is a voice agent and takes no text"
            for name in ("json", "schema", "code", "german")
        },
    }
    kanji = write_scenarios(tmp_path / "ja.yaml", make_scenario("kanji", "営業時間は何時からですか", language="ja"))
    (only,) = call_all(tmp_path / "home", [kanji], ["fake-voice:tone"]).results
    assert only[1].outcome is SKIPPED
    assert "the text contains Han" in only[1].checks[0].reason
    code, shown = run_pramana(tmp_path / "home", "show", "--json")
    (reason,) = json.loads(shown)["reasons"]
    assert (code, reason["outcome"], reason["cases"]) == (0, "skipped", ["kanji"])
    assert "the text contains Han" in reason["reason"]


def test_the_last_message_of_a_chat_is_spoken_and_the_rest_is_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is rate limited first: a call whose model fails is repeated."""
    monkeypatch.setattr("pramana.embedded.ears.WhisperModel.transcribe", lambda *_: FRANCE)  # on any machine
    turns = [("system", "Be brief."), ("user", "Hello."), ("assistant", "Good day."), ("user", FRANCE)]
    chat = [{"role": role, "content": text} for role, text in turns]
    suite = write_suite(tmp_path / "mine.jsonl", {"id": "a", "input": chat})

    async def use(server: Loopback) -> VoiceRun:
        with open_home(tmp_path / "home") as store:
            given: Any = {"modalities": ("voice",), "system_prompt": "Be kind."}
            ended = await execute_run(store, [suite], [f"{server.url}#m"], Limits(), **given)
            return VoiceRun(tmp_path / "home", ended, list(store.results.iterate_with_cases(ended.id)))

    async def go() -> tuple[VoiceRun, list[Any]]:
        async with Loopback(OpenAIWire("At nine."), script={0: Fault("rate_limited")}) as server:
            return await use(server), server.requests

    spoken, requests = asyncio.run(go())
    assert spoken.find("a").outcome is PASSED
    assert len(requests) == 2
    assert sum(spoken.run.notes["retries"].values()) == 1
    for each in requests:
        assert [(turn["role"], turn["content"]) for turn in each.body["messages"]] == [
            ("system", f"Be kind.\n\nBe brief.\n\n{SPOKEN_STYLE_PROMPT}"),
            *turns[1:],
        ]
    assert len(read_caller_lines(spoken.find("a"))) == 1


# ── Recordings and conditions ──


def test_a_prompt_recording_is_played_bit_for_bit_and_never_replaced_by_speech(tmp_path: Path) -> None:
    samples = speak("Guten Tag.", "de")
    folder = tmp_path / "recordings"
    folder.mkdir()
    loud = np.where(samples > 0, 32767, -32768).astype(np.int16)
    for name, data in {
        "good.wav": audio.write_wav(samples, 16000),
        "silent.wav": audio.write_wav(np.zeros(16000, np.int16), 16000),
        "clipped.wav": audio.write_wav(loud, 16000),
        "text.wav": b"This is no sound.",
    }.items():
        (folder / name).write_bytes(data)
    names = ("good", "missing", "silent", "clipped", "text")
    file = write_scenarios(
        folder / "s.yaml",
        *(make_scenario(name, "Guten Tag.", language="de", prompt_audio_url=f"{name}.wav") for name in names),
    )
    models, variants = ["fake-voice:fixed=Ja.", "fake-voice:seed=1,fixed=Ja."], ["voice", "voice+noise=10dB"]
    spoken = call_all(tmp_path / "home", [file], models, modalities=("voice", "noisy"))
    good = {(model, variant): spoken.find("good", model, variant) for model in models for variant in variants}
    assert {result.outcome for result in good.values()} == {PASSED}
    with open_home(spoken.home) as store:
        (digest,) = read_caller_lines(good[models[0], "voice"])
        played, rate = audio.read_wav(store.blobs.get(digest))
        assert digest == store.blobs.put(audio.write_wav(samples, 16000))
        assert rate == 16000
        assert np.array_equal(played, samples)
    for variant in variants:  # the same for both
        assert read_caller_lines(good[models[0], variant]) == read_caller_lines(good[models[1], variant])
    assert read_caller_lines(good[models[0], "voice"]) != read_caller_lines(good[models[0], "voice+noise=10dB"])
    for (model, variant), result in good.items():  # and part of a result's key
        plan, key = spoken.run.plan, result.key
        record = ResultDigester(model=model, parameters=plan.parameters, suite_hash="", system_prompt=None)
        assert result.digest == record(key.case, "Ja.", read_caller_lines(result)), variant
        assert result.digest != record(key.case, "Ja.")
    reasons = {
        "missing": f"{folder / 'missing.wav'} does not exist",
        "silent": "the recording silent.wav cannot be used: silent",
        "clipped": "the recording clipped.wav cannot be used: clipped",
        "text": "the recording text.wav cannot be used: the audio is not a WAV",
    }
    for name, reason in reasons.items():
        failed = spoken.find(name, models[0], "voice")
        assert (failed.outcome, failed.reply) == (ERRORED, None)
        assert failed.failure is not None
        assert failed.failure.message.startswith(reason)


# ── Conversations ──


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> VoiceRun:
    """One conversation of three lines, the second interrupting the first answer; and one with a wrong second answer."""
    folder = tmp_path_factory.mktemp("conversation")
    nine, ten = ({"type": "contains", "ideal": each} for each in ("nine", "ten"))
    file = write_scenarios(
        folder / "talk.yaml",
        make_scenario(
            "talk",
            type="conversation-flow",
            reference="We are open from nine.",
            turns=[{"say": "And on Sundays?", "barge_in": 0.4}, {"say": "Thank you.", "assert": [nine, nine]}],
        ),
        make_scenario("bad", expected=nine, turns=[{"say": "And close?", "assert": ten}]),
    )
    with virtual_time():
        return call_all(folder / "home", [file], [f"fake-voice:fixed={SHORT}"])


def test_assertions_of_a_line_check_the_answer_to_that_line(conversation: VoiceRun) -> None:
    talk, bad = conversation.find("talk"), conversation.find("bad")
    assert (talk.outcome, bad.outcome) == (PASSED, FAILED)
    assert [each.evidence["line"] for each in talk.checks if each.name == "contains"] == [2, 2]
    assert [(each.outcome, each.evidence["line"]) for each in bad.checks if each.name == "contains"] == [
        (PASSED, 0),
        (FAILED, 1),
    ]
    assert talk.reply is not None
    first, *others = talk.reply.answers
    assert others == [SHORT, SHORT]
    assert first  # the first answer was cut off before the hour; text that was not heard does not count
    assert "nine" not in first
    assert len(read_caller_lines(talk)) == 3


def test_barge_in_is_timed(conversation: VoiceRun) -> None:
    times: Any = find_check(conversation.find("talk"), "call").evidence["times"]
    first, second, third = times["lines"]
    assert [each["barge_in"] for each in times["lines"]] == [False, True, False]
    assert second["talked_into"]
    assert second["speech_start_s"] == pytest.approx(first["first_audible_s"] + 0.4, abs=0.2)
    assert 0 < second["yield_s"] < 1
    assert third["speech_start_s"] > second["answer_end_s"]
    _, shown = run_pramana(conversation.home, "show", conversation.run.id, "--json")
    (row,) = json.loads(shown)["voice"]["by"]
    assert row["turn_taking"]["yielded"] == {"happened": 1, "of": 1}
    assert row["voice_to_voice"]["n"] == 5
    assert row["voice_to_voice"]["censored"] == 0


def test_required_words_are_compared_with_the_recording(conversation: VoiceRun) -> None:
    words: Any = find_check(conversation.find("talk"), "call").evidence["words"]
    assert [each is None for each in words["references"]] == [False, True, True]
    counts = words["references"][0]["words"]
    wrong = sum(counts[name] for name in ("substitutions", "deletions", "insertions"))
    assert counts["reference_words"] == 5
    assert wrong >= 2  # its words differ, and it was interrupted
    _, shown = run_pramana(conversation.home, "show", conversation.run.id, "--json")
    (row,) = json.loads(shown)["voice"]["by"]
    assert (row["referred"]["errors"], row["referred"]["words"]) == (wrong, 5)
    assert row["reference_wer"] == wrong / 5


def test_a_score_is_never_a_time(conversation: VoiceRun, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert run_pramana(conversation.home, "export", conversation.run.id, "--output", file)[0] == 0
    (block,) = json.loads(file.read_text(encoding="utf-8"))
    assert {each["test_id"]: each["score"] for each in block["results"]} == {"talk": 1.0, "bad": 0.0}


def test_rescoring_a_stored_call_gives_identical_measurements(conversation: VoiceRun) -> None:
    code, _ = run_pramana(conversation.home, "rescore", conversation.run.id, "--quiet")
    assert code == 0
    with open_home(conversation.home) as store:
        again = {case.id: result for case, result in store.results.iterate_with_cases(conversation.run.id)}
        first = {case.id: result for case, result in store.results.iterate_with_cases(conversation.run.id, scoring=0)}
    for name in ("talk", "bad"):
        before, after = find_check(conversation.find(name), "call"), find_check(again[name], "call")
        assert after == before
        assert json.dumps(after.evidence) == json.dumps(before.evidence)
        assert [each.outcome for each in again[name].checks] == [each.outcome for each in first[name].checks]


def test_every_call_is_exported_as_a_stereo_recording_and_a_log(conversation: VoiceRun, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "audio"
    code, said = run_pramana(conversation.home, "export", conversation.run.id, "--audio", folder)
    assert (code, said.startswith("2 calls: a stereo WAV")) == (0, True)
    names = sorted(path.name for path in folder.iterdir())
    assert [Path(name).suffix for name in names] == [".jsonl", ".wav"] * 2
    for name in names:
        assert name.isascii()
        assert not set(name) & set("/\\:*?\"<>| ,'")
        assert len(name) < 150
    (log,) = folder.glob("talk__fake-voice_fixed=We_open*__voice__*.jsonl")
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert (events[0]["event"], events[-1]["event"], events[-1]["reason"]) == ("call", "end", "done")
    samples, rate = audio.read_wav(log.with_suffix(".wav").read_bytes())
    assert (rate, samples.shape[1]) == (24000, 2)
    lines = [each for each in events if each["event"] == "line"]
    assert [each["digest"] for each in lines] == list(read_caller_lines(conversation.find("talk")))
    spoken = samples[round(lines[0]["start"] * rate) : round(lines[0]["end"] * rate)]
    assert audio.level_dbfs(spoken[:, 0]) > -40
    assert audio.level_dbfs(spoken[:, 1]) < -60


def test_a_text_conversation_is_sent_line_by_line_and_paired_with_the_call(conversation: VoiceRun) -> None:
    file = conversation.home.parent / "talk.yaml"
    verdict = json.dumps({"completed": "yes", **dict.fromkeys(RUBRIC_SCORE_NAMES, 9)})

    def says(turns: Any) -> str:
        return verdict if "Expected outcome:" in turns[-1]["content"] else f"{len(turns)}: {NINE}"

    async def go() -> tuple[Run, list[Any], list[Result]]:
        async with Loopback(OpenAIWire(says)) as server:
            with open_home(conversation.home) as store:
                ended = await execute_run(store, [file], [f"{server.url}#m"], Limits(concurrency=1))
                return ended, server.requests, [result for _, result in store.results.iterate(ended.id)]

    ended, requests, results = asyncio.run(go())
    talk = next(each for each in results if each.case_id == "talk")
    assert talk.reply is not None
    assert talk.reply.answers == (f"1: {NINE}", f"3: {NINE}", f"5: {NINE}")
    assert talk.outcome is PASSED
    longest = max((each.body["messages"] for each in requests), key=len)
    assert [turn["content"] for turn in longest] == [
        "When do you open?",
        f"1: {NINE}",
        "And on Sundays?",
        f"3: {NINE}",
        "Thank you.",
    ]
    models = ("--model", ended.plan.targets[0].typed, "--new-model", conversation.run.plan.targets[0].typed)
    code, compared = run_pramana(conversation.home, "compare", ended.id, conversation.run.id, *models, "--json")
    found = json.loads(compared)
    assert (code, found["pairs"], found["only_base"], found["only_new"]) == (0, 2, [], [])


def test_scoring_many_calls_with_few_threads_does_not_deadlock(
    conversation: VoiceRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scoring waits for speech recognition, which needs a thread too; sharing one thread pool would deadlock."""

    def no_estimate(_: Any) -> None:
        raise WeightsMissing("not needed here")

    class Ears:
        def supports_language(self, language: str) -> bool:
            return language == "en"

        async def transcribe(self, samples: Any, _: str) -> str:
            return await asyncio.to_thread(lambda: f"{len(samples)} samples")

    async def go() -> list[Check]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        with open_home(conversation.home) as store:
            scoring = CallScorer(store.blobs.get, Ears())
            (case, result), *_ = conversation.results
            assert result.reply is not None
            async with asyncio.timeout(20):
                return await asyncio.gather(*(scoring.score(case, result.reply) for _ in range(4)))

    monkeypatch.setattr(quality, "estimate_quality", no_estimate)
    assert {each.name for each in asyncio.run(go())} == {"call"}


# ── Evidence ──


@pytest.fixture(scope="module")
def faulty_agents(tmp_path_factory: pytest.TempPathFactory) -> VoiceRun:
    """A run of four agents with one fault each."""
    folder = tmp_path_factory.mktemp("guarded")
    file = write_scenarios(folder / "s.yaml", make_scenario("q"))
    agents = (f"garbled=1,tokens=24,fixed={NINE}", "silent=1,tone", f"cut=1,fixed={SHORT}", f"wordless=1,fixed={SHORT}")
    with virtual_time():
        return call_all(folder / "home", [file], [f"fake-voice:{each}" for each in agents])


def read_guard(result: Result) -> Any:
    return find_check(result, "call").evidence["guard"]


def find_by_fault(guarded: VoiceRun, fault: str) -> Result:
    (model,) = (each.typed for each in guarded.run.plan.targets if each.typed.startswith(f"fake-voice:{fault}"))
    return guarded.find("q", model)


def test_a_pass_is_errored_if_the_sound_contradicts_the_transcript(faulty_agents: VoiceRun) -> None:
    garbled = find_by_fault(faulty_agents, "garbled")
    assert find_check(garbled, "regex").outcome is PASSED
    assert (garbled.outcome, read_guard(garbled)["state"]) == (ERRORED, "contradicts")
    assert "the recording contradicts the transcript" in find_check(garbled, "call").reason


def test_silence_is_errored_and_its_time_is_censored(faulty_agents: VoiceRun) -> None:
    silent = find_by_fault(faulty_agents, "silent")
    assert silent.outcome is ERRORED
    assert "no answer to line 1 within 2.0 s" in find_check(silent, "call").reason
    _, shown = run_pramana(faulty_agents.home, "show", "--json")
    rows = {each["model"]: each["voice_to_voice"] for each in json.loads(shown)["voice"]["by"]}
    assert len(rows) == 4
    times = rows[silent.key.model]
    assert (times["n"], times["censored"], times["max"]["relation"]) == (1, 1, ">")
    assert times["max"]["value"] == pytest.approx(2.0, abs=0.1)


def test_a_dropped_call_is_errored_and_its_words_are_not_judged(faulty_agents: VoiceRun) -> None:
    cut = find_by_fault(faulty_agents, "cut")
    assert cut.outcome is ERRORED
    assert [each.name for each in cut.checks] == ["call"]
    assert "the call was cut off: cut off on purpose" in find_check(cut, "call").reason


def test_an_answer_without_text_is_transcribed_by_the_embedded_speech_recognition(faulty_agents: VoiceRun) -> None:
    wordless = find_by_fault(faulty_agents, "wordless")
    assert wordless.outcome is PASSED
    assert wordless.reply is not None
    assert "we open" in wordless.reply.text.lower()
    assert read_guard(wordless)["reason"] == "not checked: the agent gave no transcript of what it said"


def test_errors_are_not_failures_and_every_result_is_counted(faulty_agents: VoiceRun) -> None:
    _, shown = run_pramana(faulty_agents.home, "show", "--json")
    overall = json.loads(shown)["overall"]
    assert {name: overall[name] for name in ("total", "passed", "failed", "errored")} == {
        "total": 4,
        "passed": 1,
        "failed": 0,
        "errored": 3,
    }


def test_words_in_an_unsupported_language_are_unscored_and_the_guard_says_so(tmp_path: Path) -> None:
    file = write_scenarios(tmp_path / "s.yaml", make_scenario("de", "Wann machen Sie auf?", language="de"))
    without_text, with_text = "fake-voice:wordless=1,fixed=Um neun.", "fake-voice:fixed=../../Um fünf" + "…" * 200
    spoken = call_all(tmp_path / "home", [file], [without_text, with_text])
    unscored = spoken.find("de", without_text)
    assert unscored.outcome is UNSCORED
    assert find_check(unscored, "rubric").reason == "no STT for de"
    passed = spoken.find("de", with_text)
    assert (passed.outcome, read_guard(passed)["reason"]) == (PASSED, "not checked: no STT for de")
    # and file names of exported calls are safe for any model name
    code, _ = run_pramana(spoken.home, "export", "--audio", tmp_path / "audio")
    names = [path.name for path in (tmp_path / "audio").iterdir()]
    assert (code, len(names)) == (0, 4)
    assert all(name.isascii() and len(name) < 150 and name[0] not in ".-" for name in names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audio", "home", "s.yaml"]


def test_a_speech_to_text_model_transcribes_languages_the_embedded_one_lacks(tmp_path: Path) -> None:
    file = write_scenarios(tmp_path / "s.yaml", make_scenario("de", "Wann machen Sie auf?", language="de"))

    async def go() -> tuple[VoiceRun, list[Any]]:
        async with SpeechLoopback("Um neun Uhr.") as server:
            with open_home(tmp_path / "home") as store:
                agent = ["fake-voice:wordless=1,fixed=Um neun."]
                ended = await execute_run(store, [file], agent, stt=f"{server.url}#ears")
                return VoiceRun(
                    tmp_path / "home", ended, list(store.results.iterate_with_cases(ended.id))
                ), server.asked

    spoken, asked = asyncio.run(go())
    written = spoken.find("de")
    assert written.outcome is PASSED
    assert written.reply is not None
    assert written.reply.text == "Um neun Uhr."
    words: Any = find_check(written, "call").evidence["words"]
    assert words["recorded"] == "Um neun Uhr."
    assert {(fields["model"], fields["language"]) for _, _, fields in asked} == {("ears", "de")}


@pytest.mark.parametrize(("status", "ends"), [(429, "finished"), (401, "stopped")])
def test_failing_speech_recognition_loses_words_but_neither_calls_nor_times(
    status: int, ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_scenarios(tmp_path / "s.yaml", make_scenario("de", "Wann machen Sie auf?", language="de"))
    dials: list[CallSetup] = []
    dial = FakeVoice.dial

    async def record_and_dial(agent: FakeVoice, given: CallSetup) -> Any:
        dials.append(given)
        return await dial(agent, given)

    monkeypatch.setattr(FakeVoice, "dial", record_and_dial)

    async def go() -> VoiceRun:
        async with SpeechLoopback("Um neun Uhr.", status=status) as server:
            with open_home(tmp_path / "home") as store:
                agent = ["fake-voice:wordless=1,fixed=Um neun."]
                ended = await execute_run(store, [file], agent, stt=f"{server.url}#ears")
                return VoiceRun(tmp_path / "home", ended, list(store.results.iterate_with_cases(ended.id)))

    spoken = asyncio.run(go())
    assert (spoken.run.status, len(dials)) == (ends, 1)
    result = spoken.find("de")
    assert result.outcome is UNSCORED
    measured = find_check(result, "call")
    evidence: Any = measured.evidence
    assert measured.outcome is PASSED
    assert 0.2 < evidence["times"]["lines"][0]["voice_to_voice_s"] < 2
    assert evidence["words"]["why_not"].startswith("the answer could not be transcribed: ")
    assert find_check(result, "rubric").reason == evidence["words"]["why_not"]
    limits = spoken.run.notes["limits"]
    assert all("rate limit" not in str(limits[name]) for name in limits if "(called)" in name)


def test_an_interrupted_answer_of_unknown_heard_length_is_unscored(tmp_path: Path) -> None:
    nine = {"type": "contains", "ideal": "neun"}
    turns = [{"say": "Halt, bitte.", "barge_in": 0.4, "assert": nine}]
    talk = make_scenario("de", "Wann machen Sie auf?", nine, language="de", turns=turns)
    agent = "fake-voice:fixed=Wir machen jeden Morgen um neun Uhr auf."
    spoken = call_all(tmp_path / "home", [write_scenarios(tmp_path / "s.yaml", talk)], [agent])
    first, second = (each for each in spoken.find("de").checks if "line" in each.evidence)
    assert (first.outcome, first.evidence["line"]) == (UNSCORED, 0)
    assert first.reason == "the answer was cut off, and the part that was played is unknown"
    assert (second.outcome, second.evidence["line"]) == (PASSED, 1)
    reply = spoken.find("de").reply
    assert reply is not None
    assert reply.text.count("neun") == 2  # the agent's own text is kept for readers


def test_a_recording_that_cannot_be_transcribed_keeps_its_times(conversation: VoiceRun) -> None:
    class Deaf:
        def supports_language(self, language: str) -> bool:
            return language == "en"

        async def transcribe(self, _samples: Any, _language: str) -> str:
            raise RateLimited("slow down")

    async def go() -> Check:
        with open_home(conversation.home) as store:
            case, result = next(pair for pair in conversation.results if pair[0].id == "talk")
            assert result.reply is not None
            return await CallScorer(store.blobs.get, Deaf()).score(case, result.reply)

    found = asyncio.run(go())
    before: Any = find_check(conversation.find("talk"), "call")
    evidence: Any = found.evidence
    assert found.outcome is PASSED
    assert evidence["times"] == before.evidence["times"]
    why = "the recording could not be transcribed: slow down"
    assert (evidence["words"]["why_not"], evidence["words"]["recorded"]) == (why, None)
    assert evidence["guard"]["reason"] == f"not checked: {why}"


def test_an_agent_that_fails_during_a_call_leaves_a_recording(tmp_path: Path) -> None:
    file = write_scenarios(tmp_path / "s.yaml", make_scenario("q", FRANCE))
    (pair,) = call_all(tmp_path / "home", [file], ["fake:fixed=日本"], Limits(), modalities=("voice",)).results
    result = pair[1]
    assert result.outcome is ERRORED
    assert "the call was cut off: the agent's voice cannot speak the answer" in find_check(result, "call").reason
    assert read_caller_lines(result)
    assert run_pramana(tmp_path / "home", "export", "--audio", tmp_path / "audio")[0] == 0
    assert len(list((tmp_path / "audio").glob("*.wav"))) == 1


# ── Vendors ──


def patch_account(patch: pytest.MonkeyPatch, model: str, url: str, key: str = KEY) -> None:
    name = {"openai-realtime": "OPENAI", "elevenlabs": "ELEVENLABS"}[model.partition(":")[0]]
    patch.setenv(f"{name}_BASE_URL", url)
    patch.setenv(f"{name}_API_KEY", key)


VENDORS: list[tuple[str, type[Agent]]] = [
    ("openai-realtime:gpt-realtime", RealtimeAgent),
    ("elevenlabs:agent-1", ElevenLabsAgent),
]


def test_vendor_agents_are_called_and_their_keys_are_stored_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pramana.run.call.MAX_GREETING_WAIT_S", 0.3)
    file, home = write_scenarios(tmp_path / "s.yaml", make_scenario("q")), tmp_path / "home"
    sound = audio.encode("pcm", audio.resample(speak(NINE, "en"), 16000, 24000))
    script = Script(sound=sound, text=NINE, heard="When do you open?")

    async def go() -> tuple[VoiceRun, list[Any]]:
        async with AsyncExitStack() as stack:
            servers = []
            for model, agent in VENDORS:
                servers.append(await stack.enter_async_context(VoiceLoopback(agent, script, key=KEY)))
                patch_account(monkeypatch, model, servers[-1].url)
            with open_home(home) as store:
                ended = await execute_run(store, [file], [model for model, _ in VENDORS])
                return VoiceRun(home, ended, list(store.results.iterate_with_cases(ended.id))), [
                    server.requests for server in servers
                ]

    spoken, asked = asyncio.run(go())
    for (model, _), requests in zip(VENDORS, asked, strict=True):
        result = spoken.find("q", model)
        assert result.outcome is PASSED, result
        assert result.reply is not None
        assert result.reply.text == NINE
        evidence: Any = find_check(result, "call").evidence
        assert evidence["guard"]["state"] == "ok"
        assert evidence["words"]["heard"]["count"] == 0
        assert 0.2 < evidence["times"]["lines"][0]["voice_to_voice_s"] < 2
        assert any(KEY in value for got in requests for value in got.headers.values())  # the key was sent to its vendor
    told = [run_pramana(home, "show")[1], run_pramana(home, "show", "--json")[1]]
    told += [run_pramana(home, "export", "--format", kind)[1] for kind in ("json", "csv", "junit", "markdown", "html")]
    assert run_pramana(home, "export", "--audio", home / "audio")[0] == 0
    assert KEY not in "".join(told)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(("model", "agent"), VENDORS)
def test_a_wrong_key_stops_the_run_with_one_sentence(
    model: str, agent: type[Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_scenarios(tmp_path / "s.yaml", *(make_scenario(f"q-{number}", language="de") for number in range(20)))
    wrong = "sk-wrong-0123456789abcdef"

    async def go() -> tuple[int | None, str, int]:
        async with VoiceLoopback(agent, key=KEY) as server:
            patch_account(monkeypatch, model, server.url, wrong)
            command = (sys.executable, "-m", "pramana", "run", str(file), "--model", model)
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=make_environment())
            said = b"".join(await asyncio.wait_for(process.communicate(), 60))
            return process.returncode, said.decode(), len(server.requests)

    code, said, count = asyncio.run(go())
    assert code == 3
    sentences = [line for line in said.splitlines() if line.startswith("pramana: ")]
    assert len(sentences) == 1, said
    assert "rejected the API key" in sentences[0]
    assert "Traceback" not in said
    assert wrong not in said
    assert count <= 8


# ── Options ──


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modality", "vioce"], '--modality: "vioce" is not one of text, voice, noisy; did you mean "voice"?'),
        (["--modality", "voice,"], '--modality: "" is not one of'),
        (["--condition", "noise=loud"], 'condition "noise=loud" needs a number and its unit, dB: write noise=10dB'),
        (["--condition", "nosie=10dB"], 'did you mean "noise"'),
        (["--modality", "noisy", "--condition", "noise=5dB"], 'condition "noise" appears twice'),
        (
            ["--modality", "text", "--condition", "phone"],
            "--condition: a condition applies to speech only; add voice to the modality",
        ),
        (["--model", "fake:echo"], "the models include both text models and voice agents"),
        (["--stt", "local"], "is not a speech-to-text model"),
    ],
)
def test_invalid_voice_options_are_refused_before_any_call(arguments: list[str], message: str, tmp_path: Path) -> None:
    file = write_scenarios(tmp_path / "s.yaml", make_scenario("q"))
    home = tmp_path / "home"
    code, output = run_pramana(home, "run", file, "--model", "fake-voice:tone", *arguments)
    assert code == 2
    assert message in output
    assert json.loads(run_pramana(home, "runs", "--json")[1]) == []


@pytest.mark.parametrize(
    ("arguments", "variants"),
    [
        ([], ("voice",)),
        (["--condition", "phone,noise=5dB"], ("voice+noise=5dB,phone",)),
        (["--condition", "clean"], ("voice",)),
        (
            ["--modality", "noisy,voice,voice", "--condition", "reverb=0.4s"],
            ("voice+reverb=0.4s,noise=10dB", "voice+reverb=0.4s"),
        ),
    ],
)
def test_a_variant_is_normalised_to_one_spelling(
    arguments: list[str], variants: tuple[str, ...], tmp_path: Path
) -> None:
    kanji = write_scenarios(tmp_path / "ja.yaml", make_scenario("kanji", "営業時間は何時からですか", language="ja"))
    home = tmp_path / "home"
    run_pramana(home, "run", kanji, "--model", "fake-voice:tone", "--quiet", *arguments)
    with open_home(home) as store:
        run = store.runs.find("latest")
    assert (run.plan.variants, run.stored) == (variants, len(variants))
