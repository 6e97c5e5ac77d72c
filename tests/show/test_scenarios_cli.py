"""`pramana scenarios import` and `export`: on the local store and on a server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pramana import settings
from pramana.errors import InvalidInput, PramanaError
from pramana.show.cli import pramana
from pramana.show.remote import Remote
from pramana.store import open_store

from .api.served import Client, serve

ENTRY = "  - id: {id}\n    name: {name}\n    type: task-completion\n    prompt: p\n    expected_outcome: o\n"


def document(*ids: str, name: str = "N") -> str:
    return "scenarios:\n" + "".join(ENTRY.format(id=each, name=name) for each in ids)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "scenarios"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.yaml").write_text(document("a", "b"), encoding="utf-8")
    (folder / "deep" / "er" / "c.yml").write_text(document("c"), encoding="utf-8")
    (folder / "suite.jsonl").write_text("{}\n", encoding="utf-8")
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Client]:
    with serve(f"sqlite:///{tmp_path / 'served.sqlite3'}") as found:
        yield found


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(pramana, ["scenarios", *map(str, arguments)], standalone_mode=False)


def test_folders_are_imported_to_the_bottom_and_exported_again(files: Path, tmp_path: Path) -> None:
    assert invoke("import", files).stdout == "3 imported (2 files)\n"
    assert invoke("import", files, files / "a.yaml").stdout == "3 skipped (2 files)\n"
    (files / "a.yaml").write_text(document("a", "b", "d", name="New"), encoding="utf-8")
    tried = json.loads(invoke("import", files, "--mode", "update", "--dry-run", "--json").stdout)
    assert tried == {"imported": ["d"], "updated": ["a", "b", "c"], "skipped": [], "files": 2, "dry_run": True}
    assert invoke("import", files, "--mode", "update").stdout == "1 imported, 3 updated (2 files)\n"

    out = tmp_path / "out.yaml"
    written = invoke("export", out)
    assert written.stderr == f"4 scenarios written to {out}\n"
    assert out.read_text(encoding="utf-8") == invoke("export").stdout
    assert invoke("import", out).stdout == "4 skipped (1 file)\n"
    assert invoke("export", "--text", "NEW", "--id", "d", "--type", "task-completion").stdout.count("- id: ") == 1
    assert invoke("export", "--tag", "none").stderr == "0 scenarios written\n"


def test_everything_is_checked_before_anything_is_changed(files: Path) -> None:
    (files / "z.yaml").write_text(document("a", "Z_"), encoding="utf-8")
    found = invoke("import", files)
    assert isinstance(found.exception, InvalidInput)
    problems = [(Path(each.file).name, each.line, each.path) for each in found.exception.problems]
    assert problems == [("z.yaml", 2, "scenarios[0].id"), ("z.yaml", 7, "scenarios[1].id")]
    store = open_store(settings.database_url())
    assert store.scenarios.which(["a", "b", "c"]) == set()
    store.close()


def test_with_fail_the_place_of_each_id_that_exists_is_told(files: Path, server: Client) -> None:
    for target in ([], ["--to", server.url]):
        assert invoke("import", files / "deep", *target).return_value == 0
        refused = invoke("import", files, "--mode", "fail", *target)
        assert refused.return_value == 2
        place = f'{files / "deep" / "er" / "c.yml"}:2:5: scenarios[0].id: id "c" exists already\n'
        assert refused.stderr.startswith(place)
        assert "nothing was imported" in refused.stderr
    assert [each["id"] for each in server.get("/api/scenarios").data] == ["c"]


def test_a_server_is_sent_all_by_one_request_and_gives_it_back(files: Path, server: Client, tmp_path: Path) -> None:
    assert invoke("import", files, "--to", server.url, "--dry-run").stdout == "Would be: 3 imported (2 files)\n"
    assert server.get("/api/scenarios").data == []
    assert invoke("import", files, "--to", server.url + "/").stdout == "3 imported (2 files)\n"
    assert server.store
    assert [each.action for each in server.store.changes.after(0)] == ["imported"]
    assert invoke("import", files / "a.yaml", "--to", server.url, "--mode", "update").stdout == "2 updated (1 file)\n"
    out = tmp_path / "out.yaml"
    invoke("export", out, "--from", server.url, "--id", "c", "--id", "a")
    assert out.read_bytes() == server.get("/api/scenarios/export?id=a&id=c").body
    assert invoke("import", out).stdout == "2 imported (1 file)\n"
    assert invoke("export").stdout == out.read_text(encoding="utf-8")


def test_the_library_is_imported_when_it_is_asked_for() -> None:
    found = json.loads(invoke("import", "--library", "--json").stdout)
    assert len(found["imported"]) > 120


def test_a_token_is_sent_to_the_server_that_was_named(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(f"sqlite:///{tmp_path / 'guarded.sqlite3'}", tokens_required=True) as guarded:
        editor, viewer = guarded.with_token("editor").token, guarded.with_token("viewer").token
        refused = invoke("import", files, "--to", guarded.url)
        assert isinstance(refused.exception, PramanaError)
        assert (refused.exception.exit_code, "give a token by --token" in str(refused.exception)) == (2, True)
        assert "needs the role editor" in str(invoke("import", files, "--to", guarded.url, "--token", viewer).exception)
        monkeypatch.setenv("PRAMANA_TOKEN", str(editor))
        assert invoke("import", files, "--to", guarded.url).stdout == "3 imported (2 files)\n"
        monkeypatch.delenv("PRAMANA_TOKEN")
        assert invoke("export", "--from", guarded.url, "--token", editor).stdout.count("- id: ") == 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--to", "http://127.0.0.1:9"], 3, "could not be asked"),
        (["--to", "localhost:3000"], 2, "is no address of a server"),
        (["--to", "ftp://localhost"], 2, "is no address of a server"),
        (["--to", "http://user@localhost"], 2, "is no address of a server"),
        (["--to", "http://localhost:3000", "--token", "a\nb"], 2, "characters that no token has"),
    ],
)
def test_a_server_that_cannot_be_asked_is_told(files: Path, arguments: list[str], code: int, said: str) -> None:
    found = invoke("import", files, *arguments)
    assert isinstance(found.exception, PramanaError)
    assert (found.exception.exit_code, said in str(found.exception)) == (code, True)


def test_what_cannot_be_imported_is_told(files: Path, tmp_path: Path) -> None:
    for paths, said in (
        ([files / "suite.jsonl"], "is a suite"),
        ([tmp_path / "nowhere"], "does not exist"),
        ([], "name a file or a folder"),
    ):
        found = invoke("import", *paths)
        assert said in found.output + str(found.exception)
        assert getattr(found.exception, "exit_code", None) == 2
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "suite.jsonl").write_text("{}\n", encoding="utf-8")
    assert "holds no .yaml" in str(invoke("import", tmp_path / "only").exception)


def test_no_redirect_takes_a_token_elsewhere(server: Client) -> None:
    import http.server
    import threading

    seen: list[str | None] = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(302)
            self.send_header("Location", server.url + "/api/scenarios/export")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Elsewhere) as other:
        thread = threading.Thread(target=other.handle_request)
        thread.start()
        with pytest.raises(PramanaError, match="leads elsewhere"):
            Remote(f"http://127.0.0.1:{other.server_port}", "secret").ask("GET", "/api/scenarios/export")
        thread.join()
    assert seen == ["Bearer secret"]


def test_what_a_stranger_answers_does_not_replace_a_file(tmp_path: Path) -> None:
    import http.server
    import threading

    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html>hi")

        def log_message(self, *_: object) -> None:
            pass

    mine = tmp_path / "mine.yaml"
    mine.write_text("kept", encoding="utf-8")
    with http.server.HTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        found = invoke("export", mine, "--from", f"http://127.0.0.1:{stranger.server_port}")
        stranger.shutdown()
    assert isinstance(found.exception, PramanaError)
    assert (found.exception.exit_code, str(found.exception)) == (3, "what answers there is no Pramana")
    assert mine.read_text(encoding="utf-8") == "kept"
