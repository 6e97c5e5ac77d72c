"""`pramana run`: ask models, check every reply, lose nothing."""

import signal
from pathlib import Path
from typing import Any, Self

import click

from pramana import settings
from pramana.show import terminal

_many: dict[str, Any] = {"multiple": True, "metavar": "NAME"}


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--tier", default=None, metavar="TIER", help="A tier of a suite [default: cheap, when no PATH is given]")
@click.option("--suite", default="v1.0", show_default=True, help="The suite version the tier is of.")
@click.option("--model", "models", multiple=True, help="Whom to ask; repeat for several [default: local]")
@click.option("--judge", default=None, metavar="MODEL", help="Who judges [default: each model itself]")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 1000), help="Ask each case so often.")
@click.option("--category", "categories", **_many, help="Only these categories.")
@click.option("--type", "types", **_many, help="Only these types of scenario.")
@click.option("--tag", "tags", **_many, help="Only with one of these tags; `domain:` stands for its branch.")
@click.option("--difficulty", "difficulties", **_many, help="Only these.")
@click.option("--language", "languages", **_many, help="Only scenarios in these languages.")
@click.option("--id", "ids", **_many, help="Only these cases.")
@click.option("--limit", type=click.IntRange(1), default=None, metavar="N", help="At most so many cases.")
@click.option(
    "--system",
    "system_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with a system prompt.",
)
@click.option("--temperature", default=0.0, show_default=True, type=float)
@click.option("--seed", default=42, show_default=True, type=int)
@click.option("--max-tokens", type=click.IntRange(1), default=None, metavar="N", help="Of one reply.")
@click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", help="Any other parameter; VALUE as JSON or text."
)
@click.option(
    "--concurrency",
    default=32,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Requests under way at one provider, at most.",
)
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0, min_open=True),
    default=None,
    metavar="USD",
    help="Stop when the run has cost so much.",
)
@click.option(
    "--max-total-tokens", type=click.IntRange(1), default=None, metavar="N", help="Stop after so many tokens."
)
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    default=None,
    metavar="SECONDS",
    help="Stop after so long.",
)
@click.option(
    "--timeout",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Of one request.",
)
@click.option("--cache", is_flag=True, help="Take replies that are known already; never for drift.")
@click.option(
    "--fail-under", type=click.FloatRange(0, 1), default=None, metavar="SHARE", help="Exit 1 when fewer pass."
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Also write results.json here.")
@click.option("--resume", default=None, metavar="RUN", help="Go on with a run that did not end.")
@click.option("--quiet", is_flag=True, help="No progress, only the summary.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def run(paths: tuple[Path, ...], **given: Any) -> int:
    """Ask models the cases of PATHS (suites and scenarios), or of a built-in tier.

    Without any argument: the cheap tier on the embedded model. Exit code: 0 if all cases ended and none errored, 3
    otherwise; with --fail-under 0, 1 or, when what has no verdict could decide it, 4. Ctrl-C finishes what is under
    way and says how to go on; 130.
    """
    from pramana.bench import Limits, evaluate, run_sync
    from pramana.run.cache import FileCache
    from pramana.run.engine import Stop
    from pramana.store import open_store

    store = open_store(settings.database_url())
    try:
        if given["resume"]:
            begun = store.run(given["resume"])
        else:
            begun = evaluate(
                store,
                _sources(paths, given),
                given["models"] or ("local",),
                judge=given["judge"],
                repeats=given["repeat"],
                parameters=_parameters(given),
                system_prompt=given["system_file"].read_text(encoding="utf-8") if given["system_file"] else None,
            )
        for target in begun.plan.targets:
            if target.provider == "local":
                from pramana.embedded.language import WEIGHTS
                from pramana.embedded.weights import find
                from pramana.show.cli.models import pull_weights

                if find(WEIGHTS) is None:
                    pull_weights(WEIGHTS)
        cache = FileCache(settings.home() / "cache") if given["cache"] else None
        limits = Limits(
            given["concurrency"],
            given["max_cost"],
            given["max_total_tokens"],
            given["deadline"],
            cache,
            given["timeout"],
        )
        quiet = given["quiet"] or given["as_json"]
        if not quiet:
            click.echo(f"Run {begun.id}: {begun.plan.suite}, {begun.expected - begun.stored:,} to ask", err=True)
        stop = Stop()
        with _live(begun, quiet=quiet) as live, _interruptible(stop):
            ended = run_sync(store, begun, limits, live, stop)
        return _report(store, ended, stop, given)
    finally:
        store.close()


def _sources(paths: tuple[Path, ...], given: dict[str, Any]) -> Any:
    from pramana.bench import Sources
    from pramana.load.selection import Selection

    if paths and given["tier"]:
        raise click.UsageError("name files or a tier, not both")
    selection = Selection(
        categories=given["categories"] + given["types"],
        tags=given["tags"],
        difficulties=given["difficulties"],
        languages=given["languages"],
        ids=given["ids"],
        limit=given["limit"],
    )
    if paths:
        return Sources.files(paths, selection)
    return Sources.tier(given["suite"], given["tier"] or "cheap", selection)


def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    import json

    parameters: dict[str, Any] = {"temperature": given["temperature"], "seed": given["seed"]}
    if given["max_tokens"]:
        parameters["max_tokens"] = given["max_tokens"]
    for text in given["params"]:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"expected NAME=VALUE, found {text!r}", param_hint="--param")
        try:
            parameters[name] = json.loads(value)
        except ValueError:
            parameters[name] = value
    return parameters


class _live:  # noqa: N801 - used as a context manager, and callable as a watch
    def __init__(self, begun: Any, *, quiet: bool) -> None:
        from pramana.show.progress import Live

        self.live = Live(begun.expected, begun.stored, quiet=quiet)

    def __enter__(self) -> Self:
        self.live.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self.live.__exit__(*details)

    def __call__(self, progress: Any) -> None:
        budget = progress.budget
        self.live.update(list(progress.results), budget.cost_usd, unknown_cost=budget.unknown_cost)


class _interruptible:  # noqa: N801
    """The first Ctrl-C finishes what is under way; the second ends at once."""

    def __init__(self, stop: Any) -> None:
        self.stop = stop

    def __enter__(self) -> None:
        self.before = signal.signal(signal.SIGINT, self._first)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self.before)

    def _first(self, *_: object) -> None:
        from pramana.bench import INTERRUPTED

        click.echo("Finishing what is under way; press Ctrl-C again to stop at once.", err=True)
        self.stop(INTERRUPTED)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _report(store: Any, ended: Any, stop: Any, given: dict[str, Any]) -> int:
    from pramana.analyse.gate import exit_code
    from pramana.show.summary import print_summary, summary_of

    summary = summary_of(store, ended)
    complete = ended.stored >= ended.expected
    decision = exit_code(summary, given["fail_under"], ended=complete, missing=ended.expected - ended.stored)
    if given["output"]:
        from pramana.show.exports import export

        with given["output"].open("w", encoding="utf-8") as out:
            export("json", ended, store.pairs(ended.id), out)
    if given["as_json"]:
        terminal.print_json({"run": ended.id, "status": ended.status, "reason": ended.reason, **summary.as_data()})
    else:
        print_summary(ended, summary, decision.sentence)
    if stop.error is not None and not given["as_json"]:
        click.echo(f"pramana: {stop.error}", err=True)
    if not complete:
        click.echo(f"Go on with: pramana run --resume {ended.id}", err=True)
    if ended.status == "interrupted":
        return 130
    return decision.code
