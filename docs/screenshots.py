"""Take the pictures of docs/workbench.md: its flows, walked in Chromium, in both widths and both themes.

    python -m docs.screenshots            # or: make screenshots

Each view gets its own server with an empty store; the embedded models really answer. The provider is a loopback server
that speaks OpenAI's wire format, with made-up replies that get worse. The days of the watch are those of a function,
measured on a virtual clock. A picture that README.md or a page of docs/ shows
goes to docs/pictures/NAME-WIDTH-THEME.png, every other one to docs/pictures/all/, which Git ignores.
"""

import asyncio
import json
import random
import re
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.served import run_server
from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright
from tests import chromium
from tests.stores import sqlite_store
from tests.watched_models import add_watch

from pramana.store import open_store

Theme = Literal["light", "dark"]
WIDTHS = (1600, 360)
ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
UNUSED = PICTURES / "all"
"""For pictures that no page shows: they are not kept in the repository."""
TALLEST, COLOURS = 1600, 64
MISTAKEN = """scenarios:
  - id: lost-umbrella
    name: "Lost umbrella"
    type: conversation-flow
    prompt: "Hi, I think I left a green umbrella on the number nine tram."
    expected_outcome: "Asks for the time of the ride"
    dificulty: easy
"""
KEY = "sk-loopback-0123456789"
VARYING_ANSWERS = {
    "Pick a number from 1 to 9": ("7", "4", "3"),
    "Heads or tails?": ("Heads", "Tails"),
    "Name a colour": ("Blue", "Green", "Red"),
    "Name an animal": ("Dog", "Elephant", "Cat"),
    "Cat or dog?": ("Dog", "Cat"),
    "Name a fruit": ("Apple", "Mango", "Banana"),
    "Tea or coffee?": ("Tea", "Coffee"),
}
"""Answers to border prompts by the beginning of the prompt; the two hosts of a model prefer different ones."""
expect.set_options(timeout=20_000)


def pictures_shown() -> set[str]:
    """Return the file names of the pictures that README.md and the pages of docs/ show."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    return {name for page in pages for name in re.findall(r"pictures/([\w-]+\.png)", page.read_text(encoding="utf-8"))}


def picture_path(name: str) -> Path:
    """Return where a picture is saved: in the repository if a page shows it."""
    return (PICTURES if name in pictures_shown() else UNUSED) / name


class Walk:
    """One view of everything."""

    def __init__(self, page: Page, url: str, width: int, theme: Theme) -> None:
        self.page, self.url, self._view = page, url, f"{width}-{theme}"

    def go(self, path: str) -> Page:
        self.page.goto(self.url + path)
        self.page.locator("#main").wait_for()
        return self.page

    def picture(self, name: str, tallest: int = TALLEST) -> None:
        self.page.mouse.move(0, 0)
        self.page.wait_for_timeout(500)  # what fades in is there
        high = min(tallest, self.page.evaluate("document.documentElement.scrollHeight"))
        width = self.page.viewport_size["width"] if self.page.viewport_size else WIDTHS[0]
        taken = self.page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": high})
        # Few colours tell all: a quarter of the size, for a repository that everyone clones.
        with Image.open(BytesIO(taken)) as image:
            few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            few.save(picture_path(f"{name}-{self._view}.png"), optimize=True)


def first_run(walk: Walk) -> None:
    """Begin with an empty store, ask the embedded model, look at a result."""
    page = walk.go("/")
    walk.picture("home-empty")
    page.get_by_role("button", name="Ask the embedded model").click()
    page.wait_for_url(re.compile(r"/runs/r[\w-]+$"), timeout=60_000)
    expect(page.get_by_role("table", name="Results").locator("tbody tr").nth(2)).to_be_visible(timeout=120_000)
    walk.picture("run-live")
    expect(page.get_by_text("finished").first).to_be_visible(timeout=240_000)
    page.reload()
    page.locator("#main .pager").wait_for()
    walk.picture("run")
    page.get_by_role("table", name="Results").locator("tbody tr a").first.click()
    page.wait_for_url(re.compile(r"/results/\d+"))
    walk.picture("result")


def call(walk: Walk) -> None:
    """Hear a call, and go to the agent's turn."""
    page = walk.go("/")
    page.get_by_role("button", name="Hear a call").click()
    page.wait_for_url(re.compile(r"/runs/r[\w-]+/results/\d+$"), timeout=180_000)
    page.locator(".playhead").wait_for()
    page.locator("#call-told button").last.click()
    expect(page.locator("audio")).to_have_js_property("paused", value=False)
    page.wait_for_timeout(1_000)
    walk.picture("call")


def scenarios(walk: Walk) -> None:
    """Import with a mistake, see its line, mend it; look at the library and the editor."""
    page = walk.go("/scenarios/import")
    page.locator(".cm-editor[data-ready]").first.wait_for()
    page.locator(".cm-content").first.click()
    page.evaluate("text => navigator.clipboard.writeText(text)", MISTAKEN)
    page.keyboard.press("ControlOrMeta+V")
    expect(page.locator(".wrong-line")).to_have_count(1)
    walk.picture("import-mistake")
    page.locator(".cm-line", has_text="dificulty").click()
    page.keyboard.press("End")
    page.keyboard.press("Shift+Home")
    page.keyboard.type("difficulty: easy")
    expect(page.locator(".wrong-line")).to_have_count(0)
    walk.picture("import-preview")
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_text("lost-umbrella").first).to_be_visible()
    ask(walk, "/api/library/import", {"mode": "skip"})
    walk.go("/scenarios")
    walk.picture("scenarios")
    walk.go("/scenarios?language=ar")
    walk.picture("scenarios-arabic")
    walk.go("/scenarios/lost-umbrella")
    page.locator(".cm-editor[data-ready]").wait_for()
    walk.picture("editor")


def compare(walk: Walk, assistant: "Assistant") -> None:
    """Ask one model the same three times, which gets worse before the third, and compare; then all that lists runs."""
    registered = {"id": "assistant", "kind": "compatible", "baseUrl": assistant.url, "apiKey": KEY}
    ask(walk, "/api/providers", registered)
    runs = []
    for share in (0.92, 0.92, 0.68):
        assistant.share = share
        body = {"suite": "v1.0", "tier": "comprehensive", "models": ["assistant:loopback-large"]}
        runs.append(ask(walk, "/api/runs", body)["id"])
        page = walk.go(f"/runs/{runs[-1]}")
        expect(page.get_by_text("finished").first).to_be_visible(timeout=120_000)
    runs.append(ask(walk, "/api/runs", {"suite": "v1.0", "tier": "cheap", "models": ["local"]})["id"])
    page = walk.go(f"/runs/{runs[-1]}")
    expect(page.get_by_text("finished").first).to_be_visible(timeout=240_000)
    walk.go(f"/compare?base={runs[1]}&new={runs[2]}")
    expect(page.locator("details").first).to_be_visible()
    walk.picture("compare")
    walk.go("/runs")
    walk.picture("runs")
    walk.go("/runs/new?suite=v1.0&tier=cheap&model=gpt-5&model=local")
    expect(page.get_by_role("button", name="Start")).to_be_enabled(timeout=60_000)
    walk.picture("new-run")
    walk.go("/")
    walk.picture("home")
    walk.go("/suites")
    walk.picture("suites")


def watch(walk: Walk) -> None:
    """Look at a watch whose model has changed, and at the list of watches."""
    page = walk.go("/drift/support-bot")
    expect(page.get_by_role("heading", name="What changed")).to_be_visible()
    walk.picture("watch")
    walk.go("/drift")
    walk.picture("drift")


def same(walk: Walk, hosts: Sequence["Assistant"]) -> None:
    """Test whether two hosts serve the same model, of which one answers differently."""
    names = [f"host-{letter}" for letter, _ in zip("ab", hosts, strict=True)]
    for name, host in zip(names, hosts, strict=True):
        ask(walk, "/api/providers", {"id": name, "kind": "compatible", "baseUrl": host.url, "apiKey": KEY})
    models = [f"{name}:loopback-large" for name in names]
    run = ask(walk, "/api/same", {"models": models, "suite": "v1.0", "tier": "comprehensive"})["run"]
    page = walk.go(f"/same/{run}")
    expect(page.get_by_role("region", name="The answer")).to_contain_text("Different", timeout=120_000)
    expect(page.get_by_role("link", name="Test again")).to_be_visible()
    walk.picture("same", tallest=1190)  # one prompt with both replies


def provider(walk: Walk, openai_url: str) -> None:
    """Add a provider, test it, and test it with a wrong key."""
    page = walk.go("/settings/new-provider?kind=compatible")
    page.get_by_label("Id", exact=True).fill("my-vllm")
    page.get_by_label("Address").fill(openai_url)
    page.get_by_label("Key (optional)").fill(KEY)
    walk.picture("provider-form")
    page.get_by_role("button", name="Add").click()
    page.get_by_role("button", name="Test my-vllm").click()
    expect(page.get_by_role("status").filter(has_text="healthy")).to_be_visible()
    walk.picture("provider-healthy")
    page.get_by_role("link", name="Change my-vllm").click()
    page.get_by_label("New key (optional)").fill("sk-wrong-key-0123456789")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Test my-vllm").click()
    expect(page.get_by_role("status").filter(has_text="rejected the API key")).to_be_visible()
    walk.picture("provider-refused")
    walk.go("/settings")
    walk.picture("settings")


def sign_in(walk: Walk) -> None:
    """Come as somebody else than the server's own account, by a proxy: they sign in."""
    walk.page.set_extra_http_headers({"X-Forwarded-For": "203.0.113.7"})
    walk.go("/runs")
    walk.picture("sign-in")


def ask(walk: Walk, path: str, body: Any) -> Any:
    """Ask the API."""
    answer = walk.page.request.post(walk.url + path, data=body)
    if not answer.ok:
        sys.exit(f"{path}: {answer.text()}")
    return answer.json()["data"]


# ── Servers ──


class Assistant:
    """What stands behind the loopback server: it knows the right answers of the suite, and gives a share of them."""

    def __init__(self, first_answer_share: float) -> None:
        def read(path: Path) -> list[dict[str, Any]]:
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

        answers = {each["id"]: each for each in read(ROOT / "tests" / "suites" / "answers.jsonl")}
        cases = read(ROOT / "src" / "pramana" / "suites" / "v1.0" / "comprehensive.jsonl")
        self._known = {_last(case["input"]): (case["id"], answers.get(case["id"])) for case in cases}
        self.share, self.url = 1.0, ""
        self._first_answer_share, self._random = first_answer_share, random.Random(7)

    def __call__(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Answer a case; whatever else is asked comes from a judge."""
        for beginning, (first, *others) in VARYING_ANSWERS.items():
            if _last(messages).startswith(beginning):
                return first if self._random.random() < self._first_answer_share else self._random.choice(others)
        name, answer = self._known.get(_last(messages), ("", None))
        if not name:
            return "The answer does what was asked.\nYES"
        knows = zlib.crc32(name.encode()) % 1000 < 1000 * self.share
        return str(answer["right" if knows else "wrong"][0]) if answer else "I think so."


def _last(messages: Any) -> str:
    return messages if isinstance(messages, str) else str(messages[-1]["content"])


@contextmanager
def loopback(first_answer_share: float = 0.85) -> Iterator[Assistant]:
    """Speak OpenAI's wire format on a free port, and know one key."""
    from tests.loopback.openai import OpenAIWire
    from tests.loopback.server import Loopback

    assistant = Assistant(first_answer_share)
    loop, told = asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def work() -> None:
        async with Loopback(OpenAIWire(assistant, key=KEY), latency_s=0.05, pace_s=0.02) as server:
            assistant.url = server.url
            told.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()), daemon=True)
    thread.start()
    told.wait(30)
    try:
        yield assistant
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


@contextmanager
def run_watching_server() -> Iterator[str]:
    """Yield the URL of a server whose store has a watch with an alarm and one that has just begun."""
    with tempfile.TemporaryDirectory(prefix="pramana-pictures-") as home:
        with closing(open_store(sqlite_store(Path(home) / "pramana.sqlite3"))) as store:
            add_watch(store, 40, changes_after=32, missing=[18], cases=12)
            add_watch(store, 5, name="faq-bot", cases=3)
        with run_server(PRAMANA_HOME=home) as url:
            yield url


def main() -> None:
    """Walk everything, four times."""
    UNUSED.mkdir(parents=True, exist_ok=True)
    browser_path = chromium.find_executable()
    with sync_playwright() as playwright, loopback() as assistant, loopback(0.15) as other:
        browser = playwright.chromium.launch(
            executable_path=browser_path,
            args=["--no-sandbox", "--disable-gpu", "--autoplay-policy=no-user-gesture-required"],
        )
        for width in WIDTHS:
            for theme in get_args(Theme):
                context = browser.new_context(
                    viewport={"width": width, "height": 900},
                    color_scheme=theme,
                    permissions=["clipboard-read", "clipboard-write"],
                )
                with run_server() as url:
                    first_run(Walk(context.new_page(), url, width, theme))
                with run_server() as url:
                    walk = Walk(context.new_page(), url, width, theme)
                    call(walk)
                    scenarios(walk)
                    compare(walk, assistant)
                    provider(walk, assistant.url)
                    sign_in(walk)
                with run_watching_server() as url:
                    walk = Walk(context.new_page(), url, width, theme)
                    watch(walk)
                    same(walk, (assistant, other))
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
