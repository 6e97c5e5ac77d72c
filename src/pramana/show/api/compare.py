"""`/api/compare`: which of two runs is better, case by case, with the interval of the difference."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from pramana.app import comparisons
from pramana.app.access import Credential
from pramana.app.comparison_views import ComparisonView
from pramana.app.comparisons import CompareRequest
from pramana.show.api.envelope import PageNumber, PageSize, answer, documented, page_meta
from pramana.show.api.serving import Here, caller_of

router = APIRouter(tags=["compare"])
_Run = Annotated[str, Query(min_length=1, max_length=200)]
_Model = Annotated[str | None, Query(max_length=500)]


@router.get("/api/compare", summary="Compare two runs", **documented(ComparisonView, 404))
async def compare_runs(
    here: Here,
    caller: Annotated[Credential, caller_of(comparisons.compare_runs)],
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
    wanted = CompareRequest(
        base=base,
        new=new,
        model=model,
        new_model=new_model,
        any_suite=any_suite,
        any_judge=any_judge,
        page=page,
        page_size=page_size,
    )
    found = await comparisons.compare_runs(here, caller, wanted)
    return answer(found, page_meta(page, page_size, found.lost + found.gained))
