"""What pairs of calls say of two endpoints: calls in, one answer with the evidence of each instrument out.

The replies decide whether the endpoints are called different: the answers to border prompts, the text of replies that
should be the same each time, logprobs of the first token, the pass rate and the length. Latency is tested on its own,
because two hosts of one model differ in speed, and so are errors: a pair counts only if both calls were answered. Every
test here may be looked at after every pair (`analyse.same`). Pure functions on values; nothing here sends a request.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Literal

from msgspec import Struct

from pramana.analyse.numbers import pluralise
from pramana.analyse.same import SIGNIFICANCE_LEVEL, PairedTest, ReplyPair

MIN_PAIRS = 20
"""Fewer pairs are no test: even endpoints that always differ may not be called different before."""
MAX_EXAMPLES, MAX_EXAMPLE_ANSWERS = 3, 5
Instrument = Literal["answers", "commonness", "text", "logprobs", "passed", "length", "latency"]
BORDER_ANSWERS: Instrument = "answers"
COMMONNESS: Instrument = "commonness"
"""How often the same answer was given before, by either endpoint: less often if an endpoint samples more freely."""
PINNED_TEXT: Instrument = "text"
LOGPROBS: Instrument = "logprobs"
PASSED: Instrument = "passed"
LENGTH: Instrument = "length"
LATENCY: Instrument = "latency"
_FAILED = "failed"
Decision = Literal["different", "no_difference", "untested"]
ODDS = round(1 / SIGNIFICANCE_LEVEL)
EXIT_CODES: Mapping[Decision, int] = {"no_difference": 0, "different": 1, "untested": 4}


class Answered(Struct, frozen=True):
    """What one call returned, as far as it is compared."""

    text: str
    latency_s: float
    has_passed: bool | None = None
    """None without a verdict."""
    logprobs: Mapping[str, float] = {}
    """Of the likeliest first tokens; empty if they were not offered."""


class CallPair(Struct, frozen=True):
    """Both calls with one prompt, of the first endpoint and of the second; None for a call that failed."""

    prompt: str
    """Identifies the prompt."""
    replies: tuple[Answered | None, Answered | None]
    is_border: bool = False
    shown_prompt: str = ""


class InstrumentEvidence(Struct, frozen=True):
    """What one instrument has seen."""

    name: Instrument
    pairs: int
    differing: int
    """Pairs in which the two values differ."""
    odds: float
    """The stake against chance, which began at 1."""
    values: tuple[float, float] | None = None
    """Of both endpoints: the pass rate, the mean length or logprob, the median latency in seconds; None for texts."""


class Example(Struct, frozen=True):
    """The replies of both endpoints to one prompt: how often each was given, the most frequent first."""

    prompt: str
    is_border: bool
    first: tuple[tuple[str, int], ...]
    second: tuple[tuple[str, int], ...]


class EndpointFinding(Struct, frozen=True):
    """The answer, and the evidence for it."""

    decision: Decision
    pairs: int
    """Pairs in which both calls were answered."""
    p_value: float
    evidence: tuple[InstrumentEvidence, ...]
    latency: InstrumentEvidence
    latency_p_value: float
    failed: tuple[int, int]
    """Calls of each endpoint that failed."""
    failed_p_value: float
    dropped: int
    """Pairs in which a call failed."""
    examples: tuple[Example, ...]

    @property
    def sentence(self) -> str:
        """Return the answer as one sentence."""
        counted = pluralise(self.pairs, "pair")
        if self.decision == "different":
            return f"Different: the odds against chance are over {ODDS:,} to 1 after {counted} of calls."
        if self.decision == "untested":
            return f"Could not be tested: {counted} of calls, and at least {MIN_PAIRS} are needed."
        return f"No difference seen in {counted} of calls."

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command line."""
        return EXIT_CODES[self.decision]

    @property
    def is_latency_different(self) -> bool:
        """Return whether one endpoint is proven to be slower."""
        return self.latency_p_value <= SIGNIFICANCE_LEVEL

    @property
    def is_failure_rate_different(self) -> bool:
        """Return whether one endpoint is proven to fail more often."""
        return self.failed_p_value <= SIGNIFICANCE_LEVEL


class EndpointTest:
    """Collects pairs of calls, and says at any time what they prove.

    >>> test = EndpointTest()
    >>> for _ in range(30):
    ...     test.add(CallPair("coin", (Answered("heads", 0.1), Answered("tails", 0.1)), is_border=True))
    >>> test.is_different, test.make_finding().sentence
    (True, 'Different: the odds against chance are over 1,000 to 1 after 30 pairs of calls.')
    """

    def __init__(self, *, has_verdicts: bool = True, has_logprobs: bool = True, has_borders: bool = True) -> None:
        """Announce which instruments there are: one without data would only weaken the others."""
        numbers: list[Instrument] = [LENGTH, *([PASSED] if has_verdicts else ()), *([LOGPROBS] if has_logprobs else ())]
        texts: list[Instrument] = [*([BORDER_ANSWERS] if has_borders else ()), PINNED_TEXT]
        numbers += [COMMONNESS] if has_borders else []
        self._test = PairedTest(numbers, texts)
        self._latency, self._failing = PairedTest([LATENCY], ()), PairedTest([_FAILED], ())
        self._values: dict[Instrument, list[tuple[float, float]]] = {name: [] for name in (*numbers, LATENCY)}
        self._text_pairs: dict[Instrument, list[bool]] = {name: [] for name in texts}
        self._prompts: dict[str, _PromptReplies] = {}
        self._reference_tokens: dict[str, str] = {}
        self._failed, self._dropped = [0, 0], 0

    def add(self, pair: CallPair) -> None:
        """Bet on a pair, then learn from it; a pair with a failed call counts as an error only."""
        first, second = pair.replies
        failed = (first is None, second is None)
        self._failed = [count + is_failed for count, is_failed in zip(self._failed, failed, strict=True)]
        self._failing.add(ReplyPair("", ("", ""), {_FAILED: (float(failed[0]), float(failed[1]))}))
        if first is None or second is None:
            self._dropped += 1
            return
        measured: Mapping[Instrument, tuple[float, float]] = dict(self._measure(pair, first, second))
        for name, values in measured.items():
            if name in self._values:
                self._values[name].append(values)
        numbers: dict[str, tuple[float, float]] = {str(name): values for name, values in measured.items()}
        instrument = BORDER_ANSWERS if pair.is_border else PINNED_TEXT
        if instrument in self._text_pairs:
            self._text_pairs[instrument].append(first.text != second.text)
        self._test.add(ReplyPair(pair.prompt, (first.text, second.text), numbers, instrument))
        self._latency.add(ReplyPair("", ("", ""), numbers))
        known = self._prompts.setdefault(pair.prompt, _PromptReplies(pair.shown_prompt, is_border=pair.is_border))
        known.counts[0][first.text] += 1
        known.counts[1][second.text] += 1

    def _measure(
        self, pair: CallPair, first: Answered, second: Answered
    ) -> Iterator[tuple[Instrument, tuple[float, float]]]:
        yield LATENCY, (first.latency_s, second.latency_s)
        if pair.is_border:
            known = self._prompts.get(pair.prompt)
            pooled = known.counts[0] + known.counts[1] if known else Counter()
            yield COMMONNESS, (pooled[first.text], pooled[second.text])
        else:
            yield LENGTH, (len(first.text), len(second.text))
        if first.has_passed is not None and second.has_passed is not None:
            yield PASSED, (first.has_passed, second.has_passed)
        if first.logprobs and second.logprobs:
            token = self._reference_tokens.get(pair.prompt)
            if token is None:  # chosen from both alike, so that the choice favours neither
                token = max(
                    sorted({*first.logprobs, *second.logprobs}),
                    key=lambda each: _logprob_of(each, first.logprobs) + _logprob_of(each, second.logprobs),
                )
                self._reference_tokens[pair.prompt] = token
            yield LOGPROBS, (_logprob_of(token, first.logprobs), _logprob_of(token, second.logprobs))

    @property
    def pairs(self) -> int:
        """The pairs in which both calls were answered."""
        return self._test.pairs

    @property
    def odds(self) -> float:
        """The evidence so far: the mean stake of all instruments that decide."""
        return self._test.e_value

    @property
    def is_different(self) -> bool:
        """Whether the endpoints are proven to differ."""
        return self._test.is_different

    def make_finding(self) -> EndpointFinding:
        """Return the answer so far."""
        decision: Decision = "no_difference"
        if self.is_different:
            decision = "different"
        elif self.pairs < MIN_PAIRS:
            decision = "untested"
        odds = {**self._test.e_values, LATENCY: self._latency.e_value}
        made = {
            **{name: self._make_text_evidence(name, odds[name]) for name in self._text_pairs},
            **{name: self._make_number_evidence(name, odds[name]) for name in self._values},
        }
        return EndpointFinding(
            decision=decision,
            pairs=self.pairs,
            p_value=self._test.p_value,
            evidence=tuple(each for name, each in made.items() if each.pairs and name != LATENCY),
            latency=made[LATENCY],
            latency_p_value=self._latency.p_value,
            failed=(self._failed[0], self._failed[1]),
            failed_p_value=self._failing.p_value,
            dropped=self._dropped,
            examples=self._make_examples(),
        )

    def counts_by_prompt(self) -> dict[str, tuple[Counter[str], Counter[str]]]:
        """Return how often each endpoint gave each reply, by prompt."""
        return {prompt: (known.counts[0], known.counts[1]) for prompt, known in self._prompts.items()}

    def _make_text_evidence(self, name: Instrument, odds: float) -> InstrumentEvidence:
        differ = self._text_pairs[name]
        return InstrumentEvidence(name, len(differ), sum(differ), odds)

    def _make_number_evidence(self, name: Instrument, odds: float) -> InstrumentEvidence:
        values = self._values[name]
        differing = sum(first != second for first, second in values)
        centre = median if name == LATENCY else fmean
        both = (centre([first for first, _ in values]), centre([second for _, second in values])) if values else None
        return InstrumentEvidence(name, len(values), differing, odds, both)

    def _make_examples(self) -> tuple[Example, ...]:
        """Return the prompts whose replies differ most between the endpoints."""
        ranked = sorted(self._prompts.values(), key=lambda each: -each.separation)
        return tuple(
            Example(each.shown, each.is_border, _most_frequent(each.counts[0]), _most_frequent(each.counts[1]))
            for each in ranked[:MAX_EXAMPLES]
            if each.separation > 0
        )


class _PromptReplies:
    """The replies of both endpoints to one prompt."""

    def __init__(self, shown: str, *, is_border: bool) -> None:
        self.shown, self.is_border = shown, is_border
        self.counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    @property
    def separation(self) -> float:
        """How far the replies of the endpoints are apart, beyond replies that were given only once."""
        first, second = self.counts
        return sum((first[text] - second[text]) ** 2 / (first[text] + second[text]) - 1 for text in first | second)


def _most_frequent(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(counts.most_common(MAX_EXAMPLE_ANSWERS))


def _logprob_of(token: str, logprobs: Mapping[str, float]) -> float:
    """Return the logprob of a token; one that is not listed is as unlikely as the least likely that is."""
    return logprobs.get(token, min(logprobs.values()))


def make_endpoint_test(pairs: Sequence[CallPair]) -> EndpointTest:
    """Return the test of pairs that are all there, with the instruments that they have data for."""
    answered = [reply for pair in pairs for reply in pair.replies if reply]
    test = EndpointTest(
        has_verdicts=any(each.has_passed is not None for each in answered),
        has_logprobs=any(each.logprobs for each in answered),
        has_borders=any(pair.is_border for pair in pairs),
    )
    for pair in pairs:
        test.add(pair)
    return test
