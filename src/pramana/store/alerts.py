"""Where the alerts of watches are sent, and which were delivered: nouns in, rows out, and back again.

An alert is stored by the transaction that ends its day (`watches`). Each attempt to deliver it is recorded before
anything is sent, together with the time of the next attempt, so an alert survives every process that sends it: it is
delivered at least once, always under the same ID. URLs and secrets are stored encrypted; only `open_channel` decrypts
them.
"""

from collections.abc import Callable, Collection
from typing import Literal

import msgspec
from msgspec import Struct
from sqlalchemy import or_, select, update

from pramana.store.engine import Database, StorePart, record_change, timestamp
from pramana.store.records import escape_text
from pramana.store.schema import watch_alerts, watches
from pramana.store.watches import EncryptedChannel, Watch, WatchAlert, alert_from_row, watch_from_row
from pramana.vault import Vault, open_vault

MAX_ERROR_LENGTH = 500
_MAX_DUE_ALERTS = 100


class AlertChannel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the alerts of a watch are sent, as it may be shown: without the URL of a webhook and without its secret."""

    kind: Literal["webhook", "command"]
    host: str | None = None
    """The host of a webhook."""
    is_signed: bool = False
    url_variable: str | None = None
    """The environment variable that holds the URL of a webhook; only for watches of the command line."""
    secret_variable: str | None = None
    """The environment variable that holds the secret of a webhook; only for watches of the command line."""
    command: str | None = None
    """A command by its name in the local configuration; only for watches of the command line."""

    @property
    def shown_name(self) -> str:
        """Its host, or the name of its command."""
        return self.command or self.host or f"${self.url_variable}"


class ChannelSecrets(Struct, frozen=True, omit_defaults=True):
    """What is stored encrypted of a channel."""

    url: str | None = None
    secret: str | None = None


class DueAlert(Struct, frozen=True):
    """An alert to deliver now."""

    number: int
    watch: Watch
    alert: WatchAlert


class Alerts(StorePart):
    """The delivery of the alerts of a store."""

    def __init__(self, database: Database, vault: Callable[[], Vault] = open_vault) -> None:
        super().__init__(database)
        self._vault = vault

    # ── Channels ──

    def encrypt_channel(self, channel: AlertChannel, secrets: ChannelSecrets) -> EncryptedChannel:
        """Return a channel as it is stored; raise `Locked` if there are secrets and no vault."""
        plain = msgspec.json.encode(secrets).decode()
        encrypted = None if secrets == ChannelSecrets() else self._vault().encrypt(plain)
        return EncryptedChannel(escape_text(msgspec.json.encode(channel).decode()), encrypted)

    def change_channel(self, watch: Watch, channel: EncryptedChannel | None) -> None:
        """Send the alerts of a watch somewhere else from now on, or nowhere."""
        values = {"delivery": None, "delivery_secret": None} if channel is None else msgspec.structs.asdict(channel)
        with self._database.write_transaction() as connection:
            connection.execute(update(watches).where(watches.c.watch_no == watch.number), values)
            record_change(connection, "watch", watch.id, "updated")

    def decrypt_secrets(self, watch: Watch) -> ChannelSecrets:
        """Return the URL and the secret of a watch's webhook; raise `Locked` if no key decrypts them."""
        encrypted = self._fetch_value(select(watches.c.delivery_secret).where(watches.c.watch_no == watch.number))
        if encrypted is None:
            return ChannelSecrets()
        return msgspec.json.decode(self._vault().decrypt(encrypted), type=ChannelSecrets)

    # ── Delivery ──

    def list_due(self, owners: Collection[str], now: float) -> list[DueAlert]:
        """Return the alerts to deliver now, oldest first: those of watches with a channel, of these owners."""
        due = or_(watch_alerts.c.next_attempt <= now, watch_alerts.c.attempts == 0)
        query = select(watch_alerts).join_from(watch_alerts, watches)
        query = query.where(watch_alerts.c.delivered.is_(None), watches.c.delivery.is_not(None), due)
        query = query.where(watches.c.owner.in_(owners)).order_by(watch_alerts.c.alert_no).limit(_MAX_DUE_ALERTS)
        with self._database.read_transaction() as connection:
            rows = connection.execute(query).mappings().all()
            if not rows:
                return []
            of = select(watches).where(watches.c.watch_no.in_({row["watch_no"] for row in rows}))
            known = {row["watch_no"]: watch_from_row(row) for row in connection.execute(of).mappings()}
        found = ((row, known[row["watch_no"]]) for row in rows)
        return [DueAlert(row["alert_no"], watch, alert_from_row(row, watch.id)) for row, watch in found]

    def begin_attempt(self, due: DueAlert, next_attempt: float | None) -> bool:
        """Record that an alert is about to be sent, and when to try again; one of several processes succeeds."""
        mine = (watch_alerts.c.alert_no == due.number, watch_alerts.c.attempts == due.alert.attempts)
        claim = update(watch_alerts).where(*mine, watch_alerts.c.delivered.is_(None))
        values = {"attempts": due.alert.attempts + 1, "next_attempt": next_attempt}
        with self._database.write_transaction() as connection:
            return connection.execute(claim, values).rowcount == 1

    def record_delivered(self, due: DueAlert) -> None:
        """Record that an alert was delivered."""
        values = {"delivered": timestamp(), "next_attempt": None, "error": None}
        with self._database.write_transaction() as connection:
            connection.execute(update(watch_alerts).where(watch_alerts.c.alert_no == due.number), values)
            record_change(connection, "watch", due.watch.id, "alert delivered")

    def record_failure(self, due: DueAlert, error: str, next_attempt: float | None) -> None:
        """Record why an alert was not delivered, and when to try again; None gives it up."""
        mine = (watch_alerts.c.alert_no == due.number, watch_alerts.c.delivered.is_(None))
        values = {"error": escape_text(error[:MAX_ERROR_LENGTH]), "next_attempt": next_attempt}
        with self._database.write_transaction() as connection:
            connection.execute(update(watch_alerts).where(*mine), values)
            record_change(connection, "watch", due.watch.id, "alert not delivered")
