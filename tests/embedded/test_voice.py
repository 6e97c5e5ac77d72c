"""espeak-ng: what it speaks and refuses, and that equal texts give equal sounds everywhere."""

import json
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pramana
from pramana import audio
from pramana.embedded import voice
from pramana.embedded.scripts import (
    UNSUPPORTED_LANGUAGES,
    VOICE_BY_LANGUAGE,
    Voice,
    find_voice,
    find_writing_system,
    prepare_text,
)
from pramana.embedded.voice import CannotSpeak, speak
from pramana.errors import EngineMissing, InvalidInput
from pramana.installation import make_install_command
from pramana.load import cases_of, find_case_files

GREETINGS = {
    "af": "Goeie môre, hoe gaan dit?", "am": "እንደምን አደሩ", "ar": "صباح الخير، كيف حالك؟", "as": "নমস্কাৰ",
    "az": "Sabahınız xeyir, necəsiniz?", "be": "Добры дзень, як справы?", "bg": "Добро утро, как сте?",
    "bn": "সুপ্রভাত, আপনি কেমন আছেন?", "bs": "Dobro jutro, kako ste?", "ca": "Bon dia, com esteu?",
    "cmn": "早上好，你好吗？", "cs": "Dobré ráno, jak se máte?", "cy": "Bore da, sut ydych chi?",
    "da": "Godmorgen, hvordan går det?", "de": "Guten Morgen, wie geht’s? Schöne Grüße!", "el": "Καλημέρα, τι κάνετε;",
    "en": "Good morning, how are you?", "eo": "Bonan matenon, kiel vi fartas?", "es": "¡Buenos días! ¿Cómo está?",
    "et": "Tere hommikust, kuidas läheb?", "eu": "Egun on, zer moduz?", "fa": "صبح بخیر، حال شما چطور است؟",
    "fi": "Hyvää huomenta, mitä kuuluu?", "fr": "Bonjour, ça va ? Où êtes-vous ?", "ga": "Dia duit ar maidin",
    "gu": "સુપ્રભાત, તમે કેમ છો?", "hi": "सुप्रभात, आप कैसे हैं? १२", "hr": "Dobro jutro, kako ste?",
    "hu": "Jó reggelt, hogy van?", "hy": "Բարի լույս, ինչպե՞ս եք", "id": "Selamat pagi, apa kabar?",
    "is": "Góðan daginn, hvað segirðu?", "it": "Buongiorno, come sta? Perché no?", "ja": "おはようございます。コーヒーをください",
    "ka": "დილა მშვიდობისა", "kk": "Қайырлы таң, қалайсыз?", "kn": "ಶುಭೋದಯ, ಹೇಗಿದ್ದೀರಿ?", "ko": "좋은 아침입니다",
    "ky": "Кутман таң", "lb": "Gudde Moien, wéi geet et?", "lt": "Labas rytas, kaip sekasi?", "lv": "Labrīt, kā jums klājas?",
    "mk": "Добро утро, како сте?", "ml": "സുപ്രഭാതം", "mr": "सुप्रभात, कसे आहात?", "ms": "Selamat pagi, apa khabar?",
    "mt": "L-għodwa t-tajba", "nb": "God morgen, hvordan går det?", "ne": "शुभ प्रभात, तपाईंलाई कस्तो छ?",
    "nl": "Goedemorgen, hoe gaat het?", "no": "God morgen, på øya", "or": "ଶୁଭ ସକାଳ", "pa": "ਸ਼ੁਭ ਸਵੇਰ, ਤੁਸੀਂ ਕਿਵੇਂ ਹੋ?",
    "pl": "Dzień dobry, jak się masz?", "pt": "Bom dia, como vai? Não sei, 1ª vez", "ro": "Bună dimineața, ce faceți?",
    "ru": "Доброе утро, как дела?", "si": "සුභ උදෑසනක්", "sk": "Dobré ráno, ako sa máte?", "sl": "Dobro jutro, kako ste?",
    "sq": "Mirëmëngjes, si jeni?", "sr": "Добро јутро, kako ste?", "sv": "God morgon, hur mår du?",
    "sw": "Habari za asubuhi", "ta": "காலை வணக்கம்", "te": "శుభోదయం, ఎలా ఉన్నారు?", "tr": "Günaydın, nasılsınız?",
    "uk": "Доброго ранку, як ся маєте?", "ur": "صبح بخیر، آپ کیسے ہیں؟", "uz": "Xayrli tong, qalaysiz?",
    "vi": "Chào buổi sáng, bạn khỏe không?", "yue": "早晨，你好嗎？", "zh": "早上好，你好吗？我有３个苹果。",
}  # fmt: skip


# ── Spoken ──


@pytest.mark.parametrize("language", sorted(GREETINGS))
def test_every_listed_language_is_spoken_in_its_script(language: str) -> None:
    samples = speak(GREETINGS[language], language)
    assert audio.find_prompt_problem(samples, audio.CALLER_SAMPLE_RATE) is None
    assert 0.4 < len(samples) / audio.CALLER_SAMPLE_RATE < 6
    assert audio.active_level_dbfs(samples, audio.CALLER_SAMPLE_RATE) == pytest.approx(
        voice.SPEECH_LEVEL_DBFS, abs=0.05
    )


def test_greetings_cover_every_language() -> None:
    assert set(GREETINGS) == {code.partition("-")[0] for code in VOICE_BY_LANGUAGE}
    assert not set(UNSUPPORTED_LANGUAGES) & set(VOICE_BY_LANGUAGE)


@pytest.mark.parametrize(
    ("code", "file"),
    [
        ("no", "gmq/nb"),
        ("nb-NO", "gmq/nb"),
        ("zh", "sit/cmn"),
        ("zh-TW", "sit/cmn"),
        ("zh-HK", "sit/yue"),
        ("en", "gmw/en-US"),
        ("en-GB", "gmw/en"),
        ("EN_gb", "gmw/en"),
        ("pt", "roa/pt-BR"),
        ("pt-BR", "roa/pt-BR"),
        ("pt-PT", "roa/pt"),
        ("es", "roa/es"),
        ("es-MX", "roa/es-419"),
        ("es-419", "roa/es-419"),
        ("fr-CH", "roa/fr-CH"),
        ("de-AT", "gmw/de"),
        ("ar-EG", "sem/ar"),
    ],
)
def test_a_language_code_selects_its_voice(code: str, file: str) -> None:
    assert find_voice(code).espeak_file == file


@pytest.mark.parametrize("code", sorted(VOICE_BY_LANGUAGE))
def test_espeak_has_every_listed_voice(code: str) -> None:
    with voice._load_library() as library:
        assert voice._initialise_voice(library, VOICE_BY_LANGUAGE[code]) == 22050


def test_regions_sound_different() -> None:
    text = "I can't get the schedule for the party in the garage."
    assert audio.digest_sound(speak(text, "en-US"), 16_000) != audio.digest_sound(speak(text, "en-GB"), 16_000)


def test_every_library_prompt_is_spoken_or_refused_for_its_script() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    reasons = set()
    for path in find_case_files([Path(pramana.__file__).parent / "scenarios"]):
        for case in cases_of(path):
            language = case.facets.language or "en"
            if language == "en" and counts["en", "spoken"] >= 10:
                continue  # the others are all spoken by `benchmarks.round_trip`
            try:
                samples = speak(case.turns[-1].text, language)
            except CannotSpeak as refused:
                counts[language, "refused"] += 1
                reasons.add(str(refused).partition(" script, and the text contains ")[2].partition(",")[0])
            else:
                counts[language, "spoken"] += 1
                assert audio.find_prompt_problem(samples, audio.CALLER_SAMPLE_RATE) is None
    assert reasons == {"Han", "Latin"}
    assert {language for language, how in counts if how == "refused"} == {"ar", "hi", "ja"}
    assert counts["ja", "spoken"] == 0  # all of them have kanji
    assert (counts["ar", "refused"], counts["hi", "refused"]) == (1, 1)  # they switch to Latin within a sentence
    assert {language for language, how in counts if how == "spoken"} == {
        "ar",
        "de",
        "en",
        "es",
        "fr",
        "hi",
        "pt",
        "tr",
        "zh",
    }


# ── Refused ──


@pytest.mark.parametrize(
    ("text", "language", "reason"),
    [
        ("東京へ行きます", "ja", "reads Hiragana and Katakana script, and the text contains Han"),
        ("佐々木さん", "ja", "contains Han"),
        ("Доброе утро", "en", "reads Latin script, and the text contains Cyrillic"),
        ("Good morning, товарищ", "en", "contains Cyrillic"),
        ("pаypal", "en", "CYRILLIC SMALL LETTER A"),
        ("Good morning", "ru", "contains Latin"),
        ("मेरी flight कब है", "hi", "contains Latin"),
        ("我的 WiFi 坏了", "zh", "contains Latin"),
        ("我兄弟很穷", "zh", "does not know 兄 穷 and would read it as English"),
        ("안녕 漢字", "ko", "contains Han"),
        ("你好", "en", "contains Han"),
        ("Good morning", "xx", 'no voice for language "xx"'),
        ("Good morning", "english", "no voice for language"),
        ("Good morning", "ent", "known are af, am, ar"),
        ("Good morning", "en-Cyrl-x", "no voice for language"),
        ("Good morning", "", "no voice for language"),
        ("Good morning", "x" * 10_000, "no voice for language"),
        ("Good morning", "\x00", "no voice for language"),
        ("สวัสดี", "th", "espeak-ng does not read the spelling of Thai"),
        ("שלום", "he-IL", "vowels"),
        ("🙂", "en", "a symbol"),
        ("🙂🎉👍🏽", "en", "a symbol"),
        ("Thanks 🙂", "en", "a symbol"),
        ("★★★ hotel", "en", "a symbol"),
        ("", "en", "nothing that can be spoken"),
        (" \n\t", "en", "nothing that can be spoken"),
        ("... ?!", "en", "nothing that can be spoken"),
        ("\u200b\ufeff\u2060", "en", "nothing that can be spoken"),
        ("\u0301", "en", "nothing that can be spoken"),
        ("nul\x00byte", "en", "U+0000"),
        ("half \ud800 pair", "en", "U+D800"),
        ("\ue000 private", "en", "U+E000"),
        ("𝐛𝐨𝐥𝐝", "en", "contains Mathematical"),
        ("x" * 20_001, "en", "20,001 characters"),
        ("seven hundred and seventy-seven " * 600, "en", "the text is too long"),
    ],
)
def test_texts_that_would_be_spelled_out_or_garbled_are_refused(text: str, language: str, reason: str) -> None:
    with pytest.raises(CannotSpeak) as caught:
        speak(text, language)
    assert reason in str(caught.value)
    assert isinstance(caught.value, InvalidInput)
    assert len(str(caught.value)) < 600


def test_espeak_names_unknown_letters_as_the_guard_assumes() -> None:
    with voice._load_library() as library:
        voice._initialise_voice(library, VOICE_BY_LANGUAGE["ja"])
        assert voice._switches_language(library, "東京")  # "Chinese letter, Chinese letter"
        assert not voice._switches_language(library, "とうきょう")


def test_a_nonzero_espeak_status_is_an_error() -> None:
    with (
        voice._load_library() as library,
        pytest.raises(CannotSpeak, match="setting voice no/such: the voice is unknown"),
    ):
        voice._initialise_voice(library, Voice("no/such", ("Latin",)))


def test_text_is_not_interpreted_as_markup() -> None:
    assert len(speak("<speak><break time='60s'/>hi</speak>", "en")) < 15 * audio.CALLER_SAMPLE_RATE
    assert audio.digest_sound(speak("[[h@'loU]]", "en"), 16_000) != audio.digest_sound(speak("hello", "en"), 16_000)


@pytest.mark.parametrize(
    ("character", "script"),
    [
        ("a", "Latin"), ("ß", "Latin"), ("ª", "Latin"), ("я", "Cyrillic"), ("あ", "Hiragana"), ("ー", "Katakana"),
        ("々", "Han"), ("〇", "Han"), ("한", "Hangul"), ("५", "Devanagari"), ("٣", "Arabic"), ("۳", "Arabic"),
        ("7", None), ("½", None), ("²", None), ("\u0301", None), ("µ", None), ("ʻ", None),
    ],
)  # fmt: skip
def test_scripts_match_unicode(character: str, script: str | None) -> None:
    assert find_writing_system(character) == script


def test_texts_are_composed_and_spaces_collapsed() -> None:
    assert prepare_text("Cafe\u0301\n  at\u00a0５\u200b pm", "en") == "Café at 5 pm"


# ── The same ──


def test_speech_does_not_depend_on_earlier_texts_or_the_process() -> None:
    texts = [("Hello there, can you hear me?", "en"), ("Guten Tag, wie spät ist es?", "de"), ("你好吗？", "zh")]
    code = (
        "import json, sys; from pramana import audio; from pramana.embedded.voice import speak\n"
        "print(json.dumps([audio.digest_sound(speak(*each), 16000) for each in json.loads(sys.argv[1])]))"
    )
    there = subprocess.run(
        [sys.executable, "-c", code, json.dumps(texts[::-1])], capture_output=True, text=True, check=True
    )
    for _ in range(2):  # the library itself would speak otherwise the second time
        assert [audio.digest_sound(speak(*each), 16_000) for each in texts] == json.loads(there.stdout)[::-1]
    assert there.stderr == ""


def test_several_threads_get_the_same_sound(capfd: pytest.CaptureFixture[str]) -> None:
    texts = [(GREETINGS[language], language) for language in ("en", "de", "fr", "ru", "zh", "hi")] * 3
    expected = [audio.digest_sound(speak(*each), 16_000) for each in texts]
    with ThreadPoolExecutor(6) as pool:
        assert [
            audio.digest_sound(samples, 16_000) for samples in pool.map(lambda each: speak(*each), texts)
        ] == expected
    assert capfd.readouterr().err == ""


def test_without_espeak_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(EngineMissing, match=re.escape(make_install_command("voice"))):
        speak("Hello", "en")
