"""Tables: CSV, JSON Lines and Parquet are read back by pandas and polars with the same values and the right types."""

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from msgspec.structs import replace
from scipy.stats import skew  # type: ignore[import-untyped]

from pramana.analyse.intervals import skewed_mean_interval
from pramana.errors import InvalidInput
from pramana.installation import make_install_command
from pramana.model import Case, Check, Outcome, Reply, Result, Run, ToolCall
from pramana.report.exporters import find_exporter, write_runs_file
from pramana.report.tables import COLUMN_TYPES, iterate_records, write_parquet

from .test_exports import export_text, make_row, make_run

CALLS = (ToolCall("get_weather", '{"city": "Paris"}', "call_1"),)
Rows = list[tuple[Case, Result]]


def make_rated_row(case_id: str, text: str, *checks: Check, **reply: Any) -> tuple[Case, Result]:
    case, found = make_row(text, case_id=case_id, language="en")
    assert found.reply is not None
    return case, replace(found, reply=replace(found.reply, **reply), checks=(*found.checks, *checks))


RATED = Check("rubric", "1", Outcome.PASSED, "", evidence={"scores": {"accuracy": 8, "efficiency": 3}})
ROWS: Rows = [
    make_rated_row("007", "", tool_calls=CALLS),
    make_rated_row("a-2", "=SUM(1)", RATED, cached=True, cost_usd=float("nan")),
    make_rated_row("a-3", "halves \ud800 \x00 🙂", total_s=0.25),
    make_row("x", Outcome.ERRORED, case_id="a-4"),
]


def save_runs(kind: str, path: Path, runs: list[tuple[Run, Rows]]) -> Path:
    write_runs_file(find_exporter(kind), path, runs)
    return path


def test_json_lines_keep_the_types_of_records(tmp_path: Path) -> None:
    path = save_runs("jsonl", tmp_path / "a.jsonl", [(make_run(), ROWS)])
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [list(each) for each in lines] == [list(COLUMN_TYPES)] * len(ROWS)
    for each in lines:
        for name, kind in COLUMN_TYPES.items():
            assert each[name] is None or type(each[name]) is kind or (kind is float and type(each[name]) is int)
    tools, formula, halves, errored = lines
    assert (tools["test_id"], tools["output"]) == ("007", "")
    assert json.loads(tools["tool_calls"]) == [
        {"id": "call_1", "name": "get_weather", "arguments": '{"city": "Paris"}'}
    ]
    assert (formula["output"], formula["cached"], formula["cost_usd"]) == (
        "=SUM(1)",
        True,
        None,
    )  # no formula to escape
    assert (formula["rubric_accuracy"], formula["rubric_helpfulness"]) == (8.0, None)
    assert halves["output"] == "halves \\ud800 \x00 🙂"
    assert (errored["output"], errored["latency_ms"]) == (None, None)


def test_json_lines_of_a_run_without_results_are_empty(tmp_path: Path) -> None:
    assert save_runs("jsonl", tmp_path / "a.jsonl", [(make_run(), [])]).read_bytes() == b""


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_pandas_reads_each_format_with_the_right_types(tmp_path: Path, kind: str) -> None:
    path = save_runs(kind, tmp_path / f"a.{kind}", [(make_run(), ROWS)])
    frame = pd.read_parquet(path) if kind == "parquet" else pd.read_json(path, lines=True, dtype=False)
    assert list(frame.columns) == list(COLUMN_TYPES)
    for name, wanted in COLUMN_TYPES.items():
        column = frame[name].dropna()
        if wanted is str:
            assert all(isinstance(each, str) for each in column)
        elif wanted in (int, float):
            without_values = kind == "jsonl" and column.empty  # null has no type in JSON
            assert without_values or pd.api.types.is_numeric_dtype(frame[name])
        else:
            assert column.astype(bool).tolist() == [False, True, False]
    assert frame["repeat"].dtype == "int64"
    assert frame["score"].dtype == "float64"
    assert frame["test_id"].tolist() == ["007", "a-2", "a-3", "a-4"]
    assert frame["output"].tolist()[:3] == ["", "=SUM(1)", "halves \\ud800 \x00 🙂"]
    assert frame["output"].isna().tolist() == [False, False, False, True]
    assert frame["rubric_accuracy"].mean() == 8.0


def test_parquet_columns_keep_their_type_when_every_value_is_missing(tmp_path: Path) -> None:
    for rows in (ROWS[3:], []):
        table = pl.read_parquet(save_runs("parquet", tmp_path / "a.parquet", [(make_run(), rows)]))
        kinds = {str: pl.String, int: pl.Int64, float: pl.Float64, bool: pl.Boolean}
        assert dict(table.schema) == {name: kinds[kind] for name, kind in COLUMN_TYPES.items()}
        assert len(table) == len(rows)


def test_csv_has_the_same_columns_and_escapes_formulas() -> None:
    read = list(csv.DictReader(io.StringIO(export_text("csv", make_run(), ROWS), newline="")))
    assert list(read[0]) == list(COLUMN_TYPES)
    assert (read[1]["output"], read[1]["cached"], read[1]["rubric_accuracy"]) == ("'=SUM(1)", "yes", "8.0")
    assert json.loads(read[0]["tool_calls"])[0]["name"] == "get_weather"


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_several_runs_share_one_table(tmp_path: Path, kind: str) -> None:
    runs = [(replace(make_run(), id=name), ROWS[:2]) for name in ("run-2", "run-1")]
    path = save_runs(kind, tmp_path / f"a.{kind}", runs)
    read = {"csv": pd.read_csv, "jsonl": lambda found: pd.read_json(found, lines=True), "parquet": pd.read_parquet}
    assert read[kind](path)["run_id"].tolist() == ["run-2", "run-2", "run-1", "run-1"]


def test_several_runs_share_one_json_file_with_a_block_per_model_and_run(tmp_path: Path) -> None:
    runs = [(replace(make_run(), id=name), ROWS) for name in ("run-2", "run-1")]
    blocks = json.loads(save_runs("json", tmp_path / "a.json", runs).read_text(encoding="utf-8"))
    assert [each["run_metadata"]["run_id"] for each in blocks] == ["run-2", "run-1"]
    assert [len(each["results"]) for each in blocks] == [4, 4]


@pytest.mark.parametrize("kind", ["html", "markdown", "junit"])
def test_a_single_run_format_error_lists_the_multi_run_formats(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        save_runs(kind, tmp_path / "a.x", [(make_run(), ROWS), (make_run(), ROWS)])
    assert str(refused.value) == (
        f"{kind} files hold one run each; export each run to its own file, or use json, jsonl, csv or parquet"
    )
    assert not list(tmp_path.iterdir())


def test_a_missing_pyarrow_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    expected = re.escape(f"Parquet needs pyarrow; install it: {make_install_command('parquet')}")
    with pytest.raises(InvalidInput, match=f"^{expected}$"):
        write_parquet(make_run(), ROWS, io.BytesIO())


def test_every_row_names_its_run() -> None:
    (named,) = iterate_records(replace(make_run(), name="nightly"), ROWS[:1])
    (nameless,) = iterate_records(make_run(), ROWS[:1])
    assert (named["run_name"], nameless["run_name"]) == ("nightly", None)


def test_rows_of_an_earlier_scoring_have_its_number_in_the_run_id() -> None:
    (found,) = iterate_records(replace(make_run(), scoring=0), ROWS[:1])
    assert found["run_id"] == "run-1@0"


# ── For people ──


def test_tool_calls_are_in_every_report() -> None:
    case, found = make_row("", Outcome.FAILED, case_id="a-1")
    silent = case, replace(found, reply=Reply("", tool_calls=CALLS))
    talking = make_row("Let me look.", Outcome.FAILED, case_id="a-2")
    assert talking[1].reply is not None
    talking = talking[0], replace(talking[1], reply=replace(talking[1].reply, tool_calls=CALLS))
    markdown = export_text("markdown", make_run(), [silent, talking])
    assert '  - Reply: `(no text; called get_weather({"city": "Paris"}))`\n' in markdown
    assert '  - Reply: `Let me look.`\n  - Tool calls: `get_weather({"city": "Paris"})`\n' in markdown
    page = export_text("html", make_run(), [silent, talking])
    assert page.count('<h3>Tool call: <bdi dir="auto">get_weather</bdi></h3>') == 2
    assert page.count('<p class="quiet">No text.</p>') == 1
    block = json.loads(export_text("json", make_run(), [silent]))[0]
    assert block["results"][0]["tool_calls"] == [
        {"id": "call_1", "name": "get_weather", "arguments": '{"city": "Paris"}'}
    ]


def test_tool_arguments_that_are_not_json_are_shown_verbatim() -> None:
    case, found = make_row("")
    broken = ToolCall("<b>", '{"city": <script>')
    page = export_text("html", make_run(), [(case, replace(found, reply=Reply("", tool_calls=(broken,))))])
    assert '{"city": &lt;script&gt;</pre>' in page.replace("&quot;", '"')
    assert "<script>" not in page


def test_rubric_scores_are_in_every_report() -> None:
    reasons = {"accuracy": "misses <b>the van</b>"}
    scored = {"scores": {"accuracy": 3, "helpfulness": 8}, "reasons": reasons}
    rows = []
    for number, language in enumerate(["en", "hi"] * 6):
        case, found = make_row(outcome=Outcome.FAILED, case_id=f"a-{number}", language=language)
        scores = {"accuracy": 3 + number % 5, "helpfulness": 8}
        check = Check("rubric", "1", Outcome.FAILED, "no", evidence={**scored, "scores": scores})
        rows.append((case, replace(found, checks=(check,))))
    markdown = export_text("markdown", make_run(), rows)
    assert "**Rubric scores, 1 to 10**\n\n|  | Model | Accuracy | Helpfulness | Replies |\n" in markdown
    given = [3 + number % 5 for number in range(12)]
    interval = skewed_mean_interval(
        12, float(np.mean(given)), float(np.var(given, ddof=1)), float(skew(given, bias=False))
    )
    assert interval is not None
    mean = f"{sum(given) / 12:.2f} ({interval.low:.2f}–{interval.high:.2f})"
    assert f"| all | m | {mean} | 8.00 | 12 |" in markdown
    assert "| language hi | m |" in markdown
    assert "  - Rubric scores: accuracy 3, helpfulness 8 (of 10)\n" in markdown
    page = export_text("html", make_run(), rows)
    assert "<h3>Rubric scores, 1 to 10</h3>" in page
    assert mean in page
    assert ' 3 of 10: <bdi dir="auto">misses &lt;b&gt;the van&lt;/b&gt;</bdi></li>' in page
    assert "Rubric" not in export_text("html", make_run(), [make_row()])
