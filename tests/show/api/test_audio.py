"""Recordings over HTTP: uploaded, fetched by range, found by digest, and never read from outside their folder."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from pramana import audio, settings

from .served import Answer, Client

WAV = audio.write_wav((8000 * np.sin(np.arange(16_000) / 20)).astype(np.int16), 16_000)
DIGEST = f"sha256:{hashlib.sha256(WAV).hexdigest()}"


def upload(client: Client, name: str, data: bytes = WAV, query: str = "") -> Answer:
    return client.put(f"/audio/{name}{query}", body=data, headers={"Content-Type": "audio/wav"})


def test_an_uploaded_recording_is_returned_unchanged(client: Client) -> None:
    brought = upload(client, "prompts/hello.wav")
    assert brought.status == 201
    assert brought.data == {
        "path": "/audio/prompts/hello.wav", "bytes": len(WAV), "digest": DIGEST, "seconds": 1.0, "sampleRate": 16_000,
        "changedAt": brought.data["changedAt"],
    }  # fmt: skip
    found = client.get("/audio/prompts/hello.wav")
    assert (found.status, found.body, found.headers["content-type"]) == (200, WAV, "audio/wav")
    assert [each["path"] for each in client.get("/api/audio").data] == ["/audio/prompts/hello.wav"]
    assert (
        settings.data_folder() / "audio/prompts/hello.wav"
    ).read_bytes() == WAV  # where /audio/ in a scenario points


def test_a_name_keeps_its_content_unless_replace_is_set(client: Client) -> None:
    other = audio.write_wav((8000 * np.sin(np.arange(16_000) / 30)).astype(np.int16), 16_000)
    assert [upload(client, "a.wav", each).status for each in (WAV, WAV, other)] == [201, 200, 409]
    assert client.get("/audio/a.wav").body == WAV
    assert upload(client, "a.wav", other, "?replace=true").status == 201
    assert client.get("/audio/a.wav").body == other
    assert (client.delete("/audio/a.wav").status, client.get("/audio/a.wav").status) == (200, 404)
    assert client.delete("/audio/a.wav").status == 404


def test_a_recording_removed_during_the_request_is_404(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.store
    sounds = client.store.recordings
    find = sounds.find

    def find_and_remove(name: str) -> Path:
        path = find(name)
        sounds.remove(name)
        return path

    monkeypatch.setattr(sounds, "find", find_and_remove)
    upload(client, "a.wav")
    gone = client.get("/audio/a.wav")
    assert (gone.status, gone.error) == (404, "the recording has just been removed")


def test_uploads_and_call_recordings_are_found_by_digest(client: Client) -> None:
    brought = client.post("/audio", body=WAV, headers={"Content-Type": "audio/wav"}).data
    assert brought["path"] == f"/audio/{DIGEST}"
    assert client.get(brought["path"]).body == WAV
    assert client.store
    recorded = client.store.blobs.put(audio.write_wav(np.zeros((100, 2), np.int16), 24_000))
    assert client.get(f"/audio/{recorded}").headers["content-type"] == "audio/wav"
    assert client.delete(f"/audio/{recorded}").status == 404  # it stays with its run
    assert client.get(f"/audio/sha256:{'0' * 64}").status == 404


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=100-199", 100, 199),
        ("bytes=32000-", 32000, 32043),
        ("bytes=-44", 32000, 32043),
        ("bytes=0-99999999", 0, 32043),
        ("bytes=-99999999", 0, 32043),
    ],
)
def test_a_range_request_returns_the_requested_part(client: Client, wanted: str, first: int, last: int) -> None:
    upload(client, "a.wav")
    found = client.get("/audio/a.wav", headers={"Range": wanted})
    assert (found.status, found.headers["content-range"]) == (206, f"bytes {first}-{last}/32044")
    assert found.body == WAV[first : last + 1]
    assert int(found.headers["content-length"]) == last - first + 1


@pytest.mark.parametrize("wanted", ["bytes=32044-", "bytes=5-4", "bytes=-0"])
def test_a_range_beyond_the_end_is_416(client: Client, wanted: str) -> None:
    upload(client, "a.wav")
    found = client.get("/audio/a.wav", headers={"Range": wanted})
    assert (found.status, found.headers["content-range"], found.json["code"]) == (
        416, "bytes */32044", "range_not_satisfiable",
    )  # fmt: skip


@pytest.mark.parametrize("wanted", ["bytes=0-1,3-4", "bytes=a-b", "lines=1-2", ""])
def test_an_invalid_range_returns_the_whole_recording(client: Client, wanted: str) -> None:
    upload(client, "a.wav")
    assert client.get("/audio/a.wav", headers={"Range": wanted}).body == WAV


def test_head_returns_the_content_length(client: Client) -> None:
    upload(client, "a.wav")
    found = client.call("HEAD", "/audio/a.wav")
    assert (found.status, found.headers["content-length"], found.headers["accept-ranges"], found.body) == (
        200, "32044", "bytes", b"",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"<script>alert(1)</script>", "cannot be used"),
        (WAV[:1000], "cannot be used"),
        (audio.write_wav(np.zeros(16_000, np.int16), 16_000), "silent"),
        (audio.write_wav(np.full(16_000, 32767, np.int16), 16_000), "clipped"),
    ],
)
def test_an_invalid_recording_is_refused(client: Client, data: bytes, message: str) -> None:
    found = upload(client, "a.wav", data)
    assert (found.status, message in found.error) == (400, True)
    assert client.get("/api/audio").data == []


@pytest.mark.parametrize(
    "name",
    [
        "..%2Fx.wav",
        "../x.wav",
        "a/../../x.wav",
        "/etc/x.wav",
        ".hidden.wav",
        "a/.hidden.wav",
        "x.html",
        "a%00.wav",
        "a//b.wav",
        "x" * 300 + ".wav",
        "sha256:" + "0" * 64,
    ],
)
def test_an_invalid_name_is_refused(client: Client, name: str) -> None:
    assert upload(client, name).status in (400, 404)
    assert client.get("/api/audio").data == []


def test_no_path_escapes_the_folder(client: Client, tmp_path: Path) -> None:
    (tmp_path / "secret.wav").write_bytes(WAV)
    folder = settings.data_folder() / "audio"
    folder.mkdir(parents=True)
    (folder / "link.wav").symlink_to(tmp_path / "secret.wav")
    (folder / "out").symlink_to(tmp_path)
    for name in ("link.wav", "out/secret.wav", "../../secret.wav", "%2e%2e/%2e%2e/secret.wav", "out"):
        assert client.get(f"/audio/{name}").status == 404, name
        assert client.delete(f"/audio/{name}").status in (400, 404), name
    assert upload(client, "out/new.wav").status == 400
    assert not (tmp_path / "new.wav").exists()


def test_a_name_too_long_for_a_file_is_404(client: Client) -> None:
    for method in ("GET", "DELETE"):
        assert client.call(method, f"/audio/{'a' * 300}").status == 404


def test_viewers_can_download_and_editors_upload(secure_client: Client) -> None:
    viewer, editor = secure_client.with_token("viewer"), secure_client.with_token("editor")
    assert [upload(each, "a.wav").status for each in (secure_client, viewer, editor)] == [401, 403, 201]
    assert [each.get("/audio/a.wav").status for each in (secure_client, viewer, editor)] == [401, 200, 200]


def test_a_recording_can_exceed_the_request_limit_up_to_its_own_limit(client: Client) -> None:
    client.patch("/api/settings", {"largestBodyMb": 1, "largestUploadMb": 2})
    rng = np.random.default_rng(1)
    noise = (rng.standard_normal(1_200_000) * 3000).astype(np.int16)
    assert upload(client, "long.wav", audio.write_wav(noise[:800_000], 16_000)).status == 201
    refused = upload(client, "longer.wav", audio.write_wav(noise, 16_000))
    assert (refused.status, refused.error) == (413, "a recording may have at most 2 MB; send a smaller recording")
