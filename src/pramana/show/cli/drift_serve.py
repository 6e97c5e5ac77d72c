"""`pramana drift serve` and `test-alert`: measures due watches without HTTP, and sends a test of an alert."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from pramana.errors import escape_control_characters
from pramana.report import terminal
from pramana.show.cli.options import JSON_OPTION, GroupedCommand, open_local_store

if TYPE_CHECKING:
    from pramana.scheduling import SchedulerEvent
    from pramana.store.store import Store
    from pramana.watch_request import AlertDestination

VARIABLE_PREFIX = "env:"
_Command = Callable[..., Any]


def add_alert_options(command: _Command) -> _Command:
    """Add the options that say where the alerts of a watch are sent."""
    for option in (
        click.option(
            "--on-alert",
            "alert_command",
            metavar="NAME",
            help="Command of config.toml that gets each alert as JSON on its standard input",
        ),
        click.option(
            "--webhook-secret-env",
            "webhook_secret_variable",
            metavar="VARIABLE",
            help="Environment variable with the secret that signs what is sent to the webhook",
        ),
        click.option(
            "--webhook",
            metavar="URL",
            help="Webhook that gets each alert, such as one of Slack; env:VARIABLE reads its URL from there",
        ),
    ):
        command = option(command)
    return command


def make_alert_delivery(
    webhook: str | None, secret_variable: str | None, command: str | None
) -> "AlertDestination | None":
    """Return where alerts are sent, from the options; None if there are none."""
    from pramana.watch_request import AlertDestination

    if webhook is None and command is None:
        if secret_variable is not None:
            raise click.UsageError("--webhook-secret-env signs what is sent to a webhook; add --webhook URL")
        return None
    if webhook is not None and command is not None:
        raise click.UsageError("--webhook cannot be combined with --on-alert: alerts are sent to one place")
    if command is not None and secret_variable is not None:
        raise click.UsageError("--webhook-secret-env cannot be combined with --on-alert: a command needs no secret")
    is_variable = webhook is not None and webhook.startswith(VARIABLE_PREFIX)
    return AlertDestination(
        url=None if is_variable else webhook,
        url_variable=webhook.removeprefix(VARIABLE_PREFIX) if webhook is not None and is_variable else None,
        secret_variable=secret_variable,
        command=command,
    )


@click.command(
    cls=GroupedCommand,
    groups={"Output": "--json"},
    exit_codes={0: "Stopped by Ctrl-C or SIGTERM", 3: "The store failed"},
    examples=("pramana drift serve",),
)
@JSON_OPTION
def serve(*, as_json: bool) -> int:
    """Measure each watch once a day, from its --at time on, and send its alerts, until Ctrl-C.

    A day is measured once, even if several processes share the store. A day that is interrupted is continued on the
    same day; a day on which no scheduler runs is missing and is not made up. Watches that were started on a server
    reach only what that server may reach.
    """
    from pramana.alerting import make_alert_settings
    from pramana.run.engine import Stop
    from pramana.scheduling import Scheduler
    from pramana.show.cli.signals import SignalHandler

    settings = make_alert_settings()
    with open_local_store() as store:
        if not as_json:
            click.echo(_describe_start(store))
        scheduler = Scheduler(
            store,
            alert_settings=lambda: settings,
            report=lambda event: _print_event(store, event, as_json=as_json),
        )
        stop = Stop()
        with SignalHandler(stop):
            asyncio.run(scheduler.run(stop))
    return 0


def _describe_start(store: "Store") -> str:
    watches = store.watches.list_all(active_only=True)
    if not watches:
        return "No active watch yet; start one: pramana drift start MODEL. Press Ctrl-C to stop."
    times = ", ".join(
        f"{escape_control_characters(each.shown_name)} {f'at {each.at} UTC' if each.at else 'at any time of the day'}"
        for each in reversed(watches)
    )
    return terminal.wrap_text(f"Measuring once a day: {times}. Press Ctrl-C to stop.", other_prefix="  ")


def _print_event(store: "Store", event: "SchedulerEvent", *, as_json: bool) -> None:
    if as_json:
        click.echo(terminal.to_json(_event_to_data(store, event)))
        return
    from pramana import clock

    said = escape_control_characters(_describe_event(store, event))
    click.echo(terminal.wrap_text(f"{clock.now():%Y-%m-%d %H:%M:%S}  {said}", other_prefix="  "))


def _describe_event(store: "Store", event: "SchedulerEvent") -> str:
    name = event.watch.shown_name
    match event.kind:
        case "begun":
            return f"{name}: measuring {event.day}"
        case "interrupted":
            return f"{name}: {event.day} was interrupted; the next scheduler continues it on the same day"
        case "failed":
            again = "" if event.retry_at is None else f"; tried again at {_format_time(event.retry_at)} UTC"
            return f"{name}: {event.day} could not be measured: {event.error}{again}"
        case "alert":
            return f"{name}: {_describe_delivery(event)}"
        case "ended":
            return f"{name}: {_describe_day(store, event)}"


def _describe_delivery(event: "SchedulerEvent") -> str:
    delivery = event.delivery
    assert delivery is not None  # noqa: S101 - an event of an alert has one
    what = f"{delivery.alert.level} {delivery.alert.id}"
    if delivery.error is None:
        return f"{what} was delivered to {delivery.channel}"
    again = (
        "given up"
        if delivery.next_attempt_at is None
        else f"tried again at {_format_time(delivery.next_attempt_at)} UTC"
    )
    return f"{what} was not delivered: {delivery.error}; {again}"


def _describe_day(store: "Store", event: "SchedulerEvent") -> str:
    from pramana.app.watches import read_watch

    assert event.measurement is not None  # noqa: S101 - an event of an ended day has one
    day = event.measurement.day
    if day.status == "missing":
        return f"{day.day} does not count: {day.reason}"
    calls = f"{day.answered:,} of {day.planned:,} calls answered"
    return f"{day.day} measured, {calls}. {read_watch(store, event.watch).sentence}"


def _event_to_data(store: "Store", event: "SchedulerEvent") -> dict[str, Any]:
    from pramana import clock

    day = event.measurement.day if event.measurement else None
    alert = event.delivery.alert if event.delivery else None
    return {
        "time": clock.now().isoformat(timespec="seconds"),
        "event": event.kind,
        "watch": event.watch.id,
        "day": event.day,
        "status": day.status if day else None,
        "alert": alert.id if alert else None,
        "error": event.error or (event.delivery.error if event.delivery else None),
        "text": _describe_event(store, event),
    }


def _format_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M}"


@click.command("test-alert")
@click.argument("reference", metavar="[WATCH]", required=False)
@JSON_OPTION
def test_alert(reference: str | None, *, as_json: bool) -> None:
    """Send an alert that is marked as a test to where the alerts of WATCH are sent [default: the only active one]."""
    from pramana.alerting import make_alert_settings, send_test_alert

    with open_local_store() as store:
        watch = store.watches.find(reference)
        sent = asyncio.run(send_test_alert(store, watch, make_alert_settings()))
    if as_json:
        terminal.print_json({"watch": watch.id, "alert": sent.alert.id, "sent_to": sent.channel})
        return
    click.echo(f"Test alert {sent.alert.id} of watch {watch.shown_name} was delivered to {sent.channel}.")
