"""Looking up a report's models by their short names."""

import pytest

import pramana
from pramana.app.model_names import ModelNames
from pramana.library.by_model import ByModel

CASES = [{"input": "Say yes.", "ideal": "yes"}]


def test_a_model_is_found_by_its_short_name() -> None:
    report = pramana.evaluate(CASES, models={"before": lambda prompt: "No.", "after": lambda prompt: "Yes."})
    assert (report.by_model["before"].passed, report.by_model["after"].passed) == (0, 1)
    assert ("before" in report.by_model, "nobody" in report.by_model) == (True, False)
    assert list(report.by_model) == report.models
    with pytest.raises(KeyError, match=r"no model 'befor'; this run has .*:before, .*:after"):
        report.by_model["befor"]


def test_an_ambiguous_short_name_matches_no_model() -> None:
    names = [ModelNames(f"python:{module}:bot", f"{module}:bot") for module in ("one", "two")]
    found = ByModel(names, {each.typed: each.name_at_provider for each in names})
    assert "bot" not in found
    assert found.get("bot") is None
    assert (found["python:two:bot"], found["one:bot"]) == ("two:bot", "one:bot")
