"""Markup of a watch's report: what changed and what did not, what the endpoint's own days allow to see, and facts."""

from collections.abc import Sequence

from pramana.analyse.instruments import INSTRUMENTS
from pramana.analyse.numbers import format_percent, pluralise
from pramana.app.replies import ReplyPairView, SideReplyView
from pramana.app.watch_reports import (
    CategoryShiftView,
    ChangeReportView,
    ConfirmationView,
    EndpointView,
    HashConsistencyView,
    WatchReportView,
)
from pramana.replies import describe_reply
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    join_html,
    render_link,
    render_outcome,
    render_table,
    render_untrusted_text,
    tag,
)
from pramana.report.prose import render_plain_prose
from pramana.report.watches import format_value
from pramana.report.word_diff import mark_word_changes
from pramana.show.web.kit import make_url

MAX_SHOWN_CATEGORIES = 12


def render_change(change: ChangeReportView) -> SafeHtml:
    """Return what changed: since when, by category, and cases with both replies; and what did not change."""
    first = change.first_day
    among = change.first_days
    since = (
        tag(
            "p",
            "It probably began on ",
            tag("strong", first),
            f" (95 % interval: {among[0]} to {among[1]})" if among and among[0] != among[1] else None,
            ".",
        )
        if first
        else None
    )
    compared = (
        tag(
            "p",
            "The last day compared with a day of the baseline: ",
            render_untrusted_text(change.comparison, 1000),
            " ",
            render_link(make_url("/compare", base=change.base_run, new=change.new_run, anySuite=True), "Comparison"),
        )
        if change.comparison and change.base_run and change.new_run
        else None
    )
    same = tag("p", f"No change seen: {'; '.join(change.unchanged)}.", class_="quiet") if change.unchanged else None
    return tag(
        "section",
        tag("h2", "What changed"),
        since,
        _render_categories(change.categories),
        compared,
        same,
        *((tag("h3", "Replies side by side"), *map(_render_pair, change.examples)) if change.examples else ()),
        id="change",
        tabindex="-1",
        class_="stack",
    )


def _render_categories(shifts: Sequence[CategoryShiftView]) -> SafeHtml | None:
    if not shifts:
        return None
    columns = (
        Column("Category", is_row_header=True),
        Column("Measured"),
        Column("Baseline", is_numeric=True),
        Column("Since", is_numeric=True),
        Column("Prompts", is_numeric=True),
    )
    rows = (
        (
            render_untrusted_text(each.category, 120),
            INSTRUMENTS[each.instrument].title if each.instrument in INSTRUMENTS else each.instrument,
            *(format_percent(min(1.0, max(0.0, value))) for value in (each.before, each.since)),
            f"{each.prompts:,}",
        )
        for each in shifts[:MAX_SHOWN_CATEGORIES]
    )
    more = len(shifts) - MAX_SHOWN_CATEGORIES
    table = render_table("Means by category, before and since the change", columns, rows, hide_caption=True)
    return tag("div", table, tag("p", f"and {more:,} more", class_="quiet small") if more > 0 else None)


def _render_pair(pair: ReplyPairView) -> SafeHtml:
    sides = (pair.base, pair.new)
    texts = (_describe_side_reply(pair.base), _describe_side_reply(pair.new))
    shown = (
        tag("section", tag("p", name, " ", render_outcome(side.outcome), class_="row"), marked, _render_reason(side))
        for name, side, marked in zip(("Baseline", "Last day"), sides, mark_word_changes(*texts), strict=True)
    )
    words = tag("summary", render_outcome(pair.new.outcome), " ", render_untrusted_text(pair.case, 200))
    asked = render_plain_prose(pair.prompt, f"Prompt of {pair.case[:80]}") if pair.prompt is not None else None
    return tag("details", words, tag("div", asked, tag("div", shown, class_="halves below"), class_="stack below"))


def _describe_side_reply(side: SideReplyView) -> str:
    return describe_reply(side.reply or "", side.tool_calls, max_tool_call_length=None)


def _render_reason(side: SideReplyView) -> SafeHtml | None:
    return tag("p", render_untrusted_text(side.reason, 500), class_="quiet small") if side.reason else None


# ── Beside the statistic ──


def render_facts_beside_statistic(report: WatchReportView) -> SafeHtml:
    """Return what is known beside the statistic: confirming batches, reported changes, hash consistency, own days."""
    return join_html(
        [
            _render_confirmations(report.confirmations),
            _render_facts(report),
            _render_endpoint(report.endpoint) if report.endpoint else None,
            tag("p", report.watch.forecast.sentence, class_="quiet") if report.watch.forecast else None,
        ]
    )


def _render_confirmations(batches: Sequence[ConfirmationView]) -> SafeHtml | None:
    if not batches:
        return None
    columns = (
        Column("Batch", is_row_header=True),
        Column("Measured"),
        Column("Value", is_numeric=True),
        Column("Baseline", is_numeric=True),
        Column("Tolerance"),
    )
    rows: list[tuple[HtmlChild, ...]] = []
    for batch in reversed(batches):
        link = render_link(make_url(f"/runs/{batch.run}"), f"{batch.day}")
        for place, each in enumerate(batch.values):
            band = " to ".join(format_value(each.unit, value) for value in each.baseline_band or ()) or "–"
            beyond = "not compared" if each.is_outside is None else "outside" if each.is_outside else "within"
            first = link if not place else tag("span", batch.day, class_="visually-hidden")
            rows.append((first, each.title, format_value(each.unit, each.value), band, beyond))
    return tag(
        "section",
        tag("h2", "Confirming batches"),
        tag("p", "Run on demand; the statistic does not use them.", class_="quiet small"),
        render_table("Confirming batches, newest first", columns, rows, hide_caption=True),
    )


def _render_facts(report: WatchReportView) -> SafeHtml | None:
    found = [tag("li", render_untrusted_text(each, 500)) for each in report.reported_changes]
    if report.hash_consistency:
        found.append(tag("li", _describe_consistency(report.hash_consistency)))
    if not found:
        return None
    about = "Facts beside the statistic; none of them raises an alarm."
    return tag(
        "section",
        tag("h2", "Reported by the provider, and hash consistency"),
        tag("p", about, class_="quiet small"),
        tag("ul", found, class_="lines"),
    )


def _describe_consistency(view: HashConsistencyView) -> str:
    return (
        f"Hash consistency, the community’s measure: {view.equal:,} of {view.compared:,} replies of the last day "
        f"({format_percent(view.share)}) equal the baseline’s usual reply to the letter: {view.word} "
        "(stable from 95 %, watch from 80 %, drifting below). It cannot tell a change from chance."
    )


def _render_endpoint(view: EndpointView) -> SafeHtml:
    so_far = "" if view.is_baseline_complete else " so far"
    calls = pluralise(view.prompts * view.repeats, "call")
    columns = (
        Column("Drop of the pass rate", is_row_header=True),
        Column("Notice", is_numeric=True),
        Column("Alarm", is_numeric=True),
    )
    rows = (
        (f"{100 * each.change:.0f} points", _format_delay(each.notice_days), _format_delay(each.alarm_days))
        for each in view.delays
    )
    return tag(
        "section",
        tag("h2", "This endpoint’s own days"),
        tag(
            "p",
            f"In {pluralise(view.days, 'day')}{so_far}, the pass rate of a day has a standard deviation of "
            f"{100 * view.call_standard_deviation:.1f} points from its {calls}, and of "
            f"{100 * view.day_standard_deviation:.1f} points beyond that. The rank correlation of a day with the next "
            f"is {view.next_day_rank_correlation:.2f}.",
        ),
        tag("p", "After how many days would a drop be seen? In half of all simulated cases:", class_="below"),
        render_table("Days until a drop is seen", columns, rows, hide_caption=True),
    )


def _format_delay(days: int | None) -> str:
    return "not within 30 days" if days is None else f"after {pluralise(days, 'day')}"
