"""A list of runs for the terminal: runs in, lines out; a table if the terminal is wide enough, else a block per run.

Every model has a line with its pass rate: rates of several models are never pooled.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pramana.analyse.judges import UNCALIBRATED
from pramana.analyse.labels import ModelDisplayNames, label_models, shorten_names
from pramana.analyse.numbers import format_interval, format_percent
from pramana.analyse.rates import Rate, make_model_rates
from pramana.model import Run
from pramana.report.terminal import count_columns, fit_to_width, pad_to_width
from pramana.store.engine import split_into_chunks
from pramana.store.history import RunOutcomeCounts
from pramana.store.store import Store

COLUMN_HEADS = ("Run", "Started", "Status", "Results")
ENDPOINT_TEST = "test of two endpoints"
"""Shown instead of a pass rate: a test of two endpoints has none to compare."""
RATE, SUITE, MODEL = "Pass rate (95 % interval)", "Suite", "Model"
MAX_SUITE_NAME_WIDTH = 32
"""The most columns of a suite's name in a table."""
MIN_MODEL_NAME_WIDTH = 40
"""The fewest columns of a model's name in a table; with less room, each run is a block."""
MAX_SHOWN_MODELS = 10
"""The most models listed per run."""
_GAP, _INDENT = "  ", "    "
_MAX_LISTED_RUNS = 1_000_000
"""The number of runs to request for a list without a limit."""


class ListedRun(NamedTuple):
    """A listed run and the pass rate of each of its models."""

    run: Run
    rates: Mapping[str, Rate]
    calibration: str | None = None
    """How far its judges agree with people, in a few words; None if no model judged."""


class RunList(NamedTuple):
    """The newest runs, and the total number of runs."""

    runs: Sequence[ListedRun]
    total: int


def read_runs(
    store: Store,
    *,
    limit: int | None = None,
    model: str | None = None,
    suite: str | None = None,
    status: str | None = None,
    name: str | None = None,
) -> RunList:
    """Return the newest runs that pass the filters; without a limit, all of them."""
    found, total = store.runs.read_page(
        limit=limit or _MAX_LISTED_RUNS, model=model, suite=suite, status=status, name=name
    )
    ended = [each for some in split_into_chunks(found) for each in store.history.count_run_outcomes(some)]
    marks = mark_judged_runs(store, found, ended)
    listed = [
        ListedRun(
            run,
            make_model_rates(run, each.outcome_counts, each.by_model, each.scored_model_variants) if each else {},
            mark,
        )
        for run, each, mark in zip(found, ended, marks, strict=True)
    ]
    return RunList(listed, total)


def mark_judged_runs(store: Store, runs: Sequence[Run], counts: Sequence[RunOutcomeCounts | None]) -> list[str | None]:
    """Return how far the judges of each run agree with people, in a few words; None if no model judged."""
    if not store.labels.read_state().label_count:  # without labels, nothing else need be imported
        return [UNCALIBRATED if each and each.judges else None for each in counts]
    from pramana.app.judge_marks import JudgeMarks

    return JudgeMarks(store).describe(runs, counts)


def render_runs(runs: RunList, columns: int) -> str:
    """Return the runs within so many columns below a header, with the total if these are not all."""
    lines = [*_RunTable(runs.runs, columns).iterate_lines()]
    if len(runs.runs) < runs.total:
        lines.append(f"{len(runs.runs):,} of {runs.total:,} runs; --limit {runs.total} lists all")
    return "\n".join(lines)


class _RunTable:
    """Runs in columns that fit their content."""

    def __init__(self, runs: Sequence[ListedRun], columns: int) -> None:
        self._runs, self._columns = runs, columns
        self._heads = [_make_leading_cells(each.run) for each in runs]
        self._widths = [max(map(len, cells)) for cells in zip(COLUMN_HEADS, *self._heads, strict=True)]
        self._rate = max([len(RATE), *(len(_format_rate(each, rate)) for each in runs for rate in each.rates.values())])
        self._suite = min(
            MAX_SUITE_NAME_WIDTH,
            max(
                [len(SUITE), *(count_columns(fit_to_width(each.run.plan.suite, MAX_SUITE_NAME_WIDTH)) for each in runs)]
            ),
        )
        before_model = sum(self._widths) + self._rate + self._suite + 6 * len(_GAP)
        self._is_wide = columns - before_model >= MIN_MODEL_NAME_WIDTH
        self._model = columns - (before_model if self._is_wide else len(_INDENT) + self._rate + len(_GAP))
        self._suites = shorten_names([each.run.plan.suite for each in runs], self._suite_width, count_columns)

    @property
    def _suite_width(self) -> int:
        return self._suite if self._is_wide else self._columns - sum(self._widths) - 4 * len(_GAP)

    def iterate_lines(self) -> Iterator[str]:
        """Yield the header and the runs."""
        head = _GAP.join(f"{cell:{size}}" for cell, size in zip(COLUMN_HEADS, self._widths, strict=True))
        if self._is_wide:
            yield f"{head}{_GAP}{RATE:{self._rate}}{_GAP}{pad_to_width(SUITE, self._suite)}{_GAP}{MODEL}"
        else:
            yield f"{head}{_GAP}{SUITE}"
            yield f"{_INDENT}{RATE:{self._rate}}{_GAP}{MODEL}"
        for each, cells in zip(self._runs, self._heads, strict=True):
            yield from self._format_run(each, cells)

    def _format_run(self, listed: ListedRun, cells: Sequence[str]) -> Iterator[str]:
        *left, results = (f"{cell:{size}}" for cell, size in zip(cells, self._widths, strict=True))
        head = _GAP.join([*left, f"{results.strip():>{self._widths[-1]}}"])
        names = label_models([*listed.rates], self._model, count_columns)
        shown = list(listed.rates.items())[:MAX_SHOWN_MODELS]
        rates = [f"{_format_rate(listed, rate):{self._rate}}" for _, rate in shown]
        models = [names[model] for model, _ in shown]
        if self._is_wide:
            blank = " " * len(head)
            suite = pad_to_width(self._suites[listed.run.plan.suite], self._suite)
            for place, (rate, model) in enumerate(zip(rates, models, strict=True)):
                start = f"{blank if place else head}{_GAP}{rate}{_GAP}"
                yield f"{start}{' ' * self._suite if place else suite}{_GAP}{model}".rstrip()
            indent = f"{blank}{_GAP}{'':{self._rate}}{_GAP}{'':{self._suite}}{_GAP}"
        else:
            yield f"{head}{_GAP}{self._suites[listed.run.plan.suite]}".rstrip()
            for rate, model in zip(rates, models, strict=True):
                yield f"{_INDENT}{rate}{_GAP}{model}"
            indent = f"{_INDENT}{'':{self._rate}}{_GAP}"
        yield from self._format_details(listed, names, indent)

    def _format_details(self, listed: ListedRun, names: ModelDisplayNames, indent: str) -> Iterator[str]:
        """Yield the notes below a run: further models, the prefix that the labels omit, its name and its note."""
        if len(listed.rates) > MAX_SHOWN_MODELS:
            yield f"{indent}and {len(listed.rates) - MAX_SHOWN_MODELS} more models"
        if names.dropped_prefix:
            shared = f"Every model name begins with {names.dropped_prefix}"
            yield f"{_INDENT}{fit_to_width(shared, self._columns - len(_INDENT))}"
        for label, text in (("Name", listed.run.name), ("Note", listed.run.note)):
            if text:
                line = f"{label}: {' '.join(text.split())}"
                yield f"{_INDENT}{fit_to_width(line, self._columns - len(_INDENT))}"


def _make_leading_cells(run: Run) -> tuple[str, ...]:
    # A test of two endpoints ends when it has its answer, mostly before its last call.
    is_complete = run.plan.pairing is not None and run.status == "finished"
    results = f"{run.stored:,}" if is_complete else f"{run.stored:,}/{run.expected:,}"
    return run.id, run.created[:10], str(run.status), results


def _format_rate(listed: ListedRun, rate: Rate) -> str:
    if listed.run.plan.pairing is not None:
        return ENDPOINT_TEST
    if rate.interval is None:
        return "no verdict"
    shown = f"{format_percent(rate.value):>7} ({format_interval((rate.interval.low, rate.interval.high))})"
    return f"{shown}, {listed.calibration}" if listed.calibration else shown
