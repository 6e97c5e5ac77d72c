"""Does the test of two endpoints keep its level, and how soon does it see a full swap? Simulated pairs, seeded.

Every number here is simulated: endpoints that answer border prompts with one of a few tokens. Bars: of 100,000 runs in
which both endpoints are the same, the number called different at level 0.1 % is no significant excess (one-sided
p > 0.01), also if the endpoint drifts while it is asked; a full swap is seen within 400 one-token calls in at least
99 % of tries. With `--shipped`, the same by the test of `pramana same`, with all of its instruments for border
prompts, lengths and other replies; the numbers of the rows are then lower, because it takes longer.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from random import Random
from typing import NamedTuple

from scipy.stats import binom  # type: ignore[import-untyped]

from pramana.analyse.endpoints import Answered, CallPair, EndpointTest
from pramana.analyse.same import SIGNIFICANCE_LEVEL, PairedTest, ReplyPair

NULL_RUNS, TRIES, CALLS, PROMPTS = 100_000, 2_000, 400, 10
TOKENS = "abcdefgh"
MIN_NULL_P, MIN_SEEN = 0.01, 0.99
Probabilities = Sequence[Sequence[float]]
"""By prompt, how often each token is the answer."""


class Ended(NamedTuple):
    """Calls until a difference was seen; None if the budget ended first."""

    calls: int | None


def draw_probabilities(rng: Random, concentration: float) -> Probabilities:
    """Return the answers of an endpoint to its border prompts."""
    rows = []
    for _ in range(PROMPTS):
        weights = [rng.gammavariate(concentration, 1) for _ in TOKENS]
        rows.append([weight / sum(weights) for weight in weights])
    return rows


def run_test(rng: Random, answer: Callable[[int, int, int], str], *, shipped: bool = False) -> Ended:
    """Ask both endpoints pair by pair until they differ; `answer` takes the endpoint, the prompt and the time."""
    test = EndpointTest(has_verdicts=False, has_logprobs=False) if shipped else PairedTest()
    for at in range(CALLS // 2):
        prompt = at % PROMPTS
        order = (0, 1) if rng.random() < 0.5 else (1, 0)
        replies = {endpoint: answer(endpoint, prompt, 2 * at + place) for place, endpoint in enumerate(order)}
        if isinstance(test, EndpointTest):
            both = Answered(replies[0], rng.random()), Answered(replies[1], rng.random())
            test.add(CallPair(str(prompt), both, is_border=True))
        else:
            test.add(ReplyPair(str(prompt), (replies[0], replies[1])))
        if test.is_different:
            return Ended(2 * at + 2)
    return Ended(None)


def run_same(seed: int, *, drifts: bool, shipped: bool = False) -> Ended:
    """Test one endpoint against itself; with `drifts`, its answers change while it is asked."""
    rng = Random(seed)
    before = draw_probabilities(rng, 0.4)
    after = draw_probabilities(rng, 0.4) if drifts else before

    def answer(_: int, prompt: int, time: int) -> str:
        share = time / CALLS
        return rng.choices(
            TOKENS, [(1 - share) * a + share * b for a, b in zip(before[prompt], after[prompt], strict=True)]
        )[0]

    return run_test(rng, answer, shipped=shipped)


def run_swap(seed: int, shipped: bool = False) -> Ended:
    """Test two unrelated endpoints."""
    rng = Random(seed)
    both = draw_probabilities(rng, 0.4), draw_probabilities(rng, 0.4)
    return run_test(rng, lambda endpoint, prompt, _: rng.choices(TOKENS, both[endpoint][prompt])[0], shipped=shipped)


def count_different(first_seed: int, count: int, drifts: bool, shipped: bool) -> int:
    """Return how many of these null runs were called different."""
    return sum(
        run_same(seed, drifts=drifts, shipped=shipped).calls is not None
        for seed in range(first_seed, first_seed + count)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=NULL_RUNS, help="null runs of each kind")
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--shipped", action="store_true", help="use the test of `pramana same`, with all instruments")
    options = parser.parse_args(arguments)
    began, good, chunk = time.monotonic(), True, max(1, options.runs // 20)
    print(
        "| simulated endpoints | runs | called different | p of as many at 0.1 % |",
        "| --- | --: | --: | --: |",
        sep="\n",
    )
    with ProcessPoolExecutor(2) as pool:
        for title, drifts, seed in (("the same", False, 1), ("the same, drifting", True, 10_000_001)):
            jobs = [
                pool.submit(count_different, seed + at, chunk, drifts, options.shipped)
                for at in range(0, options.runs, chunk)
            ]
            count, runs = sum(job.result() for job in jobs), chunk * len(jobs)
            p_value = float(binom.sf(count - 1, runs, SIGNIFICANCE_LEVEL))
            good &= p_value > MIN_NULL_P
            print(f"| {title} | {runs:,} | {count:,} | {p_value:.2g} |", flush=True)
        ends = list(
            pool.map(
                partial(run_swap, shipped=options.shipped), range(20_000_001, 20_000_001 + options.tries), chunksize=50
            )
        )
    seen = sorted(end.calls for end in ends if end.calls is not None)
    good &= len(seen) / options.tries >= MIN_SEEN
    print(
        f"\nA full swap is seen within {CALLS} calls in {len(seen) / options.tries:.2%} of {options.tries:,} tries; "
        f"calls until then: median {seen[len(seen) // 2]}, 95 % {seen[int(0.95 * len(seen))]}."
    )
    print(f"\n{time.monotonic() - began:.0f} s on 2 processes.")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
