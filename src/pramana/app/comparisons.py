"""Comparisons of two stored runs: which is better, case by case, with the interval of the difference."""

from typing import Annotated

from msgspec import Meta, Struct

from pramana.app import App, User, use_case
from pramana.app.comparison_views import ApartNamedView, ComparisonView, NamedView, TimeView, WeighedView, WordsView
from pramana.app.sides import ModelUnclear, OtherCases, Source, of_run
from pramana.errors import InvalidInput, Problem
from pramana.request import PageNumber, PageSize, Searched
from pramana.store.store import Store

NAMED = 100
"""Cases that are named of each kind that is no flip."""
_Run = Annotated[str, Meta(min_length=1, max_length=200)]


class CompareRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which two runs; of runs with several models, which model of each."""

    base: _Run
    new: _Run
    model: Searched | None = None
    new_model: Searched | None = None
    """None: as `model`."""
    any_suite: bool = False
    any_judge: bool = False
    page: PageNumber = 1
    page_size: PageSize = 50
    """Of cases that changed."""


@use_case("viewer", "heavy")
def compare_runs(app: App, _: User, wanted: CompareRequest) -> ComparisonView:
    """Pair the cases of two runs and weigh the evidence; of runs with several models, name one.

    What has to be chosen before they can be compared is the `path` of a refusal's problem: model, newModel or anySuite.
    """
    before = _side(app.store, wanted.base, wanted.model, "model")
    after = _side(app.store, wanted.new, wanted.new_model or wanted.model, "newModel")
    try:
        whole = app.comparisons.of(before, after, any_suite=wanted.any_suite, any_judge=wanted.any_judge)
    except OtherCases:
        raise _to_choose(
            "the two are not known to have been asked the same cases; compare what both have by anySuite=true",
            "anySuite",
        ) from None
    begin = (wanted.page - 1) * wanted.page_size
    return ComparisonView(
        **{name: getattr(whole, name) for name in WeighedView.__struct_fields__},
        base=before.where,
        new=after.where,
        base_model=before.model,
        new_model=after.model,
        lost=len(whole.lost),
        gained=len(whole.gained),
        flips=(*whole.lost, *whole.gained)[begin : begin + wanted.page_size],
        excluded=_named(whole.excluded),
        apart=ApartNamedView(count=len(whole.apart), cases=whole.apart[:NAMED]),
        only_base=_named(whole.only_base),
        only_new=_named(whole.only_new),
        times=tuple(each for each in whole.measured if isinstance(each, TimeView)),
        words=tuple(each for each in whole.measured if isinstance(each, WordsView)),
    )


def _side(store: Store, run: str, model: str | None, parameter: str) -> Source:
    try:
        return of_run(store, run, model)
    except ModelUnclear as error:
        raise _to_choose(str(ModelUnclear(error.where, error.models, parameter)), parameter) from None


def _to_choose(message: str, parameter: str) -> InvalidInput:
    return InvalidInput(message, [Problem(message, parameter)])


def _named(cases: tuple[str, ...]) -> NamedView:
    return NamedView(count=len(cases), cases=cases[:NAMED])
