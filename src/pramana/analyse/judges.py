"""The judges of a run: checks in one at a time; counts by judge out, and sentences that name the judges.

Verdicts have the same source if the same version of a check and the same judge gave them. Where every model judges
itself, as in the published format, several models have several judges, which does not count as mixed; nor does one
judge for all, even if it is one of the tested models. A partly re-scored run is mixed: its pass rate belongs to no
single judge. Verdicts are never weighted.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache

from msgspec import Struct

from pramana.analyse.numbers import format_percent, pluralise, shorten_name
from pramana.analyse.pairing import SCORED, VerdictSource
from pramana.errors import PramanaError
from pramana.model import Check, JudgeCalibration

NON_JUDGE_PROVIDERS = ("local", "local-voice")
"""Embedded models are there to be tested and fail visibly; their verdicts would be no evidence."""
MAX_SEPARATE_VERDICT_SOURCES = 1_000
"""Sources counted separately; the rest are counted together. Only a check with a version per reply has so many."""
MAX_NAMED_JUDGES = 5
MIN_LABELS_FOR_ACCURACY = 30
"""Labels that an accuracy needs; a judge with fewer is uncalibrated."""
UNCALIBRATED = "uncalibrated"
PANEL_SEPARATOR = " + "
"""Between the names of the judges of a panel, whose majority decides."""
_OTHER_CHECKS_KEY = ("other checks", "", "", "")

_VerdictSourceKey = tuple[str, str, str, str]
"""Name and version of a check, its judge as typed, and the model that the judge's provider reported."""
_ModelAndSource = tuple[str, VerdictSource]
"""A model and the source of a verdict on it."""


class VerdictCount(Struct, frozen=True):
    """The number of verdicts from one source."""

    source: VerdictSource
    count: int


def keep_judge_name(name: str) -> str:
    """Return a judge's name unchanged: the default where names cannot be resolved."""
    return name


def find_verdict_source(check: Check, name_judge: Callable[[str], str] = keep_judge_name) -> VerdictSource:
    """Return the source of a check's verdict.

    >>> from pramana.model import Outcome
    >>> str(find_verdict_source(Check("llm_judge", "1", Outcome.PASSED, "", evidence={"judge": "gpt-5"})))
    'gpt-5'
    """
    return _make_verdict_source(_make_verdict_source_key(check), name_judge)


def _make_verdict_source_key(check: Check) -> _VerdictSourceKey:
    get = check.evidence.get
    judge, served = get("judge"), get("served_model")
    return check.name, check.version, judge if judge.__class__ is str else "", served if served.__class__ is str else ""


def _make_verdict_source(key: _VerdictSourceKey, name_judge: Callable[[str], str]) -> VerdictSource:
    name, version, judge, served = key
    return VerdictSource(name, version, name_judge(judge) if judge else "", served)


def describe_calibration(calibration: JudgeCalibration) -> str:
    """Return how far a judge agrees with people, in one phrase.

    >>> describe_calibration(JudgeCalibration("llm_judge", "1", "gpt-5"))
    'uncalibrated'
    >>> describe_calibration(JudgeCalibration("llm_judge", "1", "gpt-5", 60, 0.91, (0.842, 0.951)))
    'agrees with people 91.0 % (84.2–95.1 %, 60 labels)'
    """
    if calibration.accuracy is None or calibration.interval is None:
        few = f" ({calibration.label_count} of {MIN_LABELS_FOR_ACCURACY} labels)" if calibration.label_count else ""
        return f"{UNCALIBRATED}{few}"
    low, high = (100 * each for each in calibration.interval)
    labels = pluralise(calibration.label_count, "label")
    where = " of other runs" if calibration.is_from_other_runs else ""
    return f"agrees with people {format_percent(calibration.accuracy)} ({low:.1f}–{high:.1f} %, {labels}{where})"


def describe_calibrations_briefly(calibrations: Iterable[JudgeCalibration]) -> str | None:
    """Return how far judges agree with people in a few words, for lists; None where no model judged.

    Of several judges, the one that agrees least counts, and an uncalibrated one before all.

    >>> known = JudgeCalibration("llm_judge", "1", "gpt-5", 60, 0.917, (0.842, 0.951))
    >>> describe_calibrations_briefly([known]), describe_calibrations_briefly([])
    ('judge agrees 91 %', None)
    >>> describe_calibrations_briefly([known, JudgeCalibration("llm_judge", "1", "opus")])
    'uncalibrated'
    """
    return describe_accuracies_briefly([each.accuracy for each in calibrations])


def describe_accuracies_briefly(accuracies: Collection[float | None]) -> str | None:
    """Return the same of the accuracies of judges, which are None for uncalibrated ones."""
    if not accuracies:
        return None
    known = [each for each in accuracies if each is not None]
    if len(known) < len(accuracies):
        return UNCALIBRATED
    return f"judge agrees {math.floor(100 * min(known))} %"  # rounded down: the agreement must not be overstated


def choose_lowest_calibration(brief_calibrations: Iterable[str | None]) -> str | None:
    """Return the calibration, in a few words, that says least for pooled numbers; None where no model judged.

    >>> choose_lowest_calibration(["judge agrees 91 %", None, "judge agrees 9 %"])
    'judge agrees 9 %'
    >>> choose_lowest_calibration(["judge agrees 91 %", "uncalibrated"]), choose_lowest_calibration([None])
    ('uncalibrated', None)
    """
    known = [each for each in brief_calibrations if each]
    return min(known, key=lambda each: -1 if each == UNCALIBRATED else int(each.split()[-2]), default=None)


class JudgeTally:
    """Counts verdicts by source. `name_judge` maps the different names of a judge to one."""

    def __init__(
        self, name_judge: Callable[[str], str] = keep_judge_name, calibrations: Iterable[JudgeCalibration] = ()
    ) -> None:
        self._name_judge = name_judge
        self.set_calibrations(calibrations)
        self._counts_by_key: dict[tuple[str, _VerdictSourceKey], int] = {}

    def set_calibrations(self, calibrations: Iterable[JudgeCalibration]) -> None:
        """Set how far judges agree with people; a judge that is not among them is uncalibrated."""
        self._calibrations = {(each.check, each.version, each.judge): each for each in calibrations}

    def add(self, model: str, check: Check) -> None:
        """Count a check if it is a verdict."""
        if check.outcome in SCORED:
            found = (model, _make_verdict_source_key(check))
            known = self._counts_by_key.get(found)
            if known is None and len(self._counts_by_key) >= MAX_SEPARATE_VERDICT_SOURCES:
                found = (model, _OTHER_CHECKS_KEY)
                known = self._counts_by_key.get(found)
            self._counts_by_key[found] = (known or 0) + 1

    @property
    def has_judges(self) -> bool:
        """Whether a judge gave any of the verdicts."""
        return any(judge or name == _OTHER_CHECKS_KEY[0] for _, (name, _, judge, _) in self._counts_by_key)

    def _count_by_model_and_source(self) -> Counter[_ModelAndSource]:
        counts: Counter[_ModelAndSource] = Counter()
        for (model, stated), count in self._counts_by_key.items():
            counts[model, _make_verdict_source(stated, self._name_judge)] += count
        return counts

    def count_verdicts(self) -> tuple[VerdictCount, ...]:
        """Return how many verdicts each judge gave, by check, then most first."""
        counts: Counter[VerdictSource] = Counter()
        for (_, judged), count in self._count_by_model_and_source().items():
            counts[judged] += count
        return tuple(
            VerdictCount(judged, count)
            for judged, count in sorted(counts.items(), key=lambda each: (each[0].check, -each[1], each[0]))
        )

    def mixed_judge_sentences(self) -> tuple[str, ...]:
        """Return a sentence for each check whose verdicts come from several judges.

        >>> from pramana.model import Outcome
        >>> judges = JudgeTally()
        >>> for judge in ("gpt-5", "opus", "gpt-5"):
        ...     judges.add("m", Check("llm_judge", "1", Outcome.PASSED, "", evidence={"judge": judge}))
        >>> judges.mixed_judge_sentences()
        ('llm_judge: 2 of 3 verdicts by gpt-5, 1 by opus; uncalibrated',)
        """
        counts = self._count_by_model_and_source()
        return tuple(
            self._mixed_judge_sentence(kinds, counts)
            for kinds in _group_by_check(counts)
            if self._have_several_judges(kinds)
        )

    def judge_sentence(self) -> str:
        """Return a sentence naming the judges of the checks that are not mixed; empty where no judge was used.

        >>> from pramana.model import Outcome
        >>> judges = JudgeTally()
        >>> judges.add("m", Check("llm_judge", "1", Outcome.PASSED, "", evidence={"judge": "gpt-5"}))
        >>> judges.judge_sentence()
        'Judged by gpt-5, uncalibrated.'
        """
        counts = self._count_by_model_and_source()
        asked = [kinds for kinds in _group_by_check(counts) if any(each.by for _, each in kinds)]
        alike = [kinds for kinds in asked if not self._have_several_judges(kinds)]
        alone = len({model for model, _ in counts}) == 1
        names = {
            kinds[0][
                1
            ].check: f"{self._describe_same_judge(kinds, run_has_one_model=alone)}{self._describe_trust(kinds)}"
            for kinds in alike
        }
        if len(alike) == len(asked) and len(set(names.values())) == 1:
            return f"Judged by {next(iter(names.values()))}."
        return f"Judged by {'; '.join(f'{name} ({check})' for check, name in names.items())}." if names else ""

    def list_calibrations(self) -> tuple[JudgeCalibration, ...]:
        """Return how far each judge agrees with people, by check; judges without labels are uncalibrated."""
        sources = {judged for _, judged in self._count_by_model_and_source() if judged.by}
        keys = sorted({(each.check, each.version, each.by) for each in sources})
        return tuple(self._calibrations.get(key, JudgeCalibration(*key)) for key in keys)

    def _describe_trust(self, judgings: Iterable[_ModelAndSource]) -> str:
        """Return how far the judges of one check agree with people, as the end of a sentence about one judge."""
        said = dict.fromkeys(
            describe_calibration(self._find_calibration(source)) for _, source in judgings if source.by
        )
        return ", " + "; ".join(f"which {each}" if each.startswith("agrees") else each for each in said)

    def _find_calibration(self, source: VerdictSource) -> JudgeCalibration:
        key = (source.check, source.version, source.by)
        return self._calibrations.get(key, JudgeCalibration(*key))

    def _describe_same_judge(self, judgings: Iterable[_ModelAndSource], *, run_has_one_model: bool) -> str:
        """Name the judge of verdicts with one source; `run_has_one_model` means that the run has only one model."""
        judged = [kind for kind in judgings if kind[1].by]
        several = len({model for model, _ in judged}) > 1
        if (several or run_has_one_model) and all(self._judges_itself(*kind) for kind in judged):
            return "each model itself" if several else "its own model"
        return shorten_name(judged[0][1].by)

    def _have_several_judges(self, judgings: Iterable[_ModelAndSource]) -> bool:
        named = {(each.version, each.by) for _, each in judgings}
        own = {(each.version, "" if self._judges_itself(model, each) else each.by) for model, each in judgings}
        return (len(named) > 1 and len(own) > 1) or any(_count_served_models(judgings, *each) > 1 for each in named)

    def _judges_itself(self, model: str, source: VerdictSource) -> bool:
        return bool(source.by) and source.by == self._name_judge(model)

    def _mixed_judge_sentence(
        self, judgings: list[_ModelAndSource], counts_by_judging: Mapping[_ModelAndSource, int]
    ) -> str:
        several = len({model for model, _ in counts_by_judging}) > 1
        counts: dict[tuple[str, str, str], int] = {}
        for model, each in judgings:
            by = "each model itself" if several and self._judges_itself(model, each) else each.by
            served = each.served if by == each.by and _count_served_models(judgings, each.version, by) > 1 else ""
            name = (each.version, by, served)
            counts[name] = counts.get(name, 0) + counts_by_judging[model, each]
        check, total = judgings[0][1].check, sum(counts.values())
        versions = len({version for version, _, _ in counts}) > 1
        ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        parts = [
            f"{count:,}{'' if place else f' of {total:,} verdicts'} by {_describe_judge(*name, show_version=versions)}"
            for place, (name, count) in enumerate(ordered[:MAX_NAMED_JUDGES])
        ]
        rest = sum(count for _, count in ordered[MAX_NAMED_JUDGES:])
        return (
            f"{check}: {', '.join(parts)}{f', {rest:,} by other judges' if rest else ''}{self._describe_each(judgings)}"
        )

    def _describe_each(self, judgings: list[_ModelAndSource]) -> str:
        """Return how far each of several judges agrees with people; empty where no model judged."""
        found = {source.by: describe_calibration(self._find_calibration(source)) for _, source in judgings if source.by}
        if not found:
            return ""
        if set(found.values()) == {UNCALIBRATED}:
            return f"; {UNCALIBRATED}"
        told = (
            f"{shorten_name(by)} {said if said.startswith('agrees') else f'is {said}'}"
            for by, said in list(found.items())[:MAX_NAMED_JUDGES]
        )
        return f"; {', '.join(told)}"


def _group_by_check(models_and_sources: Iterable[_ModelAndSource]) -> list[list[_ModelAndSource]]:
    """Group the sources of verdicts by check."""
    ordered = sorted(models_and_sources)
    checks = dict.fromkeys(judged.check for _, judged in ordered)
    return [[kind for kind in ordered if kind[1].check == check] for check in checks]


def _count_served_models(judgings: Iterable[_ModelAndSource], version: str, judge: str) -> int:
    """Count the models that the provider reported for one judge."""
    return len({each.served for _, each in judgings if each.served and (each.version, each.by) == (version, judge)})


def _describe_judge(version: str, judge: str, served_model: str, *, show_version: bool) -> str:
    notes = [f"version {version}"] if judge and show_version else []
    notes += [served_model] if served_model else []
    shown = shorten_name(judge or f"version {version}")
    return f"{shown} ({', '.join(notes)})" if notes else shown


@cache
def canonical_judge_name(typed: str) -> str:
    """Return the canonical name of a judge, however it was typed.

    >>> [canonical_judge_name(name) for name in ("gpt-5", "openai:gpt-5", "a name of another machine")]
    ['openai:gpt-5', 'openai:gpt-5', 'a name of another machine']
    """
    from pramana.providers.names import resolve_target

    if PANEL_SEPARATOR in typed:
        return PANEL_SEPARATOR.join(map(canonical_judge_name, typed.split(PANEL_SEPARATOR)))
    try:
        target = resolve_target(typed)
    except PramanaError:  # a name from another machine or version
        return typed
    return target.typed if target.arguments else f"{target.provider}:{target.model}"
