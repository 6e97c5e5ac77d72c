"""Every interval that Pramana shows, with its purpose, its functions and its lowest coverage: data only.

An interval that says 95 % and covers the truth in 84 % is worse than none. So each is registered here with its lowest
coverage over all settings that were tried, by exact enumeration or by simulation (`benchmarks/interval_coverage.py`). A
test compares this table with the code: what makes an `Interval`, has a field for one or names one in a text has to be
listed.
"""

from typing import Literal

from msgspec import Struct

REQUIRED_COVERAGE = 0.94


class RegisteredInterval(Struct, frozen=True):
    """One kind of interval that users see."""

    name: str
    purpose: str
    functions: tuple[str, ...]
    """The functions that make it, as `module:function`, within `pramana`."""
    fields: tuple[str, ...]
    """The fields that hold it on its way to terminal, reports, pages, API and library."""
    method: str
    checked_by: Literal["enumeration", "simulation"]
    lowest_coverage: float
    """Over all settings in `settings`; the benchmark prints which one."""
    settings: str


_DIFFERENCE_FIELDS = (
    "analyse.comparison:Comparison.interval",
    "analyse.comparison:_Evidence.interval",
    "analyse.voice:VoiceTax.interval",
    "app.comparisons:ComparisonNumbersView.interval",
)

REGISTERED_INTERVALS = (
    RegisteredInterval(
        name="pass rate",
        purpose="The rate over all cases of the same kind, with one reply a case or replies that count as one",
        functions=("analyse.mean_bounds:rate_interval",),
        fields=(
            "analyse.panels:PanelAgreement.unanimous_interval",
            "analyse.position_bias:VerdictChanges.interval",
            "analyse.rates:Rate.interval",
            "app.calibrations:PanelView.unanimous_interval",
            "app.position_bias:VerdictChangesView.interval",
            "app.briefs:RateView.interval",
            "app.comparison_tables:SideView.interval",
            "app.models:RateView.interval",
            "app.views:ModelRateView.interval",
            "app.views:RunView.interval",
            "library.report:ModelReport.interval",
            "library.report:Report.interval",
            "report.pictures:TrendPoint.interval_high",
            "report.pictures:TrendPoint.interval_low",
        ),
        method="Clopper and Pearson",
        checked_by="enumeration",
        lowest_coverage=0.95,
        settings="every proportion from 0 to 1, 5 to 1,000 cases",
    ),
    RegisteredInterval(
        name="lower bound of a pass rate",
        purpose="What `assert_pass_rate(..., confidence=)` and `--confidence` compare with the minimum",
        functions=("analyse.mean_bounds:rate_lower_bound",),
        fields=(),
        method="Clopper and Pearson, one-sided",
        checked_by="enumeration",
        lowest_coverage=0.95,
        settings="every proportion from 0 to 1, 5 to 1,000 cases",
    ),
    RegisteredInterval(
        name="difference of pass rates",
        purpose="By how much the pass rate of the second side differs, over the same cases",
        functions=("analyse.mean_bounds:case_mean_interval", "analyse.intervals:align_with_test"),
        fields=_DIFFERENCE_FIELDS,
        method="Gaffke's bounds of the mean over cases, cut or extended at zero where the exact test disagrees",
        checked_by="enumeration",
        lowest_coverage=0.95,
        settings="one reply a case: losses and gains of every probability, 5 to 100 cases",
    ),
    RegisteredInterval(
        name="difference of pass rates among several sides",
        purpose="By how much two of several sides differ, at the confidence at which Holm's correction tests this pair",
        functions=("analyse.mean_bounds:case_mean_interval", "analyse.intervals:align_with_test"),
        fields=("app.comparison_tables:PairView.interval",),
        method="As for two sides, at a higher confidence, so it contains theirs; for each pair, not all together",
        checked_by="enumeration",
        lowest_coverage=0.95,
        settings="those of two sides; a test checks that it contains their interval",
    ),
    RegisteredInterval(
        name="pass@k and pass^k",
        purpose="How often at least one of k replies to a case passes, and how often all do",
        functions=("analyse.mean_bounds:case_mean_interval",),
        fields=("analyse.repeats:RepeatRates.pass_all_k_interval", "analyse.repeats:RepeatRates.pass_at_k_interval"),
        method="Gaffke's bounds of the mean over cases",
        checked_by="simulation",
        lowest_coverage=0.945,
        settings="replies that agree, vary or belong to rare cases that always fail; 6 to 75 cases, 5 or 20 repeats",
    ),
    RegisteredInterval(
        name="median of differences in time",
        purpose="By how much the times of the second side differ, and by which factor",
        functions=("analyse.intervals:median_interval",),
        fields=(
            "analyse.changes:Change.interval",
            "analyse.changes:Change.ratio_interval",
            "app.comparisons:MeasuredChangeView.interval",
        ),
        method="Order statistics (the sign test inverted)",
        checked_by="enumeration",
        lowest_coverage=0.95,
        settings="every distribution, 6 to 1,000 cases",
    ),
    RegisteredInterval(
        name="upper bound of a percentile",
        purpose="What p95 and p99 of latencies and voice-to-voice times are at most",
        functions=("analyse.intervals:percentile_bound_rank", "analyse.intervals:bound_percentile"),
        fields=(),
        method="Order statistics, one-sided, with as many values as cases",
        checked_by="enumeration",
        lowest_coverage=0.95,
        settings="every distribution, 59 (p95) or 299 (p99) to 2,000 cases; times of one case alike or independent",
    ),
    RegisteredInterval(
        name="difference of word error rates",
        purpose="By how much the share of misheard words differs",
        functions=("analyse.intervals:ratio_difference_interval",),
        fields=(),
        method="Jackknife over cases, Student's quantile",
        checked_by="simulation",
        lowest_coverage=0.94,
        settings="cases of equal length, of very different length, and one case ten times as long; 6 to 50 cases",
    ),
    RegisteredInterval(
        name="mean of scores",
        purpose="The mean of a scorer's numbers or of a judge's ratings",
        functions=("analyse.intervals:skewed_mean_interval", "analyse.scores:_RunningMoments.interval"),
        fields=("analyse.scores:ScoreSummary.interval",),
        method="Student's interval together with Hall's, which corrects for skewness",
        checked_by="simulation",
        lowest_coverage=0.94,
        settings="normal, uniform, t with 3 degrees of freedom, exponential, beta(4.5, 0.5), ratings; 8 to 100 cases",
    ),
    RegisteredInterval(
        name="corrected pass rate and agreement of a judge",
        purpose="The pass rate by people's standards, and how well a judge agrees with them",
        functions=("analyse.calibration:_take_interval", "analyse.calibration:_widen"),
        fields=(
            "analyse.calibration:CorrectedRate.interval",
            "analyse.calibration:JudgeAgreement.accuracy_interval",
            "analyse.calibration:JudgeAgreement.kappa_interval",
            "app.calibrations:AgreementView.accuracy_interval",
            "app.calibrations:AgreementView.kappa_interval",
            "app.calibrations:CorrectedRateView.interval",
            "model:JudgeCalibration.interval",
        ),
        method="Jeffreys' posterior by seeded draws",
        checked_by="simulation",
        lowest_coverage=0.94,
        settings="pass rates 0.5 to 0.95, judges right in 80 to 98 %, 60 to 200 labels of 300 replies",
    ),
    RegisteredInterval(
        name="first day of a change",
        purpose="Between which days a change that a watch sees has begun",
        functions=("analyse.drift:ChangeStatistic.likeliest_first_days",),
        fields=(),
        method="The fewest candidate days with 99.95 % of the statistic, and the days between them",
        checked_by="simulation",
        lowest_coverage=0.95,
        settings="at the first notice or alarm; normal days and t with 3 degrees of freedom; drops of 2 to 4 "
        "standard deviations of a day, 5 or 20 days after a baseline of 28",
    ),
)

PRINTING_MODULES = (
    "analyse.changes",
    "analyse.comparison",
    "analyse.watch_sentences",
    "app.briefs",
    "app.comparison_tables",
    "app.comparisons",
    "app.models",
    "app.views",
    "app.watches",
    "library.report",
    "report.briefs",
    "report.comparison_table",
    "report.figures",
    "report.judging",
    "report.markdown",
    "report.notebook",
    "report.run_list",
    "report.run_summary",
    "show.cli.selftest",
    "show.mcp",
    "show.tools",
    "show.web.pages.comparison_markup",
    "show.web.pages.comparison_table",
    "show.web.pages.home",
    "show.web.pages.judges",
    "show.web.pages.watch_report_markup",
)
"""Modules with a text that names an interval or a confidence."""
