"""`pramana selftest`: measures how accurately the bench itself measures time."""

import asyncio
from dataclasses import asdict

import click

from pramana.report import terminal
from pramana.show.cli import HelpfulGroup


@click.group(cls=HelpfulGroup)
def selftest() -> None:
    """Measure the accuracy of Pramana's own measurements on this machine."""


@selftest.command()
@click.option("--wire", "wires", multiple=True, metavar="NAME", help="Wire format to test (repeatable) [default: all]")
@click.option(
    "--turns", default=200, show_default=True, type=click.IntRange(8, 10_000), metavar="N", help="Turns per wire format"
)
@click.option(
    "--calls", default=8, show_default=True, type=click.IntRange(1, 64), metavar="N", help="Number of concurrent calls"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def voice(wires: tuple[str, ...], *, turns: int, calls: int, as_json: bool) -> int:
    """Measure the error in Pramana's response times, with local agents that log when they spoke.

    Exit code: 0 if, for every wire format, 95 % of the errors are at most 20 ms above the lateness of a 20 ms timer in
    the same process; 1 otherwise.
    """
    from pramana.selftest import ALLOWED_ERROR_S, measure_clock, select_wires

    clocks = []
    for wire in select_wires(wires):
        over = 0

        def done(turns_of_call: int, wire: str = wire) -> None:
            nonlocal over
            over += turns_of_call
            click.echo(f"{wire}: {over} of {turns} turns", err=True)

        click.echo(f"{wire}: {turns} turns, {calls} calls at once", err=True)
        clock = asyncio.run(measure_clock(wire, turns, calls, done))
        clocks.append(clock)
        if not as_json:
            if len(clocks) == 1:
                click.echo(
                    _format_table_line("wire format", "turns", "median", "p95", "worst", "ticker p95", "allowed")
                )
            times = (clock.median, clock.p95, clock.worst, clock.ticker_p95, clock.ticker_p95 + ALLOWED_ERROR_S)
            shown = [f"{1000 * each:.1f} ms" for each in times]
            verdict = "proven" if clock.is_within_limits else "NOT PROVEN"
            click.echo(f"{_format_table_line(clock.wire, f'{clock.turns}/{clock.expected}', *shown)} {verdict}")
            click.echo(f"  {_describe_bound(clock.p95_at_most)}")
    if as_json:
        terminal.print_json([{**asdict(clock), "proven": clock.is_within_limits} for clock in clocks])
    return int(not all(clock.is_within_limits for clock in clocks))


def _describe_bound(p95_at_most: float | None) -> str:
    if p95_at_most is None:
        return "too few turns to bound p95"
    return f"p95 at most {1000 * p95_at_most:.1f} ms at 95 % confidence"


def _format_table_line(wire_format: str, turns: str, *cells: str) -> str:
    widths = (8, 8, 8, 10, 8)
    return f"{wire_format:15} {turns:>7} " + " ".join(
        f"{each:>{width}}" for each, width in zip(cells, widths, strict=True)
    )
