"""Comparisons of two runs, case by case: which one is better, with the interval of the difference.

`comparison_view` has every case; the use case returns a page of it.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from pramana.analyse.changes import Change, Range
from pramana.analyse.paired_tests import Test, Verdict
from pramana.analyse.pairing import Pair, UnpairedAnswers
from pramana.analyse.replies import MAX_LISTED_CHANGES
from pramana.app import App, User, use_case
from pramana.app.comparison_sides import (
    DEFAULT_MARGIN_POINTS,
    ComparedSides,
    ComparisonSource,
    DifferentCasesError,
    compare_sides,
    describe_pass_counts,
)
from pramana.app.references import ModelUnclear, make_baseline_reference, make_run_reference, resolve_sides
from pramana.app.replies import ReplyPairView, read_reply_pairs
from pramana.app.views import View
from pramana.embedded.engines import EngineInfo
from pramana.errors import InvalidInput, Problem
from pramana.request import PageNumber, PageSize, SearchText
from pramana.store.store import Store

MAX_NAMED_CASES = 100
"""Most cases listed by name for each kind other than flips."""
CHANGED_CASES_PER_PAGE = 50
Margin = Annotated[
    float, Meta(ge=0, le=100, description="Largest acceptable loss of the pass rate, in points; 5 by default")
]
_RunReference = Annotated[str, Meta(min_length=1, max_length=200)]
_Bounds = tuple[float | None, float | None]


class AnswerTotalsView(View, frozen=True, kw_only=True):
    """All answers of one side to a case that have a verdict, compared or not."""

    passed: int
    answers: int


class FlipView(View, frozen=True, kw_only=True):
    """A case that passes less or more often than before."""

    case: str
    direction: Literal["lost", "gained"]
    base_passed: int
    new_passed: int
    repeats: Annotated[
        int, Meta(description="Number of replies compared on each side: as many as have a verdict on both sides")
    ]
    base_in_all: AnswerTotalsView
    new_in_all: AnswerTotalsView
    detail: Annotated[str, Meta(description="The counts as text")]
    base_results: Annotated[
        tuple[int, ...],
        Meta(description="Numbers (SEQ) of the results on this side, for GET /api/runs/RUN/results/SEQ"),
    ]
    new_results: tuple[int, ...]

    @property
    def case_id(self) -> str:
        """The case's id, under the name that results use; files and the API call it `case`."""
        return self.case


class NamedCasesView(View, frozen=True, kw_only=True):
    """The number of cases, and the first of them."""

    count: int
    cases: tuple[str, ...]


class DifferentJudgesView(View, frozen=True, kw_only=True):
    """A case whose sides were judged by different judges."""

    case: str
    base: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def case_id(self) -> str:
        """The case's id, under the name that results use; files and the API call it `case`."""
        return self.case


class DifferentlyJudgedCasesView(View, frozen=True, kw_only=True):
    """The number of such cases, and the first of them."""

    count: int
    cases: tuple[DifferentJudgesView, ...]


class MeasuredChangeView(View, frozen=True, kw_only=True):
    """A measurement on both sides, paired case by case. An unknown end of the interval is null."""

    what: Annotated[str, Meta(description="total time, time to first token, voice to voice, misheard words …")]
    unit: Literal["seconds", "share of words"]
    cases: Annotated[int, Meta(description="Number of cases compared, each with all its variants together")]
    only_base: Annotated[int, Meta(description="Cases measured before but not now")]
    base: Annotated[
        _Bounds,
        Meta(
            description="Median over the cases, or the pooled rate of words; lower and upper bound if not known exactly"
        ),
    ]
    new: _Bounds
    difference: Annotated[
        _Bounds, Meta(description="Median of the differences of each case, or the difference of the word rates")
    ]
    interval: Annotated[
        _Bounds | None, Meta(description="95 % interval of the difference; null if there are too few cases")
    ]
    proven: bool
    method: str
    sentence: Annotated[str, Meta(description="A proven change in plain words; empty otherwise")]
    detail: Annotated[str, Meta(description="The numbers in words")]


class TimeView(MeasuredChangeView, frozen=True, kw_only=True):
    """The change in a time."""

    ratio: _Bounds


class WordsView(MeasuredChangeView, frozen=True, kw_only=True):
    """The change in misheard words of the calls."""

    p_value: float | None
    words: Annotated[tuple[int, ...], Meta(description="Number of words that the rates are based on, before and now")]


class RequestDifferenceView(View, frozen=True, kw_only=True):
    """One difference between the requests of the two sides."""

    what: Annotated[str, Meta(description="`system prompt`, the name of a parameter, `variants`, `voice` …")]
    base: Annotated[str, Meta(description="Value before; empty if there was no system prompt")]
    new: str
    detail: Annotated[str, Meta(description="The difference as text: temperature 0 before, 1 now")]


class EngineView(View, frozen=True, kw_only=True):
    """The engine and processor that an embedded model ran on."""

    engine: str
    version: str
    model: str
    weights: str
    processor: Annotated[
        tuple[str, ...] | None, Meta(description="Features the engine uses: AVX2, FMA …; null: not recorded")
    ]
    threads: Annotated[int | None, Meta(description="null: not recorded")]
    label: Annotated[str, Meta(description="Engine, version, instruction set and threads in words")]


class EngineChangeView(View, frozen=True, kw_only=True):
    """An embedded model that ran on different engines or processors in the two runs."""

    model: str
    base: Annotated[
        tuple[EngineView, ...],
        Meta(description="Engines before, several if a run was resumed on another machine; empty if not recorded"),
    ]
    new: tuple[EngineView, ...]
    sentence: Annotated[str, Meta(description="The change of the engine in a sentence")]


class UnpairedAnswersView(View, frozen=True, kw_only=True):
    """Surplus answers: one side has more answers with a verdict to compared cases; the surplus is left out."""

    base: int
    new: int
    sentence: Annotated[str, Meta(description="The counts as a sentence; empty if there are none")]


class ChangedReplyView(View, frozen=True, kw_only=True):
    """Two replies to a case with the same verdict and different texts."""

    case: str
    base_result: Annotated[
        int | None,
        Meta(description="Number (SEQ) of the result, for GET /api/runs/RUN/results/SEQ; null in a file"),
    ]
    new_result: int | None

    @property
    def case_id(self) -> str:
        """The case's id, under the name that results use; files and the API call it `case`."""
        return self.case


class ReplyChangesView(View, frozen=True, kw_only=True):
    """Replies that changed while their verdict stayed the same."""

    compared: Annotated[int, Meta(description="Replies that have the same verdict on both sides and a recorded text")]
    changed: int
    sentence: Annotated[str, Meta(description="The counts as a sentence; empty if no reply changed")]
    cases: Annotated[
        tuple[ChangedReplyView, ...],
        Meta(description=f"Changed replies, in the order of the cases; the first {MAX_LISTED_CHANGES}"),
    ]


class HashMismatchView(View, frozen=True, kw_only=True):
    """Results of a file whose `result_hash` does not match their output."""

    file: str
    count: int
    first_case: str
    sentence: Annotated[str, Meta(description="The mismatch in a sentence")]


class ComparisonNumbersView(View, frozen=True, kw_only=True):
    """A comparison without its cases."""

    verdict: Verdict
    sentence: Annotated[str, Meta(description="The answer in a sentence; show it first")]
    detail: str
    judges: Annotated[
        tuple[str, ...], Meta(description="A sentence for each judge: how far it agrees with people, or uncalibrated")
    ]
    pairs: int
    base_rate: Annotated[
        float | None, Meta(description="Pass rate of the compared replies; null if no reply is compared")
    ]
    new_rate: float | None
    base_whole_rate: Annotated[float | None, Meta(description="Pass rate of all replies of that side with a verdict")]
    new_whole_rate: float | None
    difference: float | None
    interval: Annotated[
        tuple[float, float] | None,
        Meta(
            description="Interval of the difference; null if nothing is compared. It has 95 % confidence, or more if a "
            "check against a baseline decides several models together"
        ),
    ]
    p_value: Annotated[
        float | None, Meta(description="p-value of the test; null if nothing is compared, as `test` is then")
    ]
    test: Test | None
    margin: Margin
    loss_excluded: Annotated[
        bool,
        Meta(
            description="Whether a loss as large as the margin is excluded, even if all new replies without a verdict "
            "failed"
        ),
    ]
    over: Annotated[
        UnpairedAnswersView,
        Meta(description="Answers that one side has more of than the other, which the comparison leaves out"),
    ]
    reply_changes: ReplyChangesView
    asked_differently: tuple[RequestDifferenceView, ...]
    engine_changes: tuple[EngineChangeView, ...]


class FullComparisonView(ComparisonNumbersView, frozen=True, kw_only=True):
    """A comparison with every case."""

    heading: Annotated[str, Meta(description="The two sides: models and dates, in one or two lines")]

    lost: tuple[FlipView, ...]
    gained: tuple[FlipView, ...]
    excluded: tuple[str, ...]
    apart: Annotated[
        tuple[DifferentJudgesView, ...],
        Meta(description="Cases that different judges judged on the two sides, which the comparison leaves out"),
    ]
    only_base: tuple[str, ...]
    only_new: tuple[str, ...]
    measured: tuple[TimeView | WordsView, ...]
    hash_mismatches: tuple[HashMismatchView, ...]
    examples: Annotated[
        tuple[ReplyPairView, ...],
        Meta(description="The first flipped cases with both replies, then changed replies with the same verdict"),
    ]


class ComparisonView(ComparisonNumbersView, frozen=True, kw_only=True):
    """A comparison with one page of the cases that changed."""

    base: str
    new: str
    base_model: Annotated[str, Meta(description="Model, as typed in the run")]
    new_model: str
    lost: int
    gained: int
    flips: Annotated[
        tuple[FlipView, ...],
        Meta(description="Changed cases of this page, losses first, each in the order of the cases"),
    ]
    excluded: Annotated[NamedCasesView, Meta(description="Cases without a verdict on one side or both")]
    apart: Annotated[
        DifferentlyJudgedCasesView,
        Meta(description="Cases that different judges judged on the two sides, which the comparison leaves out"),
    ]
    only_base: NamedCasesView
    only_new: NamedCasesView
    times: tuple[TimeView, ...]
    words: Annotated[tuple[WordsView, ...], Meta(description="Counts of misheard words in calls")]


# ── The use case ──


class CompareRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """The two runs to compare, and the model of each if it has several. One run on both sides compares two models."""

    base: _RunReference
    new: _RunReference
    model: SearchText | None = None
    new_model: SearchText | None = None
    """None: the same as `model`."""
    any_suite: bool = False
    any_judge: bool = False
    margin: Margin = DEFAULT_MARGIN_POINTS
    page: PageNumber = 1
    page_size: PageSize = CHANGED_CASES_PER_PAGE
    """Changed cases per page."""


@use_case("viewer", "heavy")
def compare_runs(app: App, _: User, request: CompareRequest) -> ComparisonView:
    """Compare two runs, or two models of one run, case by case; if a run has several models, name one.

    If a choice is missing, the error's problem names it as its `path`: model, newModel or anySuite.
    """
    before, after = _find_sources(app.store, request)
    try:
        whole = _compare_sources(app, before, after, request)
    except DifferentCasesError:
        raise make_missing_choice_error(
            "the two runs are not known to have the same cases; to compare those that both have, send anySuite=true",
            "anySuite",
        ) from None
    return _make_page(whole, before, after, request.page, request.page_size)


def make_first_page(whole: FullComparisonView, before: ComparisonSource, after: ComparisonSource) -> ComparisonView:
    """Return a comparison with the first page of the cases that changed."""
    return _make_page(whole, before, after, 1, CHANGED_CASES_PER_PAGE)


def _make_page(
    whole: FullComparisonView, before: ComparisonSource, after: ComparisonSource, page: int, page_size: int
) -> ComparisonView:
    begin = (page - 1) * page_size
    return ComparisonView(
        **{name: getattr(whole, name) for name in ComparisonNumbersView.__struct_fields__},
        base=before.reference,
        new=after.reference,
        base_model=before.model,
        new_model=after.model,
        lost=len(whole.lost),
        gained=len(whole.gained),
        flips=(*whole.lost, *whole.gained)[begin : begin + page_size],
        excluded=_named_cases_view(whole.excluded),
        apart=DifferentlyJudgedCasesView(count=len(whole.apart), cases=whole.apart[:MAX_NAMED_CASES]),
        only_base=_named_cases_view(whole.only_base),
        only_new=_named_cases_view(whole.only_new),
        times=tuple(each for each in whole.measured if isinstance(each, TimeView)),
        words=tuple(each for each in whole.measured if isinstance(each, WordsView)),
    )


def _compare_sources(
    app: App, before: ComparisonSource, after: ComparisonSource, request: CompareRequest
) -> FullComparisonView:
    """Return the comparison of two runs, cached until one of them gets more results or is rescored."""
    options = request.any_suite, request.any_judge, request.margin

    def compare() -> FullComparisonView:
        any_suite, any_judge, margin = options
        return comparison_view(compare_sides(before, after, any_suite=any_suite, any_judge=any_judge, margin=margin))

    return app.comparison_cache.get((*make_state_key(app.store, (before, after)), *options), compare)


def make_state_key(store: Store, sources: Iterable[ComparisonSource]) -> tuple[Any, ...]:
    """Return the key of a cached comparison of stored runs: it changes with their results, scorings and labels."""
    states: list[Any] = []
    for each in sources:
        run = store.runs.find_as_of_scoring(each.reference)
        scorings = store.scorings.read_scoring_labels(run)
        states += (each.reference_and_model, run.stored, run.status, run.finished, *scorings)
    return (*states, *store.labels.read_state())


def _find_sources(store: Store, request: CompareRequest) -> tuple[ComparisonSource, ComparisonSource]:
    try:
        return resolve_sides(
            make_baseline_reference(store, request.base, request.new),
            make_run_reference(store, request.new),
            request.model,
            request.new_model,
        )
    except ModelUnclear as error:
        names = {"model": "model", "new_model": "newModel"}
        example = " and ".join(f"{names[name]}={model}" for name, model in error.models.items())
        raise make_missing_choice_error(
            f"{error.message}; choose, for example: {example}", names[error.missing]
        ) from None


def make_missing_choice_error(message: str, parameter: str) -> InvalidInput:
    """Return the error for a choice that a client must make, with the parameter as the path of its problem."""
    return InvalidInput(message, [Problem(message, parameter)])


def _named_cases_view(cases: tuple[str, ...]) -> NamedCasesView:
    return NamedCasesView(count=len(cases), cases=cases[:MAX_NAMED_CASES])


# ── Building the views ──


def comparison_view(compared: ComparedSides, max_examples: int = 0) -> FullComparisonView:
    """Return a comparison with all cases, and up to `max_examples` reply pairs; without pairs, statistics are None."""
    found, name = compared.comparison, compared.find_case_name
    before, after = compared.sides
    weighed = found.pairs > 0

    def flips(pairs: Sequence[Pair], direction: Literal["lost", "gained"]) -> tuple[FlipView, ...]:
        return tuple(
            FlipView(
                case=name(pair.case),
                direction=direction,
                base_passed=pair.base_passed,
                new_passed=pair.new_passed,
                repeats=pair.repeats,
                base_in_all=_answer_totals_view(pair.base_passed, pair.repeats, pair.base_unpaired),
                new_in_all=_answer_totals_view(pair.new_passed, pair.repeats, pair.new_unpaired),
                detail=describe_pass_counts(pair, found.labels),
                base_results=before.result_numbers(pair.case),
                new_results=after.result_numbers(pair.case),
            )
            for pair in pairs
        )

    return FullComparisonView(
        heading=compared.heading,
        verdict=found.verdict,
        sentence=found.sentence,
        detail=found.detail,
        judges=tuple(dict.fromkeys((*before.judge_sentences, *after.judge_sentences))),
        pairs=found.pairs,
        base_rate=found.base_rate,
        new_rate=found.new_rate,
        base_whole_rate=before.pass_rate_of_all_answers,
        new_whole_rate=after.pass_rate_of_all_answers,
        difference=found.difference,
        interval=(found.interval.low, found.interval.high) if weighed else None,
        p_value=found.p_value if weighed else None,
        test=found.test if weighed else None,
        margin=round(100 * found.margin, 9),
        loss_excluded=found.loss_excluded,
        over=UnpairedAnswersView(
            base=found.unpaired_counts[0], new=found.unpaired_counts[1], sentence=found.describe_unpaired
        ),
        asked_differently=tuple(
            RequestDifferenceView(what=each.setting, base=each.base_value, new=each.new_value, detail=each.detail)
            for each in compared.request_differences
        ),
        engine_changes=tuple(
            EngineChangeView(
                model=each.model,
                base=_engine_views(each.base_engines),
                new=_engine_views(each.new_engines),
                sentence=each.sentence,
            )
            for each in compared.engine_differences
        ),
        lost=flips(found.lost, "lost"),
        gained=flips(found.gained, "gained"),
        excluded=tuple(name(each.case) for each in found.excluded),
        apart=tuple(
            DifferentJudgesView(
                case=name(each.case), base=tuple(sorted(map(str, each.base))), new=tuple(sorted(map(str, each.new)))
            )
            for each in found.differently_judged
        ),
        only_base=tuple(map(name, found.only_base)),
        only_new=tuple(map(name, found.only_new)),
        measured=tuple(map(change_view, compared.measured_changes)),
        reply_changes=_make_reply_changes_view(compared),
        hash_mismatches=tuple(
            HashMismatchView(
                file=each.file, count=each.mismatch_count, first_case=each.first_case, sentence=each.sentence
            )
            for each in compared.result_hash_mismatches
        ),
        examples=read_reply_pairs(compared, max_examples),
    )


def _make_reply_changes_view(compared: ComparedSides) -> ReplyChangesView:
    found = compared.reply_changes
    before, after = compared.sides
    return ReplyChangesView(
        compared=found.compared_count,
        changed=found.changed_count,
        sentence=found.sentence(compared.comparison.labels),
        cases=tuple(
            ChangedReplyView(
                case=compared.find_case_name(each.case),
                base_result=each.base_result_number if before.is_stored_run else None,
                new_result=each.new_result_number if after.is_stored_run else None,
            )
            for each in found.first_changes
        ),
    )


def change_view(change: Change) -> TimeView | WordsView:
    """Return the view of a measurement on both sides; an unknown end of the interval is None."""
    both: dict[str, Any] = {
        "what": change.measure,
        "cases": change.cases,
        "only_base": change.only_base,
        "base": _replace_infinite_bounds(change.base),
        "new": _replace_infinite_bounds(change.new),
        "difference": _replace_infinite_bounds(change.difference),
        "interval": _replace_infinite_bounds((change.interval.low, change.interval.high)) if change.interval else None,
        "proven": change.is_proven,
        "method": change.method,
        "sentence": change.sentence,
        "detail": change.detail,
    }
    if change.is_time:
        return TimeView(**both, unit="seconds", ratio=_replace_infinite_bounds(change.ratio))
    return WordsView(**both, unit="share of words", p_value=change.p_value, words=change.word_counts)


def _replace_infinite_bounds(bounds: Range) -> _Bounds:
    low, high = (each if math.isfinite(each) else None for each in bounds)
    return low, high


def _answer_totals_view(passed: int, repeats: int, unpaired_answers: UnpairedAnswers) -> AnswerTotalsView:
    return AnswerTotalsView(passed=passed + unpaired_answers.passed, answers=repeats + unpaired_answers.answers)


def _engine_views(engines: Iterable[EngineInfo]) -> tuple[EngineView, ...]:
    return tuple(EngineView(**each.as_data()) for each in engines)
