"""Watches, their periods, days, runs and alerts: nouns in, rows out, and back again.

A day is claimed in the transaction that creates its run, and ended in the transaction that stores its features, its
decision and its alerts, so a process that is killed at any point leaves a day that can be continued or one that is
complete. Nothing here measures or decides anything: features and decisions are stored as they are given.
"""

import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import Connection, RowMapping, Select, func, insert, or_, select, update

from pramana import clock
from pramana.errors import AlreadyRunning, Hint, NotFound, StateConflict, quote_text, suggest_similar
from pramana.request import RunRequest, request_from_plain, request_to_plain
from pramana.store.engine import StorePart, record_change, timestamp
from pramana.store.records import (
    decode_json_column,
    encode_json_column,
    escape_optional_text,
    escape_or_none_if_blank,
    escape_text,
    unescape_optional_text,
    unescape_text,
)
from pramana.store.runs import MAX_REFERENCE_LENGTH, RunHook
from pramana.store.schema import runs, watch_alerts, watch_days, watch_periods, watch_runs, watches
from pramana.watch_request import WatchRequest

DayStatus = Literal["measuring", "measured", "missing"]
RunPurpose = Literal["batch", "search", "answers", "logprobs", "confirm"]
"""A day's cases; a search for border prompts; the border prompts that were found; prompts for logprobs; a confirming
batch. No statistic uses the search and the confirming batch."""
FIRST_PERIOD_REASON = "the watch began"
ACCEPTED_REASON = "a new baseline was accepted"


class Watch(Struct, frozen=True, kw_only=True):
    """A stored watch."""

    number: int
    id: str
    model: str
    """As typed."""
    request: RunRequest
    """The run of each day, without its limit on cost."""
    baseline_days: int
    instruments: tuple[str, ...]
    created: str
    owner: Literal["cli", "server"] = "cli"
    creator: str | None = None
    stopped: str | None = None
    budget_usd_per_day: float | None = None
    at: str | None = None
    """The time of the day in UTC at which the scheduler measures: HH:MM."""
    name: str | None = None
    note: str | None = None
    delivery: Mapping[str, Any] | None = None
    """Where its alerts are sent."""
    is_public: bool = False
    """Whether anyone may read its state, its series and its alerts."""

    @property
    def shown_name(self) -> str:
        """Its name, or its ID."""
        return self.name or self.id


class WatchPeriod(Struct, frozen=True):
    """Days that share one baseline."""

    number: int
    begins: str
    """Its first possible day."""
    reason: str
    """Why the days before it are not compared with its days."""
    created: str
    note: str | None = None
    basis: Mapping[str, Any] | None = None
    """What its days have in common, from the first measured day on which each part of it was known."""


class WatchDay(Struct, frozen=True):
    """One UTC day of a watch."""

    day: str
    period: int
    status: DayStatus
    tie_break: float
    """Drawn once, from -½ to ½."""
    reason: str | None = None
    """Why it is missing."""
    planned: int = 0
    answered: int = 0
    features_json: str | None = None
    """What was measured of each prompt, as JSON; `watching.decode_features` reads it."""
    decision: Mapping[str, Any] | None = None
    ended: str | None = None


class WatchRun(Struct, frozen=True):
    """A run of a watch."""

    run_id: str
    day: str
    purpose: RunPurpose


class RunCalls(Struct, frozen=True):
    """The calls of a run of a day, which may have been deleted since."""

    run_id: str
    purpose: RunPurpose
    calls: int | None
    """Its results so far, one for each call to the model; None if the run was deleted."""


class NewAlert(Struct, frozen=True):
    """An alert to store, once for each period and level."""

    level: str
    body: Mapping[str, Any]


class WatchAlert(Struct, frozen=True):
    """A stored alert."""

    id: str
    watch: str
    """The ID of its watch."""
    period: int
    level: str
    day: str
    body: Mapping[str, Any]
    created: str
    delivered: str | None = None
    attempts: int = 0
    """How often it was sent, or tried to be."""
    next_attempt: float | None = None
    """When it is sent again, as a Unix time."""
    error: str | None = None
    """Why the last attempt failed."""


class EndedDay(Struct, frozen=True, kw_only=True):
    """How a day ended."""

    status: Literal["measured", "missing"]
    reason: str | None = None
    planned: int = 0
    answered: int = 0
    features_json: str | None = None
    decision: Mapping[str, Any] | None = None
    basis: Mapping[str, Any] | None = None
    new_period_reason: str | None = None
    """Why a new period begins with this day; None: it belongs to the period of its claim."""
    alerts: tuple[NewAlert, ...] = ()


class EncryptedChannel(Struct, frozen=True):
    """Where alerts are sent, as the columns of a watch."""

    delivery: str
    """The channel as JSON, without its secrets, so that it may be shown."""
    delivery_secret: str | None
    """The URL and the signing secret of its webhook, encrypted by the vault; None if it has neither."""


class Watches(StorePart):
    """The watches of a store."""

    # ── Watches ──

    def create(
        self,
        request: WatchRequest,
        instruments: Sequence[str],
        *,
        owner: Literal["cli", "server"] = "cli",
        creator: str | None = None,
        channel: EncryptedChannel | None = None,
    ) -> Watch:
        """Store a watch and its first period, which begins today."""
        today, created = find_today(), timestamp()
        with self._database.write_transaction() as connection:
            row = {
                "id": _make_watch_id(connection),
                "name": escape_or_none_if_blank(request.name),
                "note": escape_or_none_if_blank(request.note),
                "owner": owner,
                "creator": escape_optional_text(creator),
                "created": created,
                "model": escape_text(request.run.models[0]),
                "request": encode_json_column(request_to_plain(request.run)),
                "budget_usd": request.budget_usd_per_day,
                "at": request.at,
                "baseline_days": request.baseline_days,
                "instruments": encode_json_column(list(instruments)),
                **({} if channel is None else asdict(channel)),
            }
            (number,) = connection.execute(insert(watches), row).inserted_primary_key or (0,)
            _insert_period(connection, number, 1, today, FIRST_PERIOD_REASON)
            record_change(connection, "watch", str(row["id"]), "created")
        return self.read(str(row["id"]))

    def read(self, watch_id: str) -> Watch:
        """Return a watch by its complete ID."""
        rows = self._read_watches(select(watches).where(watches.c.id == escape_text(watch_id)))
        if not rows:
            raise NotFound(f"there is no watch {quote_text(watch_id)}", hint=Hint("list_watches"))
        return rows[0]

    def list_all(self, *, active_only: bool = False) -> list[Watch]:
        """Return all watches, newest first."""
        query = select(watches).order_by(watches.c.watch_no.desc())
        return self._read_watches(query.where(watches.c.stopped.is_(None)) if active_only else query)

    def find(self, reference: str | None) -> Watch:
        """Return a watch by its ID, the start of its ID, or its name; without a reference, the only active one."""
        if reference is None:
            return self._find_only_active()
        if not reference or len(reference) > MAX_REFERENCE_LENGTH:
            raise NotFound(
                "no watch is named; pass an ID, the beginning of an ID, or a name", hint=Hint("list_watches")
            )
        beginning = watches.c.id.startswith(escape_text(reference), autoescape=True)
        matches = self._read_watches(select(watches).where(beginning).order_by(watches.c.watch_no.desc()).limit(4))
        for each in matches:
            if each.id == reference or len(matches) == 1:
                return each
        named = func.lower(watches.c.name) == escape_text(reference).lower()
        same_name = self._read_watches(select(watches).where(named).order_by(watches.c.watch_no.desc()).limit(4))
        if len(same_name) == 1:
            return same_name[0]
        some = ", ".join(each.id for each in (same_name or matches)[:3])
        if same_name:
            raise NotFound(f"several watches are named {quote_text(reference)} ({some}); pass the ID of one")
        if matches:
            raise NotFound(f"{quote_text(reference)} matches several watches ({some} …); type more of the ID")
        known = [known for each in self.list_all() for known in (each.id, each.name) if known]
        raise NotFound(
            f"there is no watch {quote_text(reference)}{suggest_similar(reference, known)}", hint=Hint("list_watches")
        )

    def _find_only_active(self) -> Watch:
        active = self.list_all(active_only=True)
        if len(active) == 1:
            return active[0]
        if active:
            some = ", ".join(each.shown_name for each in active[:3]) + (" …" if len(active) > 3 else "")
            raise NotFound(f"there are {len(active)} active watches ({some}); name one")
        raise NotFound("there is no active watch", hint=Hint("start_watch"))

    def stop(self, watch: Watch) -> Watch:
        """Stop a watch: no day is measured any more; its days and runs are kept."""
        with self._database.write_transaction() as connection:
            active = update(watches).where(watches.c.watch_no == watch.number, watches.c.stopped.is_(None))
            if connection.execute(active, {"stopped": timestamp()}).rowcount:
                record_change(connection, "watch", watch.id, "stopped")
        return self.read(watch.id)

    def set_public(self, watch: Watch, *, is_public: bool) -> Watch:
        """Let anyone read a watch, or no longer."""
        with self._database.write_transaction() as connection:
            mine = update(watches).where(watches.c.watch_no == watch.number)
            connection.execute(mine, {"public": is_public})
            record_change(connection, "watch", watch.id, "updated")
        return self.read(watch.id)

    def _read_watches(self, query: Select[Any]) -> list[Watch]:
        with self._database.read_transaction() as connection:
            return [watch_from_row(row) for row in connection.execute(query).mappings()]

    # ── Periods ──

    def list_periods(self, watch: Watch) -> list[WatchPeriod]:
        """Return the periods of a watch in the order in which they begin."""
        query = select(watch_periods).where(watch_periods.c.watch_no == watch.number)
        query = query.order_by(watch_periods.c.begins, watch_periods.c.period)
        with self._database.read_transaction() as connection:
            return [_period_from_row(row) for row in connection.execute(query).mappings()]

    def accept(self, watch: Watch, note: str | None = None) -> WatchPeriod:
        """Begin a new period, and so a new baseline, with the next day; accepting twice on a day changes the note."""
        begins = find_today(days_ahead=1)
        with self._database.write_transaction() as connection:
            _lock_watch(connection, watch)
            mine = (watch_periods.c.watch_no == watch.number, watch_periods.c.begins == begins)
            accepted = (*mine, watch_periods.c.reason == ACCEPTED_REASON)
            number = connection.execute(select(watch_periods.c.period).where(*accepted)).scalar_one_or_none()
            if number is None:
                number = _find_next_period(connection, watch.number)
                _insert_period(connection, watch.number, number, begins, ACCEPTED_REASON, note)
            else:
                connection.execute(update(watch_periods).where(*accepted), {"note": escape_or_none_if_blank(note)})
            record_change(connection, "watch", watch.id, "accepted")
        return next(each for each in self.list_periods(watch) if each.number == number)

    # ── Days ──

    def list_days(self, watch: Watch, period: int | None = None) -> list[WatchDay]:
        """Return the days of a watch in order, or those of one period."""
        query = select(watch_days).where(watch_days.c.watch_no == watch.number).order_by(watch_days.c.day)
        if period is not None:
            query = query.where(watch_days.c.period == period)
        with self._database.read_transaction() as connection:
            return [_day_from_row(row) for row in connection.execute(query).mappings()]

    def read_day_statuses(self, day: str) -> dict[int, DayStatus]:
        """Return the status of a day by the number of its watch, for all watches that have begun it."""
        query = select(watch_days.c.watch_no, watch_days.c.status).where(watch_days.c.day == day)
        return {row.watch_no: row.status for row in self._fetch_rows(query)}

    def find_day(self, watch: Watch, day: str) -> WatchDay | None:
        """Return a day, if it was begun."""
        query = select(watch_days).where(watch_days.c.watch_no == watch.number, watch_days.c.day == day)
        with self._database.read_transaction() as connection:
            row = connection.execute(query).mappings().first()
            return None if row is None else _day_from_row(row)

    def list_runs(self, watch: Watch, day: str | None = None) -> list[WatchRun]:
        """Return the stored runs of a watch, or those of one day, in the order of their creation."""
        query = select(watch_runs.c.run_id, watch_runs.c.day, watch_runs.c.purpose)
        query = query.join(runs, runs.c.id == watch_runs.c.run_id).where(watch_runs.c.watch_no == watch.number)
        query = query.where(watch_runs.c.day == day) if day else query
        return [WatchRun(*row) for row in self._fetch_rows(query.order_by(runs.c.run_no))]

    def find_last_run_id(self, watch: Watch) -> str | None:
        """Return the run of the cases of the last day that has results stored; None if there is none."""
        query = select(watch_runs.c.run_id).join(runs, runs.c.id == watch_runs.c.run_id)
        query = query.where(watch_runs.c.watch_no == watch.number, watch_runs.c.purpose == "batch", runs.c.stored > 0)
        rows = self._fetch_rows(query.order_by(watch_runs.c.day.desc(), runs.c.run_no.desc()).limit(1))
        return next((row.run_id for row in rows), None)

    def list_calls(self, watch: Watch, day: str) -> list[RunCalls]:
        """Return the calls of each run of a day but its confirming batches, deleted runs included."""
        query = select(watch_runs.c.run_id, watch_runs.c.purpose, runs.c.stored)
        query = query.join_from(watch_runs, runs, runs.c.id == watch_runs.c.run_id, isouter=True)
        query = query.where(watch_runs.c.watch_no == watch.number, watch_runs.c.day == day)
        return [RunCalls(*row) for row in self._fetch_rows(query.where(watch_runs.c.purpose != "confirm"))]

    def make_claim(self, watch: Watch, day: str, purpose: RunPurpose, tie_break: float) -> RunHook:
        """Return what claims a day, or another run of it, in the transaction that creates the run.

        It raises `AlreadyRunning` if the day has such a run already, and `StateConflict` if it has ended or its watch
        was stopped; then no run is created.
        """

        def claim(connection: Connection, run_id: str) -> None:
            row = _lock_watch(connection, watch)
            if row["stopped"] is not None:
                raise StateConflict(f"watch {watch.shown_name} was stopped on {row['stopped'][:10]}")
            mine = (watch_days.c.watch_no == watch.number, watch_days.c.day == day)
            known = connection.execute(select(watch_days).where(*mine)).mappings().first()
            if purpose != "confirm":
                if known is not None and known["status"] != "measuring":
                    raise StateConflict(f"{day} of watch {watch.shown_name} is {known['status']} already")
                linked = select(watch_runs.c.run_id).join(runs, runs.c.id == watch_runs.c.run_id)
                linked = linked.where(watch_runs.c.watch_no == watch.number, watch_runs.c.day == day)
                if connection.execute(linked.where(watch_runs.c.purpose == purpose)).first() is not None:
                    raise AlreadyRunning(f"another process has just begun {day} of watch {watch.shown_name}")
                if known is None:
                    period = _find_period_of_day(connection, watch.number, day)
                    begun = {"day": day, "period": period, "status": "measuring", "tie_break": tie_break}
                    made = {"watch_no": watch.number, "created": timestamp(), **begun}
                    connection.execute(insert(watch_days), made)
            link = {"watch_no": watch.number, "run_id": run_id, "day": day, "purpose": purpose}
            connection.execute(insert(watch_runs), link)
            record_change(connection, "watch", watch.id, "measuring")

        return claim

    def end_day(self, watch: Watch, day: str, ended: EndedDay, expected_compared_days: int | None = None) -> WatchDay:
        """Store how a day ended, once: a day that ended before stays as it is. Return the day as stored.

        `expected_compared_days` is the number of earlier measured days of its period that the decision is based on; if
        there is another number of them by now, `StateConflict` is raised, so that the caller decides anew.
        """
        with self._database.write_transaction() as connection:
            _lock_watch(connection, watch)
            mine = (watch_days.c.watch_no == watch.number, watch_days.c.day == day)
            known = connection.execute(select(watch_days).where(*mine)).mappings().one()
            if known["status"] != "measuring":
                return _day_from_row(known)
            period = known["period"]
            if ended.new_period_reason is not None:
                period = _find_next_period(connection, watch.number)
                _insert_period(connection, watch.number, period, day, ended.new_period_reason)
            same = (watch_days.c.watch_no == watch.number, watch_days.c.period == period)
            measured = (*same, watch_days.c.status == "measured", watch_days.c.day < day)
            count = connection.execute(select(func.count()).select_from(watch_days).where(*measured)).scalar_one()
            if expected_compared_days not in (None, count):
                raise StateConflict(f"other days of watch {watch.shown_name} were measured meanwhile")
            if ended.basis is not None:
                _extend_basis(connection, watch.number, period, ended.basis)
            values = {
                "period": period,
                "status": ended.status,
                "reason": escape_optional_text(ended.reason),
                "planned": ended.planned,
                "answered": ended.answered,
                "features": escape_optional_text(ended.features_json),
                "decision": None if ended.decision is None else encode_json_column(ended.decision),
                "ended": timestamp(),
            }
            connection.execute(update(watch_days).where(*mine), values)
            for each in ended.alerts:
                _insert_alert(connection, watch, period, day, each)
            record_change(connection, "watch", watch.id, ended.status)
            return _day_from_row(connection.execute(select(watch_days).where(*mine)).mappings().one())

    # ── Alerts ──

    def list_alerts(self, watch: Watch, period: int | None = None) -> list[WatchAlert]:
        """Return the alerts of a watch, oldest first, or those of one period."""
        query = select(watch_alerts).where(watch_alerts.c.watch_no == watch.number).order_by(watch_alerts.c.alert_no)
        if period is not None:
            query = query.where(watch_alerts.c.period == period)
        with self._database.read_transaction() as connection:
            return [alert_from_row(row, watch.id) for row in connection.execute(query).mappings()]


def find_today(days_ahead: int = 0) -> str:
    """Return the current day in UTC, or a later one: 2026-11-19."""
    return (clock.now().date() + timedelta(days=days_ahead)).isoformat()


# ── Rows ──


def _lock_watch(connection: Connection, watch: Watch) -> RowMapping:
    """Return the row of a watch; other transactions that change its days wait."""
    query = select(watches).where(watches.c.watch_no == watch.number).with_for_update()
    row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"there is no watch {quote_text(watch.id)}", hint=Hint("list_watches"))
    return row


def _insert_period(
    connection: Connection, watch_no: int, period: int, begins: str, reason: str, note: str | None = None
) -> None:
    row = {"watch_no": watch_no, "period": period, "begins": begins, "created": timestamp()}
    row |= {"reason": escape_text(reason), "note": escape_or_none_if_blank(note)}
    connection.execute(insert(watch_periods), row)


def _extend_basis(connection: Connection, watch_no: int, period: int, basis: Mapping[str, Any]) -> None:
    """Add to the basis of a period what it does not have yet; the first day with a part of it decides that part."""
    current = (watch_periods.c.watch_no == watch_no, watch_periods.c.period == period)
    stored = connection.execute(select(watch_periods.c.basis).where(*current)).scalar_one()
    known = {} if stored is None else decode_json_column(stored)
    if not basis.keys() <= known.keys():
        extended = {**basis, **known}
        connection.execute(update(watch_periods).where(*current), {"basis": encode_json_column(extended)})


def _find_next_period(connection: Connection, watch_no: int) -> int:
    latest = select(func.max(watch_periods.c.period)).where(watch_periods.c.watch_no == watch_no)
    return int(connection.execute(latest).scalar_one()) + 1


def _find_period_of_day(connection: Connection, watch_no: int, day: str) -> int:
    """Return the period that a new day belongs to: the latest that has begun."""
    query = select(watch_periods.c.period).where(watch_periods.c.watch_no == watch_no)
    # A clock that was set back must not leave a day without a period.
    begun = query.where(or_(watch_periods.c.begins <= day, watch_periods.c.period == 1))
    latest_first = (watch_periods.c.begins.desc(), watch_periods.c.period.desc())
    return int(connection.execute(begun.order_by(*latest_first).limit(1)).scalar_one())


def _insert_alert(connection: Connection, watch: Watch, period: int, day: str, alert: NewAlert) -> None:
    same = (watch_alerts.c.watch_no == watch.number, watch_alerts.c.period == period)
    if connection.execute(select(1).where(*same, watch_alerts.c.level == alert.level)).first() is None:
        row = {"id": f"a{secrets.token_hex(8)}", "watch_no": watch.number, "period": period, "level": alert.level}
        row |= {"day": day, "body": encode_json_column(dict(alert.body)), "created": timestamp()}
        connection.execute(insert(watch_alerts), row)


def watch_from_row(row: RowMapping) -> Watch:
    """Return the watch of a row."""
    return Watch(
        number=row["watch_no"],
        id=row["id"],
        model=unescape_text(row["model"]),
        request=request_from_plain(decode_json_column(row["request"])),
        baseline_days=row["baseline_days"],
        instruments=tuple(decode_json_column(row["instruments"])),
        created=row["created"],
        owner=row["owner"],
        creator=unescape_optional_text(row["creator"]),
        stopped=row["stopped"],
        budget_usd_per_day=row["budget_usd"],
        at=row["at"],
        name=unescape_optional_text(row["name"]),
        note=unescape_optional_text(row["note"]),
        delivery=None if row["delivery"] is None else decode_json_column(row["delivery"]),
        is_public=row["public"],
    )


def _period_from_row(row: RowMapping) -> WatchPeriod:
    return WatchPeriod(
        number=row["period"],
        begins=row["begins"],
        reason=unescape_text(row["reason"]),
        created=row["created"],
        note=unescape_optional_text(row["note"]),
        basis=None if row["basis"] is None else decode_json_column(row["basis"]),
    )


def _day_from_row(row: RowMapping) -> WatchDay:
    return WatchDay(
        day=row["day"],
        period=row["period"],
        status=row["status"],
        tie_break=row["tie_break"],
        reason=unescape_optional_text(row["reason"]),
        planned=row["planned"],
        answered=row["answered"],
        features_json=unescape_optional_text(row["features"]),
        decision=None if row["decision"] is None else decode_json_column(row["decision"]),
        ended=row["ended"],
    )


def alert_from_row(row: RowMapping, watch_id: str) -> WatchAlert:
    """Return the alert of a row."""
    return WatchAlert(
        id=row["id"],
        watch=watch_id,
        period=row["period"],
        level=row["level"],
        day=row["day"],
        body=decode_json_column(row["body"]),
        created=row["created"],
        delivered=row["delivered"],
        attempts=row["attempts"],
        next_attempt=row["next_attempt"],
        error=unescape_optional_text(row["error"]),
    )


def _make_watch_id(connection: Connection) -> str:
    """Return an ID that sorts by time and can be typed."""
    while True:
        new = f"w{clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        if connection.execute(select(watches.c.watch_no).where(watches.c.id == new)).first() is None:
            return new
