"""The design tokens of reports and pages: colours of both themes, type sizes and spacing in; CSS variables out.

Colour never carries meaning alone: an outcome always has its sign and its word. Passed and failed are teal and
vermilion, which people with red-green colour blindness can distinguish; every pair of text and background has a
contrast of at least 4.5.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pramana.model import Outcome

LIGHT_COLOURS: Mapping[str, str] = {
    "ground": "#fbfaf8", "raised": "#ffffff", "ink": "#22211f", "quiet": "#65625c", "line": "#e2dfd8",
    "mark": "#22211f",
    "accent": "#1d5f8a", "on-accent": "#ffffff", "fill": "#a9cfd0", "passed": "#0c6a6e", "failed": "#b23c0c",
    "errored": "#855600", "unscored": "#5a4b96", "skipped": "#5f6368", "hint": "#f3efe6",
}  # fmt: skip
DARK_COLOURS: Mapping[str, str] = {
    "ground": "#171717", "raised": "#1f1f1e", "ink": "#e9e6e0", "quiet": "#a8a49c", "line": "#383733",
    "mark": "#f3f0ea",
    "accent": "#7fbce6", "on-accent": "#10202b", "fill": "#2c5c5e", "passed": "#6fc7c9", "failed": "#f59a70",
    "errored": "#e0b25c", "unscored": "#b9abf0", "skipped": "#a9adb3", "hint": "#2a2823",
}  # fmt: skip

OUTCOME_SIGNS: Mapping[Outcome, str] = {
    Outcome.PASSED: "✓",
    Outcome.FAILED: "✗",
    Outcome.ERRORED: "!",
    Outcome.UNSCORED: "?",
    Outcome.SKIPPED: "–",
}
"""The sign before an outcome's word, so that it is recognisable without its colour."""


@cache
def make_stylesheet() -> str:
    """Return the classes that pages and HTML reports share."""
    shared = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    paper = format_css_variables({**LIGHT_COLOURS, "ground": "#ffffff"})
    return f"{shared}@media print {{ :root:root:root {{ color-scheme: light; {paper} }} }}\n"


def format_css_variables(colours: Mapping[str, str]) -> str:
    """Return a theme as CSS variables.

    >>> format_css_variables({"ink": "#000"})
    '--ink: #000;'
    """
    return " ".join(f"--{name}: {value};" for name, value in colours.items())
