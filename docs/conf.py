"""Sphinx configuration: MyST pages, the Furo theme, and a claims page made from claims.toml at every build."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "Pramana"
author = "the Pramana contributors"
copyright = "2026, the Pramana contributors"  # noqa: A001 - Sphinx reads this name
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Pramana"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True
