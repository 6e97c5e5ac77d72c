"""Who may do what, for every use case there is, without any front end."""

import asyncio
import inspect
import pkgutil
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import pramana.app
from pramana import clock
from pramana.app import App, server, tokens
from pramana.app.access import FRESH_S, RULES, Credential, Forbidden, TooManyRequests, Unauthorized
from pramana.store import open_store
from pramana.store.tokens import ROLES, Role

from ..stores import sqlite_store

MODULES = [
    import_module(f"pramana.app.{each.name}")
    for each in pkgutil.iter_modules(pramana.app.__path__)
    if each.name not in ("access", "views")
]
USE_CASES = {
    f"{module.__name__.rpartition('.')[2]}.{name}": found
    for module in MODULES
    for name, found in vars(module).items()
    if inspect.iscoroutinefunction(found) and found.__module__ == module.__name__ and not name.startswith("_")
}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        yield App(store, tokens_required=True)


def secret_of(app: App, role: Role) -> Credential:
    return Credential(app.store.tokens.create(f"the {role}", role)[1])


def test_every_use_case_has_a_rule() -> None:
    assert USE_CASES.keys() == RULES.keys()
    assert set(RULES.values()) <= {*ROLES, None}
    assert len(USE_CASES) >= 7


@pytest.mark.parametrize("name", USE_CASES)
def test_a_use_case_is_refused_to_everyone_below_its_role(app: App, name: str) -> None:
    needed, use_case = RULES[name], USE_CASES[name]
    assert needed is not None, "nothing is open to strangers yet"
    revoked, secret = app.store.tokens.create("gone", "admin")
    app.store.tokens.revoke(revoked.id)
    for credential in (Credential(), Credential(secret), Credential("x"), Credential("pramana_" + "x" * 43)):
        with pytest.raises(Unauthorized):
            asyncio.run(use_case(app, credential))
    for role in ROLES:
        if ROLES.index(role) < ROLES.index(needed):
            with pytest.raises(Forbidden, match=f"needs the role {needed}, and the token the {role} has"):
                asyncio.run(use_case(app, secret_of(app, role)))


def allowed(app: App, credential: Credential) -> str | None:
    """Return the role of whoever may use the server; None for who may not."""

    async def ask() -> str:
        return (await server.who_am_i(app, credential)).role

    try:
        return asyncio.run(ask())
    except Unauthorized:
        return None


def test_a_revoked_token_ends_within_seconds(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    made, secret = app.store.tokens.create("Ann", "viewer")
    credential = Credential(secret)
    assert allowed(app, credential) == "viewer"
    app.store.tokens.revoke(made.id)
    assert allowed(app, credential) == "viewer", "believed for a moment"
    now += FRESH_S + 0.01
    assert allowed(app, credential) is None


def test_without_tokens_the_owner_may_do_everything(app: App) -> None:
    app.tokens_required = False
    for credential in (Credential(), Credential("somebody's old cookie")):
        assert allowed(app, credential) == "admin"


def test_who_asks_too_often_is_told_to_wait(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    app.decided(app.store.decisions.write({"requests_per_minute": 3}))
    credential = secret_of(app, "viewer")

    async def ask() -> Any:
        return await app.access.admit(credential)

    for _ in range(3):
        asyncio.run(ask())
    with pytest.raises(TooManyRequests, match="more than 3 requests a minute; wait 20 s") as refused:
        asyncio.run(ask())
    assert refused.value.retry_after_s == 20
    now += 20.01
    assert asyncio.run(ask()).name == "the viewer"


def test_a_setting_that_does_not_fit_is_named_with_all_others(app: App) -> None:
    from pramana.errors import InvalidInput

    admin = secret_of(app, "admin")

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


def test_a_token_is_shown_once(app: App) -> None:
    admin = secret_of(app, "admin")

    async def go() -> None:
        made = await tokens.create_token(app, admin, "Bo", "editor")
        assert (await app.access.user(Credential(made.token))).name == "Bo"
        listed = {each.id: each for each in await tokens.list_tokens(app, admin)}
        assert made.token not in repr(listed)
        assert (await tokens.revoke_token(app, admin, made.id)).revoked_at

    asyncio.run(go())
