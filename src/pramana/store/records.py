"""Converts model structs to columns and back: plain functions, one pair per struct, no pickle and no reflection.

All text, in a column or inside JSON, is escaped by one rule, so that both engines can store it without loss. PostgreSQL
rejects NUL, and neither engine can encode an unpaired surrogate as UTF-8; models emit both. NUL, each surrogate, and
U+FDD0 itself (a noncharacter, which Unicode reserves for internal use) are written as U+FDD0 and the character's four
hexadecimal digits; any other text is stored unchanged.

A result becomes a tuple in the order of `RESULT_COLUMNS`, because a run writes many. Raw responses over 4 KB are
compressed.
"""

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple, replace
from sqlalchemy import Connection, RowMapping, select

from pramana.errors import Hint, NotFound, StoreFailed, quote_text
from pramana.model import (
    Case,
    Check,
    Failure,
    Outcome,
    Plan,
    RecordedCall,
    Reply,
    Result,
    ResultKey,
    Run,
    SourceLocation,
    ToolCall,
    Usage,
)
from pramana.store.schema import runs

ESCAPE_MARK = "\ufdd0"
_FORBIDDEN_CHARACTER_RE = re.compile("[\0\ud800-\udfff\ufdd0]")
_ESCAPED_CHARACTER_RE = re.compile("\ufdd0([0-9a-f]{4})")


def escape_text(text: str) -> str:
    """Escape text for a column.

    >>> escape_text("a\\0b") == "a\\ufdd00000b"
    True
    """
    if text.isascii() and "\0" not in text:
        return text
    return _FORBIDDEN_CHARACTER_RE.sub(lambda found: f"{ESCAPE_MARK}{ord(found[0]):04x}", text)


def escape_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Escape all text in a row; one check for all columns finds that nearly all rows need nothing.

    >>> escape_row(("a\\0", 1, None)) == ("a\\ufdd00000", 1, None)
    True
    """
    everything = "".join([value for value in row if value.__class__ is str])
    if everything.isascii() and "\0" not in everything:
        return row
    return tuple([escape_text(value) if isinstance(value, str) else value for value in row])


def unescape_text(text: str) -> str:
    """Undo `escape_text`.

    >>> unescape_text(escape_text("half \\ud83d and \\0")) == "half \\ud83d and \\0"
    True
    """
    return _ESCAPED_CHARACTER_RE.sub(lambda found: chr(int(found[1], 16)), text) if ESCAPE_MARK in text else text


def escape_optional_text(text: str | None) -> str | None:
    """Escape a text that may be None."""
    return None if text is None else escape_text(text)


def escape_or_none_if_blank(text: str | None) -> str | None:
    """Escape text from a user without the blanks around it; return None if nothing is left."""
    return escape_text(text.strip()) or None if text else None


def unescape_optional_text(text: str | None) -> str | None:
    """Unescape a text that may be None."""
    return None if text is None else unescape_text(text)


# ── Structs to columns ──

RESULT_COLUMNS = (
    "model",
    "variant",
    "repeat",
    "case_id",
    "outcome",
    "output",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "served_model",
    "fingerprint",
    "finish_reason",
    "first_token_s",
    "total_s",
    "raw",
    "dropped",
    "cost_usd",
    "cached",
    "failure_code",
    "failure_message",
    "result_hash",
    "digest",
    "conversation",
)
"""Columns of a result, besides its run and its case."""

CHECK_COLUMNS = ("name", "version", "outcome", "reason", "value", "evidence")
"""Columns of a check, besides its result, its scoring and its position."""
UNDECIDING_OUTCOME = "measured"
"""The outcome column of a check that does not decide, whatever its outcome."""

COMPRESSION_THRESHOLD_BYTES = 4096
_LEVEL, _WINDOW, _MEMORY = 1, 13, 6
"""An eighth of zlib's default tables: clearing those takes 50 µs per response, eight times as long as small ones."""
_ZLIB_FIRST_BYTE = 0x58
_NO_REPLY_COLUMNS = (None,) * 13
_PLAIN_TYPES = frozenset({str, int, float, bool, bytes, type(None)})
_INTEGER_BOUND = 1 << 63

_encode_json = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
"""Not ASCII: the escapes of two separate surrogates side by side would be decoded as one character."""


def encode_json_column(value: Any) -> str:
    """Encode plain data for a JSON column."""
    return escape_text(_encode_json(value))


def decode_json_column(text: str) -> Any:
    """Decode a JSON column."""
    return json.loads(unescape_text(text))


def case_to_json(case: Case) -> str:
    """Encode a case as JSON: the fields that differ from their defaults, without its source."""
    plain = msgspec.to_builtins(case)
    return encode_json_column(
        {name: value for name, value in plain.items() if name != "source" and value != _CASE_DEFAULTS[name]}
    )


_CASE_DEFAULTS = {each.name: each.default for each in msgspec.structs.fields(Case)}
_decode_case = msgspec.json.Decoder(Case).decode


def case_from_json(text: str, source_file: str | None = None, source_line: int | None = None) -> Case:
    """Decode a case that `case_to_json` encoded."""
    # Escaped text may hold characters that a strict JSON decoder rejects.
    case = msgspec.convert(decode_json_column(text), Case) if ESCAPE_MARK in text else _decode_case(text)
    return (
        case
        if source_file is None
        else replace(case, source=SourceLocation(unescape_text(source_file), source_line or 0))
    )


def plan_to_plain(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data, for its column and its digest."""
    plain: dict[str, Any] = msgspec.to_builtins(plan)
    return {
        name: value
        for name, value in plain.items()
        if name not in _LATER_PLAN_FIELD_DEFAULTS or value != _LATER_PLAN_FIELD_DEFAULTS[name]
    }


_LATER_PLAN_FIELD_DEFAULTS = {
    "embedder": None, "variants": ("text",), "stt": None, "voice": "espeak", "scorers": (), "pairing": None,
    "other_judges": (), "search": None,
}  # fmt: skip
"""Omitted at these defaults: plans stored before these fields existed keep their digest."""


def plan_from_json(text: str) -> Plan:
    """Decode a stored plan."""
    return msgspec.convert(decode_json_column(text), Plan)


def result_to_row(result: Result) -> tuple[Any, ...]:
    """Return the values of `RESULT_COLUMNS`."""
    key, reply, failure = result.key, result.reply, result.failure
    if reply is None:
        answered: tuple[Any, ...] = _NO_REPLY_COLUMNS
    else:
        usage, raw = reply.usage, reply.raw
        if max(usage.input_tokens or 0, usage.output_tokens or 0, usage.cached_tokens or 0) >= _INTEGER_BOUND:
            raise ValueError("a token count is too large to store")
        answered = (
            reply.text,
            usage.input_tokens,
            usage.output_tokens,
            usage.cached_tokens,
            reply.served_model,
            reply.fingerprint,
            reply.finish_reason,
            reply.first_token_s,
            reply.total_s,
            None if raw is None else _compress(raw),
            _encode_json(reply.dropped) if reply.dropped else None,
            reply.cost_usd,
            reply.cached,
        )
    return escape_row(
        _require_storable_row(
            key.model,
            key.variant,
            key.repeat,
            result.case_id,
            result.outcome.value,
            *answered,
            None if failure is None else failure.code,
            None if failure is None else failure.message,
            result.result_hash,
            result.digest,
            None
            if reply is None or not (reply.answers or reply.call or reply.tool_calls)
            else _encode_conversation(reply),
        )
    )


def _require_storable_row(*row: Any) -> tuple[Any, ...]:
    """Return the row if a database can store it, else raise `TypeError`: one bad row would fail its whole group."""
    if not _PLAIN_TYPES.issuperset(map(type, row)):
        strange = next(value for value in row if type(value) not in _PLAIN_TYPES)
        raise TypeError(f"objects of type {type(strange).__name__} cannot be stored")
    return row


def result_from_row(case_digest: str, row: Sequence[Any], checks: tuple[Check, ...]) -> Result:
    """Return a result from the digest of its case, the values of `RESULT_COLUMNS`, and its checks."""
    model, variant, repeat, case_id, _ = row[:5]
    code, message, result_hash, digest, conversation = row[18:]
    return Result(
        key=ResultKey(case_digest, unescape_text(model), unescape_text(variant), repeat),
        case_id=unescape_text(case_id),
        reply=None if row[5] is None else _reply_from_row(row[5:18], conversation),
        failure=None if code is None else Failure(unescape_text(code), unescape_text(message)),
        checks=checks,
        result_hash=unescape_optional_text(result_hash),
        digest=unescape_optional_text(digest),
    )


def _encode_conversation(reply: Reply) -> str:
    call = reply.call
    said: dict[str, Any] = {"answers": reply.answers}
    if call is not None:
        said["call"] = [call.recording, call.log, list(call.caller)]
    if reply.tool_calls:
        said["tool_calls"] = [astuple(each) for each in reply.tool_calls]
    return _encode_json(said)


def _reply_from_row(row: Sequence[Any], conversation: str | None) -> Reply:
    said: dict[str, Any] = {} if conversation is None else decode_json_column(conversation)
    recording, log, caller = said.get("call", (None, None, ()))
    text, tokens_in, tokens_out, tokens_cached, served, fingerprint, finish, first, total, raw, dropped, cost, hit = row
    return Reply(
        text=unescape_text(text),
        usage=Usage(tokens_in, tokens_out, tokens_cached),
        served_model=unescape_optional_text(served),
        fingerprint=unescape_optional_text(fingerprint),
        finish_reason=unescape_optional_text(finish),
        first_token_s=first,
        total_s=total,
        raw=None if raw is None else _decompress(raw),
        dropped=() if dropped is None else tuple(decode_json_column(dropped)),
        cost_usd=cost,
        cached=bool(hit),
        answers=tuple(said.get("answers", ())),
        call=None if recording is None else RecordedCall(recording, log, tuple(caller)),
        tool_calls=tuple(ToolCall(*each) for each in said.get("tool_calls", ())) if said else (),
    )


def check_to_row(check: Check) -> tuple[Any, ...]:
    """Return the values of `CHECK_COLUMNS`."""
    if type(check.name) is not str or type(check.version) is not str or type(check.reason) is not str:
        raise TypeError("name, version and reason of a check must be text")  # plugins make checks too
    evidence = _encode_evidence(check.evidence) if check.evidence else None
    outcome = check.outcome.value if check.decides else UNDECIDING_OUTCOME
    return escape_row(_require_storable_row(check.name, check.version, outcome, check.reason, check.value, evidence))


def _encode_evidence(evidence: Mapping[str, object]) -> str:
    try:
        return msgspec.json.encode(evidence).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # a lone surrogate, or a number beyond 64 bits
        return _encode_json(dict(evidence))


def check_from_row(row: Sequence[Any]) -> Check:
    """Return the check from the values of `CHECK_COLUMNS`."""
    name, version, outcome, reason, value, evidence = row
    found: Mapping[str, object] = {} if evidence is None else decode_json_column(evidence)
    if outcome == UNDECIDING_OUTCOME:
        return Check(
            unescape_text(name),
            unescape_text(version),
            Outcome.UNSCORED,
            unescape_text(reason),
            value,
            found,
            decides=False,
        )
    return Check(unescape_text(name), unescape_text(version), Outcome(outcome), unescape_text(reason), value, found)


def _compress(raw: bytes) -> bytes:
    if raw.__class__ is not bytes:
        raise TypeError(f"a raw response is the bytes of its JSON, not {type(raw).__name__}")
    if len(raw) <= COMPRESSION_THRESHOLD_BYTES:
        return raw
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
    return stream.compress(raw) + stream.flush()


def _decompress(data: bytes) -> bytes:
    return zlib.decompress(data) if data[0] == _ZLIB_FIRST_BYTE else bytes(data)


# ── The row of a run ──

_Decoded = TypeVar("_Decoded")
RunRef = Run | str
"""A run that was already read, so its row is not read again, or a run's ID."""


def read_run_row(connection: Connection, run_id: str, *, lock: bool = False) -> RowMapping:
    """Return the row of a run; `lock` blocks other writers of the row until the transaction ends."""
    query = select(runs).where(runs.c.id == escape_text(run_id))
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if found is None:
        raise NotFound(f"there is no run {quote_text(run_id)}", hint=Hint("list_runs"))
    return found


def read_run(connection: Connection, run: RunRef) -> Run:
    """Return a run; query it only if an ID is passed."""
    return run if isinstance(run, Run) else run_from_row(read_run_row(connection, run))


def run_from_row(row: RowMapping) -> Run:
    """Return the run of a row; its notes are empty if they were not selected."""
    return Run(
        id=row["id"],
        plan=_read_column(row, "plan", plan_from_json),
        status=row["status"],
        created=row["created"],
        expected=row["expected"],
        stored=row["stored"],
        finished=row["finished"],
        reason=unescape_optional_text(row["reason"]),
        notes=_read_column(row, "notes", decode_json_column) if "notes" in row else {},
        owner=row["owner"],
        creator=unescape_optional_text(row["creator"]),
        limits={} if row["limits"] is None else _read_column(row, "limits", decode_json_column),
        cancelled=row["cancelled"],
        attempts=row["attempts"],
        holder=unescape_optional_text(row["lease_holder"]),
        number=row["run_no"],
        name=unescape_optional_text(row["name"]),
        note=unescape_optional_text(row["note"]),
    )


def _read_column(row: RowMapping, column: str, decode: Callable[[str], _Decoded]) -> _Decoded:
    """Decode a JSON column of a run; it may be damaged by other programs or a failing disk."""
    try:
        return decode(row[column])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, msgspec.ValidationError) as error:
        raise StoreFailed(
            f"the column {column} of run {quote_text(str(row['id']))} cannot be read ({type(error).__name__}): the "
            "store is damaged; restore the store from a backup"
        ) from error
