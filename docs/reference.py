"""Write `cli.md` from the commands themselves; a test fails when the two differ."""

import sys
from pathlib import Path

import click

from pramana.show.cli import COMMANDS, pramana

HEAD = """\
# Command line

Written from the program by `make reference`. `--json` makes a command print JSON for programs.

| exit code | meaning |
| --- | --- |
| 0 | good |
| 1 | the answer is bad: below the bar, a regression, an alarm |
| 2 | usage or invalid input |
| 3 | the work could not be finished |
| 4 | inconclusive |
| 130 | interrupted |

`PRAMANA_HOME` moves the data folder.
"""


def page() -> str:
    """Return the whole page."""
    parts = [HEAD, *_help(pramana, "pramana", 2)]
    with click.Context(pramana, info_name="pramana") as context:
        for name in COMMANDS:
            command = pramana.get_command(context, name)
            assert command is not None  # noqa: S101 - it stands in the table
            parts += _help(command, f"pramana {name}", 2)
            for inner in getattr(command, "commands", {}).values():
                parts += _help(inner, f"pramana {name} {inner.name}", 3)
    return "\n".join(parts)


def _help(command: click.Command, name: str, level: int) -> list[str]:
    with click.Context(command, info_name=name, terminal_width=100, max_content_width=100) as context:
        return [f"{'#' * level} {name}", "", "```text", command.get_help(context), "```", ""]


if __name__ == "__main__":
    sys.exit(0 if Path(__file__).with_name("cli.md").write_text(page(), encoding="utf-8") else 1)
