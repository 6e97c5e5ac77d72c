"""Border prompts: short prompts whose one-token answer varies, so that its distribution moves with the model.

The answers that were given to candidates go in; the candidates whose answers vary most come out. A model that changes
a little changes these answers first: where two answers are almost equally likely, the smallest shift decides between
them. Pure functions on texts; a search that sends the candidates is in `pramana.sameness`.
"""

import math
from collections import Counter
from collections.abc import Mapping

from pramana.model import Case, Facets, Turn

BORDER_TAG = "border"
"""The category and the tag of border prompts."""
MAX_BORDER_PROMPTS = 10
MIN_ENTROPY_BITS = 0.2
"""Below this, nearly every answer is the same: one in 30 differs."""
MAX_ANSWER_CHARS = 40
ASSUMED_DAILY_CALLS_PER_PROMPT = 48
"""Calls a day with each border prompt of a watch."""
CANDIDATES = (
    "Pick a number from 1 to 9. Answer with the digit only.",
    "Heads or tails? Answer with one word.",
    "Name a colour. Answer with one word.",
    "Name an animal. Answer with one word.",
    "Cat or dog? Answer with one word.",
    "Pick a letter of the alphabet. Answer with the letter only.",
    "Is there life on other planets? Answer yes or no.",
    "Will it rain tomorrow? Answer yes or no.",
    "Name a fruit. Answer with one word.",
    "Left or right? Answer with one word.",
    "Name a city. Answer with one word.",
    "Pick a day of the week. Answer with one word.",
    "Tea or coffee? Answer with one word.",
    "Name a country. Answer with one word.",
    "Is a hot dog a sandwich? Answer yes or no.",
    "Pick a card suit. Answer with one word.",
    "Name a musical instrument. Answer with one word.",
    "Pick a month. Answer with one word.",
    "Which is better, summer or winter? Answer with one word.",
    "Name a flower. Answer with one word.",
    "Continue with one letter: q x v",
    "Pick a number from 10 to 99. Answer with the number only.",
    "Is mathematics invented or discovered? Answer with one word.",
    "Name a planet. Answer with one word.",
)
"""Prompts without a right answer, tried in this order."""


def make_border_cases() -> tuple[Case, ...]:
    """Return the candidates as cases; nothing is expected of their replies."""
    return tuple(make_border_case(f"{BORDER_TAG}-{number:02}", text) for number, text in enumerate(CANDIDATES, start=1))


def make_border_case(case_id: str, text: str) -> Case:
    """Return a border prompt as a case."""
    return Case(case_id, "test_case", (Turn("user", text),), Facets(BORDER_TAG, "easy", "en", (BORDER_TAG,)))


def read_answer(text: str) -> str:
    """Return the answer that a reply gives to a border prompt: its first line, as far as answers are compared.

    >>> read_answer(" Heads\\nbecause")
    'Heads'
    """
    lines = text.strip().splitlines()
    return lines[0][:MAX_ANSWER_CHARS] if lines else ""


def entropy_bits(answers: Counter[str]) -> float:
    """Return the entropy of the answers: 0 if all are the same, 1 for a fair coin.

    >>> entropy_bits(Counter(heads=4, tails=4)), entropy_bits(Counter(heads=9))
    (1.0, 0.0)
    """
    total = answers.total()
    shares = [count / total for count in answers.values() if count]
    return sum(share * math.log2(1 / share) for share in shares)


def rank_by_entropy(answers_by_prompt: Mapping[str, Counter[str]]) -> list[str]:
    """Return the prompts whose answers vary, those that vary most first; prompts that vary equally keep their order.

    >>> rank_by_entropy({"a": Counter(x=4), "b": Counter(x=3, y=1), "c": Counter(x=2, y=2), "d": Counter()})
    ['c', 'b']
    """
    found = {prompt: entropy_bits(answers) for prompt, answers in answers_by_prompt.items() if answers}
    return sorted((prompt for prompt in found if found[prompt] >= MIN_ENTROPY_BITS), key=lambda each: -found[each])


def expected_shift_above_noise(answers: Counter[str]) -> float:
    """Return by how much a small change would raise the total variation of a day's answers above its noise.

    The change moves the log-odds of every answer by a half, and the noise is that of `ASSUMED_DAILY_CALLS_PER_PROMPT`
    calls: many answers that are equally rare vary most, and show the noise of few calls rather than a change.

    >>> coin, all_different = Counter(heads=24, tails=24), Counter(map(str, range(48)))
    >>> [round(expected_shift_above_noise(each), 3) for each in (coin, all_different)]
    [0.144, 0.114]
    >>> [round(entropy_bits(each), 1) for each in (coin, all_different)]
    [1.0, 5.6]
    """
    total, found = answers.total(), 0.0
    for count in answers.values():
        share = count / total
        noise = share * (1 - share) / ASSUMED_DAILY_CALLS_PER_PROMPT
        found += math.sqrt(noise + (0.5 * share * (1 - share)) ** 2) - math.sqrt(noise)
    return found


def rank_by_expected_shift_above_noise(answers_by_prompt: Mapping[str, Counter[str]]) -> list[str]:
    """Return the prompts whose answers vary, those first that would show a small change best.

    >>> counts = {"a": Counter(x=9), "b": Counter(map(str, range(48))), "c": Counter(x=24, y=24)}
    >>> rank_by_expected_shift_above_noise(counts)
    ['c', 'b']
    """
    return sorted(
        rank_by_entropy(answers_by_prompt), key=lambda each: -expected_shift_above_noise(answers_by_prompt[each])
    )
