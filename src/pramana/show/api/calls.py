"""`/api/runs/RUN/results/SEQ/call`: one call to look at: who said what and when, and how loud both sides were."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from pramana.app import calls
from pramana.app.access import Credential
from pramana.app.calls import FEWEST, MOST, CallView
from pramana.show.api.envelope import answer, documented
from pramana.show.api.runs import RunId
from pramana.show.api.serving import Here, caller_of

router = APIRouter(tags=["runs"])


@router.get("/api/runs/{run_id}/results/{seq}/call", summary="Read a call", **documented(CallView, 404))
async def read_call(
    run_id: RunId,
    seq: Annotated[int, Path(ge=0, lt=2**63)],
    here: Here,
    caller: Annotated[Credential, caller_of(calls.read_call)],
    columns: Annotated[int, Query(ge=FEWEST, le=MOST, description="Parts of which the peaks are")] = 800,
) -> Response:
    """Return its conversation, its turns and the peaks of both sides, to be drawn and sought in."""
    return answer(await calls.read_call(here, caller, run_id, seq, columns))
