"""Pramana in pytest: the function of the fixture `pramana_evaluate`, and `parametrize`, one test per case.

Both look for a relative path in the current folder and then beside the Python file that names it, so that a test finds
its cases wherever pytest is started. Errors with an explanatory message are raised without our frames: the last one
that pytest shows is the line of the test.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from inspect import currentframe
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from pramana import settings
from pramana.analyse.judges import describe_calibrations_briefly
from pramana.errors import Hint, InvalidInput, NotFound, PramanaError
from pramana.library import Report, evaluate, make_case_fields, read_selection
from pramana.library.options import Cases, reword_for_python
from pramana.load import CaseSources, is_built_in_scenario_path, path_exists
from pramana.planning import is_store_path, iterate_cases_at_paths
from pramana.request import Selection, check_struct_values
from pramana.store import open_store

if TYPE_CHECKING:
    import pytest


class RunPassCount(NamedTuple):
    """A run of the session, how many of its results passed, and how far its judges agree with people."""

    run_id: str
    passed: int
    total: int
    calibration: str | None = None


def make_evaluate(
    models: Sequence[str],
    judge: str | None,
    *,
    default_model: str | None = None,
    default_judge: str | None = None,
    runs: list[RunPassCount],
    full_trace: bool = False,
) -> Callable[..., Report]:
    """Return `evaluate` for a pytest session: `models` and `judge` override those of each call.

    Each run is added to `runs`. With `full_trace`, errors keep all their frames.

    >>> runs = []
    >>> evaluate_fake = make_evaluate(["fake:fixed=yes"], None, runs=runs)
    >>> evaluate_fake([{"input": "Yes or no?", "ideal": "yes"}], model="gpt-5").models, runs[0].passed
    (['fake:fixed=yes'], 1)
    """
    call: Callable[..., Report] = getattr(evaluate, "__wrapped__", evaluate) if full_trace else evaluate

    def pramana_evaluate(cases: Cases = None, **options: Any) -> Report:
        __tracebackhide__ = True
        if models:
            options |= {"model": None, "models": models}
        elif default_model and options.get("model") is None and not options.get("models"):
            options["model"] = default_model
        options["judge"] = judge or options.get("judge") or default_judge
        options.setdefault("progress", False)  # it would overwrite pytest's own
        folder = _find_caller_folder(currentframe())
        try:
            report = call(_resolve_paths(cases, folder), **options)
        except PramanaError as error:
            _add_searched_folders(error, cases, folder)
            if full_trace:
                raise
            raise error.with_traceback(None) from None
        overall = report.summary.overall
        calibration = describe_calibrations_briefly(report.summary.calibrations)
        runs.append(RunPassCount(report.run_id, overall.passed, overall.total, calibration))
        return report

    return pramana_evaluate


def parametrize(cases: Cases, *, selection: Selection | Mapping[str, Any] | None = None) -> "pytest.MarkDecorator":
    """Make one pytest test of each case.

    The parametrized test takes the argument `case`; the id of each pytest test is the id of its case.

    The argument `cases` is the same as for `evaluate`: a file or folder, several of them, cases, dictionaries, or a
    data frame. The argument `selection` filters the cases: `{"tags": ["vip"]}`, or a `pramana.Selection`. Pramana looks
    for a relative path in the current folder, then in the folder of the Python file that names the path.

    >>> tests = parametrize([{"id": "capital", "input": "What is the capital of France?", "ideal": "Paris"}])
    >>> [each.id for each in tests.args[1]]
    ['capital']
    """
    __tracebackhide__ = True
    import pytest

    folder = _find_caller_folder(currentframe())
    try:
        filters = Selection() if selection is None else read_selection("selection", selection)
        found = _read_cases(_resolve_paths(cases, folder), filters)
    except PramanaError as error:
        _add_searched_folders(error, cases, folder)
        raise reword_for_python(error) from None
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in found])


def _read_cases(cases: Cases, selection: Selection) -> list[Any]:
    check_struct_values(selection)
    fields = make_case_fields(cases)
    if "paths" in fields:
        found = _read_cases_from_paths(fields["paths"], selection)
    else:
        found = list(selection.select_cases(fields.get("cases", ())))
    if not found:
        if selection:
            raise InvalidInput("no case matches the filters", hint=Hint("check_filters", selection))
        raise InvalidInput("no cases were given")
    return found


def _read_cases_from_paths(paths: Sequence[Path], selection: Selection) -> list[Any]:
    if not any(map(is_store_path, paths)):
        return list(CaseSources.from_files(paths, selection).iterate_cases())
    with closing(open_store(settings.database_url())) as store:
        return list(iterate_cases_at_paths(store, paths, selection))


# ── Paths ──


def _find_caller_folder(frame: FrameType | None) -> Path | None:
    """Return the folder of the file that calls the function of a frame; None if there is no file."""
    file = frame.f_back.f_globals.get("__file__") if frame and frame.f_back else None
    return Path(file).parent if file else None


def _resolve_paths(cases: Cases, folder: Path | None) -> Cases:
    """Prefix each path with `folder` if it exists there and not in the current folder."""
    if isinstance(cases, str | Path):
        return folder / cases if folder and not path_exists(cases) and path_exists(folder / cases) else cases
    return [_resolve_paths(each, folder) for each in cases] if isinstance(cases, list | tuple) else cases


def _add_searched_folders(error: PramanaError, cases: Cases, folder: Path | None) -> None:
    given = cases if isinstance(cases, list | tuple) else [cases]
    named = [each for each in given if isinstance(each, str | Path)]
    paths = [Path(each) for each in named if not is_built_in_scenario_path(each) and not is_store_path(each)]
    here = Path.cwd()
    if isinstance(error, NotFound) and folder not in (None, here) and not all(map(path_exists, paths)):
        error.add_note(f"looked for in {here}, then in {folder}")
