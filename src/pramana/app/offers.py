"""Which models each provider that can be asked now offers: from what it said within a day, else by asking it.

For the command line and the server alike. Only what a provider has said is kept: a failure may be over the next minute,
and a key may be set.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from pramana import clock, settings
from pramana.app.views import View
from pramana.errors import PramanaError, visible
from pramana.run.accounts import Reach, accounts_of

DAY_S = 24 * 3600
ASKED_S = 20.0
AT_ONCE = 8


class OfferView(View, frozen=True, kw_only=True):
    """What a provider offers."""

    provider: str
    models: tuple[str, ...]
    problem: Annotated[str | None, Meta(description="Why it could not be asked")]


class _Said(Struct, frozen=True):
    """What a provider said it offers, and when."""

    at: float
    models: tuple[str, ...]


_Cache = dict[str, _Said]
"""By provider and base URL."""


def offers(reach: Reach, registered: Iterable[str], *, refresh: bool) -> list[OfferView]:
    """Return what each configured provider offers, those registered in the store first."""
    path = settings.home() / "cache" / "models.json"
    try:
        said = msgspec.json.decode(path.read_bytes(), type=_Cache)
    except (OSError, msgspec.MsgspecError, RecursionError):
        said = {}  # whatever it holds, it is only a cache
    said = {where: each for where, each in said.items() if 0 <= clock.timestamp() - each.at < DAY_S}
    found, heard = asyncio.run(_ask_all(reach, list(registered), {} if refresh else said))
    kept = {where: each for where, each in said.items() if where not in heard}
    kept |= {where: each for where, each in heard.items() if each is not None}
    if kept != said:
        with suppress(OSError):  # a folder that cannot be written to costs only the asking
            settings.write_private(path, json.dumps(msgspec.to_builtins(kept)))
    return found


async def _ask_all(
    reach: Reach, registered: list[str], said: Mapping[str, _Said]
) -> tuple[list[OfferView], dict[str, _Said | None]]:
    """Return the offers, and of those asked now what each said, by provider and base URL; None: nothing."""
    from pramana.model import Target
    from pramana.providers.kinds import CALLED, WITHOUT_ACCOUNT, providers
    from pramana.providers.names import open_provider, resolve

    accounts = accounts_of(reach, ASKED_S)
    heard: dict[str, _Said | None] = {}
    places = asyncio.Semaphore(AT_ONCE)

    async def models_of(name: str) -> Iterable[str]:
        where = name
        theirs = reach.registered(name) if reach.registered and name in registered else None
        if theirs and theirs.kind in CALLED:  # which there are of them is not asked for
            return [theirs.model] if theirs.model else []
        if theirs:
            model = "" if theirs.model or theirs.kind in WITHOUT_ACCOUNT else ":any"
            typed = f"{name}{model}" if name != theirs.kind else f"{name}:any"
            target = resolve(typed, registered=reach.registered)
        else:
            target = Target(name, name, "local" if name == "local" else "any")
        if account := accounts.account(target):
            where = f"{name} {account.base_url}"
        if known := said.get(where):
            return known.models
        heard[where] = None
        async with places:
            provider = open_provider(target, accounts)
            try:
                found = _Said(clock.timestamp(), tuple(sorted(map(str, await provider.models()))))
            finally:
                await provider.close()
        heard[where] = found
        return found.models

    async def ask(name: str) -> OfferView:
        models: Iterable[str] = ()
        problem = None
        try:
            models = await models_of(name)
        except PramanaError as error:
            problem = visible(str(error))
        except Exception as error:  # noqa: BLE001 - whatever a stranger's provider raises is its own problem
            problem = visible(f"the provider failed: {type(error).__name__}: {error}")
        return OfferView(provider=name, models=tuple(models), problem=problem)

    own = [name for name in accounts.configured() if not (reach.for_others and name not in providers.builtin)]
    return list(await asyncio.gather(*map(ask, dict.fromkeys([*registered, *own])))), heard
