"""Roles: which caller may run which use case; no front end involved."""

import asyncio
import inspect
import pkgutil
from collections.abc import Awaitable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from importlib import import_module
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import update

import pramana.app
from pramana import clock
from pramana.app import ALLOW_ANONYMOUS_WHEN, ROLE_BY_USE_CASE, App, require_allowed_user, server
from pramana.app.access import (
    ANONYMOUS,
    LOOKUP_CACHE_S,
    Credential,
    Forbidden,
    TooManyRequests,
    Unauthorized,
    User,
    require_role,
)
from pramana.app.server import TokenRequest
from pramana.errors import InvalidInput
from pramana.store import open_store
from pramana.store.preferences import Preferences
from pramana.store.schema import sessions
from pramana.store.tokens import ROLES, Role, hash_secret

from ..credentials import TOKEN_ENDS, TokenEnd, end_token
from ..stores import sqlite_store

_T = TypeVar("_T")
MODULES = [
    import_module(f"pramana.app.{each.name}")
    for each in pkgutil.iter_modules(pramana.app.__path__)
    if each.name not in ("access", "views")
]
USE_CASES = {
    f"{module.__name__.rpartition('.')[2]}.{name}": found
    for module in MODULES
    for name, found in vars(module).items()
    if inspect.isfunction(found) and found.__module__ == module.__name__ and not name.startswith("_")
    # Every function that takes a user is a use case, even if its decorator is missing.
    if [each.annotation for each in inspect.signature(found).parameters.values()][:2] == [App, User]
}

ALWAYS_PUBLIC = "watch_alerts.read_public"
"""The use case that is open without a token, whatever the settings: it reads only watches that were made public."""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        yield App(store, server_account_needs_token=True)


def create_token(app: App, role: Role) -> Credential:
    return Credential(app.store.tokens.create(f"the {role}", role)[1])


def test_every_use_case_has_a_rule() -> None:
    assert USE_CASES.keys() == ROLE_BY_USE_CASE.keys()
    assert set(ROLE_BY_USE_CASE.values()) <= set(ROLES)
    assert len(USE_CASES) >= 7


def run(work: Awaitable[_T]) -> _T:
    async def working() -> _T:
        return await work

    return asyncio.run(working())


def create_session(app: App, credential: Credential) -> Credential:
    return Credential(session_secret=run(server.begin_session(app, credential)))


def make_invalid_credentials(app: App) -> dict[str, Credential]:
    """Return one credential of every kind that a server with required tokens refuses."""
    found = {
        "nobody": Credential(),
        "the server's own account": Credential(is_from_server_account=True),
        "an invented token": Credential("pramana_" + "x" * 43),
        "no token at all": Credential("x"),
        "an invented session": Credential(session_secret="pramana_" + "x" * 43),
        "the own account with a wrong token": Credential("pramana_" + "x" * 43, is_from_server_account=True),
    }
    for how in ("revoked", "expired"):
        made, secret = app.store.tokens.create("gone", "admin")
        found[f"a session of a {how} token"] = create_session(app, Credential(secret))
        found[f"a {how} token"] = Credential(secret)
        end_token(app.store, made.id, how)
    signed_out = create_session(app, create_token(app, "admin"))
    run(server.end_session(app, signed_out))
    old = create_session(app, create_token(app, "admin"))
    with app.store._database.write_transaction() as connection:
        mine = sessions.c.hash == hash_secret(str(old.session_secret))
        connection.execute(update(sessions).where(mine), {"expires": "2020-01-01T00:00:00.000+00:00"})
    session, token = create_session(app, create_token(app, "admin")), create_token(app, "admin")
    found |= {
        "a session that was signed out": signed_out,
        "a session that has expired": old,
        "a session shown as a token": Credential(session.session_secret),
        "a token shown as a session": Credential(session_secret=token.token_secret),
    }
    app.access._known.clear()  # lookups from before the token ended are cached for two seconds
    return found


def test_a_public_watch_is_open_to_callers_without_a_token_and_an_invalid_token_is_refused(app: App) -> None:
    for credential in make_invalid_credentials(app).values():
        if credential.token_secret is None:  # a session that has ended is ignored
            assert run(require_allowed_user(app, credential, USE_CASES[ALWAYS_PUBLIC])) is ANONYMOUS
        else:
            with pytest.raises(Unauthorized):
                run(require_allowed_user(app, credential, USE_CASES[ALWAYS_PUBLIC]))


@pytest.mark.parametrize("name", sorted(USE_CASES.keys() - {ALWAYS_PUBLIC}))
def test_a_use_case_is_refused_below_its_role(app: App, name: str) -> None:
    needed, use_case = ROLE_BY_USE_CASE[name], USE_CASES[name]
    for kind, credential in make_invalid_credentials(app).items():
        with pytest.raises(Unauthorized):
            pytest.fail(f"{kind}: {asyncio.run(use_case(app, credential))}")
    for role in ROLES:
        if ROLES.index(role) < ROLES.index(needed):
            token = create_token(app, role)
            for credential in (token, create_session(app, token)):
                with pytest.raises(Forbidden, match=f"needs the role {needed}, and the token the {role} has"):
                    asyncio.run(use_case(app, credential))


def test_a_setting_opens_only_submissions_and_badges_and_nothing_but_public_watches_is_always_open(app: App) -> None:
    app.set_preferences(app.store.preferences.write({"anonymous_submission": True}))
    assert ALLOW_ANONYMOUS_WHEN.keys() == {
        "submissions.submit",
        "submissions.submit_batch",
        "submissions.count_badge_passes",
        "community_watches.read_community_watch",
        "watch_alerts.read_public",
    }
    assert [name for name, is_open in ALLOW_ANONYMOUS_WHEN.items() if is_open(Preferences())] == [ALWAYS_PUBLIC]
    for name, use_case in USE_CASES.items():
        if name in ALLOW_ANONYMOUS_WHEN:
            assert run(require_allowed_user(app, Credential(), use_case)) is ANONYMOUS
        else:
            with pytest.raises(Unauthorized):
                run(require_allowed_user(app, Credential(), use_case))
        with pytest.raises(Unauthorized):  # a token that is shown counts
            run(require_allowed_user(app, Credential("pramana_" + "x" * 43), use_case))


@pytest.mark.parametrize("name", USE_CASES)
def test_a_use_case_accepts_its_role_by_token_or_session_and_the_servers_own_account(app: App, name: str) -> None:
    def passes(app: App, credential: Credential) -> None:
        require_role(asyncio.run(app.access.find_user(credential)), ROLE_BY_USE_CASE[name])

    token = create_token(app, ROLE_BY_USE_CASE[name])
    passes(app, token)
    passes(app, create_session(app, token))
    printed = Credential(app.access.make_startup_token())
    passes(app, printed)
    passes(app, create_session(app, printed))
    passes(App(app.store), Credential(is_from_server_account=True))
    passes(App(app.store, open_to_all=True), Credential())
    for other in (Credential(), printed, Credential(session_secret="pramana_" + "x" * 43)):
        with pytest.raises(Unauthorized):
            passes(App(app.store), other)


def resolve_role(app: App, credential: Credential) -> str | None:
    """Return the role that a credential gives; None if it is refused."""

    async def ask() -> str:
        return (await server.describe_current_user(app, credential)).role

    try:
        return asyncio.run(ask())
    except Unauthorized:
        return None


@pytest.mark.parametrize("how", TOKEN_ENDS)
@pytest.mark.parametrize("by_session", [False, True])
def test_revoking_or_demoting_a_token_takes_effect_within_seconds(
    app: App, monkeypatch: pytest.MonkeyPatch, how: TokenEnd, by_session: bool
) -> None:
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    made, secret = app.store.tokens.create("Ann", "editor")
    credential = create_session(app, Credential(secret)) if by_session else Credential(secret)
    assert resolve_role(app, credential) == "editor"
    user = asyncio.run(app.access.find_user(credential))
    end_token(app.store, made.id, how)
    assert resolve_role(app, credential) == "editor", "believed for a moment"
    assert asyncio.run(app.access.find_ended_users({user})) == {user}, "what is open ends"
    now += LOOKUP_CACHE_S + 0.01
    assert resolve_role(app, credential) == ("viewer" if how == "demoted" else None)


def test_the_servers_own_account_needs_no_token_even_if_tokens_exist(app: App) -> None:
    alone = App(app.store)
    for credential in (
        Credential(is_from_server_account=True),
        Credential(session_secret="an old cookie", is_from_server_account=True),  # noqa: S106 - not a secret
    ):
        assert resolve_role(alone, credential) == "admin"
    viewer = create_token(app, "viewer")
    assert resolve_role(alone, Credential(viewer.token_secret, is_from_server_account=True)) == "viewer", (
        "who shows a token is its holder"
    )
    assert resolve_role(alone, Credential("pramana_" + "x" * 43, is_from_server_account=True)) is None
    assert resolve_role(alone, Credential()) is None


@pytest.mark.parametrize(
    "given",
    [
        {"host": "0.0.0.0"},  # noqa: S104 - only said
        {"allowed_hosts": ("bench.example",)},
        {"trusted_proxies": (ip_network("127.0.0.1"),)},
        {"server_account_needs_token": True},
    ],
)
def test_a_public_server_requires_a_token_from_its_own_account_too(app: App, given: Any) -> None:
    assert resolve_role(App(app.store, **given), Credential(is_from_server_account=True)) is None


def test_the_error_says_how_to_create_a_token_when_none_is_valid(app: App) -> None:
    made, secret = app.store.tokens.create("Ann", "admin")
    app.refresh_settings()
    with pytest.raises(Unauthorized, match="invalid token"):
        run(server.describe_current_user(app, Credential("pramana_" + "x" * 43)))
    app.store.tokens.revoke(made.id)
    for again in (app, App(app.store, server_account_needs_token=True)):  # the same process, and after a restart
        again.refresh_settings()
        with pytest.raises(
            Unauthorized, match="revoked or expired; create a token on the server: pramana token create"
        ):
            run(server.describe_current_user(again, Credential(secret)))
        assert resolve_role(again, Credential()) is None


def test_a_token_expires_after_90_days_by_default(app: App) -> None:
    admin = create_token(app, "admin")

    async def make(**given: Any) -> str | None:
        return (await server.create_token(app, admin, TokenRequest(name="Bo", role="viewer", **given))).expires_at

    for given, days in (({}, 90), ({"expires_in_days": 1}, 1)):
        expires = asyncio.run(make(**given))
        assert expires
        assert abs(datetime.fromisoformat(expires) - clock.now() - timedelta(days=days)) < timedelta(minutes=1)
    assert asyncio.run(make(expires_in_days=None)) is None
    with pytest.raises(InvalidInput, match="1 to 3,650 days, or never"):
        asyncio.run(make(expires_in_days=0))


def test_too_many_requests_are_refused_with_a_retry_time(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    app.set_preferences(app.store.preferences.write({"requests_per_minute": 3}))
    credential = create_token(app, "viewer")

    async def ask() -> Any:
        return await app.access.authenticate_and_count(credential)

    for _ in range(3):
        asyncio.run(ask())
    with pytest.raises(TooManyRequests, match="more than 3 requests a minute; wait 20 s") as refused:
        asyncio.run(ask())
    assert refused.value.retry_after_s == 20
    now += 20.01
    assert asyncio.run(ask()).name == "the viewer"


def test_all_invalid_settings_are_reported_together(app: App) -> None:
    admin = create_token(app, "admin")

    async def change(**changed: Any) -> Any:
        return await server.change_settings(app, admin, changed)

    with pytest.raises(InvalidInput) as refused:
        asyncio.run(change(requests_per_minute=0, largest_body_mb="many", cors_origins=("https://a.example", "no")))
    assert [str(each) for each in refused.value.problems] == [
        "requests_per_minute: expected a whole number from 1 to 1,000,000, found 0",
        "largest_body_mb: expected a whole number from 1 to 1,024, found 'many'",
        "cors_origins: expected text such as https://bench.example, found 'no'",
    ]
    assert asyncio.run(change(requests_per_minute=5)).requests_per_minute == 5
    assert app.preferences().requests_per_minute == 5
    assert asyncio.run(change(requests_per_minute=None)).requests_per_minute == 1_200


def test_a_token_is_shown_only_once(app: App) -> None:
    admin = create_token(app, "admin")

    async def go() -> None:
        made = await server.create_token(app, admin, TokenRequest(name="Bo", role="editor"))
        assert (await app.access.find_user(Credential(made.token))).name == "Bo"
        listed = {each.id: each for each in await server.list_tokens(app, admin)}
        assert made.token not in repr(listed)
        assert (await server.revoke_token(app, admin, made.id)).revoked_at

    asyncio.run(go())
