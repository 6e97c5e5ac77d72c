"""What a run amounts to, to be looked at: the summary and the times that the API gives in, markup out. Pure functions.

The pass rate first, with its interval and as a bar, for each model by itself; what has no verdict stands apart with
the reasons. Then by whatever tells cases apart, then times, money and what was heard.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from pramana.analyse.calls import Voice
from pramana.analyse.summary import Total
from pramana.show import figures
from pramana.show.web import pictures
from pramana.show.web.markup import (
    Child,
    Column,
    Safe,
    foreign,
    interval_text,
    join,
    link,
    outcome,
    rate_bar,
    table,
    tag,
    tiles,
)
from pramana.store.queue import UNDER_WAY

DIMENSIONS = {
    "category": "Category",
    "difficulty": "Difficulty",
    "language": "Language",
    "variant": "Variant",
    "tag": "Tag",
    "check": "Check",
}
SHOWN_MODELS = 6
"""Models whose times are drawn; their numbers are in the exports."""
_Data = Mapping[str, Any]


def amounts(run: _Data, where: str) -> Safe:
    """Return all that a run amounts to so far; `where` is the address of the run, at which outcomes lead to results."""
    summary = run["summary"]
    return join(
        [
            _answer(run, summary, where),
            *_notes(summary),
            _tiles(summary),
            _undecided(summary),
            _breakdowns(run, summary),
            _times(run["aggregates"] or {}, summary),
            _voice(run, summary),
        ]
    )


# ── How good ──


def _answer(run: _Data, summary: _Data, where: str) -> Safe:
    overall = summary["overall"]
    ended = tag("ul", (tag("li", each) for each in ended_so(overall, where)), class_="outcomes")
    if len(run["models"]) > 1:  # a rate over several models would be nobody's
        return tag(
            "div", pictures.rates("Model", summary["by"]["model"], len(run["models"])), ended, class_="card answer"
        )
    scored = overall["passed"] + overall["failed"]
    if not scored:
        words = "Nothing has a verdict yet." if run["status"] in UNDER_WAY else "None of the results could be decided."
        return tag("div", tag("p", "No verdict", class_="big"), tag("p", words, class_="quiet"), ended, class_="card")
    said = (
        f"passed, of {scored:,} with a verdict. With 95 % confidence the true rate is "
        f"{interval_text(overall['interval'])}."
    )
    return tag(
        "div",
        tag("p", figures.percent(overall["passRate"]), class_="big"),
        tag("p", said, class_="quiet"),
        rate_bar(overall["passRate"], overall["interval"]),
        ended,
        class_="card answer",
    )


def ended_so(counts: _Data, where: str) -> Iterator[Safe]:
    """Yield how many results ended how; each leads to those."""
    for name in ("passed", "failed", "errored", "unscored", "skipped"):
        if counts[name] or name in ("passed", "failed"):
            yield link(f"{where}?outcome={name}#results", outcome(name, counts[name]))


def _notes(summary: _Data) -> Iterator[Safe]:
    for each in summary["mixedJudges"]:
        yield tag("p", "Several judges, so the rate is of none of them: ", foreign(each), class_="warn")
    for each in summary["notReproducible"]:
        yield tag("p", "Not reproducible: ", foreign(each), class_="warn")


def _undecided(summary: _Data) -> Safe | None:
    if not summary["reasons"]:
        return None
    columns = (Column("Outcome"), Column("Results", number=True), Column("Why"), Column("Cases"))
    rows = (
        (
            outcome(each["outcome"]),
            f"{each['count']:,}",
            foreign(each["reason"], 300),
            tag("span", join((foreign(case, 80) for case in each["cases"]), ", "), class_="mono"),
        )
        for each in summary["reasons"]
    )
    return tag(
        "section",
        tag("h3", "Without a verdict"),
        table("Why results have no verdict, the most frequent reason first", columns, rows, hidden=True),
    )


def _breakdowns(run: _Data, summary: _Data) -> Safe | None:
    by = {name: rows for name in DIMENSIONS if len(rows := summary["by"].get(name, {})) > 1}
    if not by:
        return None
    several = len(run["models"])
    together = tag("p", f"All {several} models together.", class_="quiet small") if several > 1 else None
    return tag(
        "div",
        (
            tag("section", tag("h3", f"By {title.lower()}"), together, pictures.rates(title, by[name]))
            for name, title in DIMENSIONS.items()
            if name in by
        ),
        class_="halves",
    )


# ── How much, how long ──


def _tiles(summary: _Data) -> Safe:
    cost, tokens, first = summary["costUsd"], summary["tokens"], summary["firstTokenSeconds"]
    judged = [summary[name] for name in ("judgeTokens", "judgeCostUsd")]
    some: list[tuple[str, Child, Child]] = [
        ("Cost", figures.money(_total(cost)), _cost_note(summary)),
        ("Tokens in", figures.whole(_total(tokens["input"])), _uncounted(tokens["input"])),
        ("Tokens out", figures.whole(_total(tokens["output"])), _uncounted(tokens["output"])),
    ]
    if any(each["known"] or each["unknown"] for each in judged):
        again = "; earlier judgings included" if summary["judgedAgain"] else ""
        note = f"{figures.money(_total(summary['judgeCostUsd']))} of the cost{again}"
        some.append(("Tokens of judges", figures.whole(_total(summary["judgeTokens"])), note))
    if first["count"]:
        note = f"p95 {figures.duration(first['p95'])}" if first["count"] > 1 else ""
        some.append(("First token, median", figures.duration(first["p50"]), f"{note} (n={first['count']:,})".strip()))
    if summary["cached"]:
        some.append(("From the cache", f"{summary['cached']:,}", "not asked, paid or timed"))
    return tiles(some)


def _total(data: _Data) -> Total:
    return Total(data["known"], data["unknown"])


def _cost_note(summary: _Data) -> str:
    unknown, judges = summary["costUsd"]["unknown"], summary["judgeCostUsd"]["known"]
    if unknown:
        return f"no price is known for {_answers(unknown)}"
    return "judges included" if judges else ""


def _uncounted(tokens: _Data) -> str:
    return f"not told for {_answers(tokens['unknown'])}" if tokens["unknown"] else ""


def _answers(count: int) -> str:
    return f"{count:,} answer{'' if count == 1 else 's'}"


def _times(aggregates: _Data, summary: _Data) -> Safe | None:
    drawn = [*_spreads("Latency", "answers", aggregates.get("latencySeconds"))]
    waited = aggregates.get("voiceToVoiceSeconds")
    drawn += _spreads("Voice to voice", "lines answered", waited)
    if not drawn:
        return None
    unanswered = sum(each["voiceToVoice"]["censored"] for each in (summary.get("voice") or {"by": ()})["by"])
    note = (
        tag("p", f"Lines that nobody answered have no time and are not drawn: {unanswered:,}.", class_="quiet small")
        if unanswered and waited
        else None
    )
    left_out = max(len(each["byModel"]) for each in (aggregates.get("latencySeconds"), waited) if each) - SHOWN_MODELS
    more = (
        tag(
            "p",
            f"and {left_out:,} more model{'' if left_out == 1 else 's'}; the exports have their times",
            class_="quiet small",
        )
        if left_out > 0
        else None
    )
    return tag("section", tag("h3", "Times"), tag("div", drawn, class_="halves"), more, note)


def _spreads(title: str, what: str, times: _Data | None) -> Iterator[Safe]:
    """Yield a picture of some times: of each model by itself, all on one scale."""
    if not times or not times["overall"]["count"]:
        return
    models = times["byModel"]
    if len(models) == 1:
        yield pictures.distribution(title, what, times["histogram"], times["overall"])
        return
    for model in list(models)[:SHOWN_MODELS]:
        named = f"{title}, {figures.printable(model)[:80]}"
        yield pictures.distribution(named, what, times["histogramByModel"][model], models[model])


# ── What was heard ──


def _voice(run: _Data, summary: _Data) -> Safe | None:
    if not summary.get("voice"):
        return None
    found = voice_of(summary["voice"])
    said = [tag("li", foreign(who, 80), f", {how}: ", measured) for who, how, measured in figures.voice(found)]
    if count := sum(each.by_ear for each in found.by):
        stt = run["plan"]["stt"]
        ear = foreign(stt["typed"]) if stt else figures.OUR_EAR
        rests = " rests" if count == 1 else "s rest"
        said.append(tag("li", f"{count:,} verdict{rests} on our ear (", ear, "), for want of a transcript."))
    return tag("section", tag("h3", "Voice"), tag("ul", said, class_="notes")) if said else None


def voice_of(data: _Data) -> Voice:
    """Return what the API says of calls as what it was made of, so that it is told in the same words everywhere."""
    return msgspec.convert(_as_stored(data), Voice)


def _as_stored(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_stored_name(name): _as_stored(each) for name, each in value.items()}
    return [_as_stored(each) for each in value] if isinstance(value, list) else value


def _stored_name(name: str) -> str:
    """Return a name as it was before the API spelt it in its own way.

    >>> _stored_name("longestGapSeconds"), _stored_name("wordsAMinute"), _stored_name("p50")
    ('longest_gap_s', 'words_a_minute', 'p50')
    """
    return re.sub(r"(?=[A-Z])", "_", re.sub(r"(?<=\w)Seconds$", "S", name)).lower()
