"""Pramana: evidence about language models and voice agents.

>>> import pramana
>>> report = pramana.evaluate([{"input": "What is 2 + 2?", "ideal": "4"}], model=lambda prompt: "It is 4.")
>>> report.pass_rate
1.0

The folders follow the path of the data: `load` reads files into cases, `run` sends them to models, `score` checks the
replies, `store` keeps the results, `analyse` compares and summarises them, `report` and `show` present them. Public
names are imported on first use, so that importing the package costs nothing.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pramana.app.views import ResultDetailView as Result
    from pramana.assertions import AssertionType, Verdict, evaluate_assertion
    from pramana.assertions import make_assertion_type as assertion_type
    from pramana.errors import InvalidInput, PramanaError, ProviderError, RateLimited
    from pramana.hash import hash_output, hash_result, hash_suite
    from pramana.library import (
        Report,
        compare,
        compare_several,
        estimate,
        evaluate,
        evaluate_async,
        load_report,
        resume,
        resume_async,
        runs,
        stream,
    )
    from pramana.library.comparison import Comparison
    from pramana.library.endpoint_test import same
    from pramana.library.estimates import Estimate
    from pramana.library.judge_report import JudgeReport
    from pramana.library.listing import RunList, RunRecord
    from pramana.library.plans import DetectionPlan, plan
    from pramana.library.pytest_integration import parametrize
    from pramana.library.sameness import Sameness
    from pramana.library.session import Stream
    from pramana.library.watches import Watch, watch, watches
    from pramana.load import ValidationReport, cases_of, validate
    from pramana.load.rows import Case
    from pramana.model import (
        Assertion,
        Check,
        Facets,
        Outcome,
        Provider,
        Reply,
        Request,
        Run,
        Target,
        ToolCall,
        Turn,
        Usage,
    )
    from pramana.providers.accounts import Account
    from pramana.report.exporters import Exporter, exporter
    from pramana.request import Limits, RunRequest, Selection
    from pramana.score.scorers import BlockingScoringContext, Score, Scorer, ScoringContext, scorer

_MODULES = {
    "Account": "pramana.providers.accounts",
    "Assertion": "pramana.model",
    "AssertionType": "pramana.assertions",
    "BlockingScoringContext": "pramana.score.scorers",
    "Case": "pramana.load.rows",
    "Check": "pramana.model",
    "Comparison": "pramana.library.comparison",
    "ComparisonTable": "pramana.library.comparison",
    "DetectionPlan": "pramana.library.plans",
    "Estimate": "pramana.library.estimates",
    "Exporter": "pramana.report.exporters",
    "Facets": "pramana.model",
    "InvalidInput": "pramana.errors",
    "JudgeReport": "pramana.library.judge_report",
    "Limits": "pramana.request",
    "Outcome": "pramana.model",
    "PramanaError": "pramana.errors",
    "Provider": "pramana.model",
    "ProviderError": "pramana.errors",
    "RateLimited": "pramana.errors",
    "Reply": "pramana.model",
    "Report": "pramana.library",
    "Request": "pramana.model",
    "Result": "pramana.app.views:ResultDetailView",
    "Run": "pramana.model",
    "RunList": "pramana.library.listing",
    "RunRecord": "pramana.library.listing",
    "RunRequest": "pramana.request",
    "Sameness": "pramana.library.sameness",
    "Score": "pramana.score.scorers",
    "Scorer": "pramana.score.scorers",
    "ScoringContext": "pramana.score.scorers",
    "Selection": "pramana.request",
    "Stream": "pramana.library.session",
    "Target": "pramana.model",
    "ToolCall": "pramana.model",
    "Turn": "pramana.model",
    "Usage": "pramana.model",
    "ValidationReport": "pramana.load",
    "Verdict": "pramana.assertions",
    "Watch": "pramana.library.watches",
    "assertion_type": "pramana.assertions:make_assertion_type",
    "cases_of": "pramana.load",
    "compare": "pramana.library",
    "compare_several": "pramana.library",
    "estimate": "pramana.library",
    "evaluate": "pramana.library",
    "evaluate_assertion": "pramana.assertions",
    "evaluate_async": "pramana.library",
    "exporter": "pramana.report.exporters",
    "hash_output": "pramana.hash",
    "hash_result": "pramana.hash",
    "hash_suite": "pramana.hash",
    "load_report": "pramana.library",
    "parametrize": "pramana.library.pytest_integration",
    "plan": "pramana.library.plans",
    "resume": "pramana.library",
    "resume_async": "pramana.library",
    "runs": "pramana.library",
    "same": "pramana.library.endpoint_test",
    "scorer": "pramana.score.scorers",
    "stream": "pramana.library",
    "validate": "pramana.load",
    "watch": "pramana.library.watches",
    "watches": "pramana.library.watches",
}
"""The module of each public name, with its name there if it differs."""

__all__ = [
    "Account",
    "Assertion",
    "AssertionType",
    "BlockingScoringContext",
    "Case",
    "Check",
    "Comparison",
    "ComparisonTable",
    "DetectionPlan",
    "Estimate",
    "Exporter",
    "Facets",
    "InvalidInput",
    "JudgeReport",
    "Limits",
    "Outcome",
    "PramanaError",
    "Provider",
    "ProviderError",
    "RateLimited",
    "Reply",
    "Report",
    "Request",
    "Result",
    "Run",
    "RunList",
    "RunRecord",
    "RunRequest",
    "Sameness",
    "Score",
    "Scorer",
    "ScoringContext",
    "Selection",
    "Stream",
    "Target",
    "ToolCall",
    "Turn",
    "Usage",
    "ValidationReport",
    "Verdict",
    "Watch",
    "assertion_type",
    "cases_of",
    "compare",
    "compare_several",
    "estimate",
    "evaluate",
    "evaluate_assertion",
    "evaluate_async",
    "exporter",
    "hash_output",
    "hash_result",
    "hash_suite",
    "load_report",
    "parametrize",
    "plan",
    "resume",
    "resume_async",
    "runs",
    "same",
    "scorer",
    "stream",
    "validate",
    "watch",
    "watches",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        module, _, attribute = _MODULES[name].partition(":")
        return getattr(import_module(module), attribute or name)
    if name == "__version__":
        from importlib.metadata import version

        return version("pramana")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
