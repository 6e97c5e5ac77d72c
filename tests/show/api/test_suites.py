"""`/api/suites`: read, uploaded as immutable versions, run by name; every problem has a position."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import event

from pramana.app import App, known_suites
from pramana.app.suites import ListedSuiteView, SuiteView, TierHashesView, TierHashView
from pramana.bench import run_sync
from pramana.errors import HashMismatch, NotFound
from pramana.hash import hash_suite
from pramana.load import CaseSources
from pramana.load.manifest import BUILT_IN_SUITES_FOLDER, SuiteVersion, check_upload, iterate_versions, publish_version
from pramana.planning import create_run
from pramana.request import Limits, RunRequest, Selection
from pramana.show.api.envelope import make_documentation_model
from pramana.show.cli import pramana

from .served import Client, serve


def make_line(number: int, **changed: Any) -> str:
    case = {
        "id": f"factual-{number:03}",
        "category": "factual",
        "input": f"Say it, number {number}.",
        "ideal": "so",
        "assertion": {"type": "contains"},
        "metadata": {"difficulty": "easy", "tokens_est": 8},
    }
    return json.dumps({**case, **changed})


def read_prompts(serving: App, suite_hash: str) -> frozenset[str] | None:
    found = serving.known_suites.find_facts([suite_hash]).get(suite_hash)
    return found.prompt_ids if found else None


def make_jsonl(count: int) -> str:
    return "".join(make_line(number) + "\n" for number in range(count))


MINE: dict[str, Any] = {"version": "team-1", "tiers": {"smoke": make_jsonl(3), "full": make_jsonl(120)}}


def test_an_uploaded_suite_can_be_read_back(client_per_store: Client) -> None:
    made = client_per_store.post("/api/suites", MINE)
    assert made.status == 201
    make_documentation_model(SuiteView).model_validate(made.data)
    assert (made.data["origin"], made.data["categories"], made.data["assertionTypes"]) == (
        "uploaded", ["factual"], ["contains"],
    )  # fmt: skip
    assert made.data["tiers"]["full"]["testCount"] == 120
    assert made.data["tiers"]["full"]["estimatedTokens"] == 960
    assert client_per_store.get("/api/suites/team-1").data == made.data
    again = client_per_store.post(
        "/api/suites", {"version": "team-1", "tiers": {"full": make_jsonl(120), "smoke": f"\n{make_jsonl(3)}"}}
    )
    assert (again.status, again.data) == (200, made.data)
    assert [each.action for each in client_per_store.store.changes.list_after(0)] == ["created"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "tiers",
    [
        {"smoke": make_jsonl(3)},
        {"smoke": make_jsonl(3), "full": make_jsonl(119)},
        {**MINE["tiers"], "more": make_jsonl(1)},
    ],
    ids=["a tier less", "a case less", "a tier more"],
)
def test_an_existing_version_with_other_content_is_refused(client: Client, tiers: dict[str, str]) -> None:
    client.post("/api/suites", MINE)
    refused = client.post("/api/suites", {"version": "team-1", "tiers": tiers})
    assert (refused.status, refused.json["code"]) == (409, "already_exists")
    assert client.get("/api/suites/team-1").data["tiers"]["full"]["testCount"] == 120


def test_built_in_and_published_versions_cannot_be_overwritten(client: Client, tmp_path: Path) -> None:
    (tmp_path / "smoke.jsonl").write_text(make_jsonl(2), encoding="utf-8")
    publish_version([tmp_path / "smoke.jsonl"], "mine-1")
    for version, origin in (("v1.0", "built-in"), ("mine-1", "published")):
        refused = client.post("/api/suites", {"version": version, "tiers": {"smoke": make_jsonl(1)}})
        assert (refused.status, f"{version} is already {origin} with other content" in refused.error) == (409, True)
    same = client.post("/api/suites", {"version": "mine-1", "tiers": {"smoke": make_jsonl(2)}})
    assert (same.status, same.data["origin"]) == (200, "published")
    tiers = {path.stem: path.read_text(encoding="utf-8") for path in (BUILT_IN_SUITES_FOLDER / "v1.0").glob("*.jsonl")}
    assert client.post("/api/suites", {"version": "v1.0", "tiers": tiers}).status == 200
    assert client.store
    assert client.store.suites.list() == []


def test_every_problem_is_reported_with_tier_line_and_column(client: Client) -> None:
    wrong = "\n".join([make_line(1), make_line(2, category="factal"), make_line(1), '{"id": '])
    found = client.post("/api/suites", {"version": "team-1", "tiers": {"smoke": wrong, "full": make_jsonl(2)}})
    assert (found.status, found.json["code"]) == (400, "invalid_input")
    places = [(each["file"], each["line"], each["path"]) for each in found.json["details"]]
    assert places == [("smoke.jsonl", 2, "[1].category"), ("smoke.jsonl", 3, "[2].id"), ("smoke.jsonl", 4, "[3]")]
    assert found.json["details"][0]["column"] == 35
    assert client.get("/api/suites/team-1").status == 404


def test_repeated_problems_are_folded_in_the_message_and_listed_in_details(client: Client) -> None:
    wrong = "\n".join(make_line(number, category="factal", metadata={"difficulty": "easy"}) for number in range(60))
    found = client.post("/api/suites", {"version": "team-1", "tiers": {"smoke": wrong}})
    assert found.error.count("(60 times)") == 2
    assert found.error.startswith("smoke.jsonl:1:")
    assert len(found.json["details"]) == 100


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"version": "../up", "tiers": {"smoke": make_jsonl(1)}}, "versions and tiers are letters, digits"),
        ({"version": "team-1", "tiers": {"../up": make_jsonl(1)}}, "versions and tiers are letters, digits"),
        ({"version": "team-1", "tiers": {"hash": make_jsonl(1)}}, 'no tier can be called "hash"'),
        ({"version": "team-1", "tiers": {}}, "tiers: "),
        ({"version": "team-1", "tiers": {"smoke": ""}}, "the file is empty"),
        ({"version": "team-1", "tiers": {"smoke": "\ud800"}}, "smoke"),
        ({"tiers": {"smoke": make_jsonl(1)}}, "version: "),
    ],
)
def test_an_invalid_suite_is_refused_with_the_reason(client: Client, body: Any, message: str) -> None:
    found = client.post("/api/suites", body)
    assert (found.status, found.json["code"]) == (400, "invalid_input")
    assert message in found.error


def test_suites_are_listed_with_built_in_ones_first(client: Client, tmp_path: Path) -> None:
    (tmp_path / "smoke.jsonl").write_text(make_jsonl(2), encoding="utf-8")
    publish_version([tmp_path / "smoke.jsonl"], "mine-1")
    client.post("/api/suites", MINE)
    found = client.get("/api/suites").data
    for each in found:
        make_documentation_model(ListedSuiteView).model_validate(each)
    assert [(each["version"], each["origin"]) for each in found] == [
        ("v1.0", "built-in"), ("mine-1", "published"), ("team-1", "uploaded"),
    ]  # fmt: skip
    assert found[0]["tiers"]["cheap"]["hash"] == hash_suite(BUILT_IN_SUITES_FOLDER / "v1.0" / "cheap.jsonl")


def test_cases_are_returned_as_pages_or_as_the_file(client: Client) -> None:
    client.post("/api/suites", MINE)
    page = client.get("/api/suites/team-1/full?page=3&pageSize=50")
    assert page.json["meta"] == {"page": 3, "pageSize": 50, "total": 120, "totalPages": 3}
    assert [each["id"] for each in page.data] == [f"factual-{number:03}" for number in range(100, 120)]
    assert page.data[0] == json.loads(make_line(100))
    assert client.get("/api/suites/team-1/full?page=4").data == []
    file = client.get("/api/suites/team-1/full?format=jsonl")
    assert (file.headers["content-type"], file.body.decode()) == ("application/jsonl", make_jsonl(120))
    built_in = client.get("/api/suites/v1.0/cheap?format=jsonl")
    assert built_in.body == (BUILT_IN_SUITES_FOLDER / "v1.0" / "cheap.jsonl").read_bytes()
    for wrong in ("?pageSize=501", "?page=0", "?format=csv"):
        assert client.get(f"/api/suites/team-1/full{wrong}").status == 400


def test_cases_can_be_searched_by_id_and_prompt(client: Client) -> None:
    chat = make_line(
        7, id="CHAT-1", input=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Größe?"}]
    )
    client.post("/api/suites", {"version": "team-1", "tiers": {"smoke": f"{make_jsonl(30)}{chat}\n"}})

    def search(text: str, more: str = "") -> list[str]:
        return [each["id"] for each in client.get(f"/api/suites/team-1/smoke?text={text}{more}").data]

    assert search("factual-00") == [f"factual-00{number}" for number in range(10)]
    assert search("chat") == search("BRIEF") == search("gr%C3%B6sse") == ["CHAT-1"]
    assert search("number%201", "&pageSize=2&page=2") == ["factual-011", "factual-012"]
    assert client.get("/api/suites/team-1/smoke?text=nothing").json["meta"]["total"] == 0


def test_suite_hashes_match_the_published_definition(client: Client, tmp_path: Path) -> None:
    client.post("/api/suites", MINE)
    (tmp_path / "smoke.jsonl").write_text(make_jsonl(3), encoding="utf-8")
    all_of_them = client.get("/api/suites/team-1/hash").data
    make_documentation_model(TierHashesView).model_validate(all_of_them)
    one = client.get("/api/suites/team-1/smoke/hash").data
    make_documentation_model(TierHashView).model_validate(one)
    assert one["hash"] == all_of_them["tiers"]["smoke"] == hash_suite(tmp_path / "smoke.jsonl")


@pytest.mark.parametrize(
    "path", ["v9", "v9/hash", "v9/smoke", "v9/smoke/hash", "team-1/smok", "team-1/smok/hash", "..%2Fv1.0", "v1.0/cheep"]
)
def test_an_unknown_version_or_tier_is_404(client: Client, path: str) -> None:
    client.post("/api/suites", MINE)
    assert (client.get(f"/api/suites/{path}").status, client.get(f"/api/suites/{path}").json["code"]) == (
        404,
        "not_found",
    )


def test_viewers_read_and_editors_upload_suites(secure_client: Client) -> None:
    viewer, editor = map(secure_client.with_token, ("viewer", "editor"))
    assert secure_client.get("/api/suites").status == 401
    assert viewer.get("/api/suites").status == 200
    assert viewer.post("/api/suites", MINE).status == 403
    assert editor.post("/api/suites", MINE).status == 201


# ── Runs by name, lookup by hash ──


def test_an_uploaded_suite_can_be_run_by_name(client: Client, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = client.store
    assert store
    client.post("/api/suites", MINE)
    run = create_run(store, RunRequest(suite="team-1", tier="smoke", models=("fake:fixed=so",)))
    ended = run_sync(store, run, Limits())
    assert (ended.status, ended.stored, ended.plan.suite) == ("finished", 3, "team-1-smoke")
    assert ended.plan.suite_hash == client.get("/api/suites/team-1/smoke/hash").data["hash"]
    monkeypatch.setenv("PRAMANA_DATABASE_URL", sqlite_url)
    said = CliRunner().invoke(
        pramana, ["run", "--suite", "team-1", "--tier", "full", "--model", "fake:fixed=so", "--quiet"]
    )
    assert said.exit_code == 0, said.output
    assert store.runs.find("latest").stored == 120


def test_an_unknown_or_tampered_suite_cannot_be_run(client: Client) -> None:
    store = client.store
    assert store
    client.post("/api/suites", MINE)
    for suite, tier, said in (
        ("team-2", "smoke", 'no suite version "team-2"'),
        ("team-1", "smok", 'has no tier "smok"'),
    ):
        with pytest.raises(NotFound, match=said):
            CaseSources.from_tier(suite, tier, Selection(), store.suites)
    import zlib

    from sqlalchemy import text

    with store._database.write_transaction() as connection:
        packed = {"content": zlib.compress(make_jsonl(2).encode())}
        connection.execute(text("UPDATE suite_tiers SET content = :content WHERE tier = 'smoke'"), packed)
    with pytest.raises(HashMismatch, match="is not run"):
        CaseSources.from_tier("team-1", "smoke", Selection(), store.suites)


def test_a_thousand_unknown_hashes_cause_one_lookup(client_per_store: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client_per_store.serving
    assert client_per_store.store
    asked: list[str] = []
    engine = client_per_store.store._database._engine
    event.listen(engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    read: list[int] = []

    def count_and_iterate() -> Iterator[SuiteVersion]:
        read.append(1)
        return iterate_versions()

    monkeypatch.setattr(known_suites, "iterate_versions", count_and_iterate)
    monkeypatch.setattr(known_suites, "LOOKUP_CACHE_S", 60)
    invented = [f"sha256:{number:064x}" for number in range(1_000)]
    cheap = client_per_store.get("/api/suites/v1.0/cheap/hash").data["hash"]
    for _ in range(3):
        assert list(client_per_store.serving.known_suites.find_facts([cheap, *invented])) == [cheap]
    assert (
        client_per_store.serving.known_suites.find_facts(f"sha256:{number:064x}" for number in range(1_000, 1_100))
        == {}
    )
    assert len(read) == 1, "manifests are read again only when one has changed"
    assert 1 <= len([each for each in asked if "suite_tiers" in each]) <= 8


def test_an_unknown_suite_is_known_immediately_after_its_upload(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_suites, "LOOKUP_CACHE_S", 0.5)
    with serve(sqlite_url) as one, serve(sqlite_url) as other:
        assert one.serving
        assert other.serving
        uploaded = check_upload(MINE["version"], MINE["tiers"])
        smoke = str(uploaded.files_by_tier["smoke"].suite_hash)
        assert read_prompts(one.serving, smoke) is None
        assert read_prompts(other.serving, smoke) is None
        one.post("/api/suites", MINE)
        assert read_prompts(one.serving, smoke)
        time.sleep(0.6)
        assert read_prompts(other.serving, smoke), "another process believes for some seconds what it found"


def test_cases_are_found_by_suite_hash_on_every_server(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(sqlite_url) as one, serve(sqlite_url) as other:
        assert one.serving
        assert other.serving
        hashes = one.post("/api/suites", MINE).data["tiers"]
        for serving in (one.serving, other.serving):
            assert read_prompts(serving, hashes["smoke"]["hash"]) == frozenset(
                f"factual-00{number}" for number in range(3)
            )
            assert len(read_prompts(serving, hashes["full"]["hash"]) or ()) == 120
            assert read_prompts(serving, "sha256:" + "0" * 64) is None
            assert read_prompts(serving, "anything") is None
        cheap = one.get("/api/suites/v1.0/cheap/hash").data["hash"]
        assert (
            len(read_prompts(one.serving, cheap) or ())
            == one.get("/api/suites/v1.0").data["tiers"]["cheap"]["testCount"]
        )
        monkeypatch.setattr(known_suites, "MAX_CACHED_SUITES", 2)
        one.serving.known_suites._known.clear()
        smoke, full = hashes["smoke"]["hash"], hashes["full"]["hash"]
        for each in (smoke, full, smoke, cheap):
            assert read_prompts(one.serving, each)
        assert list(one.serving.known_suites._known) == [smoke, cheap], "what was used last is kept"
