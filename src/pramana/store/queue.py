"""The queue of runs: which runs wait for a server, which process holds each run, and how each one ended.

One process at a time holds a run, by a lease (`Lease`): it claims the run, renews the lease by heartbeats, and releases
it at the end. The holder's name identifies machine and process, so a process on the same machine can take over from a
killed one at once; processes on other machines must wait until the lease expires.

A server takes only runs that belong to servers: queued ones, and those whose server is gone. Each start counts as an
attempt, except when a server hands a run over in good order. A run that used up its attempts without finishing is
ended, with the reason. Every change is recorded in the transaction that makes it.
"""

import asyncio
import os
import platform
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace
from sqlalchemy import Connection, RowMapping, exists, select, update

from pramana.errors import AlreadyRunning, Hint, StateConflict, StoreFailed
from pramana.model import Run, RunStatus
from pramana.store.engine import StorePart, record_change, timestamp
from pramana.store.records import (
    decode_json_column,
    encode_json_column,
    escape_optional_text,
    escape_text,
    read_run_row,
    run_from_row,
    unescape_optional_text,
    unescape_text,
)
from pramana.store.schema import runs, watch_runs

LEASE_S = 60.0
"""Seconds that a lease lasts without renewal: the longest wait for a killed process of another machine."""
HEARTBEATS_PER_LEASE = 4
"""Renewals per lease duration: enough that a slow disk does not lose the lease."""
CANCEL_POLL_S = 1.0
"""Seconds between the holder's checks whether its run was cancelled."""
_PROCESS_NAME_RE = re.compile(r"(?P<shown>process (?P<pid>\d+) on .*) \[(?P<machine>.*) (?P<started>\S+)\]", re.DOTALL)
_UNKNOWN, _GONE = "?", ""


class Lease:
    """Holds a run as a context manager; raises `AlreadyRunning` on entry if another process holds it."""

    def __init__(
        self,
        queue: "RunQueue",
        run_id: str,
        on_lost: Callable[[AlreadyRunning], None],
        on_cancelled: Callable[[], None],
        *,
        is_claimed: bool,
    ) -> None:
        self._queue, self._run_id, self._is_claimed = queue, run_id, is_claimed
        self._on_lost, self._on_cancelled = on_lost, on_cancelled
        self.owner = make_process_name()
        """Name of the holder."""
        self._tasks: list[asyncio.Task[None]] = []
        self.is_lost = False
        """Another process took the run over, because this one sent no heartbeat for too long."""

    async def __aenter__(self) -> Self:
        if not self._is_claimed and not self._queue.claim(self._run_id, self.owner, LEASE_S):
            raise self._make_already_running("wait until that process has ended, or stop it")
        self._tasks = [asyncio.create_task(self._send_heartbeats()), asyncio.create_task(self._watch_for_cancel())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._queue.release(self._run_id, self.owner)

    async def _send_heartbeats(self) -> None:
        while not self.is_lost:
            await asyncio.sleep(LEASE_S / HEARTBEATS_PER_LEASE)
            with suppress(StoreFailed):  # the writer will report it; one missed heartbeat does no harm
                held = await asyncio.to_thread(self._queue.renew_lease, self._run_id, self.owner, LEASE_S)
                self.is_lost = not held
        self._on_lost(
            self._make_already_running("that process took over, because this one sent no heartbeat for too long")
        )

    async def _watch_for_cancel(self) -> None:
        while True:
            await asyncio.sleep(CANCEL_POLL_S)
            with suppress(StoreFailed):  # the next check will succeed or report it
                if await asyncio.to_thread(self._queue.is_cancel_requested, self._run_id):
                    self._on_cancelled()
                    return

    def _make_already_running(self, consequence: str) -> AlreadyRunning:
        holder = self._queue.find_holder(self._run_id)
        if holder == make_process_name():
            return AlreadyRunning(f"this program is still running run {self._run_id}: {consequence}")
        return AlreadyRunning(
            f"{format_holder(holder) if holder else 'another process'} is running run {self._run_id}: {consequence}"
        )


def make_process_name() -> str:
    """Return this process's name as a lease holder: unique even if the system reuses its process ID."""
    pid = os.getpid()
    return f"process {pid} on {platform.node()} [{_make_machine_id()} {_read_process_start_time(pid)}]"


def format_holder(holder: str) -> str:
    """Return a holder's name as shown to users.

    >>> format_holder("process 7 on desk [4f1c 1234]")
    'process 7 on desk'
    """
    found = _PROCESS_NAME_RE.fullmatch(holder)
    return found["shown"] if found else holder


def is_holder_gone(holder: str) -> bool:
    """Return whether a holder is certainly gone: a process of this machine that no longer exists."""
    found = _PROCESS_NAME_RE.fullmatch(holder)
    if found is None or found["machine"] != _make_machine_id():
        return False
    now = _read_process_start_time(int(found["pid"]))
    return now == _GONE or (_UNKNOWN not in (now, found["started"]) and now != found["started"])


@lru_cache(maxsize=1)
def _make_machine_id() -> str:
    """Return what identifies this machine and its process IDs: two containers may both have a process 7."""
    parts = [platform.node()]
    with suppress(OSError):
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()]
        parts += [str(Path("/proc/self/ns/pid").readlink())]
    return " ".join(parts)


def _read_process_start_time(pid: int) -> str:
    """Return when a process started, in clock ticks; `_UNKNOWN` if the system does not say, `_GONE` if it ended."""
    if os.name == "nt":  # on Windows, os.kill would end the process
        return _UNKNOWN
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return _GONE
    except OSError:
        pass  # it belongs to another user
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (OSError, ValueError):
        return _UNKNOWN
    return _GONE if state in "ZX" else rest[18]


# ── The queue ──

ACTIVE_STATUSES: tuple[RunStatus, ...] = ("queued", "running")
MAX_ATTEMPTS = 3
"""Starts of a run whose servers die during it, before it is given up: the run itself may be the cause."""
GAVE_UP_REASON = (
    f"the server stopped {('never', 'once', 'twice', 'three times')[MAX_ATTEMPTS]} during this run; resume the run to "
    "try again"
)
CANCELLED_REASON = "cancelled on request"
_CANDIDATES_PER_QUERY = 200


class RunQueue(StorePart):
    """The queue of runs and their leases."""

    # ── The lease ──

    def lease(
        self,
        run_id: str,
        on_lost: Callable[[AlreadyRunning], None],
        on_cancelled: Callable[[], None] = lambda: None,
        *,
        is_claimed: bool = False,
    ) -> Lease:
        """Return this process's lease of a run, as a context manager; `is_claimed` if the run is claimed already.

        `on_lost` is called when another process takes the run over, `on_cancelled` when the run is cancelled.
        """
        return Lease(self, run_id, on_lost, on_cancelled, is_claimed=is_claimed)

    def claim(self, run_id: str, holder: str, lease_s: float = LEASE_S) -> bool:
        """Claim an unfinished run without a holder, or whose holder is gone or late; one of several claims succeeds.

        `holder` is the name of the claiming process. A claimed run is `running` again; each claim counts as an attempt.
        """
        with self._database.write_transaction() as connection:
            row = read_run_row(connection, run_id, lock=True)
            now = self._database.read_clock(connection)
            if row["status"] == "finished" or not _is_claimable(row, now):
                return False
            self._start_lease(connection, row, holder, now + lease_s)
            return True

    def claim_ended(self, run_id: str, holder: str, lease_s: float = LEASE_S) -> bool:
        """Claim a run that has ended, for work on its results; its status stays. One of several claims succeeds."""
        with self._database.write_transaction() as connection:
            row = read_run_row(connection, run_id, lock=True)
            now = self._database.read_clock(connection)
            if not _is_claimable(row, now):
                return False
            if row["status"] in ACTIVE_STATUSES:
                if row["owner"] == "server" or not is_abandoned(row, now):
                    return False
                _record_end(connection, row, "interrupted", find_current_reason(row, now))  # the lease said so
            values = {"lease_holder": escape_text(holder), "lease_until": now + lease_s}
            connection.execute(update(runs).where(runs.c.run_no == row["run_no"]), values)
            return True

    def claim_for_server(self, run_id: str, holder: str, lease_s: float = LEASE_S) -> bool:
        """Claim a run for a server: only a run that waits for one, is not cancelled, and has attempts left.

        Otherwise a cancelled or given-up run is ended here, with the reason.
        """
        with self._database.write_transaction() as connection:
            row = read_run_row(connection, run_id, lock=True)
            now = self._database.read_clock(connection)
            if row["owner"] != "server" or row["status"] not in ACTIVE_STATUSES or not _is_claimable(row, now):
                return False
            if row["cancelled"] is not None:
                _record_end(connection, row, "cancelled", CANCELLED_REASON)
            elif row["attempts"] >= MAX_ATTEMPTS:
                _record_end(connection, row, "interrupted", GAVE_UP_REASON)
            else:
                self._start_lease(connection, row, holder, now + lease_s)
                return True
            return False

    def _start_lease(self, connection: Connection, row: RowMapping, holder: str, lease_until: float) -> None:
        values = {
            "status": "running",
            "finished": None,
            "reason": None,
            "cancelled": None,
            "lease_holder": escape_text(holder),
            "lease_until": lease_until,
            "heartbeat": self._database.read_clock(connection),
            "attempts": row["attempts"] + 1,
        }
        connection.execute(update(runs).where(runs.c.run_no == row["run_no"]), values)
        record_change(connection, "run", row["id"], "started")

    def renew_lease(self, run_id: str, holder: str | None = None, lease_s: float = LEASE_S) -> bool:
        """Record a heartbeat and renew the lease; return False if `holder` no longer holds it."""
        with self._database.write_transaction() as connection:
            row = read_run_row(connection, run_id, lock=True)
            now = self._database.read_clock(connection)
            values: dict[str, Any] = {"heartbeat": now}
            if holder is not None and row["lease_holder"] != escape_text(holder):
                return False
            if row["lease_holder"] is not None:
                values["lease_until"] = now + lease_s
            connection.execute(update(runs).where(runs.c.run_no == row["run_no"]), values)
            return True

    def release(self, run_id: str, holder: str) -> None:
        """End the lease if `holder` still holds it, so that the next process need not wait."""
        with self._database.write_transaction() as connection:
            mine = update(runs).where(runs.c.id == escape_text(run_id), runs.c.lease_holder == escape_text(holder))
            connection.execute(mine, {"lease_holder": None, "lease_until": None})

    def find_holder(self, run_id: str) -> str | None:
        """Return the name of the run's holder; None if it has none."""
        with self._database.read_transaction() as connection:
            return unescape_optional_text(read_run_row(connection, run_id)["lease_holder"])

    def store_limits(self, run_id: str, limits: Mapping[str, Any]) -> None:
        """Store the limits of a run, so that it keeps them when it is resumed."""
        with self._database.write_transaction() as connection:
            mine = update(runs).where(runs.c.id == escape_text(run_id), runs.c.attempts > 0)
            connection.execute(mine, {"limits": encode_json_column(dict(limits))})

    # ── Waiting runs ──

    def list_waiting(self) -> list[str]:
        """Return the IDs of the runs that a server may take now, oldest first: queued, or their server is gone."""
        columns = (runs.c.id, runs.c.lease_holder, runs.c.lease_until)
        query = select(*columns).where(runs.c.owner == "server", runs.c.status.in_(ACTIVE_STATUSES))
        query = query.where(~exists().where(watch_runs.c.run_id == runs.c.id))  # a watch continues them, on their day
        with self._database.read_transaction() as connection:
            rows = connection.execute(query.order_by(runs.c.run_no).limit(_CANDIDATES_PER_QUERY)).mappings().all()
            now = self._database.read_clock(connection) if rows else 0.0
        return [row["id"] for row in rows if _is_claimable(row, now)]

    def is_cancel_requested(self, run_id: str) -> bool:
        """Return whether the run was cancelled."""
        return self._fetch_value(select(runs.c.cancelled).where(runs.c.id == escape_text(run_id))) is not None

    # ── Ending, cancelling, requeuing ──

    def finish(
        self,
        run_id: str,
        holder: str | None,
        status: RunStatus,
        reason: str | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> bool:
        """Record how a run ended, add notes, and end its lease; return False if `holder` does not hold it.

        In that case nothing is changed. `holder=None` ends a run that was started and is not held. The status `queued`
        hands the run over to the next server, and this attempt does not count.
        """
        with self._database.write_transaction() as connection:
            row = read_run_row(connection, run_id, lock=True)
            if row["lease_holder"] != escape_optional_text(holder) or (holder is None and row["status"] != "running"):
                return False
            _record_end(connection, row, status, reason, notes)
            return True

    def cancel(self, run_id: str) -> Run:
        """Cancel a run: at once if no process works on it, otherwise its process stops within seconds."""
        with self._database.write_transaction() as connection:
            row = read_run_row(connection, run_id, lock=True)
            if row["status"] not in ACTIVE_STATUSES:
                raise StateConflict(f"run {row['id']} is no longer running: its status is {row['status']}")
            asked = row["cancelled"] or timestamp()
            connection.execute(update(runs).where(runs.c.run_no == row["run_no"]), {"cancelled": asked})
            if _is_claimable(row, self._database.read_clock(connection)):
                _record_end(connection, row, "cancelled", CANCELLED_REASON)
            else:
                record_change(connection, "run", row["id"], "cancelling")
            return run_from_row(read_run_row(connection, run_id))

    def requeue(self, run_id: str, limits: Mapping[str, Any] | None = None) -> Run:
        """Queue a run that ended early, so that a server resumes it; replace its limits if `limits` is set."""
        with self._database.write_transaction() as connection:
            row = read_run_row(connection, run_id, lock=True)
            if row["owner"] != "server":
                raise StateConflict(
                    f"run {row['id']} was started on the command line",
                    hint=Hint("resume_run", row["id"]),
                )
            if row["status"] in ACTIVE_STATUSES:
                status = find_current_status(row, self._database.read_clock(connection))
                raise AlreadyRunning(f"run {row['id']} is already {status}")
            if row["status"] == "finished":
                raise StateConflict(f"run {row['id']} is finished: no results are missing")
            of_watch = select(watch_runs.c.day).where(watch_runs.c.run_id == row["id"]).limit(1)
            if (day := connection.execute(of_watch).scalar_one_or_none()) is not None:
                raise StateConflict(
                    f"run {row['id']} belongs to the day {day} of a watch; only the watch itself resumes it, and "
                    "only on that day"
                )
            values: dict[str, Any] = {
                "status": "queued", "finished": None, "reason": None, "cancelled": None, "attempts": 0,
            }  # fmt: skip
            if limits is not None:
                values["limits"] = encode_json_column(dict(limits))
            connection.execute(update(runs).where(runs.c.run_no == row["run_no"]), values)
            record_change(connection, "run", row["id"], "queued")
            return run_from_row(read_run_row(connection, run_id))


def refuse_if_held(row: RowMapping, now: float) -> None:
    """Raise `AlreadyRunning` while a process works on a run."""
    if row["status"] in ACTIVE_STATUSES and not _is_claimable(row, now):
        raise AlreadyRunning(f"run {row['id']} is running; cancel it first")


def is_abandoned(row: RowMapping, now: float) -> bool:
    """Return whether the process that claimed a run is gone or its lease has expired, with no end recorded."""
    return row["status"] == "running" and row["lease_holder"] is not None and _is_claimable(row, now)


def find_current_status(row: RowMapping, now: float) -> RunStatus:
    """Return the status of a run; an abandoned one is interrupted, or queued for the next server."""
    status: RunStatus = row["status"]
    if not is_abandoned(row, now):
        return status
    return "queued" if row["owner"] == "server" else "interrupted"


def find_current_reason(row: RowMapping, now: float) -> str | None:
    """Return the reason why a run ended; for an abandoned run, what happened to its process."""
    if not is_abandoned(row, now) or row["owner"] == "server":
        return unescape_optional_text(row["reason"])
    holder = unescape_text(row["lease_holder"])
    if is_holder_gone(holder):
        return f"{format_holder(holder)} exited before the run was complete"
    return f"{format_holder(holder)} has sent no heartbeat for {LEASE_S:.0f} seconds"


def make_current_run(row: RowMapping, now: float) -> Run:
    """Return the run of a row, with its current status."""
    run = run_from_row(row)
    if not is_abandoned(row, now):
        return run
    return replace(run, status=find_current_status(row, now), reason=find_current_reason(row, now), holder=None)


def _is_claimable(row: RowMapping, now: float) -> bool:
    until, holder = row["lease_until"], unescape_optional_text(row["lease_holder"])
    return until is None or until <= now or holder is None or is_holder_gone(holder)


def _record_end(
    connection: Connection,
    row: RowMapping,
    status: RunStatus,
    reason: str | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    under_way = status in ACTIVE_STATUSES
    values: dict[str, Any] = {
        "status": status,
        "finished": None if under_way else timestamp(),
        "reason": escape_optional_text(reason),
        "lease_holder": None,
        "lease_until": None,
    }
    if notes:
        values["notes"] = encode_json_column(decode_json_column(row["notes"]) | dict(notes))
    if status == "queued":
        values["attempts"] = max(0, row["attempts"] - 1)
    connection.execute(update(runs).where(runs.c.run_no == row["run_no"]), values)
    record_change(connection, "run", row["id"], status)
