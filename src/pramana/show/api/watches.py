"""`/api/watches`: start, read, check, accept and stop watches, and their alerts; `/api/public/watches` for anyone."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from msgspec.structs import replace
from pydantic import Field

from pramana.app import Credential, watch_alerts, watch_reports, watches
from pramana.app.watch_alerts import PublicWatchView, SentAlertView
from pramana.app.watch_reports import WatchReportView
from pramana.app.watches import AlertChannelView, WatchAlertView, WatchDetailView, WatchView
from pramana.errors import InvalidInput
from pramana.providers.webhook import MAX_SECRET_LENGTH, MAX_URL_LENGTH
from pramana.request import MAX_NOTE_CHARS, RunRequest
from pramana.show.api.badges import BADGE_DOCUMENTATION, GREEN, GREY, RED, YELLOW, draw_badge, make_badge_response
from pramana.show.api.envelope import (
    AppDependency,
    Body,
    PageNumber,
    PageSize,
    add_fields_of,
    document_route,
    make_success_response,
    require_caller,
    take_page,
)
from pramana.show.api.runs import RunBody
from pramana.watch_request import AlertDestination, WatchRequest

router = APIRouter(tags=["watches"])
_BADGES_BY_LEVEL = {
    "collecting": ("collecting", GREY),
    "cannot_tell": ("cannot tell", GREY),
    "quiet": ("no change seen", GREEN),
    "notice": ("notice", YELLOW),
    "alarm": ("changed", RED),
}


# ── Bodies ──


class WebhookBody(Body):
    """Where alerts are sent: a webhook, such as one of Slack. The URL and the secret are never returned."""

    url: str = Field(max_length=MAX_URL_LENGTH)
    secret: str | None = Field(
        None, min_length=1, max_length=MAX_SECRET_LENGTH, description="Signs what is sent, with HMAC-SHA256"
    )

    def to_delivery(self) -> AlertDestination:
        """Return the body as an `AlertDestination`."""
        return AlertDestination(url=self.url, secret=self.secret)


@add_fields_of(
    WatchRequest,
    run=(RunBody, Field(description="The run of each day, as in POST /api/runs, with exactly one model")),
    webhook=(WebhookBody | None, Field(default=None, description="Where alerts are sent; null: nowhere")),
)
class WatchBody(Body):
    """A watch to start."""

    def to_request(self) -> WatchRequest:
        """Return the body as a `WatchRequest`."""
        sent: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        run: RunBody = sent["run"]
        if run.dry_run:
            raise InvalidInput("run.dryRun: a watch sends its requests every day; POST /api/runs makes an estimate")
        webhook: WebhookBody | None = sent.pop("webhook")
        instruments: list[str] | None = sent["instruments"]
        return WatchRequest(
            **sent
            | {
                "run": replace(run.to_request(), cache=False),
                "delivery": webhook.to_delivery() if webhook else None,
                "instruments": None if instruments is None else tuple(instruments),
            }
        )


class AcceptBody(Body):
    """Why the model is accepted as it is now."""

    note: str | None = Field(None, max_length=MAX_NOTE_CHARS)


class WatchPublicBody(Body):
    """Whether anyone may read a watch without a token."""

    public: bool


# ── Watches ──


@router.get("/api/watches", summary="List watches", **document_route(list[WatchView]))
async def list_watches(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(watches.list_all)],
    page: PageNumber = 1,
    page_size: PageSize = 50,
    *,
    active: Annotated[bool, Query(description="Only watches that were not stopped")] = False,
) -> Response:
    """Return watches, newest first, each with its state."""
    return make_success_response(*take_page(await watches.list_all(app, caller, active_only=active), page, page_size))


@router.post(
    "/api/watches",
    summary="Start a watch",
    **document_route(WatchDetailView, 404, status=201, description="The watch was started"),
)
async def start_watch(
    body: WatchBody, app: AppDependency, caller: Annotated[Credential, require_caller(watches.start)]
) -> Response:
    """Start a watch. The scheduler of the server measures it once a UTC day; nothing is sent yet."""
    try:
        found = await watches.start(app, caller, body.to_request())
    except InvalidInput as error:
        raise error.with_paths(lambda path: f"run.{path}" if path in RunRequest.__struct_fields__ else path) from None
    return make_success_response(found, status=201)


@router.get("/api/watches/{watch_id}", summary="Read a watch", **document_route(WatchDetailView, 404))
async def read_watch(
    watch_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(watches.read)]
) -> Response:
    """Return a watch with its days, its alerts, and what each instrument says on the last day."""
    return make_success_response(await watches.read(app, caller, watch_id))


@router.get(
    "/api/watches/{watch_id}/report", summary="Read the report of a watch", **document_route(WatchReportView, 404)
)
async def read_report(
    watch_id: str,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(watch_reports.read_report)],
    examples: Annotated[int, Query(ge=0, le=50, description="Cases with the replies of both days after a change")] = 3,
) -> Response:
    """Return what is known beside the state: what changed and what did not, and what the watch could see."""
    return make_success_response(await watch_reports.read_report(app, caller, watch_id, examples))


@router.post(
    "/api/watches/{watch_id}/check",
    summary="Measure a watch now",
    **document_route(WatchDetailView, 404, 409, status=202, description="The day is measured soon, or was measured"),
)
async def check_watch(
    watch_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(watch_alerts.check_now)]
) -> Response:
    """Measure the current day now, whatever the time of the watch. A day is measured once."""
    return make_success_response(await watch_alerts.check_now(app, caller, watch_id), status=202)


@router.post(
    "/api/watches/{watch_id}/confirm",
    summary="Run a confirming batch",
    **document_route(WatchDetailView, 404, 409, status=202, description="The batch is sent soon"),
)
async def confirm_watch(
    watch_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(watch_alerts.confirm_now)]
) -> Response:
    """Send the cases of a watch once more, beside its days; the statistic does not use them. See its report."""
    return make_success_response(await watch_alerts.confirm_now(app, caller, watch_id), status=202)


@router.post("/api/watches/{watch_id}/accept", summary="Accept a new baseline", **document_route(WatchDetailView, 404))
async def accept_watch(
    watch_id: str,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(watches.accept)],
    body: AcceptBody | None = None,
) -> Response:
    """Accept the model as it is now: a new baseline begins with the next day."""
    return make_success_response(await watches.accept(app, caller, watch_id, body.note if body else None))


@router.post("/api/watches/{watch_id}/stop", summary="Stop a watch", **document_route(WatchDetailView, 404))
async def stop_watch(
    watch_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(watches.stop)]
) -> Response:
    """Stop a watch; its days and runs are kept."""
    return make_success_response(await watches.stop(app, caller, watch_id))


@router.put("/api/watches/{watch_id}/public", summary="Publish a watch", **document_route(WatchDetailView, 404))
async def publish_watch(
    watch_id: str,
    body: WatchPublicBody,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(watch_alerts.set_public)],
) -> Response:
    """Let anyone read the state, the series and the alerts of a watch without a token, or no longer."""
    return make_success_response(await watch_alerts.set_public(app, caller, watch_id, is_public=body.public))


# ── Alerts ──


@router.get("/api/watches/{watch_id}/alerts", summary="List alerts", **document_route(list[WatchAlertView], 404))
async def list_alerts(
    watch_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(watch_alerts.list_alerts)]
) -> Response:
    """Return the alerts of a watch, newest first, and whether they were delivered."""
    return make_success_response(await watch_alerts.list_alerts(app, caller, watch_id))


@router.put(
    "/api/watches/{watch_id}/webhook",
    summary="Set the webhook of a watch",
    **document_route(AlertChannelView, 404, 409),
)
async def set_webhook(
    watch_id: str,
    body: WebhookBody,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(watch_alerts.change_channel)],
) -> Response:
    """Send the alerts of a watch to a webhook from now on; alerts that were not delivered yet, too."""
    return make_success_response(await watch_alerts.change_channel(app, caller, watch_id, body.to_delivery()))


@router.delete(
    "/api/watches/{watch_id}/webhook", summary="Remove the webhook of a watch", **document_route(None, 404, 409)
)
async def remove_webhook(
    watch_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(watch_alerts.change_channel)]
) -> Response:
    """Send the alerts of a watch nowhere from now on."""
    return make_success_response(await watch_alerts.change_channel(app, caller, watch_id, None))


@router.post(
    "/api/watches/{watch_id}/test-alert", summary="Send a test alert", **document_route(SentAlertView, 404, 409)
)
async def send_test_alert(
    watch_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(watch_alerts.send_test)]
) -> Response:
    """Send an alert that is marked as a test to the webhook of a watch."""
    return make_success_response(await watch_alerts.send_test(app, caller, watch_id))


# ── Public watches ──


@router.get("/api/public/watches/{watch_id}", summary="Read a public watch", **document_route(PublicWatchView, 404))
async def read_public_watch(
    watch_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(watch_alerts.read_public)]
) -> Response:
    """Return the state, the series and the alerts of a public watch; no token is needed."""
    return make_success_response(await watch_alerts.read_public(app, caller, watch_id))


@router.get("/api/public/watches/{watch_id}/badge", summary="A badge for a public watch", **BADGE_DOCUMENTATION)
async def public_badge(
    watch_id: str,
    request: Request,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(watch_alerts.read_public)],
) -> Response:
    """Return the state of a public watch as a picture; no token is needed."""
    found = await watch_alerts.read_public(app, caller, watch_id)
    text, colour = _BADGES_BY_LEVEL[found.level]
    return make_badge_response(
        request, draw_badge(found.name or found.model, text, found.sentence, colour), is_public=True
    )
