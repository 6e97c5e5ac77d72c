"""The report of a run for Python: the pass rate with its interval, costs, failures and exports.

A `Report` is created once the run has ended. It holds the summary; results stay in the store and are read on demand.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from pramana import settings
from pramana.analyse.gate import check_pass_rate
from pramana.analyse.intervals import Interval
from pramana.analyse.judges import describe_calibrations_briefly
from pramana.analyse.summary import Rate, Summary
from pramana.app.model_names import list_model_names
from pramana.errors import InvalidInput, describe_value, escape_control_characters, quote_text
from pramana.library.by_model import ByModel
from pramana.library.listing import RunRecord
from pramana.model import Outcome, Run
from pramana.report import figures
from pramana.report.resuming import format_resume_call
from pramana.report.summary import summarise_run
from pramana.store import make_url_absolute, open_store

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from pramana.analyse.comparison import FailOn
    from pramana.app.rescoring import ScoringView
    from pramana.app.views import ResultDetailView
    from pramana.library.baseline import CheckedBaseline
    from pramana.library.comparison import Comparison, ComparisonTable
    from pramana.library.judge_report import JudgeReport
    from pramana.library.options import Judge
    from pramana.library.sameness import Sameness
    from pramana.report.exporters import Exporter
    from pramana.store.store import Store

MAX_SHOWN_RESULTS_NOT_PASSED = 10
"""Results that the message of a failed assertion shows."""
MAX_SHOWN_CHARACTERS = 500
"""Characters of a prompt or a reply there."""


class ModelReport(Struct, frozen=True):
    """The results of one model."""

    model: str
    passed: int
    failed: int
    errored: int
    unscored: int
    skipped: int
    pass_rate: float | None
    """The pass rate of the results with a verdict; None without any."""
    interval: tuple[float, float] | None
    """The 95 % interval of the pass rate, with cases as the units."""


class Report:
    """The report of a run.

    >>> import pramana
    >>> report = pramana.evaluate([{"input": "Say yes.", "ideal": "yes"}], model=lambda prompt: "No.")
    >>> report.pass_rate, [each.case_id for each in report.failures] == [each.case_id for each in report.results()]
    (0.0, True)
    """

    def __init__(
        self,
        run: Run,
        summary: Summary,
        store_url: str | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        """Take a run and its summary; `functions` are the models and judges that were passed as functions."""
        self._store_url = store_url or current_database_url()
        self._run, self._summary, self._functions = run, summary, functions or {}

    # ── The run ──

    @property
    def run(self) -> Run:
        """The run with its plan, as it was stored."""
        return self._run

    @property
    def summary(self) -> Summary:
        """The run's pass rates by category, difficulty, tag, language, check and model, with tokens, costs and times.

        `report.summary.overall` and `report.summary.by["category"]["billing"]` are rates, each with `value` (the pass
        rate) and `interval`.
        """
        return self._summary

    @property
    def run_id(self) -> str:
        """The id of the run, for `pramana show`, `resume` and `compare`."""
        return self.run.id

    @property
    def finished(self) -> bool:
        """Whether every case was sent; False after an interrupt, or if a cost or time limit ended the run."""
        return self.run.status == "finished"

    @property
    def stop_reason(self) -> str | None:
        """The reason why the run ended early; None if the run finished."""
        return None if self.finished else self.run.reason or self.run.status

    @property
    def models(self) -> list[str]:
        """The names of the tested models, as they were passed."""
        return [target.typed for target in self.run.plan.targets]

    # ── Pass rates ──

    @property
    def by_model(self) -> dict[str, ModelReport]:
        """The results of each model, by its name; `report.by_model["before"]` finds `python:shop:before` too."""
        rates = self.summary.by["model"]
        reports = {name: _make_model_report(name, rates.get(name, Rate())) for name in self.models}
        return ByModel(list_model_names(self.run), reports)

    @property
    def pass_rate(self) -> float | None:
        """The share of results with a verdict that passed, without errored ones; for several models, use `by_model`.

        It is None when no result has a verdict. In an `if`, use `passed` or `assert_pass_rate`, which count errors.
        """
        return self._only_model_report.pass_rate

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the pass rate. For several models, use `by_model`."""
        return self._only_model_report.interval

    @property
    def passed(self) -> bool:
        """Whether every case was sent and every result passed."""
        return self.finished and self.summary.overall.passed == self.summary.overall.total > 0

    @property
    def cost_usd(self) -> float | None:
        """The cost of the run, judges included; None if a price or a token count is unknown."""
        return self.summary.cost_usd.value

    @property
    def _only_model_report(self) -> ModelReport:
        by_model = self.by_model
        if len(by_model) > 1:
            raise InvalidInput(
                f"the report has {len(by_model)} models, whose results are not pooled; "
                f"use report.by_model[{self.models[0]!r}]"
            )
        return next(iter(by_model.values()))

    # ── Results ──

    def results(self, *, raw: bool = False) -> "Iterator[ResultDetailView]":
        """Yield every result with its case, reply and checks, in the order they were stored.

        With `raw`, each reply has the provider's response as it came.
        """
        from pramana.app.runs import result_detail_view

        with closing(open_store(self._store_url)) as store:
            for seq, case, result in store.results.iterate_numbered_with_cases(self.run, with_raw=raw):
                yield result_detail_view(seq, case, result, self.run.plan.system_prompt)

    @cached_property
    def failures(self) -> "list[ResultDetailView]":
        """The results that failed, in the order of the cases."""
        return self._sort_by_case(each for each in self.results() if each.outcome is Outcome.FAILED)

    @cached_property
    def errors(self) -> "list[ResultDetailView]":
        """The errored results, without a reply or with a check that raised an error, in the order of the cases."""
        return self._sort_by_case(each for each in self.results() if each.outcome is Outcome.ERRORED)

    def _sort_by_case(self, results: "Iterable[ResultDetailView]") -> "list[ResultDetailView]":
        """Sort results in the order of their cases; the store has them in the order in which they ended."""
        found = list(results)
        with closing(open_store(self._store_url)) as store:
            places = store.cases.find_positions(self.run, {each.case_digest for each in found})
        models = {name: number for number, name in enumerate(self.models)}
        return sorted(found, key=lambda each: (models[each.model], places[each.case_digest], each.variant, each.repeat))

    @property
    def scorings(self) -> "Sequence[ScoringView]":
        """The scorings of the run, oldest first: number 0 came with the replies, each re-scoring adds one.

        `pramana.load_report("RUN@0")` is the report by the first one.
        """
        from pramana.app.rescoring import scoring_views

        with closing(open_store(self._store_url)) as store:
            return scoring_views(store, self.run)

    def use_scoring(self, number: int) -> "Sequence[ScoringView]":
        """Make the scoring with this number current until the run is re-scored, and return all scorings of the run.

        This report stays as it is; `pramana.load_report(report.run_id)` reads the run by that scoring.
        """
        from pramana.app.rescoring import make_scoring_current

        __tracebackhide__ = True
        if not isinstance(number, int):
            raise InvalidInput(f"number: expected the number of a scoring, found {describe_value(number)}")
        with closing(open_store(self._store_url)) as store:
            return make_scoring_current(store, self.run, number)

    def judge_report(self) -> "JudgeReport":
        """Return how far the judges of the run agree with people, by the labels of `pramana judge label`.

        It includes their position bias if `measure_position_bias` or `pramana judge swap` has measured it.

        `print(report.judge_report())` shows it as text.
        """
        from pramana.app.calibrations import make_judge_report
        from pramana.library.judge_report import JudgeReport

        with closing(open_store(self._store_url)) as store:
            view = make_judge_report(store, self.run)
        return JudgeReport(**{name: getattr(view, name) for name in view.__struct_fields__})

    def measure_position_bias(
        self,
        count: int = 100,
        *,
        criterion_last: bool = False,
        again: bool = False,
        judge: "Judge | None" = None,
        **limits: Any,
    ) -> "JudgeReport":
        """Ask the judges of the run again, with the same and with swapped answers, and return their report.

        The judges judge `count` replies again; with `criterion_last` they also judge prompts with the criterion after
        the reply. Answers that are stored are not asked for again, unless they have no readable verdict and `again` is
        true. The verdicts of the run stay as they are.
        Functions that were passed to `evaluate` are called again; for a report from `load_report`, pass them as
        `judge`. Limits are `max_cost_usd`, `max_total_tokens`, `deadline_s`, `concurrency` and `timeout_s`.

        >>> import pramana
        >>> case = {"input": "Say please.", "check": {"type": "llm_judge", "judge_prompt": "Is it polite?"}}
        >>> report = pramana.evaluate(case, model=str.upper, judge=lambda prompt: prompt.rstrip().endswith("NO."))
        >>> bias = report.measure_position_bias().judges[0].position_bias
        >>> bias.repetition.changed, bias.effects[0].changes.changed
        (0, 1)
        """
        from pramana.app.rejudging import RejudgeRequest
        from pramana.library.position_bias import ask_judges_again

        __tracebackhide__ = True
        request = RejudgeRequest(count=count, criterion_last=criterion_last, again=again)
        ask_judges_again(self._store_url, self._run, request, judge, self._functions, limits)
        return self.judge_report()

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat dictionary per result, with the columns of the CSV export."""
        from pramana.app.calibrations import with_calibrations
        from pramana.report.tables import iterate_records

        with closing(open_store(self._store_url)) as store:
            return list(iterate_records(with_calibrations(store, self.run), store.results.iterate_with_cases(self.run)))

    def to_pandas(self) -> "pd.DataFrame":
        """Return the results as a pandas data frame; pandas must be installed. Missing numbers are NaN."""
        try:
            import pandas as pd
        except ImportError as error:
            raise InvalidInput("to_pandas needs pandas; install it: pip install pandas") from error
        from pramana.report.tables import COLUMN_TYPES

        frame = pd.DataFrame(self.to_records(), columns=list(COLUMN_TYPES))
        numbers = [name for name, kind in COLUMN_TYPES.items() if kind in (int, float)]
        return frame.astype({name: "float64" for name in numbers if frame[name].isna().all()})

    def to_polars(self) -> "pl.DataFrame":
        """Return the results as a polars data frame; polars must be installed."""
        try:
            import polars as pl
        except ImportError as error:
            raise InvalidInput("to_polars needs polars; install it: pip install polars") from error
        from pramana.report.tables import COLUMN_TYPES

        return pl.DataFrame(self.to_records(), schema=dict(COLUMN_TYPES))

    def save(self, path: str | Path, format: "str | Exporter | None" = None) -> Path:  # noqa: A002
        """Write the report to a file and return its path.

        The extension selects the format: `.html`, `.md`, `.json`, `.jsonl`, `.csv`, `.parquet`, `.xml` (JUnit), or that
        of an installed exporter; `format`, a name or an exporter, overrides it.
        """
        from pramana.app.calibrations import with_calibrations
        from pramana.report.exporters import Exporter, find_exporter, find_exporter_for_path, write_file

        __tracebackhide__ = True
        given: Any = path
        if not isinstance(given, str | PathLike) or not str(given).strip():
            raise InvalidInput(f"path: expected the path of a file to write, found {describe_value(path)}")
        if not isinstance(format, str | Exporter | None):
            raise InvalidInput(
                f"format: expected the name of a format, or an exporter made by @pramana.exporter, found "
                f"{describe_value(format)}"
            )
        path = Path(path)
        found = (
            find_exporter_for_path(path)
            if format is None
            else find_exporter(format)
            if isinstance(format, str)
            else format
        )
        try:
            with closing(open_store(self._store_url)) as store:
                write_file(found, path, with_calibrations(store, self.run), store.results.iterate_with_cases(self.run))
        except (OSError, ValueError) as error:  # a ValueError for a name that no file can have
            why = getattr(error, "strerror", None) or error
            hint = "; create its folder first" if isinstance(error, FileNotFoundError) else "; choose another path"
            raise InvalidInput(
                f"{quote_text(str(path), MAX_SHOWN_CHARACTERS)} cannot be written: {why}{hint}"
            ) from None
        return path

    # ── The models of the run ──

    def compare_models(self, against: str | None = None, *, any_judge: bool = False) -> "ComparisonTable":
        """Compare every two models of the run, or each with the model `against`, and decide all pairs together.

        The table is that of `pramana.compare_several(report)`; `pramana.compare(report)` compares two models in detail.
        """
        from pramana.app.references import make_run_reference, resolve_several_sides
        from pramana.library.comparison import make_comparison_table

        __tracebackhide__ = True
        with closing(open_store(self._store_url)) as store:
            several = resolve_several_sides([make_run_reference(store, self.run.reference)], against=against)
            return make_comparison_table(several, any_suite=False, any_judge=any_judge, margin=5.0)

    def same(self, model_a: str | None = None, model_b: str | None = None) -> "Sameness":
        """Test whether two models of the run are the same, by the replies that it stored; nothing is sent.

        Without arguments, `same` tests the two models of the run. Replies to the same case and repeat are a pair. Only
        a run that `pramana.same` started draws by lot which model is called first; for any other run, `caveats` says
        what the test assumes.
        """
        from pramana.library.sameness import read_sameness

        if (model_a is None) != (model_b is None):
            raise InvalidInput("name both models, as in report.same(model_a, model_b), or none of them")
        models = None if model_a is None or model_b is None else (model_a, model_b)
        with closing(open_store(self._store_url)) as store:
            return read_sameness(store, self.run, models)

    # ── A baseline ──

    def compare_with_baseline(
        self, baseline: "str | Path | Report | RunRecord", *, margin: float = 5.0
    ) -> "Mapping[str, Comparison]":
        """Compare each model of the run with a baseline, and return the comparisons by model.

        The baseline is a report, the id or the name of a run, an item of `runs()`, or the path of a results.json file.
        If several runs have the name, the newest finished one but this run is the baseline. `margin` is the largest
        acceptable loss of the pass rate, in points.
        """
        __tracebackhide__ = True
        return self._check_baseline(baseline, margin, "regression").comparisons

    # ── Assertions ──

    def assert_no_regression(
        self,
        baseline: "str | Path | Report | RunRecord",
        *,
        margin: float = 5.0,
        fail_on: Literal["regression", "inconclusive"] = "regression",
    ) -> None:
        """Raise `AssertionError` if a model is proven to be worse than in the baseline by more than the margin.

        It is raised too if a result is missing or errored, or if no case can be compared; with
        `fail_on="inconclusive"` also unless a loss as large as the margin is excluded. `pramana run --baseline` decides
        in the same way. `compare_with_baseline` says what a baseline may be.
        """
        from pramana.library.baseline import describe_failed_check

        __tracebackhide__ = True
        found = self._check_baseline(baseline, margin, fail_on)
        if found.exit_code:
            unfinished = [] if self.finished else [self._describe_unfinished()]
            raise AssertionError("\n".join([*describe_failed_check(found), *unfinished]))

    def _check_baseline(self, baseline: object, margin: float, fail_on: "FailOn") -> "CheckedBaseline":
        from pramana.library.baseline import check_baseline

        __tracebackhide__ = True
        if isinstance(baseline, Report):
            reference: object = baseline.run.reference
        else:
            reference = baseline.id if isinstance(baseline, RunRecord) else baseline
        return check_baseline(self._store_url, self.run, find_database_url(baseline), reference, margin, fail_on)

    def assert_pass_rate(self, minimum: float, *, confidence: float | None = None) -> None:
        """Raise `AssertionError` unless the pass rate of each model is at least `minimum`.

        Results without a verdict count as failed. With `confidence`, the pass rate must be proven to be that high: the
        exact lower bound at that confidence decides, instead of what was observed.
        """
        __tracebackhide__ = True
        for name, value in (("minimum", minimum), ("confidence", confidence)):
            if value is None and name == "confidence":
                continue
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise InvalidInput(f"{name} is a share from 0 to 1, found {describe_value(value)}")
        self._require_pass_rate(minimum, confidence)

    def assert_passed(self) -> None:
        """Raise `AssertionError` unless every result passed."""
        __tracebackhide__ = True
        self._require_pass_rate(1.0, None)

    def _require_pass_rate(self, minimum: float, confidence: float | None) -> None:
        __tracebackhide__ = True
        rates, expected = self.summary.by["model"], self.run.expected // max(1, len(self.models))
        missed = [
            f"{name}: {found.sentence}" if len(self.models) > 1 else found.sentence
            for name in self.models
            if not (found := check_pass_rate(rates.get(name, Rate()), expected, minimum, confidence)).is_met
        ]
        if missed:
            unfinished = [] if self.finished else [self._describe_unfinished()]
            raise AssertionError("\n".join([*missed, *unfinished, *self._describe_results_not_passed()]))

    def _describe_unfinished(self) -> str:
        missing = f"{self.run.expected - self.run.stored:,} of {self.run.expected:,} results are missing"
        return f"The run ended early: {self.stop_reason}; {missing}: {format_resume_call(self.run)}"

    def _describe_results_not_passed(self) -> Iterator[str]:
        wanted = self._sort_by_case(each for each in self.results() if each.outcome is not Outcome.PASSED)
        for each in wanted[:MAX_SHOWN_RESULTS_NOT_PASSED]:
            which = [each.model] if len(self.models) > 1 else []
            which += [f"repeat {each.repeat + 1}"] if self.run.plan.repeats > 1 else []
            suffix = f" ({', '.join(which)})" if which else ""
            yield f"\n{each.outcome.value}: {escape_control_characters(each.case_id)}{suffix}"
            yield f"  prompt: {_shorten_text(each.case.turns[-1].text)}"
            if each.reply:
                yield f"  reply:  {_shorten_text(figures.get_reply_text(each.reply))}"
            yield f"  reason: {_shorten_text(each.reason or '')}"
        if len(wanted) > MAX_SHOWN_RESULTS_NOT_PASSED:
            yield f"\n… and {len(wanted) - MAX_SHOWN_RESULTS_NOT_PASSED:,} more"
        yield f"\nAll of run {self.run_id}: pramana show {self.run_id}"

    # ── As text ──

    def __str__(self) -> str:
        rates = self.summary.by["model"]
        lines = [
            f"{f'{name}: ' if len(self.models) > 1 else ''}{_describe_rate(rates.get(name, Rate()))}"
            for name in self.models
        ]
        lines += [
            escape_control_characters(each) for each in (*self.summary.mixed_judges, self.summary.judged_by) if each
        ]
        return "\n".join(lines if self.finished else [*lines, self._describe_unfinished()])

    def __repr__(self) -> str:
        rates = ", ".join(
            f"{name} {figures.format_percent(each.pass_rate) if each.pass_rate is not None else 'no verdict'}"
            for name, each in self.by_model.items()
        )
        mark = describe_calibrations_briefly(self.summary.calibrations)
        return f"<Report of run {self.run_id}: {self.run.plan.suite}, {rates}{f', {mark}' if mark else ''}>"

    def _repr_html_(self) -> str:
        from pramana.report.notebook import render_report

        return render_report(self.run, self.summary, self.failures)


def make_report(
    store: "Store",
    run: Run,
    store_url: str | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Report:
    """Return the report of a run; it reads results from the store at the URL, by default the environment's."""
    from pramana.app.calibrations import with_calibrations

    run = with_calibrations(store, run)
    return Report(run, summarise_run(store, run), store_url, functions)


def current_database_url() -> str:
    """Return the URL of the database that the environment names now, independent of the working directory."""
    return make_url_absolute(settings.database_url())


def find_database_url(report_or_run: object) -> str:
    """Return the URL of the store that a report comes from; for anything else, that of the environment's store."""
    if isinstance(report_or_run, Report):
        return report_or_run._store_url  # noqa: SLF001 - private, because the URL may contain a password
    return current_database_url()


def _describe_rate(rate: Rate) -> str:
    """Describe how many results passed, and the other outcomes.

    >>> _describe_rate(Rate(passed=2, failed=1, errored=1))
    '2 of 3 passed (66.7 %, 95 % interval 9.4–99.2 %); 1 errored'
    """
    said = f"{rate.passed:,} of {rate.scored_count:,} passed"
    if rate.value is not None and rate.interval:
        low, high = (
            figures.format_percent(each).removesuffix(" %") for each in (rate.interval.low, rate.interval.high)
        )
        said += f" ({figures.format_percent(rate.value)}, 95 % interval {low}–{high} %)"
    if not rate.scored_count:
        said = "no result has a verdict"
    counts = ((each.value, getattr(rate, each.value)) for each in (Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED))
    others = ", ".join(f"{count:,} {name}" for name, count in counts if count)
    return f"{said}; {others}" if others else said


def _make_model_report(name: str, rate: Rate) -> ModelReport:
    interval: Interval | None = rate.interval
    counts: Mapping[str, int] = {each.value: getattr(rate, each.value) for each in Outcome}
    return ModelReport(
        model=name,
        **counts,
        pass_rate=rate.value,
        interval=(interval.low, interval.high) if interval else None,
    )


def _shorten_text(text: str) -> str:
    text = escape_control_characters(" ".join(text.split()))
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 1]}…"
