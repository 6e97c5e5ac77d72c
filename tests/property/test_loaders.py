"""The loaders turn any input into cases or positioned problems, and never raise another exception.

What enters: random text, random bytes, and documents that are valid but for a few edits (keys dropped, repeated,
mistyped or moved, values of every wrong kind, anchors, tags, directives, tabs, byte order marks, every kind of line
end). What is proven of each problem: it has a message, its line exists, its column lies on that line or just behind it,
and its caret points at the character in that place.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from pramana.errors import Problem
from pramana.load.problems import Problems
from pramana.load.scenario import LocatedScenario, parse_scenarios, read_scenarios
from pramana.load.suite import SuiteFileSummary, check_suite

from ..examples import examples

BOM = "\ufeff"

# Characters and snippets that some readers treat as syntax.
SNIPPETS = (
    *("\t", "\r", "\n", "\r\n", "\x00", "\x07", "\x0c", "\x1b", "\x7f", "\x85", "\xa0", "\u2028", "\u2029", BOM),
    *("\ue000", "\ufffd", "\uffff", "😀", "👩‍🚀", "é", "e\u0301", "ß", "مرحبا", "日本", "𝔘"),
    *(" ", "  ", "    ", ":", ": ", ",", "-", "- ", "? ", "#", " # c", "|", "|2-\n", ">", ">+\n", '"', "'", "\\", "%"),
    *("[", "]", "{", "}", "[]", "{}", "&a ", "*a", "*nowhere", "&a [*a]", "<<: *a", "!", "!!", "!!int ", "!secret "),
    *("!<tag:x> ", "!%41 ", "!%C3 ", "!%ED%A0%80 ", "!e!x ", "%YAML 1.1\n---\n", "%YAML 3.0\n---\n", "%TAG ! tag:x\n"),
    *("---", "--- ", "...", "\n---\n", "\n...\n", "@", "`", "~", "null", "Null", "yes", "no", "1.0", "0x1F", "1e999"),
    *("NaN", "-Infinity", "true", "1_000", "\\u0000", "\\ud800", "\\ud83d\\ude00", "\\uE000", "\\x", "\\N", "9" * 4400),
    *(
        "[" * 60,
        "{a: " * 60,
        '{"a":' * 2000,
        "[" * 2000,
        "x" * 300,
        "id: a\n",
        "tags:\n",
        "scenarios:\n",
        "text",
        "list",
    ),
)
SURROGATES = ("\ud800", "\udfff", "\ude00\ud83d")

rough_text = st.text(st.characters(), max_size=60)
snippet_text = st.lists(st.sampled_from(SNIPPETS + SURROGATES), max_size=30).map("".join)
any_text = rough_text | snippet_text | st.lists(rough_text | snippet_text, max_size=4).map("\n".join)


def split_lines(text: str, ends: str) -> list[str]:
    return re.split(ends, text.removeprefix(BOM))


def assert_positioned(problems: Sequence[Problem], lines: Sequence[str]) -> None:
    for each in problems:
        assert each.message.strip(), each
        assert "Input should" not in each.message, each  # pydantic's words, not ours
        assert 1 <= each.line <= len(lines), each
        line = lines[each.line - 1]
        assert 1 <= each.column <= len(line) + 1, (each, line)
        if each.source:
            assert 1 <= each.caret <= len(each.source) + 1, each
            assert each.source[each.caret - 1 : each.caret].strip("…") == line[each.column - 1 : each.column].strip("…")


# ── Edits: what turns a valid document into one that is nearly valid ──

EDITS = ("insert", "delete", "replace", "cut", "swap", "repeat line", "drop line", "indent", "case")
edits = st.lists(
    st.tuples(
        st.sampled_from(EDITS),
        st.integers(0, 10_000),
        st.integers(1, 12),
        st.sampled_from(SNIPPETS) | st.text(max_size=3),
    ),
    max_size=4,
)


def apply_edits(text: str, changes: Sequence[tuple[str, int, int, str]]) -> str:
    for edit, where, size, snippet in changes:
        start = where % (len(text) + 1)
        end = min(start + size, len(text))
        lines = text.splitlines(keepends=True)
        at = where % len(lines) if lines else 0
        match edit:
            case "insert":
                text = text[:start] + snippet + text[start:]
            case "delete":
                text = text[:start] + text[end:]
            case "replace":
                text = text[:start] + snippet + text[end:]
            case "cut":
                text = text[:start]
            case "swap":
                text = text[:start] + text[start:end][::-1] + text[end:]
            case "repeat line":
                text = "".join([*lines[: at + 1], *lines[at:]])
            case "drop line":
                text = "".join([*lines[:at], *lines[at + 1 :]])
            case "indent":
                text = "".join([*lines[:at], " " * size, *lines[at:]])
            case _:
                text = text[:start] + text[start:end].swapcase() + text[end:]
    return text


# ── Scenarios ──

FIELDS = ("id", "name", "type", "prompt", "expected_outcome", "tags", "language", "difficulty", "prompt_audio_url")
GOOD = {
    "id": ("booking-tram", "a", "0"),
    "name": ("Tram to the harbour", "'quoted'", '"double \\u00e9"'),
    "type": ("task-completion", "information-retrieval", "conversation-flow"),
    "prompt": ("Two tickets: please", '"Two: #tickets"', ">-\n      folded\n      text", "|\n      literal\n"),
    "expected_outcome": ("Names both fares", "&o Names both", "日本語で答える"),
    "tags": ("[a, b]", "\n      - domain:travel\n      - x", "[]"),
    "language": ("en", "ja", "no"),
    "difficulty": ("easy", "medium", "hard"),
    "prompt_audio_url": ("/audio/a.wav", "https://example.org/a.wav", "~"),
}
BAD = (
    *("", "null", "[]", "{}", "[a, [b]]", "{a: b}", "{[a]: b}", "!!int 7", "!secret x", "*o", "&o x", "1.0", "'", '"'),
    *(
        "\n      - ~\n      - a",
        "\n      - [x]",
        "\n      deep: {er: [x]}",
        "x" * 300,
        "E N",
        "http://[",
        "ftp://x",
        '"\\0"',
    ),
    *('" "', "'\u2028'", '"\\uE000\x85"', "\u0085", "? x", "a: b: c", "\tx", "%x", "[a", "{a", "&a [*a]", "@", "`"),
)
EXTRA_KEYS = (
    "Id",
    "nmae",
    "expectedOutcome",
    "promptAudioUrl",
    "<<",
    "? [x]",
    '"id"',
    "true",
    "~",
    "scenario",
    "{a: b}",
)


@st.composite
def scenario_fields(draw: st.DrawFn) -> list[tuple[str, str]]:
    fields = [(key, draw(st.sampled_from(GOOD[key]))) for key in FIELDS]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(fields) - 1))
        match draw(st.sampled_from(("drop", "twice", "mistype", "wrong", "move", "extra"))):
            case "drop" if len(fields) > 1:
                del fields[at]
            case "twice":
                fields.append(fields[at])
            case "mistype":
                fields[at] = (draw(st.sampled_from(EXTRA_KEYS)), fields[at][1])
            case "wrong":
                fields[at] = (fields[at][0], draw(st.sampled_from(BAD)))
            case "move":
                fields.insert(0, fields.pop(at))
            case _:
                fields.insert(at, (draw(st.sampled_from(EXTRA_KEYS)), draw(st.sampled_from(BAD))))
    return fields


@st.composite
def scenario_documents(draw: st.DrawFn) -> str:
    entries = draw(st.lists(scenario_fields(), min_size=1, max_size=3))
    if draw(st.booleans()):
        head = draw(
            st.sampled_from(('version: "1.0"\n', "", "name: x\ndescription: [y]\n", "scenarios: []\n", "odd: 1\n"))
        )
        body = "".join("  - " + "\n    ".join(f"{key}: {value}" for key, value in each) + "\n" for each in entries)
        text = f"{head}{draw(st.sampled_from(('scenarios', 'scenarios', 'scenarois')))}:\n{body}"
    else:
        text = "".join(f"{key}: {value}\n" for key, value in entries[0])
    text = apply_edits(text, draw(edits))
    text = text.replace("\n", draw(st.sampled_from(("\n", "\n", "\r\n", "\r"))))
    return draw(st.sampled_from(("", "", BOM, BOM + BOM, "%YAML 1.2\n---\n", "# c\n"))) + text


def assert_scenarios_or_positioned_problems(text: str, located: Sequence[LocatedScenario], problems: Problems) -> None:
    lines = split_lines(text, r"\r\n|\r|\n")
    assert located or problems.errors
    assert problems.errors + problems.warnings == len(problems.kept)  # far below the limit: nothing is only counted
    assert_positioned(problems.kept, lines)
    for each in located:
        assert 1 <= each.line <= len(lines)
        assert lines[each.find_field_position("id").line - 1][each.find_field_position("id").column - 1 :].strip(), each


@given(any_text)
@example("")
@example(BOM)
@example("a: [b\r\rc: d")
@example("prompt: !%ED%A0%80 v")
@example("%TAG ! tag:%ED%A0%80\n--- !a\na: b")
@example("a: \ud800")
@example(BOM + BOM + "é: \x00")
def test_any_text_gives_scenarios_or_positioned_problems(text: str) -> None:
    problems = Problems()
    located = parse_scenarios(text, problems)
    assert_scenarios_or_positioned_problems(text, located, problems)


@given(scenario_documents())
@examples(1_200)
def test_nearly_valid_yaml_gives_scenarios_or_positioned_problems(text: str) -> None:
    problems = Problems()
    located = parse_scenarios(text, problems)
    assert_scenarios_or_positioned_problems(text, located, problems)


@st.composite
def byte_documents(draw: st.DrawFn, documents: st.SearchStrategy[str]) -> bytes:
    encoding = draw(st.sampled_from(("utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-32-le", "cp1252")))
    data = draw(documents).encode(encoding, "replace")
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(data)))
        rough = draw(
            st.binary(max_size=4) | st.sampled_from((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5", b"\r", b"\0"))
        )
        data = data[:at] + rough + data[at + draw(st.integers(0, 4)) :]
    return data


@given(st.binary(max_size=200) | byte_documents(scenario_documents()) | byte_documents(any_text))
@examples(600)
@example(b"a: b\rc\xff")
@example(b"\xef\xbb\xbfa: b\n\xff")
@example(b"\xff\xfea\x00")
def test_any_bytes_give_scenarios_or_positioned_problems(data: bytes) -> None:
    problems = Problems()
    located = read_scenarios(data, problems)
    assert_scenarios_or_positioned_problems(data.decode("utf-8-sig", "replace"), located, problems)


def test_an_invalid_byte_after_a_byte_order_mark_is_named() -> None:
    problems = Problems()
    read_scenarios(b"\xef\xbb\xbfid: caf\xe9\n", problems)
    [problem] = problems
    assert "0xe9" in problem.message
    assert (problem.line, problem.column) == (1, 8)


@given(
    st.sampled_from("\x85\u2028\u2029"), st.integers(0xE000, 0xF8FF), st.sampled_from(("\\u{:04x}", "\\U{:08X}", "{}"))
)
@example("\x85", 0xE000, "\\u{:04X}")
def test_a_private_use_character_is_kept_beside_a_yaml_1_1_line_break(
    line_break: str, code: int, spelling: str
) -> None:
    spelled = spelling.format(chr(code) if spelling == "{}" else code)
    text = f'id: a\nname: n\ntype: task-completion\nprompt: "<{spelled}>"\nexpected_outcome: "a{line_break}b"\n'
    [located] = parse_scenarios(text, Problems())
    assert located.scenario.prompt == f"<{chr(code)}>"
    assert located.scenario.expected_outcome == f"a{line_break}b"


def test_a_text_with_every_private_use_character_is_read_or_refused() -> None:
    private = "".join(map(chr, (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE))))
    text = f'id: a\nname: n\ntype: task-completion\nprompt: "{private}"\nexpected_outcome: "a\x85b"\n'
    problems = Problems()
    located = parse_scenarios(text, problems)
    assert_scenarios_or_positioned_problems(text, located, problems)
    for each in located:
        assert (each.scenario.prompt, each.scenario.expected_outcome) == (private, "a\x85b")


@pytest.mark.parametrize(
    "form", ["{}", "scenarios: {}", "scenarios: [{}]", "{}: x", "id: {}", "id: !<{}> x", "id: &{} x"]
)
@pytest.mark.parametrize("line_break", ["\x85", "\u2028", "\u2029"])
def test_no_message_shows_a_character_that_is_not_in_the_text(form: str, line_break: str) -> None:
    problems = Problems()
    parse_scenarios(form.format(f"a{line_break}b"), problems)
    assert problems.errors
    for each in problems:
        shown = each.message + each.path + each.source
        assert not re.search(r"[\ue000-\uf8ff]|\\u[ef][0-9a-f]{3}", shown), each


# ── Suites ──

json_text = st.text(st.characters(), max_size=8) | st.sampled_from(SNIPPETS[:40] + SURROGATES)
json_numbers = st.integers() | st.floats() | st.just(10**400) | st.just(-0.0)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | json_numbers | json_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_text, inner, max_size=3),
    max_leaves=6,
)
SCHEMAS: tuple[Any, ...] = (
    *(
        {},
        True,
        False,
        {"type": "object"},
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"$ref": "http://example.org/x"},
        7,
        [],
    ),
    *({"pattern": "("}, {"pattern": "(?=a)"}, {"type": "x"}, {"const": "\ud800"}, {"\ud800": 1}, {"const": 10**400}),
)
TYPES = (
    *("exact_match", "contains", "contains_any", "contains_none", "is_json", "json_schema", "regex", "llm_judge"),
    *("semantic_similarity", "contians", "Contains"),
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "system", "assistant", "robot")), "content": json_text},
    optional={"text": st.just(1), "name": json_values},
)
assertions = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)},
    optional={
        "case_sensitive": st.booleans() | json_values,
        "threshold": st.floats(0, 1) | json_values,
        "judge_prompt": st.just("Is it kind? YES or NO") | json_values,
        "schema": st.sampled_from(SCHEMAS) | json_values,
        "list": json_values,
        "ideal": st.just("x"),
    },
)
metadata = st.fixed_dictionaries(
    {"difficulty": st.sampled_from(("easy", "hard", "Easy")), "tokens_est": st.integers(-1, 9) | json_values},
    optional={"tags": st.lists(json_text, max_size=2) | json_values, "text": json_values},
)
PATTERNS = ("(", "a|b", "(?i)é", "\\p{Greek}+", "(?=x)", "\\1", "[", "a{1001}", "\\C", "\x00", "\ud800", "(?P<a>x)")
test_cases = st.fixed_dictionaries(
    {
        "id": st.sampled_from(("coding-1", "coding-2", "a", " ")) | json_text,
        "category": st.sampled_from(("coding", "safety", "cooking")),
        "input": json_text | st.lists(messages, max_size=2),
        "assertion": assertions,
        "metadata": metadata,
    },
    optional={
        "ideal": json_text | st.lists(json_text, max_size=3) | st.sampled_from(PATTERNS),
        "text": json_values,
        "schema": json_values,
    },
)


@st.composite
def suite_lines(draw: st.DrawFn) -> str:
    case = draw(test_cases)
    for _ in range(draw(st.integers(0, 2))):
        key = draw(st.sampled_from(sorted(case)) | json_text)
        if draw(st.booleans()):
            case.pop(key, None)
        else:
            case[key] = draw(json_values)
        case = case or {"id": "x"}
    line = json.dumps(case, ensure_ascii=draw(st.booleans()))
    return apply_edits(line, draw(edits | st.just([])))


suite_documents = st.tuples(
    st.lists(suite_lines(), max_size=3), st.sampled_from(("\n", "\r\n", "\n\n", "\r", "\u2028"))
).map(lambda drawn: drawn[1].join(drawn[0]))


@pytest.fixture(scope="module")
def suite_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suites") / "suite.jsonl"


def assert_suite_or_positioned_problems(path: Path, data: bytes) -> tuple[SuiteFileSummary, Problems]:
    path.write_bytes(data)
    problems = Problems()
    checked = check_suite(path, problems)
    text = data.removeprefix(BOM.encode()).decode(errors="replace")
    assert_positioned(problems.kept, re.split(r"\r?\n", text))
    assert (checked.suite_hash is None) == bool(problems.errors)
    assert checked.case_count or problems.errors
    event("valid" if checked.suite_hash else "refused")
    return checked, problems


@given(data=st.binary(max_size=200) | any_text.map(lambda text: text.encode("utf-8", "surrogatepass")))
@examples(600)
@example(data=b"")
@example(data=b"\xef\xbb\xbf\n")
@example(data=b"{}\r\n\xff")
@example(data=b"[" * 100_000)
def test_any_bytes_give_a_suite_or_positioned_problems(suite_path: Path, data: bytes) -> None:
    assert_suite_or_positioned_problems(suite_path, data)


@given(data=byte_documents(suite_documents) | suite_documents.map(lambda text: text.encode("utf-8", "surrogatepass")))
@examples(600)
@example(
    data=rb'{"id":"coding-1","category":"coding","input":"x","ideal":"\ud800","assertion":{"type":"regex"},'
    rb'"metadata":{"difficulty":"easy","tokens_est":1}}'
)
@example(data=rb'{"id": "x", "category": "coding", "\ud800": 1}')
@example(data=rb'{"id": "x", "category": "\ud800"}')
def test_nearly_valid_lines_give_a_suite_or_positioned_problems(suite_path: Path, data: bytes) -> None:
    assert_suite_or_positioned_problems(suite_path, data)


@given(
    key=st.sampled_from(("text", "list", "txet", "0", "schema_")),
    where=st.sampled_from(("", "assertion", "metadata", "input")),
)
def test_an_unknown_key_of_any_name_is_reported_at_its_column(suite_path: Path, key: str, where: str) -> None:
    case: dict[str, Any] = {
        "id": "coding-1",
        "category": "coding",
        "input": [{"role": "user", "content": "x"}],
        "ideal": "y",
        "assertion": {"type": "contains"},
        "metadata": {"difficulty": "easy", "tokens_est": 1},
    }
    target = {"": case, "input": case["input"][0]}.get(where) or case[where]
    target[key] = 1
    line = json.dumps(case)
    _, problems = assert_suite_or_positioned_problems(suite_path, line.encode())
    [problem] = problems
    assert f'unknown key "{key}"' in problem.message
    assert line[problem.column - 1 :].startswith(f'"{key}": 1')
