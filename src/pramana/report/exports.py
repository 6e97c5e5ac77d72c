"""A run as a file: its plan and its results, one by one, in; `results.json` or JUnit XML out.

Tables are in `tables`, Markdown and HTML in modules of their own. Results are taken as they come and never held
together: what a format wants in another order waits in temporary files. Model text is data and stays data: no output
becomes a tag, a link or a mention, and what XML cannot hold is written as an escape. Nothing here asks, scores or
decides.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from html import escape
from tempfile import SpooledTemporaryFile
from typing import Any, Literal, TextIO, cast, get_args

from pramana.analyse.engines import engines_in, lines_of
from pramana.analyse.judges import Judges, judge_name
from pramana.analyse.summary import why
from pramana.hash import hash_result
from pramana.model import Case, Outcome, Result, Run, RunStatus, ToolCall
from pramana.report.exporters import Exporter
from pramana.report.figures import printable
from pramana.report.terminal import as_json

Format = Literal["json", "jsonl", "csv", "parquet", "junit", "markdown", "html"]
FORMATS: tuple[Format, ...] = get_args(Format)
Results = Iterable[tuple[Case, Result]]
Recordings = Callable[[Case, Result], str | None]
"""Where the recording of a call is, as seen from the file that is written; None where it is not beside it."""
LONGEST_PART = 40
"""Of a recording's name: case and model may be long, and variant and repeat must still be in it."""

LONGEST_NAME = 160
_IN_MEMORY = 1 << 20


@contextmanager
def spools(names: Iterable[str]) -> Iterator[dict[str, TextIO]]:
    """Give a temporary text file to each name, gone at the end."""
    with ExitStack() as stack:
        yield {
            name: cast(
                "TextIO",
                stack.enter_context(SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8", newline="")),
            )
            for name in names
        }


def pour(spool: TextIO, out: TextIO) -> None:
    """Write all of a temporary file."""
    spool.seek(0)
    while piece := spool.read(_IN_MEMORY):
        out.write(piece)


def recording_name(case: Case, result: Result) -> str | None:
    """Return the name of a call's files, without their endings; None of what was not spoken.

    It says case, model, variant and repeat, and the beginning of the log's digest, for no two calls have one log.
    """
    if result.reply is None or result.reply.call is None:
        return None
    key = result.key
    parts = [case.id[:LONGEST_PART], key.model[:LONGEST_PART], key.variant, f"repeat-{key.repeat + 1}"]
    parts = parts if key.repeat else parts[:-1]
    name = re.sub(r"[^\w.+=-]+", "_", "__".join(parts), flags=re.ASCII).lstrip("._-")[:LONGEST_NAME]
    return f"{name}__{result.reply.call.log.removeprefix('sha256:')[:8]}"


def prompt_of(case: Case) -> str:
    """Return what is sent of a case, as one text."""
    return "\n\n".join(turn.text for turn in case.turns)


def expected_of(case: Case) -> str | None:
    """Return what is expected of the answer, as one text; None where an assertion needs none."""
    return "\n".join(case.ideals) or case.expected_outcome


def tool_calls_data(calls: Iterable[ToolCall]) -> list[dict[str, str | None]]:
    """Return tool calls as plain data."""
    return [{"id": each.id, "name": each.name, "arguments": each.arguments} for each in calls]


def models_of(run: Run) -> list[str]:
    """Return the models as the user typed them, in order."""
    return [target.typed for target in run.plan.targets]


def model_ids(run: Run) -> dict[str, str]:
    """Return each model's own name at its provider, by what the user typed."""
    return {target.typed: target.model for target in run.plan.targets}


# ── JSON, in the shape the existing community uses ──


def write_json(run: Run, results: Results, out: TextIO) -> None:
    """Write a list with one block a model, one result a line; see `write_json_of_several`."""
    write_json_of_several([(run, results)], out)


def write_json_of_several(runs: Iterable[tuple[Run, Results]], out: TextIO) -> None:
    """Write a list with one block a run and model, one result a line.

    Beside the published fields stand those that make the file safe to compare: `case_digest`, by which cases of the
    same id are told apart; `model`, as it was typed, and `provider`; `status`, and `complete`, which is false when
    results of this model are missing: the suite's name and hash then say what was begun. `system_prompt` was sent with
    every case; null is none. `engines` says what embedded models were computed with. Where verdicts of several judges
    make one pass rate, `mixed_judges` in the summary says so.

    What has no verdict is `passed: false, score: null` with `details.skipped`, and counted in `skipped`. Where the
    published shape wants a value that does not exist it gets the one its own runner writes: no reply is the output ""
    with latency 0, and a block without any verdict has the pass rate 0.0 (its `skipped` equals its `total`).
    """
    written = 0
    for run, results in runs:
        written += _write_blocks(run, results, out, follow=written > 0)
    out.write("\n]\n" if written else "[]\n")


def _write_blocks(run: Run, results: Results, out: TextIO, *, follow: bool) -> int:
    """Write one block a model and return how many; `follow` says that others stand before them."""
    plan, names, ids = run.plan, models_of(run), model_ids(run)
    rates = {name: dict.fromkeys(Outcome, 0) for name in names}
    judges = {name: Judges(judge_name) for name in names}
    engines: dict[str, set[str]] = {name: set() for name in names}
    each = run.expected // max(1, len(names))
    with spools(names) as blocks:
        for case, result in results:
            name = result.key.model
            rates[name][result.outcome] += 1
            for check in result.checks:
                judges[name].add(name, check)
            engines[name].update(lines_of(result))
            entry = as_json(as_entry(case, result, ids[name]))
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
                    **({"engines": list(map(str, used))} if (used := engines_in(engines[name])) else {}),
                },
            }
            out.write(f'{"," if number or follow else "["}\n{as_json(head)[:-1]}, "results": [')
            pour(blocks[name], out)
            summary = _block_summary(rates[name])
            if mixed := judges[name].mixed():
                summary["mixed_judges"] = list(mixed)
            out.write(f'\n], "summary": {as_json(summary)}}}')
    return len(names)


def _block_summary(counts: Mapping[Outcome, int]) -> dict[str, Any]:
    passed, scored = counts[Outcome.PASSED], counts[Outcome.PASSED] + counts[Outcome.FAILED]
    total = sum(counts.values())
    pass_rate = passed / scored if scored else 0.0
    return {"total": total, "passed": passed, "skipped": total - scored, "pass_rate": pass_rate}


def as_entry(case: Case, result: Result, model_id: str) -> dict[str, Any]:
    """Return one element of `results`."""
    outcome, output = result.outcome, result.reply.text if result.reply else ""
    decided = outcome in (Outcome.PASSED, Outcome.FAILED)
    details: dict[str, Any] = {"reason": why(result)}
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
        "latency_ms": milliseconds(result.reply.total_s if result.reply else 0.0),
        "result_hash": hash_result(model_id, case.id, output),
        "score": score_of(case, result),
        "repeat": result.key.repeat,
        "case_digest": result.key.case,
        "prompt": prompt_of(case),
        "expected": expected_of(case),
        **(
            {"tool_calls": tool_calls_data(calls)} if (calls := result.reply.tool_calls if result.reply else ()) else {}
        ),
        **({} if result.key.variant == "text" else {"variant": result.key.variant}),
    }


def score_of(case: Case, result: Result) -> float | None:
    """Return a result's score: what its check measured, from 0 to 1, else 1.0 or 0.0; None without a verdict."""
    outcome = result.outcome
    if outcome not in (Outcome.PASSED, Outcome.FAILED):
        return None
    stated = case.assertion.type if case.assertion else None
    decides = [each for each in result.checks if each.decides]
    deciding = next((each for each in decides if each.name == stated), decides[0])
    if deciding.outcome is outcome and deciding.value is not None and 0 <= deciding.value <= 1:
        return deciding.value
    return 1.0 if outcome is Outcome.PASSED else 0.0


def results_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `results.json`."""
    text, count = {"type": "string"}, {"type": "integer", "minimum": 0}
    digest = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}

    def record(description: str, properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
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
    tool_call = record(
        "A tool that the model asks its caller to run",
        {
            "id": {"type": ["string", "null"], "description": "The provider's own"},
            "name": text,
            "arguments": {**text, "description": "JSON as the model wrote it, which need not be valid"},
        },
    )
    result = record(
        "One case asked once",
        {
            "test_id": text,
            "output": {**text, "description": "The reply; empty when there is none"},
            "assertion_result": record(
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
                "description": "What the check measured, else 1.0 or 0.0; null without a verdict",
            },
            "repeat": {**count, "description": "Counted from 0"},
            "case_digest": {**digest, "description": "SHA-256 of the whole case: tells cases of the same id apart"},
            "prompt": {**text, "description": "The messages sent, without the system prompt of the run"},
            "expected": {
                "type": ["string", "null"],
                "description": "The ideals, one a line, or the expected outcome; null where an assertion needs none",
            },
            "tool_calls": {
                "type": "array",
                "items": tool_call,
                "description": "There when the model called tools, in its order",
            },
            "variant": {"type": "string", "description": "How it was asked, where not in writing: voice+noise=10dB"},
        },
        ("case_digest", "prompt", "expected", "tool_calls", "variant"),
    )
    result |= {
        "if": {"properties": {"assertion_result": {"properties": skipped}}},
        "then": undecided,
        "else": {"properties": {"score": {"type": "number"}}},
    }
    block = record(
        "One model",
        {
            "suite_version": {**text, "description": "v1.0-cheap, or the name of one's own file"},
            "suite_hash": {
                "anyOf": [digest, {"type": "null"}],
                "description": "null when the suite was not asked as a whole",
            },
            "run_metadata": record(
                "How the model was asked",
                {
                    "timestamp": {"type": "string", "format": "date-time"},
                    "model_id": {**text, "description": "The provider's own name of the model"},
                    "temperature": {"type": ["number", "null"]},
                    "seed": {"type": ["integer", "null"]},
                    "runner_version": text,
                    "model": {**text, "description": "The model as it was typed: opus, openai:gpt-5"},
                    "provider": text,
                    "status": {"enum": list(get_args(RunStatus)), "description": "How the run stood when written"},
                    "complete": {
                        "type": "boolean",
                        "description": "false: results are missing, and the suite was not asked as a whole",
                    },
                    "system_prompt": {
                        "type": ["string", "null"],
                        "description": "Sent with every case; null when there was none",
                    },
                    "run_id": {**text, "description": "The run, as `pramana show` takes it"},
                    "engines": {
                        "type": "array",
                        "items": text,
                        "description": "Of embedded models: engine, version, weights, processor features and threads",
                    },
                },
                ("model", "provider", "status", "complete", "system_prompt", "run_id", "engines"),
            ),
            "results": {"type": "array", "items": {"$ref": "#/$defs/Result"}},
            "summary": record(
                "Counts",
                {
                    "total": count,
                    "passed": count,
                    "skipped": {**count, "description": "Errored, unscored and skipped: no verdict"},
                    "pass_rate": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": 1,
                        "description": "passed / (total - skipped); 0.0 when nothing has a verdict",
                    },
                    "mixed_judges": {
                        "type": "array",
                        "items": text,
                        "description": "There when the verdicts are of several judges: how many are of whom",
                    },
                },
                ("mixed_judges",),
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


def write_junit(run: Run, results: Results, out: TextIO) -> None:
    """Write one test suite a model; a failure, an error and what has no verdict are three different things."""
    names = models_of(run)
    counts = {name: dict.fromkeys(Outcome, 0) for name in names}
    seconds = dict.fromkeys(names, 0.0)
    judges = {name: Judges(judge_name) for name in names}
    with spools(names) as suites:
        for case, result in results:
            name = result.key.model
            counts[name][result.outcome] += 1
            seconds[name] += result.reply.total_s if result.reply else 0.0
            for check in result.checks:
                judges[name].add(name, check)
            suites[name].write(_test_case(run, case, result))
        everything = {outcome: sum(counts[name][outcome] for name in names) for outcome in Outcome}
        out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        out.write(f"<testsuites name={_xml(run.plan.suite)}{_counted(everything, sum(seconds.values()))}>\n")
        for name in names:
            when = f" timestamp={_xml(run.created)}"
            title = _xml(f"{run.plan.suite} on {name}")
            out.write(f"  <testsuite name={title}{_counted(counts[name], seconds[name])}{when}>\n")
            said = f'<property name="run_id" value={_xml(run.reference)}/>'
            if mixed := judges[name].mixed():
                said += f'<property name="mixed_judges" value={_xml("; ".join(mixed))}/>'
            out.write(f"    <properties>{said}</properties>\n")
            pour(suites[name], out)
            out.write("  </testsuite>\n")
        out.write("</testsuites>\n")


def _counted(counts: Mapping[Outcome, int], seconds: float) -> str:
    skipped = counts[Outcome.UNSCORED] + counts[Outcome.SKIPPED]
    return (
        f' tests="{sum(counts.values())}" failures="{counts[Outcome.FAILED]}" errors="{counts[Outcome.ERRORED]}"'
        f' skipped="{skipped}" time="{seconds:.3f}"'
    )


def _test_case(run: Run, case: Case, result: Result) -> str:
    name = case.id + (f" (repeat {result.key.repeat + 1})" if run.plan.repeats > 1 else "")
    name += f" ({result.key.variant})" if result.key.variant != "text" else ""
    seconds = result.reply.total_s if result.reply else 0.0
    opening = f"    <testcase classname={_xml(f'{run.plan.suite}.{case.facets.category}')} name={_xml(name)}"
    opening += f' time="{seconds:.3f}"'
    reason, output = why(result), result.reply.text if result.reply else ""
    match result.outcome:
        case Outcome.PASSED:
            return f"{opening}/>\n"
        case Outcome.FAILED:
            kind = next(each.name for each in result.checks if each.outcome is Outcome.FAILED)
            shown = _xml_text(f"{reason}\n\n{output}")
            body = f"<failure message={_xml(reason)} type={_xml(kind)}>{shown}</failure>"
        case Outcome.ERRORED:
            kind = result.failure.code if result.failure else "check"
            body = f"<error message={_xml(reason)} type={_xml(kind)}>{_xml_text(reason)}</error>"
        case Outcome.UNSCORED | Outcome.SKIPPED:
            body = f"<skipped message={_xml(f'{result.outcome.value}: {reason}')}/>"
    return f"{opening}>\n      {body}\n    </testcase>\n"


def _xml_text(text: str) -> str:
    return escape(printable(text), quote=False).replace("\r", "&#13;")


def _xml(text: str) -> str:
    """Return text as an attribute's value, quotes included; line ends survive as references."""
    value = escape(printable(text)).replace("\r", "&#13;").replace("\n", "&#10;").replace("\t", "&#9;")
    return f'"{value}"'


json_export = Exporter("json", ".json", write_json, write_several=write_json_of_several)
junit_export = Exporter("junit", ".xml", write_junit)


def milliseconds(seconds: float) -> int:
    """Return a time in whole milliseconds."""
    return max(0, round(seconds * 1000)) if math.isfinite(seconds) else 0
