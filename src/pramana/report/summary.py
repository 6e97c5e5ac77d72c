"""A run's summary for the terminal: results in; pass rates with intervals, then costs, times and reasons out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from pramana.analyse.gate import ExitDecision, decide_exit, make_no_verdicts_sentence
from pramana.analyse.labels import ModelDisplayNames, label_models, shorten_middle, shorten_names
from pramana.analyse.numbers import format_parameter
from pramana.analyse.summary import BREAKDOWNS, Rate, ResultTally, Summary
from pramana.errors import escape_control_characters
from pramana.model import Run
from pramana.report import figures
from pramana.report.exports import CaseResultPairs, list_model_names
from pramana.report.selection import SELECTION_SUFFIX
from pramana.report.terminal import count_columns, fit_to_width, get_terminal_columns, pad_to_width, wrap_text

if TYPE_CHECKING:
    from pramana.store.store import Store

MAX_SHOWN_REASONS = 8
MAX_REASON_COLUMNS = 160
"""Columns of the reason why a result failed."""
MAX_PROMPT_COLUMNS = 300
"""Columns shown of a system prompt, and of parameters."""
SHOWN_ROWS = 12
MAX_SENTENCE_COLUMNS = 100
"""The widest line of prose: longer ones are hard to read, even on a wide terminal."""
MIN_NAME_COLUMNS = 22
"""The fewest columns for the names of a table, so that the bars of most runs start in the same column."""
MAX_CASE_ID_COLUMNS = 40
"""Columns of a case's id; `--json` has all of it."""
RATE_BAR_COLUMNS = 10
_RATE_LINE_COLUMNS = 4 + 1 + RATE_BAR_COLUMNS + 1 + 1 + 22
"""Columns of a line of rates besides name and counts: the indent, the bar, the rate and its interval."""
MAX_DIMENSION_VALUE_COLUMNS = 28
"""Columns of a category or a tag beside the rates of several models."""
MIN_HEADING_COLUMNS = 10
"""The fewest columns of a model's name above its rates."""
COLUMN_GAP_WIDTH = 2


def summarise_run(store: "Store", run: Run) -> Summary:
    """Return the summary of a stored run."""
    return summarise_results(
        run, ((case, result) for _, case, result in store.results.iterate_numbered_with_cases(run))
    )


def summarise_results(run: Run, results: CaseResultPairs) -> Summary:
    """Return the summary of these results of a run."""
    tally = ResultTally.for_run(run)
    for case, result in results:
        tally.add(case, result)
    return tally.summary()


def decide_run_exit(
    run: Run, summary: Summary, fail_under: float | None = None, confidence: float | None = None
) -> ExitDecision:
    """Decide the exit code of a command that shows this run, separately for each model, missing results included."""
    models = list_model_names(run)
    expected = run.expected
    is_open_ended = run.plan.pairing or run.plan.search
    if is_open_ended and run.status == "finished":  # it ends when it has its answer, or has no room for more calls
        expected = 0
    there, each = summary.by["model"], expected // max(1, len(models))
    return decide_exit(
        summary,
        fail_under,
        {model: max(0, each - (there[model].total if model in there else 0)) for model in models},
        confidence,
    )


def print_summary(run: Run, summary: Summary, conclusion: str, *, with_plan: bool = False) -> None:
    """Print a summary within the terminal's width; `with_plan` adds what was sent with every case."""
    _SummaryPrinter(run, summary).print(conclusion, with_plan=with_plan)


class _SummaryPrinter:
    """The summary of a run, as wide as the terminal."""

    def __init__(self, run: Run, summary: Summary) -> None:
        self._run, self._summary = run, summary
        self._columns = get_terminal_columns()
        self._prose = min(self._columns, MAX_SENTENCE_COLUMNS)
        self._models = [target.typed for target in run.plan.targets]
        self._several = len(self._models) > 1
        by_model = {name: summary.by["model"].get(name, Rate()) for name in self._models}
        self._overall = by_model if self._several else {"all": summary.overall}
        self._breakdowns = {
            name: rows for name in BREAKDOWNS if (rows := summary.breakdown(name, self._models))
        }  # fmt: skip
        rates = [
            *self._overall.values(),
            *(rate for rows in self._breakdowns.values() for by in rows.values() for rate in by.values()),
        ]
        self._counts = max([9, *(len(_format_pass_count(rate)) for rate in rates)])
        room = self._columns - _RATE_LINE_COLUMNS - self._counts
        table = (
            _RateTable(self._models, [*self._breakdowns.values()], self._columns)
            if self._several and self._breakdowns
            else None
        )
        self._table = table if table and table.fits else None
        # One label per model for the whole page, so it must fit into the narrowest place.
        named = self._models if self._several else []  # a single model's full name is below the title
        self._names = label_models(named, min(room, self._table.room) if self._table else room, count_columns)
        shown = [*self._names.labels.values(), *(value for rows in self._breakdowns.values() for value in rows)]
        self._name_column = min(
            room, max([MIN_NAME_COLUMNS, *(count_columns(fit_to_width(each, room)) for each in shown)])
        )

    def print(self, conclusion: str, *, with_plan: bool) -> None:
        """Print everything: rates, then costs and times, then the reasons, then the conclusion."""
        run, summary = self._run, self._summary
        click.echo()
        click.echo(click.style(self._make_title(), bold=True))
        no_verdicts = self._print_no_verdicts()
        self._print_description(with_plan=with_plan)
        if self._names.dropped_prefix:
            self._print_wrapped(f"Every model name begins with {self._names.dropped_prefix}")
        self._print_rates(self._overall, self._names.labels or None)
        if counted := figures.describe_what_intervals_count(run):
            self._print_wrapped(counted)
        for sentence_of_judges in summary.mixed_judges:
            self._print_wrapped(f"several judges: {sentence_of_judges}")
        if summary.judged_by:
            self._print_wrapped(summary.judged_by)
        self._print_breakdowns()
        scores = [*figures.describe_repeats(summary.repeats), *figures.describe_scores(summary.scores)]
        if scores:
            click.echo("\n  scores")
        for name, model, measured in scores:
            on = f" on {self._names[model]}" if self._several else ""
            line = f"{fit_to_width(name, MAX_CASE_ID_COLUMNS)}{on}: {measured}"
            click.echo(wrap_text(line, self._prose - 2, "    ", "      "))
        self._print_rubric()
        click.echo()
        self._print_measurements()
        self._print_failures()
        self._print_reasons()
        for note in summary.not_reproducible:
            self._print_wrapped(f"not reproducible: {note}")
        if run.reason and run.status != "finished":
            self._print_wrapped(f"{run.status}: {run.reason}")
        if conclusion != no_verdicts:  # already printed at the top
            click.echo()
            click.echo(wrap_text(conclusion, self._prose))

    def _print_no_verdicts(self) -> str:
        """Print that no result has a verdict and how to get verdicts; return the sentence, empty if any has one."""
        from pramana.score.scoring import NO_JUDGE_REASON, VOICE_JUDGE_REASON

        run, summary = self._run, self._summary
        sentence = make_no_verdicts_sentence(summary.overall)
        if sentence:
            click.echo(click.style(wrap_text(sentence, self._prose), fg="yellow", bold=True))
            if any(text in reason.text for reason in summary.reasons for text in (NO_JUDGE_REASON, VOICE_JUDGE_REASON)):
                click.echo(wrap_text(f"Judge the stored replies: pramana rescore {run.id} --judge MODEL", self._prose))
        return sentence

    def _print_rubric(self) -> None:
        """Print the means of a judge's rubric scores."""
        rows = figures.make_rubric_rows(self._summary.rubric)
        if rows:
            click.echo(f"\n  {figures.RUBRIC_TITLE[:1].lower()}{figures.RUBRIC_TITLE[1:]}")
        for each in rows[:SHOWN_ROWS]:
            on = f" on {self._names[each.model]}" if self._several else ""
            line = f"{fit_to_width(each.group_label, MAX_CASE_ID_COLUMNS)}{on}: {each.sentence}"
            click.echo(wrap_text(line, self._prose - 2, "    ", "      "))
        self._print_more_count(len(rows))

    def _print_measurements(self) -> None:
        """Print the run's cost, its times and its calls."""
        run, summary = self._run, self._summary
        if spent := figures.describe_spending(run, summary):
            self._print_wrapped(spent)
        for who, how, measured in figures.describe_call_measurements(summary.voice) if summary.voice else ():
            model = (
                self._names[who]
                if self._several
                else shorten_middle(escape_control_characters(who), MAX_CASE_ID_COLUMNS, count_columns)
            )
            self._print_wrapped(f"{model}, {how}: {measured}")
        if summary.voice and (heard := figures.describe_verdicts_from_recording(run, summary.voice)):
            self._print_wrapped(heard)
        if engines := figures.describe_engines(summary.engines):
            self._print_wrapped(engines)

    def _print_description(self, *, with_plan: bool) -> None:
        """Print the run's name, note and selection, and what was sent with every case."""
        run = self._run
        if not self._several:
            self._print_wrapped(f"model: {', '.join(self._models)}")
        if run.name:
            self._print_wrapped(f"name: {run.name}")
        if run.note:
            self._print_wrapped(f"note: {run.note}")
        if run.plan.selection:
            self._print_wrapped(f"a selection, not the whole suite: {figures.describe_selection(run.plan.selection)}")
        if with_plan and run.plan.system_prompt:
            self._print_wrapped(
                f"system prompt: {fit_to_width(' '.join(run.plan.system_prompt.split()), MAX_PROMPT_COLUMNS)}"
            )
        if with_plan and (parameters := figures.describe_parameters(run)):
            self._print_wrapped(f"parameters: {fit_to_width(parameters, MAX_PROMPT_COLUMNS)}")
        if pairing := run.plan.pairing:
            temperature = format_parameter(pairing.border_parameters.get("temperature"))
            self._print_wrapped(
                f"a test of two endpoints; border prompts had temperature {temperature} and another seed for each "
                f"pair; the answer: pramana same --show {run.id}"
            )

    def _make_title(self) -> str:
        """Return the title: suite, run and voice setup; parts that do not fit beside the suite go below it."""
        said = figures.describe_voice_setup(self._run.plan)
        which = f"run {self._run.reference}{f' · {said}' if said else ''}"
        suite = self._run.plan.suite
        mark = SELECTION_SUFFIX if suite.endswith(SELECTION_SUFFIX) else ""
        beside = self._columns - count_columns(f" · {which}{mark}")
        stem = suite.removesuffix(mark)
        if len(stem) <= beside and count_columns(stem) <= beside:
            return f"{fit_to_width(stem, beside)}{mark} · {which}"
        return f"{fit_to_width(stem, self._columns - count_columns(mark))}{mark}\n{wrap_text(which, self._columns)}"

    def _print_wrapped(self, text: str) -> None:
        click.echo(wrap_text(text, self._prose - 2, "  ", "    "))

    # ── Rates ──

    def _print_rates(self, rates: Mapping[str, Rate], labels: Mapping[str, str] | None = None, indent: int = 4) -> None:
        """Print one line per rate: name, bar, passed out of those with a verdict, the rate and its interval."""
        column = self._name_column - (indent - 4)
        shown = dict(list(rates.items())[:SHOWN_ROWS])
        names = labels or shorten_names([*shown], column, count_columns)
        for name, rate in shown.items():
            share = rate.value or 0.0
            bar = (
                ("█" * round(share * RATE_BAR_COLUMNS)).ljust(RATE_BAR_COLUMNS, "·")
                if rate.scored_count
                else " " * RATE_BAR_COLUMNS
            )
            said = (
                f"{figures.format_percent(rate.value):>7} ({figures.format_rate_interval(rate)})"
                if rate.scored_count
                else ""
            )
            head = f"{'':{indent}}{pad_to_width(names[name], column)}"
            line = f"{head} {bar} {_format_pass_count(rate):>{self._counts}} {said}".rstrip()
            apart = ", ".join(_list_counts_without_verdict(rate))
            if apart and count_columns(line) + len(apart) < self._columns - 2:
                line += f" {apart}"
            elif apart:
                line += f"\n{'':{5 + self._name_column}}{apart}"
            click.echo(line)
        self._print_more_count(len(rates))

    def _print_more_count(self, total: int) -> None:
        if total > SHOWN_ROWS:
            click.echo(f"    … and {total - SHOWN_ROWS} more; --json shows all")

    def _print_breakdowns(self) -> None:
        """Print the breakdowns of the pass rate, separately for each model.

        Several models are side by side if there is room, else one below the other.
        """
        for title, rows in self._breakdowns.items():
            if self._table:
                click.echo()
                for line in self._table.iterate_lines(f"by {title}", rows, self._names):
                    click.echo(line)
                self._print_more_count(len(rows))
                continue
            click.echo(f"\n  by {title}")
            for model in self._models:
                if self._several:
                    click.echo(f"    {self._names[model]}")
                of = {value: by[model] for value, by in rows.items() if model in by}
                self._print_rates(of, indent=6 if self._several else 4)

    # ── Reasons ──

    def _print_failures(self) -> None:
        """Print a limited number of failures with their reasons, and how to see the rest."""
        run, summary = self._run, self._summary
        count, shown = summary.overall.failed, summary.failures[:MAX_SHOWN_REASONS]
        if not shown:
            return
        for each in shown:
            others = figures.describe_model_variant_and_repeat(
                run.plan.targets, run.plan.variants, run.plan.repeats, each, with_model=False
            )
            which = ", ".join(filter(None, [self._names[each.model] if self._several else "", others]))
            name = f"{fit_to_width(each.case, MAX_CASE_ID_COLUMNS)}{f' ({which})' if which else ''}"
            self._print_wrapped(f"failed {name}: {fit_to_width(' '.join(each.reason.split()), MAX_REASON_COLUMNS)}")
        more = f"… and {count - len(shown):,} more failed: pramana export {run.reference} --format csv has them all. "
        one = f"Full result: pramana show {run.reference} --id {_format_copyable_id(shown[0].case)}"
        self._print_wrapped(f"{more if count > len(shown) else ''}{one}")

    def _print_reasons(self) -> None:
        """Print the reasons why results have no verdict, and how to view one."""
        run, summary = self._run, self._summary
        for reason in summary.reasons[:MAX_SHOWN_REASONS]:
            cases = ", ".join(fit_to_width(case, MAX_CASE_ID_COLUMNS) for case in reason.cases) + (
                " …" if reason.more else ""
            )
            self._print_wrapped(f"{reason.count:,} {reason.outcome}: {reason.text} ({cases})")
        if len(summary.reasons) > MAX_SHOWN_REASONS:
            self._print_wrapped(f"… and {len(summary.reasons) - MAX_SHOWN_REASONS} further reasons")
        first = next((reason.cases[0] for reason in summary.reasons if reason.cases), "CASE")
        if summary.overall.errored and not summary.failures and not summary.voice:
            self._print_wrapped(f"Full result: pramana show {run.reference} --id {_format_copyable_id(first)}")
        if summary.voice:
            self._print_wrapped(f"Read a call: pramana show {run.reference} --id {_format_copyable_id(first)}")
            self._print_wrapped(f"Hear the calls: pramana export {run.reference} --audio DIR")


class _RateTable:
    """Rates of several models side by side, with one row per value."""

    def __init__(
        self, models: Sequence[str], breakdowns: Sequence[Mapping[str, Mapping[str, Rate]]], columns: int
    ) -> None:
        self._models, self._columns = models, columns
        values = [value for rows in breakdowns for value in [*rows][:SHOWN_ROWS]]
        self._first = max(
            count_columns(fit_to_width(each, MAX_DIMENSION_VALUE_COLUMNS)) for each in (*values, "by difficulty")
        )
        self.room = (columns - 4 - self._first) // len(models) - COLUMN_GAP_WIDTH
        """Columns for each model."""
        rates = [rate for rows in breakdowns for by in rows.values() for rate in by.values()]
        widths = {each: max(len(_format_rate(rate, with_interval=each)) for rate in rates) for each in (True, False)}
        self._with_interval = widths[True] <= self.room
        self._cell = widths[self._with_interval]
        self.fits = max(MIN_HEADING_COLUMNS, self._cell) <= self.room

    def iterate_lines(
        self, title: str, rows: Mapping[str, Mapping[str, Rate]], names: ModelDisplayNames
    ) -> Iterator[str]:
        """Yield a line of headings and one per value, with the results without a verdict below it."""
        gap = " " * COLUMN_GAP_WIDTH
        columns = {each: max(count_columns(names[each]), self._cell) for each in self._models}
        heads = (" " * (size - count_columns(names[each])) + names[each] for each, size in columns.items())
        yield f"  {pad_to_width(title, self._first + 2)}{gap}{gap.join(heads)}"
        shown = [*rows][:SHOWN_ROWS]
        values = shorten_names(shown, self._first, count_columns)
        for value in shown:
            by = rows[value]
            cells = (
                f"{_format_rate(by.get(model, Rate()), with_interval=self._with_interval):>{size}}"
                for model, size in columns.items()
            )
            yield f"    {pad_to_width(values[value], self._first)}{gap}{gap.join(cells)}"
            found = ((model, _list_counts_without_verdict(rate)) for model, rate in by.items())
            if apart := [f"{names[model]}: {', '.join(undecided)}" for model, undecided in found if undecided]:
                yield wrap_text("; ".join(apart), self._columns - 2, "      ", "      ")


def _format_rate(rate: Rate, *, with_interval: bool) -> str:
    if not rate.scored_count:
        return "–"
    passed = f"{_format_pass_count(rate)} {figures.format_percent(rate.value):>7}"
    if with_interval:
        return f"{passed} {f'({figures.format_rate_interval(rate)})':>14}"
    return passed


def _format_pass_count(rate: Rate) -> str:
    return f"{rate.passed:,}/{rate.scored_count:,}" if rate.scored_count else "–"


def _list_counts_without_verdict(rate: Rate) -> Sequence[str]:
    return [f"{getattr(rate, each)} {each}" for each in ("errored", "unscored", "skipped") if getattr(rate, each)]


def _format_copyable_id(case_id: str) -> str:
    """Return the id of a case for a command to copy; a placeholder if it is too long to show."""
    return case_id if fit_to_width(case_id, MAX_CASE_ID_COLUMNS) == case_id else "CASE"
