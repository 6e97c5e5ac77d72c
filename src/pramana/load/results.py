"""Results of earlier runs: a `results.json` in the published shape in, blocks of outcomes out.

Files of other and older programs are accepted: a single block instead of a list, missing `repeat`, `result_hash`,
`score` or fields of Pramana's own, and unknown keys. What a comparison needs must be present and valid; anything else
is reported with file, line, column and path. A case is identified by its `case_digest` if every result of a block has
one, otherwise by its `test_id`. A `result_hash` that does not match its output is reported, not refused. Nothing is
written, and no output is scored again.
"""

import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from pramana import jsonl
from pramana.errors import InvalidInput, NotFound, Problem
from pramana.hash import hash_result
from pramana.load.problems import describe_value, format_path, join_alternatives
from pramana.model import Check, Outcome, ToolCall

MAX_PROBLEMS = 100
"""Enough for a reader."""
MAX_RESULTS_FILE_BYTES = 2 * 10**9
"""A million results of two kilobytes; more exceeds the memory of most machines."""
OUTCOME_NAMES = frozenset(each.value for each in Outcome)


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """One result as the file has it."""

    test_id: str
    repeat: int
    outcome: Outcome
    output: str
    reason: str | None = None
    score: float | None = None
    latency_ms: float | None = None
    result_hash: str | None = None
    case_digest: str | None = None
    checks: tuple[Check, ...] = ()
    """The checks of the result; empty if the file has none."""
    variant: str = "text"
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that the model called; empty if the file has none."""


@dataclass(frozen=True, slots=True)
class ModelResults:
    """The results of one model."""

    model_id: str
    suite_version: str
    suite_hash: str | None
    """None if only part of a suite was sent, or the file does not say."""
    results: tuple[RecordedResult, ...] = field(repr=False)
    timestamp: str | None = None
    temperature: float | None = None
    seed: int | None = None
    runner_version: str | None = None
    model: str | None = None
    """The model as typed; None if the file does not say."""
    complete: bool | None = None
    """Whether all expected results are there; None if the file does not say."""
    provider: str | None = None
    engines: tuple[str, ...] = ()
    """The engines of the embedded models, one per line; empty if the file does not say."""
    system_prompt: str | None = field(default=None, repr=False)
    """Empty if there was none; None if the file does not say."""

    @property
    def has_digests(self) -> bool:
        """Return whether every result has a case digest, which identifies its case."""
        return all(each.case_digest for each in self.results)


def find_ids_with_wrong_hash(block: ModelResults) -> list[str]:
    """Return the IDs of the results whose `result_hash` does not match their output."""
    if not block.model_id:
        return []
    return [
        each.test_id
        for each in block.results
        if each.result_hash and each.result_hash != hash_result(block.model_id, each.test_id, each.output)
    ]


def read_results(path: str | PathLike[str]) -> list[ModelResults]:
    """Return the blocks of a results file; raise `InvalidInput` with the first problems."""
    file = str(path)
    try:
        text = _read_content(Path(path)).decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFound(f"{file} does not exist") from None
    except UnicodeDecodeError as error:
        message = f"not UTF-8: byte 0x{error.object[error.start]:02x} is invalid here"
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidInput.from_problems([Problem(message, "", line, 1, file)]) from None
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from None
    try:
        value = jsonl.parse_rfc8259(text, refuse_infinite=True)
    except jsonl.BadJson as bad:
        raise InvalidInput.from_problems([_make_problem_at(file, text, bad.column, bad.message, bad.path)]) from None
    reader = _ResultsReader()
    blocks = reader.read_blocks(value)
    if reader.findings:
        columns = jsonl.find_columns(text, ((path, False) for path, _ in reader.findings))
        ordered = sorted(reader.findings, key=lambda finding: columns[finding[0], False])
        raise InvalidInput.from_problems(
            [_make_problem_at(file, text, columns[path, False], message, path) for path, message in ordered]
        )
    return blocks


def _read_content(path: Path) -> bytes:
    """Return a file's content; a pipe or a device, which may never end, is not opened."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput(f"{path} cannot be read: not a regular file; save the results to a file first")
    if found.st_size > MAX_RESULTS_FILE_BYTES:
        raise InvalidInput(f"{path} has {found.st_size:,} bytes; a results file may have {MAX_RESULTS_FILE_BYTES:,}")
    with path.open("rb") as file:
        return file.read(MAX_RESULTS_FILE_BYTES + 1)


def _make_problem_at(file: str, text: str, position: int, message: str, path: jsonl.JsonPath) -> Problem:
    before = text[: position - 1]
    return Problem(message, format_path(path), before.count("\n") + 1, position - (before.rfind("\n") + 1), file)


_REQUIRED: Any = object()
_TYPES_BY_PHRASE: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "a number": (int, float),
    "a whole number": (int,),
    "true or false": (bool,),
    "an object": (dict,),
    "a list": (list,),
}


_OPTIONAL_FIELDS_OF_BLOCK: dict[str, tuple[str, Any]] = {
    "complete": ("true or false", None),
    "timestamp": ("text", None),
    "temperature": ("a number", None),
    "seed": ("a whole number", None),
    "runner_version": ("text", None),
    "model": ("text", None),
}
_OPTIONAL_FIELDS_OF_RESULT: dict[str, tuple[str, Any]] = {
    "case_digest": ("text", None),
    "variant": ("text", "text"),
    "score": ("a number", None),
    "output": ("text", ""),
    "latency_ms": ("a number", None),
    "result_hash": ("text", None),
}
"""Fields that may be missing or null, each with its type and its default."""


class _ResultsReader:
    """Reads one document; collects problems and their positions."""

    def __init__(self) -> None:
        self.findings: list[tuple[jsonl.JsonPath, str]] = []

    def add_problem(self, path: jsonl.JsonPath, message: str) -> None:
        if len(self.findings) < MAX_PROBLEMS:
            self.findings.append((path, message))

    def get_field(
        self, record: dict[str, Any], path: jsonl.JsonPath, type_phrase: str, default: Any = _REQUIRED
    ) -> Any:
        """Return a field of the right type; without a default it is required, with one it may be missing or null."""
        name = path[-1]
        value = record.get(str(name))
        if value is None and default is not _REQUIRED:
            return default
        if str(name) not in record:
            self.add_problem(path, f"{name} is required")
        elif not isinstance(value, _TYPES_BY_PHRASE[type_phrase]) or (
            isinstance(value, bool) and type_phrase != "true or false"
        ):
            self.add_problem(path, f"{name} must be {type_phrase}, found {describe_value(value)}")
        else:
            return value
        return None

    def get_optional_fields(
        self, record: dict[str, Any], path: jsonl.JsonPath, fields: dict[str, tuple[str, Any]]
    ) -> dict[str, Any]:
        """Return several optional fields."""
        return {name: self.get_field(record, (*path, name), kind, default) for name, (kind, default) in fields.items()}

    def read_blocks(self, value: Any) -> list[ModelResults]:
        if isinstance(value, dict):  # older programs wrote a single block
            return [self.read_block(value, ())]
        if not isinstance(value, list):
            self.add_problem(
                (), f"a results file must be a list with one block per model, found {describe_value(value)}"
            )
            return []
        if not value:
            self.add_problem((), "the list is empty: it contains no results")
        for number, each in enumerate(value):
            if not isinstance(each, dict):
                message = f"a block must be an object with suite_version and results, found {describe_value(each)}"
                self.add_problem((number,), message)
        return [self.read_block(each, (number,)) for number, each in enumerate(value) if isinstance(each, dict)]

    def read_block(self, value: dict[str, Any], path: jsonl.JsonPath) -> ModelResults:
        metadata = self.get_field(value, (*path, "run_metadata"), "an object") or {}
        below = (*path, "run_metadata")
        listed = self.get_field(value, (*path, "results"), "a list") or []
        seen: Counter[str] = Counter()
        results = [self.read_result(each, (*path, "results", number), seen) for number, each in enumerate(listed)]
        self.check_unique(results, (*path, "results"))
        optional = self.get_optional_fields(metadata, below, _OPTIONAL_FIELDS_OF_BLOCK)
        engines, provider = metadata.get("engines"), metadata.get("provider")  # informational only: never refused
        prompt = metadata.get("system_prompt", _REQUIRED)
        model = self.get_field(metadata, (*below, "model_id"), "text") if "run_metadata" in value else ""
        return ModelResults(
            model_id=model or "",
            suite_version=self.get_field(value, (*path, "suite_version"), "text") or "",
            suite_hash=self.get_field(value, (*path, "suite_hash"), "text", None),
            results=tuple(each for each in results if each),
            provider=provider if isinstance(provider, str) else None,
            engines=tuple(each for each in engines if isinstance(each, str)) if isinstance(engines, list) else (),
            system_prompt=(prompt or "") if isinstance(prompt, str | None) else None,
            **optional,
        )

    def check_unique(self, results: list[RecordedResult | None], path: jsonl.JsonPath) -> None:
        by_digest = all(each.case_digest for each in results if each)
        seen: set[tuple[str, str, int]] = set()
        for number, each in enumerate(results):
            if each is None:
                continue
            key = ((each.case_digest if by_digest else None) or each.test_id, each.variant, each.repeat)
            if key in seen:
                message = f"test_id {describe_value(each.test_id)} occurs twice with repeat {each.repeat}"
                self.add_problem((*path, number, "repeat"), message)
            seen.add(key)

    def read_result(self, value: Any, path: jsonl.JsonPath, id_counts: Counter[str]) -> RecordedResult | None:
        if not isinstance(value, dict):
            self.add_problem(path, f"a result must be an object, found {describe_value(value)}")
            return None
        test_id = self.get_field(value, (*path, "test_id"), "text")
        stated = self.get_field(value, (*path, "assertion_result"), "an object")
        optional = self.get_optional_fields(value, path, _OPTIONAL_FIELDS_OF_RESULT)
        asked = f"{optional['case_digest'] or test_id} {optional['variant']}"
        repeat = self.get_field(value, (*path, "repeat"), "a whole number", id_counts[asked])
        id_counts[asked] += 1
        if isinstance(repeat, int) and repeat < 0:
            self.add_problem((*path, "repeat"), f"repeat must be at least 0, found {repeat}")
        if stated is None:
            return None
        below = (*path, "assertion_result")
        passed = self.get_field(stated, (*below, "passed"), "true or false")
        details = self.get_field(stated, (*below, "details"), "an object", {}) or {}
        if passed is None or test_id is None or repeat is None:
            return None
        reason = details.get("reason")
        return RecordedResult(
            test_id=test_id,
            repeat=repeat,
            outcome=self.read_outcome(passed, details, below),
            reason=reason if isinstance(reason, str) else None,
            checks=tuple(_parse_checks(details.get("checks"))),
            tool_calls=tuple(_parse_tool_calls(value.get("tool_calls"))),
            **{**optional, "variant": optional["variant"] or "text"},
        )

    def read_outcome(self, passed: bool, details: dict[str, Any], path: jsonl.JsonPath) -> Outcome:
        """Return the outcome that the file states, or that older files imply."""
        skipped = details.get("skipped") is True
        stated = details.get("outcome")
        implied = Outcome.SKIPPED if skipped else Outcome.PASSED if passed else Outcome.FAILED
        if skipped and passed:
            self.add_problem(
                (*path, "passed"),
                "passed is true, but details.skipped is true as well, which means that there is no verdict",
            )
        if not skipped or stated is None:
            return implied
        undecided = (Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED)
        if stated not in undecided:
            expected = join_alternatives([each.value for each in undecided])
            self.add_problem(
                (*path, "details", "outcome"), f"outcome must be {expected}, found {describe_value(stated)}"
            )
            return implied
        return Outcome(stated)


def _parse_checks(records: Any) -> Iterator[Check]:
    """Yield the checks in Pramana's format; skip anything else that a program wrote there."""
    for each in records if isinstance(records, list) else ():
        match each:
            case {"name": str(name), "version": str(version), "outcome": str(outcome)} if outcome in OUTCOME_NAMES:
                evidence = each.get("evidence")
                kept = evidence if isinstance(evidence, dict) else {}
                yield Check(name, version, Outcome(outcome), str(each.get("reason", "")), evidence=kept)


def _parse_tool_calls(records: Any) -> Iterator[ToolCall]:
    """Yield the tool calls in the published shape; skip anything else that a program wrote there."""
    for each in records if isinstance(records, list) else ():
        match each:
            case {"name": str(name), "arguments": str(arguments)}:
                call_id = each.get("id")
                yield ToolCall(name, arguments, call_id if isinstance(call_id, str) else None)
