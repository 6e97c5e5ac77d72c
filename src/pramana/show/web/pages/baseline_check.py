"""The box "Baseline" on the page of a run: an earlier run is named, and each model's verdict against it is shown.

The baseline, the margin and what fails the check are in the address (`baseline`, `margin`, `failOn`), so a build can
link to its check.
"""

from functools import partial

from nicegui import ui

from pramana.app.baselines import BaselineCheckView, BaselineRequest, ModelBaselineView, check_run_against_baseline
from pramana.app.comparison_sides import DEFAULT_MARGIN_POINTS
from pramana.app.views import RunDetailView
from pramana.report.markup import SafeHtml, join_html, render_link, render_untrusted_text, render_with_sign, tag
from pramana.show.web.kit import PageContext, UseCaseRefused, make_url, parts
from pramana.show.web.kit.forms import add_unclamped_number_field
from pramana.store.queue import ACTIVE_STATUSES

_PARAMETERS = ("baseline", "margin", "failOn")
"""In the address, as in the API."""
_HINT = "Name or ID of an earlier run of the same cases"
_FAIL_ON = {"regression": "Regression", "inconclusive": "Inconclusive, too"}


class BaselinePanel:
    """Checks a run that has ended against a baseline."""

    def __init__(self, context: PageContext, run: RunDetailView) -> None:
        self._context, self._reference = context, run.reference
        self._texts = {name: context.query.get(name) or "" for name in _PARAMETERS}
        try:
            stated = self._read_request()
        except UseCaseRefused:  # the check will say what is wrong
            stated = BaselineRequest(baseline=self._texts["baseline"])
        without_verdict = "" if self._texts["baseline"] else " screen-only"
        with parts.open_box(f"stack{without_verdict}", role="region", label="Baseline") as self._whole:
            parts.add_heading("Baseline")
            with parts.open_box("row screen-only"):
                self._field = parts.add_text_field("Baseline", stated.baseline, hint=_HINT).props("maxlength=200")
                self._field.on("keydown.enter", parts.notify_on_error(self._check))
                self._margin = add_unclamped_number_field("Margin (points)", stated.margin, "Acceptable loss")
                self._margin.on("keydown.enter", parts.notify_on_error(self._check))
                self._fail_on = parts.add_select("Fail on", _FAIL_ON, stated.fail_on)
                parts.add_button("Check", self._check)
            self._verdict = parts.add_markup(SafeHtml()).props("aria-live=polite")

    def _read_request(self) -> BaselineRequest:
        return self._context.read_request(BaselineRequest, self._texts, baseline=self._texts["baseline"])

    async def refresh(self, run: RunDetailView) -> None:
        """Show the box once the run has ended, with the verdict if the address names a baseline."""
        has_ended = run.status not in ACTIVE_STATUSES
        self._whole.set_visibility(has_ended)
        if has_ended and self._texts["baseline"]:
            await self._show_verdict()

    async def _check(self) -> None:
        margin, fail_on = self._margin.value, self._fail_on.value
        self._texts = {
            "baseline": str(self._field.value or "").strip(),
            "margin": "" if margin in (None, DEFAULT_MARGIN_POINTS) else f"{margin:g}",
            "failOn": "" if fail_on == "regression" else str(fail_on),
        }
        shown = {name: text or None for name, text in self._texts.items()}
        ui.navigate.history.replace(self._context.make_page_url(**shown))
        if self._texts["baseline"]:
            await self._show_verdict()
        else:
            self._verdict.set_content("")

    async def _show_verdict(self) -> None:
        try:
            wanted = self._read_request()
            found = await self._context.call(check_run_against_baseline, self._reference, wanted)
        except UseCaseRefused as error:
            if error.status == 401:
                raise
            shown = tag("p", render_untrusted_text(parts.describe_refusal(error)), class_="warn")
        else:
            shown = render_baseline_check(found)
        if not self._verdict.is_deleted:
            self._verdict.set_content(shown)


def render_baseline_check(check: BaselineCheckView) -> SafeHtml:
    """Return whether a run passed the check against its baseline, with a line for each model."""
    sign, words, colour = ("✓", "Passed", "passed") if check.passed else ("✗", "Failed", "failed")
    lines = (tag("li", each) for each in map(partial(_render_model, check), check.models))
    return join_html(
        [
            tag(
                "p",
                render_with_sign(sign, words, colour),
                " against the baseline, ",
                render_link(make_url(f"/runs/{check.baseline}"), f"run {check.baseline}"),
                f"; exit code {check.exit_code}",
            ),
            tag("p", check.incomplete, class_="warn") if check.incomplete else None,
            tag("p", check.decided_together, class_="quiet small") if check.decided_together else None,
            tag("ul", lines, class_="lines"),
        ]
    )


def _render_model(check: BaselineCheckView, model: ModelBaselineView) -> SafeHtml:
    found = model.comparison
    url = make_url(
        "/compare",
        base=found.base,
        new=found.new,
        model=found.base_model,
        newModel=found.new_model,
        margin=None if found.margin == DEFAULT_MARGIN_POINTS else f"{found.margin:g}",
    )
    named = join_html([tag("b", render_untrusted_text(model.model, 80)), ": "]) if len(check.models) > 1 else None
    judges = (tag("div", render_untrusted_text(each), class_="quiet small") for each in found.judges)
    return join_html([named, render_untrusted_text(found.sentence), " ", render_link(url, "Compare"), *judges])
