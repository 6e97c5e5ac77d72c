"""Write the pages that are made from the program: `cli.md`, `library.md`, and `claims.md` from `claims.toml`.

`make reference` runs it; tests fail when a page differs from what this would write.
"""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

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


LINE = 100
"""Characters from which on a signature has a line for each parameter."""
LIBRARY_HEAD = """\
# Library reference

Every public name of `pramana`, with its types, written from the program by `make reference`.
[From Python](python.md) is the guide. Names that are not on this page are private and may change without notice.
"""
SECTIONS = {
    "Evaluate": ("evaluate", "evaluate_async", "stream", "resume", "compare", "Report", "Comparison", "Result"),
    "Cases": ("Case", "cases_of", "validate", "ValidationReport", "hash_suite", "hash_result", "hash_output"),
    "Requests": ("RunRequest", "Limits", "Selection"),
}
"""What most people come for first; the other names follow in alphabetical order."""


def library_page() -> str:
    """Return the public names of the package: signatures, fields, methods and docstrings."""
    import pramana as package

    rest = [name for name in package.__all__ if not any(name in names for names in SECTIONS.values())]
    errors = [name for name in rest if _is_error(getattr(package, name))]
    sections = {**SECTIONS, "Everything else": [name for name in rest if name not in errors], "Errors": errors}
    parts = [LIBRARY_HEAD]
    for title, names in sections.items():
        parts += [f"## {title}", ""]
        for name in names:
            parts += _entry(f"pramana.{name}", getattr(package, name))
    return "\n".join(parts).rstrip() + "\n"


def _is_error(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, Exception)


def _entry(name: str, found: Any) -> list[str]:
    """Return a public name: how it is called, what it is for, and what a class has."""
    lines = [f"### {name}", "", "```python", f"{name}{'' if _is_error(found) else _signature(found)}", "```", ""]
    lines += [_docstring(found), ""]
    if not inspect.isclass(found):
        return lines
    rows = [f"| `{each.name}` | `{_cell(each.type)}` | {_cell(each.text)} |" for each in _fields(found)]
    if rows:
        lines += ["| field | type | |", "| --- | --- | --- |", *rows, ""]
    members = []
    for each, member in vars(found).items():
        if each.startswith("_"):
            continue
        if getter := getattr(member, "fget", None) or getattr(member, "func", None):  # a property, maybe cached
            returned = _plain(inspect.signature(getter).return_annotation)
            members += [f"- `.{each}: {returned}`", f"  {_first_paragraph(getter)}"]
        elif inspect.isfunction(member):
            members += [f"- `.{each}{_signature(member, bound=True, line=1000)}`", f"  {_first_paragraph(member)}"]
    return [*lines, *members, ""] if members else lines


def _signature(found: Any, *, bound: bool = False, line: int = LINE) -> str:
    """Return how something is called, a parameter a line where one line would be too long."""
    stated = inspect.signature(found)
    shown = list(stated.parameters.values())[bound:]
    text = _plain(str(stated.replace(parameters=shown)))
    if len(text) <= line:
        return text
    parts = [_plain(str(stated.replace(parameters=[each], return_annotation=stated.empty)))[1:-1] for each in shown]
    keyword_only = [number for number, each in enumerate(shown) if each.kind is each.KEYWORD_ONLY]
    parts = [part.removeprefix("*, ") for part in parts]
    if keyword_only:
        parts.insert(keyword_only[0], "*")
    returned = "" if stated.return_annotation is stated.empty else f" -> {_plain(stated.return_annotation)}"
    return "(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"


def _plain(annotation: Any) -> str:
    """Return an annotation or a signature without the modules that its names come from."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:pramana|collections|pathlib|typing|types)(?:\.[a-z_]+)*\.(?=[A-Z])", "", text)
    return text.replace("NoneType", "None").replace("~", "")


class _Field(NamedTuple):
    name: str
    type: str
    text: str


def _fields(found: type) -> Iterator[_Field]:
    """Yield the fields of a class, with the sentence below each in its source."""
    if not hasattr(found, "__struct_fields__"):
        return
    (tree,) = ast.parse(dedent(inspect.getsource(found))).body
    assert isinstance(tree, ast.ClassDef)  # noqa: S101
    for each, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            below = after.value if isinstance(after, ast.Expr) else None
            text = " ".join(str(below.value).split()) if isinstance(below, ast.Constant) else ""
            yield _Field(each.target.id, _without_notes(each.annotation), text)


def _without_notes(annotation: ast.expr) -> str:
    """Return a type as it is written, without the `Annotated` that says what the API calls it."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)  # noqa: S101
        return _without_notes(annotation.slice.elts[0])
    if isinstance(annotation, ast.BinOp):
        return f"{_without_notes(annotation.left)} | {_without_notes(annotation.right)}"
    return ast.unparse(annotation).strip("'")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _docstring(found: Any) -> str:
    """Return a docstring as Markdown, its examples as a block."""
    text = inspect.getdoc(found) or ""
    assert text, f"{found} is public and has no docstring"  # noqa: S101
    said, mark, example = text.partition(">>> ")
    return said.rstrip() + (f"\n\n```python\n>>> {example.rstrip()}\n\n```" if mark else "")


def _first_paragraph(found: Any) -> str:
    return " ".join(_docstring(found).partition("\n\n")[0].split())


PAGES = {"cli.md": cli_page, "library.md": library_page, "claims.md": claims_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
