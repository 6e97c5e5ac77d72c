"""Comparisons of three and more sides: runs, or the models of one run, in; one table of sides and pairs out.

Every pair is compared as `comparisons` compares two sides, by the same pairing, and all pairs are decided together
(`analyse.joint_comparison`). Each side is read once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated

from msgspec import Meta, Struct

from pramana.analyse.comparison import DAY_NOTE, PreparedComparison, prepare_comparison
from pramana.analyse.joint_comparison import (
    MAX_SIDES,
    MAX_SIDES_WITH_REFERENCE,
    PairComparison,
    compare_pairs,
    describe_proven,
    join_names,
)
from pramana.analyse.labels import MAX_MODEL_LENGTH, SideLabels, shorten_names
from pramana.analyse.numbers import pluralise
from pramana.analyse.paired_tests import Test, Verdict
from pramana.analyse.pairing import SCORED, split_variant
from pramana.analyse.rates import Rate
from pramana.app import App, User, use_case
from pramana.app.comparison_sides import (
    DEFAULT_MARGIN_POINTS,
    ComparisonSide,
    ComparisonSource,
    DifferentCasesError,
    SideKeys,
    choose_side_keys,
    find_request_differences,
    has_same_cases,
    parse_margin,
    read_side,
)
from pramana.app.comparisons import Margin, make_missing_choice_error, make_state_key
from pramana.app.references import (
    ModelUnclear,
    SeveralSides,
    make_baseline_reference,
    make_run_reference,
    resolve_several_sides,
)
from pramana.app.views import View
from pramana.errors import InvalidInput
from pramana.model import Outcome
from pramana.request import SearchText

INTERVALS_NOTE = (
    "Each interval belongs to its own difference, at the confidence at which Holm's correction tests it: 95 % or more. "
    "It excludes zero exactly if the test rejects; a win must also hold if missing verdicts had failed. All intervals "
    "together have less confidence than each."
)
_RunReference = Annotated[str, Meta(min_length=1, max_length=200)]


class SideView(View, frozen=True, kw_only=True):
    """One side of a table: a model of a run, and how many of its replies passed."""

    name: Annotated[str, Meta(description="Name of the side in this table")]
    run: Annotated[str, Meta(description="ID of the run, or the path of a file")]
    model: Annotated[str, Meta(description="Model, as typed in the run")]
    title: Annotated[str, Meta(description="The run or file, and its date")]
    cases: Annotated[int, Meta(description="Cases that are compared with another side")]
    passed: Annotated[int, Meta(description="Replies that passed")]
    answers: Annotated[int, Meta(description="Replies with a verdict to these cases")]
    pass_rate: Annotated[float | None, Meta(description="Share of these replies that passed; null without any")]
    interval: Annotated[tuple[float, float] | None, Meta(description="95 % interval of the pass rate")]


class PairView(View, frozen=True, kw_only=True):
    """Two sides of a table; the difference is new minus base."""

    base: Annotated[
        str, Meta(description="Name of the side; of two models, the one that passes less, or the reference")
    ]
    new: str
    result: Annotated[str, Meta(description="Who is better, in a few words: A beats B, no significant difference")]
    winner: Annotated[str | None, Meta(description="Name of the side that is proven to be better; null if neither is")]
    verdict: Verdict
    sentence: Annotated[str, Meta(description="The answer in a sentence, with the cases that differ")]
    cases: Annotated[int, Meta(description="Cases, or cases and variants, with a verdict on both sides")]
    base_rate: Annotated[float | None, Meta(description="Pass rate of the compared replies")]
    new_rate: float | None
    difference: float | None
    interval: Annotated[
        tuple[float, float] | None,
        Meta(
            description="Interval of the difference at `confidence`; it excludes zero exactly if the test rejects. A "
            "win must also hold if missing verdicts, and those of another judge, had failed: see `winner`"
        ),
    ]
    confidence: Annotated[
        float | None, Meta(description="Confidence at which Holm's correction tests this pair: 0.95 or more")
    ]
    p_value: Annotated[float | None, Meta(description="p-value of this pair alone; null if nothing is compared")]
    adjusted_p_value: Annotated[
        float | None, Meta(description="p-value after Holm's correction over all pairs of the table")
    ]
    test: Test | None
    loss_excluded: Annotated[
        bool, Meta(description="Whether a loss of the new side as large as the margin is excluded")
    ]


class ComparisonTableView(View, frozen=True, kw_only=True):
    """Three and more sides, and what is proven of them together."""

    heading: Annotated[str, Meta(description="What is compared, in one line")]
    sentence: Annotated[str, Meta(description="What is proven together at 5 %; show it first")]
    against: Annotated[str | None, Meta(description="Name of the side that all others are compared with")]
    comparisons: Annotated[int, Meta(description="Number of pairs that Holm's correction is for")]
    margin: Margin
    sides: Annotated[tuple[SideView, ...], Meta(description="All sides, by pass rate, the best first")]
    pairs: tuple[PairView, ...]
    note_on_intervals: Annotated[str, Meta(description="What the intervals of the pairs mean, for people")]
    notes: Annotated[tuple[str, ...], Meta(description="What else limits the comparison, in sentences")]
    judges: Annotated[
        tuple[str, ...], Meta(description="A sentence for each judge: how far it agrees with people, or uncalibrated")
    ]
    hash_mismatches: Annotated[
        tuple[str, ...], Meta(description="Sentences about files whose hashes do not match their output")
    ]


@dataclass(frozen=True, slots=True)
class ComparisonTableWithPairs:
    """A table of sides: what front ends render, and the pairs that decide the exit code."""

    view: ComparisonTableView
    pairs: Sequence[PairComparison]


# ── The use case ──


class CompareSeveralRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """The runs of a table: several, or one with several models."""

    run: Annotated[tuple[_RunReference, ...], Meta(min_length=1, max_length=MAX_SIDES_WITH_REFERENCE)]
    against: SearchText | None = None
    model: SearchText | None = None
    new_model: SearchText | None = None
    """None: the same as `model`."""
    any_suite: bool = False
    any_judge: bool = False
    margin: Margin = DEFAULT_MARGIN_POINTS


@use_case("viewer", "heavy")
def compare_several_runs(app: App, _: User, request: CompareSeveralRequest) -> ComparisonTableView:
    """Compare three and more runs, or all models of one run, every two of them or each with one reference.

    If a choice is missing, the error's problem names it as its `path`: model, against or anySuite.
    """
    store, (first, *others) = app.store, request.run
    references = [
        make_baseline_reference(store, first, others[0] if others else None),
        *(make_run_reference(store, each) for each in others),
    ]
    try:
        sides = resolve_several_sides(
            references,
            request.model,
            request.new_model,
            request.against,
            lambda reference: make_baseline_reference(store, reference, first),
        )
        _refuse_too_many(sides)
    except ModelUnclear as error:
        raise make_missing_choice_error(
            f"{error.message}; name one, for example: model={error.models['model']}", "model"
        ) from None
    except TooManySidesError as error:
        raise make_missing_choice_error(f"{error}; choose one with against", "against") from None
    options = request.any_suite, request.any_judge, request.margin

    def compare() -> ComparisonTableView:
        any_suite, any_judge, margin = options
        return compare_several_sides(sides, any_suite=any_suite, any_judge=any_judge, margin=margin).view

    key = (*make_state_key(app.store, sides.sources), *sides.typed_references, sides.reference_place, *options)
    try:
        return app.comparison_cache.get(key, compare)
    except DifferentCasesError:
        raise make_missing_choice_error(
            "the runs are not known to have the same cases; to compare the cases that both runs of a pair have, send "
            "anySuite=true",
            "anySuite",
        ) from None


# ── Comparing ──


class TooManySidesError(InvalidInput):
    """More sides than a table of all pairs has."""


def _refuse_too_many(sides: SeveralSides) -> None:
    count = len(sides.sources)
    if sides.reference_place is None and count > MAX_SIDES:
        raise TooManySidesError(
            f"{count} sides have {count * (count - 1) // 2:,} pairs; a table of all pairs has at most {MAX_SIDES} "
            "sides, so compare each side with one reference"
        )
    if count > MAX_SIDES_WITH_REFERENCE:
        raise InvalidInput(f"a table has at most {MAX_SIDES_WITH_REFERENCE} sides, found {count}")


def compare_several_sides(
    several: SeveralSides, *, any_suite: bool, any_judge: bool, margin: float = DEFAULT_MARGIN_POINTS
) -> ComparisonTableWithPairs:
    """Compare every two sides, or each side with the reference; `margin` is in points."""
    _refuse_too_many(several)
    share = parse_margin(margin)
    compared = _SideReader(several, any_suite=any_suite, any_judge=any_judge, margin=share)
    pairs = compare_pairs(len(compared.sources), compared.prepare, reference=compared.reference_place)
    return ComparisonTableWithPairs(_make_view(compared, pairs, margin), pairs)


class _SideReader:
    """The sides of a table by their pass rates, the best first; each is read once for each way of pairing."""

    def __init__(self, several: SeveralSides, *, any_suite: bool, any_judge: bool, margin: float) -> None:
        known: dict[str, ComparisonSource] = {}
        for each in several.sources:  # the models of one run have the same cases and judges
            known.setdefault(
                each.identity,
                replace(
                    each,
                    read_case_digests=cache(each.read_case_digests),
                    read_calibrations=cache(each.read_calibrations),
                ),
            )
        self.sources = [
            replace(
                each,
                read_case_digests=known[each.identity].read_case_digests,
                read_calibrations=known[each.identity].read_calibrations,
            )
            for each in several.sources
        ]
        self._any_suite, self._any_judge, self._margin = any_suite, any_judge, margin
        self._sides: dict[tuple[int, SideKeys], ComparisonSide] = {}
        self._has_same_cases: dict[tuple[int, int], bool] = {}
        self._cases: dict[tuple[int, int], frozenset[str]] = {}
        order = self._order_by_pass_rate()
        self.sources = [self.sources[place] for place in order]
        self._sides = {(order.index(place), keys): side for (place, keys), side in self._sides.items()}
        names = name_sides(several)
        self.labels = [names[place] for place in order]
        self.reference_place = None if several.reference_place is None else order.index(several.reference_place)

    def _order_by_pass_rate(self) -> list[int]:
        """Return the places of all sides, those without a verdict last."""

        def read_pass_rate(place: int) -> float:
            other = self.sources[0 if place else 1]
            found = self.read_side(place, choose_side_keys(self.sources[place], other)).pass_rate_of_all_answers
            return -1.0 if found is None else found

        return sorted(range(len(self.sources)), key=read_pass_rate, reverse=True)

    @property
    def judges(self) -> tuple[str, ...]:
        """A sentence for each judge of any side."""
        return tuple(dict.fromkeys(judge for side in self._sides.values() for judge in side.judge_sentences))

    def read_side(self, place: int, keys: SideKeys) -> ComparisonSide:
        if (place, keys) not in self._sides:
            self._sides[place, keys] = read_side(self.sources[place], keys)
        return self._sides[place, keys]

    def read_pair(self, base: int, new: int) -> tuple[ComparisonSide, ComparisonSide]:
        keys = choose_side_keys(self.sources[base], self.sources[new])
        return self.read_side(base, keys), self.read_side(new, keys)

    def prepare(self, base: int, new: int) -> PreparedComparison:
        """Pair and test two sides, as a comparison of these two does."""
        both = (min(base, new), max(base, new))
        if both not in self._has_same_cases:
            before, after = (self.sources[place] for place in both)
            self._has_same_cases[both] = before.identity == after.identity or has_same_cases(
                before, after, any_suite=self._any_suite
            )
        old, now = self.read_pair(base, new)
        names = self.labels[base], self.labels[new]
        return prepare_comparison(
            old.outcomes,
            now.outcomes,
            margin=self._margin,
            same_cases=self._has_same_cases[both],
            new_repeats=self.sources[new].planned_repeats,
            base_judges=old.verdict_sources,
            new_judges=now.verdict_sources,
            any_judge=self._any_judge,
            labels=SideLabels(f"for {names[0]}", f"for {names[1]}", names),
        )

    def compute_rate(self, place: int, pairs: Sequence[PairComparison]) -> Rate:
        """Return the rate of a side over the cases that are compared in any of its pairs."""
        compared: dict[SideKeys, set[str]] = {}
        for each in pairs:
            keys = choose_side_keys(self.sources[each.base_place], self.sources[each.new_place])
            compared.setdefault(keys, set()).update(each.comparison.compared_cases)
        keys, cases = max(compared.items(), key=lambda each: len(each[1]))
        outcomes = self.read_side(place, keys).outcomes
        given = [outcome for case in cases for outcome in outcomes[case] if outcome in SCORED]
        per_case: dict[str, int] = {}
        for case in cases:
            unit = split_variant(case)[0]
            per_case[unit] = per_case.get(unit, 0) + len(outcomes[case])
        passed = given.count(Outcome.PASSED)
        return Rate(passed=passed, failed=len(given) - passed, per_case=max(per_case.values(), default=1))

    def list_cases(self, pair: PairComparison) -> frozenset[str]:
        """Return the compared cases of a pair, whatever their variant: by ID if any side has no digests."""
        both = (pair.base_place, pair.new_place)
        if both not in self._cases:
            found = pair.comparison.compared_cases
            if not all(each.has_case_digests for each in self.sources):
                names = self.read_pair(*both)[0].case_names
                found = tuple(names[case] for case in found)
            self._cases[both] = frozenset(split_variant(case)[0] for case in found)
        return self._cases[both]

    def iterate_notes(self, pairs: Sequence[PairComparison]) -> Iterator[str]:
        """Yield a sentence for everything else that limits the comparison."""
        tested = [each for each in pairs if each.comparison.pairs]
        if len({self.list_cases(each) for each in tested}) > 1:
            counts = sorted(len(self.list_cases(each)) for each in tested)
            most = pluralise(counts[-1], "case")
            said = most if counts[0] == counts[-1] else f"{counts[0]:,} to {most}"
            yield (
                f"The pairs differ in their cases ({said}): each pair has the cases with a verdict on both its sides."
            )
        if apart := [each for each in pairs if each.comparison.differently_judged]:
            what = "are compared nevertheless" if self._any_judge else "are left out"
            yield f"In {pluralise(len(apart), 'pair')}, cases that two different judges judged {what}."
        if any(sum(each.comparison.unpaired_counts) for each in pairs):
            yield "If a side has more verdicts on a case than the other side of a pair, the surplus is left out there."
        settings = dict.fromkeys(
            found.setting
            for each in pairs
            for found in find_request_differences(self.sources[each.base_place], self.sources[each.new_place])
        )
        if settings:
            yield f"The requests of the sides differ in {join_names(list(settings))}; this may explain differences."
        if len({each.identity for each in self.sources}) > 1 and any(each.winner is not None for each in pairs):
            yield DAY_NOTE


def name_sides(several: SeveralSides) -> list[str]:
    """Return a name for each side: its model if no other side has this model, else the run as the user typed it."""
    models = [each.short_model_name for each in several.sources]
    typed = several.typed_references
    if len(set(models)) == len(models):
        names = models
    elif len({each.identity for each in several.sources}) == 1:
        names = [each.model for each in several.sources]
    elif len(set(typed)) == len(typed):
        names = list(typed)
    else:
        names = [f"{one} {other}" for one, other in zip(typed, models, strict=True)]
    short = shorten_names(names, MAX_MODEL_LENGTH)
    return [short[each] for each in names]


# ── Building the view ──


def _make_view(compared: _SideReader, pairs: Sequence[PairComparison], margin: float) -> ComparisonTableView:
    labels, sources = compared.labels, compared.sources
    one_run = len({each.identity for each in sources}) == 1
    sides = [_make_side_view(compared, place, pairs) for place in range(len(sources))]
    return ComparisonTableView(
        heading=f"{len(sources)} models of {sources[0].title}" if one_run else f"{len(sources)} runs or models",
        sentence=describe_proven(pairs, labels, compared.reference_place),
        against=None if compared.reference_place is None else labels[compared.reference_place],
        comparisons=sum(1 for each in pairs if each.comparison.pairs),
        margin=margin,
        sides=tuple(sorted(sides, key=lambda each: -1.0 if each.pass_rate is None else each.pass_rate, reverse=True)),
        pairs=tuple(_make_pair_view(each, labels) for each in pairs),
        note_on_intervals=INTERVALS_NOTE,
        notes=tuple(compared.iterate_notes(pairs)),
        judges=compared.judges,
        hash_mismatches=tuple(
            dict.fromkeys(found.sentence for each in sources if (found := each.find_result_hash_mismatch()))
        ),
    )


def _make_side_view(compared: _SideReader, place: int, pairs: Sequence[PairComparison]) -> SideView:
    source, own = compared.sources[place], [each for each in pairs if place in (each.base_place, each.new_place)]
    rate = compared.compute_rate(place, own)
    return SideView(
        name=compared.labels[place],
        run=source.reference,
        model=source.model,
        title=source.title,
        cases=len(frozenset[str]().union(*map(compared.list_cases, own))),
        passed=rate.passed,
        answers=rate.scored_count,
        pass_rate=rate.value,
        interval=(found.low, found.high) if (found := rate.interval) else None,
    )


def _make_pair_view(pair: PairComparison, labels: Sequence[str]) -> PairView:
    found, has_cases = pair.comparison, pair.comparison.pairs > 0
    return PairView(
        base=labels[pair.base_place],
        new=labels[pair.new_place],
        result=pair.describe_result(labels),
        winner=None if pair.winner is None else labels[pair.winner],
        verdict=found.verdict,
        sentence=found.sentence,
        cases=found.pairs,
        base_rate=found.base_rate,
        new_rate=found.new_rate,
        difference=found.difference,
        interval=(found.interval.low, found.interval.high) if has_cases else None,
        confidence=1 - found.alpha if has_cases else None,
        p_value=found.p_value if has_cases else None,
        adjusted_p_value=pair.adjusted_p_value if has_cases else None,
        test=found.test if has_cases else None,
        loss_excluded=found.loss_excluded,
    )
