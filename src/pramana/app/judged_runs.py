"""Runs whose replies a judge judged: a store in, the newest of them out, each with how far people have labelled it."""

from typing import Annotated

from msgspec import Meta

from pramana.analyse.judgements import JUDGE, RUBRIC
from pramana.app import App, User, use_case
from pramana.app.views import View

MAX_JUDGED_RUNS = 30


class JudgedRunView(View, frozen=True, kw_only=True):
    """A run with judged replies in a list."""

    id: str
    name: str | None
    suite: str
    models: tuple[str, ...]
    judge: Annotated[str | None, Meta(description="Judge model; null: each model judges itself")]
    created_at: str
    stored: int
    labelled: Annotated[int, Meta(description="Replies with a label")]
    raters: int


@use_case("viewer", "heavy")
def list_judged_runs(app: App, _: User) -> list[JudgedRunView]:
    """Return the newest runs with judged replies, newest first."""
    views = []
    for each in app.store.labels.list_judged_runs((JUDGE, RUBRIC), MAX_JUDGED_RUNS):
        run = app.store.runs.read(each.id)
        views.append(
            JudgedRunView(
                id=run.id,
                name=run.name,
                suite=run.plan.suite,
                models=tuple(target.typed for target in run.plan.targets),
                judge=run.plan.judge.typed if run.plan.judge else None,
                created_at=run.created,
                stored=run.stored,
                labelled=each.labelled_count,
                raters=each.rater_count,
            )
        )
    return views
