"""Write the pages that are made from the program: `cli.md` from its commands, `claims.md` from `claims.toml`.

`make reference` runs it; tests fail when a page differs from what this would write.
"""

import tomllib
from pathlib import Path

from click.testing import CliRunner

from pramana.show.cli import COMMANDS, pramana

HERE = Path(__file__).parent
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
| 130 | interrupted: Ctrl-C, SIGTERM or SIGHUP |
| 141 | the reader of a pipe left early, as other commands have it |

`PRAMANA_HOME` moves the data folder, `PRAMANA_DATABASE_URL` the store alone; [configuration](configuration.md) has the
rest. A defect of Pramana itself ends with 3 and one sentence; `PRAMANA_DEBUG=1` prints its traceback.
"""


def cli_page() -> str:
    """Return the help of every command, as the program prints it at 80 columns."""
    parts = [HEAD, *_help([])]
    for name in COMMANDS:
        parts += _help([name])
        module, _, attribute = COMMANDS[name][0].partition(":")
        command = getattr(__import__(module, fromlist=[attribute]), attribute)
        for inner in getattr(command, "commands", {}):
            parts += _help([name, inner])
    return "\n".join(parts)


def _help(path: list[str]) -> list[str]:
    shown = CliRunner().invoke(pramana, [*path, "--help"], prog_name="pramana", terminal_width=80)
    return [
        f"{'#' * max(2, len(path) + 1)} {' '.join(['pramana', *path])}",
        "",
        "```text",
        shown.output.rstrip(),
        "```",
        "",
    ]


def claims_page() -> str:
    """Return the claims as a page: what is promised, and what proves it."""
    claims = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))["claim"]
    lines = [
        "# Claims",
        "",
        "Every promise and bar, and what proves it. A named test that is missing, skipped or failed",
    ]
    lines += ["fails `make test`; a command's last result stands in [proofs](proofs.md).", ""]
    for section in dict.fromkeys(claim["section"] for claim in claims):
        lines += [f"## {section}", ""]
        for claim in (each for each in claims if each["section"] == section):
            lines += [f"- {claim['claim']}"]
            lines += [f"  - `{test.removeprefix('tests/')}`" for test in claim.get("tests", [])]
            if "command" in claim:
                result = f"**{claim['value']}** ({claim['date']}, commit {claim['commit']})"
                lines += [f"  - `{claim['command']}`: {result}"]
        lines.append("")
    return "\n".join(lines)


PAGES = {"cli.md": cli_page, "claims.md": claims_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
