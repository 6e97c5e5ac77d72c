"""`pramana schema`: the file formats, for editors and for programs that write the files."""

import click

from pramana.show import terminal


@click.command()
@click.argument("format_", metavar="suite|scenario|results", type=click.Choice(["suite", "scenario", "results"]))
def schema(format_: str) -> None:
    """Print JSON Schema (2020-12): of one line of a suite, of a scenario document, or of results.json.

    For scenarios, name the file under "yaml.schemas" in your editor. Editors do not read JSONL by a schema yet: there,
    `pramana validate` is the way, and the schema is for programs that write suites.
    """
    if format_ == "results":
        from pramana.show.exports import results_schema

        terminal.print_json(results_schema())
        return
    from pramana.load.schema import scenario_schema, suite_schema

    terminal.print_json(suite_schema() if format_ == "suite" else scenario_schema())
