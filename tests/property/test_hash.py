"""The suite hash depends on every value and nothing else, for any spelling of the file and any way of sorting.

The reference is the published definition in one line: SHA-256 of the cases, sorted by id, in sorted-key JSON without
spaces. Every property is also tried with a budget so small that each case is spilled to disk and many runs are merged.
"""

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from pramana.errors import InvalidInput
from pramana.hash import SortedCases, hash_case, hash_result, hash_suite
from pramana.load.problems import Problems
from pramana.load.suite import check_suite
from pramana.model import Assertion, Case, Facets, SourceLocation, Turn

from ..examples import examples
from ..test_hash import record_digest

DEFAULT, TINY, SMALL = SortedCases.MEMORY_BYTES, 1, 1_200
budgets = st.sampled_from((DEFAULT, TINY, SMALL))

any_texts = st.text(st.characters(), max_size=6) | st.sampled_from(
    ("", "é", "e\u0301", "😀", "\x00", "\u2028", "\ud800", "|")
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_texts, inner, max_size=3),
    max_leaves=6,
)
loose_cases = st.builds(
    lambda case_id, rest: {**rest, "id": case_id}, any_texts, st.dictionaries(any_texts, json_values, max_size=4)
)
loose_suites = st.lists(loose_cases, max_size=8, unique_by=lambda case: case["id"])

valid_cases = st.fixed_dictionaries(
    {
        "id": st.text(min_size=1, max_size=8).filter(str.strip),
        "category": st.sampled_from(("reasoning", "coding")),
        "input": st.text(min_size=1, max_size=8).filter(str.strip),
        "ideal": st.text(min_size=1, max_size=8).filter(str.strip),
        "assertion": st.fixed_dictionaries({"type": st.sampled_from(("contains", "exact_match"))}),
        "metadata": st.fixed_dictionaries({"difficulty": st.just("easy"), "tokens_est": st.integers(0, 99)}),
    }
)
valid_suites = st.lists(valid_cases, min_size=1, max_size=6, unique_by=lambda case: str(case["id"]))


def hash_naively(cases: list[dict[str, Any]]) -> str:
    ordered = sorted(cases, key=lambda case: str(case["id"]))
    spelled = json.dumps(ordered, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(spelled.encode()).hexdigest()


# ── One value, many spellings ──

ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def spell_value(value: Any, random: Random) -> str:
    """Return JSON for the value with spaces, key order and escapes at random."""

    def random_space() -> str:
        return random.choice(("", "", " ", "\t", "  ", "\r "))

    match value:
        case dict():
            items = list(value.items())
            random.shuffle(items)
            inner = ",".join(
                f"{random_space()}{spell_text(key, random)}{random_space()}:{random_space()}{spell_value(each, random)}{random_space()}"
                for key, each in items
            )
            return f"{{{inner or random_space()}}}"
        case list():
            return f"[{','.join(random_space() + spell_value(each, random) + random_space() for each in value) or random_space()}]"
        case str():
            return spell_text(value, random)
        case _:
            return json.dumps(value)


def spell_text(value: str, random: Random) -> str:
    """Return a JSON string in which any character may be raw or escaped."""
    parts = []
    for each in value:
        raw_is_legal = each >= " " and each not in '"\\' and not "\ud800" <= each <= "\udfff"
        if raw_is_legal and random.randrange(2):
            parts.append(each)
        elif each in ESCAPES and random.randrange(2):
            parts.append(ESCAPES[each])
        else:
            units = each.encode("utf-16-be", "surrogatepass")
            code = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
            parts.append(code.upper().replace("\\U", "\\u") if random.randrange(2) else code)
    return f'"{"".join(parts)}"'


def write_text(cases: list[dict[str, Any]], seed: int) -> bytes:
    """Return a suite file with line order, blank lines, line ends, its mark and its last newline at random."""
    random = Random(seed)
    lines = [spell_value(case, random) for case in cases]
    for _ in range(random.randrange(3)):
        lines.insert(random.randrange(len(lines) + 1), random.choice(("", " ", "\t ", "\r")))
    random.shuffle(lines)
    body = "".join(line + random.choice(("\n", "\r\n")) for line in lines)
    body = body.rstrip("\r\n") + random.choice(("", "\n", "\r\n", "\n\n\n"))
    return random.choice((b"", b"\xef\xbb\xbf")) + body.encode()


@pytest.fixture(scope="module")
def suite_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suites") / "suite.jsonl"


def hash_with(budget: int, path: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SortedCases, "MEMORY_BYTES", budget)
        return hash_suite(path)


@given(cases=loose_suites, seed=st.integers(0, 10**6), budget=budgets)
def test_any_spelling_of_the_file_has_the_published_hash(
    suite_path: Path, cases: list[dict[str, Any]], seed: int, budget: int
) -> None:
    # Two halves that meet make one character: a file cannot say them apart, so the value is what the file says.
    cases = [json.loads(json.dumps(case)) for case in cases]
    assume(len({case["id"] for case in cases}) == len(cases))
    suite_path.write_bytes(write_text(cases, seed))
    assert hash_with(budget, suite_path) == hash_naively(cases)


@given(
    cases=st.lists(loose_cases, min_size=1, max_size=4, unique_by=lambda case: case["id"]),
    new=json_values,
    data=st.data(),
)
def test_the_hash_changes_with_any_value(
    suite_path: Path, cases: list[dict[str, Any]], new: Any, data: st.DataObject
) -> None:
    suite_path.write_text("\n".join(map(json.dumps, cases)))
    before = hash_suite(suite_path)
    holder: Any = data.draw(st.sampled_from(cases))
    key: Any = data.draw(st.sampled_from(sorted(holder)))
    while isinstance(holder[key], dict | list) and holder[key] and data.draw(st.booleans()):
        holder = holder[key]
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
    if any(holder is case for case in cases) and key == "id":
        new = f"{holder['id']}+"  # still an id, and still the only one
        assume(all(case["id"] != new for case in cases))
    assume(json.dumps(new, sort_keys=True) != json.dumps(holder[key], sort_keys=True))
    holder[key] = new
    suite_path.write_text("\n".join(map(json.dumps, cases)))
    assert hash_suite(suite_path) != before


@given(cases=st.lists(loose_cases, min_size=1, max_size=4, unique_by=lambda case: case["id"]))
def test_the_hash_changes_with_an_extra_key_or_a_missing_case(suite_path: Path, cases: list[dict[str, Any]]) -> None:
    hashes = set()
    for version in (cases, [{**cases[0], "one key more": None}, *cases[1:]], cases[1:]):
        suite_path.write_text("\n".join(map(json.dumps, version)))
        hashes.add(hash_suite(suite_path))
    assert len(hashes) == 3


@given(cases=valid_suites, seed=st.integers(0, 10**6), budget=budgets)
def test_check_suite_and_hash_suite_agree_on_every_valid_suite(
    suite_path: Path, cases: list[dict[str, Any]], seed: int, budget: int
) -> None:
    suite_path.write_bytes(write_text(cases, seed))
    problems = Problems()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SortedCases, "MEMORY_BYTES", budget)
        checked = check_suite(suite_path, problems)
    assert problems.errors == 0
    assert checked.suite_hash == hash_suite(suite_path) == hash_naively(cases)
    assert checked.case_count == len(cases)


@given(
    cases=valid_suites,
    again=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 11), st.integers(0, 2)), min_size=1, max_size=4),
    budget=budgets,
)
def test_every_duplicate_id_is_reported_with_both_lines(
    suite_path: Path, cases: list[dict[str, Any]], again: list[tuple[int, int, int]], budget: int
) -> None:
    lines = [json.dumps(case) for case in cases]
    for which, where, blanks in again:
        repeated = {**cases[which % len(cases)], "input": "asked again"}
        lines[where % (len(lines) + 1) : where % (len(lines) + 1)] = [*[""] * blanks, json.dumps(repeated)]
    suite_path.write_text("\n".join(lines))
    first: dict[str, int] = {}
    expected = []
    for number, line in enumerate(lines, 1):
        if line:
            case_id = str(json.loads(line)["id"])
            if case_id in first:
                expected.append((number, first[case_id]))
            first.setdefault(case_id, number)
    problems = Problems()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SortedCases, "MEMORY_BYTES", budget)
        checked = check_suite(suite_path, problems)
        with pytest.raises(InvalidInput, match=r"duplicate id .*: lines \d+ and \d+"):
            hash_suite(suite_path)
    assert checked.suite_hash is None
    found = sorted((each.line, each.message) for each in problems if each.severity == "error")
    assert [at for at, _ in found] == [again_at for again_at, _ in expected]
    for (_, message), (again_at, first_at) in zip(found, expected, strict=True):
        assert f"lines {first_at} and {again_at}" in message


# ── Digests of ours ──

NAMES = ("model", "suite_hash", "case", "system_prompt", "output")
short = st.text("ab|\x00 é\ud800", max_size=3)
parameters: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.text("ab", max_size=2), st.sampled_from((0, 1, 1.0, True, None, "1", "", [1], {})), max_size=2
)
records = st.fixed_dictionaries(
    {"model": short, "parameters": parameters, "suite_hash": short, "case": short, "output": short}
    | {"system_prompt": st.none() | short}
)


@given(records, st.integers(0, len(NAMES) - 2), st.booleans())
@example(
    record={"model": "a", "suite_hash": "", "case": "", "system_prompt": "", "output": "", "parameters": {}},
    at=0,
    back=False,
)
def test_moving_a_character_between_fields_changes_the_record_digest(
    record: dict[str, Any], at: int, back: bool
) -> None:
    left, right = NAMES[at], NAMES[at + 1]
    texts = {left: record[left] or "", right: record[right] or ""}
    assume(texts[right if back else left])
    if back:
        moved = {left: texts[left] + texts[right][0], right: texts[right][1:]}
    else:
        moved = {left: texts[left][:-1], right: texts[left][-1] + texts[right]}
    assert record_digest(**{**record, **moved}) != record_digest(**record)


@given(records, records)
@examples(600)
def test_only_equal_records_have_equal_digests(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (record_digest(**one) == record_digest(**other)) == same
    # Each field alone, too: two random records seldom differ in one place only.
    for name, value in one.items():
        mixed = {**one, name: other[name]}
        same = json.dumps(value, sort_keys=True) == json.dumps(other[name], sort_keys=True)
        assert (record_digest(**one) == record_digest(**mixed)) == same


@given(st.text("ab|", max_size=4), st.text("ab|", max_size=4), st.text(max_size=4))
def test_the_published_result_hash_joins_fields_with_a_pipe(model: str, case: str, output: str) -> None:
    joined = f"{model}|{case}|{output}".encode()
    assert hash_result(model, case, output) == "sha256:" + hashlib.sha256(joined).hexdigest()


optional_texts = st.none() | any_texts
cases_of_ours = st.builds(
    Case,
    id=any_texts,
    kind=st.sampled_from(("test_case", "scenario")),
    turns=st.lists(st.builds(Turn, st.sampled_from(("system", "user", "assistant")), any_texts), max_size=3).map(tuple),
    facets=st.builds(Facets, any_texts, any_texts, optional_texts, st.lists(any_texts, max_size=2).map(tuple)),
    assertion=st.none()
    | st.builds(Assertion, any_texts, st.booleans(), st.none() | st.floats(0, 1), optional_texts, json_values),
    ideals=st.lists(any_texts, max_size=3).map(tuple),
    name=optional_texts,
    expected_outcome=optional_texts,
    prompt_audio_url=optional_texts,
    tokens_est=st.none() | st.integers(0, 9),
    source=st.none() | st.builds(SourceLocation, any_texts, st.integers(1, 9)),
)


@given(cases_of_ours, cases_of_ours)
def test_the_case_digest_ignores_only_the_source(case: Case, other: Case) -> None:
    digest = hash_case(case)
    assert hash_case(replace(case, source=other.source)) == digest
    assert hash_case(replace(case, source=None)) == digest
    for name in Case.__struct_fields__:
        mixed: Case = replace(case, **{name: getattr(other, name)})
        same = name == "source" or repr(getattr(case, name)) == repr(getattr(other, name))
        same = same or (name == "assertion" and _are_equal_assertions(case.assertion, other.assertion))
        assert (hash_case(mixed) == digest) == same, name


def _are_equal_assertions(one: Assertion | None, other: Assertion | None) -> bool:
    """Return whether two assertions differ at most in the order of keys inside their schema."""
    if one is None or other is None:
        return one is other
    schemas = {json.dumps(each.schema, sort_keys=True) for each in (one, other)}
    return len(schemas) == 1 and repr(replace(one, schema=None)) == repr(replace(other, schema=None))


@pytest.mark.parametrize("depth", [50, 250, 700])
def test_every_case_that_loads_has_a_digest_however_deep_its_schema(suite_path: Path, depth: int) -> None:
    from pramana.load.suite import read_cases

    schema = '{"not":' * depth + "true" + "}" * depth
    suite_path.write_text(
        '{"id":"coding-1","category":"coding","input":"x","ideal":"y","assertion":{"type":"contains","schema":'
        + schema
        + '},"metadata":{"difficulty":"easy","tokens_est":1}}'
    )
    problems = Problems()
    if check_suite(suite_path, problems).suite_hash is None:
        assert "nested" in problems.kept[0].message
        return
    [case] = read_cases(suite_path)
    assert hash_case(case).startswith("sha256:")
