"""The claims file: every row is complete, every command exists, and every result is recorded in the docs."""

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CLAIMS: list[dict[str, Any]] = tomllib.loads((ROOT / "docs" / "claims.toml").read_text(encoding="utf-8"))["claim"]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["claim"][:40])
def test_every_claim_has_a_proof(claim: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert claim.keys() <= {"section", "claim", "tests", "command", "trial", "paths", "value", "date", "commit"}
    assert claim.get("tests") or claim.get("command") or claim.get("trial")
    proofs = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
    if "trial" in claim:  # trials with new users, recorded by hand
        (section,) = (each for each in proofs.split("\n## ") if each.startswith(f"{claim['trial']}\n"))
        for recorded in (claim["value"], claim["date"], claim["commit"]):
            assert recorded in section, f"{recorded} is claimed, but not in the section"
    if "command" in claim:
        assert claim["value"].strip()
        assert claim["paths"], "what does the command measure?"
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", claim["date"])
        assert re.fullmatch(r"[0-9a-f]{7,40}", claim["commit"])
        monkeypatch.syspath_prepend(str(ROOT))
        name = claim["command"].split()[2]
        module = importlib.import_module("pramana.__main__" if name == "pramana" else name)
        assert callable(module.main)
        assert claim["command"] in proofs
        for number in re.findall(r"\d[\d,.]*", claim["value"]):
            assert number in proofs, f"{number} is claimed, but not in the table"
        assert claim["date"] in proofs
        assert claim["commit"] in proofs


def test_no_claim_is_listed_twice() -> None:
    names = [claim["claim"] for claim in CLAIMS]
    assert len(names) == len(set(names))
