"""Numbers and foreign text as people read them: shares, sums, times and outputs in, short safe words out.

Every page, table and export takes its words from here, so that one number reads the same everywhere. An unknown sum is
called unknown, and nothing is rounded up to all or down to none.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pramana.analyse.calls import Voice
from pramana.analyse.summary import Rate, Summary, Total
from pramana.analyse.voice import Seconds
from pramana.model import Run

_NOT_SHOWN = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\u2029\u202f-\u2065\u206a-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd"
    + "".join(f"{chr(plane + 0x10000)}-{chr(plane + 0x1FFFD)}" for plane in range(0, 0x100000, 0x10000))
    + "]"
)
"""What XML cannot hold, and the nine characters that make a text be read in another order than it is written in."""


def printable(text: str) -> str:
    """Return text in which every character may stand in XML 1.0, HTML and UTF-8; others become escapes.

    So do the embeddings, overrides and isolates of Unicode (U+202A–202E, U+2066–2069), by which a text could make its
    surroundings read as what they do not say. Words of scripts that run from right to left need none of them.

    >>> printable("a\\x00b \\ud800 \\x1b[31m \\u202e")
    'a\\\\x00b \\\\ud800 \\\\x1b[31m \\\\u202e'
    """
    return _NOT_SHOWN.sub(lambda found: _escaped(ord(found[0])), text)


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def percent(share: float | None) -> str:
    """Return a share for people; one that is not all never reads as all, nor one that is not none as none.

    >>> percent(0.875), percent(0.9999), percent(1.0), percent(None)
    ('87.5 %', '> 99.9 %', '100 %', 'no verdict')
    """
    if share is None:
        return "no verdict"
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{share:.0%}".replace("%", " %") if share in (0, 1) else f"{share * 100:.1f} %"


def title_of(run: Run, summary: Summary) -> str:
    """Return a heading: the suite, and the pass rate where there is one model; over several it would be nobody's."""
    if len(run.plan.targets) > 1:
        return f"{run.plan.suite} on {len(run.plan.targets)} models"
    return f"{run.plan.suite}: {percent(summary.overall.value)}{' passed' if summary.overall.scored else ''}"


def selection(filters: Mapping[str, Any]) -> str:
    """Return the filters of a selection in words.

    >>> selection({"categories": ["coding", "safety"], "limit": 5, "of these": {"ids": ["a-1"]}})
    'categories coding, safety; limit 5; of these: ids a-1'
    """
    return "; ".join(
        f"{name}: {selection(value)}"
        if isinstance(value, Mapping)
        else f"{name} {', '.join(map(str, value)) if isinstance(value, list | tuple) else value}"
        for name, value in filters.items()
    )


def span(rate: Rate) -> str:
    """Return the interval of a rate for people."""
    interval = rate.interval
    return f"{interval.low * 100:.1f}–{interval.high * 100:.1f} %" if interval else "–"


def spent(summary: Summary) -> str:
    """Return tokens, cost and times in one line."""
    times, judges = summary.latency, judging(summary)
    parts = [
        f"Tokens: {whole(summary.input_tokens)} in, {whole(summary.output_tokens)} out",
        *([f"judges: {judges}"] if judges else []),
        f"cost: {money(summary.cost_usd)}{' with them' if judges else ''}",
    ]
    if times.count or summary.voice is None:
        parts.append(f"latency p50/p95/p99: {'/'.join(duration(each) for each in (times.p50, times.p95, times.p99))}")
    if summary.first_token.count:
        parts.append(f"first token p50/p95: {duration(summary.first_token.p50)}/{duration(summary.first_token.p95)}")
    if summary.cached:
        parts.append(f"{summary.cached:,} from the cache")
    return "; ".join(parts) + "."


def voice(found: Voice) -> Iterator[tuple[str, str, str]]:
    """Yield who was called, how, and what was measured of it, in a sentence of numbers."""
    for each in found.by:
        times = each.voice_to_voice
        said = [f"voice to voice p50 {bound(times.p50)}, p95 {bound(times.p95)}, most {bound(times.max)}"]
        said[0] += f" (n={times.n:,}" + (f", {times.censored:,} unanswered)" if times.censored else ")")
        said += [f"leading silence {duration(each.leading_silence_s)}"] if each.leading_silence_s is not None else []
        said += [f"misheard {percent(each.heard.rate)} of {each.heard.words:,} words"] if each.heard.words else []
        said += [f"{percent(each.referred.rate)} of the reference's words wrong"] if each.referred.words else []
        said += [f"{each.words_a_minute:.0f} words a minute"] if each.words_a_minute is not None else []
        said += [f"DNSMOS {each.quality:.1f}"] if each.quality is not None else []
        yield each.model, each.variant, f"{'; '.join(said)}."
    for cost in found.tax:
        if cost.difference is None:
            continue
        causes = ", ".join(f"{count:,} {cause}" for cause, count in cost.causes.items() if count)
        low, high = (f"{100 * end:+.1f}" for end in cost.interval)
        lost = f"{len(cost.lost):,} lost{f' ({causes})' if causes else ''}, {cost.gained:,} gained"
        difference = f"{100 * cost.difference:+.1f} points ({low} to {high}, {cost.pairs:,} pairs)"
        yield cost.model, f"{cost.variant} against text", f"{difference}: {lost}."


def bound(time: Seconds | None) -> str:
    """Return a time that may be only a bound, for people."""
    if time is None:
        return "–"
    return f"{'' if time.relation == '=' else time.relation + ' '}{duration(time.value)}"


def judging(summary: Summary) -> str:
    """Return what judges and embedders took, for people; nothing when nobody was asked."""
    tokens, cost = summary.judge_tokens, summary.judge_cost_usd
    if not (tokens.known or tokens.unknown or cost.known or cost.unknown):
        return ""
    again = ", earlier judgings included" if summary.judged_again else ""
    return f"{whole(tokens)} tokens, {money(cost)}{again}"


def whole(total: Total) -> str:
    """Return a count for people.

    >>> whole(Total(1200, 0)), whole(Total(1200, 3)), whole(Total(0, 3))
    ('1,200', 'at least 1,200', 'unknown')
    """
    return _known(total, f"{total.known:,.0f}")


def money(total: Total) -> str:
    """Return a sum of dollars for people.

    >>> money(Total(0.0123, 0)), money(Total(0, 2)), money(Total(0, 0))
    ('$0.0123', 'unknown', '$0.00')
    """
    digits = 2 if total.known >= 1 or not total.known else 4
    shown = f"${total.known:,.{digits}f}" if total.known >= 0.0001 or not total.known else "under $0.0001"
    return _known(total, shown)


def _known(total: Total, shown: str) -> str:
    return shown if not total.unknown else f"at least {shown}" if total.known else "unknown"


def duration(seconds: float | None) -> str:
    """Return a time for people.

    >>> duration(0.0123), duration(1.5), duration(95), duration(None)
    ('12 ms', '1.50 s', '95.0 s', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
