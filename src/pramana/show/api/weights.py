"""`/api/weights`: what the embedded models need on this machine, and its download, watched."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from pramana.app import weights
from pramana.app.access import Credential
from pramana.app.views import WeightsView
from pramana.show.api.envelope import answer, documented
from pramana.show.api.serving import Here, caller_of

router = APIRouter(tags=["weights"])


@router.get("/api/weights", summary="List the weights of the embedded models", **documented(list[WeightsView]))
async def list_weights(here: Here, caller: Annotated[Credential, caller_of(weights.list_weights)]) -> Response:
    """Return what each embedded model needs, whether it is here, and how far its download is."""
    return answer(await weights.list_weights(here, caller))


def _starting() -> dict[str, Any]:
    told = documented(WeightsView, 404, status=202, description="Under way: look again how far it is")
    told["responses"][200] = documented(WeightsView, description="They are here already")["responses"][200]
    return told


@router.post("/api/weights/{name}/pull", summary="Download weights", **_starting())
async def pull_weights(
    name: Annotated[str, Path(max_length=200)],
    here: Here,
    caller: Annotated[Credential, caller_of(weights.pull_weights)],
) -> Response:
    """Bring weights to this machine; whoever asks while that is under way watches the same download."""
    found = await weights.pull_weights(here, caller, name)
    return answer(found, status=200 if found.present else 202)
