"""What an administrator decides for everyone: read often, written seldom, the same for every process of a store."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from sqlalchemy import delete, select

from pramana.errors import InvalidInput, did_you_mean, quote
from pramana.store.changes import record
from pramana.store.engine import Part
from pramana.store.schema import preferences
from pramana.store.scoring import timestamp

PUT = (
    "INSERT INTO preferences (name, value, updated) VALUES (?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated = excluded.updated"
)
ORIGIN = r"^https?://[^/?#\s@*]+$"
"""What a page of another host may be called."""
_Origin = Annotated[str, msgspec.Meta(pattern=ORIGIN, max_length=300, examples=["https://bench.example"])]


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


class Decisions(Part):
    """The preferences of a store."""

    def read(self) -> Preferences:
        """Return what holds now."""
        with self._database.reading() as connection:
            mine = preferences.c.name.in_(Preferences.__struct_fields__)  # prices are kept beside them
            rows = connection.execute(select(preferences.c.name, preferences.c.value).where(mine)).all()
        known = {name: msgspec.json.decode(value) for name, value in rows}
        if origins := known.get("cors_origins"):
            known["cors_origins"] = [each for each in origins if _fits(each)]
        return msgspec.convert(known, Preferences)

    def write(self, changed: Mapping[str, Any]) -> Preferences:
        """Decide anew about some of them; None takes a decision back. All are good, or none is taken."""
        names = Preferences.__struct_fields__
        for name in changed:
            if name not in names:
                raise InvalidInput(f"there is no setting {quote(name)}{did_you_mean(name, names)}")
        kept = {name: value for name, value in changed.items() if value is not None}
        try:
            msgspec.convert(kept, Preferences)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"this setting does not fit: {error}") from None
        with self._database.writing() as connection:
            for name in sorted(changed):  # in one order, or two who decide at once wait for each other for ever
                if name in kept:
                    row = (name, msgspec.json.encode(kept[name]).decode(), timestamp())
                    self._database.run_many(connection, PUT, [row])
                else:
                    connection.execute(delete(preferences).where(preferences.c.name == name))
            record(connection, "settings", ", ".join(sorted(changed)), "updated")
        return self.read()


def _fits(origin: Any) -> bool:
    # What was kept before the rule became stricter is left out: a server that does not start helps nobody to mend it.
    try:
        msgspec.convert(origin, _Origin)
    except msgspec.ValidationError:
        return False
    return True
