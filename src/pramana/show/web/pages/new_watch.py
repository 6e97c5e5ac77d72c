"""The form of a new watch: model, cases, budget and schedule, with what a day takes and what the watch could see."""

import asyncio
from collections.abc import Sequence
from typing import Any

from nicegui import ui

from pramana.analyse.instruments import INSTRUMENT_GROUPS
from pramana.analyse.numbers import format_percent, pluralise
from pramana.analyse.summary import KnownTotal
from pramana.app.plans import (
    DEFAULT_TEXT_INSTRUMENT_COUNT,
    DetectionPlanRequest,
    DetectionPlanView,
    plan_detection,
)
from pramana.app.scenarios import list_facets
from pramana.app.suites import list_suites
from pramana.app.watches import estimate_day, start
from pramana.report.figures import format_cost
from pramana.report.markup import (
    Column,
    SafeHtml,
    join_html,
    render_link,
    render_table,
    render_tiles,
    render_untrusted_text,
    tag,
)
from pramana.request import RunRequest, Selection
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts, quote_path_part
from pramana.show.web.kit.forms import (
    Field,
    Form,
    SecretField,
    add_model_field,
    add_suggestions,
    add_unclamped_number_field,
)
from pramana.show.web.pages.model_suggestions import ALWAYS_SUGGESTED_MODELS, MODEL_NAMES_HINT, suggest_models
from pramana.show.web.pages.watch_markup import GROUP_TITLES, render_instrument_calls
from pramana.watch_request import BASELINE_DAYS, MIN_BASELINE_DAYS, AlertDestination, WatchRequest

ESTIMATE_DEBOUNCE_S = 0.5
DETECTED_LOSS, ASSUMED_PASS_RATE = 0.1, 0.9
DEFAULT_TEMPERATURE = RunRequest(models=()).temperature
SCENARIOS_OPTION = "scenarios"


@frame.register_page("/drift/new", "Start a watch", start)
async def show_new_watch_page(context: PageContext) -> None:
    """Show the form of a new watch."""
    about = "Each day, the model gets the same cases once. Without a time of day, the first day is measured at once."
    frame.add_page_heading("Start a watch", about, (("/drift", "Drift"),))
    await _WatchForm(context).draw()


class _WatchForm:
    """The form, and beside it what a day takes and what the watch could see."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._turn = 0

    async def draw(self) -> None:
        suites = {suite.version: suite for suite in await self._context.call(list_suites)}
        tiers = {
            f"{version}/{name}": f"{version}, {name}: {tier.test_count:,} cases"
            for version, suite in suites.items()
            for name, tier in suite.tiers.items()
        }
        scenarios = sum((await self._context.call(list_facets)).type.values())
        if scenarios:
            tiers[SCENARIOS_OPTION] = f"all scenarios of this server: {scenarios:,}"
        with parts.open_box("beside"):
            with Form(self._start) as self._form:
                self._draw_fields(tiers)
                with parts.open_box("row"):
                    self._form.add_submit_button("Start watch")
            with ui.element("aside"), parts.open_card("Estimate"):
                self._estimate = parts.add_markup(SafeHtml()).props("aria-live=polite")
        await self._update_estimate(self._turn)

    def _draw_fields(self, tiers: dict[str, str]) -> None:
        chosen = "v1.0/moderate" if "v1.0/moderate" in tiers else next(iter(tiers), None)
        with parts.open_card("What is watched"):
            self._model = add_model_field("Model", self._context.query.get("model", ""), self._on_change)
            suggest = add_suggestions(self._model, ALWAYS_SUGGESTED_MODELS)
            parts.add_paragraph(MODEL_NAMES_HINT, quiet=True).classes("small")
            suggest_models(self._context, suggest)
            with parts.open_box("fields"):
                self._cases = parts.add_select("Cases", tiers, chosen, self._on_change)
                self._repeats = parts.add_number_field("Repeats per case", 1, self._on_change, minimum=1)
                self._temperature = add_unclamped_number_field(
                    "Temperature", DEFAULT_TEMPERATURE, "At 0, the watch also counts replies that changed"
                )
                self._instruments = parts.add_select(
                    "Instruments (all that apply)",
                    {name: GROUP_TITLES.get(name, name.replace("_", " ").capitalize()) for name in INSTRUMENT_GROUPS},
                    [],
                    self._on_change,
                    multiple=True,
                )
        with parts.open_card("Schedule and budget"), parts.open_box("fields"):
            self._budget = add_unclamped_number_field("Budget a day (USD, optional)", None, "A day ends at this cost")
            self._at = parts.add_text_field("Time of day (UTC, optional)", hint="Such as 03:00")
            days = f"At least {MIN_BASELINE_DAYS}"
            self._days = add_unclamped_number_field("Days of the baseline", BASELINE_DAYS, days)
            self._days.on_value_change(lambda _: self._on_change())
        with parts.open_card("Alerts and name"):
            self._url = SecretField("Webhook URL (optional)", "Gets each notice and alarm as JSON; Slack’s format too")
            self._secret = SecretField("Secret of the webhook (optional)", "Signs what is sent")
            with parts.open_box("fields"):
                self._name = parts.add_text_field("Name (optional)")
                self._note = parts.add_text_field("Note (optional)")

    # ── Requests ──

    def _make_run_request(self) -> RunRequest:
        suite, _, tier = str(self._cases.value or "").partition("/")
        model = str(self._model.value or "").strip()
        has_scenarios = suite == SCENARIOS_OPTION
        return RunRequest(
            models=(model,) if model else (),
            suite=None if has_scenarios else suite or None,
            tier=None if has_scenarios else tier or None,
            scenarios=Selection() if has_scenarios else None,
            repeats=_to_int(self._repeats.value),
            cache=False,
            temperature=self._temperature.value,
        )

    async def _make_request(self) -> WatchRequest:
        url, secret = await self._url.read_value(), await self._secret.read_value()
        return WatchRequest(
            run=self._make_run_request(),
            budget_usd_per_day=self._budget.value,
            at=str(self._at.value or "").strip() or None,
            baseline_days=_to_int(self._days.value),
            instruments=tuple(self._instruments.value) or None,
            delivery=AlertDestination(url=url or None, secret=secret or None) if url or secret else None,
            name=str(self._name.value or "").strip() or None,
            note=str(self._note.value or "").strip() or None,
        )

    async def _start(self) -> None:
        fields: dict[str, Field] = {
            "models": self._model,
            "run.models": self._model,
            "suite": self._cases,
            "tier": self._cases,
            "repeats": self._repeats,
            "temperature": self._temperature,
            "instruments": self._instruments,
            "budget_usd_per_day": self._budget,
            "at": self._at,
            "baseline_days": self._days,
            "webhook": self._url,
            "name": self._name,
            "note": self._note,
        }
        with self._form.show_errors_at(fields):
            made = await self._context.call(start, await self._make_request())
            ui.navigate.to(make_url(f"/drift/{quote_path_part(made.id)}"))

    # ── Estimate ──

    async def _on_change(self, _: Any = None) -> None:
        """Estimate again, once nothing has changed for a moment."""
        self._turn += 1
        turn = self._turn
        await asyncio.sleep(ESTIMATE_DEBOUNCE_S)
        if turn == self._turn and not self._estimate.is_deleted:
            await self._update_estimate(turn)

    async def _update_estimate(self, change_number: int) -> None:
        """Show what a day takes; drop it if the form has changed meanwhile."""
        groups, run = tuple(self._instruments.value), self._make_run_request()
        try:
            day = None
            if run.models:
                day = await self._context.call(estimate_day, WatchRequest(run=run, instruments=groups or None))
            measured = (each.instruments for each in day) if day else (INSTRUMENT_GROUPS[name] for name in groups)
            request = DetectionPlanRequest(
                detect=DETECTED_LOSS,
                pass_rate=ASSUMED_PASS_RATE,
                repeats=_to_int(self._repeats.value),
                instruments=sum(map(len, measured)) or DEFAULT_TEXT_INSTRUMENT_COUNT,
                baseline_days=_to_int(self._days.value),
                run=run,
            )
            plan = await self._context.call(plan_detection, request)
            shown = render_watch_plan(plan)
            if day:
                shown = tag("div", shown, render_instrument_calls(day), class_="stack")
        except UseCaseRefused as error:
            shown = parts.render_refusal(error)
        if change_number == self._turn and not self._estimate.is_deleted:
            self._estimate.set_content(shown)


def _to_int(value: float | None) -> int:
    """Return a number as an integer, since number fields return floats; 0 for an empty field."""
    return 0 if value is None else int(value)


def render_watch_plan(plan: DetectionPlanView) -> SafeHtml:
    """Return what a day of a watch takes, from when on it can tell a change, and what it could see."""
    daily = plan.watch.spending_per_day
    cost = format_cost(KnownTotal(daily.cost_usd or 0.0, int(daily.cost_usd is None)))
    tiles = [
        ("Calls a day", f"{daily.calls:,}", pluralise(plan.cases, "case")),
        ("Cost a day", cost if plan.models else "–", None if plan.models else "name a model"),
        ("Can detect a change after", pluralise(plan.watch.baseline_days, "day"), "the baseline"),
    ]
    columns = (Column("Drop", is_row_header=True), Column("Notice", is_numeric=True), Column("Alarm", is_numeric=True))
    rows = (
        (f"{100 * each.loss:.0f} points", _format_days(each.notice_days), _format_days(each.alarm_days))
        for each in plan.watch.delays
    )
    return tag(
        "div",
        render_tiles(tiles),
        tag(
            "p",
            "After the baseline, a drop of the pass rate would be seen in half of all months after:",
            class_="small",
        ),
        render_table("Days until a drop is seen", columns, rows, hide_caption=True),
        _render_unknown_prices(plan.unknown_prices),
        tag(
            "p",
            f"Simulated with {format_percent(plan.pass_rate)} passed, "
            f"{pluralise(plan.watch.instruments, 'instrument')} and days that differ by "
            f"{100 * plan.watch.day_sd_points:.1f} points; the watch’s report has those of your own days.",
            class_="small quiet",
        ),
        class_="stack",
    )


def _format_days(days: int | None) -> str:
    return "over 30 days" if days is None else pluralise(days, "day")


def _render_unknown_prices(models: Sequence[str]) -> SafeHtml | None:
    if not models:
        return None
    listed = join_html((render_untrusted_text(each, 120) for each in models[:5]), ", ")
    set_it = render_link("/settings/prices", "Set a price")
    return tag("p", "No price is known for ", listed, ". A budget needs one. ", set_it, ".", class_="warn")
