"""Every interval that is shown is registered with its coverage: the table against the code."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import pramana
from pramana.analyse.interval_registry import (
    PRINTING_MODULES,
    REGISTERED_INTERVALS,
    REQUIRED_COVERAGE,
    RegisteredInterval,
)

SOURCES = Path(pramana.__file__).parent
INTERNAL_MAKERS = frozenset({"analyse.mean_bounds:_find_interval"})
"""What makes an interval for a registered function of its module."""


def iterate_modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCES.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(path.read_text(encoding="utf-8"))


def iterate_scopes(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield every node with the qualified name of the outermost function or class attribute that it is in."""
    for node in ast.iter_child_nodes(tree):
        inner = scope
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{scope}.{node.name}" if scope else node.name
        yield inner, node
        yield from iterate_scopes(node, inner)


def test_every_function_that_makes_an_interval_is_registered() -> None:
    makers = {
        f"{module}:{scope}"
        for module, tree in iterate_modules()
        for scope, node in iterate_scopes(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Interval"
    }
    registered = {each for interval in REGISTERED_INTERVALS for each in interval.functions}
    assert makers <= registered | INTERNAL_MAKERS, "register them in analyse/interval_registry.py, with their coverage"


def test_every_field_that_holds_an_interval_is_registered() -> None:
    found = set()
    for module, tree in iterate_modules():
        for kind in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
            for node in kind.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    name = node.target.id
                elif isinstance(node, ast.FunctionDef) and len(node.args.args) == 1:
                    name = node.name
                else:
                    continue
                if name.startswith("interval") or name.endswith("_interval"):
                    found.add(f"{module}:{kind.name}.{name}")
    known = {each for interval in REGISTERED_INTERVALS for each in interval.fields}
    assert found == known, "register the field in analyse/interval_registry.py"


def test_every_module_that_names_an_interval_in_a_text_is_registered() -> None:
    found = set()
    for module, tree in iterate_modules():
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
            if is_text and any(each in node.value for each in ("% interval", "% confidence")):  # type: ignore[attr-defined]
                found.add(module)
    assert found == set(PRINTING_MODULES), "list the module, after a look at where its intervals come from"


@pytest.mark.parametrize("interval", REGISTERED_INTERVALS, ids=lambda each: each.name)
def test_each_function_exists_and_its_coverage_reaches_the_bar(interval: RegisteredInterval) -> None:
    for each in interval.functions:
        module, _, name = each.partition(":")
        found = importlib.import_module(f"pramana.{module}")
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found)
    assert interval.lowest_coverage >= REQUIRED_COVERAGE
    assert interval.purpose
    assert interval.settings
