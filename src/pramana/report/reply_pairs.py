"""Both replies of a changed case as text: a pair in, terminal lines out, with each text shortened to the width."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from pramana.analyse.labels import SideLabels
from pramana.app.replies import ReplyPairView, SideReplyView
from pramana.model import Outcome
from pramana.replies import describe_reply
from pramana.report.terminal import fit_to_width, wrap_text

SHOWN_LINES = 3
"""Lines shown of a prompt, a reply or a reason."""
MIN_DIFF_SHARE, MAX_DIFF_WORDS = 0.5, 2_000
"""The smallest share of equal words, and the most words, of two replies whose difference is shown word by word."""
DIFF_CONTEXT_WORDS = 3
_INDENT = "    "
_CONTINUATION_INDENT = "      "


def render_reply_pair(pair: ReplyPairView, labels: SideLabels, columns: int) -> Iterator[str]:
    """Yield the prompt, then each side's reply with its outcome and reason, then the words that differ."""
    room = SHOWN_LINES * (columns - len(_CONTINUATION_INDENT))
    if pair.prompt is not None:
        yield _wrap_reply("prompt", pair.prompt, columns, room)
    names = labels.model_labels or (labels.base, labels.new)
    sides = (pair.base, pair.new)
    base, new = (
        " ".join(describe_reply(each.reply or "", each.tool_calls, max_tool_call_length=None).split()) for each in sides
    )
    replies = cut_common_beginning(base, new, room // 2)
    for name, side, reply in zip(names, sides, replies, strict=True):
        yield _wrap_reply(f"{name}, {side.outcome.value}", _reply_or_placeholder(side, reply), columns, room)
        if side.reason:
            yield _wrap_reply("  reason", side.reason, columns, room)
    if all(side.reply is not None for side in sides) and (difference := diff_words(base, new)):
        yield _wrap_reply("words", difference, columns, room)


def diff_words(base: str, new: str) -> str:
    """Return the words that differ between two replies, with some words around them; empty if too much differs.

    Words that only the first has are in `[-…-]`, words that only the second has in `{+…+}`.

    >>> diff_words("The capital of France is Paris, as you know.", "The capital of France is Lyon, as you know.")
    '… of France is [-Paris,-] {+Lyon,+} as you know.'
    >>> diff_words("Yes.", "Certainly not, I am afraid.")
    ''
    """
    before, now = base.split(), new.split()
    if max(len(before), len(now)) > MAX_DIFF_WORDS:
        return ""
    matcher = SequenceMatcher(None, before, now, autojunk=False)
    if matcher.ratio() < MIN_DIFF_SHARE:
        return ""
    parts, last = list[str](), len(matcher.get_opcodes()) - 1
    for place, (kind, start, end, new_start, new_end) in enumerate(matcher.get_opcodes()):
        if kind == "equal":
            parts += _shorten_equal_words(before[start:end], is_first=place == 0, is_last=place == last)
            continue
        parts += [f"[-{' '.join(before[start:end])}-]"] if end > start else []
        parts += [f"{{+{' '.join(now[new_start:new_end])}+}}"] if new_end > new_start else []
    return " ".join(parts) if last else ""


def _shorten_equal_words(words: Sequence[str], *, is_first: bool, is_last: bool) -> list[str]:
    """Return the words next to a difference, with an ellipsis for the others."""
    after = [] if is_first else [*words[:DIFF_CONTEXT_WORDS]]
    before = [] if is_last else [*words[-DIFF_CONTEXT_WORDS:]]
    return [*words] if len(words) <= len(after) + len(before) else [*after, "…", *before]


def _reply_or_placeholder(side: SideReplyView, shortened_reply: str) -> str:
    if side.reply is None:
        return "(no reply)" if side.outcome is Outcome.ERRORED else "(reply not recorded)"
    return shortened_reply or "(empty)"


def cut_common_beginning(base: str, new: str, max_length: int) -> tuple[str, str]:
    """Cut the shared beginning of two texts if their difference lies beyond the first `max_length` characters.

    >>> cut_common_beginning("a" * 30 + "b", "a" * 30 + "c", 12)
    ('…aaab', '…aaac')
    >>> cut_common_beginning("Paris", "Lima", 12)
    ('Paris', 'Lima')
    """
    pairs = enumerate(zip(base, new, strict=False))
    alike = next((place for place, (one, other) in pairs if one != other), min(len(base), len(new)))
    if max(len(base), len(new)) <= max_length or alike < max_length // 2:
        return base, new
    start = alike - max_length // 4
    return f"…{base[start:]}", f"…{new[start:]}"


def _wrap_reply(label: str, text: str, columns: int, total_text_columns: int) -> str:
    shown = fit_to_width(" ".join(text.split()), max(20, total_text_columns - len(label)))
    return wrap_text(
        f"{label.strip()}: {shown}",
        columns,
        _INDENT + (label[: len(label) - len(label.lstrip())]),
        _CONTINUATION_INDENT,
    )
