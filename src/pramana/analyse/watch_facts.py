"""What a watch shows beside its statistic: what providers report, the community's hash consistency, and categories.

Facts and descriptions, never tests: none of them raises an alarm. Pure functions on features.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal

from msgspec import Struct

from pramana.analyse.instruments import INSTRUMENTS, MeasuredDay

ConsistencyWord = Literal["stable", "watch", "drifting"]
STABLE_SHARE, WATCH_SHARE = 0.95, 0.80
"""The limits that the Pramana community uses for its hash consistency."""


class HashConsistency(Struct, frozen=True):
    """How many replies of the last day equal the usual reply of their prompt on the baseline's days, to the letter."""

    equal: int
    compared: int

    @property
    def share(self) -> float:
        """The share of equal replies."""
        return self.equal / self.compared

    @property
    def word(self) -> ConsistencyWord:
        """The community's word for this share."""
        return "stable" if self.share >= STABLE_SHARE else "watch" if self.share >= WATCH_SHARE else "drifting"


def measure_hash_consistency(baseline: Sequence[MeasuredDay], latest: MeasuredDay) -> HashConsistency | None:
    """Compare the replies of a day with the most frequent reply of each prompt on the baseline's days.

    Returns None if no prompt has replies on both.
    """
    counts: dict[str, Counter[str]] = {}
    for day in baseline:
        for prompt in day.features.case_prompts:
            counts.setdefault(prompt.key, Counter()).update(prompt.replies)
    equal = compared = 0
    for prompt in latest.features.case_prompts:
        if usual := counts.get(prompt.key):
            reply = min(usual, key=lambda each: (-usual[each], each))
            equal += sum(each == reply for each in prompt.replies)
            compared += len(prompt.replies)
    return HashConsistency(equal, compared) if compared else None


class ReportedChange(Struct, frozen=True):
    """Something that the provider reports now and did not report on the baseline's days."""

    what: Literal["model", "fingerprint"]
    value: str
    first_day: str
    before: tuple[str, ...]
    """What it reported on the baseline's days."""
    replaces_all: bool
    """Whether none of that was reported on the last day."""

    @property
    def sentence(self) -> str:
        """Return the change as a sentence."""
        earlier = " or ".join(self.before)
        noun = "model" if self.what == "model" else "fingerprint"
        instead = f" instead of {earlier}" if self.replaces_all else f" beside {earlier}"
        return f"The provider reports the {noun} {self.value}{instead} since {self.first_day}."


def find_reported_changes(baseline: Sequence[MeasuredDay], later: Sequence[MeasuredDay]) -> tuple[ReportedChange, ...]:
    """Return the models and fingerprints of the last day that the provider did not report on the baseline's days.

    A provider that reported none on those days reports nothing new.
    """
    if not later:
        return ()
    found = list[ReportedChange]()
    names: tuple[tuple[Literal["model", "fingerprint"], str], ...] = (
        ("model", "served_models"),
        ("fingerprint", "fingerprints"),
    )
    for what, name in names:
        before = {value for day in baseline for value in getattr(day.features, name)}
        now: Mapping[str, int] = getattr(later[-1].features, name)
        for value in now if before else ():
            if value not in before:
                first = next(day.day for day in later if value in getattr(day.features, name))
                found.append(ReportedChange(what, value, first, tuple(sorted(before)), not before & set(now)))
    return tuple(found)


class CategoryShift(Struct, frozen=True):
    """The mean result of one category before and since a change, for an instrument that counts shares."""

    category: str
    prompts: int
    before: float
    since: float


def measure_category_shifts(
    instrument_name: str, baseline: Sequence[MeasuredDay], since: Sequence[MeasuredDay]
) -> tuple[CategoryShift, ...]:
    """Return the shift of each category, the largest first, in the unit that users see."""
    instrument = INSTRUMENTS[instrument_name]
    if instrument.needs_references or instrument.unit != "share":
        return ()
    before, after = (_collect_by_category(instrument_name, days) for days in (baseline, since))
    prompts = {prompt.key: prompt.category for prompt in since[-1].features.case_prompts} if since else {}
    shifts = [
        CategoryShift(
            category,
            sum(each == category for each in prompts.values()),
            instrument.to_shown(fmean(before[category])),
            instrument.to_shown(fmean(values)),
        )
        for category, values in after.items()
        if category in before
    ]
    return tuple(sorted(shifts, key=lambda each: -abs(each.since - each.before)))


def _collect_by_category(instrument_name: str, days: Sequence[MeasuredDay]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for day in days:
        for prompt in day.features.case_prompts:
            value = INSTRUMENTS[instrument_name].measure(prompt, {})
            if value is not None and prompt.category is not None:
                found.setdefault(prompt.category, []).append(value)
    return found
