"""Write the pages that are made from the program: `cli.md`, `library.md`, and `claims.md` from `claims.toml`.

`make reference` runs it; tests fail when a page differs from what this would write.
"""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from click.testing import CliRunner

from pramana.show.cli import COMMANDS, pramana

HERE = Path(__file__).parent
HEAD = """\
# Command line

Generated from the program by `make reference`. With `--json`, a command prints JSON for programs.

| exit code | meaning |
| --- | --- |
| 0 | success |
| 1 | the result is bad: below `--fail-under`, or a regression |
| 2 | invalid options or input |
| 3 | the work could not be finished |
| 4 | inconclusive: not enough evidence |
| 130 | interrupted: Ctrl-C, SIGTERM or SIGHUP |
| 141 | the program reading from a pipe closed it |

`PRAMANA_HOME` sets the data folder and `PRAMANA_DATABASE_URL` the database; [configuration](configuration.md) has the
rest. An internal error of Pramana exits with 3; `PRAMANA_DEBUG=1` prints its traceback.
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
        "This page lists every promise of Pramana, and below each promise its proof: tests, or a command with its",
        "last result. The names of tests are paths below `tests/`; for example, `.venv/bin/pytest tests/test_hash.py`",
        "runs the tests of one file. `make test` fails if a test named here is missing, skipped or fails.",
        "[Proofs](proofs.md) has the full results of the commands.",
        "",
    ]
    for section in dict.fromkeys(claim["section"] for claim in claims):
        lines += [f"## {section}", ""]
        for claim in (each for each in claims if each["section"] == section):
            lines += [f"- {claim['claim']}"]
            lines += [f"  - `{test.removeprefix('tests/')}`" for test in claim.get("tests", [])]
            if "command" in claim:
                result = f"**{claim['value']}** ({claim['date']}, commit {claim['commit']})"
                lines += [f"  - `{claim['command']}`: {result}"]
            if "trial" in claim:
                tried = f"**{claim['value']}** ({claim['date']}, commit {claim['commit']})"
                lines += [f"  - tried with only help and documentation, [{claim['trial']}](proofs.md): {tried}"]
        lines.append("")
    return "\n".join(lines)


LINE = 100
"""Characters from which on a signature has a line for each parameter."""
LIBRARY_HEAD = """\
# Library reference

The library reference lists every public name of the Python package `pramana`, with its types; `make reference`
generates it from the program. The guide to the library is [From Python](python.md). Names that the library reference
does not list are private and may change without notice. The examples in the library reference need
`from pramana import *`; the example of `parametrize` also needs pytest.

The following types of arguments appear in the signatures of several functions:

- `Cases` is the type of test cases: a path, several paths, cases, dictionaries, or a data frame.
- `Model` and `Judge` are the types of models and judges: a model's name, or a function.
- `StoredRun` is the type of a stored run: the id of the run, its report, or an item of `runs()`.
- `RunOptions` are the other options of a run, as keyword arguments: the fields of [RunRequest](#runrequest), and the
  fields of [Limits](#limits) (write `max_cost_usd=2`, not `limits=`). Instead of the fields `paths` and `cases` of
  `RunRequest`, pass the first argument, `cases`; instead of the field `repeats`, pass the argument `repeat`. The option
  `selection` may be a dictionary: `selection={"tags": ["vip"]}`.
- `ResumeOptions` are the options that a resumed run may change: its limits, `cache`, and the functions of its
  `scorers`.
- `ScorerFunction` is a function that takes a `ScoringContext` as its argument.
- `Prompt` is the type of a prompt: text, or a list of messages.
"""
SECTIONS = {
    "Evaluate": (
        "evaluate",
        "evaluate_async",
        "stream",
        "Stream",
        "resume",
        "resume_async",
        "estimate",
        "plan",
        "load_report",
        "runs",
        "RunList",
        "RunRecord",
        "compare",
        "compare_several",
        "Report",
        "Estimate",
        "DetectionPlan",
        "Comparison",
        "ComparisonTable",
        "JudgeReport",
        "Result",
        "parametrize",
    ),
    "Cases": ("Case", "cases_of", "validate", "ValidationReport", "hash_suite", "hash_result", "hash_output"),
    "Options of a run": ("RunRequest", "Limits", "Selection"),
    "Extend": (
        "scorer",
        "Scorer",
        "Score",
        "ScoringContext",
        "BlockingScoringContext",
        "assertion_type",
        "AssertionType",
        "Verdict",
        "exporter",
        "Exporter",
        "Provider",
        "Request",
        "Target",
        "Account",
    ),
}
"""What most people come for first; the other names follow in alphabetical order."""


def library_page() -> str:
    """Return the public names of the package: signatures, fields, methods and docstrings."""
    import pramana as package

    rest = [name for name in package.__all__ if not any(name in names for names in SECTIONS.values())]
    errors = [name for name in rest if _is_error(getattr(package, name))]
    sections = {**SECTIONS, "Everything else": [name for name in rest if name not in errors], "Errors": errors}
    aliases = {getattr(package, name).__name__: name for name in package.__all__} | {"PublicCase": "Case"}
    parts = [LIBRARY_HEAD]
    for title, names in sections.items():
        parts += [f"## {title}", ""]
        for name in names:
            parts += _entry(name, getattr(package, name))
        if title == "Evaluate":
            parts += _attribute_tables()
    text = re.sub(r"\b\w+\b", lambda found: aliases.get(found.group(), found.group()), "\n".join(parts))
    return text.rstrip() + "\n"


ATTRIBUTES = {
    "pramana.library.report:ModelReport": "the values of the dictionary `report.by_model` of a report",
    "pramana.analyse.summary:Summary": "the attribute `report.summary` of a report",
    "pramana.analyse.summary:Rate": (
        "the attribute `report.summary.overall` of a report, and of the values of the dictionaries in "
        "`report.summary.by`"
    ),
    "pramana.analyse.intervals:Interval": "the attribute `interval` of a `Rate`",
    "pramana.analyse.scores:ScoreSummary": "the items of the list `report.summary.scores` of a report",
    "pramana.app.views:CaseView": "the attribute `case` of a result",
    "pramana.app.views:ReplyView": "the attribute `reply` of a result, which itself has the tokens, costs and times",
    "pramana.app.views:CheckView": "the items of the list `checks` of a result",
    "pramana.app.comparisons:FlipView": "the items of the lists `lost` and `gained` of a comparison",
}
"""Types that users meet as attributes of what they get, and where."""
WITH_MEMBERS = ("Rate",)
"""Those of them whose properties users need besides the fields."""


def _attribute_tables() -> Iterator[str]:
    """Yield the fields of each type that users meet and never make."""
    yield "## Attributes of reports, results and comparisons\n"
    yield (
        "Reports, results and comparisons have attributes of the following types; you do not create objects of these "
        "types, so `pramana` does not export the types.\n"
    )
    for place, where in ATTRIBUTES.items():
        module, _, name = place.partition(":")
        found = getattr(import_module(module), name)
        yield f"### `{name}`\n\n`{name}` is the type of {where}.\n"
        yield "| field | type | |\n| --- | --- | --- |"
        yield from (f"| `{each.name}` | `{_cell(each.type)}` | {_cell(each.text)} |" for each in _fields(found))
        yield ""
        if name in WITH_MEMBERS:
            yield from (line for each in _source_of(found).body for line in _member(each, found))
            yield ""


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
    shown += [f"*{_parameter(stated.vararg, None)}"] if stated.vararg else ["*"] if stated.kwonlyargs else []
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


LLMS_HEAD = """\
# Pramana

> Tests language models, voice agents and your own functions. It runs test cases, checks every reply, stores every
> result, and answers three questions: how good is a model, which of two is better, and has it changed?

Install it from a checkout (`pip install .`) or from its wheel (`pip install pramana-VERSION-py3-none-any.whl`), not
by the bare name: the package of that name in the public index is another one. No configuration is needed:
`fake:echo` and `fake:fixed=TEXT` are models that cost nothing, and `local` is an embedded one. API keys are read from
the environment (`OPENAI_API_KEY`, …). Every command takes `--help`, and `--json` where it prints. Exit codes:
0 success, 1 the result is bad, 2 invalid options or input, 3 not finished, 4 inconclusive. Coding agents can use
`pramana mcp` instead of the commands below.
"""
LLMS_SECTIONS = {
    "How to": {
        "howto-api": "Test a model behind an API, and compare two",
        "howto-voice": "Test a voice agent with real calls",
        "howto-ci": "Fail a build below a pass rate or on a regression",
        "howto-community": "Publish a suite and collect results",
        "howto-admin": "Run a server for a team",
    },
    "Evaluate": {
        "running": "Models, judges, repeats, limits, resuming, comparing, exporting: the guide to the command line",
        "tutorial": "from an installed package to a tested agent in CI",
        "same": "Whether two endpoints are the same model: an answer today, from calls in pairs",
        "judges": "How far a judge agrees with people: labels, corrected pass rates",
        "python": "pramana.evaluate, compare and resume in scripts and notebooks; functions as models",
        "pytest": "The pytest fixture and one test per case",
        "extending": "Scorers, assertion types, export formats and providers of your own",
        "mcp": "The tools of pramana mcp for coding agents, roles and cost limits",
    },
    "Cases": {
        "suites": "The JSONL format of test cases, with every field and rule",
        "assertions": "What must hold of a reply: contains, exact_match, regex, json_schema, judges, similarity",
        "scenarios": "The YAML format of voice scenarios",
    },
    "Voice agents": {
        "voice": "Calling voice agents with real sound, and what is measured",
        "agents": "Describing an agent that talks over a WebSocket, without code",
        "plan": "How many cases, repeats, days and calls show a change, before anything is spent",
        "drift": "watch a model over days: start, read an alarm, what is proven about false alarms",
    },
    "Server": {
        "server": "A server for a person or a team: tokens, roles, runs in the background",
        "api": "The HTTP API",
        "workbench": "The pages in the browser",
        "community": "Submitting results to a server and charting them",
    },
    "Reference": {
        "cli": "Every command and option",
        "library": "Every public Python name, with its types",
        "configuration": "Environment variables, prices, own providers",
        "glossary": "Every term in one sentence",
        "statistics": "Intervals, p-values, exit codes and judges' errors, explained without formulas",
    },
    "Optional": {
        "claims": "Every promise, with the test that proves it",
        "proofs": "Measurements that take long",
    },
}
"""Each page with what it is for; the convention calls what may be left out Optional."""
LLMS_JOBS = """\
## The ten commonest jobs

In these examples `support.jsonl` is a suite, and this is `bot.py`:

```python
def reply(prompt):
    return "30 days, and the label is free." if "return" in prompt else "Yes."
```

1. Check a suite before running it: every error has file, line and column.
2. Test a model: a name such as `openai:gpt-5`, here one that costs nothing.
3. Test a function of your own, from prompt to reply.
4. See the prompt, the reply and every check of one case; `pramana show latest` lists what failed.

```console
$ pramana validate support.jsonl
…
valid: 1 file, 3 test cases: 0 errors, 3 warnings
$ pramana run support.jsonl --model fake:fixed=Yes. --quiet
…
3 results, no errors.
$ pramana run support.jsonl --model python:bot:reply --quiet
…
3 results, no errors.
$ pramana show latest --id return-period
return-period · python:bot:reply · text · passed
            user     How many days do I have to return a jacket?
            answer   30 days, and the label is free. (after …)
  passed contains: found "30 days" at character 1
```

5. Compare two runs, case by case: `pramana compare RUN latest`; `pramana runs` lists their ids.
6. Several models, repeats and a judge: `pramana run support.jsonl --model A --model B --repeat 3 --judge MODEL`.
7. Limit cost and time: `--max-cost 5` (US dollars), `--deadline 600` (seconds), `--concurrency 8`.
8. Resume a run that was interrupted: `pramana run --resume latest`.
9. Export results: `pramana export latest --format csv`, or json, junit, markdown, html.
10. Fail a build below a bar: `pramana run support.jsonl --model MODEL --fail-under 0.9`; in pytest `assert_pass_rate`.

The same in Python:

```python
>>> import pramana
>>> pramana.validate("support.jsonl").ok
True
>>> before = pramana.evaluate("support.jsonl", model="fake:fixed=Yes.")
>>> def bot(prompt):
...     return "30 days, and the label is free." if "return" in prompt else "Yes."
>>> after = pramana.evaluate("support.jsonl", model=bot, repeat=2)
>>> [(result.case_id, result.reason) for result in before.failures][0]
('return-period', 'does not contain "30 days"')
>>> len(pramana.compare(before, after).gained)
2
>>> report = pramana.evaluate("support.jsonl", models=[bot, "fake:echo"], deadline_s=600)
>>> report.by_model["fake:echo"].passed
0
>>> report = pramana.resume(after)
>>> after.to_pandas().shape[0], after.save("report.html").name
(6, 'report.html')
>>> after.assert_pass_rate(0.9)

```

With models that cost money, add `max_cost_usd=5`. Cases can be dictionaries instead of a file:
`pramana.evaluate([{"input": "Capital of France?", "ideal": "Paris"}], model=bot)`.
"""


def llms_page() -> str:
    """Return the documentation as language models are told of it: llmstxt.org."""
    listed = re.findall(r"^(\w[\w-]*)$", (HERE / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    told = [name for section in LLMS_SECTIONS.values() for name in section]
    assert sorted(told) == sorted(listed), f"other pages than in index.md: {sorted({*told} ^ {*listed})}"  # noqa: S101
    parts = [LLMS_HEAD, LLMS_JOBS]
    for title, pages in LLMS_SECTIONS.items():
        lines = [f"- [{_title_of(name)}]({name}.md): {what}" for name, what in pages.items()]
        parts.append("\n".join([f"## {title}", "", *lines, ""]))
    return "\n".join(parts)


def _title_of(name: str) -> str:
    if (HERE / f"{name}.md").exists():
        return (HERE / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return PAGES[f"{name}.md"]().partition("\n")[0].removeprefix("# ")


PAGES = {"cli.md": cli_page, "library.md": library_page, "claims.md": claims_page, "llms.txt": llms_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
