"""Are two endpoints the same model? Pairs of calls in, evidence that may be looked at after every pair out.

Each pair asks both endpoints the same prompt, in an order drawn by lot. If the endpoints are the same, and calls do not
affect each other, then which of the two replies came from which endpoint is the toss of a fair coin, whatever the
replies are. The test bets on that coin before each pair is revealed, with odds learnt from the earlier pairs, and
multiplies its stake by the winnings. A fair coin cannot be beaten: if nothing differs, the stake reaches 1 / p at some
time with a probability of at most p (Ville's inequality), so the test may stop as soon as it is sure. No baseline, no
distribution and no independence of the replies in time is assumed.

Each instrument has a separate stake, and the evidence is the mean of all stakes. A further instrument therefore costs a
little power and never adds a false alarm.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from msgspec import Struct

SIGNIFICANCE_LEVEL = 0.001
"""How small a p-value has to be before two endpoints are called different."""
REPLY_INSTRUMENT = "reply"
"""The instrument that bets on which endpoint gives which reply to a prompt."""
SMOOTHING_WEIGHTS = (1.0, 3.0)
"""Weights of the pooled replies to a prompt in the prediction for one endpoint: from quick to cautious learning."""


class ReplyPair(Struct, frozen=True):
    """Two replies to one prompt: of the first endpoint, then of the second."""

    prompt: str
    replies: tuple[str, str]
    measurements: Mapping[str, tuple[float, float]] = {}
    """Further measurements of both calls by instrument: length, latency, a logprob, passed or not."""
    instrument: str = REPLY_INSTRUMENT
    """The instrument that bets on the text of the replies."""


class PairedTest:
    """Collects pairs, and says at any time how strong the evidence for a difference is.

    >>> test = PairedTest()
    >>> for _ in range(20):
    ...     test.add(ReplyPair("pick", ("heads", "tails")))
    >>> test.is_different, test.pairs
    (True, 20)
    >>> same = PairedTest()
    >>> for _ in range(20):
    ...     same.add(ReplyPair("pick", ("heads", "heads")))
    >>> same.p_value
    1.0
    """

    def __init__(self, numbers: Sequence[str] = (), texts: Sequence[str] = (REPLY_INSTRUMENT,)) -> None:
        """Announce the instruments: those that bet on numbers, and those that bet on the text of replies."""
        self.pairs = 0
        self._texts = {name: _ReplyTextBet() for name in texts}
        self._signs = {name: _LargerNumberBet() for name in numbers}
        self._most = 1.0

    def add(self, pair: ReplyPair) -> None:
        """Bet on a pair, then learn from it. Instruments that were not announced are left out."""
        self.pairs += 1
        if text_bet := self._texts.get(pair.instrument):
            text_bet.add(pair.prompt, *pair.replies)
        for name, bet in self._signs.items():
            if values := pair.measurements.get(name):
                bet.add(pair.prompt, *values)
        self._most = max(self._most, self.e_value)

    @property
    def e_values(self) -> dict[str, float]:
        """The stake of each instrument, which began at 1."""
        bets: Mapping[str, _ReplyTextBet | _LargerNumberBet] = {**self._texts, **self._signs}
        return {name: bet.accumulated_stake for name, bet in bets.items()}

    @property
    def e_value(self) -> float:
        """The mean stake."""
        return fmean(self.e_values.values())

    @property
    def p_value(self) -> float:
        """The p-value, valid whenever one looks: one over the largest mean stake so far."""
        return 1 / self._most

    @property
    def is_different(self) -> bool:
        """Whether the endpoints differ, at `SIGNIFICANCE_LEVEL`."""
        return self.p_value <= SIGNIFICANCE_LEVEL


class _ReplyTextBet:
    """Bets on the text: learns how often each endpoint gives which reply to a prompt."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
        self._log_stakes = [0.0] * len(SMOOTHING_WEIGHTS)

    def add(self, prompt: str, first_reply: str, second_reply: str) -> None:
        ours, theirs = self._counts[prompt]
        if first_reply != second_reply:
            seen = ours.total() + theirs.total() + 2
            pooled = [(ours[reply] + theirs[reply] + 1) / seen for reply in (first_reply, second_reply)]
            for at, weight in enumerate(SMOOTHING_WEIGHTS):
                as_is = (ours[first_reply] + weight * pooled[0]) * (theirs[second_reply] + weight * pooled[1])
                swapped = (ours[second_reply] + weight * pooled[1]) * (theirs[first_reply] + weight * pooled[0])
                self._log_stakes[at] += math.log(2 * as_is / (as_is + swapped))
        ours[first_reply] += 1
        theirs[second_reply] += 1

    @property
    def accumulated_stake(self) -> float:
        return _mean_stake(self._log_stakes)


class _LargerNumberBet:
    """Bets on which endpoint has the larger number: over all prompts, and prompt by prompt."""

    def __init__(self) -> None:
        self._overall = [0, 0]
        self._by_prompt: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._log_stakes = [0.0, 0.0]

    def add(self, prompt: str, first_value: float, second_value: float) -> None:
        if first_value == second_value:
            return
        larger = int(second_value > first_value)
        for at, counts in enumerate((self._overall, self._by_prompt[prompt])):
            self._log_stakes[at] += math.log(2 * (counts[larger] + 0.5) / (sum(counts) + 1))
            counts[larger] += 1

    @property
    def accumulated_stake(self) -> float:
        return _mean_stake(self._log_stakes)


def _mean_stake(log_stakes: Sequence[float]) -> float:
    return fmean(math.exp(min(700.0, log_stake)) for log_stake in log_stakes)
