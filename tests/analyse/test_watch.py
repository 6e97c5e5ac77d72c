"""What a watch measures and decides, from features alone: scores, states, today, facts, forecasts."""

import json
import math
import random
from collections.abc import Callable, Sequence
from itertools import product

import pytest
from msgspec.structs import replace

from pramana.analyse.drift import ALARM, NOTICE, iterate_change_statistics
from pramana.analyse.features import is_refusal, make_features, make_logprob_days
from pramana.analyse.instruments import (
    INSTRUMENT_GROUPS,
    INSTRUMENTS,
    MAX_LOGPROB_SHIFT,
    DayFeatures,
    MeasuredDay,
    PromptDay,
    measure_logprob_shift,
    score_days,
)
from pramana.analyse.own_endpoint import report_endpoint
from pramana.analyse.watch import (
    MAX_EXACT_CALLS,
    MAX_P_VALUE_OF_DAY_OUTSIDE_TOLERANCE,
    ReachedLevel,
    decide_state,
    find_instrument_findings,
    poisson_binomial_tail,
)
from pramana.analyse.watch_facts import (
    find_reported_changes,
    measure_category_shifts,
    measure_hash_consistency,
)
from pramana.analyse.watch_sentences import describe_state
from pramana.load.rows import make_case
from pramana.model import Check, Outcome, Reply, Result, ResultKey

PROMPTS = 20


def make_days(
    count: int, make_prompt: Callable[[int, int, random.Random], PromptDay], *, first: int = 0, seed: int = 1
) -> list[MeasuredDay]:
    """Return days of prompts that a function makes of the day, the number of the prompt and a random generator."""
    rng = random.Random(seed + first)
    return [
        MeasuredDay(
            f"2026-{day // 28 + 1:02}-{day % 28 + 1:02}",
            rng.uniform(-0.5, 0.5),
            DayFeatures(tuple(make_prompt(day, each, rng) for each in range(PROMPTS))),
        )
        for day in range(first, first + count)
    ]


def answer(number: int, **given: object) -> PromptDay:
    values = {"answered": 1, "verdicts": 1, "passes": 1, "category": "even" if number % 2 == 0 else "odd", **given}
    return PromptDay(f"case{number}", f"q{number}", **values)  # type: ignore[arg-type]


def answer_at_random(day: int, number: int, rng: random.Random) -> PromptDay:
    return answer(
        number,
        passes=int(rng.random() < 0.9),
        replies=(f"{number}-{rng.random() < 0.1}",),
        words=(rng.randrange(10, 20) + day // 1000,),
        latency_s=(0.5 + rng.random() / 5,),
        refusals=int(rng.random() < 0.05),
    )


def test_every_instrument_is_quiet_while_nothing_changes() -> None:
    names = [
        name for group in ("pass_rate", "replies", "length", "latency", "refusals") for name in INSTRUMENT_GROUPS[group]
    ]
    findings = find_instrument_findings(names, make_days(60, answer_at_random), 28)
    assert {each.level for each in findings.values()} == {"quiet"}
    assert findings["pass_rate_down"].notice_threshold == NOTICE.threshold * len(names)
    assert findings["longer"].alarm_threshold == ALARM.threshold * len(names)
    assert (findings["changed_replies"].needed_days, findings["longer"].needed_days) == (35, 28)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("pass_rate_down", {"passes": 0}),
        ("pass_rate_up", {"passes": 1}),
        ("changed_replies", {"replies": ("another",)}),
        ("longer", {"words": (30,)}),
        ("shorter", {"words": (5,)}),
        ("slower", {"latency_s": (1.0,)}),
        ("faster", {"latency_s": (0.2,)}),
        ("more_refusals", {"refusals": 1}),
    ],
)
def test_each_instrument_sees_a_change_in_its_direction_and_no_other(name: str, changed: dict[str, object]) -> None:
    def change(day: int, number: int, rng: random.Random) -> PromptDay:
        return replace(answer_at_random(day, number, rng), **changed)

    def pass_less_often(day: int, number: int, rng: random.Random) -> PromptDay:
        return replace(answer_at_random(day, number, rng), passes=int(rng.random() < 0.5))

    before = pass_less_often if name == "pass_rate_up" else answer_at_random
    days = make_days(42, before) + make_days(8, change, first=42)
    (finding,) = find_instrument_findings([name], days, 28).values()
    assert finding.level == "alarm"
    assert finding.first_day == days[42].day
    assert finding.today is not None
    assert finding.today.is_outside
    opposite = {"longer": "shorter", "slower": "faster", "pass_rate_down": "pass_rate_up"}
    if name in opposite:
        assert find_instrument_findings([opposite[name]], days, 28)[opposite[name]].level == "quiet"


@pytest.mark.parametrize(
    ("name", "usual", "changed"),
    [
        ("slower_answers", {"voice_to_voice_s": (0.9,)}, {"voice_to_voice_s": (1.4,)}),
        ("more_leading_silence", {"leading_silence_s": (0.2,)}, {"leading_silence_s": (0.6,)}),
        ("more_word_errors", {"word_error_rates": (0.05,)}, {"word_error_rates": (0.25,)}),
        ("faster_speech", {"words_a_minute": (150.0,)}, {"words_a_minute": (190.0,)}),
        ("slower_speech", {"words_a_minute": (150.0,)}, {"words_a_minute": (120.0,)}),
        ("worse_quality", {"quality": (3.4,)}, {"quality": (2.6,)}),
    ],
)
def test_each_instrument_of_calls_sees_its_change(
    name: str, usual: dict[str, tuple[float]], changed: dict[str, tuple[float]]
) -> None:
    def make(values: dict[str, tuple[float]]) -> Callable[[int, int, random.Random], PromptDay]:
        def make_prompt(_: int, number: int, rng: random.Random) -> PromptDay:
            return answer(
                number, variant="voice", **{key: (value * rng.uniform(0.9, 1.1),) for key, (value,) in values.items()}
            )

        return make_prompt

    days = make_days(34, make(usual)) + make_days(8, make(changed), first=34)
    (finding,) = find_instrument_findings([name], days, 28).values()
    assert (finding.level, finding.first_day) == ("alarm", days[34].day)


def test_answers_to_border_prompts_are_compared_with_the_reference_days() -> None:
    def flip(chance: float) -> Callable[[int, int, random.Random], PromptDay]:
        def make_prompt(_: int, number: int, rng: random.Random) -> PromptDay:
            heads = sum(rng.random() < chance for _ in range(8))
            return PromptDay(
                f"border{number}", "b", "border", planned=8, answered=8, answers={"heads": heads, "tails": 8 - heads}
            )

        return make_prompt

    days = make_days(40, flip(0.5)) + make_days(8, flip(0.95), first=40)
    (finding,) = find_instrument_findings(["answers"], days, 28).values()
    assert (finding.level, finding.first_day, finding.needed_days) == ("alarm", days[40].day, 35)
    assert find_instrument_findings(["answers"], days[:40], 28)["answers"].level == "quiet"
    assert find_instrument_findings(["more_refusals"], days, 28)["more_refusals"].days == ()


def list_tokens(
    shift: float, noise: Callable[[random.Random], float]
) -> Callable[[int, int, random.Random], PromptDay]:
    """Return what makes a prompt whose five likeliest of seven tokens are listed, all but the first one shifted."""

    def make_prompt(_: int, number: int, rng: random.Random) -> PromptDay:
        near = {f"t{each}": -0.5 - 0.4 * each - (shift if each else 0.0) + noise(rng) for each in range(7)}
        listed = dict(sorted(near.items(), key=lambda each: -each[1])[:5])
        return PromptDay(f"logprobs{number}", "l", "logprobs", answered=1, logprobs=listed)

    return make_prompt


def test_shifted_logprobs_are_seen_and_those_of_an_unchanged_endpoint_are_not() -> None:
    for noise in (lambda _: 0.0, lambda rng: rng.gauss(0, 0.1)):
        days = make_days(40, list_tokens(0.0, noise)) + make_days(8, list_tokens(0.2, noise), first=40)
        (finding,) = find_instrument_findings(["logprobs"], days, 28).values()
        assert (finding.level, finding.first_day, finding.needed_days) == ("alarm", days[40].day, 35)
        assert find_instrument_findings(["logprobs"], days[:40], 28)["logprobs"].level == "quiet"
    exact = score_days(INSTRUMENTS["logprobs"], make_days(40, list_tokens(0.0, lambda _: 0.0)), 28)
    assert max(exact.scores) < 1e-15
    small = make_days(40, list_tokens(0.0, lambda _: 0.0)) + make_days(30, list_tokens(0.04, lambda _: 0.0), first=40)
    assert find_instrument_findings(["logprobs"], small, 28)["logprobs"].level == "quiet", (
        "4 % of a probability are tolerated"
    )


def test_a_shift_of_logprobs_is_the_least_that_both_lists_allow() -> None:
    usual = [{"a": -0.5, "b": -1.5, "c": -2.5}, {"a": -0.7, "b": -1.5, "d": -2.4}]
    # a: -0.6 before; b: -1.5; c: the mean of -2.5 and the floor -2.4; d: the mean of the floor -2.5 and -2.4
    now = {"a": -0.4, "b": -1.0, "d": -3.0}
    expected = (0.2 + 0.5 + abs(-3.0 - -2.45) + abs(-3.0 - -2.45)) / 4
    assert measure_logprob_shift(usual, now) == pytest.approx(expected)
    assert measure_logprob_shift([{"a": 0.0, "b": -100.0}], {"a": -100.0, "b": 0.0}) == MAX_LOGPROB_SHIFT


def test_days_may_be_exchanged_without_another_score_of_any_of_them() -> None:
    days = make_days(45, list_tokens(0.0, lambda rng: rng.gauss(0, 0.2)))
    later = days[7:]
    random.Random(2).shuffle(later)
    usual, exchanged = (score_days(INSTRUMENTS["logprobs"], each, 28) for each in (days, [*days[:7], *later]))
    by_day = dict(zip(exchanged.days, exchanged.scores, strict=True))
    assert [by_day[day] for day in usual.days] == pytest.approx(list(usual.scores))


def test_unchanged_months_of_noisy_logprobs_are_quiet_as_the_theorem_says() -> None:
    months, notices, alarms = 100, 0, 0
    for month in range(months):
        heavy = month % 2 == 0

        def add_noise(rng: random.Random, heavy: bool = heavy) -> float:
            scale = 1 / math.sqrt(rng.gammavariate(1.5, 2 / 3)) if heavy else 1.0  # of three degrees of freedom
            return rng.gauss(0, 0.05) * scale

        days = make_days(51, list_tokens(0.0, add_noise), seed=1000 + month)
        scores = score_days(INSTRUMENTS["logprobs"], days, 14).scores
        statistics = list(iterate_change_statistics(scores, 14, INSTRUMENTS["logprobs"].min_tolerance))
        assert len(statistics) == 30
        notices += any(each.value >= NOTICE.threshold for each in statistics)
        alarms += any(each.value >= ALARM.threshold for each in statistics)
    assert notices <= 5, "of a hundred months with a chance of 1 % each, more than five have one of 1,900"
    assert alarms == 0


def test_a_day_without_their_prompts_is_no_reference_day() -> None:
    days = make_days(40, list_tokens(0.0, lambda rng: rng.gauss(0, 0.01)))
    unanswered = [MeasuredDay("2025-12-31", 0.0, DayFeatures((answer(1), PromptDay("l", "l", "logprobs"))))]
    scored = score_days(INSTRUMENTS["logprobs"], [*unanswered, *days], 28)
    assert scored.days[0] == days[7].day
    assert scored.needed_days == scored.collected_days == 35


def test_days_of_the_reference_are_never_ranked() -> None:
    days = make_days(40, answer_at_random)
    scored = score_days(INSTRUMENTS["changed_replies"], days, 28)
    assert scored.days[0] == days[7].day
    assert scored.baseline_count == 28


def test_a_day_with_too_few_verdicts_has_no_score_for_the_pass_rate_alone() -> None:
    def judge_fails(day: int, number: int, rng: random.Random) -> PromptDay:
        found = answer_at_random(day, number, rng)
        return replace(found, verdicts=0, passes=0) if number < 5 else found

    days = make_days(30, answer_at_random) + make_days(1, judge_fails, first=30)
    findings = find_instrument_findings(["pass_rate_down", "longer"], days, 28)
    assert len(findings["pass_rate_down"].days) == 30
    assert len(findings["longer"].days) == 31
    assert findings["pass_rate_down"].today is None


def test_days_that_resemble_each_other_cannot_tell() -> None:
    def drift_slowly(day: int, number: int, rng: random.Random) -> PromptDay:
        return answer(number, words=(10 + day + rng.randrange(3),))

    findings = find_instrument_findings(["longer"], make_days(40, drift_slowly), 28)
    assert findings["longer"].level == "cannot_tell"
    assert describe_state("cannot_tell", findings).startswith("Cannot tell: each day of the baseline resembles")


def test_a_level_that_was_reached_stays_until_a_new_period() -> None:
    findings = find_instrument_findings(["pass_rate_down"], make_days(40, answer_at_random), 28)
    reached = [ReachedLevel("notice", "2026-02-03", ("pass_rate_down",), "2026-02-01", ("2026-01-30", "2026-02-01"))]
    assert decide_state(findings, []) == "quiet"
    assert decide_state(findings, reached) == "notice"
    assert describe_state("notice", findings, reached) == (
        "Notice since 2026-02-03: the pass rate fell. It probably began on 2026-02-01 (95 % interval: "
        "2026-01-30 to 2026-02-01). It is not proven well enough for an alarm."
    )


# ── Today alone ──


@pytest.mark.parametrize("rates", [(0.1, 0.5, 0.9), (0.02,) * 6, (1.0, 0.0, 0.3, 0.3)])
def test_the_tail_of_a_day_equals_enumeration(rates: Sequence[float]) -> None:
    for hits in range(len(rates) + 2):
        expected = sum(
            math.prod(rate if hit else 1 - rate for rate, hit in zip(rates, hit_or_miss, strict=True))
            for hit_or_miss in product((0, 1), repeat=len(rates))
            if sum(hit_or_miss) >= hits
        )
        assert poisson_binomial_tail(rates, hits) == pytest.approx(expected, abs=1e-12)


def test_the_tail_of_many_calls_is_bounded_from_above() -> None:
    rates = [0.1, 0.2, 0.4] * (MAX_EXACT_CALLS // 3)
    more = [*rates, 0.0]  # one call more, which cannot hit: now the bound is used
    for hits in (600, 720, 760, 800):
        exact, bound = poisson_binomial_tail(rates, hits), poisson_binomial_tail(more, hits)
        assert exact <= bound * (1 + 1e-9)
        assert bound <= 20 * exact + 1e-300 or bound == 1.0


def test_today_alone_is_not_the_model() -> None:
    def fail_once(day: int, number: int, rng: random.Random) -> PromptDay:
        return replace(answer_at_random(day, number, rng), passes=int(number < 8))

    days = make_days(40, answer_at_random) + make_days(1, fail_once, first=40)
    finding = find_instrument_findings(["pass_rate_down"], days, 28)["pass_rate_down"]
    assert finding.today is not None
    assert finding.today.p_value is not None
    assert finding.today.p_value < MAX_P_VALUE_OF_DAY_OUTSIDE_TOLERANCE
    assert finding.level == "quiet"


# ── Facts ──


def test_hash_consistency_counts_replies_equal_to_the_usual_one() -> None:
    def reply(*texts: str) -> MeasuredDay:
        prompts = tuple(answer(number, replies=(text,)) for number, text in enumerate(texts))
        return MeasuredDay("2026-01-01", 0.0, DayFeatures(prompts))

    baseline = [reply("a", "b"), reply("a", "c"), reply("x", "c")]
    found = measure_hash_consistency(baseline, reply("a", "b"))
    assert found is not None
    assert (found.equal, found.compared, found.word) == (1, 2, "drifting")
    same = measure_hash_consistency(baseline, reply("a", "c"))
    assert same is not None
    assert same.word == "stable"
    assert measure_hash_consistency([], reply("a")) is None


def test_new_models_that_the_provider_reports_are_named_with_their_day() -> None:
    def report(day: str, **models: int) -> MeasuredDay:
        return MeasuredDay(day, 0.0, DayFeatures((), models))

    later = [report("2026-01-02", old=1), report("2026-01-03", new=1), report("2026-01-04", new=1)]
    (found,) = find_reported_changes([report("2026-01-01", old=1)], later)
    assert found.sentence == "The provider reports the model new instead of old since 2026-01-03."
    assert find_reported_changes([report("2026-01-01")], later) == ()
    assert find_reported_changes(later, []) == ()


def test_categories_show_where_a_change_is() -> None:
    def fail_odd(_: int, number: int, __: random.Random) -> PromptDay:
        return answer(number, passes=int(number % 2 == 0))

    before = make_days(3, lambda _, number, __: answer(number))
    first, second = measure_category_shifts("pass_rate_down", before, make_days(2, fail_odd))
    assert (first.category, first.before, first.since, first.prompts) == ("odd", 1.0, 0.0, 10)
    assert (second.category, second.since) == ("even", 1.0)


# ── Forecasts ──


def test_a_report_of_the_endpoint_says_what_would_be_seen() -> None:
    report = report_endpoint(make_days(20, answer_at_random), 28, 2)
    assert report is not None
    assert not report.is_baseline_complete
    assert (report.days, report.prompts, report.repeats) == (20, 20, 1)
    assert 0.03 < report.call_standard_deviation < 0.1
    small, _, large = report.delays
    assert small.alarm_days is None
    assert large.notice_days is not None
    assert report == report_endpoint(make_days(20, answer_at_random), 28, 2)
    assert report_endpoint(make_days(3, answer_at_random), 28, 2) is None


@pytest.mark.parametrize("rate", [0.7, 0.9, 1.0])
def test_a_larger_drop_is_never_seen_later(rate: float) -> None:
    report = report_endpoint(
        make_days(28, lambda _, number, rng: answer(number, passes=int(rng.random() < rate))), 28, 1
    )
    assert report is not None
    delays = [each.notice_days or 99 for each in report.delays]
    assert len(delays) == 3
    assert delays == sorted(delays, reverse=True)


def test_a_report_forecasts_no_drop_below_zero() -> None:
    report = report_endpoint(make_days(28, lambda _, number, __: answer(number, passes=int(number < 3))), 28, 1)
    assert report is not None
    assert report.pass_rate == pytest.approx(0.15)
    assert [each.change for each in report.delays] == [0.05, 0.1]


# ── Features ──


def test_features_keep_numbers_and_no_text() -> None:
    case = make_case("question", ideal="yes", id="q")
    passed, failed = (Check("contains", "1", outcome, "") for outcome in (Outcome.PASSED, Outcome.FAILED))
    replies = (Reply("yes it is", served_model="m-1", fingerprint="f", total_s=0.25), Reply("I cannot help with that."))
    results = [
        Result(ResultKey("d", "model", "text", repeat), "q", reply, None, (check,), None, None)
        for repeat, (reply, check) in enumerate(zip(replies, (passed, failed), strict=True))
    ]
    features = make_features({"d": case, "unsent": case}, ("text",), 3, results)
    asked, unsent = features.prompts
    assert (asked.planned, asked.answered, asked.verdicts, asked.passes) == (3, 2, 2, 1)
    assert (asked.words, asked.latency_s, asked.refusals) == ((3, 5), (0.25, 0.0), 1)
    assert (unsent.planned, unsent.answered) == (3, 0)
    assert (features.served_models, features.fingerprints) == ({"m-1": 1}, {"f": 1})
    assert "yes" not in repr(features)


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I cannot provide this.", True),
        ("Sorry, I am unable to do so.", True),
        ("As an AI language model, I do not have opinions.", True),
        ("I can help with that.", False),
        ("The answer is that I cannot swim.", False),
        ("", False),
    ],
)
def test_refusals_are_known_by_how_they_begin(text: str, refuses: bool) -> None:
    assert is_refusal(Reply(text)) is refuses
    assert is_refusal(Reply(text, finish_reason="content_filter"))


def test_hostile_logprobs_are_bounded_and_a_list_of_one_token_is_none() -> None:
    case = make_case("question", ideal="yes", id="q")

    def reply(*tokens: tuple[object, object]) -> Result:
        listed = [{"token": token, "logprob": value} for token, value in tokens]
        content = [{**listed[0], "top_logprobs": listed}]
        raw = json.dumps({"choices": [{"logprobs": {"content": content}}]}).encode()
        return Result(ResultKey("d", "m", "text", 0), "q", Reply("a", raw=raw), None, (), None, None)

    many = [("x" * 10_000, 5.0), ("\ud800", -9999.0), *((f"t{each}", -1.0 - each) for each in range(5_000)), (7, "no")]
    (found,) = make_logprob_days({"d": case}, 1, [reply(*many)])
    assert found.answered == 1
    assert len(found.logprobs) == 5
    assert max(map(len, found.logprobs)) <= 40
    assert set(found.logprobs.values()) <= {0.0, -1.0, -2.0, -3.0, -4.0}
    (single,) = make_logprob_days({"d": case}, 1, [reply(("yes", -0.1))])
    assert (single.answered, single.logprobs) == (0, {})
    (low,) = make_logprob_days({"d": case}, 1, [reply(("yes", -0.1), ("\ud800", -9999.0))])
    assert low.logprobs == {"yes": -0.1, "?": -100.0}
