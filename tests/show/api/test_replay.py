"""Every route, asked by every kind of caller, answers as it did when its answers were recorded.

The recordings are in `recorded/`, one file for the first part of the paths. Each caller has a server and a copy of the
same old store of their own, and goes through all of `REQUESTS`. What is made anew each time (ids, times, ports) is
replaced by its kind. After a change that is wanted, record anew and read the difference: pytest --record PATH_OF_THIS.
"""

import hashlib
import io
import json
import math
import os
import re
import sqlite3
import wave
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pramana import clock

from ... import old_stores
from .served import Answer, Client, serve
from .test_contract import EVERY

RECORDED = Path(__file__).parent / "recorded"
CALLERS = ("none", "viewer", "editor", "admin", "revoked")
TODAY = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)
"""When the servers run: the day after the store was written, so that what was deleted last can be restored."""
SCENARIO = {
    "name": "Lost umbrella", "type": "task-completion", "prompt": "I left my umbrella on the tram.",
    "expectedOutcome": "Asks for line and time", "tags": ["domain:transport"], "difficulty": "easy",
}  # fmt: skip
YAML = """version: "1.0"
scenarios:
  - {id: %s, name: Wake-up call, type: %s, prompt: Wake me at six., expected_outcome: Confirms six}
"""
JSONL = (
    '{"id":"factual-903","category":"factual","input":"Name a tree","ideal":["oak"],'
    '"assertion":{"type":"contains_any","case_sensitive":false},"metadata":{"difficulty":"easy","tokens_est":9,"tags":[]}}'
)


def _wav() -> bytes:
    """Return a second of a sine, loud enough for a recording."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(
            b"".join(round(8000 * math.sin(n / 3)).to_bytes(2, "little", signed=True) for n in range(8000))
        )
    return made.getvalue()


BEEP = _wav()


@dataclass(frozen=True)
class ApiRequest:
    """One request.

    In its path `{text}`, `{other}`, `{voice}`, `{errored}`, `{stopped}` and `{served}` are the runs of the store, with
    `/results/{1 of text}` the first result of one; `{made}`, `{token}` and `{watch}` are the last run, token and watch of the caller.
    """

    method: str
    path: str
    value: Any = None
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()


def get(*paths: str) -> list[ApiRequest]:
    return [ApiRequest("GET", path) for path in paths]


REQUESTS = (
    *get("/openapi.json", "/api/health", "/api/me", "/api/server", "/api/tokens", "/api/settings", "/api/no-such-thing"),
    ApiRequest("HEAD", "/api/health"),
    # Runs
    *get(
        "/api/runs", "/api/runs?pageSize=2&page=2&outcomes=true", "/api/runs?status=stopped", "/api/runs?model=fake",
        "/api/runs?suite=v1.0", "/api/runs?text=made", "/api/runs?status=no", "/api/runs?page=0&pageSize=9999",
        "/api/runs/{text}", "/api/runs/{text}?summary=false", "/api/runs/{voice}", "/api/runs/{errored}",
        "/api/runs/{stopped}", "/api/runs/{served}", "/api/runs/latest", "/api/runs/nobody",
        "/api/runs/{text}@0?summary=false", "/api/runs/{text}@9", "/api/runs/{text}/scorings", "/api/runs/nobody/scorings",
        "/api/runs/{text}/labelling", "/api/runs/{voice}/labelling?count=3", "/api/runs/{voice}/labelling?count=no",
        "/api/runs/nobody/labelling", "/api/runs/{text}/labels", "/api/runs/nobody/labels",
        "/api/runs/{text}/judge-report", "/api/runs/nobody/judge-report",
        "/api/runs/{text}/rejudging", "/api/runs/{text}/rejudging?count=0", "/api/runs/nobody/rejudging",
        "/api/runs/{text}/results?pageSize=3", "/api/runs/{text}/results?outcome=failed&pageSize=2",
        "/api/runs/{text}/results?model=fake:echo&case=reasoning-001", "/api/runs/{text}/results?outcome=no",
        "/api/runs/nobody/results", "/api/runs/{text}/results/{1 of text}", "/api/runs/{text}/results/{1 of text}?outcome=passed",
        "/api/runs/{errored}/results/{1 of errored}", "/api/runs/{errored}/results/{2 of errored}", "/api/runs/{voice}/results/{1 of voice}",
        "/api/runs/{text}/results/999", "/api/runs/{text}/results/x", "/api/runs/{voice}/results/{1 of voice}/call",
        "/api/runs/{text}/results/{1 of text}/call", "/api/runs/{voice}/results/9/call",
        "/api/runs/{errored}/export", "/api/runs/{errored}/export?format=csv", "/api/runs/{errored}/export?format=junit",
        "/api/runs/{errored}/export?format=markdown", "/api/runs/{voice}/export?format=html",
        "/api/runs/{voice}/export?format=no", "/api/runs/nobody/export",
        "/api/runs/{errored}/events", "/api/runs/{errored}/events?after=1", "/api/runs/nobody/events",
        "/api/events?seconds=1.5", "/api/events?seconds=no",
    ),
    ApiRequest("GET", "/api/events?seconds=1.5", headers=(("Last-Event-ID", "3"),)),
    # Comparing
    *get(
        "/api/compare?base={text}&new={other}&model=fake:fixed=Ben&newModel=fake:fixed=16:00", "/api/compare?base={text}&new={other}",
        "/api/compare?base={text}&new={text}&model=fake:fixed=Ben&newModel=fake:echo&pageSize=2",
        "/api/compare?base={text}&new={errored}&model=fake:fixed=Ben", "/api/compare?base={errored}&new={other}&anySuite=true",
        "/api/compare?base={voice}&new={voice}", "/api/compare?base=nobody&new={text}", "/api/compare",
        "/api/compare/table?run={text}&against=fake:echo", "/api/compare/table?run={text}&run=nobody", "/api/compare/table",
        "/api/runs/{text}/baseline?baseline={other}", "/api/runs/{text}/baseline?baseline={text}",
        "/api/runs/{text}/baseline", "/api/runs/nobody/baseline?baseline={text}",
        "/api/same", "/api/same/{text}?modelA=fake:fixed=Ben&modelB=fake:echo", "/api/same/nobody",
    ),
    ApiRequest("POST", "/api/same", {"models": ["fake"], "calls": 1}),
    # Models, prices, providers, weights
    *get(
        "/api/models", "/api/models?provider=fake", "/api/models/history?model=fake", "/api/models/history",
        "/api/prices", "/api/prices?model=house:small&model=fake", "/api/providers", "/api/providers/house",
        "/api/providers/nobody", "/api/weights",
    ),
    # Suites
    *get(
        "/api/suites", "/api/suites/v1.0", "/api/suites/made-up-1", "/api/suites/v9", "/api/suites/v1.0/hash",
        "/api/suites/made-up-1/cheap", "/api/suites/made-up-1/no", "/api/suites/v1.0/cheap/hash",
        "/api/suites/v9/cheap/hash",
    ),
    ApiRequest("GET", "/api/suites/made-up-1/cheap", headers=(("Accept", "application/x-ndjson"),)),
    # Scenarios
    *get(
        "/api/scenarios", "/api/scenarios?pageSize=1&page=2", "/api/scenarios?tag=domain:hotel&tag=task:booking",
        "/api/scenarios?type=task-completion&difficulty=medium", "/api/scenarios?language=es", "/api/scenarios?text=check",
        "/api/scenarios?page=0", "/api/scenarios?type=no", "/api/scenarios/desk-late-checkout", "/api/scenarios/nobody",
        "/api/scenarios/export", "/api/scenarios/export?tag=task:booking", "/api/deleted-scenarios",
        "/api/scenario-facets", "/api/library",
    ),
    # Recordings and the community
    *get(
        "/api/audio", "/audio/nobody.wav", "/api/data/chart", "/api/data/chart?verification=unverified",
        "/api/data/watch?model=fake", "/api/data/watch",
        "/api/badge/fake", "/api/badge/nobody",
    ),
    ApiRequest("HEAD", "/audio/nobody.wav"),
    # Changes: first invalid requests, then valid ones
    ApiRequest("POST", "/api/scenarios", {}),
    ApiRequest("POST", "/api/scenarios", body=b"{"),
    ApiRequest("POST", "/api/scenarios", {**SCENARIO, "type": "no", "difficulty": 3}),
    ApiRequest("POST", "/api/scenarios", SCENARIO),
    ApiRequest("POST", "/api/scenarios", {**SCENARIO, "id": "desk-opening-hours"}),
    ApiRequest("PUT", "/api/scenarios/lost-umbrella", {**SCENARIO, "prompt": "I lost my umbrella."}),
    ApiRequest("PUT", "/api/scenarios/nobody", SCENARIO),
    ApiRequest("PATCH", "/api/scenarios/lost-umbrella", {"tags": ["a", "b"]}),
    ApiRequest("PATCH", "/api/scenarios/lost-umbrella", {"id": "other"}),
    ApiRequest("PATCH", "/api/scenarios/lost-umbrella?seen=2020-01-01T00:00:00.000Z", {"name": "Late"}),
    ApiRequest("DELETE", "/api/scenarios/lost-umbrella"),
    ApiRequest("DELETE", "/api/scenarios/lost-umbrella"),
    ApiRequest("POST", "/api/scenarios/lost-umbrella/restore"),
    ApiRequest("POST", "/api/scenarios/nobody/restore"),
    ApiRequest("POST", "/api/scenarios/desk-llegada/restore"),
    ApiRequest("POST", "/api/scenarios/validate", {"yaml": YAML % ("wake-up", "no")}),
    ApiRequest("POST", "/api/scenarios/validate?read=true", {"yaml": YAML % ("wake-up", "task-completion")}),
    ApiRequest("POST", "/api/scenarios/import", {"yaml": YAML % ("wake-up", "no")}),
    ApiRequest("POST", "/api/scenarios/import", {"yaml": YAML % ("wake-up", "task-completion"), "dryRun": True}),
    ApiRequest("POST", "/api/scenarios/import", {"yaml": YAML % ("wake-up", "task-completion")}),
    ApiRequest("POST", "/api/scenarios/import", {"yaml": YAML % ("wake-up", "task-completion"), "mode": "fail"}),
    ApiRequest(
        "POST", "/api/scenarios/import?mode=update", body=(YAML % ("wake-up", "task-completion")).encode(),
        headers=(("Content-Type", "application/yaml"),),
    ),
    ApiRequest("POST", "/api/scenarios/import", body=b"x", headers=(("Content-Type", "text/csv"),)),
    ApiRequest("POST", "/api/library/import", {"files": ["no.yaml"]}),
    ApiRequest("POST", "/api/library/import", {"files": ["information-retrieval/first-call.yaml"], "mode": "skip"}),
    ApiRequest("POST", "/api/suites", {"version": "made-up-2", "tiers": {"cheap": "{}"}}),
    ApiRequest("POST", "/api/suites", {"version": "made-up-2", "tiers": {"cheap": JSONL}}),
    ApiRequest("POST", "/api/suites", {"version": "made-up-2", "tiers": {"cheap": JSONL}}),
    ApiRequest("POST", "/api/suites", {"version": "made-up-1", "tiers": {"cheap": JSONL}}),
    ApiRequest("POST", "/api/providers", {"id": "mine", "kind": "no"}),
    ApiRequest("POST", "/api/providers", {"id": "mine", "kind": "openai", "baseUrl": "https://models.example/v1"}),
    ApiRequest("POST", "/api/providers", {"id": "mine", "kind": "openai", "baseUrl": "https://models.example/v1"}),
    ApiRequest("PATCH", "/api/providers/mine", {"arguments": {"model": "large"}}),
    ApiRequest("PATCH", "/api/providers/nobody", {"baseUrl": None}),
    ApiRequest("POST", "/api/providers/nobody/test", {}),
    ApiRequest("POST", "/api/providers/validate", {"description": "name: x"}),
    ApiRequest("POST", "/api/providers/rotate"),
    ApiRequest("DELETE", "/api/providers/mine"),
    ApiRequest("DELETE", "/api/providers/mine"),
    ApiRequest("PUT", "/api/prices/house:large", {"inputPerMillion": -1}),
    ApiRequest("PUT", "/api/prices/house:large", {"inputPerMillion": 1, "outputPerMillion": 2}),
    ApiRequest("DELETE", "/api/prices/house:large"),
    ApiRequest("DELETE", "/api/prices/house:large"),
    ApiRequest("POST", "/api/weights/nobody/pull"),
    ApiRequest("POST", "/audio", body=b"no sound"),
    ApiRequest("POST", "/audio", body=BEEP),
    ApiRequest("PUT", "/audio/beep.wav", body=b"no sound"),
    ApiRequest("PUT", "/audio/beep.wav", body=BEEP),
    ApiRequest("PUT", "/audio/beep.wav", body=BEEP + b"\0\0"),
    ApiRequest("PUT", "/audio/beep.wav?replace=true", body=BEEP),
    ApiRequest("GET", "/api/audio"),
    ApiRequest("HEAD", "/audio/beep.wav"),
    ApiRequest("GET", "/audio/beep.wav", headers=(("Range", "bytes=0-3"),)),
    ApiRequest("GET", "/audio/beep.wav", headers=(("Range", "bytes=999999-"),)),
    ApiRequest("DELETE", "/audio/beep.wav"),
    ApiRequest("DELETE", "/audio/beep.wav"),
    ApiRequest("POST", "/api/submit", {"model_id": "fake", "prompt_id": "factual-901", "output": "red"}),
    ApiRequest("POST", "/api/submit", {"model_id": "fake"}),
    ApiRequest("POST", "/api/submit/batch", {"results": [{"model_id": "m", "prompt_id": "p", "output": "o"}]}),
    ApiRequest("POST", "/api/submit/batch", {"results": []}),
    ApiRequest("POST", "/api/runs", {}),
    ApiRequest("POST", "/api/runs", {"models": ["no:such"], "tier": "no", "repeats": 0, "limits": {"maxCost": -1}}),
    ApiRequest("POST", "/api/runs", {"models": ["fake"], "tier": "cheap", "dryRun": True}),
    ApiRequest("POST", "/api/runs", {"models": ["python:os:getcwd"], "tier": "cheap"}),
    ApiRequest("POST", "/api/runs", {"models": ["fake"], "scenarios": {"ids": []}}),
    ApiRequest("POST", "/api/runs", {"models": ["fake", "fake:echo"], "scenarios": "all", "repeats": 2, "judge": "fake"}),
    ApiRequest(
        "POST", "/api/runs",
        {
            "models": ["fake-voice"], "scenarios": {"tag": ["domain:hotel"], "difficulty": "easy"},
            "modality": ["voice", "noisy"], "condition": "phone", "systemPrompt": "Be brief", "temperature": None,
            "maxTokens": 5, "parameters": {"top_k": 3}, "limits": {"maxCost": 1, "concurrency": 2},
        },
    ),
    ApiRequest("POST", "/api/runs/{made}/cancel"),
    ApiRequest("POST", "/api/runs/{made}/resume", {"limits": {"maxTotalTokens": 1000}}),
    ApiRequest("PATCH", "/api/runs/{made}", {"name": "nightly", "note": "The new prompt"}),
    ApiRequest("PATCH", "/api/runs/{made}", {"name": 3}),
    ApiRequest("PATCH", "/api/runs/nobody", {"name": "nightly"}),
    ApiRequest("GET", "/api/runs/{made}"),
    ApiRequest("DELETE", "/api/runs/{made}"),
    ApiRequest("POST", "/api/runs/latest/cancel"),
    ApiRequest("POST", "/api/runs/nobody/cancel"),
    ApiRequest("POST", "/api/runs/{text}/cancel"),
    ApiRequest("POST", "/api/runs/{text}/resume"),
    ApiRequest("POST", "/api/runs/{stopped}/resume", {"limits": {"maxTotalTokens": 1000}}),
    ApiRequest("POST", "/api/runs/{text}/scorings/0/use"),
    ApiRequest("POST", "/api/runs/{text}/labels", {"task": "1.llm_judge", "label": "maybe"}),
    ApiRequest("POST", "/api/runs/{text}/labels", {"task": "no task", "label": "yes"}),
    ApiRequest("POST", "/api/runs/{text}/labels", {"task": "999.llm_judge", "label": "yes"}),
    ApiRequest("POST", "/api/runs/{text}/rejudging", {"count": 2}),
    ApiRequest("POST", "/api/runs/{text}/rejudging", {"count": 0}),
    ApiRequest("POST", "/api/runs/{text}/rejudging/stop"),
    ApiRequest("POST", "/api/runs/{text}/scorings/9/use"),
    ApiRequest("DELETE", "/api/runs/{other}"),
    ApiRequest("DELETE", "/api/runs/nobody"),
    ApiRequest("POST", "/api/plan", {}),
    ApiRequest("POST", "/api/plan", {"detect": "20%"}),
    # Watches
    *get("/api/watches", "/api/watches?active=no", "/api/watches/nobody", "/api/watches/nobody/alerts"),
    ApiRequest("POST", "/api/watches", {}),
    ApiRequest("POST", "/api/watches", {"run": {"models": ["fake"], "tier": "cheap"}, "at": "25:00", "budgetUsdPerDay": -1}),
    ApiRequest(
        "POST", "/api/watches",
        {
            "run": {"models": ["fake:echo"], "tier": "cheap"}, "name": "nightly", "at": "23:59", "budgetUsdPerDay": 2,
            "instruments": ["pass-rate"], "webhook": {"url": "https://hooks.example/secret-path", "secret": "key"},
        },
    ),
    *get("/api/watches?active=true", "/api/watches/{watch}", "/api/watches/{watch}/alerts",
         "/api/watches/{watch}/report", "/api/watches/{watch}/report?examples=no"),
    ApiRequest("POST", "/api/watches/{watch}/check"),
    ApiRequest("POST", "/api/watches/{watch}/confirm"),
    ApiRequest("POST", "/api/watches/{watch}/accept", {"note": "a new prompt"}),
    ApiRequest("POST", "/api/watches/{watch}/accept", {"note": 3}),
    ApiRequest("PUT", "/api/watches/{watch}/webhook", {"url": "no url"}),
    ApiRequest("PUT", "/api/watches/{watch}/webhook", {"url": "https://other.example/"}),
    ApiRequest("DELETE", "/api/watches/{watch}/webhook"),
    ApiRequest("POST", "/api/watches/{watch}/test-alert"),
    *get("/api/public/watches/{watch}", "/api/public/watches/{watch}/badge"),
    ApiRequest("PUT", "/api/watches/{watch}/public", {"public": "perhaps"}),
    ApiRequest("PUT", "/api/watches/{watch}/public", {"public": True}),
    *get("/api/public/watches/{watch}", "/api/public/watches/{watch}/badge"),
    ApiRequest("POST", "/api/watches/{watch}/stop"),
    ApiRequest("POST", "/api/watches/nobody/stop"),
    ApiRequest("POST", "/api/tokens", {"name": "", "role": "king"}),
    ApiRequest("POST", "/api/tokens", {"name": "night watch", "role": "viewer"}),
    ApiRequest("DELETE", "/api/tokens/{token}"),
    ApiRequest("DELETE", "/api/tokens/nobody"),
    ApiRequest("GET", "/api/tokens"),
    ApiRequest("PATCH", "/api/settings", {}),
    ApiRequest("PATCH", "/api/settings", {"requestsPerMinute": 0}),
    ApiRequest("PATCH", "/api/settings", {"anonymousSubmission": True, "requestsPerMinute": 10_000}),
    ApiRequest("GET", "/api/settings"),
    ApiRequest("POST", "/api/health"),
)  # fmt: skip
"""In this order, for each caller."""


class FixedDayClock(clock.Clock):
    """The machine's time, but on the day of the recordings."""

    def __init__(self) -> None:
        self._began = self.monotonic()

    def now(self) -> datetime:
        return TODAY + timedelta(seconds=self.monotonic() - self._began)


@pytest.mark.parametrize("caller", CALLERS)
def test_every_route_answers_each_caller_as_recorded(caller: str, request: pytest.FixtureRequest) -> None:
    url = old_stores.unpack(old_stores.NOVEMBER, Path(os.environ["PRAMANA_HOME"]))  # noqa: TID251 - set by the tests
    names = _read_names(url)
    with clock.use_clock(FixedDayClock()), serve(url, server_account_needs_token=True, api_only=True) as server:
        client = _make_caller(server, caller)
        found = [_send(client, each, names) for each in REQUESTS]
    if request.config.getoption("--record"):
        _record(caller, found)
        return
    for (wanted, answer), (was_asked, was) in zip(found, _read_recorded(caller), strict=True):
        assert wanted == was_asked, "REQUESTS changed: record anew"
        assert answer == was, wanted


def test_every_route_is_recorded() -> None:
    asked = [(each.method, each.path.partition("?")[0]) for each in REQUESTS]
    for method, path in EVERY:
        pattern = re.compile(re.sub(r"\{\w+(:path)?\}", lambda found: ".+" if found[1] else "[^/]+", path))
        assert any(verb == method and pattern.fullmatch(each) for verb, each in asked), f"{method} {path}"


def _read_names(url: str) -> dict[str, str]:
    """Return the values of the placeholders in paths."""
    found = {"made": "nothing-made", "token": "nothing-made", "watch": "nothing-made"}
    names = ("text", "other", "voice", "errored", "stopped", "served")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as store:
        for name, (number, run_id) in zip(names, store.execute("SELECT run_no, id FROM runs ORDER BY id"), strict=True):
            found[name] = run_id
            numbers = store.execute("SELECT seq FROM results WHERE run_no = ? ORDER BY seq", [number])
            found |= {f"{place} of {name}": str(seq) for place, (seq,) in enumerate(numbers, start=1)}
    return found


def _make_caller(server: Client, caller: str) -> Client:
    assert server.store
    if caller == "none":
        return server
    made, secret = server.store.tokens.create(caller, "admin" if caller == "revoked" else caller)
    if caller == "revoked":
        server.store.tokens.create("another", "viewer")  # otherwise the error would say that no token is valid
        server.store.tokens.revoke(made.id)
    return Client(server.url, secret)


def _send(client: Client, wanted: ApiRequest, names: dict[str, str]) -> tuple[Any, Any]:
    path = re.sub(r"\{([\w ]+)\}", lambda found: names[found[1]], wanted.path)
    answer = client.call(wanted.method, path, wanted.value, body=wanted.body, headers=dict(wanted.headers))
    if (wanted.method, wanted.path) == ("POST", "/api/runs") and answer.status == 202:
        names["made"] = answer.data["id"]
    if (wanted.method, wanted.path) == ("POST", "/api/tokens") and answer.status == 201:
        names["token"] = answer.data["id"]
    if (wanted.method, wanted.path) == ("POST", "/api/watches") and answer.status == 201:
        names["watch"] = answer.data["id"]
    sent = wanted.value if wanted.body is None else _text(wanted.body)
    asked = {"method": wanted.method, "path": wanted.path, "headers": dict(wanted.headers), "body": sent}
    return asked, _normalise({"status": answer.status, "headers": _headers(answer), "body": _body(answer)}, client)


def _headers(answer: Answer) -> dict[str, str]:
    """Return the headers, except those that depend on time or length."""
    left_out = {"date", "content-length", "x-ratelimit-remaining", "x-ratelimit-reset", "last-modified"}
    if answer.headers.get("accept-ranges"):
        left_out.add("etag")  # of a file, by its time
    return {name: value for name, value in sorted(answer.headers.items()) if name not in left_out}


def _body(answer: Answer) -> Any:
    if answer.headers.get("content-type") == "application/json" and answer.body:
        return answer.json
    return _text(answer.body)


def _text(data: bytes) -> str:
    """Return bytes as text, or as their digest if they are not text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"sha256:{hashlib.sha256(data).hexdigest()}"


_MADE = (
    (re.compile(r"pramana_[\w-]+"), "<token>"),
    (re.compile(r"\bt[0-9a-f]{8}\b"), "<token id>"),
    (re.compile(r"\bw20261118-\d{6}-[0-9a-f]+"), "<watch>"),
    (re.compile(r"\bb[0-9a-f]{16}\b"), "<batch>"),
    (re.compile(r"\bs\d{8}-[0-9a-f]{32}\b"), "<submission>"),
    (re.compile(r"\br20261118-\d{6}-[0-9a-f]+"), "<run>"),
    (re.compile(r"\b(?:2026-11-(?:18|19)|2027-02-(?:16|17))T[0-9:.]+(?:Z|\+00:00)"), "<time>"),
)


_OF_THE_MACHINE = ("uptimeSeconds", "present", "changedAt")


def _normalise(value: Any, client: Client) -> Any:
    """Return an answer with generated values (ids, times, ports) replaced by their kind."""
    if isinstance(value, dict):
        return {
            _normalise(name, client): _type_name(each) if name in _OF_THE_MACHINE else _normalise(each, client)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_normalise(each, client) for each in value]
    if isinstance(value, str):
        value = value.replace(client.url.removeprefix("http://"), "<address>")
        for pattern, kind in _MADE:
            value = pattern.sub(kind, value)
    return value


def _type_name(value: Any) -> Any:
    return value if isinstance(value, dict) else type(value).__name__  # a schema has such names too


# ── The recordings: answers by caller, those that are the same together ──


def _read_recorded(caller: str) -> Iterator[tuple[Any, Any]]:
    parts = {path.stem: iter(json.loads(path.read_text(encoding="utf-8"))) for path in RECORDED.glob("*.json")}
    for wanted in REQUESTS:
        entry = next(parts[_file_stem(wanted.path)])
        (answer,) = (each["answer"] for each in entry["answers"] if caller in each["callers"])
        yield entry["request"], answer


def _record(caller: str, answers: list[tuple[Any, Any]]) -> None:
    parts: dict[str, list[Any]] = {}
    for (asked, answer), wanted in zip(answers, REQUESTS, strict=True):
        entries = parts.setdefault(_file_stem(wanted.path), [])
        entries.append({"request": asked, "answers": [{"callers": [caller], "answer": answer}]})
    for name, entries in parts.items():
        path = RECORDED / f"{name}.json"
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() and caller != CALLERS[0] else None
        for index, entry in enumerate(entries):
            if before:
                _merge_answer(before[index], caller, entry["answers"][0]["answer"])
        path.write_text(json.dumps(before or entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _merge_answer(entry: Any, caller: str, answer: Any) -> None:
    for each in entry["answers"]:
        if each["answer"] == answer:
            each["callers"].append(caller)
            return
    entry["answers"].append({"callers": [caller], "answer": answer})


def _file_stem(path: str) -> str:
    return re.split(r"[/?.]", path.removeprefix("/").removeprefix("api/"))[0]
