"""`/audio/…`: uploaded recordings and recordings of calls, by path or by digest, in ranges for seeking."""

import os
import re
from pathlib import Path
from typing import IO, Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from pramana.app import Credential, recordings
from pramana.app.recordings import RecordingView, UploadedRecording, UploadedRecordingView
from pramana.errors import NotFound
from pramana.show.api.envelope import (
    AppDependency,
    PageNumber,
    PageSize,
    document_route,
    make_error_response,
    make_success_response,
    read_chunks,
    require_caller,
    take_page,
)

router = APIRouter(tags=["audio"])
_MEDIA_TYPES_BY_SIGNATURE = {
    b"RIFF": "audio/wav",
    b"OggS": "audio/ogg",
    b"fLaC": "audio/flac",
    b'{"t"': "application/x-ndjson",
}
_UPLOAD_BODY_DOCUMENTATION = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in ("application/octet-stream", "audio/wav")
        },
    }
}
_UploadCaller = Annotated[Credential, require_caller(recordings.upload_recording)]
_RANGE_RE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@router.get("/api/audio", summary="List recordings", **document_route(list[RecordingView]))
async def list_recordings(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(recordings.list_recordings)],
    page: PageNumber = 1,
    page_size: PageSize = 50,
) -> Response:
    """Return the uploaded recordings, by name."""
    return make_success_response(*take_page(await recordings.list_recordings(app, caller), page, page_size))


@router.post(
    "/audio",
    summary="Upload a recording",
    **document_route(UploadedRecordingView, 409, status=201),
    openapi_extra=_UPLOAD_BODY_DOCUMENTATION,
)
async def upload(request: Request, app: AppDependency, caller: _UploadCaller) -> Response:
    """Store the body, a WAV, FLAC, OGG or MP3, under its digest: `/audio/sha256:…`."""
    return _upload_response(await recordings.upload_recording(app, caller, await request.body()))


@router.put(
    "/audio/{name:path}",
    summary="Upload a recording under a name",
    **document_route(UploadedRecordingView, 409, status=201),
    openapi_extra=_UPLOAD_BODY_DOCUMENTATION,
)
async def upload_as(
    name: str, request: Request, app: AppDependency, caller: _UploadCaller, *, replace: Annotated[bool, Query()] = False
) -> Response:
    """Store the body under a path, which a scenario can use as its `prompt_audio_url`."""
    return _upload_response(await recordings.upload_recording(app, caller, await request.body(), name, replace=replace))


def _upload_response(uploaded: UploadedRecording) -> Response:
    return make_success_response(uploaded.recording, status=201 if uploaded.is_new else 200)


@router.get(
    "/audio/{name:path}",
    summary="Fetch a recording",
    **document_route(
        RecordingView,
        404,
        416,
        status_200={"content": {"audio/*": {}}, "description": "The file"},
        status_206={"content": {"audio/*": {}}, "description": "The requested part of the file"},
    ),
)
@router.head("/audio/{name:path}", include_in_schema=False)
async def fetch(
    name: str,
    request: Request,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(recordings.find_recording)],
) -> Response:
    """Return a file by its path or digest, or the part of it given by a Range header."""
    path = await recordings.find_recording(app, caller, name)
    return await app.run_in_thread(lambda: _send_file(path, request))


@router.delete("/audio/{name:path}", summary="Remove a recording", **document_route(None, 404))
async def remove(
    name: str, app: AppDependency, caller: Annotated[Credential, require_caller(recordings.remove_recording)]
) -> Response:
    """Delete an uploaded recording; recordings of calls stay with their runs."""
    await recordings.remove_recording(app, caller, name)
    return make_success_response(None)


def _send_file(path: Path, request: Request) -> Response:
    try:
        file = path.open("rb")  # opened once, since it may be replaced or removed at any moment
    except FileNotFoundError:
        raise NotFound("the recording has just been removed") from None
    try:
        found = _range_response(file, request)
    except BaseException:
        file.close()
        raise
    if not isinstance(found, StreamingResponse):
        file.close()
    return found


def _range_response(file: IO[bytes], request: Request) -> Response:
    size = os.fstat(file.fileno()).st_size
    headers = {
        "accept-ranges": "bytes",
        "content-security-policy": "default-src 'none'; media-src 'self'; sandbox",
        "cache-control": "private, max-age=3600" if ":" in request.path_params["name"] else "private, no-cache",
    }
    first, last, status = 0, size - 1, 200
    if wanted := _RANGE_RE.fullmatch(request.headers.get("range", "")):
        begin, end = wanted.groups()
        if begin:
            first, last = int(begin), min(int(end), size - 1) if end else size - 1
        else:  # a suffix range: the last bytes
            first = max(0, size - int(end or 0))
        if first > last or first >= size or (begin and end and int(end) < int(begin)):
            outside = {"content-range": f"bytes */{size}"}
            return make_error_response(
                416, f"the recording has {size:,} bytes, and the requested range is outside it", headers=outside
            )
        status = 206
        headers["content-range"] = f"bytes {first}-{last}/{size}"
    headers["content-length"] = str(last - first + 1)
    kind = _MEDIA_TYPES_BY_SIGNATURE.get(file.read(4), "audio/mpeg")
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=kind)
    file.seek(first)
    return StreamingResponse(read_chunks(file, last - first + 1), status, headers, kind)
