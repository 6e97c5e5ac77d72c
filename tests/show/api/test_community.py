"""Submission, chart and badge, as a client sees them."""

import json
import random
import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator

from pramana import clock
from pramana.app import App, community_watches
from pramana.show.api import make_app_without_gate
from pramana.show.api.community import draw_model_badge
from pramana.show.api.documentation import make_openapi_description
from pramana.store.store import Store
from pramana.store.submissions import Batch, PassCounts, Submission

from .served import Client

CHEAP = "sha256:53bea70c70163a87314783ffc32f333d75de5f8f8de827d29c4bf57486792e01"
"""The hash of the built-in v1.0 cheap: published, so it never changes."""
SUITE = f"sha256:{'a' * 64}"
NOW = datetime.now(UTC)


def make_result(prompt: str = "reasoning-001", output: str = "Ben", **given: Any) -> dict[str, Any]:
    return {"model_id": "gpt-5", "prompt_id": prompt, "output": output, "suite_hash": CHEAP, **given}


def make_case(number: int) -> dict[str, Any]:
    return {
        "id": f"factual-{number:03}",
        "category": "factual",
        "input": "Which?",
        "ideal": ["this"],
        "assertion": {"type": "contains_any", "case_sensitive": False},
        "metadata": {"difficulty": "easy", "tokens_est": 3, "tags": []},
    }


def upload_suite(client: Client, version: str = "mine-1", cases: int = 3) -> str:
    text = "".join(json.dumps(make_case(number)) + "\n" for number in range(cases))
    said = client.post("/api/suites", {"version": version, "tiers": {"cheap": text}})
    found: str = said.data["tiers"]["cheap"]["hash"]
    return found


# ── One result ──


def test_a_submitted_result_gets_an_id_a_time_and_a_status(client_per_store: Client) -> None:
    first = client_per_store.post("/api/submit", make_result(score=1.0))
    assert (first.status, first.json["status"]) == (200, "accepted")
    assert first.data.keys() == {"id", "status", "verification", "time", "batch"}
    assert datetime.fromisoformat(first.data["time"]) >= NOW - timedelta(seconds=5)
    again = client_per_store.post("/api/submit", make_result(score=1.0))
    assert (again.status, again.json["status"], again.data["id"]) == (200, "duplicate", first.data["id"])


@pytest.mark.parametrize(
    ("given", "verification"),
    [
        ({}, "verified"),
        ({"suite_hash": "sha256:" + "0" * 64}, "unverified"),
        ({"suite_hash": None}, "unverified"),
        ({"suite_hash": "\0"}, "unverified"),
        ({"suite_version": "v9.9-other"}, "verified"),
        ({"suite_hash": "sha256:" + "0" * 64, "suite_version": "v1.0-cheap"}, "unverified"),
    ],
)
def test_a_suite_is_known_by_its_hash_not_by_its_version(
    client_per_store: Client, given: dict[str, Any], verification: str
) -> None:
    assert client_per_store.post("/api/submit", make_result(**given)).data["verification"] == verification


def test_a_prompt_outside_the_known_suite_is_refused(client: Client) -> None:
    said = client.post("/api/submit", make_result("reasoning-01"))
    assert said.status == 400
    assert said.error == f'the suite {CHEAP} has no prompt "reasoning-01"; did you mean "reasoning-001"?'
    assert client.get("/api/data/chart").data == []


def test_an_uploaded_suite_is_known(client_per_store: Client) -> None:
    suite_hash = upload_suite(client_per_store)
    given = {"model_id": "m", "prompt_id": "factual-002", "output": "this", "suite_hash": suite_hash}
    assert client_per_store.post("/api/submit", given).data["verification"] == "verified"
    assert client_per_store.post("/api/submit", {**given, "prompt_id": "factual-003"}).status == 400


def test_an_administrator_can_refuse_results_of_unknown_suites(client: Client) -> None:
    client.patch("/api/settings", {"refuseUnverified": True})
    other = make_result(suite_hash="sha256:" + "0" * 64)
    assert "this server accepts only results of known suites" in client.post("/api/submit", other).error
    assert "without a suite_hash" in client.post("/api/submit", make_result(suite_hash=None)).error
    batch = client.post("/api/submit/batch", {"results": [other, make_result()]})
    assert [each["status"] for each in batch.data["results"]] == ["refused", "accepted"]
    assert client.post("/api/submit/batch", {"results": [other]}).status == 400
    assert client.get("/api/data/chart?verification=unverified").data == []


def test_snake_case_and_camel_case_can_be_mixed_in_one_request(client: Client) -> None:
    mixed = {"modelId": "gpt-5", "prompt_id": "reasoning-001", "output": "Ben", "suiteHash": CHEAP, "latencyMs": 3}
    assert client.post("/api/submit", mixed).data["verification"] == "verified"
    assert client.post("/api/submit", make_result()).json["status"] == "duplicate"
    batch = {"suiteHash": CHEAP, "results": [{"modelId": "gpt-5", "promptId": "reasoning-001", "output": "Ben"}]}
    assert client.post("/api/submit/batch", batch).json["status"] == "duplicate"
    assert client.post("/api/submit", {**mixed, "suite_hash": CHEAP}).error == "suite_hash: suite_hash appears twice"


def test_any_text_is_stored_verbatim(client_per_store: Client) -> None:
    strange = make_result("p\0\ud800", "\0 half \ud83d \ufdd0", suite_hash="\ud800", model_id="\ufdd0\0")
    assert client_per_store.post("/api/submit", strange).json["status"] == "accepted"
    assert client_per_store.post("/api/submit", strange).json["status"] == "duplicate"
    (point,) = client_per_store.get("/api/data/chart?verification=unverified").data
    assert point["model"] == "\ufdd0\0"


@pytest.mark.parametrize(
    ("given", "path", "message"),
    [
        ({"model_id": ""}, "model_id", "length >= 1"),
        ({"model_id": "m" * 257}, "model_id", "length <= 256"),
        ({"prompt_id": "p" * 257}, "prompt_id", "length <= 256"),
        ({"output": None}, "output", "Expected str, got null"),
        ({"output": "x" * ((1 << 20) + 1)}, "output", "length <= 1048576"),
        ({"output": "é" * (1 << 19) + "x"}, "output", "1,048,577 bytes"),
        ({"score": 1.01}, "score", "<= 1.0"),
        ({"score": -0.01}, "score", ">= 0.0"),
        ({"score": "1"}, "score", "got str"),
        ({"seed": 2**63}, "seed", ""),
        ({"metadata": [1]}, "metadata", "object"),
        ({"metadata": {"a": "x" * 17_000}}, "metadata", "at most 16,384"),
        ({"timestamp": "yesterday"}, "timestamp", "RFC3339"),
        ({"timestamp": (NOW + timedelta(days=2)).isoformat()}, "timestamp", "in the future"),
        ({"timestamp": "0001-01-01T00:00:00+14:00"}, "timestamp", "out of range"),
        ({"ouput": "x"}, "body", 'there is no field "ouput"; did you mean "output"?'),
    ],
)
def test_an_invalid_field_is_reported_with_its_path(
    client: Client, given: dict[str, Any], path: str, message: str
) -> None:
    said = client.post("/api/submit", make_result(**given))
    assert (said.status, said.json["code"]) == (400, "invalid_input")
    assert said.json["details"][0]["path"] == path
    assert message in said.json["details"][0]["message"]
    assert client.get("/api/data/chart").data == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"a":1}', b"[" * 100_000, b'{"score":1e999}'])
def test_a_body_that_is_not_a_result_is_refused(client: Client, body: bytes) -> None:
    for route in ("/api/submit", "/api/submit/batch"):
        said = client.post(route, body=body)
        assert (said.status, bool(said.error)) == (400, True)


def test_values_at_the_limits_are_accepted(client: Client) -> None:
    widest = make_result("p" * 256, "é" * (1 << 19), model_id="m" * 256, score=0, suite_hash=None, seed=2**63 - 1)
    assert client.post("/api/submit", widest).json["status"] == "accepted"
    assert (
        client.post("/api/submit", make_result(score=None, metadata=None, timestamp=None)).json["status"] == "accepted"
    )


# ── Batches ──


def test_a_batch_returns_the_status_of_each_result(client_per_store: Client) -> None:
    client_per_store.post("/api/submit", make_result("reasoning-001"))
    said = client_per_store.post(
        "/api/submit/batch",
        {
            "suite_hash": CHEAP,
            "suite_version": "v1.0-cheap",
            "temperature": None,
            "seed": None,
            "timestamp": NOW.isoformat(),
            "results": [
                make_result("reasoning-001"),
                make_result("nobody"),
                make_result("reasoning-002"),
                make_result("x", suite_hash="other"),
            ],
        },
    )
    assert (said.status, said.json["status"]) == (200, "accepted")
    assert (said.data["accepted"], said.data["duplicates"], said.data["refused"]) == (2, 1, 1)
    found = [(each["status"], each["verification"]) for each in said.data["results"]]
    assert found == [
        ("duplicate", "verified"),
        ("refused", None),
        ("accepted", "verified"),
        ("accepted", "unverified"),
    ]
    assert "has no prompt" in said.data["results"][1]["reason"]
    assert len({each["id"] for each in said.data["results"]}) == 4


def test_fields_of_a_batch_are_defaults_for_its_results(client: Client) -> None:
    plain = {"model_id": "gpt-5", "prompt_id": "reasoning-001", "output": "Ben"}
    shared = {"suite_hash": CHEAP, "temperature": 0.5, "seed": 7, "timestamp": "2026-01-02T00:00:00Z"}
    assert client.post("/api/submit/batch", {**shared, "results": [plain]}).json["status"] == "accepted"
    assert client.post("/api/submit", {**plain, **shared}).json["status"] == "duplicate"
    other = client.post("/api/submit/batch", {**shared, "results": [{**plain, "seed": 8}]})
    assert other.json["status"] == "accepted"


def test_one_invalid_result_refuses_the_whole_batch_and_is_reported_by_index(client: Client) -> None:
    wrong = [make_result(), make_result(score=2), {**make_result(), "output": 1}, {**make_result(), "nonsense": 1}]
    said = client.post("/api/submit/batch", {"results": wrong})
    assert said.status == 400
    assert [each["path"] for each in said.json["details"]] == ["results[1].score", "results[2].output", "results[3]"]
    assert client.get("/api/data/chart").data == []


def test_a_batch_has_at_most_1000_results(client: Client) -> None:
    many = [make_result(f"p{number}", suite_hash=None) for number in range(1_001)]
    said = client.post("/api/submit/batch", {"results": many})
    assert said.error == "results: one request may contain at most 1,000 results, found 1,001"
    assert client.post("/api/submit/batch", {"results": many[1:]}).data["accepted"] == 1_000
    assert client.post("/api/submit/batch", {"results": many[1:]}).json["status"] == "duplicate"
    assert client.post("/api/submit/batch", {"results": []}).status == 400


def test_concurrent_submissions_are_counted_exactly_once(client_per_store: Client) -> None:
    statuses: list[str] = []

    def work() -> None:
        for number in range(6):
            said = client_per_store.post(
                "/api/submit/batch", {"results": [make_result(f"p{number}", suite_hash=None), make_result()]}
            )
            statuses.extend(each["status"] for each in said.data["results"])

    threads = [threading.Thread(target=work) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (len(statuses), statuses.count("accepted")) == (72, 7)
    (verified,) = client_per_store.get("/api/data/chart").data
    (unverified,) = client_per_store.get("/api/data/chart?verification=unverified").data
    assert (verified["submissions"], verified["duplicates"]) == (1, 35)
    assert (unverified["submissions"], unverified["duplicates"]) == (6, 30)


# ── Permissions ──


def test_anonymous_submissions_require_a_setting(secure_client: Client) -> None:
    assert secure_client.post("/api/submit", make_result()).status == 401
    assert secure_client.post("/api/submit/batch", {"results": [make_result()]}).status == 401
    admin, viewer = secure_client.with_token("admin"), secure_client.with_token("viewer")
    assert viewer.post("/api/submit", make_result()).json["status"] == "accepted"
    admin.patch("/api/settings", {"anonymousSubmission": True})
    assert secure_client.post("/api/submit", make_result()).json["status"] == "accepted", "another contributor"
    assert secure_client.post("/api/submit", make_result()).json["status"] == "duplicate"
    assert secure_client.get("/api/data/chart").status == 401
    assert viewer.get("/api/data/chart").data[0]["submissions"] == 2


def test_too_many_submissions_are_refused_with_retry_after(secure_client: Client) -> None:
    viewer = secure_client.with_token("viewer")
    secure_client.with_token("admin").patch("/api/settings", {"requestsPerMinute": 2})
    found = [viewer.post("/api/submit", make_result(f"reasoning-00{number}")) for number in (1, 2, 1)]
    assert [each.status for each in found] == [200, 200, 429]
    assert 1 <= int(found[2].headers["retry-after"]) <= 31


# ── The chart ──


def test_the_chart_separates_models_and_days(client_per_store: Client) -> None:
    def send(days_ago: int, *pairs: tuple[str, str], model: str = "gpt-5") -> None:
        when = (NOW - timedelta(days=days_ago)).isoformat()
        results = [make_result(prompt, output, model_id=model) for prompt, output in pairs]
        assert client_per_store.post("/api/submit/batch", {"timestamp": when, "results": results}).status == 200

    send(3, ("reasoning-001", "a"), ("reasoning-002", "a"))
    send(1, ("reasoning-001", "a"), ("reasoning-002", "b"), ("reasoning-002", "c"))
    send(1, ("reasoning-001", "a"), model="other")
    said = client_per_store.get("/api/data/chart")
    assert said.data == [
        {
            "model": model,
            "day": (NOW - timedelta(days=ago)).date().isoformat(),
            "submissions": sent,
            "duplicates": 0,
            "prompts": prompts,
            "distinctOutputs": outputs,
            "changedPrompts": changed,
            "consistency": consistency,
        }
        for model, ago, sent, prompts, outputs, changed, consistency in (
            ("gpt-5", 3, 2, 2, 2, 0, 1.0),
            ("gpt-5", 1, 3, 2, 3, 1, 0.5),
            ("other", 1, 1, 1, 1, 0, 1.0),
        )
    ]
    assert said.json["meta"]["models"] == 2
    only = client_per_store.get("/api/data/chart?model=other").data
    assert [each["model"] for each in only] == ["other"]
    day = (NOW - timedelta(days=3)).date().isoformat()
    assert [each["day"] for each in client_per_store.get(f"/api/data/chart?from={day}&to={day}").data] == [day]
    assert len({each["model"] for each in client_per_store.get("/api/data/chart?models=1").data}) == 1


@pytest.mark.parametrize(
    "query", ["from=2026-02-02&to=2026-02-01", "from=2020-01-01", "from=tomorrow", "models=0", "verification=both"]
)
def test_a_chart_with_invalid_parameters_is_refused(client: Client, query: str) -> None:
    said = client.get(f"/api/data/chart?{query}")
    assert (said.status, bool(said.error)) == (400, True)


# ── The badge ──


def test_a_badge_shows_the_pass_rate_and_the_number_scored(client: Client) -> None:
    recent, old = NOW.isoformat(), (NOW - timedelta(days=31)).isoformat()
    results = [
        make_result("reasoning-001", score=1.0, timestamp=recent),
        make_result("reasoning-002", score=0.0, timestamp=recent),
        make_result("factual-001", score=0.9, timestamp=recent),
        make_result("coding-001", score=None, timestamp=recent),
        make_result("reasoning-001", "old", score=0.0, timestamp=old),
        make_result("x", score=0.0, timestamp=recent, suite_hash="unknown"),
    ]
    assert client.post("/api/submit/batch", {"results": results}).data["refused"] == 0
    found = client.get("/api/badge/gpt-5")
    assert (found.status, found.headers["content-type"]) == (200, "image/svg+xml")
    assert "66 % of 3" in found.body.decode()
    assert "max-age=300" in found.headers["cache-control"]
    again = client.get("/api/badge/gpt-5", headers={"If-None-Match": found.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "model",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=y>',
        "a/b:c#d?e",
        "&amp;]]>",
        "{width}",
        "\0\x1b\u202e",
        "界" * 300,
    ],
)
def test_a_badge_escapes_any_model_name(client: Client, model: str) -> None:
    found = client.get(f"/api/badge/{quote(model, safe='')}")
    assert found.status == 200
    picture = ET.fromstring(found.body)  # noqa: S314 - our own
    assert {re.sub("{.*}", "", each.tag) for each in picture.iter()} == {"svg", "title", "rect", "g", "text"}
    assert not any(name.startswith("on") or "href" in name for each in picture.iter() for name in each.attrib)
    assert "unknown" in "".join(picture.itertext())


def test_a_badge_shows_100_percent_only_without_failures() -> None:
    assert "99 % of 1,000" in draw_model_badge("m", PassCounts(999, 1_000))
    assert "100 % of 1,000" in draw_model_badge("m", PassCounts(1_000, 1_000))


def test_a_badge_requires_a_token_if_the_server_does(secure_client: Client) -> None:
    assert secure_client.get("/api/badge/m").status == 401
    assert "private" in secure_client.with_token("viewer").get("/api/badge/m").headers["cache-control"]
    secure_client.with_token("admin").patch("/api/settings", {"anonymousSubmission": True})
    assert secure_client.get("/api/badge/m").headers["cache-control"].startswith("public")


# ── Chart and badge ──


def test_the_described_request_bodies_match_the_accepted_ones(client: Client) -> None:
    assert client.store
    paths = make_openapi_description(make_app_without_gate(App(client.store)))["paths"]

    def schema(path: str) -> Draft202012Validator:
        found = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert "$ref" not in json.dumps(found)
        return Draft202012Validator(found)

    single, batch = schema("/api/submit"), schema("/api/submit/batch")
    for given, good in (
        (make_result(), True),
        (make_result(score=2), False),
        (make_result(model_id=""), False),
        ({"output": "x"}, False),
    ):
        assert single.is_valid(given) is good
        assert batch.is_valid({"results": [given]}) is good
        assert (client.post("/api/submit", given).status == 200) is good
    assert not batch.is_valid({"results": [make_result()] * 1_001})


class FixedClock(clock.Clock):
    """A clock that shows one time."""

    def __init__(self, time: datetime) -> None:
        self.time = time

    def now(self) -> datetime:
        return self.time


def submit_days(
    server: Client, contributor: str, days: int, rate: Callable[[int], float], *, prompts: int = 12,
    suite_hash: str = SUITE, arrived: datetime | None = None, ended_days_ago: int = 0,
) -> None:  # fmt: skip
    """Submit results of a known suite, one per prompt and day, each on its day or all at once; they ended yesterday."""
    assert server.store
    chance, first = random.Random(contributor), clock.now() - timedelta(days=days + ended_days_ago)
    for day in range(days):
        replied = first + timedelta(days=day)
        results = [
            Submission(
                model_id="m", prompt_id=f"p{number}", output=f"{day}", suite_hash=suite_hash,
                timestamp=replied, score=float(chance.random() < rate(day)),
            )
            for number in range(prompts)
        ]  # fmt: skip
        with clock.use_clock(FixedClock(arrived or replied)):
            server.store.submissions.add(Batch(results), [True] * len(results), contributor)


def test_contributors_form_a_public_watch_in_which_anonymous_results_never_count(client_per_store: Client) -> None:
    client = client_per_store
    for number in range(5):
        submit_days(client, f"t{number:08x}", 44, lambda day: 0.95 if day < 31 else 0.2)
    submit_days(client, "anonymous", 44, lambda _: 1.0)
    found = client.get("/api/data/watch?model=m")
    assert (found.data["level"], len(found.data["contributors"])) == ("alarm", 5)
    assert found.data["sentence"].endswith("the pass rate fell for more than three in ten of 5 contributors.")
    assert found.data["suiteHash"] == f"sha256:{'a' * 64}"
    assert b"t0000000" not in found.body, "nothing says who contributed"
    assert client.get(f"/api/data/watch?model=m&suite=sha256:{'b' * 64}").status == 404
    for wrong in ("model=other", "model=", "", "model=m&suite=no"):
        assert client.get(f"/api/data/watch?{wrong}").status in (400, 404)


def test_four_contributors_and_many_anonymous_results_decide_nothing(client: Client) -> None:
    for number in range(4):
        submit_days(client, f"t{number:08x}", 40, lambda day: 0.95 if day < 31 else 0.0, prompts=4)
    submit_days(client, "anonymous", 40, lambda day: 0.95 if day < 31 else 0.0, prompts=4)
    found = client.get("/api/data/watch?model=m").data
    assert (found["level"], found["alarmStatistic"]) == ("collecting", 0.0)


def count_computations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """Return a list that gets the model and the suite of each public watch that is computed."""
    computed = list[tuple[str, str | None]]()
    compute = community_watches.compute_community_watch

    def count_and_compute(store: Store, wanted: community_watches.CommunityWatchRequest, open_day: str) -> Any:
        computed.append((wanted.model, wanted.suite_hash))
        return compute(store, wanted, open_day)

    monkeypatch.setattr(community_watches, "compute_community_watch", count_and_compute)
    return computed


def test_the_public_watch_is_computed_once_a_day_because_only_days_that_are_over_count(
    client_per_store: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, computed = client_per_store, count_computations(monkeypatch)
    noon = clock.now().replace(hour=12)
    with clock.use_clock(FixedClock(noon)):
        for number in range(5):
            submit_days(client, f"t{number:08x}", 30, lambda _: 0.9, prompts=3)
        first, again = (client.get("/api/data/watch?model=m").data for _ in range(2))
        assert (first, computed) == (again, [("m", None)])
        assert client.get(f"/api/data/watch?model=m&suite={SUITE}").data == first
        submit_days(client, "t00000009", 1, lambda _: 0.9, prompts=3, ended_days_ago=-1)
        assert client.get("/api/data/watch?model=m").data == first
        assert computed == [("m", None), ("m", SUITE)], "a suite that is named is another question"
    midnight = noon.replace(hour=0, minute=0, second=0) + timedelta(days=1)
    with clock.use_clock(FixedClock(midnight + timedelta(minutes=9))):
        assert client.get("/api/data/watch?model=m").data == first, "a result of yesterday may still be being stored"
    with clock.use_clock(FixedClock(midnight + timedelta(minutes=11))):
        assert len(client.get("/api/data/watch?model=m").data["contributors"]) == 6
    assert computed == [("m", None), ("m", SUITE), ("m", None)]


def test_unknown_names_and_hashes_remove_nothing_from_the_cache(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = count_computations(monkeypatch)
    submit_days(client, "t00000001", 2, lambda _: 0.9)
    assert client.get("/api/data/watch?model=m").status == 200
    for number in range(40):
        assert client.get(f"/api/data/watch?model=m&suite=sha256:{number:064x}").status == 404
        assert client.get(f"/api/data/watch?model=m{number}").status == 404
    assert computed == [("m", None)]
    assert client.store
    for number in range(20):
        result = Submission(model_id=f"n{number}", prompt_id="p", output="", suite_hash=SUITE, score=1.0)
        client.store.submissions.add(Batch([result]), [True])
        assert client.get(f"/api/data/watch?model=n{number}").status == 404, "only anonymous results"
    assert len(computed) == 21
    assert client.get("/api/data/watch?model=m").status == 200
    assert len(computed) == 21, "it is still in the cache"


def test_later_results_change_no_day_that_is_over(client_per_store: Client) -> None:
    """Neither newcomers, nor results of past days, nor another suite take an alarm back or make one."""
    client = client_per_store
    for number in range(5):
        submit_days(client, f"t{number:08x}", 44, lambda day: 0.95 if day < 31 else 0.2)
    before = client.get("/api/data/watch?model=m").data
    assert before["level"] == "alarm"
    now = clock.now()
    for number in range(12):  # days before and during the drop on which all was well, sent now
        submit_days(client, f"t1{number:07x}", 44, lambda _: 1.0, arrived=now)
    submit_days(client, "t00000000", 1, lambda _: 1.0, prompts=2_700, suite_hash=f"sha256:{'c' * 64}")
    for number in range(5):  # a baseline and a drop, all sent at once
        suite = f"sha256:{'d' * 64}"
        submit_days(
            client, f"t0000000{number}", 44, lambda day: 0.95 if day < 31 else 0.0, suite_hash=suite, arrived=now
        )
    with clock.use_clock(FixedClock(now + timedelta(days=1))):
        found = client.get("/api/data/watch?model=m").data
        told = client.get(f"/api/data/watch?model=m&suite={suite}").data
    compared = ("level", "alarmDay", "noticeDay", "alarmStatistic", "sentence", "suiteHash")
    assert [found[each] for each in compared] == [before[each] for each in compared]
    assert {each["measuredDays"] for each in found["contributors"]} == {44, 1}, "a backlog is no days"
    assert (told["level"], told["alarmStatistic"]) == ("collecting", 0.0)
    assert {each["measuredDays"] for each in told["contributors"]} == {1}


def test_a_result_counts_on_the_day_of_its_arrival_at_most_one_day_after_its_reply(client_per_store: Client) -> None:
    assert client_per_store.store
    arrived = datetime(2026, 3, 10, 0, 5, tzinfo=UTC)
    for number, minutes in enumerate((1, 6, 24 * 60, 24 * 60 + 6)):  # today, yesterday twice, and the day before
        result = Submission(
            model_id="m", prompt_id=f"p{number}", output="", suite_hash=SUITE, score=1.0,
            timestamp=arrived - timedelta(minutes=minutes),
        )  # fmt: skip
        with clock.use_clock(FixedClock(arrived)):
            client_per_store.store.submissions.add(Batch([result]), [True], "t00000001")
    read = client_per_store.store.contributed_results
    assert read.count_results("m", SUITE, "2026-03-10") == {}, "the day is not over"
    assert read.find_suite_hash_with_most_contributors("m", "2026-03-10") is None
    counted = {f"p{number}": (1, 1) for number in range(3)}
    assert read.count_results("m", SUITE, "2026-03-11") == {"t00000001": {"2026-03-10": counted}}


def test_the_public_watch_of_a_community_is_as_public_as_its_badges(secure_client: Client) -> None:
    assert secure_client.get("/api/data/watch?model=m").status == 401
    secure_client.with_token("admin").patch("/api/settings", {"anonymousSubmission": True})
    assert secure_client.get("/api/data/watch?model=m").status == 404, "nothing was submitted"
