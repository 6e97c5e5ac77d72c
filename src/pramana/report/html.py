"""A run as one HTML page that needs nothing else: results in one by one, a page for people out.

No script, no font, no picture and no address is in it, and its own content policy forbids them: what a model wrote is
shown as text and cannot run, load or link. The only links are ours, to recordings in a folder beside it. It is readable
on a phone and in the dark, and long runs show their first results and say how many more there are. Text that is not
ours is set apart from the line it stands in, so that words from right to left read as they should and move nothing
beside them.
"""

from collections.abc import Mapping
from html import escape
from typing import TextIO
from urllib.parse import quote

from pramana.analyse.summary import DIMENSIONS, Rate, Summary, Tally, why
from pramana.model import Case, Outcome, Result, Run
from pramana.report.exports import Recordings, Results, pour, spools
from pramana.report.figures import (
    asked_aloud,
    bound,
    by_ear,
    duration,
    engines,
    judging,
    money,
    percent,
    printable,
    selection,
    span,
    title_of,
    true_rate,
    units,
    voice,
    whole,
)
from pramana.report.look import DARK, LIGHT, SIGNS, variables

SHOWN_RESULTS = 500
"""Of each outcome; a page of more is slow to open and read by nobody."""
SHOWN_ROWS = 100
TEXT_SHOWN = 8_000

_ORDER = (Outcome.FAILED, Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED, Outcome.PASSED)
_TITLES = {
    "category": "Category",
    "difficulty": "Difficulty",
    "tag": "Tag",
    "language": "Language",
    "variant": "Way of asking",
    "check": "Check",
    "model": "Model",
}


def write_html(run: Run, results: Results, out: TextIO, recordings: Recordings | None = None) -> None:
    """Write the whole page."""
    tally = Tally.of(run)
    counts = dict.fromkeys(_ORDER, 0)
    with spools(_ORDER) as listed:
        for case, result in results:
            tally.add(case, result)
            outcome = result.outcome
            counts[outcome] += 1
            if counts[outcome] <= SHOWN_RESULTS:
                listed[outcome].write(_result(run, case, result, recordings(case, result) if recordings else None))
        summary = tally.summary()
        out.write(_HEAD.format(title=_text(title_of(run, summary)), style=_STYLE))
        out.write(_header(run))
        out.write(_answer(summary, units(run)))
        out.write(_tiles(summary))
        out.writelines(_breakdown(_TITLES[name], summary.by[name]) for name in DIMENSIONS if name != "model")
        out.write(_notes(run, summary))
        out.write("<section><h2>Results</h2>\n")
        for outcome in _ORDER:
            if counts[outcome]:
                more = counts[outcome] - SHOWN_RESULTS
                out.write(f"<h3>{outcome.value.capitalize()} <span class=quiet>{counts[outcome]:,}</span></h3>\n")
                pour(listed[outcome], out)
                if more > 0:
                    out.write(f"<p class=quiet>and {more:,} more: the JSON and CSV exports have them all.</p>\n")
        out.write("</section>\n")
        version = f" {_text(run.plan.runner_version)}" if run.plan.runner_version else ""
        out.write(f"<footer>Pramana{version} · run <span class=id>{_text(run.id)}</span></footer>\n</main>\n")


def _text(text: str, limit: int = TEXT_SHOWN) -> str:
    shown = escape(printable(text[:limit]))
    return shown if len(text) <= limit else f"{shown}\n… and {len(text) - limit:,} more characters"


def _apart(text: str, limit: int = TEXT_SHOWN) -> str:
    """Return text of others for a line of ours: in whichever direction it runs, the line does not turn."""
    return f"<bdi>{_text(text, limit)}</bdi>"


def _header(run: Run) -> str:
    plan = run.plan
    models = ", ".join(f"<b>{_apart(target.typed)}</b>" for target in plan.targets)
    asked = [f"{key} {value}" for key, value in plan.parameters.items()]
    asked += [f"{plan.repeats} repeats"] if plan.repeats > 1 else []
    asked += [f"embedded by {plan.embedder.typed}"] if plan.embedder else []
    asked += [aloud] if (aloud := asked_aloud(plan)) else []
    asked += ["with a system prompt"] if plan.system_prompt is not None else []
    lines = [f"<p>{models} · {_text(run.created)}</p>", f"<p class=quiet>{', '.join(map(_apart, asked))}</p>"]
    if plan.selection:
        lines.append(f"<p class=warn>A selection, not the whole suite: {_apart(selection(plan.selection))}</p>")
    if run.status != "finished":
        reason = f": {_apart(run.reason)}" if run.reason else ""
        lines.append(
            f"<p class=warn>The run is {run.status}{reason}. {run.stored:,} of {run.expected:,} results are here.</p>"
        )
    return f"<header><h1>{_apart(plan.suite)}</h1>\n" + "\n".join(lines) + "</header>\n"


def _answer(summary: Summary, counted: str) -> str:
    rate = summary.overall
    judges = "".join(
        f"<p class=warn>Several judges, so the rate is of none of them: {_apart(each)}</p>\n"
        for each in summary.mixed_judges
    )
    quiet = (counted, summary.judged_by, engines(summary.engines))
    judges += "".join(f"<p class=quiet>{_apart(each)}</p>\n" for each in quiet if each)
    pills = "".join(
        f"<li><b>{count:,}</b> {_pill(outcome)}</li>"
        for outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED)
        if (count := getattr(rate, outcome.value)) or outcome in (Outcome.PASSED, Outcome.FAILED)
    )
    if len(summary.by["model"]) > 1:  # a rate over several models would be nobody's
        return f"{_breakdown('Model', summary.by['model'])}<section class=answer>{judges}<ul>{pills}</ul></section>\n"
    said = true_rate(rate.scored, span(rate)) if rate.scored else "None of the results could be decided."
    share = percent(rate.value) if rate.scored else "No verdict"
    return (
        f"<section class=answer><p class=big>{share}</p><p>{said}</p>\n{judges}{_bar(rate)}<ul>{pills}</ul></section>\n"
    )


def _pill(outcome: Outcome) -> str:
    return f"<span class='pill {outcome.value}'>{SIGNS[outcome]} {outcome.value}</span>"


def _bar(rate: Rate) -> str:
    """Draw the rate as a bar and its interval as a line with ends; the numbers stand beside it as text."""
    drawn = "<rect class=track width=100 height=10 />"
    if (interval := rate.interval) and rate.value is not None:
        low, high = 100 * interval.low, 100 * interval.high
        drawn += f"<rect class=fill width={100 * rate.value:.2f} height=10 />"
        drawn += f"<path class=whisker d='M{low:.2f} 2.5V7.5M{low:.2f} 5H{high:.2f}M{high:.2f} 2.5V7.5' />"
    return f"<svg class=bar viewBox='0 0 100 10' preserveAspectRatio=none aria-hidden=true>{drawn}</svg>"


def _tiles(summary: Summary) -> str:
    latency, first = summary.latency, summary.first_token
    tiles = [
        ("Cost", money(summary.cost_usd), _cost_note(summary)),
        ("Tokens in", whole(summary.input_tokens), ""),
        ("Tokens out", whole(summary.output_tokens), ""),
        *([("Tokens of judges", whole(summary.judge_tokens), _judges_note(summary))] if judging(summary) else []),
    ]
    if latency.count or summary.voice is None:
        note = f"p95 {duration(latency.p95)} · p99 {duration(latency.p99)}"
        tiles.append(("Latency, median", duration(latency.p50), note))
    for each in summary.voice.by if summary.voice else ():
        times = each.voice_to_voice
        note = f"p95 {bound(times.p95)}" if times.n > 1 else "n=1"
        tiles.append((f"Voice to voice, median, {_text(each.variant)}", bound(times.p50), note))
    if first.count:
        tiles.append(("First token, median", duration(first.p50), f"p95 {duration(first.p95)}"))
    if summary.cached:
        tiles.append(("From the cache", f"{summary.cached:,}", "not asked, paid or timed"))
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{value}{f'<small>{note}</small>' if note else ''}</dd></div>"
        for name, value, note in tiles
    )
    return f"<dl class=tiles>{cells}</dl>\n"


def _judges_note(summary: Summary) -> str:
    again = "earlier judgings included" if summary.judged_again else ""
    return " · ".join(each for each in (money(summary.judge_cost_usd), again) if each)


def _cost_note(summary: Summary) -> str:
    if summary.cost_usd.unknown:
        return f"no price for {summary.cost_usd.unknown:,} answers"
    return f"judges included: {money(summary.judge_cost_usd)}" if summary.judge_cost_usd.known else ""


def _breakdown(title: str, rows: Mapping[str, Rate]) -> str:
    if not rows:
        return ""
    shown = list(rows.items())[:SHOWN_ROWS]
    lines = "".join(
        f"<tr><th scope=row>{_apart(name, 200)}</th><td class=chart>{_bar(rate)}</td>"
        f"<td class=number>{f'{percent(rate.value)}<small>{span(rate)}</small>' if rate.scored else '–'}</td>"
        f"<td class=number>{rate.passed:,} of {rate.scored:,}{_undecided(rate)}</td></tr>\n"
        for name, rate in shown
    )
    more = f"<p class=quiet>and {len(rows) - len(shown):,} more</p>" if len(rows) > len(shown) else ""
    return f"<section><h2>{title}</h2><table class=rates>{lines}</table>{more}</section>\n"


def _undecided(rate: Rate) -> str:
    return f"<small>{rate.undecided:,} without a verdict</small>" if rate.undecided else ""


def _notes(run: Run, summary: Summary) -> str:
    parts = []
    if summary.reasons:
        rows = "".join(
            f"<tr><td>{_pill(each.outcome)}</td><td class=number>{each.count:,}</td><td>{_apart(each.text)}"
            f"<small class=ids>{', '.join(_apart(case, 200) for case in each.cases)}{' …' if each.more else ''}</small>"
            "</td></tr>"
            for each in summary.reasons
        )
        head = "<tr><th>Outcome<th class=number>Results<th>Why</tr>"
        parts.append(f"<section><h2>Without a verdict</h2><table>{head}{rows}</table></section>\n")
    if summary.voice:
        spoken = "".join(
            f"<li>{_apart(who)}, {_text(how)}: {_text(measured)}</li>" for who, how, measured in voice(summary.voice)
        )
        heard = by_ear(run, summary.voice)
        spoken += f"<li>{_apart(heard)}</li>" if heard else ""
        parts.append(f"<section><h2>Voice</h2><ul class=notes>{spoken}</ul></section>\n")
    if summary.not_reproducible:
        notes = "".join(f"<li>{_apart(each)}</li>" for each in summary.not_reproducible)
        parts.append(f"<section><h2>Not reproducible</h2><ul class=notes>{notes}</ul></section>\n")
    return "".join(parts)


def _result(run: Run, case: Case, result: Result, recording: str | None) -> str:
    key, reply = result.key, result.reply
    labels = [_apart(key.model)] if len(run.plan.targets) > 1 else []
    labels += [key.variant] if key.variant != "text" else []
    labels += [f"repeat {key.repeat + 1}"] if run.plan.repeats > 1 else []
    labels += [duration(reply.total_s)] if reply else []
    facets = [case.facets.category, case.facets.difficulty, case.facets.language or "", *case.facets.tags]
    asked = "".join(f"<h4>{turn.role}</h4><pre dir=auto>{_text(turn.text)}</pre>" for turn in case.turns)
    answer = f"<h4>reply</h4><pre class=reply dir=auto>{_text(reply.text) or '<i>nothing</i>'}</pre>" if reply else ""
    checks = "".join(
        f"<li>{_pill(each.outcome)} <b>{_apart(each.name)}</b>: {_apart(each.reason)}</li>" for each in result.checks
    )
    return (
        f"<details class={result.outcome.value}><summary><span class=id>{_apart(case.id, 200)}</span>"
        f"<span class=why>{_apart(_first_line(why(result)), 300)}</span>"
        f"<span class=labels>{' · '.join(labels)}</span></summary>"
        f"<div><p class=quiet>{' · '.join(_apart(each) for each in facets if each)}</p>{asked}{answer}"
        f"{_expected(case)}<ul class=checks>{checks}</ul>{_recording(run, case, result, recording)}</div></details>\n"
    )


def _recording(run: Run, case: Case, result: Result, at: str | None) -> str:
    """Return where a call can be heard, or how it could be."""
    if result.reply is None or result.reply.call is None:
        return ""
    if at is None:
        how = f"pramana export {run.id} --id {case.id} --audio DIR"
        return f"<p class=quiet>To hear it: <span class=id>{_apart(how, 300)}</span></p>"
    sides = "<span class=quiet>caller left, agent right</span>"
    return f"<p><a href='{escape(quote(at))}'>Recording of the call</a> {sides}</p>"


def _expected(case: Case) -> str:
    wanted = [*case.ideals, *([case.expected_outcome] if case.expected_outcome else [])]
    return f"<h4>expected</h4><pre dir=auto>{_text(chr(10).join(wanted))}</pre>" if wanted else ""


def _first_line(text: str) -> str:
    return " ".join(text.split())


_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
<main>
"""

_THEMES = f":root {{ {variables(LIGHT)} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}\n"
_STYLE = (
    _THEMES
    + """
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 2.75rem 0 .6rem; }
h3 { font-size: .95rem; margin: 1.75rem 0 .5rem; }
h4 { font-size: .75rem; font-weight: 500; color: var(--quiet); margin: .9rem 0 .25rem; }
p { margin: 0 0 .3rem; overflow-wrap: anywhere; }
small { display: block; font-size: .78rem; color: var(--quiet); font-weight: 400; }
.quiet { color: var(--quiet); font-weight: 400; }
.warn { border-left: 3px solid var(--errored); padding: .2rem 0 .2rem .75rem; margin: .75rem 0; }
.id { font-family: ui-monospace, monospace; font-size: .86em; overflow-wrap: anywhere; }
.answer { margin: 2rem 0 0; } section + .answer { margin-top: 1rem; }
.big { font-size: 3.4rem; font-weight: 650; line-height: 1.1; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; }
.answer .bar { height: 1.5rem; margin: .9rem 0 1rem; }
.answer ul { list-style: none; display: flex; flex-wrap: wrap; gap: .4rem 1.25rem; padding: 0; margin: 0; }
.bar { display: block; width: 100%; height: .9rem; border-radius: 3px; }
.track { fill: var(--line); } .fill { fill: var(--fill); }
.whisker { fill: none; stroke: var(--mark); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.pill { font-size: .85rem; white-space: nowrap; }
.pill.passed { color: var(--passed); } .pill.failed { color: var(--failed); } .pill.errored { color: var(--errored); }
.pill.unscored { color: var(--unscored); } .pill.skipped { color: var(--skipped); }
.tiles { display: flex; flex-wrap: wrap; gap: 1px; margin: 2.25rem 0 0;
  background: var(--line); border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
.tiles div { flex: 1 1 9rem; background: var(--raised); padding: .8rem 1rem; }
dt { font-size: .8rem; color: var(--quiet); } dd { margin: 0; font-size: 1.15rem; font-weight: 600; }
table { width: 100%; border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .5rem .75rem .5rem 0; border-top: 1px solid var(--line); }
th { font-weight: 500; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; padding: .5rem 0 .5rem .75rem; }
td.number + td, th.number + th { padding-left: 1.25rem; }
.rates th { width: 26%; overflow-wrap: anywhere; } .rates .chart { width: 36%; padding-top: .85rem; }
.ids { overflow-wrap: anywhere; } .notes { padding-left: 1.1rem; margin: 0; }
details { border-top: 1px solid var(--line); }
details:last-of-type { border-bottom: 1px solid var(--line); }
summary { display: grid; grid-template-columns: minmax(7rem, 14rem) 1fr auto; gap: 0 1rem;
  padding: .5rem .25rem .5rem .75rem; cursor: pointer; border-left: 3px solid transparent; align-items: baseline; }
summary:hover { background: var(--raised); }
summary:focus-visible { outline: 2px solid var(--ink); outline-offset: -2px; }
.failed > summary { border-left-color: var(--failed); } .errored > summary { border-left-color: var(--errored); }
.unscored > summary { border-left-color: var(--unscored); } .skipped > summary { border-left-color: var(--skipped); }
.passed > summary { border-left-color: var(--passed); }
.labels { color: var(--quiet); font-size: .84rem; max-width: 20rem; text-align: right; }
.why, .labels { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
details[open] :is(.why, .labels) { white-space: normal; overflow-wrap: anywhere; }
details > div { padding: .25rem .25rem 1rem .95rem; }
pre { margin: 0; padding: .6rem .8rem; background: var(--raised); border: 1px solid var(--line); border-radius: 6px;
  white-space: pre-wrap; overflow-wrap: anywhere; font: .84rem/1.45 ui-monospace, monospace; unicode-bidi: plaintext;
  max-height: 30rem; overflow: auto; }
.checks { list-style: none; padding: 0; margin: .9rem 0 0; overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--quiet); font-size: .85rem; }
@media (max-width: 34rem) {
  main { padding: 1.5rem 1rem 3rem; }
  .big { font-size: 2.75rem; }
  .rates, .rates tbody { display: block; }
  .rates tr { display: grid; grid-template-columns: 1fr auto; gap: 0 1rem; padding: .6rem 0;
    border-top: 1px solid var(--line); }
  .rates th, .rates td, .rates td.number + td { border: 0; padding: 0; width: auto; }
  .rates .chart { grid-column: 1 / -1; grid-row: 2; width: auto; padding: .35rem 0; }
  .rates th { grid-column: 1; grid-row: 1; }
  .rates td.number { grid-column: 2; grid-row: 1; }
  .rates td.number:last-child { grid-column: 1 / -1; grid-row: 3; text-align: left; font-size: .8rem;
    color: var(--quiet); white-space: normal; }
  .rates td.number:last-child small { display: inline; padding-left: .6rem; }
  summary { grid-template-columns: 1fr; } .labels { text-align: left; max-width: none; }
}
@media print { details { break-inside: avoid; } body { background: #fff; } }
"""
)
