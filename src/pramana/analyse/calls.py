"""What the calls of a run amount to, by model and way of asking: results in, times, words, sound and the tax out.

Every line of every call counts once, one that nobody answered as one that took longer than was waited. Word error rates
are pooled: all errors over all words. A result that was typed is kept only where the run also speaks, for the tax.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from msgspec import Struct, to_builtins

from pramana.analyse.pairing import SCORED
from pramana.analyse.voice import (
    CALL,
    TEXT,
    Answer,
    Latency,
    Line,
    Tax,
    TurnTaking,
    answer,
    lines_of,
    tax,
    turn_taking,
)
from pramana.model import Reply, Result


class Pooled(Struct, frozen=True):
    """Errors and the words they are of, added up over calls."""

    errors: int = 0
    words: int = 0
    mean: float | None = None
    """Of the calls' own rates: a short call counts as much as a long one."""
    character_errors: int = 0
    characters: int = 0
    missed_entities: int = 0
    """Numbers, names and dates that were lost."""

    @property
    def rate(self) -> float | None:
        """The word error rate."""
        return self.errors / self.words if self.words else None

    @property
    def character_rate(self) -> float | None:
        return self.character_errors / self.characters if self.characters else None


class Spoken(Struct, frozen=True):
    """The calls of one model in one way."""

    model: str
    variant: str
    calls: int
    turn_taking: TurnTaking
    heard: Pooled
    """What the provider heard, against what was said."""
    referred: Pooled
    """What the recording says, against what it must say."""
    words_a_minute: float | None
    """Its median."""
    quality: float | None
    """The median of DNSMOS: a diagnosis."""
    by_ear: int = 0
    """Verdicts on what our own ear heard, because the agent gave no transcript, or one of more than was played."""

    @property
    def voice_to_voice(self) -> Latency:
        return self.turn_taking.voice_to_voice

    @property
    def first_byte(self) -> Latency:
        return self.turn_taking.first_byte

    @property
    def leading_silence_s(self) -> float | None:
        """Its median."""
        median_of_it = self.turn_taking.leading_silence.p50
        return None if median_of_it is None else median_of_it.value


class Voice(Struct, frozen=True):
    """What was spoken in a run."""

    by: tuple[Spoken, ...] = ()
    tax: tuple[Tax, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        taxes = [{**to_builtins(each), "causes": each.causes} for each in self.tax]
        rates = [
            {
                "voice_to_voice": to_builtins(each.voice_to_voice),
                "heard_wer": each.heard.rate,
                "heard_cer": each.heard.character_rate,
                "reference_wer": each.referred.rate,
                "reference_cer": each.referred.character_rate,
                **to_builtins(each),
            }
            for each in self.by
        ]
        return {"by": rates, "tax": taxes}


class CallTally:
    """Takes results, in any order, as they come."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], list[Mapping[str, object]]] = {}
        self._lines: dict[tuple[str, str], list[Line]] = {}
        self._answers: list[Answer] = []
        self._typed: list[Answer] = []
        self._by_ear: Counter[tuple[str, str]] = Counter()

    def add(self, result: Result) -> None:
        """Count one result, if it was spoken; of one that was typed only how it ended is kept."""
        if result.key.variant == TEXT:
            self._typed.append(answer(result))
            return
        self._answers.append(answer(result))
        for check in result.checks:
            if check.name == CALL and check.evidence:
                key = (result.key.model, _as_asked(result.key.variant, check.evidence))
                self._lines.setdefault(key, []).extend(lines_of(check.evidence))
                self._calls.setdefault(key, []).append(_kept(check.evidence))
                self._by_ear[key] += result.outcome in SCORED and _by_ear(result.reply, check.evidence)

    def voice(self) -> Voice | None:
        """Return what was counted; None where nothing was spoken."""
        if not self._answers:
            return None
        rows = tuple(self._row(*key) for key in sorted(self._calls))
        return Voice(rows, tax([*self._typed, *self._answers]) if self._typed else ())

    def _row(self, model: str, variant: str) -> Spoken:
        calls, lines = self._calls[model, variant], self._lines[model, variant]
        return Spoken(
            model,
            variant,
            len(calls),
            turn_taking(lines),
            _pooled(calls, "heard"),
            _pooled(calls, "referred"),
            _median(calls, "words_a_minute"),
            _median(calls, "quality"),
            self._by_ear[model, variant],
        )


def _as_asked(variant: str, evidence: Mapping[str, object]) -> str:
    """Return how a call was made: a case that states conditions of its own was not asked as the others were.

    >>> _as_asked("voice", {"conditions": "noise=10dB"}), _as_asked("voice+phone", {})
    ('voice+noise=10dB', 'voice+phone')
    """
    under = evidence.get("conditions")
    return variant if not isinstance(under, str) else f"voice+{under}" if under else "voice"


def _kept(evidence: Mapping[str, object]) -> Mapping[str, object]:
    """Return the few numbers of a call that are added up: all of it is large, and there may be many."""
    sound = _at(evidence, "sound")
    return {
        "heard": heard_of(evidence),
        "referred": referred_of(evidence),
        "words_a_minute": sound.get("words_a_minute"),
        "quality": _at(sound, "quality").get("overall"),
    }


def heard_of(evidence: Mapping[str, object]) -> Pooled:
    """Return what the provider of one call misheard of what was said; of no words where it does not tell."""
    return _counts([each] if (each := _at(evidence, "words").get("heard")) else [])


def referred_of(evidence: Mapping[str, object]) -> Pooled:
    """Return how one recording differs from what it must say; of no words where that is not stated."""
    return _counts([each for each in _at(evidence, "words").get("references") or () if isinstance(each, Mapping)])


def _by_ear(reply: Reply | None, evidence: Mapping[str, object]) -> bool:
    """Tell whether some of an answer's words are what our ear made of the recording, and not what the agent says."""
    words = _at(evidence, "words")
    if not (compared := _at(words, "transcript")):
        return bool(words.get("recorded"))
    said = str(compared.get("reference") or "")
    return any(answer not in said for answer in (reply.answers if reply else ()))


def _at(data: Any, key: str) -> Mapping[str, Any]:
    found = data.get(key) if isinstance(data, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _counts(compared: Sequence[Any]) -> Pooled:
    """Add up the comparisons of one call."""
    words = [_of(each, "words") for each in compared]
    characters = [_of(each, "characters") for each in compared]
    missed = sum(len(each.get("missed") or ()) for each in compared if isinstance(each, Mapping))
    errors, total = (sum(column) for column in zip(*words, strict=True)) if words else (0, 0)
    wrong, all_of_them = (sum(column) for column in zip(*characters, strict=True)) if characters else (0, 0)
    return Pooled(errors, total, errors / total if total else None, wrong, all_of_them, missed)


def _of(compared: Any, unit: str) -> tuple[int, int]:
    counts = _at(compared, unit)
    errors = sum(counts.get(name, 0) for name in ("substitutions", "deletions", "insertions"))
    return errors, counts.get("reference_words", 0)


def _pooled(calls: list[Mapping[str, object]], name: str) -> Pooled:
    found = [each for call in calls if isinstance(each := call[name], Pooled)]
    rates = [each.mean for each in found if each.mean is not None]
    return Pooled(
        sum(each.errors for each in found),
        sum(each.words for each in found),
        fmean(rates) if rates else None,
        sum(each.character_errors for each in found),
        sum(each.characters for each in found),
        sum(each.missed_entities for each in found),
    )


def _median(calls: list[Mapping[str, object]], name: str) -> float | None:
    found = [value for call in calls if isinstance(value := call[name], int | float)]
    return median(found) if found else None
