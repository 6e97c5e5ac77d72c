"""Conditions of a sound: spelling, exact ratios, equal bytes for equal seeds, and no clipping."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from pramana import audio
from pramana.audio import BadAudio, Samples
from pramana.audio.conditions import NOISE_KINDS, Conditions, conditions_digest, parse_conditions
from pramana.audio.effects import apply_conditions
from pramana.audio.noises import RandomNumbers, make_babble, make_music, make_street_noise
from pramana.errors import InvalidInput

RATE = 16_000


def make_speech(seconds: float = 4.0, level: float = 4_000) -> Samples:
    """Bursts of a voice-like hum with pauses, without any engine."""
    time = np.arange(int(seconds * RATE)) / RATE
    hum = sum(np.sin(2 * np.pi * 130 * harmonic * time) / harmonic for harmonic in range(1, 20))
    syllables = np.clip(np.sin(2 * np.pi * 3 * time), 0, 1) * (time % 2 < 1.4)
    return np.rint(level * hum * syllables).astype(np.int16)


# ── Spelling ──


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("noise=10dB", "noise=10dB"),
        ("noise=10dB:babble", "noise=10dB"),
        ("noise=10dB:street", "noise=10dB:street"),
        ("NOISE = 10.0 db : Music", "noise=10dB:music"),
        ("noise=-5dB", "noise=-5dB"),
        ("noise=+7.50dB", "noise=7.5dB"),
        ("phone,noise=10dB", "noise=10dB,phone"),
        ("loss=5%, phone ,gain=-12dB,reverb=0.4s", "reverb=0.4s,gain=-12dB,phone,loss=5%"),
        ("gain=-0dB", "gain=0dB"),
        ("clean", "clean"),
    ],
)
def test_conditions_have_one_canonical_spelling(written: str, canonical: str) -> None:
    found = parse_conditions(written)
    assert str(found) == canonical
    assert parse_conditions(canonical) == found
    assert bool(found) == (canonical != "clean")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", 'condition "" is not known'),
        ("nois=10dB", 'condition "nois=10dB" is not known; did you mean "noise"?; allowed: noise=10dB'),
        ("noise=10dB,,phone", 'condition "" is not known'),
        ("noise", 'condition "noise" needs a number and its unit, dB: write noise=10dB'),
        ("noise=10", "needs a number and its unit, dB"),
        ("noise=10%", "needs a number and its unit, dB"),
        ("noise=loud", "needs a number and its unit, dB"),
        ("noise=1e3dB", "needs a number and its unit, dB"),
        ("noise=٣dB", "needs a number and its unit, dB"),
        ("noise=nandB", "needs a number and its unit, dB"),
        ("noise=100dB", 'condition "noise=100dB" is out of range: -20dB to 40dB are allowed'),
        ("noise=10dB:traffic", 'noise "traffic" in "noise=10dB:traffic" is not known'),
        ("noise=10dB:stret", 'did you mean "street"?; allowed: babble, street, music'),
        ("noise=10dB:", 'noise "" in "noise=10dB:" is not known'),
        ("phone=1", 'condition "phone=1" takes no value: write "phone"'),
        ("loss=0%", "out of range: 0.1% to 50%"),
        ("loss=100%", "out of range: 0.1% to 50%"),
        ("reverb=9s", "out of range: 0.1s to 3s"),
        ("gain=12dB:music", "needs a number and its unit"),
        ("noise=10dB,noise=5dB", '"noise" appears twice'),
        ("clean,phone", 'condition "clean" is not known'),
        ("x" * 5000, "is not known"),
    ],
)
def test_an_invalid_condition_names_the_bad_part_and_the_allowed_values(written: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_conditions(written)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


# ── Noise ──


@pytest.mark.parametrize("kind", NOISE_KINDS)
@pytest.mark.parametrize("ratio", [-5, 0, 10, 20, 40])
def test_the_signal_to_noise_ratio_is_exact(kind: str, ratio: int) -> None:
    clean = make_speech(level=1_000)
    noisy = apply_conditions(Conditions(noise=ratio, noise_kind=kind), clean, seed=3)
    noise = noisy.astype(float) - clean
    measured = audio.active_level_dbfs(clean, RATE) - 10 * np.log10(np.mean(noise**2) / 32768**2)
    assert measured == pytest.approx(ratio, abs=0.1)


def test_a_mix_that_would_clip_is_attenuated_at_the_same_ratio() -> None:
    clean = make_speech(level=14_000)
    noisy = apply_conditions(parse_conditions("noise=0dB"), clean, seed=3)
    assert audio.clipped_share(noisy) <= 2 / len(noisy)
    quiet = make_speech(level=1_000)  # the same noise, where nothing is turned down
    noise = apply_conditions(parse_conditions("noise=0dB"), quiet, seed=3).astype(float) - quiet
    of_speech, of_noise = np.linalg.lstsq(np.stack([quiet.astype(float), noise], axis=1), noisy.astype(float))[0]
    assert 5 < of_speech < 13.5
    assert 20 * np.log10(of_speech / of_noise) == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("make", [make_babble, make_street_noise, make_music])
def test_noise_lasts_from_beginning_to_end(make: object) -> None:
    assert callable(make)
    noise = make(8 * RATE, RATE, RandomNumbers(1, "test"))
    halves = [float(np.sqrt(np.mean(part**2))) for part in np.split(noise, 8)]
    assert max(halves) < 5 * min(halves)
    for length in (1, 100, 15_999):
        assert make(length, RATE, RandomNumbers(1, "test")).shape == (length,)


def test_babble_has_the_spectrum_and_rhythm_of_speech() -> None:
    noise = make_babble(20 * RATE, RATE, RandomNumbers(2, "test"))
    power = np.abs(np.fft.rfft(noise)) ** 2
    hertz = np.fft.rfftfreq(len(noise), 1 / RATE)
    speech_band = power[(hertz > 100) & (hertz < 4000)].sum() / power.sum()
    envelope = np.abs(noise).reshape(-1, 160).mean(axis=1)
    rhythm = np.abs(np.fft.rfft(envelope - envelope.mean())) ** 2
    beats = np.fft.rfftfreq(len(envelope), 0.01)
    syllables = rhythm[(beats > 1) & (beats < 9)].sum() / rhythm[beats > 0].sum()
    assert speech_band > 0.9
    assert syllables > 0.6


# ── The line ──


def test_the_telephone_condition_keeps_only_its_band() -> None:
    time = np.arange(2 * RATE) / RATE
    levels = {}
    for hertz in (100, 400, 1000, 3000, 5000, 7000):
        tone = np.rint(8000 * np.sin(2 * np.pi * hertz * time)).astype(np.int16)
        heard = apply_conditions(Conditions(phone=True), tone, seed=1)
        levels[hertz] = audio.level_dbfs(heard) - audio.level_dbfs(tone)
    assert all(abs(levels[hertz]) < 0.3 for hertz in (400, 1000, 3000))
    assert all(levels[hertz] < -35 for hertz in (100, 5000, 7000))


def test_the_telephone_condition_is_mu_law_coded() -> None:
    def change_by_mu_law(sound: Samples) -> float:
        line = audio.resample(sound, RATE, 8_000)
        coded = audio.decode("mulaw", audio.encode("mulaw", line))
        return audio.level_dbfs(coded - line) - audio.level_dbfs(line)

    assert change_by_mu_law(make_speech()) > -42
    assert change_by_mu_law(apply_conditions(Conditions(phone=True), make_speech(), seed=1)) < -48  # it is one already


@pytest.mark.parametrize("percent", [5, 20])
def test_packet_loss_occurs_in_bursts_at_the_stated_rate(percent: int) -> None:
    sound = np.full(20 * 60 * RATE // 4, 1000, np.int16)  # five minutes
    heard = apply_conditions(Conditions(loss=percent), sound, seed=5).reshape(-1, 320)
    lost = ~heard.any(axis=1)
    assert (heard[~lost] == 1000).all()
    assert 100 * lost.mean() == pytest.approx(percent, rel=0.15)
    borders = np.flatnonzero(np.diff(np.concatenate([[False], lost, [False]]).astype(int)))
    bursts = borders[1::2] - borders[::2]
    assert bursts.mean() == pytest.approx(3, rel=0.15)
    assert bursts.max() > 6


@pytest.mark.parametrize("seconds", [0.3, 0.8])
def test_reverb_decays_60_db_in_the_stated_time(seconds: float) -> None:
    clap = np.zeros(3 * RATE, np.int16)
    clap[0] = 32767
    heard = apply_conditions(Conditions(reverb=seconds), clap, seed=1).astype(float)
    tail = heard[100 : int(seconds * RATE)] ** 2
    left = 10 * np.log10(np.cumsum(tail[::-1])[::-1] / tail.sum())
    from_5_to_25 = np.argmax(left < -25) - np.argmax(left < -5)
    assert 3 * from_5_to_25 / RATE == pytest.approx(seconds, rel=0.1)
    assert heard[0] == pytest.approx(32767 * 0.5**0.5, abs=1)


def test_gain_is_exact_and_refused_if_it_would_clip() -> None:
    quiet = apply_conditions(Conditions(gain=-12), make_speech(), seed=1)
    assert audio.level_dbfs(quiet) - audio.level_dbfs(make_speech()) == pytest.approx(-12, abs=0.01)
    with pytest.raises(BadAudio, match=r"gain=40dB would clip this sound: at most 1\d\.?\d? dB is possible"):
        apply_conditions(Conditions(gain=40), make_speech(), seed=1)


# ── All ──

EVERY = ["noise=10dB", "noise=0dB:street", "noise=5dB:music", "phone", "loss=20%", "gain=-12dB", "reverb=0.4s",
         "reverb=0.4s,noise=10dB,gain=-6dB,phone,loss=5%"]  # fmt: skip


@pytest.mark.parametrize("written", EVERY)
def test_equal_seeds_give_equal_bytes_and_others_differ(written: str) -> None:
    conditions = parse_conditions(written)
    first = apply_conditions(conditions, make_speech(), seed=11)
    assert first.dtype == np.int16
    assert np.array_equal(first, apply_conditions(conditions, make_speech(), seed=11))
    rolls_dice = written not in {"phone", "gain=-12dB"}
    assert np.array_equal(first, apply_conditions(conditions, make_speech(), seed=12)) != rolls_dice
    assert (
        conditions_digest(conditions, 11)
        == conditions_digest(parse_conditions(str(conditions)), 11)
        != conditions_digest(conditions, 12)
    )


@pytest.mark.parametrize("written", EVERY)
@pytest.mark.parametrize("length", [0, 1, 7, 319, 321, 4_001])
def test_conditions_keep_the_length(written: str, length: int) -> None:
    assert len(apply_conditions(parse_conditions(written), make_speech()[16_000 : 16_000 + length], seed=1)) == length


def test_without_conditions_the_sound_is_unchanged_and_inputs_are_never_modified() -> None:
    given = make_speech()
    kept = given.copy()
    assert np.array_equal(apply_conditions(Conditions(), given, seed=1), given)
    for written in EVERY:
        apply_conditions(parse_conditions(written), given, seed=1)
    assert np.array_equal(given, kept)


@pytest.mark.parametrize("written", [each for each in EVERY if not each.startswith("gain")])
def test_loud_input_is_never_clipped(written: str) -> None:
    loud = np.rint(32767 * np.sin(2 * np.pi * 500 * np.arange(2 * RATE) / RATE)).astype(np.int16)
    assert (
        audio.clipped_share(apply_conditions(parse_conditions(written), loud, seed=2))
        <= audio.clipped_share(loud) + 0.0002
    )


def test_an_additional_condition_does_not_change_the_randomness_of_others() -> None:
    both = apply_conditions(parse_conditions("noise=10dB,loss=20%"), make_speech(), seed=4).reshape(-1, 320)
    noise = apply_conditions(parse_conditions("noise=10dB"), make_speech(), seed=4).reshape(-1, 320)
    arrived = both.any(axis=1)
    assert 0.3 < arrived.mean() < 1
    assert np.array_equal(both[arrived], noise[arrived])


def test_lower_ratios_give_louder_noise_and_silence_gets_none() -> None:
    levels = [
        audio.level_dbfs(apply_conditions(Conditions(noise=ratio), make_speech(level=1_000), 1))
        for ratio in (30, 20, 10, 0, -10)
    ]
    assert all(one < other for one, other in pairwise(levels))
    assert not apply_conditions(Conditions(noise=0), np.zeros(8000, np.int16), 1).any()


def test_another_process_gives_the_same_bytes() -> None:
    code = (
        "import numpy as np; from pramana import audio; from pramana.audio.conditions import parse_conditions; apply = audio.apply_conditions\n"
        "x = (np.arange(32000) * 77 % 9001 - 4500).astype(np.int16)\n"
        f"print(audio.digest_sound(apply(parse_conditions({EVERY[-1]!r}), x, 9), 16000))"
    )
    here = apply_conditions(parse_conditions(EVERY[-1]), (np.arange(32000) * 77 % 9001 - 4500).astype(np.int16), 9)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == audio.digest_sound(here, RATE)
    assert run.stderr == ""
