"""What import-linter's contracts do not say of the imports of the package: none leads back to where it began."""

import grimp


def import_cycles(package: str) -> list[list[str]]:
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


def test_no_module_imports_itself_by_others_even_late() -> None:
    assert import_cycles("pramana") == []
