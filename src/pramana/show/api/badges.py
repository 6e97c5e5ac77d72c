"""Badges: a name and a short text in, an SVG picture out; and the response that caches it."""

import hashlib
from html import escape

from fastapi import Request, Response

from pramana.errors import escape_control_characters
from pramana.show.api.envelope import document_route

BADGE_CACHE_S = 300
MAX_BADGE_NAME_CHARS = 40
"""Most characters of a name that are shown."""
GREEN, YELLOW, RED, GREY = "#2d7d46", "#8a6d00", "#b3392f", "#5f6368"
SVG_MEDIA_TYPE = "image/svg+xml"
_SVG_TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {text}">\
<title>{title}</title>\
<rect width="{left}" height="20" fill="#3c4043"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>\
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">\
<text x="{left_middle}" y="14" textLength="{left_text}">{label}</text>\
<text x="{right_middle}" y="14" textLength="{right_text}">{text}</text></g></svg>
"""
BADGE_DOCUMENTATION = document_route(
    None,
    404,
    status_200={"description": "The badge", "content": {SVG_MEDIA_TYPE: {"schema": {"type": "string"}}}},
    status_304={"description": "Unchanged since the last request"},
) | {"response_class": Response}
"""The documentation of a route that returns a badge."""


def draw_badge(name: str, text: str, title: str, colour: str) -> str:
    """Return a badge as SVG; every text is escaped. `title` follows the name in the tooltip.

    >>> "<script>" in draw_badge("<script>", "<script>", "<script>", GREY)
    False
    """
    label = shorten_name(name)
    left_text, right_text = _estimate_text_width(label), _estimate_text_width(text)
    left, right = left_text + 12, right_text + 12
    return _SVG_TEMPLATE.format(
        width=left + right,
        left=left,
        right=right,
        left_text=left_text,
        right_text=right_text,
        left_middle=left / 2,
        right_middle=left + right / 2,
        label=escape(label),
        text=escape(text),
        title=escape(f"{label}: {title}"),
        colour=colour,
    )


def shorten_name(name: str) -> str:
    """Return a name on one line, as far as a badge shows it."""
    label = escape_control_characters(name)
    return label if len(label) <= MAX_BADGE_NAME_CHARS else f"{label[: MAX_BADGE_NAME_CHARS - 1]}…"


def make_badge_response(request: Request, badge: str, *, is_public: bool) -> Response:
    """Return the response with a badge, or 304 if the caller has it; caches of others may keep a public one."""
    picture = badge.encode()
    tag = f'"{hashlib.sha256(picture).hexdigest()[:32]}"'
    headers = {
        "Cache-Control": f"{'public' if is_public else 'private'}, max-age={BADGE_CACHE_S}",
        "ETag": tag,
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    if tag in (each.strip() for each in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    return Response(picture, media_type=SVG_MEDIA_TYPE, headers=headers)


def _estimate_text_width(text: str) -> int:
    """Return the approximate width of a text; the SVG stretches the text to it."""
    return sum(11 if ord(each) > 0x2E80 else 7 for each in text) or 1
