"""Exports: each format is read back by third-party programs, whatever a model wrote."""

import csv
import html
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

from pramana.analyse.summary import KnownTotal
from pramana.hash import hash_case, hash_result
from pramana.model import (
    Assertion,
    Case,
    Check,
    Facets,
    Failure,
    Outcome,
    Plan,
    RecordedCall,
    Reply,
    Result,
    ResultKey,
    Run,
    Target,
    Turn,
    Usage,
)
from pramana.report import export
from pramana.report.exports import FORMATS, Format, get_result_score, make_recording_name, make_results_schema
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


def make_row(
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
    key = ResultKey(hash_case(case), model, "text", repeat)
    if outcome is Outcome.ERRORED:
        return case, Result(key, case_id, None, Failure("unavailable", reason), (), None, None)
    reply = Reply(text, Usage(10, 3), first_token_s=0.1, total_s=0.25, cost_usd=0.001)
    check = Check("contains", "1", outcome, reason, value, {"at": 7})
    return case, Result(key, case_id, reply, None, (check,), hash_result(model, case_id, text), None)


def make_run(
    *models: str, repeats: int = 1, status: Any = "finished", suite_hash: str | None = "sha256:" + "0" * 64
) -> Run:
    targets = tuple(Target(model, "fake", model) for model in models or ("m",))
    plan = Plan("v1.0-cheap", suite_hash, targets, repeats, {"temperature": 0, "seed": 42}, runner_version="0.1.0")
    return Run("run-1", plan, status, "2026-01-02T03:04:05Z", 5, 5)


def export_text(kind: Format, run: Run, rows: Rows) -> str:
    out = io.StringIO(newline="")
    export(kind, run, iter(rows), out)
    text = out.getvalue()
    assert text.encode("utf-8")  # every format can be written to a file
    return text


ALL = [
    make_row(f"said {outcome.value}", outcome, case_id=f"a-{number}", reason=f"why {number}")
    for number, outcome in enumerate(Outcome)
]
SCHEMA = jsonschema.Draft202012Validator(make_results_schema())


# ── JSON ──


def test_the_schema_is_json_schema_2020_12() -> None:
    assert make_results_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(make_results_schema())


def test_results_match_the_published_schema() -> None:
    (block,) = json.loads(export_text("json", make_run(), ALL))
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
    assert first["case_digest"] == hash_case(ALL[0][0])
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


def test_a_result_without_a_verdict_is_exported_as_skipped_with_its_reason() -> None:
    (block,) = json.loads(export_text("json", make_run(), ALL))
    for number, outcome in ((2, "errored"), (3, "unscored"), (4, "skipped")):
        entry = block["results"][number]
        details = {"skipped": True, "outcome": outcome, "reason": f"why {number}"}
        assert entry["assertion_result"] == {"passed": False, "details": details}
        assert entry["score"] is None
    errored = block["results"][2]
    assert (errored["output"], errored["latency_ms"]) == ("", 0)
    assert errored["result_hash"] == hash_result("m", "a-2", "")


def test_results_json_names_and_hashes_a_model_by_its_provider_name() -> None:
    plan = replace(make_run().plan, targets=(Target("opus", "anthropic", "claude-opus-4-6"),))
    run, rows = replace(make_run(), plan=plan), [make_row("yes", model="opus")]
    (block,) = json.loads(export_text("json", run, rows))
    assert (block["run_metadata"]["model_id"], block["run_metadata"]["model"]) == ("claude-opus-4-6", "opus")
    hashed = hash_result("claude-opus-4-6", "factual-001", "yes")
    assert block["results"][0]["result_hash"] == hashed
    (read,) = csv.DictReader(io.StringIO(export_text("csv", run, rows), newline=""))
    assert (read["model"], read["result_hash"]) == ("opus", hashed)
    SCHEMA.validate([block])


@pytest.mark.parametrize("status", ["stopped", "interrupted", "running"])
def test_an_unfinished_run_is_marked_incomplete_per_model(status: Any) -> None:
    run = replace(make_run("m", "n", status=status), expected=4, stored=3)
    rows = [make_row(case_id="a-1"), make_row(case_id="a-2"), make_row(case_id="a-1", model="n")]
    blocks = json.loads(export_text("json", run, rows))
    SCHEMA.validate(blocks)
    assert [each["run_metadata"]["complete"] for each in blocks] == [True, False]
    assert {each["run_metadata"]["status"] for each in blocks} == {status}


def test_results_without_extension_fields_match_the_schema() -> None:
    blocks = json.loads(export_text("json", make_run(), ALL))
    for name in ("model", "provider", "status", "complete", "run_id"):
        del blocks[0]["run_metadata"][name]
    for each in blocks[0]["results"]:
        for name in ("case_digest", "prompt", "expected"):
            del each[name]
    SCHEMA.validate(blocks)


def test_results_json_has_one_block_per_model_in_plan_order() -> None:
    rows = [
        make_row(case_id=f"a-{number}", model=model, repeat=repeat)
        for number in range(3)
        for repeat in (0, 1)
        for model in ("z", "m")
    ]
    blocks = json.loads(export_text("json", make_run("z", "m", repeats=2), rows))
    assert [block["run_metadata"]["model_id"] for block in blocks] == ["z", "m"]
    for block in blocks:
        assert [(each["test_id"], each["repeat"]) for each in block["results"]] == [
            (f"a-{number}", repeat) for number in range(3) for repeat in (0, 1)
        ]
    SCHEMA.validate(blocks)


def test_runs_without_results_or_verdicts_match_the_schema() -> None:
    for rows in ([], [make_row(outcome=Outcome.UNSCORED)]):
        blocks = json.loads(export_text("json", make_run(suite_hash=None), rows))
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
def test_the_exported_score_is_the_value_of_the_check(
    outcome: Outcome, value: float | None, score: float | None
) -> None:
    assert get_result_score(*make_row(outcome=outcome, value=value)) == score


def test_the_schema_refuses_a_score_without_a_verdict_and_a_verdict_without_a_score() -> None:
    blocks = json.loads(export_text("json", make_run(), ALL))
    blocks[0]["results"][2]["score"] = 0.0
    assert not SCHEMA.is_valid(blocks)
    blocks[0]["results"][2]["score"] = None
    assert SCHEMA.is_valid(blocks)
    blocks[0]["results"][0]["score"] = None
    assert not SCHEMA.is_valid(blocks)


def make_judged_rows(judges: list[str], outcome: Outcome = Outcome.PASSED) -> Rows:
    rows = []
    for number, judge in enumerate(judges):
        case, result = make_row(outcome=outcome, case_id=f"a-{number}")
        evidence = {"judge": judge, "served_model": None, "cost_usd": 0.01, "tokens": 50}
        rows.append((case, replace(result, checks=(Check("llm_judge", "1", outcome, "so", evidence=evidence),))))
    return rows


def test_several_judges_are_noted_next_to_the_pass_rate_in_every_format() -> None:
    rows = make_judged_rows(["gpt-5"] * 7 + ["fake:echo"] * 3)
    sentence = "llm_judge: 7 of 10 verdicts by openai:gpt-5, 3 by fake:echo; uncalibrated"
    (block,) = json.loads(export_text("json", make_run(), rows))
    SCHEMA.validate([block])
    assert block["summary"]["mixed_judges"] == [sentence]
    root = ET.fromstring(export_text("junit", make_run(), rows))  # noqa: S314 - ours
    assert [(each.get("name"), each.get("value")) for each in root.iter("property")] == [
        ("run_id", "run-1"),
        ("mixed_judges", sentence),
        ("judge", "fake:echo (llm_judge), uncalibrated"),
        ("judge", "openai:gpt-5 (llm_judge), uncalibrated"),
    ]
    read = csv.DictReader(io.StringIO(export_text("csv", make_run(), rows), newline=""))
    assert [each["judge"] for each in read] == ["openai:gpt-5"] * 7 + ["fake:echo"] * 3
    head, _, _ = html.unescape(export_text("markdown", make_run(), rows)).partition("| m |")
    assert f"**The verdicts come from several judges: {sentence}**" in head
    page = export_text("html", make_run(), rows)
    warning = f'<p class="warn">The verdicts come from several judges: <bdi dir="auto">{sentence}</bdi></p>'
    assert page.index('<p class="big">') < page.index(warning) < page.index('<dl class="tiles">')


@pytest.mark.parametrize("kind", TEXT_FORMATS)
def test_a_single_judge_is_not_mentioned(kind: Format) -> None:
    assert not re.search(
        "(?i)several judges|mixed_judges", export_text(kind, make_run(), make_judged_rows(["gpt-5", "openai:gpt-5"]))
    )


def test_judge_usage_is_shown_beside_reply_usage() -> None:
    rows = make_judged_rows(["gpt-5"] * 4)
    text = export_text("markdown", make_run(), rows)
    assert "Tokens: 40 in, 12 out; judges: 200 tokens, $0.0400; total cost: $0.0440;" in text
    page = export_text("html", make_run(), rows)
    assert "<dt>Judge tokens</dt><dd>200<small>$0.0400 of the cost</small>" in page
    assert "judges" not in export_text("markdown", make_run(), ALL)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_exported_as_null(number: float) -> None:
    case, result = make_row()
    check = Check(
        "rubric", "1", Outcome.PASSED, "so", number, {"reasons": {"accuracy": [number, 1]}, "cost_usd": number}
    )
    reply = replace(result.reply, cost_usd=number) if result.reply else None
    rows = [(case, replace(result, checks=(check,), reply=reply))]
    (block,) = json.loads(export_text("json", make_run(), rows), parse_constant=pytest.fail)
    (written,) = block["results"][0]["assertion_result"]["details"]["checks"]
    assert (written["value"], written["evidence"]) == (None, {"reasons": {"accuracy": [None, 1]}, "cost_usd": None})
    assert block["results"][0]["score"] == 1.0
    (read,) = csv.DictReader(io.StringIO(export_text("csv", make_run(), rows), newline=""))
    assert read["cost_usd"] == ""
    assert "nan" not in export_text("markdown", make_run(), rows)


def test_deeply_nested_evidence_is_truncated() -> None:
    nested: Any = 1
    for _ in range(100_000):
        nested = [nested]
    case, result = make_row()
    check = Check("strange", "1", Outcome.PASSED, "so", evidence={"deep": nested})
    (block,) = json.loads(export_text("json", make_run(), [(case, replace(result, checks=(check,)))]))
    assert block["summary"]["passed"] == 1


# ── CSV ──


def test_csv_has_one_row_per_result() -> None:
    rows = list(csv.DictReader(io.StringIO(export_text("csv", make_run(), ALL), newline="")))
    assert [each["outcome"] for each in rows] == ["passed", "failed", "errored", "unscored", "skipped"]
    assert [each["score"] for each in rows] == ["1.0", "0.0", "", "", ""]
    assert (rows[0]["latency_ms"], rows[0]["cost_usd"], rows[0]["input_tokens"]) == ("250", "0.001", "10")
    assert (rows[2]["output"], rows[2]["latency_ms"], rows[2]["reason"]) == ("", "", "why 2")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝"])
def test_no_csv_cell_is_a_formula(start: str) -> None:
    rows = [make_row(f"{start}cmd|' /C calc'!A0", reason=f"{start}x", case_id=f"{start}id", tags=(f"{start}tag",))]
    (read,) = csv.DictReader(io.StringIO(export_text("csv", make_run(), rows), newline=""))
    for column in ("output", "reason", "test_id", "tags"):
        assert read[column].startswith(f"'{start}")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_csv_round_trips_replies(texts: list[str]) -> None:
    read = list(
        csv.DictReader(io.StringIO(export_text("csv", make_run(), [make_row(text) for text in texts]), newline=""))
    )
    assert [each["output"].removeprefix("'") for each in read] == [
        escape_unprintable(text).removeprefix("'") for text in texts
    ]


# ── JUnit ──


def test_junit_distinguishes_failures_errors_and_skipped() -> None:
    rows = [*ALL, make_row(case_id="b-1", model="n")]
    root = ET.fromstring(export_text("junit", make_run("m", "n"), rows))  # noqa: S314 - ours
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


def test_repeats_have_distinct_junit_names() -> None:
    rows = [make_row(case_id="a-1", repeat=repeat) for repeat in (0, 1)]
    root = ET.fromstring(export_text("junit", make_run(repeats=2), rows))  # noqa: S314 - ours
    assert [test.get("name") for test in root.iter("testcase")] == ["a-1 (repeat 1)", "a-1 (repeat 2)"]


everything = st.text(st.characters(exclude_categories=()), max_size=40)


@settings(max_examples=200, deadline=None)
@given(everything, everything, everything)
def test_junit_is_valid_xml_for_any_text(text: str, reason: str, name: str) -> None:
    rows = [make_row(text, outcome, reason=reason, case_id=name, category=name) for outcome in Outcome]
    written = export_text("junit", make_run(name), [(case, result) for case, result in _with_model(rows, name)])
    root = ET.fromstring(written.encode())  # noqa: S314 - ours
    failure, error = root.find(".//failure"), root.find(".//error")
    assert failure is not None
    assert error is not None
    assert failure.text == escape_unprintable(f"{reason}\n\n{text}")
    assert error.get("message") == escape_unprintable(reason)
    assert [test.get("name") for test in root.iter("testcase")] == [escape_unprintable(name)] * 5


def _with_model(rows: Rows, model: str) -> Iterator[tuple[Case, Result]]:
    for case, result in rows:
        yield case, replace(result, key=replace(result.key, model=model))


# ── Markdown ──


def test_markdown_contains_what_a_reviewer_needs() -> None:
    text = export_text("markdown", make_run(), ALL)
    assert text.startswith("### v1.0-cheap: 50.0 % passed\n")
    assert "| m | 50.0 % | 1.3–98.7 % | 1 | 1 | 1 | 1 | 1 |" in text
    failure = "- `a-1`: `why 1`\n  - Prompt: `Where is said failed`\n  - Reply: `said failed`\n"
    assert f"**1 failed**\n\n{failure}" in text
    assert "- 1 errored: `why 2`" in text
    assert "cost: $0.0040" in text


@pytest.mark.parametrize("count", [1, 30, 100, 300])
def test_markdown_lists_all_failures_and_the_length_of_truncated_texts(count: int) -> None:
    rows = [
        make_row("long " * 1000, Outcome.FAILED, case_id=f"a-{number}", category=f"c{number}")
        for number in range(count)
    ]
    text = export_text("markdown", make_run(), rows)
    assert re.findall(r"(?m)^- `a-(\d+)`: `because`$", text) == list(map(str, range(count)))
    assert len(re.findall(r"(?m)^  - Prompt: `Where is long.*…` \(5,009 characters\)$", text)) == count
    assert len(re.findall(r"(?m)^  - Reply: `long.*…` \(5,000 characters\)$", text)) == count
    assert len(text) < 60_000


def test_markdown_shows_full_texts_if_they_fit() -> None:
    said = "word " * 150
    text = export_text(
        "markdown", make_run(), [make_row(said, Outcome.FAILED, case_id=f"a-{number}") for number in range(20)]
    )
    assert text.count(f"  - Reply: `{said.strip()}`\n") == 20
    assert " characters)" not in text


def test_markdown_with_too_many_failures_counts_the_omitted_ones() -> None:
    rows = [make_row("long " * 1000, Outcome.FAILED, case_id=f"a-{number}") for number in range(1_000)]
    text = export_text("markdown", make_run(), rows)
    shown = len(re.findall(r"(?m)^- `a-\d+`: ", text))
    assert shown > 300
    assert f"- and {1_000 - shown} more\n" in text
    assert "*Shortened to fit a comment; the JSON, CSV and HTML exports have the rest.*" in text
    assert len(text) < 65_536


@pytest.mark.parametrize("text", ["<b>*|" * 100, "`" * 500, "👩🏽‍🚀" * 200, "_x_ " * 200, "\x00" * 300])
def test_markdown_always_fits_into_a_github_comment(text: str) -> None:
    """GitHub allows 65,536 characters of unspecified kind; UTF-16 code units are the strictest reading."""
    models = [f"{number} {text}" for number in range(100)]
    tags = [f"{number} {text}" for number in range(300)]
    rows = [
        make_row(
            text, outcome, case_id=f"{number} {text}", reason=f"{tags[number]}", model=models[number % 100],
            category=tags[number], difficulty=tags[number], language=tags[number], tags=tuple(tags[number : number + 5]),
        )
        for number in range(300)
        for outcome in (Outcome.FAILED, Outcome.UNSCORED)
    ]  # fmt: skip
    run = replace(make_run(*models, status="stopped"), reason=text)
    page = export_text("markdown", run, rows)
    assert len(page.encode("utf-16-le")) // 2 < 65_536
    assert "\n*Shortened to fit a comment; the JSON, CSV and HTML exports have the rest.*\n" in page
    assert re.search(r"\nand \d+ more\n", page)
    assert page.count("<details>") == page.count("</details>")
    assert page.endswith("</sub>\n")


def test_complete_markdown_mentions_no_truncation() -> None:
    assert "Shortened" not in export_text("markdown", make_run(), ALL)


def test_markdown_marks_an_unfinished_run() -> None:
    assert "**5 of 5 results; the run is stopped**" in export_text("markdown", make_run(status="stopped"), ALL)


def test_no_reply_becomes_markup_a_link_or_a_mention() -> None:
    rows = [make_row(text, Outcome.FAILED, reason=text, case_id=text or "x", category=text or "x") for text in NASTY]
    text = export_text("markdown", make_run(), rows)
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


class ConnectionListener:
    """A server that only records whether a client connected."""

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
def listener() -> Iterator[ConnectionListener]:
    listening = ConnectionListener()
    yield listening
    listening.socket.close()


def test_html_in_a_real_browser_runs_and_fetches_nothing(tmp_path: Path, listener: ConnectionListener) -> None:
    nasty = [text.replace("{port}", str(listener.port)) for text in NASTY]
    rows = [
        make_row(text, outcome, case_id=f"{text}{number}", reason=text, category=text or "x", tags=(text or "x",))
        for number, outcome in enumerate(Outcome)
        for text in nasty
    ]
    page = tmp_path / "report.html"
    page.write_text(export_text("html", make_run(), rows), encoding="utf-8")
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
def test_no_bidi_character_reorders_surrounding_text(kind: Format) -> None:
    name = f"safe{BIDI}txt"
    rows = [make_row(name, outcome, reason=name, case_id=name, category=name, tags=(name,)) for outcome in Outcome]
    run = replace(make_run(name), reason=name, status="stopped")
    text = export_text(kind, run, list(_with_model(rows, name)))
    assert not set(BIDI) & set(text)
    assert "\\u202e" in text or "&#92;u202e" in text


def test_right_to_left_text_is_kept_and_isolated_from_its_line() -> None:
    said, name = "مرحبا بالعالم\u200f!", "שלום"
    rows = [make_row(said, outcome, reason=said, case_id=name, category=name) for outcome in Outcome]
    page = export_text("html", make_run(), rows)
    assert f'aria-label="Reply" tabindex="0">{said}</div>' in page
    assert f'<span class="mono"><bdi dir="auto">{name}</bdi></span>' in page
    assert f'<bdi dir="auto">{name}</bdi> · ' in page
    without = re.sub(r'<bdi dir="auto">[^<]*</bdi>|<(pre|div)[^>]* dir="auto"[^>]*>[^<]*</\1>', "", page)
    assert not re.search("[\u0590-\u06ff]", without)
    for kind in ("csv", "junit", "markdown"):
        assert said in export_text(kind, make_run(), rows) or said in export_text(kind, make_run(), rows).replace(
            "&#33;", "!"
        )


def test_the_html_page_has_no_external_address_and_a_csp_that_blocks_loading() -> None:
    page = export_text("html", make_run(), ALL)
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert not re.search(r"(?i)https?:|url\(|@import|\bsrc=|\bhref=", page)
    assert "prefers-color-scheme: dark" in page


def test_the_html_page_shows_rates_with_intervals_and_reasons() -> None:
    page = export_text("html", make_run(), ALL)
    assert '<p class="big">50.0 %</p>' in page
    assert "With 95 % confidence the true rate is 1.3–98.7 %." in page
    assert '<path class="whisker" d="M1.26 2.5V7.5M1.26 5H98.74M98.74 2.5V7.5" />' in page
    for number, outcome in enumerate(Outcome):
        assert page.count(f'<details class="{outcome.value}">') == 1
        assert f"why {number}" in page


def test_the_system_prompt_is_in_json_and_once_as_text_in_html() -> None:
    run = replace(make_run(), plan=replace(make_run().plan, system_prompt="Be <b>brief</b>."))
    (block,) = json.loads(export_text("json", run, ALL))
    SCHEMA.validate([block])
    assert block["run_metadata"]["system_prompt"] == "Be <b>brief</b>."
    page = export_text("html", run, ALL)
    assert page.count("Be &lt;b&gt;brief&lt;/b&gt;.") == 1
    assert "<b>brief" not in page
    assert "temperature 0, seed 42" in page
    assert "System prompt" not in export_text("html", make_run(), ALL)


def test_several_models_are_not_averaged() -> None:
    rows = [make_row(case_id="a-1", model="m"), make_row(case_id="a-1", model="n", outcome=Outcome.FAILED)]
    page = export_text("html", make_run("m", "n"), rows)
    assert 'class="big"' not in page
    assert "<title>v1.0-cheap on 2 models</title>" in page
    assert export_text("markdown", make_run("m", "n"), rows).startswith("### v1.0-cheap on 2 models\n")


def test_html_of_a_long_run_shows_the_first_results_and_counts_the_rest() -> None:
    rows = [
        make_row("y" * 32_000 if number == 0 else "y", Outcome.FAILED, case_id=f"a-{number}") for number in range(503)
    ]
    page = export_text("html", make_run(), rows)
    assert page.count("<details") == 500
    assert "and 3 more: the JSON and CSV exports have them all." in page
    assert "… and 12,000 more characters" in page


@pytest.mark.parametrize("kind", [each for each in TEXT_FORMATS if each != "jsonl"])
def test_a_run_without_results_can_be_exported(kind: Format) -> None:
    assert export_text(kind, make_run(), [])


@pytest.mark.parametrize("kind", TEXT_FORMATS)
@settings(max_examples=25, deadline=None)
@given(text=everything, name=everything)
def test_every_format_exports_any_text(kind: Format, text: str, name: str) -> None:
    rows = [make_row(text, outcome, reason=text, case_id=name, category=name, tags=(text,)) for outcome in Outcome]
    assert export_text(kind, make_run(), rows)


def test_rounded_numbers_never_overstate_their_precision() -> None:
    assert (format_percent(0.99999), format_percent(0.00001), format_percent(1), format_percent(0)) == (
        "> 99.9 %",
        "< 0.1 %",
        "100 %",
        "0 %",
    )
    assert (format_cost(KnownTotal(0.00001, 0)), format_cost(KnownTotal(12.345, 2))) == (
        "under $0.0001",
        "at least $12.35",
    )
    assert (format_duration(0.0012), format_duration(0.0000103), format_duration(0.9996)) == (
        "1 ms",
        "< 1 ms",
        "1.00 s",
    )


# ── Recordings ──


def make_call_row(model: str = "m", variant: str = "voice+noise=10dB", repeat: int = 0) -> tuple[Case, Result]:
    case, found = make_row()
    called = RecordedCall("sha256:" + "a" * 64, "sha256:" + "b" * 64)
    key = replace(found.key, model=model, variant=variant, repeat=repeat)
    assert found.reply is not None
    return case, replace(found, key=key, reply=replace(found.reply, call=called))


def test_a_long_model_name_keeps_variant_and_repeat_in_a_recordings_name() -> None:
    long = "fake-voice:latency=0.8,fixed=" + "We open at nine in the morning. " * 20
    name = make_recording_name(*make_call_row(long, repeat=2))
    assert name is not None
    assert name.startswith("factual-001__fake-voice_latency=0.8_fixed=")
    assert name.endswith("__voice+noise=10dB__repeat-3__bbbbbbbb")
    assert len(name) < 180
    assert make_recording_name(*make_row()) is None


def test_html_links_adjacent_recordings_or_says_how_to_export_them() -> None:
    def page(at: str | None) -> str:
        out = io.StringIO()
        export("html", make_run(), iter([make_call_row(), make_row()]), out, lambda *_: at)
        return out.getvalue()

    linked = page("calls/it's <b>.wav")
    assert linked.count("href=") == 1
    assert '<a href="calls/it%27s%20%3Cb%3E.wav">Recording of the call</a>' in linked
    for text in (page(None), export_text("html", make_run(), [make_call_row()])):
        assert "href=" not in text
        assert (
            'To hear it: <span class="mono"><bdi dir="auto">pramana export run-1 --id factual-001 --audio DIR</bdi>'
            in text
        )
    assert "To hear it" not in export_text("html", make_run(), [make_row()])


def test_html_names_the_voice_and_condition_of_spoken_prompts() -> None:
    run = make_run()
    run = replace(run, plan=replace(run.plan, variants=("voice+phone",), voice="piper"))
    assert "spoken by piper (phone)" in export_text("html", run, [make_call_row(variant="voice+phone")])


@pytest.mark.parametrize("kind", ["html", "markdown"])
def test_reports_of_repeated_cases_say_that_intervals_count_cases(kind: Format) -> None:
    said = "2 cases, 3 repeats: the intervals count cases, not answers."
    run = replace(make_run(repeats=3), expected=6, stored=6)
    assert said in export_text(kind, run, ALL)
    pooled = said.replace("cases,", "cases, 2 models,", 1)
    assert pooled in export_text(kind, replace(make_run("m", "n", repeats=3), expected=12, stored=12), ALL)
    assert "not answers" not in export_text(kind, make_run(), ALL)
