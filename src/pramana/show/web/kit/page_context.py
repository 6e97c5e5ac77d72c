"""The context of a page: its user, its URL parameters, and the use cases that this user may call.

Every call uses the credential of the browser that opened the page. So a page can do nothing that its user may not do,
and a revoked token stops working at the next click.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import nicegui
from nicegui import background_tasks, ui
from starlette.requests import Request

from pramana.app import App, required_role
from pramana.app.access import Credential, User
from pramana.app.runs import follow_changes, follow_run
from pramana.app.tail import ChangeView, Heartbeat, MissedChangesView, RunEvent
from pramana.errors import COMMAND_HINTS, HintKey, InvalidInput, PramanaError, Problem
from pramana.request import struct_from_texts
from pramana.show.api.envelope import get_request_user, log_unexpected_error, public_message
from pramana.show.web.kit.style import THEME_COOKIE_NAME

_View = TypeVar("_View")
_Filter = TypeVar("_Filter", bound=msgspec.Struct)
_Rest = ParamSpec("_Rest")
UPDATE_DEBOUNCE_S = 0.3
"""Changes within this time trigger a single update."""


PAGE_HINTS: Mapping[HintKey, str] = {
    **COMMAND_HINTS,
    "list_runs": "see Runs",
    "list_scorings": "see Scorings on the page of run {}",
    "start_run": "start a run on the page New run",
    "list_watches": "see Drift",
    "start_watch": "start one on the page Drift",
    "list_scenarios": "see Scenarios",
    "import_scenarios": "import scenarios on the page Scenarios",
    "run_stored": "choose the scenario {} on the page New run",
    "list_library": "see the built-in library on the page Scenarios",
    "list_models": "the page New run suggests models",
    "list_server_models": "list the models of that server: GET {}/models",
    "name_model": "the page New run suggests models",
    "list_tokens": "see Settings, Tokens",
    "create_token": "create a token on the server: pramana token create NAME --role admin",
    "pull_weights": "download the weights on the page Home",
    "any_suite": "to compare {}, use the Compare page",
    "compare_any_suite": "to compare the cases that both have, use the Compare page",
    "check_filters": "check the spelling of the filters",
    "name_judge": "choose another judge model",
    "choose_modalities": "choose the modalities text and voice",
    "send_parameter": "give the parameter {} of your function a default value",
}
"""What to do about an error, worded for users of the workbench; some fixes need a command."""


class UseCaseRefused(PramanaError):
    """A use case failed or refused a call."""

    def __init__(self, status: int, message: str, code: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.status, self.reason, self.problems = status, code, tuple(problems)


class PageContext:
    """One open page of one user."""

    def __init__(self, request: Request, credential: Credential | None = None) -> None:
        self._app: App = nicegui.app.state.app_layer
        self._since: int | None = None
        self.user: User = get_request_user(request)
        self.path: dict[str, str] = {name: str(value) for name, value in request.path_params.items()}
        self.query = request.query_params
        self.address = request.url.path
        """The path of this page, without the query string."""
        self.sign_in_url = make_sign_in_url(request)
        """The sign-in page, with a redirect back to this one."""
        self.theme = request.cookies.get(THEME_COOKIE_NAME)
        self._credential: Credential = credential or request.scope["pramana.credential"]

    async def remember_latest_change_number(self) -> None:
        """Record the position in the change feed before the page reads any data, so that no later change is missed."""
        self._since = await self._app.event_tail.latest_change_number()

    # ── Calls ──

    def may(self, *use_cases: Callable[..., Any]) -> bool:
        """Return whether the user's role allows the use cases; pages leave out controls for the others."""
        return all(self.user.has_role(required_role(each)) for each in use_cases)

    async def call(
        self,
        use_case: Callable[Concatenate[App, Credential, _Rest], Awaitable[_View]],
        *arguments: _Rest.args,
        **keywords: _Rest.kwargs,
    ) -> _View:
        """Call a use case with the user's credential; raise `UseCaseRefused` for every error."""
        app, credential = self._app, self._credential
        try:
            await app.access.authenticate_and_count(credential)
            return await use_case(app, credential, *arguments, **keywords)
        except PramanaError as error:
            raise UseCaseRefused(
                error.http_status, public_message(error, PAGE_HINTS), error.code, error.problems
            ) from error
        except Exception as error:
            raise UseCaseRefused(500, log_unexpected_error(error), "defect") from error

    def read_request(
        self, struct: type[_Filter], texts: Mapping[str, str | Sequence[str] | None] | None = None, **fixed_values: Any
    ) -> _Filter:
        """Parse the query string, or the given texts, into the request struct of a use case."""
        stated = texts if texts is not None else {name: self.query.getlist(name) for name in self.query}
        try:
            return struct_from_texts(
                struct, {name: each for name, each in stated.items() if each not in ("", [""])}, **fixed_values
            )
        except InvalidInput as error:
            raise UseCaseRefused(
                error.http_status, public_message(error, PAGE_HINTS), error.code, error.problems
            ) from error

    # ── Live updates ──

    def on_change(self, object_kinds: set[str], callback: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call a function of this page whenever something of these kinds is created, changed or deleted, by any user.

        Kinds are those of `/api/events`: run, scenario, suite, provider and so on.
        """
        client, news = ui.context.client, asyncio.Event()

        async def notify() -> None:
            with client:
                while True:
                    await news.wait()
                    await asyncio.sleep(UPDATE_DEBOUNCE_S)
                    news.clear()
                    with suppress(
                        UseCaseRefused
                    ):  # the next change may find the store back; `sockets` redirects a revoked user
                        await callback()

        async def listen() -> None:
            telling = background_tasks.create(notify(), name="notify a page of changes")
            try:
                async for each in await follow_changes(self._app, self._credential, self._since):
                    if isinstance(each, MissedChangesView) or (
                        isinstance(each, ChangeView) and each.kind in object_kinds
                    ):
                        news.set()
            finally:
                telling.cancel()

        self._run_while_open(listen())

    def follow(
        self,
        run_id: str,
        after_seq: int,
        on_event: Callable[[RunEvent], Coroutine[Any, Any, None]],
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Call a function of this page with every event of a run except `Heartbeat`.

        `on_end` is called once no more events will come: the run or the page has ended, or the stream has failed.
        """

        async def listen() -> None:
            async for each in await follow_run(self._app, self._credential, run_id, after_seq):
                if not isinstance(each, Heartbeat):
                    await on_event(each)

        self._run_while_open(listen(), on_end)

    def _run_while_open(self, work: Coroutine[Any, Any, None], on_end: Callable[[], None] | None = None) -> None:
        client = ui.context.client

        async def start() -> None:
            try:
                await client.connected()
                with client, suppress(PramanaError):  # `sockets` redirects a user without access
                    await work
            finally:
                work.close()

        task = background_tasks.create(start(), name="follow changes for a page")
        if on_end:
            task.add_done_callback(lambda _: on_end())  # a task that is cancelled before it starts never runs `finally`
        client.on_delete(lambda: task.cancel() and None)

    # ── URLs ──

    def make_page_url(self, **replaced_parameters: Any) -> str:
        """Return the URL of this page with query parameters replaced; None removes one."""
        return make_url(self.address, **{**dict(self.query), **replaced_parameters})


def make_url(path: str, **query: Any) -> str:
    """Return a URL within the workbench.

    >>> make_url("/runs", model="a b", page=None)
    '/runs?model=a+b'
    """
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
        if value is not None and value != ""
    }
    encoded = urlencode(given, doseq=True)
    return f"{path}?{encoded}" if encoded else path


def quote_path_part(text: str) -> str:
    """Quote a text as one segment of an API path, `.` and `..` included, which clients would otherwise resolve.

    >>> quote_path_part("a/b?"), quote_path_part("v1.0"), quote_path_part("."), quote_path_part("..")
    ('a%2Fb%3F', 'v1.0', '%2E', '%2E%2E')
    """
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def make_sign_in_url(request: Request) -> str:
    """Return the URL of the sign-in page, with a redirect back to the requested page."""
    url = request.url
    return make_url("/sign-in", to=f"{url.path}?{url.query}" if url.query else url.path)
