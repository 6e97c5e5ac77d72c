"""Prices that were set for everyone: dollars a million tokens by the name of a model, the same for every process.

They are preferences like others, a row each, so that two who set two prices at once do not undo each other.
"""

from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import delete, select

from pramana.errors import NotFound, did_you_mean, quote
from pramana.store.changes import record
from pramana.store.engine import Part
from pramana.store.preferences import PUT
from pramana.store.schema import preferences
from pramana.store.scoring import timestamp
from pramana.store.text import restored, stored

if TYPE_CHECKING:
    from pramana.providers.prices import Rates

_BEGINNING = "price:"
"""Of the name of a row; no decision is called so."""


class SetPrice(msgspec.Struct, frozen=True):
    """What somebody has set."""

    model: str
    rates: "Rates"
    updated: str


class SetPrices(Part):
    """The prices of a store."""

    def list(self) -> list[SetPrice]:
        """Return all of them, by name."""
        rows = select(preferences).where(preferences.c.name.startswith(_BEGINNING)).order_by(preferences.c.name)
        with self._database.reading() as connection:
            return [
                SetPrice(restored(name.removeprefix(_BEGINNING)), _rates(value), updated)
                for name, value, updated in connection.execute(rows)
            ]

    def rates(self) -> "dict[str, Rates]":
        """Return what a run is counted by."""
        return {each.model: each.rates for each in self.list()}

    def put(self, model: str, rates: "Rates") -> None:
        """Set a price; runs that begin or go on from now on are counted by it."""
        value = {"input": rates.input, "output": rates.output, "cached": rates.cached}
        row = (_BEGINNING + stored(model), msgspec.json.encode(value).decode(), timestamp())
        with self._database.writing() as connection:
            self._database.run_many(connection, PUT, [row])
            record(connection, "price", model, "updated")

    def delete(self, model: str) -> SetPrice:
        """Take a price back; return what it was."""
        every = {each.model: each for each in self.list()}
        with self._database.writing() as connection:
            mine = preferences.c.name == _BEGINNING + stored(model)
            if not connection.execute(delete(preferences).where(mine)).rowcount or model not in every:
                raise NotFound(f"no price was set for {quote(model)}{did_you_mean(model, every)}")
            record(connection, "price", model, "deleted")
        return every[model]


def _rates(value: str) -> "Rates":
    from pramana.providers.prices import Rates

    said = msgspec.json.decode(value)
    return Rates(0, said["input"], said["output"], said["cached"])
