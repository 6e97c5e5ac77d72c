"""`pramana suite`: what suites there are, whether they are what they say, and how to publish one."""

from pathlib import Path

import click

from pramana.hash import hash_suite
from pramana.load import manifest
from pramana.load.problems import MAX_ERRORS
from pramana.show import terminal

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_files = click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group()
def suite() -> None:
    """List, hash, verify and publish suites."""


@suite.command("list")
@_json_option
def list_(*, as_json: bool) -> None:
    """Show every suite version: built in, and published into the data folder."""
    versions = list(manifest.versions())
    if as_json:
        terminal.print_json([_as_data(version) for version in versions])
        return
    for number, version in enumerate(versions):
        click.echo(("\n" if number else "") + _described(version))


@suite.command("hash")
@_files
@_json_option
def hash_(files: tuple[Path, ...], *, as_json: bool) -> None:
    """Print the hash of suite files: the same for the same cases, in whatever order and spacing."""
    hashes = {str(path): hash_suite(path) for path in files}
    if as_json:
        terminal.print_json(hashes)
        return
    for path, digest in hashes.items():
        click.echo(f"{digest}  {path}")


@suite.command()
@click.argument("versions", nargs=-1)
@_json_option
def verify(versions: tuple[str, ...], *, as_json: bool) -> int:
    """Compare suites with their pins: VERSIONS by name or by folder, all without any.

    Exit code: 0 when every tier is what its manifest says, 2 when one is not.
    """
    chosen = [_named(each) for each in versions] or list(manifest.versions())
    results = [(version, verified) for version in chosen for verified in manifest.verify(version, MAX_ERRORS)]
    good = not any(verified.problems for _, verified in results)
    if as_json:
        tiers = [
            {
                "version": version.manifest.version,
                "tier": verified.tier,
                "file": str(verified.path),
                "pinned": verified.pinned,
                "found": verified.found,
                "problems": [terminal.as_data(each) for each in verified.problems],
            }
            for version, verified in results
        ]
        terminal.print_json({"verified": good, "tiers": tiers})
        return 0 if good else 2
    for version, verified in results:
        mark = click.style("differs ", fg="red") if verified.problems else click.style("verified", fg="green")
        click.echo(f"{mark} {version.manifest.version} {verified.tier:15} {(verified.found or verified.pinned)[:23]}…")
        for problem in verified.problems:
            terminal.print_problem(problem)
    return 0 if good else 2


@suite.command()
@_files
@click.option("--version", required=True, help="The new version's name, such as v1.1; it must not exist.")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of versions [default: data folder]",
)
@_json_option
def publish(files: tuple[Path, ...], *, version: str, into: Path | None, as_json: bool) -> None:
    """Write FILES as a new, immutable suite version: each a tier named by its stem, pinned by its hash."""
    published = manifest.publish(files, version, into)
    if as_json:
        terminal.print_json(_as_data(published))
        return
    click.echo(f"Published {published.folder}\n\n{_described(published)}")


def _named(name: str) -> manifest.Version:
    folder = Path(name)
    return manifest.open_version(folder) if folder.is_dir() else manifest.find_version(name)


def _as_data(version: manifest.Version) -> dict[str, object]:
    data = version.manifest.model_dump(mode="json")
    return {**data, "folder": str(version.folder), "built_in": version.built_in}


def _described(version: manifest.Version) -> str:
    stated = version.manifest
    width = max(4, *(len(name) for name in stated.tiers))
    origin = "built in" if version.built_in else str(version.folder)
    lines = [f"{click.style(stated.version, bold=True)}  {origin}"]
    lines += [f"  {'tier':{width}}  tests  est. cost  est. tokens  use case"]
    for name, tier in stated.tiers.items():
        cost = "unknown" if tier.estimated_cost_usd is None else f"${tier.estimated_cost_usd:.2f}"
        use = tier.use_case or ""
        lines += [f"  {name:{width}}  {tier.test_count:5,}  {cost:>9}  {tier.estimated_tokens:11,}  {use}".rstrip()]
    lines += ["", "  pinned hashes"]
    for name, tier in stated.tiers.items():
        lines += [f"    {name}", f"      {tier.hash}"]
    for title, names in (("categories", stated.categories), ("assertion types", stated.assertion_types)):
        lines += ["", *click.wrap_text(", ".join(names), 78, f"  {title}: ", "    ").splitlines()]
    return "\n".join(lines)
