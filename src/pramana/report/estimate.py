"""An estimate of a run as text: the view comes in, lines for a terminal or a notebook go out."""

from collections.abc import Iterator, Sequence

from pramana.analyse.numbers import counted
from pramana.analyse.summary import Total
from pramana.app.views import EstimateView, ShareView
from pramana.report import figures


def render_estimate(found: EstimateView) -> str:
    """Return what a run would take, line by line: the totals, each model and judge, and what will be missing."""
    return "\n".join(_lines(found))


def _lines(found: EstimateView) -> Iterator[str]:
    sizes = (counted(found.cases, "case"), counted(found.results, "result"), counted(found.calls, "call"))
    yield f"Estimate: {', '.join(sizes)}"
    yield f"Tokens: {_tokens(found)}"
    yield f"Cost: {_cost(found)}"
    for each in found.shares:
        if each.calls:
            role = "Model" if each.purpose == "model" else each.purpose.capitalize()
            yield f"{role} {each.model}: {counted(each.calls, 'call')}, {_tokens(each)}, {_dollars(each.cost_usd)}"
    if not any(each.purpose == "judge" and each.calls for each in found.shares):
        yield f"Judge: {'none' if found.unjudged else 'not needed'}"
    for warning in found.warnings:
        yield f"Warning: {warning}"
    for name in found.unknown_prices:
        yield f"Warning: no price is known for {name}, so the cost is unknown"
    if found.self_judged:
        yield self_judging_sentence(found.self_judged, sum(each.purpose == "model" for each in found.shares))
    yield f"Nothing was sent or stored. {found.note}"


def self_judging_sentence(models: Sequence[str], of: int, remedy: str = "--judge MODEL names another judge") -> str:
    """Say which models of a run judge their own replies; `of` is how many models the run has.

    >>> self_judging_sentence(["gpt-5"], 1)
    'gpt-5 judges its own replies; --judge MODEL names another judge.'
    """
    if 1 < of == len(models):
        return f"Each model judges its own replies; {remedy}."
    names = " and ".join([", ".join(models[:-1]), models[-1]] if len(models) > 1 else models)
    return f"{names} {'judges its' if len(models) == 1 else 'judge their'} own replies; {remedy}."


def _tokens(found: EstimateView | ShareView) -> str:
    if found.input_tokens is None or found.output_tokens is None:
        return "tokens of spoken conversations unknown"
    return f"{found.input_tokens:,} tokens in, {found.output_tokens:,} out"


def _cost(found: EstimateView) -> str:
    if found.cost_usd is None or found.cost_range_usd is None:
        return "unknown"
    low, high = found.cost_range_usd
    between = f" (between {_dollars(low)} and {_dollars(high)})" if low < high else ""
    return f"about {_dollars(found.cost_usd)}{between}" if found.cost_usd else "$0.00"


def _dollars(amount: float | None) -> str:
    return "cost unknown" if amount is None else figures.money(Total(amount))
