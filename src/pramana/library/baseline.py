"""A run against a baseline, for Python: what `Report.compare_with_baseline` and `Report.assert_no_regression` use."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from pramana.analyse.comparison import FailOn
from pramana.analyse.labels import TWO_RUN_LABELS
from pramana.app.baselines import BaselineRequest, check_sides, find_local_baseline, pair_with_baseline
from pramana.errors import InvalidInput, PramanaError, describe_value
from pramana.library.comparison import Comparison, make_comparison
from pramana.library.options import reword_for_python
from pramana.model import Run
from pramana.report.reply_pairs import render_reply_pair
from pramana.request import check_struct_values
from pramana.store import open_store

MAX_SHOWN_LOSSES = 10
"""Lost cases that the message of a failed assertion shows with both replies, for each model."""
TEXT_COLUMNS = 100
"""Columns of both replies in such a message."""


class CheckedBaseline(Struct, frozen=True):
    """A run compared with a baseline."""

    exit_code: int
    incomplete: str | None
    decided_together: str | None
    """That several models are decided together, in a sentence; None for one."""
    failed_models: tuple[str, ...]
    """Those whose comparison fails the check."""
    comparisons: Mapping[str, Comparison]
    """By model."""


def check_baseline(
    store_url: str, run: Run, baseline_store_url: str, baseline: object, margin: float, fail_on: FailOn
) -> CheckedBaseline:
    """Compare each model of a run with a baseline, which may be in another store."""
    __tracebackhide__ = True
    if not isinstance(baseline, str | Path):
        raise InvalidInput(
            "baseline: expected the id or the name of a run, a report, an item of pramana.runs() or the path of a "
            f"results.json file, found {describe_value(baseline)}"
        )
    try:
        return _check_baseline(
            store_url, run, baseline_store_url, BaselineRequest(baseline=str(baseline), margin=margin, fail_on=fail_on)
        )
    except PramanaError as error:
        raise reword_for_python(error) from None


def _check_baseline(store_url: str, run: Run, baseline_store_url: str, request: BaselineRequest) -> CheckedBaseline:
    check_struct_values(request)
    with closing(open_store(store_url)) as store, closing(open_store(baseline_store_url)) as baseline_store:
        sides = pair_with_baseline(store, run, find_local_baseline(baseline_store, request.baseline, run))
        check = check_sides(store, run, sides, request)
        return CheckedBaseline(
            check.exit_code,
            check.incomplete,
            check.decided_together,
            tuple(each.model for each in check.models if each.exit_code),
            {each.model: make_comparison(each.compared) for each in check.models},
        )


def describe_failed_check(check: CheckedBaseline) -> Iterator[str]:
    """Yield what failed: each model in a sentence, and the first cases that it lost with both replies."""
    if check.incomplete:
        yield check.incomplete
    if check.decided_together and check.failed_models:
        yield check.decided_together
    for model in check.failed_models:
        found = check.comparisons[model]
        yield f"{model}: {found}" if len(check.comparisons) > 1 else str(found)
        examples = [each for each in found.examples if each.change == "lost"][:MAX_SHOWN_LOSSES]
        for each in examples:
            yield f"\nlost: {each.case}"
            yield from render_reply_pair(each, TWO_RUN_LABELS, TEXT_COLUMNS)
        if len(found.lost) > len(examples):
            yield f"\n… and {len(found.lost) - len(examples):,} more lost cases"
