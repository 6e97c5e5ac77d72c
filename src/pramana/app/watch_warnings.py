"""Warnings for a new watch: its request and the calls of a day in, sentences on what may keep days from counting."""

import json
import math
from collections.abc import Sequence

from pramana import settings
from pramana.app.watch_calls import CASES_TITLE, InstrumentCallsView
from pramana.errors import quote_text
from pramana.model import Plan
from pramana.providers.prices import Prices
from pramana.run.accounts import ProviderAccess
from pramana.watch_request import WatchRequest


def find_start_warnings(
    request: WatchRequest, plan: Plan, prices: Prices, reach: ProviderAccess, calls: Sequence[InstrumentCallsView]
) -> tuple[str, ...]:
    """Return what may keep days from counting under the budget of a watch; `calls` are the estimates of a day."""
    if request.budget_usd_per_day is None:
        return ()
    low = _describe_low_budget(request.budget_usd_per_day, calls)
    return (*_warn_of_unknown_costs(plan, prices, reach), *([low] if low else []))


def _warn_of_unknown_costs(plan: Plan, prices: Prices, reach: ProviderAccess) -> list[str]:
    """Return a warning for a budget that the replies of a function end at once unless they state their cost."""
    asked = [*plan.targets, *plan.judges, *([plan.embedder] if plan.embedder else [])]
    where = "Settings, Prices" if reach.is_for_other_users else str(settings.prices_file_path())
    found = list[str]()
    for each in {each.typed: each for each in asked if prices.needs_stated_cost(each)}.values():
        price, stated = ("a price per token", "its tokens") if prices.is_known(each) else ("no price", "it")
        found.append(
            f"{quote_text(each.typed)} has {price}, so the cost of a reply is known only if the function states "
            f"{stated}. With a budget, the first reply of unknown cost ends the day, and a day with fewer than 80 % of "
            "its calls does not count. Let the function return pramana.Reply(text, cost_usd=0.01), leave out the "
            f"budget, or set the price, 0 if the model is free of charge:\n  # {where}\n"
            f"  [prices.{json.dumps(each.typed)}]\n  input_per_million = 0\n  output_per_million = 0"
        )
    return found


def _describe_low_budget(budget_usd: float, calls: Sequence[InstrumentCallsView]) -> str | None:
    """Return a warning if a day's budget is below the estimated cost of a day, or of a day with a search; None if not.

    Costs that are unknown are left out.
    """
    daily = sum(each.cost_usd or 0.0 for each in calls)
    cases = sum(each.cost_usd or 0.0 for each in calls if each.title == CASES_TITLE)
    others = sum(each.cost_usd or 0.0 for each in calls if not each.first_day_calls)
    search = sum(each.first_day_cost_usd or 0.0 for each in calls)
    budget = _format_dollars(budget_usd)
    if budget_usd < cases:
        return (
            f"The test cases of a day cost about {_format_dollars(cases)}, more than the budget of {budget} a day. A "
            "day with fewer than 80 % of its calls does not count. Raise the budget, or choose fewer cases."
        )
    if budget_usd < daily:
        return (
            f"A day costs about {_format_dollars(daily)}, more than the budget of {budget} a day, so that some of its "
            "calls are left out, those for answers first. Raise the budget, or choose fewer cases or instruments."
        )
    if budget_usd < others + search:
        days = math.ceil(search / max(budget_usd - others, budget_usd / 1000))
        return (
            f"The search for the prompts of answers costs about {_format_dollars(search)} once, and a day without it "
            f"{_format_dollars(others)}. With the budget of {budget} a day, the search takes about {days} days, and "
            "answers is measured after it."
        )
    return None


def _format_dollars(cost_usd: float) -> str:
    return f"${cost_usd:,.2f}" if cost_usd >= 0.1 else f"${cost_usd:.4f}"
