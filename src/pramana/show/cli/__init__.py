"""The command line: a static table of commands, each imported only when it is used.

Exit codes: 0 success, 1 a bad result, 2 wrong usage or invalid input, 3 the work could not be finished, 4 inconclusive,
130 interrupted (Ctrl-C, SIGTERM, SIGHUP), 141 the reader of a pipe left. Nothing heavy is imported here, so that
`pramana --help` is fast.
"""

import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

import click

from pramana.errors import InvalidInput, PramanaError, Problem, escape_control_characters, suggest_similar

COMMANDS = {
    "run": ("pramana.show.cli.run:run", "Test models: run cases, check every reply, store every result."),
    "runs": ("pramana.show.cli.runs:runs", "List runs, newest first."),
    "show": ("pramana.show.cli.runs:show", "Show the summary of a run."),
    "compare": (
        "pramana.show.cli.compare:compare",
        "Compare two runs or models: which is better, and is it proven?",
    ),
    "drift": ("pramana.show.cli.drift:drift", "Watch a model over days: has it changed?"),
    "same": ("pramana.show.cli.same:same", "Are two endpoints the same model? An answer from calls in pairs."),
    "plan": ("pramana.show.cli.plan:plan", "Plan what a change takes to be seen: cases, days, calls and cost."),
    "export": ("pramana.show.cli.export:export", "Export results: JSON, CSV, Parquet, JUnit, Markdown, HTML."),
    "rescore": ("pramana.show.cli.rescore:rescore", "Score stored replies again with another judge or scorer."),
    "judge": ("pramana.show.cli.judge:judge", "Label replies, and see how far the judge agrees with people."),
    "models": ("pramana.show.cli.models:models", "List available models; download the embedded ones."),
    "validate": ("pramana.show.cli.formats:validate", "Check suite and scenario files; every error with its line."),
    "selftest": ("pramana.show.cli.selftest:selftest", "Measure how exactly calls are timed on this machine."),
    "serve": ("pramana.show.cli.serve:serve", "Start the server: web workbench and HTTP API."),
    "mcp": ("pramana.show.cli.mcp:mcp", "Start an MCP server for coding agents."),
    "token": ("pramana.show.cli.token:token", "Create, list and revoke access tokens of the server."),
    "scenarios": ("pramana.show.cli.scenarios:scenarios", "List, import, export and delete stored scenarios."),
    "submit": ("pramana.show.cli.submit:submit", "Submit results to a community server."),
    "suite": ("pramana.show.cli.suite:suite", "List, hash, verify and publish suites."),
    "schema": ("pramana.show.cli.formats:schema", "Print the JSON Schema of a file format."),
}


class HelpfulGroup(click.Group):
    """A group that suggests a similar command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            meant = ALTERNATIVE_COMMANDS.get(args[0]) if isinstance(self, LazyCommandGroup) else None
            hint = f"; run: {meant}" if meant else suggest_similar(args[0], known)
            ctx.fail(f'unknown command "{args[0]}"{hint}')
        return super().resolve_command(ctx, args)


ALTERNATIVE_COMMANDS = {"resume": "pramana run --resume RUN", "estimate": "pramana run --dry-run"}
"""Operations that are options here, but have a name of their own elsewhere, such as in Python."""


class LazyCommandGroup(HelpfulGroup):
    """A group that lists its commands from a table and imports one only to run it."""

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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])


@click.command(cls=LazyCommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="pramana", message="%(prog)s %(version)s")
def pramana() -> None:
    """Test language models and voice agents.

    How good is a model, which of two is better, and has it changed?
    """


def main() -> NoReturn:
    """Run the command line and exit with a documented code."""
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # a lone surrogate or an ASCII terminal must not end in a traceback
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    stdout = sys.stdout
    try:
        code = pramana.main(prog_name="pramana", standalone_mode=False) or 0
        if sys.stdout is not None:  # a parent may have closed it
            sys.stdout.flush()
    except SystemExit as stop:
        # When the reader closes a pipe, click wraps our output and exits with 1.
        code = 141 if sys.stdout is not stdout else stop.code or 0
    except click.ClickException as error:
        if _wants_json():
            _print_error_as_json(error.format_message(), "usage")
        else:
            error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        code = 130
    except PramanaError as error:
        _print_error(str(error), error.code, error.problems)
        code = error.exit_code
    except OSError as error:
        where = f"{escape_control_characters(str(error.filename))}: " if error.filename else ""
        with suppress(OSError):  # the terminal itself may be gone
            _print_error(f"{where}{error.strerror or error}", "os_error")
        code = 3
    except Exception as error:  # noqa: BLE001 - exit code 1 would mean a negative answer
        _print_error(_save_defect_traceback(error), "defect")
        code = 3
    gc.freeze()  # otherwise the interpreter searches all imported objects for cycles on exit
    sys.exit(code if isinstance(code, int) else 0)


def _print_error(message: str, code: str, problems: Sequence[Problem] = ()) -> None:
    """Print an error: its problems if there are any, else its message."""
    if _wants_json():
        _print_error_as_json(message, code, problems)
        return
    from pramana.report import terminal

    for problem in problems:
        terminal.print_problem(problem, to_stderr=True)
    if not problems:
        plain = "\n".join(escape_control_characters(line) for line in message.split("\n"))
        click.echo(terminal.wrap_for_terminal(f"pramana: {plain}"), err=True)


def _wants_json() -> bool:
    return "--json" in sys.argv[1:]


def _print_error_as_json(message: str, code: str, problems: Sequence[Problem] = ()) -> None:
    from pramana.report import terminal

    terminal.print_json(
        {"error": message, "code": code, "details": [terminal.problem_to_data(each) for each in problems]}
    )


def _save_defect_traceback(error: Exception) -> str:
    """Save the traceback of an internal error, and return one sentence that asks the user to report it."""
    import traceback

    from pramana import settings

    trace = "".join(traceback.format_exception(error))
    if settings.is_debugging():
        click.echo(trace, err=True)
    try:
        kept = settings.data_folder() / "defect.txt"  # overwrites the last one
        settings.write_private_file(kept, trace)
        where = f"the traceback is in {kept}"
    except (OSError, InvalidInput):
        where = "PRAMANA_DEBUG=1 shows the traceback"
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    what = escape_control_characters(f"{type(first).__name__}: {first}" if str(first) else type(first).__name__)
    return f"internal error, please report this bug: {what[:300]}; {where}"
