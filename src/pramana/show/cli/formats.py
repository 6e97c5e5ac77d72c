"""`pramana validate` and `schema`: check files, and print the JSON Schemas of their formats."""

from pathlib import Path

import click

from pramana import load
from pramana.load.manifest import BUILT_IN_SUITES_FOLDER
from pramana.report import terminal


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--max-errors",
    metavar="N",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Maximum number of problems to show",
)
@click.option("--lint", is_flag=True, help="Also warn about style: vague IDs, short outcomes, mixed tags")
@click.option("--all", "print_repeated_warnings", is_flag=True, help="Print every warning, including repeated ones")
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
@click.option("--github", is_flag=True, help="Print GitHub annotations")
def validate(
    paths: tuple[Path, ...], *, max_errors: int, lint: bool, print_repeated_warnings: bool, as_json: bool, github: bool
) -> int:
    """Check suites (.jsonl), scenarios and voice agent descriptions (.yaml, .yml).

    Folders are searched recursively. Without PATHS, checks the built-in suites and scenarios. Exit code: 0 if all files
    are valid (warnings are allowed), 2 on any error.
    """
    if as_json and github:
        raise click.UsageError("--json and --github cannot be combined; choose one")
    report = load.validate(
        paths or (BUILT_IN_SUITES_FOLDER, load.BUILT_IN_SCENARIOS_FOLDER), max_errors=max_errors, lint=lint
    )
    problems = report.problems
    if as_json:
        terminal.print_json(
            {
                "valid": report.ok,
                "files": report.files,
                "scenarios": report.scenarios,
                "test_cases": report.test_cases,
                "agents": report.agents,
                "errors": problems.errors,
                "warnings": problems.warnings,
                "hashes": report.hashes,
                "problems": [terminal.problem_to_data(each) for each in problems],
            }
        )
        return 0 if report.ok else 2
    if github:
        for each in problems:
            click.echo(terminal.format_github_annotation(each))
    else:
        terminal.print_problems(list(problems), fold_warnings=not print_repeated_warnings)
    if problems.not_shown_count:
        click.echo(f"… and {problems.not_shown_count:,} more; --max-errors shows more of them")
    counts = [terminal.pluralise(report.files, "file")]
    if report.ok:
        kinds = ((report.scenarios, "scenario"), (report.test_cases, "test case"), (report.agents, "voice agent"))
        counts += [terminal.pluralise(number, noun) for number, noun in kinds if number]
    found = f"{terminal.pluralise(problems.errors, 'error')}, {terminal.pluralise(problems.warnings, 'warning')}"
    verdict = click.style("valid", fg="green") if report.ok else click.style("not valid", fg="red")
    click.echo(f"{verdict}: {', '.join(counts)}: {found}")
    return 0 if report.ok else 2


@click.command()
@click.argument(
    "format_",
    metavar="suite|scenario|agent|results",
    type=click.Choice(["suite", "scenario", "agent", "results"]),
)
def schema(format_: str) -> None:
    """Print the JSON Schema (2020-12) of a file format.

    suite: one line of a suite. scenario: a scenario file. agent: a voice agent description. results: results.json.

    To check scenarios as you type, save the schema to a file and add it to "yaml.schemas" in your editor. Editors do
    not apply a schema to JSONL: check suites with `pramana validate`.
    """
    from pramana.load.schema import make_agent_schema, make_scenario_schema, make_suite_schema
    from pramana.report.exports import make_results_schema

    made = {
        "suite": make_suite_schema,
        "scenario": make_scenario_schema,
        "agent": make_agent_schema,
        "results": make_results_schema,
    }
    terminal.print_json(made[format_]())
