"""Words compared: what should have been said and what was, as text; counts of errors and lost entities out.

Both texts are first written one way (see `spelling`); the alignment is jiwer's. Words, characters and entities are
counted apart: a call that gets every word but the amount has failed, whatever its rate. Nothing here hears, judges or
guesses a reference: without one there is no rate.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct

from pramana.audio.faults import needed
from pramana.score.spelling import APOSTROPHES, NORMALISER_VERSION, by_character, normalised, normaliser, primary

__all__ = [
    "NORMALISER_VERSION",
    "Entity",
    "Errors",
    "character_errors",
    "entities",
    "errors",
    "mean",
    "missed_entities",
    "normalised",
    "normaliser",
    "pooled",
]

COMMON_NOUNS_ARE_CAPITAL: Final = frozenset({"de", "lb"})
"""A capital tells nothing about names there."""


class Errors(Struct, frozen=True):
    """How one text differs from another, in words, or in characters where those were compared."""

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    reference_words: int = 0

    @property
    def count(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float | None:
        """Errors a word of the reference, above 1 where much was added; None where the reference has no word."""
        return self.count / self.reference_words if self.reference_words else None


def errors(reference: str, heard: str, language: str) -> Errors:
    """Count the words (the characters of a language without spaces) that differ; its rate is the WER.

    >>> errors("Take the 7:30 train.", "take the seven thirty rain", "en")
    Errors(substitutions=1, deletions=0, insertions=0, reference_words=6)
    """
    return _aligned(normalised(reference, language), normalised(heard, language))


def character_errors(reference: str, heard: str, language: str) -> Errors:
    """Count the characters that differ, the spaces between words included; its rate is the CER.

    >>> character_errors("the cat", "the hat", "en").rate
    0.14285714285714285
    """
    between = "" if by_character(language) else " "
    # A space is no token to jiwer; any sign that no normalised text holds will do in its place.
    said, written = (list(between.join(normalised(text, language)).replace(" ", "_")) for text in (reference, heard))
    return _aligned(said, written)


def _aligned(reference: Sequence[str], heard: Sequence[str]) -> Errors:
    if not reference:
        return Errors(insertions=len(heard))
    with needed("comparing words"):
        import jiwer

    found = jiwer.process_words(" ".join(reference), " ".join(heard))
    return Errors(found.substitutions, found.deletions, found.insertions, len(reference))


def pooled(several: Sequence[Errors]) -> float | None:
    """Return all errors over all words, so that every word counts alike; None without a word.

    >>> pooled([Errors(1, 0, 0, 2), Errors(0, 0, 0, 8)]), mean([Errors(1, 0, 0, 2), Errors(0, 0, 0, 8)])
    (0.1, 0.25)
    """
    words = sum(each.reference_words for each in several)
    return sum(each.count for each in several) / words if words else None


def mean(several: Sequence[Errors]) -> float | None:
    """Return the mean of the rates, so that every text counts alike; None of none."""
    rates = [each.rate for each in several if each.rate is not None]
    return sum(rates) / len(rates) if rates else None


# ── Entities ──

Kind = Literal["number", "money", "time", "date", "name"]
_UNITS_AFTER: Final[dict[str, Kind]] = {
    "dollars": "money", "pounds": "money", "euros": "money", "cents": "money", "pence": "money", "yen": "money",
    "percent": "number", "degrees": "number", "am": "time", "pm": "time", "o'clock": "time",
}  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    "january", "february", "april", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTHS_AND_WORDS = ("march", "may")
"""Months only with a capital within a sentence, or beside a number."""
LONGEST_GAP = 20
"""Characters looked at before a word, to tell whether it begins a sentence."""
_TITLES = ("mr", "mrs", "ms", "dr", "prof", "st")
_CAPITAL = re.compile(r"(?<![\w'])[^\W\d_][\w'-]*")
_BEFORE_A_SENTENCE = frozenset('.!?:;…\n"“”«»(*')
_DIGITS = re.compile(r"[0-9]+(?:th)?")


class Entity(Struct, frozen=True):
    """A part of a text that must not be lost."""

    kind: Kind
    text: str
    """As normalised, a number in one piece: `730 pm`, `new york`."""


def entities(text: str, language: str = "en") -> list[Entity]:
    """Return numbers with their units, weekdays and months, and names, each once.

    A name is a word with a capital that does not begin a sentence: there is no more to go by in a text alone.

    >>> [each.text for each in entities("On Friday Ada owes Ben Lee twenty-five dollars at 7:30 p.m.")]
    ['25 dollars', '730 pm', 'friday', 'ada', 'ben lee']
    """
    tokens = normalised(text, language)
    found: list[Entity] = list(_numbers(tokens))
    found += [
        Entity("date", token)
        for place, token in enumerate(tokens)
        if token in _DAYS
        or token in _MONTHS
        or (token in _MONTHS_AND_WORDS and any(_DIGITS.fullmatch(each) for each in _beside(tokens, place)))
    ]
    if primary(language) not in COMMON_NOUNS_ARE_CAPITAL and not by_character(language):
        found += _names(text.translate(APOSTROPHES), language)
    return list(dict.fromkeys(found))


def missed_entities(reference: str, heard: str, language: str = "en") -> list[Entity]:
    """Return the entities of the reference that the other text does not hold.

    >>> missed_entities("Ada owes Ben 25 dollars.", "Ada owes Ken twenty five dollars.")
    [Entity(kind='name', text='ben')]
    """
    there, here = _Held(normalised(reference, language)), _Held(normalised(heard, language))
    return [each for each in entities(reference, language) if each in there and each not in here]


class _Held:
    """The entities that a text holds, whoever looks for them."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._numbers = {each.text for each in _numbers(tokens)}
        self._words = f" {' '.join(map(_bare, tokens))} "

    def __contains__(self, entity: Entity) -> bool:
        if entity.kind in ("date", "name"):
            return f" {entity.text} " in self._words
        return entity.text in self._numbers


def _beside(tokens: Sequence[str], place: int) -> list[str]:
    return [*tokens[max(0, place - 1) : place], *tokens[place + 1 : place + 2]]


def _bare(token: str) -> str:
    return token.removesuffix("'s")


def _numbers(tokens: Sequence[str]) -> Iterator[Entity]:
    place = 0
    while place < len(tokens):
        first = place
        while place < len(tokens) and (
            _DIGITS.fullmatch(tokens[place])
            or (
                place > first and tokens[place] == "point" and _DIGITS.fullmatch("".join(tokens[place + 1 : place + 2]))
            )
        ):
            place += 1
        if place == first:
            place += 1
            continue
        number = "".join(f" {each} " if each == "point" else each for each in tokens[first:place])
        unit = _UNITS_AFTER.get(tokens[place]) if place < len(tokens) else None
        minus = "minus " if tokens[max(0, first - 1) : first] == ["minus"] else ""
        yield Entity(unit or "number", f"{minus}{number}{f' {tokens[place]}' if unit else ''}")


def _names(text: str, language: str) -> Iterator[Entity]:
    """Give the names; words that follow each other are one."""
    name: list[str] = []
    end = -1
    for found in _CAPITAL.finditer(text):
        word = found[0]
        tokens = [_bare(each) for each in normalised(word, language)]
        adjoins = text[end : found.start()] == " "
        if not _is_name(text, found.start(), word) or not tokens or any(map(_DIGITS.fullmatch, tokens)):
            tokens = []
        elif tokens[0] in _DAYS or tokens[0] in _MONTHS or tokens[0] in _MONTHS_AND_WORDS:
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
        return True  # letters that stand for words, wherever they stand
    before = text[max(0, start - LONGEST_GAP) : start].rstrip(" ")
    if before.endswith(".") and before[:-1].rpartition(" ")[2].casefold() in _TITLES:
        return True
    return bool(before) and before[-1] not in _BEFORE_A_SENTENCE
