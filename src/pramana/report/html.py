"""A run as one self-contained HTML file: results in one by one, the file out.

It shows what the workbench's page of a run shows, drawn by the same functions. It has no script, font, picture or
external address, and its content security policy forbids them: model output is shown as text and cannot run, load or
link. The only links are ours, to recordings in a folder beside it. Long runs show their first results and how many more
there are.
"""

from typing import TextIO
from urllib.parse import quote

from pramana.analyse.spread import SpreadTally
from pramana.analyse.summary import Tally
from pramana.app.runs import result_detail_view, run_detail_view
from pramana.model import Case, Outcome, Result, Run
from pramana.report.exporters import Exporter
from pramana.report.exports import Recordings, Results, copy_spool, open_temporary_files
from pramana.report.figures import (
    describe_parameters,
    describe_selection,
    describe_voice_setup,
    format_duration,
    make_title,
)
from pramana.report.look import DARK, LIGHT, css_variables, stylesheet
from pramana.report.markup import Safe, join, render_foreign_text, render_text, tag
from pramana.report.prose import render_prose
from pramana.report.result_detail import render_checks, render_exchange
from pramana.report.run_summary import render_summary

SHOWN_RESULTS = 500
"""Results shown per outcome; a longer page is slow to open and too long to read."""

SHOWN_ROWS = 100
_ORDER = (Outcome.FAILED, Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED, Outcome.PASSED)


def write_html(run: Run, results: Results, out: TextIO, recordings: Recordings | None = None) -> None:
    """Write the whole file."""
    tally, spread = Tally.for_run(run), SpreadTally.for_run(run)
    counts = dict.fromkeys(_ORDER, 0)
    with open_temporary_files(_ORDER) as listed:
        for case, result in results:
            tally.add(case, result)
            spread.add(result)
            outcome = result.outcome
            counts[outcome] += 1
            if counts[outcome] <= SHOWN_RESULTS:
                at = recordings(case, result) if recordings else None
                listed[outcome].write(_render_result(run, case, result, at) + "\n")
        summary = tally.summary()
        out.write(_HEAD.format(title=render_text(make_title(run, summary)), style=_STYLE))
        out.write(_render_header(run))
        out.write(render_summary(run_detail_view(run, summary, spread.times()), rows=SHOWN_ROWS))
        out.write("<section><h2>Results</h2>\n")
        for outcome in _ORDER:
            if counts[outcome]:
                more = counts[outcome] - SHOWN_RESULTS
                out.write(tag("h3", outcome.value.capitalize(), " ", tag("small", f"{counts[outcome]:,}")))
                copy_spool(listed[outcome], out)
                if more > 0:
                    out.write(tag("p", f"and {more:,} more: the JSON and CSV exports have them all.", class_="quiet"))
        made = join(["Pramana ", run.plan.runner_version, " · run ", tag("span", run.reference, class_="mono")])
        out.write(join([Safe("</section>"), tag("footer", made, class_="quiet small"), Safe("</main>\n")]))


html_export = Exporter("html", ".html", write_html, links_recordings=True)


def _render_header(run: Run) -> Safe:
    plan = run.plan
    asked = [parameters] if (parameters := describe_parameters(run)) else []
    asked += [f"{plan.repeats} repeats"] if plan.repeats > 1 else []
    asked += [f"embedded by {plan.embedder.typed}"] if plan.embedder else []
    asked += [f"scored by {each.name} {each.version}" for each in plan.scorers]
    asked += [aloud] if (aloud := describe_voice_setup(plan)) else []
    models = join((tag("b", render_foreign_text(target.typed)) for target in plan.targets), ", ")
    lines = [
        tag("p", models, " · ", run.created),
        tag("p", join(map(render_foreign_text, asked), ", "), class_="quiet"),
    ]
    if plan.system_prompt:
        lines.append(tag("details", tag("summary", "System prompt"), render_prose(plan.system_prompt, "System prompt")))
    if plan.selection:
        part = render_foreign_text(describe_selection(plan.selection))
        lines.append(tag("p", "A selection, not the whole suite: ", part, class_="warn"))
    if run.status != "finished":
        reason = [": ", render_foreign_text(run.reason)] if run.reason else []
        here = f". {run.stored:,} of {run.expected:,} results are stored."
        lines.append(tag("p", f"The run is {run.status}", reason, here, class_="warn"))
    return tag("header", tag("h1", render_foreign_text(plan.suite)), lines)


def _render_result(run: Run, case: Case, result: Result, recording: str | None) -> Safe:
    key, reply, view = result.key, result.reply, result_detail_view(0, case, result)
    labels = [render_foreign_text(key.model)] if len(run.plan.targets) > 1 else []
    labels += [render_text(key.variant)] if key.variant != "text" else []
    labels += [render_text(f"repeat {key.repeat + 1}")] if run.plan.repeats > 1 else []
    labels += [render_text(format_duration(reply.total_s))] if reply else []
    facets = [case.facets.category, case.facets.difficulty, case.facets.language or "", *case.facets.tags]
    why = " ".join((view.reason or "").split())
    return tag(
        "details",
        tag(
            "summary",
            tag("span", render_foreign_text(case.id, 200), class_="mono"),
            tag("span", render_foreign_text(why, 300), class_="why"),
            tag("span", join(labels, " · "), class_="quiet small"),
        ),
        tag("p", join((render_foreign_text(each) for each in facets if each), " · "), class_="quiet small"),
        render_exchange(view),
        render_checks(view.checks, evidence=False),
        _render_recording(run, case, result, recording),
        class_=result.outcome.value,
    )


def _render_recording(run: Run, case: Case, result: Result, at: str | None) -> Safe | None:
    """Return the link to a call's recording, or how to export it."""
    if result.reply is None or result.reply.call is None:
        return None
    if at is None:
        how = f"pramana export {run.id} --id {case.id} --audio DIR"
        return tag("p", "To hear it: ", tag("span", render_foreign_text(how, 300), class_="mono"), class_="quiet")
    return tag("p", tag("a", "Recording of the call", href=quote(at)), " ", tag("span", "caller left, agent right"))


_HEAD = """<!doctype html>
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

_THEMES = (
    f":root {{ {css_variables(LIGHT)} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {css_variables(DARK)} }} }}\n"
)
_STYLE = (
    _THEMES
    + stylesheet()
    + """
body { margin: 0; } header { margin-bottom: var(--s5); }
details > summary > span { margin-right: var(--s3); overflow-wrap: anywhere; }
details > :not(summary) { margin: var(--s2) 0 var(--s3) var(--s4); }
footer { margin-top: var(--s6); }
"""
)
