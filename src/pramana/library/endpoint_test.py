"""`pramana.same`: are two models the same? Arguments become a request, a stored run of pairs becomes an answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pramana.errors import InvalidInput, describe_value
from pramana.library import format_run_reference, make_case_fields, read_selection, reword_errors_for_python
from pramana.library.listing import RunRecord
from pramana.library.named_models import read_models
from pramana.library.options import Cases, Model, make_unexpected_option_error
from pramana.library.report import Report, find_database_url
from pramana.library.sameness import Sameness, read_sameness
from pramana.library.session import RunSession, RunWithLimits, run_blocking
from pramana.library.threads import get_functions_loop
from pramana.providers.text.function import function_path
from pramana.request import Limits
from pramana.sameness import MAX_CONCURRENT_PAIRS, SamenessRequest, create_sameness_run
from pramana.store import open_store

if TYPE_CHECKING:
    from pramana.run.accounts import ProviderAccess
    from pramana.store.store import Store

_OPTIONS = (
    "suite", "tier", "selection", "scenarios", "prompts", "system_prompt", "max_tokens", "seed", "name", "note",
    "max_cost_usd", "max_total_tokens", "deadline_s", "timeout_s",
)  # fmt: skip


@reword_errors_for_python
def same(
    model_a: Model | Report | RunRecord,
    model_b: Model | None = None,
    *,
    cases: Cases = None,
    calls: int = 400,
    temperature: float = 1.0,
    progress: bool | None = None,
    **options: Any,
) -> Sameness:
    """Test whether two models are the same: send the same prompts to both, in pairs and in random order.

    The test ends as soon as a difference is proven, or after `calls` calls of both models together. The argument
    `temperature` is that of border prompts, whose one-word answer varies; a few other prompts, at most `prompts`, come
    from `cases` or from a tier of a suite. Further options are `suite`, `tier`, `selection`, `scenarios`,
    `system_prompt`, `max_tokens`, `seed`, `name`, `note`, and the limits `max_cost_usd`, `max_total_tokens`,
    `deadline_s` and `timeout_s`.

    With a report or an item of `runs()` as the only argument, `same` sends nothing and tests the two models of that
    run.

    >>> same(str.upper, str.lower, seed=1).is_different
    True
    """
    __tracebackhide__ = True
    if isinstance(model_a, Report | RunRecord):
        return _test_stored_run(model_a, model_b)
    if model_b is None:
        raise InvalidInput("name two models: pramana.same(model_a, model_b), or pass the report of a run of two models")
    if unknown := [name for name in options if name not in _OPTIONS]:
        raise make_unexpected_option_error("same", unknown[0])
    functions: dict[str, Callable[..., Any]] = {}
    names = _read_both_models(model_a, model_b, functions)
    limits = {name: value for name, value in options.items() if name in Limits.__struct_fields__}
    fields = {name: value for name, value in options.items() if name not in limits}
    for name in ("selection", "scenarios"):
        if fields.get(name) is not None:
            fields[name] = read_selection(name, fields[name])
    request = SamenessRequest(
        models=names,
        calls=calls,
        temperature=temperature,
        limits=Limits(concurrency=MAX_CONCURRENT_PAIRS, **limits),
        **make_case_fields(cases),
        **fields,
    )

    def create(store: Store, reach: ProviderAccess) -> RunWithLimits:
        return RunWithLimits(create_sameness_run(store, request, reach), request.limits)

    report = run_blocking(RunSession(create, functions, get_functions_loop), progress)
    return _test_stored_run(report, None)


def _read_both_models(model_a: Any, model_b: Any, functions: dict[str, Callable[..., Any]]) -> tuple[str, ...]:
    """Return the stored names of both models; two functions with one name are called a and b."""
    both = (model_a, model_b)
    if all(callable(each) for each in both) and model_a != model_b and function_path(model_a) == function_path(model_b):
        return read_models(None, {"a": model_a, "b": model_b}, functions)
    return read_models(None, both, functions)


def _test_stored_run(run: Report | RunRecord, model_b: Any) -> Sameness:
    if model_b is not None:
        example = "report.same(model_a, model_b)"
        raise InvalidInput(
            f"a report has both models in it, so pass no second argument, found {describe_value(model_b)}; to "
            f"choose two of its models: {example}"
        )
    with closing(open_store(find_database_url(run))) as store:
        return read_sameness(store, store.runs.find(format_run_reference(run).partition("@")[0]))
