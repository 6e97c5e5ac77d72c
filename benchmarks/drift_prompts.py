"""What do the prompts of the instruments `answers` and `logprobs` see of a changed model?

The distributions are real: the likeliest 1,000 first tokens of the embedded model, SmolLM2 135M, after each of the 24
candidates, as it is and with one thing changed. The days are simulated from them: answers are drawn at temperature 1
and top_p 0.95. `Searched` is what a watch does: in each month the shipped search picks its prompts from simulated
answers, and sends them with as many calls a day as the fixed set of 24 prompts × 8 calls, which watches sent before.
A sharper model, whose logprobs are multiplied by 2.5, stands for larger models, which answer these prompts with fewer
words. For `logprobs`, each day is the real list of five tokens plus noise that is drawn anew for each logprob.

Reported: the median days until a notice and an alarm, and the share of months that see the change within 30 days, by
the shipped scores and the shipped rule with one instrument. Bar: no alarm and at most 1 % notices in unchanged months,
and the searched prompts see no change of this table later than the fixed set.
"""

import argparse
import asyncio
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.same_embedded import Condition, open_engine
from pramana.analyse.border_prompts import make_border_cases, rank_by_expected_shift_above_noise
from pramana.analyse.drift import ALARM, BASELINE_DAYS, MONTH_DAYS, NOTICE, iterate_change_statistics
from pramana.analyse.instruments import (
    BORDER_VARIANT,
    INSTRUMENTS,
    LOGPROB_VARIANT,
    REFERENCE_DAYS,
    DayFeatures,
    MeasuredDay,
    PromptDay,
    measure_logprob_shift,
    score_days,
)
from pramana.border_search import find_border_prompts
from pramana.day_runs import (
    DAILY_ANSWER_CALLS,
    FIXED_ANSWERS_PER_PROMPT,
    LOGPROB_PROMPT_COUNT,
    MAX_PINNED_PROMPTS,
    SEARCH_CALLS,
)
from pramana.embedded import language
from pramana.model import Case, Reply, Turn
from pramana.providers.logprobs import TOP_TOKENS

LISTED_TOKENS, TOP_P, SHARPER = 1_000, 0.95, 2.5
CHANGES = (
    Condition("system prompt: one word more", {}, "You are a helpful AI assistant."),
    Condition("system prompt: another", {}, "You are a pirate."),
    Condition("Q4_1 → Q4_0 in 1 of 30 layers", coarser_layers=1),
    Condition("Q4_1 → Q4_0 in 10 of 30 layers", coarser_layers=10),
    Condition("Q4_1 → Q4_0 in all layers", coarser_layers=30),
)
TEMPERATURES = (1.1, 1.2, 1.5)
NOISES = (0.0, 0.05, 0.2)
NEVER = 99
Logprobs = Mapping[str, Mapping[str, float]]
"""By the ID of a prompt, each listed token with its logprob."""
Shares = Mapping[str, Mapping[str, float]]
"""By the ID of a prompt, each answer with its probability."""


def list_logprobs(engine: language.Engine, condition: Condition, *, is_cached: bool = True) -> Logprobs:
    """Return the first tokens of the model after each candidate."""
    system = (Turn("system", condition.system_prompt),) if condition.system_prompt else ()
    asked = {"temperature": 1.0, "seed": 1, "max_tokens": 1, "logprobs": True, "top_logprobs": LISTED_TOKENS}
    found = {}
    for case in make_border_cases():
        reply = engine.submit(system + case.turns, {**asked, "cache_prompt": is_cached}, lambda: False).result()
        (first, *_) = reply.response()["choices"][0]["logprobs"]["content"]
        found[case.id] = {each["token"]: each["logprob"] for each in first["top_logprobs"]}
    return found


def make_shares(logprobs: Logprobs, scale: float) -> Shares:
    """Return the answers that a sampler draws, as an instrument reads them."""
    shares = {}
    for prompt, listed in logprobs.items():
        weights = {token: math.exp(scale * each) for token, each in listed.items()}
        total, kept, answers = sum(weights.values()), 0.0, dict[str, float]()
        for token in sorted(weights, key=lambda each: -weights[each]):
            answers[token.strip()] = answers.get(token.strip(), 0.0) + weights[token] / total
            kept += weights[token] / total
            if kept >= TOP_P:
                break
        shares[prompt] = {answer: share / kept for answer, share in answers.items()}
    return shares


# ── Months ──


class Delay(NamedTuple):
    """When a change was seen in one month; 99: not within 30 days."""

    notice: int
    alarm: int


def find_delay(name: str, days: Sequence[MeasuredDay]) -> Delay:
    """Return when the shipped rule sees the change that begins after the baseline."""
    instrument = INSTRUMENTS[name]
    scored = score_days(instrument, days, BASELINE_DAYS)
    found = []
    alarm_tolerance = scored.spread.tolerance if scored.spread else math.inf
    levels = ((NOTICE, instrument.min_tolerance), (ALARM, alarm_tolerance))
    for level, tolerance in levels:
        values = iterate_change_statistics(scored.scores, BASELINE_DAYS, tolerance)
        found.append(next((day for day, each in enumerate(values, 1) if each.value >= level.threshold), NEVER))
    return Delay(*found)


def draw_answers(rng: np.random.Generator, shares: Shares, prompts: Sequence[str], repeats: int) -> DayFeatures:
    """Return a day of answers to border prompts."""
    made = []
    for prompt in prompts:
        names, chances = zip(*shares[prompt].items(), strict=True)
        counts = rng.multinomial(repeats, np.array(chances) / sum(chances))
        answers = {name: int(count) for name, count in zip(names, counts, strict=True) if count}
        made.append(PromptDay(prompt, prompt, BORDER_VARIANT, planned=repeats, answered=repeats, answers=answers))
    return DayFeatures(tuple(made))


def simulate_answers(
    rng: np.random.Generator, before: Shares, after: Shares, prompts: Sequence[str], repeats: int
) -> Delay:
    """Return when a month's change is seen by these prompts."""
    unchanged = REFERENCE_DAYS + BASELINE_DAYS
    days = [
        MeasuredDay(str(day), 0.0, draw_answers(rng, before if day < unchanged else after, prompts, repeats))
        for day in range(unchanged + MONTH_DAYS)
    ]
    return find_delay("answers", days)


def search_prompts(rng: np.random.Generator, shares: Shares) -> list[str]:
    """Return the prompts that the shipped search keeps."""

    async def send(case: Case, _: int, __: Mapping[str, Any]) -> Reply:
        names, chances = zip(*shares[case.id].items(), strict=True)
        return Reply(names[rng.choice(len(names), p=np.array(chances) / sum(chances))] or "-")

    search = find_border_prompts(
        [send], SEARCH_CALLS, {}, max_prompts=MAX_PINNED_PROMPTS, rank=rank_by_expected_shift_above_noise
    )
    found = asyncio.run(search)
    return [each.id for each in found.cases]


def simulate_logprobs(rng: np.random.Generator, before: Logprobs, after: Logprobs, noise: float) -> Delay:
    """Return when a month's change is seen in the logprobs of noisy days."""
    unchanged = REFERENCE_DAYS + BASELINE_DAYS
    days = []
    for day in range(unchanged + MONTH_DAYS):
        listed = before if day < unchanged else after
        prompts = []
        for prompt in list(listed)[:LOGPROB_PROMPT_COUNT]:
            near = list(listed[prompt].items())[: 3 * TOP_TOKENS]
            noisy = {token: value + noise * rng.standard_normal() for token, value in near}
            top = dict(sorted(noisy.items(), key=lambda each: -each[1])[:TOP_TOKENS])
            prompts.append(PromptDay(prompt, prompt, LOGPROB_VARIANT, answered=1, logprobs=top))
        days.append(MeasuredDay(str(day), 0.0, DayFeatures(tuple(prompts))))
    return find_delay("logprobs", days)


def show_delays(delays: Sequence[Delay]) -> str:
    """Return two cells: the median days until a notice and an alarm, and the shares that see the change."""
    cells = []
    for found in zip(*delays, strict=True):
        middle, seen = median(found), sum(each != NEVER for each in found) / len(found)
        cells.append(f"{f'{middle:.0f}' if middle <= MONTH_DAYS else '> 30'} ({seen:.0%})")
    return " | ".join(cells)


# ── Tables ──


def report_answers(usual: Logprobs, changed: Mapping[str, Logprobs], months: int) -> bool:
    """Print what border prompts see; return whether the bars hold."""
    print(f"\n### Answers: {months} months a cell\n")
    print("| model | change | fixed: notice | alarm | searched: notice | alarm |")
    print("| --- | --- | --: | --: | --: | --: |")
    holds = True
    for title, scale in (("as it is", 1.0), ("sharper", SHARPER)):
        before = make_shares(usual, scale)
        after = {"nothing": before}
        after |= {f"temperature 1 → {each}": make_shares(usual, scale / each) for each in TEMPERATURES}
        after |= {name: make_shares(each, scale) for name, each in changed.items()}
        for name, shares in after.items():
            rng = np.random.default_rng(7)
            fixed = [
                simulate_answers(rng, before, shares, list(before), FIXED_ANSWERS_PER_PROMPT) for _ in range(months)
            ]
            searched = []
            for _ in range(months):
                prompts = search_prompts(rng, before)
                searched.append(simulate_answers(rng, before, shares, prompts, DAILY_ANSWER_CALLS // len(prompts)))
            print(f"| {title} | {name} | {show_delays(fixed)} | {show_delays(searched)} |", flush=True)
            if name == "nothing":
                both = [*fixed, *searched]
                holds &= sum(each.notice != NEVER for each in both) <= 0.01 * len(both)
                holds &= all(each.alarm == NEVER for each in both)
            else:
                holds &= median(each.notice for each in searched) <= median(each.notice for each in fixed)
    return holds


def report_logprobs(usual: Logprobs, changed: Mapping[str, Logprobs], months: int) -> bool:
    """Print what logprobs see; return whether unchanged months are quiet."""
    print(f"\n### Logprobs: {months} months a cell, noise by its standard deviation in nats\n")
    print(f"| change | shift |{''.join(f' noise {each:g}: notice | alarm |' for each in NOISES)}")
    print(f"| --- | --: |{' --: | --: |' * len(NOISES)}")
    holds = True
    for name, listed in {"nothing": usual, **changed}.items():
        cells = []
        for noise in NOISES:
            rng = np.random.default_rng(8)
            delays = [simulate_logprobs(rng, usual, listed, noise) for _ in range(months if noise else 1)]
            cells.append(show_delays(delays))
            if name == "nothing":
                holds &= sum(each.notice != NEVER for each in delays) <= 0.01 * len(delays)
                holds &= all(each.alarm == NEVER for each in delays)
        print(f"| {name} | {measure_mean_shift(usual, listed):.3f} | {' | '.join(cells)} |", flush=True)
    return holds


def measure_mean_shift(before: Logprobs, now: Logprobs) -> float:
    """Return the score of a day without noise."""
    return fmean(
        measure_logprob_shift([keep_top(before[prompt])], keep_top(now[prompt]))
        for prompt in list(before)[:LOGPROB_PROMPT_COUNT]
    )


def keep_top(listed: Mapping[str, float]) -> dict[str, float]:
    """Return the tokens that a provider lists."""
    return dict(list(listed.items())[:TOP_TOKENS])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 if a bar does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--months", type=int, default=40)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        engine = open_engine(Path(name), 0)
        usual = list_logprobs(engine, Condition("unchanged"))
        again = list_logprobs(engine, Condition("again"))
        uncached = list_logprobs(engine, Condition("unchanged"), is_cached=False)
        changed = {}
        for each in CHANGES:
            used = open_engine(Path(name), each.coarser_layers) if each.coarser_layers else engine
            changed[each.title] = list_logprobs(used, each)
    print(f"Shift of an unchanged model, asked again: {measure_mean_shift(usual, again):g}")
    print(f"Without its cache of prompts, which batches tokens differently: {measure_mean_shift(usual, uncached):.4f}")
    holds = report_answers(usual, changed, options.months)
    holds &= report_logprobs(usual, changed, options.months)
    print(f"\n{time.monotonic() - began:.0f} s in one process. The bars {'hold' if holds else 'DO NOT HOLD'}.")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
