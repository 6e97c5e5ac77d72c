"""The model's nouns to columns and back: plain functions, one pair a noun, no pickle and no reflection.

Whatever text enters, in a column of its own or inside JSON, passes one rule, so that both engines can hold it and
nothing is lost or guessed. PostgreSQL refuses NUL, and neither engine has UTF-8 for half of a surrogate pair; models
emit both. NUL, each surrogate, and U+FDD0 itself (a noncharacter, which Unicode reserves for a program's own use) are
written as U+FDD0 and the character's four hexadecimal digits; any other text is stored as it is.

A result becomes a tuple in the order of `RESULT_COLUMNS`, because a run writes many; a raw response over a kilobyte is
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
    Call,
    Case,
    Check,
    Failure,
    Key,
    Outcome,
    Plan,
    Reply,
    Result,
    Run,
    Source,
    ToolCall,
    Usage,
)
from pramana.store.schema import runs

ESCAPE_MARK = "\ufdd0"
_cannot_stand = re.compile("[\0\ud800-\udfff\ufdd0]")
_written = re.compile("\ufdd0([0-9a-f]{4})")


def escape_text(text: str) -> str:
    """Return text as a column holds it.

    >>> escape_text("a\\0b") == "a\\ufdd00000b"
    True
    """
    if text.isascii() and "\0" not in text:
        return text
    return _cannot_stand.sub(lambda found: f"{ESCAPE_MARK}{ord(found[0]):04x}", text)


def escape_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with `escape_text` done to every text in it; nearly all need nothing, and one look tells so.

    >>> escape_row(("a\\0", 1, None)) == ("a\\ufdd00000", 1, None)
    True
    """
    everything = "".join([value for value in row if value.__class__ is str])
    if everything.isascii() and "\0" not in everything:
        return row
    return tuple([escape_text(value) if isinstance(value, str) else value for value in row])


def unescape_text(text: str) -> str:
    """Return what `escape_text` was given.

    >>> unescape_text(escape_text("half \\ud83d and \\0")) == "half \\ud83d and \\0"
    True
    """
    return _written.sub(lambda found: chr(int(found[1], 16)), text) if ESCAPE_MARK in text else text


def escape_optional_text(text: str | None) -> str | None:
    """Return `escape_text` of a text that may be absent."""
    return None if text is None else escape_text(text)


def unescape_optional_text(text: str | None) -> str | None:
    """Return `unescape_text` of a text that may be absent."""
    return None if text is None else unescape_text(text)


# ── Nouns to columns ──

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
"""What a result row holds besides its run and its case."""

CHECK_COLUMNS = ("name", "version", "outcome", "reason", "value", "evidence")
"""What a check row holds besides its result, its scoring and its position."""
MEASURED_OUTCOME = "measured"
"""The outcome in the row of a check that does not decide."""

COMPRESS_OVER = 4096
_LEVEL, _WINDOW, _MEMORY = 1, 13, 6
"""An eighth of zlib's usual tables: to clear those costs 50 µs a response, eight times what small ones need."""
_ZLIB_FIRST_BYTE = 0x58
_NO_REPLY = (None,) * 13
_PLAIN_TYPES = frozenset({str, int, float, bool, bytes, type(None)})
_MAX_INTEGER = 1 << 63

_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
"""Not ASCII: two halves of a pair that stand side by side but apart must not be read back as one character."""


def to_json(value: Any) -> str:
    """Return plain data as the text of a JSON column."""
    return escape_text(_encode(value))


def from_json(text: str) -> Any:
    """Return the plain data of a JSON column."""
    return json.loads(unescape_text(text))


def case_to_json(case: Case) -> str:
    """Return a case as JSON: what differs from the defaults, without where it was read."""
    plain = msgspec.to_builtins(case)
    return to_json({name: value for name, value in plain.items() if name != "source" and value != _CASE_DEFAULTS[name]})


_CASE_DEFAULTS = {each.name: each.default for each in msgspec.structs.fields(Case)}
_decode_case = msgspec.json.Decoder(Case).decode


def case_from_json(text: str, source_file: str | None = None, source_line: int | None = None) -> Case:
    """Return the case that `case_to_json` was given."""
    # A mark stands for what no JSON can say, and so no decoder of it can read.
    case = msgspec.convert(from_json(text), Case) if ESCAPE_MARK in text else _decode_case(text)
    return case if source_file is None else replace(case, source=Source(unescape_text(source_file), source_line or 0))


def plan_to_plain(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data, for its column and its digest."""
    plain: dict[str, Any] = msgspec.to_builtins(plan)
    return {
        name: value
        for name, value in plain.items()
        if name not in _ADDED_PLAN_FIELDS or value != _ADDED_PLAN_FIELDS[name]
    }


_ADDED_PLAN_FIELDS = {"embedder": None, "variants": ("text",), "stt": None, "voice": "espeak", "scorers": ()}
"""Only where they are stated: plans that were stored before there were any keep their digest."""


def plan_from_json(text: str) -> Plan:
    """Return the plan whose plain data was stored."""
    return msgspec.convert(from_json(text), Plan)


def result_to_row(result: Result) -> tuple[Any, ...]:
    """Return the values of `RESULT_COLUMNS`."""
    key, reply, failure = result.key, result.reply, result.failure
    if reply is None:
        answered: tuple[Any, ...] = _NO_REPLY
    else:
        usage, raw = reply.usage, reply.raw
        if max(usage.input_tokens or 0, usage.output_tokens or 0, usage.cached_tokens or 0) >= _MAX_INTEGER:
            raise ValueError("a number of tokens is too large for a column")
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
            _encode(reply.dropped) if reply.dropped else None,
            reply.cost_usd,
            reply.cached,
        )
    return escape_row(
        _check_row(
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
            else _conversation_json(reply),
        )
    )


def _check_row(*row: Any) -> tuple[Any, ...]:
    """Return the row, once it is sure that a database can hold it: one that cannot would take a whole group along."""
    if not _PLAIN_TYPES.issuperset(map(type, row)):
        strange = next(value for value in row if type(value) not in _PLAIN_TYPES)
        raise TypeError(f"{type(strange).__name__} has no column")
    return row


def result_from_row(case: str, row: Sequence[Any], checks: tuple[Check, ...]) -> Result:
    """Return the result of a case digest, the values of `RESULT_COLUMNS`, and its checks."""
    model, variant, repeat, case_id, _ = row[:5]
    code, message, result_hash, digest, conversation = row[18:]
    return Result(
        key=Key(case, unescape_text(model), unescape_text(variant), repeat),
        case_id=unescape_text(case_id),
        reply=None if row[5] is None else _reply_from_row(row[5:18], conversation),
        failure=None if code is None else Failure(unescape_text(code), unescape_text(message)),
        checks=checks,
        result_hash=unescape_optional_text(result_hash),
        digest=unescape_optional_text(digest),
    )


def _conversation_json(reply: Reply) -> str:
    call = reply.call
    said: dict[str, Any] = {"answers": reply.answers}
    if call is not None:
        said["call"] = [call.recording, call.log, list(call.caller)]
    if reply.tool_calls:
        said["tool_calls"] = [astuple(each) for each in reply.tool_calls]
    return _encode(said)


def _reply_from_row(row: Sequence[Any], conversation: str | None) -> Reply:
    said: dict[str, Any] = {} if conversation is None else from_json(conversation)
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
        dropped=() if dropped is None else tuple(from_json(dropped)),
        cost_usd=cost,
        cached=bool(hit),
        answers=tuple(said.get("answers", ())),
        call=None if recording is None else Call(recording, log, tuple(caller)),
        tool_calls=tuple(ToolCall(*each) for each in said.get("tool_calls", ())) if said else (),
    )


def check_to_row(check: Check) -> tuple[Any, ...]:
    """Return the values of `CHECK_COLUMNS`."""
    if type(check.name) is not str or type(check.version) is not str or type(check.reason) is not str:
        raise TypeError("name, version and reason of a check are text")  # a stranger's assertion type makes checks too
    evidence = _evidence_json(check.evidence) if check.evidence else None
    outcome = check.outcome.value if check.decides else MEASURED_OUTCOME
    return escape_row(_check_row(check.name, check.version, outcome, check.reason, check.value, evidence))


def _evidence_json(evidence: Mapping[str, object]) -> str:
    try:
        return msgspec.json.encode(evidence).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # half of a pair, a number beyond 64 bits
        return _encode(dict(evidence))


def check_from_row(row: Sequence[Any]) -> Check:
    """Return the check of the values of `CHECK_COLUMNS`."""
    name, version, outcome, reason, value, evidence = row
    found: Mapping[str, object] = {} if evidence is None else from_json(evidence)
    if outcome == MEASURED_OUTCOME:
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
    if len(raw) <= COMPRESS_OVER:
        return raw
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
    return stream.compress(raw) + stream.flush()


def _decompress(data: bytes) -> bytes:
    return zlib.decompress(data) if data[0] == _ZLIB_FIRST_BYTE else bytes(data)


# ── The row of a run ──

_Column = TypeVar("_Column")
RunRef = Run | str
"""A run that was read, whose row need not be read again, or the id of one."""


def read_row(connection: Connection, run_id: str, *, lock: bool = False) -> RowMapping:
    """Return the row of a run; locked, nobody else changes it in the meantime."""
    query = select(runs).where(runs.c.id == escape_text(run_id))
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if found is None:
        raise NotFound(f"there is no run {quote_text(run_id)}", hint=Hint("list_runs"))
    return found


def read_run(connection: Connection, run: RunRef) -> Run:
    """Return a run; it is read only where an id is given."""
    return run if isinstance(run, Run) else run_from_row(read_row(connection, run))


def run_from_row(row: RowMapping) -> Run:
    """Return the run of a row; without its notes where they were not read."""
    return Run(
        id=row["id"],
        plan=_read_column(row, "plan", plan_from_json),
        status=row["status"],
        created=row["created"],
        expected=row["expected"],
        stored=row["stored"],
        finished=row["finished"],
        reason=unescape_optional_text(row["reason"]),
        notes=_read_column(row, "notes", from_json) if "notes" in row else {},
        owner=row["owner"],
        creator=unescape_optional_text(row["creator"]),
        limits={} if row["limits"] is None else _read_column(row, "limits", from_json),
        cancelled=row["cancelled"],
        attempts=row["attempts"],
        holder=unescape_optional_text(row["lease_holder"]),
        number=row["run_no"],
        name=unescape_optional_text(row["name"]),
        note=unescape_optional_text(row["note"]),
    )


def _read_column(row: RowMapping, column: str, read: Callable[[str], _Column]) -> _Column:
    """Read what is JSON in a run's row; others can write to the database too, and disks fail."""
    try:
        return read(row[column])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, msgspec.ValidationError) as error:
        raise StoreFailed(
            f"the column {column} of run {quote_text(str(row['id']))} is not as Pramana writes it "
            f"({type(error).__name__}): the store is damaged; restore the store from a backup"
        ) from error
