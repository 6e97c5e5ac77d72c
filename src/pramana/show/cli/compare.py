"""`pramana compare`: which of two is better, with evidence, or not enough of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pramana import settings
from pramana.errors import InvalidInput, visible
from pramana.show import terminal

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison."""

    name: str
    suite_hash: str | None
    outcomes: Mapping[str, Sequence[Any]]
    ids: Mapping[str, str]
    """What to call a case."""


@click.command()
@click.argument("base")
@click.argument("new")
@click.option("--model", default=None, help="Of runs with several models, which one.")
@click.option("--new-model", default=None, help="On the new side, when it is another [default: as --model]")
@click.option("--any-suite", is_flag=True, help="Compare although the suites differ; cases are still paired.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(base: str, new: str, *, model: str | None, new_model: str | None, any_suite: bool, as_json: bool) -> int:
    """Compare two runs, or two results.json files, case by case.

    Exit code: 1 a regression, 0 none, 4 not enough evidence.
    """
    from pramana.analyse.comparison import compare as weigh

    by_id = any(_is_file(each) for each in (base, new))  # a file knows no digests
    sides = _side(base, model, by_id=by_id), _side(new, new_model or model, by_id=by_id)
    if not any_suite and sides[0].suite_hash != sides[1].suite_hash:
        raise InvalidInput(
            "the two were not asked the same suite:\n"
            f"  {sides[0].name}: {sides[0].suite_hash or 'a selection'}\n"
            f"  {sides[1].name}: {sides[1].suite_hash or 'a selection'}\n"
            "Compare what both have by --any-suite"
        )
    found = weigh(sides[0].outcomes, sides[1].outcomes, same_cases=not any_suite)
    names = {**sides[1].ids, **sides[0].ids}
    if as_json:
        terminal.print_json(_as_data(found, names))
        return found.exit_code
    click.echo(click.wrap_text(found.sentence, 80))
    click.echo(click.wrap_text(found.detail, 80))
    for title, pairs in (("now fail", found.lost), ("now pass", found.gained)):
        if pairs:
            click.echo(f"\n{len(pairs):,} {title}:")
            for pair in pairs[:SHOWN]:
                click.echo(f"  {visible(names.get(pair.case, pair.case))}")
            if len(pairs) > SHOWN:
                click.echo(f"  … and {len(pairs) - SHOWN:,} more")
    return found.exit_code


def _as_data(found: Any, names: Mapping[str, str]) -> dict[str, Any]:
    def flips(pairs: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {
                "case": names.get(pair.case, pair.case),
                "base_passed": pair.base_passed,
                "new_passed": pair.new_passed,
                "repeats": pair.repeats,
            }
            for pair in pairs
        ]

    return {
        "verdict": found.verdict,
        "sentence": found.sentence,
        "detail": found.detail,
        "pairs": found.pairs,
        "base_rate": found.base_rate,
        "new_rate": found.new_rate,
        "difference": found.difference,
        "interval": [found.interval.low, found.interval.high],
        "p_value": found.p_value,
        "test": found.test,
        "lost": flips(found.lost),
        "gained": flips(found.gained),
        "excluded": [names.get(each.case, each.case) for each in found.excluded],
        "only_base": [names.get(each, each) for each in found.only_base],
        "only_new": [names.get(each, each) for each in found.only_new],
    }


def _is_file(reference: str) -> bool:
    return reference.endswith(".json")


def _side(reference: str, model: str | None, *, by_id: bool) -> Side:
    return _of_file(Path(reference), model) if _is_file(reference) else _of_run(reference, model, by_id=by_id)


def _of_file(path: Path, model: str | None) -> Side:
    from pramana.load.results import read_results

    blocks = read_results(path)
    names = [block.model_id for block in blocks]
    chosen = [block for block in blocks if model in (None, block.model_id)]
    if len(chosen) != 1:
        raise InvalidInput(f"{path} holds the models {', '.join(names)}; choose one with --model")
    outcomes = chosen[0].outcomes()
    return Side(f"{path} {chosen[0].model_id}", chosen[0].suite_hash, outcomes, {each: each for each in outcomes})


def _of_run(reference: str, model: str | None, *, by_id: bool) -> Side:
    from pramana.store import open_store

    store = open_store(settings.database_url())
    run = store.run(reference)
    typed = [target.typed for target in run.plan.targets]
    if model is None and len(typed) == 1:
        model = typed[0]
    if model not in typed:
        raise InvalidInput(f"run {run.id} asked {', '.join(typed)}; choose one with --model")
    outcomes: dict[str, list[Any]] = {}
    ids = {}
    for _, result in store.results(run.id):
        if result.key.model == model:
            case = result.case_id if by_id else result.key.case
            outcomes.setdefault(case, []).append(result.outcome)
            ids[case] = result.case_id
    store.close()
    return Side(f"{run.id} {model}", run.plan.suite_hash, outcomes, ids)
