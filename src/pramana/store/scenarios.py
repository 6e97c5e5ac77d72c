"""Scenarios of a server: `model.Scenario` in; the same out, with the times of its creation and last change.

The body of a row is the struct as JSON, with the struct's field names; the names in the API do not matter here. All
changes take one lock, so that an import sees a stable set of scenarios; an import is one transaction. Deleted scenarios
can be restored for a day.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import chain, count, islice
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import asdict, replace
from sqlalchemy import Connection, delete, func, insert, select

from pramana import clock
from pramana.errors import AlreadyExists, Hint, NotFound, Problem, StateConflict, StoreFailed, quote_text
from pramana.model import Scenario
from pramana.request import Selection, is_tag_prefix
from pramana.store.engine import CHUNK_ROWS, Database, LockKey, StorePart, record_change, split_into_chunks, timestamp
from pramana.store.records import escape_text, unescape_text
from pramana.store.schema import deleted_scenarios, scenarios

ImportMode = Literal["skip", "update", "fail"]
"""What to do with scenarios whose IDs already exist."""
_Decoded = TypeVar("_Decoded")
RESTORE_PERIOD = timedelta(days=1)
_UPSERT_SCENARIO = (
    "INSERT INTO scenarios (id, name, type, difficulty, language, tags, body, created, updated)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " name = excluded.name, type = excluded.type, difficulty = excluded.difficulty, language = excluded.language,"
    " tags = excluded.tags, body = excluded.body, updated = excluded.updated"
)
"""Inserts a row, or updates all of its columns except `created`."""
_encode_json = msgspec.json.Encoder().encode


class StoredScenario(Scenario, frozen=True, kw_only=True):
    """A scenario with the times of its creation and last change."""

    created_at: str
    updated_at: str


class ImportResult(msgspec.Struct, frozen=True):
    """The result of an import or of its dry run; IDs in the order of the input."""

    imported: list[str]
    updated: list[str]
    skipped: list[str]
    scenarios: list[StoredScenario]
    """The imported and updated scenarios."""


class DeletedScenario(msgspec.Struct, frozen=True):
    """A deleted scenario that can be restored."""

    scenario: StoredScenario
    """The scenario as it was before."""
    deleted: str
    restorable_until: str
    """When it is deleted for good."""


class ScenarioIdsExist(AlreadyExists):
    """Scenarios to import already exist, and the mode is `fail`."""

    def __init__(self, ids: Sequence[str], problems: Sequence[Problem] = ()) -> None:
        some = ", ".join(map(quote_text, ids[:3])) + (" …" if len(ids) > 3 else "")
        one = len(ids) == 1
        super().__init__(
            f"{len(ids):,} scenario{'' if one else 's'} already {'exists' if one else 'exist'} ({some}); nothing was "
            "changed: import with the mode skip or update instead"
        )
        self.ids, self.problems = tuple(ids), tuple(problems)


_scenario_decoder = msgspec.json.Decoder(Scenario)
_scenarios_decoder = msgspec.json.Decoder(list[StoredScenario])


class Scenarios(StorePart):
    """The scenarios of a store."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        sqlite = database.is_sqlite
        self._id = "id" if sqlite else 'id COLLATE "C"'
        self._place = "instr" if sqlite else "strpos"
        self._joined = (
            f"group_concat(substr(body, 1, length(body) - 1) {_TIMES_AS_JSON_SQL})"
            if sqlite
            else f"string_agg(left(body, -1) {_TIMES_AS_JSON_SQL} ORDER BY {self._id})"
        )

    # ── Reading ──

    def read_page(self, selection: Selection, offset: int, limit: int) -> tuple[list[StoredScenario], int]:
        """Return a page of the selected scenarios, by ID, and the total."""
        if selection.text:
            return self._search(selection, offset, limit)
        where, values = self._make_where_clause(selection)
        # One row for all of them: Python's sqlite3 releases the GIL for each row, and beside a busy event loop gets it
        # back only after milliseconds.
        query = (
            f"SELECT {self._joined}, (SELECT count(*) FROM scenarios{where}) FROM "  # noqa: S608 - constant texts, no user input
            f"(SELECT id, body, created, updated FROM scenarios{where} ORDER BY {self._id} LIMIT ? OFFSET ?) AS page"
        )
        with self._database.connect_for_one_statement() as connection:
            text, total = self._database.run(connection, query, (*values, *values, limit, offset)).one()
        return _decode(_scenarios_decoder, f"[{text or ''}]"), total

    def _search(self, selection: Selection, offset: int, limit: int) -> tuple[list[StoredScenario], int]:
        """Search in Python: how the engines fold case outside ASCII depends on their locale."""
        found: list[StoredScenario] = []
        total = 0
        for row in self._iterate(selection):
            if offset <= total < offset + limit:
                found.append(_make_stored(*row))
            total += 1
        return found, total

    def iterate_chunks(self, selection: Selection) -> Iterator[list[Scenario]]:
        """Yield the selected scenarios in chunks, by ID."""
        return split_into_chunks(scenario for scenario, _, _ in islice(self._iterate(selection), selection.limit))

    def _iterate(self, selection: Selection) -> Iterator[tuple[Scenario, str, str]]:
        where, values = self._make_where_clause(selection)
        folded, last = selection.text.casefold(), ""
        query = (
            "SELECT id, body, created, updated FROM scenarios"  # noqa: S608 - constant texts, no user input
            f"{where or ' WHERE true'} AND {self._id} > ? ORDER BY {self._id} LIMIT ?"
        )
        while True:
            with self._database.read_transaction() as connection:
                rows = self._database.run(connection, query, (*values, last, CHUNK_ROWS)).all()
            for _, body, created, updated in rows:
                found = _decode(_scenario_decoder, body)
                texts = (found.id, found.name, found.prompt, found.expected_outcome)
                if not folded or any(folded in each.casefold() for each in texts):
                    yield found, created, updated
            if len(rows) < CHUNK_ROWS:
                return
            last = rows[-1][0]

    def read(self, scenario_id: str) -> StoredScenario:
        """Return a scenario; raise `NotFound` if there is none."""
        with self._database.read_transaction() as connection:
            return _decode_row(*self._read_row(connection, scenario_id))

    def find_existing(self, ids: Sequence[str]) -> set[str]:
        """Return the IDs that exist."""
        with self._database.read_transaction() as connection:
            return set(self._find_creation_times(connection, ids))

    def require_existing(self, ids: Sequence[str]) -> None:
        """Raise `NotFound` with the IDs that do not exist, if any."""
        known = self.find_existing([escape_text(each) for each in ids]) if ids else set()
        if unknown := [each for each in ids if each not in known]:
            some = ", ".join(map(quote_text, unknown[:5])) + (" …" if len(unknown) > 5 else "")
            raise NotFound(f"there is no scenario {some}", hint=Hint("list_scenarios"))

    def count_facets(self) -> dict[str, dict[str, int]]:
        """Return the values to filter by: the number of scenarios of each type, difficulty, language and tag."""
        query = (
            "SELECT type, difficulty, language, tags, count(*) FROM scenarios GROUP BY type, difficulty, language, tags"
        )
        found: dict[str, dict[str, int]] = {"type": {}, "difficulty": {}, "language": {}, "tag": {}}
        with self._database.read_transaction() as connection:
            rows = self._database.run(connection, query, ()).all()
        for *single, tags, times in rows:
            named = [*zip(found, map(unescape_text, single), strict=False)]
            named += [("tag", each) for each in set(msgspec.json.decode(unescape_text(tags)))]
            for name, value in named:
                found[name][value] = found[name].get(value, 0) + times
        return {name: dict(sorted(values.items())) for name, values in found.items()}

    # ── Changing ──

    def create(self, scenario: Scenario, *, may_rename: bool = False) -> StoredScenario:
        """Add a scenario; if its ID is taken and `may_rename` is set, append the next free number."""
        with self._exclusive_write_transaction() as connection:
            found = scenario.id
            if may_rename:
                found = _next_free_id(found, connection)
            elif self._find_creation_times(connection, [found]):
                raise AlreadyExists(
                    f"the scenario {quote_text(found)} already exists; choose another ID, or edit the existing scenario"
                )
            now = timestamp()
            made = self._upsert(connection, replace(scenario, id=found), now, now)
            record_change(connection, "scenario", found, "created")
        return made

    def change(
        self, scenario_id: str, alter: Callable[[Scenario], Scenario], *, unchanged_since: str | None = None
    ) -> StoredScenario:
        """Replace a scenario by `alter(scenario)`.

        Raise `StateConflict` if it was updated since the time `unchanged_since`.
        """
        with self._exclusive_write_transaction() as connection:
            body, created, updated = self._read_row(connection, scenario_id)
            if unchanged_since is not None and unchanged_since != updated:
                raise StateConflict(
                    f"scenario {quote_text(scenario_id)} was changed by someone else at {updated}; reload the scenario "
                    "first"
                )
            made = self._upsert(connection, alter(_decode(_scenario_decoder, body)), created, timestamp())
            record_change(connection, "scenario", scenario_id, "updated")
        return made

    def _upsert(self, connection: Connection, scenario: Scenario, created: str, updated: str) -> StoredScenario:
        self._database.run_many(connection, _UPSERT_SCENARIO, [_make_row(scenario, created, updated)])
        return _make_stored(scenario, created, updated)

    def import_(self, new_scenarios: Sequence[Scenario], mode: ImportMode, *, dry_run: bool = False) -> ImportResult:
        """Import scenarios with unique IDs, all or none; raise `ScenarioIdsExist` if one exists in mode `fail`."""
        now = timestamp()
        ids = [each.id for each in new_scenarios]
        with self._database.read_transaction() if dry_run else self._exclusive_write_transaction() as connection:
            existing = self._find_creation_times(connection, ids)
            there = [each for each in ids if each in existing]
            if there and mode == "fail":
                raise ScenarioIdsExist(there)
            taken = new_scenarios if mode == "update" else [each for each in new_scenarios if each.id not in existing]
            if taken and not dry_run:
                self._database.run_many(connection, _UPSERT_SCENARIO, [_make_row(each, now, now) for each in taken])
                record_change(connection, "scenario", taken[0].id if len(taken) == 1 else str(len(taken)), "imported")
        return ImportResult(
            [each for each in ids if each not in existing],
            there if mode == "update" else [],
            there if mode == "skip" else [],
            [_make_stored(each, existing.get(each.id, now), now) for each in taken],
        )

    # ── Deleting and restoring ──

    def delete(self, scenario_id: str) -> DeletedScenario:
        """Delete a scenario; it can be restored for a day."""
        with self._exclusive_write_transaction() as connection:
            body, created, updated = self._read_row(connection, scenario_id)
            connection.execute(delete(scenarios).where(scenarios.c.id == scenario_id))
            old = deleted_scenarios.c
            connection.execute(
                delete(deleted_scenarios).where((old.id == scenario_id) | (old.deleted <= _oldest_restorable_time()))
            )
            now = timestamp()
            row = {"id": scenario_id, "body": body, "created": created, "updated": updated, "deleted": now}
            connection.execute(insert(deleted_scenarios), row)
            record_change(connection, "scenario", scenario_id, "deleted")
        return _make_deleted(body, created, updated, now)

    def restore(self, scenario_id: str) -> StoredScenario:
        """Restore a deleted scenario."""
        mine = deleted_scenarios.c.id == escape_text(scenario_id)
        columns = deleted_scenarios.c
        query = select(columns.body, columns.created, columns.updated, columns.deleted).where(mine)
        with self._exclusive_write_transaction() as connection:
            row = connection.execute(query).first()
            if row is None or row.deleted <= _oldest_restorable_time():
                raise NotFound(
                    f"there is no deleted scenario {quote_text(scenario_id)}; deleted scenarios can be restored for "
                    "one day"
                )
            if self._find_creation_times(connection, [scenario_id]):
                raise AlreadyExists(
                    f"the scenario {quote_text(scenario_id)} exists again and would be overwritten; delete or rename "
                    "the existing scenario first"
                )
            made = self._upsert(connection, _decode(_scenario_decoder, row.body), row.created, row.updated)
            connection.execute(delete(deleted_scenarios).where(mine))
            record_change(connection, "scenario", scenario_id, "restored")
        return made

    def list_deleted(self, offset: int, limit: int) -> tuple[Sequence[DeletedScenario], int]:
        """Return a page of the scenarios that can be restored, last deleted first, and the total."""
        columns = deleted_scenarios.c
        fresh = columns.deleted > _oldest_restorable_time()
        query = select(columns.body, columns.created, columns.updated, columns.deleted).where(fresh)
        query = query.order_by(columns.deleted.desc(), columns.id).limit(limit).offset(offset)
        with self._database.read_transaction() as connection:
            rows = connection.execute(query).all()
            total = connection.execute(select(func.count()).select_from(deleted_scenarios).where(fresh)).scalar_one()
        return [_make_deleted(*row) for row in rows], total

    # ── Internals ──

    @contextmanager
    def _exclusive_write_transaction(self) -> Iterator[Connection]:
        """Open a write transaction that excludes other changes of scenarios."""
        with self._database.write_transaction() as connection:
            self._database.lock(connection, LockKey.SCENARIOS)
            yield connection

    def _find_creation_times(self, connection: Connection, ids: Sequence[str]) -> dict[str, str]:
        """Return the IDs that exist, with their times of creation."""
        sqlite = self._database.is_sqlite
        given = _encode_json(ids).decode() if sqlite else list(ids)
        among = "IN (SELECT value FROM json_each(?))" if sqlite else "= ANY(?)"  # one value, however many IDs
        query = f"SELECT id, created FROM scenarios WHERE id {among}"  # noqa: S608 - constant texts, no user input
        return {row[0]: row[1] for row in self._database.run(connection, query, (given,))}

    def _read_row(self, connection: Connection, scenario_id: str) -> tuple[str, str, str]:
        mine = scenarios.c.id == escape_text(scenario_id)
        row = connection.execute(select(*scenarios.c["body", "created", "updated"]).where(mine)).first()
        if row is not None:
            return row[0], row[1], row[2]
        gone = deleted_scenarios.c.id == escape_text(scenario_id)
        since = connection.execute(select(deleted_scenarios.c.deleted).where(gone)).scalar()
        hint = (
            f"; the scenario was deleted at {since} and can be restored for one day"
            if since and since > _oldest_restorable_time()
            else ""
        )
        raise NotFound(f"there is no scenario {quote_text(scenario_id)}{hint}")

    def _make_where_clause(self, selection: Selection) -> tuple[str, list[str]]:
        """Return the WHERE clause of a selection, empty if it selects all, and its values."""
        among = {
            "id": selection.ids,
            "type": selection.categories,
            "difficulty": selection.difficulties,
            "language": selection.languages,
        }
        found = [f"{name} IN ({', '.join('?' * len(named))})" for name, named in among.items() if named]
        has_tag = f"{self._place}(tags, ?) > 0"
        found += [f"({' OR '.join([has_tag] * len(selection.tags))})"] if selection.tags else []
        found += [has_tag] * len(selection.all_tags)
        values = [
            *chain.from_iterable(among.values()),
            *map(_make_tag_search_text, (*selection.tags, *selection.all_tags)),
        ]
        return f" WHERE {' AND '.join(found)}" if found else "", [escape_text(each) for each in values]


_TIMES_AS_JSON_SQL = """|| ',"created_at":"' || created || '","updated_at":"' || updated || '"}', ','"""


def _decode(decoder: msgspec.json.Decoder[_Decoded], text: str) -> _Decoded:
    """Decode stored JSON; it may be damaged by other programs or a failing disk."""
    try:
        return decoder.decode(unescape_text(text))
    except (msgspec.DecodeError, UnicodeError) as error:
        raise StoreFailed(f"a scenario in the store is damaged ({error}); restore the store from a backup") from error


def _decode_row(body: str, created: str, updated: str) -> StoredScenario:
    return _make_stored(_decode(_scenario_decoder, body), created, updated)


def _make_stored(scenario: Scenario, created: str, updated: str) -> StoredScenario:
    return StoredScenario(**asdict(scenario), created_at=created, updated_at=updated)


def _make_row(scenario: Scenario, created: str, updated: str) -> tuple[str, ...]:
    tags = "[" + ",".join(map(_delimit_tag, scenario.tags)) + "]"
    texts = (
        scenario.name,
        scenario.type,
        scenario.difficulty,
        scenario.language,
        tags,
        _encode_json(scenario).decode(),
    )
    return (scenario.id, *map(escape_text, texts), created, updated)


def _delimit_tag(tag: str) -> str:
    """Return a tag as stored in the list: between line breaks, which cannot occur unescaped inside a JSON string."""
    return f"\n{_encode_json(tag).decode()}\n"


def _make_tag_search_text(tag: str) -> str:
    """Return the text to search a list of tags for: the whole tag, or its beginning if it is a prefix."""
    return _delimit_tag(tag)[:-2] if is_tag_prefix(tag) else _delimit_tag(tag)


def _oldest_restorable_time() -> str:
    return (clock.now() - RESTORE_PERIOD).isoformat(timespec="milliseconds")


def _make_deleted(body: str, created: str, updated: str, deleted: str) -> DeletedScenario:
    until = datetime.fromisoformat(deleted) + RESTORE_PERIOD
    return DeletedScenario(_decode_row(body, created, updated), deleted, until.isoformat(timespec="milliseconds"))


def _next_free_id(wanted_id: str, connection: Connection) -> str:
    like = scenarios.c.id.startswith(f"{wanted_id}-", autoescape=True)
    taken = set(connection.scalars(select(scenarios.c.id).where((scenarios.c.id == wanted_id) | like)))
    return (
        wanted_id
        if wanted_id not in taken
        else next(found for n in count(2) if (found := f"{wanted_id}-{n}") not in taken)
    )
