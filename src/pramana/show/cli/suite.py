"""`pramana suite`: list suites, check them against their manifests, and publish one."""

from pathlib import Path

import click

from pramana.errors import Problem, escape_control_characters
from pramana.hash import hash_suite
from pramana.load import manifest
from pramana.load.problems import MAX_ERRORS
from pramana.report import terminal
from pramana.show.cli import HelpfulGroup

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON")
_files_argument = click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)


@click.group(cls=HelpfulGroup)
def suite() -> None:
    """List, hash, verify and publish suites."""


@suite.command("list", short_help="List all suite versions.")
@_json_option
def list_(*, as_json: bool) -> int:
    """List all suite versions: built-in ones, and those published into the data folder."""
    broken: list[Problem] = []
    versions = list(manifest.iterate_versions(broken))
    if as_json:
        terminal.print_json([_version_to_data(version) for version in versions])
    else:
        for number, version in enumerate(versions):
            click.echo(("\n" if number else "") + _describe_version(version))
    for problem in broken:
        terminal.print_problem(problem, to_stderr=True)
    return 2 if broken else 0


@suite.command("hash", short_help="Print the hash of suite files.")
@_files_argument
@_json_option
def hash_(files: tuple[Path, ...], *, as_json: bool) -> None:
    """Print the hash of suite files. The hash depends only on the cases, not on their order or spacing."""
    hashes = {str(path): hash_suite(path) for path in files}
    if as_json:
        terminal.print_json(hashes)
        return
    for path, digest in hashes.items():
        click.echo(f"{digest}  {escape_control_characters(path)}")


@suite.command(short_help="Check suites against their pinned hashes.")
@click.argument("versions", nargs=-1)
@_json_option
def verify(versions: tuple[str, ...], *, as_json: bool) -> int:
    """Check that the files of suites still have the hashes in the manifests written when the suites were published.

    VERSIONS are names or folders [default: all].

    Exit code: 0 if every file has its published hash, 2 if a file does not.
    """
    broken: list[Problem] = []
    chosen = [_find_version(each) for each in versions] or list(manifest.iterate_versions(broken))
    results = [(version, verified) for version in chosen for verified in manifest.verify_version(version, MAX_ERRORS)]
    good = not broken and not any(verified.problems for _, verified in results)
    if as_json:
        tiers = [
            {
                "version": version.manifest.version,
                "tier": verified.tier,
                "file": str(verified.path),
                "pinned": verified.pinned_hash,
                "found": verified.actual_hash,
                "verdict": verified.verdict,
                "problems": [terminal.problem_to_data(each) for each in verified.problems],
            }
            for version, verified in results
        ]
        problems = [terminal.problem_to_data(each) for each in broken]
        terminal.print_json({"verified": good, "tiers": tiers, "problems": problems})
        return 0 if good else 2
    names = [escape_control_characters(f"{version.manifest.version} {verified.tier}") for version, verified in results]
    for name, (_, verified) in zip(names, results, strict=True):
        mark = click.style(f"{verified.verdict:8}", fg="red" if verified.problems else "green")
        click.echo(f"{mark} {name:{max(map(len, names))}}  {(verified.actual_hash or verified.pinned_hash)[:23]}…")
        for problem in verified.problems:
            terminal.print_problem(problem)
    for problem in broken:
        terminal.print_problem(problem)
    return 0 if good else 2


@suite.command(short_help="Publish files as a new, immutable version.")
@_files_argument
@click.option("--version", required=True, metavar="NAME", help="Name of the new version, such as v1.1")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Folder to publish into [default: data folder]",
)
@click.option("--use-case", "use_cases", multiple=True, metavar="TIER=TEXT", help="Purpose of a tier (repeatable)")
@click.option(
    "--cost", "costs", multiple=True, metavar="TIER=USD", help="Your cost estimate for one run of a tier (repeatable)"
)
@_json_option
def publish(
    files: tuple[Path, ...],
    *,
    version: str,
    into: Path | None,
    use_cases: tuple[str, ...],
    costs: tuple[str, ...],
    as_json: bool,
) -> None:
    """Publish FILES as a new, immutable suite version. Each file becomes a tier with the file's name."""
    described = dict(_parse_tier_value(each, "--use-case") for each in use_cases)
    try:
        priced = {
            tier: float(usd.removeprefix("$")) for tier, usd in (_parse_tier_value(each, "--cost") for each in costs)
        }
    except ValueError as error:
        raise click.BadParameter(f"{error}", param_hint="--cost") from None
    published = manifest.publish_version(files, version, into, use_cases=described, costs_usd=priced)
    if as_json:
        terminal.print_json(_version_to_data(published))
        return
    click.echo(f"Published {escape_control_characters(str(published.folder))}\n\n{_describe_version(published)}")


def _parse_tier_value(text: str, option: str) -> tuple[str, str]:
    tier, equals, value = text.partition("=")
    if not equals or not value:
        raise click.BadParameter(f"expected TIER=VALUE, found {text!r}", param_hint=option)
    return tier, value


def _find_version(name: str) -> manifest.SuiteVersion:
    """Return a suite version, by name or folder; a folder without a manifest never hides a version of that name."""
    folder = Path(name)
    if (folder / manifest.MANIFEST_FILE_NAME).is_file() or len(folder.parts) > 1:
        return manifest.open_version(folder)
    return manifest.find_version(name)


def _version_to_data(version: manifest.SuiteVersion) -> dict[str, object]:
    data = version.manifest.model_dump(mode="json")
    return {**data, "folder": str(version.folder), "built_in": version.is_built_in}


def _describe_version(version: manifest.SuiteVersion) -> str:
    stated = version.manifest
    width = max(4, *(len(name) for name in stated.tiers))
    origin = "built in" if version.is_built_in else str(version.folder)
    lines = [
        f"{click.style(escape_control_characters(stated.version), bold=True)}  {escape_control_characters(origin)}"
    ]
    lines += [f"  {'tier':{width}}  tests  author's cost  est. tokens  use case"]
    for name, tier in stated.tiers.items():
        cost = "unknown" if tier.estimated_cost_usd is None else f"${tier.estimated_cost_usd:.2f}"
        use = escape_control_characters(tier.use_case or "")
        lines += [
            f"  {escape_control_characters(name):{width}}  {tier.test_count:5,}  {cost:>13}  "
            f"{tier.estimated_tokens:11,}  {use}".rstrip()
        ]
    lines += ["", "  files and their pinned hashes"]
    for name, tier in stated.tiers.items():
        lines += [
            f"    {escape_control_characters(name)}: {escape_control_characters(tier.file)}",
            f"      {tier.hash}",
        ]
    for title, names in (("categories", stated.categories), ("assertion types", stated.assertion_types)):
        lines += ["", *terminal.wrap_text(", ".join(names), 78, f"  {title}: ", "    ").splitlines()]
    return "\n".join(lines)
