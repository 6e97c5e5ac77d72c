"""Suite, result and record hashes: equal to the published definition, refused where it defines none."""

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pramana.errors import InvalidInput
from pramana.hash import ResultDigester, SortedCases, hash_case, hash_output, hash_result, hash_suite
from pramana.model import Assertion, Case, Facets, SourceLocation, Turn


def sha256(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def published_hash(cases: list[dict[str, Any]]) -> str:
    """The definition, as the existing community computes it."""
    return sha256(json.dumps(sorted(cases, key=lambda case: str(case["id"])), sort_keys=True, separators=(",", ":")))


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


CASES: list[dict[str, Any]] = [
    {"id": "b-2", "input": "Zoë: 1.0?", "n": [1.0, 1e5, 10**30, -0.0, True, None]},
    {"id": "b-10", "input": "\u2028 and \u0085 are text", "deep": {"z": 1, "a": {"y": [], "x": {}}}},
    {"id": "𝒳", "input": "an id beyond the BMP sorts after U+FFFD by code point"},
    {"id": "\ufffd", "input": "…"},
]


def test_the_suite_hash_equals_the_published_definition(tmp_path: Path) -> None:
    text = "\n".join(json.dumps(case) for case in CASES)
    assert hash_suite(write(tmp_path / "a.jsonl", text)) == published_hash(CASES)


def test_the_suite_hash_ignores_order_spacing_line_ends_and_escapes(tmp_path: Path) -> None:
    text = "\ufeff\r\n" + "\r\n  \r\n".join(
        json.dumps(dict(reversed(case.items())), ensure_ascii=False, indent=None, separators=(" , ", " :  "))
        for case in reversed(CASES)
    )
    assert hash_suite(write(tmp_path / "a.jsonl", text)) == published_hash(CASES)


@pytest.mark.parametrize("long", [10, 100, 1 << 16])
@pytest.mark.parametrize("budget", [1, 2_000, 1 << 24])
def test_sorting_on_disk_gives_the_same_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int, long: int
) -> None:
    monkeypatch.setattr(SortedCases, "MEMORY_BYTES", budget)
    monkeypatch.setattr(SortedCases, "READ_BYTES", 64)
    monkeypatch.setattr(SortedCases, "LARGE_CASE_BYTES", long)
    cases = [{"id": f"x-{number * 7919 % 101:03}", "input": "y" * number} for number in range(101)]
    text = "\n".join(json.dumps(case) for case in cases)
    assert hash_suite(write(tmp_path / "a.jsonl", text)) == published_hash(cases)


@pytest.mark.parametrize("budget", [1, 1 << 24])
def test_a_suite_with_a_duplicate_id_has_no_hash_and_both_lines_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    monkeypatch.setattr(SortedCases, "MEMORY_BYTES", budget)
    path = write(tmp_path / "a.jsonl", '{"id": "a"}\n\n{"id": "b"}\n{"id": "a", "x": 1}\n')
    with pytest.raises(InvalidInput, match='duplicate id "a": lines 1 and 4') as caught:
        hash_suite(path)
    assert caught.value.problems[0].path == "[2].id"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "a"}\n{"id": ', r"a.jsonl:2:8: \[1\]: not valid JSON: the line ends too early"),
        ('{"id": 5}', "an id of text"),
        ("[]", "an id of text"),
        ('{"id": "a", "id": "a"}', "duplicate key"),
    ],
)
def test_a_suite_without_a_hash_reports_the_position(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        hash_suite(write(tmp_path / "a.jsonl", text))


def test_no_temporary_file_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(SortedCases, "MEMORY_BYTES", 1)
    path = write(tmp_path / "a.jsonl", '{"id": "a"}\n{"id": "b"}\n{"id": "a"}\n')
    with pytest.raises(InvalidInput):
        hash_suite(path)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_result_and_output_hashes_equal_the_published_definition() -> None:
    assert hash_output("Grüße") == sha256("Grüße")
    assert hash_result("gpt-5", "coding-001", "x|y") == sha256("gpt-5|coding-001|x|y")


def test_text_that_is_not_utf8_has_a_hash() -> None:
    assert hash_output("\ud800") != hash_output("\udfff")
    assert hash_output("\x00") == sha256("\x00")


def record_digest(*, case: str, output: str, **shared: Any) -> str:
    """Return the digest of one record."""
    return ResultDigester(**shared)(case, output)


RECORD: dict[str, Any] = {
    "model": "m",
    "parameters": {"temperature": 0, "seed": 42},
    "suite_hash": "sha256:aa",
    "case": "sha256:bb",
    "system_prompt": None,
    "output": "o",
}


@pytest.mark.parametrize(
    "change",
    [
        {"model": "m|"},
        {"parameters": {"temperature": 0.0, "seed": 42}},
        {"parameters": {}},
        {"suite_hash": "sha256:ab"},
        {"case": "sha256:bc"},
        {"system_prompt": ""},
        {"system_prompt": "absent"},
        {"output": "o "},
        {"model": "mo", "output": ""},
    ],
)
def test_every_field_changes_the_record_digest(change: dict[str, Any]) -> None:
    assert record_digest(**RECORD) != record_digest(**{**RECORD, **change})
    assert record_digest(**RECORD) == record_digest(**{**RECORD, "parameters": {"seed": 42, "temperature": 0}})


CASE = Case(
    "coding-001",
    "test_case",
    (Turn("user", "hi"),),
    Facets("coding", "easy", None, ("a",)),
    Assertion("contains"),
    ("x",),
    source=SourceLocation("a.jsonl", 3),
)
CHANGES: list[Callable[[Case], Case]] = [
    lambda case: replace(case, id="coding-002"),
    lambda case: replace(case, turns=(Turn("system", "hi"),)),
    lambda case: replace(case, ideals=("y",)),
    lambda case: replace(case, assertion=Assertion("contains", case_sensitive=False)),
    lambda case: replace(case, facets=Facets("coding", "easy", None, ("b",))),
    lambda case: replace(case, prompt_audio_url="/audio/a.wav"),
]


def test_digests_are_pinned() -> None:
    """Runs are paired by these: a refactoring that changes one breaks every stored run."""
    assert hash_case(CASE) == "sha256:6112c2e69802354cfb266a470fc70047919057576d36971d121b0d09bf5cb7fc"
    assert record_digest(**RECORD) == "sha256:940dc53f48fafd10eeec4aa8c36208977ada059e5e0f96b39b806bf0bdde851f"


def test_parameters_must_be_json() -> None:
    for parameters in ({1: 2}, {"x": float("nan")}):
        with pytest.raises((TypeError, ValueError)):
            record_digest(**{**RECORD, "parameters": parameters})


@pytest.mark.parametrize("change", CHANGES)
def test_the_case_digest_covers_everything_but_the_source(change: Callable[[Case], Case]) -> None:
    assert hash_case(change(CASE)) != hash_case(CASE)
    assert hash_case(replace(CASE, source=SourceLocation("b.jsonl", 9))) == hash_case(CASE)
