"""The runs of one day of a watch: what each asks, and what its results add to the day. Nothing here sends anything.

A day has one run with the cases of the watch. The instruments `answers` and `logprobs` have prompts of their own, which
are runs beside it, because they have other parameters. On the first day of a period, the border prompts of `answers`
are searched within a stated number of calls; if the budget of the day ends the search, later days continue it. What was
found is kept in the basis of the period, so that later days send the same prompts even if the run of the search is
deleted.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pramana.analyse.border_prompts import make_border_case, make_border_cases
from pramana.analyse.features import list_check_versions, make_border_days, make_logprob_days
from pramana.analyse.instruments import BORDER_VARIANT, PromptDay
from pramana.border_search import MAX_ANSWER_TOKENS_TO_TRY, choose_border_prompts, read_search_results
from pramana.hash import hash_case
from pramana.model import Case, Plan, PromptSearch, Result, Run
from pramana.planning import resolve_model, with_registered_providers
from pramana.providers.logprobs import logprob_parameters
from pramana.request import RunRequest
from pramana.run.accounts import ProviderAccess
from pramana.store.records import plan_to_plain
from pramana.store.store import Store
from pramana.store.watches import RunPurpose, Watch, WatchRun

SEARCH_CALLS = DAILY_ANSWER_CALLS = 192
"""The most calls of the search for border prompts, and the most calls of a day with those that it found."""
MAX_PINNED_PROMPTS = 4
"""Few prompts, each sent often: with more, the total variation of a day is mostly the noise of few calls."""
LOGPROB_PROMPT_COUNT = 8
"""Prompts whose first token's logprobs are read, with one call a day each."""
SIDE_PURPOSES: Sequence[RunPurpose] = ("logprobs", "search", "answers")
"""The runs beside that of the cases, in the order in which they are sent: the few calls first, so that a small budget
leaves some for each instrument."""
FIXED_ANSWERS_PER_PROMPT, FIXED_MAX_ANSWER_TOKENS = 8, 16
"""Calls with each of the 24 candidates, and output tokens of an answer, in periods that began before there was a
search: they go on as they began."""
_FIXED_SET_MARK = f'"variant":"{BORDER_VARIANT}"'
"""In the stored features of a day that sent border prompts; with a search, the basis has them too."""
_SEARCH_SEED = 1


class RunDesign(Struct, frozen=True):
    """A run of a day that is to be sent."""

    request: RunRequest
    cases: tuple[Case, ...] = ()
    """Prompts of this program; empty: the cases of the request."""
    search: PromptSearch | None = None


class PinnedPrompts(Struct, frozen=True):
    """The border prompts of a period."""

    cases: tuple[Case, ...]
    """Empty if the search found none."""
    max_answer_tokens: int
    repeats: int
    search_calls: int = 0
    """The calls of the search, known until its prompts were sent, and for good where it found none."""
    search_day: str | None = None
    """The day on which the search ended, known as long as its calls."""
    search_began: str | None = None
    """The first day of the search."""
    is_fixed_set: bool = False
    """Whether the period began before there was a search; its basis keeps no prompts."""

    def to_plain(self) -> dict[str, Any]:
        """Return what the basis of a period keeps."""
        return {
            "prompts": [{"id": each.id, "text": each.turns[0].text} for each in self.cases],
            "answer_length": self.max_answer_tokens,
            "calls": self.search_calls,
            "day": self.search_day,
            "began": self.search_began,
        }


def read_pinned_prompts(basis: Mapping[str, Any] | None) -> PinnedPrompts | None:
    """Return the border prompts that the basis of a period has; None if it has none yet."""
    stated = (basis or {}).get("border_search")
    if stated is None:
        return None
    cases = tuple(make_border_case(each["id"], each["text"]) for each in stated["prompts"])
    pinned = _make_pinned_prompts(cases, stated["answer_length"], stated["calls"], stated["day"])
    return replace(pinned, search_began=stated.get("began", stated["day"]))


def make_costliest_prompts() -> PinnedPrompts:
    """Return as many border prompts as a period can have, with the longest answers, to estimate the cost of a day."""
    return _make_pinned_prompts(
        make_border_cases()[:MAX_PINNED_PROMPTS], MAX_ANSWER_TOKENS_TO_TRY[-1], SEARCH_CALLS, None
    )


def _make_pinned_prompts(
    cases: tuple[Case, ...], max_answer_tokens: int, search_calls: int, search_day: str | None
) -> PinnedPrompts:
    return PinnedPrompts(cases, max_answer_tokens, DAILY_ANSWER_CALLS // max(1, len(cases)), search_calls, search_day)


# ── Requests ──


def make_day_request(watch: Watch, day: str) -> RunRequest:
    """Return the request for the run of a day."""
    limits = replace(watch.request.limits, max_cost_usd=watch.budget_usd_per_day)
    return replace(watch.request, name=f"{watch.shown_name} {day}"[-100:], limits=limits, cache=False)


def design_search(request: RunRequest, earlier_runs: Sequence[str] = ()) -> RunDesign:
    """Return the run that searches border prompts, or continues the search of earlier runs."""
    search = PromptSearch(_SEARCH_SEED, SEARCH_CALLS, MAX_PINNED_PROMPTS, tuple(earlier_runs))
    return RunDesign(_make_prompt_request(request), make_border_cases(), search)


def design_answers(request: RunRequest, pinned: PinnedPrompts) -> RunDesign:
    """Return the run of a day's border prompts: sampled, so that their answers have a distribution."""
    asked = _make_prompt_request(request, max_tokens=pinned.max_answer_tokens, repeats=pinned.repeats)
    return RunDesign(asked, pinned.cases)


def design_logprobs(request: RunRequest, provider: str) -> RunDesign:
    """Return the run of a day's prompts for logprobs."""
    asked = _make_prompt_request(
        request,
        max_tokens=16 if provider == "openai-responses" else 1,  # this format takes no fewer
        parameters=dict(logprob_parameters(provider)),
    )
    return RunDesign(asked, make_border_cases()[:LOGPROB_PROMPT_COUNT])


def _make_prompt_request(request: RunRequest, **given: Any) -> RunRequest:
    return RunRequest(
        models=request.models,
        system_prompt=request.system_prompt,
        temperature=1.0,
        seed=None,
        limits=request.limits,
        **given,
    )


def design_day_run(
    store: Store, watch: Watch, day: str, purpose: RunPurpose, reach: ProviderAccess
) -> RunDesign | None:
    """Return a run of a day; None if the day has no such run."""
    request = make_day_request(watch, day)
    if purpose == "batch":
        return RunDesign(request)
    if ("logprobs" if purpose == "logprobs" else "answers") not in watch.instruments:
        return None
    if purpose == "logprobs":
        if _read_basis(store, watch, day).get("has_logprobs") is False:
            return None
        target = resolve_model(request.models[0], with_registered_providers(store, reach))
        design = design_logprobs(request, target.provider)
    else:
        pinned = find_pinned_prompts(store, watch, day)
        if (purpose == "search") == (pinned is not None):
            return None
        if pinned is not None and not pinned.cases:
            return None
        if pinned is None:
            design = design_search(request, [each.run_id for each in _list_search_runs(store, watch, day)])
        else:
            design = design_answers(request, pinned)
    about = {"search": "search for border prompts", "answers": "border prompts", "logprobs": "logprobs"}[purpose]
    named = replace(design.request, name=f"{watch.shown_name} {day} ({about})"[-100:])
    return replace(design, request=named)


# ── What is kept for a period ──


def find_pinned_prompts(store: Store, watch: Watch, day: str) -> PinnedPrompts | None:
    """Return the border prompts of the period of a day; None if they have to be searched.

    They are in the basis of the period, or in the results of a search on a day that has not ended.
    """
    period = _find_period(store, watch, day)
    basis = _read_basis(store, watch, day)
    if (known := read_pinned_prompts(basis)) is not None:
        return known
    days = {each.day: each for each in store.watches.list_days(watch, period)}
    if "border_prompts" in basis or any(_FIXED_SET_MARK in (each.features_json or "") for each in days.values()):
        return PinnedPrompts(make_border_cases(), FIXED_MAX_ANSWER_TOKENS, FIXED_ANSWERS_PER_PROMPT, is_fixed_set=True)
    if sent := find_day_run(store, watch, day, "answers"):  # what this day has sent, whatever became of its search
        return _make_pinned_prompts(tuple(store.cases.iterate(sent)), sent.plan.parameters["max_tokens"], 0, None)
    searches = _list_search_runs(store, watch, day)
    for linked in reversed(searches):
        run = store.runs.read(linked.run_id)
        if run.status == "finished" and run.plan.search is not None:
            results = read_search_results(store, run)
            if found := choose_border_prompts(results, run.plan.search.max_prompts):
                pinned = _make_pinned_prompts(found.cases, found.max_answer_tokens, found.search_calls, linked.day)
                return replace(pinned, search_began=searches[0].day)
    return None


def _list_search_runs(store: Store, watch: Watch, day: str) -> list[WatchRun]:
    """Return the stored searches of the period of a day, in the order of their days."""
    days = {each.day for each in store.watches.list_days(watch, _find_period(store, watch, day))}
    return [each for each in store.watches.list_runs(watch) if each.purpose == "search" and each.day in days]


def count_search_calls(store: Store, watch: Watch, day: str) -> int:
    """Return how many calls a search of the period of a day has made that has not found its prompts yet."""
    searches = _list_search_runs(store, watch, day)
    if not searches or find_pinned_prompts(store, watch, day) is not None:
        return 0
    return sum(store.runs.read(each.run_id).stored for each in searches)


def _find_period(store: Store, watch: Watch, day: str) -> int:
    found = store.watches.find_day(watch, day)
    return found.period if found else store.watches.list_periods(watch)[-1].number


def _read_basis(store: Store, watch: Watch, day: str) -> Mapping[str, Any]:
    number = _find_period(store, watch, day)
    return next(each.basis or {} for each in store.watches.list_periods(watch) if each.number == number)


class SideFeatures(Struct, frozen=True):
    """What the runs beside that of the cases add to a day."""

    prompts: tuple[PromptDay, ...] = ()
    basis_additions: Mapping[str, Any] = {}
    """What they add to the basis of the period."""


def read_side_features(store: Store, watch: Watch, day: str) -> SideFeatures:
    """Return what the stored runs of a day beside that of its cases add to it."""
    prompts: tuple[PromptDay, ...] = ()
    basis: dict[str, Any] = {}
    if "answers" in watch.instruments:
        pinned = find_pinned_prompts(store, watch, day)
        if pinned is not None and not pinned.is_fixed_set:
            basis["border_search"] = pinned.to_plain()
        if run := find_day_run(store, watch, day, "answers"):
            cases, results = read_run(store, run)
            prompts += make_border_days(cases, run.plan.repeats, results)
            basis["border_prompts"] = make_period_basis(run.plan, cases, ())
    if "logprobs" in watch.instruments and (run := find_day_run(store, watch, day, "logprobs")):
        cases, results = read_run(store, run, with_raw=True)
        days = make_logprob_days(cases, run.plan.repeats, results)
        if any(each.answered for each in days):
            prompts += days
            basis["has_logprobs"] = True
            basis["logprob_prompts"] = make_period_basis(run.plan, cases, ())
        elif any(each.reply is not None for each in results):
            basis["has_logprobs"] = False
    return SideFeatures(prompts, basis)


def find_day_run(store: Store, watch: Watch, day: str, purpose: RunPurpose) -> Run | None:
    """Return the stored run of a day for one purpose."""
    linked = [each.run_id for each in store.watches.list_runs(watch, day) if each.purpose == purpose]
    return store.runs.read(linked[-1]) if linked else None


def read_run(store: Store, run: Run, *, with_raw: bool = False) -> tuple[dict[str, Case], list[Result]]:
    """Return the cases of a run by digest, and its results."""
    cases = {hash_case(case): case for case in store.cases.iterate(run)}
    return cases, [result for _, result in store.results.iterate(run, scoring=0, with_raw=with_raw)]


def make_period_basis(plan: Plan, cases: Mapping[str, Any], results: Sequence[Result]) -> dict[str, Any]:
    """Return what the days of a period have in common; it does not depend on the version of this program."""
    plain = json.loads(json.dumps(plan_to_plain(plan)))  # as it will be read from the store
    plain.pop("runner_version", None)
    digest = hashlib.sha256("\n".join(sorted(cases)).encode()).hexdigest()
    return {"plan": plain, "cases": digest, "checks": list_check_versions(results)}
