"""What each provider that can be asked now offers: from what it said within a day, else by asking it.

For the command line and the server alike. Only what a provider has said is kept: a failure may be over the next minute,
and a key may be set.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pramana import clock, settings
from pramana.errors import PramanaError
from pramana.run.accounts import Reach, accounts_of

DAY_S = 24 * 3600
ASKED_S = 20.0
AT_ONCE = 8
Offers = dict[str, dict[str, Any]]
"""By provider: `models`, and the `problem` where there is one."""


def offers(reach: Reach, registered: Iterable[str], *, refresh: bool) -> Offers:
    """Return what each configured provider offers, those registered in the store first."""
    path = settings.home() / "cache" / "models.json"
    said = _recent(path)
    found, heard = asyncio.run(_ask_all(reach, list(registered), {} if refresh else said))
    kept = {where: offer for where, offer in said.items() if where not in heard} | {
        where: offer for where, offer in heard.items() if offer is not None
    }
    if kept != said:
        with suppress(OSError):  # a folder that cannot be written to costs only the asking
            settings.write_private(path, json.dumps(kept))
    return found


def _recent(path: Path) -> dict[str, Any]:
    """Return what was said within a day, by provider and base URL."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return {
            where: {"at": float(offer["at"]), "models": [str(name) for name in offer["models"]]}
            for where, offer in said.items()
            if 0 <= clock.timestamp() - offer["at"] < DAY_S
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return {}  # whatever it holds, it is only a cache


async def _ask_all(reach: Reach, registered: list[str], said: Mapping[str, Any]) -> tuple[Offers, dict[str, Any]]:
    """Return the offers by provider, and of those asked now what each said, by provider and base URL; None: nothing."""
    from pramana.model import Target
    from pramana.providers.kinds import CALLED, WITHOUT_ACCOUNT, providers
    from pramana.providers.names import open_provider, resolve

    accounts = accounts_of(reach, ASKED_S)
    heard: dict[str, Any] = {}
    places = asyncio.Semaphore(AT_ONCE)

    async def ask(name: str) -> dict[str, Any]:
        where = name
        theirs = reach.registered(name) if reach.registered and name in registered else None
        if theirs and theirs.kind in CALLED:  # which there are of them is not asked for
            return {"models": [theirs.model] if theirs.model else [], "problem": None}
        try:
            if theirs:
                model = "" if theirs.model or theirs.kind in WITHOUT_ACCOUNT else ":any"
                typed = f"{name}{model}" if name != theirs.kind else f"{name}:any"
                target = resolve(typed, registered=reach.registered)
            else:
                target = Target(name, name, "local" if name == "local" else "any")
            if account := accounts.account(target):
                where = f"{name} {account.base_url}"
            if known := said.get(where):
                return {"models": known["models"], "problem": None}
            heard[where] = None
            async with places:
                provider = open_provider(target, accounts)
                try:
                    found = sorted(map(str, await provider.models()))
                finally:
                    await provider.close()
        except PramanaError as error:
            return {"models": [], "problem": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever a stranger's provider raises is its own problem
            return {"models": [], "problem": f"the provider failed: {type(error).__name__}: {error}"}
        heard[where] = {"at": clock.timestamp(), "models": found}
        return {"models": found, "problem": None}

    own = [name for name in accounts.configured() if not (reach.for_others and name not in providers.builtin)]
    names = list(dict.fromkeys([*registered, *own]))
    return dict(zip(names, await asyncio.gather(*map(ask, names)), strict=True)), heard
