"""Short texts for the responses of `pramana mcp`: views in, plain lines out, the most important first."""

from collections.abc import Iterator, Sequence

from pramana.analyse.numbers import format_percent, pluralise
from pramana.app.baselines import BaselineCheckView
from pramana.app.briefs import FailedResultView, RateView, RunBriefView
from pramana.app.comparison_sides import describe_request_differences
from pramana.app.comparisons import ComparisonView
from pramana.app.local import ProblemView, ValidationView
from pramana.app.views import ListPage, ResultDetailView, RunView
from pramana.model import Outcome
from pramana.replies import describe_reply
from pramana.report import figures

MAX_SHOWN_TEXT_LENGTH = 500
"""Characters of a prompt or a reply; the structured response has more."""


def render_run(run: RunBriefView) -> str:
    """Return the outcome of a run: pass rates, cost, and results without a verdict."""
    lines = [_describe_run_status(run)]
    lines += [f"{model}: {render_rate(rate)}" for model, rate in run.by.get("model", {}).items()]
    lines += [run.judged_by] if run.judged_by else []
    cost = "not known" if run.cost_usd is None else f"${run.cost_usd:.4f}"
    lines.append(f"Cost: {cost}")
    for each in run.without_verdict:
        lines.append(f"{each.count:,} {each.outcome.value}: {_shorten_to_line(each.reason)} ({', '.join(each.cases)})")
    lines += [f"failed {each.case} ({each.model}): {_shorten_to_line(each.reason)}" for each in run.failed]
    failed = run.outcomes.failed if run.outcomes else 0
    if failed > len(run.failed):
        lines.append(f"… and {failed - len(run.failed):,} more failed")
    lines += [_shorten_to_line(each) for each in run.notes]
    return "\n".join(lines)


def render_rate(rate: RateView) -> str:
    """Return a pass rate with its interval, and how many results have no verdict.

    >>> render_rate(RateView(passed=9, failed=1, errored=0, unscored=0, skipped=0, pass_rate=0.9, interval=(0.6, 0.98)))
    '9 of 10 passed: 90.0 % (95 % interval 60.0–98.0 %)'
    """
    scored = rate.passed + rate.failed
    apart = [f"{getattr(rate, each)} {each}" for each in ("errored", "unscored", "skipped") if getattr(rate, each)]
    if not scored:
        return ", ".join(["no result with a verdict", *apart])
    shown = f"{rate.passed:,} of {scored:,} passed: {format_percent(rate.pass_rate)}"
    shown += f" (95 % interval {figures.format_interval(rate.interval)})"
    return ", ".join([shown, *apart])


def render_runs(page: ListPage[RunView]) -> str:
    """Return one line per run."""
    if not page.total:
        return "No runs yet."
    return "\n".join([f"{pluralise(page.total, 'run')}, newest first:", *map(_format_run_line, page.items)])


def render_failures(page: ListPage[FailedResultView], first_number: int, outcome: str) -> str:
    """Return a page of failures with prompt, expectation, reply and reason.

    `first_number` is the number of the first.
    """
    if not page.total:
        return f"No {outcome} results."
    last = first_number + len(page.items) - 1
    lines = [f"{page.total:,} {outcome}; these are {first_number:,} to {last:,}:"]
    for each in page.items:
        lines += ["", f"{each.case_id} ({each.model}, result {each.seq})", f"  prompt: {_shorten_to_line(each.prompt)}"]
        expected = " | ".join(map(_shorten_to_line, each.expected))
        if each.assertion or expected:
            lines.append(f"  expected: {' '.join(filter(None, (each.assertion, expected)))}")
        if each.reply is not None:
            lines.append(f"  reply: {_shorten_to_line(describe_reply(each.reply, each.tool_calls))}")
        lines.append(f"  reason: {_shorten_to_line(each.reason or '')}")
    return "\n".join(lines)


def render_results(results: Sequence[ResultDetailView]) -> str:
    """Return results with prompt, reply and every check."""
    return "\n\n".join("\n".join(_format_result_lines(each)) for each in results)


def render_comparison(comparison: ComparisonView) -> str:
    """Return the conclusion in a sentence, then the cases that changed."""
    lines = [
        comparison.sentence,
        describe_request_differences(each.detail for each in comparison.asked_differently),
        comparison.detail,
    ]
    lines += [comparison.reply_changes.sentence]
    lines += [each.sentence for each in (*comparison.times, *comparison.words) if each.sentence]
    for each in comparison.flips:
        lines.append(f"{'passes less often now' if each.direction == 'lost' else 'passes more often now'}: "
                     f"{each.case}, {each.detail}")  # fmt: skip
    if (more := comparison.lost + comparison.gained - len(comparison.flips)) > 0:
        lines.append(f"… and {more:,} more on other pages")
    return "\n".join(filter(None, lines))


def render_baseline_check(check: BaselineCheckView) -> str:
    """Return whether a run passed the check against its baseline, then the comparison of each model."""
    verdict = "Passed" if check.passed else "Failed"
    lines = [f"{verdict}, exit code {check.exit_code}: run {check.run} against the baseline {check.baseline}."]
    lines += [each for each in (check.incomplete, check.decided_together) if each]
    for each in check.models:
        lines += ["", f"{each.model} (exit code {each.exit_code}):", render_comparison(each.comparison)]
    return "\n".join(lines)


def render_validation(validation: ValidationView) -> str:
    """Return whether files are valid, then one line per problem."""
    counted = {
        "file": validation.files,
        "test case": validation.test_cases,
        "scenario": validation.scenarios,
        "error": validation.errors,
        "warning": validation.warnings,
    }
    files, test_cases, scenarios, errors, warnings = (pluralise(count, noun) for noun, count in counted.items())
    verdict = "valid" if validation.valid else "not valid"
    lines = [f"{verdict}: {files}, {test_cases}, {scenarios}; {errors}, {warnings}"]
    lines += map(render_problem, validation.problems)
    if (more := validation.errors + validation.warnings - len(validation.problems)) > 0:
        lines.append(f"… and {more:,} more")
    return "\n".join(lines)


def render_problem(problem: ProblemView) -> str:
    """Return a problem in the format of compilers: file, line, column, path in the document, message."""
    place = ":".join(str(each) for each in (problem.file, problem.line, problem.column) if each)
    kind = "warning: " if problem.severity == "warning" else ""
    return ": ".join(each for each in (place, problem.path, f"{kind}{_shorten_to_line(problem.message)}") if each)


def _describe_run_status(run: RunView) -> str:
    if run.status == "finished":
        return f"Run {run.id} of {run.suite} finished: {run.stored:,} results."
    reason = f": {run.reason}" if run.reason else ""
    kept = f"{run.stored:,} of {run.expected:,} results are stored"
    advice = "If no process is executing the run, resume the run."
    return f"Run {run.id} of {run.suite} is {run.status}{reason}. {kept}. {advice}"


def _format_run_line(run: RunView) -> str:
    rates = [
        (each.model, format_percent(each.pass_rate)) for each in run.model_rates or () if each.pass_rate is not None
    ]
    several = len(run.models) > 1
    shares = [f"{rate} passed{f' with {model}' if several else ''}" for model, rate in rates]
    judged = [run.calibration] if run.calibration and shares else []
    counts = ", ".join([f"{run.stored:,} of {run.expected:,} results", *shares, *judged])
    return f"{run.id}  {run.created_at[:16]}  {run.status}  {run.suite}  {', '.join(run.models)}: {counts}"


def _format_result_lines(result: ResultDetailView) -> Iterator[str]:
    which = f"{result.model}, {result.variant}, repeat {result.repeat}, result {result.seq}"
    yield f"{result.case_id} ({which}): {result.outcome.value}"
    for turn in result.case.turns:
        yield f"  {turn.role}: {_shorten_to_line(turn.text)}"
    if result.reply:
        yield f"  reply: {_shorten_to_line(figures.get_reply_text(result.reply))}"
    if result.failure:
        yield f"  no reply: {_shorten_to_line(result.failure.message)}"
    for check in result.checks:
        mark = "" if check.outcome is Outcome.PASSED else f" {_shorten_to_line(check.reason)}"
        yield f"  check {check.name}: {check.outcome.value}{mark}"


def _shorten_to_line(text: str) -> str:
    """Return a text on one line, shortened."""
    joined = " ".join(text.split())
    return joined if len(joined) <= MAX_SHOWN_TEXT_LENGTH else f"{joined[: MAX_SHOWN_TEXT_LENGTH - 1]}…"
