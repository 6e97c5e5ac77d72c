"""What it takes to see a change, as text: the view of a plan in, lines for a terminal or a notebook out."""

from collections.abc import Iterator

from pramana.analyse.drift import ALARM, MONTH_DAYS, NOTICE
from pramana.analyse.numbers import format_loss, pluralise
from pramana.analyse.summary import KnownTotal
from pramana.app.plans import DetectionPlanView, LossDelayView, SpendingView
from pramana.report import figures

MIN_NAMED_LOSS = 0.0005
"""A share of the cases: if they detect a loss as small as this, the plan says "even" twice as much."""


def render_plan(plan: DetectionPlanView) -> str:
    """Return a plan line by line: one comparison, its table, a watch, what they take, the advice, the assumptions."""
    return "\n".join(_format_lines(plan))


def _format_lines(plan: DetectionPlanView) -> Iterator[str]:
    after = plan.pass_rate - plan.detect
    yield (
        f"To see the pass rate fall from {_percent(plan.pass_rate)} to {_percent(after)} ({format_loss(plan.detect)}):"
    )
    yield ""
    yield from _format_comparison(plan)
    yield ""
    yield from _format_table(plan)
    yield ""
    yield from _format_watch(plan)
    if plan.advice:
        yield ""
        yield "Advice"
        yield from (f"  {each}" for each in plan.advice)
    yield ""
    yield from _format_assumptions(plan)


def _format_comparison(plan: DetectionPlanView) -> Iterator[str]:
    comparison, repeats = plan.comparison, _format_repeats(plan.repeats)
    yield f"One comparison of two runs, {repeats}"
    needed = "more than a million cases" if comparison.cases is None else pluralise(comparison.cases, "case")
    yield f"  {needed} to detect it with a probability of {_percent(plan.power)}"
    yield (
        f"  {pluralise(comparison.cases_to_exclude_margin, 'case')} to exclude a loss of {format_loss(plan.margin)} if "
        "nothing changed"
    )
    here, source = comparison.with_these_cases, f" of {plan.case_source}" if plan.case_source else ""
    verb = "detects" if here.cases == 1 else "detect"
    yield f"  {pluralise(here.cases, 'case')}{source} {verb} {_format_detectable(here.loss)}"
    if comparison.spending:
        yield f"  Both runs: {_format_spending(comparison.spending, plan)}"


def _format_detectable(loss: float | None) -> str:
    if loss is None:
        return "no loss, however large"
    return format_loss(loss) if loss > MIN_NAMED_LOSS else f"even {format_loss(2 * MIN_NAMED_LOSS)}"


def _format_table(plan: DetectionPlanView) -> Iterator[str]:
    """Yield the smallest losses as a table of cases by repeats."""
    rows = sorted({each.cases for each in plan.comparison.table})
    columns = sorted({each.repeats for each in plan.comparison.table})
    losses = {(each.cases, each.repeats): each.loss for each in plan.comparison.table}
    yield "Smallest loss that a comparison detects, in points"
    yield f"  {'cases':>7}" + "".join(f"{_format_repeats(each):>12}" for each in columns)
    for cases in rows:
        cells = (losses[cases, each] for each in columns)
        yield f"  {cases:>7,}" + "".join(f"{'–' if each is None else f'{each * 100:.1f}':>12}" for each in cells)


def _format_watch(plan: DetectionPlanView) -> Iterator[str]:
    watch = plan.watch
    cases = pluralise(plan.cases, "case")
    yield f"A watch of {cases} a day, {_format_repeats(plan.repeats)}, after {watch.baseline_days} days of baseline"
    yield f"  {'loss':>11}  {'days until a notice':<24}  days until an alarm"
    for each in watch.delays:
        yield f"  {format_loss(each.loss):>11}  {_format_days(each, 'notice'):<24}  {_format_days(each, 'alarm')}"
    yield f"  Per day: {_format_spending(watch.spending_per_day, plan)}"
    yield f"  Baseline and {MONTH_DAYS} days: {_format_spending(watch.spending_with_baseline, plan)}"


def _format_days(delay: LossDelayView, level: str) -> str:
    days, share = getattr(delay, f"{level}_days"), getattr(delay, f"{level}_share")
    when = f"> {MONTH_DAYS}" if days is None else str(days)
    return f"{when} (seen in {share:.0%})".replace("%", " %")


def _format_spending(spending: SpendingView, plan: DetectionPlanView) -> str:
    calls = pluralise(spending.calls, "call")
    if not plan.models:
        return calls
    if spending.input_tokens is None or spending.output_tokens is None:
        tokens = "tokens unknown"
    else:
        tokens = f"{spending.input_tokens:,} tokens in, {spending.output_tokens:,} out"
    cost = (
        "cost unknown" if spending.cost_usd is None else f"about {figures.format_cost(KnownTotal(spending.cost_usd))}"
    )
    return f"{calls}, {tokens}, {cost}"


def _format_assumptions(plan: DetectionPlanView) -> Iterator[str]:
    yield "Assumptions"
    yield (
        f"  {_percent(plan.flips)} of the cases flip between two runs of the unchanged model. If its replies vary "
        "less, fewer cases flip, and repeats add less."
        + ("" if plan.measured else " Compare two runs to measure this share.")
    )
    if plan.measured:
        days, correlation = pluralise(plan.measured.days, "day"), plan.measured.next_day_rank_correlation
        yield (
            f"  Pass rate, flips and the deviation of days are those of {days} of the watch {plan.measured.name}, "
            f"where a day's correlation with the next one is {correlation:.2f}."
        )
    if plan.day_sd:
        yield (
            f"  Days differ by {format_loss(plan.watch.day_sd_points)} without any change ({plan.day_sd:.2g} logits, "
            "one standard deviation), and so do two runs on different days, however many cases they have."
        )
    else:
        yield "  Days do not differ unless the model changes."
    instruments = plan.watch.instruments
    if instruments > 1:
        yield (
            f"  The watch has {instruments} instruments, such as the pass rate and the length of replies. Together "
            f"they keep one rate of false alarms, so each needs {instruments} times the evidence."
        )
    notices, alarms = _percent(NOTICE.false_alarm_share()), _percent(ALARM.false_alarm_share())
    yield (
        "  Days until a notice or an alarm are medians of simulated months whose days are independent. Without a "
        f"change, at most {notices} of the months have a notice, and {alarms} an alarm."
    )
    if plan.priced_cases:
        yield f"  Tokens and cost are those of an average case of {plan.priced_cases}, and approximate."
    for name in plan.unknown_prices:
        yield f"  No price is known for {name}, so the cost is unknown."
    yield "Nothing was sent or stored."


def _format_repeats(repeats: int) -> str:
    return pluralise(repeats, "repeat")


def _percent(share: float) -> str:
    """Format a share without needless digits.

    >>> _percent(0.9), _percent(0.875), _percent(0.0003)
    ('90 %', '87.5 %', '0.03 %')
    """
    return f"{share * 100:.3g} %"
