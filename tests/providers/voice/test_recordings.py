"""Recorded prompts: which file is read, who may name it, and that nothing else is ever read."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from pramana.errors import InvalidInput, NotFound, PramanaError
from pramana.providers.voice import recordings
from pramana.providers.voice.recordings import read_prompt_audio

pytestmark = pytest.mark.usefixtures("virtual_time")
SOUND = b"RIFF and so on"
SECRET = b"secret"


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    """The data folder's audio/ beside a folder of scenarios and a secret."""
    for name in ("data/audio/prompts", "scenarios/deep"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("data/audio/a.wav", "data/audio/prompts/b c.wav", "scenarios/near.wav", "scenarios/deep/d.wav"):
        (tmp_path / name).write_bytes(SOUND)
    (tmp_path / "data" / "secret").write_bytes(SECRET)
    (tmp_path / "data" / "audio-not").write_bytes(SECRET)
    return tmp_path


async def _read_prompt(folder: Path, url: str, **changes: Any) -> bytes:
    given: dict[str, Any] = {
        "scenario_file": folder / "scenarios" / "s.yaml",
        "audio_folder": folder / "data" / "audio",
        "from_api": False,
        "allow_private": False,
    }
    return await asyncio.wait_for(read_prompt_audio(url, **{**given, **changes}), 10)


def read_prompt(folder: Path, url: str, **changes: Any) -> bytes:
    return asyncio.run(_read_prompt(folder, url, **changes))


def expect_refusal(folder: Path, url: str, **changes: Any) -> PramanaError:
    with pytest.raises(PramanaError) as caught:
        read_prompt(folder, url, **changes)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600
    return caught.value


API: dict[str, Any] = {"from_api": True, "scenario_file": None}


@pytest.mark.parametrize("url", ["/audio/a.wav", "/audio/prompts/b c.wav", "/audio/prompts/../a.wav", "/audio/./a.wav"])
@pytest.mark.parametrize("changes", [{}, API])
def test_audio_is_read_from_the_data_folder_for_all_users(data_folder: Path, url: str, changes: dict[str, Any]) -> None:
    assert read_prompt(data_folder, url, **changes) == SOUND


@pytest.mark.parametrize(
    "url",
    [
        *("/audio/../secret", "/audio/../audio-not", "/audio/prompts/../../secret", "/audio//etc/passwd", "/audio/..", "/audio/../"),
        *("/audio/prompts/../../audio/../secret", "/audio/" + "../" * 60 + "etc/passwd", "/audio//"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("changes", [{}, API])
def test_no_path_leads_out_of_the_audio_folder(data_folder: Path, url: str, changes: dict[str, Any]) -> None:
    error = expect_refusal(data_folder, url, **changes)
    assert isinstance(error, InvalidInput)
    assert "leads outside the data folder's audio/" in str(error)
    assert str(data_folder) not in str(error)


def test_no_link_leads_out_of_the_audio_folder(data_folder: Path) -> None:
    audio = data_folder / "data" / "audio"
    (audio / "file.wav").symlink_to(data_folder / "data" / "secret")
    (audio / "folder").symlink_to(data_folder / "data")
    (audio / "twice.wav").symlink_to(audio / "file.wav")
    (audio / "inside.wav").symlink_to("prompts/b c.wav")
    for url in ("/audio/file.wav", "/audio/folder/secret", "/audio/twice.wav", "/audio/folder/audio/../secret"):
        for changes in ({}, API):
            assert "leads outside" in str(expect_refusal(data_folder, url, **changes))
    assert read_prompt(data_folder, "/audio/inside.wav", **API) == SOUND
    assert read_prompt(data_folder, "/audio/folder/audio/a.wav", **API) == SOUND  # which is inside, by whatever way


def test_an_audio_folder_may_be_a_link(data_folder: Path) -> None:
    (data_folder / "linked").symlink_to(data_folder / "data" / "audio")
    assert read_prompt(data_folder, "/audio/a.wav", audio_folder=data_folder / "linked", **API) == SOUND
    assert "leads outside" in str(
        expect_refusal(data_folder, "/audio/../secret", audio_folder=data_folder / "linked", **API)
    )


@pytest.mark.parametrize(
    "url", ["/audio/%2e%2e/secret", "/audio/..%2fsecret", "/audio/%2e%2e%2fsecret", "/audio/a%2ewav", "/audio/..%5csecret", "/audio/~/a.wav", "/audio/$HOME"]
)  # fmt: skip
def test_nothing_in_a_path_is_decoded_or_expanded(data_folder: Path, url: str) -> None:
    assert isinstance(expect_refusal(data_folder, url, **API), NotFound)
    odd = data_folder / "data" / "audio" / url.removeprefix("/audio/")
    odd.parent.mkdir(exist_ok=True)
    odd.write_bytes(SOUND)
    assert read_prompt(data_folder, url, **API) == SOUND


@pytest.mark.parametrize(
    "url", ["near.wav", "./near.wav", "deep/d.wav", "../scenarios/near.wav", "../data/audio/a.wav"]
)
def test_a_relative_path_starts_at_the_scenario_file(
    data_folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert read_prompt(data_folder, url) == SOUND
    error = expect_refusal(data_folder, url, **API)
    assert isinstance(error, InvalidInput)
    assert "which only the command line can read; put the recording in the data folder's audio/" in str(error)
    assert "but the scenario has no file" in str(expect_refusal(data_folder, url, scenario_file=None))


def test_other_absolute_paths_are_for_the_command_line_only(data_folder: Path) -> None:
    for url in (
        str(data_folder / "scenarios" / "near.wav"),
        f"/{data_folder}/scenarios/near.wav",
        str(data_folder / "data/audio/a.wav"),
    ):
        assert read_prompt(data_folder, url) == SOUND
        assert read_prompt(data_folder, url, scenario_file=None) == SOUND
        assert "is an absolute path, which only the command line can read" in str(
            expect_refusal(data_folder, url, **API)
        )
    for url in (
        "/etc/passwd",
        "/audios/a.wav",
        "/Audio/a.wav",
        "//audio/a.wav",
        "/./audio/a.wav",
        "/proc/self/environ",
    ):
        assert isinstance(expect_refusal(data_folder, url, **API), InvalidInput)


@pytest.mark.parametrize("url", ["C:\\a.wav", "C:/a.wav", "c:a.wav", "Z:\\audio\\a.wav", "C:"])
def test_a_windows_drive_is_an_absolute_path(data_folder: Path, url: str) -> None:
    (data_folder / "scenarios" / "C:\\a.wav").write_bytes(SECRET)
    assert "is an absolute path" in str(expect_refusal(data_folder, url, **API))
    assert "names a Windows drive, which this machine does not have" in str(expect_refusal(data_folder, url))


@pytest.mark.parametrize("url", ["\\\\host\\share\\a.wav", "\\etc\\passwd"])
def test_a_windows_share_is_not_a_relative_path(data_folder: Path, url: str) -> None:
    assert "is an absolute path" in str(expect_refusal(data_folder, url, **API))
    assert isinstance(expect_refusal(data_folder, url), NotFound)


@pytest.mark.parametrize(
    ("url", "changes", "named"),
    [
        ("/audio/no.wav", API, "/audio/no.wav"),
        ("/audio/no/no.wav", API, "/audio/no/no.wav"),
        ("/audio/a.wav/b", API, "/audio/a.wav/b"),
        ("no.wav", {}, "scenarios/no.wav"),
        ("/no/such/file.wav", {}, "/no/such/file.wav"),
    ],
)
def test_a_missing_file_is_named(data_folder: Path, url: str, changes: dict[str, Any], named: str) -> None:
    error = expect_refusal(data_folder, url, **changes)
    assert isinstance(error, NotFound)
    assert f"{named} does not exist; a missing recording is never replaced" in str(error)
    assert (str(data_folder) in str(error)) == (url == "no.wav")


def test_a_missing_audio_folder_is_a_missing_file(data_folder: Path) -> None:
    assert isinstance(expect_refusal(data_folder, "/audio/a.wav", audio_folder=data_folder / "none", **API), NotFound)


@pytest.mark.parametrize(
    "url",
    [
        *("", " ", "\0", "/audio/a\0.wav", "a.wav\0", "ftp://host/a.wav", "file:///etc/passwd", "file:/etc/passwd", "data:audio/wav,x"),
        *("javascript:x", "audio://a.wav", "c://a.wav", "x" * 5000, "/audio/" + "a/" * 4000, "//[", "smb://host/a"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("changes", [{}, API])
def test_an_invalid_url_or_path_is_refused(data_folder: Path, url: str, changes: dict[str, Any]) -> None:
    assert isinstance(expect_refusal(data_folder, url, **changes), InvalidInput | NotFound)


@pytest.mark.parametrize(
    "url", ["/audio/\ud800.wav", "\udfff.wav", "/audio/" + "n" * 300, "n" * 300, "/audio/\n\x1b[31m"]
)
def test_impossible_file_names_are_our_own_errors(data_folder: Path, url: str) -> None:
    expect_refusal(data_folder, url)
    expect_refusal(data_folder, url, **API)


def test_folders_pipes_sockets_and_devices_are_refused(data_folder: Path) -> None:
    audio = data_folder / "data" / "audio"
    os.mkfifo(audio / "pipe.wav")
    (data_folder / "scenarios" / "pipe.wav").symlink_to(audio / "pipe.wav")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(audio)  # the name of a socket may be no longer than a hundred characters
        try:
            listening.bind("socket.wav")
        finally:
            os.chdir(here)
        for url in ("/audio", "/audio/", "/audio/prompts", "/audio/prompts/"):
            assert f"{url} is a folder; expected a recording" in str(expect_refusal(data_folder, url, **API))
        for url in ("/audio/pipe.wav", "/audio/socket.wav"):
            assert f"{url} is not a regular file" in str(expect_refusal(data_folder, url, **API))
    for url in ("/dev/zero", "/dev/stdin", "/dev/tty", "pipe.wav"):
        assert isinstance(expect_refusal(data_folder, url), InvalidInput)


def test_circular_links_are_refused(data_folder: Path) -> None:
    for folder in (data_folder / "data" / "audio", data_folder / "scenarios"):
        (folder / "one.wav").symlink_to("two.wav")
        (folder / "two.wav").symlink_to("one.wav")
    assert "cannot be read" in str(expect_refusal(data_folder, "/audio/one.wav", **API))
    assert "cannot be read" in str(expect_refusal(data_folder, "one.wav"))


def test_the_size_of_a_recording_is_bounded(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recordings.MAX_RECORDING_BYTES == 50 << 20
    large = data_folder / "data" / "audio" / "large.wav"
    with large.open("wb") as file:
        file.truncate((50 << 20) + 1)
    for url, changes in (("/audio/large.wav", API), (str(large), {})):
        assert "large.wav is larger than 50 MB" in str(expect_refusal(data_folder, url, **changes))
    monkeypatch.setattr(recordings, "MAX_RECORDING_BYTES", len(SOUND))
    assert read_prompt(data_folder, "/audio/a.wav") == SOUND
    monkeypatch.setattr(recordings, "MAX_RECORDING_BYTES", 0)
    assert "is larger than 0 MB" in str(expect_refusal(data_folder, "/proc/self/status"))  # which says that it is empty


def test_a_url_goes_through_the_address_guard(data_folder: Path) -> None:
    heard: list[bytes] = []

    async def serve_recording(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(SOUND), SOUND))
        await writer.drain()
        writer.close()

    async def go() -> None:
        async with await asyncio.start_server(serve_recording, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/audio/a.wav"
            for changes in ({}, API):
                with pytest.raises(InvalidInput, match=r"is not fetched: 127\.0\.0\.1 is loopback"):
                    await _read_prompt(data_folder, url, **changes)
            assert heard == []
            assert await _read_prompt(data_folder, url, allow_private=True, **API) == SOUND
            assert await _read_prompt(data_folder, url.replace("http", "HTTP"), allow_private=True) == SOUND

    asyncio.run(go())
    assert len(heard) == 2
