"""The command line: a static table of commands, each imported only when it is typed.

Exit codes: 0 good, 1 the answer is bad, 2 usage or invalid input, 3 the work could not be finished, 4 inconclusive,
130 interrupted. Nothing heavy is imported here: `pramana --help` must answer at once.
"""

import os
import sys
from importlib import import_module
from typing import NoReturn

import click

from pramana.errors import InvalidInput, PramanaError

COMMANDS = {
    "validate": (
        "pramana.show.cli.validate:validate",
        "Check suite and scenario files; every error with its place.",
    ),
    "suite": ("pramana.show.cli.suite:suite", "List, hash, verify and publish suites."),
    "schema": ("pramana.show.cli.schema:schema", "Print the JSON Schema of a file format, for editors."),
}


class CommandTable(click.Group):
    """A group that knows its commands by name and sentence, and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from pramana.errors import did_you_mean

            ctx.fail(f'there is no command "{args[0]}"{did_you_mean(args[0], COMMANDS)}')
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])


@click.command(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="pramana", message="%(prog)s %(version)s")
def pramana() -> None:
    """Evidence about language models and voice agents.

    How good is it, which of two is better, has it changed?
    """


def main() -> NoReturn:
    """Run the command line and exit with a documented code."""
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # a lone surrogate or an ASCII terminal must not end in a traceback
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = pramana.main(prog_name="pramana", standalone_mode=False) or 0
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        code = 130
    except PramanaError as error:
        _explain(error)
        code = error.exit_code
    except BrokenPipeError:  # `pramana … | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        click.echo(f"pramana: {error.filename or ''}: {error.strerror or error}", err=True)
        code = 3
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: PramanaError) -> None:
    from pramana.show import terminal

    if "--json" in sys.argv[1:]:
        details = [terminal.as_data(problem) for problem in error.problems] if isinstance(error, InvalidInput) else []
        terminal.print_json({"error": str(error), "code": error.code, "details": details})
    elif isinstance(error, InvalidInput) and error.problems:
        for problem in error.problems:
            terminal.print_problem(problem, err=True)
    else:
        click.echo(f"pramana: {error}", err=True)
