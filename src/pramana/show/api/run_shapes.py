"""What a run amounts to, as the API writes it: names in camelCase, seconds spelt out.

What was measured or sent as it is (evidence, parameters, raw responses) keeps its own names.
"""

from collections.abc import Mapping
from typing import Any

from pramana.analyse.summary import Summary
from pramana.show.api.envelope import camel


def of_summary(summary: Summary) -> dict[str, Any]:
    """Return what a run amounts to; categories, tags and models keep their names."""
    data = summary.as_data()
    by = data.pop("by")
    rates = {name: {value: camel(rate) for value, rate in rows.items()} for name, rows in by.items()}
    return {**seconds(camel(data)), "by": rates}


def seconds(value: Any) -> Any:
    """Return data with names that end in S, for seconds, spelt out: latencyS is latencySeconds."""
    if isinstance(value, Mapping):
        return {_spelt_out(name): seconds(each) for name, each in value.items()}
    return [seconds(each) for each in value] if isinstance(value, list | tuple) else value


def _spelt_out(name: str) -> str:
    return f"{name[:-1]}Seconds" if len(name) > 1 and name.endswith("S") else name
