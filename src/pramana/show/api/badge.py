"""`/api/badge/{model}`: a picture for a page, of how many verified results have passed. No script, nothing fetched."""

import hashlib
from html import escape
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from pramana.app import submissions
from pramana.app.access import Credential
from pramana.app.submissions import BADGE_DAYS
from pramana.errors import visible
from pramana.show.api.envelope import documented
from pramana.show.api.serving import Here, caller_of
from pramana.store.submissions import Passed

router = APIRouter(tags=["community"])
FRESH_S = 300
LONGEST = 40
"""Letters of a model that are shown."""
_KIND = "image/svg+xml"
_COLOURS = ((0.9, "#2d7d46"), (0.7, "#8a6d00"), (0.0, "#b3392f"))
_UNKNOWN = "#5f6368"
_PICTURE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {said}">\
<title>{title}</title>\
<rect width="{left}" height="20" fill="#3c4043"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>\
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">\
<text x="{left_middle}" y="14" textLength="{left_text}">{label}</text>\
<text x="{right_middle}" y="14" textLength="{right_text}">{said}</text></g></svg>
"""


def _pictured() -> dict[str, Any]:
    said = documented(None, 404)
    said["responses"][200] = {"description": "The badge", "content": {_KIND: {"schema": {"type": "string"}}}}
    said["responses"][304] = {"description": "As it was"}
    return {**said, "response_class": Response}


@router.get("/api/badge/{model:path}", summary="A badge for a model", **_pictured())
async def badge(
    model: str, request: Request, here: Here, caller: Annotated[Credential, caller_of(submissions.badge)]
) -> Response:
    """Return the share of scored, verified results of the last 30 days that have passed, and how many there were.

    A server that takes results from anybody shows it to anybody: a badge stands on pages that have no token.
    """
    public = here.preferences().anonymous_submission
    picture = draw(model, await submissions.badge(here, caller, model)).encode()
    tag = f'"{hashlib.sha256(picture).hexdigest()[:32]}"'
    headers = {
        "Cache-Control": f"{'public' if public else 'private'}, max-age={FRESH_S}",
        "ETag": tag,
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    if tag in (each.strip() for each in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    return Response(picture, media_type=_KIND, headers=headers)


def draw(model: str, found: Passed) -> str:
    """Return a badge as SVG; whatever a model is called, it is text.

    >>> "unknown" in draw("<script>", Passed(0, 0)), "<script>" in draw("<script>", Passed(0, 0))
    (True, False)
    """
    name = visible(model)
    name = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
    if found.scored:
        share = found.passed / found.scored
        # Rounded down: only what has no failure at all is 100 %.
        said, colour = f"{int(share * 100)} % of {found.scored:,}", next(each for bar, each in _COLOURS if share >= bar)
        title = f"{name}: {found.passed:,} of {found.scored:,} verified results passed in {BADGE_DAYS} days"
    else:
        said, colour, title = "unknown", _UNKNOWN, f"{name}: no verified results in {BADGE_DAYS} days"
    left_text, right_text = _width(name), _width(said)
    left, right = left_text + 12, right_text + 12
    return _PICTURE.format(
        width=left + right,
        left=left,
        right=right,
        left_text=left_text,
        right_text=right_text,
        left_middle=left / 2,
        right_middle=left + right / 2,
        label=escape(name),
        said=escape(said),
        title=escape(title),
        colour=colour,
    )


def _width(text: str) -> int:
    """Return about how wide a text is; the picture stretches it to fit."""
    return sum(11 if ord(each) > 0x2E80 else 7 for each in text) or 1
