"""Cases, plans and results for the tests of the store, fixed and generated."""

from collections.abc import Iterable, Iterator
from itertools import chain

from hypothesis import strategies as st

from pramana.hash import hash_case
from pramana.model import (
    Assertion,
    Case,
    Check,
    Facets,
    Failure,
    Outcome,
    Plan,
    Reply,
    Result,
    ResultKey,
    SourceLocation,
    Target,
    ToolCall,
    Turn,
    Usage,
)
from pramana.replies import encode_raw_response
from pramana.store.store import Store


def list_pending(store: Store, run: str, model: str | None = None) -> Iterator[tuple[ResultKey, Case]]:
    """Iterate the cases of a run that have no result yet."""
    return chain.from_iterable(store.cases.iterate_pending_chunks(run, model))


AWKWARD = "NUL \0, halves \ud83d and \ude00, side by side \ud83d\ude00, whole 😀, mark \ufdd0 and \ufdd00000, é, 语"
"""Text that the databases cannot store directly."""


def make_case(number: int) -> Case:
    return Case(
        id=f"case-{number}",
        kind="test_case",
        turns=(Turn("user", f"What is {number} and {number}?"),),
        facets=Facets("math", "easy", "en", ("sum",)),
        assertion=Assertion("contains_any", threshold=1),
        ideals=(str(2 * number),),
        source=SourceLocation("mine.jsonl", number + 1),
    )


def make_cases(count: int) -> Iterator[Case]:
    return (make_case(number) for number in range(count))


def make_plan(*models: str, repeats: int = 1) -> Plan:
    targets = tuple(Target(model, "fake", model, {"seed": 1}) for model in models or ("fake",))
    return Plan("mine", None, targets, repeats, {"temperature": 0}, "Be brief.", targets[0], {"limit": 3}, "0.1.0")


def make_check(outcome: Outcome = Outcome.PASSED, name: str = "contains_any") -> Check:
    return Check(name, "1", outcome, "because", 1.0, {"matched": ["4"]})


def make_result(key: ResultKey, outcome: Outcome = Outcome.PASSED, case_id: str = "case-1") -> Result:
    reply = Reply(
        "4",
        Usage(3, 1, 0),
        "fake-1",
        "fp",
        "stop",
        0.1,
        0.2,
        encode_raw_response({"id": "r"}),
        ("seed",),
        0.25,
        cached=True,
    )
    return Result(key, case_id, reply, None, (make_check(outcome),), "sha256:a", "sha256:b")


def make_key(of: Case, model: str = "fake", repeat: int = 0) -> ResultKey:
    return ResultKey(hash_case(of), model, "text", repeat)


texts = st.text(st.characters(codec=None) | st.sampled_from("\0\ud800\udc00\ufdd00\U0001f600"), max_size=12)
names = st.none() | texts
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
counts = st.none() | st.integers(0, 2**62)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
long_or_short = plain | st.builds(lambda value, times: [value] * times, plain, st.integers(200, 600))

checks = st.builds(
    Check,
    name=texts,
    version=texts,
    outcome=st.sampled_from(Outcome),
    reason=texts,
    value=numbers,
    evidence=st.dictionaries(texts, plain, max_size=3),
)
replies = st.builds(
    Reply,
    text=texts,
    usage=st.builds(Usage, counts, counts, counts),
    served_model=names,
    fingerprint=names,
    finish_reason=names,
    first_token_s=numbers,
    total_s=st.floats(0, 1e9),
    raw=st.none() | long_or_short.map(encode_raw_response),
    dropped=st.lists(texts, max_size=3).map(tuple),
    cost_usd=numbers,
    cached=st.booleans(),
    tool_calls=st.lists(st.builds(ToolCall, texts, texts, names), max_size=2).map(tuple),
)


def results_for(key: ResultKey) -> st.SearchStrategy[Result]:
    return st.builds(
        Result,
        key=st.builds(ResultKey, case=st.just(key.case), model=texts, variant=texts, repeat=st.integers(0, 2**31 - 1)),
        case_id=texts,
        reply=st.none() | replies,
        failure=st.none() | st.builds(Failure, texts, texts),
        checks=st.lists(checks, max_size=3).map(tuple),
        result_hash=names,
        digest=names,
    )


cases = st.builds(
    Case,
    id=texts,
    kind=st.sampled_from(("test_case", "scenario")),
    turns=st.lists(st.builds(Turn, st.sampled_from(("system", "user", "assistant")), texts), max_size=3).map(tuple),
    facets=st.builds(Facets, texts, texts, names, st.lists(texts, max_size=3).map(tuple)),
    assertion=st.none() | st.builds(Assertion, texts, st.booleans(), numbers | st.integers(0, 1), names, plain),
    ideals=st.lists(texts, max_size=3).map(tuple),
    name=names,
    expected_outcome=names,
    prompt_audio_url=names,
    tokens_est=counts,
    source=st.none() | st.builds(SourceLocation, texts, st.integers(0, 2**40)),
)
targets = st.builds(Target, texts, texts, texts, st.dictionaries(texts, plain, max_size=2))
plans = st.builds(
    Plan,
    suite=texts,
    suite_hash=names,
    targets=st.lists(targets, max_size=3).map(tuple),
    repeats=st.integers(1, 5),
    parameters=st.dictionaries(texts, plain, max_size=2),
    system_prompt=names,
    judge=st.none() | targets,
    selection=st.dictionaries(texts, plain, max_size=2),
    runner_version=texts,
    embedder=st.none() | targets,
)


def add_scoring(store: Store, run_id: str, label: str, judged: Iterable[tuple[ResultKey, tuple[Check, ...]]]) -> int:
    """Add a complete scoring."""
    with store.scorings.begin_rescoring(run_id, label) as scoring:
        scoring.add(list(judged))
    return scoring.number
