"""Rules beyond import-linter's contracts: no import cycles, and no long modules or functions."""

import ast
from pathlib import Path

import grimp

import pramana


def find_import_cycles(package: str) -> list[list[str]]:
    """Return every group of modules that import each other, however indirectly.

    Imports in functions and those for type checkers count too: a module that must be imported late, because it would
    otherwise be half made, is a cycle all the same.
    """
    graph = grimp.build_graph(package, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    found: list[list[str]] = []
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> None:  # Tarjan's strongly connected components
        order[module] = lowest[module] = len(order)
        path.append(module)
        for other in sorted(imported[module]):
            if other not in order:
                visit(other)
            if other in path:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == order[module]:
            group = path[path.index(module) :]
            del path[path.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(graph.modules):
        if module not in order:
            visit(module)
    return found


def test_no_import_cycles_even_by_late_imports() -> None:
    assert find_import_cycles("pramana") == []


def test_modules_and_functions_stay_short() -> None:
    """600 lines a module, 80 a function; a function that only states data (a schema, a table) may be longer."""
    data = {"make_results_schema", "upgrade"}
    long = []
    for file in Path(pramana.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > 600:
            long.append(f"{file.name}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in data:
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > 80:
                    long.append(f"{file.name}: {node.name} has {lines} lines")
    assert not long
