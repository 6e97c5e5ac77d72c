"""Runs of the embedded models end correctly whatever the models say and hear: five faults, and a slow machine.

Every test is about structure and limits, never about words a model happened to choose.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from pramana import audio, clock, settings
from pramana.bench import Progress, add_scoring_to_run, execute
from pramana.embedded import ears, language
from pramana.model import Case, Check, Outcome, Result, Run
from pramana.planning import create_run
from pramana.providers.voice.cascade import MAX_ANSWER_S, NO_ANSWER_APOLOGY, NOT_UNDERSTOOD_APOLOGY
from pramana.report.summary import summarise_run
from pramana.request import Limits, RunRequest
from pramana.run.call import STAGES
from pramana.score.evidence import SYNTHESISED_HERE_REASON
from pramana.show.web.pages.welcome import FILE, SCENARIO
from pramana.store import open_store
from pramana.store.store import Store

from ..embedded_faults import (
    FAULTS,
    LONG_WORDS,
    WRONG_WORDS,
    Fault,
    FaultyServer,
    fault_environment,
    make_loader,
    use_fault,
)
from ..virtual_time import virtual_time

LIBRARY = Path(settings.__file__).parent / "scenarios"
DESK_SCENARIO = Path(__file__).parents[2] / "docs" / "examples" / "desk.yaml"
LONGEST_S = 30.0
OF_THE_MODEL = ("loop", "empty", "long")
HEARD = "What is the largest ocean on Earth?"


@dataclass
class Call:
    """A run of one case, on virtual time."""

    home: Path
    run: Run
    pairs: list[tuple[Case, Result]]
    seconds: float
    stages: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def result(self) -> Result:
        ((_, result),) = self.pairs
        return result

    @property
    def text(self) -> str:
        assert self.result.reply
        return self.result.reply.text


@contextmanager
def inject_fault(fault: Fault) -> Iterator[None]:
    """Virtual time and a fault; unless the fault is in speech recognition, it is deterministic and immediate."""
    with virtual_time(), patch.object(ears.WhisperModel, "transcribe", lambda _self, _samples: HEARD), use_fault(fault):
        yield


@contextmanager
def open_home(home: Path) -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PRAMANA_HOME", str(home))
        with closing(open_store(settings.database_url())) as store:
            yield store


def check(result: Result, name: str) -> Check:
    (found,) = (each for each in result.checks if each.name == name)
    return found


def execute_run(home: Path, model: str, *paths: Path, **given: Any) -> Call:
    """Execute a run and record the call stages that its progress reports."""
    stages: list[str] = []

    def watch(progress: Progress) -> None:
        now = "+".join(progress.count_calls())
        if now and (not stages or stages[-1] != now):
            stages.append(now)

    with open_home(home) as store:
        run = create_run(store, RunRequest(paths=paths, models=(model,), **given))
        began = clock.monotonic()
        ended = asyncio.run(execute(store, run, Limits(), watch))
        seconds = clock.monotonic() - began
        pairs = list(store.results.iterate_with_cases(ended.id))
        call = next((result.reply.call for _, result in pairs if result.reply and result.reply.call), None)
        events = [json.loads(line) for line in store.blobs.get(call.log).splitlines()] if call else []
    return Call(home, ended, pairs, seconds, stages, events)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Fault, Call]:
    """The first call, once with each fault."""
    found: dict[Fault, Call] = {}
    for fault in FAULTS:
        with inject_fault(fault):
            found[fault] = execute_run(tmp_path_factory.mktemp(fault), "local-voice", LIBRARY / FILE)
    return found


def count_most_repeated(text: str) -> int:
    """Return how often the most common sequence of three words occurs."""
    words = re.findall(r"\w+", text.casefold())
    return max(Counter(zip(words, words[1:], words[2:], strict=False)).values(), default=0)


# ── The faults themselves ──

CHILD = """
import numpy, sys
from pramana.embedded import language
from pramana.embedded.ears import WhisperModel
from pramana.model import Turn

if sys.argv[1] in ("deaf", "wrong-words"):
    print(WhisperModel(None).transcribe(numpy.ones(16000, numpy.int16)))
else:
    print(language.get_engine().submit((Turn("user", "Hi"),), {"max_tokens": 30}, lambda: False).result().text)
"""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_child_process_inherits_the_fault(fault: Fault) -> None:
    environment = {**os.environ, **fault_environment(fault)}  # noqa: TID251 - a child gets what a child gets
    child = subprocess.run(
        [sys.executable, "-c", CHILD, fault], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    words = child.stdout.split()
    expected = {"loop": 30, "empty": 0, "long": LONG_WORDS, "wrong-words": len(WRONG_WORDS.split()), "deaf": 0}
    assert len(words) == expected[fault], child.stdout


# ── Hear a call ──


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_call_ends_in_time_without_an_error(calls: Mapping[Fault, Call], fault: Fault) -> None:
    call = calls[fault]
    ((case, result),) = call.pairs
    assert (case.id, call.run.status, call.run.stored) == (SCENARIO, "finished", 1)
    assert call.seconds < LONGEST_S
    assert result.reply is not None
    assert result.reply.finish_reason == "done"
    assert result.outcome in (Outcome.PASSED, Outcome.FAILED)  # by its assertion, whatever the reply; never errored
    heard = check(result, "call")
    assert heard.outcome is Outcome.PASSED, heard.reason
    evidence: Any = heard.evidence
    assert evidence["times"]["lines"][0]["voice_to_voice_s"] > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_an_answer_is_short_and_plain_without_repetition(calls: Mapping[Fault, Call], fault: Fault) -> None:
    call = calls[fault]
    assert re.search(r"\w", call.text)
    assert count_most_repeated(call.text) < 3
    assert call.text.rstrip()[-1] in ".!?\"'”’"
    spoken = [each for each in call.events if each["event"] == "agent_audio"]
    assert 0 < sum(each["seconds"] for each in spoken) <= MAX_ANSWER_S
    assert [each["text"] for each in call.events if each["event"] == "agent_text"] == [call.text]


def test_each_fault_changes_what_the_agent_says(calls: Mapping[Fault, Call]) -> None:
    assert calls["empty"].text == NO_ANSWER_APOLOGY
    assert calls["deaf"].text == NOT_UNDERSTOOD_APOLOGY
    assert len(calls["long"].text.split()) < LONG_WORDS / 10
    heard = [each for each in calls["wrong-words"].events if each["event"] == "user_text" and each["final"]]
    assert [each["text"] for each in heard] == [WRONG_WORDS]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_guard_records_that_the_sound_was_synthesised_from_the_words(
    calls: Mapping[Fault, Call], fault: Fault
) -> None:
    call = calls[fault]
    assert call.events[0]["synthesised_here"] is True
    guard = check(call.result, "call").evidence["guard"]
    assert guard == {"state": "not checked", "reason": SYNTHESISED_HERE_REASON, "rate": None}
    assert SYNTHESISED_HERE_REASON in check(call.result, "call").reason


def test_desk_yaml_ends_in_time_as_failed_not_errored(tmp_path: Path) -> None:
    with inject_fault("loop"):
        call = execute_run(tmp_path, "local-voice", DESK_SCENARIO)
    assert (call.run.status, call.result.outcome) == ("finished", Outcome.FAILED)
    assert call.seconds < LONGEST_S


@pytest.mark.parametrize("seconds_a_word", [0.5, 60.0])
def test_a_slow_machine_answers_in_time(tmp_path: Path, seconds_a_word: float) -> None:
    slow = FaultyServer("long", seconds_a_word)
    with inject_fault("long"), patch.object(language.Engine, "_load", make_loader(slow)):
        call = execute_run(tmp_path, "local-voice", DESK_SCENARIO)
    assert check(call.result, "call").outcome is Outcome.PASSED
    assert re.search(r"\w", call.text)
    if seconds_a_word < 1:
        assert call.text.startswith("word1")
        assert call.seconds < LONGEST_S


# ── Live progress ──


@pytest.mark.parametrize("fault", FAULTS)
def test_progress_reports_every_call_stage_in_order(calls: Mapping[Fault, Call], fault: Fault) -> None:
    assert calls[fault].stages == list(STAGES)


# ── Ask the embedded model ──


@pytest.mark.parametrize("fault", OF_THE_MODEL)
def test_a_first_run_of_the_text_model_has_no_errors(tmp_path: Path, fault: Fault) -> None:
    with inject_fault(fault):
        found = execute_run(tmp_path, "local", suite="v1.0", tier="cheap")
    assert (found.run.status, len(found.pairs)) == ("finished", found.run.expected)
    assert {result.outcome for _, result in found.pairs} <= {Outcome.PASSED, Outcome.FAILED, Outcome.UNSCORED}
    words = {len(result.reply.text.split()) for _, result in found.pairs if result.reply}
    expected = {"loop": {language.MAX_REPLY_TOKENS}, "empty": {0}, "long": {LONG_WORDS}}
    assert words == expected[fault]  # a text model's replies are not touched


# ── Rescoring ──


@pytest.mark.parametrize("fault", FAULTS)
def test_a_stored_call_can_be_rescored(calls: Mapping[Fault, Call], fault: Fault) -> None:
    call = calls[fault]
    with open_home(call.home) as store, inject_fault(fault):
        number = asyncio.run(add_scoring_to_run(store, call.run, "fake:fixed=YES", Limits()))
        ((_, again),) = store.results.iterate_with_cases(call.run.id, scoring=number)
    assert check(again, "call").outcome is Outcome.PASSED
    assert check(again, "call").evidence["guard"] == check(call.result, "call").evidence["guard"]
    assert again.outcome is not Outcome.ERRORED


# ── Voice tax ──


@pytest.mark.parametrize("fault", FAULTS)
def test_the_voice_tax_covers_every_case(tmp_path: Path, fault: Fault) -> None:
    with inject_fault(fault):
        found = execute_run(tmp_path, "local", DESK_SCENARIO, modalities=("text", "voice"))
    assert {result.key.variant for _, result in found.pairs} == {"text", "voice"}
    assert {result.outcome for _, result in found.pairs} <= {Outcome.PASSED, Outcome.FAILED}
    with open_home(tmp_path) as store:
        summary: Any = summarise_run(store, found.run).as_data()
    (tax,) = summary["voice"]["tax"]
    assert (tax["variant"], tax["pairs"], tax["excluded"]) == ("voice", 1, 0)


def test_the_recording_contains_both_sides(calls: Mapping[Fault, Call]) -> None:
    call = calls["long"].result.reply
    assert call
    assert call.call
    with open_home(calls["long"].home) as store:
        samples, rate = audio.read_wav(store.blobs.get(call.call.recording))
    assert audio.level_dbfs(samples[:, 0]) > audio.SILENT_DBFS
    assert audio.level_dbfs(samples[:, 1]) > audio.SILENT_DBFS
    assert len(samples) / rate < LONGEST_S
