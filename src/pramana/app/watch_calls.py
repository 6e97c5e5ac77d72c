"""What the instruments of a watch take a day, in calls and cost, and which of them found nothing to measure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from pramana.analyse.instruments import INSTRUMENT_GROUPS, INSTRUMENTS
from pramana.analyse.numbers import pluralise
from pramana.app.views import View
from pramana.border_search import MAX_ANSWER_TOKENS_TO_TRY
from pramana.day_runs import (
    DAILY_ANSWER_CALLS,
    SEARCH_CALLS,
    PinnedPrompts,
    RunDesign,
    design_answers,
    design_logprobs,
    design_search,
    make_costliest_prompts,
    read_pinned_prompts,
)
from pramana.errors import PramanaError
from pramana.planning import estimate, resolve_model, with_registered_providers
from pramana.request import RunRequest
from pramana.run.accounts import ProviderAccess
from pramana.store.store import Store
from pramana.store.watches import RunCalls, RunPurpose, Watch, WatchDay

CASES_TITLE = "test cases"
_PURPOSES_BY_INSTRUMENT: Mapping[str, tuple[RunPurpose, ...]] = {
    "answers": ("search", "answers"),
    "logprobs": ("logprobs",),
}


class InstrumentCallsView(View, frozen=True, kw_only=True):
    """The calls of a day that some instruments are measured on."""

    title: Annotated[str, Meta(description="`test cases`, or the instrument that has prompts of its own")]
    instruments: tuple[str, ...]
    calls: Annotated[
        int | None,
        Meta(description="Most calls a day to the model; null: the cases cannot be read, or a run was deleted"),
    ]
    cost_usd: Annotated[float | None, Meta(description="Of these calls and their judges; null: a price is unknown")]
    first_day_calls: Annotated[
        int,
        Meta(
            description="Calls of the search for border prompts, beside `calls`: at most on the first day of a "
            "baseline, or sent on the last day"
        ),
    ] = 0
    first_day_cost_usd: Annotated[float | None, Meta(description="Cost of that search; null: a price is unknown")] = 0.0
    is_estimate: Annotated[
        bool, Meta(description="Whether calls and cost are an estimate; if false, they are those of the last day")
    ] = True


def estimate_instrument_calls(
    store: Store, request: RunRequest, instruments: Sequence[str], reach: ProviderAccess | None = None
) -> tuple[InstrumentCallsView, ...]:
    """Return what a day of these instruments takes; nothing is sent."""
    reach = reach or ProviderAccess()
    return tuple(_estimate_rows(store, request, instruments, reach))


def _estimate_rows(
    store: Store, request: RunRequest, instruments: Sequence[str], reach: ProviderAccess
) -> Iterator[InstrumentCallsView]:
    on_cases = tuple(each for each in instruments if each not in _PURPOSES_BY_INSTRUMENT)
    calls, cost = _estimate_run(store, RunDesign(request), reach)
    yield InstrumentCallsView(title=CASES_TITLE, instruments=on_cases, calls=calls, cost_usd=cost)
    if "answers" in instruments:
        _, cost = _estimate_run(store, design_answers(request, make_costliest_prompts()), reach)
        search = design_search(request)
        longest = replace(search, request=replace(search.request, max_tokens=MAX_ANSWER_TOKENS_TO_TRY[-1]))
        first_calls, first_cost = _estimate_run(store, longest, reach)
        yield InstrumentCallsView(
            title="answers",
            instruments=("answers",),
            calls=DAILY_ANSWER_CALLS,
            cost_usd=cost,
            first_day_calls=SEARCH_CALLS,
            first_day_cost_usd=first_cost * SEARCH_CALLS / first_calls if first_calls and first_cost else first_cost,
        )
    if "logprobs" in instruments:
        calls = cost = None
        try:
            target = resolve_model(request.models[0], with_registered_providers(store, reach))
        except PramanaError:
            pass
        else:
            calls, cost = _estimate_run(store, design_logprobs(request, target.provider), reach)
        yield InstrumentCallsView(title="logprobs", instruments=("logprobs",), calls=calls, cost_usd=cost)


def _estimate_run(store: Store, design: RunDesign, reach: ProviderAccess) -> tuple[int | None, float | None]:
    """Return the calls to the model and the cost of a run; None if its cases or its model cannot be read here."""
    try:
        found = estimate(store, design.request, reach, built_in_cases=design.cases)
    except PramanaError:
        return None, None
    return found.result_count, found.cost_usd


def measure_instrument_calls(store: Store, watch: Watch, days: Sequence[WatchDay]) -> tuple[InstrumentCallsView, ...]:
    """Return what the last measured day took, as far as its runs are stored; before the first day, an estimate."""
    measured = [each.day for each in days if each.status == "measured"]
    if not measured:
        return estimate_instrument_calls(store, watch.request, watch.instruments)
    linked = store.watches.list_calls(watch, measured[-1])
    on_cases = tuple(each for each in watch.instruments if each not in _PURPOSES_BY_INSTRUMENT)
    rows: list[tuple[str, tuple[str, ...], tuple[RunPurpose, ...]]] = [(CASES_TITLE, on_cases, ("batch",))]
    rows += [(name, (name,), each) for name, each in _PURPOSES_BY_INSTRUMENT.items() if name in watch.instruments]
    return tuple(
        _make_row_of_sent_calls(store, title, names, [each for each in linked if each.purpose in purposes])
        for title, names, purposes in rows
    )


def _make_row_of_sent_calls(
    store: Store, title: str, instruments: tuple[str, ...], linked: Sequence[RunCalls]
) -> InstrumentCallsView:
    if any(each.calls is None for each in linked):
        return InstrumentCallsView(title=title, instruments=instruments, calls=None, cost_usd=None, is_estimate=False)
    daily = [each for each in linked if each.purpose != "search"]
    searches = [each for each in linked if each.purpose == "search"]
    return InstrumentCallsView(
        title=title,
        instruments=instruments,
        calls=sum(each.calls or 0 for each in daily),
        cost_usd=_sum_costs(store, daily),
        first_day_calls=sum(each.calls or 0 for each in searches),
        first_day_cost_usd=_sum_costs(store, searches),
        is_estimate=False,
    )


def _sum_costs(store: Store, linked: Sequence[RunCalls]) -> float | None:
    spent = [store.results.sum_spending(each.run_id) for each in linked]
    return None if any(each.unknown_cost for each in spent) else sum(each.cost_usd for each in spent)


def count_calls_of_day(store: Store, watch: Watch, days: Sequence[WatchDay]) -> int | None:
    """Return the calls to the model on the last measured day, whatever for; None before it, and if a run is gone."""
    measured = next((each.day for each in reversed(days) if each.status == "measured"), None)
    calls = [each.calls for each in store.watches.list_calls(watch, measured)] if measured else [None]
    return None if None in calls else sum(each or 0 for each in calls)


def explain_unusable_instruments(basis: Mapping[str, Any] | None, instruments: Sequence[str]) -> dict[str, str]:
    """Return by instrument why a period of a watch with these instruments measures nothing with it."""
    found = dict[str, str]()
    pinned = read_pinned_prompts(basis)
    if pinned is not None and not pinned.cases:
        found["answers"] = (
            f"No border prompt was found in {pluralise(pinned.search_calls, 'call')} {_format_search_days(pinned)}: "
            "the answers were always the same, or empty."
        )
    if (basis or {}).get("has_logprobs") is False:
        found["logprobs"] = "The endpoint sent no logprobs."
    if found.keys() >= {*instruments}:
        return found
    return {name: f"{reason} The watch goes on without this instrument." for name, reason in found.items()}


def explain_unfinished_search(search_calls: int) -> str:
    """Return why `answers` measures nothing yet: a budget has ended its search after so many calls."""
    return (
        f"Its prompts are not found yet: the budget of a day ended the search after {search_calls} of at most "
        f"{SEARCH_CALLS} calls. The next day continues it."
    )


def _format_search_days(pinned: PinnedPrompts) -> str:
    if pinned.search_began in (None, pinned.search_day):
        return f"on {pinned.search_day}"
    return f"from {pinned.search_began} to {pinned.search_day}"


def name_instrument_groups(instruments: Sequence[str]) -> list[str]:
    """Return the groups of instruments in the words of `--instruments`.

    >>> name_instrument_groups(["pass_rate_down", "pass_rate_up", "longer"])
    ['pass rate', 'length']
    """
    groups = {name: group for group, names in INSTRUMENT_GROUPS.items() for name in names}
    known = [groups.get(each, each) for each in instruments if each in INSTRUMENTS]
    return [each.replace("_", " ") for each in dict.fromkeys(known)]
