"""Descriptions of agents: the shipped and the documented ones load, and each problem is reported at its position."""

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, to_builtins

from pramana.errors import InvalidInput, NotFound, Problem
from pramana.load.agent import MAX_DESCRIPTION_BYTES, load_agent, parse_agent, read_agent
from pramana.load.problems import Problems
from pramana.providers.voice import description
from pramana.providers.voice.declared import SHIPPED_DESCRIPTIONS_FILE, parse_description
from pramana.providers.voice.description import (
    CALL_SCOPE,
    INTERRUPT_SCOPE,
    MESSAGE_SCOPE,
    REPLY_SCOPE,
    SOUND_SCOPE,
    Description,
)

ROOT = Path(__file__).parents[2]
READY = SHIPPED_DESCRIPTIONS_FILE.parent
"""The files that ship: one agent each."""
PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
GOOD = """\
name: Desk
url: wss://desk.example/{model}
uplink: {send: binary}
downlink:
  rules:
    - binary: true
      event: agent_audio
turn_end: {silence_ms: 800}
"""


def parse(text: str) -> tuple[Description | None, list[Problem]]:
    problems = Problems()
    return parse_agent(text, problems, "a.yaml"), list(problems)


def parse_valid(text: str) -> Description:
    given, problems = parse(text)
    assert problems == []
    assert given is not None
    return given


def shipped_json() -> str:
    """Return what `agents/shipped.json` must hold: every ready file as plain data."""
    ready = {path.stem: load_agent(path) for path in sorted(READY.glob("*.yaml"))}
    return json.dumps(ready, ensure_ascii=False, indent=1) + "\n"


def find_problems(text: str) -> list[tuple[str, str, int, int]]:
    given, problems = parse(text)
    assert given is None
    return [(each.path, each.message, each.line, each.column) for each in problems]


# What is good


@pytest.mark.parametrize("path", sorted(READY.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_file_loads_and_round_trips_through_storage(path: Path) -> None:
    stored = json.loads(json.dumps(load_agent(path)))
    assert to_builtins(parse_description(stored)) == stored


def test_shipped_json_matches_the_shipped_files() -> None:
    says = "write it again: python -c 'from tests.load.test_agent import *; SHIPPED.write_text(shipped_json())'"
    assert SHIPPED_DESCRIPTIONS_FILE.read_text(encoding="utf-8") == shipped_json(), says


def test_the_documented_example_loads() -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    given = parse_valid(example)
    assert (given.name, given.greets, given.close) == ("Front desk", True, {"4001": "auth", "4029": "rate_limit"})
    assert given.turn_end.silence_ms == 1500
    assert given.interrupt == [{"type": "heard", "milliseconds": "{played_ms}"}]


def test_every_key_and_placeholder_is_documented() -> None:
    structs = [each for each in vars(description).values() if isinstance(each, type) and issubclass(each, Struct)]
    keys = {
        name for struct in structs for name in struct.__struct_fields__ if struct.__module__ == description.__name__
    }
    assert len(keys) > 30
    assert [key for key in sorted(keys) if not re.search(rf"`(uplink\.|downlink\.)?{key}`", PAGE)] == []
    holes = (
        CALL_SCOPE.always_known
        | CALL_SCOPE.sometimes_known
        | MESSAGE_SCOPE.always_known
        | SOUND_SCOPE.always_known
        | INTERRUPT_SCOPE.always_known
    )
    holes |= {
        f"{root}.{'NAME' if root == 'parameters' else 'PATH'}" for root in REPLY_SCOPE.is_always_known_by_path_root
    }
    assert [hole for hole in sorted(holes) if f"{{{hole}}}" not in PAGE] == []


def test_plain_scalars_follow_yaml_except_where_text_is_expected() -> None:
    given = parse_valid(
        GOOD
        + "headers: {a: 1, b: no}\nbye:\n  - {n: 1, f: 0.5, t: true, o: off, s: '1', z: null, v: 1.0.0, e: 1e999, d: 007}\n"
    )
    assert given.headers == {"a": "1", "b": "no"}
    assert given.bye == [
        {"n": 1, "f": 0.5, "t": True, "o": "off", "s": "1", "z": None, "v": "1.0.0", "e": "1e999", "d": 7}
    ]


def test_single_items_need_no_list_and_null_means_not_given() -> None:
    given = parse_valid(GOOD + "bye: {type: over}\ninterrupt: null\nhandshake: {wait: {type: a}, send: START}\n")
    assert (given.bye, given.interrupt) == ([{"type": "over"}], [])
    assert (given.handshake[0].wait, given.handshake[0].send) == ({"type": "a"}, ["START"])
    assert given.downlink.rules[0].event == ["agent_audio"]


def test_aliases_work() -> None:
    given = parse_valid("bye: &over {type: over}\ninterrupt: *over\n" + GOOD)
    assert given.bye == given.interrupt == [{"type": "over"}]


# What is wrong


def replace_in_good(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("text", "path", "message", "line", "column"),
    [
        ("", "yaml", "the document is empty", 1, 1),
        ("- a", "yaml", "expected a mapping of keys, found a list of 1", 1, 1),
        ("just words", "yaml", 'expected a mapping of keys, found "just words"', 1, 1),
        ("a: b: c", "yaml", "not valid YAML: a colon and a space", 1, 5),
        (GOOD + "---\na: 1", "yaml", "several documents in one stream", 9, 1),
        (replace_in_good("name: Desk\n", ""), "name", "name is required", 1, 1),
        (replace_in_good("turn_end: {silence_ms: 800}\n", ""), "turn_end", "turn_end is required", 1, 1),
        (GOOD + "colour: red", "colour", 'unknown key "colour"; known keys: name, uplink', 9, 1),
        (GOOD + "handshakes: []", "handshakes", 'unknown key "handshakes"; did you mean "handshake"?', 9, 1),
        (GOOD + "name: Two", "name", "duplicate key name: lines 1 and 9", 9, 1),
        (GOOD + "greets: maybe", "greets", 'expected true or false, found "maybe"', 9, 1),
        (GOOD + "greets: [true]", "greets", "expected true or false, found a list of 1", 9, 1),
        (GOOD + "headers: [a]", "headers", "expected a mapping, found a list of 1", 9, 1),
        (GOOD + "headers: {a: {b: c}}", "headers.a", "expected text, found a mapping", 9, 11),
        (GOOD + "framing: xml", "framing", 'expected json or pipecat-protobuf, found "xml"', 9, 1),
        (GOOD + "framing: pipecat", "framing", 'did you mean "pipecat-protobuf"?', 9, 1),
        (GOOD + "? [a]\n: b", "yaml", "a key must be text", 9, 3),
        (GOOD + "greets: !!bool true", "greets", "the tag !!bool is not supported", 9, 1),
        (GOOD + "bye: !secret x", "bye", "the tag !secret is not supported", 9, 1),
        (GOOD + "<<: {greets: true}", "<<", 'unknown key "<<"', 9, 1),
        (replace_in_good("url: wss://desk.example/{model}\n", ""), "", "url is missing", 1, 1),
        (replace_in_good("{model}", "{modle}"), "url", '{modle} is not a value that can be used here; did you mean "model"?', 2, 1),
        (replace_in_good("{model}", "{system_prompt}"), "url", "{system_prompt} is not set in every call; write", 2, 1),
        (replace_in_good("{model}", "{voice}"), "url", "write {voice|DEFAULT}, where DEFAULT is the value for the other calls", 2, 1),
        (replace_in_good("{model}", "{key}"), "url", "a key belongs in a header: Authorization: Bearer {key}", 2, 1),
        (replace_in_good("{model}", "{model}?key={key}"), "url", "a key belongs in a header", 2, 1),
        (GOOD + "dial: {path: '/{key}', socket: url}", "dial.path", "a key belongs in a header", 9, 8),
        (GOOD + "bye: {k: '{key}'}", "bye[0].k", "write {key|DEFAULT}, where DEFAULT is the value for the other calls, or end the name of the field in ?", 9, 7),
        (replace_in_good("desk.example", "me:pass-word@desk.example"), "url", "contains a user name or a password", 2, 1),
        (replace_in_good("desk.example", "me@desk.example"), "url", "write {key} and set WEBSOCKET_API_KEY", 2, 1),
        (GOOD + "base_url: https://me:pw@desk.example", "base_url", "contains a user name or a password", 9, 1),
        (GOOD + "base_url: https://desk.example?token=abc", "base_url", '"token" in the address contains a secret', 9, 1),
        (replace_in_good("{model}", "{model}?a=1&api_key=abc"), "url", '"api_key" in the address contains a secret', 2, 1),
        (replace_in_good("{model}", "{model}?accessToken=abc"), "url", "write {key} and set WEBSOCKET_API_KEY", 2, 1),
        (replace_in_good("{model}", "{model}?sig=abc#x"), "url", '"sig" in the address contains a secret', 2, 1),
        (replace_in_good("{model}", "{model}?token={key|abcdef}"), "url", '"token" in the address contains a secret', 2, 1),
        (GOOD + "dial: {path: '/call?secret=abc', socket: url}", "dial.path", '"secret" in the address contains a secret', 9, 8),
        (GOOD + "headers: {Authorization: Bearer abc}", "headers.Authorization", "contains a secret, and", 9, 11),
        (GOOD + "headers: {X-Api-Key: abc}", "headers.X-Api-Key", "write {key} and set WEBSOCKET_API_KEY", 9, 11),
        (GOOD + "headers: {x-auth-token: 'a {key|bc}'}", "headers.x-auth-token", "contains a secret, and", 9, 11),
        (GOOD + "headers: {client_secret: abc}", "headers.client_secret", "contains a secret, and", 9, 11),
        (GOOD + "dial: {path: /c, socket: u, headers: {xi-api-key: abc}}", "dial.headers.xi-api-key", "contains a secret, and", 9, 39),
        (GOOD + "headers: {'': x}", "headers.", '"" is not a header name', 9, 11),
        (GOOD + "headers: {X Y: x}", "headers.X Y", '"X Y" is not a header name', 9, 11),
        (GOOD + "headers: {Ä: x}", "headers.Ä", "is not a header name", 9, 11),
        (GOOD + "headers: {'X:': x}", "headers.X:", "is not a header name", 9, 11),
        (GOOD + 'headers: {"X\\r\\nEvil": x}', "headers.X\r\nEvil", "is not a header name", 9, 11),
        (GOOD + "headers: {Host: evil}", "headers.Host", "Host is set by Pramana when it connects", 9, 11),
        (GOOD + "headers: {content-length: 9}", "headers.content-length", "is set by Pramana when it connects", 9, 11),
        (GOOD + "headers: {Upgrade: x}", "headers.Upgrade", "is set by Pramana when it connects", 9, 11),
        (GOOD + "headers: {Connection: x}", "headers.Connection", "is set by Pramana when it connects", 9, 11),
        (GOOD + "headers: {Sec-WebSocket-Key: x}", "headers.Sec-WebSocket-Key", "is set by Pramana when it connects", 9, 11),
        (GOOD + 'headers: {X-A: "a\\r\\nEvil: 1"}', "headers.X-A", "the value contains a line break", 9, 11),
        (GOOD + 'headers: {X-A: "{model}\\nEvil: 1"}', "headers.X-A", "the value contains a line break", 9, 11),
        (GOOD + "headers: {X-A: ü}", "headers.X-A", "another invalid character", 9, 11),
        (GOOD + "headers: {X-A: 'a '}", "headers.X-A", "a trailing space", 9, 11),
        (GOOD + "dial: {path: /c, socket: u, headers: {Host: x}}", "dial.headers.Host", "is set by Pramana when it connects", 9, 39),
        (replace_in_good("{model}", "{"), "url", "single brace in", 2, 1),
        (replace_in_good("{model}", "{}"), "url", "{} names no value", 2, 1),
        (replace_in_good("{model}", "{audio}"), "url", "{audio} is not a value that can be used here", 2, 1),
        (replace_in_good("{model}", "{__class__.x}"), "url", "{__class__.x} is not a value that can be used here", 2, 1),
        (replace_in_good("send: binary", "send: text"), "uplink.send", "send must be binary, or an object", 3, 10),
        (replace_in_good("send: binary", "send: {a: b}"), "uplink.send", "the message has no {audio}", 3, 10),
        (replace_in_good("send: binary", "rate: fast"), "uplink.rate", "rate must be a number", 3, 10),
        (replace_in_good("send: binary", "rate: 7"), "uplink.rate", "rate must be 4000 to 192000 samples per second, found 7", 3, 10),
        (replace_in_good("send: binary", 'rate: "{nope|8000}"'), "uplink.rate", "{nope} is not a value", 3, 10),
        (replace_in_good("send: binary", "codec: opus"), "uplink.codec", 'expected pcm, mulaw or alaw, found "opus"', 3, 10),
        (replace_in_good("binary: true", "binary: false"), "downlink.rules[0]", "a rule needs either match or binary", 6, 7),
        (replace_in_good("event: agent_audio", "event: agent_sound"), "downlink.rules[0].event", "expected user_speech_start", 7, 7),
        (replace_in_good("event: agent_audio", "event: unknown"), "downlink.rules", "no rule produces agent_audio", 5, 3),
        (replace_in_good("event: agent_audio", "event: ready"), "downlink.rules[0].event", "expected user_speech_start", 7, 7),
        (replace_in_good("event: agent_audio", "event: [agent_audio, agent_text]"), "downlink.rules[0]", "a rule for words needs text", 6, 7),
        (replace_in_good("event: agent_audio", "event: agent_audio\n      id: a..b"), "downlink.rules[0].id", '"a..b" is not a path', 8, 7),
        (replace_in_good("event: agent_audio", "event: agent_audio\n      when: played"), "downlink.rules[0].when", "when: played needs a reply", 8, 7),
        (replace_in_good("event: agent_audio", "event: agent_audio\n      match: {a: 1}"), "downlink.rules[0]", "not both", 6, 7),
        (replace_in_good("event: agent_audio", "event: agent_audio\n    - match: {}"), "downlink.rules[1].match", "match is empty", 8, 7),
        (replace_in_good("event: agent_audio", "event: agent_audio\n    - match: {a: [1]}"), "downlink.rules[1].match.a", "expected a value, {one_of", 8, 15),
        (replace_in_good("event: agent_audio", "event: agent_audio\n    - match: {a: {on_of: [1]}}"), "downlink.rules[1].match.a", "expected a value", 8, 15),
        (replace_in_good("event: agent_audio", "event: agent_audio\n    - match: {a: 1}\n      reply: {b: '{mesage.c}'}"), "downlink.rules[1].reply[0].b", "{mesage.c} is not a value", 9, 15),
        (replace_in_good("event: agent_audio", "event: agent_audio\n    - match: {a: 1}\n      reply: [7]"), "downlink.rules[1].reply[0]", "a message must be an object", 9, 15),
        (replace_in_good("{silence_ms: 800}", "{}"), "turn_end", "turn_end needs match, silence_ms or both", 8, 1),
        (replace_in_good("silence_ms: 800", "silence_ms: 8"), "turn_end.silence_ms", "silence_ms must be 100 to 60000, found 8", 8, 12),
        (replace_in_good("silence_ms: 800", "silence_ms: 0.8"), "turn_end.silence_ms", 'expected a whole number, found "0.8"', 8, 12),
        (GOOD + "handshake: [{}]", "handshake[0]", "the step neither waits", 9, 13),
        (GOOD + "close: {99: auth}", "close.99", '"99" is not a WebSocket close code', 9, 9),
        (GOOD + "close: {1008: sad}", "close.1008", "expected auth, rate_limit", 9, 9),
        (GOOD + "dial: {path: call, socket: url}", "dial.path", "the path must begin with /", 9, 8),
        (GOOD + "dial: {path: /call, socket: url, body: {a: 1}}", "dial.body", "a GET has no body", 9, 34),
        (GOOD + "dial: {path: /call}", "dial.socket", "socket is required", 9, 1),
        (GOOD + "bye: {k: '{voice}'}", "bye[0].k", "{voice} is not set in every call", 9, 7),
        (GOOD + "interrupt: {k: '{message.a}'}", "interrupt[0].k", "{message.a} is not a value", 9, 13),
        (replace_in_good("send: binary", "announced: {format: a}"), "uplink.announced", "match is missing", 3, 10),
        (replace_in_good("send: binary", "announced: {match: {a: 1}}"), "uplink.announced", "write either format", 3, 10),
        (
            replace_in_good("send: binary", "announced: {match: {a: 1}, format: b, pattern: '{codec}'}"),
            "uplink.announced.pattern",
            "the pattern has no {rate}",
            3,
            48,
        ),
    ],
)  # fmt: skip
def test_each_problem_is_reported_at_its_position(text: str, path: str, message: str, line: int, column: int) -> None:
    [(found, said, *place), *_] = find_problems(text)
    assert (found, place) == (path, [line, column])
    assert message in said


def test_secret_sounding_words_and_key_placeholders_are_no_secrets() -> None:
    given = parse_valid(
        replace_in_good(
            "{model}", "{model}?keyterm=desk&max_tokens=9&author=me&token={key|}&auth={parameters.auth|}&key="
        )
        + "base_url: https://desk.example/{a@b\n"
        + "headers: {Authorization: 'Bearer {key}', X-Api-Key: '{key}', X-Keywords: a b, Sec-WebSocket-Protocol: desk}\n"
    )
    assert given.headers["Sec-WebSocket-Protocol"] == "desk"


def test_no_problem_reveals_the_secret() -> None:
    for line in ("headers: {Authorization: Bearer s3cr3t}", "base_url: https://me:s3cr3t@desk.example?key=s3cr3t"):
        assert not any("s3cr3t" in message for _, message, *_ in find_problems(GOOD + line))


def test_all_problems_are_reported_at_once() -> None:
    text = "name: [1]\nurl: x\ncolour: red\nuplink: {codec: opus, rate: []}\ndownlink: 7\n"
    assert [path for path, *_ in find_problems(text)] == [
        "name",
        "colour",
        "uplink.codec",
        "uplink.rate",
        "downlink",
        "turn_end",
    ]
    second = replace_in_good("{model}", "{a}{b}").replace("800", "8")
    assert [(path, line) for path, _, line, _ in find_problems(second)] == [
        ("url", 2),
        ("url", 2),
        ("turn_end.silence_ms", 8),
    ]


def test_a_problem_shows_its_line() -> None:
    _, problems = parse(GOOD + "greets: maybe")
    assert (problems[0].source, problems[0].caret, problems[0].file) == ("greets: maybe", 1, "a.yaml")


# What is hostile


def test_too_deep_nesting_is_refused() -> None:
    [(path, message, *_)] = find_problems(GOOD + "bye: " + "{a: " * 50 + "1" + "}" * 50)
    assert (path, message) == ("yaml", "nested more than 40 levels deep")
    [(_, message, *_)] = find_problems(GOOD + "bye: " + "[" * 100_000)
    assert "nested more than 40 levels deep" in message


def test_a_billion_laughs_attack_is_refused() -> None:
    laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for each, before in zip("bcdefghi", "abcdefgh", strict=True):
        laughs += f"{each}: &{each} [{', '.join([f'*{before}'] * 10)}]\n"
    began = time.monotonic()
    [(path, message, *_)] = find_problems(laughs + GOOD + "bye: {laugh: *i}\n")
    assert (path, "with its aliases expanded, this node" in message) == ("yaml", True)
    fewer = "\n".join(laughs.splitlines()[:5])
    found = find_problems(
        f"{GOOD}bye:\n  - {{b: &a [{', '.join(['x'] * 400)}]}}\n  - {{c: [{', '.join(['*a'] * 400)}]}}\n"
    )
    assert found[0][:2] == ("yaml", "with its aliases expanded, the description has more than 100,000 values")
    assert time.monotonic() - began < 5
    assert len(fewer) < 1000


def test_a_node_that_contains_itself_is_refused() -> None:
    [(_, message, *_)] = find_problems(GOOD + "bye: &a [*a]\n")
    assert message == "an alias makes this node contain itself"


def test_a_too_large_file_or_another_encoding_is_refused() -> None:
    problems = Problems()
    assert read_agent(b"# " + bytes(MAX_DESCRIPTION_BYTES), problems) is None
    assert read_agent(b"name: \xff\xfe", problems) is None
    assert [(each.message[:26], each.line, each.column) for each in problems] == [
        ("the file is larger than 1 ", 1, 1),
        ("not UTF-8: byte 0xff is in", 1, 7),
    ]


def test_too_many_rules_are_refused() -> None:
    rules = "    - match: {a: 1}\n" * 1001
    [(path, message, *_)] = find_problems(replace_in_good("turn_end", f"{rules}turn_end"))
    assert (path, message) == ("downlink.rules", "there are 1,002 rules; at most 1,000 are allowed")


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        load_agent(tmp_path / "none.yaml")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_agent(tmp_path)
    path = tmp_path / "bad.yaml"
    path.write_text("name: a\nnmae: b\n", encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        load_agent(path)
    assert str(caught.value).startswith(f"{path}:1:1: uplink: uplink is required (and 3 more)")
    assert {(each.path, each.line) for each in caught.value.problems} >= {("nmae", 2), ("downlink", 1)}


def test_any_file_gives_problems_or_a_description() -> None:
    chance = random.Random(5)
    texts = [path.read_text(encoding="utf-8") for path in READY.glob("*.yaml")]
    odd = [
        "{",
        "}",
        "[",
        "]",
        ":",
        "?",
        "&a",
        "*a",
        "!!int",
        "|",
        ">",
        "'",
        '"',
        "\t",
        "\x85",
        "{model}",
        "{x}",
        "null",
        "1e9",
        "- ",
    ]
    loaded = 0
    for _ in range(400):
        text = chance.choice(texts)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(text))
            text = text[:place] + chance.choice(odd) + text[place + chance.randrange(3) :]
        given, problems = parse(text)
        assert (given is None) == bool(problems)
        assert all(each.line and each.column for each in problems)
        loaded += given is not None
    assert 10 < loaded < 390


def test_values_of_every_type_at_every_key_are_accepted_or_reported() -> None:
    values: list[Any] = ["null", "true", "7", "text", "[]", "[1]", "{}", "{a: 1}", "[[[]]]", "{a: {b: [c]}}"]
    lines = GOOD.splitlines()
    for number, line in enumerate(lines):
        key = line.partition(":")[0]
        for value in values:
            given, problems = parse("\n".join([*lines[:number], f"{key}: {value}", *lines[number + 1 :]]))
            assert (given is None) == bool(problems)
