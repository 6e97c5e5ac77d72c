"""Registries: built-ins by name, strangers by entry point, slips by suggestion."""

import sys
from pathlib import Path

import pytest

from pramana.assertions import AssertionType, evaluate_assertion
from pramana.errors import NotFound
from pramana.plugins import Registry, assertion_types

SIX = ["exact_match", "contains", "contains_any", "is_json", "llm_judge", "semantic_similarity"]


def test_the_six_come_first_then_ours() -> None:
    assert assertion_types.names() == [*SIX, "regex", "json_schema", "contains_none"]


@pytest.mark.parametrize("name", assertion_types.names())
def test_every_registered_name_is_the_name_of_what_it_loads(name: str) -> None:
    kind = assertion_types.load(name)
    assert isinstance(kind, AssertionType)
    assert (kind.name, kind.version) == (name, "1")


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(NotFound, match=r'no assertion type is called "containz"; did you mean "contains"\?'):
        assertion_types.load("containz")


def test_a_stranger_arrives_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shouting.py").write_text(
        "from pramana.assertions import AssertionType, Verdict\n"
        "from pramana.model import Outcome\n"
        "def decide(assertion, output, ideals):\n"
        "    return Verdict(Outcome.PASSED if output.isupper() else Outcome.FAILED, 'looked at the case')\n"
        "is_shouting = AssertionType('is_shouting', '3', decide)\n"
    )
    info = tmp_path / "shouting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pramana.assertions]\nis_shouting = shouting:is_shouting\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    fresh = Registry("assertion type", "pramana.assertions", assertion_types.builtin)
    assert "is_shouting" in fresh
    assert fresh.names()[-1] == "is_shouting"
    monkeypatch.setattr("pramana.assertions.assertion_types", fresh)
    check = evaluate_assertion({"type": "is_shouting"}, "HELLO")
    assert (check.outcome, check.name, check.version) == ("passed", "is_shouting", "3")
    sys.modules.pop("shouting")
