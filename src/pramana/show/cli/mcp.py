"""`pramana mcp`: the bench as tools for a coding agent, on stdin and stdout."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pramana.errors import InvalidInput
from pramana.installation import make_install_command
from pramana.show.cli.options import POSITIVE_FLOAT, open_local_store

if TYPE_CHECKING:
    from pramana.store.tokens import Role

SET_LIMIT_ADVICE = "ask the user to start it with a cost limit in US dollars: pramana mcp --max-cost 5"
RAISE_LIMIT_ADVICE = "ask the user to start it again, with a higher --max-cost if necessary"


@click.command()
@click.option(
    "--max-cost",
    "max_cost_usd",
    type=POSITIVE_FLOAT,
    default=None,
    metavar="USD",
    help="Cost limit for all runs together (USD) [default: paid models are refused]",
)
@click.option(
    "--role",
    type=click.Choice(("viewer", "editor")),
    default="editor",
    show_default=True,
    help="viewer: read and validate; editor: also start runs",
)
def mcp(*, max_cost_usd: float | None, role: "Role") -> int:
    """Start a Model Context Protocol (MCP) server for a coding agent, on stdin and stdout.

    The coding agent starts this command and gets the tools validate, run, resume, runs, show, failures and compare.
    Runs happen in this process, with your account's rights: they read your files, use your API keys, and can run code
    through python: and command: models. Set --max-cost to allow models that cost money. Needs the extra
    `mcp`. Exit code: 0 when the client disconnects, 2 without the extra.
    """
    from pramana.app import App, Credential
    from pramana.app.spending import LocalProgramSettings, SpendingLimit
    from pramana.request import format_cost_limit

    try:
        from pramana.show.mcp import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise InvalidInput(f"pramana mcp needs the MCP SDK; install it: {make_install_command('mcp')}") from None
    with open_local_store() as store:
        advice = SET_LIMIT_ADVICE if max_cost_usd is None else RAISE_LIMIT_ADVICE
        app = App(
            store, local_program=LocalProgramSettings(SpendingLimit(max_cost_usd, advice), user_code_folder=Path.cwd())
        )
        app.refresh_settings()
        credential = Credential(app.access.make_startup_token(role, "of this MCP server"))
        money = (
            "Models that cost money are refused: the user has set no cost limit."
            if max_cost_usd is None
            else f"All runs together may cost {format_cost_limit(max_cost_usd)}."
        )
        asyncio.run(serve(app, credential, money))
    return 0
