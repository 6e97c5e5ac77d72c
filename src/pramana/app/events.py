"""What is new, as it happens: of one run, or of everything."""

from collections.abc import AsyncGenerator

from pramana.app import App
from pramana.app.access import User, use_case
from pramana.app.tail import ChangeEvent, RunEvent


@use_case("viewer")
async def follow_changes(app: App, _: User, after: int | None = None) -> AsyncGenerator[ChangeEvent]:
    """Return each thing that is made, changed or removed after a change's number; without one, from now on."""
    return app.tail.changes(after)


@use_case("viewer")
async def follow_run(app: App, _: User, run_id: str, after: int = 0) -> AsyncGenerator[RunEvent]:
    """Return the results of a run after a number, and how far it is, until it has ended and all is told."""
    run = await app.work(lambda: app.store.runs.find(run_id))
    return app.tail.run(run.id, after)
