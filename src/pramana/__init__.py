"""Pramana: evidence about language models and voice agents.

>>> import pramana
>>> report = pramana.evaluate([{"input": "What is 2 + 2?", "ideal": "4"}], model=lambda prompt: "It is 4.")
>>> report.pass_rate
1.0

The path of the data is the layout: `load` reads files into cases, `run` asks models, `score` checks the replies,
`store` keeps the results, `analyse` turns them into findings, `report` and `show` present them. Public names are
imported on first use, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pramana.app.comparisons import WholeComparisonView as Comparison
    from pramana.app.views import ResultDetailView as Result
    from pramana.assertions import evaluate_assertion
    from pramana.errors import InvalidInput, PramanaError, ProviderError, RateLimited
    from pramana.hash import hash_output, hash_result, hash_suite
    from pramana.library import Report, compare, evaluate, evaluate_async, resume, stream
    from pramana.library.pytest_integration import parametrize
    from pramana.load import ValidationReport, cases_of, validate
    from pramana.load.rows import Case
    from pramana.model import Assertion, Check, Facets, Outcome, Reply, Turn, Usage
    from pramana.request import Limits, RunRequest, Selection
    from pramana.score.scorers import BlockingScoringContext, Score, Scorer, ScoringContext, scorer

_WHERE = {
    "Assertion": "pramana.model",
    "BlockingScoringContext": "pramana.score.scorers",
    "Case": "pramana.load.rows",
    "Check": "pramana.model",
    "Comparison": "pramana.app.comparisons:WholeComparisonView",
    "Facets": "pramana.model",
    "InvalidInput": "pramana.errors",
    "Limits": "pramana.request",
    "Outcome": "pramana.model",
    "PramanaError": "pramana.errors",
    "ProviderError": "pramana.errors",
    "RateLimited": "pramana.errors",
    "Reply": "pramana.model",
    "Report": "pramana.library",
    "Result": "pramana.app.views:ResultDetailView",
    "RunRequest": "pramana.request",
    "Score": "pramana.score.scorers",
    "Scorer": "pramana.score.scorers",
    "ScoringContext": "pramana.score.scorers",
    "Selection": "pramana.request",
    "Turn": "pramana.model",
    "Usage": "pramana.model",
    "ValidationReport": "pramana.load",
    "cases_of": "pramana.load",
    "compare": "pramana.library",
    "evaluate": "pramana.library",
    "evaluate_assertion": "pramana.assertions",
    "evaluate_async": "pramana.library",
    "hash_output": "pramana.hash",
    "hash_result": "pramana.hash",
    "hash_suite": "pramana.hash",
    "parametrize": "pramana.library.pytest_integration",
    "resume": "pramana.library",
    "scorer": "pramana.score.scorers",
    "stream": "pramana.library",
    "validate": "pramana.load",
}
"""Where each public name is: its module, and its name there if that is another."""

__all__ = [
    "Assertion",
    "BlockingScoringContext",
    "Case",
    "Check",
    "Comparison",
    "Facets",
    "InvalidInput",
    "Limits",
    "Outcome",
    "PramanaError",
    "ProviderError",
    "RateLimited",
    "Reply",
    "Report",
    "Result",
    "RunRequest",
    "Score",
    "Scorer",
    "ScoringContext",
    "Selection",
    "Turn",
    "Usage",
    "ValidationReport",
    "cases_of",
    "compare",
    "evaluate",
    "evaluate_assertion",
    "evaluate_async",
    "hash_output",
    "hash_result",
    "hash_suite",
    "parametrize",
    "resume",
    "scorer",
    "stream",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        module, _, attribute = _WHERE[name].partition(":")
        return getattr(import_module(module), attribute or name)
    if name == "__version__":
        from importlib.metadata import version

        return version("pramana")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
