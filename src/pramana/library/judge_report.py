"""The judges' report of a run for Python: the view that the command line and the API show, readable as text."""

from pramana.app.calibrations import JudgeReportView
from pramana.report.judging import render_judge_report


class JudgeReport(JudgeReportView, frozen=True, kw_only=True):
    """How far the judges of a run agree with people, by the labels of the run's replies.

    The field `judges` has one entry per judge: its `agreement` with people, and in `models` the pass rate of each
    model, corrected for the judge's errors. The field `corrected` of a pass rate is None if the labels do not suffice;
    then `refusal` says why, and `missing_labels` about how many more labels would do. The field `position_bias` of a
    judge says how many of its verdicts depend on the order of the prompt; it is None until `pramana judge swap` has
    measured it.
    """

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return render_judge_report(self)
