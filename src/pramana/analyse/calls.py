"""What the calls of a run amount to, by model and way of asking: results in, times, words, sound and the tax out.

Every line of every call counts once, one that nobody answered as one that took longer than was waited. Word error rates
are pooled: all errors over all words. A result that was typed is kept only where the run also speaks, for the tax.
"""

from collections.abc import Mapping
from statistics import median
from typing import Any

from msgspec import Struct, to_builtins

from pramana.analyse.voice import (
    CALL,
    TEXT,
    Answer,
    Latency,
    Line,
    Tax,
    TurnTaking,
    answer,
    latency,
    lines_of,
    observations,
    tax,
    turn_taking,
)
from pramana.model import Result


class Pooled(Struct, frozen=True):
    """Errors and the words they are of, added up."""

    errors: int = 0
    words: int = 0

    @property
    def rate(self) -> float | None:
        return self.errors / self.words if self.words else None


class Spoken(Struct, frozen=True):
    """The calls of one model in one way."""

    model: str
    variant: str
    calls: int
    voice_to_voice: Latency
    first_byte: Latency
    leading_silence_s: float | None
    """Its median."""
    turn_taking: TurnTaking
    heard: Pooled
    """What the provider heard, against what was said."""
    referred: Pooled
    """What the recording says, against what it must say."""
    words_a_minute: float | None
    """Its median."""
    quality: float | None
    """The median of DNSMOS: a diagnosis."""


class Voice(Struct, frozen=True):
    """What was spoken in a run."""

    by: tuple[Spoken, ...] = ()
    tax: tuple[Tax, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        taxes = [{**to_builtins(each), "causes": each.causes} for each in self.tax]
        rates = [
            {"heard_wer": each.heard.rate, "reference_wer": each.referred.rate, **to_builtins(each)} for each in self.by
        ]
        return {"by": rates, "tax": taxes}


class CallTally:
    """Takes results, in any order, as they come."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], list[Mapping[str, object]]] = {}
        self._lines: dict[tuple[str, str], list[Line]] = {}
        self._answers: list[Answer] = []
        self._typed: list[Answer] = []

    def add(self, result: Result) -> None:
        """Count one result, if it was spoken; of one that was typed only how it ended is kept."""
        if result.key.variant == TEXT:
            self._typed.append(answer(result))
            return
        self._answers.append(answer(result))
        for check in result.checks:
            if check.name == CALL and check.evidence:
                key = (result.key.model, result.key.variant)
                self._lines.setdefault(key, []).extend(lines_of(check.evidence))
                self._calls.setdefault(key, []).append(_kept(check.evidence))

    def voice(self) -> Voice | None:
        """Return what was counted; None where nothing was spoken."""
        if not self._answers:
            return None
        rows = tuple(self._row(*key) for key in sorted(self._calls))
        return Voice(rows, tax([*self._typed, *self._answers]) if self._typed else ())

    def _row(self, model: str, variant: str) -> Spoken:
        calls, lines = self._calls[model, variant], self._lines[model, variant]
        leading = [each.leading_silence_s for each in lines if each.leading_silence_s is not None]
        return Spoken(
            model,
            variant,
            len(calls),
            latency(observations(lines)),
            latency(observations(lines, "to_first_byte_s")),
            median(leading) if leading else None,
            turn_taking(lines),
            _pooled(calls, "heard"),
            _pooled(calls, "referred"),
            _median(calls, "words_a_minute"),
            _median(calls, "quality"),
        )


def _kept(evidence: Mapping[str, object]) -> Mapping[str, object]:
    """Return the few numbers of a call that are added up: all of it is large, and there may be many."""
    words, sound = _at(evidence, "words"), _at(evidence, "sound")
    references = [each for each in words.get("references") or () if isinstance(each, Mapping)]
    return {
        "heard": _counts(words.get("heard")),
        "referred": tuple(map(sum, zip(*(_counts(each) for each in references), strict=True))) or (0, 0),
        "words_a_minute": sound.get("words_a_minute"),
        "quality": _at(sound, "quality").get("overall"),
    }


def _at(data: Any, key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}


def _counts(compared: Any) -> tuple[int, int]:
    if not isinstance(compared, Mapping):
        return 0, 0
    words = _at(compared, "words")
    errors = sum(words.get(name, 0) for name in ("substitutions", "deletions", "insertions"))
    return errors, words.get("reference_words", 0)


def _pooled(calls: list[Mapping[str, object]], name: str) -> Pooled:
    counts: Any = [call[name] for call in calls]
    return Pooled(sum(errors for errors, _ in counts), sum(words for _, words in counts))


def _median(calls: list[Mapping[str, object]], name: str) -> float | None:
    found = [value for call in calls if isinstance(value := call[name], int | float)]
    return median(found) if found else None
