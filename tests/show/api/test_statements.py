"""SQL statements per response about a run: its row is read only once."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from pramana.store.store import Store

from .served import Client
from .test_models import add_run


@contextmanager
def record_statements(store: Store) -> Iterator[list[str]]:
    """Record the SQL statements that a block runs, without those that begin and end transactions.

    The scheduler of the server looks for due watches and alerts every few seconds, in the same engine; what it reads is no
    part of a response.
    """
    ran: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if not statement.startswith("BEGIN") and "watch" not in statement:
            ran.append(re.sub(r"\s+", " ", statement))

    event.listen(store._database._engine, "before_cursor_execute", note)
    try:
        yield ran
    finally:
        event.remove(store._database._engine, "before_cursor_execute", note)


def reads_run_row(statement: str) -> bool:
    return 'runs."plan"' in statement


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/api/runs/{run}", 9),
        ("/api/runs/{run}?summary=false", 6),
        ("/api/runs/{run}/results", 5),
        ("/api/runs/{run}/results?outcome=failed", 6),
        ("/api/runs/{run}/results/{seq}", 8),
        ("/api/runs?outcomes=true", 7),
    ],
)
def test_the_row_of_a_run_is_read_only_once(client: Client, path: str, most: int) -> None:
    """Also for pages of the workbench, which call the same functions."""
    assert client.store
    run = add_run(client.store, ["passed", "failed", "passed"])
    ((seq, _), *_) = client.store.results.iterate(run)
    asked = path.format(run=run, seq=seq)
    client.get("/api/me")  # the caller and the server settings are read for every request
    with record_statements(client.store) as ran:
        assert client.get(asked).status == 200
    assert sum(map(reads_run_row, ran)) == 1, ran
    assert len(ran) <= most, ran
