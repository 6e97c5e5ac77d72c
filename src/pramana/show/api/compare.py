"""`/api/compare`: which of two runs is better, case by case, with the interval of the difference."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from pydantic.alias_generators import to_camel

from pramana.errors import InvalidInput, Problem
from pramana.report.measured import measured, proven
from pramana.show.api.envelope import PageNumber, PageSize, Shape, answer, camel, documented, page_of
from pramana.show.api.serving import Here, Viewer
from pramana.show.comparing import ModelUnclear, OtherCases, Source, as_data, compared, of_run
from pramana.store.runs import Store

router = APIRouter(tags=["compare"])
NAMED = 100
"""Cases that are named of each kind that is no flip."""
KEPT = 16
"""Comparisons that are at hand: pages of one are asked for one after the other."""
_Run = Annotated[str, Query(min_length=1, max_length=200)]
_Model = Annotated[str | None, Query(max_length=500)]


class InAllShape(Shape):
    """All answers with a verdict that a side has of a case, whether they were compared or not."""

    passed: int
    answers: int


class FlipShape(Shape):
    """A case that passes less or more often than before."""

    case: str
    direction: Literal["lost", "gained"]
    base_passed: int
    new_passed: int
    repeats: int = Field(description="Answers that were compared on either side: as many as both have with a verdict")
    base_in_all: InAllShape
    new_in_all: InAllShape
    detail: str = Field(description="The counts in words")
    base_results: list[int] = Field(description="The numbers of its results, as GET /api/runs/RUN/results/SEQ has them")
    new_results: list[int]


class NamedShape(Shape):
    """How many cases, and the first of them."""

    count: int
    cases: list[str]


class ApartShape(Shape):
    """A case with verdicts of two judges."""

    case: str
    base: list[str]
    new: list[str]


class ApartNamedShape(Shape):
    """How many such cases, and the first of them."""

    count: int
    cases: list[ApartShape]


_Ends = Annotated[list[float | None], Field(min_length=2, max_length=2)]


class ChangeShape(Shape):
    """Something that was measured on both sides, case by case. An end that is not known is null."""

    what: str = Field(description="total time, time to first token, voice to voice, misheard words …")
    unit: Literal["seconds", "share of words"]
    cases: int = Field(description="Compared, each with itself")
    only_base: int = Field(description="Cases that were measured before and not now")
    base: _Ends = Field(description="The median over cases, of words the pooled rate; two ends where it is not known")
    new: _Ends
    difference: _Ends = Field(description="The median of the cases' differences, of words that of the rates")
    interval: _Ends | None = Field(description="Of the difference, at 95 %; null where there are too few cases")
    proven: bool
    method: str
    sentence: str = Field(description="A proven change in plain words; empty otherwise")
    detail: str = Field(description="The numbers in words")


class TimeShape(ChangeShape):
    """How long both took."""

    ratio: _Ends


class WordsShape(ChangeShape):
    """How many words of the calls were wrong."""

    p_value: float | None
    words: list[int] = Field(description="That the rates are of, before and now")


class AskedShape(Shape):
    """Something in which the two were asked differently."""

    what: str
    base: str
    new: str


class EngineShape(Shape):
    """What an embedded model was computed with."""

    engine: str
    version: str
    model: str
    weights: str
    processor: list[str] | None = Field(description="Features the engine uses: AVX2, FMA …; null: not recorded")
    threads: int | None = Field(description="null: not recorded")
    label: str = Field(description="Engine, version, instruction set and threads in words")


class EngineChangeShape(Shape):
    """An embedded model that the two runs computed on other engines or processors."""

    model: str
    base: list[EngineShape] = Field(description="Several where a run was resumed elsewhere; empty: not recorded")
    new: list[EngineShape]
    sentence: str = Field(description="The same in plain words")


class OverShape(Shape):
    """Answers with a verdict, to compared cases, that one side has more than the other: they are left out."""

    base: int
    new: int
    sentence: str = Field(description="The same in plain words; empty where there are none")


class ComparisonShape(Shape):
    """What came of it."""

    base: str
    new: str
    base_model: str = Field(description="As it was typed")
    new_model: str
    verdict: Literal["regression", "improvement", "no_change", "inconclusive"]
    sentence: str = Field(description="The answer in plain words; show it first")
    detail: str
    pairs: int
    base_rate: float | None = Field(description="Of what is compared; null where nothing is")
    new_rate: float | None
    base_whole_rate: float | None = Field(description="Of all answers of that side with a verdict, compared or not")
    new_whole_rate: float | None
    difference: float | None
    interval: Annotated[list[float], Field(min_length=2, max_length=2)] | None = Field(
        description="Of the difference, at 95 %; null where nothing is compared"
    )
    p_value: float | None = Field(description="Null where nothing is compared, and so the test")
    test: str | None
    over: OverShape
    lost: int
    gained: int
    flips: list[FlipShape] = Field(description="The losses first, the largest before the others; in pages")
    excluded: NamedShape = Field(description="Cases without a verdict on one side or both")
    apart: ApartNamedShape
    only_base: NamedShape
    only_new: NamedShape
    times: list[TimeShape]
    words: list[WordsShape] = Field(description="Of calls")
    asked_differently: list[AskedShape]
    engine_changes: list[EngineChangeShape]


@dataclass(slots=True)
class _Made:
    lock: threading.Lock = field(default_factory=threading.Lock)
    data: dict[str, Any] | None = None


class Comparisons:
    """Comparisons that were made, each until one of its runs grows or is judged again. Safe to share among threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[Any, ...], _Made] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, before: Source, after: Source, *, any_suite: bool, any_judge: bool) -> dict[str, Any]:
        """Return what came of comparing two runs, as plain data."""
        states = [self._state(each) for each in (before, after)]
        key = (before.name, after.name, any_suite, any_judge, *states)
        with self._lock:
            made = self._kept.setdefault(key, _Made())
            self._kept.move_to_end(key)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        with made.lock:  # who asks for the same waits for it, and does not work it out beside
            if made.data is None:
                found = compared(before, after, any_suite=any_suite, any_judge=any_judge)
                made.data = as_data(found)
                for said, change in zip(made.data["measured"], found.changed, strict=True):
                    said |= {"sentence": proven(change), "detail": measured(change)}
            return made.data

    def _state(self, source: Source) -> tuple[Any, ...]:
        run = self._store.pages.run(_run_id(source))
        return run.stored, run.status, run.finished, *self._store.scorings(run.id)


@router.get("/api/compare", summary="Compare two runs", **documented(ComparisonShape, 404))
async def compare_runs(
    request: Request,
    here: Here,
    _: Viewer,
    base: _Run,
    new: _Run,
    page: PageNumber = 1,
    page_size: PageSize = 50,
    model: _Model = None,
    new_model: Annotated[str | None, Query(alias="newModel", max_length=500)] = None,
    *,
    any_suite: Annotated[bool, Query(alias="anySuite")] = False,
    any_judge: Annotated[bool, Query(alias="anyJudge")] = False,
) -> Response:
    """Pair the cases of two runs and weigh the evidence; of runs with several models, name one.

    Cases that changed come in pages, those that pass less often first. What has to be chosen before they can be
    compared is the `path` of a refusal's details: model, newModel or anySuite.
    """
    made: Comparisons = request.app.state.comparisons

    def work() -> Response:
        before = _side(here.store, base, model, "model")
        after = _side(here.store, new, new_model or model, "newModel")
        try:
            data = made.of(before, after, any_suite=any_suite, any_judge=any_judge)
        except OtherCases:
            raise _to_choose(
                "the two are not known to have been asked the same cases; compare what both have by anySuite=true",
                "anySuite",
            ) from None
        return _told(before, after, data, page, page_size)

    return await here.heavy(work)


def _side(store: Store, run: str, model: str | None, parameter: str) -> Source:
    try:
        return of_run(store, run, model)
    except ModelUnclear as error:
        raise _to_choose(str(ModelUnclear(error.where, error.models, parameter)), parameter) from None


def _to_choose(message: str, parameter: str) -> InvalidInput:
    return InvalidInput(message, [Problem(message, parameter)])


def _told(before: Source, after: Source, data: dict[str, Any], page: int, page_size: int) -> Response:
    changed = [{**each, "direction": kind} for kind in ("lost", "gained") for each in data[kind]]
    flips, meta = page_of(changed, page, page_size)
    told = {
        name: data[name]
        for name in data
        if name not in ("lost", "gained", "excluded", "apart", "only_base", "only_new", "measured")
    }
    return answer(
        {
            "base": _run_id(before),
            "new": _run_id(after),
            "baseModel": before.name.partition(" ")[2],
            "newModel": after.name.partition(" ")[2],
            **camel(told),
            "lost": len(data["lost"]),
            "gained": len(data["gained"]),
            "flips": camel(flips),
            **{to_camel(name): _named(data[name]) for name in ("excluded", "apart", "only_base", "only_new")},
            "times": [camel(each) for each in data["measured"] if each["unit"] == "seconds"],
            "words": [camel(each) for each in data["measured"] if each["unit"] != "seconds"],
        },
        meta,
    )


def _run_id(source: Source) -> str:
    return source.name.partition(" ")[0]


def _named(cases: Sequence[Any]) -> dict[str, Any]:
    return {"count": len(cases), "cases": list(cases[:NAMED])}
