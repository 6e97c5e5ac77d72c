"""Server settings of the administrator: read often, written rarely, the same for all processes of a store.

Prices (US dollars per million tokens, by model name) are stored as settings too, one row each, so that two prices set
at the same time do not overwrite each other.
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
"""Pattern of an allowed CORS origin."""
_Origin = Annotated[str, msgspec.Meta(pattern=ORIGIN_PATTERN, max_length=300, examples=["https://bench.example"])]


class Preferences(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Server settings, with defaults for those that were never set."""

    anonymous_submission: bool = False
    """Whether to accept community results without a token."""
    refuse_unverified: bool = False
    """Whether to reject results of suites that are unknown to this server, instead of storing them separately."""
    allow_private_addresses: bool = False
    """Whether recordings and models may be at private addresses; a server that listens on this machine only always
    allows it."""
    requests_per_minute: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1_200
    """Per token, or per address for requests without a token."""
    largest_body_mb: Annotated[int, msgspec.Meta(ge=1, le=1_024)] = 32
    largest_upload_mb: Annotated[int, msgspec.Meta(ge=1, le=10_240)] = 50
    """Per recording."""
    cors_origins: Annotated[tuple[_Origin, ...], msgspec.Meta(max_length=100)] = ()
    """Origins whose pages may use the API, such as https://bench.example."""


class PreferencesStore(StorePart):
    """The settings of a store."""

    def read(self) -> Preferences:
        """Return the current settings."""
        mine = preferences.c.name.in_(Preferences.__struct_fields__)  # prices are in the same table
        query = select(preferences.c.name, preferences.c.value).where(mine)
        known = {name: msgspec.json.decode(value) for name, value in self._fetch_rows(query)}
        if origins := known.get("cors_origins"):
            known["cors_origins"] = [each for each in origins if _is_valid_origin(each)]
        return msgspec.convert(known, Preferences)

    def write(self, changes: Mapping[str, Any]) -> Preferences:
        """Change some settings, all or none; None resets one to its default."""
        names = Preferences.__struct_fields__
        for name in changes:
            if name not in names:
                raise InvalidInput(f"unknown setting {quote_text(name)}{suggest_similar(name, names)}")
        kept = {name: value for name, value in changes.items() if value is not None}
        try:
            msgspec.convert(kept, Preferences)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"invalid setting: {error}") from None
        with self._database.write_transaction() as connection:
            for name in sorted(changes):  # in a fixed order, so that two writers cannot deadlock
                if name in kept:
                    row = (name, msgspec.json.encode(kept[name]).decode(), timestamp())
                    self._database.run_many(connection, UPSERT_PREFERENCE, [row])
                else:
                    connection.execute(delete(preferences).where(preferences.c.name == name))
            record_change(connection, "settings", ", ".join(sorted(changes)), "updated")
        return self.read()


def _is_valid_origin(origin: Any) -> bool:
    # Origins stored before the rule became stricter are dropped: a server that does not start cannot be used to fix
    # them.
    try:
        msgspec.convert(origin, _Origin)
    except msgspec.ValidationError:
        return False
    return True


# ── Prices ──

_PRICE_NAME_PREFIX = "price:"
"""Prefix of a price's row; no setting begins with it."""


class CustomPrice(msgspec.Struct, frozen=True):
    """A price set by an administrator."""

    model: str
    rates: "Rates"
    updated: str


class CustomPrices(StorePart):
    """The prices of a store."""

    def list(self) -> list[CustomPrice]:
        """Return all prices, by model name."""
        rows = select(preferences).where(preferences.c.name.startswith(_PRICE_NAME_PREFIX)).order_by(preferences.c.name)
        return [
            CustomPrice(unescape_text(name.removeprefix(_PRICE_NAME_PREFIX)), _parse_rates(value), updated)
            for name, value, updated in self._fetch_rows(rows)
        ]

    def read_rates(self) -> "dict[str, Rates]":
        """Return the rates by which runs are priced, by model name."""
        return {each.model: each.rates for each in self.list()}

    def put(self, model: str, rates: "Rates") -> None:
        """Set a price; it applies to runs that start or resume from now on."""
        value = {
            "input": rates.input_per_million,
            "output": rates.output_per_million,
            "cached": rates.cached_per_million,
        }
        row = (_PRICE_NAME_PREFIX + escape_text(model), msgspec.json.encode(value).decode(), timestamp())
        with self._database.write_transaction() as connection:
            self._database.run_many(connection, UPSERT_PREFERENCE, [row])
            record_change(connection, "price", model, "updated")

    def delete(self, model: str) -> CustomPrice:
        """Delete a price and return it."""
        every = {each.model: each for each in self.list()}
        with self._database.write_transaction() as connection:
            mine = preferences.c.name == _PRICE_NAME_PREFIX + escape_text(model)
            if not connection.execute(delete(preferences).where(mine)).rowcount or model not in every:
                raise NotFound(
                    f"no price for {quote_text(model)} was set on this server{suggest_similar(model, every)}"
                )
            record_change(connection, "price", model, "deleted")
        return every[model]


def _parse_rates(value: str) -> "Rates":
    from pramana.providers.prices import Rates

    said = msgspec.json.decode(value)
    return Rates(0, said["input"], said["output"], said["cached"])
