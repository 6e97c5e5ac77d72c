"""How far the judges of a panel agree with each other: checks in, the share of unanimous verdicts and kappas out."""

from collections.abc import Iterable, Mapping
from itertools import combinations

from msgspec import Struct

from pramana.analyse.intervals import Interval
from pramana.analyse.mean_bounds import rate_interval
from pramana.model import Check, Outcome


class JudgePair(Struct, frozen=True):
    """Two judges of a panel, on the replies to which both gave a verdict."""

    first: str
    second: str
    reply_count: int
    agreed: int
    kappa: float | None
    """Cohen's kappa; None if one verdict is all that both ever gave, so that chance alone would agree."""


class PanelAgreement(Struct, frozen=True):
    """How far the judges of one panel agree with each other."""

    check: str
    judges: tuple[str, ...]
    reply_count: int
    unanimous: int
    """Replies to which all judges gave the same verdict."""
    undecided: int
    """Replies without a majority."""
    pairs: tuple[JudgePair, ...]

    @property
    def unanimous_interval(self) -> Interval:
        """The 95 % interval of the share of unanimous verdicts."""
        return rate_interval(self.unanimous, self.reply_count)


def measure_panels(checks: Iterable[Check]) -> tuple[PanelAgreement, ...]:
    """Return the agreement of each panel that made some of the checks.

    >>> votes = [{"judge": "a", "verdict": "passed"}, {"judge": "b", "verdict": "failed"}]
    >>> panel = measure_panels([Check("llm_judge", "1", Outcome.UNSCORED, "", evidence={"panel": votes})])[0]
    >>> panel.judges, panel.unanimous, panel.undecided, panel.pairs[0].agreed
    (('a', 'b'), 0, 1, 0)
    """
    votes_by_panel: dict[tuple[str, tuple[str, ...]], list[Mapping[str, str]]] = {}
    undecided: dict[tuple[str, tuple[str, ...]], int] = {}
    for check in checks:
        if votes := _read_votes(check):
            panel = (check.name, tuple(votes))
            votes_by_panel.setdefault(panel, []).append(votes)
            undecided[panel] = undecided.get(panel, 0) + (check.outcome is Outcome.UNSCORED)
    return tuple(
        PanelAgreement(
            name,
            judges,
            len(votes),
            sum(len(set(each.values())) == 1 and _is_verdict(next(iter(each.values()))) for each in votes),
            undecided[name, judges],
            tuple(_compare_judges(one, other, votes) for one, other in combinations(judges, 2)),
        )
        for (name, judges), votes in votes_by_panel.items()
    )


def _read_votes(check: Check) -> dict[str, str]:
    panel = check.evidence.get("panel")
    if not isinstance(panel, list | tuple):
        return {}
    return {str(each.get("judge")): str(each.get("verdict")) for each in panel if isinstance(each, Mapping)}


def _is_verdict(outcome: str) -> bool:
    return outcome in (Outcome.PASSED.value, Outcome.FAILED.value)


def _compare_judges(one: str, other: str, votes: Iterable[Mapping[str, str]]) -> JudgePair:
    pairs = [(each[one], each[other]) for each in votes if _is_verdict(each[one]) and _is_verdict(each[other])]
    count, agreed = len(pairs), sum(first == second for first, second in pairs)
    kappa = None
    if count:
        passing = [sum(pair[at] == Outcome.PASSED.value for pair in pairs) / count for at in (0, 1)]
        by_chance = passing[0] * passing[1] + (1 - passing[0]) * (1 - passing[1])
        kappa = (agreed / count - by_chance) / (1 - by_chance) if by_chance < 1 else None
    return JudgePair(one, other, count, agreed, kappa)
