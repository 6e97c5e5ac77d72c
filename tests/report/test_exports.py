"""Exports: each format read back by a program that is not ours, whatever a model wrote."""

import csv
import io
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pramana.analyse.summary import Total
from pramana.hash import case_digest, hash_result
from pramana.model import (
    Assertion,
    Call,
    Case,
    Check,
    Facets,
    Failure,
    Key,
    Outcome,
    Plan,
    Reply,
    Result,
    Run,
    Target,
    Turn,
    Usage,
)
from pramana.report import export
from pramana.report.exports import FORMATS, Format, recording_name, result_score, results_schema
from pramana.report.figures import escape_unprintable, format_cost, format_duration, format_percent

from ..chromium import dump_dom

NASTY = [
    "<script>document.title='owned'</script>",
    "<img src=http://127.0.0.1:{port}/x onerror=document.title='owned'>",
    '=HYPERLINK("http://127.0.0.1")',
    "@team please | look ``` at [this](http://127.0.0.1) <b>",
    "NUL \x00 bell \x07 escape \x1b[31m half \ud800 not \ufffe end ]]> & \" ' \r\n last \x85\u2028",
    "مرحبا \u202e 世界 👩🏽‍🚀",
    "",
]
Rows = list[tuple[Case, Result]]
TEXT_FORMATS = [each for each in FORMATS if each != "parquet"]


def row(
    text: str = "x",
    outcome: Outcome = Outcome.PASSED,
    *,
    case_id: str = "factual-001",
    model: str = "m",
    repeat: int = 0,
    reason: str = "because",
    value: float | None = None,
    **facets: Any,
) -> tuple[Case, Result]:
    turns = (Turn("user", "Where is " + text),)
    kept = Facets(**{"category": "factual", "difficulty": "easy", **facets})
    case = Case(case_id, "test_case", turns, kept, Assertion("contains"), (text,))
    key = Key(case_digest(case), model, "text", repeat)
    if outcome is Outcome.ERRORED:
        return case, Result(key, case_id, None, Failure("unavailable", reason), (), None, None)
    reply = Reply(text, Usage(10, 3), first_token_s=0.1, total_s=0.25, cost_usd=0.001)
    check = Check("contains", "1", outcome, reason, value, {"at": 7})
    return case, Result(key, case_id, reply, None, (check,), hash_result(model, case_id, text), None)


def a_run(
    *models: str, repeats: int = 1, status: Any = "finished", suite_hash: str | None = "sha256:" + "0" * 64
) -> Run:
    targets = tuple(Target(model, "fake", model) for model in models or ("m",))
    plan = Plan("v1.0-cheap", suite_hash, targets, repeats, {"temperature": 0, "seed": 42}, runner_version="0.1.0")
    return Run("run-1", plan, status, "2026-01-02T03:04:05Z", 5, 5)


def exported(kind: Format, run: Run, rows: Rows) -> str:
    out = io.StringIO(newline="")
    export(kind, run, iter(rows), out)
    text = out.getvalue()
    assert text.encode("utf-8")  # every format can be written to a file
    return text


ALL = [
    row(f"said {outcome.value}", outcome, case_id=f"a-{number}", reason=f"why {number}")
    for number, outcome in enumerate(Outcome)
]
SCHEMA = jsonschema.Draft202012Validator(results_schema())


# ── JSON ──


def test_the_schema_is_json_schema_2020_12() -> None:
    assert results_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(results_schema())


def test_results_have_the_published_shape() -> None:
    (block,) = json.loads(exported("json", a_run(), ALL))
    SCHEMA.validate([block])
    assert list(block) == ["suite_version", "suite_hash", "run_metadata", "results", "summary"]
    assert block["run_metadata"] == {
        "timestamp": "2026-01-02T03:04:05Z",
        "model_id": "m",
        "temperature": 0,
        "seed": 42,
        "runner_version": "0.1.0",
        "model": "m",
        "provider": "fake",
        "status": "finished",
        "complete": True,
        "system_prompt": None,
        "run_id": "run-1",
    }
    first = block["results"][0]
    published = ["test_id", "output", "assertion_result", "latency_ms", "result_hash", "score"]
    assert list(first) == [*published, "repeat", "case_digest", "prompt", "expected"]
    assert (first["prompt"], first["expected"]) == ("Where is said passed", "said passed")
    assert first["case_digest"] == case_digest(ALL[0][0])
    assert (first["assertion_result"]["passed"], first["score"], first["latency_ms"]) == (True, 1.0, 250)
    assert first["result_hash"] == hash_result("m", "a-0", "said passed")
    assert first["assertion_result"]["details"]["checks"] == [
        {
            "name": "contains",
            "version": "1",
            "outcome": "passed",
            "reason": "why 0",
            "value": None,
            "evidence": {"at": 7},
        }
    ]
    assert block["summary"] == {"total": 5, "passed": 1, "skipped": 3, "pass_rate": 0.5}


def test_what_has_no_verdict_is_skipped_with_outcome_and_reason() -> None:
    (block,) = json.loads(exported("json", a_run(), ALL))
    for number, outcome in ((2, "errored"), (3, "unscored"), (4, "skipped")):
        entry = block["results"][number]
        details = {"skipped": True, "outcome": outcome, "reason": f"why {number}"}
        assert entry["assertion_result"] == {"passed": False, "details": details}
        assert entry["score"] is None
    errored = block["results"][2]
    assert (errored["output"], errored["latency_ms"]) == ("", 0)
    assert errored["result_hash"] == hash_result("m", "a-2", "")


def test_a_model_is_called_by_its_provider_s_name_and_hashed_so() -> None:
    plan = replace(a_run().plan, targets=(Target("opus", "anthropic", "claude-opus-4-6"),))
    run, rows = replace(a_run(), plan=plan), [row("yes", model="opus")]
    (block,) = json.loads(exported("json", run, rows))
    assert (block["run_metadata"]["model_id"], block["run_metadata"]["model"]) == ("claude-opus-4-6", "opus")
    hashed = hash_result("claude-opus-4-6", "factual-001", "yes")
    assert block["results"][0]["result_hash"] == hashed
    (read,) = csv.DictReader(io.StringIO(exported("csv", run, rows), newline=""))
    assert (read["model"], read["result_hash"]) == ("opus", hashed)
    SCHEMA.validate([block])


@pytest.mark.parametrize("status", ["stopped", "interrupted", "running"])
def test_an_unfinished_run_is_marked_and_each_model_says_whether_it_has_all(status: Any) -> None:
    run = replace(a_run("m", "n", status=status), expected=4, stored=3)
    rows = [row(case_id="a-1"), row(case_id="a-2"), row(case_id="a-1", model="n")]
    blocks = json.loads(exported("json", run, rows))
    SCHEMA.validate(blocks)
    assert [each["run_metadata"]["complete"] for each in blocks] == [True, False]
    assert {each["run_metadata"]["status"] for each in blocks} == {status}


def test_files_without_our_own_fields_are_still_of_the_shape() -> None:
    blocks = json.loads(exported("json", a_run(), ALL))
    for name in ("model", "provider", "status", "complete", "run_id"):
        del blocks[0]["run_metadata"][name]
    for each in blocks[0]["results"]:
        for name in ("case_digest", "prompt", "expected"):
            del each[name]
    SCHEMA.validate(blocks)


def test_there_is_one_block_a_model_in_the_order_they_were_named() -> None:
    rows = [
        row(case_id=f"a-{number}", model=model, repeat=repeat)
        for number in range(3)
        for repeat in (0, 1)
        for model in ("z", "m")
    ]
    blocks = json.loads(exported("json", a_run("z", "m", repeats=2), rows))
    assert [block["run_metadata"]["model_id"] for block in blocks] == ["z", "m"]
    for block in blocks:
        assert [(each["test_id"], each["repeat"]) for each in block["results"]] == [
            (f"a-{number}", repeat) for number in range(3) for repeat in (0, 1)
        ]
    SCHEMA.validate(blocks)


def test_a_run_without_results_and_one_without_verdicts_are_still_of_the_shape() -> None:
    for rows in ([], [row(outcome=Outcome.UNSCORED)]):
        blocks = json.loads(exported("json", a_run(suite_hash=None), rows))
        SCHEMA.validate(blocks)
        assert blocks[0]["summary"]["pass_rate"] == 0.0
        assert blocks[0]["suite_hash"] is None


@pytest.mark.parametrize(
    ("outcome", "value", "score"),
    [
        (Outcome.PASSED, None, 1.0),
        (Outcome.FAILED, None, 0.0),
        (Outcome.PASSED, 0.83, 0.83),
        (Outcome.FAILED, 0.41, 0.41),
        (Outcome.PASSED, 7.0, 1.0),
        (Outcome.UNSCORED, 0.5, None),
    ],
)
def test_the_score_is_what_the_check_measured(outcome: Outcome, value: float | None, score: float | None) -> None:
    assert result_score(*row(outcome=outcome, value=value)) == score


def test_the_schema_refuses_a_score_without_a_verdict_and_a_verdict_without_a_score() -> None:
    blocks = json.loads(exported("json", a_run(), ALL))
    blocks[0]["results"][2]["score"] = 0.0
    assert not SCHEMA.is_valid(blocks)
    blocks[0]["results"][2]["score"] = None
    assert SCHEMA.is_valid(blocks)
    blocks[0]["results"][0]["score"] = None
    assert not SCHEMA.is_valid(blocks)


def judged(judges: list[str], outcome: Outcome = Outcome.PASSED) -> Rows:
    rows = []
    for number, judge in enumerate(judges):
        case, result = row(outcome=outcome, case_id=f"a-{number}")
        evidence = {"judge": judge, "served_model": None, "cost_usd": 0.01, "tokens": 50}
        rows.append((case, replace(result, checks=(Check("llm_judge", "1", outcome, "so", evidence=evidence),))))
    return rows


def test_verdicts_of_several_judges_are_said_near_the_rate_in_every_format() -> None:
    rows = judged(["gpt-5"] * 7 + ["fake:echo"] * 3)
    sentence = "llm_judge: 7 of 10 verdicts by openai:gpt-5, 3 by fake:echo"
    (block,) = json.loads(exported("json", a_run(), rows))
    SCHEMA.validate([block])
    assert block["summary"]["mixed_judges"] == [sentence]
    root = ET.fromstring(exported("junit", a_run(), rows))  # noqa: S314 - ours
    assert [(each.get("name"), each.get("value")) for each in root.iter("property")] == [
        ("run_id", "run-1"),
        ("mixed_judges", sentence),
    ]
    read = csv.DictReader(io.StringIO(exported("csv", a_run(), rows), newline=""))
    assert [each["judge"] for each in read] == ["openai:gpt-5"] * 7 + ["fake:echo"] * 3
    head, _, _ = exported("markdown", a_run(), rows).partition("| m |")
    assert f"**The verdicts come from several judges: {sentence}**" in head
    page = exported("html", a_run(), rows)
    warning = f'<p class="warn">The verdicts come from several judges: <bdi dir="auto">{sentence}</bdi></p>'
    assert page.index('<p class="big">') < page.index(warning) < page.index('<dl class="tiles">')


@pytest.mark.parametrize("kind", TEXT_FORMATS)
def test_one_judge_is_not_worth_a_word(kind: Format) -> None:
    assert not re.search("(?i)several judges|mixed_judges", exported(kind, a_run(), judged(["gpt-5", "openai:gpt-5"])))


def test_what_judges_took_stands_beside_what_replies_did() -> None:
    rows = judged(["gpt-5"] * 4)
    text = exported("markdown", a_run(), rows)
    assert "Tokens: 40 in, 12 out; judges: 200 tokens, $0.0400; total cost: $0.0440;" in text
    page = exported("html", a_run(), rows)
    assert "<dt>Judge tokens</dt><dd>200<small>$0.0400 of the cost</small>" in page
    assert "judges" not in exported("markdown", a_run(), ALL)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_does_not_have_is_null(number: float) -> None:
    case, result = row()
    check = Check(
        "rubric", "1", Outcome.PASSED, "so", number, {"reasons": {"accuracy": [number, 1]}, "cost_usd": number}
    )
    reply = replace(result.reply, cost_usd=number) if result.reply else None
    rows = [(case, replace(result, checks=(check,), reply=reply))]
    (block,) = json.loads(exported("json", a_run(), rows), parse_constant=pytest.fail)
    (written,) = block["results"][0]["assertion_result"]["details"]["checks"]
    assert (written["value"], written["evidence"]) == (None, {"reasons": {"accuracy": [None, 1]}, "cost_usd": None})
    assert block["results"][0]["score"] == 1.0
    (read,) = csv.DictReader(io.StringIO(exported("csv", a_run(), rows), newline=""))
    assert read["cost_usd"] == ""
    assert "nan" not in exported("markdown", a_run(), rows)


def test_evidence_nested_beyond_measure_is_cut_not_fatal() -> None:
    nested: Any = 1
    for _ in range(100_000):
        nested = [nested]
    case, result = row()
    check = Check("strange", "1", Outcome.PASSED, "so", evidence={"deep": nested})
    (block,) = json.loads(exported("json", a_run(), [(case, replace(result, checks=(check,)))]))
    assert block["summary"]["passed"] == 1


# ── CSV ──


def test_csv_has_one_row_a_result() -> None:
    rows = list(csv.DictReader(io.StringIO(exported("csv", a_run(), ALL), newline="")))
    assert [each["outcome"] for each in rows] == ["passed", "failed", "errored", "unscored", "skipped"]
    assert [each["score"] for each in rows] == ["1.0", "0.0", "", "", ""]
    assert (rows[0]["latency_ms"], rows[0]["cost_usd"], rows[0]["input_tokens"]) == ("250", "0.001", "10")
    assert (rows[2]["output"], rows[2]["latency_ms"], rows[2]["reason"]) == ("", "", "why 2")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝"])
def test_no_cell_becomes_a_formula(start: str) -> None:
    rows = [row(f"{start}cmd|' /C calc'!A0", reason=f"{start}x", case_id=f"{start}id", tags=(f"{start}tag",))]
    (read,) = csv.DictReader(io.StringIO(exported("csv", a_run(), rows), newline=""))
    for column in ("output", "reason", "test_id", "tags"):
        assert read[column].startswith(f"'{start}")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_csv_gives_back_what_was_said(texts: list[str]) -> None:
    read = list(csv.DictReader(io.StringIO(exported("csv", a_run(), [row(text) for text in texts]), newline="")))
    assert [each["output"].removeprefix("'") for each in read] == [
        escape_unprintable(text).removeprefix("'") for text in texts
    ]


# ── JUnit ──


def test_junit_tells_failures_errors_and_skipped_apart() -> None:
    rows = [*ALL, row(case_id="b-1", model="n")]
    root = ET.fromstring(exported("junit", a_run("m", "n"), rows))  # noqa: S314 - ours
    assert root.tag == "testsuites"
    assert {key: root.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6", "failures": "1", "errors": "1", "skipped": "2",
    }  # fmt: skip
    first, second = root
    assert (first.get("name"), second.get("name")) == ("v1.0-cheap on m", "v1.0-cheap on n")
    assert (first.get("tests"), second.get("tests"), second.get("failures")) == ("5", "1", "0")
    kinds = Counter(child.tag for test in root.iter("testcase") for child in test)
    assert kinds == {"failure": 1, "error": 1, "skipped": 2}
    failure = root.find(".//failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type"), failure.text) == ("why 1", "contains", "why 1\n\nsaid failed")
    test = root.find(".//testcase")
    assert test is not None
    assert (test.get("classname"), test.get("name"), test.get("time")) == ("v1.0-cheap.factual", "a-0", "0.250")
    assert [each.get("message") for each in root.iter("skipped")] == ["unscored: why 3", "skipped: why 4"]


def test_repeats_have_names_of_their_own() -> None:
    rows = [row(case_id="a-1", repeat=repeat) for repeat in (0, 1)]
    root = ET.fromstring(exported("junit", a_run(repeats=2), rows))  # noqa: S314 - ours
    assert [test.get("name") for test in root.iter("testcase")] == ["a-1 (repeat 1)", "a-1 (repeat 2)"]


everything = st.text(st.characters(exclude_categories=()), max_size=40)


@settings(max_examples=200, deadline=None)
@given(everything, everything, everything)
def test_junit_is_xml_whatever_the_texts_hold(text: str, reason: str, name: str) -> None:
    rows = [row(text, outcome, reason=reason, case_id=name, category=name) for outcome in Outcome]
    written = exported("junit", a_run(name), [(case, result) for case, result in _as(rows, name)])
    root = ET.fromstring(written.encode())  # noqa: S314 - ours
    failure, error = root.find(".//failure"), root.find(".//error")
    assert failure is not None
    assert error is not None
    assert failure.text == escape_unprintable(f"{reason}\n\n{text}")
    assert error.get("message") == escape_unprintable(reason)
    assert [test.get("name") for test in root.iter("testcase")] == [escape_unprintable(name)] * 5


def _as(rows: Rows, model: str) -> Iterator[tuple[Case, Result]]:
    for case, result in rows:
        yield case, replace(result, key=replace(result.key, model=model))


# ── Markdown ──


def test_markdown_says_what_a_reviewer_wants_to_know() -> None:
    text = exported("markdown", a_run(), ALL)
    assert text.startswith("### v1.0-cheap: 50.0 % passed\n")
    assert "| m | 50.0 % | 9.5–90.5 % | 1 | 1 | 1 | 1 | 1 |" in text
    failure = "- `a-1`: `why 1`\n  - Prompt: `Where is said failed`\n  - Reply: `said failed`\n"
    assert f"**1 failed**\n\n{failure}" in text
    assert "- 1 errored: `why 2`" in text
    assert "cost: $0.0040" in text


@pytest.mark.parametrize("count", [1, 30, 100, 300])
def test_markdown_lists_all_failures_and_says_how_long_a_shortened_text_is(count: int) -> None:
    rows = [
        row("long " * 1000, Outcome.FAILED, case_id=f"a-{number}", category=f"c{number}") for number in range(count)
    ]
    text = exported("markdown", a_run(), rows)
    assert re.findall(r"(?m)^- `a-(\d+)`: `because`$", text) == list(map(str, range(count)))
    assert len(re.findall(r"(?m)^  - Prompt: `Where is long.*…` \(5,009 characters\)$", text)) == count
    assert len(re.findall(r"(?m)^  - Reply: `long.*…` \(5,000 characters\)$", text)) == count
    assert len(text) < 60_000


def test_markdown_shows_whole_texts_where_there_is_room() -> None:
    said = "word " * 150
    text = exported("markdown", a_run(), [row(said, Outcome.FAILED, case_id=f"a-{number}") for number in range(20)])
    assert text.count(f"  - Reply: `{said.strip()}`\n") == 20
    assert " characters)" not in text


def test_markdown_of_more_failures_than_a_comment_holds_says_how_many_it_leaves_out() -> None:
    rows = [row("long " * 1000, Outcome.FAILED, case_id=f"a-{number}") for number in range(1_000)]
    text = exported("markdown", a_run(), rows)
    shown = len(re.findall(r"(?m)^- `a-\d+`: ", text))
    assert shown > 300
    assert f"- and {1_000 - shown} more\n" in text
    assert "*Shortened to fit a comment; the JSON, CSV and HTML exports have the rest.*" in text
    assert len(text) < 65_536


@pytest.mark.parametrize("text", ["<b>*|" * 100, "`" * 500, "👩🏽‍🚀" * 200, "_x_ " * 200, "\x00" * 300])
def test_markdown_fits_into_a_comment_whatever_the_run_holds(text: str) -> None:
    """GitHub takes 65,536 characters; as it does not say which, those of UTF-16 count, the most there are."""
    models = [f"{number} {text}" for number in range(100)]
    tags = [f"{number} {text}" for number in range(300)]
    rows = [
        row(
            text, outcome, case_id=f"{number} {text}", reason=f"{tags[number]}", model=models[number % 100],
            category=tags[number], difficulty=tags[number], language=tags[number], tags=tuple(tags[number : number + 5]),
        )
        for number in range(300)
        for outcome in (Outcome.FAILED, Outcome.UNSCORED)
    ]  # fmt: skip
    run = replace(a_run(*models, status="stopped"), reason=text)
    page = exported("markdown", run, rows)
    assert len(page.encode("utf-16-le")) // 2 < 65_536
    assert "\n*Shortened to fit a comment; the JSON, CSV and HTML exports have the rest.*\n" in page
    assert re.search(r"\nand \d+ more\n", page)
    assert page.count("<details>") == page.count("</details>")
    assert page.endswith("</sub>\n")


def test_markdown_that_shows_all_it_has_says_nothing_of_cuts() -> None:
    assert "Shortened" not in exported("markdown", a_run(), ALL)


def test_markdown_of_an_unfinished_run_says_so() -> None:
    assert "**5 of 5 results; the run is stopped**" in exported("markdown", a_run(status="stopped"), ALL)


def test_no_output_becomes_markup_a_link_or_a_mention() -> None:
    rows = [row(text, Outcome.FAILED, reason=text, case_id=text or "x", category=text or "x") for text in NASTY]
    text = exported("markdown", a_run(), rows)
    outside = re.sub(r"(?s)(`+)(?!`).*?(?<!`)\1(?!`)|<code>.*?</code>", "", text)
    assert "@" not in outside
    assert "http" not in outside
    assert set(re.findall(r"<[^>]*>", outside)) <= {
        "<details>",
        "</details>",
        "<summary>",
        "</summary>",
        "<sub>",
        "</sub>",
    }
    for inside in re.findall(r"<code>(.*?)</code>", text):
        assert not re.search(r"[<>|`*\[\]@/]", inside)
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.count("|") == 9


# ── HTML ──


class Listener:
    """A server that only notices that somebody knocked."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.knocks = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.knocks += 1
            connection.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listening = Listener()
    yield listening
    listening.socket.close()


def test_in_a_real_browser_nothing_runs_and_nothing_is_fetched(tmp_path: Path, listener: Listener) -> None:
    nasty = [text.replace("{port}", str(listener.port)) for text in NASTY]
    rows = [
        row(text, outcome, case_id=f"{text}{number}", reason=text, category=text or "x", tags=(text or "x",))
        for number, outcome in enumerate(Outcome)
        for text in nasty
    ]
    page = tmp_path / "report.html"
    page.write_text(exported("html", a_run(), rows), encoding="utf-8")
    control = tmp_path / "control.html"
    control.write_text(f"<title>mine</title>{nasty[0]}{nasty[1]}", encoding="utf-8")
    assert "<title>owned</title>" in dump_dom(
        control.as_uri(), tmp_path / "one"
    )  # the browser does run and fetch such things
    knocks = listener.knocks
    assert knocks
    shown = dump_dom(page.as_uri(), tmp_path / "two")
    assert "<title>v1.0-cheap: 50.0 % passed</title>" in shown
    assert "&lt;script&gt;document.title='owned'&lt;/script&gt;" in shown
    assert not re.search(r"<(script|img|iframe|link|object|embed|form|a|base)\b", shown)
    assert listener.knocks == knocks
    assert len(re.findall('<details class="(?!raw)', shown)) == len(rows)


BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize("kind", TEXT_FORMATS)
def test_no_character_turns_the_order_of_what_is_read(kind: Format) -> None:
    name = f"safe{BIDI}txt"
    rows = [row(name, outcome, reason=name, case_id=name, category=name, tags=(name,)) for outcome in Outcome]
    run = replace(a_run(name), reason=name, status="stopped")
    text = exported(kind, run, list(_as(rows, name)))
    assert not set(BIDI) & set(text)
    assert "\\u202e" in text or "&#92;u202e" in text


def test_words_from_right_to_left_are_kept_and_stand_apart_from_the_line_they_are_in() -> None:
    said, name = "مرحبا بالعالم\u200f!", "שלום"
    rows = [row(said, outcome, reason=said, case_id=name, category=name) for outcome in Outcome]
    page = exported("html", a_run(), rows)
    assert f'aria-label="Reply" tabindex="0">{said}</div>' in page
    assert f'<span class="mono"><bdi dir="auto">{name}</bdi></span>' in page
    assert f'<bdi dir="auto">{name}</bdi> · ' in page
    without = re.sub(r'<bdi dir="auto">[^<]*</bdi>|<(pre|div)[^>]* dir="auto"[^>]*>[^<]*</\1>', "", page)
    assert not re.search("[\u0590-\u06ff]", without)
    for kind in ("csv", "junit", "markdown"):
        assert said in exported(kind, a_run(), rows) or said in exported(kind, a_run(), rows).replace("&#33;", "!")


def test_the_page_holds_no_address_and_forbids_to_load_anything() -> None:
    page = exported("html", a_run(), ALL)
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert not re.search(r"(?i)https?:|url\(|@import|\bsrc=|\bhref=", page)
    assert "prefers-color-scheme: dark" in page


def test_the_page_shows_rates_with_intervals_and_reasons() -> None:
    page = exported("html", a_run(), ALL)
    assert '<p class="big">50.0 %</p>' in page
    assert "With 95 % confidence the true rate is 9.5–90.5 %." in page
    assert '<path class="whisker" d="M9.45 2.5V7.5M9.45 5H90.55M90.55 2.5V7.5" />' in page
    for number, outcome in enumerate(Outcome):
        assert page.count(f'<details class="{outcome.value}">') == 1
        assert f"why {number}" in page


def test_the_system_prompt_is_in_the_json_and_once_on_the_page_as_text() -> None:
    run = replace(a_run(), plan=replace(a_run().plan, system_prompt="Be <b>brief</b>."))
    (block,) = json.loads(exported("json", run, ALL))
    SCHEMA.validate([block])
    assert block["run_metadata"]["system_prompt"] == "Be <b>brief</b>."
    page = exported("html", run, ALL)
    assert page.count("Be &lt;b&gt;brief&lt;/b&gt;.") == 1
    assert "<b>brief" not in page
    assert "temperature 0, seed 42" in page
    assert "System prompt" not in exported("html", a_run(), ALL)


def test_several_models_are_not_averaged() -> None:
    rows = [row(case_id="a-1", model="m"), row(case_id="a-1", model="n", outcome=Outcome.FAILED)]
    page = exported("html", a_run("m", "n"), rows)
    assert 'class="big"' not in page
    assert "<title>v1.0-cheap on 2 models</title>" in page
    assert exported("markdown", a_run("m", "n"), rows).startswith("### v1.0-cheap on 2 models\n")


def test_a_long_run_shows_its_first_results_and_counts_the_rest() -> None:
    rows = [row("y" * 32_000 if number == 0 else "y", Outcome.FAILED, case_id=f"a-{number}") for number in range(503)]
    page = exported("html", a_run(), rows)
    assert page.count("<details") == 500
    assert "and 3 more: the JSON and CSV exports have them all." in page
    assert "… and 12,000 more characters" in page


@pytest.mark.parametrize("kind", [each for each in TEXT_FORMATS if each != "jsonl"])
def test_a_run_without_results_can_be_exported(kind: Format) -> None:
    assert exported(kind, a_run(), [])


@pytest.mark.parametrize("kind", TEXT_FORMATS)
@settings(max_examples=25, deadline=None)
@given(text=everything, name=everything)
def test_every_format_takes_every_text(kind: Format, text: str, name: str) -> None:
    rows = [row(text, outcome, reason=text, case_id=name, category=name, tags=(text,)) for outcome in Outcome]
    assert exported(kind, a_run(), rows)


def test_numbers_never_claim_more_than_they_are() -> None:
    assert (format_percent(0.99999), format_percent(0.00001), format_percent(1), format_percent(0)) == (
        "> 99.9 %",
        "< 0.1 %",
        "100 %",
        "0 %",
    )
    assert (format_cost(Total(0.00001, 0)), format_cost(Total(12.345, 2))) == ("under $0.0001", "at least $12.35")
    assert (format_duration(0.0012), format_duration(0.0000103), format_duration(0.9996)) == (
        "1 ms",
        "< 1 ms",
        "1.00 s",
    )


# ── Recordings ──


def a_call(model: str = "m", variant: str = "voice+noise=10dB", repeat: int = 0) -> tuple[Case, Result]:
    case, found = row()
    called = Call("sha256:" + "a" * 64, "sha256:" + "b" * 64)
    key = replace(found.key, model=model, variant=variant, repeat=repeat)
    assert found.reply is not None
    return case, replace(found, key=key, reply=replace(found.reply, call=called))


def test_a_long_model_pushes_neither_variant_nor_repeat_out_of_a_recordings_name() -> None:
    long = "fake-voice:latency=0.8,fixed=" + "We open at nine in the morning. " * 20
    name = recording_name(*a_call(long, repeat=2))
    assert name is not None
    assert name.startswith("factual-001__fake-voice_latency=0.8_fixed=")
    assert name.endswith("__voice+noise=10dB__repeat-3__bbbbbbbb")
    assert len(name) < 180
    assert recording_name(*row()) is None


def test_a_page_links_recordings_beside_it_and_else_says_how_to_get_them() -> None:
    def page(at: str | None) -> str:
        out = io.StringIO()
        export("html", a_run(), iter([a_call(), row()]), out, lambda *_: at)
        return out.getvalue()

    linked = page("calls/it's <b>.wav")
    assert linked.count("href=") == 1
    assert '<a href="calls/it%27s%20%3Cb%3E.wav">Recording of the call</a>' in linked
    for text in (page(None), exported("html", a_run(), [a_call()])):
        assert "href=" not in text
        assert (
            'To hear it: <span class="mono"><bdi dir="auto">pramana export run-1 --id factual-001 --audio DIR</bdi>'
            in text
        )
    assert "To hear it" not in exported("html", a_run(), [row()])


def test_pages_say_how_it_was_asked_aloud() -> None:
    run = a_run()
    run = replace(run, plan=replace(run.plan, variants=("voice+phone",), voice="piper"))
    assert "spoken by piper (phone)" in exported("html", run, [a_call(variant="voice+phone")])


@pytest.mark.parametrize("kind", ["html", "markdown"])
def test_where_cases_were_asked_several_times_it_is_said_what_the_intervals_count(kind: Format) -> None:
    said = "2 cases, 3 repeats: the intervals count cases, not answers."
    run = replace(a_run(repeats=3), expected=6, stored=6)
    assert said in exported(kind, run, ALL)
    pooled = said.replace("cases,", "cases, 2 models,", 1)
    assert pooled in exported(kind, replace(a_run("m", "n", repeats=3), expected=12, stored=12), ALL)
    assert "not answers" not in exported(kind, a_run(), ALL)
