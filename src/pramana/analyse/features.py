"""The results of a day in, what a watch keeps of them out: features of each prompt, never the text of a reply.

Features are all that later decisions use, so a watch survives the deletion of its runs. Texts are kept as digests.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping

from pramana.analyse.instruments import DayFeatures, PromptDay
from pramana.model import Case, Outcome, Reply, Result
from pramana.replies import describe_reply

_DIGEST_CHARS = 16
"""64 bits: that any two of a million different replies have equal digests has a chance of one in 37 million."""
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
                served[each.reply.served_model] += 1
            if each.reply and each.reply.fingerprint:
                fingerprints[each.reply.fingerprint] += 1
    return DayFeatures(tuple(prompts), dict(sorted(served.items())), dict(sorted(fingerprints.items())))


def _make_prompt_day(digest: str, case: Case, variant: str, repeats: int, results: list[Result]) -> PromptDay:
    replies = [each.reply for each in results if each.reply is not None]
    return PromptDay(
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


def hash_reply(reply: Reply) -> str:
    """Return the digest of a reply: of its text with its white space normalised, or of the tools that it calls.

    >>> [hash_reply(Reply(text)) == hash_reply(Reply("Four.")) for text in ("Four. ", "four.")]
    [True, False]
    """
    text = unicodedata.normalize("NFC", " ".join(describe_reply(reply.text, reply.tool_calls, longest=None).split()))
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
