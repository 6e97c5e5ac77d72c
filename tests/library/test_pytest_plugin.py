"""The pytest plugin in real pytest sessions: imports, failure output, options, xdist and interrupts."""

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pramana
from pramana import settings
from pramana.analyse.gate import check_pass_rate
from pramana.analyse.summary import Rate
from pramana.app import documents
from pramana.errors import InvalidInput, NotFound
from pramana.library.pytest_integration import RunPassCount, make_evaluate, parametrize
from pramana.load.problems import Problems
from pramana.model import Run
from pramana.store import open_store

from .. import programs

DOCS = Path(__file__).parents[2] / "docs"
QUIET = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:hypothesispytest")
"""Plugins that take longer to start than the sessions take here."""
FORKED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""What `programs` forks has imported packages of plugins already, of which pytest would warn."""
BOT = """
import pramana
import pytest

def bot(prompt):
    return "It is 2."
"""
FAILING = f"""{BOT}
def test_rate(pramana_evaluate):
    pramana_evaluate("sums.jsonl", model=bot).assert_pass_rate(0.9, confidence=0.95)

def test_missing(pramana_evaluate):
    pramana_evaluate("missing.jsonl", model=bot)

def test_invalid(pramana_evaluate):
    pramana_evaluate("broken.jsonl", model=bot)

def test_no_model(pramana_evaluate):
    pramana_evaluate("sums.jsonl", model="no-such-model")

def test_misspelt(pramana_evaluate):
    pramana_evaluate("sums.jsonl", modle=bot)

def test_percent(pramana_evaluate):
    pramana_evaluate("sums.jsonl", model=bot).assert_pass_rate(90)

@pramana.parametrize("sums.jsonl")
def test_case(case, pramana_evaluate):
    pramana_evaluate(case, model=bot).assert_passed()
"""
MESSAGE = """\
AssertionError: 1 of 3 passed (33.3 %): at 95 % confidence the pass rate is at least 1.6 %, and 90 % is required
E       
E       failed: sum-2
E         prompt: What is 2 + 1?
E         reply:  It is 2.
E         reason: does not contain "3"
E       
E       failed: sum-3
E         prompt: What is 3 + 1?
E         reply:  It is 2.
E         reason: does not contain "4"
E       
E       All of run RUN: pramana show RUN
"""  # noqa: W291 - as pytest prints it


def write_suite(path: Path, kind: str = "contains") -> None:
    lines = [
        {"id": f"sum-{number}", "category": "reasoning", "input": f"What is {number} + 1?", "ideal": str(number + 1),
         "assertion": {"type": kind}, "metadata": {"difficulty": "easy", "tokens_est": 9, "tags": [f"of-{number}"]}}
        for number in range(1, 4)
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")


def project(folder: Path, **tests: str) -> Path:
    """Write a project with a suite, a broken suite, and test files."""
    folder.mkdir(exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    write_suite(folder / "sums.jsonl")
    write_suite(folder / "broken.jsonl", "contians")
    for name, text in tests.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def environment(folder: Path) -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # noqa: TID251
    return {**mine, "PRAMANA_HOME": str(folder / "home"), "COLUMNS": "100"}


def run_pytest(folder: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = ["-m", "pytest", *QUIET, *FORKED, *arguments]
    return programs.run(command, env=environment(folder), cwd=cwd or folder)


def list_runs(folder: Path) -> list[Run]:
    """Return the runs that a session stored, newest first."""
    with closing(open_store(f"sqlite:///{folder / 'home' / 'pramana.sqlite3'}")) as store:
        return list(store.runs.read_page(limit=500)[0])


def find_failure_section(output: str, test: str) -> str:
    """Return the section that pytest printed about a failed test."""
    found = re.search(rf"^_+ {re.escape(test)} _+\n(.*?)(?=^[_=]{{3,}}|^pramana: )", output, re.DOTALL | re.MULTILINE)
    assert found, output
    return found[1]


# ── Cost ──


def test_a_session_without_the_fixture_imports_nothing_of_pramana(tmp_path: Path) -> None:
    say = "import sys\n\ndef pytest_unconfigure():\n    print('modules:', *sorted(sys.modules))\n"
    folder = project(tmp_path / "project", conftest=say, test_plain="def test_plain():\n    pass\n")
    imported = []
    for options in ((), ("-p", "no:pramana")):
        command = [sys.executable, "-m", "pytest", "-q", *QUIET, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=environment(folder))
        said, _, modules = done.stdout.partition("modules:")
        assert "pramana" not in said
        imported.append(set(modules.split()))
    assert imported[0] - imported[1] == {"pramana", "pramana.pytest_plugin"}
    assert not (folder / "home").exists()


def test_the_plugin_options_are_in_the_help(tmp_path: Path) -> None:
    said = run_pytest(project(tmp_path), "--help").stdout
    group = said.partition("\npramana: evaluate language models and voice agents:\n")[2].partition("\n\n")[0]
    assert re.findall(r"--[a-z-]+", group) == ["--pramana-model", "--pramana-judge"]
    assert re.findall(r"^  (pramana_\w+) \(string\)", said, re.MULTILINE) == ["pramana_model", "pramana_judge"]


# ── Failures ──


@pytest.fixture(scope="module", name="failed", params=["long", "short"])
def _failed_session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = project(tmp_path_factory.mktemp("failing"), test_sums=FAILING)
    done = run_pytest(folder, f"--tb={request.param}")
    assert done.returncode == 1
    assert done.stderr == ""
    return done.stdout


def test_a_failed_assertion_prints_the_failing_cases_once(failed: str) -> None:
    said = re.sub(r"r\d{8}-\d{6}-\w+", "RUN", find_failure_section(failed, "test_rate"))
    if said.startswith("test_sums.py:"):  # --tb=short indents less
        message = MESSAGE.replace("E    ", "E")
        assert said == (
            "test_sums.py:9: in test_rate\n"
            '    pramana_evaluate("sums.jsonl", model=bot).assert_pass_rate(0.9, confidence=0.95)\n'
            f"E   {message}"
        )
    else:
        shown = '>       pramana_evaluate("sums.jsonl", model=bot).assert_pass_rate(0.9, confidence=0.95)\nE       '
        assert said.partition(shown)[2] == f"{MESSAGE}\ntest_sums.py:9: AssertionError\n"


@pytest.mark.parametrize(
    ("test", "line", "message"),
    [
        ("test_missing", 12, "pramana.errors.NotFound: missing.jsonl does not exist"),
        ("test_invalid", 15, "pramana.errors.InvalidInput: broken.jsonl:1:"),
        ("test_no_model", 18, "pramana.errors.InvalidInput: unknown model"),
        ("test_misspelt", 21, "TypeError: evaluate() got an unexpected keyword argument 'modle'"),
        ("test_percent", 24, "pramana.errors.InvalidInput: minimum is a share from 0 to 1, found 90"),
        ("test_case[sum-2]", 28, "AssertionError: 0 of 1 passed (0 %), and 100 % is required"),
    ],
)
def test_a_traceback_ends_at_the_line_of_the_test(failed: str, test: str, line: int, message: str) -> None:
    said = find_failure_section(failed, test)
    assert set(re.findall(r"^(\S+\.py:\d+): ", said, re.MULTILINE)) == {f"test_sums.py:{line}"}
    assert said.count(message) == 1
    assert re.search(rf"^E +{re.escape(message)}", said, re.MULTILINE)


def test_parametrize_makes_one_test_per_case_with_its_id(failed: str) -> None:
    listed = re.findall(r"^FAILED test_sums.py::(\S+)", failed, re.MULTILINE)
    assert listed[-2:] == ["test_case[sum-2]", "test_case[sum-3]"]
    assert failed.rstrip("= \n").endswith("s")
    assert "8 failed, 1 passed" in failed


def test_the_terminal_summary_counts_passed_results(failed: str) -> None:
    assert re.findall("^pramana: .*", failed, re.MULTILINE) == [
        "pramana: 5 runs, 3 of 9 results passed; see: pramana runs"
    ]


def test_full_trace_shows_internal_frames(tmp_path: Path) -> None:
    folder = project(tmp_path / "project", test_sums=FAILING)
    said = run_pytest(folder, "--full-trace", "-k", "test_missing").stdout
    assert "pytest_integration.py:" in said
    assert "find_case_files" in said


def test_a_missing_or_invalid_file_is_one_collection_error(tmp_path: Path) -> None:
    test = "import pramana\n\n@pramana.parametrize({!r})\ndef test_case(case):\n    pass\n"
    folder = project(tmp_path, test_broken=test.format("broken.jsonl"), test_missing=test.format("missing.jsonl"))
    done = run_pytest(folder)
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    broken, missing = (
        find_failure_section(done.stdout, "ERROR collecting test_broken.py"),
        find_failure_section(done.stdout, "ERROR collecting test_missing.py"),
    )
    head = r'test_{0}.py:3: in <module>\n    @pramana.parametrize\("{0}.jsonl"\)\n[ ^]*\n'.replace('"', "'")
    wrong = r'broken.jsonl:{0}:\d+: \[{1}\].assertion.type: Invalid assertion type "contians": [^\n]*'
    lines = "".join(rf"E   {wrong.format(number + 1, number)}\n" for number in (1, 2))
    assert re.fullmatch(
        rf"{head.format('broken')}E   pramana.errors.InvalidInput: {wrong.format(1, 0)} \(3 times\)\n{lines}", broken
    ), broken
    assert re.fullmatch(
        rf"{head.format('missing')}E   pramana.errors.NotFound: missing.jsonl does not exist[^\n]*\n", missing
    ), missing


# ── Options and settings ──


def test_options_override_the_models_everywhere(tmp_path: Path) -> None:
    folder = project(tmp_path, test_sums=f"""{BOT}
JUDGED = {{"input": "Say please.", "check": {{"type": "llm_judge", "judge_prompt": "Is it polite?"}}}}

def test_one(pramana_evaluate):
    pramana_evaluate("sums.jsonl", model=bot)

def test_several(pramana_evaluate):
    pramana_evaluate(JUDGED, models=[bot, "fake:echo"], judge=bot)

def test_none(pramana_evaluate):
    pramana_evaluate("sums.jsonl")

def test_plain():
    pass
""")  # fmt: skip

    def models(*arguments: str) -> list[tuple[str, str | None]]:
        done = run_pytest(folder, "-v", *arguments)
        assert done.returncode == 0, done.stdout
        found = [
            (",".join(each.typed for each in run.plan.targets), run.plan.judge.typed if run.plan.judge else None)
            for run in reversed(list_runs(folder))
        ]
        (folder / "home" / "pramana.sqlite3").unlink()
        listed.append(re.findall(r"^test_sums.py::(\S+) PASSED", done.stdout, re.MULTILINE))
        return found

    listed: list[list[str]] = []
    bot = "python:test_sums:bot"
    (folder / "pytest.ini").write_text(
        "[pytest]\npramana_model = fake\npramana_judge = fake:fixed=YES\n", encoding="utf-8"
    )
    assert models() == [(bot, "fake:fixed=YES"), (f"{bot},fake:echo", bot), ("fake", "fake:fixed=YES")]
    assert models("--pramana-model", "fake:echo", "--pramana-judge", "fake:fixed=NO") == [
        ("fake:echo", "fake:fixed=NO")
    ] * 3  # fmt: skip
    both = ("--pramana-model", "fake:echo", "--pramana-model", "fake:fixed=2", "--pramana-model", "fake:echo")
    assert sorted(name for name, _ in models(*both)) == ["fake:echo"] * 3 + ["fake:fixed=2"] * 3
    names = [f"test_{name}[{model}]" for model in ("fake:echo", "fake:fixed=2") for name in ("one", "several", "none")]
    once = ["test_one", "test_several", "test_none", "test_plain"]
    assert listed == [once, once, [*names, "test_plain"]]
    assert [name for name, _ in models("--pramana-model", "fake:echo", "--pramana-model", "fake:echo")] == [
        "fake:echo"
    ] * 3
    (folder / "pytest.ini").write_text("[pytest]\npramana_model = fake\npramana_judge =\n", encoding="utf-8")
    assert models() == [(bot, None), (f"{bot},fake:echo", bot), ("fake", None)]


@pytest.mark.parametrize("option", ["--pramana-model", "--pramana-judge"])
def test_an_option_without_a_value_is_refused_before_any_test(option: str, tmp_path: Path) -> None:
    done = run_pytest(project(tmp_path, test_plain="def test_plain(): pass\n"), f"{option}=")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {option} is empty; name a model, or leave the option out" in done.stderr


def test_paths_are_resolved_from_the_current_folder_and_the_test_folder(tmp_path: Path) -> None:
    test = f"""{BOT}
@pramana.parametrize("sums.jsonl")
def test_case(case, pramana_evaluate):
    pramana_evaluate(["sums.jsonl"], model=bot)
"""
    folder = project(tmp_path, test_sums=test)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "3 passed" in run_pytest(folder, "..", cwd=elsewhere).stdout
    write_suite(elsewhere / "sums.jsonl")
    text = (elsewhere / "sums.jsonl").read_text(encoding="utf-8")
    (elsewhere / "sums.jsonl").write_text(text.splitlines()[0], encoding="utf-8")
    assert "1 passed" in run_pytest(folder, "..", cwd=elsewhere).stdout


def test_a_missing_file_error_lists_the_searched_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for look in (parametrize, make_evaluate([], None, runs=[])):
        with pytest.raises(NotFound, match=r"missing\.jsonl does not exist") as refused:
            look(["missing.jsonl"])
        assert refused.value.__notes__ == [f"looked for in {tmp_path}, then in {Path(__file__).parent}"]


def test_progress_is_shown_only_if_a_test_enables_it(tmp_path: Path) -> None:
    test = f"""{BOT}
def test_sums(pramana_evaluate):
    pramana_evaluate("sums.jsonl", model=bot)

def test_with_progress(pramana_evaluate):
    pramana_evaluate("sums.jsonl", model=bot, progress=True)
"""
    folder = project(tmp_path, test_sums=test)
    assert re.sub(" sum-.*", "", run_pytest(folder, "-q", "-s").stderr) == "failed python:test_sums:bot\n" * 2


# ── Sessions ──


def test_xdist_workers_share_one_store_and_one_summary_line(tmp_path: Path) -> None:
    test = f"""{BOT}
@pytest.mark.parametrize("number", range(4))
def test_all(number, pramana_evaluate):
    pramana_evaluate("sums.jsonl", model=bot)

@pramana.parametrize("sums.jsonl")
def test_case(case, pramana_evaluate):
    pramana_evaluate(case, model=bot).assert_passed()
"""
    folder = project(tmp_path, test_sums=test)
    said = run_pytest(folder, "-v", "-n", "2").stdout
    assert set(re.findall(r"^\[(gw\d)\]", said, re.MULTILINE)) == {"gw0", "gw1"}
    assert "2 failed, 5 passed" in said
    runs = list_runs(folder)
    assert (len(runs), sum(run.stored for run in runs)) == (7, 4 * 3 + 3)
    assert {run.status for run in runs} == {"finished"}
    assert re.findall("^pramana: .*", said, re.MULTILINE) == [
        "pramana: 7 runs, 5 of 15 results passed; see: pramana runs"
    ]


def test_an_interrupt_stops_pytest_and_keeps_the_stored_results(tmp_path: Path) -> None:
    test = """
import os, signal

def bot(prompt):
    if prompt == "2":
        os.kill(os.getpid(), signal.SIGINT)
    return prompt

def test_interrupted(pramana_evaluate):
    cases = [{"input": str(number), "ideal": str(number)} for number in range(2_000)]
    pramana_evaluate(cases, model=bot, concurrency=1)

def test_next(pramana_evaluate):
    pramana_evaluate("sums.jsonl", model=bot)
"""
    folder = project(tmp_path, test_sums=test)
    done = run_pytest(folder)
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in done.stdout
    assert "no tests ran" in done.stdout
    (run,) = list_runs(folder)
    assert 1 <= run.stored < run.expected == 2_000


# ── In this process ──


def test_every_evaluate_call_is_counted() -> None:
    runs: list[RunPassCount] = []
    evaluate = make_evaluate([], None, runs=runs)
    report = evaluate([{"input": "a", "ideal": "a"}, {"input": "b", "ideal": "c"}], model=str.lower, repeat=2)
    assert runs == [RunPassCount(report.run_id, 2, 4, None)]


class Frame:
    """The part of a polars data frame that is used."""

    def to_dicts(self) -> list[dict[str, Any]]:
        return ROWS


ROWS = [
    {"id": f"row-{number}", "input": "Say yes.", "ideal": "yes", "tags": ["odd"] * (number % 2)} for number in range(3)
]
EXAMPLES = DOCS / "examples"
TAGGED, FIRST = pramana.Selection(tags=("odd",)), pramana.Selection(limit=1)


@pytest.mark.parametrize(
    ("given", "selection", "ids"),
    [
        (ROWS, None, ["row-0", "row-1", "row-2"]),
        (ROWS, TAGGED, ["row-1"]),
        (ROWS, {"tags": ["odd"]}, ["row-1"]),
        (Frame(), FIRST, ["row-0"]),
        (pramana.Case("Say yes.", ideal="yes", id="one"), None, ["one"]),
        (EXAMPLES / "warehouse.jsonl", None, ["reasoning-001", "coding-001"]),
        ([str(EXAMPLES / "warehouse.jsonl"), EXAMPLES / "refunds.yaml"], FIRST, ["reasoning-001"]),
        ("library:task-completion", FIRST, ["booking-eye-test-prepone"]),
    ],
)
def test_parametrize_accepts_the_cases_that_evaluate_accepts(given: Any, selection: Any, ids: list[str]) -> None:
    name, tests = parametrize(given, selection=selection).args
    assert name == "case"
    assert [(test_id, case.id) for (case,), _, test_id in tests] == [(each, each) for each in ids]


def test_stored_scenarios_are_parametrized_and_evaluated_by_name() -> None:
    found = documents.read_document((EXAMPLES / "refunds.yaml").read_bytes(), Problems())
    with closing(open_store(settings.database_url())) as store:
        store.scenarios.import_([each.scenario.to_model_scenario() for each in found], "skip")
    first = min(each.id for each in found)
    _, tests = parametrize("store:").args
    assert sorted(case.id for (case,), _, _ in tests) == sorted(each.id for each in found)
    _, tests = parametrize([f"store:{first}", EXAMPLES / "warehouse.jsonl"], selection=FIRST).args
    assert [case.id for (case,), _, _ in tests] == ["reasoning-001"]
    report = pramana.evaluate(f"store:{first}", model="fake:echo", progress=False)
    assert [each.case_id for each in report.results()] == [first]


@pytest.mark.parametrize(
    ("given", "selection", "error", "why"),
    [
        ([], None, InvalidInput, "no cases were given: the list is empty"),
        (None, None, InvalidInput, "no cases were given"),
        (
            {"input": "a"},
            pramana.Selection(tags=("b",)),
            InvalidInput,
            r'filters; check the spelling of selection=\{"tags": \["b"\]\}$',
        ),
        ({"input": "a"}, {"tag": ["b"]}, InvalidInput, r'selection: unknown filter .tag.; did you mean "tags"'),
        ("library:nothing", None, NotFound, 'no built-in scenarios are named "nothing"'),
        ("store:nothing", None, NotFound, 'there is no scenario "nothing"'),
    ],
)
def test_parametrize_refuses_an_empty_selection(given: Any, selection: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why) as refused:
        parametrize(given, selection=selection)
    assert "looked for" not in "".join(getattr(refused.value, "__notes__", []))


def test_the_last_line_says_how_far_the_judge_agrees_with_people(tmp_path: Path) -> None:
    judged = """
def test_judged(pramana_evaluate):
    case = {"input": "Say hi.", "assertion": {"type": "llm_judge", "judge_prompt": "Is it polite?"}}
    pramana_evaluate([case], model="fake:echo", judge="fake:fixed=YES").assert_passed()
"""
    shown = run_pytest(project(tmp_path, test_judged=judged), "-q").stdout
    assert re.search(
        r"^pramana: 1 run, 1 of 1 result passed \(uncalibrated\); see: pramana show r", shown, re.MULTILINE
    )


def test_the_public_names_import_without_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None\nfrom pramana import *\nprint(parametrize.__name__)"
    assert programs.run(["-c", code]).stdout == "parametrize\n"


# ── The page ──


def test_the_docs_page_shows_the_example_file_and_a_working_fixture(tmp_path: Path) -> None:
    example, fixture = re.findall(r"```python\n(.*?)```", (DOCS / "pytest.md").read_text(encoding="utf-8"), re.DOTALL)
    assert example == (DOCS / "examples" / "test_support.py").read_text(encoding="utf-8")
    folder = project(
        tmp_path,
        test_support=f"import pytest\n{example}\n{fixture}\ndef test_report(report):\n    report.assert_passed()\n",
    )
    (folder / "support.jsonl").write_bytes((DOCS / "examples" / "support.jsonl").read_bytes())
    said = run_pytest(folder, "-q", "-k", "test_report").stdout
    assert re.search(r"^pramana: 1 run, 3 of 3 results passed; see: pramana show r", said, re.MULTILINE)


@pytest.mark.parametrize(("passed", "failed", "proven"), [(29, 0, True), (28, 0, False), (45, 1, True), (44, 1, False)])
def test_the_docs_page_states_how_many_cases_prove_a_pass_rate(passed: int, failed: int, *, proven: bool) -> None:
    total = passed + failed
    assert check_pass_rate(Rate(passed=passed, failed=failed), total, 0.9, 0.95).is_met is proven
    page = " ".join((DOCS / "pytest.md").read_text(encoding="utf-8").split())
    assert "you need at least 29 cases that all pass, or 46 cases with one failure" in page
