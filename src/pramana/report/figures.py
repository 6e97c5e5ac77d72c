"""Figures in words: shares, sums, times and model output in; short, safe text out.

Every page, table and export takes its wording from here, so that a number reads the same everywhere. An unknown sum is
shown as unknown, and no share is rounded up to 100 % or down to 0 %.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, NamedTuple

from pramana.analyse.intervals import Interval
from pramana.analyse.numbers import format_duration as format_duration  # noqa: PLC0414 - re-exported with the other formats
from pramana.analyse.numbers import (
    format_error_rate,
    format_parameter,
    format_signed_points,
    format_signed_points_with_unit,
    pluralise,
)
from pramana.analyse.numbers import format_interval as format_interval  # noqa: PLC0414
from pramana.analyse.numbers import format_percent as format_percent  # noqa: PLC0414
from pramana.analyse.repeats import RepeatRates
from pramana.analyse.scores import HIGHEST_RATING, LOWEST_RATING, RubricAverages, ScoreSummary
from pramana.analyse.summary import FailedResult, KnownTotal, Rate, Summary, find_rejected_parameters
from pramana.analyse.voice import (
    TEXT_VARIANT,
    BoundedSeconds,
    Latency,
    RunVoice,
    TurnTaking,
    WordErrors,
    name_speech_recognition,
)
from pramana.embedded.engines import EngineInfo
from pramana.model import Plan, Reply, ResultKey, Run, Target
from pramana.replies import describe_reply

if TYPE_CHECKING:
    from pramana.app.views import ReplyView, ResultView, TargetView

MAX_SHOWN_LABELS = 8
"""The most labels shown per score."""

_UNPRINTABLE_RE = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\u2029\u202f-\u2065\u206a-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd"
    + "".join(f"{chr(plane + 0x10000)}-{chr(plane + 0x1FFFD)}" for plane in range(0, 0x100000, 0x10000))
    + "]"
)
"""Characters that XML cannot hold, and the nine that reorder the text around them."""


def escape_unprintable(text: str) -> str:
    """Escape all characters that are invalid in XML 1.0, HTML or UTF-8.

    The embeddings, overrides and isolates of Unicode (U+202A–202E, U+2066–2069) are escaped too, as they could make the
    surrounding text read as something else. Words in right-to-left scripts do not need them.

    >>> escape_unprintable("a\\x00b \\ud800 \\x1b[31m \\u202e")
    'a\\\\x00b \\\\ud800 \\\\x1b[31m \\\\u202e'
    """
    return _UNPRINTABLE_RE.sub(lambda found: _escape_code_point(ord(found[0])), text)


def _escape_code_point(code_point: int) -> str:
    return (
        f"\\x{code_point:02x}"
        if code_point < 0x100
        else f"\\u{code_point:04x}"
        if code_point < 0x10000
        else f"\\U{code_point:08x}"
    )


CALL_STAGE_DESCRIPTIONS: Mapping[str, str] = {
    "ringing": "ringing",
    "caller": "caller speaking",
    "waiting": "waiting for the agent",
    "agent": "agent speaking",
    "scoring": "scoring the call",
}
"""The description of each stage of a call."""


def describe_call_stages(call_counts: Mapping[Any, int]) -> str:
    """Describe the stages of the calls under way; a single call has no number.

    >>> describe_call_stages({"agent": 1}), describe_call_stages({"ringing": 2, "agent": 1}), describe_call_stages({})
    ('agent speaking', '2 ringing, 1 agent speaking', '')
    """
    many = sum(call_counts.values()) > 1
    return ", ".join(
        f"{count} {CALL_STAGE_DESCRIPTIONS[stage]}" if many else CALL_STAGE_DESCRIPTIONS[stage]
        for stage, count in call_counts.items()
    )


def make_title(run: Run, summary: Summary) -> str:
    """Return a heading: the suite, and the pass rate if the run has one model; a pooled rate would mean nothing."""
    if len(run.plan.targets) > 1:
        return f"{run.plan.suite} on {len(run.plan.targets)} models"
    return (
        f"{run.plan.suite}: {format_percent(summary.overall.value)}{' passed' if summary.overall.scored_count else ''}"
    )


def describe_selection(filters: Mapping[str, Any]) -> str:
    """Describe the filters of a selection.

    >>> describe_selection({"categories": ["coding", "safety"], "limit": 5, "of these": {"ids": ["a-1"]}})
    'categories coding, safety; limit 5; of these: ids a-1'
    """
    return "; ".join(
        f"{name}: {describe_selection(value)}"
        if isinstance(value, Mapping)
        else f"{name} {', '.join(map(str, value)) if isinstance(value, list | tuple) else value}"
        for name, value in filters.items()
    )


def describe_parameters(run: Run) -> str:
    """Describe the parameters sent with each case, except those that no model of the run accepts.

    >>> targets = (Target("gpt-5", "openai", "gpt-5"), Target("python:shop:agent", "python", "shop:agent"))
    >>> plan = Plan("cases", None, targets, parameters={"temperature": 0.0, "seed": 42, "top_p": None, "stop": ["a"]})
    >>> left_out = {"gpt-5": ["stop"], "python:shop:agent": ["stop", "temperature"]}
    >>> describe_parameters(Run("r1", plan, "finished", "2026-01-02T03:04:05Z", 2, 2, notes={"left_out": left_out}))
    'temperature 0 (not sent to python:shop:agent), seed 42'
    """
    models = [target.typed for target in run.plan.targets]
    without = {model: find_rejected_parameters(run, model) for model in models}
    said = []
    for name, value in run.plan.parameters.items():
        missed = [model for model in models if name in without[model]]
        if value is None or (missed and len(missed) == len(models)):
            continue
        which = missed[0] if len(missed) == 1 else f"{len(missed):,} of {len(models):,} models"
        said.append(f"{name} {format_parameter(value)}{f' (not sent to {which})' if missed else ''}")
    return ", ".join(said)


def describe_model_variant_and_repeat(
    models: Sized,
    variants: Sized,
    repeat_count: int,
    result: "FailedResult | ResultKey | ResultView",
    *,
    with_model: bool = True,
) -> str:
    """Return what distinguishes a result within its case: model, variant and repeat, each if the run has several.

    Without `with_model` the model is left out, for callers that name it anyway.

    >>> voiced = ResultKey("sha256:1", "m", "voice", 1)
    >>> describe_model_variant_and_repeat(["m"], ["text", "voice"], 3, voiced)
    'voice, repeat 2'
    >>> describe_model_variant_and_repeat(["m"], ["voice"], 1, voiced)
    ''
    """
    parts = [result.model] if with_model and len(models) > 1 else []
    parts += [result.variant] if len(variants) > 1 else []
    parts += [f"repeat {result.repeat + 1}"] if repeat_count > 1 else []
    return ", ".join(parts)


def describe_counts_per_dimension(result_count: int, model_count: int, repeat_count: int, variant_count: int) -> str:
    """Describe cases, models, repeats and variants if a case has several results; else return an empty text.

    >>> describe_counts_per_dimension(60, 2, 3, 1), describe_counts_per_dimension(20, 1, 1, 1)
    ('10 cases, 2 models, 3 repeats', '')
    """
    a_case = model_count * repeat_count * variant_count
    if a_case == 1:
        return ""
    cases = result_count // max(1, a_case)
    named = ((cases, "case"), (model_count, "model"), (repeat_count, "repeat"), (variant_count, "variant"))
    return ", ".join(f"{count:,} {what}{'' if count == 1 else 's'}" for count, what in named if count > 1)


def describe_what_intervals_count(run: Run) -> str:
    """Return a sentence on what a run's intervals count if cases have several results; else an empty text."""
    often = describe_counts_per_dimension(run.expected, len(run.plan.targets), run.plan.repeats, len(run.plan.variants))
    return make_intervals_count_cases_note(often) if often else ""


def make_intervals_count_cases_note(counts_text: str) -> str:
    """Return a sentence that, with this repetition, intervals count cases."""
    return f"{counts_text}: the intervals count cases, not answers."


def get_interval_bounds(rate: Rate) -> tuple[float, float] | None:
    """Return both ends of a rate's interval."""
    return (rate.interval.low, rate.interval.high) if rate.interval else None


def format_rate_interval(rate: Rate) -> str:
    """Format the interval of a rate."""
    return format_interval(get_interval_bounds(rate))


def has_replies(summary: Summary) -> bool:
    """Return whether any reply exists that could have tokens, cost and times."""
    tokens = (summary.input_tokens, summary.output_tokens)
    called = summary.voice is not None and any(each.voice_to_voice.n for each in summary.voice.by)
    timed = summary.latency.count or summary.cached or called
    return bool(timed or any(each.known or each.unknown for each in tokens))


def should_show_tokens(targets: "Iterable[Target | TargetView]", summary: Summary) -> bool:
    """Return whether to show tokens: not for functions and commands, which rarely count them, if they did not.

    The unknown sum of any other model is shown as unknown.
    """
    from pramana.providers.kinds import CODE_RUNNING_KINDS

    tokens = (summary.input_tokens, summary.output_tokens)
    unknown = all(each.unknown and not each.known for each in tokens)
    return not unknown or any(each.provider not in CODE_RUNNING_KINDS for each in targets)


def describe_spending(run: Run, summary: Summary) -> str:
    """Return tokens, cost and times in one line; empty for a run without replies."""
    if not has_replies(summary):
        return ""
    times, judges = summary.latency, describe_judging_cost(summary)
    metered = should_show_tokens(run.plan.targets, summary)
    parts = (
        [f"Tokens: {format_partial_count(summary.input_tokens)} in, {format_partial_count(summary.output_tokens)} out"]
        if metered
        else []
    )
    parts += [f"judges: {judges}"] if judges else []
    cost = summary.cost_usd
    if metered or judges or cost.known or not cost.unknown:
        parts.append(f"{'total cost' if judges else 'cost'}: {format_cost(cost)}")
    first = summary.first_token
    if times.count == 1:
        parts.append(f"latency {format_duration(times.p50)} (n=1)")
    elif times.count or summary.voice is None:
        parts.append(
            f"latency p50/p95/p99: {'/'.join(format_duration(each) for each in (times.p50, times.p95, times.p99))}"
            + describe_percentile_bounds({"p95": times.p95_at_most, "p99": times.p99_at_most})
        )
    if first.count == 1:
        parts.append(f"first token {format_duration(first.p50)}")
    elif first.count:
        bound = describe_percentile_bounds({"p95": first.p95_at_most})
        parts.append(f"first token p50/p95: {format_duration(first.p50)}/{format_duration(first.p95)}{bound}")
    if summary.cached:
        parts.append(f"{summary.cached:,} from the cache")
    line = "; ".join(parts)
    return f"{line[:1].upper()}{line[1:]}."


def describe_repeats(rates: Sequence[RepeatRates]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the model and the rates over repeats in words.

    >>> from pramana.analyse.intervals import Interval
    >>> rates = RepeatRates("gpt-5", 5, 25, 0, 0.92, Interval(0.7, 0.99), 0.6, Interval(0.4, 0.8))
    >>> [*describe_repeats([rates])][0][2]
    'at least one passes 92.0 % (70.0–99.0 %), all pass 60.0 % (40.0–80.0 %); 25 cases'
    """
    for each in rates:
        at_least_one = f"{format_percent(each.pass_at_k)} ({format_interval(_bounds(each.pass_at_k_interval))})"
        all_of_them = f"{format_percent(each.pass_all_k)} ({format_interval(_bounds(each.pass_all_k_interval))})"
        left_out = f", {each.excluded_cases:,} with fewer verdicts left out" if each.excluded_cases else ""
        text = f"at least one passes {at_least_one}, all pass {all_of_them}; {pluralise(each.cases, 'case')}{left_out}"
        yield f"pass@{each.k}, pass^{each.k}", each.model, text


def _bounds(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def describe_percentile_bounds(bounds: Mapping[str, float | None]) -> str:
    """Return the upper bounds of percentiles in parentheses, or that there are too few cases for one.

    >>> describe_percentile_bounds({"p95": 1.5, "p99": None})
    ' (p95 at most 1.50 s at 95 % confidence; too few cases to bound p99)'
    """
    return f" ({list_percentile_bounds(bounds)})"


def list_percentile_bounds(bounds: Mapping[str, float | None]) -> str:
    """Return the upper bounds of percentiles, or that there are too few cases for one."""
    known = [f"{name} at most {format_duration(each)}" for name, each in bounds.items() if each is not None]
    unknown = [name for name, each in bounds.items() if each is None]
    parts = [f"{', '.join(known)} at 95 % confidence"] if known else []
    parts += [f"too few cases to bound {' and '.join(unknown)}"] if unknown else []
    return "; ".join(parts)


def describe_scores(scores: Sequence[ScoreSummary]) -> Iterator[tuple[str, str, str]]:
    """Yield the measurements of scorers in words: the name of the score, the model, and the mean or the labels.

    >>> from pramana.analyse.intervals import Interval
    >>> [*describe_scores([ScoreSummary("words", "1", "gpt-5", 30, 12.5, Interval(10.25, 14.75))])]
    [('words', 'gpt-5', 'mean 12.5, 95 % interval 10.25 to 14.75, 30 replies')]
    >>> [*describe_scores([ScoreSummary("tone", "1", "gpt-5", 3, labels={"formal": 2, "casual": 1})])]
    [('tone', 'gpt-5', 'formal 2, casual 1')]
    """
    versions = Counter((each.check, each.model) for each in scores)
    for each in scores:
        name = each.check if versions[each.check, each.model] == 1 else f"{each.check} (version {each.version})"
        if each.mean is None:
            labels = [f"{label} {count:,}" for label, count in each.labels.items()]
            more = f", and {len(labels) - MAX_SHOWN_LABELS} more" if len(labels) > MAX_SHOWN_LABELS else ""
            yield name, each.model, ", ".join(labels[:MAX_SHOWN_LABELS]) + more
        else:
            sure = each.interval
            interval = f"95 % interval {sure.low:.4g} to {sure.high:.4g}, " if sure else ""
            replies = "1 reply" if each.count == 1 else f"{each.count:,} replies"
            yield name, each.model, f"mean {each.mean:.4g}, {interval}{replies}"


RUBRIC_TITLE = f"Rubric scores, {LOWEST_RATING} to {HIGHEST_RATING}"


class RubricMeansRow(NamedTuple):
    """The rubric scores of one model, over all its replies, one type of scenario or one language."""

    group_label: str
    """`all`, or such as `language hi`."""
    model: str
    formatted_means: Mapping[str, str]
    """The mean with its interval, by name of the score."""
    reply_count: int

    @property
    def sentence(self) -> str:
        """The scores in words."""
        said = [f"{name} {mean}" for name, mean in self.formatted_means.items()]
        return f"{', '.join(said)}; {self.reply_count:,} repl{'y' if self.reply_count == 1 else 'ies'}"


def make_rubric_rows(averages: RubricAverages | None) -> list[RubricMeansRow]:
    """Return the means of a judge's rubric scores: overall, then by type and language if there are several.

    >>> from pramana.analyse.intervals import Interval
    >>> measured = (ScoreSummary("accuracy", "1", "gpt-5", 30, 7.5, Interval(7.1, 7.9)),)
    >>> row = make_rubric_rows(RubricAverages(measured, {"language": {"en": measured}}))[0]
    >>> row.group_label, row.sentence
    ('all', 'accuracy 7.50 (7.10–7.90); 30 replies')
    """
    if averages is None:
        return []
    groups = [("all", averages.overall)]
    groups += [
        (f"{name} {value}", rows) for name, by in averages.by.items() if len(by) > 1 for value, rows in by.items()
    ]
    made = []
    for group, measured in groups:
        versions = {(each.model, each.version) for each in measured}
        several = Counter(model for model, _ in versions)
        for model, version in sorted(versions):
            mine = [each for each in measured if (each.model, each.version) == (model, version)]
            title = f"{group} (rubric {version})" if several[model] > 1 else group
            means = {each.check: _format_mean(each) for each in mine}
            made.append(RubricMeansRow(title, model, means, max(each.count for each in mine)))
    return made


def _format_mean(score: ScoreSummary) -> str:
    sure = score.interval
    return f"{score.mean:.2f}{f' ({sure.low:.2f}–{sure.high:.2f})' if sure else ''}"


def format_rubric_scores(scores: Mapping[str, float]) -> str:
    """Describe the rubric scores of one reply; empty without any.

    >>> format_rubric_scores({"accuracy": 8, "naturalness": 7.5}), format_rubric_scores({})
    ('accuracy 8, naturalness 7.5 (of 10)', '')
    """
    said = ", ".join(f"{name} {value:.3g}" for name, value in scores.items())
    return f"{said} (of {HIGHEST_RATING})" if said else ""


def get_reply_text(reply: "Reply | ReplyView | None") -> str:
    """Return the text of a reply, or the tools that it called instead; empty if there is neither.

    >>> from pramana.model import ToolCall
    >>> called = Reply("", tool_calls=(ToolCall("get_time"),))
    >>> get_reply_text(called), get_reply_text(Reply("Noon.")), get_reply_text(None)
    ('(no text; called get_time({}))', 'Noon.', '')
    """
    return describe_reply(reply.text, reply.tool_calls) if reply else ""


def describe_call_measurements(voice: RunVoice) -> Iterator[tuple[str, str, str]]:
    """Yield the model, the variant and the measurements of its calls, in one sentence."""
    for each in voice.by:
        said = [_format_percentiles(each.voice_to_voice), *describe_unreliable_times(each.turn_taking)]
        silence = each.median_leading_silence_s
        said += [f"leading silence p50 {format_duration(silence)}"] if silence is not None else []
        said += describe_turn_taking(each.turn_taking)
        heard, referred = each.heard, each.referred
        said += (
            [f"misheard {heard.errors:,} of {heard.words:,} words ({format_error_rate(heard.rate)})"]
            if heard.words
            else []
        )
        said += [f"word error rate {format_word_errors(referred)}"] if referred.words else []
        said += [f"{each.words_a_minute:.0f} words a minute"] if each.words_a_minute is not None else []
        said += [f"DNSMOS {each.quality:.1f}"] if each.quality is not None else []
        yield each.model, each.variant, f"{'; '.join(said)}."
    for cost in voice.tax:
        if cost.difference is None:
            continue
        causes = ", ".join(f"{count:,} {cause}" for cause, count in cost.causes.items() if count)
        low, high = map(format_signed_points, cost.interval)
        lost = f"{len(cost.lost):,} lost{f' ({causes})' if causes else ''}, {cost.gained:,} gained"
        difference = f"{format_signed_points_with_unit(cost.difference)} ({low} to {high}, {cost.pairs:,} pairs)"
        yield cost.model, f"{cost.variant} against text", f"{difference}: {lost}."


def _format_percentiles(times: Latency) -> str:
    """Format the percentiles of a time; a single observation has only one value."""
    unanswered = f", {times.censored:,} unanswered" if times.censored else ""
    if times.n < 2:
        return f"voice to voice p50 {format_bounded_time(times.p50)} (n={times.n}{unanswered})"
    p50, p95, longest = map(format_bounded_time, (times.p50, times.p95, times.max))
    shown = f"p50 {p50}, p95 {p95}, most {longest}"
    bound = describe_voice_bound(times)
    return f"voice to voice {shown} (n={times.n:,}{unanswered}{f', {bound}' if bound else ''})"


def describe_voice_bound(times: Latency) -> str:
    """Return what p95 of a time in calls is at most; empty if p95 itself is printed as longer than the caller waited.

    >>> describe_voice_bound(Latency(n=80, p95=BoundedSeconds(1.2), p95_at_most=1.5))
    'p95 at most 1.50 s at 95 % confidence'
    >>> describe_voice_bound(Latency(n=80, censored=8, p95=BoundedSeconds(15.0, ">")))
    ''
    """
    if times.p95_at_most is None and times.censored:
        unbounded = times.p95 is not None and times.p95.relation != "="
        return "" if unbounded else "too few answers to bound p95"
    return list_percentile_bounds({"p95": times.p95_at_most})


def describe_unreliable_times(turn_taking: TurnTaking) -> list[str]:
    """Describe how many times are unreliable; empty if none are."""
    late, of = turn_taking.unreliable.happened, turn_taking.unreliable.of
    if not late:
        return []
    return [f"{late:,} of {of:,} time{'' if of == 1 else 's'} unreliable: this machine sent or received sound late"]


def describe_turn_taking(turn_taking: TurnTaking) -> list[str]:
    """Describe turn taking; empty without interruptions."""
    gave_way, cut_in, misled = turn_taking.yielded, turn_taking.cut_in, turn_taking.false_interruptions
    said = []
    if gave_way.of:
        time = f", p50 {format_bounded_time(turn_taking.yields.p50)}" if gave_way.happened else ""
        said.append(f"stopped when interrupted {gave_way.happened:,} of {gave_way.of:,} times{time}")
    if cut_in.happened or gave_way.of or misled.of:
        said.append(f"interrupted the caller {cut_in.happened:,} of {cut_in.of:,} times")
    if misled.of:
        said.append(f"stopped for backchannels {misled.happened:,} of {misled.of:,} times")
    return said


def format_word_errors(word_errors: WordErrors) -> str:
    """Format a word error rate with its counts.

    >>> format_word_errors(WordErrors(23, 12))
    '192 % (23 errors in 12 words)'
    """
    errors = f"{word_errors.errors:,} error{'' if word_errors.errors == 1 else 's'}"
    words = f"{word_errors.words:,} word{'' if word_errors.words == 1 else 's'}"
    return f"{format_error_rate(word_errors.rate)} ({errors} in {words})"


def describe_verdicts_from_recording(run: Run, voice: RunVoice) -> str:
    """Describe how many verdicts rest on our transcript of the recording; empty if none do."""
    count = sum(each.by_ear for each in voice.by)
    if not count:
        return ""
    those = (
        f"{count:,} verdict{' rests' if count == 1 else 's rest'} on Pramana's own transcript "
        f"({name_speech_recognition(run.plan)})"
    )
    better = "" if run.plan.stt else "; choose a better speech recognition with --stt"
    why = "the agent sent no transcript of these answers, or its transcript has words that were not played"
    return f"{those}: {why}{better}."


def describe_engines(infos: Sequence[EngineInfo]) -> str:
    """Describe the engines of a run's embedded models; empty if there were none.

    >>> describe_engines([EngineInfo("xllamacpp", "2026.10", "SmolLM2", "sha256:b179c952…", ("AVX2",), 1)])
    'Engine: SmolLM2 on xllamacpp 2026.10 (AVX2, 1 thread)'
    """
    listed = "; ".join(f"{each.model} on {each.short_label}" for each in infos)
    return f"Engine{'s' if len(infos) > 1 else ''}: {listed}" if listed else ""


def describe_voice_setup(plan: Plan) -> str:
    """Describe how cases were sent if not only as text: the caller's voice and the speech recognition.

    >>> spoken = Plan("mine", None, (), variants=("text", "voice+phone"))
    >>> describe_voice_setup(Plan("mine", None, ())), describe_voice_setup(spoken)
    ('', 'typed and spoken by espeak (phone)')
    """
    spoken = [each for each in plan.variants if each != TEXT_VARIANT]
    if not spoken:
        return ""
    conditions = dict.fromkeys(each.partition("+")[2] or "plain" for each in spoken)
    under = "" if list(conditions) == ["plain"] else f" ({'; '.join(conditions)})"
    heard = f", transcribed by {plan.stt.typed}" if plan.stt else ""
    return f"{'typed and ' if TEXT_VARIANT in plan.variants else ''}spoken by {plan.voice}{under}{heard}"


def format_bounded_time(time: BoundedSeconds | None) -> str:
    """Format a time that may be only a bound."""
    if time is None:
        return "–"
    return f"{'' if time.relation == '=' else time.relation + ' '}{format_duration(time.value)}"


def describe_judging_cost(summary: Summary) -> str:
    """Describe the cost of judges and embedders; empty if none were used."""
    tokens, cost = summary.judge_tokens, summary.judge_cost_usd
    if not (tokens.known or tokens.unknown or cost.known or cost.unknown):
        return ""
    again = " (earlier scorings included)" if summary.judged_again else ""
    if all(each.unknown and not each.known for each in (tokens, cost)):
        return f"tokens and cost unknown{again}"
    used = f"{format_partial_count(tokens)} tokens" if tokens.known or not tokens.unknown else "tokens unknown"
    paid = format_cost(cost) if cost.known or not cost.unknown else "cost unknown"
    return f"{used}, {paid}{again}"


def format_tokens(token_count: int | None) -> str:
    """Format a number of tokens, which may be unknown."""
    return "unknown" if token_count is None else f"{token_count:,}"


def format_partial_count(total: KnownTotal) -> str:
    """Format a count, which may be partly unknown.

    >>> [format_partial_count(KnownTotal(*each)) for each in ((1200, 0), (1200, 3), (0, 3))]
    ['1,200', 'at least 1,200', 'unknown']
    """
    return _format_total(total, f"{total.known:,.0f}")


def format_cost(total: KnownTotal) -> str:
    """Format a sum of dollars, which may be partly unknown.

    >>> format_cost(KnownTotal(0.0123, 0)), format_cost(KnownTotal(0, 2)), format_cost(KnownTotal(0, 0))
    ('$0.0123', 'unknown', '$0.00')
    """
    digits = 2 if total.known >= 1 or not total.known else 4
    shown = f"${total.known:,.{digits}f}" if total.known >= 0.0001 or not total.known else "under $0.0001"
    return _format_total(total, shown)


def _format_total(total: KnownTotal, formatted: str) -> str:
    return formatted if not total.unknown else f"at least {formatted}" if total.known else "unknown"
