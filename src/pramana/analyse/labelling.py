"""Which judged replies people label: verdicts of judges in, a random draw of replies and their order out.

Half of a draw is among the replies that the judge failed, because its errors there weigh most and are otherwise rare.
The draw is a function of the run and of each reply alone: it is the same after an interruption, a larger draw contains
the smaller one, and the order says nothing about the judge's verdict.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pramana.analyse.calibration import count_labels_to_draw
from pramana.analyse.judges import find_verdict_source, keep_judge_name
from pramana.analyse.pairing import SCORED, VerdictSource
from pramana.model import Check, Outcome

DEFAULT_LABEL_COUNT = 60
"""How many replies are drawn unless another number is given: ten more than a corrected pass rate needs."""


class JudgedReply(NamedTuple):
    """A judge's verdict on one reply by one criterion."""

    seq: int
    """The number of the result."""
    criterion: str
    passed: bool
    model: str
    case_digest: str
    source: VerdictSource

    @property
    def task(self) -> str:
        """The name of the reply and its criterion: `12.llm_judge`."""
        return make_task_name(self.seq, self.criterion)


def make_task_name(seq: int, criterion: str) -> str:
    """Return the name of a reply and its criterion.

    >>> make_task_name(12, "llm_judge:1"), split_task_name("12.llm_judge:1")
    ('12.llm_judge:1', (12, 'llm_judge:1'))
    """
    return f"{seq}.{criterion}"


def split_task_name(task: str) -> tuple[int, str] | None:
    """Return the result's number and the criterion of a task; None for any other text."""
    number, _, criterion = task.partition(".")
    is_number = number.isascii() and number.isdecimal() and len(number) < 20
    return (int(number), criterion) if is_number and criterion else None


def name_criteria(checks: Iterable[Check]) -> Iterator[tuple[str, Check]]:
    """Yield the checks of a result that a judge made, each with the name of its criterion.

    Equal criteria are numbered, so that each check of a result has a name of its own, the same after each rescoring.

    >>> checks = [Check("llm_judge", "1", Outcome.PASSED, "", evidence={"judge": "gpt-5", "line": 1})]
    >>> [name for name, _ in name_criteria([*checks, *checks])]
    ['llm_judge:1', 'llm_judge:1#2']
    """
    counts = Counter[str]()
    for check in checks:
        judge = check.evidence.get("judge")
        if not check.decides or not isinstance(judge, str) or not judge:
            continue
        line = check.evidence.get("line")
        name = f"{check.name}:{line}" if isinstance(line, int) else check.name
        counts[name] += 1
        yield name if counts[name] == 1 else f"{name}#{counts[name]}", check


def list_verdicts(
    seq: int, case_digest: str, model: str, checks: Iterable[Check], name_judge: Callable[[str], str] = keep_judge_name
) -> Iterator[JudgedReply]:
    """Yield the verdicts of judges on one result; `name_judge` maps the different names of a judge to one."""
    for criterion, check in name_criteria(checks):
        if check.outcome in SCORED:
            source = replace(find_verdict_source(check, name_judge), served="")
            yield JudgedReply(seq, criterion, check.outcome is Outcome.PASSED, model, case_digest, source)


def draw_replies(replies: Sequence[JudgedReply], count: int, seed: str) -> list[JudgedReply]:
    """Return the replies to label, in the order in which they are shown."""
    by_verdict: dict[bool, list[JudgedReply]] = {True: [], False: []}
    for each in replies:
        by_verdict[each.passed].append(each)
    among_passed, among_failed = count_labels_to_draw(len(by_verdict[True]), len(by_verdict[False]), count)
    drawn = []
    for verdict, number in ((True, among_passed), (False, among_failed)):
        drawn += sorted(by_verdict[verdict], key=lambda each: _hash_task(seed, "draw", each.task))[:number]
    return sorted(drawn, key=lambda each: _hash_task(seed, "order", each.task))


def _hash_task(seed: str, purpose: str, task: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{purpose}\0{task}".encode("utf-8", "surrogatepass")).digest()
