"""VoiceBench scenarios: every message of the format at its position, YAML 1.2 rules, and size limits."""

import time
from collections.abc import Iterator

import pytest

from pramana.errors import Problem
from pramana.load import yaml12
from pramana.load.problems import Problems
from pramana.load.scenario import (
    LocatedScenario,
    Scenario,
    format_scenarios,
    parse_scenario_or_errors,
    parse_scenarios,
    read_scenarios,
)
from pramana.model import SourceLocation

GOOD = {
    "id": "support-billing-refund",
    "name": "Refund of a double charge",
    "type": "conversation-flow",
    "prompt": "You charged me twice.",
    "expected_outcome": "Apologises and asks for the order number",
}


def make_document(**changes: str | None) -> str:
    """A single valid scenario; a change of None leaves the key out."""
    fields = {**GOOD, **changes}
    return "".join(f"{key}: {value}\n" for key, value in fields.items() if value is not None)


def parse(text: str) -> tuple[list[LocatedScenario], list[Problem]]:
    problems = Problems()
    return parse_scenarios(text, problems, "a.yaml"), list(problems)


def parse_valid(text: str) -> Scenario:
    located, problems = parse(text)
    assert problems == []
    assert len(located) == 1
    return located[0].scenario


def find_problems(text: str) -> list[tuple[str, str, int, int]]:
    located, problems = parse(text)
    assert located == []
    return [(each.path, each.message, each.line, each.column) for each in problems]


def test_problems_have_the_published_shape() -> None:
    text = 'version: "1.0"\nscenarios:\n  - id: Greeting_Basic\n' + "".join(
        f"    {key}: {value}\n" for key, value in GOOD.items() if key != "id"
    )
    expected = ("scenarios[0].id", "id must be lowercase alphanumeric with hyphens only", 3, 5)
    assert find_problems(text) == [expected]


def test_optional_fields_have_defaults() -> None:
    scenario = parse_valid(make_document())
    assert (scenario.prompt_audio_url, scenario.tags, scenario.language, scenario.difficulty) == (
        None,
        (),
        "en",
        "medium",
    )


@pytest.mark.parametrize("value", ["", "~", "null", "''", '"  "'])
@pytest.mark.parametrize("field", ["id", "name", "type", "prompt", "expected_outcome"])
def test_absent_null_empty_and_blank_fields_are_reported_as_required(field: str, value: str) -> None:
    line = list(GOOD).index(field) + 1
    assert find_problems(make_document(**{field: value})) == [(field, f"{field} is required", line, 1)]


@pytest.mark.parametrize("field", ["id", "name", "type", "prompt", "expected_outcome"])
def test_a_missing_key_points_at_its_scenario(field: str) -> None:
    assert find_problems(make_document(**{field: None})) == [(field, f"{field} is required", 1, 1)]
    many = "scenarios:\n" + "".join(f"    {line}\n" for line in make_document(**{field: None}).splitlines())
    many = many.replace("    ", "  - ", 1)
    assert find_problems(many) == [(f"scenarios[0].{field}", f"{field} is required", 2, 5)]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("id", "café-order", "id must be lowercase alphanumeric with hyphens only"),
        ("id", "book flight", "id must be lowercase alphanumeric with hyphens only"),
        ("id", '"ends-with-newline\\n"', "id must be lowercase alphanumeric with hyphens only"),
        ("id", "[a]", "id must be text"),
        ("name", "x" * 256, "name must be 255 characters or less"),
        ("name", "{a: b}", "name must be text"),
        (
            "type",
            "conversation_flow",
            'Invalid type "conversation_flow": expected task-completion, information-retrieval or conversation-flow;'
            ' did you mean "conversation-flow"?',
        ),
        ("type", "[x]", "type must be text"),
        ("prompt", "[hi]", "prompt must be text"),
        ("expected_outcome", "{a: b}", "expected_outcome must be text"),
        ("difficulty", "extreme", 'Invalid difficulty "extreme": expected easy, medium or hard'),
        ("difficulty", "''", 'Invalid difficulty "": expected easy, medium or hard'),
        ("language", "e", "language must be 2 to 10 characters"),
        ("language", "en-GB-oxford", "language must be 2 to 10 characters"),
        ("language", "[en]", "language must be text"),
        ("tags", "booking", "tags must be a list of strings"),
        ("tags", "[a, [b]]", "tags must be a list of strings"),
        ("tags", "[a, null]", "tags must be a list of strings"),
        ("tags", "[a, ' ']", "tags must be a list of strings"),
        ("tags", "{a: b}", "tags must be a list of strings"),
        (
            "prompt_audio_url",
            "ftp://a/b.wav",
            'prompt_audio_url must be an http(s) URL or a path, found "ftp://a/b.wav"',
        ),
        ("prompt_audio_url", "file:///etc/hosts", "prompt_audio_url must be an http(s) URL or a path"),
        ("prompt_audio_url", "javascript:alert(1)", "prompt_audio_url must be an http(s) URL or a path"),
        ("prompt_audio_url", "https://", "prompt_audio_url must be an http(s) URL or a path"),
        ("prompt_audio_url", "'http://[::1'", "prompt_audio_url must be an http(s) URL or a path"),
        ("prompt_audio_url", '"a\\0b.wav"', "prompt_audio_url must be an http(s) URL or a path"),
        ("prompt_audio_url", "''", "prompt_audio_url must be an http(s) URL or a path"),
        ("name", "!!int 5", "the tag !!int is not supported"),
        ("name", "!secret x", "the tag !secret is not supported"),
        ("tags", "[a, !!int 3]", "the tag !!int is not supported"),
    ],
)
def test_invalid_field_values_are_reported(field: str, value: str, message: str) -> None:
    text = make_document(**{field: value})
    line = next(number for number, each in enumerate(text.splitlines(), 1) if each.startswith(field + ":"))
    found = find_problems(text)
    assert len(found) == 1
    assert found[0][0] == field
    exact = message.endswith((" only", " less", " characters", " text", " strings"))  # the format's own words, whole
    assert found[0][1] == message if exact else found[0][1].startswith(message)
    assert found[0][2:] == (line, 1)


@pytest.mark.parametrize("length", [1, 255])
def test_lengths_are_counted_in_code_points(length: int) -> None:
    assert len(parse_valid(make_document(name="😀" * length)).name) == length


@pytest.mark.parametrize(
    "url", ["/audio/prompts/hello.wav", "hello.wav", "../a b.wav", "https://a.example/b.wav?c=d", "C:\\a.wav"]
)
def test_an_audio_prompt_is_a_url_or_a_path(url: str) -> None:
    assert parse_valid(make_document(prompt_audio_url=url)).prompt_audio_url == url


def test_plain_scalars_keep_their_spelling() -> None:
    text = make_document(
        id="123", name="1.0", prompt="yes", expected_outcome="0x1F", language="no", tags="[2024, 010, yes]"
    )
    scenario = parse_valid(text)
    assert (scenario.id, scenario.name, scenario.prompt, scenario.expected_outcome) == ("123", "1.0", "yes", "0x1F")
    assert (scenario.language, scenario.tags) == ("no", ("2024", "010", "yes"))
    assert parse_valid(make_document(name="Null", prompt="NULL", expected_outcome="'~'")).expected_outcome == "~"
    assert parse_valid(make_document(name="!!str null")).name == "null"


@pytest.mark.parametrize("version", ["1.0", "2", "'x'", "yes", "", "2024-01-01"])
def test_a_document_may_have_version_name_and_description(version: str) -> None:
    entry = "".join(f"    {key}: {value}\n" for key, value in GOOD.items()).replace("    ", "  - ", 1)
    located, problems = parse(f"version: {version}\nname: n\ndescription: d\nscenarios:\n{entry}")
    assert problems == []
    assert [(each.path_in_document, each.line) for each in located] == [("scenarios[0]", 5)]


def test_camel_case_is_accepted_but_not_both_spellings_at_once() -> None:
    scenario = parse_valid(make_document(expected_outcome=None, expectedOutcome="Helps", promptAudioUrl="a.wav"))
    assert (scenario.expected_outcome, scenario.prompt_audio_url) == ("Helps", "a.wav")
    assert find_problems(make_document(expectedOutcome="Helps")) == [
        ("expectedOutcome", "expected_outcome and expectedOutcome are two spellings of the same key; keep one", 6, 1)
    ]


def test_an_unknown_key_suggests_the_nearest_and_hides_nothing() -> None:
    assert find_problems(make_document(expected_outcome=None, expected_outcom="x", dificulty="easy")) == [
        ("expected_outcom", 'unknown key "expected_outcom"; did you mean "expected_outcome"?', 5, 1),
        ("dificulty", 'unknown key "dificulty"; did you mean "difficulty"?', 6, 1),
        ("expected_outcome", "expected_outcome is required", 1, 1),
    ]
    assert find_problems("scenario:\n  - id: a\n") == [
        ("scenario", 'unknown key "scenario"; did you mean "scenarios"?', 1, 1)
    ]
    assert find_problems("scenarios:\n- id: a\nversoin: 1\n")[0] == (
        "versoin", 'unknown key "versoin"; did you mean "version"?', 3, 1
    )  # fmt: skip
    assert ("<<", 'unknown key "<<"; YAML 1.2 has no merge keys, so write the fields out', 1, 1) in find_problems(
        "<<: {a: b}"
    )


def test_duplicate_keys_are_errors() -> None:
    assert find_problems(make_document() + "id: other\n") == [("id", "duplicate key id: lines 1 and 6", 6, 1)]
    text = "version: 1\nversion: 2\nscenarios:\n- a\n"
    assert ("version", "duplicate key version: lines 1 and 2", 2, 1) in find_problems(text)


def test_duplicate_ids_name_both_lines_even_among_invalid_scenarios() -> None:
    entry = "- {id: a-b, name: n, type: task-completion, prompt: p, expected_outcome: o}\n"
    located, problems = parse("scenarios:\n" + entry + "- {id: a-b}\n" + entry)
    assert len(located) == 1
    duplicates = [(each.path, each.message, each.line, each.column) for each in problems if "duplicate" in each.message]
    assert duplicates == [
        ("scenarios[1].id", 'duplicate id "a-b": lines 2 and 3', 3, 4),
        ("scenarios[2].id", 'duplicate id "a-b": lines 2 and 4', 4, 4),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ("yaml", "the document is empty; expected a scenario, or a list under scenarios", 1, 1)),
        ("# only a comment\n", ("yaml", "the document is empty; expected a scenario, or a list under scenarios", 1, 1)),
        ("~", ("yaml", "the document is empty; expected a scenario, or a list under scenarios", 1, 1)),
        ("- a\n- b\n", ("yaml", "the document must be a mapping, found a list of 2", 1, 1)),
        ("\n  hello\n", ("yaml", 'the document must be a mapping, found "hello"', 2, 3)),
        (
            "version: 1\nscenarios: []\n",
            ("scenarios", "scenarios must contain at least one scenario, found an empty list", 2, 1),
        ),
        ("scenarios:\n", ("scenarios", "scenarios must be a list, found nothing", 1, 1)),
        ("scenarios: {a: b}\n", ("scenarios", "scenarios must be a list, found a mapping", 1, 1)),
        ("scenarios: soon\n", ("scenarios", 'scenarios must be a list, found "soon"', 1, 1)),
        ("scenarios:\n- 5\n", ("scenarios[0]", 'a scenario must be a mapping of fields, found "5"', 2, 3)),
        (
            make_document() + "---\n" + make_document(),
            (
                "yaml",
                "several documents in one stream; put each into its own file, or all scenarios in one list",
                6,
                1,
            ),
        ),
        ("? [a, b]\n: c\nscenarios: 5\n", ("scenarios", 'scenarios must be a list, found "5"', 3, 1)),
    ],
)
def test_documents_of_another_shape_are_refused(text: str, problem: tuple[str, str, int, int]) -> None:
    assert [each for each in find_problems(text) if "a key must be text" not in each[1]] == [problem]


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("id: [a, b", "did not find expected", 1, 10),
        ("id: a\n\tname: b\n", "tab", 2, 1),
        ("id: `a`", "a value cannot start with `; quote it", 1, 5),
        ("id: 'a\nname: b\n", "found unexpected end of stream", 3, 1),
        ("id: a\nname: b: c\n", "a colon and a space inside a plain text; put the text in quotes", 2, 8),
        ("id: *nowhere", "undefined alias", 1, 5),
        ("id: é\x01", "the character U+0001 is not allowed in YAML", 1, 6),
        ("id: a\nname: 😀😀\x00", "the character U+0000 is not allowed in YAML", 2, 9),
        ("id: \ud800", "half of a surrogate pair", 1, 5),
        ("%YAML 3.0\n---\nid: a", "incompatible YAML document", 1, 1),
    ],
)
def test_syntax_errors_have_path_yaml_and_a_position(text: str, message: str, line: int, column: int) -> None:
    found = find_problems(text)
    assert len(found) == 1
    assert found[0][0] == "yaml"
    assert message in found[0][1]
    assert found[0][2:] == (line, column)


@pytest.mark.parametrize(
    ("before", "line", "column"),
    [
        ("\ufeff", 1, 1),
        ("# 😀 emoji\r\n", 2, 1),
        ("# a \u2028 and a \u0085 are no line ends\n", 2, 1),
        ("name: '😀 \u2028 \u0085'\r\nprompt: p\r\n", 3, 1),
        ("\n\r\n\n", 4, 1),
    ],
)
def test_positions_are_right_after_unusual_text(before: str, line: int, column: int) -> None:
    _, problems = parse(before + "id: Not Valid\n")
    assert [(each.line, each.column) for each in problems if each.path == "id"] == [(line, column)]


def test_positions_in_flow_style_after_emoji_and_tab() -> None:
    text = "{name: 😀😀,\tid: Not Valid}"
    _, problems = parse(text)
    place = next(each for each in problems if each.path == "id")
    assert text[place.column - 1 :].startswith("id:")
    assert (place.source, place.caret) == (text, place.column)


def test_yaml_1_1_line_breaks_are_text() -> None:
    assert parse_valid(make_document(prompt="'a\u0085b\u2028c\u2029d'")).prompt == "a\u0085b\u2028c\u2029d"
    assert parse_valid(make_document(prompt="a\u0085b \ue000")).prompt == "a\u0085b \ue000"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "!!map {a: "])
def test_nesting_depth_is_bounded(opening: str) -> None:
    start = time.process_time()
    found = find_problems("id: " * (opening != "- ") + opening * 1_000_000)
    assert len(found) == 1
    assert "nested more than 40 levels" in found[0][1] or "not valid YAML" in found[0][1]
    assert time.process_time() - start < 2


def billion_laughs_lines() -> Iterator[str]:
    yield "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n"
    for level in range(1, 30):
        yield f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"


def test_a_billion_laughs_attack_is_refused_quickly() -> None:
    start = time.process_time()
    found = find_problems("".join(billion_laughs_lines()))
    assert [each[1].partition(" has ")[0] for each in found] == ["with its aliases expanded, this node"]
    assert time.process_time() - start < 1


def test_an_alias_may_be_used_but_not_contain_itself() -> None:
    entry = "- {{id: {}, name: n, type: task-completion, prompt: p, expected_outcome: o, tags: {}}}\n"
    located, problems = parse("scenarios:\n" + entry.format("a-a", "&t [x, y]") + entry.format("b-b", "*t"))
    assert problems == []
    assert [each.scenario.tags for each in located] == [("x", "y"), ("x", "y")]
    assert find_problems("id: &a [*a]") == [("yaml", "an alias makes this node contain itself", 1, 5)]


def test_an_aliased_scenario_is_a_duplicate() -> None:
    entry = "- &a {id: x-y, name: n, type: task-completion, prompt: p, expected_outcome: o}\n"
    located, problems = parse("scenarios:\n" + entry + "- *a\n- *a\n")
    assert len(located) == 1
    assert [(each.path, each.message) for each in problems] == [
        ("scenarios[1].id", 'duplicate id "x-y": an alias repeats the scenario of line 2'),
        ("scenarios[2].id", 'duplicate id "x-y": an alias repeats the scenario of line 2'),
    ]


def test_a_non_text_key_hides_no_other_problem() -> None:
    entry = "- {? [a] : b, id: A, name: n, type: task-completion, prompt: p, expected_outcome: o}\n"
    _, problems = parse("scenarios:\n" + entry + "- {id: b-b}\n")
    assert [each.path for each in problems][:3] == ["scenarios[0]", "scenarios[0].id", "scenarios[1].name"]
    assert "a key must be text" in problems[0].message


def test_one_checker_serves_files_and_requests() -> None:
    camel = {**{key: value for key, value in GOOD.items() if key != "expected_outcome"}, "expectedOutcome": "Helps"}
    scenario, wrong = parse_scenario_or_errors(camel)
    assert scenario is not None
    assert (scenario.expected_outcome, wrong) == ("Helps", [])
    assert parse_scenario_or_errors({**GOOD, "nmae": "x", "name": 5})[1] == [
        ("nmae", 'unknown key "nmae"; did you mean "name"?'),
        ("name", "name must be text"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("".join(f"%TAG !a{number}! x\n" for number in range(100_000)) + "--- \nid: a\n", "%TAG is not supported"),
        ("scenarios: {" + "a," * 1_100_000 + "a}", "has more than 1,000,000 values"),
        ("a: &a '" + "é" * 200_000 + "'\nb: [" + "*a, " * 200 + "*a]\n", "with its aliases expanded, this node"),
        ("id: " + "k" * 100_000 + "\n" + "x" * 100_000 + ": y\n", ""),
    ],
)
def test_hostile_files_within_the_size_limit_are_read_quickly(text: str, message: str) -> None:
    start = time.process_time()
    _, problems = parse(text)
    assert message in problems[0].message
    assert max(len(str(each)) for each in problems) < 1000
    assert time.process_time() - start < 6


def test_file_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml12, "MAX_CHARACTERS", 1 << 20)
    assert "longer than 1 million characters" in find_problems("# " + "x" * (1 << 20))[0][1]
    problems = Problems()
    assert read_scenarios(b"#" * ((32 << 20) + 1), problems) == []
    assert "larger than 32 MB" in problems.kept[0].message


def test_invalid_utf8_is_reported_with_its_position() -> None:
    problems = Problems()
    assert read_scenarios(b"id: a\nname: caf" + b"\xe9\n", problems, "a.yaml") == []
    assert [(str(each), each.path) for each in problems] == [
        ("a.yaml:2:10: yaml: not UTF-8: byte 0xe9 is invalid here; save the file as UTF-8", "yaml")
    ]
    assert read_scenarios("id: a".encode("utf-16"), problems) == []


def test_all_errors_are_reported_at_once_up_to_a_limit() -> None:
    entries = "".join("- {id: A, name: '', type: x}\n" for _ in range(500))
    problems = Problems(limit=100)
    parse_scenarios("scenarios:\n" + entries, problems)
    assert problems.errors == 500 * 5 + 499
    assert len(problems.kept) == 100
    assert problems.not_shown_count == problems.errors - 100


def test_a_scenario_becomes_a_case() -> None:
    case = parse_valid(make_document(tags="[a]", difficulty="hard", language="hi", prompt_audio_url="a.wav")).to_case(
        SourceLocation("a", 1)
    )
    assert [(turn.role, turn.text) for turn in case.turns] == [("user", "You charged me twice.")]
    assert (case.kind, case.expected_outcome) == ("scenario", GOOD["expected_outcome"])
    assert (case.facets.category, case.facets.language, case.facets.tags) == ("conversation-flow", "hi", ("a",))


def test_written_scenarios_round_trip() -> None:
    tricky = [
        "null",
        "~",
        "no",
        "1.0",
        "- a",
        "a: b",
        "# x",
        " pad ",
        "line\nbreak",
        "\u0085\u2028",
        "😀",
        "'\"",
        "\t",
        "é",
    ]
    scenarios = [
        Scenario.model_validate({**GOOD, "id": f"s-{number}", "prompt": text + "x", "name": text, "tags": [text]})
        for number, text in enumerate(tricky)
        if text.strip()
    ]
    located, problems = parse(format_scenarios(scenarios))
    assert problems == []
    assert [each.scenario for each in located] == scenarios
