"""What a user asks for when a watch is started: the run of each day, its schedule and budget, and where alerts go.

Front ends fill in a `WatchRequest`; `check` names every invalid value. Nothing here reads a store or resolves a model.
"""

import re
from typing import Annotated

from msgspec import Meta, Struct

from pramana.errors import InvalidInput, Problem, quote_text
from pramana.request import Name, RunName, RunNote, RunRequest, find_value_problems

_TIME_OF_DAY_RE = re.compile("([01][0-9]|2[0-3]):[0-5][0-9]")
MIN_BASELINE_DAYS, BASELINE_DAYS, MAX_BASELINE_DAYS = 14, 28, 365


class AlertDestination(Struct, frozen=True, kw_only=True):
    """Where the alerts of a watch are sent: to a webhook or, on the user's own machine, to a command."""

    url: str | None = None
    """The URL of a webhook. It is stored encrypted."""
    secret: str | None = None
    """Signs what is sent to a webhook. It is stored encrypted."""
    url_variable: str | None = None
    """The environment variable with the URL of a webhook, read for every alert."""
    secret_variable: str | None = None
    """The environment variable with the secret of a webhook, read for every alert."""
    command: str | None = None
    """The name of a command in the local configuration; it gets the alert as JSON on its standard input."""

    def check(self) -> None:
        """Raise `InvalidInput` unless alerts are sent to exactly one place."""
        places = (self.url, self.url_variable, self.command)
        if not any(places) and (self.secret is not None or self.secret_variable is not None):
            message = "a secret signs what is sent to a webhook: name the URL of the webhook too"
            raise InvalidInput.from_problems([Problem(message, "webhook")])
        if sum(each is not None for each in places) != 1:
            raise InvalidInput("alerts are sent either to one webhook or to one command")
        if self.command is not None and (self.secret is not None or self.secret_variable is not None):
            raise InvalidInput("a secret signs what is sent to a webhook; a command needs none")
        if self.secret is not None and self.secret_variable is not None:
            raise InvalidInput("the secret of a webhook is given as text or by a variable, not both")


class WatchRequest(Struct, frozen=True, kw_only=True):
    """All options of a watch: what its model is asked every day, and how its days are compared."""

    run: RunRequest
    """The run of each day, with exactly one model."""
    budget_usd_per_day: Annotated[
        Annotated[float, Meta(gt=0, le=10**9)] | None,
        Meta(title="Budget per day (USD)", description="Cost limit per day in US dollars; null: no limit"),
    ] = None
    at: Annotated[
        str | None,
        Meta(title="Time of day (UTC)", description="When the scheduler measures a day, in UTC, such as 03:00"),
    ] = None
    baseline_days: Annotated[
        int,
        Meta(ge=MIN_BASELINE_DAYS, le=MAX_BASELINE_DAYS, title="Days of the baseline"),
    ] = BASELINE_DAYS
    instruments: Annotated[
        Annotated[tuple[Name, ...], Meta(max_length=50)] | None,
        Meta(description="What is measured; null: everything that applies to the model and its parameters"),
    ] = None
    delivery: Annotated[
        AlertDestination | None,
        Meta(description="Where alerts are sent; null: nowhere", extra={"published": "webhook"}),
    ] = None
    name: Annotated[RunName | None, Meta(title="Name", description="Name of the watch, shown in lists")] = None
    note: Annotated[RunNote | None, Meta(title="Note", description="Note on the watch")] = None

    def check(self) -> None:
        """Raise `InvalidInput` with every invalid value, field by field."""
        problems = [*find_value_problems(self)]
        if isinstance(self.at, str) and not _TIME_OF_DAY_RE.fullmatch(self.at):
            message = f"expected a time of the day in UTC, such as 03:00, found {quote_text(self.at)}"
            problems.append(Problem(message, "at"))
        if len(self.run.models) != 1:
            message = f"a watch has one model, found {len(self.run.models)}" if self.run.models else "name a model"
            problems.append(Problem(message, "models"))
        if self.run.cache:
            problems.append(Problem("a watch asks the model every day, so replies cannot come from the cache", "cache"))
        if problems:
            raise InvalidInput.from_problems(problems)
        if self.delivery is not None:
            self.delivery.check()
        self.run.check()
