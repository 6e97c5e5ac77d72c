"""Community results: results in; rows and a chart out, which the same transaction keeps up to date.

The content of a result is its contributor, model, suite hash, prompt, output and parameters. The same content submitted
again is a `duplicate`. On the same day it does not add a row; on another day it does, because a chart must show that a
model still replies the same. A result submitted while its suite was unknown to the server may be submitted again later,
and is then marked as of a known suite by the column `verified`.

A *series* is one model's replies to one prompt of one suite; a *cell* is a series on one day. Each cell stores what its
neighbours need: a late result changes only its own day and the next day with results, so the cost of a chart does not
grow with the number of submissions. Results of known and of unknown suites never share a series.
"""

import hashlib
import json
import os
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from sqlalchemy import Connection, and_, func, select

from pramana import clock
from pramana.errors import InvalidInput, Problem
from pramana.hash import prefix_with_length
from pramana.store.engine import Database, LockKey, StorePart, record_change, timestamp
from pramana.store.records import escape_row, escape_text, unescape_text
from pramana.store.schema import deliveries, submission_days

MAX_RESULTS_PER_BATCH = 1_000
"""Per batch."""
MAX_OUTPUT_BYTES = 1 << 20
"""As UTF-8."""
MAX_METADATA_BYTES = 16 << 10
ANONYMOUS = "anonymous"
MAX_CLOCK_SKEW = timedelta(days=1)
"""Clocks may be wrong, and other time zones are a day ahead; a later timestamp cannot be right."""
MAX_REPORTED_PROBLEMS = 100
_SALT, _IDENTITY = 16, 16
_MAX_CACHED_SERIES = 200_000
_CACHE_SIZE_PRAGMA = "PRAGMA cache_size = -16384"
"""In KiB: digests are scattered over their index, and pages that do not fit into memory are written twice."""

_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_ShortText = Annotated[str, Meta(max_length=256)]
_NonNegative = Annotated[float, Meta(ge=0)]
_Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Status = Literal["accepted", "duplicate"]


class Verdict(Struct, frozen=True):
    """The contributor's own verdict."""

    passed: bool | None = None
    details: dict[str, Any] | None = None


class _SharedFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a result that can also be set once for a whole batch."""

    suite_hash: _ShortText | None = None
    suite_version: _ShortText | None = None
    temperature: _NonNegative | None = None
    seed: _Seed | None = None
    timestamp: datetime | None = None
    runner_version: _ShortText | None = None


class Submission(_SharedFields, frozen=True, forbid_unknown_fields=True):
    """A result as submitted."""

    model_id: _Name
    prompt_id: _Name
    output: Annotated[str, Meta(max_length=MAX_OUTPUT_BYTES)]
    score: Annotated[float, Meta(ge=0, le=1)] | None = None
    metadata: dict[str, Any] | None = None
    assertion_result: Verdict | None = None
    latency_ms: _NonNegative | None = None
    result_hash: _ShortText | None = None


class Batch(_SharedFields, frozen=True, forbid_unknown_fields=True):
    """Results submitted together; shared fields are set once, and each result can override them."""

    results: Annotated[list[Submission], Meta(min_length=1, max_length=MAX_RESULTS_PER_BATCH)]

    def get_suite_hash(self, result: Submission) -> str:
        """Return the hash of a result's suite; empty if none is stated."""
        return (self.suite_hash if result.suite_hash is None else result.suite_hash) or ""


class Receipt(Struct, frozen=True):
    """The status of each result, in order."""

    batch: str
    received: str
    ids: list[str]
    statuses: list[Status]


class DayPoint(Struct, frozen=True):
    """One model on one day."""

    model: str
    day: str
    submissions: int
    duplicates: int
    prompts: int
    outputs: int
    changed: int
    steady: int

    @property
    def consistency(self) -> float:
        """The share of prompts with a single distinct output."""
        return self.steady / self.prompts


class PassCounts(Struct, frozen=True):
    """The numbers of passed and of scored results."""

    passed: int
    scored: int


_COLUMNS = (
    *("series_no", "digest", "day", "received", "stated", "contributor", "batch", "copies", "suite_version"),
    *("temperature", "seed", "output", "output_hash", "salt", "commitment", "score", "passed", "fingerprint"),
    *("runner_version", "result_hash", "latency_ms", "verdict", "metadata"),
)
INSERT_SUBMISSION = f"INSERT INTO submissions ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' for _ in _COLUMNS)})"  # noqa: S608
_ADD_COPIES_STATEMENT = "UPDATE submissions SET copies = copies + ? WHERE digest = ? AND day = ?"
_SERIES_STATEMENT = (
    "INSERT INTO submission_series (verified, model, suite_hash, prompt) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_CELL_STATEMENT = (
    "INSERT INTO submission_cells (day, series_no, outputs, all_outputs, changed) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (day, series_no) DO UPDATE"
    " SET outputs = excluded.outputs, all_outputs = excluded.all_outputs, changed = excluded.changed"
)
_COUNT_COLUMNS = ("submissions", "duplicates", "prompts", "outputs", "steady", "changed", "scored", "passed")
_DAY_STATEMENT = (
    f"INSERT INTO submission_days (verified, model, day, {', '.join(_COUNT_COLUMNS)})"  # noqa: S608
    f" VALUES (?, ?, ?, {', '.join('?' for _ in _COUNT_COLUMNS)}) ON CONFLICT (verified, model, day) DO UPDATE SET "
    + ", ".join(f"{name} = submission_days.{name} + excluded.{name}" for name in _COUNT_COLUMNS)
)
_SUBMISSIONS, _DUPLICATES, _PROMPTS, _OUTPUTS, _STEADY, _CHANGED, _SCORED, _PASSED = range(len(_COUNT_COLUMNS))
_LAST_OUTPUT_QUERY = (
    "SELECT found.series, cell.day, cell.outputs, cell.all_outputs, cell.changed FROM (SELECT series,"
    " (SELECT max(day) FROM submissions WHERE series_no = wanted.series) AS last FROM wanted) found"
    " JOIN submission_cells cell ON cell.day = found.last AND cell.series_no = found.series"
)
_DAY_AND_NEIGHBOUR_DAYS_QUERY = (
    "SELECT found.series, cell.day, cell.outputs, cell.all_outputs, cell.changed FROM ("
    " SELECT series, day AS near FROM wanted UNION"
    " SELECT series, (SELECT max(day) FROM submissions WHERE series_no = wanted.series AND day < wanted.day)"
    " FROM wanted UNION"
    " SELECT series, (SELECT min(day) FROM submissions WHERE series_no = wanted.series AND day > wanted.day)"
    " FROM wanted) found JOIN submission_cells cell ON cell.day = found.near AND cell.series_no = found.series"
)
_OUTPUTS_QUERY = (
    "SELECT wanted.series, wanted.day, wanted.hash FROM wanted WHERE EXISTS (SELECT 1 FROM submissions WHERE"
    " series_no = wanted.series AND submissions.day = wanted.day AND output_hash = wanted.hash)"
)


class _PreparedResult(Struct):
    """A validated result, before duplicates are known."""

    model_and_suite_key: tuple[bool, str, str]
    """Whether the suite is known, model, suite hash."""
    prompt_id: str
    day: str
    digest: bytes
    output_hash: bytes
    other_columns: tuple[Any, ...]
    has_score: bool
    """Whether a score was submitted; a verdict alone is not counted as scored."""
    is_scored_and_passed: bool
    """Whether a score was submitted and the result passed: by its verdict, or without one by its score."""


class _DayOutputs:
    """The outputs of one series on one day."""

    __slots__ = ("all_outputs", "changed", "outputs")

    def __init__(self, outputs: int = 0, all_outputs: int = 0, changed: bool = False) -> None:
        self.outputs, self.all_outputs, self.changed = outputs, all_outputs, changed


_NewOutputHashes = Mapping[tuple[int, str], set[bytes]]
"""Hashes of outputs by series and day."""
_DayCountIncrements = Mapping[tuple[bool, str, str], list[int]]
"""Increments of the counts, by whether the suite is known, model and day."""


class Submissions(StorePart):
    """The community results of a store."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._numbers: dict[tuple[bool, str, str, str], int] = {}
        """Numbers of committed series, which never change."""

    # ── Adding ──

    def add(self, batch: Batch, suite_known: Sequence[bool], contributor: str = ANONYMOUS) -> Receipt:
        """Store the results of a batch, all or none; `suite_known` states for each whether its suite is known here."""
        received, batch_id = timestamp(), f"b{secrets.token_hex(8)}"
        given = _prepare_results(batch, suite_known, contributor, received, batch_id)
        statuses: list[Status] = []
        with self._database.write_transaction() as connection:
            if self._database.is_sqlite:
                connection.exec_driver_sql(_CACHE_SIZE_PRAGMA)
            self._database.lock(connection, LockKey.SUBMISSIONS)
            numbers = self._find_or_create_series(connection, given)
            seen = self._find_earlier_days(connection, given)
            rows: list[tuple[Any, ...]] = []
            again: dict[tuple[bytes, str], int] = defaultdict(int)
            days: dict[tuple[bool, str, str], list[int]] = defaultdict(lambda: [0] * len(_COUNT_COLUMNS))
            new: dict[tuple[int, str], set[bytes]] = defaultdict(set)
            models: dict[int, tuple[bool, str]] = {}
            for each in given:
                when = seen.get(each.digest)
                statuses.append("accepted" if when is None else "duplicate")
                counts = days[each.model_and_suite_key[0], each.model_and_suite_key[1], each.day]
                if when is None:
                    seen[each.digest] = {each.day}
                elif each.day in when:
                    again[each.digest, each.day] += 1
                    counts[_DUPLICATES] += 1
                    continue
                else:
                    when.add(each.day)
                number = numbers[(*each.model_and_suite_key, each.prompt_id)]
                rows.append((number, *each.other_columns))
                counts[_SUBMISSIONS] += 1
                counts[_SCORED] += each.has_score
                counts[_PASSED] += each.is_scored_and_passed
                new[number, each.day].add(each.output_hash)
                models[number] = each.model_and_suite_key[:2]
            touched = self._make_cell_rows(connection, new, models, days)
            for statement, some in ((INSERT_SUBMISSION, rows), (_CELL_STATEMENT, touched)):
                if some:  # executemany: faster than multi-row inserts while the event loop is mostly idle
                    self._database.run(connection, statement, some)
            self._database.run_many(
                connection, _ADD_COPIES_STATEMENT, [(times, *which) for which, times in again.items()]
            )
            changed = [(verified, escape_text(model), day, *counts) for (verified, model, day), counts in days.items()]
            self._database.run_many(connection, _DAY_STATEMENT, changed)
            if rows:
                record_change(connection, "submission", batch_id, "received")
        if len(self._numbers) + len(numbers) > _MAX_CACHED_SERIES:
            self._numbers = {}
        self._numbers.update(numbers)
        return Receipt(
            batch_id,
            received,
            [f"s{each.day.replace('-', '')}-{each.digest[:_IDENTITY].hex()}" for each in given],
            statuses,
        )

    def _find_or_create_series(
        self, connection: Connection, prepared: Sequence[_PreparedResult]
    ) -> dict[tuple[bool, str, str, str], int]:
        """Return the numbers of some results' series; missing series are created."""
        known, found = self._numbers, {}
        missing: dict[tuple[bool, str, str], set[str]] = defaultdict(set)
        for each in prepared:
            series = (*each.model_and_suite_key, each.prompt_id)
            if (number := known.get(series)) is None:
                missing[each.model_and_suite_key].add(each.prompt_id)
            else:
                found[series] = number
        for kind, prompts in missing.items():
            verified, model, suite = kind
            found.update(self._read_series_numbers(connection, kind, prompts))
            made = [each for each in prompts if (*kind, each) not in found]
            rows = [(verified, escape_text(model), escape_text(suite), escape_text(each)) for each in made]
            self._database.run_many(connection, _SERIES_STATEMENT, rows)
            found.update(self._read_series_numbers(connection, kind, made))
        return found

    def _read_series_numbers(
        self, connection: Connection, model_and_suite_key: tuple[bool, str, str], prompt_ids: Iterable[str]
    ) -> dict[tuple[bool, str, str, str], int]:
        verified, model, suite = model_and_suite_key
        head = "SELECT prompt, series_no FROM submission_series WHERE verified = ? AND model = ? AND suite_hash = ?"
        rows = self._query_with_values(
            connection,
            f"{head} AND prompt",
            (verified, escape_text(model), escape_text(suite)),
            map(escape_text, prompt_ids),
        )
        return {(verified, model, suite, unescape_text(prompt)): number for prompt, number in rows}

    def _find_earlier_days(self, connection: Connection, prepared: Sequence[_PreparedResult]) -> dict[bytes, set[str]]:
        """Return the days on which the content of some results was submitted before, by digest."""
        found: dict[bytes, set[str]] = {}
        digests = {each.digest for each in prepared}
        for digest, day in self._query_with_values(
            connection, "SELECT digest, day FROM submissions WHERE digest", (), digests
        ):
            found.setdefault(bytes(digest), set()).add(day)
        return found

    def _make_cell_rows(
        self,
        connection: Connection,
        new_hashes: _NewOutputHashes,
        models_by_series: Mapping[int, tuple[bool, str]],
        increments: _DayCountIncrements,
    ) -> list[tuple[Any, ...]]:
        """Add new outputs to their cells.

        Return the rows of the changed cells, and update the counts in `increments`.
        """
        if len(new_hashes) > len(models_by_series):  # several days of one series
            return self._make_cell_rows_from_all_outputs(connection, new_hashes, models_by_series, increments)
        rows: list[tuple[Any, ...]] = []
        others: dict[tuple[int, str], set[bytes]] = {}
        last = {
            row[0]: row
            for row in self._query_with_rows(connection, _LAST_OUTPUT_QUERY, ("bigint", "text"), list(new_hashes))
        }
        nothing = (0, "", 0, b"", False)
        for cell, hashes in new_hashes.items():
            number, day = cell
            _, newest, _, said, _ = last.get(number, nothing)
            if newest >= day or len(hashes) > 1:
                others[cell] = hashes
                continue
            (output,) = hashes  # the usual case: one output, on a new day
            changed = newest != "" and said != output
            counts = increments[(*models_by_series[number], day)]
            counts[_PROMPTS] += 1
            counts[_OUTPUTS] += 1
            counts[_STEADY] += 1
            counts[_CHANGED] += changed
            rows.append((day, number, 1, output, changed))
        return rows + self._make_cell_rows_from_all_outputs(connection, others, models_by_series, increments)

    def _make_cell_rows_from_all_outputs(
        self,
        connection: Connection,
        new_hashes: _NewOutputHashes,
        models_by_series: Mapping[int, tuple[bool, str]],
        increments: _DayCountIncrements,
    ) -> list[tuple[Any, ...]]:
        """Add outputs by comparing all outputs of the days around: late results, several outputs, several days."""
        series: dict[int, dict[str, _DayOutputs]] = {number: {} for number, _ in new_hashes}
        for number, day, outputs, joined, changed in self._query_with_rows(
            connection, _DAY_AND_NEIGHBOUR_DAYS_QUERY, ("bigint", "text"), list(new_hashes)
        ):
            series[number][day] = _DayOutputs(outputs, int.from_bytes(joined), bool(changed))
        there = [(*cell, each) for cell, hashes in new_hashes.items() if cell[1] in series[cell[0]] for each in hashes]
        said = {
            (number, day, bytes(each))
            for number, day, each in self._query_with_rows(
                connection, _OUTPUTS_QUERY, ("bigint", "text", "bytea"), there
            )
        }
        written: dict[tuple[str, int], _DayOutputs] = {}
        for (number, day), hashes in new_hashes.items():
            cells, counts = series[number], increments[(*models_by_series[number], day)]
            if (cell := cells.get(day)) is None:
                cell = cells[day] = _DayOutputs()
                counts[_PROMPTS] += 1
            was = cell.outputs
            for each in hashes:
                if (number, day, each) not in said:
                    cell.outputs += 1
                    cell.all_outputs ^= int.from_bytes(each)
            if cell.outputs != was:
                counts[_OUTPUTS] += cell.outputs - was
                counts[_STEADY] += (cell.outputs == 1) - (was == 1)
                written[day, number] = cell
        for day, number in list(written):
            cells = series[number]
            ordered = sorted(cells)
            place = ordered.index(day)
            for at in range(place, min(place + 2, len(ordered))):  # this day, and the next, which was compared with it
                cell = cells[ordered[at]]
                changed = at > 0 and cell.all_outputs != cells[ordered[at - 1]].all_outputs
                if changed != cell.changed:
                    increments[(*models_by_series[number], ordered[at])][_CHANGED] += changed - cell.changed
                    cell.changed = changed
                    written[ordered[at], number] = cell
        return [
            (*which, cell.outputs, cell.all_outputs.to_bytes(_IDENTITY), cell.changed)
            for which, cell in written.items()
        ]

    def _query_with_rows(
        self, connection: Connection, query: str, column_types: Sequence[str], rows: Sequence[tuple[Any, ...]]
    ) -> Iterable[Sequence[Any]]:
        """Run a query with a table `wanted` of the given rows: series, day and optionally hash."""
        if not rows:
            return []
        names = ", ".join(("series", "day", "hash")[: len(column_types)])
        if self._database.is_sqlite:
            sql = f"WITH wanted ({names}) AS (VALUES {_format_placeholders(len(rows), len(column_types))}) {query}"
            return connection.exec_driver_sql(sql, tuple(chain.from_iterable(rows))).fetchall()
        arrays = ", ".join(f"%s::{kind}[]" for kind in column_types)
        sql = f"WITH wanted ({names}) AS (SELECT * FROM unnest({arrays})) {query}"  # noqa: S608 - constant names, no user input
        return connection.exec_driver_sql(sql, tuple(map(list, zip(*rows, strict=True)))).fetchall()

    def _query_with_values(
        self, connection: Connection, query: str, first_parameters: tuple[Any, ...], values: Iterable[Any]
    ) -> Iterator[Sequence[Any]]:
        """Run a query that ends with a column's name, for the rows whose column has one of the values."""
        if some := list(values):
            sqlite = self._database.is_sqlite
            among = f"IN {_format_placeholders(1, len(some))}" if sqlite else "= ANY(?)"
            yield from self._database.run(
                connection, f"{query} {among}", (*first_parameters, *(some if sqlite else [some]))
            )

    # ── Reading ──

    def read_chart(
        self, *, of_known_suites: bool, first_day: str, last_day: str, model: str | None = None, max_models: int = 50
    ) -> tuple[list[DayPoint], int]:
        """Return the days of a model, or of those with the most submissions, and the total number of models."""
        table = submission_days.c
        within = and_(table.verified == of_known_suites, table.day >= first_day, table.day <= last_day)
        with self._database.read_transaction() as connection:
            if model is None:
                ranked = select(table.model).where(within).group_by(table.model)
                ranked = ranked.order_by(func.sum(table.submissions).desc(), table.model).limit(max_models)
                chosen = list(connection.scalars(ranked))
                there = len(chosen)
                if there == max_models:
                    count = select(func.count(table.model.distinct())).where(within)
                    there = int(connection.execute(count).scalar_one())
            else:
                chosen = [escape_text(model)]
            columns = [table[name] for name in DayPoint.__struct_fields__]
            query = select(*columns).where(within, table.model.in_(chosen)).order_by(table.model, table.day)
            rows = connection.execute(query).all()
        points = [DayPoint(unescape_text(row[0]), *row[1:]) for row in rows]
        return points, there if model is None else int(bool(points))

    def count_passed(self, model: str, first_day: str) -> PassCounts:
        """Return how many of a model's results of known suites have passed, since a day."""
        table = submission_days.c
        sums = [func.coalesce(func.sum(column), 0) for column in (table.passed, table.scored)]
        mine = and_(table.verified.is_(True), table.model == escape_text(model), table.day >= first_day)
        ((passed, scored),) = self._fetch_rows(select(*sums).where(mine))
        return PassCounts(int(passed), int(scored))

    # ── Deliveries to other servers ──

    def list_delivered_keys(self, url: str) -> set[str]:
        """Return what was delivered to a server: IDs of runs, digests of blocks."""
        return {
            row.subject
            for row in self._fetch_rows(select(deliveries.c.subject).where(deliveries.c.url == escape_text(url)))
        }

    def mark_delivered(self, submission_key: str, url: str) -> None:
        """Record that something was delivered to a server."""
        mark = "INSERT INTO deliveries (subject, url, delivered) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        with self._database.write_transaction() as connection:
            self._database.run_many(connection, mark, [(submission_key, escape_text(url), timestamp())])


@cache
def _format_placeholders(rows: int, columns: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return ", ".join([row] * rows)


def _prepare_results(
    batch: Batch, suite_known: Sequence[bool], contributor: str, received: str, batch_id: str
) -> list[_PreparedResult]:
    """Return results with their digests; raise `InvalidInput` with the index of each invalid one."""
    problems: list[Problem] = []
    salts = os.urandom(_SALT * len(batch.results))
    latest = clock.now() + MAX_CLOCK_SKEW
    begun: dict[tuple[Any, ...], Any] = {}
    times: dict[datetime | None, tuple[str, str | None]] = {None: (received[:10], None)}
    sha256 = hashlib.sha256
    made: list[_PreparedResult] = []
    for index, (each, known) in enumerate(zip(batch.results, suite_known, strict=True)):
        suite = batch.get_suite_hash(each)
        temperature = batch.temperature if each.temperature is None else each.temperature
        seed = batch.seed if each.seed is None else each.seed
        when = batch.timestamp if each.timestamp is None else each.timestamp
        said = each.output.encode("utf-8", "surrogatepass")
        if len(said) > MAX_OUTPUT_BYTES:
            problems.append(_make_problem(index, "output", f"has {len(said):,} bytes; at most {MAX_OUTPUT_BYTES:,}"))
        if when not in times:
            try:
                times[when] = _find_reply_day_and_time(when, latest)
            except (ValueError, OverflowError) as error:
                problems.append(_make_problem(index, "timestamp", str(error)))
                continue
        day, stated = times[when]
        asked = (known, each.model_id, suite, temperature, seed)
        if (digest := begun.get(asked)) is None:
            shared = [repr(known), contributor, each.model_id, suite, repr(temperature), repr(seed)]
            digest = begun[asked] = sha256(b"pramana submission 1" + b"".join(map(prefix_with_length, shared)))
        digest = digest.copy()
        whole = sha256(said).digest()
        digest.update(prefix_with_length(each.prompt_id) + whole)
        identity, content = whole[:_IDENTITY], digest.digest()
        salt = salts[index * _SALT : (index + 1) * _SALT]
        passed, verdict = _decide_passed_and_encode_verdict(each)
        noted = None if each.metadata is None else _to_json(each.metadata)
        for name, kept in (("assertion_result", verdict), ("metadata", noted)):
            if kept is not None and len(kept) > MAX_METADATA_BYTES:
                problems.append(
                    _make_problem(index, name, f"has {len(kept):,} characters; at most {MAX_METADATA_BYTES:,}")
                )
        row = (
            *(content, day, received, stated, contributor, batch_id, 1),
            batch.suite_version if each.suite_version is None else each.suite_version,
            *(temperature, seed, each.output, identity, salt, sha256(salt + whole).digest(), each.score, passed),
            None if each.metadata is None else _find_system_fingerprint(each.metadata),
            batch.runner_version if each.runner_version is None else each.runner_version,
            *(each.result_hash, each.latency_ms, verdict, noted),
        )
        has_score = each.score is not None
        made.append(
            _PreparedResult(
                (known, each.model_id, suite),
                each.prompt_id,
                day,
                content,
                identity,
                row,
                has_score,
                has_score and bool(passed),
            )
        )
    if problems:
        raise InvalidInput.from_problems(problems[:MAX_REPORTED_PROBLEMS], len(problems))
    everything = "".join([value for each in made for value in each.other_columns if value.__class__ is str])
    if not everything.isascii() or "\0" in everything:
        for one in made:
            one.other_columns = escape_row(one.other_columns)
    return made


def _make_problem(index: int, name: str, message: str) -> Problem:
    return Problem(message, f"results[{index}].{name}")


def _find_reply_day_and_time(replied_at: datetime | None, latest_allowed: datetime) -> tuple[str, str | None]:
    """Return the day of a reply and its time as ISO 8601; a time without a zone is UTC."""
    if replied_at is None:
        raise ValueError("is missing")
    replied_at = replied_at.replace(tzinfo=UTC) if replied_at.tzinfo is None else replied_at.astimezone(UTC)
    if replied_at > latest_allowed:
        raise ValueError(f"is {replied_at.isoformat()}, which is in the future; check the clock")
    return replied_at.date().isoformat(), replied_at.isoformat()


def _decide_passed_and_encode_verdict(submission: Submission) -> tuple[bool | None, str | None]:
    """Return whether a result has passed, and its verdict in JSON; without a verdict, a score of 0.5 or more passes."""
    verdict = submission.assertion_result
    if verdict is None or verdict.passed is None:
        passed = None if submission.score is None else submission.score >= 0.5
    else:
        passed = verdict.passed
    return passed, None if verdict is None else _to_json(verdict)


def _find_system_fingerprint(metadata: Mapping[str, Any]) -> str | None:
    found = metadata.get("fingerprint", metadata.get("system_fingerprint"))
    return found[:256] if isinstance(found, str) else None


def _to_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, ValueError):  # a lone surrogate
        return json.dumps(msgspec.to_builtins(value))
