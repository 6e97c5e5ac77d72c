"""What every test gets, and `--claims`: fail the session unless each test that proves a claim ran and passed."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--claims", action="store_true", help="fail when a test named in docs/claims.toml did not pass")


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
        for test in getattr(self, "unproven", []):
            terminalreporter.write_line(f"CLAIM WITHOUT PROOF: {test} is missing, skipped or failed", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--claims"):
        config.pluginmanager.register(ClaimsKeeper(), "claims-keeper")


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the data folder of whoever runs it."""
    monkeypatch.setenv("PRAMANA_HOME", str(tmp_path / "pramana-home"))
