"""Both replies of a changed case as text: a pair in, terminal lines out, with each text shortened to the width."""

from collections.abc import Iterator

from pramana.analyse.labels import SideLabels
from pramana.app.replies import ReplyPairView, SideReplyView
from pramana.model import Outcome
from pramana.replies import describe_reply
from pramana.report.terminal import fit_to_width, wrap_text

SHOWN_LINES = 3
"""Lines shown of a prompt, a reply or a reason."""
_INDENT = "    "
_CONTINUATION_INDENT = "      "


def render_reply_pair(pair: ReplyPairView, labels: SideLabels, columns: int) -> Iterator[str]:
    """Yield the prompt, then each side's reply with its outcome and reason."""
    room = SHOWN_LINES * (columns - len(_CONTINUATION_INDENT))
    if pair.prompt is not None:
        yield _wrap_reply("prompt", pair.prompt, columns, room)
    names = labels.model_labels or (labels.base, labels.new)
    sides = (pair.base, pair.new)
    base, new = (" ".join(describe_reply(each.reply or "", each.tool_calls, longest=None).split()) for each in sides)
    replies = cut_common_beginning(base, new, room // 2)
    for name, side, reply in zip(names, sides, replies, strict=True):
        yield _wrap_reply(f"{name}, {side.outcome.value}", _reply_or_placeholder(side, reply), columns, room)
        if side.reason:
            yield _wrap_reply("  reason", side.reason, columns, room)


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


def _wrap_reply(label: str, text: str, columns: int, max_columns: int) -> str:
    shown = fit_to_width(" ".join(text.split()), max(20, max_columns - len(label)))
    return wrap_text(
        f"{label.strip()}: {shown}",
        columns,
        _INDENT + (label[: len(label) - len(label.lstrip())]),
        _CONTINUATION_INDENT,
    )
