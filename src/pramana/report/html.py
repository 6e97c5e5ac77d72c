"""A run as one self-contained HTML file: results in one by one, the file out.

It shows what the workbench's page of a run shows, drawn by the same functions. It has no script, font, picture or
external address, and its content security policy forbids them: model output is shown as text and cannot run, load or
link. The only links are ours, to recordings in a folder beside it. Long runs show their first results and how many more
there are.
"""

from typing import TextIO
from urllib.parse import quote

from pramana.analyse.spread import SpreadTally
from pramana.analyse.summary import ResultTally
from pramana.app.runs import result_detail_view, run_detail_view
from pramana.model import Case, Outcome, Result, Run
from pramana.report.exporters import Exporter
from pramana.report.exports import CaseResultPairs, FindRecordingPath, copy_temporary_file, open_temporary_files
from pramana.report.figures import (
    describe_parameters,
    describe_selection,
    describe_voice_setup,
    format_duration,
    make_title,
)
from pramana.report.look import DARK_COLOURS, LIGHT_COLOURS, format_css_variables, make_stylesheet
from pramana.report.markup import SafeHtml, join_html, render_text, render_untrusted_text, tag
from pramana.report.prose import render_plain_prose
from pramana.report.result_detail import render_checks, render_exchange
from pramana.report.run_summary import render_summary

MAX_SHOWN_RESULTS_PER_OUTCOME = 500
"""Results shown per outcome; a longer page is slow to open and too long to read."""

SHOWN_ROWS = 100
_OUTCOME_ORDER = (Outcome.FAILED, Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED, Outcome.PASSED)


def write_html(
    run: Run, results: CaseResultPairs, out: TextIO, find_recording_path: FindRecordingPath | None = None
) -> None:
    """Write the whole file."""
    tally, spread = ResultTally.for_run(run), SpreadTally.for_run(run)
    counts = dict.fromkeys(_OUTCOME_ORDER, 0)
    with open_temporary_files(_OUTCOME_ORDER) as listed:
        for case, result in results:
            tally.add(case, result)
            spread.add(result)
            outcome = result.outcome
            counts[outcome] += 1
            if counts[outcome] <= MAX_SHOWN_RESULTS_PER_OUTCOME:
                at = find_recording_path(case, result) if find_recording_path else None
                listed[outcome].write(_render_result(run, case, result, at) + "\n")
        summary = tally.summary()
        out.write(_HTML_HEAD.format(title=render_text(make_title(run, summary)), style=_CSS))
        out.write(_render_header(run))
        out.write(render_summary(run_detail_view(run, summary, spread.summarise_times()), max_rows=SHOWN_ROWS))
        out.write("<section><h2>Results</h2>\n")
        for outcome in _OUTCOME_ORDER:
            if counts[outcome]:
                more = counts[outcome] - MAX_SHOWN_RESULTS_PER_OUTCOME
                out.write(tag("h3", outcome.value.capitalize(), " ", tag("small", f"{counts[outcome]:,}")))
                copy_temporary_file(listed[outcome], out)
                if more > 0:
                    out.write(tag("p", f"and {more:,} more: the JSON and CSV exports have them all.", class_="quiet"))
        made = join_html(["Pramana ", run.plan.runner_version, " · run ", tag("span", run.reference, class_="mono")])
        out.write(join_html([SafeHtml("</section>"), tag("footer", made, class_="quiet small"), SafeHtml("</main>\n")]))


html_export = Exporter("html", ".html", write_html, links_recordings=True)


def _render_header(run: Run) -> SafeHtml:
    plan = run.plan
    asked = [parameters] if (parameters := describe_parameters(run)) else []
    asked += [f"{plan.repeats} repeats"] if plan.repeats > 1 else []
    asked += [f"embedded by {plan.embedder.typed}"] if plan.embedder else []
    asked += [f"scored by {each.name} {each.version}" for each in plan.scorers]
    asked += [aloud] if (aloud := describe_voice_setup(plan)) else []
    models = join_html((tag("b", render_untrusted_text(target.typed)) for target in plan.targets), ", ")
    lines = [
        tag("p", models, " · ", run.created),
        tag("p", join_html(map(render_untrusted_text, asked), ", "), class_="quiet"),
    ]
    if plan.system_prompt:
        lines.append(
            tag("details", tag("summary", "System prompt"), render_plain_prose(plan.system_prompt, "System prompt"))
        )
    if plan.selection:
        part = render_untrusted_text(describe_selection(plan.selection))
        lines.append(tag("p", "A selection, not the whole suite: ", part, class_="warn"))
    if run.status != "finished":
        reason = [": ", render_untrusted_text(run.reason)] if run.reason else []
        here = f". {run.stored:,} of {run.expected:,} results are stored."
        lines.append(tag("p", f"The run is {run.status}", reason, here, class_="warn"))
    return tag("header", tag("h1", render_untrusted_text(plan.suite)), lines)


def _render_result(run: Run, case: Case, result: Result, recording_path: str | None) -> SafeHtml:
    key, reply, view = result.key, result.reply, result_detail_view(0, case, result)
    labels = [render_untrusted_text(key.model)] if len(run.plan.targets) > 1 else []
    labels += [render_text(key.variant)] if key.variant != "text" else []
    labels += [render_text(f"repeat {key.repeat + 1}")] if run.plan.repeats > 1 else []
    labels += [render_text(format_duration(reply.total_s))] if reply else []
    facets = [case.facets.category, case.facets.difficulty, case.facets.language or "", *case.facets.tags]
    why = " ".join((view.reason or "").split())
    return tag(
        "details",
        tag(
            "summary",
            tag("span", render_untrusted_text(case.id, 200), class_="mono"),
            tag("span", render_untrusted_text(why, 300), class_="why"),
            tag("span", join_html(labels, " · "), class_="quiet small"),
        ),
        tag("p", join_html((render_untrusted_text(each) for each in facets if each), " · "), class_="quiet small"),
        render_exchange(view),
        render_checks(view.checks, evidence=False),
        _render_recording(run, case, result, recording_path),
        class_=result.outcome.value,
    )


def _render_recording(run: Run, case: Case, result: Result, recording_path: str | None) -> SafeHtml | None:
    """Return the link to a call's recording, or how to export it."""
    if result.reply is None or result.reply.call is None:
        return None
    if recording_path is None:
        how = f"pramana export {run.id} --id {case.id} --audio DIR"
        return tag("p", "To hear it: ", tag("span", render_untrusted_text(how, 300), class_="mono"), class_="quiet")
    return tag(
        "p", tag("a", "Recording of the call", href=quote(recording_path)), " ", tag("span", "caller left, agent right")
    )


_HTML_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
<main class="main">
"""

_THEMES_CSS = (
    f":root {{ {format_css_variables(LIGHT_COLOURS)} }}\n"
    f"@media (prefers-color-scheme: dark) {{ :root {{ {format_css_variables(DARK_COLOURS)} }} }}\n"
)
_CSS = (
    _THEMES_CSS
    + make_stylesheet()
    + """
body { margin: 0; } header { margin-bottom: var(--s5); }
details > summary > span { margin-right: var(--s3); overflow-wrap: anywhere; }
details > :not(summary) { margin: var(--s2) 0 var(--s3) var(--s4); }
footer { margin-top: var(--s6); }
"""
)
