"""Home: the newest runs, how models do over time, and what needs attention."""

from pramana.show.web import frame
from pramana.show.web.desk import Desk


@frame.page("/", "Home")
async def home(desk: Desk) -> None:
    """Show what is new."""
    await desk.get("/api/runs", pageSize=10)
    frame.head("Pramana", "How good is it, which of two is better, has it changed?")
