"""Compares words: a reference and a recognised text in; counts of errors and missed entities out.

Both texts are normalised first; the alignment is jiwer's. Words, characters and entities are counted separately: a call
that gets every word right but the amount has failed, whatever its rate. Nothing here transcribes, judges or guesses a
reference: without a reference there is no rate.

Spelling is not a recognition error: case, punctuation, unambiguous contractions and the many ways to write a number are
normalised. English numbers become digits, one token each, since "7:30", "seven thirty" and "730" sound alike; marks
that carry vowels are kept in every script. Languages written without spaces are split by character. The rules have a
version, and rates of two versions must not be compared.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct

from pramana.audio.faults import explain_missing_library
from pramana.errors import InvalidInput

NORMALISER_VERSION: Final = "1"
MAX_TEXT_LENGTH = 100_000
"""Characters; an hour of speech has fewer, and alignment takes quadratic time."""
LANGUAGES_WITHOUT_SPACES: Final = frozenset({"zh", "cmn", "yue", "ja", "th", "lo", "km", "my"})
"""Languages written without spaces between words."""
APOSTROPHE_TABLE = str.maketrans(dict.fromkeys("’‘ʼ`´＇", "'"))


def is_compared_by_character(language: str) -> bool:
    """Return whether the language is compared by character.

    >>> is_compared_by_character("zh-Hant-TW"), is_compared_by_character("ko")
    (True, False)
    """
    return get_primary_language(language) in LANGUAGES_WITHOUT_SPACES


def make_normaliser_name(language: str) -> str:
    """Return the name and version of the rules for a language, as a check records it.

    >>> make_normaliser_name("en-GB"), make_normaliser_name("fr"), make_normaliser_name("ja")
    ('english-1', 'words-1', 'characters-1')
    """
    kind = (
        "characters"
        if is_compared_by_character(language)
        else "english"
        if get_primary_language(language) == "en"
        else "words"
    )
    return f"{kind}-{NORMALISER_VERSION}"


def normalise_text(text: str, language: str) -> list[str]:
    """Return the normalised tokens of a text.

    >>> normalise_text("He didn't pay twenty-five dollars, Mr. O'Neil.", "en")
    ['he', 'did', 'not', 'pay', '2', '5', 'dollars', 'mister', "o'neil"]
    >>> normalise_text("東京は 晴れ。", "ja")
    ['東', '京', 'は', '晴', 'れ']
    """
    plain = _simplify_text(text[: MAX_TEXT_LENGTH + 1])
    if len(plain) > MAX_TEXT_LENGTH:  # a few characters expand to many letters
        raise InvalidInput(
            f"a text of {len(text):,} characters cannot be compared word by word: {MAX_TEXT_LENGTH:,} are the most"
        )
    if get_primary_language(language) == "en":
        return _replace_spoken_zeros(list(_iterate_words_splitting_numbers(plain)))
    words = _split_words(plain)
    return [sign for word in words for sign in word] if is_compared_by_character(language) else words


def count_words(text: str, language: str) -> int | None:
    """Return the number of words; None for languages written without spaces."""
    return None if is_compared_by_character(language) else len(_split_words(_simplify_text(text)))


def get_primary_language(language: str) -> str:
    """Return the language without its country or script."""
    return re.split(r"[-_]", language.casefold(), maxsplit=1)[0]


def _simplify_text(text: str) -> str:
    """Return a text with one form of digits and apostrophes, in lower case."""
    text = unicodedata.normalize("NFKC", text.translate(APOSTROPHE_TABLE)).casefold()
    text = unicodedata.normalize("NFKC", text).translate(APOSTROPHE_TABLE)
    return "".join(map(_simplify_character, text))


def _simplify_character(character: str) -> str:
    if character < "\x80":
        return character
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.digit(character))
    return "" if category == "Cf" else character  # joiners and soft hyphens are invisible


_DIGIT_SEPARATOR_RE = re.compile(r"(?<=[0-9])[.,:'](?=[0-9])")
_INITIAL_RE = re.compile(r"(?<![^\W_])([^\W\d_])\.(?=[^\W\d_](?:\.|(?![^\W_])))")
_LETTER_DIGIT_BOUNDARY_RE = re.compile(r"(?<=[^\W\d_])(?=[0-9])|(?<=[0-9])(?=[^\W\d_])")


def _split_words(simplified_text: str, kept_characters: str = "'") -> list[str]:
    """Return the words: letters, marks, digits, and apostrophes between letters; everything else separates words.

    >>> _split_words("the u.s.a. paid 1.000 for 'rock'n'roll' at 10db")
    ['the', 'usa', 'paid', '1000', 'for', "rock'n'roll", 'at', '10', 'db']
    """
    text = _INITIAL_RE.sub(r"\1", _DIGIT_SEPARATOR_RE.sub("", simplified_text))
    text = "".join(each if each in kept_characters or unicodedata.category(each)[0] in "LMN" else " " for each in text)
    return [word for piece in _LETTER_DIGIT_BOUNDARY_RE.sub(" ", text).split() if (word := piece.strip("'"))]


# ── English ──

_UNIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEEN_WORDS = (
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS_WORDS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_CARDINALS: Final = {word: value for value, word in enumerate(_UNIT_WORDS + _TEEN_WORDS)} | {
    word: 10 * value for value, word in enumerate(_TENS_WORDS, 2)
}
_SCALES: Final = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_IRREGULAR_ORDINALS: Final = {
    "first": "one", "second": "two", "third": "three", "fifth": "five", "eighth": "eight", "ninth": "nine",
    "twelfth": "twelve",
}  # fmt: skip
_ORDINALS: Final = _IRREGULAR_ORDINALS | {
    f"{word[:-1]}ieth" if word.endswith("y") else f"{word}th": word
    for word in (*_CARDINALS, *_SCALES)
    if word not in _IRREGULAR_ORDINALS.values()
}
_ORDINAL_SUFFIX_RE = re.compile(r"(?<=[0-9])(?:st|nd|rd|th)\b")
_ORDINAL_MARK = "#"

_LARGE_NUMBER_PATTERN = r"(?: (?:thousand|million|billion|trillion)\b)"
_HUNDREDTHS_PATTERN = rf"\.(?=[0-9]{{2}}(?![0-9]|{_LARGE_NUMBER_PATTERN}))0?([0-9]+)"
_SIGN_REPLACEMENTS: Final = (
    (re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))"), ""),
    (re.compile(r"(?<=[$£€])([0-9]+)\.00(?![0-9])"), r"\1"),
    (re.compile(rf"[$]([0-9]+){_HUNDREDTHS_PATTERN}"), r"\1 dollars and \2 cents"),
    (re.compile(rf"£([0-9]+){_HUNDREDTHS_PATTERN}"), r"\1 pounds and \2 pence"),
    (re.compile(rf"€([0-9]+){_HUNDREDTHS_PATTERN}"), r"\1 euros and \2 cents"),
    (re.compile(rf"[$]([0-9]+(?:\.[0-9]+)?{_LARGE_NUMBER_PATTERN}?)"), r"\1 dollars"),
    (re.compile(rf"£([0-9]+(?:\.[0-9]+)?{_LARGE_NUMBER_PATTERN}?)"), r"\1 pounds"),
    (re.compile(rf"€([0-9]+(?:\.[0-9]+)?{_LARGE_NUMBER_PATTERN}?)"), r"\1 euros"),
    (re.compile(r"(?<=[0-9])\.(?=[0-9])"), " point "),
    (re.compile(r"(?<![^\s(])[-−](?=[0-9])"), " minus "),
    (re.compile(r"%"), " percent "),
    (re.compile(r"&"), " and "),
    (re.compile(r"°"), " degrees "),
)
_CONTRACTIONS: Final = (
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"\bcan't\b|\bcannot\b"), "can not"),
    (re.compile(r"\bshan't\b"), "shall not"),
    (re.compile(r"\blet's\b"), "let us"),
    (re.compile(r"(?<=[a-z])n't\b"), " not"),
    (re.compile(r"(?<=[a-z])'re\b"), " are"),
    (re.compile(r"(?<=[a-z])'ll\b"), " will"),
    (re.compile(r"(?<=[a-z])'ve\b"), " have"),
    (re.compile(r"\bi'm\b"), "i am"),
)
"""Unambiguous ones; "it's" and "he'd" have several meanings."""
_CANONICAL_WORDS: Final = {
    "mr": "mister", "mrs": "missus", "dr": "doctor", "ok": "okay", "vs": "versus", "dollar": "dollars",
    "pound": "pounds", "euro": "euros", "cent": "cents", "degree": "degrees",
}  # fmt: skip
"""Abbreviations of one word, and units, as plurals: a sign such as "$" does not state the number."""


def _iterate_words_splitting_numbers(simplified_text: str) -> Iterator[str]:
    """Yield the words of a text, with numbers digit by digit."""
    for pattern, instead in (*_SIGN_REPLACEMENTS, *_CONTRACTIONS):
        simplified_text = pattern.sub(instead, simplified_text)
    marked = _ORDINAL_SUFFIX_RE.sub(_ORDINAL_MARK, simplified_text.replace(_ORDINAL_MARK, " "))
    words = [
        _ORDINALS[word] + _ORDINAL_MARK if word in _ORDINALS else word
        for word in _split_words(marked, "'" + _ORDINAL_MARK)
    ]
    place = 0
    while place < len(words):
        digits, after = _parse_number(words, place)
        if after > place:
            yield from digits[:-1]
            yield digits[-1] + ("th" if words[after - 1].endswith(_ORDINAL_MARK) else "")
            place = after
        elif words[place : place + 2] == ["per", "cent"]:
            yield "percent"
            place += 2
        else:
            if word := words[place].strip(_ORDINAL_MARK):
                yield _CANONICAL_WORDS.get(word, word)
            place += 1


def _begins_with_digit(token: str) -> bool:
    return token[:1].isascii() and token[:1].isdigit()


def _replace_spoken_zeros(tokens: list[str]) -> list[str]:
    """Return the tokens with a zero for a spoken "oh", as in "seven oh five"."""
    return [
        "0" if each == "oh" and _begins_with_digit(before) and _begins_with_digit(after) else each
        for before, each, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False)
    ]


def _parse_number(words: Sequence[str], start: int) -> tuple[str, int]:
    """Return the digits of the number at `start` and the index after it; the index is `start` if there is no number.

    >>> _parse_number("two thousand and twenty six of them".split(), 0)
    ('2026', 5)
    >>> _parse_number("twenty twenty six".split(), 0), _parse_number("nineteen hundred".split(), 0)
    (('20', 1), ('1900', 2))
    >>> _parse_number(["007"], 0)
    ('007', 1)
    """
    place = start
    total, group, room, scale = 0, 0, 1000, 10**15
    written = ""
    while place < len(words):
        word = words[place].rstrip(_ORDINAL_MARK)
        after_scale = place > start and words[place - 1] in _SCALES
        if word in _SCALES:
            if place > start and not group:
                break
            if word == "hundred":
                if group >= 100:
                    break
                group, room = (group or 1) * 100, 100
            elif _SCALES[word] >= scale:
                break
            else:
                scale = _SCALES[word]
                total, group, room = total + (group or 1) * scale, 0, 1000
        elif word == "a" and place == start and words[place + 1 : place + 2] and words[place + 1] in _SCALES:
            group, room = 1, 0
        elif word == "and" and after_scale and _is_number_below(words, place + 1, room):
            pass
        elif word in _CARDINALS and (place == start or 0 < _CARDINALS[word] < room):
            group += _CARDINALS[word]
            room = 10 if _CARDINALS[word] >= 20 else 0
            if not group:  # a zero ends a number
                return "0", place + 1
        elif word.isascii() and word.isdigit() and (place == start or (after_scale and _is_below(word, room))):
            if place == start:
                written = word
                if not _is_below(word, 1000):  # too large for a following scale, or with a leading zero
                    return written, place + 1
            group, room = group + int(word), 0
        else:
            break
        place += 1
        if words[place - 1].endswith(_ORDINAL_MARK):
            break
    return (written if place == start + 1 and written else str(total + group)), place


def _is_number_below(words: Sequence[str], index: int, limit: int) -> bool:
    word = words[index].rstrip(_ORDINAL_MARK) if index < len(words) else ""
    return 0 < _CARDINALS.get(word, 0) < limit


def _is_below(digits: str, limit: int) -> bool:
    return len(digits) <= 3 and not digits.startswith("0") and int(digits) < limit


# ── Errors ──

LANGUAGES_CAPITALISING_NOUNS: Final = frozenset({"de", "lb"})
"""A capital letter does not mark a name in these languages."""


class Errors(Struct, frozen=True):
    """Differences of a text from its reference, in words, or in characters if those were compared."""

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    reference_words: int = 0

    @property
    def count(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float | None:
        """Errors per word of the reference, above 1 if much was added; None for a reference without words."""
        return self.count / self.reference_words if self.reference_words else None


def count_word_errors(reference: str, recognised: str, language: str) -> Errors:
    """Count word errors (character errors in languages without spaces); its rate is the WER.

    >>> count_word_errors("Take the 7:30 train.", "take the seven thirty rain", "en")
    Errors(substitutions=1, deletions=0, insertions=0, reference_words=6)
    """
    return _count_differences(normalise_text(reference, language), normalise_text(recognised, language))


def count_character_errors(reference: str, recognised: str, language: str) -> Errors:
    """Count character errors, including spaces between words; its rate is the CER.

    >>> count_character_errors("the cat", "the hat", "en").rate
    0.14285714285714285
    """
    between = "" if is_compared_by_character(language) else " "
    # jiwer does not count a space as a token, so it is replaced by a character that normalised text never contains.
    said, written = (
        list(between.join(normalise_text(text, language)).replace(" ", "_")) for text in (reference, recognised)
    )
    return _count_differences(said, written)


def _count_differences(reference: Sequence[str], recognised: Sequence[str]) -> Errors:
    if not reference:
        return Errors(insertions=len(recognised))
    with explain_missing_library("comparing words"):
        import jiwer

    found = jiwer.process_words(" ".join(reference), " ".join(recognised))
    return Errors(found.substitutions, found.deletions, found.insertions, len(reference))


# ── Entities ──

EntityKind = Literal["number", "money", "time", "date", "name"]
_ENTITY_KIND_BY_UNIT: Final[dict[str, EntityKind]] = {
    "dollars": "money", "pounds": "money", "euros": "money", "cents": "money", "pence": "money", "yen": "money",
    "percent": "number", "degrees": "number", "am": "time", "pm": "time", "o'clock": "time",
}  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    "january", "february", "april", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_AMBIGUOUS_MONTHS = ("march", "may")
"""Only months if capitalised within a sentence, or beside a number."""
MAX_LOOKBACK_LENGTH = 20
"""Characters to search backwards from a word for the start of its sentence."""
_TITLES = ("mr", "mrs", "ms", "dr", "prof", "st")
_WORD_RE = re.compile(r"(?<![\w'])[^\W\d_][\w'-]*")
_SENTENCE_BOUNDARY_CHARACTERS = frozenset('.!?:;…\n"“”«»(*')
_DIGITS_RE = re.compile(r"[0-9]+(?:th)?")


class Entity(Struct, frozen=True):
    """A part of a text that must not be lost."""

    kind: EntityKind
    text: str
    """Normalised, with a number in one piece: `730 pm`, `new york`."""


def list_entities(text: str, language: str = "en") -> list[Entity]:
    """Return numbers with their units, weekdays and months, and names, each once.

    A name is a capitalised word that does not begin a sentence: text alone offers no better sign.

    >>> [each.text for each in list_entities("On Friday Ada owes Ben Lee twenty-five dollars at 7:30 p.m.")]
    ['25 dollars', '730 pm', 'friday', 'ada', 'ben lee']
    """
    tokens = normalise_text(text, language)
    found: list[Entity] = list(_iterate_numbers(tokens))
    found += [
        Entity("date", token)
        for place, token in enumerate(tokens)
        if token in _DAYS
        or token in _MONTHS
        or (
            token in _AMBIGUOUS_MONTHS
            and any(_DIGITS_RE.fullmatch(each) for each in _list_neighbouring_tokens(tokens, place))
        )
    ]
    if get_primary_language(language) not in LANGUAGES_CAPITALISING_NOUNS and not is_compared_by_character(language):
        found += _iterate_names(text.translate(APOSTROPHE_TABLE), language)
    return list(dict.fromkeys(found))


def find_missed_entities(reference: str, recognised: str, language: str = "en") -> list[Entity]:
    """Return the entities of the reference that the other text does not contain.

    >>> find_missed_entities("Ada owes Ben 25 dollars.", "Ada owes Ken twenty five dollars.")
    [Entity(kind='name', text='ben')]
    """
    there, here = (
        _EntityLookup(normalise_text(reference, language)),
        _EntityLookup(normalise_text(recognised, language)),
    )
    return [each for each in list_entities(reference, language) if each in there and each not in here]


class _EntityLookup:
    """The entities of a text, for lookup by `in`."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._numbers = {each.text for each in _iterate_numbers(tokens)}
        self._words = f" {' '.join(map(_remove_possessive, tokens))} "

    def __contains__(self, entity: Entity) -> bool:
        if entity.kind in ("date", "name"):
            return f" {entity.text} " in self._words
        return entity.text in self._numbers


def _list_neighbouring_tokens(tokens: Sequence[str], index: int) -> list[str]:
    return [*tokens[max(0, index - 1) : index], *tokens[index + 1 : index + 2]]


def _remove_possessive(token: str) -> str:
    return token.removesuffix("'s")


def _iterate_numbers(tokens: Sequence[str]) -> Iterator[Entity]:
    place = 0
    while place < len(tokens):
        first = place
        while place < len(tokens) and (
            _DIGITS_RE.fullmatch(tokens[place])
            or (
                place > first
                and tokens[place] == "point"
                and _DIGITS_RE.fullmatch("".join(tokens[place + 1 : place + 2]))
            )
        ):
            place += 1
        if place == first:
            place += 1
            continue
        number = "".join(f" {each} " if each == "point" else each for each in tokens[first:place])
        unit = _ENTITY_KIND_BY_UNIT.get(tokens[place]) if place < len(tokens) else None
        minus = "minus " if tokens[max(0, first - 1) : first] == ["minus"] else ""
        yield Entity(unit or "number", f"{minus}{number}{f' {tokens[place]}' if unit else ''}")


def _iterate_names(text: str, language: str) -> Iterator[Entity]:
    """Yield the names; adjacent capitalised words are one name."""
    name: list[str] = []
    end = -1
    for found in _WORD_RE.finditer(text):
        word = found[0]
        tokens = [_remove_possessive(each) for each in normalise_text(word, language)]
        adjoins = text[end : found.start()] == " "
        if not _is_name(text, found.start(), word) or not tokens or any(map(_DIGITS_RE.fullmatch, tokens)):
            tokens = []
        elif tokens[0] in _DAYS or tokens[0] in _MONTHS or tokens[0] in _AMBIGUOUS_MONTHS:
            yield Entity("date", tokens[0])
            tokens = []
        if name and not (tokens and adjoins):
            yield Entity("name", " ".join(name))
            name = []
        name += tokens
        end = found.end()
    if name:
        yield Entity("name", " ".join(name))


def _is_name(text: str, start: int, word: str) -> bool:
    if not word[0].isupper() or word == "I" or word.startswith("I'") or word.casefold() in _TITLES:
        return False
    if len(word) > 1 and word.isupper():
        return True  # an acronym, wherever it is
    before = text[max(0, start - MAX_LOOKBACK_LENGTH) : start].rstrip(" ")
    if before.endswith(".") and before[:-1].rpartition(" ")[2].casefold() in _TITLES:
        return True
    return bool(before) and before[-1] not in _SENTENCE_BOUNDARY_CHARACTERS
