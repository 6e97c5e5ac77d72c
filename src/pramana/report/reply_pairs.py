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
_REST = "      "


def render_reply_pair(pair: ReplyPairView, labels: SideLabels, columns: int) -> Iterator[str]:
    """Yield the prompt, then each side's reply with its outcome and reason."""
    room = SHOWN_LINES * (columns - len(_REST))
    if pair.prompt is not None:
        yield _wrap_reply("prompt", pair.prompt, columns, room)
    names = labels.models or (labels.base, labels.new)
    sides = (pair.base, pair.new)
    base, new = (" ".join(describe_reply(each.reply or "", each.tool_calls, longest=None).split()) for each in sides)
    replies = shorten_alike(base, new, room // 2)
    for name, side, reply in zip(names, sides, replies, strict=True):
        yield _wrap_reply(f"{name}, {side.outcome.value}", _reply(side, reply), columns, room)
        if side.reason:
            yield _wrap_reply("  reason", side.reason, columns, room)


def _reply(side: SideReplyView, shown: str) -> str:
    if side.reply is None:
        return "(no reply)" if side.outcome is Outcome.ERRORED else "(reply not recorded)"
    return shown or "(empty)"


def shorten_alike(base: str, new: str, limit: int) -> tuple[str, str]:
    """Cut the shared beginning of two texts if their difference lies beyond the first `limit` characters.

    >>> shorten_alike("a" * 30 + "b", "a" * 30 + "c", 12)
    ('…aaab', '…aaac')
    >>> shorten_alike("Paris", "Lima", 12)
    ('Paris', 'Lima')
    """
    pairs = enumerate(zip(base, new, strict=False))
    alike = next((place for place, (one, other) in pairs if one != other), min(len(base), len(new)))
    if max(len(base), len(new)) <= limit or alike < limit // 2:
        return base, new
    start = alike - limit // 4
    return f"…{base[start:]}", f"…{new[start:]}"


def _wrap_reply(label: str, text: str, columns: int, room: int) -> str:
    shown = fit_to_width(" ".join(text.split()), max(20, room - len(label)))
    return wrap_text(f"{label.strip()}: {shown}", columns, _INDENT + (label[: len(label) - len(label.lstrip())]), _REST)
