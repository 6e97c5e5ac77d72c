"""Word comparison checked by hand, by jiwer and by generated pairs; numbers in all their spellings."""

import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

import jiwer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pramana.errors import InvalidInput
from pramana.score.words import (
    MAX_TEXT_LENGTH,
    NORMALISER_VERSION,
    Entity,
    Errors,
    count_character_errors,
    count_word_errors,
    count_words,
    find_missed_entities,
    list_entities,
    make_normaliser_name,
    normalise_text,
)

if TYPE_CHECKING:
    from benchmarks.round_trip import mean_rate, pooled_rate
else:  # by its path, because pytest does not put the project's folder on Python's
    spec = spec_from_file_location("benchmarks.round_trip", Path(__file__).parents[2] / "benchmarks" / "round_trip.py")
    benchmark = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    mean_rate, pooled_rate = benchmark.mean_rate, benchmark.pooled_rate

# ── One way of writing ──


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("twenty-five", "25"),
        ("Twenty five", "25"),
        ("one hundred and five", "105"),
        ("a hundred", "100"),
        ("two thousand twenty six", "2026"),
        ("two thousand and twenty six", "2026"),
        ("twenty twenty six", "2026"),
        ("nineteen ninety nine", "1999"),
        ("nineteen hundred", "1900"),
        ("twelve thousand five hundred", "12,500"),
        ("one million two hundred thousand and three", "1,200,003"),
        ("five million", "5 million"),
        ("three point five million", "3.5 million"),
        ("seven thirty", "7:30"),
        ("seven oh five", "7:05"),
        ("sixteen hundred", "16:00"),
        ("five five five one two one two", "555-1212"),
        ("two, four, eight", "2 4 8"),
        ("zero", "0"),
        ("oh, seven", "oh 7"),
        ("minus five", "-5"),
        ("(minus five)", "(-5)"),
        ("three point one four", "3.14"),
        ("fifty percent", "50%"),
        ("fifty per cent", "50 %"),
        ("twelve dollars and fifty cents", "$12.50"),
        ("twelve dollars", "$12.00"),
        ("one dollar", "$1"),
        ("five million dollars", "$5 million"),
        ("five point five million dollars", "$5.5 million"),
        ("twenty pounds", "£20"),
        ("ninety-nine euros and five cents", "€99.05"),
        ("the third", "the 3rd"),
        ("the twenty-first", "the 21st"),
        ("the twentieth", "the 20th"),
        ("the hundredth", "the 100th"),
        ("at seven p.m.", "at 7 PM"),
        ("twenty degrees", "20°"),
        ("bread and butter", "Bread & butter!"),
        ("I can not, will not, do not", "I can't, won't, don't."),
        ("I cannot", "I can’t"),
        ("we are, they will, you have, I am", "we're they'll you've I'm"),
        ("let us", "Let's"),
        ("mister and missus Smith, okay", "Mr. & Mrs. Smith, OK?"),
        ("doctor Watson", "Dr. Watson"),
        ("the USA", "the U.S.A."),
        ("10 db", "10dB"),
        ("３ cafés", "3 cafe\u0301s"),
        ("don\u00adt", "dont"),
    ],
)
def test_spellings_of_the_same_words_are_equal(one: str, other: str) -> None:
    assert normalise_text(one, "en") == normalise_text(other, "en")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("twenty five", "twenty four"),
        ("fifteen", "fifty"),
        ("thirteen", "thirty"),
        ("the third", "three"),
        ("it's", "it is"),  # or "it has"
        ("he'd", "he would"),  # or "he had"
        ("well", "we'll"),
        ("its", "it's"),
        ("3.5", "35"),
        ("-5", "5"),
        ("पानी", "पाना"),  # a vowel is a mark, and a mark is no punctuation
    ],
)
def test_words_of_different_sound_or_meaning_stay_distinct(one: str, other: str) -> None:
    assert normalise_text(one, "en") != normalise_text(other, "en")


def test_texts_are_split_into_tokens() -> None:
    assert normalise_text("Don't pay $25 to O'Neil on the 3rd!", "en") == [
        "do", "not", "pay", "2", "5", "dollars", "to", "o'neil", "on", "the", "3th",
    ]  # fmt: skip
    assert normalise_text("Straße, l’été: 1.000,50 €", "fr") == ["strasse", "l'été", "100050"]
    assert normalise_text("東京は 晴れ、25度。", "ja") == list("東京は晴れ25度")
    assert normalise_text("สวัสดี ครับ", "th") == list("สวัสดีครับ")
    assert normalise_text("안녕 세계", "ko") == ["안녕", "세계"]
    assert normalise_text("٢٥ يوم", "ar") == ["25", "يوم"]
    assert normalise_text("", "en") == normalise_text(" … '' -- ", "en") == []


@pytest.mark.parametrize("language", ["zh", "zh-CN", "cmn", "yue", "ja", "th", "lo", "km", "my"])
def test_languages_without_spaces_are_compared_by_character(language: str) -> None:
    assert make_normaliser_name(language) == f"characters-{NORMALISER_VERSION}"
    assert count_word_errors("我要去北京", "我要去 南京", language) == Errors(1, 0, 0, 5)
    assert count_words("我要去北京", language) is None


def test_words_are_counted_naturally() -> None:
    assert count_words("It's 7:30, Mr. Smith.", "en") == 4


WORDS = st.lists(
    st.sampled_from(
        [
            "a",
            "an",
            "and",
            "the",
            "hundred",
            "thousand",
            "million",
            "one",
            "two",
            "twenty",
            "nineteen",
            "zero",
            "oh",
            "point",
            "minus",
            "first",
            "third",
            "twentieth",
            "per",
            "cent",
            "percent",
            "dollar",
            "$5",
            "$3.50",
            "7:30",
            "1,000",
            "007",
            "21st",
            "mr",
            "ok",
            "don't",
            "it's",
            "U.S.",
            "-",
            "%",
            "&",
            "'",
            "#",
            "été",
            "東京",
            "5th",
            "million,",
            "2026",
        ]
    ),
    max_size=12,
).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(WORDS)
def test_normalisation_is_idempotent(text: str) -> None:
    once = normalise_text(text, "en")
    assert normalise_text(" ".join(once), "en") == once


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.sampled_from(["en", "fr", "ja"]))
def test_tokens_of_any_text_have_no_space_or_capital(text: str, language: str) -> None:
    for token in normalise_text(text, language):
        assert token
        assert not any(sign.isspace() for sign in token)
        assert token == token.casefold()


# ── Errors ──


def test_error_counts_match_hand_counts() -> None:
    assert count_word_errors("the cat sat on the mat", "the cat sat on mat", "en") == Errors(0, 1, 0, 6)
    assert count_word_errors("the cat sat", "the big cat sat", "en") == Errors(0, 0, 1, 3)
    assert count_word_errors("the cat sat", "the hat sat", "en") == Errors(1, 0, 0, 3)
    assert count_word_errors("the cat", "a dog ran off", "en") == Errors(2, 0, 2, 2)
    assert count_word_errors("the cat", "a dog ran off", "en").rate == 2.0
    assert count_word_errors("pay 25 dollars", "pay 26 dollars", "en") == Errors(1, 0, 0, 4)
    assert count_word_errors("nothing", "", "en") == Errors(0, 1, 0, 1)
    assert count_character_errors("the cat", "the hat", "en") == Errors(1, 0, 0, 7)
    assert count_character_errors("an airport", "an air port", "en") == Errors(0, 0, 1, 10)
    assert count_character_errors("北京", "南 京", "zh") == Errors(1, 0, 0, 2)


def test_without_a_reference_all_words_are_insertions_and_there_is_no_rate() -> None:
    assert count_word_errors("", "two words", "en") == Errors(0, 0, 2, 0)
    assert count_word_errors("…", "two words", "en").rate is None
    assert count_word_errors("", "", "en") == Errors()
    assert count_character_errors("", "ab c", "en") == Errors(0, 0, 4, 0)
    assert pooled_rate([Errors()]) is None
    assert pooled_rate([]) is None
    assert mean_rate([Errors()]) is None
    assert pooled_rate([Errors(0, 0, 2, 0), Errors(1, 0, 0, 10)]) == 0.3  # insertions without a reference count
    assert jiwer.process_words("", "two words").insertions == 2


SPOKEN = st.lists(
    st.sampled_from(["the", "a", "cat", "sat", "on", "mat", "dog", "ran", "off", "now", "été", "naïve", "it's"]),
    max_size=9,
).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(SPOKEN, SPOKEN)
def test_rates_match_jiwer(reference: str, heard: str) -> None:
    found, characters = count_word_errors(reference, heard, "en"), count_character_errors(reference, heard, "en")
    said = jiwer.process_words(reference, heard)
    assert (found.substitutions, found.deletions, found.insertions) == (
        said.substitutions,
        said.deletions,
        said.insertions,
    )
    if reference:
        assert found.rate == pytest.approx(jiwer.wer(reference, heard))
        assert characters.rate == pytest.approx(jiwer.cer(reference, heard))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40), st.sampled_from(["en", "fr", "ja", "th"]))
def test_a_text_has_no_error_against_itself(text: str, language: str) -> None:
    for found in (count_word_errors(text, text, language), count_character_errors(text, text, language)):
        assert found.count == 0
        assert found.rate in (0.0, None)
    assert find_missed_entities(text, text, language) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(SPOKEN, SPOKEN), max_size=6))
def test_the_pooled_rate_is_all_errors_over_all_words(pairs: list[tuple[str, str]]) -> None:
    several = [count_word_errors(reference, heard, "en") for reference, heard in pairs]
    words = sum(len(reference.split()) for reference, _ in pairs)
    assert pooled_rate(several) == (sum(each.count for each in several) / words if words else None)
    rates = [each.rate for each in several if each.rate is not None]
    assert mean_rate(several) == (sum(rates) / len(rates) if rates else None)


# ── Entities ──


def find_entities(text: str, language: str = "en") -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in list_entities(text, language)]


def test_entities_are_numbers_dates_times_money_and_names() -> None:
    assert find_entities("Your order 4471 costs $25.50, and comes on Tuesday, March 3rd at 7:30 p.m.") == [
        ("number", "4471"),
        ("money", "25 dollars"),
        ("money", "50 cents"),
        ("number", "3th"),
        ("time", "730 pm"),
        ("date", "tuesday"),
        ("date", "march"),
    ]
    assert find_entities("I asked Ada Lovelace's friend in New York. She said that NASA knows Mr. Smith.") == [
        ("name", "ada lovelace"),
        ("name", "new york"),
        ("name", "nasa"),
        ("name", "smith"),
    ]


def test_sentence_initial_words_are_not_names() -> None:
    assert find_entities("May I march on? Yes. Sure: Why not? I'm here, and I know.") == []
    assert find_entities("We leave in May. May 5 is fine.") == [("number", "5"), ("date", "may")]


def test_entities_in_other_languages_are_found_within_limits() -> None:
    assert find_entities("Der Hund frisst 3 Knochen.", "de") == [("number", "3")]
    assert find_entities("Le chien de Marie a 3 os.", "fr") == [("number", "3"), ("name", "marie")]
    assert find_entities("東京で25人 Tokyo", "ja") == [("number", "25")]


def test_an_entity_in_other_words_is_not_missed() -> None:
    reference = "Ada pays twenty-five dollars on Friday at 7:30, flight BA 2490, minus 3.5 percent."
    assert find_missed_entities(reference, "ada pays $25 on friday at seven thirty flight ba 2 4 9 0 -3.5%") == []


def test_a_missed_entity_is_named() -> None:
    missed = find_missed_entities("Pay Ada 25 dollars by Friday.", "Pay Aida 205 dollars by Thursday.")
    assert missed == [Entity("money", "25 dollars"), Entity("date", "friday"), Entity("name", "ada")]
    assert find_missed_entities("It is number 5.", "It is number 25.") == [Entity("number", "5")]


# ── Hostile texts ──


def test_too_long_texts_are_refused_with_a_reason() -> None:
    for text in ("a " * MAX_TEXT_LENGTH, "\ufdfa" * (MAX_TEXT_LENGTH // 10)):  # one character that expands to 18
        with pytest.raises(InvalidInput, match=r"cannot be compared word by word: 100,000 are the most"):
            count_word_errors("a", text, "en")


@pytest.mark.parametrize(
    "text",
    ["A " * 15_000, "and " * 8_000, "hundred " * 4_000, "oh " * 10_000, "$" * 30_000, "1" * 30_000, "1." * 15_000,
     "A.B." * 8_000, "'" * 30_000, " " * 30_000 + "Ada", "n't" * 10_000, "\ud800\x00" * 15_000],
)  # fmt: skip
def test_hostile_texts_are_compared_quickly(text: str) -> None:
    start = time.process_time()
    normalise_text(text, "en")
    list_entities(text)
    assert time.process_time() - start < 3
