"""What users of a server do with a watch besides reading it: measure now, alerts, and who may read it without a token.

Anonymous callers read a public watch: its state, its series and its alerts, and nothing that was sent or received.
"""

import asyncio
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from pramana.alerting import make_alert_settings, make_channel, send_test_alert
from pramana.analyse.watch import Level
from pramana.app import App, User, use_case
from pramana.app.views import View
from pramana.app.watch_calibrations import CALIBRATION_DESCRIPTION
from pramana.app.watches import (
    FIRST_DAYS_DESCRIPTION,
    AlertChannelView,
    DayScoreView,
    WatchAlertView,
    WatchDetailView,
    read_watch,
)
from pramana.errors import Hint, NotFound, StateConflict, quote_text
from pramana.store.watches import DayStatus, Watch, find_today
from pramana.watch_request import AlertDestination

_PublicView = TypeVar("_PublicView", bound=View)


class SentAlertView(View, frozen=True, kw_only=True):
    """A test alert that has arrived."""

    id: str
    sent_to: Annotated[str, Meta(description="Host of the webhook")]


class PublicInstrumentView(View, frozen=True, kw_only=True):
    """What one instrument of a public watch says."""

    name: str
    title: str
    unit: str
    level: Level
    collected_days: int
    needed_days: int
    baseline_value: float | None
    baseline_band: tuple[float, float] | None
    first_day: Annotated[str | None, Meta(description="The likeliest first day of the change")]
    first_days: Annotated[tuple[str, str] | None, Meta(description=FIRST_DAYS_DESCRIPTION)]
    scores: tuple[DayScoreView, ...]


class PublicDayView(View, frozen=True, kw_only=True):
    """One day of a public watch."""

    day: str
    status: DayStatus
    planned: int
    answered: int
    level: Level | None


class PublicAlertView(View, frozen=True, kw_only=True):
    """An alert of a public watch."""

    id: str
    level: str
    day: str
    sentence: str


class PublicWatchView(View, frozen=True, kw_only=True):
    """A watch as anyone may read it: no prompts, no replies, no runs, no settings."""

    id: str
    name: str | None
    model: Annotated[str, Meta(description="Name of the model, without the address of its server")]
    is_active: bool
    level: Level
    sentence: str
    proof: str
    created_at: str
    baseline_days: int
    measured_days: int
    missing_days: int
    last_day: str | None
    calibration: Annotated[str | None, Meta(description=CALIBRATION_DESCRIPTION)]
    instruments: tuple[PublicInstrumentView, ...]
    days: tuple[PublicDayView, ...]
    alerts: tuple[PublicAlertView, ...]


@use_case("editor")
def check_now(app: App, _: User, reference: str) -> WatchDetailView:
    """Have the scheduler of this server measure the current day of a watch now, and return the watch as it is."""
    watch = app.store.watches.find(reference)
    if watch.stopped is not None:
        raise StateConflict(f"watch {watch.shown_name} was stopped on {watch.stopped[:10]}")
    day = app.store.watches.find_day(watch, find_today())
    if (day is None or day.status == "measuring") and not app.request_watch_check(watch):
        raise _make_not_measured_error(app, watch)
    return read_watch(app.store, watch)


@use_case("editor")
def confirm_now(app: App, _: User, reference: str) -> WatchDetailView:
    """Have the scheduler of this server run a confirming batch, which the statistic does not use."""
    watch = app.store.watches.find(reference)
    if watch.stopped is not None:
        raise StateConflict(f"watch {watch.shown_name} was stopped on {watch.stopped[:10]}")
    if not app.request_watch_confirmation(watch):
        raise _make_not_measured_error(app, watch)
    return read_watch(app.store, watch)


def _make_not_measured_error(app: App, watch: Watch) -> StateConflict:
    where = "another process of this server" if app.api_only else "the machine that started it"
    return StateConflict(f"this process does not measure watch {watch.shown_name}; {where} does")


# ── Alerts ──


@use_case("viewer")
def list_alerts(app: App, _: User, reference: str) -> list[WatchAlertView]:
    """Return the alerts of a watch, newest first, and whether they were delivered."""
    watch = read_watch(app.store, app.store.watches.find(reference))
    return list(reversed(watch.alerts))


@use_case("editor")
def change_channel(app: App, _: User, reference: str, delivery: AlertDestination | None) -> AlertChannelView | None:
    """Send the alerts of a watch to another webhook from now on; None: nowhere."""
    watch = app.store.watches.find(reference)
    if watch.owner == "cli":  # its alerts may be sent to private addresses, which users of a server may not name
        raise StateConflict(
            "this watch was started on the command line, which sets where its alerts are sent: pramana drift start"
        )
    channel = None
    if delivery is not None:
        delivery.check()
        allow_private = app.allows_private_addresses()
        channel = make_channel(app.store, delivery, is_local=False, allow_private=allow_private)
    app.store.alerts.change_channel(watch, channel)
    return read_watch(app.store, app.store.watches.read(watch.id)).alerts_to


@use_case("editor", "network")
def send_test(app: App, _: User, reference: str) -> SentAlertView:
    """Send an alert that is marked as a test; raises what went wrong."""
    watch = app.store.watches.find(reference)
    if watch.owner == "cli":
        raise StateConflict(
            "this watch was started on the command line; send its test alert there: pramana drift test-alert"
        )
    settings = make_alert_settings(allow_private=app.allows_private_addresses())
    sent = asyncio.run(send_test_alert(app.store, watch, settings))
    return SentAlertView(id=sent.alert.id, sent_to=sent.channel)


# ── Public watches ──


@use_case("admin")
def set_public(app: App, _: User, reference: str, *, is_public: bool) -> WatchDetailView:
    """Let anyone read a watch without a token, or no longer."""
    watch = app.store.watches.find(reference)
    return read_watch(app.store, app.store.watches.set_public(watch, is_public=is_public))


@use_case("viewer", "heavy", allow_anonymous_when=lambda _: True)
def read_public(app: App, _: User, watch_id: str) -> PublicWatchView:
    """Return a public watch by its ID; any other watch does not exist for the caller."""
    watch = next((each for each in app.store.watches.list_all() if each.id == watch_id and each.is_public), None)
    if watch is None:
        raise NotFound(f"there is no public watch {quote_text(watch_id)}", hint=Hint("list_watches"))
    return _make_public_view(read_watch(app.store, watch, marks=app.judge_marks))


def _make_public_view(view: WatchDetailView) -> PublicWatchView:
    return PublicWatchView(
        model=strip_server(view.model),
        instruments=tuple(_copy_named_fields(PublicInstrumentView, each) for each in view.findings),
        days=tuple(_copy_named_fields(PublicDayView, each) for each in view.days),
        alerts=tuple(_copy_named_fields(PublicAlertView, each) for each in view.alerts),
        **{
            name: getattr(view, name)
            for name in PublicWatchView.__struct_fields__
            if name not in ("model", "instruments", "days", "alerts")
        },
    )


def _copy_named_fields(type_: type[_PublicView], view: Any) -> _PublicView:
    return type_(**{name: getattr(view, name) for name in type_.__struct_fields__})


def strip_server(model: str) -> str:
    """Return the name of a model without the address of its server, which may be a private one.

    >>> strip_server("http://10.0.0.7:8000/v1#llama"), strip_server("openai:gpt-5-mini")
    ('llama', 'openai:gpt-5-mini')
    """
    return model.partition("#")[2] or "a model" if "://" in model else model
