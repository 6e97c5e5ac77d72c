"""Installs a fault of the embedded models in a Python process that a test starts: see `tests/embedded_faults.py`.

It waits until the process imports a module that the fault replaces: pytest plugins must not import Pramana early.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

REPLACED_MODULES = ("pramana.embedded.language", "pramana.embedded.ears")


class Installer(importlib.abc.MetaPathFinder):
    """Installs the fault after the first import of a module in which it replaces something."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in REPLACED_MODULES:
            return None
        sys.meta_path.remove(self)  # the other module is imported normally
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec
        assert spec.loader
        execute, fault = spec.loader.exec_module, self._fault

        def execute_and_install(module: ModuleType) -> None:
            execute(module)
            install_fault(fault)

        spec.loader.exec_module = execute_and_install  # type: ignore[method-assign]
        return spec


def install_fault(fault: str) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    try:
        from tests import embedded_faults
    finally:
        del sys.path[0]
    embedded_faults.install_fault(fault)


if fault := os.environ.get("PRAMANA_TEST_EMBEDDED_FAULT"):  # noqa: TID251 - this process is a test's
    sys.meta_path.insert(0, Installer(fault))
