"""Controls on the page of a run: the dialog that resumes it with other limits, and the choice among its scorings.

A run that a limit ended would end again at once, so its limits are asked for first. Scorings are listed once a run has
several: each can be shown, and one is current.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import fields
from nicegui import ui

from pramana.app.rescoring import ScoringView, list_scorings, use_scoring
from pramana.app.runs import PUBLISHED_LIMIT_NAMES
from pramana.app.views import RunDetailView
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    join_html,
    render_link,
    render_time,
    render_untrusted_text,
    tag,
)
from pramana.report.rescoring import describe_scored_models
from pramana.report.resuming import OPTION_BY_TOTAL_LIMIT
from pramana.request import Limits, get_field_metadata
from pramana.show.web.kit import PageContext, make_url, parts
from pramana.show.web.kit.forms import Form, add_unclamped_number_field
from pramana.show.web.pages.settings import draw_action_table

RUN_ENDING_LIMITS = ("max_cost_usd", "max_total_tokens", "deadline_s")
"""The limits that can end a run, as fields of `Limits`."""
_LIMIT_LABELS = {each.name: get_field_metadata(each).title or each.name for each in fields(Limits)}
_NO_LIMIT_HINT = "empty: no limit"


# ── Limits of a resumed run ──


def find_reached_limit(run: RunDetailView) -> str | None:
    """Return the limit that ended a run, as a field of `Limits`."""
    reached = run.notes.get("reached_limit")
    return reached if reached in RUN_ENDING_LIMITS else None


async def ask_limits_and_resume(
    run: RunDetailView, limit_name: str, resume: Callable[[Mapping[str, Any]], Awaitable[None]]
) -> None:
    """Show the limits of a run in a dialog and resume it with those that the user enters; Cancel changes nothing."""
    kept = read_stored_limits(run)
    title = "Resume with other limits"
    with ui.context.client, ui.dialog() as dialog, ui.card():
        dialog.props["aria-label"] = title
        parts.add_markup(tag("h2", title))
        parts.add_paragraph(_explain_reached_limit(limit_name, kept.get(limit_name)), quiet=True)

        async def submit() -> None:
            for name, field in made.items():
                field.error = (
                    explain_too_low_limit(name, field.value, kept.get(name)) if name in OPTION_BY_TOTAL_LIMIT else None
                )
            if any(field.error for field in made.values()):
                return
            with form.show_errors_at(made):
                await resume({name: _to_int_if_whole(field.value) for name, field in made.items()})
                dialog.submit("resumed")

        with Form(submit) as form:
            made = {
                name: add_unclamped_number_field(_LIMIT_LABELS[name], kept.get(name), _NO_LIMIT_HINT)
                for name in RUN_ENDING_LIMITS
            }
            made[limit_name].props("autofocus")
            with parts.open_box("row"):
                form.add_submit_button("Resume")
                parts.add_button("Cancel", lambda: dialog.submit("cancelled"))
    await dialog
    if not dialog.is_deleted:  # the page may have been closed meanwhile
        dialog.delete()


def read_stored_limits(run: RunDetailView) -> dict[str, Any]:
    """Return the limits of a run, under the names of `Limits`."""
    found = {name: getattr(run.limits, published) for name, published in PUBLISHED_LIMIT_NAMES.items()}
    return {name: value for name, value in found.items() if value is not msgspec.UNSET}


def _explain_reached_limit(limit_name: str, value: float | None) -> str:
    of = f" ({value:,g})" if value is not None else ""
    name = _LIMIT_LABELS[limit_name].partition(" (")[0].lower()
    if limit_name in OPTION_BY_TOTAL_LIMIT:
        used = "which includes what the run has already used"
        return f"The run reached its {name}{of}, {used}. Raise this limit to continue the run."
    return f"The run reached its {name}{of}. When you resume the run, this limit counts from zero again."


def explain_too_low_limit(limit_name: str, value: float | None, stored_value: float | None) -> str | None:
    """Return the error of a limit that would end the run again at once; None if it would not.

    >>> explain_too_low_limit("max_total_tokens", 100, 100)
    'Token limit: enter more than 100, or leave the field empty for no limit'
    >>> explain_too_low_limit("max_total_tokens", 200, 100), explain_too_low_limit("max_total_tokens", None, 100)
    (None, None)
    """
    if value is None or stored_value is None or value > stored_value:
        return None
    return f"{_LIMIT_LABELS[limit_name]}: enter more than {stored_value:,g}, or leave the field empty for no limit"


def _to_int_if_whole(value: float | None) -> float | None:
    """Return a whole number as an integer, since number fields return floats."""
    return int(value) if value is not None and value == int(value) else value


# ── Scorings ──


class ScoringsPanel:
    """The scorings of a run; empty while it has only the one that came with its replies."""

    def __init__(self, context: PageContext, run: RunDetailView, on_use: Callable[[], Awaitable[None]]) -> None:
        self._context, self._run, self._on_use = context, run, on_use
        self._panel = parts.Panel("scorings")
        self._listed: Sequence[ScoringView] = ()

    @property
    def current_number(self) -> int | None:
        """The number of the current scoring; None before the first `refresh`."""
        return next((each.number for each in self._listed if each.current), None)

    async def refresh(self) -> None:
        """Read the scorings again; show them if they have changed."""
        self._show_scorings(await self._context.call(list_scorings, self._run.id))

    def _show_scorings(self, scorings: Sequence[ScoringView]) -> None:
        self._listed = scorings
        self._panel.redraw_if_changed(tuple(scorings), self._draw)

    def _draw(self) -> None:
        if len(self._listed) < 2:
            return
        parts.add_heading("Scorings")
        parts.add_markup(tag("p", self._describe_current_scoring(), class_="quiet small"))
        columns = (
            Column("Scoring", is_row_header=True),
            Column("Judge and scorers"),
            Column("Created (UTC)"),
            Column("Passed"),
        )
        rows = [(_render_scoring_cells(each), partial(self._draw_actions, each)) for each in reversed(self._listed)]
        draw_action_table("Scorings of this run, newest first", columns, rows)

    def _describe_current_scoring(self) -> str:
        newest = self._listed[-1].number
        kept = "A result without new checks keeps its earlier verdict."
        if self.current_number == newest:
            return f"Each re-scoring adds a scoring, and the newest scoring is current. {kept}"
        return f"Scoring {self.current_number} is current by choice; the newest scoring is {newest}. {kept}"

    def _draw_actions(self, each: ScoringView) -> None:
        shown = self._run.scoring if self._run.scoring is not None else self.current_number
        if each.number != shown:
            to = make_url(f"/runs/{self._run.id}" if each.current else f"/runs/{each.reference}")
            parts.add_markup(tag("a", "Show", href=to, aria_label=f"Show scoring {each.number}", class_="btn small"))
        if each.current:
            parts.add_markup(tag("span", "current", class_="quiet"))
        elif self._context.may(use_scoring):
            label = f"Make scoring {each.number} current"
            parts.add_button(
                "Make current", partial(self._make_current, each.number), small=True, accessible_label=label
            )

    async def _make_current(self, scoring_number: int) -> None:
        self._show_scorings(await self._context.call(use_scoring, self._run.id, scoring_number))
        parts.show_notification(f"Scoring {scoring_number} is current until the run is re-scored.", "positive")
        await self._on_use()


def render_scoring_note(run: RunDetailView) -> SafeHtml | None:
    """Return the note that a page shows a run by one of its scorings; None on the page of the run itself."""
    if run.scoring is None:
        return None
    back = render_link(make_url(f"/runs/{run.id}"), "Show the current scoring")
    return tag("p", f"These are the verdicts of scoring {run.scoring}. ", back, class_="warn")


def _render_scoring_cells(each: ScoringView) -> tuple[HtmlChild, ...]:
    passed = (
        tag("div", render_untrusted_text(f"{model}: ") if model else None, words)
        for model, words in describe_scored_models(each)
    )
    return (
        str(each.number),
        render_untrusted_text(each.label, 300),
        render_time(each.created_at),
        join_html(passed),
    )
