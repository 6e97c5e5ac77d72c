"""Results of runs: streams of all, pages, counts, and the results after a sequence number.

A page excludes raw responses and cuts long replies; its rows are found first, by the run's index. Only `ResultWriter`
writes results, at most 200 ms after they were queued, in groups of at most 1,000, one transaction per group; a result
is reported only after its commit. `put` waits while 1,500 are queued. A second result with the same key is ignored and
never reported. Once another process holds the run, nothing more is stored. Errors are raised by the next `put` and on
exit; a result that is not plain data is skipped alone, and the error is raised on exit. No error is swallowed, nothing
is retried.

Rows are built on the event loop, which has just handled the result. In the writer's thread, which waits for the GIL at
each step, building them takes four times as long, so the thread only executes the statements.
"""

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, Self

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, case, func, null, select, update

from pramana.errors import AlreadyRunning, NotFound, StoreFailed, quote_text
from pramana.model import OUTCOMES_BY_SEVERITY, Case, Outcome, Result, ResultKey, Run, Spent
from pramana.store.engine import CHUNK_ROWS, Database, StorePart, split_into_chunks
from pramana.store.queue import format_holder
from pramana.store.records import (
    RESULT_COLUMNS,
    RunRef,
    case_from_json,
    check_to_row,
    escape_optional_text,
    escape_text,
    read_run,
    result_from_row,
    result_to_row,
    unescape_optional_text,
    unescape_text,
)
from pramana.store.schema import cases, results, run_cases, runs
from pramana.store.scoring import (
    INSERT_CHECKS,
    count_outcomes,
    find_rescored_seqs,
    list_scorings_replaced_by,
    make_outcome_query,
    read_effective_scoring_labels,
    read_newest_checks,
    sum_check_spending,
)

REPLY_EXCERPT_LENGTH = 400
"""Characters of a reply that lists show."""
_INCOMPLETE_ESCAPE_RE = re.compile("\ufdd0[0-9a-f]{0,3}$")
_OUTPUT_COLUMN_INDEX = RESULT_COLUMNS.index("output")
NumberedResult = tuple[int, Result]
"""A sequence number and its result."""


class RescoredResult(NamedTuple):
    """A result before and after a rescoring."""

    before: Result
    after: Result
    undecided_attempt: Result | None
    """With the new checks, if they gave no verdict and the earlier ones were kept."""


class Results(StorePart):
    """The results of runs, with their checks."""

    # ── Streams ──

    def iterate(
        self,
        run: RunRef,
        after_seq: int = 0,
        scoring: int | None = None,
        *,
        with_raw: bool = True,
        model: str | None = None,
    ) -> Iterator[NumberedResult]:
        """Yield the results after a sequence number, each with its newest checks, or those as of a scoring.

        `with_raw=False` leaves out the raw responses, which summaries do not need. `model` selects one model, as it was
        typed.
        """
        with self._database.read_transaction() as connection:
            found = read_run(connection, run)
            among = read_effective_scoring_labels(
                connection, found.number, found.scoring if scoring is None else scoring
            )
        run_no = found.number
        while True:
            mine = [results.c.run_no == run_no, results.c.seq > after_seq]
            mine += [results.c.model == escape_text(model)] if model is not None else []
            with self._database.read_transaction() as connection:
                some = _read_results(connection, mine, among, with_raw=with_raw, limit=CHUNK_ROWS)
            if not some:
                return
            yield from some
            after_seq = some[-1][0]

    def iterate_with_cases(self, run: RunRef, scoring: int | None = None) -> Iterator[tuple[Case, Result]]:
        """Yield each case with its result, in the run's order of cases, then by model, variant and repeat."""
        for _, asked, result in self._attach_cases(self._iterate_ordered(run, scoring)):
            yield asked, result

    def _iterate_ordered(self, run: RunRef, scoring: int | None) -> Iterator[NumberedResult]:
        with self._database.read_transaction() as connection:
            found = read_run(connection, run)
            among = read_effective_scoring_labels(
                connection, found.number, found.scoring if scoring is None else scoring
            )
        for some in split_into_chunks(self._iterate_ordered_seqs(found)):
            with self._database.read_transaction() as connection:
                read = dict(_read_results(connection, [results.c.seq.in_(some)], among, with_raw=True))
            yield from ((seq, read[seq]) for seq in some if seq in read)

    def _iterate_ordered_seqs(self, run: Run) -> Iterator[int]:
        """Yield the sequence numbers of a run in the order of its cases, reading about one chunk at a time."""
        plan = run.plan
        models = {escape_text(target.typed): place for place, target in enumerate(plan.targets)}
        variants = {escape_text(variant): place for place, variant in enumerate(plan.variants)}
        size = max(1, CHUNK_ROWS // max(1, len(models) * len(variants) * plan.repeats))
        columns = (run_cases.c.position, results.c.model, results.c.variant, results.c.repeat, results.c.seq)
        same = and_(results.c.run_no == run_cases.c.run_no, results.c.case_no == run_cases.c.case_no)
        query = select(*columns).join_from(run_cases, results, same).where(run_cases.c.run_no == run.number)
        last = self._fetch_value(select(func.max(run_cases.c.position)).where(run_cases.c.run_no == run.number))
        for first in range(0, -1 if last is None else last + 1, size):
            rows = self._fetch_rows(query.where(run_cases.c.position.between(first, first + size - 1)))
            for row in sorted(rows, key=lambda row: (row[0], models[row[1]], variants[row[2]], row[3])):
                yield row.seq

    def iterate_numbered_with_cases(
        self, run: RunRef, after_seq: int = 0, *, with_raw: bool = False
    ) -> Iterator[tuple[int, Case, Result]]:
        """Yield number, case and result for each result after a sequence number; `with_raw` adds the raw response."""
        return self._attach_cases(self.iterate(run, after_seq, with_raw=with_raw))

    def _attach_cases(self, numbered: Iterable[NumberedResult]) -> Iterator[tuple[int, Case, Result]]:
        for some in split_into_chunks(numbered):
            digests = {result.key.case for _, result in some}
            with self._database.read_transaction() as connection:
                rows = connection.execute(select(cases.c.digest, cases.c.body).where(cases.c.digest.in_(digests)))
                known = {digest: case_from_json(body, None, None) for digest, body in rows}
            for seq, result in some:
                yield seq, known[result.key.case], result

    def make_writer(
        self, run: RunRef, on_stored: Callable[[list[NumberedResult]], None], holder: str | None = None
    ) -> "ResultWriter":
        """Return a writer of a run's results, as a context manager; it stores results while `holder` holds the run.

        Without an owner, it stores them while no process holds the run.
        """
        with self._database.read_transaction() as connection:
            return ResultWriter(self._database, read_run(connection, run).number, on_stored, holder)

    # ── Counts ──

    def count_outcomes(self, run: RunRef, scoring: int | None = None) -> Mapping[Outcome, int]:
        """Count a run's results by outcome, by their newest checks or those as of a scoring."""
        with self._database.read_transaction() as connection:
            found = read_run(connection, run)
            among = read_effective_scoring_labels(
                connection, found.number, found.scoring if scoring is None else scoring
            )
            rows = count_outcomes(connection, found.number, among)
            return dict.fromkeys(Outcome, 0) | {outcome: number for outcome, number, _ in rows}

    # ── Rescoring and spending ──

    def iterate_rescored(self, run: Run, scoring: int) -> Iterator["RescoredResult"]:
        """Yield each result that a scoring rescored, before and after it, in the order of cases."""
        with self._database.read_transaction() as connection:
            earlier = list_scorings_replaced_by(connection, run.number, scoring)
        for some in split_into_chunks(self._iterate_ordered_seqs(run)):
            with self._database.read_transaction() as connection:
                new, failed = (find_rescored_seqs(connection, some, each) for each in (scoring, -scoring))
                mine = [results.c.seq.in_(new | failed)]
                before, after = (
                    dict(_read_results(connection, mine, among)) for among in (earlier, [*earlier, scoring])
                )
                attempts = dict(_read_results(connection, mine, [-scoring]))
            for seq in some:
                if seq in before:
                    yield RescoredResult(before[seq], after[seq], attempts[seq] if seq in failed else None)

    def sum_spending(self, run: RunRef) -> Spent:
        """Return what a run's replies have cost, including the checks that came with them."""
        unknown_tokens = and_(results.c.input_tokens.is_(None), results.c.output_tokens.is_(None))
        tokens = func.coalesce(results.c.input_tokens, 0) + func.coalesce(results.c.output_tokens, 0)
        sums = (
            func.coalesce(func.sum(results.c.cost_usd), 0.0),
            func.coalesce(func.sum(tokens), 0),
            func.coalesce(func.sum(case((results.c.cost_usd.is_(None), 1), else_=0)), 0),
            func.coalesce(func.sum(case((unknown_tokens, 1), else_=0)), 0),
        )
        with self._database.read_transaction() as connection:
            run_no = read_run(connection, run).number
            replies = select(*sums).where(
                results.c.run_no == run_no, results.c.output.is_not(None), results.c.cached.is_(False)
            )
            cost, used, unpriced, uncounted = connection.execute(replies).one()
            judged = sum_check_spending(connection, run_no)
        return Spent(
            float(cost) + judged.cost_usd,
            int(used) + judged.tokens,
            bool(unpriced) or judged.unknown_cost,
            bool(uncounted) or judged.unknown_tokens,
        )

    # ── Pages ──

    def read_page(
        self,
        run: RunRef,
        *,
        outcome: Outcome | None = None,
        model: str | None = None,
        case: str | None = None,
        text: str | None = None,
        tag: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> tuple[list[NumberedResult], int]:
        """Return a page of a run's results in storage order, with shortened replies, and the total.

        `case` is an ID or a digest; `text` is a part of an ID, ignoring case.
        """
        with self._database.read_transaction() as connection:
            found = read_run(connection, run)
            among = read_effective_scoring_labels(connection, found.number, found.scoring)
            models = {target.typed for target in found.plan.targets}
            if model is not None and model not in models:
                return [], 0
            model = None if models == {model} else model  # the only model: the index alone will do
            wanted = _make_selected_seqs_query(found.number, list(among), outcome, model, case, text).order_by(
                results.c.seq
            )
            judged_again = outcome is not None and list(among) != [0]
            if tag is not None or text is not None or case is not None or judged_again:
                # No index has these filters, so one query both counts and finds.
                every = _filter_by_tag(connection, wanted, found.number, tag)
                total, seqs = len(every), every[offset : offset + limit]
            else:
                total = found.stored
                if outcome is not None or model is not None:
                    total = int(connection.execute(select(func.count()).select_from(wanted.subquery())).scalar_one())
                seqs = connection.scalars(wanted.limit(limit).offset(offset)).all()
            return _read_results(connection, [results.c.seq.in_(seqs)], among, shorten_replies=True), total

    def read(self, run: RunRef, seq: int) -> tuple[Case, Result]:
        """Return a case and its complete result."""
        with self._database.read_transaction() as connection:
            found = read_run(connection, run)
            mine = (results.c.seq == seq, results.c.run_no == found.number)
            body = select(cases.c.body).join_from(results, cases, cases.c.case_no == results.c.case_no).where(*mine)
            asked = connection.execute(body).scalar_one_or_none()
            if asked is None:
                raise NotFound(f"run {quote_text(found.id)} has no result {seq}")
            ((_, result),) = _read_results(
                connection, mine, read_effective_scoring_labels(connection, found.number, found.scoring), with_raw=True
            )
        return case_from_json(asked), result

    def find_neighbours(
        self,
        run: RunRef,
        seq: int,
        outcome: Outcome | None = None,
        *,
        model: str | None = None,
        case: str | None = None,
        text: str | None = None,
        tag: str | None = None,
    ) -> tuple[int | None, int | None]:
        """Return the results before and after one in the order of `read_page` with these filters.

        None at either end.
        """
        with self._database.read_transaction() as connection:
            found = read_run(connection, run)
            run_no, among = found.number, list(read_effective_scoring_labels(connection, found.number, found.scoring))
            if tag is not None:
                wanted = _make_selected_seqs_query(run_no, among, outcome, model, case, text).order_by(results.c.seq)
                every = _filter_by_tag(connection, wanted, run_no, tag)
                first, last = bisect_left(every, seq), bisect_right(every, seq)
                return every[first - 1] if first else None, every[last] if last < len(every) else None
            if outcome is not None and among != [0] and model is case is text is None:
                query: Select[Any] = make_outcome_query(run_no, among)
                query = query.having(query.selected_columns.level == OUTCOMES_BY_SEVERITY.index(outcome))
            else:
                query = _make_selected_seqs_query(run_no, among, outcome, model, case, text)
            before = query.where(results.c.seq < seq).order_by(results.c.seq.desc()).limit(1)
            after = query.where(results.c.seq > seq).order_by(results.c.seq).limit(1)
            return connection.execute(before).scalar(), connection.execute(after).scalar()

    # ── New results ──

    def find_last_seq(self, run_no: int) -> int:
        """Return the sequence number of a run's newest result; 0 if there is none."""
        newest = select(func.coalesce(func.max(results.c.seq), 0)).where(results.c.run_no == run_no)
        return int(self._fetch_value(newest))

    def list_after(self, run_no: int, after_seq: int, limit: int = 500) -> list[NumberedResult]:
        """Return the results of a run after a sequence number, with shortened replies."""
        mine = (results.c.run_no == run_no, results.c.seq > after_seq)
        with self._database.read_transaction() as connection:
            return _read_results(connection, mine, [0], shorten_replies=True, limit=limit)


def _filter_by_tag(connection: Connection, seqs_query: Select[Any], run_no: int, tag: str | None) -> Sequence[int]:
    """Return the sequence numbers of a query, in its order; with a tag, only those of cases that have it."""
    if tag is None:
        return connection.scalars(seqs_query).all()
    bodies = select(cases.c.case_no, cases.c.body).join(run_cases, run_cases.c.case_no == cases.c.case_no)
    of_run = connection.execute(bodies.where(run_cases.c.run_no == run_no))
    having = {case_no for case_no, body in of_run if tag in case_from_json(body).facets.tags}
    return [seq for seq, case_no in connection.execute(seqs_query.add_columns(results.c.case_no)) if case_no in having]


def _make_selected_seqs_query(
    run_no: int,
    scoring_numbers: Sequence[int],
    outcome: Outcome | None,
    model: str | None,
    case: str | None,
    text: str | None = None,
) -> Select[Any]:
    """Return the query of the selected sequence numbers; without a filter on text, an index alone answers it."""
    query = select(results.c.seq).where(results.c.run_no == run_no)
    if outcome is not None and scoring_numbers == [0]:
        query = query.where(results.c.outcome == outcome.value)
    elif outcome is not None:
        judged = make_outcome_query(run_no, scoring_numbers).subquery()
        query = query.join(judged, judged.c.seq == results.c.seq).where(
            judged.c.level == OUTCOMES_BY_SEVERITY.index(outcome)
        )
    if model is not None:
        query = query.where(results.c.model == escape_text(model))
    if case is not None and case.startswith("sha256:"):
        query = query.where(
            results.c.case_no == select(cases.c.case_no).where(cases.c.digest == escape_text(case)).scalar_subquery()
        )
    elif case is not None:
        query = query.where(results.c.case_id == escape_text(case))
    if text is not None:
        query = query.where(results.c.case_id.icontains(escape_text(text), autoescape=True))
    return query


def _read_results(
    connection: Connection,
    conditions: Iterable[ColumnElement[bool]],
    scoring_numbers: Iterable[int],
    *,
    with_raw: bool = False,
    shorten_replies: bool = False,
    limit: int | None = None,
) -> list[NumberedResult]:
    """Return results with their newest checks; `shorten_replies` shortens the reply."""
    instead: dict[str, Any] = {} if with_raw else {"raw": null()}
    if shorten_replies:
        instead["output"] = func.substr(results.c.output, 1, REPLY_EXCERPT_LENGTH)
    columns = [instead.get(name, results.c[name]) for name in RESULT_COLUMNS]
    query = select(results.c.seq, cases.c.digest, *columns)
    query = query.join_from(results, cases, cases.c.case_no == results.c.case_no).where(*conditions)
    rows = connection.execute(query.order_by(results.c.seq).limit(limit)).all()
    judged = read_newest_checks(connection, [row[0] for row in rows], scoring_numbers) if rows else {}
    found = []
    for seq, digest, *values in rows:
        if shorten_replies and values[_OUTPUT_COLUMN_INDEX] is not None:
            values[_OUTPUT_COLUMN_INDEX] = _INCOMPLETE_ESCAPE_RE.sub("", values[_OUTPUT_COLUMN_INDEX])
        found.append((seq, result_from_row(digest, values, tuple(judged.get(seq, ())))))
    return found


# ── The writer ──

MAX_QUEUED_RESULTS = 1_500
MAX_RESULTS_PER_COMMIT = 1_000
COMMIT_WAIT_S = 0.1
"""Seconds that the first result of a group waits for others: half of the promised 200 ms; the commit gets the rest."""

_INSERT_RESULTS = (
    f"INSERT INTO results (run_no, case_no, {', '.join(RESULT_COLUMNS)})"  # noqa: S608 - constant names, no user input
    f" VALUES (?, (SELECT case_no FROM cases WHERE digest = ?), {', '.join('?' for _ in RESULT_COLUMNS)})"
    " ON CONFLICT DO NOTHING"
)

_RUN_PARAMETER = bindparam("run", type_=results.c.run_no.type)
_HOLDER_QUERY = select(runs.c.id, runs.c.lease_holder).where(runs.c.run_no == _RUN_PARAMETER).with_for_update()
"""Locks the run's row as well; SQLite locks the whole file."""
_LAST_SEQ_QUERY = select(func.coalesce(func.max(results.c.seq), 0)).where(results.c.run_no == _RUN_PARAMETER)
_AFTER_SEQ_CONDITION = and_(results.c.run_no == _RUN_PARAMETER, results.c.seq > bindparam("before"))
_NEW_RANGE_QUERY = select(func.count(), func.min(results.c.seq), func.max(results.c.seq)).where(_AFTER_SEQ_CONDITION)
_NEW_SEQS_QUERY = select(results.c.seq).where(_AFTER_SEQ_CONDITION).order_by(results.c.seq)
_NEW_KEYS_QUERY = (
    select(cases.c.digest, results.c.model, results.c.variant, results.c.repeat)
    .join_from(results, cases, cases.c.case_no == results.c.case_no)
    .where(_AFTER_SEQ_CONDITION)
    .order_by(results.c.seq)
)
_ADD_TO_STORED_COUNT = (
    update(runs).where(runs.c.run_no == _RUN_PARAMETER).values(stored=runs.c.stored + bindparam("more"))
)

_PreparedResult = tuple[Result, tuple[Any, ...], list[tuple[Any, ...]]]
"""A result, its row and the rows of its checks."""


class ResultWriter:
    """Stores the results of one run; leaving its context stores what is still queued."""

    def __init__(
        self,
        database: Database,
        run_no: int,
        on_stored: Callable[[list[NumberedResult]], None],
        owner: str | None = None,
    ) -> None:
        self._database, self._run_no, self._on_stored = database, run_no, on_stored
        self._owner = escape_optional_text(owner)
        self._queue: list[_PreparedResult] = []
        self._error: Exception | None = None
        self._defect: StoreFailed | None = None
        self._closing = False
        self._has_work, self._is_full_group, self._has_room = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "pramana-store")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run_writer())
        return self

    async def put(self, results: Sequence[Result]) -> None:
        """Queue results; wait only while the queue is full."""
        queue = self._queue
        while len(queue) >= MAX_QUEUED_RESULTS and self._error is None:
            self._has_room.clear()
            await self._has_room.wait()
        if self._error is not None:
            raise self._error
        for result in results:
            try:
                row = (self._run_no, result.key.case, *result_to_row(result))
                queue.append((result, row, [check_to_row(check) for check in result.checks]))
            except (TypeError, ValueError, RecursionError) as found:
                named = f"the result of case {result.key.case} with {result.key.model}"
                told = f"{named} is not plain data and was not stored: {found}"
                self._defect = self._defect or StoreFailed(told)
        if queue:
            self._has_work.set()
        if len(queue) >= MAX_RESULTS_PER_COMMIT:
            self._is_full_group.set()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._has_work.set()
        self._is_full_group.set()
        cancelled: asyncio.CancelledError | None = None
        while self._task and not self._task.done():
            try:
                await asyncio.wait({self._task})
            except asyncio.CancelledError as again:  # queued results are stored first, however many cancellations come
                cancelled = again
        self._thread.shutdown()
        if self._error is not None and self._error is not error:
            raise self._error
        if cancelled:
            raise cancelled
        if self._defect and error is None:
            raise self._defect

    async def _run_writer(self) -> None:
        loop = asyncio.get_running_loop()
        queue, oldest = self._queue, 0.0
        try:
            while self._error is None:
                if not queue:
                    await self._has_work.wait()
                    if not queue:
                        return
                    oldest = loop.time()
                if len(queue) < MAX_RESULTS_PER_COMMIT and not self._closing:
                    self._is_full_group.clear()
                    alarm = loop.call_at(oldest + COMMIT_WAIT_S, self._is_full_group.set)
                    await self._is_full_group.wait()
                    alarm.cancel()
                oldest = loop.time()  # of results that are left or arrive during this commit
                group = queue[:MAX_RESULTS_PER_COMMIT]
                stored = await loop.run_in_executor(self._thread, self._commit, group)
                del queue[: len(group)]  # only after the commit: until then they count as queued
                if not queue and not self._closing:
                    self._has_work.clear()
                self._has_room.set()
                if stored:
                    self._on_stored(stored)
        except Exception as error:  # noqa: BLE001 - raised by the next put and on exit
            self._error = error
        finally:
            self._has_room.set()

    def _commit(self, prepared: Sequence[_PreparedResult]) -> list[NumberedResult]:
        with self._database.write_transaction() as connection:
            # The run's row is locked first. With one writer at a time, all rows that are new afterwards are this
            # writer's.
            self._refuse_if_lease_lost(connection)
            this = {
                "run": self._run_no,
                "before": connection.execute(_LAST_SEQ_QUERY, {"run": self._run_no}).scalar_one(),
            }
            self._database.run_many(connection, _INSERT_RESULTS, [row for _, row, _ in prepared])
            number, first, last = connection.execute(_NEW_RANGE_QUERY, this).one()
            whole = number > 0 and last - first + 1 == number
            seqs = range(first, last + 1) if whole else connection.scalars(_NEW_SEQS_QUERY, this).all()
            if number != len(prepared):
                by_key = {each[0].key: each for each in reversed(prepared)}  # of equal keys, the first was stored
                prepared = [
                    by_key[ResultKey(digest, unescape_text(model), unescape_text(variant), repeat)]
                    for digest, model, variant, repeat in connection.execute(_NEW_KEYS_QUERY, this)
                ]
            made = [
                (seq, 0, position, *check)
                for seq, (_, _, of_it) in zip(seqs, prepared, strict=True)
                for position, check in enumerate(of_it)
            ]
            self._database.run_many(connection, INSERT_CHECKS, made)
            connection.execute(_ADD_TO_STORED_COUNT, {"run": self._run_no, "more": number})
        return [(seq, result) for seq, (result, _, _) in zip(seqs, prepared, strict=True)]

    def _refuse_if_lease_lost(self, connection: Connection) -> None:
        """Raise if another process holds the run by now: that process sends and stores the remaining cases."""
        run = connection.execute(_HOLDER_QUERY, {"run": self._run_no}).one_or_none()
        if run is None:
            raise NotFound("the run was deleted while its results were stored")
        if run.lease_holder != self._owner:
            holder = unescape_optional_text(run.lease_holder)
            who = format_holder(holder) if holder else "nobody"
            raise AlreadyRunning(f"{who} has taken over run {run.id}: this process stores no more of its results")
