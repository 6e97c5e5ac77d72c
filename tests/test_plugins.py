"""Registries: built-ins by name, plugins by entry point, and suggestions for misspelled names."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pramana.assertions import AssertionType, evaluate_assertion
from pramana.errors import BrokenPlugin, NotFound
from pramana.load.problems import Problems
from pramana.load.schema import make_suite_schema
from pramana.load.suite import check_suite
from pramana.plugins import Registry, assertion_types

SIX = ["exact_match", "contains", "contains_any", "is_json", "llm_judge", "semantic_similarity"]


def test_the_six_published_types_come_before_ours() -> None:
    assert assertion_types.names() == [*SIX, "regex", "json_schema", "contains_none"]


@pytest.mark.parametrize("name", assertion_types.names())
def test_every_registered_name_equals_that_of_the_loaded_object(name: str) -> None:
    kind = assertion_types.load(name)
    assert isinstance(kind, AssertionType)
    assert (kind.name, kind.version) == (name, "1")


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(NotFound, match=r'no assertion type is named "containz"; did you mean "contains"\?'):
        assertion_types.load("containz")


HEAD = "from pramana.assertions import AssertionType, Verdict\nfrom pramana.model import Outcome\n"
SHOUTING = HEAD + (
    "def decide(assertion, output, ideals):\n"
    "    return Verdict(Outcome.PASSED if output.isupper() else Outcome.FAILED, 'looked at the letters')\n"
    "is_shouting = AssertionType('is_shouting', '3', decide)\n"
)
CASE = (
    '{"id": "coding-001", "category": "coding", "input": "x", "assertion": {"type": "is_shouting"},'
    ' "metadata": {"difficulty": "easy", "tokens_est": 2}}\n'
)


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that installs a plugin with the given source."""

    def install(source: str) -> None:
        (tmp_path / "shouting.py").write_text(source, encoding="utf-8")
        info = tmp_path / "shouting-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n", encoding="utf-8")
        points = "[pramana.assertions]\nis_shouting = shouting:is_shouting\n"
        (info / "entry_points.txt").write_text(points, encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        fresh = Registry("assertion type", "pramana.assertions", assertion_types.builtin)
        for module in ("assertions", "load.suite", "load.schema"):
            monkeypatch.setattr(f"pramana.{module}.assertion_types", fresh)

    yield install
    sys.modules.pop("shouting", None)


def check_case(tmp_path: Path) -> list[str]:
    path = tmp_path / "a.jsonl"
    path.write_text(CASE, encoding="utf-8")
    problems = Problems()
    check_suite(path, problems)
    return [f"{each.path}: {each.message}" for each in problems]


def test_a_plugin_is_found_by_entry_point(tmp_path: Path, install_plugin: Callable[[str], None]) -> None:
    install_plugin(SHOUTING)
    assert check_case(tmp_path) == []
    assert "is_shouting" in make_suite_schema()["$defs"]["StatedAssertion"]["properties"]["type"]["enum"]
    check = evaluate_assertion({"type": "is_shouting"}, "HELLO")
    assert (check.outcome, check.name, check.version) == ("passed", "is_shouting", "3")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nowhere", "cannot be loaded from shouting:is_shouting of the package shouting: ModuleNotFoundError"),
        ("x = 1", "cannot be loaded from shouting:is_shouting of the package shouting: AttributeError"),
        ("def is_shouting(): ...", "is a function, not an AssertionType"),
        (SHOUTING.replace("('is_shouting'", "('other'"), 'registered as "is_shouting" has the other name "other"'),
        (SHOUTING.replace("decide)", "decide, ('volume',))"), "needs volume; a case has ideal, judge_prompt, schema"),
    ],
)
def test_an_unusable_plugin_is_a_problem_at_its_position(
    tmp_path: Path, install_plugin: Callable[[str], None], source: str, message: str
) -> None:
    install_plugin(source)
    (problem,) = check_case(tmp_path)
    assert problem.startswith("[0].assertion.type: ")
    assert message in problem
    assert make_suite_schema()
    with pytest.raises(BrokenPlugin):
        evaluate_assertion({"type": "is_shouting"}, "x")


@pytest.mark.parametrize("body", ["raise KeyError('x')", "return True"])
def test_a_plugin_that_fails_gives_an_error(install_plugin: Callable[[str], None], body: str) -> None:
    install_plugin(HEAD + f"def decide(*_): {body}\nis_shouting = AssertionType('is_shouting', '1', decide)\n")
    check = evaluate_assertion({"type": "is_shouting"}, "x")
    assert check.outcome == "errored"
    assert check.reason.startswith("is_shouting could not decide: ")


def test_a_decorated_function_is_an_assertion_type(tmp_path: Path, install_plugin: Callable[[str], None]) -> None:
    install_plugin(
        "import pramana\n"
        "@pramana.assertion_type('is_shouting', version='4')\n"
        "def is_shouting(assertion, output, ideals):\n"
        "    return output.isupper() if output else None\n"
    )
    assert check_case(tmp_path) == []
    found = [evaluate_assertion({"type": "is_shouting"}, output) for output in ("HELLO", "hello", "")]
    assert [(each.outcome, each.version, each.reason) for each in found] == [
        ("passed", "4", "is_shouting returned True"),
        ("failed", "4", "is_shouting returned False"),
        ("errored", "4", "is_shouting could not decide: TypeError: it returned NoneType; expected a bool or a Verdict"),
    ]


def test_a_name_that_two_packages_register_is_refused_with_both(
    tmp_path: Path, install_plugin: Callable[[str], None]
) -> None:
    install_plugin(SHOUTING)
    info = tmp_path / "copycat-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: copycat\nVersion: 1.0\n", encoding="utf-8")
    points = "[pramana.assertions]\nis_shouting = copycat:is_shouting\nquiet = copycat:quiet\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    with pytest.raises(BrokenPlugin, match='assertion type "is_shouting" is registered more than once: ') as refused:
        evaluate_assertion({"type": "is_shouting"}, "x")
    for named in ("shouting:is_shouting of the package shouting", "copycat:is_shouting of the package copycat"):
        assert named in str(refused.value)


def test_a_package_that_is_found_twice_registers_once(tmp_path: Path, install_plugin: Callable[[str], None]) -> None:
    install_plugin(SHOUTING)
    info = tmp_path / "shouting_again-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting-again\nVersion: 1.0\n", encoding="utf-8")
    points = "[pramana.assertions]\nis_shouting = shouting:is_shouting\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    assert evaluate_assertion({"type": "is_shouting"}, "HELLO").outcome == "passed"
