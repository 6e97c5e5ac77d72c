"""What a watch measures: the features of one prompt on one day in, the score of an instrument on each day out.

A day stores features, not scores, so a score is always computed by the current functions from what was measured. Each
instrument looks in one direction, and a higher score is further in that direction: "the pass rate fell" and "the pass
rate rose" are two instruments. Pure functions on numbers; nothing here reads a reply.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, variance
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pramana.analyse.drift import (
    MIN_ANSWERED_SHARE,
    MIN_TOLERANCE,
    BaselineSpread,
    measure_baseline_spread,
    next_day_rank_correlation,
    score_day,
)

FEATURES_VERSION = 1
REFERENCE_DAYS = 7
"""Days whose replies later ones are compared with. They have no score: a day cannot be compared with itself."""
MIN_LENGTH_TOLERANCE, MIN_LATENCY_TOLERANCE = math.log(1.05), math.log(1.10)
"""Smallest changes of length and latency that count, on the scale of their logarithms: 5 % and 10 %."""
MIN_ANSWERS_TOLERANCE = 0.05
"""The smallest total variation of the answers to border prompts that counts: 5 of 100 answers are others."""
BORDER_VARIANT, LOGPROB_VARIANT = "border", "logprobs"
"""The variants of the prompts that only the instruments `answers` and `logprobs` use."""
MIN_LOGPROB_TOLERANCE, MAX_LOGPROB_SHIFT = math.log(1.05), 3.0
"""The smallest mean shift of logprobs that counts: of 5 % of each probability. A single logprob counts as shifted by at
most 3, a factor of 20, so that one token does not outweigh all others."""
MIN_QUALITY_TOLERANCE = 0.1
"""The smallest change of the estimated quality of speech that counts, on its scale from 1 to 5."""
LATENCY_FLOOR_S, CALL_TIME_FLOOR_S = 0.01, 0.1
"""Added to each latency, and to each time of a call, before its logarithm: differences of a few milliseconds, and of a
few frames of sound, are the bench's and not the model's."""
Unit = Literal["share", "rate", "words", "seconds", "words_a_minute", "points", "nats"]
"""What users see. Only a `share` counts calls that hit or miss."""


class PromptDay(Struct, frozen=True, omit_defaults=True):
    """What the calls of one prompt on one day were like. A prompt is a case in one variant."""

    case: str
    """Digest of the case."""
    case_id: str
    variant: str = "text"
    category: str | None = None
    planned: int = 1
    answered: int = 0
    verdicts: int = 0
    """Replies that passed or failed."""
    passes: int = 0
    replies: tuple[str, ...] = ()
    """Digests of the replies, their white space normalised."""
    words: tuple[int, ...] = ()
    latency_s: tuple[float, ...] = ()
    refusals: int = 0
    answers: Mapping[str, int] = field(default_factory=dict)
    """Of a border prompt: each answer with its number of replies."""
    logprobs: Mapping[str, float] = field(default_factory=dict)
    """Of a prompt for logprobs: the likeliest first tokens with the mean of their logprobs over the calls."""
    voice_to_voice_s: tuple[float, ...] = ()
    """Of each call the median over its lines; where no answer came, how long the caller waited."""
    leading_silence_s: tuple[float, ...] = ()
    word_error_rates: tuple[float, ...] = ()
    words_a_minute: tuple[float, ...] = ()
    quality: tuple[float, ...] = ()

    @property
    def key(self) -> str:
        """What the prompt has in common with itself on other days."""
        return f"{self.case} {self.variant}"


class DayFeatures(Struct, frozen=True, omit_defaults=True):
    """All that is stored of one day."""

    prompts: tuple[PromptDay, ...] = ()
    served_models: Mapping[str, int] = field(default_factory=dict)
    """Models that replied, as the provider reported them, each with its number of replies."""
    fingerprints: Mapping[str, int] = field(default_factory=dict)
    version: int = FEATURES_VERSION

    @property
    def case_prompts(self) -> tuple[PromptDay, ...]:
        """The prompts of the watch's cases, without those of `answers` and `logprobs`."""
        return tuple(each for each in self.prompts if each.variant not in (BORDER_VARIANT, LOGPROB_VARIANT))


class MeasuredDay(Struct, frozen=True):
    """A measured day."""

    day: str
    tie_break: float
    """From -½ to ½, drawn once."""
    features: DayFeatures


class Reference(Struct):
    """The replies of one prompt on the reference days."""

    replies: set[str] = field(default_factory=set)
    answers: Counter[str] = field(default_factory=Counter)
    logprobs: list[Mapping[str, float]] = field(default_factory=list)
    """Of each reference day."""


References = Mapping[str, Reference]
"""The replies of each prompt on the reference days."""


class Instrument(Struct, frozen=True):
    """One thing that is measured every day, in one direction."""

    name: str
    title: str
    """As a line of a table: `pass rate, down`."""
    finding: str
    """What an alarm says: `the pass rate fell`."""
    unit: Unit
    min_tolerance: float
    measure: Callable[[PromptDay, References], float | None]
    """Returns the mean result of a prompt on a day; None if it has none."""
    to_shown: Callable[[float], float]
    """Turns a score into the number that users see, in the instrument's unit."""
    needs_references: bool = False
    prompt_variant: str | None = None
    """The variant of its own prompts, the only ones that it uses; None: it uses the cases of the watch."""
    count_calls: Callable[[PromptDay], int] = lambda prompt: prompt.answered
    """Returns the number of calls that the mean result of a prompt is made of."""

    @property
    def reference_days(self) -> int:
        """The number of days before the baseline whose replies later days are compared with."""
        return REFERENCE_DAYS if self.needs_references else 0

    def choose_prompts(self, features: DayFeatures) -> Sequence[PromptDay]:
        """Return the prompts that it measures."""
        if self.prompt_variant is not None:
            return [each for each in features.prompts if each.variant == self.prompt_variant]
        return features.case_prompts


def _measure_failures(prompt: PromptDay, _: References) -> float | None:
    return 1 - prompt.passes / prompt.verdicts if prompt.verdicts else None


def _measure_passes(prompt: PromptDay, _: References) -> float | None:
    return prompt.passes / prompt.verdicts if prompt.verdicts else None


def _measure_changed_replies(prompt: PromptDay, references: References) -> float | None:
    known = references.get(prompt.key)
    if known is None or not known.replies or not prompt.replies:
        return None
    return fmean(each not in known.replies for each in prompt.replies)


def _measure_answers(prompt: PromptDay, references: References) -> float | None:
    """Return the total variation between the answers of a day and those of the reference days."""
    known = references.get(prompt.key)
    if known is None or not known.answers or prompt.answered < MIN_ANSWERED_SHARE * prompt.planned:
        return None
    before, now = known.answers.total(), sum(prompt.answers.values())
    answers = {*known.answers, *prompt.answers}
    return math.fsum(abs(prompt.answers.get(each, 0) / now - known.answers[each] / before) for each in answers) / 2


def _measure_logprobs(prompt: PromptDay, references: References) -> float | None:
    known = references.get(prompt.key)
    if known is None or not known.logprobs or not prompt.logprobs:
        return None
    return measure_logprob_shift(known.logprobs, prompt.logprobs)


def measure_logprob_shift(before: Sequence[Mapping[str, float]], now: Mapping[str, float]) -> float:
    """Return how far the logprobs of a day are from the mean of earlier days, as the mean over all tokens.

    A token that is missing from one side was less likely than all that are there, so it counts with the lowest logprob
    of that side: the smallest shift that both lists allow. So a token that enters or leaves the list at its end, as
    happens without any change, hardly counts.

    >>> round(measure_logprob_shift([{"yes": -0.5, "no": -1.0}], {"yes": -0.7, "no": -0.9}), 2)
    0.15
    >>> measure_logprob_shift([{"yes": -0.5, "no": -1.0}], {"yes": -0.5, "maybe": -1.0})
    0.0
    """
    floors = [min(each.values()) for each in before]
    lowest = min(now.values())
    shifts = []
    for token in dict.fromkeys([*(name for each in before for name in each), *now]):
        usual = fmean(each.get(token, floor) for each, floor in zip(before, floors, strict=True))
        shifts.append(min(MAX_LOGPROB_SHIFT, abs(now.get(token, lowest) - usual)))
    return fmean(shifts)


def _measure_refusals(prompt: PromptDay, _: References) -> float | None:
    return prompt.refusals / prompt.answered if prompt.answered else None


def _make_log_measure(name: str, floor: float) -> Callable[[PromptDay, References], float | None]:
    def measure(prompt: PromptDay, _: References) -> float | None:
        values: tuple[float, ...] = getattr(prompt, name)
        return fmean(math.log(floor + max(0.0, each)) for each in values) if values else None

    return measure


def _make_mean_measure(name: str) -> Callable[[PromptDay, References], float | None]:
    def measure(prompt: PromptDay, _: References) -> float | None:
        values: tuple[float, ...] = getattr(prompt, name)
        return fmean(values) if values else None

    return measure


def _negate(
    measure: Callable[[PromptDay, References], float | None],
) -> Callable[[PromptDay, References], float | None]:
    def measure_negative(prompt: PromptDay, references: References) -> float | None:
        value = measure(prompt, references)
        return None if value is None else -value

    return measure_negative


def _identity(score: float) -> float:
    return score


def _undo_log(floor: float, sign: int = 1) -> Callable[[float], float]:
    return lambda score: max(0.0, math.exp(sign * score) - floor)


def _count_verdicts(prompt: PromptDay) -> int:
    return prompt.verdicts


_LENGTH = _make_log_measure("words", 1.0)
_LATENCY = _make_log_measure("latency_s", LATENCY_FLOOR_S)
_SPEECH_RATE = _make_log_measure("words_a_minute", 1.0)
# fmt: off
INSTRUMENTS: Mapping[str, Instrument] = {each.name: each for each in (
    Instrument("pass_rate_down", "pass rate, down", "the pass rate fell", "share", MIN_TOLERANCE,
               _measure_failures, lambda score: 1 - score, count_calls=_count_verdicts),
    Instrument("pass_rate_up", "pass rate, up", "the pass rate rose", "share", MIN_TOLERANCE,
               _measure_passes, _identity, count_calls=_count_verdicts),
    Instrument("changed_replies", "new replies, up", "more replies are new", "share", MIN_TOLERANCE,
               _measure_changed_replies, _identity, needs_references=True),
    Instrument("answers", "answers, shifted", "answers to border prompts shifted", "rate", MIN_ANSWERS_TOLERANCE,
               _measure_answers, _identity, needs_references=True, prompt_variant=BORDER_VARIANT),
    Instrument("logprobs", "logprobs, shifted", "the logprobs of first tokens shifted", "nats", MIN_LOGPROB_TOLERANCE,
               _measure_logprobs, _identity, needs_references=True, prompt_variant=LOGPROB_VARIANT),
    Instrument("longer", "length, up", "replies became longer", "words", MIN_LENGTH_TOLERANCE,
               _LENGTH, _undo_log(1.0)),
    Instrument("shorter", "length, down", "replies became shorter", "words", MIN_LENGTH_TOLERANCE,
               _negate(_LENGTH), _undo_log(1.0, -1)),
    Instrument("slower", "latency, up", "replies became slower", "seconds", MIN_LATENCY_TOLERANCE,
               _LATENCY, _undo_log(LATENCY_FLOOR_S)),
    Instrument("faster", "latency, down", "replies became faster", "seconds", MIN_LATENCY_TOLERANCE,
               _negate(_LATENCY), _undo_log(LATENCY_FLOOR_S, -1)),
    Instrument("more_refusals", "refusals, up", "the model refuses more often", "share", MIN_TOLERANCE,
               _measure_refusals, _identity),
    Instrument("slower_answers", "voice to voice, up", "answers in calls became slower", "seconds",
               MIN_LATENCY_TOLERANCE, _make_log_measure("voice_to_voice_s", CALL_TIME_FLOOR_S),
               _undo_log(CALL_TIME_FLOOR_S)),
    Instrument("more_leading_silence", "leading silence, up", "answers begin with more silence", "seconds",
               MIN_LATENCY_TOLERANCE, _make_log_measure("leading_silence_s", CALL_TIME_FLOOR_S),
               _undo_log(CALL_TIME_FLOOR_S)),
    Instrument("more_word_errors", "word errors, up", "the agent mishears more words", "rate", MIN_TOLERANCE,
               _make_mean_measure("word_error_rates"), _identity),
    Instrument("faster_speech", "speech rate, up", "the agent speaks faster", "words_a_minute", MIN_LENGTH_TOLERANCE,
               _SPEECH_RATE, _undo_log(1.0)),
    Instrument("slower_speech", "speech rate, down", "the agent speaks more slowly", "words_a_minute",
               MIN_LENGTH_TOLERANCE, _negate(_SPEECH_RATE), _undo_log(1.0, -1)),
    Instrument("worse_quality", "quality, down", "the speech sounds worse", "points", MIN_QUALITY_TOLERANCE,
               _negate(_make_mean_measure("quality")), lambda score: -score),
)}
# fmt: on
TEXT_GROUPS: Mapping[str, tuple[str, ...]] = {
    "replies": ("changed_replies",),
    "length": ("longer", "shorter"),
    "latency": ("slower", "faster"),
    "refusals": ("more_refusals",),
    "answers": ("answers",),
    "logprobs": ("logprobs",),
}
VOICE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "voice_to_voice": ("slower_answers",),
    "leading_silence": ("more_leading_silence",),
    "word_errors": ("more_word_errors",),
    "speech_rate": ("faster_speech", "slower_speech"),
    "quality": ("worse_quality",),
}
INSTRUMENT_GROUPS: Mapping[str, tuple[str, ...]] = {
    "pass_rate": ("pass_rate_down", "pass_rate_up"), **TEXT_GROUPS, **VOICE_GROUPS,
}  # fmt: skip
"""What users choose by one name: both directions of one measurement."""


# ── From features to scores ──


class ScoredDays(Struct, frozen=True):
    """The scores of one instrument on the days of one period."""

    instrument: str
    days: tuple[str, ...]
    """The days that have a score; the first `baseline_count` of them are the baseline."""
    scores: tuple[float, ...]
    """With the tie-breaks of the days."""
    scores_without_tie_breaks: tuple[float, ...]
    """Without them, as users see them."""
    baseline_count: int
    collected_days: int
    """Measured days of the period, reference days included, as many as are needed."""
    needed_days: int
    spread: BaselineSpread | None
    """None until the baseline is complete."""
    prompt_means: Mapping[str, float]
    """The mean result of each prompt over the baseline."""
    latest_results: Mapping[str, tuple[float, int]]
    """The mean result of each prompt on the last day, and its number of calls; empty if that day has no score."""

    @property
    def is_complete(self) -> bool:
        """Whether the baseline is complete."""
        return self.spread is not None


def score_days(instrument: Instrument, days: Sequence[MeasuredDay], baseline_days: int) -> ScoredDays:
    """Return the score of each day of a period, in order; a day with too few answers for this instrument has none."""
    usable = days
    if instrument.prompt_variant is not None:  # its prompts are sent last, and may be missing on a day with a budget
        usable = [day for day in days if any(each.answered for each in instrument.choose_prompts(day.features))]
    referenced, ranked = usable[: instrument.reference_days], usable[instrument.reference_days :]
    references: dict[str, Reference] = {}
    for each in referenced:
        for prompt in instrument.choose_prompts(each.features):
            known = references.setdefault(prompt.key, Reference())
            known.replies.update(prompt.replies)
            known.answers.update(prompt.answers)
            known.logprobs += [prompt.logprobs] if prompt.logprobs else []
    results = [_measure_day(instrument, each, references) for each in ranked]
    measured = [(day, result) for day, result in zip(ranked, results, strict=True) if result]
    baseline = measured[:baseline_days]
    collected: dict[str, list[float]] = {}
    for _, result in baseline:
        for key, value in result.items():
            collected.setdefault(key, []).append(value)
    means = {key: fmean(values) for key, values in collected.items()}
    names, plain, scores = list[str](), list[float](), list[float]()
    baseline_count = 0
    for position, (day, result) in enumerate(measured):
        score = score_day(result, means)
        if score is None:
            continue
        baseline_count += position < baseline_days
        calls = sum(prompt.planned for prompt in instrument.choose_prompts(day.features))
        names.append(day.day)
        plain.append(score)
        scores.append(score + (day.tie_break / calls if instrument.unit == "share" and calls else 0.0))
    is_complete = len(baseline) >= baseline_days and baseline_count > 1
    return ScoredDays(
        instrument.name,
        tuple(names),
        tuple(scores),
        tuple(plain),
        baseline_count,
        len(referenced) + len(baseline),
        instrument.reference_days + baseline_days,
        replace(
            _measure_spread(instrument, plain[:baseline_count], collected, baseline),
            next_day_rank_correlation=next_day_rank_correlation(scores[:baseline_count]),
        )
        if is_complete
        else None,
        means,
        _collect_latest_results(instrument, days, measured, names),
    )


def _measure_day(instrument: Instrument, day: MeasuredDay, references: References) -> dict[str, float]:
    measured = ((each.key, instrument.measure(each, references)) for each in instrument.choose_prompts(day.features))
    return {key: value for key, value in measured if value is not None}


def _collect_latest_results(
    instrument: Instrument,
    days: Sequence[MeasuredDay],
    measured: Sequence[tuple[MeasuredDay, dict[str, float]]],
    scored: Sequence[str],
) -> dict[str, tuple[float, int]]:
    if not scored or scored[-1] != days[-1].day:
        return {}
    latest, result = measured[-1]
    calls = {each.key: instrument.count_calls(each) for each in instrument.choose_prompts(latest.features)}
    return {key: (value, calls[key]) for key, value in result.items()}


def _measure_spread(
    instrument: Instrument,
    scores: Sequence[float],
    results: Mapping[str, Sequence[float]],
    baseline: Sequence[tuple[MeasuredDay, dict[str, float]]],
) -> BaselineSpread:
    """Return how much the days of a baseline differ beyond what their number of calls explains."""
    if instrument.unit == "share":
        repeats = fmean(prompt.planned for day, _ in baseline for prompt in day.features.case_prompts)
        means = {key: fmean(values) for key, values in results.items()}
        return measure_baseline_spread(scores, means, max(1, round(repeats)))
    by_calls = math.fsum(variance(values) for values in results.values() if len(values) > 1) / len(results) ** 2
    beyond = max(0.0, variance(scores) - by_calls)
    if len(results) > 1:  # the variance of each prompt over the days contains that of the days themselves
        beyond *= len(results) / (len(results) - 1)
    return BaselineSpread(math.sqrt(beyond), next_day_rank_correlation(scores), instrument.min_tolerance)


def is_day_usable(features: DayFeatures) -> bool:
    """Return whether enough of the planned calls of a day were answered for it to count."""
    planned = sum(each.planned for each in features.case_prompts)
    return planned > 0 and sum(each.answered for each in features.case_prompts) >= MIN_ANSWERED_SHARE * planned
