"""A report against a baseline: `assert_no_regression` and `compare_with_baseline`."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pramana
from pramana import settings
from pramana.app.baselines import BaselineRequest, check_sides, find_baseline, pair_with_baseline
from pramana.errors import InvalidInput, NotFound
from pramana.store import open_store

CASES = [{"id": f"case-{number}", "input": f"case {number}", "ideal": "yes"} for number in range(12)]


def good(prompt: str) -> str:
    return f"yes {prompt}"


def bad(prompt: str) -> str:
    return "no" if int(prompt.rsplit(maxsplit=1)[-1]) < 9 else f"yes {prompt}"


def broken(prompt: str) -> str:
    if int(prompt.rsplit(maxsplit=1)[-1]) == 0:
        raise ValueError("out of order")
    return f"yes {prompt}"


def test_a_proven_loss_fails_with_the_lost_cases_and_both_replies() -> None:
    pramana.evaluate(CASES, model=good, name="main")
    with pytest.raises(AssertionError) as caught:
        pramana.evaluate(CASES, model=bad).assert_no_regression("main")
    message = str(caught.value)
    assert message.startswith("Regression between these two runs: of 12 cases, 9 that passed before fail now")
    assert "lost: case-0\n    prompt: case 0\n    before, passed: yes case 0\n" in message
    assert '    now, failed: no\n      reason: does not contain "yes"' in message


def test_a_run_as_good_as_its_baseline_passes_whatever_names_the_baseline(tmp_path: Path) -> None:
    before = pramana.evaluate(CASES, model=good, name="main")
    after = pramana.evaluate(CASES, model=good, name="main")
    after.assert_no_regression("main")  # the newest run of this name but itself
    (listed,) = [each for each in pramana.runs(name="main") if each.id == before.run_id]
    for baseline in (before, before.run_id, listed, before.save(tmp_path / "main.json")):
        after.assert_no_regression(baseline)
        (comparison,) = after.compare_with_baseline(baseline).values()
        assert (comparison.verdict, comparison.pairs, comparison.lost) == ("no_change", 12, ())


def test_an_undecided_comparison_fails_only_if_a_loss_has_to_be_excluded() -> None:
    before, after = (pramana.evaluate(CASES, model=good) for _ in range(2))
    after.assert_no_regression(before, margin=5)
    with pytest.raises(AssertionError, match="No difference seen"):
        after.assert_no_regression(before, fail_on="inconclusive")
    after.assert_no_regression(before, fail_on="inconclusive", margin=50)


def test_missing_and_errored_results_fail_as_on_the_command_line() -> None:
    before = pramana.evaluate(CASES, model=good)
    with pytest.raises(AssertionError, match=r"^The run is incomplete: 1 result errored\.$"):
        pramana.evaluate(CASES, model=broken).assert_no_regression(before)
    echoed = pramana.evaluate(CASES, model="fake:echo")
    stopped = pramana.evaluate(CASES, model="fake:echo", max_total_tokens=1, concurrency=1)
    with pytest.raises(AssertionError, match=r"The run is incomplete: \d+ results missing\.\nThe run ended early"):
        stopped.assert_no_regression(echoed)


def test_each_of_several_models_is_compared_with_the_model_of_its_name() -> None:
    before = pramana.evaluate(CASES, models=[good, bad], name="both")
    after = pramana.evaluate(CASES, models=[good, bad])
    after.assert_no_regression("both")
    assert [*after.compare_with_baseline("both")] == after.models == before.models


@pytest.mark.parametrize(
    ("baseline", "options", "error", "message"),
    [
        ("nowhere", {}, NotFound, 'there is no run "nowhere"'),
        ("latest", {}, InvalidInput, "is this run itself; name an earlier run"),
        ("no-such-file.json", {}, NotFound, "no-such-file.json does not exist"),
        (3, {}, InvalidInput, "baseline: expected the id or the name of a run.*found 3"),
        ("x" * 5_000, {}, NotFound, "there is no run"),
        ("main", {"margin": "5"}, InvalidInput, "margin: expected a number from 0 to 100, found '5'"),
        ("main", {"margin": float("nan")}, InvalidInput, "margin"),
        ("main", {"fail_on": "anything"}, InvalidInput, "fail_on: expected regression or inconclusive"),
        (
            "few",
            {},
            InvalidInput,
            r"does not have the cases of this run.*pramana\.compare\(BASE, NEW, any_suite=True\)",
        ),
        ("both", {}, InvalidInput, "has no model"),
    ],
)
def test_an_unsuitable_baseline_is_explained(
    baseline: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    pramana.evaluate(CASES, model=bad, name="main")
    pramana.evaluate(CASES[:5], model=bad, name="few")
    pramana.evaluate(CASES, models=[bad, broken], name="both")
    after = pramana.evaluate(CASES, model=good)
    with pytest.raises(error, match=re.compile(message, re.DOTALL)):
        after.assert_no_regression(baseline, **options)


def test_the_gate_decides_like_pramana_compare() -> None:
    pramana.evaluate(CASES, model=good, name="main")
    after = pramana.evaluate(CASES, model=bad)
    with closing(open_store(settings.database_url())) as store:
        run = store.runs.read(after.run_id)
        sides = pair_with_baseline(store, run, find_baseline(store, "MAIN", run))
        for fail_on, margin, code in (("regression", 5, 1), ("regression", 100, 0), ("inconclusive", 100, 0)):
            request = BaselineRequest(baseline="main", fail_on=fail_on, margin=margin)  # type: ignore[arg-type]
            check = check_sides(store, run, sides, request)
            assert check.exit_code == check.models[0].exit_code == code, (fail_on, margin)


def make_model(failed: int, name: str) -> Any:
    """Return a model that fails the first cases."""

    def model(prompt: str) -> str:
        return "no" if int(prompt.rsplit(maxsplit=1)[-1]) < failed else f"yes {prompt}"

    model.__name__ = model.__qualname__ = name
    return model


def test_several_models_are_decided_together_as_compare_against_does() -> None:
    """Six lost cases prove a loss of one model alone (p = 1/32), but not of one among three; nine do."""
    before = pramana.evaluate(CASES, models=[make_model(0, name) for name in "abc"])
    after = pramana.evaluate(CASES, models=[make_model(6, "a"), make_model(0, "b"), make_model(0, "c")])
    after.assert_no_regression(before)
    found = [*after.compare_with_baseline(before).values()]
    assert [each.verdict for each in found] == ["inconclusive", "no_change", "no_change"]
    assert "98.33 % interval" in found[0].detail
    alone = pramana.evaluate(CASES, model=make_model(0, "a"))
    with pytest.raises(AssertionError, match="Regression") as one:
        pramana.evaluate(CASES, model=make_model(6, "a")).assert_no_regression(alone)
    assert "decided together" not in str(one.value)
    worse = pramana.evaluate(CASES, models=[make_model(9, "a"), make_model(0, "b"), make_model(0, "c")])
    with pytest.raises(AssertionError) as several:
        worse.assert_no_regression(before)
    assert str(several.value).startswith(
        "The 3 models are decided together at 5 % (Holm's correction for 3 comparisons); each interval has the "
        "confidence of its test."
    )


def test_a_later_run_of_the_name_is_never_the_baseline() -> None:
    first = pramana.evaluate(CASES, model=good, name="main")
    checked = pramana.evaluate(CASES, model=bad, name="main")
    later = pramana.evaluate(CASES, model=bad, name="main")
    assert [each.verdict for each in checked.compare_with_baseline("main").values()] == ["regression"]
    assert [each.verdict for each in later.compare_with_baseline("main").values()] == ["no_change"]
    assert [each.verdict for each in checked.compare_with_baseline(later.run_id).values()] == ["no_change"]
    with pytest.raises(NotFound, match="several runs are named"):
        first.compare_with_baseline("main")
    early = pramana.evaluate(CASES, model=good)
    only = pramana.evaluate(CASES, model=good, name="only")
    with pytest.raises(NotFound, match=f'no run named "only" began before run {early.run_id}.*{only.run_id}'):
        early.compare_with_baseline("only")
