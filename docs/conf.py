"""Sphinx configuration: MyST pages and the Furo theme, and each page as Markdown beside it, for `llms.txt`."""

import shutil
from pathlib import Path
from typing import Any

project = "Pramana"
author = "the Pramana contributors"
copyright = "2026, the Pramana contributors"  # noqa: A001 - Sphinx reads this name
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Pramana"
myst_heading_anchors = 3
exclude_patterns = ["_build", "examples"]
nitpicky = True
html_extra_path = ["llms.txt"]


def setup(app: Any) -> None:
    """Serve the Markdown of each page too: language models read it, and `llms.txt` links to it."""
    app.connect("build-finished", _copy_markdown)


def _copy_markdown(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        for page in Path(app.srcdir).glob("*.md"):
            shutil.copyfile(page, Path(app.outdir, page.name))
