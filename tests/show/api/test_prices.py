"""`/api/prices`: the known and the set price of each model, and their use in runs."""

import time
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from pramana import settings
from pramana.app.prices import PriceView
from pramana.show.api.envelope import make_documentation_model
from pramana.show.cli import pramana

from ...loopback.openai import OpenAIWire
from ...loopback.server import Loopback
from .served import Client, serve
from .test_providers import run_in_thread

GPT = {"inputPerMillion": 1.5, "outputPerMillion": 12.0}


def price_path(model: str) -> str:
    return f"/api/prices/{quote(model, safe='')}"


def run_to_end(client: Client, **wanted: object) -> dict[str, object]:
    run = client.post("/api/runs", {"tier": "cheap", "judge": "fake", **wanted}).data["id"]
    give_up = time.monotonic() + 60
    while (now := client.get(f"/api/runs/{run}").data)["status"] in ("queued", "running"):
        assert time.monotonic() < give_up, now
        time.sleep(0.05)
    found: dict[str, object] = now
    return found


def read_costs(client: Client, run: dict[str, object]) -> set[float | None]:
    return {each["costUsd"] for each in client.get(f"/api/runs/{run['id']}/results").data}


def test_a_price_is_returned_with_its_source(client: Client) -> None:
    found = client.get(
        "/api/prices?model=gpt-5&model=local&model=openai:nobody-knows-it&model=gemini-2.5-pro&model=xyz"
    )
    for each in found.data:
        make_documentation_model(PriceView).model_validate(each)
    gpt, local, unknown, steps, nothing = found.data
    assert (gpt["model"], gpt["origin"], gpt["name"], gpt["problem"]) == ("gpt-5", "published", None, None)
    assert gpt["steps"] == [
        {"above": 0, "inputPerMillion": 1.25, "outputPerMillion": 10.0, "cachedPerMillion": 0.125, "perRequest": 0.0}
    ]
    assert (local["origin"], local["steps"][0]["inputPerMillion"]) == ("free", 0)
    assert (unknown["origin"], unknown["steps"]) == (None, [])  # which is never 0
    assert [each["above"] for each in steps["steps"]] == [0, 200_000]
    assert "unknown model" in nothing["problem"]
    assert found.json["meta"]["published"].startswith("genai-prices ")
    assert found.json["meta"]["file"] == {"exists": False, "problem": None}


def test_a_set_price_overrides_all_others_until_it_is_removed(client_per_store: Client) -> None:
    settings.prices_file_path().parent.mkdir(parents=True, exist_ok=True)
    settings.prices_file_path().write_text(
        '[prices."gpt-5"]\ninput_per_million = 7\noutput_per_million = 8\n', encoding="utf-8"
    )
    (filed,) = client_per_store.get("/api/prices?model=gpt-5").data
    assert (filed["origin"], filed["name"], filed["steps"][0]["inputPerMillion"]) == ("file", "gpt-5", 7)
    made = client_per_store.put(price_path("openai:gpt-5"), GPT)
    make_documentation_model(PriceView).model_validate(made.data)
    (found,) = client_per_store.get("/api/prices?model=gpt-5").data
    assert (found["origin"], found["name"]) == ("set", "openai:gpt-5")
    assert found["steps"][0] == {"above": 0, **GPT, "cachedPerMillion": 1.5, "perRequest": 0.0}
    assert found["updatedAt"]
    changed = client_per_store.put(price_path("openai:gpt-5"), {**GPT, "cachedPerMillion": 0}).data
    assert changed["steps"][0]["cachedPerMillion"] == 0
    assert [each["model"] for each in client_per_store.get("/api/prices").data] == ["openai:gpt-5"]
    then = client_per_store.delete(price_path("openai:gpt-5"))
    assert (then.data["model"], then.data["origin"]) == ("openai:gpt-5", "published")  # the file uses another name
    gone = client_per_store.delete(price_path("openai:gpt-5"))
    assert (gone.status, gone.json["code"]) == (404, "not_found")
    assert client_per_store.get("/api/prices").data == []


@pytest.mark.parametrize(
    "model", ["http://models.example:8000/v1#llama 3/instruct?", "openai:ünï🌍", "python:mine:function", "command:mine"]
)
def test_model_names_are_stored_as_typed(client_per_store: Client, model: str) -> None:
    made = client_per_store.put(price_path(model), GPT)
    assert (made.status, made.data["model"]) == (200, model), made.body
    (listed,) = client_per_store.get("/api/prices").data
    assert (listed["model"], listed["origin"]) == (model, "set")
    assert client_per_store.delete(price_path(model)).status == 200


@pytest.mark.parametrize(
    ("model", "body", "path", "message"),
    [
        ("gpt5", GPT, "model", 'did you mean "gpt-5'),
        ("opnai:gpt-5", GPT, "model", 'did you mean "openai"'),
        ("x" * 2_001, GPT, "model", "1 to 2,000 printable characters"),
        ("openai:\n", GPT, "model", "lacks a model"),
        ("local", GPT, "model", "local runs on this machine and costs nothing, so no price can be set for it"),
        ("fake:echo", GPT, "model", "fake runs on this machine and costs nothing, so no price can be set for it"),
        (
            "fake-voice",
            GPT,
            "model",
            "fake-voice runs on this machine and costs nothing, so no price can be set for it",
        ),
        ("gpt-5", {"inputPerMillion": 1}, "outputPerMillion", "required"),
        ("gpt-5", {**GPT, "inputPerMillion": -1}, "inputPerMillion", "greater than or equal to 0"),
        ("gpt-5", {**GPT, "inputPerMillion": 1e10}, "inputPerMillion", "less than or equal to"),
        ("gpt-5", {**GPT, "cached": 1}, "cached", "not permitted"),
        ("gpt-5", [], "body", ""),
    ],
)
def test_an_invalid_price_is_refused_with_its_field(
    client: Client, model: str, body: object, path: str, message: str
) -> None:
    found = client.put(price_path(model), body)
    assert (found.status, found.json["code"], found.json["details"][0]["path"]) == (400, "invalid_input", path)
    assert message in found.error
    assert client.get("/api/prices").data == []


def test_only_administrators_set_prices_and_all_roles_read_them(secure_client: Client) -> None:
    admin, editor, viewer = map(secure_client.with_token, ("admin", "editor", "viewer"))
    for who in (viewer, editor):
        assert who.put(price_path("gpt-5"), GPT).status == who.delete(price_path("gpt-5")).status == 403
    assert admin.put(price_path("gpt-5"), GPT).status == 200
    assert viewer.get("/api/prices").data[0]["origin"] == "set"


def test_a_run_uses_the_prices_set_at_its_start(client: Client) -> None:
    with run_in_thread(lambda: Loopback(OpenAIWire())) as openai:
        model = f"{openai.url}#loopback-small"
        body = {"tier": "cheap", "models": [model], "judge": "fake", "dryRun": True}
        before = run_to_end(client, models=[model])
        assert before["status"] == "finished"
        assert read_costs(client, before) == {None}  # which is not the same as nothing
        assert client.post("/api/runs", body).data["unknownPrices"] == [model]
        refused = run_to_end(client, models=[model], limits={"maxCost": 1})
        assert (refused["status"], "an administrator can set the price" in str(refused["reason"])) == ("stopped", True)
        assert client.put(price_path(model), {"inputPerMillion": 1_000_000, "outputPerMillion": 0}).status == 200
        assert client.post("/api/runs", body).data["unknownPrices"] == []
        after = run_to_end(client, models=[model], limits={"maxCost": 1_000_000})
    assert after["status"] == "finished"
    # A dollar a token, and the loopback counts as many tokens of input as it says.
    assert all(each is not None and each >= 1 for each in read_costs(client, after))
    assert read_costs(client, before) == {None}  # costs already counted stay
    listed = {each["model"]: each for each in client.get("/api/prices").data}
    assert (listed[model]["origin"], listed["fake"]["origin"]) == ("set", "free")
    assert "and set prices " in str(after["notes"])


def test_the_command_line_uses_the_prices_of_its_store(
    client: Client, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRAMANA_DATABASE_URL", sqlite_url)
    with run_in_thread(lambda: Loopback(OpenAIWire())) as openai:
        model = f"{openai.url}#loopback-small"
        typed = ["run", "--tier", "cheap", "--model", model, "--judge", "fake", "--max-cost", "1000000", "--quiet"]
        assert "a cost limit needs a price" in str(CliRunner().invoke(pramana, typed).exception)
        assert client.put(price_path(model), GPT).status == 200
        CliRunner().invoke(pramana, typed)
    (run,) = client.get("/api/runs").data
    assert (run["status"], run["models"]) == ("finished", [model])
    assert None not in read_costs(client, run)


def test_all_servers_of_a_store_see_a_price_change_at_once(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(postgres_url) as one, serve(postgres_url) as other:
        monkeypatch.setenv("PRAMANA_HOME", str(tmp_path / "elsewhere"))
        one.put(price_path("gpt-5"), GPT)
        assert other.get("/api/prices?model=gpt-5").data[0]["steps"][0]["inputPerMillion"] == 1.5


def test_an_unreadable_price_file_is_reported_without_its_path(client: Client) -> None:
    settings.prices_file_path().parent.mkdir(parents=True, exist_ok=True)
    settings.prices_file_path().write_text("[prices.", encoding="utf-8")
    found = client.get("/api/prices?model=gpt-5")
    assert found.data[0]["origin"] == "published"
    problem = found.json["meta"]["file"]["problem"]
    assert problem.startswith("prices.toml: is not valid TOML")
    assert str(settings.data_folder()) not in problem
