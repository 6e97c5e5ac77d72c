"""Hashes and digests that identify suites, cases and results.

`hash_suite`, `hash_result` and `hash_output` follow the published format byte for byte, so they match hashes computed
elsewhere. `hash_case` and `ResultDigester` are Pramana's own: no two different inputs give the same bytes. A suite is
never held in memory: sorting happens on disk, in one temporary file.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from struct import Struct
from tempfile import TemporaryFile, gettempdir
from typing import Any, BinaryIO, NamedTuple, Self

from pramana.errors import InvalidInput, PramanaError, Problem, describe_value, quote_text
from pramana.jsonl import BadJson, decode_line, open_file, parse_line, read_lines, to_canonical_json
from pramana.model import Assertion, Case, Line

HASH_PREFIX = "sha256:"


def hash_suite(path: str | PathLike[str], content: bytes | None = None) -> str:
    """Return the hash of a suite file: the hash of its cases as written, sorted by ID, in canonical JSON.

    The order of lines, blank lines, spaces and line ends do not change the hash of a suite; every character of every
    case does. `content` replaces the file's content.
    """
    with open_file(path, content) as file, SortedCases() as cases:
        lines = (line for line in read_lines(file) if not line.is_blank)
        for index, line in enumerate(lines):
            try:
                cases.add(CasePosition(line.number, index, line.byte_offset), parse_line(decode_line(line)))
            except BadJson as bad:
                place = Problem(bad.message, f"[{index}]", line.number, bad.column, str(path))
                raise InvalidInput.from_problems([place]) from None

        def refuse_duplicate(first: CasePosition, again: CasePosition, case_id: str) -> None:
            message = (
                f"duplicate id {quote_text(case_id)}: lines {first.line} and {again.line}; remove one of the two "
                "cases to hash the suite"
            )
            raise InvalidInput.from_problems([Problem(message, f"[{again.case_index}].id", again.line, 1, str(path))])

        return cases.compute_hash(refuse_duplicate)


def hash_output(output: str) -> str:
    """Return the SHA-256 hash of one output of a model.

    >>> hash_output("four")
    'sha256:04efaf080f5a3e74e1c29d1ca6a48569382cbbcd324e8d59d2b83ef21c039f00'
    """
    if not isinstance(output, str):
        raise InvalidInput(f"the output must be text, found {describe_value(output)}")
    return HASH_PREFIX + hashlib.sha256(_encode_text(output)).hexdigest()


def hash_result(model_id: str, case_id: str, output: str) -> str:
    """Return the hash of one result: model, case and output joined by `|`, as the published format defines it.

    If a field contains `|`, two different results can have the same hash; for its own records, Pramana uses
    `ResultDigester`.
    """
    return hash_output(f"{model_id}|{case_id}|{output}")


def hash_case(case: Case) -> str:
    """Return the digest that identifies a case: all of its content, without its source.

    Fields are listed one by one and omitted when empty, so that a field added later changes no digest of a case that
    does not use it.
    """
    stated, facets = case.assertion, case.facets
    said = {
        "id": case.id,
        "kind": case.kind,
        "turns": [[turn.role, turn.text] for turn in case.turns],
        "category": facets.category,
        "difficulty": facets.difficulty,
        "language": facets.language,
        "tags": list(facets.tags),
        "assertion": stated and _collect_assertion_fields(stated),
        "ideals": list(case.ideals),
        "name": case.name,
        "expected_outcome": case.expected_outcome,
        "prompt_audio_url": case.prompt_audio_url,
        "tokens_est": case.tokens_est,
        "script": [_collect_line_fields(line) for line in case.script],
        "conditions": case.conditions or None,
    }
    return HASH_PREFIX + hashlib.sha256(b"pramana case 1" + to_canonical_json(_drop_empty_fields(said))).hexdigest()


def _collect_assertion_fields(assertion: Assertion) -> dict[str, Any]:
    return _drop_empty_fields(
        {
            "type": assertion.type,
            "case_sensitive": None if assertion.case_sensitive else False,
            "threshold": assertion.threshold,
            "judge_prompt": assertion.judge_prompt,
            "schema": assertion.schema,
        }
    )


def _collect_line_fields(line: Line) -> dict[str, Any]:
    return _drop_empty_fields(
        {
            "text": line.text,
            "audio_url": line.audio_url,
            "barge_in_s": line.barge_in_s,
            "expected": [[_collect_assertion_fields(each.assertion), list(each.ideals)] for each in line.expected],
            "reference": line.reference,
        }
    )


def _drop_empty_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None and value != []}


class ResultDigester:
    """Computes digests of one model's records in one run, with each field prefixed by its length, so that none collide.

    An absent system prompt differs from an empty one. Parameters are hashed as JSON. The part that all records share is
    hashed once.
    """

    def __init__(
        self, *, model: str, parameters: Mapping[str, Any], suite_hash: str, system_prompt: str | None
    ) -> None:
        if not all(isinstance(name, str) for name in parameters):
            raise TypeError("parameter names must be text")
        shared: tuple[str | bytes, ...] = (model, to_canonical_json(dict(parameters)), suite_hash)
        self._prefix_hash = hashlib.sha256(b"pramana record 1" + b"".join(map(prefix_with_length, shared)))
        self._prompt = prefix_with_length(
            b"absent" if system_prompt is None else b"given " + _encode_text(system_prompt)
        )

    def __call__(self, case: str, output: str, sound_digests: Sequence[str] = ()) -> str:
        """Return the digest of an output for that case; `sound_digests` are those of the sound played to the model."""
        digest = self._prefix_hash.copy()
        digest.update(prefix_with_length(case) + self._prompt + prefix_with_length(output))
        for sound in sound_digests:
            digest.update(prefix_with_length(sound))
        return HASH_PREFIX + digest.hexdigest()


def prefix_with_length(field: str | bytes) -> bytes:
    """Return a field prefixed by its length, so that two different sequences of fields never give the same bytes."""
    as_bytes = _encode_text(field) if isinstance(field, str) else field
    return len(as_bytes).to_bytes(8) + as_bytes


def _encode_text(text: str) -> bytes:
    # Models do emit lone surrogates, through escapes in JSON; each is hashed as its three bytes.
    return text.encode("utf-8", "surrogatepass")


class CasePosition(NamedTuple):
    """A case's position in its file: line from one, case number from zero, and the line's byte offset."""

    line: int
    case_index: int
    byte_offset: int


class _SpilledCase(NamedTuple):
    """A long case that stays on disk: its byte offset and its size."""

    byte_offset: int
    size_bytes: int


_SortRecord = tuple[bytes, CasePosition, "bytes | _SpilledCase"]


class SortedCases:
    """Sorts cases on disk: cases go in, in any order; their hash and every duplicate ID come out, in constant memory.

    Cases are collected up to a memory budget, sorted and spilled to one temporary file as a run. The runs are then
    merged, holding one case of each run in memory, or only the position of a long one. UTF-8 sorts in code point order,
    so IDs are compared as bytes.
    """

    MEMORY_BYTES = 8 << 20
    READ_BYTES = 1 << 15
    LARGE_CASE_BYTES = 1 << 16
    _header = Struct("<IQQQI")

    def __init__(self) -> None:
        self._gathered: list[tuple[bytes, CasePosition, bytes]] = []
        self._size = 0
        self._spill: BinaryIO | None = None
        self._sorted_runs: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spill:
            self._spill.close()

    def add(self, position: CasePosition, case: Any) -> None:
        """Add one case and its position."""
        if not isinstance(case, dict) or not isinstance(case.get("id"), str):
            raise BadJson("a case must be an object with an id of text")
        record = (_encode_text(case["id"]), position, to_canonical_json(case))
        self._gathered.append(record)
        self._size += len(record[0]) + len(record[2]) + 350  # Python's overhead for a tuple and its objects
        if self._size > self.MEMORY_BYTES:
            self._write_sorted_chunk()

    def compute_hash(self, on_duplicate: Callable[[CasePosition, CasePosition, str], None]) -> str:
        """Return the suite's hash; call `on_duplicate` for each duplicate ID with both positions and the ID."""
        digest = hashlib.sha256(b"[")
        previous, first = None, CasePosition(0, 0, 0)
        for key, standing, case in self._iterate_sorted():
            if key == previous:
                on_duplicate(first, standing, key.decode("utf-8", "surrogatepass"))
            else:
                first = standing
            if previous is not None:
                digest.update(b",")
            for part in (case,) if isinstance(case, bytes) else self._read_spilled(case):
                digest.update(part)
            previous = key
        digest.update(b"]")
        return HASH_PREFIX + digest.hexdigest()

    def _iterate_sorted(self) -> Iterator[_SortRecord]:
        if not self._sorted_runs:
            self._gathered.sort()
            return iter(self._gathered)
        if self._gathered:
            self._write_sorted_chunk()
        return heapq.merge(*(self._read_sorted_chunk(start, end) for start, end in self._sorted_runs))

    def _write_sorted_chunk(self) -> None:
        if self._spill is None:
            self._spill = TemporaryFile(prefix="pramana-sort-")  # noqa: SIM115 - closed on exit
        self._gathered.sort()
        start = self._spill.seek(0, 2)
        try:
            for key, standing, case in self._gathered:
                self._spill.write(self._header.pack(len(key), *standing, len(case)) + key)
                self._spill.write(case)
            self._sorted_runs.append((start, self._spill.tell()))
        except OSError as error:
            where = gettempdir()
            raise PramanaError(
                f"sorting needs disk space in {where}: {error.strerror}; free some space, or set TMPDIR"
            ) from None
        self._gathered, self._size = [], 0

    def _read_sorted_chunk(self, start: int, end: int) -> Iterator[_SortRecord]:
        block, at = memoryview(b""), start

        def take(size: int) -> bytes:
            nonlocal block, at
            if len(block) < size and at < end and self._spill:
                self._spill.seek(at)  # the runs share one file, so each seeks to its own position
                more = self._spill.read(min(max(self.READ_BYTES, size - len(block)), end - at))
                at += len(more)
                block = memoryview(bytes(block) + more)
            taken, block = block[:size], block[size:]
            return bytes(taken)

        while header := take(self._header.size):
            key_size, line, number, offset, case_size = self._header.unpack(header)
            key, standing = take(key_size), CasePosition(line, number, offset)
            if case_size <= self.LARGE_CASE_BYTES:
                yield key, standing, take(case_size)
                continue
            place = _SpilledCase(at - len(block), case_size)
            at += max(0, case_size - len(block))
            block = block[case_size:]
            yield key, standing, place

    def _read_spilled(self, spilled: _SpilledCase) -> Iterator[bytes]:
        for start in range(spilled.byte_offset, spilled.byte_offset + spilled.size_bytes, self.LARGE_CASE_BYTES):
            if self._spill:
                self._spill.seek(start)
                yield self._spill.read(min(self.LARGE_CASE_BYTES, spilled.byte_offset + spilled.size_bytes - start))
