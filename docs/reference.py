"""Write the pages that are made from the program: `cli.md`, `library.md`, and `claims.md` from `claims.toml`.

`make reference` runs it; tests fail when a page differs from what this would write.
"""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import is_dataclass
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

`Cases` is a path, several of them, cases, dictionaries, or a data frame. `Model` is a model's name or a function.
`RunOptions` is every option of a run by its name: the fields of `RunRequest` and `Limits` below, as keyword arguments.
"""
SECTIONS = {
    "Evaluate": ("evaluate", "evaluate_async", "stream", "resume", "compare", "Report", "Comparison", "Result"),
    "Cases": ("Case", "cases_of", "validate", "ValidationReport", "hash_suite", "hash_result", "hash_output"),
    "Options of a run": ("RunRequest", "Limits", "Selection"),
}
"""What most people come for first; the other names follow in alphabetical order."""


def library_page() -> str:
    """Return the public names of the package: signatures, fields, methods and docstrings."""
    import pramana as package

    rest = [name for name in package.__all__ if not any(name in names for names in SECTIONS.values())]
    errors = [name for name in rest if _is_error(getattr(package, name))]
    sections = {**SECTIONS, "Everything else": [name for name in rest if name not in errors], "Errors": errors}
    aliases = {getattr(package, name).__name__: name for name in package.__all__}
    parts = [LIBRARY_HEAD]
    for title, names in sections.items():
        parts += [f"## {title}", ""]
        for name in names:
            parts += _entry(name, getattr(package, name))
    text = re.sub(r"\b\w+\b", lambda found: aliases.get(found.group(), found.group()), "\n".join(parts))
    return text.rstrip() + "\n"


def _is_error(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, Exception)


def _entry(name: str, found: Any) -> list[str]:
    """Return a public name: how it is called, what it is for, and what a class has."""
    node = _source_of(inspect.unwrap(getattr(found, "__wrapped__", found)))
    constructed = name == "Case"
    if constructed or not inspect.isclass(found):
        from pramana.load.rows import make_case

        called = _source_of(make_case) if constructed else node
        head = ["```python", _signature(f"pramana.{name}", called, returns="Case" if constructed else None), "```", ""]
        return [f"### {name}", "", *head, _docstring(found), ""]
    lines = [f"### {name}", "", _docstring(found), ""]
    if rows := [f"| `{each.name}` | `{_cell(each.type)}` | {_cell(each.text)} |" for each in _fields(found)]:
        lines += ["| field | type | |", "| --- | --- | --- |", *rows, ""]
    members = [line for each in node.body for line in _member(each, found)]
    return [*lines, *members, ""] if members else lines


def _source_of(found: Any) -> Any:
    (node,) = ast.parse(dedent(inspect.getsource(found))).body
    return node


def _member(node: ast.stmt, found: type) -> list[str]:
    """Return a method or a property of a class."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
        return []
    said = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
    assert said, f"{found}.{node.name} is public and has no docstring"  # noqa: S101
    if any("property" in ast.unparse(each) for each in node.decorator_list):
        assert node.returns  # noqa: S101
        return [f"- `.{node.name}: {_type(node.returns)}`", f"  {said}"]
    return [f"- `{_signature(f'.{node.name}', node, line=1000)}`", f"  {said}"]


def _signature(
    name: str, node: ast.FunctionDef | ast.AsyncFunctionDef, *, returns: str | None = None, line: int = LINE
) -> str:
    """Return how a function is called, in the words of its source; a parameter a line where one would be too long."""
    stated = node.args
    defaults = [None] * (len(stated.args) - len(stated.defaults)) + list(stated.defaults)
    shown = [
        _parameter(*each) for each in zip(stated.args, defaults, strict=True) if each[0].arg not in ("self", "cls")
    ]
    shown += ["*"] if stated.kwonlyargs else []
    shown += [_parameter(*each) for each in zip(stated.kwonlyargs, stated.kw_defaults, strict=True)]
    shown += [f"**{_parameter(stated.kwarg, None)}"] if stated.kwarg else []
    back = returns or (_type(node.returns) if node.returns else "")
    end = f" -> {back}" if back else ""
    start = f"{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}{name}"
    text = f"{start}({', '.join(shown)}){end}"
    return text if len(text) <= line else f"{start}(\n" + "".join(f"    {each},\n" for each in shown) + f"){end}"


def _parameter(stated: ast.arg, default: ast.expr | None) -> str:
    kind = f": {_type(stated.annotation)}" if stated.annotation else ""
    return f"{stated.arg}{kind}{f' = {ast.unparse(default)}' if default else ''}"


def _type(annotation: ast.expr) -> str:
    """Return a type as it is written, without the `Annotated` that says what the API calls it."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)  # noqa: S101
        return _type(annotation.slice.elts[0])
    if isinstance(annotation, ast.BinOp):
        return f"{_type(annotation.left)} | {_type(annotation.right)}"
    return ast.unparse(annotation)


class _Field(NamedTuple):
    name: str
    type: str
    text: str


def _fields(found: type) -> Iterator[_Field]:
    """Yield the fields of a class and of those it extends, with the sentence below each in its source."""
    for each in reversed(found.__mro__):
        if each.__module__.startswith("pramana.") and (hasattr(each, "__struct_fields__") or is_dataclass(each)):
            yield from _own_fields(_source_of(each))


def _own_fields(node: ast.ClassDef) -> Iterator[_Field]:
    for each, below in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            said = below.value if isinstance(below, ast.Expr) else None
            described = re.search(r"description='([^']*)'", ast.unparse(each.annotation))
            text = str(said.value) if isinstance(said, ast.Constant) else described.group(1) if described else ""
            default = f" = {ast.unparse(each.value)}" if isinstance(each.value, ast.Constant) else ""
            yield _Field(each.target.id, f"{_type(each.annotation)}{default}", " ".join(text.split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _docstring(found: Any) -> str:
    """Return a docstring as Markdown, its examples as a block."""
    text = inspect.getdoc(found) or ""
    assert text, f"{found} is public and has no docstring"  # noqa: S101
    said, mark, example = text.partition(">>> ")
    return said.rstrip() + (f"\n\n```python\n>>> {example.rstrip()}\n\n```" if mark else "")


PAGES = {"cli.md": cli_page, "library.md": library_page, "claims.md": claims_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
