"""`/api/health`: whether the server can do its work; anyone may ask, and learns nothing else."""

import time
from importlib.metadata import version
from typing import Literal

from fastapi import APIRouter, Response

from pramana.errors import StoreFailed
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
def health(here: Here) -> Response:
    """Read from the store, and say so."""
    try:
        here.store.changes.last()
    except StoreFailed:
        return refuse(503, "the store cannot be read", code="store_failed")
    return answer(
        {
            "status": "healthy",
            "version": version("pramana"),
            "uptimeSeconds": round(time.time() - here.began, 3),
            "database": here.store.kind,
            "apiOnly": here.api_only,
        }
    )
