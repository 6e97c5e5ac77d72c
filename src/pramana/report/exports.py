"""A run as a file: its plan and its results, one by one, in; `results.json` or JUnit XML out.

Tables are in `tables`, Markdown and HTML in separate modules. Results are streamed and never held in memory together:
parts that a format needs in another order wait in temporary files. Model text stays data: no output becomes a tag, a
link or a mention, and characters that XML cannot hold are escaped. Never calls a model, scores or decides.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from html import escape
from tempfile import SpooledTemporaryFile
from typing import Any, Literal, TextIO, cast, get_args

from pramana.analyse.engines import iterate_engine_lines_of_result, parse_distinct_engines
from pramana.analyse.judges import JudgeTally, canonical_judge_name, describe_calibration
from pramana.analyse.summary import calibration_to_data, explain_outcome
from pramana.hash import hash_result
from pramana.model import Case, Outcome, Result, Run, RunStatus, ToolCall
from pramana.report.exporters import Exporter
from pramana.report.figures import escape_unprintable
from pramana.report.terminal import to_json

Format = Literal["json", "jsonl", "csv", "parquet", "junit", "markdown", "html"]
FORMATS: tuple[Format, ...] = get_args(Format)
CaseResultPairs = Iterable[tuple[Case, Result]]
FindRecordingPath = Callable[[Case, Result], str | None]
"""Returns the path of a call's recording relative to the exported file; None if it was not exported with it."""
MAX_RECORDING_NAME_PART_LENGTH = 40
"""Characters of case and model in a recording's name: both may be long, and variant and repeat must fit too."""

MAX_RECORDING_NAME_LENGTH = 160
_MAX_BYTES_IN_MEMORY = 1 << 20


@contextmanager
def open_temporary_files(names: Iterable[str]) -> Iterator[dict[str, TextIO]]:
    """Yield a temporary text file for each name; all are deleted at the end."""
    with ExitStack() as stack:
        yield {
            name: cast(
                "TextIO",
                stack.enter_context(SpooledTemporaryFile(_MAX_BYTES_IN_MEMORY, "w+", encoding="utf-8", newline="")),
            )
            for name in names
        }


def copy_temporary_file(source: TextIO, out: TextIO) -> None:
    """Copy a whole temporary file to `out`."""
    source.seek(0)
    while piece := source.read(_MAX_BYTES_IN_MEMORY):
        out.write(piece)


def make_recording_name(case: Case, result: Result) -> str | None:
    """Return the name of a call's files, without extension; None for results without a call.

    It has case, model, variant and repeat, and the beginning of the log's digest, which is unique to each call.
    """
    if result.reply is None or result.reply.call is None:
        return None
    key = result.key
    parts = [
        case.id[:MAX_RECORDING_NAME_PART_LENGTH],
        key.model[:MAX_RECORDING_NAME_PART_LENGTH],
        key.variant,
        f"repeat-{key.repeat + 1}",
    ]
    parts = parts if key.repeat else parts[:-1]
    name = re.sub(r"[^\w.+=-]+", "_", "__".join(parts), flags=re.ASCII).lstrip("._-")[:MAX_RECORDING_NAME_LENGTH]
    return f"{name}__{result.reply.call.log.removeprefix('sha256:')[:8]}"


def format_prompt(case: Case) -> str:
    """Return the prompt of a case as one text."""
    return "\n\n".join(turn.text for turn in case.turns)


def format_expectation(case: Case) -> str | None:
    """Return the expectation of a case as one text; None where the assertion needs none."""
    return "\n".join(case.ideals) or case.expected_outcome


def tool_calls_to_data(calls: Iterable[ToolCall]) -> list[dict[str, str | None]]:
    """Return tool calls as plain data."""
    return [{"id": each.id, "name": each.name, "arguments": each.arguments} for each in calls]


def list_model_names(run: Run) -> list[str]:
    """Return the models as the user typed them, in order."""
    return [target.typed for target in run.plan.targets]


def map_provider_model_names(run: Run) -> dict[str, str]:
    """Return the provider's name for each model, by the name as typed."""
    return {target.typed: target.model for target in run.plan.targets}


# ── JSON, in the shape the existing community uses ──


def write_json(run: Run, results: CaseResultPairs, out: TextIO) -> None:
    """Write a list with one block per model, one result per line; see `write_runs_json`."""
    write_runs_json([(run, results)], out)


def write_runs_json(runs: Iterable[tuple[Run, CaseResultPairs]], out: TextIO) -> None:
    """Write a list with one block per run and model, one result per line.

    Besides the published fields, the file has those that make it safe to compare: `case_digest`, which distinguishes
    cases with the same id; `model`, as typed, and `provider`; `status`, and `complete`, which is false if results of
    this model are missing: the suite's name and hash then describe what the run started with. `system_prompt` was sent
    with every case; null means none. `engines` describes the engines of embedded models. `mixed_judges` in the summary
    is set if a pass rate mixes verdicts of several judges; `judges` says how far each agrees with people.

    Results without a verdict have `passed: false, score: null` and `details.skipped`, and count in `skipped`. Where the
    published format requires a value that does not exist, it gets the one its own runner writes: a missing reply has
    the output "" and latency 0, and a block without any verdict has the pass rate 0.0 (its `skipped` equals its
    `total`).
    """
    written = 0
    for run, results in runs:
        written += _write_blocks(run, results, out, has_preceding_blocks=written > 0)
    out.write("\n]\n" if written else "[]\n")


def _write_blocks(run: Run, results: CaseResultPairs, out: TextIO, *, has_preceding_blocks: bool) -> int:
    """Write one block per model and return how many; `has_preceding_blocks` means that other blocks precede them."""
    plan, names, ids = run.plan, list_model_names(run), map_provider_model_names(run)
    rates = {name: dict.fromkeys(Outcome, 0) for name in names}
    judges = {name: JudgeTally(canonical_judge_name, run.calibrations) for name in names}
    engines: dict[str, set[str]] = {name: set() for name in names}
    each = run.expected // max(1, len(names))
    with open_temporary_files(names) as blocks:
        for case, result in results:
            name = result.key.model
            rates[name][result.outcome] += 1
            for check in result.checks:
                judges[name].add(name, check)
            engines[name].update(iterate_engine_lines_of_result(result))
            entry = to_json(result_to_entry(case, result, ids[name]))
            blocks[name].write(f"{',' if sum(rates[name].values()) > 1 else ''}\n{entry}")
        for number, target in enumerate(plan.targets):
            name = target.typed
            head = {
                "suite_version": plan.suite,
                "suite_hash": plan.suite_hash,
                "run_metadata": {
                    "timestamp": run.created,
                    "model_id": target.model,
                    "temperature": plan.parameters.get("temperature"),
                    "seed": plan.parameters.get("seed"),
                    "runner_version": plan.runner_version,
                    "model": name,
                    "provider": target.provider,
                    "status": run.status,
                    "complete": sum(rates[name].values()) >= each,
                    "system_prompt": plan.system_prompt,
                    "run_id": run.reference,
                    **({"engines": list(map(str, used))} if (used := parse_distinct_engines(engines[name])) else {}),
                },
            }
            out.write(f'{"," if number or has_preceding_blocks else "["}\n{to_json(head)[:-1]}, "results": [')
            copy_temporary_file(blocks[name], out)
            summary = _summarise_block(rates[name])
            if mixed := judges[name].mixed_judge_sentences():
                summary["mixed_judges"] = list(mixed)
            if calibrations := judges[name].list_calibrations():
                summary["judges"] = [calibration_to_data(each) for each in calibrations]
            out.write(f'\n], "summary": {to_json(summary)}}}')
    return len(names)


def _summarise_block(counts: Mapping[Outcome, int]) -> dict[str, Any]:
    passed, scored = counts[Outcome.PASSED], counts[Outcome.PASSED] + counts[Outcome.FAILED]
    total = sum(counts.values())
    pass_rate = passed / scored if scored else 0.0
    return {"total": total, "passed": passed, "skipped": total - scored, "pass_rate": pass_rate}


def result_to_entry(case: Case, result: Result, model_id: str) -> dict[str, Any]:
    """Return one element of `results`."""
    outcome, output = result.outcome, result.reply.text if result.reply else ""
    decided = outcome in (Outcome.PASSED, Outcome.FAILED)
    details: dict[str, Any] = {"reason": explain_outcome(result)}
    if decided or any(not each.decides for each in result.checks):
        details["checks"] = [
            {
                "name": each.name,
                "version": each.version,
                "outcome": each.outcome.value,
                "reason": each.reason,
                "value": each.value,
                "evidence": dict(each.evidence),
            }
            for each in result.checks
        ]
    if not decided:
        details = {"skipped": True, "outcome": outcome.value, **details}
    return {
        "test_id": case.id,
        "output": output,
        "assertion_result": {"passed": outcome is Outcome.PASSED, "details": details},
        "latency_ms": to_milliseconds(result.reply.total_s if result.reply else 0.0),
        "result_hash": hash_result(model_id, case.id, output),
        "score": get_result_score(case, result),
        "repeat": result.key.repeat,
        "case_digest": result.key.case,
        "prompt": format_prompt(case),
        "expected": format_expectation(case),
        **(
            {"tool_calls": tool_calls_to_data(calls)}
            if (calls := result.reply.tool_calls if result.reply else ())
            else {}
        ),
        **({} if result.key.variant == "text" else {"variant": result.key.variant}),
    }


def get_result_score(case: Case, result: Result) -> float | None:
    """Return a result's score: the value of its check, from 0 to 1, else 1.0 or 0.0; None without a verdict."""
    outcome = result.outcome
    if outcome not in (Outcome.PASSED, Outcome.FAILED):
        return None
    stated = case.assertion.type if case.assertion else None
    decides = [each for each in result.checks if each.decides]
    deciding = next((each for each in decides if each.name == stated), decides[0])
    if deciding.outcome is outcome and deciding.value is not None and 0 <= deciding.value <= 1:
        return deciding.value
    return 1.0 if outcome is Outcome.PASSED else 0.0


def make_results_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `results.json`."""
    text, count = {"type": "string"}, {"type": "integer", "minimum": 0}
    digest = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}

    def record_schema(description: str, properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
        required = [name for name in properties if name not in optional]
        return {"type": "object", "description": description, "properties": properties, "required": required}

    undecided = {
        "properties": {
            "assertion_result": {
                "properties": {
                    "passed": {"const": False},
                    "details": {
                        "properties": {"outcome": {"enum": ["errored", "unscored", "skipped"]}, "reason": text},
                        "required": ["skipped", "outcome", "reason"],
                    },
                }
            },
            "score": {"const": None},
        }
    }
    skipped = {"details": {"properties": {"skipped": {"const": True}}, "required": ["skipped"]}}
    tool_call = record_schema(
        "A tool call in the model's reply",
        {
            "id": {"type": ["string", "null"], "description": "The provider's ID of the call"},
            "name": text,
            "arguments": {**text, "description": "JSON text as the model wrote it; it may be invalid"},
        },
    )
    calibration = record_schema(
        "How far a judge agrees with people, by their labels",
        {
            "judge": text,
            "check": text,
            "version": text,
            "calibration": {**text, "description": "In one phrase; uncalibrated without enough labels"},
            "accuracy": {"type": ["number", "null"], "description": "Share of verdicts with which people agree"},
            "interval": {"type": ["array", "null"], "items": {"type": "number"}},
            "labels": count,
            "from_other_runs": {"type": "boolean", "description": "Whether the labels are those of other runs"},
        },
    )
    result = record_schema(
        "One case, run once with one model",
        {
            "test_id": text,
            "output": {**text, "description": "The reply; empty when there is none"},
            "assertion_result": record_schema(
                "The verdict",
                {
                    "passed": {"type": "boolean"},
                    "details": {
                        "type": "object",
                        "description": "The reason and the checks; {skipped: true, outcome, reason} without a verdict",
                    },
                },
            ),
            "latency_ms": {**count, "description": "0 when there is no reply"},
            "result_hash": {**digest, "description": "SHA-256 of model_id|test_id|output"},
            "score": {
                "type": ["number", "null"],
                "minimum": 0,
                "maximum": 1,
                "description": "Value that the check measured, otherwise 1.0 or 0.0; null without a verdict",
            },
            "repeat": {**count, "description": "Number of the repeat, starting at 0"},
            "case_digest": {
                **digest,
                "description": "SHA-256 of the whole case, which distinguishes cases with the same ID",
            },
            "prompt": {**text, "description": "The messages sent, without the system prompt of the run"},
            "expected": {
                "type": ["string", "null"],
                "description": "The ideals, one per line, or the expected outcome; null if the assertion needs none",
            },
            "tool_calls": {
                "type": "array",
                "items": tool_call,
                "description": "Present if the model called tools, in the order of the calls",
            },
            "variant": {"type": "string", "description": "How the case was sent, if not as text: voice+noise=10dB"},
        },
        ("case_digest", "prompt", "expected", "tool_calls", "variant"),
    )
    result |= {
        "if": {"properties": {"assertion_result": {"properties": skipped}}},
        "then": undecided,
        "else": {"properties": {"score": {"type": "number"}}},
    }
    block = record_schema(
        "One model",
        {
            "suite_version": {**text, "description": "v1.0-cheap, or the name of the suite file"},
            "suite_hash": {
                "anyOf": [digest, {"type": "null"}],
                "description": "null if only a part of the suite was run",
            },
            "run_metadata": record_schema(
                "Settings of the requests",
                {
                    "timestamp": {"type": "string", "format": "date-time"},
                    "model_id": {**text, "description": "The provider's own name of the model"},
                    "temperature": {"type": ["number", "null"]},
                    "seed": {"type": ["integer", "null"]},
                    "runner_version": text,
                    "model": {**text, "description": "The model as the user typed it: opus, openai:gpt-5"},
                    "provider": text,
                    "status": {
                        "enum": list(get_args(RunStatus)),
                        "description": "Status of the run when this file was written",
                    },
                    "complete": {
                        "type": "boolean",
                        "description": "Whether every planned result is in this file; false if results are missing",
                    },
                    "system_prompt": {
                        "type": ["string", "null"],
                        "description": "System prompt sent with every case; null if there was none",
                    },
                    "run_id": {**text, "description": "ID of the run, for `pramana show`"},
                    "engines": {
                        "type": "array",
                        "items": text,
                        "description": "The engines of embedded models, each with its version, weights, processor "
                        "features and threads",
                    },
                },
                ("model", "provider", "status", "complete", "system_prompt", "run_id", "engines"),
            ),
            "results": {"type": "array", "items": {"$ref": "#/$defs/Result"}},
            "summary": record_schema(
                "Counts",
                {
                    "total": count,
                    "passed": count,
                    "skipped": {**count, "description": "Results without a verdict: errored, unscored and skipped"},
                    "pass_rate": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": 1,
                        "description": "passed / (total - skipped); 0.0 if no result has a verdict",
                    },
                    "mixed_judges": {
                        "type": "array",
                        "items": text,
                        "description": "Present if several judges gave the verdicts: the number of verdicts by each "
                        "judge",
                    },
                    "judges": {
                        "type": "array",
                        "items": calibration,
                        "description": "Present if a judge gave verdicts: how far each judge agrees with people",
                    },
                },
                ("mixed_judges", "judges"),
            ),
        },
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pramana results",
        "type": "array",
        "items": {"$ref": "#/$defs/Block"},
        "$defs": {"Block": block, "Result": result},
    }


# ── JUnit XML ──


def write_junit(run: Run, results: CaseResultPairs, out: TextIO) -> None:
    """Write one test suite per model; failures, errors and results without a verdict stay distinct."""
    names = list_model_names(run)
    counts = {name: dict.fromkeys(Outcome, 0) for name in names}
    seconds = dict.fromkeys(names, 0.0)
    judges = {name: JudgeTally(canonical_judge_name, run.calibrations) for name in names}
    with open_temporary_files(names) as suites:
        for case, result in results:
            name = result.key.model
            counts[name][result.outcome] += 1
            seconds[name] += result.reply.total_s if result.reply else 0.0
            for check in result.checks:
                judges[name].add(name, check)
            suites[name].write(_format_junit_test_case(run, case, result))
        everything = {outcome: sum(counts[name][outcome] for name in names) for outcome in Outcome}
        out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        out.write(
            "<testsuites "
            f"name={_quote_xml_attribute(run.plan.suite)}{_format_junit_counts(everything, sum(seconds.values()))}>\n"
        )
        for name in names:
            when = f" timestamp={_quote_xml_attribute(run.created)}"
            title = _quote_xml_attribute(f"{run.plan.suite} on {name}")
            out.write(f"  <testsuite name={title}{_format_junit_counts(counts[name], seconds[name])}{when}>\n")
            said = f'<property name="run_id" value={_quote_xml_attribute(run.reference)}/>'
            if mixed := judges[name].mixed_judge_sentences():
                said += f'<property name="mixed_judges" value={_quote_xml_attribute("; ".join(mixed))}/>'
            for each in judges[name].list_calibrations():
                told = f"{each.judge} ({each.check}), {describe_calibration(each)}"
                said += f'<property name="judge" value={_quote_xml_attribute(told)}/>'
            out.write(f"    <properties>{said}</properties>\n")
            copy_temporary_file(suites[name], out)
            out.write("  </testsuite>\n")
        out.write("</testsuites>\n")


def _format_junit_counts(counts: Mapping[Outcome, int], seconds: float) -> str:
    skipped = counts[Outcome.UNSCORED] + counts[Outcome.SKIPPED]
    return (
        f' tests="{sum(counts.values())}" failures="{counts[Outcome.FAILED]}" errors="{counts[Outcome.ERRORED]}"'
        f' skipped="{skipped}" time="{seconds:.3f}"'
    )


def _format_junit_test_case(run: Run, case: Case, result: Result) -> str:
    name = case.id + (f" (repeat {result.key.repeat + 1})" if run.plan.repeats > 1 else "")
    name += f" ({result.key.variant})" if result.key.variant != "text" else ""
    seconds = result.reply.total_s if result.reply else 0.0
    group = _quote_xml_attribute(f"{run.plan.suite}.{case.facets.category}")
    opening = f"    <testcase classname={group} name={_quote_xml_attribute(name)}"
    opening += f' time="{seconds:.3f}"'
    reason, output = explain_outcome(result), result.reply.text if result.reply else ""
    match result.outcome:
        case Outcome.PASSED:
            return f"{opening}/>\n"
        case Outcome.FAILED:
            kind = next(each.name for each in result.checks if each.outcome is Outcome.FAILED)
            shown = _escape_xml_text(f"{reason}\n\n{output}")
            body = (
                f"<failure message={_quote_xml_attribute(reason)} type={_quote_xml_attribute(kind)}>{shown}</failure>"
            )
        case Outcome.ERRORED:
            kind = result.failure.code if result.failure else "check"
            attributes = f"message={_quote_xml_attribute(reason)} type={_quote_xml_attribute(kind)}"
            body = f"<error {attributes}>{_escape_xml_text(reason)}</error>"
        case Outcome.UNSCORED | Outcome.SKIPPED:
            body = f"<skipped message={_quote_xml_attribute(f'{result.outcome.value}: {reason}')}/>"
    return f"{opening}>\n      {body}\n    </testcase>\n"


def _escape_xml_text(text: str) -> str:
    return escape(escape_unprintable(text), quote=False).replace("\r", "&#13;")


def _quote_xml_attribute(text: str) -> str:
    """Return text as a quoted attribute value; line breaks are kept as character references."""
    value = escape(escape_unprintable(text)).replace("\r", "&#13;").replace("\n", "&#10;").replace("\t", "&#9;")
    return f'"{value}"'


json_export = Exporter("json", ".json", write_json, write_several=write_runs_json)
junit_export = Exporter("junit", ".xml", write_junit)


def to_milliseconds(seconds: float) -> int:
    """Convert seconds to whole milliseconds."""
    return max(0, round(seconds * 1000)) if math.isfinite(seconds) else 0
