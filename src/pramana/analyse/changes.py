"""Changes besides the verdicts: times and misheard words of two runs by case in; differences with intervals out.

The case is the unit, and each is compared with itself: line by line, on as many repeats as both sides have; its time is
the median of its lines, those of all its variants together. The difference reported is the median over cases, with the
exact interval that inverts the sign test, so no distribution of times is assumed. A censored time is only known to be
longer than the caller waited, so a difference may be a range. The interval then takes the lower ends of the ranges for
its lower bound and the upper ends for its upper bound, and is valid whatever the true times were. Fewer than six cases
have no interval.

Misheard words are pooled: all errors over all words. A sign-flip test over cases decides whether they differ; the
interval is that of a ratio of sums, with cases as the clusters.

Several quantities are measured, and of identical runs each would be called different once in twenty times. So "proven"
is decided by Holm's adjusted p-values over all that are shown: at most one in twenty pairs of identical runs has any
sentence. Each interval holds by itself.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pramana.analyse.gate import BAD, GOOD, INCONCLUSIVE, ExitDecision
from pramana.analyse.intervals import (
    Interval,
    adjust_p_values,
    median_interval,
    median_p_value,
    ratio_difference_interval,
    sign_flip_p_value,
)
from pramana.analyse.labels import TWO_RUN_LABELS, SideLabels
from pramana.analyse.numbers import (
    format_duration,
    format_error_rate,
    format_signed_points_with_unit,
    format_time_difference,
    pluralise,
)
from pramana.analyse.pairing import split_variant
from pramana.analyse.voice import (
    CALL_CHECK,
    MeasuredLine,
    list_latency_observations,
    read_measured_lines,
    read_recognition_errors,
    read_reference_errors,
)
from pramana.errors import InvalidInput
from pramana.model import Check

ALPHA = 0.05
NOTICEABLE_S = 0.01
"""Differences shorter than this are not mentioned, even when proven: they are too small to notice."""

TimeMeasure = Literal["voice to voice", "time to give way", "total time", "time to first token"]
VOICE_TO_VOICE: Final = "voice to voice"
TOTAL: Final = "total time"
TIME_MEASURES: tuple[TimeMeasure, ...] = (VOICE_TO_VOICE, "time to give way", TOTAL, "time to first token")
TIME_MEASURES_WITH_LIMIT: tuple[TimeMeasure, ...] = (VOICE_TO_VOICE, TOTAL)
"""The measures that a limit applies to: how long a person waits, in calls and for typed replies."""
WordMeasure = Literal["misheard words", "word error rate"]

Range = tuple[float, float]
"""The lowest and the highest value that a number may have; equal where the number is known."""


class CaseMeasurements(Struct):
    """The measurements of one case on one side, over its repeats and the lines of its calls."""

    times: dict[TimeMeasure, dict[int, list[Range]]] = field(default_factory=dict)
    """By line, one time per repeat."""
    words: dict[WordMeasure, list[tuple[int, int]]] = field(default_factory=dict)
    """Errors and total words, one pair per repeat."""

    def add_written_times(self, total_s: float | None, first_token_s: float | None) -> None:
        """Add the times of a written reply."""
        if total_s is not None:
            self._add_range(TOTAL, 0, (total_s, total_s))
        if first_token_s is not None:
            self._add_range("time to first token", 0, (first_token_s, first_token_s))

    def add_call_check(self, checks: Iterable[Check]) -> None:
        """Add the measurements of a call's check; without such a check, add nothing."""
        for check in checks:
            if check.name == CALL_CHECK and check.evidence:
                for line_index, line in enumerate(read_measured_lines(check.evidence)):
                    self._add_line(line_index, line)
                heard: tuple[tuple[WordMeasure, Any], ...] = (
                    ("misheard words", read_recognition_errors(check.evidence)),
                    ("word error rate", read_reference_errors(check.evidence)),
                )
                for name, pooled in heard:
                    if pooled.words:
                        self.words.setdefault(name, []).append((pooled.errors, pooled.words))

    def _add_line(self, line_index: int, line: MeasuredLine) -> None:
        for seconds, censored in list_latency_observations([line]):
            self._add_range(VOICE_TO_VOICE, line_index, (seconds, math.inf if censored else seconds))
        if line.yield_s is not None:
            self._add_range("time to give way", line_index, (line.yield_s, line.yield_s))
        elif line.yield_censored_s is not None:
            self._add_range("time to give way", line_index, (line.yield_censored_s, math.inf))

    def _add_range(self, name: TimeMeasure, line_index: int, seconds: Range) -> None:
        self.times.setdefault(name, {}).setdefault(line_index, []).append(seconds)


def merge_repeats(repeats: Iterable[CaseMeasurements]) -> CaseMeasurements:
    """Return the measurements of a case over all its repeats, in their order."""
    found = CaseMeasurements()
    for each in repeats:
        for name, lines in each.times.items():
            for line_index, seconds in lines.items():
                found.times.setdefault(name, {}).setdefault(line_index, []).extend(seconds)
        for kind, wrong in each.words.items():
            found.words.setdefault(kind, []).extend(wrong)
    return found


Side = Mapping[str, CaseMeasurements]
"""By case, or by case and variant (`split_variant`)."""


class Change(Struct, frozen=True):
    """One measure on both sides. Times are in seconds, words are a share of all words; infinite means unbounded."""

    measure: TimeMeasure | WordMeasure
    cases: int
    """How many cases were compared, each with itself."""
    only_base: int
    """Cases that were measured on the base side only."""
    base: Range
    """For times, the median over cases; for words, the pooled rate."""
    new: Range
    difference: Range
    """For times, the median of the cases' differences; for words, the difference of the rates."""
    interval: Interval | None
    """The 95 % interval of the difference; None where there are too few cases for one."""
    method: str
    ratio: Range = (1.0, 1.0)
    """For times, the median of new / base."""
    ratio_interval: Interval | None = None
    worst_difference: float = math.inf
    """The upper end of the interval if cases not measured on the new side never ended; likewise `worst_ratio`."""
    worst_ratio: float = math.inf
    p_value: float = 1.0
    """Of the test that `method` names."""
    adjusted_p_value: float = 1.0
    """Holm's, over all measures that are shown together."""
    family_size: int = 1
    """How many measures these are."""
    word_counts: tuple[int, int] = (0, 0)
    """How many words the rates are based on: base, new."""
    labels: SideLabels = TWO_RUN_LABELS
    """The names of the two sides in sentences."""

    @property
    def is_proven(self) -> bool:
        """Whether the change is significant at 5 %, among all measures that are shown together."""
        return self._is_significant_alone and self.adjusted_p_value <= ALPHA

    @property
    def _is_significant_alone(self) -> bool:
        """Whether the change would be significant if nothing else had been measured."""
        if self.interval is None or self.p_value > ALPHA:
            return False
        return self.interval.low > 0 or self.interval.high < 0

    @property
    def is_time(self) -> bool:
        """Whether this measures time; otherwise it is a share of words."""
        return self.measure in TIME_MEASURES

    @property
    def sentence(self) -> str:
        """The change in plain words if it is proven and large enough to notice; otherwise empty."""
        low, high = self.difference
        if not self.is_proven:
            return ""
        if not self.is_time:
            before, now = format_error_rate(self.base[0]), format_error_rate(self.new[0])
            fewer = "More" if low > 0 else "Fewer"
            if self.labels.model_labels:
                rates = f"{before} {self.labels.base}, {now} {self.labels.new}"
                return f"{fewer} words wrong {self.labels.new}: {self.measure} {rates}; statistically significant."
            return f"{fewer} words wrong: {self.measure} went from {before} to {now}; statistically significant."
        least, most = sorted((abs(low), abs(high)))
        if most < NOTICEABLE_S:
            return ""
        # The median of the cases' differences, as tested: the median of all times may have moved the other way.
        by = _format_range((least, most), format_duration).replace("≥", "at least")
        way = "slower" if low > 0 else "faster"
        way = f"{self.labels.model_labels[1]} is {way}" if self.labels.model_labels else way.capitalize()
        return f"{way}: {self.measure} by {by} (median of {self._case_count_text}); statistically significant."

    @property
    def detail(self) -> str:
        """The numbers in words, with the interval or the reason why there is none."""
        timed = self.is_time
        shown, by = (
            (_format_time_range, format_time_difference)
            if timed
            else (lambda given: format_error_rate(given[0]), format_signed_points_with_unit)
        )
        named = f"{self.measure[0].upper()}{self.measure[1:]}"
        words = ["", ""] if timed else [f" of {each:,}" for each in self.word_counts]
        base, new = self.labels.base, self.labels.new
        numbers = f"{named} {shown(self.base)}{words[0]} {base}, {shown(self.new)}{words[1]} {new}"
        difference = f"{'median difference ' if timed else ''}{_format_range(self.difference, by)}"
        if self.interval is None:
            sure = f"{self._case_count_text}; an interval needs at least {MIN_CASES}"
        else:
            ends = f"{by(self.interval.low)} to {by(self.interval.high)}"
            sure = f"95 % interval {ends}, {self._case_count_text}; {self.method}"
        sure += f", p = {self.p_value:.2g}" if self.interval and not timed else ""
        if self._is_significant_alone and not self.is_proven:
            sure += f"; not significant among {self.family_size} measures, adjusted p = {self.adjusted_p_value:.2g}"
        lost = f"; {self.only_base:,} more had {'a time' if timed else 'words'} only {base}" if self.only_base else ""
        return f"{numbers}: {difference} ({sure}{lost})."

    @property
    def _case_count_text(self) -> str:
        return pluralise(self.cases, "case")


def _format_range(values: Range, formatter: Callable[[float], str]) -> str:
    low, high = values
    if low == high:
        return formatter(low)
    if math.isinf(low):
        return "unknown" if math.isinf(high) else f"≤ {formatter(high)}"
    return f"≥ {formatter(low)}" if math.isinf(high) else f"{formatter(low)} to {formatter(high)}"


def _format_time_range(values: Range) -> str:
    low, high = values
    return f"{'' if low == high else '≥ '}{format_duration(low)}"


def measure_changes(base: Side, new: Side) -> tuple[Change, ...]:
    """Return the changes of everything measured on both sides, times first, with p-values adjusted for their number."""
    timed = (_measure_time_change(name, base, new) for name in TIME_MEASURES)
    counted = (_measure_word_change(name, base, new) for name in ("misheard words", "word error rate"))
    found = [each for each in (*timed, *counted) if each is not None]
    tested = [each for each in found if each.interval is not None]  # too few cases for an interval: no test
    adjusted = dict(zip(map(id, tested), adjust_p_values([each.p_value for each in tested]), strict=True))
    return tuple(replace(each, adjusted_p_value=adjusted.get(id(each), 1.0), family_size=len(tested)) for each in found)


def _measure_time_change(name: TimeMeasure, base: Side, new: Side) -> Change | None:
    before: list[Range] = []
    after: list[Range] = []
    differences: list[Range] = []
    ratios: list[Range] = []
    lost = 0
    for keys in _group_by_case(base):
        lines: list[tuple[Range, Range]] = []
        for key in keys:
            old, now = base[key].times.get(name, {}), new[key].times.get(name, {}) if key in new else {}
            lines += [
                (_median_line_time(old[at], now[at]), _median_line_time(now[at], old[at])) for at in old if at in now
            ]
        if not lines:
            lost += any(base[key].times.get(name) for key in keys)
            continue
        before.append(_median_range([was for was, _ in lines]))
        after.append(_median_range([is_ for _, is_ in lines]))
        differences.append(_median_range([(is_[0] - was[1], is_[1] - was[0]) for was, is_ in lines]))
        ratios.append(
            _median_range([(is_[0] / was[1], is_[1] / was[0]) for was, is_ in lines if was[0] > 0] or [(0, math.inf)])
        )
    if not differences:
        return None
    unmeasured = [(-math.inf, math.inf)] * lost
    worst, worst_ratio = median_interval([*differences, *unmeasured]), median_interval([*ratios, *unmeasured])
    return Change(
        name,
        len(differences),
        lost,
        _median_range(before),
        _median_range(after),
        _median_range(differences),
        median_interval(differences),
        "exact sign test",
        _median_range(ratios),
        median_interval(ratios),
        math.inf if worst is None else worst.high,
        math.inf if worst_ratio is None else worst_ratio.high,
        p_value=median_p_value(differences),
    )


def _group_by_case(side: Side) -> list[list[str]]:
    """Return the keys of each case, one a variant: its variants are slow together and are not several cases."""
    keys_by_case: dict[str, list[str]] = {}
    for key in side:
        keys_by_case.setdefault(split_variant(key)[0], []).append(key)
    return list(keys_by_case.values())


def _median_line_time(side: Sequence[Range], other: Sequence[Range]) -> Range:
    """Return the time of a line, over as many repeats as the other side has, so that swapping the sides is fair."""
    return _median_range(side[: min(len(side), len(other))])


def _median_range(ranges: Sequence[Range]) -> Range:
    """Return the median of numbers, some of which are only known to lie in a range."""
    return median(low for low, _ in ranges), median(high for _, high in ranges)


def _measure_word_change(name: WordMeasure, base: Side, new: Side) -> Change | None:
    rows: list[tuple[int, int, int, int]] = []
    lost = 0
    for keys in _group_by_case(base):
        was: list[tuple[int, int]] = []
        is_: list[tuple[int, int]] = []
        for key in keys:
            old, now = base[key].words.get(name, []), new[key].words.get(name, []) if key in new else []
            repeats = min(len(old), len(now))
            was, is_ = was + old[:repeats], is_ + now[:repeats]
        if not was:
            lost += any(base[key].words.get(name) for key in keys)
            continue
        rows.append((*map(sum, zip(*was, strict=True)), *map(sum, zip(*is_, strict=True))))  # type: ignore[arg-type]
    if not rows:
        return None
    word_counts = sum(row[1] for row in rows), sum(row[3] for row in rows)
    rates = sum(row[0] for row in rows) / word_counts[0], sum(row[2] for row in rows) / word_counts[1]
    difference = rates[1] - rates[0]
    return Change(
        name,
        len(rows),
        lost,
        (rates[0], rates[0]),
        (rates[1], rates[1]),
        (difference, difference),
        ratio_difference_interval(rows),
        "sign flips by case",
        p_value=sign_flip_p_value([row[2] - row[0] for row in rows]),
        word_counts=word_counts,
    )


# ── Limits ──

_LIMIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|%)\s*")


class Limit(Struct, frozen=True):
    """How much slower the new run may be: in seconds, or as a share of the base time."""

    text: str
    seconds: float | None = None
    share: float | None = None


def parse_limit(text: str) -> Limit:
    """Parse a limit, such as `200ms` or `20%`.

    >>> parse_limit("200ms").seconds, parse_limit("1.5 s").seconds, parse_limit("20%").share
    (0.2, 1.5, 0.2)
    """
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise InvalidInput(f"{text!r} is neither a time nor a percentage; write a limit such as 200ms, 0.5s or 20%")
    number, unit = float(found[1]), found[2]
    if unit == "%":
        return Limit(f"{number:g} %", share=number / 100)
    return Limit(f"{number:g} {unit}", seconds=number / 1000 if unit == "ms" else number)


def decide_slowdown(changes: Iterable[Change], limit: Limit) -> ExitDecision:
    """Decide whether the new run is slower by more than the limit: proven (1), ruled out (0), or neither (4).

    A slowdown is ruled out only in the worst case, in which cases timed on the base side alone never end.
    """
    timed = [each for each in changes if each.measure in TIME_MEASURES_WITH_LIMIT]
    decisions = [(_compare_with_limit(each, limit), each) for each in timed]
    if not decisions:
        return ExitDecision(
            INCONCLUSIVE, f"Slower by more than {limit.text}? Not decided: no case was timed on both sides."
        )
    code = next(each for each in (BAD, INCONCLUSIVE, GOOD) if any(each == code for code, _ in decisions))
    which = [each for code_, each in decisions if code_ == code]
    names = " and ".join(each.measure for each in which)
    sentences = {
        BAD: f"Too slow: {names} is more than {limit.text} slower; statistically significant.",
        GOOD: f"Not slower by more than {limit.text}: {names}.",
        INCONCLUSIVE: f"{names} slower by more than {limit.text}? Not decided: {_explain_undecided(which)}.",
    }
    return ExitDecision(code, sentences[code])


def _compare_with_limit(change: Change, limit: Limit) -> int:
    if limit.seconds is not None:
        interval, most, worst = change.interval, limit.seconds, change.worst_difference
    else:
        interval, most, worst = change.ratio_interval, 1 + (limit.share or 0.0), change.worst_ratio
    if interval is None:
        return INCONCLUSIVE
    return BAD if interval.low > most else GOOD if worst <= most else INCONCLUSIVE


def _explain_undecided(undecided: Sequence[Change]) -> str:
    few = [each.cases for each in undecided if each.interval is None]
    if few:
        return f"{few[0]} case{' was' if few[0] == 1 else 's were'} timed, and a decision needs at least {MIN_CASES}"
    lost = max(each.only_base for each in undecided)
    labels = undecided[0].labels
    had = f"timed {labels.base} but not {labels.new}"
    unmeasured = f", with {lost} case{'' if lost == 1 else 's'} {had}" if lost else ""
    return f"the interval contains the limit{unmeasured}"


MIN_CASES = next(count for count in range(1, 100) if median_interval([(0.0, 0.0)] * count))
"""The fewest cases for which a median has an interval."""
