"""The command line as a user sees it: output and exit codes, in a separate process where that matters."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pramana import settings
from pramana.embedded import language
from pramana.errors import EngineMissing, NotFound, Problem
from pramana.report import terminal
from pramana.show import cli
from pramana.show.cli import COMMANDS, main
from pramana.show.cli.options import GroupedCommand
from pramana.show.cli.run import run

BAD_YAML = """\
version: "1.0"
scenarios:
  - id: Bad_Id
    name: "日本語😀"
    tpye: task-completion
    prompt: hi
    expected_outcome: Greets back and asks for the name
"""
CASE = {
    "id": "coding-001",
    "category": "coding",
    "input": "x",
    "ideal": "y",
    "assertion": {"type": "contains"},
    "metadata": {"difficulty": "easy", "tokens_est": 2},
}


def pramana(*arguments: str | Path, columns: int = 80, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program in this process, from its entry point to its exit code."""
    command = ["pramana", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", command)
        for name, value in {"COLUMNS": str(columns), **environment}.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main()
    assert isinstance(ended.value.code, int)
    said, complained = (each.buffer.getvalue().decode() for each in (out, err))
    return subprocess.CompletedProcess(command, ended.value.code, said, complained)


def pramana_process(*arguments: str | Path, columns: int = 80, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pramana", *map(str, arguments)]
    env = {**os.environ, "COLUMNS": str(columns), **environment}  # noqa: TID251 - a child gets what we have
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=env, timeout=60, check=False)


def test_a_run_that_cannot_start_is_not_announced(tmp_path: Path) -> None:
    suite = tmp_path / "mine.jsonl"
    suite.write_text(json.dumps(CASE), encoding="utf-8")
    refused = pramana("run", suite, "--model", "python:json:nope")
    assert refused.returncode == 2
    assert refused.stderr.startswith("pramana: python:json:nope cannot be loaded: AttributeError")
    assert json.loads(pramana("runs", "--json").stdout) == []
    begun = pramana("run", suite, "--model", "fake:echo")
    assert begun.stderr.splitlines()[0].endswith(": mine, 1 to run")


@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD_YAML, encoding="utf-8")
    return path


def test_listing_runs_imports_only_what_it_needs() -> None:
    heavy = ["pydantic", "aiohttp", "numpy", "fastapi", "yaml", "alembic", "pramana.analyse.summary", "pramana.bench"]
    code = (
        "import sys; sys.argv = ['pramana', 'runs']\n"
        "from pramana.show.cli import main\n"
        "try: main()\n"
        f"except SystemExit as stop: sys.exit(stop.code or [name for name in {heavy} if name in sys.modules] or 0)\n"
    )
    for _ in range(2):  # an empty store, and an existing one
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")


def test_help_imports_nothing_heavy() -> None:
    heavy = ["pydantic", "aiohttp", "numpy", "sqlalchemy", "fastapi", "yaml", "rich", "jsonschema_rs", "re2"]
    code = (
        "import sys; sys.argv = ['pramana', '--help']\n"
        "from pramana.show.cli import main\n"
        "try: main()\n"
        f"except SystemExit as stop: sys.exit(stop.code or [name for name in {heavy} if name in sys.modules] or 0)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    for name, (_, sentence) in COMMANDS.items():
        assert f"{name} " in result.stdout
        assert sentence in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_listed_has_help(name: str) -> None:
    result = pramana(name, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith("Usage: ")


def test_help_of_run_lists_each_option_on_one_line_in_groups_with_three_examples() -> None:
    lines = pramana("run", "--help").stdout.splitlines()
    headings = [line for line in lines if line and not line.startswith((" ", "Usage:"))]
    assert headings == [
        "Cases:",
        "Models:",
        "Voice:",
        "Sampling:",
        "Limits:",
        "Output:",
        "Gates:",
        "Exit codes:",
        "Examples:",
    ]
    assert max(map(len, lines)) <= 80
    options = [each.opts[-1] for each in run.params if isinstance(each, click.Option)]
    shown = lines[lines.index("Cases:") : lines.index("Exit codes:")]
    assert sorted(line.split()[0] for line in shown if line.startswith("  -")) == sorted([*options, "-h,"])
    assert len([line for line in shown if line.startswith("  ")]) == len(options) + 1  # and one for --help
    assert "  --max-cost USD        Cost limit (USD)" in shown
    assert len(lines[lines.index("Examples:") + 1 :]) == 3


@pytest.mark.parametrize("name", ["run", "rescore", "show", "export", "serve"])
def test_every_option_in_a_group_exists_and_has_a_description(name: str) -> None:
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, GroupedCommand)
    options = {each.opts[-1]: each for each in command.params if isinstance(each, click.Option)}
    assert [option for options_of in command.groups.values() for option in options_of if option not in options] == []
    assert [option for option, each in options.items() if not each.help] == []
    lines = pramana(name, "--help").stdout.splitlines()
    listed = [line for line in lines[lines.index(f"{next(iter(command.groups))}:") :] if line.startswith("  -")]
    assert len(listed) == len(options) + 1
    assert all(len(line) <= 80 for line in lines)
    assert [line for line in lines if line.startswith("        ")] == []  # no option needs a second line


@pytest.mark.parametrize("name", ["run", "rescore", "show", "export", "serve"])
def test_examples_in_the_help_are_valid_commands(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = getattr(import_module(module), attribute)
    for example in command.examples:
        program, typed, *arguments = example.split()
        assert (program, typed) == ("pramana", name)
        command.make_context(name, arguments)


def test_validate_reports_errors_in_compiler_format(bad_file: Path) -> None:
    result = pramana_process("validate", bad_file)
    assert result.returncode == 2
    assert result.stdout.splitlines() == [
        f"{bad_file}:3:5: scenarios[0].id: id must be lowercase alphanumeric with hyphens only",
        "    3 |   - id: Bad_Id",
        "      |     ^",
        f"{bad_file}:3:5: scenarios[0].type: type is required",
        "    3 |   - id: Bad_Id",
        "      |     ^",
        f'{bad_file}:5:5: scenarios[0].tpye: unknown key "tpye"; did you mean "type"?',
        "    5 |     tpye: task-completion",
        "      |     ^",
        "not valid: 1 file: 3 errors, 0 warnings",
    ]


def test_validate_prints_json(bad_file: Path) -> None:
    result = pramana("validate", "--json", bad_file)
    data = json.loads(result.stdout)
    assert result.returncode == 2
    assert (data["valid"], data["files"], data["errors"], data["warnings"]) == (False, 1, 3, 0)
    assert data["problems"][0] == {
        "file": str(bad_file),
        "path": "scenarios[0].id",
        "message": "id must be lowercase alphanumeric with hyphens only",
        "line": 3,
        "column": 5,
        "severity": "error",
    }


def test_validate_prints_github_annotations(bad_file: Path) -> None:
    result = pramana("validate", "--github", bad_file)
    assert result.returncode == 2
    first = "id must be lowercase alphanumeric with hyphens only"
    assert result.stdout.splitlines()[0] == f"::error file={bad_file},line=3,col=5,title=scenarios[0].id::{first}"


def test_github_annotations_cannot_be_forged() -> None:
    problem = Problem("100%\n::error::x", "a,b:c\n::error::", 1, 2, "f,1:2.yaml")
    assert terminal.format_github_annotation(problem) == (
        "::error file=f%2C1%3A2.yaml,line=1,col=2,title=a%2Cb%3Ac%0A%3A%3Aerror%3A%3A::100%25%0A::error::x"
    )


def test_validate_checks_the_built_in_files_by_default() -> None:
    result = pramana("validate")
    assert result.returncode == 0
    assert result.stdout.startswith("valid: 25 files, ")
    assert result.stdout.endswith("110 test cases: 0 errors, 0 warnings\n")


def test_lint_warns_and_exits_0(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("id: test1\nname: n\ntype: task-completion\nprompt: p\nexpected_outcome: Reply\n", encoding="utf-8")
    assert pramana("validate", path).stdout == "valid: 1 file, 1 scenario: 0 errors, 0 warnings\n"
    result = pramana("validate", "--lint", path)
    assert result.returncode == 0
    assert f"{path}:1:1: id: warning: " in result.stdout
    assert result.stdout.endswith("0 errors, 2 warnings\n")


def test_equal_warnings_are_folded_with_a_count_unless_all_is_given(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    checked = {**CASE, "assertion": {"type": "contains", "threshold": 0.5}}
    path.write_text("".join(json.dumps({**checked, "id": f"c-{n:03}"}) + "\n" for n in range(40)), encoding="utf-8")
    folded, every = pramana("validate", path, columns=200), pramana("validate", "--all", path, columns=200)
    places = [line for line in folded.stdout.splitlines() if line.startswith(str(path))]
    assert [line.endswith(" (40 times)") for line in places] == [True, True]
    assert all(f"{path}:1:" in line for line in places), "the first place"
    assert every.stdout.count("threshold has no effect") == 40
    assert folded.stdout.splitlines()[-1] == every.stdout.splitlines()[-1]
    assert pramana("validate", "--github", path).stdout.count("::warning ") == 80
    ran = pramana("run", path, "--model", "fake:echo", columns=200)
    assert ran.stderr.splitlines()[:2] == places, "without the source, before anything is sent"
    assert "warning" not in pramana("run", path, "--model", "fake:echo", "--quiet").stderr


def test_a_long_list_of_problems_is_capped_with_the_total(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("{}\n" * 100, encoding="utf-8")
    result = pramana("validate", path, "--max-errors", "3")
    assert result.returncode == 2
    assert result.stdout.count("is required") == 3
    assert result.stdout.splitlines()[-2:] == [
        "… and 497 more; --max-errors shows more of them",
        "not valid: 1 file: 500 errors, 0 warnings",
    ]
    assert pramana("validate", path, "--max-errors", "0").returncode == 2


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_long_wide_and_hostile_lines_fit_the_terminal_and_are_escaped(tmp_path: Path, columns: int) -> None:
    path = tmp_path / "a.jsonl"
    hostile = "\x1b[31m\u202e\x07" + "日本" * 200
    path.write_text(json.dumps({**CASE, "category": hostile, "x\x1by": 1}, ensure_ascii=False), encoding="utf-8")
    result = pramana("validate", path, columns=columns)
    assert result.returncode == 2
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    shown = [line for line in result.stdout.splitlines() if line[5:8] == " | "]
    assert shown
    assert max(terminal.count_columns(line) for line in shown) <= columns


def test_the_caret_is_aligned_under_wide_characters() -> None:
    problem = Problem("m", "p", 1, 6, "f", source="日本\te\u0301x: y", caret=6)
    lines = click.unstyle(terminal._format_caret_lines(problem)).splitlines()
    before = lines[0][: lines[0].index("x")]
    assert terminal.count_columns(before) == lines[1].index("^")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["validate", "nowhere.yaml"], 2, "pramana: nowhere.yaml does not exist"),
        (["valdate"], 2, 'unknown command "valdate"; did you mean "validate"?'),
        (["validate", "--nope"], 2, "No such option"),
        (["schema", "result"], 2, "'result' is not one of"),
        (["run", "--judge", "local"], 2, "the embedded model cannot judge"),
        (["run", "--model", "gtp-5"], 2, 'unknown model "gtp-5"'),
        (["run", "--model", "fake", "--model", "fake"], 2, "the same model is named twice"),
        (["run", "--tier", "cheep"], 2, 'did you mean "cheap"'),
        (
            ["run", "--model", "gpt-5", "--model", "openai:gpt-5"],
            2,
            "the same model is named twice (gpt-5 and openai:gpt-5)",
        ),
        (["run", "--model", "opus", "--model", "claude-opus-4-6"], 2, "the same model is named twice"),
        (["run", "--param", "x"], 2, "expected NAME=VALUE"),
        (["run", "--param", "x=NaN"], 2, "Invalid value for --param"),
        (["run", "--param", "x=[-Infinity]"], 2, "Invalid value for --param"),
        (["run", "--param", "x=1e999"], 2, "Invalid value for --param"),
        (["run", "--param", "x=" + "[" * 9999], 2, "Invalid value for --param"),
        (
            ["run", "--param", "temperature=hot"],
            2,
            "--param temperature: expected a number from 0 to 100, or null, found 'hot'",
        ),
        (["run", "--param", "temperature=true"], 2, "expected a number from 0"),
        (["run", "--param", "temperature=-0.5"], 2, "expected a number from 0"),
        (["run", "--param", "top_p=1.5"], 2, "--param top_p: expected a number from 0 to 1"),
        (["run", "--top-p", "1.5"], 2, "1.5 is not in the range 0<=x<=1"),
        (["run", "--param", "seed=1.5"], 2, "expected a whole number, or null"),
        (["run", "--param", 'max_tokens="9"'], 2, "expected a whole number from 1"),
        (["run", "--param", "max_tokens=0"], 2, "expected a whole number from 1"),
        (["run", "--temperature", "nan"], 2, "'nan' is not a finite number"),
        (["run", "--max-cost", "nan"], 2, "'nan' is not a finite number"),
        (["run", "--fail-under", "nan"], 2, "'nan' is not a finite number"),
        (["run", "--deadline", "inf"], 2, "'inf' is not a finite number"),
        (["run", "--tier", "cheap", "a.jsonl"], 2, "--tier cannot be combined with PATHS"),
        (["run", "--suite", "v1.0", "a.jsonl"], 2, "--suite cannot be combined with PATHS"),
        (["runs", "--limit", "9" * 30], 2, "is not in the range"),
        (["rescore", "--max-cost", "nan"], 2, "'nan' is not a finite number"),
        (["run", "--tag", "nowhere"], 2, "no case of v1.0-cheap matches the filters"),
        (["run", "--type", "nowhere"], 2, "check the spelling of --type nowhere"),
        (["run", "--confidence", "0.9"], 2, "--confidence belongs to --fail-under"),
        (["run", "--fail-under", "90"], 2, "is not in the range"),
        (["run", "--resume", "r1"], 2, "no run"),
        (["show"], 2, "no run"),
        (["show", ""], 2, "no run is named"),
        (["export", ""], 2, "no run is named"),
        (["rescore", ""], 2, "no run is named"),
        (["run", "--resume", ""], 2, "no run is named"),
        (["compare", "", ""], 2, "no run is named"),
        (["export", "--format", "pdf"], 2, "'pdf' is not one of"),
        (["suite", "hash", "nowhere.jsonl"], 2, "does not exist"),
        (["suite", "verify", "v9"], 2, 'no suite version "v9"'),
        (["suite", "publish", "--version", "v2"], 2, "Missing argument"),
    ],
)
def test_a_usage_error_is_one_sentence_and_exits_2(arguments: list[str], code: int, message: str) -> None:
    result = pramana(*arguments)
    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


DEFECT = """
import sys
from types import ModuleType
import click
from pramana.show import cli

@click.command()
@click.option("--json", is_flag=True)
def boom(json):
    raise ExceptionGroup("several", [LookupError("a \\x1b[31m name"), ValueError("b")])

sys.modules["boom"] = ModuleType("boom")
sys.modules["boom"].boom = boom
cli.COMMANDS["boom"] = ("boom:boom", "Fall over.")
cli.main()
"""


def run_with_defect(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}  # noqa: TID251 - a child gets what we have
    command = [sys.executable, "-c", DEFECT, "boom", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def test_an_internal_error_is_one_sentence_exits_3_and_saves_its_traceback() -> None:
    result = run_with_defect()
    kept = settings.data_folder() / "defect.txt"
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == (
        f"pramana: internal error, please report this bug: LookupError: a \\x1b[31m name; the traceback is in {kept}\n"
    )
    assert "Traceback (most recent call last)" in kept.read_text(encoding="utf-8")
    assert json.loads(run_with_defect("--json").stdout)["code"] == "defect"


def test_a_traceback_is_printed_on_request_or_if_it_cannot_be_saved() -> None:
    assert "Traceback (most recent call last)" in run_with_defect(PRAMANA_DEBUG="1").stderr
    result = run_with_defect(PRAMANA_HOME="/dev/null/nowhere")
    assert result.returncode == 3
    assert result.stderr.endswith("; PRAMANA_DEBUG=1 shows the traceback\n")


def test_an_invalid_system_prompt_file_is_reported_with_its_position(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes("Sei höflich.\nUnd kürz".encode() + "ü".encode("latin-1"))
    result = pramana("run", "--model", "fake", "--system", path)
    assert result.returncode == 2
    assert result.stderr == f"{path}:2:9: not UTF-8: byte 0xfc is invalid here; save the file as UTF-8\n"


def test_show_prints_the_system_prompt_and_the_parameters(tmp_path: Path) -> None:
    prompt, suite = tmp_path / "prompt.txt", tmp_path / "mine.jsonl"
    prompt.write_text("Be brief.\nBe kind.\n", encoding="utf-8")
    suite.write_text(json.dumps(CASE), encoding="utf-8")
    asked = ("--system", prompt, "--temperature", "1.0", "--param", "top_p=0.5")
    assert pramana("run", suite, "--model", "fake:fixed=y", *asked).returncode == 0
    shown = pramana("show").stdout
    assert "  system prompt: Be brief. Be kind.\n  parameters: temperature 1, seed 42, top_p 0.5\n" in shown
    assert "system   Be brief.\n                     Be kind.\n" in pramana("show", "--id", "coding-001").stdout
    found = json.loads(pramana("show", "--json").stdout)
    assert found["system_prompt"] == "Be brief.\nBe kind."
    assert found["parameters"] == {"temperature": 1.0, "seed": 42, "top_p": 0.5}


def test_an_unknown_scorer_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    suite = tmp_path / "mine.jsonl"
    suite.write_text(json.dumps(CASE), encoding="utf-8")
    assert pramana("run", suite, "--model", "fake:fixed=y").returncode == 0
    for command in (("run", suite, "--model", "fake"), ("rescore", "latest")):
        result = pramana(*command, "--scorer", "length")
        assert result.returncode == 2
        assert result.stderr.startswith('pramana: --scorer: no scorer is named "length"; ')


def test_an_invalid_configuration_is_reported_for_any_model() -> None:
    settings.data_folder().mkdir(parents=True)
    path = settings.data_folder() / "config.toml"
    path.write_text('[commands.mine]\nargv = ["cat"]\ntimeout_s = "abc"\n', encoding="utf-8")
    result = pramana("run", "--model", "fake")
    assert result.returncode == 2
    assert result.stderr.startswith(f'{path}: commands.mine.timeout_s: is "abc"; expected seconds')


def test_an_invalid_database_url_or_price_is_a_usage_error() -> None:
    result = pramana("runs", PRAMANA_DATABASE_URL="postgresql://host:port/name")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "the database URL is neither" in result.stderr
    settings.data_folder().mkdir(parents=True)
    settings.prices_file_path().write_text("prices = " + "9" * 5000, encoding="utf-8")
    result = pramana("run", "--model", "fake", "--limit", "1")
    assert result.returncode == 2
    assert f"{settings.prices_file_path()}: is not valid TOML" in result.stderr


def test_options_of_the_plan_cannot_be_combined_with_resume(tmp_path: Path) -> None:
    """Covers every option, so that a new one must be classified: refused, or allowed per sitting."""
    text = tmp_path / "text"
    text.write_text("x", encoding="utf-8")
    values = {
        "--param": "x=1",
        "--system": str(text),
        "--output": str(tmp_path / "o"),
        "--id-file": str(tmp_path / "i"),
        "--voice": "piper",
        "--confidence": "0.95",
        "--fail-on": "regression",
    }
    allowed, refused = [], []
    for each in run.params:
        if each.name in ("resume", "paths"):
            continue
        flag = each.opts[0]
        value = () if getattr(each, "is_flag", False) else (values.get(flag, "1"),)
        result = CliRunner().invoke(run, ["--resume", "r1", flag, *value])
        if f"{flag} cannot be combined with --resume" in result.output:
            assert result.exit_code == 2
            refused.append(flag)
        else:
            assert isinstance(result.exception, NotFound), result.output  # it reached the lookup of the run
            allowed.append(flag)
    assert allowed == [
        "--max-cost", "--max-total-tokens", "--deadline", "--timeout", "--concurrency", "--fail-under", "--confidence",
        "--baseline", "--fail-on", "--margin", "--output", "--id-file", "--cache", "--quiet", "--json",
    ]  # fmt: skip
    assert {"--tier", "--suite", "--model", "--judge", "--embedder", "--repeat", "--limit", "--seed"} <= set(refused)
    several = CliRunner().invoke(run, ["other.jsonl", "--resume", "latest", "--model", "fake:echo", "--repeat", "7"])
    assert "PATHS, --model, --repeat cannot be combined with --resume" in several.output


def test_an_error_with_json_output_is_json() -> None:
    result = pramana_process("suite", "verify", "v9", "--json")
    assert result.returncode == 2
    assert json.loads(result.stdout)["code"] == "not_found"


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("{}\n" * 2000, encoding="utf-8")
    command = f"set -o pipefail; {sys.executable} -m pramana validate {path} --max-errors 10000 | head -n 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.stdout.count("\n") == 1
    assert (result.stderr, result.returncode) == ("", 141)


@pytest.mark.parametrize(("closed", "code"), [(">&-", 3), ("2>&- >&-", 3), ("--output /dev/null >&-", 0)])
def test_a_closed_stdout_is_not_an_internal_error(closed: str, code: int) -> None:
    assert pramana("run", "--model", "fake:echo", "--limit", "1", "--quiet").returncode == 0
    command = f"{sys.executable} -m pramana export {closed}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == code
    closed_both = "2>&-" in closed
    said = "" if closed_both or not code else "pramana: standard output is closed; name a file with --output\n"
    assert result.stderr == said


def test_a_run_with_closed_outputs_completes() -> None:
    command = f"{sys.executable} -m pramana run --model fake:echo --limit 1 2>&- >&-"
    assert subprocess.run(["bash", "-c", command], check=False).returncode == 0
    (made,) = json.loads(pramana("runs", "--json").stdout)
    assert made["status"] == "finished"


def test_numeric_and_null_parameters_are_accepted() -> None:
    given = ["temperature=0.5", "top_p=1", "seed=null", "max_tokens=7", "other=hot"]
    arguments = [word for each in given for word in ("--param", each)]
    assert pramana("run", "--model", "fake:echo", "--limit", "1", "--quiet", *arguments).returncode == 0


def test_an_ascii_terminal_causes_no_traceback(bad_file: Path) -> None:
    bad_file.write_text(BAD_YAML.replace("tpye", "日本"), encoding="utf-8")
    result = pramana_process("validate", bad_file, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert result.returncode == 2
    assert result.stderr == ""
    assert f"{bad_file}:5:5: scenarios[0]." in result.stdout


def test_suite_list_shows_the_whole_manifest_within_80_columns() -> None:
    result = pramana("suite", "list")
    assert result.returncode == 0
    for part in (
        "v1.0",
        "built in",
        "cheap",
        "10",
        "$0.05",
        "350",
        "Smoke test and CI gates",
        "$1.50",
        "2,800",
        "Full",
    ):
        assert part in result.stdout
    for part in ("cheap.jsonl", "moderate.jsonl", "comprehensive.jsonl"):
        assert part in result.stdout
    for part in ("sha256:", "reasoning", "creative", "exact_match", "semantic_similarity", "Regular monitoring"):
        assert part in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    (version,) = json.loads(pramana("suite", "list", "--json").stdout)
    assert version["tiers"]["cheap"]["estimated_tokens"] == 350


def test_suites_can_be_hashed_published_and_verified(tmp_path: Path) -> None:
    path = tmp_path / "smoke.jsonl"
    path.write_text(json.dumps(CASE), encoding="utf-8")
    digest = pramana("suite", "hash", path).stdout.split()[0]
    assert digest.startswith("sha256:")
    assert json.loads(pramana("suite", "hash", "--json", path).stdout) == {str(path): digest}
    published = pramana("suite", "publish", path, "--version", "v1.1", "--into", tmp_path / "mine")
    assert published.returncode == 0
    folder = tmp_path / "mine" / "v1.1"
    assert published.stdout.startswith(f"Published {folder}\n")
    again = pramana("suite", "publish", path, "--version", "v1.1", "--into", tmp_path / "mine")
    assert (again.returncode, "versions never change" in again.stderr) == (2, True)
    assert pramana("suite", "verify", folder).returncode == 0
    (folder / "smoke.jsonl").write_text(json.dumps({**CASE, "input": "z"}), encoding="utf-8")
    differs = pramana("suite", "verify", folder)
    assert differs.returncode == 2
    changed = pramana("suite", "hash", folder / "smoke.jsonl").stdout.split()[0]
    assert f"pinned {digest}" in differs.stdout
    assert f"found  {changed}" in differs.stdout
    assert json.loads(pramana("suite", "verify", "--json", folder).stdout)["verified"] is False


def test_publishing_an_invalid_suite_reports_every_problem(tmp_path: Path) -> None:
    path = tmp_path / "smoke.jsonl"
    path.write_text(json.dumps({**CASE, "category": "x"}) + "\n{", encoding="utf-8")
    result = pramana("suite", "publish", path, "--version", "v1.1")
    assert result.returncode == 2
    assert f"{path}:1:" in result.stderr
    assert f"{path}:2:2: [1]: not valid JSON" in result.stderr


@pytest.mark.parametrize("name", ["suite", "scenario", "results"])
def test_schema_prints_json_schema(name: str) -> None:
    result = pramana("schema", name)
    assert result.returncode == 0
    assert json.loads(result.stdout)["$schema"].endswith("2020-12/schema")


def test_version_prints_the_version() -> None:
    assert pramana_process("--version").stdout.startswith("pramana 0.")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (["run", "--model", "nonsense:model"], ""),
        (["token", "create", "an administrator with a rather long name", "--role", "admin"], "PATCH /api/settings."),
    ],
)
def test_long_errors_and_notes_are_wrapped_on_a_terminal(
    arguments: list[str], end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "argv", ["pramana", *arguments])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main()
    lines = shown.getvalue().splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert " ".join(shown.getvalue().split()).endswith(end)


def test_without_the_embedded_model_another_one_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "find_spec", lambda _: None)
    done = CliRunner().invoke(cli.pramana, ["run", "--tier", "cheap"], standalone_mode=False)
    assert isinstance(done.exception, EngineMissing)
    assert str(done.exception).endswith("; or choose another model: --model fake")
