"""`pramana scenarios` on the local store and on a server, and `pramana run store:`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pramana import settings
from pramana.errors import InvalidInput, PramanaError
from pramana.show.cli import pramana
from pramana.show.remote import ServerClient
from pramana.store import open_store

from .api.served import Client, serve

CASE = json.dumps(
    {
        "id": "factual-001",
        "category": "factual",
        "input": "x",
        "ideal": "y",
        "assertion": {"type": "contains"},
        "metadata": {"difficulty": "easy", "tokens_est": 2},
    }
)
ENTRY = "  - id: {id}\n    name: {name}\n    type: task-completion\n    prompt: p\n    expected_outcome: o\n"


def make_document(*ids: str, name: str = "N") -> str:
    return "scenarios:\n" + "".join(ENTRY.format(id=each, name=name) for each in ids)


@pytest.fixture
def scenario_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "scenarios"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.yaml").write_text(make_document("a", "b"), encoding="utf-8")
    (folder / "deep" / "er" / "c.yml").write_text(make_document("c"), encoding="utf-8")
    (folder / "suite.jsonl").write_text("{}\n", encoding="utf-8")
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Client]:
    with serve(f"sqlite:///{tmp_path / 'served.sqlite3'}") as found:
        yield found


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(pramana, ["scenarios", *map(str, arguments)], standalone_mode=False)


def test_folders_are_imported_recursively_and_exported_again(scenario_folder: Path, tmp_path: Path) -> None:
    assert invoke("import", scenario_folder).stdout == "3 imported (2 files)\n"
    assert invoke("import", scenario_folder, scenario_folder / "a.yaml").stdout == "3 skipped (2 files)\n"
    (scenario_folder / "a.yaml").write_text(make_document("a", "b", "d", name="New"), encoding="utf-8")
    tried = json.loads(invoke("import", scenario_folder, "--mode", "update", "--dry-run", "--json").stdout)
    assert tried == {"imported": ["d"], "updated": ["a", "b", "c"], "skipped": [], "files": 2, "dry_run": True}
    assert invoke("import", scenario_folder, "--mode", "update").stdout == "1 imported, 3 updated (2 files)\n"

    out = tmp_path / "out.yaml"
    written = invoke("export", out)
    assert written.stderr == f"4 scenarios written to {out}\n"
    assert out.read_text(encoding="utf-8") == invoke("export").stdout
    assert invoke("import", out).stdout == "4 skipped (1 file)\n"
    assert invoke("export", "--text", "NEW", "--id", "d", "--type", "task-completion").stdout.count("- id: ") == 1
    assert invoke("export", "--tag", "none").stderr == "0 scenarios written\n"


def test_all_files_are_validated_before_anything_is_imported(scenario_folder: Path) -> None:
    (scenario_folder / "z.yaml").write_text(make_document("a", "Z_"), encoding="utf-8")
    found = invoke("import", scenario_folder)
    assert isinstance(found.exception, InvalidInput)
    problems = [(Path(each.file).name, each.line, each.path) for each in found.exception.problems]
    assert problems == [("z.yaml", 2, "scenarios[0].id"), ("z.yaml", 7, "scenarios[1].id")]
    store = open_store(settings.database_url())
    assert store.scenarios.find_existing(["a", "b", "c"]) == set()
    store.close()


def test_mode_fail_reports_the_position_of_each_existing_id(scenario_folder: Path, server: Client) -> None:
    for target in ([], ["--to", server.url]):
        assert invoke("import", scenario_folder / "deep", *target).return_value == 0
        refused = invoke("import", scenario_folder, "--mode", "fail", *target)
        assert refused.return_value == 2
        place = f'{scenario_folder / "deep" / "er" / "c.yml"}:2:5: scenarios[0].id: id "c" already exists\n'
        assert refused.stderr.startswith(place)
        assert "nothing was imported" in refused.stderr
    assert [each["id"] for each in server.get("/api/scenarios").data] == ["c"]


def test_an_import_to_a_server_is_one_request_and_can_be_exported(
    scenario_folder: Path, server: Client, tmp_path: Path
) -> None:
    assert (
        invoke("import", scenario_folder, "--to", server.url, "--dry-run").stdout == "Would be: 3 imported (2 files)\n"
    )
    assert server.get("/api/scenarios").data == []
    assert invoke("import", scenario_folder, "--to", server.url + "/").stdout == "3 imported (2 files)\n"
    assert server.store
    assert [each.action for each in server.store.changes.list_after(0)] == ["imported"]
    assert (
        invoke("import", scenario_folder / "a.yaml", "--to", server.url, "--mode", "update").stdout
        == "2 updated (1 file)\n"
    )
    out = tmp_path / "out.yaml"
    invoke("export", out, "--from", server.url, "--id", "c", "--id", "a")
    assert out.read_bytes() == server.get("/api/scenarios/export?id=a&id=c").body
    assert invoke("import", out).stdout == "2 imported (1 file)\n"
    assert invoke("export").stdout == out.read_text(encoding="utf-8")


def test_the_library_can_be_imported() -> None:
    found = json.loads(invoke("import", "--library", "--json").stdout)
    assert len(found["imported"]) > 120


def test_a_token_is_sent_to_the_given_server(
    scenario_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(f"sqlite:///{tmp_path / 'guarded.sqlite3'}", server_account_needs_token=True) as guarded:
        editor, viewer = guarded.with_token("editor").token, guarded.with_token("viewer").token
        refused = invoke("import", scenario_folder, "--to", guarded.url)
        assert isinstance(refused.exception, PramanaError)
        assert (refused.exception.exit_code, "pass a token with --token" in str(refused.exception)) == (2, True)
        assert "needs the role editor" in str(
            invoke("import", scenario_folder, "--to", guarded.url, "--token", viewer).exception
        )
        monkeypatch.setenv("PRAMANA_TOKEN", str(editor))
        assert invoke("import", scenario_folder, "--to", guarded.url).stdout == "3 imported (2 files)\n"
        monkeypatch.delenv("PRAMANA_TOKEN")
        assert invoke("export", "--from", guarded.url, "--token", editor).stdout.count("- id: ") == 3


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--to", "http://127.0.0.1:9"], 3, "could not be reached"),
        (["--to", "localhost:3000"], 2, "is not a server URL"),
        (["--to", "ftp://localhost"], 2, "is not a server URL"),
        (["--to", "http://user@localhost"], 2, "is not a server URL"),
        (["--to", "http://localhost:3000", "--token", "a\nb"], 2, "characters that are not allowed"),
    ],
)
def test_an_unusable_server_is_reported(scenario_folder: Path, arguments: list[str], code: int, message: str) -> None:
    found = invoke("import", scenario_folder, *arguments)
    assert isinstance(found.exception, PramanaError)
    assert (found.exception.exit_code, message in str(found.exception)) == (code, True)


def test_an_invalid_import_is_reported(scenario_folder: Path, tmp_path: Path) -> None:
    for paths, said in (
        ([scenario_folder / "suite.jsonl"], "is a suite"),
        ([tmp_path / "nowhere"], "does not exist"),
        ([], "name a file or folder"),
    ):
        found = invoke("import", *paths)
        assert said in found.output + str(found.exception)
        assert getattr(found.exception, "exit_code", None) == 2
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "suite.jsonl").write_text("{}\n", encoding="utf-8")
    assert "contains no .yaml" in str(invoke("import", tmp_path / "only").exception)


def test_a_redirect_never_forwards_the_token(server: Client) -> None:
    import http.server
    import threading

    seen: list[str | None] = []

    class RedirectHandler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(302)
            self.send_header("Location", server.url + "/api/scenarios/export")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), RedirectHandler) as other:
        thread = threading.Thread(target=other.handle_request)
        thread.start()
        with pytest.raises(PramanaError, match=r"redirects \(302\)"):
            ServerClient(f"http://127.0.0.1:{other.server_port}", "secret").send_request("GET", "/api/scenarios/export")
        thread.join()
    assert seen == ["Bearer secret"]


def test_a_response_of_another_server_never_overwrites_a_file(tmp_path: Path) -> None:
    import http.server
    import threading

    class OtherServerHandler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html>hi")

        def log_message(self, *_: object) -> None:
            pass

    mine = tmp_path / "mine.yaml"
    mine.write_text("kept", encoding="utf-8")
    with http.server.HTTPServer(("127.0.0.1", 0), OtherServerHandler) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        found = invoke("export", mine, "--from", f"http://127.0.0.1:{stranger.server_port}")
        stranger.shutdown()
    assert isinstance(found.exception, PramanaError)
    assert (found.exception.exit_code, str(found.exception)) == (3, "the server at that address is not Pramana")
    assert mine.read_text(encoding="utf-8") == "kept"


# ── List, delete, restore ──


def list_ids(*arguments: object) -> list[str]:
    return [each["id"] for each in json.loads(invoke("list", "--json", *arguments).stdout)]


def test_scenarios_are_listed_with_filters_locally_and_on_a_server(scenario_folder: Path, server: Client) -> None:
    assert "No scenarios yet: import some with pramana scenarios import FILE" in invoke("list").stderr
    for target, at in (([], []), (["--to", server.url], ["--from", server.url])):
        invoke("import", scenario_folder, *target)
        assert list_ids(*at) == ["a", "b", "c"]
        assert list_ids("--id", "c", "--id", "a", "--type", "task-completion", *at) == ["a", "c"]
        assert list_ids("--language", "de", *at) == []
        assert invoke("list", "--tag", "none", *at).stderr == "No scenario matches these filters.\n"
        listed = invoke("list", "--limit", 2, *at)
        assert [line.split()[0] for line in listed.stdout.splitlines()] == ["id", "a", "b"]
        assert listed.stderr == "… and 1 more\n"
    here, there = (
        json.loads(invoke("list", "--json", "--id", "a", *at).stdout)[0] for at in ([], ["--from", server.url])
    )
    assert here.keys() == there.keys()
    assert (here["expected_outcome"], here["assert"]) == ("o", None)


def test_all_pages_of_a_server_are_listed(server: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pramana.show.cli.scenarios.SCENARIOS_PER_REQUEST", 2)
    (tmp_path / "many.yaml").write_text(make_document(*"abcde"), encoding="utf-8")
    invoke("import", tmp_path / "many.yaml", "--to", server.url)
    assert list_ids("--from", server.url) == [*"abcde"]
    assert list_ids("--from", server.url, "--limit", 3) == [*"abc"]


def test_deleting_scenarios_is_atomic_and_can_be_undone(scenario_folder: Path, server: Client) -> None:
    for target, at in (([], []), (["--to", server.url], ["--from", server.url])):
        invoke("import", scenario_folder, *target)
        unknown = invoke("delete", "a", "gone", *at).exception
        assert isinstance(unknown, PramanaError)
        assert (unknown.exit_code, 'there is no scenario "gone"' in str(unknown)) == (2, True)
        assert list_ids(*at) == ["a", "b", "c"]
        deleted = invoke("delete", "a", "c", "a", *at)
        assert deleted.stdout == "Deleted a, c\n"
        advice = " ".join(["pramana scenarios restore a c", *at])
        assert deleted.stderr == f"Restore within a day with: {advice}\n"
        assert list_ids(*at) == ["b"]
        assert invoke("restore", "a", "c", *at).stdout == "Restored a, c\n"
        assert list_ids(*at) == ["a", "b", "c"]
        (gone,) = json.loads(invoke("delete", "b", "--json", *at).stdout)
        assert gone.keys() == {"id", "restorable_until"}
        assert json.loads(invoke("restore", "b", "--json", *at).stdout) == ["b"]
        assert "no deleted scenario" in str(invoke("restore", "b", *at).exception)


@pytest.mark.parametrize(
    ("typed", "options", "left"), [("n\n", [], ["a", "b"]), ("y\n", [], ["b"]), ("", ["--yes"], ["b"])]
)
def test_deleting_scenarios_at_a_terminal_asks_for_confirmation(
    scenario_folder: Path, typed: str, options: list[str], left: list[str]
) -> None:
    invoke("import", scenario_folder / "a.yaml")
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "pramana", "scenarios", "delete", "a", *options]
    with subprocess.Popen(command, stdin=theirs, stderr=subprocess.PIPE, text=True) as process:
        os.write(ours, typed.encode())
        said = process.communicate(timeout=60)[1]
    assert ("Delete 1 scenario of the local store?" in said) is bool(typed)
    assert list_ids() == left
    os.close(ours)
    os.close(theirs)


# ── Run ──


def run_and_read_plan(*arguments: object) -> Result:
    return CliRunner().invoke(
        pramana, ["run", *map(str, arguments), "--model", "fake:echo", "--json"], standalone_mode=False
    )


def read_latest_cases() -> list[str]:
    store = open_store(settings.database_url())
    try:
        return [case.id for case, _ in store.results.iterate_with_cases(store.runs.find("latest").id)]
    finally:
        store.close()


def test_stored_scenarios_can_be_run_by_name_and_with_filters(scenario_folder: Path) -> None:
    invoke("import", scenario_folder)
    suite = scenario_folder / "one.jsonl"
    suite.write_text(CASE, encoding="utf-8")
    for given, cases in (
        (["store:"], ["a", "b", "c"]),
        (["store:b"], ["b"]),
        (["store:c", "store:a"], ["a", "c"]),
        (["store:c", "store:"], ["a", "b", "c"]),
        (["store:", "--id", "b"], ["b"]),
        (["store:", "--limit", 2], ["a", "b"]),
        (["store:b", suite], ["factual-001", "b"]),
        (["store:", suite, "--limit", 2], ["factual-001", "a"]),
    ):
        assert run_and_read_plan(*given).exception is None
        assert sorted(read_latest_cases()) == sorted(cases), given


def test_a_selection_of_stored_scenarios_is_recorded_once(scenario_folder: Path) -> None:
    invoke("import", scenario_folder)
    run_and_read_plan("store:", "--difficulty", "medium")
    store = open_store(settings.database_url())
    plan = store.runs.find("latest").plan
    store.close()
    assert (plan.suite, dict(plan.selection)) == ("scenarios (selection)", {"difficulties": ["medium"]})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a"], "a is not a file but the ID of a stored scenario; run: pramana run store:a"),
        (["store:gone"], 'there is no scenario "gone"; see: pramana scenarios list'),
        (["store:a", "--id", "b"], "no scenario that store: names matches the filters; check the spelling of --id b"),
        (
            ["store:", "--language", "de"],
            "no scenario matches these filters; check the spelling of the filters",
        ),
    ],
)
def test_an_unknown_stored_scenario_is_an_error_that_suggests_a_command(
    scenario_folder: Path, given: list[str], message: str
) -> None:
    invoke("import", scenario_folder)
    assert str(run_and_read_plan(*given).exception) == message


def test_an_empty_store_suggests_the_import_command() -> None:
    assert str(run_and_read_plan("store:").exception) == (
        "no scenarios are stored yet; import scenarios: pramana scenarios import FILE"
    )
