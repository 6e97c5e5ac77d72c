"""How small a change of the embedded model does the test of two endpoints see, by tokens spent?

Every reply is real: the embedded model, one token, temperature 1, as it is and with one thing changed. Each condition
answers each of ten border prompts with 100 seeds; the prompts are found by the search that `pramana same` uses. A try
draws its pairs from these replies, so tries of a row share replies. `same seed`: both calls of a pair send one seed, as
`pramana same` does, and the engine keeps to it. `other seed`: as with a server that ignores seeds. `logprobs`: four
prompts, with the logprobs of the first token. `text`: five prompts of the tier `cheap` at temperature 0, where every
reply is always the same, so that one reply stands for all calls and only the order differs between tries. The tokens
are those of the tested pairs, input included.

There is one quantisation of the weights, Q4_1. A step of quantisation is made from it: the values of a matrix are
rounded to those that Q4_0 can hold, and stored as Q4_1, in all 30 layers or in some.
"""

import argparse
import asyncio
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, NamedTuple
from unittest.mock import patch

import numpy as np

from pramana.analyse.border_prompts import read_answer
from pramana.analyse.endpoints import Answered, CallPair, EndpointTest
from pramana.border_search import PROMPT_COUNT_IF_LOGPROBS_OFFERED, find_border_prompts
from pramana.embedded import language, weights
from pramana.load import cases_of
from pramana.model import Case, Reply, Turn
from pramana.providers.logprobs import logprob_parameters, read_first_token_logprobs
from pramana.sameness import DEFAULT_SUITE_PROMPT_COUNT

CHEAP_TIER = Path(__file__).parents[1] / "src" / "pramana" / "suites" / "v1.0" / "cheap.jsonl"
SEEDS, TRIES, MAX_TOKENS = 100, 200, 50_000
BUDGETS = (2_000, 5_000, 10_000, 20_000, 50_000)
Q4_1_BLOCK_BYTES, Q4_1_TYPE = 20, 3
LAYERS = 30


class Condition(NamedTuple):
    """One way to run the model."""

    title: str
    parameters: Mapping[str, Any] = {}
    system_prompt: str | None = None
    coarser_layers: int = 0


CONDITIONS = (
    Condition("the same"),
    Condition("temperature 1 → 1.05", {"temperature": 1.05}),
    Condition("temperature 1 → 1.1", {"temperature": 1.1}),
    Condition("temperature 1 → 1.2", {"temperature": 1.2}),
    Condition("temperature 1 → 1.5", {"temperature": 1.5}),
    Condition("top_p 0.95 → 0.9", {"top_p": 0.9}),
    Condition("top_p 0.95 → 0.8", {"top_p": 0.8}),
    Condition("system prompt: one word more", {}, "You are a helpful AI assistant."),
    Condition("system prompt: another", {}, "You are a pirate."),
    Condition("Q4_1 → Q4_0 in 1 of 30 layers", coarser_layers=1),
    Condition("Q4_1 → Q4_0 in 10 of 30 layers", coarser_layers=10),
    Condition("Q4_1 → Q4_0 in all layers", coarser_layers=LAYERS),
)


# ── Weights ──


def read_tensor_places(file: BinaryIO) -> dict[str, tuple[int, int]]:
    """Return the offset and the number of blocks of each Q4_1 tensor of a GGUF file."""

    def number(form: str) -> Any:
        return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

    def text() -> str:
        return file.read(number("Q")).decode()

    def skip_value(kind: int) -> None:
        if kind == 8:
            text()
        elif kind == 9:
            item, count = number("I"), number("Q")
            for _ in range(count):
                skip_value(item)
        else:
            file.read({0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}[kind])

    file.seek(8)
    tensors, entries = number("Q"), number("Q")
    for _ in range(entries):
        text()
        skip_value(number("I"))
    found = {}
    for _ in range(tensors):
        name = text()
        values = int(np.prod([number("Q") for _ in range(number("I"))]))
        kind, offset = number("I"), number("Q")
        if kind == Q4_1_TYPE:
            found[name] = (offset, values // 32)
    data = -(-file.tell() // 32) * 32
    return {name: (data + offset, blocks) for name, (offset, blocks) in found.items()}


def round_to_q4_0(blocks: np.ndarray) -> np.ndarray:
    """Return Q4_1 blocks whose values are those that Q4_0 would hold: scale, minimum, 32 values of 4 bits."""
    scale, least = (blocks[:, at : at + 2].copy().view(np.float16).astype(np.float32) for at in (0, 2))
    packed = blocks[:, 4:]
    values = np.concatenate([packed & 15, packed >> 4], axis=1) * scale + least
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=1)[:, None], axis=1)
    step = (largest / -8).astype(np.float16)
    inverse = np.divide(1.0, step.astype(np.float32), out=np.zeros_like(largest), where=step != 0)
    levels = np.clip(np.floor(values * inverse + 8.5), 0, 15).astype(np.uint8)
    made = np.empty_like(blocks)
    made[:, 0:2], made[:, 2:4] = step.view(np.uint8), (step * np.float16(-8)).view(np.uint8)
    made[:, 4:] = levels[:, :16] | (levels[:, 16:] << 4)
    return made


def write_coarser_weights(source: Path, target: Path, layers: int) -> None:
    """Copy the weights with the first layers rounded to Q4_0."""
    shutil.copyfile(source, target)
    with target.open("r+b") as file:
        for name, (offset, count) in read_tensor_places(file).items():
            if int(name.split(".")[1]) < layers:
                file.seek(offset)
                blocks = np.frombuffer(file.read(count * Q4_1_BLOCK_BYTES), np.uint8).reshape(count, -1)
                file.seek(offset)
                file.write(round_to_q4_0(blocks).tobytes())


# ── Replies ──


class RealReply(NamedTuple):
    """One reply of the model to a border prompt."""

    answered: Answered
    tokens: int


Replies = Mapping[str, Sequence[RealReply]]
"""By prompt, a reply for each seed."""


def ask(engine: language.Engine, case: Case, seed: int, condition: Condition) -> Reply:
    """Return one real reply of one token."""
    system = (Turn("system", condition.system_prompt),) if condition.system_prompt else ()
    parameters = {"temperature": 1.0, **condition.parameters, "seed": seed, "max_tokens": 1, "cache_prompt": True}
    return engine.submit(system + case.turns, {**parameters, **logprob_parameters("local")}, lambda: False).result()


def collect_replies(engine: language.Engine, cases: Sequence[Case], condition: Condition) -> Replies:
    """Return the replies of a condition to each prompt with each seed."""
    found: dict[str, list[RealReply]] = {}
    for case in cases:
        for seed in range(SEEDS):
            reply = ask(engine, case, seed, condition)
            tokens = (reply.usage.input_tokens or 0) + (reply.usage.output_tokens or 0)
            answered = Answered(read_answer(reply.text), 0.0, None, read_first_token_logprobs(reply))
            found.setdefault(case.id, []).append(RealReply(answered, tokens))
    return found


def collect_texts(engine: language.Engine, cases: Sequence[Case], condition: Condition) -> Replies:
    """Return the reply of a condition to each prompt at temperature 0."""
    found = {}
    for case in cases:
        system = (Turn("system", condition.system_prompt),) if condition.system_prompt else ()
        reply = engine.submit(system + case.turns, {"temperature": 0.0, "seed": 42}, lambda: False).result()
        tokens = (reply.usage.input_tokens or 0) + (reply.usage.output_tokens or 0)
        found[case.id] = [RealReply(Answered(reply.text, 0.0), tokens)]
    return found


def open_engine(folder: Path, layers: int) -> language.Engine:
    """Return an engine with the weights as they are, or with some layers rounded."""
    engine = language.Engine(1)
    source = weights.verify_folder(language.WEIGHTS_NAME)
    if layers:
        target = folder / f"{layers}"
        target.mkdir(exist_ok=True)
        write_coarser_weights(next(source.glob("*.gguf")), target / next(source.glob("*.gguf")).name, layers)
        source = target
    with patch.object(weights, "verify_folder", lambda _: source):
        engine.prepare().result()
    return engine


# ── Tries ──


def count_tokens_until_seen(
    rng: Random, base: Replies, changed: Replies, prompts: Sequence[str], *, same_seed: bool, with_logprobs: bool
) -> float:
    """Return the tokens of a try until the endpoints are called different; infinite if they are not."""
    test = EndpointTest(has_verdicts=False, has_logprobs=with_logprobs, has_borders=True)
    seeds = {prompt: rng.sample(range(SEEDS), SEEDS) for prompt in prompts}
    other_seeds = seeds if same_seed else {prompt: rng.sample(range(SEEDS), SEEDS) for prompt in prompts}
    tokens = 0
    for at in range(SEEDS):
        for prompt in rng.sample(prompts, len(prompts)):
            first, second = base[prompt][seeds[prompt][at]], changed[prompt][other_seeds[prompt][at]]
            both = [each.answered for each in (first, second)]
            if not with_logprobs:
                both = [Answered(each.text, 0.0) for each in both]
            test.add(CallPair(prompt, (both[0], both[1]), is_border=True))
            tokens += first.tokens + second.tokens
            if test.is_different:
                return tokens
            if tokens > MAX_TOKENS:
                return float("inf")
    return float("inf")


def count_tokens_of_texts(rng: Random, base: Replies, changed: Replies) -> float:
    """Return the tokens until endpoints whose replies are always the same are called different."""
    test, tokens = EndpointTest(has_verdicts=False, has_logprobs=False, has_borders=False), 0
    while tokens <= MAX_TOKENS:
        for prompt in rng.sample(list(base), len(base)):
            first, second = base[prompt][0], changed[prompt][0]
            test.add(CallPair(prompt, (first.answered, second.answered)))
            tokens += first.tokens + second.tokens
            if test.is_different:
                return tokens
    return float("inf")


def make_row(title: str, name: str, ends: Sequence[float]) -> str:
    """Return a line of the table: the share of tries that see a change within each budget."""
    shares = [sum(each <= budget for each in ends) / len(ends) for budget in BUDGETS]
    middle = sorted(ends)[len(ends) // 2]
    shown = "not seen" if middle == float("inf") else f"{middle:,.0f}"
    return f"| {title} | {name} | {' | '.join(f'{share:.0%}' for share in shares)} | {shown} |"


def make_rows(title: str, base: Replies, changed: Replies, prompts: Sequence[str], tries: int) -> list[str]:
    """Return the lines of a condition: the share of tries that see it within each budget."""
    rows = []
    for name, same_seed, with_logprobs in (
        ("answers, other seed", False, False),
        ("answers, same seed", True, False),
        ("with logprobs", True, True),
    ):
        chosen = prompts[:PROMPT_COUNT_IF_LOGPROBS_OFFERED] if with_logprobs else prompts
        ends = [
            count_tokens_until_seen(
                Random(f"{title} {at}"), base, changed, chosen, same_seed=same_seed, with_logprobs=with_logprobs
            )
            for at in range(tries)
        ]
        rows.append(make_row(title, name, ends))
    return rows


async def find_prompts(engine: language.Engine) -> list[Case]:
    """Return ten border prompts of the unchanged model, by the search of `pramana same`."""

    async def send(case: Case, _: int, parameters: Mapping[str, Any]) -> Reply:
        settings = {**parameters, "cache_prompt": True}  # without logprobs, so that ten prompts are kept
        return engine.submit(case.turns, settings, lambda: False).result()

    found = await find_border_prompts([send, send], 100, {"temperature": 1.0}, seed=1_000)
    return list(found.cases)


def print_answer_rows(folder: Path, engine: language.Engine, tries: int) -> int:
    """Print the rows of border prompts; return the number of replies."""
    cases = asyncio.run(find_prompts(engine))
    prompts = [case.id for case in cases]
    base = collect_replies(engine, cases, Condition("unchanged"))
    for condition in CONDITIONS:
        used = open_engine(folder, condition.coarser_layers) if condition.coarser_layers else engine
        changed = collect_replies(used, cases, condition)
        print("\n".join(make_rows(condition.title, base, changed, prompts, tries)), flush=True)
    return SEEDS * len(cases) * (len(CONDITIONS) + 1)


def print_text_rows(folder: Path, engine: language.Engine, tries: int) -> int:
    """Print the rows of pinned text; return the number of replies. Sampling has no effect at temperature 0."""
    cases = list(islice(cases_of(CHEAP_TIER), DEFAULT_SUITE_PROMPT_COUNT))
    base = collect_texts(engine, cases, Condition("unchanged"))
    changes = [each for each in CONDITIONS if not each.parameters]
    for condition in changes:
        used = open_engine(folder, condition.coarser_layers) if condition.coarser_layers else engine
        changed = collect_texts(used, cases, condition)
        differing = sum(base[each][0].answered.text != changed[each][0].answered.text for each in base)
        ends = [count_tokens_of_texts(Random(f"{condition.title} {at}"), base, changed) for at in range(tries)]
        print(make_row(condition.title, f"text, {differing} of {len(cases)} differ", ends), flush=True)
    return len(cases) * (len(changes) + 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--only", choices=("answers", "text"), help="only the rows of border prompts, or of text")
    options = parser.parse_args(arguments)
    began, replies = time.monotonic(), 0
    heads = ("changed", "test", *(f"{budget:,} tokens" for budget in BUDGETS), "median tokens")
    print(f"| {' | '.join(heads)} |", f"| --- | --- |{' --: |' * (len(BUDGETS) + 1)}", sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as name:
        engine = open_engine(Path(name), 0)
        if options.only != "text":
            replies += print_answer_rows(Path(name), engine, options.tries)
        if options.only != "answers":
            replies += print_text_rows(Path(name), engine, options.tries)
    print(f"\n{replies:,} real replies, {time.monotonic() - began:.0f} s in one process.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
