"""What a route gets: the application, and the credential of whoever asks.

A route hands the credential on to a use case, which decides what its user may do.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import HTTPConnection

from pramana.app import App
from pramana.app.access import STRANGER, Credential, User, allowed_user

THREADS = {"sqlite": 40, "postgresql": 16}
"""Of the routes. Each may hold a connection, and the pool has some to spare for tokens, settings, health and runs."""


async def _app(connection: HTTPConnection) -> App:
    app: App = connection.app.state.serving
    return app


Here = Annotated[App, Depends(_app)]


def caller_of(use_case: Callable[..., Awaitable[Any]]) -> Any:
    """Return the dependency of a route that hands its caller's credential to a use case.

    Whoever may not do it is refused before anything that they have sent is looked at.
    """

    async def credential(connection: HTTPConnection) -> Credential:
        app: App = connection.app.state.serving  # a dependency of a dependency would take longer than the store
        found: Credential = connection.scope.get("pramana.credential", Credential())
        await allowed_user(app, found, use_case)
        return found

    credential.__name__ = f"caller_of_{use_case.__name__}"
    return Depends(credential)


def user_of(connection: HTTPConnection) -> User:
    """Return who the gate found to ask."""
    found: User = connection.scope.get("pramana.user", STRANGER)
    return found
