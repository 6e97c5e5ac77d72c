"""The scheduler of a server: which watches it measures, where the links of alerts lead, and what it logs.

A server measures the watches of its users. With a SQLite store, which belongs to the account that runs the server, it
measures the watches of the command line too; with PostgreSQL, these may belong to another machine, with its own keys,
files and commands, and `pramana drift serve` measures them there.
"""

import logging

from pramana.alerting import AlertSettings, make_alert_settings
from pramana.app import App, is_loopback
from pramana.scheduling import OWNERS, Scheduler, SchedulerEvent

log = logging.getLogger("pramana.scheduling")


def make_scheduler(serving: App) -> Scheduler:
    """Return the scheduler of a server, which is not started yet."""
    owners = OWNERS if serving.store.database_kind == "sqlite" else ("server",)
    local_url = f"http://{serving.host}:{serving.port}" if is_loopback(serving.host) else None

    def read_alert_settings() -> AlertSettings:
        return make_alert_settings(local_url, allow_private=serving.allows_private_addresses())

    return Scheduler(serving.store, owners=owners, alert_settings=read_alert_settings, report=_log_event)


def _log_event(event: SchedulerEvent) -> None:
    watch, delivery = event.watch.id, event.delivery
    if event.error is not None:
        log.warning("watch %s: %s could not be measured: %s", watch, event.day, event.error)
    elif delivery is not None and delivery.error is not None:
        log.warning("watch %s: %s %s: %s", watch, delivery.alert.level, delivery.alert.id, delivery.error)
    else:
        log.info("watch %s: %s of %s", watch, event.kind, event.day)
