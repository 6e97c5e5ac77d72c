"""Runs whose replies a judge judged, as tests of labels and reports need them: made in a store, without any model."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pramana import planning
from pramana.bench import execute
from pramana.hash import hash_case
from pramana.model import Assertion, Case, Check, Facets, Outcome, Plan, Reply, Result, ResultKey, Run, Target, Turn
from pramana.request import Limits, RunRequest
from pramana.store.store import Store

QUESTION = "Is it polite?"


def make_judged_case(number: int, category: str = "safety") -> Case:
    return Case(
        f"{category}-{number:03}",
        "test_case",
        (Turn("user", f"Ask me question {number}."),),
        Facets(category, "easy"),
        Assertion("llm_judge", judge_prompt=QUESTION),
        ideals=("Please.",) if number == 0 else (),
    )


def make_verdict(passed: bool | None, judge: str = "openai:gpt-5", version: str = "1") -> Check:
    outcome = Outcome.UNSCORED if passed is None else Outcome.PASSED if passed else Outcome.FAILED
    return Check("llm_judge", version, outcome, f"{judge} decided", evidence={"judge": judge, "answers": ["YES"]})


def add_judged_run(
    store: Store,
    verdicts: Mapping[str, Sequence[bool | None]] | Sequence[bool | None],
    *,
    judge: str = "openai:gpt-5",
    categories: Sequence[str] = ("safety",),
    repeats: int = 1,
) -> Run:
    """Store a finished run with the verdicts of a judge, by model or of one model."""
    by_model = dict(verdicts) if isinstance(verdicts, Mapping) else {"fake:a-model": verdicts}
    count = len(next(iter(by_model.values()))) // repeats
    cases = [make_judged_case(number, categories[number % len(categories)]) for number in range(count)]
    targets = tuple(Target(model, "fake", model) for model in by_model)
    plan = Plan("judged", None, targets, repeats=repeats, judge=Target(judge, "openai", judge))
    run = store.runs.create(plan, cases)
    results = [
        Result(
            ResultKey(hash_case(cases[at // repeats]), model, repeat=at % repeats),
            cases[at // repeats].id,
            Reply(f"Reply {at}"),
            None,
            (make_verdict(verdict, judge),),
            None,
            None,
        )
        for model, of_model in by_model.items()
        for at, verdict in enumerate(of_model)
    ]

    async def write() -> None:
        async with store.results.make_writer(run.id, lambda _: None, "a test") as writer:
            await writer.put(results)

    store.queue.claim(run.id, "a test")
    with ThreadPoolExecutor(1) as threads:  # an event loop may be running in this one, as Playwright's does
        threads.submit(lambda: asyncio.run(write())).result()
    store.queue.finish(run.id, "a test", "finished")
    return store.runs.read(run.id)


def evaluate_with_judge(store: Store, judge: str, case_count: int = 3) -> Run:
    """Evaluate `fake:echo` in this process, with replies that this judge judges."""
    cases = tuple(make_judged_case(number) for number in range(case_count))
    run = planning.create_run(store, RunRequest(cases=cases, models=("fake:echo",), judge=judge))
    with ThreadPoolExecutor(1) as threads:  # an event loop may be running in this one
        return threads.submit(lambda: asyncio.run(execute(store, run, Limits()))).result()


def judge_again(store: Store, run: Run, verdicts: Iterable[bool], judge: str) -> None:
    """Add a scoring with these verdicts, in the order of the results."""
    pairs = list(zip(store.results.iterate(run), verdicts, strict=True))
    with store.scorings.begin_rescoring(run.id, f"judged by {judge}") as scoring:
        scoring.add([(result.key, (make_verdict(passed, judge),)) for (_, result), passed in pairs])
