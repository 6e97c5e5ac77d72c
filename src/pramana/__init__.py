"""Pramana: evidence about language models and voice agents.

The path of the data is the layout: files become cases (`load`), cases are asked and replies stream back, replies are
checked, results are stored, numbers become findings, findings are shown. So far `load` stands, with the hashes that
results are compared by and the assertions that need no model:

>>> import pramana
>>> pramana.evaluate_assertion({"type": "is_json"}, "[1, 2]").reason
'valid JSON in the output: an array'

Public names are imported on first use, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pramana.assertions import evaluate_assertion
    from pramana.hash import hash_output, hash_result, hash_suite
    from pramana.load import cases_of, validate

_WHERE = {
    "cases_of": "pramana.load",
    "evaluate_assertion": "pramana.assertions",
    "hash_output": "pramana.hash",
    "hash_result": "pramana.hash",
    "hash_suite": "pramana.hash",
    "validate": "pramana.load",
}

__all__ = ["cases_of", "evaluate_assertion", "hash_output", "hash_result", "hash_suite", "validate"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("pramana")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
