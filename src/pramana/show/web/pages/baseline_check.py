"""The box "Baseline" on the page of a run: an earlier run is named, and each model's verdict against it is shown.

The baseline is in the address, so that a build can link to its check.
"""

from functools import partial

from nicegui import ui

from pramana.app.baselines import BaselineCheckView, BaselineRequest, ModelBaselineView, check_run_against_baseline
from pramana.app.views import RunDetailView
from pramana.report.markup import SafeHtml, join_html, render_link, render_untrusted_text, render_with_sign, tag
from pramana.show.web.kit import PageContext, UseCaseRefused, make_url, parts
from pramana.store.queue import ACTIVE_STATUSES

BASELINE_PARAMETER = "baseline"
"""The name of the baseline in the address."""
_HINT = "Name or ID of an earlier run of the same cases"


class BaselinePanel:
    """Checks a run that has ended against a baseline."""

    def __init__(self, context: PageContext, run: RunDetailView) -> None:
        self._context, self._reference = context, run.reference
        self._named = context.query.get(BASELINE_PARAMETER) or ""
        with parts.open_box("stack", role="region", label="Baseline") as self._whole:
            parts.add_heading("Baseline")
            with parts.open_box("row"):
                self._field = parts.add_text_field("Baseline", self._named, hint=_HINT).props("maxlength=200")
                self._field.on("keydown.enter", parts.notify_on_error(self._check))
                parts.add_button("Check", self._check)
            self._verdict = parts.add_markup(SafeHtml()).props("aria-live=polite")

    async def refresh(self, run: RunDetailView) -> None:
        """Show the box once the run has ended, with the verdict if the address names a baseline."""
        has_ended = run.status not in ACTIVE_STATUSES
        self._whole.set_visibility(has_ended)
        if has_ended and self._named:
            await self._show_verdict()

    async def _check(self) -> None:
        self._named = str(self._field.value or "").strip()
        ui.navigate.history.replace(self._context.make_page_url(**{BASELINE_PARAMETER: self._named or None}))
        if self._named:
            await self._show_verdict()
        else:
            self._verdict.set_content("")

    async def _show_verdict(self) -> None:
        wanted = BaselineRequest(baseline=self._named)
        try:
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
            tag("ul", lines, class_="lines"),
        ]
    )


def _render_model(check: BaselineCheckView, model: ModelBaselineView) -> SafeHtml:
    found = model.comparison
    url = make_url("/compare", base=found.base, new=found.new, model=found.base_model, newModel=found.new_model)
    named = join_html([tag("b", render_untrusted_text(model.model, 80)), ": "]) if len(check.models) > 1 else None
    judges = (tag("div", render_untrusted_text(each), class_="quiet small") for each in found.judges)
    return join_html([named, render_untrusted_text(found.sentence), " ", render_link(url, "Compare"), *judges])
