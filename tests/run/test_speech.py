"""What a case says, as sound: the same for everyone, kept once, and refused where it would be something else."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from pramana import audio
from pramana.audio import BadAudio
from pramana.errors import NotFound
from pramana.model import Assertion, Case, Expected, Facets, Line, Source, Speech, Turn
from pramana.run import speech
from pramana.run.speech import CannotBeSpoken, SpeechMaker, case_script, effective_conditions, why_not_spoken

pytestmark = pytest.mark.usefixtures("virtual_time")
TONE = (9000 * np.sin(np.arange(8000) / 9)).astype(np.int16)


def case(text: str = "When do you open?", **given: Any) -> Case:
    language = given.pop("language", None)
    category = given.pop("category", "factual")
    turns = given.pop("turns", (Turn("user", text),))
    return Case("a-1", "test_case", turns, Facets(category, "easy", language), **given)


def recorded(url: str = "a.wav", folder: str = "here", **given: Any) -> Case:
    return case(prompt_audio_url=url, source=Source(f"{folder}/s.yaml", 1), **given)


class Shelf:
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


def said(asked: Case, variant: str = "voice", shelf: Shelf | None = None) -> Speech:
    shelf = shelf or Shelf(NotFound("nothing"))
    return asyncio.run(SpeechMaker(shelf.keep, shelf.fetch).make_speech(asked, variant))


def digest(asked: Case, variant: str = "voice", shelf: Shelf | None = None) -> str:
    (only,) = said(asked, variant, shelf).utterances
    return only.digest


# ── What is said ──


def test_the_last_thing_the_user_asks_is_what_is_said() -> None:
    turns = (Turn("user", "Hello."), Turn("assistant", "Good day."), Turn("user", "When do you open?"))
    assert [line.text for line in case_script(case(turns=turns))] == ["When do you open?"]
    script = (Line("One?"), Line("Two?", barge_in_s=0.5))
    assert case_script(case(script=script)) == script
    assert len(said(case(script=script)).utterances) == 2


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (case(assertion=Assertion("is_json")), "is_json checks written text"),
        (case(assertion=Assertion("json_schema", schema={})), "json_schema checks written text"),
        (case(script=(Line("Hi.", expected=(Expected(Assertion("is_json")),)),)), "is_json checks written text"),
        (case(category="coding"), "about code"),
        (case("What does ```x = 1``` do?"), "about code"),
        (case(turns=(Turn("user", "Hi."), Turn("assistant", "Yes?"))), "the last turn of the case is not the user's"),
        (case("営業時間は何時からですか", language="ja"), "Han"),
        (case("Hello", language="xx"), 'no voice for language "xx"'),
        (case("Привет", language="en"), "reads Latin script"),
        (case("🙂", language="en"), "a symbol"),
    ],
)
def test_what_cannot_be_spoken_is_refused_with_the_reason(asked: Case, reason: str) -> None:
    with pytest.raises(CannotBeSpoken, match=reason):
        said(asked)


def test_an_assertion_that_words_can_meet_is_spoken() -> None:
    assert why_not_spoken(case(assertion=Assertion("contains"))) is None


# ── The same samples for everyone ──


def test_the_same_text_is_the_same_sound_and_its_digest_is_that_of_what_was_kept() -> None:
    shelf = Shelf(b"")
    (first,), (second,) = (said(case(), shelf=shelf).utterances for _ in range(2))
    assert first.digest == second.digest
    assert np.array_equal(first.samples, second.samples)
    samples, rate = audio.read_wav(shelf.blobs[first.digest])
    assert rate == audio.CALLER_RATE
    assert np.array_equal(samples, first.samples)
    assert digest(case("When do you close?")) != first.digest


def test_conditions_are_seeded_by_the_sound_and_by_themselves() -> None:
    clean, noisy, again = (digest(case(), each) for each in ("voice", *["voice+noise=10dB"] * 2))
    assert noisy == again
    others = {digest(case(), each) for each in ("voice+noise=5dB", "voice+noise=10dB:street", "voice+phone")}
    assert len({clean, noisy, *others}) == 5
    assert digest(case(conditions="noise=10dB")) == noisy


@pytest.mark.parametrize("conditions", ["noise=10dB", "reverb=0.4s,noise=5dB:street,phone"])
def test_noise_lasts_from_the_first_word_to_the_last_and_what_is_silent_beside_them_stays_so(conditions: str) -> None:
    before, after = np.zeros(16000, np.int16), np.zeros(8000, np.int16)
    file = audio.write_wav(np.concatenate([before, TONE, after]), 16000)
    (only,) = said(recorded(), f"voice+{conditions}", Shelf(file)).utterances
    (clean,) = said(recorded(), "voice", Shelf(file)).utterances
    assert len(only.samples) == len(clean.samples)
    first, last = audio.first_audible(clean.samples, 16000), audio.last_audible(clean.samples, 16000)
    assert first is not None
    assert last is not None
    assert not only.samples[:first].any()
    assert not only.samples[last + 1 :].any()
    assert audio.level_dbfs(only.samples[first : last + 1]) > -40
    # and it is the same noise wherever in its file the line stands
    (alone,) = said(recorded(), f"voice+{conditions}", Shelf(audio.write_wav(TONE, 16000))).utterances
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
def test_a_scenario_has_its_own_conditions_unless_the_run_says_otherwise(own: str, variant: str, both: str) -> None:
    assert effective_conditions(case(conditions=own), variant) == both
    (only,) = said(case(conditions=own), variant).utterances
    assert only.digest == digest(case(), f"voice+{both}" if both else "voice")


# ── What was recorded ──


def test_a_recording_is_played_bit_for_bit() -> None:
    shelf = Shelf(audio.write_wav(TONE, 16000))
    (only,) = said(recorded(), shelf=shelf).utterances
    assert np.array_equal(only.samples, TONE)
    assert only.digest == shelf.keep(audio.write_wav(TONE, 16000))


def test_a_recording_of_another_rate_is_brought_to_the_callers() -> None:
    wide = audio.resample(TONE, 16000, 48000)
    (only,) = said(recorded(), shelf=Shelf(audio.write_wav(wide, 48000))).utterances
    assert abs(len(only.samples) - len(TONE)) <= 1


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (audio.write_wav(np.zeros(16000, np.int16), 16000), "silent"),
        (audio.write_wav(np.where(TONE > 0, 32767, -32768).astype(np.int16), 16000), "clipped"),
        (audio.write_wav(TONE[:800], 16000), "too short"),
        (audio.write_wav(TONE, 16000)[:-100], "cut off"),
        (b"This is no sound.", "it is not a WAV"),
        (b"", "empty"),
    ],
)
def test_a_recording_of_no_use_is_an_error_that_names_it(file: bytes, reason: str) -> None:
    with pytest.raises(BadAudio, match=f"the recording a.wav cannot be used: .*{reason}"):
        said(recorded(), shelf=Shelf(file))


@pytest.mark.parametrize("file", [b"This is no sound.", audio.write_wav(np.zeros(16000, np.int16), 16000)])
def test_the_query_of_a_recordings_address_is_never_shown(file: bytes) -> None:
    secret = "X-Amz-Signature=0123456789abcdef"
    with pytest.raises(BadAudio) as caught:
        said(recorded(f"https://who:pass@store.example/{'a' * 300}.wav?{secret}"), shelf=Shelf(file))
    assert str(caught.value).startswith("the recording https://store.example/aaaa")
    assert secret not in str(caught.value)
    assert "pass" not in str(caught.value)
    assert len(str(caught.value)) < 400
    with pytest.raises(BadAudio, match=r"the recording take #2\?\.wav cannot be used"):
        said(recorded("take #2?.wav"), shelf=Shelf(file))


def test_a_missing_recording_is_never_replaced_by_the_voice() -> None:
    with pytest.raises(NotFound, match=r"a\.wav does not exist"):
        said(recorded(), shelf=Shelf(NotFound("a.wav does not exist")))


# ── Made once ──


def asking(shelf: Shelf, use: Callable[[SpeechMaker], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await use(SpeechMaker(shelf.keep, shelf.fetch))

    return asyncio.run(main())


def test_a_line_is_made_once_for_all_who_ask_at_once_and_later() -> None:
    shelf = Shelf(audio.write_wav(TONE, 16000))

    async def use(speaker: SpeechMaker) -> list[Speech]:
        together = await asyncio.gather(*(speaker.make_speech(recorded(), "voice") for _ in range(8)))
        return [*together, await speaker.make_speech(recorded(), "voice")]

    found = asking(shelf, use)
    assert shelf.fetched == 1
    assert len({each.utterances[0].digest for each in found}) == 1


def test_files_of_one_name_in_two_folders_are_two() -> None:
    shelf = Shelf(audio.write_wav(TONE, 16000), audio.write_wav(TONE[::-1], 16000))

    async def use(speaker: SpeechMaker) -> list[Speech]:
        return [await speaker.make_speech(recorded(folder=each), "voice") for each in ("here", "there")]

    first, second = asking(shelf, use)
    assert first.utterances[0].digest != second.utterances[0].digest


def test_a_failure_is_not_remembered() -> None:
    shelf = Shelf(NotFound("not yet"), audio.write_wav(TONE, 16000))

    async def use(speaker: SpeechMaker) -> Speech:
        with pytest.raises(NotFound):
            await speaker.make_speech(recorded(), "voice")
        return await speaker.make_speech(recorded(), "voice")

    assert np.array_equal(asking(shelf, use).utterances[0].samples, TONE)


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "MAX_CACHED_LINES", 2)
    shelf = Shelf(audio.write_wav(TONE, 16000))

    async def use(speaker: SpeechMaker) -> list[int]:
        counts = []
        for url in ("a.wav", "b.wav", "a.wav", "c.wav", "a.wav", "b.wav"):
            await speaker.make_speech(recorded(url), "voice")
            counts.append(shelf.fetched)
        assert len(speaker._cache) == 2
        return counts

    assert asking(shelf, use) == [1, 2, 2, 3, 3, 4]


def test_whoever_gives_up_takes_nothing_from_the_others() -> None:
    shelf = Shelf(audio.write_wav(TONE, 16000))

    async def use(speaker: SpeechMaker) -> Speech:
        first, second = (asyncio.create_task(speaker.make_speech(recorded(), "voice")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asking(shelf, use).utterances[0].digest
    assert shelf.fetched == 1


def test_the_language_is_english_where_none_is_stated() -> None:
    assert (said(case()).language, said(case(language="de"), "voice+phone").variant) == ("en", "voice+phone")
    assert digest(case(language="de")) != digest(case(language="en"))
