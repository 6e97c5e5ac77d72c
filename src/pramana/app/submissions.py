"""Community submissions: results of other people's runs in, daily charts and pass-rate badges of models out.

If an administrator allows it, anonymous callers may submit results and see badges.
"""

import re
from datetime import date, timedelta
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from pramana import clock
from pramana.app import App, User, use_case
from pramana.app.views import View
from pramana.errors import InvalidInput, Problem, quote_text, suggest_similar
from pramana.store.preferences import Preferences
from pramana.store.submissions import ANONYMOUS, Batch, PassCounts, Status, Submission

MAX_CHART_DAYS = 366
BADGE_PERIOD_DAYS = 30
MAX_PROMPTS_TO_SUGGEST_FROM = 1_000
"""Most prompts of a suite among which a similar one is suggested."""
_SUITE_HASH_RE = re.compile("sha256:[0-9a-f]{64}")
SuiteVerification = Literal["verified", "unverified"]
"""Whether the server has the suite of a result; the output and the score are not checked."""
VERIFICATION_FIELD_DESCRIPTION = (
    "`verified`: of a known suite, which this server has by its hash; `unverified`: of an unknown suite. Outputs and "
    "scores are as they were sent"
)


class ChartRequest(Struct, frozen=True, kw_only=True):
    """The days and models to chart."""

    verification: SuiteVerification = "verified"
    model: str | None = None
    first: date | None = None
    """None: 89 days before the last."""
    last: date | None = None
    """None: today, in UTC."""
    max_models: int = 20
    """The most models to return: those with the most submissions."""


class SubmittedView(View, frozen=True, kw_only=True):
    """The response to one submitted result."""

    id: Annotated[str, Meta(description="ID of the stored result; a duplicate on the same day has the ID of the first")]
    status: Status
    verification: Annotated[SuiteVerification, Meta(description=VERIFICATION_FIELD_DESCRIPTION)]
    time: str
    batch: str


class BatchResultView(View, frozen=True, kw_only=True):
    """The status of one result of a batch."""

    id: str | None
    status: Literal["accepted", "duplicate", "refused"]
    verification: Annotated[SuiteVerification | None, Meta(description=VERIFICATION_FIELD_DESCRIPTION)]
    reason: Annotated[str | None, Meta(description="Why the result was refused")]


class BatchSubmittedView(View, frozen=True, kw_only=True):
    """The response to a submitted batch."""

    batch: str
    time: str
    accepted: int
    duplicates: int
    refused: int
    results: Annotated[tuple[BatchResultView, ...], Meta(description="Results, in the order in which they were sent")]


class ChartPointView(View, frozen=True, kw_only=True):
    """One model on one day."""

    model: str
    day: str
    submissions: Annotated[
        int, Meta(description="Number of results with different content, each contributor's counted once")
    ]
    duplicates: Annotated[int, Meta(description="Number of repeated submissions of the same content on this day")]
    prompts: int
    distinct_outputs: Annotated[int, Meta(description="Number of different outputs, summed over the prompts")]
    changed_prompts: Annotated[
        int, Meta(description="Number of prompts whose outputs differ from those of the previous day with results")
    ]
    consistency: Annotated[float, Meta(description="Share of prompts with only one output")]


class CommunityChart(NamedTuple):
    """A point for each model and day, the range of days, and the total number of models."""

    points: list[ChartPointView]
    first_day: date
    last_day: date
    total_model_count: int


def _allows_anonymous(preferences: Preferences) -> bool:
    return preferences.anonymous_submission


@use_case("viewer", allow_anonymous_when=_allows_anonymous)
def submit(app: App, user: User, result: Submission) -> SubmittedView:
    """Store one result, marked by whether its suite is known; a prompt that a known suite does not have is refused."""
    batch = Batch([result])
    (found,) = _check_suites_of_results(app, batch)
    if isinstance(found, str):
        raise InvalidInput(found, [Problem(found, "prompt_id" if result.suite_hash else "suite_hash")])
    try:
        receipt = app.store.submissions.add(batch, [found], user.token_id or ANONYMOUS)
    except InvalidInput as error:
        problems = [Problem(each.message, each.path.partition(".")[2]) for each in error.problems]
        raise InvalidInput.from_problems(problems) from None
    return SubmittedView(
        id=receipt.ids[0],
        status=receipt.statuses[0],
        verification=_verification_name(found),
        time=receipt.received,
        batch=receipt.batch,
    )


@use_case("viewer", allow_anonymous_when=_allows_anonymous)
def submit_batch(app: App, user: User, batch: Batch) -> BatchSubmittedView:
    """Store the results of a batch in one transaction.

    A refused result (its suite has no such prompt) does not affect the others, which are stored. If all are refused,
    nothing is stored, and `InvalidInput` has the reasons.
    """
    found = _check_suites_of_results(app, batch)
    taken = [each for each in found if not isinstance(each, str)]
    if not taken:
        problems = [Problem(str(why), f"results[{index}]") for index, why in enumerate(found)]
        raise InvalidInput(f"no result was accepted: {found[0]}", problems)
    kept = batch
    if len(taken) < len(found):
        some = [each for each, fits in zip(batch.results, found, strict=True) if not isinstance(fits, str)]
        kept = replace(batch, results=some)
    receipt = app.store.submissions.add(kept, taken, user.token_id or ANONYMOUS)
    stored = zip(receipt.ids, receipt.statuses, strict=True)
    results = []
    for each in found:
        if isinstance(each, str):
            results.append(BatchResultView(id=None, status="refused", verification=None, reason=each))
        else:
            number, status = next(stored)
            results.append(
                BatchResultView(id=number, status=status, verification=_verification_name(each), reason=None)
            )
    accepted = receipt.statuses.count("accepted")
    return BatchSubmittedView(
        batch=receipt.batch,
        time=receipt.received,
        accepted=accepted,
        duplicates=len(taken) - accepted,
        refused=len(found) - len(taken),
        results=tuple(results),
    )


@use_case("viewer")
def read_chart(app: App, _: User, wanted: ChartRequest) -> CommunityChart:
    """Return a point for each model and day with submissions, by model and day."""
    last = wanted.last or clock.now().date()
    first = wanted.first or last - min(timedelta(days=89), last - date.min)
    if not 0 <= (last - first).days < MAX_CHART_DAYS:
        raise InvalidInput(f"`from` must not be after `to`, and at most {MAX_CHART_DAYS} days are shown at once")
    points, there = app.store.submissions.read_chart(
        of_known_suites=wanted.verification == "verified",
        first_day=first.isoformat(),
        last_day=last.isoformat(),
        model=wanted.model,
        max_models=wanted.max_models,
    )
    shown = [
        ChartPointView(
            model=each.model,
            day=each.day,
            submissions=each.submissions,
            duplicates=each.duplicates,
            prompts=each.prompts,
            distinct_outputs=each.outputs,
            changed_prompts=each.changed,
            consistency=each.consistency,
        )
        for each in points
    ]
    return CommunityChart(shown, first, last, there)


@use_case("viewer", allow_anonymous_when=_allows_anonymous)
def count_badge_passes(app: App, _: User, model: str) -> PassCounts:
    """Return how many scored results of known suites passed in the last 30 days, and how many there were."""
    since = clock.now().date() - timedelta(days=BADGE_PERIOD_DAYS - 1)
    return app.store.submissions.count_passed(model, since.isoformat())


def _verification_name(is_known: bool) -> SuiteVerification:
    return "verified" if is_known else "unverified"


def _check_suites_of_results(app: App, batch: Batch) -> list[bool | str]:
    """Return for each result whether its suite is known, or why the result is refused."""
    suites = app.known_suites.find_facts(
        suite for suite in map(batch.get_suite_hash, batch.results) if _SUITE_HASH_RE.fullmatch(suite)
    )
    strict = app.preferences().refuse_unverified
    found: list[bool | str] = []
    hinted = False
    for each in batch.results:
        suite = batch.get_suite_hash(each)
        facts = suites.get(suite)
        if facts is None:
            what = f"the suite {quote_text(suite, 80)} is" if suite else "without a suite_hash the suite is"
            found.append(
                f"{what} not known here, and this server accepts only results of known suites" if strict else False
            )
        elif each.prompt_id in facts.prompt_ids:
            found.append(True)
        else:
            # Only once: comparing a thousand names with the thousands of a suite takes minutes.
            far = hinted or len(facts.prompt_ids) > MAX_PROMPTS_TO_SUGGEST_FROM
            hint = "" if far else suggest_similar(each.prompt_id, facts.prompt_ids)
            hinted = True
            found.append(f"the suite {suite} has no prompt {quote_text(each.prompt_id)}{hint}")
    return found
