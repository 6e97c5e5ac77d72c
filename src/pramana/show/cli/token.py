"""`pramana token`: who may use the server, and how much they may do."""

import click

from pramana.report import terminal
from pramana.show.cli import HelpfulGroup
from pramana.show.cli.stores import local_store


@click.group(cls=HelpfulGroup)
def token() -> None:
    """Make, list and revoke the tokens of `pramana serve`."""


@token.command()
@click.argument("name", default="")
@click.option(
    "--role",
    type=click.Choice(("viewer", "editor", "admin")),
    default="editor",
    show_default=True,
    help="viewer reads; editor changes scenarios and suites and starts runs; admin sets up providers and tokens too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def create(name: str, *, role: str, as_json: bool) -> None:
    """Make a token for NAME (or just for its role) and print it, this once: only its hash is kept."""
    with local_store() as store:
        made, secret = store.tokens.create(name or role, role)
    if as_json:
        terminal.print_json({"id": made.id, "name": made.name, "role": made.role, "token": secret})
        return
    click.echo(secret)
    click.echo(f"Token {made.id} of {made.name} ({made.role}); it is not shown again.", err=True)
    click.echo("Send it as: Authorization: Bearer TOKEN. From now on everybody needs one.", err=True)


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a list.")
def list_(*, as_json: bool) -> None:
    """List tokens, the revoked ones too."""
    with local_store() as store:
        found = store.tokens.list()
    if as_json:
        terminal.print_json(
            [
                {
                    "id": each.id,
                    "name": each.name,
                    "role": each.role,
                    "created": each.created,
                    "used": each.used,
                    "revoked": each.revoked,
                }
                for each in found
            ]
        )
        return
    if not found:
        click.echo("No tokens yet: `pramana token create NAME --role admin` makes the first.")
    for each in found:
        state = f"revoked {each.revoked[:10]}" if each.revoked else f"last used {each.used or 'never'}"
        click.echo(terminal.fitted(f"{each.id}  {each.role:7} {each.name}  created {each.created[:10]}, {state}", 100))


@token.command()
@click.argument("token_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def revoke(token_id: str, *, as_json: bool) -> None:
    """End the token ID; a running server turns it away within seconds."""
    with local_store() as store:
        ended = store.tokens.revoke(token_id)
    if as_json:
        terminal.print_json({"id": ended.id, "name": ended.name, "role": ended.role, "revoked": ended.revoked})
        return
    click.echo(f"Token {ended.id} of {ended.name} is revoked.")
