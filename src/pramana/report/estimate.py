"""An estimate of a run as text: the view in, lines for a terminal or a notebook out."""

from collections.abc import Iterator, Sequence

from pramana.analyse.numbers import pluralise
from pramana.analyse.summary import KnownTotal
from pramana.app.views import EstimateView, ModelEstimateView
from pramana.report import figures

NAME_JUDGE_ADVICE = "--judge MODEL names another judge"
"""What users of the command line can do about a model that judges its own replies."""


def render_estimate(estimate: EstimateView, judge_advice: str = NAME_JUDGE_ADVICE) -> str:
    """Return an estimate line by line: the totals, each model and judge, and the warnings.

    `judge_advice` is what to do about models that judge their own replies, in the words of the front end.
    """
    return "\n".join(_format_estimate_lines(estimate, judge_advice))


def _format_estimate_lines(estimate: EstimateView, judge_advice: str) -> Iterator[str]:
    sizes = (
        pluralise(estimate.cases, "case"),
        pluralise(estimate.results, "result"),
        pluralise(estimate.calls, "call"),
    )
    yield f"Estimate: {', '.join(sizes)}"
    yield f"Tokens: {_format_tokens(estimate)}"
    yield f"Cost: {_format_cost(estimate)}"
    for each in estimate.shares:
        if each.calls:
            role = "Model" if each.purpose == "model" else each.purpose.capitalize()
            cost = _format_dollars(each.cost_usd)
            yield f"{role} {each.model}: {pluralise(each.calls, 'call')}, {_format_tokens(each)}, {cost}"
    if not any(each.purpose == "judge" and each.calls for each in estimate.shares):
        yield f"Judge: {'none' if estimate.unjudged else 'not needed'}"
    for warning in estimate.warnings:
        yield f"Warning: {warning}"
    for name in estimate.unknown_prices:
        yield f"Warning: no price is known for {name}, so the cost is unknown"
    if estimate.self_judged:
        models = sum(each.purpose == "model" for each in estimate.shares)
        yield make_self_judging_sentence(estimate.self_judged, models, judge_advice)
    yield f"Nothing was sent or stored. {estimate.note}"


def make_self_judging_sentence(
    self_judging_models: Sequence[str], model_count: int, judge_advice: str = NAME_JUDGE_ADVICE
) -> str:
    """Return a sentence naming the models that judge their own replies.

    `model_count` is the number of models in the run.

    >>> make_self_judging_sentence(["gpt-5"], 1)
    'gpt-5 judges its own replies; --judge MODEL names another judge.'
    """
    if 1 < model_count == len(self_judging_models):
        return f"Each model judges its own replies; {judge_advice}."
    names = " and ".join(
        [", ".join(self_judging_models[:-1]), self_judging_models[-1]]
        if len(self_judging_models) > 1
        else self_judging_models
    )
    return f"{names} {'judges its' if len(self_judging_models) == 1 else 'judge their'} own replies; {judge_advice}."


def _format_tokens(estimate: EstimateView | ModelEstimateView) -> str:
    if estimate.input_tokens is None or estimate.output_tokens is None:
        return "tokens of spoken conversations unknown"
    return f"{estimate.input_tokens:,} tokens in, {estimate.output_tokens:,} out"


def _format_cost(estimate: EstimateView) -> str:
    if estimate.cost_usd is None or estimate.cost_range_usd is None:
        return "unknown"
    low, high = estimate.cost_range_usd
    between = f" (between {_format_dollars(low)} and {_format_dollars(high)})" if low < high else ""
    return f"about {_format_dollars(estimate.cost_usd)}{between}" if estimate.cost_usd else "$0.00"


def _format_dollars(amount: float | None) -> str:
    return "cost unknown" if amount is None else figures.format_cost(KnownTotal(amount))
