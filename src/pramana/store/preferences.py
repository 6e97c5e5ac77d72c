"""What an administrator decides for everyone: read often, written seldom, the same for every process of a store.

Prices (dollars a million tokens by the name of a model) are preferences like others, a row each, so that two who set
two prices at once do not undo each other.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from sqlalchemy import delete, select

from pramana.errors import InvalidInput, NotFound, quote_text, suggest_similar
from pramana.store.engine import StorePart, record_change, timestamp
from pramana.store.records import escape_text, unescape_text
from pramana.store.schema import preferences

if TYPE_CHECKING:
    from pramana.providers.prices import Rates


UPSERT_PREFERENCE = (
    "INSERT INTO preferences (name, value, updated) VALUES (?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated = excluded.updated"
)
ORIGIN_PATTERN = r"^https?://[^/?#\s@*]+$"
"""What a page of another host may be called."""
_Origin = Annotated[str, msgspec.Meta(pattern=ORIGIN_PATTERN, max_length=300, examples=["https://bench.example"])]


class Preferences(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is decided; the defaults hold until somebody does."""

    anonymous_submission: bool = False
    """Whether results are taken from people without a token."""
    refuse_unverified: bool = False
    """Whether results of a suite that nobody here knows are refused, instead of kept apart."""
    allow_private_addresses: bool = False
    """Whether recordings and models may be at private addresses; of a server for this machine alone they always may."""
    requests_per_minute: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1_200
    """Of one token; of one address without."""
    largest_body_mb: Annotated[int, msgspec.Meta(ge=1, le=1_024)] = 32
    largest_upload_mb: Annotated[int, msgspec.Meta(ge=1, le=10_240)] = 50
    """Of one recording."""
    cors_origins: Annotated[tuple[_Origin, ...], msgspec.Meta(max_length=100)] = ()
    """Pages of other hosts that may use the API, such as https://bench.example."""


class PreferencesStore(StorePart):
    """The preferences of a store."""

    def read(self) -> Preferences:
        """Return what holds now."""
        mine = preferences.c.name.in_(Preferences.__struct_fields__)  # prices are kept beside them
        query = select(preferences.c.name, preferences.c.value).where(mine)
        known = {name: msgspec.json.decode(value) for name, value in self._rows(query)}
        if origins := known.get("cors_origins"):
            known["cors_origins"] = [each for each in origins if _is_valid_origin(each)]
        return msgspec.convert(known, Preferences)

    def write(self, changed: Mapping[str, Any]) -> Preferences:
        """Decide anew about some of them; None takes a decision back. All are good, or none is taken."""
        names = Preferences.__struct_fields__
        for name in changed:
            if name not in names:
                raise InvalidInput(f"unknown setting {quote_text(name)}{suggest_similar(name, names)}")
        kept = {name: value for name, value in changed.items() if value is not None}
        try:
            msgspec.convert(kept, Preferences)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"invalid setting: {error}") from None
        with self._database.write_transaction() as connection:
            for name in sorted(changed):  # in one order, or two who decide at once wait for each other for ever
                if name in kept:
                    row = (name, msgspec.json.encode(kept[name]).decode(), timestamp())
                    self._database.run_many(connection, UPSERT_PREFERENCE, [row])
                else:
                    connection.execute(delete(preferences).where(preferences.c.name == name))
            record_change(connection, "settings", ", ".join(sorted(changed)), "updated")
        return self.read()


def _is_valid_origin(origin: Any) -> bool:
    # What was kept before the rule became stricter is left out: a server that does not start helps nobody to mend it.
    try:
        msgspec.convert(origin, _Origin)
    except msgspec.ValidationError:
        return False
    return True


# ── Prices that were set for everyone ──

_PRICE_PREFIX = "price:"
"""Of the name of a row; no decision is called so."""


class SetPrice(msgspec.Struct, frozen=True):
    """What somebody has set."""

    model: str
    rates: "Rates"
    updated: str


class SetPrices(StorePart):
    """The prices of a store."""

    def list(self) -> list[SetPrice]:
        """Return all of them, by name."""
        rows = select(preferences).where(preferences.c.name.startswith(_PRICE_PREFIX)).order_by(preferences.c.name)
        return [
            SetPrice(unescape_text(name.removeprefix(_PRICE_PREFIX)), _parse_rates(value), updated)
            for name, value, updated in self._rows(rows)
        ]

    def rates(self) -> "dict[str, Rates]":
        """Return what a run is counted by."""
        return {each.model: each.rates for each in self.list()}

    def put(self, model: str, rates: "Rates") -> None:
        """Set a price; runs that begin or go on from now on are counted by it."""
        value = {"input": rates.input, "output": rates.output, "cached": rates.cached}
        row = (_PRICE_PREFIX + escape_text(model), msgspec.json.encode(value).decode(), timestamp())
        with self._database.write_transaction() as connection:
            self._database.run_many(connection, UPSERT_PREFERENCE, [row])
            record_change(connection, "price", model, "updated")

    def delete(self, model: str) -> SetPrice:
        """Take a price back; return what it was."""
        every = {each.model: each for each in self.list()}
        with self._database.write_transaction() as connection:
            mine = preferences.c.name == _PRICE_PREFIX + escape_text(model)
            if not connection.execute(delete(preferences).where(mine)).rowcount or model not in every:
                raise NotFound(f"no price was set for {quote_text(model)}{suggest_similar(model, every)}")
            record_change(connection, "price", model, "deleted")
        return every[model]


def _parse_rates(value: str) -> "Rates":
    from pramana.providers.prices import Rates

    said = msgspec.json.decode(value)
    return Rates(0, said["input"], said["output"], said["cached"])
