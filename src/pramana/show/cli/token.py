"""`pramana token`: create, list and revoke the access tokens of a server."""

import sys

import click

from pramana.report import terminal
from pramana.show.cli import HelpfulGroup
from pramana.show.cli.options import open_local_store
from pramana.store.engine import timestamp
from pramana.store.tokens import EXPIRES_DAYS, MAX_DAYS, Token

_FIRST_TOKEN_NOTE = (
    "This is the first token. So far, a server may call models at private addresses, such as Ollama on localhost."
)


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _parse_days(_: click.Context, __: click.Parameter, text: str) -> int | None:
    if text == "never":
        return None
    if not (text.isdecimal() and 1 <= int(text) <= MAX_DAYS):
        raise click.BadParameter(f"expected a number of days from 1 to {MAX_DAYS:,}, or never")
    return int(text)


@click.group(cls=HelpfulGroup)
def token() -> None:
    """Create, list and revoke access tokens of `pramana serve`."""


@token.command()
@click.argument("name", default="")
@click.option(
    "--role",
    type=click.Choice(("viewer", "editor", "admin")),
    default="editor",
    show_default=True,
    help="viewer: read; editor: also edit and start runs; admin: also providers, tokens and settings",
)
@click.option(
    "--expires",
    "days",
    callback=_parse_days,
    default=str(EXPIRES_DAYS),
    show_default=True,
    metavar="DAYS|never",
    help="Days until the token expires",
)
@click.option(
    "--allow-private-addresses/--no-allow-private-addresses",
    "allow_private_addresses",
    default=None,
    help="With the first token: whether the server may still call models at private addresses, such as localhost "
    "[default: ask; no without a terminal]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def create(name: str, *, role: str, days: int | None, allow_private_addresses: bool | None, as_json: bool) -> None:
    """Create a token called NAME [default: its role] and print it.

    The token is shown only once: only its hash is stored.
    """
    with open_local_store() as store:
        is_first = not store.tokens.has_ever_had_token() and not store.preferences.read().allow_private_addresses
        if is_first and allow_private_addresses is None and _is_interactive():
            allow_private_addresses = click.confirm(
                f"{_FIRST_TOKEN_NOTE} Allow this for everyone with a token?", err=True
            )
        made, secret = store.tokens.create(name or role, role, days)
        if allow_private_addresses is not None:
            store.preferences.write({"allow_private_addresses": allow_private_addresses})
    if as_json:
        shown = {"id": made.id, "name": made.name, "role": made.role, "expires": made.expires, "token": secret}
        terminal.print_json(shown)
        return
    click.echo(secret)
    shown_once = f"Token {made.id} of {made.name} ({made.role}), {_describe_validity(made)}; it is not shown again."
    click.echo(terminal.wrap_for_terminal(shown_once), err=True)
    click.echo("Send it as: Authorization: Bearer TOKEN", err=True)
    if is_first and not allow_private_addresses:
        note = (
            "From now on the server refuses models at private addresses, such as localhost. To allow them, use "
            "Settings > Server in the workbench, or allowPrivateAddresses in PATCH /api/settings."
        )
        click.echo(terminal.wrap_for_terminal(note), err=True)


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def list_(*, as_json: bool) -> None:
    """List all tokens, including revoked and expired ones."""
    with open_local_store() as store:
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
                    "expires": each.expires,
                }
                for each in found
            ]
        )
        return
    if not found:
        click.echo("No tokens yet. Create one: pramana token create NAME --role admin")
    for each in found:
        state = f"last used {each.used or 'never'}, {_describe_validity(each)}"
        click.echo(
            terminal.fit_to_width(f"{each.id}  {each.role:7} {each.name}  created {each.created[:10]}, {state}", 120)
        )


@token.command()
@click.argument("token_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def revoke(token_id: str, *, as_json: bool) -> None:
    """Revoke the token with this ID. A running server rejects the token within seconds."""
    with open_local_store() as store:
        ended, is_last = store.tokens.revoke(token_id), not store.tokens.has_valid_token()
    if as_json:
        terminal.print_json({"id": ended.id, "name": ended.name, "role": ended.role, "revoked": ended.revoked})
        return
    click.echo(f"Token {ended.id} of {ended.name} is revoked.")
    if is_last:
        click.echo("No valid token is left. To give access again: pramana token create NAME --role admin", err=True)


def _describe_validity(token: Token) -> str:
    if token.revoked:
        return f"revoked {token.revoked[:10]}"
    if token.expires is None:
        return "never expires"
    return f"{'expired' if token.expires <= timestamp() else 'expires'} {token.expires[:10]}"
