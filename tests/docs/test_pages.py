"""README and docs: every console block and Python example is executed, and every reference page is compared with the program."""

import doctest
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import pramana
from pramana.load import cases_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in DOCS.glob("*.md") if path.name not in ("claims.md", "cli.md", "library.md")),
    DOCS / "llms.txt",
]
SAYS_OTHERWISE = ("llms.txt", "scenarios.md", "statistics.md")
"""Pages that show the content of the example files which they need, or stand for any such file."""
CONSOLE = re.compile(r"(?:<!-- exits with (\d+) -->\n)?```console\n(.*?)```", re.DOTALL)
"""A block, and the exit code of its last command where that is not 0."""


@pytest.fixture
def example_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the example files, in which a reader would type the commands."""
    folder = tmp_path / "desk"
    folder.mkdir()
    for path in (DOCS / "examples").iterdir():
        if path.is_file():  # skips a folder left by someone who followed the README there
            shutil.copy(path, folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))  # as when Python is started in that folder
    return folder


class ConsoleCommand(NamedTuple):
    command: str
    output: str
    code: int


def parse_console_block(text: str) -> list[ConsoleCommand]:
    """Return each command shown, with the output shown below it and its exit code."""
    shown = []
    for code, block in CONSOLE.findall(text):
        commands = [part.partition("\n") for part in ("\n" + block).split("\n$ ")[1:]]
        codes = [0] * (len(commands) - 1) + [int(code or 0)]
        shown += [
            ConsoleCommand(said[0], said[2].strip("\n"), code) for said, code in zip(commands, codes, strict=True)
        ]
    return shown


def read_console_commands(page: Path) -> list[ConsoleCommand]:
    return parse_console_block(page.read_text(encoding="utf-8"))


def compile_output_pattern(output: str) -> re.Pattern[str]:
    """Return a pattern for output: three dots match the rest of a line; alone on a line, any number of lines."""
    lines = [
        r"[^\n]*(?:\n[^\n]*)*" if line == "…" else "[^\n]*".join(map(re.escape, line.split("…")))
        for line in output.split("\n")
    ]
    return re.compile("\n".join(lines))


def test_an_output_pattern_matches_only_the_shown_output() -> None:
    assert compile_output_pattern("a … c\n…\nz").fullmatch("a b c\n1\n2\nz")
    for said in ("a b\nc\n1\nz", "a b c\nz", "a b c\n1\nzz", "", "a b d\n1\nz"):
        assert not compile_output_pattern("a … c\n…\nz").fullmatch(said)
    text = "```console\n$ x\ny\n$ z\n```\n<!-- exits with 2 -->\n```console\n$ a\nb\n$ c\nd\n```\n"
    assert parse_console_block(text) == [("x", "y", 0), ("z", "", 0), ("a", "b", 0), ("c", "d", 2)]


@pytest.mark.usefixtures("real_models")
@pytest.mark.parametrize("page", [page for page in PAGES if read_console_commands(page)], ids=lambda page: page.stem)
def test_console_blocks_print_what_they_show(page: Path, example_folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "80"}  # noqa: TID251
    for name in ("CI", "BUILD_NUMBER"):  # with these set, pytest's output differs from a reader's terminal
        environment.pop(name, None)
    ran = 0
    for command, output, code in read_console_commands(page):
        if command.startswith("cd docs/examples"):  # as these tests already are
            continue
        if command.startswith("make "):
            target = command.split()[1]
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            continue
        done = subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=environment,
            cwd=example_folder,
            check=False,
        )
        said = (done.stdout + done.stderr).strip("\n")
        assert compile_output_pattern(output).fullmatch(said), f"$ {command}\n{said}"
        assert done.returncode == code, f"$ {command}\n{said}"
        assert output.strip("…\n") or not said, f"$ {command}: three dots alone say nothing"
        ran += 1
    assert ran > 0


@pytest.mark.parametrize(
    "page", [page for page in PAGES if ">>> " in page.read_text(encoding="utf-8")], ids=lambda page: page.stem
)
@pytest.mark.usefixtures("example_folder")
def test_python_blocks_run(page: Path) -> None:
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", ["cli.md", "library.md", "claims.md", "llms.txt"])
def test_generated_pages_are_up_to_date(name: str) -> None:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    assert (DOCS / name).read_text(encoding="utf-8") == reference.PAGES[name]()


def test_the_docs_state_the_number_of_built_in_scenarios() -> None:
    library = Path(pramana.__file__).parent / "scenarios"
    languages = Counter(case.facets.language for path in library.rglob("*.yaml") for case in cases_of(path))
    assert len(languages) == 10
    assert f"**{languages.total()} scenarios** in ten languages" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{languages['en']} in English" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{languages.total()} built-in scenarios in" in (DOCS / "scenarios.md").read_text(encoding="utf-8")
    assert f"{languages['en']} are in English" in (DOCS / "scenarios.md").read_text(encoding="utf-8")
    assert f"all {languages['en']} English scenarios" in (DOCS / "voice.md").read_text(encoding="utf-8")


def test_internal_links_resolve() -> None:
    pages = [path for path in ROOT.rglob("*.md") if not {".venv", "_build"} & {*path.parts}]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert len(pages) > 15
    assert broken == []


def test_the_repository_has_at_most_16_pictures_and_each_is_used() -> None:
    shown = {name for page in PAGES for name in re.findall(r"pictures/([\w-]+\.png)", page.read_text(encoding="utf-8"))}
    assert {path.name for path in (DOCS / "pictures").glob("*.png")} == shown
    assert 0 < len(shown) <= 16
    assert "docs/pictures/all/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_every_public_name_is_documented() -> None:
    page = (DOCS / "library.md").read_text(encoding="utf-8")  # with its signature, so that a change shows in the diff
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) != []
    assert sorted(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == sorted(pramana.__all__)
    assert sorted(pramana.__all__) == pramana.__all__


def test_every_assertion_type_is_documented() -> None:
    from pramana.plugins import assertion_types

    page = (DOCS / "assertions.md").read_text(encoding="utf-8")
    assert [name for name in assertion_types.names() if f"| `{name}`" not in page] == []


def read_code_blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_every_option_of_the_fake_provider_is_documented() -> None:
    from pramana.providers.text.fake import NUMBER_OPTION_MAXIMUMS

    section = (
        (DOCS / "running.md").read_text(encoding="utf-8").partition("## The fake provider")[2].partition("\n## ")[0]
    )
    assert [
        name for name in (*NUMBER_OPTION_MAXIMUMS, "fake:echo", "fake:fixed=TEXT") if f"`{name}`" not in section
    ] == []


def test_every_option_of_the_loopback_servers_has_a_help_text() -> None:
    command = [sys.executable, "-m", "pramana.loopback", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "300"}, check=True)  # noqa: TID251
    options = re.findall(r"(?m)^  (--[\w-]+.*(?:\n {10,}.*)?)$", done.stdout)
    assert len(options) > 10
    assert [option for option in options if not re.search(r"\S\s{2,}\S", option)] == []


def test_every_environment_variable_is_documented() -> None:
    from pramana import settings
    from pramana.providers.kinds import VARIABLES_BY_KIND

    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    source = Path(settings.__file__).read_text(encoding="utf-8")
    read = set(re.findall(r"variable\(\"([A-Z_]+)\"\)", source))
    read |= {name for known in VARIABLES_BY_KIND.values() for name in (*known.key_variables, *known.base_url_variables)}
    assert {"PRAMANA_HOME", "PRAMANA_DATABASE_URL", "PRAMANA_DEBUG"} < read
    assert [name for name in sorted(read) if f"`{name}`" not in page] == []


def test_the_configuration_files_shown_are_valid() -> None:
    from pramana import settings
    from pramana.providers.names import resolve_target
    from pramana.providers.prices import Prices

    prices, commands = read_code_blocks("configuration.md", "toml")
    settings.data_folder().mkdir(parents=True)
    settings.prices_file_path().write_text(prices, encoding="utf-8")
    known = Prices.load(settings.prices_file_path())
    assert known.is_known(resolve_target("http://localhost:8000/v1#llama"))
    (settings.data_folder() / "config.toml").write_text(commands, encoding="utf-8")
    assert settings.read_agent_command_settings() == {"mine": {"argv": ["/path/to/answer", "--fast"], "timeout_s": 60}}


def test_the_price_entry_suggested_by_the_error_is_valid() -> None:
    from pramana import settings
    from pramana.errors import InvalidInput
    from pramana.model import Plan
    from pramana.plan_scoring import refuse_unknown_prices
    from pramana.providers.names import resolve_target
    from pramana.providers.prices import Prices
    from pramana.request import Limits
    from pramana.run.accounts import ProviderAccess

    settings.data_folder().mkdir(parents=True)
    plan = Plan("mine", None, (resolve_target('http://localhost:8000/v1#"llama"'),))
    with pytest.raises(InvalidInput) as caught:
        refuse_unknown_prices(plan, Prices(), Limits(max_cost_usd=1), ProviderAccess())
    settings.prices_file_path().write_text(str(caught.value).partition("\n")[2], encoding="utf-8")
    refuse_unknown_prices(plan, Prices.load(settings.prices_file_path()), Limits(max_cost_usd=1), ProviderAccess())


def test_the_workflow_and_hook_shown_match_the_repository() -> None:
    workflow, hook, other_files = (yaml.safe_load(block) for block in read_code_blocks("running.md", "yaml"))
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (ours,) = (step for step in workflow["jobs"]["evaluate"]["steps"] if "/pramana@" in step["uses"])
    assert set(ours["with"]) <= set(action["inputs"])
    page = (DOCS / "running.md").read_text(encoding="utf-8")
    assert [name for name in action["inputs"] if f"| `{name}` |" not in page] == []
    used = set(re.findall(r"steps\.pramana\.outputs\.(\w+)", page))
    assert used == set(action["outputs"])
    (known,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["repos"][0]["hooks"][0]["id"] == other_files[0]["id"] == known["id"]
    assert re.search(other_files[0]["files"], "evals/a.jsonl")


def read_shown_files(page: str) -> dict[str, str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", text, re.DOTALL))


def test_the_tutorial_shows_the_example_files() -> None:
    shown = read_shown_files("tutorial.md")
    assert list(shown) == ["agent.py", "support.jsonl", "test_agent.py"]
    for name, text in shown.items():
        assert text == (DOCS / "examples" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "name"), [("howto-voice.md", "desk.yaml"), ("scenarios.md", "refunds.yaml")])
def test_the_scenario_shown_is_that_of_the_examples(page: str, name: str) -> None:
    assert read_shown_files(page) == {name: (DOCS / "examples" / name).read_text(encoding="utf-8")}


def test_the_docs_show_the_example_conversation() -> None:
    shown = read_shown_files("suites.md")
    assert list(shown) == ["followup.jsonl", "chat.py"]
    for name, text in shown.items():
        assert text == (DOCS / "examples" / name).read_text(encoding="utf-8")


def test_the_docs_show_the_example_scorer() -> None:
    shown = read_shown_files("extending.md")
    assert shown == {"style_checks.py": (DOCS / "examples" / "style_checks.py").read_text(encoding="utf-8")}


def test_a_page_whose_commands_need_an_example_file_says_where_the_file_is() -> None:
    examples = {path.name for path in (DOCS / "examples").iterdir() if path.is_file()}
    silent = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        typed = " ".join(
            [each.command for each in read_console_commands(page)] + re.findall(r"(?m)^(?:>>>|\.\.\.) (.*)", text)
        )
        needed = {name for name in examples if name in typed}
        needed |= {f"{module}.py" for module in re.findall(r"python:(\w+):", typed) if f"{module}.py" in examples}
        shown = {*read_shown_files(page.name)} if page.parent == DOCS else set()
        if needed - shown and "docs/examples" not in text and page.name not in SAYS_OTHERWISE:
            silent.append((page.name, sorted(needed - shown)))
    assert silent == []


def test_every_table_column_is_documented_with_its_type() -> None:
    from pramana.report.tables import COLUMN_TYPES

    section = (DOCS / "running.md").read_text(encoding="utf-8").partition("### Columns of a table\n")[2]
    rows = re.findall(r"(?m)^\| `(\w+)` \| (\w+) \|", section.partition("\n## ")[0])
    names = {str: "text", int: "integer", float: "number", bool: "boolean"}
    assert rows == [(name, names[kind]) for name, kind in COLUMN_TYPES.items()]


def test_every_file_ending_and_format_name_is_documented() -> None:
    from pramana.report.exporters import FORMAT_ALIASES, find_exporter
    from pramana.report.exports import FORMATS

    section = (DOCS / "running.md").read_text(encoding="utf-8").partition("## Export files\n")[2].partition("\n## ")[0]
    shown = {
        ending: set(re.findall(r"`(\w+)`", names))
        for ending, names in re.findall(r"(?m)^\| `(\.\w+)` \| (.+?) \|", section)
    }
    known = [*zip(FORMATS, FORMATS, strict=True), *FORMAT_ALIASES.items()]
    assert shown == {find_exporter(each).ending: {name for name, of in known if of == each} for each in FORMATS}


def test_the_documented_retry_limits_match_the_code() -> None:
    from pramana.providers.text.anthropic import DEFAULT_MAX_TOKENS
    from pramana.run.asking import MAX_ATTEMPTS, MAX_ATTEMPTS_BEFORE_FIRST_REPLY, MAX_RETRY_AFTER_S

    page = " ".join((DOCS / "running.md").read_text(encoding="utf-8").split())
    assert (MAX_ATTEMPTS, MAX_ATTEMPTS_BEFORE_FIRST_REPLY, MAX_RETRY_AFTER_S, DEFAULT_MAX_TOKENS) == (10, 4, 900, 1024)
    for said in (
        "up to ten attempts over two to three minutes, or up to four attempts as long as no request",
        "a pause of more than 15 minutes",
        "Pramana sends 1,024",
    ):
        assert said in page


def test_every_module_is_listed_in_the_layout() -> None:
    page = (ROOT / "design" / "layout.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "pramana"
    modules = [path for path in source.rglob("*.py") if not path.name.startswith("__")]
    modules = [path for path in modules if not {"cli", "loopback", "migrations"} & {*path.parts}]
    assert len(modules) > 40
    assert [path.relative_to(source).as_posix() for path in modules if path.name not in page] == []
