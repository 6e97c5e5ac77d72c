"""`pramana.plan`: what it takes to see a change, for Python; the view that the command line and the API show."""

from collections.abc import Sequence
from contextlib import closing

from msgspec.structs import asdict

from pramana import settings
from pramana.app.plans import DetectionPlanRequest, DetectionPlanView, make_plan_view, parse_budget, parse_share
from pramana.errors import InvalidInput, PramanaError, Problem, describe_value
from pramana.library import make_case_fields, read_selection
from pramana.library.options import Cases, reword_for_python
from pramana.report.plans import render_plan
from pramana.request import RunRequest, Selection
from pramana.store import open_store


class DetectionPlan(DetectionPlanView, frozen=True, kw_only=True):
    """What it takes to see a change of the pass rate: in one comparison of two runs, and in a watch over days.

    `comparison.cases` are the cases that detect the loss, `watch.delays` the days until a notice and an alarm, and
    `advice` says what to do if the loss cannot be seen or paid for. Shares such as `detect` are from 0 to 1.
    """

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return render_plan(self)


def plan(
    detect: float | str,
    *,
    pass_rate: float | str = 0.9,
    cases: Cases = None,
    case_count: int | None = None,
    suite: str | None = None,
    tier: str | None = None,
    selection: Selection | None = None,
    model: str | Sequence[str] = (),
    judge: str | None = None,
    repeat: int = 1,
    flips: float | str | None = None,
    day_sd: float = 0.5,
    margin: float | str = 0.05,
    instruments: int = 8,
    baseline_days: int = 28,
    budget: str | None = None,
    watch: str | None = None,
) -> DetectionPlan:
    """Plan how many cases, repeats, days and calls show a loss of the pass rate; nothing is sent or stored.

    `detect`, `pass_rate`, `flips` and `margin` are shares of the cases: `0.05`, `"5%"` or `"5 points"`. `flips` is the
    share of cases whose verdict differs between two runs of the unchanged model, and `day_sd` how far its days differ,
    in logits. `instruments` is the number of instruments of the watch, `baseline_days` the length of its baseline.
    `cases`, or `suite` and `tier`, choose the cases; `case_count` states only how many there are. With a `model`, the
    plan has its tokens and cost; `budget` is `"2USD"`, `"2USD/day"` or `"500calls"`. With the name of a `watch`, its
    measured days set all of this but `detect`, `margin` and `budget`.

    >>> plan("10%", pass_rate=0.9, case_count=75).comparison.cases
    158
    """
    __tracebackhide__ = True
    try:
        request = DetectionPlanRequest(
            detect=_read_share("detect", detect),
            pass_rate=_read_share("pass_rate", pass_rate),
            repeats=repeat,
            flips=None if flips is None else _read_share("flips", flips),
            day_sd=day_sd,
            margin=_read_share("margin", margin),
            case_count=case_count,
            instruments=instruments,
            baseline_days=baseline_days,
            budget=None if budget is None else parse_budget(_require_text("budget", budget)),
            watch=watch,
            run=RunRequest(
                models=_read_models(model),
                judge=judge,
                suite=suite,
                tier=tier,
                selection=Selection() if selection is None else read_selection("selection", selection),
                **make_case_fields(cases),
            ),
        )
        with closing(open_store(settings.database_url())) as store:
            return DetectionPlan(**asdict(make_plan_view(store, request)))
    except PramanaError as error:
        raise (worded := reword_for_python(error)) from worded.__cause__


def _read_share(argument: str, value: float | str) -> float:
    if isinstance(value, str):
        try:
            return parse_share(value)
        except InvalidInput as error:
            raise InvalidInput.from_problems([Problem(str(error), argument)]) from None
    return value  # checked with the other fields


def _read_models(model: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(model, str):
        return (model,)
    given: object = model
    if isinstance(given, list | tuple) and all(isinstance(each, str) for each in given):
        return tuple(given)
    raise InvalidInput(f"model is the name of a model, or a list of names, found {describe_value(given)}")


def _require_text(argument: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{argument} is text such as '2USD' or '500calls/day', found {describe_value(value)}")
    return value
