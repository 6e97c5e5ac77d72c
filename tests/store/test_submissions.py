"""Submissions: duplicates, stored fields, and a chart that always equals a full recount."""

import hashlib
import random
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from pramana.errors import InvalidInput
from pramana.store import open_store
from pramana.store.records import unescape_text
from pramana.store.schema import submission_cells, submission_series, submissions
from pramana.store.store import Store
from pramana.store.submissions import Batch, DayPoint, Submission, Verdict

ALWAYS: Any = {"first_day": "2000-01-01", "last_day": "2100-01-01", "max_models": 1_000}
SUITE = "sha256:" + "5" * 64


def make_result(prompt: str = "p", output: str = "yes", model: str = "m", **given: Any) -> Submission:
    return Submission(model, prompt, output, **given)


def submit(store: Store, *results: Submission, verified: bool = True, by: str = "ann", **shared: Any) -> list[str]:
    batch = Batch(list(results), **{"suite_hash": SUITE, **shared})
    return list(store.submissions.add(batch, [verified] * len(results), by).statuses)


def date_of(day: int) -> datetime:
    return datetime(2026, 5, 1, 12, tzinfo=UTC) + timedelta(days=day)


def read_rows(store: Store) -> list[dict[str, Any]]:
    joined = select(submissions, submission_series).join_from(submissions, submission_series)
    with store._database.read_transaction() as connection:
        return [dict(row) for row in connection.execute(joined).mappings()]


def recount(store: Store, *, verified: bool) -> list[DayPoint]:
    """Count everything again from the outputs with plain sets: no hashes, no cells, no order of arrival."""
    said: dict[tuple[str, str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    days: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 6)
    for row in read_rows(store):
        if bool(row["verified"]) is verified:
            model, day = unescape_text(row["model"]), row["day"]
            said[model, row["suite_hash"], row["prompt"]][day].add(row["output"])
            days[model, day][0] += 1
            days[model, day][1] += row["copies"] - 1
    for (model, _, _), by_day in said.items():
        before: set[str] | None = None
        for day in sorted(by_day):
            counts = days[model, day]
            counts[2] += 1
            counts[3] += len(by_day[day])
            counts[4] += before is not None and before != by_day[day]
            counts[5] += len(by_day[day]) == 1
            before = by_day[day]
    return [DayPoint(*which, *counts) for which, counts in sorted(days.items())]


def assert_chart_equals_recount(store: Store) -> None:
    for verified in (True, False):
        points, models = store.submissions.read_chart(of_known_suites=verified, **ALWAYS)
        assert sorted(points, key=lambda each: (each.model, each.day)) == recount(store, verified=verified)
        assert models == len({each.model for each in points})


# ── Content ──


def test_the_same_content_of_the_same_contributor_is_a_duplicate(store: Store) -> None:
    assert submit(store, make_result()) == ["accepted"]
    assert submit(store, make_result(), make_result()) == ["duplicate", "duplicate"]
    for other in (
        make_result(output="no"),
        make_result(prompt="q"),
        make_result(model="n"),
        make_result(temperature=0.5),
        make_result(seed=1),
        make_result(suite_hash="sha256:other"),
    ):
        assert submit(store, other) == ["accepted"], other
    assert submit(store, make_result(), by="ben") == ["accepted"]
    same = make_result(score=1.0, metadata={"note": "scored otherwise"}, suite_version="v2", runner_version="2")
    assert submit(store, same) == ["duplicate"], "a version is a label, and a score is no content"
    assert sum(row["copies"] for row in read_rows(store)) == len(read_rows(store)) + 3
    assert_chart_equals_recount(store)


def test_the_same_content_on_another_day_is_a_duplicate_that_counts_there(store: Store) -> None:
    assert submit(store, make_result(), timestamp=date_of(0)) == ["accepted"]
    assert submit(store, make_result(), timestamp=date_of(1)) == ["duplicate"]
    assert submit(store, make_result(), timestamp=date_of(1)) == ["duplicate"]
    points, _ = store.submissions.read_chart(of_known_suites=True, **ALWAYS)
    assert [(each.day, each.submissions, each.duplicates, each.changed) for each in points] == [
        ("2026-05-01", 1, 0, 0),
        ("2026-05-02", 1, 1, 0),
    ]
    assert_chart_equals_recount(store)


def test_a_result_may_be_submitted_again_once_its_suite_is_known(store: Store) -> None:
    assert submit(store, make_result(), verified=False) == ["accepted"]
    assert submit(store, make_result(), verified=True) == ["accepted"]
    assert submit(store, make_result(), verified=True) == ["duplicate"]
    assert_chart_equals_recount(store)


def test_adjacent_fields_are_never_confused(store: Store) -> None:
    assert submit(store, make_result(prompt="ab", output="c")) == ["accepted"]
    assert submit(store, make_result(prompt="a", output="bc")) == ["accepted"]
    assert submit(store, make_result(model="mp", prompt="x"), by="a") == ["accepted"]
    assert submit(store, make_result(model="m", prompt="px"), by="a") == ["accepted"]


def test_all_fields_of_a_submission_are_stored(store: Store) -> None:
    output = "half \ud83d, NUL \0 and \ufdd0"
    given = make_result(
        output=output,
        score=0.25,
        temperature=0.5,
        seed=-7,
        metadata={"fingerprint": "fp_1", "note": "\ud800"},
        assertion_result=Verdict(passed=True, details={"why": "it said so"}),
        latency_ms=12.5,
        result_hash="sha256:x",
    )
    receipt = store.submissions.add(
        Batch([given], suite_hash=SUITE, suite_version="v1.0", runner_version="0.1", timestamp=date_of(0)), [True], "t1"
    )
    (row,) = read_rows(store)
    assert unescape_text(row["output"]) == output
    whole = hashlib.sha256(output.encode("utf-8", "surrogatepass")).digest()
    assert bytes(row["commitment"]) == hashlib.sha256(bytes(row["salt"]) + whole).digest()
    assert len(row["salt"]) == 16
    kept = ("batch", "contributor", "temperature", "seed", "fingerprint", "suite_version", "runner_version", "day")
    assert [row[name] for name in kept] == [receipt.batch, "t1", 0.5, -7, "fp_1", "v1.0", "0.1", "2026-05-01"]
    assert (row["score"], row["passed"], row["latency_ms"], row["received"]) == (0.25, True, 12.5, receipt.received)
    assert receipt.ids[0].startswith("s20260501-")


def test_equal_outputs_have_different_salts(store: Store) -> None:
    submit(store, make_result(prompt="a"), make_result(prompt="b"))
    first, second = read_rows(store)
    assert first["output"] == second["output"]
    assert bytes(first["commitment"]) != bytes(second["commitment"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"output": "é" * 600_000}, "results[1].output: has 1,200,000 bytes; at most 1,048,576"),
        ({"timestamp": datetime.now(UTC) + timedelta(days=3)}, "which is in the future; check the clock"),
        ({"metadata": {"long": "x" * 20_000}}, "results[1].metadata: has 20,011 characters; at most 16,384"),
    ],
)
def test_invalid_results_are_reported_by_number_and_nothing_is_stored(
    store: Store, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as found:
        submit(store, make_result(), make_result(prompt="q", **given))
    assert message in str(found.value)
    assert read_rows(store) == []
    assert_chart_equals_recount(store)


def test_submissions_are_assigned_to_their_utc_day(store: Store) -> None:
    late = datetime.fromisoformat("2026-05-01T23:30:00-05:00")
    submit(store, make_result(timestamp=late), make_result(prompt="q", timestamp=datetime(2026, 5, 1, 23, 30)))  # noqa: DTZ001
    assert {row["prompt"]: row["day"] for row in read_rows(store)} == {"p": "2026-05-02", "q": "2026-05-01"}


# ── The chart ──


def test_a_prompt_has_changed_if_its_outputs_differ_from_its_previous_day(store: Store) -> None:
    def list_changed() -> list[int]:
        return [each.changed for each in store.submissions.read_chart(of_known_suites=True, **ALWAYS)[0]]

    submit(store, make_result("p", "a"), make_result("q", "a"), timestamp=date_of(0))
    submit(store, make_result("p", "a"), timestamp=date_of(2))
    submit(store, make_result("p", "b"), make_result("q", "a"), timestamp=date_of(4))
    assert list_changed() == [0, 0, 1]
    submit(
        store, make_result("p", "b"), timestamp=date_of(2)
    )  # late: that day has both now, so it differs from either neighbour
    assert list_changed() == [0, 1, 1]
    submit(store, make_result("p", "a"), timestamp=date_of(4))
    assert list_changed() == [0, 1, 0]
    submit(store, make_result("q", "z"), timestamp=date_of(1))  # a new day between two that were neighbours
    assert list_changed() == [0, 1, 1, 1]
    assert_chart_equals_recount(store)


def test_consistency_is_the_share_of_prompts_with_one_output(store: Store) -> None:
    submit(
        store,
        make_result("p", "a"),
        make_result("p", "b"),
        make_result("q", "a"),
        make_result("q", "a", seed=2),
        timestamp=date_of(0),
    )
    (point,) = store.submissions.read_chart(of_known_suites=True, **ALWAYS)[0]
    assert (point.submissions, point.prompts, point.outputs, point.consistency) == (4, 2, 3, 0.5)


def test_results_of_known_and_unknown_suites_never_share_a_series(store: Store) -> None:
    submit(store, make_result(output="a"), timestamp=date_of(0))
    submit(store, make_result(output="b"), timestamp=date_of(1), verified=False)
    submit(store, make_result(output="a"), timestamp=date_of(2))
    points, _ = store.submissions.read_chart(of_known_suites=True, **ALWAYS)
    assert [(each.day, each.changed) for each in points] == [("2026-05-01", 0), ("2026-05-03", 0)]
    assert_chart_equals_recount(store)


def test_the_chart_shows_the_models_with_most_submissions_in_the_period(store: Store) -> None:
    for number in range(4):
        submit(
            store,
            *(make_result(f"p{each}", model=f"m{number}") for each in range(number + 1)),
            timestamp=date_of(number),
        )
    points, models = store.submissions.read_chart(of_known_suites=True, **{**ALWAYS, "max_models": 2})
    assert ([each.model for each in points], models) == (["m2", "m3"], 4)
    points, models = store.submissions.read_chart(of_known_suites=True, first_day="2026-05-02", last_day="2026-05-03")
    assert ([each.model for each in points], models) == (["m1", "m2"], 2)
    assert store.submissions.read_chart(of_known_suites=True, model="none", **ALWAYS) == ([], 0)


def random_batch(chance: random.Random) -> tuple[Batch, list[bool], str]:
    """Return few models, prompts, outputs and days, so that all that can meet does."""
    size, days = chance.choice([1, 1, 2, 5, 40]), chance.random() < 0.5
    results = [
        make_result(
            f"p{chance.randrange(5)}",
            chance.choice(["a", "b", "c", "\0"]),
            chance.choice(["m", "n\0"]),
            score=chance.choice([None, 0.0, 0.5, 1.0]),
            seed=chance.choice([None, 1]),
            timestamp=chance.choice([None, date_of(chance.randrange(7))]) if days else None,
            suite_hash=chance.choice([None, "sha256:other"]),
        )
        for _ in range(size)
    ]
    verified = [chance.random() < 0.7 for _ in results]
    return (
        Batch(results, suite_hash=SUITE, timestamp=date_of(chance.randrange(7))),
        verified,
        chance.choice(["ann", "ben"]),
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_chart_equals_a_recount_after_any_submissions_in_any_order(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        store.submissions.add(*random_batch(chance))
        assert_chart_equals_recount(store)
    assert sum(row["copies"] > 1 for row in read_rows(store)) > 2, "no duplicates were drawn"
    passed = sum(
        bool(row["passed"])
        for row in read_rows(store)
        if row["verified"] and row["model"] == "m" and row["score"] is not None
    )
    scored = sum(row["score"] is not None for row in read_rows(store) if row["verified"] and row["model"] == "m")
    found = store.submissions.count_passed("m", "2000-01-01")
    assert (found.passed, found.scored) == (passed, scored)


def test_the_chart_equals_a_recount_after_concurrent_writes(url: str) -> None:
    """Several connections of several stores: as processes do, but that they can start together."""
    stores = [open_store(url) for _ in range(3)]
    try:

        def work(number: int) -> int:
            chance = random.Random(number)
            return sum(len(stores[number % 3].submissions.add(*random_batch(chance)).ids) for _ in range(12))

        with ThreadPoolExecutor(6) as pool:
            sent = sum(pool.map(work, range(6)))
        assert_chart_equals_recount(stores[0])
        assert sum(row["copies"] for row in read_rows(stores[0])) == sent
        with stores[0]._database.read_transaction() as connection:
            cells = connection.execute(select(submission_cells.c.day, submission_cells.c.series_no)).all()
        assert len(cells) == len({(row["day"], row["series_no"]) for row in read_rows(stores[0])})
    finally:
        for each in stores:
            each.close()


def test_a_failed_batch_leaves_nothing_behind_and_invalidates_its_series(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("pramana.store.submissions.record_change", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            submit(store, make_result())
    assert read_rows(store) == []
    assert submit(store, make_result()) == ["accepted"]
    assert_chart_equals_recount(store)


def test_only_recent_results_of_known_suites_give_a_badge(store: Store) -> None:
    today = date.today().isoformat()  # noqa: DTZ011 - the same day in the worst case one off, and then both are
    submit(
        store,
        make_result("a", score=1.0),
        make_result("b", score=0.2),
        make_result("c", score=None),
        timestamp=date_of(0),
    )
    submit(store, make_result("d", score=0.4, assertion_result=Verdict(passed=True)), timestamp=date_of(1))
    submit(store, make_result("e", score=1.0), timestamp=date_of(1), verified=False)
    found = store.submissions.count_passed("m", "2026-05-01")
    assert (found.passed, found.scored) == (2, 3)
    found = store.submissions.count_passed("m", "2026-05-02")
    assert (found.passed, found.scored) == (1, 1)
    assert store.submissions.count_passed("m", max(today, "2026-06-01")).scored == 0


# ── What this machine has delivered ──


def test_deliveries_are_recorded_per_address(store: Store) -> None:
    store.submissions.mark_delivered("r1", "http://a")
    store.submissions.mark_delivered("r1", "http://a")
    assert store.submissions.list_delivered_keys("http://a") == {"r1"}
    assert store.submissions.list_delivered_keys("http://b") == set()
