"""Findings as text: the terminal's summary, Markdown, HTML, JUnit, CSV and JSON. Nothing here asks, scores or decides.

Every front end uses these renderers: figures are worded in `figures`, drawn in `markup`, `pictures` and `trends`, and a
run becomes a file in `exports`.
"""
