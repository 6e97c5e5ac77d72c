"""What every route works with: the store, what was decided for everyone, and whoever asks.

One `Serving` is made when the server starts and handed to each request; `Who` is found by the gate before a route runs.
A route says which role it needs by one dependency, and a test walks all routes to see that each does.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from pramana.errors import PramanaError
from pramana.store.preferences import Preferences
from pramana.store.runs import Store
from pramana.store.tokens import ROLES, Role

FRESH_S = 2.0
"""How long what was decided for everyone, and who holds a token, is believed before it is looked up again."""


class Forbidden(PramanaError):
    """Whoever asks may not do this."""

    code = "forbidden"
    http_status = 403
    exit_code = 2


class Unauthorized(PramanaError):
    """Nobody knows who asks."""

    code = "unauthorized"
    http_status = 401
    exit_code = 2


@dataclass(frozen=True, slots=True)
class Who:
    """Whoever asks."""

    name: str
    role: Role | None
    """None: a stranger."""
    token_id: str | None = None

    def may(self, role: Role) -> bool:
        """Tell whether they may do what a role may."""
        return self.role is not None and ROLES.index(self.role) >= ROLES.index(role)


OWNER = Who("local", "admin")
"""Whoever sits at the machine of a server that listens to it alone, and asks for no tokens."""
STRANGER = Who("anonymous", None)


@dataclass(slots=True)
class Serving:
    """What the routes of one server share."""

    store: Store
    host: str = "127.0.0.1"
    port: int = 3000
    tokens_required: bool = False
    api_only: bool = False
    allowed_hosts: tuple[str, ...] = ()
    """Names by which the server is reached, besides those of its address."""
    began: float = field(default_factory=time.time)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is about to end: whoever waits for news stops waiting."""
    on_queued: Callable[[], None] = lambda: None
    """Called when a run was queued here, so that whoever carries runs out need not look for it."""
    _preferences: Preferences = field(default_factory=Preferences)
    _looked: float = float("-inf")

    def preferences(self) -> Preferences:
        """Return what was decided for everyone, at most some seconds old."""
        now = time.monotonic()
        if now - self._looked > FRESH_S:
            self._preferences, self._looked = self.store.decisions.read(), now
        return self._preferences

    def forget(self) -> None:
        """Look up anew what was decided: this process has just changed it."""
        self._looked = float("-inf")

    @property
    def for_this_machine_alone(self) -> bool:
        """Whether nobody else can reach the server."""
        return is_loopback(self.host)

    def private_addresses_allowed(self) -> bool:
        """Whether what strangers name may be at private addresses."""
        return self.for_this_machine_alone or self.preferences().allow_private_addresses


def is_loopback(host: str) -> bool:
    """Tell whether an address to listen at is this machine's own.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    from ipaddress import ip_address

    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def _here(connection: HTTPConnection) -> Serving:
    serving: Serving = connection.app.state.serving
    return serving


Here = Annotated[Serving, Depends(_here)]


def who(request: HTTPConnection) -> Who:
    """Return whoever asks."""
    found: Who = request.scope.get("pramana.who", STRANGER)
    return found


def needs(role: Role) -> Any:
    """Return the dependency of a route that only a role may use; it gives `Who`."""

    async def check(request: Request) -> Who:
        found = who(request)
        if not found.may(role):
            if found.role is None:
                raise Unauthorized("this needs a token: send it as Authorization: Bearer TOKEN")
            raise Forbidden(f"this needs the role {role}, and the token {found.name} is a {found.role}'s")
        return found

    check.__name__ = f"needs_{role}"
    return Depends(check)


Viewer = Annotated[Who, needs("viewer")]
Editor = Annotated[Who, needs("editor")]
Admin = Annotated[Who, needs("admin")]
