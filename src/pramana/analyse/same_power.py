"""What a test of two endpoints would have seen with the pairs that it had: observed replies in, shares of tries out.

A simulation, named as one: replies are drawn anew from those that were observed, the second endpoint is changed by a
known amount, and the test of `analyse.same` looks after every pair. Seeded, so that the same replies give the same
shares. Calls are drawn independently; endpoints that keep to a seed show a change sooner than here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal

from msgspec import Struct

from pramana.analyse.endpoints import BORDER_ANSWERS, PINNED_TEXT, CallPair, make_endpoint_test
from pramana.analyse.same import PairedTest, ReplyPair

MAX_TRIES, MIN_TRIES = 200, 20
MAX_DRAWN_PAIRS = 40_000
"""Pairs of all tries of one change together, which bounds the time to some seconds: long tests get fewer tries."""
MAX_PAIRS_PER_TRY = 5_000
"""Of one try; a longer test would have seen at least as much."""
SHIFTS = (0.5, 0.2)
"""Changes of the answers to border prompts: the share of answers that become another."""
SWAP_CONCENTRATION = 0.4
"""Of the Dirichlet distribution that draws the answers of an unrelated model."""
OTHER_ANSWERS = ("other 1", "other 2", "other 3", "other 4")
Change = Literal["swap", "shift"]


class SeenShare(Struct, frozen=True):
    """How often a change would have been seen."""

    change: Change
    """`swap`: another model answers. `shift`: a share of the answers to border prompts becomes another answer."""
    size: float
    """Of a shift: the share of answers that differ, as total variation; 1 for a swap."""
    seen: float
    """The share of tries in which the test called the endpoints different."""
    tries: int


def simulate_seen_shares(
    pairs: Sequence[CallPair], *, tries: int | None = None, seed: int = 1
) -> tuple[SeenShare, ...]:
    """Return how often changes of several sizes would have been seen in as many pairs with these replies."""
    answered = [pair for pair in pairs if None not in pair.replies]
    if not answered:
        return ()
    counts = make_endpoint_test(answered).counts_by_prompt()
    pooled = {prompt: first + second for prompt, (first, second) in counts.items()}
    borders = {pair.prompt for pair in answered if pair.is_border}
    order = [pair.prompt for pair in answered[:MAX_PAIRS_PER_TRY]]
    tries = tries or min(MAX_TRIES, max(MIN_TRIES, MAX_DRAWN_PAIRS // len(order)))
    instruments = [each.name for each in make_endpoint_test(answered).make_finding().evidence]
    changes: list[tuple[Change, float]] = [("swap", 1.0), *(("shift", size) for size in SHIFTS if borders)]
    found = []
    for change, size in changes:
        rng, seen = Random(f"{seed} {change} {size}"), 0
        for _ in range(tries):
            seen += _is_seen(rng, order, pooled, borders, instruments, change, size)
        found.append(SeenShare(change, size, seen / tries, tries))
    return tuple(found)


def _is_seen(
    rng: Random,
    order: Sequence[str],
    pooled: Mapping[str, Counter[str]],
    borders: set[str],
    instruments: Sequence[str],
    change: Change,
    size: float,
) -> bool:
    """Return whether the test sees one simulated change; instruments that bet on numbers see nothing here."""
    texts = (BORDER_ANSWERS, PINNED_TEXT)
    test = PairedTest(
        [name for name in instruments if name not in texts], [name for name in instruments if name in texts]
    )
    changed = {
        prompt: _change_answers(rng, answers, change, size, is_border=prompt in borders)
        for prompt, answers in pooled.items()
    }
    for prompt in order:
        replies = _draw(rng, pooled[prompt]), _draw(rng, changed[prompt])
        test.add(ReplyPair(prompt, replies, {}, BORDER_ANSWERS if prompt in borders else PINNED_TEXT))
        if test.is_different:
            return True
    return False


def _change_answers(
    rng: Random, answers: Mapping[str, float], change: Change, size: float, *, is_border: bool
) -> Mapping[str, float]:
    """Return the weights of the answers of the changed endpoint."""
    if change == "swap":
        if not is_border:
            return {"another text": 1.0}
        return {each: rng.gammavariate(SWAP_CONCENTRATION, 1) + 1e-9 for each in (*answers, *OTHER_ANSWERS)}
    if not is_border:
        return answers
    total = sum(answers.values())
    shares = {each: count / total for each, count in answers.items()}
    growing = rng.choice([each for each, share in shares.items() if share <= 1 - size] or [OTHER_ANSWERS[0]])
    shares.setdefault(growing, 0.0)
    rest = 1 - size / (1 - shares[growing])
    return {each: share + size if each == growing else share * rest for each, share in shares.items()}


def _draw(rng: Random, answers: Mapping[str, float]) -> str:
    return rng.choices(list(answers), list(answers.values()))[0]
