"""Two sides of a comparison, read and paired: stored runs or results.json files in, what is compared out.

Cases are paired by their digests; by their ids only where a file does not carry digests. Two are of the same suite when
their hashes say so, or the digests of all their cases; what neither tells is not the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pramana.errors import InvalidInput, quote
from pramana.model import Check, Outcome
from pramana.show.judges import who

if TYPE_CHECKING:
    from pramana.analyse.comparison import Comparison
    from pramana.analyse.pairing import Judged, Pair
    from pramana.store.runs import Store


class Answer(NamedTuple):
    """One result, as much of it as is compared."""

    digest: str | None
    case_id: str
    repeat: int
    outcome: Outcome
    checks: tuple[Check, ...]
    variant: str = "text"


@dataclass(frozen=True, slots=True)
class Source:
    """One side of a comparison, before it is read."""

    name: str
    suite_hash: str | None
    by_digest: bool
    """Whether every answer says of which case it is."""
    digests: Callable[[], frozenset[str] | None]
    """Of all cases that were to be asked; None when that is not known."""
    answers: Callable[[], Iterable[Answer]]
    repeats: int | None = None
    """How often each case was to be asked; None when that is not known."""
    variants: frozenset[str] = frozenset({"text"})


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison."""

    outcomes: Mapping[str, Sequence[Outcome]]
    judges: "Mapping[str, frozenset[Judged]]"
    names: Mapping[str, str]
    """What to call a case."""


class Compared(NamedTuple):
    """What came of a comparison, and what to call its cases."""

    found: "Comparison"
    names: Mapping[str, str]


def compared(before: Source, after: Source, *, any_suite: bool, any_judge: bool, how: str = "--any-suite") -> Compared:
    """Compare two sides case by case; `how` says what allows two suites."""
    from pramana.analyse.comparison import compare as weigh

    same = _same_suite(before, after)
    if not same and not any_suite:
        said = [
            f"  {each.name}: {each.suite_hash or 'not a whole suite, so it has no hash'}\n" for each in (before, after)
        ]
        raise InvalidInput(
            f"the two are not known to have been asked the same cases:\n{''.join(said)}Compare what both have by {how}"
        )
    by_id = not (before.by_digest and after.by_digest)
    # Where each side was asked in one way only, what was spoken may be compared with what was written.
    by_variant = max(len(before.variants), len(after.variants)) > 1
    sides = tuple(_side(each, by_id=by_id, by_variant=by_variant) for each in (before, after))
    found = weigh(
        sides[0].outcomes,
        sides[1].outcomes,
        same_cases=same,
        new_repeats=after.repeats,
        base_judges=sides[0].judges,
        new_judges=sides[1].judges,
        any_judge=any_judge,
    )
    return Compared(found, {**sides[1].names, **sides[0].names})


def as_data(found: "Comparison", names: Mapping[str, str]) -> dict[str, Any]:
    """Return a comparison as plain data."""

    def flips(pairs: "Sequence[Pair]") -> list[dict[str, Any]]:
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
        "apart": [
            {
                "case": names.get(each.case, each.case),
                "base": sorted(map(str, each.base)),
                "new": sorted(map(str, each.new)),
            }
            for each in found.apart
        ],
        "only_base": [names.get(each, each) for each in found.only_base],
        "only_new": [names.get(each, each) for each in found.only_new],
    }


def _same_suite(base: Source, new: Source) -> bool:
    if base.suite_hash is not None and new.suite_hash is not None:
        return base.suite_hash == new.suite_hash
    if (before := base.digests()) is None:
        return False
    return before == new.digests()


def _side(source: Source, *, by_id: bool, by_variant: bool) -> Side:
    """Read one side; where cases go by their ids, two of the same id cannot be told apart, and are refused."""
    answers: dict[str, list[tuple[int, Outcome]]] = {}
    judges: dict[str, frozenset[Judged]] = {}
    ids: dict[str, str] = {}
    digests: dict[str, str] = {}
    for each in source.answers():
        case = each.case_id if by_id or each.digest is None else each.digest
        spoken = f" ({each.variant})" if by_variant and each.variant != "text" else ""
        case += spoken
        known = digests.setdefault(case, each.digest or "")
        if each.digest and known not in ("", each.digest):
            raise InvalidInput(
                f"{source.name} has two cases called {quote(each.case_id)}, and the other side knows cases only by "
                "their ids; compare runs, or files that have case_digest"
            )
        ids[case] = each.case_id + spoken
        answers.setdefault(case, []).append((each.repeat, each.outcome))
        if each.outcome in (Outcome.PASSED, Outcome.FAILED):
            judges[case] = judges.get(case, frozenset()) | _judges(each.checks)
    shared = Counter(ids.values())
    return Side(
        outcomes={case: [outcome for _, outcome in sorted(given)] for case, given in answers.items()},
        judges=judges,
        names={case: f"{name} ({case[-8:]})" if shared[name] > 1 else name for case, name in ids.items()},
    )


def _judges(checks: Iterable[Check]) -> "frozenset[Judged]":
    """Return what gave a verdict; a judge goes by its provider's name of it, however it was typed."""
    from pramana.analyse.judges import judged_by

    return frozenset(judged_by(each, who) for each in checks if each.outcome in (Outcome.PASSED, Outcome.FAILED))


def of_file(path: Path, model: str | None) -> Source:
    """Return a side that is a results.json."""
    from pramana.load.results import read_results

    blocks = read_results(path)
    block = blocks[_chosen(str(path), model, [(each.model or each.model_id, each.model_id) for each in blocks])]
    digests = frozenset(each.case_digest for each in block.results if each.case_digest)
    return Source(
        f"{path} {block.model or block.model_id}",
        block.suite_hash,
        block.by_digest,
        lambda: digests if block.by_digest and block.complete else None,
        lambda: (
            Answer(each.case_digest, each.test_id, each.repeat, each.outcome, each.checks, each.variant)
            for each in block.results
        ),
        variants=frozenset(each.variant for each in block.results) or frozenset({"text"}),
    )


def of_run(store: "Store", reference: str, model: str | None) -> Source:
    """Return a side that is a stored run."""
    from pramana.hash import case_digest

    run = store.run(reference)
    targets = run.plan.targets
    typed = targets[_chosen(f"run {run.id}", model, [(each.typed, each.model) for each in targets])].typed

    def answers() -> Iterator[Answer]:
        for _, result in store.results(run.id, raw=False):
            if result.key.model == typed:
                key = result.key
                yield Answer(key.case, result.case_id, key.repeat, result.outcome, result.checks, key.variant)

    def digests() -> frozenset[str]:
        return frozenset(map(case_digest, store.cases(run.id)))

    suite_hash = run.plan.suite_hash
    return Source(
        f"{run.id} {typed}",
        suite_hash,
        by_digest=True,
        digests=digests,
        answers=answers,
        repeats=run.plan.repeats,
        variants=frozenset(run.plan.variants),
    )


def _chosen(where: str, model: str | None, names: Sequence[tuple[str, str]]) -> int:
    """Return the place of the model that is meant: as it was typed, else by its provider's name of it."""
    for wanted in (0, 1):
        found = [place for place, each in enumerate(names) if model in (None, each[wanted])]
        if len(found) == 1:
            return found[0]
    raise InvalidInput(f"{where} holds {', '.join(typed for typed, _ in names)}; choose one with --model")
