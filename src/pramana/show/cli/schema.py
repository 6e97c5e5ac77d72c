"""`pramana schema`: the file formats, for editors and for programs that write the files."""

import click

from pramana.report import terminal


@click.command()
@click.argument(
    "format_",
    metavar="suite|scenario|agent|results",
    type=click.Choice(["suite", "scenario", "agent", "results"]),
)
def schema(format_: str) -> None:
    """Print JSON Schema (2020-12) of a file format.

    Of one line of a suite, a scenario document, the description of a voice agent, or results.json.

    For scenarios, name the file under "yaml.schemas" in your editor. Editors do not read JSONL by a schema yet: there,
    `pramana validate` is the way, and the schema is for programs that write suites.
    """
    if format_ == "results":
        from pramana.report.exports import results_schema

        terminal.print_json(results_schema())
        return
    from pramana.load.schema import agent_schema, scenario_schema, suite_schema

    made = {"suite": suite_schema, "scenario": scenario_schema, "agent": agent_schema}
    terminal.print_json(made[format_]())
