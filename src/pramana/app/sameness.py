"""Are two endpoints the same model? Start a test, list tests, and read the answer of a stored run of two models.

A test is a run whose calls come in pairs: servers queue it like any run, and it is cancelled, resumed and deleted like
any run. The answer is computed from the stored replies, so that it can be read while the test is under way.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from pramana.analyse.endpoints import Decision, EndpointFinding, InstrumentEvidence, make_endpoint_test
from pramana.analyse.numbers import format_duration, pluralise
from pramana.analyse.same_power import Change, simulate_seen_shares
from pramana.app import App, User, use_case
from pramana.app.providers import make_server_reach
from pramana.app.views import ListPage, PageRequest, View
from pramana.model import Run, RunStatus
from pramana.sameness import SAMENESS_SUITE_NAME_PREFIX, RunPairs, SamenessRequest, create_sameness_run, read_pairs
from pramana.store.store import Store

INSTRUMENT_LABELS = {
    "answers": "answers to border prompts",
    "commonness": "how common the answer is",
    "text": "text of other replies",
    "logprobs": "logprob of the first token",
    "passed": "pass rate",
    "length": "length of replies",
    "latency": "latency",
}
MAX_SHOWN_CHARS = 2_000
"""Characters of a prompt or reply in an example."""
CALL_ORDER_NOT_DRAWN = (
    "The run did not draw by lot which model is called first, so the test also assumes that time and load affected "
    "both models alike."
)


class PairInstrumentView(View, frozen=True, kw_only=True):
    """What one instrument has seen."""

    name: str
    label: str
    pairs: int
    differing: Annotated[int, Meta(description="Pairs in which the two values differ")]
    odds: Annotated[float, Meta(description="Odds against chance, which began at 1")]
    first: Annotated[float | None, Meta(description="Of the first endpoint; null for texts")]
    second: Annotated[float | None, Meta(description="Of the second endpoint; null for texts")]


class ReplyCountView(View, frozen=True, kw_only=True):
    """A reply, and how often an endpoint gave it."""

    text: str
    count: int


class PromptExampleView(View, frozen=True, kw_only=True):
    """The replies of both endpoints to one prompt, the most frequent first."""

    prompt: str
    is_border: Annotated[bool, Meta(description="Whether the prompt is a border prompt")]
    first: tuple[ReplyCountView, ...]
    second: tuple[ReplyCountView, ...]


class SeenShareView(View, frozen=True, kw_only=True):
    """How often a change would have been seen, in a simulation with the observed replies."""

    change: Change
    size: Annotated[float, Meta(description="Share of the answers to border prompts that become another; 1 for a swap")]
    seen: Annotated[float, Meta(description="Share of simulated tries in which the change was seen")]
    tries: int


class SameView(View, frozen=True, kw_only=True):
    """The answer whether two endpoints are the same, as far as the calls go, and the evidence for it."""

    run: str
    status: RunStatus
    reason: str | None
    models: tuple[str, str]
    created_at: str
    decision: Decision
    sentence: str
    pairs: Annotated[int, Meta(description="Pairs of calls that both endpoints answered")]
    calls: Annotated[int, Meta(description="Stored calls, those of the search for border prompts included")]
    max_calls: Annotated[
        int | None, Meta(description="Maximum number of calls; null for a run that is no test of two endpoints")
    ]
    odds: Annotated[float, Meta(description="Largest odds against chance so far, over all instruments that decide")]
    p_value: Annotated[float, Meta(description="Valid whenever one looks: one over the largest odds")]
    instruments: tuple[PairInstrumentView, ...]
    latency: PairInstrumentView
    is_latency_different: bool
    failed: Annotated[tuple[int, int], Meta(description="Calls of each endpoint that failed")]
    dropped: Annotated[int, Meta(description="Pairs that do not count because a call failed")]
    is_failure_rate_different: bool
    border_prompts: Annotated[int, Meta(description="Border prompts that were sent in pairs")]
    findings: Annotated[tuple[str, ...], Meta(description="Sentences about latency and errors, if they differ")]
    caveats: Annotated[tuple[str, ...], Meta(description="What limits the answer")]
    would_have_seen: Annotated[
        tuple[SeenShareView, ...], Meta(description="Simulated; empty unless no difference was seen")
    ]
    examples: tuple[PromptExampleView, ...]
    input_tokens: int
    output_tokens: int
    cost_usd: Annotated[float, Meta(description="Cost of all calls whose cost is known")]
    is_cost_unknown: Annotated[bool, Meta(description="Whether the cost of a call is unknown")]

    @property
    def exit_code(self) -> Literal[0, 1, 4]:
        """Return the exit code of the command line."""
        return {"no_difference": 0, "different": 1, "untested": 4}[self.decision]  # type: ignore[return-value]


class SameListView(View, frozen=True, kw_only=True):
    """A test of two endpoints in a list."""

    run: str
    name: str | None
    status: RunStatus
    models: tuple[str, str]
    created_at: str
    calls: int
    max_calls: int


@use_case("editor")
def start_test(app: App, user: User, request: SamenessRequest) -> SameListView:
    """Queue a test whether two endpoints are the same; a server executes it."""
    run = create_sameness_run(app.store, request, make_server_reach(app), user.name)
    app.on_run_queued()
    return _list_view(run)


@use_case("viewer")
def list_tests(app: App, _: User, page: PageRequest) -> ListPage[SameListView]:
    """Return the tests of two endpoints, newest first."""
    found, total = app.store.runs.read_page(suite=SAMENESS_SUITE_NAME_PREFIX, limit=page.page_size, offset=page.offset)
    return ListPage([_list_view(run) for run in found if run.plan.pairing], total)


@use_case("viewer", "heavy")
def read_test(app: App, _: User, run_id: str, models: tuple[str, str] | None = None) -> SameView:
    """Return the answer of a test, or of any stored run: of its two models, or of the two that are named."""
    run = app.store.runs.find(run_id)
    key = ("same", run.id, run.status, run.stored, models)
    return app.comparison_cache.get(key, lambda: same_view(app.store, run, models))


def _list_view(run: Run) -> SameListView:
    first, second = run.plan.targets
    return SameListView(
        run=run.id,
        name=run.name,
        status=run.status,
        models=(first.typed, second.typed),
        created_at=run.created,
        calls=run.stored,
        max_calls=run.expected,
    )


def same_view(store: Store, run: Run, models: tuple[str, str] | None = None) -> SameView:
    """Return the answer of a stored run with its evidence."""
    reading = read_pairs(store, run, models)
    pairs, (first, second) = reading.pairs, reading.models
    finding = make_endpoint_test(pairs).make_finding()
    spent = store.results.sum_spending(run.id)
    border_prompts = len({pair.prompt for pair in pairs if pair.is_border})
    seen = simulate_seen_shares(pairs) if finding.decision == "no_difference" else ()
    return SameView(
        run=run.id,
        status=run.status,
        reason=run.reason,
        models=(first, second),
        created_at=run.created,
        decision=finding.decision,
        sentence=finding.sentence,
        pairs=finding.pairs,
        calls=run.stored,
        max_calls=run.plan.pairing.max_calls if run.plan.pairing else None,
        odds=1 / finding.p_value,
        p_value=finding.p_value,
        instruments=tuple(
            _instrument_view(each) for name in INSTRUMENT_LABELS for each in finding.evidence if each.name == name
        ),
        latency=_instrument_view(finding.latency),
        is_latency_different=finding.is_latency_different,
        failed=finding.failed,
        dropped=finding.dropped,
        is_failure_rate_different=finding.is_failure_rate_different,
        border_prompts=border_prompts,
        findings=tuple(_describe_undecisive_differences(finding, first, second)),
        caveats=tuple(_find_caveats(run, reading, border_prompts)),
        would_have_seen=tuple(
            SeenShareView(change=each.change, size=each.size, seen=each.seen, tries=each.tries) for each in seen
        ),
        examples=tuple(
            PromptExampleView(
                prompt=each.prompt[:MAX_SHOWN_CHARS],
                is_border=each.is_border,
                first=tuple(ReplyCountView(text=text[:MAX_SHOWN_CHARS], count=count) for text, count in each.first),
                second=tuple(ReplyCountView(text=text[:MAX_SHOWN_CHARS], count=count) for text, count in each.second),
            )
            for each in finding.examples
        ),
        input_tokens=reading.input_tokens,
        output_tokens=reading.output_tokens,
        cost_usd=spent.cost_usd,
        is_cost_unknown=spent.unknown_cost,
    )


def _instrument_view(evidence: InstrumentEvidence) -> PairInstrumentView:
    first, second = evidence.values or (None, None)
    return PairInstrumentView(
        name=evidence.name,
        label=INSTRUMENT_LABELS[evidence.name],
        pairs=evidence.pairs,
        differing=evidence.differing,
        odds=evidence.odds,
        first=first,
        second=second,
    )


def _describe_undecisive_differences(finding: EndpointFinding, first: str, second: str) -> Iterator[str]:
    """Yield a sentence for each proven difference that does not decide."""
    if finding.is_latency_different and (values := finding.latency.values):
        slower, faster = (second, first) if values[1] > values[0] else (first, second)
        times = sorted(values, reverse=True)
        yield (
            f"{slower} is slower than {faster}: median latency {format_duration(times[0])} and "
            f"{format_duration(times[1])} in {pluralise(finding.latency.pairs, 'pair')}."
        )
    if finding.is_failure_rate_different:
        worse, better = (second, first) if finding.failed[1] > finding.failed[0] else (first, second)
        counts = sorted(finding.failed, reverse=True)
        calls = finding.pairs + finding.dropped
        yield f"{worse} fails more often than {better}: {counts[0]:,} and {counts[1]:,} of {calls:,} calls failed."


def _find_caveats(run: Run, reading: RunPairs, border_prompts: int) -> Iterator[str]:
    """Yield a sentence for each thing that limits the answer."""
    first, second = (each for each in run.plan.targets if each.typed in reading.models)
    if (first.provider, first.model, first.arguments) == (second.provider, second.model, second.arguments):
        yield "Both names are one model at one address: a difference would be a false alarm."
    if run.plan.pairing is None:
        yield CALL_ORDER_NOT_DRAWN
    elif not border_prompts and reading.pairs:
        yield "No border prompt was found: the answers to all candidates were always the same, or empty."
    for model, ours, theirs in zip(
        reading.models, reading.dropped_parameters, reversed(reading.dropped_parameters), strict=True
    ):
        if only := sorted(ours - theirs):
            it = "them" if len(only) > 1 else "it"
            yield (
                f"{model} rejected {', '.join(only)}, so it was called without {it}; the other endpoint was called "
                f"with {it}."
            )
