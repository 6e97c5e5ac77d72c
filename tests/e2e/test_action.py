"""The GitHub Action and the pre-commit hook: their shell steps are run unchanged, as on a runner."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
WAREHOUSE = ROOT / "docs" / "examples" / "warehouse.jsonl"


def run_step(name: str, folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does; missing inputs get the action's defaults."""
    (found,) = (each for each in ACTION["runs"]["steps"] if each["id"] == name)
    inputs = {
        variable: ACTION["inputs"][re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", value)[1]]["default"]  # type: ignore[index]
        for variable, value in found["env"].items()
    }
    environment = {
        **os.environ,  # noqa: TID251 - as a runner has it
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # noqa: TID251
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_ACTION_PATH": str(ROOT),
        **inputs,
        **given,
    }
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["run"]]
    return subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def read_outputs(folder: Path) -> dict[str, Any]:
    return dict(line.split("=", 1) for line in (folder / "output").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(("fail_under", "code"), [("", 0), ("0.9", 1)])
def test_the_action_step_runs_and_returns_the_exit_code(tmp_path: Path, fail_under: str, code: int) -> None:
    assert ACTION["runs"]["using"] == "composite"
    given = {"PRAMANA_PATHS": str(WAREHOUSE), "PRAMANA_MODEL": "fake:echo", "PRAMANA_FAIL_UNDER": fail_under}
    done = run_step("run", tmp_path, **given)
    assert done.returncode == code, done.stderr
    assert "warehouse" in (tmp_path / "summary").read_text(encoding="utf-8")
    said = read_outputs(tmp_path)
    assert set(said) == set(ACTION["outputs"])
    for name in said:
        assert ACTION["outputs"][name]["value"] == f"${{{{ steps.run.outputs.{name} }}}}"
    assert (tmp_path / said["junit"]).read_text(encoding="utf-8").startswith("<?xml")
    assert said["run"] in (tmp_path / said["summary"]).read_text(encoding="utf-8")
    (block,) = json.loads((tmp_path / said["results"]).read_text(encoding="utf-8"))
    assert len(block["results"]) == 2


def test_a_run_worse_than_its_baseline_fails_the_action(tmp_path: Path) -> None:
    baseline = tmp_path / "release.json"
    given = {"PRAMANA_PATHS": str(WAREHOUSE), "PRAMANA_MODEL": "fake:echo"}
    assert run_step("run", tmp_path, **given).returncode == 0
    (tmp_path / "pramana-results.json").rename(baseline)
    given |= {"PRAMANA_BASELINE": "release.json"}
    assert run_step("run", tmp_path, **given).returncode == 0
    strict = given | {"PRAMANA_FAIL_ON": "inconclusive", "PRAMANA_MARGIN": "10"}
    done = run_step("run", tmp_path, **strict)
    assert done.returncode == 4, done.stdout
    assert "A loss of up to" in " ".join(done.stdout.split())


def test_several_paths_can_be_on_one_line_or_on_several(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(WAREHOUSE.read_text(encoding="utf-8").replace("-001", "-009"), encoding="utf-8")
    done = run_step("run", tmp_path, PRAMANA_PATHS=f"{WAREHOUSE}\n{other}\n", PRAMANA_MODEL="fake:echo")
    assert done.returncode == 0, done.stderr
    (block,) = json.loads((tmp_path / "pramana-results.json").read_text(encoding="utf-8"))
    assert (block["suite_version"], len(block["results"])) == ("warehouse+other", 4)


def test_a_job_without_a_run_shows_no_run_of_an_earlier_job(tmp_path: Path) -> None:
    good = {"PRAMANA_PATHS": str(WAREHOUSE), "PRAMANA_MODEL": "fake:echo"}
    assert run_step("run", tmp_path, **good).returncode == 0
    for each in ("summary", "output"):
        (tmp_path / each).unlink()
    done = run_step("run", tmp_path, PRAMANA_PATHS="nowhere.jsonl", PRAMANA_MODEL="fake:echo")
    assert done.returncode == 2
    assert "nowhere.jsonl does not exist" in done.stderr
    assert not (tmp_path / "summary").exists()
    assert not (tmp_path / "output").exists()
    assert not list(tmp_path.glob("pramana-*.*"))  # nor files that a later step would publish


def test_the_action_installs_this_repository(tmp_path: Path) -> None:
    """In a fresh environment without a network; locked packages installed here count as installed there."""
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True)
    python = fresh / "bin" / "python"
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    offline = {
        "PATH": f"{fresh / 'bin'}:{os.environ['PATH']}",  # noqa: TID251
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads "no" twice here: off is on
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    assert not (packages / "pramana").exists()
    done = run_step("install", tmp_path, **offline)
    assert done.returncode == 0, done.stderr
    assert (packages / "pramana" / "suites" / "v1.0" / "manifest.toml").is_file()
    source = json.loads(next(packages.glob("pramana-*.dist-info/direct_url.json")).read_text(encoding="utf-8"))
    assert source["url"] == ROOT.as_uri()
    program = fresh / "bin" / "pramana"
    ran = subprocess.run(
        [program, "suite", "verify", "v1.0"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout.count("verified")) == (0, 3), ran.stderr


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("suites/v1.0/cheap.jsonl", True),
        ("tests/suites/mine.jsonl", True),
        ("scenarios/booking.yaml", True),
        ("voice/scenarios/task-completion/booking.yml", True),
        (".github/workflows/test.yaml", False),
        ("docker-compose.yml", False),
        ("data/training.jsonl", False),
        ("scenarios.yaml", False),
        ("suites/v1.0/manifest.toml", False),
    ],
)
def test_the_pre_commit_hook_ignores_other_files(path: str, taken: bool) -> None:
    assert bool(re.search(HOOK["files"], path)) is taken


def test_the_pre_commit_hook_names_a_valid_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", *HOOK["entry"].split(), str(ROOT / "docs" / "examples" / "broken.yaml")]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 2
