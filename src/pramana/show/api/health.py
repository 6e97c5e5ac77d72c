"""`/api/health`: whether the server can do its work; anyone may ask, and learns nothing else."""

from importlib.metadata import version
from typing import Literal

from fastapi import APIRouter, Response

from pramana import clock
from pramana.show.api.envelope import Shape, answer, documented, refuse
from pramana.show.api.serving import Here

router = APIRouter(tags=["health"])


class Health(Shape):
    """How the server is."""

    status: Literal["healthy"]
    version: str
    uptime_seconds: float
    database: Literal["sqlite", "postgresql"]
    api_only: bool


@router.get("/api/health", summary="Whether the server can do its work", **documented(Health))
@router.head("/api/health", include_in_schema=False)
async def health(here: Here) -> Response:
    """Read from the store, and say so; however many requests of other kinds wait."""
    if not await here.store_answers():
        return refuse(503, "the store cannot be reached; the server's log says more", code="store_failed")
    return answer(
        {
            "status": "healthy",
            "version": version("pramana"),
            "uptimeSeconds": round(clock.timestamp() - here.began, 3),
            "database": here.store.kind,
            "apiOnly": here.api_only,
        }
    )
