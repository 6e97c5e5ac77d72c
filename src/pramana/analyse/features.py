"""The results of a day in, what a watch keeps of them out: features of each prompt, never the text of a reply.

Features are all that later decisions use, so a watch survives the deletion of its runs. Texts are kept as digests.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean, median

from msgspec.structs import replace

from pramana.analyse.border_prompts import MAX_ANSWER_CHARS, read_answer
from pramana.analyse.instruments import BORDER_VARIANT, LOGPROB_VARIANT, DayFeatures, PromptDay
from pramana.analyse.voice import CALL_CHECK, list_latency_observations, read_measured_lines, read_recognition_errors
from pramana.model import Case, Outcome, Reply, Result
from pramana.providers.logprobs import TOP_TOKENS, read_first_token_logprobs
from pramana.replies import describe_reply

_DIGEST_CHARS = 16
"""64 bits: that any two of a million different replies have equal digests has a chance of one in 37 million."""
_MIN_LISTED_TOKENS = 2
"""With fewer, the list has only the token that was drawn, which differs from call to call."""
_MIN_LOGPROB = -100.0
"""Some providers state -9999 for a token that they exclude."""
REFUSAL_FINISH_REASONS = frozenset({"content_filter", "refusal", "safety", "prohibited_content", "blocklist", "spii"})
REFUSAL_BEGINNING_RE = re.compile(
    r"(?:i['’]?m (?:really |very |so )?sorry|sorry|i apologi[sz]e|unfortunately)?[,.;:]?\s*(?:but )?\s*"
    r"(?:i (?:can(?:['’]?t|not| not)|won['’]?t|will not|am (?:unable|not able)|do not feel comfortable)"
    r"|i['’]m (?:unable|not able)|as an ai(?: language)? model)\b",
    re.IGNORECASE,
)
"""How replies begin that refuse a request, in English. Only a rise counts, so a false match that is there every day
does no harm; a refusal in another language is not seen."""


def make_features(
    planned_cases: Mapping[str, Case], variants: Iterable[str], repeats: int, results: Iterable[Result]
) -> DayFeatures:
    """Return the features of a day; `planned_cases` are its cases by digest.

    A prompt that was not sent, because a limit was reached, is planned and has no answer. One that cannot be sent at
    all, such as an empty text as speech, is left out.
    """
    by_prompt: dict[tuple[str, str], list[Result]] = {
        (case, variant): [] for case in planned_cases for variant in dict.fromkeys(variants)
    }
    for each in results:
        by_prompt.setdefault((each.key.case, each.key.variant), []).append(each)
    served, fingerprints, prompts = Counter[str](), Counter[str](), list[PromptDay]()
    for (digest, variant), found in by_prompt.items():
        if found and all(each.outcome is Outcome.SKIPPED for each in found):
            continue
        ordered = sorted(found, key=lambda each: each.key.repeat)
        prompts.append(_make_prompt_day(digest, planned_cases[digest], variant, repeats, ordered))
        for each in ordered:
            if each.reply and each.reply.served_model:
                served[_make_encodable(each.reply.served_model)] += 1
            if each.reply and each.reply.fingerprint:
                fingerprints[_make_encodable(each.reply.fingerprint)] += 1
    return DayFeatures(tuple(prompts), dict(sorted(served.items())), dict(sorted(fingerprints.items())))


def make_border_days(
    planned_cases: Mapping[str, Case], repeats: int, results: Iterable[Result]
) -> tuple[PromptDay, ...]:
    """Return the features of border prompts: how often each answer came."""
    by_case: dict[str, Counter[str]] = {digest: Counter() for digest in planned_cases}
    for each in results:
        if each.reply is not None:
            by_case[each.key.case][_make_encodable(read_answer(each.reply.text))] += 1
    return tuple(
        PromptDay(
            digest,
            planned_cases[digest].id,
            BORDER_VARIANT,
            None,
            repeats,
            counts.total(),
            answers=dict(sorted(counts.items())),
        )
        for digest, counts in by_case.items()
    )


def make_logprob_days(
    planned_cases: Mapping[str, Case], repeats: int, results: Iterable[Result]
) -> tuple[PromptDay, ...]:
    """Return the features of prompts for logprobs: the likeliest first tokens, averaged over the calls.

    Only a reply with logprobs of several tokens counts as answered.
    """
    by_case: dict[str, list[dict[str, float]]] = {digest: [] for digest in planned_cases}
    for each in results:
        if each.reply is not None and len(found := read_first_token_logprobs(each.reply)) >= _MIN_LISTED_TOKENS:
            by_case[each.key.case].append(found)
    return tuple(
        PromptDay(
            digest,
            planned_cases[digest].id,
            LOGPROB_VARIANT,
            None,
            repeats,
            len(found),
            logprobs=_average_logprobs(found),
        )
        for digest, found in by_case.items()
    )


def _average_logprobs(calls: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the likeliest tokens of each call with the mean of their logprobs, the likeliest first."""
    found: dict[str, list[float]] = {}
    for each in calls:
        for token in sorted(each, key=lambda token: -each[token])[:TOP_TOKENS]:
            logprob = min(0.0, max(_MIN_LOGPROB, each[token]))
            found.setdefault(_make_encodable(token[:MAX_ANSWER_CHARS]), []).append(logprob)
    means = {token: round(fmean(values), 4) for token, values in found.items()}
    return dict(sorted(means.items(), key=lambda each: -each[1]))


def _make_encodable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which models do emit and JSON cannot have."""
    return text.encode("utf-8", "replace").decode()


def _make_prompt_day(digest: str, case: Case, variant: str, repeats: int, results: list[Result]) -> PromptDay:
    replies = [each.reply for each in results if each.reply is not None]
    calls = [check.evidence for each in results for check in each.checks if check.name == CALL_CHECK and check.evidence]
    written = PromptDay(
        digest,
        case.id,
        variant,
        case.facets.category,
        repeats,
        len(replies),
        sum(each.outcome in (Outcome.PASSED, Outcome.FAILED) for each in results),
        sum(each.outcome is Outcome.PASSED for each in results),
        tuple(hash_reply(each) for each in replies),
        tuple(len(each.text.split()) for each in replies),
        tuple(round(each.total_s, 4) for each in replies if not each.cached),
        sum(is_refusal(each) for each in replies),
    )
    return replace(
        written, **{name: tuple(_keep_known(map(measure, calls))) for name, measure in _CALL_MEASURES.items()}
    )


def _keep_known(values: Iterable[float | None]) -> Iterable[float]:
    return (round(each, 4) for each in values if each is not None)


def _measure_voice_to_voice(evidence: Mapping[str, object]) -> float | None:
    times = [seconds for seconds, _ in list_latency_observations(read_measured_lines(evidence))]
    return median(times) if times else None


def _measure_leading_silence(evidence: Mapping[str, object]) -> float | None:
    lines = read_measured_lines(evidence)
    times = [each.leading_silence_s for each in lines if each.leading_silence_s is not None]
    return median(times) if times else None


def _measure_word_errors(evidence: Mapping[str, object]) -> float | None:
    errors = read_recognition_errors(evidence)
    return errors.errors / errors.words if errors.words else None


def _measure_speech_rate(evidence: Mapping[str, object]) -> float | None:
    return _read_number(evidence, "sound", "words_a_minute")


def _measure_quality(evidence: Mapping[str, object]) -> float | None:
    return _read_number(evidence, "sound", "quality", "overall")


def _read_number(data: object, *keys: str) -> float | None:
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return float(data) if isinstance(data, int | float) else None


_CALL_MEASURES: Mapping[str, Callable[[Mapping[str, object]], float | None]] = {
    "voice_to_voice_s": _measure_voice_to_voice,
    "leading_silence_s": _measure_leading_silence,
    "word_error_rates": _measure_word_errors,
    "words_a_minute": _measure_speech_rate,
    "quality": _measure_quality,
}
"""What is measured of a call, by the name of its feature."""


def hash_reply(reply: Reply) -> str:
    """Return the digest of a reply: of its text with its white space normalised, or of the tools that it calls.

    >>> [hash_reply(Reply(text)) == hash_reply(Reply("Four.")) for text in ("Four. ", "four.")]
    [True, False]
    """
    text = unicodedata.normalize(
        "NFC", " ".join(describe_reply(reply.text, reply.tool_calls, max_tool_call_length=None).split())
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]


def is_refusal(reply: Reply) -> bool:
    """Return whether a model refused: the provider says so, or the reply begins as refusals in English do.

    >>> [is_refusal(Reply(text)) for text in ("I'm sorry, but I can't help with that.", "Sorry I am late: it is four.")]
    [True, False]
    """
    if (reply.finish_reason or "").lower() in REFUSAL_FINISH_REASONS:
        return True
    return REFUSAL_BEGINNING_RE.match(reply.text.lstrip()) is not None


def list_check_versions(results: Iterable[Result]) -> dict[str, list[str]]:
    """Return the versions of each check that decided a result; a day with other versions begins a new period."""
    found: dict[str, set[str]] = {}
    for result in results:
        if result.reply is not None:
            for check in result.checks:
                found.setdefault(check.name, set()).add(check.version)
    return {name: sorted(versions) for name, versions in sorted(found.items())}
