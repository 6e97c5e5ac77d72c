"""Who gave the verdicts of a run: checks in one at a time; counts by judge out, and who they are in sentences.

Verdicts are alike when one version of a check gave them and one judge stood behind it. Where every model judges itself,
as the published format has it, several models have several judges, and that is no mixture; nor is one judge for all,
though it be one of them. A run that was judged again in part is: its pass rate is then nobody's. Nothing is weighed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from msgspec import Struct

from pramana.analyse.comparison import SCORED, Judged
from pramana.analyse.numbers import shortened
from pramana.errors import PramanaError
from pramana.model import Check

NEVER_A_JUDGE = ("local", "local-voice")
"""The embedded model is a subject that fails visibly; its verdicts would look like evidence and be none."""
MAX_KINDS = 1_000
"""Kept apart; the rest, which only a check with a version for every reply could make, are counted together."""
NAMED = 5
_OTHERS = ("other checks", "", "", "")

_Stated = tuple[str, str, str, str]
"""Name and version of a check, its judge as it was typed, and the model that judge says has answered."""
_Kind = tuple[str, Judged]
"""A model, and what gave a verdict on it."""


class Verdicts(Struct, frozen=True):
    """How many verdicts came from one judge."""

    judged: Judged
    count: int


def as_typed(name: str) -> str:
    """Return a judge's name as it is: for whoever does not know how else it could be typed."""
    return name


def judged_by(check: Check, who: Callable[[str], str] = as_typed) -> Judged:
    """Return what gave a verdict.

    >>> from pramana.model import Outcome
    >>> str(judged_by(Check("llm_judge", "1", Outcome.PASSED, "", evidence={"judge": "gpt-5"})))
    'gpt-5'
    """
    return _judged(_stated(check), who)


def _stated(check: Check) -> _Stated:
    get = check.evidence.get
    judge, served = get("judge"), get("served_model")
    return check.name, check.version, judge if judge.__class__ is str else "", served if served.__class__ is str else ""


def _judged(stated: _Stated, who: Callable[[str], str]) -> Judged:
    name, version, judge, served = stated
    return Judged(name, version, who(judge) if judge else "", served)


class Judges:
    """Counts verdicts by who gave them. `who` makes one name of several for the same judge."""

    def __init__(self, who: Callable[[str], str] = as_typed) -> None:
        self._who = who
        self._stated: dict[tuple[str, _Stated], int] = {}

    def add(self, model: str, check: Check) -> None:
        """Count a check, if it is a verdict."""
        if check.outcome in SCORED:
            found = (model, _stated(check))
            known = self._stated.get(found)
            if known is None and len(self._stated) >= MAX_KINDS:
                found = (model, _OTHERS)
                known = self._stated.get(found)
            self._stated[found] = (known or 0) + 1

    def _counts(self) -> Counter[_Kind]:
        counts: Counter[_Kind] = Counter()
        for (model, stated), count in self._stated.items():
            counts[model, _judged(stated, self._who)] += count
        return counts

    def verdicts(self) -> tuple[Verdicts, ...]:
        """Return how many verdicts each judge gave, by check and then the most first."""
        counts: Counter[Judged] = Counter()
        for (_, judged), count in self._counts().items():
            counts[judged] += count
        return tuple(
            Verdicts(judged, count)
            for judged, count in sorted(counts.items(), key=lambda each: (each[0].check, -each[1], each[0]))
        )

    def mixed(self) -> tuple[str, ...]:
        """Return a sentence for each check whose verdicts come from several judges; none where all are alike.

        >>> from pramana.model import Outcome
        >>> judges = Judges()
        >>> for judge in ("gpt-5", "opus", "gpt-5"):
        ...     judges.add("m", Check("llm_judge", "1", Outcome.PASSED, "", evidence={"judge": judge}))
        >>> judges.mixed()
        ('llm_judge: 2 of 3 verdicts by gpt-5, 1 by opus',)
        """
        counts = self._counts()
        return tuple(self._sentence(kinds, counts) for kinds in _by_check(counts) if self._several(kinds))

    def judged(self) -> str:
        """Return by whom the checks were judged that are not mixed, in one sentence; nothing where nobody was asked.

        >>> from pramana.model import Outcome
        >>> judges = Judges()
        >>> judges.add("m", Check("llm_judge", "1", Outcome.PASSED, "", evidence={"judge": "gpt-5"}))
        >>> judges.judged()
        'Judged by gpt-5.'
        """
        counts = self._counts()
        asked = [kinds for kinds in _by_check(counts) if any(each.by for _, each in kinds)]
        alike = [kinds for kinds in asked if not self._several(kinds)]
        alone = len({model for model, _ in counts}) == 1
        names = {kinds[0][1].check: self._alike(kinds, alone=alone) for kinds in alike}
        if len(alike) == len(asked) and len(set(names.values())) == 1:
            return f"Judged by {next(iter(names.values()))}."
        return f"Judged by {', '.join(f'{name} ({check})' for check, name in names.items())}." if names else ""

    def _alike(self, kinds: Iterable[_Kind], *, alone: bool) -> str:
        """Return who gave verdicts that are alike; `alone`: the run has but one model."""
        judged = [kind for kind in kinds if kind[1].by]
        several = len({model for model, _ in judged}) > 1
        if (several or alone) and all(self._own(*kind) for kind in judged):
            return "each model itself" if several else "its own model"
        return shortened(judged[0][1].by)

    def _several(self, kinds: Iterable[_Kind]) -> bool:
        named = {(each.version, each.by) for _, each in kinds}
        own = {(each.version, "" if self._own(model, each) else each.by) for model, each in kinds}
        return (len(named) > 1 and len(own) > 1) or any(_served(kinds, *each) > 1 for each in named)

    def _own(self, model: str, judged: Judged) -> bool:
        return bool(judged.by) and judged.by == self._who(model)

    def _sentence(self, kinds: list[_Kind], found: Mapping[_Kind, int]) -> str:
        several = len({model for model, _ in found}) > 1
        counts: dict[tuple[str, str, str], int] = {}
        for model, each in kinds:
            by = "each model itself" if several and self._own(model, each) else each.by
            served = each.served if by == each.by and _served(kinds, each.version, by) > 1 else ""
            name = (each.version, by, served)
            counts[name] = counts.get(name, 0) + found[model, each]
        check, total = kinds[0][1].check, sum(counts.values())
        versions = len({version for version, _, _ in counts}) > 1
        ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        parts = [
            f"{count:,}{'' if place else f' of {total:,} verdicts'} by {_named(*name, versions=versions)}"
            for place, (name, count) in enumerate(ordered[:NAMED])
        ]
        rest = sum(count for _, count in ordered[NAMED:])
        return f"{check}: {', '.join(parts)}{f', {rest:,} by others' if rest else ''}"


def _by_check(counts: Iterable[_Kind]) -> list[list[_Kind]]:
    """Return what gave verdicts, together by check."""
    ordered = sorted(counts)
    checks = dict.fromkeys(judged.check for _, judged in ordered)
    return [[kind for kind in ordered if kind[1].check == check] for check in checks]


def _served(kinds: Iterable[_Kind], version: str, by: str) -> int:
    """Count the models that one judge says have answered in its name."""
    return len({each.served for _, each in kinds if each.served and (each.version, each.by) == (version, by)})


def _named(version: str, by: str, served: str, *, versions: bool) -> str:
    notes = [f"version {version}"] if by and versions else []
    notes += [served] if served else []
    shown = shortened(by or f"version {version}")
    return f"{shown} ({', '.join(notes)})" if notes else shown


@cache
def judge_name(typed: str) -> str:
    """Return one name for a judge, however it was typed.

    >>> judge_name("gpt-5"), judge_name("openai:gpt-5"), judge_name("a name of another machine")
    ('openai:gpt-5', 'openai:gpt-5', 'a name of another machine')
    """
    from pramana.providers.names import resolve

    try:
        target = resolve(typed)
    except PramanaError:  # a name of another machine, or of another version
        return typed
    return target.typed if target.arguments else f"{target.provider}:{target.model}"
