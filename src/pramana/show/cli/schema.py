"""`pramana schema`: the file formats, for editors and for programs that write the files."""

import click

from pramana.show import terminal


@click.command()
@click.argument("format_", metavar="suite|scenario", type=click.Choice(["suite", "scenario"]))
def schema(format_: str) -> None:
    """Print JSON Schema (2020-12): of one line of a suite, or of a scenario document.

    For scenarios, name the file under "yaml.schemas" in your editor. Editors do not read JSONL by a schema yet: there,
    `pramana validate` is the way, and the schema is for programs that write suites.
    """
    from pramana.load.schema import scenario_schema, suite_schema

    terminal.print_json(suite_schema() if format_ == "suite" else scenario_schema())
