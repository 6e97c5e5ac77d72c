"""Two endpoints, tested pair by pair: real servers on loopback, the store, budgets, failures and Ctrl-C."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

import pytest

from pramana.app.sameness import SameView, same_view
from pramana.bench import Progress, execute
from pramana.errors import BudgetSpent, InvalidInput, PramanaError
from pramana.model import Run
from pramana.report.sameness import render_test
from pramana.request import Limits
from pramana.run import asking
from pramana.run.engine import INTERRUPTED_BY_USER_REASON, Stop
from pramana.sameness import SamenessRequest, create_sameness_run
from pramana.store import open_store

from ..loopback.openai import OpenAIWire
from ..loopback.server import Fault, Loopback
from ..stores import home_store

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_RETRY_WAIT_S", 0.001)


def make_answers(*words: str, weights: Sequence[float] | None = None, seed: int = 1) -> Callable[[Any], str]:
    rng = random.Random(seed)
    return lambda _: rng.choices(words, weights)[0]


class EndedTest(NamedTuple):
    """A test that has ended."""

    run: Run
    view: SameView
    servers: Sequence[Loopback]
    stop: Stop


def run_test(
    *says: Any,
    servers: Sequence[Mapping[str, Any]] = ({}, {}),
    on_progress: Callable[..., None] = lambda _, stop: None,
    sittings: int = 1,
    **given: Any,
) -> EndedTest:
    """Test two servers that say this, each with more options for its loopback."""

    async def go() -> EndedTest:
        async with AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(Loopback(OpenAIWire(each), **options))
                for each, options in zip(says, servers, strict=True)
            ]
            store = open_store(home_store())
            stack.callback(store.close)
            models = tuple(f"{server.url}#m" for server in opened)
            limits = given.pop("limits", Limits(concurrency=4))
            run = create_sameness_run(store, SamenessRequest(models=models, limits=limits, **{"seed": 1, **given}))
            for _ in range(sittings):
                stop = Stop()
                run = await asyncio.wait_for(execute(store, run, limits, partial(on_progress, stop=stop), stop), 60)
            return EndedTest(run, same_view(store, run), opened, stop)

    return asyncio.run(go())


def test_the_same_model_twice_uses_all_calls_and_shows_no_difference() -> None:
    tested = run_test(make_answers("yes", "no"), make_answers("yes", "no", seed=2), calls=120)
    view = tested.view
    assert (tested.run.status, view.decision, view.exit_code) == ("finished", "no_difference", 0)
    assert sum(server.count for server in tested.servers) == view.calls == 120
    assert view.pairs >= 45
    assert [each.change for each in view.would_have_seen] == ["swap", "shift", "shift"]
    assert 4 <= view.border_prompts <= 7, "120 calls leave 30 for the search: 7 candidates, sent twice to both"
    assert {each.name for each in view.instruments} >= {"answers", "text", "length"}
    assert view.input_tokens > 0


def test_another_model_is_seen_before_the_calls_are_spent() -> None:
    tested = run_test(make_answers("yes", "no"), make_answers("maybe", "no"), calls=400)
    view = tested.view
    assert (tested.run.status, view.decision, view.exit_code) == ("finished", "different", 1)
    assert view.calls < 300
    assert "over 1,000 to 1" in view.sentence
    assert view.examples
    assert view.would_have_seen == ()


def test_the_order_within_pairs_is_drawn_by_lot_and_both_get_the_same_requests() -> None:
    tested = run_test("yes", "yes", calls=100)
    store = open_store(home_store())
    try:
        results = [result for _, result in store.results.iterate(tested.run.id)]
    finally:
        store.close()
    searched = sum(result.key.repeat < 25 for result in results) // 2
    first, second = ([each.body for each in server.requests][searched:] for server in tested.servers)

    def sort_requests(bodies: Sequence[Any]) -> list[str]:
        return sorted(str((each["messages"], each.get("seed"), each["temperature"])) for each in bodies)

    assert sort_requests(first) == sort_requests(second)
    order = [result.key.model == tested.view.models[0] for result in results if result.key.repeat >= 25][::2]
    assert 0.2 < sum(order) / len(order) < 0.8
    assert {body["temperature"] for body in first} == {0}, "no border prompt was found, since all answers are yes"


def test_a_model_against_itself_is_allowed_and_named_a_null_test() -> None:
    async def go() -> SameView:
        async with Loopback(OpenAIWire(make_answers("a", "b"))) as server:
            store = open_store(home_store())
            try:
                model = f"{server.url}#m"
                run = create_sameness_run(store, SamenessRequest(models=(model, model), calls=80, seed=3))
                return same_view(store, await execute(store, run, Limits(concurrency=4)))
            finally:
                store.close()

    view = asyncio.run(go())
    assert view.decision == "no_difference"
    assert view.models[1] == f"{view.models[0]} (2)"
    assert any("one model at one address" in each for each in view.caveats)


def test_a_side_that_fails_often_is_a_finding_and_its_pairs_do_not_count() -> None:
    failing = {"faults": [Fault("blocked")], "chance": 0.5}
    view = run_test(make_answers("yes", "no"), make_answers("yes", "no"), servers=({}, failing), calls=200).view
    assert view.decision != "different"
    assert view.dropped == view.failed[1] > 20
    assert view.failed[0] == 0
    assert view.is_failure_rate_different
    assert any("fails more often" in each for each in view.findings)


def test_a_side_that_never_answers_cannot_be_tested() -> None:
    view = run_test("yes", "yes", servers=({}, {"faults": [Fault("blocked")]}), calls=60).view
    assert (view.decision, view.exit_code, view.pairs) == ("untested", 4, 0)


def test_a_slower_side_is_a_finding_of_its_own() -> None:
    view = run_test("yes", "yes", servers=({"latency_s": 0.1}, {"latency_s": 0.4}), calls=100).view
    assert (view.decision, view.is_latency_different) == ("no_difference", True)
    assert view.findings[0].startswith(f"{view.models[1]} is slower than {view.models[0]}")


def test_a_token_budget_ends_the_test_with_the_answer_so_far() -> None:
    limits = Limits(concurrency=4, max_total_tokens=1_500)
    tested = run_test(make_answers("yes", "no"), make_answers("yes", "no"), limits=limits, calls=4_000)
    assert isinstance(tested.stop.error, BudgetSpent)
    assert tested.run.status == "stopped"
    assert tested.view.calls < 300
    assert tested.view.input_tokens + tested.view.output_tokens < 2_000
    assert tested.view.decision in ("no_difference", "untested")


def test_a_cost_budget_needs_a_price() -> None:
    with pytest.raises(InvalidInput, match="no price is known"):
        run_test("yes", "yes", limits=Limits(max_cost_usd=1.0), calls=60)


def test_a_stopped_test_is_resumed_where_it_ended() -> None:
    def stop_early(progress: Progress, stop: Stop) -> None:
        if 40 <= progress.stored_count < 60:
            stop(INTERRUPTED_BY_USER_REASON)

    tested = run_test(
        make_answers("yes", "no"), make_answers("yes", "no", seed=2), on_progress=stop_early, calls=120, sittings=2
    )
    assert (tested.run.status, tested.run.stored) == ("finished", 120)
    assert sum(server.count for server in tested.servers) <= 122
    assert tested.view.pairs >= 44


def test_an_interrupted_test_gives_the_answer_so_far() -> None:
    def stop_early(progress: Progress, stop: Stop) -> None:
        if progress.stored_count >= 90:
            stop(INTERRUPTED_BY_USER_REASON)

    slow: Any = {"latency_s": 0.5}
    says = make_answers("yes", "no"), make_answers("yes", "no", seed=2)
    tested = run_test(*says, servers=(slow, slow), on_progress=stop_early, calls=200)
    assert tested.run.status == "interrupted"
    assert 10 < tested.view.pairs < 60
    assert f"Interrupted after {tested.view.calls} of at most 200 calls.\n" in render_test(tested.view)


def test_a_test_that_is_interrupted_before_its_first_pair_says_so_and_how_to_resume() -> None:
    def stop_early(progress: Progress, stop: Stop) -> None:
        if progress.stored_count >= 20:
            stop(INTERRUPTED_BY_USER_REASON)

    slow: Any = {"latency_s": 0.5}
    tested = run_test("yes", "yes", servers=(slow, slow), on_progress=stop_early, calls=200)
    assert (tested.view.pairs, tested.view.status) == (0, "interrupted")
    text = render_test(tested.view, f"pramana run --resume {tested.run.id}")
    told = " ".join(text.split())
    assert f"Interrupted after {tested.view.calls} of at most 200 calls. These calls looked for border prompts" in told
    assert f"Resume with: pramana run --resume {tested.run.id}" in text.splitlines()
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"models": ("fake",)}, "models"),
        ({"models": ("fake", "fake", "fake")}, "models"),
        ({"calls": 3}, "calls"),
        ({"calls": "many"}, "calls"),
        ({"temperature": -1}, "temperature"),
        ({"tier": "nope"}, "nope"),
        ({"models": ("fake", "nonsense model")}, "nonsense"),
        ({"models": ("fake", "fake-voice")}, "text"),
        ({"limits": Limits(concurrency=0)}, "concurrency"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_stored(given: dict[str, Any], message: str) -> None:
    store = open_store(home_store())
    try:
        with pytest.raises(PramanaError, match=message):
            create_sameness_run(store, SamenessRequest(**{"models": ("fake", "fake"), **given}))
        assert store.runs.read_page()[1] == 0
    finally:
        store.close()
