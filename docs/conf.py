"""Sphinx configuration: MyST pages and the Furo theme."""

project = "Pramana"
author = "the Pramana contributors"
copyright = "2026, the Pramana contributors"  # noqa: A001 - Sphinx reads this name
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Pramana"
myst_heading_anchors = 3
exclude_patterns = ["_build", "examples"]
nitpicky = True
