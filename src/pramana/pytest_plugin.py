"""The pytest plugin: the fixture `pramana_evaluate`, its options, and a summary line about the session's runs.

pytest loads this module in every project where Pramana is installed, so it imports no other module of Pramana until a
test uses the fixture. `pramana.library.pytest_integration` does the work.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pluggy import Result

    from pramana.library import Report
    from pramana.library.pytest_integration import RunPassCount

_RUNS_REPORT_ATTRIBUTE = "pramana_runs"
"""The key of a test report's runs; pytest-xdist sends them from the workers with the report."""
_UNREPORTED_RUNS_KEY = pytest.StashKey[list["RunPassCount"]]()
"""Runs that are not yet in a report."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line options and the configuration file settings."""
    group = parser.getgroup("pramana", "pramana: evaluate language models and voice agents")
    group.addoption(
        "--pramana-model",
        action="append",
        default=[],
        metavar="MODEL",
        help="Model to test, overriding the models named in tests (repeatable: each test runs once per model)",
    )
    group.addoption("--pramana-judge", metavar="MODEL", help="Judge model, overriding the judges named in tests")
    parser.addini("pramana_model", "Model for tests that name none (default: local)", default=None)
    parser.addini("pramana_judge", "Judge model for tests that name none (default: the model itself)", default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an option without a value, as `--pramana-model=$MODEL` is where the variable is not set."""
    given = {
        "--pramana-model": config.getoption("pramana_model"),
        "--pramana-judge": [config.getoption("pramana_judge")],
    }
    for option, names in given.items():
        if any(name is not None and not name.strip() for name in names):
            raise pytest.UsageError(f"{option} is empty; name a model, or leave the option out")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses the fixture once per model, if there are several."""
    models = list(dict.fromkeys(metafunc.config.getoption("pramana_model")))
    if len(models) > 1 and "pramana_evaluate" in metafunc.fixturenames:
        metafunc.parametrize("pramana_evaluate", models, indirect=True)


@pytest.fixture(scope="session")
def pramana_evaluate(request: pytest.FixtureRequest) -> "Callable[..., Report]":
    """Evaluate models on test cases: `pramana.evaluate`, with the options of the pytest session."""
    from pramana.library.pytest_integration import make_evaluate

    config = request.config
    models = [request.param] if hasattr(request, "param") else list(dict.fromkeys(config.getoption("pramana_model")))
    return make_evaluate(
        models,
        config.getoption("pramana_judge"),
        default_model=config.getini("pramana_model") or None,
        default_judge=config.getini("pramana_judge") or None,
        runs=config.stash.setdefault(_UNREPORTED_RUNS_KEY, []),
        full_trace=config.getoption("fulltrace"),
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> "Generator[None, Result[pytest.TestReport]]":
    """Add the runs of a test to its report."""
    outcome = yield
    if runs := item.config.stash.get(_UNREPORTED_RUNS_KEY, None):
        setattr(outcome.get_result(), _RUNS_REPORT_ATTRIBUTE, [tuple(each) for each in runs])
        runs.clear()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many runs the session made, how many results passed, and where to see them."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    counted = [tuple(run) for each in reports for run in getattr(each, _RUNS_REPORT_ATTRIBUTE, ())]
    runs = {run_id: (passed, total) for run_id, passed, total, _ in counted}
    marks = list(dict.fromkeys(mark for *_, mark in counted if mark))
    if runs:
        number = "1 run" if len(runs) == 1 else f"{len(runs):,} runs"
        passed, total = (sum(each) for each in zip(*runs.values(), strict=True))
        where = f"pramana show {next(iter(runs))}" if len(runs) == 1 else "pramana runs"
        judged = f" ({', '.join(marks)})" if marks else ""
        terminalreporter.write_line(
            f"pramana: {number}, {passed:,} of {total:,} result{'s' * (total != 1)} passed{judged}; see: {where}"
        )
