"""Cases as sound: identical for every model, stored once, and refused if they cannot be spoken."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from pramana import audio
from pramana.audio import BadAudio
from pramana.errors import NotFound
from pramana.model import Assertion, Case, Expected, Facets, Line, SourceLocation, Speech, Turn
from pramana.run import speech
from pramana.run.speech import CannotBeSpoken, SpeechMaker, find_speech_obstacle, make_caller_script, merge_conditions

pytestmark = pytest.mark.usefixtures("virtual_time")
TONE = (9000 * np.sin(np.arange(8000) / 9)).astype(np.int16)


def make_case(text: str = "When do you open?", **given: Any) -> Case:
    language = given.pop("language", None)
    category = given.pop("category", "factual")
    turns = given.pop("turns", (Turn("user", text),))
    return Case("a-1", "test_case", turns, Facets(category, "easy", language), **given)


def make_recorded_case(url: str = "a.wav", folder: str = "here", **given: Any) -> Case:
    return make_case(prompt_audio_url=url, source=SourceLocation(f"{folder}/s.yaml", 1), **given)


class FakeBlobs:
    """Keeps blobs by digest, and hands out recordings, counting how often."""

    def __init__(self, *files: bytes | Exception) -> None:
        self.blobs: dict[str, bytes] = {}
        self.files, self.fetched = list(files), 0

    def keep(self, data: bytes) -> str:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    async def fetch(self, _url: str, _asked: Case) -> bytes:
        self.fetched += 1
        await asyncio.sleep(0)
        found = self.files.pop(0) if len(self.files) > 1 else self.files[0]
        if isinstance(found, Exception):
            raise found
        return found


def speak_case(asked: Case, variant: str = "voice", shelf: FakeBlobs | None = None) -> Speech:
    shelf = shelf or FakeBlobs(NotFound("nothing"))
    return asyncio.run(SpeechMaker(shelf.keep, shelf.fetch).make_speech(asked, variant))


def speak_digest(asked: Case, variant: str = "voice", shelf: FakeBlobs | None = None) -> str:
    (only,) = speak_case(asked, variant, shelf).utterances
    return only.digest


# ── Spoken texts ──


def test_the_last_user_turn_is_spoken() -> None:
    turns = (Turn("user", "Hello."), Turn("assistant", "Good day."), Turn("user", "When do you open?"))
    assert [line.text for line in make_caller_script(make_case(turns=turns))] == ["When do you open?"]
    script = (Line("One?"), Line("Two?", barge_in_s=0.5))
    assert make_caller_script(make_case(script=script)) == script
    assert len(speak_case(make_case(script=script)).utterances) == 2


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (make_case(assertion=Assertion("is_json")), "is_json checks written text"),
        (make_case(assertion=Assertion("json_schema", schema={})), "json_schema checks written text"),
        (make_case(script=(Line("Hi.", expected=(Expected(Assertion("is_json")),)),)), "is_json checks written text"),
        (make_case(category="coding"), "about code"),
        (make_case("What does ```x = 1``` do?"), "about code"),
        (
            make_case(turns=(Turn("user", "Hi."), Turn("assistant", "Yes?"))),
            "the last turn of the case is not the user's",
        ),
        (make_case("営業時間は何時からですか", language="ja"), "Han"),
        (make_case("Hello", language="xx"), 'no voice for language "xx"'),
        (make_case("Привет", language="en"), "reads Latin script"),
        (make_case("🙂", language="en"), "a symbol"),
    ],
)
def test_an_unspeakable_case_is_refused_with_a_reason(asked: Case, reason: str) -> None:
    with pytest.raises(CannotBeSpoken, match=reason):
        speak_case(asked)


def test_cases_whose_assertion_speech_can_meet_are_spoken() -> None:
    assert find_speech_obstacle(make_case(assertion=Assertion("contains"))) is None


# ── The same samples for everyone ──


def test_equal_texts_give_equal_audio_with_the_digest_of_the_stored_blob() -> None:
    shelf = FakeBlobs(b"")
    (first,), (second,) = (speak_case(make_case(), shelf=shelf).utterances for _ in range(2))
    assert first.digest == second.digest
    assert np.array_equal(first.samples, second.samples)
    samples, rate = audio.read_wav(shelf.blobs[first.digest])
    assert rate == audio.CALLER_SAMPLE_RATE
    assert np.array_equal(samples, first.samples)
    assert speak_digest(make_case("When do you close?")) != first.digest


def test_conditions_are_seeded_by_the_sound_and_by_themselves() -> None:
    clean, noisy, again = (speak_digest(make_case(), each) for each in ("voice", *["voice+noise=10dB"] * 2))
    assert noisy == again
    others = {speak_digest(make_case(), each) for each in ("voice+noise=5dB", "voice+noise=10dB:street", "voice+phone")}
    assert len({clean, noisy, *others}) == 5
    assert speak_digest(make_case(conditions="noise=10dB")) == noisy


@pytest.mark.parametrize("conditions", ["noise=10dB", "reverb=0.4s,noise=5dB:street,phone"])
def test_noise_lasts_from_the_first_to_the_last_word_and_silence_around_stays_silent(conditions: str) -> None:
    before, after = np.zeros(16000, np.int16), np.zeros(8000, np.int16)
    file = audio.write_wav(np.concatenate([before, TONE, after]), 16000)
    (only,) = speak_case(make_recorded_case(), f"voice+{conditions}", FakeBlobs(file)).utterances
    (clean,) = speak_case(make_recorded_case(), "voice", FakeBlobs(file)).utterances
    assert len(only.samples) == len(clean.samples)
    first, last = audio.find_first_audible(clean.samples, 16000), audio.find_last_audible(clean.samples, 16000)
    assert first is not None
    assert last is not None
    assert not only.samples[:first].any()
    assert not only.samples[last + 1 :].any()
    assert audio.level_dbfs(only.samples[first : last + 1]) > -40
    # and the noise does not depend on the position of the line in its file
    (alone,) = speak_case(
        make_recorded_case(), f"voice+{conditions}", FakeBlobs(audio.write_wav(TONE, 16000))
    ).utterances
    assert np.array_equal(only.samples[16000:24000], alone.samples)


@pytest.mark.parametrize(
    ("own", "variant", "both"),
    [
        ("", "voice", ""),
        ("phone", "voice", "phone"),
        ("phone", "voice+noise=10dB", "noise=10dB,phone"),
        ("noise=5dB:street,phone", "voice+noise=10dB", "noise=10dB,phone"),
        ("clean", "voice+noise=10dB", "noise=10dB"),
        ("clean", "voice", ""),
    ],
)
def test_conditions_of_a_scenario_apply_unless_the_run_overrides_them(own: str, variant: str, both: str) -> None:
    assert merge_conditions(make_case(conditions=own), variant) == both
    (only,) = speak_case(make_case(conditions=own), variant).utterances
    assert only.digest == speak_digest(make_case(), f"voice+{both}" if both else "voice")


# ── What was recorded ──


def test_a_recording_is_played_bit_for_bit() -> None:
    shelf = FakeBlobs(audio.write_wav(TONE, 16000))
    (only,) = speak_case(make_recorded_case(), shelf=shelf).utterances
    assert np.array_equal(only.samples, TONE)
    assert only.digest == shelf.keep(audio.write_wav(TONE, 16000))


def test_a_recording_is_resampled_to_the_callers_rate() -> None:
    wide = audio.resample(TONE, 16000, 48000)
    (only,) = speak_case(make_recorded_case(), shelf=FakeBlobs(audio.write_wav(wide, 48000))).utterances
    assert abs(len(only.samples) - len(TONE)) <= 1


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (audio.write_wav(np.zeros(16000, np.int16), 16000), "silent"),
        (audio.write_wav(np.where(TONE > 0, 32767, -32768).astype(np.int16), 16000), "clipped"),
        (audio.write_wav(TONE[:800], 16000), "too short"),
        (audio.write_wav(TONE, 16000)[:-100], "cut off"),
        (b"This is no sound.", "the audio is not a WAV"),
        (b"", "empty"),
    ],
)
def test_an_unusable_recording_is_named_in_the_error(file: bytes, reason: str) -> None:
    with pytest.raises(BadAudio, match=f"the recording a.wav cannot be used: .*{reason}"):
        speak_case(make_recorded_case(), shelf=FakeBlobs(file))


@pytest.mark.parametrize("file", [b"This is no sound.", audio.write_wav(np.zeros(16000, np.int16), 16000)])
def test_the_query_of_a_recording_url_is_never_shown(file: bytes) -> None:
    secret = "X-Amz-Signature=0123456789abcdef"
    with pytest.raises(BadAudio) as caught:
        speak_case(
            make_recorded_case(f"https://who:pass@store.example/{'a' * 300}.wav?{secret}"), shelf=FakeBlobs(file)
        )
    assert str(caught.value).startswith("the recording https://store.example/aaaa")
    assert secret not in str(caught.value)
    assert "pass" not in str(caught.value)
    assert len(str(caught.value)) < 400
    with pytest.raises(BadAudio, match=r"the recording take #2\?\.wav cannot be used"):
        speak_case(make_recorded_case("take #2?.wav"), shelf=FakeBlobs(file))


def test_a_missing_recording_is_never_replaced_by_synthesis() -> None:
    with pytest.raises(NotFound, match=r"a\.wav does not exist"):
        speak_case(make_recorded_case(), shelf=FakeBlobs(NotFound("a.wav does not exist")))


# ── Made once ──


def use_speech_maker(shelf: FakeBlobs, use: Callable[[SpeechMaker], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await use(SpeechMaker(shelf.keep, shelf.fetch))

    return asyncio.run(main())


def test_a_line_is_synthesised_once_for_concurrent_and_later_requests() -> None:
    shelf = FakeBlobs(audio.write_wav(TONE, 16000))

    async def use(speaker: SpeechMaker) -> list[Speech]:
        together = await asyncio.gather(*(speaker.make_speech(make_recorded_case(), "voice") for _ in range(8)))
        return [*together, await speaker.make_speech(make_recorded_case(), "voice")]

    found = use_speech_maker(shelf, use)
    assert shelf.fetched == 1
    assert len({each.utterances[0].digest for each in found}) == 1


def test_equal_file_names_in_two_folders_are_distinct() -> None:
    shelf = FakeBlobs(audio.write_wav(TONE, 16000), audio.write_wav(TONE[::-1], 16000))

    async def use(speaker: SpeechMaker) -> list[Speech]:
        return [await speaker.make_speech(make_recorded_case(folder=each), "voice") for each in ("here", "there")]

    first, second = use_speech_maker(shelf, use)
    assert first.utterances[0].digest != second.utterances[0].digest


def test_failures_are_not_cached() -> None:
    shelf = FakeBlobs(NotFound("not yet"), audio.write_wav(TONE, 16000))

    async def use(speaker: SpeechMaker) -> Speech:
        with pytest.raises(NotFound):
            await speaker.make_speech(make_recorded_case(), "voice")
        return await speaker.make_speech(make_recorded_case(), "voice")

    assert np.array_equal(use_speech_maker(shelf, use).utterances[0].samples, TONE)


def test_the_cache_is_bounded_and_evicts_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "MAX_CACHED_LINES", 2)
    shelf = FakeBlobs(audio.write_wav(TONE, 16000))

    async def use(speaker: SpeechMaker) -> list[int]:
        counts = []
        for url in ("a.wav", "b.wav", "a.wav", "c.wav", "a.wav", "b.wav"):
            await speaker.make_speech(make_recorded_case(url), "voice")
            counts.append(shelf.fetched)
        assert len(speaker._cache) == 2
        return counts

    assert use_speech_maker(shelf, use) == [1, 2, 2, 3, 3, 4]


def test_a_cancelled_request_does_not_affect_others() -> None:
    shelf = FakeBlobs(audio.write_wav(TONE, 16000))

    async def use(speaker: SpeechMaker) -> Speech:
        first, second = (asyncio.create_task(speaker.make_speech(make_recorded_case(), "voice")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert use_speech_maker(shelf, use).utterances[0].digest
    assert shelf.fetched == 1


def test_the_language_defaults_to_english() -> None:
    assert (speak_case(make_case()).language, speak_case(make_case(language="de"), "voice+phone").variant) == (
        "en",
        "voice+phone",
    )
    assert speak_digest(make_case(language="de")) != speak_digest(make_case(language="en"))
