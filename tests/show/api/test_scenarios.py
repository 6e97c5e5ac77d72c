"""`/api/scenarios` and `/api/library`: the documented responses of the scenario format, and everything around them."""

import json
import re
import subprocess
import threading
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pramana import model
from pramana.app.documents import make_scenario_from_fields
from pramana.app.scenarios import (
    DeletedScenarioView,
    FacetsView,
    ImportedView,
    LibraryFileView,
    ScenarioFieldsView,
    ScenarioView,
)
from pramana.errors import InvalidInput
from pramana.load.problems import Problems
from pramana.load.scenario import Scenario, iterate_scenarios_yaml, parse_scenarios
from pramana.show.api.envelope import make_documentation_model
from pramana.show.api.scenarios import ValidatedShape

from ...examples import examples
from .served import Answer, Client, start_program

DeletedScenarioShape, FacetsShape, ImportedShape = (
    make_documentation_model(DeletedScenarioView),
    make_documentation_model(FacetsView),
    make_documentation_model(ImportedView),
)
LibraryFileShape, ScenarioShape = make_documentation_model(LibraryFileView), make_documentation_model(ScenarioView)
YAML = {"Content-Type": "application/yaml"}
NEW: dict[str, Any] = {
    "id": "ferry",
    "name": "Ferry",
    "type": "task-completion",
    "prompt": "Two adults and a van.",
    "expectedOutcome": "Asks how high the van is",
}
DEFAULTS: dict[str, Any] = {
    "promptAudioUrl": None,
    "tags": [],
    "language": "en",
    "difficulty": "medium",
    "assert": None,
    "reference": None,
    "turns": None,
    "conditions": None,
}


def make_document(*ids: str, **fields: str) -> str:
    more = "".join(f"    {name}: {value}\n" for name, value in fields.items())
    entry = "    name: Test\n    type: task-completion\n    prompt: Hello\n    expected_outcome: Response\n"
    return 'version: "1.0"\nscenarios:\n' + "".join(f"  - id: {each}\n{entry}{more}" for each in ids)


def import_yaml(client: Client, yaml: str, **given_: Any) -> Answer:
    return client.post("/api/scenarios/import", {"yaml": yaml, **given_})


def list_ids(client: Client, query: str = "") -> list[str]:
    return [each["id"] for each in client.get(f"/api/scenarios?pageSize=500&{query}").data]


# ── Import ──


def test_an_import_returns_the_documented_response(client_per_store: Client) -> None:
    assert client_per_store.get("/api/scenarios").json["data"] == []  # nothing is imported without a request
    first = import_yaml(client_per_store, make_document("test-1"), mode="skip")
    assert first.status == 201
    assert first.json.keys() == {"success", "data", "meta"}
    (scenario,) = first.data["scenarios"]
    ScenarioShape.model_validate(scenario)
    assert scenario.items() >= {**DEFAULTS, "id": "test-1", "expectedOutcome": "Response"}.items()
    assert first.data == {"imported": ["test-1"], "updated": [], "skipped": [], "scenarios": [scenario]}
    assert first.json["meta"] == {"totalParsed": 1, "totalImported": 1, "totalUpdated": 0, "totalSkipped": 0}

    again = import_yaml(client_per_store, make_document("test-1"))  # skip is the default mode
    assert again.status == 201
    assert again.data == {"imported": [], "updated": [], "skipped": ["test-1"], "scenarios": []}
    assert again.json["meta"] == {"totalParsed": 1, "totalImported": 0, "totalUpdated": 0, "totalSkipped": 1}


def test_mode_update_replaces_all_but_the_creation_time_and_adds_new_ones(client_per_store: Client) -> None:
    full = make_document(
        "a", tags="[x]", difficulty="hard", language="de", prompt_audio_url="/audio/a.wav", reference="Yes."
    )
    before = import_yaml(client_per_store, full).data["scenarios"][0]
    done = import_yaml(client_per_store, make_document("b", "a"), mode="update")
    assert (done.status, done.data["imported"], done.data["updated"]) == (201, ["b"], ["a"])
    after = client_per_store.get("/api/scenarios/a").data
    assert after.items() >= DEFAULTS.items()
    assert after["createdAt"] == before["createdAt"]
    assert after["updatedAt"] > before["updatedAt"]
    assert [each["id"] for each in done.data["scenarios"]] == ["b", "a"]
    assert done.data["scenarios"][1] == after


def test_mode_fail_refuses_everything_with_the_position_of_each_existing_id(client_per_store: Client) -> None:
    import_yaml(client_per_store, make_document("a", "c"))
    found = import_yaml(client_per_store, make_document("a", "b", "c"), mode="fail")
    assert (found.status, found.json["code"]) == (409, "already_exists")
    assert found.json["details"] == [
        {"path": "scenarios[0].id", "message": 'id "a" already exists', "line": 3, "column": 5},
        {"path": "scenarios[2].id", "message": 'id "c" already exists', "line": 13, "column": 5},
    ]
    assert list_ids(client_per_store) == ["a", "c"]
    single = "id: c\nname: n\ntype: task-completion\nprompt: p\nexpected_outcome: o\n"
    assert (
        import_yaml(client_per_store, single, mode="fail").json["details"][0].items()
        >= {"path": "id", "line": 1}.items()
    )
    assert import_yaml(client_per_store, make_document("b"), mode="fail").status == 201


def test_an_invalid_document_changes_nothing_and_every_problem_has_a_position(client: Client) -> None:
    wrong = make_document("good", "Bad_One").replace("type: task-completion", "type: tasks", 1)
    found = import_yaml(client, wrong)
    assert found.status == 400
    assert found.error == "YAML validation failed"
    assert [(each["path"], each["line"], each["column"]) for each in found.json["details"]] == [
        ("scenarios[0].type", 5, 5),
        ("scenarios[1].id", 8, 5),
    ]
    assert found.json["details"][1]["message"] == "id must be lowercase alphanumeric with hyphens only"
    assert client.get("/api/scenarios").json["meta"]["total"] == 0
    syntax = import_yaml(client, "a: [")
    assert (syntax.error, syntax.json["details"][0]["path"]) == ("YAML validation failed", "yaml")


def test_a_dry_run_reports_the_changes_without_making_them(client: Client) -> None:
    import_yaml(client, make_document("a"))
    before = client.get("/api/scenarios/a").data
    found = import_yaml(client, make_document("a", "b", language="fr"), mode="update", dryRun=True)
    assert (found.status, found.json["meta"]["dryRun"]) == (200, True)
    assert (found.data["imported"], found.data["updated"]) == (["b"], ["a"])
    ImportedShape.model_validate(found.data)
    assert [each["language"] for each in found.data["scenarios"]] == ["fr", "fr"]
    assert client.get("/api/scenarios/a").data == before
    assert list_ids(client) == ["a"]
    assert import_yaml(client, make_document("a"), mode="fail", dry_run=True).status == 409


def test_a_raw_yaml_body_is_accepted(client: Client) -> None:
    data = b"\xef\xbb\xbf" + make_document("a", name="Ünï").replace("    name: Test\n", "").encode()
    for kind in ("application/yaml", "text/yaml; charset=utf-8", "application/x-yaml"):
        found = client.post("/api/scenarios/import?mode=update", body=data, headers={"Content-Type": kind})
        assert found.status == 201
        assert found.data["scenarios"][0]["name"] == "Ünï"
    tried = client.post("/api/scenarios/import?mode=skip&dryRun=true", body=data, headers=YAML)
    assert (tried.status, tried.data["skipped"]) == (200, ["a"])
    assert client.post("/api/scenarios/import?mode=both", body=data, headers=YAML).status == 400
    assert client.post("/api/scenarios/import", body=b"a: \xff", headers=YAML).json["details"][0]["line"] == 1
    form = client.post(
        "/api/scenarios/import", body=b"a=b", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert (form.status, "application/yaml" in form.error) == (415, True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"yaml": "\\ud800"}', "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "is not valid"),
        (b"{}", "yaml: Field required"),
        (b'{"yaml": 1}', "yaml"),
        (b'{"yaml": "a", "mode": "replace"}', "'skip', 'update' or 'fail'"),
        (b'{"yaml": "a", "modus": "skip"}', "modus"),
        (b'{"yaml": ""}', "YAML validation failed"),
        (b'{"yaml": "a\\u0000"}', "YAML validation failed"),
        (b'{"yaml": "scenarios: []"}', "YAML validation failed"),
    ],
)
def test_an_invalid_body_is_refused_in_the_envelope(client: Client, body: bytes, message: str) -> None:
    for path in ("/api/scenarios/import", "/api/scenarios/validate"):
        found = client.post(path, body=body, headers={"Content-Type": "application/json"})
        if path.endswith("validate") and (message == "YAML validation failed" or b"mod" in body):
            assert found.status in (200, 400)
            continue
        assert found.status == 400
        assert message in found.error


def test_validation_reports_the_same_problems_as_an_import(client: Client) -> None:
    good = client.post("/api/scenarios/validate", {"yaml": make_document("a", "b")})
    assert (good.status, good.data) == (200, {"valid": True, "scenarios": 2, "problems": []})
    for wrong in (make_document("A", "b"), make_document("a", "a"), "- a\n", make_document("a" * 1_001)):
        found = client.post("/api/scenarios/validate", body=wrong.encode(), headers=YAML)
        ValidatedShape.model_validate(found.data)
        assert found.data["valid"] is False
        assert found.data["problems"] == import_yaml(client, wrong).json["details"]
    assert list_ids(client) == []


# ── One scenario ──


def test_a_scenario_can_be_created_read_replaced_and_patched(client_per_store: Client) -> None:
    made = client_per_store.post("/api/scenarios", {**NEW, "tags": ["a"], "turns": [{"say": "Yes.", "barge_in": 2}]})
    assert made.status == 201
    ScenarioShape.model_validate(made.data)
    turn = {"say": "Yes.", "audioUrl": None, "bargeIn": 2.0, "assert": None, "reference": None}
    assert made.data.items() >= {**DEFAULTS, **NEW, "tags": ["a"], "turns": [turn]}.items()
    assert client_per_store.get("/api/scenarios/ferry").data == made.data

    changed = client_per_store.patch(
        "/api/scenarios/ferry", {"expected_outcome": "Other", "language": "de", "tags": None}
    ).data
    assert changed.items() >= {"expectedOutcome": "Other", "language": "de", "tags": [], "turns": [turn]}.items()
    assert changed["createdAt"] == made.data["createdAt"]

    replaced = client_per_store.put("/api/scenarios/ferry", {**NEW, "name": "New"}).data
    assert replaced.items() >= {**DEFAULTS, **NEW, "name": "New"}.items()
    assert replaced["createdAt"] == made.data["createdAt"]

    sent_back = client_per_store.put("/api/scenarios/ferry", replaced)  # unchanged, including its times
    assert sent_back.status == 200
    assert {**sent_back.data, "updatedAt": ""} == {**replaced, "updatedAt": ""}


def test_assertions_keep_the_field_names_of_suite_files(client: Client) -> None:
    stated = {"type": "contains_any", "ideal": ["yes", "sure"], "case_sensitive": False}
    judged = {"type": "llm_judge", "judge_prompt": "Is it kind?"}
    sent = {
        **NEW,
        "assert": stated,
        "turns": [{"say": "And?", "assert": [{"type": "llm_judge", "judgePrompt": "Is it kind?"}]}],
    }
    made = client.post("/api/scenarios", sent).data
    assert (made["assert"], made["turns"][0]["assert"]) == ([stated], [judged])


def test_a_missing_id_is_generated_from_the_name(client: Client) -> None:
    nameless = {name: value for name, value in NEW.items() if name != "id"}
    ids = [
        client.post("/api/scenarios", {**nameless, "name": name}).data["id"]
        for name in ("Two adults, a van!", "Two adults: a VAN", "東京", "x" * 200, "--")
    ]
    assert ids == ["two-adults-a-van", "two-adults-a-van-2", "scenario", "x" * 60, "scenario-2"]
    existing = client.post("/api/scenarios", {**NEW, "id": "scenario"})
    assert (existing.status, existing.json["code"]) == (409, "already_exists")


def test_an_invalid_scenario_is_refused_with_the_messages_of_the_format(client: Client) -> None:
    client.post("/api/scenarios", NEW)
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({**NEW, "id": "Ferry_1"}, "id", "id must be lowercase alphanumeric with hyphens only"),
        ({**NEW, "id": "x" * 1_001}, "id", "id must have at most 1,000 characters"),
        ({**NEW, "name": ""}, "name", "name is required"),
        ({**NEW, "name": "x" * 256}, "name", "255 characters or less"),
        ({**NEW, "type": "tasks"}, "type", "Invalid type"),
        ({**NEW, "prompt": "half \ud800"}, "prompt", "half of a surrogate pair"),
        ({**NEW, "color": "red"}, "color", "unknown key"),
        ({**NEW, "expected_outcome": "o"}, "expected_outcome", "two spellings of the same key; keep one"),
        ({**NEW, "turns": [{"say": ""}]}, "turns[0].say", "say is required"),
        ({**NEW, "assert": {"type": "contians"}}, "assert.type", "contains"),
        ({**NEW, "prompt": 5}, "prompt", "prompt must be text"),
        ({}, "name", "name is required"),
    ]
    for body, path, said in wrong:
        found = client.post("/api/scenarios", body)
        assert found.status == 400, body
        assert [each for each in found.json["details"] if each["path"] == path and said in each["message"]], found.body
    assert client.patch("/api/scenarios/ferry", {"prompt": " "}).status == 400
    assert client.patch("/api/scenarios/ferry", {"expectedOutcome": "a", "expected_outcome": "b"}).status == 400
    assert client.patch("/api/scenarios/ferry", {"id": "other"}).status == 400
    assert client.put("/api/scenarios/ferry", {"prompt": "all of it is needed"}).status == 400
    for sent in (b"[]", b"5", b"null", b"{", b'{"a": ' + b"9" * 5000 + b"}", b'{"a":' * 5000):
        found = client.post("/api/scenarios", body=sent, headers={"Content-Type": "application/json"})
        assert (found.status, found.json["success"]) == (400, False), sent[:20]
    assert client.get("/api/scenarios/ferry").data["prompt"] == NEW["prompt"]


def test_a_scenario_that_yaml_cannot_represent_is_refused(client: Client) -> None:
    deep: Any = True
    for _ in range(60):
        deep = {"not": deep}
    found = client.post("/api/scenarios", {**NEW, "assert": {"type": "json_schema", "schema": deep}})
    assert (found.status, "the scenario cannot be written as a YAML file" in found.error) == (400, True)


def test_an_unknown_scenario_cannot_be_read_changed_or_deleted(client: Client) -> None:
    for method, path, body in (
        ("GET", "/api/scenarios/nobody", None),
        ("PUT", "/api/scenarios/nobody", {**NEW, "id": "nobody"}),
        ("PATCH", "/api/scenarios/nobody", {"name": "x"}),
        ("DELETE", "/api/scenarios/nobody", None),
        ("POST", "/api/scenarios/nobody/restore", None),
        ("GET", "/api/scenarios/%00", None),
        ("GET", "/api/scenarios/%ff", None),
        ("GET", f"/api/scenarios/{'x' * 5000}", None),
    ):
        assert client.call(method, path, body).status == 404, path


def test_a_deleted_scenario_is_listed_and_can_be_restored(client_per_store: Client) -> None:
    made = client_per_store.post("/api/scenarios", NEW).data
    gone = client_per_store.delete("/api/scenarios/ferry")
    DeletedScenarioShape.model_validate(gone.data)
    assert (gone.status, gone.data["scenario"]) == (200, made)
    listed = client_per_store.get("/api/deleted-scenarios")
    assert (listed.data, listed.json["meta"]["total"]) == ([gone.data], 1)
    assert "can be restored" in client_per_store.get("/api/scenarios/ferry").error
    assert client_per_store.post("/api/scenarios/ferry/restore").data == made
    assert client_per_store.get("/api/scenarios/ferry").data == made
    assert client_per_store.get("/api/deleted-scenarios").data == []
    client_per_store.delete("/api/scenarios/ferry")
    client_per_store.post("/api/scenarios", NEW)
    assert client_per_store.post("/api/scenarios/ferry/restore").status == 409


def test_scenario_ids_can_equal_route_names(client: Client) -> None:
    words = ["deleted", "export", "import", "validate"]
    assert import_yaml(client, make_document(*words)).status == 201
    for each in words:
        (found,) = client.get(f"/api/scenarios?id={each}").data
        assert client.patch(f"/api/scenarios/{each}", {"name": "New"}).data == {
            **found,
            "name": "New",
            "updatedAt": client.get(f"/api/scenarios?id={each}").data[0]["updatedAt"],
        }
        assert client.put(f"/api/scenarios/{each}", {**NEW, "id": each}).status == 200
        if each != "export":  # GET of that address is the export
            assert client.get(f"/api/scenarios/{each}").data["id"] == each
        assert client.delete(f"/api/scenarios/{each}").status == 200
        assert client.post(f"/api/scenarios/{each}/restore").data["id"] == each


# ── Lists ──


def test_scenarios_are_paginated_and_filtered(client_per_store: Client) -> None:
    library = client_per_store.post("/api/library/import", {})
    total = library.json["meta"]["totalImported"]
    first = client_per_store.get("/api/scenarios")
    assert first.json["meta"] == {"page": 1, "pageSize": 50, "total": total, "totalPages": -(-total // 50)}
    every = [each for page in range(1, 5) for each in client_per_store.get(f"/api/scenarios?page={page}").data]
    assert [each["id"] for each in every] == sorted(library.data["imported"])
    for each in every:
        ScenarioShape.model_validate(each)

    def expected_ids(**fields: str) -> list[str]:
        return [each["id"] for each in every if fields.items() <= each.items()]

    assert list_ids(client_per_store, "type=conversation-flow&difficulty=hard") == expected_ids(
        type="conversation-flow", difficulty="hard"
    )
    assert list_ids(client_per_store, "language=fr&language=de") == sorted(
        expected_ids(language="fr") + expected_ids(language="de")
    )
    tags = next(each["tags"] for each in every if len(each["tags"]) > 1)
    expected = [each["id"] for each in every if {*tags} <= {*each["tags"]}]
    assert list_ids(client_per_store, "&".join(f"allTags={tag}" for tag in tags)) == expected
    any_of_them = [each["id"] for each in every if {*tags} & {*each["tags"]}]
    assert list_ids(client_per_store, "&".join(f"tag={tag}" for tag in tags)) == any_of_them
    branch = [each["id"] for each in every if any(tag.startswith("domain:") for tag in each["tags"])]
    assert list_ids(client_per_store, "tag=domain:") == branch
    named = [
        each["id"]
        for each in every
        if "REFUND".casefold()
        in json.dumps([each[name] for name in ("id", "name", "prompt", "expectedOutcome")]).casefold()
    ]
    assert list_ids(client_per_store, "text=REFUND") == named
    page = client_per_store.get("/api/scenarios?text=refund&pageSize=1&page=2")
    assert ([each["id"] for each in page.data], page.json["meta"]["total"]) == (named[1:2], len(named))
    assert client_per_store.get("/api/scenarios?page=1000000").data == []


@pytest.mark.parametrize(
    "query",
    [
        "page=0",
        "pageSize=501",
        "page=x",
        "type=other",
        "difficulty=",
        "page=99999999999999999999",
        "text=" + "x" * 1001,
    ],
)
def test_an_invalid_query_is_refused(client: Client, query: str) -> None:
    assert client.get(f"/api/scenarios?{query}").status == 400


@pytest.mark.parametrize(
    "query", ["text=%00", "tag=%00", "language=%00", "id=%00", "text=%25", "tag='%22", "text=%ff", "language=%ED%A0%80"]
)
def test_a_query_with_unusual_text_finds_nothing(client_per_store: Client, query: str) -> None:
    import_yaml(client_per_store, make_document("a"))
    found = client_per_store.get(f"/api/scenarios?{query}")
    assert (found.status, found.data) == (200, [])


# ── The library ──


def test_the_library_is_listed_and_imported_by_file(client: Client) -> None:
    files = client.get("/api/library").data
    for each in files:
        LibraryFileShape.model_validate(each)
    names = [each["file"] for each in files]
    assert "task-completion/booking.yaml" in names
    assert {each["imported"] for each in files} == {0}
    done = client.post("/api/library/import", {"files": ["multilingual/french.yaml"]})
    booked = {each["file"]: each for each in client.get("/api/library").data}["multilingual/french.yaml"]
    assert (done.status, done.data["imported"], booked["imported"]) == (201, booked["ids"], len(booked["ids"]))
    again = client.post("/api/library/import", {"files": ["multilingual/french.yaml"], "mode": "fail"})
    assert again.status == 409
    assert again.json["details"][0].items() >= {"file": "multilingual/french.yaml", "path": "scenarios[0].id"}.items()
    assert client.post("/api/library/import", {"mode": "skip", "dryRun": True}).status == 200
    unknown = client.post("/api/library/import", {"files": ["multilingual/french.yml"]})
    assert (unknown.status, 'did you mean "multilingual/french.yaml"?' in unknown.error) == (404, True)
    assert client.post("/api/library/import", {"files": ["../../errors.py"]}).status == 404
    assert client.post("/api/library/import", {"files": []}).status == 400


# ── Export ──


def test_an_export_round_trips(client_per_store: Client) -> None:
    client_per_store.post("/api/library/import", {})
    conversation = {
        **NEW,
        "turns": [{"say": "x", "assert": {"type": "json_schema", "schema": {"const": 10**30, "x": [1.5, None]}}}],
    }
    client_per_store.post("/api/scenarios", conversation)
    before = [
        {**each, "updatedAt": ""}
        for page in (1, 2)
        for each in client_per_store.get(f"/api/scenarios?pageSize=100&page={page}").data
    ]
    exported = client_per_store.get("/api/scenarios/export")
    assert (exported.status, exported.headers["content-type"]) == (200, "application/yaml")
    done = client_per_store.post("/api/scenarios/import?mode=update", body=exported.body, headers=YAML)
    assert done.data["updated"] == [each["id"] for each in before]
    assert [{**each, "updatedAt": ""} for each in done.data["scenarios"]] == before
    some = client_per_store.get("/api/scenarios/export?language=fr&difficulty=hard").body.decode()
    assert [each.scenario.id for each in parse_scenarios(some, Problems())] == list_ids(
        client_per_store, "language=fr&difficulty=hard"
    )
    nothing = client_per_store.get("/api/scenarios/export?tag=nobody")
    assert (nothing.status, nothing.body) == (200, b"version: '1.0'\nscenarios: []\n")


characters = st.characters(exclude_categories=["Cs"]) | st.sampled_from(
    " \n\t\r:#-'\"\\\x85\u2028\u2029\ufeff\0\ufdd0\u202e0041"
)
texts = st.text(characters, min_size=1, max_size=20).filter(str.strip)
assertions = st.sampled_from(
    [
        {"type": "is_json"},
        {"type": "contains_any", "ideal": ["1e3", "no"], "case_sensitive": False},
        {"type": "exact_match", "ideal": "null"},
        {"type": "llm_judge", "judge_prompt": "Is it\nkind?"},
        {"type": "json_schema", "schema": {"type": "object", "const": [None, True, 1e300, -0.5, "1e3", 10**40]}},
    ]
)
turns = st.fixed_dictionaries(
    {"say": texts},
    optional={
        "barge_in": st.floats(0, 60),
        "assert": st.lists(assertions, min_size=1, max_size=3),
        "audio_url": st.just("/audio/a.wav"),
    },
)
scenarios = st.fixed_dictionaries(
    {
        "id": st.text("abc019-", min_size=1, max_size=10) | st.sampled_from(("null", "1e3", "no", "---", "export")),
        "name": texts,
        "type": st.sampled_from(("task-completion", "information-retrieval", "conversation-flow")),
        "prompt": texts,
        "expected_outcome": texts,
    },
    optional={
        "tags": st.lists(texts, max_size=3),
        "language": st.text(characters, min_size=2, max_size=10),
        "difficulty": st.sampled_from(("easy", "medium", "hard")),
        "assert": assertions,
        "turns": st.lists(turns, min_size=1, max_size=3),
        "conditions": st.sampled_from(("noise=10dB,phone", "loss=5%")),
        "prompt_audio_url": st.sampled_from(("/audio/x y.wav", "https://example.org/é?x=1#y")),
    },
)


@given(st.lists(scenarios, min_size=1, max_size=3, unique_by=lambda each: each["id"]))
@examples(200)
@example(
    [{"id": "a", "name": "\0", "type": "task-completion", "prompt": "\ufdd00041", "expected_outcome": "\u202e\u2028"}]
)
def test_stored_and_exported_scenarios_equal_the_sent_ones(given_: list[dict[str, Any]]) -> None:
    """Without a server: round trips through JSON, the stored form and YAML."""
    sent = [Scenario.model_validate(each) for each in given_]
    kept = [msgspec.json.decode(msgspec.json.encode(each.to_model_scenario()), type=model.Scenario) for each in sent]
    problems = Problems()
    located = parse_scenarios("".join(iterate_scenarios_yaml([kept])), problems)
    assert list(problems) == []
    assert [each.scenario for each in located] == sent


@given(st.lists(scenarios, min_size=1, max_size=3, unique_by=lambda each: each["id"]))
@examples(25)
def test_a_server_round_trips_scenarios(client: Client, given_: list[dict[str, Any]]) -> None:
    """Through the whole API: created one by one, exported and imported again."""
    for each in client.get("/api/scenarios").data:
        assert client.delete(f"/api/scenarios/{each['id']}").status == 200
    for each in given_:
        made = client.post("/api/scenarios", each)
        assert made.status == 201
        assert made.data.items() >= to_api_json(each).items()
    exported = client.get("/api/scenarios/export").body
    again = client.post("/api/scenarios/import?mode=update", body=exported, headers=YAML)
    assert again.status == 201
    assert {each["id"]: to_api_json(each) for each in given_}.items() == {
        each["id"]: {name: each[name] for name in each if name not in ("createdAt", "updatedAt")}
        for each in again.data["scenarios"]
    }.items()


def to_api_json(values: dict[str, Any]) -> dict[str, Any]:
    return to_api_fields(Scenario.model_validate(values).to_model_scenario())


def to_api_fields(scenario: model.Scenario) -> dict[str, Any]:
    view = msgspec.convert(scenario, ScenarioFieldsView, from_attributes=True)
    found: dict[str, Any] = json.loads(msgspec.json.encode(view))
    return found


def test_snake_case_and_camel_case_patch_the_same_field(client: Client) -> None:
    made = client.post("/api/scenarios", NEW).data
    for name in ("expected_outcome", "expectedOutcome"):
        changed = client.patch(f"/api/scenarios/{made['id']}", {name: name})
        assert changed.data == {**made, "expectedOutcome": name, "updatedAt": changed.data["updatedAt"]}
    both = client.patch(f"/api/scenarios/{made['id']}", {"expected_outcome": "a", "expectedOutcome": "b"})
    (detail,) = both.json["details"]
    assert (both.status, detail["path"]) == (400, "expectedOutcome")
    assert detail["message"] == "expected_outcome and expectedOutcome are two spellings of the same key; keep one"


@pytest.mark.parametrize(
    "text",
    ["a\0b", "\u202eright to left", "😀" * 1000, "\ufdd0", "\ufdd00041", "\u2028\x85\ufeff", "x" * 1_000_000],
    ids=lambda text: f"{len(text)} {ascii(text)[:10]}",
)
def test_hostile_text_is_stored_verbatim(client_per_store: Client, text: str) -> None:
    made = client_per_store.post("/api/scenarios", {**NEW, "prompt": text})
    assert made.data["prompt"] == text
    assert client_per_store.get("/api/scenarios").data[0]["prompt"] == text
    exported = client_per_store.get("/api/scenarios/export").body
    done = client_per_store.post("/api/scenarios/import?mode=update", body=exported, headers=YAML)
    assert done.data["scenarios"][0]["prompt"] == text


def test_the_examples_of_the_documentation_work(client: Client, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8").partition("## Scenarios")[2]
    blocks = re.findall(r"```bash\n(.*?)```", page.partition("\n## ")[0], re.DOTALL)
    assert len(blocks) == 3
    script = "\n".join(blocks).replace("http://localhost:3000", client.url).replace("curl ", "curl -sS -f ")
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(f'{{"success"{each}') for each in done.stdout.split('{"success"')[1:]]
    created, changed, deleted, restored, tagged, found, tried, imported_, valid = (each["data"] for each in answers)
    assert created["id"] == deleted["scenario"]["id"] == restored["id"] == "lost-umbrella"
    assert (changed["difficulty"], changed["language"]) == ("easy", "en-GB")
    assert tagged == found == [restored]
    assert tried["updated"] == imported_["updated"] == ["lost-umbrella"]
    assert valid["valid"] is True


# ── Permissions and concurrency ──


def test_viewers_read_and_editors_change_scenarios(secure_client: Client) -> None:
    viewer, editor = secure_client.with_token("viewer"), secure_client.with_token("editor")
    assert secure_client.get("/api/scenarios").status == 401
    assert viewer.post("/api/scenarios", NEW).status == 403
    assert import_yaml(viewer, make_document("a")).status == 403
    assert editor.post("/api/scenarios", NEW).status == 201
    assert viewer.get("/api/scenarios/ferry").status == 200
    assert viewer.get("/api/scenarios/export").status == 200
    assert viewer.post("/api/scenarios/validate", {"yaml": make_document("a")}).status == 200
    assert viewer.delete("/api/scenarios/ferry").status == 403
    assert viewer.post("/api/library/import", {}).status == 403


def test_concurrent_imports_lose_and_duplicate_nothing(client_per_store: Client) -> None:
    made: list[str] = []
    statuses: set[int] = set()
    lock = threading.Lock()

    def work(number: int) -> None:
        for turn in range(4):
            found = [
                client_per_store.post("/api/scenarios", {**NEW, "id": None, "name": "Same name"}),
                import_yaml(
                    client_per_store,
                    make_document(*(f"i{turn}-{n}" for n in range(20))),
                    mode=("skip", "update", "fail")[number % 3],
                ),
                client_per_store.delete(f"/api/scenarios/i{turn}-{number}"),
                client_per_store.post(f"/api/scenarios/i{turn}-{number}/restore"),
            ]
            with lock:
                statuses.update(each.status for each in found)
                made.append(found[0].data["id"])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert statuses <= {200, 201, 404, 409}
    assert len(set(made)) == 48
    assert set(list_ids(client_per_store)) == {*made, *(f"i{turn}-{n}" for turn in range(4) for n in range(20))}


def test_an_import_is_atomic_when_its_server_is_killed() -> None:
    count, before, outcomes = 3_000, 0, []
    pauses = [0.02 + 0.04 * turn for turn in range(19)]
    whole = make_document(*(f"s{n}" for n in range(count)))
    for pause in (*pauses, 120.0, None):
        with start_program() as running:
            total = running.client.get("/api/scenarios").json["meta"]["total"]
            outcomes.append(total - before)
            before = total
            if pause is not None:
                mine = whole.replace("id: s", f"id: r{total}-")
                sending = threading.Thread(target=_import_until_killed, args=(running.client, mine))
                sending.start()
                sending.join(pause)
                running.kill()
                sending.join()
    assert len(outcomes) == 21
    assert set(outcomes) == {0, count}  # the shortest pause imports nothing, the longest everything


def _import_until_killed(client: Client, yaml: str) -> None:
    with suppress(OSError, HTTPException):
        import_yaml(client, yaml)


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5) | st.just(10**400),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("say", "type", "assert", "schema", "ideal", "x", "bargeIn")), inner, max_size=3
        )
    ),
    max_leaves=10,
)
FIELDS = ("id", "name", "type", "prompt", "expectedOutcome", "promptAudioUrl", "tags", "language", "difficulty")
MORE = ("assert", "reference", "turns", "conditions", "expected_outcome", "createdAt", "other")


@given(st.dictionaries(st.sampled_from((*FIELDS, *MORE)), anything, max_size=4))
@examples(500)
def test_any_field_value_is_accepted_or_refused_without_a_server_error(fields: dict[str, Any]) -> None:
    with suppress(InvalidInput):
        kept = make_scenario_from_fields({**NEW, **fields})
        ScenarioShape.model_validate({**to_api_fields(kept), "createdAt": "", "updatedAt": ""})


# ── For the workbench ──


def test_validation_returns_the_parsed_scenarios_on_request(secure_client: Client) -> None:
    viewer = secure_client.with_token("viewer")
    wrong = make_document("good", "Bad_One", tags="[x]")
    found = viewer.post("/api/scenarios/validate?read=true", {"yaml": wrong}).data
    ValidatedShape.model_validate(found)
    assert (found["valid"], found["scenarios"], [each["id"] for each in found["read"]]) == (False, 1, ["good"])
    assert found["read"][0] == {
        **DEFAULTS, "id": "good", "name": "Test", "type": "task-completion", "prompt": "Hello",
        "expectedOutcome": "Response", "tags": ["x"],
    }  # fmt: skip
    assert "read" not in viewer.post("/api/scenarios/validate", {"yaml": wrong}).data


def test_facets_count_the_filter_values_of_scenarios(client_per_store: Client) -> None:
    assert client_per_store.get("/api/scenario-facets").data == {
        "type": {},
        "difficulty": {},
        "language": {},
        "tag": {},
    }
    import_yaml(client_per_store, make_document("a", "b", tags='[x, "日本 \\"語\\"", x]', language="ja"))
    import_yaml(client_per_store, make_document("c", tags="[x]", difficulty="hard"))
    found = client_per_store.get("/api/scenario-facets").data
    FacetsShape.model_validate(found)
    assert found == {
        "type": {"task-completion": 3},
        "difficulty": {"hard": 1, "medium": 2},
        "language": {"en": 1, "ja": 2},
        "tag": {"x": 3, '日本 "語"': 2},
    }


def test_a_change_with_an_outdated_ifupdatedat_is_a_conflict(client_per_store: Client) -> None:
    seen = client_per_store.post("/api/scenarios", NEW).data["updatedAt"]
    mine = {**NEW, "prompt": "Mine."}
    later = client_per_store.patch("/api/scenarios/ferry", {"prompt": "Theirs."}).data["updatedAt"]
    for refused in (
        client_per_store.put(f"/api/scenarios/ferry?ifUpdatedAt={seen}", mine),
        client_per_store.patch(f"/api/scenarios/ferry?ifUpdatedAt={seen}", {"prompt": "Mine."}),
    ):
        assert (refused.status, refused.json["code"]) == (409, "conflict")
        assert f"was changed by someone else at {later}" in refused.error
    assert client_per_store.get("/api/scenarios/ferry").data["prompt"] == "Theirs."
    assert client_per_store.put(f"/api/scenarios/ferry?ifUpdatedAt={later}", mine).data["prompt"] == "Mine."
