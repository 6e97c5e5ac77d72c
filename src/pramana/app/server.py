"""The server itself: who asks it, what it is, and what was decided for everyone."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from msgspec.structs import asdict, fields

from pramana.app import App
from pramana.app.access import User, use_case
from pramana.app.views import MeView, ServerView, SettingsView
from pramana.errors import InvalidInput, Problem
from pramana.request import misfit
from pramana.store.preferences import Preferences


class Settings(NamedTuple):
    """What holds now, and what would, had nobody decided."""

    now: SettingsView
    defaults: SettingsView


@use_case("viewer")
async def who_am_i(app: App, user: User) -> MeView:
    """Return who asks, and what they may do: a viewer reads, an editor changes, an admin decides."""
    assert user.role is not None  # noqa: S101 - or they were no viewer
    return MeView(name=user.name, role=user.role, tokens_required=app.tokens_required)


@use_case("viewer")
async def describe_server(app: App, _: User) -> ServerView:
    """Return what this process is and who can reach it."""
    host = f"[{app.host}]" if ":" in app.host else app.host
    return ServerView(
        version=version("pramana"),
        database=app.store.kind,
        address=f"{host}:{app.port}",
        allowed_hosts=app.allowed_hosts,
        for_this_machine_alone=app.for_this_machine_alone,
        tokens_required=app.tokens_required,
        private_addresses_allowed=app.private_addresses_allowed(),
        runs_here=not app.api_only,
    )


@use_case("admin")
async def read_settings(app: App, _: User) -> Settings:
    """Return what was decided for everyone."""
    return Settings(_view(await app.work(app.store.decisions.read)), _view(Preferences()))


@use_case("admin")
async def change_settings(app: App, _: User, changed: Mapping[str, Any]) -> SettingsView:
    """Decide anew about those that are named; None takes a decision back."""
    if not changed:
        raise InvalidInput("no setting is named; send at least one, such as requestsPerMinute")
    stated = {each.name: each for each in fields(Preferences)}
    found = {name: misfit(value, stated[name]) for name, value in changed.items() if value is not None}
    if problems := [Problem(message, name) for name, message in found.items() if message]:
        raise InvalidInput.of(problems)
    decided = await app.work(lambda: app.store.decisions.write(dict(changed)))
    app.decided(decided)
    return _view(decided)


def _view(decided: Preferences) -> SettingsView:
    return SettingsView(**asdict(decided))
