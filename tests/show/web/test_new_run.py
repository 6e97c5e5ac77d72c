"""A new run: configured on the page, estimated before it starts, refused with a reason, and started."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, Locator, Page, expect

from pramana.request import Limits, RunRequest
from pramana.show.api.runs import DEFAULTS_BY_PATH
from pramana.show.cli.run import run as command
from pramana.show.web.pages.new_run import NUMBER_FIELD_LABELS

from .closed import serve_with_tokens
from .conftest import EACH_VIEW, Bench, assert_no_sideways_scroll

UNPRICED = "http://127.0.0.1:9/v1#mine"
HOSTILE = "<img src=x onerror=\"document.title='taken over'\"> مرحبا 你好"
STARTED = re.compile(r"/runs/r[0-9a-f-]+$")


def find_tile(page: Page, name: str) -> Locator:
    return page.locator("aside .tiles > div").filter(has=page.locator("dt", has_text=re.compile(f"^{name}$")))


def find_start(page: Page) -> Locator:
    return page.get_by_role("button", name="Start")


def find_models(page: Page) -> Locator:
    return page.get_by_role("list", name="Added so far: model")


def add_model(page: Page, model: str) -> None:
    page.get_by_label("Add a model").fill(model)
    page.keyboard.press("Enter")


def choose_option(page: Page, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option).click()
    page.keyboard.press("Escape")


def start_run(bench: Bench, page: Page) -> Any:
    """Press Start; return the started run."""
    expect(find_start(page)).to_be_enabled()
    find_start(page).click()
    page.wait_for_url(STARTED)
    return bench.client.get(f"/api/runs/{urlsplit(page.url).path.rpartition('/')[2]}").data


def import_library(bench: Bench) -> int:
    bench.client.post("/api/library/import", {})
    total: int = bench.client.get("/api/scenarios?pageSize=1").json["meta"]["total"]
    return total


def test_a_run_is_estimated_before_it_can_be_started(bench: Bench) -> None:
    for each in bench.client.get("/api/scenarios?pageSize=500").data:
        bench.client.delete(f"/api/scenarios/{each['id']}")
    before = bench.client.get("/api/runs").json["meta"]["total"]
    page = bench.open("/runs/new", expects_errors=True)  # its target is tested with that page
    expect(page.get_by_role("link", name="import the library")).to_have_attribute("href", "/scenarios/import")
    expect(page.get_by_text("Add a model.")).to_be_visible()
    expect(find_start(page)).to_be_disabled()
    add_model(page, "fake:echo")
    expect(page.get_by_label("Add a model")).to_have_value("")
    expect(find_tile(page, "Calls")).to_contain_text("12")  # ten of the model, two of itself as the judge
    expect(find_tile(page, "Calls")).to_contain_text("10 cases, 10 results")
    expect(find_tile(page, "Cost")).to_contain_text("$0.00")
    expect(find_tile(page, "Tokens in")).to_contain_text(re.compile(r"\d,\d{3}"))
    page.get_by_label("Repeats per case").fill("3")
    expect(find_tile(page, "Calls")).to_contain_text("36")
    add_model(page, "fake:seed=2")
    expect(find_tile(page, "Calls")).to_contain_text("72")
    page.get_by_text("Breakdown").click()
    expect(page.locator("aside li")).to_have_count(4)
    expect(page.locator("aside li").last).to_contain_text("fake:seed=2: as the judge, 6 calls")
    page.get_by_role("button", name="Remove fake:seed=2").click()
    expect(find_tile(page, "Calls")).to_contain_text("36")
    assert bench.client.get("/api/runs").json["meta"]["total"] == before
    run = start_run(bench, page)
    assert (run["suite"], run["models"], run["repeats"], run["creator"]) == ("v1.0-cheap", ["fake:echo"], 3, "local")


def test_start_is_disabled_while_an_estimate_loads(bench: Bench) -> None:
    page = bench.open("/runs/new?model=fake")
    expect(find_start(page)).to_be_enabled()
    page.evaluate(
        """() => {
          window.seen = [];
          const aside = document.querySelector("aside"), button = aside.querySelector("button");
          const look = () => {
            const shown = aside.querySelector(".tiles dd")?.firstChild.textContent;
            if (shown && !button.disabled) window.seen.push([document.querySelector("[aria-label='Repeats per case']").value, shown]);
          };
          new MutationObserver(look).observe(aside, {subtree: true, childList: true, attributes: true});
        }"""
    )
    repeats = page.get_by_label("Repeats per case")
    repeats.evaluate(
        """field => ["2", "3", "4"].forEach(number => {  // at once, however slow the machine is
          field.value = number;
          field.dispatchEvent(new Event("input", {bubbles: true}));
        })"""
    )
    expect(find_tile(page, "Calls")).to_contain_text("48")
    expect(find_start(page)).to_be_enabled()
    repeats.fill("5")
    expect(find_start(page)).to_be_disabled()
    expect(find_tile(page, "Calls")).to_contain_text("60")
    seen = {tuple(each) for each in page.evaluate("window.seen")}
    assert seen <= {("4", "48"), ("5", "60")}, seen
    assert seen


def test_an_unknown_price_is_shown_with_advice(bench: Bench) -> None:
    page = bench.open("/runs/new?suite=v1.0&tier=cheap&model=gpt-5")
    expect(find_tile(page, "Cost")).to_contain_text(re.compile(r"\$0\.0\d+"))
    add_model(page, UNPRICED)
    expect(find_tile(page, "Cost")).to_contain_text("at least $")
    warned = page.locator("aside .warn")
    expect(warned).to_contain_text(f"No price is known for {UNPRICED}")
    expect(warned).to_contain_text("The run can start, but its cost stays unknown")
    expect(warned.get_by_role("link", name="Set a price")).to_have_attribute("href", "/settings/prices")
    page.get_by_text("Limits", exact=True).click()
    page.get_by_label("Cost limit (USD)").fill("2")
    expect(warned).to_contain_text("needs a price for every model")
    page.get_by_role("button", name="Remove gpt-5").click()
    expect(find_tile(page, "Cost")).to_contain_text("unknown")
    page.get_by_role("button", name=f"Remove {UNPRICED}").click()
    expect(warned).to_have_count(0)
    expect(find_start(page)).to_be_disabled()
    add_model(page, "fake-voice")
    expect(find_tile(page, "Tokens in")).to_contain_text("unknown")
    expect(page.get_by_text("Token counts of voice conversations are not known in advance.")).to_be_visible()


def test_cases_without_a_judge_and_missing_keys_are_shown_before_the_start(bench: Bench) -> None:
    page = bench.open("/runs/new?suite=v1.0&tier=cheap&model=local")
    warned = page.locator("aside .warn")
    expect(warned).to_have_text("2 cases will have no verdict: name a judge.")
    expect(find_tile(page, "Calls")).to_contain_text("10")
    expect(find_start(page)).to_be_enabled()
    page = bench.open("/runs/new?suite=v1.0&tier=cheap&model=local&judge=gpt-5")
    warned = page.locator("aside .warn")
    expect(warned).to_contain_text(
        "no API key is set for openai on this machine: set the key in Settings › Providers or OPENAI_API_KEY."
    )
    expect(warned).not_to_contain_text("verdict")
    expect(warned.get_by_role("link", name="Providers")).to_have_attribute("href", "/settings/providers")
    expect(find_tile(page, "Calls")).to_contain_text("12")
    expect(find_start(page)).to_be_enabled()


def test_a_model_that_judges_itself_is_named_before_the_start(bench: Bench) -> None:
    page = bench.open("/runs/new?suite=v1.0&tier=cheap&model=fake:echo")
    expect(page.get_by_text("fake:echo judges its own replies; you can name another judge under More.")).to_be_visible()
    page = bench.open("/runs/new?suite=v1.0&tier=cheap&model=fake:echo&judge=fake:fixed%3DYES")
    expect(find_tile(page, "Calls")).to_contain_text("12")
    expect(page.get_by_text("judges its own replies")).to_have_count(0)


def test_an_invalid_field_shows_its_own_error(bench: Bench) -> None:
    page = bench.open("/runs/new?model=fake")
    expect(find_start(page)).to_be_enabled()
    add_model(page, "my-thing")
    expect(page.get_by_role("alert")).to_contain_text('Unknown model "my-thing"')
    expect(find_start(page)).to_be_disabled()
    page.get_by_role("button", name="Remove my-thing").click()
    expect(page.get_by_label("Add a model")).to_be_focused()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_text("More: judge, embedding, speech-to-text, parameters").click()
    page.get_by_label("Temperature").fill("200")
    field = page.locator(".q-field", has=page.get_by_label("Temperature"))
    expect(field.get_by_role("alert")).to_have_text(
        re.compile("^Temperature: enter a number from 0 to 100 or leave the field empty")
    )
    expect(find_start(page)).to_be_disabled()
    page.get_by_label("Temperature").fill("")
    expect(field.get_by_role("alert")).to_have_count(0)
    expect(find_start(page)).to_be_enabled()
    page.get_by_label("Judge model", exact=True).fill("local")
    expect(page.locator("aside").get_by_role("alert")).to_contain_text("cannot judge")
    page = bench.open("/runs/new?model=fake&concurrency=99999")  # and the folded section opens
    expect(page.get_by_label("Concurrency per provider")).to_be_visible()
    expect(page.get_by_text("expected a whole number from 1 to 10,000, found 99999").first).to_be_visible()


def test_selected_scenarios_are_counted(bench: Bench) -> None:
    total = import_library(bench)
    page = bench.open("/runs/new?model=fake&judge=fake", expects_errors=True)
    expect(page.get_by_label("Difficulty")).to_be_hidden()
    page.get_by_role("checkbox", name=f"Scenarios of this server ({total})").click()
    expect(page.get_by_text(f"All {total} scenarios are selected")).to_be_visible()
    expect(find_tile(page, "Calls")).to_contain_text(f"{total + 10} cases")
    page.get_by_role("button", name="Clear").first.click()  # the suite
    expect(find_tile(page, "Calls")).to_contain_text(f"{total} cases")
    choose_option(page, "Type", "conversation-flow")
    choose_option(page, "Difficulty", "easy")
    wanted = "type=conversation-flow&difficulty=easy"
    some = bench.client.get(f"/api/scenarios?{wanted}&pageSize=1").json["meta"]["total"]
    assert 1 < some < total
    expect(page.get_by_text(f"{some} of {total} scenarios match.")).to_be_visible()
    expect(find_tile(page, "Calls")).to_contain_text(f"{some} cases")
    page.get_by_label("Contains text").fill("nobody says this")
    expect(page.get_by_text(f"0 of {total} scenarios match.")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("No scenario matches these filters", ignore_case=True)
    expect(find_start(page)).to_be_disabled()
    page.get_by_label("Contains text").fill("")
    run = start_run(bench, page)
    assert run["selection"] == {"type": ["conversation-flow"], "difficulty": ["easy"]}
    assert (run["suite"], run["expected"], run["judge"]) == ("scenarios (selection)", some, "fake")


def test_the_form_and_the_address_stay_in_sync(bench: Bench) -> None:
    import_library(bench)
    first, second = (each["id"] for each in bench.client.get("/api/scenarios?pageSize=2").data)
    page = bench.open(
        f"/runs/new?scenario={first}&scenario={second}&model=fake&model=fake:echo&modality=text&temperature=none",
        expects_errors=True,
    )
    expect(page.get_by_text(f"2 of {import_library(bench)} scenarios match.")).to_be_visible()
    expect(page.get_by_role("button", name=f"Remove {first}")).to_be_visible()
    expect(find_tile(page, "Calls")).to_contain_text("2 cases, 4 results")
    expect(page.get_by_label("Temperature")).to_have_value("")  # opened because it has a value
    page.get_by_role("button", name=f"Remove {second}").click()
    expect(find_tile(page, "Calls")).to_contain_text("1 case, 2 results")
    page.get_by_label("Repeats per case").fill("2")
    choose_option(page, "Suite", "v1.0")
    expect(find_tile(page, "Calls")).to_contain_text("11 cases, 44 results")
    said = parse_qs(urlsplit(page.url).query)
    assert said == {
        "scenario": [first], "model": ["fake", "fake:echo"], "modality": ["text"], "temperature": ["none"],
        "repeats": ["2"], "suite": ["v1.0"], "tier": ["cheap"],
    }  # fmt: skip
    page.reload()
    expect(find_tile(page, "Calls")).to_contain_text("11 cases, 44 results")
    run = start_run(bench, page)
    assert (run["suite"], run["repeats"], run["variants"]) == ("v1.0-cheap+scenarios (selection)", 2, ["text"])
    assert (run["selection"], run["plan"]["parameters"]["temperature"]) == ({"ids": [first]}, None)


def test_every_field_of_the_form_is_sent(bench: Bench) -> None:
    page = bench.open("/runs/new?tier=moderate", expects_errors=True)
    for folded in ("More: judge, embedding, speech-to-text, parameters", "Limits"):
        page.get_by_text(folded, exact=True).click()
    add_model(page, "fake-voice:fixed=Yes.")
    for label, value in (
        ("Audio condition", "phone"), ("Judge model", "fake:fixed=YES"), ("Embedding model", "local"), ("Seed", "7"),
        ("Max output tokens", "50"), ("System prompt", "Be brief."), ("Cost limit (USD)", "1.5"),
        ("Token limit", "100000"), ("Concurrency per provider", "2"), ("Time limit (seconds)", "1"),
        ("Name", "nightly"), ("Note", "The new prompt"),
    ):  # fmt: skip
        page.get_by_label(label, exact=True).fill(value)
    choose_option(page, "Modality", "noisy: speech with background noise")
    run = start_run(bench, page)
    assert (run["suite"], run["variants"], run["judge"]) == (
        "v1.0-moderate",
        ["voice+noise=10dB,phone"],
        "fake:fixed=YES",
    )
    assert (run["name"], run["note"]) == ("nightly", "The new prompt")
    assert run["plan"]["systemPrompt"] == "Be brief."
    assert run["plan"]["parameters"] == {"temperature": 0, "seed": 7, "max_tokens": 50}
    kept = {name: value for name, value in run["limits"].items() if name != "timeoutSeconds"}
    assert kept == {"maxCost": 1.5, "maxTotalTokens": 100_000, "concurrency": 2, "deadlineSeconds": 1}


def test_a_run_of_the_command_line_can_be_repeated_with_its_limits(bench: Bench) -> None:
    typed = ["--max-cost", "2.5", "--max-total-tokens", "90000", "--deadline", "600", "--concurrency", "3"]
    made = subprocess.run(
        [sys.executable, "-m", "pramana", "run", "--model", "fake", "--judge", "fake:fixed=YES", "--json", *typed],
        env={"PRAMANA_HOME": str(bench.home), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    of_command = json.loads(made.stdout)["run"]
    limits = {"maxCost": 2.5, "maxTotalTokens": 90_000, "deadlineSeconds": 600, "concurrency": 3}
    of_server = bench.run(models=["fake"], judge="fake:fixed=YES", limits=limits)
    kept = [bench.client.get(f"/api/runs/{each}?summary=false").data["limits"] for each in (of_command, of_server)]
    assert kept[0] == kept[1] == {**limits, "timeoutSeconds": 120}
    page = bench.open(f"/runs/{of_command}", expects_errors=True)
    page.get_by_role("link", name="Run again").click()
    for label, value in (
        ("Cost limit (USD)", "2.5"), ("Token limit", "90000"), ("Concurrency per provider", "3"),
        ("Time limit (seconds)", "600"),
    ):  # fmt: skip
        expect(page.get_by_label(label, exact=True)).to_have_value(value)
    assert start_run(bench, page)["limits"] == kept[0]


def test_defaults_are_equal_for_page_api_command_line_and_engine(bench: Bench) -> None:
    page = bench.open("/runs/new")
    fields = {path: page.get_by_label(label, exact=True).input_value() for path, label in NUMBER_FIELD_LABELS.items()}
    assert fields == {
        path: "" if DEFAULTS_BY_PATH[path] is None else f"{DEFAULTS_BY_PATH[path]:g}" for path in NUMBER_FIELD_LABELS
    }
    assert DEFAULTS_BY_PATH["limits.concurrency"] == Limits().concurrency
    assert DEFAULTS_BY_PATH["limits.timeoutSeconds"] == Limits().timeout_s
    assert {name: DEFAULTS_BY_PATH[name] for name in ("temperature", "seed")} == RunRequest(
        models=("fake",)
    ).make_sent_parameters()
    options = {each.name: each.default for each in command.params}
    typed = {"temperature": "temperature", "seed": "seed", "limits.concurrency": "concurrency", "repeats": "repeats",
             "limits.timeoutSeconds": "timeout_s"}  # fmt: skip
    assert {path: options[name] for path, name in typed.items()} == {path: DEFAULTS_BY_PATH[path] for path in typed}


def test_models_of_providers_are_listed_and_errors_shown(bench: Bench) -> None:
    bench.client.post("/api/providers", {"id": "my-fake", "kind": "fake"})
    bench.client.post(
        "/api/providers", {"id": "my-bot", "kind": "pipecat", "arguments": {"model": "wss://bot.example"}}
    )
    bench.client.post("/api/providers", {"id": "gone", "kind": "compatible", "baseUrl": "http://127.0.0.1:9/v1"})
    page = bench.open("/runs/new")
    page.get_by_text("Could not list the models of 1 provider").click()
    expect(page.locator("#main details").get_by_text("gone: cannot reach the server")).to_be_visible()
    listed = page.locator(f"#{page.get_by_label('Add a model').get_attribute('list')} option")
    names = listed.evaluate_all("all => all.map(each => each.value)")
    assert names[0] == "local"
    assert {"my-bot", "fake", "local-voice"} <= set(names)
    for each in ("my-fake", "my-bot", "gone"):
        bench.client.delete(f"/api/providers/{each}")


def test_scripts_in_names_are_escaped(bench: Bench) -> None:
    page = bench.open("/runs/new")
    add_model(page, HOSTILE)
    expect(page.get_by_role("alert")).to_contain_text("<img src=x onerror=")
    expect(find_models(page)).to_contain_text(HOSTILE)
    expect(page.get_by_role("button", name=f"Remove {HOSTILE}")).to_be_visible()
    page.reload()  # from the address too
    expect(find_models(page)).to_contain_text(HOSTILE)
    assert page.locator("#main img").count() == 0
    assert "taken over" not in page.title()


def test_a_viewer_sees_the_required_role_instead_of_the_form(browser: Browser, tmp_path: Any) -> None:
    with serve_with_tokens(tmp_path, browser) as door:
        page = door.bench.open("/runs/new?model=fake", token=door.tokens["viewer"])
        expect(page.get_by_role("alert")).to_have_text("This page needs the role editor, and yours is viewer")
        expect(find_start(page)).to_have_count(0)
        assert urlsplit(page.url).path == "/runs/new"
        assert door.client("viewer").get("/api/runs").data == []
        door.bench.close()
        assert not door.bench.troubles


def test_a_run_can_be_started_by_keyboard_alone(bench: Bench) -> None:
    page = bench.open("/runs/new", expects_errors=True)
    page.get_by_label("Add a model").focus()
    page.keyboard.type("fake")
    page.keyboard.press("Tab")  # leaving the field adds it, too
    expect(find_models(page)).to_contain_text("fake")
    expect(find_start(page)).to_be_enabled()
    for _ in range(30):
        page.keyboard.press("Tab")
        if find_start(page).evaluate("made => made === document.activeElement"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url(STARTED)


@EACH_VIEW
def test_the_new_run_page_is_accessible(bench: Bench, axe: Callable[[Page], None], width: int, theme: str) -> None:
    import_library(bench)
    page = bench.open(
        f"/runs/new?suite=v1.0&tag=domain:food&difficulty=easy&model=fake:fixed={'x' * 200}&model=gpt-5"
        f"&model={UNPRICED.replace('#', '%23')}&modality=text&temperature=200&concurrency=4",
        width=width,
        theme=theme,  # type: ignore[arg-type]
    )
    expect(page.get_by_text("Temperature: enter a number from 0 to 100").first).to_be_visible()
    assert_no_sideways_scroll(page)
    axe(page)
    page.get_by_label("Temperature").fill("0")
    expect(page.locator("aside .warn")).to_contain_text("No price is known")
    expect(find_start(page)).to_have_css("opacity", "1")
    assert_no_sideways_scroll(page)
    axe(page)
