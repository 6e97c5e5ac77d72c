"""The summary of calls: measured lines and results in; percentiles, turn-taking rates and the voice tax out.

The time of an unanswered line is censored: it is only known to be longer than the caller waited. It stays among the
observations, and a percentile that depends on it is given as a bound. Rates of fewer than ten events are not shown. The
voice tax compares each case typed and spoken, pair by pair, and names the cause of each loss. Word error rates are
pooled: all errors over all words. Pure functions, no I/O.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import fmean, median
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, to_builtins

from pramana.analyse.comparison import compare
from pramana.analyse.intervals import percentile_bound_rank
from pramana.analyse.pairing import SCORED
from pramana.errors import InvalidInput
from pramana.model import Outcome, Plan, Reply, Result

MIN_EVENT_OPPORTUNITIES = 10
"""Rates of fewer events are not given: a single event would change them too much."""
CALL_CHECK: Final = "call"
"""The name of the check that measures a call."""
TEXT_VARIANT: Final = "text"
"""The variant of typed cases."""
CONTRADICTING_GUARD_STATES: Final = frozenset({"silent", "clipped", "contradicts"})
"""The states of the evidence guard for sound that contradicts its transcript."""
BUILT_IN_RECOGNITION: Final = "Whisper tiny.en"


def name_speech_recognition(plan: Plan) -> str:
    """Return the name of the speech recognition for a run's recordings."""
    return plan.stt.typed if plan.stt else BUILT_IN_RECOGNITION


# ── Latency ──


class BoundedSeconds(Struct, frozen=True):
    """A time, or a bound on it."""

    value: float
    relation: Literal["=", "≥", ">"] = "="
    """The time equals the value, is at least the value, or exceeds it."""

    def __str__(self) -> str:
        """Format the time for a table.

        >>> str(BoundedSeconds(0.8124)), str(BoundedSeconds(15.0, ">"))
        ('0.812 s', '> 15.000 s')
        """
        return f"{'' if self.relation == '=' else f'{self.relation} '}{self.value:.3f} s"


class Latency(Struct, frozen=True):
    """Percentiles of times, some of which may be censored; None without times."""

    n: int = 0
    censored: int = 0
    p50: BoundedSeconds | None = None
    p90: BoundedSeconds | None = None
    p95: BoundedSeconds | None = None
    p99: BoundedSeconds | None = None
    max: BoundedSeconds | None = None
    p95_at_most: float | None = None
    """What p95 is at most, at 95 % confidence; None for fewer than 59 cases (p99: 299) or too many censored times."""
    p99_at_most: float | None = None


def measure_latency(times_with_censored_flags: Iterable[tuple[float, bool]], cases: float | None = None) -> Latency:
    """Return the percentiles of times; a censored time is a lower bound.

    `cases` is the number of cases that the times are of; None: each is of another case.

    Interpolates as `intervals.percentile` does, linearly between ranks. The bounds are valid whatever the true censored
    times were.

    >>> found = measure_latency([(0.5, False), (0.7, False), (0.9, False), (15.0, True)])
    >>> [str(each) for each in (found.p50, found.p90)], found.n, found.censored
    (['0.800 s', '> 10.770 s'], 4, 1)
    """
    seen = sorted(times_with_censored_flags)  # at equal times, a censored one counts as longer
    p50, p90, p95, p99, longest = (_latency_percentile(seen, share) for share in (0.5, 0.9, 0.95, 0.99, 1.0))
    bounds = (_bound_percentile(seen, cases, share) for share in (0.95, 0.99))
    return Latency(len(seen), sum(censored for _, censored in seen), p50, p90, p95, p99, longest, *bounds)


def _bound_percentile(times: Sequence[tuple[float, bool]], cases: float | None, share: float) -> float | None:
    """Return the upper bound of a percentile; None for too few cases, or if a censored time may lie below it."""
    rank = percentile_bound_rank(len(times), len(times) if cases is None else cases, share)
    bound = math.inf if rank is None else sorted(math.inf if censored else time for time, censored in times)[rank]
    return bound if bound < math.inf else None


def _latency_percentile(times: Sequence[tuple[float, bool]], share: float) -> BoundedSeconds | None:
    if not times:
        return None
    endless = [math.inf if censored else time for time, censored in times]
    least, most = (
        _interpolated_percentile([time for time, _ in times], share),
        _interpolated_percentile(sorted(endless), share),
    )
    if most == least:
        return BoundedSeconds(least)
    # Does the percentile rest on a censored time if each was only slightly longer than the wait?
    return BoundedSeconds(least, ">" if _interpolated_percentile(endless, share) == math.inf else "≥")


def _interpolated_percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of sorted times, some of which may be infinite."""
    place = round(share * (len(ordered) - 1), 9)  # rounding error must not turn a whole rank into a fraction
    below, above = ordered[int(place)], ordered[math.ceil(place)]
    if math.inf in (below, above):
        return math.inf
    return below + (above - below) * (place - int(place))


# ── Turn taking ──


class MeasuredLine(Struct, frozen=True):
    """The measurements of one caller's line that the summary uses."""

    voice_to_voice_s: float | None = None
    first_audible_s: float | None = None
    answer_end_s: float | None = None
    to_first_byte_s: float | None = None
    leading_silence_s: float | None = None
    total_s: float | None = None
    censored: bool = False
    waited_s: float | None = None
    cut_in: bool = False
    overlap_s: float = 0.0
    gaps: int = 0
    longest_gap_s: float = 0.0
    talked_into: bool = False
    yield_s: float | None = None
    yield_censored_s: float | None = None
    false_interruption: bool | None = None
    reliable: bool | None = None
    """Whether this machine kept up while the line was timed; None if unknown."""


class EventShare(Struct, frozen=True):
    """How often an event happened, out of its opportunities."""

    happened: int
    of: int

    @property
    def value(self) -> float | None:
        """The share; None for fewer than `MIN_EVENT_OPPORTUNITIES` opportunities."""
        return self.happened / self.of if self.of >= MIN_EVENT_OPPORTUNITIES else None


class TurnTaking(Struct, frozen=True):
    """Times and turn-taking rates over all lines of some calls."""

    lines: int
    voice_to_voice: Latency
    first_byte: Latency
    leading_silence: Latency
    total: Latency
    yields: Latency
    """Times from the caller's first sound to the agent's last, for barge-ins."""
    unanswered: EventShare
    unreliable: EventShare
    """Voice-to-voice times during which this machine did not keep up."""
    cut_in: EventShare
    """Answered lines on which the agent started before the caller had finished."""
    yielded: EventShare
    false_interruptions: EventShare
    with_gaps: EventShare
    """Answers with a gap of silence."""
    longest_gap_seconds: float
    overlap_seconds: float
    """The total over all lines."""


def read_measured_lines(evidence: Mapping[str, object]) -> list[MeasuredLine]:
    """Return the measured lines in the evidence of a call's check."""
    times = evidence.get("times")
    try:
        return msgspec.convert(times["lines"] if isinstance(times, Mapping) else (), list[MeasuredLine])
    except (KeyError, msgspec.ValidationError) as error:
        raise InvalidInput(f"the stored evidence of a call has no valid times for its lines: {error}") from error


def measure_turn_taking(lines: Sequence[MeasuredLine], cases: float | None = None) -> TurnTaking:
    """Return the turn taking over the lines of all calls, which are of so many cases; None: each of another."""
    answered = [each for each in lines if each.first_audible_s is not None]
    into = [each for each in lines if each.yield_s is not None or each.yield_censored_s is not None]
    backchannels = [each for each in lines if each.false_interruption is not None]
    timed = list_latency_observations(lines)
    return TurnTaking(
        lines=len(lines),
        voice_to_voice=measure_latency(timed, cases),
        first_byte=measure_latency(list_latency_observations(lines, "to_first_byte_s"), cases),
        leading_silence=measure_latency(
            ((each.leading_silence_s, False) for each in answered if each.leading_silence_s is not None), cases
        ),
        total=measure_latency(list_latency_observations(lines, "total_s"), cases),
        yields=measure_latency(
            ((each.yield_censored_s or 0.0, True) if each.yield_s is None else (each.yield_s, False) for each in into),
            cases,
        ),
        unanswered=EventShare(
            sum(each.censored for each in lines), len(answered) + sum(each.censored for each in lines)
        ),
        unreliable=EventShare(
            len(list_latency_observations(each for each in lines if each.reliable is False)), len(timed)
        ),
        cut_in=EventShare(sum(each.cut_in for each in answered), len(answered)),
        yielded=EventShare(sum(each.yield_s is not None for each in into), len(into)),
        false_interruptions=EventShare(
            sum(each.false_interruption is True for each in backchannels), len(backchannels)
        ),
        with_gaps=EventShare(sum(each.gaps > 0 for each in answered), len(answered)),
        longest_gap_seconds=max((each.longest_gap_s for each in answered), default=0.0),
        overlap_seconds=math.fsum(each.overlap_s for each in lines),
    )


def list_latency_observations(
    lines: Iterable[MeasuredLine],
    measure: Literal["voice_to_voice_s", "to_first_byte_s", "total_s"] = "voice_to_voice_s",
) -> list[tuple[float, bool]]:
    """Return the times of lines, censored ones included; total times exclude lines with a cut-in."""
    found: list[tuple[float, bool]] = []
    for each in lines:
        time: float | None = getattr(each, measure)
        if each.censored:
            found.append((each.waited_s or 0.0, True))
        elif time is not None and not (each.cut_in and measure == "total_s"):
            found.append((time, False))
    return found


# ── The voice tax ──

Cause = Literal["reasoning", "hearing", "speaking", "time", "unattributed"]


class ModalityResult(Struct, frozen=True):
    """One result of a case, typed or spoken, with the facts of the call that the voice tax uses."""

    case: str
    """The case digest."""
    model: str
    repeat: int
    variant: str
    outcome: Outcome
    has_complete_call: bool = False
    """Whether there was a complete call; if the result errored, the check of the call caused it."""
    is_caller_heard_correctly: bool | None = None
    """Whether the provider understood every word; None where it does not report what it heard."""
    transcript_passed: bool = False
    """Whether it passes by its transcript alone."""
    sound_contradicts: bool = False
    """Whether the sound contradicts the transcript."""
    has_late_answer: bool = False
    """Whether a line had no answer by the deadline."""


class LostAnswer(Struct, frozen=True):
    """A result that passed typed and did not pass spoken, with the cause."""

    case: str
    repeat: int
    cause: Cause


class VoiceTax(Struct, frozen=True):
    """What one model loses in one spoken variant."""

    model: str
    variant: str
    pairs: int
    """Pairs with a verdict on both sides."""
    kept: int
    gained: int
    """Pairs that failed typed and passed spoken."""
    reasoning: int
    """Pairs that failed typed and spoken: speech is not the cause."""
    lost: tuple[LostAnswer, ...]
    excluded: int
    """Spoken results left out because one side has no verdict."""
    text_rate: float | None
    voice_rate: float | None
    difference: float | None
    """Spoken minus typed, over cases; None without pairs."""
    interval: tuple[float, float]
    p_value: float

    @property
    def causes(self) -> dict[Cause, int]:
        """How many losses each cause has; causes without a loss are zero."""
        counted = Counter(each.cause for each in self.lost)
        return {cause: counted[cause] for cause in ("hearing", "speaking", "time", "unattributed")}


def make_modality_result(result: Result) -> ModalityResult:
    """Return the facts of a result that the voice tax uses; a typed result has no call."""
    key = result.key
    checks = [check for check in result.checks if check.name != CALL_CHECK and check.decides]
    call = next((check for check in result.checks if check.name == CALL_CHECK), None)
    known = ModalityResult(key.case, key.model, key.repeat, key.variant, result.outcome)
    if call is None:
        return known
    evidence = call.evidence
    broke = _get_nested(evidence, "times", "reason") in ("error", "closed")
    heard = _get_nested(evidence, "words", "heard", "count")
    return msgspec.structs.replace(
        known,
        has_complete_call=not broke and (result.outcome is not Outcome.ERRORED or call.outcome is Outcome.ERRORED),
        is_caller_heard_correctly=heard == 0 if isinstance(heard, int) else None,
        transcript_passed=bool(checks) and all(check.outcome is Outcome.PASSED for check in checks),
        sound_contradicts=_get_nested(evidence, "guard", "state") in CONTRADICTING_GUARD_STATES,
        has_late_answer=any(each.censored for each in read_measured_lines(evidence)),
    )


def _get_nested(data: object, *keys: str) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def find_loss_cause(written: Outcome, spoken: ModalityResult) -> Cause | None:
    """Return the cause of a loss; None if nothing was lost, or if the two sides are not comparable.

    The first that applies: it fails typed; the provider misheard the caller; the transcript passes but the sound
    contradicts it; no answer came in time.
    """
    if not are_comparable(written, spoken) or spoken.outcome is Outcome.PASSED:
        return None
    if written is not Outcome.PASSED:
        return "reasoning"
    if spoken.is_caller_heard_correctly is False:
        return "hearing"
    if spoken.transcript_passed and spoken.sound_contradicts:
        return "speaking"
    return "time" if spoken.has_late_answer else "unattributed"


def are_comparable(written: Outcome, spoken: ModalityResult) -> bool:
    """Return whether both have a verdict; a call errored by its own check counts as one, other errors do not."""
    ruled_out = spoken.outcome is Outcome.ERRORED and spoken.has_complete_call
    return written in SCORED and (spoken.outcome in SCORED or ruled_out)


def measure_voice_taxes(answers: Iterable[ModalityResult]) -> tuple[VoiceTax, ...]:
    """Return the tax of each model in each spoken variant, paired with the same case and repeat typed."""
    typed: dict[tuple[str, str, int], Outcome] = {}
    spoken: list[ModalityResult] = []
    for each in answers:
        if each.variant == TEXT_VARIANT:
            typed[each.model, each.case, each.repeat] = each.outcome
        else:
            spoken.append(each)
    spoken.sort(key=lambda each: (each.model, each.variant, each.case, each.repeat))
    return tuple(
        _measure_voice_tax(model, variant, [(typed.get((model, each.case, each.repeat)), each) for each in group])
        for (model, variant), group in groupby(spoken, key=lambda each: (each.model, each.variant))
    )


def _measure_voice_tax(model: str, variant: str, answers: Sequence[tuple[Outcome | None, ModalityResult]]) -> VoiceTax:
    pairs = [(text, each) for text, each in answers if text is not None and are_comparable(text, each)]
    causes = [(each, find_loss_cause(text, each)) for text, each in pairs]
    base: dict[str, list[Outcome]] = {}
    new: dict[str, list[Outcome]] = {}
    for text, each in pairs:
        base.setdefault(each.case, []).append(text)
        new.setdefault(each.case, []).append(
            Outcome.PASSED if each.outcome is Outcome.PASSED else Outcome.FAILED  # an errored call does not pass
        )
    found = compare(base, new)
    passed = [(text is Outcome.PASSED, each.outcome is Outcome.PASSED) for text, each in pairs]
    return VoiceTax(
        model=model,
        variant=variant,
        pairs=len(pairs),
        kept=passed.count((True, True)),
        gained=passed.count((False, True)),
        reasoning=passed.count((False, False)),
        lost=tuple(LostAnswer(each.case, each.repeat, why) for each, why in causes if why and why != "reasoning"),
        excluded=len(answers) - len(pairs),
        text_rate=found.base_rate,
        voice_rate=found.new_rate,
        difference=found.difference,
        interval=(found.interval.low, found.interval.high),
        p_value=found.p_value,
    )


# ── The calls of a run ──


class WordErrors(Struct, frozen=True):
    """Errors and total words, summed over calls."""

    errors: int = 0
    words: int = 0
    mean: float | None = None
    """The mean of the calls' rates: a short call counts as much as a long one."""
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


class VoiceSummary(Struct, frozen=True):
    """The calls of one model in one variant."""

    model: str
    variant: str
    calls: int
    turn_taking: TurnTaking
    heard: WordErrors
    """The provider's transcript of the caller against the caller's words."""
    referred: WordErrors
    """The agent's words in the recording against the reference."""
    words_a_minute: float | None
    """The median over calls."""
    quality: float | None
    """The median DNSMOS score, for diagnosis only."""
    by_ear: int = 0
    """Verdicts based on our transcript of the recording: the agent sent none, or one of more than was played."""

    @property
    def voice_to_voice(self) -> Latency:
        return self.turn_taking.voice_to_voice

    @property
    def median_leading_silence_s(self) -> float | None:
        """The median leading silence."""
        median_of_it = self.turn_taking.leading_silence.p50
        return None if median_of_it is None else median_of_it.value


class RunVoice(Struct, frozen=True):
    """The calls of a run, and the voice tax."""

    by: tuple[VoiceSummary, ...] = ()
    tax: tuple[VoiceTax, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """Return calls and voice tax as plain data."""
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
    """Collects calls from results, in any order."""

    def __init__(self, repeats: int = 1) -> None:
        """Create an empty tally; `repeats` is how often each case is called."""
        self._repeats = max(1, repeats)
        self._calls: dict[tuple[str, str], list[Mapping[str, object]]] = {}
        self._lines: dict[tuple[str, str], list[MeasuredLine]] = {}
        self._answers: list[ModalityResult] = []
        self._written_answers: list[ModalityResult] = []
        self._judged_by_recording: Counter[tuple[str, str]] = Counter()

    def add(self, result: Result) -> None:
        """Count one result; of a typed one, keep only the outcome."""
        if result.key.variant == TEXT_VARIANT:
            self._written_answers.append(make_modality_result(result))
            return
        self._answers.append(make_modality_result(result))
        for check in result.checks:
            if check.name == CALL_CHECK and check.evidence:
                key = (result.key.model, _add_case_conditions(result.key.variant, check.evidence))
                self._lines.setdefault(key, []).extend(read_measured_lines(check.evidence))
                self._calls.setdefault(key, []).append(_read_call_measurements(check.evidence))
                self._judged_by_recording[key] += result.outcome in SCORED and _is_judged_by_recording(
                    result.reply, check.evidence
                )

    def summarise_voice(self) -> RunVoice | None:
        """Return the summary so far; None without spoken results."""
        if not self._answers:
            return None
        rows = tuple(self._summarise_calls(*key) for key in sorted(self._calls))
        return RunVoice(
            rows, measure_voice_taxes([*self._written_answers, *self._answers]) if self._written_answers else ()
        )

    def _summarise_calls(self, model: str, variant: str) -> VoiceSummary:
        calls, lines = self._calls[model, variant], self._lines[model, variant]
        return VoiceSummary(
            model,
            variant,
            len(calls),
            measure_turn_taking(lines, len(calls) / self._repeats),
            _pool_word_errors(calls, "heard"),
            _pool_word_errors(calls, "referred"),
            _median_measurement(calls, "words_a_minute"),
            _median_measurement(calls, "quality"),
            self._judged_by_recording[model, variant],
        )


def _add_case_conditions(variant: str, evidence: Mapping[str, object]) -> str:
    """Return the variant of a call, with the conditions that its case may set.

    >>> _add_case_conditions("voice", {"conditions": "noise=10dB"}), _add_case_conditions("voice+phone", {})
    ('voice+noise=10dB', 'voice+phone')
    """
    under = evidence.get("conditions")
    return variant if not isinstance(under, str) else f"voice+{under}" if under else "voice"


def _read_call_measurements(evidence: Mapping[str, object]) -> Mapping[str, object]:
    """Return the few numbers of a call that are summed up: the whole evidence is large, and calls may be many."""
    return {
        "heard": read_recognition_errors(evidence),
        "referred": read_reference_errors(evidence),
        "words_a_minute": _get_nested(evidence, "sound", "words_a_minute"),
        "quality": _get_nested(evidence, "sound", "quality", "overall"),
    }


def read_recognition_errors(evidence: Mapping[str, object]) -> WordErrors:
    """Return the provider's word errors in one call; without words where it does not report what it heard."""
    return _sum_word_errors([each] if (each := _get_nested(evidence, "words", "heard")) else [])


def read_reference_errors(evidence: Mapping[str, object]) -> WordErrors:
    """Return the word errors of one recording against its references; without words where there are none."""
    return _sum_word_errors(
        [each for each in _get_nested(evidence, "words", "references") or () if isinstance(each, Mapping)]
    )


def _is_judged_by_recording(reply: Reply | None, evidence: Mapping[str, object]) -> bool:
    """Return whether some words of a reply come from our transcript of the recording instead of the agent's."""
    if not _get_nested(evidence, "words", "transcript"):
        return bool(_get_nested(evidence, "words", "recorded"))
    said = str(_get_nested(evidence, "words", "transcript", "reference") or "")
    return any(answer not in said for answer in (reply.answers if reply else ()))


def _sum_word_errors(text_comparisons: Sequence[Any]) -> WordErrors:
    """Sum the comparisons of one call."""
    errors, words = _count_errors(text_comparisons, "words")
    wrong, characters = _count_errors(text_comparisons, "characters")
    missed = sum(len(_get_nested(each, "missed") or ()) for each in text_comparisons)
    return WordErrors(errors, words, errors / words if words else None, wrong, characters, missed)


def _count_errors(text_comparisons: Sequence[Any], unit: str) -> tuple[int, int]:
    """Return how many words or characters are wrong, and how many there are."""
    kinds = ("substitutions", "deletions", "insertions")
    errors = sum(_get_nested(each, unit, kind) or 0 for each in text_comparisons for kind in kinds)
    return errors, sum(_get_nested(each, unit, "reference_words") or 0 for each in text_comparisons)


def _pool_word_errors(measurements_by_call: list[Mapping[str, object]], measurement_name: str) -> WordErrors:
    found = [each for call in measurements_by_call if isinstance(each := call[measurement_name], WordErrors)]
    rates = [each.mean for each in found if each.mean is not None]
    return WordErrors(
        sum(each.errors for each in found),
        sum(each.words for each in found),
        fmean(rates) if rates else None,
        sum(each.character_errors for each in found),
        sum(each.characters for each in found),
        sum(each.missed_entities for each in found),
    )


def _median_measurement(measurements_by_call: list[Mapping[str, object]], measurement_name: str) -> float | None:
    found = [value for call in measurements_by_call if isinstance(value := call[measurement_name], int | float)]
    return median(found) if found else None
