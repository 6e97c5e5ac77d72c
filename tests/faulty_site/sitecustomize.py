"""Installs a fault of the embedded models in a Python process that a test starts: see `tests/embedded_faults.py`."""

import os
import sys
from pathlib import Path

if fault := os.environ.get("PRAMANA_TEST_EMBEDDED_FAULT"):  # noqa: TID251 - this process is a test's
    sys.path.insert(0, str(Path(__file__).parents[2]))
    try:
        from tests.embedded_faults import install
    finally:
        del sys.path[0]
    install(fault)
