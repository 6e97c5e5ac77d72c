"""Recordings: uploaded prompts and recordings of calls, found by path or by digest."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from pramana import audio
from pramana.app import App, User, use_case
from pramana.app.views import View
from pramana.errors import InvalidInput
from pramana.store.blobs import UploadedRecordingFile


class RecordingView(View, frozen=True, kw_only=True):
    """A stored recording."""

    path: str
    bytes: int
    changed_at: str


class UploadedRecordingView(RecordingView, frozen=True, kw_only=True):
    """An uploaded recording."""

    digest: str
    seconds: float
    sample_rate: int


class UploadedRecording(NamedTuple):
    """An uploaded recording, and whether it is new."""

    recording: UploadedRecordingView
    is_new: bool


@use_case("viewer")
def list_recordings(app: App, _: User) -> list[RecordingView]:
    """Return the uploaded recordings, by name."""
    return [RecordingView(**_recording_fields(each)) for each in app.store.recordings.list()]


@use_case("editor")
def upload_recording(
    app: App, _: User, data: bytes, name: str | None = None, *, replace: bool = False
) -> UploadedRecording:
    """Store a WAV, FLAC, OGG or MP3 under a path, which a scenario can use as `prompt_audio_url`, or its digest."""
    try:
        sound = audio.read_sound(data)
    except audio.BadAudio as bad:
        raise InvalidInput(f"this recording cannot be used: {bad}") from None
    if wrong := audio.find_prompt_problem(sound.samples, sound.rate):
        raise InvalidInput(f"this recording cannot be used: {wrong}")
    kept, is_new = app.store.recordings.put(name, data, replace=replace)
    view = UploadedRecordingView(
        **_recording_fields(kept),
        digest=f"sha256:{hashlib.sha256(data).hexdigest()}",
        seconds=round(sound.seconds, 6),
        sample_rate=sound.rate,
    )
    return UploadedRecording(view, is_new)


@use_case("viewer")
def find_recording(app: App, _: User, name: str) -> Path:
    """Return the file of a recording, by its path or digest."""
    return app.store.recordings.find(name)


@use_case("editor")
def remove_recording(app: App, _: User, name: str) -> None:
    """Delete an uploaded recording; recordings of calls stay with their runs."""
    app.store.recordings.remove(name)


def _recording_fields(recording: UploadedRecordingFile) -> dict[str, Any]:
    return {"path": f"/audio/{recording.name}", "bytes": recording.size, "changed_at": recording.changed}
