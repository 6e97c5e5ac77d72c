"""The GitHub Action: its shell steps are run as they stand, with our program on the path."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("fail_under", "code"), [("", 0), ("0.9", 1)])
def test_the_action_s_shell_step_runs_and_passes_the_exit_code_on(tmp_path: Path, fail_under: str, code: int) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert action["runs"]["using"] == "composite"
    step = next(step for step in action["runs"]["steps"] if step["id"] == "run")
    summary, output = tmp_path / "summary", tmp_path / "output"
    environment = {
        **os.environ,  # noqa: TID251 - as a runner has it
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # noqa: TID251
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_OUTPUT": str(output),
        "PRAMANA_PATHS": str(ROOT / "docs" / "examples" / "warehouse.jsonl"),
        "PRAMANA_TIER": "cheap",
        "PRAMANA_MODEL": "fake:echo",
        "PRAMANA_FAIL_UNDER": fail_under,
    }
    assert set(step["env"]) <= environment.keys()
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert "warehouse" in summary.read_text(encoding="utf-8")
    assert output.read_text(encoding="utf-8") == "summary=pramana-summary.md\n"
    assert (tmp_path / "pramana-junit.xml").read_text(encoding="utf-8").startswith("<?xml")


def test_the_pre_commit_hook_names_a_command_that_works(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", *hook["entry"].split(), str(ROOT / "docs" / "examples" / "broken.yaml")]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 2
