"""`pramana compare`: which of two is better, with evidence, or not enough of it.

Either side is a stored run or a `results.json`. Beside the verdicts stand the times and the misheard words of both, as
far as both have them, and in what the two were asked differently.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pramana import settings
from pramana.errors import InvalidInput
from pramana.show import figures, terminal
from pramana.show.comparing import Answer, Source, as_data, compared, of_file, of_run

if TYPE_CHECKING:
    from pramana.analyse.changes import Change, Limit, Taken
    from pramana.store.runs import Store

SHOWN = 20
_WORST_FIRST = (1, 4, 0)


def _limit(context: click.Context, option: click.Parameter, value: str | None) -> "Limit | None":
    """Return how much slower is too slow, as it was typed."""
    del context
    from pramana.analyse.changes import limit_of

    try:
        return None if value is None else limit_of(value)
    except InvalidInput as error:
        raise click.BadParameter(str(error), param=option) from None


@click.command()
@click.argument("base")
@click.argument("new")
@click.option("--model", default=None, help="Of runs with several models, which one.")
@click.option("--new-model", default=None, help="On the new side, when it is another [default: as --model]")
@click.option("--any-suite", is_flag=True, help="Compare although the suites differ; cases are still paired.")
@click.option("--any-judge", is_flag=True, help="Compare verdicts although different judges gave them.")
@click.option(
    "--max-slower",
    callback=_limit,
    default=None,
    metavar="LIMIT",
    help="Exit 1 when proven slower by more than 200ms, or 20%; 4 when that is not decided.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(
    base: str,
    new: str,
    *,
    model: str | None,
    new_model: str | None,
    any_suite: bool,
    any_judge: bool,
    max_slower: "Limit | None",
    as_json: bool,
) -> int:
    """Compare two runs, or two results.json files, case by case.

    Verdicts that different judges gave, or different versions of a check, are left out; where a model judges itself,
    two models are two judges. Exit code: 1 a regression, 0 none, 4 not enough evidence. How long both took is told
    beside it; with --max-slower it counts too, and the worse of the two decides (1, then 4, then 0).
    """
    from pramana.analyse.changes import GATED, changes, slower

    with ExitStack() as stack:
        before, after = _asked(base, model, stack), _asked(new, new_model or model, stack)
        key = _keys(before.source, after.source)
        sides = before.noting(key), after.noting(key)
        found, names = compared(*sides, any_suite=any_suite, any_judge=any_judge)
    changed = changes(before.taken(), after.taken())
    decision = slower(changed, max_slower) if max_slower else None
    code = min((found.exit_code, decision.code if decision else 0), key=_WORST_FIRST.index)
    apart = _asked_apart(before, after)
    if as_json:
        beside = {
            "measured": [each.as_data() for each in changed],
            "changed": [sentence for each in changed if (sentence := _proven(each))],
            "asked_differently": [{"what": what, "base": old, "new": now} for what, old, now in apart],
            "exit_code": code,
        }
        if max_slower and decision:
            beside["slower"] = {"limit": max_slower.text, "exit_code": decision.code, "sentence": decision.sentence}
        terminal.print_json({**as_data(found, names), **beside})
        return code
    click.echo(terminal.wrapped(found.sentence))
    if decision:
        click.echo(terminal.wrapped(decision.sentence))
    for each in changed:
        if (sentence := _proven(each)) and not (decision and decision.code and each.what in GATED):  # as it says itself
            click.echo(terminal.wrapped(sentence))
    for what, old, now in apart:
        click.echo(terminal.wrapped(f"Asked differently: {what} {old} before, {now} now; that may be the difference."))
    click.echo(terminal.wrapped(found.detail))
    for each in changed:
        click.echo(terminal.wrapped(_measured(each)))
    if found.excluded:
        count = len(found.excluded)
        left = "1 case has" if count == 1 else f"{count:,} cases have"
        click.echo(terminal.wrapped(f"{left} no verdict on one side or both: all this is about the others alone."))
    for title, pairs in (("now fail", found.lost), ("now pass", found.gained)):
        if pairs:
            click.echo(f"\n{len(pairs):,} {title}:")
            for pair in pairs[:SHOWN]:
                click.echo(f"  {terminal.fitted(names.get(pair.case, pair.case), 78)}")
            if len(pairs) > SHOWN:
                click.echo(f"  … and {len(pairs) - SHOWN:,} more")
    if found.apart and not any_judge:
        click.echo("\nJudge both by one: pramana rescore RUN --judge MODEL. Or compare as they are: --any-judge")
    return code


# ── What was measured ──


@dataclass(slots=True)
class _Asked:
    """One side: where its answers come from, how they were asked, and what was measured of those that were read."""

    source: Source
    timed: "Callable[[], Iterator[tuple[Answer, float | None, float | None]]]"
    """Each answer with its time in all and to its first token, where it was written and timed."""
    voice: str | None = None
    """Who spoke for the caller; None where nothing was spoken, or nobody knows."""
    stt: str | None = None
    """Who heard what was recorded; None likewise."""
    _repeats: "dict[str, list[tuple[int, Taken]]]" = field(default_factory=dict)

    def noting(self, key: Callable[[Answer], str]) -> Source:
        """Return the source; while its answers are read, what was measured of them is noted under their keys."""
        from pramana.analyse.changes import Taken

        def answers() -> Iterator[Answer]:
            for answer, total_s, first_token_s in self.timed():
                taken = Taken()
                if answer.variant == "text":
                    taken.typed(total_s, first_token_s)
                else:
                    taken.called(answer.checks)
                self._repeats.setdefault(key(answer), []).append((answer.repeat, taken))
                yield answer

        return dataclasses.replace(self.source, answers=answers)

    def taken(self) -> "Mapping[str, Taken]":
        from pramana.analyse.changes import together

        return {
            case: together(taken for _, taken in sorted(repeats, key=lambda each: each[0]))
            for case, repeats in self._repeats.items()
        }


def _keys(base: Source, new: Source) -> Callable[[Answer], str]:
    """Return what cases are paired by, as the verdicts are: digests or ids, and ways where a side has several."""
    by_id = not (base.by_digest and new.by_digest)
    by_variant = max(len(base.variants), len(new.variants)) > 1

    def key(answer: Answer) -> str:
        case = answer.case_id if by_id or answer.digest is None else answer.digest
        return f"{case} ({answer.variant})" if by_variant and answer.variant != "text" else case

    return key


def _asked(reference: str, model: str | None, stack: ExitStack) -> _Asked:
    if reference.endswith(".json"):
        return _of_file(Path(reference), of_file(Path(reference), model))
    from pramana.store import open_store

    store = stack.enter_context(closing(open_store(settings.database_url())))
    return _of_run(store, reference, of_run(store, reference, model))


def _of_file(path: Path, source: Source) -> _Asked:
    from pramana.load.results import read_results

    name = source.name.removeprefix(f"{path} ")

    def timed() -> Iterator[tuple[Answer, float | None, float | None]]:
        block = next(each for each in read_results(path) if (each.model or each.model_id) == name)
        for each in block.results:
            took = each.latency_ms / 1000 if each.latency_ms else None  # 0 is written where there was no reply
            yield (
                Answer(each.case_digest, each.test_id, each.repeat, each.outcome, each.checks, each.variant),
                took,
                None,
            )

    return _Asked(source, timed)


def _of_run(store: "Store", reference: str, source: Source) -> _Asked:
    run = store.run(reference)
    typed = source.name.removeprefix(f"{run.id} ")

    def timed() -> Iterator[tuple[Answer, float | None, float | None]]:
        for _, result in store.results(run.id, raw=False):
            key, reply = result.key, result.reply
            if key.model == typed:
                answer = Answer(key.case, result.case_id, key.repeat, result.outcome, result.checks, key.variant)
                if reply is None or reply.cached or reply.call is not None:  # nobody was asked, or it was no writing
                    yield answer, None, None
                else:
                    yield answer, reply.total_s, reply.first_token_s

    spoken = run.plan.variants != ("text",)
    return _Asked(source, timed, run.plan.voice if spoken else None, figures.ear(run.plan) if spoken else None)


def _asked_apart(base: _Asked, new: _Asked) -> list[tuple[str, str, str]]:
    """Return in what the two were asked differently, as far as both say: what it is, and how it was before and now."""
    ways = [", ".join(sorted(each.source.variants)) for each in (base, new)]
    found = [("variants", ways[0], ways[1])]
    found += [("voice", base.voice, new.voice)] if base.voice and new.voice else []
    found += [("speech recognition", base.stt, new.stt)] if base.stt and new.stt else []
    return [each for each in found if each[1] != each[2]]


# ── In words ──


def _proven(change: "Change") -> str:
    """Return a sentence about a change that is proven and can be noticed; nothing about any other."""
    from pramana.analyse.changes import NOTICED_S, TIMES

    low, high = change.difference
    timed = change.what in TIMES
    if not change.proven or (timed and max(abs(low), abs(high)) < NOTICED_S):
        return ""
    verdict = ("Slower" if low > 0 else "Faster") if timed else ("More words wrong" if low > 0 else "Fewer words wrong")
    shown = _shown_time if timed else _shown_rate
    return f"{verdict}: {change.what} went from {shown(change.base)} to {shown(change.new)}, and that is proven."


def _measured(change: "Change") -> str:
    """Return a change in numbers, with its interval or why it has none."""
    from pramana.analyse.changes import FEWEST, TIMES

    timed = change.what in TIMES
    shown, by = (_shown_time, _by_time) if timed else (_shown_rate, _by_points)
    named = f"{change.what[0].upper()}{change.what[1:]}"
    words = ["", ""] if timed else [f" of {each:,}" for each in change.words]
    numbers = f"{named} {shown(change.base)}{words[0]} before, {shown(change.new)}{words[1]} now"
    cases = terminal.counted(change.cases, "case")
    difference = f"{'median difference ' if timed else ''}{_between(change.difference, by)}"
    if change.interval is None:
        sure = f"{cases}, and fewer than {FEWEST} have no interval"
    else:
        sure = f"95 % interval {by(change.interval.low)} to {by(change.interval.high)}, {cases}; {change.method}"
    sure += f", p = {change.p_value:.2g}" if change.p_value is not None and change.interval else ""
    lost = f"; {change.only_base:,} more had {'a time' if timed else 'words'} before only" if change.only_base else ""
    return f"{numbers}: {difference} ({sure}{lost})."


def _between(given: tuple[float, float], by: Callable[[float], str]) -> str:
    low, high = given
    if low == high:
        return by(low)
    if math.isinf(low):
        return "unknown" if math.isinf(high) else f"≤ {by(high)}"
    return f"≥ {by(low)}" if math.isinf(high) else f"{by(low)} to {by(high)}"


def _shown_time(given: tuple[float, float]) -> str:
    low, high = given
    return f"{'' if low == high else '≥ '}{figures.duration(low)}"


def _shown_rate(given: tuple[float, float]) -> str:
    return figures.rate(given[0])


def _by_time(seconds: float) -> str:
    """Return a difference of times, with its sign.

    >>> _by_time(1.7), _by_time(-0.0301), _by_time(0.0), _by_time(float("inf"))
    ('+1.70 s', '-30 ms', '0 ms', 'no bound')
    """
    if math.isinf(seconds):
        return "no bound"
    if abs(seconds) < 0.0005:
        return "0 ms"
    return f"{'-' if seconds < 0 else '+'}{figures.duration(max(abs(seconds), 0.001))}"


def _by_points(share: float) -> str:
    rounded = round(share * 100, 1)
    return f"{rounded:+.1f} points" if rounded else "0.0 points"
