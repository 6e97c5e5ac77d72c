"""Judges asked again from Python: a run and its judges in; their verdicts on rearranged prompts stored.

What is asked, and what it may cost, is decided by `app.rejudging`, as for the command line and a server.
"""

import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from pramana.analyse.numbers import pluralise
from pramana.app.rejudging import RejudgeRequest, RejudgingPlan, plan_rejudging, rejudge
from pramana.app.rejudging_jobs import RejudgingEnd
from pramana.errors import BudgetSpent, InvalidInput, PramanaError
from pramana.library.named_models import read_judges
from pramana.library.options import Judge, make_unexpected_option_error, reword_for_python
from pramana.library.threads import get_functions_loop, wait_for_work
from pramana.model import Run
from pramana.providers.accounts import PassedFunctions
from pramana.request import Limits, check_struct_values
from pramana.run.accounts import ProviderAccess
from pramana.run.engine import Stop
from pramana.store import open_store


def ask_judges_again(
    store_url: str,
    run: Run,
    request: RejudgeRequest,
    judge: Judge | None,
    functions: Mapping[str, Callable[..., Any]],
    limits: Mapping[str, Any],
) -> None:
    """Ask the judges of a run again and store their verdicts; warn of requests that failed.

    `functions` are those that were passed to `evaluate`, by path; `judge` names the judges or has their functions.
    """
    __tracebackhide__ = True
    try:
        found = _ask(store_url, run, request, judge, functions, limits)
    except PramanaError as error:
        raise (worded := reword_for_python(error)) from worded.__cause__
    if found.failures:
        failed = f"{pluralise(found.unanswered_count, 'request')} to the judges failed; call it again to repeat them"
        warnings.warn(f"{failed}: {found.problem}", stacklevel=3)
    if found.unreadable_count:
        answers = pluralise(found.unreadable_count, "answer")
        warnings.warn(f"{answers} of the judges had no readable verdict; again=True asks once more", stacklevel=3)


def _ask(
    store_url: str,
    run: Run,
    request: RejudgeRequest,
    judge: Judge | None,
    functions: Mapping[str, Callable[..., Any]],
    limits: Mapping[str, Any],
) -> RejudgingEnd:
    """Ask the judges again and return what got no verdict."""
    if unknown := [name for name in limits if name not in Limits.__struct_fields__]:
        raise make_unexpected_option_error("measure_position_bias", unknown[0])
    allowed = Limits(**limits)
    check_struct_values(allowed)
    given: dict[str, Callable[..., Any]] = {}
    named = read_judges(judge, given)
    with closing(open_store(store_url)) as store:
        rejudging = plan_rejudging(store, run, request)
        if named:
            _refuse_other_judges(rejudging, named)
        reach = ProviderAccess(passed_functions=PassedFunctions({**functions, **given}, {}, get_functions_loop()))

        async def work(stop: Stop) -> RejudgingEnd:
            return await rejudge(store, run, rejudging, allowed, stop=stop, reach=reach)

        try:
            return wait_for_work(work) if rejudging.questions else RejudgingEnd()
        except BudgetSpent as error:
            error.add_note("the verdicts so far are stored; raise the limit and call it again to continue")
            raise


def _refuse_other_judges(rejudging: RejudgingPlan, named: tuple[str, ...]) -> None:
    """Raise an error if a judge is named that gave no verdict of the run; another judge has no bias to compare with."""
    judges = rejudging.judges
    if judges and (others := [each for each in named if each not in judges]):
        raise InvalidInput(
            f"judge: {others[0]} did not judge the replies of this run; {', '.join(judges)} did, and only that can be "
            "asked again"
        )
