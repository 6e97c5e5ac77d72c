"""`/api/prices`: what is known of each model, what is set for it, and that runs are counted by it."""

import time
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from pramana import settings
from pramana.app.prices import PriceView
from pramana.show.api.envelope import make_shape
from pramana.show.cli import pramana

from ...loopback.openai import OpenAIWire
from ...loopback.server import Loopback
from .served import Client, serve
from .test_providers import running

GPT = {"inputPerMillion": 1.5, "outputPerMillion": 12.0}


def at(model: str) -> str:
    return f"/api/prices/{quote(model, safe='')}"


def finished(client: Client, **wanted: object) -> dict[str, object]:
    run = client.post("/api/runs", {"tier": "cheap", "judge": "fake", **wanted}).data["id"]
    give_up = time.monotonic() + 60
    while (now := client.get(f"/api/runs/{run}").data)["status"] in ("queued", "running"):
        assert time.monotonic() < give_up, now
        time.sleep(0.05)
    found: dict[str, object] = now
    return found


def costs(client: Client, run: dict[str, object]) -> set[float | None]:
    return {each["costUsd"] for each in client.get(f"/api/runs/{run['id']}/results").data}


def test_what_a_model_costs_is_told_with_who_says_so(client: Client) -> None:
    found = client.get(
        "/api/prices?model=gpt-5&model=local&model=openai:nobody-knows-it&model=gemini-2.5-pro&model=xyz"
    )
    for each in found.data:
        make_shape(PriceView).model_validate(each)
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


def test_a_price_that_is_set_goes_before_all_others_until_it_is_taken_back(either: Client) -> None:
    settings.prices_file_path().parent.mkdir(parents=True, exist_ok=True)
    settings.prices_file_path().write_text(
        '[prices."gpt-5"]\ninput_per_million = 7\noutput_per_million = 8\n', encoding="utf-8"
    )
    (filed,) = either.get("/api/prices?model=gpt-5").data
    assert (filed["origin"], filed["name"], filed["steps"][0]["inputPerMillion"]) == ("file", "gpt-5", 7)
    made = either.put(at("openai:gpt-5"), GPT)
    make_shape(PriceView).model_validate(made.data)
    (found,) = either.get("/api/prices?model=gpt-5").data
    assert (found["origin"], found["name"]) == ("set", "openai:gpt-5")
    assert found["steps"][0] == {"above": 0, **GPT, "cachedPerMillion": 1.5, "perRequest": 0.0}
    assert found["updatedAt"]
    changed = either.put(at("openai:gpt-5"), {**GPT, "cachedPerMillion": 0}).data
    assert changed["steps"][0]["cachedPerMillion"] == 0
    assert [each["model"] for each in either.get("/api/prices").data] == ["openai:gpt-5"]
    then = either.delete(at("openai:gpt-5"))
    assert (then.data["model"], then.data["origin"]) == ("openai:gpt-5", "published")  # the file names it otherwise
    gone = either.delete(at("openai:gpt-5"))
    assert (gone.status, gone.json["code"]) == (404, "not_found")
    assert either.get("/api/prices").data == []


@pytest.mark.parametrize(
    "model", ["http://models.example:8000/v1#llama 3/instruct?", "openai:ünï🌍", "python:mine:function", "command:mine"]
)
def test_names_of_models_are_kept_as_they_are_typed(either: Client, model: str) -> None:
    made = either.put(at(model), GPT)
    assert (made.status, made.data["model"]) == (200, model), made.body
    (listed,) = either.get("/api/prices").data
    assert (listed["model"], listed["origin"]) == (model, "set")
    assert either.delete(at(model)).status == 200


@pytest.mark.parametrize(
    ("model", "body", "path", "said"),
    [
        ("gpt5", GPT, "model", 'did you mean "gpt-5'),
        ("opnai:gpt-5", GPT, "model", 'did you mean "openai"'),
        ("x" * 2_001, GPT, "model", "1 to 2,000 printable characters"),
        ("openai:\n", GPT, "model", "lacks a model"),
        ("local", GPT, "model", "local runs in this process and costs nothing"),
        ("fake:echo", GPT, "model", "fake runs in this process and costs nothing"),
        ("fake-voice", GPT, "model", "fake-voice runs in this process and costs nothing"),
        ("gpt-5", {"inputPerMillion": 1}, "outputPerMillion", "required"),
        ("gpt-5", {**GPT, "inputPerMillion": -1}, "inputPerMillion", "greater than or equal to 0"),
        ("gpt-5", {**GPT, "inputPerMillion": 1e10}, "inputPerMillion", "less than or equal to"),
        ("gpt-5", {**GPT, "cached": 1}, "cached", "not permitted"),
        ("gpt-5", [], "body", ""),
    ],
)
def test_what_is_no_price_is_refused_at_its_field(
    client: Client, model: str, body: object, path: str, said: str
) -> None:
    found = client.put(at(model), body)
    assert (found.status, found.json["code"], found.json["details"][0]["path"]) == (400, "invalid_input", path)
    assert said in found.error
    assert client.get("/api/prices").data == []


def test_only_an_administrator_sets_prices_and_everybody_sees_them(guarded: Client) -> None:
    admin, editor, viewer = map(guarded.with_token, ("admin", "editor", "viewer"))
    for who in (viewer, editor):
        assert who.put(at("gpt-5"), GPT).status == who.delete(at("gpt-5")).status == 403
    assert admin.put(at("gpt-5"), GPT).status == 200
    assert viewer.get("/api/prices").data[0]["origin"] == "set"


def test_runs_are_counted_by_what_is_set_when_they_begin(client: Client) -> None:
    with running(lambda: Loopback(OpenAIWire())) as openai:
        model = f"{openai.url}#loopback-small"
        body = {"tier": "cheap", "models": [model], "judge": "fake", "dryRun": True}
        before = finished(client, models=[model])
        assert before["status"] == "finished"
        assert costs(client, before) == {None}  # which is not the same as nothing
        assert client.post("/api/runs", body).data["unknownPrices"] == [model]
        refused = finished(client, models=[model], limits={"maxCost": 1})
        assert (refused["status"], "an administrator can set one" in str(refused["reason"])) == ("stopped", True)
        assert client.put(at(model), {"inputPerMillion": 1_000_000, "outputPerMillion": 0}).status == 200
        assert client.post("/api/runs", body).data["unknownPrices"] == []
        after = finished(client, models=[model], limits={"maxCost": 1_000_000})
    assert after["status"] == "finished"
    # A dollar a token, and the loopback counts as many tokens of input as it says.
    assert all(each is not None and each >= 1 for each in costs(client, after))
    assert costs(client, before) == {None}  # what was counted stays
    listed = {each["model"]: each for each in client.get("/api/prices").data}
    assert (listed[model]["origin"], listed["fake"]["origin"]) == ("set", "free")
    assert "and set prices " in str(after["notes"])


def test_the_command_line_counts_by_what_is_set_in_its_store(
    client: Client, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRAMANA_DATABASE_URL", sqlite_url)
    with running(lambda: Loopback(OpenAIWire())) as openai:
        model = f"{openai.url}#loopback-small"
        typed = ["run", "--tier", "cheap", "--model", model, "--judge", "fake", "--max-cost", "1000000", "--quiet"]
        assert "a cost limit needs a price" in str(CliRunner().invoke(pramana, typed).exception)
        assert client.put(at(model), GPT).status == 200
        CliRunner().invoke(pramana, typed)
    (run,) = client.get("/api/runs").data
    assert (run["status"], run["models"]) == ("finished", [model])
    assert None not in costs(client, run)


def test_servers_of_one_store_agree_at_once(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(postgres_url) as one, serve(postgres_url) as other:
        monkeypatch.setenv("PRAMANA_HOME", str(tmp_path / "elsewhere"))
        one.put(at("gpt-5"), GPT)
        assert other.get("/api/prices?model=gpt-5").data[0]["steps"][0]["inputPerMillion"] == 1.5


def test_a_file_that_cannot_be_read_is_told_without_where_it_is(client: Client) -> None:
    settings.prices_file_path().parent.mkdir(parents=True, exist_ok=True)
    settings.prices_file_path().write_text("[prices.", encoding="utf-8")
    found = client.get("/api/prices?model=gpt-5")
    assert found.data[0]["origin"] == "published"
    problem = found.json["meta"]["file"]["problem"]
    assert problem.startswith("prices.toml: is not valid TOML")
    assert str(settings.data_folder()) not in problem
