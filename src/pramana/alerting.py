"""Delivery of alerts: stored alerts go in, and one webhook request or one command each goes out.

An alert is delivered at least once and keeps its ID, so a receiver can ignore the second of two equal IDs. A failed
delivery is tried again with growing delays for about a day; attempts and their times are in the store, so they survive
a restart, and several processes share them. Nothing here decides whether there is an alert.
"""

import asyncio
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from pramana import clock, settings
from pramana.analyse.watch_sentences import describe_alert
from pramana.errors import (
    ApiKeyInReply,
    InvalidInput,
    PramanaError,
    SecretsLocked,
    describe_exception,
    quote_text,
    suggest_similar,
)
from pramana.jsonl import to_canonical_json
from pramana.model import Request, Turn
from pramana.providers.text.command import CommandProvider
from pramana.providers.webhook import Webhook, check_webhook, check_webhook_url, post_alert
from pramana.store.alerts import AlertChannel, ChannelSecrets, DueAlert
from pramana.store.engine import timestamp
from pramana.store.store import Store
from pramana.store.watches import EncryptedChannel, Watch, WatchAlert
from pramana.watch_request import AlertDestination

RETRY_DELAYS_S = (60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 21_600.0, 43_200.0)
"""Seconds between the attempts to deliver an alert: ten attempts in 26 hours."""
MAX_ATTEMPTS = len(RETRY_DELAYS_S) + 1
MAX_RETRY_AFTER_S = 3_600.0
"""The longest delay that a receiver may ask for."""
COMMAND_TIMEOUT_S = 60.0
"""Timeout of a command that sets none in the local configuration."""
MAX_CONCURRENT_DELIVERIES = 8
"""Deliveries under way at the same time."""
TEST_SENTENCE = "This is a test alert: nothing has changed. Real alerts of this watch arrive here."


class DeliveryAttempt(NamedTuple):
    """What came of one attempt to deliver an alert."""

    watch: Watch
    alert: WatchAlert
    channel: str
    """The host of the webhook, or the name of the command."""
    error: str | None = None
    next_attempt_at: float | None = None
    """When it is tried again, as a Unix time; None if it was delivered or given up."""


class AlertSettings(NamedTuple):
    """What the deliveries of one process share."""

    link_prefix: str | None = None
    """The URL of the pages of watches, to which an ID is appended; None: alerts have no link."""
    allow_private: bool = True
    """Whether webhooks of a server's users may be at private addresses."""


def make_alert_settings(base_url: str | None = None, *, allow_private: bool = True) -> AlertSettings:
    """Return the settings of deliveries; links lead to `PRAMANA_PUBLIC_URL`, or to `base_url`."""
    base = settings.public_url() or base_url
    return AlertSettings(None if base is None else f"{base}/drift/", allow_private)


# ── Channels ──


def make_channel(store: Store, delivery: AlertDestination, *, is_local: bool, allow_private: bool) -> EncryptedChannel:
    """Check where alerts are to be sent and return it as it is stored; sends nothing.

    Commands and environment variables are for this machine's user only: `is_local`.
    """
    if not is_local and (delivery.command or delivery.url_variable or delivery.secret_variable):
        raise InvalidInput("alerts of a server's watches are sent to webhooks, not to commands or variables")
    if delivery.command is not None:
        _open_command(delivery.command)
        return store.alerts.encrypt_channel(AlertChannel(kind="command", command=delivery.command), ChannelSecrets())
    url, secret = delivery.url, delivery.secret
    host = None if url is None else check_webhook_url(url).host_port_subcomponent
    channel = AlertChannel(
        kind="webhook",
        host=host,
        is_signed=secret is not None or delivery.secret_variable is not None,
        url_variable=delivery.url_variable,
        secret_variable=delivery.secret_variable,
    )
    stored = ChannelSecrets(url, secret)
    check_webhook(_open_webhook(channel, stored, allow_private=allow_private))
    try:
        return store.alerts.encrypt_channel(channel, stored)
    except SecretsLocked as error:
        if not is_local:
            raise
        raise SecretsLocked(f"{error}; or name an environment variable with the URL of the webhook") from None


def read_channel(watch: Watch) -> AlertChannel | None:
    """Return where the alerts of a watch are sent; None: nowhere."""
    return None if watch.delivery is None else msgspec.convert(dict(watch.delivery), AlertChannel)


def _open_webhook(channel: AlertChannel, stored: ChannelSecrets, *, allow_private: bool) -> Webhook:
    url = stored.url if channel.url_variable is None else _read_variable(channel.url_variable)
    secret = stored.secret if channel.secret_variable is None else _read_variable(channel.secret_variable)
    return Webhook(url or "", secret, allow_private)


def _read_variable(name: str) -> str:
    if (value := settings.read_variable(name)) is None:
        raise InvalidInput(f"the environment variable {quote_text(name)} of the webhook is not set")
    return value


def _open_command(name: str) -> CommandProvider:
    commands = settings.read_agent_command_settings()
    if name not in commands:
        raise InvalidInput(
            f"there is no command {quote_text(name)} in {settings.data_folder() / 'config.toml'}"
            f'{suggest_similar(name, commands)}; add [commands.{name}] with argv = ["program", "argument"]'
        )
    command = commands[name]
    return CommandProvider(command["argv"], command.get("timeout_s", COMMAND_TIMEOUT_S))


# ── What is sent ──


def make_payload(watch: Watch, alert: WatchAlert, alerts: AlertSettings, *, is_test: bool = False) -> dict[str, Any]:
    """Return the JSON of an alert: `text` as Slack shows it, and fields for programs."""
    sentence = TEST_SENTENCE if is_test else describe_alert(alert.level, alert.day, alert.body)
    link = None if alerts.link_prefix is None else f"{alerts.link_prefix}{watch.id}"
    shown = f"{watch.shown_name} ({watch.model})" if watch.name else watch.model
    text = f"{shown}: {sentence}" + (f" {link}" if link else "")
    return {
        "text": _escape_for_slack(text),
        "id": alert.id,
        "test": is_test,
        "watch": watch.id,
        "name": watch.name,
        "model": watch.model,
        "level": alert.level,
        "day": alert.day,
        "sentence": sentence,
        "link": link,
        "instruments": alert.body.get("instruments", []),
        "created": alert.created,
    }


def _escape_for_slack(text: str) -> str:
    """Return a text in which Slack finds no links and no mentions: a model's name may be `<!channel>`.

    >>> _escape_for_slack("<!channel> & co")
    '&lt;!channel&gt; &amp; co'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def encode_payload(payload: Mapping[str, Any]) -> bytes:
    """Return the body of a delivery."""
    try:
        return msgspec.json.encode(payload)
    except (UnicodeEncodeError, ValueError):  # half a surrogate pair in a name
        return to_canonical_json(payload)


# ── Delivery ──


async def send_test_alert(store: Store, watch: Watch, alerts: AlertSettings) -> DeliveryAttempt:
    """Send an alert that is marked as a test, once; nothing of it is stored. Raises what went wrong."""
    channel = read_channel(watch)
    if channel is None:
        raise InvalidInput(f"watch {watch.shown_name} sends its alerts nowhere; it was started without a webhook")
    now = timestamp()
    alert = WatchAlert(
        id=f"test-{secrets.token_hex(8)}", watch=watch.id, period=0, level="test", day=now[:10], body={}, created=now
    )
    await _send(store, watch, channel, alert, alerts, is_test=True)
    return DeliveryAttempt(watch, alert, channel.shown_name)


async def deliver_due_alerts(store: Store, owners: Collection[str], alerts: AlertSettings) -> list[DeliveryAttempt]:
    """Deliver the alerts that are due, several at once, and store what came of each."""
    due = await asyncio.to_thread(store.alerts.list_due, owners, clock.timestamp())
    slots = asyncio.Semaphore(MAX_CONCURRENT_DELIVERIES)

    async def deliver(each: DueAlert) -> DeliveryAttempt | None:
        async with slots:
            return await _deliver(store, each, alerts)

    found = await asyncio.gather(*map(deliver, due))
    return [each for each in found if each is not None]


async def _deliver(store: Store, due: DueAlert, alerts: AlertSettings) -> DeliveryAttempt | None:
    """Try to deliver an alert; None if another process is doing so."""
    channel = read_channel(due.watch)
    if channel is None:
        return None
    attempt = due.alert.attempts
    delay_s = RETRY_DELAYS_S[attempt] if attempt < len(RETRY_DELAYS_S) else None
    next_attempt = None if delay_s is None else clock.timestamp() + delay_s
    if not await asyncio.to_thread(store.alerts.begin_attempt, due, next_attempt):
        return None
    try:
        await _send(store, due.watch, channel, due.alert, alerts)
    except Exception as error:  # noqa: BLE001 - whatever it is, the alert is not delivered
        said = str(error) if isinstance(error, PramanaError) else describe_exception(error)
        if next_attempt is not None and (asked := getattr(error, "retry_after", None)):
            next_attempt = max(next_attempt, clock.timestamp() + min(asked, MAX_RETRY_AFTER_S))
        await asyncio.to_thread(store.alerts.record_failure, due, said, next_attempt)
        return DeliveryAttempt(due.watch, due.alert, channel.shown_name, said, next_attempt)
    await asyncio.to_thread(store.alerts.record_delivered, due)
    return DeliveryAttempt(due.watch, due.alert, channel.shown_name)


async def _send(
    store: Store,
    watch: Watch,
    channel: AlertChannel,
    alert: WatchAlert,
    alerts: AlertSettings,
    *,
    is_test: bool = False,
) -> None:
    body = encode_payload(make_payload(watch, alert, alerts, is_test=is_test))
    is_local = watch.owner == "cli"
    if channel.kind == "command":
        if channel.command is None or not is_local:
            raise InvalidInput("only a watch of the command line runs a command")
        with suppress(ApiKeyInReply):  # what it prints is not stored
            await _open_command(channel.command).ask(Request("", (Turn("user", body.decode()),), {}))
        return
    if not is_local and (channel.url_variable or channel.secret_variable):
        raise InvalidInput("only a watch of the command line reads environment variables")
    stored = await asyncio.to_thread(store.alerts.decrypt_secrets, watch)
    hook = _open_webhook(channel, stored, allow_private=is_local or alerts.allow_private)
    await post_alert(hook, alert.id, body)
