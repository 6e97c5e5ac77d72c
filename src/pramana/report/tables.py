"""Runs as tables: results, one by one, in; one flat record each out, as CSV, JSON Lines or Parquet.

The columns are those of `COLUMN_TYPES` in every format. In CSV, a text that a spreadsheet would run as a formula gets a
leading apostrophe; the other formats are typed, and change only lone surrogates, which they cannot hold. pyarrow, which
writes Parquet, is imported only where it is used. Never calls a model, scores or decides.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import IO, TextIO

from pramana.analyse.judges import UNCALIBRATED, canonical_judge_name, describe_calibration, find_verdict_source
from pramana.analyse.scores import average_rubric_ratings
from pramana.analyse.summary import explain_outcome
from pramana.errors import InvalidInput
from pramana.hash import hash_result
from pramana.installation import make_install_command
from pramana.model import Result, Run
from pramana.report.exporters import Exporter
from pramana.report.exports import (
    CaseResultPairs,
    format_expectation,
    format_prompt,
    get_result_score,
    map_provider_model_names,
    to_milliseconds,
    tool_calls_to_data,
)
from pramana.report.figures import escape_unprintable
from pramana.report.terminal import to_json
from pramana.score.verdicts import RUBRIC_SCORE_NAMES as RUBRIC_SCORES

COLUMN_TYPES: Mapping[str, type] = {
    "test_id": str,
    "model": str,
    "variant": str,
    "repeat": int,
    "outcome": str,
    "score": float,
    "reason": str,
    "category": str,
    "difficulty": str,
    "language": str,
    "tags": str,
    "output": str,
    "latency_ms": int,
    "first_token_ms": int,
    "input_tokens": int,
    "output_tokens": int,
    "cost_usd": float,
    "finish_reason": str,
    "served_model": str,
    "cached": bool,
    "result_hash": str,
    "case_digest": str,
    "judge": str,
    "run_id": str,
    "prompt": str,
    "expected": str,
    "scores": str,
    "tool_calls": str,
    **{f"rubric_{name}": float for name in RUBRIC_SCORES},
    "run_name": str,
    "judge_calibration": str,
}
"""The columns of a record and their types; each may also be None."""
Record = dict[str, str | float | bool | None]
Runs = Iterable[tuple[Run, CaseResultPairs]]
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_SURROGATE_RE = re.compile("[\ud800-\udfff]")
_ROWS_PER_BATCH = 1_000
"""Records per batch written to a Parquet file."""


def iterate_records(run: Run, results: CaseResultPairs) -> Iterator[Record]:
    """Yield one flat record per result, for tables: text, numbers and None."""
    ids = map_provider_model_names(run)
    calibrations = {(each.check, each.version, each.judge): describe_calibration(each) for each in run.calibrations}
    for case, result in results:
        reply, facets, key = result.reply, case.facets, result.key
        sources = (find_verdict_source(each, canonical_judge_name) for each in result.checks)
        judges = [each for each in sources if each.by]
        rated = average_rubric_ratings(result.checks)
        yield {
            "test_id": case.id,
            "model": key.model,
            "variant": key.variant,
            "repeat": key.repeat,
            "outcome": result.outcome.value,
            "score": get_result_score(case, result),
            "reason": explain_outcome(result),
            "category": facets.category,
            "difficulty": facets.difficulty,
            "language": facets.language,
            "tags": " ".join(facets.tags),
            "output": reply.text if reply else None,
            "latency_ms": to_milliseconds(reply.total_s) if reply else None,
            "first_token_ms": to_milliseconds(reply.first_token_s)
            if reply and reply.first_token_s is not None
            else None,
            "input_tokens": reply.usage.input_tokens if reply else None,
            "output_tokens": reply.usage.output_tokens if reply else None,
            "cost_usd": reply.cost_usd if reply else None,
            "finish_reason": reply.finish_reason if reply else None,
            "served_model": reply.served_model if reply else None,
            "cached": reply.cached if reply else None,
            "result_hash": hash_result(ids[key.model], case.id, reply.text) if reply else None,
            "case_digest": key.case,
            "judge": ", ".join(dict.fromkeys(each.by for each in judges)),
            "run_id": run.reference,
            "prompt": format_prompt(case),
            "expected": format_expectation(case),
            "scores": to_json(scores) if (scores := collect_scorer_scores(result)) else None,
            "tool_calls": to_json(tool_calls_to_data(reply.tool_calls)) if reply and reply.tool_calls else None,
            **{f"rubric_{name}": rated.get(name) for name in RUBRIC_SCORES},
            "run_name": run.name,
            "judge_calibration": "; ".join(
                dict.fromkeys(calibrations.get((each.check, each.version, each.by), UNCALIBRATED) for each in judges)
            ),
        }


def collect_scorer_scores(result: Result) -> dict[str, float | str]:
    """Return the numbers and labels of a result's scorers, by name."""
    given = (
        (each.name, each.evidence.get("label") if each.value is None else each.value)
        for each in result.checks
        if not each.decides or "pass_at" in each.evidence
    )
    return {name: value for name, value in given if isinstance(value, float | str)}


# ── CSV ──


def write_csv(run: Run, results: CaseResultPairs, out: TextIO) -> None:
    """Write one row per result. A text that a spreadsheet would run as a formula gets a leading apostrophe."""
    write_runs_csv([(run, results)], out)


def write_runs_csv(runs: Runs, out: TextIO) -> None:
    """Write one row per result, run by run."""
    rows = csv.writer(out)
    rows.writerow(COLUMN_TYPES)
    for run, results in runs:
        for each in iterate_records(run, results):
            rows.writerow(map(to_csv_cell, each.values()))


def to_csv_cell(value: str | float | bool | None) -> str | float | None:
    """Return the value of a CSV cell; a text that a spreadsheet would run as a formula gets a leading apostrophe."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, str):
        return value if value is None or math.isfinite(value) else None
    text = escape_unprintable(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


# ── Typed formats ──


def write_jsonl(run: Run, results: CaseResultPairs, out: TextIO) -> None:
    """Write one JSON object per result, each on its own line."""
    write_runs_jsonl([(run, results)], out)


def write_runs_jsonl(runs: Runs, out: TextIO) -> None:
    """Write one JSON object per result, each on its own line, run by run."""
    for run, results in runs:
        out.writelines(f"{to_json(_to_typed_record(each))}\n" for each in iterate_records(run, results))


def write_parquet(run: Run, results: CaseResultPairs, out: IO[bytes]) -> None:
    """Write one row per result, with typed columns."""
    write_runs_parquet([(run, results)], out)


def write_runs_parquet(runs: Runs, out: IO[bytes]) -> None:
    """Write one row per result, with typed columns, run by run."""
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise InvalidInput(f"Parquet needs pyarrow; install it: {make_install_command('parquet')}") from error
    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([(name, types[kind]) for name, kind in COLUMN_TYPES.items()])
    rows = (_to_typed_record(each) for run, results in runs for each in iterate_records(run, results))
    with ParquetWriter(out, schema, compression="zstd") as writer:
        while some := list(islice(rows, _ROWS_PER_BATCH)):
            writer.write_table(pa.Table.from_pylist(some, schema=schema))


def _to_typed_record(record: Record) -> Record:
    """Return a record that typed formats can hold."""
    return {name: _to_storable_value(value) for name, value in record.items()}


def _to_storable_value(value: str | float | bool | None) -> str | float | bool | None:
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE_RE.sub(lambda found: f"\\u{ord(found[0]):04x}", value)
    return value if value is None or math.isfinite(value) else None


csv_export = Exporter("csv", ".csv", write_csv, write_several=write_runs_csv)
jsonl_export = Exporter("jsonl", ".jsonl", write_jsonl, write_several=write_runs_jsonl)
parquet_export = Exporter("parquet", ".parquet", write_parquet, binary=True, write_several=write_runs_parquet)
